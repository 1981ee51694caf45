//! A server that is killed while a client has a session with it: what the client asks next is
//! answered when the server is there again, and what was under way ends.

use std::fs;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::testenv::{Env, Running};
use netblt::serve::client::{Client, Fetch};
use netblt::serve::{Entry, Session};
use netblt::{Cancel, Destination, Error, Observer, Options, Rendezvous, Ticket};
use rustix::process::Signal;

/// Far less than a death timer: an UNKNOWN shows that a server does not know the session.
const ANSWER_LIMIT: Duration = Duration::from_secs(80);
const DEATH_TIMER: Duration = Duration::from_secs(300);
const LARGE: usize = 32 << 20;

struct Deaf;

impl Observer for Deaf {}

/// A client with a session, which the server is not.
struct TestClient {
    rendezvous: Rendezvous,
    options: Options,
    cancel: Cancel,
    session: Session,
    /// Where the server is.
    port: String,
}

impl TestClient {
    /// Of the server whose ticket is in `ticket`.
    fn new(env: &Env) -> Self {
        let ticket = fs::read_to_string(env.path("ticket")).expect("the ticket");
        let ticket: Ticket = ticket.parse().expect("a ticket");
        let port = ticket.addresses[0].rsplit(':').next().expect("a port").to_owned();
        let mut options = Options::default();
        options.network.bind = Some([127, 0, 0, 1].into());
        options.settings.death_timer = DEATH_TIMER;
        let rendezvous = Rendezvous::Connect(ticket);
        let session = Session::new(rendezvous.clone(), &options);
        Self { rendezvous, options, cancel: Cancel::default(), session, port }
    }

    fn server(&self) -> Client<'_> {
        let Self { rendezvous, options, cancel, session, .. } = self;
        Client { rendezvous, options, cancel, session: Some(session) }
    }

    fn stat(&self, path: &str) -> Result<Entry, Error> {
        self.server().stat(path.as_bytes(), &mut Deaf)
    }

    /// Asks until it is answered.
    fn asks_till_answered(&self, path: &str) {
        let begun = Instant::now();
        while let Err(error) = self.stat(path) {
            assert!(begun.elapsed() < ANSWER_LIMIT, "{error:?}");
        }
    }
}

/// A server of `root` at this port.
fn server(env: &Env, port: &str) -> Running {
    let args = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", port];
    let mut server = env.start(&[&args[..], &["--ticket-file", "ticket"]].concat());
    server.event("listening", |_| true);
    server
}

/// Its socket goes without a word.
fn kill(server: Running) {
    server.signal(Signal::KILL);
    assert_eq!(server.finish().code, None);
}

/// A server that was killed at rest in a session, and who had that.
fn killed() -> (Env, TestClient) {
    let env = Env::new();
    env.make_directory("root");
    env.make_file("root/f", 1000);
    let first = server(&env, "0");
    let client = TestClient::new(&env);
    assert_eq!(client.stat("f").expect("answered").length, 1000);
    kill(first);
    (env, client)
}

#[test]
fn a_request_after_a_restart_of_the_server_is_answered_in_time() {
    let (env, client) = killed();
    let mut last = server(&env, &client.port);
    for round in 0..3 {
        let begun = Instant::now();
        let entry = client.stat("f").unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert_eq!(entry.length, 1000);
        assert!(begun.elapsed() < ANSWER_LIMIT, "{:?}", begun.elapsed());
        kill(last);
        last = server(&env, &client.port);
    }
}

#[test]
fn a_request_to_a_stopped_server_is_answered_after_its_start() {
    let (env, client) = killed();
    thread::scope(|scope| {
        let asked = scope.spawn(|| client.stat("f"));
        thread::sleep(Duration::from_secs(2));
        let _again = server(&env, &client.port);
        let begun = Instant::now();
        assert_eq!(asked.join().expect("no panic").expect("answered").length, 1000);
        assert!(begun.elapsed() < ANSWER_LIMIT, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_changing_request_takes_effect_once_or_its_client_gets_an_error() {
    let (env, client) = killed();
    let _again = server(&env, &client.port);
    let begun = Instant::now();
    let made = client.server().make_directory(b"d", false, &mut Deaf);
    assert!(begun.elapsed() < ANSWER_LIMIT, "{:?}", begun.elapsed());
    // The client did not know whether it was done, and it was not.
    assert!(matches!(made, Err(Error::Ended(_))), "{made:?}");
    assert_eq!(env.names("root"), ["f"]);
    assert_eq!(client.server().make_directory(b"d", false, &mut Deaf).expect("made"), 1);
}

/// Says when the first bytes are there, and takes no more until it may.
struct Slow(Option<(Sender<()>, Receiver<()>)>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some((begun, may)) = self.0.take() {
            let _ = begun.send(());
            let _ = may.recv();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_request_in_progress_fails_at_a_kill_and_the_next_is_answered() {
    let env = Env::new();
    env.make_directory("root");
    env.make_file("root/large", LARGE);
    let first = server(&env, "0");
    let mut client = TestClient::new(&env);
    // Most of the file is still to come when the first bytes of it are there.
    (client.options.buffers.count, client.options.buffers.memory) = (4, 0);
    client.options.buffers.bytes = 1 << 20;
    client.stat("large").expect("answered");
    let ((begin, begun), (let_go, may)) = (channel(), channel());
    thread::scope(|scope| {
        let into = Destination::writer(Slow(Some((begin, may))));
        let (path, bytes) = (b"large".to_vec(), Some(LARGE as u64));
        let fetch = Fetch { path, name: "large".into(), trees: false, bytes, data: None };
        let server_of = &client;
        let got = scope.spawn(move || server_of.server().get(&fetch, into, &mut Deaf));
        begun.recv_timeout(ANSWER_LIMIT).expect("it comes");
        kill(first);
        let _again = server(&env, &client.port);
        let when = Instant::now();
        let_go.send(()).expect("it waits");
        client.asks_till_answered("large");
        let got = got.join().expect("no panic");
        assert!(matches!(got, Err(Error::Ended(_))), "{got:?}");
        assert!(when.elapsed() < ANSWER_LIMIT, "{:?}", when.elapsed());
        // One that is as large goes well now.
        let fetch = Fetch {
            path: b"large".to_vec(),
            name: "large".into(),
            trees: false,
            bytes: None,
            data: None,
        };
        let into = Destination::writer(io::sink());
        let got = client.server().get(&fetch, into, &mut Deaf);
        assert_eq!(got.expect("it comes").bytes, LARGE as u64);
    });
}
