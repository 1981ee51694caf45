//! Measurement: what was sent and what was reported, made into one [`Sample`] per report.
//!
//! Every burst leaves a record of when it was sent and of what had been reported by then. A report
//! then spans a flight: from the packet that was the highest reported when its own highest was
//! sent, to that highest. Bytes over that span by the sender's clock are the send rate, by the
//! receiver's clock the arrival rate; the smaller of the two is believed, so that reports bunched
//! on their way back, or a receiver that makes up numbers, never make the path look faster than it
//! was tried. Byte counts are IP packets (`docs/protocol §6.1`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::loss_detection::inferred::When;
use crate::rate::{Sample, Stretch};
use crate::time::Instant;
use crate::units::{PacketNumber, Rate};
use crate::wire::packet::Report;

/// What leaves so soon after what left before left at the same moment: a burst takes several calls,
/// and a call some microseconds. Not so the packets of a moment that lasts longer.
const SAME_MOMENT: Duration = Duration::from_micros(100);
const LONGEST_MOMENT: Duration = Duration::from_millis(1);
/// Bursts remembered at most: 600 ms at 100,000 bursts a second. Beyond it, bursts are merged.
const MAX_RECORDS: usize = 1 << 16;

/// The sender's and the receiver's view of the newest packet reported at some moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When it was due, as if the packets of its burst had been spread over the interval.
    sent_at: Instant,
    /// When it was.
    left_at: Instant,
    /// Bytes sent before it.
    sent_bytes: u64,
    /// When it arrived, by the receiver's clock, in microseconds; wraps.
    arrived_micros: u32,
    /// Bytes that had arrived by then.
    delivered_bytes: u64,
}

/// One burst.
#[derive(Clone, Copy, Debug)]
struct Record {
    first: u64,
    count: u64,
    bytes: u64,
    /// Bytes sent before this burst.
    before: u64,
    /// Bytes sent before all that left at the same moment, and when that began.
    before_moment: u64,
    moment_began: Instant,
    at: Instant,
    /// When it was due: a host that makes up for a time in which it stood still sends no faster.
    due_at: Instant,
    /// Bytes that this host had made up for, up to its end.
    made_up: u64,
    app_limited: bool,
    /// What was known when this burst was sent.
    known: Option<Mark>,
}

impl Record {
    fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Bytes sent before the packet `number` of this burst.
    fn bytes_before(&self, number: u64) -> u64 {
        let place = number.saturating_sub(self.first).min(self.count);
        let within = u128::from(self.bytes) * u128::from(place) / u128::from(self.count.max(1));
        self.before + within as u64
    }
}

/// Numbers that no packet had.
#[derive(Debug, Default)]
struct PassedOver {
    /// Those that are higher than the highest reported, and how many are not.
    above: VecDeque<u64>,
    below: u64,
}

impl PassedOver {
    /// How many there are up to `number`, which is no lower than the highest reported.
    fn up_to(&self, number: u64) -> u64 {
        self.below + self.above.partition_point(|over| *over <= number) as u64
    }

    /// `number` is the highest reported.
    fn advance(&mut self, number: u64) {
        while self.above.pop_front_if(|over| *over <= number).is_some() {
            self.below += 1;
        }
    }
}

/// Turns bursts and reports into samples.
#[derive(Debug, Default)]
pub struct Sampler {
    overhead: u64,
    records: VecDeque<Record>,
    /// The number after the highest sent.
    next_number: u64,
    passed_over: PassedOver,
    /// Packets sent up to and with the highest reported.
    reached_packets: u64,
    sent_bytes: u64,
    sent_packets: u64,
    before_moment: u64,
    moment_began: Instant,
    last_sent: Option<Instant>,
    newest: Option<Report>,
    /// The first report of all, the start of flights sent before anything was known.
    origin: Option<Mark>,
    mark: Option<Mark>,
    /// Bytes sent up to and with the highest reported.
    reached_bytes: u64,
    delivered_bytes: u64,
    round: u64,
    round_end: u64,
    /// Until a packet from this number on is reported, the flight has a hole without data in it.
    limited_until: Option<u64>,
    /// The first packet's arrival by the receiver's clock less its departure by ours, in
    /// microseconds; wraps.
    first_way: Option<u32>,
}

