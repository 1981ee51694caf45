//! One walk through the source, which cuts it into chunks: it has one open directory for each level
//! in memory, and nothing of the files.

use std::fs::{self, DirBuilder, File, Metadata, ReadDir};
use std::io::{BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use netblt::{Cancel, FileRange};

use crate::error::{Error, at};
use crate::list::{EntryType, Item, TITLE, TITLE_OF_RANGE};
use crate::run::{self, ALL, Chunk, Head, INDEX, Part, Run};

/// Levels of directories: a transfer's names have no more parts.
const MAX_DEPTH: usize = 127;
/// Longest name that a transfer takes, in bytes, with room for that of the target before it.
const MAX_NAME: usize = 3800;

/// Bytes of a range at least: a shorter one is not worth a task.
const LEAST_RANGE: u64 = 1 << 20;
/// Ranges of one file at most (`docs/protocol §8.9`).
const MAX_RANGES: u64 = 1 << 16;

/// How a tree is cut.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a chunk at most; a file of more becomes several, which are its ranges.
    pub bytes: u64,
    /// Files, links and directories of a chunk at most, from 1.
    pub items: u64,
}

impl Limits {
    /// Whether a file of so many bytes is in no chunk with others.
    pub(crate) fn is_alone(self, bytes: u64) -> bool {
        bytes > self.bytes
    }

    /// The ranges that such a file is cut into: of the largest power of two of bytes that a chunk
    /// may have. Nothing if it would be one.
    pub(crate) fn ranges(self, total: u64) -> Vec<FileRange> {
        let most = 1u64 << self.bytes.max(LEAST_RANGE).ilog2();
        // A server joins no more of them.
        let bytes = most.max(total.div_ceil(MAX_RANGES).next_power_of_two());
        if total > bytes { FileRange::all(total, bytes).collect() } else { Vec::new() }
    }

    /// Whether a chunk with these entries and bytes takes another entry of `more` bytes.
    pub(crate) fn has_room(self, items: u64, bytes: u64, more: u64) -> bool {
        items < self.items && bytes.saturating_add(more) <= self.bytes
    }
}

/// Plans to send `source` to `target`, a path beneath the servers' roots, and writes the plan into
/// `place`, which must be empty or not exist. `warn` is called for entries that cannot be sent.
///
/// # Errors
/// Something here cannot be read or written. An unreadable entry of the source is only a warning.
pub fn plan(
    (source, target): (&Path, &[u8]),
    place: &Path,
    limits: Limits,
    cancel: &Cancel,
    warn: &mut dyn FnMut(&str),
) -> Result<Run, Error> {
    let source = fs::canonicalize(source).map_err(at(source, "cannot be sent"))?;
    let about = fs::metadata(&source).map_err(at(&source, "cannot be sent"))?;
    if !about.is_dir() && !about.is_file() {
        return Err(Error::InvalidRequest(format!(
            "{}: is no file and no directory",
            source.display()
        )));
    }
    let absolute = std::path::absolute(place).map_err(at(place, "cannot be used"))?;
    let near = absolute.ancestors().find_map(|near| fs::canonicalize(near).ok());
    if near.is_some_and(|near| near.starts_with(&source)) {
        let why = "the run's directory is in what is to be sent; put it elsewhere";
        return Err(Error::InvalidRequest(format!("{}: {why}", place.display())));
    }
    make(place)?;
    let head = Head {
        version: 0,
        id: run::random()?,
        source: run::encoded(source.as_os_str().as_bytes()),
        target: run::encoded(target),
        chunks: 0,
        files: 0,
        directories: 0,
        bytes: 0,
        left_out: 0,
        planned: run::now(),
    };
    let mut cutter = Cutter::new(place, limits, head)?;
    match about.is_dir() {
        true => walk(&source, &about, &mut cutter, cancel, warn)?,
        false => cutter.add(item(EntryType::File, &about, Vec::new()))?,
    }
    Run::conclude(place, cutter.finish()?)
}

