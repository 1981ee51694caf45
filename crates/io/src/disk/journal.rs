//! What is about to get its final name, written down before the first rename.
//!
//! Whoever finds the journal of a dead process knows that everything in that staging directory was
//! whole, verified and flushed, and what it was to be called: it goes on where that process
//! stopped. Lines of text, names as the tree that they are held in; the last line is the hash of
//! the others, so a journal that is not all there is none.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::os::fd::OwnedFd;

use netblt_proto::content::check_name;
use netblt_proto::limits::{MAX_FILES, MAX_PART};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::attributes::FileTimes;
use crate::disk::flush;
use crate::disk::names::{Budget, NameId, Names, Use};
use crate::options::Overwrite;

const TITLE: &str = "netblt publication 2";
/// Longest line: a part, each byte of it escaped, and a few numbers before it.
const MAX_LINE: u64 = 2 * MAX_PART as u64 + 128;

/// Something to be given its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: NameId,
    pub(crate) placed: Placed,
}

/// What is placed under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The temporary of this number; its inode, where that tells it from what it was exchanged
    /// with.
    File { number: u64, inode: u64 },
    /// A directory, which has no temporary, with what is known of it.
    Directory(FileTimes),
}

/// What a journal tells.
pub(crate) struct Journal {
    pub(crate) overwrite: Overwrite,
    pub(crate) names: Names,
    pub(crate) items: Vec<Item>,
}

/// Writes the journal, and waits until it is on the disk.
pub(crate) fn write(
    (staging, journal): (&OwnedFd, &str),
    overwrite: Overwrite,
    names: &Names,
    items: &[Item],
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let unfinished = format!("{journal}.new");
    let file = rustix::fs::openat(staging, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    let mut out = Hashing { out: BufWriter::new(File::from(file)), hasher: blake3::Hasher::new() };
    let word = match overwrite {
        Overwrite::Never => "never",
        Overwrite::Always => "always",
    };
    writeln!(out, "{TITLE} {word}")?;
    let mut by_name: Vec<Option<&Item>> = vec![None; names.len()];
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
    file.sync_all()?;
    rustix::fs::renameat(staging, &unfinished, staging, journal)?;
    flush::directory(staging)
}

/// The journal of a staging directory, if there is a whole one.
pub(crate) fn read(staging: &OwnedFd, journal: &str) -> io::Result<Option<Journal>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(staging, journal, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => File::from(file?),
    };
    let mut lines = BufReader::new(file);
    let (mut hasher, mut line) = (blake3::Hasher::new(), Vec::new());
    let mut journal: Option<Journal> = None;
    let mut budget = Budget::new(MAX_FILES);
    loop {
        line.clear();
        (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok(None) };
        match &mut journal {
            None => match overwrite(text) {
                Some(overwrite) => {
                    let (names, items) = (Names::default(), Vec::new());
                    journal = Some(Journal { overwrite, names, items });
                }
                None => return Ok(None),
            },
            Some(_) if text == hasher.finalize().to_hex().as_bytes() => return Ok(journal),
            Some(journal) => {
                if entry(text, journal, &mut budget).is_none() {
                    return Ok(None);
                }
            }
        }
        hasher.update(&line);
    }
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
    if part.contains(&b'/') {
        return None;
    }
    let name = journal.names.push(parent, &part, what, budget).ok()?;
    journal.items.extend(placed.map(|placed| Item { name, placed }));
    Some(())
}

/// A part of a name on a line of its own.
fn escaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    for byte in part {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
    out
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(byte) = rest.next() {
        out.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
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
    use crate::disk::beneath;
    use crate::disk::staging::JOURNAL;
    use std::fs;

    #[test]
    fn what_is_written_is_read_and_every_cut_is_noticed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let handle = beneath::open_directory(directory.path()).expect("opened");
        assert!(read(&handle, JOURNAL).expect("readable").is_none());
        let (mut names, mut budget) = (Names::default(), Budget::new(10));
        let mut add = |name: &[u8], directory| names.add(name, directory, &mut budget);
        let file = add(b"a/b c/\xff\n\\n", false).expect("new");
        let listed = add(b"a/b c", true).expect("new");
        let times = FileTimes { mode: 0o750, seconds: -7, nanos: 5 };
        let items = [
            Item { name: listed, placed: Placed::Directory(times) },
            Item { name: file, placed: Placed::File { number: 3, inode: 9 } },
        ];
        write((&handle, JOURNAL), Overwrite::Always, &names, &items).expect("written");
        let journal = read(&handle, JOURNAL).expect("readable").expect("whole");
        assert_eq!((journal.overwrite, &journal.items[..]), (Overwrite::Always, &items[..]));
        assert_eq!(journal.names.path(file), b"a/b c/\xff\n\\n");
        let path = directory.path().join(JOURNAL);
        let whole = fs::read(&path).expect("there");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            assert!(read(&handle, JOURNAL).expect("readable").is_none(), "{cut}");
        }
    }
}
