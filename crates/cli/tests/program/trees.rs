//! Trees as people have them, from program to program.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::testenv::far::Setting;
use crate::testenv::{self, Env, Finished, Running, able, skip};

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
    // Every name of a file, and the receiver's list is the same.
    assert!(sum("tree/same") && sum("tree/sub/file"), "{sums}");
    for own in [&[][..], &["--atomic"]] {
        fs::remove_dir_all(env.path("to/tree"))
            .and_then(|()| fs::remove_file(env.path("to/named")))
            .expect("removed");
        let sources = [&["tree", "named"], own].concat();
        let (sender, receiver) = send(&env, &sources, &[&["--manifest", "theirs"], own].concat());
        sender.exits(0);
        receiver.exits(0);
        let theirs = fs::read(env.path("theirs")).expect("a list");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&String::from_utf8_lossy(&theirs)), sorted(&sums));
    }
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

#[test]
fn links_are_followed_if_asked_and_go_round_nowhere() {
    let setting = Setting::new();
    setting.put("near/t/sub/file", b"content");
    setting.put("near/t/secret.o", b"left out");
    setting.put("near/outside/deep/x", b"x");
    let link = |to: &str, name: &str| {
        symlink(to, setting.env.path("near/t").join(name)).expect("linked");
    };
    link("sub/file", "near");
    link("../outside", "out");
    link("..", "sub/up");
    link("nowhere", "dangling");
    link("/dev/null", "special");
    symlink("../t", setting.env.path("near/outside/back")).expect("linked");
    let expected = [("near", &b"content"[..]), ("sub/file", b"content"), ("out/deep/x", b"x")];
    let whole = |place: &str| {
        let tree = setting.tree(place);
        let files =
            tree.iter().filter_map(|(name, content)| Some((&name[..], &content.as_ref()?[..])));
        let mut wanted = expected;
        wanted.sort_unstable();
        assert_eq!(files.collect::<Vec<_>>(), wanted, "{place}");
        let near = setting.env.path(place).join("near");
        assert!(fs::symlink_metadata(near).expect("there").is_file());
    };
    let named = |run: Finished| {
        let run = run.exits(23).says("t/dangling").says("skipped");
        let round = "it cannot be sent: it is a link to a directory that it is in";
        let run = run.says(&format!("t/sub/up: {round}")).says(&format!("out/back: {round}"));
        run.says("t/special: it cannot be sent: it is a link to a pipe, a socket or a device");
    };
    named(setting.cp(&["-rL", "--exclude", "*.o", "t", "host:"]));
    whole("far/t");
    fs::remove_dir_all(setting.env.path("far")).expect("removed");
    setting.env.make_directory("far");
    fs::rename(setting.env.path("near/t"), setting.env.path("far/t")).expect("moved");
    fs::rename(setting.env.path("near/outside"), setting.env.path("far/outside")).expect("moved");
    named(setting.cp(&["-r", "--copy-links", "--exclude", "*.o", "host:t", "."]));
    whole("near/t");
    let stream = setting.env.run(&["send", "-", "-L"]).exits(1);
    stream.says("are for files");
}

#[test]
fn special_files_are_named_and_the_rest_arrives() {
    let env = Env::new();
    env.make_directory("t");
    env.make_file("t/file", 100);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, env.path("t/pipe"), mode).expect("made");
    let socket = UnixListener::bind(env.path("t/socket")).expect("bound");
    env.make_directory("to");
    let (sender, receiver) = send(&env, &["t"], &["--json"]);
    let sender = sender.exits(23).says("t/pipe: it cannot be sent: it is a pipe");
    sender.says("t/socket: it cannot be sent: it is a socket");
    let receiver = receiver.exits(23);
    let summary = receiver.last_event("summary");
    assert_eq!((&summary["files"], &summary["skipped"]), (&1.into(), &2.into()), "{receiver:?}");
    for name in ["t/pipe", "t/socket"] {
        assert!(receiver.text().contains(name), "{}", receiver.text());
    }
    assert_eq!(env.names("to/t"), ["file"]);
    // All of it, or nothing.
    env.run(&["send", "t", "--atomic"]).exits(11).says("it is a pipe");
    drop(socket);
}

