//! The changes of a laptop: its lid is closed, and it wakes up in another network.

use std::time::Duration;

use netblt_path::{Change, LinkOptions, Outage};
use netblt_proto::config::{Policy, Wire};

use super::dice::Dice;
use super::sketch::Sketch;
use crate::setup::Setup;
use crate::side::Side;

/// No path becomes longer than this, one way.
const LONGEST_WAY: Duration = Duration::from_secs(1);
/// The longest gap between two networks.
const LONGEST_GAP: Duration = Duration::from_secs(3);

/// Suspends hosts once or twice, for as long as it takes to move them. Returns whether there are
/// any: a connection may die of that.
pub(super) fn add_sleeps(seed: u64, heals_at: Duration, setup: &mut Setup) -> bool {
    let mut dice = Dice::new(seed, "nights");
    if !dice.percent(4) {
        return false;
    }
    for _ in 0..dice.range(1, 2) {
        let host = if dice.percent(50) { &mut setup.active } else { &mut setup.passive };
        let lasts = dice.time(Duration::from_millis(500), Duration::from_secs(40));
        host.sleeps.push((dice.within(heals_at), lasts));
    }
    true
}

/// The path becomes another one up to three times, and then the first again: longer or shorter, and
/// as slow as an eighth where a law finds that out. On `sealed` often with a new address of the end
/// that moves, after a gap. Returns whether it does: it may queue for long.
pub(super) fn add_another_way(
    seed: u64,
    sketch: &Sketch,
    heals_at: Duration,
    setup: &mut Setup,
) -> bool {
    let mut dice = Dice::new(seed, "another course");
    if !dice.percent(6) {
        return false;
    }
    setup.another_way = true;
    for _ in 0..dice.range(1, 3) {
        let at = dice.within(heals_at);
        let longer = dice.scale(25, 400) as u32;
        // The agreed parameters stay, whatever the path.
        let fixed = matches!(sketch.policy, Policy::Fixed(_));
        let slower = if fixed { 8 } else { dice.scale(1, 8) };
        for link in [&mut setup.there, &mut setup.back] {
            let delay = Some((link.delay * longer / 100).min(LONGEST_WAY));
            let rate = link.rate.map(|rate| rate.scaled(slower, 8));
            link.schedule.push(Change { at, delay, rate, ..Change::default() });
        }
        if sketch.wire == Wire::Sealed && dice.percent(60) {
            let gap = dice.time(Duration::from_millis(1), LONGEST_GAP);
            setup.moves.push((Side::Active, at));
            for link in [&mut setup.there, &mut setup.back] {
                cut(at, gap, link);
            }
        }
    }
    for link in [&mut setup.there, &mut setup.back] {
        let (delay, rate) = (Some(link.delay), link.rate);
        link.schedule.push(Change { at: heals_at, delay, rate, ..Change::default() });
    }
    true
}

/// No packet passes for this long.
fn cut(at: Duration, lasts: Duration, link: &mut LinkOptions) {
    let outage = |at, outage| Change { at, outage: Some(outage), ..Change::default() };
    link.schedule.push(outage(at, Outage::Drop));
    link.schedule.push(outage(at + lasts, Outage::None));
}
