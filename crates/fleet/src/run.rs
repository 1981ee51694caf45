//! The directory of a run: its files, and how they are written so that a reader finds all of a file
//! or none, also when a process is killed meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, at, damaged};
use crate::list;

/// The version of a run's directory.
const VERSION: u32 = 1;

/// The head of a run: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Head {
    /// The version of the directory.
    pub version: u32,
    /// 16 random bytes, hexadecimal: no two runs have the same.
    pub id: String,
    /// The source, from the root of this machine. Special bytes are `%` and two digits.
    pub source: String,
    /// The target beneath the servers' roots, with its name, in the same form.
    pub target: String,
    /// How many chunks there are; they have the numbers from 0.
    pub chunks: u64,
    /// Files and links in all.
    pub files: u64,
    /// Directories in all.
    pub directories: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Number of entries that cannot be sent.
    pub left_out: u64,
    /// When it was planned, seconds since 1970.
    pub planned: u64,
}

/// A chunk as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number.
    pub number: u64,
    /// The BLAKE3 of its list.
    pub id: [u8; 32],
    /// Entries in its list.
    pub items: u64,
    /// Bytes in its files.
    pub bytes: u64,
    /// The range of a file, if it is one. The ranges of a file are consecutive chunks.
    pub part: Option<Part>,
}

/// Which of the ranges of a file a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: u64,
    /// How many there are, at least 2.
    pub count: u64,
}

impl Part {
    /// Whether it is the one at the end of the file.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.count
    }
}

impl Chunk {
    pub(crate) fn line(&self) -> String {
        let id = blake3::Hash::from_bytes(self.id).to_hex();
        let part = self.part.map(|part| format!(" {}/{}", part.index, part.count));
        let part = part.unwrap_or_default();
        format!("{} {id} {} {}{part}\n", self.number, self.items, self.bytes)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let id = *blake3::Hash::from_hex(words.next()?).ok()?.as_bytes();
        let items = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let part = match words.next() {
            None => None,
            Some(part) => {
                let (index, count) = part.split_once('/')?;
                let part = Part { index: index.parse().ok()?, count: count.parse().ok()? };
                Some(Some(part).filter(|part| part.index < part.count && part.index <= number)?)
            }
        };
        Some(Self { number, id, items, bytes, part })
    }

    /// The numbers of the chunks that are ranges of the same file.
    pub(crate) fn siblings(&self) -> Range<u64> {
        let Part { index, count } = self.part.unwrap_or(Part { index: 0, count: 1 });
        let first = self.number.saturating_sub(index);
        first..first.saturating_add(count)
    }
}

/// The directory of a run that was planned.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its directory, from the root.
    pub place: PathBuf,
    /// Its head.
    pub head: Head,
}

/// Directories in it.
pub(crate) const CHUNKS: &str = "chunks";
pub(crate) const CLAIMS: &str = "claims";
pub(crate) const RUNNING: &str = "running";
pub(crate) const DONE: &str = "done";
pub(crate) const FAILED: &str = "failed";
pub(crate) const SUMS: &str = "sums";
pub(crate) const LOG: &str = "log";
pub(crate) const RANGES: &str = "ranges";
pub(crate) const ALL: [&str; 8] = [CHUNKS, CLAIMS, RUNNING, DONE, FAILED, SUMS, LOG, RANGES];
const HEAD: &str = "run.json";
pub(crate) const INDEX: &str = "index";

impl Run {
    /// Opens a run that was planned to its end.
    pub fn open(place: &Path) -> Result<Self, Error> {
        let place = fs::canonicalize(place).map_err(at(place, "is no run's directory"))?;
        refuse_others(&place)?;
        for directory in ALL.map(|name| place.join(name)) {
            refuse_others(&directory)?;
        }
        let path = place.join(HEAD);
        let head = read::<Head>(&path)?;
        let head = head.ok_or_else(|| damaged(&path, "is not there: nothing was planned here"))?;
        if head.version != VERSION {
            return Err(damaged(&path, format!("is of version {}, not {VERSION}", head.version)));
        }
        Ok(Self { place, head })
    }

    pub(crate) fn conclude(place: &Path, mut head: Head) -> Result<Self, Error> {
        head.version = VERSION;
        write(&place.join(HEAD), &head)?;
        Self::open(place)
    }

    /// The source.
    pub fn source(&self) -> PathBuf {
        OsString::from_vec(decoded(&self.head.source)).into()
    }

