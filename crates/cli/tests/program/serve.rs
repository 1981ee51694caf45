//! `netblt serve` and its clients, as programs: what they do, say and exit with, and what becomes
//! of those that are killed.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::testenv::{self, Env, Finished, Running, installed, skip, tree};
use rustix::process::Signal;
use serde_json::Value;

const MIB: usize = 1 << 20;
const SERVE: [&str; 8] =
    ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
const TICKET: [&str; 2] = ["--ticket-file", "ticket"];

/// A server of `root`, whose ticket is in `ticket`, and that listens.
fn server(env: &Env, options: &[&str]) -> Running {
    fs::create_dir_all(env.path("root")).expect("a directory");
    let mut server = env.start(&[&SERVE[..], &TICKET, options].concat());
    server.event("listening", |_| true);
    server
}

/// Runs a client's command.
fn ask(env: &Env, args: &[&str]) -> Finished {
    env.run(&[args, &TICKET[..]].concat())
}

/// Stops a server that has nothing to do; its log.
fn stopped(server: Running) -> Finished {
    server.signal(Signal::TERM);
    server.finish().exits(0)
}

fn requests(server: &Finished) -> Vec<Value> {
    let text = server.text();
    let events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let events: Vec<Value> = events.collect();
    let requests = events.into_iter().filter(|event| event["event"] == "request");
    requests.map(|event| event["data"].clone()).collect()
}

#[test]
fn every_command_works_with_a_server() {
    let env = Env::new();
    let server = server(&env, &["--audit", "audit", "--max-files", "1000", "--max-size", "1GB"]);
    let mode = fs::metadata(env.path("ticket")).expect("the ticket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let big = env.make_file("big", 3 * MIB);
    env.make_directory("dir");
    env.make_directory("dir/sub");
    env.make_file("dir/sub/a", 1000);
    env.make_file("dir/.hidden", 10);

    let made = ask(&env, &["mkdir", "-p", "-v", "netblt:///x/y"]).exits(0).text();
    assert_eq!(made, "made x/y (2 in all)\n");
    ask(&env, &["mkdir", "netblt:///x"]).exits(11).says("it exists");
    ask(&env, &["cp", "big", "netblt:///x/"]).exits(0);
    ask(&env, &["cp", "-r", "-p", "dir", "netblt:///x/copy"]).exits(0);
    ask(&env, &["cp", "dir", "netblt:///x/copy"]).exits(23).says("-r");
    assert_eq!(tree(&env.path("root/x/copy")), tree(&env.path("dir")));
    assert_eq!(fs::read(env.path("root/x/big")).expect("the file"), big);

    let listed = ask(&env, &["ls", "netblt:///x"]).exits(0);
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), ["big", "copy/", "y/"]);
    let listed = ask(&env, &["ls", "netblt:///x/copy"]).exits(0);
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), ["sub/"]);
    let listed = ask(&env, &["ls", "-a", "netblt:///x/copy"]).exits(0);
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), [".hidden", "sub/"]);
    fs::set_permissions(env.path("root/x/big"), Permissions::from_mode(0o640)).expect("set");
    let long = ask(&env, &["ls", "-l", "netblt:///x/big"]).exits(0).text();
    let words: Vec<&str> = long.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[4]), ("-rw-r-----", "3145728", "big"));
    let stat = ask(&env, &["stat", "--json", "netblt:///x/big"]).exits(0).last_event("entry");
    assert_eq!((&stat["kind"], &stat["bytes"]), (&"file".into(), &(3 * MIB).into()));
    assert_eq!(stat["mode"], "0640");
    assert!(ask(&env, &["stat", "netblt:///"]).exits(0).text().starts_with("drwx"));

    env.make_directory("back");
    ask(&env, &["cp", "-r", "-p", "netblt:///x/copy", "netblt:///x/big", "back"]).exits(0);
    assert_eq!(tree(&env.path("back/copy")), tree(&env.path("dir")));
    assert_eq!(fs::read(env.path("back/big")).expect("the file"), big);
    ask(&env, &["cp", "netblt:///x/copy", "back"]).exits(23).says("-r copies directories");
    ask(&env, &["cp", "netblt:///none", "back"]).exits(23).says("no such file");
    let got = ask(&env, &["cp", "--json", "netblt:///x/big", "back/renamed"]).exits(0);
    assert_eq!(got.last_event("summary")["bytes"], 3 * MIB);

    ask(&env, &["rm", "netblt:///x/copy"]).exits(11).says("it is a directory");
    ask(&env, &["rm", "-d", "netblt:///x/y"]).exits(0);
    let removed = ask(&env, &["rm", "-r", "-v", "netblt:///x"]).exits(0).text();
    assert_eq!(removed, "removed x (6 in all)\n");
    ask(&env, &["rm", "netblt:///x"]).exits(11).says("no such file");
    ask(&env, &["rm", "-f", "netblt:///x"]).exits(0);
    assert_eq!(env.names("root"), [""; 0]);

    let log = requests(&stopped(server));
    let audit = fs::read_to_string(env.path("audit")).expect("the audit log");
    let audit: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(audit, log);
    let put = audit.iter().find(|line| line["request"] == "receive").expect("a line");
    assert_eq!((&put["path"], &put["bytes"]), (&"x".into(), &(3 * MIB).into()));
    assert_eq!(put["verdict"], "done");
    let denied = audit.iter().find(|line| line["reason"] == "is-a-directory").expect("a line");
    assert_eq!(denied["verdict"], "denied");
}

