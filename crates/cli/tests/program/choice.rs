//! Which files `netblt cp` and `netblt send` take, and what they leave alone at the destination:
//! rsync's options, compared with rsync where there is one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::testenv::far::{Setting, names};
use crate::testenv::{Env, Finished, installed, last_event, skip, text, tree};

/// A tree in `near/t`.
fn put_tree(setting: &Setting) {
    for name in ["a/b/c", "a/b/x", "a/y", "d/one", "d/e/two", "f", "#g"] {
        setting.put(&format!("near/t/{name}"), name.as_bytes());
    }
}

fn rsync(setting: &Setting, args: &[&str]) {
    let ended = Command::new("rsync")
        .args(args)
        .current_dir(setting.env.path("near"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let code = ended.expect("rsync runs").code();
    assert!(matches!(code, Some(0 | 23)), "rsync ended with {code:?}");
}

#[test]
fn lists_of_names_mean_what_they_mean_to_rsync() {
    if !installed("rsync") {
        return skip("needs rsync");
    }
    let lists = [
        ("a/b/c\nf\n", &[][..]),
        ("# a comment\n; and one\n\n/a//b/c\n./#g\n", &[]),
        ("a/b/c\r\nd\n", &[]),
        ("d\na/b\n", &["-r"]),
        ("d/\n", &[]),
        ("d/.\nf\n", &["-r"]),
        (".\n", &[]),
        (".\n", &["-r"]),
        ("missing\nf\na/none\n", &[]),
        ("f\0a/y\0", &["-0"]),
    ];
    for (list, options) in lists {
        let setting = Setting::new();
        put_tree(&setting);
        setting.put("near/list", list.as_bytes());
        for there in ["far/up", "near/down", "near/rsync"] {
            setting.env.make_directory(there);
        }
        // The far side's home is `far`.
        setting.env.make_directory("far/t");
        rsync(&setting, &["-a", "t/", "../far/t/"]);
        let own = [options, &["--files-from", "list"]].concat();
        let expected = if list.contains("missing") { 23 } else { 0 };
        setting.cp(&[&own[..], &["t", "host:up"]].concat()).exits(expected);
        setting.cp(&[&own[..], &["host:t", "down"]].concat()).exits(expected);
        rsync(&setting, &[&own[..], &["-pt", "t", "rsync"]].concat());
        let wanted = setting.tree("near/rsync");
        assert!(!wanted.is_empty());
        assert_eq!(setting.tree("far/up"), wanted, "up, {list:?} {options:?}");
        assert_eq!(setting.tree("near/down"), wanted, "down, {list:?} {options:?}");
    }
}

#[test]
fn a_list_may_come_from_standard_input_and_must_make_sense() {
    let setting = Setting::new();
    put_tree(&setting);
    let with_input = |args: &[&str], input: &str| {
        let all: Vec<String> = ["cp", "-S", setting.ssh.to_str().expect("text")]
            .iter()
            .chain(args)
            .map(|word| (*word).to_owned())
            .collect();
        setting.env.run_with_input(&all, input.into())
    };
    let near = text(&setting.env.path("near/t"));
    with_input(&["--files-from", "-", &near, "host:"], "a/y\n").exits(0);
    assert_eq!(names(&setting.tree("far")), ["a", "a/y"]);
    with_input(&["-0", "--files-from", "-", &near, "host:"], "f\0").exits(0);
    assert_eq!(names(&setting.tree("far")), ["a", "a/y", "f"]);
    let missing = with_input(&["--files-from", "-", &near, "host:"], "none\nf\n").exits(23);
    missing.says("skipped").says("none: No such file").says("(1 left out)");
    with_input(&["--files-from", "-", &near, "host:"], "a/../../f\n").exits(11).says("leads out");
    setting.put("near/list", b"f\n");
    setting.cp(&["--files-from", "list", "t", "t", "host:"]).exits(1).says("takes one source");
    setting.cp(&["--files-from", "none", "t", "host:"]).exits(11).says("--files-from none");
    setting.cp(&["--files-from", "list", "t/f", "host:"]).exits(11).says("not a directory");
    setting.cp(&["--files-from", "list", "t", "host:none"]).exits(11).says("no such directory");
    setting.cp(&["-0", "t/f", "host:"]).exits(1).says("--files-from");
}

#[test]
fn a_far_end_sends_nothing_that_is_not_listed() {
    if !installed("perl") {
        return skip("needs perl");
    }
    let setting = Setting::new();
    setting.put("far/t/a/c", b"c");
    setting.put("far/t/a/b", b"secret");
    setting.put("near/list", b"a/c\n");
    setting.env.make_directory("near/down");
    // On its way there the list changes: of `a/c` comes `a/b`.
    let ssh = fs::read_to_string(&setting.ssh).expect("read");
    let change = "perl -e 'while (sysread(STDIN, $b, 65536)) { $b =~ s/,99\\]/,98]/g; \
                  syswrite(STDOUT, $b) }' | sh -c \"$last\"";
    let liar = ssh.replace("exec sh -c \"$last\"", change);
    assert_ne!(ssh, liar);
    fs::write(&setting.ssh, liar).expect("written");
    setting.cp(&["--files-from", "list", "host:t", "down"]).exits(11).says("it was not requested");
    assert!(!setting.env.path("near/down/a/b").exists());
}

fn set_time(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("set");
}

#[test]
fn existing_files_stay_under_the_options_that_keep_them() {
    for up in [true, false] {
        let setting = Setting::new();
        let (from, to) = if up { ("near", "far") } else { ("far", "near") };
        let old = SystemTime::now() - Duration::from_secs(3600);
        for (name, there, newer_there) in
            [("newer", true, true), ("older", true, false), ("new", false, false)]
        {
            setting.put(&format!("{from}/t/{name}"), b"from");
            if there {
                setting.put(&format!("{to}/t/{name}"), b"there");
                let aged = if newer_there { from } else { to };
                set_time(&setting.env.path(&format!("{aged}/t/{name}")), old);
            }
        }
        let cp = |option: &[&str]| {
            let ends = if up { ["t", "host:"] } else { ["host:t", "."] };
            setting.cp(&[option, &["-r"], &ends].concat())
        };
        let content = |name: &str| {
            fs::read_to_string(setting.env.path(&format!("{to}/t/{name}"))).expect("read")
        };
        let listed = cp(&["-n", "--ignore-existing"]).exits(0).text();
        assert_eq!(listed, "t/\nt/new\t4\n");
        let passed = |finished: Finished| last_event(&finished.text(), "summary")["passed"].clone();
        assert_eq!(passed(cp(&["--ignore-existing", "--json"]).exits(0)), 2);
        assert_eq!(content("new") + &content("older") + &content("newer"), "fromtherethere");
        fs::remove_file(setting.env.path(&format!("{to}/t/new"))).expect("removed");
        cp(&["-u"]).exits(0).says("2 files (1 there already)");
        assert_eq!(content("new") + &content("older") + &content("newer"), "fromfromthere");
        // A time that differs a little counts as the same where that is said.
        let there = fs::metadata(setting.env.path(&format!("{to}/t/new"))).expect("there");
        let there = there.modified().expect("known");
        let own = setting.env.path(&format!("{from}/t/new"));
        set_time(&own, there + Duration::from_millis(1500));
        let window = ["-n", "-u", "--modify-window"];
        assert_eq!(cp(&[&window[..], &["2"]].concat()).exits(0).text(), "t/\n");
        assert_eq!(cp(&[&window[..], &["1500ms"]].concat()).exits(0).text(), "t/\n");
        assert_eq!(cp(&[&window[..], &["1s"]].concat()).exits(0).text(), "t/\nt/new\t4\n");
        set_time(&own, there - Duration::from_secs(60));
        // Everything is there: nothing is sent, and that is no failure.
        assert_eq!(passed(cp(&["--update", "--json"]).exits(0)), 3);
        let all = cp(&["--ignore-existing"]).exits(0);
        all.says("0 files (3 there already)");
        let one = if up { ["t/new", "host:t"] } else { ["host:t/new", "t"] };
        setting.cp(&[&["--ignore-existing"][..], &one].concat()).exits(0).says("0 files");
        cp(&[]).exits(0);
        assert_eq!(content("newer"), "from");
    }
}

/// Permissions beneath a directory.
fn modes(root: &Path) -> BTreeMap<String, u32> {
    let mode = |name: &String| {
        fs::metadata(root.join(name)).expect("examined").permissions().mode() & 0o7777
    };
    tree(root).keys().map(|name| (name.clone(), mode(name))).collect()
}

#[test]
fn permissions_change_as_rsync_changes_them() {
    if !installed("rsync") {
        return skip("needs rsync");
    }
    let changes =
        ["D750,F640", "u+w,go-w", "a+X", "Fo=r,Du=rwx", "go=", "+w", "F600,u+x", "=rw,D755"];
    for change in changes {
        let setting = Setting::new();
        put_tree(&setting);
        for (name, mode) in [("a/y", 0o755), ("f", 0o666), ("a/b/c", 0o600), ("d", 0o711)] {
            let path = setting.env.path(&format!("near/t/{name}"));
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set");
        }
        rsync(&setting, &["-a", "t", "../far/"]);
        let option = format!("--chmod={change}");
        setting.env.make_directory("near/rsync");
        rsync(&setting, &["-rp", &option, "t", "rsync"]);
        setting.env.make_directory("far/up");
        setting.env.make_directory("near/down");
        setting.cp(&["-rp", &option, "t", "host:up"]).exits(0);
        setting.cp(&["-rp", &option, "host:t", "down"]).exits(0);
        let wanted = modes(&setting.env.path("near/rsync"));
        assert_eq!(modes(&setting.env.path("far/up")), wanted, "up, {change}");
        assert_eq!(modes(&setting.env.path("near/down")), wanted, "down, {change}");
    }
}

#[test]
fn permissions_change_as_asked() {
    let setting = Setting::new();
    setting.put("near/a", b"a");
    setting.cp(&["--chmod", "F600,u+x", "a", "host:"]).exits(0);
    assert_eq!(modes(&setting.env.path("far"))["a"], 0o700);
    setting.cp(&["--chmod", "u+s", "a", "host:"]).exits(1).says("never transferred");
}

#[test]
fn send_chooses_too() {
    let env = Env::new();
    for name in ["a", "b.o", "deep/c"] {
        fs::create_dir_all(env.path("t/deep")).expect("made");
        fs::write(env.path("t").join(name), name).expect("written");
    }
    let send = |args: &[&str], list: &str| {
        let to = env.make_directory("to");
        fs::remove_dir_all(&to).and_then(|()| fs::create_dir(&to)).expect("made");
        let all = [&["send"][..], args, &["--bind", "127.0.0.1", "--quiet"]].concat();
        let mut sender = env.start_with_input(&all, list.into());
        let ticket = sender.line();
        env.run(&["receive", &ticket, "to", "--quiet", "--preserve"]).exits(0);
        sender.finish().exits(0);
        (env.path("to"), tree(&env.path("to")).into_keys().collect::<Vec<_>>())
    };
    let (_, got) = send(&["t", "--exclude", "*.o"], "");
    assert_eq!(got, ["t", "t/a", "t/deep", "t/deep/c"]);
    let (to, got) = send(&["t", "--files-from=-", "--chmod=F600"], "deep/c\na\n");
    assert_eq!(got, ["a", "deep", "deep/c"]);
    assert_eq!(modes(&to)["a"], 0o600);
    let (_, got) = send(&["t", "--files-from", "-", "--from0"], "deep\0");
    assert_eq!(got, ["deep", "deep/c"]);
    env.run(&["send", "-", "--exclude", "x"]).exits(1).says("not for - (standard input)");
    env.run(&["send", "t", "t", "--files-from", "-"]).exits(1).says("takes one PATH");
}

#[test]
fn a_growing_file_is_sent_in_its_first_size_on_request() {
    for allowed in [false, true] {
        let env = Env::new();
        let log = env.make_file("log", 5000);
        env.make_directory("to");
        let own: &[&str] = if allowed { &["--allow-changes"] } else { &[] };
        let here = ["send", "log", "--bind", "127.0.0.1"];
        let mut sender = env.start(&[&here[..], own].concat());
        let ticket = sender.line();
        let mut grown = log.clone();
        grown.extend_from_slice(b"more");
        fs::write(env.path("log"), grown).expect("written");
        let code = if allowed { 0 } else { 23 };
        env.run(&["receive", &ticket, "to"]).exits(code);
        let sender = sender.finish().exits(code);
        let sender = sender.says("it had 5000 bytes when it was found, and has 5004 now");
        if allowed {
            sender.says("was sent as it was read");
            assert!(fs::read(env.path("to/log")).expect("there") == log);
        } else {
            assert_eq!(env.names("to"), [""; 0]);
        }
    }
}
