//! How many buffers a transfer has, and the making of more where the path has use of them
//! (`docs/protocol.md §6.2`), up to what it may have.

use netblt_proto::buffer::Buffer;
use netblt_proto::buffer_autotuning::Need;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::FIRST_BUFFERS;
use netblt_proto::time::Instant;

/// Memory that must be left for all else when the buffers are there.
pub(crate) const SPARE_BYTES: usize = 16 << 20;

/// Made in one turn of the loop at most: each is a call of the system.
const AT_ONCE: usize = 16;

/// Bytes that are read for a stranger before anything has arrived: more than a sender that knows
/// nothing of a path has in the air in its first round trip. Who asks and leaves costs no more than
/// reading and hashing that.
const ASKED_BYTES: usize = 4 << 20;
/// And once something has arrived: what 1 Gbit/s hold in 130 ms.
const ARRIVING_BYTES: usize = 16 << 20;
/// How many buffers may be in use, beyond those, for each one that has arrived: a sender doubles
/// what it has in the air with each round trip at most.
const FOR_EACH: u64 = 2;

/// The number of buffers of a transfer.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// How many there are.
    made: usize,
    /// How many there may be.
    most: usize,
    /// Bytes in each.
    bytes: usize,
    /// What the path has use of, and how many may be outstanding; while a connection is open and
    /// there is memory.
    open: Option<(Need, usize)>,
    /// Bytes that arrived over other lanes than the main connection.
    beside: u64,
    /// Buffers that there are, but not in use before the peer has shown that it takes what comes.
    held_back: Vec<Buffer>,
    /// How many of those that there were at first are in use.
    in_use: u64,
}

impl Growth {
    /// There is this, and there may be no more.
    pub(crate) fn new(stock: &[Buffer]) -> Self {
        let mut this = Self::default();
        this.begin(stock);
        this
    }

    /// There is this.
    pub(crate) fn begin(&mut self, stock: &[Buffer]) {
        self.made = stock.len();
        self.most = self.most.max(self.made);
        self.bytes = stock.first().map_or(0, Buffer::capacity);
    }

    /// There is this, for a peer that may only have asked: what it leaves in `stock` is in use from
    /// the beginning, and the rest as fast as what comes arrives.
    pub(crate) fn begin_unproved(&mut self, stock: &mut Vec<Buffer>) {
        self.begin(stock);
        let first = self.first(ASKED_BYTES).min(stock.len());
        (self.held_back, self.in_use) = (stock.split_off(first), first as u64);
    }

    /// How many buffers so many bytes are, those that any transfer needs at least.
    fn first(&self, bytes: usize) -> usize {
        (bytes / self.bytes.max(1)).max(2)
    }

    /// Of what is held back, that whose turn it is.
    fn due(&mut self, end: &Endpoint) -> Vec<Buffer> {
        if self.held_back.is_empty() {
            return Vec::new();
        }
        let (arrived, _) = end.moved();
        let first = self.first(if arrived == 0 { ASKED_BYTES } else { ARRIVING_BYTES }) as u64;
        let arrived = arrived / self.bytes.max(1) as u64;
        let due = first.saturating_add(arrived.saturating_mul(FOR_EACH));
        let more = due.saturating_sub(self.in_use).min(self.held_back.len() as u64);
        self.in_use += more;
        self.held_back.split_off(self.held_back.len() - more as usize)
    }

    /// A connection is open, with buffers of so many bytes of data, so many outstanding.
    pub(crate) fn open(&mut self, (buffer_bytes, agreed): (u32, u32)) {
        (self.open, self.beside) = (Some((Need::new(buffer_bytes), agreed as usize)), 0);
    }

    /// There may be so many, if not more.
    pub(crate) fn allow_in_all(&mut self, most: u32) {
        self.most = self.most.max(most as usize);
    }

    /// There may be so many more.
    pub(crate) fn allow(&mut self, more: usize) {
        self.most += more;
    }

    /// So many bytes arrived over another lane than the main connection.
    pub(crate) fn moved_beside(&mut self, bytes: usize) {
        self.beside += bytes as u64;
    }

    /// How many there are.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// For how many there is to be room where they wait.
    pub(crate) fn room(&self) -> usize {
        self.open.map_or(0, |(_, agreed)| agreed).max(self.most)
    }

    /// How many the path has use of, as far as is known. What the usual number fills wants none:
    /// there are fewer for little data, or for little memory.
    pub(crate) fn wanted(&mut self, now: Instant, end: &Endpoint) -> usize {
        let Some((need, agreed)) = &mut self.open else { return 0 };
        let (moved, rtt) = end.moved();
        let wanted = Some(need.buffers(now, (moved + self.beside, rtt)));
        let wanted = wanted.filter(|wanted| *wanted > FIRST_BUFFERS);
        (wanted.unwrap_or(0) as usize).min(*agreed)
    }

    /// Makes what the path has use of, some at a time, and brings what was held back. Where there
    /// is no memory it leaves it at those that there are.
    pub(crate) fn make(&mut self, now: Instant, end: &Endpoint) -> Vec<Buffer> {
        let due = self.due(end);
        if due.is_empty() { self.made_anew(now, end) } else { due }
    }

    fn made_anew(&mut self, now: Instant, end: &Endpoint) -> Vec<Buffer> {
        let wanted = self.wanted(now, end).min(self.most);
        let count = wanted.saturating_sub(self.made).min(AT_ONCE);
        if count == 0 || self.bytes == 0 {
            return Vec::new();
        }
        // What else is to grow is not to find that nothing is left.
        let spare = Buffer::try_new(SPARE_BYTES);
        let made: Vec<Buffer> = match spare {
            Ok(_) => (0..count).map_while(|_| Buffer::try_new(self.bytes).ok()).collect(),
            Err(_) => Vec::new(),
        };
        self.made += made.len();
        self.open = self.open.filter(|_| made.len() == count);
        made
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use netblt_proto::config::{Config, Role, Wire};

    use super::*;

    fn nothing_has_arrived() -> Endpoint {
        let config = Config::new(Wire::Sealed, Role::Sender);
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        Endpoint::active(config, peer, Instant::EPOCH, [7; 32])
    }

    #[test]
    fn who_has_taken_nothing_has_a_part_of_what_there_is() {
        let end = nothing_has_arrived();
        for (count, bytes, first) in [(64, 1 << 20, 4), (3, 1 << 20, 3), (4, 32 << 20, 2)] {
            let mut stock: Vec<Buffer> = (0..count).map(|_| Buffer::new(bytes)).collect();
            let mut growth = Growth::default();
            growth.begin_unproved(&mut stock);
            assert_eq!((stock.len(), growth.made()), (first, count));
            assert!(growth.make(Instant::EPOCH, &end).is_empty());
        }
    }

    #[test]
    fn what_is_not_known_to_be_of_use_is_not_made() {
        let end = nothing_has_arrived();
        let stock = [Buffer::new(1000), Buffer::new(1000)];
        let mut growth = Growth::new(&stock);
        growth.allow_in_all(100);
        assert!(growth.make(Instant::EPOCH, &end).is_empty(), "nothing is open");
        growth.open((1000, 300));
        assert!(growth.make(Instant::EPOCH, &end).is_empty(), "nothing has moved");
        assert_eq!((growth.made(), growth.most(), growth.room()), (2, 100, 300));
        growth.allow(7);
        assert_eq!(growth.most(), 107);
        growth.allow_in_all(1);
        assert_eq!(growth.most(), 107, "what may be stays");
    }
}
