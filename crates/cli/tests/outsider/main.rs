//! An independent implementation of RFC 998 against the program: a peer in all four roles that puts
//! its packets together byte by byte from the figures of RFC 998 §8 and shares no code with ours,
//! and a watch that judges what comes by the times at which it comes.

mod combinations;
mod pace;
mod peer;
#[path = "../testenv/mod.rs"]
mod testenv;
mod watch;

use std::collections::HashSet;

use peer::{Peer, RESPONSE, Terms};
use testenv::{Env, Running};

/// The program, waiting, and where.
fn waiting(env: &Env, args: &[&str]) -> (Running, String) {
    let here = ["--wire", "rfc998", "--listen", "127.0.0.1:0", "--json"];
    let mut running = env.start(&[args, &here].concat());
    let listening = running.event("listening", |_| true);
    let address = listening["address"].as_str().expect("an address").to_owned();
    (running, address)
}

/// The program, calling `peer` to send it the file `data`, with these options.
fn calling(env: &Env, peer: &Peer, options: &str) -> Running {
    let to = peer.address();
    let mut args = vec!["send", "data", "--wire", "rfc998", "--to", &to];
    args.extend(options.split_whitespace());
    env.start(&args)
}

/// The first packet of all, one in the middle, and the last of a buffer.
fn some_lost() -> HashSet<(u32, u16)> {
    HashSet::from([(1, 0), (2, 3), (3, 7)])
}

const SIZES: [usize; 6] = [0, 1, 500, 4000, 4001, 30_123];

#[test]
fn its_receiver_waits_and_our_sender_calls() {
    for bytes in SIZES {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let mut peer = Peer::new();
        let to = peer.address();
        let sender = env.start(&["send", "data", "--wire", "rfc998", "--to", &to]);
        let terms = peer.accept(&Terms::ours(true));
        assert!(terms.write && terms.check && terms.transfer == bytes as u32, "{terms:?}");
        assert!(peer.receive(&terms, some_lost()) == content, "{bytes} bytes");
        sender.finish().exits(0).says("IN THE CLEAR");
    }
}

#[test]
fn its_receiver_calls_and_our_sender_waits() {
    for bytes in SIZES {
        let env = Env::new();
        let content = env.make_file("data", bytes);
        let (sender, address) = waiting(&env, &["send", "data"]);
        let mut peer = Peer::new();
        let terms = peer.call(&address, &Terms::ours(false)).expect("a connection");
        assert_eq!(terms.transfer as usize, bytes);
        assert!(peer.receive(&terms, some_lost()) == content, "{bytes} bytes");
        assert_eq!(sender.finish().exits(0).last_event("summary")["verified"], false);
    }
}

#[test]
fn its_sender_waits_and_our_receiver_calls() {
    for bytes in SIZES {
        let env = Env::new();
        let content = testenv::noise(bytes);
        let mut peer = Peer::new();
        let from = peer.address();
        let receiver = env.start(&["receive", "out", "--wire", "rfc998", "--from", &from]);
        let terms = peer.accept(&Terms::ours(false));
        assert!(!terms.write, "READ");
        peer.supply(&terms, &content, some_lost());
        receiver.finish().exits(0).says("NOT verified");
        assert!(std::fs::read(env.path("out")).expect("the file") == content, "{bytes} bytes");
    }
}

#[test]
fn its_sender_calls_and_our_receiver_waits() {
    for bytes in SIZES {
        let env = Env::new();
        let content = testenv::noise(bytes);
        let (receiver, address) = waiting(&env, &["receive", "out"]);
        let mut peer = Peer::new();
        let terms = Terms { transfer: bytes as u32, check: false, ..Terms::ours(true) };
        let terms = peer.call(&address, &terms).expect("a connection");
        peer.supply(&terms, &content, some_lost());
        assert_eq!(receiver.finish().exits(0).last_event("summary")["bytes"], bytes);
        assert!(std::fs::read(env.path("out")).expect("the file") == content, "{bytes} bytes");
    }
}

#[test]
fn every_term_of_an_open_is_an_option() {
    let env = Env::new();
    let content = env.make_file("data", 10_000);
    let mut peer = Peer::new();
    let options = "--buffer-size 3000B --packet-size 700 --burst-size 7 --burst-interval 3ms \
                   --policy fixed --death-timer 90s --no-checksum --buffers 5 --client reader \
                   --netblt-port 1022";
    let to = peer.address();
    let mut args = vec!["send", "data", "--wire", "rfc998", "--to", &to];
    args.extend(options.split_whitespace());
    let sender = env.start(&args);
    peer.foreign = 1022;
    peer.check = false;
    let open = loop {
        if let Some(open) = peer.recv() {
            break open;
        }
    };
    let asked = Terms::read(&open);
    let expected = Terms {
        uid: asked.uid,
        buffer: 3000,
        transfer: 10_000,
        packet: 700,
        burst: 7,
        rate: 3,
        death: 90,
        write: true,
        check: false,
        outstanding: 5,
        client: "reader".to_owned(),
    };
    assert_eq!(asked, expected);
    peer.send(RESPONSE, &asked.body());
    assert!(peer.receive(&asked, HashSet::new()) == content);
    sender.finish().exits(0);
}

#[test]
fn an_active_receiver_sends_its_terms_too() {
    let env = Env::new();
    let content = testenv::noise(10_000);
    let mut peer = Peer::new();
    let from = peer.address();
    (peer.local, peer.foreign, peer.check) = (1023, 1022, false);
    let options = "--no-checksum --client reader --netblt-port 1022 --netblt-peer-port 1023 \
                   --buffer-size 3000B --packet-size 700 --buffers 5";
    let mut args = vec!["receive", "out", "--wire", "rfc998", "--from", &from];
    args.extend(options.split_whitespace());
    let receiver = env.start(&args);
    let open = loop {
        if let Some(open) = peer.recv() {
            break open;
        }
    };
    let asked = Terms::read(&open);
    assert_eq!((asked.write, asked.check, asked.client.as_str()), (false, false, "reader"));
    assert_eq!((asked.buffer, asked.packet, asked.outstanding), (3000, 700, 5));
    let terms = Terms { burst: 5, rate: 2, ..asked };
    peer.send(RESPONSE, &terms.body());
    peer.supply(&terms, &content, HashSet::new());
    receiver.finish().exits(0);
    assert!(std::fs::read(env.path("out")).expect("the file") == content);
}

#[test]
fn a_peer_with_our_role_is_refused_and_others_are_still_accepted() {
    let env = Env::new();
    let content = env.make_file("data", 5000);
    let (sender, address) = waiting(&env, &["send", "data"]);
    let refused = Peer::new().call(&address, &Terms::ours(true));
    assert_eq!(refused, Err("both ends want to send".to_owned()));
    let mut peer = Peer::new();
    let terms = peer.call(&address, &Terms::ours(false)).expect("a connection");
    // One transfer at a time.
    let busy = Peer::new().call(&address, &Terms::ours(false));
    assert!(busy.is_err_and(|reason| reason.contains("busy")));
    assert!(peer.receive(&terms, HashSet::new()) == content);
    sender.finish().exits(0);
}
