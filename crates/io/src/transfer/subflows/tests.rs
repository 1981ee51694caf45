//! Agreement and counts of subflows, and subflows that come and go in whole transfers.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netblt_proto::config::Role;
use netblt_proto::units::Rate;

use super::cpu_watch::PLAYED;
use super::*;
use crate::{
    BufferOptions, Cancel, Destination, Observer, Progress, Rendezvous, Source, Ticket, Warning,
};

#[test]
fn subflows_are_as_many_as_both_ends_accept() {
    assert_eq!(from_client_string("netblt receive lanes=4"), Some(4));
    assert_eq!(from_client_string("netblt serve lanes=7"), Some(7));
    assert_eq!(from_client_string("netblt 0.1.0"), None);
    for (own, theirs, agreed_on) in [
        (4, Some(8), Some(4)),
        (8, Some(2), Some(2)),
        (8, Some(u64::MAX), Some(8)),
        (1, Some(8), None),
        (8, Some(1), None),
        (8, Some(0), None),
        (8, None, None),
    ] {
        assert_eq!(agreed(own, theirs), agreed_on);
    }
}

#[test]
fn one_subflow_where_there_can_be_no_more() {
    let mut options = Options::default();
    options.settings.streams = ParallelStreams::Most(200);
    assert_eq!(asked(&options, Some(true)), MAX_SUBFLOWS);
    assert_eq!(asked(&options, None), 1, "a branch");
    options.network.client = Some("a client".to_owned());
    assert_eq!(asked(&options, Some(true)), 1);
    options.server_request.request = vec![1];
    assert_eq!(asked(&options, Some(false)), MAX_SUBFLOWS, "files of a server");
    let mut plain = Options::new(Wire::Rfc998);
    plain.settings.streams = ParallelStreams::Most(4);
    assert_eq!(asked(&plain, Some(true)), 1);
}

#[test]
fn the_summary_counts_all_subflows() {
    let one = Stats {
        data_packets_sent: 5,
        repair_packets_sent: 4,
        repair_packets_received: 3,
        packets_repaired: 2,
        data_timeouts: 1,
        control_timeouts: 7,
        ..Stats::default()
    };
    let mut all = one.clone();
    assert_eq!(sum(&mut all, vec![one.clone(), one]).len(), 3);
    let packets = [all.data_packets_sent, all.repair_packets_sent];
    assert_eq!(packets, [15, 12]);
    assert_eq!((all.repair_packets_received, all.packets_repaired), (9, 6));
    assert_eq!((all.data_timeouts, all.control_timeouts), (3, 21));
    assert!(sum(&mut all, Vec::new()).is_empty(), "one subflow is the whole");
}

thread_local! {
    /// The advice at each look on this thread, and the number of subflows then.
    pub(super) static ADVISED: RefCell<Vec<(Advice, usize)>> = const { RefCell::new(Vec::new()) };
}

/// One end. A listening one passes on the ticket, and both look when a trial has ended.
struct Watched {
    tickets: Sender<Ticket>,
    ended: Arc<AtomicBool>,
}

impl Observer for Watched {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        let ticket = ticket.to_string().parse().expect("what was printed is one");
        self.tickets.send(ticket).map_err(io::Error::other)
    }
    fn connected(&mut self, _peer: &str) {}
    fn progress(&mut self, _progress: &Progress) {
        if back() {
            self.ended.store(true, Ordering::Relaxed);
        }
    }
    fn silent(&mut self, _silent: bool) {}
    fn restarted(&mut self) {}
    fn warn(&mut self, _warning: &Warning) {}
}

/// Whether subflows were closed again here.
fn back() -> bool {
    ADVISED.with_borrow(|all| all.iter().any(|(advice, _)| matches!(advice, Advice::Back(_))))
}

/// Bytes that show their offset: one more second of them after subflows were closed, 30 at most.
struct Endless {
    at: u64,
    ended: Arc<AtomicBool>,
    until: u64,
}

impl Read for Endless {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.ended.swap(false, Ordering::Relaxed) {
            self.until = self.until.min(self.at + RATE);
        }
        let left = usize::try_from(self.until - self.at).unwrap_or(usize::MAX);
        let count = space.len().min(left);
        for byte in &mut space[..count] {
            *byte = content(self.at);
            self.at += 1;
        }
        Ok(count)
    }
}

