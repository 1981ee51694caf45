//! What a controller does, and the table that says what it does next.

use std::time::Duration;

use super::ablation::{Part, is_left_out};
use super::cause::Cause;
use super::congestion::Congestion;
use super::hystart::{Growth, HyStart};
use super::probe::Probe;
use super::response_test::{ResponseTest, TestVerdict};
use super::short_queue::{QueueStep, ShortQueue};
use super::start::{Start, StartEnd};
use crate::rate::Sample;
use crate::rate::cubic::BETA;

/// What is left of a window after a mark in congestion avoidance (RFC 8511 §3.1, for CUBIC). A
/// queue that marks is shorter than one that overflows.
const BETA_ECN: f64 = 0.85;

/// A path is full if this part of what is sent arrives, or less. The start sends twice what a path
/// carries before it finds it full.
const FULL_PART: f64 = 0.8;

/// A jump was too far if it lost so many packets, and this part of those reported.
const JUMP_LOST: u64 = 8;
const JUMP_LOST_PART: u64 = 8;

/// What the controller does; each mode owns the data that only it needs.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    /// The window doubles every round trip (RFC 9438 §4.10, RFC 9406).
    SlowStart(HyStart),
    /// The window doubles every round trip while the loss share does not rise.
    Start(Start),
    /// A train of a start leaves, or is on its way, that shows what part of the bottleneck is free.
    Probe(Probe, Start),
    /// A part of what an earlier connection found is sent, or what a probe found, until it is known
    /// to arrive (RFC 9959).
    Jump(Jump),
    /// Half of the rate is sent, so that the queue of the start empties.
    Drain(Drain),
    /// Until what was in flight at a congestion event is reported (RFC 9002 §7.3.2).
    Recovery,
    /// The window grows by CUBIC's curve (RFC 9438 §4.2).
    Avoidance,
    /// The window stays, and half of it is sent in some round trips.
    Testing(ResponseTest),
    /// The window keeps a short queue.
    ShortQueue(ShortQueue),
    /// Less is sent, to see the smallest round trip again.
    Reconfirm(Reconfirm),
}

/// The window of a rate is in use that was saved, or found by a probe, and that is not known to fit
/// the path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Jump {
    /// The round trip in which all that its first one sent is reported.
    pub(super) until: u64,
    /// The path carries no more, so that the start ends by it.
    pub(super) full: bool,
    /// It is a saved rate.
    pub(super) saved: bool,
    /// Packets that had arrived and that were found missing before the first report of what it
    /// sent.
    pub(super) before: Option<(u64, u64)>,
}

/// The queue of a start is being emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drain {
    /// The round trip in which it ends.
    pub(super) until: u64,
    /// Bytes a second that the path was found to carry, those that are lost there included.
    pub(super) rate: f64,
    /// What the start sent, whose arrival measures that rate; none if it lost more at its end.
    pub(super) queue: Option<StartQueue>,
}

/// What a start sent last, while it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StartQueue {
    /// What one packet that arrives stands for: more than one where others were lost all along.
    pub(super) worth: f64,
    /// The window of the start, in packets, and the bytes that it sent in a second.
    pub(super) window: f64,
    pub(super) sent: f64,
}

impl Jump {
    /// Takes in a report. Whether it lost too much.
    pub(super) fn is_too_far(&mut self, sample: &Sample) -> bool {
        let counts = (sample.delivered_packets, sample.lost_packets);
        // Until its last round trip what left before it is reported.
        if self.before.is_none() && sample.round + 1 >= self.until {
            self.before = Some(counts);
        }
        let Some(before) = self.before else { return false };
        let arrived = counts.0.saturating_sub(before.0);
        let lost = counts.1.saturating_sub(before.1);
        lost >= JUMP_LOST && lost.saturating_mul(JUMP_LOST_PART) > arrived.saturating_add(lost)
    }
}

impl Drain {
    /// Takes in a report: what arrived over the last round trip, in bytes a second.
    pub(super) fn on_rate(&mut self, arrived: f64) {
        if let Some(queue) = self.queue {
            self.rate = self.rate.max(arrived * queue.worth);
        }
    }

