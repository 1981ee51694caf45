//! What a re-created protocol has of its own besides a rate law (`docs/protocol §6.8`): in which
//! order it sends, what it does while it waits, and when it takes everything for lost.

use std::time::Duration;

/// The ways of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Stands in every packet of data; 0 for ours.
    pub(crate) law: u8,
    /// What goes first.
    pub(crate) order: Order,
    /// So many buffers are one chunk: nothing of the next one leaves before this one is accepted.
    pub(crate) chunk: Option<u64>,
    /// What it sends when there is nothing to send.
    pub(crate) idle: Idle,
    /// After so long without feedback, with nothing left to send, all that is outstanding counts as
    /// lost.
    pub(crate) all_lost_after: Option<Duration>,
}

/// What goes first where there is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// What was asked for again: the order that `docs/protocol §6.4` rests on.
    ResendsFirst,
    /// What was never sent.
    NewFirst,
}

/// What leaves while all was sent and not all is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Nothing.
    Silence,
    /// The last packets of the chunk (or of all there is) again and again, beginning at the last
    /// multiple of so many.
    Repeats(u32),
}

impl Ways {
    /// Ours.
    pub(crate) const OURS: Self = Self {
        law: 0,
        order: Order::ResendsFirst,
        chunk: None,
        idle: Idle::Silence,
        all_lost_after: None,
    };
}
