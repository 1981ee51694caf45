//! RFC 998 as somebody else would write it, against the program: a peer in all four roles that puts
//! its packets together byte by byte from the figures of RFC 998 §8, and shares no code with ours.

mod testenv;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use testenv::{Env, LIMIT, Running};

const OPEN: u8 = 0;
const RESPONSE: u8 = 1;
const KEEPALIVE: u8 = 2;
const DATA: u8 = 6;
const LDATA: u8 = 7;
const NULL_ACK: u8 = 8;
const CONTROL: u8 = 9;
const REFUSED: u8 = 10;
const DONE: u8 = 11;
const GO: u8 = 0;
const OK: u8 = 1;
const RESEND: u8 = 2;

/// Silence after which the peer says again what is not acknowledged.
const PATIENCE: Duration = Duration::from_millis(50);

/// RFC 998 §5.1: the words added in ones-complement arithmetic, all bits inverted.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
        if sum > 0xffff {
            sum = (sum & 0xffff) + 1;
        }
    }
    !(sum as u16)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) << 16 | u32::from(short(bytes, at + 2))
}

/// What OPEN and RESPONSE say.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    uid: u32,
    buffer: u32,
    transfer: u32,
    packet: u16,
    burst: u16,
    rate: u16,
    death: u16,
    /// M: the active end writes.
    write: bool,
    /// C: data are checksummed.
    check: bool,
    outstanding: u16,
    client: String,
}

