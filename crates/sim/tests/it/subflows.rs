//! Transfers over several subflows (`docs/protocol §4.11, §6.11, §8.10`): as fast as their
//! processors together, one flow to everybody else, and whole whatever becomes of a subflow.

use std::time::Duration;

use netblt_path::rng::{Probability, Rng};
use netblt_proto::config::{EmulatedProtocol, Emulation, Policy};
use netblt_proto::units::Rate;
use netblt_sim::subflows::{Subflows, SubflowsOutcome};

const RTT: Duration = Duration::from_millis(10);
/// What a processor takes for a packet where it is the limit: 113 Mbit/s.
const COST: Duration = Duration::from_micros(100);

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

fn run(setup: Subflows) -> SubflowsOutcome {
    setup.clone().run().unwrap_or_else(|error| panic!("{error}\n{setup:?}"))
}

/// 150 MB over a path of 2 Gbit/s, with processors that take their time at both ends.
fn slow_hosts(subflows: u8) -> Subflows {
    Subflows { costs: [COST; 2], bytes: 150_000_000, ..Subflows::new(subflows, mbit(2000), RTT) }
}

#[test]
fn four_subflows_are_as_fast_as_one_where_one_suffices() {
    for pushes in [true, false] {
        let [one, four] = [1, 4].map(|subflows| {
            let outcome = run(Subflows { pushes, ..Subflows::new(subflows, mbit(100), RTT) });
            println!("{subflows}: {outcome:?}");
            assert_eq!(outcome.packets.len(), subflows.into());
            outcome
        });
        assert!(one.goodput > mbit(88), "{one:?}");
        // What the last round trip of a transfer over subflows costs is in it.
        assert!(four.goodput.scaled(100, 97) > one.goodput, "{four:?}");
        assert!(four.packets.iter().all(|packets| *packets > 2000), "{four:?}");
    }
}

