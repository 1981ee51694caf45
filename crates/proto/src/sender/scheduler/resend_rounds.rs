//! Evidence of progress in RESENDs, on a wire without REPORTs (`docs/protocol §7.6`). A receiver
//! requests all missing packets in each round, so a smaller round shows that packets arrived.
//!
//! Inputs: the ranges of one buffer's RESENDs. Output: whether a round was smaller than before, and
//! how many in a row were not.

use crate::wire::packet::IndexRange;
use crate::wire::ranges::RangeSet;

/// The rounds of one buffer.
#[derive(Debug, Default)]
pub(super) struct ResendRounds {
    /// Packets requested in this round.
    asked: RangeSet,
    /// Packets in the smallest round before.
    fewest: Option<u32>,
    /// The highest first packet of any round before.
    lowest: Option<u32>,
    /// Rounds in a row that were no smaller, and the count of signs then.
    futile: (u32, u64),
}

/// Evidence in one RESEND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResendEvidence {
    /// A round was smaller than all before it, or began at a higher packet than all.
    pub(crate) shorter: bool,
    /// Rounds in a row that were not.
    pub(crate) futile: u32,
}

impl ResendRounds {
    /// `range` is requested, of which `waiting` is still to be sent again. A packet that is
    /// requested, sent, and requested once more begins another round. `signs`: the signs of
    /// progress so far, of any kind.
    pub(super) fn on_request(
        &mut self,
        range: IndexRange,
        waiting: &RangeSet,
        signs: u64,
    ) -> ResendEvidence {
        let len = |cut: IndexRange| cut.end - cut.start;
        let sent = |cut| waiting.intersect(cut).map(len).sum::<u32>() < len(cut);
        let again = self.asked.intersect(range).any(sent);
        let mut shorter = false;
        if again {
            let round = std::mem::take(&mut self.asked);
            let (size, first) = (round.len(), round.first());
            // A receiver that misses more than fits into its RESENDs shows progress by a higher
            // first packet.
            shorter = self.fewest.is_some_and(|fewest| size < fewest)
                || self.lowest.is_some_and(|lowest| first > Some(lowest));
            self.fewest = Some(self.fewest.map_or(size, |fewest| fewest.min(size)));
            self.lowest = self.lowest.max(first);
            let before = if self.futile.1 == signs { self.futile.0 } else { 0 };
            self.futile = (before + 1, signs);
        }
        self.asked.insert(range);
        let futile = if self.futile.1 == signs && !shorter { self.futile.0 } else { 0 };
        ResendEvidence { shorter, futile }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, end: u32) -> IndexRange {
        IndexRange { start, end }
    }

    #[test]
    fn a_repeated_packet_begins_a_round_and_a_smaller_round_is_progress() {
        let (mut rounds, none) = (ResendRounds::default(), RangeSet::new());
        // One RESEND at a time, unordered, and repeated before the packets are sent.
        let mut waiting = RangeSet::new();
        for (start, end) in [(0, 5), (20, 30), (8, 10), (20, 30)] {
            assert_eq!(
                rounds.on_request(range(start, end), &waiting, 0),
                ResendEvidence::default()
            );
            waiting.insert(range(start, end));
        }
        // The first round is over: it is not known yet whether it was a long one.
        let again = rounds.on_request(range(0, 5), &none, 0);
        assert_eq!(again, ResendEvidence { shorter: false, futile: 1 });
        rounds.on_request(range(20, 30), &none, 0);
        // 15 instead of 17.
        let again = rounds.on_request(range(0, 5), &none, 0);
        assert_eq!(again, ResendEvidence { shorter: true, futile: 0 });
        assert_eq!(rounds.on_request(range(20, 30), &none, 1).futile, 0);
        assert_eq!(rounds.on_request(range(0, 5), &none, 1).futile, 1);
        rounds.on_request(range(20, 30), &none, 1);
        assert_eq!(rounds.on_request(range(0, 5), &none, 1).futile, 2);
        assert_eq!(rounds.on_request(range(0, 5), &none, 2).futile, 0, "another sign came");
    }

    /// As many holes as fit into a RESEND, each time the remaining ones.
    #[test]
    fn a_round_of_the_same_size_at_a_higher_packet_is_progress() {
        let (mut rounds, none) = (ResendRounds::default(), RangeSet::new());
        let mut ask = |start| rounds.on_request(range(start, start + 10), &none, 0);
        assert_eq!([0, 0, 5].map(|start| ask(start).futile), [0, 1, 2]);
        // The next round shows that this one began later.
        assert_eq!([9, 9, 9].map(|start| ask(start).shorter), [true, true, false]);
        assert!(!ask(5).shorter && !ask(9).shorter, "no later than before");
    }
}
