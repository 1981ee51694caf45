//! The sender's client: buffers from the disk go to the machine when they are wanted, and back
//! when they are accepted.

mod subflows;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Event, printable};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Policy, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, LEFT_OUT, Verdict};

use crate::cancel::Cancel;
use crate::checksums::content_hashes::ContentHashes;
use crate::checksums::expectation::Expectation;
use crate::config::{capacity, config};
use crate::disk::file_list::FileList;
use crate::disk::have_list::{HaveDecoder, HaveList};
use crate::disk::layout::Layout;
use crate::disk::left_out::Absent;
use crate::disk::manifest::Manifest;
use crate::disk::reading::{Reading, Readings};
use crate::disk::source::SourceReader;
use crate::disk::threads::{Reader, SourceThread};
use crate::error::{Error, Warning};
use crate::error_kind::REFUSED_WORD;
use crate::net::connections::Oversize;
use crate::net::entropy::entropy;
use crate::net::establish::{self, Establish};
use crate::net::event_loop::{self, Application, Feed};
use crate::net::poller::Waker;
use crate::net::trace_file::{DiskEvent, DiskSide};
use crate::observer::Observer;
use crate::options::{OnFile, Options, Source};
use crate::path_cache;
use crate::progress::{FilePosition, Summary};
use crate::settings::Resume;
use crate::ticket::Rendezvous;
use crate::transfer::announcement::Announcement;
use crate::transfer::buffer_pool::BufferPool;
use crate::transfer::handle::Transfer;
use crate::transfer::limited_by::{Facts, View, conclude};
use crate::transfer::list::REQUEST;
use crate::transfer::preview::answer;
use crate::transfer::session::{ProgressSoFar, TransferSession, buffers};
use crate::transfer::subflows::{self as all_subflows, SubflowFactory, from_client_string};
use crate::transfer::summary::{SessionFacts, summary};

/// Sends `source`; blocks until the receiver's verdict is here.
pub fn send(
    source: Source,
    rendezvous: &Rendezvous,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    send_via(source, Establish::Meet(rendezvous), options, observer, cancel)
}

/// [`send`], this way or another.
pub(crate) fn send_via(
    source: Source,
    way: Establish<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let lenient = !options.settings.atomic && options.wire == Wire::Sealed;
    let list = FileList::new(source, lenient, cancel)?;
    list.warnings().iter().for_each(|warning| observer.warn(warning));
    send_list(&list, way, options, observer, cancel)
}

