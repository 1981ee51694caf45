//! The sites of temporaries: beside the names that they will get (docs/decisions/temporaries.md).
//!
//! A *site* is a directory that existed before the transfer and into which files go, or into new
//! directories beneath it. The temporaries of a site are in a directory of their own in it,
//! `.netblt-unfinished-<16 hex digits>.part`, so that they are on its file system and get its
//! group, default access list and flags. The top of the destination is site 0: its temporaries are
//! in the *home*, and so is the journal. The home has a list of the other sites. It is written
//! before any file is made in one, so that all of them can be found.
//!
//! The number of a temporary contains its site, in its first bits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use netblt_proto::content::check_name;
use netblt_proto::limits::{MAX_FILES, MAX_NAME};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::flush;
use crate::disk::names::{NameId, escaped, unescaped};
use crate::disk::rename::id;
use crate::disk::safe_open::{self, create_new};
use crate::disk::staging::{self, REPLACED, Staging};

/// The site at the top of the destination.
pub(crate) const TOP: usize = 0;
/// Bits of a temporary's number that count within its transfer.
const SLOT_BITS: u32 = 40;
/// The list of sites in a home.
pub(crate) const LIST: &str = "sites";
/// Longest line of it: a number, a leaf, and a path of which each byte may be escaped.
const MAX_LINE: u64 = 2 * MAX_NAME as u64 + 128;
/// A site's directory is made again so often if another process has removed it, empty, meanwhile.
const TRIES: u32 = 8;

/// The site of a temporary.
pub(crate) fn site_of(slot: u64) -> usize {
    usize::try_from(slot >> SLOT_BITS).unwrap_or(usize::MAX)
}

/// The temporary of this count in a site.
pub(crate) fn slot_of(site: usize, count: u64) -> u64 {
    (site as u64) << SLOT_BITS | count
}

/// The number of a temporary that there is not yet, in a site.
pub(crate) fn none_in(site: usize) -> u64 {
    slot_of(site, 1 << (SLOT_BITS - 1))
}

/// The count of a temporary's number within its transfer; `None` if that is more than any has.
pub(crate) fn count_of(slot: u64) -> Option<u64> {
    let count = slot & ((1 << SLOT_BITS) - 1);
    (count < 1 << (SLOT_BITS - 1)).then_some(count)
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The directory, from the destination on.
    pub(crate) path: Vec<u8>,
    /// Its directory of temporaries.
    pub(crate) leaf: String,
}

/// The facts of an open site.
#[derive(Clone, Copy, Debug)]
struct SiteInfo {
    device: u64,
    /// One call brings all of its file system to the disk.
    is_whole: bool,
    /// The permissions of a new file there, if one is to be made.
    permitted: Option<u32>,
}

/// The site for the temporaries of a directory's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// `None` if nothing can be written there.
    pub(crate) site: Option<usize>,
    /// The directory was there before the transfer.
    pub(crate) exists: bool,
}

/// The sites of a transfer.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    list: BTreeMap<usize, Site>,
    by_path: HashMap<Vec<u8>, usize>,
    /// By directories of the transfer.
    beside: HashMap<NameId, Beside>,
    about: BTreeMap<usize, SiteInfo>,
    /// Those in the home's list.
    recorded: BTreeSet<usize>,
    /// Those that were made since the last flush.
    made: BTreeSet<usize>,
    /// The one that was used last.
    last: Option<(usize, Arc<OwnedFd>)>,
}

impl Sites {
    /// The sites of a home.
    pub(crate) fn load(home: &OwnedFd) -> Self {
        let mut this = Self::default();
        for (number, site) in read(home) {
            this.recorded.insert(number);
            this.put(number, site);
        }
        this
    }

    /// Adds a site of a journal.
    pub(crate) fn put(&mut self, number: usize, site: Site) {
        self.by_path.insert(site.path.clone(), number);
        self.list.insert(number, site);
    }

    /// The site of a directory, as it was found for a file before.
    pub(crate) fn beside(&self, directory: NameId) -> Option<Beside> {
        self.beside.get(&directory).copied()
    }

    /// Finds that this is the site of a directory.
    pub(crate) fn set_beside(&mut self, directory: NameId, beside: Beside) {
        self.beside.insert(directory, beside);
    }