fn make(place: &Path) -> Result<(), Error> {
    let made = |path: &Path, above: bool| {
        DirBuilder::new().mode(run::DIRECTORY_MODE).recursive(above).create(path)
    };
    made(place, true).map_err(at(place, "cannot be made"))?;
    let real = fs::canonicalize(place).map_err(at(place, "cannot be used"))?;
    run::refuse_others(&real)?;
    let mut inside = fs::read_dir(place).map_err(at(place, "cannot be listed"))?;
    if inside.next().is_some() {
        let why = "is not empty; a plan needs a directory of its own";
        return Err(Error::InvalidRequest(format!("{}: {why}", place.display())));
    }
    for name in ALL {
        let path = place.join(name);
        made(&path, false).map_err(at(&path, "cannot be made"))?;
    }
    Ok(())
}

fn item(sort: EntryType, about: &Metadata, name: Vec<u8>) -> Item {
    let bytes = if sort == EntryType::Directory { 0 } else { about.len() };
    let nanos = u32::try_from(about.mtime_nsec()).unwrap_or(0);
    Item { sort, bytes, modified: (about.mtime(), nanos), name }
}

/// Whether a name is netblt's own, which no receiver takes.
fn is_ours(leaf: &[u8]) -> bool {
    const OWN: &[u8] = b".netblt-";
    leaf.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN))
}

fn walk(
    source: &Path,
    about: &Metadata,
    cutter: &mut Cutter,
    cancel: &Cancel,
    warn: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    cutter.add(item(EntryType::Directory, about, Vec::new()))?;
    let listing = fs::read_dir(source).map_err(at(source, "cannot be listed"))?;
    let mut stack: Vec<(ReadDir, PathBuf, Vec<u8>)> =
        vec![(listing, source.to_path_buf(), Vec::new())];
    while let Some((listing, here, prefix)) = stack.last_mut() {
        if cancel.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let Some(entry) = listing.next() else {
            stack.pop();
            continue;
        };
        let mut leave_out = |path: &Path, why: &str| {
            cutter.head.left_out += 1;
            warn(&format!("{}: {why}", path.display()));
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                leave_out(here, &format!("cannot be listed: {error}"));
                stack.pop();
                continue;
            }
        };
        let (path, leaf) = (entry.path(), entry.file_name());
        let between: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
        let name = [&prefix[..], between, leaf.as_bytes()].concat();
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(error) => {
                leave_out(&path, &format!("cannot be read: {error}"));
                continue;
            }
        };
        let kind = about.file_type();
        if name.len() > MAX_NAME {
            leave_out(&path, "its name is too long");
        } else if is_ours(leaf.as_bytes()) {
            leave_out(&path, "its name is netblt's own, as those of unfinished transfers are");
        } else if kind.is_file() {
            cutter.add(item(EntryType::File, &about, name))?;
        } else if kind.is_symlink() {
            cutter.add(item(EntryType::Link, &about, name))?;
        } else if !kind.is_dir() {
            leave_out(&path, "is neither a file, nor a directory, nor a link");
        } else if stack.len() >= MAX_DEPTH {
            leave_out(&path, "is too many directories deep");
        } else {
            match fs::read_dir(&path) {
                Ok(listing) => {
                    cutter.add(item(EntryType::Directory, &about, name.clone()))?;
                    stack.push((listing, path, name));
                }
                Err(error) => leave_out(&path, &format!("cannot be listed: {error}")),
            }
        }
    }
    Ok(())
}

/// Writes lists.
struct Cutter {
    place: PathBuf,
    limits: Limits,
    head: Head,
    index: BufWriter<File>,
    open: Option<Open>,
}

/// A list that is being written.
struct Open {
    path: PathBuf,
    out: BufWriter<File>,
    hasher: blake3::Hasher,
    items: u64,
    bytes: u64,
}

impl Open {
    fn new(path: PathBuf, title: &[u8]) -> Result<Self, Error> {
        let path = run::run_watched(&path)?;
        let file = run::create(&path).map_err(at(&path, "cannot be written"))?;
        let out = BufWriter::new(file);
        let mut open = Self { path, out, hasher: blake3::Hasher::new(), items: 0, bytes: 0 };
        open.put(&[title, &[0]].concat())?;
        Ok(open)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.hasher.update(bytes);
        self.out.write_all(bytes).map_err(at(&self.path, "cannot be written"))
    }

    fn add(&mut self, item: &Item) -> Result<(), Error> {
        self.items += 1;
        self.bytes += item.bytes;
        self.put(&item.encode())
    }
}

