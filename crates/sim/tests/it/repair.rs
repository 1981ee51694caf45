//! Repair packets: what a last loss costs with and without them, and what they must not do
//! (`docs/protocol §6.10`).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FecPercent, FecPolicy, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::check::kind;
use netblt_sim::coverage::Mark;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::parallel;
use netblt_sim::setup::Setup;
use netblt_sim::tamper::{Sight, Tamper};
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(600);
/// Of a packet of 1,500 bytes: headers of IP, UDP and DATA, and the tag.
const DATA_BYTES: u64 = 1424;

/// `bytes` over `mbit` and a satellite, by a sender with that rate as its setting.
fn world(seed: u64, bytes: u64, mbit: u64, repair: FecPolicy) -> Setup {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.datagram_bytes = 1472;
        let rate = Rate::from_bits_per_second(mbit * 1_000_000);
        config.policy = Policy::Fixed(FixedRate::rate(rate).expect("a rate"));
        config.repair = repair;
        HostOptions::new(config)
    };
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    let rate = Some(Rate::from_bits_per_second(mbit * 1_000_000));
    let queue = QueueLimit::bdp(rate, RTT);
    let link = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    setup
}

fn lossy(mut setup: Setup, percent: u32) -> Setup {
    setup.there.loss = Probability::from_percent(percent);
    setup.back.loss = Probability::from_percent(percent);
    setup
}

/// From the first DATA to the sender's success.
fn time(outcome: &Outcome) -> Duration {
    assert!(outcome.is_success(), "\n{outcome}");
    let first = outcome.sent().first_data_at.expect("data were sent");
    outcome.sender().done_at.expect("it succeeded").since(first)
}

/// What a path that loses 1 % carries of data in `bytes` of them, and nothing else.
fn at_best(bytes: u64, mbit: u64) -> Duration {
    let wire = bytes as f64 * 1500.0 / DATA_BYTES as f64 / 0.99;
    Duration::from_secs_f64(wire * 8.0 / (mbit as f64 * 1e6))
}

/// How many seeds: `NETBLT_REPAIR_SEEDS`, else these.
fn worlds(seeds: u64) -> u64 {
    let given = std::env::var("NETBLT_REPAIR_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(seeds)
}

/// Times over that, in round trips, ascending; packets sent, and of them repairs, in the mean.
fn runs(bytes: u64, mbit: u64, repair: FecPolicy, seeds: u64) -> (Vec<f64>, f64, f64) {
    let seeds: Vec<u64> = (1..=seeds).collect();
    let outcomes = parallel::map(&seeds, 2, |seed| {
        let outcome = World::new(lossy(world(*seed, bytes, mbit, repair), 1)).run();
        let over = time(&outcome).as_secs_f64() - at_best(bytes, mbit).as_secs_f64();
        let sent = outcome.sent();
        let repairs = sent.repair_packets_sent;
        (over / RTT.as_secs_f64(), sent.data_packets_sent + repairs, repairs)
    });
    let mut over: Vec<f64> = outcomes.iter().map(|(over, _, _)| *over).collect();
    over.sort_by(f64::total_cmp);
    let mean = |which: fn(&(f64, u64, u64)) -> u64| {
        outcomes.iter().map(which).sum::<u64>() as f64 / outcomes.len() as f64
    };
    (over, mean(|o| o.1), mean(|o| o.2))
}

/// 1 % of loss both ways, the rate given: at the 95th percentile the sender knows of its success a
/// quarter of a round trip after it can at best, and without repair packets more than half a one
/// later.
#[test]
fn a_last_loss_costs_no_round_trip() {
    for (bytes, mbit) in [(20_000_000, 100), (2_000_000, 2)] {
        let (without, plain, _) = runs(bytes, mbit, FecPolicy::Never, worlds(10));
        let (with, all, repairs) = runs(bytes, mbit, FecPolicy::Auto, worlds(40));
        let needed = bytes.div_ceil(DATA_BYTES) as f64 / 100.0;
        let share = |packets: f64| packets / needed;
        let at = |over: &[f64], percent: usize| over[over.len() * percent / 100];
        println!(
            "{bytes} bytes over {mbit} Mbit/s, beyond size / goodput, in round trips: \
             without {:.2} median, {:.2} p95; with {:.2}, {:.2}; repair packets {:.2} %, packets \
             {:.2} % instead of {:.2} % of those needed",
            at(&without, 50),
            at(&without, 95),
            at(&with, 50),
            at(&with, 95),
            share(repairs),
            share(all),
            share(plain)
        );
        assert!(at(&with, 95) <= 1.25, "{with:?}");
        assert!(at(&without, 95) > 1.75, "there was nothing to mend: {without:?}");
        assert!(share(repairs) <= 3.0 && share(all) <= share(plain) + 3.0);
    }
}

/// Loses the first packet of each of these kinds and buffers, once.
fn lose(kinds: &'static [u8]) -> (Rc<Cell<u32>>, impl FnMut(&Sight<'_>) -> Tamper + 'static) {
    let lost = Rc::new(Cell::new(0));
    let (count, mut seen) = (lost.clone(), Vec::new());
    let tamper = move |sight: &Sight<'_>| {
        let what = (sight.clear.kind, sight.clear.buffer);
        if !kinds.contains(&sight.clear.kind) || seen.contains(&what) {
            return Tamper::Pass;
        }
        seen.push(what);
        count.set(count.get() + 1);
        Tamper::Drop
    };
    (lost, tamper)
}

