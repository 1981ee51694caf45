//! The first round trips on paths of many kinds: how soon the path is full, and what is lost to
//! the sender's own haste.

use std::fmt;
use std::time::Duration;

use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, adaptive_from, ms};
use crate::rate::adaptive::Adaptive;
use crate::rate::train::{Train, train_for};
use crate::rate::{RateControl, Sample, Stretch};
use crate::time::Instant;
use crate::units::Rate;

/// Only the end of a buffer is told of, and each is to be at another place of its train.
#[test]
fn no_buffer_is_a_number_of_whole_trains() {
    for packets in 1..300 {
        for rate in [1000, 7378, 80_000, 3_000_000] {
            let rate = Rate::from_bytes_per_second(rate);
            let burst = train_for(rate, 475, packets * 475 - 200);
            assert_ne!(packets % u64::from(burst.packets), 0, "{packets} {rate}");
            assert!(
                burst.interval.abs_diff(rate.time_for(u64::from(burst.packets) * 475)).is_zero()
            );
        }
    }
}

/// With six packets to a train the first of 55 end with the first, the second, and show nothing.
#[test]
fn the_first_buffers_end_where_their_trains_show_something() {
    let burst =
        |rate, packets: u64| train_for(Rate::from_bytes_per_second(rate), 475, packets * 475);
    assert_eq!(burst(7378, 55).packets, 7);
    assert_eq!(burst(7378, 10).packets, 6, "the fourth of six");
    assert_eq!(burst(7378, 7).packets, 6, "with neither");
    assert_eq!(burst(7378, 0).packets, 6, "no buffers");
}

/// Startup was over with the first OK, which was lost and said again two seconds later.
#[test]
fn a_single_train_that_comes_late_does_not_end_startup() {
    let mut train = Train::default();
    let mut round = |lates: &[u64]| {
        lates.iter().for_each(|late| train.sample(6000, 1000, Duration::from_millis(*late)));
        train.end_round().is_some_and(|best| best < 5000)
    };
    assert_eq!([round(&[2000]), round(&[]), round(&[0])], [false; 3]);
    assert_eq!([round(&[0, 1]), round(&[2000]), round(&[2000])], [false, false, true]);
    assert!(round(&[2000, 1900]), "two say the same");
}

/// What is looked at, in round trips.
const LOOK: u32 = 12;

/// One path.
#[derive(Clone, Copy, Debug)]
struct Case {
    megabits: u64,
    rtt: u64,
    queue: Queue,
    loss: u64,
    grain: u64,
    steal: bool,
    reports_lost: u64,
    beside: Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Quarter,
    Product,
    Kib64,
    /// A policer with a bucket of so many kB on a line of 1 Gbit/s.
    Policer(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nobody,
    Cubic,
    Fair,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Until nine tenths of the path were used in a quarter of a round trip, in hundredths of one.
    full: Option<u32>,
    /// Packets lost to the queue, of a product, in thousandths, and how many.
    dropped: (u64, u64),
    /// Of the path in [`LOOK`] round trips, in thousandths.
    used: u64,
}

impl Case {
    fn path(&self) -> Path {
        let percent = if self.queue == Queue::Quarter { 25 } else { 100 };
        let mut path = Path::new(self.megabits * M, ms(self.rtt), self.loss, percent);
        match self.queue {
            Queue::Kib64 => path.queue_bytes = 64_000,
            Queue::Policer(kilobytes) => {
                path.queue_bytes = kilobytes * 1000;
                path.policer = true;
                path.line = Some(Rate::from_bits_per_second(1000 * M));
            }
            _ => {}
        }
        path.clump = Duration::from_micros(self.grain);
        path.steal = if self.steal { ms(4) } else { Duration::ZERO };
        path.report_loss = self.reports_lost;
        path
    }

    fn product(&self) -> u64 {
        Rate::from_bits_per_second(self.megabits * M).bytes_in(ms(self.rtt))
    }

