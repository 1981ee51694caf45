//! Transfers that are broken off, however, and gone on with: what arrives is what was sent, and
//! what had arrived does not come again.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::testenv::{self, Env, Finished, Running, noise, tree};
use rustix::process::Signal;
use serde_json::Value;

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
const KEPT: &str = "to/.netblt-partial";
const MIB: usize = 1 << 20;
/// Bytes a second that the killed transfers carry at most, as `--rate` has them.
const RATE: &str = "25MB";
const BYTES_A_SECOND: u64 = 25_000_000;
/// What a kill may cost: 16 MiB, and what 200 ms carry. A sender that is killed may have sent for
/// 100 ms more than it has reported.
const COST: u64 = (16 << 20) + BYTES_A_SECOND / 5;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A sender that listens and a receiver into `to`, which calls it.
fn start(env: &Env, what: &str, sends: &[&str], receives: &[&str]) -> (Running, Running) {
    let often = ["--json", "--progress=100ms"];
    let mut sender = env.start(&[&["send", what], &often[..], &HERE, sends].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket").to_owned();
    let receiver = env.start(&[&["receive", &ticket, "to", "--json"], receives].concat());
    (sender, receiver)
}

/// The same to the end; the sender's summary.
fn through(env: &Env, what: &str, receives: &[&str]) -> (Value, Finished) {
    let (sender, receiver) = start(env, what, &[], receives);
    let received = receiver.finish().exits(0);
    let sent = sender.finish().exits(0).last_event("summary");
    assert_eq!(received.last_event("summary")["kept_bytes"], sent["kept_bytes"]);
    assert_eq!(sent["verified"], true);
    (sent, received)
}

/// The bytes that the sender has reported as sent.
fn sent_bytes(sender: &Finished) -> u64 {
    let last =
        |line: &str| serde_json::from_str::<Value>(line).ok()?["data"]["bytes_sent"].as_u64();
    sender.text().lines().rev().find_map(last).unwrap_or(0)
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Kills either side at random times until enough have died, then lets it come through; answers all
/// bytes sent.
fn kill_and_go_on(env: &Env, what: &str, receives: &[&str], kills: u64, after: (u64, u64)) -> u64 {
    let mut state = number("NETBLT_RESUME_SEED", 1);
    let mut all = 0;
    for kill in 0..kills {
        let (sender, mut receiver) = start(env, what, &["--rate", RATE], receives);
        receiver.event("connected", |_| true);
        thread::sleep(Duration::from_millis(after.0 + random(&mut state, after.1)));
        let (first, second) = match random(&mut state, 2) {
            0 => (&sender, &receiver),
            _ => (&receiver, &sender),
        };
        first.signal(Signal::KILL);
        second.signal(if kill % 2 == 0 { Signal::KILL } else { Signal::TERM });
        all += sent_bytes(&sender.finish());
        if receiver.finish().code == Some(0) {
            println!("it came through before kill {}", kill + 1);
            return all;
        }
        if receives.contains(&"--atomic") {
            shows_nothing_or_all(env, what);
        }
    }
    let (sent, _) = through(env, what, receives);
    assert!(sent["kept_bytes"].as_u64() > Some(0), "{sent}");
    all + sent["bytes_sent"].as_u64().expect("a number")
}

/// Of a transfer of all or nothing.
fn shows_nothing_or_all(env: &Env, what: &str) {
    let names = env.names("to");
    if names != [".netblt-partial"] && !env.path(KEPT).join("publication").exists() {
        assert!(tree(&env.path("to").join(what)) == tree(&env.path(what)), "{names:?}");
    }
}

fn cost_is_bounded(sent: u64, bytes: u64, kills: u64) {
    println!("{kills} kills: {sent} bytes sent of {bytes}");
    // Headers, tables of extents and what is sent again for a loss are a tenth at most.
    let most = (bytes + kills * COST) * 11 / 10;
    assert!(sent <= most, "{sent} bytes sent of {bytes}, with {kills} kills at most {most}");
}

#[test]
fn a_file_survives_kills_of_either_side() {
    let env = Env::new();
    let bytes = number("NETBLT_RESUME_MIB", 64) as usize * MIB;
    let kills = number("NETBLT_RESUME_KILLS", 4);
    let data = env.make_file("data.bin", bytes);
    env.make_directory("to");
    let sent = kill_and_go_on(&env, "data.bin", &[], kills, (400, 700));
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert_eq!(env.names("to"), ["data.bin"]);
    cost_is_bounded(sent, bytes as u64, kills);
}

fn a_tree_is_killed(receives: &[&str]) {
    let env = Env::new();
    let files = number("NETBLT_RESUME_FILES", 300);
    let kills = number("NETBLT_RESUME_TREE_KILLS", 3);
    let mut bytes = 0;
    for i in 0..files {
        let directory = format!("tree/{}", i % 7);
        env.make_directory(&directory);
        let len = (i as usize * 7919) % 200_000 + if i % 50 == 7 { 3 * MIB } else { 0 };
        env.make_file(&format!("{directory}/{i}"), len);
        bytes += len as u64;
    }
    env.make_directory("to");
    let sent = kill_and_go_on(&env, "tree", receives, kills, (300, 400));
    assert!(tree(&env.path("to/tree")) == tree(&env.path("tree")));
    assert_eq!(env.names("to"), ["tree"]);
    cost_is_bounded(sent, bytes, kills);
}

#[test]
fn a_tree_survives_kills_of_either_side() {
    a_tree_is_killed(&[]);
}

#[test]
fn all_or_nothing_survives_kills_of_either_side() {
    a_tree_is_killed(&["--atomic"]);
}

#[test]
fn all_or_nothing_that_is_interrupted_says_what_is_left_and_can_be_cleaned() {
    let env = Env::new();
    env.make_directory("tree");
    env.make_file("tree/a small one", 5000);
    env.make_file("tree/data.bin", 32 * MIB);
    env.make_directory("to");
    let (sender, mut receiver) = start(&env, "tree", &["--rate", "8MB"], &["--atomic"]);
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(16 << 20));
    receiver.signal(Signal::INT);
    let said = receiver.finish().exits(20).text();
    assert!(said.contains("run the same transfer again to resume"), "{said}");
    sender.signal(Signal::TERM);
    sender.finish();
    assert_eq!(env.names("to"), [".netblt-partial"]);
    let listed = env.run(&["clean", "to", "--dry-run"]).exits(0).text();
    assert!(
        listed.contains("tree/data.bin: ") && listed.contains("tree/a small one: "),
        "{listed}"
    );
    let (sent, _) = through(&env, "tree", &["--atomic", "--verify"]);
    assert!(sent["kept_bytes"].as_u64() > Some(4 << 20), "{sent}");
    assert!(tree(&env.path("to/tree")) == tree(&env.path("tree")));
    assert_eq!(env.names("to"), ["tree"]);
    // What is not wanted is neither gone on from nor left.
    fs::remove_dir_all(env.path("to/tree")).expect("removed");
    let own = ["--atomic", "--resume", "never"];
    let (sender, mut receiver) = start(&env, "tree", &["--rate", "8MB"], &own);
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(1 << 20));
    receiver.signal(Signal::TERM);
    receiver.finish();
    sender.signal(Signal::TERM);
    sender.finish();
    assert!(env.names("to").is_empty(), "{:?}", env.names("to"));
}

