//! What limited a transfer: both ends say the same, whatever it was. Each cause is forced here; a
//! processor by a container's quota, which needs root and control groups, else it is skipped.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::testenv::busy::Load;
use crate::testenv::{Env, Running, last_event, skip};

const HERE: [&str; 4] = ["--bind", "127.0.0.1", "--json", "--resume=never"];

/// A sender of these that listens, and its ticket.
fn sender(env: &Env, args: &[&str]) -> (Running, String) {
    let mut sender = env.start(&[&["send"][..], args, &HERE].concat());
    let ticket = ticket(&mut sender);
    (sender, ticket)
}

fn ticket(sender: &mut Running) -> String {
    sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned()
}

/// How often a cause is forced on a machine that is too busy to let it show.
const TRIES: usize = 4;

/// A cause that is forced is the one that is named, unless other programs keep the processors busy:
/// then these may be what limits, and in truth. `never` is what it is not, however busy.
#[track_caller]
fn named(expected: &str, never: &[&str], run: impl Fn() -> Vec<String>) {
    for _ in 0..TRIES {
        let load = Load::begin();
        let said = run();
        if said.iter().all(|cause| cause == expected) {
            return;
        }
        let wrong = said.iter().find(|cause| never.contains(&cause.as_str()));
        assert!(load.is_high() && wrong.is_none(), "{said:?} for {expected}");
    }
    skip(&format!("this machine is too busy for {expected} to limit a transfer"));
}

/// What both ends say, which must be the same.
fn both(sender: Running, receiver: Running) -> String {
    let received = receiver.finish().exits(0).last_event("summary");
    let sent = sender.finish().exits(0).last_event("summary");
    // Shown when the caller asked for another cause.
    println!("{sent}\n{received}");
    assert_eq!(sent["limited_by"], received["limited_by"]);
    sent["limited_by"].as_str().expect("text").to_owned()
}

/// An emulated network in front of a port.
fn relay(env: &Env, to: u16, options: &[&str]) -> (Running, String) {
    let to = format!("127.0.0.1:{to}");
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--to", &to];
    let mut relay = env.start(&[&own[..], options].concat());
    let listen = relay.event("emulating", |_| true)["listen"].as_str().expect("text").to_owned();
    (relay, listen)
}

fn free_port() -> u16 {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("bound");
    socket.local_addr().expect("known").port()
}

/// What limits a file of so many bytes through such a network.
fn over(options: &[&str], bytes: usize, receiving: &[&str]) -> String {
    let env = Env::new();
    env.make_file("data", bytes);
    env.make_directory("to");
    let port = free_port();
    let (relay, listen) = relay(&env, port, options);
    let port = port.to_string();
    let (sender, ticket) = sender(&env, &["data", "--port", &port, "--advertise", &listen]);
    let receiver = env.start(&[&["receive", &ticket, "to"][..], receiving, &HERE].concat());
    let limit = both(sender, receiver);
    drop(relay);
    limit
}

#[test]
fn the_path_the_round_trips_and_the_receivers_buffers() {
    let path = ["--rate", "8Mbit", "--delay", "10ms"];
    let never = ["rate_cap", "receiver_buffers"];
    named("path", &never, || vec![over(&path, 3_000_000, &[])]);
    let far = ["--delay", "60ms"];
    named("round_trips", &never, || vec![over(&far, 1000, &[])]);
    let few = ["--buffers", "1", "--buffer-size", "64KiB"];
    named("receiver_buffers", &["rate_cap"], || vec![over(&far, 2_000_000, &few)]);
}

/// What the ends know of their hosts stands in either trace, however busy the machine is.
#[test]
fn a_report_of_either_trace_names_what_the_ends_name() {
    let env = Env::new();
    env.make_file("data", 2_000_000);
    env.make_directory("to");
    let port = free_port();
    let (relay, listen) = relay(&env, port, &["--delay", "60ms"]);
    let port = port.to_string();
    let args = ["data", "--port", &port, "--advertise", &listen, "--trace", "sent.jsonl"];
    let (sender, ticket) = sender(&env, &args);
    let args = ["--trace", "received.jsonl", "--buffers", "1", "--buffer-size", "64KiB"];
    let receiver = env.start(&[&["receive", &ticket, "to"][..], &args, &HERE].concat());
    let limit = both(sender, receiver);
    drop(relay);
    for trace in ["sent.jsonl", "received.jsonl"] {
        let report = env.run(&["report", "transfer", trace, "--json"]).exits(0).text();
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert!(limit == "path" || report["limit"] == limit.as_str(), "{limit}: {report}");
    }
}

