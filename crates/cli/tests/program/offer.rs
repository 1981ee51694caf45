//! A receiver that looks at what is offered before it agrees, and one that gives the file a name of
//! its own.

use std::fs;

use crate::testenv::{self, Env, Running};
use serde_json::Value;

/// A sender of these, and its ticket.
fn sender(env: &Env, args: &[&str]) -> (Running, String) {
    let own = ["--bind", "127.0.0.1", "--json", "--wait", "60s"];
    let mut sender = env.start(&[&["send"][..], args, &own].concat());
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    (sender, ticket)
}

#[test]
fn an_offer_is_listed_and_its_ticket_stays_valid() {
    let env = Env::new();
    for name in ["a", "deep/er/b", "deep/c"] {
        fs::create_dir_all(env.path("t/deep/er")).expect("made");
        fs::write(env.path("t").join(name), name).expect("written");
    }
    env.make_file("big", 3_000_000);
    let (mut sender, ticket) = sender(&env, &["t", "big", "--manifest", "sums"]);
    for _ in 0..2 {
        let listed = env.run(&["receive", &ticket, "--list"]).exits(0);
        let text = "t/\nt/a\t1\nt/deep/\nt/deep/c\t6\nt/deep/er/\nt/deep/er/b\t9\nbig\t3000000\n";
        assert_eq!(listed.text(), text);
        listed.says("4 files, 2.86 MiB; nothing was received");
        sender.event("list_fetched", |_| true);
    }
    let listed = env.run(&["receive", &ticket, "--list", "--json"]).exits(0);
    let lines: Vec<Value> =
        listed.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let offered = lines.iter().filter(|line| line["event"] == "offered").count();
    assert_eq!(offered, 7);
    let summary = listed.last_event("summary");
    assert_eq!((&summary["listed"], &summary["files"]), (&true.into(), &4.into()));
    assert_eq!(env.names("."), ["big", "sums", "t", "tmp"]);
    env.make_directory("to");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sender.finish().exits(0);
    assert_eq!(testenv::tree(&env.path("to/t")), testenv::tree(&env.path("t")));
    let sums = fs::read_to_string(env.path("sums")).expect("read");
    assert_eq!(sums.lines().count(), 4, "{sums}");
}

#[test]
fn a_listing_of_an_offered_stream_does_not_read_it() {
    let env = Env::new();
    let own = ["send", "-", "--stdin-name", "news", "--bind", "127.0.0.1", "--quiet"];
    let mut sender = env.start_with_input(&own, b"all of it".to_vec());
    let ticket = sender.line();
    assert_eq!(env.run(&["receive", &ticket, "--list"]).exits(0).text(), "news\t0\n");
    assert_eq!(env.run(&["receive", &ticket, "-"]).exits(0).text(), "all of it");
    sender.finish().exits(0);
}

#[test]
fn only_a_listening_end_can_be_asked_for_its_offer() {
    let env = Env::new();
    env.run(&["receive", "--list"]).exits(1).says("give its ticket");
    let plain = ["receive", "x", "--list", "--wire", "rfc998", "--listen", "127.0.0.1:0"];
    env.run(&plain).exits(1).says("--list");
}

#[test]
fn one_file_gets_another_name() {
    let env = Env::new();
    let big = env.make_file("big", 3_000_000);
    env.make_directory("to");
    for (name, atomic) in [("own", false), ("whole", true)] {
        let (sender, ticket) = sender(&env, &["big"]);
        let mut args = vec!["receive", &ticket, "to", "--as", name, "--manifest", "sums"];
        args.extend(atomic.then_some("--atomic"));
        env.run(&args).exits(0);
        sender.finish().exits(0);
        assert_eq!(fs::read(env.path("to").join(name)).expect("read"), big);
        let sums = fs::read_to_string(env.path("sums")).expect("read");
        assert!(sums.ends_with(&format!("  {name}\n")), "{sums}");
    }
    // What stands there is not replaced.
    fs::write(env.path("to/own"), "mine").expect("written");
    let (other, ticket) = sender(&env, &["big"]);
    env.run(&["receive", &ticket, "to", "--as", "own"]).exits(23).says("own: exists there already");
    other.finish().exits(23);
    assert_eq!(fs::read(env.path("to/own")).expect("read"), b"mine");
    fs::create_dir(env.path("t")).and_then(|()| fs::write(env.path("t/x"), "x")).expect("made");
    for sources in [&["big", "t/x"][..], &["t"]] {
        let (mut sender, ticket) = sender(&env, sources);
        let run = env.run(&["receive", &ticket, "to", "--as", "one"]);
        run.exits(1).says("cannot all have the one name");
        sender.event("refused", |_| true);
        sender.signal(rustix::process::Signal::INT);
        sender.finish().exits(20);
    }
    env.run(&["clean", "to"]).exits(0);
    assert_eq!(env.names("to"), ["own", "whole"]);
    for (name, says) in [("a/b", "one name"), ("..", "'..'"), ("", "--as")] {
        env.run(&["receive", "to", "--as", name]).exits(1).says(says);
    }
    env.run(&["receive", "-", "--as", "x"]).exits(1).says("--as names a file in a directory");
}

#[test]
fn a_second_holder_of_a_ticket_is_refused_and_disturbs_nothing() {
    let env = Env::new();
    let data = env.make_file("big", 6_000_000);
    for name in ["one", "two"] {
        env.make_directory(name);
    }
    let (sender, ticket) = sender(&env, &["big", "--rate", "16Mbit"]);
    let mut first = env.start(&["receive", &ticket, "one", "--json"]);
    first.event("progress", |progress| progress["bytes"].as_u64() > Some(0));
    let second = env.run(&["receive", &ticket, "two"]);
    assert_ne!(second.code, Some(0), "{}", second.stderr);
    assert!(second.stderr.contains("netblt: "), "{}", second.stderr);
    first.finish().exits(0);
    sender.finish().exits(0);
    assert!(fs::read(env.path("one/big")).expect("read") == data);
    assert_eq!(env.names("two"), Vec::<String>::new());
}
