//! The last step of receiving with all or nothing: all files get their final names, or none does.
//!
//! Each file is moved without replacing, or, where replacing was requested, exchanged with the old
//! file. Where the file system cannot exchange, old files are kept aside until everything is in
//! place. So every step can be undone if a later one fails. A process that is killed amid the
//! renames leaves its journal, and the next one completes the rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use crate::disk::attributes::FileTimes;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::fault_injection::{self, Call};
use crate::disk::names::{NameId, Names};
use crate::disk::publish_journal::{FoundJournal, Journal, Placed, PublishItem};
use crate::disk::rename::{Entry, id, move_new};
use crate::disk::safe_open::errno;
use crate::disk::seal::Key;
use crate::disk::sites;
use crate::disk::staging::{self, KEPT, Left, Open, REPLACED, Staging};
use crate::disk::store::{FLUSHING, NOT_A_DIRECTORY, Store, os, without_promise};
use crate::disk::{flush, publish_journal, safe_open};
use crate::error::{Error, shown};
use crate::settings::Overwrite;

/// Gives the items their names and flushes the directories; takes all back if that fails. The
/// temporaries must be flushed before. Nothing happens if the gate is shut.
pub(crate) fn publish(
    store: &mut Store,
    names: &Names,
    mut items: Vec<PublishItem>,
    latch: &CommitLatch,
) -> Result<(), Error> {
    let home = store.staging_handle();
    let home = home.map_err(|e| store.error(b"", RENAMING, e))?;
    let mut work = Work::new(store, names);
    if items.len() > 1 || work.store.overwrite == Overwrite::Always {
        // A single new file has its name or not, whenever the process is killed.
        let written = work.note_what_stands(&mut items).and_then(|()| {
            let seal = work.store.seal_of_publication()?;
            let place = (&*home, work.store.publication(), seal);
            let sites = work.store.sites.get_mut().all();
            publish_journal::write(place, (work.store.overwrite, sites), names, &items)
        });
        written.map_err(|e| {
            work.store.end_publication();
            work.store.error(b"", RENAMING, e)
        })?;
    }
    if !latch.commit() {
        work.store.end_publication();
        return Err(Error::Interrupted);
    }
    work.listed = listed(&items);
    let done = work.run(&items).map_err(|error| {
        let error = work.take_back(error);
        // The files are back on the disk before the record of where they were to go is removed.
        if work.store.is_kept() {
            let _ = work.store.flush_all();
        }
        error
    });
    work.store.end_publication();
    done
}

/// Completes or removes the leftovers of killed processes in the destination. Returns remarks for
/// the user.
///
/// A journal is trusted if this user's own program wrote it there (`seal`), and its renames are
/// done if this run may do them: where that one could replace files and this one may not, none are.
/// All else is left as it is, and reported.
pub(crate) fn settle(store: &mut Store) -> Vec<String> {
    settle_all(store, Open::There)
}

/// Reports such leftovers; changes nothing.
pub(crate) fn look(store: &mut Store) -> Vec<String> {
    settle_all(store, Open::Looked)
}

fn settle_all(store: &mut Store, open_as: Open) -> Vec<String> {
    let kept = settle_kept(store, open_as);
    let found = staging::find(&store.lodge);
    let settle = |name: &Vec<u8>| settle_one(store, name, open_as);
    kept.into_iter().chain(found.iter().filter_map(settle)).collect()
}

/// Completes the renames of a killed process in a partial directory. Its resume journal stays, so
/// that the same transfer, if it comes again, finds that it is complete.
fn settle_kept(store: &mut Store, open_as: Open) -> Option<String> {
    // No other process's lock is taken without need.
    if !staging::may_publish(&store.lodge) {
        return None;
    }
    let Ok(Some(kept)) = Staging::keep(&store.lodge, KEPT, open_as) else { return None };
    match find_journal(store, &kept) {
        Ok(FoundJournal::Nothing) => {
            // It was there before the first name was given.
            if open_as != Open::Looked {
                kept.end_publication();
            }
            None
        }
        Ok(found) => Some(settle_journal(store, kept, KEPT.as_bytes(), found, open_as)),
        Err(_) => None,
    }
}

fn settle_one(store: &mut Store, name: &[u8], open_as: Open) -> Option<String> {
    let place = store.lodge_path.join(shown(name));
    let place = place.display();
    // A directory that cannot be examined is not ours, or will be found again.
    let Ok(Left::Orphan(left)) = staging::adopt(&store.lodge, name, open_as) else { return None };
    if left.is_stranded() {
        left.leave();
        return Some(format!("{place} holds files that could not be put back; look there"));
    }
    match find_journal(store, &left) {
        Ok(FoundJournal::Nothing) if open_as == Open::Looked => {
            Some(format!("{place} was left by a receiver that was killed"))
        }
        Ok(FoundJournal::Nothing) => {
            sites::remove_home(left, &store.lodge, &store.root);
            Some(format!("removed {place}, left by a receiver that was killed"))
        }
        Ok(found) => Some(settle_journal(store, left, name, found, open_as)),
        Err(_) => None,
    }
}

fn find_journal(store: &Store, left: &Staging) -> io::Result<FoundJournal> {
    let seal = Key::there().map(|key| key.of_publication(&store.root, &left.handle)).transpose()?;
    publish_journal::read(&left.handle, left.publication(), seal)
}

