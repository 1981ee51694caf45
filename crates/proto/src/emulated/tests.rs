//! Each law by the property that its own paper claims for it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::sabul::Sabul;
use super::tcp_window::TcpWindow;
use super::tsunami::{self, Requests, Tsunami};
use super::udt::{self, Udt};
use super::window_growth::WindowGrowth;
use super::{fobs, highspeed, rbudp, sabul, scalable};
use crate::config::EmulatedProtocol;
use crate::loss_detection::{Arrival, LossDetector, MissingRanges, ResendRequest, TimingInfo};
use crate::rate::{RateControl, Sample};
use crate::time::Instant;
use crate::units::{BufferNumber, Burst, ControlSeq, PacketIndex, PacketNumber, Rate};
use crate::wire::packet::IndexRange;

const PACKET: u32 = 1500;
const RTT: Duration = Duration::from_millis(100);

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// The mean window of `protocol` where every n-th packet is lost, a sample a round trip; over the
/// second half of so many losses.
fn mean_window(protocol: EmulatedProtocol, every: u64, losses: u64) -> f64 {
    let mut window = TcpWindow::new(protocol, PACKET, None, Some(RTT));
    let (mut sent, mut lost, mut now) = (0_u64, 0_u64, ms(0));
    let (mut sum, mut rounds) = (0.0, 0_u64);
    while lost < losses {
        let packets = (window.packets as u64).max(1);
        let gone = (sent + packets) / every - sent / every;
        (sent, lost, now) = (sent + packets, lost + gone, now + RTT);
        window.on_sample(
            now,
            &Sample {
                rtt: Some(RTT),
                sent_bytes: sent * u64::from(PACKET),
                delivered_packets: sent - lost,
                lost_packets: lost,
                ..Sample::default()
            },
        );
        if lost * 2 >= losses {
            (sum, rounds) = (sum + packets as f64, rounds + 1);
        }
    }
    sum / rounds as f64
}

fn near(ours: f64, theirs: f64, part: f64, what: &str) {
    assert!((ours - theirs).abs() <= theirs * part, "{what}: {ours}, {theirs} expected");
}

/// M. Mathis et al. (1997): 1.22 / sqrt(p), and 0.87 / sqrt(p) with delayed acknowledgements.
#[test]
fn renos_window_is_inverse_to_the_root_of_the_loss() {
    for every in [400, 2_500, 10_000, 100_000] {
        let root = (every as f64).sqrt();
        near(mean_window(EmulatedProtocol::Reno, every, 60), 1.5_f64.sqrt() * root, 0.1, "reno");
        let delayed = mean_window(EmulatedProtocol::RenoDelayed, every, 60);
        near(delayed, 0.75_f64.sqrt() * root, 0.1, "delayed");
    }
}

/// RFC 3649 §5, table 1, and Reno below it.
#[test]
fn highspeed_has_its_response_function() {
    for (every, window) in [(10_000, 263.0), (100_000, 1795.0), (1_000_000, 12_279.0)] {
        near(mean_window(EmulatedProtocol::HighSpeed, every, 120), window, 0.1, "highspeed");
    }
    near(mean_window(EmulatedProtocol::HighSpeed, 400, 60), 1.5_f64.sqrt() * 20.0, 0.1, "low");
}

/// RFC 3649, appendix B: windows, increases and decreases.
#[test]
fn highspeed_follows_the_table_of_its_rfc() {
    let table = [(118.0, 2.0, 0.44), (1058.0, 8.0, 0.33), (10_661.0, 30.0, 0.21)];
    for (window, a, b) in table.into_iter().chain([(83_000.0, 71.0, 0.10)]) {
        near(highspeed::increase(window), a, 0.05, "a");
        assert!((highspeed::decrease(window) - b).abs() <= 0.006, "{window}");
    }
    assert_eq!(highspeed::increase(highspeed::LOW_WINDOW), 1.0);
    assert_eq!(highspeed::decrease(highspeed::LOW_WINDOW), 0.5);
}

