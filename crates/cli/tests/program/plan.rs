//! `netblt plan` as people and programs see it.

use crate::testenv::{Env, Finished};

fn plan(args: &str) -> Finished {
    let args: Vec<&str> = args.split_whitespace().collect();
    Env::new().run(&[&["plan"], &args[..]].concat())
}

#[test]
fn plans_read_well() {
    for (name, args) in [
        ("gigabit", "--rate 1Gbit --rtt 100ms --loss 0.1% --size 10GiB"),
        ("jumbo", "--rate 10Gbit --rtt 150ms --loss 1ppm --mtu 9000 --size 1TB --link vlan"),
        (
            "wideband",
            "--rate 1.0909Mbit --rtt 1.8s --wire rfc998 --raw-ip --link raw-ip --buffer-size 16KiB",
        ),
        ("idle", "--rate 10Mbit --rtt 1ms --host-time 400us -6"),
        ("narrow", "--rate 100Gbit --rtt 1s --buffer-size 64KiB"),
    ] {
        let text = plan(args).exits(0).text();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn plan_says_how_much_of_a_petabyte_one_process_moves() {
    let text = plan("--rate 100Gbit --rtt 100ms --size 1PB").exits(0).text();
    let line = text.lines().find(|line| line.starts_with("Process")).expect(&text);
    assert!(line.contains("one moves about 1,000,000 packets a second: 11."), "{line}");
    assert!(line.ends_with(" for 1.00 PB") && text.contains(" for 1.00 PB:"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // Where the path is the narrower of the two, it is not spoken of.
    let text = plan("--rate 10Gbit --rtt 100ms --size 1TiB").exits(0).text();
    assert!(!text.contains("Process") && text.contains(" for 1.00 TiB:"), "{text}");
}

/// What a plan tells a side to say, word by word.
fn advice(text: &str, side: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.trim_start().starts_with(side)).expect("advice");
    line.trim_start()[side.len()..].split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_commands_that_plan_advises_run_unchanged() {
    for (args, plain) in [
        ("--rate 1Gbit --rtt 100ms --loss 1%", false),
        ("--rate 10Gbit --rtt 1ms --mtu 9000 --link vlan", false),
        ("--rate 1Gbit --rtt 10ms --wire rfc998", true),
        ("--rate 10Mbit --rtt 100ms --wire rfc998 --buffer-size 14320B", true),
        ("--rate 1.0909Mbit --rtt 1.8s --wire rfc998 --link raw-ip --buffer-size 16KiB", true),
    ] {
        let text = plan(args).exits(0).text();
        let (both, sender) = (advice(&text, "both sides"), advice(&text, "sender"));
        let env = Env::new();
        let data = env.make_file("data", 20_001);
        env.make_directory("to");
        let (to, here) = match plain {
            true => ("to/data", vec!["--listen", "127.0.0.1:0"]),
            false => ("to", vec!["--bind", "127.0.0.1"]),
        };
        let mut receiver = vec!["receive", to, "--json"];
        receiver.extend(here.iter().copied().chain(both.iter().map(String::as_str)));
        let mut receiver = env.start(&receiver);
        let listening = receiver.event("listening", |_| true);
        let at = listening["ticket"].as_str().or(listening["address"].as_str()).expect("where to");
        let mut send = vec!["send", "data", "--to", at];
        send.extend(both.iter().chain(&sender).map(String::as_str));
        env.run(&send).exits(0).says("does not yield to other traffic");
        receiver.finish().exits(0);
        assert!(std::fs::read(env.path("to/data")).expect("the file") == data, "{args}");
    }
}

/// The words are those of send and receive; what raw IP needs beyond them is another test's.
#[test]
fn the_commands_that_plan_advises_for_raw_ip_are_accepted() {
    let text = plan("--rate 10Mbit --rtt 10ms --wire rfc998 --raw-ip").exits(0).text();
    let mut args = vec!["send".to_owned(), "missing".to_owned(), "--to=127.0.0.1".to_owned()];
    args.extend(advice(&text, "both sides"));
    args.extend(advice(&text, "sender"));
    assert!(args.iter().any(|arg| arg == "--raw-ip"), "{text}");
    // All there is to say against it is that the file does not exist.
    Env::new().run(&args).exits(11).says("missing");
}

#[test]
fn machines_get_every_field() {
    let data = plan("--rate 1Gbit --rtt 10ms --size 1GB --json").exits(0).last_event("plan");
    for (field, value) in [
        ("version", 1.0),
        ("rate_mbps", 1000.0),
        ("rtt_ms", 10.0),
        ("data_bytes", 1424.0),
        ("ip_bytes", 1500.0),
        ("link_bytes", 1538.0),
        ("ip_rate_mbps", 975.293),
        ("utilisation", 1.0),
        ("buffers", 4.0),
        ("size", 1e9),
        ("setup_seconds", 0.01),
    ] {
        assert_eq!(data[field].as_f64(), Some(value), "{field} in {data}");
    }
    assert_eq!((&data["link"], &data["wire"]), (&"ethernet".into(), &"sealed".into()));
    let kinds: Vec<_> =
        data["tcp"].as_array().expect("a list").iter().map(|s| &s["kind"]).collect();
    assert_eq!(kinds, ["reno", "cubic", "highspeed", "scalable"]);
    assert_eq!(data["tcp"][0]["limited_by"], "link");
    // Without a size there are no times, and the fields are there all the same.
    let data = plan("--rate 1Gbit --rtt 10ms --json").exits(0).last_event("plan");
    for field in ["size", "seconds", "transfer_seconds"] {
        assert_eq!(data.get(field), Some(&serde_json::Value::Null), "{field}");
    }
}

#[test]
fn plan_refuses_impossible_values() {
    for (args, says) in [
        ("--rtt 1ms", "--rate <RATE>"),
        ("--rate 1Gbit", "--rtt <TIME>"),
        ("--rate 1000 --rtt 1ms", "no unit"),
        ("--rate 0Mbit --rtt 1ms", "a rate is greater than zero"),
        ("--rate 1Gbit --rtt 1ms --loss 51%", "more than half"),
        ("--rate 1Gbit --rtt 1ms --mtu 100", "576"),
        ("--rate 1Gbit --rtt 1ms --link wet", "possible values: ethernet"),
        ("--rate 1Gbit --rtt 1ms --raw-ip", "--wire rfc998"),
        ("--rate 1Gbit --rtt 1ms --raw-ip -6 --wire rfc998", "cannot be used with"),
        ("--rate 1Gbit --rtt 1ms --buffer-size 3MiB", "power of two"),
    ] {
        plan(args).exits(1).says(says);
    }
    let error = plan("--rate 1Gbit --rtt 1ms --loss 51% --json").exits(1).last_event("error");
    assert_eq!(error["code"], 1);
}

/// The widest numbers that can be asked for.
#[test]
fn plan_does_not_overflow_at_extreme_values() {
    let most = "--rtt 200000d --host-time 200000d --loss 50% --size 18446744073709551615B";
    for rate in ["8bit", "18446744073709551615bit"] {
        plan(&format!("--rate {rate} {most}")).exits(0);
        plan(&format!("--rate {rate} {most} --json")).exits(0).last_event("plan");
        plan(&format!("--rate {rate} --rtt 0 --mtu 65535 --wire rfc998")).exits(0);
    }
}
