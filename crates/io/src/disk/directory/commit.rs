//! Commits files one by one: each gets its name when it is whole, verified and flushed. Incomplete
//! ones are kept for the next transfer (`docs/protocol §8.7`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Extent, Kind, parse_image};
use netblt_proto::limits::MAX_HAVE_IN_ALL;
use rustix::io::Errno;

use super::file_table::too_much;
use super::{DirectoryWriter, OPEN_BYTES, PIECE_BYTES};
use crate::disk::commit_latch::CommitLatch;
use crate::disk::digest::Subtrees;
use crate::disk::fs_backend::FsBackend;
use crate::disk::have_list::Node;
use crate::disk::layout::broken;
use crate::disk::names::NameId;
use crate::disk::publish_each::FilePublisher;
use crate::disk::resume::record::{Part, Stamp};
use crate::disk::resume::{Form, Found, ReadyFile, ResumeState};
use crate::disk::sites::{TOP, site_of};
use crate::disk::staging::{self, KEPT, Open, Staging};
use crate::error::{Error, shown};
use crate::settings::Resume;

/// Bytes that are enough for a commit, and the least time between two such commits. A killed
/// transfer loses these bytes, or those of this time.
const COMMIT_BYTES: u64 = 8 << 20;
const COMMIT_SPACING: Duration = Duration::from_millis(100);
/// Fewer bytes are committed after this time, or when this many files wait for their names.
const COMMIT_AFTER: Duration = Duration::from_millis(500);
const COMMIT_FILES: usize = 4096;
/// Most files that have come and are given up where there is no room for the others' names.
const MOST_GIVEN_UP: u32 = 8;

/// The state of a transfer that commits its files one by one.
#[derive(Debug)]
pub(super) struct CommitPolicy {
    state: ResumeState,
    pub(super) publisher: FilePublisher,
    /// Buffers with parts of files whose beginning has not come, by number. The buffer with the
    /// beginning has a lower number, so it was granted before. So none waits for memory for ever.
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
    /// Files that are here and did not fit into HAVE.
    not_in_have: usize,
    /// Files that start over although parts of them were here.
    restarted: Vec<String>,
    concluded: bool,
}

impl CommitPolicy {
    pub(super) fn new() -> Self {
        Self {
            state: ResumeState::default(),
            publisher: FilePublisher::default(),
            held: BTreeMap::new(),
            open: BTreeSet::new(),
            bytes: 0,
            since: Instant::now(),
            resume: Resume::Never,
            expiry: Duration::ZERO,
            kept: 0,
            not_in_have: 0,
            restarted: Vec::new(),
            concluded: false,
        }
    }

    /// Whether a directory was made by this transfer, or one before it was about to make it.
    pub(super) fn has_made(&self, id: NameId, path: &[u8]) -> bool {
        self.publisher.has_made(id) || self.state.made_before(path)
    }

    /// File bytes that are here of transfers before this one.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// Counts bytes that were written to a slot.
    pub(super) fn mark_dirty(&mut self, slot: u64, bytes: usize) {
        self.state.mark_dirty(slot);
        self.bytes += bytes as u64;
    }

    /// It is to get its name with the next commit.
    pub(super) fn complete(&mut self, ready: ReadyFile) {
        self.state.complete(ready);
    }

    /// Parts of a file have come.
    pub(super) fn opened(&mut self, number: u64) {
        self.open.insert(number);
    }

    fn is_due(&self) -> bool {
        let waiting = self.state.waiting();
        let spent = self.since.elapsed();
        (self.bytes >= COMMIT_BYTES && spent >= COMMIT_SPACING)
            || ((self.bytes > 0 || waiting > 0) && spent >= COMMIT_AFTER)
            || waiting >= COMMIT_FILES
    }
}

impl DirectoryWriter {
    /// Whether an error with one file ends the transfer. Otherwise each file gets its name when it
    /// is whole.
    pub(crate) fn atomic(mut self, atomic: bool) -> Self {
        self.atomic = atomic;
        self.store.piecemeal = !atomic;
        self.policy = Some(Box::new(CommitPolicy::new()));
        self
    }

    /// Sets the label of the partial directory. All or nothing has only one place for its
    /// publication, and no label.
    pub(crate) fn labelled(mut self, label: Option<[u8; 32]>) -> Self {
        self.store.kept_name = staging::kept_name(label.filter(|_| !self.atomic).as_ref());
        self
    }

