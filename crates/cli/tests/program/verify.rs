//! What was written is read again from the disk: a disk that gives back something else is found
//! out.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::testenv::far::Setting;
use crate::testenv::{Env, Finished, noise, wait_until};

const MIB: usize = 1 << 20;
/// Where a byte is spoiled.
const AT: u64 = 70_000;

/// The largest file among the temporaries of `to`.
fn part(env: &Env) -> Option<PathBuf> {
    let is_ours = |name: &String| name.starts_with(".netblt-");
    let ours = env.names("to").into_iter().find(is_ours)?;
    let inside = fs::read_dir(env.path("to").join(ours)).ok()?.flatten().map(|entry| entry.path());
    inside.max_by_key(|path| path.metadata().map_or(0, |metadata| metadata.len()))
}

/// Receives a tree, of whose one file a byte changes behind the receiver's back when it is written:
/// what sender and receiver come to.
fn spoiled(env: &Env, own: &[&str], receiving: &[&str]) -> (Finished, Finished) {
    let _ = fs::remove_dir_all(env.path("to"));
    env.make_directory("to");
    let slowly = ["--json", "--bind", "127.0.0.1", "--rate", "16MB"];
    let mut sender = env.start(&[&["send", "tree"], &slowly[..], own].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket").to_owned();
    let mut receiver = env.start(&[&["receive", &ticket, "to", "--json"], receiving, own].concat());
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(4 << 20));
    let is = fs::read(env.path("tree/big")).expect("read")[AT as usize];
    let written = || {
        let mut byte = [0];
        let file = part(env).and_then(|part| File::open(part).ok());
        file.is_some_and(|file| file.read_exact_at(&mut byte, AT).is_ok() && byte == [is])
    };
    wait_until("the byte is written", written);
    let part = part(env).expect("a part");
    let file = File::options().write(true).open(part).expect("opened");
    file.write_all_at(&[!is], AT).expect("written");
    (sender.finish(), receiver.finish())
}

#[test]
fn a_file_that_the_disk_changed_is_reported_and_gets_no_name() {
    let env = Env::new();
    env.make_directory("tree");
    let data = env.make_file("tree/big", 24 * MIB);
    env.make_file("tree/small", 5_000);
    // No check notices it, unless --verify is given.
    let (sender, receiver) = spoiled(&env, &[], &[]);
    sender.exits(0);
    receiver.exits(0);
    assert!(fs::read(env.path("to/tree/big")).expect("there") != data);
    let (sender, receiver) = spoiled(&env, &[], &["--verify"]);
    for end in [sender.exits(23), receiver.exits(23)] {
        let text = end.text();
        assert!(text.contains("tree/big: read again, it is not what was written here"), "{text}");
        let summary = end.last_event("summary");
        assert_eq!((&summary["files"], &summary["skipped"]), (&1.into(), &1.into()), "{summary}");
    }
    assert_eq!(env.names("to"), ["tree"]);
    assert_eq!(env.names("to/tree"), ["small"]);
    let never = ["--verify", "--resume", "never"];
    spoiled(&env, &[], &never).1.exits(23);
    assert_eq!(env.names("to/tree"), ["small"]);
    let (sender, receiver) = spoiled(&env, &["--atomic"], &["--verify"]);
    assert_ne!(sender.code, Some(0));
    let text = receiver.exits(65).text();
    assert!(text.contains("not verified: tree/big: read again, it is not"), "{text}");
    assert!(env.names("to").is_empty(), "{:?}", env.names("to"));
}

#[test]
fn intact_files_pass_the_read_back_and_streams_cannot_be_verified() {
    let setting = Setting::new();
    setting.put("near/t/big", &noise(3 * MIB));
    setting.put("near/t/small", b"small");
    for atomic in [&[][..], &["--atomic"]] {
        setting.cp(&[&["-r", "--verify", "t", "host:"], atomic].concat()).exits(0);
        setting.cp(&[&["-r", "--verify", "host:t", "u"], atomic].concat()).exits(0);
        assert!(setting.tree("near/u") == setting.tree("near/t"));
        fs::remove_dir_all(setting.env.path("near/u")).expect("removed");
    }
    let stream = setting.env.run(&["receive", "-", "--verify"]).exits(1);
    stream.says("--verify reads files in a directory again");
}
