//! Lent keys, and the servers that a server connects to, on loopback.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netblt_proto::config::{PublicKey, StaticKey};

use super::*;
use crate::cancel::Cancel;
use crate::error::RequestErrorKind;
use crate::keys::tofu;
use crate::options::Options;
use crate::permissions::Permissions;
use crate::serve::{AuditRecord, AuthorizedClients, ServerObserver, Service, serve};
use crate::ticket::Ticket;

struct TestObserver(Sender<String>);

impl ServerObserver for TestObserver {
    fn listening(&mut self, _: &Ticket) -> std::io::Result<()> {
        Ok(())
    }

    fn listening_at(&mut self, addresses: &[String]) {
        let _ = self.0.send(addresses[0].clone());
    }

    fn ended(&mut self, _: &AuditRecord) {}

    fn warn(&mut self, _: &Error) {}
}

struct Deaf;

impl Observer for Deaf {}

fn key(number: u8) -> StaticKey {
    StaticKey::from_bytes([number; 32])
}

fn options() -> Options {
    let mut options = Options::default();
    options.network.bind = Some([127, 0, 0, 1].into());
    options.settings.death_timer = Duration::from_secs(3);
    options
}

/// A server in a thread of its own, which knows one client.
struct Host {
    directory: tempfile::TempDir,
    address: String,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Host {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut permissions = Permissions::new(directory.path());
        permissions.third_party = true;
        let mut service = Service::new(directory.path());
        service.members =
            Some(AuthorizedClients::new(key(9), vec![(key(1).public(), permissions)]).0);
        let ((addresses, address), cancel) = (channel(), Cancel::default());
        let theirs = cancel.clone();
        let run = move || serve(&service, &options(), &mut TestObserver(addresses), &theirs);
        let thread = Some(std::thread::spawn(run));
        Self { directory, address: address.recv().unwrap(), cancel, thread }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn call(&self, own: StaticKey) -> Rendezvous {
        tofu::call(&self.address, own, key(9).public()).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.cancel.abort();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_lent_key_allows_one_announced_upload_and_nothing_else() {
    let host = Host::start();
    let (options, cancel) = (options(), Cancel::default());
    let own = host.call(key(1));
    let server = Client { rendezvous: &own, options: &options, cancel: &cancel, session: None };
    let announce = || server.announce(false, false, true, b"there", &mut Deaf).unwrap();
    let (number, name, lent) = announce();
    let lent = host.call(lent.expect("a key"));
    let borrower = Client { rendezvous: &lent, options: &options, cancel: &cancel, session: None };

    // It asks for nothing, and brings nothing under another number.
    let asked = borrower.stat(b"", &mut Deaf);
    assert!(
        matches!(asked, Err(Error::Denied { what: RequestErrorKind::NotUnderstood, .. })),
        "{asked:?}"
    );
    let (other, _, _) = announce();
    let send = |number| {
        let path = host.directory.path().join("here");
        std::fs::write(&path, "content").unwrap();
        let items = vec![(path, name.clone())];
        let selection = crate::options::Selection { items, ..Default::default() };
        let mut options = options.clone();
        options.server_request.put = Some(number);
        let source = crate::options::Source::Selection(selection);
        crate::send(source, &lent, &options, &mut Deaf, &cancel).map_err(server_error)
    };
    let via_server = send(other);
    assert!(matches!(via_server, Err(Error::Denied { .. })), "{via_server:?}");
    assert!(!host.root("there").exists());

    // The announced upload comes, and then the key is no longer accepted.
    assert!(send(number).unwrap().verified);
    assert_eq!(std::fs::read(host.root("there")).unwrap(), b"content");
    let again = send(number);
    assert!(matches!(again, Err(Error::Connect { .. } | Error::Ended(_))), "{again:?}");
}

#[test]
fn a_called_server_that_proves_nothing_gets_few_openings() {
    let host = Host::start();
    std::fs::write(host.root("here"), vec![7; 1 << 20]).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let (options, cancel) = (options(), Cancel::default());
    let own = host.call(key(1));
    let push = PushTarget { number: 1, server: PublicKey([3; 32]), own: key(4), address };
    let send = Operation::Send(SendRequest { trees: false, name: b"here".to_vec(), push });
    let fetch = Fetch {
        path: b"here".to_vec(),
        name: "here".into(),
        trees: false,
        bytes: None,
        data: None,
    };
    let begun = Instant::now();
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let server =
                Client { rendezvous: &own, options: &options, cancel: &cancel, session: None };
            server.watch(send, &fetch, &mut Deaf)
        });
        let (mut packets, mut bytes, mut room) = (0, 0, [0; 1 << 16]);
        while !asked.is_finished() || packets == 0 {
            assert!(begun.elapsed() < Duration::from_secs(100), "it goes on for ever");
            if let Ok((size, from)) = stranger.recv_from(&mut room) {
                (packets, bytes) = (packets + 1, bytes + size);
                // An echo proves nothing.
                stranger.send_to(&room[..size], from).unwrap();
            }
        }
        println!("{packets} packets, {bytes} bytes in {:?}", begun.elapsed());
        assert!(packets <= 32 && bytes <= 32 * 1500, "{packets} packets, {bytes} bytes");
        asked.join().unwrap()
    });
    let Err(Error::Denied { what: RequestErrorKind::Failed, why }) = asked else {
        panic!("{asked:?}")
    };
    assert!(why.starts_with("towards the other server: "), "{why}");
}

#[test]
fn a_lent_key_that_is_not_used_in_time_is_refused() {
    let (members, _) =
        AuthorizedClients::new(key(9), vec![(key(1).public(), Permissions::new("/"))]);
    let lent = crate::serve::pending_uploads::LentKey::new(&members, key(2).public());
    let knows = |number: u8| members.authorized().knows(&key(number).public());
    assert!(knows(1) && knows(2));
    // Nor does a list that is read again take it away.
    members.change(vec![(key(3).public(), Permissions::new("/"))]);
    assert!(!knows(1) && knows(2) && knows(3));
    drop(lent);
    assert!(!knows(2) && knows(3));
}
