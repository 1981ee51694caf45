//! Tests of plans: each figure against one worked out by hand, and any question at all.

use proptest::prelude::*;

use super::*;

/// 1 Gbit/s Ethernet, 100 ms, no loss.
fn question() -> Question {
    Question {
        rate: Rate::from_bits_per_second(1_000_000_000),
        rtt: Duration::from_millis(100),
        loss: Probability::NEVER,
        mtu: 1500,
        framing: Framing::Ethernet,
        carrier: Carrier::Udp4,
        wire: Wire::Sealed,
        processing: Duration::ZERO,
        buffer_bytes: None,
        size: None,
    }
}

fn forecast(change: impl FnOnce(&mut Question)) -> Forecast {
    let mut question = question();
    change(&mut question);
    Forecast::new(&question).unwrap()
}

fn near(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= expected.abs() * 1e-6, "{ours} is not {expected}");
}

#[test]
fn one_process_moves_a_million_packets_a_second() {
    assert_eq!(forecast(|_| {}).process_bps, None);
    let fast = forecast(|q| q.rate = Rate::from_bits_per_second(100_000_000_000));
    let process = fast.process_bps.expect("more than one process moves");
    near(process, PROCESS_PACKETS * 8.0 * 1_048_576.0 / 737.0);
    assert!(process < fast.goodput_bps);
}

#[test]
fn a_gigabit_ethernet_carries_this_much() {
    let forecast = forecast(|_| {});
    let packet = Packet { data_bytes: 1424, ip_bytes: 1500, wire_bytes: 1538 };
    assert_eq!(forecast.packet, packet);
    near(forecast.packets_per_second, 125e6 / 1538.0);
    assert_eq!(forecast.utilisation, 1.0);
    assert_eq!(forecast.ip_rate.bytes_per_second(), 121_911_573);
    // 1 MiB and its table are 737 packets, the last of them nearly empty.
    assert_eq!(forecast.buffers.packets, 737);
    near(forecast.goodput_bps, 8.0 * 1_048_576.0 / (737.0 * 1538.0 / 125e6));
    assert_eq!(forecast.bdp_bytes, 12_191_157);
    assert_eq!((forecast.burst.packets, forecast.burst.interval.as_micros()), (44, 541));
    // A round trip holds 11.03 buffers' worth of time; one is being filled, one stored.
    assert_eq!((forecast.buffers.count, forecast.buffers.repair_rounds), (14, 0));
    assert_eq!(forecast.buffers.memory_bytes, 14 * (1_048_576 + 8192));
    assert_eq!(forecast.times, None);
}

#[test]
fn loss_costs_its_share_and_buffers_for_repair() {
    let forecast = forecast(|q| q.loss = Probability::from_percent(1));
    near(forecast.goodput_bps, 0.99 * 8.0 * 1_048_576.0 / (737.0 * 1538.0 / 125e6));
    assert_eq!(forecast.buffers.repair_rounds, 2);
    // 100 ms to the data, 9.16 ms to send, twice 125 ms to repair: 39.2 buffers, and one stored.
    assert_eq!(forecast.buffers.count, 41);
    let reno = forecast.tcp[0];
    assert_eq!((reno.tcp, reno.fills_link), (Tcp::Reno, false));
    near(reno.bits_per_second, 150_f64.sqrt() * 1448.0 * 8.0 / 0.1);
}

#[test]
fn without_loss_every_stream_fills_the_link() {
    for stream in forecast(|_| {}).tcp {
        assert!(stream.fills_link);
        near(stream.bits_per_second, 1e9 * 1448.0 / 1538.0);
    }
}

#[test]
fn a_path_that_needs_more_buffers_than_there_are_gets_larger_ones() {
    let fast = |q: &mut Question| q.rate = Rate::from_bits_per_second(400_000_000_000);
    let larger = forecast(fast);
    assert_eq!((larger.buffers.bytes, larger.buffers.too_few), (2 << 20, false));
    let held = forecast(|q| {
        fast(q);
        q.buffer_bytes = Some(1 << 16);
    });
    assert_eq!((held.buffers.bytes, held.buffers.count), (1 << 16, MAX_BUFFERS));
    assert!(held.buffers.too_few);
    // No more than all buffers in the round trip and the time of one.
    assert!(held.goodput_bps < 4096.0 * 65_536.0 * 8.0 / 0.1);
    assert!(held.goodput_bps > 4096.0 * 65_536.0 * 8.0 / 0.101);
}

#[test]
fn the_usual_buffers_hold_back_a_long_path() {
    let forecast = forecast(|q| q.rtt = Duration::from_secs(8));
    assert_eq!(forecast.default_buffers, 512);
    assert!(forecast.default_goodput_bps < 512.0 * 1_048_576.0);
    assert!(forecast.default_goodput_bps < forecast.goodput_bps * 0.6);
    let usual = |wire, bytes| {
        let forecast = self::forecast(|q| (q.wire, q.buffer_bytes) = (wire, Some(bytes)));
        forecast.default_buffers
    };
    assert_eq!(usual(Wire::Sealed, 16 << 20), 48, "of memory for 32");
    assert_eq!([1 << 20, 1 << 16].map(|bytes| usual(Wire::Rfc998, bytes)), [32, 512]);
}

