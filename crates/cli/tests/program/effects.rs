//! What options change that no other test needs: each is given in a real run, and its effect seen.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use crate::testenv::far::Setting;
use crate::testenv::{self, Env, Finished, Running, noise};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::Signal;
use serde_json::Value;

const HERE: [&str; 4] = ["--bind", "127.0.0.1", "--port", "0"];

fn document(run: &Finished) -> Value {
    serde_json::from_str(&run.text()).expect("one JSON document")
}

/// A server of `root` at an address of either version, and its public key where it has one.
fn server(env: &Env, options: &[&str]) -> (Running, String) {
    env.make_directory("root");
    let own = ["serve", "--root", "root", "--json", "--port", "0"];
    let mut server = env.start(&[&own[..], options].concat());
    let listening = server.event("listening", |_| true);
    (server, listening["addresses"][0].as_str().expect("an address").to_owned())
}

fn stopped(server: Running) {
    server.signal(Signal::TERM);
    server.finish().exits(0);
}

const TICKET: [&str; 2] = ["--ticket-file", "ticket"];

/// Each of the short commands, with its words before the URLs, and the last words of those.
const SHORT: [(&[&str], &str); 5] = [
    (&["mkdir"], "d"),
    (&["stat"], "d"),
    (&["ls", "-a"], "d"),
    (&["mv"], "d e"),
    (&["rm", "-r"], "e"),
];

/// The command with these options, and its URLs on a server.
fn short<'a>(words: &[&'a str], options: &[&'a str], server: &str, paths: &str) -> Vec<String> {
    let urls = paths.split(' ').map(|path| format!("netblt://{server}/{path}"));
    words.iter().chain(options).map(|word| (*word).to_owned()).chain(urls).collect()
}

#[test]
fn addresses_of_one_version_are_used_and_no_others() {
    for (own, other, bind) in [("-4", "-6", "127.0.0.1"), ("-6", "-4", "::1")] {
        let env = Env::new();
        let (server, address) = server(&env, &["--bind", bind, own, "--ticket-file", "ticket"]);
        assert_eq!(address.starts_with('['), own == "-6", "{address}");
        for (words, path) in SHORT {
            let ask =
                |version| env.run(&short(words, &[&TICKET[..], &[version]].concat(), "", path));
            ask(other).exits(1).says("no usable address over IPv");
            ask(own).exits(0);
        }
        env.make_file("f", 10);
        let cp = |version| env.run(&[&["cp", version, "f", "netblt:///"], &TICKET[..]].concat());
        cp(other).exits(1).says("no usable address");
        cp(own).exits(0);
        assert_eq!(env.names("root"), ["f"]);
        stopped(server);
    }
}

/// An address that leads to another one, until so many datagrams have come back from there: as many
/// as an opening takes. Then the path is dead.
fn dying_path(to: &str) -> u16 {
    const ANSWERS: u32 = 3;
    let bound = || UdpSocket::bind("127.0.0.1:0").expect("bound");
    let (here, there) = (bound(), bound());
    there.connect(to).expect("connected");
    let port = here.local_addr().expect("known").port();
    let back = (here.try_clone().expect("cloned"), there.try_clone().expect("cloned"));
    let (clients, asking) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut space = [0; 65_536];
        while let Ok((len, client)) = here.recv_from(&mut space) {
            let _ = (there.send(&space[..len]), clients.send(client));
        }
    });
    std::thread::spawn(move || {
        let mut space = [0; 65_536];
        for _ in 0..ANSWERS {
            let Ok(len) = back.1.recv(&mut space) else { return };
            let client = asking.iter().next().expect("who asked");
            let _ = back.0.send_to(&space[..len], client);
        }
    });
    port
}

/// Who falls silent is waited for as long as that, and not for the minute that is usual.
#[test]
fn a_silent_peer_is_given_up_after_the_death_timer_of_the_option() {
    let env = Env::new();
    let (server, address) = server(&env, &["--bind", "127.0.0.1", "--ticket-file", "ticket"]);
    let own = ["bench", "-s", "-B", "127.0.0.1", "-p", "0"];
    let mut tester = env.start(&own);
    let ticket = tester.line();
    let (_, tested) = ticket.split_once('@').expect("an address");
    let (tested, _) = tested.split_once('/').expect("a check");
    let timer = ["--death-timer", "1s"];
    let asked = std::time::Instant::now();
    let port = dying_path(tested).to_string();
    let to = ["bench", "-c", "127.0.0.1", "-p", &port];
    let bench = env.start(&[&to[..], &timer].concat());
    let runs = SHORT.map(|(words, path)| {
        let server = format!("127.0.0.1:{}", dying_path(&address));
        env.start(&short(words, &[&TICKET[..], &timer, &["--json"]].concat(), &server, path))
    });
    for run in runs {
        assert_eq!(run.finish().exits(30).last_event("error")["code"], 30);
    }
    bench.finish().exits(30);
    assert!(asked.elapsed() < Duration::from_secs(45), "{:?}", asked.elapsed());
    // They wait for theirs longer.
    for left in [server, tester] {
        left.signal(Signal::KILL);
        left.finish();
    }
}

