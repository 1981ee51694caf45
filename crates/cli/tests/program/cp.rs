//! `netblt cp`: what is copied where, over UDP and through ssh; strange logins, far ends that mean
//! harm, and deaths on every side; and scp's meaning, compared with scp's own.

use std::fs;
use std::path::PathBuf;

use crate::testenv::far::{Setting, fake_ssh, names, program_directory, script};
use crate::testenv::{self, Env, Running, able, noise, wait_until};

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // What has ended and was not waited for is gone, too.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn files_and_trees_go_both_ways_over_udp_and_through_ssh() {
    for fallback in ["never", "always"] {
        let setting = Setting::new();
        let big = noise(3_000_000);
        setting.put("near/big", &big);
        setting.put("near/t/deep/er/x", b"x");
        fs::create_dir(setting.env.path("near/t/empty")).expect("made");
        let way = ["--fallback", fallback, "--json"];
        let cp = |args: &[&str]| setting.cp(&[&way[..], args].concat()).exits(0);
        let sent = cp(&["-r", "big", "t", "host:"]);
        let expected = if fallback == "always" { "ssh" } else { "udp" };
        let way = format!("{{\"way\":\"{expected}\"");
        let text = sent.text();
        assert!(text.contains(&way), "{text}");
        let summary = testenv::last_event(&text, "summary");
        assert_eq!((&summary["verified"], &summary["files"]), (&true.into(), &2.into()));
        assert_eq!(setting.tree("far"), setting.tree("near"));
        cp(&["host:big", "copy"]);
        assert_eq!(fs::read(setting.env.path("near/copy")).expect("read"), big);
        cp(&["-r", "host:t", "u"]);
        assert_eq!(setting.tree("near/u"), setting.tree("near/t"));
    }
}

/// Whichever end sends.
#[test]
fn repair_packets_go_along_if_asked_for() {
    let setting = Setting::new();
    setting.put("near/big", &noise(3_000_000));
    for (share, least, most) in [("10%", 1, 1000), ("never", 0, 0), ("auto", 0, 100)] {
        for args in [["big", "host:there"], ["host:there", "back"]] {
            let way = ["--fallback", "never", "--json", "--fec", share];
            let text = setting.cp(&[&way[..], &args].concat()).exits(0).text();
            let summary = testenv::last_event(&text, "summary");
            let count = |field: &str| summary[field].as_u64().expect("a number");
            let packets = count("repair_packets_sent") + count("repair_packets_received");
            // A round trip as short as here is worth none, unless the hosts are late.
            assert!((least..=most).contains(&packets), "{share} {args:?}: {summary}");
        }
    }
    for wrong in [&["--fec", "1"][..], &["--fec", "1%", "--policy", "background"]] {
        assert!(setting.cp(&[wrong, &["big", "host:"]].concat()).exits(1).text().is_empty());
    }
}

#[test]
fn names_and_places_mean_what_they_mean_to_scp() {
    let setting = Setting::new();
    setting.put("near/a", b"new");
    setting.put("near/b", b"b");
    setting.put("far/a", b"old");
    setting.put("far/d/x", b"x");
    setting.put("far/d/.hidden", b"h");
    setting.put("far/one.txt", b"1");
    setting.put("far/two.txt", b"2");
    setting.cp(&["a", "host:"]).exits(0);
    setting.cp(&["--bwlimit", "100000", "-4", "a", "host:~/c"]).exits(0);
    // Options may stand anywhere, as with scp.
    setting.cp(&["a", "--rate", "1Gbit", "b", "host:d/"]).exits(0);
    let far = setting.tree("far");
    for name in ["a", "c", "d/a"] {
        assert_eq!(far[name], Some(b"new".to_vec()), "{name}");
    }
    setting.cp(&["host:*.txt", "."]).exits(0);
    setting.cp(&["-r", "host:d/.", "new"]).exits(0);
    setting.cp(&["-r", "host:d", "new"]).exits(0);
    let near = setting.tree("near");
    let expected = ["new", "new/.hidden", "new/a", "new/b", "new/d", "new/d/.hidden"];
    let found: Vec<_> = names(&near).into_iter().filter(|name| name.starts_with("new")).collect();
    assert_eq!(found[..6], expected);
    assert!(near.contains_key("one.txt") && near.contains_key("two.txt"));
    let local = setting.env.path("near/copy");
    setting.cp(&["scp://host/one.txt", local.to_str().expect("text")]).exits(0);
    assert_eq!(fs::read(local).expect("read"), b"1");
}

