//! The last step of receiving: everything gets its final name, or nothing does.
//!
//! Each file is moved without replacing, or, where replacing was asked for, exchanged with what it
//! replaces; where the file system cannot exchange, what is replaced is kept aside until everything
//! is in place. So every step can be taken back if a later one fails. A process that is killed
//! amid the renames leaves its journal, and the next one completes the rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use crate::disk::attributes::FileTimes;
use crate::disk::beneath::errno;
use crate::disk::faults::{self, Call};
use crate::disk::gate::Gate;
use crate::disk::journal::{Found, Item, Journal, Placed};
use crate::disk::names::{NameId, Names};
use crate::disk::renaming::{Entry, id, move_new};
use crate::disk::seal::Key;
use crate::disk::sites;
use crate::disk::staging::{self, KEPT, Left, Open, REPLACED, Staging};
use crate::disk::store::{FLUSHING, NOT_A_DIRECTORY, Store, os, without_promise};
use crate::disk::{beneath, flush, journal};
use crate::error::{Error, shown};
use crate::options::Overwrite;

/// Gives the items their names and flushes the directories; takes all back if that fails. The
/// temporaries must be flushed before. Nothing happens if the gate is shut.
pub(crate) fn publish(
    store: &mut Store,
    names: &Names,
    mut items: Vec<Item>,
    gate: &Gate,
) -> Result<(), Error> {
    let home = store.staging_handle();
    let home = home.map_err(|e| store.error(b"", RENAMING, e))?;
    let mut work = Work::new(store, names);
    if items.len() > 1 || work.store.overwrite == Overwrite::Always {
        // A single file that is new has its name or not, whoever is killed.
        let written = work.note_what_stands(&mut items).and_then(|()| {
            let seal = work.store.seal_of_publication()?;
            let place = (&*home, work.store.publication(), seal);
            let sites = work.store.sites.get_mut().all();
            journal::write(place, (work.store.overwrite, sites), names, &items)
        });
        written.map_err(|e| {
            work.store.end_publication();
            work.store.error(b"", RENAMING, e)
        })?;
    }
    if !gate.pass() {
        work.store.end_publication();
        return Err(Error::Interrupted);
    }
    work.listed = listed(&items);
    let done = work.run(&items).map_err(|error| {
        let error = work.take_back(error);
        // The files are back for sure before nobody knows any more where they were to go.
        if work.store.is_kept() {
            let _ = work.store.flush_all();
        }
        error
    });
    work.store.end_publication();
    done
}

/// Completes or removes what killed processes left in the destination; what to tell the user.
///
/// A journal is believed if this user's own program wrote it there (`seal`), and what it says is
/// done if this run may: where that one could replace files and this one may not, nothing is. All
/// else is left as it is, and named.
pub(crate) fn settle(store: &mut Store) -> Vec<String> {
    settle_all(store, Open::There)
}

/// Tells what is left so; nothing changes.
pub(crate) fn look(store: &mut Store) -> Vec<String> {
    settle_all(store, Open::Looked)
}

fn settle_all(store: &mut Store, open_as: Open) -> Vec<String> {
    let kept = settle_kept(store, open_as);
    let found = staging::find(&store.lodge);
    let settle = |name: &Vec<u8>| settle_one(store, name, open_as);
    kept.into_iter().chain(found.iter().filter_map(settle)).collect()
}

/// Completes what a killed process was publishing where parts are kept. What the journal there says
/// stays, so that the same transfer, if it comes again, finds that it is through.
fn settle_kept(store: &mut Store, open_as: Open) -> Option<String> {
    // Nobody's lock is taken without need.
    if !staging::may_publish(&store.lodge) {
        return None;
    }
    let Ok(Some(kept)) = Staging::keep(&store.lodge, KEPT, open_as) else { return None };
    match find_journal(store, &kept) {
        Ok(Found::Nothing) => {
            // It was there before the first name was given.
            if open_as != Open::Looked {
                kept.end_publication();
            }
            None
        }
        Ok(found) => Some(settle_journal(store, (kept, KEPT.as_bytes()), found, open_as)),
        Err(_) => None,
    }
}

