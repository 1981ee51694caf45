//! The sender's view of what becomes of its packets.
//!
//! Inputs: the packets that left, and REPORTs; on a wire without REPORTs OKs and RESENDs, from
//! which the same is inferred. Outputs: samples for the rate law, the round trip, and the counts of
//! packets sent, delivered and lost.

mod reverse_path_queue;
mod skipped_numbers;

use std::time::Duration;

use reverse_path_queue::ReversePathQueue;
use skipped_numbers::SkippedNumbers;

use crate::codec::Codec;
use crate::loss_detection::inferred::Ledger;
use crate::negotiated::Negotiated;
use crate::rate::Sample;
use crate::rate::sampler::Sampler;
use crate::rate::subflows::SubflowTally;
use crate::rtt::RttEstimator;
use crate::time::Instant;
use crate::units::{BufferNumber, PacketNumber, Rate};
use crate::wire::packet::Report;

/// Age beyond two round trips at which a reported rate expires.
const STALE: Duration = Duration::from_millis(100);

/// The newest sample's rates, and its time.
#[derive(Clone, Copy, Debug, Default)]
struct RecentRates {
    at: Option<Instant>,
    delivery: Rate,
    send: Rate,
}

/// What is known of the packets that left.
#[derive(Debug)]
pub(super) struct SenderFeedback {
    sampler: Sampler,
    /// The receiver sends REPORTs.
    reports: bool,
    /// Infers feedback from OK and RESEND, on a wire without REPORTs.
    ledger: Option<Ledger>,
    /// Skipped packet numbers, where the wire has REPORTs.
    skipped_numbers: Option<SkippedNumbers>,
    reverse_queue: ReversePathQueue,
    rtt: RttEstimator,
    /// The latest delivery rate.
    delivery_rate: Option<Rate>,
    recent_rates: RecentRates,
    /// Packets found missing.
    lost_packets: u64,
}

impl SenderFeedback {
    /// `infers`: on a wire without REPORTs feedback is inferred from OK and RESEND.
    pub(super) fn new(negotiated: &Negotiated, infers: bool, overhead: u32) -> Self {
        let profile = &negotiated.profile;
        Self {
            sampler: Sampler::new(overhead),
            reports: profile.reports,
            ledger: (infers && !profile.reports).then(Ledger::default),
            skipped_numbers: None,
            reverse_queue: ReversePathQueue::default(),
            rtt: RttEstimator::new(negotiated.rtt, negotiated.longest_rtt)
                .with_piggybacked_acks(profile.piggybacks_acks),
            delivery_rate: None,
            recent_rates: RecentRates::default(),
            lost_packets: 0,
        }
    }

    /// Whether the sender gets feedback on its packets.
    pub(super) fn exists(&self) -> bool {
        self.reports || self.infers()
    }

    /// Whether feedback is inferred.
    pub(super) fn infers(&self) -> bool {
        self.ledger.is_some()
    }

    // ---- what leaves

    /// Starts to skip packet numbers drawn from this seed, where the wire has REPORTs.
    pub(super) fn skip_numbers(&mut self, seed: [u8; 32]) {
        self.skipped_numbers = self.reports.then(|| SkippedNumbers::new(seed));
    }

    /// Skips a packet number if one is due. Returns how many data packets may leave before the
    /// next.
    pub(super) fn skip_number(&mut self, codec: &mut Codec) -> u32 {
        let Some(skipped_numbers) = &mut self.skipped_numbers else { return u32::MAX };
        if skipped_numbers.left() == 0
            && let Some(number) = codec.skip_number()
        {
            self.sampler.on_passed_over(number);
            skipped_numbers.set();
        }
        skipped_numbers.left().max(1)
    }

    /// The packet `sent` of a buffer leaves, with `bytes`; `ends` if nothing of the buffer is left
    /// to send. Returns the number by which feedback names it.
    pub(super) fn number(
        &mut self,
        now: Instant,
        sent: PacketNumber,
        buffer: BufferNumber,
        bytes: u64,
        ends: bool,
    ) -> PacketNumber {
        match &mut self.ledger {
            Some(ledger) => ledger.on_sent(now, buffer, bytes, ends),
            None => sent,
        }
    }

