//! A host of 1987: an endpoint and its client from the simulator, behind a processor that does one
//! thing at a time and a network interface with perhaps a single buffer.
//!
//! The processor takes up work in this order; only a single-buffer interface that has to be emptied
//! interrupts it:
//!
//! 1. packets that the machine has to send: a burst is sent as a whole (RFC 1030 §5: incoming
//!    control messages are processed between bursts);
//! 2. packets received, all of them before any is answered;
//! 3. the machine's timers and its client.
//!
//! The burst process is the host's: it requests packets from the machine when a burst interval has
//! passed since the last burst actually began (RFC 1030 §3), and its timer is late by up to
//! [`Costs::timer`]. Two hosts with exact timers would keep their initial phase for ever.

use std::collections::VecDeque;
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_proto::api::{Datagram, RecvMeta};
use netblt_proto::config::Policy;
use netblt_proto::rate::proposed_burst;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_sim::check::{Clear, Oracle, kind};
use netblt_sim::host::{Host, HostOptions, Transfer};
use netblt_sim::side::Side;

/// IP header: NETBLT ran on IP itself, protocol 30.
pub(crate) const IP_BYTES: u32 = 20;
/// Limit on rounds between machine and client at one instant; more is a livelock.
const MAX_ROUNDS: u32 = 1000;

/// Processing costs of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    /// A packet sent, whatever its size.
    pub(crate) send: Duration,
    /// Each byte of it: copies and checksums, in nanoseconds.
    pub(crate) send_byte_ns: u64,
    /// A packet received, whatever its size.
    pub(crate) receive: Duration,
    /// Each byte of it, in nanoseconds.
    pub(crate) receive_byte_ns: u64,
    /// A control message built: the receiver of data bears the timers and most of the work for
    /// messages (RFC 1030 §4).
    pub(crate) made: Duration,
    /// A control message processed for the first time; repeated ones cost almost nothing (RFC 1030
    /// §7).
    pub(crate) handling: Duration,
    /// A burst: the switch to the sending process.
    pub(crate) burst: Duration,
    /// Before a burst, for each buffer that may be outstanding: search of the list for packets to
    /// send (RFC 1030 §4).
    pub(crate) outstanding: Duration,
    /// Maximum lateness of the burst timer, uniformly distributed.
    pub(crate) timer: Duration,
}

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Limit on packets that wait for the processor.
    pub(crate) buffers: usize,
    /// A single buffer serves both directions: the interface is deaf from when a packet begins to
    /// be made until that has left, and until the driver has emptied and enabled it again. An
    /// interrupt copies its contents into memory (RFC 1030 §4: "copy it from the interface into a
    /// packet buffer and finally copy the packet into the correct NETBLT buffer").
    pub(crate) deaf: bool,
    /// Copying a byte between such an interface and memory, in nanoseconds.
    pub(crate) copy_byte_ns: u64,
    /// Time from the end of sending until it can receive again.
    pub(crate) turn: Duration,
    /// Time from having been emptied until it can receive again (RFC 1030 §7).
    pub(crate) enable: Duration,
    /// A byte on the network, in nanoseconds.
    pub(crate) wire_byte_ns: u64,
}

/// Hardware of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) costs: Costs,
    pub(crate) interface: Interface,
}

/// Configuration of a station.
#[derive(Clone, Debug)]
pub(crate) struct StationOptions {
    pub(crate) host: HostOptions,
    pub(crate) machine: Machine,
}

#[derive(Debug)]
enum Job {
    Send(Vec<u8>),
    /// The part of its cost that the interrupt has paid already.
    Receive(Vec<u8>, Duration),
    Burst,
}

/// A DATA packet sent, for the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When its last bit left the host.
    pub at: Instant,
    /// The buffer that it belongs to.
    pub buffer: u64,
    /// Its place in the buffer.
    pub index: u32,
    /// Whether it is a retransmission.
    pub again: bool,
}

/// The first pass of the data through a sending host, from its first burst to the beginning of its
/// last: RFC 1030 §3's steady state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steady {
    pub(crate) from: Option<Instant>,
    pub(crate) until: Instant,
    pub(crate) bytes: u64,
    /// When the newest burst began, and the bytes of the first pass before it.
    burst: (Instant, u64),
    passed: u64,
    furthest: (u64, u32),
    /// Every packet of data, if recorded.
    pub(crate) departures: Option<Vec<Departure>>,
    /// Every control packet, if recorded.
    pub(crate) controls: Option<Vec<Instant>>,
}

