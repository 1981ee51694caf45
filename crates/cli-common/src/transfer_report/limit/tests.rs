//! Simulated slowdowns, three variations each, and the limit that the report names from their
//! traces; then the table row by row.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, LinkOptions, MarkAbove, Outage, Policer, QueueLimit};
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind};
use netblt_sim::disk::DiskOptions;
use netblt_sim::host::{HostOptions, Stops};
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

use super::super::trace::{self, Trace};
use super::*;

const OVERHEAD_BYTES: u32 = 28;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

fn host(role: Role) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([1; 32]));
    config.cipher = Cipher::Aes256Gcm;
    config.datagram_bytes = 1472;
    config.overhead_bytes = OVERHEAD_BYTES;
    config.trace = true;
    HostOptions::new(config)
}

fn link(rate: Rate, rtt: Duration) -> LinkOptions {
    let queue = QueueLimit::bdp(Some(rate), rtt);
    LinkOptions { rate: Some(rate), delay: rtt / 2, queue, ..LinkOptions::default() }
}

/// A path and a transfer over it.
#[derive(Clone, Copy)]
struct Size {
    mbit: u64,
    rtt_ms: u64,
    mebibytes: u64,
}

/// Variations of each slowdown, with different seeds.
const SIZES: [Size; 3] = [
    Size { mbit: 20, rtt_ms: 40, mebibytes: 30 },
    Size { mbit: 50, rtt_ms: 20, mebibytes: 60 },
    Size { mbit: 30, rtt_ms: 80, mebibytes: 45 },
];

/// Which end's trace is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sender,
    Receiver,
}

/// The trace of one end of a transfer over such a path, after `change` slowed it down.
fn traced(end: End, seed: u64, size: Size, change: impl Fn(&mut Setup, Size)) -> Trace {
    let bytes = size.mebibytes << 20;
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    setup.there = link(mbit(size.mbit), ms(size.rtt_ms));
    setup.back = link(mbit(size.mbit), ms(size.rtt_ms));
    setup.transcript = false;
    change(&mut setup, size);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    let report = if end == End::Sender { outcome.sender() } else { outcome.receiver() };
    let read = trace::read(&mut report.trace.as_bytes()).expect("memory can be read");
    assert_eq!((read.bad, read.trace.missing), (None, 0));
    read.trace
}

/// Asserts the reported limit on each of [`SIZES`].
#[track_caller]
fn names(limit: Limit, end: End, change: impl Fn(&mut Setup, Size)) {
    for (seed, size) in (1..).zip(SIZES) {
        let trace = traced(end, seed, size, &change);
        let seen = Evidence::new(&trace);
        let named = decide(&trace, &seen);
        let says = sentence(named, &trace, &seen);
        let figures = serde_json::json!(seen);
        assert_eq!(named, limit, "seed {seed}: {says} {figures}");
    }
}

fn beside(setup: &mut Setup, kind: Kind, at: Duration) {
    setup.neighbours.push(FlowOptions::new(kind, setup.there.delay, at));
}

fn disk(rate: Rate) -> DiskOptions {
    DiskOptions { rate: Some(rate), ..DiskOptions::default() }
}

fn stops(period: Duration, stopped: Duration) -> Option<Stops> {
    Some(Stops { period, stopped, scattered: None, until: ms(1_000_000) })
}

#[test]
fn a_clean_path() {
    names(Limit::Path, End::Sender, |_, _| {});
    // A queue of 5 ms overflows now and then, and a train of packets is a queue on a slow link.
    names(Limit::Path, End::Sender, |setup, _| setup.there.queue = QueueLimit::Time(ms(5)));
    names(Limit::Path, End::Sender, |setup, size| {
        setup.there = link(mbit(4), ms(size.rtt_ms));
        setup.bytes = 6 << 20;
    });
}

#[test]
fn a_neighbour_that_answers_nothing() {
    names(Limit::OtherTraffic, End::Sender, |setup, size| {
        beside(setup, Kind::Steady(mbit(size.mbit * 6 / 10)), ms(1000));
    });
}

#[test]
fn a_cubic_beside() {
    names(Limit::OtherTraffic, End::Sender, |setup, _| beside(setup, Kind::CUBIC, ms(1000)));
}

#[test]
fn a_bbr_beside() {
    names(Limit::OtherTraffic, End::Sender, |setup, _| beside(setup, Kind::BBR, ms(1000)));
}

#[test]
fn a_policer() {
    for (line, bucket_bytes) in [(10, 100_000), (2, 50_000)] {
        names(Limit::Policer, End::Sender, |setup, size| {
            setup.there.rate = Some(mbit(line * size.mbit));
            setup.there.policer = Some(Policer { rate: mbit(size.mbit), bucket_bytes });
        });
    }
}

