//! Our own flow: the law of a policy with sampler and pacer, and a receiver that reports.

use std::time::Duration;

use netblt_proto::Feedback;
use netblt_proto::api::Ecn;
use netblt_proto::config::Policy;
use netblt_proto::emulated;
use netblt_proto::rate::RateControl;
use netblt_proto::rate::pacer::Pacer;
use netblt_proto::rate::sampler::Sampler;
use netblt_proto::time::{Instant, nanos};
use netblt_proto::units::{PacketNumber, Rate};

use super::ends::{Body, Ends, FEEDBACK_BYTES, FlowPacket, Outbox};
use super::scene::FlowOptions;

/// IP and UDP header.
const OVERHEAD: u32 = 28;
/// How late the sender's timers fire at most.
const LATENESS: Duration = Duration::from_micros(100);
/// The law learns of silence after three round trips, and no sooner than this.
const SILENCE: Duration = Duration::from_millis(200);
/// The circuit breaker opens after eight round trips, and no sooner than this.
const BREAKER: Duration = Duration::from_secs(2);
/// An open breaker lets a packet through this often.
const PROBES: Duration = Duration::from_secs(1);
/// An opening that is not answered is tried again after this.
const OPENING: Duration = Duration::from_secs(1);
/// IP bytes of it.
const OPENING_BYTES: u32 = 300;
/// Longer than this, and it was not the pacer that held packets back.
const HELD: Duration = Duration::from_millis(1);

/// Both ends of a transfer.
#[derive(Debug)]
pub(super) struct Ours {
    policy: Policy,
    /// Whether the connection is open, and when it was last tried to open it.
    is_open: bool,
    tried: Option<Instant>,
    law: Box<dyn RateControl>,
    pacer: Pacer,
    sampler: Sampler,
    feedback: Feedback,
    packet: u32,
    /// The smoothed round trip, which both ends measure.
    rtt: Duration,
    next_number: u64,
    reported: Instant,
    silence_at: Instant,
    probed: Instant,
    /// By how much the next timer is late.
    late: Duration,
    touched: Instant,
    /// Since when something other than the pacer holds packets back.
    held: Option<Instant>,
}

impl Ours {
    pub(super) fn new(policy: Policy, options: &FlowOptions) -> Self {
        let start = Instant::EPOCH + options.start;
        Self {
            policy,
            is_open: false,
            tried: None,
            law: emulated::law(policy, options.packet_bytes, options.rtt),
            pacer: Pacer::new(),
            sampler: Sampler::new(OVERHEAD),
            feedback: Feedback::default(),
            packet: options.packet_bytes,
            rtt: options.rtt,
            next_number: 0,
            reported: start,
            silence_at: start,
            probed: start,
            late: Duration::ZERO,
            touched: start,
            held: None,
        }
    }

    /// How far apart reports are.
    fn beat(&self) -> Duration {
        (self.rtt / 8).max(Duration::from_millis(1))
    }

    fn report_due(&self) -> Instant {
        self.feedback.due(self.beat(), Duration::ZERO).unwrap_or(Instant::NEVER)
    }

    fn room(&self) -> u32 {
        let Some(cap) = self.law.pacing().cap_bytes else { return u32::MAX };
        let room = cap.saturating_sub(self.sampler.in_flight_bytes());
        u32::try_from(room.div_ceil(u64::from(self.packet))).unwrap_or(u32::MAX)
    }

    fn silence_due(&self) -> Instant {
        if self.sampler.in_flight_bytes() == 0 {
            return Instant::NEVER;
        }
        let since = self.reported.max(self.silence_at);
        since.max(self.sampler.last_sent().unwrap_or(since)) + SILENCE.max(self.rtt * 3)
    }

    fn breaker_at(&self) -> Instant {
        match self.sampler.in_flight_bytes() {
            0 => Instant::NEVER,
            _ => self.reported + BREAKER.max(self.rtt * 8),
        }
    }

    /// When data may leave, or the connection may be opened.
    fn data_due(&self, now: Instant) -> Instant {
        if !self.is_open {
            return self.tried.map_or(Instant::EPOCH, |tried| tried + OPENING);
        }
        if now >= self.breaker_at() {
            return self.probed + PROBES;
        }
        match self.room() {
            0 => self.breaker_at(),
            _ => self.pacer.next(self.touched, &self.law.pacing()) + self.late,
        }
    }

