//! Tests of the link model.

use proptest::prelude::*;

use super::*;
use crate::rng::{Probability, Rng};

const OVERHEAD: u32 = 28;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn mbit(n: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(n * 1_000_000))
}

fn packet(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(len.max(8), 0);
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// All packets inside, each taken out when `next` says so.
fn drain(path: &mut Path<Vec<u8>>) -> Vec<Delivery<Vec<u8>>> {
    let mut out = Vec::new();
    while let Some(next) = path.next() {
        while let Some(delivery) = path.pop(next) {
            assert!(delivery.at <= next.max(path.now));
            out.push(delivery);
        }
        assert!(path.next().is_none_or(|later| later > next), "next must go on");
    }
    assert!(path.counters().balance(), "{:?}", path.counters());
    out
}

/// The numbers that come through when `count` packets go in, one every `gap` microseconds.
fn numbers(options: &LinkOptions, seed: u64, count: u64, gap: u64) -> Vec<u64> {
    let mut path = Path::new(options.clone(), seed, "test");
    let mut out = Vec::new();
    for n in 0..count {
        path.push(at(n * gap), OVERHEAD, None, packet(n, 1472));
        out.extend(std::iter::from_fn(|| path.pop(at(n * gap))));
    }
    out.extend(drain(&mut path));
    out.iter().map(|delivery| number(&delivery.payload)).collect()
}

#[test]
fn a_perfect_link_is_a_wire() {
    let mut path = Path::new(LinkOptions::default(), 0, "wire");
    path.push(at(5), OVERHEAD, Some(Ecn::Ect0), packet(7, 100));
    assert_eq!(path.next(), Some(at(5)));
    let delivery = path.pop(at(5)).unwrap();
    assert_eq!((delivery.at, delivery.ecn, delivery.ip_bytes), (at(5), Some(Ecn::Ect0), 128));
    assert!(path.is_empty() && path.next().is_none());
}

#[test]
fn packets_take_their_time_and_the_delay() {
    let options = LinkOptions { rate: mbit(200), delay: ms(50), ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "time");
    for n in 0..3 {
        path.push(at(10), OVERHEAD, None, packet(n, 1472));
    }
    // The wait for the link is seen through: the first wake-up already has something to deliver.
    assert_eq!(path.next(), Some(at(10 + 60 + 50_000)));
    assert_eq!(path.queue_time(), Duration::from_micros(180));
    let times: Vec<_> = drain(&mut path).iter().map(|delivery| delivery.at).collect();
    assert_eq!(times, [at(50_070), at(50_130), at(50_190)]);
}

#[test]
fn rate_is_exact_over_long_runs() {
    // 1,500 bytes at 7 bytes a second take 214.28... s; a million of them must not lose the rest.
    let rate = Rate::from_bytes_per_second(7_000_003);
    let options = LinkOptions { rate: Some(rate), ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "exact");
    let count = 100_000;
    let mut last = Instant::EPOCH;
    for n in 0..count {
        path.push(Instant::EPOCH, OVERHEAD, None, packet(n, 1472));
    }
    while let Some(next) = path.next() {
        last = path.pop(next).map_or(last, |delivery| delivery.at);
    }
    assert_eq!(last, Instant::EPOCH + rate.time_for(count * 1500));
}

#[test]
fn the_queue_is_exact_to_the_byte() {
    let queue = QueueLimit::Bytes(3000);
    let options = LinkOptions { rate: mbit(12), queue, ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "queue");
    for n in 0..5 {
        path.push(at(0), OVERHEAD, None, packet(n, 1472));
    }
    assert_eq!(path.counters().lost_queue, Tally { packets: 2, bytes: 3000 });
    assert_eq!(path.counters().queue_bytes_max, 3000);
    assert_eq!(path.counters().queue_time_max, ms(3));
    // After 1 ms one packet has been sent and the next begun, so that 1,500 bytes fit, not 1,501.
    path.push(at(1000), OVERHEAD, None, packet(5, 1473));
    path.push(at(1000), OVERHEAD, None, packet(6, 1472));
    let out: Vec<_> = drain(&mut path).iter().map(|d| number(&d.payload)).collect();
    assert_eq!(out, [0, 1, 2, 6]);
}

#[test]
fn queues_can_be_limited_by_time_and_by_packets() {
    for queue in [QueueLimit::Time(ms(2)), QueueLimit::Packets(2)] {
        let options = LinkOptions { rate: mbit(12), queue, ..LinkOptions::default() };
        assert_eq!(numbers(&options, 0, 5, 0), [0, 1, 2]);
    }
    assert_eq!(QueueLimit::bdp(mbit(200), ms(100)), QueueLimit::Bytes(2_500_000));
    assert_eq!(QueueLimit::bdp(mbit(1), ms(1)), QueueLimit::Bytes(96_000));
    assert_eq!(QueueLimit::bdp(None, ms(1)), QueueLimit::Unlimited);
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    for ecn_mark in [MarkAbove::Bytes(1499), MarkAbove::Time(ms(1))].map(Some) {
        let options = LinkOptions { rate: mbit(12), ecn_mark, ..LinkOptions::default() };
        let mut path = Path::new(options, 0, "ecn");
        for ecn in [Some(Ecn::Ect0), Some(Ecn::Ect0), Some(Ecn::Ect0), None, Some(Ecn::Ce)] {
            path.push(at(0), OVERHEAD, ecn, packet(0, 1472));
        }
        assert_eq!(path.counters().marked.packets, 1);
        let out: Vec<_> = drain(&mut path).iter().map(|delivery| delivery.ecn).collect();
        let (ect, ce) = (Some(Ecn::Ect0), Some(Ecn::Ce));
        assert_eq!(out, [ect, ect, ce, None, ce]);
    }
}

#[test]
fn too_large_packets_vanish() {
    let options = LinkOptions { mtu: Some(1500), ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "mtu");
    path.push(at(0), OVERHEAD, None, packet(0, 1472));
    path.push(at(0), OVERHEAD, None, packet(1, 1473));
    assert_eq!(drain(&mut path).len(), 1);
    assert_eq!(path.counters().lost_mtu, Tally { packets: 1, bytes: 1501 });
}

#[test]
fn the_same_packets_are_lost_whatever_the_timing() {
    let loss = Probability::from_percent(10);
    let options = LinkOptions { loss, ..LinkOptions::default() };
    let first = numbers(&options, 1, 1000, 0);
    let slow = LinkOptions { rate: mbit(10), jitter: ms(3), delay: ms(40), ..options.clone() };
    assert_eq!(first, numbers(&slow, 1, 1000, 77));
    assert_ne!(first, numbers(&options, 2, 1000, 0));
    assert!((870..930).contains(&first.len()), "{}", first.len());
}

/// A seed found to break something must break it in every later version.
#[test]
fn fates_live_for_ever() {
    let options = LinkOptions {
        loss: Probability::from_percent(25),
        loss_burst: Some(2),
        reorder: Probability::from_percent(10),
        duplicate: Probability::from_percent(10),
        corrupt: Probability::from_percent(10),
        jitter: ms(1),
        ..LinkOptions::default()
    };
    let mut path = Path::new(options, 2024, "path/up");
    for n in 0..40 {
        path.push(at(n * 200), OVERHEAD, None, vec![0; 64]);
    }
    let out = drain(&mut path);
    let numbers: Vec<_> = out.iter().map(|d| d.entered.as_nanos() / 200_000).collect();
    let flipped = |d: &Delivery<Vec<u8>>| d.payload.iter().map(|b| b.count_ones()).sum::<u32>();
    let flipped: Vec<_> = out.iter().filter(|d| d.corrupted).map(flipped).collect();
    assert_eq!(
        numbers,
        [
            0, 1, 2, 3, 4, 5, 7, 8, 9, 6, 10, 10, 11, 12, 13, 14, 15, 16, 17, 18, 18, 19, 19, 20,
            21, 22, 23, 26, 27, 30, 31, 32, 28, 29, 33, 34, 35, 36, 36, 37, 38, 39
        ]
    );
    assert_eq!(flipped, [8, 1]);
    assert_eq!(out[3].at.as_nanos(), 906_448);
}

#[test]
fn losses_come_in_runs_of_the_length_asked_for() {
    for (percent, mean) in [(1, 10), (20, 3), (50, 2), (50, 20)] {
        let options = LinkOptions {
            loss: Probability::from_percent(percent),
            loss_burst: Some(mean),
            ..LinkOptions::default()
        };
        let count = 400_000;
        let through = numbers(&options, 5, count, 0);
        let lost = count - through.len() as u64;
        let runs = through.windows(2).filter(|pair| pair[1] - pair[0] > 1).count() as u64;
        let expected = count * u64::from(percent) / 100;
        assert!(lost.abs_diff(expected) < expected / 10, "{percent} {mean}: {lost}");
        let tenths = 10 * lost / runs;
        assert!(tenths.abs_diff(10 * u64::from(mean)) <= u64::from(mean), "{mean}: {tenths}");
    }
    // Shorter than chance would have them: loss stays as asked.
    let loss = Probability::from_percent(60);
    let options = LinkOptions { loss, loss_burst: Some(1), ..LinkOptions::default() };
    let through = numbers(&options, 5, 10_000, 0).len();
    assert!((3800..4200).contains(&through), "{through}");
}

#[test]
fn jitter_spreads_arrivals_without_reordering() {
    for gap in [10, 1000, 50_000] {
        let options = LinkOptions { delay: ms(20), jitter: ms(10), ..LinkOptions::default() };
        let mut path = Path::new(options, 9, "jitter");
        for n in 0..20_000 {
            path.push(at(n * gap), OVERHEAD, None, packet(n, 64));
        }
        let out = drain(&mut path);
        assert!(out.windows(2).all(|pair| pair[0].entered <= pair[1].entered));
        let extra = |d: &Delivery<_>| d.at.since(d.entered).saturating_sub(ms(20));
        let (min, max) = (out.iter().map(extra).min(), out.iter().map(extra).max());
        assert!(min < Some(ms(2)) && max > Some(ms(8)) && max <= Some(ms(10)), "{min:?} {max:?}");
    }
}

#[test]
fn a_reordered_packet_is_overtaken_as_often_as_asked() {
    let options = LinkOptions {
        reorder: Probability::from_percent(2),
        reorder_by: Displacement::Packets(4),
        delay: ms(3),
        ..LinkOptions::default()
    };
    let out = numbers(&options, 3, 2000, 100);
    assert_eq!(out.len(), 2000);
    let reordered = (0..2000).filter(|&i| out[..i].iter().any(|&n| n > out[i])).count();
    assert!((20..80).contains(&reordered), "{reordered}");
    let place = |i: u64| out.iter().position(|&n| n == i).unwrap() as u64;
    // Displaced by four, or fewer where one of those behind was held back as well.
    assert!((0..1990).all(|i| place(i) <= i + 4));
    assert!((0..1990).any(|i| place(i) == i + 4));
}

#[test]
fn a_packet_held_back_is_let_go_when_nothing_follows() {
    let options =
        LinkOptions { reorder: Probability::ALWAYS, delay: ms(3), ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "held");
    path.push(at(0), OVERHEAD, None, packet(0, 64));
    assert_eq!(drain(&mut path)[0].at, Instant::EPOCH + PATIENCE + ms(3));
}

#[test]
fn packets_can_be_late_by_a_time() {
    let options = LinkOptions {
        reorder: Probability::from_percent(50),
        reorder_by: Displacement::Time(ms(1)),
        ..LinkOptions::default()
    };
    let out = numbers(&options, 4, 100, 300);
    assert_eq!(out.len(), 100);
    assert!(out.windows(2).any(|pair| pair[0] > pair[1]));
    let place = |i: u64| out.iter().position(|&n| n == i).unwrap() as u64;
    assert!((0..100).all(|i| place(i).abs_diff(i) <= 4));
}

#[test]
fn copies_come_right_behind() {
    let options = LinkOptions { duplicate: Probability::ALWAYS, ..LinkOptions::default() };
    assert_eq!(numbers(&options, 0, 3, 10), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn corruption_flips_one_to_eight_bits() {
    let options = LinkOptions { corrupt: Probability::ALWAYS, ..LinkOptions::default() };
    let mut path = Path::new(options, 0, "bits");
    let mut seen = [false; 9];
    for _ in 0..1000 {
        path.push(at(0), OVERHEAD, None, vec![0; 100]);
        let delivery = path.pop(at(0)).unwrap();
        let flipped: u32 = delivery.payload.iter().map(|byte| byte.count_ones()).sum();
        assert!(delivery.corrupted);
        seen[flipped as usize] = true;
    }
    assert!(!seen[0] && seen[1..].iter().all(|&seen| seen));
    path.push(at(0), OVERHEAD, None, vec![]);
    assert!(!path.pop(at(0)).unwrap().corrupted);
}

#[test]
fn an_outage_drops_packets_that_leave_the_link_and_no_earlier_ones() {
    let outage = |at, outage| Change { at: ms(at), outage: Some(outage), ..Change::default() };
    let options = LinkOptions {
        delay: ms(30),
        schedule: vec![outage(20, Outage::None), outage(10, Outage::Drop)],
        ..LinkOptions::default()
    };
    let out = numbers(&options, 0, 30, 1000);
    assert_eq!(out, (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn a_link_on_hold_queues() {
    let outage = |at, outage| Change { at: ms(at), outage: Some(outage), ..Change::default() };
    let options = LinkOptions {
        queue: QueueLimit::Packets(3),
        schedule: vec![outage(0, Outage::Hold), outage(10, Outage::None)],
        ..LinkOptions::default()
    };
    let mut path = Path::new(options, 0, "hold");
    for n in 0..5 {
        path.push(at(n), OVERHEAD, None, packet(n, 1472));
    }
    assert_eq!((path.next(), path.counters().queue_bytes), (Some(at(10_000)), 4500));
    let out = drain(&mut path);
    assert!(out.len() == 3 && out.iter().all(|delivery| delivery.at == at(10_000)));
    assert_eq!(path.counters().lost_queue.packets, 2);
}

#[test]
fn rate_and_delay_change_on_schedule_without_reordering() {
    let options = LinkOptions {
        rate: mbit(12),
        delay: ms(50),
        schedule: vec![
            Change { at: ms(2), rate: mbit(120), delay: Some(ms(10)), ..Change::default() },
            Change { at: ms(3), rate: Some(Rate::ZERO), ..Change::default() },
            Change { at: ms(500), rate: mbit(12), ..Change::default() },
        ],
        ..LinkOptions::default()
    };
    let mut path = Path::new(options, 0, "steps");
    for n in 0..14 {
        path.push(at(1), OVERHEAD, None, packet(n, 1472));
    }
    let times: Vec<_> = drain(&mut path).iter().map(|d| d.at.as_nanos() / 1000).collect();
    // Two at the old rate (the second finishes at it), ten at the new, then a standstill. The
    // shorter delay makes none overtake the first.
    assert!(times[..12].iter().all(|&time| time == 51_001), "{times:?}");
    assert_eq!(times[12..], [511_000, 512_000]);
}

#[test]
fn a_change_can_be_made_by_hand() {
    let mut path = Path::new(LinkOptions::default(), 0, "hand");
    let hold = Change { outage: Some(Outage::Hold), ..Change::default() };
    path.change(at(0), &hold);
    path.push(at(1), OVERHEAD, None, packet(0, 64));
    assert_eq!(path.next(), None);
    path.change(at(7), &Change { outage: Some(Outage::None), ..Change::default() });
    assert_eq!(path.pop(at(7)).unwrap().at, at(7));
}

fn any_change() -> impl Strategy<Value = Change> {
    let outage = prop_oneof![Just(Outage::None), Just(Outage::Drop), Just(Outage::Hold)];
    (0..2000_u64, proptest::option::of(0..10_000_000_u64), 0..50_u64, outage).prop_map(
        |(at, rate, delay, outage)| Change {
            at: ms(at),
            rate: rate.map(Rate::from_bytes_per_second),
            delay: Some(ms(delay)),
            outage: Some(outage),
            ..Change::default()
        },
    )
}

prop_compose! {
    fn any_options()(
        rate in proptest::option::of(0..u64::MAX),
        (delay, jitter) in (0..u64::MAX, 0..100_000_000_u64),
        [loss, reorder, duplicate, corrupt] in [0..1_000_000_000_u32, 0..300_000_000,
            0..300_000_000, 0..300_000_000],
        loss_burst in proptest::option::of(any::<u32>()),
        depth in 0..20_u32,
        queue in prop_oneof![
            Just(QueueLimit::Unlimited),
            any::<u64>().prop_map(QueueLimit::Bytes),
            (0..20_u32).prop_map(QueueLimit::Packets),
            (0..1000_u64).prop_map(|n| QueueLimit::Time(ms(n))),
        ],
        mtu in proptest::option::of(any::<u16>()),
        schedule in proptest::collection::vec(any_change(), 0..5),
    ) -> LinkOptions {
        LinkOptions {
            // Rates and delays of every magnitude.
            rate: rate.map(|n| Rate::from_bytes_per_second(n >> (n % 64))),
            delay: Duration::from_nanos(delay >> (delay % 64)),
            jitter: Duration::from_nanos(jitter),
            loss: Probability::from_ppb(loss),
            loss_burst,
            reorder: Probability::from_ppb(reorder),
            reorder_by: if depth % 2 == 0 {
                Displacement::Packets(depth)
            } else {
                Displacement::Time(ms(depth.into()))
            },
            duplicate: Probability::from_ppb(duplicate),
            corrupt: Probability::from_ppb(corrupt),
            policer: loss_burst.map(|bucket| Policer {
                rate: Rate::from_bytes_per_second(delay),
                bucket_bytes: u64::from(bucket) * 1500,
            }),
            queue,
            early_drop: match duplicate % 3 {
                0 => None,
                1 => Some(EarlyDrop::Pie {
                    target: Duration::from_nanos(jitter),
                    marks: duplicate.is_multiple_of(2),
                }),
                _ => Some(EarlyDrop::Red {
                    least: delay >> 40,
                    most: delay >> (delay % 64),
                    at_most: Probability::from_ppb(loss),
                    marks: duplicate.is_multiple_of(2),
                }),
            },
            codel: reorder.is_multiple_of(2).then_some(CoDel {
                target: Duration::from_nanos(jitter),
                marks: duplicate.is_multiple_of(2),
            }),
            ecn_mark: Some(MarkAbove::Bytes(3000)),
            mtu,
            outage: Outage::None,
            schedule,
        }
    }
}

proptest! {
    #[test]
    fn books_balance_and_time_goes_forward(
        options in any_options(),
        seed: u64,
        steps in proptest::collection::vec((0..30_000_u64, 0..3000_usize, any::<bool>()), 0..200),
    ) {
        let mut path = Path::new(options, seed, "property");
        let mut now = Instant::EPOCH;
        let mut last = Instant::EPOCH;
        let mut rng = Rng::new(seed);
        for (gap, len, pop) in steps {
            now += Duration::from_micros(rng.below(gap + 1));
            path.push(now, OVERHEAD, Some(Ecn::Ect0), vec![0; len]);
            prop_assert!(path.counters().balance());
            while let Some(delivery) = pop.then(|| path.pop(now)).flatten() {
                prop_assert!(delivery.at <= now && delivery.at >= last);
                last = delivery.at;
            }
            prop_assert!(path.counters().balance());
            prop_assert!(path.next().is_none_or(|next| !pop || next > now));
        }
        let heal = Change { rate: mbit(100), outage: Some(Outage::None), ..Change::default() };
        path.change(now, &heal);
        while let Some(next) = path.next().filter(|&next| next < Instant::NEVER) {
            while let Some(delivery) = path.pop(next) {
                prop_assert!(delivery.at >= last);
                last = delivery.at;
            }
            prop_assert!(path.next().is_none_or(|later| later > next));
        }
        prop_assert!(path.counters().balance());
    }
}
