//! The adaptive policy on paths of many kinds, without the machine.

mod aggressive;
mod background;
mod bbr;
mod brief;
mod controller;
mod memory;
mod policed;
mod short;
mod sim;
mod sizes;
mod stand;
mod start;
mod starved;
mod turns;
mod wander;

use std::time::Duration;

use sim::{Cubic, Flow, PACKET, Path, Tally, World};

use crate::rate::adaptive::Adaptive;
use crate::rate::background::Background;
use crate::rate::{RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;

const M: u64 = 1_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn adaptive(path: &Path) -> Flow {
    adaptive_from(path, Duration::ZERO)
}

fn adaptive_from(path: &Path, start: Duration) -> Flow {
    Flow::new(Box::new(Adaptive::new(PACKET as u32, Some(path.rtt), None)), start)
}

/// What each flow (and last the TCP, if there is one) got of the link in `time`, in thousandths.
fn shares(world: &mut World, time: Duration, rate: Rate) -> (Vec<u64>, Tally) {
    let counts = |world: &World| -> Vec<u64> {
        let tcp = world.cubic.iter().map(|cubic| cubic.delivered);
        world.flows.iter().map(Flow::arrived).chain(tcp).collect()
    };
    let before = counts(world);
    let tally = world.run(time);
    let full = rate.bytes_in(time) / PACKET;
    let got = counts(world).iter().zip(before).map(|(n, b)| (n - b) * 1000 / full).collect();
    (got, tally)
}

fn share(world: &mut World, time: Duration, rate: Rate) -> u64 {
    shares(world, time, rate).0[0]
}

fn part(wait: Duration, rtt: Duration) -> u64 {
    (wait.as_nanos() * 1000 / rtt.as_nanos()) as u64
}

/// One cell of the grid: asserts, and answers a line of the table.
fn cell(path: &Path, time: Duration, queue: u64) -> String {
    let mut world = World::new(path.clone(), vec![adaptive(path)]);
    let first = world.run(time / 4);
    let steady = world.run(time - time / 4);
    let used = world.used(&steady, time - time / 4);
    let wait = part(steady.mean_wait(), path.rtt);
    let drops = steady.dropped * 10_000 / steady.sent;
    let line = format!(
        "{:5} M {:?} queue {queue:3} % loss {:6} ppm: used {used:4}, wait {wait:3}, drops {} then \
         {} ({drops} of 10,000), random {}",
        path.rate.bits_per_second() / M,
        path.rtt,
        path.loss,
        first.dropped,
        steady.dropped,
        steady.random,
    );
    // Half of the packets of a probe are lost where the queue is shorter than the probe.
    let (least, most_drops) = match (queue, path.loss) {
        (25, 300_000) => (900, 700),
        (25, _) => (915, 350),
        (_, 300_000) => (930, 250),
        _ => (960, 50),
    };
    assert!(used >= least, "{line}");
    assert!(drops <= most_drops, "{line}");
    let short = path.rtt < ms(10) || path.loss > 50_000;
    assert!(wait <= if short { 600 } else { 250 }, "{line}");
    line
}

/// Burst values count packets of the size that was agreed on, and those sent may be larger.
#[test]
fn what_a_receiver_offers_is_the_same_rate_whatever_the_packets() {
    let (path, megabyte) = (Duration::from_millis(1), Rate::from_bytes_per_second(1_000_000));
    let laws: [Box<dyn RateControl>; 2] = [
        Box::new(Adaptive::new(1500, Some(path), None)),
        Box::new(Background::new(1500, Some(path), None)),
    ];
    for mut law in laws {
        law.on_packet_bytes(16_384);
        law.take_over(Instant::EPOCH, Rate::from_bytes_per_second(100_000_000), path);
        law.on_offer(Instant::EPOCH, burst_for(megabyte, 1500));
        let crate::units::Burst { packets, interval } = law.pacing().burst;
        let rate = Rate::over(u64::from(packets) * 16_384, interval);
        assert!(rate <= megabyte, "{rate:?} of {law:?}");
    }
}

#[test]
fn a_rate_is_kept_to_a_thousandth_at_every_packet_size() {
    for megabits in [1, 2, 10, 100, 200, 1000, 2500, 10_000, 40_000] {
        let rate = Rate::from_bits_per_second(megabits * 1_000_000);
        for packet in [300, 1260, 1500, 9000] {
            let burst = burst_for(rate, packet);
            let most = if megabits > 5000 { 64 } else { 44 };
            assert!((1..=most).contains(&burst.packets), "{burst:?}");
            let made = Rate::over(u64::from(burst.packets * packet), burst.interval);
            let wrong = made.bytes_per_second().abs_diff(rate.bytes_per_second());
            assert!(wrong * 1000 < rate.bytes_per_second(), "{rate} {made} {burst:?}");
        }
    }
}

#[test]
fn the_link_is_full_and_the_queue_short_whatever_is_lost_at_random() {
    for (bits, rtt, time) in [
        (2 * M, ms(600), ms(120_000)),
        (100 * M, ms(70), ms(12_000)),
        (200 * M, ms(100), ms(20_000)),
        (1000 * M, ms(100), ms(6000)),
        (10_000 * M, ms(1), ms(300)),
    ] {
        for queue in [25, 100, 400] {
            for loss in [0, 100, 10_000, 50_000, 300_000] {
                println!("{}", cell(&Path::new(bits, rtt, loss, queue), time, queue));
            }
        }
    }
}

/// A gigabyte over 200 Mbit/s, 100 ms and a queue of one product of the two; start included.
#[test]
fn a_gigabyte_takes_little_longer_than_it_must() {
    for (loss, least) in [(100, 960), (10_000, 950)] {
        let mut path = Path::new(200 * M, ms(100), loss, 100);
        path.jitter = ms(10);
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        let (mut time, mut total) = (ms(0), Tally::default());
        while world.flows[0].arrived() * (PACKET - 28) < 1_000_000_000 {
            let tally = world.run(ms(100));
            time += ms(100);
            total.passed += tally.passed;
            total.dropped += tally.dropped;
            total.random += tally.random;
        }
        let used = world.used(&total, time);
        println!("loss {loss} ppm: used {used}, dropped {}, {} ", total.dropped, total.random);
        assert!(used >= least, "{used}");
        assert!(total.dropped <= total.random / 50, "{total:?}");
    }
}

/// A queue that others keep full shows neither the path's round trip nor its loss: who took them
/// for that sent as if it were alone, and so, then, did all.
#[test]
fn many_in_one_queue_lose_little() {
    for (count, queue, most) in [(4, 25, 3), (4, 100, 2), (8, 25, 8)] {
        let path = Path::new(50 * M, ms(40), 0, queue);
        for (seed, apart) in [(1, 0), (2, 1000), (3, 1000), (4, 5000)] {
            let flows = (0..count).map(|n| adaptive_from(&path, ms(n * apart))).collect();
            let mut world = World::new(path.clone(), flows).by_chance(seed);
            world.run(ms(25_000));
            let (got, tally) = shares(&mut world, ms(60_000), path.rate);
            println!("queue {queue} %, {apart} ms apart: {got:?}, {tally:?}");
            assert!(tally.dropped * 100 <= tally.sent * most, "{tally:?}");
            assert!(got.iter().all(|share| share * count >= 300), "{got:?}");
            assert!(got.iter().sum::<u64>() >= 950, "{got:?}");
        }
    }
}

#[test]
fn neither_a_cubic_nor_this_starves_the_other() {
    for (queue, start) in [(25, 0), (100, 0), (400, 0), (100, 10_000), (400, 10_000)] {
        let path = Path::new(100 * M, ms(50), 0, queue);
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.cubic = Some(Cubic::new(ms(start)));
        world.run(ms(start + 5000));
        let (early, _) = shares(&mut world, ms(15_000), path.rate);
        assert!(early.iter().all(|share| *share >= 60), "{early:?}");
        let (got, _) = shares(&mut world, ms(40_000), path.rate);
        println!("queue {queue} %, cubic from {start} ms: {got:?}");
        assert!(got.iter().all(|share| *share >= 120), "{got:?}");
        assert!(got.iter().sum::<u64>() >= 950, "{got:?}");
    }
}

/// Of a queue that a CUBIC fills it takes its part, and leaves the other.
#[test]
fn beside_a_cubic_that_fills_its_queue_both_have_three_tenths_at_least() {
    let paths = [(50, 40, 100), (50, 40, 400), (100, 50, 100), (100, 50, 400)];
    for (mbit, rtt, queue) in paths {
        for start in [0, 10_000] {
            let path = Path::new(mbit * M, ms(rtt), 0, queue);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]);
            world.cubic = Some(Cubic::new(ms(start)));
            world.run(ms(start));
            let (got, _) = shares(&mut world, ms(60_000), path.rate);
            println!("{mbit} Mbit/s {rtt} ms, queue {queue} %, cubic from {start}: {got:?}");
            assert!(got.iter().all(|share| *share >= 300), "{got:?}");
            assert!(got.iter().sum::<u64>() >= 950, "{got:?}");
        }
    }
}

