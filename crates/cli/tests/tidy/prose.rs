//! How the pages read: README is short, sentences are short, and every link leads to a page.
//! Tables, headings and blocks of code are no sentences.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{PROTOCOL, none, root};

/// Words of README, as `wc -w` counts them: it is a landing page.
const README_WORDS: usize = 900;
/// Words of a sentence: the mean of a page, and more than a sentence may have.
const MEAN_WORDS: f64 = 18.0;
const LONG_WORDS: usize = 40;
/// Of a page's sentences, the share that may be longer.
const LONG_SHARE: f64 = 0.02;
/// Columns of a line of text; a table's row cannot be wrapped.
const PAGE_COLUMNS: usize = 110;

/// Folders whose pages are all measured.
const FOLDERS: [&str; 3] = ["docs/guide", PROTOCOL, DECISIONS];
const DECISIONS: &str = "docs/decisions";
/// Pages outside of these folders.
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "RELEASING.md",
    "SECURITY.md",
    "docs/README.md",
    "docs/glossary.md",
    "docs/reference/exit-codes.md",
    "docs/reference/json.md",
    "docs/reference/library.md",
    "docs/reference/metrics.md",
    "docs/reference/threat-model.md",
    "docs/reference/trace.md",
    "docs/results/README.md",
    "docs/results/core.md",
    "docs/results/emulator.md",
    "docs/results/experiments.md",
    "docs/results/faults.md",
    "docs/results/fleets.md",
    "docs/results/hardening.md",
    "docs/results/speed.md",
    "docs/results/tool.md",
    "fuzz/README.md",
    "python/README.md",
];
/// Pages that name tests, besides the decisions and the specification's test vectors.
const PAGES_OF_TESTS: [&str; 3] =
    ["docs/reference/threat-model.md", "docs/results/faults.md", "docs/results/hardening.md"];

/// A sentence, and the line in which it begins.
struct Sentence {
    line: usize,
    words: usize,
    begins: String,
}

/// Lines of text in a row: a paragraph, or an item of a list.
struct Block {
    line: usize,
    text: String,
}

/// The pages that are measured, with their paths from the root.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    for place in FOLDERS {
        let pages = fs::read_dir(root().join(place)).expect(place).flatten();
        let pages = pages.map(|entry| Path::new(place).join(entry.file_name()));
        paths.extend(pages.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.sort();
    assert!(paths.len() > 15, "the pages are elsewhere");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).expect("a page");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The lines outside of blocks of code, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

fn is_table(line: &str) -> bool {
    line.starts_with('|')
}

/// The paragraphs and items of a page.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    let mut before = 0;
    for (line, text) in lines(text) {
        let words = text.trim();
        let item = words.strip_prefix("- ").or_else(|| {
            let (number, words) = words.split_once(". ")?;
            number.bytes().all(|b| b.is_ascii_digit()).then_some(words)
        });
        let ends = words.is_empty() || words.starts_with('#') || is_table(words);
        open &= !ends && item.is_none() && line == before + 1;
        before = line;
        if ends {
            continue;
        }
        let words = item.unwrap_or(words);
        if open && let Some(block) = blocks.last_mut() {
            block.text += "\n";
            block.text += words;
        } else {
            blocks.push(Block { line, text: words.to_owned() });
            open = true;
        }
    }
    blocks
}

/// The text without the addresses of links, and with a span of code as one word.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (at, part) in text.split('`').enumerate() {
        match at % 2 {
            0 => plain += part,
            _ => plain.push_str("code"),
        }
    }
    let mut words = String::new();
    let mut rest = plain.as_str();
    while let Some((before, behind)) = rest.split_once("](") {
        words += before;
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    words + rest
}

