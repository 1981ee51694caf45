//! A receiver that invents reports gains nothing (`docs/protocol §6.3`).

use std::collections::VecDeque;

use super::*;
use crate::buffer::Geometry;
use crate::config::Policy;
use crate::crypto::cipher::Cipher;
use crate::negotiated::PacketOutcome;
use crate::wire::Wire;
use crate::wire::packet::{Accepted, Burst, Go, Message, Report};
use crate::wire::sealed;

const PACKET: u32 = 1184;
const BUFFER: u32 = 64 * PACKET;
const REPORT_INTERVAL: Duration = Duration::from_millis(5);
const DELAY: Duration = Duration::from_millis(10);
/// 20 Mbit/s, and a queue of 50 ms.
const BYTES_A_SECOND: u64 = 2_500_000;
const QUEUE: Duration = Duration::from_millis(50);

/// How a receiver reports arrivals.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Says {
    /// The truth.
    Truth,
    /// All packets up to the highest arrival.
    AllCame,
    /// Packets in flight too: at most this many beyond the highest arrival.
    MoreThanCame(u64),
    /// All packets that may have been sent by now, and more.
    Everything,
}

/// A sender, a path that drops packets beyond its queue, and a receiver that accepts every buffer.
struct Lab {
    sender: Sender,
    codec: Codec,
    now: Instant,
    free_at: Instant,
    /// When packets arrive, their numbers, and their bytes.
    flying: VecDeque<(Instant, u64, u64)>,
    /// Reports on the reverse path.
    reports: VecDeque<(Instant, Report)>,
    seq: u32,
    granted: u64,
    accepted: u64,
    report: Report,
    highest_at: Instant,
    dropped: u64,
    sent_bytes: u64,
}

impl Lab {
    fn new() -> Self {
        let burst = Burst { packets: 65_535, interval: Duration::ZERO };
        let negotiated = Negotiated {
            geometry: Geometry { buffer_bytes: BUFFER, packet_bytes: PACKET },
            max_outstanding: 512,
            burst,
            datagram_bytes: 1232,
            control_bytes: 1232,
            burst_bytes: 1232,
            rtt: Some(DELAY * 2),
            longest_rtt: Some(DELAY * 2),
            ..Negotiated::example(Wire::Sealed)
        };
        let law = crate::rate::build(Policy::Fair { ceiling: None }, &negotiated, 28);
        let mut sender = Sender::new(Instant::EPOCH, negotiated, law, 28);
        sender.skip_numbers([3; 32]);
        Self {
            sender,
            codec: Codec::sealed(1, 2, Cipher::Aes256Gcm, [1; 32], [2; 32]),
            now: Instant::EPOCH,
            free_at: Instant::EPOCH,
            flying: VecDeque::new(),
            reports: VecDeque::new(),
            seq: 0,
            granted: 0,
            accepted: 0,
            report: Report::default(),
            highest_at: Instant::EPOCH,
            dropped: 0,
            sent_bytes: 0,
        }
    }

    fn deliver(&mut self, message: Message) {
        self.seq += 1;
        let messages = vec![(ControlSeq(self.seq), message)];
        assert_eq!(self.sender.handle_control(self.now, false, messages), PacketOutcome::Authentic);
    }

    /// Accepts all sent buffers, and grants as many again.
    fn grant(&mut self) {
        let done = self.sender.scheduler.buffers().take_while(|buffer| buffer.is_sent()).count();
        if done > 0 {
            let first = BufferNumber(self.accepted + 1);
            let (count, control_timer) = (done as u32, Duration::from_millis(50));
            self.deliver(Message::Ok(Accepted { first, count, offer: None, control_timer }));
            self.accepted += done as u64;
        }
        let count = (400 - (self.granted - self.accepted)) as u32;
        if count > 0 {
            let first = BufferNumber(self.granted + 1);
            self.deliver(Message::Go(Go { first, count, packet_bytes: PACKET, generation: 0 }));
            for number in 1..=u64::from(count) {
                let mut buffer = Buffer::new(BUFFER as usize);
                buffer.set_len(BUFFER as usize);
                let number = BufferNumber(self.granted + number);
                self.sender.supply(self.now, number, buffer, false);
            }
            self.granted += u64::from(count);
        }
        self.sender.records.events.clear();
    }

