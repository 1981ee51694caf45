//! The oracle: what must hold in every world at every step.
//!
//! It sees every datagram as it leaves, every event, and the buffers that the clients lend to their
//! machines. The first violation ends the world. It trusts nothing that a machine says about
//! itself: whatever can be seen on the wire is read off the wire.
//!
//! * Every delivered buffer holds the bytes that were sent, and none comes twice
//!   ([`crate::host`] compares them).
//! * No DATA and no REPAIR for a buffer that was not supplied, not wanted, or not granted.
//! * Packet numbers grow by one with every packet of a connection's direction, or by two.
//! * A fixed sender keeps to its bursts ([`netblt_proto::rate::pacer::allowance_bytes`]).
//! * An address at which no end is gets at most three times the bytes that came from it, unless a
//!   host there forwards packets: only the host that got the RESPONSE, and answers it, may get
//!   more.
//! * Both ends hold the same parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::config::{Config, Policy, Role, Wire};
use netblt_proto::rate::pacer::allowance_bytes;
use netblt_proto::rate::{Pacing, counted_bytes};
use netblt_proto::time::{Instant, nanos};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{Burst, Parameters, TransferMode};
use netblt_proto::wire::sealed::VERSION;

use crate::side::{Pair, Side};

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The time in the world.
    pub at: Instant,
    /// The end at which it happened, if at one.
    pub side: Option<Side>,
    /// The violation.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, side, what } = self;
        write!(f, "at {:.6} s", at.as_secs_f64())?;
        if let Some(side) = side {
            write!(f, ", {side} end")?;
        }
        write!(f, ": {what}")
    }
}

/// The clear bytes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Version byte.
    pub version: u8,
    /// Type byte.
    pub kind: u8,
    /// Connection id and packet number (`sealed`, after the handshake).
    pub number: Option<(u32, u64)>,
    /// Buffer number of DATA, LDATA and REPAIR.
    pub buffer: Option<u64>,
    /// Index of DATA and LDATA within the buffer.
    pub index: Option<u32>,
}

impl Clear {
    /// Reads what every eavesdropper can read.
    pub fn read(bytes: &[u8]) -> Self {
        let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let wide =
            |at: usize| (at..at + 8).fold(0_u64, |sum, n| sum << 8 | u64::from(get(bytes, n)));
        let (version, kind) = (at(2), at(3));
        let data = matches!(kind, kind::DATA | kind::LDATA);
        let repair = kind == kind::REPAIR;
        let sealed = version == VERSION && !kind::without_number(kind);
        let (buffer, index) = match (data, version) {
            (true, VERSION) => (Some(wide(16)), Some((wide(20)) as u32)),
            (_, VERSION) if repair => (Some(wide(16)), None),
            (true, 2) => (Some(wide(8) & 0xffff_ffff), Some((wide(12) & 0xffff) as u32)),
            _ => (None, None),
        };
        let number = sealed.then(|| ((wide(0) & 0xffff_ffff) as u32, wide(8)));
        Self { version, kind, number, buffer, index }
    }

    /// The bytes that carry data, header and tag not counted.
    pub fn data_bytes(&self, len: usize) -> usize {
        len.saturating_sub(if self.version == VERSION { 48 } else { 24 })
    }
}