/// A transfer of `data.bin` that is stopped when some of it is kept: so slow that it cannot be over
/// by then, even if the test stops it two seconds late.
fn break_off(env: &Env, signal: Signal) -> Finished {
    let (sender, mut receiver) = start(env, "data.bin", &["--rate", "8MB"], &[]);
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(16 << 20));
    receiver.signal(signal);
    let receiver = receiver.finish();
    sender.signal(Signal::TERM);
    sender.finish();
    assert!(env.path(KEPT).join("journal").exists());
    receiver
}

#[test]
fn data_of_an_earlier_attempt_do_not_count_in_the_rate() {
    let env = Env::new();
    env.make_file("data.bin", 24 * MIB);
    env.make_directory("to");
    let slow = ["--rate", "40Mbit"];
    let (mut sender, receiver) = start(&env, "data.bin", &slow, &[]);
    sender.event("progress", |data| data["bytes"].as_u64() > Some(12 << 20));
    receiver.signal(Signal::TERM);
    receiver.finish().exits(20);
    sender.finish().exits(12);
    let (sender, receiver) = start(&env, "data.bin", &slow, &["--progress=100ms"]);
    let ends = [receiver.finish().exits(0), sender.finish().exits(0)];
    for end in ends {
        let text = end.text();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let progress: Vec<Value> = events.filter(|event| event["event"] == "progress").collect();
        let number = |event: &Value, field: &str| event["data"][field].as_f64().expect("a number");
        let kept = progress.iter().map(|event| number(event, "kept_bytes")).fold(0.0, f64::max);
        assert!(kept > (4 << 20) as f64, "{text}");
        let most = progress.iter().map(|event| number(event, "mbps")).fold(0.0, f64::max);
        // 40 are asked for; what a moment holds may be a little more.
        assert!(most < 80.0, "{most}: {text}");
    }
}

