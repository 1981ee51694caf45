//! A congestion controller that answers every loss and every mark: CUBIC (RFC 9438) with HyStart++
//! (RFC 9406), and RFC 8511's answer to marks. `docs/design/rate-control.md` describes it.
//!
//! The order of work at each report:
//!
//! 1. `PathModel` takes in round trips and counts;
//! 2. the detectors say what the report shows: `CongestionEvents`, `HyStart`;
//! 3. the first evidence that holds goes to the decision table, `decide`;
//! 4. the action changes the window, by the one setter of the model, and the mode;
//! 5. burst size, interval and cap follow from the window.

mod cause;
mod congestion;
mod hystart;
mod mode;
mod path_model;

use std::time::Duration;

pub use cause::{Cause, WindowChange};
use congestion::CongestionEvents;
use hystart::{Growth, HyStart};
use mode::{Action, Evidence, Mode, decide};
use path_model::{INITIAL_WINDOW, PathModel};

use super::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Pacing in slow start, in hundredths of a window a round trip: the window doubles meanwhile.
const SLOW_START_GAIN: u64 = 200;
/// Pacing later, in hundredths of a window a round trip (RFC 9002 §7.7).
const PACING_GAIN: u64 = 125;
/// A receiver reports eight times in a round trip, so that an eighth of the window has arrived and
/// is not reported yet.
const UNREPORTED_PART: u64 = 8;
/// A pause as long as this may have ended on another path (RFC 9002 §5.1 resets there, too).
const STALE_AFTER: Duration = Duration::from_secs(1);
/// The lowest rate of all, in bytes a second: a small packet in the longest interval of bursts.
const LEAST_RATE: Rate = Rate::from_bytes_per_second(100);

/// The controller of [`Policy::Cubic`](crate::config::Policy::Cubic).
#[derive(Debug)]
pub struct Controller {
    path: PathModel,
    events: CongestionEvents,
    mode: Mode,
    ceiling: Option<Rate>,
    /// What the receiver offered.
    offered: Option<Rate>,
    /// Bytes of the packets that burst values count.
    counted_bytes: u32,
    sent_bytes: u64,
    pacing: Pacing,
}

impl Controller {
    /// A controller for IP packets of `packet_bytes`, over a path whose round trip is `rtt` if that
    /// was measured, never faster than `ceiling`.
    pub fn new(packet_bytes: u32, rtt: Option<Duration>, ceiling: Option<Rate>) -> Self {
        let path = PathModel::new(packet_bytes, rtt);
        let mut controller = Self {
            pacing: Pacing::of(burst_for(LEAST_RATE, packet_bytes)),
            path,
            events: CongestionEvents::default(),
            mode: Mode::SlowStart(HyStart::default()),
            ceiling,
            offered: None,
            counted_bytes: packet_bytes,
            sent_bytes: 0,
        };
        controller.set_pacing();
        controller
    }

    /// The same, never faster than these burst values.
    #[must_use]
    pub fn within(mut self, burst: Burst) -> Self {
        self.limit(burst);
        self
    }

    fn limit(&mut self, burst: Burst) {
        let bytes = u64::from(burst.packets.max(1)) * u64::from(self.counted_bytes);
        self.offered = (!burst.interval.is_zero()).then(|| Rate::over(bytes, burst.interval));
        self.set_pacing();
    }

    /// What the report shows; the first evidence that holds.
    fn evidence(&mut self, sample: &Sample) -> Evidence {
        let (acked, used) = self.path.on_sample(sample);
        let congestion = self.events.on_sample(sample);
        let growth = match &mut self.mode {
            Mode::SlowStart(hystart) => hystart.on_rtt(sample.round, sample.rtt),
            Mode::Recovery | Mode::Avoidance => Growth::Goes(1.0),
        };
        if let Some(congestion) = congestion {
            return Evidence::Congestion(congestion);
        }
        match (growth, used && acked > 0) {
            _ if matches!(self.mode, Mode::Recovery) && !self.events.is_recovering() => {
                Evidence::Recovered
            }
            (Growth::Ends, _) => Evidence::PathFull,
            (growth, true) => Evidence::Acknowledged(growth),
            (_, false) => Evidence::Unused,
        }
    }

