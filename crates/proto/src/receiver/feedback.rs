//! What the receiver tells the sender's rate control: the REPORT (`docs/protocol.md §6.3`).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::machine::Ecn;
use crate::time::{Instant, micros_u32};
use crate::units::PacketNumber;
use crate::wire::packet::Report;

/// Reports repeated after the last packet, so that one lost report does not blind the sender.
const REPEATS: u8 = 2;
/// A report comes for at least so many bytes, or after so long: on a slow path it must not cost
/// more than it tells (a sixteenth of the data at most, where data flow).
const WORTH_BYTES: u64 = 2048;
const WORTH_TIME: Duration = Duration::from_millis(25);
/// The first reports of a transfer tell trains apart (`docs/protocol.md §6.3`): so many of them
/// come as soon as packets do after a pause, and as soon as such a pause begins.
const EARLY_REPORTS: u32 = 64;
/// A pause is this part of the time between reports, and no shorter than a host's own lateness.
const PAUSE_PART: u32 = 8;
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// Where they are nearer, they do that anyway; where they are farther apart, trains are told by
/// other means, and each report costs room.
const EARLY_BEATS: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(125);
/// How long a packet number may be late before its packet counts as missing, in round trips.
const LATE_ROUND_TRIPS: (u32, u32) = (1, 4);
/// The largest datagram is that since so many reports: any of them may be lost.
const LATELY: usize = 3;

/// Counts arrivals and decides when to tell.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    packets: u64,
    bytes: u64,
    highest: Option<(PacketNumber, Instant)>,
    marked: u64,
    missing: u64,
    /// Packets not here at past moments, to leave out those that were only late.
    absent: VecDeque<(Instant, u64)>,
    unreported: bool,
    unreported_bytes: u64,
    repeats: u8,
    last: Option<Instant>,
    reports: u32,
    /// The newest arrival, the first that was not told of, and how long nothing came before it.
    newest: Option<Instant>,
    first: Instant,
    quiet: Duration,
    /// The largest datagrams since the newest report, and between those before.
    largest: [u16; LATELY],
}

