//! Rows of one flow alone, and of many of our own.

use netblt_sim::bottleneck::{Kind, Scene, SceneOutcome, run};
use std::time::Duration;

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, QUEUES, SECOND, counted, ms, together};

/// The queue that a flow alone may make: a tenth of a round trip, 4 ms at most, and the noise.
fn own_queue(place: &Place) -> Duration {
    (place.rtt / 10).min(ms(4)) + ms(1)
}

/// Row 1.
pub(crate) fn alone(quick: bool) -> Row {
    let cell = |place: Place| {
        Cell::new(place.name(), move |run: Run| {
            let of = |kind| place.run(place.flows(kind, 1, Duration::ZERO, SECOND), run.seed);
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            let queue = |outcome: &SceneOutcome| outcome.link.mean_queue.as_secs_f64() * 1e3;
            let most = own_queue(&place).as_secs_f64() * 1e3;
            let least = if place.queue <= 10 { 0.93 } else { 0.97 };
            vec![
                Measure::at_least("used", Unit::Percent, ours.used(), least).beside(cubic.used()),
                Measure::at_most("queue", Unit::Millis, queue(&ours), most).beside(queue(&cubic)),
                Measure::loss("loss", ours.link.queue_loss(), 0.001)
                    .beside(cubic.link.queue_loss()),
            ]
        })
    };
    Row {
        number: 1,
        title: "One flow alone",
        about: "Used part of the link at least 97 % (93 % in a queue of 0.1 BDP), mean queue at \
                most a tenth of the round trip or 4 ms, and 1 ms of noise, own loss at most 0.1 \
                %. Reference: a CUBIC alone.",
        cells: Place::grid(quick).into_iter().map(cell).collect(),
    }
}

/// Long enough for 200 round trips after the last start.
fn long_enough(scene: Scene, place: &Place) -> Scene {
    let last = scene.from - SECOND * 20;
    Scene { until: scene.until.max(last + place.rtt * 220), ..scene }
}

/// Row 2.
pub(crate) fn own_kind(quick: bool) -> Row {
    let counts: &[usize] = if quick { &[2, 8, 32] } else { &[2, 4, 8, 16, 32, 64] };
    let cell = |place: Place, count: usize| {
        Cell::new(format!("{}, {count} flows", place.name()), move |job: Run| {
            let of = |kind| {
                let flows = place.flows(kind, count, Duration::ZERO, SECOND);
                run(&long_enough(counted(place.link(), flows, job.seed), &place))
            };
            let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
            company_measures(&place, count, &ours, &cubic)
        })
    };
    let cells = Place::grid(quick).into_iter();
    Row {
        number: 2,
        title: "Many of our own, a second apart",
        about: "Loss at most 1.5 times that of as many CUBICs, or 0.5 % if that is more; Jain's \
                index at least 0.95 up to 8 flows, 0.9 for more; 0.9 is reached within 10 s or \
                200 round trips of the last start. Reference: as many CUBICs.",
        cells: cells
            .flat_map(|place| counts.iter().map(move |count| cell(place, *count)))
            .collect(),
    }
}

fn company_measures(
    place: &Place,
    count: usize,
    ours: &SceneOutcome,
    cubic: &SceneOutcome,
) -> Vec<Measure> {
    let (loss, reference) = (ours.link.queue_loss(), cubic.link.queue_loss());
    let jain = |outcome: &SceneOutcome| outcome.jain(0..count);
    let least = if count <= 8 { 0.95 } else { 0.9 };
    // Never: longer than anything.
    let fair = |outcome: &SceneOutcome| {
        outcome.time_to_fair(0.9).map_or(f64::INFINITY, |time| time.as_secs_f64())
    };
    let soon = (place.rtt * 200).max(SECOND * 10).as_secs_f64();
    vec![
        Measure::loss("loss", loss, (1.5 * reference).max(0.005)).beside(reference),
        Measure::at_least("Jain", Unit::Ratio, jain(ours), least).beside(jain(cubic)),
        Measure::at_most("fair after", Unit::Seconds, fair(ours), soon).beside(fair(cubic)),
    ]
}

/// Row 3.
pub(crate) fn tiny_windows(quick: bool) -> Row {
    let queues: &[u64] = if quick { &[25] } else { &QUEUES };
    let cell = |queue: &u64| {
        let place = Place::new(PATHS[1], *queue);
        Cell::new(place.name(), move |run: Run| {
            let of = |kind| {
                let flows = place.flows(kind, 128, Duration::ZERO, SECOND / 4);
                place.run(flows, run.seed).link.queue_loss()
            };
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![Measure::loss("loss", ours, 0.6 * cubic).beside(cubic)]
        })
    };
    Row {
        number: 3,
        title: "More flows than packets",
        about: "128 of ours at 50 Mbit/s and 40 ms: loss at most 0.6 times that of as many \
                CUBICs, whose windows are never below one packet.",
        cells: queues.iter().map(cell).collect(),
    }
}

