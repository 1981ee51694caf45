//! The receiver's client: full buffers go to the disk, and empty ones back to the machine.

mod subflows;

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;

use crate::cancel::Cancel;
use crate::checksums::content_hashes::ContentHashes;
use crate::checksums::expectation::Expectation;
use crate::config::{capacity, config};
use crate::destination::Destination;
use crate::disk::directory::DirectoryWriter;
use crate::disk::free_space::FreeSpace;
use crate::disk::layout::Layout;
use crate::disk::manifest::Manifest;
use crate::disk::raw_file::RawFileWriter;
use crate::disk::staging::kept_name;
use crate::disk::stream::StreamWriter;
use crate::disk::threads::{SinkThread, StoreOutcome, Stored, Writer};
use crate::error::{Error, OptionsError, Warning, shown};
use crate::net::connections::Oversize;
use crate::net::establish::{self, Establish};
use crate::net::event_loop::{self, Application, Feed};
use crate::net::poller::Waker;
use crate::net::trace_file::{DiskEvent, DiskSide};
use crate::observer::Observer;
use crate::options::Options;
use crate::progress::Summary;
use crate::ticket::Rendezvous;
use crate::transfer::announcement::Announcement;
use crate::transfer::buffer_pool::BufferPool;
use crate::transfer::handle::Transfer;
use crate::transfer::limited_by::{Facts, View, conclude, view_of_receiver};
use crate::transfer::list::{ListDecoder, Offered, REQUEST};
use crate::transfer::session::{ProgressSoFar, TransferSession, buffers};
use crate::transfer::subflows::{self as all_subflows, RECEIVER, SubflowFactory};
use crate::transfer::summary::{SessionFacts, summary};

/// Receives into `destination`; blocks until everything is verified and has its final name.
pub fn receive(
    destination: Destination,
    rendezvous: &Rendezvous,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let way = Establish::Meet(rendezvous);
    receive_via(destination, way, options, observer, cancel, Ask::Files)
}

impl Transfer {
    /// Begins what [`receive`](fn@crate::receive) does on a thread of its own; [`Error::Thread`] if
    /// there can be none.
    pub fn receive(
        destination: Destination,
        rendezvous: Rendezvous,
        options: Options,
        cancel: Cancel,
    ) -> Result<Self, Error> {
        Self::spawn(cancel, move |observer, cancel| {
            receive(destination, &rendezvous, &options, observer, cancel)
        })
    }
}

/// Fetches the list of the sender that listens at `rendezvous`, which then listens again. Errors
/// are those of a transfer. A sender that answers with something else is of another version.
pub fn list(
    rendezvous: &Rendezvous,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Vec<Offered>, Error> {
    let mut options = options.clone();
    options.network.client = Some(REQUEST.to_owned());
    let (lines, offered) = ListDecoder::new();
    let destination = Destination::writer(lines);
    let way = Establish::Meet(rendezvous);
    receive_via(destination, way, &options, observer, cancel, Ask::List)?;
    Ok(offered.try_iter().collect())
}

/// The request to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Its files.
    Files,
    /// The list of its files, whose length is unrelated to the announced bytes.
    List,
}