fn settle_one(store: &mut Store, name: &[u8], open_as: Open) -> Option<String> {
    let place = store.lodge_path.join(shown(name));
    let place = place.display();
    // What cannot be examined is none of ours, or will be found again.
    let Ok(Left::Orphan(left)) = staging::adopt(&store.lodge, name, open_as) else { return None };
    if left.is_stranded() {
        left.leave();
        return Some(format!("{place} holds files that could not be put back; look there"));
    }
    match find_journal(store, &left) {
        Ok(Found::Nothing) if open_as == Open::Looked => {
            Some(format!("{place} was left by a receiver that was killed"))
        }
        Ok(Found::Nothing) => {
            sites::remove_home(left, &store.lodge, &store.root);
            Some(format!("removed {place}, left by a receiver that was killed"))
        }
        Ok(found) => Some(settle_journal(store, (left, name), found, open_as)),
        Err(_) => None,
    }
}

fn find_journal(store: &Store, left: &Staging) -> io::Result<Found> {
    let seal = Key::there().map(|key| key.of_publication(&store.root, &left.handle)).transpose()?;
    journal::read(&left.handle, left.publication(), seal)
}

/// Does what a journal says, if it may be done; what to tell the user.
fn settle_journal(
    store: &mut Store,
    (left, name): (Staging, &[u8]),
    found: Found,
    open_as: Open,
) -> String {
    let place = store.lodge_path.join(shown(name));
    let place = place.display();
    let journal = match found {
        Found::Own(journal) => journal,
        Found::Nothing | Found::Foreign => {
            left.leave();
            return format!(
                "{place} holds a list of files that are to get names, which netblt has not written \
                 there for this user: nothing of it is used. Look there, or remove that directory"
            );
        }
    };
    let replaces = journal.overwrite == Overwrite::Always;
    if replaces && store.overwrite != Overwrite::Always {
        left.leave();
        return format!(
            "{place} holds verified files of a transfer that was killed while they replaced \
             others. The next transfer into {} that may replace files completes it",
            store.path.display()
        );
    }
    if open_as == Open::Looked {
        left.leave();
        return format!(
            "{place} holds verified files of a transfer that was killed while they were being \
             given their names. The next transfer into {} completes it",
            store.path.display()
        );
    }
    complete(store, (left, name), &journal)
}

/// Gives what a dead process left the rest of its names; what to tell the user.
fn complete(store: &mut Store, (left, name): (Staging, &[u8]), journal: &Journal) -> String {
    let place = store.lodge_path.join(shown(name));
    let overwrite = std::mem::replace(&mut store.overwrite, journal.overwrite);
    store.adopt(left);
    for (number, site) in &journal.sites {
        store.sites.get_mut().put(*number, site.clone());
    }
    let resumed = resume(store, &journal.names, &journal.items);
    store.overwrite = overwrite;
    match resumed {
        Ok(files) => {
            store.end_publication();
            store.clear();
            store.leave();
            format!(
                "completed an earlier transfer into {}, which was killed while its {files} files, \
                 all verified, were being given their names",
                store.path.display()
            )
        }
        Err(error) => {
            store.leave();
            format!(
                "{} holds verified files of a transfer that was killed, and they cannot be given \
                 their names: {}",
                place.display(),
                without_promise(error)
            )
        }
    }
}

/// Goes on where a dead process stopped; how many files got their names.
fn resume(store: &mut Store, names: &Names, items: &[Item]) -> Result<u64, Error> {
    let mut work = Work::new(store, names);
    work.listed = listed(items);
    work.resumed = true;
    work.run(items)?;
    Ok(items.iter().filter(|item| matches!(item.placed, Placed::File { .. })).count() as u64)
}

fn listed(items: &[Item]) -> HashMap<NameId, FileTimes> {
    let listed = items.iter().filter_map(|item| match item.placed {
        Placed::Directory(times) => Some((item.name, times)),
        Placed::File { .. } => None,
    });
    listed.collect()
}

