//! A UDP relay that is a bad network, for any UDP program and without privileges: what comes in for
//! its address goes on to a target, and back, each way through a [`netblt_path::Path`].
//!
//! One thread, which goes round in this order:
//!
//! 1. datagrams whose time has come go out, neighbours of one size together (GSO);
//! 2. the counters are published, clients long silent are forgotten;
//! 3. wait until a socket is readable or the next datagram is due, and a little in any case while
//!    many come;
//! 4. what has come goes into the paths, each datagram of a batch (GRO) by itself.
//!
//! All clients share the two paths, as they would share a cable. Nothing that a client, the target
//! or the network between does ends a relay, only its owner.

#![cfg(unix)]
#![forbid(unsafe_code)]

pub mod capture;
pub mod checksum;
mod clients;
mod outgoing;
mod socket;
mod wait;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use netblt_path::{Counters, LinkOptions, Path, Payload};
use netblt_proto::api::Ecn;
use netblt_proto::time::{Instant as VirtualInstant, earliest};
use quinn_udp::{EcnCodepoint, RecvMeta};
use serde::Serialize;

use crate::capture::{Capture, End, Way};
use clients::{ClientId, Clients};
use outgoing::{Batch, Pool};
use socket::{ReceiveBatch, Socket};
use wait::Waiter;

/// More clients than this at a time are refused: each costs a socket.
const MAX_CLIENTS: usize = 1024;
/// A client from which and for which nothing came for this long is forgotten.
const IDLE_LIMIT: Duration = Duration::from_secs(300);
/// IP bytes in each direction beyond which a relay takes no more: a slip in a scenario (an hour's
/// delay, an unlimited queue behind an outage) must not eat the machine's memory. The fattest path
/// anyone has asked for, 10 Gbit/s over 300 ms with a queue as long, is 750 MB.
pub const MAX_INSIDE_BYTES: u64 = 1 << 30;

/// A stop is noticed at least this often.
const LOOK_ROUND: Duration = Duration::from_millis(50);
/// Counters are published at most this often.
const PUBLISH: Duration = Duration::from_millis(1);
/// While many come, a datagram may wait this long for company, and a small part of the path's delay
/// at most: to wake up for each costs more than to carry it.
const GRACE_MAX: Duration = Duration::from_micros(200);
/// More datagrams than this between two publications are many.
const BUSY: u64 = 4;
/// Later than this is late: some scheduling delay is everybody's lot.
const LATE: Duration = Duration::from_millis(1);
/// Batches read from one socket before the others and the datagrams due have their turn.
const ROUNDS: usize = 4;
/// The key under which the listening socket is waited for; clients have small ones.
const LISTENER: u64 = u64::MAX;

/// Counts of a relay since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayReport {
    /// From clients to the target.
    pub up: Counters,
    /// From the target to clients.
    pub down: Counters,
    /// How long a datagram towards the target would wait for the link now.
    pub up_queue_time: Duration,
    /// How long a datagram towards a client would wait for the link now.
    pub down_queue_time: Duration,
    /// Clients seen in all.
    pub clients: u64,
    /// Datagrams not taken in: too many clients, or [`MAX_INSIDE_BYTES`] inside.
    pub refused: u64,
    /// Datagrams delivered by the path which the system would not send.
    pub unsent: u64,
    /// Datagrams that left more than a millisecond late. If they are many, the machine is too slow
    /// or too busy for this path, and the measurement is not of the path.
    pub late: u64,
    /// The most that a datagram went out late.
    pub late_max: Duration,
}

/// A live view of a relay's report, for other threads.
#[derive(Clone, Debug, Default)]
pub struct RelayCounters(Arc<Mutex<RelayReport>>);

impl RelayCounters {
    /// The report so far, at most a few milliseconds old while datagrams flow.
    pub fn read(&self) -> RelayReport {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, report: RelayReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// A datagram inside.
#[derive(Clone, Debug)]
struct Parcel {
    client: ClientId,
    /// The link model knows one ECN-capable codepoint; this stores the other.
    ect1: bool,
    bytes: Vec<u8>,
}

impl Payload for Parcel {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        self.bytes.flip_bit(bit);
    }
}

/// A relay; see the module's description.
pub struct Relay {
    listener: Socket,
    local: SocketAddr,
    target: SocketAddr,
    waiter: Waiter,
    clients: Clients,
    up: Path<Parcel>,
    down: Path<Parcel>,
    /// The paths' beginning of time: the first datagram, so that schedules count from there.
    epoch: Option<Instant>,
    inbox: ReceiveBatch,
    pool: Pool,
    batch: Batch,
    report: RelayReport,
    counters: RelayCounters,
    published: Option<Instant>,
    /// Whether many datagrams went out lately.
    busy: bool,
    capture: Option<Arc<Capture>>,
}

impl Relay {
    /// A relay from `listen` (port 0: any) to `target`. Datagrams for it wait in the socket until
    /// [`Relay::run`]. The schedules of `up` (towards the target) and `down` count from the first
    /// datagram. The faults of both are drawn from `seed`.
    pub fn bind(
        listen: SocketAddr,
        target: SocketAddr,
        up: LinkOptions,
        down: LinkOptions,
        seed: u64,
    ) -> io::Result<Self> {
        let listener = Socket::bind(listen)?;
        let local = listener.local_addr()?;
        let mut waiter = Waiter::new()?;
        waiter.add(&listener, LISTENER)?;
        Ok(Self {
            listener,
            local,
            target,
            waiter,
            clients: Clients::new(local, target),
            up: Path::new(up, seed, "path/up"),
            down: Path::new(down, seed, "path/down"),
            epoch: None,
            inbox: ReceiveBatch::new(),
            pool: Pool::default(),
            batch: Batch::default(),
            report: RelayReport::default(),
            counters: RelayCounters::default(),
            published: None,
            busy: false,
            capture: None,
        })
    }

