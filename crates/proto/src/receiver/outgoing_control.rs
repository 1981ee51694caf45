//! The control packets: when they leave, and with which messages.
//!
//! Inputs: messages, acknowledgements, and the bytes that may leave. The control FIFO keeps the
//! messages until they are acknowledged, and their acknowledgements measure the round trip.
//! Outputs: control packets and the control timer (`docs/protocol §6.2`).

use std::time::Duration;

use crate::codec::Codec;
use crate::control_fifo::{AckResult, ControlFifo};
use crate::negotiated::{Negotiated, ProgressCounter, ProgressTimescale};
use crate::rtt::{RttEstimator, without};
use crate::stats::Stats;
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, ControlSeq, Rate};
use crate::wire::packet::{Accepted, Burst, Message, RateLimit, Report};

/// Room that the FIFO must have before the loss detector is polled.
const REQUEST_ROOM: usize = 1100;
/// Least bytes of a control packet worth sending: every kind of message of `rfc998` fits, a RESEND
/// cut to its first packets.
const MIN_CONTROL_BYTES: usize = 36;

/// Closest spacing of control packets on `sealed`, as a fraction of the round trip and in time.
const SPACING: (u32, Duration, Duration) =
    (16, Duration::from_micros(50), Duration::from_millis(1));
/// The spacing of control packets as a part of their queueing delay on the reverse path: where the
/// queue is their own, it stabilises at this many of them.
const SPACING_PART: u32 = 4;

/// Age of the last measurement, in round trips, up to which it counts as recent. With 4 a path that
/// loses 30 % in each direction carries a fifth less: two messages in three are repeated there, and
/// none of them can be measured.
const MEASURED_LATELY: u32 = 32;

/// The control packets of a receiver.
#[derive(Debug)]
pub(super) struct OutgoingControl {
    fifo: ControlFifo,
    rtt: RttEstimator,
    /// When the round trip was last measured.
    measured: Instant,
    /// Time for which this host was suspended while the current packet waited.
    host_stall: Duration,
    /// When the control timer last backed off.
    backed_off: Option<Instant>,
    /// How often it expired.
    timeouts: u64,
    /// Control packets are spaced; else each new message leaves at once.
    is_spaced: bool,
    /// Least spacing of control packets, because of the queue on the reverse path.
    reverse_spacing: Duration,
    /// A control packet must leave now, whatever the report interval.
    send_now: bool,
    last_sent: Option<Instant>,
    /// How many were sent.
    packets: u64,
    /// The rate limit for the sender, in each control packet.
    rate_limit: RateLimit,
    /// The burst values that an OK offers instead.
    ok_offer: Option<Burst>,
    /// Most bytes of a datagram now, within the amplification limit.
    allowance: usize,
    /// The limit is used up: nothing leaves before the control timer expires or a packet arrives.
    allowance_used: bool,
}

impl OutgoingControl {
    pub(super) fn new(negotiated: &Negotiated) -> Self {
        let profile = &negotiated.profile;
        Self {
            fifo: ControlFifo::new(profile.control),
            rtt: RttEstimator::new(negotiated.rtt, negotiated.longest_rtt)
                .with_piggybacked_acks(profile.piggybacks_acks),
            measured: negotiated.opened,
            host_stall: Duration::ZERO,
            backed_off: None,
            timeouts: 0,
            is_spaced: profile.spaced_control,
            reverse_spacing: Duration::ZERO,
            send_now: false,
            last_sent: None,
            packets: 0,
            rate_limit: RateLimit::default(),
            // On `rfc998` every OK has an offer: other implementations read an absent one as zero.
            // It can only restrict, and intervals are whole milliseconds.
            ok_offer: profile.ok_offers.then_some(negotiated.burst),
            allowance: usize::MAX,
            allowance_used: false,
        }
    }

    // ---- messages

    /// Puts `message` into the FIFO. Returns its sequence number.
    pub(super) fn push(&mut self, message: Message) -> ControlSeq {
        self.fifo.push(message)
    }

