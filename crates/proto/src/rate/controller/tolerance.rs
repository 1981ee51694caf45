//! What a controller needs to excuse loss, and to keep a short queue where it has the path for
//! itself: its state, and what it concludes from reports.

use std::time::Duration;

use super::ablation::{Part, is_left_out};
use super::cause::Cause;
use super::congestion::Congestion;
use super::excuse::{self, Excuse, ExcuseRecord, Judgement};
use super::foreign_queue::ForeignQueue;
use super::looks::Looks;
use super::low_delay::{self, LowDelay};
use super::mode::{Evidence, Mode};
use super::path_model::{COMPANY_SHARE, LEAST_DELAY_WINDOW, PathModel, Progress};
use super::response_test;
use super::rounds::Round;
use super::short_queue::{self, QueueStep, Suspension};
use crate::rate::Sample;
use crate::time::Instant;

/// A sender with a smaller share of the bottleneck cannot tell congestion from chance.
const LEAST_SHARE: f64 = 0.125;
/// A sender with a larger share has the path for itself.
const WHOLE_SHARE: f64 = 0.9;
/// One with a larger share than this has it after so many round trips, or after that time. A
/// neighbour that has just reduced its window leaves as much for a while.
const ALONE_SHARE: f64 = 0.75;
const ALONE_ROUNDS: u32 = 64;
const ALONE_TIME: Duration = Duration::from_secs(10);
/// It must be smaller for so many round trips: what it gave up itself is not a neighbour's yet.
const COMPANY_ROUNDS: u32 = 16;
/// A sender that has less than this may have been kept from its share by losses.
const SMALL_SHARE: f64 = 0.5;
/// A sender that has the path for itself and did not fill it for so many round trips probes what
/// is free, where so many of the last 32 lost packets.
const ROOMY_ROUNDS: u32 = 3;
const LOSSY_ROUNDS: f64 = 8.0;
/// Round trips for which a mark says that the sender has not the path for itself: its queue marks
/// before it is as long as a sender's own.
const MARKED_FOR: u64 = 64;
/// No smaller loss share than this is tested for.
const LEAST_TESTED: f64 = 0.02;
/// No smaller loss share than this is presumed from a start.
const LEAST_PRESUMED: f64 = 0.005;
/// Time and round trips until the smallest round trip may be measured again.
const RECONFIRM_EVERY: Duration = Duration::from_secs(5);
const RECONFIRM_ROUNDS: u32 = 32;
/// A smallest round trip that is longer by this part of itself is another one.
const MOVED_PART: u32 = 16;
/// A sender that has the path for itself keeps so many times its own queue until it was seen.
const SHOWN: u32 = 2;
/// Losses in so many of 32 round trips are not those of a queue that overflows now and then.
const MOST_ROUNDS: f64 = 16.0;
/// This part of the range of round trips is a sender's own queue, where queues are short.
const OWN_RANGE_PART: f64 = 4.0;
/// After a path change the window doubles if no more than this is lost beyond the excuse.
const CLEAN_LOSS: f64 = 0.02;
/// An excuse restores a window of at most so many times the present one.
const RESTORED: f64 = 3.0;

/// The state of it.
#[derive(Debug, Default)]
pub(super) struct Tolerance {
    excuse: Excuse,
    low_delay: LowDelay,
    looks: Looks,
    suspension: Suspension,
    foreign_queue: ForeignQueue,
    /// Only what is excused keeps a short queue.
    fills_queues: bool,
    /// When the smallest round trip was measured again last.
    reconfirmed: Option<Instant>,
    lost: u64,
    reported: u64,
    /// Packets that the newest report found missing, and all that the last three reported.
    newly_lost: u64,
    newly_reported: [u64; 3],
    /// Nearly all that the bottleneck carries is this sender's.
    has_path: bool,
    /// Round trips in a row with a share that may be all.
    above: u32,
    /// Round trips in a row with less than that.
    below: u32,
    /// Round trips in a row in which this sender had the path and did not fill it.
    roomy: u32,
    /// The round trip of the last mark.
    marked_in: Option<u64>,
}

impl Tolerance {
    /// The same, which keeps a short queue only where losses are excused.
    pub(super) fn fill_queues(&mut self) {
        self.fills_queues = true;
    }

