//! The common part of sending and receiving: the observer, cancellation, failure, and the end.
//!
//! A failure on this side is first sent to the other one (QUIT). The session ends when that is
//! acknowledged or [`PATIENCE`] is over; on `rfc998` the death timer (RFC 998 §5.3.2).

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use netblt_proto::api::{CloseReason, printable};
use netblt_proto::buffer::{Buffer, OutOfMemory};
use netblt_proto::config::{Config, FecPolicy, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use crate::cancel::Cancel;
use crate::control::Control;
use crate::cpu_usage::CpuUsage;
use crate::disk::layout::Layout;
use crate::error::{Error, Warning, in_units, system_message};
use crate::error_kind::REFUSED_WORD;
use crate::net::connections::Oversize;
use crate::observer::Observer;
use crate::progress::{FilePosition, Progress};
use crate::request_error::RequestError;
use crate::transfer::buffer_pool::SPARE_BYTES;
use crate::transfer::control_watcher::ControlWatcher;

/// How long the other end gets for our closing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long packets may be too large for this machine's interface where they cannot be smaller
/// (`rfc998`): it may be another one again.
const REFUSED: Duration = Duration::from_secs(10);
/// After this long without an answer to an opening the user is warned. By then short delays are
/// over (docs/protocol §4.1).
const UNANSWERED: Duration = Duration::from_secs(4);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// All the buffers of a transfer, made before the other end knows of it. Where memory is limited,
/// it fails now. `beside` other transfers run in this process, whose state grows, too.
pub(crate) fn buffers(count: u32, bytes: usize, beside: usize) -> Result<Vec<Buffer>, Error> {
    let none = |_: OutOfMemory| Error::Memory { count, bytes };
    let _spare = Buffer::try_new(SPARE_BYTES.saturating_mul(beside + 1)).map_err(none)?;
    (0..count).map(|_| Buffer::try_new(bytes).map_err(none)).collect()
}

/// How far it is: file bytes, and files.
pub(crate) struct ProgressSoFar<'a> {
    pub(crate) bytes: u64,
    /// Those of them that the receiver had before.
    pub(crate) kept: u64,
    pub(crate) total: Option<u64>,
    pub(crate) at: &'a FilePosition,
    pub(crate) files: Option<u64>,
}

impl ProgressSoFar<'static> {
    /// The progress of a transfer without files.
    pub(crate) fn bytes(bytes: u64, total: Option<u64>) -> Self {
        const NOWHERE: &FilePosition = &FilePosition { file: 0, name: Vec::new() };
        Self { bytes, kept: 0, total, at: NOWHERE, files: None }
    }
}

/// A running transfer or test, at either end.
pub(crate) struct TransferSession<'a> {
    pub(crate) observer: Box<dyn Observer + 'a>,
    cancel: Cancel,
    control: ControlWatcher,
    paused: bool,
    wire: Wire,
    /// How long to wait for a peer, and since when this side waits.
    wait: Option<Duration>,
    alone: Option<Instant>,
    /// When the connection opened that is in force; `None` before the first.
    pub(crate) opened: Option<Instant>,
    /// The failure of this end, and until when the other end may acknowledge it.
    failed: Option<(Error, Instant)>,
    patience: Duration,
    next_progress: Instant,
    limit_warned: bool,
    /// For repair packets, or there will be none.
    prepared: bool,
    unanswered_warned: bool,
    /// The first look.
    began: Option<Instant>,
    packet_bytes: u32,
    /// Since when this machine refuses to send packets, and what had arrived before.
    refused: Option<(Instant, u64)>,
    processor: CpuUsage,
}

impl<'a> TransferSession<'a> {
    pub(crate) fn new(observer: impl Observer + 'a, cancel: &Cancel, config: &Config) -> Self {
        Self {
            observer: Box::new(observer),
            cancel: cancel.clone(),
            control: ControlWatcher::default(),
            paused: false,
            wire: config.wire,
            wait: None,
            alone: None,
            opened: None,
            failed: None,
            patience: match config.wire {
                Wire::Sealed => PATIENCE,
                Wire::Rfc998 => config.death_timer,
            },
            next_progress: Instant::EPOCH,
            limit_warned: false,
            prepared: config.repair == FecPolicy::Never || config.wire == Wire::Rfc998,
            unanswered_warned: false,
            began: None,
            packet_bytes: config.datagram_bytes + config.overhead_bytes,
            refused: None,
            processor: CpuUsage::start(),
        }
    }

