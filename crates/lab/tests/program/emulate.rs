//! `netblt-lab emulate` with real programs. What needs root, `ip`, /dev/net/tun or another program
//! says so and counts as skipped where it is missing; what depends on how fast this machine is runs
//! only with NETBLT_ACCURACY=1.
#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;

use crate::testenv::{self, Env, Finished, Running, accuracy_wanted, programs, wait_until};
use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, Path};
use netblt_proto::time::Instant;
use serde_json::Value;

/// Whether `tun` can run here with these programs; says why if not.
fn able(programs: &[&str]) -> bool {
    testenv::able(&[&["ip"], programs].concat(), &["/dev/net/tun"])
}

fn start(env: &Env, args: &[&str], script: &str) -> Running {
    let mut all = vec!["emulate", "tun", "--json"];
    all.extend(args);
    all.extend(["--", "sh", "-c", script]);
    let mut command = env.command(&all);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("NETBLT", programs::netblt());
    Running::new(command)
}

/// Runs a script between two hosts: what it printed, and the summary.
fn between(env: &Env, args: &[&str], script: &str) -> (Finished, Value) {
    let prelude = "A=\"ip netns exec $NETBLT_NS_A\" B=\"ip netns exec $NETBLT_NS_B\"; ";
    let finished = start(env, args, &format!("{prelude}{script}")).finish();
    let summary = event(&finished, "summary");
    (finished, summary)
}

