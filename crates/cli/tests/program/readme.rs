//! README's section "Use it", followed word by word: what stands there is run by a shell, on two
//! machines that are two directories.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::testenv::far::{Setting, program_directory};
use crate::testenv::{self, Running, noise};

/// The commands of the section, in order, each with its `a$` or `b$` if it has one.
fn commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).expect("README.md");
    let section = text.split("\n## Use it\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    let starts = ["netblt ", "a$ ", "b$ "];
    let lines = lines.filter(|line| starts.iter().any(|start| line.starts_with(start)));
    lines.map(str::to_owned).collect()
}

/// A shell that runs this in `near` or `far`, in which `ssh` leads to the other one and `/srv` is
/// nobody else's.
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

#[test]
fn the_quick_start_works_word_by_word() {
    if !testenv::able(&["unshare", "mount", "tar"], &["/srv"]) {
        return;
    }
    let setting = Setting::new();
    let content = noise(300_000);
    for name in ["near/big.iso", "near/photos/1.jpg", "near/notes.txt", "far/logs/a.gz"] {
        setting.put(name, &content);
    }
    setting.env.make_directory("far/downloads");
    let (made, all): (Vec<_>, Vec<_>) =
        commands().into_iter().partition(|line| line == "b$ mkdir downloads");
    assert_eq!(made.len(), 1, "README makes no directory for what comes");
    let (alone, pairs): (Vec<_>, Vec<_>) = all.iter().partition(|line| line.starts_with("netblt"));
    assert!(alone.len() == 3 && pairs.len() == 6, "README has other commands now: {all:?}");
    assert!(all[0].starts_with("netblt cp "), "{all:?}");
    for line in alone {
        Running::new(shell(&setting, "near", line)).finish().exits(0);
    }
    for pair in pairs.chunks(2) {
        let [first, second] = pair else { panic!("one command is alone: {pair:?}") };
        let place = |line: &str| if line.starts_with("a$") { "near" } else { "far" };
        let mut listening = Running::new(shell(&setting, place(first), &first[3..]));
        let ticket = listening.line();
        assert!(second.contains("netblt1:..."), "{second}");
        let line = second[3..].replace("netblt1:...", &ticket);
        Running::new(shell(&setting, place(second), &line)).finish().exits(0);
        listening.finish().exits(0);
    }
    for name in [
        "far/big.iso",
        "srv/photos/1.jpg",
        "near/a.gz",
        "far/downloads/photos/1.jpg",
        "far/downloads/notes.txt",
        "far/downloads/big.iso",
        "far/photos/1.jpg",
    ] {
        let arrived = fs::read(setting.env.path(name)).unwrap_or_default();
        assert!(arrived == content, "{name} did not arrive");
    }
}
