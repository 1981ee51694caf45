//! `netblt sync`: a directory becomes the mirror of another one, as rsync makes it, also where it
//! is interrupted.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::testenv::far::Setting;
use crate::testenv::{Running, able, noise};
use rustix::process::Signal;

/// Names, types, permissions, times, contents, targets and numbers of names, for a comparison.
fn state(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).expect("there");
        let name = path.strip_prefix(root).expect("beneath").to_string_lossy().into_owned();
        let what = match found.file_type() {
            kind if kind.is_symlink() => {
                fs::read_link(&path).expect("a link").display().to_string()
            }
            kind if kind.is_file() => {
                let content = blake3::hash(&fs::read(&path).expect("read"));
                format!("{} {}", found.nlink(), content.to_hex())
            }
            _ => {
                todo.extend(fs::read_dir(&path).expect("listed").map(|c| c.expect("read").path()));
                "directory".to_owned()
            }
        };
        let mode = if found.is_symlink() { 0 } else { found.mode() & 0o777 };
        lines.push(format!("{name} {mode:o} {}.{} {what}", found.mtime(), found.mtime_nsec()));
    }
    lines.sort();
    lines
}

/// The last event of this name.
fn event(text: &str, name: &str) -> serde_json::Value {
    let lines = text.lines().rev().map(|line| serde_json::from_str(line).expect("an event"));
    let mut events = lines.filter(|event: &serde_json::Value| event["event"] == name);
    events.next().unwrap_or_else(|| panic!("no {name} in {text}"))["data"].clone()
}

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    /// One below `most`.
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % most as u64).expect("below it")
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn same(setting: &Setting, one: &str, other: &str) {
    assert_eq!(state(&setting.env.path(one)), state(&setting.env.path(other)));
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).expect("opened").set_modified(time).expect("set");
}

#[test]
fn a_mirror_goes_both_ways_over_udp_and_through_ssh() {
    for fallback in ["never", "always"] {
        let setting = Setting::new();
        let way = ["--fallback", fallback, "--json", "--delete", "--max-delete", "100%"];
        setting.put("near/tree/big", &noise(2_000_000));
        setting.put("near/tree/d/e/small", b"x");
        symlink("../big", setting.env.path("near/tree/d/link")).expect("linked");
        let big = setting.env.path("near/tree/big");
        fs::hard_link(&big, setting.env.path("near/tree/d/same")).expect("linked");
        fs::create_dir(setting.env.path("near/tree/empty")).expect("made");
        let up = |extra: &[&str]| {
            let args = [&way[..], extra, &["tree", "host:mirror"]].concat();
            setting.sync(&args).exits(0).text()
        };
        let down = |extra: &[&str]| {
            let args = [&way[..], extra, &["host:mirror", "back"]].concat();
            setting.sync(&args).exits(0).text()
        };
        up(&[]);
        down(&[]);
        same(&setting, "near/tree", "far/mirror");
        same(&setting, "near/tree", "near/back");
        // Nothing differs: nothing is sent.
        for text in [up(&[]), down(&[])] {
            assert_eq!(event(&text, "summary")["files"], 0);
            assert_eq!(event(&text, "mirror")["unchanged"], 7, "{text}");
        }
        fs::rename(big, setting.env.path("near/tree/d/e/moved")).expect("renamed");
        fs::remove_file(setting.env.path("near/tree/d/same")).expect("removed");
        setting.put("near/tree/d/e/small", b"changed");
        let text = up(&[]);
        let mirror = event(&text, "mirror");
        assert_eq!((&mirror["renamed"], &mirror["removed"]), (&1.into(), &1.into()), "{text}");
        assert_eq!(event(&text, "summary")["bytes"], 7);
        down(&[]);
        same(&setting, "near/tree", "far/mirror");
        same(&setting, "near/tree", "near/back");
    }
}