impl Terms {
    fn ours(write: bool) -> Self {
        Self {
            uid: 0xcafe_0001,
            buffer: 4000,
            transfer: 0,
            packet: 500,
            burst: 5,
            rate: 2,
            death: 60,
            write,
            check: true,
            outstanding: 3,
            client: "an outsider".to_owned(),
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for word in [self.uid, self.buffer, self.transfer] {
            body.extend(word.to_be_bytes());
        }
        let flags = u16::from(self.check) * 2 + u16::from(self.write);
        for half in [self.packet, self.burst, self.rate, self.death, flags, self.outstanding] {
            body.extend(half.to_be_bytes());
        }
        body.extend(self.client.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
        body
    }

    fn read(packet: &[u8]) -> Self {
        assert!(packet.len().is_multiple_of(4) && packet.ends_with(&[0]), "{packet:?}");
        let flags = short(packet, 32);
        assert_eq!(flags & !3, 0, "reserved bits");
        let client = packet[36..].split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            uid: long(packet, 12),
            buffer: long(packet, 16),
            transfer: long(packet, 20),
            packet: short(packet, 24),
            burst: short(packet, 26),
            rate: short(packet, 28),
            death: short(packet, 30),
            write: flags & 1 == 1,
            check: flags & 2 == 2,
            outstanding: short(packet, 34),
            client: String::from_utf8(client.to_vec()).expect("text"),
        }
    }
}

/// The other program.
struct Peer {
    socket: UdpSocket,
    /// Its NETBLT port, and the program's once it is known.
    local: u16,
    foreign: u16,
    to: Option<SocketAddr>,
    check: bool,
    deadline: Instant,
}

impl Peer {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let local = socket.local_addr().expect("an address").port();
        let deadline = Instant::now() + LIMIT;
        Self { socket, local, foreign: 0, to: None, check: true, deadline }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.local)
    }

    /// The common header and `body`; of DATA the checksum covers the header only.
    fn send(&self, kind: u8, body: &[u8]) {
        let mut packet = vec![0, 0, 2, kind];
        for half in [12 + body.len() as u16, self.local, self.foreign, 0] {
            packet.extend(half.to_be_bytes());
        }
        packet.extend(body);
        let covered = if kind == DATA || kind == LDATA { 24 } else { packet.len() };
        let sum = checksum(&packet[..covered]);
        packet[..2].copy_from_slice(&sum.to_be_bytes());
        self.socket.send_to(&packet, self.to.expect("a peer")).expect("sent");
    }

    /// The next packet but KEEPALIVE, judged by RFC 998's words; `None` after some silence.
    fn recv(&mut self) -> Option<Vec<u8>> {
        assert!(Instant::now() < self.deadline, "it takes too long");
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut bytes = vec![0; 65_536];
        let (len, from) = self.socket.recv_from(&mut bytes).ok()?;
        bytes.truncate(len);
        assert!(len >= 12 && bytes[2] == 2, "{bytes:?}");
        assert_eq!(usize::from(short(&bytes, 4)), len, "the length field");
        assert_eq!(short(&bytes, 10), 0, "padding");
        let is_data = matches!(bytes[3], DATA | LDATA);
        let covered = if is_data { 24 } else { len };
        assert_eq!(checksum(&bytes[..covered]), 0, "the checksum holds when all sums to ones");
        if is_data {
            let sum = if self.check { checksum(&bytes[24..]) } else { 0 };
            assert_eq!(short(&bytes, 20), sum, "the data's checksum");
        }
        if *self.to.get_or_insert(from) == from {
            self.foreign = if self.foreign == 0 { short(&bytes, 6) } else { self.foreign };
        }
        assert_eq!((short(&bytes, 6), short(&bytes, 8)), (self.foreign, self.local), "ports");
        if bytes[3] == KEEPALIVE { self.recv() } else { Some(bytes) }
    }

    /// Waits for the program's OPEN and answers, with all of `limits` that are stricter.
    fn accept(&mut self, limits: &Terms) -> Terms {
        let open = loop {
            if let Some(open) = self.recv() {
                break open;
            }
        };
        assert_eq!(open[3], OPEN);
        assert_eq!(self.to.map(|to| to.port()), Some(self.foreign), "UDP port and NETBLT port");
        let asked = Terms::read(&open);
        let settled = Terms {
            buffer: asked.buffer.min(limits.buffer),
            packet: asked.packet.min(limits.packet),
            burst: asked.burst.min(limits.burst),
            rate: asked.rate.max(limits.rate),
            outstanding: asked.outstanding.min(limits.outstanding),
            ..asked
        };
        self.check = settled.check;
        self.send(RESPONSE, &settled.body());
        settled
    }

    /// Calls the program, which waits at `address`. What it answers, or the reason it refuses.
    fn call(&mut self, address: &str, terms: &Terms) -> Result<Terms, String> {
        let to: SocketAddr = address.parse().expect("an address");
        (self.to, self.foreign) = (Some(to), to.port());
        self.send(OPEN, &terms.body());
        let answer = loop {
            match self.recv() {
                Some(answer) => break answer,
                None => self.send(OPEN, &terms.body()),
            }
        };
        if answer[3] == REFUSED {
            return Err(String::from_utf8_lossy(&answer[12..]).trim_end_matches('\0').to_owned());
        }
        assert_eq!(answer[3], RESPONSE);
        let settled = Terms::read(&answer);
        assert_eq!((settled.uid, settled.write), (terms.uid, terms.write));
        assert!(settled.buffer <= terms.buffer && settled.packet <= terms.packet);
        assert!(settled.burst <= terms.burst && settled.rate >= terms.rate);
        assert!(settled.outstanding <= terms.outstanding);
        self.check = settled.check;
        Ok(settled)
    }

    /// The data receiver of RFC 998 §5.2. Packets in `lost` do not arrive the first time.
    fn receive(&mut self, terms: &Terms, mut lost: HashSet<(u32, u16)>) -> Vec<u8> {
        let mut orders = Orders::default();
        let mut buffers: BTreeMap<u32, Filling> = BTreeMap::new();
        let mut last = None;
        for number in 1..=u32::from(terms.outstanding) {
            buffers.insert(number, Filling::default());
            orders.push(GO, number, &[]);
        }
        self.send(CONTROL, &orders.all());
        loop {
            let Some(packet) = self.recv() else {
                ask_again(&mut buffers, last, terms, &mut orders);
                self.send(CONTROL, &orders.all());
                continue;
            };
            match packet[3] {
                DATA | LDATA => {}
                NULL_ACK => {
                    assert_eq!(packet.len(), 20);
                    orders.acknowledge(short(&packet, 12));
                    if is_over(&buffers, last, &orders) {
                        break;
                    }
                    continue;
                }
                // Our RESPONSE was lost, or slow.
                OPEN => continue,
                other => panic!("a packet of type {other}"),
            }
            orders.acknowledge(short(&packet, 16));
            let (number, index) = (long(&packet, 12), short(&packet, 18));
            if lost.remove(&(number, index)) {
                continue;
            }
            assert_eq!(short(&packet, 22) & !1, 0, "reserved bits");
            if short(&packet, 22) & 1 == 1 {
                last = Some(number);
            }
            let in_a_buffer = terms.buffer.div_ceil(terms.packet.into());
            assert!(u32::from(index) < in_a_buffer, "packet {index} of {in_a_buffer}");
            let filling = buffers.get_mut(&number).expect("only what was granted is sent");
            filling.take(index, &packet, terms);
            if filling.is_whole() && !std::mem::replace(&mut filling.accepted, true) {
                let offer = [0, 5, 0, 2, 0, 50, 0, 0];
                orders.push(OK, number, &offer);
                let next = buffers.keys().next_back().map_or(1, |highest| highest + 1);
                if last.is_none() {
                    buffers.insert(next, Filling::default());
                    orders.push(GO, next, &[]);
                }
                self.send(CONTROL, &orders.all());
            }
            if is_over(&buffers, last, &orders) {
                break;
            }
        }
        self.send(DONE, &[]);
        let wanted = buffers.into_iter().filter(|(number, _)| Some(*number) <= last);
        wanted.flat_map(|(_, filling)| filling.packets.into_values().flatten()).collect()
    }

    /// The data sender of RFC 998 §5.2. Packets in `lost` are not sent the first time.
    fn supply(&mut self, terms: &Terms, content: &[u8], mut lost: HashSet<(u32, u16)>) {
        let buffers: Vec<Vec<&[u8]>> = match content {
            [] => vec![vec![&[]]],
            all => all
                .chunks(terms.buffer as usize)
                .map(|buffer| buffer.chunks(terms.packet.into()).collect())
                .collect(),
        };
        let (mut high, mut accepted, mut queue) = (0_u16, HashSet::new(), VecDeque::new());
        let mut silence = 0;
        while accepted.len() < buffers.len() || silence < 10 {
            let packet = match self.recv() {
                Some(packet) => packet,
                None => {
                    silence += 1;
                    continue;
                }
            };
            silence = 0;
            match packet[3] {
                CONTROL => {}
                DONE => {
                    assert_eq!(accepted.len(), buffers.len(), "DONE before the last OK");
                    return;
                }
                RESPONSE => continue,
                other => panic!("a packet of type {other}"),
            }
            for (kind, seq, number, message) in messages(&packet) {
                if seq != high + 1 {
                    continue;
                }
                high = seq;
                let Some(buffer) = buffers.get(number as usize - 1) else { continue };
                let indexes = 0..buffer.len() as u16;
                match kind {
                    GO => queue.extend(indexes.map(|index| (number, index))),
                    OK => {
                        let (burst, rate) = (short(message, 8), short(message, 10));
                        assert!((1..=terms.burst).contains(&burst) && rate >= terms.rate);
                        accepted.insert(number);
                    }
                    _ => {
                        let named =
                            (0..short(message, 8)).map(|i| short(message, 12 + 2 * usize::from(i)));
                        let there = named.filter(|index| indexes.contains(index));
                        queue.extend(there.map(|index| (number, index)));
                    }
                }
            }
            let nothing = queue.is_empty();
            for (number, index) in queue.drain(..) {
                if lost.remove(&(number, index)) {
                    continue;
                }
                self.send_data(&buffers, number, index, high);
            }
            if nothing {
                let mut body = high.to_be_bytes().to_vec();
                body.extend([0, 5, 0, 2, 0, 0]);
                self.send(NULL_ACK, &body);
            }
        }
    }

    fn send_data(&self, buffers: &[Vec<&[u8]>], number: u32, index: u16, high: u16) {
        let buffer = &buffers[number as usize - 1];
        let data = buffer[usize::from(index)];
        let kind = if usize::from(index) + 1 == buffer.len() { LDATA } else { DATA };
        let sum = if self.check { checksum(data) } else { 0 };
        let flags = u16::from(number as usize == buffers.len());
        let mut body = number.to_be_bytes().to_vec();
        for half in [high, index, sum, flags] {
            body.extend(half.to_be_bytes());
        }
        body.extend(data);
        self.send(kind, &body);
    }
}

