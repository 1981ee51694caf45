//! The disk's side of a transfer: one thread that reads or writes, beside the network thread.
//!
//! Owned buffers pass between the two, through bounded channels, with a call of the waker after
//! each answer. The stock of buffers is fixed, so no channel can ever be full when there is
//! something to put into it: the number of buffers bounds the queues.
//!
//! [`SourceThread`] reads ahead in order, a few buffers more than requested, so that a buffer is
//! mostly there when the peer asks for it. [`SinkThread`] stores the buffers that it gets, and
//! returns their memory. An error ends the thread; `poll` returns it, once.

mod reading;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use netblt_proto::buffer::Buffer;
use netblt_proto::limits::MAX_REASON;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, LEFT_OUT, Verdict};

use crate::cpu_usage::{ThreadCpu, ThreadCpuReporter};
use crate::disk::commit_latch::CommitLatch;
use crate::disk::have_list::HaveList;
use crate::disk::layout::Layout;
use crate::disk::left_out::Absent;
use crate::error::{Error, Warning};
use crate::progress::FilePosition;

pub(crate) use reading::SourceThread;

/// Why nothing is verified on `rfc998`.
const NO_PROOF: &str = "the rfc998 wire cannot prove what it carried";
/// How long a writer that is to stop may be in one call before it is left to itself.
const GRACE: Duration = Duration::from_millis(500);
/// The interval at which a stop looks whether the cleanup has begun.
const LOOK: Duration = Duration::from_millis(20);

/// Fills buffers. Called from the disk thread only.
pub(crate) trait Reader: Send + 'static {
    /// Which file was read last.
    fn at(&mut self) -> FilePosition {
        FilePosition::default()
    }
    /// Fills `buffer` with the image of buffer `number`; asked for strictly in order from 1.
    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error>;
    /// The end of the sent data, once a buffer was the last.
    fn end(&self) -> Option<End>;
    /// Starts over from buffer 1, for a receiver that has this already.
    fn restart(&mut self, layout: Layout, had: &Arc<HaveList>) -> Result<(), Error>;
}

/// The facts of a buffer that a [`Reader`] filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// No buffer follows.
    pub last: bool,
    /// File bytes in it, and those that need not be in it because the receiver has them.
    pub bytes: u64,
    /// The latter.
    pub kept: u64,
}

/// Stores buffers. Called from the disk thread only.
pub(crate) trait Writer: Send + 'static {
    /// Which file came last.
    fn at(&self) -> FilePosition {
        FilePosition::default()
    }
    /// Stores the image of buffer `number`. Each number comes once, in any order. Memory that is
    /// free again, from this or earlier calls, goes into `free`. Returns the file bytes stored.
    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error>;
    /// Every buffer has been accepted: compares, flushes and gives everything its final name,
    /// unless the gate is shut. Without an [`End`] (`rfc998`) there is nothing to compare with.
    fn finish(&mut self, end: Option<&End>, latch: &CommitLatch) -> Result<StoreOutcome, Error>;
    /// Forgets everything and starts over from buffer 1.
    fn restart(&mut self, layout: Layout, free: &mut Vec<Buffer>) -> Result<(), Error>;
    /// The bytes of HAVE, which is sent before buffer 1 comes.
    fn had(&mut self) -> Vec<u8> {
        Vec::new()
    }
    /// File bytes that are here already.
    fn kept_bytes(&self) -> u64 {
        0
    }
    /// File bytes of those stored so far that were here already.
    fn resumed_bytes(&self) -> u64 {
        0
    }
    /// How long a dropped [`SinkThread`] may wait for this writer to clean up behind itself.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}

impl Writer for Box<dyn Writer> {
    fn at(&self) -> FilePosition {
        (**self).at()
    }

    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        (**self).accept(number, buffer, free)
    }

    fn finish(&mut self, end: Option<&End>, latch: &CommitLatch) -> Result<StoreOutcome, Error> {
        (**self).finish(end, latch)
    }

    fn restart(&mut self, layout: Layout, free: &mut Vec<Buffer>) -> Result<(), Error> {
        (**self).restart(layout, free)
    }

    fn had(&mut self) -> Vec<u8> {
        (**self).had()
    }

    fn kept_bytes(&self) -> u64 {
        (**self).kept_bytes()
    }

    fn resumed_bytes(&self) -> u64 {
        (**self).resumed_bytes()
    }

    fn patience(&self) -> Duration {
        (**self).patience()
    }
}

