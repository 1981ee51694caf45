//! `netblt cp` from one server of files to another: the data go straight, within what each allows.
#![cfg(target_os = "linux")]

use std::fs;

use crate::testenv::{Env, Finished, Running, tree};
use rustix::process::Signal;

const MIB: usize = 1 << 20;

/// Two servers, `one` and `other`, each with a directory of its name and a key of the caller's.
struct Two {
    env: Env,
    servers: Vec<Running>,
    at: Vec<String>,
}

impl Two {
    fn start(options: [&str; 2]) -> Self {
        let env = Env::new();
        env.run(&["keygen", "me"]).exits(0);
        let me = fs::read_to_string(env.path("me.pub")).expect("the public half");
        let (mut servers, mut at) = (Vec::new(), Vec::new());
        for (name, options) in ["one", "other"].iter().zip(options) {
            let (key, keys) = (format!("{name}-key"), format!("{name}-keys"));
            env.run(&["keygen", &key]).exits(0);
            fs::write(env.path(&keys), format!("{options} {me}")).expect("written");
            env.make_directory(name);
            let mut server = env.start(&[
                "serve",
                "--json",
                "--bind",
                "127.0.0.1",
                "--port",
                "0",
                "--death-timer",
                "2s",
                "--root",
                name,
                "--key",
                &key,
                "--authorized-keys",
                &keys,
            ]);
            let listening = server.event("listening", |_| true);
            at.push(listening["addresses"][0].as_str().expect("an address").to_owned());
            servers.push(server);
        }
        Self { env, servers, at }
    }

    fn args(&self, options: &[&str], from: &str, to: &str) -> Vec<String> {
        let known = ["cp", "-i", "me", "--known-servers", "known"];
        let mut args: Vec<String> = known.iter().chain(options).map(|&arg| arg.into()).collect();
        args.push(format!("netblt://{}/{from}", self.at[0]));
        args.push(format!("netblt://{}/{to}", self.at[1]));
        args
    }

    fn cp(&self, options: &[&str], from: &str, to: &str) -> Finished {
        self.env.run(&self.args(options, from, to))
    }

    /// Stops both servers: the log of each.
    fn stop(self) -> Vec<String> {
        let stop = |server: Running| {
            server.signal(Signal::TERM);
            // What is not to come any more is not awaited.
            server.finish().exits(0).text()
        };
        self.servers.into_iter().map(stop).collect()
    }
}