fn content(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Bytes a second, more than which does not pass however many subflows there are.
const RATE: u64 = 6_000_000;

/// A whole transfer between two machines that seem to have processors to spare and loops that can
/// do no more; the end that calls decides about subflows.
fn comes_and_goes(sender_calls: bool) {
    let to = tempfile::tempdir().expect("a directory");
    let (tickets, ticket) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let mut options = Options::default();
    options.network.bind = Some([127, 0, 0, 1].into());
    options.buffers = BufferOptions { bytes: 1 << 16, count: 16, memory: 0 };
    options.settings.policy = Policy::Fair { ceiling: Some(Rate::from_bytes_per_second(RATE)) };
    let reader = Endless { at: 0, ended: Arc::clone(&ended), until: 30 * RATE };
    let cancel = Cancel::default();
    let ends = |rendezvous: &Rendezvous, reader: Option<Endless>| {
        PLAYED.set(Some((8, 0.97)));
        let mut watched = Watched { tickets: tickets.clone(), ended: Arc::clone(&ended) };
        let options = &options;
        let summary = match reader {
            Some(reader) => {
                let source = Source::reader("endless", reader);
                crate::send(source, rendezvous, options, &mut watched, &cancel)
            }
            None => {
                let to = Destination::Directory(to.path().to_owned());
                crate::receive(to, rendezvous, options, &mut watched, &cancel)
            }
        };
        PLAYED.set(None);
        (summary.expect("it arrives"), ADVISED.take())
    };
    let (first, second) = if sender_calls { (None, Some(reader)) } else { (Some(reader), None) };
    let [listening, calling] = thread::scope(|scope| {
        let listening = scope.spawn(|| ends(&Rendezvous::Listen, first));
        let ticket = ticket.recv_timeout(Duration::from_secs(30)).expect("a ticket");
        let calling = ends(&Rendezvous::Connect(ticket), second);
        [listening.join().expect("no panic"), calling]
    });
    assert!(listening.1.is_empty(), "the other end decides: {:?}", listening.1);
    let looks = &calling.1;
    let opened = looks.iter().find(|(advice, _)| *advice != Advice::Stay);
    assert_eq!(opened, Some(&(Advice::Open(1), 0)), "{looks:?}");
    let back = looks.iter().position(|(advice, _)| matches!(advice, Advice::Back(_)));
    let Some((Advice::Back(left), subflows)) = back.map(|at| looks[at]) else {
        panic!("what is held to a rate takes no more subflows: {looks:?}");
    };
    assert!(subflows >= left, "{looks:?}");
    assert_eq!(looks.last().map(|(_, subflows)| subflows + 1), Some(left), "{looks:?}");
    for summary in [&listening.0, &calling.0] {
        let carried = |subflow: &Stats| subflow.data_packets_sent + subflow.data_packets_received;
        let counts: Vec<u64> = summary.streams.iter().map(carried).collect();
        assert!(summary.verified && counts.len() > 1 && counts[1] > 100, "{counts:?}");
    }
    let arrived = fs::read(to.path().join("endless")).expect("it has its name");
    assert_eq!(arrived.len() as u64, calling.0.bytes);
    assert!(arrived.iter().zip(0..).all(|(byte, at)| *byte == content(at)));
}

#[test]
fn a_sender_closes_subflows_without_a_gain_and_all_data_arrive() {
    comes_and_goes(true);
}

#[test]
fn a_receiver_closes_subflows_without_a_gain_and_all_data_arrive() {
    comes_and_goes(false);
}

/// Images have places also where there are no sockets for subflows: the other end expects subflows.
#[test]
fn without_sockets_there_are_no_subflows() {
    let config = Config::new(Wire::Sealed, Role::Receiver);
    let mut end = Endpoint::active(config, ([127, 0, 0, 1], 9).into(), Instant::EPOCH, [7; 32]);
    for (auto, active) in [(true, true), (true, false), (false, true), (false, false)] {
        let subflows =
            Subflows::begin(making(auto, active, 1), 4, true, &mut end).expect("no error");
        assert_eq!((subflows.most, subflows.wanted, subflows.watch.is_none()), (0, 0, true));
    }
}

/// Without sockets, and with so many subflows for all transfers together.
fn making(auto: bool, active: bool, left: usize) -> Arc<SubflowFactory> {
    let waker = Poller::new().expect("one").waker();
    let (clock, left) = (Clock::start(), Arc::new(AtomicUsize::new(left)));
    Arc::new(SubflowFactory { own: 4, auto, active, sockets: None, clock, waker, left })
}

#[test]
fn connections_with_a_common_bound_keep_to_it_together() {
    let one = making(true, false, 2);
    let other = one.waking(one.waker.clone());
    let taken = [one.leave(), other.leave()];
    assert!(taken.iter().all(Option::is_some));
    assert!(one.leave().is_none() && other.leave().is_none());
    drop(taken);
    assert!(other.leave().is_some() && one.leave().is_some());
}
