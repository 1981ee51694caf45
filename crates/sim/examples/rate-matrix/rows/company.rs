//! Rows of one flow alone, and of many of our own.

use netblt_sim::bottleneck::{Kind, Outcome, Scene, run};
use std::time::Duration;

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{Place, SECOND, counted, ms};

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
            let queue = |outcome: &Outcome| outcome.link.mean_queue.as_secs_f64() * 1e3;
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
        about: "Used part of the link at least 97 % (93 % in a queue of 0.1 BDP), mean queue at most a \
                tenth of the round trip or 4 ms, and 1 ms of noise, own loss at most 0.1 %. Reference: \
                a CUBIC alone.",
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
        about: "Loss at most 1.5 times that of as many CUBICs, or 0.5 % if that is more; Jain's index at \
                least 0.95 up to 8 flows, 0.9 for more; 0.9 is reached within 10 s or 200 round trips \
                of the last start. Reference: as many CUBICs.",
        cells: cells
            .flat_map(|place| counts.iter().map(move |count| cell(place, *count)))
            .collect(),
    }
}

fn company_measures(place: &Place, count: usize, ours: &Outcome, cubic: &Outcome) -> Vec<Measure> {
    let (loss, reference) = (ours.link.queue_loss(), cubic.link.queue_loss());
    let jain = |outcome: &Outcome| outcome.jain(0..count);
    let least = if count <= 8 { 0.95 } else { 0.9 };
    // Never: longer than anything.
    let fair = |outcome: &Outcome| {
        outcome.time_to_fair(0.9).map_or(f64::INFINITY, |time| time.as_secs_f64())
    };
    let soon = (place.rtt * 200).max(SECOND * 10).as_secs_f64();
    vec![
        Measure::loss("loss", loss, (1.5 * reference).max(0.005)).beside(reference),
        Measure::at_least("Jain", Unit::Ratio, jain(ours), least).beside(jain(cubic)),
        Measure::at_most("fair after", Unit::Seconds, fair(ours), soon).beside(fair(cubic)),
    ]
}
