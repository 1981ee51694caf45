//! What the receiver says: control messages (RFC 998 §5.2.1) and REPORTs.
//!
//! Each message is handled once, in whatever order they come, and passed to the components that it
//! concerns. One that no correct receiver sends closes the connection.

use super::Sender;
use super::scheduler::ResendResult;
use crate::api::Event;
use crate::buffer::Geometry;
use crate::limits::MIN_SEALED_PACKET_BYTES;
use crate::negotiated::PacketOutcome;
use crate::rate::{Sample, is_long};
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{Accepted, Go, Have, Message, RateLimit, Report, Resend, Verdict};

impl Sender {
    /// The messages of a control packet. `Violation` if one is impossible.
    pub(crate) fn handle_control(
        &mut self,
        now: Instant,
        end_received: bool,
        messages: Vec<(ControlSeq, Message)>,
    ) -> PacketOutcome {
        if end_received {
            self.end.confirm();
        }
        self.rate.open();
        if let Some(coins) = &mut self.coins {
            coins.check(self.acks.high(), &messages);
        }
        for (seq, message) in messages {
            if !self.acks.take(now, seq) {
                continue;
            }
            if self.feedback.infers() {
                // A message shows that data, or acknowledgements in them, arrived; but not a RESEND
                // that repeats for packets which the window holds back.
                let is_resend = matches!(message, Message::Resend(_));
                if !is_resend || self.feedback.last_sent() > Some(self.breaker.reported()) {
                    self.breaker.restart(now);
                }
                // The first GO answers the RESPONSE.
                let longest = Some(now.since(self.negotiated.opened)).filter(|rtt| is_long(*rtt));
                if let (0, Some(longest)) = (self.records.stats.data_packets_sent, longest) {
                    self.rate.on_first_answer(longest);
                }
            }
            let taken = match message {
                Message::Go(go) => self.on_go(now, go),
                Message::Ok(ok) => {
                    self.acks.note_ok(seq);
                    self.on_ok(now, ok)
                }
                Message::Resend(resend) => self.on_resend(now, seq, &resend),
                Message::Done(verdict) => self.on_done(now, verdict),
                Message::Have(Have { bytes, last }) => {
                    self.records.events.push_back(Event::PeerHas { place: seq.0, bytes, last });
                    PacketOutcome::Authentic
                }
            };
            if taken != PacketOutcome::Authentic {
                return taken;
            }
        }
        self.handle_inferred(now);
        if !self.feedback.exists() {
            self.note_rate(now);
        }
        self.prolong(now);
        PacketOutcome::Authentic
    }

    /// A control packet was answered: the dally, if it had begun, starts again.
    fn prolong(&mut self, now: Instant) {
        if !self.negotiated.profile.verdict {
            self.end.prolong(now);
            return;
        }
        let (lost, sent) = (self.feedback.lost_packets(), self.data_packets_sent());
        let (gaps, interval) = (self.acks.has_gaps(), self.feedback.rtt().report_interval());
        if let Some(times) = self.end.leave(now, gaps, lost, sent, interval) {
            self.acks.repeat(now, times);
        }
    }

    /// Handles a REPORT.
    pub(crate) fn handle_report(&mut self, now: Instant, report: &Report) -> PacketOutcome {
        if let Some(what) = self.feedback.contradicts(report) {
            return PacketOutcome::Violation(what);
        }
        self.progress.on_largest(report.largest);
        let resize = self.pmtud.on_report(now, report, &self.probe_timing());
        self.resize(now, resize);
        if let Some(sample) = self.feedback.on_report(now, report) {
            let (highest, lost) = (report.highest, sample.lost_packets);
            let (known, timing) = (self.feedback.lost_packets(), self.probe_timing());
            let lost_packets =
                self.pmtud.lost_for_other_reasons(now, highest, lost, known, &timing);
            self.handle_sample(now, Sample { lost_packets, ..sample });
        }
        PacketOutcome::Authentic
    }

    /// Handles the feedback inferred from OKs and RESENDs, if any.
    pub(super) fn handle_inferred(&mut self, now: Instant) {
        if let Some(sample) = self.feedback.inferred(now) {
            self.handle_sample(now, sample);
        }
    }

    fn handle_sample(&mut self, now: Instant, sample: Sample) {
        self.breaker.on_sample(now, &sample);
        self.feedback.on_sample(now, &sample);
        self.fec.on_sample(sample.lost_packets, sample.delivered_packets);
        self.rate.on_sample(now, sample);
        self.note_rate(now);
    }

    /// A control packet has the receiver's rate limit (`sealed`). The newest packet counts.
    pub(crate) fn on_rate_limit(&mut self, now: Instant, number: PacketNumber, limit: RateLimit) {
        if self.rate.on_limit(now, number, limit) {
            self.note_rate(now);
        }
    }

    /// The receiver closed: no need to dally.
    pub(crate) fn handle_done_packet(&mut self) -> PacketOutcome {
        match self.end.close() {
            true => PacketOutcome::Authentic,
            false => PacketOutcome::Violation("closed before everything was sent"),
        }
    }