fn event(finished: &Finished, name: &str) -> Value {
    let lines = finished.stderr.lines().filter_map(|line| serde_json::from_str(line).ok());
    let found = lines.into_iter().find(|line: &Value| line["event"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {}", finished.stderr))["data"].take()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// How many of the first `count` packets the model loses upwards.
fn predicted_losses(percent: u32, seed: u64, count: u64) -> u64 {
    let loss = Probability::from_percent(percent);
    let mut path = Path::new(LinkOptions { loss, ..LinkOptions::default() }, seed, "path/up");
    for _ in 0..count {
        path.push(Instant::EPOCH, 28, None, vec![0; 56]);
    }
    path.advance(Instant::EPOCH);
    path.counters().lost_random.packets
}

#[test]
fn a_relay_loses_what_the_seed_says() {
    let env = Env::new();
    let target = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = target.local_addr().expect("an address").to_string();
    let pcap = env.path("relay.pcap");
    let mut relay = env.start(&[
        "emulate",
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        &to,
        "--up-loss",
        "10%",
        "--seed",
        "7",
        "--json",
        "--stats",
        "20ms",
        "--pcap",
        "relay.pcap",
        "--trace",
        "relay.jsonl",
    ]);
    let listen = relay.event("emulating", |_| true)["listen"].take();
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for n in 0..1000_u32 {
        let to = listen.as_str().expect("an address");
        client.send_to(&n.to_be_bytes(), to).expect("sent");
        if n % 50 == 49 {
            relay.event("sample", |data| data["up"]["entered_packets"] == n + 1);
        }
    }
    relay.signal(rustix::process::Signal::INT);
    let summary = relay.finish().exits(0).last_event("summary");
    assert_eq!(number(&summary["up"]["lost_random"]), predicted_losses(10, 7, 1000));
    assert_eq!(number(&summary["up"]["entered_bytes"]), 1000 * 32);
    // Each as it came, each that was not lost as it left; 40 bytes of block, 4 + 32 of packet.
    let blocks = 1000 + number(&summary["up"]["delivered_packets"]);
    let bytes = std::fs::metadata(pcap).expect("a capture").len();
    assert!(bytes > blocks * 76 && bytes < blocks * 88, "{bytes} for {blocks}");
    let svg = env.run(&["report", "trace", "relay.jsonl", "--out", "-"]).exits(0).text();
    assert_eq!(svg.matches("<polyline").count(), 4);
}

#[test]
fn wrong_arguments_are_named() {
    let env = Env::new();
    let relay = ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    for (args, says) in [
        (vec!["--rate", "100"], "has no unit"),
        (vec!["--scenario", "moon"], "there are bufferbloat"),
        (vec!["--rtt", "1s", "--delay", "1s"], "either --rtt or --delay"),
        (vec!["--stats", "1us"], "once a millisecond"),
    ] {
        env.run(&[&relay[..], &args].concat()).exits(1).says(says);
    }
    env.run(&["report", "trace", "none.jsonl", "--out", "x.svg"]).exits(11).says("cannot read");
    let list = env.run(&["emulate", "list"]).exits(0).text();
    assert!(list.lines().count() >= 13 && list.contains("\ngeo-satellite "), "{list}");
    if !rustix::process::geteuid().is_root() {
        env.run(&["emulate", "tun", "--", "true"]).exits(5).says("CAP_NET_ADMIN");
    }
}

#[test]
fn hosts_come_and_go() {
    if !able(&[]) {
        return;
    }
    let env = Env::new();
    let script = "$A true && $B true && echo $NETBLT_IP_A $NETBLT_IP6_B; exit 7";
    let (finished, _) = between(&env, &[], script);
    let started = event(&finished, "emulating");
    assert_eq!(finished.exits(7).text(), "198.18.0.1 fd98::2\n");
    let exists = |host: &Value| {
        let name = host["namespace"].as_str().expect("a name").to_owned();
        FilePath::new("/run/netns").join(name).exists()
    };
    assert!(!exists(&started["a"]) && !exists(&started["b"]));
}

#[test]
fn the_next_run_removes_what_kill_9_left() {
    if !able(&[]) {
        return;
    }
    let env = Env::new();
    let mut killed = start(&env, &[], "echo $NETBLT_NS_A; ip netns exec $NETBLT_NS_A sleep 60");
    let name = FilePath::new("/run/netns").join(killed.line());
    assert!(name.exists());
    killed.signal(rustix::process::Signal::KILL);
    // The first run may still find the killed one dying.
    wait_until("the namespace is gone", || {
        between(&env, &[], "true").0.exits(0);
        !name.exists()
    });
}

/// The second run finds nothing to remove, which is no reason not to start.
#[test]
fn several_runs_may_clean_up_at_once() {
    if !able(&[]) {
        return;
    }
    let env = Env::new();
    // Numbers that no process has.
    let left: Vec<String> = (0..20).map(|n| format!("netblt-{}-b", 2_000_000_000 + n)).collect();
    for name in &left {
        let mut command = Command::new("ip");
        command.args(["netns", "add", name]);
        assert!(command.status().expect("ip ran").success());
    }
    let runs: Vec<Running> = (0..6).map(|_| start(&env, &[], "true")).collect();
    for run in runs {
        run.finish().exits(0);
    }
    assert!(left.iter().all(|name| !FilePath::new("/run/netns").join(name).exists()));
}

#[test]
fn a_run_leaves_others_alone() {
    if !able(&[]) {
        return;
    }
    let env = Env::new();
    // The first goes on until the second is over.
    let wait = "echo $NETBLT_NS_A; for n in $(seq 900); do [ -e over ] && exit; sleep 0.1; done";
    let mut first = start(&env, &[], wait);
    let name = FilePath::new("/run/netns").join(first.line());
    between(&env, &[], "true").0.exits(0);
    assert!(name.exists());
    std::fs::write(env.path("over"), "").expect("written");
    first.finish().exits(0);
}

#[test]
fn ping_loses_what_the_seed_says() {
    if !able(&["ping"]) {
        return;
    }
    let env = Env::new();
    for seed in ["3", "4"] {
        let args = ["--up-loss", "10%", "--seed", seed];
        let script = "$A ping -q -n -c 500 -i 0.002 $NETBLT_IP_B";
        let (finished, summary) = between(&env, &args, script);
        let lost = predicted_losses(10, seed.parse().expect("a number"), 500);
        assert_eq!(number(&summary["up"]["entered_packets"]), 500, "{summary}");
        assert_eq!(number(&summary["up"]["lost_random"]), lost);
        let text = finished.exits(0).text();
        assert!(text.contains(&format!("{} received", 500 - lost)), "{text}");
    }
}

#[test]
fn corrupted_packets_are_dropped_by_the_receiver() {
    if !able(&["ping"]) {
        return;
    }
    let env = Env::new();
    let script = "$A ping -q -n -c 200 -i 0.002 -W 1 $NETBLT_IP_B; $A ping -q -n -c 200 -i 0.002 \
                  -W 1 $NETBLT_IP6_B; true";
    let (finished, summary) = between(&env, &["--up-corrupt", "100%"], script);
    assert_eq!(number(&summary["up"]["corrupted"]), 400);
    assert_eq!(number(&summary["down"]["entered_packets"]), 0);
    assert_eq!(finished.text().matches(" 0 received").count(), 2);
}

#[test]
fn duplicates_and_reordering_are_as_frequent_as_asked() {
    if !able(&["ping"]) {
        return;
    }
    let env = Env::new();
    let args = ["--up-duplicate", "20%", "--down-reorder", "20%", "--seed", "2"];
    let script = "$A ping -q -n -c 2000 -i 0.001 $NETBLT_IP_B";
    let (finished, summary) = between(&env, &args, script);
    let duplicated = number(&summary["up"]["duplicated"]);
    assert!(duplicated.abs_diff(400) <= 20, "{duplicated}");
    let replies = number(&summary["down"]["entered_packets"]);
    let reordered = number(&summary["down"]["reordered"]);
    assert!(replies.abs_diff(2400) <= 20, "{replies}");
    assert!((reordered * 5).abs_diff(replies) <= replies / 20, "{reordered} of {replies}");
    // Not the number: a copy of the last answer may come when ping has gone.
    assert!(finished.exits(0).text().contains(" duplicates"));
}

#[test]
fn the_queue_is_exact_to_the_byte() {
    if !able(&["ping"]) {
        return;
    }
    let env = Env::new();
    // A thousand packets of 1,000 IP bytes at once onto a link that sends one in 80 ms.
    let args = ["--up-rate", "100kbit", "--up-queue", "30000B"];
    let script = "timeout 3 $A ping -q -n -c 1000 -l 1000 -s 972 $NETBLT_IP_B; true";
    let (_, summary) = between(&env, &args, script);
    let up = &summary["up"];
    assert_eq!(number(&up["queue_bytes_max"]), 30_000);
    // What neither waited, nor was sent, was lost to the queue; more than 1 and 30 cannot be in.
    let out = number(&up["delivered_packets"]) + number(&up["inside_packets"]);
    assert_eq!(number(&up["lost_queue"]) + out, number(&up["entered_packets"]));
}

#[test]
fn tcp_runs_over_it() {
    if !able(&["iperf3"]) {
        return;
    }
    let env = Env::new();
    for (mtu, congestion) in [("1500", "cubic"), ("9000", "cubic"), ("1200", "reno")] {
        let args = ["--rate", "200Mbit", "--rtt", "20ms", "--mtu", mtu, "--duplicate", "0.1%"];
        let script = format!(
            "$B iperf3 -s -1 >/dev/null & sleep 0.4; \
             $A iperf3 -c $NETBLT_IP_B -n 4M -C {congestion} >/dev/null && echo fine"
        );
        let (finished, summary) = between(&env, &args, &script);
        assert_eq!(finished.text(), "fine\n", "{}", finished.stderr);
        // iperf3 counts what it wrote, and does not wait for the last of it.
        assert!(number(&summary["up"]["delivered_bytes"]) > 1 << 20, "{summary}");
        assert_eq!(number(&summary["up"]["lost_mtu"]), 0, "{summary}");
    }
}

#[test]
fn ssh_runs_over_it() {
    if !able(&["sshd", "ssh", "ssh-keygen"]) {
        return;
    }
    let env = Env::new();
    let script = "set -e; mkdir -p /run/sshd; D=$(pwd)/ssh; mkdir $D; \
        ssh-keygen -q -t ed25519 -N '' -f $D/host; ssh-keygen -q -t ed25519 -N '' -f $D/key; \
        cp $D/key.pub $D/authorized; chmod 600 $D/authorized; \
        $B /usr/sbin/sshd -D -e -f /dev/null -h $D/host -p 2222 -o StrictModes=no \
            -o AuthorizedKeysFile=$D/authorized -o PermitRootLogin=yes 2>$D/log & sleep 0.5; \
        $A ssh -F /dev/null -i $D/key -p 2222 -o StrictHostKeyChecking=no -o LogLevel=ERROR \
            -o UserKnownHostsFile=/dev/null -o BatchMode=yes root@$NETBLT_IP_B echo over ssh";
    let args = ["--rtt", "30ms", "--loss", "0.5%", "--corrupt", "0.5%"];
    let (finished, _) = between(&env, &args, script);
    assert_eq!(finished.text(), "over ssh\n", "{}", finished.stderr);
}

#[test]
fn two_netblt_programs_run_over_it() {
    if !able(&[]) {
        return;
    }
    let env = Env::new();
    let data = env.make_file("data", 3 << 20);
    env.make_directory("there");
    let script = "$B $NETBLT receive there --bind $NETBLT_IP_B > ticket & \
        while [ ! -s ticket ]; do sleep 0.05; done; \
        $A $NETBLT send data --to \"$(cat ticket)\" --quiet && wait && echo fine";
    let args = ["--rate", "50Mbit", "--rtt", "20ms", "--loss", "2%", "--corrupt", "1%"];
    let (finished, summary) = between(&env, &args, script);
    assert_eq!(finished.text(), "fine\n", "{}", finished.stderr);
    assert_eq!(std::fs::read(env.path("there/data")).expect("the file"), data);
    assert!(number(&summary["up"]["lost_random"]) > 0);
}

/// The median of half seconds, as TCP's receiver sees them: while the machine itself stands still,
/// as a virtual one may for 100 ms, nothing is forwarded, and that is not the path's rate.
#[test]
fn the_rate_is_right_within_one_percent() {
    if !able(&["iperf3"]) || !accuracy_wanted() {
        return;
    }
    let env = Env::new();
    for mbit in [10_u32, 100, 500, 1000] {
        let rate = format!("{mbit}Mbit");
        let script = "$B iperf3 -s -1 -J -i 0.5 & sleep 0.4; \
                      $A iperf3 -c $NETBLT_IP_B -C cubic -l 8K -t 8 -O 2 >/dev/null; wait";
        let args = ["--up-rate", &rate, "--rtt", "10ms", "--queue", "40ms"];
        let (finished, _) = between(&env, &args, script);
        let json: Value = serde_json::from_str(&finished.text()).expect("what iperf3 -J prints");
        let steady = json["intervals"].as_array().into_iter().flatten().map(|i| &i["sum"]);
        let steady = steady.filter(|sum| sum["omitted"] == false);
        let mut rates: Vec<f64> =
            steady.filter_map(|sum| sum["bits_per_second"].as_f64()).collect();
        assert!(rates.len() >= 10, "{}", finished.text());
        rates.sort_by(f64::total_cmp);
        // With its time stamps TCP has 1,448 bytes of data in a packet of 1,500.
        let got = rates[rates.len() / 2] * 1500.0 / 1448.0 / 1e6;
        println!(
            "rate {mbit} Mbit/s: median {got:.2}, least {:.2}",
            rates[0] * 1500.0 / 1448.0 / 1e6
        );
        assert!((got / f64::from(mbit) - 1.0).abs() < 0.01, "{got} of {mbit} Mbit/s");
    }
}

#[test]
fn the_delay_is_right_within_300_microseconds() {
    if !able(&["ping"]) || !accuracy_wanted() {
        return;
    }
    let env = Env::new();
    for ms in [1_u32, 50, 200] {
        let rtt = format!("{ms}ms");
        let script = "$A ping -n -c 200 -i 0.02 $NETBLT_IP_B";
        let (finished, _) = between(&env, &["--rtt", &rtt], script);
        let text = finished.text();
        let times = text.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
        let mut times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!("rtt {ms} ms: median {median:.3} ms of {}", times.len());
        assert!((median - f64::from(ms)).abs() < 0.3, "{median} of {ms} ms");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_hosts_own_commands_run_by_the_shell_and_host_as_ends_it() {
    if !able(&["sh"]) {
        return;
    }
    let env = Env::new();
    let mut command = env.command(&[
        "emulate",
        "tun",
        "--host-b",
        "echo b > b; exec sleep 60",
        "--host-a",
        "while [ ! -s b ]; do sleep 0.05; done; echo a > a; exit 7",
    ]);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Running::new(command).finish().exits(7);
    assert!(env.path("a").exists() && env.path("b").exists());
}
