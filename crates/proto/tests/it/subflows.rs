//! Who may open a subflow, and what a packet that was copied draws (`docs/protocol §4.11`).

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::endpoint::subflows::Subflow;
use netblt_proto::time::Instant;

/// Kinds of packets (`docs/protocol §3.1`).
const CHALLENGE: u8 = 14;
const KIND: usize = 3;

fn address(host: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, host], port).into()
}

fn ms(n: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(n)
}

fn config(role: Role) -> Config {
    Config { secret: Some(Secret([7; 32])), ..Config::new(Wire::Sealed, role) }
}

/// Everything that an end has to send now: where to, and what.
fn sent(end: &mut Endpoint, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(now, &mut batch) {
        let packets = batch.chunks(transmit.segment.max(1));
        all.extend(packets.map(|packet| (transmit.to, packet.to_vec())));
        batch.clear();
        while end.poll_event().is_some() {}
    }
    all
}

fn deliver(end: &mut Endpoint, now: Instant, from: SocketAddr, packet: &[u8]) {
    let mut bytes = packet.to_vec();
    let meta = RecvMeta::default();
    end.handle_datagram(now, Datagram { from, local: None, meta, bytes: &mut bytes });
    while end.poll_event().is_some() {}
}

/// Lets both talk until neither has anything to say; what an end says to elsewhere is lost.
fn talk(now: Instant, ends: [(&mut Endpoint, SocketAddr); 2]) {
    let [(one, at), (other, there)] = ends;
    for _ in 0..50 {
        let (out, back) = (sent(one, now), sent(other, now));
        if out.is_empty() && back.is_empty() {
            return;
        }
        for (_, packet) in out.iter().filter(|(to, _)| *to == there) {
            deliver(other, now, at, packet);
        }
        for (_, packet) in back.iter().filter(|(to, _)| *to == at) {
            deliver(one, now, there, packet);
        }
    }
    panic!("they do not come to an end");
}

/// The main connection's ends, open: the sender calls.
fn opened() -> (Endpoint, Endpoint) {
    let mut active = Endpoint::active(config(Role::Sender), address(2, 4000), ms(0), [1; 32]);
    let mut passive = Endpoint::passive(config(Role::Receiver), ms(0), [2; 32]);
    talk(ms(1), [(&mut active, address(1, 5000)), (&mut passive, address(2, 4000))]);
    assert!(active.peer().is_some() && passive.peer().is_some());
    (active, passive)
}

/// The same, where the passive end takes subflows.
fn admitting() -> (Endpoint, Endpoint) {
    let (active, mut passive) = opened();
    passive.admit_subflows([3; 32]);
    (active, passive)
}

/// A subflow that the active end calls, and its first packet.
fn called(active: &mut Endpoint, seed: u8) -> (Subflow, Vec<u8>) {
    let mut subflow = active.call_subflow(ms(500), [seed; 32]).expect("it is open");
    let (_, first) = sent(&mut subflow.end, ms(500)).remove(0);
    (subflow, first)
}

/// The subflow that has knocked, once its address has answered.
fn proven(now: Instant, subflow: &mut Subflow, at: SocketAddr, passive: &mut Endpoint) -> Subflow {
    assert!(passive.poll_subflow().is_none(), "no address has answered");
    talk(now, [(&mut subflow.end, at), (&mut *passive, address(2, 4000))]);
    passive.poll_subflow().expect("it has answered")
}

#[test]
fn a_subflow_opens_with_one_packet_and_talks_when_its_address_has_answered() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    assert_eq!((subflow.number, subflow.peer.peer), (1, address(2, 4000)));
    deliver(&mut passive, ms(510), address(1, 5001), &first);
    let mut other = proven(ms(515), &mut subflow, address(1, 5001), &mut passive);
    assert_eq!((other.number, other.peer.peer), (1, address(1, 5001)));
    assert!(passive.poll_subflow().is_none());
    talk(ms(520), [(&mut subflow.end, address(1, 5001)), (&mut other.end, address(2, 4000))]);
    assert_eq!(other.end.peer(), Some(address(1, 5001)));
    // The next one has another number, and other ids.
    let (next, _) = called(&mut active, 5);
    assert_eq!(next.number, 2);
    assert_ne!(next.end.connection_id(), subflow.end.connection_id());
}

