//! Each impairment of `netblt emulate relay`, in one direction and in both, seen in its own counts.

mod testenv;

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testenv::Env;

/// Datagrams each way.
const COUNT: u64 = 100;

/// What the relay counted of [`COUNT`] datagrams of 1,000 bytes each way.
fn counts(options: &[String]) -> Value {
    let env = Env::new();
    let there = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let to = there.local_addr().expect("known").to_string();
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--time", "700ms", "--to"];
    let words: Vec<String> = own.iter().map(|word| (*word).to_owned()).chain([to]).collect();
    let mut relay = env.start(&[&words[..], options].concat());
    let listen = relay.event("emulating", |_| true)["listen"].clone();
    let here = UdpSocket::bind("127.0.0.1:0").expect("bound");
    here.connect(listen.as_str().expect("an address")).expect("connected");
    here.send(&[0; 1000]).expect("sent");
    there.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    // Where nothing comes up there is nobody to answer, and only the way up is counted.
    let client = there.recv_from(&mut [0; 2000]).ok().map(|(_, client)| client);
    for _ in 1..COUNT {
        here.send(&[0; 1000]).expect("sent");
        if let Some(client) = client {
            there.send_to(&[0; 1000], client).expect("sent");
        }
        thread::sleep(Duration::from_micros(200));
    }
    let finished = relay.finish().exits(0);
    finished.last_event("summary")
}

#[test]
fn each_impairment_shows_in_its_direction() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("loss", "30%"), ("loss-burst", "3")], "lost_random"),
        (&[("duplicate", "50%")], "duplicated"),
        (&[("corrupt", "50%")], "corrupted"),
        (&[("reorder", "30%"), ("reorder-by", "2 packets"), ("delay", "1ms")], "reordered"),
        (&[("mtu", "600")], "lost_mtu"),
        (
            &[("rate", "1Mbit"), ("queue", "3kB"), ("jitter", "1ms"), ("ecn-mark", "1kB")],
            "lost_queue",
        ),
    ];
    let count = |summary: &Value, way: &str, what: &str| summary[way][what].as_u64().expect(what);
    thread::scope(|scope| {
        for (options, what) in cases {
            for prefix in ["--up-", "--down-", "--"] {
                scope.spawn(move || {
                    let words = options
                        .iter()
                        .flat_map(|(name, value)| [format!("{prefix}{name}"), (*value).to_owned()]);
                    let summary = counts(&words.collect::<Vec<_>>());
                    let (up, down) = (count(&summary, "up", what), count(&summary, "down", what));
                    // What is too large upwards finds nobody to answer.
                    let answered = count(&summary, "down", "entered_packets") > 0;
                    assert_eq!(up > 0, prefix != "--down-", "{prefix}{what}: {summary}");
                    assert_eq!(
                        down > 0,
                        prefix != "--up-" && answered,
                        "{prefix}{what}: {summary}"
                    );
                    assert!(answered || (prefix != "--down-" && *what == "lost_mtu"), "{summary}");
                });
            }
        }
    });
}

#[test]
fn impairments_have_bounds() {
    for (name, bad) in [
        ("loss", "101%"),
        ("loss-burst", "0"),
        ("duplicate", "x"),
        ("corrupt", "-1%"),
        ("reorder", "200%"),
        ("reorder-by", "some"),
        ("delay", "5"),
        ("jitter", "5"),
        ("mtu", "few"),
        ("rate", "fast"),
        ("queue", "10"),
        ("ecn-mark", "1"),
    ] {
        for prefix in ["--up-", "--down-", "--"] {
            let option = format!("{prefix}{name}={bad}");
            let args =
                ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", &option];
            Env::new().run(&args).exits(1).says(name);
        }
    }
}
