//! Rows of paths that change, and of what begins.

use std::time::Duration;

use netblt_path::{Change, LinkOptions, Outage};
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowBooks, FlowOptions, Kind, Scene, SceneOutcome, run};

use super::neighbours::floor;
use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, SECOND, ms, together};

/// When a path changes.
const STEP: Duration = Duration::from_secs(30);

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

/// How long after `at` a flow has `share` of `rate` for a second, in seconds.
fn time_to(flow: &FlowBooks, at: Duration, rate: Rate, share: f64, until: Duration) -> f64 {
    let enough = rate.bytes_in(SECOND) as f64 * share;
    let mut from = at;
    while from + SECOND <= until {
        if flow.bytes_between(from, from + SECOND) as f64 >= enough {
            return (from - at).as_secs_f64();
        }
        from += ms(100);
    }
    f64::INFINITY
}

/// The least rate over two seconds between two times, in bytes a second.
fn least_rate(flow: &FlowBooks, from: Duration, until: Duration) -> f64 {
    let (mut at, mut least) = (from, f64::INFINITY);
    while at + SECOND * 2 <= until {
        least = least.min(flow.bytes_between(at, at + SECOND * 2) as f64 / 2.0);
        at += ms(500);
    }
    least
}

/// One flow of `kind` over 50 Mbit/s, 10 ms and 62 kB, of which the delay changes.
fn over_delays(
    kind: Kind,
    schedule: &[(Duration, u64)],
    until: Duration,
    seed: u64,
) -> SceneOutcome {
    let place = Place::new((50, 10), 100);
    let change = |(at, extra): &(Duration, u64)| Change {
        at: *at,
        delay: Some(ms(*extra)),
        ..Change::default()
    };
    let link = LinkOptions { schedule: schedule.iter().map(change).collect(), ..place.link() };
    let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
    run(&Scene { from: SECOND * 20, ..Scene::new(link, flows, until, seed) })
}

/// Row 24.
pub(crate) fn round_trips(quick: bool) -> Row {
    let steps: &[(u64, u64)] =
        if quick { &[(10, 100), (500, 10)] } else { &[(10, 100), (10, 200), (10, 500), (500, 10)] };
    let mut cells: Vec<Cell> = steps.iter().map(|step| round_trip_step(*step)).collect();
    cells.push(low_orbit());
    Row {
        number: 24,
        title: "Round trips that change",
        about: "50 Mbit/s and a queue of 62 kB. After a step half of the rate is there within 10 \
                s or 20 round trips; and as soon as with a CUBIC; the rate never falls below half \
                a window of before in a round trip. Every 15 s between 30 and 60 ms: 0.99 of what \
                a CUBIC uses.",
        cells,
    }
}

fn round_trip_step((before, after): (u64, u64)) -> Cell {
    Cell::new(format!("{before} to {after} ms"), move |run: Run| {
        let schedule = [(Duration::ZERO, before - 10), (STEP, after - 10)];
        let until = SECOND * 90;
        let of = |kind| over_delays(kind, &schedule, until, run.seed);
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        let soon = |outcome: &SceneOutcome| time_to(&outcome.flows[0], STEP, mbit(50), 0.5, until);
        let window = mbit(50).bytes_in(ms(before)) as f64 * 1e3 / after as f64 / 2.0;
        let settled = STEP + ms(after) * 2;
        let least = |outcome: &SceneOutcome| {
            least_rate(&outcome.flows[0], settled, until) / mbit(50).bytes_per_second() as f64
        };
        let limit = (SECOND * 10).max(ms(after) * 20).as_secs_f64();
        let part = window / mbit(50).bytes_per_second() as f64;
        vec![
            Measure::at_most("half after", Unit::Seconds, soon(&ours), limit).beside(soon(&cubic)),
            Measure::at_most("and", Unit::Seconds, soon(&ours), soon(&cubic).max(1.0)),
            Measure::at_least("least", Unit::Percent, least(&ours), part.min(0.5))
                .beside(least(&cubic)),
        ]
    })
}

fn low_orbit() -> Cell {
    Cell::new("30 and 60 ms, each 15 s", move |run: Run| {
        let until = SECOND * 110;
        let schedule: Vec<_> =
            (0..8_u32).map(|n| (SECOND * 15 * n, 20 + 30 * u64::from(n % 2))).collect();
        let of = |kind| over_delays(kind, &schedule, until, run.seed);
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        vec![
            Measure::at_least("used", Unit::Percent, ours.used(), 0.99 * cubic.used())
                .beside(cubic.used()),
        ]
    })
}

