//! Tests of the listener, with callers that talk through no socket at all.

use netblt_proto::config::{Role, Secret, Wire};

use super::*;

fn config(role: Role) -> Config {
    Config { secret: Some(Secret([3; 32])), ..Config::new(Wire::Sealed, role) }
}

fn address(i: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], i))
}

/// What passes between `caller`, who is at `address`, and `listener` in one round.
fn exchange(listener: &mut Listener, caller: &mut Endpoint, address: SocketAddr, deaf: bool) {
    let (now, server) = (Instant::EPOCH, self::address(1));
    let mut batch = Vec::new();
    while caller.poll_transmit(now, &mut batch).is_some() {
        listener.handle_datagram(now, Datagram { from: address, ecn: None, bytes: &mut batch });
        batch.clear();
    }
    while let Some(transmit) = listener.poll_transmit(now, &mut batch) {
        assert_eq!(transmit.to, address);
        if !deaf {
            caller.handle_datagram(now, Datagram { from: server, ecn: None, bytes: &mut batch });
        }
        batch.clear();
    }
}

fn caller(i: u16) -> Endpoint {
    let entropy = [i as u8; 32];
    Endpoint::active(config(Role::Sender), address(1), Instant::EPOCH, entropy)
}

fn opened(listener: &mut Listener) -> Vec<SocketAddr> {
    std::iter::from_fn(|| listener.poll_event())
        .filter_map(|(from, event)| matches!(event, Event::Opened { .. }).then_some(from))
        .collect()
}

#[test]
fn all_who_call_at_once_are_served() {
    let mut listener = Listener::new(config(Role::Receiver));
    let mut callers: Vec<Endpoint> = (10..30).map(caller).collect();
    // Every OPEN before any confirmation.
    for _ in 0..2 {
        for (i, caller) in callers.iter_mut().enumerate() {
            exchange(&mut listener, caller, address(10 + i as u16), false);
        }
    }
    assert_eq!(opened(&mut listener).len(), 20);
    listener.remove(address(10));
    assert!(listener.end(address(10)).is_none() && listener.end(address(11)).is_some());
}

#[test]
fn those_who_never_open_make_room_and_the_others_stay() {
    let mut listener = Listener::new(config(Role::Receiver));
    let mut first = caller(10);
    exchange(&mut listener, &mut first, address(10), false);
    exchange(&mut listener, &mut first, address(10), false);
    for i in 0..200 {
        exchange(&mut listener, &mut caller(100 + i), address(100 + i), true);
    }
    assert_eq!(listener.members.len(), 1 + MAX_CALLERS);
    assert_eq!(opened(&mut listener), [address(10)]);
    assert!(listener.end(address(299)).is_some() && listener.end(address(100)).is_none());
}

#[test]
fn forged_callers_that_open_at_once_are_bounded() {
    let plain = |role| Config::new(Wire::Rfc998, role);
    let mut listener = Listener::new(plain(Role::Receiver));
    for i in 0..600 {
        let mut caller = Endpoint::active(plain(Role::Sender), address(1), Instant::EPOCH, [1; 32]);
        exchange(&mut listener, &mut caller, address(100 + i), true);
    }
    assert_eq!(listener.members.len(), MAX_MEMBERS);
    listener.remove(address(100));
    let mut caller = Endpoint::active(plain(Role::Sender), address(1), Instant::EPOCH, [1; 32]);
    exchange(&mut listener, &mut caller, address(99), true);
    assert!(listener.end(address(99)).is_some(), "there is room again");
}

#[test]
fn noise_makes_no_member() {
    let mut listener = Listener::new(config(Role::Receiver));
    for len in [0, 1, 3, 20, 1200] {
        let bytes = &mut vec![7; len];
        listener.handle_datagram(Instant::EPOCH, Datagram { from: address(9), ecn: None, bytes });
    }
    assert!(listener.members.is_empty());
}
