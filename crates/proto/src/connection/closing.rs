//! The progress of a close by QUIT (RFC 998 §5.3.2; `docs/protocol §7.3`): when QUIT leaves, how
//! often, and with which outcome the connection ends.

use std::time::Duration;

use crate::api::CloseReason;
use crate::time::Instant;
use crate::timers::ConnectionTimer;

/// Most QUITs (`sealed`).
const MAX_QUITS: u8 = 5;
/// Longest time between two QUITs, which are repeated until the death timer (`rfc998`).
const LONGEST_QUIT_INTERVAL: Duration = Duration::from_secs(5);
/// A peer that is silent for this long is in the middle of no buffer.
const QUIT_PENDING_MAX: Duration = Duration::from_secs(1);
/// Bounds of the time between two QUITs, and of the dally after one came.
const QUIT_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_millis(500));

/// The time between two QUITs, with this retransmission timeout.
pub(super) fn quit_interval(timeout: Duration) -> Duration {
    timeout.clamp(QUIT_INTERVAL.0, QUIT_INTERVAL.1)
}

/// The progress of the close.
#[derive(Debug)]
pub(super) struct Closing {
    /// QUIT is repeated until QUITACK or the death timer; else [`MAX_QUITS`] times.
    until_acked: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// The client wants to quit: QUIT is sent between two buffers (RFC 998 §5.3.2).
    QuitPending {
        reason: String,
        since: Instant,
    },
    /// QUIT was sent, the last time `wait` before `next`. It leaves again then, unless `left` is 0
    /// or `until` is over.
    QuitSent {
        reason: String,
        left: u8,
        wait: Duration,
        next: Instant,
        until: Instant,
        outcome: CloseReason,
    },
    /// QUIT came; its repetitions are answered until `until` (draining, RFC 9000 §10.2.2).
    Draining {
        until: Instant,
        outcome: CloseReason,
    },
    Closed(CloseReason),
}

/// What happens when the interval between two QUITs is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QuitStep {
    /// QUIT leaves again, with this reason.
    Repeat(String),
    /// It was repeated often enough.
    Leave(CloseReason),
}

impl Closing {
    pub(super) fn new(until_acked: bool) -> Self {
        Self { until_acked, state: State::Open }
    }

    /// Whether no end has quit.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether the machine goes on: a QUIT has neither come nor left.
    pub(super) fn transfer_goes_on(&self) -> bool {
        matches!(self.state, State::Open | State::QuitPending { .. })
    }

    /// Whether QUIT has come, and its repetitions are answered.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Why the connection is over, if it is.
    pub(super) fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// The outcome, if this end has given up.
    pub(super) fn outcome_of_quit(&self) -> Option<CloseReason> {
        match &self.state {
            State::QuitPending { .. } => Some(CloseReason::Quit),
            State::QuitSent { outcome, .. } => Some(outcome.clone()),
            State::Open | State::Draining { .. } | State::Closed(_) => None,
        }
    }

    /// The outcome that QUITACK confirms.
    pub(super) fn outcome_of_ack(&self) -> Option<CloseReason> {
        match &self.state {
            State::QuitSent { outcome, .. } => Some(outcome.clone()),
            _ => None,
        }
    }

    /// The outcome when all repetitions of the peer's QUIT have been answered.
    pub(super) fn outcome_of_drain(&self) -> Option<CloseReason> {
        match &self.state {
            State::Draining { outcome, .. } => Some(outcome.clone()),
            _ => None,
        }
    }

    /// When `timer` expires, if it is one of these; the peer's last packet came at `last_received`.
    pub(super) fn deadline(
        &self,
        timer: ConnectionTimer,
        last_received: Instant,
    ) -> Option<Instant> {
        match (timer, &self.state) {
            // It leaves although a buffer is under way, if the peer is silent.
            (ConnectionTimer::QuitPending, State::QuitPending { since, .. }) => {
                Some(last_received.max(*since) + QUIT_PENDING_MAX)
            }
            (ConnectionTimer::Quit, State::QuitSent { next, .. }) => Some(*next),
            (ConnectionTimer::Drain, State::Draining { until, .. }) => Some(*until),
            _ => None,
        }
    }

    /// The client quits: QUIT is pending.
    pub(super) fn wait(&mut self, now: Instant, reason: &str) {
        self.state = State::QuitPending { reason: reason.to_owned(), since: now };
    }

