//! Rows of our flows beside others.

use netblt_sim::bottleneck::{Kind, Outcome};

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{Place, SECOND, together};

/// Row 6.
pub(crate) fn beside_cubic(quick: bool) -> Row {
    let mixes: &[(usize, usize)] =
        if quick { &[(1, 1), (1, 4)] } else { &[(1, 1), (1, 4), (4, 1), (4, 4)] };
    let cell = |place: Place, (ours, theirs): (usize, usize), first: bool| {
        let order = if first { "ours first" } else { "CUBIC first" };
        Cell::new(format!("{}, {ours} : {theirs}, {order}", place.name()), move |run: Run| {
            let of = |kind| {
                let (a, b) = if first { (0, 10) } else { (10, 0) };
                let flows = together([
                    place.flows(kind, ours, SECOND * a, SECOND),
                    place.flows(Kind::CUBIC, theirs, SECOND * b, SECOND),
                ]);
                place.run(flows, run.seed)
            };
            let (mine, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            let least = if place.queue >= 400 { 0.5 } else { 0.6 };
            let of_fair = |outcome: &Outcome| {
                let fair = outcome.used() * ours as f64 / (ours + theirs) as f64;
                outcome.shares(0..ours) / fair
            };
            let loss = |outcome: &Outcome| outcome.loss(ours..ours + theirs);
            let share = of_fair(&mine);
            vec![
                Measure::at_most("of fair", Unit::Percent, share, 1.25).beside(of_fair(&cubic)),
                Measure::at_least("and", Unit::Percent, share, least),
                Measure::loss("their loss", loss(&mine), floor(1.5 * loss(&cubic)))
                    .beside(loss(&cubic)),
            ]
        })
    };
    let mut cells = Vec::new();
    for place in Place::grid(quick) {
        for mix in mixes {
            cells.extend([true, false].map(|first| cell(place, *mix, first)));
        }
    }
    Row {
        number: 6,
        title: "Beside CUBIC",
        about: "What ours have is at most 1.25 times the fair share and at least 0.6 of it (0.5 in 4 BDP); \
                the CUBICs' loss is at most 1.5 times what it is beside CUBICs in our place (or 0.1 %, which \
                is a few packets). The second kind begins 10 s after the first. Reference: CUBICs in our \
                place.",
        cells,
    }
}

/// A few packets more or less are chance.
fn floor(bound: f64) -> f64 {
    bound.max(0.001)
}
