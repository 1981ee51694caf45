//! Reads `~/.config/netblt/config`.
//!
//! ```text
//! # Of two values for a key the first one holds.
//! Host archive *.example.org
//!     rate 200Mbit
//!     key ~/.config/netblt/archive
//! Host *
//!     policy background
//! ```

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use netblt::Pattern;
use netblt::keys::file::place;

use crate::config::key::Key;
use crate::exit::{Code, Failure};

/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// A line with a value.
#[derive(Debug)]
struct Entry {
    /// The patterns of the `Host` line above it; `None` before the first one.
    hosts: Option<Vec<HostPattern>>,
    key: Key,
    value: String,
    line: usize,
}

/// A pattern of a `Host` line.
#[derive(Clone, Debug)]
struct HostPattern {
    negated: bool,
    pattern: Pattern,
}

/// The value of a key for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: Key,
    pub(crate) value: String,
    /// File and line, such as `/home/me/.config/netblt/config:3`.
    pub(crate) origin: String,
}

impl ConfigFile {
    /// The path of the user's file: `$XDG_CONFIG_HOME/netblt/config` or `~/.config/netblt/config`.
    pub(crate) fn path() -> Option<PathBuf> {
        place("config")
    }

    /// The user's file; an empty one if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be read, another user may change it, or a line is invalid.
    pub(crate) fn load() -> Result<Self, Failure> {
        match Self::path() {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::new(Code::File, format!("{}: {error}", path.display()));
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let status = file.metadata().map_err(failed)?;
        // The file names programs to start and keys to use.
        let own = status.uid() == 0 || status.uid() == rustix::process::geteuid().as_raw();
        if !own || status.mode() & 0o022 != 0 {
            return Err(Failure::usage(format!(
                "{}: other users may change it: chmod go-w it, and own it",
                path.display()
            )));
        }
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(Failure::usage(format!("{}: it is larger than 1 MiB", path.display())));
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let (mut entries, mut hosts) = (Vec::new(), None);
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = |why: String| Failure::usage(format!("{}:{line}: {why}", path.display()));
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            let value = unquoted(rest.trim_start_matches(|c: char| c.is_whitespace() || c == '='));
            if value.is_empty() {
                return Err(wrong(format!("{name} has no value")));
            }
            if name.eq_ignore_ascii_case("host") {
                let patterns = value.split_whitespace().map(HostPattern::parse);
                hosts = Some(patterns.collect::<Result<Vec<_>, _>>().map_err(wrong)?);
                continue;
            }
            let key = Key::named(name).ok_or_else(|| {
                let known = Key::ALL.map(|key| key.name).join(", ");
                wrong(format!("unknown key {name}; the keys are Host, {known}"))
            })?;
            entries.push(Entry { hosts: hosts.clone(), key, value: value.to_owned(), line });
        }
        Ok(Self { path: path.to_owned(), entries })
    }

    /// The settings for a host, in the order of [`Key::ALL`]. Each has the first value in the file
    /// for its key and this host.
    pub(crate) fn settings(&self, host: &str) -> Vec<Setting> {
        let host = host.to_ascii_lowercase();
        let first = |key: Key| {
            let fits = |entry: &&Entry| entry.key == key && entry.is_for(&host);
            self.entries.iter().find(fits)
        };
        let found = Key::ALL.into_iter().filter_map(first);
        found.map(|entry| self.setting(entry)).collect()
    }

    fn setting(&self, entry: &Entry) -> Setting {
        let home = || std::env::var_os("HOME").map(|home| home.into_vec());
        let value = match entry.value.strip_prefix("~/").filter(|_| entry.key.is_path) {
            Some(rest) => match home().and_then(|home| String::from_utf8(home).ok()) {
                Some(home) => format!("{home}/{rest}"),
                None => entry.value.clone(),
            },
            None => entry.value.clone(),
        };
        let origin = format!("{}:{}", self.path.display(), entry.line);
        Setting { key: entry.key, value, origin }
    }
}

impl Entry {
    /// Whether the entry is for a host, by ssh's rule: a pattern matches, and no negated one does.
    fn is_for(&self, host: &str) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let fits = |pattern: &&HostPattern| pattern.pattern.matches(host.as_bytes(), false);
        let (negated, plain): (Vec<_>, Vec<_>) =
            hosts.iter().filter(fits).partition(|one| one.negated);
        negated.is_empty() && !plain.is_empty()
    }
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (negated, pattern) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let pattern = Pattern::new(pattern.to_ascii_lowercase().as_bytes())
            .map_err(|why| format!("{text}: {why}"))?;
        Ok(Self { negated, pattern })
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(Path::new("c"), text).map_err(|failure| failure.message)
    }

    fn holds(text: &str, host: &str) -> Vec<(&'static str, String, String)> {
        let settings = parse(text).expect("a file").settings(host);
        settings.into_iter().map(|one| (one.key.name, one.value, one.origin)).collect()
    }

    const FILE: &str = "\
# first
streams 2

Host archive *.Example.org !old.example.org
    rate 200Mbit
    remote-netblt = \"/opt/my net/netblt\"
Host *
    Rate 1Mbit
    policy background
";

    #[test]
    fn of_two_values_the_first_one_holds() {
        let of = |name, value: &str, line| (name, value.to_owned(), format!("c:{line}"));
        let everywhere = [of("policy", "background", 9), of("streams", "2", 2)];
        let here =
            |rate: (&'static str, String, String)| [vec![rate], everywhere.to_vec()].concat();
        for host in ["archive", "a.example.org", "A.EXAMPLE.ORG"] {
            let mut expected = here(of("rate", "200Mbit", 5));
            expected.push(of("remote-netblt", "/opt/my net/netblt", 6));
            assert_eq!(holds(FILE, host), expected, "{host}");
        }
        for host in ["old.example.org", "other"] {
            assert_eq!(holds(FILE, host), here(of("rate", "1Mbit", 8)), "{host}");
        }
        assert_eq!(holds("", "other"), []);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, says) in [
            ("rate 1Mbit\nspeed 2", "c:2: unknown key speed; the keys are Host, rate, policy"),
            ("\n\nrate", "c:3: rate has no value"),
            ("Host", "c:1: Host has no value"),
            ("Host [", "c:1: [: "),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config");
        assert!(ConfigFile::read(&path).expect("none").entries.is_empty());
        fs::write(&path, FILE).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert_eq!(ConfigFile::read(&path).expect("read").entries.len(), 5);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("set");
        let failure = ConfigFile::read(&path).expect_err("refused");
        assert!(failure.message.contains("other users may change it"), "{failure:?}");
    }
}