#[test]
fn files_are_renamed_and_copied_on_a_server() {
    let env = Env::new();
    let server = server(&env, &[]);
    env.make_directory("root/d");
    let big = env.make_file("root/big", 3 * MIB);
    env.make_file("root/d/a", 1000);
    let old = fs::read(env.path("root/d/a")).expect("the file");
    fs::set_permissions(env.path("root/d/a"), Permissions::from_mode(0o741)).expect("set");

    let said = ask(&env, &["mv", "-v", "netblt:///big", "netblt:///d/"]).exits(0).text();
    assert_eq!(said, "moved big to d/big\n");
    ask(&env, &["mv", "-n", "netblt:///d/big", "netblt:///d/a"]).exits(11).says("exists");
    let said = ask(&env, &["cp", "-v", "netblt:///d/big", "netblt:///copy"]).exits(0).text();
    assert_eq!(said, "copied d/big to copy\n");
    ask(&env, &["cp", "netblt:///d", "netblt:///e"]).exits(23).says("-r copies directories");
    let said = ask(&env, &["cp", "-r", "-p", "--json", "netblt:///d", "netblt:///e"]).exits(0);
    assert_eq!(said.last_event("copied")["count"], 3);
    assert_eq!(tree(&env.path("root/e")), tree(&env.path("root/d")));
    ask(&env, &["cp", "-r", "netblt:///d", "netblt:///e"]).exits(0);
    assert_eq!(env.names("root/e"), ["a", "big", "d"]);
    ask(&env, &["mv", "netblt:///copy", "netblt:///d/a"]).exits(0);
    assert_eq!(fs::read(env.path("root/d/a")).expect("the file"), big);
    let two = ["mv", "netblt:///d/a", "netblt:///d/big"];
    ask(&env, &[&two[..], &["netblt:///none"]].concat()).exits(11).says("not a directory");
    ask(&env, &["mv", "netblt:///none", "netblt:///d/big", "netblt:///e/d/"])
        .exits(11)
        .says("no such file");
    assert_eq!(env.names("root/d"), ["a"]);
    assert_eq!(fs::read(env.path("root/e/d/big")).expect("the file"), big);
    assert_eq!(fs::read(env.path("root/e/d/a")).expect("the file"), old);
    assert_eq!(env.names("root"), ["d", "e"]);
    let log = requests(&stopped(server));
    let moved = log.iter().find(|line| line["request"] == "rename").expect("a line");
    assert_eq!((&moved["path"], &moved["verdict"]), (&"big".into(), &"done".into()));
    assert_eq!(moved["target"], "d/big");
    let copied = log.iter().find(|line| line["request"] == "copy").expect("a line");
    assert_eq!((&copied["path"], &copied["target"]), (&"d/big".into(), &"copy".into()));
}

