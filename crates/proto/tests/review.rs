//! What somebody on the path, or a flood of strangers, must not be able to do to an opening or to a
//! connection that stands.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::machine::{Datagram, Event, Reason};
use netblt_proto::time::Instant;

const TYPE: usize = 3;
const OPEN: u8 = 0;
const RESPONSE: u8 = 1;
const KEEPALIVE: u8 = 2;
const QUIT: u8 = 3;
const CONTROL: u8 = 9;
const REFUSED: u8 = 10;

fn address(n: u8) -> SocketAddr {
    ([192, 0, 2, n], 7).into()
}

fn config(role: Role, secret: u8) -> Config {
    Config {
        secret: Some(Secret([secret; 32])),
        cipher: Cipher::Aes256Gcm,
        ..Config::new(Wire::Sealed, role)
    }
}

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// A sender at address 1 that opens, and a receiver at address 2 that waits.
fn ends() -> (Endpoint, Endpoint) {
    let active = Endpoint::active(config(Role::Sender, 7), address(2), ms(0), [1; 32]);
    (active, Endpoint::passive(config(Role::Receiver, 7), ms(0), [2; 32]))
}

fn sent(end: &mut Endpoint, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(now, &mut batch) {
        all.extend(batch.chunks(transmit.segment).map(|d| (transmit.to, d.to_vec())));
        batch.clear();
    }
    all
}

fn give(end: &mut Endpoint, now: Instant, from: SocketAddr, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    end.handle_datagram(now, Datagram { from, ecn: None, bytes: &mut bytes });
}

fn opened(end: &mut Endpoint) -> Option<SocketAddr> {
    std::iter::from_fn(|| end.poll_event()).find_map(|event| match event {
        Event::Opened { peer, .. } => Some(peer),
        _ => None,
    })
}

/// Both ends open, the last packets delivered.
fn connected() -> (Endpoint, Endpoint) {
    let (mut active, mut passive) = ends();
    for _ in 0..3 {
        for (_, bytes) in sent(&mut active, ms(1)) {
            give(&mut passive, ms(1), address(1), &bytes);
        }
        for (_, bytes) in sent(&mut passive, ms(1)) {
            give(&mut active, ms(1), address(2), &bytes);
        }
    }
    assert!(opened(&mut active).is_some() && opened(&mut passive).is_some());
    (active, passive)
}

#[test]
fn a_response_copied_from_elsewhere_does_not_spoil_the_true_one() {
    let (mut active, mut passive) = ends();
    let open = sent(&mut active, ms(0)).remove(0).1;
    give(&mut passive, ms(1), address(1), &open);
    let response = sent(&mut passive, ms(1)).remove(0).1;
    give(&mut active, ms(2), address(66), &response);
    assert_eq!(opened(&mut active), None);
    give(&mut active, ms(3), address(2), &response);
    assert_eq!(opened(&mut active), Some(address(2)));
}

#[test]
fn a_flood_of_strangers_neither_piles_up_nor_silences_the_connection() {
    let (_active, mut passive) = connected();
    let mut stranger = Endpoint::active(config(Role::Sender, 8), address(2), ms(0), [3; 32]);
    let junk = sent(&mut stranger, ms(0)).remove(0).1;
    passive.offer(ms(50), Buffer::new((1 << 20) + 8192));
    for n in 0..1000 {
        give(&mut passive, ms(50), address(n as u8), &junk);
    }
    let out: Vec<u8> = sent(&mut passive, ms(50)).iter().map(|(_, d)| d[TYPE]).collect();
    assert!(out.len() <= 20, "{out:?}");
    assert!(out.iter().take(2).any(|kind| *kind == CONTROL), "GO waits no longer: {out:?}");
    assert!(out.contains(&REFUSED));
    // A true peer that starts again gets its answer all the same.
    let mut again = Endpoint::active(config(Role::Sender, 7), address(2), ms(0), [4; 32]);
    let open = sent(&mut again, ms(0)).remove(0).1;
    assert_eq!(open[TYPE], OPEN);
    (0..100).for_each(|n| give(&mut passive, ms(60), address(n), &junk));
    give(&mut passive, ms(60), address(1), &open);
    assert!(sent(&mut passive, ms(60)).iter().any(|(_, d)| d[TYPE] == RESPONSE));
}

#[test]
fn a_client_that_gave_up_is_not_opened_again() {
    let (_active, mut passive) = connected();
    passive.quit(ms(10), "enough");
    assert!(sent(&mut passive, ms(10)).iter().any(|(_, d)| d[TYPE] == QUIT));
    let mut again = Endpoint::active(config(Role::Sender, 7), address(2), ms(0), [4; 32]);
    let open = sent(&mut again, ms(10)).remove(0).1;
    give(&mut passive, ms(11), address(1), &open);
    assert!(sent(&mut passive, ms(11)).is_empty());
    let mut now = ms(11);
    for _ in 0..100 {
        now = now.max(passive.next_timeout(now).unwrap_or(now));
        passive.handle_timeout(now);
        sent(&mut passive, now);
    }
    let closed = std::iter::from_fn(|| passive.poll_event())
        .any(|event| matches!(event, Event::Closed(Reason::Quit)));
    assert!(closed);
}

#[test]
fn nothing_piles_up_while_the_way_out_is_blocked() {
    let (mut active, _passive) = connected();
    let mut now = ms(10);
    for _ in 0..5000 {
        now += Duration::from_millis(10);
        active.handle_timeout(now);
    }
    let keepalives = sent(&mut active, now).iter().filter(|(_, d)| d[TYPE] == KEEPALIVE).count();
    assert!((1..50).contains(&keepalives), "{keepalives}");
}

/// A copy of the OPEN from elsewhere, and of the packet that confirms it, capture nothing.
#[test]
fn copies_from_elsewhere_do_not_decide_where_the_peer_is() {
    let (mut active, mut passive) = ends();
    let open = sent(&mut active, ms(0)).remove(0).1;
    give(&mut passive, ms(1), address(1), &open);
    let response = sent(&mut passive, ms(1)).remove(0).1;
    give(&mut passive, ms(1), address(66), &open);
    sent(&mut passive, ms(1));
    give(&mut active, ms(2), address(2), &response);
    let confirm = sent(&mut active, ms(2)).remove(0).1;
    give(&mut passive, ms(3), address(66), &confirm);
    assert_eq!(opened(&mut passive), None, "confirmed from a false address");
    give(&mut passive, ms(3), address(1), &confirm);
    assert_eq!(opened(&mut passive), Some(address(1)));
}