/// Sends the entries of a list. Its warnings go elsewhere.
pub(crate) fn send_list(
    list: &FileList,
    way: Establish<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let transfer_bytes = list.total_bytes();
    let config = announcing(way, options, list);
    let mut own_reader = Some(open_reader(list, &config, options)?);
    let mut stock = Some(buffers(options.buffers.count, capacity(&config), 0)?);
    let (mut host, mut peer) = establish::meet(way, options, &config, observer, cancel)?;
    let (mut app, sent) = loop {
        let session = TransferSession::new(&mut *observer, cancel, &config)
            .with_accept_timeout(way.listens(), options.network.wait);
        let session = session.with_control(options.control.as_ref());
        let stock = match stock.take() {
            Some(stock) => stock,
            None => buffers(options.buffers.count, capacity(&config), 0)?,
        };
        let reader = match own_reader.take() {
            Some(reader) => reader,
            None => open_reader(list, &config, options)?,
        };
        let mut app = Sending::new(session, reader, stock, transfer_bytes, host.poller.waker());
        app.pool.allow_in_all(config.max_outstanding);
        (app.resumes, app.policy) = (options.settings.resume != Resume::Never, config.policy);
        app.subflows = subflows::SendSubflows::may(SubflowFactory::of(options, way.meets(), &host));
        (app.offers, app.files) = (Some(list), list.files_in_all());
        let sent =
            event_loop::run(&mut peer, &mut app, &mut host)?.map_err(|error| peer.name(error));
        // A peer that only asked for the list, or refused it, has received nothing: the next peer
        // is served.
        let now = host.clock.now();
        let refused = sent.as_ref().err().and_then(refusal).filter(|_| app.can_start_over(list));
        let ticketed = matches!(way, Establish::Meet(Rendezvous::Listen));
        if (app.answered || (ticketed && refused.is_some()))
            && !app.session.is_cancelled()
            && let Some(next) = peer.again(now, entropy()?)
        {
            (own_reader, peer) = (app.reader.take(), next);
            drop(app);
            match refused {
                Some(why) => observer.refused(why),
                None => observer.list_fetched(),
            }
            continue;
        }
        break (app, sent);
    };
    let cut = sent.as_ref().err().and_then(|_| host.finish_trace(None));
    cut.iter().for_each(|warning| app.session.observer.warn(warning));
    let late = list.take_late();
    late.warnings.iter().for_each(|warning| app.session.observer.warn(warning));
    if sent.is_err() && list.is_stream() && app.session.opened.is_some() {
        app.session.observer.warn(&Warning::StreamLost);
    }
    let sent = sent?;
    let verdict = sent.verdict.as_ref();
    let judge = |verdict| judged(verdict, late.readings, options, &mut *app.session.observer);
    let (unread, unstored) = (late.withdrawn, verdict.map_or(0, judge));
    let mut stats = peer.view().map(|end| end.stats(sent.at)).unwrap_or_default();
    remember(options, peer.view(), &stats);
    let subflows = all_subflows::sum(&mut stats, app.close_subflows());
    // The view that the receiver got, if its wire carries views.
    let view = View::of(stats.limit).or_else(|| Some(app.view(sent.at, &stats)));
    let facts = sent.verdict.as_ref().and_then(|verdict| Facts::parse(&verdict.reason));
    Ok(summary(SessionFacts {
        stats,
        at: sent.at,
        bytes: sent.end.map_or(0, |end| end.bytes),
        kept: app.kept,
        files: (list.files() + late.files).saturating_sub(unread + unstored),
        skipped: list.skipped() + late.skipped + unread + unstored,
        unexpected: late.unexpected,
        verified: sent.verdict.is_some_and(|verdict| verdict.verified),
        digest: sent.end.map_or([0; 32], |end| end.digest),
        limited_by: conclude(&mut host, &mut *app.session.observer, sent.at, view, facts),
        streams: subflows,
    }))
}

/// Reports the files that the receiver has stored, and those that it left out. Returns the number
/// of the latter.
fn judged(
    verdict: &Verdict,
    readings: Readings,
    options: &Options,
    observer: &mut dyn Observer,
) -> u64 {
    let left_out = verdict.left_out();
    if let Some((count, text)) = left_out {
        let text = format!("{count}{LEFT_OUT}{}", printable(Absent::names(text)));
        observer.warn(&Warning::TheyLeftOut(text));
    }
    if !report_arrived(options.on_file.as_ref(), readings, verdict) {
        observer.warn(&Warning::ArrivedUnknown);
    }
    left_out.map_or(0, |(count, _)| count)
}

/// Reports the files that the receiver has under their names. False if it left out more than its
/// verdict can list, so that none can be reported.
fn report_arrived(on_file: Option<&OnFile>, readings: Readings, verdict: &Verdict) -> bool {
    let Some(on_file) = on_file.filter(|_| verdict.verified) else { return true };
    let Some(absent) = Absent::of(verdict) else { return false };
    let written = readings.each(|Reading { number, name, bytes, digests }| {
        if !absent.has(number) {
            on_file.notify(&name, bytes, digests);
        }
    });
    written.is_ok()
}

impl Transfer {
    /// Begins what [`send`](fn@crate::send) does on a thread of its own; [`Error::Thread`] if there
    /// can be none.
    pub fn send(
        source: Source,
        rendezvous: Rendezvous,
        options: Options,
        cancel: Cancel,
    ) -> Result<Self, Error> {
        Self::spawn(cancel, move |observer, cancel| {
            send(source, &rendezvous, &options, observer, cancel)
        })
    }
}