/// Kelly: a / b / p; and the time to come back after a loss is the same whatever the window.
#[test]
fn scalable_has_its_response_function_and_recovers_in_constant_time() {
    for every in [1_000, 10_000, 100_000, 1_000_000] {
        let said = scalable::A / scalable::B * every as f64;
        near(mean_window(EmulatedProtocol::Scalable, every, 40), said, 0.1, "scalable");
    }
    let trips = |window: f64| {
        let mut law = scalable::Scalable;
        let (mut now, mut trips) = (law.reduce(window), 0);
        while now < window {
            (now, trips) = (law.grow(ms(0), now, now, RTT), trips + 1);
        }
        trips
    };
    assert!(trips(100.0) == 14 && trips(100_000.0) == 14, "{}", trips(100.0));
}

/// RFC 9438 §5.1: the fourth root of C (3 + beta) / 4 / (1 - beta), times that of (RTT / p)^3,
/// where that is more than Reno's.
#[test]
fn cubic_has_its_response_function() {
    let factor = (0.4 * 3.7_f64 / 1.2).powf(0.25);
    for every in [10_000, 100_000, 1_000_000] {
        let said = factor * (RTT.as_secs_f64() * every as f64).powf(0.75);
        near(mean_window(EmulatedProtocol::Cubic, every, 60), said, 0.1, "cubic");
    }
}

/// RFC 9438 §4.2: C (t - K)^3 + W_max from 0.7 W_max on, flat after K seconds.
#[test]
fn cubic_follows_its_curve() {
    let mut window = TcpWindow::new(EmulatedProtocol::Cubic, PACKET, None, Some(RTT));
    let (mut sent, mut now) = (0_u64, ms(0));
    let mut step = |window: &mut TcpWindow, lost: u64| {
        let packets = window.packets as u64;
        (sent, now) = (sent + packets, now + RTT);
        window.on_sample(
            now,
            &Sample {
                rtt: Some(RTT),
                sent_bytes: sent * u64::from(PACKET),
                delivered_packets: sent - lost,
                lost_packets: lost,
                ..Sample::default()
            },
        );
        now
    };
    while window.packets < 2_000.0 {
        step(&mut window, 0);
    }
    let w_max = window.packets;
    step(&mut window, 1);
    near(window.packets, 0.7 * w_max, 1e-9, "beta");
    let k = (0.3 * w_max / 0.4).cbrt();
    let began = step(&mut window, 1);
    for round in 1..150 {
        let at = step(&mut window, 1);
        let t = at.since(began).as_secs_f64();
        let curve = 0.4 * (t - k).powi(3) + w_max;
        near(window.packets, curve, 0.01, &format!("after {round} round trips"));
        if t > k && t < k + 0.1 {
            near(window.packets, w_max, 0.001, "the flat place");
        }
    }
    // A loss below the last one makes room: fast convergence.
    let before = window.packets;
    step(&mut window, 2);
    near(window.packets, 0.7 * before, 1e-9, "beta again");
}

/// The draft: 10 packets a SYN for 1 to 10 Gbit/s to spare, a tenth for each decade less, at least
/// 1 / 1,500.
#[test]
fn udt_grows_by_the_decade_of_the_spare_bandwidth() {
    let packets_of = |bits: f64| bits / 8.0 / 1500.0;
    for (spare, packets) in [
        (9.9e9, 10.0),
        (1.1e9, 10.0),
        (9e8, 1.0),
        (9e7, 0.1),
        (1.1e7, 0.1),
        (9e6, 0.01),
        (9e5, 0.001),
        (1e4, 1.0 / 1500.0),
        (-1.0, 1.0 / 1500.0),
    ] {
        let inc = udt::increase(packets_of(2e10 + spare), packets_of(2e10), 1500.0);
        near(inc, packets, 1e-9, &spare.to_string());
    }
}