#[test]
fn a_copied_packet_draws_challenges_alone_and_a_number_opens_once() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    // An attacker's copy from another address arrives first.
    deliver(&mut passive, ms(510), address(66, 6), &first);
    let mut drawn = sent(&mut passive, ms(510));
    drawn.retain(|(to, _)| *to != address(1, 5000));
    let bytes: usize = drawn.iter().map(|(_, packet)| packet.len()).sum();
    let asks = |(to, packet): &(SocketAddr, Vec<u8>)| {
        packet.get(KIND) == Some(&CHALLENGE) && *to == address(66, 6)
    };
    assert!(!drawn.is_empty() && drawn.iter().all(asks), "{drawn:?}");
    assert!(bytes <= 2 * first.len(), "{bytes}");
    for port in [6, 5001] {
        deliver(&mut passive, ms(520), address(66, port), &first);
        assert!(
            passive.poll_subflow().is_none(),
            "the number was used, and no address has answered"
        );
    }
    // The true caller, which sends more, is found all the same.
    let mut now = ms(520);
    let found = (0..40).find_map(|_| {
        now += Duration::from_millis(250);
        subflow.end.handle_timeout(now);
        passive.handle_timeout(now);
        talk(now, [(&mut subflow.end, address(1, 5001)), (&mut passive, address(2, 4000))]);
        passive.poll_subflow()
    });
    assert_eq!(found.expect("it has answered").peer.peer, address(1, 5001));
}

#[test]
fn an_address_that_does_not_answer_is_forgotten_and_its_number_used() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    deliver(&mut passive, ms(510), address(66, 6), &first);
    let mut asked = 0;
    for at in (510..30_000).step_by(10) {
        passive.handle_timeout(ms(at));
        let all = sent(&mut passive, ms(at));
        asked += all.iter().filter(|(to, _)| *to == address(66, 6)).count();
    }
    assert!((1..=10).contains(&asked), "{asked}");
    talk(ms(30_000), [(&mut subflow.end, address(1, 5001)), (&mut passive, address(2, 4000))]);
    deliver(&mut passive, ms(30_000), address(1, 5001), &first);
    assert!(sent(&mut passive, ms(30_000)).iter().all(|(to, _)| *to == address(1, 5000)));
    assert!(passive.poll_subflow().is_none());
}

#[test]
fn all_subflows_may_open_at_once() {
    let (mut active, mut passive) = admitting();
    let mut subflows: Vec<Subflow> = Vec::new();
    for at in 0..31 {
        let (subflow, first) = called(&mut active, at);
        deliver(&mut passive, ms(510), address(1, 5001 + u16::from(at)), &first);
        subflows.push(subflow);
    }
    for (to, asked) in sent(&mut passive, ms(520)) {
        let at = to.port().checked_sub(5001).filter(|_| to.ip() == address(1, 0).ip());
        let Some(subflow) = at.and_then(|at| subflows.get_mut(usize::from(at))) else { continue };
        deliver(&mut subflow.end, ms(520), address(2, 4000), &asked);
        for (_, packet) in sent(&mut subflow.end, ms(520)) {
            deliver(&mut passive, ms(530), to, &packet);
        }
    }
    let opened: Vec<u8> = std::iter::from_fn(|| passive.poll_subflow()).map(|l| l.number).collect();
    assert_eq!(opened, (1..=31).collect::<Vec<u8>>());
}

#[test]
fn a_forged_subflow_opening_uses_no_number() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    for at in 0..first.len() {
        let mut forged = first.clone();
        forged[at] ^= 1;
        deliver(&mut passive, ms(510), address(1, 5001), &forged);
        assert!(passive.poll_subflow().is_none(), "byte {at}");
    }
    deliver(&mut passive, ms(520), address(1, 5001), &first);
    proven(ms(525), &mut subflow, address(1, 5001), &mut passive);
}