/// The sentences of a block: each ends with a full stop, a question mark or an exclamation mark
/// before a blank.
fn sentences(block: &Block) -> Vec<Sentence> {
    let mut found: Vec<Sentence> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let (mut line, mut begins) = (block.line, block.line);
    // Lines are counted in the text as it stands, where a link or code may be wrapped.
    let text = plain(&block.text);
    for part in text.split('\n') {
        for word in part.split_whitespace() {
            if words.is_empty() {
                begins = line;
            }
            words.push(word.to_owned());
            let end = word.trim_end_matches(['*', ')', '"', '_']);
            if end.ends_with(['.', '?', '!']) && end.len() > 1 {
                found.push(sentence(begins, &mut words));
            }
        }
        line += 1;
    }
    if !words.is_empty() {
        found.push(sentence(begins, &mut words));
    }
    found
}

fn sentence(line: usize, words: &mut Vec<String>) -> Sentence {
    let is_word = |word: &&String| word.contains(char::is_alphanumeric);
    let begins = words.iter().take(6).cloned().collect::<Vec<_>>().join(" ");
    let sentence = Sentence { line, words: words.iter().filter(is_word).count(), begins };
    words.clear();
    sentence
}

#[test]
fn readme_is_a_landing_page() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= README_WORDS, "README.md: {words} words, and {README_WORDS} at most");
}

#[test]
fn sentences_are_short() {
    let mut offenders = Vec::new();
    for (path, text) in pages() {
        let path = path.display();
        let all: Vec<Sentence> = blocks(&text).iter().flat_map(sentences).collect();
        let words: usize = all.iter().map(|sentence| sentence.words).sum();
        let mean = words as f64 / all.len().max(1) as f64;
        if mean > MEAN_WORDS {
            offenders.push(format!("{path}: a sentence has {mean:.1} words in the mean"));
        }
        let long: Vec<_> = all.iter().filter(|sentence| sentence.words > LONG_WORDS).collect();
        if long.len() as f64 > LONG_SHARE * all.len() as f64 {
            let describe =
                |s: &&Sentence| format!("{path}:{}: {} words: {} ...", s.line, s.words, s.begins);
            offenders.extend(long.iter().map(describe));
        }
    }
    none("sentences are too long", &offenders);
}

#[test]
fn pages_are_wrapped() {
    let mut offenders = Vec::new();
    for (path, text) in pages() {
        for (line, text) in lines(&text) {
            let columns = text.chars().count();
            if columns > PAGE_COLUMNS && !is_table(text) && !text.starts_with("![") {
                offenders.push(format!("{}:{line}: {columns} columns", path.display()));
            }
        }
    }
    none("lines are too long", &offenders);
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |(_, line): (usize, &str)| {
        let title = line.trim_start_matches('#').strip_prefix(' ')?;
        line.starts_with('#').then(|| anchor(title))
    };
    lines(page).filter_map(heading).collect()
}

fn anchor(title: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    title.chars().filter_map(kept).collect()
}

/// Where the links of a line lead.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Without `.` and `..`, which need not exist for a comparison.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(flat.pop()),
            Component::CurDir => {}
            part => flat.push(part),
        }
    }
    flat
}

#[test]
fn every_link_leads_to_a_page() {
    let mut offenders = Vec::new();
    let mut seen = 0;
    for (path, text) in pages() {
        for (line, text) in lines(&text) {
            for link in links(text).filter(|link| !link.contains("://")) {
                seen += 1;
                let (page, part) = link.split_once('#').unwrap_or((link, ""));
                let beside = path.parent().unwrap_or(Path::new(""));
                let to = if page.is_empty() { path.clone() } else { flat(&beside.join(page)) };
                let is_part = |page: String| part.is_empty() || anchors(&page).contains(part);
                let there = match root().join(&to) {
                    to if part.is_empty() => to.exists(),
                    to => fs::read_to_string(to).is_ok_and(is_part),
                };
                if !there {
                    offenders.push(format!("{}:{line}: {link}", path.display()));
                }
            }
        }
    }
    none("a link leads nowhere", &offenders);
    assert!(seen > 50, "only {seen} links were found: the pages are written another way");
}

#[test]
fn the_guide_to_the_library_has_the_example() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a page");
    let example = read("crates/io/examples/send.rs");
    let (_, example) = example.split_once("\nuse ").expect("its imports");
    let guide = read("docs/guide/library.md");
    assert!(guide.contains(example), "docs/guide/library.md has not crates/io/examples/send.rs");
}

