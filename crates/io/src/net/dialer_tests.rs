//! Tests of the dialer, with ends that exchange packets without sockets.

use std::time::Duration;

use netblt_proto::api::RecvMeta;
use netblt_proto::config::{Role, Secret, Wire};

use super::*;

const NEAR: &str = "192.0.2.1:4000";
const FAR: &str = "192.0.2.2:4000";
const OURS: &str = "198.51.100.1:9";

fn config(role: Role) -> Config {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([3; 32]));
    config
}

fn candidates(addresses: &[&str]) -> Vec<Candidate> {
    let candidate = |(i, address): (usize, &&str)| Candidate {
        address: address.parse().unwrap(),
        config: config(Role::Sender),
        entropy: [i as u8 + 1; 32],
    };
    addresses.iter().enumerate().map(candidate).collect()
}

/// Lets `dialer` run against a listening end behind `open` addresses, until its first event.
/// Returns the event, and when it first wrote to which address.
fn play(dialer: &mut Dialer, open: &[&str]) -> (Event, Vec<(SocketAddr, Instant)>) {
    let mut listener = Dialer::listen(config(Role::Receiver), Instant::EPOCH, [99; 32]);
    let (mut now, mut batch, mut written) = (Instant::EPOCH, Vec::new(), Vec::new());
    let ours = OURS.parse().unwrap();
    for _ in 0..10_000 {
        if dialer.next_timeout(now).is_some_and(|due| due <= now) {
            dialer.handle_timeout(now);
        }
        batch.clear();
        while let Some(((), transmit)) = dialer.poll_transmit(now, &mut batch) {
            if !written.iter().any(|(to, _)| *to == transmit.to) {
                written.push((transmit.to, now));
            }
            let bytes = batch.as_mut_slice();
            if open.iter().any(|open| open.parse() == Ok(transmit.to)) {
                listener.handle_datagram(
                    now,
                    Datagram { from: ours, local: None, meta: RecvMeta::default(), bytes },
                );
            }
            let mut answer = Vec::new();
            while listener.poll_transmit(now, &mut answer).is_some() {
                let bytes = answer.as_mut_slice();
                dialer.handle_datagram(
                    now,
                    Datagram { from: transmit.to, local: None, meta: RecvMeta::default(), bytes },
                );
                answer.clear();
            }
            batch.clear();
        }
        if let Some(((), event)) = dialer.poll_event() {
            return (event, written);
        }
        now = dialer.next_timeout(now).expect("it waits for something").max(now);
    }
    panic!("nothing ever happened");
}

#[test]
fn the_address_that_answers_wins_and_the_others_fall_silent() {
    let mut dialer = Dialer::connect(candidates(&[NEAR, FAR]), Instant::EPOCH);
    let (event, written) = play(&mut dialer, &[FAR]);
    let Event::Opened { peer, .. } = event else { panic!("{event:?}") };
    assert_eq!(peer, FAR.parse().unwrap());
    let starts: Vec<Instant> = written.iter().map(|(_, at)| *at).collect();
    assert_eq!(starts, [Instant::EPOCH, Instant::EPOCH + STAGGER]);
    let later = Instant::EPOCH + Duration::from_secs(60);
    dialer.handle_timeout(later);
    let mut batch = Vec::new();
    while let Some(((), transmit)) = dialer.poll_transmit(later, &mut batch) {
        assert_eq!(transmit.to, peer);
    }
}

#[test]
fn the_preferred_address_is_not_disturbed_by_the_others() {
    let mut dialer = Dialer::connect(candidates(&[NEAR, FAR]), Instant::EPOCH);
    let (event, written) = play(&mut dialer, &[NEAR, FAR]);
    let Event::Opened { peer, .. } = event else { panic!("{event:?}") };
    assert_eq!((peer, written.len()), (NEAR.parse().unwrap(), 1));
}

#[test]
fn without_an_answer_the_error_names_every_address() {
    let mut dialer = Dialer::connect(candidates(&[NEAR, FAR]), Instant::EPOCH);
    let (event, written) = play(&mut dialer, &[]);
    let silence = CloseReason::NoAnswer { hint: None, unreachable: false };
    assert!(matches!(event, Event::Closed(reason) if reason == silence));
    assert_eq!(written.len(), 2);
    assert_eq!(dialer.to_string(), format!("any of {NEAR}, {FAR}"));
}

#[test]
fn a_refusal_counts_for_the_address_it_names() {
    let mut dialer = Dialer::connect(candidates(&[NEAR, FAR]), Instant::EPOCH);
    let refused = NEAR.parse().unwrap();
    let mut now = Instant::EPOCH;
    let event = loop {
        dialer.handle_timeout(now);
        let mut packet = Vec::new();
        while let Some(((), transmit)) = dialer.poll_transmit(now, &mut packet) {
            if transmit.to == refused {
                dialer.handle_refused(now, refused, &packet[..64]);
            }
            packet.clear();
        }
        match dialer.poll_event() {
            Some(((), event)) => break event,
            None => now = dialer.next_timeout(now).expect("it waits for something").max(now),
        }
    };
    let Event::Closed(CloseReason::NoAnswer { hint: None, unreachable }) = event else {
        panic!("{event:?}")
    };
    assert!(unreachable, "what is known of one says more than that the other is silent");
    let text = dialer.to_string();
    assert!(text.contains(&format!("{NEAR} (nothing listens on that port)")), "{text}");
    assert!(text.contains(&format!("{FAR} (no answer)")), "{text}");
}

/// Strangers ask at a listening end's port and are gone when it answers: their hosts refuse.
#[test]
fn refusals_of_other_addresses_do_not_end_a_connection() {
    for (refused, counts) in
        [(FAR, false), ("198.51.100.1:10", false), ("198.51.100.1:0", true), (OURS, true)]
    {
        let mut near = Dialer::connect(candidates(&[NEAR]), Instant::EPOCH);
        let mut listener = Dialer::listen(config(Role::Receiver), Instant::EPOCH, [99; 32]);
        let mut now = Instant::EPOCH;
        converse(&mut near, &mut listener, now);
        assert!(matches!(listener.poll_event(), Some(((), Event::Opened { .. }))));
        let refused = refused.parse().unwrap();
        let end = now + Duration::from_secs(60);
        let mut closed = false;
        while now < end && !closed {
            now += Duration::from_secs(1);
            listener.handle_timeout(now);
            let mut packet = Vec::new();
            while listener.poll_transmit(now, &mut packet).is_some() {
                listener.handle_refused(now, refused, &packet);
                packet.clear();
            }
            while let Some(((), event)) = listener.poll_event() {
                closed |= matches!(event, Event::Closed(CloseReason::Unreachable));
            }
        }
        assert_eq!(closed, counts, "{refused}");
    }
}

/// Carries everything between the two until both are silent.
fn converse(near: &mut Dialer, listener: &mut Dialer, now: Instant) {
    let (ours, theirs) = (OURS.parse().unwrap(), NEAR.parse().unwrap());
    loop {
        let (mut out, mut back) = (Vec::new(), Vec::new());
        while near.poll_transmit(now, &mut out).is_some() {
            listener.handle_datagram(
                now,
                Datagram { from: ours, local: None, meta: RecvMeta::default(), bytes: &mut out },
            );
            out.clear();
        }
        let mut silent = true;
        while listener.poll_transmit(now, &mut back).is_some() {
            silent = false;
            near.handle_datagram(
                now,
                Datagram { from: theirs, local: None, meta: RecvMeta::default(), bytes: &mut back },
            );
            back.clear();
        }
        if silent {
            return;
        }
    }
}
