//! Settings that the client changes while it sends (`docs/protocol §6.9`): the rate law, its
//! ceiling, and a pause.

use super::Sender;
use crate::negotiated::Negotiated;
use crate::rate::{Law, burst_for};
use crate::time::Instant;
use crate::units::{PacketNumber, Rate};
use crate::wire::packet::{Burst, RateLimit};

/// Announcements of a pause, and of its end, without a timeout.
const ANNOUNCEMENTS: u8 = 3;

/// The client's pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    since: Option<Instant>,
    /// The next announcement, and the remaining ones.
    announcement: Option<(Instant, u8)>,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// When the pause is to be announced.
    pub(super) fn due(&self) -> Option<Instant> {
        self.announcement.filter(|(_, left)| *left > 0).map(|(at, _)| at)
    }

    /// It was announced now; again at `next`, if announcements remain.
    pub(super) fn on_announced(&mut self, next: Instant) {
        self.announcement = self.announcement.map(|(_, left)| (next, left.saturating_sub(1)));
    }
}

impl Sender {
    /// The negotiated parameters that a rate law is built for.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Bytes of IP and UDP header on each datagram.
    pub(crate) fn overhead(&self) -> u32 {
        self.feedback.overhead() as u32
    }

    /// Never faster than this; `None` for no such limit.
    pub(crate) fn set_ceiling(&mut self, now: Instant, ceiling: Option<Rate>) {
        self.rate.on_ceiling(now, ceiling);
        self.note_rate(now);
    }

    /// Switches to `law`, which starts from the rate of the one before.
    pub(crate) fn follow(&mut self, now: Instant, law: Law) {
        let mut control = law.control;
        let datagram = self.pmtud.datagram_bytes();
        control.on_packet_bytes(datagram + self.overhead());
        control.on_offer(now, self.offers);
        if let (Some(rate), Some(rtt)) = (
            self.rate.belief().bandwidth.or(self.feedback.delivery_rate()),
            self.feedback.rtt().smallest(),
        ) {
            control.take_over(now, rate, rtt);
        }
        self.rate = control;
        self.note_rate(now);
    }

    /// The client pauses or resumes. Where the wire can announce a pause, nothing leaves from now
    /// on; else the buffers that have begun are completed, and none begins.
    pub(crate) fn pause(&mut self, now: Instant, paused: bool) {
        if paused == self.pause.is_on() {
            return;
        }
        if paused {
            self.pause.since = Some(now);
        } else if let Some(since) = self.pause.since.take() {
            // No report was due meanwhile.
            self.breaker.on_pause_over(now);
            self.rate.on_pause_over(now, now.since(since));
        }
        match self.negotiated.profile.announces_pause {
            true => self.pause.announcement = Some((now, ANNOUNCEMENTS)),
            false => self.scheduler.hold(paused),
        }
    }

    /// Whether the pause also stops buffers that have begun.
    pub(super) fn is_fully_paused(&self) -> bool {
        self.pause.is_on() && self.negotiated.profile.announces_pause
    }

    /// When a pause or its end is to be announced.
    pub(super) fn pause_due(&self) -> Option<Instant> {
        self.pause.due().filter(|_| self.end.is_sending())
    }

    /// A control packet has the receiver's rate limit (`sealed`). The newest packet counts.
    pub(crate) fn on_rate_limit(
        &mut self,
        now: Instant,
        (number, limit): (PacketNumber, RateLimit),
    ) {
        if limit == RateLimit::Unset || number < self.limit.0 {
            return;
        }
        let before = std::mem::replace(&mut self.limit, (number, limit));
        if before.1 == limit {
            return;
        }
        let burst = match limit {
            RateLimit::At(rate) => burst_for(rate, self.negotiated.burst_bytes + self.overhead()),
            RateLimit::Agreed | RateLimit::Unset => self.negotiated.burst,
        };
        self.offers = self.negotiated.burst.slower(burst);
        self.rate.on_offer(now, self.offers);
        self.note_rate(now);
    }

    /// An OK offers burst values; without packets it is no offer. On `rfc998` each can only
    /// restrict; else the newest counts, as far as it is slower than the negotiated values.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Burst) {
        // A receiver with a rate limit sends it in each control packet, which is newer.
        if self.limit.1 != RateLimit::Unset {
            return;
        }
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.offers = match self.negotiated.profile.ok_offers {
            true => self.offers.stricter(offer),
            false => self.negotiated.burst.slower(offer),
        };
        self.rate.on_offer(now, self.offers);
    }
}
