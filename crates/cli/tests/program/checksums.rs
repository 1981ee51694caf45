//! Digests that are computed while the data pass: the lists are those that the usual programs
//! check, whatever happened to the transfer.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testenv::far::Setting;
use crate::testenv::{Env, Finished, installed, skip};
use rustix::fs::{XattrFlags, getxattr};
use rustix::process::Signal;
use serde_json::Value;

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
const MIB: usize = 1 << 20;
/// A name with what lists escape. Some versions of `b3sum` do not read an escaped CR.
const ODD: &[u8] = b"new\nline \\ back %";

/// Sends these into the directory `to`; the sender, then the receiver.
fn send(env: &Env, sending: &[&str], receiving: &[&str]) -> (Finished, Finished) {
    let mut sender = env.start(&[&["send"], sending, &HERE].concat());
    let ticket = sender.line();
    let receiver = env.run(&[&["receive", &ticket, "to"], receiving].concat());
    (sender.finish(), receiver)
}

/// A tree with all that is special: holes, an empty file, many small ones, a large one, odd names.
fn make_tree(env: &Env) {
    env.make_directory("tree/small");
    env.make_directory("to");
    env.make_file("tree/large", 5 * MIB + 77);
    env.make_file("tree/exact", 2 * MIB);
    env.make_file("tree/empty", 0);
    (0..300).for_each(|at| _ = env.make_file(&format!("tree/small/{at}"), at * 61));
    let holed = File::create(env.path("tree/holed")).expect("made");
    holed.set_len(40 << 20).expect("set");
    holed.write_all_at(&[7; 5000], 23 << 20).expect("written");
    fs::write(env.path("tree").join(OsStr::from_bytes(ODD)), "odd").expect("written");
    fs::hard_link(env.path("tree/large"), env.path("tree/same")).expect("linked");
}

/// How many files are in such a tree.
const FILES: usize = 306;

/// Has a program check a list, in this directory.
fn check(program: &str, list: &Path, within: &Path) {
    if !installed(program) {
        return skip(&format!("{program} is not installed"));
    }
    let checked = Command::new(program).arg("--check").arg(list).current_dir(within).output();
    let checked = checked.expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{program}: {said}");
    let good =
        String::from_utf8_lossy(&checked.stdout).lines().filter(|l| l.ends_with("OK")).count();
    assert_eq!(good, FILES, "{program}");
}

#[test]
fn the_usual_programs_check_the_lists_of_both_ends() {
    let env = Env::new();
    make_tree(&env);
    for (format, program) in [("b3sum", "b3sum"), ("sha256sum", "sha256sum"), ("md5sum", "md5sum")]
    {
        for own in [&[][..], &["--atomic"]] {
            let _ = fs::remove_dir_all(env.path("to/tree"));
            let list = |name| ["--manifest", name, "--manifest-format", format];
            let (sender, receiver) = send(
                &env,
                &[&["tree"], own, &list("sent")].concat(),
                &[&list("received")[..], own].concat(),
            );
            sender.exits(0);
            receiver.exits(0);
            check(program, &env.path("sent"), &env.path(""));
            check(program, &env.path("received"), &env.path("to"));
        }
    }
}