    /// The directory beneath the servers' roots into which it goes, and its name there.
    pub fn target(&self) -> (Vec<u8>, OsString) {
        let path = decoded(&self.head.target);
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => {
                let (parent, leaf) = path.split_at(at);
                (parent.to_vec(), OsStr::from_bytes(leaf.get(1..).unwrap_or_default()).into())
            }
            None => (Vec::new(), OsString::from_vec(path)),
        }
    }

    /// All chunks, in the order of their numbers.
    pub fn chunks(&self) -> Result<Vec<Chunk>, Error> {
        let path = self.place.join(INDEX);
        let file = File::open(&path).map_err(at(&path, "cannot be opened"))?;
        let mut chunks = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(at(&path, "cannot be read"))?;
            let chunk = Chunk::parse(&line).filter(|chunk| chunk.number == chunks.len() as u64);
            chunks.push(chunk.ok_or_else(|| damaged(&path, format!("makes no sense: {line}")))?);
        }
        if chunks.len() as u64 != self.head.chunks {
            return Err(damaged(&path, "has not as many chunks as the plan"));
        }
        Ok(chunks)
    }

    /// A chunk, whose list must be the planned one.
    pub fn chunk(&self, number: u64) -> Result<Chunk, Error> {
        let chunk = self.chunks()?.into_iter().find(|chunk| chunk.number == number);
        let count = self.head.chunks;
        let none = || {
            Error::InvalidRequest(format!("there is no chunk {number}: there are {count}, from 0"))
        };
        let chunk = chunk.ok_or_else(none)?;
        let path = self.list(number);
        let digest = list::digest(&path).map_err(at(&path, "cannot be read"))?;
        if digest != chunk.id {
            return Err(damaged(&path, "is not the list that was planned"));
        }
        Ok(chunk)
    }

    /// The file with the list of a chunk.
    pub fn list(&self, number: u64) -> PathBuf {
        list_path(&self.place, number)
    }

    /// The file with the digests of a finished chunk's files.
    pub fn sums(&self, number: u64) -> PathBuf {
        self.place.join(SUMS).join(format!("{number:06}.b3"))
    }

    /// The log of a task, unless its engine keeps one.
    pub fn log(&self, number: u64) -> PathBuf {
        self.place.join(LOG).join(format!("{number:06}.log"))
    }

    pub(crate) fn record(&self, kind: &str, number: u64) -> PathBuf {
        self.place.join(kind).join(format!("{number:06}.json"))
    }

    /// Under what parts of a chunk's files are kept on the servers: 16 bytes of the run's name and
    /// 16 of the chunk's.
    pub fn label(&self, chunk: &Chunk) -> [u8; 32] {
        self.labelled(chunk.id)
    }

    /// The label under which the ranges of this chunk's file are collected.
    pub(crate) fn file_label(&self, chunk: &Chunk) -> [u8; 32] {
        let first = blake3::hash(format!("ranges {}", chunk.siblings().start).as_bytes());
        self.labelled(*first.as_bytes())
    }

    /// The same for the last step, which is no chunk's.
    pub(crate) fn last_label(&self) -> [u8; 32] {
        self.labelled([0; 32])
    }

    fn labelled(&self, mut label: [u8; 32]) -> [u8; 32] {
        let run = blake3::hash(self.head.id.as_bytes());
        let run = match u128::from_str_radix(&self.head.id, 16) {
            Ok(id) => id.to_be_bytes(),
            Err(_) => run.as_bytes().first_chunk().copied().unwrap_or_default(),
        };
        for (to, from) in label.iter_mut().zip(run) {
            *to = from;
        }
        label
    }
}

pub(crate) fn list_path(place: &Path, number: u64) -> PathBuf {
    place.join(CHUNKS).join(format!("{number:06}.list"))
}

/// A path as text.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'%' | 0..=0x1f | 0x7f..=0xff => text.push_str(&format!("%{byte:02x}")),
            byte => text.push(char::from(*byte)),
        }
    }
    text
}

fn decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// A record; `None` if there is none.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| damaged(path, e)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, "cannot be read")(error)),
    }
}

/// Writes a record: on the disk, and under its name, as a whole or not at all.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> Result<(), Error> {
    let mut text = serde_json::to_vec(record).map_err(|e| damaged(path, e))?;
    text.push(b'\n');
    publish(path, &text)
}

/// Writes a file: on the disk, and under its name, as a whole or not at all. A symbolic link of
/// that name is replaced, not followed.
///
/// # Errors
/// It cannot be written there.
pub fn publish(path: &Path, text: &[u8]) -> Result<(), Error> {
    let new = run_watched(path)?;
    let made = create(&new).and_then(|mut file| {
        file.write_all(text)?;
        sync(&file)
    });
    made.map_err(at(&new, "cannot be written"))?;
    fs::rename(&new, path).map_err(at(path, "cannot be written"))
}

/// Waits until a file is on the disk, where its file system can be waited for.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        done => done,
    }
}

/// A name for the file that becomes this one. It is random, so that no link can be there before.
pub(crate) fn run_watched(path: &Path) -> Result<PathBuf, Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", random()?));
    Ok(path.with_file_name(name))
}

