//! Patterns as shells have them, for names that are any bytes. It reads no directory.
//!
//! A character is a character of UTF-8 where the bytes are one, and else a single byte.

/// `*`, `?`, `[...]` and `[!...]` within a part of a name, and `**` for any number of parts. A
/// backslash is a backslash: brackets quote a wildcard (`[*]`).
///
/// ```
/// use netblt::Pattern;
///
/// let pattern = Pattern::new(b"logs/*.txt").unwrap();
/// assert!(pattern.matches(b"logs/\xff.txt", true));
/// assert!(!pattern.matches(b"logs/old/a.txt", true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<PatternPart>);

/// One part, between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    /// Any number of parts; at the end of a pattern one at least.
    Deep,
    One(Vec<Token>),
}

/// A token, which matches one character, or any number of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Is(Character),
    Any,
    Star,
    /// One of these ranges, or none of them.
    Set(Vec<(Character, Character)>, bool),
}

/// A character's number; of a byte that is part of none, a number beyond all of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Character(u32);

const DOT: Character = Character('.' as u32);
/// Beyond Unicode.
const BYTES: u32 = 0x11_0000;

impl Pattern {
    /// Parses a pattern, or returns why it is invalid.
    pub fn new(text: &[u8]) -> Result<Self, &'static str> {
        text.split(|byte| *byte == b'/').map(PatternPart::new).collect::<Result<_, _>>().map(Self)
    }

    /// Whether all of a name matches. `hidden`: a wildcard also matches the dot at the start of a
    /// part.
    pub fn matches(&self, name: &[u8], hidden: bool) -> bool {
        let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
        let (mut at, mut own) = (0, 0);
        // The last `**`, and the first part that it does not match yet.
        let mut deep = None;
        while let Some(part) = parts.get(at) {
            match self.0.get(own) {
                Some(PatternPart::Deep) if own + 1 == self.0.len() => {
                    return parts[at..].iter().all(|part| hidden || !part.starts_with(b"."));
                }
                Some(PatternPart::Deep) => {
                    deep = Some((own, at));
                    own += 1;
                }
                Some(PatternPart::One(tokens)) if matches(tokens, part, hidden) => {
                    (at, own) = (at + 1, own + 1);
                }
                _ => {
                    let Some((stands, from)) = deep else { return false };
                    if !hidden && parts.get(from).is_some_and(|part| part.starts_with(b".")) {
                        return false;
                    }
                    deep = Some((stands, from + 1));
                    (at, own) = (from + 1, stands + 1);
                }
            }
        }
        own == self.0.len()
    }
}

impl PatternPart {
    fn new(text: &[u8]) -> Result<Self, &'static str> {
        if text == b"**" {
            return Ok(Self::Deep);
        }
        let (mut tokens, mut rest) = (Vec::new(), text);
        while let Some((character, after)) = first(rest) {
            rest = after;
            tokens.push(match char::from_u32(character.0) {
                Some('*') if rest.starts_with(b"*") || tokens.last() == Some(&Token::Star) => {
                    return Err("`**` is no part of a name but stands alone between slashes");
                }
                Some('*') => Token::Star,
                Some('?') => Token::Any,
                Some('[') => {
                    let (set, after) = set(rest).ok_or("a bracket is not closed")?;
                    rest = after;
                    set
                }
                _ => Token::Is(character),
            });
        }
        Ok(Self::One(tokens))
    }
}

/// The set in brackets, up to the closing one, and the rest.
fn set(text: &[u8]) -> Option<(Token, &[u8])> {
    let (negated, mut rest) = match text.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut ranges = Vec::new();
    loop {
        let (from, after) = first(rest)?;
        if from == Character(']'.into()) && !ranges.is_empty() {
            return Some((Token::Set(ranges, negated), after));
        }
        rest = after;
        let range = after.strip_prefix(b"-").filter(|after| !after.starts_with(b"]"));
        match range {
            Some(after) => {
                let (to, after) = first(after)?;
                rest = after;
                ranges.push((from, to));
            }
            None => ranges.push((from, from)),
        }
    }
}

