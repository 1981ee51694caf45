//! A machine whose address is replaced while it sends or receives: two network namespaces with a
//! link between them. Needs root and `ip`, else skipped; how long it stood still is asked only with
//! NETBLT_ACCURACY=1.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Command, Stdio};

use crate::testenv::{Env, Running, able};
use serde_json::Value;

/// Two hosts of this process's own, gone when this is.
struct Hosts {
    names: [String; 2],
}

const ADDRESSES: [&str; 2] = ["198.18.9.2/24", "198.18.9.1/24"];
const NEW: [&str; 2] = ["198.18.9.77/24", "198.18.9.88/24"];

impl Hosts {
    fn new() -> Self {
        let hosts = Self { names: ["a", "b"].map(|end| format!("moving-{}-{end}", own())) };
        for name in &hosts.names {
            ip(&["netns", "add", name]);
        }
        let [a, b] = &hosts.names;
        ip(&["-n", a, "link", "add", "e", "type", "veth", "peer", "name", "e", "netns", b]);
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "addr", "add", address, "dev", "e"]);
            ip(&["-n", name, "link", "set", "e", "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        hosts
    }

    /// The program on one of them.
    fn start(&self, env: &Env, host: usize, args: &[&str]) -> Running {
        let own = env.command(args);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(own.get_program()).args(args);
        command.current_dir(env.path("")).env("TMPDIR", env.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command)
    }

    /// Gives one of them another address, and takes the one it has.
    fn move_away(&self, host: usize) {
        let name = &self.names[host];
        ip(&["-n", name, "addr", "del", ADDRESSES[host], "dev", "e"]);
        ip(&["-n", name, "addr", "add", NEW[host], "dev", "e"]);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn own() -> u32 {
    std::process::id()
}

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().expect("ip runs");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The longest time without a new byte, in seconds, as events "progress" tell it.
fn longest_pause(events: &str) -> f64 {
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let points = events.filter(|event| event["event"] == "progress").filter_map(|event| {
        Some((event["data"]["seconds"].as_f64()?, event["data"]["bytes"].as_u64()?))
    });
    let (mut longest, mut last) = (0.0_f64, (0.0, 0));
    for (seconds, bytes) in points {
        if bytes != last.1 {
            longest = longest.max(seconds - last.0);
            last = (seconds, bytes);
        }
    }
    longest
}

/// First the one that called moves, and then the one that listened.
#[test]
fn a_transfer_goes_on_from_a_new_address() {
    if !able(&["ip"], &[]) {
        return;
    }
    for mover in [0, 1] {
        let hosts = Hosts::new();
        let env = Env::new();
        let data = env.make_file("data", 12_000_000);
        env.make_directory("to");
        let receive = "receive to --json --progress=100ms --resume never --port 4400 \
                       --advertise 198.18.9.1";
        let receive: Vec<&str> = receive.split_whitespace().collect();
        let mut receiver = hosts.start(&env, 1, &receive);
        let listening = receiver.event("listening", |_| true);
        let ticket = listening["ticket"].as_str().expect("a ticket");
        let send = ["send", "data", "--to", ticket, "--rate", "40Mbit", "--json"];
        let sender = hosts.start(&env, 0, &send);
        receiver.event("progress", |data| data["bytes"].as_u64() > Some(3_000_000));
        hosts.move_away(mover);
        // It was not over by then.
        receiver.event("progress", |data| data["bytes"].as_u64() > Some(6_000_000));
        sender.finish().exits(0);
        let events = receiver.finish().exits(0).text();
        assert!(fs::read(env.path("to/data")).expect("the file") == data);
        let pause = longest_pause(&events);
        println!("host {mover} moved: {pause:.2} s without a new byte");
        if std::env::var_os("NETBLT_ACCURACY").is_some_and(|value| value == "1") {
            assert!(pause < 2.0, "{pause} s");
        }
    }
}
