//! The staging directory `.netblt-unfinished-<16 hex digits>.part` of a destination: received files
//! that have no name yet.
//!
//! Only this user can enter it, and its owner, a process, holds a lock on the file `owner` in it as
//! long as it lives. A directory with a dead owner is the leftover of a killed process. The next
//! receiver into the same place completes it, if its files were being published (`publish_all` says
//! when), and else removes it. Directories of other users, other hosts or living processes are not
//! touched. A directory from an archive may hold other names of files that matter: no file that was
//! there before is written to, unless `resume` has verified it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::disk::locks::{self, HOLDER, Hold};
use crate::disk::safe_open::create_new;

/// With what all names of netblt's own begin, and how FAT shortens them.
const OWN: &[u8] = b".netblt-";
const OWN_SHORT: &[u8] = b"netblt~";
/// Why a sender's file does not get such a name.
pub(crate) const OWN_NAME: &str = "names that begin with .netblt- are netblt's own";
const PREFIX: &[u8] = b".netblt-unfinished-";
const SUFFIX: &[u8] = b".part";
const RANDOM_BYTES: usize = 8;
/// The partial directory, which keeps parts of files for the next transfer.
pub(crate) const KEPT: &str = ".netblt-partial";
/// The start of the name of a directory for the ranges of a file. The label of the file follows.
const RANGES: &str = ".netblt-ranges-";
/// Bytes of a label, which separates a transfer from others into the same directory.
pub(crate) const LABEL_BYTES: usize = 32;
/// Its file with the lock.
const README: &str = "README";
const TEXT: &str = "\
Here are parts of files that netblt has not received completely, and a list of them (journal).
The same transfer into the directory above goes on from them, and then they are gone. To see or
remove them: netblt clean DIRECTORY. Parts that were not resumed for a week is removed when netblt
receives there again.
";
/// The file with the lock. Its content is for people.
const OWNER: &str = "owner";
/// The name of the publication journal in a staging directory. In a partial directory the resume
/// journal has that name, and the publication journal has another one.
pub(crate) const JOURNAL: &str = "journal";
const PUBLICATION: &str = "publication";
/// A file that marks the rest as the user's.
const STRANDED: &str = "stranded";
/// The end of an old file's name among the temporaries, behind a number.
pub(crate) const REPLACED: &str = ".replaced";
/// A name that exists by chance, or is swept away before it is locked, is tried again this often.
const TRIES: u32 = 8;
/// Without its file of this name, a directory is either being made or was left when it was.
const MAKING: Duration = Duration::from_secs(60);
/// The most bytes of the owner's file that are read.
const OWNER_BYTES: u64 = 400;

/// A staging directory of ours.
#[derive(Debug)]
pub(crate) struct Staging {
    name: String,
    pub(crate) handle: Arc<OwnedFd>,
    /// Locked, where the file system can.
    owner: File,
    hold: Hold,
    /// Permission bits that the user's mask lets a new file have here.
    pub(crate) permitted: u32,
    /// It is the one in which parts of files are kept.
    pub(crate) kept: bool,
}

/// How the directory in which parts are kept is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Made if it is not there.
    Made,
    /// Only if it is there.
    There,
    /// Only if it is there, and nothing in it changes.
    Looked,
}

/// The leftover of a killed process.
pub(crate) enum Left {
    /// Still in use, or none of ours.
    Alone,
    /// Its owner is dead. It is ours now.
    Orphan(Staging),
}

/// Whether one part of a name is netblt's own: whether it begins as all of them do, or as FAT
/// shortens them for programs that know names of eight and three letters. Case is ignored, and so
/// are characters beyond ASCII, because some file systems ignore some of them: the name may be
/// netblt's own there.
pub(crate) fn is_ours(part: &[u8]) -> bool {
    let begins = |own: &[u8]| {
        let mut seen = part.iter().filter(|byte| byte.is_ascii()).map(u8::to_ascii_lowercase);
        own.iter().all(|byte| seen.next() == Some(*byte))
    };
    begins(OWN) || begins(OWN_SHORT)
}

/// Whether a name has such a part.
pub(crate) fn has_ours(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').any(is_ours)
}

