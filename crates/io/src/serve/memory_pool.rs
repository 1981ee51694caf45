//! The memory of a server's buffers. Every connection has its share, and early ones get half of
//! what is free beyond that, so that few are fast and many are served.

use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::Rate;

use crate::error::Error;
use crate::transfer::session::buffers;

/// Buffers that any transfer gets.
const LEAST: u64 = 2;

/// A fixed number of bytes, and the free part of it.
#[derive(Debug)]
pub(super) struct MemoryPool {
    share: u64,
    free: u64,
}

impl MemoryPool {
    /// `bytes` for `connections` at once.
    pub(super) fn new(bytes: u64, connections: u64) -> Self {
        Self { share: bytes / 2 / connections.max(1), free: bytes / 2 }
    }

    /// The size of the largest buffers, a power of two, of which a share holds enough for any
    /// transfer, each with so many bytes beside its data; `None` if there are none.
    pub(super) fn buffer_bytes(&self, beside: u32) -> Option<u32> {
        let sizes = (10..=26u32).rev().map(|power| 1u32 << power);
        let fits = |bytes: &u32| LEAST * (u64::from(*bytes) + u64::from(beside)) <= self.share;
        sizes.into_iter().find(fits)
    }

    /// At most `count` buffers of so many bytes, for one more connection, and the bytes that they
    /// take beyond the share.
    pub(super) fn take(
        &mut self,
        (count, bytes): (u64, usize),
        connections: usize,
    ) -> Result<(Vec<Buffer>, u64), Error> {
        let one = bytes.max(1) as u64;
        let count = count.max(LEAST);
        let own = (self.share / one).max(LEAST).min(count);
        let more = (count - own).min(self.free / 2 / one);
        let stock = buffers(u32::try_from(own + more).unwrap_or(u32::MAX), bytes, connections)?;
        self.free -= more * one;
        Ok((stock, more * one))
    }

    /// At most `count` more buffers of so many bytes for a connection that has buffers: how many,
    /// and their bytes.
    pub(super) fn more(&mut self, count: usize, bytes: usize) -> (usize, u64) {
        let one = bytes.max(1) as u64;
        let more = (count as u64).min(self.free / 2 / one);
        self.free -= more * one;
        (more as usize, more * one)
    }

    /// The same for one of several requests of a session, which have one share together. `beside`
    /// has their number and the taken part of the share. Returns the bytes from the share, too.
    /// Beyond the share each request gets a smaller part of what is free than the one before, or
    /// the first dozen would leave nothing for the others. A request whose path has use of more
    /// grows later. Empty if there is too little for a transfer.
    pub(super) fn take_beside(
        &mut self,
        (count, bytes): (u64, usize),
        connections: usize,
        (requests, taken): (usize, u64),
    ) -> Result<(Vec<Buffer>, u64, u64), Error> {
        let one = bytes.max(1) as u64;
        let count = count.max(LEAST);
        // The least that a share of its own would have, if no other request had any of it.
        let share = self.share.max(LEAST * one);
        let own = (share.saturating_sub(taken) / one).min(count);
        let requests = requests.max(1) as u64;
        let fair = self.free / 2 / one / (requests * requests);
        let more = (count - own).min(fair.max(LEAST.saturating_sub(own))).min(self.free / one);
        let count = u32::try_from(own + more).unwrap_or(u32::MAX);
        if own + more < LEAST {
            return Err(Error::Memory { count: LEAST as u32, bytes });
        }
        let stock = buffers(count, bytes, connections)?;
        self.free -= more * one;
        Ok((stock, own * one, more * one))
    }

    /// Returns bytes beyond a share.
    pub(super) fn give(&mut self, bytes: u64) {
        self.free += bytes;
    }
}

