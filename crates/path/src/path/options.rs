//! The options of a link, and how they change as time passes.

use std::time::Duration;

use netblt_proto::units::Rate;

use super::early::EarlyDrop;
use super::gates::{CoDel, Policer};
use crate::rng::Probability;

/// One direction of a path. The default is a perfect link: no limit, no delay, no fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// IP bytes per second; `None` is no limit, and zero lets nothing pass until it changes.
    pub rate: Option<Rate>,
    /// Time from leaving the link to arriving, one way.
    pub delay: Duration,
    /// Extra delay, wandering smoothly between zero and this much. It never reorders: by itself
    /// a wire does not, and [`LinkOptions::reorder`] asks for it.
    pub jitter: Duration,
    /// How many packets are lost behind the queue (they take up the link, as on radio).
    pub loss: Probability,
    /// Mean length in packets of a run of losses; `None` loses each packet independently. The
    /// share of [`LinkOptions::loss`] stays the same: both are what one measures on a path.
    pub loss_burst: Option<u32>,
    /// How many packets are held back so that others overtake them.
    pub reorder: Probability,
    /// How far such a packet is displaced.
    pub reorder_by: Displacement,
    /// How many packets arrive twice.
    pub duplicate: Probability,
    /// How many packets arrive with one to eight bits of their payload flipped.
    pub corrupt: Probability,
    /// Bounds the rate into the queue. `None`: no policer.
    pub policer: Option<Policer>,
    /// How much may wait for the link.
    pub queue: QueueLimit,
    /// Drops or marks packets at random as they join the queue: PIE or RED. `None`: neither.
    pub early_drop: Option<EarlyDrop>,
    /// Drops or marks packets that wait too long. `None`: no CoDel.
    pub codel: Option<CoDel>,
    /// From which queue on ECN-capable packets are marked; others just wait. `None`: never.
    pub ecn_mark: Option<MarkAbove>,
    /// The largest IP packet that passes, in bytes; larger ones vanish. `None`: any.
    pub mtu: Option<u16>,
    /// Whether the link works.
    pub outage: Outage,
    /// The changes, and their times. The path sorts them by time; equal times apply in order.
    pub schedule: Vec<Change>,
}

/// How much may wait for a link. The packet that is being sent does not wait any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueLimit {
    /// Unlimited. The caller bounds it by what it pushes.
    #[default]
    Unlimited,
    /// This many IP bytes.
    Bytes(u64),
    /// This many packets.
    Packets(u32),
    /// The data that the link sends in this time at its present rate; unlimited without a rate.
    Time(Duration),
}

impl QueueLimit {
    /// The queue that is commonly advised: one bandwidth-delay product, and at least 64 packets of
    /// 1,500 bytes, without which a short path could not take a burst.
    pub fn bdp(rate: Option<Rate>, rtt: Duration) -> Self {
        match rate {
            Some(rate) => Self::Bytes(rate.bytes_in(rtt).max(64 * 1500)),
            None => Self::Unlimited,
        }
    }
}

/// From which queue on packets are marked "congestion experienced" as they join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAbove {
    /// More than this many IP bytes wait.
    Bytes(u64),
    /// The queue takes longer than this to send.
    Time(Duration),
}

/// How far a reordered packet is displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// This many later packets overtake it, or fewer when none come for [`PATIENCE`].
    Packets(u32),
    /// It arrives this much later.
    Time(Duration),
}

/// A packet held back for others to overtake it is let go after this time without them.
pub const PATIENCE: Duration = Duration::from_millis(100);

impl Default for Displacement {
    fn default() -> Self {
        // One more than the two that TCP's three duplicate acknowledgements forgive.
        Self::Packets(3)
    }
}

/// Whether a link works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// It works.
    #[default]
    None,
    /// Packets that leave the queue vanish (a cable pulled somewhere along the path). Those in
    /// flight arrive.
    Drop,
    /// Nothing leaves the queue, which fills (a radio that waits for its next slot).
    Hold,
}

/// The changes of a link at one time; `None` leaves an option as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// When, counted from [`netblt_proto::time::Instant::EPOCH`].
    pub at: Duration,
    /// New rate. A packet in transmission finishes at the old one.
    pub rate: Option<Rate>,
    /// New delay of packets that leave the link from now on. None overtakes those before it.
    pub delay: Option<Duration>,
    /// New jitter.
    pub jitter: Option<Duration>,
    /// New share of packets lost.
    pub loss: Option<Probability>,
    /// New mean length of a run of losses, in packets.
    pub loss_burst: Option<u32>,
    /// New share of packets reordered.
    pub reorder: Option<Probability>,
    /// New share of packets duplicated.
    pub duplicate: Option<Probability>,
    /// New share of packets corrupted.
    pub corrupt: Option<Probability>,
    /// New limit of the queue; what waits already is kept.
    pub queue: Option<QueueLimit>,
    /// New largest IP packet, in bytes.
    pub mtu: Option<u16>,
    /// Whether the link works from now on.
    pub outage: Option<Outage>,
}

impl LinkOptions {
    /// Applies everything about `change` but its time.
    pub fn apply(&mut self, change: &Change) {
        fn set<T: Copy>(option: &mut T, new: Option<T>) {
            *option = new.unwrap_or(*option);
        }
        self.rate = change.rate.or(self.rate);
        set(&mut self.delay, change.delay);
        set(&mut self.jitter, change.jitter);
        set(&mut self.loss, change.loss);
        self.loss_burst = change.loss_burst.or(self.loss_burst);
        set(&mut self.reorder, change.reorder);
        set(&mut self.duplicate, change.duplicate);
        set(&mut self.corrupt, change.corrupt);
        set(&mut self.queue, change.queue);
        self.mtu = change.mtu.or(self.mtu);
        set(&mut self.outage, change.outage);
    }
}