    /// Puts an OK for the full `buffer` into the FIFO.
    pub(super) fn push_ok(&mut self, buffer: BufferNumber) {
        self.fifo.push(Message::Ok(Accepted {
            first: buffer,
            count: 1,
            offer: self.ok_offer,
            control_timer: self.rtt.timeout(),
        }));
    }

    /// Whether a message was ever put into the FIFO.
    pub(super) fn has_begun(&self) -> bool {
        self.fifo.has_begun()
    }

    /// Messages that are not acknowledged.
    pub(super) fn unacked(&self) -> usize {
        self.fifo.len()
    }

    /// Whether the FIFO has room for another GO.
    pub(super) fn has_room(&self) -> bool {
        self.fifo.has_room(1)
    }

    /// Whether RESENDs have room in the FIFO, and may leave.
    pub(super) fn takes_requests(&self) -> bool {
        self.fifo.has_room(REQUEST_ROOM) && self.allowed_bytes() > 0
    }

    /// The highest message that the sender acknowledged.
    pub(super) fn acknowledged(&self) -> ControlSeq {
        self.fifo.acknowledged()
    }

    /// The messages in the FIFO left at `at` as early control, and perhaps again since (`once`):
    /// they are repeated only if they are not acknowledged soon.
    pub(super) fn on_early_sent(&mut self, now: Instant, at: Instant, once: bool) {
        self.fifo.was_sent(at, once);
        self.last_sent = Some(now);
    }

    /// The FIFO, for early control.
    pub(super) fn into_fifo(self) -> ControlFifo {
        self.fifo
    }

    // ---- from the network

    /// An authentic packet arrived, after this host was suspended for `host_stall`.
    pub(super) fn on_packet(&mut self, host_stall: Duration) {
        self.host_stall = host_stall;
    }

