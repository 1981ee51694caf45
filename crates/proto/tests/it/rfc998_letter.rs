//! RFC 998 to the letter, packet by packet: one end of ours, and packets made by hand.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, FixedRate, Policy, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{Burst, DataHeader, Go, Message, Parameters, TransferMode};
use netblt_proto::wire::rfc998::{self, Packet998, Ports};

use crate::timers;

/// The end made by hand, as it sees the ports.
const PORTS: Ports = Ports { local: 2, foreign: 1 };

/// One end of ours, its clock, and what it said.
struct Bench {
    end: Endpoint,
    peer: SocketAddr,
    now: Instant,
    packets: Vec<Vec<u8>>,
}

impl Bench {
    fn active(role: Role, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(role);
        config.ports = (1, 2);
        change(&mut config);
        let peer = peer();
        Self::new(Endpoint::active(config, peer, start(), [7; 32]), peer)
    }

    fn new(end: Endpoint, peer: SocketAddr) -> Self {
        let mut new = Self { end, peer, now: start(), packets: Vec::new() };
        new.collect();
        new
    }

    fn deliver(&mut self, mut bytes: Vec<u8>) {
        let datagram =
            Datagram { from: self.peer, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
        self.end.handle_datagram(self.now, datagram);
        self.collect();
    }

    fn collect(&mut self) {
        loop {
            let mut batch = Vec::new();
            let Some(sent) = self.end.poll_transmit(self.now, &mut batch) else { break };
            self.packets.extend(batch.chunks(sent.segment).map(<[u8]>::to_vec));
        }
    }

    /// Lets time pass, timer by timer.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..timers::MOST {
            if timers::fire(&mut self.end, &mut self.now, until).is_break() {
                return;
            }
            self.collect();
        }
        panic!("timers without end");
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.end.poll_event()).collect()
    }

    fn closed(&mut self) -> Option<CloseReason> {
        self.events().into_iter().find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    /// The packets that it sent, as far as `wanted` picks them.
    fn sent<T>(&self, mut wanted: impl FnMut(Packet998<'_>) -> Option<T>) -> Vec<T> {
        let parsed = self.packets.iter().filter_map(|bytes| {
            rfc998::parse(bytes, false, ControlSeq(1)).ok().and_then(|(_, packet)| wanted(packet))
        });
        parsed.collect()
    }

    fn proposal(&self) -> Parameters {
        let opens = self.sent(|packet| match packet {
            Packet998::Open(parameters) => Some(parameters),
            _ => None,
        });
        opens.into_iter().next().expect("an OPEN")
    }

    fn aborts(&self) -> Vec<String> {
        self.sent(|packet| match packet {
            Packet998::Abort(reason) => Some(reason),
            _ => None,
        })
    }
}

fn config(role: Role) -> Config {
    let mut config = Config::new(Wire::Rfc998, role);
    config.buffer_bytes = 4000;
    config.datagram_bytes = 500 + 24;
    config.max_outstanding = 3;
    config
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 2))
}

fn start() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

fn response(parameters: &Parameters) -> Vec<u8> {
    let mut out = Vec::new();
    rfc998::encode_response(PORTS, parameters, &mut out);
    out
}

// ---- opening

/// Answers an OPEN of ours with `change`d values, and shows what becomes of it.
fn answered(change: impl FnOnce(&mut Parameters)) -> Bench {
    let mut bench = Bench::active(Role::Receiver, |_| {});
    let mut answer = bench.proposal();
    change(&mut answer);
    bench.deliver(response(&answer));
    bench.pass(Duration::from_millis(1));
    bench
}

#[test]
fn a_bad_response_draws_an_abort() {
    let bad: [fn(&mut Parameters); 6] = [
        |p| p.buffer_bytes += 1,
        |p| p.packet_bytes += 1,
        |p| p.max_outstanding += 1,
        |p| p.mode = TransferMode::Write,
        |p| p.buffer_bytes = 0,
        |p| p.checksum = false,
    ];
    for (which, change) in bad.into_iter().enumerate() {
        let mut bench = answered(change);
        assert_eq!(bench.aborts().len(), 1, "{which}: {:?}", bench.aborts());
        let closed = bench.closed();
        assert!(matches!(closed, Some(CloseReason::Violation(_))), "{which}: {closed:?}");
    }
}

#[test]
fn a_refusal_of_too_small_values_does_not_call_them_looser() {
    let tight: [fn(&mut Parameters); 2] = [|p| p.buffer_bytes = 0, |p| p.burst.packets = 0];
    for change in tight {
        let bench = answered(change);
        let aborts = bench.aborts();
        assert!(aborts.len() == 1 && !aborts[0].contains("looser"), "{aborts:?}");
    }
    assert!(answered(|p| p.packet_bytes += 1).aborts()[0].contains("looser"));
}

