//! Peers that answer and make no progress, and peers that are only slow (`docs/protocol §7.6`).

use std::time::Duration;

use netblt_path::{Change, LinkOptions, QueueLimit};
use netblt_proto::api::{CloseReason, StallKind};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;
use netblt_sim::check::kind;
use netblt_sim::disk::{DiskOptions, Stall};
use netblt_sim::host::{EndReport, HostOptions};
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::{Sight, Tamper, World};

const MIB: u64 = 1 << 20;
const BOTH: [Wire; 2] = [Wire::Rfc998, Wire::Sealed];
const DEATH_TIMER: Duration = Duration::from_secs(20);
/// When something goes wrong.
const LATER: Duration = Duration::from_millis(700);

/// A transfer over 20 Mbit/s and 40 ms, with `sends` the end that has the data.
fn world(wire: Wire, bytes: u64, sends: Side) -> Setup {
    let host = |role| {
        let mut config = Config::new(wire, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = 1 << 16;
        config.death_timer = DEATH_TIMER;
        HostOptions::new(config)
    };
    let (sender, receiver) = (host(Role::Sender), host(Role::Receiver));
    let (active, passive) = match sends {
        Side::Active => (sender, receiver),
        Side::Passive => (receiver, sender),
    };
    let mut setup = Setup::new(1, bytes, active, passive);
    let rate = Some(Rate::from_bits_per_second(20_000_000));
    let rtt = Duration::from_millis(40);
    let queue = QueueLimit::bdp(rate, rtt);
    let link = LinkOptions { rate, delay: rtt / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    setup.deadline = Duration::from_secs(100);
    setup
}

fn host(setup: &mut Setup, side: Side) -> &mut HostOptions {
    match side {
        Side::Active => &mut setup.active,
        Side::Passive => &mut setup.passive,
    }
}

/// That it ended as it should: one end saw the stall in time and sent it to the other.
#[track_caller]
fn stood_still(outcome: &Outcome) -> Vec<StallKind> {
    assert_eq!(outcome.finding, None, "{outcome}");
    let mut seen = Vec::new();
    for end in &outcome.ends.0 {
        match &end.closed {
            Some(CloseReason::Stalled(stalled)) => {
                assert!(stalled.received > 0 && stalled.attempts > 0, "{stalled}\n{outcome}");
                seen.push(stalled.what);
            }
            Some(CloseReason::PeerQuit(why)) => {
                assert!(why.starts_with("nothing new was stored for"), "{why}\n{outcome}");
            }
            other => panic!("{other:?}\n{outcome}"),
        }
    }
    assert!(!seen.is_empty(), "{outcome}");
    let most = LATER + DEATH_TIMER + Duration::from_secs(8);
    assert!(outcome.duration < most, "{outcome}");
    assert!(outcome.duration > DEATH_TIMER, "{outcome}");
    seen
}

#[test]
fn a_path_that_takes_only_small_packets_ends_in_a_stall_at_both_ends() {
    for wire in BOTH {
        for sends in Side::BOTH {
            for narrow in Side::BOTH {
                for mtu in [75, 100, 200] {
                    let mut setup = world(wire, 8 * MIB, sends);
                    let change = Change { at: LATER, mtu: Some(mtu), ..Change::default() };
                    match narrow {
                        Side::Active => setup.there.schedule.push(change),
                        Side::Passive => setup.back.schedule.push(change),
                    }
                    let controls_pass = narrow != sends && mtu > 75;
                    let outcome = World::new(setup).run();
                    // Who repeats what does not pass says nothing else on `rfc998`.
                    let mute = wire == Wire::Rfc998 && narrow != sends;
                    let died = |end: &EndReport| end.closed == Some(CloseReason::DeathTimer);
                    let dead = mute && outcome.ends.0.iter().any(died);
                    let fine = dead || controls_pass && outcome.is_success();
                    if !fine {
                        stood_still(&outcome);
                    }
                }
            }
        }
    }
}

#[test]
fn a_peer_that_answers_and_stores_nothing_ends_in_a_stall() {
    for sends in Side::BOTH {
        let mute = |sight: &Sight<'_>| {
            let control = sight.clear.kind == kind::CONTROL;
            let late = sight.now >= Instant::EPOCH + LATER;
            if control && late { Tamper::Drop } else { Tamper::Pass }
        };
        let outcome = World::new(world(Wire::Sealed, 8 * MIB, sends)).tamper(mute).run();
        stood_still(&outcome);
    }
}

#[test]
fn a_receiver_notices_data_that_never_arrive_of_a_begun_buffer() {
    for wire in BOTH {
        let mut setup = world(wire, 8 * MIB, Side::Active);
        // The sender would wait for much longer.
        setup.active.config.death_timer = DEATH_TIMER * 50;
        let dumb = |sight: &Sight<'_>| {
            let data = matches!(sight.clear.kind, kind::DATA | kind::LDATA);
            let late = sight.now >= Instant::EPOCH + LATER;
            if data && late { Tamper::Drop } else { Tamper::Pass }
        };
        let outcome = World::new(setup).tamper(dumb).run();
        assert!(stood_still(&outcome).contains(&StallKind::Missing), "{outcome}");
    }
}

