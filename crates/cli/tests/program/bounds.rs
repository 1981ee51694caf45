//! What a server takes of memory, threads and files while clients ask much and take nothing,
//! judged in its own process.

use std::fs;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use crate::testenv::{Env, Running, wait_until};
use netblt::serve::client::{Client, Fetch, into_directory};
use netblt::{
    Cancel, Control, Error, Observer, Options, Progress, Rendezvous, RequestErrorKind, Ticket,
};
use rustix::process::Signal;

struct Deaf;

impl Observer for Deaf {}

/// A server of `root` with these options.
fn server(env: &Env, options: &[&str]) -> Running {
    let own = ["serve", "--root", "root", "--ticket-file", "ticket", "--json"];
    let place = ["--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&own[..], &place, options].concat());
    server.event("listening", |_| true);
    server
}

/// A number of `/proc/PID/status`: KiB, or threads.
fn status(process: u32, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()).expect("a number");
    number.parse().expect("a number")
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count()
}

/// A client with an address of its own, so that the server counts it by itself.
struct TestClient {
    rendezvous: Rendezvous,
    options: Options,
    cancel: Cancel,
}

impl TestClient {
    fn new(env: &Env, number: usize) -> Self {
        let ticket = fs::read_to_string(env.path("ticket")).expect("the ticket");
        let ticket: Ticket = ticket.parse().expect("a ticket");
        let mut options = Options::default();
        let last = u8::try_from(number + 2).expect("few clients");
        options.network.bind = Some(IpAddr::from([127, 0, 0, last]));
        options.settings.path_cache = false;
        Self { rendezvous: Rendezvous::Connect(ticket), options, cancel: Cancel::default() }
    }

    fn server(&self) -> Client<'_> {
        let Self { rendezvous, options, cancel } = self;
        Client { rendezvous, options, cancel, session: None }
    }
}

/// Stops granting when the first bytes have come.
struct Stops<'a> {
    control: &'a Control,
    begun: &'a AtomicUsize,
    has_begun: bool,
}

impl Observer for Stops<'_> {
    fn progress(&mut self, progress: &Progress) {
        if progress.bytes > 0 && !self.has_begun {
            self.control.pause();
            self.has_begun = true;
            self.begun.fetch_add(1, SeqCst);
        }
    }
}

/// Forty clients fetch a tree, stop granting when the first bytes are there, and stay, so that the
/// server holds as much as it may for each at once. Its lists of names are 2 MiB for each client.
///
/// The bound: buffers have what `--memory` says, names half of that beside it, and each connection
/// has two threads and its own state, of which 256 KiB are resident.
#[test]
fn forty_trees_at_once_take_no_more_memory_than_the_server_may_have() {
    const CLIENTS: usize = 40;
    const MEMORY: u64 = 32 << 10;
    const EACH: u64 = 256;
    let env = Env::new();
    env.make_directory("root/tree");
    fill(&env, "root/tree", 4000, 250);
    let server = server(&env, &["--memory", "32MiB"]);
    let id = server.id();
    TestClient::new(&env, CLIENTS).server().stat(b"tree", &mut Deaf).expect("answered");
    let before = status(id, "VmHWM");
    let clients: Vec<TestClient> =
        (0..CLIENTS).map(|number| TestClient::new(&env, number)).collect();
    let (begun, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&clients);
        for client in &clients {
            let (begun, busy) = (&begun, &busy);
            scope.spawn(move || match stay(client, begun) {
                Err(Error::Denied { what: RequestErrorKind::Busy, .. }) => {
                    _ = busy.fetch_add(1, SeqCst)
                }
                Err(Error::Interrupted) => {}
                other => panic!("{other:?}"),
            });
        }
        let all = || begun.load(SeqCst) + busy.load(SeqCst) >= CLIENTS;
        wait_until("all are served or refused", all);
    });
    let (peak, served) = (status(id, "VmHWM"), begun.load(SeqCst));
    let most = before + MEMORY + MEMORY / 2 + CLIENTS as u64 * EACH;
    eprintln!("{before} KiB before, at most {peak} of {most}; {served} of {CLIENTS} served");
    assert!(peak <= most, "{before} KiB before, at most {peak} of {most}");
    assert!(served > 0, "nothing was served");
    // What is over takes nothing: one client gets all of it.
    let last = TestClient::new(&env, CLIENTS);
    let to = tempfile::tempdir().expect("a directory");
    let came = last.server().get(&tree(), into_directory(to.path()), &mut Deaf);
    assert_eq!(came.expect("it comes").files, 4000);
    server.signal(Signal::TERM);
    server.finish().exits(0);
}

