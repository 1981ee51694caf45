//! A local network: every host receives every packet after a fixed time, unless noise destroys it.

use netblt_path::rng::{Probability, Rng};
use netblt_path::{LinkOptions, Path};
use netblt_proto::time::{Instant, earliest};
use netblt_sim::check::kind;
use netblt_sim::side::{Pair, Side};
use netblt_sim::simulator::Medium;

use crate::lab::{Port, SharedMedium};
use crate::station::IP_BYTES;

/// One path in each direction.
pub(crate) struct Lan {
    paths: Pair<Path<Vec<u8>>>,
    /// How often noise hits a byte, in parts per billion: a packet is lost when one of its bytes is
    /// hit, so that those without data are rarely lost.
    noise_ppb: u32,
    random: Rng,
    data_in: u64,
    data_out: u64,
}

impl Lan {
    pub(crate) fn new(options: &LinkOptions, noise_ppb: u32, seed: u64) -> Self {
        let path = |name| Path::new(options.clone(), seed, name);
        Self {
            paths: Pair([path("there"), path("back")]),
            noise_ppb,
            random: Rng::named(seed, "noise"),
            data_in: 0,
            data_out: 0,
        }
    }
}

impl Medium for Lan {
    type Arrival = (Port, Vec<u8>);

    fn next(&self) -> Option<Instant> {
        earliest(Side::BOTH.map(|side| self.paths[side].next()))
    }

    fn pop(&mut self, now: Instant) -> Option<(Port, Vec<u8>)> {
        for side in Side::BOTH {
            if let Some(delivery) = self.paths[side].pop(now) {
                self.data_out += u64::from(is_data(&delivery.payload));
                return Some((Port { pair: 0, side: side.other() }, delivery.payload));
            }
        }
        None
    }
}

impl SharedMedium for Lan {
    fn push(&mut self, now: Instant, from: Port, bytes: Vec<u8>) {
        self.data_in += u64::from(is_data(&bytes));
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_add(IP_BYTES);
        if !self.random.chance(Probability::from_ppb(self.noise_ppb.saturating_mul(len))) {
            self.paths[from.side].push(now, IP_BYTES, None, bytes);
        }
    }

    fn lost_data(&self) -> u64 {
        self.data_in.saturating_sub(self.data_out)
    }
}

fn is_data(bytes: &[u8]) -> bool {
    matches!(bytes.get(3), Some(&kind::DATA | &kind::LDATA))
}
