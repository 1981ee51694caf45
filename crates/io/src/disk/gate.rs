//! Whether what arrived may still get its final names: the one question on which the thread that
//! talks and the one that writes must not disagree (`docs/protocol.md §7.2`).
//!
//! Whoever comes first decides. The writer passes before its first rename; from then on a wish to
//! stop comes too late, and the outcome is what it is. The talker shuts it when the transfer ends
//! otherwise; then nothing is renamed any more, and both ends can be told so at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const SHUT: u8 = 1;
const PASSED: u8 = 2;

/// One gate; its clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<AtomicU8>);

impl Gate {
    /// Nothing may get its name any more; false if that comes too late.
    pub(crate) fn shut(&self) -> bool {
        let before = self.0.compare_exchange(OPEN, SHUT, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(PASSED)
    }

    /// Whether it is shut.
    pub(crate) fn is_shut(&self) -> bool {
        self.0.load(Ordering::SeqCst) == SHUT
    }

    /// Whether everything is getting its name.
    pub(crate) fn is_passed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == PASSED
    }

    /// From here on everything gets its name; false if it is shut.
    #[must_use]
    pub(crate) fn pass(&self) -> bool {
        let before = self.0.compare_exchange(OPEN, PASSED, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(SHUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_first_decides() {
        let gate = Gate::default();
        assert!(gate.shut() && gate.shut() && gate.is_shut());
        assert!(!gate.pass());
        let gate = Gate::default();
        assert!(gate.clone().pass());
        assert!(!gate.shut() && !gate.is_shut());
    }
}
