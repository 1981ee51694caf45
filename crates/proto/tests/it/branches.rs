//! Connections that branch from another one (`docs/protocol §4.10`): many requests between two
//! ends that were opened once, on paths that lose, delay, double and repeat what they like.
//!
//! Whatever happens, each request is answered once, with what it asked for, by an end that no
//! other party can make; and recorded packets draw nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::listener::PassiveListener;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Verdict};
use netblt_proto::wire::sealed::{self, PacketType};

const BUFFER: u32 = 1 << 12;
const DELAY: Duration = Duration::from_millis(50);

fn client() -> SocketAddr {
    ([192, 0, 2, 1], 1).into()
}

fn server() -> SocketAddr {
    ([198, 51, 100, 1], 1).into()
}

fn config(role: Role) -> Config {
    Config {
        secret: Some(Secret([7; 32])),
        buffer_bytes: BUFFER,
        table_bytes: 64,
        max_outstanding: 4,
        cipher: Cipher::Aes256Gcm,
        branches: true,
        ..Config::new(Wire::Sealed, role)
    }
}

/// What the path does, of 1,000 packets.
#[derive(Clone, Copy, Default)]
struct Path {
    lost: u64,
    late: u64,
    twice: u64,
}

/// A request, and what it came to.
struct Asking {
    end: Endpoint,
    wanted: usize,
    got: BTreeMap<BufferNumber, Vec<u8>>,
    began: Instant,
    took: Option<Duration>,
    closed: Option<CloseReason>,
}

/// An end at the server that is asked something.
struct Answering {
    end: Endpoint,
    request: Vec<u8>,
    bytes: Option<usize>,
    sent: usize,
    closed: bool,
}

struct Lab {
    now: Instant,
    door: PassiveListener,
    stem: Endpoint,
    stem_closed: Option<CloseReason>,
    asking: Vec<Asking>,
    /// The stem's other end first.
    answering: Vec<Answering>,
    flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    path: Path,
    /// Nothing passes from the first of these until the second.
    dead: (Instant, Instant),
    random: u64,
    sent: u64,
    entropy: u8,
    /// All that went to the server, and how often each kind.
    seen: Vec<Vec<u8>>,
    kinds: BTreeMap<u8, u64>,
}

/// What is answered to a request for so many bytes.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251 + bytes) as u8).collect()
}

