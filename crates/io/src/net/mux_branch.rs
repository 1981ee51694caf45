//! A branch's handle to the thread that reads its socket (`docs/protocol §4.10`).

use std::fmt;

use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

/// A message from the thread of a branch to the one that reads the socket.
#[derive(Debug)]
pub(crate) enum BranchMessage {
    /// The peer has answered on this branch.
    Confirmed(u32),
    /// This one is its client's no more, and only has to part.
    Leave(u32, Box<Endpoint>),
}

/// The link from a branch to the thread that reads its socket.
pub(crate) struct MuxBranch {
    id: u32,
    send: Box<dyn Fn(BranchMessage) + Send>,
    confirmed: bool,
}

impl MuxBranch {
    /// The link of the branch with this id. `send` delivers a message to it.
    pub(crate) fn new(id: u32, send: impl Fn(BranchMessage) + Send + 'static) -> Self {
        Self { id, send: Box::new(send), confirmed: false }
    }

    /// The branch has had a datagram: perhaps the first that was its peer's.
    pub(crate) fn on_datagram(&mut self, now: Instant, end: &Endpoint) {
        if !self.confirmed && end.stats(now).datagrams_received > 0 {
            self.confirmed = true;
            (self.send)(BranchMessage::Confirmed(self.id));
        }
    }

    /// Its client has done with it.
    pub(crate) fn leave(&self, end: Endpoint) {
        (self.send)(BranchMessage::Leave(self.id, Box::new(end)));
    }
}

impl fmt::Debug for MuxBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({})", self.id)
    }
}
