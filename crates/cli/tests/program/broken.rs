//! Two programs, and everything that can come between them. No broken transfer may leave a file
//! under its final name, and none may hang.

use std::fs;
use std::net::UdpSocket;

use crate::testenv::{self, Env, Finished, Running};
use netblt::Ticket;
use netblt_proto::config::Secret;
use rustix::process::Signal;

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
/// Slow enough to be interrupted: 64 MiB would take 27 s.
const SLOW: [&str; 3] = ["--rate", "20Mbit", "--json"];
const SLOW_BYTES: usize = 64 << 20;
/// A vanished program is noticed soon.
const IMPATIENT: [&str; 2] = ["--death-timer", "3s"];

fn listen(env: &Env, args: &[&str]) -> (Running, String) {
    let mut running = env.start(&[args, &HERE].concat());
    let ticket = running.line();
    (running, ticket)
}

/// A transfer into `to` that has really begun; (sender, receiver).
fn under_way(env: &Env) -> (Running, Running) {
    env.make_file("data.bin", SLOW_BYTES);
    env.make_directory("to");
    let send = [&["send", "data.bin"], &SLOW[..], &HERE, &IMPATIENT].concat();
    let mut sender = env.start(&send);
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket");
    let receive = [&["receive", ticket, "to", "--json"], &IMPATIENT[..]].concat();
    let mut receiver = env.start(&receive);
    let begun = |data: &serde_json::Value| data["bytes"].as_u64() > Some(1 << 20);
    sender.event("progress", begun);
    receiver.event("progress", |_| true);
    (sender, receiver)
}

#[track_caller]
fn has_no_final_file(env: &Env) {
    let names = env.names("to");
    assert!(!names.iter().any(|name| name == "data.bin"), "{names:?}");
}

/// Exits with an error event of this code.
#[track_caller]
fn fails_with(run: Finished, codes: &[i32]) -> Finished {
    let run = run.exits_with_one_of(codes);
    let error = run.last_event("error");
    assert_eq!(error["code"].as_i64(), run.code.map(i64::from));
    run
}

#[test]
fn a_killed_sender_leaves_no_file() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    sender.signal(Signal::KILL);
    fails_with(receiver.finish(), &[12, 30]);
    has_no_final_file(&env);
    assert_eq!(sender.finish().code, None);
}

#[test]
fn a_killed_receiver_leaves_no_file() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    receiver.signal(Signal::KILL);
    fails_with(sender.finish(), &[12, 30]);
    has_no_final_file(&env);
    assert_eq!(receiver.finish().code, None);
}

#[test]
fn a_stream_to_a_restarted_receiver_is_not_reported_as_a_wrong_argument() {
    let env = Env::new();
    env.make_directory("to");
    let send = [&["send", "-"], &SLOW[..], &HERE].concat();
    let mut sender = env.start_with_input(&send, testenv::noise(SLOW_BYTES));
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket");
    let receive = ["receive", ticket, "to", "--json"];
    let mut first = env.start(&receive);
    first.event("progress", |data| data["bytes"].as_u64() > Some(1 << 20));
    first.signal(Signal::KILL);
    let second = env.start(&receive);
    let sent = fails_with(sender.finish(), &[12]);
    let why = sent.last_event("error")["message"].to_string();
    assert!(why.contains("the peer restarted: ") && why.contains("be read twice"), "{why}");
    assert!(sent.text().contains("has to start over, and nothing of it that has arrived is kept"));
    fails_with(second.finish(), &[12]);
    assert_eq!(first.finish().code, None);
}

#[test]
fn ctrl_c_at_the_sender_ends_both() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    sender.signal(Signal::INT);
    fails_with(sender.finish(), &[20]);
    fails_with(receiver.finish(), &[12]);
    assert_eq!(env.names("to"), [".netblt-partial"]);
}

#[test]
fn ctrl_c_at_the_receiver_ends_both() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    receiver.signal(Signal::TERM);
    fails_with(receiver.finish(), &[20]);
    fails_with(sender.finish(), &[12]);
    assert_eq!(env.names("to"), [".netblt-partial"]);
}

#[test]
fn ctrl_c_stops_a_listener() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    let (sender, _) = listen(&env, &["send", "data.bin"]);
    sender.signal(Signal::INT);
    sender.finish().exits(20).says("Stopping").says("netblt: stopped");
}

#[test]
fn a_listener_without_a_peer_waits_as_long_as_its_option_says() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    env.make_directory("to");
    let plain = ["--wire", "rfc998", "--listen", "127.0.0.1:0"];
    let sides: [&[&str]; 3] =
        [&["send", "data.bin"], &["receive", "to"], &[&["send", "data.bin"], &plain[..]].concat()];
    for side in sides {
        let bind: &[&str] = if side.contains(&"rfc998") { &[] } else { &HERE };
        let alone = env.run(&[side, bind, &["--wait", "300ms"]].concat());
        alone.exits(35).says("no peer connected within 0.3 s");
    }
    // It says how long that is: a day, unless the option says otherwise.
    let waits: [(&[&str], &str); 3] = [
        (&[], "Waiting for the other side for a day, with the ticket"),
        (&["--wait", "3h"], "Waiting for the other side for 3 h, with the ticket"),
        (&["--wait", "none"], "Waiting for the other side, with the ticket"),
    ];
    for (wait, says) in waits {
        let (sender, _) = listen(&env, &[&["send", "data.bin"], wait].concat());
        sender.signal(Signal::INT);
        sender.finish().exits(20).says(says);
    }
    // Who came is not bound by it.
    let (sender, ticket) = listen(&env, &["send", "data.bin", "--wait", "20s"]);
    env.run(&["receive", &ticket, "to"]).exits(0);
    sender.finish().exits(0);
}

