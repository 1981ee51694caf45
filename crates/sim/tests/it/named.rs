//! One fault at a time, each in a world of its own.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, LinkOptions, Outage, QueueLimit};
use netblt_proto::api::CloseReason;
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;
use netblt_proto::wire::sealed;
use netblt_sim::check::kind;
use netblt_sim::coverage::Mark;
use netblt_sim::disk::{DiskOptions, Stall};
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::{Kill, Setup};
use netblt_sim::side::Side;
use netblt_sim::world::{Sight, Tamper, World};

const MIB: u64 = 1 << 20;
const BOTH: [Wire; 2] = [Wire::Rfc998, Wire::Sealed];

/// Drops the first `count` datagrams that are `such`, at most; counts those it saw of them.
fn drop_first(
    count: u32,
    such: impl Fn(&Sight<'_>) -> bool + 'static,
) -> (Rc<Cell<u32>>, impl FnMut(&Sight<'_>) -> Tamper + 'static) {
    let seen = Rc::new(Cell::new(0));
    let counter = Rc::clone(&seen);
    let tamper = move |sight: &Sight<'_>| {
        if !such(sight) {
            return Tamper::Pass;
        }
        counter.set(counter.get() + 1);
        if counter.get() <= count { Tamper::Drop } else { Tamper::Pass }
    };
    (seen, tamper)
}

fn is(kinds: &'static [u8]) -> impl Fn(&Sight<'_>) -> bool {
    move |sight| kinds.contains(&sight.clear.kind)
}

#[test]
fn a_quiet_path_carries_everything_once() {
    for wire in BOTH {
        let outcome = World::new(world(wire, 16 * MIB)).run();
        succeeded(&outcome);
        assert_eq!(outcome.sent().data_packets_resent, 0, "{outcome}");
        assert_eq!(outcome.received().data_packets_duplicate, 0, "{outcome}");
        assert_eq!(outcome.received().control_timeouts, 0, "{outcome}");
    }
}

/// An opened sender of `rfc998` learns how long the path is only from the first GO, and must not
/// keep to bursts with which it would never find what a long one takes.
#[test]
fn an_opened_sender_finds_the_rate_of_a_long_path() {
    let mut setup = world(Wire::Rfc998, 4 * MIB);
    std::mem::swap(&mut setup.active, &mut setup.passive);
    setup.passive.config.policy = Policy::Fair { ceiling: None };
    for host in [&mut setup.active, &mut setup.passive] {
        (host.config.datagram_bytes, host.config.buffer_bytes) = (314, 75_672);
    }
    let rate = Some(Rate::from_bits_per_second(10_000_000));
    let rtt = Duration::from_millis(1600);
    for link in [&mut setup.there, &mut setup.back] {
        (link.rate, link.delay, link.queue) = (rate, rtt / 2, QueueLimit::bdp(rate, rtt));
    }
    let outcome = World::new(setup).run();
    succeeded(&outcome);
    assert!(outcome.duration < Duration::from_secs(60), "{outcome}");
}

#[test]
fn either_end_may_open_and_either_may_send() {
    for wire in BOTH {
        let mut setup = world(wire, MIB);
        std::mem::swap(&mut setup.active, &mut setup.passive);
        let outcome = World::new(setup).run();
        succeeded(&outcome);
        assert_eq!(outcome.setup.sender(), Side::Passive);
    }
}

#[test]
fn the_packet_before_the_last_of_a_buffer_is_lost() {
    for wire in BOTH {
        let setup = world(wire, MIB);
        let last = last_index(&setup) - 1;
        let (_, tamper) = drop_first(1, move |sight| sight.clear.index == Some(last));
        let outcome = World::new(setup).tamper(tamper).run();
        succeeded(&outcome);
        assert_eq!(outcome.sent().data_packets_resent, 1, "{outcome}");
    }
}

#[test]
fn every_ldata_is_lost_once() {
    for wire in BOTH {
        let (_, tamper) = drop_first(4, is(&[kind::LDATA]));
        let outcome = World::new(world(wire, MIB)).tamper(tamper).run();
        succeeded(&outcome);
        assert!((4..=6).contains(&outcome.sent().data_packets_resent), "{outcome}");
    }
}

#[test]
fn the_last_packet_is_lost_ten_times() {
    for wire in BOTH {
        let (_, tamper) = drop_first(10, |sight| {
            sight.clear.kind == kind::LDATA && sight.clear.buffer == Some(4)
        });
        let outcome = World::new(world(wire, MIB)).tamper(tamper).run();
        succeeded(&outcome);
        assert!(outcome.duration < Duration::from_secs(20), "{outcome}");
    }
}

#[test]
fn the_first_go_is_lost() {
    for wire in BOTH {
        let (seen, tamper) = drop_first(1, is(&[kind::CONTROL]));
        let outcome = World::new(world(wire, MIB)).tamper(tamper).run();
        succeeded(&outcome);
        assert!(seen.get() > 1 && outcome.duration < Duration::from_secs(3), "{outcome}");
    }
}

#[test]
fn an_ok_is_lost_five_times() {
    for wire in BOTH {
        let (_, tamper) =
            drop_first(5, |sight| sight.clear.kind == kind::CONTROL && sight.filled >= 1);
        let outcome = World::new(world(wire, MIB)).tamper(tamper).run();
        succeeded(&outcome);
        assert!(outcome.duration < Duration::from_secs(8), "{outcome}");
    }
}

#[test]
fn every_control_packet_comes_twice() {
    for wire in BOTH {
        let twice = |sight: &Sight<'_>| match sight.clear.kind {
            kind::CONTROL => Tamper::Twice,
            _ => Tamper::Pass,
        };
        let outcome = World::new(world(wire, MIB)).tamper(twice).run();
        succeeded(&outcome);
        assert_eq!(outcome.sent().data_packets_resent, 0, "{outcome}");
    }
}

