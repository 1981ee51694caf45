//! What the machines say, packet by packet, as hashes: a change that means to change nothing leaves
//! them as they are. One that means to change something accepts the new ones
//! (`INSTA_UPDATE=always`) and says why.

use std::fmt::Write;
use std::time::Duration;

use netblt_path::{EarlyDrop, LinkOptions, MarkAbove, QueueLimit, scenario};
use netblt_proto::config::Policy;
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind, Scene, SceneOutcome, Supply, TcpLaw};
use netblt_sim::coverage::Mark;
use netblt_sim::subflows::SubflowsOutcome;
use netblt_sim::world::World;
use netblt_sim::{parallel, swarm};

/// Seeds of one line.
const SEEDS: u64 = 16;

/// One hash over the transcripts, or whatever else `text` makes of each job, in order.
fn hash(texts: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    texts.iter().for_each(|text| {
        hasher.update(text.as_bytes());
    });
    hasher.finalize().to_hex()[..32].to_owned()
}

fn hashes<J: Sync>(jobs: &[J], text: impl Fn(&J) -> String + Sync) -> Vec<String> {
    parallel::map(jobs, 2, text)
}

#[test]
fn worlds_of_the_swarm() {
    let seeds: Vec<u64> = (0..512).collect();
    let all = hashes(&seeds, |seed| swarm::replay(*seed, None).hash.to_string());
    let mut table = String::new();
    for (line, hashes) in all.chunks(SEEDS as usize).enumerate() {
        let first = line as u64 * SEEDS;
        let _ = writeln!(table, "{first:3} to {:3}  {}", first + SEEDS - 1, hash(hashes));
    }
    insta::assert_snapshot!("swarm", table);
}

#[test]
fn worlds_on_shipped_networks() {
    let names: Vec<&str> = scenario::names().collect();
    let all = hashes(&names, |name| {
        let network = scenario::named(name).expect("a shipped network");
        let worlds = (1..=4).map(|seed| swarm::replay(seed, Some(&network)).hash.to_string());
        hash(&worlds.collect::<Vec<_>>())
    });
    let lines = names.iter().zip(all).map(|(name, hash)| format!("{name:20} {hash}\n"));
    insta::assert_snapshot!("networks", lines.collect::<String>());
}

/// The text of an outcome, under the type's name of the first hashes: a new name is no new result.
fn hashed(outcome: &Result<SubflowsOutcome, String>) -> String {
    format!("{outcome:?}").replacen("SubflowsOutcome", "LanesOutcome", 1)
}

#[test]
fn transfers_over_subflows_and_crowds() {
    let seeds: Vec<u64> = (0..64).collect();
    let all = hashes(&seeds, |seed| {
        let subflows = swarm::subflows(*seed).map(|subflows| hashed(&subflows.run()));
        let crowd = swarm::crowd(*seed).map(|subflows| hashed(&subflows.run()));
        format!("{subflows:?} {crowd:?}")
    });
    let mut table = String::new();
    for (line, texts) in all.chunks(SEEDS as usize).enumerate() {
        let first = line as u64 * SEEDS;
        let _ = writeln!(table, "{first:3} to {:3}  {}", first + SEEDS - 1, hash(texts));
    }
    insta::assert_snapshot!("lanes", table);
}

/// With other flows on the path and sockets that hold little. The counts of the marks are there as
/// well, in the order of their list.
#[test]
fn worlds_beside_other_flows() {
    let seeds: Vec<u64> = (0..16).collect();
    let all = hashes(&seeds, |seed| {
        let mut setup = swarm::setup(*seed, None);
        let flow =
            |kind, ms| FlowOptions::new(kind, Duration::from_millis(ms), Duration::from_millis(ms));
        let steady = Kind::Steady(Rate::from_bits_per_second(1_000_000));
        let back = FlowOptions { reverse: true, ..flow(Kind::RENO, 30) };
        setup.neighbours = vec![flow(Kind::CUBIC, 20), back, flow(steady, 50)];
        setup.passive.socket_bytes = Some(10_000);
        let outcome = World::new(setup).run();
        let marks: Vec<u64> = Mark::ALL.iter().map(|mark| outcome.coverage.count(*mark)).collect();
        hash(&[format!("{} {:?} {marks:?}", outcome.hash, outcome.duration)])
    });
    let lines = all.iter().enumerate().map(|(seed, hash)| format!("{seed:2}  {hash}\n"));
    insta::assert_snapshot!("beside", lines.collect::<String>());
}

