//! Drawing a transfer over several subflows, with the faults of every other world.

use std::time::Duration;

use netblt_proto::config::Wire;
use netblt_proto::units::Rate;

use super::dice::Dice;
use super::draw;
use super::faults;
use super::sketch::{bound_rounds, policy, sketch};
use crate::subflows::Subflows;

/// The percentage of seeds that are also a world of subflows.
const SHARE: u32 = 5;
/// Subflows come after 100 ms and 8 round trips: a path is drawn on which there is time for them.
const LEAST: Duration = Duration::from_millis(500);
/// No transfer is longer.
const MAX_BYTES: u64 = 2 << 20;
/// An outage is no death.
const DEATH_TIMER: Duration = Duration::from_secs(300);

/// The world of subflows of `seed`.
pub(super) fn subflows(seed: u64) -> Option<Subflows> {
    let mut dice = Dice::new(seed, "lanes");
    if !dice.percent(SHARE) {
        return None;
    }
    let mut sketch = sketch(seed, None);
    sketch.wire = Wire::Sealed;
    sketch.rate = Rate::from_bits_per_second(dice.scale(1_000_000, 20_000_000));
    sketch.rtt = dice.time(Duration::from_micros(100), Duration::from_millis(500));
    let lasts = LEAST + sketch.rtt * dice.range(8, 40) as u32;
    sketch.bytes = (sketch.rate.bytes_in(lasts) + dice.range(0, 70_000)).min(MAX_BYTES);
    sketch.datagram = sketch.datagram.clamp(200, 9000);
    sketch.policy = policy(seed, Wire::Sealed, sketch.rate, sketch.datagram).0;
    bound_rounds(&mut sketch);
    let subflows = dice.range(2, 5) as u8;
    let mut setup = Subflows { seed, ..Subflows::new(subflows, sketch.rate, sketch.rtt) };
    (setup.bytes, setup.pushes) = (sketch.bytes, dice.percent(50));
    (setup.policy, setup.datagram_bytes) = (sketch.policy, sketch.datagram);
    setup.buffers = (sketch.buffer.next_power_of_two(), sketch.outstanding.max(2));
    setup.death_timer = DEATH_TIMER;
    setup.cores = dice.range(1, 8) as usize;
    setup.costs = [(); 2].map(|()| Duration::from_micros(dice.range(0, 40)));
    if dice.percent(30) {
        let core = dice.range(0, setup.cores as u64 - 1) as usize;
        setup.slow = Some((dice.range(0, 1) as usize, core, 5));
    }
    (setup.there, setup.back) = draw::links(seed, &sketch, u64::from(sketch.datagram) + 28);
    let base = lasts * 4;
    let heals_at = dice.within(base * 4).clamp(Duration::from_secs(1), Duration::from_secs(30));
    for (name, link) in [("lanes there", &mut setup.there), ("lanes back", &mut setup.back)] {
        faults::add_to_link(&mut Dice::new(seed, name), &sketch, heals_at, link);
    }
    for subflow in 1..subflows {
        if dice.percent(40) {
            setup.cuts.push((subflow, dice.within(lasts * 2)));
        }
    }
    let mut moves: Vec<_> = (0..dice.range(0, 8)).map(|_| dice.within(heals_at)).collect();
    if dice.percent(20) {
        moves.truncate(3);
        moves.sort();
        setup.moves = moves;
    }
    setup.deadline = heals_at + base * 12 + Duration::from_secs(120);
    Some(setup)
}
