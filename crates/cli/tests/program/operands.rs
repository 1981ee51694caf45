//! What operands stand for: what is in a directory (`DIR/.`), and what has nothing to send.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testenv::Env;
use crate::testenv::far::Setting;
use rustix::process::Signal;

/// A directory with all that cannot be sent as a file.
fn mixed(setting: &Setting, at: &str) -> UnixListener {
    setting.put(&format!("{at}/sub/x"), b"x");
    setting.put(&format!("{at}/file"), b"f");
    let path = |name: &str| setting.env.path(at).join(name);
    symlink("file", path("link")).expect("linked");
    symlink("nowhere", path("dangling")).expect("linked");
    symlink("sub", path("to-sub")).expect("linked");
    let made = Command::new("mkfifo").arg(path("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    UnixListener::bind(path("socket")).expect("a socket")
}

fn leads(path: PathBuf, to: &str) {
    assert_eq!(fs::read_link(path).expect("a link"), Path::new(to));
}

#[test]
fn contents_given_by_a_dot_are_treated_like_entries_of_subdirectories() {
    let setting = Setting::new();
    let _socket = mixed(&setting, "near/d");
    let _other = mixed(&setting, "far/e");
    fs::create_dir(setting.env.path("far/to")).expect("made");
    fs::create_dir(setting.env.path("near/back")).expect("made");
    let from = setting.env.path("near/d");
    let mut inside = setting.command(&["-r", ".", "host:inside"]);
    inside.current_dir(&from);
    for (args, at) in [
        (&["-r", "d/.", "host:to"][..], "far/to"),
        (&["-r", "d/.", "host:new"], "far/new"),
        (&["-r", "host:e/.", "back"], "near/back"),
    ] {
        let said = setting.cp(args).exits(23);
        for name in ["pipe", "socket"] {
            assert!(said.stderr.contains(name), "{args:?}: {}", said.stderr);
        }
        let at = setting.env.path(at);
        leads(at.join("link"), "file");
        leads(at.join("dangling"), "nowhere");
        leads(at.join("to-sub"), "sub");
        assert_eq!(fs::read(at.join("file")).expect("there"), b"f");
        assert_eq!(fs::read(at.join("sub/x")).expect("there"), b"x");
    }
    crate::testenv::Running::new(inside).finish().exits(23);
    leads(setting.env.path("far/inside/link"), "file");
    let without = ["-r", "--exclude", "file", "--exclude", "pipe", "--exclude", "socket"];
    setting.cp(&[&without[..], &["d/.", "host:less"]].concat()).exits(0);
    assert!(!setting.env.path("far/less/file").exists());
    leads(setting.env.path("far/less/link"), "file");
}

#[test]
fn an_empty_directory_has_nothing_in_it_to_copy_and_that_is_no_fault() {
    let setting = Setting::new();
    fs::create_dir(setting.env.path("near/empty")).expect("made");
    fs::create_dir_all(setting.env.path("far/empty")).expect("made");
    setting.put("far/to/x", b"x");
    setting.cp(&["-r", "empty/.", "host:to"]).exits(0);
    setting.cp(&["-r", "host:empty/.", "."]).exits(0);
    assert_eq!(setting.env.names("far/to"), ["x"]);
}

#[test]
fn a_source_that_is_no_regular_file_is_left_out_and_named() {
    let setting = Setting::new();
    let _socket = mixed(&setting, "far/dir");
    setting.put("near/f", b"f");
    let made = Command::new("mkfifo").arg(setting.env.path("near/p")).status();
    assert!(made.expect("mkfifo runs").success());
    setting.cp(&["p", "f", "host:"]).exits(23).says("p: it is neither a file nor a directory");
    assert_eq!(fs::read(setting.env.path("far/f")).expect("there"), b"f");
    if Path::new("/proc/cpuinfo").exists() {
        setting.cp(&["/proc/cpuinfo", "f", "host:"]).exits(23).says("send it as a stream");
    }
    let got = setting.cp(&["host:dir/*", "."]).exits(23);
    assert!(got.stderr.contains("socket") && got.stderr.contains("pipe"), "{}", got.stderr);
    assert_eq!(fs::read(setting.env.path("near/file")).expect("there"), b"f");
}

#[test]
fn contents_go_to_a_server_as_to_another_machine() {
    let env = Env::new();
    env.make_directory("root/there");
    env.make_directory("one");
    env.make_directory("none");
    env.make_file("one/only", 1000);
    symlink("only", env.path("one/link")).expect("linked");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "ticket"]].concat());
    server.event("listening", |_| true);
    let cp = |args: &[&str]| env.run(&[&["cp", "--ticket-file", "ticket", "-r"], args].concat());
    cp(&["one/.", "netblt:///there"]).exits(0);
    cp(&["one/.", "netblt:///new"]).exits(0);
    cp(&["none/.", "netblt:///there"]).exits(0);
    for at in ["root/there", "root/new"] {
        assert_eq!(env.names(at), ["link", "only"]);
        leads(env.path(at).join("link"), "only");
    }
    server.signal(Signal::TERM);
    server.finish().exits(0);
}
