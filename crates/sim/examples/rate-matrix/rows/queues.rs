//! Rows of queue managers, marks and policers.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{CoDel, EarlyDrop, LinkOptions, MarkAbove, Policer, QueueLimit};
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind, run};

use super::neighbours::floor;
use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, SECOND, counted, ms, together};

/// What manages a queue.
#[derive(Clone, Copy)]
enum Manager {
    CoDel,
    Pie,
    Red,
    /// Marks above so many bytes.
    Above(u64),
}

impl Manager {
    fn name(self) -> String {
        match self {
            Self::CoDel => "CoDel".to_owned(),
            Self::Pie => "PIE".to_owned(),
            Self::Red => "RED".to_owned(),
            Self::Above(bytes) => format!("above {} kB", bytes / 1000),
        }
    }

    fn link(self, place: &Place, marks: bool) -> LinkOptions {
        let link = place.link();
        match self {
            Self::CoDel => LinkOptions { codel: Some(CoDel { target: ms(5), marks }), ..link },
            Self::Pie => {
                LinkOptions { early_drop: Some(EarlyDrop::Pie { target: ms(15), marks }), ..link }
            }
            Self::Red => {
                let at_most = Probability::from_percent(10);
                let (least, most) = (50_000, 150_000);
                LinkOptions {
                    early_drop: Some(EarlyDrop::Red { least, most, at_most, marks }),
                    ..link
                }
            }
            Self::Above(bytes) => LinkOptions { ecn_mark: Some(MarkAbove::Bytes(bytes)), ..link },
        }
    }
}

/// 50 Mbit/s and 40 ms, with room for what the manager lets in.
fn place() -> Place {
    Place::new(PATHS[1], 400)
}

const MANAGERS: [Manager; 3] = [Manager::CoDel, Manager::Pie, Manager::Red];

/// Row 18.
pub(crate) fn dropping(quick: bool) -> Row {
    let counts: &[usize] = if quick { &[2, 8] } else { &[1, 2, 8, 32] };
    let mut cells = Vec::new();
    for manager in MANAGERS {
        cells.extend(counts.iter().map(|count| own_kind(manager, *count)));
        cells.extend([(1, 1), (1, 4)].map(|mix| beside(manager, mix)));
    }
    Row {
        number: 18,
        title: "Queue managers that drop",
        about: "CoDel (5 ms), PIE (15 ms) and RED (50 to 150 kB, 10 %), at 50 Mbit/s and 40 ms. \
                Of our own kind: loss at most 1.5 times that of as many CUBICs, or 0.5 %; Jain's \
                index at least 0.95 up to 8, 0.9 for more. Beside CUBICs: 0.6 to 1.25 of the fair \
                share.",
        cells,
    }
}

fn own_kind(manager: Manager, count: usize) -> Cell {
    Cell::new(format!("{}, {count} of ours", manager.name()), move |run: Run| {
        let of = |kind| {
            let flows = place().flows(kind, count, Duration::ZERO, SECOND);
            place().run_over(manager.link(&place(), false), flows, run.seed)
        };
        let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        let usual = cubic.link.queue_loss();
        let least = if count <= 8 { 0.95 } else { 0.9 };
        vec![
            Measure::loss("loss", ours.link.queue_loss(), (1.5 * usual).max(0.005)).beside(usual),
            Measure::at_least("Jain", Unit::Ratio, ours.jain(0..count), least)
                .beside(cubic.jain(0..count)),
        ]
    })
}

