//! Whole transfers over several streams (`docs/protocol §4.11`): real sockets, threads and
//! files. Each is held to a rate at which it takes a second, so that streams begin.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::{
    Cancel, Control, Destination, Error, Observer, Options, ParallelStreams, Policy, Progress,
    Rate, Rendezvous, Source, Summary, Ticket, Warning,
};

use crate::support::{self, bytes, transfer};

/// What is sent, in about a second.
const BYTES: usize = 6_000_000;

fn options(streams: u8) -> Options {
    let mut options = support::options();
    options.settings.streams = ParallelStreams::Most(streams);
    options.buffers.bytes = 1 << 16;
    options.buffers.count = 16;
    let rate = Rate::from_bytes_per_second(BYTES as u64);
    options.settings.policy = Policy::Fair { ceiling: Some(rate) };
    options
}

/// Packets of data on each stream, at an end.
fn counts(summary: &Summary) -> Vec<u64> {
    let streams = summary.streams.iter();
    streams.map(|stream| stream.data_packets_sent + stream.data_packets_received).collect()
}

#[test]
fn a_tree_arrives_over_three_streams_whichever_end_listens() {
    for sender_listens in [true, false] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = from.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("large"), bytes(BYTES, 1)).unwrap();
        for i in 0..50 {
            fs::write(tree.join(format!("small{i}")), bytes(i * 997, i as u8)).unwrap();
        }
        let source = Source::Paths(vec![tree]);
        let destination = Destination::Directory(to.path().to_owned());
        let (sent, received) = transfer(source, destination, sender_listens, &options(3), |_| ());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert!(sent.verified && received.verified && sent.files == 51);
        for summary in [&sent, &received] {
            let counts = counts(summary);
            assert_eq!(counts.len(), 3, "{counts:?}");
            assert!(counts.iter().all(|packets| *packets > 100), "{counts:?}");
        }
        // The totals of all are those of the transfer.
        assert_eq!(sent.stats.data_packets_sent, counts(&sent).iter().sum::<u64>());
        assert_eq!(fs::read(to.path().join("tree/large")).unwrap(), bytes(BYTES, 1));
        for i in 0..50 {
            let arrived = fs::read(to.path().join(format!("tree/small{i}"))).unwrap();
            assert_eq!(arrived, bytes(i * 997, i as u8));
        }
    }
}

/// What a receiver writes, seen from outside.
struct Pipe(Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_comes_out_in_order() {
    let content = bytes(BYTES, 3);
    let (written, pipe) = channel();
    let source = Source::reader("stream", Cursor::new(content.clone()));
    let (sent, received) =
        transfer(source, Destination::writer(Pipe(written)), false, &options(4), |_| ());
    assert!(received.unwrap().verified);
    assert_eq!(counts(&sent.unwrap()).len(), 4);
    let arrived: Vec<u8> = pipe.try_iter().flatten().collect();
    assert!(arrived == content, "{} bytes", arrived.len());
}

#[test]
fn a_transfer_has_the_smaller_number_of_streams_of_both_ends() {
    for (own, other, streams) in [(1, 4, 0), (4, 1, 0), (2, 4, 2)] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("data"), bytes(BYTES, 4)).unwrap();
        let source = Source::Paths(vec![from.path().join("data")]);
        let router = Router::start(|_, _| true);
        let [sent, received] = router.transfer(source, to.path(), [options(own), options(other)]);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (sent.streams.len(), received.streams.len()),
            (streams, streams),
            "{own} and {other}"
        );
        assert!(fs::read(to.path().join("data")).unwrap() == bytes(BYTES, 4));
    }
}

#[test]
fn a_transfer_that_pauses_goes_on_over_all_streams() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("data"), bytes(BYTES, 5)).unwrap();
    let source = Source::Paths(vec![from.path().join("data")]);
    let destination = Destination::Directory(to.path().to_owned());
    let (control, paused) = (Control::new(), AtomicBool::new(false));
    let mut options = options(3);
    options.control = Some(control.clone());
    let (sent, _) = transfer(source, destination, false, &options, |watcher| {
        if watcher.is_sender()
            && watcher.moved() > BYTES as u64 / 2
            && !paused.swap(true, Ordering::Relaxed)
        {
            control.pause();
            let control = control.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(500));
                control.resume();
            });
        }
    });
    let sent = sent.unwrap();
    assert!(paused.load(Ordering::Relaxed) && sent.elapsed > Duration::from_millis(1300));
    assert_eq!(sent.streams.len(), 3);
    assert!(fs::read(to.path().join("data")).unwrap() == bytes(BYTES, 5));
}