/// The lines of a JSON manifest, by name.
fn json_lines(list: &Path) -> Vec<Value> {
    let text = fs::read_to_string(list).expect("a list");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn json_has_all_digests_and_any_name() {
    let env = Env::new();
    env.make_directory("from");
    env.make_directory("to");
    fs::write(env.path("from/check"), "123456789").expect("written");
    fs::write(env.path("from").join(OsStr::from_bytes(b"\xff")), "").expect("written");
    let all = "blake3,sha256,sha512,md5,crc32c,adler32";
    let list = |name| ["--hash", all, "--manifest-format", "json", "--manifest", name, "--json"];
    let mut sender = env.start(&[&["send", "from"], &list("sent")[..], &HERE].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket").to_owned();
    let args = [&["receive", &ticket, "to"][..], &list("received")].concat();
    let receiver = env.run(&args).exits(0);
    let sender = sender.finish().exits(0);
    for (end, list) in [(&sender, "sent"), (&receiver, "received")] {
        let lines = json_lines(&env.path(list));
        let [check, odd] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&check["name"], &check["bytes"]), (&"from/check".into(), &9.into()));
        // The check values of the catalogues of CRCs, and of the programs for the others.
        for (algorithm, digest) in [
            ("sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            ("md5", "25f9e794323b453885f5181f1b624d0b"),
            ("crc32c", "e3069283"),
            ("adler32", "091e01de"),
        ] {
            assert_eq!(check["digests"][algorithm], digest, "{algorithm}");
        }
        assert_eq!(check["digests"]["sha512"].as_str().expect("text").len(), 128);
        assert_eq!(check["digests"]["blake3"], blake3::hash(b"123456789").to_string());
        assert_eq!(odd["name_hex"], "66726f6d2fff");
        let text = end.text();
        let event = text.lines().find(|line| {
            line.contains("\"name\":\"from/check\"") && line.contains("\"event\":\"file\"")
        });
        let event: Value = serde_json::from_str(event.expect("an event")).expect("JSON");
        assert_eq!(event["data"]["digests"], check["digests"], "{event}");
    }
}

#[test]
fn a_resumed_transfer_lists_the_whole_files() {
    let env = Env::new();
    env.make_directory("to");
    env.make_directory("tree");
    env.make_file("tree/first", 3 * MIB + 1);
    env.make_file("tree/second", 40 * MIB + 5);
    let list = |name| ["--manifest", name, "--manifest-format", "sha256sum"];
    let slowly = ["--json", "--rate", "16MB"];
    let mut sender = env.start(&[&["send", "tree"], &slowly[..], &HERE].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket").to_owned();
    let mut receiver = env.start(&["receive", &ticket, "to", "--json", "--progress=100ms"]);
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(20 * MIB as u64));
    receiver.signal(Signal::KILL);
    receiver.finish();
    sender.signal(Signal::TERM);
    sender.finish();
    let sending = [&["tree"], &list("sent")[..]].concat();
    let (sender, receiver) = send(&env, &sending, &[&list("received")[..], &["--json"]].concat());
    sender.exits(0);
    let summary = receiver.exits(0).last_event("summary");
    assert!(summary["kept_bytes"].as_u64() > Some(0), "{summary}");
    let sorted = |name: &str| {
        let text = fs::read_to_string(env.path(name)).expect("a list");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted("sent"), sorted("received"));
    if !installed("sha256sum") {
        return skip("sha256sum is not installed");
    }
    let mut checked = Command::new("sha256sum");
    checked.arg("--check").arg(env.path("received")).current_dir(env.path("to"));
    assert!(checked.status().expect("it runs").success());
}

/// Validates a bag as RFC 8493 §3 says: complete, and valid. The digests are those of the program
/// `sha512sum` and the like.
fn validate_bag(bag: &Path, algorithm: &str) {
    let text = fs::read_to_string(bag.join("bagit.txt")).expect("a declaration");
    assert_eq!(text, "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n");
    let list = fs::read_to_string(bag.join(format!("manifest-{algorithm}.txt"))).expect("a list");
    let mut listed = Vec::new();
    for line in list.lines() {
        let (digest, path) = line.split_once("  ").expect("a digest and a path");
        let path = path.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%");
        assert!(path.starts_with("data/"), "{path:?}");
        let program = format!("{algorithm}sum");
        if installed(&program) {
            let file = File::open(bag.join(&path)).expect("a file that is listed");
            let sum = Command::new(program).stdin(file).output().expect("it runs").stdout;
            assert!(String::from_utf8_lossy(&sum).starts_with(digest), "{path:?}");
        } else {
            skip(&format!("{program} is not installed"));
        }
        listed.push(path);
    }
    let mut found = Vec::new();
    let mut directories = vec![bag.join("data")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("read") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    let inside = path.strip_prefix(bag).expect("within");
                    found.push(inside.to_str().expect("text").to_owned());
                }
            }
        }
    }
    listed.sort();
    found.sort();
    assert_eq!(listed, found);
}

#[test]
fn a_received_bag_is_complete_and_valid() {
    let env = Env::new();
    make_tree(&env);
    env.make_directory("bag/data");
    for (hashes, algorithms) in
        [(&[][..], &["sha512"][..]), (&["--hash", "md5,sha256"], &["md5", "sha256"])]
    {
        let _ = fs::remove_dir_all(env.path("bag/data/tree"));
        let mut sender = env.start(&[&["send", "tree"], &HERE[..]].concat());
        let ticket = sender.line();
        let bag = ["--manifest", "bag", "--manifest-format", "bagit"];
        env.run(&[&["receive", &ticket, "bag/data"], &bag[..], hashes].concat()).exits(0);
        sender.finish().exits(0);
        algorithms.iter().for_each(|algorithm| validate_bag(&env.path("bag"), algorithm));
    }
}

