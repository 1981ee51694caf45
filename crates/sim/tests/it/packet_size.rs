//! Paths that take less than others, or more, from the start or from some moment on, and say
//! nothing of it (`docs/protocol §6.5`).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;
use netblt_sim::check::kind;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::{Sight, Tamper, World};

const RTT: Duration = Duration::from_millis(50);
/// Ethernet's and jumbo frames, IPv6's least, tunnels, what is less than OPEN, and loopback.
const SIZES: [u16; 9] = [600, 1000, 1240, 1280, 1400, 1420, 1500, 9000, 65_535];
/// In all these worlds the path becomes another one then.
const CHANGES: Duration = Duration::from_secs(4);

/// A transfer of so many seconds over a path of 20 Mbit/s and 50 ms that takes IP packets of `mtu`
/// bytes, between interfaces that would take any.
fn world(mtu: u16, seconds: u32, v6: bool) -> Setup {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.datagram_bytes = 65_507;
        config.overhead_bytes = if v6 { 48 } else { 28 };
        HostOptions::new(config)
    };
    let rate = Rate::from_bits_per_second(20_000_000);
    let bytes = rate.bytes_in(Duration::from_secs(1)) * u64::from(seconds);
    let mut setup = Setup::new(1, bytes, host(Role::Sender), host(Role::Receiver));
    let queue = QueueLimit::bdp(Some(rate), RTT);
    let (rate, mtu) = (Some(rate), Some(mtu));
    let link = LinkOptions { rate, delay: RTT / 2, queue, mtu, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    setup.deadline = Duration::from_secs(120);
    setup
}

/// Both directions take IP packets of `mtu` bytes from `at` on.
fn change(setup: &mut Setup, at: Duration, mtu: u16) {
    for link in [&mut setup.there, &mut setup.back] {
        link.schedule.push(Change { at, mtu: Some(mtu), ..Change::default() });
    }
}

/// The same over another path, and as long as that carries in `seconds`.
fn faster(setup: &mut Setup, rate: Rate, rtt: Duration, seconds: u64) {
    setup.bytes = rate.bytes_in(Duration::from_secs(seconds));
    for link in [&mut setup.there, &mut setup.back] {
        (link.rate, link.delay, link.queue) =
            (Some(rate), rtt / 2, QueueLimit::bdp(Some(rate), rtt));
    }
}

/// What a path that takes IP packets of `mtu` bytes carries at best, in bytes of files a second.
fn possible(setup: &Setup, mtu: u16) -> f64 {
    let overhead = f64::from(setup.active.config.overhead_bytes);
    // Nothing larger has a length that fits 16 bits.
    let datagram = (f64::from(mtu) - overhead).min(65_048.0);
    let rate = setup.there.rate.expect("it has one").bytes_per_second() as f64;
    rate * (datagram - 48.0) / (datagram + overhead)
}

/// Runs it, and notes when the first DATA that can pass left after the change.
fn run(setup: Setup, mtu: u16) -> (Outcome, Option<Duration>) {
    let (first, overhead) = (Rc::new(Cell::new(None)), setup.active.config.overhead_bytes);
    let noted = Rc::clone(&first);
    let sender = setup.sender();
    let watch = move |sight: &Sight<'_>| {
        let data = sight.from == sender && sight.clear.kind == kind::DATA;
        let passes = sight.bytes.len() + overhead as usize <= usize::from(mtu);
        let after = sight.now.since(Instant::EPOCH) > CHANGES;
        if data && passes && after && noted.get().is_none() {
            noted.set(Some(sight.now.since(Instant::EPOCH + CHANGES)));
        }
        Tamper::Pass
    };
    let outcome = World::new(setup).tamper(watch).run();
    let first = first.get();
    (outcome, first)
}

#[track_caller]
fn verified(outcome: &Outcome) {
    assert!(outcome.is_success(), "\n{outcome}");
}

