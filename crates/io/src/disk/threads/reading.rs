//! The reading thread: it reads ahead in order, a few buffers more than requested.
//!
//! Memory that was used last is used first, and no more is read ahead than has shown to help: data
//! that were read long before they are sent are no longer in the processor's caches
//! (`docs/decisions/data-path.md`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use super::{Fill, Reader, spawn};
use crate::cpu_usage::{ThreadCpu, ThreadCpuReporter};
use crate::disk::have_list::HaveList;
use crate::disk::layout::Layout;
use crate::error::Error;
use crate::progress::FilePosition;

/// Buffers that are read beyond the requested ones, at first.
const AHEAD: u64 = 4;
/// A buffer that was waited for this long was not read far enough ahead.
const LONG: Duration = Duration::from_millis(10);

/// A buffer to be supplied to the sending machine.
#[derive(Debug)]
pub(crate) struct Supply {
    /// Its number.
    pub number: BufferNumber,
    /// Its image.
    pub buffer: Buffer,
    /// File bytes in it, and those that need not be in it.
    pub bytes: u64,
    /// The latter.
    pub kept: u64,
    /// Which file is the last in it.
    pub at: FilePosition,
    /// If it is the last one: the end of the transfer.
    pub end: Option<End>,
}

/// The thread that reads, seen from the loop.
#[derive(Debug)]
pub(crate) struct SourceThread {
    commands: SyncSender<ReadCommand>,
    answers: Receiver<Result<Read, Error>>,
    /// Raised by a restart. Older buffers are no longer read.
    epoch: Arc<AtomicU64>,
    layout: Layout,
    had: Arc<HaveList>,
    /// Read, in order, and not wanted yet.
    ahead: VecDeque<Supply>,
    /// Memory without work: the source has ended, or enough is read ahead.
    idle: Vec<Buffer>,
    /// Buffers that are read beyond the requested ones.
    further: u64,
    /// Since when something is wanted that is not read yet.
    starved: Option<Instant>,
    wanted: u64,
    /// The last one that was handed out.
    supplied: u64,
    next: u64,
    ended: bool,
    processor: ThreadCpu,
}

#[derive(Debug)]
struct ReadCommand {
    epoch: u64,
    layout: Layout,
    had: Arc<HaveList>,
    number: BufferNumber,
    buffer: Buffer,
}

#[derive(Debug)]
struct Read {
    epoch: u64,
    number: BufferNumber,
    buffer: Buffer,
    /// None if it was not read: the source had ended, or a restart made it void.
    fill: Option<(Fill, FilePosition, Option<End>)>,
}

impl SourceThread {
    /// Starts reading into `stock`, all the buffers there are, of `room` that there may be;
    /// `layout` is the one `reader` has. `waker` is called whenever [`Self::poll`] has something
    /// to say.
    pub(crate) fn spawn(
        reader: impl Reader,
        layout: Layout,
        stock: Vec<Buffer>,
        room: usize,
        waker: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        // One command or answer for each buffer, and an error.
        let (commands, inbox) = sync_channel(room);
        let (outbox, answers) = sync_channel(room + 1);
        let epoch = Arc::new(AtomicU64::new(0));
        let current = Arc::clone(&epoch);
        let processor = ThreadCpu::default();
        let reporter = processor.reporter();
        spawn("netblt-read", move || {
            read_loop(reader, reporter, &inbox, &outbox, &current, &waker);
        })?;
        let mut this = Self {
            commands,
            answers,
            epoch,
            layout,
            had: Arc::default(),
            ahead: VecDeque::with_capacity(room),
            idle: stock,
            further: AHEAD,
            starved: None,
            wanted: 0,
            supplied: 0,
            next: 1,
            ended: false,
            processor,
        };
        this.read_on();
        Ok(this)
    }

    /// The peer wants buffer `number`, and with it all before. Numbers past the end are ignored.
    pub(crate) fn want(&mut self, number: BufferNumber) {
        self.wanted = self.wanted.max(number.0);
        self.read_on();
    }