#[test]
fn buffers_of_a_lost_stream_go_over_the_others() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // For as long as a stream takes to be given up, and more.
    let content = bytes(8 * BYTES, 6);
    fs::write(from.path().join("data"), &content).unwrap();
    let source = Source::Paths(vec![from.path().join("data")]);
    // Of the second caller, which is a stream, nothing passes any more.
    let router = Router::start(|caller, since| caller != 1 || since < Duration::from_secs(1));
    let [sent, received] = router.transfer(source, to.path(), [options(3), options(3)]);
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert!(sent.verified && received.verified);
    // Another one took its place.
    assert!(sent.streams.len() >= 4, "{:?}", counts(&sent));
    assert!(fs::read(to.path().join("data")).unwrap() == content);
}

#[derive(Clone)]
struct Listening(Sender<Ticket>);

impl Observer for Listening {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.0.send(ticket.to_string().parse().unwrap()).unwrap();
        Ok(())
    }
    fn connected(&mut self, _peer: &str) {}
    fn progress(&mut self, _progress: &Progress) {}
    fn silent(&mut self, silent: bool) {
        assert!(!silent, "the main connection gets packets");
    }
    fn restarted(&mut self) {
        panic!("it is the same program");
    }
    fn warn(&mut self, warning: &Warning) {
        panic!("{warning}");
    }
}

/// A router between the ends, which gives each socket of the caller's a port of its own and lets
/// pass what `passes` allows: by whose it is, in the order in which they came, and since when.
struct Router {
    inside: UdpSocket,
    passes: fn(usize, Duration) -> bool,
}

impl Router {
    fn start(passes: fn(usize, Duration) -> bool) -> Self {
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        inside.set_nonblocking(true).unwrap();
        Self { inside, passes }
    }

    /// The sender calls.
    fn transfer(
        self,
        source: Source,
        to: &std::path::Path,
        [sends, receives]: [Options; 2],
    ) -> [Result<Summary, Error>; 2] {
        let (tickets, ticket) = channel();
        let (over, cancel) = (AtomicBool::new(false), Cancel::default());
        let mut listening = Listening(tickets);
        let mut calling = listening.clone();
        thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let destination = Destination::Directory(to.to_owned());
                let listens = Rendezvous::Listen;
                netblt::receive(destination, &listens, &receives, &mut listening, &cancel)
            });
            let mut ticket = ticket.recv().unwrap();
            let target = ticket.addresses[0].parse().unwrap();
            ticket.addresses = vec![self.inside.local_addr().unwrap().to_string()];
            let (way, done) = (&self, &over);
            let router = scope.spawn(move || way.route(target, done));
            let called = Rendezvous::Connect(ticket);
            let sent = netblt::send(source, &called, &sends, &mut calling, &cancel);
            let received = listener.join().unwrap();
            over.store(true, Ordering::Relaxed);
            router.join().unwrap();
            [sent, received]
        })
    }

    fn route(&self, target: SocketAddr, over: &AtomicBool) {
        let (mut ports, mut begun) = (BTreeMap::<SocketAddr, (usize, UdpSocket)>::new(), None);
        let mut bytes = vec![0; 1 << 16];
        while !over.load(Ordering::Relaxed) {
            let mut idle = true;
            let since =
                |begun: &mut Option<Instant>| begun.get_or_insert_with(Instant::now).elapsed();
            while let Ok((len, from)) = self.inside.recv_from(&mut bytes) {
                idle = false;
                let next = ports.len();
                let (caller, port) = ports.entry(from).or_insert_with(|| {
                    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
                    port.set_nonblocking(true).unwrap();
                    (next, port)
                });
                if (self.passes)(*caller, since(&mut begun)) {
                    // What the system does not take is lost, as datagrams are.
                    let _ = port.send_to(&bytes[..len], target);
                }
            }
            for (from, (caller, port)) in &ports {
                while let Ok((len, _)) = port.recv_from(&mut bytes) {
                    idle = false;
                    if (self.passes)(*caller, since(&mut begun)) {
                        let _ = self.inside.send_to(&bytes[..len], from);
                    }
                }
            }
            if idle {
                thread::sleep(Duration::from_micros(100));
            }
        }
    }
}
