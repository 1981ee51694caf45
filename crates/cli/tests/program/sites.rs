//! What arrives is as if it had been made where it gets its name: groups, mounts, and destinations
//! that cannot be written to at their top. Root, else skipped.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::testenv::{Env, Running, able, skip};
use rustix::process::Signal;

const MIB: usize = 1 << 20;
const GROUP: u32 = 4321;
const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
const NOBODY: u32 = 65_534;

/// Makes a directory that hands on a group.
fn shared(path: &Path) {
    fs::create_dir_all(path).expect("made");
    chown(path, None, Some(GROUP)).expect("given");
    fs::set_permissions(path, Permissions::from_mode(0o2775)).expect("set");
}

/// Names in a directory that are netblt's own.
fn own(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).expect("listed").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".netblt-")).collect()
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_copy_to_a_server_has_the_group_of_its_directory_and_goes_into_mounts() {
    if !able(&["mount", "umount"], &[]) {
        return;
    }
    let env = Env::new();
    let (group, within) = (env.path("root/d/group"), env.path("root/d/within"));
    shared(&group);
    fs::create_dir_all(&within).expect("made");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&within).status();
    if !mounted.expect("it runs").success() {
        return skip("a file system cannot be mounted");
    }
    let _mounted = Mounted(&within);
    for place in ["s/group", "s/group/new", "s/within"] {
        env.make_directory(place);
        env.make_file(&format!("{place}/small"), 100);
        env.make_file(&format!("{place}/big"), 3 * MIB);
    }
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "ticket"]].concat());
    server.event("listening", |_| true);
    for atomic in [&[][..], &["--atomic"]] {
        let copy = ["cp", "-r", "s/.", "netblt:///d/", "--ticket-file", "ticket"];
        env.run(&[&copy[..], atomic].concat()).exits(0);
        for name in ["small", "big", "new", "new/small", "new/big"] {
            let about = fs::metadata(group.join(name)).expect("there");
            assert_eq!(about.gid(), GROUP, "{name}");
            assert_eq!(about.is_dir(), about.mode() & 0o2000 != 0, "{name}");
        }
        let read = |at: &Path| fs::read(at.join("big")).expect("there");
        assert!(read(&within) == read(&env.path("s/within")));
        for place in [&group, &within, &env.path("root/d")] {
            assert_eq!(own(place), [""; 0], "{place:?}");
        }
    }
    server.signal(Signal::TERM);
    server.finish().exits(0);
}

#[test]
fn a_kill_leaves_parts_in_the_subdirectory_and_they_are_gone_on_with_or_cleaned() {
    if !able(&[], &[]) {
        return;
    }
    let env = Env::new();
    let place = env.path("to/t");
    shared(&place);
    env.make_directory("t");
    let data = env.make_file("t/file", 32 * MIB);
    let start = |receives: &[&str]| {
        let mut sender =
            env.start(&[&["send", "t", "--json", "--rate", "25MB"][..], &HERE].concat());
        let event = sender.event("listening", |_| true);
        let ticket = event["ticket"].as_str().expect("a ticket").to_owned();
        let often = ["receive", &ticket, "to", "--json", "--progress=50ms"];
        (sender, env.start(&[&often[..], receives].concat()))
    };
    let kill = || {
        let (sender, mut receiver) = start(&[]);
        let far = |data: &serde_json::Value| data["bytes"].as_u64() > Some(12 << 20);
        receiver.event("progress", far);
        receiver.signal(Signal::KILL);
        receiver.finish();
        sender.signal(Signal::KILL);
        sender.finish();
        assert_eq!(own(&place).len(), 1);
    };
    kill();
    let text = env.run(&["clean", "-n", "to"]).exits(0).text();
    assert!(text.contains("not removed") && own(&place).len() == 1, "{text}");
    env.run(&["clean", "to"]).exits(0);
    assert_eq!((own(&place), own(&env.path("to"))), (vec![], vec![]));
    kill();
    let (sender, receiver) = start(&[]);
    receiver.finish().exits(0);
    let sent = sender.finish().exits(0).last_event("summary");
    assert!(sent["kept_bytes"].as_u64() > Some(0), "{sent}");
    assert!(fs::read(place.join("file")).expect("there") == data);
    assert_eq!(fs::metadata(place.join("file")).expect("there").gid(), GROUP);
    assert_eq!((own(&place), own(&env.path("to"))), (vec![], vec![]));
}

#[test]
fn a_destination_that_cannot_be_written_to_takes_what_goes_into_a_directory_that_can() {
    if !able(&[], &[]) {
        return;
    }
    let env = Env::new();
    for name in ["tmp", "home", "to", "to/t", "t"] {
        env.make_directory(name);
    }
    for open in [".", "tmp", "home"] {
        fs::set_permissions(env.path(open), Permissions::from_mode(0o777)).expect("set");
    }
    env.make_file("t/a", 100);
    env.make_file("t/b", 2 * MIB);
    let receive = |others: &[&str]| {
        let mut sender = env.start(&[&["send", "t"][..], &HERE].concat());
        let ticket = sender.line();
        let mut command = env.command(&[&["receive", &ticket, "to"], others].concat());
        command.uid(NOBODY).gid(NOBODY).env("HOME", env.path("home"));
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        (sender, Running::new(command).finish())
    };
    let (sender, refused) = receive(&[]);
    assert_ne!(refused.code, Some(0));
    refused.says("cannot be written to");
    sender.signal(Signal::KILL);
    sender.finish();
    chown(env.path("to/t"), Some(NOBODY), Some(NOBODY)).expect("given");
    for others in [&[][..], &["--atomic", "--overwrite", "always"]] {
        let (sender, received) = receive(others);
        received.exits(0);
        sender.finish().exits(0);
        for name in ["t/a", "t/b"] {
            let read = |path: &Path| fs::read(path).expect("there");
            assert!(read(&env.path(name)) == read(&env.path("to").join(name)), "{name}");
        }
        assert_eq!((own(&env.path("to")), own(&env.path("to/t"))), (vec![], vec![]));
    }
}
