//! Two endpoints, a delay and a loss: the smallest whole conversations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::loss_detection::LossDetection;
use netblt_proto::time::Instant;
use netblt_proto::units::{BufferNumber, Rate};
use netblt_proto::wire::packet::{End, Verdict};
use netblt_proto::wire::sealed::destination;

const STOCK: u64 = 4;
const BUFFER: u32 = 1 << 16;

/// The lines that an end's trace has so far.
fn lines(end: &mut Endpoint) -> Vec<String> {
    let mut text = String::new();
    while let Some((at, event)) = end.poll_trace() {
        event.write_json(at, &mut text);
    }
    text.lines().map(str::to_owned).collect()
}

/// One end and what its client knows.
struct Side {
    endpoint: Endpoint,
    address: SocketAddr,
    closed: Option<CloseReason>,
}

struct Pair {
    now: Instant,
    sender: Side,
    receiver: Side,
    delay: Duration,
    /// One datagram in so many is lost, at random; 0 for none.
    lose: u64,
    random: u64,
    sent: u64,
    /// Packets of the receiver and of the sender that ask for ECN marks.
    ask_for_marks: [u64; 2],
    flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    data: Vec<u8>,
    got: Vec<u8>,
    verdict: Option<Verdict>,
}

fn config(wire: Wire, role: Role) -> Config {
    Config {
        secret: Some(Secret([7; 32])),
        buffer_bytes: BUFFER,
        max_outstanding: STOCK as u32,
        cipher: Cipher::Aes256Gcm,
        ..Config::new(wire, role)
    }
}

impl Pair {
    fn new(wire: Wire, sender_is_active: bool, bytes: usize, lose: u64) -> Self {
        Self::with(wire, sender_is_active, false, bytes, lose)
    }

    /// A pair that keeps traces.
    fn traced(wire: Wire, bytes: usize, lose: u64) -> Self {
        Self::with(wire, true, true, bytes, lose)
    }

    fn with(wire: Wire, sender_is_active: bool, trace: bool, bytes: usize, lose: u64) -> Self {
        let config = |role| Config { trace, ..config(wire, role) };
        let ends = (config(Role::Sender), config(Role::Receiver));
        Self::of(ends, sender_is_active, bytes, lose)
    }

    /// A pair with these configurations of the sender and of the receiver.
    fn of((s, r): (Config, Config), sender_is_active: bool, bytes: usize, lose: u64) -> Self {
        let (a, b): (SocketAddr, SocketAddr) =
            (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
        let now = Instant::EPOCH;
        let (sender, mut receiver) = if sender_is_active {
            (Endpoint::active(s, b, now, [1; 32]), Endpoint::passive(r, now, [2; 32]))
        } else {
            (Endpoint::passive(s, now, [1; 32]), Endpoint::active(r, a, now, [2; 32]))
        };
        for _ in 0..STOCK {
            receiver.offer(now, Buffer::new(BUFFER as usize + 8192));
        }
        Self {
            now,
            sender: Side { endpoint: sender, address: a, closed: None },
            receiver: Side { endpoint: receiver, address: b, closed: None },
            delay: Duration::from_millis(20),
            lose,
            random: 0x9e37_79b9_7f4a_7c15,
            sent: 0,
            ask_for_marks: [0, 0],
            flying: BTreeMap::new(),
            data: (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect(),
            got: vec![0; bytes],
            verdict: None,
        }
    }

    fn run(&mut self) {
        for _ in 0..2_000_000 {
            let more = self.step();
            if self.sender.closed.is_some() && self.receiver.closed.is_some() {
                return;
            }
            if !more {
                break;
            }
        }
        panic!(
            "stuck at {:?}: sender {:?} {:?}, receiver {:?} {:?}",
            self.now,
            self.sender.closed,
            self.sender.endpoint.stats(self.now),
            self.receiver.closed,
            self.receiver.endpoint.stats(self.now)
        );
    }

    /// Everything that is due, and on to what is due next; false if nothing is.
    fn step(&mut self) -> bool {
        self.deliver();
        self.serve_sender();
        self.serve_receiver();
        let next = [
            self.flying.keys().next().map(|k| k.0),
            self.sender.endpoint.next_timeout(self.now),
            self.receiver.endpoint.next_timeout(self.now),
        ];
        let next = next.into_iter().flatten().min();
        self.now = self.now.max(next.unwrap_or(self.now));
        next.is_some()
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (to_receiver, mut bytes) = entry.remove();
            let (to, from) = if to_receiver {
                (&mut self.receiver, self.sender.address)
            } else {
                (&mut self.sender, self.receiver.address)
            };
            to.endpoint.handle_datagram(
                self.now,
                Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes },
            );
        }
    }

