//! `--fec`: real transfers over an emulated network that loses packets, and what the ends tell
//! of it.

use std::fs;

use crate::testenv::busy::Load;
use crate::testenv::{Env, Running};
use serde_json::Value;

const HERE: [&str; 3] = ["--bind", "127.0.0.1", "--json"];
const NETWORK: [&str; 8] =
    ["--rate", "40Mbit", "--delay", "20ms", "--up-loss", "3%", "--seed", "7"];

fn free_port() -> u16 {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("bound");
    socket.local_addr().expect("known").port()
}

/// Sends `data` over the network; what the sender and the receiver say in the end.
fn transfer(env: &Env, more: &[&str]) -> (Value, Value) {
    let port = free_port().to_string();
    let to = format!("127.0.0.1:{port}");
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--to", &to];
    let mut relay = env.start(&[&own[..], &NETWORK].concat());
    let listen = relay.event("emulating", |_| true)["listen"].as_str().expect("text").to_owned();
    let _ = fs::remove_dir_all(env.path("to"));
    env.make_directory("to");
    let args = ["receive", "to", "--port", &port, "--advertise", &listen, "--trace", "came"];
    let mut receiver = env.start(&[&args[..], &HERE].concat());
    let ticket = receiver.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    // Loopback would have larger packets, and so fewer, from some moment on.
    let own =
        ["send", "data", "--to", &ticket, "--no-path-cache", "--mtu", "1500", "--trace", "sent"];
    let sender = Running::new(env.command(&[&own[..], &HERE, more].concat()));
    let sent = sender.finish().exits(0).last_event("summary");
    let came = receiver.finish().exits(0).last_event("summary");
    assert!(fs::read(env.path("data")).ok() == fs::read(env.path("to/data")).ok());
    (sent, came)
}

fn count(summary: &Value, field: &str) -> u64 {
    summary[field].as_u64().unwrap_or_else(|| panic!("{field} in {summary}"))
}

#[test]
fn lost_packets_are_repaired_and_both_ends_report_it() {
    let env = Env::new();
    env.make_file("data", 6_000_000);
    // A quarter of 4,214 packets; what of them has not left when its buffer is whole never does.
    // How many leave in time, and what is lost beside what the network loses, is a busy machine's
    // to say.
    let all = 1060;
    for (more, least, most) in
        [(&["--fec", "25%"][..], 700, all), (&["--fec", "auto"], 1, 400), (&[], 1, 400)]
    {
        let load = Load::begin();
        let (sent, came) = transfer(&env, more);
        let repairs = count(&sent, "repair_packets_sent");
        let loose = load.is_high() && (1..=all).contains(&repairs);
        assert!((least..=most).contains(&repairs) || loose, "{more:?}: {sent}");
        assert!(count(&came, "repair_packets_received") <= repairs, "{came}");
        if least > 1 {
            assert!(count(&came, "packets_repaired") > 0, "{came}");
            let trace = fs::read_to_string(env.path("came")).expect("a trace");
            assert!(trace.contains("\"event\":\"repair\""), "{more:?}");
            let report = env.run(&["report", "transfer", "came"]).exits(0).text();
            assert!(report.contains(" repaired\n"), "{report}");
        }
        let report = env.run(&["report", "transfer", "sent"]).exits(0).text();
        assert!(report.contains(" for repair\n"), "{report}");
    }
    let (sent, came) = transfer(&env, &["--fec", "never"]);
    assert_eq!((count(&sent, "repair_packets_sent"), count(&came, "packets_repaired")), (0, 0));
}

#[test]
fn an_impossible_repair_share_is_refused() {
    let env = Env::new();
    env.make_file("data", 10);
    let cases: [(&[&str], &str); 7] = [
        (&["--fec", "auto", "--wire", "rfc998"], "--fec is for --wire sealed"),
        (&["--fec", "5%", "--protocol", "udt"], "cannot be used with"),
        (&["--fec", "auto", "--policy", "background"], "which --policy background never does"),
        (&["--fec", "0%"], "from 1% to 25%"),
        (&["--fec", "26%"], "from 1% to 25%"),
        (&["--fec", "5"], "it is auto, never, or a share"),
        (&["--fec", "-5%"], ""),
    ];
    for (args, words) in cases {
        env.run(&[&["send", "data"], args].concat()).exits(1).says(words);
    }
}