    /// How many packets leave now.
    fn allowed(&mut self, now: Instant) -> u32 {
        if now >= self.breaker_at() {
            let probes = now >= self.probed + PROBES;
            self.probed = if probes { now } else { self.probed };
            return u32::from(probes);
        }
        let pacing = self.law.pacing();
        let room = self.room();
        if room == 0 {
            self.held.get_or_insert(now);
            return 0;
        }
        if self.held.take().is_some_and(|since| now.since(since) >= HELD) {
            self.pacer.forget(now, &pacing);
        }
        self.pacer.available(now, &pacing).min(room)
    }

    /// The opening was answered: the law goes by the round trip that it took.
    fn open(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        self.rtt = now.since(self.tried.unwrap_or(now)).max(Duration::from_micros(1));
        self.law = emulated::law(self.policy, self.packet, self.rtt);
        (self.reported, self.silence_at, self.probed, self.touched) = (now, now, now, now);
    }

    fn transmit(&mut self, now: Instant, out: &mut Outbox) {
        if !self.is_open {
            self.tried = Some(now);
            out.push(Body::Open, OPENING_BYTES);
            return;
        }
        let count = self.allowed(now);
        if count == 0 {
            return;
        }
        let pacing = self.law.pacing();
        self.late = Duration::from_nanos(out.rng.below(nanos(LATENESS)));
        self.touched = now;
        self.pacer.consumed(now, count, &pacing);
        let bytes = u64::from(count) * u64::from(self.packet - OVERHEAD);
        self.sampler.on_sent(now, PacketNumber(self.next_number), count, bytes);
        if let Some(late) = self.pacer.lateness(now, &pacing) {
            let burst = u64::from(pacing.burst.packets) * u64::from(self.packet);
            let made_up = Rate::over(burst, pacing.burst.interval).bytes_in(late.made_up);
            self.sampler.on_late(late.due_at, made_up);
        }
        self.law.on_data_sent(now, count);
        for _ in 0..count {
            out.push(Body::Data(self.next_number), self.packet);
            self.next_number += 1;
        }
    }
}

impl Ends for Ours {
    fn due(&self, now: Instant) -> Instant {
        let timeout = self.law.next_timeout().unwrap_or(Instant::NEVER);
        self.data_due(now).min(timeout).min(self.silence_due()).min(self.report_due())
    }

    fn work(&mut self, now: Instant, out: &mut Outbox) {
        if self.report_due() <= now
            && let Some(report) = self.feedback.report(now, Instant::EPOCH, self.rtt)
        {
            out.push(Body::Report(report), FEEDBACK_BYTES);
        }
        if self.silence_due() <= now {
            self.silence_at = now;
            self.law.on_silence(now);
        }
        if self.law.next_timeout().is_some_and(|at| at <= now) {
            self.law.on_timeout(now);
        }
        if self.data_due(now) <= now {
            self.transmit(now, out);
        }
    }

    fn on_data(&mut self, now: Instant, packet: &FlowPacket, ecn: Option<Ecn>, out: &mut Outbox) {
        let number = match packet.body {
            Body::Data(number) => number,
            Body::Open => return out.push(Body::Opened, OPENING_BYTES),
            Body::Opened | Body::Ack(_) | Body::Report(_) => return,
        };
        let bytes = (packet.bytes - OVERHEAD) as usize;
        self.feedback.on_packet(now, PacketNumber(number), bytes, bytes, ecn);
        if self.report_due() <= now
            && let Some(report) = self.feedback.report(now, Instant::EPOCH, self.rtt)
        {
            out.push(Body::Report(report), FEEDBACK_BYTES);
        }
    }

    fn on_feedback(&mut self, now: Instant, body: &Body, out: &mut Outbox) {
        let report = match body {
            Body::Report(report) => report,
            Body::Opened => {
                self.open(now);
                return self.transmit(now, out);
            }
            Body::Open | Body::Data(_) | Body::Ack(_) => return,
        };
        let before = (self.sampler.delivered_packets(), self.sampler.in_flight_bytes());
        if let Some(sample) = self.sampler.on_report(now, report) {
            if let Some(rtt) = sample.rtt {
                self.rtt = (self.rtt * 7 + rtt) / 8;
            }
            if before != (sample.delivered_packets, sample.in_flight_bytes) {
                self.reported = now;
            }
            self.law.on_sample(now, &sample);
            // The law's changes are traced elsewhere.
            while self.law.take_change().is_some() {}
        }
        if self.data_due(now) <= now {
            self.transmit(now, out);
        }
    }

    fn phase(&self) -> &'static str {
        self.law.belief().phase
    }
}
