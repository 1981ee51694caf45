//! `netblt-lab report compare`: a small contest between real programs, and that nothing is left of
//! it. Needs root, `ip` and /dev/net/tun, else skipped; rivals that are not here are named by it.
//! How fast anyone is, is not asked, but with NETBLT_ACCURACY=1: one of the gallery's laws beside
//! the kernel's own.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::testenv::{self, Env, LIMIT, Running, installed, programs, text, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// Bytes of the file.
const BYTES: u64 = 300_000;

fn able() -> bool {
    testenv::able(&["ip"], &["/dev/net/tun"])
}

fn start(env: &Env, args: &[&str]) -> Running {
    // The one beside it takes part.
    assert!(Path::new(programs::netblt()).is_file());
    let mut command = env.command(&[&["report", "compare"], args].concat());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Running::new(command)
}

/// Nothing is left: no namespace of that run, no program that works on its files, no file.
fn assert_gone(env: &Env, id: u32) {
    for end in ["a", "b"] {
        assert!(!Path::new(&format!("/run/netns/netblt-{id}-{end}")).exists(), "host {end}");
    }
    let directory = env.path("tmp");
    let left: Vec<_> = fs::read_dir(&directory).expect("listed").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(working_on(env), None);
}

/// A program that works on the files of a contest.
fn working_on(env: &Env) -> Option<String> {
    let name = text(&env.path("tmp"));
    let words = |process: fs::DirEntry| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ")
    };
    let all = fs::read_dir("/proc").expect("listed").flatten().map(words);
    all.into_iter().find(|words| words.contains(&name))
}

