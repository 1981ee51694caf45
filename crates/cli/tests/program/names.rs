//! Names that are no text: they are matched, shown and moved as the bytes that they are.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use crate::testenv::far::Setting;
use crate::testenv::{Env, Finished, Running, installed};
use rustix::process::Signal;
use serde_json::Value;

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

/// The data of all JSON events of this name.
fn events(finished: &Finished, name: &str) -> Vec<Value> {
    let text = finished.text();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == name).map(|event| event["data"].clone()).collect()
}

/// What names these events have, as bytes.
fn names_in(events: &[Value], key: &str) -> Vec<Vec<u8>> {
    let bytes = |hex: &str| -> Vec<u8> {
        let at = (0..hex.len()).step_by(2);
        at.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    };
    let name = |event: &Value| match event[format!("{key}_hex")].as_str() {
        Some(hex) => bytes(hex),
        None => event[key].as_str().expect("a name").as_bytes().to_vec(),
    };
    let mut names: Vec<_> = events.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn patterns_match_them() {
    let setting = Setting::new();
    setting.put("far/g/a1", b"a");
    setting.put("near/t/kept", b"k");
    for (directory, name) in [("far/g", &b"z\xff"[..]), ("near/t", b"y\xff"), ("near/t", b"y\xfe")]
    {
        fs::write(setting.env.path(directory).join(os(name)), "odd").expect("written");
    }
    setting.cp(&["host:g/a*", "."]).exits(0);
    setting.cp(&["host:g/z*", "."]).exits(0);
    assert_eq!(fs::read(setting.env.path("near").join(os(b"z\xff"))).expect("there"), b"odd");
    let odd = os(b"y\xff");
    let mut without = setting.command(&["-r", "t", "host:", "--exclude"]);
    without.arg(&odd);
    Running::new(without).finish().exits(0);
    let far = setting.env.path("far/t");
    assert!(far.join(os(b"y\xfe")).exists() && !far.join(&odd).exists());
}

#[test]
fn json_has_the_bytes_of_a_name() {
    let env = Env::new();
    let names = [&b"\x1b[2J"[..], b"plain", b"\xfe", b"\xff"];
    env.make_directory("from");
    env.make_directory("to");
    for name in names {
        fs::write(env.path("from").join(os(name)), name).expect("written");
    }
    let here = ["--bind", "127.0.0.1", "--json"];
    let mut sender = env.start(&[&["send", "from"], &here[..]].concat());
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    let offered = env.run(&["receive", &ticket, "--list", "--json"]).exits(0);
    let within: Vec<_> = names.iter().map(|name| [b"from/", *name].concat()).collect();
    let all = names_in(&events(&offered, "offered"), "name");
    assert_eq!(all, [&[b"from".to_vec()], &within[..]].concat());
    let received = env.run(&["receive", &ticket, "to", "--json"]).exits(0);
    assert_eq!(names_in(&events(&received, "file"), "name"), within);
    assert_eq!(names_in(&events(&sender.finish().exits(0), "file"), "name"), within);
    let text = events(&received, "file").iter().filter(|file| file["name_hex"].is_null()).count();
    assert_eq!(text, 2, "only what is no text has hexadecimal digits as well");
}

#[test]
fn servers_list_and_log_the_bytes_of_a_name() {
    let env = Env::new();
    env.make_directory("root");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let told_to = ["--audit", "audit", "--ticket-file", "ticket"];
    let mut server = env.start(&[&serve[..], &told_to].concat());
    server.event("listening", |_| true);
    let ask = |words: &[&str], paths: &[&[u8]]| {
        let url = |path: &&[u8]| os(&[b"netblt:///", *path].concat());
        let words = words.iter().map(OsString::from).chain(paths.iter().map(url));
        let options = ["--json", "--ticket-file", "ticket"].map(OsString::from);
        env.run(&words.chain(options).collect::<Vec<_>>()).exits(0)
    };
    for name in [b"\xfe", b"\xff"] {
        let made = events(&ask(&["mkdir"], &[name]), "made");
        assert_eq!(names_in(&made, "path"), [name]);
    }
    let moved = events(&ask(&["mv"], &[b"\xfe", b"\xfd"]), "moved");
    assert_eq!(
        (names_in(&moved, "path"), names_in(&moved, "to")),
        (vec![vec![0xfe]], vec![vec![0xfd]])
    );
    let removed = events(&ask(&["rm", "-d"], &[b"\xfd", b"\xff"]), "removed");
    assert_eq!(names_in(&removed, "path"), [b"\xfd", b"\xff"]);
    server.signal(Signal::TERM);
    server.finish().exits(0);
    let audit = fs::read_to_string(env.path("audit")).expect("the audit log");
    let lines: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let made: Vec<Value> = lines.into_iter().filter(|line| line["request"] == "mkdir").collect();
    assert_eq!(names_in(&made, "path"), [b"\xfe", b"\xff"]);
}

#[test]
fn a_list_that_b3sum_refuses_is_said_to_be_one() {
    let env = Env::new();
    env.make_directory("from");
    env.make_directory("to");
    fs::write(env.path("from").join(os(b"\xff")), "odd").expect("written");
    env.make_file("from/plain", 10);
    for (options, says) in [(&[][..], true), (&["--exclude", "?"][..], false)] {
        let here = ["send", "from", "--manifest", "sums", "--bind", "127.0.0.1"];
        let mut sender = env.start(&[&here[..], options].concat());
        let ticket = sender.line();
        let theirs = ["receive", &ticket, "to", "--manifest", "theirs", "--overwrite", "always"];
        let receiver = env.run(&theirs).exits(0);
        let sender = sender.finish().exits(0);
        for (end, list) in [(&sender, "sums"), (&receiver, "theirs")] {
            let said = format!("{list}: b3sum refuses to check this list: 1 of its names");
            assert_eq!(end.stderr.contains(&said), says, "{}", end.stderr);
        }
        if installed("b3sum") {
            let mut check = Command::new("b3sum");
            check.args(["--check", "sums"]).current_dir(env.path(""));
            let checked = check.output().expect("it runs");
            assert_eq!(checked.status.success(), !says);
        }
    }
}