/// A host with its costs.
#[derive(Debug)]
pub(crate) struct Station {
    host: Host,
    costs: Costs,
    interface: Interface,
    outstanding: u32,
    burst_packets: u32,
    job: Option<(Instant, Job)>,
    /// From when a deaf interface can receive again.
    enabled: Instant,
    to_send: VecDeque<Vec<u8>>,
    /// With the part of each packet's cost that interrupts have paid.
    waiting: VecDeque<(Vec<u8>, Duration)>,
    /// Data packets sent of the current burst.
    in_burst: u32,
    /// When the burst began.
    burst_began: Option<Instant>,
    interval: Duration,
    /// Lateness of the timer for the next burst.
    late: Duration,
    random: Rng,
    newest_message: u16,
    over: bool,
    /// Data packets that the interface dropped.
    pub(crate) deafened: u64,
    pub(crate) steady: Steady,
}

impl Station {
    pub(crate) fn new(side: Side, options: StationOptions, transfer: Transfer) -> Self {
        let config = &options.host.config;
        let burst = proposed_burst(config);
        // A host that leaves the rate to its machine has no burst process of its own.
        let (interval, packets) = match config.policy {
            Policy::Fixed(_) => (burst.interval, burst.packets),
            _ => (Duration::ZERO, u32::MAX),
        };
        let sends = side == Side::Active;
        Self {
            outstanding: config.max_outstanding,
            burst_packets: packets,
            host: Host::new(side, options.host, transfer),
            costs: options.machine.costs,
            interface: options.machine.interface,
            job: None,
            enabled: Instant::EPOCH,
            to_send: VecDeque::new(),
            waiting: VecDeque::new(),
            in_burst: packets,
            burst_began: None,
            interval,
            late: Duration::ZERO,
            random: Rng::named(transfer.seed, if sends { "sender" } else { "receiver" }),
            newest_message: 0,
            over: false,
            deafened: 0,
            steady: Steady::default(),
        }
    }

    pub(crate) fn start(&mut self, now: Instant, oracle: &mut Oracle) {
        oracle.on_started(self.host.side);
        if self.host.start(now).is_err() {
            oracle.find(now, self.host.side, "a new program's buffers are not its own");
        }
    }

    /// When [`Station::work`] is due next.
    pub(crate) fn next(&self) -> Instant {
        match &self.job {
            Some((ends, _)) => *ends,
            None if !self.waiting.is_empty() => Instant::EPOCH,
            None if self.to_send.is_empty() && self.may_poll(self.host.wake) => self.host.wake,
            None if self.to_send.is_empty() => self.next_burst(),
            None if self.is_burst_over() => self.next_burst(),
            None => Instant::EPOCH,
        }
    }

    /// Whether the machine may send at `at`: to begin a burst, or to fill one up. Packets requested
    /// earlier would not reflect arrivals meanwhile.
    fn may_poll(&self, at: Instant) -> bool {
        let within = self.in_burst > 0 && self.in_burst < self.burst_packets;
        within || self.next_burst() <= at
    }

    /// Whether the next packet to send is the first of a burst.
    fn is_burst_over(&self) -> bool {
        let data = self.to_send.front().is_some_and(|bytes| is_data(bytes));
        data && self.in_burst >= self.burst_packets
    }

    fn next_burst(&self) -> Instant {
        self.burst_began.map_or(Instant::EPOCH, |began| began + self.interval + self.late)
    }

