//! Rules of `--include` and `--exclude`, with the meaning that rsync gives them.

use std::fmt;

use crate::error::{Error, OptionsError, shown};

/// A rule of a [`Filter`], as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FilterRule {
    /// Whether a name that matches is included.
    pub include: bool,
    /// The pattern, in rsync's syntax.
    pub pattern: Vec<u8>,
}

/// Decides which names a mirror consists of. The first rule whose pattern matches decides, and a
/// name that matches none is included. What is beneath an excluded directory is excluded.
///
/// A pattern that begins with `/` is compared from the root of the tree on, any other from any
/// slash on. One that ends with `/` is for directories only. `*` and `?` match no slash, `**` does,
/// `[...]` matches one character of a set, and `\` takes a wildcard literally. `dir/***` matches
/// the directory and all that is in it. A pattern without a slash and without `**` is compared
/// with the last part of a name.
///
/// ```
/// use netblt::mirror::{Filter, FilterRule};
///
/// let rule = |include, pattern: &str| FilterRule { include, pattern: pattern.into() };
/// let filter = Filter::new(&[rule(true, "*/"), rule(true, "*.fits"), rule(false, "*")])?;
/// assert!(filter.includes(b"night/a.fits", false));
/// assert!(!filter.includes(b"night/a.log", false));
/// # Ok::<(), netblt::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Filter(Vec<Compiled>);

#[derive(Clone)]
struct Compiled {
    include: bool,
    directories_only: bool,
    /// From the root of the tree on, and not from any slash on.
    anchored: bool,
    /// Compared with the last part of a name alone.
    last_part: bool,
    tokens: Vec<WildToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WildToken {
    Is(u8),
    /// Any byte but a slash.
    Any,
    /// Any number of bytes but slashes.
    Star,
    /// Any number of bytes.
    DeepStar,
    /// A slash and any number of bytes, or the end of the name (`/***`).
    Beneath,
    Set {
        ranges: ByteRanges,
        negated: bool,
    },
}

/// Bytes, each range from the first to the last.
type ByteRanges = Vec<(u8, u8)>;

impl Filter {
    /// Parses the rules.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] names a pattern that is empty, or has a bracket that is not closed.
    pub fn new(rules: &[FilterRule]) -> Result<Self, Error> {
        let compile = |rule: &FilterRule| {
            Compiled::new(rule).map_err(|why| {
                let text = shown(&rule.pattern);
                Error::from(OptionsError::Pattern { text, why: why.to_owned() })
            })
        };
        rules.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an entry of the tree is included, given that the directories above it are.
    pub fn includes(&self, name: &[u8], directory: bool) -> bool {
        let first = self.0.iter().find(|rule| rule.matches(name, directory));
        first.is_none_or(|rule| rule.include)
    }

    /// Whether an entry and all directories above it are included.
    pub fn includes_path(&self, name: &[u8], directory: bool) -> bool {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| name.get(..at).unwrap_or_default());
        above.all(|directory| self.includes(directory, true)) && self.includes(name, directory)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({} rules)", self.0.len())
    }
}

impl Compiled {
    fn new(rule: &FilterRule) -> Result<Self, &'static str> {
        let text = &rule.pattern[..];
        let (text, beneath) = match text.strip_suffix(b"/***") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (text, directories_only) = match text.strip_suffix(b"/") {
            Some(text) if !beneath => (text, true),
            _ => (text, false),
        };
        let (text, anchored) = match text.strip_prefix(b"/") {
            Some(text) => (text, true),
            None => (text, false),
        };
        // The root itself, as `/` or `/***`, is no name of an entry.
        if text.is_empty() && !beneath {
            return Err("it names nothing");
        }
        let mut tokens = tokens(text)?;
        let deep = tokens.contains(&WildToken::DeepStar);
        let last_part = !anchored && !beneath && !deep && !text.contains(&b'/');
        if beneath {
            tokens.push(WildToken::Beneath);
        }
        let include = rule.include;
        Ok(Self { include, directories_only, anchored, last_part, tokens })
    }