/// Saves the path's rate and round trip, if that is allowed.
fn remember(options: &Options, end: Option<&Endpoint>, stats: &Stats) {
    if let Some(to) = end.and_then(Endpoint::peer).filter(|_| remembers(options)) {
        path_cache::keep(to.ip(), stats.learned);
    }
}

fn remembers(options: &Options) -> bool {
    options.settings.path_cache && options.wire == Wire::Sealed
}

/// Announces what is known of the files in the client string, if that has no other text; and gives
/// the machine the saved rate of the path.
fn announcing(way: Establish<'_>, options: &Options, list: &FileList) -> Config {
    let mut config = config(options, Role::Sender, list.total_bytes());
    if let (None, Wire::Sealed) = (&options.network.client, options.wire) {
        let files = list.total_bytes().and_then(|_| list.files_in_all());
        let put = options.server_request.put;
        let subflows =
            Some(all_subflows::asked(options, way.meets())).filter(|subflows| *subflows > 1);
        let subflows = subflows.map(u64::from);
        let announcement = Announcement { data_bytes: list.data_bytes(), files, put, subflows };
        config.client = announcement.to_client_string().unwrap_or(config.client);
    }
    if remembers(options) {
        config.remembered = path_cache::recall();
    }
    config
}

/// The reason for which a receiver refused the files, if that ended the transfer.
fn refusal(error: &Error) -> Option<&str> {
    match error {
        Error::Ended(CloseReason::PeerQuit(words)) => words.strip_prefix(REFUSED_WORD),
        _ => None,
    }
}

fn open_reader(list: &FileList, config: &Config, options: &Options) -> Result<SourceReader, Error> {
    let create = |path: &Path| Manifest::create(path, &options.checksums, None);
    let manifest = options.manifest.as_deref().map(create).transpose()?;
    let reports_files = options.on_file.is_some() && config.wire == Wire::Sealed;
    let needed = options.checksums.needed(manifest.is_some());
    let hashes = match list.inner.range {
        None => ContentHashes::start(needed)?,
        Some(_) => None,
    };
    let expected = options.checksums.expected.clone();
    let expected = expected.map(|list| Expectation::new(list, None));
    let reader = reader(list, config)?.listing(manifest, reports_files).hashing(hashes, expected);
    Ok(reader.with_extras(options.settings.extras).naming(options.name_log.clone()))
}

fn reader(list: &FileList, config: &Config) -> Result<SourceReader, Error> {
    let layout = Layout::of(config)?;
    match config.wire {
        Wire::Sealed => SourceReader::sealed(list.clone(), layout),
        Wire::Rfc998 => SourceReader::plain(list.clone(), layout),
    }
}

/// The result of a transfer at its sender.
pub(crate) struct SendResult {
    pub(crate) end: Option<End>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) at: Instant,
}

/// The client of a sending machine.
pub(crate) struct Sending<'a, R> {
    pub(crate) session: TransferSession<'a>,
    /// Until the connection opens, and with it the size of buffers is known.
    reader: Option<R>,
    disk: Option<SourceThread>,
    /// All the buffers there are, until the reader has them.
    stock: Vec<Buffer>,
    /// How many there are, from then on.
    pub(crate) pool: BufferPool,
    waker: Waker,
    total: Option<u64>,
    /// File bytes in each buffer that the machine holds, by number from `first_held`.
    held: VecDeque<Option<BufferedBytes>>,
    first_held: u64,
    accepted: BufferedBytes,
    end: Option<End>,
    verdict: Option<Verdict>,
    disk_event: Option<DiskEvent>,
    /// The size of buffers, until reading begins.
    layout: Option<Layout>,
    /// The newest buffer that is wanted.
    wanted: Option<BufferNumber>,
    /// HAVE, as far as it has arrived.
    have_decoder: HaveDecoder,
    had: Arc<HaveList>,
    /// Whether that matters.
    resumes: bool,
    /// File bytes that were passed over.
    kept: u64,
    /// The file that the machine was given last.
    at: FilePosition,
    policy: Policy,
    /// When the receiver gets the next view of this end's limits.
    next_view: Instant,
    /// Files in all.
    files: Option<u64>,
    /// The list for a receiver that asks for it.
    offers: Option<&'a FileList>,
    /// One has asked.
    answered: bool,
    /// The receiver sends a request first, and nothing is sent before it was performed.
    awaits: bool,
    /// The request, with HAVE.
    request: Option<Vec<u8>>,
    subflows: subflows::SendSubflows,
}

