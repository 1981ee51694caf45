//! A path between two TUN devices: what one host sends, the other receives as from a bad network.
//!
//! Each direction has a thread of its own, which goes round in this order:
//!
//! 1. packets whose time has come go into the far device, neighbours of one flow together;
//! 2. the counters are published;
//! 3. wait until the near device is readable or the next packet is due;
//! 4. what has come goes into the path, each packet of a large segment by itself.
//!
//! The devices hand over what the host's TCP or UDP gives to a network card that cuts segments
//! itself (TSO, USO). It is cut here, with checksums, before anything happens to it, so the path
//! sees what a wire would. On the far side only packets are put together that a card would put
//! together (GRO): in order, of one flow, due at one time, and none with bits flipped.

mod gro;
mod inbox;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use netblt_path::{Counters, LinkOptions, Path, Payload};
use netblt_proto::api::Ecn;
use netblt_proto::time::Instant as VirtualInstant;
use netblt_relay::capture::{Capture, End, Way};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use tun_rs::SyncDevice;

use crate::packet::{IpHeader, mark_ce};
use gro::Gather;
use inbox::Inbox;

/// IP bytes in each direction beyond which no more is taken in; as a relay's.
pub const MAX_INSIDE_BYTES: u64 = 1 << 30;
/// A stop is noticed at least this often.
const LOOK_ROUND: Duration = Duration::from_millis(50);
/// Counters are published at most this often.
const PUBLISH: Duration = Duration::from_millis(1);
/// The most that a packet waits for company while many come: each wake-up costs as much as a write,
/// and network cards wait as long before they interrupt. A lone packet goes out when it is due.
const GRACE_MAX: Duration = Duration::from_micros(400);
/// So many packets between two publications are many.
const BUSY: u64 = 2;
/// Later than this is late: some scheduling delay is everybody's lot.
const LATE: Duration = Duration::from_millis(1);
/// Reads before the packets due have their turn.
const ROUNDS: usize = 16;
/// Buffers kept for packets to come.
const POOLED: usize = 4096;

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionReport {
    /// The path's books.
    pub counters: Counters,
    /// How long a packet would wait for the link now.
    pub queue_time: Duration,
    /// Packets not taken in: no IP, or [`MAX_INSIDE_BYTES`] inside.
    pub refused: u64,
    /// Multicast of one link (neighbour discovery, IGMP), which no router forwards.
    pub link_local: u64,
    /// Packets delivered by the path which the far device would not take.
    pub unsent: u64,
    /// Packets that went out more than a millisecond late.
    pub late: u64,
    /// The most that a packet went out late.
    pub late_max: Duration,
}

/// Counts of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunReport {
    /// From host a to host b.
    pub up: DirectionReport,
    /// From host b to host a.
    pub down: DirectionReport,
}

/// A packet inside.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    /// Bytes of its IP header, whose bits are never flipped.
    header: usize,
    /// Its checksums are right: the host or this emulator made them.
    summed: bool,
    flipped: bool,
}

impl Payload for Packet {
    fn len_bytes(&self) -> usize {
        self.bytes.len() - self.header
    }

    /// The first flip counts. The checksums of TCP, UDP and ICMP find one wrong bit always, but two
    /// can cancel out, and then the path would have forged data.
    fn flip_bit(&mut self, bit: usize) {
        if !self.flipped {
            self.bytes.flip_bit(8 * self.header + bit);
            self.flipped = true;
            self.summed = false;
        }
    }
}

/// A path at work.
#[derive(Debug)]
pub struct Tun {
    stop: Arc<AtomicBool>,
    threads: [thread::JoinHandle<io::Result<()>>; 2],
    reports: [Arc<Mutex<DirectionReport>>; 2],
}

impl Tun {
    /// Joins the devices of hosts a and b. Schedules count from now; faults are drawn from `seed`.
    pub fn start(
        (a, b): (SyncDevice, SyncDevice),
        (up, down): (LinkOptions, LinkOptions),
        seed: u64,
        capture: Option<Arc<Capture>>,
    ) -> io::Result<Self> {
        let (a, b) = (Arc::new(a), Arc::new(b));
        let stop = Arc::new(AtomicBool::new(false));
        let reports: [Arc<Mutex<DirectionReport>>; 2] = Default::default();
        let epoch = Instant::now();
        let spawn = |name: &str, from: &Arc<SyncDevice>, to: &Arc<SyncDevice>, options, ends| {
            let upward = name == "path/up";
            let direction = Direction {
                gather: Gather::new(to.udp_gso()),
                from: Arc::clone(from),
                to: Arc::clone(to),
                path: Path::new(options, seed, name),
                ends,
                epoch,
                inbox: Inbox::new(),
                pool: Vec::new(),
                report: DirectionReport::default(),
                shared: Arc::clone(&reports[usize::from(!upward)]),
                published: epoch,
                busy: false,
                capture: capture.clone(),
            };
            let stop = Arc::clone(&stop);
            thread::Builder::new().name(name.to_owned()).spawn(move || direction.run(&stop))
        };
        let threads = [
            spawn("path/up", &a, &b, up, (End::A, End::B))?,
            spawn("path/down", &b, &a, down, (End::B, End::A))?,
        ];
        Ok(Self { stop, threads, reports })
    }

    /// The report so far, a few milliseconds old while packets flow.
    pub fn report(&self) -> TunReport {
        let read = |report: &Mutex<_>| *report.lock().unwrap_or_else(PoisonError::into_inner);
        TunReport { up: read(&self.reports[0]), down: read(&self.reports[1]) }
    }

