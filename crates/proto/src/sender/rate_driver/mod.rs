//! The rate driver: how many packets may leave now, and when the next may.
//!
//! It holds the rate law, and keeps what every law must keep: the pacer, the announced burst values
//! where they are binding, the receiver's restrictions, the share of a subflow, and the client's
//! pause. Inputs: samples, offers and what left. Outputs: pacing, and values to announce.

mod announced_burst;
mod offers;
mod pause;
mod subflow_role;

use std::time::Duration;

use announced_burst::AnnouncedBurst;
use offers::BurstOffers;
use pause::Pause;
use subflow_role::SubflowRole;

use crate::negotiated::Negotiated;
use crate::rate::pacer::Lateness;
use crate::rate::subflows::{SubflowShare, SubflowTally};
use crate::rate::window::Gate;
use crate::rate::{Belief, Pacing, PathView, RateControl, Sample, keeps_to_the_letter};
use crate::stats::Learned;
use crate::time::Instant;
use crate::trace::{Recorder, TraceEvent};
use crate::units::{Burst, PacketNumber, Rate};
use crate::wire::packet::RateLimit;

/// Bytes of the IP packets of data.
#[derive(Clone, Copy, Debug)]
struct PacketBytes {
    /// Of a full one.
    full: u32,
    /// Of those that burst values count.
    counted: u32,
    /// IP and UDP header.
    overhead: u32,
}

/// The rate law, the pacer, and what binds both.
#[derive(Debug)]
pub(super) struct RateDriver {
    law: Box<dyn RateControl>,
    pacer: Gate,
    /// Bursts are charged in bytes, if the law counts bytes.
    paces_bytes: bool,
    /// Sent bytes that the pacer has not charged, less than a packet.
    uncharged: u64,
    /// Whether the pacer keeps burst values strictly.
    strict: bool,
    /// While the receiver's address is not validated, the announced values hold.
    unvalidated: bool,
    announced: AnnouncedBurst,
    offers: BurstOffers,
    subflows: SubflowRole,
    pause: Pause,
    bytes: PacketBytes,
}

impl RateDriver {
    /// The first datagrams have `datagram_bytes`. `learns`: the law learns from what becomes of the
    /// data.
    pub(super) fn new(
        now: Instant,
        negotiated: &Negotiated,
        mut law: Box<dyn RateControl>,
        learns: bool,
        datagram_bytes: u32,
        overhead: u32,
    ) -> Self {
        let profile = &negotiated.profile;
        let full = datagram_bytes + overhead;
        let mean = negotiated.mean_packet_bytes(overhead);
        law.on_packet_bytes(if profile.discovers_mtu { full } else { mean });
        let counted = if profile.paces_bytes { full } else { mean };
        // The receiver knows the negotiated values without an announcement.
        let infers_feedback = learns && !profile.reports;
        let announced = if infers_feedback { negotiated.burst } else { law.pacing().burst };
        let strict = keeps_to_the_letter(negotiated) || !learns && !profile.reports;
        let counted_bytes = negotiated.burst_bytes + overhead;
        Self {
            law,
            pacer: Gate::new(strict),
            paces_bytes: profile.paces_bytes,
            uncharged: 0,
            strict,
            unvalidated: false,
            announced: AnnouncedBurst::new(now, announced, infers_feedback),
            offers: BurstOffers::new(negotiated.burst, counted_bytes, profile.ok_offers),
            subflows: SubflowRole::default(),
            pause: Pause::new(profile.announces_pause),
            bytes: PacketBytes { full, counted, overhead },
        }
    }

    // ---- what may leave

    /// The rate law's pacing; with the announced burst values where those are binding.
    pub(super) fn pacing(&self) -> Pacing {
        let pacing = self.asked();
        match self.strict || self.unvalidated {
            true => Pacing { burst: self.announced.burst(), ..pacing },
            false => pacing,
        }
    }

    /// Its own part of the pacing that the law decides for all subflows.
    pub(super) fn asked(&self) -> Pacing {
        self.subflows.own(self.law.pacing(), self.bytes.full)
    }

    /// The sending rate of its burst values.
    pub(super) fn pacing_rate(&self) -> Rate {
        let burst = self.pacing().burst;
        let bytes = u64::from(burst.packets) * u64::from(self.bytes.counted);
        Rate::over(bytes, burst.interval)
    }

