//! Rows of our flows beside others.

use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_proto::config::Policy;
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind, Scene, SceneOutcome, Supply, TcpLaw, run};

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::{PATHS, Place, SECOND, ms, together};

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
            let of_fair = |outcome: &SceneOutcome| {
                let fair = outcome.used() * ours as f64 / (ours + theirs) as f64;
                outcome.shares(0..ours) / fair
            };
            let loss = |outcome: &SceneOutcome| outcome.loss(ours..ours + theirs);
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
        about: "What ours have is at most 1.25 times the fair share and at least 0.6 of it (0.5 \
                in 4 BDP); the CUBICs' loss is at most 1.5 times what it is beside CUBICs in our \
                place (or 0.1 %, which is a few packets). The second kind begins 10 s after the \
                first. Reference: CUBICs in our place.",
        cells,
    }
}

/// A few neighbours' places: some paths with two queues.
fn places(quick: bool) -> Vec<Place> {
    let (paths, queues): (&[usize], &[u64]) =
        if quick { (&[1], &[25]) } else { (&[0, 1, 3], &[25, 100, 400]) };
    let of = |path: &usize| {
        let path = PATHS[*path];
        queues.iter().map(move |queue| Place::new(path, *queue))
    };
    paths.iter().flat_map(of).collect()
}

/// Row 7.
pub(crate) fn beside_reno(quick: bool) -> Row {
    let cell = |place: Place, (ours, theirs): (usize, usize)| {
        Cell::new(format!("{}, {ours} : {theirs}", place.name()), move |run: Run| {
            let of = |kind| {
                let flows = together([
                    place.flows(kind, ours, Duration::ZERO, SECOND),
                    place.flows(Kind::RENO, theirs, SECOND / 2, SECOND),
                ]);
                place.run(flows, run.seed).shares(ours..ours + theirs)
            };
            let (left, reference) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![Measure::at_least("Reno", Unit::Percent, left, 0.8 * reference).beside(reference)]
        })
    };
    let mixes: &[(usize, usize)] = if quick { &[(1, 1)] } else { &[(1, 1), (4, 4)] };
    Row {
        number: 7,
        title: "Beside Reno",
        about: "The Renos have at least 0.8 of what they have beside as many CUBICs.",
        cells: product(&places(quick), mixes, cell),
    }
}

