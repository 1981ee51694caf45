//! 200 combinations of sizes, buffers, packets, outstanding buffers, burst values, policies, roles
//! and losses, each a file that must arrive, under the watch.

use std::collections::HashSet;
use std::thread;

use crate::pace::POLICIES;
use crate::peer::{Peer, Terms};
use crate::testenv::{self, Env};
use crate::{calling, waiting};

/// Combinations for each of the four roles.
const EACH: u64 = 50;
/// Of these so many at once.
const AT_ONCE: u64 = 2;

/// One of them.
#[derive(Debug)]
struct Combination {
    bytes: usize,
    terms: Terms,
    policy: &'static str,
    lost: HashSet<(u32, u16)>,
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// Every third has buffers of 1 to 15 bytes.
fn combination(role: u64, number: u64) -> Combination {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (role << 32) ^ (number + 1));
    for _ in 0..8 {
        dice.below(2);
    }
    let tiny = number.is_multiple_of(3);
    let large = [16, 100, 999, 1000, 4000, 4096, 20_000, 65_536];
    let buffer = if tiny { 1 + number as u32 / 3 % 15 } else { dice.of(&large) };
    let packet = dice.of(&[1, 7, 16, 100, 500, 1200, 1400]);
    let (burst, rate) = dice.of(&[(5, 1), (5, 2), (8, 1), (20, 5), (50, 3), (2, 1)]);
    // A few hundred packets at most, and half a second's.
    let most = 200.min(u64::from(burst) * 400 / u64::from(rate));
    let unit = u64::from(buffer.min(packet));
    let bytes = dice.below(most * unit + 1).min(60_000) as usize;
    let policy = dice.of(&POLICIES);
    let terms = Terms {
        buffer,
        packet: packet as u16,
        burst,
        rate,
        outstanding: 1 + dice.below(20) as u16,
        check: dice.below(2) == 0,
        ..Terms::ours(role.is_multiple_of(2))
    };
    let loss = dice.of(&[0, 0, 5, 20]);
    let buffers = 1 + bytes as u32 / buffer;
    let in_a_buffer = buffer.div_ceil(packet).min(1000) as u16;
    let places = (1..=buffers).flat_map(|number| (0..in_a_buffer).map(move |i| (number, i)));
    let lost = places.filter(|_| dice.below(100) < loss).collect();
    Combination { bytes, terms, policy, lost }
}

/// Runs those of one role, some at a time, since most of it is waiting; each failure is printed.
fn all(role: u64, run: impl Fn(&Env, &Combination) + Sync) {
    let run = &run;
    let some = |first: u64| {
        for number in (first..EACH).step_by(AT_ONCE as usize) {
            let one = combination(role, number);
            println!("{number}: {one:?}");
            run(&Env::new(), &one);
        }
    };
    thread::scope(|scope| {
        for first in 0..AT_ONCE {
            scope.spawn(move || some(first));
        }
    });
}

fn came(env: &Env, content: &[u8]) {
    assert!(std::fs::read(env.path("out")).expect("the file") == content, "another file came");
}

#[test]
fn our_sender_calls() {
    all(0, |env, one| {
        let content = env.make_file("data", one.bytes);
        let mut peer = Peer::new();
        let sender = calling(env, &peer, one.policy);
        let terms = peer.accept(&one.terms);
        let offer = (terms.burst, terms.rate);
        assert!(peer.receive_offering(&terms, one.lost.clone(), |_| offer) == content);
        sender.finish().exits(0);
        peer.watch.finds_nothing();
    });
}

#[test]
fn our_sender_waits() {
    all(1, |env, one| {
        let content = env.make_file("data", one.bytes);
        let args: Vec<&str> = ["send", "data"].into_iter().chain(one.policy.split(' ')).collect();
        let (sender, address) = waiting(env, &args);
        let mut peer = Peer::new();
        let terms = peer.call(&address, &one.terms).expect("a connection");
        let offer = (terms.burst, terms.rate);
        assert!(peer.receive_offering(&terms, one.lost.clone(), |_| offer) == content);
        sender.finish().exits(0);
        peer.watch.finds_nothing();
    });
}

#[test]
fn our_receiver_waits() {
    all(2, |env, one| {
        let content = testenv::noise(one.bytes);
        let (receiver, address) = waiting(env, &["receive", "out"]);
        let mut peer = Peer::new();
        peer.pace = Some((one.terms.burst, one.terms.rate.into()));
        let terms = peer.call(&address, &one.terms).expect("a connection");
        peer.supply(&terms, &content, one.lost.clone());
        let summary = receiver.finish().exits(0).last_event("summary");
        came(env, &content);
        if one.lost.is_empty() {
            assert_eq!(summary["packets_lost"], 0, "{summary}");
        }
    });
}

#[test]
fn our_receiver_calls() {
    all(3, |env, one| {
        let content = testenv::noise(one.bytes);
        let mut peer = Peer::new();
        peer.pace = Some((one.terms.burst, one.terms.rate.into()));
        let from = peer.address();
        let args = ["receive", "out", "--wire", "rfc998", "--from", &from, "--json"];
        let receiver = env.start(&args);
        let terms = peer.accept(&one.terms);
        peer.supply(&terms, &content, one.lost.clone());
        let summary = receiver.finish().exits(0).last_event("summary");
        came(env, &content);
        if one.lost.is_empty() {
            assert_eq!(summary["packets_lost"], 0, "{summary}");
        }
    });
}