#[test]
fn an_impossible_copy_is_reported_and_creates_nothing() {
    let setting = Setting::new();
    setting.put("near/a", b"a");
    setting.put("near/b", b"b");
    setting.put("far/file", b"f");
    setting.put("far/d/x", b"x");
    let before = (setting.tree("near"), setting.tree("far"));
    for (args, code, says) in [
        (&["a", "b", "host:file"][..], 11, "host: file: is not a directory"),
        (&["a", "host:none/x"], 11, "host: none: no such directory"),
        (&["a", "host:none/"], 11, "no such directory"),
        (&["missing", "host:"], 23, "there is nothing to copy"),
        (&["host:missing", "."], 23, "skipped missing: No such file"),
        (&["host:none*", "."], 23, "none*: nothing matches"),
        (&["host:d", "."], 23, "-r copies directories"),
        (&["host:file", "none/x"], 11, "none: no such directory"),
        (&["host:~nobody/x", "."], 11, "other users' homes"),
        (&["a", "b"], 1, "both sides are on this machine"),
        (&["-n", "a:x", "b:y"], 1, "between two other machines"),
        (&["a:x", "b:y", "c:z"], 1, "on several machines"),
        (&["a:x", "b:y", "."], 1, "on several machines"),
        (&["a", "b:y", "."], 1, "on several machines"),
        (&["a", "-oProxyCommand=x:y"], 35, ""),
        (&["a", "ho st:"], 1, "characters that none has"),
        (&["a", "host:", "--udp-port", "9-8"], 1, "lower end first"),
        (&["a", "host:", "--exclude", "a**"], 1, "is no pattern"),
        (&["a", "host:", "--bwlimit", "0"], 1, "a rate is greater than zero"),
        (&["a", "host:", "--bwlimit", "100", "-l", "800"], 1, "cannot be used with"),
        (&["a", "host:", "--remote-netblt", "x'y"], 1, "quotes"),
        (&["a", "host:", "--remote-netblt", "/none/netblt"], 5, "(/none/netblt on "),
    ] {
        if says.is_empty() {
            continue;
        }
        setting.cp(args).exits(code).says(says);
    }
    assert_eq!(before, (setting.tree("near"), setting.tree("far")));
}

#[test]
fn files_left_out_by_cp_are_named_and_the_rest_arrives() {
    let setting = Setting::new();
    setting.put("near/t/a.c", b"c");
    setting.put("near/t/a.o", b"o");
    setting.put("near/t/.git/x", b"x");
    setting.put("near/b", b"b");
    let some = setting.cp(&["b", "t", "missing", "host:"]).exits(23);
    let some = some.says("skipped t: not a regular file").says("skipped missing: No such file");
    some.says("(2 left out)");
    assert_eq!(names(&setting.tree("far")), ["b"]);
    setting.cp(&["-r", "--exclude", "*.o", "--exclude", ".git/", "t", "host:"]).exits(0);
    assert_eq!(names(&setting.tree("far")), ["b", "t", "t/a.c"]);
    setting.put("far/t/deep/y.o", b"y");
    setting.cp(&["-r", "--exclude", "*.o", "host:t", "host:none", "."]).exits(23);
    let near = setting.tree("near");
    assert!(near.contains_key("t/deep") && !near.contains_key("t/deep/y.o"));
    let listed = setting.cp(&["-n", "-r", "host:t", "."]).exits(0).text();
    assert_eq!(listed, "t/\nt/a.c\t1\nt/deep/\nt/deep/y.o\t1\n");
    let listed = setting.cp(&["-n", "b", "host:"]).exits(0).text();
    assert_eq!(listed, "b\t1\n");
}

