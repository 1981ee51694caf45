//! The key under which a user's journals are written. It distinguishes a journal that this user's
//! own program wrote here from one in an archive, on a stick, or from a peer.
//!
//! It is random, made when the first journal is written, and kept in a file of the user's
//! configuration that no other user can read. One key for each directory with a journal is derived
//! from it, by its inode and that of the destination: a copy of a journal elsewhere proves nothing.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::disk::rename::{id, move_new};
use crate::disk::{flush, safe_open};

/// How the file begins; the key follows in hexadecimal digits.
const TITLE: &str = "netblt-journal-key ";
const KEY_BYTES: usize = 32;

/// The key of this user.
pub(crate) struct Key(Zeroizing<[u8; KEY_BYTES]>);

/// The key of one directory and one kind of journal.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seal([u8; KEY_BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// A hash that cannot be made without the key.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.0)
    }

    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        Self([7; KEY_BYTES])
    }
}

impl Key {
    /// The key, if there is one. Nothing is written.
    pub(crate) fn there() -> Option<Self> {
        read(&place()?).ok()
    }

    /// The key, made if there is none. Where none can be kept (no home, a configuration that is not
    /// this user's or cannot be written to), it is lost with the process, and no later process
    /// trusts the journals under it.
    pub(crate) fn made() -> io::Result<Self> {
        let Some(place) = place() else { return Self::random() };
        match read(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Self::random()?;
                match make(&place, &key) {
                    Ok(()) => Ok(key),
                    // Another process was faster.
                    Err(Errno::EXIST) => read(&place).or(Ok(key)),
                    Err(_) => Ok(key),
                }
            }
            Err(_) => Self::random(),
            key => key,
        }
    }

    fn random() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *key).map_err(|_| io::Error::from(Errno::IO))?;
        Ok(Self(key))
    }

    /// The key of the publication journal in a directory of a destination.
    pub(crate) fn of_publication(&self, root: &OwnedFd, directory: &OwnedFd) -> io::Result<Seal> {
        self.of("netblt 9 publication", [root, directory])
    }

    /// The key of the resume journal in a directory of a destination.
    pub(crate) fn of_kept(&self, root: &OwnedFd, directory: &OwnedFd) -> io::Result<Seal> {
        self.of("netblt 9 kept journal", [root, directory])
    }

    /// The label of a copy to a directory that it makes.
    pub(crate) fn label_of_copy(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"netblt 12 label of a copy");
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Numbers of inodes outlast a restart of the machine, those of devices do not.
    fn of(&self, kind: &str, directories: [&OwnedFd; 2]) -> io::Result<Seal> {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(kind.as_bytes());
        for directory in directories {
            let (_, inode) = id(&rustix::fs::fstat(directory)?);
            hasher.update(&inode.to_be_bytes());
        }
        Ok(Seal(*hasher.finalize().as_bytes()))
    }
}

#[cfg(not(test))]
fn place() -> Option<PathBuf> {
    crate::home::config("journal-key")
}

/// Reads the key: of a file, and in a directory, that are this user's, the file unreadable for
/// other users.
fn read(path: &Path) -> io::Result<Key> {
    let own = rustix::process::geteuid().as_raw();
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let directory = safe_open::open_directory(path.parent().ok_or_else(odd)?)?;
    if rustix::fs::fstat(&directory)?.st_uid != own {
        return Err(odd());
    }
    let leaf = path.file_name().ok_or_else(odd)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&directory, leaf, flags, Mode::empty())?);
    let stat = rustix::fs::fstat(&file)?;
    if !safe_open::is_file(&stat) || stat.st_uid != own || stat.st_mode & 0o077 != 0 {
        return Err(odd());
    }
    let mut text = Zeroizing::new(String::with_capacity(128));
    file.take(127).read_to_string(&mut text)?;
    let hex = text.strip_prefix(TITLE).and_then(|rest| rest.strip_suffix('\n'));
    let key = hex.and_then(|hex| blake3::Hash::from_hex(hex).ok()).ok_or_else(odd)?;
    Ok(Key(Zeroizing::new(*key.as_bytes())))
}

