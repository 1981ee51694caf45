//! What is drawn and what is printed while a transfer runs: on terminals of any width, without one,
//! and of names that would steer a terminal.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::testenv::{self, Env, Running, installed, skip, text};

/// A slow sender of `t`, and its ticket.
fn slow_sender(env: &Env, name: &str) -> (Running, String) {
    fs::create_dir_all(env.path("t")).expect("made");
    for n in 0..3 {
        let path = env.path(&format!("t/{n} {name}"));
        fs::write(path, testenv::noise(1_200_000)).expect("written");
    }
    let args = ["send", "t", "--bind", "127.0.0.1", "--quiet", "--rate", "16Mbit"];
    let mut sender = env.start(&args);
    let ticket = sender.line();
    (sender, ticket)
}

#[test]
fn the_bar_fits_terminals_of_any_width() {
    if !installed("script") {
        return skip("needs script (util-linux)");
    }
    for columns in [25_usize, 60, 80, 120] {
        let env = Env::new();
        let (sender, ticket) = slow_sender(&env, "with a name that is long enough to be cut.jpg");
        env.make_directory("to");
        let program = env!("CARGO_BIN_EXE_netblt");
        let inner = format!("stty cols {columns} rows 24; exec '{program}' receive to");
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &inner, "/dev/null"]);
        let locale = if columns == 120 { "C.UTF-8" } else { "C" };
        command.current_dir(env.path(".")).env("TERM", "xterm").env("NETBLT_TICKET", &ticket);
        command.env("LC_ALL", locale);
        command.env_remove("NO_COLOR").stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let shown = Running::new(command).finish().exits(0).text();
        sender.finish().exits(0);
        let plain = without_escapes(&shown);
        let plain = plain.split("Received ").next().expect("the first");
        let drawn: Vec<&str> = plain
            .split(['\r', '\n'])
            .filter(|line| line.contains("left") || line.contains(" of "))
            .collect();
        assert!(drawn.len() > 3, "{plain}");
        for line in &drawn {
            assert!(line.trim_end().chars().count() < columns.max(26), "{columns}: {line:?}");
        }
        assert_eq!(plain.contains("RTT"), columns == 120, "{plain}");
        assert_eq!(plain.contains("2 of 3"), columns > 25, "{plain}");
        assert!(plain.contains("s left"), "{plain}");
        // In such a locale there is ASCII alone. The usual width has the bar, and a name.
        assert_eq!(plain.is_ascii(), locale == "C", "{plain}");
        let bar = if locale == "C" { "=>" } else { "━╸" };
        assert!(plain.contains(bar) || columns == 25, "{columns}: {plain}");
        let drawn = plain.split("Connected to ").nth(1).expect("what is drawn");
        assert_eq!(drawn.contains("..."), columns >= 80, "{columns}: {plain}");
    }
}

/// What stands on the screen in the end, as far as lines go.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A control sequence ends with a letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
            plain.push('\r');
        } else {
            plain.push(c);
        }
    }
    plain
}

#[test]
fn without_a_terminal_there_are_lines_if_asked_for() {
    let env = Env::new();
    let (sender, ticket) = slow_sender(&env, "x");
    env.make_directory("to");
    let received = env.run(&["receive", &ticket, "to", "--progress=200ms"]).exits(0);
    sender.finish().exits(0);
    let lines =
        received.stderr.lines().filter(|line| line.contains(" % ") && line.contains(" of 3 "));
    assert!(lines.count() >= 3, "{}", received.stderr);
    let (sender, ticket) = slow_sender(&env, "x");
    let received = env.run(&["receive", &ticket, "to", "--overwrite", "always"]).exits(0);
    sender.finish().exits(0);
    assert!(!received.stderr.contains(" % "), "{}", received.stderr);
    env.run(&["receive", "--progress", "--quiet"]).exits(1).says("cannot be used with");
}

#[test]
fn json_progress_names_the_file() {
    let env = Env::new();
    fs::create_dir_all(env.path("t")).expect("made");
    fs::write(env.path("t/a"), testenv::noise(3_000_000)).expect("written");
    fs::write(env.path("t/b"), testenv::noise(3_000_000)).expect("written");
    let args = ["send", "t", "--bind", "127.0.0.1", "--json", "--rate", "16Mbit"];
    let mut sender = env.start(&args);
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    env.make_directory("to");
    let receiver = env.start(&["receive", &ticket, "to", "--quiet"]);
    let progress = sender.event("progress", |data| data["file"] == 2);
    assert_eq!((&progress["files"], &progress["name"]), (&2.into(), &"t/b".into()));
    sender.finish().exits(0);
    receiver.finish().exits(0);
}

#[test]
fn names_with_escape_sequences_are_shown_as_text() {
    let env = Env::new();
    let tame = |what: &str, shown: &str| {
        let wild = |c: char| c.is_control() && c != '\n' && c != '\r' && c != '\t';
        assert!(!shown.chars().any(wild), "{what}: {shown:?}");
    };
    fs::create_dir_all(env.path("t")).expect("made");
    fs::write(env.path("t/good"), "good").expect("written");
    let name = "evil\u{1b}[2J\u{7}\n\u{9b}2J";
    let name = OsString::from_vec(name.bytes().chain(*b"\xff.txt").collect());
    fs::write(env.path("t").join(&name), "evil").expect("written");
    env.make_directory("to");
    for json in [false, true] {
        let option = if json { "--json" } else { "--progress=1ms" };
        let mut sender = env.start(&["send", "t", "--bind", "127.0.0.1", option]);
        let ticket = match json {
            false => sender.line(),
            true => {
                let listening = sender.event("listening", |_| true);
                listening["ticket"].as_str().expect("text").to_owned()
            }
        };
        let listed = env.run(&["receive", &ticket, "--list", option]).exits(0);
        tame("list", &(listed.text() + &listed.stderr));
        let got = env.run(&["receive", &ticket, "to", "--overwrite", "always", option]).exits(0);
        tame("receive", &(got.text() + &got.stderr));
        let sent = sender.finish().exits(0);
        tame("send", &(sent.text() + &sent.stderr));
        assert_eq!(fs::read(env.path("to/t").join(&name)).expect("read"), b"evil");
    }
    let evil = text(&env.path("t").join("evil\u{1b}[2J"));
    for args in [
        &["send", &evil][..],
        &["receive", &evil],
        &["receive", "netblt1:\u{1b}[2J"],
        &["clean", &evil],
        &["cp", &evil, "host:"],
        &["cp", "host:\u{1b}[2J", "--remote-netblt", "\u{1b}[2J", "."],
        &["send", "t", "--files-from", &evil],
        &["report", "transfer", &evil],
        &["report", "trace", &evil],
        &["simulate", "--scenario", &evil],
        &["\u{1b}[2J"],
        &["send", "--\u{1b}[2J"],
    ] {
        let run = env.run(args);
        assert_ne!(run.code, Some(0), "{args:?}");
        tame(&format!("{args:?}"), &(run.text() + &run.stderr));
    }
}