impl Feedback {
    /// An authentic packet arrived, of so many bytes, and as many more as padding made it.
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        number: PacketNumber,
        (bytes, whole): (usize, usize),
        ecn: Option<Ecn>,
    ) {
        self.largest[0] = self.largest[0].max(u16::try_from(whole).unwrap_or(u16::MAX));
        self.packets += 1;
        self.bytes += bytes as u64;
        self.marked += u64::from(ecn == Some(Ecn::Ce));
        if self.highest.is_none_or(|(highest, _)| number > highest) {
            self.highest = Some((number, now));
        }
        if !self.unreported {
            self.first = now;
            self.quiet = self.newest.map_or(Duration::MAX, |newest| now.since(newest));
        }
        self.newest = Some(now);
        self.unreported = true;
        self.unreported_bytes += bytes as u64;
        self.repeats = REPEATS;
    }

    /// When the next report is due, one every `beat`, and never sooner than `narrow`
    /// after another.
    pub(crate) fn due(&self, beat: Duration, narrow: Duration) -> Option<Instant> {
        match self.last {
            _ if !self.unreported && self.repeats == 0 => None,
            None => Some(Instant::EPOCH),
            Some(last) if self.unreported_bytes >= WORTH_BYTES => {
                Some((last + beat).min(self.early(last, beat).max(last + narrow)))
            }
            Some(last) => {
                Some((last + beat.max(WORTH_TIME)).min(self.early(last, beat).max(last + narrow)))
            }
        }
    }

    /// When a report comes before its time.
    fn early(&self, last: Instant, beat: Duration) -> Instant {
        let newest = self.newest.filter(|_| self.unreported && EARLY_BEATS.contains(&beat));
        let Some(newest) = newest.filter(|_| self.reports < EARLY_REPORTS) else {
            return Instant::NEVER;
        };
        let pause = (beat / PAUSE_PART).max(LEAST_PAUSE);
        let at = if self.quiet >= pause { self.first } else { newest + pause };
        at.max(last + pause / 2)
    }

    /// Packets found missing so far.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// Makes the report that is due.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        opened: Instant,
        rtt: Duration,
    ) -> Option<Report> {
        let (highest, arrived) = self.highest?;
        self.repeats = if self.unreported { REPEATS } else { self.repeats.saturating_sub(1) };
        self.unreported = false;
        self.unreported_bytes = 0;
        self.last = Some(now);
        self.reports = self.reports.saturating_add(1);
        self.count_missing(now, highest, rtt);
        let largest = self.largest.into_iter().max().unwrap_or_default();
        self.largest.rotate_right(1);
        self.largest[0] = 0;
        Some(Report {
            at_micros: now.since(opened).as_micros() as u32,
            packets: self.packets,
            bytes: self.bytes,
            highest,
            highest_age_micros: micros_u32(now.since(arrived)),
            marked: self.marked,
            missing: self.missing,
            largest,
        })
    }

    /// What was absent a while ago and has not come since is missing.
    fn count_missing(&mut self, now: Instant, highest: PacketNumber, rtt: Duration) {
        let absent = (highest.0 + 1).saturating_sub(self.packets);
        // Late arrivals lower what was absent before: no value above the newest counts.
        while self.absent.pop_back_if(|(_, earlier)| *earlier > absent).is_some() {}
        if self.absent.back().is_none_or(|(_, earlier)| *earlier < absent) {
            self.absent.push_back((now, absent));
        }
        let allowed = rtt * LATE_ROUND_TRIPS.0 / LATE_ROUND_TRIPS.1;
        let settled = now.before(allowed);
        while self.absent.len() > 1 && self.absent[1].0 <= settled {
            self.absent.pop_front();
        }
        if let Some((at, count)) = self.absent.front()
            && *at <= settled
        {
            self.missing = self.missing.max(*count);
        }
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
            feedback.on_packet(ms(0), PacketNumber(number), (100, 100), None);
        }
        assert_eq!(feedback.report(ms(0), ms(0), rtt).unwrap().missing, 0, "both may be late");
        feedback.on_packet(ms(5), PacketNumber(2), (100, 100), None);
        feedback.report(ms(5), ms(0), rtt);
        feedback.on_packet(ms(20), PacketNumber(6), (100, 100), None);
        let report = feedback.report(ms(20), ms(0), rtt).unwrap();
        assert_eq!((report.missing, report.packets, report.highest), (1, 6, PacketNumber(6)));
    }

    #[test]
    fn trains_are_told_apart_at_first() {
        let mut feedback = Feedback::default();
        let (beat, rtt) = (Duration::from_millis(12), Duration::from_millis(100));
        let us = |n: u64| Instant::from_nanos(1_000_000_000 + n * 1000);
        let mut number = 0;
        let mut told = Vec::new();
        for train in 0..80 {
            for packet in 0..16 {
                let at = us(train * 50_000 + packet * 100);
                feedback.on_packet(at, PacketNumber(number), (1000, 1000), None);
                number += 1;
                let due = feedback.due(beat, Duration::ZERO).filter(|due| *due <= at);
                if due.is_some() {
                    feedback.report(at, us(0), rtt);
                    told.push((train, packet));
                }
            }
            let end = us(train * 50_000 + 1500);
            let due = feedback.due(beat, Duration::ZERO).unwrap();
            let early = due <= end + beat / 8;
            feedback.report(due, us(0), rtt);
            told.extend(early.then_some((train, 16)));
        }
        let early: Vec<_> = (0..32).flat_map(|train| [(train, 0), (train, 16)]).collect();
        assert_eq!(told[..64], early);
        assert!(told.len() < 64 + 50, "later they come on their beat: {told:?}");
    }

    #[test]
    fn the_largest_datagram_is_told_three_times() {
        let mut feedback = Feedback::default();
        let mut largest = |number, bytes| {
            feedback.on_packet(ms(number), PacketNumber(number), (36, bytes), None);
            let report = feedback.report(ms(number), ms(0), Duration::from_millis(40)).unwrap();
            assert_eq!(report.bytes, 36 * (number + 1), "padding does not count");
            report.largest
        };
        let told = [(0, 1232), (1, 90), (2, 100), (3, 80)].map(|(n, bytes)| largest(n, bytes));
        assert_eq!(told, [1232, 1232, 1232, 100]);
    }

    #[test]
    fn the_last_report_is_repeated_and_then_there_is_peace() {
        let mut feedback = Feedback::default();
        let beat = Duration::from_millis(5);
        assert_eq!(feedback.due(beat, Duration::ZERO), None);
        feedback.on_packet(ms(0), PacketNumber(0), (100, 100), None);
        for n in [0, 25, 50] {
            assert!(
                feedback.due(beat, Duration::ZERO).is_some_and(|at| at <= ms(n)),
                "report at {n}"
            );
            feedback.report(ms(n), ms(0), Duration::from_millis(40));
        }
        assert_eq!(feedback.due(beat, Duration::ZERO), None);
    }
}
