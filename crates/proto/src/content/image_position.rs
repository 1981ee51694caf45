//! The position of a buffer image in a transfer over several subflows: its data sequence number
//! (RFC 8684 §3.3, `docs/protocol §8.10`).

use std::collections::BTreeSet;

use crate::buffer::Buffer;
use crate::limits::MAX_AHEAD;
use crate::units::BufferNumber;

/// Bytes of the position, behind an image.
pub const POSITION_BYTES: usize = 8;
/// Bit: it is the last image.
const LAST: u64 = 1 << 63;

/// The position of an image, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePosition {
    /// The number.
    pub number: BufferNumber,
    /// Whether no image has a higher one.
    pub last: bool,
}

impl ImagePosition {
    /// Appends it to the image in `buffer`. False if there is no room for it.
    #[must_use]
    pub fn put(self, buffer: &mut Buffer) -> bool {
        let word = (self.number.0 & !LAST) | if self.last { LAST } else { 0 };
        let at = buffer.filled().len();
        let Some(room) = buffer.space().get_mut(at..at + POSITION_BYTES) else { return false };
        room.copy_from_slice(&word.to_be_bytes());
        buffer.set_len(at + POSITION_BYTES);
        true
    }

    /// Removes it from the image in `buffer`; `None` if there is none.
    #[must_use]
    pub fn take(buffer: &mut Buffer) -> Option<Self> {
        let place = Self::of(buffer)?;
        buffer.set_len(buffer.filled().len() - POSITION_BYTES);
        Some(place)
    }

    /// The position behind the image in `buffer`.
    #[must_use]
    pub fn of(buffer: &Buffer) -> Option<Self> {
        let word = u64::from_be_bytes(*buffer.filled().last_chunk::<POSITION_BYTES>()?);
        let number = BufferNumber(word & !LAST);
        (number.0 > 0).then_some(Self { number, last: word & LAST != 0 })
    }
}

/// The images that have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePositions {
    /// All up to this one.
    through: u64,
    /// Further images beyond that.
    beyond: BTreeSet<u64>,
    last: Option<u64>,
}

/// Positions that no correct sender sends: two ends, one beyond the end, or one far from all
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("images have places that they cannot have")]
pub struct PositionError;

impl ImagePositions {
    /// An image arrived. Returns whether it is new: it may have arrived before over a subflow that
    /// was lost before its acknowledgement.
    pub fn add(&mut self, place: ImagePosition) -> Result<bool, PositionError> {
        let number = place.number.0;
        let highest = self.beyond.last().copied().unwrap_or(self.through);
        let two_ends = place.last && self.last.is_some_and(|last| last != number);
        let behind = self.last.is_some_and(|last| number > last) || place.last && highest > number;
        if two_ends || behind || number > self.through.saturating_add(MAX_AHEAD) {
            return Err(PositionError);
        }
        if place.last {
            self.last = Some(number);
        }
        if number <= self.through || !self.beyond.insert(number) {
            return Ok(false);
        }
        while self.beyond.remove(&(self.through + 1)) {
            self.through += 1;
        }
        Ok(true)
    }

    /// Whether all have arrived.
    pub fn is_whole(&self) -> bool {
        self.last == Some(self.through)
    }

    /// How many there are in all, once that is known.
    pub fn count(&self) -> Option<u64> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64, last: bool) -> ImagePosition {
        ImagePosition { number: BufferNumber(number), last }
    }

    #[test]
    fn a_position_is_read_from_behind_its_image() {
        let mut buffer = Buffer::new(12);
        buffer.set_len(3);
        assert_eq!(ImagePosition::take(&mut buffer), None);
        let position = place(7, true);
        assert!(position.put(&mut buffer));
        assert!(!position.put(&mut buffer), "no room");
        assert_eq!((buffer.filled().len(), ImagePosition::of(&buffer)), (11, Some(position)));
        assert_eq!(ImagePosition::take(&mut buffer), Some(position));
        assert_eq!(buffer.filled(), [0; 3]);
        let mut nowhere = Buffer::new(8);
        nowhere.set_len(8);
        assert_eq!(ImagePosition::take(&mut nowhere), None, "places begin at 1");
    }

    #[test]
    fn a_transfer_is_whole_when_every_position_up_to_the_last_arrived() {
        let mut places = ImagePositions::default();
        assert_eq!(places.add(place(2, false)), Ok(true));
        assert_eq!(places.add(place(3, true)), Ok(true));
        assert_eq!(places.add(place(3, true)), Ok(false), "it came again");
        assert!(!places.is_whole());
        assert_eq!(places.add(place(1, false)), Ok(true));
        assert_eq!(places.add(place(2, false)), Ok(false));
        assert!(places.is_whole() && places.count() == Some(3));
    }

    #[test]
    fn impossible_positions_are_refused_without_a_change() {
        let mut places = ImagePositions::default();
        places.add(place(4, false)).expect("fine");
        let before = places.clone();
        assert_eq!(places.add(place(3, true)), Err(PositionError), "an end before what came");
        assert_eq!(places.add(place(MAX_AHEAD + 1, false)), Err(PositionError));
        assert_eq!(places, before);
        places.add(place(5, true)).expect("fine");
        assert_eq!(places.add(place(6, false)), Err(PositionError));
        assert_eq!(places.add(place(4, true)), Err(PositionError));
    }
}