    /// Resumes from the parts of an earlier transfer, unless they are older than `expiry`, and
    /// keeps parts for the next one.
    pub(crate) fn resuming(mut self, resume: Resume, expiry: Duration) -> Result<Self, Error> {
        if self.atomic && resume != Resume::Never {
            // A file that cannot have its name is not lost.
            self.store.piecemeal = true;
        }
        let Some(policy) = self.policy.as_mut() else { return Ok(self) };
        policy.state.read_back(self.store.reads_back);
        if resume == Resume::Never {
            return Ok(self);
        }
        (policy.resume, policy.expiry) = (resume, expiry);
        self.store.commits_each = true;
        let name = self.store.kept_name.clone();
        let cannot = |e| self.store.error(name.as_bytes(), "cannot be looked into", e);
        match Staging::keep(&self.store.lodge, &name, Open::There).map_err(cannot)? {
            // A publication that could not be completed now was warned of, and is left alone.
            Some(kept) if kept.publishes() => self.store.commits_each = false,
            Some(kept) => self.store.adopt(kept),
            None if self.store.lodge_has(&name) => self.notes.push(format!(
                "{} is in use by another transfer, or not yours: this one does not resume from \
                 it, and cannot be resumed",
                self.store.lodge_path.join(&name).display()
            )),
            None => {}
        }
        self.reopen(resume == Resume::Verify || self.store.reads_back)?;
        Ok(self)
    }

    /// Reads the kept parts, unless another process has them.
    fn reopen(&mut self, verify: bool) -> Result<(), Error> {
        let Some(policy) = self.policy.as_deref_mut() else { return Ok(()) };
        (policy.publisher, policy.state) = (FilePublisher::default(), ResumeState::default());
        if !self.store.is_kept() {
            self.set_up_keeper();
            return Ok(());
        }
        let (store, names, publisher) = (&mut self.store, &self.table.names, &mut policy.publisher);
        let mut backend =
            FsBackend { store, names, publisher, failure: None, latch: CommitLatch::default() };
        let opened = ResumeState::open(&mut backend, now(), policy.expiry.as_secs(), verify);
        policy.state =
            opened.map_err(|e| self.store.error(KEPT.as_bytes(), "cannot be resumed from", e))?;
        if policy.state.is_doubted() {
            self.notes.push(format!(
                "{} has a list that netblt has not written there for this user, or not all of it: \
                 the file that it names was read again",
                self.store.lodge_path.join(&self.store.kept_name).display()
            ));
        }
        self.set_up_keeper();
        Ok(())
    }

    fn set_up_keeper(&mut self) {
        let Some(policy) = self.policy.as_deref_mut() else { return };
        match self.atomic {
            // All of it is read again before any of it gets its name.
            true => policy.state.atomic_mode(),
            false => policy.state.read_back(self.store.reads_back),
        }
    }

    /// The bytes of HAVE.
    pub(super) fn kept_so_far(&mut self) -> Vec<u8> {
        let Some(policy) = &mut self.policy else { return Vec::new() };
        let had = policy.state.had(self.layout.buffer_bytes());
        let (have, omitted) = had.encode(MAX_HAVE_IN_ALL);
        policy.not_in_have = omitted;
        have
    }