/// [`receive`], or what else is asked for.
pub(crate) fn receive_via(
    destination: Destination,
    way: Establish<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
    ask: Ask,
) -> Result<Summary, Error> {
    let config = proposal(way, options);
    let warn = |warning| observer.warn(&warning);
    let place = place_of_parts(&destination, options);
    let room = match (&destination, options.wire) {
        (Destination::Directory(path), Wire::Sealed) => {
            let expected = options.expected.as_ref().map(|expected| expected.names.clone());
            Some(FreeSpace::new(path.clone(), expected.or_else(|| options.incoming_names.clone())))
        }
        _ => None,
    };
    let mut writer = writer(destination, options, Layout::of(&config)?, warn)?;
    let sends_have_early = options.wire == Wire::Sealed && writer.had().is_empty();
    let stock = buffers(options.buffers.count, capacity(&config), 0)?;
    let (mut host, mut peer) = establish::meet(way, options, &config, observer, cancel)?;
    let session = TransferSession::new(&mut *observer, cancel, &config)
        .with_accept_timeout(way.listens(), options.network.wait);
    let session = session.with_control(options.control.as_ref());
    let room = room.map(|room| (room, writer.kept_bytes()));
    let mut app = Receiving::new(session, writer, stock, host.poller.waker());
    app.pool.allow_in_all(config.max_outstanding);
    app.over_subflows(SubflowFactory::of(options, way.meets(), &host));
    (app.room, app.max_bytes, app.ask, app.sends_have_early) =
        (room, options.settings.max_bytes, ask, sends_have_early);
    app.verdict_sent_elsewhere = peer.is_branch();
    (app.request, app.announced) =
        (options.server_request.request.clone(), options.server_request.total);
    let received = event_loop::run(&mut peer, &mut app, &mut host);
    let cut = match &received {
        Ok(Ok(_)) => None,
        Ok(Err(_)) | Err(_) => host.finish_trace(None),
    };
    cut.iter().for_each(|warning| app.session.observer.warn(warning));
    let received = match received? {
        Ok(received) => received,
        Err(error) => {
            // This waits until the disk's thread has cleaned up.
            app.disk = None;
            if let Some(place) = place.filter(|place| place.exists()) {
                app.session.observer.warn(&Warning::Kept(shown(place.as_os_str().as_bytes())));
            }
            return Err(peer.name(error));
        }
    };
    warn_of(&mut *app.session.observer, &received.outcome);
    let mut stats = peer.view().map(|end| end.stats(received.at)).unwrap_or_default();
    let subflows = all_subflows::sum(&mut stats, app.close_subflows());
    // Without a view of the sender, this end uses what it sees.
    let view = View::of(stats.limit);
    let facts = app.facts.or_else(|| {
        let view_of_receiver = view.is_none();
        view_of_receiver.then(|| app.look(received.at, &stats))
    });
    let (bytes, most) = app.granted;
    let view = view.or_else(|| view_of_receiver(&stats, bytes, most));
    Ok(summary(SessionFacts {
        limited_by: conclude(&mut host, &mut *app.session.observer, received.at, view, facts),
        stats,
        at: received.at,
        bytes: received.outcome.bytes,
        kept: received.outcome.kept,
        files: received.outcome.files,
        skipped: received.outcome.skipped,
        unexpected: received.outcome.unexpected,
        verified: received.outcome.verified,
        digest: received.outcome.digest,
        streams: subflows,
    }))
}

/// Where the parts of a broken transfer are kept.
fn place_of_parts(destination: &Destination, options: &Options) -> Option<PathBuf> {
    let Destination::Directory(path) = destination else { return None };
    let label = options.label.filter(|_| !options.settings.atomic);
    Some(path.join(kept_name(label.as_ref())))
}

/// Warns of all problems at the disk's side of a transfer.
fn warn_of(observer: &mut dyn Observer, outcome: &StoreOutcome) {
    for text in &outcome.notes {
        observer.warn(&Warning::Leftover(text.clone()));
    }
    for text in &outcome.left_out {
        observer.warn(&Warning::LeftOut(text.clone()));
    }
    outcome.unwritten.iter().for_each(|warning| observer.warn(warning));
    let more = outcome.skipped.saturating_sub(outcome.left_out.len() as u64);
    if more > 0 {
        observer.warn(&Warning::SkippedMore(more));
    }
}

/// A receiver's proposal.
fn proposal(way: Establish<'_>, options: &Options) -> Config {
    let config = config(options, Role::Receiver, None);
    all_subflows::announce(RECEIVER, options, way.meets(), config)
}

