//! A lane's thread: one socket, one machine, and the channel to the main one. It knows nothing of
//! files; what it is handed are images and empty buffers.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use netblt_proto::api::Event;
use netblt_proto::buffer::Buffer;
use netblt_proto::config::Steering;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;

use super::board::Board;
use crate::error::Error;
use crate::net::connections::Oversize;
use crate::net::dialer::Dialer;
use crate::net::driver::{self, Application, Feed};
use crate::net::host::Host;
use crate::net::wait::Waker;

/// What the main thread tells a lane's.
#[derive(Debug)]
pub(super) enum ToLane {
    /// A sender's image, or a receiver's empty buffer.
    Buffer(Buffer),
    /// Go on, or pause.
    Steer(Steering),
}

/// What a lane's thread tells.
#[derive(Debug)]
pub(crate) enum Said {
    /// The other end has an empty buffer.
    Wanted,
    /// A sender's buffer, accepted.
    Accepted(Buffer),
    /// One of which that is not known: the lane is about to be lost.
    Unsure(Buffer),
    /// A receiver's buffer, full.
    Full(Buffer),
    /// One that stayed empty.
    Empty(Buffer),
    /// The lane is open.
    Open,
    /// It is over; nothing follows.
    Over(Box<Last>),
}

/// What is left of a lane.
#[derive(Debug)]
pub(crate) struct Last {
    /// What its machine counted.
    pub(super) stats: Stats,
    /// What it was told since it ended: nothing is lost on the way.
    pub(super) inbox: Receiver<ToLane>,
}

/// The client of a lane's machine.
#[derive(Debug)]
pub(super) struct LaneThread {
    pub(super) at: usize,
    pub(super) sends: bool,
    pub(super) inbox: Receiver<ToLane>,
    pub(super) outbox: Sender<(usize, Said)>,
    /// The main thread's.
    pub(super) waker: Waker,
    pub(super) board: Arc<Board>,
    /// Buffers that the other end wants.
    pub(super) wanted: VecDeque<BufferNumber>,
    /// Since when nothing was heard.
    pub(super) silent: Option<Instant>,
    pub(super) over: bool,
}

type Flow = ControlFlow<()>;

impl LaneThread {
    /// Until the lane is over.
    pub(super) fn run(mut self, end: Endpoint, mut host: Host) {
        let mut connection = Dialer::of(end);
        // What fails here fails this lane, and the transfer goes on with the others.
        let failed = driver::run(&mut connection, &mut self, &mut host).is_err();
        let now = host.clock.now();
        if failed && let Some(end) = connection.lane() {
            end.forget(now, LOST);
            while let Some(event) = end.poll_event() {
                let _ = self.pass_on(now, event, end);
            }
        }
        let stats = connection.view().map(|end| end.stats(now)).unwrap_or_default();
        let Self { inbox, outbox, at, waker, .. } = self;
        let _ = outbox.send((at, Said::Over(Box::new(Last { stats, inbox }))));
        waker.wake();
    }

    fn say(&self, said: Said) {
        // The main thread is gone only when the transfer is.
        let _ = self.outbox.send((self.at, said));
        self.waker.wake();
    }

    fn pass_on(&mut self, now: Instant, event: Event, end: &Endpoint) -> Flow {
        match event {
            Event::Wanted(number) => {
                self.wanted.push_back(number);
                self.say(Said::Wanted);
            }
            Event::Released(_, buffer) if end.is_closing() => self.say(Said::Unsure(buffer)),
            Event::Released(_, buffer) => self.say(Said::Accepted(buffer)),
            Event::Filled(_, buffer) => self.say(Said::Full(buffer)),
            Event::Returned(buffer) => self.say(Said::Empty(buffer)),
            Event::Opened { .. } => self.say(Said::Open),
            Event::Silent => self.silent = Some(now),
            Event::Answering => self.silent = None,
            Event::Closed(_) => return ControlFlow::Break(()),
            Event::Had { .. } | Event::Complete(_) | Event::Finished(_) => {}
        }
        ControlFlow::Continue(())
    }
}

/// So much longer than the main connection a lane may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
const LOST: &str = "the lane is given up";

impl Application for LaneThread {
    type Key = ();
    type Outcome = ();

    fn turn(&mut self, _: Instant) -> ControlFlow<(), Feed> {
        ControlFlow::Continue(Feed::All)
    }

    fn feed(&mut self, now: Instant, (): (), end: &mut Endpoint) -> Flow {
        loop {
            match self.inbox.try_recv() {
                Ok(ToLane::Buffer(buffer)) if !self.sends => end.offer(now, buffer),
                Ok(ToLane::Buffer(buffer)) => match self.wanted.pop_front() {
                    Some(number) => end.supply(now, number, buffer, false),
                    None => self.say(Said::Unsure(buffer)),
                },
                Ok(ToLane::Steer(steering)) => _ = end.steer(now, steering),
                Err(TryRecvError::Empty) => break,
                // The transfer is over, and so is the lane.
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    break;
                }
            }
        }
        let silent = self.silent.is_some_and(|since| now.since(since) >= PATIENCE);
        if self.over || silent && !self.board.is_silent() {
            self.silent = None;
            end.forget(now, LOST);
            return ControlFlow::Continue(());
        }
        if !self.sends {
            self.board.tell_came(end.moved().0);
        } else if let Some(tally) = end.tally(now) {
            self.board.tell(&tally);
            self.board.share().into_iter().for_each(|share| end.be_led(share));
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> Flow {
        self.pass_on(now, event, end)
    }

    fn broken(&mut self, now: Instant, (): (), _: Error, end: &mut Endpoint) -> Flow {
        end.forget(now, LOST);
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _: u32) {}

    fn oversize(&mut self, _: Instant, (): (), _: &Oversize, _: &mut Endpoint) -> Flow {
        ControlFlow::Continue(())
    }
}
