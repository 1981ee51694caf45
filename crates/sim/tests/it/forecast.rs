//! Old arithmetic worked again by the planner: each figure of a text to its printed digits, and
//! where a text slipped, what it should have said.

use std::time::Duration;

use netblt_path::forecast::framing::{self, ETHERNET_GAP_BYTES};
use netblt_path::forecast::{Carrier, Forecast, Framing, Question};
use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::rate::burst_in_millis;
use netblt_proto::units::Rate;
use netblt_proto::wire::data_overhead;
use netblt_sim::host::HostOptions;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

/// A figure as a text prints it, with as many digits behind the point.
#[track_caller]
fn prints(value: f64, figure: &str) {
    let digits = figure.split_once('.').map_or(0, |(_, behind)| behind.len());
    assert_eq!(format!("{value:.digits$}"), figure, "from {value}");
}

/// The same for a figure that was cut, not rounded.
#[track_caller]
fn prints_cut(value: f64, figure: &str) {
    let digits = figure.split_once('.').map_or(0, |(_, behind)| behind.len());
    let unit = 10_f64.powi(digits as i32);
    assert_eq!(format!("{:.digits$}", (value * unit).floor() / unit), figure, "from {value}");
}

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_second(mbit * 1_000_000)
}

/// Megabits a second of `packets` packets of `bytes` bytes every `millis` milliseconds.
fn mbps(packets: f64, bytes: f64, millis: f64) -> f64 {
    packets * bytes * 8.0 / millis / 1000.0
}

fn question(rate: Rate, rtt: Duration) -> Question {
    Question {
        rate,
        rtt,
        loss: Probability::NEVER,
        mtu: 1500,
        framing: Framing::Ethernet,
        carrier: Carrier::Udp4,
        wire: Wire::Rfc998,
        processing: Duration::ZERO,
        buffer_bytes: None,
        size: None,
    }
}

/// J. Mogul, comp.protocols.tcp-ip, 2 March 1988: 10 Mbit/s Ethernet carries "about 9.9 Mbit/sec,
/// because of the inter-packet gap, and perhaps closer to 9.8 or 9.7 Mbit/sec if you count the
/// addresses and CRC as wasted bits".
#[test]
fn the_best_of_an_ethernet_is_9_9_megabit() {
    let wire = f64::from(Framing::Ethernet.wire_bytes(1500));
    let gap = f64::from(ETHERNET_GAP_BYTES);
    prints(gap * 8.0 / 10.0, "9.6");
    prints((wire - gap) / wire * 10.0, "9.9");
    // Whether 9.8 or 9.7 is a matter of rounding.
    prints(1500.0 / wire * 10.0, "9.8");
    prints_cut(1500.0 / wire * 10.0, "9.7");
    // And what is left of it for NETBLT's data.
    let forecast = Forecast::new(&question(mbit(10), Duration::from_millis(1))).unwrap();
    prints(f64::from(forecast.packet.data_bytes) * forecast.packets_per_second * 8e-6, "9.4");
}

/// A. Klietz, 9 March 1988, on D. Boggs's 7.5 Mbit/s, or 8.6 with packets of 4 Kbyte: "His
/// processing overhead is 50us, or a 20,000 packets per second", "the 4K case show a 66us
/// overhead". That takes 10 Mbit/s for 10 Mbyte/s: t_f of 1,500 bytes is 1,200 us, not 150. Counted
/// right it is eight times that, "a few hundred microseconds", as Mogul had said.
#[test]
fn klietz_utilisation() {
    let as_printed = |bytes: u32| Duration::from_secs_f64(framing::seconds(bytes, mbit(80)));
    let in_truth = |bytes: u32| Duration::from_secs_f64(framing::seconds(bytes, mbit(10)));
    let micros = |frame, share| framing::processing(frame, share).as_secs_f64() * 1e6;
    prints(micros(as_printed(1500), 0.75), "50");
    prints(1e6 / micros(as_printed(1500), 0.75), "20000");
    prints_cut(micros(as_printed(4096), 0.86), "66");
    prints(micros(in_truth(1500), 0.75), "400");
    prints(micros(in_truth(4096), 0.86), "533");
    // The planner comes to the same: a host that needs 400 us for each packet.
    let processing = Duration::from_micros(400);
    prints(framing::utilisation(in_truth(1500), processing) * 10.0, "7.5");
    let ip = Question {
        framing: Framing::Ip,
        processing,
        ..question(mbit(10), Duration::from_millis(1))
    };
    let forecast = Forecast::new(&ip).unwrap();
    prints(forecast.utilisation, "0.75");
    prints(forecast.ip_rate.mbps(), "7.5");
}

