//! `--raw-ip` between two network namespaces that are made here and joined by a veth pair. What
//! needs root, `ip` or another program says so and counts as skipped where it is missing.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::testenv::{self, Env, Finished, Running, installed, skip, wait_until};
use serde_json::Value;

static NETS: AtomicU32 = AtomicU32::new(0);

const PLAIN: [&str; 3] = ["--wire", "rfc998", "--raw-ip"];

/// Whether namespaces can be made here and these programs be run; says why if not.
fn able(programs: &[&str]) -> bool {
    testenv::able(&[&["ip"], programs].concat(), &[])
}

/// Two hosts, .1 and .2, and a wire between them. Gone when dropped.
struct Net {
    hosts: [String; 2],
}

impl Net {
    fn new() -> Self {
        let id = format!("{}-{}", std::process::id(), NETS.fetch_add(1, Ordering::Relaxed));
        let net = Self { hosts: ["a", "b"].map(|end| format!("netblt-raw-{id}-{end}")) };
        let [a, b] = &net.hosts;
        for host in &net.hosts {
            ip(&["netns", "add", host]);
        }
        ip(&[
            "link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire", "netns", b,
        ]);
        for (host, last) in net.hosts.iter().zip(1..) {
            ip(&["-n", host, "addr", "add", &format!("198.18.0.{last}/24"), "dev", "wire"]);
            let v6 = format!("fd98::{last}/64");
            ip(&["-n", host, "addr", "add", &v6, "dev", "wire", "nodad"]);
            ip(&["-n", host, "link", "set", "lo", "up"]);
            ip(&["-n", host, "link", "set", "wire", "up"]);
        }
        net
    }

    /// The program on host 0 or 1.
    fn start(&self, env: &Env, host: usize, args: &[&str]) -> Running {
        let program = env!("CARGO_BIN_EXE_netblt");
        Running::new(self.command(env, host, &[&[program], args].concat()))
    }

    fn command(&self, env: &Env, host: usize, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.hosts[host]])
            .args(words)
            .current_dir(env.path("."))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, env: &Env, host: usize, args: &[&str]) -> Finished {
        self.start(env, host, &[args, &PLAIN].concat()).finish()
    }

    /// Starts the side that waits.
    fn wait(&self, env: &Env, host: usize, args: &[&str]) -> Running {
        let mut running = self.start(env, host, &[args, &PLAIN, &["--json"]].concat());
        running.event("listening", |_| true);
        running
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in &self.hosts {
            // Whatever still runs there is killed by its own test.
            let _ = Command::new("ip").args(["netns", "delete", host]).output();
        }
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", args.join(" "));
}

#[track_caller]
fn same(env: &Env, name: &str, data: &[u8]) {
    assert!(fs::read(env.path(name)).expect(name) == data, "{name} is not what was sent");
}

#[test]
fn files_go_in_all_four_roles_over_both_ip_versions() {
    if !able(&[]) {
        return;
    }
    let (env, net) = (Env::new(), Net::new());
    for (there, family) in [("198.18.0.2", "-4"), ("fd98::2", "-6")] {
        for bytes in [0, 1, 200_003] {
            let data = env.make_file("data", bytes);
            let written = format!("written{family}-{bytes}");
            let receiver = net.wait(&env, 1, &["receive", &written, "--listen", there]);
            net.run(&env, 0, &["send", "data", "--to", there, "--mtu", "1500", family]).exits(0);
            receiver.finish().exits(0);
            same(&env, &written, &data);
            let read = format!("read{family}-{bytes}");
            let sender = net.wait(&env, 1, &["send", "data", "--listen", there]);
            let reader = net.run(&env, 0, &["receive", &read, "--from", there]);
            reader.exits(0).says("IN THE CLEAR").says("NOT verified");
            sender.finish().exits(0);
            same(&env, &read, &data);
        }
    }
}

