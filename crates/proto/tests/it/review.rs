//! What an attacker on the path, or a flood of forged packets, must not be able to do to an opening
//! or to an open connection.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

const TYPE: usize = 3;
const OPEN: u8 = 0;
const RESPONSE: u8 = 1;
const KEEPALIVE: u8 = 2;
const QUIT: u8 = 3;
const ABORT: u8 = 5;
const CONTROL: u8 = 9;
const REFUSED: u8 = 10;
const CHALLENGE: u8 = 14;
const ANSWER: u8 = 15;

fn address(n: u8) -> SocketAddr {
    ([192, 0, 2, n], 7).into()
}

fn config(role: Role, secret: u8) -> Config {
    Config {
        secret: Some(Secret([secret; 32])),
        cipher: Cipher::Aes256Gcm,
        // Longer than any silence here: what ends is not ended by that.
        death_timer: Duration::from_secs(300),
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
    end.handle_datagram(
        now,
        Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes },
    );
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
    for n in 60..70 {
        give(&mut active, ms(2), address(n), &response);
    }
    assert_eq!(opened(&mut active), None);
    give(&mut active, ms(3), address(2), &response);
    let (to, confirm) = sent(&mut active, ms(3)).remove(0);
    assert_eq!(to, address(2));
    give(&mut passive, ms(4), address(1), &confirm);
    let answer = sent(&mut passive, ms(4)).remove(0).1;
    give(&mut active, ms(5), address(2), &answer);
    assert_eq!(opened(&mut active), Some(address(2)));
}

#[test]
fn a_flood_of_forged_opens_fills_no_queue_and_does_not_stop_the_connection() {
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
    assert!(sent(&mut passive, ms(60)).iter().any(|(_, d)| d[TYPE] == REFUSED), "it lives");
    (0..100).for_each(|n| give(&mut passive, ms(4000), address(n), &junk));
    give(&mut passive, ms(4000), address(1), &open);
    assert!(sent(&mut passive, ms(4000)).iter().any(|(_, d)| d[TYPE] == RESPONSE));
}

/// The client does not know of the close yet when it offers a buffer. The buffer is not lost.
#[test]
fn a_buffer_offered_after_the_close_returns_before_the_close_is_reported() {
    let (_, mut passive) = ends();
    passive.quit(ms(1), "enough");
    passive.offer(ms(1), Buffer::new(4096));
    assert!(matches!(passive.poll_event(), Some(Event::Returned(_))));
    assert!(matches!(passive.poll_event(), Some(Event::Closed(_))));
    assert!(passive.poll_event().is_none(), "no event follows the end");
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
        .any(|event| matches!(event, Event::Closed(CloseReason::Quit)));
    assert!(closed);
}

#[test]
fn a_blocked_socket_does_not_let_answers_pile_up() {
    let (mut active, _passive) = connected();
    let mut now = ms(10);
    for _ in 0..5000 {
        now += Duration::from_millis(10);
        active.handle_timeout(now);
    }
    let keepalives = sent(&mut active, now).iter().filter(|(_, d)| d[TYPE] == KEEPALIVE).count();
    assert!((1..50).contains(&keepalives), "{keepalives}");
}

/// Copies of the OPEN and of the packet that confirms it, sent ahead of the true ones from forty
/// addresses, cost one computation and draw no data anywhere but to the peer.
#[test]
fn copies_from_elsewhere_do_not_decide_where_the_peer_is() {
    let (mut active, mut passive) = ends();
    passive.offer(ms(0), Buffer::new((1 << 20) + 8192));
    let open = sent(&mut active, ms(0)).remove(0).1;
    let mut responses = Vec::new();
    for n in 0..65 {
        give(&mut passive, ms(1), address(60 + n % 40), &open);
        responses.extend(sent(&mut passive, ms(1)));
    }
    give(&mut passive, ms(2), address(1), &open);
    responses.extend(sent(&mut passive, ms(2)));
    assert!(responses.iter().all(|(_, bytes)| *bytes == responses[0].1), "one handshake");
    give(&mut active, ms(3), address(2), &responses[0].1);
    let confirm = sent(&mut active, ms(3)).remove(0).1;
    give(&mut passive, ms(4), address(66), &confirm);
    assert_eq!(opened(&mut passive), Some(address(66)), "for now it seems so");
    let mut asked = sent(&mut passive, ms(4));
    give(&mut passive, ms(5), address(1), &confirm);
    asked.extend(sent(&mut passive, ms(5)));
    assert!(asked.iter().all(|(_, bytes)| bytes[TYPE] == CHALLENGE), "nothing else yet");
    let bytes: usize =
        asked.iter().filter(|(to, _)| *to == address(66)).map(|(_, b)| b.len()).sum();
    assert!(bytes <= 3 * confirm.len(), "{bytes}");
    // The copies say nothing to those; the peer does.
    for (_, challenge) in asked.iter().filter(|(to, _)| *to == address(1)) {
        give(&mut active, ms(6), address(2), challenge);
    }
    assert_eq!(opened(&mut active), Some(address(2)));
    for (_, answer) in sent(&mut active, ms(6)) {
        give(&mut passive, ms(7), address(1), &answer);
    }
    let all = sent(&mut passive, ms(7));
    assert!(all.iter().any(|(_, bytes)| bytes[TYPE] == CONTROL), "GO leaves");
    assert!(all.iter().all(|(to, _)| *to == address(1)), "{all:?}");
}

