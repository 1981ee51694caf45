//! Random worlds. Each seed switches a random part of all faults on and gives those wildly
//! different weights, which reaches corners that an even mixture never does.
//!
//! First the faults, then the path heals, and from there on the transfer must finish with the right
//! bytes within a bounded time of the world's own ([`crate::setup::Setup::deadline`]).
//!
//! Every property is drawn from a stream of its own name, so that a new one leaves the old ones of
//! a seed as they are.

mod dice;
mod draw;
mod faults;
mod sketch;

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use netblt_path::scenario::Scenario;

use crate::coverage::Coverage;
use crate::outcome::Outcome;
use crate::setup::Setup;
use crate::world::World;

impl World {
    /// The random world of `seed`.
    pub fn random(seed: u64) -> Self {
        Self::new(setup(seed, None))
    }
}

/// What the random world of `seed` is; on the paths of `scenario` instead of random ones, if given.
pub fn setup(seed: u64, scenario: Option<&Scenario>) -> Setup {
    draw::setup(seed, scenario)
}

/// Runs the random world of `seed`.
pub fn replay(seed: u64, scenario: Option<&Scenario>) -> Outcome {
    World::new(setup(seed, scenario)).run()
}

/// What many worlds came to.
#[derive(Clone, Debug, Default)]
pub struct Swarm {
    /// How many worlds there were.
    pub worlds: u64,
    /// In how many of them each mark was seen.
    pub coverage: Coverage,
    /// The network of all of them, if it was given.
    pub scenario: Option<String>,
    /// Seeds of those that failed, and how; ascending.
    pub failures: Vec<(u64, String)>,
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
        let run = || World::new(setup).run();
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(outcome) => {
                self.coverage.add_world(&outcome.coverage);
                if let Some(problem) = outcome.problem() {
                    self.failures.push((seed, problem));
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                self.failures.push((seed, format!("panic: {}", text.unwrap_or_default())));
            }
        }
    }

    fn join(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.coverage.join(&other.coverage);
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Swarm {
    /// Counts, and for each failure what went wrong and the command that shows it again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} worlds, {} failed", self.worlds, self.failures.len())?;
        writeln!(f, "seen in: {}", self.coverage)?;
        for (seed, problem) in &self.failures {
            write!(f, "{problem}\n    cargo run --release -- simulate --seed {seed}")?;
            match &self.scenario {
                Some(name) => writeln!(f, " --scenario {name}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
