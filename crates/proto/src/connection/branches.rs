//! Branches of a connection: connections opened from it without a handshake (`docs/protocol
//! §4.10`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::crypto::exporter::{Chain, ChainKeys};
use crate::negotiated::{HandshakeRtt, PacketOutcome};
use crate::time::{Instant, earliest};
use crate::wire::packet::Parameters;
use crate::wire::sealed::{Branch, HandshakePayload};

/// Most pending BRANCHes at either end; a further one is repeated by the peer, or not made.
pub(crate) const MAX_PENDING: usize = 64;
/// How far a number may be above the highest used one: each costs a step of the key chain.
const MAX_AHEAD: u64 = 2 * MAX_PENDING as u64;
/// Most skipped numbers that may still come; beyond that the oldest are dropped.
const MAX_SKIPPED: usize = 2 * MAX_PENDING;
/// First and longest interval at which BRANCH is repeated: after an outage that the branch survives
/// it must arrive soon.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// BRANCH is repeated as long as the unconfirmed branch lives, and no longer than this.
const MAX_DURATION: Duration = Duration::from_secs(300);

/// The branches of a connection.
#[derive(Debug)]
pub(crate) struct Branches {
    /// The negotiated parameters: those of branches are no looser.
    negotiated: HandshakePayload,
    /// Round trip of the handshake, if measured, and its upper bound.
    rtt: HandshakeRtt,
    side: BranchSide,
}

#[derive(Debug)]
enum BranchSide {
    /// The keys of the next number, and the unconfirmed branches.
    Active { chain: Chain, next: u64, unacked: Vec<UnackedBranch> },
    /// The unused keys, and the branches that the client has not taken.
    Passive { unused: UnusedKeys, arrived: VecDeque<(Branch, ChainKeys)> },
}

/// A BRANCH that is not confirmed by a packet on the branch.
#[derive(Debug)]
struct UnackedBranch {
    branch: Branch,
    id: u32,
    next: Instant,
    wait: Duration,
    until: Instant,
}

/// The keys of unused numbers: each is given out once and deleted.
#[derive(Debug)]
struct UnusedKeys {
    chain: Chain,
    highest: u64,
    /// Unused numbers below the highest.
    skipped: BTreeMap<u64, ChainKeys>,
}

/// A number that no active end can have reached.
#[derive(Debug, PartialEq, Eq)]
struct TooFar;

impl UnusedKeys {
    fn of(chain: Chain) -> Self {
        Self { chain, highest: 0, skipped: BTreeMap::new() }
    }

    /// The keys of this number, if it is unused and not too old.
    fn take(&mut self, number: u64) -> Result<Option<ChainKeys>, TooFar> {
        if number.saturating_sub(self.highest) > MAX_AHEAD {
            return Err(TooFar);
        }
        while self.highest < number {
            self.highest += 1;
            self.skipped.insert(self.highest, self.chain.step());
        }
        let keys = self.skipped.remove(&number);
        while self.skipped.len() > MAX_SKIPPED {
            self.skipped.pop_first();
        }
        Ok(keys)
    }
}

impl Branches {
    /// No branches yet, of a connection with these negotiated parameters. Its active end makes
    /// them.
    pub(crate) fn of(
        chain: Chain,
        active: bool,
        negotiated: HandshakePayload,
        rtt: HandshakeRtt,
    ) -> Self {
        let side = match active {
            true => BranchSide::Active { chain, next: 1, unacked: Vec::new() },
            false => {
                BranchSide::Passive { unused: UnusedKeys::of(chain), arrived: VecDeque::new() }
            }
        };
        Self { negotiated, rtt, side }
    }

    /// Round trip of the connection's handshake.
    pub(crate) fn rtt(&self) -> HandshakeRtt {
        self.rtt
    }

    /// The negotiated parameters of the connection.
    pub(crate) fn negotiated(&self) -> &HandshakePayload {
        &self.negotiated
    }

    /// Whether no parameter is looser than the negotiated one.
    fn holds(&self, offer: &HandshakePayload) -> bool {
        let (of, most) = (&offer.parameters, &self.negotiated.parameters);
        offer.ciphers == self.negotiated.ciphers
            && offer.table_bytes <= self.negotiated.table_bytes
            && of.buffer_bytes <= most.buffer_bytes
            && of.packet_bytes <= most.packet_bytes
            && of.burst.packets <= most.burst.packets
            && of.burst.interval >= most.burst.interval
            && of.max_outstanding <= most.max_outstanding
    }

    /// The wanted parameters, limited to the negotiated ones.
    fn within(&self, wanted: HandshakePayload) -> HandshakePayload {
        let (of, most) = (wanted.parameters, &self.negotiated.parameters);
        let mut parameters = Parameters {
            buffer_bytes: of.buffer_bytes.min(most.buffer_bytes),
            packet_bytes: of.packet_bytes.min(most.packet_bytes),
            max_outstanding: of.max_outstanding.min(most.max_outstanding),
            ..of
        };
        parameters.burst.packets = parameters.burst.packets.min(most.burst.packets);
        parameters.burst.interval = parameters.burst.interval.max(most.burst.interval);
        let table_bytes = wanted.table_bytes.min(self.negotiated.table_bytes);
        HandshakePayload { parameters, ciphers: self.negotiated.ciphers, table_bytes }
    }

