//! A datagram arrives at an endpoint.

use super::{Endpoint, HandshakeSide};
use crate::api::{CloseReason, Datagram, Ecn, RecvMeta, Route};
use crate::connection::DatagramOutcome;
use crate::time::Instant;
use crate::trace::TraceEvent;

impl Endpoint {
    /// The client gives up before the connection is open here. A peer that answered, or got early
    /// control messages, may have it open, and would wait for the rest of its death timer.
    pub(super) fn quit_opening(&mut self, now: Instant, reason: &str) {
        match &mut self.opener {
            HandshakeSide::Active(active) => {
                let to = Route { peer: active.peer(), local: None };
                let quits = active.quits(reason);
                self.outbox.extend(quits.into_iter().map(|packet| (to, packet)));
            }
            HandshakeSide::Passive(passive) => self.outbox.extend(passive.quits(reason)),
            HandshakeSide::Done => {}
        }
        self.close(now, CloseReason::Quit);
    }

    /// A datagram arrived.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if self.closed {
            return;
        }
        let (len, kind) = (datagram.bytes.len(), datagram.bytes.get(3).copied().unwrap_or(255));
        let RecvMeta { ecn, overrun, .. } = datagram.reception;
        self.count_overruns(now, overrun);
        if self.take_predicted(now, &datagram) {
            self.counts.received += 1;
            self.counts.received_bytes += len as u64;
            return;
        }
        let handled = self.dispatch(now, datagram);
        match handled {
            DatagramOutcome::Authentic => {
                self.counts.received += 1;
                self.counts.received_bytes += len as u64;
                let (bytes, marked) = (len as u32, ecn == Some(Ecn::Ce));
                self.trace.push(now, TraceEvent::Received { kind, bytes, marked });
            }
            DatagramOutcome::Dropped => {
                self.counts.dropped += 1;
                self.trace.push(now, TraceEvent::Dropped { bytes: len as u32 });
            }
        }
        self.collect(now);
    }

    /// Counts the datagrams that the socket had no room for; `overrun` also counts those before
    /// this connection.
    #[inline]
    fn count_overruns(&mut self, now: Instant, overrun: u32) {
        let counted = self.counts.overrun.get_or_insert((overrun, overrun));
        if counted.1 != overrun {
            counted.1 = overrun;
            let datagrams = overrun.wrapping_sub(counted.0);
            self.trace.push(now, TraceEvent::Overrun { datagrams });
        }
    }

    /// Queues a handshake packet; to an address that is not validated only within the amplification
    /// limit (`docs/protocol.md §2.3`).
    pub(super) fn reply_within_room(&mut self, to: Route, packet: Vec<u8>) {
        let own = self.connection.as_mut().filter(|connection| connection.may_come_from(to));
        if own.is_none_or(|connection| connection.may_go(packet.len())) {
            self.reply(to, packet);
        }
    }

    /// Handles the datagram if it is the predicted one (header prediction).
    fn take_predicted(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.trace.is_on()) else {
            return false;
        };
        let Datagram { from, local, reception, ref bytes } = *datagram;
        connection.take_predicted(now, Route { peer: from, local }, bytes, reception)
    }
}

#[cfg(test)]
#[path = "arrival_tests.rs"]
mod tests;