    fn run(&self, trains: bool) -> Start {
        let path = self.path();
        let before = match self.beside {
            Beside::Nobody => Duration::ZERO,
            _ => ms(self.rtt) * 60,
        };
        let policy = Adaptive::new(PACKET as u32, Some(path.rtt), None);
        let policy = if trains { policy } else { policy.doubling() };
        let mut flow = Flow::new(Box::new(policy), before);
        flow.steal = path.steal;
        let mut flows = vec![flow];
        if self.beside == Beside::Fair {
            flows.push(adaptive_from(&path, Duration::ZERO));
        }
        let mut world = World::new(path.clone(), flows);
        if self.beside == Beside::Cubic {
            world.cubic = Some(Cubic::new(Duration::ZERO));
        }
        world.run(before);
        let (mut full, mut dropped, mut passed) = (None, 0, 0);
        let quarter = path.rtt / 4;
        for n in 1..=LOOK * 4 {
            let tally = world.run(quarter);
            dropped += tally.dropped;
            passed += tally.passed;
            // Of a policer the bucket gives at first what the path does not.
            if full.is_none() && world.used(&tally, quarter) >= 900 {
                full = Some(n * 25);
            }
        }
        let product = self.product().max(1);
        let used = passed * PACKET * 1000
            / Rate::from_bits_per_second(self.megabits * M).bytes_in(path.rtt * LOOK).max(1);
        Start { full, dropped: (dropped * PACKET * 1000 / product, dropped), used }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.full {
            Some(full) => write!(f, "{:2}.{:02}", full / 100, full % 100)?,
            None => write!(f, " never")?,
        }
        let (share, packets) = self.dropped;
        write!(f, " rtt, lost {share:5} ({packets:5}), used {:4}", self.used)
    }
}

const PLAIN: Case = Case {
    megabits: 1000,
    rtt: 100,
    queue: Queue::Product,
    loss: 0,
    grain: 100,
    steal: false,
    reports_lost: 0,
    beside: Beside::Nobody,
};

/// Every combination with nobody beside.
fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    for megabits in [2, 20, 100, 1000, 2500] {
        for rtt in [20, 100, 600] {
            for queue in [Queue::Quarter, Queue::Product, Queue::Kib64] {
                for loss in [0, 10_000, 50_000] {
                    for grain in [20, 100, 250] {
                        for steal in [false, true] {
                            let path = Case { megabits, rtt, queue, loss, grain, steal, ..PLAIN };
                            cases.push(path);
                        }
                    }
                }
            }
        }
    }
    cases
}

/// A few of them, and others.
fn few() -> Vec<Case> {
    let mut cases = Vec::new();
    for (megabits, rtt) in
        [(2, 100), (2, 600), (20, 100), (100, 20), (100, 100), (1000, 20), (1000, 100), (2500, 100)]
    {
        for (queue, loss, steal) in
            [(Queue::Product, 0, false), (Queue::Quarter, 10_000, true), (Queue::Kib64, 0, false)]
        {
            cases.push(Case { megabits, rtt, queue, loss, steal, ..PLAIN });
        }
    }
    cases.push(Case { grain: 250, loss: 50_000, steal: true, ..PLAIN });
    cases.push(Case { grain: 20, ..PLAIN });
    cases.push(Case { loss: 300_000, queue: Queue::Quarter, grain: 0, ..PLAIN });
    for reports_lost in [50_000, 300_000] {
        cases.push(Case { reports_lost, ..PLAIN });
        cases.push(Case { reports_lost, megabits: 100, ..PLAIN });
    }
    for beside in [Beside::Cubic, Beside::Fair] {
        for (megabits, rtt) in [(20, 100), (100, 20), (100, 100), (1000, 20)] {
            for queue in [Queue::Quarter, Queue::Product] {
                cases.push(Case { megabits, rtt, queue, beside, ..PLAIN });
            }
        }
    }
    for kilobytes in [64, 512, 2000] {
        for megabits in [20, 100] {
            cases.push(Case { megabits, queue: Queue::Policer(kilobytes), ..PLAIN });
        }
    }
    cases
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:5} M {:3} ms {:<13} ", self.megabits, self.rtt, format!("{:?}", self.queue))?;
        write!(f, "loss {:6} reports {:6} ", self.loss, self.reports_lost)?;
        write!(f, "grain {:3} {:5} ", self.grain, if self.steal { "steal" } else { "" })?;
        write!(f, "{:<6}", format!("{:?}", self.beside))
    }
}

/// Asserts what holds of every path, and of this one.
fn check(case: &Case, start: &Start, doubling: &Start) {
    let line = format!("{case}: {start}, doubling {doubling}");
    let (share, packets) = start.dropped;
    match (case.queue, case.beside) {
        // A long train passes a full bucket; what is beyond it is seen a round trip later.
        (Queue::Policer(2000..), _) => assert!(share <= 60_000, "{line}"),
        (Queue::Policer(_), _) => assert!(share <= doubling.dropped.0 * 2, "{line}"),
        // Where even the bursts of the right rate do not fit, it ends with doubling.
        (Queue::Kib64, _) if case.megabits >= 1000 => {}
        _ if case.loss > 50_000 => {}
        (Queue::Kib64, _) => assert!(share <= 250 || packets <= 64, "{line}"),
        (_, Beside::Cubic | Beside::Fair) => assert!(share <= 1400, "{line}"),
        // 32 packets are sent before anything is known; later probes lose some where a queue is
        // short.
        _ => assert!(share <= 150 || packets <= 64, "{line}"),
    }
    let policed = matches!(case.queue, Queue::Policer(_));
    let soon = case.beside == Beside::Nobody
        && !policed
        && case.queue != Queue::Kib64
        && case.loss <= 50_000;
    if soon && case.reports_lost == 0 && case.rtt >= 100 && case.megabits <= 1000 {
        let full = start.full.expect("it is full at some time");
        assert!(full <= if case.megabits < 1000 { 475 } else { 800 }, "{line}");
        assert!(full <= doubling.full.unwrap_or(u32::MAX) + 75, "{line}");
        if (case.megabits, case.rtt, case.steal, case.loss) == (1000, 100, false, 0) {
            assert!(full <= 325, "{line}");
        }
    }
}