struct Work<'a> {
    store: &'a mut Store,
    names: &'a Names,
    /// Directories that the sender described.
    listed: HashMap<NameId, FileTimes>,
    /// Directories that are known to exist by now.
    present: HashSet<NameId>,
    /// Directories made here, parents first.
    made: Vec<NameId>,
    moved: Vec<(u64, NameId, How)>,
    /// Inodes of the files moved, kept only if something may be replaced.
    ours: HashSet<(u64, u64)>,
    /// Directories whose content changed.
    touched: BTreeSet<NameId>,
    /// The directory that was used last.
    parent: Option<(NameId, Rc<OwnedFd>)>,
    /// Another process began this.
    resumed: bool,
}

/// How a file came to its name.
#[derive(Clone, Copy)]
enum How {
    Moved,
    /// What it replaced is now the temporary.
    Exchanged,
    /// What it replaced is beside the temporaries: the file system cannot exchange.
    Kept,
    /// Nothing had to be done: a process before this one did it.
    Done,
}

impl<'a> Work<'a> {
    fn new(store: &'a mut Store, names: &'a Names) -> Self {
        Self {
            store,
            names,
            listed: HashMap::new(),
            present: HashSet::new(),
            made: Vec::new(),
            moved: Vec::new(),
            ours: HashSet::new(),
            touched: BTreeSet::new(),
            parent: None,
            resumed: false,
        }
    }

    /// What the journal must know: directories that exist keep their attributes, and temporaries
    /// are told from what they will be exchanged with.
    fn note_what_stands(&mut self, items: &mut Vec<Item>) -> io::Result<()> {
        let mut stands = HashSet::new();
        for item in items.iter_mut() {
            match &mut item.placed {
                Placed::Directory(_) => {
                    let path = self.names.path(item.name);
                    if beneath::directory(self.store.root.as_fd(), &path).is_ok() {
                        stands.insert(item.name);
                    }
                }
                Placed::File { number, inode } => {
                    let place = self.store.place_of(*number)?;
                    let stat = beneath::status(&*place, number.to_string().as_bytes())?;
                    *inode = stat.map_or(0, |stat| stat.st_ino);
                }
            }
        }
        items.retain(|item| !stands.contains(&item.name));
        Ok(())
    }

    fn run(&mut self, items: &[Item]) -> Result<(), Error> {
        for item in items {
            match item.placed {
                Placed::Directory(_) => self.ensure(item.name)?,
                Placed::File { number, inode } => {
                    self.ensure(self.names.parent(item.name))?;
                    self.put(number, inode, item.name)?;
                }
            }
        }
        self.complete_directories()
    }

    /// Makes a directory, and those above it, unless they exist.
    fn ensure(&mut self, name: NameId) -> Result<(), Error> {
        if name == NameId::ROOT || self.present.contains(&name) {
            return Ok(());
        }
        let parent = self.names.parent(name);
        self.ensure(parent)?;
        // Not wider than it will be, even for a moment, but such that files can go in.
        let mode = self.listed.get(&name).map_or(0o777, |listed| listed.mode & 0o777 | 0o700);
        let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
        let leaf = os(self.names.leaf(name));
        let made = match self.enter(parent).map(|to| rustix::fs::mkdirat(to, leaf, mode)) {
            Ok(Ok(())) => true,
            Ok(Err(Errno::EXIST)) => false,
            Ok(Err(error)) => return Err(self.error(name, MAKING, error.into())),
            Err(error) => return Err(self.error(name, MAKING, error)),
        };
        if made || (self.resumed && self.listed.contains_key(&name)) {
            self.made.push(name);
            self.touched.insert(parent);
        }
        if let Err(error) = self.enter(name) {
            return Err(self.error(name, NOT_A_DIRECTORY, error));
        }
        self.present.insert(name);
        Ok(())
    }

    /// The handle of a directory; kept, since neighbours come together.
    fn enter(&mut self, name: NameId) -> io::Result<Rc<OwnedFd>> {
        if let Some((kept, handle)) = &self.parent
            && *kept == name
        {
            return Ok(Rc::clone(handle));
        }
        let path = self.names.path(name);
        let handle = Rc::new(beneath::directory(self.store.root.as_fd(), &path)?);
        self.parent = Some((name, Rc::clone(&handle)));
        Ok(handle)
    }

