//! The marks of one world, as its datagrams and events show them.

use netblt_proto::wire::sealed::VERSION;

use crate::check::{Clear, kind};
use crate::coverage::{Coverage, Mark};
use crate::side::{Pair, Side};

/// Bytes of a NULL-ACK that holds an END (`docs/protocol §3.3`).
const NULL_ACK_WITH_END: usize = 16 + 24 + 48 + 16;

/// Counts marks.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    coverage: Coverage,
    /// First bytes of the newest OPEN and RESPONSE, to know the next ones for repetitions.
    handshakes: Pair<Vec<u8>>,
    /// ENDs sent in this connection.
    ends_sent: u64,
    /// The receiver's DONE packet arrived.
    done_arrived: bool,
}

impl Marks {
    /// Counts `mark` so many times.
    pub(crate) fn see(&mut self, mark: Mark, times: u64) {
        self.coverage.see(mark, times);
    }

    /// Whether it was seen.
    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.coverage.count(mark) > 0
    }

    /// A datagram leaves `side`, whose connection is open or not.
    pub(crate) fn on_sent(&mut self, side: Side, clear: &Clear, bytes: &[u8], is_open: bool) {
        let mark = match clear.kind {
            kind::CONTROL if !is_open => Mark::Greeted,
            kind::DATA | kind::LDATA | kind::CONTROL => return,
            kind::OPEN | kind::RESPONSE => {
                let first = bytes.get(..16).unwrap_or(bytes);
                if self.handshakes[side] != first {
                    self.handshakes[side] = first.to_vec();
                    return;
                }
                if clear.kind == kind::OPEN { Mark::OpenRetried } else { Mark::ResponseRepeated }
            }
            kind::COOKIE => Mark::Cookie,
            kind::REFUSED => Mark::Refused,
            kind::UNKNOWN => Mark::Unknown,
            kind::CHALLENGE => Mark::Challenged,
            kind::NULL_ACK => {
                let has_end = clear.version == VERSION && bytes.len() >= NULL_ACK_WITH_END;
                self.ends_sent += u64::from(has_end);
                if has_end && self.ends_sent > 1 { Mark::EndRepeated } else { Mark::NullAck }
            }
            kind::KEEPALIVE => Mark::Keepalive,
            kind::ABORT => Mark::Aborted,
            kind::DONE => Mark::DonePacket,
            _ => return,
        };
        self.see(mark, 1);
    }

    /// A datagram arrived.
    pub(crate) fn on_received(&mut self, bytes: &[u8]) {
        self.done_arrived |= bytes.get(3) == Some(&kind::DONE);
    }

    /// A connection opened, in the place of one that stood or not.
    pub(crate) fn on_opened(&mut self, stood: bool) {
        self.ends_sent = 0;
        self.see(Mark::Superseded, u64::from(stood));
    }

    /// All marks of the world; `dallied`: its sender stayed after it was done.
    pub(crate) fn finish(mut self, dallied: bool) -> Coverage {
        self.see(Mark::Dallied, u64::from(dallied && !self.done_arrived));
        self.coverage
    }
}
