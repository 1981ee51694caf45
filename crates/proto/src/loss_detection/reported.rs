//! REPORT: the receiver's feedback for the sender's rate control (`docs/protocol §6.3`).
//!
//! Inputs: authentic packets and the times of their arrival. Outputs: the time at which a REPORT is
//! due, and its content.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::api::Ecn;
use crate::time::{Instant, micros_u32};
use crate::units::PacketNumber;
use crate::wire::packet::Report;

/// Reports repeated after the last packet, so that one lost report does not blind the sender.
const REPEATS: u8 = 2;
/// Least bytes, or else least time, for a report: on a slow path reports must not cost more than a
/// sixteenth of the data.
const MIN_REPORT_BYTES: u64 = 2048;
const MIN_REPORT_TIME: Duration = Duration::from_millis(25);
/// Number of early reports, which resolve packet trains at the start (`docs/protocol §6.3`):
/// each is due at the first packet after a pause, or when a pause begins.
const EARLY_REPORTS: u32 = 64;
/// Length of a pause as a part of the report interval, and no shorter than a host's usual delays.
const PAUSE_PART: u32 = 8;
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// Report intervals with early reports. Shorter ones resolve trains anyway; with longer ones trains
/// are measured otherwise, and each report costs room.
const EARLY_INTERVALS: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(125);
/// How long a packet may be late before it counts as missing, as a part of a round trip.
const LATE_PART: u32 = 4;
/// If packets came later than that, the allowed lateness grows to this many eighths of theirs, and
/// to at most this many quarters of a round trip (RFC 8985 §6.2 allows one round trip).
const LATENESS_EIGHTHS: u32 = 9;
const MAX_LATE_QUARTERS: u32 = 5;
/// Round trips for which it stays (RFC 8985 §6.2 keeps it for 16 recoveries).
const LATENESS_ROUND_TRIPS: u32 = 16;
/// Reports that repeat the largest datagram: any of them may be lost.
const LARGEST_REPORTS: usize = 3;
/// Most report times that passed while the host was suspended and are reported later.
const MAX_MISSED_REPORTS: usize = 8;

/// Counts of arrivals at one time.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalCounts {
    packets: u64,
    bytes: u64,
    highest: Option<(PacketNumber, Instant)>,
    marked: u64,
}

/// The state at one report.
#[derive(Clone, Copy, Debug)]
struct ReportSnapshot {
    at: Instant,
    highest: PacketNumber,
    /// Packets below the highest that have not arrived since.
    absent: u64,
}

/// Counts arrivals and decides when a REPORT is due, and what is in it.
#[derive(Debug, Default)]
pub struct Feedback {
    counts: ArrivalCounts,
    /// Counts at report times that passed while packets waited in the host; reported before the
    /// present ones.
    missed_reports: VecDeque<ArrivalCounts>,
    missing: u64,
    /// Recent reports, to tell late packets from missing ones.
    snapshots: VecDeque<ReportSnapshot>,
    /// The largest lateness since the newest report.
    latest: Duration,
    /// Allowed lateness beyond a quarter of a round trip, and until when it holds.
    later: Duration,
    later_until: Instant,
    unreported: bool,
    unreported_bytes: u64,
    repeats: u8,
    last: Option<Instant>,
    reports: u32,
    /// The newest arrival, the first unreported one, and the pause before that.
    newest: Option<Instant>,
    first: Instant,
    idle_before: Duration,
    /// The largest datagrams since the newest report, and between those before.
    largest: [u16; LARGEST_REPORTS],
}

impl Feedback {
    /// The arrival time for reports of a packet that is read at `now` after waiting for `age`. A
    /// train that arrived one by one may be read at once, so during early reports the counts in
    /// between are kept. Later a host that is slower than its line must show as a queue, so a
    /// packet arrives when it is read.
    pub(crate) fn arrival_time(
        &mut self,
        now: Instant,
        age: Duration,
        interval: Duration,
        reverse_spacing: Duration,
    ) -> Instant {
        if !self.is_early(interval) || !reverse_spacing.is_zero() {
            return now;
        }
        let arrived_at = now.before(age).max(self.newest.unwrap_or(Instant::EPOCH));
        let due = self
            .due_of_newest(interval, reverse_spacing)
            .filter(|due| self.unreported && *due < arrived_at);
        if let Some(due) = due.filter(|_| self.missed_reports.len() < MAX_MISSED_REPORTS) {
            self.missed_reports.push_back(self.counts);
            self.on_reported(due.max(self.first));
        }
        arrived_at
    }