    fn matches(&self, name: &[u8], directory: bool) -> bool {
        if self.directories_only && !directory {
            return false;
        }
        let start = match self.last_part {
            true => name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1),
            false => 0,
        };
        let anywhere = !self.anchored && !self.last_part;
        matches(&self.tokens, name.get(start..).unwrap_or_default(), directory, anywhere)
    }
}

fn tokens(text: &[u8]) -> Result<Vec<WildToken>, &'static str> {
    // Without a wildcard a backslash is an ordinary byte.
    let wild = text.iter().any(|byte| b"*?[".contains(byte));
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        tokens.push(match byte {
            b'\\' if wild => {
                let (byte, after) = rest.split_first().ok_or("it ends with a backslash")?;
                rest = after;
                WildToken::Is(*byte)
            }
            b'?' => WildToken::Any,
            b'*' if rest.starts_with(b"*") => {
                while let Some(after) = rest.strip_prefix(b"*") {
                    rest = after;
                }
                WildToken::DeepStar
            }
            b'*' => WildToken::Star,
            b'[' => {
                let (set, after) = set(rest).ok_or("a bracket is not closed")?;
                rest = after;
                set
            }
            byte => WildToken::Is(*byte),
        });
    }
    Ok(tokens)
}

/// The set in brackets, up to the closing one, and the rest.
fn set(text: &[u8]) -> Option<(WildToken, &[u8])> {
    let (negated, mut rest) = match text.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    loop {
        let (first, mut after) = rest.split_first()?;
        if *first == b']' && !ranges.is_empty() {
            return Some((WildToken::Set { ranges, negated }, after));
        }
        if let Some((class, after)) = class(rest) {
            ranges.extend(class);
            rest = after;
            continue;
        }
        let mut from = *first;
        if from == b'\\' {
            (from, after) = after.split_first().map(|(byte, after)| (*byte, after))?;
        }
        let range = after.strip_prefix(b"-").filter(|after| !after.starts_with(b"]"));
        let to = match range {
            Some(behind) => {
                let (mut to, mut behind) = behind.split_first()?;
                if *to == b'\\' {
                    (to, behind) = behind.split_first()?;
                }
                after = behind;
                *to
            }
            None => from,
        };
        ranges.push((from, to));
        rest = after;
    }
}

/// A class such as `[:digit:]` at the start of a text, and the rest.
fn class(text: &[u8]) -> Option<(ByteRanges, &[u8])> {
    let text = text.strip_prefix(b"[:")?;
    let end = text.windows(2).position(|pair| pair == b":]")?;
    let is_of: fn(&u8) -> bool = match text.get(..end)? {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| byte.is_ascii_whitespace() || *byte == 0x0b,
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    let members = (0..=u8::MAX).filter(is_of).map(|byte| (byte, byte)).collect();
    Some((members, text.get(end + 2..)?))
}

/// Whether a name is what the tokens say; `anywhere`: or the rest of it after a slash. All
/// positions that a prefix of the name can have in the tokens are followed at once, so that no
/// pattern takes more than their product in time.
fn matches(tokens: &[WildToken], name: &[u8], directory: bool, anywhere: bool) -> bool {
    let mut here = vec![false; tokens.len() + 1];
    here[0] = true;
    pass_stars(tokens, &mut here);
    for byte in name {
        let mut next = vec![false; tokens.len() + 1];
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| here[*at]) {
            let slash = *byte == b'/';
            match token {
                WildToken::Is(own) => next[at + 1] |= own == byte,
                WildToken::Any => next[at + 1] |= !slash,
                WildToken::Set { ranges, negated } => {
                    let within = ranges.iter().any(|(from, to)| (from..=to).contains(&byte));
                    next[at + 1] |= !slash && within != *negated;
                }
                WildToken::Star => next[at] |= !slash,
                WildToken::DeepStar => next[at] = true,
                // All that follows a slash matches.
                WildToken::Beneath if slash => return true,
                WildToken::Beneath => {}
            }
        }
        next[0] |= anywhere && *byte == b'/';
        pass_stars(tokens, &mut next);
        here = next;
    }
    let at_end = tokens.last() == Some(&WildToken::Beneath) && here[tokens.len() - 1] && directory;
    here[tokens.len()] || at_end
}

