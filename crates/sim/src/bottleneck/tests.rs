//! Checks the model against known results of real networks.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, MarkAbove, QueueLimit};
use netblt_proto::config::Policy;
use netblt_proto::units::Rate;

use super::{FlowOptions, Kind, Scene, SceneOutcome, Supply, TcpLaw, run};

const SECOND: Duration = Duration::from_secs(1);

fn link(mbit: u64, rtt: Duration, queue_percent: u64) -> LinkOptions {
    let rate = Rate::from_bits_per_second(mbit * 1_000_000);
    let queue = rate.bytes_in(rtt) * queue_percent / 100;
    LinkOptions { rate: Some(rate), queue: QueueLimit::Bytes(queue), ..LinkOptions::default() }
}

/// So many flows of one kind, a second apart, for a minute. Packets after a third of it count.
fn company(kind: Kind, count: u32, link: LinkOptions, rtt: Duration, seed: u64) -> SceneOutcome {
    let flows = (0..count).map(|n| FlowOptions::new(kind, rtt, SECOND * n)).collect();
    run(&Scene { from: SECOND * 20, ..Scene::new(link, flows, SECOND * 60, seed) })
}

const RTT: Duration = Duration::from_millis(40);

fn part(share: f64, least: f64, most: f64) -> bool {
    (least..=most).contains(&share)
}

/// Measured with Linux hosts: 0.5 %.
#[test]
fn eight_cubics_share_a_short_queue_and_lose_half_a_per_cent() {
    for seed in 1..=3 {
        let got = company(Kind::CUBIC, 8, link(50, RTT, 25), RTT, seed);
        let (loss, jain) = (got.link.queue_loss(), got.jain(0..8));
        assert!(part(loss, 0.002, 0.007), "{loss}");
        assert!(jain > 0.98 && got.used() > 0.98, "{jain} {}", got.used());
    }
}

/// No timer runs out because a long queue makes round trips long.
#[test]
fn many_cubics_share_a_long_queue() {
    let rtt = Duration::from_millis(80);
    let got = company(Kind::CUBIC, 32, link(20, rtt, 400), rtt, 1);
    assert!(got.jain(0..32) > 0.9, "{}", got.jain(0..32));
}

/// RFC 9438 §5.2: 12 packets a round trip at 1 %, 27 at 0.3 %, which is where it is a Reno.
#[test]
fn a_cubic_alone_at_random_loss_has_what_its_equation_says() {
    for (ppm, least, most) in [(10_000, 0.06, 0.09), (3_000, 0.11, 0.17)] {
        let mut lossy = link(50, RTT, 100);
        lossy.loss = Probability::from_ppm(ppm);
        let got = company(Kind::CUBIC, 1, lossy, RTT, 1);
        assert!(part(got.used(), least, most), "{ppm}: {}", got.used());
        assert_eq!(got.link.lost_queue, 0);
    }
}

/// Measured with Linux hosts: 16.6 %.
#[test]
fn eight_bbrs_lose_a_sixth_in_a_short_queue() {
    let got = company(Kind::BBR, 8, link(50, RTT, 25), RTT, 1);
    assert!(part(got.link.queue_loss(), 0.13, 0.19), "{}", got.link.queue_loss());
}

/// RFC 5681: it halves, so that a queue of a product keeps the link busy, and a short one does not.
#[test]
fn a_reno_needs_a_queue_of_a_product() {
    let short = company(Kind::RENO, 1, link(50, RTT, 10), RTT, 1);
    let long = company(Kind::RENO, 1, link(50, RTT, 100), RTT, 1);
    assert!(part(short.used(), 0.75, 0.88), "{}", short.used());
    assert!(long.used() > 0.98, "{}", long.used());
}

#[test]
fn the_excess_of_a_steady_sender_is_lost() {
    let rate = Rate::from_bits_per_second(52_500_000);
    let got = company(Kind::Steady(rate), 1, link(50, RTT, 25), RTT, 1);
    assert!(part(got.link.queue_loss(), 0.045, 0.05), "{}", got.link.queue_loss());
    assert!(part(got.flows[0].loss(), 0.045, 0.05), "{}", got.flows[0].loss());
}

/// 54 packets: 10, 20 and 24 in three round trips.
#[test]
fn a_short_transfer_takes_as_many_round_trips_as_slow_start_needs() {
    let kind = Kind::Tcp(TcpLaw::Cubic, Supply::Pieces(54 * 1500, SECOND));
    let got = company(kind, 1, link(1000, RTT, 100), RTT, 1);
    let pieces = &got.flows[0].pieces;
    assert!((34..=36).contains(&pieces.len()), "{}", pieces.len());
    let within = |took: &Duration| (RTT * 3..RTT * 3 + RTT / 4).contains(took);
    assert!(pieces.iter().all(within), "{pieces:?}");
}

/// A tail loss probe finds losses.
#[test]
fn a_short_transfer_ends_although_packets_are_lost() {
    let kind = Kind::Tcp(TcpLaw::Cubic, Supply::Pieces(54 * 1500, SECOND));
    let mut lossy = link(1000, RTT, 100);
    lossy.loss = Probability::from_percent(10);
    let got = company(kind, 1, lossy, RTT, 1);
    let pieces = &got.flows[0].pieces;
    assert!(pieces.len() > 20, "{}", pieces.len());
}

#[test]
fn marks_keep_a_queue_short_without_loss() {
    let mut marking = link(50, RTT, 400);
    marking.ecn_mark = Some(MarkAbove::Bytes(60_000));
    for kind in [Kind::CUBIC, Kind::Ours(Policy::Cubic { ceiling: None })] {
        let flow = FlowOptions { ecn: true, ..FlowOptions::new(kind, RTT, Duration::ZERO) };
        let scene = Scene::new(marking.clone(), vec![flow], SECOND * 60, 1);
        let got = run(&Scene { from: SECOND * 20, ..scene });
        assert_eq!(got.link.lost_queue, 0);
        assert!(got.link.marked > 0 && got.flows[0].marked > 0);
        assert!(got.used() > 0.9, "{}", got.used());
        assert!(got.link.mean_queue < Duration::from_millis(12), "{:?}", got.link.mean_queue);
    }
}

#[test]
fn a_seed_is_a_scene() {
    let run =
        |seed| company(Kind::Ours(Policy::Fair { ceiling: None }), 2, link(20, RTT, 25), RTT, seed);
    let bytes =
        |outcome: SceneOutcome| outcome.flows.iter().map(|flow| flow.arrived_bytes).collect();
    let (first, again, other): (Vec<u64>, Vec<u64>, Vec<u64>) =
        (bytes(run(1)), bytes(run(1)), bytes(run(2)));
    assert_eq!(first, again);
    assert_ne!(first, other);
}
