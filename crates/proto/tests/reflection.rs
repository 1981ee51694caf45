//! Plain packets with a false address: whoever forges them must not draw more than three times
//! their bytes upon who has that address (`docs/protocol.md §2.3`).

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Policy, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::machine::{Datagram, Event};
use netblt_proto::time::Instant;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{Burst, DataHeader, Message, Mode, NullAck, Parameters};
use netblt_proto::wire::rfc998::{self, Packet998, Ports};

const PORTS: Ports = Ports { local: 2, foreign: 1 };
/// IPv4 and UDP.
const HEADERS: u64 = 28;
const BUFFER: u32 = 8000;
const PACKET: u32 = 1000;

/// A passive end of ours, somebody who sends it packets, and the bytes that went either way.
struct Victim {
    end: Endpoint,
    now: Instant,
    came: u64,
    went: u64,
    /// Its RESPONSEs.
    responses: Vec<Parameters>,
    /// When it said what: the messages of control packets, and none for KEEPALIVEs.
    said: Vec<(Instant, Vec<(ControlSeq, Message)>)>,
    closed: bool,
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
            responses: Vec::new(),
            said: Vec::new(),
            closed: false,
        }
    }

    fn hear(&mut self, mut bytes: Vec<u8>) {
        self.came += bytes.len() as u64 + HEADERS;
        let from = SocketAddr::from(([192, 0, 2, 1], 2));
        let datagram = Datagram { from, local: None, ecn: None, bytes: &mut bytes };
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
                        self.end.supply(self.now, number, buffer, false);
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
                    Ok((_, Packet998::Response(response))) => self.responses.push(response),
                    Ok((_, Packet998::Control(messages))) => self.said.push((self.now, messages)),
                    Ok((_, Packet998::Keepalive)) => self.said.push((self.now, Vec::new())),
                    _ => {}
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..100_000 {
            match self.end.next_timeout(self.now) {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
            self.end.handle_timeout(self.now);
            self.collect();
        }
        self.now = until;
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

fn proposal(mode: Mode, client: &str) -> Parameters {
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

fn open(mode: Mode, client: &str) -> Vec<u8> {
    let mut out = Vec::new();
    rfc998::encode_open(PORTS, &proposal(mode, client), &mut out);
    out
}

#[test]
fn one_open_draws_no_more_than_three_times_its_bytes() {
    for (role, mode) in [(Role::Sender, Mode::Read), (Role::Receiver, Mode::Write)] {
        for client in ["", "netblt", "x", &"y".repeat(300)] {
            let mut victim = Victim::new(role, 1);
            victim.hear(open(mode, client));
            victim.pass(seconds(400));
            assert_eq!(victim.responses.len(), 1, "{client}");
            victim.drew_little();
        }
    }
}

#[test]
fn who_repeats_an_open_draws_three_times_that() {
    for (role, mode) in [(Role::Sender, Mode::Read), (Role::Receiver, Mode::Write)] {
        let mut victim = Victim::new(role, 1);
        for _ in 0..100 {
            victim.hear(open(mode, ""));
            victim.pass(Duration::from_millis(100));
            victim.drew_little();
        }
        assert!(victim.responses.len() > 50);
    }
}

#[test]
fn forged_data_draw_no_more_than_three_times_their_bytes() {
    for acks in [false, true] {
        let mut victim = Victim::new(Role::Receiver, 3);
        victim.hear(open(Mode::Write, ""));
        for n in 0..200_u64 {
            victim.pass(Duration::from_millis(100));
            let ack = ControlSeq(if acks { n as u32 + 1 } else { 0 });
            let header = DataHeader {
                number: PacketNumber(0),
                buffer: BufferNumber(1 + n % 4),
                index: PacketIndex(n as u32 / 4 % 8),
                generation: 0,
                last_of_buffer: false,
                last_buffer: false,
                ack,
            };
            let mut data = Vec::new();
            rfc998::encode_data(PORTS, &header, &[0; 1000], false, &mut data);
            if n % 10 == 0 {
                victim.hear(data);
            }
            let burst = Burst { packets: 100, interval: Duration::from_millis(1) };
            let (number, end, sent_through) = (PacketNumber(0), None, None);
            let null_ack = NullAck { number, ack, burst, sent_through, end, packet_bytes: 0 };
            let mut null = Vec::new();
            rfc998::encode_null_ack(PORTS, &null_ack, &mut null);
            victim.hear(null);
            victim.drew_little();
        }
        victim.pass(seconds(400));
        victim.drew_little();
    }
}

// ---- and who does hear

#[test]
fn who_gives_the_number_back_is_trusted_at_once() {
    let mut victim = Victim::new(Role::Receiver, 5);
    victim.hear(open(Mode::Write, "netblt, a caller"));
    let client = victim.responses[0].client.clone();
    assert!(client.starts_with("netblt 1.0 proof="), "{client}");
    let proof = client.rsplit(' ').next().expect("a field");
    let wrong = proof.replace(|c: char| c.is_ascii_digit(), "1");
    for (proof, trusted) in [(wrong.as_str(), false), (proof, true)] {
        victim.hear(open(Mode::Write, &format!("netblt, a caller {proof}")));
        victim.pass(seconds(2));
        assert_eq!(victim.went > 3 * victim.came, trusted, "{} bytes", victim.went);
        let last = victim.responses.last().expect("a RESPONSE");
        assert_eq!(last.client == "netblt 1.0", trusted, "{}", last.client);
    }
}

/// Hosts whose interface holds one packet lose what follows another at once.
#[test]
fn what_little_may_be_said_is_said_one_packet_at_a_time_and_from_the_first_grant() {
    let mut victim = Victim::new(Role::Receiver, 3);
    victim.hear(open(Mode::Write, ""));
    victim.pass(seconds(100));
    let first = |said: &[(Instant, Vec<(ControlSeq, Message)>)]| -> Vec<u64> {
        said.iter()
            .map(|(_, messages)| match messages.first() {
                Some((_, Message::Go(go))) => go.first.0,
                other => panic!("no GO but {other:?}"),
            })
            .collect()
    };
    assert!(victim.said.len() >= 2, "{:?}", victim.said);
    assert!(first(&victim.said).iter().all(|number| *number == 1), "{:?}", victim.said);
    for pair in victim.said.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= Duration::from_millis(200), "{:?}", victim.said);
    }
    // Whatever comes makes room again, and is answered by what matters, once.
    for _ in 0..10 {
        victim.said.clear();
        let mut keepalive = Vec::new();
        rfc998::encode_keepalive(PORTS, &mut keepalive);
        victim.hear(keepalive);
        assert_eq!(victim.said.len(), 1, "{:?}", victim.said);
        assert_eq!(first(&victim.said).len(), 1);
        victim.pass(seconds(15));
        victim.drew_little();
    }
}
