//! A server of files in a thread of its own, and one who asks it.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netblt::serve::client::{Client, Fetch, into_directory};
use netblt::serve::{AuditRecord, Entry, ServerObserver, Service, Session, serve};
use netblt::{
    Cancel, Error, Observer, Options, Rendezvous, RequestErrorKind, Selection, Summary, Ticket,
};
use netblt::{Identity, PublicKey, StaticKey};

pub(crate) struct Recorder {
    tickets: Sender<Ticket>,
    pub(crate) accounts: Sender<AuditRecord>,
}

impl ServerObserver for Recorder {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.tickets.send(ticket.clone()).map_err(std::io::Error::other)
    }

    fn listening_at(&mut self, addresses: &[String]) {
        // A ticket that opens nothing, for its addresses.
        let secret = netblt_proto::config::Secret([0; 32]);
        let _ = self.tickets.send(Ticket { addresses: addresses.to_vec(), secret });
    }

    fn ended(&mut self, account: &AuditRecord) {
        let _ = self.accounts.send(account.clone());
    }

    fn warn(&mut self, error: &Error) {
        eprintln!("server: {error}");
    }
}

pub(crate) struct Deaf;

impl Observer for Deaf {}

/// A server in a thread of its own, beside a directory that is none of its business.
pub(crate) struct Host {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) cancel: Cancel,
    accounts: Mutex<Receiver<AuditRecord>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    pub(crate) options: Options,
    /// The session in which all is asked, if there is one.
    pub(crate) session: Option<Session>,
}

pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.network.bind = Some("127.0.0.1".parse().unwrap());
    options.buffers.count = 8;
    options
}

impl Host {
    pub(crate) fn start(change: impl FnOnce(&mut Service)) -> Self {
        Self::start_with(options(), change)
    }

    /// At a port.
    pub(crate) fn start_at(port: u16, change: impl FnOnce(&mut Service)) -> Self {
        let mut options = options();
        options.network.port = port;
        Self::start_with(options, change)
    }

    /// With options of the server's own.
    pub(crate) fn start_with(own: Options, change: impl FnOnce(&mut Service)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        let mut service = Service::new(directory.path().join("root"));
        change(&mut service);
        let (tickets, ticket) = channel();
        let (sender, accounts) = channel();
        let cancel = Cancel::default();
        let thread = thread::spawn({
            let cancel = cancel.clone();
            move || {
                let mut recorder = Recorder { tickets, accounts: sender };
                serve(&service, &own, &mut recorder, &cancel)
            }
        });
        let rendezvous = Rendezvous::Connect(ticket.recv().unwrap());
        let (thread, options, accounts) = (Some(thread), options(), Mutex::new(accounts));
        Self { directory, rendezvous, cancel, accounts, thread, options, session: None }
    }

    /// The same, which asks all in one session.
    pub(crate) fn in_session(mut self) -> Self {
        self.session = Some(Session::new(self.rendezvous.clone(), &self.options));
        self
    }

    pub(crate) fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    /// The rendezvous of a client that has this key and expects the other one at the server.
    pub(crate) fn calling(&self, own: StaticKey, server: PublicKey) -> Rendezvous {
        let Rendezvous::Connect(ticket) = &self.rendezvous else { unreachable!() };
        let identity = Identity::client(own, server).unwrap();
        Rendezvous::Call { addresses: ticket.addresses.clone(), identity }
    }

    /// The same server, seen by another client.
    pub(crate) fn client(&self, rendezvous: Rendezvous) -> Self {
        let (_, accounts) = channel();
        let mut options = self.options.clone();
        // A client that is not admitted gets no authentic answer.
        options.settings.death_timer = Duration::from_secs(3);
        Self {
            directory: tempfile::tempdir().unwrap(),
            rendezvous,
            cancel: Cancel::default(),
            accounts: Mutex::new(accounts),
            thread: None,
            options,
            session: None,
        }
    }

    /// The audit records of the server, once they are enough: it may see an end after its client
    /// does.
    pub(crate) fn accounts(&self, enough: impl Fn(&[AuditRecord]) -> bool) -> Vec<AuditRecord> {
        let accounts = self.accounts.lock().unwrap();
        let mut records = Vec::new();
        while !enough(&records) {
            match accounts.recv_timeout(Duration::from_secs(30)) {
                Ok(account) => records.push(account),
                Err(_) => panic!("it has no more records than {records:?}"),
            }
        }
        records
    }

    pub(crate) fn server(&self) -> Client<'_> {
        // Its own cancellation is the server's.
        static NEVER: std::sync::LazyLock<Cancel> = std::sync::LazyLock::new(Cancel::default);
        let session = self.session.as_ref();
        Client { rendezvous: &self.rendezvous, options: &self.options, cancel: &NEVER, session }
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Entry, Error> {
        self.server().stat(path.as_bytes(), &mut Deaf)
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<Entry>, Error> {
        let mut found = Vec::new();
        let take = |entry| {
            found.push(entry);
            Ok(())
        };
        self.server().list(path.as_bytes(), &mut Deaf, take)?;
        Ok(found)
    }

    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let names = self.list(path).unwrap().into_iter().map(|entry| entry.name);
        names.map(|name| String::from_utf8(name).unwrap()).collect()
    }

    pub(crate) fn get(&self, path: &str, to: &Path) -> Result<Summary, Error> {
        let name = netblt::serve::client::name_of(path.as_bytes(), "root");
        let fetch =
            Fetch { path: path.as_bytes().to_vec(), name, trees: true, bytes: None, data: None };
        self.server().get(&fetch, into_directory(to), &mut Deaf)
    }

    pub(crate) fn put(&self, from: &[&Path], path: &str) -> Result<Summary, Error> {
        let paths = from.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>();
        self.server().put(Selection::from(paths), path.as_bytes(), &mut Deaf)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cancel.abort();
        if let Some(thread) = self.thread.take() {
            let served = thread.join().unwrap();
            assert!(thread::panicking() || served.is_ok(), "{served:?}");
        }
    }
}

pub(crate) fn denial<T>(result: Result<T, Error>) -> RequestErrorKind {
    match result {
        Err(Error::Denied { what, .. }) => what,
        Err(error) => panic!("not denied but {error:?}"),
        Ok(_) => panic!("done"),
    }
}

pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut content = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut content);
    content
}

/// Ends what runs beside a test, however that ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Host {
    /// Runs `asks` while `tree/deep`, with a file `secret` in it, is swapped for a link that leads
    /// out, again and again. Nothing there must have changed.
    pub(crate) fn raced(&self, asks: impl FnOnce()) {
        let out = self.directory.path().to_owned();
        fs::create_dir(out.join("target")).unwrap();
        fs::write(out.join("target/secret"), b"outside").unwrap();
        fs::create_dir_all(self.root("real/deep")).unwrap();
        fs::write(self.root("real/deep/secret"), b"inside!").unwrap();
        fs::create_dir(self.root("tree")).unwrap();
        let over = AtomicBool::new(false);
        let (inside, name) = (self.root("real/deep"), self.root("tree/deep"));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = fs::rename(&inside, &name);
                    let _ = fs::rename(&name, &inside);
                    let _ = symlink(out.join("target"), &name);
                    let _ = fs::remove_file(&name);
                }
            });
            let _ends = Ends(&over);
            asks();
        });
        assert_eq!(fs::read(out.join("target/secret")).unwrap(), b"outside");
        assert_eq!(fs::read_dir(out.join("target")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    }
}
