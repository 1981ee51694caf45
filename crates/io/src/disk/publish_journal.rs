//! The publication journal: the list of renames, written before the first of them.
//!
//! A journal of a dead process says that everything in its staging directory was whole, verified
//! and flushed, and which names it gets. The next process completes the rest. It has lines of text,
//! with names as the tree that they are held in. The last line is a hash of the others under the
//! user's key for that directory (`seal`). A journal that is incomplete, was written by another
//! program or belongs to another directory is not trusted (`docs/protocol §8.7`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::os::fd::OwnedFd;

use netblt_proto::content::check_name;
use netblt_proto::limits::{MAX_FILES, MAX_NAME};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::attributes::FileTimes;
use crate::disk::flush;
use crate::disk::names::{Budget, NameId, Names, Use, escaped, unescaped};
use crate::disk::safe_open::create_new;
use crate::disk::seal::Seal;
use crate::disk::sites::{self, Site};
use crate::disk::staging::has_ours;
use crate::settings::Overwrite;

const TITLE: &str = "netblt publication 3";
/// Longest line: a path, each byte of it escaped, and a few words before it.
const MAX_LINE: u64 = 2 * MAX_NAME as u64 + 128;

/// Something to be given its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishItem {
    pub(crate) name: NameId,
    pub(crate) placed: Placed,
}

/// The object that gets a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The temporary of this number; its inode, where that distinguishes it from the file that it
    /// was exchanged with.
    File { number: u64, inode: u64 },
    /// A directory, which has no temporary, with its attributes.
    Directory(FileTimes),
}

/// The result of reading a journal.
pub(crate) enum FoundJournal {
    Nothing,
    /// Not one that this user's own program wrote for this directory, or not all of it.
    Foreign,
    Own(Journal),
}

/// The content of a journal.
pub(crate) struct Journal {
    pub(crate) overwrite: Overwrite,
    pub(crate) names: Names,
    pub(crate) items: Vec<PublishItem>,
    /// The sites of temporaries that are not beside the journal.
    pub(crate) sites: Vec<(usize, Site)>,
}

/// Writes the journal, and waits until it is on the disk.
pub(crate) fn write(
    (staging, journal, seal): (&OwnedFd, &str, Seal),
    (overwrite, sites): (Overwrite, &BTreeMap<usize, Site>),
    names: &Names,
    items: &[PublishItem],
) -> io::Result<()> {
    let unfinished = format!("{journal}.new");
    let file = create_new(staging, &unfinished)?;
    let mut out = Hashing { out: BufWriter::new(file), hasher: seal.hasher() };
    let word = match overwrite {
        Overwrite::Never => "never",
        Overwrite::Always => "always",
    };
    writeln!(out, "{TITLE} {word}")?;
    for (number, site) in sites {
        write!(out, "s {number} {} ", site.leaf)?;
        out.write_all(&escaped(&site.path))?;
        out.write_all(b"\n")?;
    }
    let mut by_name: Vec<Option<&PublishItem>> = vec![None; names.len()];
    for item in items {
        if let Some(entry) = by_name.get_mut(names.index(item.name)) {
            *entry = Some(item);
        }
    }
    for id in names.iter() {
        let parent = names.index(names.parent(id));
        match by_name.get(names.index(id)).copied().flatten().map(|item| item.placed) {
            Some(Placed::File { number, inode }) => write!(out, "f {parent} {number} {inode} ")?,
            Some(Placed::Directory(times)) => {
                let FileTimes { mode, seconds, nanos } = times;
                write!(out, "d {parent} {mode} {seconds} {nanos} ")?;
            }
            None => write!(out, "i {parent} ")?,
        }
        out.write_all(&escaped(names.leaf(id)))?;
        out.write_all(b"\n")?;
    }
    let hash = out.hasher.finalize().to_hex();
    writeln!(out.out, "{hash}")?;
    let file = out.out.into_inner().map_err(io::IntoInnerError::into_error)?;
    flush::sync(&file)?;
    rustix::fs::renameat(staging, &unfinished, staging, journal)?;
    flush::directory(staging)
}

/// The journal of a staging directory. Without the user's key none is believed.
pub(crate) fn read(
    staging: &OwnedFd,
    journal: &str,
    seal: Option<Seal>,
) -> io::Result<FoundJournal> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(staging, journal, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(FoundJournal::Nothing),
        Err(Errno::LOOP) => return Ok(FoundJournal::Foreign),
        file => File::from(file?),
    };
    let Some(seal) = seal else { return Ok(FoundJournal::Foreign) };
    Ok(read_lines(file, seal)?.map_or(FoundJournal::Foreign, FoundJournal::Own))
}