#[test]
fn a_source_changed_between_attempts_is_sent_again_and_named() {
    let env = Env::new();
    let mut data = env.make_file("data.bin", 32 * MIB);
    env.make_directory("to");
    let said = break_off(&env, Signal::INT).exits(20).text();
    assert!(said.contains("run the same transfer again to resume"), "{said}");
    data[5] ^= 1;
    fs::write(env.path("data.bin"), &data).expect("written");
    let (sent, received) = through(&env, "data.bin", &[]);
    assert!(received.text().contains("data.bin has changed"), "{}", received.text());
    assert_eq!(sent["kept_bytes"], 0);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert_eq!(env.names("to"), ["data.bin"]);
}

#[test]
fn a_source_changed_under_the_same_mtime_is_detected() {
    let env = Env::new();
    let mut data = env.make_file("data.bin", 32 * MIB);
    let file = fs::File::options().write(true).open(env.path("data.bin")).expect("opened");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    env.make_directory("to");
    break_off(&env, Signal::KILL);
    data[5] ^= 1;
    fs::write(env.path("data.bin"), &data).expect("written");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    let (sent, _) = through(&env, "data.bin", &[]);
    assert_eq!(sent["kept_bytes"], 0);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
}

#[test]
fn a_journal_that_is_edited_or_torn_costs_nothing_but_time() {
    let env = Env::new();
    let data = env.make_file("data.bin", 32 * MIB);
    env.make_directory("to");
    let ignored = testenv::hangups_are_ignored();
    break_off(&env, if ignored { Signal::TERM } else { Signal::HUP });
    let journal = env.path(KEPT).join("journal");
    let whole = fs::read(&journal).expect("read");
    let keep = |name: &str| env.path(KEPT).join(name);
    let slot = env.names(KEPT).into_iter().find(|name| name.parse::<u64>().is_ok());
    let slot = slot.expect("a part");
    let part = fs::read(keep(&slot)).expect("read");
    for round in 0..6u64 {
        let mut journal_now = whole.clone();
        match round {
            0 => journal_now.truncate(whole.len() / 2),
            // In the hash of a piece: before the name and the hash of the record.
            1 => journal_now[whole.len() - 40] ^= 1,
            2 => journal_now = noise(5000),
            3 => journal_now.clear(),
            // Data that are shorter than the journal says, and a part that is a link elsewhere.
            _ => {}
        }
        fs::create_dir_all(env.path(KEPT)).expect("made");
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(env.path(KEPT), fs::Permissions::from_mode(0o700)).expect("private");
        fs::write(&journal, &journal_now).expect("written");
        match round {
            4 => fs::write(keep(&slot), &part[..part.len() / 2]).expect("written"),
            5 => std::os::unix::fs::symlink(env.path("data.bin"), keep(&slot)).expect("linked"),
            _ => fs::write(keep(&slot), &part).expect("written"),
        }
        let before = fs::read(env.path("data.bin")).expect("read");
        through(&env, "data.bin", &[]);
        assert!(fs::read(env.path("data.bin")).expect("read") == before, "{round}");
        assert!(fs::read(env.path("to/data.bin")).expect("the file") == data, "{round}");
        assert_eq!(env.names("to"), ["data.bin"], "{round}");
        fs::remove_file(env.path("to/data.bin")).expect("removed");
    }
}