    fn launch(&mut self, to_receiver: bool) {
        let mut batch = Vec::new();
        let side = if to_receiver { &mut self.sender } else { &mut self.receiver };
        if side.endpoint.next_timeout(self.now).is_some_and(|at| at <= self.now) {
            side.endpoint.handle_timeout(self.now);
        }
        while let Some(transmit) = side.endpoint.poll_transmit(self.now, &mut batch) {
            for datagram in batch.chunks(transmit.segment) {
                self.sent += 1;
                self.ask_for_marks[usize::from(to_receiver)] += u64::from(transmit.ecn.is_some());
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                if self.lose == 0 || !self.random.is_multiple_of(self.lose) {
                    let at = (self.now + self.delay, self.sent);
                    self.flying.insert(at, (to_receiver, datagram.to_vec()));
                }
            }
            batch.clear();
        }
    }

    fn serve_sender(&mut self) {
        self.launch(true);
        let last = (self.data.len().div_ceil(BUFFER as usize) as u64).max(1);
        while let Some(event) = self.sender.endpoint.poll_event() {
            match event {
                Event::Wanted(number) if number.0 <= last => {
                    let start = (number.0 as usize - 1) * BUFFER as usize;
                    let piece = &self.data[start..(start + BUFFER as usize).min(self.data.len())];
                    let mut buffer = Buffer::new(BUFFER as usize);
                    buffer.space()[..piece.len()].copy_from_slice(piece);
                    buffer.set_len(piece.len());
                    self.sender.endpoint.supply(self.now, number, buffer, number.0 == last);
                    if number.0 == last {
                        let end =
                            End { buffers: last, bytes: self.data.len() as u64, digest: [9; 32] };
                        self.sender.endpoint.end(self.now, end);
                    }
                }
                Event::Finished(verdict) => self.verdict = verdict,
                Event::Closed(reason) => self.sender.closed = Some(reason),
                _ => {}
            }
        }
        self.launch(true);
    }

    fn serve_receiver(&mut self) {
        self.launch(false);
        while let Some(event) = self.receiver.endpoint.poll_event() {
            match event {
                Event::Filled(BufferNumber(number), mut buffer) => {
                    let start = (number as usize - 1) * BUFFER as usize;
                    let bytes = buffer.filled();
                    self.got[start..start + bytes.len()].copy_from_slice(bytes);
                    buffer.set_len(0);
                    self.receiver.endpoint.offer(self.now, buffer);
                }
                Event::Complete(Some(end)) => {
                    let verdict = Verdict {
                        verified: true,
                        bytes: end.bytes,
                        digest: end.digest,
                        reason: String::new(),
                    };
                    self.receiver.endpoint.judge(self.now, verdict);
                }
                Event::Closed(reason) => self.receiver.closed = Some(reason),
                _ => {}
            }
        }
        self.launch(false);
    }
}

fn transfer(wire: Wire, sender_is_active: bool, bytes: usize, lose: u64) -> Pair {
    let mut pair = Pair::new(wire, sender_is_active, bytes, lose);
    pair.run();
    assert!(pair.got == pair.data, "the bytes differ");
    assert_eq!(pair.sender.closed, Some(CloseReason::Finished));
    assert_eq!(pair.receiver.closed, Some(CloseReason::Finished));
    assert_eq!(pair.verdict.is_some(), wire == Wire::Sealed);
    pair
}

#[test]
fn only_a_sender_that_answers_marks_asks_for_them() {
    let pace = FixedRate::rate(Rate::from_bits_per_second(10_000_000)).expect("it is a rate");
    let fixed = Policy::Fixed(pace);
    let fair = Policy::Fair { ceiling: None };
    for (wire, policy, asks) in
        [(Wire::Sealed, fair, true), (Wire::Sealed, fixed, false), (Wire::Rfc998, fair, false)]
    {
        let sender = Config { policy, ..config(wire, Role::Sender) };
        let mut pair = Pair::of((sender, config(wire, Role::Receiver)), true, 300_000, 0);
        pair.run();
        let [receivers, senders] = pair.ask_for_marks;
        assert_eq!((receivers, senders > 0), (0, asks), "{wire:?} {policy:?}");
    }
}

