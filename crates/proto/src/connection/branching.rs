//! What a connection knows of those that branch from it (`docs/protocol.md §4.10`).

use std::collections::VecDeque;
use std::time::Duration;

use super::single::Single;
use super::{Closing, Connection};
use crate::crypto::cipher::Cipher;
use crate::crypto::noise::SplitKeys;
use crate::crypto::stem::Root;
use crate::link::Link;
use crate::machine::Reason;
use crate::negotiated::Taken;
use crate::time::{Instant, earliest};
use crate::wire::packet::Parameters;
use crate::wire::sealed::{Branch, Offer};

/// BRANCHes that wait at either end at once; what is beyond comes again or is not made.
pub(crate) const MAX_WAITING: usize = 64;
/// A number so far below the highest that was taken may have been taken, too.
const NUMBERS: u64 = 1024;
const WORDS: usize = (NUMBERS / 64) as usize;
/// How long an answer to BRANCH is waited for at first, and at most before it is said again: after
/// an outage that the branch outlives it is to be heard of soon.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// It is said for as long as the branch lives that nothing is heard of, and no longer than this.
const LONGEST: Duration = Duration::from_secs(300);

/// The branches of a connection.
#[derive(Debug)]
pub(crate) struct Branches {
    root: Root,
    /// What the connection settled: no branch has anything looser.
    settled: Offer,
    /// Round trip of the opening, if it was measured, and the longest that it may have been.
    pub(crate) rtts: (Option<Duration>, Option<Duration>),
    side: Side,
}

#[derive(Debug)]
enum Side {
    /// The next number, and those of which nothing was heard.
    Active { next: u64, waiting: Vec<Waiting> },
    /// The numbers that were taken, and those that the client has not.
    Passive { taken: Numbers, come: VecDeque<Branch> },
}

/// A BRANCH of which nothing was heard.
#[derive(Debug)]
struct Waiting {
    branch: Branch,
    next: Instant,
    wait: Duration,
    until: Instant,
}

/// Which numbers were taken.
#[derive(Debug, Default)]
struct Numbers {
    highest: u64,
    /// Bit `number % NUMBERS` tells of a number up to the highest.
    seen: [u64; WORDS],
}

impl Numbers {
    /// Whether a number is taken now, and was not before.
    fn take(&mut self, number: u64) -> bool {
        if number == 0 || self.highest.saturating_sub(number) >= NUMBERS {
            return false;
        }
        if number > self.highest {
            let new = (number - self.highest).min(NUMBERS);
            for below in 0..new {
                let (word, bit) = self.bit(number - below);
                *word &= !bit;
            }
            self.highest = number;
        }
        let (word, bit) = self.bit(number);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    fn bit(&mut self, number: u64) -> (&mut u64, u64) {
        let at = number % NUMBERS;
        (&mut self.seen[(at / 64) as usize], 1 << (at % 64))
    }
}

impl Branches {
    /// None yet, of a connection that settled this. Its active end makes them.
    pub(crate) fn of(
        root: Root,
        active: bool,
        settled: Offer,
        rtts: (Option<Duration>, Option<Duration>),
    ) -> Self {
        let side = match active {
            true => Side::Active { next: 1, waiting: Vec::new() },
            false => Side::Passive { taken: Numbers::default(), come: VecDeque::new() },
        };
        Self { root, settled, rtts, side }
    }

    /// What the connection settled.
    pub(crate) fn settled(&self) -> &Offer {
        &self.settled
    }

    /// The keys of a branch.
    pub(crate) fn keys(&self, number: u64) -> SplitKeys {
        self.root.branch(number)
    }

    /// Whether there is nothing in it that is looser than what was settled.
    fn holds(&self, offer: &Offer) -> bool {
        let (of, most) = (&offer.parameters, &self.settled.parameters);
        offer.ciphers == self.settled.ciphers
            && offer.table_bytes <= self.settled.table_bytes
            && of.buffer_bytes <= most.buffer_bytes
            && of.packet_bytes <= most.packet_bytes
            && of.burst.packets <= most.burst.packets
            && of.burst.interval >= most.burst.interval
            && of.max_outstanding <= most.max_outstanding
    }

    /// What is wanted, as far as it was settled.
    fn within(&self, wanted: Offer) -> Offer {
        let (of, most) = (wanted.parameters, &self.settled.parameters);
        let mut parameters = Parameters {
            buffer_bytes: of.buffer_bytes.min(most.buffer_bytes),
            packet_bytes: of.packet_bytes.min(most.packet_bytes),
            max_outstanding: of.max_outstanding.min(most.max_outstanding),
            ..of
        };
        parameters.burst.packets = parameters.burst.packets.min(most.burst.packets);
        parameters.burst.interval = parameters.burst.interval.max(most.burst.interval);
        let table_bytes = wanted.table_bytes.min(self.settled.table_bytes);
        Offer { parameters, ciphers: self.settled.ciphers, table_bytes }
    }

