//! A virtual disk: the duration of operations, and when they may begin.
//!
//! It knows nothing of the data; [`crate::host`] moves the buffers.

use std::time::Duration;

use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

/// How fast a disk is. The default takes no time at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskOptions {
    /// Time from one operation to the next, whatever its size.
    pub latency: Duration,
    /// Bytes per second; `None` is no limit.
    pub rate: Option<Rate>,
    /// Times at which nothing begins.
    pub stalls: Vec<Stall>,
    /// The duration of the end: finding that nothing follows, or the flush.
    pub flush: Duration,
}

/// A time in which a disk begins nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// From when, counted from the world's beginning.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
}

/// One disk; it does one thing after the other.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    options: DiskOptions,
    free_at: Instant,
}

impl Disk {
    pub(crate) fn new(options: DiskOptions) -> Self {
        Self { options, free_at: Instant::EPOCH }
    }

    /// Begins to move `bytes` as soon as the disk is free; answers when they will have moved.
    pub(crate) fn start(&mut self, now: Instant, bytes: usize) -> Instant {
        let mut begin = now.max(self.free_at);
        for stall in &self.options.stalls {
            let from = Instant::EPOCH + stall.at;
            if (from..from + stall.lasts).contains(&begin) {
                begin = from + stall.lasts;
            }
        }
        let moving = self.options.rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes as u64));
        self.free_at = begin + self.options.latency + moving;
        self.free_at
    }

    /// The end of a flush that begins now.
    pub(crate) fn flushed(&self, now: Instant) -> Instant {
        now.max(self.free_at) + self.options.flush
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn operations_queue_and_stalls_put_them_off() {
        let mut disk = Disk::new(DiskOptions {
            latency: Duration::from_millis(1),
            rate: Some(Rate::from_bytes_per_second(1_000_000)),
            stalls: vec![Stall { at: Duration::from_millis(5), lasts: Duration::from_millis(20) }],
            flush: Duration::from_millis(3),
        });
        assert_eq!(disk.start(ms(0), 2000), ms(3));
        assert_eq!(disk.start(ms(0), 2000), ms(6));
        assert_eq!(disk.start(ms(1), 0), ms(26));
        assert_eq!((disk.flushed(ms(2)), disk.flushed(ms(40))), (ms(29), ms(43)));
    }
}
