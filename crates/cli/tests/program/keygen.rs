//! `netblt keygen`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::testenv::{self, Env};
use netblt::keys::{PublicLine, file, fingerprint};

#[test]
fn a_key_file_is_private_and_its_public_line_is_printed() {
    let env = Env::new();
    let run = env.run(&["keygen", "mine", "--comment", "me@laptop"]).exits(0);
    let text = run.text();
    let (line, printed) = text.trim_end().split_once('\n').expect("two lines");
    let public: PublicLine = line.parse().expect("a public line");
    assert_eq!((public.comment.as_str(), printed), ("me@laptop", &*fingerprint(&public.key)));
    assert_eq!(file::read(&env.path("mine")).expect("a key").public(), public.key);
    let beside = fs::read_to_string(env.path("mine.pub")).expect("the public half");
    assert_eq!(beside.trim_end(), line);
    let mode = env.path("mine").metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!text.contains("private") && !run.stderr.contains("private"));

    let refused = env.run(&["keygen", "mine"]).exits(11).says("exists; nothing was written");
    assert!(!refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    fs::remove_file(env.path("mine.pub")).expect("removed");
    env.run(&["keygen", "mine"]).exits(11).says("mine exists; nothing was written");
    fs::write(env.path("mine.pub"), beside).expect("put back");
    fs::remove_file(env.path("mine")).expect("removed");
    env.run(&["keygen", "mine"]).exits(11).says("mine.pub exists; nothing was written");
    assert!(!env.path("mine").exists());
}

#[test]
fn json_says_the_same() {
    let env = Env::new();
    let event = env.run(&["keygen", "mine", "--json"]).exits(0).last_event("key");
    let public: PublicLine = event["public"].as_str().expect("a line").parse().expect("a line");
    assert_eq!(event["fingerprint"], fingerprint(&public.key));
    assert_eq!(
        (event["path"].as_str(), event["public_path"].as_str()),
        (Some("mine"), Some("mine.pub"))
    );
    assert_eq!(event["comment"], public.comment);
    let error = env.run(&["keygen", "mine", "--json"]).exits(11).last_event("error");
    assert_eq!(error["code"], 11);
}

#[test]
fn a_key_goes_to_the_configuration_directory_by_default() {
    let env = Env::new();
    env.run(&["keygen"]).exits(1).says("no home directory");
    let mut command = env.command(&["keygen"]);
    command.env("HOME", env.path("home")).env("USER", "anna");
    let run = testenv::Running::new(command).finish().exits(0);
    let key = file::read(&env.path("home/.config/netblt/key")).expect("a key");
    let line: PublicLine = run.text().lines().next().expect("a line").parse().expect("a line");
    assert_eq!(line.key, key.public());
    assert!(line.comment.starts_with("anna@"), "{}", line.comment);
    let directory = env.path("home/.config/netblt").metadata().expect("a directory");
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
}