#[test]
fn a_copy_makes_a_bag_of_a_directory_of_another_machine() {
    let setting = Setting::new();
    setting.put("far/photos/a", b"a");
    setting.put("far/photos/sub/b", b"b");
    fs::create_dir(setting.env.path("near/bag")).expect("made");
    let bag = ["--manifest", "bag", "--manifest-format", "bagit", "--hash", "sha256"];
    setting.cp(&[&["-r", "host:photos", "bag/data"], &bag[..]].concat()).exits(0);
    assert!(setting.env.path("near/bag/data/sub/b").exists());
    validate_bag(&setting.env.path("near/bag"), "sha256");
    // The sending machine's list has the same names.
    fs::create_dir_all(setting.env.path("far/again")).expect("made");
    fs::create_dir(setting.env.path("near/sent")).expect("made");
    let sent = ["--manifest", "sent", "--manifest-format", "bagit", "--hash", "sha256"];
    setting.cp(&[&["-r", "bag/data", "host:again/data"], &sent[..]].concat()).exits(0);
    let read = |name: &str| fs::read_to_string(setting.env.path("near").join(name)).expect("read");
    assert_eq!(read("sent/manifest-sha256.txt"), read("bag/manifest-sha256.txt"));
}

#[test]
fn digests_that_go_nowhere_are_refused() {
    let env = Env::new();
    env.make_file("f", 1);
    for words in [
        &["send", "f", "--hash", "md5"][..],
        &["send", "f", "--manifest-format", "json"],
        &["receive", "-", "--hash", "md5", "--json"],
        &["receive", "-", "--manifest", "sums"],
        &["receive", "f", "--wire", "rfc998", "--listen", "127.0.0.1:0", "--manifest", "sums"],
        &["send", "f", "--manifest", "nowhere", "--manifest-format", "bagit"],
    ] {
        let finished = env.run(words);
        assert!(matches!(finished.code, Some(1 | 11)), "{words:?}: {finished:?}");
        assert!(finished.stderr.contains("--") || finished.stderr.contains("nowhere"), "{words:?}");
    }
    assert!(!env.path("sums").exists());
}

/// Data that come out of order are read back: the reordering is made by parallel streams.
#[test]
fn several_streams_make_the_same_digests() {
    let env = Env::new();
    env.make_directory("to");
    env.make_file("f", 60 * MIB + 11);
    let list = |name| ["--streams", "4", "--manifest", name, "--manifest-format", "md5sum"];
    let (sender, receiver) = send(&env, &[&["f"], &list("sent")[..]].concat(), &list("received"));
    sender.exits(0);
    receiver.exits(0);
    let [sent, received] = ["sent", "received"].map(|name| fs::read(env.path(name)).expect("read"));
    assert_eq!(sent, received);
    let mut again = Command::new("md5sum");
    again.arg("f").current_dir(env.path(""));
    match installed("md5sum") {
        true => assert_eq!(again.output().expect("it runs").stdout, sent),
        false => skip("md5sum is not installed"),
    }
}

/// Files to send, and a list that has another digest for one, none for another, and a third.
fn make_expectation(env: &Env) {
    env.make_directory("from");
    env.make_directory("to");
    let lines = ["good", "large", "bad", "wrong"].map(|name| {
        let bytes = if matches!(name, "large" | "wrong") { 3 * MIB + 1 } else { 500 };
        let mut data = env.make_file(&format!("from/{name}"), bytes);
        if matches!(name, "bad" | "wrong") {
            data[0] ^= 1;
        }
        format!("{}  ./from/{name}\n", blake3::hash(&data))
    });
    let gone = format!("{}  from/gone\n", blake3::hash(b""));
    fs::write(env.path("list"), lines.concat() + &gone).expect("written");
    env.make_file("from/unlisted", 9);
}

const UNEXPECTED: &str = "is not the file that the list of expected digests has";

#[test]
fn an_unexpected_file_gets_no_name_and_is_not_sent() {
    for (sending, receiving, codes) in
        [(&[][..], &["--expect", "list"][..], (23, 65)), (&["--expect", "list"], &[], (65, 23))]
    {
        let env = Env::new();
        make_expectation(&env);
        let (sender, receiver) = send(&env, &[&["from"], sending].concat(), receiving);
        let (sender, receiver) = (sender.exits(codes.0), receiver.exits(codes.1));
        assert_eq!(env.names("to/from"), ["good", "large", "unlisted"]);
        let said = if codes.0 == 65 { &sender.stderr } else { &receiver.stderr };
        for name in ["bad", "wrong"] {
            let line = said.lines().find(|line| line.contains(&format!("from/{name}")));
            assert!(line.is_some_and(|line| line.contains(UNEXPECTED)), "{name}: {said}");
        }
        assert!(said.contains("from/gone: the list of expected digests has it, and it "), "{said}");
        assert!(said.contains("1 file is not in the list of expected digests"), "{said}");
        // What the receiver has already is compared, too.
        let (_, receiver) = send(&env, &["from"], &["--expect", "list"]);
        assert!(receiver.exits(65).stderr.contains("from/wrong"));
    }
}

