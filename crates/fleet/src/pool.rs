//! The servers of the other side, and how fast each task may be: `pool.toml` and `rate.toml`,
//! which people may change while tasks run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use netblt::Rate;
use serde::Deserialize;

use crate::error::{Error, at, damaged};
use crate::run::{Run, publish};

const POOL: &str = "pool.toml";
const RATE: &str = "rate.toml";

/// The servers, and what opens them. They serve the same directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    /// Each as `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// A ticket that opens all of them.
    pub ticket_file: Option<PathBuf>,
    /// A key that opens all of them.
    pub identity: Option<PathBuf>,
    /// The file with their keys.
    pub known_servers: Option<PathBuf>,
}

impl Pool {
    /// The pool of a run.
    pub fn read(run: &Run) -> Result<Self, Error> {
        let path = run.place.join(POOL);
        let text = fs::read_to_string(&path).map_err(at(&path, "cannot be read"))?;
        let pool: Self = toml::from_str(&text).map_err(|e| damaged(&path, e.message()))?;
        if pool.hosts.is_empty() {
            return Err(damaged(&path, "there is no host in it"));
        }
        Ok(pool)
    }

    /// Becomes that of a run.
    pub fn write(&self, run: &Run) -> Result<(), Error> {
        let path = run.place.join(POOL);
        // JSON's strings and lists are TOML's, too.
        let json = |value: &str| serde_json::to_string(value).map_err(|e| damaged(&path, e));
        let hosts = serde_json::to_string(&self.hosts).map_err(|e| damaged(&path, e))?;
        let mut text = format!("hosts = {hosts}\n");
        let paths = [
            ("ticket-file", &self.ticket_file),
            ("identity", &self.identity),
            ("known-servers", &self.known_servers),
        ];
        for (name, value) in paths {
            let Some(value) = value else { continue };
            let value = value.to_str().ok_or_else(|| {
                let why = "no path in it may have bytes that are no text";
                damaged(&path, format!("{why}: {}", value.display()))
            })?;
            text.push_str(&format!("{name} = {}\n", json(value)?));
        }
        publish(&path, text.as_bytes())
    }

    /// The order of hosts for a chunk's attempt of this number. All hosts get as many chunks as the
    /// others, and the first host of a chunk differs from attempt to attempt, without any
    /// coordination. A host that comes or goes changes only its own chunks.
    ///
    /// Chance would give some hosts more tasks at a time than others, and than their links carry.
    /// So of the first two, the one with fewer tasks, as far as `tasks` knows, is first
    /// (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001).
    pub fn order(
        &self,
        chunk: &[u8; 32],
        attempt: u64,
        tasks: impl Fn(&str) -> usize,
    ) -> Vec<&str> {
        let score = |host: &str| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(chunk).update(&attempt.to_be_bytes()).update(host.as_bytes());
            *hasher.finalize().as_bytes()
        };
        let mut hosts: Vec<_> = self.hosts.iter().map(|host| (score(host), &host[..])).collect();
        hosts.sort_unstable_by(|a, b| b.cmp(a));
        let mut hosts: Vec<&str> = hosts.into_iter().map(|(_, host)| host).collect();
        if let [first, second, ..] = &mut hosts[..]
            && tasks(second) < tasks(first)
        {
            std::mem::swap(first, second);
        }
        hosts
    }
}

/// How fast all tasks together may be, and how many there are at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ceiling {
    /// Bits a second of all tasks together.
    pub wan_bits_per_second: Option<u64>,
    /// Tasks at once.
    pub pairs: u64,
}

impl Ceiling {
    /// The ceiling of a run; `None` if it was not submitted yet.
    pub fn read(run: &Run) -> Result<Option<Self>, Error> {
        let path = run.place.join(RATE);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|e| damaged(&path, e.message())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path, "cannot be read")(error)),
        }
    }

    /// Becomes that of a run.
    pub fn write(&self, run: &Run) -> Result<(), Error> {
        let path = run.place.join(RATE);
        let mut text =
            "# What each task keeps to: its share, at once when this is changed.\n".to_owned();
        if let Some(bits) = self.wan_bits_per_second {
            text.push_str(&format!("wan-bits-per-second = {bits}\n"));
        }
        text.push_str(&format!("pairs = {}\n", self.pairs));
        publish(&path, text.as_bytes())
    }

    /// The rate of one task.
    pub fn share(&self) -> Option<Rate> {
        let bits = self.wan_bits_per_second?;
        Some(Rate::from_bits_per_second((bits / self.pairs.max(1)).max(8)))
    }
}