    /// Writes incoming and outgoing datagrams into a capture as well. They have the addresses of
    /// their client and the target there, as if nothing were between them.
    pub fn capture(&mut self, capture: Arc<Capture>) {
        self.capture = Some(capture);
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// A live view of the report.
    pub fn counters(&self) -> RelayCounters {
        self.counters.clone()
    }

    /// Relays until `stop` is set, which is noticed within 50 ms. Fails only when the system will
    /// not let it wait or listen any more.
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<RelayReport> {
        let mut ready = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.send_due(now);
            self.keep_house(now);
            let next = earliest([self.up.next(), self.down.next()]);
            let timeout = next.map_or(LOOK_ROUND, |next| self.until(next).min(LOOK_ROUND));
            let grace = self.grace();
            if !grace.is_zero() {
                thread::sleep(grace);
            }
            self.waiter.wait(timeout.saturating_sub(grace), &mut ready)?;
            for &key in &ready {
                self.receive(key)?;
            }
        }
        self.collect();
        self.counters.publish(self.report);
        Ok(self.report)
    }

    /// How long to gather incoming and due datagrams.
    fn grace(&self) -> Duration {
        if !self.busy {
            return Duration::ZERO;
        }
        let delay = self.up.options().delay.min(self.down.options().delay);
        (delay / 128).min(GRACE_MAX)
    }

    /// The paths' time at `now`.
    fn virtual_time(&self, now: Instant) -> VirtualInstant {
        let passed =
            self.epoch.map_or(Duration::ZERO, |epoch| now.saturating_duration_since(epoch));
        VirtualInstant::EPOCH + passed
    }

    fn until(&self, next: VirtualInstant) -> Duration {
        next.since(self.virtual_time(Instant::now()))
    }

    /// Sends the datagrams that have arrived at the far ends of both paths.
    fn send_due(&mut self, now: Instant) {
        let time = self.virtual_time(now);
        for upward in [true, false] {
            loop {
                let path = if upward { &mut self.up } else { &mut self.down };
                let Some(delivery) = path.pop(time) else { break };
                let lateness = time.since(delivery.at);
                self.report.late_max = self.report.late_max.max(lateness);
                self.report.late += u64::from(lateness > LATE);
                let Parcel { client, ect1, bytes } = delivery.payload;
                let ecn = codepoint(delivery.ecn, ect1);
                if let (Some(capture), Some(found)) =
                    (&self.capture, self.clients.find(client, now))
                {
                    record(capture, Way::In, upward, found.address(), self.target, &bytes);
                }
                if !self.batch.takes(client, ecn, bytes.len()) {
                    self.send_batch(now, upward);
                }
                self.batch.add(client, ecn, &bytes);
                self.pool.put_back(bytes);
            }
            self.send_batch(now, upward);
        }
    }

    fn send_batch(&mut self, now: Instant, upward: bool) {
        let Some(client) = self.batch.client() else { return };
        let unsent = match self.clients.find(client, now) {
            Some(client) if upward => self.batch.send(client.towards(self.target)),
            Some(client) => self.batch.send(client.back_from(&self.listener)),
            None => {
                let datagrams = self.batch.datagrams();
                self.batch.clear();
                datagrams
            }
        };
        self.report.unsent += unsent as u64;
    }

    fn keep_house(&mut self, now: Instant) {
        if self.published.is_some_and(|last| now.saturating_duration_since(last) < PUBLISH) {
            return;
        }
        let out =
            |report: &RelayReport| report.up.delivered.packets + report.down.delivered.packets;
        let before = out(&self.report);
        self.collect();
        // After a pause the first few datagrams are many in a long time, which is not many.
        let lately = self.published.is_some_and(|last| now - last < 5 * PUBLISH);
        self.busy = lately && out(&self.report) - before >= BUSY;
        self.published = Some(now);
        self.counters.publish(self.report);
        self.clients.forget_idle(now, &mut self.waiter);
    }

