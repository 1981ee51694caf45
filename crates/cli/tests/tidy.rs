//! House rules that a machine can check: reads every source file of the workspace.

#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/prose.rs"]
mod prose;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const MAX_COLUMNS: usize = 100;
/// The specification, whose sections code and pages cite: `docs/protocol §6.4`.
const PROTOCOL: &str = "docs/protocol";
/// The one page that the specification was. A citation of it leads nowhere.
const OLD_PROTOCOL: &str = concat!("docs/protocol", ".md");
/// In two pieces, or this file would find itself.
const LEFT_OVERS: [&str; 6] = [
    concat!("to", "do!("),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
    concat!("unimple", "mented!("),
    concat!("TO", "DO"),
    concat!("XX", "X"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every `.rs` file of ours with its path from the root. They are read once for all tests.
fn sources() -> Vec<(String, String)> {
    static SOURCES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let read = || {
        let mut found = Vec::new();
        for top in ["crates", "fuzz", "python"] {
            walk(&root().join(top), &mut found);
        }
        found.sort();
        assert!(found.len() > 20, "the sources are elsewhere");
        found
    };
    SOURCES.get_or_init(read).clone()
}

fn walk(directory: &Path, found: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root()).unwrap_or(&path);
            found.push((path.display().to_string(), text));
        }
    }
}

/// All of them at once: one run tells everything there is to mend.
fn none(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n{}", offenders.join("\n"));
}

#[test]
fn no_line_is_over_100_columns() {
    let mut offenders = Vec::new();
    for (path, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                offenders.push(format!("{path}:{}: {columns} columns", i + 1));
            }
        }
    }
    none("lines over 100 columns", &offenders);
}

#[test]
fn every_file_says_what_it_is_for() {
    let lacks = |(path, text): (String, String)| {
        let says = text.starts_with("//! ") || text.starts_with("#!");
        (!says).then_some(path)
    };
    let offenders: Vec<String> = sources().into_iter().filter_map(lacks).collect();
    none("does not open with //!", &offenders);
}