/// The long-lived control packet (RFC 998 §5.2.1).
#[derive(Default)]
struct Orders {
    last: u16,
    waiting: VecDeque<(u16, Vec<u8>)>,
}

impl Orders {
    fn push(&mut self, kind: u8, number: u32, rest: &[u8]) {
        self.last += 1;
        let mut message = vec![kind, 0];
        message.extend(self.last.to_be_bytes());
        message.extend(number.to_be_bytes());
        message.extend(rest);
        self.waiting.push_back((self.last, message));
    }

    fn acknowledge(&mut self, high: u16) {
        assert!(high <= self.last, "what was never said is acknowledged");
        self.waiting.retain(|(seq, _)| *seq > high);
    }

    fn all(&self) -> Vec<u8> {
        self.waiting.iter().flat_map(|(_, message)| message.clone()).collect()
    }
}

/// A buffer of the receiver's.
#[derive(Default)]
struct Filling {
    packets: BTreeMap<u16, Vec<u8>>,
    count: Option<usize>,
    accepted: bool,
}

impl Filling {
    fn take(&mut self, index: u16, packet: &[u8], terms: &Terms) {
        let data = packet[24..].to_vec();
        if packet[3] == LDATA {
            self.count = Some(usize::from(index) + 1);
        } else {
            assert_eq!(data.len(), usize::from(terms.packet), "all but the last are full");
        }
        self.packets.insert(index, data);
    }