/// The name of the directory in which the ranges of the file of this label come together.
pub(crate) fn ranges_name(label: &[u8; LABEL_BYTES]) -> String {
    format!("{RANGES}{}", blake3::Hash::from_bytes(*label).to_hex())
}

/// Whether a directory of this name is one of those.
pub(crate) fn is_ranges(name: &[u8]) -> bool {
    let hex = name.strip_prefix(RANGES.as_bytes());
    let label = hex.and_then(|hex| blake3::Hash::from_hex(hex).ok());
    label.is_some_and(|label| ranges_name(label.as_bytes()).as_bytes() == name)
}

/// The name of the partial directory of a label.
pub(crate) fn kept_name(label: Option<&[u8; LABEL_BYTES]>) -> String {
    match label {
        Some(label) => format!("{KEPT}-{}", blake3::Hash::from_bytes(*label).to_hex()),
        None => KEPT.to_owned(),
    }
}

/// The label in the name of such a directory.
pub(crate) fn label_of(name: &[u8]) -> Option<[u8; LABEL_BYTES]> {
    let hex = name.strip_prefix(KEPT.as_bytes())?.strip_prefix(b"-")?;
    let label = *blake3::Hash::from_hex(hex).ok()?.as_bytes();
    (kept_name(Some(&label)).as_bytes() == name).then_some(label)
}

/// The labels under which parts are kept in a destination.
pub(crate) fn labels(root: &OwnedFd) -> Vec<[u8; LABEL_BYTES]> {
    let Ok(listing) = Dir::read_from(root) else { return Vec::new() };
    listing.flatten().filter_map(|entry| label_of(entry.file_name().to_bytes())).collect()
}

/// Whether a living transfer has the partial directory of this name.
pub(crate) fn is_taken(root: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let kept = open(root, name.as_bytes()).and_then(|kept| {
        let readme = rustix::fs::openat(&kept, README, flags, Mode::empty())?;
        Ok((kept, readme))
    });
    kept.is_ok_and(|(kept, readme)| locks::is_taken(&kept, &readme))
}