    /// The loss share that is excused now, if any.
    pub(super) fn excused(&self) -> Option<f64> {
        self.excuse.share()
    }

    /// The newest excuse that began or ended and was not traced yet.
    pub(super) fn take_excuse(&mut self) -> Option<ExcuseRecord> {
        self.excuse.take_record()
    }

    /// Takes in a report, in every mode.
    pub(super) fn on_sample(&mut self, sample: &Sample) {
        self.newly_lost = sample.lost_packets.saturating_sub(self.lost);
        self.lost = self.lost.max(sample.lost_packets);
        let reported = sample.delivered_packets.saturating_add(sample.lost_packets);
        let newly = reported.saturating_sub(self.reported);
        self.newly_reported = [self.newly_reported[1], self.newly_reported[2], newly];
        self.reported = self.reported.max(reported);
    }

    /// Whether what was lost is congestion: `event` says that a packet is missing that was sent
    /// after the last reduction, and `recovering` that the report is of packets sent before it.
    pub(super) fn judge_loss(
        &mut self,
        now: Instant,
        sample: &Sample,
        (event, recovering): (bool, bool),
        (progress, path): (&Progress, &PathModel),
    ) -> Option<Evidence> {
        // Losses of a flight that was answered are not counted again.
        let round = progress.round.filter(|_| !recovering);
        let judgement = round.map(|round| {
            let dispersion = path.losses().dispersion();
            self.excuse.on_round(now, sample.round, &round, dispersion)
        });
        match judgement {
            Some(Judgement::Exceeded) => return Some(Evidence::Excess),
            Some(Judgement::Expired) => {
                let share = self.excuse.share().unwrap_or_default();
                self.excuse.revoke(excuse::EXPIRED);
                self.excuse.keep_window(path.window());
                // A low delay excuses half of what it may, surely, without a test.
                if share > low_delay::MOST / 2.0
                    && let Some(due) = self.test_due(now, share, path)
                {
                    return Some(due);
                }
            }
            Some(Judgement::Nothing) | None => {}
        }
        if self.excuse.share().is_some() {
            return None;
        }
        // What a report finds missing was sent with the packets of the one two before it.
        let among = self.newly_reported.iter().copied().max().unwrap_or_default();
        let lost = (self.newly_lost, among);
        if lost.0 > 0 && self.low_delay.excuses(now, (path, self.has_path), lost, self.reported) {
            return None;
        }
        if event {
            return Some(Evidence::Congestion(Congestion::Loss));
        }
        if self.excuse.take_request() {
            let share = path.losses().recent().max(LEAST_TESTED);
            return self.test_due(now, share, path);
        }
        None
    }

    /// A test at this loss share, if it may begin now and can be over in time.
    fn test_due(&self, now: Instant, loss: f64, path: &PathModel) -> Option<Evidence> {
        let base = path.base();
        let stands = base.mean_excess() > path.standing(now);
        if is_left_out(Part::ResponseTest) {
            return None;
        }
        if stands || !base.is_confirmed(now) || !self.excuse.may_test(now) {
            return None;
        }
        // Against half of its share: the share itself is not known exactly.
        let own = path.share(now).unwrap_or(LEAST_SHARE);
        if own < LEAST_SHARE {
            return None;
        }
        let share = own / 2.0;
        let packets = (response_test::most_rounds(share, path.rtt()), path.window());
        let fits = response_test::fits(loss, share, path.losses().dispersion(), packets);
        fits.then_some(Evidence::TestDue { share, loss })
    }

    /// Takes in the share of the bottleneck that this sender had in a round trip.
    fn on_share(&mut self, share: Option<f64>, path: &PathModel) {
        self.above = match share {
            Some(share) if share > ALONE_SHARE => self.above.saturating_add(1),
            _ => 0,
        };
        let lasts = self.above > ALONE_ROUNDS || path.rtt() * self.above > ALONE_TIME;
        let least = match self.has_path {
            true => COMPANY_SHARE,
            false if lasts => ALONE_SHARE,
            false => WHOLE_SHARE,
        };
        let marked = self.marked_in.is_some_and(|at| path.round().saturating_sub(at) < MARKED_FOR);
        let above = share.is_some_and(|share| share > least);
        self.below = if above { 0 } else { self.below.saturating_add(1) };
        let kept = self.has_path && share.is_some() && self.below <= COMPANY_ROUNDS;
        self.has_path = (above || kept) && !marked;
    }

