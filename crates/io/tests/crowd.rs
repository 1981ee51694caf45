//! A server of files that has many clients at once, many one after the other, and bad ones. It is
//! a program of its own: beside 64 clients at once, other transfers would not end in time.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

mod serving;

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::client::{Client, Fetch};
use netblt::serve::{Service, Verdict};
use netblt::{Cancel, Destination, Error, Rendezvous, RequestErrorKind, Selection};

use netblt_proto::api::CloseReason;
use serving::{Deaf, Host, bytes, denial};

/// Clients at once.
const MANY: usize = 64;

/// Jain's index: 1 if all have the same, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// What each of many has had, and what that was when they had half of all together.
struct Race {
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
    half: u64,
    shares: Mutex<Vec<f64>>,
    /// No transfer goes on before all have begun.
    begin: Barrier,
}

impl Race {
    fn count(&self, of: usize, bytes: u64) {
        self.counts[of].fetch_add(bytes, Ordering::SeqCst);
        let before = self.sum.fetch_add(bytes, Ordering::SeqCst);
        if before < self.half && before + bytes >= self.half {
            let shares = self.counts.iter().map(|count| count.load(Ordering::SeqCst) as f64);
            *self.shares.lock().unwrap() = shares.collect();
        }
    }
}

/// Counts, and hashes.
struct Sink {
    number: usize,
    race: Arc<Race>,
    begun: bool,
    digest: blake3::Hasher,
    done: std::sync::mpsc::Sender<[u8; 32]>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !std::mem::replace(&mut self.begun, true) {
            self.race.begin.wait();
        }
        self.race.count(self.number, bytes.len() as u64);
        self.digest.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.done.send(*self.digest.finalize().as_bytes());
    }
}

#[test]
fn sixty_four_at_once_are_all_served_and_alike() {
    let host = Host::start(|service: &mut Service| service.memory = 256 << 20);
    let content = bytes(12 << 20, 1);
    let digest = *blake3::hash(&content).as_bytes();
    fs::write(host.root("file"), &content).unwrap();
    let race = Arc::new(Race {
        counts: (0..MANY).map(|_| AtomicU64::new(0)).collect(),
        sum: AtomicU64::new(0),
        half: (MANY * content.len() / 2) as u64,
        shares: Mutex::default(),
        begin: Barrier::new(MANY),
    });
    let mut options = host.options.clone();
    // Little of what they have has come before all have begun.
    options.buffers.count = 2;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..MANY)
            .map(|number| {
                let (host, options, race) = (&host, &options, Arc::clone(&race));
                scope.spawn(move || {
                    let (done, digests) = std::sync::mpsc::channel();
                    let digest = blake3::Hasher::new();
                    let sink = Sink { number, race, begun: false, digest, done };
                    let path = b"file".to_vec();
                    let fetch =
                        Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
                    let server = Client { options, ..host.server() };
                    let summary = server.get(&fetch, Destination::writer(sink), &mut Deaf);
                    (summary, digests.recv())
                })
            })
            .collect();
        for client in clients {
            let (summary, came) = client.join().unwrap();
            assert!(summary.unwrap().verified);
            assert_eq!(came.unwrap(), digest);
        }
    });
    let index = jain(&race.shares.lock().unwrap());
    println!("Jain's index when half of all had come: {index:.3}");
    assert!(index >= 0.9, "Jain's index when half of all had come: {index}");
    let accounts = host.accounts(|records| records.len() == MANY);
    assert!(accounts.iter().all(|account| account.verdict == Verdict::Done), "{accounts:?}");
}

