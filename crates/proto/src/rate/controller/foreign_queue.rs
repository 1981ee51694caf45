//! Whether a round trip that is long falls when losses reduce the window. If it does not, then what
//! makes it long is no queue of this sender: the path has another length, or others keep the queue.

use std::time::Duration;

use crate::time::Instant;

/// Round trips after a reduction in which the queue has become shorter.
const SEEN_AFTER: u32 = 3;
/// A queue that lost this part of itself has answered.
const ANSWERED: f64 = 0.25;
/// The question is not asked for so long after that answer, and twice as long after each further
/// one. If the window was twice as large since, the path was another one, and it is asked at once.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));
const GREW: u32 = 2;

/// What the window and the queue are compared with: a window, in time of the bottleneck, and the
/// excess of the round trip then.
#[derive(Clone, Copy, Debug)]
struct Reference {
    window: Duration,
    excess: Duration,
}

/// The state of that question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForeignQueue {
    reference: Option<Reference>,
    /// Round trips in a row in which a queue stood that should be gone.
    in_vain: u32,
    /// The window at the last such answer, and the largest one since.
    answered_at: Duration,
    largest: Duration,
    /// How long the question waits after that answer, and until when.
    pause: Duration,
    asked_from: Option<Instant>,
}

impl ForeignQueue {
    /// Takes in a round trip: `window` is the time that the bottleneck takes for the window, zero
    /// if that is not known; `excess` is what the round trip exceeded the smallest one by, of which
    /// less than `least` is no queue.
    pub(super) fn on_round(&mut self, window: Duration, excess: Duration, least: Duration) {
        self.largest = self.largest.max(window);
        let Some(reference) = self.reference.filter(|_| excess > least && !window.is_zero()) else {
            self.reference = Some(Reference { window, excess });
            self.in_vain = 0;
            return;
        };
        let answered = excess < reference.excess.mul_f64(1.0 - ANSWERED);
        if answered || window > reference.window {
            self.reference = Some(Reference { window, excess });
            self.in_vain = 0;
        } else if reference.window - window >= reference.excess {
            self.in_vain += 1;
        }
    }

    /// Whether the queue is not this sender's. The question is open again some time after that
    /// answer.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let Some(reference) = self.reference.take_if(|_| self.in_vain >= SEEN_AFTER) else {
            return false;
        };
        self.in_vain = 0;
        if self.largest >= self.answered_at * GREW {
            (self.pause, self.asked_from) = (Duration::ZERO, None);
        }
        if self.asked_from.is_some_and(|from| now < from) {
            return false;
        }
        self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
        self.asked_from = Some(now + self.pause);
        (self.answered_at, self.largest) = (reference.window, Duration::ZERO);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of `windows`, and then of half of it, with these excesses; all in milliseconds.
    fn after(windows: [u64; 2], excesses: [u64; 2]) -> bool {
        let mut queue = ForeignQueue::default();
        let ms = Duration::from_millis;
        for (window, excess) in windows.into_iter().zip(excesses) {
            (0..SEEN_AFTER).for_each(|_| queue.on_round(ms(window), ms(excess), ms(5)));
        }
        queue.take(Instant::EPOCH)
    }

    #[test]
    fn a_queue_that_does_not_answer_is_not_ours() {
        assert!(after([50, 30], [12, 12]));
        assert!(!after([50, 30], [12, 0]), "it is empty");
        assert!(!after([50, 30], [12, 8]), "it has become shorter");
        assert!(!after([50, 40], [12, 12]), "a part of it would have been left");
        assert!(!after([0, 0], [12, 12]), "nothing is known of the bottleneck");
    }

    #[test]
    fn an_answer_after_which_the_window_did_not_grow_is_not_asked_for_soon() {
        let mut queue = ForeignQueue::default();
        let ms = Duration::from_millis;
        let mut answer = |most: u64, at: u64| {
            for window in [most, 60, 40] {
                (0..SEEN_AFTER).for_each(|_| queue.on_round(ms(window), ms(12), ms(5)));
            }
            queue.take(Instant::EPOCH + Duration::from_secs(at))
        };
        assert!(answer(60, 0));
        assert!(!answer(60, 9), "the window is what it was");
        assert!(answer(60, 10));
        assert!(!answer(60, 29), "twice as long");
        assert!(answer(200, 29), "it was the path that is longer");
    }
}