#[test]
fn jitter() {
    for times in [2, 4] {
        names(Limit::Jitter, End::Sender, |setup, size| {
            setup.there.jitter = ms(times * size.rtt_ms);
        });
    }
}

#[test]
fn an_outage() {
    for outage in [Outage::Drop, Outage::Hold] {
        names(Limit::Outage, End::Sender, |setup, _| {
            let change =
                |at, outage| Change { at: ms(at), outage: Some(outage), ..Change::default() };
            setup.there.schedule = vec![change(4000, outage), change(7000, Outage::None)];
        });
    }
}

/// Where a radio or other traffic takes all of a link's rate for a while, less arrives and round
/// trips grow, in either case.
#[test]
fn a_link_that_slows_down_for_a_while() {
    names(Limit::Dip, End::Sender, |setup, size| {
        let change = |at, rate| Change { at: ms(at), rate: Some(rate), ..Change::default() };
        setup.there.schedule =
            vec![change(4000, mbit(size.mbit / 10)), change(8000, mbit(size.mbit))];
    });
}

#[test]
fn the_senders_disk() {
    names(Limit::SenderDisk, End::Sender, |setup, size| {
        setup.active.disk = disk(mbit(size.mbit / 2));
    });
}

fn slow_receiver(setup: &mut Setup, size: Size) {
    for host in [&mut setup.active, &mut setup.passive] {
        (host.config.max_outstanding, host.stock) = (4, 4);
    }
    setup.passive.disk = disk(mbit(size.mbit * 4 / 10));
}

/// A sender sees that no permission arrives; only the receiver knows the reason, and reports it at
/// the end of the transfer (`limit`), which the simulator does not.
#[test]
fn the_receivers_disk() {
    names(Limit::ReceiverDisk, End::Receiver, slow_receiver);
    names(Limit::Receiver, End::Sender, slow_receiver);
}

/// With many buffers all data is sent before it is stored.
#[test]
fn the_receivers_disk_behind_many_buffers() {
    let slow = |setup: &mut Setup, size: Size| setup.passive.disk = disk(mbit(size.mbit / 2));
    names(Limit::ReceiverDisk, End::Sender, slow);
    names(Limit::ReceiverDisk, End::Receiver, slow);
}

/// A processor that is free for a tenth of the time, of 50 ms at once.
#[test]
fn the_senders_processor() {
    names(Limit::SenderCpu, End::Sender, |setup, _| setup.active.stops = stops(ms(50), ms(45)));
}

/// A receiver that is stopped for half of every 10 ms, with a socket buffer of five packets.
#[test]
fn the_receivers_socket() {
    names(Limit::ReceiverSocket, End::Receiver, |setup, _| {
        setup.passive.stops = stops(ms(10), ms(5));
        setup.passive.socket_bytes = Some(8_000);
    });
}

#[test]
fn a_narrow_way_back() {
    for kbit in [32, 64] {
        names(Limit::ReturnPath, End::Sender, |setup, _| {
            setup.back.rate = Some(Rate::from_bits_per_second(kbit * 1000));
            setup.back.queue = QueueLimit::Bytes(20_000);
        });
    }
}

#[test]
fn a_full_way_back() {
    names(Limit::ReturnPath, End::Sender, |setup, _| {
        setup.back.rate = Some(mbit(2));
        setup.back.queue = QueueLimit::Time(ms(400));
        let cubic = FlowOptions::new(Kind::CUBIC, setup.there.delay, ms(0));
        setup.neighbours.push(FlowOptions { reverse: true, ..cubic });
    });
}

#[test]
fn random_loss() {
    for percent in [3, 5] {
        names(Limit::RandomLoss, End::Sender, |setup, _| {
            setup.there.loss = Probability::from_percent(percent);
        });
    }
    let trace = traced(End::Sender, 4, SIZES[0], |setup, _| {
        setup.there.loss = Probability::from_percent(5);
    });
    let reasons: Vec<_> = trace.excuses.iter().map(|excuse| excuse.reason.as_str()).collect();
    assert!(reasons.contains(&"tested"), "{reasons:?}");
}

#[test]
fn a_queue_manager_that_marks() {
    names(Limit::QueueManager, End::Sender, |setup, _| {
        setup.there.ecn_mark = Some(MarkAbove::Time(ms(1)));
    });
}

