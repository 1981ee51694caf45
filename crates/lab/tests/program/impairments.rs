//! Each impairment of `netblt-lab emulate`, in one direction and in both, seen in its own counts:
//! of a relay, and between two hosts (root, `ip`, bash and /dev/net/tun, else skipped).

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::testenv::{self, Env, LIMIT, Running};
use rustix::process::Signal;
use serde_json::Value;

/// Datagrams each way.
const COUNT: u64 = 100;

/// What the relay counted of datagrams of 1,000 bytes each way: [`COUNT`] at once, and again until
/// `enough` was counted. `answers`: some of what goes up comes through.
fn counts(options: &[String], answers: bool, enough: impl Fn(&Value) -> bool) -> Value {
    let env = Env::new();
    let there = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let to = there.local_addr().expect("known").to_string();
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--stats", "50ms", "--to"];
    let words: Vec<String> = own.iter().map(|word| (*word).to_owned()).chain([to]).collect();
    let mut relay = env.start(&[&words[..], options].concat());
    let listen = relay.event("emulating", |_| true)["listen"].clone();
    let here = UdpSocket::bind("127.0.0.1:0").expect("bound");
    here.connect(listen.as_str().expect("an address")).expect("connected");
    there.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    // Where nothing comes up there is no address to answer to, and only the way up is counted.
    let mut client = None;
    let deadline = Instant::now() + LIMIT;
    while client.is_none() && answers {
        assert!(Instant::now() < deadline, "nothing comes up");
        here.send(&[0; 1000]).expect("sent");
        client = there.recv_from(&mut [0; 2000]).ok().map(|(_, client)| client);
    }
    loop {
        for _ in 0..COUNT {
            here.send(&[0; 1000]).expect("sent");
            if let Some(client) = client {
                there.send_to(&[0; 1000], client).expect("sent");
            }
        }
        let sample = relay.event("sample", |_| true);
        if enough(&sample) {
            break;
        }
        assert!(Instant::now() < deadline, "not counted: {sample}");
    }
    relay.signal(Signal::INT);
    relay.finish().exits(0).last_event("summary")
}

/// Impairments, and where each is counted.
const CASES: [(&[(&str, &str)], &str); 8] = [
    (&[("loss", "30%"), ("loss-burst", "3")], "lost_random"),
    (&[("duplicate", "50%")], "duplicated"),
    (&[("corrupt", "50%")], "corrupted"),
    (&[("reorder", "30%"), ("reorder-by", "2 packets"), ("delay", "1ms")], "reordered"),
    (&[("mtu", "600")], "lost_mtu"),
    (&[("police", "1Mbit, 5kB")], "lost_policer"),
    (&[("rate", "1Mbit"), ("queue", "unlimited"), ("codel", "1ms")], "lost_queue"),
    (&[("rate", "1Mbit"), ("queue", "3kB"), ("jitter", "1ms"), ("ecn-mark", "1kB")], "lost_queue"),
];

fn count(summary: &Value, way: &str, what: &str) -> u64 {
    summary[way][what].as_u64().expect(what)
}

#[test]
fn each_impairment_shows_in_its_direction() {
    thread::scope(|scope| {
        for (options, what) in &CASES {
            for prefix in ["--up-", "--down-", "--"] {
                scope.spawn(move || {
                    let words = options
                        .iter()
                        .flat_map(|(name, value)| [format!("{prefix}{name}"), (*value).to_owned()]);
                    // What is too large upwards finds no address to answer to.
                    let answered = prefix == "--down-" || *what != "lost_mtu";
                    let [ups, downs] = [prefix != "--down-", prefix != "--up-" && answered];
                    let enough = |sample: &Value| {
                        let counted = |way, is: bool| !is || count(sample, way, what) > 0;
                        let entered = |way| count(sample, way, "entered_packets") >= COUNT;
                        counted("up", ups)
                            && counted("down", downs)
                            && entered("up")
                            && (!answered || entered("down"))
                    };
                    let summary = counts(&words.collect::<Vec<_>>(), answered, enough);
                    let (up, down) = (count(&summary, "up", what), count(&summary, "down", what));
                    assert_eq!([up > 0, down > 0], [ups, downs], "{prefix}{what}: {summary}");
                });
            }
        }
    });
}

/// A kilobyte a hundred times each way, between two hosts with this link; what was counted.
fn between_hosts(options: &[String]) -> Value {
    let env = Env::new();
    // The hosts' own devices take all of them.
    let own = "emulate tun --json --stats 50ms --seed 7 --device-mtu 1500";
    let send = "for n in $(seq 100); do printf %01000d $n >/dev/udp/$TO/9; done";
    let script = format!(
        "TO=$NETBLT_IP_B ip netns exec $NETBLT_NS_A bash -c '{send}' 2>/dev/null & \
         TO=$NETBLT_IP_A ip netns exec $NETBLT_NS_B bash -c '{send}' 2>/dev/null; wait; sleep 0.2"
    );
    let files = ["--pcap", "pcap", "--trace", "trace"];
    let own = own.split(' ').chain(files).map(str::to_owned).collect::<Vec<_>>();
    let words = ["--", "sh", "-c", &script].map(str::to_owned);
    let mut command = env.command(&[&own[..], options, &words].concat());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let run = Running::new(command).finish().exits(0);
    let trace = std::fs::read_to_string(env.path("trace")).expect("a trace");
    assert!(trace.contains("\"event\":\"sample\"") && trace.contains("\"seed\":7"), "{trace}");
    let bytes = std::fs::metadata(env.path("pcap")).expect("a capture").len();
    // All of them, but for what the link could not take, as they came.
    assert!(bytes > 200_000, "{bytes} bytes captured");
    testenv::last_event(&run.stderr, "summary")
}

#[test]
fn each_impairment_shows_between_two_hosts() {
    if !testenv::able(&["ip", "bash"], &["/dev/net/tun"]) {
        return;
    }
    thread::scope(|scope| {
        for prefix in ["--up-", "--down-", "--"] {
            scope.spawn(move || {
                for (options, what) in &CASES {
                    let words = options
                        .iter()
                        .flat_map(|(name, value)| [format!("{prefix}{name}"), (*value).to_owned()]);
                    let summary = between_hosts(&words.collect::<Vec<_>>());
                    for (way, spared) in [("up", "--down-"), ("down", "--up-")] {
                        let counted = count(&summary, way, what);
                        assert_eq!(counted > 0, prefix != spared, "{prefix}{what}: {summary}");
                    }
                }
            });
        }
    });
    // Links that are so long that nothing has come by the end; and for who wants no words.
    let env = Env::new();
    for (link, words) in [
        (&["--scenario", "geo-satellite", "--delay", "60s"][..], true),
        (&["--rtt", "60s"], true),
        (&["--rtt", "60s", "--quiet"], false),
    ] {
        let send = "ip netns exec $NETBLT_NS_A bash -c 'echo >/dev/udp/198.18.0.2/9'";
        let args = [&["emulate", "tun"], link, &["--", "sh", "-c", send]].concat();
        let mut command = env.command(&args);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let run = Running::new(command).finish().exits(0);
        assert_eq!(run.stderr.contains(" still inside"), words, "{}", run.stderr);
        // On a busy machine it says that, too.
        let said = run.stderr.lines().filter(|line| !line.contains("too busy")).count();
        assert_eq!(said == 0, !words, "{}", run.stderr);
    }
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