#[test]
fn edited_partial_data_are_detected_on_request() {
    let env = Env::new();
    let data = env.make_file("data.bin", 32 * MIB);
    env.make_directory("to");
    break_off(&env, Signal::TERM);
    let slot = env.names(KEPT).into_iter().find(|name| name.parse::<u64>().is_ok());
    let slot = env.path(KEPT).join(slot.expect("a part"));
    let mut part = fs::read(&slot).expect("read");
    part[100] ^= 1;
    fs::write(&slot, &part).expect("written");
    let (sent, _) = through(&env, "data.bin", &["--resume", "verify"]);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert!(sent["kept_bytes"].as_u64() > Some(0), "{sent}");
}

#[test]
fn partial_data_can_be_listed_removed_and_ignored() {
    let env = Env::new();
    let data = env.make_file("data.bin", 32 * MIB);
    env.make_directory("to");
    env.run(&["clean", "to"]).exits(0);
    break_off(&env, Signal::TERM);
    let listed = env.run(&["clean", "to", "--dry-run"]).exits(0).text();
    assert!(listed.contains("data.bin: ") && listed.contains("not removed"), "{listed}");
    // What is left is never sent.
    let list = env.run(&["send", "to", "--to", "netblt1:x"]);
    assert_ne!(list.code, Some(0));
    env.make_directory("other");
    let mut sender = env.start(&[&["send", "to"], &HERE[..]].concat());
    let ticket = sender.line();
    env.run(&["receive", &ticket, "other"]).exits(0);
    let sender = sender.finish().exits(0);
    assert!(sender.stderr.contains("directory of an unfinished transfer"), "{}", sender.stderr);
    assert_eq!(tree(&env.path("other")).len(), 1);
    let (sent, _) = through(&env, "data.bin", &["--resume", "never"]);
    assert_eq!(sent["kept_bytes"], 0);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert!(env.path(KEPT).exists());
    let removed = env.run(&["clean", "to", "--json"]).exits(0).last_event("summary");
    assert_eq!((&removed["removed"], &removed["parts"]), (&Value::Bool(true), &Value::from(1)));
    assert_eq!(env.names("to"), ["data.bin"]);
    // What is too old is as good as gone.
    fs::remove_file(env.path("to/data.bin")).expect("removed");
    break_off(&env, Signal::TERM);
    thread::sleep(Duration::from_millis(1100));
    let (sent, _) = through(&env, "data.bin", &["--keep-partial", "1s"]);
    assert_eq!(sent["kept_bytes"], 0);
    assert_eq!(env.names("to"), ["data.bin"]);
}

#[test]
fn a_second_transfer_does_not_touch_what_the_first_is_using() {
    let env = Env::new();
    let data = env.make_file("data.bin", 24 * MIB);
    let small = env.make_file("small", 3 * MIB);
    env.make_directory("to");
    // Slow enough that it goes on while the rest happens.
    let (sender, mut receiver) = start(&env, "data.bin", &["--rate", "40Mbit"], &[]);
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(4 << 20));
    let (_, second) = through(&env, "small", &[]);
    assert!(second.text().contains("in use by another transfer"), "{}", second.text());
    env.run(&["clean", "to"]).exits(11).says("a transfer is using it");
    receiver.finish().exits(0);
    sender.finish().exits(0);
    for (name, data) in [("data.bin", data), ("small", small)] {
        assert!(fs::read(env.path("to").join(name)).expect("the file") == data);
    }
    assert_eq!(env.names("to"), ["data.bin", "small"]);
}

