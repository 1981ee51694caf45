//! Evidence that data arrive, and that the sender gets control messages, for the stall watchdog
//! (`docs/protocol §7.6`).

use super::Receiver;
use crate::negotiated::{ProgressCounter, ProgressTimescale};

impl Receiver {
    /// The progress that the watchdog expects, if any: of buffers with an arrival, once more of
    /// them was requested, since the sender has them; and of unacknowledged messages. A sender
    /// without any data so far may be waiting for its client.
    pub(crate) fn underway(&self) -> [Option<ProgressCounter>; 2] {
        let signs = self.stats.data_packets_received;
        let requested = self.requests.unanswered().filter(|_| self.assemblies.is_any_supplied());
        let missing = requested.map(|tries| ProgressCounter { signs, tries });
        [missing, self.control.progress(signs)]
    }

    /// The time scale of progress.
    pub(crate) fn pace_of_progress(&self) -> ProgressTimescale {
        self.control.pace_of_progress(self.requests.announced_burst().interval)
    }
}