/// 16 random bytes, hexadecimal.
pub(crate) fn random() -> Result<String, Error> {
    let mut random = [0; 16];
    let failed =
        |error: getrandom::Error| Error::InvalidRequest(format!("no random numbers: {error}"));
    getrandom::fill(&mut random).map_err(failed)?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

/// A file that was not there: one that is, and a symbolic link (`O_EXCL`), is an error.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// The end of a log, which is made if it is not there. A symbolic link is an error.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.append(true).create(true).mode(FILE_MODE).custom_flags(no_links).open(path)
}

/// The permissions of others for a run: reading. The umask may take away from that, and adds
/// nothing.
const FILE_MODE: u32 = 0o644;
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// Write permission of the group and of all others. With an access list, the group's bit shows
/// whether any of its entries permits writing.
const OTHERS_WRITE: u32 = 0o022;

/// Refuses a directory in which another user could replace a file: from such a run this user would
/// start programs, read lists and follow links of that other user's choice
/// (`docs/reference/threat-model.md`).
pub(crate) fn refuse_others(directory: &Path) -> Result<(), Error> {
    let about = match fs::symlink_metadata(directory) {
        Ok(about) => about,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at(directory, "cannot be used")(error)),
    };
    let me = rustix::process::geteuid().as_raw();
    if !about.is_dir() {
        return Err(damaged(directory, "is not a directory, as it was planned"));
    }
    if about.uid() != me && about.uid() != 0 {
        let why = format!(
            "belongs to user {}, not to this one ({me}): its owner could change what this run \
             starts and sends; run this as its owner",
            about.uid()
        );
        return Err(damaged(directory, why));
    }
    if about.mode() & OTHERS_WRITE != 0 {
        let why = format!(
            "can be written by others (mode {:04o}): they could change what this run starts and \
             sends; take that permission away (chmod go-w) if they are not to have changed it",
            about.mode() & 0o7777
        );
        return Err(damaged(directory, why));
    }
    Ok(())
}

/// This machine's name.
pub(crate) fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_as_text() {
        for bytes in [&b"/a b/c"[..], b"%41", b"\xff\n\0", b"%", "\u{e4}".as_bytes()] {
            assert_eq!(decoded(&encoded(bytes)), bytes);
        }
        assert_eq!(encoded(b"/plain path"), "/plain path");
    }

    #[test]
    fn lines_of_the_index_are_read_as_they_were_written() {
        let chunk = Chunk { number: 7, id: [9; 32], items: 3, bytes: u64::MAX, part: None };
        let range = Chunk { part: Some(Part { index: 2, count: 5 }), ..chunk.clone() };
        assert_eq!((chunk.siblings(), range.siblings()), (7..8, 5..10));
        for odd in [" 5/5", " 8/9", " 1", " x/2", " "] {
            assert_eq!(Chunk::parse(&format!("{}{odd}", chunk.line().trim_end())), None, "{odd}");
        }
        for chunk in [chunk, range] {
            assert_eq!(Chunk::parse(chunk.line().trim_end()), Some(chunk));
        }
        assert_eq!(Chunk::parse("7 xx 3 4"), None);
    }

    #[test]
    fn a_file_of_a_run_is_written_over_no_link_and_under_no_name_that_can_be_guessed() {
        let place = tempfile::tempdir().expect("a directory");
        let [victim, record, log] = ["victim", "record", "log"].map(|name| place.path().join(name));
        fs::write(&victim, "theirs").expect("written");
        for link in [&record, &log] {
            std::os::unix::fs::symlink(&victim, link).expect("a link");
        }
        publish(&record, b"ours").expect("published");
        assert_eq!(fs::read(&record).expect("read"), b"ours");
        assert!(append(&log).is_err() && create(&log).is_err());
        assert_eq!(fs::read(&victim).expect("read"), b"theirs");
        let names = [(); 2].map(|()| run_watched(&record).expect("a name"));
        assert_ne!(names[0], names[1]);
        assert!(names[0].as_os_str().len() >= record.as_os_str().len() + 32, "{names:?}");
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let place = tempfile::tempdir().expect("a directory");
        let answer = |mode| {
            let set = fs::set_permissions(place.path(), fs::Permissions::from_mode(mode));
            set.map(|()| refuse_others(place.path())).expect("set")
        };
        for mode in [0o700, 0o755, 0o750, 0o2755] {
            answer(mode).expect("only its owner can write there");
        }
        for mode in [0o775, 0o777, 0o1777, 0o702] {
            let refused = answer(mode).expect_err("others can").to_string();
            assert!(refused.contains(&format!("{mode:04o}")), "{refused}");
        }
        refuse_others(&place.path().join("none")).expect("nothing is there");
        if rustix::process::geteuid().is_root() {
            answer(0o700).expect("mine");
            std::os::unix::fs::chown(place.path(), Some(4321), None).expect("given away");
            let refused = refuse_others(place.path()).expect_err("another's").to_string();
            assert!(refused.contains("belongs to user 4321"), "{refused}");
        }
    }
}