/// Whether a directory of this name is one.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let middle = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    middle.is_some_and(|hex| {
        hex.len() == 2 * RANDOM_BYTES && hex.iter().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl Staging {
    /// Makes one in the destination.
    pub(crate) fn create(root: &OwnedFd) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_create(root) {
                Err(Errno::EXIST | Errno::NOENT | Errno::WOULDBLOCK) if tries < TRIES => {}
                made => return Ok(made?),
            }
        }
    }

    fn try_create(root: &OwnedFd) -> Result<Self, Errno> {
        let name = random_name()?;
        rustix::fs::mkdirat(root, &name, Mode::RWXU)?;
        let handle = open(root, name.as_bytes())?;
        let permitted = permitted(&handle)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let owner = rustix::fs::openat(&handle, OWNER, flags, Mode::RUSR | Mode::WUSR)?;
        let hold = locks::take(&handle, &owner, false)?.ok_or(Errno::WOULDBLOCK)?;
        let mut owner = File::from(owner);
        // A sweep in between has removed it. Then these parts have no owner.
        if !exists(&handle, OWNER) {
            return Err(Errno::NOENT);
        }
        owner.write_all(owner_text().as_bytes()).map_err(|_| Errno::IO)?;
        let handle = Arc::new(handle);
        Ok(Self { name, handle, owner, hold, permitted, kept: false })
    }

    /// Whether the file system has no locks.
    pub(crate) fn is_lockless(&self) -> bool {
        self.hold.is_by_name()
    }

    /// The partial directory: as it is, or made if `open` says so. `None` if there is none, or it
    /// is another process's or another user's.
    pub(crate) fn keep(root: &OwnedFd, name: &str, open_as: Open) -> io::Result<Option<Self>> {
        let make = open_as == Open::Made;
        for _ in 0..TRIES {
            if make {
                match rustix::fs::mkdirat(root, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let handle = match open(root, name.as_bytes()) {
                Ok(handle) => handle,
                Err(Errno::NOENT) if make => continue,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let stat = rustix::fs::fstat(&handle)?;
            if !is_private(&handle, &stat, open_as)? {
                return Ok(None);
            }
            let Some(owner) = open_readme(&handle, open_as)? else { continue };
            let Some(hold) = locks::take(&handle, &owner, open_as == Open::Looked)? else {
                return Ok(None);
            };
            let there = rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW);
            if there.is_ok_and(|there| there.st_ino == stat.st_ino) && exists(&handle, README) {
                if open_as == Open::Looked {
                    let (name, owner) = (name.to_owned(), File::from(owner));
                    let (handle, permitted) = (Arc::new(handle), 0);
                    return Ok(Some(Self { name, handle, owner, hold, permitted, kept: true }));
                }
                let permitted = permitted(&handle)?;
                let mut owner = File::from(owner);
                let about = rustix::fs::fstat(&owner)?;
                if about.st_size == 0 && about.st_nlink == 1 {
                    owner.write_all(TEXT.as_bytes())?;
                }
                let name = name.to_owned();
                let handle = Arc::new(handle);
                return Ok(Some(Self { name, handle, owner, hold, permitted, kept: true }));
            }
        }
        Ok(None)
    }

    /// Removes it with its contents. Those that cannot be removed stay, under its descriptive name.
    pub(crate) fn remove(self, root: &OwnedFd) {
        if let Ok(listing) = Dir::read_from(&self.handle) {
            let names = listing.flatten().map(|entry| entry.file_name().to_owned());
            let locked = [OWNER.as_bytes(), README.as_bytes()];
            for name in names.filter(|name| !locked.contains(&name.as_bytes())) {
                let _ = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
            }
        }
        let name = if self.kept { README } else { OWNER };
        let Self { name: directory, handle, owner, hold, .. } = self;
        let _ = rustix::fs::unlinkat(&*handle, name, AtFlags::empty());
        drop(hold);
        // NFS and FUSE keep a removed file under another name, in its place, until it is closed.
        drop(owner);
        let _ = rustix::fs::unlinkat(root, directory, AtFlags::REMOVEDIR);
    }

    /// Leaves it as it is, for the next run to find.
    pub(crate) fn leave(self) {}

    /// Leaves it as it is, for the user: its files may exist nowhere else. Returns its name, which
    /// is a new one if it was the partial directory, because that is cleared at times.
    pub(crate) fn strand(mut self, root: &OwnedFd) -> String {
        let _ = create_new(&self.handle, STRANDED);
        if self.kept
            && let Ok(name) = random_name()
        {
            let owner = create_new(&self.handle, OWNER);
            let _ = owner.and_then(|mut file| file.write_all(owner_text().as_bytes()));
            if rustix::fs::renameat(root, &self.name, root, &name).is_ok() {
                self.name = name;
            }
        }
        self.name
    }

    /// The name of its publication journal.
    pub(crate) fn publication(&self) -> &'static str {
        if self.kept { PUBLICATION } else { JOURNAL }
    }

    /// For a partial directory: whether its files were being published, all at once.
    pub(crate) fn publishes(&self) -> bool {
        self.kept && exists(&self.handle, PUBLICATION)
    }

    /// For a partial directory: the publication has ended, done or undone. Removes the old files
    /// that were kept aside. Waits for the disk, since the numbers of files will be used again.
    pub(crate) fn end_publication(&self) {
        if !self.kept {
            return;
        }
        let _ = rustix::fs::unlinkat(&self.handle, PUBLICATION, AtFlags::empty());
        if let Ok(listing) = Dir::read_from(&self.handle) {
            let names = listing.flatten().map(|entry| entry.file_name().to_owned());
            for name in names.filter(|name| name.to_bytes().ends_with(REPLACED.as_bytes())) {
                let _ = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
            }
        }
        let _ = rustix::fs::fsync(&self.handle);
    }

    /// For a partial directory: whether it is empty, so that every number is free.
    pub(crate) fn is_bare(&self) -> bool {
        let Ok(listing) = Dir::read_from(&self.handle) else { return false };
        let known = [b".".as_slice(), b"..", README.as_bytes(), HOLDER.as_bytes()];
        listing.flatten().all(|entry| known.contains(&entry.file_name().to_bytes()))
    }

    /// Whether it was left so.
    pub(crate) fn is_stranded(&self) -> bool {
        exists(&self.handle, STRANDED)
    }
}