    fn on_go(&mut self, now: Instant, go: Go) -> PacketOutcome {
        let Some(end) = go.first.0.checked_add(u64::from(go.count)) else {
            return PacketOutcome::Violation("a GO past the last number");
        };
        if go.first < BufferNumber::FIRST {
            return PacketOutcome::Violation("a GO for a buffer below the first");
        }
        // A buffer that was not supplied was not sent, so it is outstanding at the receiver,
        // granted or not.
        let most = u64::from(self.negotiated.max_outstanding) * 2;
        if u64::from(go.count) > most || end > self.scheduler.next_supply().0.saturating_add(most) {
            return PacketOutcome::Violation("a GO for more buffers than were agreed");
        }
        let agreed = self.negotiated.geometry.packet_bytes;
        let packet_bytes = go.packet_bytes;
        if packet_bytes > agreed || packet_bytes < agreed.min(MIN_SEALED_PACKET_BYTES) {
            return PacketOutcome::Violation("a GO with packets of a size that was not agreed");
        }
        let geometry = Geometry { packet_bytes, ..self.negotiated.geometry };
        self.pmtud.on_granted(now, &go, self.feedback.rtt());
        self.scheduler.grant(&go, geometry);
        while let Some(number) = self.scheduler.next_wanted() {
            self.note_buffer(now, number, Stage::Granted);
            self.records.events.push_back(Event::Wanted(number));
        }
        PacketOutcome::Authentic
    }

    fn on_ok(&mut self, now: Instant, ok: Accepted) -> PacketOutcome {
        self.end.set_control_timer(ok.control_timer);
        let Some(end) = ok.first.0.checked_add(u64::from(ok.count)) else {
            return PacketOutcome::Violation("an OK past the last number");
        };
        let range = ok.first..BufferNumber(end);
        let skipped = self.coins.as_ref().is_some_and(|coins| coins.has_skipped(range.clone()));
        let accepted = if skipped { None } else { self.scheduler.accept(range) };
        let Some(accepted) = accepted else {
            return PacketOutcome::Violation("an OK for a buffer that was never sent");
        };
        if !accepted.is_empty() {
            self.pmtud.on_accepted();
            self.progress.on_accepted();
        }
        for (number, outgoing) in accepted {
            if let Some(coins) = &mut self.coins {
                coins.on_accepted(number);
            }
            self.feedback.on_ok(now, number);
            self.records.on_accepted(outgoing.len());
            self.note_buffer(now, number, Stage::Accepted);
            if let Some(buffer) = outgoing.into_buffer() {
                self.records.release(number, buffer);
            }
        }
        if let Some(offer) = ok.offer {
            self.rate.on_offer(now, offer);
        }
        self.check_all_accepted();
        if !self.negotiated.profile.verdict && self.scheduler.is_accepted() && self.end.settle(now)
        {
            self.records.events.push_back(Event::Finished(None));
            self.note_rate(now);
        }
        PacketOutcome::Authentic
    }

    fn on_resend(&mut self, now: Instant, seq: ControlSeq, resend: &Resend) -> PacketOutcome {
        let progress = self.progress.if_resends_count().filter(|_| self.coins.is_none());
        let result = self.scheduler.ask(resend.buffer, &resend.missing, progress);
        // One that the path delayed may belong to an earlier connection of the same program, and
        // have the sequence number of a true one.
        if result.is_none() && !self.negotiated.profile.marks_connection {
            if resend.buffer < self.scheduler.next_supply() && self.acks.is_after_oks(seq) {
                return PacketOutcome::Violation("a RESEND for a buffer after its OK");
            }
            if self.scheduler.may_be_granted(resend.buffer) && self.acks.high().reaches(seq) {
                return PacketOutcome::Violation("a RESEND for a buffer without GO");
            }
        }
        let Some(ResendResult { packets, due, evidence }) = result else {
            return PacketOutcome::Authentic;
        };
        let coins = self.coins.as_ref();
        let never = coins.map_or(0, |coins| coins.never_sent(resend.buffer, &resend.missing));
        let packets = packets.saturating_sub(never);
        let number = resend.buffer.0;
        self.records.trace.note(now, || TraceEvent::Resend { number, packets });
        self.progress.on_resend(evidence);
        self.records.stats.data_packets_asked += packets;
        self.rate.on_resend(now, packets);
        self.feedback.on_resend(resend.buffer, packets);
        if due {
            self.acks.stop_repeats();
        }
        PacketOutcome::Authentic
    }

    fn on_done(&mut self, now: Instant, verdict: Verdict) -> PacketOutcome {
        if verdict.verified && !self.scheduler.is_accepted() {
            // It may have overtaken the last OKs. Data that were never sent cannot have been
            // verified.
            if !self.scheduler.is_sent() {
                return PacketOutcome::Violation("DONE before everything was sent");
            }
            for outgoing in self.scheduler.buffers() {
                self.records.on_accepted(outgoing.len());
            }
            self.release_all(now);
        }
        if self.end.settle(now) {
            self.records.events.push_back(Event::Finished(Some(verdict)));
            self.note_rate(now);
            self.end.on_acknowledged();
        }
        PacketOutcome::Authentic
    }
}
