//! Replays what the fuzzer has found: every committed input does what it did, without a complaint.

mod harness;

use std::fs;
use std::path::Path;

/// Runs `target` over every input in its directory; answers how many there are.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let entries = fs::read_dir(&directory).expect("the committed corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in &paths {
        // The name of the input that fails comes last of what the test prints.
        eprintln!("{}", path.display());
        target(&fs::read(path).expect("an input"));
    }
    paths.len()
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