/// Several files, a directory, a link and a name that is no text, in both directions.
#[test]
fn the_audit_log_names_what_came_and_what_was_sent() {
    let env = Env::new();
    let server = server(&env, &["--audit", "audit"]);
    ["a", "b"].iter().for_each(|name| _ = env.make_file(name, 10));
    env.make_directory("d");
    let odd = OsStr::from_bytes(b"z\xff");
    fs::write(env.path("d").join(odd), [7; 20]).expect("written");
    std::os::unix::fs::symlink("x", env.path("d/link")).expect("made");
    env.make_directory("root/in");
    ask(&env, &["cp", "-r", "a", "b", "d", "netblt:///in"]).exits(0);
    env.make_directory("back");
    ask(&env, &["cp", "-r", "netblt:///in", "back"]).exits(0);
    // More than a line has room for.
    env.make_directory("root/many");
    (0..3000).for_each(|n| fs::write(env.path(&format!("root/many/{n:04}")), "").expect("written"));
    ask(&env, &["cp", "-r", "netblt:///many", "back"]).exits(0);
    stopped(server);
    let audit = fs::read_to_string(env.path("audit")).expect("the audit log");
    let audit: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |request: &str, path: &str| {
        let is_it = |line: &&Value| line["request"] == request && line["path"] == path;
        audit.iter().find(is_it).unwrap_or_else(|| panic!("no {request} of {path}: {audit:?}"))
    };
    let names = |line: &Value| {
        let all = line["names"].as_array().expect("a list").clone();
        let mut all: Vec<String> = all
            .iter()
            .map(|one| one.get("name_hex").unwrap_or(&one["name"]).as_str().expect("text").into())
            .collect();
        all.sort();
        all
    };
    let hex = |name: &[u8]| name.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let came = of("receive", "in");
    assert_eq!(names(came), [&hex(b"d/z\xff"), "a", "b", "d", "d/link"]);
    assert_eq!(came["names_omitted"], 0);
    let sent = of("get", "in");
    let odd = hex(b"in/d/z\xff");
    assert_eq!(names(sent), [&odd, "in", "in/a", "in/b", "in/d", "in/d/link"]);
    let many = of("get", "many");
    let (listed, omitted) = (names(many).len() as u64, many["names_omitted"].as_u64());
    assert_eq!(listed + omitted.expect("a number"), 3001);
    assert!((1000..2000).contains(&listed), "{listed}");
    let put = of("put", "in");
    assert!(names(put).is_empty(), "what is announced has not come: {put}");
}

/// `/dev/full` takes no byte, as a disk that is full.
#[test]
fn an_audit_log_that_cannot_be_written_is_reported() {
    let env = Env::new();
    let server = server(&env, &["--audit", "/dev/full"]);
    ask(&env, &["ls", "netblt:///"]).exits(0);
    ask(&env, &["mkdir", "netblt:///d"]).exits(0);
    server.signal(Signal::TERM);
    let ended = server.finish().exits(11);
    let ended = ended.says("the audit log cannot be written: No space left on device");
    let why = ended.last_event("error")["message"].to_string();
    assert!(why.contains("the audit log lacks 2 requests"), "{why}");
}

#[test]
fn a_dry_run_lists_what_would_be_copied_to_and_from_a_server() {
    let env = Env::new();
    let server = server(&env, &[]);
    env.make_directory("root/d/e");
    env.make_file("root/d/a", 10);
    env.make_file("root/d/e/b", 20);
    env.make_directory("up");
    env.make_file("up/x", 30);
    let lists = |args: &[&str], lines: &str| {
        assert_eq!(ask(&env, args).exits(0).text(), lines, "{args:?}");
    };
    lists(&["cp", "-n", "-r", "netblt:///d", "."], "d/\nd/a\t10\nd/e/\nd/e/b\t20\n");
    lists(&["cp", "--dry-run", "netblt:///d/a", "other"], "a\t10\n");
    lists(&["cp", "-n", "--recursive", "up", "netblt:///there"], "up/\nup/x\t30\n");
    let json = ask(&env, &["cp", "-n", "--json", "netblt:///d/a", "."]).exits(0);
    assert_eq!(json.last_event("offered")["bytes"], 10);
    ask(&env, &["cp", "-n", "netblt:///d", "."]).exits(23).says("there is nothing to copy");
    let some = ask(&env, &["cp", "-n", "netblt:///none", "netblt:///d/a", "."]).exits(23);
    assert_eq!(some.says("skipped netblt:///none: ").text(), "a\t10\n");
    assert_eq!(env.names("root"), ["d"]);
    assert!(!env.path("d").exists() && !env.path("a").exists());
    // The long names do what the letters do.
    let long = ["cp", "--recursive", "--preserve", "--verbose", "up", "netblt:///copy"];
    ask(&env, &long).exits(0).says("limit  ");
    assert_eq!(tree(&env.path("root/copy")), tree(&env.path("up")));
    // What the server has against a path names it.
    env.make_file("f", 1);
    env.make_file("g", 1);
    ask(&env, &["cp", "f", "g", "netblt:///nodir"]).exits(11).says("netblt:///nodir: ");
    stopped(server);
}