#[test]
fn ctrl_c_stops_a_caller_that_gets_no_answer() {
    let env = Env::new();
    // Bound, but never read from: silence.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = silent.local_addr().expect("its address").to_string();
    let ticket = Ticket { addresses: vec![address], secret: Secret([1; 32]) };
    let receiver = env.start(&["receive", &ticket.to_string()]);
    // Anything may have happened before the handler is in place, so wait for the first packet.
    silent.set_read_timeout(Some(testenv::LIMIT)).expect("a limit");
    silent.recv_from(&mut [0; 2048]).expect("an OPEN");
    receiver.signal(Signal::INT);
    receiver.finish().exits(20);
}

#[test]
fn a_wrong_secret_opens_no_connection_and_leaves_the_listener_usable() {
    let env = Env::new();
    let data = env.make_file("data.bin", 100_000);
    env.make_directory("to");
    let (receiver, ticket) = listen(&env, &["receive", "to"]);
    let mut wrong: Ticket = ticket.parse().expect("a ticket");
    wrong.secret = Secret([9; 32]);
    let stranger = env.run(&["send", "data.bin", "--to", &wrong.to_string()]);
    stranger.exits_with_one_of(&[5, 35]);
    assert_eq!(env.names("to"), Vec::<String>::new());
    // The right one still works.
    env.run(&["send", "data.bin", "--to", &ticket]).exits(0);
    receiver.finish().exits(0);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
}

#[test]
fn a_closed_port_is_reported() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let ticket = Ticket {
        addresses: vec![closed.expect("an address").to_string()],
        secret: Secret([1; 32]),
    };
    let sender = env.run(&["send", "data.bin", "--to", &ticket.to_string()]);
    sender.exits(35).says("cannot reach 127.0.0.1");
}

#[test]
fn a_name_that_does_not_resolve_is_reported() {
    let env = Env::new();
    let ticket =
        Ticket { addresses: vec!["no-such-host.invalid:4000".to_owned()], secret: Secret([1; 32]) };
    let receiver = env.run(&["receive", &ticket.to_string()]);
    receiver.exits_with_one_of(&[1, 10, 35]).says("no-such-host.invalid");
}

#[test]
fn an_unreadable_source_is_not_offered() {
    let env = Env::new();
    let (env, run) = (&env, env.run(&["send", "no-such-file"]));
    run.exits(11).says("no-such-file");
    env.make_file("data.bin", 10);
    env.run(&["send", "data.bin", "no-such-file"]).exits(11).says("no-such-file");
}

#[test]
fn a_destination_must_be_a_directory_that_can_be_written() {
    let env = Env::new();
    env.make_file("file", 10);
    env.run(&["receive", "no-such-directory"]).exits(11).says("no-such-directory");
    env.run(&["receive", "file"]).exits(11).says("file");
    // No user creates files there, root included.
    let (sender, ticket) = listen(&env, &["send", "file"]);
    env.run(&["receive", &ticket, "/proc"]).exits(11).says("/proc");
    drop(sender);
}

#[test]
fn many_files_do_not_fit_into_one_stream() {
    let env = Env::new();
    env.make_file("a", 10);
    env.make_file("b", 10);
    let (sender, ticket) = listen(&env, &["send", "a", "b"]);
    let receiver = env.run(&["receive", &ticket, "-"]);
    assert_ne!(receiver.code, Some(0));
    assert!(receiver.stderr.contains("netblt: "), "{}", receiver.stderr);
    // Into a directory they go.
    env.make_directory("to");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sender.finish().exits(0);
    assert_eq!(env.names("to"), ["a", "b"]);
}

#[test]
fn a_reader_that_goes_away_is_a_failure() {
    let env = Env::new();
    env.make_file("data.bin", 3_000_000);
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = env.command(&["receive", &ticket, "-"]);
    command.stdout(writer);
    drop(reader);
    let output = command.output().expect("the program ran");
    // By SIGPIPE, as others.
    assert_eq!(output.status.code(), None);
    assert_ne!(sender.finish().code, Some(0));
}

#[test]
fn a_stopped_demo_leaves_nothing_behind() {
    let env = Env::new();
    let mut demo = env.start(&["demo", "--size", "64MiB", "--rate", "20Mbit", "--json"]);
    demo.event("progress", |_| true);
    demo.signal(Signal::INT);
    fails_with(demo.finish(), &[20]);
    assert_eq!(env.names("tmp"), Vec::<String>::new());
}
