//! README's section "Use it" and the guide to tickets, followed word by word: their commands are
//! run by a shell, on two machines that are two directories, and print what the pages show.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::testenv::far::{Setting, program_directory};
use crate::testenv::{self, Env, Finished, Running, noise};

/// A command of a page, and the lines that the page shows below it.
#[derive(Debug)]
struct Step {
    /// `$`, `a$`, `b$`, `server$` or `client$`.
    prompt: String,
    command: String,
    shown: Vec<String>,
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(path).expect(name)
}

/// The commands in the `console` blocks of a section, in order.
fn steps(name: &str, section: &str) -> Vec<Step> {
    let text = page(name);
    let section = text.split(&format!("\n## {section}\n")).nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        match line.split_once("$ ") {
            Some((who, command)) if ["", "a", "b", "server", "client"].contains(&who) => {
                let (prompt, command) = (format!("{who}$"), command.to_owned());
                steps.push(Step { prompt, command, shown: Vec::new() });
            }
            _ => steps.last_mut().expect("a command").shown.push(line.to_owned()),
        }
    }
    steps
}

/// A shell that runs this in `near` or `far`, in which `ssh` leads to the other one and `/srv` is
/// of no other test.
fn shell(setting: &Setting, place: &str, line: &str) -> Command {
    let bin = setting.env.make_directory("bin");
    let _ = std::os::unix::fs::symlink(&setting.ssh, bin.join("ssh"));
    let srv = setting.env.make_directory("srv");
    let inner = format!("mount --bind '{}' /srv && exec sh -c \"$1\"", srv.display());
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &inner, "sh", line])
        .current_dir(setting.env.path(place))
        .env_clear()
        .env(
            "PATH",
            format!("{}:{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display(), program_directory()),
        )
        .env("HOME", setting.env.path(place))
        .env("TMPDIR", setting.env.make_directory("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A line without its numbers, their units, and tickets.
fn words(line: &str) -> String {
    const UNITS: [&str; 8] = ["B", "KiB", "MiB", "GiB", "ms", "s", "min", "us"];
    let word = |word: &&str| {
        let is_number = word.contains(|c: char| c.is_ascii_digit());
        !is_number && !UNITS.contains(&word.trim_end_matches([':', ',']))
    };
    line.split_whitespace().filter(word).collect::<Vec<_>>().join(" ")
}

/// The lines that the page shows were printed, in this order.
fn printed(step: &Step, run: &Finished) {
    let all = format!("{}{}", run.text(), run.stderr);
    let mut lines = all.lines().map(words);
    for shown in &step.shown {
        let shown = words(shown);
        assert!(lines.any(|line| line == shown), "{step:?} printed:\n{all}");
    }
}

/// Runs the commands: a `$` alone, and of `a$` and `b$` one that prints a ticket and the next one,
/// which uses it.
fn follow(setting: &Setting, steps: &[Step]) {
    let place = |step: &Step| if step.prompt == "b$" { "far" } else { "near" };
    let start = |step: &Step, line: &str| Running::new(shell(setting, place(step), line));
    let mut listening: Option<(&Step, Running, String)> = None;
    for step in steps {
        if let Some((first, waits, ticket)) = listening.take() {
            assert!(step.command.contains("netblt1:..."), "nothing connects to {first:?}");
            let line = step.command.replace("netblt1:...", &ticket);
            let run = start(step, &line).finish();
            printed(step, &run.exits(0));
            waits.finish().exits(0);
        } else if step.prompt == "$" || step.command.starts_with("mkdir ") {
            let run = start(step, &step.command).finish();
            printed(step, &run.exits(0));
        } else {
            let mut waits = start(step, &step.command);
            let ticket = waits.line();
            listening = Some((step, waits, ticket));
        }
    }
    assert!(listening.is_none(), "nothing connects to the last one");
}

fn setting(content: &[u8]) -> Setting {
    let setting = Setting::new();
    for name in [
        "near/big.iso",
        "near/photos/1.jpg",
        "near/photos/2.jpg",
        "near/notes.txt",
        "far/logs/a.gz",
        "far/logs/b.gz",
    ] {
        setting.put(name, content);
    }
    setting
}

fn arrived(setting: &Setting, content: &[u8], names: &[&str]) {
    for name in names {
        let found = fs::read(setting.env.path(name)).unwrap_or_default();
        assert!(found == content, "{name} did not arrive");
    }
}

#[test]
fn the_quick_start_works_word_by_word() {
    if !testenv::able(&["unshare", "mount"], &["/srv"]) {
        return;
    }
    let content = noise(300_000);
    let setting = setting(&content);
    let all = steps("README.md", "Use it");
    assert!(all[0].command.starts_with("netblt cp "), "{all:?}");
    // Server and client need names and a port of their own: `packaging/try-readme` follows them.
    let (served, local): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|step| ["server$", "client$"].contains(&step.prompt.as_str()));
    assert!(served.len() == 4 && local.len() == 7, "README has other commands now: {local:?}");
    follow(&setting, &local);
    let names = [
        "far/big.iso",
        "srv/photos/1.jpg",
        "near/a.gz",
        "near/b.gz",
        "far/album/2.jpg",
        "far/downloads/photos/1.jpg",
        "far/downloads/notes.txt",
    ];
    arrived(&setting, &content, &names);
}

#[test]
fn the_guide_to_tickets_works_word_by_word() {
    if !testenv::able(&["unshare", "mount", "tar"], &["/srv"]) {
        return;
    }
    let content = noise(300_000);
    let setting = setting(&content);
    let all = steps("docs/guide/send-receive.md", "With a ticket");
    assert_eq!(all.len(), 7, "the guide has other commands now: {all:?}");
    follow(&setting, &all);
    let names =
        ["far/inbox/photos/1.jpg", "far/inbox/notes.txt", "far/inbox/big.iso", "far/photos/2.jpg"];
    arrived(&setting, &content, &names);
}

#[test]
fn every_field_of_a_transfers_events_is_in_the_reference() {
    let reference = page("docs/reference/json.md");
    let env = Env::new();
    env.make_file("data.bin", 3_000_000);
    env.make_directory("to");
    let mut sender =
        Running::new(env.command(&["send", "data.bin", "--json", "--bind", "127.0.0.1"]));
    let listening: Value = serde_json::from_str(&sender.line()).expect("an event");
    let ticket = listening["data"]["ticket"].as_str().expect("a ticket").to_owned();
    let received = env.run(&["receive", &ticket, "to", "--json"]).exits(0).text();
    let sent = sender.finish().exits(0).text();
    let mut missing = BTreeSet::new();
    for line in received.lines().chain(sent.lines()) {
        let line: Value = serde_json::from_str(line).expect(line);
        let data = line["data"].as_object().expect("an object");
        let names = data.keys().map(String::as_str).chain(line["event"].as_str());
        let unknown = names.filter(|name| !reference.contains(&format!("`{name}`")));
        missing.extend(unknown.map(str::to_owned));
    }
    assert!(missing.is_empty(), "docs/reference/json.md lacks {missing:?}");
}
