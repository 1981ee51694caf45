//! The data receiver: owns the timers, grants buffers and requests missing packets.
//!
//! Buffer states of RFC 998 §5.2.2: a granted buffer is in ACK-WAIT while a control message for it
//! is unacknowledged, ACKED until its first packet, RECEIVING until its last, then RECEIVED, when
//! it leaves as [`Event::Filled`]. The state machine is drawn in `docs/protocol §10.2`.

mod assemblies;
mod assembly;
mod data_path;
mod end_of_transfer;
mod fec;
mod feedback;
mod grants;
mod header_prediction;
mod outgoing_control;
mod pmtud;
mod progress_evidence;
mod resend_requests;
mod states;
#[cfg(test)]
mod tests;
mod tracing;

use std::collections::VecDeque;
use std::time::Duration;

use assemblies::Assemblies;
use end_of_transfer::ReceiverEnd;
pub use feedback::Feedback;
use grants::Grants;
use header_prediction::HeaderPrediction;
use outgoing_control::OutgoingControl;
use pmtud::ReceiverPmtud;
use resend_requests::ResendRequests;
#[cfg(test)]
pub(crate) use states::{ReceiverPhase, ReceivingState};

use crate::api::{Event, RecvMeta};
use crate::buffer::Buffer;
use crate::codec::Codec;
use crate::control_fifo::ControlFifo;
use crate::loss_detection::{LossDetector, TimingInfo};
use crate::negotiated::{Negotiated, PacketOutcome};
use crate::stats::{Stats, SteadyState};
use crate::time::Instant;
use crate::timers::{ReceiverTimer, Timer, first};
use crate::trace::{Recorder, Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq, PacketNumber, Rate};
use crate::wire::packet::{Go, Message, NullAck, Verdict};

/// The receiving machine.
#[derive(Debug)]
pub(crate) struct Receiver {
    negotiated: Negotiated,
    grants: Grants,
    assemblies: Assemblies,
    requests: ResendRequests,
    control: OutgoingControl,
    feedback: Feedback,
    pmtud: ReceiverPmtud,
    end: ReceiverEnd,
    pub(crate) events: VecDeque<Event>,
    first_pass: SteadyState,
    pub(crate) stats: Stats,
    prediction: HeaderPrediction,
    pub(crate) trace: Recorder,
}

impl Receiver {
    pub(crate) fn new(negotiated: Negotiated, detector: Box<dyn LossDetector>) -> Self {
        let pmtud = ReceiverPmtud::new(&negotiated);
        Self {
            negotiated,
            grants: Grants::new(&negotiated),
            assemblies: Assemblies::new(negotiated.geometry),
            requests: ResendRequests::new(
                &negotiated,
                detector,
                pmtud.message_limit(),
                pmtud.message_room(),
            ),
            control: OutgoingControl::new(&negotiated),
            feedback: Feedback::default(),
            pmtud,
            end: ReceiverEnd::new(&negotiated),
            events: VecDeque::new(),
            first_pass: SteadyState::default(),
            stats: Stats::default(),
            prediction: HeaderPrediction::default(),
            trace: Recorder::default(),
        }
    }

    /// The early control messages of a receiver, before the handshake is confirmed
    /// (`docs/protocol §4.3`): HAVE, and a GO for `buffers`. `None` if they do not fit into one
    /// packet. The receiver repeats them later under the same sequence numbers.
    pub(crate) fn early_messages(
        negotiated: &Negotiated,
        have: &[u8],
        buffers: u32,
    ) -> Option<ControlFifo> {
        let pmtud = ReceiverPmtud::new(negotiated);
        let mut control = OutgoingControl::new(negotiated);
        let mut grants = Grants::new(negotiated);
        grants.announce_have(have, pmtud.message_room(), false);
        while let Some(have) = grants.next_have(control.unacked()) {
            control.push(Message::Have(have));
        }
        let count = buffers.min(grants.most_outstanding(control.rtt().smallest()));
        if count == 0 || grants.waits_for_have() {
            return None;
        }
        let packet_bytes = pmtud.geometry().packet_bytes;
        let first = BufferNumber::FIRST;
        control.push(Message::Go(Go { first, count, packet_bytes, generation: 0 }));
        Some(control.into_fifo())
    }

