//! The keys that a server accepts, one a line, with the permissions of each.
//!
//! ```text
//! # options, if any, then the public line
//! netblt-x25519 <key> anna@lab
//! root="/srv/in coming",write-only,max-rate=500Mbit,expires=2027-01-31 netblt-x25519 <key> me
//! ```
//!
//! A line with an error admits no client, and is reported with its error.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt_proto::api::printable;
use netblt_proto::config::PublicKey;
use netblt_proto::units::Rate;

use super::line::{KIND, PublicLine, fingerprint};
use crate::error::Error;
use crate::permissions::Permissions;

/// Keys in a file at most: each costs 0.05 ms when it is read, and some 200 bytes.
pub const MAX_KEYS: usize = 65_536;
/// The longest file.
const MAX_BYTES: u64 = 64 << 20;
/// Sessions that one key can be allowed.
const MAX_SESSIONS: u32 = 4096;

/// A line that is ignored for an error in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidLine {
    /// Which file.
    pub path: PathBuf,
    /// Which line, from 1.
    pub line: usize,
    /// Its error, fit for a terminal.
    pub what: String,
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        write!(f, "{}, line {line}: {what}; it is ignored", path.display())
    }
}

/// The keys of a server's clients, and the permissions of each.
pub type Clients = Vec<(PublicKey, Permissions)>;

/// Parses a rate such as `500Mbit`, or returns its error.
pub type ReadRate<'a> = &'a dyn Fn(&str) -> Result<Rate, String>;

/// Reads the file: the keys with their permissions, each within those of `within`, and the lines
/// with errors. A file that others than its owner can change is refused.
pub fn read(
    path: &Path,
    within: &Permissions,
    rate: ReadRate<'_>,
) -> Result<(Clients, Vec<InvalidLine>), Error> {
    let failed = |what, source| Error::File { path: path.to_owned(), what, source };
    let odd = |what: &str| {
        let source = io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        failed("these keys cannot be used", source)
    };
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (about, file) = opened.map_err(|source| failed("cannot read the keys", source))?;
    if !about.is_file() {
        return Err(odd("not a file"));
    }
    if about.permissions().mode() & 0o022 != 0 {
        return Err(odd("others than its owner can change it: chmod go-w it"));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|source| failed("cannot read the keys", source))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(odd("it is longer than 64 MiB"));
    }
    let (clients, wrong) = parse(&text, within, rate);
    if clients.len() > MAX_KEYS {
        return Err(odd("there are more than 65,536 keys in it"));
    }
    let wrong = wrong.into_iter();
    let wrong = wrong.map(|(line, what)| InvalidLine { path: path.to_owned(), line, what });
    Ok((clients, wrong.collect()))
}

fn parse(text: &[u8], within: &Permissions, rate: ReadRate<'_>) -> (Clients, Vec<(usize, String)>) {
    let (mut all, mut wrong) = (Clients::new(), Vec::new());
    let mut lines: BTreeMap<PublicKey, usize> = BTreeMap::new();
    for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let Ok(text) = str::from_utf8(text) else {
            wrong.push((line, "it is no UTF-8".to_owned()));
            continue;
        };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match grant(text, within, rate) {
            Err(what) => wrong.push((line, what)),
            Ok((key, grant)) => match lines.insert(key, line) {
                None => all.push((key, grant)),
                Some(first) => {
                    lines.insert(key, first);
                    wrong.push((line, format!("its key stands in line {first} already")));
                }
            },
        }
    }
    (all, wrong)
}

/// A line: the key, and what its owner may do.
fn grant(
    text: &str,
    within: &Permissions,
    rate: ReadRate<'_>,
) -> Result<(PublicKey, Permissions), String> {
    let begins = text.strip_prefix(KIND).is_some_and(|rest| rest.starts_with(char::is_whitespace));
    let (options, rest) = if begins { (Vec::new(), text) } else { options(text)? };
    let PublicLine { key, comment } = rest.parse()?;
    let name = if comment.is_empty() { fingerprint(&key) } else { printable(&comment) };
    let mut grant = Permissions { name, ..within.clone() };
    let mut seen: Vec<String> = Vec::new();
    for (option, value) in options {
        if seen.contains(&option) {
            return Err(format!("{option} is given twice"));
        }
        apply(&mut grant, &option, value.as_deref(), rate)?;
        seen.push(option);
    }
    if ["read-only", "write-only"].iter().all(|only| seen.iter().any(|seen| seen == only)) {
        return Err("read-only and write-only together leave nothing".to_owned());
    }
    Ok((key, grant))
}