/// Row 8.
pub(crate) fn beside_bbr(quick: bool) -> Row {
    let cell = |place: Place, (ours, theirs): (usize, usize)| {
        Cell::new(format!("{}, {ours} : {theirs}", place.name()), move |run: Run| {
            let of = |kind| {
                let flows = together([
                    place.flows(kind, ours, Duration::ZERO, SECOND),
                    place.flows(Kind::BBR, theirs, SECOND / 2, SECOND),
                ]);
                place.run(flows, run.seed)
            };
            let (mine, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            let (share, reference) = (mine.shares(0..ours), cubic.shares(0..ours));
            let (loss, usual) = (mine.link.queue_loss(), cubic.link.queue_loss());
            vec![
                Measure::at_least("share", Unit::Loss, share, (0.8 * reference - 0.01).max(0.0))
                    .beside(reference),
                Measure::loss("all loss", loss, floor(1.1 * usual)).beside(usual),
            ]
        })
    };
    Row {
        number: 8,
        title: "Beside BBRv1",
        about: "Ours have at least 0.8 of what as many CUBICs have there, or 1 % of the link \
                less, and all that is lost is at most 1.1 times what it is then. BBRv3 is not in \
                this world.",
        cells: product(&places(quick), &[(1, 1), (1, 4)], cell),
    }
}

/// Row 9.
pub(crate) fn round_trips(quick: bool) -> Row {
    let cell = |(short, long): (u64, u64), each: usize, ours_long: Option<bool>| {
        let what = match ours_long {
            None => format!("{} of ours", 2 * each),
            Some(_) => "ours long, CUBIC short".to_owned(),
        };
        Cell::new(format!("{short} and {long} ms, {what}"), move |run: Run| {
            // The queue is a product of the geometric mean of both.
            let place = Place::new((50, 40), 100);
            let of = |kind| {
                let near = if ours_long.is_some() { Kind::CUBIC } else { kind };
                let with = |kind, rtt, start| {
                    Place { rtt: ms(rtt), ..place }.flows(kind, each, start, SECOND)
                };
                let flows =
                    together([with(near, short, Duration::ZERO), with(kind, long, SECOND / 2)]);
                let outcome = place.run(flows, run.seed);
                outcome.shares(0..each) / outcome.shares(each..2 * each).max(1e-6)
            };
            let (ratio, reference) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![
                Measure::at_most("short : long", Unit::Ratio, ratio, (1.25 * reference).min(8.0))
                    .beside(reference),
            ]
        })
    };
    let pairs: &[(u64, u64)] = if quick { &[(20, 160)] } else { &[(20, 160), (10, 80)] };
    let mut cells = Vec::new();
    for pair in pairs {
        cells.extend([cell(*pair, 1, None), cell(*pair, 2, None), cell(*pair, 1, Some(true))]);
    }
    Row {
        number: 9,
        title: "Round trips of 1 : 8",
        about: "What the near ones have of what the far ones have, at 50 Mbit/s: at most 8, and \
                at most 1.25 times what it is of CUBICs.",
        cells,
    }
}

/// Row 10.
pub(crate) fn packet_sizes(quick: bool) -> Row {
    let cell = |place: Place| {
        Cell::new(place.name(), move |run: Run| {
            let of = |kind| {
                let mut flows = place.flows(kind, 4, Duration::ZERO, SECOND);
                flows.iter_mut().step_by(2).for_each(|flow| flow.packet_bytes = 300);
                let outcome = place.run(flows, run.seed);
                outcome.shares([1, 3]) / outcome.shares([0, 2]).max(1e-6)
            };
            let (ratio, reference) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![
                Measure::at_most("large : small", Unit::Ratio, ratio, 1.25 * reference)
                    .beside(reference),
            ]
        })
    };
    Row {
        number: 10,
        title: "Packets of 300 and 1,500 bytes",
        about: "Of two of each: what those with large packets have of what those with small ones \
                have is at most 1.25 times what it is of CUBICs.",
        cells: places(quick).into_iter().map(cell).collect(),
    }
}

/// Web objects by CUBIC, of 10 to 100 kB, that fill so much of the link, from 20 to 80 s.
fn web(place: &Place, share: f64, seed: u64) -> Vec<FlowOptions> {
    let (least, most) = (10_000, 100_000);
    let mut rng = Rng::named(seed, "web");
    let mean = (least + most) / 2;
    let gap = place.rate().time_for(mean).as_nanos() as f64 / share;
    let (mut at, mut flows) = (SECOND * 20, Vec::new());
    loop {
        at += Duration::from_nanos(rng.exponential(gap as u64));
        if at >= SECOND * 80 {
            return flows;
        }
        let kind = Kind::Tcp(TcpLaw::Cubic, Supply::Once(rng.range(least..=most)));
        flows.push(FlowOptions::new(kind, place.rtt, at));
    }
}

/// Row 11.
pub(crate) fn beside_web(quick: bool) -> Row {
    let cell = |place: Place| {
        Cell::new(place.name(), move |job: Run| {
            let of = |kind| {
                let long = place.flows(kind, 1, Duration::ZERO, SECOND);
                let flows = together([long, web(&place, 0.3, job.seed)]);
                let scene = Scene::new(place.link(), flows, SECOND * 90, job.seed);
                let outcome = run(&Scene { from: SECOND * 20, ..scene });
                // What was not over by then took this long at least.
                let took = outcome.flows[1..].iter();
                let took: Vec<Duration> =
                    took.map(|flow| flow.pieces.first().copied().unwrap_or(SECOND * 60)).collect();
                (quantile(&took, 0.5), quantile(&took, 0.95), outcome.share(0))
            };
            let (ours, cubic) = (of(Kind::Ours(job.policy)), of(Kind::CUBIC));
            let time = |name, ours, cubic: f64| {
                Measure::at_most(name, Unit::Millis, 1e3 * ours, 1250.0 * cubic).beside(1e3 * cubic)
            };
            vec![
                time("median", ours.0, cubic.0),
                time("95 %", ours.1, cubic.1),
                Measure::at_least("own share", Unit::Percent, ours.2, 0.9 * cubic.2)
                    .beside(cubic.2),
            ]
        })
    };
    Row {
        number: 11,
        title: "Beside the web",
        about: "Objects of 10 to 100 kB, each a new connection by CUBIC, with 30 % of the link: \
                the median and the 95 % quantile of their times are at most 1.25 times those \
                beside a CUBIC; ours has at least 0.9 of what the CUBIC has. Reference: a CUBIC \
                in our place.",
        cells: places(quick).into_iter().map(cell).collect(),
    }
}

/// In seconds.
fn quantile(times: &[Duration], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    let place = (times.len() as f64 * part) as usize;
    times.get(place.min(times.len().saturating_sub(1))).map_or(f64::NAN, Duration::as_secs_f64)
}

/// Row 12.
pub(crate) fn beside_video(quick: bool) -> Row {
    let cell = |place: Place| {
        Cell::new(place.name(), move |job: Run| {
            let of = |kind: Option<Kind>| {
                let video = Kind::Tcp(TcpLaw::Cubic, Supply::Pieces(8_000_000, SECOND * 4));
                let ours = kind.map(|kind| place.flows(kind, 1, Duration::ZERO, SECOND));
                let flows =
                    together([place.flows(video, 1, SECOND * 5, SECOND), ours.unwrap_or_default()]);
                let scene = Scene::new(place.link(), flows, SECOND * 125, job.seed);
                let outcome = run(&Scene { from: SECOND * 5, ..scene });
                let pieces = &outcome.flows[0].pieces;
                // None at all: as long as it was looked at.
                let all: Duration = pieces.iter().sum();
                let all = if pieces.is_empty() { SECOND * 120 } else { all };
                all.as_secs_f64() / pieces.len().max(1) as f64
            };
            let (ours, alone) = (of(Some(Kind::Ours(job.policy))), of(None));
            let cubic = of(Some(Kind::CUBIC));
            let most = match job.policy {
                Policy::Background { .. } => 1.15 * alone,
                _ => 1.2 * cubic,
            };
            vec![Measure::at_most("a piece", Unit::Seconds, ours, most).beside(cubic)]
        })
    };
    let queues: &[u64] = if quick { &[25] } else { &[25, 100, 400] };
    Row {
        number: 12,
        title: "Beside video",
        about: "Pieces of 8 MB by CUBIC with pauses of 4 s, at 50 Mbit/s and 40 ms: a piece takes \
                at most 1.2 times as long as beside a CUBIC; with the policy `background` at most \
                1.15 times as long as alone. Reference: a CUBIC in our place.",
        cells: queues.iter().map(|queue| cell(Place::new(PATHS[1], *queue))).collect(),
    }
}

/// Row 13.
pub(crate) fn beside_voice(quick: bool) -> Row {
    let cell = |place: Place| {
        Cell::new(place.name(), move |run: Run| {
            let of = |kind| {
                // 64 kbit/s in packets of 20 ms, and 2 Mbit/s; headers included.
                let media = |bits, bytes| FlowOptions {
                    packet_bytes: bytes,
                    keeps_delays: true,
                    ..FlowOptions::new(
                        Kind::Steady(Rate::from_bits_per_second(bits)),
                        place.rtt,
                        Duration::ZERO,
                    )
                };
                let ours = place.flows(kind, 1, Duration::ZERO, SECOND);
                let media = vec![media(80_000, 200), media(2_000_000, 1200)];
                let outcome = place.run(together([media, ours]), run.seed);
                let delay = |flow: usize| quantile(&outcome.flows[flow].delays, 0.95) * 1e3;
                (outcome.loss([0, 1]), delay(0).max(delay(1)))
            };
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            vec![
                Measure::loss("loss", ours.0, floor(1.5 * cubic.0)).beside(cubic.0),
                Measure::at_most("95 % delay", Unit::Millis, ours.1, 1.1 * cubic.1).beside(cubic.1),
            ]
        })
    };
    Row {
        number: 13,
        title: "Beside voice and a video call",
        about: "Constant rates of 80 kbit/s and 2 Mbit/s: their loss is at most 1.5 times (or 0.1 \
                %), the 95 % quantile of their one-way delay at most 1.1 times what it is beside \
                a CUBIC.",
        cells: places(quick).into_iter().map(cell).collect(),
    }
}

/// A cell for each place with each mix.
fn product(
    places: &[Place],
    mixes: &[(usize, usize)],
    cell: impl Fn(Place, (usize, usize)) -> Cell,
) -> Vec<Cell> {
    let of = |place: &Place| mixes.iter().map(|mix| cell(*place, *mix)).collect::<Vec<_>>();
    places.iter().flat_map(of).collect()
}

/// A few packets more or less are chance.
pub(crate) fn floor(bound: f64) -> f64 {
    bound.max(0.001)
}
