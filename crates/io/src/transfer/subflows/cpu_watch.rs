//! Watches whether a processor limits a transfer while others are idle: otherwise one subflow more
//! cannot help (`--subflows auto`). Trials show whether it does.

use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use netblt_proto::limits::MAX_SUBFLOWS;
use netblt_proto::time::Instant;

use crate::cpu_usage::CpuUsage;

/// The interval between two looks.
pub(super) const WINDOW: Duration = Duration::from_millis(500);
/// A loop that runs for this share of the time can do no more.
const BUSY: f64 = 0.85;
/// With fewer processors, the loop and the disk's threads use all of them.
const FEW: usize = 4;

/// The values since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CpuSample {
    /// For which share of the time the main loop ran.
    pub(super) ran: f64,
    /// How many processors were idle.
    pub(super) idle: f64,
    /// Bytes that arrived, over all subflows, in a second.
    pub(super) moved: f64,
}

impl CpuSample {
    /// How many more subflows are worth a trial, with `subflows` of at most `most`.
    pub(super) fn more(self, subflows: usize, most: usize) -> usize {
        if self.ran < BUSY { 0 } else { self.room(subflows, most) }
    }

    /// How many more there can be: as many again, each with an idle processor.
    pub(super) fn room(self, subflows: usize, most: usize) -> usize {
        subflows.min(self.idle.max(0.0) as usize).min(most.saturating_sub(subflows))
    }
}

/// How many subflows this machine has processors for.
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
        more => u8::try_from(more / 2).unwrap_or(u8::MAX).min(MAX_SUBFLOWS),
    }
}

#[cfg(test)]
thread_local! {
    /// The machine that tests play for a thread: the most subflows, and at each look the share of
    /// the time for which its loop ran, with idle processors.
    pub(super) static PLAYED: std::cell::Cell<Option<(u8, f64)>> =
        const { std::cell::Cell::new(None) };
}

/// Takes a sample at intervals, on the thread of the main loop.
#[derive(Debug)]
pub(super) struct CpuWatch {
    since: Instant,
    processor: CpuUsage,
    times: Option<SystemCpuTimes>,
    /// Bytes that had arrived.
    moved: u64,
}

impl CpuWatch {
    /// Starts, when so many bytes have arrived.
    pub(super) fn start(now: Instant, moved: u64) -> Self {
        Self { since: now, processor: CpuUsage::start(), times: SystemCpuTimes::read(), moved }
    }

    /// The sample, if it is time for one. `None` where the system has no counts.
    pub(super) fn look(&mut self, now: Instant, moved: u64) -> Option<CpuSample> {
        let elapsed = now.since(self.since);
        if elapsed < WINDOW {
            return None;
        }
        let before = std::mem::replace(self, Self::start(now, moved));
        let moved = moved.saturating_sub(before.moved) as f64 / elapsed.as_secs_f64();
        #[cfg(test)]
        if let Some((most, ran)) = PLAYED.get() {
            return Some(CpuSample { ran, idle: most.into(), moved });
        }
        let ran = before.processor.ran().as_secs_f64() / elapsed.as_secs_f64();
        let idle = self.times?.idle_since(before.times?);
        // This process may be allowed to use only a few of the machine's processors.
        let own = available_parallelism().map_or(1, usize::from) as f64;
        Some(CpuSample { ran, idle: idle.min(own - ran), moved })
    }
}

/// The ticks of all processors so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SystemCpuTimes {
    idle: u64,
    all: u64,
    processors: u64,
}

impl SystemCpuTimes {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the line of all processors: user, nice, system, idle, waiting for disks, and more.
    /// The last two, of virtual machines, are part of the first two.
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
    fn a_subflow_is_added_only_with_a_busy_loop_and_idle_processors() {
        let busy = |idle| CpuSample { ran: 0.97, idle, moved: 0.0 };
        for (seen, subflows, most, more) in [
            (busy(30.0), 1, 16, 1),
            (busy(30.0), 4, 16, 4),
            (busy(2.9), 4, 16, 2),
            (busy(30.0), 12, 16, 4),
            (busy(30.0), 16, 16, 0),
            (busy(0.9), 1, 16, 0),
            (busy(-1.0), 1, 16, 0),
            (CpuSample { ran: 0.6, idle: 30.0, moved: 1e9 }, 1, 16, 0),
        ] {
            assert_eq!(seen.more(subflows, most), more, "{seen:?}, {subflows} of {most}");
        }
    }

    #[test]
    fn few_processors_take_one_subflow() {
        let most = [1, 2, 3, 4, 8, 32, 256].map(most_of);
        assert_eq!(most, [1, 1, 1, 2, 4, 16, 32]);
    }

    #[test]
    fn idle_time_is_parsed_from_the_systems_counts() {
        let before = "cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let after = "cpu  150 0 50 870 80 0 0 0 7 7\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let [before, after] =
            [before, after].map(|text| SystemCpuTimes::parse(text).expect("it is one"));
        assert_eq!(before, SystemCpuTimes { idle: 850, all: 1000, processors: 2 });
        assert!((after.idle_since(before) - 100.0 / 150.0 * 2.0).abs() < 1e-9);
        assert_eq!(SystemCpuTimes::parse("nothing"), None);
        assert_eq!(SystemCpuTimes::parse("cpu  1 2 x"), None);
    }

    #[test]
    fn a_working_thread_is_measured() {
        let start = std::time::Instant::now();
        let at = || Instant::EPOCH + start.elapsed();
        let mut watch = CpuWatch::start(at(), 1_000);
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