impl Cutter {
    fn new(place: &Path, limits: Limits, head: Head) -> Result<Self, Error> {
        let path = place.join(INDEX);
        let index = run::create(&path).map_err(at(&path, "cannot be written"))?;
        let limits = Limits { items: limits.items.max(1), ..limits };
        let index = BufWriter::new(index);
        Ok(Self { place: place.to_path_buf(), limits, head, index, open: None })
    }

    fn add(&mut self, item: Item) -> Result<(), Error> {
        match item.sort {
            EntryType::Directory => self.head.directories += 1,
            EntryType::File | EntryType::Link | EntryType::Range { .. } => self.head.files += 1,
        }
        self.head.bytes += item.bytes;
        if self.limits.is_alone(item.bytes) {
            // The open chunk stays open for the files after this one.
            let path = self.place.join("chunks/alone");
            let is_file = item.sort == EntryType::File;
            let ranges = if is_file { self.limits.ranges(item.bytes) } else { Vec::new() };
            let count = ranges.len() as u64;
            for (index, FileRange { offset, length, total }) in (0..).zip(ranges) {
                let mut range = Open::new(path.clone(), TITLE_OF_RANGE)?;
                let (sort, name) = (EntryType::Range { offset, total }, item.name.clone());
                range.add(&Item { sort, bytes: length, modified: item.modified, name })?;
                self.close(range, Some(Part { index, count }))?;
            }
            if count > 0 {
                return Ok(());
            }
            let mut alone = Open::new(path, TITLE)?;
            alone.add(&item)?;
            return self.close(alone, None);
        }
        let is_full = |open: &Open| !self.limits.has_room(open.items, open.bytes, item.bytes);
        if let Some(open) = self.open.take_if(|open| is_full(open)) {
            self.close(open, None)?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(self.place.join("chunks/open"), TITLE)?,
        };
        open.add(&item)?;
        self.open = Some(open);
        Ok(())
    }

    fn close(&mut self, mut open: Open, part: Option<Part>) -> Result<(), Error> {
        let synced = open.out.flush().and_then(|()| run::sync(open.out.get_ref()));
        synced.map_err(at(&open.path, "cannot be written"))?;
        let (number, id) = (self.head.chunks, *open.hasher.finalize().as_bytes());
        let path = run::list_path(&self.place, number);
        fs::rename(&open.path, &path).map_err(at(&path, "cannot be written"))?;
        let chunk = Chunk { number, id, items: open.items, bytes: open.bytes, part };
        self.head.chunks += 1;
        let written = self.index.write_all(chunk.line().as_bytes());
        written.map_err(at(&self.place.join(INDEX), "cannot be written"))
    }