#[test]
fn no_subflow_opens_without_admission_or_for_another_connection() {
    let (mut active, mut passive) = opened();
    let (_, first) = called(&mut active, 4);
    deliver(&mut passive, ms(510), address(1, 5001), &first);
    assert!(passive.poll_subflow().is_none(), "it takes none");
    let (mut other, _) = opened();
    passive.admit_subflows([3; 32]);
    // The same entropy made the same keys there; a third connection has others.
    let mut third = Endpoint::active(config(Role::Sender), address(2, 4000), ms(0), [9; 32]);
    let mut its = Endpoint::passive(config(Role::Receiver), ms(0), [8; 32]);
    talk(ms(1), [(&mut third, address(1, 5000)), (&mut its, address(2, 4000))]);
    let (_, foreign) = called(&mut third, 4);
    deliver(&mut passive, ms(520), address(1, 5001), &foreign);
    assert!(passive.poll_subflow().is_none(), "keys of another connection");
    assert!(other.call_subflow(ms(1), [5; 32]).is_some());
}

#[test]
fn a_connection_opens_at_most_63_subflows_in_its_life() {
    let (mut active, _) = opened();
    let mut numbers = Vec::new();
    loop {
        assert_eq!(usize::from(active.subflows_left()), 63 - numbers.len());
        let Some(subflow) = active.call_subflow(ms(500), [1; 32]) else { break };
        numbers.push(subflow.number);
    }
    assert_eq!(numbers, (1..=63).collect::<Vec<u8>>());
    let mut closed = Endpoint::active(config(Role::Sender), address(2, 4000), ms(0), [1; 32]);
    assert!(closed.call_subflow(ms(0), [1; 32]).is_none(), "it is not open");
}

#[test]
fn a_subflow_that_is_forgotten_says_quit_once_and_gives_its_buffers_back() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    deliver(&mut passive, ms(510), address(1, 5001), &first);
    let mut other = proven(ms(515), &mut subflow, address(1, 5001), &mut passive);
    talk(ms(520), [(&mut subflow.end, address(1, 5001)), (&mut other.end, address(2, 4000))]);
    let image = 1 << 20 | 8192;
    other.end.offer(ms(530), netblt_proto::buffer::Buffer::new(image));
    other.end.forget(ms(540), "it is over");
    let events: Vec<Event> = std::iter::from_fn(|| other.end.poll_event()).collect();
    assert!(matches!(events[..], [Event::Returned(_), Event::Closed(_)]), "{events:?}");
    let quit = sent(&mut other.end, ms(540));
    assert_eq!(quit.len(), 1);
    deliver(&mut subflow.end, ms(550), address(2, 4000), &quit[0].1);
    assert!(subflow.end.is_closing() && !active.is_closing());
}

#[test]
fn a_refused_subflow_closes_at_once() {
    let (mut active, mut passive) = admitting();
    let (mut subflow, first) = called(&mut active, 4);
    deliver(&mut passive, ms(510), address(1, 5001), &first);
    let refused = proven(ms(515), &mut subflow, address(1, 5001), &mut passive);
    passive.refuse_subflow(ms(515), refused, "there are enough lanes");
    assert!(!subflow.end.is_closing());
    talk(ms(520), [(&mut subflow.end, address(1, 5001)), (&mut passive, address(2, 4000))]);
    assert!(subflow.end.is_closing() && !active.is_closing() && !passive.is_closing());
}

#[test]
fn an_end_that_wants_another_subflow_asks_once() {
    let (mut active, mut passive) = opened();
    assert!(!active.take_subflows_wanted());
    passive.ask_for_subflows();
    talk(ms(500), [(&mut active, address(1, 5000)), (&mut passive, address(2, 4000))]);
    assert!(active.take_subflows_wanted() && !active.take_subflows_wanted());
}
