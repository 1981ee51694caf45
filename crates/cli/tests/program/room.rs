//! Whether there is room is known before anything comes, and who refuses does not end who offers.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testenv::far::Setting;
use crate::testenv::{self, Env, Running, able, skip};

const MIB: usize = 1 << 20;

/// A file system of this size in memory, until it is dropped.
struct Small(PathBuf);

impl Small {
    fn mounted(at: &Path, size: &str) -> Option<Self> {
        Self::with(at, &format!("size={size}"))
    }

    fn with(at: &Path, options: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        let status = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status();
        let mounted = status.is_ok_and(|status| status.success());
        if !mounted {
            skip("a file system cannot be mounted");
        }
        mounted.then(|| Self(at.to_path_buf()))
    }

    fn grow(&self, size: &str) {
        self.change(&format!("remount,size={size}"));
    }

    fn change(&self, options: &str) {
        let status = Command::new("mount").args(["-o", options]).arg(&self.0).status();
        assert!(status.expect("it runs").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn sender(env: &Env, what: &str) -> (Running, String) {
    // Slow enough that progress is reported.
    let own = ["send", what, "--json", "--bind", "127.0.0.1", "--rate", "40MB"];
    let mut sender = env.start(&own);
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    (sender, ticket)
}

#[test]
fn a_transfer_larger_than_the_free_space_is_refused_before_data_arrive() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let env = Env::new();
    let to = env.make_directory("to");
    let Some(small) = Small::mounted(&to, "8m") else { return };
    let data = env.make_file("big", 20 * MIB);
    let (mut sending, ticket) = sender(&env, "big");
    for _ in 0..2 {
        let refused = env.run(&["receive", &ticket, "to"]).exits(11);
        refused.says("to: not enough space: 20.00 MiB needed, 8.00 MiB free");
        assert!(env.names("to").is_empty(), "{:?}", env.names("to"));
        let why = sending.event("refused", |_| true)["why"].clone();
        assert_eq!(why, "not enough space: 20.00 MiB needed, 8.00 MiB free");
    }
    small.grow("32m");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sending.finish().exits(0);
    assert!(fs::read(env.path("to/big")).expect("there") == data);
    // What stands there may be the same, or be replaced: file by file there is room.
    let (sending, ticket) = sender(&env, "big");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sending.finish().exits(0);
}

#[test]
fn holes_need_no_room_and_what_is_replaced_makes_some() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let env = Env::new();
    let to = env.make_directory("to");
    let Some(_small) = Small::mounted(&to, "44m") else { return };
    let holed = fs::File::create(env.path("holed")).expect("made");
    holed.set_len(300 << 20).expect("set");
    holed.write_all_at(&[7; 5000], 123 << 20).expect("written");
    drop(holed);
    let (sending, ticket) = sender(&env, "holed");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sending.finish().exits(0);
    assert_eq!(env.path("to/holed").metadata().expect("there").len(), 300 << 20);
    env.make_directory("tree");
    for n in 0..24 {
        env.make_file(&format!("tree/{n}"), MIB - n);
    }
    let (sending, ticket) = sender(&env, "tree");
    let mut receiver = env.start(&["receive", &ticket, "to", "--json"]);
    let progress = receiver.event("progress", |data| !data["files"].is_null());
    assert_eq!(progress["files"], 24, "the receiver knows how many there are: {progress}");
    receiver.finish().exits(0);
    sending.finish().exits(0);
    let (sending, ticket) = sender(&env, "tree");
    env.run(&["receive", &ticket, "to", "--overwrite", "always"]).exits(0);
    sending.finish().exits(0);
}

#[test]
fn cp_looks_for_room_too() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let setting = Setting::new();
    let small = setting.env.make_directory("far/small");
    let Some(_small) = Small::mounted(&small, "8m") else { return };
    setting.put("near/big", &testenv::noise(20 * MIB));
    // What stands there beside it is in no way room for it.
    setting.put("far/small/other", &testenv::noise(7 * MIB));
    let refused = setting.cp(&["big", "host:small"]).exits(11);
    refused.says("host: ").says("not enough space: 20.00 MiB needed");
    assert_eq!(setting.env.names("far/small"), ["other"]);
}

/// What had come has its name, and is not sent again.
#[test]
fn no_more_inodes_are_named_and_what_had_come_stays() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let env = Env::new();
    let to = env.make_directory("to");
    let Some(small) = Small::with(&to, "size=32m,nr_inodes=50") else { return };
    env.make_directory("t");
    for n in 0..100 {
        env.make_file(&format!("t/{n:02}"), 2000 + n);
    }
    let (sending, ticket) = sender(&env, "t");
    let failed = env.run(&["receive", &ticket, "to"]).exits(11);
    assert!(failed.stderr.contains("there are no inodes left (df -i)"), "{}", failed.stderr);
    assert!(!failed.stderr.contains("the disk is full"), "{}", failed.stderr);
    sending.finish();
    let came = env.names("to/t").len();
    assert!((30..50).contains(&came), "{came}");
    for name in env.names("to/t") {
        let same = fs::read(env.path("t").join(&name)).expect("sent");
        assert!(fs::read(to.join("t").join(&name)).expect("there") == same, "{name}");
    }
    small.change("remount,nr_inodes=1000");
    let (sending, ticket) = sender(&env, "t");
    env.run(&["receive", &ticket, "to"]).exits(0);
    sending.finish().exits(0);
    assert_eq!(env.names("to/t").len(), 100);
    assert_eq!(env.names("to"), ["t"]);
}

#[test]
fn a_download_from_a_server_looks_for_room_before_it_begins() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let env = Env::new();
    let to = env.make_directory("to");
    let Some(small) = Small::mounted(&to, "8m") else { return };
    env.make_directory("root");
    let data = env.make_file("root/big", 20 * MIB);
    let holed = fs::File::create(env.path("root/holed")).expect("made");
    holed.set_len(300 << 20).expect("set");
    holed.write_all_at(&[7; 5000], 123 << 20).expect("written");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "ticket"]].concat());
    server.event("listening", |_| true);
    let cp = |name: &str| env.run(&["cp", "--ticket-file", "ticket", name, "to"]);
    let refused = cp("netblt:///big").exits(11);
    refused.says("not enough space: 20.00 MiB needed, 8.00 MiB free");
    assert_eq!(env.names("to"), [""; 0]);
    cp("netblt:///holed").exits(0);
    env.make_directory("root/tree");
    env.make_directory("root/tree/sub");
    let at_top = env.make_file("root/tree/a", 5 * MIB);
    env.make_file("root/tree/sub/b", 15 * MIB);
    let trees = |name: &str| env.run(&["cp", "-r", "--ticket-file", "ticket", name, "to"]);
    let refused = trees("netblt:///tree").exits(11);
    refused.says("not enough space: 20.00 MiB needed, ");
    assert_eq!(env.names("to"), ["holed"]);
    small.grow("32m");
    trees("netblt:///tree").exits(0);
    assert!(fs::read(to.join("tree/a")).expect("there") == at_top);
    fs::remove_dir_all(to.join("tree")).expect("removed");
    cp("netblt:///big").exits(0);
    assert!(fs::read(to.join("big")).expect("there") == data);
    server.signal(rustix::process::Signal::TERM);
    server.finish().exits(0);
}