/// A star may match nothing.
fn pass_stars(tokens: &[WildToken], here: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if here[at] && matches!(token, WildToken::Star | WildToken::DeepStar) {
            here[at + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str, directory: bool) -> bool {
        let rule = FilterRule { include: false, pattern: pattern.into() };
        !Filter::new(&[rule]).expect(pattern).includes(name.as_bytes(), directory)
    }

    /// The cases of rsync(1), "PATTERN MATCHING RULES".
    #[test]
    fn patterns_mean_what_rsync_says() {
        for (pattern, name, directory, expected) in [
            ("*.o", "foo.o", false, true),
            ("*.o", "d/foo.o", false, true),
            ("*.o", "foo.os", false, false),
            ("/foo", "foo", false, true),
            ("/foo", "d/foo", false, false),
            ("foo/", "foo", true, true),
            ("foo/", "foo", false, false),
            ("/foo/*/bar", "foo/x/bar", false, true),
            ("/foo/*/bar", "foo/x/y/bar", false, false),
            ("/foo/**/bar", "foo/x/y/bar", false, true),
            ("foo/**/bar", "d/foo/x/y/bar", false, true),
            ("foo/bar", "d/foo/bar", false, true),
            ("foo/bar", "dfoo/bar", false, false),
            ("/foo/bar", "d/foo/bar", false, false),
            ("foo/***", "foo", true, true),
            ("foo/***", "foo", false, false),
            ("foo/***", "foo/x", false, true),
            ("foo/***", "d/foo/x/y", false, true),
            ("foo/***", "food", true, false),
            ("a**z", "a/b/z", false, true),
            ("**.c", "a/b.c", false, true),
            ("?", "a", false, true),
            ("?", "ab", false, false),
            ("[a-c]x", "bx", false, true),
            ("[!a-c]x", "bx", false, false),
            ("[^a-c]x", "dx", false, true),
            ("[[:digit:]]x", "7x", false, true),
            ("[[:digit:]]x", "ax", false, false),
            ("[]x]", "]", false, true),
            ("[a-]", "-", false, true),
            (r"\*x", "*x", false, true),
            (r"\*x", "ax", false, false),
            // Without a wildcard a backslash is a backslash.
            (r"a\b", r"a\b", false, true),
            ("*", "d/e", false, true),
            ("d/*", "d/e", false, true),
            ("d/*", "d/e/f", false, false),
            (".?*", ".x", false, true),
        ] {
            assert_eq!(matches(pattern, name, directory), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rule = |text: &str| {
            let (sign, pattern) = text.split_at(1);
            FilterRule { include: sign == "+", pattern: pattern.into() }
        };
        let filter = |rules: &[&str]| {
            let rules: Vec<_> = rules.iter().map(|text| rule(text)).collect();
            Filter::new(&rules).expect("rules")
        };
        let one = filter(&["+/keep/***", "-/keep*", "+*.c", "-*.*"]);
        assert!(one.includes(b"keep/x.o", false) && !one.includes(b"keeper", false));
        assert!(one.includes(b"a.c", false) && !one.includes(b"a.h", false));
        assert!(one.includes(b"plain", false) && Filter::default().includes(b"x", true));
        // A directory that is excluded takes its contents with it.
        let two = filter(&["-/d", "+/d/x"]);
        assert!(two.includes(b"d/x", false) && !two.includes_path(b"d/x", false));
    }

    #[test]
    fn an_invalid_pattern_is_named() {
        for bad in ["", "/", "[", "[a", "*\\"] {
            let rule = FilterRule { include: false, pattern: bad.into() };
            let error = Filter::new(&[rule]).expect_err(bad).to_string();
            assert!(error.contains(&format!("\"{bad}\"")), "{error}");
        }
    }

    #[test]
    fn many_stars_take_little_time() {
        let pattern = format!("{}b", "**a".repeat(200));
        assert!(!matches(&pattern, &"a/".repeat(2000), false));
    }
}