/// The size of the largest buffers with which all together keep to this rate, a power of two:
/// grants are whole buffers, and a client that ignores its share sends a whole grant at once.
pub(super) fn buffer_at(rate: Rate) -> u32 {
    const WITHIN: Duration = Duration::from_millis(100);
    let most = rate.bytes_in(WITHIN).clamp(1 << 16, 1 << 26);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_never_have_more_than_there_is() {
        let (all, connections, one) = (64 << 20, 64, 1 << 16);
        let mut pool = MemoryPool::new(all, connections);
        let (mut taken, mut held, mut beyond) = (0, Vec::new(), Vec::new());
        for _ in 0..connections {
            let (stock, more) = pool.take((1000, one), 0).expect("there is memory");
            assert!(stock.len() as u64 >= LEAST);
            taken += stock.len() * one;
            held.push(stock.len());
            beyond.push(more);
        }
        assert!(taken as u64 <= all, "{taken}");
        assert!(held[0] > 200 && held[63] >= 8, "{held:?}");
        beyond.into_iter().for_each(|bytes| pool.give(bytes));
        assert_eq!(pool.take((1000, one), 0).expect("there is memory").0.len(), held[0]);
    }

    #[test]
    fn several_requests_of_one_have_one_share() {
        let (all, connections, one) = (64 << 20, 64, 1 << 16);
        let mut pool = MemoryPool::new(all, connections);
        let (share, mut own, mut beyond) = (all / 2 / connections, 0, 0);
        let mut served = 0;
        let mut held = Vec::new();
        while let Ok((stock, of_share, more)) = pool.take_beside((1000, one), 0, (served + 1, own))
        {
            assert_eq!(stock.len() as u64 * one as u64, of_share + more);
            held.push(stock.len());
            (own, beyond, served) = (own + of_share, beyond + more, served + 1);
        }
        // The first ones are fast, and more are served than our clients ask at once.
        let left = all / 2 - beyond;
        assert!(own == share && left < 2 * one as u64 && served > 48, "{own} {left} {served}");
        assert!(held[0] > 200 && held[1] > 20 && held[40] == 2, "{held:?}");
        pool.give(beyond);
        assert_eq!(pool.take_beside((1, one), 0, (1, share)).expect("of what is free").1, 0);
    }

    /// The memory that a server has by itself, and clients that put as much at once as they do.
    #[test]
    fn a_session_that_puts_much_at_once_is_served_beside_others() {
        let (one, sessions) = (1_056_768, 4);
        let mut pool = MemoryPool::new(1 << 30, 64);
        for _ in 0..sessions {
            let mut own = 0;
            for requests in 1..=16 {
                let taken = pool.take_beside((64, one), 0, (requests, own));
                let (stock, of_share, _) = taken.expect("there is memory");
                assert!(stock.len() as u64 >= LEAST);
                own += of_share;
            }
        }
    }

    #[test]
    fn a_small_transfer_takes_few_buffers() {
        let mut pool = MemoryPool::new(64 << 20, 4);
        let (stock, more) = pool.take((1, 1 << 16), 0).expect("there is memory");
        assert_eq!((stock.len(), more), (2, 0));
        assert_eq!(pool.more(3, 1 << 16), (3, 3 << 16));
        let (most, bytes) = pool.more(usize::MAX, 1 << 16);
        assert_eq!((most, pool.free >> 16), (254, 255), "half of what was left");
        pool.give(bytes + (3 << 16));
        assert_eq!(pool.free, 32 << 20);
    }

    #[test]
    fn buffers_take_a_tenth_of_a_second_at_most_where_there_is_a_rate() {
        let at = |megabits: u64| buffer_at(Rate::from_bits_per_second(megabits * 1_000_000));
        assert_eq!([at(0), at(1), at(20), at(100)], [1 << 16, 1 << 16, 1 << 17, 1 << 20]);
    }

    #[test]
    fn buffers_are_as_large_as_shares_let_them_be() {
        assert_eq!(MemoryPool::new(1 << 30, 64).buffer_bytes(1 << 16), Some(2 << 20));
        assert_eq!(MemoryPool::new(16 << 20, 64).buffer_bytes(1 << 10), Some(1 << 15));
        assert_eq!(MemoryPool::new(1 << 10, 64).buffer_bytes(1 << 10), None);
    }
}
