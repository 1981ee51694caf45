//! The relay over real sockets. Nothing here depends on how long things take, only on what arrives.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what cannot go on stops")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Displacement, LinkOptions, MarkAbove, Path};
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;
use netblt_relay::{Relay, RelayCounters, RelayReport};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

/// Long enough that only a failure takes it.
const PATIENCE: Duration = Duration::from_secs(10);

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Runs a relay to `target` while `test` talks through it.
fn with_relay(
    target: SocketAddr,
    up: LinkOptions,
    down: LinkOptions,
    seed: u64,
    test: impl FnOnce(SocketAddr, RelayCounters),
) -> RelayReport {
    let any = SocketAddr::new(target.ip(), 0);
    let relay = Relay::bind(any, target, up, down, seed).unwrap();
    let (address, counters) = (relay.local_addr(), relay.counters());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay.run(&stop));
        // The relay must stop also when the test fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(address, counters);
        }));
        stop.store(true, Ordering::Relaxed);
        let report = relay.join().unwrap().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(report.up.balance() && report.down.balance());
        report
    })
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 65_536];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    bytes.truncate(len);
    (bytes, from)
}

/// Sends numbered datagrams one by one, waiting now and then so that no socket overflows; calls
/// `read` for what may have arrived in between.
fn send_numbered(client: &UdpSocket, to: SocketAddr, count: u32, mut read: impl FnMut()) {
    for n in 0..count {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(4 + n as usize % 1400, n as u8);
        client.send_to(&bytes, to).unwrap();
        if n % 40 == 39 {
            read();
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// Reads until `counters` says that nothing is under way any more.
fn drain(target: &UdpSocket, counters: &RelayCounters, entered: u64) -> Vec<u32> {
    let mut arrived = Vec::new();
    target.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let start = std::time::Instant::now();
    loop {
        let up = counters.read().up;
        let done = up.entered.packets == entered && up.inside.packets == 0;
        let mut bytes = [0; 2048];
        match target.recv_from(&mut bytes) {
            Ok((len, _)) => arrived.push(number(&bytes[..len])),
            Err(_) if done => return arrived,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < 3 * PATIENCE, "{up:?}");
    }
}

#[test]
fn datagrams_cross_and_answers_come_back() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(target) = UdpSocket::bind(any) else { continue };
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        let (a, b) = (socket(any), socket(any));
        let link = LinkOptions { delay: Duration::from_millis(2), ..LinkOptions::default() };
        let target_address = target.local_addr().unwrap();
        let report = with_relay(target_address, link.clone(), link, 1, |relay, _| {
            let mut seen = BTreeSet::new();
            for (client, text) in [(&a, &b"first"[..]), (&b, b"second"), (&a, b""), (&b, b"x")] {
                client.send_to(text, relay).unwrap();
                let (bytes, from) = receive(&target);
                assert_eq!(bytes, text);
                seen.insert(from);
                target.send_to(&[&bytes[..], b"!"].concat(), from).unwrap();
                let (answer, from) = receive(client);
                assert_eq!((&answer[..], from), (&[text, b"!"].concat()[..], relay));
            }
            assert_eq!(seen.len(), 2, "each client has a port of its own");
        });
        let headers = if target_address.is_ipv4() { 28 } else { 48 };
        assert_eq!((report.clients, report.up.delivered.packets), (2, 4));
        assert_eq!(report.up.delivered.bytes, 12 + 4 * headers);
        assert_eq!(report.down.delivered.bytes, 16 + 4 * headers);
        assert_eq!((report.refused, report.unsent), (0, 0));
    }
}

#[test]
fn losses_depend_on_the_seed_alone() {
    let link = LinkOptions { loss: Probability::from_percent(20), ..LinkOptions::default() };
    let count = 2000_u32;
    let mut model = Path::new(link.clone(), 77, "path/up");
    let mut expected = Vec::new();
    for n in 0..count {
        model.push(Instant::EPOCH, 28, None, n.to_be_bytes().to_vec());
        expected.extend(model.pop(Instant::EPOCH).map(|delivery| number(&delivery.payload)));
    }
    let slow = LinkOptions { delay: Duration::from_millis(7), ..link.clone() };
    for link in [link, slow] {
        let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        let mut arrived = Vec::new();
        let to = target.local_addr().unwrap();
        let report = with_relay(to, link, LinkOptions::default(), 77, |relay, counters| {
            let mut sent = 0;
            send_numbered(&client, relay, count, || {
                sent += 40;
                arrived.extend(drain(&target, &counters, sent));
            });
        });
        assert_eq!(arrived, expected);
        assert_eq!(report.up.lost_random.packets, u64::from(count) - expected.len() as u64);
    }
}

#[test]
fn counts_of_reordered_and_copied_datagrams_agree_with_the_statistics() {
    let link = LinkOptions {
        reorder: Probability::from_percent(10),
        reorder_by: Displacement::Packets(2),
        duplicate: Probability::from_percent(10),
        ..LinkOptions::default()
    };
    let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let to = target.local_addr().unwrap();
    let mut arrived = Vec::new();
    let report = with_relay(to, link, LinkOptions::default(), 5, |relay, counters| {
        let mut sent = 0;
        send_numbered(&client, relay, 320, || {
            sent += 40;
            arrived.extend(drain(&target, &counters, sent));
        });
    });
    assert_eq!(arrived.len() as u64, 320 + report.up.duplicated.packets);
    assert_eq!(arrived.iter().collect::<BTreeSet<_>>().len(), 320);
    assert!(report.up.reordered.packets > 10 && !arrived.is_sorted());
}

#[test]
fn each_datagram_of_a_batch_fares_by_itself() {
    let link = LinkOptions { loss: Probability::from_percent(50), ..LinkOptions::default() };
    let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let state = UdpSocketState::new((&client).into()).unwrap();
    let to = target.local_addr().unwrap();
    let mut arrived = Vec::new();
    let report = with_relay(to, link, LinkOptions::default(), 5, |relay, counters| {
        let mut sent = 0;
        for _ in 0..20 {
            let segments = state.max_gso_segments().min(40) as u32;
            let numbered = (sent..sent + segments).flat_map(|n| {
                let mut bytes = n.to_be_bytes().to_vec();
                bytes.resize(1000, 0);
                bytes
            });
            let contents: Vec<u8> = numbered.collect();
            let transmit = Transmit {
                destination: relay,
                ecn: None,
                contents: &contents,
                segment_size: Some(1000),
                src_ip: None,
            };
            state.try_send((&client).into(), &transmit).unwrap();
            sent += segments;
            arrived.extend(drain(&target, &counters, sent.into()));
        }
    });
    assert_eq!(report.up.entered.packets, report.up.delivered.packets + report.up.lost().packets);
    assert_eq!(arrived.len() as u64, report.up.delivered.packets);
    assert!(arrived.is_sorted() && report.up.lost_random.packets > report.up.entered.packets / 3);
}

#[test]
fn ecn_marks_pass_and_a_queue_sets_them() {
    let link = LinkOptions {
        rate: Some(Rate::from_bits_per_second(1_000_000)),
        ecn_mark: Some(MarkAbove::Bytes(0)),
        ..LinkOptions::default()
    };
    let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let (sender, receiver) = (
        UdpSocketState::new((&client).into()).unwrap(),
        UdpSocketState::new((&target).into()).unwrap(),
    );
    target.set_nonblocking(false).unwrap();
    let to = target.local_addr().unwrap();
    let receive = || {
        let mut bytes = [0; 2000];
        let mut meta = [RecvMeta::default()];
        receiver.recv((&target).into(), &mut [IoSliceMut::new(&mut bytes)], &mut meta).unwrap();
        meta[0].ecn
    };
    let report = with_relay(to, link, LinkOptions::default(), 5, |relay, _| {
        let send = |ecn, bytes| {
            let transmit = Transmit {
                destination: relay,
                ecn,
                contents: &vec![0; bytes],
                segment_size: None,
                src_ip: None,
            };
            sender.try_send((&client).into(), &transmit).unwrap();
        };
        use EcnCodepoint::{Ce, Ect0, Ect1};
        for ecn in [None, Some(Ect0), Some(Ect1), Some(Ce)] {
            send(ecn, 10);
            assert_eq!(receive(), ecn);
        }
        // 1,200 bytes take 10 ms. The second waits behind the first, the others behind it.
        for ecn in [None, None, Some(Ect1), Some(Ect0), None] {
            send(ecn, 1200);
        }
        let marks: Vec<_> = (0..5).map(|_| receive()).collect();
        assert_eq!(marks, [None, None, Some(Ce), Some(Ce), None]);
    });
    assert_eq!(report.up.marked.packets, 2);
}

/// What tells of a batch and what tells of a mark must both find room beside each other.
#[cfg(target_os = "linux")]
#[test]
fn the_marks_of_batches_pass_too() {
    use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};

    let (target, client) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let [near, far] = [&client, &target].map(|s| UdpSocketState::new(s.into()).unwrap());
    setsockopt(&target, ReceiveTimestampns, &false).unwrap();
    target.set_nonblocking(false).unwrap();
    let options = LinkOptions::default();
    with_relay(target.local_addr().unwrap(), options.clone(), options, 1, |address, _| {
        for ecn in [Some(EcnCodepoint::Ect0), None, Some(EcnCodepoint::Ce)] {
            let transmit = Transmit {
                destination: address,
                ecn,
                contents: &[7; 4 * 500],
                segment_size: Some(500),
                src_ip: None,
            };
            near.try_send((&client).into(), &transmit).unwrap();
            let mut arrived = 0;
            while arrived < transmit.contents.len() {
                let (mut bytes, mut meta) = ([0; 65_536], [RecvMeta::default()]);
                let mut slots = [IoSliceMut::new(&mut bytes)];
                far.recv((&target).into(), &mut slots, &mut meta).unwrap();
                assert_eq!(meta[0].ecn, ecn);
                arrived += meta[0].len;
            }
        }
    });
}