#[test]
fn a_path_is_soon_full_and_little_lost_to_haste() {
    for case in few() {
        let (start, doubling) = (case.run(true), case.run(false));
        println!("{case}: {start}, doubling {doubling}");
        check(&case, &start, &doubling);
    }
}

/// The table of docs/decisions/fast-start.md, with `--nocapture`; haste costs on no more than half
/// as many paths as with doubling.
#[test]
#[ignore = "810 paths: .ci/nightly"]
fn every_combination() {
    let mut hasty = [0, 0];
    for case in matrix() {
        let starts = [case.run(true), case.run(false)];
        println!("{case}: {}, doubling {}", starts[0], starts[1]);
        for (count, Start { dropped: (share, packets), .. }) in hasty.iter_mut().zip(starts) {
            *count += u32::from(share > 50 && packets > 32);
        }
    }
    println!("too hasty: {} of 810, with doubling {}", hasty[0], hasty[1]);
    assert!(hasty[0] * 2 <= hasty[1], "{hasty:?}");
}

/// Radios and shared wires deliver by the millisecond: a train that falls between two such ticks
/// shows a twelfth of the path, and is not gone by.
#[test]
fn what_comes_in_clumps_is_no_rate() {
    for (mbit, queue, clump, least) in [(1000, 32, 1, 800), (1000, 10, 2, 740), (200, 50, 3, 600)] {
        let mut all = 0;
        for seed in 1..=12 {
            let rtt = ms(100) + Duration::from_micros(seed * 137);
            let mut path = Path::new(mbit * M, rtt, 0, queue);
            path.clump = ms(clump);
            let flow = adaptive_from(&path, ms(0));
            let mut world = World::new(path.clone(), vec![flow]).by_chance(seed);
            let tally = world.run(ms(4800));
            let used = world.used(&tally, ms(4800));
            println!("{mbit} Mbit/s, {clump} ms, {seed}: {used}, {tally:?}");
            assert!(used >= least, "{mbit} {clump} {seed}: {used}");
            all += used;
        }
        assert!(all >= 12 * 850, "{mbit} {clump}: {all}");
    }
}

/// What opens a connection came, nothing left for 2 ms, and a first train's first packets were held
/// up for 3.6 ms more by a busy host, the rest of it right behind them: of that no rate is made. Of
/// what came in the whole time from one report to the next one is, at once.
#[test]
fn what_held_up_a_train_before_it_began_is_no_rate() {
    let held_up = [(2520, 1924, 5585, "trains"), (17_640, 0, 411, "trains")];
    let slow = [(12_600, 1924, 11_900, "leap"), (7560, 0, 6000, "leap")];
    for parts in [held_up, slow] {
        let mut law = Adaptive::new(PACKET as u32, Some(ms(100)), None);
        let mut at = Instant::EPOCH + ms(100);
        let mut sample = Sample { round: 1, rtt: Some(ms(101)), ..Sample::default() };
        law.on_sample(at, &sample);
        // A few small packets that left in 60 us.
        let little = Some(Rate::from_bytes_per_second(3_900_000));
        (sample.send_rate, sample.delivery_rate) = (little, little);
        (sample.sent_bytes, sample.burst_bytes) = (60_000, 0);
        let mut from = 0;
        for (bytes, waited, arriving, phase) in [(214, 0, 30, "trains")].into_iter().chain(parts) {
            at += ms(2);
            sample.burst_bytes += bytes;
            sample.stretch = Some(Stretch {
                from_bytes: from,
                sent_bytes: bytes,
                arrived_bytes: bytes,
                waited: Duration::from_micros(waited),
                sending: Duration::from_micros(waited),
                arriving: Duration::from_micros(arriving),
            });
            from += bytes;
            sample.delivered_packets += 4;
            law.on_sample(at, &sample);
            assert_eq!(law.belief().phase, phase, "{:?}", sample.stretch);
        }
    }
}