/// Row 25.
pub(crate) fn capacities(_quick: bool) -> Row {
    Row {
        number: 25,
        title: "Rates that change",
        about: "40 ms and a queue of 250 kB. After a step, 80 % of the new rate is there within \
                10 s, and the loss is at most twice that of a CUBIC. Between 100 and 1 Mbit/s \
                each second: that loss alone.",
        cells: vec![capacity_step(20, 100), capacity_step(50, 10), swings()],
    }
}

fn over_rates(kind: Kind, schedule: &[(Duration, u64)], from: Duration, seed: u64) -> SceneOutcome {
    let place = Place::new((50, 40), 100);
    let change = |(at, rate): &(Duration, u64)| Change {
        at: *at,
        rate: Some(mbit(*rate)),
        ..Change::default()
    };
    let link = LinkOptions { schedule: schedule.iter().map(change).collect(), ..place.link() };
    let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
    run(&Scene { from, ..Scene::new(link, flows, SECOND * 90, seed) })
}

fn capacity_step(before: u64, after: u64) -> Cell {
    Cell::new(format!("{before} to {after} Mbit/s"), move |run: Run| {
        let schedule = [(Duration::ZERO, before), (STEP, after)];
        let of = |kind| over_rates(kind, &schedule, STEP, run.seed);
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        let soon = |outcome: &SceneOutcome| {
            time_to(&outcome.flows[0], STEP, mbit(after), 0.8, SECOND * 90)
        };
        let (loss, usual) = (ours.link.queue_loss(), cubic.link.queue_loss());
        vec![
            Measure::at_most("80 % after", Unit::Seconds, soon(&ours), 10.0).beside(soon(&cubic)),
            Measure::loss("loss", loss, floor(2.0 * usual)).beside(usual),
        ]
    })
}

fn swings() -> Cell {
    Cell::new("100 and 1 Mbit/s, each second", move |run: Run| {
        let schedule: Vec<_> =
            (0..90_u32).map(|n| (SECOND * n, if n % 2 == 0 { 100 } else { 1 })).collect();
        let of = |kind| over_rates(kind, &schedule, SECOND * 20, run.seed).link.queue_loss();
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        vec![Measure::loss("loss", ours, floor(2.0 * cubic)).beside(cubic)]
    })
}

/// What is wrong with a way back.
#[derive(Clone, Copy)]
enum Back {
    Lossy(u32),
    Full,
}

/// Row 26.
pub(crate) fn way_back(_quick: bool) -> Row {
    let place = Place::new(PATHS[1], 100);
    let cell = |name: &str, trouble: Back| {
        Cell::new(name, move |job: Run| {
            let of = |kind, trouble| {
                let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                let mut scene = crate::place::counted(place.link(), flows, job.seed);
                match trouble {
                    None => {}
                    Some(Back::Lossy(percent)) => {
                        scene.back.loss = netblt_path::rng::Probability::from_percent(percent);
                    }
                    Some(Back::Full) => {
                        scene.back = place.link();
                        let up = FlowOptions::new(Kind::CUBIC, place.rtt, Duration::ZERO);
                        scene.flows.push(FlowOptions { reverse: true, ..up });
                    }
                }
                run(&scene).share(0)
            };
            let ours = |trouble| of(Kind::Ours(job.policy), trouble);
            let (used, without) = (ours(Some(trouble)), ours(None));
            let cubic = of(Kind::CUBIC, Some(trouble));
            vec![
                Measure::at_least("used", Unit::Percent, used, 0.8 * without).beside(cubic),
                Measure::at_least("and", Unit::Percent, used, 0.99 * cubic),
            ]
        })
    };
    Row {
        number: 26,
        title: "Ways back",
        about: "50 Mbit/s and 40 ms. Where the way back is full of a CUBIC's data, or loses 1 or \
                20 %, at least 0.8 of what is used without that, and 0.99 of what a CUBIC uses \
                there.",
        cells: vec![
            cell("full", Back::Full),
            cell("1 % lost", Back::Lossy(1)),
            cell("20 % lost", Back::Lossy(20)),
        ],
    }
}