    /// The next branch that the peer announced (passive end).
    pub(crate) fn take_arrived(&mut self) -> Option<(Branch, ChainKeys)> {
        match &mut self.side {
            BranchSide::Active { .. } => None,
            BranchSide::Passive { arrived, .. } => arrived.pop_front(),
        }
    }

    /// When BRANCH leaves again.
    pub(super) fn next_branch(&self) -> Option<Instant> {
        match &self.side {
            BranchSide::Active { unacked, .. } => earliest(unacked.iter().map(|of| Some(of.next))),
            BranchSide::Passive { .. } => None,
        }
    }

    /// The active end makes a branch with the wanted parameters, limited to the negotiated ones.
    /// Its BRANCH is due now.
    pub(super) fn make(
        &mut self,
        now: Instant,
        wanted: HandshakePayload,
    ) -> Option<(Branch, ChainKeys)> {
        let offer = self.within(wanted);
        let wait = (self.rtt.measured.unwrap_or_default() * 3 / 2).max(MIN_INTERVAL);
        let BranchSide::Active { chain, next: number, unacked } = &mut self.side else {
            return None;
        };
        if unacked.len() >= MAX_PENDING {
            return None;
        }
        let (branch, keys) = (Branch { number: *number, offer }, chain.step());
        *number += 1;
        let until = now + branch.offer.parameters.death_timer.min(MAX_DURATION);
        unacked.push(UnackedBranch { branch: branch.clone(), id: keys.id, next: now, wait, until });
        Some((branch, keys))
    }

    /// A packet of the branch with this id arrived.
    pub(super) fn on_confirmed(&mut self, id: u32) {
        if let BranchSide::Active { unacked, .. } = &mut self.side {
            unacked.retain(|of| of.id != id);
        }
    }

    /// The BRANCHes that are due. Each leaves again after a longer interval.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Branch> {
        let BranchSide::Active { unacked, .. } = &mut self.side else { return Vec::new() };
        let mut due = Vec::new();
        for of in unacked.iter_mut().filter(|of| of.next <= now) {
            due.push(of.branch.clone());
            of.next = now + of.wait;
            of.wait = (of.wait * 3 / 2).min(MAX_INTERVAL.max(of.wait));
        }
        unacked.retain(|of| of.next < of.until);
        due
    }

    /// A BRANCH: accepted if its number is new and no parameter is looser than negotiated.
    pub(super) fn handle(&mut self, branch: Branch) -> PacketOutcome {
        if !self.holds(&branch.offer) {
            return PacketOutcome::Dropped;
        }
        match &mut self.side {
            BranchSide::Active { .. } => {
                return PacketOutcome::Violation("a packet of the active end's");
            }
            BranchSide::Passive { arrived, .. } if arrived.len() >= MAX_PENDING => {}
            BranchSide::Passive { unused, arrived } => match unused.take(branch.number) {
                Ok(keys) => arrived.extend(keys.map(|keys| (branch, keys))),
                Err(TooFar) => {
                    return PacketOutcome::Violation("a branch whose number is too high");
                }
            },
        }
        PacketOutcome::Authentic
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::exporter::ExporterSecret;
    use crate::crypto::noise::SplitKeys;

    fn chain() -> Chain {
        let keys = SplitKeys { initiator_to_responder: [1; 32], responder_to_initiator: [2; 32] };
        ExporterSecret::of(&keys).branches()
    }

    #[test]
    fn branch_numbers_in_any_order_get_their_keys_once() {
        let mut all = chain();
        let ids: Vec<u32> = (0..200).map(|_| all.step().id).collect();
        let mut unused = UnusedKeys::of(chain());
        let mut take = |number: u64| unused.take(number).map(|keys| keys.map(|keys| keys.id));
        assert_eq!(take(0), Ok(None));
        for number in [1, 3, 2, 60, 59, 4] {
            assert_eq!(take(number), Ok(Some(ids[number as usize - 1])), "{number}");
            assert_eq!(take(number), Ok(None), "{number} twice");
        }
        assert_eq!(take(60 + MAX_AHEAD), Ok(Some(ids[59 + MAX_AHEAD as usize])));
        assert_eq!(take(6), Ok(None), "so old a number has no keys any more");
        assert_eq!(take(100), Ok(Some(ids[99])));
        for number in [61 + 2 * MAX_AHEAD, u64::MAX] {
            assert_eq!(take(number), Err(TooFar), "{number}");
        }
    }

    #[test]
    fn used_keys_are_deleted_and_unused_ones_are_bounded() {
        let mut unused = UnusedKeys::of(chain());
        for number in 1..1000 {
            assert!(unused.take(number).is_ok_and(|keys| keys.is_some()));
            assert!(unused.skipped.is_empty());
        }
        for round in 1..50 {
            assert!(unused.take(999 + round * MAX_AHEAD).is_ok());
            assert!(unused.skipped.len() <= MAX_SKIPPED);
        }
    }
}