#[test]
fn every_packet_comes_twice() {
    for wire in BOTH {
        let mut setup = world(wire, MIB);
        // Twice must fit through.
        let burst = Burst { packets: 4, interval: Duration::from_millis(1) };
        match wire {
            Wire::Rfc998 => setup.active.config.policy = fixed(burst),
            Wire::Sealed => setup.active.config.burst = burst,
        }
        let outcome = World::new(setup).tamper(|_| Tamper::Twice).run();
        succeeded(&outcome);
        assert_eq!(outcome.sent().data_packets_resent, 0, "{outcome}");
    }
}

#[test]
fn a_receivers_burst_values_are_the_ceiling_of_any_sender() {
    for active in [Role::Sender, Role::Receiver] {
        let mut setup = world(Wire::Sealed, 4 * MIB);
        // 2 packets of 1,260 bytes each 4 ms: 5.04 Mbit/s, a twentieth of what the path takes.
        let burst = Burst { packets: 2, interval: Duration::from_millis(4) };
        setup.passive.config.burst = burst;
        if active == Role::Receiver {
            std::mem::swap(&mut setup.active, &mut setup.passive);
        }
        let outcome = World::new(setup).run();
        succeeded(&outcome);
        let time = outcome.duration.as_secs_f64();
        let least = (4 * MIB) as f64 / (2.0 * 1184.0) * 0.004;
        assert!((least * 0.99..least * 1.2).contains(&time), "{time} s and not {least}: {outcome}");
    }
}

#[test]
fn every_null_ack_is_lost() {
    // On `rfc998` data carry the acknowledgements that matter, and the last one is given up on.
    let (_, tamper) = drop_first(u32::MAX, is(&[kind::NULL_ACK]));
    let outcome = World::new(world(Wire::Rfc998, MIB)).tamper(tamper).run();
    assert!(outcome.receiver().done && outcome.finding.is_none(), "{outcome}");
}

#[test]
fn the_end_is_lost_three_times() {
    let (seen, tamper) =
        drop_first(3, |sight| sight.clear.kind == kind::NULL_ACK && sight.bytes.len() > 100);
    let outcome = World::new(world(Wire::Sealed, MIB)).tamper(tamper).run();
    succeeded(&outcome);
    assert!(
        (4..=12).contains(&seen.get()),
        "repeated until it is acknowledged, not for ever: {outcome}"
    );
}

#[test]
fn the_verdict_is_lost_five_times() {
    let (_, tamper) = drop_first(5, |sight| sight.clear.kind == kind::CONTROL && sight.judged);
    let outcome = World::new(world(Wire::Sealed, MIB)).tamper(tamper).run();
    succeeded(&outcome);
    assert!(outcome.duration < Duration::from_secs(8), "{outcome}");
}

#[test]
fn a_verdict_overtakes_the_last_ok() {
    // The disk's flush lies between the last OK's three rides, all lost, and the verdict's.
    let mut setup = world(Wire::Sealed, MIB);
    setup.passive.disk.flush = Duration::from_millis(20);
    let (_, tamper) = drop_first(u32::MAX, |sight| {
        sight.clear.kind == kind::CONTROL && sight.filled >= 3 && !sight.judged
    });
    succeeded(&World::new(setup).tamper(tamper).run());
}