#[test]
fn a_dry_run_lists_what_a_run_does() {
    let setting = Setting::new();
    for name in ["a", "d/b", "d/c"] {
        setting.put(&format!("near/tree/{name}"), name.as_bytes());
    }
    setting.put("far/mirror/gone", b"g");
    for args in [["tree", "host:mirror"], ["host:mirror", "back"]] {
        let before = setting.tree("far");
        let list = setting.sync(&[&["-n", "--delete"], &args[..]].concat()).exits(0).text();
        assert_eq!(setting.tree("far"), before);
        assert!(!setting.env.path("near/back").exists());
        let done = ["--itemize-changes", "--delete"];
        let done = setting.sync(&[&done, &args[..]].concat()).exits(0).text();
        assert_eq!(list, done);
        assert!(list.contains("f+++++++++ d/b\n"), "{list}");
    }
    let json = setting.sync(&["--json", "-n", "tree", "host:new"]).exits(0).text();
    assert_eq!(event(&json, "change")["code"], "<f+++++++++");
}

#[test]
fn too_much_to_remove_changes_nothing() {
    let setting = Setting::new();
    setting.put("near/tree/a", b"a");
    for number in 0..30 {
        setting.put(&format!("far/mirror/{number}"), b"x");
        setting.put(&format!("near/other/x{number}"), b"x");
    }
    let before = setting.tree("far");
    let refused = |args: &[&str]| setting.sync(&[&["--delete"], args].concat()).exits(25);
    refused(&["tree", "host:mirror"]).says("30 of 30 entries would be removed");
    refused(&["--max-delete", "29", "tree", "host:mirror"]).says("nothing was changed");
    refused(&["host:mirror", "other", "--exclude", "1*", "--max-delete", "0"]);
    fs::create_dir(setting.env.path("near/empty")).expect("made");
    refused(&["empty", "host:mirror"]).says("since the source is empty");
    assert_eq!(setting.tree("far"), before);
    setting.sync(&["--delete", "--max-delete", "30", "tree", "host:mirror"]).exits(0);
    same(&setting, "near/tree", "far/mirror");
}

/// Random trees and rules: the result is that of rsync.
#[test]
fn a_mirror_is_what_rsync_makes() {
    if !able(&["rsync"], &[]) {
        return;
    }
    for seed in 0..seeds() {
        let mut random = Random(seed);
        let setting = Setting::new();
        for root in ["near/tree", "far/mirror"] {
            let root = setting.env.path(root);
            fs::create_dir_all(&root).expect("made");
            grow(&root, &mut random);
        }
        let copy = setting.env.path("by_rsync");
        let mirror = setting.env.path("far/mirror");
        let status = Command::new("cp").arg("-a").arg(mirror).arg(&copy).status().expect("run");
        assert!(status.success());
        let before = state(&setting.env.path("far/mirror"));
        let mut rules = Vec::new();
        for _ in 0..random.below(4) {
            let sign = if random.coin() { "--include" } else { "--exclude" };
            let patterns = ["a*", "/b", "c/", "*b/a", "/c/**", "d/***", "[ab]", "**a", "/a/*/c"];
            rules.push(format!("{sign}={}", patterns[random.below(patterns.len())]));
        }
        let mut options: Vec<&str> = vec!["--delete"];
        if random.coin() {
            options.push("--checksum");
        }
        if random.coin() {
            options.push("--delete-excluded");
        }
        options.extend(rules.iter().map(String::as_str));
        let mut rsync = Command::new("rsync");
        rsync.arg("-a").arg("--modify-window=-1").args(&options);
        rsync.arg(setting.env.path("near/tree/.")).arg(&copy);
        let by_rsync = rsync.output().expect("run");
        // 23: an excluded file keeps a directory where something else is to be.
        let code = by_rsync.status.code().expect("it ran to its end");
        assert!([0, 23].contains(&code), "{by_rsync:?}");
        let limit = ["--max-delete", "100%"];
        let done = setting.sync(&[&options, &limit[..], &["tree", "host:mirror"]].concat());
        // Unlike rsync, it does not remove an excluded directory to make way for a file.
        if code == 0 && done.code == Some(23) && done.stderr.contains("is in the way") {
            continue;
        }
        let done = done.exits(code);
        if code == 23 {
            // Unlike rsync, a mirror removes nothing where a file is left out.
            continue;
        }
        // A directory that stays only for what is excluded in it has the time of the removals.
        let timeless = |lines: Vec<String>| -> Vec<String> {
            let line = |line: String| match line.split_once(" directory") {
                Some((start, "")) if !start.ends_with(".0") => {
                    start.rsplit_once(' ').map(|(name, _)| name.to_owned()).unwrap_or(line)
                }
                _ => line,
            };
            lines.into_iter().map(line).collect()
        };
        let own = timeless(state(&setting.env.path("far/mirror")));
        let theirs = timeless(state(&copy));
        assert_eq!(own, theirs, "seed {seed} {options:?} {code}\n{}\n{before:?}", done.stderr);
    }
}