/// Whether a contest has come so far that this file is in its directory.
fn has_made(env: &Env, name: &str) -> bool {
    let rooms = fs::read_dir(env.path("tmp")).into_iter().flatten().flatten();
    rooms.into_iter().any(|room| room.path().join(name).exists())
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    let env = Env::new();
    let mut command = env.command(&["report", "compare"]);
    if rustix::process::geteuid().is_root() {
        if !installed("setpriv") {
            return testenv::skip("no `setpriv`");
        }
        let program = command.get_program().to_owned();
        command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--inh-caps", "-all"]).arg(program);
        command.args(["report", "compare"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    Running::new(command).finish().exits(5).says("CAP_NET_ADMIN");
}

#[test]
fn wrong_arguments_are_named() {
    let env = Env::new();
    env.run(&["report", "compare", "--only", "netblt,pigeon"]).exits(1).says("tcp-cubic");
    env.run(&["report", "compare", "--runs", "0"])
        .exits(1)
        .says("a whole number from 1 to 100 is wanted");
    env.run(&["report", "compare", "--scenario", "moon"]).exits(1).says("there are bufferbloat");
}

#[test]
fn a_small_contest_adds_up_and_leaves_nothing() {
    if !able() {
        return;
    }
    let env = Env::new();
    let page = env.path("page.html");
    let names = "netblt,netblt-background,netblt-aggressive,netblt-cubic,netblt-fixed,udt,rbudp,\
                 cubic,tcp-cubic,tcp-bbr,scp,rsync,srt,qcp";
    let link = ["--rate", "20Mbit", "--rtt", "20ms", "--size", "300kB", "--runs", "1"];
    let more = ["--longest", "1min", "--only", names, "--json", "--html", &text(&page)];
    let running = start(&env, &[&link[..], &more].concat());
    let id = running.id();
    let report = running.finish_within(LIMIT * 3).exits(0);
    assert_gone(&env, id);
    let value: Value = serde_json::from_str(&report.text()).expect("JSON");
    let table = &value["paths"][0];
    let rows = table["rows"].as_array().expect("rows");
    let left_out = table["left_out"].as_array().expect("who is left out");
    assert_eq!(rows.len() + left_out.len(), names.split(',').count());
    for row in rows {
        let figures = &row["medians"];
        assert_eq!((&row["counted"], &row["problem"]), (&1.into(), &Value::Null), "{row}");
        let number = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
        // iperf3 ends when the last byte is handed over, and not when it came.
        let came = number("bytes");
        let is_tcp = row["name"].as_str().is_some_and(|name| name.starts_with("tcp-"));
        assert!(came == BYTES || is_tcp && came > BYTES / 10, "{row}");
        assert!(number("wire_bytes") > came, "{row}");
        assert!(number("packets") >= came / 1500, "{row}");
        // No faster than the link.
        assert!(number("bits_per_second") < 20_000_000, "{row}");
        for side in ["sender_cpu_seconds", "receiver_cpu_seconds"] {
            assert!(figures[side].as_f64().is_some_and(|time| time < 60.0), "{row}");
        }
    }
    let has = |name: &str| rows.iter().any(|row| row["name"] == name);
    assert!(has("netblt") && has("udt") && has("rbudp"), "{rows:?}");
    assert_eq!(has("scp"), ["scp", "ssh", "sshd", "ssh-keygen"].iter().all(|p| installed(p)));
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("20 Mbit/s, 20 ms: a file of 0.3 MB") && page.contains(">udt<"));
}

/// The contest reports the options of one direction, or of both, as the path on which it ran.
#[test]
fn a_contest_runs_on_the_path_of_its_options() {
    if !able() {
        return;
    }
    let held = |link: &[String]| {
        let env = Env::new();
        let own = ["--size", "100kB", "--runs", "1", "--only", "netblt", "--json", "--seed", "9"];
        let link: Vec<&str> = link.iter().map(String::as_str).collect();
        let report = start(&env, &[&own[..], &link].concat()).finish().exits(0).text();
        let mut report: Value = serde_json::from_str(&report).expect("JSON");
        report["paths"][0].take()
    };
    let link = "rate=20Mbit delay=20ms jitter=1ms loss=5% loss-burst=2 reorder=5% reorder-by=2ms \
                duplicate=5% corrupt=2% queue=60kB ecn-mark=30kB mtu=1200 \
                police=20Mbit,1MB codel=50ms";
    for (prefix, expected) in [
        ("--", "20 Mbit/s, 40 ms, 5 % lost"),
        ("--up-", "20 Mbit/s, 20 ms, 5 % lost"),
        ("--down-", "no limit, 20 ms"),
    ] {
        let words = link.split_whitespace().map(|word| format!("{prefix}{word}"));
        let table = held(&words.collect::<Vec<_>>());
        assert_eq!(table["path"], expected);
        let figures = &table["rows"][0]["medians"];
        let number = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{table}"));
        // No more fits into a packet, whichever way it is that takes no larger ones.
        assert!(number("packets") >= 100_000 / 1200, "{table}");
        assert!(prefix == "--down-" || number("lost_at_random") > 0, "{table}");
        assert!(prefix == "--down-" || number("bits_per_second") < 20_000_000, "{table}");
    }
    let table = held(&["--scenario", "lan"].map(str::to_owned));
    assert_eq!(table["path"], "lan");
}

#[test]
fn a_signal_ends_everything() {
    if !able() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let env = Env::new();
        let args = ["--rate", "100kbit", "--rtt", "20ms", "--size", "10MB", "--only", "netblt"];
        let running = start(&env, &args);
        let id = running.id();
        wait_until("both sides run", || has_made(&env, "near.log"));
        running.signal(signal);
        running.finish().exits(20).says("stopped");
        assert_gone(&env, id);
    }
    // This signal cannot be caught. What was made is removed all the same, a little later.
    let env = Env::new();
    let running = start(&env, &["--rate", "100kbit", "--size", "10MB", "--only", "netblt"]);
    let id = running.id();
    wait_until("both sides run", || has_made(&env, "near.log"));
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None);
    wait_until("everything is gone", || {
        let left = fs::read_dir(env.path("tmp")).into_iter().flatten().count();
        let host = |end: &str| Path::new(&format!("/run/netns/netblt-{id}-{end}")).exists();
        left == 0 && !host("a") && !host("b") && working_on(&env).is_none()
    });
}

/// The gallery's CUBIC carries what the kernel's does, within 15 %, where what it carries is its
/// window's affair.
#[test]
fn the_gallerys_cubic_is_as_fast_as_the_kernels() {
    if !testenv::accuracy_wanted() {
        return;
    }
    if !testenv::able(&["ip", "iperf3"], &["/dev/net/tun"]) {
        return;
    }
    let env = Env::new();
    let link = ["--rate", "50Mbit", "--rtt", "40ms", "--loss", "0.02%", "--size", "30MB"];
    let args = [&link[..], &["--only", "cubic,tcp-cubic", "--json"]].concat();
    let report = start(&env, &args).finish_within(LIMIT * 3).exits(0).text();
    let value: Value = serde_json::from_str(&report).expect("JSON");
    let rate = |name: &str| {
        let rows = value["paths"][0]["rows"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["name"] == name).expect("it took part");
        row["medians"]["bits_per_second"].as_f64().unwrap_or_else(|| panic!("no run: {row}"))
    };
    let (ours, theirs) = (rate("cubic"), rate("tcp-cubic"));
    println!("{:.1} and the kernel's {:.1} Mbit/s", ours / 1e6, theirs / 1e6);
    assert!((ours / theirs - 1.0).abs() <= 0.15, "{ours} bit/s, the kernel's {theirs}");
}
