//! The books of a link, which must balance.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use serde::Serialize;

/// A number of packets and of the IP bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// IP bytes: datagrams and the headers before them.
    pub bytes: u64,
}

impl Tally {
    /// One packet of `bytes` IP bytes.
    pub const fn packet(bytes: u64) -> Self {
        Self { packets: 1, bytes }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }
}

impl Add for Tally {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Tally {
    type Output = Self;
    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

/// What went into one direction of a path and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Pushed in.
    pub entered: Tally,
    /// Handed out, copies included.
    pub delivered: Tally,
    /// Inside now: waiting, being sent, or on the way.
    pub inside: Tally,
    /// Lost at random.
    pub lost_random: Tally,
    /// Lost to a policer.
    pub lost_policer: Tally,
    /// Lost because the queue was full, or to CoDel, PIE or RED.
    pub lost_queue: Tally,
    /// Lost because they were larger than the MTU.
    pub lost_mtu: Tally,
    /// Lost in an outage.
    pub lost_outage: Tally,
    /// Copies made.
    pub duplicated: Tally,
    /// Delivered, or on the way, with bits flipped.
    pub corrupted: Tally,
    /// Delivered, or on the way, out of order.
    pub reordered: Tally,
    /// Marked "congestion experienced".
    pub marked: Tally,
    /// IP bytes that wait now.
    pub queue_bytes: u64,
    /// The most IP bytes that ever waited.
    pub queue_bytes_max: u64,
    /// The longest that a packet, as it joined the queue, had to expect to wait.
    pub queue_time_max: Duration,
    /// What all packets that were let onto the link had waited for it, together.
    pub queue_time_sum: Duration,
}

impl Counters {
    /// Everything lost, for whatever cause.
    pub fn lost(&self) -> Tally {
        self.lost_random + self.lost_policer + self.lost_queue + self.lost_mtu + self.lost_outage
    }

    /// Whether everything that entered or was duplicated was delivered, lost, or is inside.
    pub fn balance(&self) -> bool {
        self.entered + self.duplicated == self.delivered + self.lost() + self.inside
    }
}
