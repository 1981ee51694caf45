//! Random worlds. Each seed switches a random part of all faults on and gives those wildly
//! different weights, which reaches corners that an even mixture never does.
//!
//! First the faults, then the path heals, and from there on the transfer must finish with the right
//! bytes within a bounded time of the world's own ([`crate::setup::Setup::deadline`]).
//!
//! Every property is drawn from a stream of its own name, so that a new one leaves the old ones of
//! a seed as they are.

mod changes;
mod crowd;
mod dice;
mod draw;
mod faults;
mod sketch;
mod subflows;

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use netblt_path::scenario::Scenario;

use crate::coverage::{Coverage, Mark};
use crate::outcome::Outcome;
use crate::setup::Setup;
use crate::subflows::{Subflows, SubflowsOutcome};
use crate::world::World;

/// The command that replays a world.
const SIMULATE: &str = "cargo run --release -- simulate --seed ";
/// The same of one over subflows, or of several transfers at once.
const BESIDES: &str = "NETBLT_SWARM=1 NETBLT_SWARM_FROM=";
const TEST: &str = "cargo test --release -p netblt-sim --test it every_world_is";

impl World {
    /// The random world of `seed`.
    pub fn random(seed: u64) -> Self {
        Self::new(setup(seed, None))
    }
}

/// The setup of the random world of `seed`; on the paths of `scenario` instead of random ones, if
/// given.
pub fn setup(seed: u64, scenario: Option<&Scenario>) -> Setup {
    draw::setup(seed, scenario)
}

/// Runs the random world of `seed`.
pub fn replay(seed: u64, scenario: Option<&Scenario>) -> Outcome {
    World::new(setup(seed, scenario)).run()
}

/// The transfer over subflows that `seed` is besides, if it is one.
pub fn subflows(seed: u64) -> Option<Subflows> {
    subflows::subflows(seed)
}

/// The transfers at once over one path that `seed` is besides, if it is one.
pub fn crowd(seed: u64) -> Option<Subflows> {
    crowd::crowd(seed)
}

/// Runs the concurrent transfers of `seed`. Returns their problem, if there is one.
pub fn in_crowd(seed: u64) -> Option<String> {
    let setup = crowd(seed)?;
    match caught(|| setup.clone().run()) {
        Ok(Ok(outcome)) => crowd::problem(&setup, &outcome),
        Ok(Err(problem)) | Err(problem) => Some(problem),
    }
}

/// The sum of many worlds.
#[derive(Clone, Debug, Default)]
pub struct Swarm {
    /// How many worlds there were.
    pub worlds: u64,
    /// In how many of them each mark was seen.
    pub coverage: Coverage,
    /// The network of all of them, if it was given.
    pub scenario: Option<String>,
    /// The failed ones; by seed, ascending.
    pub failures: Vec<Failure>,
}

/// The worlds that a seed may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorldKind {
    /// One transfer, which every seed is.
    Alone,
    /// A transfer over subflows ([`subflows`]).
    OverSubflows,
    /// Several transfers at once ([`crowd`]).
    InCrowd,
}

/// A world that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// Which of the worlds of the seed it is.
    pub kind: WorldKind,
    /// The problem.
    pub problem: String,
}

/// Runs the random worlds of `seeds` on `threads` threads; on the paths of `scenario` instead of
/// random ones, if given.
pub fn run(seeds: Range<u64>, threads: usize, scenario: Option<&Scenario>) -> Swarm {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut swarm = Swarm::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return swarm;
            }
            swarm.add(seed, scenario);
        }
    };
    let name = scenario.map(|scenario| scenario.name.clone());
    let mut all = Swarm { scenario: name, ..Swarm::default() };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(swarm) => all.join(swarm),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    all.failures.sort();
    all
}

impl Swarm {
    fn add(&mut self, seed: u64, scenario: Option<&Scenario>) {
        self.worlds += 1;
        let setup = Setup { transcript: false, ..setup(seed, scenario) };
        let problem = match caught(|| World::new(setup).run()) {
            Ok(outcome) => {
                self.coverage.add_world(&outcome.coverage);
                outcome.problem()
            }
            Err(panic) => Some(panic),
        };
        self.fail(seed, WorldKind::Alone, problem);
        if scenario.is_none() {
            self.add_besides(seed);
        }
    }

    /// Adds the other worlds of the seed.
    fn add_besides(&mut self, seed: u64) {
        if let Some(subflows) = subflows(seed) {
            let problem = match caught(|| subflows.run()) {
                Ok(Ok(outcome)) => {
                    self.coverage.add_world(&seen(&outcome));
                    None
                }
                Ok(Err(problem)) | Err(problem) => Some(problem),
            };
            self.fail(seed, WorldKind::OverSubflows, problem);
        }
        if crowd(seed).is_some() {
            let mut coverage = Coverage::default();
            coverage.see(Mark::Crowd, 1);
            self.coverage.add_world(&coverage);
            self.fail(seed, WorldKind::InCrowd, in_crowd(seed));
        }
    }

    fn fail(&mut self, seed: u64, kind: WorldKind, problem: Option<String>) {
        let failure = problem.map(|problem| Failure { seed, kind, problem });
        self.failures.extend(failure);
    }

    fn join(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.coverage.join(&other.coverage);
        self.failures.extend(other.failures);
    }
}

/// The result of `run`, or the text of its panic.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

/// The events of subflows.
fn seen(outcome: &SubflowsOutcome) -> Coverage {
    let mut coverage = Coverage::default();
    coverage.see(Mark::Subflows, u64::from(outcome.packets.len() > 1));
    coverage.see(Mark::SubflowLost, outcome.lost.into());
    coverage
}

impl fmt::Display for Swarm {
    /// Counts, and for each failure what went wrong and the command that shows it again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} worlds, {} failed", self.worlds, self.failures.len())?;
        writeln!(f, "seen in: {}", self.coverage)?;
        for Failure { seed, kind, problem } in &self.failures {
            writeln!(f, "{problem}")?;
            match &self.scenario {
                _ if *kind != WorldKind::Alone => writeln!(f, "    {BESIDES}{seed} {TEST}")?,
                Some(name) => writeln!(f, "    {SIMULATE}{seed} --scenario {name}")?,
                None => writeln!(f, "    {SIMULATE}{seed}")?,
            }
        }
        Ok(())
    }
}