#[test]
fn output_of_a_login_does_not_disturb_a_copy() {
    let before = "echo Welcome; printf 'no newline'; echo warning >&2; head -c 100000 /dev/zero";
    let setting = Setting::with(before, &program_directory());
    setting.put("near/a", b"a");
    setting.cp(&["a", "host:"]).exits(0);
    assert_eq!(names(&setting.tree("far")), ["a"]);
}

#[test]
fn a_missing_program_is_installed_on_request() {
    let setting = Setting::with("", "/none");
    setting.put("near/a", b"a");
    let cp = |args: &[&str]| {
        let mut command = setting.command(args);
        command.env("PATH", "/usr/bin:/bin");
        Running::new(command).finish()
    };
    // No process is there to be asked.
    let asked = cp(&["--install", "a", "host:"]).exits(1);
    asked.says("--install asks first, and there is no terminal");
    assert_eq!(names(&setting.tree("far")), Vec::<&str>::new());
    cp(&["--install", "--yes", "-v", "a", "host:"]).exits(0).says("Installed netblt ");
    let installed = [".local", ".local/bin", ".local/bin/netblt", "a"];
    assert_eq!(names(&setting.tree("far")), installed, "and no other file");
    // From now on it is there.
    cp(&["a", "host:b"]).exits(0);
}

#[test]
fn a_program_of_another_protocol_version_is_named_and_replaced_on_request() {
    let env = Env::new();
    // It comes first in PATH there.
    let other = hello().replace("\"protocol\":", "\"protocol\":77");
    let puppet = puppet(&env, &[&other]);
    let bin = env.make_directory("bin");
    fs::copy(puppet, bin.join("netblt")).expect("copied");
    let ssh = fake_ssh(&env, "", bin.to_str().expect("text"));
    env.make_directory("near");
    let setting = Setting { env, ssh };
    setting.put("near/a", b"a");
    let refused = setting.cp(&["a", "host:"]).exits(5);
    let own = hello();
    let number = |text: &str| {
        let after = text.split("\"protocol\":").nth(1).expect("a number");
        after.split(',').next().expect("a number").to_owned()
    };
    for text in [&other, &own] {
        assert!(refused.stderr.contains(&format!("(cp protocol {}, wire", number(text))));
    }
    refused.says("--install");
    assert_eq!(names(&setting.tree("far")), Vec::<&str>::new());
    let installed = setting.cp(&["--install", "--yes", "-v", "a", "host:"]).exits(0);
    installed.says("do not understand each other").says("Installed netblt ");
    // From now on it comes before the other one.
    setting.cp(&["a", "host:b"]).exits(0);
    assert!(setting.tree("far").contains_key("b"));
}

#[test]
fn a_program_that_does_not_run_on_the_remote_machine_is_not_installed() {
    let setting = Setting::with("", "/none");
    setting.put("near/a", b"a");
    let bin = setting.env.make_directory("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let cp = |args: &[&str]| {
        let mut command = setting.command(args);
        command.env("PATH", &path);
        Running::new(command).finish()
    };
    let uname = |says: &str| {
        script(&setting.env, "bin/uname", &format!("echo {says}\n"));
    };
    uname("Plan9 riscv64");
    let other = cp(&["--install", "--yes", "a", "host:"]).exits(5);
    other.says("there is none for Plan9 riscv64 to install");
    // It is copied, does not start, and is taken away again.
    uname(&format!("Linux {}", std::env::consts::ARCH));
    script(&setting.env, "bin/chmod", "echo nothing >\"$2\"; exec /bin/chmod 755 \"$2\"\n");
    let broken = cp(&["--install", "--yes", "a", "host:"]).exits(5);
    broken.says("does not run on host");
    assert_eq!(names(&setting.tree("far")), [".local", ".local/bin"]);
}