    /// The next requested buffer, if it is there. An error comes once, as soon as it is known, and
    /// nothing after it.
    pub(crate) fn poll(&mut self) -> Result<Option<Supply>, Error> {
        while let Ok(answer) = self.answers.try_recv() {
            let Read { epoch, number, buffer, fill } = match answer {
                Ok(read) => read,
                Err(error) => {
                    self.ahead.clear();
                    return Err(error);
                }
            };
            match fill {
                Some((fill, at, end)) if epoch == self.epoch.load(Ordering::Relaxed) => {
                    self.ended |= fill.last;
                    self.ahead.push_back(Supply {
                        number,
                        buffer,
                        bytes: fill.bytes,
                        kept: fill.kept,
                        at,
                        end,
                    });
                }
                _ => self.release(buffer),
            }
        }
        match self.ahead.front() {
            Some(supply) if supply.number.0 <= self.wanted => {
                self.supplied = supply.number.0;
                Ok(self.ahead.pop_front())
            }
            _ => Ok(None),
        }
    }

    /// Whether a requested buffer is missing, if that is new. After a long wait, twice as much is
    /// read ahead from now on.
    pub(crate) fn watch(&mut self, now: Instant) -> Option<bool> {
        let starves = self.supplied < self.wanted && self.ahead.is_empty() && !self.ended;
        let since = self.starved;
        if since.is_some() == starves {
            return None;
        }
        self.starved = starves.then_some(now);
        if since.is_some_and(|since| now.since(since) >= LONG) {
            self.further = self.further.saturating_mul(2);
            self.read_on();
        }
        Some(starves)
    }

    /// For how long the thread wanted a processor.
    pub(crate) fn wanted_processor(&self) -> Duration {
        self.processor.wanted()
    }

    /// Buffers that were read and are not wanted yet.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// An empty buffer comes back.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        self.idle.push(buffer);
        self.read_on();
    }

    /// Requests reads as far ahead as is allowed.
    fn read_on(&mut self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        while !self.ended
            && self.next <= self.wanted.saturating_add(self.further)
            && let Some(buffer) = self.idle.pop()
        {
            let number = BufferNumber(self.next);
            self.next += 1;
            // It fails only when the thread is gone, which its last answer has reported.
            let (layout, had) = (self.layout, Arc::clone(&self.had));
            let _ = self.commands.try_send(ReadCommand { epoch, layout, had, number, buffer });
        }
    }

    /// Nothing is read until [`Self::restart`]. Buffers that were read are void.
    pub(crate) fn halt(&mut self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        (self.wanted, self.supplied, self.ended) = (0, 0, true);
        let ahead = std::mem::take(&mut self.ahead);
        self.idle.extend(ahead.into_iter().map(|supply| supply.buffer));
    }

    /// Starts over from buffer 1, for a receiver with this HAVE. The machine still releases its
    /// buffers as always. [`Self::poll`] reports whether the source can be read again.
    pub(crate) fn restart(&mut self, layout: Layout, had: Arc<HaveList>) {
        self.halt();
        self.processor.restart();
        (self.layout, self.had) = (layout, had);
        (self.next, self.ended) = (1, false);
        self.read_on();
    }
}

// A dropped `SourceThread` does not wait for its thread, which may be in a read of a terminal or a
// pipe that never ends; it owns nothing but open files.
fn read_loop(
    mut reader: impl Reader,
    mut reporter: ThreadCpuReporter,
    inbox: &Receiver<ReadCommand>,
    outbox: &SyncSender<Result<Read, Error>>,
    current: &AtomicU64,
    waker: &impl Fn(),
) {
    let (mut reading, mut ended) = (0, false);
    reporter.report();
    while let Ok(ReadCommand { epoch, layout, had, number, mut buffer }) = inbox.recv() {
        let stale = epoch != current.load(Ordering::Relaxed);
        let answer = (|| {
            if stale {
                return Ok(None);
            }
            if epoch != reading {
                reader.restart(layout, &had)?;
                (reading, ended) = (epoch, false);
            }
            if ended {
                return Ok(None);
            }
            let fill = reader.fill(number, &mut buffer)?;
            ended = fill.last;
            let end = if ended { reader.end() } else { None };
            Ok(Some((fill, reader.at(), end)))
        })();
        reporter.report();
        let failed = answer.is_err();
        let answer = answer.map(|fill| Read { epoch, number, buffer, fill });
        if outbox.send(answer).is_err() {
            return;
        }
        waker();
        if failed {
            return;
        }
    }
}