    /// What is found in its last round trip: the window of the start, if nearly all that it sent
    /// arrived, and that is less than what the bottleneck is known to carry, in bytes a second:
    /// then the path was not full.
    pub(super) fn found(&self, known: Option<f64>) -> Evidence {
        let full = known.is_some_and(|known| self.rate >= FULL_PART * known);
        let arrived = self.queue.filter(|queue| self.rate >= FULL_PART * queue.sent);
        let not_full = arrived.filter(|_| !full && !is_left_out(Part::NotFull));
        Evidence::Drained { not_full: not_full.map(|queue| queue.window) }
    }
}

/// The smallest round trip is being measured again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reconfirm {
    /// The round trip in which it ends.
    pub(super) until: u64,
    /// Window before, in packets.
    pub(super) window: f64,
    /// Bytes a second that arrived before.
    pub(super) rate: f64,
}

impl Mode {
    /// Whether it judges losses itself, so that none of them is an event.
    pub(super) const fn judges_losses(&self) -> bool {
        matches!(
            self,
            Self::Testing(_) | Self::Start(_) | Self::Probe(..) | Self::Jump(_) | Self::Drain(_)
        )
    }

    /// Whether the rate of the path was found.
    pub(super) const fn is_settled(&self) -> bool {
        !matches!(
            self,
            Self::SlowStart(_) | Self::Start(_) | Self::Probe(..) | Self::Jump(_) | Self::Drain(_)
        )
    }

    /// Packets are so many times as large: windows keep their bytes.
    pub(super) fn on_packets_resized(&mut self, times: f64) {
        match self {
            Self::Drain(Drain { queue: Some(queue), .. }) => queue.window /= times,
            Self::ShortQueue(law) => law.on_packets_resized(times),
            Self::Reconfirm(reconfirm) => reconfirm.window /= times,
            _ => {}
        }
    }

    /// Its name in a trace.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::SlowStart(_) => "slow_start",
            Self::Start(_) => "start",
            Self::Probe(..) => "probe",
            Self::Jump(_) => "jump",
            Self::Drain(_) => "drain",
            Self::Recovery => "recovery",
            Self::Avoidance => "avoidance",
            Self::Testing(_) => "testing",
            Self::ShortQueue(_) => "short_queue",
            Self::Reconfirm(_) => "reconfirm",
        }
    }
}

/// What a report says. Each report gives one: a mark first, then what the mode itself finds, then
/// losses beyond an excuse, other losses, and the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Evidence {
    /// No report for several round trips.
    Silence,
    /// Congestion that is not answered yet, and that nothing excuses.
    Congestion(Congestion),
    /// More is lost than the excuse covers.
    Excess,
    /// The start is over.
    StartOver(StartEnd),
    /// The bottleneck is known, and a probe may find what part of it is free.
    ProbeDue,
    /// So many bytes a second are free: not more, if a train waited so long for that.
    Free { rate: f64, waited: Option<Duration> },
    /// A probe shows nothing, or was `lost`.
    ProbeFailed { lost: bool },
    /// A saved rate, or what a probe found, is known to arrive.
    JumpOver,
    /// It is too much.
    JumpFailed,
    /// The response test has a verdict.
    Tested(TestVerdict),
    /// Loss asks for a test, and it can be over in time, against this share of the bottleneck and
    /// at this loss share.
    TestDue { share: f64, loss: f64 },
    /// All that was in flight at the last event is reported.
    Recovered,
    /// The round trips of a drain are over. The path was full before them, or it was not, with this
    /// window.
    Drained { not_full: Option<f64> },
    /// Little waits and yet packets are lost: the path may carry more.
    LookDue,
    /// The smallest round trip was not seen for long.
    BaseUnconfirmed,
    /// The smallest round trip was measured at a lower rate; `moved` says that it is another one.
    BaseSeen { moved: bool },
    /// Nothing else uses the path, or losses are excused: a short queue is enough.
    Alone,
    /// That does not hold any more.
    Company,
    /// A round trip with a short queue is over.
    Queue(QueueStep),
    /// HyStart++ found the path full.
    PathFull,
    /// Packets arrived, and the window was used.
    Acknowledged(Growth),
    /// Packets arrived, and the window was not used.
    Unused,
}