#[test]
fn a_target_that_is_not_there_yet_ends_nothing() {
    let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let to = target.local_addr().unwrap();
    drop(target);
    let perfect = LinkOptions::default;
    with_relay(to, perfect(), perfect(), 5, |relay, counters| {
        for n in 1..=20 {
            client.send_to(b"anybody?", relay).unwrap();
            while counters.read().up.delivered.packets < n {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let target = UdpSocket::bind(to).unwrap();
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(b"now?", relay).unwrap();
        let (bytes, from) = receive(&target);
        assert_eq!(bytes, b"now?");
        target.send_to(b"yes", from).unwrap();
        assert_eq!(receive(&client).0, b"yes");
    });
}

#[test]
fn only_the_target_may_answer_through_the_relay() {
    let (client, target) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let stranger = socket("127.0.0.1:0");
    let to = target.local_addr().unwrap();
    let perfect = LinkOptions::default;
    let report = with_relay(to, perfect(), perfect(), 5, |relay, _| {
        client.send_to(b"hello", relay).unwrap();
        let (_, from) = receive(&target);
        stranger.send_to(b"forged", from).unwrap();
        target.send_to(b"true", from).unwrap();
        assert_eq!(receive(&client).0, b"true");
    });
    assert_eq!(report.down.entered.packets, 1);
}
