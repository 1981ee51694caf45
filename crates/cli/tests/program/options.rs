//! Every option that a help text names was taken by some run of the program in the tests. That is
//! known when all of them have run, so it is asked afterwards (`.ci/run`):
//!
//!     mkdir DIR; export NETBLT_TRIED=DIR
//!     cargo test -p netblt-cli -p netblt-lab
//!     cargo test -p netblt-cli --test program options:: -- --ignored

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::testenv::programs::PROGRAMS;
use crate::testenv::{Env, able, tried};

/// An option as its help text has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    names: Vec<String>,
    value: Takes,
}

/// Whether the next word is its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    Nothing,
    Perhaps,
    One,
}

/// Options of a help text.
fn entries(help: &str) -> BTreeSet<Entry> {
    let mut found = BTreeSet::new();
    for line in help.lines() {
        let indented = line.starts_with("  -") || line.starts_with("      --");
        let text = line.trim_start();
        // Deeper lines explain.
        if !indented || line.len() - text.len() > 6 {
            continue;
        }
        // Short helps explain in the same line.
        let text = text.split("  ").next().unwrap_or_default();
        let (names, rest) = text.split_at(text.find(['<', '[', '=']).unwrap_or(text.len()));
        let words = names.split([',', ' ']).filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(str::to_owned).collect();
        // Lines of an example, whose values are none of these.
        let is_name = |word: &String| word.starts_with('-') && !word.ends_with('\'');
        let is_value = rest.is_empty() || rest.starts_with(['<', '[']);
        if !words.iter().all(is_name) || !is_value {
            continue;
        }
        let value = match () {
            () if rest.starts_with("[=") => Takes::Nothing,
            () if rest.starts_with('[') => Takes::Perhaps,
            () if rest.starts_with('<') => Takes::One,
            () => Takes::Nothing,
        };
        found.insert(Entry { names: words, value });
    }
    found
}

/// A program, and one of its commands.
type ProgramCommand = (&'static str, &'static str);

/// The program and command that these words begin with, and what follows them.
fn command(args: &[String]) -> (ProgramCommand, &[String]) {
    let (program, rest) = args.split_first().expect("a program");
    let found = PROGRAMS.iter().find(|(name, _)| name == program);
    let (program, commands) = found.expect("a program of ours");
    let begins = |name: &&&str| {
        let mut words = name.split_whitespace().zip(rest);
        name.split_whitespace().count() <= rest.len() && words.all(|(word, arg)| word == arg)
    };
    let longest = commands.iter().filter(begins).max_by_key(|name| name.len());
    let name = longest.copied().unwrap_or_default();
    ((program, name), &rest[name.split_whitespace().count()..])
}

/// Which of a command's options these words give it, by any of their names.
fn given<'a>(words: &[String], entries: &'a BTreeSet<Entry>) -> Vec<&'a Entry> {
    let named = |name: &str| entries.iter().find(|entry| entry.names.iter().any(|n| n == name));
    let mut found = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next().filter(|word| *word != "--") {
        let mut last = None;
        let mut whole = false;
        if word.starts_with("--") {
            let (name, value) = word.split_once('=').map_or((&**word, None), |x| (x.0, Some(x.1)));
            (last, whole) = (named(name), value.is_some());
            found.extend(last);
        } else if let Some(letters) = word.strip_prefix('-') {
            // Several letters may share one hyphen; one that takes a value ends them.
            for (at, letter) in letters.char_indices() {
                last = named(&format!("-{letter}"));
                found.extend(last);
                if last.is_none_or(|entry| entry.value != Takes::Nothing) {
                    whole = at + letter.len_utf8() < letters.len();
                    break;
                }
            }
        }
        let takes = last.map_or(Takes::Nothing, |entry| entry.value);
        let is_value = |next: &String| takes == Takes::One || !next.starts_with('-');
        if !whole && takes != Takes::Nothing {
            words.next_if(|next| is_value(next));
        }
    }
    found
}

/// Lines of the notes of all processes.
fn notes(place: &Path) -> Vec<String> {
    let files = fs::read_dir(place).expect("NETBLT_TRIED is a directory");
    let files = files.map(|file| file.expect("an entry").path());
    let texts = files.map(|file| fs::read_to_string(file).expect("notes"));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
#[ignore = "asks what the other tests have run: .ci/run"]
fn every_option_was_taken_by_a_run() {
    let place =
        tried::place().expect("NETBLT_TRIED says where the other tests noted what they ran");
    let runs = notes(&place);
    assert!(!runs.is_empty(), "no test has noted a run in {}", place.display());
    let env = Env::new();
    let mut untried = BTreeMap::new();
    for (program, commands) in PROGRAMS {
        for name in commands {
            let words: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
            let entries = entries(&env.run_program(program, &words).exits(0).text());
            assert!(!entries.is_empty(), "{program} {name} has no option, not even --help");
            untried.insert((program, *name), (entries.clone(), entries));
        }
    }
    assert!(untried.values().map(|(all, _)| all.len()).sum::<usize>() > 300, "{untried:#?}");
    for run in &runs {
        let args: Vec<String> = serde_json::from_str(run).expect(run);
        let (name, rest) = command(&args);
        let (all, left) = untried.get_mut(&name).expect("a command");
        for entry in given(rest, all) {
            left.remove(entry);
        }
    }
    let list = |((program, name), (_, left)): (ProgramCommand, (_, BTreeSet<Entry>))| {
        let line = |entry: Entry| format!("{program} {name} {}", entry.names.join(", "));
        left.into_iter().map(line).collect::<Vec<_>>()
    };
    let untried: Vec<String> = untried.into_iter().flat_map(list).collect();
    // Only these runs can try some options: a run that can gets the list of all.
    if !untried.is_empty() && !able(&["ip", "bash"], &["/dev/net/tun"]) {
        return;
    }
    assert!(untried.is_empty(), "no run took these: {untried:#?}");
}

#[test]
fn the_options_of_a_recorded_run_are_parsed() {
    let help = [
        "      --rate <RATE>",
        "  -r, --recursive",
        "  -p",
        "  -P <PORT>",
        "      --trace [<FILE>]",
        "          --deeper",
        "      --progress[=<TIME>]",
    ];
    let entries = entries(&help.join("\n"));
    for (line, expected) in [
        ("--rate 5 x", "--rate"),
        ("--rate=5", "--rate"),
        ("--rate --recursive", "--rate"),
        ("--trace --recursive", "--trace -r"),
        ("--trace x --recursive", "--trace -r"),
        ("-rp x", "-r -p"),
        ("-pP 22", "-p -P"),
        ("-pPr", "-p -P"),
        ("-P -r", "-P"),
        ("--progress -p", "--progress -p"),
        ("x -- --rate", ""),
        ("--rat 5 --deeper rate", ""),
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let names: Vec<&str> = given(&words, &entries).iter().map(|e| &*e.names[0]).collect();
        assert_eq!(names.join(" "), expected, "{line}");
    }
    let words = ["netblt-lab", "emulate", "relay", "--rate"].map(str::to_owned);
    assert_eq!(command(&words), (("netblt-lab", "emulate relay"), &words[3..]));
    assert_eq!(command(&words[..2]), (("netblt-lab", "emulate"), &[][..]));
    let words = ["netblt", "--version"].map(str::to_owned);
    assert_eq!(command(&words), (("netblt", ""), &words[1..]));
}
