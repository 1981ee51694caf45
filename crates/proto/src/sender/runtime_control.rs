//! What its client changes while it sends (`docs/protocol.md §6.9`): the rate law, a ceiling over
//! it, and whether anything leaves at all.

use super::{Phase, Sender};
use crate::negotiated::Negotiated;
use crate::rate::{Law, burst_for};
use crate::time::Instant;
use crate::units::{PacketNumber, Rate};
use crate::wire::packet::{Burst, RateLimit};

/// How often the receiver is told of a pause, and of its end, without being asked.
const TELLINGS: u8 = 3;

/// Whether the client pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    since: Option<Instant>,
    /// When the receiver is told next, and how often.
    told: Option<(Instant, u8)>,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// When the receiver is to be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.told.filter(|(_, left)| *left > 0).map(|(at, _)| at)
    }

    /// It was told now; again at `next`, if that is still due.
    pub(super) fn say(&mut self, next: Instant) {
        self.told = self.told.map(|(_, left)| (next, left.saturating_sub(1)));
    }
}

impl Sender {
    /// What was agreed on, as a law is built for.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Bytes of IP and UDP header on each datagram.
    pub(crate) fn overhead(&self) -> u32 {
        self.sampler.overhead() as u32
    }

    /// Never faster than this; `None` for no such limit.
    pub(crate) fn set_ceiling(&mut self, now: Instant, ceiling: Option<Rate>) {
        self.rate.on_ceiling(now, ceiling);
        self.note_rate(now);
    }

    /// Goes by `law` from now on, beginning with what the one before came to.
    pub(crate) fn follow(&mut self, now: Instant, law: Law) {
        let mut control = law.control;
        let datagram = self.datagram_bytes();
        control.on_packet_bytes(datagram + self.overhead());
        control.on_offer(now, self.offers);
        if let (Some(rate), Some(rtt)) =
            (self.rate.belief().bandwidth.or(self.shown), self.rtt.smallest())
        {
            control.take_over(now, rate, rtt);
        }
        self.rate = control;
        self.note_rate(now);
    }

    /// The client pauses, or goes on. Where the receiver can be told, nothing leaves from now on;
    /// else what has begun is ended, and nothing new begins.
    pub(crate) fn pause(&mut self, now: Instant, paused: bool) {
        if paused == self.pause.is_on() {
            return;
        }
        if paused {
            self.pause.since = Some(now);
        } else if let Some(since) = self.pause.since.take() {
            // Nobody was to report anything meanwhile.
            self.hearing.reported = self.hearing.reported.max(now);
            self.rate.on_pause_over(now, now.since(since));
        }
        match self.negotiated.rules.reports {
            true => self.pause.told = Some((now, TELLINGS)),
            false => self.schedule.hold(paused),
        }
    }

    /// Whether it is paused, and not even what has begun goes on.
    pub(super) fn stands_still(&self) -> bool {
        self.pause.is_on() && self.negotiated.rules.reports
    }

    /// When the receiver is to be told of a pause or its end.
    pub(super) fn pause_due(&self) -> Option<Instant> {
        self.pause.due().filter(|_| self.phase == Phase::Sending)
    }

    /// A control packet says how fast this end may be (`sealed`). The newest packet counts.
    pub(crate) fn on_rate_limit(
        &mut self,
        now: Instant,
        (number, limit): (PacketNumber, RateLimit),
    ) {
        if limit == RateLimit::Unsaid || number < self.limit.0 {
            return;
        }
        let before = std::mem::replace(&mut self.limit, (number, limit));
        if before.1 == limit {
            return;
        }
        let burst = match limit {
            RateLimit::At(rate) => burst_for(rate, self.negotiated.burst_bytes + self.overhead()),
            RateLimit::Agreed | RateLimit::Unsaid => self.negotiated.burst,
        };
        self.offers = self.negotiated.burst.slower(burst);
        self.rate.on_offer(now, self.offers);
        self.note_rate(now);
    }

    /// The receiver offered burst values in an OK: of nothing, that is no offer. On `rfc998` each
    /// can only restrain; else the newest counts, as far as it is slower than what was agreed on.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Burst) {
        // Each control packet of such a receiver says more.
        if self.limit.1 != RateLimit::Unsaid {
            return;
        }
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.offers = match self.negotiated.rules.offers {
            true => self.offers.stricter(offer),
            false => self.negotiated.burst.slower(offer),
        };
        self.rate.on_offer(now, self.offers);
    }
}
