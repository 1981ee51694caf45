//! Deciding what becomes of single datagrams, for tests that lose or repeat the very one.

use netblt_proto::time::Instant;

use crate::check::Clear;
use crate::side::Side;

/// A datagram as it leaves, for tampering.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The time at which it leaves.
    pub now: Instant,
    /// The end that it leaves.
    pub from: Side,
    /// The whole datagram.
    pub bytes: &'a [u8],
    /// Its clear bytes.
    pub clear: Clear,
    /// Buffers that have arrived in this connection.
    pub filled: u64,
    /// Whether the receiver has given its verdict.
    pub judged: bool,
    /// Whether the sender knows that everything arrived.
    pub sender_done: bool,
}

/// The treatment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// It takes the path as it is.
    Pass,
    /// It is lost.
    Drop,
    /// It takes the path twice.
    Twice,
}

/// Asks each of `all` about a datagram, so that counters see everything. The strictest answer
/// prevails.
pub(crate) fn ask_all(all: &mut [Tampering], sight: &Sight<'_>) -> Tamper {
    let decisions = all.iter_mut().map(|tamper| tamper(sight));
    decisions.fold(Tamper::Pass, |all, one| match (all, one) {
        (Tamper::Drop, _) | (_, Tamper::Drop) => Tamper::Drop,
        (Tamper::Twice, _) | (_, Tamper::Twice) => Tamper::Twice,
        _ => Tamper::Pass,
    })
}

/// Decides about datagrams.
pub(crate) type Tampering = Box<dyn FnMut(&Sight<'_>) -> Tamper>;
