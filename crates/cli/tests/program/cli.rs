//! The command line without any transfer: help, mistakes and their exit codes, pages.

use crate::testenv::programs::PROGRAMS;
use crate::testenv::{Env, Running};
use netblt::Ticket;
use netblt_proto::config::Secret;
use serde_json::Value;

fn ticket() -> String {
    let addresses = vec!["127.0.0.1:9".to_owned()];
    Ticket { addresses, secret: Secret([7; 32]) }.to_string()
}

/// The part of a ticket that no other user may see.
fn secret(ticket: &str) -> &str {
    &ticket["netblt1:".len()..ticket.find('@').expect("a ticket")]
}

/// Lines of a screen: `-h` shows no more, and `--help` shows all options.
const SCREEN: usize = 40;

#[test]
fn help_reads_well() {
    let env = Env::new();
    for (program, commands) in PROGRAMS {
        for name in commands {
            for (option, length) in [("-h", "short"), ("--help", "long")] {
                let args: Vec<&str> = name.split_whitespace().chain([option]).collect();
                let help = env.run_program(program, &args).exits(0).text();
                let trimmed: Vec<&str> = help.lines().map(str::trim_end).collect();
                assert!(trimmed.iter().all(|line| line.chars().count() <= 100), "{help}");
                let lines = trimmed.len();
                assert!(option == "--help" || lines <= SCREEN, "{name} {option}: {lines} lines");
                let name = format!("{program} {name}").trim_end().replace(' ', "-");
                insta::assert_snapshot!(format!("{name}-{length}"), trimmed.join("\n"));
            }
        }
    }
}

#[test]
fn the_reference_has_the_exit_codes() {
    let help = Env::new().run(&["--help"]).exits(0).text();
    let (_, table) = help.split_once("Exit codes:\n").expect("a table");
    let page = include_str!("../../../../docs/reference/exit-codes.md");
    assert_eq!(table.lines().count(), 15, "{table}");
    for line in table.lines() {
        let (code, meaning) = line.trim().split_once("  ").expect("two columns");
        assert!(page.contains(&format!("| {code} | {meaning} |")), "exit-codes.md lacks {line}");
    }
}