/// Performs a journal's renames, if that is allowed. Returns a remark for the user.
fn settle_journal(
    store: &mut Store,
    left: Staging,
    name: &[u8],
    found: FoundJournal,
    open_as: Open,
) -> String {
    let place = store.lodge_path.join(shown(name));
    let place = place.display();
    let journal = match found {
        FoundJournal::Own(journal) => journal,
        FoundJournal::Nothing | FoundJournal::Foreign => {
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
    complete(store, left, name, &journal)
}

/// Completes the renames of a dead process. Returns a remark for the user.
fn complete(store: &mut Store, left: Staging, name: &[u8], journal: &Journal) -> String {
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

/// Continues where a dead process stopped. Returns how many files got their names.
fn resume(store: &mut Store, names: &Names, items: &[PublishItem]) -> Result<u64, Error> {
    let mut work = Work::new(store, names);
    work.listed = listed(items);
    work.resumed = true;
    work.run(items)?;
    Ok(items.iter().filter(|item| matches!(item.placed, Placed::File { .. })).count() as u64)
}

fn listed(items: &[PublishItem]) -> HashMap<NameId, FileTimes> {
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
    /// Directories with changed content.
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
    /// The old file is now the temporary.
    Exchanged,
    /// The old file is beside the temporaries: the file system cannot exchange.
    Kept,
    /// A process before this one did it.
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

    /// Records what the journal must know: directories that exist keep their attributes, and
    /// temporaries are distinguished from the files that they will be exchanged with.
    fn note_what_stands(&mut self, items: &mut Vec<PublishItem>) -> io::Result<()> {
        let mut stands = HashSet::new();
        for item in items.iter_mut() {
            match &mut item.placed {
                Placed::Directory(_) => {
                    let path = self.names.path(item.name);
                    if safe_open::directory(self.store.root.as_fd(), &path).is_ok() {
                        stands.insert(item.name);
                    }
                }
                Placed::File { number, inode } => {
                    let place = self.store.place_of(*number)?;
                    let stat = safe_open::status(&*place, number.to_string().as_bytes())?;
                    *inode = stat.map_or(0, |stat| stat.st_ino);
                }
            }
        }
        items.retain(|item| !stands.contains(&item.name));
        Ok(())
    }

    fn run(&mut self, items: &[PublishItem]) -> Result<(), Error> {
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
        let handle = Rc::new(safe_open::directory(self.store.root.as_fd(), &path)?);
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
            let stat = safe_open::status(&*place, temporary.as_bytes()).map_err(errno)?;
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
                match safe_open::status(&parent, self.names.leaf(name)).map_err(errno)? {
                    Some(stat) if safe_open::is_directory(&stat) => return Err(Errno::ISDIR),
                    // Where two names of the sender are one here, the second is not to win.
                    Some(stat) if self.ours.contains(&id(&stat)) => return Err(Errno::EXIST),
                    // A file that its owner made private stays private when it is replaced.
                    Some(stat)
                        if !self.store.preserve
                            && safe_open::is_file(&stat)
                            && is_file(&place, &temporary) =>
                    {
                        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
                        // A file system without permissions loses none.
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

    /// For a missing temporary: whether a process before this one has given it its name. Where
    /// another file has that name, the two cannot be distinguished.
    fn is_done(&self, inode: u64, name: NameId, parent: &OwnedFd) -> Result<How, Errno> {
        let there = safe_open::status(parent, self.names.leaf(name)).map_err(errno)?;
        let same = there.is_some_and(|there| there.st_ino == inode);
        if same { Ok(How::Done) } else { Err(Errno::STALE) }
    }

    /// Sets the attributes of directories, the deepest first, and flushes all changed ones.
    fn complete_directories(&mut self) -> Result<(), Error> {
        let at_once = self.store.at_once(self.made.len() + self.touched.len());
        for at in (0..self.made.len()).rev() {
            let Some(name) = self.made.get(at).copied() else { continue };
            let listed = self.listed.get(&name).copied();
            let path = self.names.path(name);
            let completed = self.enter(name).and_then(|handle| {
                let more = self.store.directories.get(&name).map(|more| &**more);
                let kept = self.store.kept_by(name, &handle)?;
                let dress = |times| self.store.apply(handle.as_fd(), &path, times, kept, more);
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

    /// Undoes all renames. If some cannot be undone, nothing more is removed, and the error says
    /// where the rest is.
    fn take_back(&mut self, error: Error) -> Error {
        let mut stuck = false;
        for (number, name, how) in std::mem::take(&mut self.moved).into_iter().rev() {
            let leaf = os(self.names.leaf(name));
            let (temporary, old) = (number.to_string(), old_name(number));
            let back = self.enter(self.names.parent(name)).map_err(errno).and_then(|parent| {
                fault_injection::at(&self.store.path, Call::Rename)?;
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
    let stat = safe_open::status(place, temporary.as_bytes());
    stat.is_ok_and(|stat| stat.as_ref().is_some_and(safe_open::is_file))
}

/// The name of an old file among the temporaries.
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
    let linked = fault_injection::at(destination, Call::Link)
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
    fault_injection::at(destination, Call::Exchange)?;
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return rustix::fs::renameat_with(from, old, to, new, RenameFlags::EXCHANGE);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    {
        let _ = (from, old, to, new);
        Err(Errno::NOSYS)
    }
}
