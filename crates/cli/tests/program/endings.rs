//! Signals, limits and whatever else ends a program that did not want to: nothing is left, and what
//! is said is true.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::testenv::{self, Env, Finished, LIMIT, Running};
use rustix::process::Signal;

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
const SLOW: [&str; 3] = ["--rate", "20Mbit", "--json"];

/// A slow transfer into `to` that has really begun; (sender, receiver).
fn under_way(env: &Env) -> (Running, Running) {
    env.make_file("data.bin", 64 << 20);
    env.make_directory("to");
    let send = [&["send", "data.bin", "--death-timer", "3s"], &SLOW[..], &HERE].concat();
    let mut sender = env.start(&send);
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket");
    let mut receiver = env.start(&["receive", ticket, "to", "--json", "--death-timer", "3s"]);
    sender.event("progress", |data| data["bytes"].as_u64() > Some(1 << 20));
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(1 << 20));
    (sender, receiver)
}

fn listen(env: &Env, args: &[&str]) -> (Running, String) {
    let mut running = env.start(&[args, &HERE].concat());
    let ticket = running.line();
    (running, ticket)
}

/// The program under `ulimit`.
fn limited(env: &Env, limit: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_netblt"))
        .args(args)
        .current_dir(env.path(""))
        .env_remove("NETBLT_TICKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run_limited(env: &Env, limit: &str, args: &[&str]) -> Finished {
    Running::new(limited(env, limit, args)).finish()
}

#[test]
fn every_signal_that_ends_a_program_ends_the_transfer_cleanly() {
    for signal in [Signal::HUP, Signal::QUIT] {
        if signal == Signal::HUP && testenv::hangups_are_ignored() {
            testenv::skip("SIGHUP is ignored here");
            continue;
        }
        let env = Env::new();
        let (sender, receiver) = under_way(&env);
        receiver.signal(signal);
        receiver.finish().exits(20);
        sender.finish().exits(12);
        assert_eq!(env.names("to"), [".netblt-partial"]);
    }
}

#[test]
fn a_second_signal_ends_the_program_at_once_and_leaves_one_directory() {
    // After one signal the other end's answer is awaited for two seconds. On a busy machine what
    // waits for nothing may take as long, but not every time.
    let all = Instant::now();
    loop {
        let env = Env::new();
        let (sender, receiver) = under_way(&env);
        // It acknowledges nothing any more.
        sender.signal(Signal::STOP);
        receiver.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        receiver.signal(Signal::INT);
        receiver.finish().exits(20);
        let took = begin.elapsed();
        assert_eq!(env.names("to"), [".netblt-partial"]);
        sender.signal(Signal::KILL);
        sender.finish();
        if took < Duration::from_millis(1700) {
            break;
        }
        assert!(all.elapsed() < LIMIT, "it waits: {took:?}");
    }
}

#[test]
fn partial_data_of_a_killed_receiver_are_not_sent_and_stay_for_their_transfer() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    receiver.signal(Signal::KILL);
    receiver.finish();
    sender.finish();
    let left = env.names("to");
    assert_eq!(left.len(), 1, "{left:?}");
    // It is not sent along with the directory that it is in.
    env.make_directory("other");
    let (sender, ticket) = listen(&env, &["send", "to"]);
    env.run(&["receive", &ticket, "other"]).exits(0);
    sender.finish().exits(0).says("skipped to/.netblt-partial");
    assert_eq!(env.names("other/to"), Vec::<String>::new());
    env.make_file("small", 10);
    let (sender, ticket) = listen(&env, &["send", "small"]);
    env.run(&["receive", &ticket, "to"]).exits(0);
    sender.finish().exits(0);
    assert_eq!(env.names("to"), [".netblt-partial", "small"]);
    env.run(&["clean", "to"]).exits(0);
    assert_eq!(env.names("to"), ["small"]);
}

#[test]
fn a_ticket_that_cannot_be_printed_ends_the_listener() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    for json in [&[][..], &["--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
        let mut command = env.command(&[&["send", "data.bin"], &HERE[..], json].concat());
        let begin = Instant::now();
        let output = command.stdout(full).output().expect("it ran");
        assert_eq!(output.status.code(), Some(11), "{json:?}");
        assert!(begin.elapsed() < LIMIT);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("No space left on device"), "{said}");
        assert!(!json.is_empty() || said.contains("the ticket cannot be written"), "{said}");
    }
}