    fn is_whole(&self) -> bool {
        self.count == Some(self.packets.len())
    }
}

fn is_over(buffers: &BTreeMap<u32, Filling>, last: Option<u32>, orders: &Orders) -> bool {
    let whole = |last| buffers.range(..=last).all(|(_, filling)| filling.is_whole());
    orders.waiting.is_empty() && last.is_some_and(whole)
}

/// RESEND for every buffer with holes, unless messages are still on their way.
fn ask_again(
    buffers: &mut BTreeMap<u32, Filling>,
    last: Option<u32>,
    terms: &Terms,
    orders: &mut Orders,
) {
    if !orders.waiting.is_empty() {
        return;
    }
    for (number, filling) in buffers {
        if filling.is_whole() || last.is_some_and(|last| *number > last) {
            continue;
        }
        // Without the last packet nobody knows how many there are.
        let full = terms.buffer.div_ceil(terms.packet.into()) as usize;
        let all = 0..filling.count.unwrap_or(full) as u16;
        let missing: Vec<u16> = all.filter(|i| !filling.packets.contains_key(i)).collect();
        let mut rest = (missing.len() as u16).to_be_bytes().to_vec();
        rest.extend([0, 0]);
        rest.extend(missing.iter().flat_map(|index| index.to_be_bytes()));
        rest.resize(rest.len().next_multiple_of(4), 0);
        orders.push(RESEND, *number, &rest);
    }
}

/// The messages of a CONTROL packet: type, sequence number, buffer number, all of its bytes.
fn messages(packet: &[u8]) -> Vec<(u8, u16, u32, &[u8])> {
    let mut found = Vec::new();
    let mut rest = &packet[12..];
    while !rest.is_empty() {
        let len = match rest[0] {
            GO => 8,
            OK => 16,
            RESEND => 12 + (usize::from(short(rest, 8)) * 2).next_multiple_of(4),
            other => panic!("a message of type {other}"),
        };
        assert_eq!(rest[1], 0, "padding");
        let (message, after) = rest.split_at(len);
        found.push((message[0], short(message, 2), long(message, 4), message));
        rest = after;
    }
    found
}

/// The program, waiting, and where.
fn waiting(env: &Env, args: &[&str]) -> (Running, String) {
    let here = ["--wire", "rfc998", "--listen", "127.0.0.1:0", "--json"];
    let mut running = env.start(&[args, &here].concat());
    let told = running.event("listening", |_| true);
    let address = told["address"].as_str().expect("an address").to_owned();
    (running, address)
}

/// The first packet of all, one in the middle, and the last of a buffer.
fn some_lost() -> HashSet<(u32, u16)> {
    HashSet::from([(1, 0), (2, 3), (3, 7)])
}

const SIZES: [usize; 6] = [0, 1, 500, 4000, 4001, 30_123];