#[test]
fn all_or_nothing_stops_at_an_unexpected_file() {
    for (sending, receiving) in [(&[][..], &["--expect", "list"][..]), (&["--expect", "list"], &[])]
    {
        let env = Env::new();
        make_expectation(&env);
        let sources = [&["from", "--atomic"], sending].concat();
        let (sender, receiver) = send(&env, &sources, &[&["--atomic"], receiving].concat());
        let end = if sending.is_empty() { receiver } else { sender };
        assert!(end.exits(65).stderr.contains(UNEXPECTED));
        assert!(!env.path("to/from").exists());
    }
}

#[test]
fn a_file_that_stands_there_is_compared_and_a_missing_one_is_named() {
    let env = Env::new();
    env.make_directory("to");
    let data = env.make_file("f", 70_000);
    let right = format!("{}  f\n", blake3::hash(&data));
    fs::write(env.path("right"), &right).expect("written");
    fs::write(env.path("wrong"), right.replace(['1', '2'], "3")).expect("written");
    fs::write(env.path("more"), right.clone() + &right.replace("  f", "  g")).expect("written");
    let expecting = |list, code| {
        let (_, receiver) = send(&env, &["f"], &["--expect", list, "--hash", "blake3"]);
        receiver.exits(code)
    };
    expecting("right", 0);
    expecting("wrong", 65);
    expecting("right", 0);
    let missing = expecting("more", 23);
    assert!(missing.stderr.contains("left out g: the list of expected"), "{}", missing.stderr);
    let (sender, _) = send(&env, &["f", "--expect", "more"], &["--overwrite", "always"]);
    assert!(sender.exits(23).stderr.contains("left out g: the list of expected"));
    fs::write(env.path("no-list"), "hello\n").expect("written");
    let refused = env.run(&["send", "f", "--expect", "no-list"]).exits(11);
    assert!(refused.stderr.contains("no-list: the list of digests cannot be read: line 1: "));
}

#[test]
fn lists_of_all_programs_are_understood() {
    let env = Env::new();
    make_tree(&env);
    let mut lists = Vec::new();
    for (program, options) in [
        ("sha256sum", &[][..]),
        ("sha512sum", &["--tag"]),
        ("md5sum", &["--binary"]),
        ("md5sum", &["--tag"]),
        ("b3sum", &[]),
    ] {
        if !installed(program) {
            skip(&format!("{program} is not installed"));
            continue;
        }
        let list = format!("{program}{}", options.concat());
        let mut sum = Command::new("find");
        sum.args(["tree", "-type", "f", "-exec", program]).args(options).args(["{}", "+"]);
        let made = sum.current_dir(env.path("")).output().expect("it runs");
        fs::write(env.path(&list), made.stdout).expect("written");
        lists.push(list);
    }
    for list in &lists {
        let _ = fs::remove_dir_all(env.path("to/tree"));
        let expect = ["--expect", list];
        let (sender, receiver) = send(&env, &[&["tree"], &expect[..]].concat(), &expect);
        for end in [sender.exits(0), receiver.exits(0)] {
            assert!(!end.stderr.contains("expected digests"), "{list}: {}", end.stderr);
        }
    }
    // A bag goes on as a bag.
    env.make_directory("bag/data");
    env.make_directory("next/data");
    let bag = ["--manifest", "bag", "--manifest-format", "bagit"];
    let mut sender = env.start(&[&["send", "tree"], &HERE[..]].concat());
    let ticket = sender.line();
    env.run(&[&["receive", &ticket, "bag/data"], &bag[..]].concat()).exits(0);
    sender.finish().exits(0);
    fs::copy(env.path("bag/manifest-sha512.txt"), env.path("next/manifest-sha512.txt"))
        .expect("copied");
    let expect = ["--expect", "bag/manifest-sha512.txt"];
    let mut sender = env.start(&[&["send", "bag/data/tree"], &expect[..], &HERE[..]].concat());
    let ticket = sender.line();
    let expect = ["--expect", "next/manifest-sha512.txt"];
    env.run(&[&["receive", &ticket, "next/data"], &expect[..]].concat()).exits(0);
    sender.finish().exits(0);
}

