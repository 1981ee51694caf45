//! The counts of data: packets, bytes, buffers, and the time of the first pass.
//!
//! Inputs: new packets, duplicates and restored packets. Outputs: the fields of [`Stats`] about
//! data.

use std::time::Duration;

use crate::stats::{Stats, SteadyState};
use crate::time::Instant;

/// Counts of data that arrived.
#[derive(Debug, Default)]
pub(super) struct DataStats {
    counts: Stats,
    first_pass: SteadyState,
}

impl DataStats {
    /// A new packet of `bytes` arrived at `now`. `burst_interval`: if it belongs to the first pass,
    /// the interval of bursts.
    pub(super) fn on_new(&mut self, now: Instant, bytes: usize, burst_interval: Option<Duration>) {
        self.counts.data_packets_received += 1;
        self.counts.first_data_at.get_or_insert(now);
        self.counts.image_bytes += bytes as u64;
        if let Some(interval) = burst_interval {
            self.first_pass.advance(now, interval, &mut self.counts);
        }
        self.first_pass.moved(bytes);
    }

    /// Whether a packet of the first pass at `now` would begin a burst, which are `interval` apart.
    pub(super) fn begins_burst(&self, now: Instant, interval: Duration) -> bool {
        self.first_pass.begins(now, interval)
    }

    /// A new packet of `bytes` arrived, neither the first one nor the first of its burst.
    pub(super) fn on_expected(&mut self, bytes: usize) {
        self.counts.data_packets_received += 1;
        self.counts.image_bytes += bytes as u64;
        self.first_pass.moved(bytes);
    }

    /// A duplicate arrived.
    pub(super) fn on_duplicate(&mut self) {
        self.counts.data_packets_duplicate += 1;
    }

    /// A repair packet arrived.
    pub(super) fn on_repair(&mut self) {
        self.counts.repair_packets_received += 1;
    }

    /// Repair packets restored this many packets, with `bytes`.
    pub(super) fn on_restored(&mut self, packets: u64, bytes: usize) {
        self.counts.packets_repaired += packets;
        self.counts.image_bytes += bytes as u64;
        self.first_pass.moved(bytes);
    }

    /// A buffer that had `bytes` is granted again, and they are void.
    pub(super) fn on_renewed(&mut self, bytes: u64) {
        self.counts.image_bytes = self.counts.image_bytes.saturating_sub(bytes);
    }

    /// A buffer is complete at `now`.
    pub(super) fn on_complete(&mut self, now: Instant) {
        // It may consist of repair packets alone.
        self.counts.first_data_at.get_or_insert(now);
        self.counts.buffers_done += 1;
    }

    /// The sender's client says what limits the transfer (`docs/protocol §8.6`).
    pub(super) fn on_limit(&mut self, limit: u8) {
        self.counts.limit = limit;
    }

    /// The counts so far; those of other components are 0.
    pub(super) fn counts(&self) -> &Stats {
        &self.counts
    }
}