#[test]
fn udt_grows_every_10_ms_and_slows_by_an_eighth_at_a_loss() {
    let mut udt = Udt::new(PACKET, Some(RTT), None);
    let sample = |delivered, round, bits| Sample {
        rtt: Some(RTT),
        delivered_packets: delivered,
        delivery_rate: Some(Rate::from_bits_per_second(bits)),
        round,
        ..Sample::default()
    };
    assert_eq!(udt.next_timeout(), None, "nothing was sent");
    udt.on_data_sent(ms(0), 16);
    assert_eq!(udt.next_timeout(), Some(ms(10)));
    assert_eq!(udt.pacing().cap_bytes, Some(16 * 1500));
    udt.on_sample(ms(100), &sample(16, 1, 120_000_000));
    assert_eq!(udt.pacing().cap_bytes, Some(32 * 1500), "slow start");
    // The first NAK ends it at the rate of arrival, 10,000 a second, and the next is one of another
    // congestion: an eighth longer.
    udt.on_resend(ms(110), 3);
    assert_eq!(udt.pacing().burst.interval, Duration::from_nanos(100_000));
    udt.on_resend(ms(111), 3);
    assert_eq!(udt.pacing().burst.interval, Duration::from_nanos(112_500));
    udt.on_timeout(ms(120));
    assert_eq!(udt.pacing().burst.interval, Duration::from_nanos(112_500), "a NAK in this SYN");
    // 13.3 Mbit/s are spare, a ninth of 120 is as much: 0.1 packet more in 10 ms.
    udt.on_timeout(ms(130));
    let rate = |udt: &Udt| 1e9 / udt.pacing().burst.interval.as_nanos() as f64;
    near(rate(&udt), 1e6 / 112.5 + 10.0, 1e-4, "a SYN");
    assert_eq!(udt.next_timeout(), Some(ms(140)));
    // A loss of the same round trip is the same congestion; one after two is another.
    udt.on_resend(ms(141), 1);
    udt.on_sample(ms(400), &sample(17, 4, 120_000_000));
    let before = rate(&udt);
    udt.on_resend(ms(401), 1);
    near(rate(&udt), before / 1.125, 1e-4, "another congestion");
    // With a configured capacity it does not take the low rate so far for all there is.
    let reported = Rate::from_bits_per_second(1_200_000_000);
    let mut udt = Udt::new(PACKET, Some(RTT), Some(reported));
    udt.on_data_sent(ms(0), 16);
    udt.on_sample(ms(100), &sample(16, 1, 12_000_000));
    udt.on_resend(ms(101), 1);
    udt.on_silence(ms(102));
    udt.on_timeout(ms(110));
    let before = rate(&udt);
    udt.on_timeout(ms(120));
    near(rate(&udt), before + 100.0, 1e-3, "a ninth is spare: a packet a SYN");
    // Above what it was before a loss all that is spare counts.
    udt.on_sample(ms(300), &sample(17, 4, 12_000_000));
    udt.on_resend(ms(301), 1);
    udt.on_timeout(ms(310));
    let (before, lost) = (rate(&udt), 1.0 / 1.125);
    let syns = (before * (1.0 / lost - 1.0) / 100.0).ceil() as u64;
    (0..=syns).for_each(|syn| udt.on_timeout(ms(320 + 10 * syn)));
    let again = rate(&udt);
    udt.on_timeout(ms(2000));
    near(rate(&udt), again + 1000.0, 1e-3, "ten packets a SYN");
}

#[test]
fn sabul_adjusts_its_delay_every_200_ms_by_the_loss_history() {
    let mut sabul = Sabul::new(1472);
    let delay = |sabul: &Sabul| sabul.pacing().burst.interval.as_nanos() as f64 / 1000.0;
    assert_eq!((delay(&sabul), sabul.pacing().burst.packets), (10.0, 1));
    sabul.on_data_sent(ms(5), 1000);
    assert_eq!(sabul.next_timeout(), Some(ms(205)));
    // A quarter is reported twice: the history is 0.45, and the delay grows by 4.49 % and 0.5 us.
    sabul.on_resend(ms(100), 250);
    sabul.on_timeout(ms(205));
    near(delay(&sabul), 10.0 * 1.0449 + 0.5, 1e-4, "above");
    assert_eq!(sabul.next_timeout(), Some(ms(405)));
    // More reported than sent counts as all: 0.045 + 0.9.
    sabul.on_data_sent(ms(300), 10);
    sabul.on_resend(ms(300), 800);
    sabul.on_timeout(ms(405));
    near(delay(&sabul), 10.949 * (1.0 + 0.1 * 0.944) + 0.5, 1e-4, "more than all");
    // Without loss the history fades, and then the delay shrinks by a hundredth.
    for syn in 3..30 {
        sabul.on_data_sent(ms(syn * 200), 100);
        sabul.on_timeout(ms(syn * 200 + 5));
    }
    let before = delay(&sabul);
    sabul.on_data_sent(ms(9000), 100);
    sabul.on_timeout(ms(9005));
    near(delay(&sabul), (before * 0.99).max(sabul::DELAY_BOUNDS_US.0), 1e-3, "below");
    assert_eq!(sabul::FIRST_DELAY_US, sabul::DELAY_BOUNDS_US.0);
}