#[test]
fn a_path_gets_the_buffers_that_it_has_use_of_as_far_as_memory_goes() {
    let far = ["--rate", "30Mbit", "--delay", "60ms"];
    let small = ["--buffer-size", "4KiB"];
    let held = [&small[..], &["--memory", "256KiB"]].concat();
    named("receiver_buffers", &["rate_cap"], || vec![over(&far, 4_000_000, &held)]);
    // Its 64 would do no better.
    named("path", &["rate_cap"], || vec![over(&far, 10_000_000, &small)]);
    let env = Env::new();
    env.make_file("data", 10);
    for (args, says) in [
        (["--memory", "1MiB", "--buffer-size", "1MiB"], "does not hold 3 buffers of 1MiB"),
        (["--memory", "1MiB", "--buffers", "3"], "--buffers"),
        (["--memory", "1MiB", "--wire", "rfc998"], "--memory is for --wire sealed"),
    ] {
        env.run(&[&["send", "data"][..], &args].concat()).exits(1).says(says);
    }
}

#[test]
fn the_rate_that_was_asked_for() {
    named("rate_cap", &["receiver_buffers"], || {
        let env = Env::new();
        env.make_file("data", 3_000_000);
        env.make_directory("to");
        let (sender, ticket) = sender(&env, &["data", "--rate", "12Mbit", "--memory", "1GiB"]);
        let receiver = env.start(&[&["receive", &ticket, "to"][..], &HERE].concat());
        vec![both(sender, receiver)]
    });
}

/// A control group of processes that may have one processor for so many thousandths of the time.
struct Quota(PathBuf);

impl Quota {
    /// None, with a counted message, where that cannot be made.
    fn new(name: &str, thousandths: u32) -> Option<Self> {
        let limit = thousandths * 100;
        let places = [
            // Control groups, version 1 and 2; a new period each tenth of a second, as is usual.
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", limit.to_string()),
            ("/sys/fs/cgroup", "cpu.max", format!("{limit} 100000")),
        ];
        for (root, file, text) in places {
            let group = Self(format!("{root}/netblt-{}-{name}", std::process::id()).into());
            let made = fs::create_dir(&group.0).is_ok();
            if made && fs::write(group.0.join(file), text).is_ok() {
                return Some(group);
            }
        }
        skip("no control group with a processor's quota can be made");
        None
    }

