//! Files that a server sends to another one by itself, and what it tells of it meanwhile
//! (`docs/protocol.md §8.8`, *send*).

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::account::Seen;
use super::lines::told;
use super::pool::Pool;
use super::request::{END, Errand, Line, TITLE};
use super::sessions::{Sessions, stock};
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::disk::file_list::FileList;
use crate::error::{Denial, Error};
use crate::grant::Grant;
use crate::keys::meet;
use crate::name_log::NameLog;
use crate::net::rendezvous::Way;
use crate::net::wait::Waker;
use crate::observer::Observer;
use crate::options::{Control, Options};
use crate::progress::{LimitedBy, Progress, Summary};
use crate::ticket;
use crate::transfer::send::send_list;

/// Each time that it is told how far it is, so many bytes are told: what fills a buffer of the
/// smallest size, for one that is not full does not leave.
const TOLD: usize = 1024;
/// At first it is told so often, then at twentieths of the time that has passed, at last so seldom:
/// the way to who watches carries little, however long it takes.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(10);
/// Buffers of its connection that a guest keeps, to hear how far the other one is.
const OWN: u64 = 2;
/// Bytes of the headers of IP and UDP.
const HEADERS: u64 = 28;
/// Between two looks whether anybody wants to hear of it still.
const LOOK: Duration = Duration::from_millis(50);

/// What a guest's transfer to another server is given.
pub(super) struct Outward {
    options: Options,
    seen: Arc<Seen>,
    waker: Waker,
}

impl Outward {
    /// For a guest who may send files elsewhere, with the buffers that he gets beside his own.
    pub(super) fn new(
        (grant, session, control): (&Grant, Option<u32>, &Control),
        taken: (&mut u64, &mut u64),
        (pool, sessions, guests): (&mut Pool, &mut Sessions, usize),
        (options, image_bytes): (&Options, usize),
        waker: Waker,
    ) -> Result<Self, Denied> {
        if !grant.third_party {
            let why = "your key may send nothing to other servers: its line in the server's \
                       authorized_keys lacks the option third-party";
            return Err(Denied::new(Denial::Forbidden, why));
        }
        let busy = |why: String| Denied::new(Denial::Busy, why);
        let wanted = (options.buffers.into(), image_bytes);
        let (stock, shared, beyond) = stock((pool, sessions), session, wanted, (guests, false))
            .map_err(|error| busy(error.to_string()))?;
        (*taken.0, *taken.1) = (*taken.0 + shared, *taken.1 + beyond);
        let buffers = (stock.len() as u64).saturating_sub(OWN);
        if buffers < OWN {
            return Err(busy("there is no memory for that; try again later".to_owned()));
        }
        let mut options = options.clone();
        options.buffers = u32::try_from(buffers).unwrap_or(u32::MAX);
        options.buffer_memory = 0;
        options.port = 0;
        options.control = Some(control.clone());
        Ok(Self { options, seen: Arc::default(), waker })
    }

    /// Adds the names of what is sent to this log.
    pub(super) fn naming(mut self, names: NameLog) -> Self {
        self.options.name_log = Some(names);
        self
    }

    /// What is seen of it.
    pub(super) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// Begins it; what is read of it tells how far it is, and the other why it has failed.
    pub(super) fn send(
        self,
        (list, handle): (FileList, Arc<OwnedFd>),
        errand: &Errand,
        cancel: &Cancel,
    ) -> Result<(Told, Receiver<Denied>), Denied> {
        let odd = |why: String| Denied::new(Denial::NotUnderstood, why);
        let address =
            ticket::address(&errand.address, None).map_err(|error| odd(error.to_string()))?;
        let rendezvous = meet::call(&address, errand.own.clone(), errand.server)
            .map_err(|error| odd(error.to_string()))?;
        let Self { mut options, seen, waker } = self;
        options.asked.put = Some(errand.number);
        let (news, comes) = channel();
        let title = [TITLE, &[END]].concat();
        let (failed, fails) = channel();
        let told = Told { comes, cancel: cancel.clone(), text: padded(title), at: 0, over: false };
        let cancel = cancel.clone();
        let run = move || {
            let mut teller = Teller { seen, news, next: Instant::now(), begun: Instant::now() };
            let sent = send_list(&list, Way::Meet(&rendezvous), &options, &mut teller, &cancel);
            drop(handle);
            match sent {
                Ok(summary) => teller.end(&summary),
                Err(error) => {
                    let _ = failed.send(of_other(error));
                    waker.wake();
                }
            }
        };
        let spawned = std::thread::Builder::new().name("netblt-errand".to_owned()).spawn(run);
        let busy = |_| Denied::new(Denial::Busy, "no thread can be started; try again later");
        spawned.map_err(busy).map(|_| (told, fails))
    }
}

/// Why another server did not get files.
fn of_other(error: Error) -> Denied {
    match told(error) {
        Error::Denied { what, why } => Denied::new(what, format!("the other server: {why}")),
        error => Denied::new(Denial::Failed, format!("towards the other server: {error}")),
    }
}

/// Tells now and then how far a transfer is.
struct Teller {
    seen: Arc<Seen>,
    news: Sender<Vec<u8>>,
    begun: Instant,
    next: Instant,
}

impl Teller {
    fn end(&self, summary: &Summary) {
        let Summary { bytes, kept, files, skipped, limited_by, .. } = *summary;
        let limit = LimitedBy::ALL.iter().position(|one| *one == limited_by).unwrap_or(0) as u64;
        self.seen.bytes.store(bytes, Ordering::Relaxed);
        let lines = [Line::Moved([bytes, bytes, kept, files, skipped, limit]), Line::Done(files)];
        let _ = self.news.send(lines.iter().flat_map(Line::encode).collect());
        // Nothing is the end.
        let _ = self.news.send(Vec::new());
    }
}

impl Observer for Teller {
    fn progress(&mut self, progress: &Progress) {
        self.seen.bytes.store(progress.bytes, Ordering::Relaxed);
        let stats = &progress.stats;
        let sent = stats.bytes_sent + stats.datagrams_sent * HEADERS;
        // The counts are those of one lane.
        self.seen.sent.store(sent.max(progress.bytes), Ordering::Relaxed);
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + ((now - self.begun) / 20).clamp(OFTEN, SELDOM);
        let total = progress.total.unwrap_or(0);
        let line = Line::Moved([progress.bytes, total, 0, progress.file, 0, 0]);
        let _ = self.news.send(padded(line.encode()));
    }
}

/// Empty lines, which say nothing, fill it up.
fn padded(mut text: Vec<u8>) -> Vec<u8> {
    text.resize(TOLD, END);
    text
}

/// An answer that is read as it is told.
pub(super) struct Told {
    comes: Receiver<Vec<u8>>,
    cancel: Cancel,
    text: Vec<u8>,
    at: usize,
    over: bool,
}

impl Read for Told {
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
