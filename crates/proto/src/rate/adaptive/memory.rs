//! How [`Adaptive`] uses what is remembered of a path, and what it gives to be remembered: careful
//! resume (RFC 9959).

use std::time::Duration;

use super::{Adaptive, INITIAL_PACKETS, Phase, Round};
use crate::packet_size::ETHERNET_BYTES;
use crate::rate::Sample;
use crate::rate::path::MILLION;
use crate::rate::train::is_long;
use crate::stats::{Learned, Remembered};
use crate::time::Instant;
use crate::units::Rate;

/// Half is tried for so long, a quarter for so long.
const HALF: Duration = Duration::from_secs(3600);
const QUARTER: Duration = Duration::from_secs(24 * 3600);
/// Of what was remembered, in hundredths, so much is gone to once half was found to pass.
const GOAL: u64 = 95;
/// A path is worth remembering from so many times the first round trip's packets on.
const WORTH: u64 = 4;
/// After so many full round trips in cruise what is believed was seen.
const ROUNDS: u32 = 4;

/// What is remembered, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Not used yet.
    known: Option<Remembered>,
    failed: bool,
    /// Round trips in which the path was used as fast as it was believed to be.
    rounds: u32,
}

impl Memory {
    /// A round trip in cruise ended.
    pub(super) fn count(&mut self, round: &Round) {
        self.rounds = self.rounds.saturating_add(u32::from(!round.app_limited));
    }
}

/// Of `known` the rate that is tried where a round trip takes `rtt`.
fn part(known: &Remembered, rtt: Duration) -> Option<Rate> {
    let same = rtt * 5 >= known.min_rtt * 4 && rtt * 4 <= known.min_rtt * 5;
    let part = match known.age {
        age if age <= HALF => 2,
        age if age <= QUARTER => 4,
        _ => return None,
    };
    same.then(|| known.rate.scaled(1, part))
}

impl Adaptive {
    pub(super) fn recall_path(&mut self, known: Remembered, rtt: Option<Duration>) {
        if self.grain_bytes > 0 || self.agreed.is_some() || is_long(self.min_rtt()) {
            return;
        }
        self.memory.known = Some(known);
        if let Some(rtt) = rtt {
            self.leap_to_remembered(Instant::EPOCH, rtt, &Sample::default());
        }
    }

    /// Goes to a part of what is remembered, if that is of this path. What is not is not tried
    /// again.
    pub(super) fn leap_to_remembered(
        &mut self,
        now: Instant,
        rtt: Duration,
        sample: &Sample,
    ) -> bool {
        let Some(known) = self.memory.known.take() else { return false };
        let Some(part) = part(&known, rtt) else { return false };
        if part.bytes_per_second() <= self.bandwidth.saturating_mul(2) {
            return false;
        }
        self.leap.remembered = true;
        self.bandwidth = part.bytes_per_second() / 2;
        self.leap_to(now, sample, part.bytes_per_second());
        self.leap.goal = known.rate.scaled(GOAL, 100).bytes_per_second();
        true
    }

    /// What was remembered is too much: half of what `came` through.
    pub(super) fn forget(&mut self, now: Instant, came: u64) {
        self.leap.remembered = false;
        self.memory.failed = true;
        self.retreat(now, came / 2);
    }

    pub(super) fn learned_path(&self) -> Learned {
        let rate = Rate::from_bytes_per_second(self.bandwidth);
        let worth = WORTH * INITIAL_PACKETS * u64::from(self.packet_bytes.min(ETHERNET_BYTES));
        let seen = self.memory.rounds >= ROUNDS && !self.is_starting();
        match self.trips.min() {
            Some(min_rtt) if seen && self.phase != Phase::Startup => {
                if rate.bytes_in(min_rtt) > worth && self.rest.share() < MILLION / 2 {
                    Learned::Path(Remembered { rate, min_rtt, age: Duration::ZERO })
                } else {
                    Learned::Wrong
                }
            }
            _ if self.memory.failed => Learned::Wrong,
            _ => Learned::Nothing,
        }
    }
}