    /// The messages in the FIFO left at `at` as early control, and perhaps again since (`once`):
    /// they are repeated only if they are not acknowledged soon.
    pub(crate) fn on_early_control_sent(&mut self, now: Instant, at: Instant, once: bool) {
        self.control.on_early_sent(now, at, once);
        self.grants.set_early(false);
        self.grant(now);
    }

    // ---- the client's verbs

    /// An empty buffer: granted if it may be, kept or handed back if not.
    pub(crate) fn offer(&mut self, now: Instant, buffer: Buffer) {
        self.forget_prediction();
        if let Some(small) = self.grants.offer(buffer) {
            self.events.push_back(Event::Returned(small));
            return;
        }
        self.note_buffer(now, BufferNumber(0), Stage::Offered);
        self.grant(now);
    }

    /// The list of the client's stored data: HAVEs go into the FIFO, before the first GO.
    /// `early_control`: this list, and the buffers offered until [`Self::on_early_control_sent`],
    /// were in the early control packet.
    pub(crate) fn announce_have(&mut self, have: &[u8], early_control: bool) {
        self.forget_prediction();
        self.grants.set_early(early_control);
        self.grants.announce_have(have, self.pmtud.message_room(), self.control.has_begun());
        self.queue_have();
    }

    /// Limits the sender to `most`, if set; nothing is granted while `paused`.
    pub(crate) fn steer(&mut self, now: Instant, most: Option<Option<Rate>>, paused: bool) {
        self.forget_prediction();
        self.control.set_rate_limit(most);
        self.grants.pause(paused);
        self.grant(now);
    }

    /// The client's verdict: DONE goes into the FIFO.
    pub(crate) fn set_verdict(&mut self, verdict: Verdict) {
        if let Some(done) = self.end.decide(verdict, self.pmtud.message_room()) {
            self.control.push(done);
        }
    }

    /// Whether the transfer is decided and only acknowledgements are missing: the verdict was
    /// given, or, on a wire without one, everything has arrived.
    pub(crate) fn is_settled(&self) -> bool {
        self.end.is_settled()
    }

    /// Whether the peer acknowledged every message.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    /// Whether the highest buffer with an arrival has its last packet.
    pub(crate) fn is_between_buffers(&self) -> bool {
        self.assemblies.has_ended(self.requests.highest_buffer())
    }

    /// Hands every buffer back.
    pub(crate) fn release_all(&mut self, now: Instant) {
        self.forget_prediction();
        self.events.extend(self.grants.take_all().map(Event::Returned));
        for (number, buffer) in self.assemblies.take_all() {
            self.note_buffer(now, number, Stage::Released);
            self.events.push_back(Event::Returned(buffer));
        }
    }

    // ---- grants

    fn queue_have(&mut self) {
        while let Some(have) = self.grants.next_have(self.control.unacked()) {
            self.control.push(Message::Have(have));
        }
    }

    fn grant(&mut self, now: Instant) {
        self.queue_have();
        if self.grants.waits_for_have() {
            return;
        }
        self.renew(now);
        while self.grants.is_ready() {
            let number = self.assemblies.next();
            if self.end.precedes(number) {
                self.events.extend(self.grants.take().map(Event::Returned));
                continue;
            }
            let most = self.grants.most_outstanding(self.control.rtt().smallest());
            if self.assemblies.len() >= most || !self.control.has_room() {
                return;
            }
            let Some(buffer) = self.grants.take() else { return };
            self.assemblies.grant(buffer, self.pmtud.geometry());
            self.push_go(now, number, 0);
            self.note_buffer(now, number, Stage::Granted);
        }
    }

    /// Grants buffers again that were granted with packets too large to pass, or smaller than
    /// necessary.
    fn renew(&mut self, now: Instant) {
        if !self.pmtud.renews() {
            return;
        }
        let geometry = self.pmtud.geometry();
        for number in self.assemblies.of_other_size(geometry.packet_bytes) {
            if !self.control.has_room() {
                return;
            }
            let Some((void, generation)) = self.assemblies.renew(number, geometry) else {
                continue;
            };
            self.stats.image_bytes = self.stats.image_bytes.saturating_sub(void);
            self.requests.on_renewed(number);
            let seq = self.push_go(now, number, generation);
            self.pmtud.on_renewed(seq);
        }
        self.pmtud.on_all_renewed();
    }