#[test]
fn wrong_arguments_are_named() {
    let env = Env::new();
    let server = server(&env, &["--read-only", "--max-sessions", "3", "--memory", "64MiB"]);
    env.make_file("f", 10);
    env.make_file("root/f", 10);
    ask(&env, &["cp", "f", "netblt:///f"]).exits(11).says("no write permission");
    ask(&env, &["rm", "netblt:///f"]).exits(11).says("no write permission");
    env.run(&["ls", "netblt:///"]).exits(1).says("NETBLT_TICKET");
    ask(&env, &["ls", "scp://host/"]).exits(1).says("netblt://HOST/PATH");
    let above = ask(&env, &["ls", "netblt:///../x"]).exits(1).says("'..'");
    above.says("\"../x\" is no path on a server");
    ask(&env, &["cp", "-n", "netblt:///f", "netblt:///g"]).exits(1).says("--dry-run");
    ask(&env, &["cp", "netblt:///f", "netblt:///g"]).exits(11).says("no write permission");
    ask(&env, &["mv", "netblt:///f", "netblt:///g"]).exits(11).says("no write permission");
    ask(&env, &["mv", "netblt:///f", "netblt://other/g"]).exits(1).says("another server");
    ask(&env, &["cp", "--atomic", "netblt:///f", "netblt:///g"]).exits(1).says("--atomic");
    ask(&env, &["cp", "netblt:///f", "host:g"]).exits(1).says("this machine");
    let json = ask(&env, &["ls", "--json", "netblt:///none"]).exits(11).last_event("error");
    assert_eq!(json["code"], 11);
    // Another server's ticket opens nothing.
    let ticket = fs::read_to_string(env.path("ticket")).expect("the ticket");
    let ticket: netblt::Ticket = ticket.parse().expect("a ticket");
    let other = netblt::Ticket { secret: netblt_proto::config::Secret([7; 32]), ..ticket };
    let asked = env.command(&["ls", "netblt:///", "--death-timer", "2s"]);
    let mut asked = asked;
    asked.env("NETBLT_TICKET", other.to_string());
    Running::new(asked).finish().exits(5);
    // A ticket that others can read is none.
    fs::set_permissions(env.path("ticket"), Permissions::from_mode(0o644)).expect("set");
    ask(&env, &["ls", "-4", "netblt:///"]).exits(1).says("chmod 600");
    fs::set_permissions(env.path("ticket"), Permissions::from_mode(0o600)).expect("set");
    ask(&env, &["ls", "-4", "netblt:///"]).exits(0);
    stopped(server);
    ask(&env, &["ls", "--death-timer", "2s", "netblt:///"]).exits(35);
    let little = env.run(&[&SERVE[..], &["--memory", "1KiB"]].concat()).exits(1);
    let why = little.last_event("error")["message"].to_string();
    assert!(why.contains("1.00 KiB of memory is too little"), "{why}");
    env.run(&["serve", "--root", "nowhere", "--quiet"]).exits(11).says("nowhere");
}

#[test]
fn a_key_with_write_permission_alone_lists_nothing() {
    let env = Env::new();
    // A port that is free now, most likely still is in a moment.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let metrics = ["--metrics", &port, "--max-rate", "800Mbit"];
    let options = ["--write-only", "-4", "--death-timer", "30s"];
    let server = server(&env, &[&options[..], &metrics].concat());
    env.make_file("f", 10);
    ask(&env, &["cp", "f", "netblt:///f"]).exits(0);
    ask(&env, &["ls", "netblt:///"]).exits(11).says("no read permission");
    let asked = format!("127.0.0.1:{port}");
    let mut metrics = std::net::TcpStream::connect(asked).expect("connected");
    metrics.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
    let mut counts = String::new();
    metrics.read_to_string(&mut counts).expect("answered");
    let line = "netblt_requests_total{request=\"receive\",verdict=\"done\"} 1";
    assert!(counts.contains(line), "{counts}");
    ask(&env, &["cp", "netblt:///f", "g"]).exits(11).says("no read permission");
    stopped(server);
}

#[test]
fn hosts_and_ports_in_addresses_count() {
    let env = Env::new();
    fs::create_dir_all(env.path("root")).expect("a directory");
    let advertise = ["--advertise", "192.0.2.1:9"];
    let mut server = env.start(&[&SERVE[..], &TICKET, &advertise].concat());
    let listening = server.event("listening", |_| true);
    assert_eq!(listening["addresses"][0], "192.0.2.1:9");
    // The port is the system's own choice, and not in the ticket.
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    let descriptors = format!("/proc/{}/fd", server.id());
    let open: Vec<String> = fs::read_dir(descriptors)
        .expect("listed")
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .map(|to| to.to_string_lossy().into_owned())
        .collect();
    let sockets = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let own = sockets
        .lines()
        .find(|line| inode(line).is_some_and(|inode| open.contains(&format!("socket:[{inode}]"))));
    let port = own.and_then(|line| line.split_whitespace().nth(1)?.split(':').nth(1));
    match port.and_then(|port| u16::from_str_radix(port, 16).ok()) {
        Some(port) => {
            ask(&env, &["ls", &format!("netblt://127.0.0.1:{port}/")]).exits(0);
            ask(&env, &["mkdir", &format!("netblt://localhost:{port}/x%20y")]).exits(0);
            assert_eq!(env.names("root"), ["x y"]);
        }
        None => skip("the system does not tell which sockets are whose"),
    }
    stopped(server);
}

