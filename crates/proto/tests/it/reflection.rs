//! Plain packets with a false address. An attacker that forges them must not draw more than three
//! times their bytes to that address (`docs/protocol §2.3`).

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Policy, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{
    Accepted, Burst, DataHeader, Go, IndexRange, Message, NullAck, Parameters, Resend, TransferMode,
};
use netblt_proto::wire::rfc998::{self, Packet998, Ports};

use crate::timers;

const PORTS: Ports = Ports { local: 2, foreign: 1 };
/// IPv4 and UDP.
const HEADERS: u64 = 28;
const BUFFER: u32 = 4000;
const PACKET: u32 = 500;

/// A passive end, packets for it, and the bytes that went either way.
struct Victim {
    end: Endpoint,
    now: Instant,
    came: u64,
    went: u64,
    /// Its DATA packets: buffer and index; and its RESPONSEs.
    data: Vec<(u64, u32)>,
    responses: Vec<Parameters>,
    aborts: u32,
    /// The times and messages of its control packets, and no messages for KEEPALIVEs.
    control: Vec<(Instant, Vec<(ControlSeq, Message)>)>,
    closed: bool,
    last: u64,
}

impl Victim {
    fn new(role: Role, seed: u8) -> Self {
        let mut config = Config::new(Wire::Rfc998, role);
        (config.buffer_bytes, config.datagram_bytes) = (BUFFER, PACKET + 24);
        config.max_outstanding = 512;
        config.policy = Policy::Fair { ceiling: None };
        config.client = "netblt 1.0".to_owned();
        config.death_timer = seconds(300);
        let mut end = Endpoint::passive(config, start(), [seed; 32]);
        if role == Role::Receiver {
            (0..512).for_each(|_| end.offer(start(), Buffer::new(BUFFER as usize)));
        }
        Self {
            end,
            now: start(),
            came: 0,
            went: 0,
            data: Vec::new(),
            responses: Vec::new(),
            aborts: 0,
            control: Vec::new(),
            closed: false,
            last: u64::MAX,
        }
    }

    fn deliver(&mut self, mut bytes: Vec<u8>) {
        self.came += bytes.len() as u64 + HEADERS;
        let from = SocketAddr::from(([192, 0, 2, 1], 2));
        let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
        self.end.handle_datagram(self.now, datagram);
        self.collect();
    }

    fn collect(&mut self) {
        loop {
            while let Some(event) = self.end.poll_event() {
                match event {
                    Event::Wanted(number) => {
                        let mut buffer = Buffer::new(BUFFER as usize);
                        buffer.set_len(BUFFER as usize);
                        self.end.supply(self.now, number, buffer, number.0 == self.last);
                    }
                    Event::Filled(_, buffer) => self.end.offer(self.now, buffer),
                    Event::Closed(_) => self.closed = true,
                    _ => {}
                }
            }
            let mut batch = Vec::new();
            let Some(sent) = self.end.poll_transmit(self.now, &mut batch) else { return };
            for packet in batch.chunks(sent.segment) {
                self.went += packet.len() as u64 + HEADERS;
                match rfc998::parse(packet, false, ControlSeq(0)) {
                    Ok((_, Packet998::Data { header, .. })) => {
                        self.data.push((header.buffer.0, header.index.0));
                    }
                    Ok((_, Packet998::Response(response))) => self.responses.push(response),
                    Ok((_, Packet998::Abort(_))) => self.aborts += 1,
                    Ok((_, Packet998::Control(messages))) => {
                        self.control.push((self.now, messages))
                    }
                    Ok((_, Packet998::Keepalive)) => self.control.push((self.now, Vec::new())),
                    _ => {}
                }
            }
        }
    }

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

    #[track_caller]
    fn drew_little(&self) {
        assert!(self.went <= 3 * self.came, "{} bytes for {}", self.went, self.came);
    }
}

fn start() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn proposal(mode: TransferMode, client: &str) -> Parameters {
    Parameters {
        uid: 7,
        buffer_bytes: BUFFER,
        transfer_bytes: None,
        packet_bytes: PACKET,
        burst: Burst { packets: 100, interval: Duration::from_millis(1) },
        death_timer: seconds(300),
        checksum: false,
        mode,
        max_outstanding: 512,
        client: client.to_owned(),
    }
}

fn open(mode: TransferMode, client: &str) -> Vec<u8> {
    let mut out = Vec::new();
    rfc998::encode_open(PORTS, &proposal(mode, client), &mut out);
    out
}

fn control(messages: impl IntoIterator<Item = (u32, Message)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = rfc998::ControlWriter998::new(PORTS, 8, 1100, &mut out);
    for (seq, message) in messages {
        assert!(writer.push(ControlSeq(seq), &message), "it has room");
    }
    writer.finish();
    out
}