#[test]
fn a_small_transfer_needs_no_more_buffers_than_it_fills() {
    for (size, count) in [(0, 1), (1, 1), (1 << 20, 1), ((1 << 20) + 1, 2), (1 << 40, 14)] {
        assert_eq!(forecast(|q| q.size = Some(size)).buffers.count, count, "{size}");
    }
}

#[test]
fn the_time_is_that_of_its_parts() {
    let forecast = forecast(|q| q.size = Some(1_000_000_000));
    let times = forecast.times.unwrap();
    assert_eq!((times.setup.as_millis(), times.closing.as_millis()), (100, 150));
    assert_eq!(times.repair, Duration::ZERO);
    // 953 full buffers and 708,608 - 28 bytes: 702,859 packets.
    let packets = 953.0 * 737.0 + (1_000_000_000_f64 - 953.0 * 1_048_576.0 + 28.0) / 1424.0;
    near(times.transfer.as_secs_f64(), packets.ceil() * 1538.0 / 125e6);
    assert_eq!(times.total(), times.setup + times.transfer + times.closing);
}

#[test]
fn rfc998_bursts_are_whole_milliseconds_and_never_too_fast() {
    let mbit = |mbit: f64| Rate::from_bits_per_second((mbit * 1e6) as u64);
    for (rate, packet, packets, millis) in [
        (mbit(12.0), 1500, 1, 1),
        (mbit(1.0912), 1500, 1, 11),
        (mbit(10.0), 1500, 5, 6),
        (mbit(1000.0), 1500, 83, 1),
        (mbit(1e6), 1500, 65_535, 1),
        (mbit(0.0096), 1500, 1, 1250),
        (Rate::from_bytes_per_second(1), 1500, 1, 65_535),
    ] {
        let burst = burst_in_millis(rate, packet);
        let interval = burst.interval.as_millis();
        assert_eq!((burst.packets, interval), (packets, millis), "{rate}");
    }
}

#[test]
fn an_impossible_plan_is_refused() {
    let refused = |change: fn(&mut Question)| {
        let mut question = question();
        change(&mut question);
        Forecast::new(&question).unwrap_err()
    };
    assert_eq!(refused(|q| q.rate = Rate::ZERO), NoForecast::NoRate);
    assert_eq!(refused(|q| q.loss = Probability::from_percent(51)), NoForecast::TooLossy);
    assert_eq!(refused(|q| q.mtu = 203), NoForecast::TooSmall(203));
    assert_eq!(refused(|q| q.buffer_bytes = Some(0)), NoForecast::NoBuffer);
}

proptest! {
    /// Whatever is asked, the answer is numbers that a person can use.
    #[test]
    fn any_question_has_an_answer(
        (rate, rtt, processing) in (1_u64.., any::<u64>(), any::<u64>()),
        (loss, mtu, size) in (0_u32..=500_000_000, any::<u32>(), any::<Option<u64>>()),
        (framing, carrier, rfc998) in (0_usize..5, 0_usize..3, any::<bool>()),
        buffer_bytes in proptest::option::of(1_u32..),
    ) {
        let framings = [
            Framing::Ethernet, Framing::Vlan, Framing::DoubleVlan, Framing::Pppoe, Framing::Ip,
        ];
        let question = Question {
            rate: Rate::from_bytes_per_second(rate),
            rtt: Duration::from_nanos(rtt),
            loss: Probability::from_ppb(loss),
            mtu,
            framing: framings[framing],
            carrier: [Carrier::Udp4, Carrier::Udp6, Carrier::RawIp4][carrier],
            wire: if rfc998 { Wire::Rfc998 } else { Wire::Sealed },
            processing: Duration::from_nanos(processing),
            buffer_bytes,
            size,
        };
        if let Ok(forecast) = Forecast::new(&question) {
            prop_assert!(forecast.packet.ip_bytes <= mtu);
            prop_assert!(forecast.goodput_bps > 0.0 && forecast.goodput_bps.is_finite());
            prop_assert!(forecast.goodput_bps <= rate as f64 * 8.0 * 1.000_001);
            prop_assert!((0.0..=1.0).contains(&forecast.utilisation));
            prop_assert!((1..=MAX_BUFFERS).contains(&forecast.buffers.count));
            prop_assert!(forecast.burst.packets >= 1 && forecast.ip_rate > Rate::ZERO);
            prop_assert_eq!(forecast.times.is_some(), size.is_some());
            prop_assert!(forecast.tcp.iter().all(|s| s.bits_per_second.is_finite()));
        }
    }
}