/// Starts a copy that takes its time, and waits until something of it is there.
fn begin(env: &Env, from: &str, to: &str) -> Running {
    let args = ["cp", "--json", "--progress=100ms", "--rate", "25MB", from, to];
    let mut client = env.start(&[&args[..], &TICKET].concat());
    client.event("progress", |data| data["bytes"].as_u64() > Some(20_000_000));
    client
}

#[test]
fn a_copy_goes_on_when_the_server_was_killed() {
    for up in [true, false] {
        let env = Env::new();
        let first = server(&env, &[]);
        let content = match up {
            true => env.make_file("here", 64 * MIB),
            false => env.make_file("root/there", 64 * MIB),
        };
        let (from, to) = if up { ("here", "netblt:///there") } else { ("netblt:///there", "here") };
        let client = begin(&env, from, to);
        first.signal(Signal::KILL);
        first.finish();
        // It finds no server, or the test stops it.
        client.signal(Signal::TERM);
        assert!(client.finish().code != Some(0), "it was to be broken off");
        let again = server(&env, &[]);
        let summary = ask(&env, &["cp", "--json", from, to]).exits(0).last_event("summary");
        // How much the killed server had noted depends on its disk.
        assert!(summary["kept_bytes"].as_u64() > Some(0), "{summary}");
        let copy = fs::read(env.path(if up { "root/there" } else { "here" })).expect("the file");
        assert!(copy == content);
        assert_eq!(env.names("root"), ["there"]);
        stopped(again);
    }
}

/// That nothing answers at the second attempt says less than what ended the first.
#[test]
fn a_directory_whose_server_is_killed_ends_as_a_file_does() {
    let env = Env::new();
    let first = server(&env, &[]);
    env.make_directory("root/d");
    (0..8).for_each(|number| _ = env.make_file(&format!("root/d/{number}"), 8 * MIB));
    env.make_directory("here");
    let args = ["cp", "-r", "--json", "--progress=100ms", "--rate", "25MB", "netblt:///d", "here"];
    let mut client = env.start(&[&args[..], &TICKET].concat());
    client.event("progress", |data| data["bytes"].as_u64() > Some(20_000_000));
    first.signal(Signal::KILL);
    first.finish();
    let ended = client.finish().exits(12);
    let error = ended.last_event("error")["message"].to_string();
    assert!(error.contains("the other end's program is gone"), "{error}");
    assert!(!error.contains("nothing listens"), "{error}");
}

#[test]
fn a_copy_goes_on_when_the_client_was_ended_and_began_again_at_once() {
    // One says good-bye, of the other the server does not know that it is gone.
    for signal in [Signal::INT, Signal::KILL] {
        let env = Env::new();
        let server = server(&env, &[]);
        let content = env.make_file("here", 64 * MIB);
        let client = begin(&env, "here", "netblt:///there");
        client.signal(signal);
        client.finish();
        let again = ask(&env, &["cp", "--json", "here", "netblt:///there"]).exits(0);
        let summary = again.last_event("summary");
        assert!(summary["kept_bytes"].as_u64() > Some(8 << 20), "{signal:?}: {summary}");
        assert!(fs::read(env.path("root/there")).expect("the file") == content);
        assert_eq!(env.names("root"), ["there"]);
        let log = requests(&stopped(server));
        assert!(log.iter().any(|line| line["verdict"] == "failed"), "{log:?}");
    }
}

#[test]
fn a_broken_download_to_a_new_directory_is_resumed_in_it_by_the_same_command() {
    let env = Env::new();
    let _server = server(&env, &[]);
    env.make_directory("root/set");
    let first = env.make_file("root/set/a", MIB);
    let second = env.make_file("root/set/b", 16 * MIB);
    let key = env.path("own");
    let start = |args: &[&str]| {
        let mut command =
            env.command(&[&["cp", "-r", "netblt:///set", "new"], args, &TICKET].concat());
        command.env("XDG_CONFIG_HOME", &key);
        Running::new(command)
    };
    // A dry run makes no key.
    start(&["--dry-run"]).finish().exits(0);
    assert!(!key.exists());
    let client = start(&["--json", "--rate", "4MB"]);
    testenv::wait_until("the first file is there", || env.path("new/a").exists());
    client.signal(Signal::INT);
    client.finish().exits(20);
    start(&[]).finish().exits(0).says("already");
    assert_eq!(env.names("new"), ["a", "b"]);
    assert!(fs::read(env.path("new/a")).expect("a file") == first);
    assert!(fs::read(env.path("new/b")).expect("a file") == second);
}

