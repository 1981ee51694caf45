//! Draws several concurrent transfers over one path, and checks them together.

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::Policy;
use netblt_proto::units::Rate;

use super::dice::Dice;
use crate::subflows::{Subflows, SubflowsOutcome};

/// The percentage of seeds that are also a world of several transfers.
const SHARE: u32 = 2;
/// IP bytes of a packet.
const PACKET: u64 = 1500;
/// Packets that path and queue hold for each flow at least.
const LEAST_WINDOW: u64 = 4;
/// All flows together have no more.
const MAX_BYTES: u64 = 16 << 20;
/// Shares are judged if the first flow took this long, and so many round trips.
const LONG: (Duration, u32) = (Duration::from_secs(3), 50);
/// The least part of a fair share.
const LEAST_SHARE: u64 = 5;
/// The rate of the path, in bits a second.
const RATES: (u64, u64) = (2_000_000, 30_000_000);
const ROUND_TRIPS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// The transfers of `seed`.
pub(super) fn crowd(seed: u64) -> Option<Subflows> {
    let mut dice = Dice::new(seed, "crowd");
    if !dice.percent(SHARE) {
        return None;
    }
    let rate = Rate::from_bits_per_second(dice.scale(RATES.0, RATES.1));
    let rtt = dice.time(ROUND_TRIPS.0, ROUND_TRIPS.1);
    let queue = (rate.bytes_in(rtt) * dice.scale(10, 400) / 100).max(10 * PACKET);
    let most = (rate.bytes_in(rtt) + queue) / (LEAST_WINDOW * PACKET);
    let count = dice.scale(2, 12).min(most).max(2);
    let lasts = Duration::from_secs(6) + rtt * 100;
    let bytes = rate.bytes_in(lasts).min(MAX_BYTES) / count;
    let link = LinkOptions {
        rate: Some(rate),
        delay: rtt / 2,
        queue: QueueLimit::Bytes(queue),
        ..LinkOptions::default()
    };
    // The law that answers every loss.
    let policy = Policy::Cubic { ceiling: None };
    Some(Subflows {
        seed,
        bytes,
        there: link,
        beside: vec![policy; count as usize - 1],
        beside_bytes: Some(bytes),
        policy,
        deadline: lasts * 10,
        ..Subflows::new(1, rate, rtt)
    })
}

/// The problem of their outcome.
pub(super) fn problem(setup: &Subflows, outcome: &SubflowsOutcome) -> Option<String> {
    let SubflowsOutcome { entered, dropped, arrived_first: (took, arrived), .. } = outcome;
    let most = most_lost(setup, arrived.len() as u64, *entered);
    if *dropped > most {
        return Some(format!("{dropped} of {entered} packets lost, {most} may be"));
    }
    let rtt = setup.there.delay + setup.back.delay;
    let fair = arrived.iter().sum::<u64>() / arrived.len().max(1) as u64;
    let least = arrived.iter().min().copied().unwrap_or_default();
    let is_long = *took >= LONG.0.max(rtt * LONG.1);
    (is_long && least * LEAST_SHARE < fair)
        .then(|| format!("after {took:?} one of {} had {least} bytes of {fair}", arrived.len()))
}

/// The bound for lost packets of so many: twice the loss of CUBIC's windows where they are those of
/// a Reno (1.5 / W^2), and a hundredth; and at the start, when all double, three times what path
/// and queue hold.
fn most_lost(setup: &Subflows, flows: u64, entered: u64) -> u64 {
    let rate = setup.there.rate.unwrap_or_default();
    let queue = match setup.there.queue {
        QueueLimit::Bytes(bytes) => bytes,
        _ => 0,
    };
    let held = (rate.bytes_in(setup.there.delay + setup.back.delay) + queue) / PACKET;
    let window = (held / flows.max(1)).max(1);
    entered * (10 + 3000 / (window * window)) / 1000 + 3 * held
}