#[test]
fn either_end_opens_and_either_sends_on_a_clean_path() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for sender_is_active in [true, false] {
            for bytes in [0, 1, 1000, 65_536, 65_537, 1_000_000] {
                let pair = transfer(wire, sender_is_active, bytes, 0);
                let stats = pair.sender.endpoint.stats(pair.now);
                assert_eq!(stats.data_packets_resent, 0, "{wire:?} {bytes} {stats:?}");
            }
        }
    }
}

#[test]
fn either_end_opens_and_either_sends_on_a_lossy_path() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for sender_is_active in [true, false] {
            for lose in [3, 5, 10, 100] {
                transfer(wire, sender_is_active, 300_000, lose);
            }
        }
    }
}

#[test]
fn packets_carry_the_connection_ids_that_their_receiver_chose() {
    let (a, b): (SocketAddr, SocketAddr) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
    let now = Instant::EPOCH;
    let mut sender = Endpoint::active(config(Wire::Sealed, Role::Sender), b, now, [1; 32]);
    let mut receiver = Endpoint::passive(config(Wire::Sealed, Role::Receiver), now, [2; 32]);
    let own = sender.connection_id();
    assert!(own.is_some());
    assert_eq!(receiver.connection_id(), None);
    let mut to_receiver = Vec::new();
    for turn in 0..6 {
        let (from, to, address) = match turn % 2 {
            0 => (&mut sender, &mut receiver, a),
            _ => (&mut receiver, &mut sender, b),
        };
        let mut batch = Vec::new();
        if from.poll_transmit(now, &mut batch).is_none() {
            continue;
        }
        match (turn, destination(&batch)) {
            (0, id) => assert_eq!(id, None, "OPEN is for any listener"),
            (_, id) if turn % 2 == 1 => assert_eq!(id, own),
            (_, id) => to_receiver.extend(id),
        }
        to.handle_datagram(
            now,
            Datagram { from: address, local: None, meta: RecvMeta::default(), bytes: &mut batch },
        );
    }
    assert_eq!(to_receiver.first().copied(), receiver.connection_id());
    // A second peer opens another connection: both ids lead here until one is confirmed.
    let mut again = Endpoint::active(config(Wire::Sealed, Role::Sender), b, now, [3; 32]);
    let mut open = Vec::new();
    again.poll_transmit(now, &mut open).unwrap();
    receiver.handle_datagram(
        now,
        Datagram { from: a, local: None, meta: RecvMeta::default(), bytes: &mut open },
    );
    assert_eq!(receiver.connection_ids().count(), 1, "not while the first one is there");
    let later = now + Duration::from_secs(4);
    receiver.handle_datagram(
        later,
        Datagram { from: a, local: None, meta: RecvMeta::default(), bytes: &mut open },
    );
    assert_eq!(receiver.connection_ids().count(), 2);
    assert_eq!(receiver.connection_ids().next(), to_receiver.first().copied());
    let plain = Endpoint::active(config(Wire::Rfc998, Role::Sender), b, now, [1; 32]);
    assert_eq!(plain.connection_id(), None);
}

