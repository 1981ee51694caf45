//! Files that exist at the destination before a copy: the sender skips those that are not to be
//! replaced.
//!
//! Names are sent as hashes: the sending end learns nothing of files that it does not offer itself.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt::{Overwrite, SkipFilter};
use netblt_proto::limits::MAX_FILES;
use serde::{Deserialize, Serialize};

/// The rule for a file that exists at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExistingPolicy {
    /// It is replaced.
    #[default]
    Replace,
    /// It stays, whatever it is.
    Keep,
    /// It stays if it is newer, or of the same length and of a time that differs by no more than
    /// this, or than the resolution of the destination's file system.
    KeepNewer(Duration),
}

impl ExistingPolicy {
    /// The receiver's rule for files that appear meanwhile.
    pub(crate) fn overwrite(self) -> Overwrite {
        match self {
            Self::Keep => Overwrite::Never,
            Self::Replace | Self::KeepNewer(_) => Overwrite::Always,
        }
    }
}

/// Files in one message: at most about 130 bytes each, of 1 MiB.
const PIECE: usize = 7_000;

/// The coarsest resolution of times in any file system that keeps times.
const COARSEST: Duration = Duration::from_secs(3);

/// A file at the destination: its name's hash, its bytes, and when it was modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExistingFile {
    name: (u64, u64),
    bytes: u64,
    seconds: i64,
    nanos: u32,
}

/// Some of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) files: Vec<ExistingFile>,
    pub(crate) last: bool,
    /// The resolution of times there.
    pub(crate) coarse: Duration,
}

/// All files beneath these names in a directory. Links are not followed. A file that cannot be
/// examined counts as missing: the transfer will report it.
fn look(directory: &Path, names: &[OsString]) -> Vec<ExistingFile> {
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
        found.push(ExistingFile {
            name: hash(name.as_os_str().as_bytes()),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        });
    }
    found
}

/// The existing files of a destination.
pub(crate) fn existing_pieces(
    directory: &Path,
    names: &[OsString],
    existing: ExistingPolicy,
) -> Vec<Piece> {
    let found = look(directory, names);
    // A time with nanoseconds is proof enough.
    let fine = found.iter().any(|file| !file.nanos.is_multiple_of(100));
    let wanted = matches!(existing, ExistingPolicy::KeepNewer(_)) && !found.is_empty() && !fine;
    pieces(&found, if wanted { coarseness(directory) } else { Duration::ZERO })
}

/// The resolution of times in a directory: two seconds on FAT, one on sshfs. Zero where it cannot
/// be found. The directory keeps its own time.
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
        // Its time is not part of the copy.
        let _ = directory.set_times(times);
    }
    // A larger difference is no matter of resolution.
    found.ok().filter(|far| *far < COARSEST).unwrap_or_default()
}

/// In pieces, for messages of bounded length; one at least.
fn pieces(files: &[ExistingFile], coarse: Duration) -> Vec<Piece> {
    let piece = |files: &[ExistingFile]| Piece { files: files.to_vec(), last: false, coarse };
    let mut pieces: Vec<Piece> = files.chunks(PIECE).map(piece).collect();
    if pieces.is_empty() {
        pieces.push(Piece::default());
    }
    pieces.last_mut().into_iter().for_each(|piece| piece.last = true);
    pieces
}

/// The received pieces, until they are complete.
#[derive(Debug, Default)]
pub(crate) struct ExistingFiles {
    files: HashMap<(u64, u64), ExistingFile>,
    coarse: Duration,
}

impl ExistingFiles {
    /// Takes a piece; whether it was the last. More than can be there is an error.
    pub(crate) fn add(&mut self, piece: Piece) -> Result<bool, ()> {
        self.files.extend(piece.files.into_iter().map(|file| (file.name, file)));
        // A hostile end may claim any resolution.
        self.coarse = self.coarse.max(piece.coarse).min(COARSEST);
        if self.files.len() as u64 > MAX_FILES { Err(()) } else { Ok(piece.last) }
    }

    /// The filter of files to skip, which counts them.
    pub(crate) fn skip_filter(
        self,
        existing: ExistingPolicy,
        count: &Arc<AtomicU64>,
    ) -> SkipFilter {
        let count = Arc::clone(count);
        let existing = match existing {
            ExistingPolicy::KeepNewer(window) => ExistingPolicy::KeepNewer(window.max(self.coarse)),
            existing => existing,
        };
        SkipFilter::new(move |name, bytes, modified| {
            let there = self.files.get(&hash(name));
            let stays = there.is_some_and(|there| there.stays(existing, bytes, modified));
            count.fetch_add(u64::from(stays), Ordering::Relaxed);
            stays
        })
    }
}

impl ExistingFile {
    fn stays(&self, existing: ExistingPolicy, bytes: u64, modified: SystemTime) -> bool {
        let since = modified.duration_since(UNIX_EPOCH);
        let theirs = since.map_or_else(
            |before| -i128::from(nanos(before.duration())),
            |after| i128::from(nanos(after)),
        );
        let own = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos);
        match existing {
            ExistingPolicy::Replace => false,
            ExistingPolicy::Keep => true,
            ExistingPolicy::KeepNewer(window) => {
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
    fn a_newer_file_at_the_destination_stays() {
        let there = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(there.path().join("d/e")).expect("made");
        for name in ["d/e/x", "d/y", "z", "other"] {
            fs::write(there.path().join(name), name).expect("written");
        }
        let found = look(there.path(), &["d".into(), "z".into(), "none".into()]);
        assert_eq!(found.len(), 3);
        let passes = |existing, name: &str, bytes, modified| {
            let mut files = ExistingFiles::default();
            for piece in pieces(&found, Duration::ZERO) {
                assert_eq!(files.add(piece), Ok(true));
            }
            let count = Arc::default();
            let skip = files.skip_filter(existing, &count);
            let passes = skip.skips(name.as_bytes(), bytes, modified);
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
            assert_eq!(passes(ExistingPolicy::Keep, name, bytes, modified), kept, "{name}");
            let exactly = ExistingPolicy::KeepNewer(Duration::ZERO);
            assert_eq!(passes(exactly, name, bytes, modified), newer, "{name}");
            assert!(!passes(ExistingPolicy::Replace, name, bytes, modified));
        }
    }

    #[test]
    fn times_within_the_window_are_the_same() {
        let file = ExistingFile { name: hash(b"f"), bytes: 3, seconds: 100, nanos: 0 };
        let stays = |coarse: Duration, window: Duration, (seconds, nanos), bytes| {
            let mut files = ExistingFiles::default();
            let piece = Piece { files: vec![file], last: true, coarse };
            assert_eq!(files.add(piece), Ok(true));
            let skip = files.skip_filter(ExistingPolicy::KeepNewer(window), &Arc::default());
            skip.skips(b"f", bytes, UNIX_EPOCH + Duration::new(seconds, nanos))
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
            // The claim of the other end is bounded.
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
        let file = ExistingFile {
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