    /// The names of a transfer are other ones from now on.
    pub(crate) fn forget_names(&mut self) {
        self.beside.clear();
    }

    /// The site in a directory that is there, a new one if it is none yet.
    pub(crate) fn number(&mut self, path: &[u8]) -> io::Result<usize> {
        if let Some(number) = self.by_path.get(path) {
            return Ok(*number);
        }
        let number = self.list.last_key_value().map_or(TOP, |(last, _)| *last) + 1;
        let (path, leaf) = (path.to_vec(), staging::random_name()?);
        self.put(number, Site { path, leaf });
        Ok(number)
    }

    /// All of them but the top.
    pub(crate) fn all(&self) -> &BTreeMap<usize, Site> {
        &self.list
    }

    /// All numbers but the top's.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.list.keys().copied().collect()
    }

    /// Permissions that a new file may have in a site that was opened.
    pub(crate) fn permitted(&self, number: usize) -> Option<u32> {
        self.about.get(&number).and_then(|about| about.permitted)
    }

    /// Another process has removed the directory that was used last, since it was empty.
    pub(crate) fn is_gone(&mut self) {
        self.last = None;
    }

    /// The directory of temporaries in a site. It is made on request.
    pub(crate) fn open(
        &mut self,
        root: &OwnedFd,
        number: usize,
        make: bool,
    ) -> io::Result<Arc<OwnedFd>> {
        if let Some((last, handle)) = &self.last
            && *last == number
            && (!make || self.permitted(number).is_some())
        {
            return Ok(Arc::clone(handle));
        }
        self.last = None;
        let site = self.list.get(&number).cloned().ok_or(io::ErrorKind::NotFound)?;
        let parent = safe_open::directory(root.as_fd(), &site.path)?;
        let handle = Arc::new(self.enter(&parent, number, &site.leaf, make)?);
        let mut about = match self.about.get(&number) {
            Some(about) => *about,
            None => {
                let (device, _) = id(&rustix::fs::fstat(&handle)?);
                SiteInfo { device, is_whole: flush::is_whole(&handle), permitted: None }
            }
        };
        if make && about.permitted.is_none() {
            about.permitted = Some(staging::permitted(&handle)?);
        }
        self.about.insert(number, about);
        self.last = Some((number, Arc::clone(&handle)));
        Ok(handle)
    }

    fn enter(
        &mut self,
        parent: &OwnedFd,
        number: usize,
        leaf: &str,
        make: bool,
    ) -> io::Result<OwnedFd> {
        for _ in 0..TRIES {
            let made = match rustix::fs::mkdirat(parent, leaf, Mode::RWXU) {
                _ if !make => false,
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            if made {
                self.made.insert(number);
            }
            match staging::open_private(parent, leaf) {
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Whether the home's list lacks some of them.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.recorded.len() < self.list.len()
    }

    /// Adds the others to the list in the home, and waits until that is on the disk. Nothing is
    /// made in a site before.
    pub(crate) fn record(&mut self, home: &OwnedFd, lodge: &OwnedFd) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (mut file, new) = match rustix::fs::openat(home, LIST, flags, Mode::empty()) {
            Ok(file) => (File::from(file), false),
            Err(Errno::NOENT) => (create_new(home, LIST)?, true),
            Err(error) => return Err(error.into()),
        };
        let mut lines = Vec::new();
        for (number, site) in self.list.iter().filter(|(number, _)| !self.recorded.contains(number))
        {
            lines.extend(format!("{number} {} ", site.leaf).into_bytes());
            lines.extend(escaped(&site.path));
            lines.push(b'\n');
        }
        file.write_all(&lines)?;
        flush::sync(&file)?;
        if new {
            flush::directory(home)?;
            flush::directory(lodge)?;
        }
        self.recorded.extend(self.list.keys());
        Ok(())
    }

    /// Flushes the directories of these temporaries, with their entries.
    pub(crate) fn sync(&mut self, root: &OwnedFd, slots: &[u64]) -> io::Result<()> {
        let used: BTreeSet<usize> = slots.iter().map(|slot| site_of(*slot)).collect();
        for number in used.into_iter().filter(|number| *number != TOP) {
            flush::directory(&*self.open(root, number, false)?)?;
        }
        for number in std::mem::take(&mut self.made) {
            if let Some(site) = self.list.get(&number) {
                flush::directory(&safe_open::directory(root.as_fd(), &site.path)?)?;
            }
        }
        Ok(())
    }

    /// Sites on other file systems than those of `devices`: one of each.
    pub(crate) fn others(&self, top: u64) -> Vec<usize> {
        let mut devices = BTreeSet::from([top]);
        let new = self.about.iter().filter(|(_, about)| devices.insert(about.device));
        new.map(|(number, _)| *number).collect()
    }

    /// Whether all sites are on file systems that are brought to the disk in one call.
    pub(crate) fn all_whole(&self) -> bool {
        self.about.values().all(|about| about.is_whole)
    }

    /// The device of a site that was opened.
    pub(crate) fn device(&self, number: usize) -> Option<u64> {
        self.about.get(&number).map(|about| about.device)
    }

    /// Removes the old files that were kept aside in any of them, by the ends of their names.
    pub(crate) fn remove_replaced(&mut self, root: &OwnedFd) {
        for number in self.numbers() {
            let Ok(handle) = self.open(root, number, false) else { continue };
            empty(&handle, |name| name.ends_with(REPLACED.as_bytes()));
            let _ = rustix::fs::fsync(&*handle);
        }
    }

    /// Removes those that have nothing in them.
    pub(crate) fn remove_empty(&mut self, root: &OwnedFd) {
        self.last = None;
        for site in self.list.values() {
            if let Ok(parent) = safe_open::directory(root.as_fd(), &site.path) {
                let _ = rustix::fs::unlinkat(&parent, &site.leaf, AtFlags::REMOVEDIR);
            }
        }
    }
}

/// The sites of a home, as far as its list can be read.
pub(crate) fn read(home: &OwnedFd) -> Vec<(usize, Site)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::openat(home, LIST, flags, Mode::empty()) else { return Vec::new() };
    let (mut lines, mut found) = (BufReader::new(File::from(file)), Vec::new());
    let mut line = Vec::new();
    while found.len() as u64 <= MAX_FILES {
        line.clear();
        let read = (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line);
        // The last line of a killed process may not be all there.
        let Some(text) = read.ok().and_then(|_| line.strip_suffix(b"\n")) else { break };
        found.extend(parse(text));
    }
    found
}