    /// Bounds the wait for a peer, if this side listens.
    pub(crate) fn with_accept_timeout(mut self, listens: bool, wait: Option<Duration>) -> Self {
        self.wait = wait.filter(|_| listens);
        self
    }

    /// Lets `control` change it on the way.
    pub(crate) fn with_control(mut self, control: Option<&Control>) -> Self {
        self.control = ControlWatcher::new(control.cloned());
        self
    }

    /// Passes changes on to the machine.
    pub(crate) fn steer(&mut self, now: Instant, end: &mut Endpoint) {
        let Some(steering) = self.control.changed() else { return };
        self.paused = steering.paused;
        if !end.steer(now, steering) {
            self.control.refuse(&steering);
        }
    }

    /// Whether it is time to stop: cancelled, or failed and QUIT was sent often enough.
    pub(crate) fn check<T>(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
    ) -> ControlFlow<Result<T, Error>> {
        self.check_with(now, end, || Error::Interrupted)
    }

    /// The same, with the error that a wish to stop leads to just now.
    pub(crate) fn check_with<T>(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        stopped: impl FnOnce() -> Error,
    ) -> ControlFlow<Result<T, Error>> {
        if self.failed.is_none() && self.cancel.is_cancelled() {
            self.fail(now, end, stopped())?;
        }
        if let (Some(wait), None) = (self.wait, self.opened)
            && *self.alone.get_or_insert(now) + wait <= now
        {
            self.fail(now, end, Error::Alone(wait))?;
        }
        let aborting = self.cancel.is_aborting();
        match self.failed.take_if(|(_, until)| aborting || *until <= now) {
            Some((error, _)) => ControlFlow::Break(Err(error)),
            None => ControlFlow::Continue(()),
        }
    }

    /// Whether the user wants it to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Whether it is paused here.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the user waits for nothing any more.
    pub(crate) fn is_aborting(&self) -> bool {
        self.cancel.is_aborting()
    }

    /// Whether the wire proves its content.
    pub(crate) fn is_verifiable(&self) -> bool {
        self.wire == Wire::Sealed
    }

    /// Whether a failure is being sent to the other end, and nothing else matters any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// A failure on this side: sends it to the other end, if there is one.
    pub(crate) fn fail<T>(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        error: Error,
    ) -> ControlFlow<Result<T, Error>> {
        if self.opened.is_none() {
            // The other end may have it open already.
            end.quit(now, &words_for_the_peer(&error));
            return ControlFlow::Break(Err(error));
        }
        if self.failed.is_none() {
            end.quit(now, &words_for_the_peer(&error));
            self.failed = Some((error, now + self.patience));
        }
        ControlFlow::Continue(())
    }

