//! What the relay costs: `cargo bench -p netblt-relay --bench relay [-- SECONDS] [NAME]`.
//!
//! Datagrams of 1,472 bytes (1,500 of IP) go through a relay at a given rate, one way or both, and
//! are counted as they arrive. Beside the rate stands what decides whether a figure means anything:
//! the processor time of the relay's thread, the datagrams that the relay never saw (lost in the
//! sockets around it, for want of processor), and how late it was.

#![cfg_attr(unix, expect(clippy::unwrap_used, reason = "what cannot go on stops"))]

#[cfg(unix)]
fn main() {
    relay::main();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod relay {
    use std::io::IoSliceMut;
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use netblt_path::{LinkOptions, QueueLimit};
    use netblt_proto::units::Rate;
    use netblt_relay::{Relay, RelayReport};
    use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

    const DATAGRAM: usize = 1472;
    const IP_BYTES: u64 = 1500;

    struct Case {
        name: &'static str,
        mbit: u64,
        both_ways: bool,
        /// Datagrams in one send; 1 is as other programs send.
        burst: usize,
        link: fn() -> LinkOptions,
    }

    fn link(mbit: u64, delay_ms: u64) -> LinkOptions {
        let rate = (mbit > 0).then(|| Rate::from_bits_per_second(mbit * 1_000_000));
        let delay = Duration::from_millis(delay_ms);
        let queue = QueueLimit::bdp(rate, delay * 2);
        LinkOptions { rate, delay, queue, ..LinkOptions::default() }
    }

    const CASES: &[Case] = &[
        case("100 Mbit, 50 ms", 98, false, 1, || link(100, 50)),
        case("100 Mbit, 50 ms, both ways", 98, true, 1, || link(100, 50)),
        case("1 Gbit, 50 ms, single sends", 980, false, 1, || link(1000, 50)),
        case("1 Gbit, 50 ms, bursts of 16", 980, false, 16, || link(1000, 50)),
        case("1 Gbit, 50 ms, both ways", 980, true, 16, || link(1000, 50)),
        case("3 Gbit, 50 ms", 2900, false, 44, || link(3000, 50)),
        case("no limit, no delay", 8000, false, 44, || link(0, 0)),
    ];

    const fn case(
        name: &'static str,
        mbit: u64,
        both_ways: bool,
        burst: usize,
        link: fn() -> LinkOptions,
    ) -> Case {
        Case { name, mbit, both_ways, burst, link }
    }

    pub(super) fn main() {
        let seconds = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(3);
        println!(
            "{:30} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "path", "sent", "seen", "arrived", "CPU", "CPU/Gbit", "unseen", "late >1ms", "latest"
        );
        let named = |arg: &str| CASES.iter().any(|case| case.name.contains(arg));
        let only = std::env::args().skip(1).find(|arg| named(arg) && arg.parse::<u64>().is_err());
        for case in CASES.iter().filter(|case| case.name.contains(only.as_deref().unwrap_or(""))) {
            run(case, Duration::from_secs(seconds));
        }
    }

    fn run(case: &Case, time: Duration) {
        let target = endpoint();
        let client = endpoint();
        let local = target.0.local_addr().unwrap();
        let any = SocketAddr::new(local.ip(), 0);
        let relay = Relay::bind(any, local, (case.link)(), (case.link)(), 1).unwrap();
        let address = relay.local_addr();
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut report = RelayReport::default();
        let mut cpu = Duration::ZERO;
        std::thread::scope(|scope| {
            let relay = scope.spawn(|| (relay.run(&over).unwrap(), thread_time()));
            // The target learns the address that it answers to from the first datagram.
            client.0.send_to(b"hello", address).unwrap();
            let mut hello = [0; 5];
            let (_, back) = target.0.recv_from(&mut hello).unwrap();
            for endpoint in [&target, &client] {
                endpoint.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            }
            scope.spawn(|| count(&target, &stop, &received));
            scope.spawn(|| count(&client, &stop, &received));
            let there = scope.spawn(|| send(&client, address, case, time, &sent));
            if case.both_ways {
                send(&target, back, case, time, &sent);
            }
            there.join().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            over.store(true, Ordering::Relaxed);
            (report, cpu) = relay.join().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        let mbit = |datagrams: u64| (datagrams * IP_BYTES * 8) as f64 / 1e6 / time.as_secs_f64();
        let sent = sent.into_inner();
        let seen = (report.up.entered + report.down.entered).packets - 1;
        let arrived = received.into_inner();
        let percent = cpu.as_secs_f64() / time.as_secs_f64() * 100.0;
        println!(
            "{:30} {:8.0} {:8.0} {:8.0} {:6.1}% {:8.1}% {:9} {:9} {:>9}",
            case.name,
            mbit(sent),
            mbit(seen),
            mbit(arrived),
            percent,
            percent / mbit(arrived) * 1000.0,
            sent.saturating_sub(seen),
            report.late,
            format!("{:.1?}", report.late_max),
        );
    }

    fn endpoint() -> (UdpSocket, UdpSocketState) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let state = UdpSocketState::new((&socket).into()).unwrap();
        let _ = state.set_recv_buffer_size((&socket).into(), 4 << 20);
        let _ = state.set_send_buffer_size((&socket).into(), 4 << 20);
        socket.set_nonblocking(false).unwrap();
        (socket, state)
    }

    /// Sends at the rate of the case, by the clock.
    fn send(
        from: &(UdpSocket, UdpSocketState),
        to: SocketAddr,
        case: &Case,
        time: Duration,
        sent: &AtomicU64,
    ) {
        let contents = vec![7; DATAGRAM * case.burst];
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: &contents,
            segment_size: (case.burst > 1).then_some(DATAGRAM),
            src_ip: None,
        };
        let rate = Rate::from_bits_per_second(case.mbit * 1_000_000);
        let gap = rate.time_for(IP_BYTES * case.burst as u64);
        let (start, mut next) = (Instant::now(), Duration::ZERO);
        while next < time {
            let now = start.elapsed();
            if now < next {
                std::thread::sleep(next - now);
                continue;
            }
            if from.1.try_send((&from.0).into(), &transmit).is_ok() {
                sent.fetch_add(case.burst as u64, Ordering::Relaxed);
            }
            next += gap;
        }
    }

    fn count(on: &(UdpSocket, UdpSocketState), stop: &AtomicBool, received: &AtomicU64) {
        let mut bytes = vec![0; BATCH_SIZE * 65_536];
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        while !stop.load(Ordering::Relaxed) {
            let mut chunks = bytes.chunks_mut(65_536);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap()));
            let Ok(filled) = on.1.recv((&on.0).into(), &mut slices, &mut meta) else { continue };
            let datagrams = meta[..filled].iter().map(|meta| meta.len.div_ceil(meta.stride));
            received.fetch_add(datagrams.sum::<usize>() as u64, Ordering::Relaxed);
        }
    }

    /// Processor time of this thread, where the system tells.
    fn thread_time() -> Duration {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}
