//! The counts of a scene.

use std::collections::BTreeMap;
use std::time::Duration;

use netblt_path::{Counters, LinkOptions};
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

/// The resolution of counts over time.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// One flow, of the packets that were sent in the time that counts.
#[derive(Clone, Debug, Default)]
pub struct FlowBooks {
    /// Packets sent.
    pub sent: u64,
    /// Those of them that arrived, marked ones included.
    pub arrived: u64,
    /// Their IP bytes.
    pub arrived_bytes: u64,
    /// Those that arrived with a mark.
    pub marked: u64,
    /// Those that the bottleneck dropped.
    pub refused: u64,
    /// IP bytes that arrived in each tenth of a second from the beginning on.
    pub ticks: Vec<u64>,
    /// Packets sent in each tenth of a second from the beginning on.
    pub sent_ticks: Vec<u64>,
    /// Tenths of a second that its sender was in each phase, of the time that counts.
    pub phases: BTreeMap<&'static str, u64>,
    /// How long each of its pieces took, of those that began in the time that counts.
    pub pieces: Vec<Duration>,
    /// The one-way delay of each packet that arrived, if they are kept.
    pub delays: Vec<Duration>,
}

impl FlowBooks {
    /// The part of its packets that did not arrive.
    pub fn loss(&self) -> f64 {
        (self.sent - self.arrived) as f64 / self.sent.max(1) as f64
    }

    /// Packets of [`Self::sent`] that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent - self.arrived
    }

    /// Bytes that arrived between two times.
    pub fn bytes_between(&self, from: Duration, until: Duration) -> u64 {
        let tick = |at: Duration| (at.as_millis() / TICK.as_millis()) as usize;
        self.ticks.iter().take(tick(until)).skip(tick(from)).sum()
    }

    /// The part of the time that counts in which its sender was in a phase of such a name.
    pub fn time_in(&self, is_it: impl Fn(&str) -> bool) -> f64 {
        let all: u64 = self.phases.values().sum();
        let some: u64 =
            self.phases.iter().filter(|(phase, _)| is_it(phase)).map(|(_, ticks)| ticks).sum();
        some as f64 / all.max(1) as f64
    }
}

/// The result of a scene.
#[derive(Clone, Debug, Default)]
pub struct SceneOutcome {
    /// Each flow, in the order of the scene.
    pub flows: Vec<FlowBooks>,
    /// The bottleneck's counts in the counted time.
    pub link: Link,
    /// How long that was.
    pub time: Duration,
    /// The capacity of the bottleneck in that time, in IP bytes, random losses included.
    pub possible_bytes: u64,
    /// The largest number of the flows' starts, for [`Self::time_to_fair`].
    pub last_start: Duration,
}

/// The bottleneck's counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    /// Packets that came to it.
    pub entered: u64,
    /// Packets lost because the queue was full, or to a policer or queue manager.
    pub lost_queue: u64,
    /// Packets lost by chance.
    pub lost_random: u64,
    /// Packets marked.
    pub marked: u64,
    /// The mean time in the queue.
    pub mean_queue: Duration,
}

impl Link {
    pub(super) fn between(from: &Counters, until: &Counters) -> Self {
        let entered = (until.entered - from.entered).packets;
        let queue = (until.lost_queue - from.lost_queue).packets;
        let policer = (until.lost_policer - from.lost_policer).packets;
        let passed = entered.saturating_sub(queue + policer).max(1);
        let waited = until.queue_time_sum - from.queue_time_sum;
        Self {
            entered,
            lost_queue: queue + policer,
            lost_random: (until.lost_random - from.lost_random).packets,
            marked: (until.marked - from.marked).packets,
            mean_queue: Duration::from_nanos((waited.as_nanos() / u128::from(passed)) as u64),
        }
    }

    /// The part of the packets that the queue lost.
    pub fn queue_loss(&self) -> f64 {
        self.lost_queue as f64 / self.entered.max(1) as f64
    }
}

impl SceneOutcome {
    /// A flow's share of the bottleneck's capacity.
    pub fn share(&self, flow: usize) -> f64 {
        let bytes = self.flows.get(flow).map_or(0, |books| books.arrived_bytes);
        bytes as f64 / self.possible_bytes.max(1) as f64
    }

    /// The share of some flows together.
    pub fn shares(&self, flows: impl IntoIterator<Item = usize>) -> f64 {
        flows.into_iter().map(|flow| self.share(flow)).sum()
    }

    /// The share of all flows together.
    pub fn used(&self) -> f64 {
        self.shares(0..self.flows.len())
    }

    /// The part of their packets that did not arrive, of some flows.
    pub fn loss(&self, flows: impl IntoIterator<Item = usize>) -> f64 {
        let (lost, sent) = flows
            .into_iter()
            .filter_map(|flow| self.flows.get(flow))
            .fold((0, 0), |(lost, sent), books| (lost + books.lost(), sent + books.sent));
        lost as f64 / sent.max(1) as f64
    }

    /// Jain's index of some flows.
    pub fn jain(&self, flows: impl IntoIterator<Item = usize>) -> f64 {
        let bytes: Vec<f64> = flows
            .into_iter()
            .filter_map(|flow| self.flows.get(flow))
            .map(|books| books.arrived_bytes as f64)
            .collect();
        jain(&bytes)
    }

    /// How long after the last start Jain's index of three seconds is `level` and stays so for
    /// five seconds, of all flows.
    pub fn time_to_fair(&self, level: f64) -> Option<Duration> {
        const SECOND: Duration = Duration::from_secs(1);
        let whole = self.flows.iter().map(|books| books.ticks.len()).max().unwrap_or(0);
        let end = TICK * u32::try_from(whole).unwrap_or(u32::MAX);
        let (mut at, mut held) = (self.last_start, 0);
        while at + 3 * SECOND <= end {
            let bytes: Vec<f64> = self
                .flows
                .iter()
                .map(|books| books.bytes_between(at, at + 3 * SECOND) as f64)
                .collect();
            held = if jain(&bytes) >= level { held + 1 } else { 0 };
            if held == 5 {
                return Some((at + SECOND).saturating_sub(5 * SECOND + self.last_start));
            }
            at += SECOND;
        }
        None
    }
}

/// Jain's index: 1 if all are equal, 1/n if one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 0.0 }
}

/// IP bytes that a link can send between two times, by its schedule.
pub(super) fn possible_bytes(link: &LinkOptions, from: Duration, until: Duration) -> u64 {
    let mut options = LinkOptions { schedule: Vec::new(), ..link.clone() };
    let mut changes = link.schedule.clone();
    changes.sort_by_key(|change| change.at);
    let (mut at, mut bytes) = (Duration::ZERO, 0);
    let mut add = |options: &LinkOptions, at: Duration, next: Duration| {
        let (begin, end) = (at.max(from), next.min(until));
        let works = options.outage == netblt_path::Outage::None;
        let policed = options.policer.map(|policer| policer.rate);
        let rate = options.rate.into_iter().chain(policed).min().unwrap_or(Rate::ZERO);
        if works && end > begin {
            bytes += rate.bytes_in(end - begin);
        }
    };
    for change in &changes {
        add(&options, at, change.at);
        options.apply(change);
        at = change.at;
    }
    add(&options, at, Duration::MAX);
    bytes
}

/// The tick that a time is in.
pub(super) fn tick(at: Instant) -> usize {
    (at.since(Instant::EPOCH).as_millis() / TICK.as_millis()) as usize
}