#[test]
fn a_full_disk_keeps_what_fits() {
    let env = Env::new();
    if !testenv::able(&["mount", "umount"], &[]) {
        return;
    }
    let data = env.make_file("data.bin", 24 * MIB);
    let to = env.make_directory("to");
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        let status = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&to).status();
        status.expect("it runs").success()
    };
    if !mount("size=28m") {
        return testenv::skip("a file system cannot be mounted");
    }
    let _unmount = Unmount(&to);
    let (sender, mut receiver) = start(&env, "data.bin", &["--rate", RATE], &[]);
    receiver.event("connected", |_| true);
    // There was room enough when it began.
    fs::write(to.join("another"), vec![7; 7 * MIB]).expect("written");
    let full = receiver.finish().exits(11).text();
    assert!(full.contains("the disk is full; make room") && !full.contains("nothing was kept"));
    assert_ne!(sender.finish().code, Some(0));
    fs::remove_file(to.join("another")).expect("removed");
    let (sent, _) = through(&env, "data.bin", &[]);
    assert!(sent["kept_bytes"].as_u64() > Some(4 << 20), "{sent}");
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert_eq!(env.names("to"), ["data.bin"]);
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_time_alone_that_changes_between_costs_nothing() {
    let env = Env::new();
    let data = env.make_file("data.bin", 32 * MIB);
    env.make_directory("to");
    break_off(&env, Signal::INT).exits(20);
    let file = fs::File::options().write(true).open(env.path("data.bin")).expect("opened");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    let (sent, received) = through(&env, "data.bin", &[]);
    assert!(!received.text().contains("has changed"), "{}", received.text());
    assert!(sent["kept_bytes"].as_u64() >= Some(8 << 20), "{sent}");
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    let there = fs::metadata(env.path("to/data.bin")).and_then(|m| m.modified());
    assert_eq!(there.expect("known"), SystemTime::UNIX_EPOCH);
    assert_eq!(env.names("to"), ["data.bin"]);
}

/// Under the name that was asked for, or another one.
#[test]
fn a_file_that_gets_another_name_is_gone_on_with() {
    for (first, second) in [(Some("one"), Some("one")), (Some("one"), None), (None, Some("two"))] {
        let env = Env::new();
        let data = env.make_file("data.bin", 32 * MIB);
        env.make_directory("to");
        let name = |name: Option<&'static str>| name.map_or(vec![], |name| vec!["--as", name]);
        let (sender, mut receiver) = start(&env, "data.bin", &["--rate", "8MB"], &name(first));
        receiver.event("progress", |data| data["bytes"].as_u64() > Some(16 << 20));
        receiver.signal(Signal::INT);
        receiver.finish();
        sender.signal(Signal::TERM);
        sender.finish();
        let (sent, received) = through(&env, "data.bin", &name(second));
        assert!(!received.text().contains("has changed"), "{}", received.text());
        assert!(sent["kept_bytes"].as_u64() >= Some(8 << 20), "{first:?} {second:?}: {sent}");
        let own = second.unwrap_or("data.bin");
        assert!(fs::read(env.path("to").join(own)).expect("the file") == data);
        assert_eq!(env.names("to"), [own]);
    }
}

/// The names that a program tells as those of files that are through.
fn files_told(finished: &Finished) -> Vec<String> {
    let text = finished.text();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let files = events.filter(|event| event["event"] == "file");
    let name = |event: Value| event["data"]["name"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = files.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_sender_reports_files_that_have_arrived_and_no_others() {
    let env = Env::new();
    for at in 0..20 {
        env.make_directory("t");
        env.make_file(&format!("t/{at:02}"), 1000);
    }
    env.make_file("t/large", 32 * MIB);
    env.make_directory("to");
    let (mut sender, receiver) = start(&env, "t", &["--rate", "8MB"], &[]);
    // All small ones were read long ago.
    sender.event("progress", |data| data["bytes"].as_u64() > Some(8 << 20));
    receiver.signal(Signal::KILL);
    receiver.finish();
    sender.signal(Signal::TERM);
    assert_eq!(files_told(&sender.finish()), [""; 0]);
    fs::remove_dir_all(env.path("to/t")).expect("some had arrived");
    env.make_directory("to/t");
    // What is in the way and is another one is left out; what is the same is there.
    for name in ["03", "04", "05", "11"] {
        fs::write(env.path("to/t").join(name), "other").expect("written");
    }
    fs::copy(env.path("t/07"), env.path("to/t/07")).expect("copied");
    let (sender, receiver) = start(&env, "t", &[], &[]);
    receiver.finish().exits(23);
    let sender = sender.finish().exits(23);
    let all: Vec<String> = (0..20)
        .filter(|at| ![3, 4, 5, 11].contains(at))
        .map(|at| format!("t/{at:02}"))
        .chain(["t/large".to_owned()])
        .collect();
    assert_eq!(files_told(&sender), all);
    let said = "4 left out: t/03: exists there already";
    assert!(sender.text().contains(said), "{}", sender.text());
}