/// A line of the list, if it names a directory of temporaries and nothing else.
pub(crate) fn parse(text: &[u8]) -> Option<(usize, Site)> {
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let number: u64 = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let leaf = String::from_utf8(words.next()?.to_vec()).ok()?;
    let path = unescaped(words.next()?)?;
    let fits = (1..=MAX_FILES).contains(&number)
        && staging::is_name(leaf.as_bytes())
        && check_name(&path).is_ok()
        && !staging::has_ours(&path);
    fits.then_some((usize::try_from(number).ok()?, Site { path, leaf }))
}

/// Removes the directories of temporaries of all sites of a home.
fn remove_all(root: &OwnedFd, home: &OwnedFd) {
    for (_, site) in read(home) {
        let Ok(parent) = safe_open::directory(root.as_fd(), &site.path) else { continue };
        remove(&parent, &site.leaf);
    }
}

/// Removes a home of the destination `root`, which is in `parent`, and its sites.
pub(crate) fn remove_home(home: Staging, parent: &OwnedFd, root: &OwnedFd) {
    remove_all(root, &home.handle);
    home.remove(parent);
}

/// Removes a directory of temporaries with its contents, as far as possible.
pub(crate) fn remove(parent: &OwnedFd, leaf: &str) {
    if let Ok(handle) = staging::open_private(parent, leaf) {
        empty(&handle, |_| true);
        let _ = rustix::fs::unlinkat(parent, leaf, AtFlags::REMOVEDIR);
    }
}

fn empty(handle: &OwnedFd, goes: impl Fn(&[u8]) -> bool) {
    let Ok(listing) = Dir::read_from(handle) else { return };
    let names = listing.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    for name in names.filter(|name| goes(name)) {
        let _ = rustix::fs::unlinkat(handle, OsStr::from_bytes(&name), AtFlags::empty());
    }
}