/// File bytes in buffers, and those of them that need not be sent: the receiver has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BufferedBytes {
    bytes: u64,
    kept: u64,
}

/// The interval at which this end looks for its limit.
const VIEW: Duration = Duration::from_millis(50);
const TOO_MUCH: &str = "the receiver's list of what it has is invalid";

type Flow = ControlFlow<Result<SendResult, Error>>;

impl<'a, R: Reader> Sending<'a, R> {
    pub(crate) fn new(
        session: TransferSession<'a>,
        reader: R,
        stock: Vec<Buffer>,
        total: Option<u64>,
        waker: Waker,
    ) -> Self {
        Self::make(session, Some(reader), stock, total, waker)
    }

    fn make(
        session: TransferSession<'a>,
        reader: Option<R>,
        stock: Vec<Buffer>,
        total: Option<u64>,
        waker: Waker,
    ) -> Self {
        Self {
            session,
            reader,
            disk: None,
            pool: BufferPool::new(&stock),
            stock,
            waker,
            total,
            held: VecDeque::new(),
            first_held: 1,
            accepted: BufferedBytes::default(),
            end: None,
            verdict: None,
            disk_event: None,
            layout: None,
            wanted: None,
            have_decoder: HaveDecoder::default(),
            had: Arc::default(),
            resumes: true,
            kept: 0,
            at: FilePosition::default(),
            policy: Policy::Fair { ceiling: None },
            next_view: Instant::EPOCH,
            files: None,
            offers: None,
            answered: false,
            awaits: false,
            request: None,
            subflows: subflows::SendSubflows::None,
        }
    }

    /// A sender whose receiver requests the files.
    pub(crate) fn on_request(
        session: TransferSession<'a>,
        waker: Waker,
        subflows: Option<Arc<SubflowFactory>>,
    ) -> Self {
        let new = Self::make(session, None, Vec::new(), None, waker);
        Self { awaits: true, subflows: subflows::SendSubflows::may(subflows), ..new }
    }

    /// Whether the receiver has granted a buffer.
    pub(crate) fn has_grant(&self) -> bool {
        self.wanted.is_some()
    }

    /// The receiver's request, with HAVE, once.
    pub(crate) fn take_request(&mut self) -> Option<Vec<u8>> {
        self.request.take()
    }

    /// Answers the request of a receiver with this HAVE and so many subflows.
    pub(crate) fn answer_with(
        &mut self,
        reader: R,
        mut stock: Vec<Buffer>,
        (total, files): (Option<u64>, Option<u64>),
        (had, subflows): (&[u8], u64),
        end: &mut Endpoint,
    ) -> Result<(), Error> {
        self.with_subflows_late(subflows, end)?;
        self.pool.begin_unvalidated(&mut stock);
        (self.awaits, self.reader, self.stock) = (false, Some(reader), stock);
        (self.total, self.files) = (total, files);
        self.begin_for(had)
    }

    /// Whether all can be read again: a stream cannot, once it has begun.
    fn can_start_over(&self, list: &FileList) -> bool {
        self.disk.is_none() || !list.is_stream()
    }

    /// A connection is open: everything starts over, once it is known what the receiver has.
    fn open(&mut self, layout: Layout) -> Result<(), Error> {
        (self.held, self.first_held, self.accepted) =
            (VecDeque::new(), 1, BufferedBytes::default());
        (self.end, self.verdict, self.wanted, self.kept) = (None, None, None, 0);
        self.at = FilePosition::default();
        self.disk.iter_mut().for_each(SourceThread::halt);
        (self.layout, self.have_decoder) = (Some(layout), HaveDecoder::default());
        match self.session.is_verifiable() {
            true => Ok(()),
            false => self.begin(),
        }
    }