/// The writer for a destination. It has written nothing yet.
pub(crate) fn writer(
    destination: Destination,
    options: &Options,
    layout: Layout,
    mut warn: impl FnMut(Warning),
) -> Result<Box<dyn Writer>, Error> {
    let overwrite = options.settings.overwrite;
    let mut report_notes = |notes: Vec<String>| {
        notes.into_iter().for_each(|note| warn(Warning::Leftover(note)));
    };
    Ok(match (destination, options.wire) {
        (Destination::Directory(path), Wire::Sealed) => {
            let mut writer = DirectoryWriter::new(&path, overwrite, layout)?;
            report_notes(writer.take_notes());
            let writer =
                writer.with_max_files(options.settings.max_files).within(&options.memory_share);
            let writer = writer.expecting(options.expected.clone()).atomic(options.settings.atomic);
            let writer = writer.preserving(options.settings.preserve, options.settings.keep_times);
            let writer =
                writer.with_extras(options.settings.extras).reading_back(options.settings.verify);
            let writer = writer.renaming(options.rename.as_deref());
            let writer = writer.naming(options.name_log.clone());
            let writer = writer.labelled(options.label).of_range(options.range);
            let mut writer =
                writer.resuming(options.settings.resume, options.settings.partial_expiry)?;
            report_notes(writer.take_notes());
            let create = |list: &Path| Manifest::create(list, &options.checksums, Some(&path));
            let manifest = options.manifest.as_deref().map(create).transpose()?;
            let needed = options.checksums.needed(manifest.is_some());
            let hashes = match options.range {
                None => ContentHashes::start(needed)?,
                Some(_) => None,
            };
            let expected = options.checksums.expected.clone();
            let expected = expected.map(|list| Expectation::new(list, Some(&path)));
            let writer = writer.listing(manifest, options.on_file.clone());
            Box::new(writer.hashing(hashes, expected).storing(options.checksums.stored()))
        }
        (Destination::File(path), Wire::Rfc998) => {
            let mut writer = RawFileWriter::new(&path, overwrite, layout)?;
            report_notes(writer.take_notes());
            Box::new(writer)
        }
        (Destination::Directory(_), Wire::Rfc998) => {
            return Err(OptionsError::Directory.into());
        }
        (Destination::File(_), Wire::Sealed) => {
            return Err(OptionsError::File.into());
        }
        (Destination::Stream(output), wire) => {
            let writer = StreamWriter::new(output, layout, wire == Wire::Rfc998);
            Box::new(writer.with_on_file(options.on_file.clone()))
        }
    })
}

/// The result of a transfer at its receiver.
pub(crate) struct ReceiveResult {
    pub(crate) outcome: StoreOutcome,
    pub(crate) at: Instant,
}

/// The client of a receiving machine.
pub(crate) struct Receiving<'a, W> {
    pub(crate) session: TransferSession<'a>,
    /// Until the connection opens, and with it the size of buffers is known.
    writer: Option<W>,
    disk: Option<SinkThread>,
    /// How many buffers there are.
    pub(crate) pool: BufferPool,
    /// Not with the machine.
    idle: Vec<Buffer>,
    /// HAVE was sent.
    have_sent: bool,
    /// Nothing is here. The first peer that connects gets an empty HAVE and buffers at once.
    sends_have_early: bool,
    /// That was done.
    early_have_sent: bool,
    /// When everything is in place, another part of the program sends the verdict.
    verdict_sent_elsewhere: bool,
    /// File bytes that the user takes.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) ask: Ask,
    /// The request to a server, which precedes HAVE.
    request: Vec<u8>,
    /// Bytes that are to come, as announced before.
    announced: Option<u64>,
    /// The destination, and the bytes that were there before, until the free space was checked.
    pub(crate) room: Option<(FreeSpace, u64)>,
    /// Number of files, if the sender announces it.
    files: Option<u64>,
    /// The facts of this end that the sender got.
    facts: Option<Facts>,
    /// How large the buffers are, and how many may be outstanding.
    granted: (u32, u32),
    /// Until when a disk that gives files their names is waited for, though the user wants to stop.
    patience: Option<Instant>,
    waker: Waker,
    total: Option<u64>,
    outcome: Option<StoreOutcome>,
    /// Everything was handed over, and the disk is to judge it.
    finishing: bool,
    /// The connection is closed, and only the disk is not done.
    closed: Option<CloseReason>,
    stalled: Duration,
    looked: Instant,
    /// Most buffers wait for the disk, or the final flush runs.
    waiting: bool,
    disk_event: Option<DiskEvent>,
    subflows: subflows::ReceiveSubflows,
    /// Buffers are granted one by one, by the caller.
    turns: Option<GrantTurns>,
}

/// The state of grants that are made one by one.
#[derive(Clone, Copy, Debug, Default)]
struct GrantTurns {
    /// How many buffers may be offered to the machine now, and how many were.
    may: usize,
    offered: u64,
    /// How many came back, and bytes in them.
    back: u64,
    bytes: u64,
}

/// How long a disk that gives files their names is waited for when the user wants to stop.
const PATIENCE: Duration = Duration::from_secs(1);
const BYTES: &str = "bytes";

type Flow = ControlFlow<Result<ReceiveResult, Error>>;

