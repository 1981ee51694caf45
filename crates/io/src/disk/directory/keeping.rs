//! Files as the unit of success: each gets its name when it is whole, verified and flushed, and
//! what is not whole is kept for the next transfer (`docs/protocol.md §8.7`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Extent, Kind, parse_image};
use netblt_proto::limits::MAX_HAVE_IN_ALL;
use rustix::io::Errno;

use super::renamed::theirs;
use super::{DirectoryWriter, OPEN_BYTES, PIECE_BYTES, too_much};
use crate::disk::digest::Subtrees;
use crate::disk::gate::Gate;
use crate::disk::had::Node;
use crate::disk::keep::record::{Part, Stamp};
use crate::disk::keep::{Form, Found, Keeper, Ready};
use crate::disk::layout::broken;
use crate::disk::names::NameId;
use crate::disk::placing::Placer;
use crate::disk::sites::{TOP, site_of};
use crate::disk::staging::{self, KEPT, Open, Staging};
use crate::disk::vault::Vault;
use crate::error::{Error, shown};
use crate::options::Resume;

/// Enough bytes for a commit, and the least time between two for so many: what a killed transfer
/// loses is these bytes, or what this time carries.
const COMMIT_BYTES: u64 = 8 << 20;
const COMMIT_SPACING: Duration = Duration::from_millis(100);
/// Less is committed after this time, or when so many files wait for their names.
const COMMIT_AFTER: Duration = Duration::from_millis(500);
const COMMIT_FILES: usize = 4096;
/// Most files that have come and are given up where there is no room for the others' names.
const MOST_GIVEN_UP: u32 = 8;

/// What a transfer needs that gives names one by one.
#[derive(Debug)]
pub(super) struct Keeping {
    keeper: Keeper,
    pub(super) placer: Placer,
    /// Buffers with parts of files whose beginning has not come, by number. The buffer that it is
    /// in has a lower number, so it was granted before: nobody waits for memory for ever.
    held: BTreeMap<u64, Buffer>,
    /// Numbers of files of which parts have come.
    open: BTreeSet<u64>,
    /// Written since the last commit, and when that was.
    bytes: u64,
    since: Instant,
    resume: Resume,
    expiry: Duration,
    /// Bytes that did not come again.
    pub(super) kept: u64,
    /// Files that are here and of which the sender was not told.
    untold: usize,
    /// Files that begin anew although parts of them were here.
    anew: Vec<String>,
    concluded: bool,
}

impl Keeping {
    pub(super) fn new() -> Self {
        Self {
            keeper: Keeper::default(),
            placer: Placer::default(),
            held: BTreeMap::new(),
            open: BTreeSet::new(),
            bytes: 0,
            since: Instant::now(),
            resume: Resume::Never,
            expiry: Duration::ZERO,
            kept: 0,
            untold: 0,
            anew: Vec::new(),
            concluded: false,
        }
    }

    /// Whether a directory was made by this transfer, or one before it was about to make it.
    pub(super) fn has_made(&self, id: NameId, path: &[u8]) -> bool {
        self.placer.has_made(id) || self.keeper.made_before(path)
    }

    /// File bytes that are here of transfers before this one.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.keeper.bytes()
    }

    /// So many bytes were written to a slot.
    pub(super) fn wrote(&mut self, slot: u64, bytes: usize) {
        self.keeper.wrote(slot);
        self.bytes += bytes as u64;
    }

    /// It is to get its name with the next commit.
    pub(super) fn complete(&mut self, ready: Ready) {
        self.keeper.complete(ready);
    }

    /// Parts of a file have come.
    pub(super) fn opened(&mut self, number: u64) {
        self.open.insert(number);
    }

    fn is_due(&self) -> bool {
        let waiting = self.keeper.waiting();
        let spent = self.since.elapsed();
        (self.bytes >= COMMIT_BYTES && spent >= COMMIT_SPACING)
            || ((self.bytes > 0 || waiting > 0) && spent >= COMMIT_AFTER)
            || waiting >= COMMIT_FILES
    }
}