/// As a shell's `>&-` does it.
fn without(stream: &str, env: &Env, args: &[&str]) -> Finished {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec \"$0\" \"$@\" {stream}")])
        .arg(env!("CARGO_BIN_EXE_netblt"))
        .args(args)
        .current_dir(env.path(""))
        .env_clear()
        .env("TMPDIR", env.make_directory("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::new(command).finish()
}

#[test]
fn a_listener_with_closed_or_discarded_output_does_not_wait() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    for args in [
        &["send", "data.bin"][..],
        &["send", "data.bin", "--json"],
        &["receive", "."],
        &["serve", "--root", "."],
        &["serve", "--root", ".", "--json"],
        &["bench", "-s", "--private"],
        &["bench", "-s", "--private", "--json"],
    ] {
        let args = [args, &HERE[..], &["--port", "0"]].concat();
        for stream in [">&-", ">/dev/null"] {
            let ended = without(stream, &env, &args).exits(11);
            // JSON says it there, too.
            if !args.contains(&"--json") {
                ended.says("standard output is closed, or leads to /dev/null");
            }
        }
    }
    // Here the ticket goes to standard error; a full device takes nothing either.
    let args = ["receive", "-", "--bind", "127.0.0.1"];
    for stream in ["2>&-", "2>/dev/null", "2>/dev/full"] {
        without(stream, &env, &args).exits(11);
    }
    // What is read elsewhere is enough.
    let args = ["keygen", "key", "--comment", "c"];
    without(">&-", &env, &args).exits(0);
    assert!(env.path("key.pub").exists());
}

#[test]
fn too_little_memory_is_an_error_and_no_abort() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    // Enough for the program, not for its 48 buffers of 1 MiB.
    let run = run_limited(&env, "-v 50000", &["send", "data.bin", "--bind", "127.0.0.1"]);
    run.exits(5).says("there is no memory for 48 buffers").says("--buffers");
    let few = ["send", "data.bin", "--bind", "127.0.0.1", "--buffers", "4"];
    let mut running = Running::new(limited(&env, "-v 120000", &few));
    assert!(running.line().starts_with("netblt1:"));
    running.signal(Signal::INT);
    running.finish().exits(20);
}