impl<'a, W: Writer> Receiving<'a, W> {
    pub(crate) fn new(
        session: TransferSession<'a>,
        writer: W,
        stock: Vec<Buffer>,
        waker: Waker,
    ) -> Self {
        Self {
            session,
            writer: Some(writer),
            disk: None,
            pool: BufferPool::new(&stock),
            idle: stock,
            have_sent: false,
            sends_have_early: false,
            early_have_sent: false,
            verdict_sent_elsewhere: false,
            max_bytes: None,
            ask: Ask::Files,
            request: Vec::new(),
            announced: None,
            room: None,
            files: None,
            facts: None,
            granted: (0, 0),
            patience: None,
            waker,
            total: None,
            outcome: None,
            finishing: false,
            closed: None,
            stalled: Duration::ZERO,
            looked: Instant::EPOCH,
            waiting: false,
            disk_event: None,
            subflows: subflows::ReceiveSubflows::None,
            turns: None,
        }
    }

    /// From now on no buffer is granted but by [`Self::grant_one`].
    pub(crate) fn grant_by_turns(&mut self) {
        self.turns = Some(GrantTurns::default());
    }

    /// Whether it could grant a buffer.
    pub(crate) fn wants_grant(&self) -> bool {
        let goes_on = self.have_sent && !self.finishing && self.outcome.is_none();
        goes_on && self.closed.is_none() && !self.session.has_failed() && !self.idle.is_empty()
    }

    /// Grants one buffer.
    pub(crate) fn grant_one(&mut self, now: Instant, end: &mut Endpoint) {
        if let Some(turns) = &mut self.turns {
            turns.may += 1;
        }
        self.offer_idle(now, end);
    }

    /// Bytes that the other end may send by its grants, with buffers of so many bytes, of which so
    /// many have arrived.
    pub(crate) fn ahead(&self, buffer_bytes: u64, arrived: u64) -> u64 {
        let Some(turns) = &self.turns else { return 0 };
        let unused = (turns.back * buffer_bytes).saturating_sub(turns.bytes);
        (turns.offered * buffer_bytes).saturating_sub(unused + arrived)
    }

    /// Counts a returned buffer with so many bytes.
    fn count_back(&mut self, bytes: usize) {
        if let Some(turns) = &mut self.turns {
            turns.back += 1;
            turns.bytes += bytes as u64;
        }
    }

    /// Whether one more buffer may be offered to the machine, which it then is.
    fn may_offer(&mut self) -> bool {
        let Some(turns) = &mut self.turns else { return true };
        let may = turns.may > 0;
        turns.may = turns.may.saturating_sub(1);
        turns.offered += u64::from(may);
        may
    }

    /// Whether the user accepts the announced files.
    fn agree(&mut self, layout: Layout, announcement: Announcement) -> Result<Layout, Error> {
        if let (Some(total), Some(most)) = (self.total, self.max_bytes)
            && total > most
        {
            return Err(Error::TooMuch { what: BYTES, most });
        }
        // A peer that connects again resumes: there was room before.
        if let (Some((room, kept)), Some(total)) = (self.room.take(), self.total) {
            let needs = announcement.data_bytes.unwrap_or(total).min(total).saturating_sub(kept);
            let warning = room.check(needs)?;
            warning.iter().for_each(|warning| self.session.observer.warn(warning));
        }
        Ok(layout)
    }

    fn open(&mut self, now: Instant, layout: Layout) -> Result<(), Error> {
        (self.outcome, self.finishing) = (None, false);
        (self.stalled, self.looked) = (Duration::ZERO, now);
        if let Some(disk) = &mut self.disk {
            disk.restart(layout);
        } else if let Some(mut writer) = self.writer.take() {
            writer.restart(layout, &mut Vec::new())?;
            let (waker, room) = (self.waker.clone(), self.pool.room());
            self.disk = Some(SinkThread::spawn(writer, layout, room, move || waker.wake())?);
        }
        // The size in an OPEN of RFC 998 may be anything.
        let promised = self.total.filter(|_| self.session.is_verifiable());
        let most = promised.unwrap_or(u64::MAX).min(self.max_bytes.unwrap_or(u64::MAX));
        self.disk.iter_mut().for_each(|disk| disk.limit(most));
        // Nothing is granted before HAVE was sent.
        self.have_sent = std::mem::take(&mut self.early_have_sent);
        self.disk.iter_mut().for_each(SinkThread::begin);
        Ok(())
    }