impl Sampler {
    /// A sampler for datagrams that have `overhead_bytes` of IP and UDP header each.
    pub fn new(overhead_bytes: u32) -> Self {
        Self { overhead: u64::from(overhead_bytes), ..Self::default() }
    }

    /// Bytes of IP and UDP header on each datagram.
    pub fn overhead(&self) -> u64 {
        self.overhead
    }

    /// A burst of `count` packets was sent, with numbers from `first` on and `bytes` of datagrams
    /// (IP and UDP headers not counted).
    pub fn on_sent(&mut self, now: Instant, first: PacketNumber, count: u32, bytes: u64) {
        let count = u64::from(count);
        if count == 0 || first.0 < self.next_number {
            return;
        }
        let bytes = bytes + count * self.overhead;
        let soon = self.last_sent.is_some_and(|last| now.since(last) <= SAME_MOMENT);
        if !soon || now.since(self.moment_began) > LONGEST_MOMENT {
            (self.before_moment, self.moment_began) = (self.sent_bytes, now);
        }
        let record = Record {
            first: first.0,
            count,
            bytes,
            before: self.sent_bytes,
            before_moment: self.before_moment,
            moment_began: self.moment_began,
            at: now,
            due_at: now,
            made_up: 0,
            app_limited: self.limited_until.is_some(),
            known: self.mark,
        };
        self.next_number = first.0.saturating_add(count);
        self.sent_bytes += bytes;
        self.sent_packets += count;
        self.last_sent = Some(now);
        if self.records.len() < MAX_RECORDS {
            self.records.push_back(record);
        } else if let Some(last) = self.records.back_mut() {
            last.count = self.next_number - last.first;
            last.bytes += bytes;
        }
    }

    /// A number was passed over: no packet has it.
    pub(crate) fn on_passed_over(&mut self, number: PacketNumber) {
        self.passed_over.above.push_back(number.0);
        self.next_number = number.0.saturating_add(1);
    }