    fn collect(&mut self) {
        self.report.up = *self.up.counters();
        self.report.down = *self.down.counters();
        // A link that stands still makes this "for ever", which is no information.
        let known = |time| if time == Duration::MAX { Duration::ZERO } else { time };
        self.report.up_queue_time = known(self.up.queue_time());
        self.report.down_queue_time = known(self.down.queue_time());
    }

    /// Takes in the datagrams of one socket.
    fn receive(&mut self, key: u64) -> io::Result<()> {
        let upward = key == LISTENER;
        let mut inbox = std::mem::take(&mut self.inbox);
        for _ in 0..ROUNDS {
            let socket = match key {
                LISTENER => Some(&self.listener),
                key => self.clients.socket(key),
            };
            // A client may have been forgotten while it was on the list.
            let Some(socket) = socket else { break };
            let full = match inbox.fill(socket) {
                Ok(full) => full,
                Err(error) if passing(&error) => break,
                // A broken client's socket is silent until it is forgotten; the listener is all.
                Err(error) if upward => return Err(error),
                Err(_) => break,
            };
            let now = Instant::now();
            self.epoch.get_or_insert(now);
            for (meta, bytes) in inbox.batches() {
                if upward {
                    self.enqueue(now, meta, bytes);
                } else if meta.addr == self.clients.target() {
                    self.take_down(now, key, meta, bytes);
                }
            }
            if !full {
                break;
            }
        }
        self.inbox = inbox;
        Ok(())
    }

    fn enqueue(&mut self, now: Instant, meta: &RecvMeta, bytes: &[u8]) {
        let (id, overhead) = match self.clients.admit(meta, now, &mut self.waiter) {
            Some(admitted) => admitted,
            None => {
                self.report.refused += bytes.len().div_ceil(meta.stride.max(1)).max(1) as u64;
                return;
            }
        };
        self.report.clients = self.clients.seen();
        self.capture_batch(true, meta.addr, meta, bytes);
        let time = self.virtual_time(now);
        let refused = push(&mut self.up, &mut self.pool, time, id, overhead, meta, bytes);
        self.report.refused += refused;
    }

    fn take_down(&mut self, now: Instant, key: u64, meta: &RecvMeta, bytes: &[u8]) {
        let Some((id, overhead)) = self.clients.of_socket(key, now) else { return };
        if let Some(client) = self.clients.find(id, now).map(|client| client.address()) {
            self.capture_batch(false, client, meta, bytes);
        }
        let time = self.virtual_time(now);
        let refused = push(&mut self.down, &mut self.pool, time, id, overhead, meta, bytes);
        self.report.refused += refused;
    }

    fn capture_batch(&self, upward: bool, client: SocketAddr, meta: &RecvMeta, batch: &[u8]) {
        let Some(capture) = &self.capture else { return };
        for datagram in batch.chunks(meta.stride.max(1)) {
            record(capture, Way::Out, upward, client, self.target, datagram);
        }
    }
}

/// Captures a datagram as its sender sent it or as the other end receives it.
fn record(
    capture: &Capture,
    way: Way,
    upward: bool,
    client: SocketAddr,
    target: SocketAddr,
    datagram: &[u8],
) {
    let end = if upward == (way == Way::Out) { End::A } else { End::B };
    let addresses = if upward { (client, target) } else { (target, client) };
    capture.datagram(end, way, addresses, datagram);
}

/// Puts every datagram of a batch into a path by itself; how many were refused.
fn push(
    path: &mut Path<Parcel>,
    pool: &mut Pool,
    time: VirtualInstant,
    client: ClientId,
    overhead_bytes: u32,
    meta: &RecvMeta,
    batch: &[u8],
) -> u64 {
    let ect1 = meta.ecn == Some(EcnCodepoint::Ect1);
    let ecn = match meta.ecn {
        None => None,
        Some(EcnCodepoint::Ce) => Some(Ecn::Ce),
        Some(EcnCodepoint::Ect0 | EcnCodepoint::Ect1) => Some(Ecn::Ect0),
    };
    let mut refused = 0;
    let mut take = |datagram: &[u8]| {
        if path.counters().inside.bytes > MAX_INSIDE_BYTES {
            refused += 1;
            return;
        }
        let parcel = Parcel { client, ect1, bytes: pool.copy(datagram) };
        path.push(time, overhead_bytes, ecn, parcel);
    };
    if batch.is_empty() {
        take(batch);
    }
    batch.chunks(meta.stride.max(1)).for_each(take);
    refused
}

fn codepoint(ecn: Option<Ecn>, ect1: bool) -> Option<EcnCodepoint> {
    match ecn? {
        Ecn::Ce => Some(EcnCodepoint::Ce),
        Ecn::Ect0 if ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
    }
}

/// Whether an error concerns the network rather than the socket: no datagram there, or an ICMP
/// message about an earlier one.
fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, WouldBlock,
    };
    matches!(
        error.kind(),
        WouldBlock
            | Interrupted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
    )
}
