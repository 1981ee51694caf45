//! `netblt control`: real transfers that are listed, held back, paused and let go by another
//! process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use crate::testenv::far::Setting;
use crate::testenv::{Env, Finished, LIMIT, Running, last_event, noise, text, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const HERE: [&str; 2] = ["--bind", "127.0.0.1"];
/// At 400 kbit/s it would take seven minutes.
const SIZE: usize = 20 << 20;

/// A directory for the sockets of these programs alone.
fn runtime(env: &Env) -> PathBuf {
    env.make_directory("run")
}

fn start(env: &Env, args: &[&str]) -> Running {
    let mut command = env.command(args);
    command.env("XDG_RUNTIME_DIR", runtime(env));
    Running::new(command)
}

fn control(env: &Env, args: &[&str]) -> Finished {
    start(env, &[&["control"], args].concat()).finish()
}

/// The state of a transfer, as `netblt control` prints it.
fn reply(env: &Env, args: &[&str]) -> Value {
    control(env, &[args, &["--json"]].concat()).exits(0).last_event("transfer")
}

/// A transfer that goes slowly; (sender, receiver).
fn under_way(env: &Env) -> (Running, Running) {
    env.make_file("data.bin", SIZE);
    env.make_directory("to");
    let send = ["send", "data.bin", "--rate", "400kbit", "--buffer-size", "64KiB", "--json"];
    let mut sender = start(env, &[&send[..], &HERE].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket");
    let mut receiver = start(env, &["receive", ticket, "to", "--json"]);
    sender.event("progress", |data| data["bytes"].as_u64() > Some(0));
    receiver.event("progress", |data| data["bytes"].as_u64() > Some(0));
    (sender, receiver)
}

#[test]
fn a_transfer_is_listed_paused_and_resumed() {
    let env = Env::new();
    assert_eq!(control(&env, &[]).exits(0).text(), "", "nothing runs");
    control(&env, &["--pause"]).exits(5).says("no transfer of this user's runs here");
    let (sender, receiver) = under_way(&env);
    let (sends, receives) = (sender.id().to_string(), receiver.id().to_string());
    // Both are this user's, and in a directory that no other user can read.
    let place = runtime(&env).join("netblt");
    assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o700);
    let listed = control(&env, &[]).exits(0).text();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("data.bin") && listed.contains("fair, at most 400.0 kbit/s"));
    control(&env, &["--pause"]).exits(1).says("several transfers run here");

    let state = reply(&env, &[&sends, "--pause"]);
    assert_eq!((&state["role"], &state["paused"]), (&"sender".into(), &true.into()), "{state}");
    assert_eq!(state["ceiling_mbps"], 0.4);
    // What was under way has come by then; after that, nothing does.
    let bytes = || reply(&env, &[&receives, "--status"])["bytes"].as_u64().expect("a number");
    wait_until("it stands", || {
        let before = bytes();
        std::thread::sleep(Duration::from_millis(500));
        before == bytes()
    });
    assert!(bytes() < SIZE as u64);

    let state = reply(&env, &[&sends, "--resume", "--rate", "none", "--policy", "background"]);
    assert_eq!((&state["paused"], &state["ceiling_mbps"]), (&false.into(), &Value::Null));
    assert_eq!(state["policy"], "background");
    let (sent, received) = (sender.finish().exits(0), receiver.finish().exits(0));
    assert_eq!(sent.last_event("summary")["verified"], true);
    assert_eq!(received.last_event("summary")["verified"], true);
    let data = fs::read(env.path("data.bin")).expect("sent");
    assert!(fs::read(env.path("to/data.bin")).expect("received") == data);
    assert_eq!(fs::read_dir(runtime(&env)).expect("listed").count(), 0, "nothing is left");
}

#[test]
fn a_receiver_limits_its_sender_and_has_no_policy() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    let (sends, receives) = (sender.id().to_string(), receiver.id().to_string());
    control(&env, &[&receives, "--policy", "fair"]).exits(5).says("the policy is the sender's");
    control(&env, &[&sends, "--policy", "fixed"]).exits(5).says("needs --rate");
    assert_eq!(reply(&env, &[&receives, "--rate", "200kbit"])["ceiling_mbps"], 0.2);
    let paced = |events: &mut Running, least: f64, most: f64| {
        events.event("progress", |data| {
            data["mbps"].as_f64().is_some_and(|rate| (least..=most).contains(&rate))
        })
    };
    let mut sender = sender;
    paced(&mut sender, 0.05, 0.25);
    reply(&env, &[&receives, "--rate", "none"]);
    paced(&mut sender, 0.3, 0.41);
    // Its pace is what was agreed on, and that was no limit.
    reply(&env, &[&sends, "--policy", "fixed", "--rate", "80Mbit"]);
    assert_eq!(reply(&env, &[&sends])["policy"], "fixed");
    sender.finish().exits(0);
    receiver.finish().exits(0);
}

