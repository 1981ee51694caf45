//! The buffers of a transfer: how many there are, and the making of more where the path can use
//! them, up to a bound (`docs/protocol §6.2`).

use netblt_proto::buffer::Buffer;
use netblt_proto::buffer_autotuning::BufferAutotuner;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::FIRST_BUFFERS;
use netblt_proto::time::Instant;

/// Memory that must be left for all else when the buffers are there.
pub(crate) const SPARE_BYTES: usize = 16 << 20;

/// Made in one turn of the loop at most: each is a call of the system.
const AT_ONCE: usize = 16;

/// Bytes that are read for an unknown receiver before anything has arrived there. That is more than
/// a sender has in flight in the first round trip on an unknown path. A receiver that asks and
/// leaves costs no more than reading and hashing that.
const ASKED_BYTES: usize = 4 << 20;
/// And once something has arrived: what 1 Gbit/s hold in 130 ms.
const ARRIVING_BYTES: usize = 16 << 20;
/// How many buffers may be in use, beyond those, for each one that has arrived: a sender at most
/// doubles its flight with each round trip.
const FOR_EACH: u64 = 2;

/// The number of buffers of a transfer.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    /// How many there are.
    made: usize,
    /// How many there may be.
    most: usize,
    /// Bytes in each.
    bytes: usize,
    /// The number that the path can use, and the most that may be outstanding, while a connection
    /// is open and there is memory.
    open: Option<(BufferAutotuner, usize)>,
    /// Bytes that arrived over other subflows than the main connection.
    beside: u64,
    /// Buffers that are not in use before the peer has shown that it accepts data.
    reserved: Vec<Buffer>,
    /// How many of those that there were at first are in use.
    in_use: u64,
}

impl BufferPool {
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

    /// Starts with this stock, for a peer that may only have asked. The part that it leaves in
    /// `stock` is in use from the start, and the rest as fast as data arrive.
    pub(crate) fn begin_unvalidated(&mut self, stock: &mut Vec<Buffer>) {
        self.begin(stock);
        let first = self.first(ASKED_BYTES).min(stock.len());
        (self.reserved, self.in_use) = (stock.split_off(first), first as u64);
    }

    /// How many buffers so many bytes are; at least as many as any transfer needs.
    fn first(&self, bytes: usize) -> usize {
        (bytes / self.bytes.max(1)).max(2)
    }

    /// The reserved buffers that may be used now.
    fn due(&mut self, end: &Endpoint) -> Vec<Buffer> {
        if self.reserved.is_empty() {
            return Vec::new();
        }
        let (arrived, _) = end.moved();
        let first = self.first(if arrived == 0 { ASKED_BYTES } else { ARRIVING_BYTES }) as u64;
        let arrived = arrived / self.bytes.max(1) as u64;
        let due = first.saturating_add(arrived.saturating_mul(FOR_EACH));
        let more = due.saturating_sub(self.in_use).min(self.reserved.len() as u64);
        self.in_use += more;
        self.reserved.split_off(self.reserved.len() - more as usize)
    }

    /// A connection is open, with buffers of so many bytes of data, and so many outstanding.
    pub(crate) fn open(&mut self, (buffer_bytes, agreed): (u32, u32)) {
        (self.open, self.beside) = (Some((BufferAutotuner::new(buffer_bytes), agreed as usize)), 0);
    }

    /// Raises the bound to this, if it is lower.
    pub(crate) fn allow_in_all(&mut self, most: u32) {
        self.most = self.most.max(most as usize);
    }

    /// Raises the bound by this.
    pub(crate) fn allow(&mut self, more: usize) {
        self.most += more;
    }

    /// Counts bytes that arrived over another subflow than the main connection.
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

    /// The room for waiting buffers.
    pub(crate) fn room(&self) -> usize {
        self.open.map_or(0, |(_, agreed)| agreed).max(self.most)
    }

    /// How many the path can use, as far as known. If the usual number is enough, none are wanted:
    /// there are fewer for little data, or for little memory.
    pub(crate) fn wanted(&mut self, now: Instant, end: &Endpoint) -> usize {
        let Some((need, agreed)) = &mut self.open else { return 0 };
        let (moved, rtt) = end.moved();
        let wanted = Some(need.buffers(now, moved + self.beside, rtt));
        let wanted = wanted.filter(|wanted| *wanted > FIRST_BUFFERS);
        (wanted.unwrap_or(0) as usize).min(*agreed)
    }

    /// Makes the buffers that the path can use, some at a time, or releases reserved ones. Without
    /// memory it leaves their number as it is.
    pub(crate) fn make(&mut self, now: Instant, end: &Endpoint) -> Vec<Buffer> {
        let due = self.due(end);
        if due.is_empty() { self.allocate(now, end) } else { due }
    }

    fn allocate(&mut self, now: Instant, end: &Endpoint) -> Vec<Buffer> {
        let wanted = self.wanted(now, end).min(self.most);
        let count = wanted.saturating_sub(self.made).min(AT_ONCE);
        if count == 0 || self.bytes == 0 {
            return Vec::new();
        }
        // Other growing state needs some memory, too.
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

    fn endpoint_without_data() -> Endpoint {
        let config = Config::new(Wire::Sealed, Role::Sender);
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        Endpoint::active(config, peer, Instant::EPOCH, [7; 32])
    }

    #[test]
    fn before_anything_arrives_part_of_the_buffers_is_in_use() {
        let end = endpoint_without_data();
        for (count, bytes, first) in [(64, 1 << 20, 4), (3, 1 << 20, 3), (4, 32 << 20, 2)] {
            let mut stock: Vec<Buffer> = (0..count).map(|_| Buffer::new(bytes)).collect();
            let mut pool = BufferPool::default();
            pool.begin_unvalidated(&mut stock);
            assert_eq!((stock.len(), pool.made()), (first, count));
            assert!(pool.make(Instant::EPOCH, &end).is_empty());
        }
    }

    #[test]
    fn buffers_are_not_made_without_a_known_use() {
        let end = endpoint_without_data();
        let stock = [Buffer::new(1000), Buffer::new(1000)];
        let mut pool = BufferPool::new(&stock);
        pool.allow_in_all(100);
        assert!(pool.make(Instant::EPOCH, &end).is_empty(), "nothing is open");
        pool.open((1000, 300));
        assert!(pool.make(Instant::EPOCH, &end).is_empty(), "nothing has moved");
        assert_eq!((pool.made(), pool.most(), pool.room()), (2, 100, 300));
        pool.allow(7);
        assert_eq!(pool.most(), 107);
        pool.allow_in_all(1);
        assert_eq!(pool.most(), 107, "what may be stays");
    }
}
