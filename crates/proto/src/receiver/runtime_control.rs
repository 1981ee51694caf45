//! Settings that the client changes while it receives (`docs/protocol §6.9`).

use super::Receiver;
use crate::time::Instant;
use crate::units::Rate;

/// The settings of this end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiverSettings {
    /// The client pauses: nothing is granted.
    paused: bool,
}

impl Receiver {
    /// Limits the sender to `most`, if set; nothing is granted while `paused`.
    pub(crate) fn steer(&mut self, now: Instant, most: Option<Option<Rate>>, paused: bool) {
        self.forget_prediction();
        self.control.set_rate_limit(most);
        self.settings.paused = paused;
        self.grant(now);
    }

    /// Whether granting is paused.
    pub(super) fn paused(&self) -> bool {
        self.settings.paused
    }
}