    /// A piece of HAVE has arrived.
    fn receive_have(&mut self, place: u32, piece: Vec<u8>, last: bool) -> Result<(), Error> {
        let have =
            self.have_decoder.add(place, piece, last).map_err(|()| Error::Content(TOO_MUCH))?;
        let Some(have) = have else { return Ok(()) };
        if self.awaits {
            self.request = Some(have);
            return Ok(());
        }
        self.begin_for(&have)
    }

    /// Begins, for a receiver that has this already.
    fn begin_for(&mut self, have: &[u8]) -> Result<(), Error> {
        if self.resumes {
            self.had = Arc::new(HaveList::parse(have).ok_or(Error::Content(TOO_MUCH))?);
        }
        self.begin()
    }

    fn begin(&mut self) -> Result<(), Error> {
        let Some(layout) = self.layout.take() else { return Ok(()) };
        let had = std::mem::take(&mut self.had);
        if self.answered {
            return self.answer(layout);
        }
        if let Some(disk) = &mut self.disk {
            disk.restart(layout, had);
        } else if let Some(mut reader) = self.reader.take() {
            // The other end may want smaller buffers than were proposed.
            reader.restart(layout, &had)?;
            let waker = self.waker.clone();
            let (stock, room) = (std::mem::take(&mut self.stock), self.pool.room());
            let thread = SourceThread::spawn(reader, layout, stock, room, move || waker.wake())?;
            self.disk = Some(thread);
        }
        if let (Some(disk), Some(wanted)) = (&mut self.disk, self.wanted) {
            disk.want(wanted);
        }
        Ok(())
    }

    /// The view so far.
    fn view(&self, now: Instant, stats: &Stats) -> View {
        let elapsed = now.since(stats.opened_at.unwrap_or(now));
        let reading = self.disk.as_ref().map(SourceThread::wanted_processor).unwrap_or_default();
        View::new(stats, self.policy, now, self.session.cpu_share(elapsed), reading)
    }

    /// Sends the list in place of the files, whose reader stays as it is.
    fn answer(&mut self, layout: Layout) -> Result<(), Error> {
        let Some(list) = self.offers.filter(|_| self.disk.is_none()) else {
            return Err(Error::Restarted("the receiver that asked for the list was restarted"));
        };
        let reader = SourceReader::sealed(answer(list)?, layout)?;
        let (stock, room) = (std::mem::take(&mut self.stock), self.pool.room());
        let waker = self.waker.clone();
        let mut disk = SourceThread::spawn(reader, layout, stock, room, move || waker.wake())?;
        if let Some(wanted) = self.wanted {
            disk.want(wanted);
        }
        self.disk = Some(disk);
        Ok(())
    }

    /// Everything that was read and is wanted goes to the machine.
    fn supply(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        if self.distribution() {
            return ControlFlow::Continue(());
        }
        let Some(disk) = &mut self.disk else { return ControlFlow::Continue(()) };
        loop {
            match disk.poll() {
                Ok(Some(supply)) => {
                    self.kept += supply.kept;
                    self.at = supply.at;
                    self.held
                        .push_back(Some(BufferedBytes { bytes: supply.bytes, kept: supply.kept }));
                    end.supply(now, supply.number, supply.buffer, supply.end.is_some());
                    if let Some(last) = supply.end {
                        self.end = Some(last);
                        end.end(now, last);
                    }
                }
                Ok(None) => break,
                Err(error) => return self.session.fail(now, end, error),
            }
        }
        self.pool.make(now, end).into_iter().for_each(|buffer| disk.release(buffer));
        ControlFlow::Continue(())
    }

    /// Notes when the transfer begins or stops waiting for the disk.
    fn watch_disk(&mut self, now: Instant) {
        let Some(disk) = &mut self.disk else { return };
        if let Some(waiting) = disk.watch(now) {
            let event = DiskEvent { side: DiskSide::Read, waiting, buffers: disk.ahead() };
            self.disk_event = Some(event);
        }
    }

