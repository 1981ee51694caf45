//! A push: files that a server sends to another one, and its progress records meanwhile
//! (`docs/protocol §8.8`, *send*).

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::audit::TransferStatus;
use super::buffer_share::BufferShare;
use super::memory_pool::MemoryPool;
use super::requests::response_item::{END, ResponseItem, TITLE};
use super::requests::send::PushTarget;
use super::response_decoder::server_error;
use super::sessions::{Sessions, stock};
use crate::cancel::Cancel;
use crate::control::Control;
use crate::disk::file_list::FileList;
use crate::error::{Error, RequestErrorKind};
use crate::keys::tofu;
use crate::name_log::NameLog;
use crate::net::establish::Establish;
use crate::net::poller::Waker;
use crate::observer::Observer;
use crate::options::Options;
use crate::permissions::Permissions;
use crate::progress::{LimitedBy, Progress, Summary};
use crate::request_error::RequestError;
use crate::ticket;
use crate::transfer::send::send_list;

/// Bytes of each progress record. It fills a buffer of the smallest size, because a buffer that is
/// not full does not leave.
const RECORD_BYTES: usize = 1024;
/// The interval between records at first. It grows to a twentieth of the elapsed time, up to the
/// last interval: the path to the watching client carries little, however long the transfer takes.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
const LAST_INTERVAL: Duration = Duration::from_secs(10);
/// Buffers that the requesting connection keeps for the progress records.
const OWN: u64 = 2;
/// Bytes of the headers of IP and UDP.
const HEADERS: u64 = 28;
/// The interval at which it looks whether the requester is still there.
const LOOK: Duration = Duration::from_millis(50);

/// The resources of a push.
pub(super) struct PushContext {
    options: Options,
    seen: Arc<TransferStatus>,
    waker: Waker,
}

impl PushContext {
    /// For a connection that may push files, with the buffers that it gets beside its own.
    pub(super) fn new(
        (permissions, session, control): (&Permissions, Option<u32>, &Control),
        buffers: &mut BufferShare,
        (pool, sessions, connections): (&mut MemoryPool, &mut Sessions, usize),
        (options, image_bytes): (&Options, usize),
        waker: Waker,
    ) -> Result<Self, RequestError> {
        if !permissions.third_party {
            let why = "your key may send nothing to other servers: its line in the server's \
                       authorized_keys lacks the option third-party";
            return Err(RequestError::new(RequestErrorKind::Forbidden, why));
        }
        let busy = |why: String| RequestError::new(RequestErrorKind::Busy, why);
        let wanted = (options.buffers.count.into(), image_bytes);
        let (stock, shared, beyond) =
            stock((pool, sessions), session, wanted, (connections, false))
                .map_err(|error| busy(error.to_string()))?;
        buffers.add(shared, beyond);
        let buffers = (stock.len() as u64).saturating_sub(OWN);
        if buffers < OWN {
            return Err(busy("there is no memory for that; try again later".to_owned()));
        }
        let mut options = options.clone();
        options.buffers.count = u32::try_from(buffers).unwrap_or(u32::MAX);
        options.buffers.memory = 0;
        options.network.port = 0;
        options.control = Some(control.clone());
        Ok(Self { options, seen: Arc::default(), waker })
    }

    /// Adds the names of the sent files to this log.
    pub(super) fn naming(mut self, names: NameLog) -> Self {
        self.options.name_log = Some(names);
        self
    }

    /// Its status.
    pub(super) fn seen(&self) -> Arc<TransferStatus> {
        Arc::clone(&self.seen)
    }