/// A router gives the peer another port.
#[test]
fn a_peer_that_moves_is_followed_and_a_copying_attacker_is_not() {
    let (mut active, mut passive) = connected();
    let ask = |active: &mut Endpoint, now| {
        active.handle_timeout(now);
        let sent = sent(active, now).into_iter().find(|(_, bytes)| bytes[TYPE] == KEEPALIVE);
        sent.expect("it asks").1
    };
    let question = ask(&mut active, ms(1600));
    give(&mut passive, ms(1610), address(66), &question);
    let answers = sent(&mut passive, ms(1610));
    let to =
        |n: u8, kind| answers.iter().filter(|(to, b)| *to == address(n) && b[TYPE] == kind).count();
    assert_eq!((to(66, CHALLENGE), to(66, KEEPALIVE)), (1, 0), "{answers:?}");
    assert_eq!((to(1, CHALLENGE), to(1, KEEPALIVE)), (1, 1), "{answers:?}");
    assert_eq!(passive.peer(), Some(address(1)));
    // It did move: what goes to where it was is lost.
    let (_, challenge) = answers.iter().find(|(to, _)| *to == address(66)).unwrap();
    give(&mut active, ms(1620), address(2), challenge);
    let (_, answer) = sent(&mut active, ms(1620)).remove(0);
    assert_eq!(answer[TYPE], ANSWER);
    give(&mut passive, ms(1630), address(66), &answer);
    assert_eq!(passive.peer(), Some(address(66)));
    passive.handle_timeout(ms(3200));
    assert!(sent(&mut passive, ms(3200)).iter().all(|(to, _)| *to == address(66)));
}

#[test]
fn a_second_holder_of_the_ticket_waits_until_the_first_is_silent() {
    let (mut first, mut passive) = connected();
    let mut second = Endpoint::active(config(Role::Sender, 7), address(2), ms(0), [4; 32]);
    let open = sent(&mut second, ms(0)).remove(0).1;
    for now in [ms(10), ms(1000), ms(2900)] {
        give(&mut passive, now, address(3), &open);
        let mut refused = sent(&mut passive, now);
        refused.retain(|(to, _)| *to == address(3));
        assert_eq!((refused.len(), refused[0].1[TYPE]), (1, REFUSED));
        give(&mut second, now, address(2), &refused[0].1);
        second.handle_timeout(now);
        assert!(second.poll_event().is_none(), "not yet");
    }
    // Silence: then it is its turn, and the first one gets ABORT.
    give(&mut passive, ms(4000), address(3), &open);
    let response = sent(&mut passive, ms(4000)).into_iter().find(|(_, b)| b[TYPE] == RESPONSE);
    give(&mut second, ms(4000), address(2), &response.unwrap().1);
    let confirm = sent(&mut second, ms(4000)).remove(0).1;
    give(&mut passive, ms(4001), address(3), &confirm);
    assert_eq!(opened(&mut passive), Some(address(3)));
    let abort = sent(&mut passive, ms(4001)).into_iter().find(|(_, b)| b[TYPE] == ABORT).unwrap();
    assert_eq!(abort.0, address(1));
    give(&mut first, ms(4002), address(2), &abort.1);
    let end = std::iter::from_fn(|| first.poll_event()).find_map(|event| match event {
        Event::Closed(reason) => Some(reason),
        _ => None,
    });
    assert!(
        matches!(&end, Some(CloseReason::PeerAborted(why)) if why.contains("ticket")),
        "{end:?}"
    );
}

#[test]
fn a_second_holder_does_not_wait_for_ever() {
    let (mut first, mut passive) = connected();
    let mut second = Endpoint::active(config(Role::Sender, 7), address(2), ms(0), [4; 32]);
    let mut now = ms(0);
    let end = loop {
        assert!(now < ms(10_000));
        now += Duration::from_millis(100);
        second.handle_timeout(now);
        first.handle_timeout(now);
        for (_, bytes) in sent(&mut first, now) {
            give(&mut passive, now, address(1), &bytes);
        }
        for (_, bytes) in sent(&mut second, now) {
            give(&mut passive, now, address(3), &bytes);
        }
        passive.handle_timeout(now);
        for (to, bytes) in sent(&mut passive, now) {
            give(if to == address(1) { &mut first } else { &mut second }, now, address(2), &bytes);
        }
        if let Some(Event::Closed(reason)) = second.poll_event() {
            break reason;
        }
    };
    assert!(
        matches!(&end, CloseReason::Refused(why) if why.contains("another program")),
        "{end:?}"
    );
    assert!(opened(&mut passive).is_none(), "the first was not disturbed");
}