fn apply(
    grant: &mut Permissions,
    option: &str,
    value: Option<&str>,
    rate: ReadRate<'_>,
) -> Result<(), String> {
    let needed = || value.ok_or_else(|| format!("{option} needs a value: {option}=..."));
    let wrong = |text: &str, is: &str| format!("{option}={} is no {is}", printable(text));
    match option {
        "read-only" | "write-only" | "third-party" if value.is_some() => {
            return Err(format!("{option} takes no value"));
        }
        "read-only" => grant.write = false,
        "write-only" => grant.read = false,
        "third-party" => grant.third_party = true,
        "root" => {
            let root = needed()?;
            if root.is_empty() || Path::new(root).components().any(|part| part.as_os_str() == "..")
            {
                return Err(wrong(root, "path without .."));
            }
            grant.root = grant.root.join(root);
        }
        "max-rate" => {
            let read = rate(needed()?).map_err(|why| format!("max-rate: {}", printable(&why)))?;
            if read == Rate::ZERO {
                return Err("max-rate: the rate must be greater than zero".to_owned());
            }
            grant.max_rate = Some(grant.max_rate.map_or(read, |most| most.min(read)));
        }
        "max-sessions" => {
            let text = needed()?;
            let number = text.parse().ok().filter(|number| (1..=MAX_SESSIONS).contains(number));
            let is = format!("number from 1 to {MAX_SESSIONS}");
            let number = number.ok_or_else(|| wrong(text, &is))?;
            grant.max_sessions = Some(grant.max_sessions.map_or(number, |most| most.min(number)));
        }
        "expires" => {
            let text = needed()?;
            let is = "time such as 2027-01-31 or 2027-01-31T18:00:00Z";
            let time = time(text).ok_or_else(|| wrong(text, is))?;
            grant.expires = Some(grant.expires.map_or(time, |last| last.min(time)));
        }
        other => {
            return Err(format!(
                "\"{}\" is no option: there are root=, read-only, write-only, third-party, \
                 max-rate=, max-sessions= and expires=",
                printable(other)
            ));
        }
    }
    Ok(())
}

/// An option, in small letters, and its value.
type KeyOption = (String, Option<String>);

/// The options before the key, and the rest of the line. Commas separate them. Values in quotes may
/// contain commas and spaces; in quotes `\"` is a quote and `\\` a backslash.
fn options(text: &str) -> Result<(Vec<KeyOption>, &str), String> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| c == '=' || c == ',' || c.is_whitespace());
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        if name.is_empty() {
            return Err("an option is empty: one comma separates two options".to_owned());
        }
        let (value, after) = match after.strip_prefix('=') {
            None => (None, after),
            Some(after) => {
                let (value, after) = value(after)?;
                (Some(value), after)
            }
        };
        all.push((name.to_ascii_lowercase(), value));
        if let Some(next) = after.strip_prefix(',') {
            rest = next;
        } else if after.is_empty() {
            return Err(format!("there is no {KIND} and key in it"));
        } else if after.starts_with(char::is_whitespace) {
            return Ok((all, after.trim_start()));
        } else {
            return Err("something stands behind a closing quote".to_owned());
        }
    }
}

fn value(text: &str) -> Result<(String, &str), String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        if value.contains('"') {
            return Err("a quote inside a value".to_owned());
        }
        return Ok((value.to_owned(), rest));
    };
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in quoted.char_indices() {
        match c {
            '"' | '\\' if escaped => value.push(c),
            _ if escaped => value.extend(['\\', c]),
            '\\' => {
                escaped = true;
                continue;
            }
            '"' => return Ok((value, &quoted[at + 1..])),
            _ => value.push(c),
        }
        escaped = false;
    }
    Err("a quote is not closed".to_owned())
}

/// `2027-01-31`, which is its beginning, or `2027-01-31T18:00:00Z`: UTC.
fn time(text: &str) -> Option<SystemTime> {
    let (date, clock) = match text.split_once('T') {
        Some((date, clock)) => (date, clock.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years that begin in March end with the day that leap years have more.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    // From 1 March of the year 0 to 1 January 1970.
    let seconds = (days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Three numbers with so many digits each.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts: [&str; 3] = parts.try_into().ok()?;
    let mut numbers = [0; 3];
    for ((number, part), digits) in numbers.iter_mut().zip(parts).zip(digits) {
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| plain)?;
    }
    Some(numbers)
}

#[cfg(test)]
#[path = "authorized_tests.rs"]
mod tests;