    /// What is wrong with a report that tells of packets which were not sent, if it does. A
    /// receiver that counts what comes never makes one.
    pub(crate) fn contradicts(&self, report: &Report) -> Option<&'static str> {
        const NOT_SENT: &str = "a report of packets that were not sent";
        let highest = report.highest.0;
        if highest >= self.next_number || self.passed_over.above.contains(&highest) {
            return Some(NOT_SENT);
        }
        // An older one is void, and what was known of its time is forgotten.
        if self.newest.is_some_and(|newest| report.highest < newest.highest) {
            return None;
        }
        let most = highest + 1 - self.passed_over.up_to(highest);
        let bytes = report.bytes.saturating_add(report.packets.saturating_mul(self.overhead));
        let more = report.packets > most || bytes > self.sent_bytes;
        (more || report.marked > report.packets).then_some(NOT_SENT)
    }

    /// The newest burst was due then, and up to its end so many bytes are ahead of the pace because
    /// this host stood still and makes up for it.
    pub fn on_late(&mut self, due_at: Instant, made_up_bytes: u64) {
        let before = self.records.iter().rev().nth(1).map_or(due_at, |record| record.due_at);
        if let Some(last) = self.records.back_mut() {
            last.due_at = due_at.max(before).min(last.at);
            last.made_up = made_up_bytes;
        }
    }

    /// Nothing could be sent now although the policy would have allowed it: no data were supplied
    /// or no buffer granted. What is sent until this shows in reports says little about the path.
    pub fn on_app_limited(&mut self) {
        self.limited_until = Some(self.next_number);
    }

    /// When something was sent last.
    pub fn last_sent(&self) -> Option<Instant> {
        self.last_sent
    }

    /// Bytes sent that are neither reported nor known to be missing.
    pub fn in_flight_bytes(&self) -> u64 {
        let beyond = self.sent_bytes - self.reached_bytes.min(self.sent_bytes);
        let Some(newest) = self.newest else { return beyond };
        let absent = self.reached_packets - newest.packets - newest.missing;
        beyond + absent * (self.sent_bytes / self.sent_packets.max(1))
    }

    /// Bytes of IP packets known to have arrived.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Bytes of IP packets sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Packets known to have arrived.
    pub fn delivered_packets(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.packets)
    }

    /// Packets that arrived marked Congestion Experienced.
    pub fn marked_packets(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.marked)
    }

    /// Takes in a report; a sample if it is newer than all before and can be true.
    pub fn on_report(&mut self, now: Instant, report: &Report) -> Option<Sample> {
        let mut sample = self.on_told(now, report, When::Reported)?;
        sample.way_micros = sample.rtt.and_then(|_| self.way());
        Some(sample)
    }

    /// How long the newest packet reported took there, against the first.
    fn way(&mut self) -> Option<i64> {
        let mark = self.mark?;
        let left = (mark.left_at.as_nanos() / 1000) as u32;
        let way = mark.arrived_micros.wrapping_sub(left);
        let first = *self.first_way.get_or_insert(way);
        Some(i64::from(way.wrapping_sub(first) as i32))
    }

    /// The same; `when` says what is known of the arrival of the highest.
    pub(crate) fn on_told(&mut self, now: Instant, report: &Report, when: When) -> Option<Sample> {
        let report = self.believable(report)?;
        let highest = report.highest.0;
        let advanced = self.newest.is_none_or(|newest| highest > newest.highest.0);
        let mut sample = Sample::default();
        let index = self.records.partition_point(|record| record.end() <= highest);
        let record = self.records.get(index).copied().filter(|_| advanced);
        if let Some(record) = &record {
            self.reached_bytes = record.bytes_before(highest.saturating_add(1));
        }
        let bytes = report.bytes.saturating_add(report.packets.saturating_mul(self.overhead));
        self.delivered_bytes = bytes.min(self.reached_bytes).max(self.delivered_bytes);
        if let Some(record) = &record {
            let arrived_bytes = match when {
                When::Unknown => None,
                When::Reported => Some(self.delivered_bytes),
                When::Presumed(packets) => {
                    let part =
                        u128::from(self.reached_bytes) * u128::from(packets.min(highest + 1));
                    Some((part / u128::from(highest + 1)) as u64)
                }
            };
            if let Some(arrived_bytes) = arrived_bytes {
                self.time(now, (&report, arrived_bytes), index, record, &mut sample);
            }
            self.advance(highest, record, &mut sample);
        }
        self.reached_packets = highest + 1 - self.passed_over.up_to(highest);
        self.passed_over.advance(highest);
        self.newest = Some(report);
        sample.sent_bytes = self.sent_bytes;
        sample.delivered_bytes = self.delivered_bytes;
        sample.delivered_packets = report.packets;
        sample.lost_packets = report.missing;
        sample.marked_packets = report.marked;
        sample.in_flight_bytes = self.in_flight_bytes();
        sample.round = self.round;
        Some(sample)
    }

    /// The report, without what cannot be: it must not name packets never sent, and no count may
    /// shrink or exceed what its highest number allows. A receiver that claims more than it got
    /// would otherwise draw traffic that the path has no room for.
    fn believable(&self, report: &Report) -> Option<Report> {
        let highest = report.highest.0;
        let older = self.newest.is_some_and(|newest| report.highest < newest.highest);
        // Of an older report nothing can be counted: numbers passed over are known by place only
        // above the highest reported.
        if older || highest >= self.next_number {
            return None;
        }
        let mut report = *report;
        let over = self.passed_over.up_to(highest);
        let sent = highest + 1 - over;
        report.packets = report.packets.min(sent);
        // What never left is missing there, and was not lost.
        report.missing = report.missing.saturating_sub(over);
        if let Some(newest) = &self.newest {
            // Counts do not wrap, but the clock does, and an outage may be longer than half of it.
            let later = report.at_micros.wrapping_sub(newest.at_micros);
            let same = report.packets == newest.packets;
            let older = same && (later == 0 || later >= 1 << 31);
            if report.packets < newest.packets || older {
                return None;
            }
            report.missing = report.missing.max(newest.missing);
            report.marked = report.marked.max(newest.marked);
        }
        report.missing = report.missing.min(sent - report.packets);
        report.marked = report.marked.min(report.packets);
        Some(report)
    }

    /// The highest number grew: round trip, and the rates over its flight.
    fn time(
        &mut self,
        now: Instant,
        (report, arrived_bytes): (&Report, u64),
        index: usize,
        record: &Record,
        sample: &mut Sample,
    ) {
        let number = report.highest.0;
        let mark = Mark {
            sent_at: self.spread(index, number),
            left_at: record.at,
            sent_bytes: record.bytes_before(number),
            arrived_micros: report.at_micros.wrapping_sub(report.highest_age_micros),
            delivered_bytes: arrived_bytes,
        };
        let age = Duration::from_micros(u64::from(report.highest_age_micros));
        // An age beyond the whole time since sending is made up; no round trip is zero.
        sample.rtt = now.since(record.at).checked_sub(age).filter(|rtt| !rtt.is_zero());
        let after = record.before + record.bytes - record.bytes_before(number + 1);
        sample.made_up_bytes = record.made_up.saturating_sub(after);
        sample.burst_bytes = record.bytes_before(number + 1) - record.before_moment;
        sample.burst_time = record.at.since(record.moment_began);
        if let Some(start) = record.known.or(self.origin) {
            (sample.send_rate, sample.delivery_rate) = rates(&start, &mark);
        }
        sample.stretch = self.mark.and_then(|before| stretch(&before, &mark));
        self.origin.get_or_insert(mark);
        self.mark = Some(mark);
    }

    /// The highest number grew: round, and what need not be remembered any longer.
    fn advance(&mut self, number: u64, record: &Record, sample: &mut Sample) {
        sample.app_limited = record.app_limited;
        if number >= self.round_end {
            self.round += u64::from(self.newest.is_some());
            self.round_end = self.next_number;
        }
        if self.limited_until.is_some_and(|until| number >= until) {
            self.limited_until = None;
        }
        let done = self.records.partition_point(|record| record.end() <= number + 1);
        self.records.drain(..done);
    }

    /// When the packet `number`, in the record at `index`, would have left had the packets of its
    /// burst been spread until the next one. Without this the rate over a flight would be wrong
    /// by up to a burst at either end.
    fn spread(&self, index: usize, number: u64) -> Instant {
        let Some(record) = self.records.get(index) else { return Instant::EPOCH };
        let gap = match self.records.get(index + 1) {
            Some(next) if !next.app_limited => next.due_at.since(record.due_at),
            _ => Duration::ZERO,
        };
        let place = u128::from(number.saturating_sub(record.first));
        let part = gap.as_nanos() * place / u128::from(record.count.max(1));
        record.due_at + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// What lay between the packets of two marks; `None` if the second arrived before the first.
fn stretch(start: &Mark, end: &Mark) -> Option<Stretch> {
    let micros = end.arrived_micros.wrapping_sub(start.arrived_micros);
    (micros < 1 << 31).then(|| Stretch {
        from_bytes: start.sent_bytes,
        sent_bytes: end.sent_bytes.saturating_sub(start.sent_bytes),
        arrived_bytes: end.delivered_bytes.saturating_sub(start.delivered_bytes),
        sending: end.left_at.since(start.left_at),
        arriving: Duration::from_micros(u64::from(micros)),
    })
}

/// Send rate and delivery rate over the flight from `start` to `end`.
fn rates(start: &Mark, end: &Mark) -> (Option<Rate>, Option<Rate>) {
    let sending = end.sent_at.since(start.sent_at);
    if sending.is_zero() {
        return (None, None);
    }
    let sent = end.sent_bytes.saturating_sub(start.sent_bytes);
    let send_rate = Rate::over(sent, sending);
    let micros = end.arrived_micros.wrapping_sub(start.arrived_micros);
    // Beyond half the range of the clock time went backwards: reordering, or an invention.
    if micros >= 1 << 31 {
        return (Some(send_rate), None);
    }
    let arriving = Duration::from_micros(u64::from(micros));
    let delivered = end.delivered_bytes.saturating_sub(start.delivered_bytes).min(sent);
    (Some(send_rate), Some(Rate::over(delivered, arriving.max(sending))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1000;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// One packet of 1,000 bytes every millisecond, from 0 on.
    fn sampler(packets: u64) -> Sampler {
        let mut sampler = Sampler::new(28);
        for n in 0..packets {
            sampler.on_sent(ms(n), PacketNumber(n), 1, BYTES - 28);
        }
        sampler
    }

    fn report(at_millis: u64, packets: u64, highest: u64) -> Report {
        Report {
            at_micros: (at_millis * 1000) as u32,
            packets,
            bytes: packets * (BYTES - 28),
            highest: PacketNumber(highest),
            ..Report::default()
        }
    }

    #[test]
    fn a_report_after_an_outage_longer_than_half_the_clock_is_newer() {
        let mut sampler = sampler(10);
        assert!(sampler.on_report(ms(47), &report(40, 5, 4)).is_some());
        assert!(sampler.on_report(ms(2_400_000), &report(2_400_000, 6, 5)).is_some());
        assert!(sampler.on_report(ms(2_400_001), &report(40, 5, 5)).is_none(), "an old one");
    }

    #[test]
    fn round_trip_leaves_out_the_receivers_delay() {
        let mut sampler = sampler(10);
        let late = Report { highest_age_micros: 3000, ..report(500, 5, 4) };
        let sample = sampler.on_report(ms(47), &late).unwrap();
        assert_eq!(sample.rtt, Some(Duration::from_millis(40)));
        let invented = Report { highest_age_micros: 60_000, ..report(501, 6, 5) };
        assert_eq!(sampler.on_report(ms(48), &invented).unwrap().rtt, None);
    }

    #[test]
    fn what_is_neither_reported_nor_missing_is_in_flight() {
        let mut sampler = sampler(100);
        assert_eq!(sampler.in_flight_bytes(), 100 * BYTES);
        let sample = sampler.on_report(ms(100), &Report { missing: 2, ..report(9, 55, 59) });
        let sample = sample.unwrap();
        assert_eq!((sample.in_flight_bytes, sample.delivered_bytes), (43 * BYTES, 55 * BYTES));
        assert_eq!((sample.lost_packets, sample.sent_bytes), (2, 100 * BYTES));
    }

    #[test]
    fn the_slower_of_sending_and_arriving_is_believed() {
        let rate_after = |millis: u64| {
            let mut sampler = sampler(100);
            sampler.on_report(ms(100), &report(1000, 1, 0)).unwrap();
            let sample = sampler.on_report(ms(101), &report(1000 + millis, 51, 50)).unwrap();
            assert_eq!(sample.send_rate, Some(Rate::from_bytes_per_second(1_000_000)));
            sample.delivery_rate.unwrap().bytes_per_second()
        };
        assert_eq!(rate_after(50), 1_000_000);
        assert_eq!(rate_after(100), 500_000, "a bottleneck stretched it");
        assert_eq!(rate_after(1), 1_000_000, "packets bunched on their way prove nothing");
    }

    #[test]
    fn what_is_taken_to_have_come_makes_rates_and_nothing_else() {
        let rate_of = |when| {
            let mut sampler = sampler(100);
            sampler.on_told(ms(100), &report(1000, 1, 0), When::Presumed(1)).unwrap();
            let sample = sampler.on_told(ms(101), &report(1050, 21, 50), when).unwrap();
            assert_eq!((sample.delivered_packets, sample.delivered_bytes), (21, 21 * BYTES));
            sample.delivery_rate.map(|rate| rate.bytes_per_second())
        };
        assert_eq!(rate_of(When::Unknown), None);
        assert_eq!(rate_of(When::Reported), Some(400_000));
        assert_eq!(rate_of(When::Presumed(41)), Some(800_000));
        assert_eq!(rate_of(When::Presumed(u64::MAX)), Some(1_000_000), "no more than was sent");
    }

    #[test]
    fn what_leaves_within_a_tenth_of_a_millisecond_leaves_at_one_moment() {
        let us = |n: u64| Instant::EPOCH + Duration::from_micros(n);
        let burst = |gap: u64, packets: u64| {
            let mut sampler = Sampler::new(28);
            for n in 0..packets {
                sampler.on_sent(us(n * gap), PacketNumber(n), 1, BYTES - 28);
            }
            let report = report(40, packets, packets - 1);
            let sample = sampler.on_report(us(50_000), &report).expect("the first one");
            (sample.burst_bytes / BYTES, sample.burst_time)
        };
        assert_eq!(burst(50, 10), (10, Duration::from_micros(450)));
        assert_eq!(burst(200, 10), (1, Duration::ZERO));
        // Sent evenly it is no burst, however many packets it has.
        assert!(burst(100, 100).0 <= 11);
    }

    #[test]
    fn bursts_count_as_if_spread_over_their_interval() {
        let mut sampler = Sampler::new(0);
        for burst in 0..10 {
            sampler.on_sent(ms(burst * 10), PacketNumber(burst * 10), 10, 10 * BYTES);
        }
        sampler.on_report(ms(100), &report(100, 10, 9)).unwrap();
        let sample = sampler.on_report(ms(101), &report(146, 56, 55)).unwrap();
        assert_eq!(sample.send_rate, Some(Rate::from_bytes_per_second(1_000_000)));
    }

    #[test]
    fn a_host_that_makes_up_for_a_stop_sends_no_faster() {
        let mut sampler = sampler(50);
        // It stood still for 10 ms, and sends what was due meanwhile at once.
        sampler.on_sent(ms(60), PacketNumber(50), 11, 11 * (BYTES - 28));
        sampler.on_late(ms(50), 11 * BYTES);
        for n in 61..100 {
            sampler.on_sent(ms(n), PacketNumber(n), 1, BYTES - 28);
            sampler.on_late(ms(n), 10 * BYTES);
        }
        sampler.on_report(ms(100), &report(90, 56, 55)).unwrap();
        let sample = sampler.on_report(ms(101), &report(101, 71, 70)).unwrap();
        assert_eq!(sample.made_up_bytes, 10 * BYTES);
        assert_eq!(sample.send_rate, Some(Rate::from_bytes_per_second(1_000_000)));
        // Of a burst, so much as left before its packet.
        let mut sampler = Sampler::new(28);
        sampler.on_sent(ms(0), PacketNumber(0), 10, 10 * (BYTES - 28));
        sampler.on_late(ms(0), 8 * BYTES);
        let mut made_up =
            |n| sampler.on_report(ms(40 + n), &report(20 + n, n + 1, n)).unwrap().made_up_bytes;
        assert_eq!([made_up(1), made_up(4), made_up(9)], [0, 3 * BYTES, 8 * BYTES]);
    }

    #[test]
    fn the_receivers_clock_may_wrap() {
        let mut sampler = sampler(100);
        let mut first = report(0, 1, 0);
        first.at_micros = u32::MAX - 9_999;
        sampler.on_report(ms(100), &first).unwrap();
        let sample = sampler.on_report(ms(101), &report(40, 51, 50)).unwrap();
        assert_eq!(sample.delivery_rate, Some(Rate::from_bytes_per_second(1_000_000)));
    }

    #[test]
    fn stale_repeated_and_impossible_reports_change_nothing() {
        let mut sampler = sampler(100);
        sampler.on_report(ms(100), &report(50, 50, 49)).unwrap();
        let before = sampler.in_flight_bytes();
        assert_eq!(sampler.on_report(ms(101), &report(40, 40, 39)), None);
        assert_eq!(sampler.on_report(ms(101), &report(50, 50, 49)), None);
        assert_eq!(sampler.on_report(ms(101), &report(60, 101, 100)), None);
        assert_eq!(sampler.on_report(ms(101), &report(60, 70, u64::MAX)), None);
        assert_eq!(sampler.in_flight_bytes(), before);
    }

    #[test]
    fn a_report_that_was_overtaken_is_void_after_numbers_were_passed_over() {
        let mut sampler = Sampler::new(28);
        for n in 0..10 {
            sampler.on_passed_over(PacketNumber(n));
        }
        for n in 10..20 {
            sampler.on_sent(ms(n), PacketNumber(n), 1, BYTES - 28);
        }
        sampler.on_report(ms(100), &report(50, 10, 19)).unwrap();
        assert_eq!(sampler.on_report(ms(101), &report(40, 0, 5)), None);
    }

    #[test]
    fn a_lying_receiver_gains_nothing() {
        let mut sampler = sampler(100);
        sampler.on_report(ms(100), &report(50, 1, 0)).unwrap();
        let lie = Report {
            packets: u64::MAX,
            bytes: u64::MAX,
            missing: u64::MAX,
            marked: u64::MAX,
            ..report(51, 0, 59)
        };
        let sample = sampler.on_report(ms(101), &lie).unwrap();
        assert_eq!((sample.delivered_packets, sample.lost_packets), (60, 0));
        assert_eq!((sample.delivered_bytes, sample.in_flight_bytes), (60 * BYTES, 40 * BYTES));
        assert_eq!(sample.delivery_rate, Some(Rate::from_bytes_per_second(1_000_000)));
        let lie = Report { missing: u64::MAX, ..report(52, 60, 89) };
        let sample = sampler.on_report(ms(102), &lie).unwrap();
        assert_eq!((sample.lost_packets, sample.in_flight_bytes), (30, 10 * BYTES));
    }

    #[test]
    fn rounds_follow_flights() {
        let mut sampler = sampler(10);
        let round =
            |s: &mut Sampler, at, n| s.on_report(ms(at), &report(at, n, n - 1)).unwrap().round;
        assert_eq!((round(&mut sampler, 20, 1), round(&mut sampler, 21, 9)), (0, 0));
        sampler.on_sent(ms(22), PacketNumber(10), 5, 5 * BYTES);
        assert_eq!((round(&mut sampler, 40, 10), round(&mut sampler, 41, 11)), (0, 1));
    }

    #[test]
    fn a_pause_for_want_of_data_marks_what_follows_until_it_is_over() {
        let mut sampler = sampler(10);
        sampler.on_app_limited();
        sampler.on_sent(ms(30), PacketNumber(10), 1, BYTES);
        assert!(!sampler.on_report(ms(40), &report(40, 10, 9)).unwrap().app_limited);
        assert!(sampler.on_report(ms(60), &report(60, 11, 10)).unwrap().app_limited);
        sampler.on_sent(ms(61), PacketNumber(11), 1, BYTES);
        assert!(!sampler.on_report(ms(90), &report(90, 12, 11)).unwrap().app_limited);
    }

    #[test]
    fn memory_is_bounded_and_numbers_of_other_packets_may_lie_between() {
        let mut sampler = Sampler::new(0);
        let bursts = MAX_RECORDS as u64 + 1000;
        for n in 0..bursts {
            sampler.on_sent(ms(n), PacketNumber(n * 3), 2, 2 * BYTES);
        }
        assert_eq!(sampler.records.len(), MAX_RECORDS);
        assert_eq!(sampler.in_flight_bytes(), bursts * 2 * BYTES);
        let all = report(9, bursts * 3 - 1, bursts * 3 - 2);
        sampler.on_report(ms(bursts), &all).unwrap();
        assert_eq!((sampler.records.len(), sampler.in_flight_bytes()), (0, 0));
    }
}