/// What a ceiling keeps it from sending, it does not come to believe in.
#[test]
fn a_ceiling_holds_a_contest_too() {
    let path = Path::new(50 * M, ms(40), 0, 100);
    let ceiling = Rate::from_bits_per_second(8 * M);
    let law = Adaptive::new(PACKET as u32, Some(path.rtt), Some(ceiling));
    let mut world = World::new(path.clone(), vec![Flow::new(Box::new(law), Duration::ZERO)]);
    world.cubic = Some(Cubic::new(ms(2000)));
    let mut contests = 0;
    for _ in 0..300 {
        world.run(ms(200));
        let belief = world.flows[0].policy.belief();
        contests += u32::from(belief.phase == "contest");
        let believed = belief.bandwidth.expect("it believes something").bits_per_second();
        assert!(believed <= 2 * 8 * M, "{belief:?}");
    }
    assert!(contests > 10, "{contests}");
}

#[test]
fn when_a_cubic_has_gone_its_queue_goes_too() {
    for queue in [100, 400] {
        let path = Path::new(50 * M, ms(40), 0, queue);
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.cubic = Some(Cubic::new(ms(1000)).until(ms(20_000)));
        world.run(ms(20_000));
        world.run(ms(6000));
        let (got, tally) = shares(&mut world, ms(30_000), path.rate);
        println!("queue {queue} %: {got:?}, wait {:?}", tally.mean_wait());
        assert!(got[0] >= 970 && tally.dropped == 0, "{got:?} {tally:?}");
        assert!(tally.mean_wait() < path.rtt / 4, "{tally:?}");
    }
}

