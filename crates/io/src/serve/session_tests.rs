//! Clients with a session and without one, at one server on loopback.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::destination::Destination;
use crate::options::Selection;
use crate::serve::client::{Client, Fetch, RemoveOptions, into_directory};
use crate::serve::{AuditRecord, Piece, ServerObserver, Service, Verdict, serve};
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
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        let service = Service::new(directory.path().join("root"));
        let mut options = Options::default();
        options.network.bind = Some([127, 0, 0, 1].into());
        let ((tickets, ticket), (records, accounts)) = (channel(), channel());
        let cancel = Cancel::default();
        let (at, ends) = (options.clone(), cancel.clone());
        let run = move || serve(&service, &at, &mut TestObserver(tickets, records), &ends);
        let thread = Some(std::thread::spawn(run));
        let rendezvous = Rendezvous::Connect(ticket.recv().unwrap());
        Self { directory, accounts: Mutex::new(accounts), rendezvous, options, cancel, thread }
    }

    fn asked<'a>(&'a self, session: Option<&'a Session>, cancel: &'a Cancel) -> Client<'a> {
        Client { rendezvous: &self.rendezvous, options: &self.options, cancel, session }
    }

    /// From where so many requests came that were done.
    fn peers(&self, requests: usize) -> BTreeSet<SocketAddr> {
        let (mut peers, mut done) = (BTreeSet::new(), 0);
        while done < requests {
            let account = lock(&self.accounts).recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(account.verdict, Verdict::Done, "{account:?}");
            done += 1;
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
fn a_client_without_a_session_is_served_beside_one_with_a_session() {
    let (host, cancel) = (Host::start(), Cancel::default());
    host.ask_all(&host.asked(None, &cancel));
    assert!(host.peers(7).len() > 1);
    let session = Session::new(host.rendezvous.clone(), &host.options);
    host.ask_all(&host.asked(Some(&session), &cancel));
    assert_eq!(host.peers(7).len(), 1);
    host.ask_all(&host.asked(None, &cancel));
    assert!(host.peers(7).len() > 1);
    assert!(session.known_mux().is_some());
}