    fn put(&mut self, number: u64, inode: u64, name: NameId) -> Result<(), Error> {
        let replace = self.store.overwrite == Overwrite::Always;
        match self.rename(number, inode, name, replace) {
            Ok(how) => {
                self.moved.push((number, name, how));
                self.touched.insert(self.names.parent(name));
                Ok(())
            }
            Err(Errno::EXIST) if replace => Err(self.error(name, TWICE, Errno::EXIST.into())),
            Err(Errno::EXIST) => Err(self.store.exists(&self.names.path(name))),
            Err(error) => Err(self.error(name, RENAMING, error.into())),
        }
    }

    fn rename(
        &mut self,
        number: u64,
        inode: u64,
        name: NameId,
        replace: bool,
    ) -> Result<How, Errno> {
        let leaf = os(self.names.leaf(name));
        let temporary = number.to_string();
        let parent = self.enter(self.names.parent(name)).map_err(errno)?;
        let place = match self.store.place_of(number) {
            // Its files have their names, and another process has removed it; else it is unknown.
            Err(error) if self.resumed && error.kind() == io::ErrorKind::NotFound => {
                return self.is_done(inode, name, &parent);
            }
            place => place.map_err(errno)?,
        };
        if replace || self.resumed {
            let stat = beneath::status(&*place, temporary.as_bytes()).map_err(errno)?;
            let exchanged = stat.is_some_and(|stat| inode != 0 && stat.st_ino != inode);
            if self.resumed && exchanged {
                return self.is_done(inode, name, &parent);
            }
            if self.resumed && stat.is_none() {
                return Ok(How::Done);
            }
            self.ours.extend(stat.iter().map(id));
        }
        let to = &self.store.path;
        match move_new(to, (&place, os(temporary.as_bytes())), (&parent, leaf)) {
            Err(Errno::EXIST) if replace => {
                match beneath::status(&parent, self.names.leaf(name)).map_err(errno)? {
                    Some(stat) if beneath::is_directory(&stat) => return Err(Errno::ISDIR),
                    // Where names that differ for the sender are one, the second is not to win.
                    Some(stat) if self.ours.contains(&id(&stat)) => return Err(Errno::EXIST),
                    // Who has made a file private wants it to stay so when it is replaced.
                    Some(stat)
                        if !self.store.preserve
                            && beneath::is_file(&stat)
                            && is_file(&place, &temporary) =>
                    {
                        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
                        // Where the file system knows no permissions, none are lost.
                        let _ = rustix::fs::chmodat(
                            &*place,
                            os(temporary.as_bytes()),
                            mode,
                            AtFlags::empty(),
                        );
                    }
                    _ => {}
                }
                replace_old(to, &place, number, (&parent, leaf))
            }
            done => done.map(|()| How::Moved),
        }
    }

    /// Of a temporary that is not there any more: whether a process before this one has given it
    /// its name. Where another file has that, the two cannot be distinguished.
    fn is_done(&self, inode: u64, name: NameId, parent: &OwnedFd) -> Result<How, Errno> {
        let there = beneath::status(parent, self.names.leaf(name)).map_err(errno)?;
        let told = there.is_some_and(|there| there.st_ino == inode);
        if told { Ok(How::Done) } else { Err(Errno::STALE) }
    }

    /// Gives directories their attributes, the deepest first, and flushes all that changed.
    fn complete_directories(&mut self) -> Result<(), Error> {
        let at_once = self.store.at_once(self.made.len() + self.touched.len());
        for at in (0..self.made.len()).rev() {
            let Some(name) = self.made.get(at).copied() else { continue };
            let listed = self.listed.get(&name).copied();
            let path = self.names.path(name);
            let completed = self.enter(name).and_then(|handle| {
                let more = self.store.directories.get(&name).map(|more| &**more);
                let kept = self.store.kept_by(name, &handle)?;
                let dress = |times| self.store.dress(handle.as_fd(), &path, (times, kept), more);
                listed.map_or(Ok(()), dress)?;
                if at_once { Ok(()) } else { flush::directory(&handle) }
            });
            completed.map_err(|e| self.error(name, FLUSHING, e))?;
            self.touched.remove(&name);
        }
        if at_once {
            return self.store.flush_all().map_err(|e| self.store.error(b"", FLUSHING, e));
        }
        for name in std::mem::take(&mut self.touched) {
            let flushed = self.enter(name).and_then(|handle| flush::directory(&handle));
            flushed.map_err(|e| self.error(name, FLUSHING, e))?;
        }
        Ok(())
    }