/// V. Jacobson, comp.protocols.tcp-ip, 5 June 1991: half a megabyte of window over a 10 Mbit/s
/// Ethernet.
#[test]
fn jacobson_from_a_thousand_miles_away() {
    // "180 back-to-back ack packets" for half a megabyte, one for every other packet.
    prints(512.0 * 1024.0 / 1460.0 / 2.0, "180");
    // "a 128KB buffer", "after 90 data packets", "45 back-to-back acks".
    prints(128.0 * 1024.0 / 1460.0, "90");
    prints(128.0 * 1024.0 / 1460.0 / 2.0, "45");
    // "roughly 22 million data packets" in 30 GB, of which 6 were dropped: "0.00003%".
    let packets = 30.0 * 1_073_741_824.0 / 1460.0;
    prints(packets / 1e6, "22");
    prints(6.0 / packets * 100.0, "0.00003");
    // "We ran at that bandwidth": 256 MB in 3.9 minutes is what the Ethernet carries, less 3 %.
    let forecast = Forecast::new(&question(mbit(10), Duration::from_millis(36))).unwrap();
    let ran = 256.0 * 1_048_576.0 * 8.0 / (3.9 * 60.0);
    prints(ran / forecast.tcp[0].bits_per_second, "0.97");
    // And its window, had nothing else been in the way. (He says 80KB, which 64 ms would need.)
    assert_eq!(Rate::from_bits_per_second(10_000_000).bytes_in(Duration::from_millis(36)), 45_000);
}

/// RFC 1030 §4: "theoretical performance" of an IBM PC/AT, which is nothing but its time for a
/// packet; and §5, of bursts.
#[test]
fn rfc_1030_implementation_performance() {
    prints(mbps(1.0, 1990.0, 8.0), "1.99");
    prints(mbps(1.0, 1438.0, 6.0), "1.92");
    prints(mbps(1.0, 1438.0, 6.1), "1.89");
    prints(mbps(5.0, 1990.0, 43.0), "1.85");
    prints_cut(1.75 / mbps(5.0, 1990.0, 43.0) * 100.0, "94");
    // Of 1,500 bytes 1,438 were data: IP's 20 and 42 more. The RFC does not say whose; its NETBLT
    // header has 24.
    let header = Carrier::RawIp4.overhead_bytes() + data_overhead(Wire::Rfc998);
    assert_eq!(header, 44);
    // The planner: 6.0 ms a packet, whatever the wire carries meanwhile.
    let forecast = Forecast::new(&Question {
        mtu: 1438 + header,
        carrier: Carrier::RawIp4,
        processing: Duration::from_micros(6000)
            - Duration::from_secs_f64(framing::seconds(
                Framing::Ethernet.wire_bytes(1438 + header),
                mbit(10),
            )),
        buffer_bytes: Some(14_380),
        ..question(mbit(10), Duration::from_millis(2))
    })
    .unwrap();
    prints(forecast.goodput_bps / 1e6, "1.92");
    assert_eq!((forecast.burst.packets, forecast.burst.interval), (1, Duration::from_millis(6)));
    // One buffer is lock-step: a round trip and more is lost for each. The ring's needed two.
    assert!(forecast.buffers.count >= 2);
}

/// RFC 1030 appendix I: from the channel symbols of the Wideband network to what Ethernet packets
/// can have of them.
#[test]
fn rfc_1030_wideband_bandwidth_analysis() {
    const FRAME_MILLIS: f64 = 21.22;
    let frame_symbols = 32_768;
    assert_eq!(frame_symbols * 2, 65_536);
    // Printed as 3.081, which would be a frame of 21.27 ms; the rest of the page has 21.22.
    prints(f64::from(frame_symbols * 2) / FRAME_MILLIS / 1000.0, "3.088");
    prints(f64::from(frame_symbols * 2) / 21.27 / 1000.0, "3.081");
    let slot = 200 + 1263;
    assert_eq!(slot, 1463);
    let control = slot * 10;
    assert_eq!(control, 14_630);
    assert_eq!(frame_symbols - control, 18_138);
    let datagram = 1 << 14;
    assert_eq!((datagram, datagram - 16_036), (16_384, 348));
    let usable_bits = f64::from(16_036 * 2) * 0.75;
    prints(usable_bits, "24054");
    prints_cut(usable_bits / 8.0, "3006");
    prints(usable_bits / FRAME_MILLIS / 1000.0, "1.13");
    assert_eq!((usable_bits / 8.0 / 1500.0) as u32, 2);
    // "2 1438-byte packets every 22 milliseconds, or 1.05 megabits per second" (§7), and "1.045".
    prints(mbps(2.0, 1438.0, 22.0), "1.05");
    prints_cut(mbps(2.0, 1438.0, 22.0), "1.045");
    // "926 kilobits per second to 942 kilobits per second, approximately 90% channel utilization".
    let offered = mbps(5.0, 1432.0, 55.0);
    prints(0.942 / offered * 100.0, "90");
    prints(0.926 / offered * 100.0, "89");
}

