//! Patterns for what is left out of a walk.

use glob::{MatchOptions, Pattern};

use crate::error::{Error, OptionsError};

/// Everything counts as it stands, and no star reaches over a slash.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// What is left out.
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
    pub(crate) fn new(patterns: &[String]) -> Result<Self, Error> {
        patterns.iter().map(|text| Rule::new(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a name, relative to the destination, is to be left out.
    pub(crate) fn matches(&self, name: &[u8], directory: bool) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let whole = String::from_utf8_lossy(name);
        let last = whole.rsplit('/').next().unwrap_or_default();
        self.0.iter().any(|rule| {
            let compared = if rule.whole { &whole } else { last };
            (directory || !rule.directories_only) && rule.pattern.matches_with(compared, OPTIONS)
        })
    }
}

impl Rule {
    fn new(text: &str) -> Result<Self, Error> {
        let (body, directories_only) = match text.strip_suffix('/') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let whole = body.contains('/');
        let wrong =
            |why: &str| OptionsError::Pattern { text: text.to_owned(), why: why.to_owned() };
        let body = body.strip_prefix('/').unwrap_or(body);
        if body.is_empty() {
            return Err(wrong("it names nothing").into());
        }
        let pattern = Pattern::new(body).map_err(|error| wrong(error.msg))?;
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
            let exclude = Exclude::new(&[pattern.to_owned()]).expect(pattern);
            assert_eq!(exclude.matches(name.as_bytes(), directory), matches, "{pattern} {name}");
        }
        assert!(!Exclude::default().matches(b"x", false));
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        for bad in ["", "/", "a**b", "["] {
            let error = Exclude::new(&[bad.to_owned()]).expect_err(bad).to_string();
            assert!(error.contains(&format!("\"{bad}\"")), "{error}");
        }
    }
}