    /// The next one that was told of here (passive end).
    pub(crate) fn take_come(&mut self) -> Option<Branch> {
        match &mut self.side {
            Side::Active { .. } => None,
            Side::Passive { come, .. } => come.pop_front(),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.side {
            Side::Active { waiting, .. } => earliest(waiting.iter().map(|of| Some(of.next))),
            Side::Passive { .. } => None,
        }
    }
}

impl Connection {
    /// From now on connections may branch from this one.
    pub(crate) fn let_branch(&mut self, branches: Branches) {
        self.branches = Some(Box::new(branches));
    }

    /// Its branches, if there may be any now.
    pub(crate) fn branches(&mut self) -> Option<&mut Branches> {
        self.branches.as_deref_mut().filter(|_| self.closing == Closing::No)
    }

    /// The active end makes a branch with this id and as much of what is wanted as was settled: it
    /// is told of next.
    pub(crate) fn make_branch(&mut self, now: Instant, id: u32, wanted: Offer) -> Option<Branch> {
        let branches = self.branches.as_mut().filter(|_| self.closing == Closing::No)?;
        let offer = branches.within(wanted);
        let (wait, _) = branches.rtts;
        let wait = (wait.unwrap_or_default() * 3 / 2).max(SHORTEST_WAIT);
        let Side::Active { next: number, waiting } = &mut branches.side else { return None };
        if waiting.len() >= MAX_WAITING {
            return None;
        }
        let branch = Branch { number: *number, connection: id, offer };
        *number += 1;
        let until = now + branch.offer.parameters.death_timer.min(LONGEST);
        waiting.push(Waiting { branch: branch.clone(), next: now, wait, until });
        self.tick_branches(now);
        Some(branch)
    }

    /// The cipher of its packets, where they have one.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        self.link.cipher()
    }

    /// The link of a branch with this id, of these keys for what leaves and what comes.
    pub(crate) fn link_of_branch(
        &self,
        id: u32,
        (out, into): ([u8; 32], [u8; 32]),
    ) -> Option<Link> {
        Some(Link::sealed(id, id, self.cipher()?, out, into))
    }

    /// Something was heard of the branch with this id.
    pub(crate) fn on_branch_heard(&mut self, id: u32) {
        if let Some(Side::Active { waiting, .. }) = self.branches.as_mut().map(|of| &mut of.side) {
            waiting.retain(|of| of.branch.connection != id);
        }
    }

    /// The stem of this branch has closed: nothing tells the peer of the branch any more.
    pub(crate) fn on_stem_closed(&mut self, now: Instant, reason: &Reason) {
        if self.half_open {
            self.outbox.clear();
            self.close(now, reason.clone());
        }
    }

    /// Says the BRANCHes that are due.
    pub(super) fn tick_branches(&mut self, now: Instant) {
        let Some(Side::Active { waiting, .. }) = self.branches.as_mut().map(|of| &mut of.side)
        else {
            return;
        };
        for of in waiting.iter_mut().filter(|of| of.next <= now) {
            self.outbox.push(Single::Branch(Box::new(of.branch.clone())));
            of.next = now + of.wait;
            of.wait = (of.wait * 3 / 2).min(LONGEST_WAIT.max(of.wait));
        }
        waiting.retain(|of| of.next < of.until);
    }

    /// A BRANCH: taken if there may be one, it is new, and nothing in it is looser than it may be.
    pub(super) fn handle_branch(&mut self, branch: Branch) -> Taken {
        let Some(branches) = self.branches.as_mut().filter(|_| self.closing == Closing::No) else {
            return Taken::Dropped;
        };
        if !branches.holds(&branch.offer) {
            return Taken::Dropped;
        }
        match &mut branches.side {
            Side::Active { .. } => return Taken::Violation("a packet of the active end's"),
            Side::Passive { taken, come } => {
                if come.len() < MAX_WAITING && taken.take(branch.number) {
                    come.push_back(branch);
                }
            }
        }
        Taken::Authentic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_once_and_none_far_below() {
        let mut numbers = Numbers::default();
        assert!(!numbers.take(0));
        assert!(numbers.take(1) && numbers.take(3) && numbers.take(2));
        assert!((1..=3).all(|number| !numbers.take(number)));
        assert!(numbers.take(NUMBERS + 1));
        assert!(!numbers.take(1), "it lies too far below");
        assert!((4..=NUMBERS).all(|number| numbers.take(number)));
        assert!((2..=NUMBERS + 1).all(|number| !numbers.take(number)));
        assert!(numbers.take(u64::MAX));
        assert!(!numbers.take(u64::MAX) && !numbers.take(u64::MAX - NUMBERS));
        assert!(numbers.take(u64::MAX - NUMBERS + 1) && numbers.take(u64::MAX - 1));
    }
}