/// How many random trees are compared.
fn seeds() -> u64 {
    std::env::var("NETBLT_SYNC_SEEDS").map_or(12, |text| text.parse().expect("a number"))
}

/// Makes a random tree of few names, sizes and times, so that two of them have much in common.
fn grow(root: &Path, random: &mut Random) {
    let mut directories = vec![root.to_path_buf()];
    for _ in 0..25 {
        let above = directories[random.below(directories.len())].clone();
        let path = above.join(["a", "b", "c", "d", "ab", ".x"][random.below(6)]);
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match random.below(6) {
            0 | 1 => {
                fs::create_dir(&path).expect("made");
                directories.push(path);
            }
            2 => symlink(["a", "../b"][random.below(2)], &path).expect("linked"),
            _ => {
                fs::write(&path, ["", "x", "y", "xyz"][random.below(4)]).expect("written");
                let mode = [0o644, 0o600][random.below(2)];
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
                set_time(&path, 1 + random.below(2) as u64);
            }
        }
    }
    directories.iter().rev().for_each(|path| set_time(path, 5 + random.below(3) as u64));
}

/// Either end is killed at any time: every file is the old or the new one, and the next run makes
/// the mirror.
#[test]
fn a_mirror_that_was_killed_is_right_when_it_is_run_again() {
    let kills =
        std::env::var("NETBLT_SYNC_KILLS").map_or(8, |text| text.parse().expect("a number"));
    let setting = Setting::new();
    let mut random = Random(998);
    let (mut old, mut version) = (Vec::new(), 0);
    for round in 0..kills {
        for _ in 0..6 {
            version += 1;
            let name = format!("near/tree/{}/{}", random.below(3), random.below(5));
            setting.put(&name, &noise(1 + random.below(400_000)));
            set_time(&setting.env.path(&name), 1_000 + version);
        }
        let gone = setting.env.path(&format!("near/tree/{}", random.below(3)));
        if random.coin() && gone.exists() {
            fs::remove_dir_all(gone).expect("removed");
        }
        fs::create_dir_all(setting.env.path("near/tree")).expect("made");
        let all = ["--delete", "--max-delete", "100%", "--rate", "40Mbit", "tree", "host:mirror"];
        let running = Running::new(setting.command_of("sync", &all));
        std::thread::sleep(Duration::from_millis(random.below(400) as u64));
        match random.coin() {
            true => running.signal(Signal::KILL),
            false => {
                let pid = fs::read_to_string(setting.env.path("pid")).unwrap_or_default();
                if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw)
                {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
        }
        drop(running.finish());
        let mirror = setting.env.path("far/mirror");
        let new = contents(&setting.env.path("near/tree"));
        for (name, content) in contents(&mirror) {
            let whole = new.contains(&(name.clone(), content.clone()))
                || old.contains(&(name.clone(), content));
            assert!(whole, "round {round}: {name} is neither old nor new");
        }
        if random.coin() {
            setting.sync(&all).exits(0);
            same(&setting, "near/tree", "far/mirror");
            old.clear();
        }
        old.extend(new);
    }
    let all = ["--delete", "--max-delete", "100%", "tree", "host:mirror"];
    setting.sync(&all).exits(0);
    same(&setting, "near/tree", "far/mirror");
}

/// Names and digests of files that are not netblt's own.
fn contents(root: &Path) -> Vec<(String, String)> {
    let (mut found, mut todo) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(path) = todo.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.map(|entry| entry.expect("read")) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(".netblt-") {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(root).expect("beneath").display().to_string();
            let digest = blake3::hash(&fs::read(&path).expect("read")).to_hex().to_string();
            found.push((name, digest));
        }
    }
    found
}

