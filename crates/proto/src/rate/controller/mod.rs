//! A congestion controller: CUBIC (RFC 9438) with HyStart++ (RFC 9406) and RFC 8511's answer to
//! marks. If it is [tolerant](Controller::tolerant) it excuses loss that a test found not to be its
//! own doing, and keeps a short queue where it has the path for itself.
//! `docs/design/rate-control.md` describes it.
//!
//! The order of work at each report:
//!
//! 1. `PathModel` takes in round trips, counts, and what trains show of the bottleneck;
//! 2. the detectors say what the report shows: `CongestionEvents`, `HyStart`, `Start`,
//!    `ResponseTest`, `ShortQueue`, and `Tolerance` with its `Excuse`;
//! 3. the first evidence that holds goes to the decision table, `decide`;
//! 4. the action changes the window, by the one setter of the model, and the mode;
//! 5. burst size, interval and cap follow from the window.

pub mod ablation;
mod base_rtt;
mod capacity;
mod cause;
mod congestion;
mod congestion_window;
mod excuse;
mod foreign_queue;
mod hystart;
mod looks;
mod loss_record;
mod low_delay;
mod mode;
mod path_model;
mod probe;
mod response_test;
mod rounds;
mod saved_path;
mod short_queue;
mod start;
mod tolerance;

use std::time::Duration;

pub use cause::{Cause, WindowChange};
use congestion::{Congestion, CongestionEvents};
use congestion_window::INITIAL_WINDOW;
pub use excuse::ExcuseRecord;
use hystart::{Growth, HyStart};
use mode::{Action, Drain, Evidence, Jump, Mode, Reconfirm, StartQueue, decide};
use path_model::{INITIAL_TRAINS, LEAST_DELAY_WINDOW, PathModel, Progress};
use probe::{Finding, Probe};
pub use response_test::TestRecord;
use response_test::{ResponseTest, TestVerdict};
use saved_path::SavedPath;
use short_queue::ShortQueue;
use start::Start;
use tolerance::Tolerance;

use super::{Belief, Pacing, PathView, RateControl, Sample, burst_for};
use crate::rate::ceilings::Ceilings;
use crate::stats::{Learned, Remembered};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Pacing in slow start, in hundredths of a window a round trip: the window doubles meanwhile.
const SLOW_START_GAIN: u64 = 200;
/// Pacing later, in hundredths of a window a round trip (RFC 9002 §7.7).
const PACING_GAIN: u64 = 125;
/// A pause as long as this may have ended on another path (RFC 9002 §5.1 resets there, too).
const STALE_AFTER: Duration = Duration::from_secs(1);
/// Pacing where a short queue is kept, in hundredths: pacing alone decides when packets leave.
const SHORT_QUEUE_GAIN: u64 = 102;
/// Pacing of a test's blocks and of a drain, in hundredths.
const WHOLE_GAIN: u64 = 100;
const HALF_GAIN: u64 = 50;
/// In the start a queue stands from this part of the smallest round trip on.
const START_QUEUE_PART: u32 = 10;
/// What a start whose loss share rose leaves of what arrives.
const START_LOSS_BETA: f64 = 0.7;
/// Round trips at half the rate after a start, and at less when the smallest round trip is
/// measured again.
const DRAIN_ROUNDS: u64 = 2;
const RECONFIRM_TAKES: u64 = 3;
/// What a jump sends in its first round trip is reported in full two round trips after its start.
const JUMP_TAKES: u64 = 2;
/// A jump makes the window larger by so much: to a saved rate, and to what a probe found.
const SAVED_GROWTH: f64 = 2.0;
const FREE_GROWTH: f64 = 1.05;
/// What is left of the rate while the smallest round trip is measured again: so little that twice
/// the present queue empties in a round trip, within these bounds.
const RECONFIRM_PART: (f64, f64) = (0.5, 0.9);
/// A transfer of no more than this, 64 KiB and its name, is sent in the first round trip, and so
/// many times its bytes with all headers.
const SHORT_BYTES: u64 = 66 << 10;
const WITH_HEADERS: f64 = 1.1;
/// A window that holds so many trains may be exceeded by one.
const TRAINS_IN_WINDOW: u32 = 8;
/// The lowest rate of all, in bytes a second: a small packet in the longest interval of bursts.
const LEAST_RATE: Rate = Rate::from_bytes_per_second(100);

