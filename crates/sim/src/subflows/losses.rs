//! The connections that ended before their transfer.

use std::time::Duration;

use netblt_proto::api::CloseReason;
use netblt_proto::time::Instant;

/// From the loss of a subflow to the next one that is opened.
const AGAIN: Duration = Duration::from_secs(1);

/// Counts them.
#[derive(Debug)]
pub(super) struct Losses {
    subflows: u32,
    main: Option<CloseReason>,
    /// No subflow is opened before.
    next_call: Instant,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self { subflows: 0, main: None, next_call: Instant::EPOCH }
    }

    /// A subflow was lost.
    pub(super) fn on_subflow(&mut self, now: Instant) {
        self.subflows += 1;
        self.next_call = now + AGAIN;
    }

    /// The main connection was lost.
    pub(super) fn on_main(&mut self, reason: CloseReason) {
        self.main = Some(reason);
    }

    /// How many subflows were lost.
    pub(super) fn subflows(&self) -> u32 {
        self.subflows
    }

    /// Why the main connection was lost, if it was.
    pub(super) fn take_main(&mut self) -> Option<CloseReason> {
        self.main.take()
    }

    /// Whether a subflow may be opened.
    pub(super) fn may_call(&self, now: Instant) -> bool {
        now >= self.next_call
    }
}
