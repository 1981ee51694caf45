//! What [`Adaptive`] does on a path that carries much and little in turn, as where a radio changes
//! what it sends with, or others come and go by a clock: what was given up a moment ago is back
//! sooner than probes up, an eighth of the time, find. So once the rate has fallen and come back
//! twice, a short stretch at the old one is tried between any two round trips, until one comes
//! through (docs/decisions/adaptive-rate.md, *A path that turns*).

use std::time::Duration;

use super::{Adaptive, Phase, UNITY, Window};
use crate::rate::path::MILLION;
use crate::rate::{Sample, Stretch};
use crate::time::Instant;
use crate::units::Rate;

/// The rate is compared with what it was so many smallest round trips ago.
const PAST: usize = 6;
/// A rate that is this part of that, or less, fell; at this part of the old one it is back.
const FELL: (u64, u64) = (7, 10);
const BACK: (u64, u64) = (8, 10);
/// Each falls to this part at most, from the same height as the one before but for this part of
/// it, and less where the round trip wanders, for so many round trips: that looks like many falls,
/// and no two alike.
const DEEP: (u64, u64) = (6, 10);
const ALIKE: (u64, u64) = (3, 8);
const LASTED: u32 = 4;
/// A fall to less than the last one's low by so many times is not to the same other rate.
const LOWER: u64 = 2;
/// So many falls from which it came back, each of which ended so soon, make a path that turns.
const TURNS: u32 = 2;
const SOON: Duration = Duration::from_secs(3);
/// A queue that is longer than this, in millionths of a round trip, shows that it has turned.
const TURNED: u64 = MILLION / 2;
/// A stretch takes this part of a round trip, and has so many packets at least.
const PART: u32 = 4;
const PACKETS: u64 = 8;
/// So much of its rate comes through, in tenths, or it is too much.
const THROUGH: u64 = 9;

/// A stretch at the old rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Sent before it, and by its end.
    from_bytes: u64,
    to_bytes: u64,
    /// When it ends, and whether it has.
    until: Instant,
    over: bool,
    heard: Stretch,
}

/// Falls of the rate, and what is tried since the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// The bandwidth, newest first, a smallest round trip apart, and since when the newest counts.
    past: [u64; PAST],
    stepped: Instant,
    /// What it was before it fell, and the least since; when that was, and whether it is back.
    high: u64,
    low: u64,
    last_low: u64,
    last_high: u64,
    fell: Instant,
    fallen: bool,
    /// Falls from which it came back.
    count: u32,
    trial: Option<Trial>,
    next: Instant,
}

impl Turns {
    /// Takes in the bandwidth.
    fn watch(&mut self, now: Instant, bandwidth: u64, (trip, wanders): (Duration, bool)) {
        if now.since(self.fell) > SOON {
            self.count = 0;
            if std::mem::take(&mut self.fallen) {
                self.pass(bandwidth);
            }
        }
        if self.fallen && bandwidth >= self.high / BACK.1 * BACK.0 {
            let part = if wanders { ALIKE.1 } else { ALIKE.0 };
            let alike = self.high.abs_diff(self.last_high) <= self.high / part;
            let deep = self.low <= self.high / DEEP.1 * DEEP.0;
            let lasted = now.since(self.fell) >= trip * LASTED;
            self.count = match (deep && lasted, alike) {
                (true, true) => self.count + 1,
                (true, false) => 1,
                (false, _) => 0,
            };
            (self.fallen, self.trial, self.last_high) = (false, None, self.high);
            self.past = [bandwidth; PAST];
        }
        if now.since(self.stepped) >= trip {
            self.stepped = now;
            self.past.rotate_right(1);
            self.past[0] = bandwidth;
        }
        let before = self.past.into_iter().fold(0, u64::max);
        if !self.fallen && bandwidth <= before / FELL.1 * FELL.0 {
            (self.high, self.fell, self.fallen) = (before, now, true);
            (self.last_low, self.low, self.next) = (self.low, bandwidth, now + trip);
        }
        if self.fallen {
            self.low = self.low.min(bandwidth);
            if self.low < self.last_low / LOWER {
                self.count = 0;
            }
        }
    }

    /// What it does now has other reasons.
    fn pass(&mut self, bandwidth: u64) {
        (self.past, self.trial) = ([bandwidth; PAST], None);
    }

