//! Whether a processor is what limits a transfer while others are idle: without that, one lane more
//! cannot help (`--lanes auto`). Whether it does, trials tell.

use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use netblt_proto::limits::MAX_LANES;
use netblt_proto::time::Instant;

use crate::processor::Processor;

/// Between two looks.
pub(super) const WINDOW: Duration = Duration::from_millis(500);
/// A loop that runs for this share of the time can do no more.
const BUSY: f64 = 0.85;
/// Where there are fewer processors, the loop and what reads or stores have all of them.
const FEW: usize = 4;

/// What was seen since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// For which share of the time the main loop ran.
    pub(super) ran: f64,
    /// How many processors nobody used.
    pub(super) idle: f64,
    /// Bytes that arrived, over all lanes, in a second.
    pub(super) moved: f64,
}

impl Seen {
    /// How many lanes more there are to be, where there are `lanes` of at most `most`.
    pub(super) fn more(self, lanes: usize, most: usize) -> usize {
        if self.ran < BUSY { 0 } else { self.room(lanes, most) }
    }

    /// How many more there can be: as many again, each with a processor that is idle.
    pub(super) fn room(self, lanes: usize, most: usize) -> usize {
        lanes.min(self.idle.max(0.0) as usize).min(most.saturating_sub(lanes))
    }
}

/// How many lanes this machine has processors for.
pub(super) fn most() -> u8 {
    #[cfg(test)]
    if let Some((most, _)) = PLAYED.get() {
        return most;
    }
    most_of(available_parallelism().map_or(1, usize::from))
}

fn most_of(processors: usize) -> u8 {
    match processors {
        ..FEW => 1,
        more => u8::try_from(more / 2).unwrap_or(u8::MAX).min(MAX_LANES),
    }
}

#[cfg(test)]
thread_local! {
    /// What tests have a thread see in place of its machine: the most lanes, and at each look the
    /// share of the time for which its loop ran, processors being idle.
    pub(super) static PLAYED: std::cell::Cell<Option<(u8, f64)>> =
        const { std::cell::Cell::new(None) };
}

/// Looks from time to time, on the thread of the main loop.
#[derive(Debug)]
pub(super) struct Watch {
    since: Instant,
    processor: Processor,
    times: Option<Times>,
    /// Bytes that had arrived.
    moved: u64,
}

impl Watch {
    /// Begins, when so many bytes have arrived.
    pub(super) fn start(now: Instant, moved: u64) -> Self {
        Self { since: now, processor: Processor::start(), times: Times::read(), moved }
    }

    /// What there is to see, if it is time to look. Where the system does not tell, nothing.
    pub(super) fn look(&mut self, now: Instant, moved: u64) -> Option<Seen> {
        let elapsed = now.since(self.since);
        if elapsed < WINDOW {
            return None;
        }
        let before = std::mem::replace(self, Self::start(now, moved));
        let moved = moved.saturating_sub(before.moved) as f64 / elapsed.as_secs_f64();
        #[cfg(test)]
        if let Some((most, ran)) = PLAYED.get() {
            return Some(Seen { ran, idle: most.into(), moved });
        }
        let ran = before.processor.ran().as_secs_f64() / elapsed.as_secs_f64();
        let idle = self.times?.idle_since(before.times?);
        // Of a machine's processors this process may have the use of a few.
        let own = available_parallelism().map_or(1, usize::from) as f64;
        Some(Seen { ran, idle: idle.min(own - ran), moved })
    }
}

/// What all processors did so far, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    idle: u64,
    all: u64,
    processors: u64,
}

impl Times {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Of the line of all processors: user, nice, system, idle, waiting for disks, and more; the
    /// last two, guests, are in the first two.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let fields = lines.next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [idle, disks] = [ticks.get(3)?, ticks.get(4)?];
        let processors = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
        Some(Self { idle: idle + disks, all: ticks.iter().sum(), processors })
    }

    fn idle_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        self.idle.saturating_sub(before.idle) as f64 / all * self.processors as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_more_only_where_a_loop_is_busy_and_processors_are_idle() {
        let busy = |idle| Seen { ran: 0.97, idle, moved: 0.0 };
        for (seen, lanes, most, more) in [
            (busy(30.0), 1, 16, 1),
            (busy(30.0), 4, 16, 4),
            (busy(2.9), 4, 16, 2),
            (busy(30.0), 12, 16, 4),
            (busy(30.0), 16, 16, 0),
            (busy(0.9), 1, 16, 0),
            (busy(-1.0), 1, 16, 0),
            (Seen { ran: 0.6, idle: 30.0, moved: 1e9 }, 1, 16, 0),
        ] {
            assert_eq!(seen.more(lanes, most), more, "{seen:?}, {lanes} of {most}");
        }
    }

    #[test]
    fn few_processors_take_one_lane() {
        let most = [1, 2, 3, 4, 8, 32, 256].map(most_of);
        assert_eq!(most, [1, 1, 1, 2, 4, 16, 32]);
    }

    #[test]
    fn what_is_idle_is_read_from_what_the_system_tells() {
        let before = "cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let after = "cpu  150 0 50 870 80 0 0 0 7 7\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let [before, after] = [before, after].map(|text| Times::parse(text).expect("it is one"));
        assert_eq!(before, Times { idle: 850, all: 1000, processors: 2 });
        assert!((after.idle_since(before) - 100.0 / 150.0 * 2.0).abs() < 1e-9);
        assert_eq!(Times::parse("nothing"), None);
        assert_eq!(Times::parse("cpu  1 2 x"), None);
    }

    #[test]
    fn a_thread_that_works_is_seen_to() {
        let start = std::time::Instant::now();
        let at = || Instant::EPOCH + start.elapsed();
        let mut watch = Watch::start(at(), 1_000);
        assert_eq!(watch.look(at(), 2_000), None, "it is too soon");
        while start.elapsed() < WINDOW {
            std::hint::spin_loop();
        }
        // Others may have had the processor meanwhile.
        if let Some(seen) = watch.look(at(), 501_000) {
            assert!(seen.ran > 0.0 && seen.ran < 1.1, "{seen:?}");
            assert!(seen.moved > 0.0 && seen.moved <= 1e6, "{seen:?}");
        }
    }
}