/// Every raw socket of a host hears everything; the ports tell what is whose.
#[test]
fn transfers_between_the_same_hosts_do_not_disturb_each_other() {
    if !able(&[]) {
        return;
    }
    let (env, net) = (Env::new(), Net::new());
    let mut running = Vec::new();
    let mut expected = Vec::new();
    let fixed = ["--policy", "fixed", "--rate", "80Mbit"];
    for (port, bytes) in [("5", 1_000_001), ("6", 1_500_000), ("1021", 900_000)] {
        let (from, to) = (format!("data-{port}"), format!("out-{port}"));
        expected.push((to.clone(), env.make_file(&from, bytes)));
        let listen = ["--listen", "198.18.0.2", "--netblt-port", port];
        let receiver = net.wait(&env, 1, &[&["receive", to.as_str()], &listen[..]].concat());
        let call = ["--to", "198.18.0.2", "--netblt-peer-port", port];
        let args = [&["send", from.as_str()], &call[..], &fixed, &PLAIN].concat();
        running.extend([receiver, net.start(&env, 0, &args)]);
    }
    for program in running {
        program.finish().exits(0);
    }
    for (name, data) in expected {
        same(&env, &name, &data);
    }
    // Both ends on one host: its socket hears what it sent itself.
    let data = env.make_file("data", 500_000);
    let receiver = net.wait(&env, 0, &["receive", "here", "--listen", "127.0.0.1"]);
    net.run(&env, 0, &["send", "data", "--to", "127.0.0.1"]).exits(0);
    receiver.finish().exits(0);
    same(&env, "here", &data);
}

#[test]
fn the_test_application_runs_on_ip_itself() {
    if !able(&[]) {
        return;
    }
    let (env, net) = (Env::new(), Net::new());
    let row = ["--burst-size=5", "--burst-interval=2ms", "--buffers=2", "--packet-size=1438"];
    let sized = ["-n", "143800", "--buffer-size=14380", "-i", "0"];
    // Both ends in one process, then on two hosts, either of which may send.
    net.run(&env, 0, &[&["bench"], &sized[..], &row].concat()).exits(0);
    for (port, reverse) in [(&[][..], &[][..]), (&["-p", "7"], &["-R"])] {
        let serve = ["bench", "-s", "-1", "-B", "198.18.0.2"];
        let serve = [&serve[..], port, &PLAIN].concat();
        let mut server = net.start(&env, 1, &serve);
        assert_eq!(server.line(), "198.18.0.2");
        let call = ["bench", "-c", "198.18.0.2"];
        let run = net.run(&env, 0, &[&call[..], port, reverse, &sized, &row].concat()).exits(0);
        let text = run.text();
        let last: Vec<&str> =
            text.lines().last().into_iter().flat_map(str::split_whitespace).collect();
        // The server says nothing of packets: its smaller ones count.
        assert_eq!(last[1..6], ["5/2", "1208", "14380", "144", "2"], "{text}");
        server.finish().exits(0);
    }
}

#[test]
fn a_missing_listener_and_too_large_packets_are_reported() {
    if !able(&[]) {
        return;
    }
    let (env, net) = (Env::new(), Net::new());
    env.make_file("data", 50_000);
    let start = |to| net.start(&env, 0, &[&["send", "data", "--to", to], &PLAIN[..]].concat());
    // ICMP says so, at once; that it is believed takes ten seconds, of both at the same time.
    for sender in ["198.18.0.2", "fd98::2"].map(start) {
        sender.finish().exits(35).says("nothing listens");
    }
    // Few buffers, so that what the receiver says itself is small.
    let few = ["receive", "out", "--listen", "198.18.0.2", "--mtu=9000", "--buffers=8"];
    let receiver = net.wait(&env, 1, &few);
    let args = ["send", "data", "--to", "198.18.0.2", "--mtu", "9000"];
    // It may be another interface again: this is said at once, and an end only when it lasts.
    net.run(&env, 0, &args).exits(10).says("takes no datagrams").says("smaller --mtu");
    receiver.finish().exits(12);
    assert!(!env.path("out").exists());
}

