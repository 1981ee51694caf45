//! A set of packet indexes, kept as ranges, for packets of a buffer that must still be sent.
//!
//! Losses come in runs and are requested in ascending order, so the set is a sorted deque. Adding
//! at its end and taking from its front cost nothing; a range in the middle costs one binary search
//! and a move of the shorter half. Its memory is bounded by half of the packets of a buffer.

use std::collections::VecDeque;

use crate::wire::packet::IndexRange;

/// An ordered set of indexes below `u32::MAX`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Ascending; none is empty, and between any two there is an index that is not in the set.
    ranges: VecDeque<IndexRange>,
}

impl RangeSet {
    /// A set of nothing.
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// Adds every index of `range`; those that were there already stay. An empty or backward range
    /// adds nothing; an end of `u32::MAX` is as good as any other.
    pub fn insert(&mut self, range: IndexRange) {
        if range.start >= range.end {
            return;
        }
        match self.ranges.back_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            Some(last) if range.start <= last.end => self.insert_before_end(range),
            Some(_) | None => self.ranges.push_back(range),
        }
    }

    /// Removes every index of `range`, whether it is there or not.
    pub fn remove(&mut self, range: IndexRange) {
        let from = self.ranges.partition_point(|r| r.end <= range.start);
        let to = self.ranges.partition_point(|r| r.start < range.end);
        if range.start >= range.end || from >= to {
            return;
        }
        let left = IndexRange { start: self.ranges[from].start, end: range.start };
        let right = IndexRange { start: range.end, end: self.ranges[to - 1].end };
        self.ranges.drain(from..to);
        for rest in [right, left].into_iter().filter(|r| r.start < r.end) {
            self.ranges.insert(from, rest);
        }
    }

    /// Removes the lowest index and returns it.
    pub fn pop_first(&mut self) -> Option<u32> {
        let first = self.ranges.front_mut()?;
        let index = first.start;
        first.start += 1;
        if first.start == first.end {
            self.ranges.pop_front();
        }
        Some(index)
    }

    /// The lowest index.
    pub fn first(&self) -> Option<u32> {
        self.ranges.front().map(|r| r.start)
    }

    /// Whether `index` is in the set.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= index);
        self.ranges.get(at).is_some_and(|r| r.start <= index)
    }

    /// Whether there is no index in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many indexes are in the set. Counts the ranges through.
    pub fn len(&self) -> u32 {
        // Disjoint ranges of 32-bit numbers: the sum is below 2^32.
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// The ranges, ascending, none touching another.
    pub fn iter(&self) -> impl Iterator<Item = IndexRange> + '_ {
        self.ranges.iter().copied()
    }

    /// The parts of `range` that are in the set, ascending.
    pub fn intersect(&self, range: IndexRange) -> impl Iterator<Item = IndexRange> + '_ {
        let from = self.ranges.partition_point(|r| r.end <= range.start);
        let to = self.ranges.partition_point(|r| r.start < range.end);
        self.ranges.range(from..to.max(from)).filter_map(move |r| {
            let cut = IndexRange { start: r.start.max(range.start), end: r.end.min(range.end) };
            (cut.start < cut.end).then_some(cut)
        })
    }

    /// Inserts a range that begins before the last one does, joining all that it touches.
    fn insert_before_end(&mut self, range: IndexRange) {
        let from = self.ranges.partition_point(|r| r.end < range.start);
        let to = self.ranges.partition_point(|r| r.start <= range.end);
        if from == to {
            self.ranges.insert(from, range);
            return;
        }
        let end = self.ranges[to - 1].end.max(range.end);
        let start = self.ranges[from].start.min(range.start);
        self.ranges[from] = IndexRange { start, end };
        self.ranges.drain(from + 1..to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(start: u32, end: u32) -> IndexRange {
        IndexRange { start, end }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, u32),
        Remove(u32, u32),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u32..64, 0u32..12).prop_map(|(at, n)| Step::Insert(at, at + n)),
            2 => (0u32..64, 0u32..12).prop_map(|(at, n)| Step::Remove(at, at + n)),
            1 => (0u32..64, 0u32..64).prop_map(|(a, b)| Step::Insert(a, b)),
            1 => (0u32..64, 0u32..64).prop_map(|(a, b)| Step::Remove(a, b)),
            2 => Just(Step::Pop),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// The same indexes as ranges, from the model.
    fn ranges_of(model: &BTreeSet<u32>) -> Vec<IndexRange> {
        let mut ranges: Vec<IndexRange> = Vec::new();
        for &index in model {
            match ranges.last_mut() {
                Some(last) if last.end == index => last.end += 1,
                _ => ranges.push(range(index, index + 1)),
            }
        }
        ranges
    }

    proptest! {
        /// `base` moves the play to both ends of the numbers.
        #[test]
        fn a_range_set_agrees_with_a_set_of_numbers(
            steps in steps(),
            base in prop_oneof![Just(0), Just(u32::MAX - 76)],
            window in (0u32..76, 0u32..76),
        ) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Insert(a, b) => {
                        set.insert(range(base + a, base + b));
                        model.extend(base + a..base + b);
                    }
                    Step::Remove(a, b) => {
                        set.remove(range(base + a, base + b));
                        model.retain(|i| !(base + a..base + b).contains(i));
                    }
                    Step::Pop => prop_assert_eq!(set.pop_first(), model.pop_first()),
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), ranges_of(&model));
                prop_assert_eq!(set.len() as usize, model.len());
                prop_assert_eq!(set.is_empty(), model.is_empty());
                prop_assert_eq!(set.first(), model.first().copied());
            }
            for index in base..=base + 76 {
                prop_assert_eq!(set.contains(index), model.contains(&index));
            }
            let window = range(base + window.0, base + window.1);
            model.retain(|i| (window.start..window.end).contains(i));
            prop_assert_eq!(set.intersect(window).collect::<Vec<_>>(), ranges_of(&model));
        }
    }

    #[test]
    fn a_range_to_the_end_of_all_numbers_is_legal() {
        let mut set = RangeSet::new();
        set.insert(range(5, u32::MAX));
        set.insert(range(0, u32::MAX));
        assert_eq!(set.len(), u32::MAX);
        assert_eq!((set.pop_first(), set.first()), (Some(0), Some(1)));
        assert!(set.contains(u32::MAX - 1) && !set.contains(u32::MAX));
        set.remove(range(2, u32::MAX));
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(1, 2)]);
        set.remove(range(0, u32::MAX));
        assert!(set.is_empty() && set.pop_first().is_none());
    }
}
