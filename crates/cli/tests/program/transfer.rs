//! Two programs, real sockets, real files: every way a transfer can go well.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::testenv::{self, Env, Finished, Running, last_event};
use serde_json::Value;

/// Listens on loopback, as a user's two machines would not.
const HERE: [&str; 2] = ["--bind", "127.0.0.1"];

fn listen(env: &Env, args: &[&str]) -> (Running, String) {
    let mut running = env.start(&[args, &HERE].concat());
    let ticket = running.line();
    assert!(ticket.starts_with("netblt1:"), "{ticket}");
    (running, ticket)
}

/// Both ends at their end, the listening one first, both content.
#[track_caller]
fn both_succeed(listener: Running, other: Finished) -> (Finished, Finished) {
    let other = other.exits(0);
    (listener.finish().exits(0), other)
}

#[test]
fn a_file_is_pulled() {
    let env = Env::new();
    let data = env.make_file("data.bin", 3_000_001);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let receiver = env.run(&["receive", &ticket, "to"]);
    let (sender, receiver) = both_succeed(sender, receiver);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert_eq!(env.names("to"), ["data.bin"]);
    let sum = format!("BLAKE3      {}\n", blake3::hash(&data));
    for text in ["verified", "from start to finish", "lost", "round trip", &sum, "limit"] {
        assert!(sender.stderr.contains(text), "no {text}: {}", sender.stderr);
        assert!(receiver.stderr.contains(text), "no {text}: {}", receiver.stderr);
    }
    assert_eq!(receiver.text(), "", "standard output is for data");
}

#[test]
fn a_file_is_pushed() {
    let env = Env::new();
    let data = env.make_file("data.bin", 3_000_001);
    env.make_directory("to");
    let (receiver, ticket) = listen(&env, &["receive", "to"]);
    let sender = env.run(&["send", "data.bin", "--to", &ticket]);
    both_succeed(receiver, sender);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
}

#[test]
fn the_smaller_buffer_size_of_both_ends_counts() {
    for (senders, receivers) in [("64KiB", "1MiB"), ("1MiB", "64KiB"), ("1KiB", "4KiB")] {
        let env = Env::new();
        let data = env.make_file("data.bin", 700_001);
        env.make_directory("to");
        let (receiver, ticket) = listen(&env, &["receive", "to", "--buffer-size", receivers]);
        let send = ["send", "data.bin", "--to", &ticket, "--buffer-size", senders];
        both_succeed(receiver, env.run(&send));
        assert!(fs::read(env.path("to/data.bin")).expect("the file") == data, "{senders}");
    }
}

#[test]
fn a_ticket_comes_from_the_environment_or_standard_input() {
    let env = Env::new();
    env.make_file("data.bin", 10_000);
    for (directory, from_stdin) in [("a", false), ("b", true)] {
        env.make_directory(directory);
        let (sender, ticket) = listen(&env, &["send", "data.bin"]);
        let receiver = if from_stdin {
            let args = ["receive", directory, "--ticket-stdin"];
            env.run_with_input(&args, format!("{ticket}\n").into_bytes())
        } else {
            let mut command = env.command(&["receive", directory]);
            command.env("NETBLT_TICKET", &ticket);
            Running::new(command).finish()
        };
        both_succeed(sender, receiver);
        assert_eq!(env.names(directory), ["data.bin"]);
    }
}

#[test]
fn a_stream_goes_from_standard_input_to_standard_output() {
    let env = Env::new();
    for bytes in [0, 1, 5_000_000] {
        let data = testenv::noise(bytes);
        let args = [&["send", "-"], &HERE[..]].concat();
        let mut sender = env.start_with_input(&args, data.clone());
        let ticket = sender.line();
        let receiver = env.run(&["receive", &ticket, "-", "--json"]);
        let (_, receiver) = both_succeed(sender, receiver);
        assert!(receiver.stdout == data, "{} of {bytes} bytes", receiver.stdout.len());
        assert_eq!(last_event(&receiver.stderr, "summary")["bytes"], bytes);
    }
}

#[test]
fn a_stream_is_stored_under_the_name_it_is_given() {
    let env = Env::new();
    env.make_directory("to");
    let (receiver, ticket) = listen(&env, &["receive", "to"]);
    let args = ["send", "-", "--stdin-name", "backup.tar", "--to", &ticket];
    let sender = env.run_with_input(&args, b"hello".to_vec());
    both_succeed(receiver, sender);
    assert_eq!(fs::read(env.path("to/backup.tar")).expect("the file"), b"hello");
}

#[test]
fn a_file_goes_to_standard_output() {
    let env = Env::new();
    let data = env.make_file("data.bin", 2_500_000);
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let (_, receiver) = both_succeed(sender, env.run(&["receive", &ticket, "-"]));
    assert!(receiver.stdout == data);
}

