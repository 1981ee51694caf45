//! Who does not yield, told from those who do: a BBR looks for more once in eight round trips, as
//! even as a clock, and every ten seconds it takes itself out of the queue for a fifth of one
//! (draft-cardwell-iccrg-bbr-congestion-control-00 §4.3.4.3 and §4.3.5;
//! docs/decisions/adaptive-rate.md, *Beside who does not yield*).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::time::{Instant, nanos};

/// Cells in which the round trip is compared with itself, and how many a smallest one has.
const CELLS: usize = 96;
const CELLS_PER_TRIP: u32 = 2;
/// No cell is shorter: reports are no closer to each other.
const LEAST_CELL: Duration = Duration::from_micros(500);
/// It is compared with what it was so many cells ago: seven to eleven round trips.
const LAGS: RangeInclusive<usize> = 14..=22;
/// What changes more slowly than in so many cells is no rhythm.
const SLOW: usize = 20;
/// So much alike, of one, is a rhythm, if it was so often in a row, and for so long: among several
/// of ours a few windows in a hundred are.
const ALIKE: f32 = 0.65;
const OFTEN: u32 = 2;
const LONG_ENOUGH: Duration = Duration::from_millis(2500);

/// Compares the round trip with itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    /// By how much it was too long, in seconds: means of cells, and how many there are.
    cells: [f32; CELLS],
    filled: usize,
    /// When the cell began that is under way, its sum and count.
    since: Instant,
    sum: f64,
    count: u32,
    /// Windows of half of all cells that were alike.
    seen: u32,
}

impl Default for Rhythm {
    fn default() -> Self {
        let cells = [0.0; CELLS];
        Self { cells, filled: 0, since: Instant::EPOCH, sum: 0.0, count: 0, seen: 0 }
    }
}

impl Rhythm {
    /// A round trip was too long by `excess`, the smallest being `min`. Answers whether somebody
    /// looks for more by a rhythm.
    pub(super) fn hear(&mut self, now: Instant, min: Duration, excess: Duration) -> bool {
        let cell = (min / CELLS_PER_TRIP).max(LEAST_CELL);
        let passed = now.since(self.since);
        if passed >= cell * CELLS as u32 {
            *self = Self { since: now, ..Self::default() };
        } else if passed >= cell {
            let mean = (self.sum / f64::from(self.count.max(1))) as f32;
            while now.since(self.since) >= cell {
                self.since += cell;
                self.push(mean);
            }
            (self.sum, self.count) = (0.0, 0);
        }
        self.sum += excess.as_secs_f64();
        self.count += 1;
        self.seen >= OFTEN && cell * (CELLS as u32 / 2) * self.seen >= LONG_ENOUGH
    }

    fn push(&mut self, mean: f32) {
        self.cells[self.filled] = mean;
        self.filled += 1;
        if self.filled == CELLS {
            self.seen = if self.likeness() >= ALIKE { self.seen + 1 } else { self.seen / 2 };
            self.cells.copy_within(CELLS / 2.., 0);
            self.filled = CELLS / 2;
        }
    }

    /// How much the cells are like those before them, at the lag at which they are most.
    fn likeness(&self) -> f32 {
        let quick: [f32; CELLS] = std::array::from_fn(|i| {
            let near = &self.cells[i.saturating_sub(SLOW / 2)..CELLS.min(i + SLOW / 2)];
            self.cells[i] - near.iter().sum::<f32>() / near.len() as f32
        });
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let at = |lag: usize| {
            let (then, now) = (&quick[..CELLS - lag], &quick[lag..]);
            let size = (product(then, then) * product(now, now)).sqrt();
            if size > 0.0 { product(then, now) / size } else { 0.0 }
        };
        LAGS.map(at).fold(0.0, f32::max)
    }
}

/// A BBR sends four packets in a round trip for 200 ms and a round trip at least, in which its
/// queue runs off. Then it comes back, and soon has its queue again.
const AWAY: Duration = Duration::from_millis(180);
const MOST_AWAY: Duration = Duration::from_millis(350);
const BACK_TRIPS: u32 = 12;
/// It does so again after ten seconds, and what that took.
const APART: RangeInclusive<Duration> = Duration::from_millis(9800)..=Duration::from_millis(11_500);
/// A queue of less than this part of the smallest round trip is not missed.
const LEAST_USUAL: u64 = 12;
/// Of the usual queue, in parts: less is none, more is there again. By a part of the smallest round
/// trip hosts are late, anyway.
const NONE: u64 = 8;
const LEAST_NONE: u64 = 32;
const AGAIN: u64 = 4;
/// Reports of which what is usual is the mean, and in which the longest of late is forgotten.
const USUAL: u64 = 256;
const LATE: u64 = 32;

/// What was seen of somebody who takes himself out of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Somebody was away, and is back.
    Once,
    /// The same as ten seconds ago.
    Twice,
}

/// Looks for who takes himself out of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Away {
    /// By how much the round trip is too long as a rule, and was of late at most, in nanoseconds.
    usual: u64,
    late: u64,
    /// Since when it is not.
    since: Option<Instant>,
    /// Until when it was not, for as long as it should.
    until: Option<Instant>,
    /// When somebody was last seen.
    last: Option<Instant>,
}

impl Away {
    /// By how much round trips are too long as a rule.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_nanos(self.usual)
    }

    /// A round trip was too long by `excess`, the smallest being `min`. `yielded`: this sender took
    /// something out of the queue itself a moment ago; `resting`: it is just doing so.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        (min, excess): (Duration, Duration),
        (yielded, resting): (bool, bool),
    ) -> Option<Seen> {
        let (length, excess) = (nanos(min), nanos(excess));
        let none = excess < (self.usual / NONE).max(length / LEAST_NONE);
        if resting {
            (self.since, self.until) = (None, None);
        } else if none {
            let was = self.late > self.usual / 2 && self.usual > length / LEAST_USUAL;
            if self.since.is_none() && was && !yielded {
                self.since = Some(now);
            }
        } else if let Some(since) = self.since.take() {
            let lasted = now.since(since);
            let fits = lasted >= AWAY + min && lasted <= MOST_AWAY + min * BACK_TRIPS;
            self.until = fits.then_some(now);
        }
        if !none {
            self.usual = self.usual - self.usual / USUAL + excess / USUAL;
        }
        self.late = (self.late - self.late / LATE).max(excess);
        let until = self.until?;
        let back = excess > self.usual / AGAIN;
        if back || now.since(until) > min * BACK_TRIPS {
            self.until = None;
        }
        back.then(|| {
            let last = self.last.replace(now);
            let twice = last.is_some_and(|last| APART.contains(&now.since(last)));
            if twice { Seen::Twice } else { Seen::Once }
        })
    }

    /// What was under way is not judged.
    pub(super) fn forget(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }
}