#[test]
fn subflows_carry_what_their_processors_can() {
    carry_what_they_can(150_000_000, &[1, 4]);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn one_to_eight_subflows_carry_what_their_processors_can() {
    carry_what_they_can(300_000_000, &[1, 2, 4, 8]);
}

/// The first number of subflows is one.
fn carry_what_they_can(bytes: u64, counts: &[u8]) {
    let mut table = String::from("subflows   Mbit/s   of one   dropped\n");
    let mut one = 0;
    for &subflows in counts {
        let outcome = run(Subflows { bytes, ..slow_hosts(subflows) });
        let rate = outcome.goodput.bits_per_second();
        one = if subflows == 1 { rate } else { one };
        let (mbps, times) = (outcome.goodput.mbps(), rate as f64 / one as f64);
        table += &format!("{subflows:5} {mbps:8.0} {times:8.2} {:9}\n", outcome.dropped);
        println!("{outcome:?}");
        assert!(times > 0.8 * f64::from(subflows), "\n{table}");
    }
    println!("{table}");
}

#[test]
fn subflows_that_share_a_processor_bring_nothing_and_cost_nothing() {
    let one = run(Subflows { cores: 1, ..slow_hosts(1) });
    let four = run(Subflows { cores: 1, ..slow_hosts(4) });
    println!("{one:?}\n{four:?}");
    assert!(four.goodput.scaled(100, 92) > one.goodput, "{one:?}\n{four:?}");
}

#[test]
fn a_slow_subflow_carries_less_and_does_not_delay_the_others() {
    let outcome = run(Subflows { slow: Some((0, 1, 4)), ..slow_hosts(4) });
    println!("{outcome:?}");
    let all: u64 = outcome.packets.iter().sum();
    assert!(outcome.packets[1] * 8 < all, "{outcome:?}");
    assert!(outcome.goodput > mbit(240), "{outcome:?}");
}

/// What a transfer got of 100 Mbit/s beside a CUBIC, in per cent of both.
fn beside_cubic(subflows: u8, rtt: Duration) -> u64 {
    let cubic = Policy::Emulated(Emulation::of(EmulatedProtocol::Cubic));
    let (beside, buffers) = (vec![cubic], (1 << 16, 128));
    let setup = Subflows::new(subflows, mbit(100), rtt);
    let outcome = run(Subflows { bytes: 150_000_000, beside, buffers, ..setup });
    println!("{subflows} subflows, {rtt:?}: {outcome:?}");
    let all: u64 = outcome.arrived.iter().sum();
    outcome.arrived[0] * 100 / all
}

/// In the mean over round trips that are much alike: nothing is by chance there, so that who loses
/// first at one of them decides a whole transfer.
#[test]
fn several_subflows_take_no_more_than_one_beside_a_cubic() {
    take_no_more_than_one(&[&[10]]);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn several_subflows_take_no_more_than_one_beside_a_cubic_on_longer_paths() {
    take_no_more_than_one(&[&[8, 10, 12], &[30, 34, 38, 42, 46, 50]]);
}

/// Over paths of so many milliseconds, each list in the mean.
fn take_no_more_than_one(paths: &[&[u64]]) {
    let mean = |subflows, trips: &[u64]| {
        let of = trips.iter().map(|ms| beside_cubic(subflows, Duration::from_millis(*ms)));
        of.sum::<u64>() / trips.len() as u64
    };
    for trips in paths {
        let (one, four) = std::thread::scope(|scope| {
            let one = scope.spawn(|| mean(1, trips));
            let four = mean(4, trips);
            (one.join().expect("the transfers over one subflow"), four)
        });
        println!("{trips:?} ms: {one} % with one subflow, {four} % with four");
        assert!(four <= one + 6 && four + 10 >= one, "{trips:?} ms: {one} % and {four} %");
    }
}

#[test]
fn the_loss_of_a_subflow_costs_its_silence_and_no_byte() {
    for (pushes, subflow) in [(true, 1), (true, 3), (false, 2)] {
        let cuts = vec![(subflow, Duration::from_secs(2))];
        let outcome = run(Subflows { pushes, cuts, ..slow_hosts(4) });
        println!("{outcome:?}");
        assert!(outcome.lost >= 1, "{outcome:?}");
    }
}

#[test]
fn all_subflows_may_be_lost_and_the_main_connection_carries_the_rest() {
    let cuts = (1..=3).map(|subflow| (subflow, Duration::from_secs(1))).collect();
    let outcome = run(Subflows { cuts, bytes: 60_000_000, ..slow_hosts(4) });
    println!("{outcome:?}");
    assert!(outcome.lost >= 3, "{outcome:?}");
}

/// Random worlds; `NETBLT_SUBFLOW_SEEDS` for more of them.
#[test]
fn all_data_arrive_once_in_every_random_world() {
    let seeds =
        std::env::var("NETBLT_SUBFLOW_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let half = |odd| {
        let mine = (1..=seeds).filter(|seed| seed % 2 == odd);
        mine.map(|seed| run(draw(seed))).collect::<Vec<_>>()
    };
    let (even, odd) = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        (half(0), odd.join().expect("the other half of the worlds"))
    });
    let (mut lost, mut again, mut subflows) = (0, 0, 0);
    for outcome in even.into_iter().chain(odd) {
        lost += u64::from(outcome.lost);
        again += outcome.again;
        subflows += outcome.packets.len();
    }
    println!("{seeds} worlds, {subflows} subflows, {lost} ends lost, {again} images came again");
    // A few need not have all that is drawn.
    let all = lost > seeds / 10 && again > 0 && subflows as u64 > seeds * 2;
    assert!(all || seeds < 40, "the dice are loaded");
}

fn draw(seed: u64) -> Subflows {
    let mut dice = Rng::named(seed, "lanes drawn");
    let mut upto = |most: u64| dice.range(0..=most);
    let rate = mbit([5, 20, 100, 400][upto(3) as usize]);
    let rtt = Duration::from_millis(1 + upto(80));
    let subflows = 2 + upto(6) as u8;
    let mut setup = Subflows { seed, ..Subflows::new(subflows, rate, rtt) };
    setup.bytes = rate.bytes_per_second() * (1 + upto(5)) + upto(70_000);
    setup.pushes = upto(1) == 0;
    setup.cores = 1 + upto(7) as usize;
    setup.costs = [upto(40), upto(40)].map(Duration::from_micros);
    setup.buffers = [(1 << 14, 64), (1 << 16, 64), (1 << 18, 40)][upto(2) as usize];
    if upto(2) == 0 {
        setup.slow = Some((upto(1) as usize, upto(setup.cores as u64 - 1) as usize, 5));
    }
    for link in [&mut setup.there, &mut setup.back] {
        link.loss = Probability::from_percent([0, 0, 1, 5][upto(3) as usize]);
        link.duplicate = Probability::from_percent(upto(1) as u32);
        link.reorder = Probability::from_percent(upto(2) as u32);
        link.corrupt = Probability::from_percent(upto(1) as u32);
    }
    for subflow in 1..subflows {
        if upto(2) == 0 {
            setup.cuts.push((subflow, Duration::from_millis(upto(6000))));
        }
    }
    setup
}