/// The same channel asked of the planner: a packet every 11 ms, which is its two every 22 ms, and
/// about as many buffers as the Wideband transfers had, which was 22.
#[test]
fn the_wideband_planned() {
    let rate = Rate::over(2 * 1500, Duration::from_millis(22));
    let forecast = Forecast::new(&Question {
        framing: Framing::Ip,
        carrier: Carrier::RawIp4,
        buffer_bytes: Some(14_320),
        size: Some(50_000_000),
        ..question(rate, Duration::from_millis(1800))
    })
    .unwrap();
    assert_eq!((forecast.burst.packets, forecast.burst.interval.as_millis()), (1, 11));
    assert_eq!(forecast.burst, burst_in_millis(rate, 1500));
    assert_eq!(forecast.bdp_bytes, 245_453);
    assert_eq!((forecast.buffers.packets, forecast.buffers.count), (10, 19));
    // Six minutes and a half for 50 million bytes.
    assert_eq!(forecast.times.unwrap().total().as_secs(), 391);
}

/// One transfer as planned, in the virtual world: `None` if it failed.
fn simulate(question: &Question, forecast: &Forecast, bytes: u64) -> Option<Duration> {
    simulate_seed(1, question, forecast, bytes)
}

fn simulate_seed(
    seed: u64,
    question: &Question,
    forecast: &Forecast,
    bytes: u64,
) -> Option<Duration> {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([1; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.overhead_bytes = question.carrier.overhead_bytes();
        config.datagram_bytes = question.mtu - config.overhead_bytes;
        config.buffer_bytes = forecast.buffers.bytes;
        config.max_outstanding = forecast.buffers.count as u32;
        if role == Role::Sender {
            config.policy =
                Policy::Fixed(FixedRate::bursts(forecast.burst).expect("it has an interval"));
        }
        HostOptions::new(config)
    };
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    let link = LinkOptions {
        rate: Some(question.rate),
        delay: question.rtt / 2,
        loss: question.loss,
        queue: QueueLimit::bdp(Some(question.rate), question.rtt),
        ..LinkOptions::default()
    };
    (setup.there, setup.back) = (link.clone(), link);
    let outcome = World::new(setup).run();
    outcome.is_success().then(|| outcome.transfer_time())
}

/// What is planned comes true, and with the buffers that were planned.
#[test]
fn plans_come_true_in_the_virtual_world() {
    const BYTES: u64 = 30_000_000;
    // What a lost question or answer costs, in the handshake and when nothing else is left to send,
    // is in no plan: where one in ten is lost that is more.
    for (mbits, rtt, loss, off) in [
        (100, 20, Probability::NEVER, 0.005),
        (100, 200, Probability::NEVER, 0.005),
        (100, 50, Probability::from_ppm(1000), 0.01),
        (100, 50, Probability::from_percent(1), 0.01),
        (20, 600, Probability::from_percent(1), 0.01),
        (50, 100, Probability::from_percent(10), 0.04),
    ] {
        let question = Question {
            framing: Framing::Ip,
            wire: Wire::Sealed,
            loss,
            size: Some(BYTES),
            ..question(mbit(mbits), Duration::from_millis(rtt))
        };
        let forecast = Forecast::new(&question).unwrap();
        // Without loss all seeds are alike.
        let seeds = if loss == Probability::NEVER { 1 } else { 11 };
        let took = (1..=seeds).map(|seed| simulate_seed(seed, &question, &forecast, BYTES));
        let mut took: Vec<f64> = took.map(|t| t.expect("a transfer").as_secs_f64()).collect();
        took.sort_by(f64::total_cmp);
        let took = took[took.len() / 2];
        // The sender knows half a round trip before the receiver knows that it does.
        let planned = (forecast.times.unwrap().total() - question.rtt / 2).as_secs_f64();
        assert!((planned / took - 1.0).abs() < off, "planned {planned} s, took {took} s");
    }
}

/// Half the buffers that were planned are half the speed: the plan asks for no more than it needs.
#[test]
fn planned_buffers_are_not_too_many() {
    const BYTES: u64 = 60_000_000;
    let question = Question {
        framing: Framing::Ip,
        wire: Wire::Sealed,
        size: Some(BYTES),
        ..question(mbit(100), Duration::from_millis(500))
    };
    let forecast = Forecast::new(&question).unwrap();
    assert_eq!(forecast.buffers.count, 8);
    let mut half = forecast.clone();
    half.buffers.count = 4;
    let time = |forecast| simulate(&question, forecast, BYTES).expect("a transfer").as_secs_f64();
    let (enough, short) = (time(&forecast), time(&half));
    assert!(short > enough * 1.4, "{enough} s with all, {short} s with half");
}