#[test]
fn its_receiver_waits_and_our_sender_calls() {
    for bytes in SIZES {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let mut peer = Peer::new();
        let to = peer.address();
        let sender = env.start(&["send", "data", "--wire", "rfc998", "--to", &to]);
        let terms = peer.accept(&Terms::ours(true));
        assert!(terms.write && terms.check && terms.transfer == bytes as u32, "{terms:?}");
        assert!(peer.receive(&terms, some_lost()) == content, "{bytes} bytes");
        sender.finish().exits(0).says("IN THE CLEAR");
    }
}

#[test]
fn its_receiver_calls_and_our_sender_waits() {
    for bytes in SIZES {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let (sender, address) = waiting(&env, &["send", "data"]);
        let mut peer = Peer::new();
        let terms = peer.call(&address, &Terms::ours(false)).expect("a connection");
        assert_eq!(terms.transfer as usize, bytes);
        assert!(peer.receive(&terms, some_lost()) == content, "{bytes} bytes");
        assert_eq!(sender.finish().exits(0).last_event("summary")["verified"], false);
    }
}

#[test]
fn its_sender_waits_and_our_receiver_calls() {
    for bytes in SIZES {
        let env = Env::new();
        let content = testenv::noise(bytes);
        let mut peer = Peer::new();
        let from = peer.address();
        let receiver = env.start(&["receive", "out", "--wire", "rfc998", "--from", &from]);
        let terms = peer.accept(&Terms::ours(false));
        assert!(!terms.write, "READ");
        peer.supply(&terms, &content, some_lost());
        receiver.finish().exits(0).says("NOT verified");
        assert!(std::fs::read(env.path("out")).expect("the file") == content, "{bytes} bytes");
    }
}

#[test]
fn its_sender_calls_and_our_receiver_waits() {
    for bytes in SIZES {
        let env = Env::new();
        let content = testenv::noise(bytes);
        let (receiver, address) = waiting(&env, &["receive", "out"]);
        let mut peer = Peer::new();
        let terms = Terms { transfer: bytes as u32, check: false, ..Terms::ours(true) };
        let terms = peer.call(&address, &terms).expect("a connection");
        peer.supply(&terms, &content, some_lost());
        assert_eq!(receiver.finish().exits(0).last_event("summary")["bytes"], bytes);
        assert!(std::fs::read(env.path("out")).expect("the file") == content, "{bytes} bytes");
    }
}

#[test]
fn every_term_of_an_open_is_an_option() {
    let env = Env::new();
    let content = env.make_file("data", 10_000);
    let mut peer = Peer::new();
    let options = "--buffer-size 3000B --packet-size 700 --burst-size 7 --burst-interval 3ms \
                   --policy fixed --death-timer 90s --no-checksum --buffers 5 --client reader \
                   --netblt-port 1022";
    let to = peer.address();
    let mut args = vec!["send", "data", "--wire", "rfc998", "--to", &to];
    args.extend(options.split_whitespace());
    let sender = env.start(&args);
    peer.foreign = 1022;
    peer.check = false;
    let open = loop {
        if let Some(open) = peer.recv() {
            break open;
        }
    };
    let asked = Terms::read(&open);
    let expected = Terms {
        uid: asked.uid,
        buffer: 3000,
        transfer: 10_000,
        packet: 700,
        burst: 7,
        rate: 3,
        death: 90,
        write: true,
        check: false,
        outstanding: 5,
        client: "reader".to_owned(),
    };
    assert_eq!(asked, expected);
    peer.send(RESPONSE, &asked.body());
    assert!(peer.receive(&asked, HashSet::new()) == content);
    sender.finish().exits(0);
}

#[test]
fn who_wants_the_same_as_we_is_refused_and_others_are_still_welcome() {
    let env = Env::new();
    let content = env.make_file("data", 5000);
    let (sender, address) = waiting(&env, &["send", "data"]);
    let refused = Peer::new().call(&address, &Terms::ours(true));
    assert_eq!(refused, Err("both ends want to send".to_owned()));
    let mut peer = Peer::new();
    let terms = peer.call(&address, &Terms::ours(false)).expect("a connection");
    // One transfer at a time.
    let busy = Peer::new().call(&address, &Terms::ours(false));
    assert!(busy.is_err_and(|reason| reason.contains("busy")));
    assert!(peer.receive(&terms, HashSet::new()) == content);
    sender.finish().exits(0);
}