impl Evidence {
    /// Whether packets were lost to congestion.
    pub(super) const fn is_congestion(&self) -> bool {
        matches!(self, Self::Congestion(_) | Self::Excess)
    }
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// The window falls to a packet, and slow start begins again up to half of it.
    Collapse,
    /// The window falls to this share of itself.
    Reduce(Cause, f64),
    /// The test is over without an excuse, and the window falls to this share of itself.
    EndTest(Cause, f64),
    /// The test is over, for the loss is; the window stays.
    LeaveTest,
    /// The loss is excused, at this share.
    Excuse(f64),
    /// A test begins.
    BeginTest { share: f64, loss: f64 },
    /// The start has found the path full, and this share of the packets was lost all along.
    BeginDrain { loss: f64 },
    /// The queue of the start is empty; congestion avoidance begins, at so many bytes a second.
    EndDrain(f64),
    /// The start is over, for more is lost. The window falls below what arrives.
    EndStart,
    /// The start is over if what it sent last brings no more than this rate, in bytes a second,
    /// where so much is lost.
    AwaitGrowth { rate: f64, loss: f64 },
    /// The window doubles every round trip again.
    BeginStart,
    /// A train leaves that shows what is free.
    BeginProbe,
    /// So many bytes a second are sent at once.
    Jump { rate: f64, waited: Option<Duration> },
    /// The window doubles again, and there is no other probe in this start, or never again where
    /// one was `lost`. A look is over.
    LeaveProbe { lost: bool },
    /// What a jump sent arrived: the start goes on from there, or it is over.
    EndJump,
    /// What a jump sent is too much, and a drain begins.
    Retreat,
    /// The round trip grew, but all that was sent arrived: the start goes on with this window.
    ResumeStart(f64),
    /// Less is sent for some round trips.
    BeginReconfirm,
    /// The window from before, nearly; the path may have another smallest round trip.
    EndReconfirm { moved: bool },
    /// A short queue is kept from now on.
    BeginShortQueue,
    /// The window becomes this.
    Follow(f64),
    /// A short queue does not show: the window from before it was given up.
    LeaveShortQueue(f64),
    /// The path has another length: the window from before the round trip grew.
    PathChanged(f64),
    /// Slow start is over; the window stays.
    EndSlowStart,
    /// The window grows by so much of what was acknowledged.
    GrowInSlowStart(f64),
    /// The window grows by all that was reported, lost or not.
    GrowInStart,
    /// The window grows by CUBIC's curve.
    GrowInAvoidance,
    /// Congestion avoidance begins; the window stays.
    BeginAvoidance,
    /// The window stays, and its curve begins again when it is used.
    Hold,
    /// The window stays.
    Keep,
}

impl Action {
    /// How it ends a test, in a word for a trace.
    pub(super) const fn verdict(&self) -> Option<&'static str> {
        match self {
            Self::Excuse(_) => Some("passed"),
            Self::EndTest(Cause::Mark, _) => Some("marked"),
            Self::EndTest(Cause::TestUndecided, _) => Some("undecided"),
            Self::EndTest(..) => Some("failed"),
            Self::LeaveTest => Some("over"),
            Self::Collapse => Some("silence"),
            _ => None,
        }
    }
}

