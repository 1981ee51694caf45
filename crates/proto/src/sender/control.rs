//! The sender's handling of control messages (RFC 998 §5.2.1). Each is handled once, in whatever
//! order they come, and one that no correct receiver sends closes the connection.

use super::Sender;
use crate::api::Event;
use crate::buffer::Geometry;
use crate::limits::MIN_SEALED_PACKET_BYTES;
use crate::negotiated::Taken;
use crate::rate::window::Gate;
use crate::rate::{Sample, is_long};
use crate::sender::schedule::Asked;
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{Accepted, Go, Have, Message, Resend, Verdict};

impl Sender {
    /// The messages of a control packet. `Violation` if one is impossible.
    pub(crate) fn handle_control(
        &mut self,
        now: Instant,
        end_received: bool,
        messages: Vec<(ControlSeq, Message)>,
    ) -> Taken {
        if end_received {
            self.ending.confirm();
        }
        self.announced.open();
        if self.is_in_doubt() {
            self.hear_calls(&messages);
        }
        for (seq, message) in messages {
            // Even an old message is answered: its acknowledgement may have been lost.
            self.duties.owed.get_or_insert(now);
            if !self.duties.inbox.take(seq) {
                continue;
            }
            if self.ledger.is_some() {
                // A message shows that data, or acknowledgements in them, arrived; but not a RESEND
                // that repeats for packets which the window holds back.
                let asks = matches!(message, Message::Resend(_));
                if !asks || self.sampler.last_sent() > Some(self.hearing.reported) {
                    self.hearing.reported = now;
                }
                // The first GO answers the RESPONSE.
                let longest = Some(now.since(self.negotiated.opened)).filter(|rtt| is_long(*rtt));
                if let (0, Some(longest)) = (self.stats.data_packets_sent, longest)
                    && self.rate.on_first_answer(longest)
                {
                    // As if the handshake had taken as long (`docs/protocol.md §6.7`).
                    self.to_the_letter = false;
                    self.pacer = Gate::new(false);
                }
            }
            let taken = match message {
                Message::Go(go) => self.on_go(now, go),
                Message::Ok(ok) => {
                    self.duties.inbox.note_ok(seq);
                    self.on_ok(now, ok)
                }
                Message::Resend(resend) => self.on_resend(now, seq, &resend),
                Message::Done(verdict) => self.on_done(now, verdict),
                Message::Have(Have { bytes, last }) => {
                    self.events.push_back(Event::Had { place: seq.0, bytes, last });
                    Taken::Authentic
                }
            };
            if taken != Taken::Authentic {
                return taken;
            }
        }
        self.hear_ledger(now);
        if !self.is_told() {
            self.note_rate(now);
        }
        let until = match self.negotiated.rules.verdict {
            true => self.leaves_at(now),
            false => now + self.dally(),
        };
        self.phase.prolong(until);
        Taken::Authentic
    }

    /// Handles the feedback inferred from OKs and RESENDs, if any.
    fn hear_ledger(&mut self, now: Instant) {
        if let Some(told) = self.ledger.as_mut().and_then(|ledger| ledger.report(now)) {
            let sample = self.sampler.on_told(now, &told.report, told.when);
            let (delivered_packets, lost_packets) = (told.arrived, told.lost);
            let sample = sample.map(|s| Sample { delivered_packets, lost_packets, ..s });
            self.handle_sample(now, sample);
        }
    }

    /// When resent packets without feedback are no longer in flight.
    pub(super) fn copies_land_at(&self) -> Option<Instant> {
        self.ledger.as_ref()?.lands_at()
    }

    pub(super) fn land_copies(&mut self, now: Instant) {
        if self.copies_land_at().is_some_and(|at| at <= now) {
            self.ledger.iter_mut().for_each(|ledger| ledger.land(now));
            self.hear_ledger(now);
        }
    }