    /// Stores an image, or holds it until the beginnings of its files have come.
    pub(super) fn accept_or_hold(
        &mut self,
        number: u64,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<(), Error> {
        if self.policy.is_some() && !self.has_begun(&buffer)? {
            if let Some(policy) = &mut self.policy {
                policy.held.insert(number, buffer);
            }
            return Ok(());
        }
        self.accept_now(buffer, free)
    }

    /// Stores held buffers whose files have begun.
    pub(super) fn accept_held(&mut self, free: &mut Vec<Buffer>) -> Result<(), Error> {
        let mut after = 0;
        while let Some(policy) = &mut self.policy
            && let Some((&number, _)) = policy.held.range(after..).next()
            && let Some(buffer) = policy.held.remove(&number)
        {
            after = number + 1;
            if self.has_begun(&buffer)? {
                self.accept_now(buffer, free)?;
                after = 0;
            } else if let Some(policy) = &mut self.policy {
                policy.held.insert(number, buffer);
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
                || self.table.files.contains_key(&extent.file)
                || extent.file < self.finished.hashed()
                || self.table.withdrawn.contains_key(&extent.file)
                || extents.iter().take(at).any(|e| e.file == extent.file && begins(e))
        };
        Ok(extents.iter().enumerate().all(begun))
    }

    /// A file begins that was just admitted.
    pub(super) fn begin(&mut self, extent: &Extent) -> Result<(), Error> {
        let Some(policy) = self.policy.as_deref_mut() else {
            return match extent.kind {
                Kind::Kept => Err(Error::Content(NOT_HERE)),
                _ => Ok(()),
            };
        };
        let Some(file) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        let Some((id, times)) = file.attributes else { return Ok(()) };
        match extent.kind {
            Kind::Directory if file.refused.is_none() => policy.publisher.list(id, times),
            Kind::Kept => file.kept = true,
            Kind::Directory | Kind::Withdrawn => {}
            Kind::File | Kind::Stream | Kind::SymbolicLink | Kind::HardLink => {
                file.slot = policy.state.new_slot(site_of(file.slot));
                let name = self.table.names.path(id);
                let (store, names) = (&mut self.store, &self.table.names);
                let (publisher, state) = (&mut policy.publisher, &mut policy.state);
                let latch = CommitLatch::default();
                let mut backend = FsBackend { store, names, publisher, failure: None, latch };
                if state.discard_stale(&mut backend, self.output_name.theirs(&name)) {
                    policy.restarted.push(shown(&name));
                }
            }
        }
        Ok(())
    }

    /// The sender has found that the data here are those of its file.
    pub(super) fn take_kept(&mut self, extent: &Extent) -> Result<(), Error> {
        let (Some(policy), Some(file)) =
            (self.policy.as_deref_mut(), self.table.files.get_mut(&extent.file))
        else {
            return Err(Error::Content(NOT_HERE));
        };
        let Some((id, times)) = file.attributes else { return Err(Error::Content(NOT_HERE)) };
        let name = self.table.names.path(id);
        let number = extent.file;
        let theirs = self.output_name.theirs(&name);
        let whole = extent.digest.is_some();
        let known = if whole { &name[..] } else { theirs };
        let found = policy.state.adopt(known, times, whole);
        if let Some((length, _)) =
            self.checksums.hash_kept(file, extent, found.as_ref(), |slot| {
                slot.map_or_else(|| self.store.open_named(&name), |slot| self.store.open_slot(slot))
            })?
        {
            file.refused = Some(CHANGED.into());
            if self.atomic {
                let why = format!("{}: {CHANGED}; nothing was kept", shown(&name));
                return Err(Error::NotVerified(why));
            }
            self.bytes += length;
            policy.kept += length;
            return Ok(());
        }
        match (found, extent.digest) {
            (Some(Found::Named { length, digest }), Some(claimed)) if digest == claimed => {
                file.complete = Some((length, digest));
                if let Some(digests) = file.all_digests()
                    && let Some(why) = self.checksums.judge(&name, &digests)
                {
                    if self.atomic {
                        return Err(Error::Unexpected { name, why });
                    }
                    self.bytes += length;
                    policy.kept += length;
                    (file.refused, file.unexpected) = (Some(why.into()), true);
                    return Ok(());
                }
                // All or nothing: it is there since all were.
                (file.refused, file.placed) = (None, true);
                self.finished.add_stored();
                self.bytes += length;
                policy.kept += length;
                self.store_digests(number, true);
            }
            _ if self.atomic && file.refused.is_some() => return Err(self.store.exists(&name)),
            (Some(Found::Stored { slot, length, digest }), Some(claimed)) if digest == claimed => {
                (file.complete, file.slot) = (Some((length, digest)), slot);
                self.bytes += length;
                policy.kept += length;
                let refused = file.refused.is_some();
                if !refused && self.is_expected(number)? {
                    self.store_digests(number, false);
                    let Some(policy) = self.policy.as_deref_mut() else { return Ok(()) };
                    let form = Form::Stored;
                    let ready = ReadyFile { number, slot, id, name, times, digest, form };
                    policy.state.complete(ready);
                }
            }
            (Some(Found::Parts { slot, nodes }), None) => {
                return self.adopt_parts(number, slot, &nodes);
            }
            _ => return Err(Error::Content(NOT_HERE)),
        }
        Ok(())
    }

    /// The parts of a file that are here, in this slot, are the sender's.
    fn adopt_parts(&mut self, number: u64, slot: u64, nodes: &[Node]) -> Result<(), Error> {
        let (Some(policy), Some(file)) =
            (self.policy.as_deref_mut(), self.table.files.get_mut(&number))
        else {
            return Err(Error::Content(NOT_HERE));
        };
        let open_bytes = OPEN_BYTES + self.checksums.open_bytes();
        self.table.budget.take(open_bytes).map_err(too_much)?;
        let extent_bytes = self.layout.buffer_bytes();
        let mut subtrees = Box::new(Subtrees::new(extent_bytes).of_range(self.store.range));
        let large = |node: &&Node| node.bytes >= u64::from(extent_bytes);
        for node in nodes.iter().filter(large) {
            if !subtrees.adopt(node) {
                return Err(Error::Content(NOT_HERE));
            }
            self.bytes += node.bytes;
            policy.kept += node.bytes;
        }
        let pieces = PIECE_BYTES * subtrees.pieces() as u64;
        self.table.budget.take(pieces).map_err(too_much)?;
        (file.slot, file.subtrees) = (slot, Some(subtrees));
        policy.opened(number);
        Ok(())
    }

    /// The form in which a complete file waits for its name. An empty file has no temporary, where
    /// making it is all that is needed, and the disk can be waited for without it.
    pub(super) fn form(&self, extent: &Extent, more: bool) -> Form {
        let Some(policy) = &self.policy else { return Form::Stored };
        // Its directory is flushed with the destination.
        let file = self.table.files.get(&extent.file);
        let near = file.is_some_and(|file| site_of(file.slot) == TOP);
        let empty = extent.kind == Kind::File && extent.length == 0 && !more && near;
        let plain = !self.store.reads_back && self.checksums.stored().is_empty();
        if !empty || self.atomic || !plain || !self.store.flushes_whole {
            return Form::Stored;
        }
        let name = extent.attributes.as_ref().map_or(&[][..], |attributes| &attributes.name);
        let dressed = self.store.keep_times || self.store.preserve;
        Form::Empty { dressed, before: policy.state.made_before(name) }
    }

    /// Whether a file may be there because a transfer before this one was killed when it had just
    /// made it.
    pub(super) fn may_be_half_made(&self, extent: &Extent) -> bool {
        let form = self.form(extent, false);
        extent.digest.is_some() && matches!(form, Form::Empty { dressed: true, before: true })
    }

    /// A complete file gets its digests as attributes; `named`: it has its name already.
    fn store_digests(&mut self, number: u64, named: bool) {
        let Some(file) = self.table.files.get(&number) else { return };
        let (Some((id, _)), Some(digests)) = (file.attributes, file.all_digests()) else { return };
        let name = self.table.names.path(id);
        let slot = Some(file.slot).filter(|_| !named);
        self.store.set_digests(&name, slot, &digests, self.checksums.stored());
    }

    /// A file is complete, `bytes` of it just written: it gets its name with the next commit, if it
    /// is the sender's.
    pub(super) fn completed(&mut self, number: u64, bytes: usize, form: Form) {
        self.store_digests(number, false);
        let (Some(policy), Some(file)) =
            (self.policy.as_deref_mut(), self.table.files.get(&number))
        else {
            return;
        };
        policy.open.remove(&number);
        let (Some((id, times)), Some((_, digest))) = (file.attributes, file.complete) else {
            return;
        };
        if form == Form::Stored {
            policy.mark_dirty(file.slot, bytes);
        }
        if self.atomic && !self.store.is_kept() && file.claimed == Some(digest) {
            return;
        }
        if file.claimed == Some(digest) {
            let (slot, name) = (file.slot, self.table.names.path(id));
            policy.state.complete(ReadyFile { number, slot, id, name, times, digest, form });
        } else {
            // The transfer will not be verified. The next one starts this file over.
            let slot = file.slot;
            self.forget(slot);
        }
    }

    /// Drops all data of a file.
    pub(super) fn discard(&mut self, number: u64) {
        let file = self.table.files.get_mut(&number);
        let slot = file.map(|file| {
            // A thread that has ended shows at the next file.
            let _ = self.checksums.forget(file);
            file.slot
        });
        match &mut self.policy {
            None => self.store.discard(number),
            Some(policy) => {
                policy.open.remove(&number);
                slot.into_iter().for_each(|slot| self.forget(slot));
            }
        }
    }

    pub(super) fn forget(&mut self, slot: u64) {
        let Some(policy) = self.policy.as_deref_mut() else { return };
        let (store, names, publisher) = (&mut self.store, &self.table.names, &mut policy.publisher);
        let mut backend =
            FsBackend { store, names, publisher, failure: None, latch: CommitLatch::default() };
        policy.state.forget(&mut backend, slot);
    }

    /// Flushes the data and gives names, if it is time to.
    pub(super) fn commit_if_due(&mut self) -> Result<(), Error> {
        match &self.policy {
            Some(policy) if policy.is_due() => self.commit(None).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Something could not be stored: if it is the disk's fault, nothing that was written since the
    /// last commit is believed.
    pub(super) fn note_failure(&mut self, error: &Error) {
        let Some(policy) = self.policy.as_deref_mut() else { return };
        if let Error::File { source, .. } = error
            && Errno::from_io_error(source) == Some(Errno::IO)
        {
            policy.state.lose();
        }
    }

    /// Does so; whether names could be given, which an own gate decides if there is one.
    pub(super) fn commit(&mut self, latch: Option<&CommitLatch>) -> Result<bool, Error> {
        let Some(policy) = self.policy.as_deref_mut() else { return Ok(true) };
        if policy.state.ready().any(|ready| matches!(ready.form, Form::Empty { .. })) {
            // The journal first records files that are about to be made, so it must exist.
            let made = self.store.staging_handle();
            made.map_err(|e| self.store.error(KEPT.as_bytes(), WRITING, e))?;
        }
        let (at, journals) = (now(), self.store.is_kept());
        if self.atomic && !journals {
            (policy.bytes, policy.since) = (0, Instant::now());
            return Ok(true);
        }
        let mut parts = Vec::new();
        for number in policy.open.iter().filter(|_| journals) {
            let Some(file) = self.table.files.get(number) else { continue };
            if let (Some(subtrees), Some((id, times)), None) =
                (&file.subtrees, file.attributes, &file.refused)
            {
                let name = self.table.names.path(id);
                let (slot, name) = (file.slot, self.output_name.theirs(&name).to_vec());
                let nodes = subtrees.nodes().collect();
                parts.push(Part { slot, name, times, at, stamp: Stamp::default(), nodes });
            }
        }
        let ready = policy.state.ready().filter(|_| journals && !self.atomic);
        let parents: BTreeSet<_> = ready.map(|ready| self.table.names.parent(ready.id)).collect();
        let mut made = BTreeSet::new();
        for parent in parents {
            made.extend(policy.publisher.missing(&self.store, &self.table.names, parent));
        }
        let made: Vec<Vec<u8>> = made.into_iter().map(|id| self.table.names.path(id)).collect();
        let mut ready: Vec<u64> = policy.state.ready().map(|ready| ready.number).collect();
        let own = latch.cloned().unwrap_or_default();
        let (store, names, publisher) = (&mut self.store, &self.table.names, &mut policy.publisher);
        let mut backend = FsBackend { store, names, publisher, failure: None, latch: own.clone() };
        let (state, parts) = (&mut policy.state, parts.into_iter());
        let done = state.commit(&mut backend, at, journals, parts, &made, || own.commit());
        let failure = backend.failure.take();
        (policy.bytes, policy.since) = (0, Instant::now());
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
                let failure = failure.or_else(|| policy.publisher.take_failure());
                Err(failure.unwrap_or_else(|| self.store.error(KEPT.as_bytes(), WRITING, error)))
            }
        }
    }

    /// A file cannot have its name after all.
    fn refuse(&mut self, number: u64, why: &str) {
        if let Some(file) = self.table.files.get_mut(&number) {
            file.refused = Some(why.into());
            self.close_if_over(number);
        }
    }

    /// Everything has come and is the sender's: the rest gets its names, and nothing is kept of
    /// this transfer. Answers how many files are in place.
    pub(super) fn conclude(&mut self, latch: &CommitLatch) -> Result<u64, Error> {
        if !self.commit(Some(latch))? {
            return Err(Error::Interrupted);
        }
        let Some(policy) = self.policy.as_deref_mut() else { return Ok(0) };
        let (table, finished, left_out) = (&mut self.table, &mut self.finished, &mut self.left_out);
        let (store, publisher) = (&mut self.store, &mut policy.publisher);
        let left_out = (left_out, &mut self.checksums);
        self.hard_links.place(table, finished, left_out, store, publisher)?;
        let state = &policy.state;
        // Several transfers make one tree under labels: which of them made a directory is chance.
        let all = self.store.kept_name != KEPT;
        let before = |name: &[u8]| all || state.made_before(name);
        let left_out = policy.publisher.conclude(&self.store, &self.table.names, before)?;
        for (name, why) in left_out {
            let name = shown(&self.table.names.path(name));
            self.left_out.add(format!("{name}: {why}"), true);
        }
        self.finished.list_all(&self.table, &mut self.reports);
        self.keep_nothing();
        Ok(self.finished.stored() + self.left_out.there())
    }

    /// All is in place: nothing of this transfer is kept any more. Whether something else is.
    pub(super) fn keep_nothing(&mut self) -> bool {
        let Some(policy) = self.policy.as_deref_mut() else { return false };
        policy.concluded = true;
        if !self.store.is_kept() {
            return false;
        }
        let all = &self.table.names;
        let (store, names, publisher) = (&mut self.store, all, &mut policy.publisher);
        let mut backend =
            FsBackend { store, names, publisher, failure: None, latch: CommitLatch::default() };
        // A failed cleanup is left to the next transfer.
        let stays = |name: &[u8]| all.has(name) || self.output_name.is_theirs(name);
        let left = policy.state.conclude(&mut backend, stays);
        if matches!(left, Ok(false)) {
            self.store.clear_kept();
        }
        !matches!(left, Ok(false))
    }

    /// Bytes that did not come again, and the files that started over.
    pub(super) fn take_restarted(&mut self) -> (u64, Vec<String>) {
        let Some(policy) = self.policy.as_deref_mut() else { return (0, Vec::new()) };
        let restarted = std::mem::take(&mut policy.restarted);
        let why = "has changed since a part of it arrived: all of it was sent again";
        let note = |name| format!("{name} {why}");
        let mut notes: Vec<String> = restarted.into_iter().map(note).collect();
        if policy.not_in_have > 0 {
            notes.push(format!(
                "{} files that were here were sent again: they did not fit into the list \
                 for the sender",
                policy.not_in_have
            ));
        }
        (policy.kept, notes)
    }

    /// Keeps all data as far as possible. The next connection begins with them.
    pub(super) fn keep_and_reopen(&mut self, free: &mut Vec<Buffer>) -> Result<(), Error> {
        let begun = self.buffers > 0;
        if let Some(policy) = self.policy.as_deref_mut() {
            free.extend(std::mem::take(&mut policy.held).into_values());
        }
        if begun {
            self.keep_what_came();
            if let Some(policy) = self.policy.as_deref_mut() {
                policy.open.clear();
                (policy.kept, policy.concluded) = (0, false);
            }
            return self.reopen(false);
        }
        Ok(())
    }

    fn keep_what_came(&mut self) {
        let lost = self.policy.as_ref().is_none_or(|policy| policy.state.is_lost());
        // The transfer fails for a reason that matters more than this error. Where there is no room
        // for the journal or a directory, the newest files make room for older ones.
        for _ in 0..MOST_GIVEN_UP {
            let full = !lost && self.commit(None).is_err_and(|error| is_full(&error));
            if !full || !self.give_up_last() {
                return;
            }
        }
    }

    fn give_up_last(&mut self) -> bool {
        let Some(policy) = self.policy.as_deref_mut() else { return false };
        let (store, names, publisher) = (&mut self.store, &self.table.names, &mut policy.publisher);
        let mut backend =
            FsBackend { store, names, publisher, failure: None, latch: CommitLatch::default() };
        policy.state.give_up_last(&mut backend)
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        if self.policy.as_ref().is_none_or(|policy| policy.concluded) {
            return;
        }
        self.keep_what_came();
        if self.policy.as_ref().is_some_and(|policy| policy.state.is_empty()) {
            self.store.clear_kept();
        }
    }
}

/// Whether there was no room for something.
fn is_full(error: &Error) -> bool {
    let Error::File { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
}

const CHANGED: &str = "was here from an earlier transfer, and has changed since";
const NOT_HERE: &str = "it says that something is here already which is not";
pub(super) const SPOILED: &str = "read again, it is not what was written here";
const WRITING: &str = "cannot be written";

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
