//! A branch's tie to the thread that reads its socket (`docs/protocol.md §4.10`).

use std::fmt;

use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

/// What a thread that drives a branch tells the one that reads the socket.
#[derive(Debug)]
pub(crate) enum Word {
    /// Something was heard of this branch.
    Heard(u32),
    /// This one is its client's no more, and only has to part.
    Leave(u32, Box<Endpoint>),
}

/// A branch's tie to whoever reads its socket.
pub(crate) struct Joined {
    id: u32,
    say: Box<dyn Fn(Word) + Send>,
    heard: bool,
}

impl Joined {
    /// Of the branch with this id; `say` hands on what there is to say.
    pub(crate) fn new(id: u32, say: impl Fn(Word) + Send + 'static) -> Self {
        Self { id, say: Box::new(say), heard: false }
    }

    /// The branch has had a datagram: perhaps the first that was its peer's.
    pub(crate) fn hear(&mut self, now: Instant, end: &Endpoint) {
        if !self.heard && end.stats(now).datagrams_received > 0 {
            self.heard = true;
            (self.say)(Word::Heard(self.id));
        }
    }

    /// Its client has done with it.
    pub(crate) fn leave(&self, end: Endpoint) {
        (self.say)(Word::Leave(self.id, Box::new(end)));
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({})", self.id)
    }
}
