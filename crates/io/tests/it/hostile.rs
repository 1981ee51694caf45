//! What a server holds, and whom it serves, while clients ask much and take nothing.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::client::{Client, Fetch, into_directory};
use netblt::serve::{AuthorizedClients, Permissions, Service};
use netblt::{Cancel, Control, Error, Observer, RequestErrorKind, StaticKey};

use crate::serving::{Deaf, Host, bytes};

fn static_key(number: u8) -> StaticKey {
    StaticKey::from_bytes([number; 32])
}

/// A server that lets in the keys 1 and 2.
fn host(change: impl FnOnce(&mut Service)) -> Host {
    Host::start(|service: &mut Service| {
        let permissions = Permissions::new(service.permissions.root.clone());
        let clients = (1..=2).map(|number| (static_key(number).public(), permissions.clone()));
        let (members, _) = AuthorizedClients::new(static_key(9), clients.collect());
        service.members = Some(members);
        change(service);
    })
}

fn as_key(host: &Host, number: u8) -> Host {
    host.client(host.calling(static_key(number), static_key(9).public()))
}

/// Tells when it is connected.
struct Connects(Sender<()>);

impl Observer for Connects {
    fn connected(&mut self, _: &str) {
        let _ = self.0.send(());
    }
}

/// Asks for a tree, grants nothing, and goes when it is over.
fn take_nothing(client: &Host, path: &str, over: &Cancel) -> Result<(), Error> {
    let control = Control::new();
    control.pause();
    let mut options = client.options.clone();
    options.control = Some(control);
    let server = Client { options: &options, cancel: over, ..client.server() };
    let to = tempfile::tempdir().unwrap();
    let fetch =
        Fetch { path: path.into(), name: "tree".into(), trees: true, bytes: None, data: None };
    server.get(&fetch, into_directory(to.path()), &mut Deaf).map(|_| ())
}

/// Ends what runs beside a test, however that ends.
struct Ends<'a>(&'a Cancel);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A client that grants no buffer for the answer has nothing looked for, or done.
#[test]
fn a_request_waits_for_a_buffer_for_its_answer() {
    let host = host(|_| {});
    let (client, control) = (as_key(&host, 1), Control::new());
    control.pause();
    let mut options = client.options.clone();
    options.control = Some(control.clone());
    let (connected, has_connected) = channel();
    thread::scope(|scope| {
        let (client, options) = (&client, &options);
        scope.spawn(move || {
            let server = Client { options, ..client.server() };
            let made = server.make_directory(b"made", false, &mut Connects(connected));
            assert_eq!(made.unwrap(), 1);
        });
        has_connected.recv().unwrap();
        thread::sleep(Duration::from_millis(500));
        let is_there = fs::exists(host.root("made")).unwrap();
        control.resume();
        assert!(!is_there, "it was done for a client that takes no answer");
    });
    assert!(fs::exists(host.root("made")).unwrap());
}

/// Eight sessions may ask 64 things at once, which is what one session may.
#[test]
fn a_client_with_many_stalled_requests_makes_room_for_others() {
    let host = host(|service| service.max_sessions = 8);
    fs::create_dir(host.root("tree")).unwrap();
    fs::write(host.root("tree/f"), bytes(1 << 20, 1)).unwrap();
    // Our client asks no more than 24 things at once in a session.
    let greedy: Vec<Host> = (0..3).map(|_| as_key(&host, 1).in_session()).collect();
    let (over, busy) = (Cancel::default(), AtomicBool::new(false));
    // From now on all is asked in the sessions.
    greedy.iter().for_each(|client| _ = client.stat("tree").unwrap());
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for number in 0..66 {
            let (client, over) = (&greedy[number % 3], &over);
            let busy = &busy;
            scope.spawn(move || {
                // A request that was ended to make room is asked again, so that there are always
                // more than may be, however slowly the threads begin.
                while !over.is_aborting() && !busy.load(Ordering::Relaxed) {
                    let denied = take_nothing(client, "tree", over);
                    let is_busy =
                        matches!(denied, Err(Error::Denied { what: RequestErrorKind::Busy, .. }));
                    busy.fetch_or(is_busy, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        // Some were too many: the others have all there is.
        wait(|| busy.load(Ordering::Relaxed));
        let other = as_key(&host, 2).in_session();
        wait(|| other.stat("tree").is_ok());
        let to = tempfile::tempdir().unwrap();
        // What was ended to make room counts until its thread has ended.
        wait(|| match other.get("tree", to.path()) {
            Err(Error::Denied { what: RequestErrorKind::Busy, .. }) => false,
            done => done.unwrap().verified,
        });
    });
    // What was not asked by many at once is served as ever.
    wait(|| greedy[0].server().stat(b"tree", &mut Deaf).is_ok());
}

/// Waits for something that happens, however slow the machine is.
fn wait(until: impl Fn() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(120), "it does not happen");
        thread::sleep(Duration::from_millis(50));
    }
}
