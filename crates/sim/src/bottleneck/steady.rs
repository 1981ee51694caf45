//! A sender that never answers: constant rate, as of voice and video calls.

use std::time::Duration;

use netblt_proto::api::Ecn;
use netblt_proto::time::{Instant, nanos};
use netblt_proto::units::Rate;

use super::ends::{Body, Ends, FlowPacket, Outbox};

/// Packets of one size at one rate, each up to a tenth early or late.
#[derive(Debug)]
pub(super) struct Steady {
    rate: Rate,
    bytes: u32,
    next: Instant,
    number: u64,
}

impl Steady {
    pub(super) fn new(rate: Rate, bytes: u32, start: Instant) -> Self {
        Self { rate, bytes, next: start, number: 0 }
    }
}

impl Ends for Steady {
    fn due(&self, _now: Instant) -> Instant {
        self.next
    }

    fn work(&mut self, now: Instant, out: &mut Outbox) {
        out.push(Body::Data(self.number), self.bytes);
        self.number += 1;
        let interval = nanos(self.rate.time_for(u64::from(self.bytes)));
        let spread = interval / 5;
        let interval = interval - spread / 2 + out.rng.below(spread + 1);
        self.next = now + Duration::from_nanos(interval.max(1));
    }

    fn on_data(&mut self, _: Instant, _: &FlowPacket, _: Option<Ecn>, _: &mut Outbox) {}

    fn on_feedback(&mut self, _: Instant, _: &Body, _: &mut Outbox) {}
}