#[test]
fn directories_arrive_with_all_that_is_in_them() {
    let env = Env::new();
    env.make_directory("tree/deep/er");
    env.make_directory("tree/empty");
    env.make_directory("to");
    let mut expected = Vec::new();
    for i in 0..300 {
        let name = format!("tree/deep/small-{i}");
        expected.push((name.clone(), env.make_file(&name, i * 7)));
    }
    for (name, bytes) in [("tree/größe 文.bin", 1_500_000), ("tree/deep/er/-", 1), ("one", 2)] {
        expected.push((name.to_owned(), env.make_file(name, bytes)));
    }
    let (sender, ticket) = listen(&env, &["send", "tree", "one"]);
    let receiver = env.run(&["receive", &ticket, "to", "--json"]);
    let (_, receiver) = both_succeed(sender, receiver);
    for (name, data) in &expected {
        let arrived = fs::read(env.path("to").join(name));
        assert!(arrived.as_ref().is_ok_and(|arrived| arrived == data), "{name}");
    }
    assert!(env.path("to/tree/empty").is_dir());
    assert_eq!(env.names("to"), ["one", "tree"]);
    let summary = receiver.last_event("summary");
    let bytes: usize = expected.iter().map(|(_, data)| data.len()).sum();
    assert_eq!(summary["bytes"], bytes);
}

#[test]
fn an_empty_stream_is_a_transfer() {
    let env = Env::new();
    env.make_file("empty", 0);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "empty"]);
    both_succeed(sender, env.run(&["receive", &ticket, "to"]));
    assert_eq!(fs::read(env.path("to/empty")).expect("the file"), b"");
}

#[test]
fn machines_read_both_sides() {
    let env = Env::new();
    env.make_file("data.bin", 1_000_000);
    env.make_directory("to");
    let args = [&["send", "data.bin", "--json", "--mtu", "1500"], &HERE[..]].concat();
    let mut sender = env.start(&args);
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().map(str::to_owned);
    let ticket = ticket.expect("a ticket");
    let receiver = env.run(&["receive", &ticket, "to", "--json"]);
    let (sender, receiver) = both_succeed(sender, receiver);
    assert_eq!((sender.stderr.as_str(), receiver.stderr.as_str()), ("", ""));
    for run in [&sender, &receiver] {
        let text = run.text();
        let events: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert!(events.iter().any(|event| event["event"] == "connected"), "{text}");
        assert!(events.iter().all(|event| event["data"].is_object()), "{text}");
        let summary = run.last_event("summary");
        assert_eq!(summary["version"], 1);
        assert_eq!(summary["bytes"], 1_000_000);
        assert_eq!(summary["verified"], true);
        for field in ["seconds", "real_mbps", "steady_mbps", "packets_lost", "packets_resent"] {
            assert!(summary[field].is_number(), "{field}: {summary}");
        }
        assert!(summary["limited_by"].is_string());
    }
    assert!(sender.last_event("summary")["packets_sent"].as_u64() >= Some(700));
    let digest = |run: &Finished| run.last_event("summary")["digest"].clone();
    assert_eq!(digest(&sender), digest(&receiver));
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let env = Env::new();
    let data = env.make_file("data.bin", 10_000);
    env.make_directory("to");
    fs::write(env.path("to/data.bin"), "mine").expect("a file");
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let refused = env.run(&["receive", &ticket, "to", "--atomic"]).exits(11);
    refused.says("exists").says("--overwrite always");
    // The ticket stays good.
    env.run(&["receive", &ticket, "to"]).exits(23).says("left out data.bin: exists there already");
    let sender = sender.finish().exits(23).says("1 left out: data.bin: exists there already");
    sender.says("The other side refused: data.bin exists there already; still waiting");
    assert_eq!(fs::read(env.path("to/data.bin")).expect("the file"), b"mine");
    assert_eq!(env.names("to"), ["data.bin"]);

    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    let receiver = env.run(&["receive", &ticket, "to", "--overwrite", "always"]);
    both_succeed(sender, receiver);
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
    assert_eq!(env.names("to"), ["data.bin"]);

    // What is there already is as good as received.
    let (sender, ticket) = listen(&env, &["send", "data.bin"]);
    both_succeed(sender, env.run(&["receive", &ticket, "to"]));
}

#[test]
fn a_rate_is_a_ceiling() {
    let env = Env::new();
    env.make_file("data.bin", 4_000_000);
    for policy in ["fair", "fixed"] {
        let directory = env.make_directory(policy);
        let (receiver, ticket) = listen(&env, &["receive", &testenv::text(&directory)]);
        let begin = Instant::now();
        let args = ["send", "data.bin", "--to", &ticket, "--rate", "40Mbit", "--policy", policy];
        let sender = env.run(&args);
        // 32 Mbit of data at 40 Mbit/s; headers and set-up only add to it.
        assert!(begin.elapsed() > Duration::from_millis(750), "{policy}: {:?}", begin.elapsed());
        let (_, sender) = both_succeed(receiver, sender);
        assert_eq!(sender.stderr.contains("does not yield to other traffic"), policy == "fixed");
    }
}