fn beside(manager: Manager, (ours, theirs): (usize, usize)) -> Cell {
    Cell::new(format!("{}, {ours} : {theirs} CUBIC", manager.name()), move |run: Run| {
        let of = |kind| {
            let flows = together([
                place().flows(kind, ours, Duration::ZERO, SECOND),
                place().flows(Kind::CUBIC, theirs, SECOND / 2, SECOND),
            ]);
            let outcome = place().run_over(manager.link(&place(), false), flows, run.seed);
            let fair = outcome.used() * ours as f64 / (ours + theirs) as f64;
            outcome.shares(0..ours) / fair
        };
        let (share, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
        vec![
            Measure::at_most("of fair", Unit::Percent, share, 1.25).beside(cubic),
            Measure::at_least("and", Unit::Percent, share, 0.6),
        ]
    })
}

fn capable(flows: Vec<FlowOptions>) -> Vec<FlowOptions> {
    flows.into_iter().map(|flow| FlowOptions { ecn: true, ..flow }).collect()
}

/// Row 19.
pub(crate) fn marking(quick: bool) -> Row {
    let mut managers = MANAGERS.to_vec();
    managers.extend([30_000, 60_000, 250_000].map(Manager::Above));
    if quick {
        managers = vec![Manager::CoDel, Manager::Above(60_000)];
    }
    let cell = |manager: Manager| {
        Cell::new(manager.name(), move |run: Run| {
            let of = |kind| {
                let flows = capable(together([
                    place().flows(kind, 1, Duration::ZERO, SECOND),
                    place().flows(Kind::CUBIC, 1, SECOND / 2, SECOND),
                ]));
                let outcome = place().run_over(manager.link(&place(), true), flows, run.seed);
                let marked = outcome.link.marked as f64 / outcome.link.entered as f64;
                (marked, outcome.share(1))
            };
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![
                Measure::loss("marked", ours.0, floor(1.5 * cubic.0)).beside(cubic.0),
                Measure::at_least("CUBIC", Unit::Percent, ours.1, 0.4).beside(cubic.1),
            ]
        })
    };
    Row {
        number: 19,
        title: "Queues that mark",
        about: "One of ours and one CUBIC, both ECN-capable, behind the managers of row 18 and \
                behind queues that mark above a length: at most 1.5 times as many packets are \
                marked as of two CUBICs (or 0.1 %), and the CUBIC has at least 0.4 of the link.",
        cells: managers.into_iter().map(cell).collect(),
    }
}

/// Row 20.
pub(crate) fn marks_ignored(quick: bool) -> Row {
    let managers: Vec<Manager> = match quick {
        true => vec![Manager::Above(60_000)],
        false => [30_000, 60_000, 250_000].map(Manager::Above).into(),
    };
    let cell = |manager: Manager| {
        Cell::new(manager.name(), move |run: Run| {
            let of = |kind| {
                let flows = capable(together([
                    place().flows(kind, 1, Duration::ZERO, SECOND),
                    place().flows(Kind::Steady(place().rate().scaled(9, 10)), 1, SECOND, SECOND),
                ]));
                let outcome = place().run_over(manager.link(&place(), true), flows, run.seed);
                outcome.share(0)
            };
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![Measure::at_most("share", Unit::Percent, ours, 1.25 * cubic).beside(cubic)]
        })
    };
    Row {
        number: 20,
        title: "Marks beside a sender that ignores them",
        about: "A constant rate of 90 % of the link: what ours has is at most 1.25 times what an \
                ECN-capable CUBIC has there.",
        cells: managers.into_iter().map(cell).collect(),
    }
}

/// Row 23.
pub(crate) fn policers(quick: bool) -> Row {
    let buckets: &[u64] = if quick { &[125] } else { &[32, 125, 500, 2000] };
    let rates: &[u64] = if quick { &[50] } else { &[20, 50, 100] };
    let mut cells = Vec::new();
    for rate in rates {
        for bucket in buckets {
            cells.extend([policed(*rate, *bucket, false), policed(*rate, *bucket, true)]);
        }
    }
    Row {
        number: 23,
        title: "Policers",
        about: "A policer before a link of 1 Gbit/s, 40 ms. Two of ours: loss at most 1.5 times \
                that of two CUBICs, or 0.5 %, and at least 80 % of its rate is used. One of ours \
                and one CUBIC: the CUBIC has at least 0.35 of its rate.",
        cells,
    }
}

fn policed(mbit: u64, bucket_kb: u64, with_cubic: bool) -> Cell {
    let what = if with_cubic { "1 : 1 CUBIC" } else { "2 of ours" };
    Cell::new(format!("{mbit} Mbit/s, {bucket_kb} kB, {what}"), move |job: Run| {
        let rate = Rate::from_bits_per_second(mbit * 1_000_000);
        let link = LinkOptions {
            rate: Some(Rate::from_bits_per_second(1_000_000_000)),
            queue: QueueLimit::Bytes(5_000_000),
            policer: Some(Policer { rate, bucket_bytes: bucket_kb * 1000 }),
            ..LinkOptions::default()
        };
        let of = |kind| {
            let second = if with_cubic { Kind::CUBIC } else { kind };
            let flows = together([
                place().flows(kind, 1, Duration::ZERO, SECOND),
                place().flows(second, 1, SECOND, SECOND),
            ]);
            run(&counted(link.clone(), flows, job.seed))
        };
        let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
        let (loss, usual) = (ours.link.queue_loss(), cubic.link.queue_loss());
        let mut measures =
            vec![Measure::loss("loss", loss, (1.5 * usual).max(0.005)).beside(usual)];
        measures.push(match with_cubic {
            true => Measure::at_least("CUBIC", Unit::Percent, ours.share(1), 0.35)
                .beside(cubic.share(1)),
            false => {
                Measure::at_least("used", Unit::Percent, ours.used(), 0.8).beside(cubic.used())
            }
        });
        measures
    })
}