#[test]
fn disks_that_stop_are_no_stall() {
    for wire in BOTH {
        for sends in Side::BOTH {
            for side in Side::BOTH {
                let mut setup = world(wire, 8 * MIB, sends);
                let lasts = DEATH_TIMER * 20;
                setup.deadline = lasts * 2;
                let stalls = vec![Stall { at: LATER, lasts }];
                let disk = DiskOptions { stalls, flush: lasts / 2, ..DiskOptions::default() };
                host(&mut setup, side).disk = disk;
                let outcome = World::new(setup).run();
                assert!(outcome.is_success() && outcome.duration > lasts, "{outcome}");
            }
        }
    }
}

#[test]
fn a_slow_peer_is_no_stall() {
    let slow = Rate::from_bits_per_second(64_000);
    for wire in BOTH {
        for sends in Side::BOTH {
            for (datagram, buffer) in [(1232, 1 << 16), (65_507, 1 << 16), (65_507, 1 << 18)] {
                for queue in [QueueLimit::Unlimited, QueueLimit::Bytes(200_000)] {
                    let mut setup = world(wire, MIB / 2, sends);
                    setup.deadline = Duration::from_secs(1000);
                    for side in Side::BOTH {
                        let config = &mut host(&mut setup, side).config;
                        config.datagram_bytes = datagram;
                        config.buffer_bytes = buffer;
                        config.burst.interval = config.burst.interval.max(Duration::from_secs(2));
                        config.burst.packets = if datagram > 10_000 { 1 } else { 12 };
                    }
                    for link in [&mut setup.there, &mut setup.back] {
                        link.rate = Some(slow);
                        link.queue = queue;
                        link.delay = Duration::from_millis(900);
                    }
                    let outcome = World::new(setup).run();
                    assert!(outcome.is_success(), "{datagram} {buffer}\n{outcome}");
                }
            }
        }
    }
}

#[test]
fn a_fixed_rate_far_above_the_paths_is_only_slow() {
    for sends in Side::BOTH {
        let mut setup = world(Wire::Rfc998, MIB / 2, sends);
        setup.deadline = Duration::from_secs(2000);
        let burst = Burst { packets: 8, interval: Duration::from_millis(8) };
        let policy = Policy::Fixed(FixedRate::bursts(burst).expect("it has an interval"));
        host(&mut setup, sends).config.policy = policy;
        for side in Side::BOTH {
            host(&mut setup, side).config.buffer_bytes = 1 << 19;
        }
        for link in [&mut setup.there, &mut setup.back] {
            link.rate = Some(Rate::from_bits_per_second(64_000));
            link.queue = QueueLimit::Unlimited;
        }
        let outcome = World::new(setup).run();
        assert!(outcome.is_success() && outcome.duration > DEATH_TIMER * 3, "{outcome}");
    }
}
