//! Packets become larger, or smaller, while a transfer is under way (docs/protocol §6.5): what
//! a law believes of the path stays.

use super::controller::tolerant;
use super::*;

/// Bytes a second, and in flight, with packets of the size that is sent.
fn speed(law: &dyn RateControl, packet_bytes: u64) -> (u64, u64) {
    let pacing = law.pacing();
    let bytes = u64::from(pacing.burst.packets) * packet_bytes;
    let rate = Rate::over(bytes, pacing.burst.interval).bytes_per_second();
    (rate, pacing.cap_bytes.unwrap_or(u64::MAX))
}

#[test]
fn larger_packets_are_no_higher_rate_whatever_it_does() {
    let (large, mut seen) = (PACKET * 13, std::collections::BTreeMap::new());
    for (mbit, millis, queue, wander, beside) in [
        (300, 30, 36, 0, false),
        (100, 40, 100, 0, true),
        (50, 40, 30, 40, false),
        (20, 90, 200, 0, true),
        (200, 25, 400, 60, false),
        (100, 300, 100, 0, false),
        (20, 12, 100, 0, false),
    ] {
        for seed in 1..=4 {
            let mut path = Path::new(mbit * M, ms(millis), 0, queue);
            path.wander = ms(wander);
            let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]).by_chance(seed);
            if beside {
                world.cubic = Some(Cubic::new(ms(2000)));
            }
            for step in 0..600 {
                world.run(ms(20));
                let law = &mut world.flows[0].policy;
                let phase = law.belief().phase;
                let before = speed(&**law, PACKET);
                law.on_packet_bytes(large as u32);
                let after = speed(&**law, large);
                law.on_packet_bytes(PACKET as u32);
                *seen.entry(phase).or_insert(0) += 1;
                let line = format!(
                    "{mbit} Mbit/s, {millis} ms, {phase} at step {step}: {before:?}, {after:?}"
                );
                // Some packets may always be in flight.
                let few = 10;
                assert!(
                    after.0 <= before.0 + before.0 / 10 + few * large * 1000 / millis,
                    "{line}"
                );
                assert!(after.1 <= before.1 + before.1 / 10 + few * large * 2, "{line}");
            }
        }
    }
    println!("{seen:?}");
    assert!(
        ["start", "avoidance", "short_queue", "excused"]
            .iter()
            .all(|phase| seen.contains_key(phase)),
        "{seen:?}"
    );
}
