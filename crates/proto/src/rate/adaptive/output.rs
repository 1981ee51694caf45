//! Burst size, interval and cap of [`Adaptive`], worked out from what it believes.

use std::time::Duration;

use super::{
    Adaptive, AdaptivePhase, CALM_CAP_GAIN, CAP_GAIN, DOWN_GAIN, DRAIN_GAIN, FIRST_BUFFER, FLOOR,
    FLOOR_PACKETS, INITIAL_PACKETS, MIN_CAP_PACKETS, MIN_RTT_CAP_GAIN, MOST, STARTUP_CAP_GAIN,
    STARTUP_GAIN, UNITY,
};
use crate::rate::train::{is_long, train_for};
use crate::rate::{Pacing, burst_for, millis};
use crate::time::Instant;
use crate::units::Rate;

/// In place of [`STARTUP_GAIN`] where large buffers showed, late as they are reported, that it was
/// too much.
const CAREFUL_GAIN: u64 = 1500;

/// Half of the round trip is made up for, and no more than half of this.
const MOST_CATCH_UP: Duration = Duration::from_millis(100);

impl Adaptive {
    pub(super) fn gain(&self) -> u64 {
        match self.phase {
            AdaptivePhase::Startup if self.hearing.last_sample.is_none() => UNITY,
            AdaptivePhase::Startup if self.is_holding() => UNITY,
            AdaptivePhase::Startup if self.growth.careful => CAREFUL_GAIN,
            AdaptivePhase::Startup => STARTUP_GAIN,
            AdaptivePhase::Drain => DRAIN_GAIN,
            AdaptivePhase::Cruise => self.cruise_gain(),
            AdaptivePhase::Up(step) => self.up_gain(step),
            AdaptivePhase::Down(_) if self.rested => UNITY,
            AdaptivePhase::Down(_) => DOWN_GAIN,
            AdaptivePhase::MinRtt => UNITY,
        }
    }

    /// The bandwidth to begin with: that of a first round trip's packets, and that of a buffer in
    /// the time that the first may take.
    pub(super) fn initial(&self) -> u64 {
        let packets = INITIAL_PACKETS * u64::from(self.packet_bytes);
        let buffer = Rate::over(self.grain_bytes, FIRST_BUFFER);
        Rate::over(packets, self.min_rtt()).max(buffer).max(FLOOR).bytes_per_second()
    }

    /// A round trip was measured. If it is less `long` than the handshake left it, and only OKs
    /// tell, all that was learned of it so far was learned too slowly.
    pub(super) fn begin_faster(&mut self, now: Instant, long: bool) {
        if !long || is_long(self.min_rtt()) || self.grain_bytes == 0 {
            return;
        }
        self.bandwidth = self.bandwidth.max(self.initial());
        if self.phase != AdaptivePhase::Startup {
            self.look_again(now);
        }
    }

    pub(super) fn set_pacing(&mut self) {
        let least = Rate::over(FLOOR_PACKETS * u64::from(self.packet_bytes), self.trips.now());
        self.bandwidth = self.bandwidth.max(least.bytes_per_second()).min(MOST);
        let ceiling = self.most();
        let bandwidth = Rate::from_bytes_per_second(self.bandwidth).min(ceiling);
        let mut rate = bandwidth.scaled(self.gain(), UNITY).max(FLOOR).min(ceiling);
        let mut burst = if self.sends_trains() {
            rate = rate.min(Rate::from_bytes_per_second(self.growth.train.most(self.bandwidth)));
            train_for(rate, self.packet_bytes, self.grain_bytes)
        } else {
            burst_for(rate, self.packet_bytes)
        };
        if let Some(agreed) = self.agreed {
            let least = if self.sends_trains() { burst.packets } else { 1 };
            burst = millis::within(agreed, (rate, ceiling), self.packet_bytes, least);
        }
        let cap_gain = match self.phase {
            AdaptivePhase::MinRtt => MIN_RTT_CAP_GAIN,
            AdaptivePhase::Startup if self.calm => CALM_CAP_GAIN,
            AdaptivePhase::Startup => STARTUP_CAP_GAIN,
            _ => CAP_GAIN,
        };
        let product = bandwidth.bytes_in(self.min_rtt());
        let unreported = self.hearing.gap + self.hearing.gap / 2 + self.trips.back();
        let unreported = bandwidth.bytes_in(unreported + self.trips.wander());
        let packet = u64::from(self.packet_bytes);
        let bursts = packet * (u64::from(burst.packets) * 2 + MIN_CAP_PACKETS);
        let probes = packet * 2 * u64::from(self.hearing.silences);
        let cap = (product / UNITY).saturating_mul(cap_gain).saturating_add(unreported);
        let rest = bursts + probes + self.grain_bytes * 2;
        // A host that stood still may make up for it as far as a queue has room.
        let catch_up = self.most_catch_up() * self.probe.caution as u32 / 1000;
        self.pacing = Pacing { burst, cap_bytes: Some(cap.saturating_add(rest)), catch_up };
    }

    /// The most that is made up for at once.
    pub(super) fn most_catch_up(&self) -> Duration {
        self.min_rtt().min(MOST_CATCH_UP) / 2
    }
}
