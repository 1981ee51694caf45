//! Hosts that get their processor only now and then, and paths whose way back is full: neither is
//! a full path to where the data go.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::{HostOptions, Stops};
use netblt_sim::outcome::Outcome;
use netblt_sim::swarm;
use netblt_sim::world::{Setup, World};

const OVERHEAD_BYTES: u32 = 28;

fn host(role: Role) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([1; 32]));
    config.cipher = Cipher::Aes256Gcm;
    config.datagram_bytes = 1472;
    config.overhead_bytes = OVERHEAD_BYTES;
    HostOptions::new(config)
}

fn link(mbit: u64, rtt: Duration) -> LinkOptions {
    let rate = Rate::from_bits_per_second(mbit * 1_000_000);
    let queue = QueueLimit::bdp(Some(rate), rtt);
    LinkOptions { rate: Some(rate), delay: rtt / 2, queue, ..LinkOptions::default() }
}

/// 50 Mbit/s and 40 ms, `bytes`, `change`d.
fn world(seed: u64, bytes: u64, change: impl FnOnce(&mut Setup)) -> Outcome {
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    let rtt = Duration::from_millis(40);
    setup.there = link(50, rtt);
    setup.back = link(50, rtt);
    change(&mut setup);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

fn mbit(outcome: &Outcome) -> u64 {
    outcome.goodput().bits_per_second() / 1_000_000
}

fn stops() -> Option<Stops> {
    let (period, stopped) = (Duration::from_millis(50), Duration::from_millis(20));
    Some(Stops { period, stopped, scattered: None, until: Duration::from_secs(3600) })
}

/// 200 ms somewhere in every 2 s: a tenth of the time.
fn seldom(seed: u64) -> Option<Stops> {
    let (period, stopped) = (Duration::from_secs(2), Duration::from_millis(200));
    Some(Stops { period, stopped, scattered: Some(seed), until: Duration::from_secs(3600) })
}

/// Of 47 Mbit/s that are possible: a host that stops for 20 ms in every 50. A law that took its own
/// lateness for a full path had 24 (a sender) or 21 (both).
#[test]
fn hosts_that_stop_are_no_full_path() {
    for seed in 1..=3 {
        let run = |sender: bool, receiver: bool| {
            let outcome = world(seed, 60_000_000, |setup| {
                setup.active.stops = stops().filter(|_| sender);
                setup.passive.stops = stops().filter(|_| receiver);
            });
            mbit(&outcome)
        };
        let found = (run(true, false), run(false, true), run(true, true));
        println!("seed {seed}: {found:?}");
        assert!(found.0 >= 35 && found.1 >= 43 && found.2 >= 36, "{found:?}");
    }
}

/// What is left of 46 Mbit/s is at least nine tenths of it for the time in which they ran.
#[test]
fn a_stop_of_a_fifth_of_a_second_costs_itself() {
    for seed in 1..=5 {
        let run = |sender: bool, receiver: bool| {
            let outcome = world(seed, 60_000_000, |setup| {
                setup.active.stops = seldom(seed).filter(|_| sender);
                setup.passive.stops = seldom(seed + 100).filter(|_| receiver);
            });
            mbit(&outcome)
        };
        let found = (run(true, false), run(false, true), run(true, true));
        println!("seed {seed}: {found:?}");
        assert!(found.0 >= 40 && found.1 >= 40 && found.2 >= 34, "{found:?}");
    }
}

/// The way back of 2 Mbit/s has a queue of up to a second, for other traffic. Opening takes two
/// round trips of that, which 10 s of data include.
#[test]
fn a_way_back_that_is_full_is_no_full_path() {
    for (delay, jitter, least) in [(0, 0, 44), (500, 500, 27), (900, 100, 18), (0, 1000, 28)] {
        let outcome = world(1, 60_000_000, |setup| {
            setup.back.rate = Some(Rate::from_bits_per_second(2_000_000));
            setup.back.delay = Duration::from_millis(20 + delay);
            setup.back.jitter = Duration::from_millis(jitter);
        });
        println!("{delay} ms and up to {jitter} ms: {}", mbit(&outcome));
        assert!(mbit(&outcome) >= least, "{delay} {jitter}: {}", mbit(&outcome));
    }
}

/// A train of 114 packets takes 1.3 ms to arrive, and what is read at once that came one by one
/// still shows what the path carries: the kernel tells when each came. Without these times, a
/// receiver that runs for 0.1 of every 2 ms made the same transfer 1.7 times as long.
#[test]
fn a_receiver_that_reads_a_train_at_once_finds_the_rate_as_soon() {
    for seed in 1..=5 {
        let takes = |stops: Option<Stops>| {
            let outcome = world(seed, 50_000_000, |setup| {
                let rtt = Duration::from_millis(100);
                (setup.there, setup.back) = (link(1000, rtt), link(1000, rtt));
                setup.passive.stops = stops;
            });
            outcome.transfer_time()
        };
        let (period, stopped) = (Duration::from_millis(2), Duration::from_micros(1900));
        let until = Duration::from_secs(3600);
        let (awake, seldom) =
            (takes(None), takes(Some(Stops { period, stopped, scattered: None, until })));
        println!("seed {seed}: {awake:?}, {seldom:?}");
        assert!(seldom <= awake * 11 / 10, "{awake:?} {seldom:?}");
    }
}

/// How long after its receiver woke up, who fell asleep `at` that time for half a minute, a
/// transfer was over: the mean of some, and the longest.
fn after_a_sleep(opens: bool, at: Duration) -> (Duration, Duration) {
    const SEEDS: u32 = 10;
    let lasts = Duration::from_secs(30);
    let took = |seed: u32| {
        let [sender, mut receiver] = [Role::Sender, Role::Receiver].map(host);
        receiver.sleeps = vec![(at, lasts)];
        let outcome = world(seed.into(), 20_000_000, |setup| {
            let ends = if opens { (receiver, sender) } else { (sender, receiver) };
            (setup.active, setup.passive) = ends;
            setup.there.loss = Probability::from_percent(2);
            setup.back.loss = Probability::from_percent(2);
        });
        outcome.duration.saturating_sub(at + lasts)
    };
    let took: Vec<Duration> = (1..=SEEDS).map(took).collect();
    (took.iter().sum::<Duration>() / SEEDS, took.iter().copied().max().unwrap_or_default())
}

/// Or all timers are made of that, and whatever is lost then waits for them, up to 31 s more.
#[test]
fn how_long_a_host_slept_is_no_round_trip() {
    for (opens, at) in [(true, 5), (true, 50), (true, 1000), (false, 50), (false, 1000)] {
        let (mean, longest) = after_a_sleep(opens, Duration::from_millis(at));
        println!("opens {opens}, at {at} ms: {mean:?}, {longest:?}");
        assert!(mean <= Duration::from_millis(4300), "{mean:?}, {longest:?}");
    }
}

/// A receiver that slept for 39 s before it read RESPONSE waited for a minute before it asked a
/// sender again that tossed a coin for each packet, and had one for each question.
#[test]
fn a_host_suspended_while_it_opened_asks_as_soon_as_others() {
    let outcome = swarm::replay(315_000_876, None);
    assert_eq!(outcome.problem(), None, "{outcome}");
    assert!(outcome.duration <= Duration::from_secs(60), "{outcome}");
}