fn attribute(path: &Path, name: &str) -> Option<String> {
    let mut value = vec![0; 200];
    let length = getxattr(path, name, &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

#[test]
fn digests_are_stored_in_attributes() {
    let env = Env::new();
    env.make_directory("from");
    env.make_directory("to");
    let large = env.make_file("from/large", 3 * MIB + 5);
    env.make_file("from/locked", 100);
    env.make_file("from/empty", 0);
    fs::set_permissions(env.path("from/locked"), Permissions::from_mode(0o444)).expect("set");
    let probe = File::create(env.path("to/probe")).expect("made");
    if rustix::fs::fsetxattr(&probe, "user.x", b"x", XattrFlags::empty()).is_err() {
        return skip("there are no extended attributes");
    }
    for (own, hashes, algorithms) in [
        (&[][..], &["--hash", "blake3,md5"][..], &["blake3", "md5"][..]),
        (&["--atomic"], &[], &["sha256"]),
    ] {
        let _ = fs::remove_dir_all(env.path("to/from"));
        let receiving = [&["--store-hash"], hashes, own].concat();
        let (sender, receiver) = send(&env, &[&["from"], own].concat(), &receiving);
        sender.exits(0);
        receiver.exits(0);
        for name in ["large", "locked", "empty"] {
            let path = env.path("to/from").join(name);
            let status = fs::metadata(&path).expect("there");
            let time = format!("{:010}.{:09}", status.mtime(), status.mtime_nsec());
            assert_eq!(attribute(&path, "user.shatag.ts"), Some(time), "{name}");
            for algorithm in algorithms {
                let digest = attribute(&path, &format!("user.shatag.{algorithm}"));
                assert!(digest.is_some_and(|digest| digest.len() >= 32), "{name} {algorithm}");
            }
        }
        let mode = fs::metadata(env.path("to/from/locked")).expect("there").mode();
        assert_eq!(mode & 0o777, 0o444);
    }
    let stored = attribute(&env.path("to/from/large"), "user.shatag.sha256").expect("stored");
    if installed("sha256sum") {
        let sum = Command::new("sha256sum").arg(env.path("from/large")).output().expect("it runs");
        assert!(String::from_utf8_lossy(&sum.stdout).starts_with(&stored));
    }
    assert_eq!(fs::read(env.path("to/from/large")).expect("read"), large);
    let refused = env.run(&["receive", "-", "--store-hash"]).exits(1);
    assert!(refused.stderr.contains("--store-hash is about files in a directory"));
}

/// Unmounts what is mounted here.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_file_system_without_attributes_is_named_once() {
    let env = Env::new();
    env.make_directory("from");
    env.make_directory("to");
    ["a", "b", "c"].iter().for_each(|name| _ = env.make_file(&format!("from/{name}"), 10));
    let mut mount = Command::new("mount");
    mount.args(["-t", "ramfs", "none"]).arg(env.path("to"));
    if !mount.status().is_ok_and(|status| status.success()) {
        return skip("only root can mount a file system without attributes");
    }
    let _mounted = Mounted(env.path("to"));
    let (sender, receiver) = send(&env, &["from"], &["--store-hash"]);
    sender.exits(0);
    let said = receiver.exits(23).stderr;
    let lines =
        said.lines().filter(|line| line.starts_with("netblt: warning: left out the digests"));
    assert_eq!(lines.count(), 1, "{said}");
    assert!(said.contains("of from/a and 2 more: "), "{said}");
    assert_eq!(env.names("to/from"), ["a", "b", "c"]);
}

#[test]
fn a_copy_by_ssh_is_compared_with_a_list_and_its_digests_are_stored() {
    let setting = Setting::new();
    setting.put("far/f", b"a");
    setting.put("near/list", b"0cc175b9c0f1b6a831c399e269772661  f\n");
    let options = ["--expect", "list", "--store-hash", "--hash", "md5"];
    // 23: this file system has no such attributes.
    setting.cp(&[&options[..], &["host:f", "."]].concat()).exits_with_one_of(&[0, 23]);
    assert_eq!(fs::read(setting.env.path("near/f")).expect("read"), b"a");
    setting.put("near/list", b"00000000000000000000000000000000  f\n");
    fs::remove_file(setting.env.path("near/f")).expect("removed");
    setting.cp(&["--expect", "list", "host:f", "."]).exits(65);
    assert!(!setting.env.path("near/f").exists());
}
