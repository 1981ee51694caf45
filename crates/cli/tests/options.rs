//! Every option that a help text names is tried by some test.

mod testenv;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use testenv::{COMMANDS, Env};

/// What no test of this suite tries, and why.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Options of a help text: for each its names, as they are written.
fn options(command: &str) -> BTreeSet<Vec<String>> {
    let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
    let help = Env::new().run(&words).exits(0).text();
    let mut found = BTreeSet::new();
    for line in help.lines() {
        let indented = line.starts_with("  -") || line.starts_with("      --");
        let text = line.trim_start();
        // Deeper lines explain.
        if !indented || line.len() - text.len() > 6 {
            continue;
        }
        let names = text.split(['<', '[', '.']).next().unwrap_or_default();
        let words = names.split([',', ' ']).filter(|word| word.starts_with('-'));
        found.insert(words.map(str::to_owned).collect());
    }
    found
}

/// The sources of all tests and of what is run beside them.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut todo: Vec<_> = ["crates/cli/tests", "benches/tool", "packaging", ".ci"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    let mut all = String::new();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let children = fs::read_dir(&path).expect("listed");
            todo.extend(children.map(|child| child.expect("an entry").path()));
        } else if path.extension().is_none_or(|extension| extension == "rs")
            && !path.ends_with("tests/options.rs")
        {
            all += &fs::read_to_string(&path).unwrap_or_default();
        }
    }
    all
}

/// Impairments of the emulator, which `impairments.rs` puts together of a direction and a name.
fn spelled_out(sources: &str) -> String {
    let table = sources.split("fn each_impairment_shows").nth(1).unwrap_or_default();
    let names = table.split("(\"").skip(1).filter_map(|rest| rest.split_once("\",")).map(|x| x.0);
    let spell =
        |name: &str| ["--up-", "--down-", "--"].map(|way| format!(" {way}{name} ")).concat();
    names.map(spell).collect()
}

/// Whether a source has this option where it is given, and not only where it is spoken of.
fn is_tried(option: &str, sources: &str) -> bool {
    let ends = ["\"", "=", " ", "{", "\\"];
    let starts = ["\"", " ", "'"];
    if option.starts_with("--") {
        return ends.iter().any(|end| sources.contains(&format!("{option}{end}")));
    }
    let letter = option.trim_start_matches('-');
    let alone = starts
        .iter()
        .any(|start| ends.iter().any(|end| sources.contains(&format!("{start}-{letter}{end}"))));
    // Several letters may share one hyphen.
    let mut words = sources.split(['"', ' ']).filter(|word| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        (2..5).contains(&letters.len()) && letters.chars().all(|c| c.is_ascii_alphabetic())
    });
    alone || words.any(|word| word.contains(letter))
}

#[test]
fn every_option_is_tried_by_a_test() {
    let sources = sources();
    let sources = spelled_out(&sources) + &sources;
    let mut untried: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for command in COMMANDS {
        let options = options(command);
        assert!(!options.is_empty(), "{command} has no option, not even --help");
        for names in options {
            if !names.iter().any(|name| is_tried(name, &sources)) {
                untried.entry(names.join(", ")).or_default().push(command);
            }
            seen.insert(names);
        }
    }
    assert!(seen.len() > 100, "the help texts were not understood: {seen:?}");
    for (option, why) in EXCEPTIONS {
        assert!(untried.remove(*option).is_some(), "{option} is no exception any more: {why}");
    }
    assert!(untried.is_empty(), "no test tries these: {untried:#?}");
}

#[test]
fn what_nobody_tries_is_noticed() {
    let sources =
        "run(&[\"send\", \"--exclude\", \"x\", \"-rp\", &format!(\"--rate={n}\")]); // --never";
    for (option, tried) in [
        ("--exclude", true),
        ("--rate", true),
        ("-r", true),
        ("-p", true),
        ("--exclud", false),
        ("-q", false),
        ("--nothing", false),
        ("--never", false),
    ] {
        assert_eq!(is_tried(option, sources), tried, "{option}");
    }
}
