//! Whether received files may still get their final names. The network thread and the writing
//! thread must not disagree on this one question (`docs/protocol §7.2`).
//!
//! The first of them decides. The writer commits before its first rename. From then on a
//! cancellation comes too late, and the outcome stands. The network thread cancels when the
//! transfer ends otherwise. Then nothing is renamed any more, and both ends can be notified at
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const CANCELLED: u8 = 1;
const COMMITTED: u8 = 2;

/// One gate; its clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitLatch(Arc<AtomicU8>);

impl CommitLatch {
    /// Forbids all further renames; false if that comes too late.
    pub(crate) fn cancel(&self) -> bool {
        let before = self.0.compare_exchange(OPEN, CANCELLED, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(COMMITTED)
    }

    /// Whether it is shut.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CANCELLED
    }

    /// Whether everything is getting its name.
    pub(crate) fn is_committed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == COMMITTED
    }

    /// From here on everything gets its name; false if it is shut.
    #[must_use]
    pub(crate) fn commit(&self) -> bool {
        let before = self.0.compare_exchange(OPEN, COMMITTED, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(CANCELLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_commit_and_cancel_decides() {
        let latch = CommitLatch::default();
        assert!(latch.cancel() && latch.cancel() && latch.is_cancelled());
        assert!(!latch.commit());
        let latch = CommitLatch::default();
        assert!(latch.clone().commit());
        assert!(!latch.cancel() && !latch.is_cancelled());
    }
}
