//! `netblt cp` in a terminal: Ctrl-C goes to it and to its ssh alike, as to all programs of a job.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::testenv::sshd::Sshd;
use crate::testenv::{Env, Finished, Running, installed, noise, skip, wait_until};

const CTRL_C: &[u8] = b"\x03";

/// Runs a command in a terminal of its own, of which it is the foreground job. Ctrl-C is typed
/// when `ready`.
fn interrupted(env: &Env, args: &[String], ready: impl Fn() -> bool) -> Finished {
    let quoted = |word: &String| format!("'{word}'");
    let words: Vec<String> = args.iter().map(quoted).collect();
    let line = format!("exec {} {}", env!("CARGO_BIN_EXE_netblt"), words.join(" "));
    let mut command = Command::new("script");
    command
        .args(["-q", "-e", "-f", "-c", &line, "/dev/null"])
        .current_dir(env.path("near"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "dumb")
        .env("TMPDIR", env.make_directory("tmp"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (mut running, mut keyboard) = Running::with_input(command);
    wait_until("it is time for Ctrl-C", ready);
    keyboard.write_all(CTRL_C).expect("typed");
    running.wait();
    drop(keyboard);
    running.finish()
}

fn sshd(env: &Env, login: &str) -> Option<Sshd> {
    if !installed("script") {
        skip("needs script");
        return None;
    }
    Sshd::start(env, login)
}

/// Whether a copy into this directory is under way, with something of it on the disk.
fn is_under_way(directory: &Path) -> bool {
    let entries = fs::read_dir(directory.join(".netblt-partial")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).any(|metadata| metadata.len() > 1 << 20)
}

#[test]
fn ctrl_c_stops_a_copy_over_ssh_and_is_no_fault_of_the_connection() {
    let env = Env::new();
    let Some(sshd) = sshd(&env, "") else { return };
    env.make_directory("far");
    fs::write(env.path("near/up"), noise(60_000_000)).expect("written");
    fs::write(env.path("far/down"), noise(60_000_000)).expect("written");
    let far = |name: &str| format!("there:{}", env.path("far").join(name).display());
    for fallback in ["never", "always"] {
        for (args, to) in [(["up", &far("")], "far"), ([&far("down"), "."], "near")] {
            let _ = fs::remove_dir_all(env.path(to).join(".netblt-partial"));
            let all = [&["--rate", "20Mbit", "--fallback", fallback][..], &args].concat();
            let ended = interrupted(&env, &sshd.words(&all), || is_under_way(&env.path(to)));
            let ended = ended.exits(20);
            let text = ended.text();
            for words in ["netblt: stopped", "partial files", ".netblt-partial"] {
                assert!(text.contains(words), "no {words:?} in {fallback} {args:?}: {text}");
            }
            assert!(!text.contains("connection has ended"), "{fallback} {args:?}: {text}");
        }
    }
}

#[test]
fn ctrl_c_before_a_copy_has_begun_is_reported_as_such() {
    let env = Env::new();
    let hello = format!("command=\"touch {}; exec sleep 60\"", env.path("login").display());
    let Some(sshd) = sshd(&env, &hello) else { return };
    fs::write(env.path("near/up"), "up").expect("written");
    for args in [&["up", "there:"][..], &["there:x", "."], &["there:x", "there:y"]] {
        let _ = fs::remove_file(env.path("login"));
        let begun = || env.path("login").exists();
        let ended = interrupted(&env, &sshd.words(args), begun).exits(20);
        assert!(ended.text().contains("netblt: stopped"), "{args:?}: {}", ended.text());
        assert!(!ended.text().contains("does not answer"), "{args:?}: {}", ended.text());
    }
}