fn get(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Packet types (RFC 998 §8; `docs/protocol §3.1`).
pub mod kind {
    #![expect(missing_docs, reason = "the names are the protocol's own")]
    pub const OPEN: u8 = 0;
    pub const RESPONSE: u8 = 1;
    pub const KEEPALIVE: u8 = 2;
    pub const QUIT: u8 = 3;
    pub const QUITACK: u8 = 4;
    pub const ABORT: u8 = 5;
    pub const DATA: u8 = 6;
    pub const LDATA: u8 = 7;
    pub const NULL_ACK: u8 = 8;
    pub const CONTROL: u8 = 9;
    pub const REFUSED: u8 = 10;
    pub const DONE: u8 = 11;
    pub const COOKIE: u8 = 12;
    pub const UNKNOWN: u8 = 13;
    pub const CHALLENGE: u8 = 14;
    pub const ANSWER: u8 = 15;
    pub const REPAIR: u8 = 16;
    pub const WHO: u8 = 17;
    pub const KEY: u8 = 18;
    pub const BRANCH: u8 = 19;

    /// Whether a packet of this type has no packet number on `sealed`: those of the handshake.
    pub(crate) fn without_number(kind: u8) -> bool {
        matches!(kind, OPEN | RESPONSE | REFUSED | COOKIE | UNKNOWN | WHO | KEY)
    }
}

/// Bytes to and from one address.
#[derive(Clone, Copy, Debug, Default)]
struct Book {
    from: u64,
    to: u64,
}

/// Most OPENs of one opening: 24, all but the first twice, as many again after COOKIEs, and one
/// after an ICMP message (`docs/protocol §4.1`).
const MAX_OPENS: u32 = 72;

/// The oracle's record of one end.
#[derive(Clone, Debug, Default)]
struct EndBooks {
    /// The next packet number of every connection id it sends to.
    numbers: BTreeMap<u32, u64>,
    /// The packets that it sent with a RESPONSE, before the peer was confirmed.
    greetings: BTreeSet<Vec<u8>>,
    addresses: BTreeMap<SocketAddr, Book>,
    /// The destinations of the RESPONSEs of each of its connection ids.
    responses: BTreeMap<u32, BTreeSet<SocketAddr>>,
    /// How many OPENs it sent with each of its connection ids.
    opens: BTreeMap<u32, u32>,
    /// The connection id and the source of the last arrival.
    last_arrival: Option<(u32, SocketAddr)>,
    /// The addresses that got the RESPONSE of a connection that opened.
    proven: BTreeSet<SocketAddr>,
    opened: Option<(Parameters, u32)>,
    wanted: u64,
    /// Connection ids that it chose since its program was started.
    own_ids: BTreeSet<u32>,
    /// How often its program was started before.
    starts: u32,
}

/// Keeps watch over a world.
#[derive(Debug)]
pub struct Oracle {
    finding: Option<Finding>,
    ends: Pair<EndBooks>,
    policies: Pair<Policy>,
    roles: Pair<Role>,
    wire: Wire,
    overheads: Pair<u32>,
    bucket: Option<Bucket>,
    /// While an attacker's stale datagram is answered: the end, its bytes, and bytes sent so far.
    answer: Option<(Side, u64, u64)>,
}

impl Oracle {
    /// An oracle over a world of two ends with these configurations.
    pub fn new(ends: Pair<&Config>) -> Self {
        Self {
            finding: None,
            ends: Pair::default(),
            policies: Pair(ends.0.map(|config| config.policy)),
            roles: Pair(ends.0.map(|config| config.role)),
            wire: ends[Side::Active].wire,
            overheads: Pair(ends.0.map(|config| config.overhead_bytes)),
            bucket: None,
            answer: None,
        }
    }

    /// The violation, if there was one.
    pub fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    pub(crate) fn into_finding(self) -> Option<Finding> {
        self.finding
    }

    /// Takes note that something happened which must not.
    pub fn find(&mut self, at: Instant, side: impl Into<Option<Side>>, what: impl Into<String>) {
        let side = side.into();
        self.finding.get_or_insert_with(|| Finding { at, side, what: what.into() });
    }

    /// The program of this end was started.
    pub fn on_started(&mut self, side: Side) {
        let starts = self.ends[side].starts + 1;
        self.ends[side] = EndBooks { starts, ..EndBooks::default() };
    }

    /// A datagram was handed to the machine of `side`.
    pub(crate) fn on_received(&mut self, side: Side, from: SocketAddr, bytes: &[u8]) {
        if side == Side::Passive {
            let books = &mut self.ends[side];
            books.addresses.entry(from).or_default().from += bytes.len() as u64;
            books.last_arrival =
                Clear::read(bytes).number.map(|(connection, _)| (connection, from));
        }
    }

    /// A datagram leaves `side`. `lent` is the number of buffers that its client supplied, and of
    /// those that the other end's client ever offered.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        side: Side,
        to: SocketAddr,
        bytes: &[u8],
        clear: &Clear,
        lent: (u64, u64),
    ) {
        if let Some((answering, _, sent)) = &mut self.answer
            && *answering == side
        {
            *sent += bytes.len() as u64;
        }
        if let Some(what) = self.check_number(side, clear, bytes) {
            self.find(now, side, what);
        }
        if side == Side::Passive && clear.version == VERSION {
            let books = &mut self.ends[side];
            let book = books.addresses.entry(to).or_default();
            book.to += bytes.len() as u64;
            let may = side.other().may_be_at(to) || books.proven.contains(&to);
            if !may && book.to > 3 * book.from {
                let (bytes, came) = (book.to, book.from);
                self.find(now, side, format!("{bytes} bytes to {to}, from which came {came}"));
            }
        }
        if let (VERSION, kind::OPEN | kind::RESPONSE) = (clear.version, clear.kind) {
            let own = bytes.get(8..12).and_then(|id| id.first_chunk());
            let own = own.map(|id| u32::from_be_bytes(*id));
            self.ends[side].own_ids.extend(own);
            if let Some(own) = own.filter(|_| clear.kind == kind::RESPONSE) {
                self.ends[side].responses.entry(own).or_default().insert(to);
            }
            if let Some(own) = own.filter(|_| clear.kind == kind::OPEN) {
                let opens = self.ends[side].opens.entry(own).or_default();
                *opens += 1;
                if *opens > MAX_OPENS {
                    self.find(now, side, "more OPENs than an opening has");
                }
            }
        }
        let Some(buffer) = clear.buffer else { return };
        let (supplied, offered) = lent;
        if self.roles[side] != Role::Sender {
            self.find(now, side, "a receiver sends data");
        }
        if buffer == 0 || buffer > self.ends[side].wanted || buffer > supplied {
            let what = format!("data of buffer {buffer}, which was not wanted or not supplied");
            self.find(now, side, what);
        }
        // A restarted receiver has yet to refuse a sender of the old connection.
        let receiver = &self.ends[side.other()];
        let known = match clear.number {
            Some((connection, _)) => receiver.own_ids.contains(&connection),
            None => receiver.starts == 1,
        };
        if known && buffer > offered {
            self.find(now, side, format!("data of buffer {buffer}, for which there was no room"));
        }
        if let Some(bucket) = &mut self.bucket
            && !bucket.pour(now, bytes.len())
        {
            self.find(now, side, "more data than the burst values allow");
        }
    }

    /// No number comes twice, except with the same bytes: packets with a RESPONSE and its copies
    /// have number 0, and one for each RESPONSE.
    fn check_number(&mut self, side: Side, clear: &Clear, bytes: &[u8]) -> Option<String> {
        let (connection, number) = clear.number?;
        let books = &mut self.ends[side];
        if (side, clear.kind, number) == (Side::Passive, kind::CONTROL, 0) {
            books.numbers.entry(connection).or_insert(1);
            books.greetings.insert(bytes.to_vec());
            let more = books.greetings.len() > books.own_ids.len();
            return more.then(|| "two packets under one number".to_owned());
        }
        // Number 0 may have been made, and not been sent for it was more than came.
        let first = if side == Side::Passive { number.min(1) } else { 0 };
        let next = books.numbers.entry(connection).or_insert(first);
        let expected = std::mem::replace(next, number + 1);
        // Now and then a sender passes over one (`docs/protocol §6.3`).
        let follows = (expected..=expected + 1).contains(&number);
        (!follows).then(|| format!("packet number {number} instead of {expected}"))
    }

    /// A connection is open at `side`.
    pub(crate) fn on_opened(
        &mut self,
        now: Instant,
        side: Side,
        peer: SocketAddr,
        parameters: &Parameters,
        image_bytes: u32,
    ) {
        let mode =
            if self.roles[side] == Role::Sender { TransferMode::Write } else { TransferMode::Read };
        let expected = if side == Side::Active { mode } else { opposite(mode) };
        if parameters.mode != expected {
            self.find(now, side, format!("open with {peer} as {:?}", parameters.mode));
        }
        if let Some((others, others_image)) = &self.ends[side.other()].opened
            && others.uid == parameters.uid
            && !(agree(self.wire, others, parameters) && *others_image == image_bytes)
        {
            let what = format!("the ends do not agree: {parameters:?} here, {others:?} there");
            self.find(now, side, what);
        }
        let books = &mut self.ends[side];
        books.opened = Some((parameters.clone(), image_bytes));
        books.wanted = 0;
        if let Some((connection, from)) = books.last_arrival.filter(|(_, from)| *from == peer)
            && books.responses.get(&connection).is_some_and(|to| to.iter().eq([&from]))
        {
            books.proven.insert(from);
        }
        if self.roles[side] == Role::Sender {
            let fixed = matches!(self.policies[side], Policy::Fixed(_));
            let headers = if self.wire == Wire::Sealed { 48 } else { 24 };
            let largest = parameters.packet_bytes + headers;
            let overhead = self.overheads[side];
            let counted = counted_bytes(self.wire, largest);
            let bucket = || Bucket::new(now, parameters.burst, counted, largest, overhead);
            self.bucket = fixed.then(bucket);
        }
    }

    /// The machine of `side` wants a buffer.
    pub(crate) fn on_wanted(&mut self, now: Instant, side: Side, number: BufferNumber) {
        let wanted = &mut self.ends[side].wanted;
        let expected = std::mem::replace(wanted, number.0) + 1;
        if number.0 != expected {
            self.find(now, side, format!("buffer {} wanted instead of {expected}", number.0));
        }
    }

    /// Packets of `side` from now on answer a stale datagram of `len` bytes.
    pub(crate) fn begin_answer(&mut self, side: Side, len: usize) {
        self.answer = Some((side, len as u64, 0));
    }

    /// The answer of [`Oracle::begin_answer`] has ended: it must not be longer than its cause.
    pub(crate) fn end_answer(&mut self, now: Instant) {
        if let Some((side, len, sent)) = self.answer.take()
            && sent > len
        {
            self.find(now, side, format!("{sent} bytes in answer to {len} that prove nothing"));
        }
    }
}