/// How a transfer ended at the receiver's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreOutcome {
    /// Stored, flushed, in place, and the digests are the sender's.
    pub verified: bool,
    /// File bytes stored.
    pub bytes: u64,
    /// The transfer's digest as computed here; zero where the wire knows none.
    pub digest: [u8; 32],
    /// Files (not directories) stored.
    pub files: u64,
    /// Why it is not verified; empty if it is.
    pub reason: String,
    /// Files and directories that were left out, here or by the sender.
    pub skipped: u64,
    /// Those among them that are not the ones that are expected.
    pub unexpected: u64,
    /// Number of files that are left out here.
    pub unstored: u64,
    /// Which of them have content, unless they are too many to be named.
    pub absent: Option<Vec<u64>>,
    /// The first of those left out, with reasons.
    pub left_out: Vec<String>,
    /// File bytes that were there before and did not come again.
    pub kept: u64,
    /// Further remarks for the user.
    pub notes: Vec<String>,
    /// The warning that the manifest could not be written.
    pub unwritten: Option<Warning>,
}

impl StoreOutcome {
    /// The outcome of a transfer over a wire without proof.
    pub(crate) fn unproved(bytes: u64) -> Self {
        Self { bytes, files: 1, reason: NO_PROOF.to_owned(), ..Self::default() }
    }

    /// The verdict for the sender.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut reason = match self.unstored {
            count if count > 0 && self.verified => {
                let absent = self.absent.clone().map(|numbers| Absent::new(numbers).text());
                let absent = absent.unwrap_or_default();
                format!("{count}{LEFT_OUT}{absent}{}", self.left_out.join("; "))
            }
            _ => self.reason.clone(),
        };
        let cut = (0..=MAX_REASON.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
        reason.truncate(cut.unwrap_or(0));
        Verdict { verified: self.verified, bytes: self.bytes, digest: self.digest, reason }
    }
}

/// An event of the writing thread.
#[derive(Debug)]
pub(crate) enum Stored {
    /// Memory that is free again.
    Empty(Buffer),
    /// The answer to [`SinkThread::begin`]: the bytes of HAVE.
    Have(Vec<u8>),
    /// The answer to [`SinkThread::finish`].
    Finished(Box<StoreOutcome>),
}

/// The writing thread, seen from the loop. Dropping it waits until the writer has removed its
/// unfinished files.
#[derive(Debug)]
pub(crate) struct SinkThread {
    /// Taken by `drop`.
    commands: Option<SyncSender<WriteCommand>>,
    answers: Receiver<Result<Written, Error>>,
    /// Raised by a restart. Older buffers are no longer written.
    epoch: Arc<AtomicU64>,
    layout: Layout,
    /// File bytes that may come in all.
    most: u64,
    /// A finish that waits until an older one, void by now, was answered: there is room for one.
    finish: Option<Option<End>>,
    finishing: bool,
    /// A beginning that waits likewise.
    begin: bool,
    beginning: bool,
    empties: VecDeque<Buffer>,
    bytes: u64,
    kept: u64,
    at: FilePosition,
    backlog: usize,
    patience: Duration,
    latch: CommitLatch,
    /// The writer is removing its unfinished files.
    cleaning: Arc<AtomicBool>,
    processor: ThreadCpu,
}

#[derive(Debug)]
struct WriteCommand {
    epoch: u64,
    layout: Layout,
    /// File bytes that may come in all.
    most: u64,
    what: WriteWhat,
}

#[derive(Debug)]
enum WriteWhat {
    Store(BufferNumber, Buffer),
    Finish(Option<End>, CommitLatch),
    Begin,
}