#[test]
fn no_source_has_a_leftover_marker() {
    let mut offenders = Vec::new();
    for (path, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            if LEFT_OVERS.iter().any(|marker| line.contains(marker)) {
                offenders.push(format!("{path}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    none("left over", &offenders);
}

#[test]
fn every_cited_section_exists() {
    let sections = sections();
    assert!(sections.contains("3.1") && sections.contains("9"), "{sections:?}");
    let mut offenders = Vec::new();
    let mut seen = 0;
    for (path, text) in sources().into_iter().chain(pages()) {
        for section in cited(&text) {
            seen += 1;
            if !sections.contains(&section) {
                offenders.push(format!("{path}: {PROTOCOL} §{section}"));
            }
        }
        if text.contains(OLD_PROTOCOL) {
            offenders.push(format!("{path}: {OLD_PROTOCOL}, which is {PROTOCOL} now"));
        }
    }
    none("cites a section that does not exist", &offenders);
    assert!(seen > 400, "only {seen} citations were found: they are written another way");
}

/// The numbers of the sections of all pages of the specification. No two have the same.
fn sections() -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    let mut offenders = Vec::new();
    for (path, text) in pages().into_iter().filter(|(path, _)| path.starts_with(PROTOCOL)) {
        for section in headings(&text) {
            if !sections.insert(section.clone()) {
                offenders.push(format!("{path}: §{section}"));
            }
        }
    }
    none("a section has two headings", &offenders);
    sections
}

#[test]
fn every_file_is_part_of_something() {
    let mut all = sources();
    // Only what may declare a module: each file is looked for in all of them.
    for (_, text) in &mut all {
        let may = |line: &&str| line.contains("mod ") || line.contains("#[path = ");
        *text = text.lines().filter(may).collect::<Vec<_>>().join("\n");
    }
    let mut offenders = Vec::new();
    for (path, _) in &all {
        let file = Path::new(path);
        let (Some(stem), Some(parent)) = (file.file_stem(), file.parent()) else {
            continue;
        };
        let stem = stem.to_string_lossy();
        let is_root = ["src", "tests", "benches", "examples", "fuzz_targets", "bin"]
            .iter()
            .any(|name| parent.ends_with(name) && (*name != "src" || is_crate_root(&stem)))
            // One of several files, and what cargo runs before it builds a package.
            || stem == "main"
                && parent
                    .parent()
                    .is_some_and(|above| above.ends_with("tests") || above.ends_with("examples"))
            || stem == "build" && parent.parent().is_some_and(|above| above.ends_with("crates"));
        let module = match &*stem {
            "mod" => parent.file_name().map(|name| name.to_string_lossy().into_owned()),
            other => Some(other.to_owned()),
        };
        let by_name = format!("mod {};", module.unwrap_or_default());
        let by_path = format!("#[path = \"{stem}.rs\"]");
        // A file of a test program is declared beside it: others have modules of the same name.
        let program = parent.join("main.rs");
        let in_program = path.contains("/tests/") && all.iter().any(|(p, _)| *program == **p);
        let declares = |(at, text): &(String, String)| {
            (text.contains(&by_name) || text.contains(&by_path))
                && (!in_program || Path::new(at).parent() == Some(parent))
        };
        if !is_root && !all.iter().any(declares) {
            offenders.push(path.clone());
        }
    }
    none("nothing declares this module", &offenders);
}

fn is_crate_root(stem: &str) -> bool {
    matches!(stem, "lib" | "main")
}

/// The pages, with their paths from the root.
fn pages() -> Vec<(String, String)> {
    let mut places = vec![root(), root().join("python"), root().join("fuzz")];
    for place in ["guide", "protocol", "reference", "design", "decisions", "results"] {
        places.push(root().join("docs").join(place));
    }
    places.push(root().join("docs"));
    let files = places.iter().flat_map(|place| fs::read_dir(place).expect("a place of pages"));
    let pages = files.flatten().map(|entry| entry.path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page");
        (path.strip_prefix(root()).unwrap_or(&path).display().to_string(), text)
    };
    pages.map(read).collect()
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut offenders = Vec::new();
    let mut seen = 0;
    for (page, text) in pages() {
        for span in text.split('`').skip(1).step_by(2) {
            for path in alternatives(span) {
                let Some(is_there) = named_file_exists(&path) else { continue };
                seen += 1;
                if !is_there {
                    offenders.push(format!("{page}: {path}"));
                }
            }
        }
    }
    none("names a file that does not exist", &offenders);
    assert!(seen > 100, "only {seen} paths were found: the pages are written another way");
}

/// `a/{b,c}/d` is two paths.
fn alternatives(span: &str) -> Vec<String> {
    let Some((before, (within, after))) =
        span.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![span.to_owned()];
    };
    within.split(',').map(|one| format!("{before}{one}{after}")).collect()
}

/// `None` if this is no path from the root or from `crates`.
fn named_file_exists(path: &str) -> Option<bool> {
    let (top, below) = path.split_once('/')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let starts = [root().join(top), root().join("crates").join(top)];
    let is_ours = !top.is_empty() && top != "target" && starts.iter().any(|start| start.is_dir());
    if !is_ours || below.is_empty() || !path.chars().all(is_plain) {
        return None;
    }
    let is_there = |start: &PathBuf| {
        let file = start.join(below);
        file.exists() || start.join(format!("{below}.rs")).exists()
    };
    Some(starts.iter().any(is_there))
}

/// A part that is no job is never run for a pull request.
#[test]
fn every_part_of_ci_is_a_job_of_its_workflow() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect(path);
    let listed = |text: &str, before: &str, separator: char, after: char| {
        let lists = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
        let words = lists.flat_map(|(list, _)| list.split(separator).map(str::trim));
        words.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let parts = listed(&read(".ci/run"), "\nparts=(", ' ', ')');
    let jobs = listed(&read(".github/workflows/ci.yml"), " part: [", ',', ']');
    assert!(parts.contains("lint"), "{parts:?}");
    assert_eq!(parts, jobs);
}

/// A test that CI leaves out is run at night, and says so.
#[test]
fn every_ignored_test_is_run_at_night() {
    let attribute = concat!("#[", "ignore");
    let mut offenders = Vec::new();
    let mut seen = 0;
    for (path, text) in sources() {
        // It looks at all others, and CI runs it by itself.
        if path.ends_with("cli/tests/program/options.rs") {
            continue;
        }
        let of_a_run = ["/src/", "/tests/it/", "/tests/program/"].iter().any(|p| path.contains(p));
        for line in text.lines().filter(|line| line.trim_start().starts_with(attribute)) {
            seen += 1;
            if !of_a_run || line.trim() != format!("{attribute} = \"slow: .ci/nightly\"]") {
                offenders.push(format!("{path}: {line}"));
            }
        }
    }
    none("not run at night", &offenders);
    assert!(seen > 10, "only {seen} ignored tests were found");
    let nightly = fs::read_to_string(root().join(".ci/nightly")).expect("it");
    for run in ["--lib --test it -- --include-ignored", "--test program -- --ignored"] {
        assert!(nightly.contains(run), ".ci/nightly has no run with {run}");
    }
}

/// The numbers of all headings: `## 3. Title`, `### 3.1 Title`.
fn headings(page: &str) -> Vec<String> {
    let number = |line: &str| {
        let title = line.strip_prefix("##")?.trim_start_matches('#').trim_start();
        let number = title.split(' ').next()?.trim_end_matches('.');
        number.starts_with(|c: char| c.is_ascii_digit()).then(|| number.to_owned())
    };
    page.lines().filter_map(number).collect()
}

/// The sections named after the folder's name, as in "docs/protocol §2, §3.1 and §9", or after a
/// link to a page of it.
fn cited(text: &str) -> Vec<String> {
    // A citation may be wrapped within its comment.
    let words = text.replace("//!", " ").replace("///", " ").replace("//", " ");
    let mut found = Vec::new();
    for rest in words.split(PROTOCOL).skip(1) {
        let link = rest.strip_prefix("](").and_then(|link| link.split_once(')'));
        let rest = link.map_or(rest, |(_, behind)| behind);
        let mut rest = rest.trim_start_matches(['`', ' ', ',', '\n']);
        while let Some(after) = rest.strip_prefix('§') {
            let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
            let (number, tail) = after.split_at(end);
            found.push(number.trim_end_matches('.').to_owned());
            let tail = tail.trim_start();
            let tail = tail.strip_prefix("and ").unwrap_or(tail);
            rest = tail.trim_start_matches([',', ' ', '\n']);
        }
    }
    found
}

#[test]
fn citations_are_found_however_they_are_written() {
    let page = format!(
        "// `{PROTOCOL} §2, §3.1` and\n/// {PROTOCOL}\n/// §6.1. Also §7, [{PROTOCOL}](a.md) §8."
    );
    assert_eq!(cited(&page), ["2", "3.1", "6.1", "8"]);
    assert_eq!(headings("# T\n## 1. The idea\n### 2.1 What\n## Other\n"), ["1", "2.1"]);
}