/// The decision table.
pub(super) fn decide(mode: &Mode, evidence: Evidence) -> Action {
    match (mode, evidence) {
        (_, Evidence::Silence) => Action::Collapse,
        (Mode::Testing(_), Evidence::Congestion(Congestion::Mark)) => {
            Action::EndTest(Cause::Mark, BETA_ECN)
        }
        // The test counts losses, and a start goes on through those that do not rise.
        (
            Mode::Testing(_) | Mode::Start(_) | Mode::Probe(..) | Mode::Jump(_) | Mode::Drain(_),
            Evidence::Congestion(Congestion::Loss) | Evidence::Excess,
        ) => Action::Keep,
        (_, Evidence::Congestion(Congestion::Loss)) => Action::Reduce(Cause::Loss, BETA),
        (_, Evidence::Excess) => Action::Reduce(Cause::Excess, BETA),
        // "in slow start [...] the window reduction [...] as for loss" (RFC 8511 §3.1).
        (
            Mode::SlowStart(_) | Mode::Start(_) | Mode::Probe(..) | Mode::Jump(_),
            Evidence::Congestion(Congestion::Mark),
        ) => Action::Reduce(Cause::Mark, BETA),
        (_, Evidence::Congestion(Congestion::Mark)) => Action::Reduce(Cause::Mark, BETA_ECN),
        (Mode::Start(_), Evidence::StartOver(StartEnd::Queue { loss })) => {
            Action::BeginDrain { loss }
        }
        (Mode::Start(_), Evidence::StartOver(StartEnd::Loss)) => Action::EndStart,
        (Mode::Start(_), Evidence::StartOver(StartEnd::NoGrowth { rate, loss })) => {
            Action::AwaitGrowth { rate, loss }
        }
        (Mode::Start(_), Evidence::ProbeDue) => Action::BeginProbe,
        (Mode::Probe(..), Evidence::Free { rate, waited }) => Action::Jump { rate, waited },
        (Mode::Probe(..), Evidence::ProbeFailed { lost }) => Action::LeaveProbe { lost },
        (Mode::Jump(_), Evidence::JumpOver) => Action::EndJump,
        (Mode::Jump(_), Evidence::JumpFailed) => Action::Retreat,
        (Mode::Testing(_), Evidence::Tested(TestVerdict::Passed(loss))) => Action::Excuse(loss),
        (Mode::Testing(_), Evidence::Tested(TestVerdict::Failed)) => {
            Action::EndTest(Cause::TestFailed, BETA)
        }
        (Mode::Testing(_), Evidence::Tested(TestVerdict::Undecided)) => {
            Action::EndTest(Cause::TestUndecided, BETA)
        }
        (Mode::Testing(_), Evidence::Tested(TestVerdict::Over)) => Action::LeaveTest,
        (
            Mode::Recovery | Mode::Avoidance | Mode::ShortQueue(_),
            Evidence::TestDue { share, loss },
        ) => Action::BeginTest { share, loss },
        (Mode::Drain(drain), Evidence::Drained { not_full: None }) => Action::EndDrain(drain.rate),
        (Mode::Drain(_), Evidence::Drained { not_full: Some(window) }) => {
            Action::ResumeStart(window)
        }
        (Mode::Recovery, Evidence::Recovered) | (Mode::ShortQueue(_), Evidence::Company) => {
            Action::BeginAvoidance
        }
        (Mode::Avoidance | Mode::ShortQueue(_), Evidence::LookDue) => Action::BeginStart,
        (Mode::Avoidance | Mode::ShortQueue(_), Evidence::BaseUnconfirmed) => {
            Action::BeginReconfirm
        }
        (Mode::Reconfirm(_), Evidence::BaseSeen { moved }) => Action::EndReconfirm { moved },
        (Mode::Avoidance, Evidence::Alone) => Action::BeginShortQueue,
        (Mode::ShortQueue(_), Evidence::Queue(QueueStep::Window(window))) => Action::Follow(window),
        (Mode::Avoidance | Mode::ShortQueue(_), Evidence::Queue(QueueStep::NotMine(window))) => {
            Action::PathChanged(window)
        }
        (Mode::ShortQueue(_), Evidence::Queue(QueueStep::NoQueue(window))) => {
            Action::LeaveShortQueue(window)
        }
        (Mode::SlowStart(_), Evidence::PathFull) => Action::EndSlowStart,
        (Mode::SlowStart(_), Evidence::Acknowledged(Growth::Goes(share))) => {
            Action::GrowInSlowStart(share)
        }
        (Mode::Start(_), Evidence::Acknowledged(_)) => Action::GrowInStart,
        (Mode::Avoidance, Evidence::Acknowledged(_)) => Action::GrowInAvoidance,
        (Mode::Avoidance, Evidence::Unused) => Action::Hold,
        // What is no evidence in this mode changes nothing.
        _ => Action::Keep,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const DRAIN: Drain = Drain { until: 7, rate: 5000.0, queue: None };

    #[test]
    fn one_packet_in_eight_is_too_many_for_a_jump() {
        let mut jump = Jump { until: 5, ..Jump::default() };
        let mut too_far = |round, delivered_packets, lost_packets| {
            let sample = Sample { round, delivered_packets, lost_packets, ..Sample::default() };
            jump.is_too_far(&sample)
        };
        assert!(!too_far(3, 50, 50), "what left before it");
        assert!(!too_far(4, 100, 105));
        assert!(!too_far(4, 107, 112));
        assert!(!too_far(4, 156, 113));
        assert!(too_far(4, 155, 113));
    }

    #[test]
    fn a_window_that_is_kept_for_later_keeps_its_bytes() {
        let queue = StartQueue { worth: 1.0, window: 60.0, sent: 1e6 };
        let mut drain = Mode::Drain(Drain { queue: Some(queue), ..DRAIN });
        drain.on_packets_resized(6.0);
        let Mode::Drain(Drain { queue: Some(queue), .. }) = drain else { panic!("{drain:?}") };
        assert_eq!(queue.window, 10.0);
        let mut reconfirm = Mode::Reconfirm(Reconfirm { until: 7, window: 60.0, rate: 1e6 });
        reconfirm.on_packets_resized(6.0);
        let Mode::Reconfirm(reconfirm) = reconfirm else { panic!("{reconfirm:?}") };
        assert_eq!(reconfirm.window, 10.0);
    }

    #[test]
    fn a_path_is_full_if_less_arrives_than_was_sent_or_all_that_it_carries() {
        let of = |rate, sent| {
            let queue = Some(StartQueue { worth: 1.0, window: 60.0, sent });
            Drain { until: 7, rate, queue }
        };
        let not_full = Evidence::Drained { not_full: Some(60.0) };
        let full = Evidence::Drained { not_full: None };
        assert_eq!(of(9e5, 1e6).found(None), not_full);
        assert_eq!(of(7e5, 1e6).found(None), full);
        assert_eq!(of(9e5, 1e6).found(Some(2e6)), not_full);
        assert_eq!(of(9e5, 1e6).found(Some(1e6)), full);
    }

    #[test]
    fn every_mode_answers_every_evidence() {
        let modes = [
            Mode::SlowStart(HyStart::default()),
            Mode::Start(Start::new(0.0, 0.0)),
            Mode::Drain(DRAIN),
            Mode::Recovery,
            Mode::Avoidance,
            Mode::Testing(ResponseTest::new(&Sample::default(), 0.5, 0.05, 64)),
            Mode::ShortQueue(ShortQueue::default()),
            Mode::Reconfirm(Reconfirm { until: 7, window: 100.0, rate: 1000.0 }),
        ];
        let evidence = [
            Evidence::Silence,
            Evidence::Congestion(Congestion::Loss),
            Evidence::Congestion(Congestion::Mark),
            Evidence::Excess,
            Evidence::StartOver(StartEnd::Queue { loss: 0.01 }),
            Evidence::StartOver(StartEnd::Loss),
            Evidence::StartOver(StartEnd::NoGrowth { rate: 5000.0, loss: 0.01 }),
            Evidence::Tested(TestVerdict::Passed(0.05)),
            Evidence::Tested(TestVerdict::Failed),
            Evidence::Tested(TestVerdict::Undecided),
            Evidence::Tested(TestVerdict::Over),
            Evidence::TestDue { share: 0.5, loss: 0.05 },
            Evidence::Recovered,
            Evidence::Drained { not_full: None },
            Evidence::Drained { not_full: Some(400.0) },
            Evidence::LookDue,
            Evidence::BaseUnconfirmed,
            Evidence::BaseSeen { moved: true },
            Evidence::Alone,
            Evidence::Company,
            Evidence::Queue(QueueStep::Window(90.0)),
            Evidence::Queue(QueueStep::NotMine(90.0)),
            Evidence::Queue(QueueStep::NoQueue(90.0)),
            Evidence::PathFull,
            Evidence::Acknowledged(Growth::Goes(1.0)),
            Evidence::Acknowledged(Growth::Goes(0.25)),
            Evidence::Unused,
        ];
        let mut table = String::new();
        for mode in &modes {
            for seen in evidence {
                match decide(mode, seen) {
                    Action::Keep => {}
                    action => {
                        let _ = writeln!(table, "{:11}  {seen:?} -> {action:?}", mode.name());
                    }
                }
            }
        }
        insta::assert_snapshot!("controller_decisions", table);
    }
}