    /// What a round trip shows where the window follows losses or keeps a short queue; a window
    /// that was not `used` does not grow.
    pub(super) fn judge_round(
        &mut self,
        now: Instant,
        (round, used): (&Round, bool),
        (mode, path): (&mut Mode, &PathModel),
    ) -> Option<Evidence> {
        let (base, share) = (path.base(), path.share(now));
        self.on_share(share, path);
        let excused = self.excuse.share().is_some();
        // A short queue does not show where round trips differ by more, by chance or by the path.
        // But what is excused must not fill a queue that only shows when it is long.
        let varies = if excused { base.jitter() } else { base.varies_by() };
        let hidden = varies > path.own_queue(now).max(base.noise()) || self.suspension.lasts(now);
        let short = excused || (self.has_path && !self.fills_queues);
        let short = short && !is_left_out(Part::ShortQueue);
        let alone = base.is_confirmed(now) && !hidden && short;
        let pause = RECONFIRM_EVERY.max(path.rtt() * RECONFIRM_ROUNDS);
        let due = self.reconfirmed.is_none_or(|last| now.since(last) > pause);
        let due = due && !is_left_out(Part::Reconfirm);
        let large = share.is_some_and(|share| share >= LEAST_SHARE);
        let window = if large { path.window_bytes() } else { 0 };
        let excess = round.min_rtt.saturating_sub(base.least().unwrap_or_default());
        let shows = base.by_chance() + base.noise();
        self.foreign_queue.on_round(path.carried_time(now, window), excess, shows);
        // Losses that are a habit of the path take more than growth gives back.
        let lossy = path.losses().lossy_rounds() >= LOSSY_ROUNDS;
        let looks = !is_left_out(Part::Looks);
        let room = looks && self.has_path && used && lossy && path.has_room(now).is_some();
        self.roomy = if room { self.roomy.saturating_add(1) } else { 0 };
        if self.roomy >= ROOMY_ROUNDS && matches!(mode, Mode::ShortQueue(_) | Mode::Avoidance) {
            self.roomy = 0;
            return Some(Evidence::LookDue);
        }
        match mode {
            Mode::ShortQueue(_) if !alone => Some(Evidence::Company),
            // Before the confirmation ends, or the next loss would be congestion.
            Mode::ShortQueue(_) if self.has_path && due && base.should_be_confirmed(now) => {
                Some(Evidence::BaseUnconfirmed)
            }
            Mode::ShortQueue(law) => {
                let step =
                    law.on_round(path.window(), round, &short_queue_path(now, path, excused));
                match step {
                    QueueStep::NoQueue(_) => {
                        self.suspension.begin(now);
                        Some(Evidence::Queue(step))
                    }
                    QueueStep::Window(window) if window > path.window() && !used => None,
                    step => Some(Evidence::Queue(step)),
                }
            }
            Mode::Avoidance if !is_left_out(Part::ForeignQueue) && self.foreign_queue.take(now) => {
                Some(Evidence::Queue(QueueStep::NotMine(path.window())))
            }
            Mode::Avoidance if alone => Some(Evidence::Alone),
            Mode::Avoidance => {
                let waits = base.mean_excess() >= base.tolerance();
                let small = share.is_none_or(|share| share < SMALL_SHARE);
                let untested = large && !self.excuse.may_test(now);
                if looks && !excused && small && !waits && self.looks.is_due(now, path, untested) {
                    return Some(Evidence::LookDue);
                }
                let unconfirmed = self.has_path && !base.is_confirmed(now) && due;
                unconfirmed.then_some(Evidence::BaseUnconfirmed)
            }
            _ => None,
        }
    }