/// Larger packets mean as many bytes per second, and in flight, once some were reported.
#[test]
fn a_new_packet_size_keeps_the_bytes_per_second() {
    let rtt = Some(Duration::from_millis(40));
    let tcp =
        |protocol| -> Box<dyn RateControl> { Box::new(TcpWindow::new(protocol, 1472, None, rtt)) };
    let laws: [Box<dyn RateControl>; 5] = [
        tcp(EmulatedProtocol::Cubic),
        tcp(EmulatedProtocol::Reno),
        tcp(EmulatedProtocol::Scalable),
        Box::new(Sabul::new(1472)),
        Box::new(Udt::new(1472, rtt, None)),
    ];
    for mut law in laws {
        for n in 1..=20 {
            law.on_data_sent(ms(10 * n), 10);
            law.on_sample(
                ms(10 * n + 5),
                &Sample {
                    rtt,
                    round: n / 4,
                    delivered_packets: n * 10,
                    sent_bytes: n * 14_720 + 300_000,
                    in_flight_bytes: 300_000,
                    delivery_rate: Some(Rate::from_bytes_per_second(10_000_000)),
                    ..Sample::default()
                },
            );
        }
        // It ends UDT's slow start.
        law.on_resend(ms(206), 1);
        let speed = |law: &dyn RateControl, packet: u32| {
            let pacing = law.pacing();
            let bytes = u64::from(pacing.burst.packets) * u64::from(packet);
            let rate = Rate::over(bytes, pacing.burst.interval).bytes_per_second();
            (rate as f64, pacing.cap_bytes.unwrap_or(1) as f64)
        };
        let before = speed(&*law, 1472);
        for packet in [8972, 1472] {
            law.on_packet_bytes(packet);
            let after = speed(&*law, packet);
            let line = format!("{before:?}, {after:?}: {law:?}");
            near(after.0, before.0, 0.01, &line);
            near(after.1, before.1, 0.01, &line);
        }
    }
}

#[test]
fn tsunami_follows_its_error_rate_up_to_its_target() {
    let mut law = Tsunami::new(None, 12_500);
    let delay = |law: &Tsunami| law.pacing().burst.interval;
    assert_eq!(delay(&law), Duration::from_micros(100), "1000 Mbit/s");
    let sample = |delivered| Sample { delivered_packets: delivered, ..Sample::default() };
    law.on_sample(ms(0), &sample(0));
    law.on_resend(ms(10), 1000);
    // Neither 350 ms nor 49 packets are enough.
    law.on_sample(ms(350), &sample(1000));
    assert_eq!(delay(&law), Duration::from_micros(100));
    law.on_sample(ms(351), &sample(1000));
    // Half were asked for: an error rate of 18.7 %, in the way its source counts.
    let error = 0.75 * 50_000.0 * 1000.0 / 2001.0;
    let factor = 1.0 + (1.0 + error - tsunami::TOLERATED) / (100_000.0 - 7_900.0) / 24.0;
    near(delay(&law).as_nanos() as f64, 100_000.0 * factor, 1e-4, "slower");
    law.on_resend(ms(360), 1000);
    law.on_sample(ms(800), &sample(1049));
    near(delay(&law).as_nanos() as f64, 100_000.0 * factor, 1e-4, "49 packets");
    law.on_error_rate(0, 5_000);
    assert_eq!(delay(&law), Duration::from_micros(100), "five sixths, and not below the target");
}