    /// The reason of the pending QUIT.
    pub(super) fn pending(&self) -> Option<&str> {
        match &self.state {
            State::QuitPending { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// QUIT is due from now on, at first in this interval, until the death timer expires.
    pub(super) fn quit(
        &mut self,
        now: Instant,
        reason: String,
        outcome: CloseReason,
        interval: Duration,
        death_timer: Duration,
    ) {
        let (left, wait, until) = (MAX_QUITS, interval, now + death_timer);
        self.state = State::QuitSent { reason, left, wait, next: now, until, outcome };
    }

    /// The interval between two QUITs is over; the next is `interval` if it does not grow.
    pub(super) fn on_interval(&mut self, now: Instant, interval: Duration) -> Option<QuitStep> {
        let State::QuitSent { reason, left, wait, next, until, outcome } = &mut self.state else {
            return None;
        };
        // "Until a QUITACK has been received or its death timer expires" (RFC 998 §5.3.2).
        let enough = if self.until_acked { *until <= now } else { *left == 0 };
        if enough {
            return Some(QuitStep::Leave(outcome.clone()));
        }
        if self.until_acked {
            *next = (now + *wait).min(*until);
            *wait = (*wait * 3 / 2).min(LONGEST_QUIT_INTERVAL);
        } else {
            *left -= 1;
            *next = now + interval;
        }
        Some(QuitStep::Repeat(reason.clone()))
    }

    /// The peer's QUIT came: its repetitions are answered until `until`. False: that was known.
    pub(super) fn drain(&mut self, until: Instant, reason: String) -> bool {
        if self.is_draining() || self.is_closed() {
            return false;
        }
        // Both ends may have seen the same fault: then each reports its own outcome.
        let own = self.outcome_of_quit().filter(|outcome| *outcome != CloseReason::Quit);
        let outcome = own.unwrap_or(CloseReason::PeerQuit(reason));
        self.state = State::Draining { until, outcome };
        true
    }

    /// The connection is over. False: it was already.
    pub(super) fn close(&mut self, reason: CloseReason) -> bool {
        let closes = !self.is_closed();
        if closes {
            self.state = State::Closed(reason);
        }
        closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(millis)
    }

    fn quit(closing: &mut Closing, reason: &str, outcome: CloseReason) {
        let (interval, death_timer) = (Duration::from_millis(100), Duration::from_secs(2));
        closing.quit(ms(0), reason.to_owned(), outcome, interval, death_timer);
    }

    fn quitting(until_acked: bool) -> Closing {
        let mut closing = Closing::new(until_acked);
        quit(&mut closing, "enough", CloseReason::Quit);
        closing
    }

    /// The times at which QUIT leaves, until it leaves no more.
    fn quits(closing: &mut Closing) -> Vec<u64> {
        let mut at = Vec::new();
        while let Some(due) = closing.deadline(ConnectionTimer::Quit, ms(0)) {
            match closing.on_interval(due, Duration::from_millis(100)) {
                Some(QuitStep::Repeat(reason)) => {
                    assert_eq!(reason, "enough");
                    at.push(due.since(ms(0)).as_millis() as u64);
                }
                step => {
                    assert_eq!(step, Some(QuitStep::Leave(CloseReason::Quit)));
                    break;
                }
            }
        }
        at
    }

    #[test]
    fn quit_leaves_five_times_or_until_the_death_timer() {
        assert_eq!(quits(&mut quitting(false)), [0, 100, 200, 300, 400]);
        assert_eq!(quits(&mut quitting(true)), [0, 100, 250, 475, 812, 1318]);
    }

    #[test]
    fn an_end_that_gave_up_keeps_its_outcome_when_the_peer_quits_too() {
        let mut closing = Closing::new(false);
        quit(&mut closing, "stalled", CloseReason::DeathTimer);
        assert!(closing.drain(ms(200), "the same".to_owned()));
        assert_eq!(closing.outcome_of_drain(), Some(CloseReason::DeathTimer));
        assert!(!closing.drain(ms(400), "again".to_owned()));
        assert_eq!(closing.deadline(ConnectionTimer::Drain, ms(0)), Some(ms(200)));

        let mut closing = quitting(false);
        assert!(closing.drain(ms(200), "no space".to_owned()));
        let peers = CloseReason::PeerQuit("no space".to_owned());
        assert_eq!(closing.outcome_of_drain(), Some(peers));
    }
}
