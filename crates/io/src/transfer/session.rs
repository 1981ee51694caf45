//! What sending and receiving have in common: the observer, cancellation, giving up, and the end.
//!
//! A failure on this side is told to the other one first (QUIT), and the session ends when that is
//! acknowledged or [`PATIENCE`] is over; on `rfc998` the death timer (RFC 998 §5.3.2).

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use netblt_proto::api::{Reason, printable};
use netblt_proto::buffer::{Buffer, OutOfMemory};
use netblt_proto::config::{Config, Repair, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::disk::layout::Layout;
use crate::error::{Error, Warning, in_units, said};
use crate::kind::REFUSED_WORD;
use crate::net::connections::Oversize;
use crate::observer::Observer;
use crate::options::Control;
use crate::processor::Processor;
use crate::progress::{At, Progress};
use crate::transfer::growth::SPARE_BYTES;
use crate::transfer::helm::Helm;

/// How long the other end is given to hear that we stop.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long packets may be too large for this machine's interface where they cannot be smaller
/// (`rfc998`): it may be another one again.
const REFUSED: Duration = Duration::from_secs(10);
/// After so long without an answer to an opening the user is told: by then short ones have left
/// (docs/protocol.md §4.1).
const UNANSWERED: Duration = Duration::from_secs(4);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// All the buffers of a transfer, made before anybody is told of it: where memory is limited, the
/// user hears that now. `beside` so many other transfers in this process, whose books grow, too.
pub(crate) fn buffers(count: u32, bytes: usize, beside: usize) -> Result<Vec<Buffer>, Error> {
    let none = |_: OutOfMemory| Error::Memory { count, bytes };
    let _spare = Buffer::try_new(SPARE_BYTES.saturating_mul(beside + 1)).map_err(none)?;
    (0..count).map(|_| Buffer::try_new(bytes).map_err(none)).collect()
}

/// How far it is: file bytes, and files.
pub(crate) struct HowFar<'a> {
    pub(crate) bytes: u64,
    /// Those of them that the receiver had already.
    pub(crate) kept: u64,
    pub(crate) total: Option<u64>,
    pub(crate) at: &'a At,
    pub(crate) files: Option<u64>,
}

impl HowFar<'static> {
    /// Of what has no files.
    pub(crate) fn bytes(bytes: u64, total: Option<u64>) -> Self {
        const NOWHERE: &At = &At { file: 0, name: Vec::new() };
        Self { bytes, kept: 0, total, at: NOWHERE, files: None }
    }
}

/// A transfer or test under way, whichever end of it this is.
pub(crate) struct Session<'a> {
    pub(crate) observer: Box<dyn Observer + 'a>,
    cancel: Cancel,
    helm: Helm,
    paused: bool,
    wire: Wire,
    /// How long nobody may come, and since when nobody has.
    wait: Option<Duration>,
    alone: Option<Instant>,
    /// When the connection opened that is in force; `None` before the first.
    pub(crate) opened: Option<Instant>,
    /// What failed here, and until when the other end may take to acknowledge that.
    failed: Option<(Error, Instant)>,
    patience: Duration,
    next_progress: Instant,
    limit_told: bool,
    /// For repair packets, or there will be none.
    prepared: bool,
    unanswered_told: bool,
    /// When it was looked at first.
    began: Option<Instant>,
    packet_bytes: u32,
    /// Since when this machine refuses to send packets, and what had arrived before.
    refused: Option<(Instant, u64)>,
    processor: Processor,
}

impl<'a> Session<'a> {
    pub(crate) fn new(observer: impl Observer + 'a, cancel: &Cancel, config: &Config) -> Self {
        Self {
            observer: Box::new(observer),
            cancel: cancel.clone(),
            helm: Helm::default(),
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
            limit_told: false,
            prepared: config.repair == Repair::Never || config.wire == Wire::Rfc998,
            unanswered_told: false,
            began: None,
            packet_bytes: config.datagram_bytes + config.overhead_bytes,
            refused: None,
            processor: Processor::start(),
        }
    }

    /// Bounds the time in which nobody comes, if this side listens.
    pub(crate) fn waits_for(mut self, listens: bool, wait: Option<Duration>) -> Self {
        self.wait = wait.filter(|_| listens);
        self
    }

    /// Lets `control` change it on the way.
    pub(crate) fn steered_by(mut self, control: Option<&Control>) -> Self {
        self.helm = Helm::new(control.cloned());
        self
    }

    /// What was changed goes to the machine.
    pub(crate) fn steer(&mut self, now: Instant, end: &mut Endpoint) {
        let Some(steering) = self.helm.turned() else { return };
        self.paused = steering.paused;
        if !end.steer(now, steering) {
            self.helm.refuse(&steering);
        }
    }