/// Enough for the program, not for one buffer and what must be left beside it.
#[test]
fn a_test_without_memory_ends_with_an_error_at_both_ends() {
    let env = Env::new();
    let serve = ["bench", "-s", "--one-off", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = Running::new(limited(&env, "-v 40000", &serve));
    let addresses = server.event("listening", |_| true);
    let address = addresses["addresses"][0].as_str().expect("text").to_owned();
    let call = ["bench", "-c", &address, "-t", "1"];
    env.run(&call).exits(12).says("the server has no memory for a test");
    server.finish();

    let large = ["--buffer-size", "64MiB"];
    let mut server = env.start(&[&serve[..], &large].concat());
    let addresses = server.event("listening", |_| true);
    let address = addresses["addresses"][0].as_str().expect("text").to_owned();
    let call = [&["bench", "-c", &address, "-t", "1"], &large[..]].concat();
    run_limited(&env, "-v 70000", &call).exits(5).says("there is no memory for 1 buffers");
    server.finish();
}

#[test]
fn a_test_whose_threads_cannot_all_be_started_says_so() {
    let env = Env::new();
    let mut server = env.start(&["bench", "-s", "--json", "--bind", "127.0.0.1", "--port", "0"]);
    let addresses = server.event("listening", |_| true);
    let address = addresses["addresses"][0].as_str().expect("text").to_owned();
    // The one that waits for signals and two connections, and room for what is small.
    let call = ["bench", "-c", &address, "-t", "300", "-P", "4"];
    let mut call = limited(&env, "-v 4000000", &call);
    call.env("RUST_MIN_STACK", (1 << 30).to_string());
    // Long before the time of the test is over.
    Running::new(call).finish().exits(5).says("cannot start a thread for a connection");
    server.signal(Signal::INT);
    server.finish().exits(0);
}

#[test]
fn a_limit_for_files_is_an_error_with_its_name() {
    let env = Env::new();
    env.make_file("data.bin", 3_000_000);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let receiver = run_limited(&env, "-f 1000", &["receive", &ticket, "to"]);
    receiver.exits(23).says("data.bin: is larger than the limit for files (ulimit -f)");
    sender.finish().exits(23);
    assert_eq!(env.names("to"), Vec::<String>::new());
}

/// Whether it comes as one extent or as many, and whatever else there is.
#[test]
fn one_file_over_a_limit_is_left_out_and_the_others_arrive() {
    let env = Env::new();
    env.make_directory("t");
    env.make_directory("to");
    let small = env.make_file("t/a", 5000);
    env.make_file("t/large", 3_000_000);
    env.make_file("t/larger", 20_000_000);
    env.make_file("t/z", 5000);
    let (sender, ticket) = listen(&env, &["send", "t"]);
    let receiver = run_limited(&env, "-f 1000", &["receive", &ticket, "to"]).exits(23);
    assert!(receiver.stderr.contains("t/large:"), "{}", receiver.stderr);
    let receiver = receiver.says("t/larger: is larger than the limit for files (ulimit -f)");
    assert!(!receiver.stderr.contains("nothing was kept"), "{}", receiver.stderr);
    sender.finish().exits(23);
    assert_eq!(env.names("to/t"), ["a", "z"]);
    assert_eq!(fs::read(env.path("to/t/a")).expect("there"), small);
    assert_eq!(env.names("to"), ["t"]);
    fs::remove_dir_all(env.path("to/t")).expect("removed");
    let (sender, ticket) = listen(&env, &["send", "--atomic", "t"]);
    let all = ["receive", "--atomic", &ticket, "to"];
    run_limited(&env, "-f 1000", &all).exits(11).says("ulimit -f");
    sender.finish().exits(12);
    assert!(!env.path("to/t").exists());
}

#[test]
fn few_open_files_are_enough_or_named() {
    let env = Env::new();
    for i in 0..100 {
        env.make_file(&format!("from-{i}"), 5000);
    }
    let names: Vec<String> = (0..100).map(|i| format!("from-{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (limit, enough) in [("-n 24", true), ("-n 20", true), ("-n 12", false)] {
        env.make_directory("to");
        let (sender, ticket) = listen(&env, &[&["send"], &names[..]].concat());
        let receiver = run_limited(&env, limit, &["receive", &ticket, "to"]);
        if receiver.code != Some(0) {
            assert!(!enough, "{}", receiver.stderr);
            assert!(receiver.stderr.contains("open files"), "{}", receiver.stderr);
            sender.signal(Signal::INT);
        } else {
            assert_eq!(env.names("to").len(), 100);
        }
        sender.finish();
        fs::remove_dir_all(env.path("to")).expect("removed");
    }
}

#[test]
fn a_process_with_a_secret_leaves_no_core_dump() {
    let env = Env::new();
    env.make_file("data.bin", 10);
    let (sender, _) = listen(&env, &["send", "data.bin"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", sender.id())).expect("its limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core = core.expect("a limit").split_whitespace().nth(4).map(str::to_owned);
    assert_eq!(core.as_deref(), Some("0"));
    sender.signal(Signal::QUIT);
    sender.finish().exits(20);
}

#[test]
fn a_transfer_over_max_size_or_max_files_is_refused() {
    let env = Env::new();
    env.make_directory("many/deep");
    env.make_file("many/a", 1000);
    env.make_file("many/deep/b", 1000);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "many"]);
    for (limit, value, says) in [
        ("--max-size", "1999B", "more than 1999 bytes"),
        ("--max-files", "3", "more than 3 files and directories"),
    ] {
        env.run(&["receive", &ticket, "to", limit, value]).exits(11).says(says).says(limit);
        assert_eq!(env.names("to"), Vec::<String>::new());
    }
    // Who refuses does not end a sender that listens.
    env.run(&["receive", &ticket, "to", "--max-size", "2kB", "--max-files", "4"]).exits(0);
    sender.finish().exits(0).says("The other side refused: the sender sends more than 1999 bytes");
}