impl Lab {
    fn new(path: Path, seed: u64) -> Self {
        let at_door = Config { accept_any_role: true, ..config(Role::Receiver) };
        let now = Instant::EPOCH;
        Self {
            now,
            door: PassiveListener::new(at_door, [2; 32]),
            stem: Endpoint::active(config(Role::Receiver), server(), now, [1; 32]),
            stem_closed: None,
            asking: Vec::new(),
            answering: Vec::new(),
            flying: BTreeMap::new(),
            path,
            dead: (now, now),
            random: 0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0xd134_2543_de82_ef95),
            sent: 0,
            entropy: 9,
            seen: Vec::new(),
            kinds: BTreeMap::new(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Opens the stem.
    fn open(mut self) -> Self {
        let path = std::mem::take(&mut self.path);
        self.run_until(|lab| lab.stem.stats(lab.now).opened_at.is_some());
        self.path = path;
        self
    }

    fn ask(&mut self, wanted: usize) {
        self.entropy += 1;
        let mut end = self
            .stem
            .branch(self.now, config(Role::Receiver), [self.entropy; 32])
            .expect("it is open");
        end.tell(self.now, wanted.to_string().as_bytes());
        (0..4).for_each(|_| end.offer(self.now, Buffer::new(BUFFER as usize + 64)));
        let (began, got) = (self.now, BTreeMap::new());
        self.asking.push(Asking { end, wanted, got, began, took: None, closed: None });
    }

    fn launch(&mut self, to_server: bool, bytes: Vec<u8>) {
        self.sent += 1;
        *self.kinds.entry(bytes[3]).or_default() += 1;
        if to_server {
            self.seen.push(bytes.clone());
        }
        let dead = self.dead.0 <= self.now && self.now < self.dead.1;
        if self.draw(1000) < self.path.lost || dead {
            return;
        }
        let late = if self.draw(1000) < self.path.late { self.draw(200) } else { 0 };
        let due = self.now + DELAY + Duration::from_millis(late);
        if self.draw(1000) < self.path.twice {
            let again = due + Duration::from_millis(self.draw(300));
            self.sent += 1;
            self.flying.insert((again, self.sent), (to_server, bytes.clone()));
        }
        self.sent += 1;
        self.flying.insert((due, self.sent), (to_server, bytes));
    }

    fn transmit(&mut self) {
        let mut batch = Vec::new();
        let mut out = Vec::new();
        let asking = self.asking.iter_mut().map(|asking| &mut asking.end);
        // The stem has its turn first: BRANCH comes before what the branch says.
        for end in std::iter::once(&mut self.stem).chain(asking) {
            while let Some(transmit) = end.poll_transmit(self.now, &mut batch) {
                assert_eq!(transmit.to, server());
                out.extend(batch.chunks(transmit.segment).map(|bytes| (true, bytes.to_vec())));
                batch.clear();
            }
        }
        for Answering { end, .. } in &mut self.answering {
            while let Some(transmit) = end.poll_transmit(self.now, &mut batch) {
                assert_eq!(transmit.to, client(), "no other address gets a packet");
                out.extend(batch.chunks(transmit.segment).map(|bytes| (false, bytes.to_vec())));
                batch.clear();
            }
        }
        while self.door.poll_transmit(&mut batch).is_some() {
            out.push((false, std::mem::take(&mut batch)));
        }
        for (to_server, bytes) in out {
            self.launch(to_server, bytes);
        }
    }

    fn arrive(&mut self, to_server: bool, from: SocketAddr, mut bytes: Vec<u8>) {
        let now = self.now;
        let unknown = sealed::parse_unknown(&bytes).ok().map(|(id, _)| id);
        let id = sealed::destination(&bytes).or(unknown);
        let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
        if !to_server {
            let own =
                |end: &Endpoint| id.is_some() && end.connection_ids().any(|of| Some(of) == id);
            let Some(asking) = self.asking.iter_mut().find(|asking| own(&asking.end)) else {
                return self.stem.handle_datagram(now, datagram);
            };
            asking.end.handle_datagram(now, datagram);
            if asking.end.stats(now).datagrams_received > 0 {
                self.stem.confirm_branch(id.expect("it has one"));
            }
            return;
        }
        let known = self
            .answering
            .iter_mut()
            .find(|of| !of.closed && of.end.connection_ids().any(|of| Some(of) == id));
        match known {
            Some(of) => of.end.handle_datagram(now, datagram),
            None => {
                let opened = self.door.handle_datagram(now, datagram);
                self.answering.extend(opened.map(Answering::new));
            }
        }
        let ids: BTreeSet<u32> =
            self.answering.iter().flat_map(|of| of.end.connection_ids()).collect();
        let mut new = Vec::new();
        for of in &mut self.answering {
            let (mut entropy, base) = (0, self.sent);
            while let Some(end) = self.door.take_branch(
                now,
                &mut of.end,
                || {
                    entropy += 1;
                    let mut draw = [entropy; 32];
                    draw[..8].copy_from_slice(&base.to_be_bytes());
                    Some(draw)
                },
                |id| ids.contains(&id),
            ) {
                assert_eq!(end.stem(), of.end.connection_id());
                new.push(Answering::new(end));
            }
        }
        self.answering.extend(new);
    }

    fn serve(&mut self) {
        let now = self.now;
        while let Some(event) = self.stem.poll_event() {
            if let Event::Closed(reason) = event {
                for asking in &mut self.asking {
                    asking.end.on_stem_closed(now, &reason);
                }
                self.stem_closed = Some(reason);
            }
        }
        for asking in &mut self.asking {
            while let Some(event) = asking.end.poll_event() {
                match event {
                    Event::Filled(number, buffer) => {
                        let before = asking.got.insert(number, buffer.filled().to_vec());
                        assert!(before.is_none(), "{number:?} came twice");
                        asking.end.offer(now, buffer);
                    }
                    Event::Complete(_) => {
                        let all: Vec<u8> = asking.got.values().flatten().copied().collect();
                        assert_eq!(all, content(asking.wanted));
                        asking.took = Some(now.since(asking.began));
                        let (bytes, digest) = (asking.wanted as u64, [3; 32]);
                        let reason = String::new();
                        asking.end.judge(now, Verdict { verified: true, bytes, digest, reason });
                    }
                    Event::Closed(reason) => asking.closed = Some(reason),
                    _ => {}
                }
            }
        }
        self.answering.iter_mut().for_each(|of| of.serve(now));
    }

    /// One thing after the other until something is so.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            self.serve();
            self.transmit();
            if done(self) {
                return;
            }
            let ends = std::iter::once(&self.stem)
                .chain(self.asking.iter().map(|asking| &asking.end))
                .chain(self.answering.iter().map(|of| &of.end));
            let timers = ends.filter_map(|end| end.next_timeout(self.now)).min();
            let first = self.flying.first_key_value().map(|((at, _), _)| *at);
            let next = [timers, first].into_iter().flatten().min();
            self.now = self.now.max(next.expect("something is to come"));
            while let Some(entry) = self.flying.first_entry().filter(|of| of.key().0 <= self.now) {
                let (to_server, bytes) = entry.remove();
                let from = if to_server { client() } else { server() };
                self.arrive(to_server, from, bytes);
            }
            let now = self.now;
            self.stem.handle_timeout(now);
            self.asking.iter_mut().for_each(|asking| asking.end.handle_timeout(now));
            self.answering.iter_mut().for_each(|of| of.end.handle_timeout(now));
        }
        panic!("nothing comes of it by {:?}", self.now);
    }

