//! `--streams`: real transfers over several connections, what their summaries tell, and what is no
//! number of streams.

use std::fs;

use crate::testenv::far::Setting;
use crate::testenv::{self, Env, Running, noise};
use rustix::process::Signal;
use serde_json::Value;

/// In about a second, so that streams begin.
const SIZE: usize = 6_000_000;
const SLOW: [&str; 6] = ["--rate", "48Mbit", "--buffer-size", "64KiB", "--buffers", "16"];
const HERE: [&str; 3] = ["--bind", "127.0.0.1", "--json"];

fn ticket(listener: &mut Running) -> String {
    let event = listener.event("listening", |_| true);
    event["ticket"].as_str().expect("a ticket").to_owned()
}

fn words(parts: &[&[&str]]) -> Vec<String> {
    parts.concat().into_iter().map(str::to_owned).collect()
}

/// The summaries of both ends: whose is listening, the sender's first.
fn summaries(sender_listens: bool, streams: [&str; 2]) -> [Value; 2] {
    let env = Env::new();
    let content = env.make_file("data.bin", SIZE);
    env.make_directory("to");
    let [send, receive] = streams.map(|count| ["--streams", count]);
    let sends = |ticket: &[&str]| words(&[&["send", "data.bin"], ticket, &send, &SLOW, &HERE]);
    let receives = |ticket: &[&str]| words(&[&["receive"], ticket, &["to"], &receive, &HERE]);
    let (sender, receiver) = if sender_listens {
        let mut sender = env.start(&sends(&[]));
        let ticket = ticket(&mut sender);
        (sender, env.start(&receives(&[&ticket])))
    } else {
        let mut receiver = env.start(&receives(&[]));
        let ticket = ticket(&mut receiver);
        (env.start(&sends(&["--to", &ticket])), receiver)
    };
    let ends = [sender, receiver].map(|end| end.finish().exits(0).last_event("summary"));
    assert!(fs::read(env.path("to/data.bin")).expect("it arrived") == content);
    ends
}

#[test]
fn a_transfer_uses_the_smaller_number_of_streams() {
    for sender_listens in [true, false] {
        for end in summaries(sender_listens, ["3", "8"]) {
            assert_eq!(end["streams"], 3, "{end}");
            let packets = end["stream_packets"].as_array().expect("of each");
            let counts: Vec<u64> = packets.iter().filter_map(Value::as_u64).collect();
            assert!(counts.len() == 3 && counts.iter().all(|count| *count > 20), "{end}");
            let all = end["packets_sent"].as_u64().zip(end["packets_received"].as_u64());
            assert_eq!(all.map(|(sent, came)| sent + came), Some(counts.iter().sum()), "{end}");
        }
    }
}

#[test]
fn a_copy_uses_the_streams_of_its_option_and_one_through_ssh() {
    let setting = Setting::new();
    // Buffers are larger here, and each goes over one.
    let content = noise(16_000_000);
    setting.put("near/there", &content);
    let copied = |way: &str, args: [&str; 2]| {
        let own = ["--fallback", way, "--streams", "3", "--rate", "80Mbit", "--json"];
        let text = setting.cp(&[&own[..], &args].concat()).exits(0).text();
        testenv::last_event(&text, "summary")["streams"].as_u64()
    };
    assert_eq!(copied("never", ["there", "host:"]), Some(3));
    assert_eq!(copied("never", ["host:there", "back"]), Some(3));
    assert!(fs::read(setting.env.path("near/back")).expect("it arrived") == content);
    assert_eq!(copied("always", ["host:there", "back"]), Some(1));
    assert!(fs::read(setting.env.path("near/back")).expect("it arrived") == content);
    let served = ["--streams", "2", "netblt://127.0.0.1/a", "netblt://127.0.0.1:1/b"];
    setting.cp(&served).exits(1).says("--streams means nothing for a copy between two servers");
    setting.cp(&[&served[..3], &["netblt://127.0.0.1/b"]].concat()).exits(1).says("--streams");
}

#[test]
fn a_large_file_goes_to_a_server_and_back_over_the_smaller_number_of_streams() {
    const TICKET: [&str; 2] = ["--ticket-file", "ticket"];
    let env = Env::new();
    env.make_directory("root");
    let content = env.make_file("large", 70_000_000);
    let own = ["serve", "--root", "root", "--port", "0", "--streams", "3", "--max-rate", "400Mbit"];
    let mut server = env.start(&[&own[..], &TICKET, &HERE].concat());
    server.event("listening", |_| true);
    for way in [["large", "netblt:///there"], ["netblt:///there", "back"]] {
        let call = [&["cp", "--json", "--streams", "8"], &TICKET[..], &way].concat();
        let end = testenv::last_event(&env.run(&call).exits(0).text(), "summary");
        assert_eq!(end["streams"], 3, "{end}");
        let packets = end["stream_packets"].as_array().expect("of each");
        assert!(packets.iter().all(|count| count.as_u64() > Some(20)), "{end}");
    }
    for name in ["root/there", "back"] {
        assert!(fs::read(env.path(name)).expect("it arrived") == content, "{name}");
    }
    server.signal(Signal::TERM);
    server.finish().exits(0);
}

/// The number of processors of this machine is unknown here. The test asks only that it arrives.
#[test]
fn auto_is_one_where_the_other_end_takes_one() {
    for streams in [["auto", "1"], ["1", "auto"]] {
        for end in summaries(true, streams) {
            assert_eq!(
                (&end["streams"], end.get("stream_packets")),
                (&Value::from(1), None),
                "{end}"
            );
        }
    }
    for end in summaries(false, ["auto", "auto"]) {
        assert!(end["streams"].as_u64() >= Some(1), "{end}");
    }
}

#[test]
fn an_invalid_number_of_streams_is_refused() {
    let env = Env::new();
    env.make_file("x", 1);
    for count in ["0", "33", "many", "-1", "1.5"] {
        let streams = format!("--streams={count}");
        env.run(&["send", "x", &streams]).exits(1).says("auto, or a number from 1 to 32");
    }
    let plain = ["send", "x", "--wire", "rfc998", "--to", "127.0.0.1:9", "--streams", "2"];
    env.run(&plain).exits(1).says("RFC 998 knows one connection");
}