/// Buffers 1 to `count` with each of these stages, once and in this order.
fn assert_life(lines: &[String], count: u64, stages: &[&str]) {
    for number in 1..=count {
        let seen: Vec<&str> = lines
            .iter()
            .filter(|line| line.contains(&format!(r#""buffer","number":{number},"#)))
            .filter_map(|line| line.split(r#""stage":""#).nth(1)?.split('"').next())
            .collect();
        assert_eq!(seen, stages, "buffer {number}");
    }
}

#[test]
fn a_trace_of_one_end_has_the_stages_of_buffers_and_the_phase() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        let mut pair = Pair::traced(wire, 10 * BUFFER as usize, 40);
        pair.run();
        let (sent, received) =
            (lines(&mut pair.sender.endpoint), lines(&mut pair.receiver.endpoint));
        assert_life(&sent, 10, &["granted", "supplied", "begun", "sent", "accepted"]);
        assert_life(&received, 10, &["granted", "begun", "filled", "accepted"]);
        let has = |lines: &[String], what: &str| {
            assert!(lines.iter().any(|line| line.contains(what)), "{wire:?}: no {what}");
        };
        for what in [
            r#""event":"opened","role":"sender""#,
            r#""event":"rate","phase":""#,
            r#""event":"resend""#,
            r#""event":"waited","cause":"permission""#,
            r#""event":"closed","how":"finished""#,
        ] {
            has(&sent, what);
        }
        for what in [
            r#""event":"opened","role":"receiver""#,
            r#""stage":"offered""#,
            r#""event":"receiver","rtt_ns":"#,
            r#""event":"resend""#,
            r#""event":"closed","how":"finished""#,
        ] {
            has(&received, what);
        }
        // At most one line a control packet, of type 9.
        let count = |what: &str| sent.iter().filter(|line| line.contains(what)).count();
        let rates = count(r#""event":"rate""#);
        assert!(rates >= 10 && rates <= count(r#""event":"received","kind":9"#), "{rates}");
        let lost = |lines: &[String], event: &str| -> u64 {
            let line = lines.iter().rfind(|line| line.contains(event)).unwrap();
            let number = line.split(r#""lost":"#).nth(1).unwrap();
            number.split([',', '}']).next().unwrap().parse().unwrap()
        };
        assert!(lost(&sent, r#""event":"rate""#) > 0);
        assert!(lost(&received, r#""event":"receiver""#) > 0);
        let times = |lines: &[String]| {
            let at = |line: &String| line[6..].split(',').next()?.parse::<u64>().ok();
            lines.iter().map(at).collect::<Option<Vec<_>>>()
        };
        for lines in [&sent, &received] {
            assert!(times(lines).expect("every line has a time").is_sorted());
        }
    }
}

#[test]
fn without_a_trace_nothing_is_recorded() {
    let mut pair = Pair::new(Wire::Sealed, true, 3 * BUFFER as usize, 0);
    pair.run();
    assert!(pair.sender.endpoint.poll_trace().is_none());
    assert!(pair.receiver.endpoint.poll_trace().is_none());
}

#[test]
fn timers_that_fire_are_in_the_trace() {
    let now = Instant::EPOCH;
    let mut alone = Endpoint::active(
        Config { trace: true, ..config(Wire::Sealed, Role::Sender) },
        ([192, 0, 2, 2], 2).into(),
        now,
        [1; 32],
    );
    alone.quit(now, "enough");
    assert_eq!(lines(&mut alone), [r#"{"ns":0,"event":"closed","how":"quit"}"#]);
    // A receiver whose peer falls silent: control timer, questions, and the end.
    let mut pair = Pair::traced(Wire::Sealed, 3 * BUFFER as usize, 0);
    while pair.receiver.endpoint.stats(pair.now).data_packets_received == 0 {
        pair.step();
    }
    let mut fired = Vec::new();
    for _ in 0..10_000 {
        let Some(at) = pair.receiver.endpoint.next_timeout(pair.now) else { break };
        pair.now = pair.now.max(at);
        pair.receiver.endpoint.handle_timeout(pair.now);
        while pair.receiver.endpoint.poll_transmit(pair.now, &mut Vec::new()).is_some() {}
        fired.extend(lines(&mut pair.receiver.endpoint));
    }
    for what in [
        r#""timer":"control""#,
        r#""timer":"data""#,
        r#""timer":"peer_probe""#,
        r#""timer":"death""#,
        r#""event":"silent""#,
        r#""how":"death_timer""#,
    ] {
        assert!(fired.iter().any(|line| line.contains(what)), "no {what}");
    }
}

#[test]
fn either_law_of_recovery_serves_either_wire() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for law in [LossDetection::DataTimers, LossDetection::EarlyGaps] {
            let mut pair = Pair::new(wire, true, 20 * BUFFER as usize, 30);
            let receiver = Config { recovery: law, ..config(wire, Role::Receiver) };
            let mut end = Endpoint::passive(receiver, pair.now, [2; 32]);
            for _ in 0..STOCK {
                end.offer(pair.now, Buffer::new(BUFFER as usize + 8192));
            }
            pair.receiver.endpoint = end;
            pair.run();
            assert!(pair.got == pair.data, "{wire:?} {law:?}");
            assert!(pair.receiver.endpoint.stats(pair.now).data_packets_lost > 0);
        }
    }
}