    /// Whether the program has ended and all its packets have left.
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.job.is_none() && self.to_send.is_empty()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.host.report.done
    }

    pub(crate) fn stats(&mut self, now: Instant) -> Stats {
        self.host.stop(now);
        self.host.report.stats.last().cloned().unwrap_or_default()
    }

    /// A packet arrives from the network.
    pub(crate) fn arrive(&mut self, now: Instant, bytes: Vec<u8>) {
        let wire = self.interface.wire_byte_ns * (bytes.len() as u64 + u64::from(IP_BYTES));
        let began = now.before(Duration::from_nanos(wire));
        let sends = matches!(self.job, Some((_, Job::Send(_))));
        let deaf = self.interface.deaf && (sends || self.enabled > began);
        if deaf || self.waiting.len() >= self.interface.buffers || self.over {
            let data = matches!(bytes.get(3), Some(&kind::DATA | &kind::LDATA));
            self.deafened += u64::from(data);
            return;
        }
        let copied =
            if self.interface.deaf { self.interrupt(now, bytes.len()) } else { Duration::ZERO };
        self.waiting.push_back((bytes, copied));
    }

    /// Empties the interface's single buffer into memory, whatever the processor is doing. Returns
    /// the processor time that this took from the current work.
    fn interrupt(&mut self, now: Instant, len: usize) -> Duration {
        let bytes = len as u64 + u64::from(IP_BYTES);
        let copy = Duration::from_nanos(self.interface.copy_byte_ns * bytes);
        self.enabled = now + copy + self.interface.enable;
        let Some((ends, _)) = &mut self.job else { return Duration::ZERO };
        *ends += copy;
        copy
    }

    /// Does all work due at `now`; packets that leave are appended to `out`.
    pub(crate) fn work(&mut self, now: Instant, oracle: &mut Oracle, out: &mut Vec<Vec<u8>>) {
        loop {
            if let Some((ends, job)) = self.job.take() {
                if ends > now {
                    self.job = Some((ends, job));
                    return;
                }
                self.finish(now, job, oracle, out);
            }
            if self.to_send.is_empty() && self.waiting.is_empty() {
                self.think(now, oracle);
            }
            match self.next_job(now) {
                Some(job) => self.begin(now, job),
                None => return,
            }
        }
    }

    fn next_job(&mut self, now: Instant) -> Option<Job> {
        if !self.is_burst_over() {
            let job = self.to_send.pop_front().map(Job::Send);
            return job.or_else(|| self.receive());
        }
        // Between two bursts: arrivals are handled first.
        self.receive().or_else(|| (self.next_burst() <= now).then_some(Job::Burst))
    }

    fn receive(&mut self) -> Option<Job> {
        self.waiting.pop_front().map(|(bytes, copied)| Job::Receive(bytes, copied))
    }

    fn begin(&mut self, now: Instant, job: Job) {
        let costs = self.costs;
        let (bytes, sends, paid) = match &job {
            Job::Send(bytes) => (bytes.as_slice(), true, Duration::ZERO),
            Job::Receive(bytes, copied) => (bytes.as_slice(), false, *copied),
            Job::Burst => {
                // The interval counts from when the packets to send are known.
                let began = now + costs.outstanding * self.outstanding;
                self.burst_began = Some(began);
                let latest = costs.timer.as_nanos() as u64;
                self.late = Duration::from_nanos(self.random.below(latest + 1));
                self.job = Some((began + costs.burst, job));
                return;
            }
        };
        let len = bytes.len() as u64 + u64::from(IP_BYTES);
        let new = new_messages(bytes, &mut self.newest_message);
        let cost = if sends {
            costs.send + Duration::from_nanos(costs.send_byte_ns * len) + costs.made * new
        } else {
            let bytes = Duration::from_nanos(costs.receive_byte_ns * len);
            costs.receive + bytes + costs.handling * new
        };
        self.job = Some((now + cost.saturating_sub(paid), job));
    }

    fn finish(&mut self, now: Instant, job: Job, oracle: &mut Oracle, out: &mut Vec<Vec<u8>>) {
        match job {
            Job::Burst => self.in_burst = 0,
            Job::Send(bytes) => {
                if self.interface.deaf {
                    self.enabled = now + self.interface.turn;
                }
                if is_data(&bytes) {
                    // A host without a burst process sends packet by packet.
                    let begins = self.in_burst == 0 || self.burst_packets == u32::MAX;
                    self.in_burst += 1;
                    self.steady.note(now, &bytes, begins);
                } else if let Some(controls) = &mut self.steady.controls
                    && bytes.get(3) == Some(&kind::CONTROL)
                {
                    controls.push(now);
                }
                out.push(bytes);
            }
            Job::Receive(mut bytes, _) => {
                let from = self.host.side.other().address();
                if let Some(endpoint) = &mut self.host.endpoint {
                    let datagram = Datagram {
                        from,
                        local: None,
                        meta: RecvMeta::default(),
                        bytes: &mut bytes,
                    };
                    endpoint.handle_datagram(now, datagram);
                }
                // The answer is sent after all arrivals are handled: a receiver that is a little
                // slower than its sender answers between bursts.
                if self.waiting.is_empty() {
                    self.think(now, oracle);
                }
            }
        }
    }

    /// Runs the machine's timers and its client until there is something to send or nothing to do.
    fn think(&mut self, now: Instant, oracle: &mut Oracle) {
        for _ in 0..MAX_ROUNDS {
            if self.host.feed(now).is_err() {
                oracle.find(now, self.host.side, "a buffer came out that is still in the machine");
            }
            self.host.fire(now);
            self.events(now, oracle);
            // Events first: the client's next buffer goes into the same packet as the OK (RFC 1030
            // §7).
            if self.host.feed(now).is_err() {
                oracle.find(now, self.host.side, "a buffer came out that is still in the machine");
            }
            let may_poll = self.may_poll(now);
            if may_poll {
                self.poll(now);
            }
            self.events(now, oracle);
            if self.host.rewake(now) > now || !self.to_send.is_empty() || !may_poll {
                return;
            }
        }
        oracle.find(now, self.host.side, "timers that are due stay due for ever");
    }

    fn events(&mut self, now: Instant, oracle: &mut Oracle) {
        while let Some(event) = self.host.endpoint.as_mut().and_then(|e| e.poll_event()) {
            if !self.host.on_event(now, event, oracle) {
                self.poll(now);
                self.host.stop(now);
                self.over = true;
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        let next_burst = self.next_burst();
        let Some(endpoint) = &mut self.host.endpoint else { return };
        while self.to_send.is_empty() {
            let mut batch = Vec::new();
            let Some(transmit) = endpoint.poll_transmit(now, &mut batch) else { return };
            let whole = batch.get(..transmit.len).unwrap_or(&batch);
            self.to_send.extend(whole.chunks(transmit.segment.max(1)).map(<[u8]>::to_vec));
            if self.in_burst > 0 && next_burst <= now {
                // A burst that was not filled up within its interval ends.
                self.in_burst = self.burst_packets;
            }
        }
    }
}

impl Steady {
    /// Records a packet of data sent; `begins`: it is the first of a burst.
    fn note(&mut self, now: Instant, bytes: &[u8], begins: bool) {
        if begins {
            self.burst = (now, self.passed);
        }
        let clear = Clear::read(bytes);
        let place = (clear.buffer.unwrap_or_default(), clear.index.unwrap_or_default());
        let again = self.from.is_some() && place <= self.furthest;
        if !again {
            self.from.get_or_insert(now);
            (self.until, self.bytes) = self.burst;
            self.passed += clear.data_bytes(bytes.len()) as u64;
            self.furthest = place;
        }
        if let Some(departures) = &mut self.departures {
            departures.push(Departure { at: now, buffer: place.0, index: place.1, again });
        }
    }
}

fn is_data(bytes: &[u8]) -> bool {
    matches!(bytes.get(3), Some(&kind::DATA | &kind::LDATA))
}

/// How many messages of an RFC 998 CONTROL packet are newer than `newest`, which becomes the newest
/// of them (RFC 998 §8: lengths of GO, OK and RESEND). OPEN and RESPONSE count as one.
fn new_messages(bytes: &[u8], newest: &mut u16) -> u32 {
    match (bytes.get(2), bytes.get(3)) {
        (Some(&2), Some(&kind::CONTROL)) => {}
        (Some(&2), Some(&(kind::OPEN | kind::RESPONSE))) => return 1,
        _ => return 0,
    }
    let word = |at: usize| {
        let word = bytes.get(at..at + 2).and_then(|word| word.first_chunk());
        word.map(|word| u16::from_be_bytes(*word))
    };
    let (mut at, mut new) = (12, 0);
    while let (Some(kind), Some(seq)) = (bytes.get(at), word(at + 2)) {
        let ahead = seq.wrapping_sub(*newest);
        if ahead != 0 && ahead < 0x8000 {
            *newest = seq;
            new += 1;
        }
        at += match kind {
            0 => 8,
            1 => 16,
            2 => 12 + (2 * usize::from(word(at + 8).unwrap_or(0))).next_multiple_of(4),
            _ => return new,
        };
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_messages_cost() {
        let mut packet = vec![0, 0, 2, 9, 0, 0, 0, 1, 0, 1, 0, 0];
        packet.extend([0, 0, 0, 1, 0, 0, 0, 1]); // GO, message 1
        packet.extend([2, 0, 0, 2, 0, 0, 0, 1, 0, 3, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0]); // RESEND, 2
        packet.extend([1, 0, 0, 3, 0, 0, 0, 1, 0, 5, 0, 40, 0, 9, 0, 0]); // OK, 3
        let mut newest = 1;
        assert_eq!((new_messages(&packet, &mut newest), newest), (2, 3));
        assert_eq!(new_messages(&packet, &mut newest), 0);
        assert_eq!(new_messages(&[0, 0, 2, 9], &mut newest), 0);
        assert_eq!(new_messages(&[0, 0, 2, kind::OPEN], &mut newest), 1);
    }
}
