//! Tests of the listener, with clients that exchange packets without sockets.

use std::time::Duration;

use netblt_proto::api::RecvMeta;
use netblt_proto::config::{Identity, Role, Secret, StaticKey, Wire};
use netblt_proto::wire::sealed::PacketType;

use super::*;

fn config(role: Role) -> Config {
    Config { secret: Some(Secret([3; 32])), ..Config::new(Wire::Sealed, role) }
}

fn address(i: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], i))
}

/// Passes the packets of one round between `caller` at `address` and `listener`.
fn exchange(listener: &mut Listener, caller: &mut Endpoint, address: SocketAddr, deaf: bool) {
    exchange_at(Instant::EPOCH, listener, caller, address, deaf);
}

fn exchange_at(
    now: Instant,
    listener: &mut Listener,
    caller: &mut Endpoint,
    address: SocketAddr,
    deaf: bool,
) {
    let server = self::address(1);
    let mut batch = Vec::new();
    while caller.poll_transmit(now, &mut batch).is_some() {
        listener.handle_datagram(
            now,
            Datagram { from: address, local: None, meta: RecvMeta::default(), bytes: &mut batch },
        );
        batch.clear();
    }
    while let Some((_, transmit)) = listener.poll_transmit(now, &mut batch) {
        assert_eq!(transmit.to, address);
        if !deaf {
            caller.handle_datagram(
                now,
                Datagram {
                    from: server,
                    local: None,
                    meta: RecvMeta::default(),
                    bytes: &mut batch,
                },
            );
        }
        batch.clear();
    }
}

fn caller(i: u16) -> Endpoint {
    let mut entropy = [i as u8; 32];
    entropy[0] = (i >> 8) as u8;
    Endpoint::active(config(Role::Sender), address(1), Instant::EPOCH, entropy)
}

fn opened(listener: &mut Listener) -> Vec<SocketAddr> {
    std::iter::from_fn(|| listener.poll_event())
        .filter_map(|(_, event)| match event {
            Event::Opened { peer, .. } => Some(peer),
            _ => None,
        })
        .collect()
}

fn remove(listener: &mut Listener, peer: SocketAddr) {
    let key = listener.key_of(peer).expect("it is known");
    listener.forget(key);
}

#[test]
fn callers_at_the_same_time_are_all_served() {
    let mut listener = Listener::new(config(Role::Receiver), [9; 32]);
    let mut callers: Vec<Endpoint> = (10..30).map(caller).collect();
    // Every OPEN before any confirmation, cookies and all.
    for _ in 0..4 {
        for (i, caller) in callers.iter_mut().enumerate() {
            exchange(&mut listener, caller, address(10 + i as u16), false);
        }
    }
    assert_eq!(opened(&mut listener).len(), 20);
    remove(&mut listener, address(10));
    assert!(listener.key_of(address(10)).is_none() && listener.key_of(address(11)).is_some());
}

#[test]
fn callers_that_never_open_cost_nothing_and_the_others_are_served() {
    let mut listener = Listener::new(config(Role::Receiver), [9; 32]);
    // One OPEN from each address, and many copies of one OPEN.
    let mut one = caller(7);
    let mut open = Vec::new();
    one.poll_transmit(Instant::EPOCH, &mut open).expect("an OPEN");
    let mut drawn = 0;
    for i in 0..2000 {
        exchange(&mut listener, &mut caller(100 + i), address(100 + i), true);
        let mut bytes = open.clone();
        let copy = Datagram {
            from: address(i),
            local: None,
            meta: RecvMeta::default(),
            bytes: &mut bytes,
        };
        listener.handle_datagram(Instant::EPOCH, copy);
        let mut batch = Vec::new();
        while listener.poll_transmit(Instant::EPOCH, &mut batch).is_some() {}
        drawn += batch.len();
    }
    assert_eq!((listener.members.len(), opened(&mut listener)), (0, vec![]));
    assert!(drawn <= 2000 * 64, "cookies: {drawn}");
    let mut first = caller(10);
    for _ in 0..4 {
        exchange(&mut listener, &mut first, address(10), false);
    }
    assert_eq!(opened(&mut listener), [address(10)]);
}

