//! The two ceilings of a sender's rate: its client's, and the receiver's.

use crate::units::{Burst, Rate};

/// The ceilings in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceilings {
    /// Bytes of the packets that burst values count: those of the size that was agreed on, whatever
    /// those sent have.
    counted_bytes: u32,
    client: Option<Rate>,
    receiver: Option<Rate>,
}

impl Ceilings {
    pub(super) fn new(counted_bytes: u32, client: Option<Rate>) -> Self {
        Self { counted_bytes, client, receiver: None }
    }

    /// The client's ceiling from now on.
    pub(super) fn set_client(&mut self, ceiling: Option<Rate>) {
        self.client = ceiling;
    }

    /// The receiver's burst values from now on. Without an interval they are no ceiling.
    pub(super) fn set_receiver(&mut self, burst: Burst) {
        let bytes = u64::from(burst.packets.max(1)) * u64::from(self.counted_bytes);
        self.receiver = (!burst.interval.is_zero()).then(|| Rate::over(bytes, burst.interval));
    }

    /// The lower of both.
    pub(super) fn least(&self) -> Option<Rate> {
        [self.client, self.receiver].into_iter().flatten().min()
    }
}
