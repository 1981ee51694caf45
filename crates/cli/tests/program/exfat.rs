//! What a stick in everybody's pocket cannot hold: exFAT takes names that differ in case for one,
//! knows neither links nor permissions, and refuses some characters. What it can hold arrives.
//! Needs root, a loop device and FUSE's exFAT (Debian's exfat-fuse and exfatprogs), else skipped.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testenv::far::Setting;
use crate::testenv::{self, Env, noise, skip, tree, wait_until};

const MIB: usize = 1 << 20;
const HERE: [&str; 3] = ["--bind", "127.0.0.1", "--json"];

/// Such a file system, until it is dropped.
struct Stick {
    device: String,
    at: PathBuf,
}

impl Stick {
    /// None, with a counted message, where that cannot be made.
    fn mounted(env: &Env, at: &str) -> Option<Self> {
        let programs = ["losetup", "mkfs.exfat", "mount.exfat-fuse", "umount"];
        if !testenv::able(&programs, &["/dev/fuse", "/dev/loop-control"]) {
            return None;
        }
        let image = env.path("image");
        fs::File::create(&image).expect("made").set_len(64 * MIB as u64).expect("grown");
        assert!(output_of("mkfs.exfat", &[&image]).is_some(), "it is large enough");
        let Some(device) = output_of("losetup", &[Path::new("-f"), Path::new("--show"), &image])
        else {
            skip("there is no free loop device");
            return None;
        };
        let stick = Self { device, at: env.make_directory(at) };
        if output_of("mount.exfat-fuse", &[Path::new(&stick.device), &stick.at]).is_none() {
            skip("exFAT cannot be mounted");
            return None;
        }
        // Its program is in place a little after it said so.
        let there = || fs::read_to_string("/proc/mounts").expect("read");
        wait_until("it is mounted", || there().contains(&*stick.at.to_string_lossy()));
        Some(stick)
    }
}

impl Drop for Stick {
    fn drop(&mut self) {
        let _ = output_of("umount", &[&self.at]);
        let _ = output_of("losetup", &[Path::new("-d"), Path::new(&self.device)]);
    }
}

fn output_of(program: &str, args: &[&Path]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(said)
}

#[test]
fn names_that_exfat_cannot_store_are_named_and_the_rest_arrives() {
    let env = Env::new();
    let Some(_stick) = Stick::mounted(&env, "to") else { return };
    for directory in ["Dir", "dir", "sub", "bad?dir/inner", "em*pty"] {
        env.make_directory(&format!("t/{directory}"));
    }
    let files = ["File", "file", "Dir/x", "dir/X", "dir/y", "sub/STRASSE", "sub/straße", "É", "é"];
    let forms = ["sub/caf\u{e9}", "sub/cafe\u{301}"];
    let bad = ["a:b", "bad?dir/inner/f"];
    for name in files.iter().chain(&forms).chain(&bad) {
        fs::write(env.path("t").join(name), name).expect("written");
    }
    fs::write(env.path("t/no:thing"), "").expect("written");
    let big = env.make_file("t/big", 3 * MIB);
    fs::hard_link(env.path("t/big"), env.path("t/big too")).expect("linked");
    std::os::unix::fs::symlink("File", env.path("t/link")).expect("linked");
    let mut sender = env.start(&[&["send", "t"][..], &HERE].concat());
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    let received = env.run(&[&["receive", &ticket, "to"][..], &HERE].concat()).exits(23);
    sender.finish().exits(23);
    let received = received.last_event("summary");
    assert_eq!(received["verified"], true);
    let mut there: BTreeMap<String, Option<Vec<u8>>> = tree(&env.path("to"));
    // Nothing is left beside it, and another name of a file is a file of its own.
    assert!(there.keys().all(|name| name == "t" || name.starts_with("t/")), "{:?}", there.keys());
    for name in ["big", "big too"] {
        assert_eq!(there.remove(&format!("t/{name}")), Some(Some(big.clone())));
    }
    // Of two names that are one here the first has won, whole.
    let names: Vec<&str> = there.keys().map(String::as_str).collect();
    let [straße, decomposed, composed] = ["t/sub/straße", "t/sub/cafe\u{301}", "t/sub/caf\u{e9}"];
    for name in ["t/sub/STRASSE", straße, decomposed, composed] {
        assert!(names.contains(&name), "{names:?}");
    }
    // What is under a name is one of the files that it is one name of.
    let sent = tree(&env.path("t"));
    for (name, bytes) in &there {
        let one = |other: &str| format!("t/{other}").to_lowercase() == name.to_lowercase();
        assert!(
            sent.iter().any(|(other, sent)| one(other) && sent == bytes) || name == "t",
            "{name}"
        );
    }
    let folded = |name: &str| names.iter().filter(|n| n.to_lowercase() == name).count();
    for name in ["t/file", "t/dir", "t/dir/x", "t/dir/y", "t/é"] {
        assert_eq!(folded(name), 1, "{name} of {names:?}");
    }
    let count = |what: &str| names.iter().filter(|name| name.contains(what)).count();
    assert_eq!((count("link"), count(":"), count("?"), count("*")), (0, 0, 0, 0), "{names:?}");
    // A link; thrice the second of two names that are one; two files and three directories with
    // characters that are not taken, or in one of those; and a file in it.
    assert_eq!(received["skipped"], 1 + 3 + 2 + 3 + 1, "{received}");
}

#[test]
fn a_broken_transfer_is_resumed_and_leaves_nothing_behind() {
    let env = Env::new();
    let Some(_stick) = Stick::mounted(&env, "to") else { return };
    let data = noise(24 * MIB);
    fs::write(env.path("data"), &data).expect("written");
    let mut sender = env.start(&[&["send", "data", "--rate", "80Mbit"][..], &HERE].concat());
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    let receive = [&["receive", &ticket, "to"][..], &HERE].concat();
    let mut first = env.start(&receive);
    let half = |event: &serde_json::Value| event["bytes"].as_u64() > Some(12 * MIB as u64);
    first.event("progress", half);
    first.signal(rustix::process::Signal::KILL);
    first.finish();
    let again = env.run(&receive).exits(0).last_event("summary");
    sender.finish().exits(0);
    assert!(again["kept_bytes"].as_u64() > Some(0), "{again}");
    assert_eq!(tree(&env.path("to")), BTreeMap::from([("data".to_owned(), Some(data))]));
}

/// Its times are not as exact as those that were sent.
#[test]
fn an_update_does_not_send_its_own_files_again() {
    let setting = Setting::new();
    let Some(_stick) = Stick::mounted(&setting.env, "far/stick") else { return };
    for name in ["a", "b/c"] {
        setting.put(&format!("near/t/{name}"), name.as_bytes());
    }
    let update = ["-r", "-p", "-u", "--json", "t", "host:stick"];
    let first = setting.cp(&update).exits(0).last_event("summary");
    assert_eq!((&first["files"], &first["passed"]), (&2.into(), &0.into()), "{first}");
    let again = setting.cp(&update).exits(0).last_event("summary");
    assert_eq!((&again["files"], &again["passed"]), (&0.into(), &2.into()), "{again}");
    assert_eq!(setting.env.names("far/stick"), ["t"]);
}
