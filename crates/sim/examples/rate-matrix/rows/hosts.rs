//! Rows of jitter, of reordering, and of hosts that stand still.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::scenario;
use netblt_path::{Displacement, LinkOptions, QueueLimit};
use netblt_sim::bottleneck::{FlowOptions, Kind, Scene, SceneOutcome, run};

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, SECOND, counted, ms};

/// Row 27.
pub(crate) fn jitter(quick: bool) -> Row {
    let place = Place::new(PATHS[1], 100);
    let wander = |millis: u64| {
        Cell::new(format!("{}, {millis} ms of wander", place.name()), move |run: Run| {
            let link = LinkOptions { jitter: ms(millis), ..place.link() };
            let of = |kind| {
                let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                place.run_over(link.clone(), flows, run.seed)
            };
            beside_bbr(&of(Kind::Ours(run.policy)), &of(Kind::BBR), 0.0)
        })
    };
    let mut cells = vec![wander(40), wander(80)];
    let names: &[&'static str] = if quick { &["lossy-wifi"] } else { &["lossy-wifi", "lte"] };
    cells.extend(names.iter().map(|name| named(name)));
    Row {
        number: 27,
        title: "Jitter",
        about: "A delay that wanders by 40 and 80 ms, and the networks `lossy-wifi` and `lte` \
                (upwards): at least 0.9 of what a BBRv1 uses, and at most 1 % lost to the queue.",
        cells,
    }
}

fn beside_bbr(ours: &SceneOutcome, bbr: &SceneOutcome, lost: f64) -> Vec<Measure> {
    let used = |outcome: &SceneOutcome| outcome.used() / (1.0 - lost);
    vec![
        Measure::at_least("used", Unit::Percent, used(ours), 0.9 * used(bbr)).beside(used(bbr)),
        Measure::loss("loss", ours.link.queue_loss(), 0.01).beside(bbr.link.queue_loss()),
    ]
}

/// A shipped network; its delay and what else it does is the path's own.
fn named(name: &'static str) -> Cell {
    Cell::new(format!("`{name}`"), move |job: Run| {
        let Ok(network) = scenario::named(name) else { return Vec::new() };
        let lost = f64::from(network.up.loss.ppb()) / 1e9;
        // Packets of 1,400 bytes pass everywhere. The path has the round trip, and laws know it.
        let of = |kind| {
            let there = LinkOptions {
                delay: Duration::ZERO,
                duplicate: Probability::NEVER,
                ..network.up.clone()
            };
            let flow = FlowOptions {
                packet_bytes: 1400,
                ..FlowOptions::new(kind, network.rtt(), Duration::ZERO)
            };
            let mut scene = counted(there, vec![flow], job.seed);
            scene.back = LinkOptions {
                delay: Duration::ZERO,
                duplicate: Probability::NEVER,
                ..network.down.clone()
            };
            run(&scene)
        };
        beside_bbr(&of(Kind::Ours(job.policy)), &of(Kind::BBR), lost)
    })
}

/// Row 31.
pub(crate) fn stands_still(quick: bool) -> Row {
    let queues: &[u64] = if quick { &[100] } else { &[25, 100] };
    let cell = |queue: &u64| {
        let place = Place::new(PATHS[1], *queue);
        Cell::new(place.name(), move |run: Run| {
            let of = |kind, stands: bool| {
                let mut flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                flows[0].stands_still = stands.then_some((ms(20), ms(50)));
                place.run(flows, run.seed)
            };
            let ours = of(Kind::Ours(run.policy), true);
            let (steady, cubic) = (of(Kind::Ours(run.policy), false), of(Kind::CUBIC, true));
            // It sends in three fifths of the time.
            vec![
                Measure::at_least("used", Unit::Percent, ours.used(), 0.5 * steady.used())
                    .beside(cubic.used()),
                Measure::loss("excused", ours.flows[0].time_in(super::company::is_excused), 0.0),
            ]
        })
    };
    Row {
        number: 31,
        title: "A host that stands still",
        about: "The sender's host stands still for 20 of every 50 ms, at 50 Mbit/s and 40 ms: at \
                least half of what is used without that, and no phase `excused`. Reference: a \
                CUBIC on such a host.",
        cells: queues.iter().map(cell).collect(),
    }
}

/// Row 32.
pub(crate) fn reordering(quick: bool) -> Row {
    let queues: &[u64] = if quick { &[100] } else { &[25, 100] };
    let cell = |queue: &u64| {
        let place = Place::new(PATHS[1], *queue);
        Cell::new(place.name(), move |job: Run| {
            let link = LinkOptions {
                reorder: Probability::from_percent(30),
                reorder_by: Displacement::Time(ms(40)),
                queue: QueueLimit::Bytes(place.queue_bytes()),
                ..place.link()
            };
            let of = |kind| {
                let flows = place.flows(kind, 1, Duration::ZERO, SECOND);
                let scene = counted(link.clone(), flows, job.seed);
                run(&Scene { ..scene }).used()
            };
            let (ours, bbr) = (of(Kind::Ours(job.policy)), of(Kind::BBR));
            vec![Measure::at_least("used", Unit::Percent, ours, 0.9).beside(bbr)]
        })
    };
    Row {
        number: 32,
        title: "Reordering",
        about: "Of 30 % of the packets each comes 40 ms later, at 50 Mbit/s and 40 ms: at least \
                90 % is used. Reference: a BBRv1.",
        cells: queues.iter().map(cell).collect(),
    }
}