#[test]
fn files_and_trees_go_straight_from_one_server_to_another() {
    let two = Two::start(["third-party,read-only", "write-only"]);
    let env = &two.env;
    let big = env.make_file("one/big", 3 * MIB + 7);
    env.make_directory("one/dir");
    env.make_directory("one/dir/sub");
    env.make_file("one/dir/sub/f", 1000);
    env.make_file("one/dir/g", 0);
    env.make_directory("other/in");

    let copied = two.cp(&["--json"], "big", "in/").exits(0).last_event("summary");
    assert_eq!((&copied["verified"], &copied["bytes"]), (&true.into(), &big.len().into()));
    // The two have agreed on a digest, and the caller does not know it.
    assert_eq!(copied["digest"], serde_json::Value::Null);
    assert_eq!(fs::read(env.path("other/in/big")).expect("the file"), big);
    two.cp(&[], "big", "renamed").exits(0);
    assert_eq!(fs::read(env.path("other/renamed")).expect("the file"), big);
    let copied = two.cp(&["--json", "-r"], "dir", "in").exits(0).last_event("summary");
    assert_eq!(copied["files"], 2);
    assert_eq!(tree(&env.path("one/dir")), tree(&env.path("other/in/dir")));

    two.cp(&[], "dir", "in").exits(23).says("/dir: ").says("-r copies directories");
    two.cp(&[], "none", "in").exits(23).says("no such file");
    // What matches, and what is in a directory.
    two.cp(&[], "dir/*", "in").exits(23).says("-r copies directories");
    assert_eq!(env.names("other/in"), ["big", "dir", "g"]);
    env.make_directory("other/apart");
    two.cp(&["-r"], "dir/.", "apart").exits(0);
    assert_eq!(tree(&env.path("one/dir")), tree(&env.path("other/apart")));
    two.cp(&[], "big", "no/such").exits(11).says("/no/such: ");
    two.cp(&["--rate", "1Mbit"], "big", "in").exits(1).says("max-rate=");
    let log = two.stop();
    assert!(log[0].contains(r#""bytes":3145735"#) && log[0].contains(r#""request":"send""#));
    assert!(log[1].contains(r#""request":"receive""#), "{}", log[1]);
}

#[test]
fn each_side_allows_what_the_callers_key_may_there() {
    // A server calls no other server for a key without the option.
    let two = Two::start(["read-only", ""]);
    two.env.make_file("one/f", 10);
    two.cp(&[], "f", "f").exits(11).says("/f: ").says("the option third-party");
    assert!(!two.env.path("other/f").exists());
    two.stop();

    // What may not be written there is not, and what may not be read here.
    let two = Two::start(["third-party", "third-party,read-only"]);
    two.env.make_file("one/f", 10);
    two.cp(&[], "f", "f").exits(11).says("no write permission");
    two.stop();
    let two = Two::start(["third-party,write-only", ""]);
    two.env.make_file("one/f", 10);
    two.cp(&[], "f", "f").exits(11).says("no read permission");
    two.stop();

    // Neither root is left.
    let two = Two::start(["third-party,root=in", "root=in"]);
    for name in ["one/in", "other/in"] {
        two.env.make_directory(name);
    }
    two.env.make_file("one/secret", 10);
    let content = two.env.make_file("one/in/f", 10);
    for path in ["..%2Fsecret", "../secret", "/../../secret"] {
        assert_ne!(two.cp(&[], path, "x").code, Some(0), "{path}");
    }
    assert_ne!(two.cp(&[], "f", "../x").code, Some(0));
    std::os::unix::fs::symlink("../secret", two.env.path("one/in/link")).expect("a link");
    std::os::unix::fs::symlink("..", two.env.path("other/in/up")).expect("a link");
    assert_ne!(two.cp(&[], "link", "x").code, Some(0));
    assert_ne!(two.cp(&[], "f", "up/x").code, Some(0));
    two.cp(&[], "f", "x").exits(0);
    assert_eq!(fs::read(two.env.path("other/in/x")).expect("the file"), content);
    assert_eq!(two.env.names("other"), ["in"]);
    two.stop();
}

#[test]
fn both_servers_stop_when_the_caller_does_and_the_data_are_resumed() {
    for signal in [Signal::INT, Signal::KILL] {
        let two = Two::start(["third-party,max-rate=100Mbit", ""]);
        let content = two.env.make_file("one/big", 64 * MIB);
        let mut caller = two.env.start(&two.args(&["--json", "--progress=100ms"], "big", "big"));
        caller.event("progress", |data| data["bytes"].as_u64() > Some(10_000_000));
        caller.signal(signal);
        caller.finish();
        // Stopped servers serve to the end: they have none to serve any more, soon.
        let (env, servers, at) = (two.env, two.servers, two.at);
        for server in &servers {
            server.signal(Signal::TERM);
        }
        for (server, request) in servers.into_iter().zip(["send", "receive"]) {
            let log = server.finish().exits(0).text();
            let line = log.lines().find(|line| line.contains(&format!("\"{request}\"")));
            let line = line.expect("it was asked for");
            assert!(line.contains(r#""verdict":"failed""#), "{line}");
        }
        assert!(!env.path("other/big").exists());
        let left = env.names("other");
        assert!(left.iter().all(|name| name.starts_with(".netblt")), "{left:?}");
        assert_eq!(at.len(), 2);
        drop((env, content));
    }
}