/// Watches the ceiling for changes.
pub(crate) struct Watch {
    path: PathBuf,
    seen: Option<SystemTime>,
}

impl Watch {
    pub(crate) fn new(run: &Run) -> Self {
        let path = run.place.join(RATE);
        let seen = modified(&path);
        Self { path, seen }
    }

    pub(crate) fn has_changed(&mut self) -> bool {
        let now = modified(&self.path);
        std::mem::replace(&mut self.seen, now) != now
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|about| about.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pool(hosts: &[&str]) -> Pool {
        Pool { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..Pool::default() }
    }

    #[test]
    fn hosts_get_equal_shares_and_a_chunk_moves_to_the_next() {
        let four = pool(&["a", "b:1", "c", "d"]);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut moved = 0;
        for chunk in 0..1000u32 {
            let id = *blake3::hash(&chunk.to_be_bytes()).as_bytes();
            let order = four.order(&id, 0, |_| 0);
            assert_eq!(order.len(), 4);
            *counts.entry(order[0]).or_default() += 1;
            moved += u32::from(four.order(&id, 1, |_| 0)[0] != order[0]);
        }
        assert!(counts.values().all(|count| (200..300).contains(count)), "{counts:?}");
        assert!((700..800).contains(&moved), "{moved}");
    }

    #[test]
    fn of_the_first_two_the_one_with_fewer_tasks_is_first() {
        let three = pool(&["a", "b", "c"]);
        let id = [7; 32];
        let by_chance = three.order(&id, 0, |_| 5);
        let [first, second, third] = by_chance[..] else { panic!("{by_chance:?}") };
        let order = |of: &[(&str, usize)]| {
            let tasks = |host: &str| of.iter().find(|one| one.0 == host).map_or(0, |one| one.1);
            three.order(&id, 0, tasks)
        };
        assert_eq!(order(&[(first, 2), (second, 1), (third, 0)]), [second, first, third]);
        assert_eq!(order(&[(first, 1), (second, 2), (third, 0)]), [first, second, third]);
    }

    #[test]
    fn a_removed_server_moves_only_its_own_chunks() {
        let (four, three) = (pool(&["a", "b", "c", "d"]), pool(&["a", "b", "d"]));
        for chunk in 0..100u32 {
            let id = *blake3::hash(&chunk.to_be_bytes()).as_bytes();
            let before: Vec<&str> =
                four.order(&id, 3, |_| 0).into_iter().filter(|host| *host != "c").collect();
            assert_eq!(three.order(&id, 3, |_| 0), before);
        }
    }

    #[test]
    fn a_record_is_read_as_written() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let limits = crate::plan::Limits { bytes: 1, items: 1 };
        let what = (dirs[0].path(), &b"to"[..]);
        let cancel = netblt::Cancel::default();
        let run = crate::plan::plan(what, dirs[1].path(), limits, &cancel, &mut |_| {});
        let run = run.expect("planned");
        assert!(Pool::read(&run).is_err() && Ceiling::read(&run).expect("none").is_none());
        let hosts = vec!["a:1".to_owned(), "[::1]:2".to_owned()];
        let odd = PathBuf::from("/a \"b\" \\c\n\u{e4}");
        let pool = Pool { hosts, ticket_file: Some(odd.clone()), ..Pool::default() };
        pool.write(&run).expect("written");
        let read = Pool::read(&run).expect("read");
        assert_eq!((&read.hosts, read.ticket_file, read.identity), (&pool.hosts, Some(odd), None));
        for wan_bits_per_second in [None, Some(40_000_000_000)] {
            let ceiling = Ceiling { wan_bits_per_second, pairs: 16 };
            ceiling.write(&run).expect("written");
            assert_eq!(Ceiling::read(&run).expect("read"), Some(ceiling));
        }
    }

    #[test]
    fn a_task_gets_its_share() {
        let share = |wan, pairs| {
            let ceiling = Ceiling { wan_bits_per_second: wan, pairs };
            ceiling.share().map(Rate::bits_per_second)
        };
        assert_eq!(share(Some(40_000_000_000), 16), Some(2_500_000_000));
        assert_eq!(share(Some(80), 0), Some(80));
        assert_eq!(share(None, 16), None);
    }
}