/// Where a file system tells them apart, names that are one elsewhere are names like others.
#[test]
fn names_that_differ_in_case_or_form_alone_all_arrive_where_they_differ() {
    let env = Env::new();
    env.make_directory("t");
    let names = ["README", "cafe\u{301}", "caf\u{e9}", "readme"];
    for name in names {
        fs::write(env.path("t").join(name), name).expect("written");
    }
    if env.names("t").len() < names.len() {
        return skip("the file system takes them for one");
    }
    for overwrite in ["never", "always"] {
        env.make_directory("to");
        let (sender, receiver) = send(&env, &["t"], &["--overwrite", overwrite]);
        sender.exits(0);
        receiver.exits(0);
        assert_eq!(testenv::tree(&env.path("to/t")), testenv::tree(&env.path("t")));
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

/// How many files there are in the tree of mishaps: `NETBLT_TREE_FILES` for more.
fn many() -> usize {
    let given = std::env::var("NETBLT_TREE_FILES").ok();
    given.map_or(300, |count| count.parse().expect("a number"))
}

/// Keeps on changing a file, without changing its length, until it has to stop.
fn restless(file: fs::File, stop: &AtomicBool) {
    let mut byte = 0u8;
    while !stop.load(Ordering::Relaxed) {
        byte = byte.wrapping_add(1);
        file.write_all_at(&[byte], 0).expect("written");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn five_mishaps_in_a_tree_are_named_and_the_rest_arrives() {
    // Root can read everything.
    if !able(&[], &[]) {
        return;
    }
    let (env, count) = (Env::new(), many());
    env.make_directory("to/tree");
    for n in 0..count {
        let folder = env.make_directory(&format!("tree/{}", n % 97));
        fs::write(folder.join(format!("{n}.c")), format!("{n} ").repeat(n % 700)).expect("written");
    }
    for name in ["appended", "vanished", "unreadable", "existing"] {
        fs::write(env.path("tree").join(name), "as it was").expect("written");
    }
    // So long that it changes while it is read.
    env.make_file("tree/zz-changed", 40 << 20);
    fs::write(env.path("to/tree/existing"), "another").expect("written");
    let only_roots = fs::Permissions::from_mode(0o600);
    fs::set_permissions(env.path("tree/unreadable"), only_roots).expect("set");
    env.make_directory("tmp");
    for open in [".", "tmp"] {
        fs::set_permissions(env.path(open), fs::Permissions::from_mode(0o777)).expect("set");
    }
    let mut command = env.command(&[&["send", "tree", "--json"][..], &HERE].concat());
    let mut sender = Running::new({
        command.uid(65_534);
        command
    });
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("a text").to_owned();
    fs::OpenOptions::new()
        .append(true)
        .open(env.path("tree/appended"))
        .and_then(|mut file| file.write_all(b" and more"))
        .expect("appended");
    fs::remove_file(env.path("tree/vanished")).expect("removed");
    let stop = AtomicBool::new(false);
    let receiver = thread::scope(|scope| {
        let file = fs::OpenOptions::new().write(true).open(env.path("tree/zz-changed"));
        scope.spawn(|| restless(file.expect("opened"), &stop));
        let receiver = env.run(&["receive", &ticket, "to", "--json"]);
        stop.store(true, Ordering::Relaxed);
        receiver
    });
    let (sender, receiver) = (sender.finish().exits(23), receiver.exits(23));
    for end in [&sender, &receiver] {
        let summary = end.last_event("summary");
        assert_eq!((&summary["files"], &summary["skipped"]), (&count.into(), &5.into()), "{end:?}");
        for name in ["appended", "vanished", "unreadable", "existing", "zz-changed"] {
            assert!(end.text().contains(&format!("tree/{name}")), "no {name}: {}", end.text());
        }
    }
    for n in 0..count {
        let name = format!("tree/{}/{n}.c", n % 97);
        let arrived = fs::read(env.path("to").join(&name)).expect("arrived");
        assert!(arrived == fs::read(env.path(&name)).expect("there"), "{name}");
    }
    assert_eq!(fs::read(env.path("to/tree/existing")).expect("there"), b"another");
    assert_eq!(env.names("to"), ["tree"]);
    for name in ["appended", "vanished", "unreadable", "zz-changed"] {
        assert!(!env.path("to/tree").join(name).exists(), "{name}");
    }
}