    /// The same, from its first moment on held to the quota.
    fn holding(&self, command: &Command) -> Command {
        let mut held = Command::new("sh");
        held.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        held.arg(command.get_program()).args(command.get_args());
        held.current_dir(command.get_current_dir().expect("the test's")).env_clear();
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        held.envs(set).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        held
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn either_processor() {
    for (name, expected) in [("sends", "sender_cpu"), ("receives", "receiver_cpu")] {
        let Some(quota) = Quota::new(name, 20) else { return };
        named(expected, &["rate_cap", "receiver_buffers"], || {
            let env = Env::new();
            env.make_file("data", 10_000_000);
            env.make_directory("to");
            let start = |held: bool, args: &[&str]| {
                let command = env.command(&[args, &HERE].concat());
                Running::new(if held { quota.holding(&command) } else { command })
            };
            let mut sender = start(name == "sends", &["send", "data"]);
            let ticket = ticket(&mut sender);
            let receiver = start(name == "receives", &["receive", &ticket, "to"]);
            vec![both(sender, receiver)]
        });
    }
}

/// What sender and receiver say on `rfc998`, where neither tells the other anything.
fn in_the_clear(path: &[&str], sending: &[&str], receiving: &[&str]) -> [String; 2] {
    let env = Env::new();
    env.make_file("data", 2_000_000);
    let waits = ["receive", "out", "--wire", "rfc998", "--listen", "127.0.0.1:0", "--json"];
    let mut receiver = env.start(&[&waits[..], receiving].concat());
    let listening = receiver.event("listening", |_| true);
    let port = listening["address"].as_str().and_then(|at| at.rsplit(':').next()).expect("a port");
    let (_relay, to) = relay(&env, port.parse().expect("a port"), path);
    let calls = ["send", "data", "--wire", "rfc998", "--to", &to, "--json"];
    let sent = env.run(&[&calls[..], sending].concat()).exits(0);
    [sent, receiver.finish().exits(0)].map(|end| {
        let limit = end.last_event("summary")["limited_by"].take();
        limit.as_str().expect("text").to_owned()
    })
}

/// Whatever becomes of its packets: a sender at a fixed rate does not ask what the path carries.
#[test]
fn a_fixed_rate_is_not_reported_as_limited_by_the_path() {
    let path = ["--rate", "8Mbit", "--delay", "10ms"];
    let fixed = |rate| ["--policy", "fixed", "--rate", rate];
    let clear = |path: &[&str], sends: &[&str], receives: &[&str]| {
        let said = in_the_clear(path, sends, receives);
        // The receiver does not know the rate, and goes by what comes: less than that on a busy
        // machine.
        assert!(!sends.contains(&"fixed") || said[0] != "path", "{sends:?}");
        said.to_vec()
    };
    for rate in ["6Mbit", "12Mbit"] {
        named("rate_cap", &["receiver_buffers"], || clear(&path, &fixed(rate), &[]));
    }
    // So it is with one that would find the path's if the other end let it, while it finds no less.
    let burst = ["--burst-size", "5", "--burst-interval", "10ms"];
    named("rate_cap", &["receiver_buffers"], || clear(&path, &[], &burst));
    named("path", &["rate_cap"], || clear(&path, &[], &[]));
    // Without permission none of it counts.
    let few = ["--buffers", "1", "--buffer-size", "16KiB"];
    let far = ["--delay", "50ms"];
    named("receiver_buffers", &[], || clear(&far, &fixed("50Mbit"), &few));
}

#[test]
fn a_slow_source() {
    named("sender_disk", &["rate_cap", "receiver_buffers"], || vec![from_a_slow_source()]);
}

fn from_a_slow_source() -> String {
    let env = Env::new();
    env.make_directory("to");
    let mut command = env.command(&[&["send", "-"][..], &HERE].concat());
    command.stdin(Stdio::piped());
    let mut child = Command::new("sh")
        .args([
            "-c",
            "for n in 1 2 3 4 5 6 7 8 9 10; do head -c 300000 /dev/zero; sleep 0.15; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    command.stdin(child.stdout.take().expect("a pipe"));
    let mut sender = Running::new(command);
    let ticket = ticket(&mut sender);
    let small = ["--buffer-size", "64KiB"];
    let receiver = env.start(&[&["receive", &ticket, "to"][..], &small, &HERE].concat());
    let limit = both(sender, receiver);
    child.wait().expect("ended");
    limit
}

#[test]
fn a_slow_destination() {
    named("receiver_disk", &["rate_cap"], into_a_slow_destination);
}

fn into_a_slow_destination() -> Vec<String> {
    let env = Env::new();
    env.make_file("data", 3_000_000);
    let (sender, ticket) = sender(&env, &["data"]);
    let args = ["receive", "-", "--buffers", "4", "--buffer-size", "64KiB", "--json"];
    let mut command = env.command(&args);
    command.env("NETBLT_TICKET", &ticket);
    let mut child = command.spawn().expect("started");
    let mut slow = child.stdout.take().expect("a pipe");
    let reader = thread::spawn(move || {
        use std::io::Read as _;
        let mut space = vec![0; 100_000];
        let mut all = 0;
        while let Ok(n @ 1..) = slow.read(&mut space) {
            all += n;
            thread::sleep(Duration::from_millis(40));
        }
        all
    });
    let sent = sender.finish().exits(0).last_event("summary");
    let ended = child.wait_with_output().expect("ended");
    assert_eq!(reader.join().expect("ran"), 3_000_000);
    let received = last_event(&String::from_utf8_lossy(&ended.stderr), "summary");
    [sent, received].map(|end| end["limited_by"].as_str().expect("text").to_owned()).to_vec()
}

#[test]
fn people_read_the_same_sentence_on_both_sides() {
    let env = Env::new();
    // So slow that a busy machine keeps up with it.
    env.make_file("data", 400_000);
    env.make_directory("to");
    let args = ["send", "data", "--bind", "127.0.0.1", "--rate", "2Mbit"];
    let mut sender = env.start(&args);
    let ticket = sender.line();
    let received = env.run(&["receive", &ticket, "to"]).exits(0).stderr;
    let sent = sender.finish().exits(0).stderr;
    let sentence = |text: &str| {
        text.lines().find(|line| line.starts_with("  limit  ")).expect(text).to_owned()
    };
    assert_eq!(sentence(&sent), sentence(&received));
    // Busy processors limit it, too.
    let words = ["--rate", "processor"];
    assert!(words.iter().any(|word| sentence(&sent).contains(word)), "{sent}");
}
