//! What its client changes while it receives, and what it hears of the other one's pause
//! (`docs/protocol.md §6.9`).

use super::Receiver;
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::packet::{Burst, RateLimit};

/// What was changed, at either end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steered {
    /// What the sender is to keep to.
    limit: RateLimit,
    /// The client pauses: nothing is granted.
    holds: bool,
    /// The sender said that its client does.
    pub(super) peer_pauses: bool,
}

impl Receiver {
    /// The sender is to keep below `most` if anything is said of that, and nothing is granted while
    /// `paused`.
    pub(crate) fn steer(&mut self, now: Instant, most: Option<Option<Rate>>, paused: bool) {
        self.forget_prediction();
        let limit = match (most, self.steered.limit) {
            (Some(Some(rate)), _) => RateLimit::At(rate),
            (None, RateLimit::Unsaid) => RateLimit::Unsaid,
            (Some(None) | None, _) => RateLimit::Agreed,
        };
        let changes = std::mem::replace(&mut self.steered.limit, limit) != limit;
        // A new limit waits for no other reason to speak.
        self.urgent |= changes && self.negotiated.rules.reports;
        self.steered.holds = paused;
        self.grant(now);
    }

    /// How fast the sender may be, as each control packet says.
    pub(super) fn rate_limit(&self) -> RateLimit {
        self.steered.limit
    }

    /// Whether nothing is to be granted.
    pub(super) fn holds(&self) -> bool {
        self.steered.holds
    }

    /// What an OK offers: RFC 998's always makes an offer, and to others none at all means nothing
    /// a second. It can only restrain, and what is no millisecond cannot be said. Elsewhere each
    /// control packet says how fast the sender may be.
    pub(super) fn offer_to_make(&self) -> Option<Burst> {
        self.negotiated.rules.offers.then_some(self.negotiated.burst)
    }
}