#[test]
fn the_version_is_printed() {
    for (program, _) in PROGRAMS {
        let version = Env::new().run_program(program, &["--version"]).exits(0).text();
        assert_eq!(version, format!("{program} {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn wrong_arguments_exit_with_1_and_say_what_is_wrong() {
    let ticket = ticket();
    let two_tickets = "two tickets";
    for (args, says) in [
        (vec![], "Usage: netblt <COMMAND>"),
        (vec!["fly"], "unrecognized subcommand"),
        (vec!["send"], "<PATH>"),
        (vec!["send", "x", "--policy", "fixed"], "--rate <RATE>"),
        (
            vec!["send", "x", "--policy", "rude"],
            "[possible values: fair, background, aggressive, cubic, fixed]",
        ),
        (vec!["send", "x", "-4", "-6"], "cannot be used with"),
        (vec!["send", "-", "x"], "sent alone"),
        (vec!["send", "-", "--ticket-stdin"], "NETBLT_TICKET"),
        (vec!["send", "x", "--to", &ticket, "--ticket-stdin"], "choose one"),
        (vec!["send", "x", "--to", "host"], "a ticket begins with \"netblt1:\""),
        (vec!["send", "x", "--to", "host:4000"], "an address is for --wire rfc998"),
        (vec!["send", "x", "--advertise", "a b"], "--advertise"),
        (vec!["send", "x", "--advertise", "host:0"], "port"),
        (vec!["send", "x", "--bind", "host"], "invalid IP address"),
        (vec!["receive", "here", "there"], "neither argument is a ticket"),
        (vec!["receive", &ticket, &ticket], two_tickets),
        (vec!["receive", "--buffers", "0"], "--buffers"),
        (vec!["receive", "--buffers", "5000"], "--buffers"),
        (vec!["receive", "--mtu", "100"], "--mtu"),
        (vec!["receive", "--overwrite", "maybe"], "[possible values: never, always]"),
        (vec!["demo", "--loss", "80%"], "50%"),
        (vec!["completions", "cmd"], "possible values"),
    ] {
        Env::new().run(&args).exits(1).says(says);
    }
}

#[test]
fn numbers_need_units_and_sense() {
    for (option, value, says) in [
        ("--rate", "100", "Mbit"),
        ("--rate", "fast", "fast"),
        ("--rate", "0Mbit", "greater than zero"),
        ("--rate", "-5Mbit", "-5Mbit"),
        ("--buffer-size", "1048576", "64KiB"),
        ("--buffer-size", "3MiB", "power of two"),
        ("--buffer-size", "1GiB", "64MiB"),
        ("--burst-interval", "5", "has no unit"),
        ("--death-timer", "300", "300"),
        ("--death-timer", "10ms", "1s"),
        ("--death-timer", "50d", "49 days"),
    ] {
        let argument = format!("{option}={value}");
        Env::new().run(&["send", "x", &argument]).exits(1).says(says);
    }
}

#[test]
fn a_damaged_ticket_is_named_as_such_and_never_repeated() {
    let whole = ticket();
    let cut = &whole[..whole.len() - 3];
    let wrapped = whole.replace('@', "\n@");
    let mistyped = whole.replace("BwcHBwcH", "BwcHbwcH");
    let newer = whole.replace("netblt1:", "netblt2:");
    for (bad, says) in [
        (cut, "cut short"),
        (&wrapped, "one line"),
        (&mistyped, "copy it again"),
        (&newer, "version"),
    ] {
        let env = Env::new();
        let runs = [
            env.run(&["receive", bad]),
            env.run(&["send", "x", "--to", bad]),
            Running::new({
                let mut command = env.command(&["receive"]);
                command.env("NETBLT_TICKET", bad);
                command
            })
            .finish(),
        ];
        for run in runs {
            let run = run.exits(1).says(says).says("not a netblt ticket");
            for piece in ["BwcH", "AHBw"] {
                assert!(!run.stderr.contains(piece), "the secret is shown: {}", run.stderr);
            }
        }
    }
    assert!(secret(&whole).starts_with("BwcH"));
}

#[test]
fn standard_input_may_hold_the_ticket() {
    let env = Env::new();
    let args = ["receive", "--ticket-stdin"];
    env.run(&args).exits(1).says("it is empty");
    env.run_with_input(&args, b"netblt1:abc\n".to_vec()).exits(1).says("cut short");
    env.run_with_input(&args, vec![b'x'; 100_000]).exits(1).says("begins with");
    env.run_with_input(&args, vec![0xff; 10]).exits(1).says("no ticket on standard input");
}

#[test]
fn wrong_arguments_are_reported_in_json() {
    let run = Env::new().run(&["receive", "netblt1:abc", "--json"]).exits(1);
    assert_eq!(run.stderr, "");
    let error = run.last_event("error");
    assert_eq!(error["code"], 1);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("cut short")));
    // Standard output belongs to the data.
    let run = Env::new().run(&["receive", "netblt1:abc", "-", "--json"]).exits(1);
    assert_eq!(run.text(), "");
    let line: Value = serde_json::from_str(&run.stderr).expect("one line of JSON");
    assert_eq!(line["event"], "error");
    // The same of what is wrong before any command looks at it.
    for (args, says) in [
        (&["send", "--json"][..], "required arguments were not provided: <PATH>"),
        (&["send", "x", "--json", "--nonsuch"], "unexpected argument '--nonsuch'"),
        (&["cp", "--json", "a"], "required arguments"),
        (&["cp", "--json", "a", "b"], "both sides are on this machine"),
        (&["receive", "--json", "--buffers", "0"], "a whole number from 1 to 4096 is wanted"),
        (&["receive", "--json", "--wait", "1\u{7}"], "has no unit"),
        (&["plan", "--json"], "required"),
        (&["bench", "--json", "-P", "x"], "--parallel"),
        (&["clean", "--json", "none"], "none"),
    ] {
        let run = Env::new().run(args);
        assert_eq!(run.stderr, "", "{args:?}");
        let error = run.last_event("error");
        assert_eq!(error["code"], run.code.expect("a code"), "{args:?}");
        let message = error["message"].as_str().expect("a message");
        let plain = message.chars().all(|c| !c.is_control()) && !message.contains("Usage");
        assert!(message.contains(says) && plain, "{args:?}: {message}");
    }
    let run = Env::new().run(&["receive", "-", "--json", "--buffers", "0"]).exits(1);
    assert_eq!((run.text(), run.stderr.starts_with("{\"event\":\"error\"")), (String::new(), true));
    // Behind `--` it is a name.
    let run = Env::new().run(&["send", "--nonsuch", "--", "--json"]).exits(1);
    assert_eq!(run.text(), "");
}

#[test]
fn an_active_end_refuses_the_option_for_the_wait_for_a_peer() {
    let ticket = ticket();
    let env = Env::new();
    env.make_file("x", 1);
    let says = "--wait bounds listening";
    env.run(&["receive", &ticket, "--wait", "1s"]).exits(1).says(says);
    env.run(&["receive", &ticket, "--list", "--wait", "1s"]).exits(1).says(says);
    env.run(&["send", "x", "--to", &ticket, "--wait", "1s"]).exits(1).says(says);
    let call = ["--wire", "rfc998", "--from", "127.0.0.1:9", "--wait", "1s"];
    env.run(&[&["receive", "y"][..], &call].concat()).exits(1).says(says);
}

#[test]
fn no_argument_makes_it_panic() {
    let long = "x".repeat(100_000);
    for odd in ["", "\u{1b}[2J", "netblt1:", "netblt99999999999:@/", &long, "é@/é", "--", "--to="]
    {
        for command in ["send", "receive", "demo", "man", "completions", ""] {
            let env = Env::new();
            let run = match command {
                // By themselves they would wait for the other side, or run for long.
                "send" | "receive" | "demo" => env.run(&[command, "--size", odd]),
                _ => env.run(&[command, odd]),
            };
            // Nearly any text is the name of a directory to `man`.
            run.exits_with_one_of(&[0, 1, 11]);
        }
    }
}