/// Row 28.
pub(crate) fn outages(quick: bool) -> Row {
    let times: &[u64] = if quick { &[10] } else { &[1, 10, 60] };
    let mut cells: Vec<Cell> = times.iter().map(|time| outage(*time, true)).collect();
    cells.push(outage(20, false));
    Row {
        number: 28,
        title: "Outages",
        about: "50 Mbit/s and 40 ms. From 4 s after the beginning of an outage on, at most 1.2 \
                packets a second leave; from its end on, something arrives within three round \
                trips and a second, and half of the rate is there after 10 s. Reference: a CUBIC, \
                whose timer doubles.",
        cells,
    }
}

fn outage(seconds: u64, there: bool) -> Cell {
    let name = if there { "both ways" } else { "the way back only" };
    Cell::new(format!("{seconds} s, {name}"), move |job: Run| {
        let place = Place::new(PATHS[1], 100);
        // Not at a time at which timers run out.
        let end = STEP + SECOND * seconds as u32 + ms(370);
        let until = end + SECOND * 40;
        let schedule = [(STEP, Outage::Drop), (end, Outage::None)].map(|(at, outage)| Change {
            at,
            outage: Some(outage),
            ..Change::default()
        });
        let of = |kind| {
            let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
            let mut scene = Scene::new(place.link(), flows, until, job.seed);
            scene.back.schedule = schedule.to_vec();
            if there {
                scene.there.schedule = schedule.to_vec();
            }
            let flow = run(&scene).flows.swap_remove(0);
            let first = first_after(&flow, end, until);
            let half = time_to(&flow, end, place.rate(), 0.5, until);
            (sent_between(&flow, STEP + SECOND * 4, end), first, half)
        };
        let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
        let most = 1.2 * seconds.saturating_sub(4) as f64;
        let soon = (place.rtt * 3 + SECOND + ms(100)).as_secs_f64();
        let time = |name, ours, cubic, most| {
            Measure::at_most(name, Unit::Seconds, ours, most).beside(cubic)
        };
        let mut measures = vec![
            time("first after", ours.1, cubic.1, soon),
            time("half after", ours.2, cubic.2, 10.0),
        ];
        if seconds > 4 {
            measures.push(Measure::at_most("sent", Unit::Ratio, ours.0, most).beside(cubic.0));
        }
        measures
    })
}

/// Packets sent between two times.
fn sent_between(flow: &FlowBooks, from: Duration, until: Duration) -> f64 {
    let tick = |at: Duration| (at.as_millis() / 100) as usize;
    flow.sent_ticks.iter().take(tick(until)).skip(tick(from)).sum::<u64>() as f64
}

/// How long after `at` something arrives, in seconds.
fn first_after(flow: &FlowBooks, at: Duration, until: Duration) -> f64 {
    let mut from = at;
    while from < until {
        if flow.bytes_between(from, from + ms(100)) > 0 {
            return (from - at).as_secs_f64();
        }
        from += ms(100);
    }
    f64::INFINITY
}

/// Row 29.
pub(crate) fn cold_starts(quick: bool) -> Row {
    let queues: &[u64] = if quick { &[25] } else { &[10, 25, 100, 400] };
    let cell = |queue: u64, others: usize| {
        let place = Place::new(PATHS[1], queue);
        let what = if others == 1 { "a CUBIC" } else { "8 of ours" };
        Cell::new(format!("{}, beside {what}", place.name()), move |job: Run| {
            let of = |kind| {
                let before = if others == 1 { Kind::CUBIC } else { kind };
                let flows = together([
                    place.flows(before, others, Duration::ZERO, SECOND),
                    place.flows(kind, 1, STEP, SECOND),
                ]);
                let scene = Scene::new(place.link(), flows, STEP + SECOND * 3, job.seed);
                run(&Scene { from: STEP, ..scene }).loss(0..others)
            };
            let (loss, usual) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
            vec![Measure::at_most("loss", Unit::Loss, loss, (2.0 * usual).max(0.005)).beside(usual)]
        })
    };
    Row {
        number: 29,
        title: "Cold starts",
        about: "One of ours begins beside a CUBIC, or beside 8 of ours: what these lose in the \
                first 3 s is at most twice what they lose when a CUBIC begins (or 0.5 %), in the \
                mean.",
        cells: queues.iter().flat_map(|queue| [1, 8].map(|others| cell(*queue, others))).collect(),
    }
}