    /// What the path may carry off in a moment, in bytes per second: what it carried before it
    /// fell, if it is known to come back.
    pub(super) fn most(&self) -> u64 {
        if self.is_known() { self.high } else { 0 }
    }

    /// What was before the fall is tried: a probe up would only be in its way.
    pub(super) fn is_tried(&self) -> bool {
        self.fallen && self.is_known()
    }

    /// It fell and came back so often that it does again.
    pub(super) fn is_known(&self) -> bool {
        self.count >= TURNS
    }
}

impl Adaptive {
    /// A report came: whether the path has turned.
    pub(super) fn watch_turns(&mut self, now: Instant, sample: &Sample) {
        let own = self.contest.is_none() && !self.foreign;
        let known = self.grain_bytes == 0;
        if !own || !known || self.phase == Phase::Startup {
            self.turns.pass(self.bandwidth);
            return;
        }
        let wanders = !self.trips.wander().is_zero();
        self.turns.watch(now, self.bandwidth, (self.min_rtt(), wanders));
        if !self.turns.is_known() {
            return;
        }
        if !self.turns.fallen {
            let soon = now.since(self.turns.fell) < SOON;
            if soon && self.trips.newest_queue(self.pacing.burst.interval) > TURNED {
                self.bandwidth = self.bandwidth.min(self.turns.low);
            }
        } else if self.turns.fell == now {
            self.bandwidth = self.bandwidth.min(self.turns.last_low);
            self.enter(Phase::Drain, now);
        } else if self.turns.trial.is_some() {
            self.hear_trial(now, sample);
        } else if self.phase == Phase::Cruise && self.queue() == 0 && now >= self.turns.next {
            self.begin_trial(now, sample);
        }
    }

    fn begin_trial(&mut self, now: Instant, sample: &Sample) {
        let time = self.min_rtt() / PART + self.hearing.gap;
        let bytes = Rate::from_bytes_per_second(self.turns.high).bytes_in(time);
        if sample.app_limited || bytes < PACKETS * u64::from(self.packet_bytes) {
            return;
        }
        self.turns.trial = Some(Trial {
            from_bytes: sample.sent_bytes,
            to_bytes: sample.sent_bytes + bytes,
            until: now + time,
            over: false,
            heard: Stretch::default(),
        });
    }

    fn hear_trial(&mut self, now: Instant, sample: &Sample) {
        let packet = u64::from(self.packet_bytes);
        let Some(trial) = &mut self.turns.trial else { return };
        let (from, to) = (trial.from_bytes, trial.to_bytes);
        if let Some(stretch) = sample.stretch
            && stretch.from_bytes >= from
            && stretch.from_bytes + stretch.sent_bytes <= to
        {
            trial.heard.extend(&stretch);
        }
        let heard = trial.heard;
        trial.over |= now >= trial.until;
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        // More of it than was planned does not leave.
        if !trial.over || known < to.min(sample.sent_bytes) {
            return;
        }
        self.turns.trial = None;
        self.turns.next = now + self.min_rtt() / 2;
        let sent = Rate::over(heard.sent_bytes, heard.sending).bytes_per_second();
        let came = Rate::over(heard.arrived_bytes, heard.arriving).bytes_per_second();
        let enough = heard.arrived_bytes >= packet * PACKETS / 2;
        if enough && sent >= self.turns.high / BACK.1 * BACK.0 && came >= sent / 10 * THROUGH {
            self.bandwidth = self.bandwidth.max(came.min(self.turns.high));
            self.window = Window { since: now, ..Window::default() };
            self.enter(Phase::Cruise, now);
        }
    }

    /// When the stretch is over that is being sent.
    pub(super) fn trial_ends(&self) -> Option<Instant> {
        self.turns.trial.filter(|trial| !trial.over).map(|trial| trial.until)
    }

    /// That time may have come.
    pub(super) fn end_trial(&mut self, now: Instant) {
        if let Some(trial) = &mut self.turns.trial {
            trial.over |= now >= trial.until;
        }
    }

    /// The gain of that stretch.
    pub(super) fn trial_gain(&self) -> Option<u64> {
        self.trial_ends()?;
        Some((self.turns.high * UNITY / self.bandwidth.max(1)).max(UNITY))
    }
}