/// Keeps a key where there is none: at once, and whole.
fn make(path: &Path, key: &Key) -> Result<(), Errno> {
    let (Some(parent), Some(leaf)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    let directory =
        made.and_then(|()| safe_open::open_directory(parent)).map_err(safe_open::errno)?;
    if rustix::fs::fstat(&directory)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let new = format!("{}.{:016x}", leaf.display(), u64::from_be_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &new, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(file);
    let hex = blake3::Hash::from_bytes(*key.0).to_hex();
    let text = Zeroizing::new(format!("{TITLE}{hex}\n"));
    let written = file.write_all(text.as_bytes()).and_then(|()| flush::sync(&file));
    let kept = written.map_err(safe_open::errno).and_then(|_| {
        let from = std::ffi::OsStr::from_bytes(new.as_bytes());
        move_new(parent, (&directory, from), (&directory, leaf))
    });
    if kept.is_err() {
        // It is of no use to any process.
        let _ = rustix::fs::unlinkat(&directory, &new, AtFlags::empty());
    }
    kept
}

#[cfg(test)]
use elsewhere::place;
#[cfg(test)]
pub(crate) use elsewhere::with_place;

/// In tests the configuration is a directory of the test's own.
#[cfg(test)]
mod elsewhere {
    use std::cell::RefCell;
    use std::sync::OnceLock;

    use super::*;

    thread_local! {
        static PLACE: RefCell<Option<Option<PathBuf>>> = const { RefCell::new(None) };
    }

    pub(super) fn place() -> Option<PathBuf> {
        static ALL: OnceLock<tempfile::TempDir> = OnceLock::new();
        let other = PLACE.with(|place| place.borrow().clone());
        other.unwrap_or_else(|| {
            let all = ALL.get_or_init(|| tempfile::tempdir().expect("a directory"));
            Some(all.path().join("netblt/journal-key"))
        })
    }

    /// Has the key of this thread elsewhere, or nowhere.
    pub(crate) fn with_place<T>(place: Option<PathBuf>, run: impl FnOnce() -> T) -> T {
        PLACE.with(|own| *own.borrow_mut() = Some(place));
        let done = run();
        PLACE.with(|own| *own.borrow_mut() = None);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_sees_it() {
        let home = tempfile::tempdir().expect("a directory");
        let (one, other) = (home.path().join("one"), home.path().join("other"));
        [&one, &other].iter().for_each(|path| fs::create_dir(path).expect("made"));
        let [one, other] =
            [one, other].map(|path| safe_open::open_directory(&path).expect("opened"));
        let root = safe_open::open_directory(home.path()).expect("opened");
        let place = home.path().join("config/netblt/journal-key");
        with_place(Some(place.clone()), || {
            assert!(Key::there().is_none() && !home.path().join("config").exists());
            let seal = Key::made().expect("made").of_kept(&root, &one).expect("known");
            let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode();
            assert_eq!(mode(&place) & 0o777, 0o600);
            assert_eq!(mode(place.parent().expect("one")) & 0o777, 0o700);
            let again = Key::made().expect("there");
            assert!(again.of_kept(&root, &one).expect("known") == seal);
            assert!(again.of_kept(&root, &other).expect("known") != seal);
            assert!(again.of_publication(&root, &one).expect("known") != seal);
            assert_eq!(fs::read_dir(place.parent().expect("one")).expect("listed").count(), 1);
            // A file that other users can read is no key, and is not replaced.
            fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).expect("set");
            assert!(Key::there().is_none());
            assert!(Key::made().expect("random").of_kept(&root, &one).expect("known") != seal);
            fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).expect("set");
            assert!(Key::there().expect("there").of_kept(&root, &one).expect("known") == seal);
        });
        with_place(None, || {
            assert!(Key::there().is_none());
            let [one, other] = [(), ()].map(|()| Key::made().expect("random").of_kept(&root, &one));
            assert!(one.expect("known") != other.expect("known"));
        });
    }
}