    fn act(&mut self, now: Instant, action: Action, acked: u64) {
        let next = match action {
            Action::Collapse => Mode::SlowStart(HyStart::default()),
            Action::Reduce(..) => Mode::Recovery,
            Action::EndSlowStart | Action::EndRecovery => Mode::Avoidance,
            Action::GrowInSlowStart(_) | Action::GrowInAvoidance | Action::Hold | Action::Keep => {
                self.mode
            }
        };
        let name = next.name();
        self.mode = next;
        match action {
            Action::Collapse => {
                let half = self.path.window() / 2.0;
                self.path.begin_again(name, Cause::Silence, 1.0, half);
            }
            Action::Reduce(cause, beta) => {
                self.path.reduce(name, cause, beta);
                self.events.on_answered(self.sent_bytes);
            }
            Action::EndSlowStart => self.path.end_slow_start(name),
            Action::GrowInSlowStart(share) => {
                self.path.grow_in_slow_start(name, acked, share);
                if self.path.is_past_threshold() {
                    self.mode = Mode::Avoidance;
                }
            }
            Action::GrowInAvoidance => self.path.grow_in_avoidance(now, name, acked),
            Action::Hold => self.path.on_unused(),
            Action::EndRecovery | Action::Keep => {}
        }
    }

    /// Burst values and cap, from the window.
    fn set_pacing(&mut self) {
        let gain = match self.mode {
            Mode::SlowStart(_) => SLOW_START_GAIN,
            Mode::Recovery | Mode::Avoidance => PACING_GAIN,
        };
        let most = [self.ceiling, self.offered].into_iter().flatten().min();
        let rate = self.path.window_rate().scaled(gain, 100).max(LEAST_RATE);
        let rate = most.map_or(rate, |most| rate.min(most));
        let burst = burst_for(rate, self.path.packet_bytes());
        let window = self.path.window_bytes();
        let cap_bytes = Some(window.saturating_add(window / UNREPORTED_PART));
        self.pacing = Pacing { cap_bytes, ..Pacing::of(burst) };
    }
}

impl RateControl for Controller {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let before = self.path.delivered_packets();
        self.sent_bytes = sample.sent_bytes;
        let evidence = self.evidence(sample);
        let action = decide(&self.mode, evidence);
        self.act(now, action, sample.delivered_packets.saturating_sub(before));
        self.set_pacing();
    }

    fn on_silence(&mut self, now: Instant) {
        // A sender that is silent already has nothing left to give.
        if self.path.window() > 1.0 {
            self.act(now, decide(&self.mode, Evidence::Silence), 0);
            self.events.on_answered(self.sent_bytes);
        }
        self.set_pacing();
    }

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        self.limit(offer);
    }

    fn on_ceiling(&mut self, _now: Instant, ceiling: Option<Rate>) {
        self.ceiling = ceiling;
        self.set_pacing();
    }

    fn take_over(&mut self, _now: Instant, rate: Rate, rtt: Duration) {
        self.mode = Mode::Avoidance;
        self.path.take_over(self.mode.name(), rate, rtt);
        self.set_pacing();
    }

    fn on_pause_over(&mut self, _now: Instant, lasted: Duration) {
        if lasted >= STALE_AFTER {
            let threshold = self.path.window();
            self.mode = Mode::SlowStart(HyStart::default());
            self.path.begin_again(self.mode.name(), Cause::Pause, INITIAL_WINDOW, threshold);
            self.set_pacing();
        }
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.path.set_packet_bytes(self.mode.name(), bytes);
        self.set_pacing();
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn belief(&self) -> Belief {
        Belief {
            phase: self.mode.name(),
            bandwidth: self.path.delivery_rate(),
            min_rtt: self.path.min_rtt(),
            queue: self.path.queue(),
        }
    }

    fn charges_bytes(&self) -> bool {
        true
    }

    fn take_change(&mut self) -> Option<WindowChange> {
        self.path.take_change()
    }
}
