//! The I/O context of the event loop: socket, clock, poller and trace.

use netblt_proto::time::Instant;

use crate::error::Warning;
use crate::net::poller::Poller;
use crate::net::socket::Socket;
use crate::net::trace_file::{LimitEvent, TraceFile};

/// The clock of the loop: nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        Instant::EPOCH + self.0.elapsed()
    }
}

/// The I/O context of the event loop.
#[derive(Debug)]
pub struct IoContext {
    /// The way out.
    pub socket: Socket,
    /// The poller.
    pub poller: Poller,
    /// The clock.
    pub clock: Clock,
    /// The trace file, if there is one.
    pub trace: Option<TraceFile>,
}

impl IoContext {
    /// Ends the trace, with what limited the transfer if it is known; a warning if it could not be
    /// written.
    pub fn finish_trace(&mut self, limit: Option<(Instant, LimitEvent)>) -> Option<Warning> {
        let mut trace = self.trace.take()?;
        if let Some((at, limit)) = limit {
            trace.record_limit(at, limit);
        }
        trace.finish()
    }
}
