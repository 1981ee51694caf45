//! `--wire rfc998` between two of this program: no tickets, an address instead, and one named file.

use std::fs;

use crate::testenv::{self, Env, Finished, Running, last_event};

const PLAIN: [&str; 2] = ["--wire", "rfc998"];

/// Starts the side that waits; answers where.
fn wait(env: &Env, args: &[&str]) -> (Running, String) {
    let here = ["--wire", "rfc998", "--listen", "127.0.0.1:0", "--json"];
    let mut running = env.start(&[args, &here].concat());
    let listening = running.event("listening", |_| true);
    (running, listening["address"].as_str().expect("an address").to_owned())
}

fn call(env: &Env, args: &[&str]) -> Finished {
    env.run(&[args, &PLAIN[..]].concat())
}

#[test]
fn a_file_goes_in_all_four_roles() {
    for bytes in [0, 1, 300_000] {
        let env = Env::new();
        let data = env.make_file("data", bytes);
        env.make_directory("to");
        let (receiver, to) = wait(&env, &["receive", "to/written"]);
        let sender = call(&env, &["send", "data", "--to", &to]).exits(0);
        let receiver = receiver.finish().exits(0);
        assert_eq!(receiver.last_event("summary")["verified"], false);
        let (other, from) = wait(&env, &["send", "data"]);
        let reader = call(&env, &["receive", "to/read", "--from", &from]).exits(0);
        other.finish().exits(0);
        for name in ["to/written", "to/read"] {
            assert!(fs::read(env.path(name)).expect("the file") == data, "{name}: {bytes}");
        }
        assert_eq!(env.names("to"), ["read", "written"]);
        for run in [sender, reader] {
            let run = run.says("neither encrypted nor verified").says("NOT verified");
            assert!(!run.stderr.contains("digest"), "no digest was agreed on: {}", run.stderr);
        }
    }
}

#[test]
fn both_sides_are_warned_in_json_too() {
    let env = Env::new();
    env.make_file("data", 1000);
    let (receiver, to) = wait(&env, &["receive", "out"]);
    let sender = call(&env, &["send", "data", "--to", &to, "--json", "--quiet"]).exits(0);
    for text in [sender.text(), receiver.finish().exits(0).text()] {
        let first = last_event(text.lines().next().unwrap_or_default(), "warning");
        assert!(first["message"].as_str().is_some_and(|m| m.contains("IN THE CLEAR")), "{text}");
    }
}

#[test]
fn a_stream_goes_from_standard_input_to_standard_output() {
    let env = Env::new();
    let data = testenv::noise(200_001);
    let args = ["send", "-", "--wire", "rfc998", "--listen", "127.0.0.1:0", "--json"];
    let mut sender = env.start_with_input(&args, data.clone());
    let from = sender.event("listening", |_| true)["address"].as_str().map(str::to_owned);
    let receiver = call(&env, &["receive", "-", "--from", &from.expect("an address")]).exits(0);
    sender.finish().exits(0);
    assert!(receiver.stdout == data);
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let env = Env::new();
    let data = env.make_file("data", 5000);
    fs::write(env.path("out"), "mine").expect("a file");
    let listen = ["--listen", "127.0.0.1:0"];
    call(&env, &[&["receive", "out"], &listen[..]].concat()).exits(11).says("out exists");
    assert_eq!(fs::read(env.path("out")).expect("the file"), b"mine");
    let (receiver, to) = wait(&env, &["receive", "out", "--overwrite", "always"]);
    call(&env, &["send", "data", "--to", &to]).exits(0);
    receiver.finish().exits(0);
    assert!(fs::read(env.path("out")).expect("the file") == data);
    // Never a device, even so.
    let null = ["receive", "/dev/null", "--overwrite", "always"];
    call(&env, &[&null[..], &listen].concat()).exits(11).says("redirect standard output");
}

#[test]
fn a_receiver_keeps_no_file_when_its_peer_stops() {
    let env = Env::new();
    env.make_file("data", 3_000_000);
    env.make_directory("to");
    let (mut receiver, to) = wait(&env, &["receive", "to/out"]);
    let slow = ["--policy", "fixed", "--rate", "8Mbit"];
    let sender = env.start(&[&["send", "data", "--to", &to], &slow[..], &PLAIN].concat());
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(0));
    sender.signal(rustix::process::Signal::INT);
    sender.finish().exits(20);
    receiver.finish().exits(12);
    assert_eq!(env.names("to"), Vec::<String>::new());
}

