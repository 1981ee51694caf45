//! RFC 1030 §8 done: what the report's section "Section 8" says is held to here.

use std::time::Duration;

use netblt_proto::config::Wire;
use netblt_rfc1030::future::{BEST_BITS_PER_SECOND, Experiment, Result, SEEDS, page, results, run};

const THREADS: usize = 2;
/// What an adaptive sender carries of the best, in thousandths, whatever its luck. RFC 1030 has no
/// such sender, and no bound; of 1,000 seeds the median is 892 on `rfc998`, the least 830, and on
/// `sealed` 917 and 855.
const LEAST: [(Wire, u64); 2] = [(Wire::Rfc998, 820), (Wire::Sealed, 800)];

fn result(results: &[Result], experiment: Experiment) -> &Result {
    results.iter().find(|result| result.experiment == experiment).expect("one of them all")
}

fn fixed(senders: u32, interval_ms: u32, staggered: bool) -> Experiment {
    Experiment::Fixed { senders, interval_ms, staggered }
}

/// It went well with every seed, at so much of the best, in thousandths.
#[track_caller]
fn went_well(result: &Result, of_best: u64) {
    assert_eq!(result.trials.len(), SEEDS.count());
    for trial in &result.trials {
        assert_eq!((&trial.crashed, &trial.problem), (&None, &None), "{result:?}");
        assert_eq!(trial.stations_down, 0, "{result:?}");
        assert!(trial.sum() * 1000 / BEST_BITS_PER_SECOND >= of_best, "{result:?}");
    }
}

/// The page that `lab/tests/program/report.rs` compares has the same figures.
#[test]
#[ignore = "slow: .ci/nightly"]
fn every_figure_of_the_section_holds() {
    let results = results(THREADS);
    println!("{}", page::text(&results));
    let of = |experiment| result(&results, experiment);

    // 50 million bytes at RFC 1030's best, and ten per cent more.
    went_well(of(fixed(1, 55, false)), 900);
    let limit = Duration::from_secs(15);
    let overload = of(fixed(1, 50, false)).crashes();
    assert!(overload.len() == SEEDS.count() && overload.iter().all(|at| *at < limit));

    // Four with less than a quarter each: well if their bursts begin apart. Twenty packets at once
    // are too much, however much time there is until the next.
    let apart = of(fixed(4, 250, true));
    went_well(apart, 840);
    assert!(apart.jain() >= 950, "{apart:?}");
    assert_eq!(of(fixed(4, 250, false)).crashes().len(), SEEDS.count());
    // More than the channel takes breaks it, however it is spread.
    for staggered in [false, true] {
        assert_eq!(of(fixed(4, 220, staggered)).crashes().len(), SEEDS.count());
    }

    // Senders without settings come within a few points of the one that was set to 5/55.
    went_well(of(Experiment::Adaptive(Wire::Sealed)), 870);
    went_well(of(Experiment::Adaptive(Wire::Rfc998)), 870);
}

#[test]
fn senders_without_settings_break_it_with_no_seed() {
    for (wire, least) in LEAST {
        for seed in 101..=105 {
            let of_best = of_best(wire, seed).0;
            assert!(of_best >= least, "{wire:?} {seed}: {of_best}");
        }
    }
}

/// What an adaptive sender carries of the best, in thousandths, and how many bytes waited at most.
#[track_caller]
fn of_best(wire: Wire, seed: u64) -> (u64, u64) {
    let trial = run(Experiment::Adaptive(wire), seed);
    assert_eq!((trial.crashed, &trial.problem), (None, &None), "{wire:?} {seed}: {trial:?}");
    assert_eq!(trial.stations_down, 0, "{wire:?} {seed}");
    (trial.sum() * 1000 / BEST_BITS_PER_SECOND, trial.most_waiting)
}

/// Two of seven of a round trip's trains came through empty frames.
#[test]
fn two_lucky_trains_of_many_are_not_believed() {
    for (wire, seed) in LEAST.into_iter().flat_map(|(wire, _)| [(wire, 606), (wire, 831)]) {
        let (of_best, waited) = of_best(wire, seed);
        assert!(of_best >= 870 && waited < 15_000, "{wire:?} {seed}: {of_best}, {waited}");
    }
}

/// The receiver happened to say little for some round trips, and the channel carried 2 % more. That
/// much too much was believed, and filled the buffer while the queue was taken for lateness: of
/// 19,400 bytes 40 ms are 5,500, and what the correction left of the rest was as much again.
#[test]
fn a_chance_delivery_rate_on_a_long_path_does_not_fill_its_buffer() {
    for seed in [236, 392] {
        let (of_best, waited) = of_best(Wire::Sealed, seed);
        assert!(of_best >= 870 && waited < 15_000, "{seed}: {of_best}, {waited}");
    }
}

/// So many seeds as `NETBLT_WIDEBAND_SEEDS` says: those of the tests above were found so.
#[test]
fn senders_without_settings_break_it_with_none_of_many_seeds() {
    let seeds = std::env::var("NETBLT_WIDEBAND_SEEDS").map_or(Ok(4), |text| text.parse());
    let seeds = seeds.expect("a number");
    for (wire, least) in LEAST {
        let trials = (1..=seeds).map(|seed| (of_best(wire, seed), seed));
        let mut trials: Vec<((u64, u64), u64)> = trials.collect();
        let waited = trials.iter().map(|((_, waited), _)| *waited).max();
        trials.sort_unstable();
        let (worst, median) = (trials[0], trials[trials.len() / 2].0.0);
        println!("{wire:?}: {worst:?} worst, median {median}; {waited:?} bytes waited at most");
        assert!(worst.0.0 >= least, "{wire:?} {worst:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let twice = [7, 7].map(|seed| run(Experiment::Adaptive(Wire::Rfc998), seed));
    assert_eq!(twice[0].bits_per_second, twice[1].bits_per_second);
    assert_eq!(twice[0].most_waiting, twice[1].most_waiting);
}
