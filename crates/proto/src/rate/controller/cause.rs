//! Why a congestion window changed.
//!
//! The window of a [`Controller`](super::Controller) has one setter, and that setter takes a
//! [`Cause`]. A trace therefore says for every change what brought it about.

use std::collections::VecDeque;

/// Changes that wait to be traced. A report causes two at most, and they are taken after each.
const MAX_WAITING: usize = 8;

/// The reason for a change of the congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were acknowledged in slow start (RFC 9438 §4.10).
    SlowStart,
    /// Packets were acknowledged in congestion avoidance (RFC 9438 §4.2 to §4.5).
    Avoidance,
    /// The round trip of a round grew in slow start (RFC 9406).
    Delay,
    /// Packets were lost (RFC 9438 §4.6).
    Loss,
    /// More packets were lost than a test had excused.
    Excess,
    /// A sender that has the path for itself, or whose losses are excused, keeps a short queue.
    ShortQueue,
    /// The start found no rate that grows with its window.
    NoGrowth,
    /// The queue of the start has arrived, at the rate that the path carries.
    Drained,
    /// The start goes on: all that it sent arrived.
    NotFull,
    /// A part of a saved rate is sent (RFC 9959).
    SavedRate,
    /// A probe showed what part of the bottleneck is free.
    Free,
    /// A saved rate, or what a probe found, was too much for the path.
    Retreat,
    /// A start begins again, to find out whether the path carries more.
    Look,
    /// A test passed, and the window from before its losses is used again.
    Test,
    /// A test did not excuse the losses that it was made for: less was lost at half the rate.
    TestFailed,
    /// A test did not excuse them, for it had too few packets to tell.
    TestUndecided,
    /// Less was sent to see the smallest round trip again.
    Reconfirm,
    /// The round trip did not fall when less was sent: the path has another length.
    PathChange,
    /// Packets arrived marked Congestion Experienced (RFC 3168, RFC 8511).
    Mark,
    /// No report came for several round trips (RFC 9002 §7.6).
    Silence,
    /// The client paused the transfer, so that the path may have changed.
    Pause,
    /// The size of the packets changed; the bytes of the window did not.
    PacketSize,
    /// Another policy was in force before.
    Policy,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 23] = [
        Self::SlowStart,
        Self::Avoidance,
        Self::Delay,
        Self::Loss,
        Self::Excess,
        Self::ShortQueue,
        Self::NoGrowth,
        Self::Drained,
        Self::NotFull,
        Self::SavedRate,
        Self::Free,
        Self::Retreat,
        Self::Look,
        Self::Test,
        Self::TestFailed,
        Self::TestUndecided,
        Self::Reconfirm,
        Self::PathChange,
        Self::Mark,
        Self::Silence,
        Self::Pause,
        Self::PacketSize,
        Self::Policy,
    ];

    /// Its name in a trace (`docs/reference/trace.md`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlowStart => "slow_start",
            Self::Avoidance => "avoidance",
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Excess => "excess",
            Self::ShortQueue => "short_queue",
            Self::NoGrowth => "no_growth",
            Self::Drained => "drained",
            Self::NotFull => "not_full",
            Self::SavedRate => "saved_rate",
            Self::Free => "free",
            Self::Retreat => "retreat",
            Self::Look => "look",
            Self::Test => "test",
            Self::TestFailed => "test_failed",
            Self::TestUndecided => "test_undecided",
            Self::Reconfirm => "reconfirm",
            Self::PathChange => "path_change",
            Self::Mark => "mark",
            Self::Silence => "silence",
            Self::Pause => "pause",
            Self::PacketSize => "packet_size",
            Self::Policy => "policy",
        }
    }

    /// Growth is traced once a round trip, and every other change by itself.
    const fn is_growth(self) -> bool {
        matches!(self, Self::SlowStart | Self::Avoidance)
    }
}

/// One change of the congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// Bytes of IP packets before.
    pub from_bytes: u64,
    /// Bytes of IP packets after.
    pub to_bytes: u64,
    /// What changed it.
    pub cause: Cause,
    /// The mode after the change.
    pub mode: &'static str,
}

/// The changes of a window that were not traced yet.
#[derive(Debug, Default)]
pub(super) struct Changes {
    waiting: VecDeque<WindowChange>,
    /// Growth of the round that is under way.
    growth: Option<WindowChange>,
    round: u64,
}

impl Changes {
    /// Adds a change. Growth of one round becomes one change.
    pub(super) fn add(&mut self, round: u64, change: WindowChange) {
        if change.cause.is_growth() {
            match &mut self.growth {
                Some(growth) if self.round == round && growth.cause == change.cause => {
                    growth.to_bytes = change.to_bytes;
                }
                _ => {
                    self.flush();
                    (self.growth, self.round) = (Some(change), round);
                }
            }
            return;
        }
        self.flush();
        self.push(change);
    }

    /// The oldest change that is complete.
    pub(super) fn take(&mut self) -> Option<WindowChange> {
        self.waiting.pop_front()
    }

    fn flush(&mut self) {
        if let Some(growth) = self.growth.take().filter(|g| g.from_bytes != g.to_bytes) {
            self.push(growth);
        }
    }

    /// Nothing is lost where nothing is traced: the oldest change makes room.
    fn push(&mut self, change: WindowChange) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(from_bytes: u64, to_bytes: u64, cause: Cause) -> WindowChange {
        WindowChange { from_bytes, to_bytes, cause, mode: "avoidance" }
    }

    #[test]
    fn growth_of_one_round_is_one_change() {
        let mut changes = Changes::default();
        changes.add(1, change(10, 11, Cause::Avoidance));
        changes.add(1, change(11, 12, Cause::Avoidance));
        assert_eq!(changes.take(), None);
        changes.add(2, change(12, 13, Cause::Avoidance));
        assert_eq!(changes.take(), Some(change(10, 12, Cause::Avoidance)));
        changes.add(2, change(13, 9, Cause::Loss));
        assert_eq!(changes.take(), Some(change(12, 13, Cause::Avoidance)));
        assert_eq!(changes.take(), Some(change(13, 9, Cause::Loss)));
        assert_eq!(changes.take(), None);
    }

    #[test]
    fn the_oldest_change_makes_room() {
        let mut changes = Changes::default();
        for n in 0..20 {
            changes.add(n, change(n, n + 1, Cause::Loss));
        }
        assert_eq!(changes.take(), Some(change(12, 13, Cause::Loss)));
    }
}