/// Flows of every kind beside each other, one after the other, against each other, on hosts that
/// stand still, and with queues that mark or drop.
fn scenes() -> Vec<Scene> {
    let ms = Duration::from_millis;
    let rate = Rate::from_bits_per_second(50_000_000);
    let queue = QueueLimit::Bytes(rate.bytes_in(ms(40)) / 2);
    let link = LinkOptions { rate: Some(rate), queue, ..LinkOptions::default() };
    let marks = LinkOptions { ecn_mark: Some(MarkAbove::Bytes(60_000)), ..link.clone() };
    let drops = LinkOptions {
        early_drop: Some(EarlyDrop::Pie { target: ms(15), marks: false }),
        ..link.clone()
    };
    let links = [link.clone(), marks, drops, link.clone()];
    let kinds = [
        Kind::Ours(Policy::Fair { ceiling: None }),
        Kind::CUBIC,
        Kind::BBR,
        Kind::Tcp(TcpLaw::Reno, Supply::Pieces(200_000, ms(700))),
        Kind::Steady(Rate::from_bits_per_second(2_000_000)),
    ];
    let flow = |n: usize, scene: usize| {
        let (rtt, start) = (ms(20 + 10 * n as u64), ms(500 * (n as u64 % 3)));
        FlowOptions {
            ecn: scene == 1,
            reverse: scene == 3 && n.is_multiple_of(2),
            stop: (n == 1).then_some(ms(6000)),
            stands_still: (scene > 1 && n == 0).then_some((ms(60), ms(1000))),
            keeps_delays: true,
            ..FlowOptions::new(kinds[n], rtt, start)
        }
    };
    let scene = |(at, there): (usize, LinkOptions)| {
        let flows = (0..kinds.len()).map(|n| flow(n, at)).collect();
        let back = if at > 1 { link.clone() } else { LinkOptions::default() };
        Scene { back, from: ms(1000), ..Scene::new(there, flows, ms(9000), at as u64) }
    };
    links.into_iter().enumerate().map(scene).collect()
}

/// The numbers of a scene, without the names of their fields.
fn numbers(outcome: &SceneOutcome) -> String {
    let SceneOutcome { flows, link, .. } = outcome;
    let mut text = format!("{} {} {:?}\n", link.entered, link.lost_queue, link.mean_queue);
    for flow in flows {
        let counts = (flow.sent, flow.arrived, flow.arrived_bytes, flow.marked, flow.refused);
        let _ = writeln!(text, "{counts:?} {:?} {:?}", flow.ticks, flow.sent_ticks);
        let _ = writeln!(text, "{:?} {:?} {:?}", flow.phases, flow.pieces, flow.delays);
    }
    text
}

#[test]
fn flows_at_a_bottleneck() {
    let all = hashes(&scenes(), |scene| numbers(&netblt_sim::bottleneck::run(scene)));
    let lines = all.iter().enumerate().map(|(at, text)| {
        let packets = text.split(' ').next().unwrap_or_default();
        format!("{at}  {packets} packets  {}\n", hash(std::slice::from_ref(text)))
    });
    insta::assert_snapshot!("scenes", lines.collect::<String>());
}

/// The whole traces of both ends, which have every decision with its time and its cause.
#[test]
fn traces_of_transfers() {
    let seeds: Vec<u64> = (0..20).collect();
    let all = hashes(&seeds, |seed| {
        let mut setup = swarm::setup(*seed, None);
        setup.active.config.trace = true;
        setup.passive.config.trace = true;
        let outcome = World::new(setup).run();
        let ends = outcome.ends.0.map(|end| {
            format!(
                "{:5} events {}",
                end.trace.lines().count(),
                hash(std::slice::from_ref(&end.trace))
            )
        });
        ends.join("  ")
    });
    let lines = all.iter().enumerate().map(|(seed, ends)| format!("{seed:2}  {ends}\n"));
    insta::assert_snapshot!("traces", lines.collect::<String>());
}