#[test]
fn checksums_are_switched_on_by_either_end_and_off_by_none() {
    let mut bench = Bench::active(Role::Receiver, |config| config.checksum = false);
    let answer = Parameters { checksum: true, ..bench.proposal() };
    bench.deliver(response(&answer));
    assert!(bench.events().iter().any(|event| matches!(event, Event::Opened { .. })));
    let off = answered(|p| p.checksum = false);
    assert!(off.aborts()[0].contains("off"), "{:?}", off.aborts());
}

#[test]
fn a_response_to_an_earlier_open_is_ignored_while_the_right_one_may_come() {
    let mut bench = Bench::active(Role::Receiver, |_| {});
    let right = bench.proposal();
    // Whatever else it says.
    let other = Parameters { uid: right.uid ^ 1, buffer_bytes: 1 << 20, ..right.clone() };
    bench.deliver(response(&other));
    bench.pass(Duration::from_millis(300));
    assert!(bench.events().is_empty() && bench.aborts().is_empty());
    bench.deliver(response(&right));
    assert!(bench.events().iter().any(|event| matches!(event, Event::Opened { .. })));
}

/// The answers of a passive end to an OPEN: UIDs of RESPONSEs, and the number of ABORTs.
fn opens(bench: &mut Bench, proposal: &Parameters) -> (Vec<u32>, usize) {
    bench.packets.clear();
    let mut open = Vec::new();
    rfc998::encode_open(PORTS, proposal, &mut open);
    bench.deliver(open);
    let responses = bench.sent(|packet| match packet {
        Packet998::Response(parameters) => Some(parameters.uid),
        _ => None,
    });
    (responses, bench.aborts().len())
}

#[test]
fn a_program_restarted_before_its_response_replaces_its_own_opening() {
    let mut config = config(Role::Receiver);
    config.death_timer = Duration::from_secs(10);
    let mut bench = Bench::new(Endpoint::passive(config, start(), [1; 32]), peer());
    let first = Parameters { uid: 1, ..Bench::active(Role::Sender, |_| {}).proposal() };
    assert_eq!(opens(&mut bench, &first), (vec![1], 0));
    bench.pass(Duration::from_secs(8));
    let second = Parameters { uid: 2, ..first.clone() };
    assert_eq!(opens(&mut bench, &second), (vec![2], 0));
    // Another program's packets might not mean the same.
    let other = Parameters { uid: 3, buffer_bytes: first.buffer_bytes / 2, ..first.clone() };
    assert_eq!(opens(&mut bench, &other), (vec![], 1));
    bench.pass(Duration::from_secs(8));
    let events = bench.events();
    assert!(
        matches!(events[..], [Event::Opened { .. }]),
        "the second has its own time: {events:?}"
    );
    // Once it has said anything it is the connection.
    bench.deliver(plain(rfc998::encode_keepalive));
    assert_eq!(opens(&mut bench, &first), (vec![], 1));
    assert_eq!(opens(&mut bench, &second), (vec![2], 0));
}

#[test]
fn an_active_end_stopped_while_it_opens_sends_quit_once() {
    let mut bench = Bench::active(Role::Receiver, |_| {});
    bench.end.quit(bench.now, "no more");
    bench.collect();
    assert_eq!((quits(&bench), bench.closed()), (1, Some(CloseReason::Quit)));
    let mut silent = Endpoint::active(config(Role::Receiver), peer(), start(), [7; 32]);
    silent.quit(start(), "no more");
    assert_eq!(silent.poll_transmit(start(), &mut Vec::new()), None, "no peer was called yet");
}

#[test]
fn buffers_of_any_size_open() {
    for bytes in 1..=16 {
        let bench = answered(|p| (p.buffer_bytes, p.packet_bytes) = (bytes, 16.min(bytes)));
        assert!(bench.aborts().is_empty(), "{bytes}: {:?}", bench.aborts());
        let mut passive = Endpoint::passive(config(Role::Receiver), start(), [1; 32]);
        let proposal =
            Parameters { buffer_bytes: bytes, ..Bench::active(Role::Sender, |_| {}).proposal() };
        let mut open = Vec::new();
        rfc998::encode_open(PORTS, &proposal, &mut open);
        let datagram =
            Datagram { from: peer(), local: None, meta: RecvMeta::default(), bytes: &mut open };
        passive.handle_datagram(start(), datagram);
        let opened = passive.poll_event();
        assert!(matches!(opened, Some(Event::Opened { image_bytes, .. }) if image_bytes == bytes));
    }
}

// ---- a client's QUIT