/// Row 4: the flows that come or go at one time, and how.
pub(crate) fn at_once(quick: bool) -> Row {
    let places: Vec<Place> = match quick {
        true => vec![Place::new(PATHS[1], 25)],
        false => QUEUES[..3].iter().map(|queue| Place::new(PATHS[1], *queue)).collect(),
    };
    let mut cells = Vec::new();
    for place in places {
        cells.extend([8, 32].map(|count| all_at_once(place, count)));
        cells.extend([true, false].map(|first| half_leave(place, first)));
    }
    Row {
        number: 4,
        title: "All at once, and half of them leave",
        about: "Of 8 and 32 that begin within 10 ms, loss and Jain's index as in row 2. Of 8 the \
                four that came first, or last, leave: of the ten seconds from 3 s later on, at \
                least 90 % is used. Reference: as many CUBICs.",
        cells,
    }
}

fn all_at_once(place: Place, count: usize) -> Cell {
    Cell::new(format!("{}, {count} at once", place.name()), move |run: Run| {
        let of = |kind| place.run(place.flows(kind, count, Duration::ZERO, ms(1)), run.seed);
        let mut measures =
            company_measures(&place, count, &of(Kind::Ours(run.policy)), &of(Kind::CUBIC));
        measures.truncate(2);
        measures
    })
}

fn half_leave(place: Place, first: bool) -> Cell {
    let which = if first { "first" } else { "last" };
    Cell::new(format!("{}, the {which} 4 of 8 leave", place.name()), move |job: Run| {
        let leave = SECOND * 40;
        let of = |kind| {
            let mut flows = place.flows(kind, 8, Duration::ZERO, SECOND);
            let leaving = if first { 0..4 } else { 4..8 };
            flows[leaving].iter_mut().for_each(|flow| flow.stop = Some(leave));
            let from = leave + SECOND * 3;
            let scene = Scene::new(place.link(), flows, from + SECOND * 10, job.seed);
            run(&Scene { from, ..scene }).used()
        };
        let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
        vec![Measure::at_least("used", Unit::Percent, ours, 0.9).beside(cubic)]
    })
}

/// Row 5.
pub(crate) fn latecomer(quick: bool) -> Row {
    let places: Vec<Place> = match quick {
        true => vec![Place::new(PATHS[1], 100)],
        false => [25, 100, 400].map(|queue| Place::new(PATHS[1], queue)).into(),
    };
    let counts: &[usize] = if quick { &[4] } else { &[1, 4, 8] };
    let mut cells = Vec::new();
    for place in places {
        for kind in [Before::Ours, Before::Cubic, Before::Bbr] {
            cells.extend(counts.iter().map(|count| late(place, kind, *count)));
        }
        cells.push(late(place, Before::Steady, 1));
    }
    Row {
        number: 5,
        title: "A latecomer",
        about: "One of ours begins after 30 s where others have filled the queue: what it has is \
                0.8 to 1.25 times what a CUBIC has that comes as late, or 1 % of the link more or \
                less, and it is never in a phase `excused`. \"105 %\"is a sender of a constant \
                rate, a twentieth more than the link carries. Reference: a CUBIC that comes late, \
                and CUBICs for those of ours that were there.",
        cells,
    }
}

#[derive(Clone, Copy)]
enum Before {
    Ours,
    Cubic,
    Bbr,
    Steady,
}

fn late(place: Place, before: Before, count: usize) -> Cell {
    let name = match before {
        Before::Ours => "ours",
        Before::Cubic => "CUBIC",
        Before::Bbr => "BBRv1",
        Before::Steady => "at 105 %",
    };
    Cell::new(format!("{}, after {count} {name}", place.name()), move |run: Run| {
        let of = |kind| {
            let first = match before {
                Before::Ours => kind,
                Before::Cubic => Kind::CUBIC,
                Before::Bbr => Kind::BBR,
                Before::Steady => Kind::Steady(place.rate().scaled(105, 100)),
            };
            let flows = together([
                place.flows(first, count, Duration::ZERO, SECOND),
                place.flows(kind, 1, SECOND * 30, SECOND),
            ]);
            place.run(flows, run.seed)
        };
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        let share = cubic.share(count);
        vec![
            Measure::at_most("share", Unit::Loss, ours.share(count), 1.25 * share + 0.01)
                .beside(share),
            Measure::at_least("and", Unit::Loss, ours.share(count), (0.8 * share - 0.01).max(0.0)),
            Measure::loss("excused", ours.flows[count].time_in(is_excused), 0.0),
        ]
    })
}

/// Whether losses are no congestion to a law in a phase of this name.
pub(crate) fn is_excused(phase: &str) -> bool {
    phase.contains("excused")
}
