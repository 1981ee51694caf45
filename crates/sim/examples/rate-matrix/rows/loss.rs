//! Rows of losses that are no congestion.

use std::time::Duration;

use netblt_path::LinkOptions;
use netblt_path::rng::Probability;
use netblt_sim::bottleneck::{Kind, Scene, SceneOutcome, run};

use super::company::is_excused;
use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, SECOND, counted, together};

/// A share of losses in thousandths.
fn chance(thousandths: u32) -> Probability {
    Probability::from_ppm(thousandths * 1000)
}

fn lossy(place: &Place, thousandths: u32) -> LinkOptions {
    LinkOptions { loss: chance(thousandths), ..place.link() }
}

/// What was used of what chance left.
fn of_the_rest(outcome: &SceneOutcome, thousandths: u32) -> f64 {
    outcome.used() / (1.0 - f64::from(thousandths) / 1000.0)
}

/// Row 14: shares of loss in thousandths, and the least use of the rest.
const RANDOM: [(u32, f64); 5] = [(1, 0.95), (10, 0.93), (50, 0.92), (100, 0.9), (300, 0.75)];

/// Row 14.
pub(crate) fn random(quick: bool) -> Row {
    let cell = |place: Place, (loss, least): (u32, f64), back: bool| {
        let both = if back { ", both ways" } else { "" };
        let name = format!("{}, {} % lost{both}", place.name(), f64::from(loss) / 10.0);
        Cell::new(name, move |job: Run| {
            let of = |kind| {
                let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                let mut scene = counted(lossy(&place, loss), flows, job.seed);
                if back {
                    scene.back.loss = chance(loss);
                }
                run(&scene)
            };
            let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
            let used = of_the_rest(&ours, loss);
            vec![
                Measure::at_least("used", Unit::Percent, used, least)
                    .beside(of_the_rest(&cubic, loss)),
                Measure::loss("added loss", ours.link.queue_loss(), 0.005)
                    .beside(cubic.link.queue_loss()),
            ]
        })
    };
    let paths = if quick { &PATHS[1..2] } else { &PATHS[..] };
    let mut cells = Vec::new();
    for path in paths {
        let place = Place::new(*path, 25);
        for loss in RANDOM {
            cells.push(cell(place, loss, false));
            if !quick {
                cells.push(cell(place, loss, true));
            }
        }
    }
    Row {
        number: 14,
        title: "Random loss, alone",
        about: "Used part of what chance leaves of the link, at 0.1, 1, 5, 10 and 30 % of loss at \
                least 95, 93, 92, 90 and 75 %; at most 0.5 % is lost to the queue besides. \"Both \
                ways\": reports are lost as often. Reference: a CUBIC alone.",
        cells,
    }
}

/// Row 15.
pub(crate) fn runs(quick: bool) -> Row {
    let cell = |place: Place, loss: u32, run_length: u32| {
        let name =
            format!("{}, {} % in runs of {run_length}", place.name(), f64::from(loss) / 10.0);
        let least = if run_length <= 4 { 0.8 } else { 0.6 };
        Cell::new(name, move |run: Run| {
            let link = LinkOptions { loss_burst: Some(run_length), ..lossy(&place, loss) };
            let of = |kind| {
                let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                of_the_rest(&place.run_over(link.clone(), flows, run.seed), loss)
            };
            let (ours, bbr) = (of(Kind::Ours(run.policy)), of(Kind::BBR));
            vec![Measure::at_least("used", Unit::Percent, ours, least).beside(bbr)]
        })
    };
    let paths = if quick { &PATHS[1..2] } else { &PATHS[..] };
    let mut cells = Vec::new();
    for path in paths {
        for loss in [10, 50, 100] {
            cells.extend([4, 10].map(|length| cell(Place::new(*path, 25), loss, length)));
        }
    }
    Row {
        number: 15,
        title: "Losses in runs, alone",
        about: "Used part of what chance leaves: at least 80 % where losses come in runs of 4 \
                packets in the mean, 60 % in runs of 10. Reference: a BBRv1 alone.",
        cells,
    }
}

