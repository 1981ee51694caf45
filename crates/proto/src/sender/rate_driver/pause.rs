//! The client's pause (`docs/protocol §6.9`).
//!
//! Inputs: the client's wish and the NULL-ACKs that announce it. Outputs: whether data may leave,
//! and when NULL-ACK is to announce a pause or its end.

use std::time::Duration;

use crate::time::Instant;

/// Announcements of a pause, and of its end, without a timeout.
const ANNOUNCEMENTS: u8 = 3;

/// The client's pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// NULL-ACK announces it, so it also stops buffers that have begun.
    announces: bool,
    since: Option<Instant>,
    /// The next announcement, and the remaining ones.
    announcement: Option<(Instant, u8)>,
}

impl Pause {
    pub(super) fn new(announces: bool) -> Self {
        Self { announces, since: None, announcement: None }
    }

    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the pause also stops buffers that have begun.
    pub(super) fn is_full(&self) -> bool {
        self.is_on() && self.announces
    }

    /// The pause begins, if `paused`, or ends. Returns how long it lasted when it ends.
    pub(super) fn set(&mut self, now: Instant, paused: bool) -> Option<Duration> {
        if self.announces {
            self.announcement = Some((now, ANNOUNCEMENTS));
        }
        let before = std::mem::replace(&mut self.since, paused.then_some(now));
        before.filter(|_| !paused).map(|since| now.since(since))
    }

    /// When the pause is to be announced.
    pub(super) fn due(&self) -> Option<Instant> {
        self.announcement.filter(|(_, left)| *left > 0).map(|(at, _)| at)
    }

    /// It was announced now; again at `next`, if announcements remain.
    pub(super) fn on_announced(&mut self, next: Instant) {
        self.announcement = self.announcement.map(|(_, left)| (next, left.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_pause_and_its_end_are_announced_three_times() {
        let mut pause = Pause::new(true);
        assert_eq!((pause.set(ms(1), true), pause.is_full()), (None, true));
        let announced = |pause: &mut Pause| {
            let at = pause.due();
            pause.on_announced(ms(9));
            at
        };
        let times = [(); 4].map(|()| announced(&mut pause));
        assert_eq!(times, [Some(ms(1)), Some(ms(9)), Some(ms(9)), None]);
        assert_eq!(pause.set(ms(21), false), Some(Duration::from_millis(20)));
        assert!(!pause.is_on() && pause.due() == Some(ms(21)));
    }

    #[test]
    fn without_an_announcement_the_buffers_that_have_begun_go_on() {
        let mut pause = Pause::new(false);
        pause.set(ms(1), true);
        assert!(pause.is_on() && !pause.is_full() && pause.due().is_none());
    }
}
