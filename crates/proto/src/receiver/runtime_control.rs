//! Settings that the client changes while it receives (`docs/protocol §6.9`).

use super::Receiver;
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::packet::{Burst, RateLimit};

/// The settings of this end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiverSettings {
    /// The rate limit for the sender.
    limit: RateLimit,
    /// The client pauses: nothing is granted.
    paused: bool,
}

impl Receiver {
    /// Limits the sender to `most`, if set; nothing is granted while `paused`.
    pub(crate) fn steer(&mut self, now: Instant, most: Option<Option<Rate>>, paused: bool) {
        self.forget_prediction();
        let limit = match (most, self.settings.limit) {
            (Some(Some(rate)), _) => RateLimit::At(rate),
            (None, RateLimit::Unset) => RateLimit::Unset,
            (Some(None) | None, _) => RateLimit::Agreed,
        };
        let changes = std::mem::replace(&mut self.settings.limit, limit) != limit;
        // A new limit leaves at once.
        self.send_now |= changes && !self.negotiated.profile.ok_offers;
        self.settings.paused = paused;
        self.grant(now);
    }

    /// The rate limit in each control packet.
    pub(super) fn rate_limit(&self) -> RateLimit {
        self.settings.limit
    }

    /// Whether granting is paused.
    pub(super) fn paused(&self) -> bool {
        self.settings.paused
    }

    /// The burst values offered in an OK. On `rfc998` every OK has an offer: other implementations
    /// read an absent one as zero. It can only restrict, and intervals are whole milliseconds. On
    /// `sealed` each control packet has the rate limit instead.
    pub(super) fn offer_to_make(&self) -> Option<Burst> {
        self.negotiated.profile.ok_offers.then_some(self.negotiated.burst)
    }
}
