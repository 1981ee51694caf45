//! Two of the first trains came at once, each by itself, so that no host held them up: the path is
//! a fast one, and longer trains, which are to tell how fast, will not be reported for most of a
//! round trip. Meanwhile the rate at which such a train would come at once is tried, for as short a
//! time as tells anything.

use std::time::Duration;

use super::{CONFIRM_GAIN, CONFIRM_PART, CONFIRMATIONS, FIRST_PACKETS, GRAIN, LONGER, RESOLVED};
use crate::rate::Sample;
use crate::rate::adaptive::leap::MOST_LOSS;
use crate::rate::adaptive::{Adaptive, Phase};
use crate::rate::path::MILLION;
use crate::time::Instant;
use crate::units::Rate;

/// The first guess is tried for this part of a round trip, and for twice [`RESOLVED`] at least, but
/// with no more than so many first trains: twice what longer trains have in a round trip, with
/// those of them that left, and more than the buckets of most policers.
const GUESS_PART: u32 = CONFIRM_PART * 2;
const GUESS_TRAINS: u64 = 40;
/// What came through as it was sent, with nothing else known, is tried at so many times the rate.
const FURTHER: u64 = 4;

impl Adaptive {
    /// The newest train told of, `whole` bytes up to `reached`, may be a first one that came at
    /// once, since its last packet did not wait for those before it; that one report tells of all
    /// of it may only mean that no other could be said sooner. Whether it is not the first such.
    pub(super) fn is_second_at_once(&mut self, whole: u64, reached: u64) -> bool {
        let first = FIRST_PACKETS * u64::from(self.packet_bytes);
        let is_first = (first * 3 / 4..=first * 3 / 2).contains(&whole);
        let at_once = self.trips.newest_way().is_some_and(|longer| longer < RESOLVED);
        // What left at the rate of a leap came in trains of other sizes.
        let leapt = self.leap.goal > 0;
        if !is_first || !at_once || leapt || self.trains.packets > FIRST_PACKETS * LONGER {
            return false;
        }
        let begun = self.trains.heard.from_bytes.saturating_sub(self.trains.first_bytes);
        begun >= *self.trains.told.get_or_insert(reached)
    }

    /// Whether what is told of is a first train, or as much of a longer one, and longer ones left
    /// because another first train came sooner: a host held this one up, or others did. They tell
    /// more.
    pub(super) fn came_sooner_before(&self) -> bool {
        let first = FIRST_PACKETS * u64::from(self.packet_bytes);
        let told = self.trains.heard.sent_bytes + self.trains.first_bytes;
        self.trains.packets > FIRST_PACKETS && told <= first * 3 / 2
    }

    /// Tries the rate that would have brought a first train within half of a clock's grain.
    pub(super) fn guess(&mut self, now: Instant, sample: &Sample) {
        // Where that much is lost, doubling finds the rate.
        let total = sample.lost_packets + sample.delivered_packets;
        if sample.lost_packets * MILLION > total * MOST_LOSS {
            return;
        }
        let first = FIRST_PACKETS * u64::from(self.packet_bytes);
        self.trains.shown = Rate::over(first, GRAIN / 2).bytes_per_second();
        (self.trains.guessed, self.trains.measured) = (true, false);
        self.confirm(now, sample);
    }

    pub(super) fn is_first_guess(&self) -> bool {
        self.trains.guessed && self.trains.confirmations <= 1
    }

    pub(super) fn guess_time(&self) -> Duration {
        let bytes = GUESS_TRAINS * FIRST_PACKETS * u64::from(self.packet_bytes);
        let most = self.confirm_rate().time_for(bytes);
        (self.min_rtt() / GUESS_PART).max(RESOLVED * 2).min(most)
    }

    /// If a guess was made, of which nothing was heard: the longer trains are gone by.
    pub(super) fn drops_guess(&mut self, now: Instant) -> bool {
        if !self.trains.guessed {
            return false;
        }
        (self.trains.guessed, self.trains.told, self.trains.confirmations) = (false, None, 0);
        self.enter(Phase::Trains, now);
        true
    }

    /// A guess came through at `shown`, later than it was sent if it was held up, and a longer
    /// train may have shown a rate meanwhile; false if it is to be gone by as any confirmation is.
    pub(super) fn hear_guess(
        &mut self,
        now: Instant,
        sample: &Sample,
        (shown, held_up): (u64, bool),
    ) -> bool {
        let heard = self.trains.confirmed;
        let rest = MILLION - self.leap.share.min(MILLION / 2);
        let short = heard.arrived_bytes * MILLION < heard.sent_bytes * (rest - rest / 10);
        // From what goes this far beyond the path nobody can tell what others have of it.
        let sent = Rate::over(heard.sent_bytes, heard.sending).bytes_per_second();
        let whole = self.trains.shown;
        match (short, held_up, self.trains.measured) {
            // Cut, and as fast as it was sent: a bucket, if longer trains came whole.
            (true, false, true) => self.retreat(now, shown),
            (true, false, false) => self.double(now, sample),
            // A queue that is too short for it, and not for longer trains.
            (true, true, true) => {
                self.trains.guessed = false;
                self.on_shown(now, sample);
            }
            (true, true, false) => _ = self.drops_guess(now),
            (false, true, true) if sent / 2 > whole && shown < whole / 10 * 9 => {
                self.trains.guessed = false;
                self.on_shown(now, sample);
            }
            (false, true, _) => {
                self.trains.measured &= sent / 2 <= whole;
                return false;
            }
            (false, false, true) if whole / 5 * 4 <= shown => return false,
            (false, false, true) => {
                self.trains.guessed = false;
                self.confirm(now, sample);
            }
            (false, false, false) if self.trains.confirmations >= CONFIRMATIONS => return false,
            (false, false, false) => {
                self.trains.shown = shown * FURTHER / CONFIRM_GAIN * 100;
                self.confirm(now, sample);
            }
        }
        true
    }
}