#[test]
fn without_the_done_packet_the_sender_dallies() {
    for wire in BOTH {
        let (seen, tamper) = drop_first(1, is(&[kind::DONE]));
        let outcome = World::new(world(wire, MIB)).tamper(tamper).run();
        succeeded(&outcome);
        assert_eq!((seen.get(), outcome.coverage.count(Mark::Dallied)), (1, 1), "{outcome}");
    }
}

#[test]
fn the_acknowledgement_of_the_verdict_is_lost() {
    let (_, tamper) = drop_first(2, |sight| sight.sender_done && sight.clear.kind != kind::CONTROL);
    let outcome = World::new(world(Wire::Sealed, MIB)).tamper(tamper).run();
    succeeded(&outcome);
}

#[test]
fn the_path_dies_for_half_a_minute_and_heals() {
    for wire in BOTH {
        for outage in [Outage::Drop, Outage::Hold] {
            let mut setup = world(wire, 16 * MIB);
            for link in [&mut setup.there, &mut setup.back] {
                dead(link, Duration::from_secs(1), Duration::from_secs(31), outage);
            }
            let outcome = World::new(setup).run();
            succeeded(&outcome);
            let least = Duration::from_secs(31);
            assert!(outcome.duration > least && outcome.duration < least * 2, "{outcome}");
        }
    }
}

#[test]
fn only_the_way_back_dies_and_heals() {
    let mut setup = world(Wire::Sealed, 16 * MIB);
    dead(&mut setup.back, Duration::from_secs(1), Duration::from_secs(31), Outage::Drop);
    let outcome = World::new(setup).run();
    succeeded(&outcome);
    let sent = outcome.paths[Side::Active].entered.bytes;
    assert!(sent < 40 * MIB, "the breaker stops a sender without reports: {outcome}");
}

#[test]
fn the_path_dies_just_before_the_verdict_is_acknowledged() {
    let mut setup = world(Wire::Sealed, MIB);
    setup.passive.disk.flush = Duration::from_secs(1);
    let judged_at = World::new(setup.clone()).run().receiver().done_at.unwrap();
    let judged_after = Duration::from_nanos(judged_at.as_nanos());
    for link in [&mut setup.there, &mut setup.back] {
        dead(link, judged_after - Duration::from_millis(1), Duration::from_secs(32), Outage::Drop);
    }
    succeeded(&World::new(setup).run());
}

#[test]
fn the_death_timer_ends_both_ends_of_a_dead_path() {
    for wire in BOTH {
        let mut setup = world(wire, 16 * MIB);
        for host in [&mut setup.active, &mut setup.passive] {
            host.config.death_timer = Duration::from_secs(8);
        }
        for link in [&mut setup.there, &mut setup.back] {
            dead(link, Duration::from_secs(1), Duration::from_secs(1000), Outage::Drop);
        }
        let outcome = World::new(setup).run();
        assert_eq!(outcome.finding, None);
        let closed = outcome.ends.0.each_ref().map(|end| end.closed.clone());
        assert_eq!(closed, [const { Some(CloseReason::DeathTimer) }; 2], "{outcome}");
        assert!(outcome.duration < Duration::from_secs(11), "{outcome}");
    }
}

#[test]
fn a_disk_slower_than_the_net_sets_the_pace() {
    for wire in BOTH {
        let mut setup = world(wire, 8 * MIB);
        let rate = Some(Rate::from_bytes_per_second(1 << 20));
        setup.passive.disk = DiskOptions { rate, ..DiskOptions::default() };
        setup.passive.config.max_outstanding = 8;
        setup.passive.stock = 8;
        let outcome = World::new(setup).run();
        succeeded(&outcome);
        assert!(outcome.duration < Duration::from_millis(9500), "{outcome}");
        assert_eq!(outcome.sent().data_packets_resent, 0, "{outcome}");
        assert!(outcome.sent().waited.permission > Duration::from_secs(5), "{outcome}");
    }
}

#[test]
fn a_stalled_disk_stops_the_peer_and_releases_it() {
    for wire in BOTH {
        let mut setup = world(wire, 32 * MIB);
        let stall = Stall { at: Duration::from_secs(1), lasts: Duration::from_secs(60) };
        setup.passive.disk = DiskOptions { stalls: vec![stall], ..DiskOptions::default() };
        setup.passive.stock = 16;
        let outcome = World::new(setup).run();
        succeeded(&outcome);
        let least = Duration::from_secs(61);
        assert!(outcome.duration > least && outcome.duration < least * 5 / 4, "{outcome}");
    }
}