    fn finish(&mut self) {
        self.run_until(|lab| lab.asking.iter().all(|asking| asking.closed.is_some()));
        for asking in &self.asking {
            assert_eq!(asking.closed, Some(CloseReason::Finished));
        }
    }

    fn count(&self, kind: PacketType) -> u64 {
        self.kinds.get(&(kind as u8)).copied().unwrap_or_default()
    }
}

impl Answering {
    fn new(end: Endpoint) -> Self {
        Self { end, request: Vec::new(), bytes: None, sent: 0, closed: false }
    }

    fn serve(&mut self, now: Instant) {
        while let Some(event) = self.end.poll_event() {
            match event {
                Event::PeerHas { bytes, last, place } => {
                    assert!(last && place == 1, "requests are short");
                    self.request.extend(bytes);
                    let text = String::from_utf8(self.request.clone()).expect("a number");
                    let bytes = text.parse().expect("a number");
                    assert_eq!(self.bytes.replace(bytes), None, "it is asked once");
                    if bytes == 0 {
                        self.finish(now, 0);
                    }
                }
                Event::Wanted(number) => self.supply(now, number),
                Event::Closed(_) => self.closed = true,
                _ => {}
            }
        }
    }

    fn supply(&mut self, now: Instant, number: BufferNumber) {
        let Some(bytes) = self.bytes.filter(|bytes| self.sent < *bytes) else { return };
        let all = content(bytes);
        let part = &all[self.sent..bytes.min(self.sent + BUFFER as usize)];
        let mut buffer = Buffer::new(BUFFER as usize + 64);
        buffer.space()[..part.len()].copy_from_slice(part);
        buffer.set_len(part.len());
        self.sent += part.len();
        let last = self.sent == bytes;
        self.end.supply(now, number, buffer, last);
        if last {
            self.finish(now, bytes);
        }
    }

    fn finish(&mut self, now: Instant, bytes: usize) {
        let buffers = bytes.div_ceil(BUFFER as usize) as u64;
        self.end.end(now, End { buffers, bytes: bytes as u64, digest: [3; 32] });
    }
}