fn go(number: u64) -> (u32, Message) {
    let go = Go { first: BufferNumber(number), count: 1, packet_bytes: 0, generation: 0 };
    (number as u32, Message::Go(go))
}

fn ok(seq: u32, number: u64) -> (u32, Message) {
    let offer = Some(Burst { packets: 100, interval: Duration::from_millis(1) });
    let control_timer = Duration::from_millis(50);
    let first = BufferNumber(number);
    (seq, Message::Ok(Accepted { first, count: 1, offer, control_timer }))
}

fn resend(seq: u32, number: u64, missing: Vec<u32>) -> (u32, Message) {
    let missing = missing.into_iter().map(|index| IndexRange { start: index, end: index + 1 });
    (seq, Message::Resend(Resend { buffer: BufferNumber(number), missing: missing.collect() }))
}

#[test]
fn one_open_draws_no_more_than_three_times_its_bytes() {
    for (role, mode) in [(Role::Sender, TransferMode::Read), (Role::Receiver, TransferMode::Write)]
    {
        for client in ["", "netblt", "x", &"y".repeat(300)] {
            let mut victim = Victim::new(role, 1);
            victim.deliver(open(mode, client));
            victim.pass(seconds(400));
            assert_eq!(victim.responses.len(), 1, "{client}");
            victim.drew_little();
        }
    }
}

#[test]
fn repeated_opens_draw_no_more_than_three_times_their_bytes() {
    for (role, mode) in [(Role::Sender, TransferMode::Read), (Role::Receiver, TransferMode::Write)]
    {
        let mut victim = Victim::new(role, 1);
        for _ in 0..100 {
            victim.deliver(open(mode, ""));
            victim.pass(Duration::from_millis(100));
            victim.drew_little();
        }
        assert!(victim.responses.len() > 50);
    }
}

#[test]
fn forged_grants_draw_no_more_than_three_times_their_bytes() {
    for seed in 0..20 {
        let mut victim = Victim::new(Role::Sender, seed);
        victim.deliver(open(TransferMode::Read, ""));
        victim.deliver(control((1..=130).map(go)));
        victim.deliver(control((131..=260).map(go)));
        victim.pass(seconds(400));
        assert!(!victim.data.is_empty());
        victim.drew_little();
    }
}

/// Over many tries, for some luck there is: a toss or two may be called right.
#[test]
fn blind_acceptance_draws_no_more_than_three_times_its_bytes() {
    let (mut came, mut went, mut caught) = (0, 0, 0);
    for seed in 0..100 {
        let mut victim = Victim::new(Role::Sender, seed);
        victim.deliver(open(TransferMode::Read, ""));
        victim.deliver(control((1..=100).map(go)));
        let mut seq = 100;
        for number in 1..=400 {
            victim.pass(Duration::from_millis(20));
            let next = go(number + 100);
            seq += 2;
            victim.deliver(control([ok(seq - 1, number), (seq, next.1)]));
        }
        victim.pass(seconds(20));
        caught += u32::from(victim.aborts == 1 && victim.closed);
        (came, went) = (came + victim.came, went + victim.went);
    }
    println!("blind acceptance: {went} for {came}");
    assert!(went <= 3 * came, "{went} for {came}");
    assert!(caught > 95, "{caught}");
}

#[test]
fn blind_questions_draw_no_more_than_three_times_their_bytes() {
    // All of each buffer, every other packet, and all but one.
    let patterns: [&[u32]; 3] = [&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 2, 4, 6], &[0, 1, 2, 4, 5, 6, 7]];
    for named in patterns {
        let (mut came, mut went) = (0, 0);
        for seed in 0..100 {
            let mut victim = Victim::new(Role::Sender, seed);
            victim.deliver(open(TransferMode::Read, ""));
            victim.deliver(control((1..=100).map(go)));
            for round in 0..100_u64 {
                victim.pass(Duration::from_millis(50));
                victim.deliver(control([resend(101 + round as u32, 1 + round, named.to_vec())]));
            }
            victim.pass(seconds(20));
            (came, went) = (came + victim.came, went + victim.went);
        }
        println!("blind questions {named:?}: {went} for {came}");
        assert!(went <= 3 * came, "{named:?}: {went} for {came}");
    }
}

