//! The loss excuse: a loss share that a test found not to be this sender's doing.
//!
//! It is a constant, it expires, and more loss than it excuses revokes it.

use std::time::Duration;

use super::rounds::Round;
use crate::time::Instant;

/// An excuse that a test gave lasts this long, and is tested again then.
const LASTS: Duration = Duration::from_secs(15);
/// What the start saw is excused for so long, and then tested.
const PROVISIONAL: Duration = Duration::from_secs(1);
/// After a test that failed the next one waits this long, twice as long after each further one.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(120));
/// No more is excused.
const MOST: f64 = 0.5;
/// Loss up to so many times the excused share is excused.
const MARGIN: f64 = 1.25;
/// Excess losses are summed (CUSUM); it is so many standard deviations of a round trip's losses,
/// and so many losses, that answer.
const DEVIATIONS: f64 = 4.0;
const LOSSES: f64 = 3.0;
/// Two reductions within this many round trips revoke it.
const REVOKED_WITHIN: u64 = 8;

/// An excuse in force.
#[derive(Clone, Copy, Debug)]
struct Granted {
    share: f64,
    until: Instant,
    /// Sum of the losses beyond what is excused.
    excess: f64,
    reduced_in: Option<u64>,
    /// Mean loss share while it is in force.
    mean: f64,
}

/// An excuse that began or ended, for traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExcuseRecord {
    /// The loss share that is excused, or was.
    pub share: f64,
    /// Why it began (`presumed`, `tested`), or ended.
    pub reason: &'static str,
}

/// What ends an excuse, in a word.
pub(super) const EXPIRED: &str = "expired";
pub(super) const INTERRUPTED: &str = "interrupted";
const EXCEEDED: &str = "exceeded";
const MARKED: &str = "marked";

/// What a round trip's losses mean under an excuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// They are excused, or there is no excuse.
    Nothing,
    /// They exceed it: congestion.
    Exceeded,
    /// It has expired and is to be tested.
    Expired,
}

/// The window was reduced within this many round trips before: one reduction did not end the loss.
const AGAIN_WITHIN: u64 = 16;
/// Losses that follow no others for so many round trips begin an episode.
const EPISODE: u64 = 32;

/// The excuse of a controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excuse {
    granted: Option<Granted>,
    /// The newest that began or ended, until it is traced.
    record: Option<ExcuseRecord>,
    test_from: Instant,
    pause: Duration,
    /// The round trip of the last reduction.
    reduced_in: Option<u64>,
    /// The window, in packets, before the first reduction of the present episode of losses.
    window_before: f64,
    /// A reduction came soon after another.
    asks_for_test: bool,
}

impl Default for Excuse {
    fn default() -> Self {
        Self {
            granted: None,
            record: None,
            test_from: Instant::EPOCH,
            pause: RETRY.0,
            reduced_in: None,
            window_before: 0.0,
            asks_for_test: false,
        }
    }
}

impl Excuse {
    /// The loss share that is excused now, if any.
    pub(super) fn share(&self) -> Option<f64> {
        self.granted.map(|granted| granted.share)
    }

    /// Whether a test may begin.
    pub(super) fn may_test(&self, now: Instant) -> bool {
        now >= self.test_from
    }

    /// Loss reduced the window, of `window` packets, in round trip `number`.
    pub(super) fn on_reduced(&mut self, number: u64, window: f64) {
        let since = self.reduced_in.map_or(u64::MAX, |before| number.saturating_sub(before));
        self.reduced_in = Some(number);
        self.asks_for_test = since < AGAIN_WITHIN;
        if since > EPISODE {
            self.window_before = window;
        }
    }

    /// Whether a second reduction came soon after another, which asks for a test, once.
    pub(super) fn take_request(&mut self) -> bool {
        std::mem::take(&mut self.asks_for_test)
    }

    /// The window, in packets, from before the present losses.
    pub(super) fn window_before(&self) -> f64 {
        self.window_before
    }

    /// The window, in packets, that a test begins with and a granted excuse goes back to.
    pub(super) fn keep_window(&mut self, window: f64) {
        self.window_before = window;
    }

    /// A test passed, at this loss share.
    pub(super) fn grant(&mut self, now: Instant, share: f64) {
        self.give(now + LASTS, share, "tested");
        (self.test_from, self.pause) = (now, RETRY.0);
    }

    /// Slow start went on through a loss of this share until the path was full.
    pub(super) fn presume(&mut self, now: Instant, share: f64) {
        self.give(now + PROVISIONAL, share, "presumed");
        self.test_from = now;
    }

    fn give(&mut self, until: Instant, share: f64, reason: &'static str) {
        let share = share.min(MOST);
        self.record = Some(ExcuseRecord { share, reason });
        let granted = Granted { share, until, excess: 0.0, reduced_in: None, mean: share };
        self.granted = Some(granted);
    }