#[test]
fn every_size_is_found_from_the_start() {
    for v6 in [false, true] {
        for mtu in SIZES.into_iter().filter(|mtu| *mtu >= if v6 { 1280 } else { 1240 }) {
            let setup = world(mtu, 10, v6);
            let best = possible(&setup, mtu);
            let outcome = World::new(setup).run();
            verified(&outcome);
            let share = outcome.goodput().bytes_per_second() as f64 / best;
            println!("MTU {mtu}: {:.1} % of what it can carry", share * 100.0);
            assert!(share >= 0.9, "MTU {mtu}: {share:.3}\n{outcome}");
        }
    }
}

/// Less than OPEN has, with either end as the active one.
#[test]
fn an_opening_that_does_not_pass_is_made_shorter() {
    for (mtu, pull) in [(600, false), (1000, true), (1227, false), (1227, true)] {
        let mut setup = world(mtu, 30, false);
        if pull {
            std::mem::swap(&mut setup.active, &mut setup.passive);
        }
        let best = possible(&setup, mtu);
        let outcome = World::new(setup).run();
        verified(&outcome);
        let share = outcome.goodput().bytes_per_second() as f64 / best;
        println!("MTU {mtu}: {:.1} % of what it can carry", share * 100.0);
        // The first OPEN is whole, 500 ms before the next one.
        assert!(share >= 0.95, "MTU {mtu}: {share:.3}\n{outcome}");
    }
}

#[test]
fn a_change_midway_is_survived_within_a_second() {
    [1280, 1500].into_iter().for_each(changes_are_survived);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn every_change_midway_is_survived_within_a_second() {
    SIZES.into_iter().filter(|mtu| *mtu >= 1240).for_each(changes_are_survived);
}

/// From one size to each other one.
fn changes_are_survived(from: u16) {
    for to in SIZES.into_iter().filter(|to| *to != from) {
        let mut setup = world(from, 24, false);
        change(&mut setup, CHANGES, to);
        let bytes = setup.bytes as f64;
        let before = CHANGES.as_secs_f64() * possible(&setup, from);
        let best = CHANGES.as_secs_f64() + (bytes - before) / possible(&setup, to);
        let (outcome, first) = run(setup, to);
        verified(&outcome);
        let share = best / outcome.transfer_time().as_secs_f64();
        println!("MTU {from} to {to}: {:.1} %, again after {first:?}", share * 100.0);
        assert!(share >= 0.9, "MTU {from} to {to}: {share:.3}\n{outcome}");
        let first = first.expect("data flow again");
        assert!(first < Duration::from_secs(1), "MTU {from} to {to}: {first:?}\n{outcome}");
    }
}

#[test]
fn a_path_that_narrows_and_loses_is_survived_from_either_end() {
    for (pull, loss) in [(false, 3), (true, 3), (true, 20)] {
        let mut setup = world(1500, 6, false);
        if pull {
            std::mem::swap(&mut setup.active, &mut setup.passive);
        }
        for link in [&mut setup.there, &mut setup.back] {
            link.loss = Probability::from_percent(loss);
        }
        change(&mut setup, Duration::from_secs(2), 1000);
        change(&mut setup, Duration::from_secs(5), 600);
        verified(&World::new(setup).run());
    }
}

/// Packets that are lost for their size say nothing of how much the path carries, even though the
/// short ones that end buffers pass in between.
#[test]
fn packets_lost_for_their_size_do_not_count_as_congestion() {
    for (from, to) in [(1500, 1400), (1420, 1280), (9000, 1500)] {
        let mut setup = world(from, 1, false);
        let rate = Rate::from_bits_per_second(100_000_000);
        faster(&mut setup, rate, RTT, 8);
        change(&mut setup, CHANGES, to);
        let outcome = World::new(setup).run();
        verified(&outcome);
        let (vanished, lost) =
            (outcome.paths[Side::Active].lost_mtu.packets, outcome.sent().data_packets_lost);
        println!("MTU {from} to {to}: {vanished} vanished, {lost} lost");
        assert!(vanished > 200 && lost < 30, "{lost} of {vanished}\n{outcome}");
    }
}

/// What is granted before the size is known is no more than the first second.
#[test]
fn a_gigabit_path_is_soon_used_in_its_size() {
    for (mtu, millis) in [(1500, 50), (1500, 100), (9000, 50), (9000, 100)] {
        let mut setup = world(mtu, 1, false);
        let rate = Rate::from_bits_per_second(1_000_000_000);
        faster(&mut setup, rate, Duration::from_millis(millis), 4);
        let small = Rc::new(Cell::new((0, 0, None)));
        let noted = Rc::clone(&small);
        let sender = setup.sender();
        let watch = move |sight: &Sight<'_>| {
            if sight.from == sender && sight.clear.kind == kind::DATA {
                let (mut fewer, mut all, mut first) = noted.get();
                all += 1;
                if sight.bytes.len() + 28 < usize::from(mtu) * 15 / 16 {
                    fewer += 1;
                } else if first.is_none() {
                    first = Some(sight.now.since(Instant::EPOCH));
                }
                noted.set((fewer, all, first));
            }
            Tamper::Pass
        };
        let outcome = World::new(setup).tamper(watch).run();
        verified(&outcome);
        let (fewer, all, first) = small.get();
        println!("MTU {mtu}, {millis} ms: {fewer} of {all} were smaller, first {first:?}");
        let first = first.expect("data in the path's size");
        match mtu {
            1500 => assert!(fewer * 100 < all, "{fewer} of {all}\n{outcome}"),
            // Looked for when the rate has grown to be worth it.
            _ => assert!(first < Duration::from_millis(2500), "{first:?}\n{outcome}"),
        }
    }
}

