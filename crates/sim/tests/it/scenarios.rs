//! One transfer over each of the paths that are hard for a law which finds its rate by itself, as a
//! table: `docs/results/scenarios.md` holds it, and is held to it.
//!
//! `INSTA_UPDATE=always cargo test -p netblt-sim --test it scenarios:: -- --ignored` renews the
//! page.

mod hold;
mod list;
mod page;

use std::time::Duration;

use list::{Scenario, Want, sample, scenarios};
use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, Outage};
use netblt_sim::outcome::Outcome;
use netblt_sim::parallel;
use netblt_sim::world::World;

/// Data in a packet at best, of so many bytes with IP and UDP.
const HEADERS: u64 = 68;

/// What became of a scenario.
#[derive(Clone, Debug, Default)]
struct Figures {
    seconds: f64,
    /// Of what the path could have carried, in per cent.
    share: f64,
    /// Packets lost to a queue, a policer or an outage, of those sent, in per cent.
    lost: f64,
    /// Packets of data sent, of those needed and those lost at random.
    wire: f64,
    /// The mean wait in the queue, in milliseconds.
    wait: f64,
    problem: Option<String>,
}

/// IP bytes that the link would have let through in `time`, start to end.
fn possible(link: &LinkOptions, time: Duration) -> f64 {
    let mut now = link.clone();
    let mut changes = std::mem::take(&mut now.schedule);
    changes.sort_by_key(|change| change.at);
    let (mut at, mut bytes) = (Duration::ZERO, 0.0);
    let ends = changes.iter().map(|change| change.at.min(time)).chain([time]);
    for (n, end) in ends.enumerate() {
        let line = now.rate.map_or(f64::INFINITY, |rate| rate.bytes_per_second() as f64);
        let policed = now.policer.map_or(f64::INFINITY, |p| p.rate.bytes_per_second() as f64);
        let kept = 1.0 - f64::from(now.loss.ppb()) / f64::from(Probability::ALWAYS.ppb());
        if now.outage == Outage::None {
            bytes += line.min(policed) * kept * end.saturating_sub(at).as_secs_f64();
        }
        at = at.max(end);
        if let Some(change) = changes.get(n) {
            now.apply(change);
        }
    }
    bytes
}

fn figures(scenario: &Scenario, outcome: &Outcome) -> Figures {
    let setup = &scenario.setup;
    let packet = u64::from(setup.active.config.datagram_bytes + setup.active.config.overhead_bytes);
    let data = packet - HEADERS;
    let time = outcome.transfer_time();
    let best = possible(&setup.there, time) * data as f64 / packet as f64;
    let there = &outcome.paths.0[0];
    let congested = there.lost_queue + there.lost_policer + there.lost_outage;
    let entered = there.entered.packets.max(1) as f64;
    let (sent, received) = (outcome.sent(), outcome.received());
    let needed = received.data_packets_received + received.packets_repaired;
    let on_link = there.delivered.packets + there.lost_random.packets + there.lost_outage.packets;
    Figures {
        seconds: time.as_secs_f64(),
        share: setup.bytes as f64 / best * 100.0,
        lost: congested.packets as f64 / entered * 100.0,
        wire: (sent.data_packets_sent + sent.repair_packets_sent) as f64
            / (needed + there.lost_random.packets).max(1) as f64,
        wait: there.queue_time_sum.as_secs_f64() * 1000.0 / on_link.max(1) as f64,
        problem: outcome.problem(),
    }
}

/// Whether `figures` are as wanted.
fn is_met(want: Want, figures: &Figures) -> bool {
    match want {
        Want::Share(least) => figures.share >= least,
        Want::Lost(most) => figures.lost < most,
    }
}

#[test]
fn a_few_scenarios_agree_with_the_page() {
    // Of others there is no sample.
    if std::env::var_os("NETBLT_SCENARIO").is_none() {
        hold::hold_rows("one transfer alone", &table_of(&sample()));
    }
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn every_scenario_agrees_with_the_page() {
    hold::hold("one transfer alone", &table_of(&scenarios()));
}

/// Runs them, and makes their table; each bound is met that the page does not name as missed.
fn table_of(all: &[Scenario]) -> String {
    let run = |scenario: &Scenario| {
        let outcome = World::new(scenario.setup.clone()).run();
        figures(scenario, &outcome)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let figures = parallel::map(all, threads, run);
    let table = page::table(all, &figures);
    println!("{table}");
    for (scenario, figures) in all.iter().zip(&figures) {
        assert_eq!(figures.problem, None, "{}\n{table}", scenario.name);
        let met = is_met(scenario.want, figures);
        // The page names each bound that is not met; one that was met must stay so.
        assert!(met || scenario.short, "{} is not met\n{table}", scenario.name);
        assert!(!met || !scenario.short, "{} is met now\n{table}", scenario.name);
    }
    table
}