    /// An authentic packet arrived; its bytes without and with padding.
    pub fn on_packet(
        &mut self,
        now: Instant,
        number: PacketNumber,
        bytes: usize,
        whole: usize,
        ecn: Option<Ecn>,
    ) {
        self.largest[0] = self.largest[0].max(u16::try_from(whole).unwrap_or(u16::MAX));
        self.counts.packets += 1;
        self.counts.bytes += bytes as u64;
        self.counts.marked += u64::from(ecn == Some(Ecn::Ce));
        if self.counts.highest.is_none_or(|(highest, _)| number > highest) {
            self.counts.highest = Some((number, now));
        } else {
            self.on_late(now, number);
        }
        if !self.unreported {
            self.first = now;
            self.idle_before = self.newest.map_or(Duration::MAX, |newest| now.since(newest));
        }
        self.newest = Some(now);
        self.unreported = true;
        self.unreported_bytes += bytes as u64;
        self.repeats = REPEATS;
    }

    /// When the next report is due: one every `interval`, and never sooner than `reverse_spacing`
    /// after another.
    pub fn due(&self, interval: Duration, reverse_spacing: Duration) -> Option<Instant> {
        if self.missed_reports.is_empty() {
            self.due_of_newest(interval, reverse_spacing)
        } else {
            Some(Instant::EPOCH)
        }
    }

    /// When the arrivals since the newest report are to be reported.
    fn due_of_newest(&self, interval: Duration, reverse_spacing: Duration) -> Option<Instant> {
        match self.last {
            _ if !self.unreported && self.repeats == 0 => None,
            None => Some(Instant::EPOCH),
            Some(last) if self.unreported_bytes >= MIN_REPORT_BYTES => {
                Some((last + interval).min(self.early(last, interval).max(last + reverse_spacing)))
            }
            Some(last) => Some(
                (last + interval.max(MIN_REPORT_TIME))
                    .min(self.early(last, interval).max(last + reverse_spacing)),
            ),
        }
    }

    /// When an early report is due.
    fn early(&self, last: Instant, interval: Duration) -> Instant {
        let Some(newest) = self.newest.filter(|_| self.unreported && self.is_early(interval))
        else {
            return Instant::NEVER;
        };
        let pause = (interval / PAUSE_PART).max(LEAST_PAUSE);
        let at = if self.idle_before >= pause { self.first } else { newest + pause };
        at.max(last + pause / 2)
    }

    /// Whether early reports are made.
    fn is_early(&self, interval: Duration) -> bool {
        self.reports < EARLY_REPORTS && EARLY_INTERVALS.contains(&interval)
    }

    /// The arrivals by `now` are reported, or will be.
    fn on_reported(&mut self, now: Instant) {
        self.unreported = false;
        self.unreported_bytes = 0;
        self.last = Some(now);
        self.reports = self.reports.saturating_add(1);
    }

    /// Numbers found missing so far.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// Makes a report, of a connection that opened at `opened` and whose round trip is `rtt`;
    /// `None` before the first packet.
    pub fn report(&mut self, now: Instant, opened: Instant, rtt: Duration) -> Option<Report> {
        let passed = self.missed_reports.pop_front();
        let counts = passed.unwrap_or(self.counts);
        let (highest, arrived) = counts.highest?;
        let largest = self.largest.into_iter().max().unwrap_or_default();
        if passed.is_none() {
            self.repeats = if self.unreported { REPEATS } else { self.repeats.saturating_sub(1) };
            self.on_reported(now);
            self.count_missing(now, highest, rtt);
            self.largest.rotate_right(1);
            self.largest[0] = 0;
        }
        Some(Report {
            at_micros: now.since(opened).as_micros() as u32,
            packets: counts.packets,
            bytes: counts.bytes,
            highest,
            highest_age_micros: micros_u32(now.since(arrived)),
            marked: counts.marked,
            missing: self.missing,
            largest,
        })
    }

    /// A packet came after one with a higher number.
    fn on_late(&mut self, now: Instant, number: PacketNumber) {
        for past in self.snapshots.iter_mut().rev().take_while(|past| number < past.highest) {
            past.absent = past.absent.saturating_sub(1);
            self.latest = self.latest.max(now.since(past.at));
        }
    }

    /// How late a packet may be on a path whose round trip is `rtt`.
    fn allowed_lateness(&mut self, now: Instant, rtt: Duration) -> Duration {
        let usual = rtt / LATE_PART;
        let latest = std::mem::take(&mut self.latest);
        if latest > usual {
            let later = latest * LATENESS_EIGHTHS / 8;
            self.later = self.later.max(later).min(rtt * MAX_LATE_QUARTERS / 4);
            self.later_until = now + rtt * LATENESS_ROUND_TRIPS;
        } else if now >= self.later_until {
            self.later = Duration::ZERO;
        }
        usual.max(self.later)
    }

