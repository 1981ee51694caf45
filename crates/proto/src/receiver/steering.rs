//! What its client changes while it receives, and what it hears of the other one's pause
//! (`docs/protocol.md §6.9`).

use super::Receiver;
use crate::rate::burst_for;
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::packet::Burst;

/// What was changed, at either end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steered {
    /// What the sender is to keep to, if its rate was ever spoken of; `None`: what was agreed on.
    most: Option<Option<Burst>>,
    /// The client pauses: nothing is granted.
    holds: bool,
    /// The sender said that its client does.
    pub(super) peer_pauses: bool,
}

impl Receiver {
    /// The sender is to keep below `most` if anything is said of that, in packets with so many
    /// bytes of `overhead`; and nothing is granted while `paused`.
    pub(crate) fn steer(
        &mut self,
        now: Instant,
        (most, overhead): (Option<Option<Rate>>, u32),
        paused: bool,
    ) {
        self.forget_prediction();
        let packet = self.negotiated.burst_bytes + overhead;
        let most = most.map(|most| most.map(|most| burst_for(most, packet)));
        self.steered.most = most.or(self.steered.most.map(|_| None));
        self.steered.holds = paused;
        self.grant(now);
    }

    /// Whether nothing is to be granted.
    pub(super) fn holds(&self) -> bool {
        self.steered.holds
    }

    /// What an OK offers: RFC 998's always makes an offer, and to others none at all means nothing
    /// a second. Elsewhere there is none before the client has anything to say.
    pub(super) fn offer_to_make(&self) -> Option<Burst> {
        let agreed = self.negotiated.burst;
        let wanted = self.steered.most.map(|most| match most {
            Some(most) => agreed.slower(most),
            None => agreed,
        });
        match self.negotiated.rules.offers {
            // Each can only restrain, and what is no millisecond cannot be said.
            true => Some(agreed),
            false => wanted,
        }
    }
}
