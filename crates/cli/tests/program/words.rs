//! What the system says reaches people in its own words, wherever it comes from: without the number
//! that Rust puts behind it.

use std::fs;

use crate::testenv::{Env, Finished};
use rustix::process::Signal;

/// A reason that the system gave is in what was said, and no number.
fn in_words(said: Finished, what: &str) {
    assert_ne!(said.code, Some(0), "{what}");
    let all = format!("{}{}", said.text(), said.stderr);
    assert!(!all.contains("(os error"), "{what}: {all}");
    let reasons = [
        "No such file or directory",
        "Not a directory",
        "Is a directory",
        "File exists",
        "Address already in use",
        "Cannot assign requested address",
    ];
    assert!(reasons.iter().any(|reason| all.contains(reason)), "{what}: {all}");
}

#[test]
fn no_message_has_the_number_of_an_error() {
    let env = Env::new();
    env.make_file("file", 10);
    env.make_directory("directory");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let taken = socket.local_addr().expect("bound").port().to_string();
    let at = format!("127.0.0.1:{taken}");
    let mut listening = env.start(&["send", "file", "--bind", "127.0.0.1"]);
    let ticket = &*listening.line();
    let commands: &[&[&str]] = &[
        &["send", "missing"],
        &["send", "--json", "missing"],
        &["send", "file/beneath"],
        &["send", "file", "--bind", "127.0.0.1", "--port", &taken],
        &["send", "file", "--bind", "203.0.113.7"],
        &["receive", ticket, "missing"],
        &["receive", ticket, "missing", "--json"],
        &["receive", ticket, "file"],
        &["send", "file", "--manifest", "missing/list"],
        &["cp", "missing", "host:"],
        &["cp", "--json", "missing", "host:"],
        &["cp", "--files-from", "missing", ".", "host:"],
        &["clean", "missing"],
        &["clean", "missing", "--json"],
        &["report", "transfer", "missing"],
        &["report", "transfer", "directory"],
        &["report", "trace", "missing", "--out", "page.html"],
        &["emulate", "relay", "--listen", &at, "--to", "127.0.0.1:9"],
        &[
            "emulate",
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "127.0.0.1:9",
            "--scenario",
            "./missing.toml",
        ],
        &["simulate", "--seed", "1", "--scenario", "./missing.toml"],
        &["serve", "--root", "missing"],
        &["man", "file/beneath"],
        &["bench", "-s", "--bind", "203.0.113.7"],
        &["cp", "-S", "missing/ssh", "file", "host:"],
    ];
    for command in commands {
        in_words(env.run(command), &command.join(" "));
    }
    listening.signal(Signal::TERM);
    listening.finish();
}

#[test]
fn files_left_out_are_explained_in_words_at_both_ends() {
    let env = Env::new();
    env.make_directory("tree/directory");
    env.make_file("tree/file", 10);
    env.make_directory("to/tree");
    fs::write(env.path("to/tree/directory"), "in the way").expect("written");
    env.make_file("tree/directory/inner", 5);
    for json in [&[][..], &["--json"]] {
        let send = [&["send", "tree", "--bind", "127.0.0.1"], json].concat();
        let mut sender = env.start(&send);
        let ticket = match json {
            [] => sender.line(),
            _ => sender.event("listening", |_| true)["ticket"].as_str().expect("one").to_owned(),
        };
        let receiver = env.run(&[&["receive", &ticket, "to"], json].concat()).exits(23);
        let sender = sender.finish().exits(23);
        for said in [receiver, sender] {
            let all = format!("{}{}", said.text(), said.stderr);
            assert!(all.contains("inner") && !all.contains("(os error"), "{all}");
        }
    }
}

#[test]
fn a_mistake_is_named_with_its_option_its_value_and_the_form_wanted() {
    let env = Env::new();
    for (args, says) in [
        (&["cp", "-P", "abc", "a", "host:"][..], "'abc' for '-P <PORT>': a whole number from 1 to"),
        (&["cp", "-l", "0", "a", "host:"], "'0' for '-l <KBIT>': a whole number from 1 to"),
        (&["serve", "--port", "70000"], "'70000' for '--port <PORT>': a whole number from 0 to"),
        (&["simulate", "--seed", "x"], "'x' for '--seed <N>': a whole number from 0 up is wanted"),
        (&["control", "me"], "'me' for '[PID]': a whole number from 1 to"),
        (&["send", "--rate", "0Mbit", "x"], "a rate is greater than zero"),
        (&["send", "--recursive", "x"], "unexpected argument '--recursive'"),
    ] {
        env.run(args).exits(1).says(says);
    }
    env.run(&["cp", "--recursiv", "a", "host:"]).exits(1).says("'--recursive'");
}

#[test]
fn an_existing_file_is_left_out_with_a_hint_at_the_option_that_replaces_it() {
    let env = Env::new();
    env.make_file("file", 10);
    env.make_directory("to");
    fs::write(env.path("to/file"), "mine").expect("written");
    let mut sender = env.start(&["send", "file", "--bind", "127.0.0.1"]);
    let ticket = sender.line();
    let received = env.run(&["receive", &ticket, "to"]).exits(23);
    received.says("left out file: exists there already; --overwrite always replaces it");
    sender.finish().exits(23);
    // One that takes nothing has refused, and the sender says so by its code.
    let mut receiver = env.start(&["receive", "to", "--atomic", "--bind", "127.0.0.1"]);
    let ticket = receiver.line();
    env.run(&["send", "file", "--to", &ticket]).exits(5).says("exists there already");
    receiver.finish().exits(11).says("--overwrite always");
}