/// Whether one part of a name is what these say.
fn matches(tokens: &[Token], part: &[u8], hidden: bool) -> bool {
    let begins = |token: &Token| *token == Token::Is(DOT);
    if !hidden && part.starts_with(b".") && !tokens.first().is_some_and(begins) {
        return false;
    }
    let (mut rest, mut own) = (part, 0);
    // The last star, and the rest that it does not match yet.
    let mut star = None;
    loop {
        let next = first(rest);
        match (tokens.get(own), next) {
            (None, None) => return true,
            (Some(Token::Star), _) => {
                star = Some((own, rest));
                own += 1;
            }
            (Some(token), Some((character, after))) if token.takes(character) => {
                (rest, own) = (after, own + 1);
            }
            _ => {
                let longer = star.and_then(|(at, from)| Some((at, first(from)?.1)));
                let Some((at, from)) = longer else { return false };
                star = longer;
                (rest, own) = (from, at + 1);
            }
        }
    }
}

impl Token {
    fn takes(&self, character: Character) -> bool {
        match self {
            Self::Is(own) => *own == character,
            Self::Any | Self::Star => true,
            Self::Set(ranges, negated) => {
                let within =
                    |(from, to): &(Character, Character)| (*from..=*to).contains(&character);
                ranges.iter().any(within) != *negated
            }
        }
    }
}

/// The first character, and what follows it.
fn first(text: &[u8]) -> Option<(Character, &[u8])> {
    let (byte, after) = text.split_first()?;
    if byte.is_ascii() {
        return Some((Character((*byte).into()), after));
    }
    let some = text.get(..4.min(text.len()))?;
    let valid = some.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    match valid.chars().next() {
        Some(c) => Some((Character(c.into()), text.get(c.len_utf8()..)?)),
        None => Some((Character(BYTES + u32::from(*byte)), after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bytes() {
        for (pattern, name, hidden, matches) in [
            (&b"a*"[..], &b"a\xff"[..], false, true),
            (b"*", b"\xff\xfe", false, true),
            (b"?", b"\xff", false, true),
            (b"?", b"\xff\xfe", false, false),
            (b"?", "ü".as_bytes(), false, true),
            (b"??", "ü".as_bytes(), false, false),
            (b"z\xff", b"z\xff", false, true),
            (b"z\xff", b"z\xfe", false, false),
            (b"z[\xf0-\xff]", b"z\xfe", false, true),
            (b"z[!\xfe]", b"z\xff", false, true),
            (b"z[!\xfe]", b"z\xfe", false, false),
            // U+FFFD is a character of its own, and unequal to an invalid byte.
            (b"z\xff", "z\u{fffd}".as_bytes(), false, false),
            (b"[a-]", b"-", false, true),
            (b"[]]x", b"]x", false, true),
            (b"[*]", b"*", false, true),
            (b"[*]", b"a", false, false),
            (b"a*b*c", b"a++b++b+c", false, true),
            (b"a*b*c", b"a++b++b+d", false, false),
            (b"", b"", false, true),
            (b"", b"a", false, false),
            (b"*", b".a", false, false),
            (b"*", b".a", true, true),
            (b"?a", b".a", false, false),
            (b"[.]a", b".a", false, false),
            (b".*", b".a", false, true),
            (b"d/*", b"d/e/f", true, false),
            (b"**/f", b"f", true, true),
            (b"**/f", b"d/e/f", true, true),
            (b"**/f", b".d/f", false, false),
            (b"d/**", b"d", true, false),
            (b"d/**", b"d/e/f", true, true),
            (b"d/**", b"d/e/.f", false, false),
            (b"a/**/b/**/c", b"a/x/b/y/b/c", true, true),
            (b"a/**/b/**/c", b"a/x/y/b/d", true, false),
        ] {
            let compiled = Pattern::new(pattern).expect("a pattern");
            let found = compiled.matches(name, hidden);
            assert_eq!(found, matches, "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        for bad in [&b"["[..], b"[a", b"[]", b"a**", b"**a", b"***", b"[a/b]"] {
            assert!(Pattern::new(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn many_stars_in_a_pattern_take_little_time() {
        let stars = Pattern::new([&b"*a".repeat(200)[..], b"b"].concat().as_slice());
        assert!(!stars.expect("a pattern").matches(&b"a".repeat(20_000), true));
        let deep = Pattern::new([&b"**/a/".repeat(60)[..], b"b"].concat().as_slice());
        assert!(!deep.expect("a pattern").matches(&b"a/".repeat(2000), true));
    }
}