    fn release(&mut self, number: BufferNumber, buffer: Buffer) {
        let index = number.0.checked_sub(self.first_held).and_then(|at| usize::try_from(at).ok());
        if let Some(held) = index.and_then(|at| self.held.get_mut(at)).and_then(Option::take) {
            self.accepted.bytes += held.bytes;
            self.accepted.kept += held.kept;
        }
        while let Some(None) = self.held.front() {
            self.held.pop_front();
            self.first_held += 1;
        }
        if let Some(disk) = &mut self.disk {
            disk.release(buffer);
        }
    }

    fn closed(&mut self, now: Instant, reason: CloseReason) -> Result<SendResult, Error> {
        let verdict = self.verdict.take();
        let settled = reason == CloseReason::Finished || verdict.is_some();
        if !settled || self.session.has_failed() {
            return Err(self.session.closed(reason));
        }
        match verdict {
            Some(verdict) if !verdict.verified => Err(Error::NotVerified(verdict.reason)),
            verdict => Ok(SendResult { end: self.end, verdict, at: now }),
        }
    }
}

impl<R: Reader> Application for Sending<'_, R> {
    type Key = ();
    type Outcome = Result<SendResult, Error>;

    /// The disk may have done something at any time.
    fn on_tick(&mut self, _: Instant) -> ControlFlow<Self::Outcome, Feed> {
        ControlFlow::Continue(Feed::All)
    }

    fn on_ready(&mut self, now: Instant, (): (), end: &mut Endpoint) -> Flow {
        self.session.steer(now, end);
        self.policy = end.policy();
        let all_sent = self.end.is_some_and(|end| self.accepted.bytes == end.bytes)
            && self.held.is_empty()
            && self.session.is_verifiable();
        self.session.check_with(now, end, || match all_sent {
            true => Error::Unconfirmed,
            false => Error::Interrupted,
        })?;
        if !self.session.has_failed() {
            self.turn_subflows(now, end)?;
            self.supply(now, end)?;
            self.watch_disk(now);
        }
        if now >= self.next_view && self.session.opened.is_some() {
            self.next_view = now + VIEW;
            end.say_limit(self.view(now, &end.stats(now)) as u8);
        }
        let files = self.files.filter(|_| !self.answered);
        let (BufferedBytes { bytes, kept }, total, at) = (self.accepted, self.total, &self.at);
        self.session.report(now, end, &ProgressSoFar { bytes, kept, total, at, files });
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> Flow {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                self.pool.open((parameters.buffer_bytes, parameters.max_outstanding));
                let asks = parameters.client == REQUEST && self.session.is_verifiable();
                self.answered |= asks && self.offers.is_some() && self.disk.is_none();
                let opened = self
                    .session
                    .open(now, end, peer, &parameters, image_bytes)
                    .and_then(|layout| {
                        self.with_subflows(layout, from_client_string(&parameters.client), end)
                    })
                    .and_then(|layout| self.open(layout));
                if let Err(error) = opened {
                    return self.session.fail(now, end, error);
                }
            }
            Event::PeerHas { place, bytes, last } => {
                if let Err(error) = self.receive_have(place, bytes, last) {
                    return self.session.fail(now, end, error);
                }
            }
            Event::Wanted(number) if self.want_dealt(number) => return self.deal(now, end),
            Event::Wanted(number) => {
                self.wanted = Some(number);
                if let Some(disk) = &mut self.disk {
                    disk.want(number);
                }
                return self.supply(now, end);
            }
            Event::Released(number, buffer) => self.released(number, buffer),
            Event::Finished(verdict) => self.verdict = verdict,
            Event::Silent => self.be_silent(true),
            Event::Answering => self.be_silent(false),
            Event::Closed(reason) => return ControlFlow::Break(self.closed(now, reason)),
            Event::Filled(..) | Event::Returned(_) | Event::Complete(_) => {}
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
