//! Whether other programs keep this machine's processors busy: what then limits a transfer, or how
//! long something takes, says nothing about the program.

use std::collections::BTreeSet;
use std::fs;

/// The processors' time from one moment on.
pub(crate) struct Load(Time);

/// Of the processors that this process may use, in ticks.
#[derive(Clone, Copy)]
struct Time {
    idle: u64,
    all: u64,
}

impl Load {
    /// From now on.
    pub(crate) fn begin() -> Self {
        Self(now())
    }

    /// Whether less than a quarter of their time was idle since.
    pub(crate) fn is_high(&self) -> bool {
        let now = now();
        let [idle, all] = [now.idle - self.0.idle, now.all - self.0.all];
        idle * 4 <= all
    }
}

fn now() -> Time {
    let own = processors();
    let text = fs::read_to_string("/proc/stat").expect("the processors' times");
    let mut time = Time { idle: 0, all: 0 };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().and_then(|name| name.strip_prefix("cpu"));
        let number = name.and_then(|number| number.parse().ok());
        if number.is_some_and(|number: usize| own.contains(&number)) {
            // User, nice, system, idle, waiting for disks, interrupts twice, stolen.
            let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).take(8).collect();
            time.idle += ticks[3] + ticks[4];
            time.all += ticks.iter().sum::<u64>();
        }
    }
    time
}

/// As `0-3,6`.
fn processors() -> BTreeSet<usize> {
    let text = fs::read_to_string("/proc/self/status").expect("what this process may use");
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let number = |text: &str| text.trim().parse::<usize>().expect("a processor's number");
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => number(from)..=number(to),
        None => number(part)..=number(part),
    };
    list.expect("a list").split(',').flat_map(range).collect()
}
