//! Burst sizes, intervals, announcements and questions of every policy, judged by the watch.

use std::collections::HashSet;

use crate::peer::{Peer, Terms};
use crate::testenv::{self, Env};
use crate::{calling, waiting};

/// Every way to choose a rate on this wire.
pub(crate) const POLICIES: [&str; 4] = [
    "--policy fair",
    "--policy fair --rate 100Mbit",
    "--policy fixed --burst-size 50 --burst-interval 1ms",
    "--policy fixed --rate 200Mbit",
];

/// What a receiver grants: these burst values, and packets and buffers of these sizes.
fn grant(burst: u16, rate: u16, packet: u16, buffer: u32) -> Terms {
    Terms { burst, rate, packet, buffer, ..Terms::ours(false) }
}

/// Some 130 packets: full ones, short ones (a buffer is one and a half), and one in each buffer.
const SHAPES: [(u16, u32, usize); 3] = [(100, 4000, 13_000), (100, 150, 10_000), (500, 90, 12_000)];

/// Every policy with every shape.
fn everything() -> impl Iterator<Item = (&'static str, (u16, u32, usize))> {
    POLICIES.into_iter().flat_map(|policy| SHAPES.map(|shape| (policy, shape)))
}

#[test]
fn every_active_sender_keeps_to_the_agreed_burst_values_and_announces_them() {
    for (policy, (packet, buffer, bytes)) in everything() {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let mut peer = Peer::new();
        let sender = calling(&env, &peer, policy);
        let terms = peer.accept(&grant(5, 20, packet, buffer));
        let offer = (terms.burst, terms.rate);
        let got = peer.receive_offering(&terms, HashSet::new(), |_| offer);
        assert!(got == content, "{policy} {packet} {buffer}");
        sender.finish().exits(0);
        peer.watch.finds_nothing();
    }
}

#[test]
fn every_passive_sender_keeps_to_the_agreed_burst_values_and_announces_them() {
    for (policy, (packet, buffer, bytes)) in everything() {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let mut args = vec!["send", "data"];
        args.extend(policy.split_whitespace());
        let (sender, address) = waiting(&env, &args);
        let mut peer = Peer::new();
        let terms = peer.call(&address, &grant(5, 20, packet, buffer)).expect("a connection");
        let offer = (terms.burst, terms.rate);
        let got = peer.receive_offering(&terms, HashSet::new(), |_| offer);
        assert!(got == content, "{policy} {packet} {buffer}");
        sender.finish().exits(0);
        peer.watch.finds_nothing();
    }
}

#[test]
fn an_offer_restrains_every_sender_and_is_confirmed() {
    for policy in POLICIES {
        let env = Env::new();
        let content = env.make_file("data", 20_000);
        let mut peer = Peer::new();
        let sender = calling(&env, &peer, policy);
        let terms = peer.accept(&grant(20, 5, 100, 1000));
        let offer = |number| if number < 8 { (20, 5) } else { (4, 10) };
        assert!(peer.receive_offering(&terms, HashSet::new(), offer) == content, "{policy}");
        sender.finish().exits(0);
        peer.watch.finds_nothing();
        assert!(peer.watch.announced > 0, "{policy}");
    }
}

/// Of 152 bytes each, headers included, 82 packets a second are less than the 250 agreed on.
#[test]
fn a_rate_changed_in_a_transfer_restrains_every_sender_and_is_announced() {
    for policy in POLICIES {
        let env = Env::new();
        let content = env.make_file("data", 16_000);
        let mut peer = Peer::new();
        let sender = calling(&env, &peer, policy);
        let terms = peer.accept(&grant(5, 20, 100, 1000));
        let agreed = (terms.burst, terms.rate);
        let offer = |number| {
            let rate = match number {
                3 => "100kbit",
                9 => "none",
                _ => return agreed,
            };
            env.run(&["control", "--rate", rate]).exits(0);
            agreed
        };
        assert!(peer.receive_offering(&terms, HashSet::new(), offer) == content, "{policy}");
        sender.finish().exits(0);
        peer.watch.finds_nothing();
        assert!(peer.watch.announced > 1, "{policy}");
    }
}

#[test]
fn there_is_no_other_policy_on_this_wire() {
    let env = Env::new();
    env.make_file("data", 20_000);
    let mut peer = Peer::new();
    let to = peer.address();
    let send = ["send", "data", "--wire", "rfc998", "--to", &to];
    let sealed = |args: &[&str]| env.run(&[&send[..], args].concat()).exits(1).says("wire sealed");
    sealed(&["--policy", "background"]);
    sealed(&["--policy", "aggressive"]);
    for protocol in ["sabul", "tsunami", "fobs", "udt", "reno", "cubic", "highspeed", "scalable"] {
        sealed(&["--protocol", protocol]);
    }
    sealed(&["--protocol", "rbudp", "--rate", "10Mbit"]);
    // Nor does one become that of a transfer that runs.
    let sender = env.start(&send);
    let terms = peer.accept(&grant(5, 20, 100, 1000));
    let offer = |number| {
        if number == 1 {
            let control = env.run(&["control", "--policy", "aggressive"]);
            control.exits(5).says("with --wire rfc998 only a sender's rate can be changed");
        }
        (5, 20)
    };
    peer.receive_offering(&terms, HashSet::new(), offer);
    sender.finish().exits(0);
    peer.watch.finds_nothing();
}

/// A sender that is slower than it says, and sleeps now and then, loses nothing: nothing is called
/// lost, and hardly anything asked for.
#[test]
fn a_slow_sender_gets_no_loss_report_and_hardly_any_resend() {
    let env = Env::new();
    let content = testenv::noise(10_000_000);
    let (receiver, address) = waiting(&env, &["receive", "out"]);
    let mut peer = Peer::new();
    // 5 packets every 2 ms are announced.
    peer.pace = Some((5, 3));
    let terms = Terms { outstanding: 8, packet: 1000, buffer: 8000, ..Terms::ours(true) };
    let terms = peer.call(&address, &terms).expect("a connection");
    peer.supply(&terms, &content, HashSet::new());
    let summary = receiver.finish().exits(0).last_event("summary");
    assert!(std::fs::read(env.path("out")).expect("the file") == content);
    assert_eq!(summary["packets_lost"], 0, "{summary}");
    assert!(summary["digest"].is_null(), "no digest was agreed on: {summary}");
    println!("{} needless RESENDs, {} packets", peer.needless, peer.sent);
    assert!(peer.needless * 1000 <= peer.sent, "{} of {}", peer.needless, peer.sent);
}

#[test]
fn lost_packets_are_counted() {
    let env = Env::new();
    let content = testenv::noise(60_000);
    let (receiver, address) = waiting(&env, &["receive", "out"]);
    let mut peer = Peer::new();
    let terms = peer.call(&address, &Terms::ours(true)).expect("a connection");
    let lost = HashSet::from([(1, 2), (2, 0), (5, 6), (9, 3)]);
    peer.supply(&terms, &content, lost);
    let summary = receiver.finish().exits(0).last_event("summary");
    assert_eq!(summary["packets_lost"], 4, "{summary}");
}