    /// The window is reduced to `beta` of itself; `tested` says that a test ends by that.
    pub(super) fn on_reduced(
        &mut self,
        now: Instant,
        cause: Cause,
        (tested, beta): (bool, f64),
        path: &PathModel,
    ) {
        match cause {
            Cause::Mark => {
                self.excuse.on_marked(path.window() * beta);
                self.marked_in = Some(path.round());
            }
            _ if tested => self.excuse.refuse(now),
            _ => self.excuse.on_reduced(path.round(), path.window()),
        }
    }

    /// A start found the path full, and lost this share of its packets before that.
    pub(super) fn on_path_full(&mut self, now: Instant, loss: f64, path: &PathModel) {
        let large = path.flight_share(now).is_none_or(|share| share >= LEAST_SHARE);
        if loss > LEAST_PRESUMED && large && !is_left_out(Part::Presumption) {
            // Few packets show it, and the true share may be larger by a standard error.
            let (packets, _) = path.losses().recent_counts();
            let error = (loss * (1.0 - loss) / packets.max(1.0)).sqrt();
            self.excuse.presume(now, loss + error);
        }
    }

    /// A probe found hardly any packets of others.
    pub(super) fn on_free(&mut self) {
        (self.has_path, self.below) = (true, 0);
    }

    /// A test passed at this loss share. Answers the window, in packets, to go on with.
    pub(super) fn on_passed(&mut self, now: Instant, loss: f64, window: f64) -> f64 {
        self.excuse.grant(now, loss);
        self.looks.on_excused();
        window.max(self.excuse.window_before().min(RESTORED * window))
    }

    /// The loss that a test was to judge is over.
    pub(super) fn on_test_void(&mut self, now: Instant) {
        self.excuse.refuse(now);
    }

    /// Whether the path ever marked a packet: the train of a probe would be marked.
    pub(super) fn was_marked(&self) -> bool {
        self.marked_in.is_some()
    }

    /// Nothing arrived, or nothing was sent, for so long that the path may be another one.
    pub(super) fn on_interruption(&mut self) {
        self.excuse.revoke(excuse::INTERRUPTED);
        self.has_path = false;
    }

    /// Packets are so many times as large.
    pub(super) fn on_packets_resized(&mut self, times: f64) {
        let window = self.excuse.window_before() / times;
        self.excuse.keep_window(window);
    }

    /// A look whether the path carries more begins.
    pub(super) fn on_look(&mut self, now: Instant, path: &PathModel) {
        self.looks.on_begun(now, path);
    }

    /// The smallest round trip is measured again from now on.
    pub(super) fn on_reconfirm(&mut self, now: Instant) {
        self.reconfirmed = Some(now);
    }

    /// Whether so little is lost that a path that changed may be tried by doubling.
    pub(super) fn is_clean(&self, path: &PathModel) -> bool {
        path.losses().recent() < CLEAN_LOSS + self.excuse.share().unwrap_or_default()
    }
}

/// Whether the smallest round trip of `round`, in which less was sent, is that of another path.
pub(super) fn has_moved(round: &Round, path: &PathModel) -> bool {
    let base = path.base();
    let least = base.least().unwrap_or_default();
    let limit = least + base.noise() * 2 + least / MOVED_PART;
    round.min_rtt > limit && path.was_reduced() && round.lost == 0
}

/// What the law of the short queue needs to know.
fn short_queue_path(now: Instant, path: &PathModel, excused: bool) -> short_queue::Path {
    let (base, own) = (path.base(), path.own_queue(now));
    // A queue that is long once shows later which losses are none of its own. One that lost packets
    // is not made longer for that, unless they are lost at any length and answered.
    let lossy = path.losses().lossy_rounds() >= MOST_ROUNDS;
    let may_show = if excused { false } else { lossy || !path.was_reduced() };
    let shows = may_show && base.longest_queue() < own * SHOWN;
    let queue = if shows { own * SHOWN } else { own };
    let mut seconds = queue.as_secs_f64();
    if !shows && path.was_reduced() && base.range() > base.noise() {
        seconds = seconds.min(base.range().as_secs_f64() / OWN_RANGE_PART);
    }
    short_queue::Path {
        target: path.carried_in(now, seconds).max(LEAST_DELAY_WINDOW),
        base: base.least().unwrap_or_default(),
        chance: base.noise(),
        noise: base.tolerance(),
        much: (queue + base.noise()) * 2,
    }
}