#[test]
fn steps_of_the_rate_are_followed() {
    for loss in [0, 10_000] {
        let mut path = Path::new(100 * M, ms(50), loss, 100);
        let low = Rate::from_bits_per_second(20 * M);
        path.steps = vec![(ms(5000), low), (ms(10_000), path.rate)];
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.run(ms(5000));
        let down = world.run(ms(1000));
        let (got, settled) = shares(&mut world, ms(4000), low);
        println!("down: {} dropped, then {got:?}, wait {:?}", down.dropped, settled.mean_wait());
        assert!(down.dropped < 800, "{down:?}");
        assert!(got[0] >= 950 && settled.dropped == 0, "{got:?} {settled:?}");
        assert!(settled.mean_wait() < path.rtt / 4, "{settled:?}");
        world.run(ms(2000));
        let up = share(&mut world, ms(1000), path.rate);
        assert!(up >= 950, "{up}");
    }
}

#[test]
fn after_an_outage_it_is_soon_as_fast_as_before() {
    for (from, until, after) in [(5000, 35_000, 100), (5000, 8000, 50), (5000, 5400, 100)] {
        let mut path = Path::new(100 * M, ms(50), 1000, 100);
        let healed = Rate::from_bits_per_second(after * M);
        path.steps = vec![(ms(from), Rate::ZERO), (ms(until), healed)];
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.run(ms(from));
        let outage = world.run(ms(until - from));
        // While nothing is heard, what was allowed in flight and a few probes are sent at most.
        assert!(outage.dropped < 1100, "{outage:?}");
        world.run(ms(1500));
        let (got, tally) = shares(&mut world, ms(1000), healed);
        println!("{from} to {until}: {} sent in vain, then {got:?}", outage.dropped);
        assert!(got[0] >= 930, "{got:?} {tally:?}");
    }
}