    /// A packet that was absent some time ago and has not come since is missing. With constant
    /// reordering some packets are absent at every moment, but not the same ones.
    fn count_missing(&mut self, now: Instant, highest: PacketNumber, rtt: Duration) {
        if self.snapshots.back().is_none_or(|past| past.highest < highest) {
            let absent = (highest.0 + 1).saturating_sub(self.counts.packets);
            self.snapshots.push_back(ReportSnapshot { at: now, highest, absent });
        }
        let settled = now.before(self.allowed_lateness(now, rtt));
        for past in self.snapshots.iter().take_while(|past| past.at <= settled) {
            self.missing = self.missing.max(past.absent);
        }
        // A later arrival is noticed only while its report is kept.
        let forgotten = now.before(rtt * MAX_LATE_QUARTERS / 4);
        while self.snapshots.pop_front_if(|past| past.at < forgotten).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_late_packet_is_not_missing_and_a_lost_one_is() {
        let ms = |n: u64| ms(1000 + n);
        let rtt = Duration::from_millis(40);
        let mut feedback = Feedback::default();
        for number in [0, 1, 3, 5] {
            feedback.on_packet(ms(0), PacketNumber(number), 100, 100, None);
        }
        assert_eq!(feedback.report(ms(0), ms(0), rtt).unwrap().missing, 0, "both may be late");
        feedback.on_packet(ms(5), PacketNumber(2), 100, 100, None);
        feedback.report(ms(5), ms(0), rtt);
        feedback.on_packet(ms(20), PacketNumber(6), 100, 100, None);
        let report = feedback.report(ms(20), ms(0), rtt).unwrap();
        assert_eq!((report.missing, report.packets, report.highest), (1, 6, PacketNumber(6)));
    }

    /// Every seventh packet comes 4 ms late, and every hundredth never: some are absent at every
    /// moment, and only those that never come are missing.
    #[test]
    fn constant_reordering_is_not_counted_as_missing() {
        let rtt = Duration::from_millis(40);
        let mut feedback = Feedback::default();
        let us = |n: u64| Instant::from_nanos(1_000_000_000 + n * 1000);
        let mut coming: Vec<(u64, u64)> = (0..20_000)
            .filter(|number| number % 100 != 50)
            .map(|number| (number * 50 + if number % 7 == 3 { 4000 } else { 0 }, number))
            .collect();
        coming.sort_unstable();
        let mut due = 0;
        for (at, number) in coming {
            feedback.on_packet(us(at), PacketNumber(number), 1000, 1000, None);
            if at < due {
                continue;
            }
            due = at + 5000;
            let report = feedback.report(us(at), ms(1000), rtt).unwrap();
            let lost = |numbers: u64| (numbers + 49) / 100;
            // Packets sent a quarter of a round trip ago, or two reports before that.
            let allowed = lost((at / 50).saturating_sub(400))..=lost(at / 50);
            assert!(allowed.contains(&report.missing), "{} of {allowed:?} at {at}", report.missing);
        }
        assert!(feedback.missing() >= 190, "{}", feedback.missing());
    }

    /// Every third packet comes a whole round trip late. The allowed lateness grows, and none
    /// counts as missing any more; 16 round trips after the last of them a lost packet counts as
    /// early as before.
    #[test]
    fn the_allowed_lateness_grows_to_a_round_trip() {
        let rtt = Duration::from_millis(40);
        let us = |n: u64| Instant::from_nanos(1_000_000_000 + n * 1000);
        let mut coming: Vec<(u64, u64)> = (0..40_000)
            .filter(|number| *number < 20_000 || number % 20 != 10)
            .map(|number| {
                let late = number < 20_000 && number % 3 == 0;
                (number * 50 + if late { 40_000 } else { 0 }, number)
            })
            .collect();
        coming.sort_unstable();
        let (mut feedback, mut due, mut first) = (Feedback::default(), 0, None);
        for (at, number) in coming {
            feedback.on_packet(us(at), PacketNumber(number), 1000, 1000, None);
            if at < due {
                continue;
            }
            due = at + 5000;
            let missing = feedback.report(us(at), ms(1000), rtt).unwrap().missing;
            match at {
                0..100_000 => {}
                100_000..1_000_000 => assert_eq!(*first.get_or_insert(missing), missing, "{at}"),
                1_800_000.. => {
                    let lost = |numbers: u64| numbers.saturating_sub(20_000 - 9) / 20;
                    let expected = lost((at / 50).saturating_sub(400))..=lost(at / 50);
                    assert!(expected.contains(&missing), "{missing} of {expected:?} at {at}");
                }
                _ => {}
            }
        }
        assert!(first.is_some_and(|first| first < 500), "{first:?}");
    }

    #[test]
    fn early_reports_resolve_trains() {
        let mut feedback = Feedback::default();
        let (interval, rtt) = (Duration::from_millis(12), Duration::from_millis(100));
        let us = |n: u64| Instant::from_nanos(1_000_000_000 + n * 1000);
        let mut number = 0;
        let mut reports = Vec::new();
        for train in 0..80 {
            for packet in 0..16 {
                let at = us(train * 50_000 + packet * 100);
                feedback.on_packet(at, PacketNumber(number), 1000, 1000, None);
                number += 1;
                let due = feedback.due(interval, Duration::ZERO).filter(|due| *due <= at);
                if due.is_some() {
                    feedback.report(at, us(0), rtt);
                    reports.push((train, packet));
                }
            }
            let end = us(train * 50_000 + 1500);
            let due = feedback.due(interval, Duration::ZERO).unwrap();
            let early = due <= end + interval / 8;
            feedback.report(due, us(0), rtt);
            reports.extend(early.then_some((train, 16)));
        }
        let early: Vec<_> = (0..32).flat_map(|train| [(train, 0), (train, 16)]).collect();
        assert_eq!(reports[..64], early);
        assert!(reports.len() < 64 + 50, "later they come on their interval: {reports:?}");
    }

    /// Read at one time, and reported by arrival times. Without ages it is one report, and after
    /// the early reports ages have no effect.
    #[test]
    fn a_train_read_at_once_is_reported_by_its_two_ends() {
        let (interval, rtt) = (Duration::from_millis(12), Duration::from_millis(100));
        let us = |n: u64| Instant::from_nanos(1_000_000_000 + n * 1000);
        let mut feedback = Feedback::default();
        let mut number = 0;
        let mut report = |feedback: &mut Feedback, read: u64, aged: bool| {
            for packet in 0..100u64 {
                let age =
                    if aged { Duration::from_micros(1900 - packet * 12) } else { Duration::ZERO };
                let arrived_at = match age {
                    Duration::ZERO => us(read),
                    age => feedback.arrival_time(us(read), age, interval, Duration::ZERO),
                };
                feedback.on_packet(arrived_at, PacketNumber(number), 1000, 1000, None);
                number += 1;
            }
            let mut reports = Vec::new();
            while feedback.due(interval, Duration::ZERO).is_some_and(|due| due <= us(read + 1600)) {
                let report = feedback.report(us(read + 1600), us(0), rtt).unwrap();
                reports.push((report.packets % 100, report.highest_age_micros));
            }
            reports
        };
        for train in 0..32 {
            let ends = [(1, 1900 + 1600), (0, 1900 - 99 * 12 + 1600)];
            assert_eq!(report(&mut feedback, train * 50_000, true), ends, "train {train}");
        }
        assert_eq!(report(&mut feedback, 2_000_000, true), [(0, 1600)]);
        let mut other = Feedback::default();
        assert_eq!(report(&mut other, 0, false), [(0, 1600)]);
    }

    #[test]
    fn the_largest_datagram_is_reported_three_times() {
        let mut feedback = Feedback::default();
        let mut largest = |number, bytes| {
            feedback.on_packet(ms(number), PacketNumber(number), 36, bytes, None);
            let report = feedback.report(ms(number), ms(0), Duration::from_millis(40)).unwrap();
            assert_eq!(report.bytes, 36 * (number + 1), "padding does not count");
            report.largest
        };
        let reported = [(0, 1232), (1, 90), (2, 100), (3, 80)].map(|(n, bytes)| largest(n, bytes));
        assert_eq!(reported, [1232, 1232, 1232, 100]);
    }

    #[test]
    fn the_last_report_is_repeated_twice() {
        let mut feedback = Feedback::default();
        let interval = Duration::from_millis(5);
        assert_eq!(feedback.due(interval, Duration::ZERO), None);
        feedback.on_packet(ms(0), PacketNumber(0), 100, 100, None);
        for n in [0, 25, 50] {
            assert!(
                feedback.due(interval, Duration::ZERO).is_some_and(|at| at <= ms(n)),
                "report at {n}"
            );
            feedback.report(ms(n), ms(0), Duration::from_millis(40));
        }
        assert_eq!(feedback.due(interval, Duration::ZERO), None);
    }
}