    /// The connection has opened, for the first time or again because the peer was restarted.
    /// Returns the layout of its buffers.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        peer: SocketAddr,
        parameters: &Parameters,
        image_bytes: u32,
    ) -> Result<Layout, Error> {
        if self.opened.replace(now).is_some() {
            self.observer.restarted();
        } else {
            self.observer.connected(&peer.to_string());
        }
        self.next_progress = now;
        self.processor = CpuUsage::start();
        if let Some((error, _)) = &self.failed {
            // The peer that got the failure is gone.
            end.quit(now, &words_for_the_peer(error));
        }
        let buffer_bytes = parameters.buffer_bytes;
        match self.wire {
            Wire::Sealed => Layout::sealed(buffer_bytes, image_bytes.saturating_sub(buffer_bytes)),
            Wire::Rfc998 => Ok(Layout::plain(buffer_bytes)),
        }
    }

    /// The connection is closed and the transfer is not complete: why.
    pub(crate) fn closed(&mut self, reason: CloseReason) -> Error {
        match self.failed.take() {
            Some((error, _)) => error,
            // The dialer knows the addresses that were tried.
            None if self.opened.is_none() => {
                Error::Connect { peer: String::new(), wire: self.wire, reason }
            }
            None => Error::Ended(reason),
        }
    }

    /// Reports progress if it is time to.
    pub(crate) fn report(&mut self, now: Instant, end: &Endpoint, far: &ProgressSoFar<'_>) {
        let Some(opened) = self.opened else { return self.watch_opening(now, end) };
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + PROGRESS;
        let elapsed = now.since(opened);
        let ProgressSoFar { bytes, kept, total, at, files } = *far;
        let FilePosition { file, name } = at;
        let (file, name, paused) = (*file, name.clone(), self.paused);
        let stats = end.stats(now);
        let progress = Progress { bytes, kept, total, file, files, name, elapsed, paused, stats };
        self.observer.progress(&progress);
        self.prepare_repairs(&progress.stats);
    }

    /// Once a packet was lost there will be repair packets, most likely at the end, where there is
    /// no time to prepare for them.
    fn prepare_repairs(&mut self, stats: &Stats) {
        if self.prepared || stats.data_packets_lost == 0 {
            return;
        }
        self.prepared = true;
        // If there is no thread for it, it is done when it must be.
        let _ = Builder::new().name("netblt-repair".to_owned()).spawn(FecPolicy::prepare);
    }

    /// Warns the user when a connecting end gets no answer.
    fn watch_opening(&mut self, now: Instant, end: &Endpoint) {
        let calls = self.wire == Wire::Sealed && end.peer().is_some();
        // The clock of a branch began with its stem.
        let began = *self.began.get_or_insert(now);
        if !calls || self.unanswered_warned || now < began + UNANSWERED {
            return;
        }
        self.unanswered_warned = true;
        // A peer that asks to wait has answered.
        if end.stats(now).datagrams_received == 0 {
            self.observer.warn(&Warning::NoAnswerYet);
        }
    }

    /// Reports the last progress there will be.
    pub(crate) fn report_last(&mut self, now: Instant, end: &Endpoint, far: &ProgressSoFar<'_>) {
        self.next_progress = now;
        self.report(now, end, far);
    }

    /// The path is reported to take IP packets of at most this many bytes.
    pub(crate) fn path_limit(&mut self, bytes: u32) {
        // On `sealed` packets follow the path. Anyone can forge such a message, so it ends
        // nothing; and about packets that are not sent it is nonsense.
        if self.wire == Wire::Sealed {
            return;
        }
        if self.limit_warned || bytes >= self.packet_bytes {
            return;
        }
        self.limit_warned = true;
        self.observer.warn(&Warning::PacketSize { bytes: self.packet_bytes, limit: bytes });
    }

    /// This machine refuses to send what cannot be smaller. On `rfc998` no packet ever becomes
    /// smaller, so it is an error if it lasts; on `sealed` all but the smallest do.
    pub(crate) fn on_oversize<T>(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        refused: &Oversize,
    ) -> ControlFlow<Result<T, Error>> {
        if self.wire == Wire::Sealed {
            return ControlFlow::Continue(());
        }
        let arrived = end.stats(now).image_bytes;
        let Oversize { bytes, limit, .. } = *refused;
        if self.refused.is_none() {
            self.observer.warn(&Warning::DatagramSize { bytes, limit });
        }
        match self.refused {
            Some((since, before)) if before == arrived => {
                if since + REFUSED <= now {
                    return self.fail(now, end, Error::DatagramSize { bytes, limit });
                }
            }
            _ => self.refused = Some((now, arrived)),
        }
        ControlFlow::Continue(())
    }

    /// For which share of `elapsed`, the time since it opened, this thread wanted a processor.
    pub(crate) fn cpu_share(&self, elapsed: Duration) -> f64 {
        self.processor.share(elapsed)
    }
}

/// The text about a failure for the other end. It does not show paths of this machine.
fn words_for_the_peer(error: &Error) -> String {
    match error {
        Error::Denied { what, why } => RequestError { what: *what, why: why.clone() }.words(),
        error if is_refusal(error) => format!("{REFUSED_WORD}{}", bare_words(error)),
        error => bare_words(error),
    }
}

/// Whether a receiver's error is about the files, and not about the transfer.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Exists(_)
            | Error::Name { .. }
            | Error::NoRoom { .. }
            | Error::OneName
            | Error::SeveralFiles
            | Error::TooMuch { .. }
    )
}

fn bare_words(error: &Error) -> String {
    match error {
        Error::NoRoom { needs, free, .. } => {
            let (needs, free) = (in_units(*needs), in_units(*free));
            format!("not enough space: {needs} needed, {free} free")
        }
        Error::Interrupted | Error::Unconfirmed => "interrupted".to_owned(),
        Error::Unfinished => "interrupted while files were being renamed into place: they are \
                              complete and verified, but perhaps not all renamed"
            .to_owned(),
        Error::File { path, what, source } => {
            format!("{}: {what}: {}", last_part(path), system_message(source))
        }
        Error::Exists(path) => format!("{} exists there already", last_part(path)),
        error => error.to_string(),
    }
}

fn last_part(path: &Path) -> String {
    printable(&path.file_name().unwrap_or_default().to_string_lossy())
}