#[test]
fn fobs_takes_its_rate_from_a_table_after_every_segment() {
    let card = Rate::from_bits_per_second(100_000_000);
    let mut law = fobs::Fobs::new(Some(card), 1500);
    let rate = |law: &fobs::Fobs| {
        let Burst { packets, interval } = law.pacing().burst;
        assert_eq!(packets, 25);
        Rate::over(25 * 1500, interval).bits_per_second() / 100_000
    };
    let sample = |delivered, lost| Sample {
        delivered_packets: delivered,
        lost_packets: lost,
        ..Sample::default()
    };
    assert_eq!(rate(&law), 850);
    law.on_sample(ms(0), &sample(0, 0));
    law.on_sample(ms(900), &sample(9_000, 900));
    assert_eq!(rate(&law), 850, "the segment is not over");
    // 5,000 packets in a second are 60 Mbit/s: the state of 59.5.
    law.on_sample(ms(1000), &sample(5_000, 5_000));
    assert_eq!(rate(&law), 595);
    // One in a hundred is tolerated.
    law.on_sample(ms(3000), &sample(14_900, 5_100));
    assert_eq!(rate(&law), 680);
}

// ---- recovery

/// Everything but these is here.
struct Missing(BTreeSet<(u64, u32)>);

impl MissingRanges for Missing {
    fn holes(&self, buffer: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange)) {
        for (_, index) in self.0.range((buffer.0, range.start)..(buffer.0, range.end)) {
            each(IndexRange { start: *index, end: index + 1 });
        }
    }
    fn missing(&self, buffer: BufferNumber) -> u32 {
        self.0.range((buffer.0, 0)..(buffer.0, u32::MAX)).count() as u32
    }
}

const PER_BUFFER: u32 = 1000;

fn timing() -> TimingInfo {
    TimingInfo {
        rtt: Some(Duration::from_millis(70)),
        timeout: Some(Duration::ZERO),
        burst: Burst { packets: 1, interval: Duration::from_micros(100) },
        varies: false,
        packets_per_buffer: PER_BUFFER,
        packets_per_round: PER_BUFFER,
    }
}

fn arrive(recovery: &mut dyn LossDetector, now: Instant, (buffer, index): (u64, u32)) {
    let arrival = Arrival {
        number: PacketNumber(0),
        buffer: BufferNumber(buffer),
        index: PacketIndex(index),
        last_of_buffer: index + 1 == PER_BUFFER,
        ack: ControlSeq(1),
    };
    recovery.on_arrival(now, &arrival, &timing());
}

/// Its requests now, packet by packet.
fn asked(recovery: &mut dyn LossDetector, now: Instant, missing: &Missing) -> Vec<(u64, u32)> {
    let mut packets = Vec::new();
    while recovery.next_poll().is_some_and(|at| at <= now) {
        let mut asks: Vec<ResendRequest> = Vec::new();
        recovery.poll(now, missing, &timing(), &mut asks);
        for (n, ask) in asks.iter().enumerate() {
            recovery.on_requested(now, *ask, ControlSeq(10 + n as u32));
            let end = ask.range.end.min(PER_BUFFER);
            packets.extend((ask.range.start..end).map(|index| (ask.buffer.0, index)));
        }
    }
    packets
}

fn granted(mut recovery: impl LossDetector, buffers: u64) -> impl LossDetector {
    for number in 1..=buffers {
        recovery.on_granted(ms(0), BufferNumber(number), ControlSeq(1));
    }
    recovery
}

#[test]
fn sabul_reports_a_loss_at_once_and_again_every_20_ms() {
    let mut sabul = granted(sabul::recovery(), 2);
    let missing = Missing([(1, 1), (1, 2)].into());
    arrive(&mut sabul, ms(0), (1, 0));
    assert_eq!(asked(&mut sabul, ms(0), &missing), []);
    arrive(&mut sabul, ms(1), (1, 3));
    assert_eq!(asked(&mut sabul, ms(1), &missing), [(1, 1), (1, 2)]);
    let mut again = Vec::new();
    for at in 2..200 {
        let reported = asked(&mut sabul, ms(at), &missing);
        if !reported.is_empty() {
            again.push((at, reported.len()));
        }
    }
    assert_eq!(again, [(121, 2)], "on the clock, a round trip and a half later");
    // Packets that arrived meanwhile are not reported again.
    let missing = Missing([(1, 2)].into());
    assert_eq!(asked(&mut sabul, ms(241), &missing), [(1, 2)]);
}