#[test]
fn quiet_shows_the_ticket_and_nothing_else() {
    let env = Env::new();
    env.make_file("data.bin", 10_000);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "data.bin", "--quiet"]);
    let receiver = env.run(&["receive", &ticket, "to", "--quiet"]);
    let (sender, receiver) = both_succeed(sender, receiver);
    assert_eq!(sender.text(), format!("{ticket}\n"));
    assert_eq!((sender.stderr, receiver.stderr), (String::new(), String::new()));
}

#[test]
fn a_trace_is_json_lines() {
    let env = Env::new();
    env.make_file("data.bin", 100_000);
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "data.bin", "--trace", "trace.jsonl"]);
    both_succeed(sender, env.run(&["receive", &ticket, "to"]));
    let trace = fs::read_to_string(env.path("trace.jsonl")).expect("a trace");
    assert!(trace.lines().count() > 10, "{trace}");
    for line in trace.lines() {
        serde_json::from_str::<Value>(line).expect(line);
    }
}

#[test]
fn small_buffers_and_big_packets_work() {
    let env = Env::new();
    let data = env.make_file("data.bin", 1_000_000);
    env.make_directory("to");
    let small = ["--buffer-size", "64KiB", "--buffers", "4"];
    let (sender, ticket) =
        listen(&env, &[&["send", "data.bin", "--mtu", "9000"], &small[..]].concat());
    both_succeed(sender, env.run(&["receive", &ticket, "to", "--mtu", "9000"]));
    assert!(fs::read(env.path("to/data.bin")).expect("the file") == data);
}

#[test]
fn the_demo_verifies_and_leaves_nothing_behind() {
    let env = Env::new();
    let link = ["--rate", "100Mbit", "--rtt", "20ms", "--loss", "1%"];
    let run = env.run(&[&["demo", "--size", "4MiB", "--json"], &link[..]].concat()).exits(0);
    let summary = run.last_event("summary");
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["bytes"], 4 << 20);
    assert!(run.text().contains("\"possible_mbps\""), "{}", run.text());
    assert_eq!(env.names("tmp"), Vec::<String>::new());
}

#[test]
fn every_file_is_listed_with_its_digest() {
    let env = Env::new();
    fs::create_dir_all(env.path("t/deep")).expect("made");
    let files = [("t/a", 0), ("t/big", 3_000_000), ("t/deep/odd\\name", 10)];
    let sums: BTreeMap<String, (u64, String)> = files
        .iter()
        .map(|(name, bytes)| {
            let sum = blake3::hash(&env.make_file(name, *bytes)).to_hex().to_string();
            (name.to_string(), (*bytes as u64, sum))
        })
        .collect();
    let digests_of = |run: &Finished| -> BTreeMap<String, (u64, String)> {
        let text = run.text();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let files = events.filter(|event| event["event"] == "file");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let file = |event: Value| {
            let data = &event["data"];
            let bytes = data["bytes"].as_u64().expect("a number");
            (text(&data["name"]), (bytes, text(&data["blake3"])))
        };
        files.map(file).collect()
    };
    for more in [&[][..], &["--atomic"]] {
        env.make_directory("to");
        let (sender, ticket) = listen(&env, &["send", "t"]);
        let receiver = env.run(&[&["receive", &ticket, "to", "--json"], more].concat());
        let (sender, receiver) = both_succeed(sender, receiver);
        assert_eq!(digests_of(&receiver), sums, "{more:?}");
        let all = "... of all; each file's own: --manifest FILE";
        assert!(sender.stderr.contains(all), "{}", sender.stderr);
        fs::remove_dir_all(env.path("to")).expect("removed");
    }
    let way = ["--json", "--bind", "127.0.0.1"];
    let mut sender = env.start(&[&["send", "t"], &way[..]].concat());
    let event = sender.event("listening", |_| true);
    let ticket = event["ticket"].as_str().expect("a ticket");
    env.make_directory("to");
    env.run(&["receive", ticket, "to"]).exits(0);
    assert_eq!(digests_of(&sender.finish().exits(0)), sums);
}

#[test]
fn both_ends_list_what_was_transferred_as_b3sum_does() {
    let env = Env::new();
    for (name, bytes) in [("t/a", 0), ("t/big", 3_000_000), ("t/deep/odd\\name", 10)] {
        fs::create_dir_all(env.path(name).parent().expect("a parent")).expect("made");
        env.make_file(name, bytes);
    }
    env.make_directory("to");
    let (sender, ticket) = listen(&env, &["send", "t", "--manifest", "sent"]);
    let receiver = env.run(&["receive", &ticket, "to", "--manifest", "to/received"]);
    both_succeed(sender, receiver);
    let received = testenv::text(&env.path("to/received"));
    assert_eq!(
        fs::read_to_string(env.path("sent")).expect("there"),
        fs::read_to_string(&received).expect("there")
    );
    let listed = fs::read_to_string(&received).expect("there");
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("  t/big\n") && listed.contains("  t/deep/odd\\\\name\n"), "{listed}");
    if !testenv::installed("b3sum") {
        testenv::skip("no b3sum to check the list with");
        return;
    }
    let mut check = std::process::Command::new("b3sum");
    let status = check.args(["--check", "received"]).current_dir(env.path("to")).status();
    assert!(status.expect("it runs").success());
}