/// Eight packets a buffer, 2 of them every 10 ms.
const BURST: Burst = Burst { packets: 2, interval: Duration::from_millis(10) };

fn control(messages: &[(u32, Message)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = rfc998::ControlWriter998::new(PORTS, 8, 1000, &mut out);
    for (seq, message) in messages {
        assert!(writer.push(ControlSeq(*seq), message));
    }
    writer.finish();
    out
}

fn go(seq: u32, number: u64) -> (u32, Message) {
    let first = BufferNumber(number);
    (seq, Message::Go(Go { first, count: 1, packet_bytes: 0, generation: 0 }))
}

fn data(number: u64, index: u32, ack: u32) -> Vec<u8> {
    let header = DataHeader {
        number: PacketNumber(0),
        buffer: BufferNumber(number),
        index: PacketIndex(index),
        generation: 0,
        law: 0,
        last_of_buffer: index == 7,
        last_buffer: false,
        ack: ControlSeq(ack),
    };
    let mut out = Vec::new();
    rfc998::encode_data(PORTS, &header, &[0; 500], true, &mut out);
    out
}

/// A sender with two buffers granted, three of whose bursts have left.
fn sending() -> Bench {
    let mut bench = Bench::active(Role::Sender, |config| {
        config.policy = Policy::Fixed(FixedRate::bursts(BURST).expect("it has an interval"));
        config.death_timer = Duration::from_secs(20);
    });
    let answer = bench.proposal();
    bench.deliver(response(&answer));
    bench.deliver(control(&[go(1, 1), go(2, 2)]));
    for number in 1..=2 {
        let mut buffer = Buffer::new(4000);
        buffer.set_len(4000);
        bench.end.supply(bench.now, BufferNumber(number), buffer, false);
    }
    bench.collect();
    bench.pass(Duration::from_millis(25));
    assert_eq!(places(&bench).len(), 6);
    bench
}

/// The DATA packets that left: buffer and packet.
fn places(bench: &Bench) -> Vec<(u64, u32)> {
    bench.sent(|packet| match packet {
        Packet998::Data { header, .. } => Some((header.buffer.0, header.index.0)),
        _ => None,
    })
}

fn quits(bench: &Bench) -> usize {
    bench.sent(|packet| matches!(packet, Packet998::Quit(_)).then_some(())).len()
}

fn plain(encode: fn(Ports, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(PORTS, &mut out);
    out
}

#[test]
fn a_sender_quits_between_two_buffers() {
    let mut bench = sending();
    bench.end.quit(bench.now, "enough");
    bench.collect();
    assert_eq!(quits(&bench), 0, "in the middle of a buffer");
    bench.pass(Duration::from_millis(40));
    assert_eq!(places(&bench).last(), Some(&(1, 7)), "no buffer is begun any more");
    assert_eq!(quits(&bench), 1);
    bench.deliver(plain(rfc998::encode_quit_ack));
    assert_eq!(bench.closed(), Some(CloseReason::Quit));
}

#[test]
fn a_receiver_quits_between_two_buffers() {
    let mut bench = Bench::active(Role::Receiver, |_| {});
    let answer = bench.proposal();
    for _ in 0..2 {
        bench.end.offer(bench.now, Buffer::new(4000));
    }
    bench.deliver(response(&answer));
    bench.deliver(data(1, 0, 2));
    bench.end.quit(bench.now, "enough");
    bench.collect();
    for index in 1..7 {
        bench.pass(Duration::from_millis(5));
        bench.deliver(data(1, index, 2));
    }
    assert_eq!(quits(&bench), 0, "in the middle of a buffer");
    bench.deliver(data(1, 7, 2));
    // The client has its buffer.
    assert_eq!(bench.closed(), None);
    bench.collect();
    assert_eq!(quits(&bench), 1);
}

#[test]
fn a_silent_sender_is_in_the_middle_of_no_buffer() {
    let mut bench = Bench::active(Role::Receiver, |_| {});
    let answer = bench.proposal();
    bench.end.offer(bench.now, Buffer::new(4000));
    bench.deliver(response(&answer));
    bench.deliver(data(1, 0, 1));
    bench.end.quit(bench.now, "enough");
    bench.pass(Duration::from_millis(900));
    assert_eq!(quits(&bench), 0);
    bench.pass(Duration::from_millis(200));
    assert_eq!(quits(&bench), 1);
}

#[test]
fn quit_is_repeated_until_it_is_acknowledged_or_the_death_timer_is_over() {
    let mut bench = sending();
    bench.end.quit(bench.now, "enough");
    bench.pass(Duration::from_secs(19));
    assert!((6..40).contains(&quits(&bench)), "{}", quits(&bench));
    assert_eq!(bench.closed(), None);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.closed(), Some(CloseReason::Quit));
}
