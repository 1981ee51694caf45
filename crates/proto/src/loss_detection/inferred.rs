//! What OK and RESEND tell of the path (`docs/protocol §6.6`): the sender's own REPORT on
//! `rfc998`, where the receiver makes none.
//!
//! It numbers DATA packets in the order of sending and remembers which belong to which buffer. An
//! OK proves that a whole buffer has arrived, and its coming is timed by the last packet that the
//! buffer lacked; a RESEND names what is not there, and proves the rest. Whether it was lost or
//! only late shows with the OK: one that comes sooner after the copies left than any round trip
//! takes was not for them. A buffer that a later one overtook is taken to lack one packet until its
//! RESEND tells. Nothing is ever asked of the receiver, and nothing believed that it could not have
//! said about what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Instant;
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::Report;

/// Buffers of no more packets than this are acknowledged so often that nothing need be computed for
/// the time between.
pub(crate) const FEW_PACKETS: u64 = 64;

/// The smallest round trip may have been measured so much too long, by a host that read late.
const MEASURED: Duration = Duration::from_millis(2);
/// So many OKs in a row that come as soon after the copies, but for [`LIKE`] and a 256th, are no
/// chance; fewer of so little that hardly any chance would have been as soon.
const USUAL: u32 = 8;
const USUAL_OF_MANY: u32 = 3;
const LIKE: Duration = Duration::from_micros(500);

/// What is known of the arrival of the newest packet reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Nothing: no rates and no round trip are made of it.
    Unknown,
    /// The report says when it came and how much had come by then.
    Reported,
    /// It was reported at once, and so many of the packets up to it are taken to have come by then.
    Presumed(u64),
}

/// One buffer between its first packet and its OK.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Packets and bytes sent, those sent again included.
    sent: u64,
    bytes: u64,
    /// Asked for again, and of that what seems lost.
    named: u64,
    lost: u64,
    /// When the newest copy of something left.
    again: Option<Instant>,
    /// Already counted as arrived.
    credited: u64,
    credited_bytes: u64,
    /// How many RESENDs named something of it.
    asked: u32,
    /// The newest packet of it, and the newest of its first pass.
    newest: u64,
    newest_of_first: u64,
    /// When that left, if it was the last of the first pass or was sent again.
    waits_since: Option<Instant>,
}

/// Buffers under way, and the counts that a REPORT would hold.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    next: u64,
    buffers: BTreeMap<BufferNumber, Entry>,
    packets: u64,
    bytes: u64,
    /// Asked for again.
    missing: u64,
    /// Of buffers with an OK: what arrived and what was lost. Counted together, lest the losses of
    /// a buffer be set against what arrived of another.
    arrived: u64,
    lost: u64,
    /// The same of the newest of those buffers.
    newest_ok: (u64, u64),
    /// Buffers have more than [`FEW_PACKETS`]. Once is enough: the last may be short.
    large: bool,
    /// The highest packet known to have arrived or to be missing, and whether it is known when.
    highest: Option<(u64, bool)>,
    /// The newest copy for which an OK came too soon, and when its round trip is over.
    landing: Option<(u64, Instant)>,
    /// How soon after the copies the last OK came that seemed to come too soon, and how many in a
    /// row came as soon.
    soon: (Duration, u32),
    /// Packets reported as arrived so far.
    reported: u64,
    news: bool,
}

/// What a [`Ledger`] makes of the messages of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LedgerReport {
    /// As if the newest packet had arrived and been reported at once, by our own clock.
    pub(crate) report: Report,
    /// Whether that holds: of a packet sent three times, or whose second copy can hardly have come,
    /// it is not known which copy arrived (Karn's rule). And where buffers are large, how many had
    /// come by then: the report tells of whole buffers, and packets of others left before it, too.
    /// They are taken to have lost as many as the buffer of the newest OK.
    pub(crate) when: When,
    /// Packets of buffers with an OK that arrived, and that were lost. The report is earlier: it
    /// counts as missing whatever was asked for again, which is not in flight in any case.
    pub(crate) arrived: u64,
    pub(crate) lost: u64,
}