#[derive(Debug)]
struct Written {
    epoch: u64,
    free: Vec<Buffer>,
    bytes: u64,
    /// Those that were here already, of all so far.
    kept: u64,
    at: FilePosition,
    to: To,
    outcome: Option<StoreOutcome>,
    had: Option<Vec<u8>>,
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Buffer,
    Finish,
    Begin,
}

impl SinkThread {
    /// Starts the thread for at most `stock` buffers; `layout` is the one `writer` has. `waker` is
    /// called whenever [`Self::poll`] has something to say.
    pub(crate) fn spawn(
        writer: impl Writer,
        layout: Layout,
        stock: usize,
        waker: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let (commands, inbox) = sync_channel(stock + 2);
        let (outbox, answers) = sync_channel(stock + 3);
        let epoch = Arc::new(AtomicU64::new(0));
        let (current, patience) = (Arc::clone(&epoch), writer.patience());
        let cleaning = Arc::new(AtomicBool::new(false));
        let cleans = Arc::clone(&cleaning);
        let processor = ThreadCpu::default();
        let reporter = processor.reporter();
        spawn("netblt-write", move || {
            write_loop(writer, reporter, &inbox, &outbox, &current, &cleans, &waker);
        })?;
        Ok(Self {
            commands: Some(commands),
            answers,
            epoch,
            layout,
            finish: None,
            finishing: false,
            begin: false,
            beginning: false,
            empties: VecDeque::with_capacity(stock),
            bytes: 0,
            kept: 0,
            at: FilePosition::default(),
            backlog: 0,
            patience,
            latch: CommitLatch::default(),
            cleaning,
            processor,
            most: u64::MAX,
        })
    }

    /// Takes no more file bytes than these.
    pub(crate) fn limit(&mut self, most: u64) {
        self.most = most;
    }

    /// Forbids all further renames; false if that comes too late, and the outcome will show the
    /// result.
    pub(crate) fn stop(&self) -> bool {
        self.latch.cancel()
    }

    /// Whether [`Self::stop`] would still come in time.
    pub(crate) fn may_stop(&self) -> bool {
        !self.latch.is_committed()
    }

    /// The transfer begins: [`Self::poll`] will return the bytes of HAVE.
    pub(crate) fn begin(&mut self) {
        self.begin = true;
        self.push_begin();
    }

    fn push_begin(&mut self) {
        if !self.beginning && std::mem::take(&mut self.begin) {
            self.beginning = self.send(WriteWhat::Begin);
        }
    }

    /// Stores the image of buffer `number`.
    pub(crate) fn store(&mut self, number: BufferNumber, buffer: Buffer) {
        // It fails only when the thread is gone, which its last answer has reported.
        if self.send(WriteWhat::Store(number, buffer)) {
            self.backlog += 1;
        }
    }

    /// Every buffer was handed over; the judgement will come out of [`Self::poll`].
    pub(crate) fn finish(&mut self, end: Option<End>) {
        self.finish = Some(end);
        self.push_finish();
    }

    /// The next event. An error comes once, and nothing after it. By then all unfinished files have
    /// been removed.
    pub(crate) fn poll(&mut self) -> Result<Option<Stored>, Error> {
        loop {
            if let Some(buffer) = self.empties.pop_front() {
                return Ok(Some(Stored::Empty(buffer)));
            }
            let Ok(answer) = self.answers.try_recv() else { return Ok(None) };
            let Written { epoch, free, bytes, kept, at, to, outcome, had } = answer?;
            self.empties.extend(free);
            match to {
                To::Buffer => self.backlog = self.backlog.saturating_sub(1),
                To::Finish => {
                    self.finishing = false;
                    self.push_finish();
                }
                To::Begin => {
                    self.beginning = false;
                    self.push_begin();
                }
            }
            if epoch == self.epoch.load(Ordering::Relaxed) {
                self.bytes += bytes;
                (self.kept, self.at) = (kept, at);
                if let Some(outcome) = outcome {
                    return Ok(Some(Stored::Finished(Box::new(outcome))));
                }
                if let Some(had) = had {
                    return Ok(Some(Stored::Have(had)));
                }
            }
        }
    }