/// The messages in the guide to troubleshooting are messages of the program.
#[test]
fn every_message_that_is_explained_exists() {
    let path = "docs/guide/troubleshooting.md";
    let page = fs::read_to_string(root().join(path)).expect(path);
    let (_, messages) = page.split_once("\n## By message\n").expect("the messages");
    // A message may be wrapped in the source.
    let sources = super::sources().into_iter().filter(|(path, _)| path.contains("/src/"));
    let sources: String = sources.map(|(_, text)| text.replace("\\\n", "\n")).collect();
    let sources = sources.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = messages.lines().filter_map(|line| line.strip_prefix("| `"));
    let cited: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let missing = cited.iter().filter(|message| !sources.contains(**message));
    let offenders: Vec<String> = missing.map(|message| format!("{path}: {message}")).collect();
    none("no source has this message", &offenders);
    assert!(cited.len() > 20, "only {} messages were found", cited.len());
}

/// A page that names a test names one that exists.
#[test]
fn every_test_that_a_page_names_exists() {
    let mut sources: String = super::sources().into_iter().map(|(_, text)| text).collect();
    for file in fs::read_dir(root().join("python/tests")).expect("Python's tests").flatten() {
        sources += &fs::read_to_string(file.path()).unwrap_or_default();
    }
    let is_name = |span: &&str| {
        span.matches('_').count() > 2
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let names = sources.split("fn ").chain(sources.split("def "));
    let names: BTreeSet<&str> = names.filter_map(|rest| Some(rest.split_once('(')?.0)).collect();
    let is_missing = |name: &&str| !names.contains(name);
    let mut offenders = Vec::new();
    let mut seen = 0;
    let names_tests = |path: &Path| {
        [DECISIONS, PROTOCOL].iter().any(|folder| path.starts_with(folder))
            || PAGES_OF_TESTS.iter().any(|page| path == Path::new(page))
    };
    for (path, text) in pages().into_iter().filter(|(path, _)| names_tests(path)) {
        let page = path.display();
        let cited: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_name).collect();
        seen += cited.len();
        let missing = cited.into_iter().filter(is_missing);
        offenders.extend(missing.map(|name| format!("{page}: {name}")));
    }
    none("no test has this name", &offenders);
    assert!(seen > 150, "only {seen} names were found: the pages are written another way");
}

/// The reference of traces has every event, field and word that a trace may have.
#[test]
fn every_field_of_a_trace_is_in_its_reference() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect(path);
    let page = read("docs/reference/trace.md");
    let json = read("crates/proto/src/trace/json.rs") + &read("crates/proto/src/timers.rs");
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for start in [".word(\"", ".number(\"", ".maybe(\"", "=> \""] {
        names.extend(json.split(start).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    let file = read("crates/io/src/net/trace_file.rs");
    // What stands before `":` is a name.
    let mut pieces = file.split("\":").peekable();
    while let (Some(piece), Some(_)) = (pieces.next(), pieces.peek()) {
        names.extend(piece.rsplit('"').next());
    }
    let is_name =
        |name: &&&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let names: Vec<&str> = names.iter().filter(is_name).copied().collect();
    let missing = names.iter().filter(|name| !page.contains(&format!("`{name}`")));
    let offenders: Vec<String> = missing.map(|name| (*name).to_owned()).collect();
    none("docs/reference/trace.md lacks", &offenders);
    assert!(names.len() > 80, "only {} names were found", names.len());
}

#[test]
fn sentences_are_counted() {
    let page = concat!(
        "# T\n\nOne two `a b c` [four](x.md).\nFive\nsix: seven? No. 5\n\n",
        "- Item one\n  goes on.\n1. Second.\n\n| a | b |\n\n```sh\nno words. Here.\n```\n",
    );
    let blocks = blocks(page);
    let found: Vec<_> = blocks.iter().flat_map(sentences).map(|s| (s.line, s.words)).collect();
    assert_eq!(found, [(3, 4), (4, 3), (5, 1), (5, 1), (7, 4), (9, 1)]);
    assert_eq!(anchor("What limited a transfer?"), "what-limited-a-transfer");
}
