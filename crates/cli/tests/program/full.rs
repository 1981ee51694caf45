//! Where a disk is full, or the reader of a pipe went away: what was to be written is named, the
//! exit code is not 0, and the summary of a transfer is true.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::testenv::{Env, Finished, Running, programs};

const NO_SPACE: &str = "cannot write: No space left on device";

/// Commands that do nothing but write to standard output.
const WRITERS: [&[&str]; 11] = [
    &["--help"],
    &["--version"],
    &["send", "--help"],
    &["completions", "bash"],
    &["emulate", "list"],
    &["plan", "--rate", "100Mbit", "--rtt", "50ms"],
    &["plan", "--rate", "100Mbit", "--rtt", "50ms", "--json"],
    &["simulate", "--seed", "1"],
    &["clean"],
    &["clean", "--json"],
    &["report", "trace", "trace", "--out", "-"],
];

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("it is there").into()
}

/// A pipe whose other end is closed.
fn broken() -> Stdio {
    let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().expect("it runs");
    let pipe = reader.stdin.take().expect("a pipe");
    reader.wait().expect("its end");
    pipe.into()
}

fn traced() -> Env {
    let env = Env::new();
    let side = r#"{"entered_packets":1,"delivered_bytes":1250,"mbps":1.0}"#;
    let sample =
        format!(r#"{{"event":"sample","data":{{"seconds":1,"up":{side},"down":{side}}}}}"#);
    fs::write(env.path("trace"), format!("{sample}\n{sample}\n")).expect("written");
    env
}

#[test]
fn a_full_standard_output_is_an_error_that_is_named_once() {
    let env = traced();
    for args in WRITERS {
        let mut command = env.command(args);
        command.stdout(full());
        let run = Running::new(command).finish().exits(11);
        let name = programs::name_of(programs::with_command(args[0])).expect("a program");
        let expected = format!("{name}: standard output: {NO_SPACE}\n");
        assert_eq!(run.stderr, expected, "{args:?}");
    }
}

#[test]
fn a_reader_that_went_away_ends_a_command_by_the_signal_and_in_silence() {
    let env = traced();
    for args in WRITERS {
        let mut command = env.command(args);
        command.stdout(broken());
        let run = Running::new(command).finish();
        // A signal's end has no code.
        assert_eq!((run.code, run.stderr.as_str()), (None, ""), "{args:?}");
    }
}

#[test]
fn a_full_standard_error_stops_nothing() {
    let env = Env::new();
    for args in [&["keygen", "key"][..], &["send", "missing"], &["send", "--nonsense"]] {
        let mut command = env.command(args);
        command.stderr(full()).stdout(Stdio::null());
        let code = command.status().expect("it runs").code();
        let wanted = match args[1] {
            "key" => 0,
            "missing" => 11,
            _ => 1,
        };
        assert_eq!(code, Some(wanted), "{args:?}");
    }
}

/// One transfer of `data` into `to`: each side with these options, and where the receiver's
/// standard output goes.
fn transfer(
    env: &Env,
    sender: &[&str],
    receiver: &[&str],
    to: Option<Stdio>,
) -> (Finished, Finished) {
    env.make_directory("to");
    let send = ["send", "data", "--bind", "127.0.0.1"];
    let mut sender = env.start(&[&send[..], sender].concat());
    let ticket = sender.line();
    let receive = ["receive", &ticket, "--overwrite", "always"];
    let mut command = env.command(&[&receive[..], receiver].concat());
    if let Some(to) = to {
        command.stdout(to);
    }
    let receiver = Running::new(command);
    (sender.finish(), receiver.finish())
}

#[test]
fn a_side_output_of_a_transfer_that_cannot_be_written_is_named() {
    let env = Env::new();
    let data = env.make_file("data", 300_000);
    symlink("/dev/full", env.path("full.html")).expect("made");
    let files = ["--manifest", "/dev/full", "--report", "full.html"];
    let there = [&["to"][..], &files].concat();
    for run in <[Finished; 2]>::from(transfer(&env, &files, &there, None)) {
        let run = run.exits(11).says("/dev/full: cannot write the list of what was transferred");
        run.says("full.html: cannot write: No space left on device").says(": verified.");
    }
    assert_eq!(fs::read(env.path("to/data")).expect("stored"), data);
    let trace = ["--trace", "/dev/full"];
    let there = ["to", "--trace", "/dev/full", "--json"];
    let (sent, received) = transfer(&env, &trace, &there, None);
    sent.exits(11).says("/dev/full: cannot write the trace: No space left").says(": verified.");
    let received = received.exits(11);
    assert_eq!(received.last_event("summary")["verified"], true);
    let output = received.text();
    let error = output.lines().find(|line| line.contains(r#""event":"error""#)).expect(&output);
    assert!(error.contains("/dev/full: cannot write the trace: No space left"), "{error}");
    // It would be read for ever.
    let args = ["send", "data", "--trace", "/dev/full", "--report", "page.html"];
    env.run(&args).exits(1).says("--trace /dev/full: --report reads the trace again");
}

#[test]
fn a_transfer_outlives_the_reader_of_its_events() {
    let env = Env::new();
    let data = env.make_file("data", 300_000);
    let (sent, received) = transfer(&env, &[], &["to", "--json"], Some(full()));
    sent.exits(0);
    let received = received.exits(11).says(&format!("netblt: standard output: {NO_SPACE}\n"));
    received.says("Received 1 file, 292.97 KiB in ").says(": verified.");
    assert_eq!(fs::read(env.path("to/data")).expect("stored"), data);
    fs::remove_file(env.path("to/data")).expect("removed");
    let (sent, received) = transfer(&env, &[], &["to", "--json"], Some(broken()));
    sent.exits(0);
    assert_eq!(received.exits(0).stderr, "");
    assert_eq!(fs::read(env.path("to/data")).expect("stored"), data);
    // Without the ticket no peer comes.
    let mut command = env.command(&["send", "data", "--bind", "127.0.0.1"]);
    command.stdout(full());
    Running::new(command).finish().exits(11).says("without it no peer can connect: No space left");
}

#[test]
fn a_stream_whose_reader_went_away_ends_in_silence_and_a_full_disk_does_not() {
    let env = Env::new();
    env.make_file("data", 3_000_000);
    let (sent, received) = transfer(&env, &[], &["-", "--quiet"], Some(broken()));
    sent.exits(12);
    assert_eq!((received.code, received.stderr.as_str()), (None, ""));
    let (sent, received) = transfer(&env, &[], &["-", "--quiet"], Some(full()));
    sent.exits(12);
    received.exits(11).says("standard output: ").says("No space left on device");
    let (_, received) = transfer(&env, &[], &["-", "--json"], Some(broken()));
    assert!(
        received.stderr.contains(r#"standard output: cannot write: Broken pipe"#),
        "{}",
        received.stderr
    );
}

#[test]
fn a_list_whose_reader_went_away_ends_by_the_signal() {
    let env = Env::new();
    env.make_directory("root");
    (0..200).for_each(|n| _ = env.make_file(&format!("root/{n}"), 1));
    let serve = ["serve", "--root", "root", "--bind", "127.0.0.1", "--port", "0"];
    let serve = [&serve[..], &["--ticket-file", "ticket", "--json"]].concat();
    let mut server = env.start(&serve);
    server.event("listening", |_| true);
    let ls = ["ls", "--ticket-file", "ticket", "netblt:///"];
    let mut command = env.command(&ls);
    command.stdout(broken());
    let run = Running::new(command).finish();
    assert_eq!((run.code, run.stderr.as_str()), (None, ""));
    for json in [&[][..], &["--json"]] {
        let mut command = env.command(&[&ls[..], json].concat());
        command.stdout(full());
        let run = Running::new(command).finish().exits(11);
        assert_eq!(run.stderr, format!("netblt: standard output: {NO_SPACE}\n"));
    }
    // One line is read, and there are more.
    let mut child = env.command(&ls).spawn().expect("it runs");
    let mut line = [0; 2];
    child.stdout.take().expect("a pipe").read_exact(&mut line).expect("the first");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    server.signal(rustix::process::Signal::TERM);
    server.finish().exits(0);
}
