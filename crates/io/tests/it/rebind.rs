//! Whole transfers through a router that forgets whose port was whose: the caller comes from
//! another one in the middle of opening, transfer or closing.
//!
//! `NETBLT_REBINDS=50` runs more of them.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::{
    Cancel, Destination, Error, Observer, Options, Policy, Progress, Rate, Rendezvous, Source,
    Summary, Ticket, Warning,
};

/// One way through the router.
const DELAY: Duration = Duration::from_millis(10);
/// Bytes of a transfer, and how fast they are sent: for about half a second.
const BYTES: usize = 1_500_000;
const RATE: u64 = 24_000_000;
/// Within which the router forgets: from before the opening until after the end.
const SPAN: Duration = Duration::from_millis(900);

struct Listening(Sender<Ticket>);

impl Observer for Listening {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        self.0.send(ticket.to_string().parse().unwrap()).unwrap();
        Ok(())
    }
    fn connected(&mut self, _peer: &str) {}
    fn progress(&mut self, _progress: &Progress) {}
    fn silent(&mut self, _silent: bool) {}
    fn restarted(&mut self) {
        panic!("it is the same program");
    }
    fn warn(&mut self, warning: &Warning) {
        panic!("{warning}");
    }
}

/// A router between a caller, who is behind it, and `target`. At each of `moves` after the first
/// datagram it gives the caller another port.
fn route(inside: &UdpSocket, target: SocketAddr, mut moves: Vec<Duration>, over: &AtomicBool) {
    let outside = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    inside.set_nonblocking(true).unwrap();
    moves.sort();
    let mut ports = vec![outside()];
    let (mut caller, mut begun) = (None, None);
    let mut flying: VecDeque<(Instant, bool, Vec<u8>)> = VecDeque::new();
    let mut bytes = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if let Some(begun) = begun
            && moves.first().is_some_and(|at| begun + *at <= now)
        {
            moves.remove(0);
            // What goes to the old port is lost, without an ICMP error.
            ports.push(outside());
        }
        let port = ports.last().unwrap();
        while let Ok((len, from)) = inside.recv_from(&mut bytes) {
            caller = Some(from);
            begun.get_or_insert(now);
            flying.push_back((now + DELAY, true, bytes[..len].to_vec()));
        }
        while let Ok((len, _)) = port.recv_from(&mut bytes) {
            flying.push_back((now + DELAY, false, bytes[..len].to_vec()));
        }
        while flying.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, out, bytes)) = flying.pop_front() else { break };
            // What the system does not take is lost, as datagrams are.
            let _ = match (out, caller) {
                (true, _) => port.send_to(&bytes, target),
                (false, Some(caller)) => inside.send_to(&bytes, caller),
                (false, None) => Ok(0),
            };
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// One transfer whose caller is moved at these times; the listening end sends if `listener_sends`.
fn transfer(moves: &[Duration], listener_sends: bool) -> [Result<Summary, Error>; 2] {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut content = vec![0; BYTES];
    blake3::Hasher::new().update(b"rebind").finalize_xof().fill(&mut content);
    std::fs::write(from.path().join("data"), &content).unwrap();
    let mut options = Options::default();
    options.network.bind = Some("127.0.0.1".parse().unwrap());
    options.buffers.bytes = 1 << 16;
    options.settings.policy = Policy::Fair { ceiling: Some(Rate::from_bits_per_second(RATE)) };
    let (tickets, ticket) = channel();
    let over = AtomicBool::new(false);
    let run = |sends: bool, rendezvous: Rendezvous| {
        let mut observer = Listening(tickets.clone());
        let cancel = Cancel::default();
        if sends {
            let source = Source::Paths(vec![from.path().join("data")]);
            netblt::send(source, &rendezvous, &options, &mut observer, &cancel)
        } else {
            let destination = Destination::Directory(to.path().to_owned());
            netblt::receive(destination, &rendezvous, &options, &mut observer, &cancel)
        }
    };
    let ends = thread::scope(|scope| {
        let listener = scope.spawn(|| run(listener_sends, Rendezvous::Listen));
        let mut ticket = ticket.recv().unwrap();
        let target = ticket.addresses[0].parse().unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        ticket.addresses = vec![inside.local_addr().unwrap().to_string()];
        let over = &over;
        let router = scope.spawn(move || route(&inside, target, moves.to_vec(), over));
        let called = run(!listener_sends, Rendezvous::Connect(ticket));
        let listened = listener.join().unwrap();
        over.store(true, Ordering::Relaxed);
        router.join().unwrap();
        [called, listened]
    });
    if ends.iter().all(Result::is_ok) {
        assert!(std::fs::read(to.path().join("data")).unwrap() == content);
    }
    ends
}

fn runs() -> u64 {
    std::env::var("NETBLT_REBINDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[test]
fn a_client_whose_port_changes_at_any_moment_keeps_its_transfer() {
    // Moments without a pattern: the fractions of multiples of the golden section.
    let moment = |n: u64| SPAN.mul_f64((n as f64 * 0.618_033_988_749_895).fract());
    for n in 0..runs() {
        let moves: Vec<Duration> = (0..1 + n % 3).map(|k| moment(3 * n + k + 1)).collect();
        // While it opens, too: 40 ms at this delay.
        let early = DELAY.mul_f64(4.0 * (n as f64 * 0.414_213).fract());
        let moves = if n % 4 == 3 { [moves, vec![early]].concat() } else { moves };
        for end in transfer(&moves, n % 2 == 0) {
            let end = end.map(|summary| summary.verified);
            assert!(matches!(end, Ok(true)), "run {n}, moves at {moves:?}: {end:?}");
        }
    }
}
