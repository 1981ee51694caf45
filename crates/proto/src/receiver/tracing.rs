//! The receiver's trace events.

use super::Receiver;
use crate::time::Instant;
use crate::trace::{ReceiverLine, Stage, TraceEvent};
use crate::units::BufferNumber;

impl Receiver {
    #[inline]
    pub(super) fn note_buffer(&mut self, now: Instant, number: BufferNumber, stage: Stage) {
        if self.trace.is_on() {
            let (number, outstanding, held) = (number.0, self.assemblies.len(), self.grants.held());
            self.trace.note(now, || TraceEvent::Buffer { number, stage, outstanding, held });
        }
    }

    #[inline]
    pub(super) fn note_control(&mut self, now: Instant) {
        if self.trace.is_on() {
            let line = ReceiverLine {
                rtt: self.control.rtt().smoothed(),
                outstanding: self.assemblies.len(),
                held: self.grants.held(),
                received: self.stats.data_packets_received,
                duplicate: self.stats.data_packets_duplicate,
                lost: self.requests.lost(&self.stats),
                delivered: self.stats.image_bytes,
                unacknowledged: self.control.unacked() as u32,
            };
            self.trace.note(now, || TraceEvent::Receiver(line));
        }
    }
}
