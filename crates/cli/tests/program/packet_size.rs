//! Paths and interfaces that take less than others, or more, from the start or midway, and say
//! nothing of it, with the program and the kernel as they are (`docs/protocol §6.5`). Needs
//! root, `ip` and /dev/net/tun; without them it says so and counts as skipped.
#![cfg(target_os = "linux")]

use std::fs;

use crate::testenv::{self, Env, Running};
use serde_json::Value;

/// What the hosts' devices take: no router reports a smaller MTU further on.
const DEVICE: &str = "65535";

fn able() -> bool {
    testenv::able(&["ip"], &["/dev/net/tun"])
}

/// Sends `bytes` from host a to host b, which are joined by `path` (a scenario's), and runs
/// `midway` when a tenth of them is there. Whichever host `calls`, it arrives. Answers the sender's
/// summary.
fn transfer(path: &str, device: &str, bytes: usize, calls: char, midway: &str) -> Value {
    let env = Env::new();
    let data = env.make_file("data", bytes);
    env.make_directory("there");
    let scenario = format!("name = \"narrow\"\n[path]\n{path}");
    fs::write(env.path("path.toml"), scenario).expect("a scenario");
    let script = format!(
        "A=\"ip netns exec $NETBLT_NS_A $NETBLT\" B=\"ip netns exec $NETBLT_NS_B $NETBLT\"
         case {calls} in
         a) $B receive there --bind $NETBLT_IP_B > ticket 2> there.log & ;;
         b) $A send data --bind $NETBLT_IP_A --json > sent 2> sent.log & ;;
         esac
         while ! cat ticket sent 2> /dev/null | grep -q netblt1; do sleep 0.02; done
         T=$(cat ticket sent 2> /dev/null | grep -o 'netblt1:[^\"]*')
         case {calls} in
         a) $A send data --to \"$T\" --json > sent & ;;
         b) $B receive \"$T\" there > there.log & ;;
         esac
         until [ \"$(du -s --block-size=1 there | cut -f1)\" -gt {} ]; do sleep 0.02; done
         {midway}
         wait; cat there.log >&2; grep summary sent",
        bytes / 10,
    );
    let args = ["emulate", "tun", "--scenario", "path.toml", "--device-mtu", device];
    let mut command = env.command(&[&args[..], &["--", "sh", "-c", &script]].concat());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("NETBLT", env!("CARGO_BIN_EXE_netblt"));
    let finished = Running::new(command).finish().exits(0);
    assert!(fs::read(env.path("there/data")).expect("the file") == data, "not what was sent");
    let mut line: Value = serde_json::from_str(&finished.text()).expect("a summary");
    assert_eq!(line["data"]["verified"], true, "{line}");
    line["data"].take()
}

/// What was found for a path that takes IP packets of `mtu` bytes is close to it.
#[track_caller]
fn found(mtu: u64, summary: &Value) {
    let bytes = summary["datagram_bytes"].as_u64().expect("a size");
    let most = mtu - 28;
    assert!((most - most / 40..=most).contains(&bytes), "{bytes} for {mtu}: {summary}");
}

#[test]
fn every_path_is_found_from_the_start() {
    if !able() {
        return;
    }
    for (mtu, calls) in
        [(600, 'a'), (1200, 'b'), (1280, 'b'), (1420, 'a'), (1500, 'b'), (9000, 'a')]
    {
        let path = format!("rate = \"100 Mbit\"\nrtt = \"20 ms\"\nqueue = \"30 ms\"\nmtu = {mtu}");
        found(mtu, &transfer(&path, DEVICE, 20 << 20, calls, ""));
    }
}

#[test]
fn a_path_that_becomes_another_midway_is_followed() {
    if !able() {
        return;
    }
    for (from, to, calls) in [(1500, 1000, 'a'), (1500, 600, 'b'), (9000, 1300, 'b')] {
        let path = format!(
            "rate = \"50 Mbit\"\nrtt = \"20 ms\"\nqueue = \"30 ms\"\nmtu = {from}
             [[path.schedule]]\nat = \"2500 ms\"\nmtu = {to}"
        );
        found(to, &transfer(&path, DEVICE, 24 << 20, calls, ""));
    }
}

/// Not even the shortest opening passes: the message names the cause.
#[test]
fn a_path_too_narrow_for_an_open_is_reported_within_five_seconds() {
    if !able() {
        return;
    }
    let env = Env::new();
    env.make_file("data", 1000);
    let script = "ip netns exec $NETBLT_NS_B $NETBLT receive . --bind $NETBLT_IP_B > ticket &
         while [ ! -s ticket ]; do sleep 0.02; done
         timeout 5 ip netns exec $NETBLT_NS_A $NETBLT send data --to $(cat ticket) 2>&1; true";
    let args = ["emulate", "tun", "--mtu", "580", "--device-mtu", "1500", "--", "sh", "-c", script];
    let mut command = env.command(&args);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("NETBLT", env!("CARGO_BIN_EXE_netblt"));
    let said = Running::new(command).finish().exits(0).text();
    assert!(said.contains("packets of 592 bytes"), "{said}");
}

/// The sender's own interface refuses what it sends: no error, from either end as the active one.
#[test]
fn an_interface_that_shrinks_midway_ends_nothing() {
    if !able() {
        return;
    }
    let path = "rate = \"100 Mbit\"\nrtt = \"20 ms\"\nqueue = \"30 ms\"";
    for (calls, mtu) in [('a', 1000), ('b', 700)] {
        let midway = format!(
            "for NS in $NETBLT_NS_A $NETBLT_NS_B; do
                 ip -n $NS link set dev tun0 mtu {mtu}
             done"
        );
        found(mtu, &transfer(path, "1500", 20 << 20, calls, &midway));
    }
}