impl Ledger {
    /// A DATA packet of `bytes` (IP and UDP headers not counted) leaves; `ends` if nothing of its
    /// buffer is left to send. Answers its number.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        buffer: BufferNumber,
        bytes: u64,
        ends: bool,
    ) -> PacketNumber {
        let number = self.next;
        self.next += 1;
        let entry = self.buffers.entry(buffer).or_default();
        entry.sent += 1;
        entry.bytes += bytes;
        entry.newest = number;
        if entry.asked > 0 {
            entry.again = Some(now);
        } else {
            entry.newest_of_first = number;
        }
        if ends {
            entry.waits_since = Some(now);
        }
        PacketNumber(number)
    }

    /// OK: all of `buffer` is there; `min_rtt` is the smallest round trip, if one was measured.
    pub(crate) fn on_ok(&mut self, now: Instant, buffer: BufferNumber, min_rtt: Option<Duration>) {
        let Some(mut entry) = self.buffers.remove(&buffer) else { return };
        self.news = true;
        let least = min_rtt.unwrap_or_default();
        let passed = entry.again.map_or(Duration::ZERO, |at| now.since(at));
        let copied = !passed.is_zero();
        let soon = passed < least - least / 8;
        let usual = copied && soon && self.is_usual(passed, least);
        let early = !copied || soon && !usual;
        // After one RESEND it is as certain as need be that the copies completed it.
        let completed = copied && (usual || passed + MEASURED >= least);
        let timed = entry.asked == 0 || entry.asked == 1 && completed;
        if early {
            entry.lost = 0;
            // The copies are still on their way.
            if let Some(at) = entry.again {
                let newest =
                    self.landing.map_or(entry.newest, |(newest, _)| newest.max(entry.newest));
                self.landing = Some((newest, at + least));
            }
            entry.newest = entry.newest_of_first;
        }
        self.lost += entry.lost;
        self.newest_ok = (entry.sent.saturating_sub(entry.lost), entry.lost);
        self.arrived += self.newest_ok.0;
        let arrived = entry.sent.saturating_sub(entry.named);
        self.large |= arrived > FEW_PACKETS;
        self.credit(&mut entry, arrived);
        self.reach(entry.newest, timed);
        let overtaken: Vec<BufferNumber> = self
            .buffers
            .range(..buffer)
            .filter(|(_, e)| e.asked == 0 && e.credited == 0 && e.newest < entry.newest)
            .map(|(number, _)| *number)
            .collect();
        for number in overtaken {
            self.presume(number, 1);
        }
    }

    /// Whether OKs come as soon as this after the copies, one like the other: then it is how long
    /// the path takes, and the smallest round trip was not measured right. What was only late comes
    /// at any time.
    fn is_usual(&mut self, passed: Duration, least: Duration) -> bool {
        let (last, times) = self.soon;
        let like = passed.abs_diff(last) <= passed / 256 + LIKE;
        self.soon = (passed, if like { times.saturating_add(1) } else { 1 });
        self.soon.1 >= if passed < least / 32 { USUAL_OF_MANY } else { USUAL }
    }

    /// When copies for which an OK came too soon are there at the latest.
    pub(crate) fn lands_at(&self) -> Option<Instant> {
        self.landing.map(|(_, at)| at)
    }

    /// Time passed: they are not in flight for ever, however wrong the smallest round trip may be.
    pub(crate) fn land(&mut self, now: Instant) {
        if let Some((newest, _)) = self.landing.take_if(|(_, at)| *at <= now) {
            self.reach(newest, false);
            self.news = true;
        }
    }

    /// RESEND: `asked` packets of `buffer` that were sent are not there, and all others are. None
    /// are asked for if all that it names is still to leave; that tells nothing of a buffer that
    /// has left.
    pub(crate) fn on_resend(&mut self, buffer: BufferNumber, asked: u64) {
        let Some(entry) = self.buffers.get_mut(&buffer) else { return };
        if asked == 0 && entry.waits_since.is_some() {
            return;
        }
        if asked > 0 {
            entry.asked += 1;
            entry.named += asked;
            entry.lost += asked;
            entry.waits_since = None;
            self.missing += asked;
        }
        let newest = entry.newest;
        self.news = true;
        self.reach(newest, false);
        self.presume(buffer, 0);
    }

    fn reach(&mut self, number: u64, timed: bool) {
        if self.highest.is_none_or(|(highest, _)| highest < number) {
            self.highest = Some((number, timed));
        }
    }

    fn presume(&mut self, buffer: BufferNumber, but: u64) {
        let Some(mut entry) = self.buffers.get(&buffer).copied() else { return };
        let arrived = entry.sent.saturating_sub(entry.named + but);
        self.credit(&mut entry, arrived);
        self.buffers.insert(buffer, entry);
    }

    fn credit(&mut self, entry: &mut Entry, arrived: u64) {
        let arrived = arrived.max(entry.credited);
        let bytes = u128::from(entry.bytes) * u128::from(arrived) / u128::from(entry.sent.max(1));
        let bytes = (bytes as u64).max(entry.credited_bytes);
        self.packets += arrived - entry.credited;
        self.bytes += bytes - entry.credited_bytes;
        (entry.credited, entry.credited_bytes) = (arrived, bytes);
    }

    /// What was learned since the last time, if anything was.
    pub(crate) fn report(&mut self, now: Instant) -> Option<LedgerReport> {
        let (highest, timed) = self.highest.filter(|_| std::mem::take(&mut self.news))?;
        // Packets sent again may have arrived that are above the highest: they count when it has
        // come so far.
        let room = (highest + 1).saturating_sub(self.missing);
        self.reported = self.packets.min(room).max(self.reported);
        let report = Report {
            at_micros: (now.as_nanos() / 1000) as u32,
            packets: self.reported,
            bytes: self.bytes,
            highest: PacketNumber(highest),
            missing: self.missing,
            ..Report::default()
        };
        let when = match timed {
            false => When::Unknown,
            true if !self.large => When::Reported,
            true => When::Presumed(self.by_then(highest)),
        };
        Some(LedgerReport { report, when, arrived: self.arrived, lost: self.lost })
    }

    /// Packets up to the `highest` that are taken to have arrived when it did.
    fn by_then(&self, highest: u64) -> u64 {
        let known = (highest + 1).saturating_sub(self.missing);
        let untold = known.saturating_sub(self.packets);
        let (arrived, lost) = self.newest_ok;
        known - untold.saturating_mul(lost) / (arrived + lost).max(1)
    }

    /// Since when an answer about the lowest buffer may be on its way: all that was asked for of
    /// it was sent then.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.buffers.first_key_value().and_then(|(_, entry)| entry.waits_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// Three buffers of four packets of 1,000 bytes.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for n in 0..12 {
            let number = ledger.on_sent(ms(n), BufferNumber(1 + n / 4), 1000, n % 4 == 3);
            assert_eq!(number, PacketNumber(n));
        }
        ledger
    }

    fn counts(found: LedgerReport) -> (u64, u64, u64) {
        (found.report.packets, found.report.highest.0, found.report.missing)
    }

    fn timed(found: LedgerReport) -> bool {
        found.when != When::Unknown
    }

    const RTT: Option<Duration> = Some(Duration::from_millis(16));

    #[test]
    fn an_ok_tells_of_the_whole_buffer() {
        let mut ledger = ledger();
        assert_eq!((ledger.report(ms(20)), ledger.waits_since()), (None, Some(ms(3))));
        ledger.on_ok(ms(21), BufferNumber(1), RTT);
        let found = ledger.report(ms(21)).unwrap();
        assert_eq!((counts(found), timed(found)), ((4, 3, 0), true));
        assert_eq!((found.report.bytes, found.report.at_micros), (4000, 21_000));
        assert_eq!((ledger.report(ms(22)), ledger.waits_since()), (None, Some(ms(7))));
        ledger.on_ok(ms(23), BufferNumber(1), RTT);
        assert_eq!(ledger.report(ms(23)), None, "said before");
    }

    /// Or a rate would be that of whole buffers, whose ends are reported now sooner and now later.
    #[test]
    fn what_left_before_the_copies_has_come_before_them() {
        let of_three = |each: u64| {
            let mut ledger = Ledger::default();
            for n in 0..each * 3 {
                let (buffer, ends) = (BufferNumber(1 + n / each), n % each == each - 1);
                ledger.on_sent(ms(n), buffer, 1000, ends);
            }
            ledger.on_ok(ms(320), BufferNumber(1), RTT);
            let first = ledger.report(ms(320)).unwrap().when;
            ledger.on_resend(BufferNumber(2), each / 4);
            assert_eq!(ledger.report(ms(321)).unwrap().when, When::Unknown);
            for n in 0..each / 4 {
                ledger.on_sent(ms(322), BufferNumber(2), 1000, n + 1 == each / 4);
            }
            ledger.on_ok(ms(338), BufferNumber(2), RTT);
            let found = ledger.report(ms(338)).unwrap();
            assert_eq!(found.report.packets, each * 2, "of the third nothing is known");
            (first, found.when)
        };
        // 100 came and 25 were lost of the second, so 20 of the third's 100.
        assert_eq!(of_three(100), (When::Presumed(100), When::Presumed(280)));
        // Copies make no buffer larger than it is.
        assert_eq!(of_three(60), (When::Reported, When::Reported), "reported often enough");
    }

    /// Or the rate up to its end would be another kind of rate than the one before.
    #[test]
    fn a_short_buffer_behind_large_ones_is_counted_as_they_are() {
        let mut ledger = Ledger::default();
        (0..100).for_each(|n| _ = ledger.on_sent(ms(n), BufferNumber(1), 1000, n == 99));
        (100..103).for_each(|n| _ = ledger.on_sent(ms(n), BufferNumber(2), 1000, n == 102));
        for (buffer, by_then) in [(1, 100), (2, 103)] {
            ledger.on_ok(ms(200 + buffer), BufferNumber(buffer), RTT);
            let found = ledger.report(ms(200 + buffer)).unwrap();
            assert_eq!(found.when, When::Presumed(by_then));
        }
    }

    #[test]
    fn an_overtaken_buffer_lacks_one_until_its_resend_tells_how_many() {
        let mut ledger = ledger();
        ledger.on_ok(ms(20), BufferNumber(2), RTT);
        assert_eq!(counts(ledger.report(ms(20)).unwrap()), (7, 7, 0));
        ledger.on_resend(BufferNumber(1), 1);
        let found = ledger.report(ms(30)).unwrap();
        assert_eq!((counts(found), found.lost), ((7, 7, 1), 0), "lost, or late?");
        assert_eq!(ledger.on_sent(ms(31), BufferNumber(1), 1000, true), PacketNumber(12));
        ledger.on_ok(ms(47), BufferNumber(1), RTT);
        let found = ledger.report(ms(47)).unwrap();
        assert_eq!((counts(found), timed(found), found.lost), ((8, 12, 1), true, 1));
        ledger.on_ok(ms(48), BufferNumber(3), RTT);
        assert_eq!(counts(ledger.report(ms(48)).unwrap()), (12, 12, 1));
    }

    #[test]
    fn an_ok_before_the_copies_can_have_come_shows_that_nothing_was_lost() {
        for (sent, lost) in [(None, 0), (Some(31), 0), (Some(24), 4)] {
            let mut ledger = ledger();
            ledger.on_resend(BufferNumber(1), 4);
            let highest = if lost > 0 { 15 } else { 3 };
            for _ in 0..4 {
                sent.map(|at| ledger.on_sent(ms(at), BufferNumber(1), 1000, true));
            }
            ledger.on_ok(ms(40), BufferNumber(1), RTT);
            let found = ledger.report(ms(40)).unwrap();
            assert_eq!((found.report.highest.0, found.lost), (highest, lost), "{sent:?}");
            assert_eq!((found.report.missing, timed(found)), (4, lost > 0), "{sent:?}");
            let lands = sent.filter(|_| lost == 0).map(|at| ms(at + 16));
            assert_eq!(ledger.lands_at(), lands, "{sent:?}");
            let Some(lands) = lands else { continue };
            ledger.land(lands.before(Duration::from_millis(1)));
            assert_eq!(ledger.report(lands), None, "still on their way");
            ledger.land(lands);
            let found = ledger.report(lands).unwrap();
            assert_eq!((found.report.highest.0, timed(found)), (15, false), "in flight no longer");
        }
    }

    /// 400 ms were measured where a round trip takes 40: nothing else would ever show it.
    #[test]
    fn oks_that_come_as_soon_each_time_tell_how_long_the_path_takes() {
        let timed_ones = |waits: [u64; 10]| {
            let mut ledger = Ledger::default();
            let found = (1u64..).zip(waits).map(|(n, wait)| {
                let at = 1000 * n;
                ledger.on_sent(ms(at), BufferNumber(n), 1000, true);
                ledger.on_resend(BufferNumber(n), 1);
                ledger.on_sent(ms(at + 500), BufferNumber(n), 1000, true);
                let now = ms(at + 500 + wait);
                ledger.on_ok(now, BufferNumber(n), Some(Duration::from_millis(400)));
                ledger.report(now).is_some_and(timed)
            });
            found.collect::<Vec<_>>()
        };
        let as_soon = timed_ones([40; 10]);
        assert_eq!(as_soon, [[false; 7].as_slice(), &[true; 3]].concat());
        assert!(!timed_ones([40, 12, 31, 9, 25, 38, 3, 30, 17, 6]).contains(&true), "only late");
    }

    #[test]
    fn nothing_stays_in_flight_for_ever_when_all_was_lost() {
        let mut ledger = ledger();
        for (buffer, at) in [(1, 20), (2, 21), (3, 22), (1, 40), (2, 41), (3, 42)] {
            ledger.on_resend(BufferNumber(buffer), 4);
            for _ in 0..4 {
                ledger.on_sent(ms(at), BufferNumber(buffer), 1000, true);
            }
        }
        assert_eq!(ledger.waits_since(), Some(ms(40)));
        for buffer in 1..=3 {
            ledger.on_ok(ms(60), BufferNumber(buffer), RTT);
        }
        let found = ledger.report(ms(60)).unwrap();
        assert_eq!((counts(found), timed(found), found.lost), ((12, 35, 24), false, 24));
    }

    #[test]
    fn what_was_never_sent_tells_nothing() {
        let mut ledger = ledger();
        ledger.on_ok(ms(20), BufferNumber(9), RTT);
        ledger.on_resend(BufferNumber(9), 5);
        ledger.on_resend(BufferNumber(1), 0);
        assert_eq!(ledger.report(ms(20)), None);
    }

    #[test]
    fn what_was_asked_for_again_is_in_flight_no_longer() {
        let mut ledger = ledger();
        ledger.on_resend(BufferNumber(1), 3);
        let found = ledger.report(ms(20)).unwrap();
        assert_eq!((counts(found), timed(found), found.lost), ((1, 3, 3), false, 0));
    }

    #[test]
    fn a_resend_of_what_is_still_to_leave_tells_that_the_rest_is_there() {
        let mut ledger = ledger();
        for n in 12..14 {
            ledger.on_sent(ms(n), BufferNumber(4), 1000, false);
        }
        // Of three buffers only copies arrived, and the OKs seemed to come too soon for them.
        for buffer in 1..=3 {
            ledger.on_resend(BufferNumber(buffer), 4);
            for _ in 0..4 {
                ledger.on_sent(ms(40), BufferNumber(buffer), 1000, true);
            }
            ledger.on_ok(ms(41), BufferNumber(buffer), RTT);
        }
        ledger.on_sent(ms(42), BufferNumber(4), 1000, false);
        assert_eq!(counts(ledger.report(ms(50)).unwrap()), (0, 11, 12));
        ledger.on_resend(BufferNumber(5), 0);
        assert_eq!(ledger.report(ms(55)), None, "nothing of it left");
        ledger.on_resend(BufferNumber(4), 0);
        let found = ledger.report(ms(60)).unwrap();
        assert_eq!((counts(found), timed(found)), ((15, 26, 12), false), "nothing is in flight");
    }
}