#[test]
fn one_buffer_outstanding_is_enough() {
    for wire in BOTH {
        let mut setup = world(wire, MIB);
        setup.passive.config.max_outstanding = 1;
        setup.active.stock = 1;
        setup.passive.stock = 1;
        succeeded(&World::new(setup).run());
    }
}

#[test]
fn an_empty_transfer_succeeds() {
    for (wire, at_least_one) in [(Wire::Rfc998, true), (Wire::Sealed, true), (Wire::Sealed, false)]
    {
        let mut setup = world(wire, 0);
        for host in [&mut setup.active, &mut setup.passive] {
            host.config.table_bytes = 0;
        }
        setup.at_least_one = at_least_one;
        let outcome = World::new(setup).run();
        succeeded(&outcome);
        assert_eq!(outcome.receiver().filled, u64::from(at_least_one), "{outcome}");
        assert!(outcome.duration < Duration::from_secs(2), "{outcome}");
    }
}

#[test]
fn a_receiver_is_killed_and_started_again() {
    for wire in BOTH {
        succeeded(&World::new(killed(wire, Side::Passive)).run());
    }
}

#[test]
fn a_sender_is_killed_and_started_again() {
    for wire in BOTH {
        let outcome = World::new(killed(wire, Side::Active)).run();
        succeeded(&outcome);
        if wire == Wire::Sealed {
            assert_eq!(outcome.coverage.count(Mark::Superseded), 1, "{outcome}");
            assert_eq!(outcome.receiver().starts, 1, "{outcome}");
        }
    }
}

#[test]
fn a_wrong_secret_gets_no_answer_but_a_hint() {
    let mut setup = world(Wire::Sealed, MIB);
    setup.passive.config.secret = Some(Secret([8; 32]));
    assert!(hint(setup).contains("secret"));
}

#[test]
fn ends_of_different_versions_tell_each_other() {
    let mut setup = world(Wire::Sealed, MIB);
    setup.passive.config.wire = Wire::Rfc998;
    assert!(hint(setup).contains("version 2"));
    let mut setup = world(Wire::Rfc998, MIB);
    setup.passive.config.wire = Wire::Sealed;
    let outcome = World::new(alone(setup)).run();
    let closed = outcome.ends[Side::Active].closed.clone();
    assert_eq!(
        closed,
        Some(CloseReason::Refused(format!("version {} only", sealed::VERSION))),
        "{outcome}"
    );
}

#[test]
fn two_senders_refuse_each_other() {
    for wire in BOTH {
        for role in [Role::Sender, Role::Receiver] {
            let mut setup = world(wire, MIB);
            setup.active.config.role = role;
            setup.passive.config.role = role;
            let outcome = World::new(alone(setup)).run();
            let closed = outcome.ends[Side::Active].closed.clone();
            let refused =
                matches!(&closed, Some(CloseReason::Refused(why)) if why.contains("both ends"));
            assert!(refused, "{outcome}");
        }
    }
}

#[test]
fn an_open_without_a_listener_ends_with_no_answer() {
    for icmp in [false, true] {
        let mut setup = world(Wire::Sealed, MIB);
        setup.passive.starts_at = Duration::from_secs(500);
        setup.icmp = icmp;
        let outcome = World::new(alone(setup)).run();
        let expected = CloseReason::NoAnswer { hint: None, unreachable: icmp };
        assert_eq!(outcome.ends[Side::Active].closed, Some(expected), "{outcome}");
    }
}

#[test]
fn a_listener_that_starts_after_the_death_timer_finds_no_caller() {
    for wire in BOTH {
        // By the OPEN after that it would be found.
        let late = Duration::from_millis(3500);
        let called = |patience| {
            let mut setup = world(wire, MIB);
            setup.passive.starts_at = late;
            setup.active.config.death_timer = patience;
            World::new(alone(setup)).run()
        };
        let outcome = called(Duration::from_secs(3));
        let expected = CloseReason::NoAnswer { hint: None, unreachable: false };
        assert_eq!(outcome.ends[Side::Active].closed, Some(expected), "{outcome}");
        succeeded(&called(Duration::from_secs(10)));
    }
}

#[test]
fn a_client_that_gives_up_sends_quit_to_its_peer() {
    for (wire, side) in BOTH.into_iter().flat_map(|wire| Side::BOTH.map(|side| (wire, side))) {
        let mut setup = world(wire, 16 * MIB);
        setup.quit = Some((side, Duration::from_millis(700)));
        let outcome = World::new(setup).run();
        assert_eq!(outcome.ends[side].closed, Some(CloseReason::Quit), "{outcome}");
        let expected = Some(CloseReason::PeerQuit("the world asked for it".to_owned()));
        assert_eq!(outcome.ends[side.other()].closed, expected, "{outcome}");
        assert_eq!(outcome.finding, None);
    }
}