fn read_lines(file: File, seal: Seal) -> io::Result<Option<Journal>> {
    let mut lines = BufReader::new(file);
    let (mut hasher, mut line) = (seal.hasher(), Vec::new());
    let mut journal: Option<Journal> = None;
    let mut budget = Budget::new(MAX_FILES);
    loop {
        line.clear();
        (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok(None) };
        match &mut journal {
            None => match overwrite(text) {
                Some(overwrite) => {
                    let (names, items, sites) = (Names::default(), Vec::new(), Vec::new());
                    journal = Some(Journal { overwrite, names, items, sites });
                }
                None => return Ok(None),
            },
            Some(_) if is_hash(text, &hasher) => return Ok(journal),
            Some(journal) => {
                if entry(text, journal, &mut budget).is_none() {
                    return Ok(None);
                }
            }
        }
        hasher.update(&line);
    }
}

/// Compares in constant time.
fn is_hash(text: &[u8], hasher: &blake3::Hasher) -> bool {
    blake3::Hash::from_hex(text).is_ok_and(|hash| hash == hasher.finalize())
}

fn overwrite(title: &[u8]) -> Option<Overwrite> {
    match title.strip_prefix(TITLE.as_bytes())? {
        b" never" => Some(Overwrite::Never),
        b" always" => Some(Overwrite::Always),
        _ => None,
    }
}

fn entry(line: &[u8], journal: &mut Journal, budget: &mut Budget) -> Option<()> {
    let (kind, rest) = line.split_first()?;
    let mut rest = rest.strip_prefix(b" ")?;
    if *kind == b's' {
        journal.sites.push(sites::parse(rest)?);
        return Some(());
    }
    let mut next = || {
        let at = rest.iter().position(|byte| *byte == b' ')?;
        let word = std::str::from_utf8(rest.get(..at)?).ok()?;
        rest = rest.get(at + 1..)?;
        Some(word.to_owned())
    };
    let parent: NameId = journal.names.at(next()?.parse().ok()?)?;
    let (what, placed) = match kind {
        b'i' => (Use::Implied, None),
        b'd' => {
            let mode = next()?.parse().ok()?;
            let (seconds, nanos) = (next()?.parse().ok()?, next()?.parse().ok()?);
            (Use::Listed, Some(Placed::Directory(FileTimes { mode, seconds, nanos })))
        }
        b'f' => {
            let (number, inode) = (next()?.parse().ok()?, next()?.parse().ok()?);
            (Use::File, Some(Placed::File { number, inode }))
        }
        _ => return None,
    };
    // One part only, and none that leads anywhere.
    let part = unescaped(rest)?;
    check_name(&part).ok()?;
    if part.contains(&b'/') || has_ours(&part) {
        return None;
    }
    let name = journal.names.push(parent, &part, what, budget).ok()?;
    journal.items.extend(placed.map(|placed| PublishItem { name, placed }));
    Some(())
}

struct Hashing {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::safe_open;
    use crate::disk::staging::JOURNAL;
    use std::fs;

    #[test]
    fn a_record_is_read_as_written_and_every_cut_is_noticed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let handle = safe_open::open_directory(directory.path()).expect("opened");
        let seal = Seal::of_test();
        let read = || match read(&handle, JOURNAL, Some(seal)).expect("readable") {
            FoundJournal::Own(journal) => Some(journal),
            FoundJournal::Nothing | FoundJournal::Foreign => None,
        };
        assert!(read().is_none());
        let (mut names, mut budget) = (Names::default(), Budget::new(10));
        let mut add = |name: &[u8], directory| names.add(name, directory, &mut budget);
        let file = add(b"a/b c/\xff\n\\n", false).expect("new");
        let listed = add(b"a/b c", true).expect("new");
        let times = FileTimes { mode: 0o750, seconds: -7, nanos: 5 };
        let items = [
            PublishItem { name: listed, placed: Placed::Directory(times) },
            PublishItem { name: file, placed: Placed::File { number: 3, inode: 9 } },
        ];
        let leaf = ".netblt-unfinished-0123456789abcdef.part".to_owned();
        let sites = BTreeMap::from([(3, Site { path: b"a/b c".to_vec(), leaf })]);
        let how = (Overwrite::Always, &sites);
        write((&handle, JOURNAL, seal), how, &names, &items).expect("written");
        let journal = read().expect("whole");
        assert_eq!((journal.overwrite, &journal.items[..]), (Overwrite::Always, &items[..]));
        assert_eq!(journal.sites, sites.into_iter().collect::<Vec<_>>());
        assert_eq!(journal.names.path(file), b"a/b c/\xff\n\\n");
        let path = directory.path().join(JOURNAL);
        let whole = fs::read(&path).expect("there");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            assert!(read().is_none(), "{cut}");
        }
        for at in 0..whole.len() {
            let mut edited = whole.clone();
            edited[at] ^= 1;
            fs::write(&path, &edited).expect("written");
            assert!(read().is_none(), "{at}");
        }
        fs::write(&path, &whole).expect("written");
        assert!(read().is_some());
        let foreign = super::read(&handle, JOURNAL, None).expect("readable");
        assert!(matches!(foreign, FoundJournal::Foreign));
    }
}