#[test]
fn a_request_takes_one_round_trip_and_a_hundred_at_once_no_more() {
    let mut lab = Lab::new(Path::default(), 1).open();
    lab.ask(100);
    lab.finish();
    assert_eq!(lab.asking[0].took, Some(2 * DELAY));
    for _ in 0..2 {
        (0..32).for_each(|n| lab.ask(n * 10 + 1));
        lab.finish();
    }
    assert!(lab.asking.iter().all(|asking| asking.took == Some(2 * DELAY)));
    assert_eq!(lab.count(PacketType::Branch), 65, "nothing was lost, and nothing said again");
    assert!(lab.answering.iter().skip(1).all(|of| of.closed), "nothing is left of them");
}

#[test]
fn replayed_packets_of_branches_draw_nothing() {
    let mut lab = Lab::new(Path::default(), 1).open();
    (0..4).for_each(|_| lab.ask(10_000));
    lab.finish();
    let (ends, elsewhere) = (lab.answering.len(), ([203, 0, 113, 9], 9).into());
    let (open, recorded) = (PacketType::Open as u8, lab.seen.clone());
    lab.sent += 1_000_000;
    for bytes in recorded.iter().filter(|bytes| bytes[3] != open) {
        lab.arrive(true, elsewhere, bytes.clone());
        assert_eq!(lab.answering.len(), ends);
        let mut batch = Vec::new();
        for of in &mut lab.answering {
            assert!(of.end.poll_transmit(lab.now, &mut batch).is_none(), "it said something");
        }
        // An end that has gone is as unknown as any other.
        while lab.door.poll_transmit(&mut batch).is_some() {
            assert_eq!(sealed::kind_of(&batch), Some(PacketType::Unknown));
            assert!(batch.len() < bytes.len());
            batch.clear();
        }
    }
}

/// `NETBLT_BRANCH_SEEDS` for more of them; all but the first hundred with outages of up to 20 s.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has an environment, the core none")]
fn every_request_is_answered_once_whatever_the_path_does() {
    let seeds = std::env::var("NETBLT_BRANCH_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(120) {
        let path = Path { lost: seed % 7 * 40, late: seed % 5 * 60, twice: seed % 3 * 100 };
        let mut lab = Lab::new(path, seed).open();
        for round in 0..3 {
            for _ in 0..1 + lab.draw(8) {
                let wanted = lab.draw(30_000) as usize;
                lab.ask(if round == 1 { wanted % 100 } else { wanted });
            }
            if seed >= 100 {
                let from = lab.now + Duration::from_millis(lab.draw(300));
                let longest = [300, 3000, 20_000][lab.draw(3) as usize];
                lab.dead = (from, from + Duration::from_millis(lab.draw(longest)));
            }
            let until = lab.now + Duration::from_millis(lab.draw(500));
            lab.run_until(|lab| lab.now >= until);
        }
        lab.finish();
        // Of each request at most one end was made, beside the stem's.
        assert!(lab.answering.len() <= lab.asking.len() + 1, "seed {seed}");
    }
}

/// The branch lives for a minute, and BRANCH is said as long.
#[test]
fn a_request_outlives_an_outage() {
    for (seed, outage) in [(1, 20), (2, 35), (3, 50)] {
        let path = Path { lost: 200, ..Path::default() };
        let mut lab = Lab::new(path, seed).open();
        lab.dead = (lab.now, lab.now + Duration::from_secs(outage));
        (0..4).for_each(|_| lab.ask(10_000));
        lab.finish();
        assert_eq!(lab.answering.len(), 5, "one end for each");
    }
}

#[test]
fn a_closed_stem_opens_no_branch_and_open_branches_go_on() {
    let mut lab = Lab::new(Path::default(), 3).open();
    lab.ask(100_000);
    lab.run_until(|lab| lab.answering.len() > 1);
    lab.stem.quit(lab.now, "that is all");
    assert!(lab.stem.branch(lab.now, config(Role::Receiver), [50; 32]).is_none());
    lab.finish();
    assert_eq!(lab.stem_closed, Some(CloseReason::Quit));
    assert!(lab.answering[0].closed);
    assert!(lab.stem.branch(lab.now, config(Role::Receiver), [51; 32]).is_none());
}

