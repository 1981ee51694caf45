//! An independent implementation of RFC 998: a peer in all four roles that puts its packets
//! together byte by byte from the figures of RFC 998 §8.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::testenv::LIMIT;
use crate::watch::Watch;

pub(crate) const OPEN: u8 = 0;
pub(crate) const RESPONSE: u8 = 1;
pub(crate) const KEEPALIVE: u8 = 2;
pub(crate) const DATA: u8 = 6;
pub(crate) const LDATA: u8 = 7;
pub(crate) const NULL_ACK: u8 = 8;
pub(crate) const CONTROL: u8 = 9;
pub(crate) const REFUSED: u8 = 10;
pub(crate) const DONE: u8 = 11;
pub(crate) const GO: u8 = 0;
pub(crate) const OK: u8 = 1;
pub(crate) const RESEND: u8 = 2;

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
pub(crate) struct Terms {
    pub(crate) uid: u32,
    pub(crate) buffer: u32,
    pub(crate) transfer: u32,
    pub(crate) packet: u16,
    pub(crate) burst: u16,
    pub(crate) rate: u16,
    pub(crate) death: u16,
    /// M: the active end writes.
    pub(crate) write: bool,
    /// C: data are checksummed.
    pub(crate) check: bool,
    pub(crate) outstanding: u16,
    pub(crate) client: String,
}