#[test]
fn marks_keep_the_queue_short() {
    for loss in [0, 10_000] {
        let mut path = Path::new(100 * M, ms(50), loss, 400);
        path.mark_bytes = path.queue_bytes / 40;
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.run(ms(4000));
        let (got, tally) = shares(&mut world, ms(10_000), path.rate);
        println!(
            "{got:?}, wait {:?}, {} of {} marked",
            tally.mean_wait(),
            tally.marked,
            tally.sent
        );
        assert!(got[0] >= 930, "{got:?}");
        assert!(tally.longest < path.rtt / 2 && tally.mean_wait() < path.rtt / 10, "{tally:?}");
    }
}

#[test]
fn marks_alone_slow_it_down() {
    let mut policy = Adaptive::new(1260, Some(ms(50)), None);
    let mut sample = Sample { rtt: Some(ms(50)), ..Sample::default() };
    let mut rate_after = |marks: u64| {
        let mut policy_rate = Rate::ZERO;
        for _ in 0..10 {
            let at = Instant::EPOCH + ms(50) * (sample.round as u32 + 1);
            sample.round += 1;
            sample.delivered_packets += 400;
            sample.marked_packets += marks;
            let now = Rate::over(
                u64::from(policy.pacing().burst.packets) * 1260,
                policy.pacing().burst.interval,
            );
            let rate = now.min(Rate::from_bits_per_second(100 * M));
            (sample.send_rate, sample.delivery_rate) = (Some(now), Some(rate));
            policy.on_sample(at, &sample);
            policy_rate = now;
        }
        policy_rate
    };
    let before = rate_after(0);
    let after = rate_after(40);
    assert!(after < before.scaled(9, 10), "{before} {after}");
}

#[test]
fn clumps_and_reordering_do_not_disturb() {
    for (clump, jitter) in [(10, 0), (0, 10), (5, 5)] {
        let mut path = Path::new(100 * M, ms(50), 1000, 100);
        (path.clump, path.jitter) = (ms(clump), ms(jitter));
        let mut world = World::new(path.clone(), vec![adaptive(&path)]);
        world.run(ms(2000));
        let (got, tally) = shares(&mut world, ms(8000), path.rate);
        println!("clump {clump} jitter {jitter}: {got:?}, wait {:?}", tally.mean_wait());
        assert!(got[0] >= 970 && tally.dropped == 0, "{got:?} {tally:?}");
    }
}

#[test]
fn a_policer_is_not_fought() {
    let mut path = Path::new(100 * M, ms(50), 0, 10);
    path.policer = true;
    let mut world = World::new(path.clone(), vec![adaptive(&path)]);
    world.run(ms(4000));
    let (got, tally) = shares(&mut world, ms(20_000), path.rate);
    println!("{got:?}, {} of {} dropped", tally.dropped, tally.sent);
    assert!(got[0] >= 950 && tally.dropped * 100 < tally.sent * 8, "{got:?} {tally:?}");
}

