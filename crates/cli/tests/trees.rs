//! Trees as people have them, from program to program.

mod testenv;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::process::Command;

use testenv::{Env, Finished, able, skip};

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];

/// Sends these, with these options, into the directory `to`; the sender, then the receiver.
fn send(env: &Env, sources: &[&str], receiving: &[&str]) -> (Finished, Finished) {
    let mut sender = env.start(&[&["send"], sources, &HERE].concat());
    let ticket = sender.line();
    let receiver = env.run(&[&["receive", &ticket, "to"], receiving].concat());
    (sender.finish(), receiver)
}

#[test]
fn links_holes_and_odd_names_arrive_as_they_are() {
    let env = Env::new();
    env.make_directory("tree/sub/empty");
    env.make_directory("to");
    env.make_file("tree/sub/file", 70_000);
    fs::hard_link(env.path("tree/sub/file"), env.path("tree/same")).expect("linked");
    symlink("sub/file", env.path("tree/near")).expect("linked");
    symlink("/nowhere/at all", env.path("tree/far")).expect("linked");
    symlink("tree/sub/file", env.path("named")).expect("linked");
    let odd = OsStr::from_bytes(b"new\nline \x1b[2J \xff");
    fs::write(env.path("tree").join(odd), "odd").expect("written");
    let holed = fs::File::create(env.path("tree/holed")).expect("made");
    // Twice as long as anything that this takes would be, were it sent.
    holed.set_len(300 << 20).expect("set");
    holed.write_all_at(&[7; 5000], 123 << 20).expect("written");
    drop(holed);
    let (sender, receiver) = send(&env, &["tree", "named", "--manifest", "sums"], &["--json"]);
    let sender = sender.exits(0);
    assert!(!sender.stderr.contains('\u{1b}'), "{:?}", sender.stderr);
    let summary = receiver.exits(0).last_event("summary");
    assert_eq!((&summary["files"], &summary["verified"]), (&7.into(), &true.into()));
    let to = env.path("to/tree");
    assert_eq!(fs::read_link(to.join("near")).expect("a link").as_os_str(), "sub/file");
    assert_eq!(fs::read_link(to.join("far")).expect("a link").as_os_str(), "/nowhere/at all");
    let status = |name: &str| fs::symlink_metadata(env.path(name)).expect("there");
    // What the user names is followed.
    assert!(status("to/named").is_file());
    assert_eq!(status("to/tree/same").ino(), status("to/tree/sub/file").ino());
    assert_eq!(fs::read(to.join(odd)).expect("there"), b"odd");
    let (was, is) = (status("tree/holed"), status("to/tree/holed"));
    let whole = |status: &fs::Metadata| (status.len(), status.mtime(), status.mtime_nsec());
    assert_eq!(whole(&was), whole(&is));
    assert!(is.blocks() <= was.blocks() + 64, "{} {}", is.blocks(), was.blocks());
    let same = Command::new("cmp").args([env.path("tree/holed"), to.join("holed")]).status();
    assert!(same.expect("cmp runs").success());
    let sums = fs::read(env.path("sums")).expect("a list");
    let sums = String::from_utf8_lossy(&sums);
    let sum = |name: &str| sums.lines().any(|line| line.ends_with(&format!("  {name}")));
    assert!(sum("tree/holed") && sum("named") && !sum("tree/near"), "{sums}");
    let digest = blake3::Hasher::new()
        .update_reader(fs::File::open(env.path("tree/holed")).expect("opened"))
        .expect("read")
        .finalize()
        .to_hex();
    assert!(sums.contains(&format!("{digest}  tree/holed")), "{sums}");
}

#[test]
fn a_whole_copy_again_leaves_nothing_out() {
    let env = Env::new();
    env.make_directory("tree");
    env.make_directory("to");
    env.make_file("tree/file", 3_000);
    fs::hard_link(env.path("tree/file"), env.path("tree/same")).expect("linked");
    symlink("..", env.path("tree/up")).expect("linked");
    for (args, atomic) in
        [(&[][..], false), (&[], false), (&["--overwrite", "always"], false), (&[], true)]
    {
        if atomic {
            fs::remove_dir_all(env.path("to/tree")).expect("removed");
        }
        let own = if atomic { &["--atomic"][..] } else { &[] };
        let (sender, receiver) = send(&env, &[&["tree"], own].concat(), &[args, own].concat());
        sender.exits(0);
        receiver.exits(0);
        let link = fs::read_link(env.path("to/tree/up")).expect("a link");
        assert_eq!(link.as_os_str(), "..");
        let inode = |name: &str| fs::symlink_metadata(env.path(name)).expect("there").ino();
        assert_eq!(inode("to/tree/file"), inode("to/tree/same"));
    }
}

/// Mounts a file system on `directory` that takes names that differ in case for one.
fn folding(directory: &std::path::Path) -> bool {
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "casefold,size=64m", "tmpfs"])
        .arg(directory)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return false;
    }
    let inner = directory.join("d");
    fs::create_dir(&inner).expect("made");
    let folds = Command::new("chattr").arg("+F").arg(&inner).output();
    folds.is_ok_and(|folds| folds.status.success())
}

#[test]
fn names_that_are_one_here_are_left_out_and_lead_nowhere() {
    if !able(&["mount", "umount", "chattr"], &[]) {
        return;
    }
    let env = Env::new();
    let mounted = env.make_directory("folding");
    let folds = folding(&mounted);
    if folds {
        env.make_directory("victim");
        env.make_directory("tree/sub");
        fs::write(env.path("tree/readme"), "small").expect("written");
        fs::write(env.path("tree/README"), "LARGE").expect("written");
        // By Unicode: composed, and decomposed.
        fs::write(env.path("tree/caf\u{e9}"), "one").expect("written");
        fs::write(env.path("tree/cafe\u{301}"), "two").expect("written");
        // A link, and a directory that is the same name here.
        symlink("../../victim", env.path("tree/SUB")).expect("linked");
        fs::write(env.path("tree/sub/file"), "must not leave").expect("written");
        for overwrite in ["never", "always"] {
            let mut sender = env.start(&[&["send", "tree"][..], &HERE].concat());
            let ticket = sender.line();
            let to = format!("folding/d/{overwrite}");
            fs::create_dir(env.path(&to)).expect("made");
            let receiver = env.run(&["receive", &ticket, &to, "--overwrite", overwrite]);
            let receiver = receiver.exits(23);
            sender.finish().exits(23);
            assert!(receiver.stderr.contains("left out"), "{}", receiver.stderr);
            assert!(env.names("victim").is_empty(), "{:?}", env.names("victim"));
            assert_eq!(env.names(&format!("{to}/tree")).len(), 3, "{}", receiver.stderr);
        }
    }
    let _ = Command::new("umount").arg(&mounted).status();
    if !folds {
        skip("no file system that folds case can be mounted");
    }
}