/// The listener was started again on its port, with another ticket.
#[test]
fn a_restarted_peer_is_detected_within_three_seconds() {
    let (mut active, _gone) = connected();
    let mut new = Endpoint::passive(config(Role::Receiver, 9), ms(0), [5; 32]);
    let mut now = ms(1);
    let end = loop {
        now += Duration::from_millis(50);
        active.handle_timeout(now);
        for (_, bytes) in sent(&mut active, now) {
            give(&mut new, now, address(1), &bytes);
            for (_, unknown) in sent(&mut new, now) {
                assert!(unknown.len() < bytes.len());
                give(&mut active, now, address(2), &unknown);
            }
        }
        if let Some(Event::Closed(reason)) = active.poll_event() {
            break reason;
        }
    };
    assert_eq!(end, CloseReason::Forgotten);
    assert!(now <= ms(3000), "{now:?}");
}

/// One forged ICMP message, and an outage as long as it takes.
#[test]
fn refusals_that_show_no_packet_of_ours_end_nothing() {
    let (mut active, _passive) = connected();
    let mut now = ms(1);
    for _ in 0..600 {
        now += Duration::from_millis(100);
        active.handle_timeout(now);
        sent(&mut active, now);
        active.handle_unreachable(now, &[0; 64]);
        active.handle_unreachable(now, &[]);
    }
    assert!(!std::iter::from_fn(|| active.poll_event()).any(|e| matches!(e, Event::Closed(_))));
    // Those of its own questions do, but not one, and not at once.
    let start = now;
    let end = loop {
        now += Duration::from_millis(100);
        active.handle_timeout(now);
        for (_, question) in sent(&mut active, now) {
            active.handle_unreachable(now, &question[..28]);
        }
        if let Some(Event::Closed(reason)) = active.poll_event() {
            break reason;
        }
    };
    assert_eq!(end, CloseReason::Unreachable);
    assert!(now.since(start) >= Duration::from_secs(10), "{now:?}");
}

/// A listener that was restarted, or that forgot the opening in a flood, answers again. A replay of
/// its old answer arrives first and must not close the opening.
#[test]
fn an_old_response_does_not_spoil_the_new_one() {
    let (mut active, mut old) = ends();
    let open = sent(&mut active, ms(0)).remove(0).1;
    let mut new = Endpoint::passive(config(Role::Receiver, 7), ms(0), [5; 32]);
    give(&mut old, ms(1), address(1), &open);
    give(&mut new, ms(1), address(1), &open);
    let stale = sent(&mut old, ms(1)).remove(0).1;
    let fresh = sent(&mut new, ms(1)).remove(0).1;
    for response in [&stale, &fresh, &stale] {
        give(&mut active, ms(2), address(2), response);
    }
    assert_eq!(opened(&mut active), None, "no end is authenticated");
    for (_, confirm) in sent(&mut active, ms(2)) {
        give(&mut new, ms(3), address(1), &confirm);
    }
    for (_, answer) in sent(&mut new, ms(3)) {
        give(&mut active, ms(4), address(2), &answer);
    }
    assert_eq!(opened(&mut active), Some(address(2)));
}

/// All packets of two ends in their first two seconds.
fn first_packets(wire: Wire) -> Vec<Vec<u8>> {
    let of = |role| Config { wire, ..config(role, 7) };
    let mut ends = [
        Endpoint::active(of(Role::Receiver), address(2), ms(0), [1; 32]),
        Endpoint::passive(of(Role::Sender), ms(0), [2; 32]),
    ];
    ends[0].offer(ms(0), Buffer::new(1 << 20));
    let mut all = Vec::new();
    for at in (0..2000).step_by(50).map(ms) {
        all.extend(exchange(&mut ends, at));
    }
    all
}

/// Each of two ends at addresses 1 and 2 sends what is due, and the other receives it.
fn exchange(ends: &mut [Endpoint; 2], now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for from in 0..2 {
        if ends[from].next_timeout(now).is_some_and(|at| at <= now) {
            ends[from].handle_timeout(now);
        }
        for (_, packet) in sent(&mut ends[from], now) {
            give(&mut ends[1 - from], now, address(from as u8 + 1), &packet);
            all.push(packet);
        }
    }
    all
}

/// An attacker replays a packet of an earlier connection to one of two listeners, from the address
/// of the other: the two do not go on answering each other.
#[test]
fn two_listeners_do_not_answer_each_other_for_ever() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        let first_packets = first_packets(wire);
        let mut answers = 0;
        for roles in [(Role::Receiver, Role::Receiver), (Role::Sender, Role::Receiver)] {
            for first in &first_packets {
                let end =
                    |role, n| Endpoint::passive(Config { wire, ..config(role, 7) }, ms(0), [n; 32]);
                let mut ends = [end(roles.0, 3), end(roles.1, 4)];
                give(&mut ends[0], ms(0), address(2), first);
                let drawn: usize =
                    (0..60_000).step_by(100).map(|at| exchange(&mut ends, ms(at)).len()).sum();
                assert!(drawn <= 12, "{wire:?} {roles:?}: {drawn} for {:02x?}", &first[..4]);
                answers += drawn;
            }
        }
        assert!(
            first_packets.len() > 4 && answers > 0,
            "{wire:?}: something was said, and answered"
        );
    }
}
