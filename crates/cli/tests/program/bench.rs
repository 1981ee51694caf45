//! The test application as its two kinds of user run it: RFC 1030's and iperf3's.

use std::net::UdpSocket;
use std::time::Duration;

use crate::testenv::{self, Env, Finished, Running};
use serde_json::Value;

const HERE: [&str; 4] = ["-B", "127.0.0.1", "-p", "0"];
/// RFC 1030's parameters, but ten times as fast.
const FIVE: [&str; 12] = [
    "--burst-size",
    "5",
    "--burst-interval",
    "4ms",
    "--buffer-size",
    "14380",
    "--packet-size",
    "1438",
    "--buffers",
    "1",
    "--wire",
    "rfc998",
];

fn serve(env: &Env, args: &[&str]) -> (Running, String) {
    let mut server = env.start(&[&["bench", "-s", "-1"], &HERE[..], args].concat());
    let ticket = server.line();
    assert!(ticket.starts_with("netblt1:"), "{ticket}");
    (server, ticket)
}

fn document(run: &Finished) -> Value {
    serde_json::from_str(&run.text()).expect("one JSON document")
}

#[test]
fn the_parameters_of_rfc_1030_are_obeyed_and_its_columns_printed() {
    let run = Env::new().run(&[&["bench", "-n", "143800", "-i", "0"], &FIVE[..]].concat());
    let run = run.exits(0).says("plaintext");
    let text = run.text();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let [head, row] = lines.as_slice() else { panic!("{text}") };
    let columns = ["BS/BI", "PSZ", "BFSZ", "XFSZ", "NBUFS", "#LOSS", "#RXM", "DTMOS"];
    assert_eq!(head[..8], columns);
    assert_eq!(row[..6], ["1", "5/4", "1438", "14380", "144", "1"]);
    // 5 packets each 4 ms are 14.38 Mbit/s.
    let steady: f64 = row[9].parse().expect("a number");
    assert!(steady > 0.5 && steady <= 14.381, "{steady}");
}

/// Two bursts take one interval: all the steady state there is.
#[test]
fn the_steady_state_counts_intervals_and_not_bursts() {
    let mut args = [&["bench", "-n", "14380", "-i", "0", "-J"], &FIVE[..]].concat();
    args[9] = "100ms";
    let stream = &document(&Env::new().run(&args).exits(0))["end"]["streams"][0];
    assert_eq!((&stream["burst_packets"], &stream["packets_sent"]), (&5.into(), &10.into()));
    let steady = stream["steady_bits_per_second"].as_f64().expect("a number");
    assert!(steady > 1e5 && steady <= 575_200.0, "{steady}");
}

/// The user waits for the other end as well (RFC 1030 §3).
#[test]
fn real_throughput_counts_from_the_programs_start() {
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.expect("a free port").port().to_string();
    let env = Env::new();
    let client = env.start(&["bench", "-c", "127.0.0.1", "-p", &port, "-n", "100K", "-J"]);
    std::thread::sleep(Duration::from_millis(700));
    let server = env.start(&["bench", "-s", "-1", "-q", "-B", "127.0.0.1", "-p", &port]);
    let stream = &document(&client.finish().exits(0))["end"]["streams"][0];
    server.finish().exits(0);
    let number = |name: &str| stream[name].as_f64().expect("a number");
    let (real, seconds) = (number("real_bits_per_second"), number("real_seconds"));
    assert!(seconds >= 0.7 && number("seconds") < seconds, "{stream}");
    assert!(real <= 102_400.0 * 8.0 / 0.7 && real * seconds > 102_300.0 * 8.0, "{stream}");
}

#[test]
fn a_client_without_a_ticket_tests_by_address_and_json_has_iperf3s_shape() {
    let env = Env::new();
    let (server, ticket) = serve(&env, &["-q"]);
    let (_, address) = ticket.split_once('@').expect("an address");
    let (address, _) = address.split_once('/').expect("a check");
    let client = env.run(&["bench", "-c", address, "-n", "3M", "-P", "2", "-b", "200M", "-J"]);
    let document = document(&client.exits(0));
    let end = &document["end"];
    assert_eq!(end["sum_sent"]["bytes"], 3 << 20);
    assert_eq!(end["sum_received"]["bytes"], 3 << 20);
    assert!(end["sum_sent"]["bits_per_second"].as_f64().is_some_and(|bits| bits > 1e5));
    assert_eq!(document["start"]["test_start"]["num_streams"], 2);
    assert_eq!(document["start"]["connected"][0]["remote_host"], "127.0.0.1");
    for stream in end["streams"].as_array().expect("streams") {
        assert_eq!(stream["verified"], true);
        assert!(stream["data_timeouts"].is_u64());
    }
    let server = server.finish().exits(0);
    // The ticket, the head, and a row for each connection.
    assert_eq!(server.text().lines().count(), 4, "{}", server.text());
}