#[test]
fn a_client_of_a_full_server_is_refused_as_busy() {
    let host = Host::start(|service| service.max_sessions = 1);
    fs::write(host.root("file"), bytes(64 << 20, 3)).unwrap();
    thread::scope(|scope| {
        let (first, cancel) = (&host, Cancel::default());
        let stop = cancel.clone();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let long = scope.spawn(move || {
            let server = Client { cancel: &cancel, ..first.server() };
            let path = b"file".to_vec();
            let fetch = Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
            // A reader that takes its time keeps the place taken.
            server.get(&fetch, Destination::writer(Slow(begun)), &mut Deaf)
        });
        has_begun.recv().unwrap();
        let denied = host.stat("file").unwrap_err();
        let Error::Denied { what, .. } = &denied else { panic!("{denied:?}") };
        assert!(*what == RequestErrorKind::Busy && what.is_passing() && denied.is_retryable());
        stop.cancel();
        assert!(long.join().unwrap().is_err());
    });
    // Its place is free again.
    let start = Instant::now();
    while host.stat("file").is_err() {
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

/// Takes its time, and tells that it has begun.
struct Slow(std::sync::mpsc::Sender<()>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(());
        thread::sleep(Duration::from_millis(50));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn bad_clients_do_not_disturb_the_others() {
    let host = Host::start(|_| {});
    let content = bytes(16 << 20, 4);
    fs::write(host.root("file"), &content).unwrap();
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), &content).unwrap();
    let over = AtomicBool::new(false);
    let Rendezvous::Connect(ticket) = &host.rendezvous else { unreachable!() };
    let address: std::net::SocketAddr = ticket.addresses[0].parse().unwrap();
    thread::scope(|scope| {
        let (over, host, here) = (&over, &host, &here);
        // One floods with what is nothing at all and with openings cut from whole cloth.
        scope.spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut packet = bytes(1200, 9);
            while !over.load(Ordering::Relaxed) {
                for length in [1, 20, 592, 1200] {
                    packet[0] = packet[0].wrapping_add(1);
                    let _ = socket.send_to(&packet[..length], address);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        // One vanishes in the middle, again and again.
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let cancel = Cancel::default();
                let server = Client { cancel: &cancel, ..host.server() };
                let path = b"file".to_vec();
                let fetch = Fetch { path, name: "x".into(), trees: false, bytes: None, data: None };
                cancel.abort();
                let _ = server.get(&fetch, Destination::writer(std::io::sink()), &mut Deaf);
            }
        });
        // One opens, and then asks nothing.
        scope.spawn(move || {
            let mut options = host.options.clone();
            options.network.client = Some("netblt ask".to_owned());
            let (place, sink) = (&host.rendezvous, Destination::writer(std::io::sink()));
            let cancel = Cancel::default();
            let lied = netblt::receive(sink, place, &options, &mut Deaf, &cancel);
            assert!(lied.is_err(), "{lied:?}");
        });
        // One announces files and sends something that was not announced.
        scope.spawn(move || {
            let mut options = host.options.clone();
            for (client, reason) in [
                // A server that was started again knows nothing of what was announced.
                ("netblt send data=1 files=1 put=1", "serve: busy: this upload was not announced"),
                ("netblt send put=x", "serve: not-understood: "),
                ("netblt ask", "serve: not-understood: "),
            ] {
                options.network.client = Some(client.to_owned());
                let source = netblt::Source::path(here.path().join("f"));
                let cancel = Cancel::default();
                let sent = netblt::send(source, &host.rendezvous, &options, &mut Deaf, &cancel);
                let Err(Error::Ended(CloseReason::PeerQuit(words))) = &sent else {
                    panic!("{sent:?}")
                };
                assert!(words.starts_with(reason), "{words}");
            }
        });
        for number in 0..4 {
            let name = format!("put{number}");
            let selection = Selection::from(vec![here.path().join("f")]);
            let put = host.server().put(selection, name.as_bytes(), &mut Deaf);
            assert!(put.unwrap().verified);
            assert_eq!(fs::read(host.root(&name)).unwrap(), content);
            let path = b"file".to_vec();
            let fetch = Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
            let into = Destination::writer(std::io::sink());
            assert!(host.server().get(&fetch, into, &mut Deaf).unwrap().verified);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(denial(host.stat("x")), RequestErrorKind::NotFound);
}

#[test]
fn a_stopping_server_finishes_transfers_and_begins_none() {
    let host = Host::start(|_| {});
    fs::write(host.root("file"), bytes(8 << 20, 5)).unwrap();
    let (read, write) = std::io::pipe().unwrap();
    thread::scope(|scope| {
        let running = &host;
        let long = scope.spawn(move || {
            let path = b"file".to_vec();
            let fetch = Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
            running.server().get(&fetch, Destination::writer(write), &mut Deaf)
        });
        // The first bytes are here, and the pipe is full: it is under way.
        let mut read = read;
        std::io::Read::read_exact(&mut read, &mut [0; 1000]).unwrap();
        host.cancel.cancel();
        assert_eq!(denial(host.stat("file")), RequestErrorKind::Busy);
        let rest = scope.spawn(move || std::io::copy(&mut read, &mut std::io::sink()));
        assert!(long.join().unwrap().unwrap().verified);
        assert_eq!(rest.join().unwrap().unwrap(), (8 << 20) - 1000);
    });
}

/// A file fetched by two at once; how long it took until both had it.
fn fetched_by_two(host: &Host) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let path = b"file".to_vec();
                let fetch =
                    Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
                let into = Destination::writer(std::io::sink());
                assert!(host.server().get(&fetch, into, &mut Deaf).unwrap().verified);
            });
        }
    });
    start.elapsed()
}

#[test]
fn all_sessions_together_keep_to_the_rate() {
    // 8 MiB each at 8 MB/s in all are two seconds, but for the burst at the beginning; what is put
    // takes three, of which a grant's rate is not yet known in the first.
    let rate = Some(netblt::Rate::from_bytes_per_second(8_000_000));
    let least = Duration::from_millis(1500);
    let ways: [fn(&mut Service, Option<netblt::Rate>); 2] = [
        |service, rate| service.max_rate = rate,
        |service, rate| service.permissions.max_rate = rate,
    ];
    for capped in ways {
        let host = Host::start(|service| capped(service, rate));
        fs::write(host.root("file"), bytes(8 << 20, 6)).unwrap();
        let took = fetched_by_two(&host);
        assert!(took > least, "{took:?}");
        let file = host.directory.path().join("put");
        fs::write(&file, bytes(24 << 20, 7)).unwrap();
        let start = Instant::now();
        assert!(host.put(&[&file], "put").unwrap().verified);
        let took = start.elapsed();
        assert!(took > least, "{took:?}");
    }
}

#[test]
fn a_grant_has_its_own_number_of_sessions() {
    let host = Host::start(|service| service.permissions.max_sessions = Some(0));
    assert_eq!(denial(host.stat("")), RequestErrorKind::Busy);
    let host = Host::start(|service| service.permissions.max_sessions = Some(1));
    assert!(host.stat("").is_ok());
}