impl DirectoryWriter {
    /// Whether whatever stands in the way of one file is in the way of all. Otherwise each file
    /// gets its name when it is whole.
    pub(crate) fn atomic(mut self, atomic: bool) -> Self {
        self.atomic = atomic;
        self.store.piecemeal = !atomic;
        self.keeping = Some(Box::new(Keeping::new()));
        self
    }

    /// What is kept is kept under this label. All or nothing has only one place for the names that
    /// are being given, and no label.
    pub(crate) fn labelled(mut self, label: Option<[u8; 32]>) -> Self {
        self.store.kept_name = staging::kept_name(label.filter(|_| !self.atomic).as_ref());
        self
    }

    /// Goes on from what a transfer before this one has left, unless it is older than `expiry`, and
    /// leaves what the next one goes on from.
    pub(crate) fn resuming(mut self, resume: Resume, expiry: Duration) -> Result<Self, Error> {
        if self.atomic && resume != Resume::Never {
            // What cannot have its name is not lost.
            self.store.piecemeal = true;
        }
        let Some(keeping) = self.keeping.as_mut() else { return Ok(self) };
        keeping.keeper.read_back(self.store.reads_back);
        if resume == Resume::Never {
            return Ok(self);
        }
        (keeping.resume, keeping.expiry) = (resume, expiry);
        self.store.keeping = true;
        let name = self.store.kept_name.clone();
        let cannot = |e| self.store.error(name.as_bytes(), "cannot be looked into", e);
        match Staging::keep(&self.store.lodge, &name, Open::There).map_err(cannot)? {
            // What could not be completed just now, which was said, is left alone.
            Some(kept) if kept.publishes() => self.store.keeping = false,
            Some(kept) => self.store.adopt(kept),
            None if self.store.lodge_has(&name) => self.notes.push(format!(
                "{} is in use by another transfer, or not yours: this one does not go on from it, \
                 and cannot be gone on with",
                self.store.lodge_path.join(&name).display()
            )),
            None => {}
        }
        self.reopen(resume == Resume::Verify || self.store.reads_back)?;
        Ok(self)
    }

    /// Reads what is kept; of another process's, nothing.
    fn reopen(&mut self, verify: bool) -> Result<(), Error> {
        let Some(keeping) = self.keeping.as_deref_mut() else { return Ok(()) };
        (keeping.placer, keeping.keeper) = (Placer::default(), Keeper::default());
        if !self.store.is_kept() {
            self.set_up_keeper();
            return Ok(());
        }
        let (store, names, placer) = (&mut self.store, &self.names, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: Gate::default() };
        let opened = Keeper::open(&mut vault, now(), keeping.expiry.as_secs(), verify);
        keeping.keeper =
            opened.map_err(|e| self.store.error(KEPT.as_bytes(), "cannot be gone on from", e))?;
        if keeping.keeper.is_doubted() {
            self.notes.push(format!(
                "{} has a list that netblt has not written there for this user, or not all of it: \
                 what it tells of was read again",
                self.store.lodge_path.join(&self.store.kept_name).display()
            ));
        }
        self.set_up_keeper();
        Ok(())
    }

    fn set_up_keeper(&mut self) {
        let Some(keeping) = self.keeping.as_deref_mut() else { return };
        match self.atomic {
            // All of it is read again before any of it gets its name.
            true => keeping.keeper.place_nothing(),
            false => keeping.keeper.read_back(self.store.reads_back),
        }
    }

    /// What is told to the sender.
    pub(super) fn kept_so_far(&mut self) -> Vec<u8> {
        let Some(keeping) = &mut self.keeping else { return Vec::new() };
        let had = keeping.keeper.had(self.layout.buffer_bytes());
        let (told, untold) = had.encode(MAX_HAVE_IN_ALL);
        keeping.untold = untold;
        told
    }

