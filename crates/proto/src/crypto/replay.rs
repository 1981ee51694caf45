//! The anti-replay window: packet numbers that have arrived (`docs/protocol §5.5`, RFC 4303
//! §3.4.3).
//!
//! A ring of bits, one for each of the 2^17 numbers up to the highest one marked. Only numbers of
//! authenticated packets may be marked: a forged number would otherwise push the window past the
//! true ones and close the connection to them.

use super::OpenError;
use crate::units::PacketNumber;

/// How many numbers the window spans, the highest one included (`docs/protocol §5.5`). At
/// 10 Gbit/s in 1,200-byte packets that is an eighth of a second of reordering.
pub const WINDOW_NUMBERS: u64 = 1 << 17;

const WORDS: usize = (WINDOW_NUMBERS / 64) as usize;

/// The replay window of one direction (`docs/protocol §5.5`). Holds 16 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    /// Bit `number % WINDOW_NUMBERS` is that of `number`, for the numbers in the window.
    seen: Box<[u64]>,
    highest: Option<u64>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplayWindow {
    /// A window that has seen nothing.
    pub fn new() -> Self {
        Self { seen: vec![0; WORDS].into_boxed_slice(), highest: None }
    }

    /// The highest number marked (`docs/protocol §5.5`).
    pub fn highest(&self) -> Option<PacketNumber> {
        self.highest.map(PacketNumber)
    }

    /// Whether a packet of this number may still be opened (`docs/protocol §5.5`).
    pub fn check(&self, number: PacketNumber) -> Result<(), OpenError> {
        let number = number.0;
        let Some(highest) = self.highest.filter(|&highest| number <= highest) else {
            return Ok(());
        };
        if highest - number >= WINDOW_NUMBERS {
            return Err(OpenError::TooOld);
        }
        let (word, bit) = place(number);
        if self.seen[word] & bit != 0 { Err(OpenError::Replayed) } else { Ok(()) }
    }

    /// Marks a number whose packet has authenticated (`docs/protocol §5.5`). One below the
    /// window counts as marked already.
    pub fn mark(&mut self, number: PacketNumber) {
        let number = number.0;
        match self.highest {
            Some(highest) if number <= highest => {
                if highest - number >= WINDOW_NUMBERS {
                    return;
                }
            }
            Some(highest) => {
                self.forget(highest + 1, number);
                self.highest = Some(number);
            }
            None => self.highest = Some(number),
        }
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }

    /// Clears the bits of `first ..= last`, which still belong to numbers one ring earlier.
    fn forget(&mut self, first: u64, last: u64) {
        if last - first >= WINDOW_NUMBERS - 1 {
            self.seen.fill(0);
            return;
        }
        let mut from = first;
        loop {
            let word_end = from | 63;
            let to = word_end.min(last);
            let bits = (u64::MAX << (from % 64)) & (u64::MAX >> (63 - to % 64));
            self.seen[place(from).0] &= !bits;
            if to == last {
                return;
            }
            from = word_end + 1;
        }
    }
}

/// The word and the bit of `number`.
fn place(number: u64) -> (usize, u64) {
    (((number % WINDOW_NUMBERS) / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const W: u64 = WINDOW_NUMBERS;

    fn check(window: &ReplayWindow, number: u64) -> Result<(), OpenError> {
        window.check(PacketNumber(number))
    }

    /// The window of §5.5 with unbounded memory.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn check(&self, number: u64) -> Result<(), OpenError> {
            match self.0.last() {
                Some(&highest) if highest.saturating_sub(number) >= W => Err(OpenError::TooOld),
                _ if self.0.contains(&number) => Err(OpenError::Replayed),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_fresh_window_takes_any_number() {
        let window = ReplayWindow::new();
        assert_eq!(window.highest(), None);
        for number in [0, 1, W, u64::MAX] {
            assert_eq!(check(&window, number), Ok(()));
        }
    }

    #[test]
    fn the_window_is_exactly_as_wide_as_promised() {
        let mut window = ReplayWindow::new();
        window.mark(PacketNumber(W));
        assert_eq!(check(&window, 0), Err(OpenError::TooOld));
        assert_eq!(check(&window, 1), Ok(()));
        assert_eq!(check(&window, W), Err(OpenError::Replayed));
        assert_eq!(check(&window, W + 1), Ok(()));
    }

    #[test]
    fn a_number_below_the_window_does_not_mark_its_successor_in_the_ring() {
        let mut window = ReplayWindow::new();
        window.mark(PacketNumber(2 * W));
        window.mark(PacketNumber(5));
        assert_eq!(check(&window, W + 5), Ok(()));
    }

    #[test]
    fn jumps_of_every_kind_clear_the_ring() {
        for jump in [1, 2, 63, 64, 65, W - 1, W, W + 1, 3 * W + 7] {
            let mut window = ReplayWindow::new();
            (0..W).for_each(|number| window.mark(PacketNumber(number)));
            let highest = W - 1 + jump;
            window.mark(PacketNumber(highest));
            for number in highest - (W - 1)..highest {
                let expected = if number < W { Err(OpenError::Replayed) } else { Ok(()) };
                assert_eq!(check(&window, number), expected, "number {number}, jump {jump}");
            }
        }
    }

    #[test]
    fn the_last_number_there_is_can_be_marked() {
        let mut window = ReplayWindow::new();
        window.mark(PacketNumber(u64::MAX - 1));
        window.mark(PacketNumber(u64::MAX));
        assert_eq!(check(&window, u64::MAX), Err(OpenError::Replayed));
        assert_eq!(check(&window, u64::MAX - W + 1), Ok(()));
        assert_eq!(check(&window, u64::MAX - W), Err(OpenError::TooOld));
    }

    /// Steps that stay near, graze both ends of the window, and leap over it.
    fn step() -> impl Strategy<Value = i64> {
        let w = W as i64;
        prop_oneof![
            8 => -70_i64..70,
            3 => -(w + 70)..w + 70,
            1 => w - 3..w + 3,
            1 => -(w + 3)..-(w - 3),
            1 => 0..5 * w,
        ]
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_an_unbounded_set(
            start in prop_oneof![Just(0), 0..3 * W, u64::MAX - 3 * W..],
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let (mut window, mut model) = (ReplayWindow::new(), Model::default());
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                for probe in [at, at.saturating_sub(W), at.saturating_add(64), at ^ 1] {
                    prop_assert_eq!(check(&window, probe), model.check(probe));
                }
                if model.check(at).is_ok() {
                    window.mark(PacketNumber(at));
                    model.0.insert(at);
                }
                prop_assert_eq!(window.highest().map(|n| n.0), model.0.last().copied());
            }
        }
    }
}
