//! `--protocol`: real transfers by other protocols' rules, and how their traces differ.

use std::fs;

use crate::testenv::Env;

const NAMES: [&str; 11] = [
    "sabul",
    "tsunami",
    "fobs",
    "rbudp",
    "udt",
    "reno",
    "reno-delayed",
    "cubic",
    "highspeed",
    "scalable",
    "bbr",
];

#[test]
fn a_file_comes_over_by_any_of_them_and_the_trace_says_which() {
    let env = Env::new();
    env.make_file("data", 2_000_000);
    for name in NAMES {
        let place = format!("by-{name}");
        env.make_directory(&place);
        let mut receiver = env.start(&["receive", &place, "--bind", "127.0.0.1"]);
        let ticket = receiver.line();
        let trace = format!("{name}.jsonl");
        let args = ["send", "data", "--bind", "127.0.0.1", "--to", &ticket, "--trace", &trace];
        env.run(&[&args[..], &["--protocol", name, "--rate", "400Mbit"]].concat()).exits(0);
        receiver.finish().exits(0);
        let (sent, came) = (env.path("data"), env.path(&place).join("data"));
        assert!(fs::read(sent).ok() == fs::read(came).ok(), "{name}");
        let trace = fs::read_to_string(env.path(&trace)).expect("a trace");
        let phase = format!("\"phase\":\"{}", name.replace('-', "_"));
        assert!(trace.contains(&phase), "{phase}");
    }
}

#[test]
fn an_impossible_protocol_is_refused() {
    let env = Env::new();
    env.make_file("data", 10);
    let cases: [(&[&str], &str); 4] = [
        (&["--protocol", "rbudp"], "--protocol rbudp needs a rate, which it keeps"),
        (&["--protocol", "sabul", "--wire", "rfc998"], "--protocol is for --wire sealed"),
        (&["--protocol", "sabul", "--policy", "fixed", "--rate", "1Mbit"], "cannot be used with"),
        (&["--protocol", "tcp"], "invalid value 'tcp'"),
    ];
    for (args, words) in cases {
        env.run(&[&["send", "data"], args].concat()).exits(1).says(words);
    }
}

#[test]
fn bench_measures_by_them() {
    let args = ["bench", "-n", "2M", "-i", "0", "--protocol", "udt", "-b", "400M"];
    let text = Env::new().run(&args).exits(0).text();
    assert!(text.lines().count() == 2 && text.contains("NBUFS"), "{text}");
}