#[test]
fn a_copy_beside_one_that_lives_ends_before_it() {
    let env = Env::new();
    let server = server(&env, &[]);
    let (long, short) = (env.make_file("long", 64 * MIB), env.make_file("short", 1000));
    let client = begin(&env, "long", "netblt:///");
    ask(&env, &["cp", "short", "netblt:///"]).exits(0);
    assert_eq!(fs::read(env.path("root/short")).expect("the short one"), short);
    assert!(!env.path("root/long").exists(), "the long one was waited for");
    client.finish().exits(0);
    assert!(fs::read(env.path("root/long")).expect("the long one") == long);
    assert_eq!(env.names("root"), ["long", "short"]);
    stopped(server);
}

#[test]
fn a_copy_waits_for_a_server_that_is_busy() {
    let env = Env::new();
    let server = server(&env, &["--max-sessions", "1"]);
    env.make_file("here", 64 * MIB);
    let client = begin(&env, "here", "netblt:///there");
    ask(&env, &["ls", "netblt:///"]).exits(5);
    let content = env.make_file("short", 1000);
    let waited = ask(&env, &["cp", "short", "netblt:///short"]).exits(0);
    waited.says("server busy: session limit reached").says("trying again");
    client.finish().exits(0);
    assert_eq!(fs::read(env.path("root/short")).expect("the file"), content);
    stopped(server);
}

#[test]
fn a_server_that_is_stopped_serves_to_the_end() {
    let env = Env::new();
    let server = server(&env, &[]);
    let content = env.make_file("here", 32 * MIB);
    let client = begin(&env, "here", "netblt:///there");
    server.signal(Signal::TERM);
    // It notes the signal when it runs.
    testenv::wait_until("it takes no more", || {
        let list = ask(&env, &["ls", "netblt:///"]);
        let refused = list.code == Some(5);
        if refused {
            list.says("try again later");
        }
        refused
    });
    client.finish().exits(0);
    server.finish().exits(0);
    assert!(fs::read(env.path("root/there")).expect("the file") == content);
}

/// Bytes that a process has read so far, whatever they were.
fn has_read(pid: u32) -> usize {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("its account");
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.expect("a number").parse().expect("a number")
}

/// Who asks for much, takes little and goes has cost the reading of little.
#[test]
fn a_server_reads_only_little_ahead_of_a_slow_client() {
    let env = Env::new();
    let server = server(&env, &[]);
    env.make_file("root/large", 60 * MIB);
    let before = has_read(server.id());
    let args = ["cp", "--rate", "500kbit", "--json", "netblt:///large", "here"];
    let mut client = env.start(&[&args[..], &TICKET].concat());
    client.event("progress", |_| true);
    // Until it reads no more; what wakes it counts, too, by some bytes each time.
    let (mut read, mut last) = (0, 0);
    for _ in 0..60 {
        last = read;
        thread::sleep(Duration::from_secs(1));
        read = has_read(server.id()) - before;
        if read >= 8 * MIB && read - last <= MIB / 4 {
            break;
        }
    }
    assert!(read >= 8 * MIB && read - last <= MIB / 4, "{} of 60 MiB, and no end", read / MIB);
    assert!(read < 24 * MIB, "{} of 60 MiB", read / MIB);
    drop(client);
    server.signal(Signal::KILL);
}

/// Makes a key; the line that others need of it.
fn keygen(env: &Env, name: &str) -> String {
    env.run(&["keygen", name, "--comment", name]).exits(0);
    fs::read_to_string(env.path(&format!("{name}.pub"))).expect("the public half")
}

