//! Deciding what becomes of single datagrams, for tests that lose or repeat the very one.

use netblt_proto::time::Instant;

use crate::check::Clear;
use crate::parcel::Side;

/// A datagram as it leaves, for those who would tamper with it.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The time.
    pub now: Instant,
    /// Whence it leaves.
    pub from: Side,
    /// All of it.
    pub bytes: &'a [u8],
    /// What can be read of it.
    pub clear: Clear,
    /// Buffers that have arrived in this connection.
    pub filled: u64,
    /// The receiver has given its verdict.
    pub judged: bool,
    /// The sender knows that everything arrived.
    pub sender_done: bool,
}

/// What is done to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// It takes the path as it is.
    Pass,
    /// It is lost.
    Drop,
    /// It takes the path twice.
    Twice,
}

/// Asks each of `all` about a datagram, so that those who count see everything; the strictest
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
