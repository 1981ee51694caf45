//! Names and words of the code: a type's name stands once in a crate, a parameter is no tuple, and
//! comments and texts are in plain words.

use std::collections::BTreeMap;

use super::{none, sources};

/// Names that may stand more than once in a crate, and why.
const TWICE: [(&str, &str, &str); 5] = [
    ("commands", "Args", "clap's name for the options of a command, one in each command's file"),
    ("lab", "Args", "clap's name for the options of a command, one in each command's file"),
    ("commands", "Command", "clap's name for the subcommands of a command"),
    ("lab", "Command", "clap's name for the subcommands of a command"),
    ("relay", "Waiter", "one of the two is compiled, by the operating system"),
];
/// Functions whose parameter is a tuple: there may be fewer, not more.
const TUPLES: usize = 71;
/// Words of a dialect that outsiders cannot read.
const WORDS: [&str; 6] = ["told", "nobody", "somebody", "whoever", "anew", "heard"];
/// Lines with such a word that stay: the secret of an open bench server, which is on the wire.
const LINES: usize = 1;

/// The sources of the crates without their tests.
fn code() -> Vec<(String, String)> {
    let is_code = |path: &str| {
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        path.starts_with("crates/") && path.contains("/src/") && !is_test
    };
    let all = sources().into_iter().filter(|(path, _)| is_code(path));
    all.map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

/// What comes before the module of tests.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// The names of structs, enums, traits and unions.
fn types(text: &str) -> Vec<&str> {
    let name = |line| {
        let line: &str = line;
        let words = line.trim_start();
        let words = match words.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
            Some(rest) => rest.trim_start(),
            None => words,
        };
        let (kind, rest) = words.split_once(' ')?;
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        ["struct", "enum", "trait", "union"].contains(&kind).then_some(&rest[..end])
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn a_types_name_stands_once_in_a_crate() {
    let code = code();
    let mut found: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (path, text) in &code {
        let of = path.split('/').nth(1).expect("a crate");
        types(text).into_iter().for_each(|name| found.entry((of, name)).or_default().push(path));
    }
    let is_allowed = |of: &str, name: &str| TWICE.iter().any(|one| (one.0, one.1) == (of, name));
    let twice = |((of, name), paths): ((&str, &str), Vec<&str>)| {
        let is_twice = paths.len() > 1 && !is_allowed(of, name);
        is_twice.then(|| format!("{name}: {}", paths.join(", ")))
    };
    let offenders: Vec<String> = found.into_iter().filter_map(twice).collect();
    none("a type's name stands twice in a crate", &offenders);
}

/// The end of what begins at the bracket at `start`.
fn closing(text: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The functions that take a tuple, by line and name.
fn takes_a_tuple(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut line = 0;
    let mut at = 0;
    for row in text.split_inclusive('\n') {
        (line, at) = (line + 1, at + row.len());
        let Some(begin) = row.find("fn ").filter(|_| !row.trim_start().starts_with("//")) else {
            continue;
        };
        let start = at - row.len() + begin + 3;
        let end = text[start..].find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &text[start..start + end.unwrap_or(0)];
        let Some(open) = text[start..].find('(').map(|offset| start + offset) else { continue };
        let parameters = &text[open + 1..closing(text.as_bytes(), open)];
        if !name.is_empty() && has_a_tuple(parameters) {
            found.push((line, name));
        }
    }
    found
}

/// Whether a parameter's type is a tuple.
fn has_a_tuple(parameters: &str) -> bool {
    let bytes = parameters.as_bytes();
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' if depth == 0 && parameters[..at].ends_with(": ") => {
                let within = &parameters[at + 1..closing(bytes, at)];
                if within.contains(',') {
                    return true;
                }
                depth += 1;
            }
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'>' if !parameters[..at].ends_with('-') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[test]
fn no_more_parameters_are_tuples() {
    let mut offenders = Vec::new();
    for (path, text) in code() {
        for (line, name) in takes_a_tuple(&text) {
            offenders.push(format!("{path}:{line}: {name}"));
        }
    }
    let (count, list) = (offenders.len(), offenders.join("\n"));
    assert!(count <= TUPLES, "{count} functions take a tuple, not {TUPLES}:\n{list}");
}

/// Whether a line has one of the words in a comment or a text.
fn is_dialect(line: &str) -> bool {
    let lower = line.to_lowercase();
    let is_text = |at: usize| {
        let before = &lower[..at];
        before.contains("//") || before.matches('"').count() % 2 == 1
    };
    let has = |word: &&str| {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        lower.match_indices(*word).any(|(at, _)| {
            let (before, after) = (&lower[..at], &lower[at + word.len()..]);
            let whole = !is_part(before.chars().last()) && !is_part(after.chars().next());
            whole && is_text(at)
        })
    };
    WORDS.iter().any(has)
}

#[test]
fn comments_and_texts_are_in_plain_words() {
    let mut offenders = Vec::new();
    for (path, text) in code() {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| is_dialect(line)) {
            offenders.push(format!("{path}:{}: {}", i + 1, line.trim()));
        }
    }
    let (count, list) = (offenders.len(), offenders.join("\n"));
    assert!(count <= LINES, "{WORDS:?} in {count} lines, not {LINES}:\n{list}");
}

#[test]
fn planted_offences_are_found() {
    let text = "pub struct A;\n    pub(crate) enum B<T> {\nstructure\n\
                #[cfg(test)]\nmod tests {\nstruct C;";
    assert_eq!(types(without_tests(text)), ["A", "B"]);
    for (tuple, code) in [
        (true, "fn f((a, b): (u8, u8)) {}"),
        (true, "    pub fn g<T>(\n        &self,\n        at: (T, u8),\n    ) {"),
        (false, "fn h(a: Vec<(u8, u8)>, f: impl Fn((u8, u8)), g: &(dyn Fn(u8, u8) + Sync)) {}"),
        (false, "fn i(a: [(u8, u8); 2], b: (), c: &mut (u8)) -> (u8, u8) {}"),
        (false, "// fn j(a: (u8, u8))"),
    ] {
        assert_eq!(!takes_a_tuple(code).is_empty(), tuple, "{code}");
    }
    for (dialect, line) in [
        (true, "/// What it is told."),
        (true, r#"    panic!("nobody answers");"#),
        (true, "let a = 1; // Anew."),
        (false, "let told = heard();"),
        (false, "/// The untold, and a_told_b."),
        (false, r#"f("a", told, "b")"#),
    ] {
        assert_eq!(is_dialect(line), dialect, "{line}");
    }
}