/// Losses at a queue of 5 ms look to the sender like a policer's, or are few enough to look like
/// other traffic.
#[test]
fn company_at_a_short_queue() {
    for (seed, size) in (1..).zip(SIZES) {
        let trace = traced(End::Sender, seed, size, |setup, size| {
            setup.there.queue = QueueLimit::Time(ms(5));
            beside(setup, Kind::Steady(mbit(size.mbit * 6 / 10)), ms(1000));
        });
        let named = decide(&trace, &Evidence::new(&trace));
        assert!(matches!(named, Limit::PolicerOrTraffic | Limit::OtherTraffic), "{named:?}");
    }
}

/// `cubic` sends no trains: it does not measure the bottleneck.
#[test]
fn a_sender_that_measures_no_bottleneck_names_two_causes() {
    let cubic = |setup: &mut Setup| setup.active.config.policy = Policy::Cubic { ceiling: None };
    names(Limit::PathOrTraffic, End::Sender, |setup, _| cubic(setup));
    names(Limit::PolicerOrLoss, End::Sender, |setup, _| {
        cubic(setup);
        setup.there.loss = Probability::from_percent(1);
    });
}

/// A transfer that is long enough, and of which nothing else is known.
fn seen() -> Evidence {
    Evidence { seconds: 10.0, round_trips: 250.0, min_rtt_ms: 40.0, ..Evidence::default() }
}

/// The cause agreed on at the end has precedence over the packets' evidence, unless it is the path.
#[test]
fn the_ends_facts_of_their_hosts_come_first() {
    let random = Evidence { loss_share: 0.05, tests_passed: 1, ..seen() };
    for (by, limit) in [
        ("receiver_cpu", Limit::ReceiverCpu),
        ("receiver_socket", Limit::ReceiverSocket),
        ("receiver_buffers", Limit::ReceiverBuffers),
        ("rate_cap", Limit::RateCap),
        ("path", Limit::RandomLoss),
        ("unknown limit", Limit::RandomLoss),
    ] {
        let line = format!("{{\"ns\":1,\"event\":\"limit\",\"by\":\"{by}\",\"cpu_percent\":97}}\n");
        let trace = trace::read(&mut line.as_bytes()).expect("memory can be read").trace;
        assert_eq!(decide(&trace, &random), limit, "{by}");
    }
    let line = "{\"ns\":1,\"event\":\"limit\",\"by\":\"receiver_cpu\",\"cpu_percent\":97}\n";
    let trace = trace::read(&mut line.as_bytes()).expect("memory can be read").trace;
    let says = "The receiver's processor: it was busy 97 % of the time.";
    assert_eq!(sentence(Limit::ReceiverCpu, &trace, &seen()), says);
}

#[test]
fn a_transfer_of_few_round_trips_has_no_limit() {
    let trace = Trace::default();
    let few = Evidence { round_trips: 5.0, source_share: 0.9, ..seen() };
    assert_eq!(decide(&trace, &few), Limit::RoundTrips);
    assert_eq!(decide(&trace, &Evidence::new(&trace)), Limit::RoundTrips);
    assert_eq!(decide(&trace, &Evidence { is_fixed: true, ..seen() }), Limit::RateCap);
}

/// A sender with a fixed rate measures no queue, so that its losses seem to be a policer's.
#[test]
fn a_fixed_rate_that_was_reduced_is_limited_by_the_path() {
    let trace = Trace::default();
    let reduced =
        Evidence { breaker_share: 0.5, loss_share: 0.4, unqueued_loss_share: 1.0, ..seen() };
    assert_eq!(decide(&trace, &reduced), Limit::Path);
    let text = sentence(Limit::Path, &trace, &reduced);
    assert!(text.contains("less than the fixed rate") && text.contains("50 %"), "{text}");
}

#[test]
fn every_cause_has_a_sentence_of_its_own() {
    let trace = Trace::default();
    let all = [
        Limit::RoundTrips,
        Limit::RateCap,
        Limit::SenderDisk,
        Limit::ReceiverDisk,
        Limit::ReceiverBuffers,
        Limit::ReceiverSocket,
        Limit::Receiver,
        Limit::SenderCpu,
        Limit::ReceiverCpu,
        Limit::Outage,
        Limit::ReturnPath,
        Limit::Dip,
        Limit::RandomLoss,
        Limit::Path,
        Limit::QueueManager,
        Limit::Policer,
        Limit::PolicerOrTraffic,
        Limit::PolicerOrLoss,
        Limit::Jitter,
        Limit::OtherTraffic,
        Limit::PathOrTraffic,
    ];
    let sentences: std::collections::BTreeSet<_> =
        all.iter().map(|limit| sentence(*limit, &trace, &seen())).collect();
    assert_eq!(sentences.len(), all.len(), "{sentences:?}");
    assert!(sentences.iter().all(|one| one.ends_with(['.', '`'])), "{sentences:?}");
}