    /// Bytes of a full IP packet of data.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.bytes.full.into()
    }

    /// Packets that may still be in flight, with `in_flight` bytes of them.
    pub(super) fn room(&self, pacing: &Pacing, in_flight: u64) -> u32 {
        match pacing.cap_bytes {
            None => u32::MAX,
            Some(cap) => {
                let room = cap.saturating_sub(in_flight).div_ceil(self.packet_bytes().max(1));
                u32::try_from(room).unwrap_or(u32::MAX)
            }
        }
    }

    /// Packets that the pacer lets leave now. If the sender was `held_back` until now, the time
    /// before does not count.
    pub(super) fn available(&mut self, now: Instant, pacing: &Pacing, held_back: bool) -> u32 {
        if held_back {
            self.pacer.forget(now, pacing);
        }
        self.pacer.available(now, pacing)
    }

    /// When the pacer lets packets leave; `None` if there is no room for them.
    pub(super) fn deadline(&self, now: Instant, in_flight: u64) -> Option<Instant> {
        let pacing = self.pacing();
        (self.room(&pacing, in_flight) > 0).then(|| self.pacer.next(now, &pacing))
    }

    // ---- what left

    /// `count` packets of `bytes` left. Charges the pacer: packets, or bytes in units of whole
    /// packets. If short packets were charged in full, buffers of one short packet each would be
    /// delivered more slowly than they were paced, and an adaptive rate would follow that down for
    /// ever.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize, count: u32) {
        let mut packets = count;
        if self.law.charges_bytes() && self.paces_bytes {
            let overhead = u64::from(self.bytes.overhead);
            let whole = self.packet_bytes();
            let owed = self.uncharged + bytes as u64 + u64::from(count) * overhead;
            self.uncharged = owed % whole;
            packets = u32::try_from(owed / whole).unwrap_or(u32::MAX);
        }
        let pacing = self.pacing();
        self.pacer.consumed(now, packets, &pacing);
    }

    /// When the packets that left now were due, and the bytes sent to catch up; `None` if they were
    /// not late.
    pub(super) fn lateness(&self, now: Instant) -> Option<(Instant, u64)> {
        let pacing = self.pacing();
        let Lateness { due_at, made_up } = self.pacer.lateness(now, &pacing)?;
        let burst = u64::from(pacing.burst.packets) * self.packet_bytes();
        Some((due_at, Rate::over(burst, pacing.burst.interval).bytes_in(made_up)))
    }

    /// `count` packets of data left.
    pub(super) fn on_data_sent(&mut self, now: Instant, count: u32) {
        self.law.on_data_sent(now, count);
    }

    // ---- what the law takes in

    /// A sample of this sender.
    pub(super) fn on_sample(&mut self, now: Instant, sample: Sample) {
        self.law.on_sample(now, &self.subflows.whole(sample));
    }

    /// `packets` were requested again.
    pub(super) fn on_resend(&mut self, now: Instant, packets: u64) {
        self.law.on_resend(now, packets);
    }

    /// No feedback came for several round trips.
    pub(super) fn on_silence(&mut self, now: Instant) {
        self.law.on_silence(now);
    }

    /// When the law's own timer expires.
    pub(super) fn law_deadline(&self) -> Option<Instant> {
        self.law.next_timeout().filter(|_| !self.is_fully_paused())
    }

    /// The law's own timer has expired.
    pub(super) fn expire_law(&mut self, now: Instant) {
        self.law.on_timeout(now);
    }

    /// All data are `bytes`.
    pub(super) fn on_whole(&mut self, bytes: u64) {
        self.law.on_whole(bytes);
    }

    /// The first GO answers the RESPONSE: a round trip is at most `longest`. If the law goes by
    /// that, bursts are paced as if the handshake had taken as long (`docs/protocol §6.7`).
    pub(super) fn on_first_answer(&mut self, longest: Duration) {
        if self.law.on_first_answer(longest) {
            self.strict = false;
            self.pacer = Gate::new(false);
        }
    }

    /// Datagrams have `after` bytes from now on, and not `before`.
    pub(super) fn resize(&mut self, before: u32, after: u32) {
        let (before, after) = (before + self.bytes.overhead, after + self.bytes.overhead);
        if after < before && self.law.charges_bytes() {
            self.pacer.shrink(before, after);
            // Never charges more packets than left: that would begin another burst.
            self.uncharged %= u64::from(after);
        }
        self.law.on_packet_bytes(after);
        self.bytes.full = after;
        if self.paces_bytes {
            self.bytes.counted = after;
        }
    }

    /// A control packet has the receiver's rate limit. Returns whether it has changed.
    pub(super) fn on_limit(
        &mut self,
        now: Instant,
        number: PacketNumber,
        limit: RateLimit,
    ) -> bool {
        let changed = self.offers.on_limit(number, limit);
        changed.inspect(|burst| self.law.on_offer(now, *burst)).is_some()
    }

    /// An OK offers burst values.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Burst) {
        if let Some(burst) = self.offers.on_offer(offer) {
            self.law.on_offer(now, burst);
        }
    }

    // ---- what the client changes

    /// Never faster than this; `None` for no such limit.
    pub(super) fn set_ceiling(&mut self, now: Instant, ceiling: Option<Rate>) {
        self.law.on_ceiling(now, ceiling);
    }

    /// Switches to another law, which starts from the rate of the one before: its bandwidth, or the
    /// `delivery` rate. `min_rtt` is the smallest round trip.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        mut law: Box<dyn RateControl>,
        delivery: Option<Rate>,
        min_rtt: Option<Duration>,
    ) {
        law.on_packet_bytes(self.bytes.full);
        law.on_offer(now, self.offers.burst());
        if let (Some(rate), Some(rtt)) = (self.law.belief().bandwidth.or(delivery), min_rtt) {
            law.take_over(now, rate, rtt);
        }
        self.law = law;
    }

    /// The client pauses or resumes. False if that is nothing new.
    pub(super) fn pause(&mut self, now: Instant, paused: bool) -> bool {
        if paused == self.pause.is_on() {
            return false;
        }
        if let Some(lasted) = self.pause.set(now, paused) {
            self.law.on_pause_over(now, lasted);
        }
        true
    }

    /// Whether the client pauses.
    pub(super) fn is_paused(&self) -> bool {
        self.pause.is_on()
    }

    /// Whether the pause also stops buffers that have begun.
    pub(super) fn is_fully_paused(&self) -> bool {
        self.pause.is_full()
    }

    // ---- what NULL-ACK announces

    /// A control packet came: changed burst values may be announced.
    pub(super) fn open(&mut self) {
        self.announced.open();
    }

    /// From now on the receiver's address is validated, or not.
    pub(super) fn set_unvalidated(&mut self, unvalidated: bool) {
        self.unvalidated = unvalidated;
    }

    /// The burst values for NULL-ACK. Before the receiver's first control packet, and while its
    /// address is not validated, the negotiated values hold.
    pub(super) fn burst_to_announce(&self) -> Burst {
        let agreed = self.unvalidated || self.strict && !self.announced.is_open();
        if agreed { self.announced.burst() } else { self.asked().burst }
    }

    /// When changed burst values are to be announced, while data are sent (`sends`) and after that,
    /// to a receiver that gives feedback or not.
    pub(super) fn burst_due(
        &self,
        now: Instant,
        rtt: Option<Duration>,
        sends: bool,
        has_feedback: bool,
    ) -> Option<Instant> {
        let burst = self.asked().burst;
        if self.unvalidated {
            return None;
        }
        if self.strict {
            if !sends {
                return None;
            }
            let due = self.announced.announce_in_force_at(
                burst,
                self.offers.burst(),
                rtt.unwrap_or_default(),
            );
            return due.map(|at| at.max(now));
        }
        let rtt = rtt.unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(10));
        let due = has_feedback.then(|| self.announced.announce_at(burst, rtt)).flatten();
        due.filter(|at| *at <= now)
    }

    /// When a pause or its end is to be announced.
    pub(super) fn pause_due(&self) -> Option<Instant> {
        self.pause.due()
    }

    /// NULL-ACK with `burst` left. A pause is announced again at `next`.
    pub(super) fn on_announced(&mut self, now: Instant, burst: Burst, next: Instant) {
        self.announced.on_announced(now, burst);
        self.pause.on_announced(next);
    }

    // ---- subflows (docs/protocol §6.11)

    /// From now on the law decides for `own` and these subflows, whether they are alive or not.
    pub(super) fn lead(&mut self, now: Instant, own: SubflowTally, subflows: &[SubflowTally]) {
        let (pacing, packet) = (self.law.pacing(), self.packet_bytes());
        self.subflows.lead(now, own, subflows, &pacing, packet, self.law.tries());
    }

    /// The share of the subflow at `at` of the last list.
    pub(super) fn share(&self, at: usize) -> SubflowShare {
        self.subflows.share(at, &self.law.pacing(), self.packet_bytes())
    }

    /// From now on the main connection sets its share.
    pub(super) fn be_led(&mut self, share: SubflowShare) {
        self.subflows = SubflowRole::Led(share);
    }

    /// Bytes delivered over the other subflows, if this is the main connection.
    pub(super) fn delivered_beside(&self) -> u64 {
        self.subflows.delivered_beside()
    }

    // ---- for people and traces

    /// What the law believes.
    pub(super) fn belief(&self) -> Belief {
        self.law.belief()
    }

    /// What the law measured of the path.
    pub(super) fn path_view(&self, now: Instant) -> PathView {
        self.law.path_view(now)
    }

    /// Whether the law responds to ECN marks.
    pub(super) fn answers_marks(&self) -> bool {
        self.law.answers_marks()
    }

    /// Whether a circuit breaker of the law has reduced the rate.
    pub(super) fn is_reduced(&self) -> bool {
        self.law.is_reduced()
    }

    /// What is worth remembering of the path.
    pub(super) fn learned(&self) -> Learned {
        self.law.learned()
    }

    /// Traces what the law has changed since the last time.
    pub(super) fn trace_changes(&mut self, now: Instant, trace: &mut Recorder) {
        while let Some(change) = self.law.take_change() {
            trace.note(now, || TraceEvent::Window {
                from: change.from_bytes,
                to: change.to_bytes,
                cause: change.cause.name(),
                mode: change.mode,
            });
        }
        let ppm = |share: f64| (share * 1e6) as u64;
        if let Some(test) = self.law.take_test() {
            trace.note(now, || TraceEvent::Test {
                verdict: test.verdict,
                share_ppm: ppm(test.share),
                whole: test.whole,
                half: test.half,
                limit_ppm: ppm(test.limit),
                error_ppm: ppm(test.error),
            });
        }
        if let Some(excuse) = self.law.take_excuse() {
            let (share_ppm, reason) = (ppm(excuse.share), excuse.reason);
            trace.note(now, || TraceEvent::Excuse { share_ppm, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::fixed::Fixed;
    use crate::wire::Wire;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn burst(packets: u32) -> Burst {
        Burst { packets, interval: Duration::from_millis(1) }
    }

    /// A law of eight packets each millisecond, which counts bytes on `sealed`.
    fn driver(wire: Wire) -> RateDriver {
        let law = Fixed::new(burst(8), 1228);
        let law = if wire == Wire::Sealed { law.of_bytes() } else { law };
        RateDriver::new(ms(0), &Negotiated::example(wire), Box::new(law), false, 1200, 28)
    }

    fn available(driver: &mut RateDriver) -> u32 {
        let pacing = driver.pacing();
        driver.available(ms(0), &pacing, false)
    }

    #[test]
    fn short_packets_are_charged_as_parts_of_full_ones() {
        for (wire, left) in [(Wire::Sealed, [8, 7]), (Wire::Rfc998, [5, 4])] {
            let mut driver = driver(wire);
            // 984 bytes with all headers, then 1,312: a full packet has 1,228.
            let charged = [(900, 3), (300, 1)].map(|(bytes, count)| {
                driver.charge(ms(0), bytes, count);
                available(&mut driver)
            });
            assert_eq!(charged, left, "{wire:?}");
        }
    }

    #[test]
    fn announced_values_hold_where_bursts_are_strict_or_the_address_is_not_validated() {
        for (wire, unvalidated, packets) in
            [(Wire::Rfc998, false, 3), (Wire::Sealed, false, 8), (Wire::Sealed, true, 3)]
        {
            let mut driver = driver(wire);
            driver.set_unvalidated(unvalidated);
            driver.on_announced(ms(1), burst(3), ms(2));
            assert_eq!((driver.pacing().burst, driver.asked().burst), (burst(packets), burst(8)));
        }
    }

    #[test]
    fn the_cap_leaves_room_for_whole_packets() {
        let driver = driver(Wire::Sealed);
        let capped = Pacing { cap_bytes: Some(5000), ..driver.pacing() };
        assert_eq!(driver.room(&driver.pacing(), 1_000_000), u32::MAX, "there is no cap");
        let room = [0, 1228, 4999, 5000].map(|in_flight| driver.room(&capped, in_flight));
        assert_eq!(room, [5, 4, 1, 0]);
    }

    #[test]
    fn a_subflow_sends_at_its_share() {
        let mut driver = driver(Wire::Sealed);
        let rate = Rate::from_bytes_per_second(1_000_000);
        driver.be_led(SubflowShare { rate, cap_bytes: Some(7000) });
        let pacing = driver.pacing();
        assert_eq!(pacing.cap_bytes, Some(7000));
        let sends = driver.pacing_rate().bytes_per_second();
        assert!((900_000..=1_100_000).contains(&sends), "{sends}");
    }
}