#[test]
fn a_private_server_wants_its_ticket_and_sends_when_asked() {
    let env = Env::new();
    let (server, ticket) = serve(&env, &["--private"]);
    let (_, address) = ticket.split_once('@').expect("an address");
    let (address, _) = address.split_once('/').expect("a check");
    env.run(&["bench", "-c", address, "-n", "1M"]).exits(5).says("--private takes its ticket");
    let mut command = env.command(&["bench", "-c", "-R", "-t", "0.2", "-i", "0.1", "-J"]);
    command.env("NETBLT_TICKET", &ticket);
    let document = document(&Running::new(command).finish().exits(0));
    assert_eq!(document["end"]["streams"][0]["role"], "receiver");
    assert!(!document["intervals"].as_array().expect("intervals").is_empty());
    let sum = document["intervals"].as_array().into_iter().flatten();
    let sum: u64 = sum.filter_map(|interval| interval["sum"]["bytes"].as_u64()).sum();
    let all = document["end"]["sum_received"]["bytes"].as_u64().expect("a number");
    // To within the packets that are short.
    assert!(sum.abs_diff(all) <= all / 100 + 5000, "{sum} {all}");
    server.finish().exits(0).says("wants data");
}

#[test]
fn both_ends_here_talk_over_the_ip_version_asked_for() {
    let env = Env::new();
    let run = env.run(&["bench", "-6", "-n", "1M", "-i", "0", "-J"]).exits(0);
    assert_eq!(document(&run)["start"]["connected"][0]["remote_host"], "::1");
}

#[test]
fn wrong_arguments_of_bench_are_named() {
    let env = Env::new();
    for (args, says) in [
        (vec!["-c"], "NETBLT_TICKET"),
        (vec!["-c", "a b"], "neither a host name"),
        (vec!["-c", "host:0"], "port"),
        (vec!["-s", "-R"], "cannot be used with"),
        (vec!["-1"], "--server"),
        (vec!["-t", "1", "-n", "1"], "cannot be used with"),
        (vec!["-P", "33"], "a whole number from 1 to 32 is wanted"),
        (vec!["-i", "1us"], "0.1 seconds"),
        (vec!["--policy", "fixed"], "needs a rate"),
        (vec!["--burst-size", "5"], "--burst-interval"),
        (vec!["--buffer-size", "14380"], "power of two"),
        (vec!["-s", "--private", "--wire", "rfc998"], "knows no secrets"),
        (vec!["--raw-ip"], "--wire rfc998"),
        (vec!["--raw-ip", "--wire", "rfc998", "-c", "host:1"], "a HOST has no port"),
        (vec!["--raw-ip", "--wire", "rfc998", "-p", "0"], "UDP ports"),
    ] {
        env.run(&[vec!["bench"], args].concat()).exits(1).says(says);
    }
    // What iperf3 does with -J.
    let run = env.run(&["bench", "-c", "-J"]).exits(1);
    assert!(document(&run)["error"].as_str().is_some_and(|error| error.contains("which server")));
}

/// Bytes of memory that a process has now.
#[cfg(target_os = "linux")]
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_gives_back_the_memory_of_its_callers() {
    let env = Env::new();
    let mut server = env.start(&[&["bench", "-s"], &HERE[..]].concat());
    let ticket = server.line();
    let before = resident(server.id());
    let two = ["bench", "-c", &ticket, "-P", "32", "-n", "4M"];
    let callers = [env.start(&two), env.start(&two)];
    for caller in callers {
        caller.finish().exits(0);
    }
    testenv::wait_until("the memory is given back", || resident(server.id()) < before + (24 << 20));
    server.signal(rustix::process::Signal::INT);
    server.finish().exits(0);
}