#[test]
fn a_branch_to_a_restarted_host_closes_the_stem() {
    let mut lab = Lab::new(Path::default(), 4).open();
    lab.answering.clear();
    lab.ask(10);
    let asked = lab.now;
    lab.run_until(|lab| lab.stem_closed.is_some());
    assert_eq!(lab.stem_closed, Some(CloseReason::Forgotten));
    // An UNKNOWN shows a branch nothing; the end of its stem does.
    lab.serve();
    assert_eq!(lab.asking[0].closed, Some(CloseReason::Forgotten));
    assert!(lab.now.since(asked) < Duration::from_secs(6), "{:?}", lab.now.since(asked));
}

/// The QUIT of the stem is under way while a BRANCH is: the peer will never know the branch.
#[test]
fn a_branch_unknown_to_the_peer_ends_with_its_stem_and_sends_nothing_more() {
    let mut lab = Lab::new(Path::default(), 7).open();
    lab.answering[0].end.quit(lab.now, "serve: forbidden: it has expired");
    lab.ask(10);
    let asked = lab.now;
    lab.run_until(|lab| lab.stem_closed.is_some());
    lab.serve();
    let why = CloseReason::PeerQuit("serve: forbidden: it has expired".to_owned());
    assert_eq!(lab.asking[0].closed, Some(why));
    assert!(lab.now.since(asked) < Duration::from_secs(2), "{:?}", lab.now.since(asked));
    let end = &mut lab.asking[0].end;
    assert_eq!(end.next_timeout(lab.now), None);
    assert!(end.poll_transmit(lab.now, &mut Vec::new()).is_none());
}

#[test]
fn a_branch_whose_client_has_gone_quits_unless_it_has_everything() {
    let mut lab = Lab::new(Path::default(), 8).open();
    lab.ask(100_000);
    lab.ask(10);
    lab.run_until(|lab| lab.asking[1].took.is_some());
    let asked = lab.now;
    lab.asking.iter_mut().for_each(|asking| asking.end.part(asked, "its client has gone"));
    lab.run_until(|lab| lab.asking.iter().all(|asking| asking.closed.is_some()));
    let ends: Vec<_> = lab.asking.iter().map(|asking| asking.closed.clone()).collect();
    assert_eq!(ends, [Some(CloseReason::Quit), Some(CloseReason::Finished)]);
    assert!(lab.now.since(asked) < Duration::from_secs(3), "{:?}", lab.now.since(asked));
}

/// A BRANCH that wants more than its stem has, and one where there are to be none.
#[test]
fn no_branch_exceeds_its_stem_and_none_opens_where_none_is_allowed() {
    let mut lab = Lab::new(Path::default(), 5).open();
    let wide = Config { buffer_bytes: 1 << 20, max_outstanding: 64, ..config(Role::Receiver) };
    let end = lab.stem.branch(lab.now, wide, [40; 32]).expect("it is open");
    let event = { end }.poll_event();
    let Some(Event::Opened { parameters, image_bytes, .. }) = event else {
        panic!("it is open at once: {event:?}");
    };
    assert_eq!((parameters.buffer_bytes, parameters.max_outstanding), (BUFFER, 4));
    assert_eq!(image_bytes, BUFFER + 64);

    let mut plain = Lab::new(Path::default(), 6);
    plain.stem = Endpoint::active(
        Config { branches: false, ..config(Role::Receiver) },
        server(),
        plain.now,
        [1; 32],
    );
    let mut plain = plain.open();
    assert!(plain.stem.branch(plain.now, config(Role::Receiver), [41; 32]).is_none());
    // The stem itself is never a branch, nor a branch a stem.
    assert_eq!(plain.stem.stem(), None);
    lab.ask(10);
    let branch = &mut lab.asking[0].end;
    assert!(branch.branch(lab.now, config(Role::Receiver), [42; 32]).is_none());
}