    /// Starts it. Returns the stream of its progress, and its error if it fails.
    pub(super) fn send(
        self,
        (list, handle): (FileList, Arc<OwnedFd>),
        push: &PushTarget,
        cancel: &Cancel,
    ) -> Result<(ProgressStream, Receiver<RequestError>), RequestError> {
        let odd = |why: String| RequestError::new(RequestErrorKind::NotUnderstood, why);
        let address =
            ticket::address(&push.address, None).map_err(|error| odd(error.to_string()))?;
        let rendezvous = tofu::call(&address, push.own.clone(), push.server)
            .map_err(|error| odd(error.to_string()))?;
        let Self { mut options, seen, waker } = self;
        options.server_request.put = Some(push.number);
        let (news, comes) = channel();
        let title = [TITLE, &[END]].concat();
        let (failed, fails) = channel();
        let progress = ProgressStream {
            comes,
            cancel: cancel.clone(),
            text: padded(title),
            at: 0,
            over: false,
        };
        let cancel = cancel.clone();
        let run = move || {
            let mut reporter =
                PushReporter { seen, news, next: Instant::now(), begun: Instant::now() };
            let sent =
                send_list(&list, Establish::Meet(&rendezvous), &options, &mut reporter, &cancel);
            drop(handle);
            match sent {
                Ok(summary) => reporter.end(&summary),
                Err(error) => {
                    let _ = failed.send(of_other(error));
                    waker.wake();
                }
            }
        };
        let spawned = std::thread::Builder::new().name("netblt-errand".to_owned()).spawn(run);
        let busy = |_| {
            RequestError::new(RequestErrorKind::Busy, "no thread can be started; try again later")
        };
        spawned.map_err(busy).map(|_| (progress, fails))
    }
}

/// Why another server did not get files.
fn of_other(error: Error) -> RequestError {
    match server_error(error) {
        Error::Denied { what, why } => RequestError::new(what, format!("the other server: {why}")),
        error => RequestError::new(
            RequestErrorKind::Failed,
            format!("towards the other server: {error}"),
        ),
    }
}

/// Sends the progress of a transfer at intervals.
struct PushReporter {
    seen: Arc<TransferStatus>,
    news: Sender<Vec<u8>>,
    begun: Instant,
    next: Instant,
}

impl PushReporter {
    fn end(&self, summary: &Summary) {
        let Summary { bytes, kept, files, skipped, limited_by, .. } = *summary;
        let limit = LimitedBy::ALL.iter().position(|one| *one == limited_by).unwrap_or(0) as u64;
        self.seen.bytes.store(bytes, Ordering::Relaxed);
        let lines = [
            ResponseItem::Moved([bytes, bytes, kept, files, skipped, limit]),
            ResponseItem::Done(files),
        ];
        let _ = self.news.send(lines.iter().flat_map(ResponseItem::encode).collect());
        // An empty record is the end.
        let _ = self.news.send(Vec::new());
    }
}

impl Observer for PushReporter {
    fn progress(&mut self, progress: &Progress) {
        self.seen.bytes.store(progress.bytes, Ordering::Relaxed);
        let stats = &progress.stats;
        let sent = stats.bytes_sent + stats.datagrams_sent * HEADERS;
        // The counts are those of one subflow.
        self.seen.sent.store(sent.max(progress.bytes), Ordering::Relaxed);
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + ((now - self.begun) / 20).clamp(FIRST_INTERVAL, LAST_INTERVAL);
        let total = progress.total.unwrap_or(0);
        let line = ResponseItem::Moved([progress.bytes, total, 0, progress.file, 0, 0]);
        let _ = self.news.send(padded(line.encode()));
    }
}

/// Empty lines, which say nothing, fill it up.
fn padded(mut text: Vec<u8>) -> Vec<u8> {
    text.resize(RECORD_BYTES, END);
    text
}

/// A response that is read while it is written.
pub(super) struct ProgressStream {
    comes: Receiver<Vec<u8>>,
    cancel: Cancel,
    text: Vec<u8>,
    at: usize,
    over: bool,
}

impl Read for ProgressStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() && !self.over {
            if self.cancel.is_cancelled() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            match self.comes.recv_timeout(LOOK) {
                Ok(text) => {
                    self.over = text.is_empty();
                    (self.text, self.at) = (text, 0);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            }
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.len().min(space.len());
        for (to, from) in space.iter_mut().zip(rest) {
            *to = *from;
        }
        self.at += count;
        Ok(count)
    }
}