#[test]
fn authorized_keys_admit_clients_with_their_permissions() {
    let env = Env::new();
    keygen(&env, "server");
    let (mine, theirs) = (keygen(&env, "mine"), keygen(&env, "theirs"));
    keygen(&env, "stranger");
    env.make_directory("root");
    env.make_directory("root/inbox");
    let lines = format!("{mine}root=inbox,write-only {theirs}");
    fs::write(env.path("keys"), lines).expect("written");
    let keys = ["--authorized-keys", "keys", "--key", "server"];
    let mut server = env.start(&[&SERVE[..], &keys].concat());
    let listening = server.event("listening", |_| true);
    let address = listening["addresses"][0].as_str().expect("an address").to_owned();
    let url = |path: &str| format!("netblt://{address}/{path}");
    let ask = |key: &str, args: &[&str]| {
        let known = ["-i", key, "--known-servers", "known", "--death-timer", "3s"];
        env.run(&[args, &known].concat())
    };
    env.make_file("f", 100_000);

    // The first time its key is shown, and from then on known.
    ask("mine", &["ls", &url("")]).exits(0).says("BLAKE3:");
    let again = ask("mine", &["ls", &url("")]).exits(0);
    assert!(!again.stderr.contains("BLAKE3:"), "{}", again.stderr);
    ask("mine", &["cp", "f", &url("mine")]).exits(0);
    ask("theirs", &["cp", "f", &url("theirs")]).exits(0);
    assert_eq!(env.names("root"), ["inbox", "mine"]);
    assert_eq!(env.names("root/inbox"), ["theirs"]);
    ask("theirs", &["ls", &url("")]).exits(11).says("no read permission");
    ask("stranger", &["ls", &url("")]).exits(5).says("your key (-i) was rejected");

    // Who is taken off the list is let in no more, and who is put on it is.
    let stranger = fs::read_to_string(env.path("stranger.pub")).expect("the public half");
    fs::write(env.path("keys"), format!("{theirs}{stranger}")).expect("written");
    server.signal(Signal::HUP);
    testenv::wait_until("the list is read again", || {
        ask("stranger", &["ls", &url("")]).code == Some(0)
    });
    ask("mine", &["ls", &url("")]).exits(5);
    ask("theirs", &["ls", &url("")]).exits(0);

    // A server that has another key than the one that is known is not spoken to.
    let pinned = fs::read_to_string(env.path("known")).expect("the known servers");
    let (_, public) = pinned.trim().split_once(' ').expect("a line");
    fs::write(env.path("known"), pinned.replace(public, mine.trim())).expect("written");
    ask("stranger", &["ls", &url("")]).exits(5).says("HAS CHANGED").says("BLAKE3:");
    let log = requests(&stopped(server));
    assert!(log.iter().any(|line| line["name"] == "mine" && line["request"] == "put"));
}

#[test]
fn a_service_manager_learns_that_the_server_is_ready_alive_and_stopping() {
    let env = Env::new();
    let manager = UnixDatagram::bind(env.path("notify")).expect("a socket");
    let next = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let start = || {
        let mut command = env.command(&[&SERVE[..], &TICKET].concat());
        command.env("NOTIFY_SOCKET", env.path("notify")).env("WATCHDOG_USEC", "400000");
        Running::new(command)
    };
    // One that does not listen is not ready.
    start().finish().exits(11);
    manager.set_nonblocking(true).expect("set");
    assert!(manager.recv(&mut [0; 64]).is_err());
    manager.set_nonblocking(false).expect("set");
    manager.set_read_timeout(Some(testenv::LIMIT)).expect("set");
    env.make_directory("root");
    let server = start();
    let mut messages = vec![next(), next(), next()];
    server.signal(Signal::TERM);
    while messages.last().is_some_and(|last| last != "STOPPING=1\n") {
        messages.push(next());
    }
    server.finish().exits(0);
    messages.dedup();
    assert_eq!(messages, ["READY=1\n", "WATCHDOG=1\n", "STOPPING=1\n"]);
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    if !installed("systemd-analyze") {
        return skip("systemd-analyze is not installed");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = fs::read_to_string(root.join("packaging/netblt-serve.service")).expect("the unit");
    let env = Env::new();
    // Where it is not installed, any program stands for it.
    let unit = unit.replace("/usr/bin/netblt ", "/bin/true ");
    fs::write(env.path("netblt-serve.service"), unit).expect("written");
    let path = env.path("netblt-serve.service");
    let checked = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&path).output();
    let checked = checked.expect("it runs");
    let words = String::from_utf8_lossy(&checked.stderr);
    let about: Vec<&str> = words.lines().filter(|line| line.contains("netblt-serve")).collect();
    assert!(about.is_empty(), "{about:?}");
}

#[test]
fn one_manifest_has_the_files_of_all_sources() {
    let env = Env::new();
    let server = server(&env, &[]);
    env.make_file("root/a", 10);
    env.make_file("root/b", 20);
    env.make_directory("back");
    let get = ["cp", "netblt:///a", "netblt:///b", "back", "--manifest", "sums"];
    ask(&env, &get).exits(0);
    let sums = fs::read_to_string(env.path("sums")).expect("the manifest");
    let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    assert_eq!(names, ["a", "b"]);
    let both = ["cp", "netblt:///a", "netblt:///b", "back", "--trace", "t"];
    ask(&env, &both).exits(1).says("--trace");
    stopped(server);
}

