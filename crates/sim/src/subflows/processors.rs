//! The processors of both hosts, which subflows share.

use std::time::Duration;

use netblt_proto::time::Instant;

use super::unit::Unit;

/// The processors, by host (0: the sender's) and number.
#[derive(Debug)]
pub(super) struct Processors {
    /// How long one takes for a packet, of either host.
    costs: [Duration; 2],
    /// A slower one: the host, the processor, and the factor.
    slow: Option<(usize, usize, u32)>,
    /// When each is free again.
    free: [Vec<Instant>; 2],
}

impl Processors {
    /// So many `cores` in either host.
    pub(super) fn new(
        costs: [Duration; 2],
        slow: Option<(usize, usize, u32)>,
        cores: usize,
    ) -> Self {
        Self { costs, slow, free: [0, 1].map(|_| vec![Instant::EPOCH; cores.max(1)]) }
    }

    fn place(&self, unit: &Unit) -> (usize, usize) {
        let host = usize::from(!unit.sends);
        (host, usize::from(unit.subflow) % self.free[host].len())
    }

    /// When the processor of `unit` is free.
    pub(super) fn free_at(&self, unit: &Unit) -> Instant {
        if unit.costs_nothing {
            return Instant::EPOCH;
        }
        let (host, core) = self.place(unit);
        self.free[host][core]
    }

    /// How long it takes for a packet of `unit`.
    pub(super) fn cost(&self, unit: &Unit) -> Duration {
        if unit.costs_nothing {
            return Duration::ZERO;
        }
        let (host, core) = self.place(unit);
        let slower = self.slow.filter(|(h, c, _)| (*h, *c) == (host, core));
        self.costs[host] * slower.map_or(1, |(_, _, times)| times)
    }

    /// It is busy with `unit` until then.
    pub(super) fn occupy(&mut self, unit: &Unit, until: Instant) {
        if !unit.costs_nothing {
            let (host, core) = self.place(unit);
            self.free[host][core] = until;
        }
    }
}