    /// Handles the results of the disk: empty buffers go back to the machine, the verdict to the
    /// sender.
    fn collect(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        self.turn_subflows(now, end)?;
        let Some(disk) = &mut self.disk else { return ControlFlow::Continue(()) };
        let spell = now.since(std::mem::replace(&mut self.looked, now));
        let waiting = self.finishing || disk.backlog() * 2 > self.pool.made();
        if waiting {
            self.stalled += spell;
        }
        if std::mem::replace(&mut self.waiting, waiting) != waiting {
            let event = DiskEvent { side: DiskSide::Write, waiting, buffers: disk.backlog() };
            self.disk_event = Some(event);
        }
        while let Some(disk) = &mut self.disk {
            match disk.poll() {
                Ok(Some(Stored::Empty(buffer))) if !self.have_sent => self.idle.push(buffer),
                Ok(Some(Stored::Empty(buffer))) => self.spread(now, end, buffer),
                Ok(Some(Stored::Have(_))) if self.have_sent => {}
                Ok(Some(Stored::Have(had))) => {
                    end.tell(now, &[&self.request[..], &had].concat());
                    self.have_sent = true;
                    self.offer_idle(now, end);
                }
                Ok(Some(Stored::Finished(outcome))) => {
                    let mut verdict = outcome.verdict();
                    if verdict.verified && verdict.reason.is_empty() {
                        let stats = end.stats(now);
                        let elapsed = now.since(stats.opened_at.unwrap_or(now));
                        let cpu = self.session.cpu_share(elapsed);
                        let storing = disk.wanted_processor();
                        let facts = Facts::new(&stats, now, cpu, self.stalled, storing);
                        (verdict.reason, self.facts) = (facts.to_string(), Some(facts));
                    }
                    end.judge(now, verdict);
                    self.finishing = false;
                    if self.verdict_sent_elsewhere && outcome.verified {
                        return ControlFlow::Break(Ok(self.received(now, *outcome)));
                    }
                    self.outcome = Some(*outcome);
                }
                Ok(None) => break,
                Err(error) => {
                    // The peer may be gone already.
                    if self.closed.is_some() {
                        return ControlFlow::Break(Err(error));
                    }
                    return self.session.fail(now, end, error);
                }
            }
        }
        // Idle buffers were returned: nothing more is to come.
        if self.have_sent && self.idle.is_empty() && !self.finishing {
            for buffer in self.pool.make(now, end) {
                self.spread(now, end, buffer);
            }
        }
        match self.closed.take_if(|_| self.outcome.is_some()) {
            Some(reason) => ControlFlow::Break(self.finish(now, reason)),
            None => ControlFlow::Continue(()),
        }
    }

    /// The facts of this end.
    fn look(&self, now: Instant, stats: &Stats) -> Facts {
        let elapsed = now.since(stats.opened_at.unwrap_or(now));
        let storing = self.disk.as_ref().map(SinkThread::wanted_processor).unwrap_or_default();
        Facts::new(stats, now, self.session.cpu_share(elapsed), self.stalled, storing)
    }

    fn received(&self, now: Instant, outcome: StoreOutcome) -> ReceiveResult {
        ReceiveResult { outcome, at: now }
    }

    /// Whether to go on after a cancellation: files that have their names stay, and both ends are
    /// to report the same result.
    fn must_finish_publishing(&mut self, now: Instant) -> bool {
        if !self.session.is_cancelled() || self.session.is_aborting() || self.session.has_failed() {
            return false;
        }
        let verified = self.outcome.as_ref().is_some_and(|outcome| outcome.verified);
        let publishing = || self.disk.as_ref().is_some_and(|disk| !disk.stop());
        let settled = verified || (self.finishing && publishing());
        settled && now < *self.patience.get_or_insert(now + PATIENCE)
    }

