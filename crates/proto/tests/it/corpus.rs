//! Replays what the fuzzer has found: every committed input does what it did, without a complaint.

#[path = "../harness/mod.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// The inputs of `target`, by name.
fn inputs(target: &str) -> BTreeMap<String, Vec<u8>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(target)
        .with_extension("tar.gz");
    let packed = fs::read(archive).expect("the committed corpus");
    let mut inputs = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(&packed[..])).entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path().expect("a name").to_string_lossy().into_owned();
        let mut input = Vec::new();
        entry.read_to_end(&mut input).expect("an input");
        inputs.insert(name, input);
    }
    inputs
}

/// Runs `run` over every input of `target`. Returns how many there are.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let inputs = inputs(target);
    for (name, input) in &inputs {
        // The name of the input that fails is the last that the test prints.
        eprintln!("{target}/{name}");
        run(input);
    }
    inputs.len()
}

#[test]
fn packets_of_the_corpus() {
    assert!(replay("packet", harness::packet::run) > 0);
}

#[test]
fn conversations_of_the_corpus() {
    assert!(replay("conversation", harness::conversation::run) > 0);
}

#[test]
fn rogues_of_the_corpus() {
    assert!(replay("rogue", harness::rogue::run) > 0);
}

#[test]
fn questions_of_the_corpus() {
    assert!(replay("asked", harness::asked::run) > 0);
}

#[test]
fn doors_of_the_corpus() {
    assert!(replay("door", harness::door::run) > 0);
}
