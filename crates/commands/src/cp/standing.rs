//! What stands at the destination before a copy: the sender passes over what is not to be replaced.
//!
//! Names go over as hashes: the sending end learns nothing of what it does not offer itself.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt::{Overwrite, Pass};
use netblt_proto::limits::MAX_FILES;
use serde::{Deserialize, Serialize};

/// What becomes of a file that stands at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Existing {
    /// It is replaced.
    #[default]
    Replace,
    /// It stays, whatever it is.
    Keep,
    /// It stays if it is newer, or of the same length and of a time that differs by no more than
    /// this, or than the file system at the destination can tell.
    KeepNewer(Duration),
}

impl Existing {
    /// What the receiver does about what is there all the same, since it came meanwhile.
    pub(crate) fn overwrite(self) -> Overwrite {
        match self {
            Self::Keep => Overwrite::Never,
            Self::Replace | Self::KeepNewer(_) => Overwrite::Always,
        }
    }
}

/// Files in one word: about 130 bytes each at most, and a word has 1 MiB.
const PIECE: usize = 7_000;

/// No file system that keeps times keeps them less exactly.
const COARSEST: Duration = Duration::from_secs(3);

/// A file at the destination: its name's hash, its bytes, and when it was modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    name: (u64, u64),
    bytes: u64,
    seconds: i64,
    nanos: u32,
}

/// Some of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) files: Vec<Standing>,
    pub(crate) last: bool,
    /// How far from what it was set to a time may be there.
    pub(crate) coarse: Duration,
}

/// All files beneath these names in a directory; links are not followed. What cannot be looked at
/// is as good as not there: the transfer will say so.
fn look(directory: &Path, names: &[OsString]) -> Vec<Standing> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    while let Some(name) = todo.pop() {
        let Ok(metadata) = fs::symlink_metadata(directory.join(&name)) else { continue };
        if metadata.is_dir() {
            let children = fs::read_dir(directory.join(&name));
            let children = children.into_iter().flatten().flatten();
            todo.extend(children.map(|child| name.join(child.file_name())));
            continue;
        }
        found.push(Standing {
            name: hash(name.as_os_str().as_bytes()),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        });
    }
    found
}

/// What there is to tell of a destination.
pub(crate) fn told(directory: &Path, names: &[OsString], existing: Existing) -> Vec<Piece> {
    let found = look(directory, names);
    // A time that tells every nanosecond is proof enough.
    let fine = found.iter().any(|file| !file.nanos.is_multiple_of(100));
    let wanted = matches!(existing, Existing::KeepNewer(_)) && !found.is_empty() && !fine;
    pieces(&found, if wanted { coarseness(directory) } else { Duration::ZERO })
}

/// How far from what it was set to a time may be in a directory: two seconds on FAT, one on sshfs.
/// Nothing where that cannot be found out. The directory keeps its own time.
fn coarseness(directory: &Path) -> Duration {
    let times = |read: std::io::Result<SystemTime>, set: std::io::Result<SystemTime>| {
        // Some file systems (FUSE) set both or none.
        Ok::<_, std::io::Error>(fs::FileTimes::new().set_accessed(read?).set_modified(set?))
    };
    let before = fs::metadata(directory).and_then(|old| times(old.accessed(), old.modified()));
    let found = (|| {
        let probe = tempfile::Builder::new().prefix(".netblt-time-").tempfile_in(directory)?;
        let far = |set: Duration| -> std::io::Result<Duration> {
            let set = UNIX_EPOCH + set;
            probe.as_file().set_times(times(Ok(set), Ok(set))?)?;
            let kept = fs::metadata(probe.path())?.modified()?;
            Ok(kept.duration_since(set).unwrap_or_else(|early| early.duration()))
        };
        // One that is cut off as much as can be, and one that is rounded up.
        let odd = far(Duration::new(1_000_000_001, 999_999_999))?;
        Ok::<_, std::io::Error>(odd.max(far(Duration::new(1_000_000_000, 1))?))
    })();
    if let (Ok(times), Ok(directory)) = (before, fs::File::open(directory)) {
        // Its time is no part of what is copied.
        let _ = directory.set_times(times);
    }
    // What is further away is no matter of precision.
    found.ok().filter(|far| *far < COARSEST).unwrap_or_default()
}

/// For a channel whose words are bounded; one at least.
fn pieces(files: &[Standing], coarse: Duration) -> Vec<Piece> {
    let piece = |files: &[Standing]| Piece { files: files.to_vec(), last: false, coarse };
    let mut pieces: Vec<Piece> = files.chunks(PIECE).map(piece).collect();
    if pieces.is_empty() {
        pieces.push(Piece::default());
    }
    pieces.last_mut().into_iter().for_each(|piece| piece.last = true);
    pieces
}

/// What was told, until it is whole.
#[derive(Debug, Default)]
pub(crate) struct Told {
    files: HashMap<(u64, u64), Standing>,
    coarse: Duration,
}

impl Told {
    /// Takes a piece; whether it was the last. More than can be there is an error.
    pub(crate) fn add(&mut self, piece: Piece) -> Result<bool, ()> {
        self.files.extend(piece.files.into_iter().map(|file| (file.name, file)));
        // Of an end that means harm: no more than there is.
        self.coarse = self.coarse.max(piece.coarse).min(COARSEST);
        if self.files.len() as u64 > MAX_FILES { Err(()) } else { Ok(piece.last) }
    }

