//! What the loop stands on: socket, clock, the place where it sleeps, the trace.

use netblt_proto::time::Instant;

use crate::error::Warning;
use crate::net::socket::Socket;
use crate::net::trace_file::{LimitEvent, TraceFile};
use crate::net::wait::Poller;

/// The clock of the loop: nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// What it says.
    pub fn now(&self) -> Instant {
        Instant::EPOCH + self.0.elapsed()
    }
}

/// What the loop stands on.
#[derive(Debug)]
pub struct Host {
    /// The way out.
    pub socket: Socket,
    /// Where it sleeps.
    pub poller: Poller,
    /// What time it is.
    pub clock: Clock,
    /// Where traces go, if anywhere.
    pub trace: Option<TraceFile>,
}

impl Host {
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
