//! The handle that stops a transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Stops a transfer from any thread or signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

impl Cancel {
    /// Asks the transfer to stop. It notifies the other end and returns `Error::Interrupted`.
    pub fn cancel(&self) {
        self.0.fetch_max(1, Ordering::SeqCst);
    }
    /// Asks it to stop without waiting for the other end. It still removes unfinished files.
    pub fn abort(&self) {
        self.0.fetch_max(2, Ordering::SeqCst);
    }
    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
    /// Whether it was asked to hurry.
    pub fn is_aborting(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}