#[test]
fn a_missing_far_end_is_explained() {
    let setting = Setting::with("", "/none");
    setting.put("near/a", b"a");
    let missing = setting.command(&["a", "host:"]).env("PATH", "/usr/bin:/bin").spawn();
    let missing = missing.expect("started").wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("netblt was not found on host (netblt on "), "{said}");
    assert_eq!(missing.status.code(), Some(5));
    for (script_text, code, says) in [
        ("exit 255", 35, "ssh to host failed before netblt answered there"),
        ("echo 'This account is closed.'; exit 1", 5, "which said: This account is closed."),
        ("touch started; cat >/dev/null", 5, "does not answer"),
    ] {
        let ssh = script(&setting.env, "other", &format!("{script_text}\n"));
        let mut command = setting.env.command(&["cp", "-S", ssh.to_str().expect("text")]);
        command.args(["a", "host:"]).current_dir(setting.env.path("near"));
        if script_text.starts_with("touch") {
            // It waits as long as ssh does: for a password, perhaps.
            let running = Running::new(command);
            let started = setting.env.path("near/started");
            wait_until("ssh is started", || started.exists());
            running.signal(rustix::process::Signal::INT);
            running.finish().exits(20);
        } else {
            Running::new(command).finish().exits(code).says(says);
        }
    }
}

#[test]
fn one_file_in_the_way_does_not_stop_a_thousand() {
    let setting = Setting::new();
    for number in 0..1000 {
        setting.put(&format!("near/t/{number}"), format!("file {number}").as_bytes());
    }
    // Refused there, each in its way: a directory and a file cannot replace each other.
    setting.put("far/t/7/x", b"x");
    setting.put("near/t/8x/y", b"y");
    setting.put("far/t/8x", b"a file");
    let sent = setting.cp(&["-r", "--json", "t", "host:"]).exits(23);
    let output = sent.text();
    for name in ["host: left out t/7: ", "host: left out t/8x/y: "] {
        assert!(output.contains(name), "{output}");
    }
    let summary = testenv::last_event(&output, "summary");
    assert_eq!((&summary["verified"], &summary["skipped"]), (&true.into(), &3.into()));
    let far = setting.tree("far");
    assert_eq!(far.len(), 1 + 1000 + 1 + 1);
    assert_eq!(far["t/999"], Some(b"file 999".to_vec()));
    let refused = setting.cp(&["-r", "--atomic", "t", "host:"]).exits(11);
    refused.says("t/7: is in the way");
}