    fn finish(mut self) -> Result<Head, Error> {
        if let Some(open) = self.open.take() {
            self.close(open, None)?;
        }
        let synced = self.index.flush().and_then(|()| run::sync(self.index.get_ref()));
        synced.map_err(at(&self.place.join(INDEX), "cannot be written"))?;
        Ok(self.head)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::list::Items;

    fn planned(source: &Path, limits: Limits) -> (tempfile::TempDir, Run, Vec<String>) {
        let place = tempfile::tempdir().expect("a directory");
        let mut warnings = Vec::new();
        let mut warn = |text: &str| warnings.push(text.to_owned());
        let what = (source, &b"to/there"[..]);
        let run = plan(what, place.path(), limits, &Cancel::default(), &mut warn).expect("planned");
        (place, run, warnings)
    }

    #[test]
    fn everything_is_in_one_chunk_and_none_is_too_large() {
        let source = tempfile::tempdir().expect("a directory");
        let mut files = BTreeMap::new();
        for directory in ["", "a", "a/b", "empty"] {
            fs::create_dir_all(source.path().join(directory)).expect("made");
        }
        for (at, directory) in ["", "a/", "a/b/"].iter().cycle().take(100).enumerate() {
            let (name, bytes) = (format!("{directory}f{at}"), at as u64 * 10);
            fs::write(source.path().join(&name), vec![7; at * 10]).expect("written");
            files.insert(name.into_bytes(), bytes);
        }
        std::os::unix::fs::symlink("nowhere", source.path().join("a/link")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, source.path().join("pipe"), 0o600.into())
            .expect("a pipe");
        let limits = Limits { bytes: 600, items: 20 };
        let (_place, run, warnings) = planned(source.path(), limits);
        assert_eq!((warnings.len(), run.head.left_out), (1, 1), "{warnings:?}");
        assert_eq!((run.head.files, run.head.directories), (101, 4));
        let (mut found, mut others) = (BTreeMap::new(), Vec::new());
        for chunk in run.chunks().expect("an index") {
            assert_eq!(run.chunk(chunk.number).expect("its list"), chunk);
            let items: Vec<Item> = Items::open(&run.list(chunk.number))
                .and_then(|items| items.collect())
                .expect("a list");
            assert_eq!(items.len() as u64, chunk.items);
            assert_eq!(items.iter().map(|item| item.bytes).sum::<u64>(), chunk.bytes);
            assert!(chunk.items <= 20);
            // Only one file alone may be larger.
            assert!(chunk.bytes <= 600 || chunk.items == 1, "{chunk:?}");
            for item in items {
                match item.sort {
                    EntryType::File => assert!(found.insert(item.name, item.bytes).is_none()),
                    _ => others.push((item.sort == EntryType::Link, item.name)),
                }
            }
        }
        assert_eq!(found, files);
        others.sort();
        let names = [&b""[..], b"a", b"a/b", b"empty"].map(|name| (false, name.to_vec()));
        assert_eq!(others, [&names[..], &[(true, b"a/link".to_vec())]].concat());
    }

    #[test]
    fn a_large_file_becomes_ranges_one_behind_the_other() {
        let source = tempfile::tempdir().expect("a directory");
        let total = (3 << 20) + 5;
        File::create(source.path().join("large"))
            .and_then(|file| file.set_len(total))
            .expect("made");
        fs::write(source.path().join("small"), "x").expect("written");
        // A file that would be one range stays a file.
        File::create(source.path().join("mid")).and_then(|file| file.set_len(9000)).expect("made");
        let (_place, run, _) = planned(source.path(), Limits { bytes: 5000, items: 100 });
        let chunks = run.chunks().expect("an index");
        let mut at = 0;
        for chunk in chunks.iter().filter(|chunk| chunk.part.is_some()) {
            let items: Vec<Item> = Items::open(&run.list(chunk.number))
                .and_then(|items| items.collect())
                .expect("a list");
            let [Item { sort: EntryType::Range { offset, total: of }, bytes, name, .. }] =
                &items[..]
            else {
                panic!("{items:?}");
            };
            assert_eq!((*offset, *of, &name[..], *bytes), (at, total, &b"large"[..], chunk.bytes));
            assert!(FileRange { offset: at, length: *bytes, total }.is_good());
            let part = chunk.part.expect("a range");
            assert_eq!((part.index, part.count), (at >> 20, 4));
            assert_eq!(
                run.file_label(chunk),
                run.file_label(&chunks[chunk.siblings().start as usize])
            );
            at += bytes;
        }
        assert_eq!(at, total);
        assert_eq!((run.head.files, run.head.bytes), (3, total + 9001));
        // However large: never more ranges than a server takes.
        let limits = Limits { bytes: 100_000_000_000, items: 1 };
        assert_eq!(limits.ranges(101_000_000_000).len(), 2);
        assert!(limits.ranges(1 << 53).len() <= 1 << 16 && limits.ranges(1 << 53).len() > 1 << 15);
        assert!(limits.ranges(1 << 36).is_empty());
    }

    #[test]
    fn a_changed_list_is_refused() {
        let source = tempfile::tempdir().expect("a directory");
        fs::write(source.path().join("f"), "x").expect("written");
        let (_place, run, _) = planned(source.path(), Limits { bytes: 1000, items: 1000 });
        assert!(run.chunk(0).is_ok() && run.chunk(1).is_err());
        let list = fs::read(run.list(0)).expect("a list");
        fs::write(run.list(0), [&list[..], b"f 1 1 1 more\0"].concat()).expect("written");
        assert!(run.chunk(0).is_err());
    }

    #[test]
    fn a_run_is_neither_in_its_source_nor_in_another() {
        let source = tempfile::tempdir().expect("a directory");
        let limits = Limits { bytes: 1000, items: 1000 };
        let fails = |place: &Path| {
            let what = (source.path(), &b"to"[..]);
            plan(what, place, limits, &Cancel::default(), &mut |_| {}).is_err()
        };
        assert!(fails(&source.path().join("run")) && !source.path().join("run").exists());
        let (place, _, _) = planned(source.path(), limits);
        assert!(fails(place.path()));
    }
}
