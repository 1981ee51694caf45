//! The events of a world, to know what a swarm of worlds has covered.

use std::fmt;

macro_rules! marks {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Something worth happening: a fault, or a mechanism of the protocol at work.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

marks! {
    /// A packet was lost at random.
    Loss,
    /// A packet was lost because the queue was full.
    QueueLoss,
    /// A packet was lost in an outage.
    OutageLoss,
    /// A packet was larger than the path.
    MtuLoss,
    /// The path became narrower than its packets, both ways and silently, and stayed so.
    Narrowed,
    /// One direction of the path took small packets only, too small for data or for control.
    Choked,
    /// The path became another one, of another length.
    AnotherWay,
    /// A host stood still for seconds.
    Slept,
    /// An end gave up because nothing moved on, though its peer answered.
    Stalled,
    /// A packet came while its host stood still.
    Starved,
    /// A sender went on in packets of another size.
    PacketSize,
    /// A packet was overtaken.
    Reorder,
    /// A packet arrived twice.
    Duplicate,
    /// A packet arrived with flipped bits.
    Corrupt,
    /// A packet was marked "congestion experienced".
    Marked,
    /// A sender's program was killed.
    SenderKilled,
    /// A receiver's program was killed.
    ReceiverKilled,
    /// A host said that nothing listens.
    Unreachable,
    /// An end got another address.
    Moved,
    /// The other end spoke to that address.
    Followed,
    /// A datagram went to an address without an end.
    Misdirected,
    /// An address was asked whether the peer is there.
    Challenged,
    /// An end got UNKNOWN for its connection.
    Unknown,
    /// An attacker's datagram was delivered.
    Attack,
    /// An OPEN was sent again.
    OpenRetried,
    /// A RESPONSE was sent again.
    ResponseRepeated,
    /// A receiver granted buffers with its RESPONSE.
    Greeted,
    /// A connection was opened by static keys.
    ByKeys,
    /// The passive end asked for a cookie.
    Cookie,
    /// The passive end refused.
    Refused,
    /// A connection took the place of one that stood.
    Superseded,
    /// A data packet was sent again.
    Resent,
    /// A data packet arrived that was here.
    DuplicateData,
    /// A sender made repair packets.
    RepairSent,
    /// Packets that were lost were made from repair packets.
    Repaired,
    /// The control timer expired: GO, OK, RESEND or DONE was repeated.
    ControlTimeout,
    /// A data timer expired.
    DataTimeout,
    /// A NULL-ACK was sent.
    NullAck,
    /// END was sent more than once.
    EndRepeated,
    /// A KEEPALIVE was sent.
    Keepalive,
    /// A peer was reported silent.
    Silent,
    /// A death timer ran out.
    DeathTimer,
    /// The sender had no buffer granted.
    WaitedForPermission,
    /// The sender had no buffer supplied.
    WaitedForSource,
    /// A client gave up, and the other one was notified.
    Quit,
    /// The receiver sent its DONE packet.
    DonePacket,
    /// The sender left before DONE arrived.
    Dallied,
    /// A machine dropped a datagram that it did not believe.
    Dropped,
    /// A machine aborted.
    Aborted,
    /// A transfer went over several subflows.
    Subflows,
    /// A subflow was lost before its transfer was over.
    SubflowLost,
    /// Several transfers shared a path.
    Crowd,
}

/// How often each [`Mark`] was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage(Vec<u64>);

impl Default for Coverage {
    fn default() -> Self {
        Self(vec![0; Mark::ALL.len()])
    }
}

impl Coverage {
    /// Counts `mark` so many times.
    pub fn see(&mut self, mark: Mark, times: u64) {
        self.0[mark as usize] += times;
    }

    /// How often it was seen.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// Adds one to every mark that was seen in `world`.
    pub fn add_world(&mut self, world: &Self) {
        for (sum, seen) in self.0.iter_mut().zip(&world.0) {
            *sum += u64::from(*seen > 0);
        }
    }

    /// Adds the counts of `other`.
    pub fn join(&mut self, other: &Self) {
        for (sum, seen) in self.0.iter_mut().zip(&other.0) {
            *sum += seen;
        }
    }

    /// The marks that were counted fewer than `least` times, with their counts.
    pub fn rarer_than(&self, least: u64) -> Vec<(Mark, u64)> {
        let counted = Mark::ALL.iter().map(|mark| (*mark, self.count(*mark)));
        counted.filter(|(_, count)| *count < least).collect()
    }
}

impl fmt::Display for Coverage {
    /// The marks that were seen, with their counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = Mark::ALL.iter().filter(|mark| self.count(**mark) > 0);
        for (n, mark) in seen.enumerate() {
            let between = if n == 0 { "" } else { ", " };
            write!(f, "{between}{mark:?} {}", self.count(*mark))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_count_once_however_much_happened_in_them() {
        let (mut swarm, mut world) = (Coverage::default(), Coverage::default());
        world.see(Mark::Loss, 7);
        swarm.add_world(&world);
        swarm.add_world(&world);
        assert_eq!((swarm.count(Mark::Loss), swarm.count(Mark::Quit)), (2, 0));
        assert_eq!(swarm.rarer_than(3).len(), Mark::ALL.len());
        assert_eq!(
            (world.to_string().as_str(), swarm.rarer_than(2).len()),
            ("Loss 7", Mark::ALL.len() - 1)
        );
    }
}