/// Whether there may be something in a destination to which names were being given where parts are
/// kept.
pub(crate) fn may_publish(root: &OwnedFd) -> bool {
    exists(root, &format!("{KEPT}/{PUBLICATION}"))
}

pub(crate) fn random_name() -> Result<String, Errno> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let (prefix, suffix) = (String::from_utf8_lossy(PREFIX), String::from_utf8_lossy(SUFFIX));
    Ok(format!("{prefix}{:016x}{suffix}", u64::from_be_bytes(random)))
}

fn owner_text() -> String {
    format!(
        "{}\nnetblt process {} receives files into the directory above.\nThis may be deleted once \
         that process is gone; the next netblt that receives there does so.\n",
        host(),
        std::process::id()
    )
}

/// The names of staging directories in a destination.
pub(crate) fn find(root: &OwnedFd) -> Vec<Vec<u8>> {
    let Ok(listing) = Dir::read_from(root) else { return Vec::new() };
    let names = listing.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| is_name(name)).collect()
}

/// Takes over the leftover of a dead process under this name. With `look` nothing changes.
pub(crate) fn adopt(root: &OwnedFd, name: &[u8], open_as: Open) -> io::Result<Left> {
    let handle = open(root, name)?;
    let stat = rustix::fs::fstat(&handle)?;
    if !is_private(&handle, &stat, open_as)? {
        return Ok(Left::Alone);
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let owner = match rustix::fs::openat(&handle, OWNER, flags, Mode::empty()) {
        Ok(owner) => owner,
        Err(Errno::NOENT) => {
            if open_as != Open::Looked {
                remove_if_old(root, name, stat.st_mtime);
            }
            return Ok(Left::Alone);
        }
        Err(error) => return Err(error.into()),
    };
    let Some(hold) = locks::take(&handle, &owner, open_as == Open::Looked)? else {
        return Ok(Left::Alone);
    };
    let mut owner = File::from(owner);
    let mut text = String::new();
    (&mut owner).take(OWNER_BYTES).read_to_string(&mut text)?;
    // Locks are not seen by other hosts everywhere. A file without a word was just made.
    let ours = text.lines().next() == Some(host().as_str());
    if !ours || !exists(&handle, OWNER) {
        return Ok(Left::Alone);
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let permitted = if open_as == Open::Looked { 0 } else { permitted(&handle)? };
    let handle = Arc::new(handle);
    Ok(Left::Orphan(Staging { name, handle, owner, hold, permitted, kept: false }))
}

/// A directory that was left before it had its owner's file; only an empty one goes.
fn remove_if_old(root: &OwnedFd, name: &[u8], modified: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = Duration::from_secs(u64::try_from(modified).unwrap_or(0));
    if now.saturating_sub(modified) > MAKING {
        let _ = rustix::fs::unlinkat(root, OsStr::from_bytes(name), AtFlags::REMOVEDIR);
    }
}

/// The permissions that the user's mask, or a default access list, allows: found by making a file,
/// since reading the mask would mean changing it.
pub(crate) fn permitted(handle: &OwnedFd) -> Result<u32, Errno> {
    mode_of_new(handle, "mask", Mode::from_raw_mode(0o777))
}

/// Opens a directory of temporaries, one part of a name, that only this user can enter.
pub(crate) fn open_private(parent: &OwnedFd, leaf: &str) -> io::Result<OwnedFd> {
    let handle = open(parent, leaf.as_bytes())?;
    let stat = rustix::fs::fstat(&handle)?;
    if !is_private(&handle, &stat, Open::There)? {
        return Err(Errno::ACCESS.into());
    }
    Ok(handle)
}

/// Whether only this user may enter a directory, or the file system has no permissions, so that
/// every user who can enter this one can change the files beside it, too.
fn is_private(handle: &OwnedFd, stat: &Stat, open_as: Open) -> Result<bool, Errno> {
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    let others = 0o077;
    Ok(stat.st_mode & others == 0
        || open_as == Open::Looked
        || mode_of_new(handle, "mode", Mode::RUSR | Mode::WUSR)? & others != 0)
}

/// The file with the lock where parts are kept; `None` if the last user of the directory has
/// removed it just now.
fn open_readme(handle: &OwnedFd, open_as: Open) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = if open_as == Open::Looked { flags } else { flags | OFlags::CREATE };
    match rustix::fs::openat(handle, README, flags, Mode::RUSR | Mode::WUSR) {
        Ok(readme) => Ok(Some(readme)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::ROFS | Errno::ACCESS) if open_as == Open::Looked => {
            let flags = flags.difference(OFlags::RDWR) | OFlags::RDONLY;
            Ok(Some(rustix::fs::openat(handle, README, flags, Mode::empty())?))
        }
        Err(error) => Err(error.into()),
    }
}

/// The permissions that a new file in a directory gets.
fn mode_of_new(handle: &OwnedFd, name: &str, mode: Mode) -> Result<u32, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let _ = rustix::fs::unlinkat(handle, name, AtFlags::empty());
    let made = rustix::fs::openat(handle, name, flags, mode)?;
    let stat = rustix::fs::fstat(&made)?;
    rustix::fs::unlinkat(handle, name, AtFlags::empty())?;
    Ok(stat.st_mode & 0o777)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Opens a directory of one part, and no link.
fn open(root: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, OsStr::from_bytes(name), flags, Mode::empty())
}