    /// Whether both directions still work.
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(thread::JoinHandle::is_finished)
    }

    /// Ends it. Fails if a direction had failed before.
    pub fn stop(self) -> io::Result<TunReport> {
        self.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        let Self { threads, reports, .. } = self;
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")));
            result = result.and(ended);
        }
        let read = |report: &Mutex<_>| *report.lock().unwrap_or_else(PoisonError::into_inner);
        result.map(|()| TunReport { up: read(&reports[0]), down: read(&reports[1]) })
    }
}

struct Direction {
    from: Arc<SyncDevice>,
    to: Arc<SyncDevice>,
    path: Path<Packet>,
    ends: (End, End),
    epoch: Instant,
    inbox: Inbox,
    gather: Gather,
    pool: Vec<Vec<u8>>,
    report: DirectionReport,
    shared: Arc<Mutex<DirectionReport>>,
    published: Instant,
    /// Whether many packets went out lately.
    busy: bool,
    capture: Option<Arc<Capture>>,
}

impl Direction {
    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        // Linux wakes a thread up to 50 µs late unless it asks otherwise.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.send_due(now);
            if now.saturating_duration_since(self.published) >= PUBLISH {
                self.publish(now);
            }
            let next = self.path.next().map(|next| next + self.grace());
            let timeout = next.map_or(LOOK_ROUND, |next| next.since(self.time(Instant::now())));
            if self.wait(timeout.min(LOOK_ROUND))? {
                self.receive()?;
            }
        }
        self.publish(Instant::now());
        Ok(())
    }

    /// The path's time at `now`.
    fn time(&self, now: Instant) -> VirtualInstant {
        VirtualInstant::EPOCH + now.saturating_duration_since(self.epoch)
    }

    /// How long a packet may wait for company, a small part of what it waits anyway.
    fn grace(&self) -> Duration {
        if self.busy { (self.path.options().delay / 128).min(GRACE_MAX) } else { Duration::ZERO }
    }

    fn send_due(&mut self, now: Instant) {
        let time = self.time(now);
        while let Some(delivery) = self.path.pop(time) {
            let lateness = time.since(delivery.at);
            self.report.late_max = self.report.late_max.max(lateness);
            self.report.late += u64::from(lateness > LATE);
            let Packet { mut bytes, summed, .. } = delivery.payload;
            if delivery.ecn == Some(Ecn::Ce) {
                mark_ce(&mut bytes);
            }
            if let Some(capture) = &self.capture {
                capture.packet(self.ends.1, Way::In, [&bytes, &[]]);
            }
            if !self.gather.join(&bytes, summed) {
                self.flush();
                self.gather.begin(&bytes, summed);
            }
            if self.pool.len() < POOLED {
                bytes.clear();
                self.pool.push(bytes);
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        let Some((packets, bytes)) = self.gather.finish() else { return };
        // A device takes a packet at once or not at all; it never has to be waited for.
        if self.to.send(bytes).is_err() {
            self.report.unsent += packets;
        }
        self.gather.clear();
    }

    fn publish(&mut self, now: Instant) {
        let counters = *self.path.counters();
        let out = counters.delivered.packets - self.report.counters.delivered.packets;
        // After a pause the first few packets are many in a long time, which is not many.
        self.busy = out >= BUSY && now.saturating_duration_since(self.published) < 5 * PUBLISH;
        self.published = now;
        self.report.counters = counters;
        self.report.queue_time = match self.path.queue_time() {
            // A link that stands still: it may do so for any time.
            Duration::MAX => Duration::ZERO,
            time => time,
        };
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.report;
    }

    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let device = self.from.as_fd();
        let mut fds = [PollFd::new(&device, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes in what the near host has sent.
    fn receive(&mut self) -> io::Result<()> {
        let mut inbox = std::mem::take(&mut self.inbox);
        for _ in 0..ROUNDS {
            match inbox.fill(&self.from) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // What the device says of one packet is not the end of it.
                Err(error) if error.raw_os_error().is_none() => {
                    self.report.refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let time = self.time(Instant::now());
            for (bytes, summed) in inbox.packets() {
                self.take(time, bytes, summed);
            }
        }
        self.inbox = inbox;
        Ok(())
    }

    fn take(&mut self, time: VirtualInstant, bytes: &[u8], summed: bool) {
        let header = match IpHeader::parse(bytes) {
            Some(header) if header.link_local_group => {
                self.report.link_local += 1;
                return;
            }
            Some(header) if self.path.counters().inside.bytes <= MAX_INSIDE_BYTES => header,
            _ => {
                self.report.refused += 1;
                return;
            }
        };
        if let Some(capture) = &self.capture {
            capture.packet(self.ends.0, Way::Out, [bytes, &[]]);
        }
        let mut copy = self.pool.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        let packet = Packet { bytes: copy, header: header.len, summed, flipped: false };
        self.path.push(time, header.len as u32, header.ecn(), packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bit_behind_the_ip_header_is_flipped() {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x45;
        let mut packet = Packet { bytes, header: 20, summed: true, flipped: false };
        assert_eq!(packet.len_bytes(), 20);
        packet.flip_bit(0);
        packet.flip_bit(159);
        assert_eq!((packet.bytes[20], packet.bytes[39], packet.summed), (1, 0, false));
    }
}
