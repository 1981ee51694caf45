//! When a sender that no queue slows looks whether the path carries more: where losses may have
//! made it slow, or where it knows that it has a small part of a bottleneck and loses nothing.

use std::time::Duration;

use super::congestion_window::INITIAL_WINDOW;
use super::path_model::PathModel;
use crate::time::Instant;

/// Loss share from which on it looks.
const LEAST_LOSS: f64 = 0.003;
/// Loss share from which on a window below a new connection's does not wait longer and longer.
const HEAVY_LOSS: f64 = 0.25;
/// Round trips with losses, of the last 32, that make losses a habit of the path.
const LOSSY_ROUNDS: f64 = 3.0;
/// As many of these at most are none.
const CLEAN_ROUNDS: f64 = 0.1;
/// The first pause between two looks, as time and as round trips, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(640));
const PAUSE_ROUNDS: u32 = 256;
/// Each pause is so many times as long as the one before.
const LONGER: u32 = 4;

/// The looks so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    pause: Duration,
    next: Option<Instant>,
    /// When the last one began.
    last: Option<Instant>,
    /// Since when nothing is lost.
    clean_since: Option<Instant>,
}

/// Where round trips are short, so are the first pauses.
fn first_pause(path: &PathModel) -> Duration {
    PAUSE.0.min(path.rtt() * PAUSE_ROUNDS)
}

impl Looks {
    /// Whether enough is lost, or nothing was for a while where the share is known to be small, and
    /// the last look is long enough ago. Few losses are enough where a probe can show what is free
    /// and they are `untested`: the share is not small, and no test of them may begin yet.
    pub(super) fn is_due(&mut self, now: Instant, path: &PathModel, untested: bool) -> bool {
        let losses = path.losses();
        let lossy = losses.lossy_rounds() >= LOSSY_ROUNDS && losses.recent() > LEAST_LOSS;
        let clean = losses.lossy_rounds() <= CLEAN_ROUNDS && path.is_beyond_last_loss();
        let since = *self.clean_since.get_or_insert(now);
        if !clean || path.share(now).is_none() {
            self.clean_since = None;
        }
        let clean = self.clean_since.is_some() && now.since(since) >= first_pause(path);
        let room = untested && losses.lossy_rounds() > CLEAN_ROUNDS && path.has_room(now).is_some();
        let paused = self.next.is_some_and(|next| now < next);
        // A new connection would begin with more, and no test has power at such a window.
        let little = losses.recent() > HEAVY_LOSS && path.window() < INITIAL_WINDOW;
        let waited = self.last.is_none_or(|last| now.since(last) >= PAUSE.0);
        (lossy || clean || room) && (!paused || (little && waited))
    }

    /// A look begins.
    pub(super) fn on_begun(&mut self, now: Instant, path: &PathModel) {
        self.last = Some(now);
        let longer = (self.pause * LONGER).min(PAUSE.1);
        self.pause = longer.max(first_pause(path));
        (self.next, self.clean_since) = (Some(now + self.pause), None);
    }

    /// The losses were found not to be this sender's doing.
    pub(super) fn on_excused(&mut self) {
        self.pause = Duration::ZERO;
    }
}