#[test]
fn short_commands_work_with_keys_and_print_json() {
    let env = Env::new();
    for name in ["server", "mine", "stranger"] {
        env.run(&["keygen", name]).exits(0);
    }
    fs::copy(env.path("mine.pub"), env.path("keys")).expect("copied");
    let keys = ["--authorized-keys", "keys", "--key", "server"];
    let (server, address) = server(&env, &[&["--bind", "127.0.0.1"][..], &keys].concat());
    for (words, path) in SHORT {
        let ask = |key| {
            let _ = fs::remove_file(env.path("known"));
            let known = ["-i", key, "--known-servers", "known", "--json", "--death-timer", "9s"];
            env.run(&short(words, &known, &address, path))
        };
        ask("stranger").exits(5);
        let listed = ask("mine").exits(0);
        // The server was unknown before, and the file given remembers it.
        let known = fs::read_to_string(env.path("known")).expect("the known servers");
        assert!(known.starts_with(&address), "{known}");
        for line in listed.text().lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            assert!(event["data"].is_object(), "{line}");
        }
    }
    assert_eq!(env.names("root"), [""; 0], "made and removed");
    stopped(server);
}

#[test]
fn each_option_of_cp_shows_in_its_result() {
    let env = Env::new();
    let (server, _) = server(&env, &["--bind", "127.0.0.1", "--ticket-file", "ticket"]);
    let data = env.make_file("f", 300_000);
    let cp = |options: &[&str]| {
        env.run(&[&["cp"], options, &TICKET, &["f", "netblt:///f"]].concat()).exits(0)
    };
    let plain = cp(&[]);
    assert!(plain.stderr.contains("verified") && !plain.stderr.contains("datagrams of"));
    let quiet = cp(&["-q"]);
    assert_eq!((quiet.text(), quiet.stderr), (String::new(), String::new()));
    cp(&["--stats"]).says("datagrams of").says("  limit  ");
    cp(&["--manifest", "sums", "--trace", "trace", "--report", "page.html"]);
    let sums = fs::read_to_string(env.path("sums")).expect("the manifest");
    assert_eq!(sums, format!("{}  f\n", blake3::hash(&data).to_hex()));
    let trace = fs::read_to_string(env.path("trace")).expect("the trace");
    assert!(trace.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(trace.lines().count() > 3, "{trace}");
    let page = fs::read_to_string(env.path("page.html")).expect("the page");
    assert!(page.contains("<svg"), "{page}");
    stopped(server);
}

/// What is left of a broken copy is gone on with, unless that is not wished or it is too old.
#[test]
fn partial_data_are_used_up_to_the_age_of_the_option() {
    let env = Env::new();
    let (server, _) = server(&env, &["--bind", "127.0.0.1", "--ticket-file", "ticket"]);
    env.make_file("root/f", 24 << 20);
    let cp = |options: &[&str]| {
        env.start(&[&["cp", "--json"], options, &TICKET, &["netblt:///f", "here"]].concat())
    };
    let break_off = || {
        let _ = fs::remove_file(env.path("here"));
        let mut running = cp(&["--rate", "200Mbit", "--progress=100ms"]);
        running.event("progress", |data| data["bytes"].as_u64() > Some(12_000_000));
        running.signal(Signal::TERM);
        running.finish().exits(20);
    };
    let kept = |options: &[&str]| {
        let summary = cp(options).finish().exits(0).last_event("summary");
        summary["kept_bytes"].as_u64().expect("a number")
    };
    break_off();
    assert_eq!(kept(&["--resume", "never"]), 0);
    break_off();
    assert!(kept(&["--resume", "auto"]) > 1 << 20);
    break_off();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(kept(&["--keep-partial", "1s"]), 0);
    stopped(server);
}

#[test]
fn ssh_gets_its_options_and_udp_uses_the_given_ports() {
    let setting = Setting::with("echo \"$*\" >>\"$0.log\"", &testenv::far::program_directory());
    setting.put("near/a", b"a");
    setting.put("near/t/b", b"b");
    let options = ["-J", "jump", "-P", "2222", "-o", "Foo=bar", "-B", "-F", "config", "-4"];
    setting.cp(&[&options[..], &["a", "host:"]].concat()).exits(0);
    let log = fs::read_to_string(setting.env.path("ssh.log")).expect("the log of ssh");
    for words in ["-J jump", "-p 2222", "-o Foo=bar", "-oBatchMode=yes", "-F config"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    setting.cp(&["-r", "--max-files", "1", "t", "host:"]).exits(11).says("--max-files takes more");
    // Both ends are here, and need one each.
    let first = 20_000 + u16::try_from(std::process::id() % 20_000).expect("small");
    let ports = format!("{first}-{}", first + 30);
    let text = setting.cp(&["--udp-port", &ports, "--json", "a", "host:"]).exits(0).text();
    let way: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let (_, port) = way["data"]["address"].as_str().expect("by UDP").rsplit_once(':').expect("it");
    assert!((first..=first + 30).contains(&port.parse().expect("a port")), "{text}");
    // A file that does not change goes as ever.
    setting.cp(&["--allow-changes", "a", "host:"]).exits(0);
    // No more than the rate that is shared with others: what is said is what it goes by.
    for policy in ["background", "aggressive", "cubic"] {
        let trace = setting.env.path("near/trace");
        let _ = fs::remove_file(&trace);
        let options = ["--policy", policy, "--no-path-cache", "--trace", "trace"];
        setting.cp(&[&options[..], &["a", "host:"]].concat()).exits(0);
        assert!(fs::metadata(&trace).expect("a trace").len() > 100);
    }
}

#[test]
fn bench_follows_its_options() {
    let env = Env::new();
    let bench = |options: &[&str]| {
        let own = ["bench", "-n", "100K", "-i", "0", "-J"];
        document(&env.run(&[&own[..], options].concat()).exits(0))
    };
    let small = ["--mtu", "1000", "--buffers", "3", "--buffer-size", "4KiB"];
    let document = bench(&[&small[..], &["-4", "--policy", "background"]].concat());
    assert_eq!(document["start"]["connected"][0]["remote_host"], "127.0.0.1");
    assert_eq!(document["start"]["test_start"]["policy"], "background");
    let stream = &document["end"]["streams"][0];
    assert_eq!(stream["outstanding_buffers"], 3);
    assert!(stream["largest_packet_bytes"].as_u64().is_some_and(|n| (500..=1000).contains(&n)));
    let document = bench(&["-6", "--buffer-size", "4KiB", "--memory", "41KiB"]);
    assert_eq!(document["end"]["streams"][0]["outstanding_buffers"], 3);
    assert_eq!(document["start"]["connected"][0]["remote_host"], "::1");
    let largest = document["end"]["streams"][0]["largest_packet_bytes"].as_u64();
    assert!(largest > Some(1000), "{document}");
}

#[test]
fn the_demo_and_the_simulator_follow_their_seeds() {
    let env = Env::new();
    let link = ["--rate", "20Mbit", "--rtt", "5ms", "--loss", "1%", "--size", "300kB"];
    let demo = |options: &[&str]| env.run(&[&["demo"], &link[..], options].concat()).exits(0);
    demo(&["--seed", "77"]).says("seed 77");
    let quiet = demo(&["-q"]);
    assert!(!quiet.stderr.contains("Demo:") && !quiet.stderr.contains("throughput"));
    let steps = |options: &[&str]| {
        let text = demo(options).text();
        text.lines().filter(|line| line.contains("\"event\":\"progress\"")).count()
    };
    assert!(steps(&["--json", "--progress=10ms"]) > steps(&["--json", "--progress=1h"]));

    let simulate = |words: &[&str]| env.run(&[&["simulate"], words].concat()).exits(0).text();
    let world = simulate(&["--seed", "5"]);
    assert_eq!(world, simulate(&["--seed", "5"]));
    assert!(world != simulate(&["--seed", "6"]) && world.contains("seed 5"));
    let satellite = simulate(&["--seed", "5", "--scenario", "geo-satellite"]);
    assert!(satellite.contains("300ms + 10ms") && !world.contains("300ms + 10ms"), "{satellite}");
}

#[test]
fn a_relay_has_the_round_trip_and_the_network_it_is_given() {
    let env = Env::new();
    for (options, least) in
        [(&["--rtt", "300ms"][..], 300), (&["--scenario", "geo-satellite", "--quiet"], 500)]
    {
        let there = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = there.local_addr().expect("known").to_string();
        let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", &to, "--json"];
        let mut relay = env.start(&[&own[..], options].concat());
        let listen = relay.event("emulating", |_| true)["listen"].take();
        let here = UdpSocket::bind("127.0.0.1:0").expect("bound");
        here.connect(listen.as_str().expect("an address")).expect("connected");
        let begin = std::time::Instant::now();
        here.send(&[1; 100]).expect("sent");
        let mut space = [0; 200];
        let (len, client) = there.recv_from(&mut space).expect("it came");
        there.send_to(&space[..len], client).expect("sent");
        assert_eq!(here.recv(&mut space).expect("it came back"), 100);
        assert!(begin.elapsed() >= Duration::from_millis(least), "{:?}", begin.elapsed());
        relay.signal(Signal::INT);
        let finished = relay.finish().exits(0);
        assert_eq!(finished.stderr, "");
    }
    // For people the address is printed, unless --quiet is given.
    for (quiet, words) in [(&[][..], true), (&["-q"], false)] {
        let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
        let run = env.run(&[&own[..], &["--time", "50ms"], quiet].concat()).exits(0);
        assert_eq!(run.text().len() + run.stderr.len() > 0, words, "{run:?}");
    }
}

#[test]
fn a_picture_has_the_title_it_is_given() {
    let env = Env::new();
    let trace = ["--trace", "relay.jsonl", "--stats", "20ms", "--time", "200ms"];
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    env.run(&[&own[..], &trace].concat()).exits(0);
    let args = ["report", "trace", "relay.jsonl", "--out", "-", "--title", "Seen <here>"];
    assert!(env.run(&args).exits(0).text().contains("Seen &lt;here&gt;"));
}

#[test]
fn a_sender_reads_its_ticket_from_standard_input() {
    let env = Env::new();
    let data = env.make_file("data", 1000);
    env.make_directory("to");
    let mut receiver = env.start(&[&["receive", "to"], &HERE[..]].concat());
    let ticket = receiver.line();
    let args = ["send", "data", "--ticket-stdin"];
    env.run_with_input(&args, format!("{ticket}\n").into_bytes()).exits(0);
    receiver.finish().exits(0);
    assert_eq!(fs::read(env.path("to/data")).expect("the file"), data);
}

/// The client string, and the version, of who receives.
#[test]
fn a_receiver_has_a_name_and_addresses_of_one_ip_version() {
    let env = Env::new();
    env.make_file("data", 1000);
    env.make_directory("to");
    for (version, other, bind) in [("-4", "-6", "127.0.0.1"), ("-6", "-4", "::1")] {
        let mut sender = env.start(&["send", "data", "--bind", bind, version]);
        let ticket = sender.line();
        let receive = |version| {
            let name = ["--client", "a name of mine", "--overwrite", "always"];
            env.run(&[&["receive", &ticket, "to", version], &name[..]].concat())
        };
        receive(other).exits(1).says("no usable address");
        receive(version).exits(0);
        sender.finish().exits(0);
    }
}

#[test]
fn links_are_followed_and_attributes_sent_if_asked_for() {
    let env = Env::new();
    env.make_directory("t");
    fs::write(env.path("t/file"), noise(100)).expect("written");
    symlink("file", env.path("t/link")).expect("linked");
    let known = setxattr(env.path("t/file"), "user.origin", b"here", XattrFlags::empty()).is_ok();
    if !known {
        testenv::skip("the file system has no extended attributes");
    }
    // An access list that gives user 12345 what others have not: as the kernel keeps it.
    let entry = |tag: u16, may: u16, id: u32| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let undefined = u32::MAX;
    let entries = [
        (1, 6, undefined),
        (2, 4, 12_345),
        (4, 0, undefined),
        (16, 4, undefined),
        (32, 0, undefined),
    ];
    let list: Vec<u8> = entries.iter().flat_map(|(tag, may, id)| entry(*tag, *may, *id)).collect();
    let list = [&2_u32.to_le_bytes()[..], &list].concat();
    let acl = "system.posix_acl_access";
    let has_lists = setxattr(env.path("t/file"), acl, &list, XattrFlags::empty()).is_ok();
    let value = |name: &str| {
        let mut space = [0; 200];
        let len = getxattr(env.path("to/t/file"), name, &mut space[..]).ok()?;
        Some(space[..len].to_vec())
    };
    for asked in [false, true] {
        let to = env.make_directory("to");
        let options: &[&str] = if asked { &["-L", "--xattrs", "--acls"] } else { &[] };
        let mut sender = env.start(&[&["send", "t", "--bind", "127.0.0.1"], options].concat());
        let ticket = sender.line();
        env.run(&["receive", &ticket, "to", "--xattrs", "--acls"]).exits(0);
        sender.finish().exits(0);
        let copy = fs::symlink_metadata(to.join("t/link")).expect("there");
        assert_eq!(copy.file_type().is_symlink(), !asked);
        assert_eq!(value("user.origin").is_some(), asked && known);
        assert_eq!(value(acl), (asked && has_lists).then(|| list.clone()));
        let mode = fs::metadata(to.join("t/file")).expect("there").permissions().mode();
        assert_eq!(mode & 0o400, 0o400);
        fs::remove_dir_all(to).expect("removed");
    }
}
