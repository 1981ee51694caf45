//! `~/.config/netblt/config`, and `netblt config show`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::testenv::{Env, Finished, Running};

/// A home with this configuration.
fn home(text: &str) -> Env {
    let env = Env::new();
    env.make_directory("home/.config/netblt");
    fs::write(env.path("home/.config/netblt/config"), text).expect("written");
    env
}

fn run(env: &Env, args: &[&str]) -> Finished {
    let mut command = env.command(args);
    command.env("HOME", env.path("home"));
    Running::new(command).finish()
}

#[test]
fn show_names_each_value_and_its_line() {
    let env =
        home("policy background\nHost *.org\n  rate 2Mbit\n  key ~/k\nHost *\n  rate 1Mbit\n");
    let shown = run(&env, &["config", "show", "a.org"]).exits(0).text();
    let at = |line: usize| format!("{}:{line}", env.path("home/.config/netblt/config").display());
    let lines: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let key = env.path("home/k");
    let key = key.to_str().expect("text");
    assert_eq!(
        lines,
        [["rate", "2Mbit", &at(3)], ["policy", "background", &at(1)], ["key", key, &at(4)]]
    );
    let event = run(&env, &["config", "show", "b.net", "--json"]).exits(0).last_event("setting");
    assert_eq!(
        (event["key"].as_str(), event["value"].as_str()),
        (Some("policy"), Some("background"))
    );
    fs::remove_file(env.path("home/.config/netblt/config")).expect("removed");
    run(&env, &["config", "show", "a.org"]).exits(0).says("has nothing for a.org");
}

#[test]
fn what_the_file_has_for_a_server_holds_unless_it_is_given() {
    let env = home("");
    env.make_directory("root");
    env.make_file("root/f", 1000);
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "home/t"]].concat());
    let listening = server.event("listening", |_| true);
    let address = listening["addresses"][0].as_str().expect("an address").to_owned();
    let url = |path: &str| format!("netblt://{address}/{path}");
    run(&env, &["ls", &url("")]).exits(1);
    let config = "Host 127.0.0.*\n ticket-file ~/t\n policy background\n death-timer 20s\n";
    fs::write(env.path("home/.config/netblt/config"), config).expect("written");
    assert_eq!(run(&env, &["ls", &url("")]).exits(0).text(), "f\n");
    // The policy is the server's there, and no error.
    run(&env, &["cp", &url("f"), "back"]).exits(0);
    assert_eq!(env.path("back").metadata().expect("there").len(), 1000);
    run(&env, &["cp", "back", &url("up")]).exits(0);
    let both = run(&env, &["cp", "--fec", "auto", "back", &url("up")]).exits(1);
    both.says("--policy background");
    run(&env, &["cp", "--fec", "auto", "--policy", "fair", "back", &url("up")]).exits(0);
}

#[test]
fn a_ticket_of_the_environment_or_the_command_line_beats_the_file() {
    let env = home("Host *\n ticket-file ~/missing\n key ~/missing\n");
    env.make_directory("root");
    env.make_file("root/f", 10);
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "t"]].concat());
    let listening = server.event("listening", |_| true);
    let url = format!("netblt://{}/", listening["addresses"][0].as_str().expect("an address"));
    run(&env, &["ls", &url]).exits(11).says("missing");
    assert_eq!(run(&env, &["ls", "--ticket-file", "t", &url]).exits(0).text(), "f\n");
    let mut command = env.command(&["ls", &url]);
    let ticket = fs::read_to_string(env.path("t")).expect("a ticket");
    command.env("HOME", env.path("home")).env("NETBLT_TICKET", ticket.trim());
    assert_eq!(Running::new(command).finish().exits(0).text(), "f\n");
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    for (config, says) in [
        ("Host *\n  rate fast\n", "config:2: invalid value 'fast' for '--rate"),
        ("speed 1\n", "config:1: unknown key speed"),
    ] {
        let env = home(config);
        env.make_file("f", 10);
        let refused = run(&env, &["cp", "f", "nowhere.invalid:"]).exits(1);
        refused.says(says);
        let event = run(&env, &["cp", "--json", "f", "nowhere.invalid:"]).exits(1);
        assert_eq!(event.last_event("error")["code"], 1);
    }
    let env = home("rate 1Mbit\n");
    let path = env.path("home/.config/netblt/config");
    fs::set_permissions(path, Permissions::from_mode(0o666)).expect("set");
    run(&env, &["config", "show", "h"]).exits(1).says("other users may change it");
}