/// A far end that sends these messages, whatever it receives.
fn puppet(env: &Env, words: &[&str]) -> PathBuf {
    let mut bytes = b"\nnetblt far end\n".to_vec();
    for word in words {
        bytes.push(1);
        bytes.extend_from_slice(&u32::try_from(word.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    let said = env.path("said");
    fs::write(&said, bytes).expect("written");
    script(env, "puppet", &format!("cat '{}'; exec cat >/dev/null\n", said.display()))
}

#[test]
fn a_far_end_cannot_send_unrequested_files() {
    let setting = Setting::new();
    let hello = hello();
    let name = |name: &str| {
        let bytes: Vec<String> = name.bytes().map(|byte| byte.to_string()).collect();
        format!("{{\"Unix\":[{}]}}", bytes.join(","))
    };
    let ready = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|text| name(text)).collect();
        let names = names.join(",");
        format!(
            "{{\"Ready\":{{\"addresses\":[],\"port\":0,\"plan\":{{\"Send\":{{\"names\":[{names}]}}\
             }}}}}}"
        )
    };
    for (source, offered) in [
        ("host:a.txt", &["a.txt", ".bashrc"][..]),
        ("host:*.txt", &["a.txt.sh"]),
        ("host:d", &["e"]),
    ] {
        let ssh = puppet(&setting.env, &[&hello, &ready(offered)]);
        let args = ["cp", "-r", "-S", ssh.to_str().expect("text"), source, "."];
        let mut command = setting.env.command(&args);
        command.current_dir(setting.env.path("near"));
        Running::new(command).finish().exits(2).says("which was not requested");
        assert!(setting.tree("near").is_empty());
    }
    let other = hello.replace("\"protocol\":", "\"protocol\":77");
    let odd = "{\"Hello\":7}";
    let escape = "{\"Done\":{\"code\":11,\"message\":\"\\u001b[2Jgone\",\"echo\":false,\
                  \"skipped\":0,\"passed\":0}}";
    for (words, code, says) in [
        (&[&other[..]][..], 5, "do not understand each other: install the same"),
        (&[odd], 12, "ssh connection failed: an unknown message"),
        (&[&hello, "\"Listening\""], 2, "unexpected message"),
        (&[&hello, escape], 11, "host: \\u{1b}[2Jgone"),
    ] {
        let ssh = puppet(&setting.env, words);
        let args = ["cp", "-S", ssh.to_str().expect("text"), "host:a", "."];
        let mut command = setting.env.command(&args);
        command.current_dir(setting.env.path("near"));
        Running::new(command).finish().exits(code).says(says);
    }
}

#[test]
fn a_far_end_cannot_have_many_addresses_asked() {
    let setting = Setting::new();
    setting.put("near/a", b"a");
    let many = (0..50_000).map(|n| format!("\"10.9.{}.{}\"", n / 250, n % 250 + 1));
    let odd = ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1"].map(|ip| format!("\"{ip}\""));
    let addresses: Vec<String> = odd.into_iter().chain(many).collect();
    let plan = "{\"Receive\":{\"rename\":null}}";
    let addresses = addresses.join(",");
    let ready = format!("{{\"Ready\":{{\"addresses\":[{addresses}],\"port\":9,\"plan\":{plan}}}}}");
    let ssh = puppet(&setting.env, &[&hello(), &ready]);
    let args = ["cp", "-v", "--fallback", "never", "-S", ssh.to_str().expect("text"), "a", "host:"];
    let mut command = setting.env.command(&args);
    command.current_dir(setting.env.path("near"));
    let ended = Running::new(command).finish().exits(35);
    let line = ended.stderr.lines().find(|line| line.starts_with("Trying UDP to ")).expect("said");
    let asked = line.matches(":9").count();
    assert!((1..=16).contains(&asked), "{line}");
    for odd in ["224.", "255.", " 0.", "ff02"] {
        assert!(!line.contains(odd), "{line}");
    }
}

/// What this program's own far end says first.
fn hello() -> String {
    let env = Env::new();
    let said = env.run_with_input(&["far-end"], Vec::new()).stdout;
    let after = "\nnetblt far end\n".len() + 5;
    let text = String::from_utf8_lossy(&said[after..]).into_owned();
    let end = text.find("}}").expect("a word") + 2;
    text[..end].to_owned()
}

#[test]
fn a_kill_of_either_end_leaves_only_resumable_data() {
    use rustix::process::{Pid, Signal, kill_process};
    for (victim, code) in [("near", None), ("far", Some(12)), ("interrupt", Some(20))] {
        let setting = Setting::new();
        setting.put("near/big", &noise(2_000_000));
        let running = setting.start(&["--json", "-l", "1000", "big", "host:"]);
        let mut running = running;
        running.event("progress", |data| data["bytes"].as_u64().is_some_and(|n| n > 0));
        let far = setting.far_pid();
        assert!(is_alive(far));
        match victim {
            "near" => running.signal(Signal::KILL),
            "interrupt" => running.signal(Signal::INT),
            _ => kill_process(Pid::from_raw(far).expect("a process"), Signal::KILL).expect("sent"),
        }
        let finished = running.finish();
        if let Some(code) = code {
            finished.exits(code);
        }
        wait_until("the far end is gone", || !is_alive(far));
        // Nothing but what the next one goes on from.
        let tree = setting.tree("far");
        let left = names(&tree);
        let kept = |name: &&str| name.starts_with(".netblt-partial");
        assert!(left.iter().all(kept), "{victim}: {left:?}");
        setting.cp(&["big", "host:"]).exits(0);
        assert_eq!(names(&setting.tree("far")), ["big"], "{victim}");
    }
}

