//! The gallery's UDT beside libudt, over the same emulated path: within 15 %. With
//! NETBLT_ACCURACY=1, and root, `ip`, /dev/net/tun, `g++` and libudt's headers (Debian:
//! libudt-dev), else skipped.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;

use crate::testenv::{self, Env, LIMIT, Running, programs, text};
use serde_json::Value;

const HEADERS: &str = "/usr/include/udt/udt.h";
const BYTES: u64 = 30_000_000;

/// A program that sends and receives by libudt.
fn peer(env: &Env) -> String {
    fs::write(env.path("peer.cpp"), include_str!("libudt/peer.cpp")).expect("written");
    let (source, program) = (text(&env.path("peer.cpp")), text(&env.path("peer")));
    let built = Command::new("g++").args(["-O2", "-o", &program, &source, "-ludt"]).status();
    assert!(built.expect("g++ runs").success(), "g++ built nothing");
    program
}

/// What a script between two hosts prints.
fn between(env: &Env, script: &str) -> String {
    let path = ["--rate", "50Mbit", "--rtt", "40ms"];
    let args = [&["emulate", "tun"], &path[..], &["--", "sh", "-c", script]].concat();
    let mut command = env.command(&args);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("XDG_CACHE_HOME", "/proc/none");
    command.env("NETBLT", programs::netblt());
    Running::new(command).finish_within(LIMIT).exits(0).text()
}

/// Mbit/s of libudt, and of ours: medians of three runs by turns.
fn carried(env: &Env, peer: &str) -> [f64; 2] {
    let theirs = format!(
        "ip netns exec $NETBLT_NS_B {peer} $NETBLT_IP_B {BYTES} & sleep 0.5
         ip netns exec $NETBLT_NS_A timeout 60 {peer} $NETBLT_IP_B {BYTES} send; wait"
    );
    let ours = format!(
        "ip netns exec $NETBLT_NS_B \"$NETBLT\" bench -s -1 >&2 & sleep 0.5
         ip netns exec $NETBLT_NS_A \"$NETBLT\" bench -c $NETBLT_IP_B -n {BYTES} \
             --protocol udt --json; wait"
    );
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        let output = between(env, &theirs);
        let seconds: f64 = output.trim().parse().expect("seconds");
        let output = between(env, &ours);
        let document: Value = serde_json::from_str(&output).expect("JSON");
        let rate = document["end"]["streams"][0]["real_bits_per_second"].as_f64();
        rates[0].push(BYTES as f64 * 8.0 / seconds / 1e6);
        rates[1].push(rate.expect("a rate") / 1e6);
    }
    rates.map(|mut runs| {
        runs.sort_by(f64::total_cmp);
        runs[1]
    })
}

#[test]
fn the_gallerys_udt_is_as_fast_as_libudt() {
    if !testenv::accuracy_wanted() {
        return;
    }
    if !testenv::able(&["ip", "g++"], &["/dev/net/tun", HEADERS]) {
        return;
    }
    let env = Env::new();
    let peer = peer(&env);
    let [theirs, ours] = carried(&env, &peer);
    println!("{ours:.1} Mbit/s, libudt's {theirs:.1}");
    assert!((ours / theirs - 1.0).abs() <= 0.15, "{ours} and {theirs} Mbit/s");
}