/// The controller of [`Policy::Cubic`](crate::config::Policy::Cubic), and on `sealed` of
/// [`Policy::Fair`](crate::config::Policy::Fair) and
/// [`Policy::Aggressive`](crate::config::Policy::Aggressive).
#[derive(Debug)]
pub struct Controller {
    path: PathModel,
    events: CongestionEvents,
    /// What excuses loss; `None` where nothing does.
    tolerance: Option<Tolerance>,
    mode: Mode,
    saved: SavedPath,
    ceilings: Ceilings,
    /// What the bottleneck carries, where late reports keep the window from bounding the rate.
    carried: Option<Rate>,
    sent_bytes: u64,
    /// Another law was in force until the next report.
    took_over: bool,
    pacing: Pacing,
    /// The newest test that is over, until it is traced.
    tested: Option<TestRecord>,
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
            tolerance: None,
            mode: Mode::SlowStart(HyStart::default()),
            saved: SavedPath::default(),
            ceilings: Ceilings::new(packet_bytes, ceiling),
            carried: None,
            sent_bytes: 0,
            took_over: false,
            tested: None,
        };
        controller.set_pacing();
        controller
    }

    /// The same, which excuses loss that is not its own doing and keeps a short queue where it has
    /// the path for itself.
    #[must_use]
    pub fn tolerant(mut self) -> Self {
        self.tolerance = Some(Tolerance::default());
        self.mode = self.slow_start();
        self.path.begin_with(INITIAL_TRAINS);
        self.path.begin_trains(Instant::EPOCH, true);
        self.set_pacing();
        self
    }

    /// The same, which takes as much as so many senders: its window grows as fast as theirs, and a
    /// loss takes as much of it as one of them would give up. Marks are answered as by all.
    #[must_use]
    pub fn weighted(mut self, senders: u32) -> Self {
        self.path.set_weight(f64::from(senders.max(1)));
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.fill_queues();
        }
        self
    }

    /// The same, never faster than these burst values.
    #[must_use]
    pub fn within(mut self, burst: Burst) -> Self {
        self.limit(burst);
        self
    }

    fn limit(&mut self, burst: Burst) {
        self.ceilings.set_receiver(burst);
        self.set_pacing();
    }

    /// The mode; where losses are excused, that.
    fn phase(&self) -> &'static str {
        let excused = self.tolerance.as_ref().and_then(Tolerance::excused).is_some();
        match &self.mode {
            Mode::Avoidance | Mode::ShortQueue(_) | Mode::Recovery if excused => "excused",
            mode => mode.name(),
        }
    }

    /// The mode in which the window doubles.
    fn slow_start(&self) -> Mode {
        match self.tolerance {
            Some(_) => Mode::Start(Start::new(0.0, 0.0)),
            None => Mode::SlowStart(HyStart::default()),
        }
    }

    /// What the report shows; the first evidence that holds.
    fn evidence(&mut self, now: Instant, sample: &Sample, progress: &Progress) -> Evidence {
        let seen = self.events.on_sample(sample);
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_sample(sample);
        }
        let mark = seen.marked.then_some(Evidence::Congestion(Congestion::Mark));
        // A loss asks for more than a mark, unless nothing answers it.
        if let Some(mark) = mark.filter(|_| !seen.lost || self.mode.judges_losses()) {
            return mark;
        }
        if let Some(evidence) = self.evidence_of_mode(now, sample, progress) {
            return evidence;
        }
        let loss = match &mut self.tolerance {
            None => seen.lost.then_some(Evidence::Congestion(Congestion::Loss)),
            Some(tolerance) => {
                let event = (seen.lost, self.events.is_recovering());
                tolerance.judge_loss(now, sample, event, (progress, &self.path))
            }
        };
        let answered = loss.filter(|loss| mark.is_none() || loss.is_congestion());
        if let Some(evidence) = answered.or(mark) {
            return evidence;
        }
        if matches!(self.mode, Mode::Recovery) && !self.events.is_recovering() {
            return Evidence::Recovered;
        }
        if let Some(tolerance) = &mut self.tolerance
            && let Some(round) = &progress.round
            && let Some(evidence) =
                tolerance.judge_round(now, (round, progress.used), (&mut self.mode, &self.path))
        {
            return evidence;
        }
        let growth = match &mut self.mode {
            Mode::SlowStart(hystart) => hystart.on_rtt(sample.round, sample.rtt),
            _ => Growth::Goes(1.0),
        };
        match growth {
            Growth::Ends => Evidence::PathFull,
            growth if progress.used && progress.acked > 0.0 => Evidence::Acknowledged(growth),
            Growth::Goes(_) => Evidence::Unused,
        }
    }

    /// What the modes find that judge losses themselves.
    fn evidence_of_mode(
        &mut self,
        now: Instant,
        sample: &Sample,
        progress: &Progress,
    ) -> Option<Evidence> {
        let dispersion = self.path.losses().dispersion();
        let base = self.path.base();
        let least = base.least().unwrap_or_default();
        match &mut self.mode {
            Mode::Testing(test) => match test.on_sample(sample, dispersion) {
                TestVerdict::Open => Some(Evidence::Unused),
                verdict => Some(Evidence::Tested(verdict)),
            },
            Mode::Start(start) => {
                let queue = (base.tolerance() + base.noise()).max(least / START_QUEUE_PART);
                // Where there are few reports in a round trip, all of them count.
                let ended = progress.round.map(|round| round.min_rtt);
                let low = ended.unwrap_or(base.low()).max(base.low());
                // A window that is not used makes no queue.
                let waits = start.on_rtt(low, (least, queue)).filter(|_| progress.used);
                let judge = |round| start.on_round(&round, dispersion, progress.used);
                let end = waits.or_else(|| progress.round.and_then(judge));
                let may_probe = start.may_probe() && progress.used;
                match end {
                    Some(end) => Some(Evidence::StartOver(end)),
                    None if may_probe && self.probed_capacity(now).is_some() => {
                        Some(Evidence::ProbeDue)
                    }
                    None if progress.used => Some(Evidence::Acknowledged(Growth::Goes(1.0))),
                    None => Some(Evidence::Unused),
                }
            }
            Mode::Probe(probe, _) => {
                let waits = sample.rtt.unwrap_or(least).saturating_sub(least);
                Some(match probe.on_sample(sample, waits) {
                    Finding::Open => Evidence::Unused,
                    Finding::Free { rate, waited } => Evidence::Free { rate, waited },
                    Finding::Unknown => Evidence::ProbeFailed { lost: false },
                    Finding::Lost => Evidence::ProbeFailed { lost: true },
                })
            }
            Mode::Jump(jump) => {
                let queue = (base.tolerance() + base.noise()).max(least / START_QUEUE_PART);
                let waits = base.low() > least + queue;
                Some(match waits || jump.is_too_far(sample) {
                    true => Evidence::JumpFailed,
                    false if sample.round >= jump.until => Evidence::JumpOver,
                    false => Evidence::Unused,
                })
            }
            Mode::Drain(drain) => {
                drain.on_rate(self.path.flight_rate());
                let empty = base.excess() <= base.tolerance();
                let least = if empty { drain.until - 1 } else { drain.until };
                Some(if sample.round >= least {
                    drain.found(self.path.known_capacity(now))
                } else {
                    Evidence::Unused
                })
            }
            Mode::Reconfirm(reconfirm) if sample.round >= reconfirm.until => {
                let round = progress.round?;
                let moved = tolerance::has_moved(&round, &self.path);
                Some(Evidence::BaseSeen { moved })
            }
            _ => None,
        }
    }

    fn act(&mut self, now: Instant, action: Action, sample: &Sample, progress: &Progress) {
        if let Mode::Testing(test) = &self.mode
            && let Some(verdict) = action.verdict()
        {
            self.tested = Some(test.record(verdict, self.path.losses().dispersion()));
        }
        match action {
            Action::Collapse => self.collapse(),
            Action::Reduce(cause, beta) | Action::EndTest(cause, beta) => {
                self.reduce(now, cause, beta);
            }
            Action::EndSlowStart => {
                self.mode = Mode::Avoidance;
                self.path.end_slow_start(self.mode.name());
            }
            Action::GrowInSlowStart(share) => self.grow_in_slow_start(progress.acked, share),
            Action::GrowInStart => self.grow_in_start(now, progress.acked),
            Action::GrowInAvoidance => {
                self.path.grow_in_avoidance(now, self.mode.name(), progress.acked);
            }
            Action::Hold => self.path.on_unused(),
            Action::BeginAvoidance => self.mode = Mode::Avoidance,
            Action::BeginDrain { loss } => self.begin_drain(now, sample.round, loss),
            Action::EndStart => self.end_start(sample.round),
            Action::AwaitGrowth { rate, loss } => self.await_growth(sample.round, rate, loss),
            Action::EndDrain(rate) => self.end_drain(rate),
            Action::ResumeStart(window) => self.resume_start(window),
            Action::BeginStart => self.begin_start(now),
            Action::BeginProbe => self.begin_probe(now, sample),
            Action::Jump { rate, waited } => self.jump_to_free(sample, rate, waited),
            Action::LeaveProbe { lost } => self.leave_probe(lost),
            Action::EndJump => self.end_jump(now),
            Action::Retreat => self.retreat(sample.round),
            Action::BeginTest { share, loss } => {
                let rounds = response_test::most_rounds(share, self.path.rtt());
                self.mode = Mode::Testing(ResponseTest::new(sample, share, loss, rounds));
            }
            Action::Excuse(loss) => self.excuse(now, loss),
            Action::LeaveTest => self.leave_test(now),
            Action::BeginShortQueue => self.mode = Mode::ShortQueue(ShortQueue::default()),
            Action::Follow(window) => {
                self.path.settle(self.mode.name(), Cause::ShortQueue, window);
            }
            Action::BeginReconfirm => self.begin_reconfirm(now, sample.round),
            Action::EndReconfirm { moved } => self.end_reconfirm(moved, progress),
            Action::PathChanged(window) => self.change_path(window, progress),
            Action::LeaveShortQueue(window) => {
                self.mode = Mode::Avoidance;
                self.path.settle(self.mode.name(), Cause::PathChange, window);
            }
            Action::Keep => {}
        }
    }

    /// Nothing is known any more of a path on which nothing arrives.
    fn collapse(&mut self) {
        self.on_interruption();
        self.mode = self.slow_start();
        let half = self.path.window() / 2.0;
        self.path.begin_again(self.mode.name(), Cause::Silence, 1.0, half);
        self.events.on_answered(self.sent_bytes);
    }

    /// Nothing arrived, or nothing was sent, for so long that the path may be another one.
    fn on_interruption(&mut self) {
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_interruption();
        }
        self.saved.on_interruption();
        self.fail_jump();
    }

    /// If a jump to a saved rate is under way it was too far.
    fn fail_jump(&mut self) {
        if matches!(self.mode, Mode::Jump(Jump { saved: true, .. })) {
            self.saved.on_retreat();
        }
    }

    /// The start met a queue, which is let run off. It arrives meanwhile, as fast as the path
    /// carries it.
    fn begin_drain(&mut self, now: Instant, round: u64, loss: f64) {
        let sent = self.sent_by_start(loss);
        self.drain(Cause::Delay, round, self.path.flight_rate() * sent.worth, Some(sent));
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_path_full(now, loss, &self.path);
        }
    }

    /// The start lost more packets.
    fn end_start(&mut self, round: u64) {
        self.drain(Cause::NoGrowth, round, START_LOSS_BETA * self.path.best_rate(), None);
    }

    /// The start found nothing that grows with its window, or what tells of it is late.
    fn await_growth(&mut self, round: u64, rate: f64, loss: f64) {
        let sent = self.sent_by_start(loss);
        self.drain(Cause::NoGrowth, round, rate, Some(sent));
    }

    fn sent_by_start(&self, loss: f64) -> StartQueue {
        StartQueue {
            worth: 1.0 / (1.0 - loss),
            window: self.path.window(),
            sent: self.path.window_bytes() as f64 / self.path.rtt().as_secs_f64(),
        }
    }

    fn drain(&mut self, cause: Cause, round: u64, rate: f64, queue: Option<StartQueue>) {
        self.mode = Mode::Drain(Drain { until: round + DRAIN_ROUNDS, rate, queue });
        self.path.settle(self.mode.name(), cause, self.path.product(rate));
        self.events.on_answered(self.sent_bytes);
    }

    fn end_drain(&mut self, rate: f64) {
        self.mode = Mode::Avoidance;
        self.path.settle(self.mode.name(), Cause::Drained, self.path.product(rate));
        self.path.forget_losses();
        self.events.on_answered(self.sent_bytes);
    }

    /// Begins with a part of what an earlier connection found, over a round trip of `rtt`.
    fn jump_to_saved(&mut self, round: u64, rtt: Duration) {
        let Some(rate) = self.saved.take_rate(rtt) else { return };
        let jump =
            Jump { until: round + JUMP_TAKES, full: false, saved: true, before: Some((0, 0)) };
        let (mode, rate) = (Mode::Jump(jump), rate.bytes_per_second() as f64);
        if self.path.jump((mode.name(), Cause::SavedRate), rate, rtt, SAVED_GROWTH) {
            self.mode = mode;
        }
    }

    /// Bytes a second that the bottleneck carries, if a probe may show what part of them is free.
    fn probed_capacity(&self, now: Instant) -> Option<f64> {
        let allowed = self.most().map_or(f64::INFINITY, |most| most.bytes_per_second() as f64);
        self.path.probed_capacity(now).filter(|capacity| *capacity <= allowed)
    }

    fn begin_probe(&mut self, now: Instant, sample: &Sample) {
        let Some(capacity) = self.probed_capacity(now) else { return };
        if let Mode::Start(start) = &self.mode {
            let probe = Probe::new(capacity, self.path.least_rtt(), start.loss(), sample);
            self.mode = Mode::Probe(probe, start.probed());
        }
    }

    fn leave_probe(&mut self, lost: bool) {
        if lost {
            self.path.on_lost_probe();
        }
        let Mode::Probe(_, start) = &self.mode else { return };
        if start.is_look() {
            self.mode = Mode::Avoidance;
            self.path.end_start(self.mode.name(), Cause::Look);
        } else {
            self.mode = Mode::Start(*start);
        }
    }

    /// A probe found that so many bytes a second are free.
    fn jump_to_free(&mut self, sample: &Sample, rate: f64, waited: Option<Duration>) {
        let full = waited.is_some();
        if let Some(waited) = waited {
            self.path.on_own_queue(waited);
            if let Some(tolerance) = &mut self.tolerance {
                tolerance.on_free();
            }
        }
        // What left before it is reported first.
        let until = sample.round + 1 + JUMP_TAKES;
        let mode = Mode::Jump(Jump { until, full, saved: false, before: None });
        let rtt = self.path.least_rtt();
        // Where next to nothing more is free, the queue of the probe is waited for all the same.
        if self.path.jump((mode.name(), Cause::Free), rate, rtt, FREE_GROWTH) || full {
            self.mode = mode;
        } else {
            self.leave_probe(false);
        }
    }

    /// What a jump sent arrived. The start goes on from a saved rate, or where the path carries
    /// more than a probe sent; else it is over.
    fn end_jump(&mut self, now: Instant) {
        if matches!(self.mode, Mode::Jump(Jump { full: true, .. })) {
            self.mode = Mode::Avoidance;
            self.path.end_start(self.mode.name(), Cause::Free);
            let loss = self.path.losses().recent();
            if let Some(tolerance) = &mut self.tolerance {
                tolerance.on_path_full(now, loss, &self.path);
            }
            self.path.forget_losses();
        } else {
            self.mode = Mode::Start(Start::after(self.path.losses()));
        }
    }

    /// What a jump sends is too much. What was sent arrives during a drain, as fast
    /// as the path carries it.
    fn retreat(&mut self, round: u64) {
        self.fail_jump();
        if matches!(self.mode, Mode::Jump(Jump { saved: false, .. })) {
            self.path.on_lost_probe();
        }
        let sent = self.sent_by_start(0.0);
        self.drain(Cause::Retreat, round, self.path.flight_rate(), Some(sent));
    }

    /// It was not the queue of the start that made the round trip longer.
    fn resume_start(&mut self, window: f64) {
        self.mode = Mode::Start(Start::after(self.path.losses()));
        self.path.settle(self.mode.name(), Cause::NotFull, window);
        self.path.forget_threshold();
        self.events.on_answered(self.sent_bytes);
    }

    /// Whether a probe may find that more is free.
    fn can_look(&self, now: Instant) -> bool {
        let allowed = self.most().map_or(f64::INFINITY, |most| most.bytes_per_second() as f64);
        let marked = self.tolerance.as_ref().is_some_and(Tolerance::was_marked);
        !marked && self.path.has_room(now).is_some_and(|capacity| capacity <= allowed)
    }

    /// Looks whether the path carries more.
    fn begin_start(&mut self, now: Instant) {
        self.mode = Mode::Start(self.path.begin_start().as_look());
        self.path.look(self.mode.name());
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_look(now, &self.path);
        }
    }

    fn excuse(&mut self, now: Instant, loss: f64) {
        self.mode = Mode::Avoidance;
        if let Some(tolerance) = &mut self.tolerance {
            let window = tolerance.on_passed(now, loss, self.path.window());
            self.path.settle(self.mode.name(), Cause::Test, window);
        }
        self.events.on_answered(self.sent_bytes);
        // The window from before the losses may have been far from filling the path.
        if loss < start::MOST_PROBED && self.can_look(now) {
            self.begin_start(now);
        }
    }

    fn leave_test(&mut self, now: Instant) {
        self.mode = Mode::Avoidance;
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_test_void(now);
        }
        self.events.on_answered(self.sent_bytes);
    }

    fn begin_reconfirm(&mut self, now: Instant, round: u64) {
        let (window, rate) = (self.path.window(), self.path.best_rate());
        let until = round + RECONFIRM_TAKES;
        self.mode = Mode::Reconfirm(Reconfirm { until, window, rate });
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_reconfirm(now);
        }
        let waits = self.path.base().excess() + self.path.base().noise();
        let part = 1.0 - 2.0 * waits.as_secs_f64() / self.path.least_rtt().as_secs_f64();
        let part = part.clamp(RECONFIRM_PART.0, RECONFIRM_PART.1);
        let window = self.path.product(part * rate).min(window);
        self.path.settle(self.mode.name(), Cause::Reconfirm, window);
    }

    /// The round trip that grew is the path's, and the window is what it was before.
    fn change_path(&mut self, window: f64, progress: &Progress) {
        let rtt = progress.round.map_or(self.path.rtt(), |round| round.min_rtt);
        self.path.replace_base(rtt);
        let clean = self.tolerance.as_ref().is_some_and(|t| t.is_clean(&self.path));
        self.mode = match clean {
            // What the bottleneck carried is not what it carries now.
            true => Mode::Start(self.path.begin_start().probed()),
            false => Mode::Avoidance,
        };
        self.path.settle(self.mode.name(), Cause::PathChange, window);
        if clean {
            self.path.forget_threshold();
        }
    }

    fn end_reconfirm(&mut self, moved: bool, progress: &Progress) {
        let Mode::Reconfirm(before) = &self.mode else { return };
        let before = *before;
        self.mode = Mode::Avoidance;
        let Some(round) = progress.round else { return };
        if moved {
            self.path.replace_base(round.min_rtt);
        }
        let product = self.path.packets(before.rate * round.min_rtt.as_secs_f64());
        let window = self.path.window().max(before.window.min(product + LEAST_DELAY_WINDOW));
        self.path.settle(self.mode.name(), Cause::Reconfirm, window);
    }

    fn reduce(&mut self, now: Instant, cause: Cause, beta: f64) {
        let beta = if cause == Cause::Mark { beta } else { self.path.after_loss(beta) };
        let tested = matches!(self.mode, Mode::Testing(_));
        if let Mode::Reconfirm(Reconfirm { window, .. }) = self.mode {
            // What is not sent for a while was not given up.
            self.path.settle(self.mode.name(), Cause::Reconfirm, window);
        }
        self.fail_jump();
        self.mode = Mode::Recovery;
        if let Some(tolerance) = &mut self.tolerance {
            tolerance.on_reduced(now, cause, (tested, beta), &self.path);
        }
        self.path.reduce(self.mode.name(), cause, beta);
        self.events.on_answered(self.sent_bytes);
    }

    fn grow_in_slow_start(&mut self, acked: f64, share: f64) {
        self.path.grow_in_slow_start(self.mode.name(), acked, share);
        if self.path.is_past_threshold() {
            self.mode = Mode::Avoidance;
        }
    }

    fn grow_in_start(&mut self, now: Instant, acked: f64) {
        let Mode::Start(start) = &self.mode else { return };
        // A window that a ceiling keeps from being used need not grow fast, and not at all if half
        // of it is enough.
        let growth = match (self.is_held(HALF_GAIN), self.is_held(SLOW_START_GAIN)) {
            (true, _) => 0.0,
            (false, true) => 1.0,
            (false, false) => self.path.growth_of_start(now),
        };
        self.grow_in_slow_start(acked / (1.0 - start.loss()), growth);
    }

    /// What the ceiling and the receiver allow at most.
    fn most(&self) -> Option<Rate> {
        self.ceilings.least()
    }

    /// Whether that is less than what the window would send at this gain.
    fn is_held(&self, gain: u64) -> bool {
        self.most().is_some_and(|most| most < self.path.window_rate().scaled(gain, 100))
    }

    /// Burst values of `rate`: as long as `train` while trains leave, and no longer than a short
    /// queue bears.
    fn burst(&self, rate: Rate, train: Option<u32>) -> Burst {
        let burst = burst_for(rate, self.path.packet_bytes());
        let packets = burst.packets.min(self.path.most_at_once(rate));
        let packets = packets.max(train.unwrap_or_default());
        if packets == burst.packets {
            return burst;
        }
        let bytes = u64::from(packets) * u64::from(self.path.packet_bytes());
        Burst { packets, interval: rate.time_for(bytes) }
    }

    /// Burst values of `rate`, where no burst takes longer than `longest`.
    fn burst_within(&self, rate: Rate, longest: Duration) -> Burst {
        let packet = u64::from(self.path.packet_bytes());
        let packets = u32::try_from(rate.bytes_in(longest) / packet).unwrap_or(u32::MAX);
        let packets = packets.clamp(1, burst_for(rate, self.path.packet_bytes()).packets);
        Burst { packets, interval: rate.time_for(u64::from(packets) * packet) }
    }

    /// Pacing in this mode, in hundredths of a window a round trip.
    fn gain(&self) -> u64 {
        let gain = match &self.mode {
            Mode::SlowStart(_) | Mode::Start(_) => SLOW_START_GAIN,
            Mode::Recovery | Mode::Avoidance | Mode::Reconfirm(_) => PACING_GAIN,
            Mode::ShortQueue(_) => SHORT_QUEUE_GAIN,
            Mode::Probe(..) | Mode::Jump(_) => WHOLE_GAIN,
            Mode::Testing(test) if !test.is_low() => WHOLE_GAIN,
            Mode::Testing(_) | Mode::Drain(_) => HALF_GAIN,
        };
        // The window does not hold back a sender there that is faster than it.
        if self.path.is_reported_late() { gain.min(WHOLE_GAIN) } else { gain }
    }

    /// Burst values and cap, from the window.
    fn set_pacing(&mut self) {
        let most = [self.most(), self.carried].into_iter().flatten().min();
        let rate = |gain| {
            let rate = self.path.window_rate().scaled(gain, 100).max(LEAST_RATE);
            most.map_or(rate, |most| rate.min(most))
        };
        let train = self.path.train(rate(self.gain()));
        // A train that the cap cuts leaves in two parts, and shows less than it could. A small
        // window is not exceeded for that, and one that doubles, or is not used, has room.
        let doubles = matches!(self.mode, Mode::SlowStart(_) | Mode::Start(_));
        let has_room = doubles || self.is_held(WHOLE_GAIN);
        let is_small = |train: u32| f64::from(train * TRAINS_IN_WINDOW) <= self.path.window();
        let whole = !has_room && train.is_some_and(is_small);
        let gain = if whole { self.gain().min(SHORT_QUEUE_GAIN) } else { self.gain() };
        let burst = self.burst(rate(gain), train);
        // Packets that are lost count as in flight until they are found missing.
        let excused = self.tolerance.as_ref().and_then(Tolerance::excused).unwrap_or_default();
        let missing = (self.path.window_bytes() as f64 * excused / 2.0) as u64;
        let flight = self.path.flight_bytes().saturating_add(missing);
        let mut cap = flight.saturating_add(self.path.unreported_bytes());
        if whole {
            let train = u64::from(burst.packets) * u64::from(self.path.packet_bytes());
            let gained = cap / 100 * (SHORT_QUEUE_GAIN - 100);
            cap = cap.saturating_add(gained).saturating_add(train);
        }
        self.pacing = Pacing { cap_bytes: Some(cap), ..Pacing::of(burst) };
        if let Mode::Probe(probe, _) = &self.mode {
            self.pacing.cap_bytes = Some(cap.saturating_add(probe.bytes()));
            if let Some(pace) = probe.rate() {
                self.pacing.burst = self.burst_within(pace, probe.longest_burst());
            }
        }
    }
}

