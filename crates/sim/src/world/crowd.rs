//! Other peers with the same secret.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use super::{Happening, World};
use crate::side::Side;

impl World {
    /// Other peers with the same secret open as well, and then send nothing more.
    pub(super) fn schedule_crowd(&mut self) {
        let mut rng = Rng::named(self.setup.seed, "crowd");
        for n in 0..self.setup.crowd {
            let from = SocketAddr::from(([203, 0, 113, 100 + n % 100], 1000 + u16::from(n)));
            let mut entropy = [0; 32];
            rng.fill(&mut entropy);
            let at = Instant::EPOCH + self.setup.passive.starts_at;
            let at = at + Duration::from_nanos(rng.below(100_000_000));
            let config = self.setup.active.config.clone();
            let mut other = Endpoint::active(config, Side::Passive.address(), at, entropy);
            let mut open = Vec::new();
            other.poll_transmit(at, &mut open);
            self.schedule(at, Happening::Stray(from, open));
        }
    }
}