#[test]
fn a_flood_of_opens_makes_the_listener_ask_for_cookies() {
    let mut setup = world(Wire::Sealed, MIB);
    setup.crowd = 15;
    // Late enough that the crowd is there first.
    setup.active.starts_at = Duration::from_millis(200);
    let outcome = World::new(setup).run();
    succeeded(&outcome);
    assert!(outcome.coverage.count(Mark::Cookie) > 0, "{outcome}");
}

#[test]
fn a_replayed_cookie_draws_one_open() {
    let mut setup = world(Wire::Sealed, MIB);
    setup.crowd = 15;
    setup.active.starts_at = Duration::from_millis(200);
    // Every COOKIE comes many times; each OPEN it drew would draw another.
    setup.back.duplicate = Probability::ALWAYS;
    let outcome = World::new(setup).run();
    succeeded(&outcome);
    let opens = outcome.coverage.count(Mark::OpenRetried);
    assert!(opens <= 1, "{opens} OPENs more than one: {outcome}");
}

#[test]
fn more_control_messages_than_one_packet_holds() {
    for wire in BOTH {
        let mut setup = world(wire, MIB);
        for host in [&mut setup.active, &mut setup.passive] {
            host.config.datagram_bytes = 300;
            host.config.buffer_bytes = 4096;
            host.config.max_outstanding = 64;
        }
        succeeded(&World::new(setup).run());
    }
}

#[test]
fn datagrams_may_be_tiny() {
    for wire in BOTH {
        let mut setup = world(wire, MIB / 8);
        setup.active.config.datagram_bytes = 100;
        succeeded(&World::new(setup).run());
    }
}

/// A sender that keeps to these.
fn fixed(burst: Burst) -> Policy {
    Policy::Fixed(FixedRate::bursts(burst).expect("it has an interval"))
}

/// A transfer over 100 Mbit/s and 40 ms of round trip, in buffers of 256 KiB, the active end
/// sending; as fast as the path on `rfc998`.
fn world(wire: Wire, bytes: u64) -> Setup {
    let host = |role| {
        let mut config = Config::new(wire, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = 1 << 18;
        if (wire, role) == (Wire::Rfc998, Role::Sender) {
            let burst = Burst { packets: 9, interval: Duration::from_millis(1) };
            config.policy = fixed(burst);
        }
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, bytes, host(Role::Sender), host(Role::Receiver));
    let rate = Some(Rate::from_bits_per_second(100_000_000));
    let rtt = Duration::from_millis(40);
    let queue = QueueLimit::bdp(rate, rtt);
    let link = LinkOptions { rate, delay: rtt / 2, queue, ..LinkOptions::default() };
    setup.there = link.clone();
    setup.back = link;
    setup.deadline = Duration::from_secs(400);
    setup
}

/// Index of the last packet of a buffer without a table.
fn last_index(setup: &Setup) -> u32 {
    let config = &setup.active.config;
    let overhead = if config.wire == Wire::Sealed { 48 } else { 24 };
    config.buffer_bytes.div_ceil(config.datagram_bytes - overhead) - 1
}

fn dead(link: &mut LinkOptions, from: Duration, until: Duration, outage: Outage) {
    link.schedule = vec![
        Change { at: from, outage: Some(outage), ..Change::default() },
        Change { at: until, outage: Some(Outage::None), ..Change::default() },
    ];
}

/// One of the ends is killed in mid-transfer, and started again by people who want it done.
fn killed(wire: Wire, side: Side) -> Setup {
    let mut setup = world(wire, 16 * MIB);
    setup.kills =
        vec![Kill { side, at: Duration::from_millis(900), down: Duration::from_millis(500) }];
    setup.persistent = true;
    for host in [&mut setup.active, &mut setup.passive] {
        host.config.death_timer = Duration::from_secs(10);
    }
    setup
}

/// Without anybody to start what ended again; over when the active end is.
fn alone(mut setup: Setup) -> Setup {
    setup.deadline = Duration::from_secs(100);
    setup.persistent = false;
    setup
}

/// The hint for the active end from an end that does not prove itself.
fn hint(setup: Setup) -> String {
    let outcome = World::new(alone(setup)).run();
    match outcome.ends[Side::Active].closed.clone() {
        Some(CloseReason::NoAnswer { hint: Some(hint), .. }) => hint,
        other => panic!("{other:?}\n{outcome}"),
    }
}

#[track_caller]
fn succeeded(outcome: &Outcome) {
    assert!(outcome.is_success(), "\n{outcome}");
}