impl RateControl for Controller {
    fn answers_marks(&self) -> bool {
        true
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        self.sent_bytes = sample.sent_bytes;
        let rtt = match self.tolerance {
            Some(_) => self.path.without_way_back(sample),
            None => sample.rtt,
        };
        let sample = &Sample { rtt, ..*sample };
        if std::mem::take(&mut self.took_over) {
            self.path.begin_counts(now, sample);
            self.events.on_sample(sample);
            self.events.on_answered(self.sent_bytes);
            if let Some(tolerance) = &mut self.tolerance {
                tolerance.on_sample(sample);
            }
            self.set_pacing();
            return;
        }
        let progress = self.path.on_sample(now, sample);
        if progress.round.is_some() && self.tolerance.is_some() {
            let at_once = matches!(self.mode, Mode::Start(_) | Mode::Probe(..) | Mode::Jump(_));
            self.path.begin_trains(now, at_once);
            if progress.used && self.mode.is_settled() {
                self.saved.on_full_round();
            }
        }
        if let Some(rtt) = sample.rtt
            && matches!(self.mode, Mode::Start(_))
        {
            self.jump_to_saved(sample.round, rtt);
        }
        let evidence = self.evidence(now, sample, &progress);
        let action = decide(&self.mode, evidence);
        self.act(now, action, sample, &progress);
        let carried = self.path.known_capacity(now).filter(|_| self.path.is_reported_late());
        self.carried = carried.map(|bytes| Rate::from_bytes_per_second(bytes as u64));
        self.set_pacing();
    }