#[test]
fn a_broken_copy_to_a_new_directory_is_resumed_in_it_by_the_same_command() {
    use rustix::process::Signal;
    for (near, [from, to], [source, target]) in [
        (true, ["set", "host:new"], ["near", "far"]),
        (false, ["host:set", "new"], ["far", "near"]),
    ] {
        let setting = Setting::new();
        setting.put(&format!("{source}/set/a"), &noise(500_000));
        setting.put(&format!("{source}/set/b"), &noise(4_000_000));
        // The label of the parts is made with this user's key, which needs a place.
        let start = |args: &[&str]| {
            let mut command = setting.command(args);
            command.env("XDG_CONFIG_HOME", setting.env.path("near-own"));
            Running::new(command)
        };
        // A megabyte a second: the first file has its name long before the second one.
        let running = start(&["--json", "-r", "-l", "8000", from, to]);
        let first = setting.env.path(target).join("new/a");
        wait_until("the first file is there", || first.exists());
        running.signal(Signal::INT);
        running.finish().exits(20);
        let parts = || {
            let tree = setting.tree(target);
            let is_part = |name: &&str| name.starts_with(".netblt-partial");
            names(&tree).into_iter().filter(is_part).count()
        };
        assert!(parts() > 0, "{near}");
        // Another source is not what was broken off, and goes into the directory.
        setting.put(&format!("{source}/other/x"), b"x");
        start(&["-r", &from.replace("set", "other"), to]).finish().exits(0);
        start(&["-r", from, to]).finish().exits(0).says("already");
        let tree = setting.tree(target);
        let there: Vec<_> =
            names(&tree).into_iter().filter(|name| name.starts_with("new")).collect();
        assert_eq!(there, ["new", "new/a", "new/b", "new/other", "new/other/x"], "{near}");
        assert_eq!(parts(), 0, "{near}");
        // As scp does where the directory is there.
        start(&["-r", from, to]).finish().exits(0);
        assert!(setting.env.path(target).join("new/set/b").exists(), "{near}");
    }
}

#[test]
fn without_a_way_for_udp_the_data_go_through_ssh() {
    if !able(&["unshare"], &[]) {
        return;
    }
    // A far end in a network of its own, of which nothing leads here.
    let env = Env::new();
    let far = env.make_directory("far");
    env.make_directory("near");
    let ssh = script(
        &env,
        "ssh",
        &format!(
            "for last; do :; done\n\
             case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
             cd '{far}' && export HOME='{far}' PATH=\"{path}:$PATH\"\n\
             export XDG_CONFIG_HOME='{own}' XDG_STATE_HOME='{own}'\n\
             exec unshare -n sh -c \"ip link set lo up; $last\"\n",
            far = far.display(),
            own = env.path("far-own").display(),
            path = program_directory(),
        ),
    );
    let setting = Setting { env, ssh };
    let data = noise(1_000_000);
    setting.put("near/a", &data);
    setting.cp(&["a", "host:"]).exits(0).says("the data go through ssh");
    setting.cp(&["host:a", "b"]).exits(0).says("UDP does not pass");
    assert_eq!(fs::read(setting.env.path("near/b")).expect("read"), data);
    setting.cp(&["--fallback", "never", "a", "host:c"]).exits(35).says("--fallback never forbids");
    assert_eq!(names(&setting.tree("far")), ["a"]);
}