fn opposite(mode: TransferMode) -> TransferMode {
    match mode {
        TransferMode::Read => TransferMode::Write,
        TransferMode::Write => TransferMode::Read,
    }
}

/// Whether two ends of a connection hold the same parameters, except those that each has for
/// itself.
fn agree(wire: Wire, a: &Parameters, b: &Parameters) -> bool {
    a.buffer_bytes == b.buffer_bytes
        && a.packet_bytes == b.packet_bytes
        && a.burst == b.burst
        && a.max_outstanding == b.max_outstanding
        && a.mode == b.mode
        && (a.checksum == b.checksum || wire == Wire::Sealed)
}

/// A bucket that datagrams pour into and that leaks at the rate of the burst values: over any time
/// it takes what leaks in it, and once its depth.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// IP and UDP header of a datagram.
    overhead: u64,
    /// Bytes in a burst; they leak in one interval.
    burst: u64,
    /// Nanoseconds.
    interval: u64,
    /// Bytes times the interval, so that nothing is rounded. So is the level.
    depth: u64,
    level: u64,
    at: Instant,
}

impl Bucket {
    /// For bursts that count datagrams of `counted` bytes, where up to `largest` may be sent.
    fn new(now: Instant, burst: Burst, counted: u32, largest: u32, overhead: u32) -> Self {
        let pacing = Pacing::of(burst);
        let (packet, largest) = (counted + overhead, largest + overhead);
        let depth = allowance_bytes(&pacing, packet, Duration::ZERO);
        // A burst is one packet at least, however few it counts.
        let single = Pacing::of(Burst { packets: 1, ..burst });
        let depth = depth.max(allowance_bytes(&single, largest, Duration::ZERO));
        // A short packet may end a burst that had room for half of one more.
        let depth = depth + u64::from(largest);
        let interval = nanos(burst.interval);
        Self {
            overhead: u64::from(overhead),
            burst: u64::from(burst.packets.max(1)) * u64::from(packet),
            interval,
            depth: depth.saturating_mul(interval),
            level: 0,
            at: now,
        }
    }