    /// `count` packets left, of `bytes` in all, the first of which has the number `first`. Returns
    /// whether nothing was in flight before.
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        first: PacketNumber,
        count: u32,
        bytes: u64,
    ) -> bool {
        let none = self.sampler.in_flight_bytes() == 0;
        self.sampler.on_sent(now, first, count, bytes);
        none
    }

    /// `count` packets of data left.
    pub(super) fn on_data_sent(&mut self, count: u32) {
        self.skipped_numbers.iter_mut().for_each(|skipped_numbers| skipped_numbers.on_sent(count));
    }

    /// The newest packets were due then, and `made_up` bytes were sent to catch up.
    pub(super) fn on_late(&mut self, due_at: Instant, made_up: u64) {
        self.sampler.on_late(due_at, made_up);
    }

    /// Nothing could be sent, although the rate law would have allowed it.
    pub(super) fn on_app_limited(&mut self) {
        self.sampler.on_app_limited();
    }

    // ---- what the receiver says

    /// What is wrong with a REPORT of packets that were not sent.
    pub(super) fn contradicts(&self, report: &Report) -> Option<&'static str> {
        self.sampler.contradicts(report)
    }

    /// REPORT: a sample, if it says anything new.
    pub(super) fn on_report(&mut self, now: Instant, report: &Report) -> Option<Sample> {
        let sample = self.sampler.on_report(now, report)?;
        if let Some(rtt) = sample.rtt {
            self.reverse_queue.sample(now, report.at_micros, rtt);
        }
        Some(sample)
    }

    /// OK of `buffer`.
    pub(super) fn on_ok(&mut self, now: Instant, buffer: BufferNumber) {
        if let Some(ledger) = &mut self.ledger {
            ledger.on_ok(now, buffer, self.rtt.smallest());
        }
    }

    /// RESEND requests `packets` of `buffer`.
    pub(super) fn on_resend(&mut self, buffer: BufferNumber, packets: u64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.on_resend(buffer, packets);
        }
    }

    /// A sample inferred from OKs and RESENDs since the last one, if any.
    pub(super) fn inferred(&mut self, now: Instant) -> Option<Sample> {
        let inferred = self.ledger.as_mut()?.report(now)?;
        let sample = self.sampler.on_told(now, &inferred.report, inferred.when)?;
        let (delivered_packets, lost_packets) = (inferred.arrived, inferred.lost);
        Some(Sample { delivered_packets, lost_packets, ..sample })
    }

    /// When resent packets without feedback are no longer in flight.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ledger.as_ref()?.lands_at()
    }

    /// That time has come.
    pub(super) fn expire(&mut self, now: Instant) {
        self.ledger.iter_mut().for_each(|ledger| ledger.land(now));
    }

    /// Takes in a sample, whose losses are those of congestion.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if let Some(rtt) = sample.rtt {
            self.rtt.sample(rtt);
        }
        self.lost_packets = sample.lost_packets;
        self.delivery_rate = sample.delivery_rate.or(self.delivery_rate);
        if let (Some(delivery), Some(send)) = (sample.delivery_rate, sample.send_rate) {
            self.recent_rates = RecentRates { at: Some(now), delivery, send };
        }
    }

    // ---- timers of the round trip

    /// The round trip.
    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// END leaves once more: the retransmission timeout grows.
    pub(super) fn back_off(&mut self) {
        self.rtt.back_off();
    }

    /// A packet of the receiver arrived: ends the back-off.
    pub(super) fn reset_back_off(&mut self) {
        self.rtt.reset_back_off();
    }

    // ---- how it stands

    /// Bytes of IP and UDP header on each datagram.
    pub(super) fn overhead(&self) -> u64 {
        self.sampler.overhead()
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.sampler.in_flight_bytes()
    }

    pub(super) fn delivered_bytes(&self) -> u64 {
        self.sampler.delivered_bytes()
    }

    pub(super) fn marked_packets(&self) -> u64 {
        self.sampler.marked_packets()
    }

    pub(super) fn lost_packets(&self) -> u64 {
        self.lost_packets
    }

    /// The latest delivery rate.
    pub(super) fn delivery_rate(&self) -> Option<Rate> {
        self.delivery_rate
    }

    /// When a packet left last.
    pub(super) fn last_sent(&self) -> Option<Instant> {
        self.sampler.last_sent()
    }

    /// Since when an answer may be on its way, if feedback is inferred: before a buffer was sent
    /// there can be no feedback on it.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.ledger.as_ref()?.waits_since()
    }

    /// When the reverse path's queue is to be announced.
    pub(super) fn queue_due(&self) -> Option<Instant> {
        self.reverse_queue.due()
    }

    /// Announces the reverse path's queue in NULL-ACK, in milliseconds.
    pub(super) fn announce_queue(&mut self, now: Instant) -> u16 {
        self.reverse_queue.announce(now)
    }

    /// Its counters, for the main connection.
    pub(super) fn tally(&self, now: Instant) -> SubflowTally {
        let stale = STALE + self.rtt.assumed() * 2;
        let fresh = self.recent_rates.at.is_some_and(|at| now.since(at) <= stale);
        let rates = if fresh { self.recent_rates } else { RecentRates::default() };
        SubflowTally {
            live: true,
            sent_bytes: self.sampler.sent_bytes(),
            delivered_bytes: self.sampler.delivered_bytes(),
            delivered_packets: self.sampler.delivered_packets(),
            lost_packets: self.lost_packets,
            marked_packets: self.sampler.marked_packets(),
            in_flight_bytes: self.sampler.in_flight_bytes(),
            delivery_rate: rates.delivery,
            send_rate: rates.send,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn without_reports_an_ok_makes_a_sample() {
        let mut feedback = SenderFeedback::new(&Negotiated::example(Wire::Rfc998), true, 28);
        assert!(feedback.exists() && feedback.infers());
        let one = BufferNumber(1);
        for n in 0..4 {
            let number = feedback.number(ms(n), PacketNumber(77), one, 1000, n == 3);
            assert_eq!(number, PacketNumber(n));
            assert_eq!(feedback.on_sent(ms(n), number, 1, 1000), n == 0);
        }
        assert_eq!((feedback.inferred(ms(10)), feedback.waits_since()), (None, Some(ms(3))));
        feedback.on_ok(ms(43), one);
        let sample = feedback.inferred(ms(43)).expect("all of it arrived");
        assert_eq!((sample.delivered_packets, sample.lost_packets), (4, 0));
        feedback.on_sample(ms(43), &sample);
        let tally = feedback.tally(ms(43));
        assert_eq!((tally.delivered_packets, tally.in_flight_bytes), (4, 0));
    }

    #[test]
    fn a_law_that_does_not_learn_gets_no_feedback_without_reports() {
        let of = |wire, learns| SenderFeedback::new(&Negotiated::example(wire), learns, 28);
        assert!(!of(Wire::Rfc998, false).exists() && of(Wire::Sealed, false).exists());
        assert!(!of(Wire::Sealed, true).infers());
    }

    #[test]
    fn a_reported_rate_expires_after_two_round_trips_and_a_tenth_of_a_second() {
        let mut feedback = SenderFeedback::new(&Negotiated::example(Wire::Sealed), true, 28);
        let rate = Rate::from_bytes_per_second(1000);
        let rates =
            Sample { delivery_rate: Some(rate), send_rate: Some(rate), ..Sample::default() };
        feedback.on_sample(ms(0), &Sample { lost_packets: 3, ..rates });
        assert_eq!((feedback.lost_packets(), feedback.delivery_rate()), (3, Some(rate)));
        let recent = [180, 181].map(|at| feedback.tally(ms(at)).delivery_rate);
        assert_eq!(recent, [rate, Rate::default()]);
    }
}