    /// File bytes stored so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of them that were here already.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Which file came last.
    pub(crate) fn at(&self) -> &FilePosition {
        &self.at
    }

    /// Buffers handed over and not stored yet.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog
    }

    /// For how long the thread wanted a processor.
    pub(crate) fn wanted_processor(&self) -> Duration {
        self.processor.wanted()
    }

    /// Drops all stored data and starts over from buffer 1. Memory comes back as always.
    pub(crate) fn restart(&mut self, layout: Layout) {
        self.processor.restart();
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.latch.cancel();
        self.latch = CommitLatch::default();
        (self.layout, self.finish, self.bytes, self.kept) = (layout, None, 0, 0);
    }

    fn push_finish(&mut self) {
        if !self.finishing
            && let Some(end) = self.finish.take()
        {
            self.finishing = self.send(WriteWhat::Finish(end, self.latch.clone()));
        }
    }

    /// Whether the thread is there to get it.
    fn send(&self, what: WriteWhat) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let command = WriteCommand { epoch, layout: self.layout, most: self.most, what };
        self.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok())
    }
}

impl Drop for SinkThread {
    fn drop(&mut self) {
        // Commands in the channel are void.
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.latch.cancel();
        self.commands = None;
        let start = Instant::now();
        loop {
            // Cleaning up takes its time; a disk that does not answer is not waited for.
            let cleaning = self.cleaning.load(Ordering::Relaxed);
            let patience = if cleaning { self.patience } else { self.patience.min(GRACE) };
            let left = patience.saturating_sub(start.elapsed());
            match self.answers.recv_timeout(left.min(LOOK)) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn write_loop(
    mut writer: impl Writer,
    mut reporter: ThreadCpuReporter,
    inbox: &Receiver<WriteCommand>,
    outbox: &SyncSender<Result<Written, Error>>,
    current: &AtomicU64,
    cleaning: &AtomicBool,
    waker: &impl Fn(),
) {
    let (mut writing, mut total) = (0, 0u64);
    reporter.report();
    while let Ok(WriteCommand { epoch, layout, most, what }) = inbox.recv() {
        let stale = epoch != current.load(Ordering::Relaxed);
        let (mut free, mut bytes, mut outcome, mut had) = (Vec::new(), 0, None, None);
        let to = match what {
            WriteWhat::Store(..) => To::Buffer,
            WriteWhat::Finish(..) => To::Finish,
            WriteWhat::Begin => To::Begin,
        };
        let result = (|| {
            if !stale && epoch != writing {
                writer.restart(layout, &mut free)?;
                (writing, total) = (epoch, 0);
            }
            match what {
                WriteWhat::Store(_, buffer) if stale => free.push(buffer),
                WriteWhat::Store(number, buffer) => {
                    bytes = writer.accept(number, buffer, &mut free)?;
                    total = total.saturating_add(bytes);
                    if total > most {
                        return Err(Error::TooMuch { what: "bytes", most });
                    }
                }
                WriteWhat::Finish(..) | WriteWhat::Begin if stale => {}
                WriteWhat::Begin => had = Some(writer.had()),
                WriteWhat::Finish(end, latch) => {
                    outcome = Some(writer.finish(end.as_ref(), &latch)?)
                }
            }
            Ok(())
        })();
        if let Err(error) = result {
            // Clean up first: the process may end when the error is returned.
            cleaning.store(true, Ordering::Relaxed);
            drop(writer);
            let _ = outbox.send(Err(error));
            waker();
            return;
        }
        let (at, kept) = (writer.at(), writer.resumed_bytes());
        reporter.report();
        let written = Written { epoch, free, bytes, kept, at, to, outcome, had };
        if outbox.send(Ok(written)).is_err() {
            break;
        }
        waker();
    }
    cleaning.store(true, Ordering::Relaxed);
    // The writer is dropped before the channel, whose end the other side waits for.
    drop(writer);
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    match Builder::new().name(name.to_owned()).spawn(body) {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Thread { purpose: "for the disk", source }),
    }
}

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