    /// Stores an image, or holds it until the beginnings of its files have come.
    pub(super) fn accept_or_hold(
        &mut self,
        number: u64,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<(), Error> {
        if self.keeping.is_some() && !self.has_begun(&buffer)? {
            if let Some(keeping) = &mut self.keeping {
                keeping.held.insert(number, buffer);
            }
            return Ok(());
        }
        self.accept_now(buffer, free)
    }

    /// Stores what was held and need not be any more.
    pub(super) fn accept_held(&mut self, free: &mut Vec<Buffer>) -> Result<(), Error> {
        let mut after = 0;
        while let Some(keeping) = &mut self.keeping
            && let Some((&number, _)) = keeping.held.range(after..).next()
            && let Some(buffer) = keeping.held.remove(&number)
        {
            after = number + 1;
            if self.has_begun(&buffer)? {
                self.accept_now(buffer, free)?;
                after = 0;
            } else if let Some(keeping) = &mut self.keeping {
                keeping.held.insert(number, buffer);
            }
        }
        Ok(())
    }

    fn has_begun(&self, buffer: &Buffer) -> Result<bool, Error> {
        let image = parse_image(buffer.filled(), self.layout.buffer_bytes());
        let (_, extents) = image.map_err(broken)?;
        let begins = |extent: &Extent| extent.attributes.is_some();
        let begun = |(at, extent): (usize, &Extent)| {
            begins(extent)
                || extent.kind == Kind::Withdrawn
                || self.files.contains_key(&extent.file)
                || extent.file < self.over.hashed
                || self.withdrawn.contains_key(&extent.file)
                || extents.iter().take(at).any(|e| e.file == extent.file && begins(e))
        };
        Ok(extents.iter().enumerate().all(begun))
    }

    /// A file begins that was just admitted.
    pub(super) fn begin(&mut self, extent: &Extent) -> Result<(), Error> {
        let Some(keeping) = self.keeping.as_deref_mut() else {
            return match extent.kind {
                Kind::Kept => Err(Error::Content(NOT_HERE)),
                _ => Ok(()),
            };
        };
        let Some(file) = self.files.get_mut(&extent.file) else { return Ok(()) };
        let Some((id, times)) = file.attributes else { return Ok(()) };
        match extent.kind {
            Kind::Directory if file.refused.is_none() => keeping.placer.list(id, times),
            Kind::Kept => file.kept = true,
            Kind::Directory | Kind::Withdrawn => {}
            Kind::File | Kind::Stream | Kind::SymbolicLink | Kind::HardLink => {
                file.slot = keeping.keeper.new_slot(site_of(file.slot));
                let name = self.names.path(id);
                let (store, names) = (&mut self.store, &self.names);
                let (placer, keeper) = (&mut keeping.placer, &mut keeping.keeper);
                let gate = Gate::default();
                let mut vault = Vault { store, names, placer, failure: None, gate };
                if keeper.supersede(&mut vault, theirs(self.renamed.as_ref(), &name)) {
                    keeping.anew.push(shown(&name));
                }
            }
        }
        Ok(())
    }

    /// The sender has found that what is here of a file is its own.
    pub(super) fn take_kept(&mut self, extent: &Extent) -> Result<(), Error> {
        let (Some(keeping), Some(file)) =
            (self.keeping.as_deref_mut(), self.files.get_mut(&extent.file))
        else {
            return Err(Error::Content(NOT_HERE));
        };
        let Some((id, times)) = file.attributes else { return Err(Error::Content(NOT_HERE)) };
        let name = self.names.path(id);
        let number = extent.file;
        let theirs = theirs(self.renamed.as_ref(), &name);
        let whole = extent.digest.is_some();
        let known = if whole { &name[..] } else { theirs };
        match (keeping.keeper.take_up(known, times, whole), extent.digest) {
            (Some(Found::Named { length, digest }), Some(claimed)) if digest == claimed => {
                file.complete = Some((length, digest));
                // All or nothing: it is there since all were.
                (file.refused, file.placed) = (None, true);
                self.over.stored += 1;
                self.bytes += length;
                keeping.kept += length;
            }
            _ if self.atomic && file.refused.is_some() => return Err(self.store.exists(&name)),
            (Some(Found::Stored { slot, length, digest }), Some(claimed)) if digest == claimed => {
                (file.complete, file.slot) = (Some((length, digest)), slot);
                self.bytes += length;
                keeping.kept += length;
                if file.refused.is_none() {
                    let form = Form::Stored;
                    let ready = Ready { number, slot, id, name, times, digest, form };
                    keeping.keeper.complete(ready);
                }
            }
            (Some(Found::Parts { slot, nodes }), None) => {
                self.budget.take(OPEN_BYTES).map_err(too_much)?;
                let extent_bytes = self.layout.buffer_bytes();
                let subtrees = Subtrees::new(extent_bytes).of_range(self.store.range);
                let mut subtrees = Box::new(subtrees);
                let large = |node: &&Node| node.bytes >= u64::from(extent_bytes);
                for node in nodes.iter().filter(large) {
                    if !subtrees.adopt(node) {
                        return Err(Error::Content(NOT_HERE));
                    }
                    self.bytes += node.bytes;
                    keeping.kept += node.bytes;
                }
                let pieces = PIECE_BYTES * subtrees.pieces() as u64;
                self.budget.take(pieces).map_err(too_much)?;
                (file.slot, file.subtrees) = (slot, Some(subtrees));
                keeping.opened(number);
            }
            _ => return Err(Error::Content(NOT_HERE)),
        }
        Ok(())
    }

    /// In what a file waits that has come as a whole: an empty one in nothing, where making it is
    /// all there is to do, and the disk can be waited for without it.
    pub(super) fn form(&self, extent: &Extent, more: bool) -> Form {
        let Some(keeping) = &self.keeping else { return Form::Stored };
        // Where it is made is brought to the disk with the destination.
        let file = self.files.get(&extent.file);
        let near = file.is_some_and(|file| site_of(file.slot) == TOP);
        let empty = extent.kind == Kind::File && extent.length == 0 && !more && near;
        if !empty || self.atomic || self.store.reads_back || !self.store.flushes_whole {
            return Form::Stored;
        }
        let name = extent.attributes.as_ref().map_or(&[][..], |attributes| &attributes.name);
        let dressed = self.store.keep_times || self.store.preserve;
        Form::Empty { dressed, before: keeping.keeper.made_before(name) }
    }

    /// Whether a file may be there because a transfer before this one was killed when it had just
    /// made it.
    pub(super) fn may_be_half_made(&self, extent: &Extent) -> bool {
        let form = self.form(extent, false);
        extent.digest.is_some() && matches!(form, Form::Empty { dressed: true, before: true })
    }

    /// A file is complete, `bytes` of it just written: it gets its name with the next commit, if it
    /// is the sender's.
    pub(super) fn completed(&mut self, number: u64, bytes: usize, form: Form) {
        let (Some(keeping), Some(file)) = (self.keeping.as_deref_mut(), self.files.get(&number))
        else {
            return;
        };
        keeping.open.remove(&number);
        let (Some((id, times)), Some((_, digest))) = (file.attributes, file.complete) else {
            return;
        };
        if form == Form::Stored {
            keeping.wrote(file.slot, bytes);
        }
        if self.atomic && !self.store.is_kept() && file.claimed == Some(digest) {
            return;
        }
        if file.claimed == Some(digest) {
            let (slot, name) = (file.slot, self.names.path(id));
            keeping.keeper.complete(Ready { number, slot, id, name, times, digest, form });
        } else {
            // The transfer will not be verified; the next one begins this file anew.
            let slot = file.slot;
            self.forget(slot);
        }
    }

    /// Nothing of a file is wanted any more.
    pub(super) fn discard(&mut self, number: u64) {
        let slot = self.files.get(&number).map(|file| file.slot);
        match &mut self.keeping {
            None => self.store.discard(number),
            Some(keeping) => {
                keeping.open.remove(&number);
                slot.into_iter().for_each(|slot| self.forget(slot));
            }
        }
    }

    pub(super) fn forget(&mut self, slot: u64) {
        let Some(keeping) = self.keeping.as_deref_mut() else { return };
        let (store, names, placer) = (&mut self.store, &self.names, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: Gate::default() };
        keeping.keeper.forget(&mut vault, slot);
    }

    /// Brings what has come to the disk and gives names, if it is time to.
    pub(super) fn commit_if_due(&mut self) -> Result<(), Error> {
        match &self.keeping {
            Some(keeping) if keeping.is_due() => self.commit(None).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Something could not be stored: if it is the disk's fault, nothing that was written since the
    /// last commit is believed.
    pub(super) fn note_failure(&mut self, error: &Error) {
        let Some(keeping) = self.keeping.as_deref_mut() else { return };
        if let Error::File { source, .. } = error
            && Errno::from_io_error(source) == Some(Errno::IO)
        {
            keeping.keeper.lose();
        }
    }

    /// Does so; whether names could be given, which an own gate decides if there is one.
    pub(super) fn commit(&mut self, gate: Option<&Gate>) -> Result<bool, Error> {
        let Some(keeping) = self.keeping.as_deref_mut() else { return Ok(true) };
        if keeping.keeper.ready().any(|ready| matches!(ready.form, Form::Empty { .. })) {
            // Of what is about to be made the journal speaks first, and it is there.
            let made = self.store.staging_handle();
            made.map_err(|e| self.store.error(KEPT.as_bytes(), WRITING, e))?;
        }
        let (at, journals) = (now(), self.store.is_kept());
        if self.atomic && !journals {
            (keeping.bytes, keeping.since) = (0, Instant::now());
            return Ok(true);
        }
        let mut parts = Vec::new();
        for number in keeping.open.iter().filter(|_| journals) {
            let Some(file) = self.files.get(number) else { continue };
            if let (Some(subtrees), Some((id, times)), None) =
                (&file.subtrees, file.attributes, &file.refused)
            {
                let name = self.names.path(id);
                let (slot, name) = (file.slot, theirs(self.renamed.as_ref(), &name).to_vec());
                let nodes = subtrees.nodes().collect();
                parts.push(Part { slot, name, times, at, stamp: Stamp::default(), nodes });
            }
        }
        let ready = keeping.keeper.ready().filter(|_| journals && !self.atomic);
        let parents: BTreeSet<_> = ready.map(|ready| self.names.parent(ready.id)).collect();
        let mut made = BTreeSet::new();
        for parent in parents {
            made.extend(keeping.placer.missing(&self.store, &self.names, parent));
        }
        let made: Vec<Vec<u8>> = made.into_iter().map(|id| self.names.path(id)).collect();
        let mut ready: Vec<u64> = keeping.keeper.ready().map(|ready| ready.number).collect();
        let own = gate.cloned().unwrap_or_default();
        let (store, names, placer) = (&mut self.store, &self.names, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: own.clone() };
        let (keeper, parts) = (&mut keeping.keeper, parts.into_iter());
        let done = keeper.commit(&mut vault, (at, journals), parts, &made, || own.pass());
        let failure = vault.failure.take();
        (keeping.bytes, keeping.since) = (0, Instant::now());
        match done {
            Ok(mut committed) => {
                ready.retain(|number| !committed.spoiled.contains(number));
                committed.spoiled.into_iter().for_each(|number| self.refuse(number, SPOILED));
                let named = committed.placed && !self.atomic;
                for number in ready.into_iter().filter(|_| named) {
                    match committed.left_out.remove(&number) {
                        None => self.placed(number),
                        Some(why) => self.refuse(number, &why),
                    }
                }
                Ok(committed.placed)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => {
                let failure = failure.or_else(|| keeping.placer.take_failure());
                Err(failure.unwrap_or_else(|| self.store.error(KEPT.as_bytes(), WRITING, error)))
            }
        }
    }

    /// A file cannot have its name after all.
    fn refuse(&mut self, number: u64, why: &str) {
        if let Some(file) = self.files.get_mut(&number) {
            file.refused = Some(why.into());
            self.close_if_over(number);
        }
    }

    /// Everything has come and is the sender's: the rest gets its names, and nothing is kept of
    /// this transfer. Answers how many files are in place.
    pub(super) fn conclude(&mut self, gate: &Gate) -> Result<u64, Error> {
        if !self.commit(Some(gate))? {
            return Err(Error::Interrupted);
        }
        self.place_hard_links()?;
        let Some(keeping) = self.keeping.as_deref_mut() else { return Ok(0) };
        let keeper = &keeping.keeper;
        // Several transfers make one tree under labels: which of them made a directory is chance.
        let all = self.store.kept_name != KEPT;
        let before = |name: &[u8]| all || keeper.made_before(name);
        let left_out = keeping.placer.conclude(&self.store, &self.names, before)?;
        for (name, why) in left_out {
            let name = shown(&self.names.path(name));
            self.left_out.add(format!("{name}: {why}"), true);
        }
        self.list_all();
        self.keep_nothing();
        Ok(self.over.stored + self.left_out.there)
    }

    /// All is in place: nothing of this transfer is kept any more. Whether something else is.
    pub(super) fn keep_nothing(&mut self) -> bool {
        let Some(keeping) = self.keeping.as_deref_mut() else { return false };
        keeping.concluded = true;
        if !self.store.is_kept() {
            return false;
        }
        let all = &self.names;
        let (store, names, placer) = (&mut self.store, all, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: Gate::default() };
        // What cannot be tidied up now is found by the next transfer.
        let renamed = self.renamed.as_ref();
        let is_theirs = |name: &[u8]| renamed.is_some_and(|renamed| renamed.theirs() == name);
        let left = keeping.keeper.conclude(&mut vault, |name| all.has(name) || is_theirs(name));
        if matches!(left, Ok(false)) {
            self.store.clear_kept();
        }
        !matches!(left, Ok(false))
    }

    /// Bytes that did not come again, and which files began anew.
    pub(super) fn take_anew(&mut self) -> (u64, Vec<String>) {
        let Some(keeping) = self.keeping.as_deref_mut() else { return (0, Vec::new()) };
        let anew = std::mem::take(&mut keeping.anew);
        let note = |name| format!("{name} has changed since a part of it came: it came anew");
        let mut notes: Vec<String> = anew.into_iter().map(note).collect();
        if keeping.untold > 0 {
            notes.push(format!(
                "{} files that were here came again: that is more than a sender can be told of",
                keeping.untold
            ));
        }
        (keeping.kept, notes)
    }

    /// What has come stays, as far as it can, and the next connection begins with it.
    pub(super) fn keep_and_reopen(&mut self, free: &mut Vec<Buffer>) -> Result<(), Error> {
        let begun = self.buffers > 0;
        if let Some(keeping) = self.keeping.as_deref_mut() {
            free.extend(std::mem::take(&mut keeping.held).into_values());
        }
        if begun {
            self.keep_what_came();
            if let Some(keeping) = self.keeping.as_deref_mut() {
                keeping.open.clear();
                (keeping.kept, keeping.concluded) = (0, false);
            }
            return self.reopen(false);
        }
        Ok(())
    }

    fn keep_what_came(&mut self) {
        let lost = self.keeping.as_ref().is_none_or(|keeping| keeping.keeper.is_lost());
        // What breaks off has a reason that matters more than this failure. Where there is no room
        // for the journal or a directory, what came last makes some for what came before.
        for _ in 0..MOST_GIVEN_UP {
            let full = !lost && self.commit(None).is_err_and(|error| is_full(&error));
            if !full || !self.give_up_last() {
                return;
            }
        }
    }

    fn give_up_last(&mut self) -> bool {
        let Some(keeping) = self.keeping.as_deref_mut() else { return false };
        let (store, names, placer) = (&mut self.store, &self.names, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: Gate::default() };
        keeping.keeper.give_up_last(&mut vault)
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        if self.keeping.as_ref().is_none_or(|keeping| keeping.concluded) {
            return;
        }
        self.keep_what_came();
        if self.keeping.as_ref().is_some_and(|keeping| keeping.keeper.is_empty()) {
            self.store.clear_kept();
        }
    }
}

/// Whether there was no room for something.
fn is_full(error: &Error) -> bool {
    let Error::File { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
}

const NOT_HERE: &str = "it says that something is here already which is not";
pub(super) const SPOILED: &str = "read again, it is not what was written here";
const WRITING: &str = "cannot be written";

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
