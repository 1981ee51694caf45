//! The data receiver: owns the timers, grants buffers and requests missing packets.
//!
//! [`Receiver`] only routes: it passes each input to the components concerned, and their decisions
//! to the others. `impl Receiver` is in two files: the arrival of data is in `data_path.rs`, and
//! everything else here.
//!
//! Buffer states of RFC 998 §5.2.2: a granted buffer is in ACK-WAIT while a control message for it
//! is unacknowledged, ACKED until its first packet, RECEIVING until its last, then RECEIVED, when
//! it leaves as [`Event::Filled`]. The state machine is drawn in `docs/protocol §10.2`.

mod assemblies;
mod assembly;
mod data_path;
mod data_stats;
mod end_of_transfer;
mod fec;
mod grants;
mod header_prediction;
mod outgoing_control;
mod pmtud;
mod resend_requests;
mod states;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use assemblies::Assemblies;
use data_stats::DataStats;
use end_of_transfer::ReceiverEnd;
use grants::Grants;
use header_prediction::HeaderPrediction;
use outgoing_control::OutgoingControl;
use pmtud::ReceiverPmtud;
use resend_requests::ResendRequests;
#[cfg(test)]
pub(crate) use states::{ReceiverPhase, ReceivingState};

use crate::api::Event;
use crate::buffer::Buffer;
use crate::codec::Codec;
use crate::control_fifo::ControlFifo;
use crate::loss_detection::reported::Feedback;
use crate::loss_detection::{LossDetector, TimingInfo};
use crate::negotiated::{Negotiated, PacketOutcome, ProgressCounter, ProgressTimescale};
use crate::stats::Stats;
use crate::time::Instant;
use crate::timers::{ReceiverTimer, Timer, first};
use crate::trace::{ReceiverLine, Recorder, Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq, Rate};
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
    data: DataStats,
    prediction: HeaderPrediction,
    pub(crate) events: VecDeque<Event>,
    pub(crate) trace: Recorder,
}

impl Receiver {
    pub(crate) fn new(negotiated: Negotiated, detector: Box<dyn LossDetector>) -> Self {
        let pmtud = ReceiverPmtud::new(&negotiated);
        Self {
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
            data: DataStats::default(),
            prediction: HeaderPrediction::default(),
            events: VecDeque::new(),
            trace: Recorder::default(),
            negotiated,
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
            self.data.on_renewed(void);
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

    /// A NULL-ACK.
    pub(crate) fn handle_null_ack(&mut self, now: Instant, null_ack: &NullAck) -> PacketOutcome {
        self.requests.on_announced(null_ack);
        self.data.on_limit(null_ack.limit);
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
        if self.assemblies.has_data_after(last) || self.data.counts().buffers_done > end.buffers {
            return PacketOutcome::Violation("an END before data that were sent");
        }
        self.end.on_end(end);
        self.learn_last(now, last);
        PacketOutcome::Authentic
    }

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
        // A fixed-rate sender is one on a wire without REPORTs.
        let is_fixed = !self.negotiated.profile.reports && self.requests.keeps_to_rate();
        let much_is_repeated = is_fixed || self.requests.loses_much(self.data.counts());
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

    // ---- time and output

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

    // ---- what is known

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

    /// Whether a sent message is unacknowledged.
    pub(crate) fn waits_for_ack(&self) -> bool {
        self.control.unacked() > 0
    }

    /// The highest control message the sender acknowledged.
    pub(crate) fn acknowledged(&self) -> ControlSeq {
        self.control.acknowledged()
    }

    /// The control timer's present value.
    pub(crate) fn control_timer(&self) -> Duration {
        self.control.rtt().timeout()
    }

    /// The progress that the watchdog expects, if any (`docs/protocol §7.6`): of buffers with an
    /// arrival, once more of them was requested, since the sender has them; and of unacknowledged
    /// messages. A sender without any data so far may be waiting for its client.
    pub(crate) fn underway(&self) -> [Option<ProgressCounter>; 2] {
        let signs = self.data_packets();
        let requested = self.requests.unanswered().filter(|_| self.assemblies.is_any_supplied());
        let missing = requested.map(|tries| ProgressCounter { signs, tries });
        [missing, self.control.progress(signs)]
    }

    /// The time scale of progress.
    pub(crate) fn pace_of_progress(&self) -> ProgressTimescale {
        self.control.pace_of_progress(self.requests.announced_burst().interval)
    }

    /// Packets of data that arrived and were new.
    pub(crate) fn data_packets(&self) -> u64 {
        self.data.counts().data_packets_received
    }

    /// Bytes that arrived, and the smallest round trip.
    pub(crate) fn moved(&self) -> (u64, Option<Duration>) {
        (self.data.counts().image_bytes, self.control.rtt().smallest())
    }

    /// Counts and measurements so far.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.data.counts().clone();
        self.control.fill_stats(&mut stats);
        self.requests.fill_stats(&mut stats);
        stats.outstanding = self.assemblies.len();
        stats.agreed = self.negotiated.burst_limit();
        stats.socket_bytes = self.negotiated.socket_bytes;
        stats.held_to_socket = self.grants.is_held_to_socket(self.control.rtt().smallest());
        stats.datagram_bytes = self.pmtud.granted_datagram_bytes();
        stats
    }

    // ---- trace

    #[inline]
    fn note_buffer(&mut self, now: Instant, number: BufferNumber, stage: Stage) {
        let (outstanding, held) = (self.assemblies.len(), self.grants.held());
        self.trace.note(now, || TraceEvent::Buffer { number: number.0, stage, outstanding, held });
    }

    #[inline]
    fn note_control(&mut self, now: Instant) {
        let counts = self.data.counts();
        self.trace.note(now, || {
            TraceEvent::Receiver(ReceiverLine {
                rtt: self.control.rtt().smoothed(),
                outstanding: self.assemblies.len(),
                held: self.grants.held(),
                received: counts.data_packets_received,
                duplicate: counts.data_packets_duplicate,
                lost: self.requests.lost(counts),
                delivered: counts.image_bytes,
                unacknowledged: self.control.unacked() as u32,
            })
        });
    }
}

#[cfg(test)]
impl Receiver {
    /// Its phase, for tables.
    pub(crate) fn phase(&self) -> ReceiverPhase {
        self.end.phase()
    }

    /// The state of `buffer`, for tables; `None` if it was not granted.
    pub(crate) fn buffer_state(&self, buffer: BufferNumber) -> Option<ReceivingState> {
        self.assemblies.state(buffer)
    }
}