    /// A test failed.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.granted = None;
        self.test_from = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY.1);
    }

    /// A packet was marked, and the window falls to `window` packets: it is not valid any more, and
    /// no test restores the window that was marked.
    pub(super) fn on_marked(&mut self, window: f64) {
        self.revoke(MARKED);
        self.window_before = self.window_before.min(window);
    }

    /// It is not valid any more, for this reason.
    pub(super) fn revoke(&mut self, reason: &'static str) {
        if let Some(Granted { share, .. }) = self.granted.take() {
            self.record = Some(ExcuseRecord { share, reason });
        }
    }

    /// The newest beginning or end that was not traced yet.
    pub(super) fn take_record(&mut self) -> Option<ExcuseRecord> {
        self.record.take()
    }

    /// Takes in a round trip, the number of it, and the dispersion of losses.
    pub(super) fn on_round(
        &mut self,
        now: Instant,
        number: u64,
        round: &Round,
        dispersion: f64,
    ) -> Judgement {
        let Some(granted) = &mut self.granted else { return Judgement::Nothing };
        if now >= granted.until {
            return Judgement::Expired;
        }
        let packets = round.packets as f64;
        granted.mean += (round.loss() - granted.mean) * (packets / 2000.0).min(0.125);
        // The share falls with the loss, and never rises.
        granted.share = granted.share.min(1.1 * granted.mean + 0.005);
        let excess = granted.excess + round.lost as f64 - MARGIN * granted.share * packets;
        granted.excess = excess.max(0.0);
        let deviation = (granted.share * packets.max(16.0)).sqrt();
        if granted.excess <= (DEVIATIONS * deviation + LOSSES) * dispersion {
            return Judgement::Nothing;
        }
        granted.excess = 0.0;
        let before = granted.reduced_in.replace(number);
        if before.is_some_and(|before| number - before < REVOKED_WITHIN) {
            self.revoke(EXCEEDED);
        }
        Judgement::Exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(lost: u64) -> Round {
        Round { packets: 200, lost, rate: 5000.0, min_rtt: Duration::from_millis(40) }
    }

    #[test]
    fn it_covers_its_share_and_expires() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        excuse.grant(now, 0.05);
        for n in 0..100 {
            assert_eq!(excuse.on_round(now, n, &round(10), 1.0), Judgement::Nothing);
        }
        let later = now + LASTS;
        assert_eq!(excuse.on_round(later, 100, &round(10), 1.0), Judgement::Expired);
    }

    #[test]
    fn each_beginning_and_end_is_told_once() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        let reason = |excuse: &mut Excuse| excuse.take_record().map(|record| record.reason);
        excuse.revoke(INTERRUPTED);
        assert_eq!(reason(&mut excuse), None, "there was none");
        excuse.presume(now, 0.7);
        assert_eq!(excuse.take_record(), Some(ExcuseRecord { share: MOST, reason: "presumed" }));
        excuse.grant(now, 0.05);
        assert_eq!(reason(&mut excuse), Some("tested"));
        excuse.on_marked(170.0);
        assert_eq!(excuse.take_record(), Some(ExcuseRecord { share: 0.05, reason: MARKED }));
        excuse.grant(now, 0.05);
        for n in 0..20 {
            excuse.on_round(now, n, &round(30), 1.0);
        }
        assert_eq!((reason(&mut excuse), reason(&mut excuse)), (Some(EXCEEDED), None));
    }

    #[test]
    fn more_loss_is_congestion_and_revokes_it_when_it_goes_on() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        excuse.grant(now, 0.05);
        let mut exceeded = 0;
        for n in 0..20 {
            exceeded += u32::from(excuse.on_round(now, n, &round(30), 1.0) == Judgement::Exceeded);
        }
        assert_eq!((exceeded, excuse.share()), (2, None));
    }

    #[test]
    fn it_falls_with_the_loss_and_does_not_rise_again() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        excuse.grant(now, 0.1);
        for n in 0..200 {
            excuse.on_round(now, n, &round(4), 1.0);
        }
        let share = excuse.share().expect("it is in force");
        assert!(share < 0.03, "{share}");
        for n in 200..210 {
            excuse.on_round(now, n, &round(5), 1.0);
        }
        assert!(excuse.share().is_none_or(|now| now <= share + 1e-9));
    }

    #[test]
    fn a_mark_ends_it_and_no_test_restores_the_window_that_was_marked() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        excuse.on_reduced(1, 200.0);
        excuse.grant(now, 0.05);
        excuse.on_marked(170.0);
        assert_eq!((excuse.share(), excuse.window_before()), (None, 170.0));
        excuse.on_marked(180.0);
        assert_eq!(excuse.window_before(), 170.0);
    }

    #[test]
    fn a_test_that_failed_is_repeated_later_and_later() {
        let (mut excuse, now) = (Excuse::default(), Instant::EPOCH);
        excuse.refuse(now);
        assert!(!excuse.may_test(now + Duration::from_secs(4)));
        assert!(excuse.may_test(now + Duration::from_secs(5)));
        (0..10).for_each(|_| excuse.refuse(now));
        assert!(!excuse.may_test(now + Duration::from_secs(119)));
        assert!(excuse.may_test(now + Duration::from_secs(120)));
    }
}
