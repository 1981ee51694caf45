//! Patterns of files that a walk leaves out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::error::{Error, OptionsError, shown};
use crate::pattern::Pattern;

/// The patterns.
#[derive(Debug, Default)]
pub(crate) struct Exclude(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    pattern: Pattern,
    /// Compared with the whole name, and not with its last part.
    whole: bool,
    directories_only: bool,
}

impl Exclude {
    pub(crate) fn new(patterns: &[OsString]) -> Result<Self, Error> {
        patterns.iter().map(|text| Rule::new(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a file with this name, relative to the destination, is left out.
    pub(crate) fn matches(&self, name: &[u8], directory: bool) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.0.iter().any(|rule| {
            let compared = if rule.whole { name } else { last };
            (directory || !rule.directories_only) && rule.pattern.matches(compared, true)
        })
    }
}

impl Rule {
    fn new(text: &OsStr) -> Result<Self, Error> {
        let text = text.as_bytes();
        let (body, directories_only) = match text.strip_suffix(b"/") {
            Some(body) => (body, true),
            None => (text, false),
        };
        let whole = body.contains(&b'/');
        let wrong = |why: &str| OptionsError::Pattern { text: shown(text), why: why.to_owned() };
        let body = body.strip_prefix(b"/").unwrap_or(body);
        if body.is_empty() {
            return Err(wrong("it names nothing").into());
        }
        let pattern = Pattern::new(body).map_err(wrong)?;
        Ok(Self { pattern, whole, directories_only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_they_say() {
        for (pattern, name, directory, matches) in [
            ("*.o", "src/a.o", false, true),
            ("*.o", "src/a.os", false, false),
            (".git", "src/.git", true, true),
            ("target/", "src/target", true, true),
            ("target/", "src/target", false, false),
            ("src/*.c", "src/a.c", false, true),
            ("src/*.c", "src/deep/a.c", false, false),
            ("src/**/*.c", "src/deep/er/a.c", false, true),
            ("/src/a", "src/a", false, true),
            ("/src", "lib/src", true, false),
            ("?.txt", "x/ü.txt", false, true),
            ("[a-c]*", "b", false, true),
        ] {
            let exclude = Exclude::new(&[pattern.into()]).expect(pattern);
            assert_eq!(exclude.matches(name.as_bytes(), directory), matches, "{pattern} {name}");
        }
        let odd = Exclude::new(&[OsStr::from_bytes(b"z\xff").to_owned()]).expect("bytes");
        assert!(odd.matches(b"d/z\xff", false) && !odd.matches(b"d/z\xfe", false));
        assert!(!Exclude::default().matches(b"x", false));
    }

    #[test]
    fn an_invalid_exclude_pattern_is_named() {
        for bad in ["", "/", "a**b", "["] {
            let error = Exclude::new(&[bad.into()]).expect_err(bad).to_string();
            assert!(error.contains(&format!("\"{bad}\"")), "{error}");
        }
    }
}