    /// The sender acknowledged every message up to `ack`. Calls `each` for those. `None` if none of
    /// them is new. [`Self::on_round_trip`] follows.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        ack: ControlSeq,
        each: impl FnMut(&Message),
    ) -> Option<AckResult> {
        self.fifo.acknowledge(now, ack, self.rtt.smallest(), each)
    }

    /// The round trip of an acknowledgement, if it could be measured. `much_is_repeated`: the
    /// back-off ends without a recent measurement too.
    ///
    /// The back-off of a timer stays until there is a measurement (RFC 6298 §5.7), unless there was
    /// one lately. On a path that became longer every message is repeated before its answer
    /// arrives, and none can be measured. With much loss nearly every message is repeated for that
    /// reason, and a fixed-rate sender of `rfc998` must find its phase soon (RFC 1030 §6).
    pub(super) fn on_round_trip(
        &mut self,
        now: Instant,
        sample: Option<Duration>,
        much_is_repeated: bool,
    ) {
        let lately = self.measured + self.rtt.assumed() * MEASURED_LATELY;
        match sample {
            Some(sample) => {
                self.rtt.sample(without(sample, self.host_stall));
                self.measured = now;
            }
            None if now < lately || much_is_repeated => self.rtt.reset_back_off(),
            None => {}
        }
    }

    /// The sender reports a queue of `millis` on the reverse path.
    pub(super) fn on_reverse_queue(&mut self, millis: u16) {
        let wanted = Duration::from_millis(millis.into()) / SPACING_PART;
        // The spacing grows at once and shrinks step by step: the queue is gone before that is
        // known.
        self.reverse_spacing = wanted.max(self.reverse_spacing * 3 / 4);
    }

    /// A control packet must leave at the next opportunity: the END came.
    pub(super) fn hasten(&mut self) {
        self.send_now = true;
    }

    // ---- limits

    /// Limits the sender to `most`, if set; `Some(None)`: to the negotiated burst values.
    pub(super) fn set_rate_limit(&mut self, most: Option<Option<Rate>>) {
        let limit = match (most, self.rate_limit) {
            (Some(Some(rate)), _) => RateLimit::At(rate),
            (None, RateLimit::Unset) => RateLimit::Unset,
            (Some(None) | None, _) => RateLimit::Agreed,
        };
        let changes = std::mem::replace(&mut self.rate_limit, limit) != limit;
        // A new limit leaves at once, where control packets carry it.
        self.send_now |= changes && self.ok_offer.is_none();
    }

    /// A datagram may have at most `bytes`, within the amplification limit; `None`: no such limit.
    pub(super) fn set_allowance(&mut self, bytes: Option<usize>) {
        self.allowance = bytes.unwrap_or(usize::MAX);
        self.allowance_used &= bytes.is_some();
    }

    /// A packet arrived, so the limit is not used up.
    pub(super) fn renew_allowance(&mut self) {
        self.allowance_used = false;
    }

    /// Most bytes of a control packet now.
    fn allowed_bytes(&self) -> usize {
        if self.allowance < MIN_CONTROL_BYTES { 0 } else { self.allowance }
    }

    // ---- time and output

    /// When the control timer expires, if it is set.
    pub(super) fn timer_deadline(&self) -> Option<Instant> {
        self.fifo.deadline(self.rtt.timeout())
    }

    /// The control timer expired.
    pub(super) fn expire(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        self.fifo.expire(now, timeout);
        self.timeouts += 1;
        // Backs off once per timeout, however many messages expire: they left one by one.
        if self.backed_off.is_none_or(|at| at + timeout <= now) {
            self.backed_off = Some(now);
            self.rtt.back_off();
        }
        self.send_now = true;
        if std::mem::take(&mut self.allowance_used) {
            self.fifo.start_over();
        }
    }

    /// When the next control packet leaves, if a REPORT is due at `report`.
    pub(super) fn packet_deadline(&self, report: Option<Instant>) -> Option<Instant> {
        let last = self.last_sent.unwrap_or(Instant::EPOCH);
        let new = self.send_now || self.fifo.has_new();
        if self.allowance_used || self.allowed_bytes() == 0 {
            return None;
        }
        if !self.is_spaced {
            return new.then_some(Instant::EPOCH);
        }
        let (fraction, least, most) = SPACING;
        let spacing = (self.rtt.smoothed().unwrap_or(most) / fraction).clamp(least, most);
        let spacing = spacing.max(self.reverse_spacing);
        earliest([
            new.then_some(last + spacing),
            self.fifo.has_copies_left().then_some(last + self.report_interval()),
            report.map(|at| at.max(last)),
        ])
    }

    /// Appends a control packet of at most `limit` bytes. `end_received`: it acknowledges the END.
    pub(super) fn put(
        &mut self,
        now: Instant,
        codec: &mut Codec,
        out: &mut Vec<u8>,
        limit: usize,
        end_received: bool,
        report: Option<&Report>,
    ) {
        let allowed = limit.min(self.allowed_bytes());
        self.allowance_used = allowed < limit;
        let limits = (end_received, self.rate_limit);
        self.send_now = codec.put_control(now, out, allowed, limits, report, &mut self.fifo);
        self.last_sent = Some(now);
        self.packets += 1;
    }

    /// The interval of reports and repeated messages.
    pub(super) fn report_interval(&self) -> Duration {
        self.rtt.report_interval().max(self.reverse_spacing)
    }

    /// Least spacing of control packets, because of the queue on the reverse path.
    pub(super) fn reverse_spacing(&self) -> Duration {
        self.reverse_spacing
    }

    /// Whether the queueing delay on the reverse path is at least the smallest round trip. Less is
    /// usual jitter.
    pub(super) fn has_reverse_queue(&self) -> bool {
        let queue = self.reverse_spacing * SPACING_PART;
        !queue.is_zero() && self.rtt.smallest().is_some_and(|least| queue >= least)
    }

    // ---- what is known of the path

    /// The round trip of control messages.
    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The progress of unacknowledged messages, if there are any. `received`: new packets of data,
    /// which are progress too, whatever is not acknowledged.
    pub(super) fn progress(&self, received: u64) -> Option<ProgressCounter> {
        let signs = u64::from(self.fifo.acknowledged().0) + received;
        (!self.fifo.is_empty()).then_some(ProgressCounter { signs, tries: self.packets })
    }

    /// The time scale of progress, where bursts are `interval` apart. Repeated messages measure no
    /// round trip (Karn's rule), so half a minute of queue on the forward path may never be
    /// measured; the acknowledgement delay shows it.
    pub(super) fn pace_of_progress(&self, interval: Duration) -> ProgressTimescale {
        let (round_trip, answer) = (self.rtt.assumed(), self.fifo.ack_delay());
        ProgressTimescale { round_trip, answer, interval }
    }

    /// Adds its counts.
    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        stats.rtt = self.rtt.smoothed();
        stats.min_rtt = self.rtt.smallest();
        stats.control_packets = self.packets;
        stats.control_timeouts = self.timeouts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::tests::negotiated;
    use crate::wire::Wire;

    fn control(wire: Wire) -> OutgoingControl {
        OutgoingControl::new(&negotiated(wire, 4))
    }

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn the_spacing_follows_the_queue_on_the_reverse_path() {
        let mut control = control(Wire::Sealed);
        control.push_ok(BufferNumber(1));
        control.on_early_sent(ms(100), ms(100), true);
        control.hasten();
        // A sixteenth of 40 ms is more than the most.
        assert_eq!(control.packet_deadline(None), Some(ms(101)));
        control.on_reverse_queue(120);
        assert_eq!(control.packet_deadline(None), Some(ms(130)), "it grows at once");
        assert!(control.has_reverse_queue());
        control.on_reverse_queue(0);
        assert_eq!(control.reverse_spacing(), Duration::from_micros(22_500), "it shrinks by steps");
        assert_eq!(control.report_interval(), Duration::from_micros(22_500));
    }

    #[test]
    fn the_timer_backs_off_once_for_messages_that_left_one_by_one() {
        let mut control = control(Wire::Rfc998);
        let timeout = control.rtt().timeout();
        control.expire(ms(1000));
        let longer = control.rtt().timeout();
        control.expire(ms(1001));
        assert_eq!((longer > timeout, control.rtt().timeout()), (true, longer));
        // A repeated message measures nothing; the last measurement is too old by then.
        control.on_round_trip(ms(60_000), None, false);
        assert_eq!(control.rtt().timeout(), longer);
        control.on_round_trip(ms(60_000), None, true);
        assert_eq!(control.rtt().timeout(), timeout);
    }

    #[test]
    fn nothing_leaves_beyond_the_amplification_limit() {
        let mut control = control(Wire::Rfc998);
        control.push_ok(BufferNumber(1));
        assert_eq!(control.packet_deadline(None), Some(Instant::EPOCH));
        control.set_allowance(Some(MIN_CONTROL_BYTES - 1));
        assert_eq!((control.packet_deadline(None), control.takes_requests()), (None, false));
        control.set_allowance(Some(MIN_CONTROL_BYTES));
        assert_eq!(control.packet_deadline(None), Some(Instant::EPOCH));
        // A packet that was cut to the limit is the last one.
        control.allowance_used = true;
        assert_eq!(control.packet_deadline(None), None);
        control.renew_allowance();
        assert_eq!(control.packet_deadline(None), Some(Instant::EPOCH));
    }

    #[test]
    fn a_rate_limit_leaves_at_once_where_control_packets_carry_it() {
        for (wire, leaves) in [(Wire::Sealed, true), (Wire::Rfc998, false)] {
            let mut control = control(wire);
            control.set_rate_limit(None);
            assert_eq!(control.packet_deadline(None), None, "it is not set");
            control.set_rate_limit(Some(None));
            assert_eq!(control.packet_deadline(None).is_some(), leaves);
        }
    }
}
