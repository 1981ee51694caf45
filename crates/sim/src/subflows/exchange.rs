//! The exchange between subflows: the rate law of the main connection gets the counts of all, and
//! they their shares (`docs/protocol §6.11`).

use std::time::Duration;

use netblt_proto::endpoint::subflows::SubflowTally;
use netblt_proto::time::Instant;

use super::unit::Unit;

/// From one exchange to the next, at least.
const INTERVAL: Duration = Duration::from_micros(200);

/// When the subflows of a sender exchange counts.
#[derive(Debug)]
pub(super) struct Exchange {
    last: Instant,
    /// Whether anything happened since.
    stirred: bool,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self { last: Instant::EPOCH, stirred: false }
    }

    /// A unit had its turn.
    pub(super) fn stir(&mut self) {
        self.stirred = true;
    }

    /// When the next one is due, if there is anything new.
    pub(super) fn next(&self) -> Option<Instant> {
        self.stirred.then(|| self.last + INTERVAL)
    }

    /// One exchange, if it is time. The sender of the transfer is client 0, with the first unit.
    pub(super) fn work(&mut self, now: Instant, units: &mut [Unit]) {
        if now < self.last + INTERVAL {
            return;
        }
        (self.last, self.stirred) = (now, false);
        let is_subflow = |unit: &Unit| unit.client == 0 && unit.subflow > 0;
        let subflows: Vec<usize> = (0..units.len()).filter(|at| is_subflow(&units[*at])).collect();
        if subflows.is_empty() {
            return;
        }
        let tally = |at: &usize| {
            let unit = &units[*at];
            let tally = unit.end.tally(now).unwrap_or(unit.tally);
            SubflowTally { live: !unit.gone, ..tally }
        };
        let tallies: Vec<SubflowTally> = subflows.iter().map(tally).collect();
        let Some(main) = units.first_mut() else { return };
        main.end.lead(now, &tallies);
        let shares: Vec<_> = (0..subflows.len()).map(|at| main.end.share(at)).collect();
        for ((at, share), tally) in subflows.into_iter().zip(shares).zip(tallies) {
            units[at].tally = tally;
            units[at].end.be_led(share);
        }
    }
}