#[test]
fn pauses_for_want_of_data_cost_nothing_but_themselves() {
    let path = Path::new(100 * M, ms(50), 1000, 100);
    let mut flow = adaptive(&path);
    flow.pauses = ms(300);
    let mut world = World::new(path.clone(), vec![flow]);
    world.run(ms(3000));
    let (got, tally) = shares(&mut world, ms(9000), path.rate);
    println!("{got:?} of 500, {} dropped", tally.dropped);
    assert!(got[0] >= 470 && tally.dropped < 100, "{got:?} {tally:?}");
}

#[test]
fn a_slow_host_on_a_fast_path_is_held_back_by_itself_only() {
    for micros in [50, 200, 1000] {
        let path = Path::new(40_000 * M, Duration::from_micros(micros), 0, 2000);
        let host = Rate::from_bits_per_second(8000 * M);
        let mut flow = adaptive(&path);
        flow.host = Some(host);
        let mut world = World::new(path.clone(), vec![flow]);
        world.run(ms(40));
        let got = share(&mut world, ms(200), host);
        println!("{micros} us: {got}");
        assert!(got >= 950, "{micros} us: {got}");
    }
}

#[test]
fn late_timers_do_not_matter() {
    let path = Path::new(1000 * M, ms(20), 100, 100);
    let mut flow = adaptive(&path);
    flow.lateness = ms(1);
    let mut world = World::new(path.clone(), vec![flow]);
    world.run(ms(1000));
    let got = share(&mut world, ms(2000), path.rate);
    assert!(got >= 900, "{got}");
}

#[test]
fn the_ceiling_holds_and_is_reached() {
    let path = Path::new(100 * M, ms(50), 1000, 100);
    let ceiling = Rate::from_bits_per_second(30 * M);
    let policy = Adaptive::new(PACKET as u32, None, Some(ceiling));
    let mut world = World::new(path, vec![Flow::new(Box::new(policy), ms(0))]);
    for second in 0..5 {
        let got = share(&mut world, ms(1000), ceiling);
        assert!(got <= 1010 && (second == 0 || got >= 985), "{second}: {got}");
    }
}

#[test]
fn the_first_round_trip_carries_32_packets_whatever_follows() {
    for rtt in [ms(5), ms(100), ms(600)] {
        let path = Path::new(1000 * M, rtt, 0, 100);
        let mut flow = adaptive(&path);
        flow.lateness = Duration::from_nanos(1);
        let mut world = World::new(path.clone(), vec![flow]);
        let mut sent = Vec::new();
        for _ in 0..6 {
            sent.push(world.run(rtt).sent);
        }
        println!("{rtt:?}: {sent:?}");
        assert!((31..=36).contains(&sent[0]), "{sent:?}");
        assert!(sent[1] <= 32 * 4, "{sent:?}");
        assert!(sent[5] >= 32 * 14, "{sent:?}");
    }
}

/// Queues of an eighth of a product, and of a sixteenth, where a round trip takes seconds.
#[test]
fn where_a_round_trip_is_long_it_looks_before_it_leaps() {
    // The faster ones are found at half of what they carry, and the rest in steps of 25 ms.
    let paths =
        [(M, 1800, 12, 950), (M, 1200, 25, 950), (10 * M, 2500, 6, 650), (100 * M, 1000, 15, 950)];
    for (bits, rtt, queue, least) in paths {
        for loss in [0, 5000] {
            let path = Path::new(bits, ms(rtt), loss, queue);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]);
            let first = world.run(ms(60_000));
            let (got, tally) = shares(&mut world, ms(120_000), path.rate);
            let wait = tally.mean_wait();
            println!("{bits} {rtt} {queue} {loss}: {first:?} then {got:?}, {tally:?} {wait:?}");
            assert_eq!((first.dropped, tally.dropped), (0, 0), "{first:?} {tally:?}");
            assert!(got[0] >= least, "{got:?}");
        }
    }
}
