//! Random paths.

use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind, Scene, run};

use super::{Cell, Row};
use crate::cell::{Measure, Run, Unit};
use crate::place::SECOND;

/// Paths in a cell.
const BATCH: u64 = 50;

/// Row 34.
pub(crate) fn random_paths(quick: bool) -> Row {
    let batches = if quick { 1 } else { 10 };
    let cell = |batch: u64| {
        let (from, until) = (batch * BATCH + 1, (batch + 1) * BATCH);
        Cell::new(format!("paths {from} to {until}"), move |run: Run| {
            let of = |kind| {
                let lost = |path| lost(kind, path, run.seed);
                (from..=until).map(lost).collect::<Vec<f64>>()
            };
            let (ours, cubic) = (of(Kind::Ours(run.policy)), of(Kind::CUBIC));
            let mean = |lost: &[f64]| lost.iter().sum::<f64>() / lost.len() as f64;
            let bad =
                ours.iter().zip(&cubic).filter(|(ours, cubic)| **ours > 0.1 && **cubic <= 0.05);
            vec![
                Measure::loss("mean loss", mean(&ours), 0.005).beside(mean(&cubic)),
                Measure::loss("95 %", high(&ours), 0.05).beside(high(&cubic)),
                Measure::at_most("much worse", Unit::Ratio, bad.count() as f64, 0.0),
            ]
        })
    };
    Row {
        number: 34,
        title: "Random paths",
        about: "1 to 100 Mbit/s, 5 to 300 ms, queues of 0.05 to 4 BDP and at least 10 packets, \
                where each flow has 4 packets of the product; one, two or three of ours, a second \
                apart, and on every other path a CUBIC. Of what is sent from 10 s on, for 30 s, \
                at most 0.5 % is lost to the queue in the mean, 5 % on 95 % of the paths; on no \
                path more than 10 % unless CUBICs lose more than 5 % there.",
        cells: (0..batches).map(cell).collect(),
    }
}

fn high(lost: &[f64]) -> f64 {
    let mut lost = lost.to_vec();
    lost.sort_by(f64::total_cmp);
    lost.get(lost.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}

/// What is lost to the queue on the path of this number.
fn lost(kind: Kind, number: u64, seed: u64) -> f64 {
    let mut rng = Rng::named(number, "path");
    // Every power of two is as likely as the others, in 64ths.
    let mut scale = |least: u64, most: u64| {
        let part = rng.below(64) as f64 / 64.0;
        (least as f64 * (most as f64 / least as f64).powf(part)) as u64
    };
    let count = 1 + number % 3;
    let others = number / 3 % 2;
    let (rate, rtt, queue) = loop {
        let rate = Rate::from_bits_per_second(scale(1_000_000, 100_000_000));
        let rtt = Duration::from_micros(scale(5_000, 300_000));
        let queue = (rate.bytes_in(rtt) * scale(5, 400) / 100).max(15_000);
        if rate.bytes_in(rtt) >= 4 * 1500 * (count + others) {
            break (rate, rtt, queue);
        }
    };
    let link =
        LinkOptions { rate: Some(rate), queue: QueueLimit::Bytes(queue), ..LinkOptions::default() };
    let flow = |n: u64| {
        let kind = if n == count { Kind::CUBIC } else { kind };
        FlowOptions::new(kind, rtt, SECOND * n as u32)
    };
    let flows = (0..count + others).map(flow).collect();
    let scene = Scene::new(link, flows, SECOND * 40, seed);
    run(&Scene { from: SECOND * 10, ..scene }).link.queue_loss()
}
