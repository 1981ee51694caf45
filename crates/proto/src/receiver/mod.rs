//! The data receiver: owns the timers, grants buffers and requests missing packets.
//!
//! Buffer states of RFC 998 §5.2.2: a granted buffer is in ACK-WAIT while a control message for it
//! is unacknowledged, ACKED until its first packet, RECEIVING until its last, then RECEIVED, when
//! it leaves as [`Event::Filled`]. The state machine is drawn in `docs/protocol §10.2`.

mod assemblies;
mod assembly;
mod credit;
mod data_path;
mod fec;
mod feedback;
mod header_prediction;
mod pmtud;
mod progress_evidence;
mod resend_requests;
mod runtime_control;
mod states;
#[cfg(test)]
mod tests;
mod tracing;

use std::collections::VecDeque;
use std::time::Duration;

use assemblies::Assemblies;
pub use feedback::Feedback;
use header_prediction::HeaderPrediction;
use pmtud::ReceiverPmtud;
use resend_requests::ResendRequests;
use runtime_control::ReceiverSettings;
use states::PhaseStep;
pub(crate) use states::ReceiverPhase;
#[cfg(test)]
pub(crate) use states::ReceivingState;

use crate::api::{Event, RecvMeta};
use crate::buffer::Buffer;
use crate::codec::Codec;
use crate::control_fifo::ControlFifo;
use crate::limits::{MAX_HAVE, MAX_HAVE_IN_ALL, MAX_HAVE_UNHEARD};
use crate::loss_detection::{self, LossDetection, LossDetector, TimingInfo};
use crate::negotiated::{Negotiated, PacketOutcome};
use crate::rtt::{RttEstimator, without};
use crate::stats::{Stats, SteadyState};
use crate::time::{Instant, earliest};
use crate::timers::{ReceiverTimer, Timer, first};
use crate::trace::{Recorder, Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{End, Go, Have, Message, NullAck, Verdict};

/// Room that the FIFO must have before the loss detector is polled.
const REQUEST_ROOM: usize = 1100;
/// Closest spacing of control packets on `sealed`, as a fraction of the round trip and in time.
const SPACING: (u32, Duration, Duration) =
    (16, Duration::from_micros(50), Duration::from_millis(1));

/// Age of the last measurement, in round trips, up to which it counts as recent. With 4 a path that
/// loses 30 % in each direction carries a fifth less: two messages in three are repeated there, and
/// none of them can be measured.
const MEASURED_LATELY: u32 = 32;
/// Bytes of a control packet that are not the ranges of a RESEND, a REPORT among them.
const NOT_RANGES: usize = 128;

/// The spacing of control packets as a part of their queueing delay on the reverse path: where the
/// queue is their own, it stabilises at this many of them.
const SPACING_PART: u32 = 4;

/// The receiving machine.
#[derive(Debug)]
pub(crate) struct Receiver {
    negotiated: Negotiated,
    /// Offered buffers, not granted: more than may be outstanding, or the FIFO was full.
    free_buffers: Vec<Buffer>,
    /// HAVE messages that are not in the FIFO yet.
    pending_have: VecDeque<Have>,
    assemblies: Assemblies,
    fifo: ControlFifo,
    rtt: RttEstimator,
    /// When the round trip was last measured.
    measured: Instant,
    requests: ResendRequests,
    feedback: Feedback,
    pmtud: ReceiverPmtud,
    /// Time for which this host was suspended while the current packet waited.
    host_stall: Duration,
    /// Least spacing of control packets, because of the queue on the reverse path.
    reverse_spacing: Duration,
    /// The number of the last buffer of the transfer, once known.
    last: Option<BufferNumber>,
    end: Option<End>,
    phase: ReceiverPhase,
    /// A control packet must leave now, whatever the report interval.
    send_now: bool,
    last_control: Option<Instant>,
    /// When the control timer last backed off.
    backed_off: Option<Instant>,
    pub(crate) events: VecDeque<Event>,
    first_pass: SteadyState,
    pub(crate) stats: Stats,
    /// Most bytes of a datagram now, within the amplification limit.
    pub(crate) allowance: usize,
    /// The limit is used up: nothing leaves before the control timer expires or a packet arrives.
    pub(crate) allowance_used: bool,
    /// Full buffers that the client has not returned: its disk.
    held: u32,
    /// The grants under way were granted with RESPONSE, before the round trip was known.
    early_control: bool,
    settings: ReceiverSettings,
    prediction: HeaderPrediction,
    pub(crate) trace: Recorder,
}

impl Receiver {
    pub(crate) fn new(negotiated: Negotiated, detector: Box<dyn LossDetector>) -> Self {
        let message_limit = pmtud::message_limit(&negotiated);
        let range_bytes = message_limit.saturating_sub(NOT_RANGES);
        Self {
            negotiated,
            free_buffers: Vec::new(),
            pending_have: VecDeque::new(),
            assemblies: Assemblies::new(negotiated.geometry),
            fifo: ControlFifo::new(negotiated.profile.control),
            rtt: RttEstimator::new(negotiated.rtt, negotiated.longest_rtt)
                .with_piggybacked_acks(negotiated.profile.piggybacks_acks),
            measured: negotiated.opened,
            requests: ResendRequests::new(&negotiated, detector, message_limit, range_bytes),
            feedback: Feedback::default(),
            host_stall: Duration::ZERO,
            reverse_spacing: Duration::ZERO,
            pmtud: ReceiverPmtud::new(
                negotiated.geometry.packet_bytes,
                negotiated.profile.data_overhead,
            ),
            last: None,
            end: None,
            phase: ReceiverPhase::Receiving,
            send_now: false,
            last_control: None,
            backed_off: None,
            events: VecDeque::new(),
            first_pass: SteadyState::default(),
            stats: Stats::default(),
            allowance: usize::MAX,
            allowance_used: false,
            held: 0,
            early_control: false,
            settings: ReceiverSettings::default(),
            prediction: HeaderPrediction::default(),
            trace: Recorder::default(),
        }
    }

    /// The early control messages of a receiver, before the handshake is confirmed
    /// (`docs/protocol §4.3`): HAVE, and a GO for `buffers`. `None` if they do not fit into one
    /// packet. The receiver repeats them later under the same sequence numbers.
    pub(crate) fn early_messages(
        negotiated: Negotiated,
        have: &[u8],
        buffers: u32,
    ) -> Option<ControlFifo> {
        let mut receiver = Self::new(negotiated, loss_detection::build(LossDetection::EarlyGaps));
        receiver.announce_have(have, false);
        let count = buffers.min(receiver.most_outstanding());
        if count == 0 || !receiver.pending_have.is_empty() {
            return None;
        }
        receiver.fifo.push(receiver.go(BufferNumber::FIRST, count));
        Some(receiver.fifo)
    }

    /// The messages in the FIFO left at `at` as early control, and perhaps again since (`once`):
    /// they are repeated only if they are not acknowledged soon.
    pub(crate) fn on_early_control_sent(&mut self, now: Instant, at: Instant, once: bool) {
        self.fifo.was_sent(at, once);
        self.last_control = Some(now);
        self.early_control = false;
        self.grant(now);
    }

    // ---- the client's verbs

    /// An empty buffer: granted if it may be, kept or handed back if not.
    pub(crate) fn offer(&mut self, now: Instant, buffer: Buffer) {
        self.forget_prediction();
        if buffer.capacity() < self.negotiated.geometry.buffer_bytes as usize {
            self.events.push_back(Event::Returned(buffer));
            return;
        }
        self.free_buffers.push(buffer);
        self.held = self.held.saturating_sub(1);
        self.note_buffer(now, BufferNumber(0), Stage::Offered);
        self.grant(now);
    }

    /// The list of the client's stored data: HAVEs go into the FIFO, before the first GO.
    /// `early_control`: this list, and the buffers offered until [`Self::on_early_control_sent`],
    /// were in the early control packet.
    pub(crate) fn announce_have(&mut self, have: &[u8], early_control: bool) {
        self.forget_prediction();
        self.early_control = early_control;
        let begun = self.fifo.has_begun() || !self.pending_have.is_empty();
        if !self.negotiated.profile.verdict || begun {
            return;
        }
        let have = if have.len() > MAX_HAVE_IN_ALL { &[] } else { have };
        let part = self.message_limit().saturating_sub(NOT_RANGES).clamp(1, MAX_HAVE);
        let parts = have.chunks(part).map(|part| Have { bytes: part.to_vec(), last: false });
        self.pending_have.extend(parts);
        match self.pending_have.back_mut() {
            Some(part) => part.last = true,
            None => self.pending_have.push_back(Have { bytes: Vec::new(), last: true }),
        }
        self.queue_have();
    }

    fn queue_have(&mut self) {
        while self.fifo.len() < MAX_HAVE_UNHEARD
            && let Some(part) = self.pending_have.pop_front()
        {
            self.fifo.push(Message::Have(part));
        }
    }

    /// The client's verdict: DONE goes into the FIFO.
    pub(crate) fn set_verdict(&mut self, mut verdict: Verdict) {
        if self.negotiated.profile.verdict && self.phase.take(PhaseStep::Verdict) {
            let room = self.message_limit().saturating_sub(NOT_RANGES);
            verdict.reason.truncate(verdict.reason.floor_char_boundary(room));
            self.fifo.push(Message::Done(verdict));
        }
    }

    /// Whether the transfer is decided and only acknowledgements are missing: the verdict was
    /// given, or, on a wire without one, everything has arrived.
    pub(crate) fn is_settled(&self) -> bool {
        match self.phase {
            ReceiverPhase::Receiving => false,
            ReceiverPhase::Complete => !self.negotiated.profile.verdict,
            ReceiverPhase::Decided | ReceiverPhase::Finished => true,
        }
    }

    /// Whether the highest buffer with an arrival has its last packet.
    pub(crate) fn is_between_buffers(&self) -> bool {
        self.assemblies.has_ended(self.requests.highest_buffer())
    }

    /// Whether the peer acknowledged every message.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == ReceiverPhase::Finished
    }

    /// Hands every buffer back.
    pub(crate) fn release_all(&mut self, now: Instant) {
        self.forget_prediction();
        self.events.extend(self.free_buffers.drain(..).map(Event::Returned));
        for (number, buffer) in self.assemblies.take_all() {
            self.note_buffer(now, number, Stage::Released);
            self.events.push_back(Event::Returned(buffer));
        }
    }

    fn grant(&mut self, now: Instant) {
        self.queue_have();
        if !self.pending_have.is_empty() {
            return;
        }
        self.renew(now);
        if self.paused() {
            return;
        }
        while let Some(buffer) = self.free_buffers.pop() {
            let number = self.assemblies.next();
            if self.last.is_some_and(|last| number > last) {
                self.events.push_back(Event::Returned(buffer));
                continue;
            }
            if self.assemblies.len() >= self.most_outstanding() || !self.fifo.has_room(1) {
                self.free_buffers.push(buffer);
                return;
            }
            self.assemblies.grant(buffer, self.geometry());
            let seq = self.fifo.push(self.go(number, 1));
            self.requests.on_granted(now, number, seq);
            self.assemblies.on_requested(number, seq);
            self.note_buffer(now, number, Stage::Granted);
        }
    }

    /// A first GO for `count` buffers.
    fn go(&self, first: BufferNumber, count: u32) -> Message {
        Message::Go(Go { first, count, packet_bytes: self.geometry().packet_bytes, generation: 0 })
    }

    // ---- from the network

    /// No buffer after `last` will come: buffers granted beyond it are returned.
    fn learn_last(&mut self, now: Instant, last: BufferNumber) {
        if self.last.is_some() {
            return;
        }
        self.last = Some(last);
        for (number, buffer) in self.assemblies.take_after(last) {
            self.requests.on_returned(number);
            self.note_buffer(now, number, Stage::Released);
            self.events.push_back(Event::Returned(buffer));
        }
        self.events.extend(self.free_buffers.drain(..).map(Event::Returned));
        self.check_complete();
    }

    fn check_complete(&mut self) {
        let Some(last) = self.last else { return };
        let all_here = self.assemblies.next() > last && self.assemblies.is_empty();
        if all_here && self.phase.take(PhaseStep::AllHere) {
            self.events.push_back(Event::Complete(self.end));
        }
    }

    /// A NULL-ACK.
    pub(crate) fn handle_null_ack(&mut self, now: Instant, null_ack: &NullAck) -> PacketOutcome {
        self.requests.on_announced(null_ack);
        self.stats.limit = null_ack.limit;
        self.on_ack(now, null_ack.ack);
        self.on_size(now, null_ack);
        self.on_reverse_queue(null_ack);
        let through = null_ack.sent_through.filter(|_| self.knows_renewals(null_ack.ack));
        if let Some(through) = through {
            self.requests.on_drained(now, null_ack.ack, through);
        }
        let Some(end) = null_ack.end else { return PacketOutcome::Authentic };
        self.send_now = true;
        if self.end.is_some_and(|known| known != end) {
            return PacketOutcome::Violation("two different ENDs");
        }
        let beyond = self.assemblies.has_data_after(BufferNumber(end.buffers));
        if beyond || self.stats.buffers_done > end.buffers {
            return PacketOutcome::Violation("an END before data that were sent");
        }
        self.end = Some(end);
        self.learn_last(now, BufferNumber(end.buffers));
        PacketOutcome::Authentic
    }

    /// Counts an authentic packet of the sender for REPORT; its bytes without and with padding.
    pub(crate) fn on_authentic(
        &mut self,
        now: Instant,
        number: PacketNumber,
        bytes: usize,
        whole: usize,
        meta: RecvMeta,
    ) {
        self.forget_prediction();
        self.host_stall = meta.host_stall();
        if self.negotiated.profile.reports {
            self.count(now, number, bytes, whole, meta);
        }
    }

    fn on_ack(&mut self, now: Instant, ack: ControlSeq) {
        let trace = self.trace.is_on();
        let mut accepted = Vec::new();
        let min_rtt = self.rtt.smallest();
        let left = self.fifo.acknowledge(now, ack, min_rtt, |message| match message {
            Message::Ok(ok) if trace => accepted.push((ok.first, ok.count)),
            _ => {}
        });
        let Some(left) = left else { return };
        self.assemblies.on_acknowledged(ack);
        self.on_control_acked();
        for (first, count) in accepted {
            for number in (first.0..first.0.saturating_add(u64::from(count))).map(BufferNumber) {
                self.note_buffer(now, number, Stage::Accepted);
            }
        }
        // The back-off of a timer stays until there is a measurement (RFC 6298 §5.7), unless there
        // was one lately. On a path that became longer every message is repeated before its answer
        // arrives, and none can be measured. With much loss nearly every message is repeated for
        // that reason, and a fixed-rate sender of `rfc998` must find its phase soon (RFC 1030 §6).
        let lately = self.measured + self.rtt.assumed() * MEASURED_LATELY;
        match left.rtt {
            Some(sample) => {
                self.rtt.sample(without(sample, self.host_stall));
                self.measured = now;
            }
            None if now < lately || self.requests.loses_much(&self.stats) || self.is_fixed() => {
                self.rtt.reset_back_off();
            }
            None => {}
        }
        let timing = self.timing();
        self.requests.on_acknowledged(now, ack, &timing);
        self.grant(now);
        let all_acked = match self.negotiated.profile.verdict {
            true => left.done,
            false => self.fifo.is_empty(),
        };
        if all_acked {
            self.phase.take(PhaseStep::AllAcked);
        }
    }

    fn timing(&self) -> TimingInfo {
        self.requests.timing(&self.rtt, self.has_reverse_queue())
    }

    // ---- time and output

    /// Puts the loss detector's requests into the FIFO.
    fn request_missing(&mut self, now: Instant) {
        let timing = self.timing();
        for resend in self.requests.expire(now, &self.assemblies, &timing) {
            let number = resend.buffer;
            let seq = self.fifo.push(Message::Resend(resend.clone()));
            let outstanding = self.assemblies.on_requested(number, seq);
            let packets = self.requests.on_requested(now, &resend, seq, outstanding);
            self.trace.note(now, || TraceEvent::Resend { number: number.0, packets });
        }
        if self.requests.take_timeout() {
            self.trace.note(now, || TraceEvent::Timer { timer: ReceiverTimer::Data.into() });
        }
    }

    /// Handles the timers that have expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.forget_prediction();
        for timer in ReceiverTimer::ACTIONS {
            if self.deadline(timer).is_some_and(|at| at <= now) {
                self.expire(timer, now);
            }
        }
    }

    /// When `timer` expires, if it is set.
    fn deadline(&self, timer: ReceiverTimer) -> Option<Instant> {
        match timer {
            ReceiverTimer::Control => self.fifo.deadline(self.rtt.timeout()),
            ReceiverTimer::Data => {
                // Not while nothing may leave.
                let room = self.fifo.has_room(REQUEST_ROOM) && self.allowed_bytes() > 0;
                self.requests.deadline(room)
            }
            ReceiverTimer::ControlPacket => self.next_control(),
        }
    }

    fn expire(&mut self, timer: ReceiverTimer, now: Instant) {
        match timer {
            ReceiverTimer::Control => self.on_control_timer(now),
            ReceiverTimer::Data => self.request_missing(now),
            ReceiverTimer::ControlPacket => {}
        }
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self) -> Option<(Timer, Instant)> {
        let all = ReceiverTimer::ACTIONS.into_iter().chain(ReceiverTimer::OUTPUTS);
        first(all.map(|timer| (timer.into(), self.deadline(timer))))
    }

    fn on_control_timer(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        self.fifo.expire(now, timeout);
        self.stats.control_timeouts += 1;
        self.on_control_expiry();
        // Backs off once per timeout, however many messages expire: they left one by one.
        if self.backed_off.is_none_or(|at| at + timeout <= now) {
            self.backed_off = Some(now);
            self.rtt.back_off();
        }
        self.send_now = true;
        if std::mem::take(&mut self.allowance_used) {
            self.fifo.start_over();
        }
        self.trace.note(now, || TraceEvent::Timer { timer: ReceiverTimer::Control.into() });
    }

    /// Appends the control packet that is due, if one is.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> bool {
        self.forget_prediction();
        if self.deadline(ReceiverTimer::ControlPacket).is_none_or(|at| at > now) {
            return false;
        }
        let rtt = self.rtt.assumed();
        let report = match self.feedback.due(self.report_interval(), self.reverse_spacing) {
            Some(at) if at <= now => self.feedback.report(now, self.negotiated.opened, rtt),
            _ => None,
        };
        let end_received = self.end.is_some();
        let limit = self.control_limit().min(self.allowed_bytes());
        self.allowance_used = limit < self.control_limit();
        let limits = (end_received, self.rate_limit());
        let more = codec.put_control(now, out, limit, limits, report.as_ref(), &mut self.fifo);
        self.send_now = more;
        self.last_control = Some(now);
        self.stats.control_packets += 1;
        self.note_control(now);
        true
    }

    /// When the next control packet is due.
    fn next_control(&self) -> Option<Instant> {
        let last = self.last_control.unwrap_or(Instant::EPOCH);
        let new = self.send_now || self.fifo.has_new();
        if self.allowance_used || self.allowed_bytes() == 0 {
            return None;
        }
        if !self.negotiated.profile.spaced_control {
            return new.then_some(Instant::EPOCH);
        }
        let (fraction, least, most) = SPACING;
        let spacing = (self.rtt.smoothed().unwrap_or(most) / fraction).clamp(least, most);
        let (spacing, interval) = (spacing.max(self.reverse_spacing), self.report_interval());
        earliest([
            new.then_some(last + spacing),
            self.fifo.has_copies_left().then_some(last + interval),
            self.feedback.due(interval, self.reverse_spacing).map(|at| at.max(last)),
        ])
    }

    /// The interval of reports and repeated messages.
    fn report_interval(&self) -> Duration {
        self.rtt.report_interval().max(self.reverse_spacing)
    }

    /// Whether the queueing delay on the reverse path is at least the smallest round trip. Less is
    /// usual jitter.
    fn has_reverse_queue(&self) -> bool {
        let queue = self.reverse_spacing * SPACING_PART;
        !queue.is_zero() && self.rtt.smallest().is_some_and(|least| queue >= least)
    }

    /// The sender's report of the reverse path's queue.
    fn on_reverse_queue(&mut self, null_ack: &NullAck) {
        let wanted = Duration::from_millis(null_ack.back_millis.into()) / SPACING_PART;
        // The spacing grows at once and shrinks step by step: the queue is gone before that is
        // known.
        self.reverse_spacing = wanted.max(self.reverse_spacing * 3 / 4);
    }

    /// The highest control message the sender acknowledged.
    pub(crate) fn acknowledged(&self) -> ControlSeq {
        self.fifo.acknowledged()
    }

    /// The control timer's present value.
    pub(crate) fn control_timer(&self) -> Duration {
        self.rtt.timeout()
    }

    /// Brings the derived counts up to date.
    pub(crate) fn fill_stats(&self, stats: &mut Stats) {
        stats.rtt = self.rtt.smoothed();
        stats.min_rtt = self.rtt.smallest();
        stats.outstanding = self.assemblies.len();
        self.requests.fill_stats(stats);
        stats.agreed = self.negotiated.burst_limit();
        stats.socket_bytes = self.negotiated.socket_bytes;
        stats.held_to_socket = self.most_outstanding() < self.negotiated.max_outstanding;
        stats.datagram_bytes = self.geometry().packet_bytes + self.negotiated.profile.data_overhead;
    }

    /// Whether the sender keeps to the negotiated burst values, on a wire without REPORTs.
    fn is_fixed(&self) -> bool {
        !self.negotiated.profile.reports && self.requests.keeps_to_rate()
    }

    /// Its phase, for tables.
    #[cfg(test)]
    pub(crate) fn phase(&self) -> ReceiverPhase {
        self.phase
    }

    /// The state of `buffer`, for tables; `None` if it was not granted.
    #[cfg(test)]
    pub(crate) fn buffer_state(&self, buffer: BufferNumber) -> Option<ReceivingState> {
        self.assemblies.state(buffer)
    }
}