#[test]
fn options_without_a_meaning_for_a_mirror_are_refused() {
    let setting = Setting::new();
    setting.put("near/tree/a", b"a");
    for (args, says) in [
        (&["tree", "other"][..], "both sides are on this machine"),
        (&["one:tree", "other:mirror"], "run netblt sync on one of the two machines"),
        (&["tree", "netblt://host/x"], "there is no mirror on this route"),
        (&["--files-from", "list", "tree", "host:m"], "--files-from means nothing for a mirror"),
        (&["--atomic", "tree", "host:m"], "--atomic means nothing for a mirror"),
        (&["--exclude", "[", "tree", "host:m"], "is no pattern"),
        (&["--exclude-from", "none", "tree", "host:m"], "--exclude-from none: No such file"),
        (&["--max-delete", "200%", "tree", "host:m"], "a share from 0% to 100%"),
        (&["--backup-dir", "../x", "tree", "host:m"], "it is a directory in DST"),
        (&["--ticket-file", "x", "tree", "host:m"], "unexpected argument"),
        (&["--update", "tree", "host:m"], "unexpected argument"),
    ] {
        setting.sync(args).exits(1).says(says);
    }
    setting.sync(&["none", "host:m"]).exits(11).says("none: cannot be listed: No such file");
    setting.sync(&["tree/a", "host:m"]).exits(11).says("Not a directory");
    setting.sync(&["tree", "host:no/m"]).exits(11).says("no/m: cannot be made: No such file");
    assert!(setting.tree("far").is_empty());
}

/// Each option of the transfer is taken, and the mirror is right.
#[test]
fn the_options_of_a_copy_hold_for_a_mirror() {
    let setting = Setting::new();
    setting.put("near/tree/a.c", b"a");
    setting.put("near/tree/b.o", b"b");
    setting.put("near/tree/keep.o", b"k");
    setting.put("near/include", b"keep.o\n");
    setting.put("near/exclude", b"*.o\n");
    let files = ["--include-from", "include", "--exclude-from", "exclude"];
    let paths = ["--manifest", "sums", "--trace", "trace", "--report", "page.html"];
    let sums = ["--hash", "md5", "--manifest-format", "md5sum"];
    let path = ["-4", "--udp-port", "20000-40000", "--streams", "1", "--fec", "never", "--rate"];
    let names = ["--resume", "never", "--keep-partial", "1h", "--death-timer", "20s", "--verify"];
    let more = ["-v", "--stats", "--no-path-cache", "--max-files", "100", "--progress=1s"];
    let attributes = ["--owner", "--xattrs", "--acls", "--chmod", "F600", "-L", "--allow-changes"];
    let own = ["--delete-before", "--delete-excluded", "--backup-dir", ".old", "--policy", "fair"];
    let far_end = ["--remote-netblt", "netblt", "-F", "none", "-o", "A=b", "-i", "x", "-P", "22"];
    let all = [
        &files[..],
        &paths,
        &sums,
        &path,
        &["1Gbit"],
        &names,
        &more,
        &attributes,
        &own,
        &far_end,
        &["-J", "gate", "--modify-window", "1", "-c", "-B", "tree", "host:mirror"],
    ]
    .concat();
    setting.put("far/mirror/old.c", b"old");
    setting.sync(&all).exits(0);
    let far = setting.tree("far/mirror");
    let names: Vec<_> = far.keys().map(String::as_str).collect();
    assert_eq!(names, [".old", ".old/old.c", "a.c", "keep.o"]);
    let mode = fs::metadata(setting.env.path("far/mirror/a.c")).expect("there").mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(setting.env.path("near/page.html").exists());
    assert!(fs::read_to_string(setting.env.path("near/sums")).expect("a list").contains("a.c"));
    setting.sync(&["-6", "--fallback", "never", "tree", "host:m"]).exits(0);
    setting.sync(&["-q", "-r", "-p", "--delete-after", "-l", "100000", "tree", "host:m"]).exits(0);
    let stored = ["--store-hash", "host:m", "stored"];
    // 23: this file system has no such attributes.
    setting.sync(&stored).exits_with_one_of(&[0, 23]);
    let more = ["--bwlimit", "100000", "--install", "--yes", "tree", "host:n"];
    setting.sync(&more).exits(0);
    same(&setting, "near/tree", "far/m");
    same(&setting, "near/tree", "far/n");
}