#[test]
fn patterns_are_expanded_by_what_the_server_lists() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let env = Env::new();
    let server = server(&env, &[]);
    let odd = OsStr::from_bytes(b"z\xff.gz");
    env.make_directory("root/logs/old");
    for name in ["logs/a.gz", "logs/b.gz", "logs/c", "logs/.d.gz", "logs/old/e.gz", "*", "x"] {
        env.make_file(&format!("root/{name}"), 10);
    }
    fs::write(env.path("root/logs").join(odd), "odd").expect("written");
    let cp = |args: &[&str]| {
        let _ = fs::remove_dir_all(env.path("back"));
        env.make_directory("back");
        ask(&env, &[&["cp"][..], args, &["back"]].concat())
    };
    let back = || {
        let names = fs::read_dir(env.path("back")).expect("listed");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.as_bytes().to_vec()).collect();
        names.sort();
        names
    };
    cp(&["netblt:///logs/*.gz"]).exits(0);
    assert_eq!(back(), [&b"a.gz"[..], b"b.gz", b"z\xff.gz"]);
    cp(&["netblt:///l*/[ab].gz"]).exits(0);
    assert_eq!(back(), [b"a.gz", b"b.gz"]);
    cp(&["netblt:///logs/**/*.gz"]).exits(0);
    assert_eq!(back(), [&b"a.gz"[..], b"b.gz", b"e.gz", b"z\xff.gz"]);
    cp(&["netblt:///logs/.*.gz"]).exits(0);
    assert_eq!(back(), [b".d.gz"]);
    // What is left out is named, and the rest comes.
    cp(&["netblt:///logs/*", "netblt:///none*"])
        .exits(23)
        .says("skipped netblt:///logs/old: not a regular file (-r copies directories)")
        .says("skipped netblt:///none*: nothing matches");
    assert_eq!(back(), [&b"a.gz"[..], b"b.gz", b"c", b"z\xff.gz"]);
    cp(&["netblt:///none*"]).exits(23).says("there is nothing to copy");
    // What is there under that very name is no pattern, nor is a byte.
    for name in ["netblt:///*", "netblt:///%2A"] {
        cp(&[name]).exits(0);
        assert_eq!(back(), [b"*"]);
    }
    let several = ask(&env, &["cp", "netblt:///logs/*.gz", "one"]).exits(11);
    several.says("no such directory");
    // What is in a directory, and nothing at all in an empty one.
    cp(&["-r", "netblt:///logs/."]).exits(0);
    assert_eq!(back(), [&b".d.gz"[..], b"a.gz", b"b.gz", b"c", b"old", b"z\xff.gz"]);
    env.make_directory("root/empty");
    cp(&["-r", "netblt:///empty/."]).exits(0);
    assert!(back().is_empty());
    cp(&["-r", "netblt:///empty"]).exits(0);
    assert_eq!(back(), [b"empty"]);
    // On the server itself.
    env.make_directory("root/in");
    ask(&env, &["cp", "netblt:///logs/?.gz", "netblt:///in"]).exits(0);
    assert_eq!(env.names("root/in"), ["a.gz", "b.gz"]);
    ask(&env, &["cp", "-r", "netblt:///logs/old/.", "netblt:///in"]).exits(0);
    assert_eq!(env.names("root/in"), ["a.gz", "b.gz", "e.gz"]);
    ask(&env, &["cp", "netblt:///none*", "netblt:///in"]).exits(23).says("nothing matches");
    stopped(server);
}

#[test]
fn a_link_local_address_has_its_zone_in_either_spelling() {
    let text = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let link = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Its address, index, prefix, scope (20: link) and flags (40: it failed), and its name.
    let link = link.into_iter().find(|words| words.len() == 6 && words[3] == "20");
    let Some(words) = link else { return skip("no link-local address") };
    let groups: Vec<&str> = (0..8).map(|at| &words[0][at * 4..at * 4 + 4]).collect();
    let (address, zone) = (groups.join(":"), words[5]);
    let env = Env::new();
    fs::create_dir_all(env.path("root")).expect("a directory");
    env.make_file("root/f", 10);
    let own = ["serve", "--root", "root", "--json", "-6", "--port", "0"];
    let mut server = env.start(&[&own[..], &TICKET].concat());
    let listening = server.event("listening", |_| true);
    let any = listening["addresses"][0].as_str().expect("an address");
    let port = any.rsplit_once(':').expect("a port").1;
    for spelled in ["%", "%25"] {
        let url = format!("netblt://[{address}{spelled}{zone}]:{port}/f");
        ask(&env, &["stat", &url]).exits(0);
    }
    stopped(server);
}