    /// Puts a GO for `number` into the FIFO.
    fn push_go(&mut self, now: Instant, number: BufferNumber, generation: u8) -> ControlSeq {
        let packet_bytes = self.pmtud.geometry().packet_bytes;
        let go = Go { first: number, count: 1, packet_bytes, generation };
        let seq = self.control.push(Message::Go(go));
        self.requests.on_granted(now, number, seq);
        self.assemblies.on_requested(number, seq);
        seq
    }

    // ---- from the network

    /// No buffer after `last` will come: buffers granted beyond it are returned.
    fn learn_last(&mut self, now: Instant, last: BufferNumber) {
        if !self.end.learn_last(last) {
            return;
        }
        for (number, buffer) in self.assemblies.take_after(last) {
            self.requests.on_returned(number);
            self.note_buffer(now, number, Stage::Released);
            self.events.push_back(Event::Returned(buffer));
        }
        self.events.extend(self.grants.take_all().map(Event::Returned));
        self.check_complete();
    }

    fn check_complete(&mut self) {
        if self.assemblies.is_empty() {
            self.events.extend(self.end.on_all_filled(self.assemblies.next()));
        }
    }

    /// A NULL-ACK.
    pub(crate) fn handle_null_ack(&mut self, now: Instant, null_ack: &NullAck) -> PacketOutcome {
        self.requests.on_announced(null_ack);
        self.stats.limit = null_ack.limit;
        self.on_ack(now, null_ack.ack);
        if self.pmtud.on_announced(null_ack, &self.assemblies) {
            self.grant(now);
        }
        self.control.on_reverse_queue(null_ack.back_millis);
        let through = null_ack.sent_through.filter(|_| self.pmtud.knows_renewals(null_ack.ack));
        if let Some(through) = through {
            self.requests.on_drained(now, null_ack.ack, through);
        }
        let Some(end) = null_ack.end else { return PacketOutcome::Authentic };
        self.control.hasten();
        if self.end.contradicts(end) {
            return PacketOutcome::Violation("two different ENDs");
        }
        let last = BufferNumber(end.buffers);
        if self.assemblies.has_data_after(last) || self.stats.buffers_done > end.buffers {
            return PacketOutcome::Violation("an END before data that were sent");
        }
        self.end.on_end(end);
        self.learn_last(now, last);
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
        self.control.on_packet(meta.host_stall());
        if self.negotiated.profile.reports {
            self.count(now, number, bytes, whole, meta);
        }
    }

    fn on_ack(&mut self, now: Instant, ack: ControlSeq) {
        let trace = self.trace.is_on();
        let mut accepted = Vec::new();
        let acked = self.control.acknowledge(now, ack, |message| match message {
            Message::Ok(ok) if trace => accepted.push((ok.first, ok.count)),
            _ => {}
        });
        let Some(acked) = acked else { return };
        self.assemblies.on_acknowledged(ack);
        self.pmtud.on_acknowledged();
        for (first, count) in accepted {
            for number in (first.0..first.0.saturating_add(u64::from(count))).map(BufferNumber) {
                self.note_buffer(now, number, Stage::Accepted);
            }
        }
        let much_is_repeated = self.is_fixed() || self.requests.loses_much(&self.stats);
        self.control.on_round_trip(now, acked.rtt, much_is_repeated);
        let timing = self.timing();
        self.requests.on_acknowledged(now, ack, &timing);
        self.grant(now);
        self.end.on_acknowledged(acked.done, self.control.unacked() == 0);
    }

    fn timing(&self) -> TimingInfo {
        self.requests.timing(self.control.rtt(), self.control.has_reverse_queue())
    }

    /// This host refuses to send datagrams of `bytes`. Returns whether control packets can be
    /// smaller.
    pub(crate) fn handle_size_refused(&mut self, bytes: u32) -> bool {
        self.pmtud.on_refused(bytes)
    }