#[test]
fn a_missing_privilege_is_named() {
    let env = Env::new();
    let program = env!("CARGO_BIN_EXE_netblt");
    let args = ["receive", "out", "--wire", "rfc998", "--raw-ip", "--listen", "127.0.0.1"];
    let mut command = env.command(&args);
    if rustix::process::geteuid().is_root() {
        if !installed("setpriv") {
            return skip("no `setpriv`");
        }
        command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw", program]);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let run = Running::new(command).finish().exits(10);
    run.says("CAP_NET_RAW").says("setcap cap_net_raw+ep");
}

/// What `tshark` makes of a transfer that it watched.
#[test]
fn the_dissector_reads_a_transfer() {
    if !able(&["tshark"]) {
        return;
    }
    let (env, net) = (Env::new(), Net::new());
    let data = env.make_file("data", 100_000);
    let (mut watcher, file) = watch(&env, &net);
    let receiver = net.wait(&env, 1, &["receive", "out", "--listen", "198.18.0.2"]);
    net.run(&env, 0, &["send", "data", "--to", "198.18.0.2"]).exits(0);
    receiver.finish().exits(0);
    same(&env, "out", &data);
    let packets = || dissected(&file);
    // The last packet of all is DONE.
    wait_until("the capture is written", || packets().last().is_some_and(|p| p["type"] == "11"));
    let pid = rustix::process::Pid::from_child(&watcher);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    watcher.wait().expect("it ends");
    let packets = packets();
    let count = |kind: &str| packets.iter().filter(|packet| packet["type"] == kind).count();
    // The RESPONSE asks for a number, the OPEN is sent again with it, and the next RESPONSE has
    // none (docs/protocol §2.3). On a busy machine each of them may be repeated.
    let openings = packets.iter().filter(|packet| packet["type"] == "0" || packet["type"] == "1");
    let proves = |packet: &Value| packet["client"].as_str().is_some_and(|it| it.contains("proof="));
    let mut openings: Vec<_> = openings.map(|it| (it["type"].clone(), proves(it))).collect();
    openings.sort_by_key(|(kind, proves)| (*proves, kind == "1"));
    openings.dedup();
    let all = [("0", false), ("1", false), ("0", true), ("1", true)];
    assert_eq!(openings, all.map(|(kind, proves)| (Value::from(kind), proves)));
    assert!(count("11") >= 1, "no DONE");
    // 100,000 bytes in packets of 1,208: 83, the last of them LDATA.
    assert!(count("6") >= 82 && count("7") >= 1, "DATA {}, LDATA {}", count("6"), count("7"));
    for packet in &packets {
        assert_eq!(packet["wire"], "rfc998", "{packet}");
        assert_eq!(packet["checksum.good"], "1", "{packet}");
        assert_eq!(packet["truncated"], "", "{packet}");
        // Never cut on the way, and right behind the IP header.
        assert_eq!((&packet["df"], &packet["protocol"]), (&"1".into(), &"30".into()));
    }
    let ports = |packet: &Value| (packet["local_port"].clone(), packet["foreign_port"].clone());
    let (active, passive) = ports(&packets[0]);
    let response = packets.iter().find(|packet| packet["type"] == "1").expect("a RESPONSE");
    assert_eq!((ports(response), &passive), ((passive.clone(), active), &"1021".into()));
}

/// A `tshark` that writes what passes host 1, and runs already.
fn watch(env: &Env, net: &Net) -> (std::process::Child, PathBuf) {
    let file = env.path("capture.pcap");
    let to = testenv::text(&file);
    let words = ["tshark", "-i", "wire", "-w", &to, "-f", "ip proto 30"];
    let mut command = net.command(env, 1, &words);
    command.env("HOME", env.path("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
    let watcher = command.spawn().expect("tshark runs");
    // The file's header is written when capturing has begun.
    wait_until("tshark captures", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    (watcher, file)
}

/// Some fields of the packets in a capture, with the dissector's eyes.
fn dissected(file: &Path) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/netblt.lua");
    let fields =
        ["wire", "type", "checksum.good", "truncated", "local_port", "foreign_port", "client"];
    let mut command = Command::new("tshark");
    let home = file.parent().expect("a directory");
    command.env("HOME", home).env("XDG_CONFIG_HOME", home);
    command.arg("-X").arg(format!("lua_script:{}", script.display()));
    command.args(["-n", "-T", "fields", "-E", "separator=/t", "-r"]).arg(file);
    for field in fields {
        command.args(["-e", &format!("netblt.{field}")]);
    }
    command.args(["-e", "ip.flags.df", "-e", "ip.proto"]);
    let output = command.output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = fields.into_iter().chain(["df", "protocol"]);
    let packet = |line: &str| -> Value {
        names
            .clone()
            .zip(line.split('\t'))
            .map(|(name, value)| (name.to_owned(), flag(value)))
            .collect()
    };
    text.lines().map(packet).collect()
}

/// Newer versions of tshark write `True` where older ones write `1`.
fn flag(value: &str) -> Value {
    match value {
        "True" => "1".into(),
        "False" => "0".into(),
        value => value.into(),
    }
}