    /// One datagram more; whether it fits.
    fn pour(&mut self, now: Instant, len: usize) -> bool {
        let leaked = nanos(now.since(self.at)).saturating_mul(self.burst);
        let poured = (len as u64 + self.overhead).saturating_mul(self.interval);
        self.at = now;
        self.level = self.level.saturating_sub(leaked).saturating_add(poured);
        self.level <= self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_bursts_and_not_one_packet_more() {
        let burst = Burst { packets: 8, interval: Duration::from_millis(4) };
        let mut bucket = Bucket::new(Instant::EPOCH, burst, 972, 972, 28);
        let pacing = Pacing::of(burst);
        let most = allowance_bytes(&pacing, 1000, Duration::ZERO) / 1000 + 1;
        assert!((0..most).all(|_| bucket.pour(Instant::EPOCH, 972)));
        assert!(!bucket.pour(Instant::EPOCH, 972));
        let later = Instant::EPOCH + Duration::from_millis(9);
        let fit = (0..1000).take_while(|_| bucket.pour(later, 972)).count();
        assert_eq!(fit, 17, "two bursts and a quarter, less the one that did not fit");
    }

    #[test]
    fn an_answer_longer_than_its_cause_is_found() {
        let config = Config::new(Wire::Sealed, Role::Receiver);
        for (bytes, found) in [(36, false), (37, true)] {
            let mut oracle = Oracle::new(Pair([&config, &config]));
            let clear = Clear::read(&[]);
            let to = Side::Active.address();
            oracle.begin_answer(Side::Passive, 36);
            oracle.on_received(Side::Passive, to, &[0; 36]);
            oracle.on_sent(Instant::EPOCH, Side::Passive, to, &vec![0; bytes], &clear, (0, 0));
            oracle.end_answer(Instant::EPOCH);
            assert_eq!(oracle.finding().is_some(), found, "{bytes}");
        }
    }

    #[test]
    fn only_an_address_that_got_the_response_gets_more() {
        let stranger = |n: u8| SocketAddr::from(([203, 0, 113, n], 998));
        let parameters = Parameters {
            uid: 1,
            buffer_bytes: 1024,
            transfer_bytes: None,
            packet_bytes: 1000,
            burst: Burst { packets: 1, interval: Duration::ZERO },
            death_timer: Duration::ZERO,
            checksum: true,
            mode: TransferMode::Write,
            max_outstanding: 1,
            client: String::new(),
        };
        let config = Config::new(Wire::Sealed, Role::Receiver);
        for (to, found) in [(vec![1], false), (vec![1, 2], true), (vec![2], true)] {
            let mut oracle = Oracle::new(Pair([&config, &config]));
            let mut response = vec![0; 100];
            response[2..4].copy_from_slice(&[VERSION, kind::RESPONSE]);
            response[11] = 7;
            let mut said = vec![0, 0, VERSION, kind::CONTROL, 0, 0, 0, 7];
            said.resize(100, 0);
            let send = |oracle: &mut Oracle, to, bytes: &[u8]| {
                let clear = Clear::read(bytes);
                oracle.on_sent(Instant::EPOCH, Side::Passive, to, bytes, &clear, (0, 0));
            };
            for n in to {
                oracle.on_received(Side::Passive, stranger(n), &[0; 100]);
                send(&mut oracle, stranger(n), &response);
            }
            oracle.on_received(Side::Passive, stranger(1), &said);
            oracle.on_opened(Instant::EPOCH, Side::Passive, stranger(1), &parameters, 1024);
            assert_eq!(oracle.finding(), None);
            let mut refusal = vec![0; 1000];
            refusal[2..4].copy_from_slice(&[VERSION, kind::REFUSED]);
            send(&mut oracle, stranger(1), &refusal);
            assert_eq!(oracle.finding().is_some(), found);
        }
    }

    #[test]
    fn clear_headers_are_read_on_both_wires() {
        let mut sealed = vec![0, 1, VERSION, 6, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 77];
        sealed.extend([0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5]);
        let clear = Clear::read(&sealed);
        assert_eq!((clear.number, clear.buffer, clear.index), (Some((9, 77)), Some(3), Some(5)));
        let plain = [9, 9, 2, 7, 0, 24, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 0, 1, 0, 6, 0, 0, 0, 0];
        let clear = Clear::read(&plain);
        assert_eq!((clear.number, clear.buffer, clear.index), (None, Some(4), Some(6)));
        assert_eq!(Clear::read(&[]).kind, 0);
    }
}