/// A copy that knows its peer.
fn copying(setting: &Setting, args: &[&str]) -> Running {
    let mut copy = setting.command(args);
    copy.env("XDG_RUNTIME_DIR", runtime(&setting.env));
    let copy = Running::new(copy);
    let listed = || control(&setting.env, &["--json"]).exits(0).text();
    wait_until("the copy is listed", || listed().contains("\"peer\":\""));
    copy
}

#[test]
fn a_copy_is_paused_and_goes_on() {
    let setting = Setting::new();
    setting.put("near/data.bin", &noise(SIZE));
    let copy = copying(&setting, &["--rate", "4Mbit", "data.bin", "host:"]);
    // The only one that runs needs no number.
    let state = reply(&setting.env, &["--pause"]);
    assert_eq!((&state["role"], &state["what"]), (&"sender".into(), &"to host".into()));
    assert_eq!(reply(&setting.env, &["--status"])["paused"], true);
    let bytes = || reply(&setting.env, &[])["bytes"].as_u64().expect("a number");
    let before = bytes();
    assert_eq!(reply(&setting.env, &["--resume"])["paused"], false);
    reply(&setting.env, &["--rate", "2Mbit"]);
    wait_until("more has come", || bytes() > before);
    copy.signal(Signal::INT);
    copy.finish().exits(20);
}

/// `--rate` of a copy to another machine is its sender's own, and can be raised on the way; that of
/// one from there was agreed on, and the reply has what holds.
#[test]
fn the_rate_of_a_copy_is_raised_on_the_way() {
    let setting = Setting::new();
    setting.put("near/data.bin", &noise(SIZE));
    let copy = copying(&setting, &["--rate", "100kbit", "data.bin", "host:"]);
    assert_eq!(reply(&setting.env, &["--rate", "80Mbit"])["ceiling_mbps"], 80.0);
    // At the first rate it would take longer than is waited for.
    assert!(Duration::from_secs(SIZE as u64 * 8 / 100_000) > 2 * LIMIT);
    copy.finish().exits(0);
    setting.put("far/data2.bin", &noise(SIZE));
    let copy = copying(&setting, &["--rate", "400kbit", "host:data2.bin", "."]);
    assert_eq!(reply(&setting.env, &["--rate", "200kbit"])["ceiling_mbps"], 0.2);
    assert_eq!(reply(&setting.env, &["--rate", "80Mbit"])["ceiling_mbps"], 0.4);
    assert_eq!(reply(&setting.env, &["--rate", "none"])["ceiling_mbps"], 0.4);
    copy.signal(Signal::INT);
    copy.finish().exits(20);
}

#[test]
fn sockets_of_dead_processes_are_removed_and_wrong_arguments_named() {
    let env = Env::new();
    let (sender, receiver) = under_way(&env);
    let pid = sender.id().to_string();
    sender.signal(Signal::KILL);
    sender.finish();
    let socket = runtime(&env).join("netblt").join(format!("{pid}.sock"));
    assert!(socket.exists());
    control(&env, &[&pid, "--pause"]).exits(5).says("is no transfer of this user's");
    assert!(!socket.exists());
    drop(receiver);
    // Of one that lives, this one, it may only not listen yet.
    let starts = runtime(&env).join("netblt").join(format!("{}.sock", std::process::id()));
    drop(UnixListener::bind(&starts).expect("bound"));
    control(&env, &[]).exits(0);
    assert!(starts.exists());
    let wrong = control(&env, &["1", "--status", "--json"]).exits(5);
    assert_eq!(last_event(&wrong.text(), "error")["code"], 5);
}

#[test]
fn control_sockets_stand_only_where_no_other_user_can_enter() {
    let env = Env::new();
    let place = runtime(&env).join("netblt");
    fs::create_dir(&place).expect("made");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("opened");
    control(&env, &[]).exits(5).says(&text(&place));
}