    fn on_silence(&mut self, now: Instant) {
        // A sender that is silent already has nothing left to give.
        if self.path.window() > 1.0 {
            let progress = Progress { acked: 0.0, used: false, round: None };
            let action = decide(&self.mode, Evidence::Silence);
            self.act(now, action, &Sample::default(), &progress);
        }
        self.set_pacing();
    }

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        self.limit(offer);
    }

    fn on_ceiling(&mut self, _now: Instant, ceiling: Option<Rate>) {
        self.ceilings.set_client(ceiling);
        self.set_pacing();
    }

    fn take_over(&mut self, _now: Instant, rate: Rate, rtt: Duration) {
        // The other one may have left most of the path alone, or sent too much for it.
        self.took_over = true;
        let fair = self.tolerance.is_some();
        self.mode = if fair { self.slow_start() } else { Mode::Avoidance };
        self.path.take_over(self.mode.name(), rate, rtt);
        if fair {
            self.path.forget_threshold();
        }
        self.set_pacing();
    }

    fn on_pause_over(&mut self, _now: Instant, lasted: Duration) {
        if lasted >= STALE_AFTER {
            self.on_interruption();
            self.mode = self.slow_start();
            // A sender that excuses loss begins as on an unknown path, or it would not see the
            // queue that its tests need.
            let (window, threshold) = match self.tolerance {
                Some(_) => (INITIAL_TRAINS, f64::INFINITY),
                None => (INITIAL_WINDOW, self.path.window()),
            };
            self.path.begin_again(self.mode.name(), Cause::Pause, window, threshold);
            self.set_pacing();
        }
    }

    fn on_whole(&mut self, bytes: u64) {
        if self.tolerance.is_some() && bytes <= SHORT_BYTES {
            let packets = self.path.packets(bytes as f64 * WITH_HEADERS);
            self.path.begin_with(packets.max(INITIAL_TRAINS));
            self.set_pacing();
        }
    }

    fn recall(&mut self, known: Remembered, rtt: Option<Duration>) {
        if self.tolerance.is_some() {
            self.saved.recall(known);
            if let Some(rtt) = rtt {
                self.jump_to_saved(0, rtt);
                self.set_pacing();
            }
        }
    }

    fn learned(&self) -> Learned {
        let (rate, rtt) = (self.path.best_rate(), self.path.min_rtt());
        self.saved.learned(rate, rtt, self.path.packet_bytes())
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        if let Some(times) = self.path.set_packet_bytes(self.mode.name(), bytes) {
            self.mode.on_packets_resized(times);
            if let Some(tolerance) = &mut self.tolerance {
                tolerance.on_packets_resized(times);
            }
        }
        self.set_pacing();
    }

    fn on_data_sent(&mut self, _now: Instant, packets: u32) {
        let bytes = u64::from(packets) * u64::from(self.path.packet_bytes());
        if let Mode::Probe(probe, _) = &mut self.mode
            && probe.on_sent(bytes)
        {
            self.set_pacing();
        }
    }

    fn tries(&self) -> bool {
        matches!(self.mode, Mode::Start(_) | Mode::Probe(..) | Mode::Jump(_))
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn belief(&self) -> Belief {
        Belief {
            phase: self.phase(),
            bandwidth: self.path.delivery_rate(),
            min_rtt: self.path.min_rtt(),
            queue: self.path.queue(),
        }
    }

    fn path_view(&self, now: Instant) -> PathView {
        self.path.view(now)
    }

    fn charges_bytes(&self) -> bool {
        true
    }

    fn take_change(&mut self) -> Option<WindowChange> {
        self.path.take_change()
    }

    fn take_test(&mut self) -> Option<TestRecord> {
        self.tested.take()
    }

    fn take_excuse(&mut self) -> Option<ExcuseRecord> {
        self.tolerance.as_mut().and_then(Tolerance::take_excuse)
    }
}