#[test]
fn forged_data_draw_no_more_than_three_times_their_bytes() {
    for acks in [false, true] {
        let mut victim = Victim::new(Role::Receiver, 3);
        victim.deliver(open(TransferMode::Write, ""));
        for n in 0..200_u64 {
            victim.pass(Duration::from_millis(100));
            let ack = ControlSeq(if acks { n as u32 + 1 } else { 0 });
            let header = DataHeader {
                number: PacketNumber(0),
                buffer: BufferNumber(1 + n % 4),
                index: PacketIndex(n as u32 / 4 % 8),
                generation: 0,
                law: 0,
                last_of_buffer: false,
                last_buffer: false,
                ack,
            };
            let mut data = Vec::new();
            rfc998::encode_data(PORTS, &header, &[0; PACKET as usize], false, &mut data);
            if n % 10 == 0 {
                victim.deliver(data);
            }
            let burst = Burst { packets: 100, interval: Duration::from_millis(1) };
            let (number, end, sent_through) = (PacketNumber(0), None, None);
            let null_ack = NullAck {
                number,
                ack,
                burst,
                sent_through,
                end,
                packet_bytes: 0,
                limit: 0,
                back_millis: 0,
                paused: false,
            };
            let mut null = Vec::new();
            rfc998::encode_null_ack(PORTS, &null_ack, &mut null);
            victim.deliver(null);
            victim.drew_little();
        }
        victim.pass(seconds(400));
        victim.drew_little();
    }
}

// ---- true receivers

#[test]
fn an_address_that_returns_the_proof_is_validated_at_once() {
    let mut victim = Victim::new(Role::Sender, 5);
    victim.deliver(open(TransferMode::Read, "netblt, a caller"));
    let client = victim.responses[0].client.clone();
    assert!(client.starts_with("netblt 1.0 proof="), "{client}");
    let proof = client.rsplit(' ').next().expect("a field");
    let wrong = proof.replace(|c: char| c.is_ascii_digit(), "1");
    for (proof, trusted) in [(wrong.as_str(), false), (proof, true)] {
        victim.deliver(open(TransferMode::Read, &format!("netblt, a caller {proof}")));
        victim.deliver(control((1..=100).map(go)));
        victim.pass(seconds(2));
        let sent = victim.data.len();
        assert!(if trusted { sent > 60 } else { sent < 10 }, "{proof}: {sent}");
    }
}

/// A receiver of few grants that answers what it hears, and nothing more: it asks for what it lacks
/// every 50 ms.
#[test]
fn a_receiver_without_the_proof_gets_all_data_soon() {
    for (seed, grants) in [(1, 1), (2, 3), (3, 20), (4, 3), (5, 1)] {
        let mut victim = Victim::new(Role::Sender, seed);
        victim.last = 60;
        victim.deliver(open(TransferMode::Read, "another program"));
        let (mut seq, mut granted, mut done) = (grants as u32, grants, 0_u64);
        let mut here = vec![[false; 8]; 61];
        victim.deliver(control((1..=grants).map(go)));
        let begun = victim.now;
        while done < 60 {
            victim.pass(Duration::from_millis(50));
            assert!(!victim.closed && victim.now.since(begun) < seconds(30), "{seed}: {done}");
            for (number, index) in std::mem::take(&mut victim.data) {
                here[number as usize][index as usize] = true;
            }
            let mut messages = Vec::new();
            let underway = done + 1..=granted;
            for number in underway {
                let missing: Vec<u32> =
                    (0..8).filter(|index| !here[number as usize][*index as usize]).collect();
                seq += 1;
                if missing.is_empty() && number == done + 1 {
                    messages.push(ok(seq, number));
                    done = number;
                    if granted < 60 {
                        (seq, granted) = (seq + 1, granted + 1);
                        messages.push((seq, go(granted).1));
                    }
                } else {
                    messages.push(resend(seq, number, missing));
                }
            }
            victim.deliver(control(messages));
        }
        println!("{grants} grants: {:?}", victim.now.since(begun));
    }
}

/// Hosts whose interface holds one packet lose what follows another at once.
#[test]
fn an_unvalidated_peer_gets_single_packets_from_the_first_grant_on() {
    let mut victim = Victim::new(Role::Receiver, 3);
    victim.deliver(open(TransferMode::Write, ""));
    victim.pass(seconds(100));
    let first = |said: &[(Instant, Vec<(ControlSeq, Message)>)]| -> Vec<u64> {
        said.iter()
            .map(|(_, messages)| match messages.first() {
                Some((_, Message::Go(go))) => go.first.0,
                other => panic!("no GO but {other:?}"),
            })
            .collect()
    };
    assert!(victim.control.len() >= 2, "{:?}", victim.control);
    assert!(first(&victim.control).iter().all(|number| *number == 1), "{:?}", victim.control);
    for pair in victim.control.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= Duration::from_millis(200), "{:?}", victim.control);
    }
    // Whatever comes makes room again, and is answered by what matters, once.
    for _ in 0..10 {
        victim.control.clear();
        let mut keepalive = Vec::new();
        rfc998::encode_keepalive(PORTS, &mut keepalive);
        victim.deliver(keepalive);
        assert_eq!(victim.control.len(), 1, "{:?}", victim.control);
        assert_eq!(first(&victim.control).len(), 1);
        victim.pass(seconds(15));
        victim.drew_little();
    }
}