/// Repair packets of the last round trip leave behind their buffers and not at the end, where
/// coding and decoding them would have all the time to itself.
#[test]
fn repair_packets_of_the_last_round_trip_follow_their_buffers() {
    for seed in 1..=10 {
        let counts = Rc::new(Cell::new((0, 0)));
        let (seen, mut over) = (counts.clone(), false);
        let tamper = move |sight: &Sight<'_>| {
            over |= (sight.clear.kind, sight.clear.buffer) == (kind::LDATA, Some(20));
            if sight.clear.kind == kind::REPAIR {
                let (before, after) = seen.get();
                seen.set(if over { (before, after + 1) } else { (before + 1, after) });
            }
            Tamper::Pass
        };
        let setup = lossy(world(seed, 20 << 20, 100, FecPolicy::Auto), 1);
        let outcome = World::new(setup).tamper(tamper).run();
        assert!(outcome.is_success(), "{outcome}");
        let (before, after) = counts.get();
        assert!(before > after * 3, "seed {seed}: {before}, {after}");
    }
}

/// From one packet on, and whichever of a buffer's are lost, the one that says where it ends
/// among them: nothing is sent again, and it takes no round trip more.
#[test]
fn the_last_packets_of_all_sizes_are_made_again() {
    for bytes in [1, 1000, 1425, 50_000, 3 << 20] {
        let (lost, tamper) = lose(&[kind::DATA, kind::LDATA]);
        let outcome = World::new(world(1, bytes, 20, FecPolicy::Auto)).tamper(tamper).run();
        let time = time(&outcome).saturating_sub(at_best(bytes, 20));
        assert!(time < RTT * 5 / 4, "{bytes}: {time:?}\n{outcome}");
        let repaired = outcome.received().packets_repaired;
        assert!(repaired > 0 && repaired <= lost.get().into(), "{outcome}");
        if bytes < 1 << 20 {
            assert_eq!(outcome.sent().data_packets_resent, 0, "{outcome}");
        }
    }
}

#[test]
fn a_repair_share_follows_every_buffer_and_is_as_large_as_set() {
    for percent in [1, 5, FecPercent::MAX] {
        let share = FecPercent::percent(percent).expect("a share");
        let (_, tamper) = lose(&[kind::DATA, kind::LDATA]);
        let setup = world(1, 8 << 20, 100, FecPolicy::Share(share));
        let outcome = World::new(setup).tamper(tamper).run();
        time(&outcome);
        let sent = outcome.sent();
        let first = sent.data_packets_sent - sent.data_packets_resent;
        let exact = first * u64::from(percent) / 100;
        let most = exact + outcome.receiver().filled;
        assert!((exact..=most).contains(&sent.repair_packets_sent), "{outcome}");
        let received = outcome.received();
        assert_eq!(
            (sent.data_packets_resent, received.data_packets_duplicate),
            (0, 0),
            "{outcome}"
        );
        assert!(received.packets_repaired >= outcome.receiver().filled, "{outcome}");
    }
}

/// A path that becomes narrow voids what was made for larger packets, and some were on their way.
#[test]
fn a_buffer_granted_again_gets_new_repair_packets() {
    for seed in 1..=5 {
        let mut setup =
            lossy(world(seed, 4 << 20, 20, FecPolicy::Share(FecPercent::percent(10).unwrap())), 1);
        for link in [&mut setup.there, &mut setup.back] {
            let at = Duration::from_millis(2500);
            link.schedule = vec![Change { at, mtu: Some(1280), ..Change::default() }];
        }
        let outcome = World::new(setup).run();
        time(&outcome);
        assert!(outcome.sent().resizes > 0, "{outcome}");
        assert!(outcome.coverage.count(Mark::Repaired) > 0, "{outcome}");
    }
}

/// On a path that loses nothing hardly anything is spent, and none where no round trip is saved.
#[test]
fn repair_packets_that_save_no_round_trip_are_not_sent() {
    let sound = World::new(world(1, 20_000_000, 100, FecPolicy::Auto)).run();
    assert_eq!((time(&sound), sound.sent().repair_packets_sent).1, 0, "{sound}");
    let mut near = lossy(world(1, 4 << 20, 100, FecPolicy::Auto), 1);
    for link in [&mut near.there, &mut near.back] {
        link.delay = Duration::from_millis(1);
    }
    let near = World::new(near).run();
    assert_eq!((time(&near), near.sent().repair_packets_sent).1, 0, "{near}");
    let mut plain = world(1, 1 << 20, 20, FecPolicy::Auto);
    for host in [&mut plain.active, &mut plain.passive] {
        host.config.wire = Wire::Rfc998;
        host.config.burst = Config::new(Wire::Rfc998, host.config.role).burst;
        host.config.policy = Policy::Fair { ceiling: None };
    }
    plain.at_least_one = true;
    let plain = World::new(plain).run();
    assert!(plain.is_success() && plain.sent().repair_packets_sent == 0, "{plain}");
}
