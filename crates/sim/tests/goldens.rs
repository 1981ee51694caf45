//! What the machines say, packet by packet, as hashes: a change that means to change nothing leaves
//! them as they are. One that means to change something accepts the new ones
//! (`INSTA_UPDATE=always`) and says why.

use std::fmt::Write;

use netblt_path::scenario;
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
