//! A subflow's thread: one socket, one machine, and the channel to the main one. It knows nothing
//! of files, only images and empty buffers.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use netblt_proto::api::Event;
use netblt_proto::buffer::Buffer;
use netblt_proto::config::RuntimeSettings;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;

use super::shared_stats::SharedStats;
use crate::error::Error;
use crate::net::connections::Oversize;
use crate::net::dialer::Dialer;
use crate::net::event_loop::{self, Application, Feed};
use crate::net::io_context::IoContext;
use crate::net::poller::Waker;

/// A command of the main thread to a subflow's.
#[derive(Debug)]
pub(super) enum SubflowCommand {
    /// A sender's image, or a receiver's empty buffer.
    Buffer(Buffer),
    /// Pause or resume.
    Steer(RuntimeSettings),
}

/// An event of a subflow's thread.
#[derive(Debug)]
pub(crate) enum SubflowEvent {
    /// The other end has an empty buffer.
    Wanted,
    /// A sender's buffer, accepted.
    Accepted(Buffer),
    /// A buffer that may have arrived or not: the subflow is about to be lost.
    Unsure(Buffer),
    /// A receiver's buffer, full.
    Full(Buffer),
    /// One that stayed empty.
    Empty(Buffer),
    /// The subflow is open.
    Open,
    /// It has ended. Nothing follows.
    Over(Box<SubflowResult>),
}

/// The result of a subflow.
#[derive(Debug)]
pub(crate) struct SubflowResult {
    /// The counts of its machine.
    pub(super) stats: Stats,
    /// Commands since it ended, so that no buffer is lost.
    pub(super) commands_left: Receiver<SubflowCommand>,
}

/// The client of a subflow's machine.
#[derive(Debug)]
pub(super) struct SubflowThread {
    pub(super) at: usize,
    pub(super) sends: bool,
    pub(super) commands_left: Receiver<SubflowCommand>,
    pub(super) outbox: Sender<(usize, SubflowEvent)>,
    /// The main thread's.
    pub(super) waker: Waker,
    pub(super) shared_stats: Arc<SharedStats>,
    /// Buffers that the other end wants.
    pub(super) wanted: VecDeque<BufferNumber>,
    /// Since when nothing has arrived.
    pub(super) silent: Option<Instant>,
    pub(super) over: bool,
}

type Flow = ControlFlow<()>;

impl SubflowThread {
    /// Runs until the subflow has ended.
    pub(super) fn run(mut self, end: Endpoint, mut host: IoContext) {
        let mut connection = Dialer::of(end);
        // An error here ends this subflow, and the transfer goes on with the others.
        let failed = event_loop::run(&mut connection, &mut self, &mut host).is_err();
        let now = host.clock.now();
        if failed && let Some(end) = connection.subflow() {
            end.forget(now, LOST);
            while let Some(event) = end.poll_event() {
                let _ = self.pass_on(now, event, end);
            }
        }
        let stats = connection.view().map(|end| end.stats(now)).unwrap_or_default();
        let Self { commands_left, outbox, at, waker, .. } = self;
        let _ =
            outbox.send((at, SubflowEvent::Over(Box::new(SubflowResult { stats, commands_left }))));
        waker.wake();
    }

    fn say(&self, said: SubflowEvent) {
        // The main thread is gone only when the transfer is.
        let _ = self.outbox.send((self.at, said));
        self.waker.wake();
    }

    fn pass_on(&mut self, now: Instant, event: Event, end: &Endpoint) -> Flow {
        match event {
            Event::Wanted(number) => {
                self.wanted.push_back(number);
                self.say(SubflowEvent::Wanted);
            }
            Event::Released(_, buffer) if end.is_closing() => {
                self.say(SubflowEvent::Unsure(buffer))
            }
            Event::Released(_, buffer) => self.say(SubflowEvent::Accepted(buffer)),
            Event::Filled(_, buffer) => self.say(SubflowEvent::Full(buffer)),
            Event::Returned(buffer) => self.say(SubflowEvent::Empty(buffer)),
            Event::Opened { .. } => self.say(SubflowEvent::Open),
            Event::Silent => self.silent = Some(now),
            Event::Answering => self.silent = None,
            Event::Closed(_) => return ControlFlow::Break(()),
            Event::PeerHas { .. } | Event::Complete(_) | Event::Finished(_) => {}
        }
        ControlFlow::Continue(())
    }
}

/// How much longer than the main connection a subflow may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
const LOST: &str = "the lane is given up";

impl Application for SubflowThread {
    type Key = ();
    type Outcome = ();

    fn on_tick(&mut self, _: Instant) -> ControlFlow<(), Feed> {
        ControlFlow::Continue(Feed::All)
    }

    fn on_ready(&mut self, now: Instant, (): (), end: &mut Endpoint) -> Flow {
        loop {
            match self.commands_left.try_recv() {
                Ok(SubflowCommand::Buffer(buffer)) if !self.sends => end.offer(now, buffer),
                Ok(SubflowCommand::Buffer(buffer)) => match self.wanted.pop_front() {
                    Some(number) => end.supply(now, number, buffer, false),
                    None => self.say(SubflowEvent::Unsure(buffer)),
                },
                Ok(SubflowCommand::Steer(steering)) => _ = end.steer(now, steering),
                Err(TryRecvError::Empty) => break,
                // The transfer has ended, and so has the subflow.
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    break;
                }
            }
        }
        let silent = self.silent.is_some_and(|since| now.since(since) >= PATIENCE);
        if self.over || silent && !self.shared_stats.is_silent() {
            self.silent = None;
            end.forget(now, LOST);
            return ControlFlow::Continue(());
        }
        if !self.sends {
            self.shared_stats.publish_arrived(end.moved().0);
        } else if let Some(tally) = end.tally(now) {
            self.shared_stats.publish(&tally);
            self.shared_stats.share().into_iter().for_each(|share| end.be_led(share));
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> Flow {
        self.pass_on(now, event, end)
    }

    fn on_io_error(&mut self, now: Instant, (): (), _: Error, end: &mut Endpoint) -> Flow {
        end.forget(now, LOST);
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _: u32) {}

    fn on_oversize(&mut self, _: Instant, (): (), _: &Oversize, _: &mut Endpoint) -> Flow {
        ControlFlow::Continue(())
    }
}