    fn transmit(&mut self) {
        let mut out = Vec::new();
        while let Some(segment) = self.sender.poll_transmit(self.now, &mut self.codec, &mut out) {
            for packet in out.chunks(segment) {
                let header = sealed::parse_header(packet).expect("one of ours");
                let bytes = packet.len() as u64;
                self.sent_bytes += bytes;
                let service = Duration::from_nanos((bytes + 28) * 1_000_000_000 / BYTES_A_SECOND);
                let start = self.free_at.max(self.now);
                if start.since(self.now) > QUEUE {
                    self.dropped += 1;
                    continue;
                }
                self.free_at = start + service;
                self.flying.push_back((self.free_at + DELAY, header.number.0, bytes));
            }
            out.clear();
        }
    }

    fn arrive(&mut self) {
        while let Some((at, number, bytes)) = self.flying.pop_front_if(|(at, ..)| *at <= self.now) {
            self.report.packets += 1;
            self.report.bytes += bytes;
            self.report.highest = PacketNumber(number);
            self.highest_at = at;
        }
    }

    fn make_report(&mut self, says: Says) {
        let mut report = Report {
            at_micros: (self.now.as_nanos() / 1000) as u32,
            highest_age_micros: self.now.since(self.highest_at).as_micros() as u32,
            ..self.report
        };
        let sent = self.codec.upcoming().0;
        report.missing = (report.highest.0 + 1).saturating_sub(report.packets);
        let ahead = match says {
            Says::Truth => return self.reports.push_back((self.now + DELAY, report)),
            Says::AllCame => 0,
            Says::MoreThanCame(most) => (sent - 1).saturating_sub(report.highest.0).min(most),
            Says::Everything => sent - report.highest.0 + 5,
        };
        report.highest = PacketNumber(report.highest.0 + ahead);
        report.packets = report.highest.0 + 1;
        report.bytes = report.packets * 1000;
        (report.missing, report.highest_age_micros) = (0, 0);
        self.reports.push_back((self.now + DELAY, report));
    }

    /// Whether a report that came is a violation.
    fn is_caught(&mut self) -> bool {
        while let Some((_, report)) = self.reports.pop_front_if(|(at, _)| *at <= self.now) {
            if self.sender.handle_report(self.now, &report) != PacketOutcome::Authentic {
                return true;
            }
        }
        false
    }

    /// Runs until `until`, or until a report is a violation.
    fn run(&mut self, says: Says, until: Duration) -> bool {
        let end = Instant::EPOCH + until;
        let mut due = Instant::EPOCH + REPORT_INTERVAL;
        while self.now < end {
            self.grant();
            self.sender.handle_timeout(self.now);
            self.transmit();
            self.now += Duration::from_micros(250);
            self.arrive();
            if self.now >= due && self.report.packets > 0 {
                due = self.now + REPORT_INTERVAL;
                self.make_report(says);
            }
            if self.is_caught() {
                return true;
            }
        }
        false
    }

    fn megabits(&self) -> u64 {
        self.sent_bytes * 8 / self.now.since(Instant::EPOCH).as_millis() as u64 / 1000
    }
}

#[test]
fn invented_reports_are_detected_before_they_gain_anything() {
    let second = Duration::from_secs(1);
    let mut honest = Lab::new();
    assert!(!honest.run(Says::Truth, second), "what is true is no violation");
    let (fair, lost) = (honest.megabits(), honest.sender.records.stats.data_packets_lost);
    assert!((14..=24).contains(&fair), "{fair} Mbit/s of 20");
    // Skipped numbers are not lost. Dropped packets are, except those of the last round trip.
    let over = honest.codec.upcoming().0 - honest.sender.records.stats.data_packets_sent;
    assert!(over > 4 && lost <= honest.dropped, "{lost} of {} lost, {over}", honest.dropped);
    // Without skipped numbers the third of these drew all that the sender could send, and the first
    // two hid every loss.
    let lies =
        [Says::AllCame, Says::MoreThanCame(20), Says::MoreThanCame(u64::MAX), Says::Everything];
    for says in lies {
        let mut lab = Lab::new();
        assert!(lab.run(says, second), "{says:?} was believed");
        let packets = lab.sender.records.stats.data_packets_sent;
        assert!(packets < 4000, "{says:?} drew {packets} packets");
    }
}