fn exists(directory: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_partial_directory_shows_that_it_has_a_label() {
        let label = [0xab; LABEL_BYTES];
        let name = kept_name(Some(&label));
        assert_eq!(name, format!("{KEPT}-{}", "ab".repeat(32)));
        assert_eq!(label_of(name.as_bytes()), Some(label));
        assert!(is_ours(name.as_bytes()) && is_ours(kept_name(None).as_bytes()));
        let upper = name.replace("ab", "AB");
        for other in [KEPT, &name[..name.len() - 1], &format!("{name}0"), &upper, "x"] {
            assert_eq!(label_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn the_name_of_a_directory_of_ranges_shows_what_it_is() {
        let own = ranges_name(&[0xab; LABEL_BYTES]);
        assert!(is_ranges(own.as_bytes()) && is_ours(own.as_bytes()));
        let upper = own.replace("ab", "AB");
        for other in [RANGES, &own[..own.len() - 1], &format!("{own}0"), &upper, "x"] {
            assert!(!is_ranges(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn names_of_its_own_are_known_as_any_file_system_reads_them() {
        let own = [
            KEPT,
            ".NETBLT-Partial",
            ".netblt-unfinished-0123456789abcdef.part",
            ".netblt-",
            ".netblt-mine",
            ".net\u{200c}blt-partial",
            ".netblt\u{feff}-unfinished-",
            "NETBLT~1",
            "netblt~2.par",
        ];
        own.iter().for_each(|name| assert!(is_ours(name.as_bytes()), "{name}"));
        let others = ["netblt-partial", ".netblt", ".netbl", "x.netblt-partial", "netblt", "", "."];
        others.iter().for_each(|name| assert!(!is_ours(name.as_bytes()), "{name}"));
        assert!(has_ours(b"a/.netblt-Partial/b") && !has_ours(b"a/b"));
    }

    #[test]
    fn a_partial_directory_has_one_transfer_at_a_time() {
        let place = tempfile::tempdir().expect("a directory");
        let root = OwnedFd::from(File::open(place.path()).expect("opened"));
        let [one, other] =
            [[1; LABEL_BYTES], [2; LABEL_BYTES]].map(|label| kept_name(Some(&label)));
        assert!(!is_taken(&root, &one));
        let held = Staging::keep(&root, &one, Open::Made).expect("made").expect("free");
        assert!(is_taken(&root, &one) && !is_taken(&root, &other));
        assert!(Staging::keep(&root, &one, Open::Made).expect("there").is_none());
        let free = Staging::keep(&root, &other, Open::Made).expect("made").expect("free");
        held.leave();
        assert!(!is_taken(&root, &one) && is_taken(&root, &other));
        free.remove(&root);
        assert_eq!(labels(&root), [[1; LABEL_BYTES]]);
    }
}