    /// The connection is closed; the disk may still have the last word: on `rfc998`, and when
    /// files are being given their names.
    fn close(&mut self, now: Instant, reason: CloseReason) -> Flow {
        let publishing = || self.finishing && self.disk.as_ref().is_some_and(|disk| !disk.stop());
        if self.outcome.is_none()
            && !self.session.has_failed()
            && (reason == CloseReason::Finished || publishing())
        {
            self.closed = Some(reason);
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(self.finish(now, reason))
    }

    fn finish(&mut self, now: Instant, reason: CloseReason) -> Result<ReceiveResult, Error> {
        match self.outcome.take() {
            // Everything is in place. The sender's confirmation is missing, which changes nothing
            // about that.
            Some(outcome) if outcome.verified || reason == CloseReason::Finished => {
                if !outcome.verified && self.session.is_verifiable() {
                    return Err(Error::NotVerified(outcome.reason));
                }
                Ok(self.received(now, outcome))
            }
            _ => Err(self.session.closed(reason)),
        }
    }
}

impl<W: Writer> Application for Receiving<'_, W> {
    type Key = ();
    type Outcome = Result<ReceiveResult, Error>;

    /// The disk may have done something at any time.
    fn on_tick(&mut self, _: Instant) -> ControlFlow<Self::Outcome, Feed> {
        ControlFlow::Continue(Feed::All)
    }

    fn on_ready(&mut self, now: Instant, (): (), end: &mut Endpoint) -> Flow {
        self.session.steer(now, end);
        if std::mem::take(&mut self.sends_have_early) {
            end.tell(now, &self.request);
            self.idle.drain(..).for_each(|buffer| end.offer(now, buffer));
            self.early_have_sent = true;
        }
        if !self.must_finish_publishing(now) {
            let cancelled = self.session.is_cancelled();
            if let Some(outcome) = self.outcome.take_if(|outcome| cancelled && outcome.verified) {
                // Everything is in place, and the user learns that.
                return ControlFlow::Break(Ok(self.received(now, outcome)));
            }
            let too_late =
                self.finishing && self.disk.as_ref().is_some_and(|disk| !disk.may_stop());
            self.session.check_with(now, end, || match too_late {
                true => Error::Unfinished,
                false => Error::Interrupted,
            })?;
        }
        if !self.session.has_failed() {
            self.collect(now, end)?;
        }
        let mut far = ProgressSoFar::bytes(0, self.total.or(self.announced));
        if let Some(disk) = &self.disk {
            (far.bytes, far.kept, far.at) = (disk.bytes(), disk.kept(), disk.at());
            far.files = self.files;
        }
        self.session.report(now, end, &far);
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> Flow {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                self.granted = (parameters.buffer_bytes, parameters.max_outstanding);
                self.pool.open(self.granted);
                self.total = parameters.transfer_bytes.filter(|_| self.ask == Ask::Files);
                let announcement = match self.ask {
                    Ask::Files => Announcement::parse(&parameters.client),
                    Ask::List => Announcement::default(),
                };
                self.files = announcement.files;
                let subflows = announcement
                    .subflows
                    .or_else(|| all_subflows::from_client_string(&parameters.client));
                let opened = self
                    .session
                    .open(now, end, peer, &parameters, image_bytes)
                    .and_then(|layout| self.agree(layout, announcement))
                    .and_then(|layout| self.open(now, layout))
                    .and_then(|()| self.open_subflows(subflows, end));
                if let Err(error) = opened {
                    return self.session.fail(now, end, error);
                }
                if self.have_sent {
                    // The first HAVE may have gone to an end that called another address, and was
                    // lost.
                    end.tell(now, &self.request);
                    self.offer_idle(now, end);
                }
            }
            Event::Filled(number, buffer) => return self.filled(now, end, number, buffer),
            Event::Returned(buffer) => {
                self.count_main();
                self.count_back(0);
                self.idle.push(buffer);
            }
            Event::Complete(end) => self.complete(end),
            Event::Silent => self.be_silent(true),
            Event::Answering => self.be_silent(false),
            Event::Closed(reason) => return self.close(now, reason),
            Event::Wanted(_) | Event::Released(..) | Event::PeerHas { .. } | Event::Finished(_) => {
            }
        }
        ControlFlow::Continue(())
    }

    fn on_io_error(&mut self, now: Instant, (): (), error: Error, end: &mut Endpoint) -> Flow {
        self.session.fail(now, end, error)
    }

    fn path_limit(&mut self, bytes: u32) {
        self.session.path_limit(bytes);
    }

    fn on_oversize(
        &mut self,
        now: Instant,
        (): (),
        refused: &Oversize,
        end: &mut Endpoint,
    ) -> Flow {
        self.session.on_oversize(now, end, refused)
    }

    fn poll_disk(&mut self) -> Option<DiskEvent> {
        self.disk_event.take()
    }
}