#[test]
fn only_one_direction_may_have_become_narrow() {
    for there in [true, false] {
        let mut setup = world(1500, 8, false);
        let link = if there { &mut setup.there } else { &mut setup.back };
        link.loss = Probability::from_percent(2);
        link.schedule.push(Change { at: CHANGES, mtu: Some(600), ..Change::default() });
        let outcome = World::new(setup).run();
        verified(&outcome);
        assert!(outcome.duration < Duration::from_secs(14), "\n{outcome}");
    }
}

#[test]
fn a_fixed_rate_stays_what_it_is_whatever_the_size() {
    for mtu in [1240, 1500, 9000] {
        let mut setup = world(mtu, 5, false);
        let rate = Rate::from_bits_per_second(16_000_000);
        setup.active.config.policy = Policy::Fixed(FixedRate::rate(rate).expect("a rate"));
        change(&mut setup, CHANGES, 1000);
        let outcome = World::new(setup).run();
        verified(&outcome);
        let sent = outcome.paths[Side::Active].entered.bytes as f64;
        let seconds = outcome.transfer_time().as_secs_f64();
        let expected = rate.bytes_per_second() as f64 * seconds;
        assert!(
            sent <= expected * 1.01 && sent >= expected * 0.85,
            "{sent} of {expected}\n{outcome}"
        );
    }
}

/// Buffers of one packet have no DATA, only LDATA.
#[test]
fn short_buffers_become_shorter_packets() {
    let mut setup = world(1500, 2, false);
    for host in [&mut setup.active, &mut setup.passive] {
        host.config.buffer_bytes = 1024;
        host.config.table_bytes = 64;
        host.config.max_outstanding = 1024;
    }
    change(&mut setup, Duration::from_secs(1), 700);
    let outcome = World::new(setup).run();
    verified(&outcome);
    assert!(outcome.duration < Duration::from_secs(8), "\n{outcome}");
}

#[test]
fn probes_cost_no_data_and_no_rate() {
    let mut setup = world(1280, 5, false);
    setup.there.queue = QueueLimit::Unlimited;
    let outcome = World::new(setup).run();
    verified(&outcome);
    assert!(outcome.paths[Side::Active].lost_mtu.packets > 0, "\n{outcome}");
    let sent = outcome.sent();
    assert_eq!((sent.data_packets_resent, sent.data_packets_lost), (0, 0), "\n{outcome}");
}
