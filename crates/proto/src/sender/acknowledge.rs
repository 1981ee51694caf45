//! What a sender says without data: acknowledgements, the end, changed burst values, and that it
//! has nothing left to send, all in NULL-ACK (`docs/protocol.md §6.4, §7.1`).

use std::time::Duration;

use super::{Phase, Sender};
use crate::link::Link;
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{Burst, NullAck};

/// A control message is answered with a NULL-ACK if no data would carry the answer this soon.
const ACK_DELAY: Duration = Duration::from_millis(2);

impl Sender {
    /// Nothing left to send: the receiver is told, so that it need not guess (§6.4).
    pub(super) fn run_dry(&mut self, now: Instant) {
        let sent = self.next_supply > BufferNumber::FIRST && !self.outgoing.is_empty();
        if self.dry_due.is_none() && sent && self.phase == Phase::Sending {
            let repeats = self.negotiated.rules.dry_repeats;
            self.dry_due = Some((now, repeats + 1));
        }
    }

    /// When a NULL-ACK is due if no data leave before.
    pub(super) fn null_ack_at(&self, now: Instant) -> Option<Instant> {
        let data_soon = !self.again.is_empty() || self.fresh < self.next_supply;
        let pacing = self.rate.pacing();
        let wait = if data_soon {
            ACK_DELAY.max(pacing.burst.interval.min(ACK_DELAY * 8))
        } else {
            Duration::ZERO
        };
        let changed = self.is_told() && self.burst_changed(now, pacing.burst);
        earliest([
            self.ack_owed.map(|at| at + wait),
            self.dry_due.filter(|(_, left)| *left > 0).map(|(at, _)| at),
            self.end_due,
            changed.then_some(now),
        ])
    }

    /// Whether the burst values moved by a tenth since they were announced, a round trip ago.
    fn burst_changed(&self, now: Instant, burst: Burst) -> bool {
        let rtt =
            self.rtt.smoothed().unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(10));
        let per_packet = |b: Burst| b.interval.as_nanos() as u64 / u64::from(b.packets.max(1));
        let (old, new) = (per_packet(self.announced), per_packet(burst));
        let moved = now.since(self.announced_at) >= rtt && old.abs_diff(new) > old / 10;
        moved || self.announcements > 0
    }

    pub(super) fn put_null_ack(&mut self, now: Instant, link: &mut Link, out: &mut Vec<u8>) {
        let start = out.len();
        let burst = self.rate.pacing().burst;
        let idle = self.again.is_empty() && self.has_data().is_none();
        let end = self.end.filter(|_| !self.end_heard);
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: self.inbox.high(),
            burst,
            sent_through: (idle && self.next_supply.0 > 1)
                .then_some(BufferNumber(self.next_supply.0 - 1)),
            end,
        };
        let number = link.put_null_ack(out, &null_ack);
        self.on_other_sent(now, number, out.len() - start);
        self.ack_owed = None;
        self.announced = burst;
        self.announced_at = now;
        self.announcements = self.announcements.saturating_sub(1);
        if let Some((at, left)) = self.dry_due {
            self.dry_due = Some((at.max(now) + self.rtt.beat(), left.saturating_sub(1)));
        }
        if end.is_some() {
            self.end_due = Some(now + self.rtt.timeout());
            self.rtt.back_off();
        }
    }
}