    /// A datagram may have at most `bytes`, within the amplification limit; `None`: no such limit.
    pub(crate) fn set_allowance(&mut self, bytes: Option<usize>) {
        self.control.set_allowance(bytes);
    }

    /// A datagram arrived, which raises the amplification limit.
    pub(crate) fn renew_allowance(&mut self) {
        self.control.renew_allowance();
    }

    /// Whether a sent message is unacknowledged.
    pub(crate) fn waits_for_ack(&self) -> bool {
        self.control.unacked() > 0
    }

    // ---- time and output

    /// Puts the loss detector's requests into the FIFO.
    fn request_missing(&mut self, now: Instant) {
        let timing = self.timing();
        for resend in self.requests.expire(now, &self.assemblies, &timing) {
            let number = resend.buffer;
            let seq = self.control.push(Message::Resend(resend.clone()));
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
            ReceiverTimer::Control => self.control.timer_deadline(),
            ReceiverTimer::Data => self.requests.deadline(self.control.takes_requests()),
            ReceiverTimer::ControlPacket => self.control.packet_deadline(self.report_deadline()),
        }
    }

    fn expire(&mut self, timer: ReceiverTimer, now: Instant) {
        match timer {
            ReceiverTimer::Control => {
                self.control.expire(now);
                self.pmtud.on_control_timer();
                self.trace.note(now, || TraceEvent::Timer { timer: timer.into() });
            }
            ReceiverTimer::Data => self.request_missing(now),
            ReceiverTimer::ControlPacket => {}
        }
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self) -> Option<(Timer, Instant)> {
        let all = ReceiverTimer::ACTIONS.into_iter().chain(ReceiverTimer::OUTPUTS);
        first(all.map(|timer| (timer.into(), self.deadline(timer))))
    }

    /// When the next REPORT is due.
    fn report_deadline(&self) -> Option<Instant> {
        self.feedback.due(self.control.report_interval(), self.control.reverse_spacing())
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
        let report = match self.report_deadline() {
            Some(at) if at <= now => {
                self.feedback.report(now, self.negotiated.opened, self.control.rtt().assumed())
            }
            _ => None,
        };
        let (limit, end_received) = (self.pmtud.control_limit(), self.end.is_end_known());
        self.control.put(now, codec, out, limit, end_received, report.as_ref());
        self.note_control(now);
        true
    }

    /// The highest control message the sender acknowledged.
    pub(crate) fn acknowledged(&self) -> ControlSeq {
        self.control.acknowledged()
    }

    /// The control timer's present value.
    pub(crate) fn control_timer(&self) -> Duration {
        self.control.rtt().timeout()
    }

    /// Bytes that arrived, and the smallest round trip.
    pub(crate) fn moved(&self) -> (u64, Option<Duration>) {
        (self.stats.image_bytes, self.control.rtt().smallest())
    }

    /// Brings the derived counts up to date.
    pub(crate) fn fill_stats(&self, stats: &mut Stats) {
        self.control.fill_stats(stats);
        stats.outstanding = self.assemblies.len();
        self.requests.fill_stats(stats);
        stats.agreed = self.negotiated.burst_limit();
        stats.socket_bytes = self.negotiated.socket_bytes;
        stats.held_to_socket = self.grants.is_held_to_socket(self.control.rtt().smallest());
        stats.datagram_bytes = self.pmtud.granted_datagram_bytes();
    }

    /// Whether the sender keeps to the negotiated burst values, on a wire without REPORTs.
    fn is_fixed(&self) -> bool {
        !self.negotiated.profile.reports && self.requests.keeps_to_rate()
    }

    /// Its phase, for tables.
    #[cfg(test)]
    pub(crate) fn phase(&self) -> ReceiverPhase {
        self.end.phase()
    }

    /// The state of `buffer`, for tables; `None` if it was not granted.
    #[cfg(test)]
    pub(crate) fn buffer_state(&self, buffer: BufferNumber) -> Option<ReceivingState> {
        self.assemblies.state(buffer)
    }
}