    /// Whether it is time to stop: cancelled, or failed and told often enough.
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
        let hurried = self.cancel.is_hurried();
        match self.failed.take_if(|(_, until)| hurried || *until <= now) {
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
    pub(crate) fn is_hurried(&self) -> bool {
        self.cancel.is_hurried()
    }

    /// Whether the wire can prove what it carries.
    pub(crate) fn proves(&self) -> bool {
        self.wire == Wire::Sealed
    }

    /// Whether a failure is being told to the other end, and nothing else matters any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Something failed here: the other end is told, if there is one.
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

    /// The connection opened: for the first time, or anew because the peer was started again.
    /// Answers how large its buffers are.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        (end, peer): (&mut Endpoint, SocketAddr),
        parameters: &Parameters,
        image_bytes: u32,
    ) -> Result<Layout, Error> {
        if self.opened.replace(now).is_some() {
            self.observer.restarted();
        } else {
            self.observer.connected(&peer.to_string());
        }
        self.next_progress = now;
        self.processor = Processor::start();
        if let Some((error, _)) = &self.failed {
            // The one that was told is gone.
            end.quit(now, &words_for_the_peer(error));
        }
        let buffer_bytes = parameters.buffer_bytes;
        match self.wire {
            Wire::Sealed => Layout::sealed(buffer_bytes, image_bytes.saturating_sub(buffer_bytes)),
            Wire::Rfc998 => Ok(Layout::plain(buffer_bytes)),
        }
    }

    /// The connection is closed and the transfer is not complete: why.
    pub(crate) fn closed(&mut self, reason: Reason) -> Error {
        match self.failed.take() {
            Some((error, _)) => error,
            // Where it was tried, who dialled knows.
            None if self.opened.is_none() => {
                Error::Connect { peer: String::new(), wire: self.wire, reason }
            }
            None => Error::Ended(reason),
        }
    }

    /// Reports progress if it is time to.
    pub(crate) fn report(&mut self, now: Instant, end: &Endpoint, far: &HowFar<'_>) {
        let Some(opened) = self.opened else { return self.watch_opening(now, end) };
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + PROGRESS;
        let elapsed = now.since(opened);
        let HowFar { bytes, kept, total, at, files } = *far;
        let At { file, name } = at;
        let (file, name, paused) = (*file, name.clone(), self.paused);
        let stats = end.stats(now);
        let progress = Progress { bytes, kept, total, file, files, name, elapsed, paused, stats };
        self.observer.progress(&progress);
        self.prepare_repairs(&progress.stats);
    }

    /// Once something was lost there will be repair packets, most likely at the end, where nobody
    /// has time to prepare for them.
    fn prepare_repairs(&mut self, stats: &Stats) {
        if self.prepared || stats.data_packets_lost == 0 {
            return;
        }
        self.prepared = true;
        // If there is no thread for it, it is done when it must be.
        let _ = Builder::new().name("netblt-repair".to_owned()).spawn(Repair::prepare);
    }

    /// An end that calls, and hears nothing, says so before its user wonders.
    fn watch_opening(&mut self, now: Instant, end: &Endpoint) {
        let calls = self.wire == Wire::Sealed && end.peer().is_some();
        // Of a branch the clock began with its stem.
        let began = *self.began.get_or_insert(now);
        if !calls || self.unanswered_told || now < began + UNANSWERED {
            return;
        }
        self.unanswered_told = true;
        // Who is told to wait, for somebody else is served, has had an answer.
        if end.stats(now).datagrams_received == 0 {
            self.observer.warn(&Warning::NoAnswerYet);
        }
    }

    /// Reports the last progress there will be.
    pub(crate) fn report_last(&mut self, now: Instant, end: &Endpoint, far: &HowFar<'_>) {
        self.next_progress = now;
        self.report(now, end, far);
    }

    /// The path takes IP packets of at most this many bytes, it is said.
    pub(crate) fn path_limit(&mut self, bytes: u32) {
        // On `sealed` packets follow the path. Anyone can forge such a message, so it ends
        // nothing; and about packets that are not sent it is nonsense.
        if self.wire == Wire::Sealed {
            return;
        }
        if self.limit_told || bytes >= self.packet_bytes {
            return;
        }
        self.limit_told = true;
        self.observer.warn(&Warning::PacketSize { bytes: self.packet_bytes, limit: bytes });
    }

    /// This machine refuses to send what cannot be smaller. On `rfc998` no packet ever becomes
    /// smaller, so it is an error if it lasts; on `sealed` all but the smallest do.
    pub(crate) fn oversize<T>(
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

/// What the other end is told about a failure on this one: paths of this machine are none of its
/// business.
fn words_for_the_peer(error: &Error) -> String {
    match error {
        Error::Denied { what, why } => Denied { what: *what, why: why.clone() }.words(),
        error if is_refusal(error) => format!("{REFUSED_WORD}{}", bare_words(error)),
        error => bare_words(error),
    }
}

/// Whether an error of a receiver's is about what is offered, and nothing that came between.
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
            format!("there is no room: {needs} are to come, and {free} are free")
        }
        Error::Interrupted | Error::Unconfirmed => "interrupted".to_owned(),
        Error::Unfinished => "interrupted while files were being given their names: they are \
                              whole and verified, but perhaps not all in place"
            .to_owned(),
        Error::File { path, what, source } => {
            format!("{}: {what}: {}", last_part(path), said(source))
        }
        Error::Exists(path) => format!("{} exists there already", last_part(path)),
        error => error.to_string(),
    }
}

fn last_part(path: &Path) -> String {
    printable(&path.file_name().unwrap_or_default().to_string_lossy())
}