    /// What is passed over; how many that are is counted.
    pub(crate) fn pass(self, existing: Existing, count: &Arc<AtomicU64>) -> Pass {
        let count = Arc::clone(count);
        let existing = match existing {
            Existing::KeepNewer(window) => Existing::KeepNewer(window.max(self.coarse)),
            existing => existing,
        };
        Pass::new(move |name, bytes, modified| {
            let there = self.files.get(&hash(name));
            let stays = there.is_some_and(|there| there.stays(existing, bytes, modified));
            count.fetch_add(u64::from(stays), Ordering::Relaxed);
            stays
        })
    }
}

impl Standing {
    fn stays(&self, existing: Existing, bytes: u64, modified: SystemTime) -> bool {
        let since = modified.duration_since(UNIX_EPOCH);
        let theirs = since.map_or_else(
            |before| -i128::from(nanos(before.duration())),
            |after| i128::from(nanos(after)),
        );
        let own = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos);
        match existing {
            Existing::Replace => false,
            Existing::Keep => true,
            Existing::KeepNewer(window) => {
                let window = i128::from(nanos(window));
                let newer = own - theirs;
                newer > window || (newer >= -window && self.bytes == bytes)
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn hash(name: &[u8]) -> (u64, u64) {
    let hash = blake3::derive_key("netblt cp 1 name at the destination", name);
    let half = |at: usize| {
        hash.iter().skip(at).take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    (half(0), half(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_newer_stays() {
        let there = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(there.path().join("d/e")).expect("made");
        for name in ["d/e/x", "d/y", "z", "other"] {
            fs::write(there.path().join(name), name).expect("written");
        }
        let found = look(there.path(), &["d".into(), "z".into(), "none".into()]);
        assert_eq!(found.len(), 3);
        let passes = |existing, name: &str, bytes, modified| {
            let mut told = Told::default();
            for piece in pieces(&found, Duration::ZERO) {
                assert_eq!(told.add(piece), Ok(true));
            }
            let count = Arc::default();
            let pass = told.pass(existing, &count);
            let passes = pass.passes(name.as_bytes(), bytes, modified);
            assert_eq!(count.load(Ordering::Relaxed), u64::from(passes));
            passes
        };
        let own = fs::metadata(there.path().join("d/y")).and_then(|m| m.modified());
        let own = own.expect("known");
        let hour = Duration::from_secs(3600);
        for (name, bytes, modified, kept, newer) in [
            ("d/y", 3, own, true, true),
            ("d/y", 4, own, true, false),
            ("d/y", 3, own + hour, true, false),
            ("d/y", 9, own - hour, true, true),
            ("d/e/x", 5, UNIX_EPOCH - hour, true, true),
            ("other", 5, own, false, false),
            ("d/n", 5, own, false, false),
        ] {
            assert_eq!(passes(Existing::Keep, name, bytes, modified), kept, "{name}");
            let exactly = Existing::KeepNewer(Duration::ZERO);
            assert_eq!(passes(exactly, name, bytes, modified), newer, "{name}");
            assert!(!passes(Existing::Replace, name, bytes, modified));
        }
    }

    #[test]
    fn times_that_differ_less_than_can_be_told_are_the_same() {
        let file = Standing { name: hash(b"f"), bytes: 3, seconds: 100, nanos: 0 };
        let stays = |coarse: Duration, window: Duration, (seconds, nanos), bytes| {
            let mut told = Told::default();
            let piece = Piece { files: vec![file], last: true, coarse };
            assert_eq!(told.add(piece), Ok(true));
            let pass = told.pass(Existing::KeepNewer(window), &Arc::default());
            pass.passes(b"f", bytes, UNIX_EPOCH + Duration::new(seconds, nanos))
        };
        let (none, second) = (Duration::ZERO, Duration::from_nanos(999_999_999));
        for (coarse, window, time, bytes, expected) in [
            (none, none, (100, 1), 3, false),
            (none, none, (100, 0), 3, true),
            (second, none, (100, 999_999_999), 3, true),
            (second, none, (101, 0), 3, false),
            (second, none, (100, 5), 4, false),
            (none, Duration::from_secs(1), (101, 0), 3, true),
            (none, Duration::from_secs(1), (99, 0), 4, false),
            (none, Duration::from_secs(1), (98, 999_999_999), 4, true),
            // Not whatever the other end says.
            (Duration::from_secs(3600), none, (104, 0), 3, false),
        ] {
            assert_eq!(stays(coarse, window, time, bytes), expected, "{coarse:?} {time:?}");
        }
    }

    #[test]
    fn how_exactly_times_are_kept_is_found_out_and_leaves_no_trace() {
        let place = tempfile::tempdir().expect("a directory");
        let time = UNIX_EPOCH + Duration::from_secs(1_234_567);
        let directory = fs::File::open(place.path()).expect("opened");
        directory.set_modified(time).expect("set");
        assert!(coarseness(place.path()) < Duration::from_secs(2));
        let after = fs::metadata(place.path()).and_then(|metadata| metadata.modified());
        assert_eq!(after.expect("known"), time);
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 0);
        assert_eq!(coarseness(&place.path().join("none")), Duration::ZERO);
    }

    #[test]
    fn pieces_fit_into_words() {
        let file = Standing {
            name: (u64::MAX, u64::MAX),
            bytes: u64::MAX,
            seconds: i64::MIN,
            nanos: 999_999_999,
        };
        let pieces = pieces(&vec![file; PIECE + 1], COARSEST);
        let lasts: Vec<_> = pieces.iter().map(|piece| piece.last).collect();
        assert_eq!(lasts, [false, true]);
        let text = serde_json::to_vec(&pieces[0]).expect("JSON");
        assert!(text.len() < (1 << 20) - 100, "{}", text.len());
    }
}