#[test]
fn udt_reports_a_loss_at_growing_intervals() {
    let mut udt = granted(udt::recovery(), 1);
    let missing = Missing([(1, 1)].into());
    arrive(&mut udt, ms(0), (1, 0));
    arrive(&mut udt, ms(1), (1, 2));
    let reported = (1..900).filter(|at| !asked(&mut udt, ms(*at), &missing).is_empty());
    assert_eq!(reported.collect::<Vec<_>>(), [1, 291, 581, 871]);
}

#[test]
fn tsunami_requests_every_50_packets_and_350_ms_and_restarts_at_2048() {
    let mut tsunami = granted(Requests::new(), 9);
    let missing = Missing([(1, 7), (1, 8)].into());
    for index in (0..7).chain(9..51) {
        arrive(&mut tsunami, ms(0), (1, index));
    }
    assert_eq!(asked(&mut tsunami, ms(360), &missing), [], "49 packets");
    arrive(&mut tsunami, ms(350), (1, 51));
    assert_eq!(asked(&mut tsunami, ms(350), &missing), [], "no more than 350 ms");
    for _ in 0..49 {
        tsunami.on_duplicate(ms(351));
        assert_eq!(asked(&mut tsunami, ms(351), &missing), []);
    }
    tsunami.on_duplicate(ms(352));
    assert_eq!(asked(&mut tsunami, ms(352), &missing), [(1, 7), (1, 8)]);
    // Two buffers and more go by: too many for a list, and everything is asked for again.
    let gone = (52..1000).map(|index| (1, index)).chain((0..1000).map(|index| (2, index)));
    let gone = gone.chain((0..200).map(|index| (3, index)));
    let missing = Missing(gone.chain([(1, 7), (1, 8)]).collect());
    for index in 200..250 {
        arrive(&mut tsunami, ms(800), (3, index));
    }
    let all = asked(&mut tsunami, ms(800), &missing);
    let from = (7..1000).map(|index| (1, index)).chain((0..1000).map(|index| (2, index)));
    assert_eq!(all, from.chain((0..250).map(|index| (3, index))).collect::<Vec<_>>());
    assert_eq!((tsunami.expiries(), tsunami::MAX_REQUESTS), (1, 2048));
}

#[test]
fn rbudp_requests_missing_packets_only_after_the_blast() {
    let mut rbudp = granted(rbudp::recovery(), 3);
    let missing = Missing([(1, 1), (2, 0), (2, 999)].into());
    for position in [(1, 0), (1, 2), (1, 999), (2, 1), (3, 999)] {
        arrive(&mut rbudp, ms(1), position);
    }
    rbudp.on_duplicate(ms(2));
    assert_eq!(asked(&mut rbudp, ms(5000), &missing), []);
    rbudp.on_drained(ms(6000), ControlSeq(1), BufferNumber(3));
    assert_eq!(asked(&mut rbudp, ms(6000), &missing), [(1, 1), (2, 0), (2, 999)]);
    // The same NULL-ACK again has no effect; one that acknowledges the bitmap has.
    rbudp.on_drained(ms(6010), ControlSeq(1), BufferNumber(3));
    assert_eq!(asked(&mut rbudp, ms(6010), &missing), []);
    rbudp.on_drained(ms(6200), ControlSeq(12), BufferNumber(3));
    assert_eq!(asked(&mut rbudp, ms(6200), &missing).len(), 3);
}

#[test]
fn fobs_requests_missing_packets_when_a_chunk_was_sent() {
    assert_eq!((fobs::chunk_buffers(1024), fobs::chunk_buffers(u32::MAX)), (70, 1));
    let mut fobs = granted(fobs::recovery(PER_BUFFER), 80);
    let missing = Missing([(1, 1), (72, 999)].into());
    arrive(&mut fobs, ms(0), (1, 0));
    arrive(&mut fobs, ms(1), (72, 998));
    assert_eq!(asked(&mut fobs, ms(9), &missing), []);
    // Its last packet was lost: repetitions show that it is over, once a round trip and a quarter.
    fobs.on_duplicate(ms(10));
    assert_eq!(asked(&mut fobs, ms(10), &missing), [(1, 1), (72, 999)]);
    fobs.on_duplicate(ms(20));
    assert_eq!(asked(&mut fobs, ms(20), &missing), []);
    fobs.on_duplicate(ms(98));
    assert_eq!(asked(&mut fobs, ms(98), &missing).len(), 2);
}
