//! Clients and servers of which the one knows sessions and the other does not, on loopback.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::destination::Destination;
use crate::options::Selection;
use crate::serve::client::{Client, Fetch, RemoveOptions, into_directory};
use crate::serve::server::serve_with;
use crate::serve::{AuditRecord, Piece, ServerObserver, Service, Verdict};
use crate::ticket::Ticket;

struct TestObserver(Sender<Ticket>, Sender<AuditRecord>);

impl ServerObserver for TestObserver {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.0.send(ticket.clone()).map_err(std::io::Error::other)
    }

    fn ended(&mut self, account: &AuditRecord) {
        let _ = self.1.send(account.clone());
    }

    fn warn(&mut self, error: &Error) {
        eprintln!("server: {error}");
    }
}

struct Deaf;

impl Observer for Deaf {}

/// A server in a thread of its own, and what its clients need.
struct Host {
    directory: tempfile::TempDir,
    accounts: Mutex<Receiver<AuditRecord>>,
    rendezvous: Rendezvous,
    options: Options,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Host {
    fn start(sessions: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        let service = Service::new(directory.path().join("root"));
        let options = Options { bind: Some([127, 0, 0, 1].into()), ..Options::default() };
        let ((tickets, ticket), (records, accounts)) = (channel(), channel());
        let cancel = Cancel::default();
        let (at, ends) = (options.clone(), cancel.clone());
        let run =
            move || serve_with(sessions, &service, &at, &mut TestObserver(tickets, records), &ends);
        let thread = Some(std::thread::spawn(run));
        let rendezvous = Rendezvous::Connect(ticket.recv().unwrap());
        Self { directory, accounts: Mutex::new(accounts), rendezvous, options, cancel, thread }
    }

    fn asked<'a>(&'a self, session: Option<&'a Session>, cancel: &'a Cancel) -> Client<'a> {
        Client { rendezvous: &self.rendezvous, options: &self.options, cancel, session }
    }

    /// From where so many requests came that were done. A session that was refused is none.
    fn peers(&self, requests: usize) -> BTreeSet<SocketAddr> {
        let (mut peers, mut done) = (BTreeSet::new(), 0);
        while done < requests {
            let account = lock(&self.accounts).recv_timeout(Duration::from_secs(30)).unwrap();
            match account.verdict {
                Verdict::Done => done += 1,
                _ => assert_eq!(account.request, "none", "{account:?}"),
            }
            peers.insert(account.peer);
        }
        peers
    }

    /// A file is there.
    fn write(&self, name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Asks for everything that there is: of six things, of which a put is two requests.
    fn ask_all(&self, server: &Client<'_>) {
        let root = self.directory.path().join("root");
        let content = vec![7; 300_000];
        assert_eq!(server.make_directory(b"d", false, &mut Deaf).unwrap(), 1);
        let put = Selection::from(vec![self.write("here", &content)]);
        assert!(server.put(put, b"d/f", &mut Deaf).unwrap().verified);
        assert_eq!(std::fs::read(root.join("d/f")).unwrap(), content);
        assert_eq!(server.stat(b"d/f", &mut Deaf).unwrap().length, 300_000);
        let pieces = [Piece { path: b"d/f".into(), offset: 10, bytes: 20 }];
        let read = server.read(&pieces, &mut Deaf).unwrap().remove(0).unwrap();
        assert_eq!(read.1, content[10..30]);
        assert!(server.get(&fetch("d/f"), self.back(), &mut Deaf).unwrap().verified);
        assert_eq!(std::fs::read(self.directory.path().join("back")).unwrap(), content);
        server
            .remove(b"d", RemoveOptions { empty_directory: true, tree: true }, &mut Deaf)
            .unwrap();
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
    }

    fn back(&self) -> Destination {
        into_directory(self.directory.path())
    }
}

fn fetch(path: &str) -> Fetch {
    Fetch { path: path.into(), name: "back".into(), trees: false, bytes: None, data: None }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cancel.abort();
        let served = self.thread.take().map(JoinHandle::join);
        let well = matches!(served, Some(Ok(Ok(()))));
        assert!(well || std::thread::panicking(), "{served:?}");
    }
}

#[test]
fn a_server_that_knows_no_sessions_is_asked_by_connections_of_their_own() {
    let (host, cancel) = (Host::start(false), Cancel::default());
    let session = Session::new(host.rendezvous.clone(), &host.options);
    let server = host.asked(Some(&session), &cancel);
    host.ask_all(&server);
    assert!(session.is_unknown());
    assert!(host.peers(7).len() > 1, "each had its own");
    // It is not tried again.
    host.ask_all(&server);
    host.peers(7);
    assert!(matches!(session.mux(&mut Deaf, &cancel), Ok(None)));
    session.close();
}

#[test]
fn the_first_request_to_a_server_without_sessions_is_performed_once() {
    let (host, cancel) = (Host::start(false), Cancel::default());
    let root = host.directory.path().join("root");
    let asks: [&dyn Fn(&Client<'_>); 5] = [
        &|server| assert_eq!(server.make_directory(b"d", false, &mut Deaf).unwrap(), 1),
        &|server| {
            let put = Selection::from(vec![host.write("here", b"content")]);
            assert!(server.put(put, b"f", &mut Deaf).unwrap().verified);
        },
        &|server| assert!(server.get(&fetch("f"), host.back(), &mut Deaf).unwrap().verified),
        &|server| assert_eq!(server.stat(b"f", &mut Deaf).unwrap().length, 7),
        &|server| server.rename(b"f", b"g", false, &mut Deaf).unwrap(),
    ];
    for ask in asks {
        let session = Session::new(host.rendezvous.clone(), &host.options);
        ask(&host.asked(Some(&session), &cancel));
    }
    host.peers(6);
    assert_eq!(std::fs::read(root.join("g")).unwrap(), b"content");
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 2);
}

#[test]
fn requests_at_once_all_learn_that_a_server_knows_no_sessions() {
    let (host, cancel) = (Host::start(false), Cancel::default());
    host.write("root/f", b"content");
    let session = Session::new(host.rendezvous.clone(), &host.options);
    let begin = std::sync::Barrier::new(12);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                begin.wait();
                let server = host.asked(Some(&session), &cancel);
                assert_eq!(server.stat(b"f", &mut Deaf).unwrap().length, 7);
            });
        }
    });
    assert!(host.peers(12).len() > 1);
    assert!(session.is_unknown());
}

#[test]
fn a_client_that_knows_no_sessions_is_served_beside_one_that_does() {
    let (host, cancel) = (Host::start(true), Cancel::default());
    host.ask_all(&host.asked(None, &cancel));
    assert!(host.peers(7).len() > 1);
    let session = Session::new(host.rendezvous.clone(), &host.options);
    host.ask_all(&host.asked(Some(&session), &cancel));
    assert_eq!(host.peers(7).len(), 1);
    host.ask_all(&host.asked(None, &cancel));
    assert!(host.peers(7).len() > 1);
    assert!(session.known_mux().is_some() && !session.is_unknown());
}