    fn on_go(&mut self, now: Instant, go: Go) -> Taken {
        let Some(end) = go.first.0.checked_add(u64::from(go.count)) else {
            return Taken::Violation("a GO past the last number");
        };
        if go.first < BufferNumber::FIRST {
            return Taken::Violation("a GO for a buffer below the first");
        }
        // A buffer that was not supplied was not sent, so it is outstanding at the receiver,
        // granted or not.
        let most = u64::from(self.negotiated.max_outstanding) * 2;
        if u64::from(go.count) > most || end > self.schedule.next_supply().0.saturating_add(most) {
            return Taken::Violation("a GO for more buffers than were agreed");
        }
        let agreed = self.negotiated.geometry.packet_bytes;
        let packet_bytes = go.packet_bytes;
        if packet_bytes > agreed || packet_bytes < agreed.min(MIN_SEALED_PACKET_BYTES) {
            return Taken::Violation("a GO with packets of a size that was not agreed");
        }
        let geometry = Geometry { packet_bytes, ..self.negotiated.geometry };
        self.on_granted_size(now, &go);
        self.schedule.grant(&go, geometry);
        while let Some(number) = self.schedule.next_wanted() {
            self.note_buffer(now, number, Stage::Granted);
            self.events.push_back(Event::Wanted(number));
        }
        Taken::Authentic
    }

    fn on_ok(&mut self, now: Instant, ok: Accepted) -> Taken {
        self.control_timer = ok.control_timer;
        let Some(end) = ok.first.0.checked_add(u64::from(ok.count)) else {
            return Taken::Violation("an OK past the last number");
        };
        let Some(accepted) = self.schedule.accept(ok.first..BufferNumber(end)) else {
            return Taken::Violation("an OK for a buffer that was never sent");
        };
        if !accepted.is_empty() {
            self.on_size_accepted();
            self.signs.on_accepted();
        }
        for (number, outgoing) in accepted {
            self.calls.note(Some(outgoing.tossed()));
            if let Some(ledger) = &mut self.ledger {
                ledger.on_ok(now, number, self.rtt.smallest());
            }
            self.stats.buffers_done += 1;
            self.stats.image_bytes += outgoing.len() as u64;
            self.note_buffer(now, number, Stage::Accepted);
            if let Some(buffer) = outgoing.into_buffer() {
                self.events.push_back(Event::Released(number, buffer));
            }
        }
        if let Some(offer) = ok.offer {
            self.on_offer(now, offer);
        }
        self.check_all_accepted();
        let until = now + self.dally();
        if !self.negotiated.rules.verdict && self.schedule.is_accepted() && self.phase.settle(until)
        {
            self.events.push_back(Event::Finished(None));
            self.note_rate(now);
        }
        Taken::Authentic
    }

    fn on_resend(&mut self, now: Instant, seq: ControlSeq, resend: &Resend) -> Taken {
        let asked = self.schedule.ask(resend.buffer, &resend.missing, self.signs_to_count());
        // On `rfc998` a message has no mark of its connection. One that the path delayed may belong
        // to an earlier connection of the same program, and have the sequence number of a true one.
        if asked.is_none() && !self.negotiated.rules.reports {
            let inbox = &self.duties.inbox;
            if resend.buffer < self.schedule.next_supply() && inbox.is_after_oks(seq) {
                return Taken::Violation("a RESEND for a buffer after its OK");
            }
            if self.schedule.may_be_granted(resend.buffer) && inbox.high().reaches(seq) {
                return Taken::Violation("a RESEND for a buffer without GO");
            }
        }
        let Some(Asked { packets, due, heard }) = asked else { return Taken::Authentic };
        let number = resend.buffer.0;
        self.trace.note(now, || TraceEvent::Resend { number, packets });
        self.signs.on_asked(heard);
        self.stats.data_packets_asked += packets;
        self.rate.on_resend(now, packets);
        if let Some(ledger) = &mut self.ledger {
            ledger.on_resend(resend.buffer, packets);
        }
        if due {
            self.duties.dry = None;
        }
        Taken::Authentic
    }

    fn on_done(&mut self, now: Instant, verdict: Verdict) -> Taken {
        if verdict.verified && !self.schedule.is_accepted() {
            // It may have overtaken the last OKs. Data that were never sent cannot have been
            // verified.
            if !self.schedule.is_sent() {
                return Taken::Violation("DONE before everything was sent");
            }
            for outgoing in self.schedule.buffers() {
                self.stats.buffers_done += 1;
                self.stats.image_bytes += outgoing.len() as u64;
            }
            self.release_all(now);
        }
        let until = now + self.dally();
        if self.phase.settle(until) {
            self.events.push_back(Event::Finished(Some(verdict)));
            self.note_rate(now);
            self.ending.settle();
        }
        Taken::Authentic
    }
}