/// So many files with names of so many bytes.
fn fill(env: &Env, directory: &str, count: usize, bytes: usize) {
    for number in 0..count {
        let name = format!("{directory}/{number:0bytes$}");
        fs::write(env.path(&name), [7; 500]).expect("written");
    }
}

fn tree() -> Fetch {
    let (path, name) = (b"tree".to_vec(), "tree".into());
    Fetch { path, name, trees: true, bytes: None, data: None }
}

/// Fetches the tree, and grants nothing any more when the first of it is there.
fn stay(client: &TestClient, begun: &AtomicUsize) -> Result<(), Error> {
    let control = Control::new();
    let mut options = client.options.clone();
    options.control = Some(control.clone());
    let server = Client { options: &options, ..client.server() };
    let to = tempfile::tempdir().expect("a directory");
    let mut stops = Stops { control: &control, begun, has_begun: false };
    server.get(&tree(), into_directory(to.path()), &mut stops).map(|_| ())
}

/// Stops all of them, however a test ends.
struct Ends<'a>(&'a [TestClient]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|client| client.cancel.cancel());
    }
}

/// Stops a request as soon as its connection is open.
struct Leaves<'a>(&'a Cancel);

impl Observer for Leaves<'_> {
    fn connected(&mut self, _: &str) {
        self.0.cancel();
    }
}

/// Eight clients list a directory again and again, and stop as soon as they may ask.
///
/// The bounds: 64 requests at once, which is what 8 sessions may ask, each with two threads and
/// four open files; and the memory of the other test.
#[test]
fn lists_that_are_broken_off_leave_no_threads_files_or_memory() {
    const SESSIONS: usize = 8;
    const REQUESTS: usize = 64;
    const MEMORY: u64 = 32 << 10;
    let env = Env::new();
    env.make_directory("root/tree");
    fill(&env, "root/tree", 3000, 100);
    let server = server(&env, &["--memory", "32MiB", "--max-sessions", "8"]);
    let id = server.id();
    let last = TestClient::new(&env, SESSIONS);
    let count = || {
        let mut count = 0;
        let found = |_| {
            count += 1;
            Ok(())
        };
        last.server().list(b"tree", &mut Deaf, found).map(|()| count)
    };
    assert_eq!(count().expect("answered"), 3000);
    let now = || (status(id, "Threads"), open_files(id), status(id, "VmHWM"));
    let (threads, files, memory) = now();
    let (most, left) = (Mutex::new((0, 0)), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let (env, now, most, left) = (&env, &now, &most, &left);
            scope.spawn(move || {
                for _ in 0..50 {
                    let client = TestClient::new(env, number);
                    let mut leaves = Leaves(&client.cancel);
                    let listed = client.server().list(b"tree", &mut leaves, |_| Ok(()));
                    left.fetch_add(usize::from(listed.is_err()), SeqCst);
                    let (threads, files, _) = now();
                    let mut most = most.lock().expect("no panic");
                    *most = (most.0.max(threads), most.1.max(files));
                }
            });
        }
    });
    let (most, left) = (*most.lock().expect("no panic"), left.load(SeqCst));
    let peak = status(id, "VmHWM");
    eprintln!(
        "{left} left; {threads} threads, {files} files, {memory} KiB, at most {most:?}, {peak}"
    );
    assert!(left > 0, "all of them were answered");
    assert!(most.0 <= threads + 2 * REQUESTS as u64, "{most:?} of {threads}");
    assert!(most.1 <= files + 4 * REQUESTS, "{most:?} of {files}");
    let room = MEMORY + MEMORY / 2 + SESSIONS as u64 * 256;
    assert!(peak <= memory + room, "{peak} KiB of {memory}");
    wait_until("all of it is over", || {
        let (now, open, _) = now();
        now <= threads && open <= files
    });
    assert_eq!(count().expect("answered"), 3000);
    server.signal(Signal::TERM);
    let output = server.finish().exits(0).text();
    let asked = output.lines().filter(|line| line.contains(r#""request":"list""#)).count();
    // Beside the two lists that were wanted.
    assert!(asked > 2, "none of them had begun: {asked}");
}