impl Terms {
    pub(crate) fn ours(write: bool) -> Self {
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

    pub(crate) fn body(&self) -> Vec<u8> {
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

    pub(crate) fn read(packet: &[u8]) -> Self {
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
pub(crate) struct Peer {
    socket: UdpSocket,
    /// Its NETBLT port, and the program's once it is known.
    pub(crate) local: u16,
    pub(crate) foreign: u16,
    to: Option<SocketAddr>,
    pub(crate) check: bool,
    deadline: Instant,
    /// When the socket was last found empty, and what is known of the newest packet's coming.
    empty: Instant,
    arrived: (Instant, Instant),
    pub(crate) watch: Watch,
    /// As a sender: burst size and milliseconds it keeps to, if to any.
    pub(crate) pace: Option<(u16, u64)>,
    /// As a sender: packets sent, and RESENDs for nothing that was lost.
    pub(crate) sent: u64,
    pub(crate) needless: u64,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let local = socket.local_addr().expect("an address").port();
        socket.set_nonblocking(true).expect("a socket that does not wait");
        let now = Instant::now();
        Self {
            socket,
            local,
            foreign: 0,
            to: None,
            check: true,
            deadline: now + LIMIT,
            empty: now,
            arrived: (now, now),
            watch: Watch::default(),
            pace: None,
            sent: 0,
            needless: 0,
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.local)
    }

    /// The common header and `body`; of DATA the checksum covers the header only.
    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) {
        let mut packet = vec![0, 0, 2, kind];
        for half in [12 + body.len() as u16, self.local, self.foreign, 0] {
            packet.extend(half.to_be_bytes());
        }
        packet.extend(body);
        if kind == CONTROL {
            self.watch.on_control();
            for (kind, seq, _, message) in messages(&packet) {
                if kind == OK {
                    self.watch.on_offer(seq, (short(message, 8), short(message, 10)));
                }
            }
        }
        let covered = if kind == DATA || kind == LDATA { 24 } else { packet.len() };
        let sum = checksum(&packet[..covered]);
        packet[..2].copy_from_slice(&sum.to_be_bytes());
        self.socket.send_to(&packet, self.to.expect("a peer")).expect("sent");
    }

    /// The next packet but KEEPALIVE, judged by RFC 998's words; `None` after some silence.
    pub(crate) fn recv(&mut self) -> Option<Vec<u8>> {
        self.recv_within(PATIENCE)
    }

    fn recv_within(&mut self, patience: Duration) -> Option<Vec<u8>> {
        assert!(Instant::now() < self.deadline, "it takes too long");
        let (bytes, from) = self.take(patience)?;
        let len = bytes.len();
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
        match bytes[3] {
            DATA | LDATA => self.watch.on_data(self.arrived, short(&bytes, 16)),
            NULL_ACK => self.watch.on_null_ack((short(&bytes, 14), short(&bytes, 16))),
            KEEPALIVE => return self.recv_within(patience),
            _ => {}
        }
        Some(bytes)
    }

    /// The next datagram, if one comes in time.
    fn take(&mut self, patience: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        let until = Instant::now() + patience;
        let mut bytes = vec![0; 65_536];
        loop {
            let looked = Instant::now();
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => {
                    self.arrived = (self.empty, Instant::now());
                    bytes.truncate(len);
                    return Some((bytes, from));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.empty = looked,
                // The program has gone.
                Err(_) => {}
            }
            let left = until.checked_duration_since(Instant::now()).filter(|t| !t.is_zero())?;
            self.socket.set_nonblocking(false).expect("a socket that waits");
            self.socket.set_read_timeout(Some(left)).expect("a timeout");
            let _ = self.socket.peek_from(&mut bytes[..1]);
            self.socket.set_nonblocking(true).expect("a socket that does not wait");
        }
    }

    /// Waits for the program's OPEN and answers, with all of `limits` that are stricter.
    pub(crate) fn accept(&mut self, limits: &Terms) -> Terms {
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
        self.watch.agree((settled.burst, settled.rate));
        self.send(RESPONSE, &settled.body());
        settled
    }

    /// Calls the program, which waits at `address`. What it answers, or the reason it refuses.
    pub(crate) fn call(&mut self, address: &str, terms: &Terms) -> Result<Terms, String> {
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
        self.watch.agree((settled.burst, settled.rate));
        Ok(settled)
    }

    /// The data receiver of RFC 998 §5.2. Packets in `lost` do not arrive the first time.
    pub(crate) fn receive(&mut self, terms: &Terms, lost: HashSet<(u32, u16)>) -> Vec<u8> {
        self.receive_offering(terms, lost, |_| (5, 2))
    }

    /// The same with what is offered in the OK of each buffer.
    pub(crate) fn receive_offering(
        &mut self,
        terms: &Terms,
        mut lost: HashSet<(u32, u16)>,
        offer: impl Fn(u32) -> (u16, u16),
    ) -> Vec<u8> {
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
                let (burst, rate) = offer(number);
                let rest = [burst, rate, 50, 0].map(u16::to_be_bytes).concat();
                orders.push(OK, number, &rest);
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
    pub(crate) fn supply(&mut self, terms: &Terms, content: &[u8], mut lost: HashSet<(u32, u16)>) {
        let buffers: Vec<Vec<&[u8]>> = match content {
            [] => vec![vec![&[]]],
            all => all
                .chunks(terms.buffer as usize)
                .map(|buffer| buffer.chunks(terms.packet.into()).collect())
                .collect(),
        };
        let (mut high, mut accepted, mut queue) = (0_u16, HashSet::new(), VecDeque::new());
        let (mut dropped, mut silence, mut next) = (HashSet::new(), 0, Instant::now());
        while accepted.len() < buffers.len() || silence < 10 {
            let until_burst = next.saturating_duration_since(Instant::now());
            let idle = queue.is_empty();
            let received = self.recv_within(if idle { PATIENCE } else { until_burst });
            silence = if received.is_some() { 0 } else { silence + u32::from(idle) };
            match received.as_ref().map(|packet| packet[3]) {
                None | Some(CONTROL | RESPONSE) => {}
                Some(DONE) => {
                    assert_eq!(accepted.len(), buffers.len(), "DONE before the last OK");
                    return;
                }
                Some(other) => panic!("a packet of type {other}"),
            }
            let control = received.filter(|packet| packet[3] == CONTROL);
            for (kind, seq, number, message) in control.iter().flat_map(|packet| messages(packet)) {
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
                        let there: Vec<(u32, u16)> = named
                            .filter(|index| indexes.contains(index))
                            .map(|index| (number, index))
                            .filter(|place| !queue.contains(place))
                            .collect();
                        let useful = there.iter().filter(|place| dropped.remove(*place)).count();
                        self.needless += u64::from(useful == 0);
                        // Lowest first (RFC 998 §5.2).
                        queue.extend(there);
                        queue.make_contiguous().sort_unstable();
                    }
                }
            }
            if queue.is_empty() && control.is_some() {
                let mut body = high.to_be_bytes().to_vec();
                body.extend([terms.burst, terms.rate, 0].map(u16::to_be_bytes).concat());
                self.send(NULL_ACK, &body);
            }
            if next > Instant::now() || queue.is_empty() {
                continue;
            }
            let (burst, millis) = self.pace.unwrap_or((u16::MAX, 0));
            next = Instant::now() + Duration::from_millis(millis);
            for (number, index) in queue.drain(..queue.len().min(burst.into())) {
                self.sent += 1;
                match lost.remove(&(number, index)) {
                    true => drop(dropped.insert((number, index))),
                    false => self.send_data(&buffers, number, index, high),
                }
            }
        }
    }

    fn send_data(&mut self, buffers: &[Vec<&[u8]>], number: u32, index: u16, high: u16) {
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
        // Without the last packet the number of packets is unknown.
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