#[test]
fn netblt_ports_may_differ_from_udp_ports() {
    let env = Env::new();
    let data = env.make_file("data", 5000);
    let (receiver, to) = wait(&env, &["receive", "out", "--netblt-port", "9"]);
    let ports = ["--netblt-port", "1025", "--netblt-peer-port", "9"];
    call(&env, &[&["send", "data", "--to", &to], &ports[..]].concat()).exits(0);
    receiver.finish().exits(0);
    assert!(fs::read(env.path("out")).expect("the file") == data);
}

#[test]
fn burst_values_of_either_side_bind() {
    let env = Env::new();
    env.make_file("data", 100_000);
    let fixed = ["--policy", "fixed", "--burst-size", "50", "--burst-interval", "1ms"];
    // 100 packets of 1,000 bytes, 5 every 20 ms: no more than that is what the receiver takes.
    let limit = ["--packet-size", "1000", "--burst-size", "5", "--burst-interval", "20ms"];
    let (receiver, to) = wait(&env, &[&["receive", "out"], &limit[..]].concat());
    let begin = std::time::Instant::now();
    let sender = [&["send", "data", "--to", &to], &fixed[..]].concat();
    call(&env, &sender).exits(0).says("does not yield to other traffic");
    assert!(begin.elapsed().as_millis() >= 19 * 20, "{:?}", begin.elapsed());
    receiver.finish().exits(0);
}

#[test]
fn wrong_arguments_are_named() {
    let ticket = "netblt1:abc";
    let wait = ["--listen", "127.0.0.1:0"];
    for (args, says) in [
        (vec!["send", "x"], "needs --to HOST:PORT, or --listen HOST:PORT"),
        (vec!["receive", "x"], "needs --from HOST:PORT, or --listen HOST:PORT"),
        (vec!["receive"], "give one file"),
        (vec!["receive", "x", "y"], "give one file"),
        (vec!["receive", ticket], "tickets are for the sealed wire"),
        (vec!["send", "x", "--to", ticket], "tickets are for the sealed wire"),
        (vec!["send", "x", "--ticket-stdin"], "tickets are for the sealed wire"),
        (vec!["send", "x", "--to", "host:1", wait[0], wait[1]], "one side calls"),
        (vec!["send", "x", "--to", "host"], "lacks a port"),
        (vec!["send", "x", "--to", "host:0"], "lacks a port"),
        (vec!["send", "x", "--listen", "host:99999"], "lacks a port"),
        (vec!["send", "x", "--advertise", "a:1", wait[0], wait[1]], "--wire rfc998 has none"),
        (vec!["send", "x", "--port", "5", wait[0], wait[1]], "side that calls"),
        (vec!["send", "x", "--netblt-peer-port", "5", wait[0], wait[1]], "side that calls"),
        (vec!["send", "x", "--raw-ip", "--to", "host:1"], "a HOST has no port"),
        (vec!["send", "x", "--raw-ip", "--to", "host", "--port", "5"], "--netblt-port"),
        (vec!["send", "x", "--to", "host:1", "--death-timer", "20h"], "65535 seconds"),
        (vec!["send", "x", "--to", "host:1", "--policy", "fixed"], "--rate <RATE>"),
        (
            vec!["receive", "x", "--burst-size", "1", "--burst-interval", "1us", wait[0], wait[1]],
            "whole milliseconds",
        ),
        (
            vec!["send", "x", "--burst-size", "1", "--burst-interval", "1ms", wait[0], wait[1]],
            "need --policy fixed",
        ),
    ] {
        call(&Env::new(), &args).exits(1).says(says);
    }
    for option in ["--raw-ip", "--no-checksum", "--packet-size=500", "--listen=host:1"] {
        let name = option.split('=').next().unwrap_or_default();
        Env::new().run(&["send", "x", option]).exits(1).says(name).says("for --wire rfc998");
    }
    Env::new().run(&["receive", "--from", "host:1"]).exits(1).says("for --wire rfc998");
}

#[test]
fn an_unknown_host_name_is_not_a_wrong_argument() {
    let env = Env::new();
    let run = call(&env, &["receive", "out", "--from", "nobody.invalid:9"]);
    run.exits(35).says("cannot look up nobody.invalid:9");
}
