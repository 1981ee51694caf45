//! Where and when flows meet.

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind, Scene, SceneOutcome, run};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A bottleneck and the round trip over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) mbit: u64,
    pub(crate) rtt: Duration,
    /// The queue, in hundredths of the bandwidth-delay product.
    pub(crate) queue: u64,
}

/// The paths of the matrix: Mbit/s and round trip in milliseconds.
pub(crate) const PATHS: [(u64, u64); 5] = [(20, 80), (50, 40), (200, 20), (100, 100), (20, 600)];
/// Their queues, in hundredths of the product.
pub(crate) const QUEUES: [u64; 4] = [10, 25, 100, 400];

impl Place {
    pub(crate) fn new((mbit, rtt): (u64, u64), queue: u64) -> Self {
        Self { mbit, rtt: ms(rtt), queue }
    }

    /// The paths, each with every queue; two of each if it is to be `quick`.
    pub(crate) fn grid(quick: bool) -> Vec<Self> {
        let (paths, queues) =
            if quick { (&PATHS[1..2], &QUEUES[1..3]) } else { (&PATHS[..], &QUEUES[..]) };
        let of = |path: &(u64, u64)| {
            let path = *path;
            queues.iter().map(move |queue| Self::new(path, *queue))
        };
        paths.iter().flat_map(of).collect()
    }

    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bits_per_second(self.mbit * 1_000_000)
    }

    pub(crate) fn queue_bytes(&self) -> u64 {
        self.rate().bytes_in(self.rtt) * self.queue / 100
    }

    pub(crate) fn link(&self) -> LinkOptions {
        let queue = QueueLimit::Bytes(self.queue_bytes());
        LinkOptions { rate: Some(self.rate()), queue, ..LinkOptions::default() }
    }

    pub(crate) fn name(&self) -> String {
        let queue = self.queue as f64 / 100.0;
        format!("{}/{}, {queue} BDP", self.mbit, self.rtt.as_millis())
    }

    /// So many flows of a kind, the first at `start` and the others `gap` apart.
    pub(crate) fn flows(
        &self,
        kind: Kind,
        count: usize,
        start: Duration,
        gap: Duration,
    ) -> Vec<FlowOptions> {
        let flow = |n: usize| FlowOptions::new(kind, self.rtt, start + gap * n as u32);
        (0..count).map(flow).collect()
    }

    /// The flows through this place.
    pub(crate) fn run(&self, flows: Vec<FlowOptions>, seed: u64) -> SceneOutcome {
        self.run_over(self.link(), flows, seed)
    }

    /// The same with another link: what is sent from 20 s after the last start on, for a minute.
    pub(crate) fn run_over(
        &self,
        link: LinkOptions,
        flows: Vec<FlowOptions>,
        seed: u64,
    ) -> SceneOutcome {
        run(&counted(link, flows, seed))
    }
}

/// From 20 s after the last start on, for a minute.
pub(crate) fn counted(link: LinkOptions, flows: Vec<FlowOptions>, seed: u64) -> Scene {
    let last = flows.iter().map(|flow| flow.start).max().unwrap_or_default();
    let from = last + SECOND * 20;
    Scene { from, ..Scene::new(link, flows, from + SECOND * 60, seed) }
}

/// Several lists, one after the other.
pub(crate) fn together<const N: usize>(lists: [Vec<FlowOptions>; N]) -> Vec<FlowOptions> {
    lists.into_iter().flatten().collect()
}