    /// Takes back all that was done. If some of it cannot be, nothing more is removed, and the
    /// error says where the rest is.
    fn take_back(&mut self, error: Error) -> Error {
        let mut stuck = false;
        for (number, name, how) in std::mem::take(&mut self.moved).into_iter().rev() {
            let leaf = os(self.names.leaf(name));
            let (temporary, old) = (number.to_string(), old_name(number));
            let back = self.enter(self.names.parent(name)).map_err(errno).and_then(|parent| {
                faults::at(&self.store.path, Call::Rename)?;
                let place = &*self.store.place_of(number).map_err(errno)?;
                match how {
                    How::Moved => rustix::fs::renameat(&parent, leaf, place, &temporary),
                    How::Exchanged => {
                        let from = (place, os(temporary.as_bytes()));
                        exchange(&self.store.path, from, (&*parent, leaf))
                    }
                    How::Kept => rustix::fs::renameat(place, &old, &parent, leaf),
                    How::Done => Ok(()),
                }
            });
            stuck |= back.is_err();
        }
        for name in std::mem::take(&mut self.made).into_iter().rev() {
            let Ok(parent) = self.enter(self.names.parent(name)) else { continue };
            let _ = rustix::fs::unlinkat(parent, os(self.names.leaf(name)), AtFlags::REMOVEDIR);
        }
        if stuck { self.store.strand(error) } else { error }
    }

    fn error(&self, name: NameId, what: &'static str, source: io::Error) -> Error {
        self.store.error(&self.names.path(name), what, source)
    }
}

const MAKING: &str = "the directory cannot be created, nothing was kept";
const RENAMING: &str = "cannot be given its name, nothing was kept";
const TWICE: &str = "is one name here for two of the sender's files, nothing was kept";

/// Whether a temporary is no link: what one leads to is not touched.
fn is_file(place: &OwnedFd, temporary: &str) -> bool {
    let stat = beneath::status(place, temporary.as_bytes());
    stat.is_ok_and(|stat| stat.as_ref().is_some_and(beneath::is_file))
}

/// What a replaced file is called among the temporaries.
fn old_name(number: u64) -> String {
    format!("{number}{REPLACED}")
}

/// Moves a temporary to a name that exists, and keeps what bore it.
fn replace_old(
    destination: &Path,
    staging: &OwnedFd,
    number: u64,
    (to, leaf): Entry,
) -> Result<How, Errno> {
    let (temporary, old) = (number.to_string(), old_name(number));
    let temporary = os(temporary.as_bytes());
    match exchange(destination, (staging, temporary), (to, leaf)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        done => return done.map(|()| How::Exchanged),
    }
    // By a second link to it there is no moment without a file of that name.
    let linked = faults::at(destination, Call::Link)
        .and_then(|()| rustix::fs::linkat(to, leaf, staging, &old, AtFlags::empty()));
    if linked.is_err() {
        rustix::fs::renameat(to, leaf, staging, &old)?;
    }
    match rustix::fs::renameat(staging, temporary, to, leaf) {
        Ok(()) => Ok(How::Kept),
        Err(error) => {
            let _ = rustix::fs::renameat(staging, &old, to, leaf);
            Err(error)
        }
    }
}

/// Exchanges two files, where the file system can.
fn exchange(destination: &Path, (from, old): Entry, (to, new): Entry) -> Result<(), Errno> {
    faults::at(destination, Call::Exchange)?;
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return rustix::fs::renameat_with(from, old, to, new, RenameFlags::EXCHANGE);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    {
        let _ = (from, old, to, new);
        Err(Errno::NOSYS)
    }
}
