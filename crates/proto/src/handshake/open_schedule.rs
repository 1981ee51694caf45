//! When OPEN leaves, how often, and which round trip an answer measures (`docs/protocol §2.1,
//! §4.1`).

use std::time::Duration;

use crate::negotiated::HandshakeRtt;
use crate::rtt::without;
use crate::time::Instant;
use crate::wire::Wire;

/// First interval, longest interval, and number of OPENs on each wire. With half of all packets
/// lost in each direction one OPEN in four is answered: ten would all fail once in eighteen times.
const SCHEDULE_998: (Duration, Duration, u8) = (Duration::from_secs(1), Duration::from_secs(60), 8);
const SCHEDULE_SEALED: (Duration, Duration, u8) =
    (Duration::from_millis(500), Duration::from_secs(1), 24);

/// OPENs with full padding; later ones leave most of it out, since the path may have a small MTU
/// (`docs/protocol §4.1`). With one more full OPEN, the handshake on such a path would take 750
/// ms longer.
const PADDED_OPENS: u8 = 1;

/// Whether a COOKIE makes an OPEN leave before it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CookieRetry {
    /// The next COOKIE does: the newest OPEN left when it was due.
    Ready,
    /// One has arrived: the next OPEN leaves early.
    Due,
    /// None does before another OPEN is due.
    Spent,
}

/// The newest OPEN.
#[derive(Clone, Copy, Debug)]
struct NewestOpen {
    at: Instant,
    /// No other OPEN has left.
    is_only: bool,
}

/// The schedule of OPENs.
#[derive(Debug)]
pub(super) struct OpenSchedule {
    wait: Duration,
    longest_wait: Duration,
    left: u8,
    next: Instant,
    newest: Option<NewestOpen>,
    /// When the first OPEN left, moved on by the time for which this host was suspended.
    first: Option<Instant>,
    cookie: CookieRetry,
    /// OPENs sent.
    sent: u8,
    /// OPEN is too large for the path, as this host or an ICMP message says.
    narrow: bool,
}

impl OpenSchedule {
    /// The first OPEN is due now.
    pub(super) fn new(now: Instant, wire: Wire) -> Self {
        let (wait, longest_wait, left) = match wire {
            Wire::Rfc998 => SCHEDULE_998,
            Wire::Sealed => SCHEDULE_SEALED,
        };
        Self {
            wait,
            longest_wait,
            left,
            next: now,
            newest: None,
            first: None,
            cookie: CookieRetry::Ready,
            sent: 0,
            narrow: false,
        }
    }

    /// Whether an OPEN has left.
    pub(super) fn has_begun(&self) -> bool {
        self.newest.is_some()
    }

    /// When the first OPEN left.
    pub(super) fn first(&self) -> Option<Instant> {
        self.first
    }

    /// When the next OPEN leaves, if one is left.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.next).filter(|_| self.left > 0)
    }

    /// When the answer to the last OPEN is overdue.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        (self.left == 0).then_some(self.next)
    }

    /// Whether OPEN leaves without most of its padding.
    pub(super) fn is_short(&self) -> bool {
        self.narrow || self.sent > PADDED_OPENS
    }

    /// The path or this host does not take the padded OPEN. One that this host refused does not
    /// count as sent.
    pub(super) fn on_too_large(&mut self, now: Instant, own_host: bool) {
        if !std::mem::replace(&mut self.narrow, true) && own_host && self.sent > 0 {
            self.left += 1;
            self.next = now;
            if self.newest.is_some_and(|newest| newest.is_only) {
                (self.newest, self.first) = (None, None);
            }
        }
    }

    /// A COOKIE arrived that differs from the last: the next OPEN leaves at once, but only once for
    /// each OPEN that was due, so that replays of several old ones draw little.
    pub(super) fn on_cookie(&mut self, now: Instant) {
        if self.cookie == CookieRetry::Ready && self.left > 0 {
            self.cookie = CookieRetry::Due;
            self.next = now;
            self.left += 1;
            // The OPEN before drew the COOKIE, and so no RESPONSE.
            self.newest = self.newest.filter(|newest| !newest.is_only);
        }
    }

    /// OPEN leaves if it is due. Returns whether it leaves twice: repeated ones do, unless a COOKIE
    /// drew them.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<bool> {
        if self.next > now || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let hurried = self.cookie == CookieRetry::Due;
        self.cookie = if hurried { CookieRetry::Spent } else { CookieRetry::Ready };
        self.first = Some(self.first.map_or(now, |first| first + now.since(self.next)));
        self.next = now + self.wait;
        self.wait = (self.wait * 3 / 2).min(self.longest_wait);
        self.newest = Some(NewestOpen { at: now, is_only: self.newest.is_none() });
        let twice = self.sent > 0 && !hurried;
        self.sent = self.sent.saturating_add(1);
        Some(twice)
    }

    /// The round trip of an answer, if it can be measured. It can only for an OPEN sent once
    /// (Karn's rule), if no other was due since, or the time `host_stall` is known for which this
    /// host was suspended. Also its upper bound: no answer is older than the first OPEN.
    pub(super) fn round_trips(&self, now: Instant, host_stall: Duration) -> HandshakeRtt {
        let known = now <= self.next || !host_stall.is_zero();
        let once = self.newest.filter(|newest| newest.is_only && known);
        let since = |at| without(now.since(at), host_stall);
        HandshakeRtt { measured: once.map(|open| since(open.at)), longest: self.first.map(since) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn only_an_open_sent_once_measures_a_round_trip() {
        let mut schedule = OpenSchedule::new(ms(0), Wire::Sealed);
        assert_eq!(schedule.take_due(ms(0)), Some(false));
        assert_eq!(schedule.take_due(ms(499)), None);
        let rtt = schedule.round_trips(ms(40), Duration::ZERO);
        assert_eq!(rtt.measured, Some(Duration::from_millis(40)));
        assert_eq!(schedule.take_due(ms(500)), Some(true), "a repeated OPEN leaves twice");
        let rtt = schedule.round_trips(ms(540), Duration::ZERO);
        assert_eq!((rtt.measured, rtt.longest), (None, Some(Duration::from_millis(540))));
    }

    #[test]
    fn a_cookie_draws_one_open_for_each_that_was_due() {
        let mut schedule = OpenSchedule::new(ms(0), Wire::Sealed);
        schedule.take_due(ms(0));
        schedule.on_cookie(ms(30));
        assert_eq!(schedule.due(), Some(ms(30)));
        assert_eq!(schedule.take_due(ms(30)), Some(false));
        schedule.on_cookie(ms(31));
        assert_eq!(schedule.due(), Some(ms(780)), "the second COOKIE draws nothing");
    }
}