/// Row 17.
pub(crate) fn looks_random(quick: bool) -> Row {
    let place = Place::new(PATHS[1], 25);
    let cell = |name: &'static str, others: usize, kind: Kind| {
        Cell::new(format!("{}, beside {name}", place.name()), move |job: Run| {
            let flows = together([
                place.flows(kind, others, Duration::ZERO, SECOND / 4),
                place.flows(Kind::Ours(job.policy), 1, SECOND * 10, SECOND),
            ]);
            let until = SECOND * if quick { 70 } else { 610 };
            let scene = Scene::new(place.link(), flows, until, job.seed);
            let outcome = run(&Scene { from: SECOND * 10, ..scene });
            let excused = outcome.flows[others].time_in(is_excused);
            vec![Measure::loss("excused", excused, 0.01)]
        })
    };
    let steady = Kind::Steady(place.rate().scaled(105, 100));
    let mut cells = vec![cell("a constant rate of 105 %", 1, steady)];
    cells.push(cell("16 BBRv1", 16, Kind::BBR));
    if !quick {
        cells.push(cell("32 BBRv1", 32, Kind::BBR));
    }
    Row {
        number: 17,
        title: "Congestion that looks like chance",
        about: "One of ours for ten minutes beside senders that do not answer losses: at most 1 % \
                of the time it is in a phase `excused`, in which losses count as chance. No \
                reference.",
        cells,
    }
}

/// Row 16.
pub(crate) fn random_with_company(quick: bool) -> Row {
    let counts: &[usize] = if quick { &[2, 8] } else { &[2, 4, 8] };
    let places: Vec<Place> = match quick {
        true => vec![Place::new(PATHS[1], 25)],
        false => [10, 25, 100].map(|queue| Place::new(PATHS[1], queue)).into(),
    };
    let mut cells = Vec::new();
    for place in places {
        for loss in [10, 50] {
            cells.extend(counts.iter().map(|count| lossy_company(place, *count, loss)));
            cells.push(lossy_neighbour(place, loss));
        }
    }
    Row {
        number: 16,
        title: "Random loss with company",
        about: "Of 2, 4 and 8 of ours at 1 and 5 % of random loss: at most 1 % lost to the queue \
                besides; Jain's index at least 0.8 at 1 %, 0.3 at 5 %. Of one of ours and one \
                CUBIC: the CUBIC has at least 0.85 of what it has alone at that loss. Reference: \
                as many CUBICs; the CUBIC alone.",
        cells,
    }
}

fn lossy_company(place: Place, count: usize, loss: u32) -> Cell {
    let least = if loss <= 10 { 0.8 } else { 0.3 };
    let name = format!("{}, {} % lost, {count} of ours", place.name(), f64::from(loss) / 10.0);
    Cell::new(name, move |run: Run| {
        let of = |kind| {
            let flows = place.flows(kind, count, Duration::ZERO, SECOND);
            place.run_over(lossy(&place, loss), flows, run.seed)
        };
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        vec![
            Measure::loss("added loss", ours.link.queue_loss(), 0.01)
                .beside(cubic.link.queue_loss()),
            Measure::at_least("Jain", Unit::Ratio, ours.jain(0..count), least)
                .beside(cubic.jain(0..count)),
        ]
    })
}

fn lossy_neighbour(place: Place, loss: u32) -> Cell {
    let name = format!("{}, {} % lost, 1 : 1 CUBIC", place.name(), f64::from(loss) / 10.0);
    Cell::new(name, move |job: Run| {
        let cubic = place.flows(Kind::CUBIC, 1, Duration::ZERO, SECOND);
        let ours = place.flows(Kind::Ours(job.policy), 1, SECOND, SECOND);
        let beside = place.run_over(lossy(&place, loss), together([cubic.clone(), ours]), job.seed);
        // The same time counts.
        let scene = counted(lossy(&place, loss), cubic, job.seed);
        let (from, until) = (scene.from + SECOND, scene.until + SECOND);
        let alone = run(&Scene { from, until, ..scene });
        vec![
            Measure::loss("added loss", beside.link.queue_loss(), 0.01),
            Measure::at_least("CUBIC", Unit::Percent, beside.share(0), 0.85 * alone.share(0))
                .beside(alone.share(0)),
        ]
    })
}