/// A peer with many OPENs, made or seen, that receives cookies and never confirms.
#[test]
fn a_peer_that_repeats_openings_keeps_no_other_out() {
    let mut listener = Listener::new(config(Role::Receiver), [9; 32]);
    let [other, third] = [1, 2].map(|port| SocketAddr::from(([198, 51, 100, 1], port)));
    let greedy = |now, listener: &mut Listener, i| {
        let mut caller = caller(i);
        exchange_at(now, listener, &mut caller, address(i), false);
        exchange_at(now, listener, &mut caller, address(i), true);
    };
    let mut early = caller(2);
    exchange(&mut listener, &mut early, other, false);
    let mut bytes = Vec::new();
    early.poll_transmit(Instant::EPOCH, &mut bytes).expect("its OPEN with the cookie");
    let open = Datagram { from: other, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
    listener.handle_datagram(Instant::EPOCH, open);
    let mut response = Vec::new();
    listener.poll_transmit(Instant::EPOCH, &mut response).expect("it is under way for long");
    for i in 0..1000 {
        greedy(Instant::EPOCH, &mut listener, 100 + i);
    }
    let mut late = caller(3);
    for _ in 0..4 {
        exchange(&mut listener, &mut late, third, false);
    }
    assert_eq!(opened(&mut listener), [third], "there is a handshake for others");
    // Longer than it takes until each of its slots was another one's.
    for i in 0..600 {
        greedy(Instant::EPOCH + Duration::from_millis(10) * i.into(), &mut listener, 2000 + i);
    }
    let now = Instant::EPOCH + Duration::from_secs(6);
    let response =
        Datagram { from: address(1), local: None, meta: RecvMeta::default(), bytes: &mut response };
    early.handle_datagram(now, response);
    exchange_at(now, &mut listener, &mut early, other, false);
    assert_eq!(opened(&mut listener), [other], "what had begun is still there");
}

#[test]
fn forged_callers_that_open_at_once_are_bounded() {
    let plain = |role| Config::new(Wire::Rfc998, role);
    let mut listener = Listener::new(plain(Role::Receiver), [9; 32]);
    for i in 0..600 {
        let mut caller = Endpoint::active(plain(Role::Sender), address(1), Instant::EPOCH, [1; 32]);
        exchange(&mut listener, &mut caller, address(100 + i), true);
    }
    assert_eq!(listener.members.len(), MAX_MEMBERS);
    remove(&mut listener, address(100));
    let mut caller = Endpoint::active(plain(Role::Sender), address(1), Instant::EPOCH, [1; 32]);
    exchange(&mut listener, &mut caller, address(99), true);
    assert!(listener.key_of(address(99)).is_some(), "there is room again");
}

#[test]
fn noise_makes_no_member() {
    let mut listener = Listener::new(config(Role::Receiver), [9; 32]);
    for len in [0, 1, 3, 20, 1200] {
        let bytes = &mut vec![7; len];
        listener.handle_datagram(
            Instant::EPOCH,
            Datagram { from: address(9), local: None, meta: RecvMeta::default(), bytes },
        );
    }
    assert!(listener.members.is_empty());
}

/// A listener with so many idle open connections, and its first caller.
fn at_rest(members: u16, now: Instant) -> (Listener, Endpoint) {
    let mut listener = Listener::new(config(Role::Receiver), [9; 32]);
    let mut callers: Vec<Endpoint> = (10..10 + members).map(caller).collect();
    for (i, caller) in callers.iter_mut().enumerate() {
        for _ in 0..6 {
            let i = 10 + i as u16;
            // No network opens hundreds at once, and some share the place where theirs are counted.
            let (net, host) = ((i - 10) / 250, (i - 10) % 250);
            let place = SocketAddr::from(([192, 0, 2 + net as u8, 1 + host as u8], i));
            exchange(&mut listener, caller, place, false);
        }
    }
    assert_eq!(opened(&mut listener).len(), usize::from(members));
    while listener.poll_ready().is_some() {}
    while listener.poll_transmit(now, &mut Vec::new()).is_some() {}
    while listener.poll_event().is_some() {}
    assert_eq!((listener.members.len(), listener.callers.len()), (members.into(), 0));
    (listener, callers.swap_remove(0))
}

/// One step of the event loop. Returns how many applications it called.
fn turn(listener: &mut Listener, now: Instant) -> usize {
    let asked = std::iter::from_fn(|| listener.poll_ready()).count();
    if listener.next_timeout(now).is_some_and(|due| due <= now) {
        listener.handle_timeout(now);
    }
    while listener.poll_transmit(now, &mut Vec::new()).is_some() {}
    while listener.poll_event().is_some() {}
    asked
}

#[test]
fn a_datagram_costs_no_more_among_many() {
    let now = Instant::EPOCH;
    let cost = |members| {
        let (mut listener, mut caller) = at_rest(members, now);
        let before = listener.looks;
        assert_eq!(turn(&mut listener, now), 0);
        assert_eq!(listener.looks, before, "nothing has happened, so none is looked at");
        caller.quit(now, "enough");
        let (mut batch, mut datagrams) = (Vec::new(), 0);
        while caller.poll_transmit(now, &mut batch).is_some() {
            let bytes = batch.as_mut_slice();
            listener.handle_datagram(
                now,
                Datagram { from: address(10), local: None, meta: RecvMeta::default(), bytes },
            );
            batch.clear();
            datagrams += 1;
        }
        assert!(datagrams > 0);
        assert_eq!(turn(&mut listener, now), 1, "one client is asked");
        listener.looks - before
    };
    let alone = cost(1);
    assert!(alone > 0 && alone < 20, "{alone}");
    assert_eq!((cost(40), cost(400)), (alone, alone));
}

#[test]
fn only_ends_with_due_timers_are_polled() {
    let now = Instant::EPOCH;
    let (mut listener, mut caller) = at_rest(200, now);
    let due = listener.next_timeout(now).expect("a death timer at least");
    assert!(due > now);
    // The first receives an instant later than the others, so its timer is due later.
    let later = now + Duration::from_millis(5);
    caller.handle_timeout(due);
    let mut batch = Vec::new();
    if caller.poll_transmit(due, &mut batch).is_some() {
        let bytes = batch.as_mut_slice();
        listener.handle_datagram(
            later,
            Datagram { from: address(10), local: None, meta: RecvMeta::default(), bytes },
        );
    }
    turn(&mut listener, later);
    let before = listener.looks;
    turn(&mut listener, due);
    assert!(listener.looks > before, "those that are due are looked at");
    let first = listener.key_of(address(10)).expect("known");
    let known = listener.deadlines.iter().filter(|(_, key)| *key == first).count();
    assert_eq!((known, listener.deadlines.len()), (1, 200), "each has one time");
}

#[test]
fn an_id_leads_to_its_end_and_to_no_other_address() {
    let now = Instant::EPOCH;
    let (mut listener, mut caller) = at_rest(3, now);
    let mut batch = Vec::new();
    caller.quit(now, "enough");
    assert!(caller.poll_transmit(now, &mut batch).is_some());
    let id = sealed::destination(&batch).expect("it has one");
    let key = listener.key_of(address(10)).expect("known");
    assert_eq!(listener.by_id.get(&id), Some(&key));
    // Copied from another address: the packet counts as the peer's, but that address gets a
    // CHALLENGE.
    let other =
        Datagram { from: address(11), local: None, meta: RecvMeta::default(), bytes: &mut batch };
    listener.handle_datagram(now, other);
    let mut sent = Vec::new();
    loop {
        batch.clear();
        let Some((_, transmit)) = listener.poll_transmit(now, &mut batch) else { break };
        sent.push((transmit.to, batch[3]));
    }
    let (quit_ack, challenge) = (PacketType::QuitAck as u8, PacketType::Challenge as u8);
    assert!(sent.contains(&(address(10), quit_ack)), "{sent:?}");
    assert!(sent.iter().all(|(to, kind)| *to == address(10) || *kind == challenge), "{sent:?}");
    listener.forget(key);
    assert!(!listener.by_id.contains_key(&id), "what is gone is found no more");
}

#[test]
fn authorized_keys_change_while_it_listens() {
    let key = |n: u16| {
        let mut private = [7; 32];
        private[1] = n as u8;
        StaticKey::from_bytes(private)
    };
    let by_key = |role, identity| Config { identity: Some(identity), ..config(role) };
    let call = |n: u16| {
        let identity = Identity::client(key(n), key(0).public()).expect("a key");
        Endpoint::active(by_key(Role::Sender, identity), address(1), Instant::EPOCH, [n as u8; 32])
    };
    let (first, _) = AuthorizedKeys::new(key(0), &[key(10).public(), key(11).public()]);
    let identity = Identity::server(Arc::new(first.clone()));
    let mut listener = Listener::new(by_key(Role::Receiver, identity), [9; 32]);
    let serve = |listener: &mut Listener, n: u16| {
        let mut caller = call(n);
        for _ in 0..4 {
            exchange(listener, &mut caller, address(n), false);
        }
        opened(listener)
    };
    assert_eq!(serve(&mut listener, 10), [address(10)]);
    listener.authorize(Arc::new(first.changed(&[key(11).public()]).0));
    assert!(serve(&mut listener, 12).is_empty());
    assert_eq!(serve(&mut listener, 11), [address(11)]);
    remove(&mut listener, address(10));
    assert!(serve(&mut listener, 10).is_empty(), "what is open stays, and nothing new opens");
}
