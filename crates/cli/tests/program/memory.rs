//! What a sender remembers of a path: two built programs, an emulated network between them, and
//! the file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::testenv::busy::Load;
use crate::testenv::{Env, Running, skip};

const HERE: [&str; 4] = ["--bind", "127.0.0.1", "--json", "--resume=never"];
const NETWORK: [&str; 4] = ["--rate", "40Mbit", "--delay", "40ms"];
/// So long that what a busy machine adds to its round trip is a small part.
const LONG: [&str; 4] = ["--rate", "40Mbit", "--delay", "400ms"];

fn free_port() -> u16 {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("bound");
    socket.local_addr().expect("known").port()
}

/// Sends `data` over the network; answers in which phases the sender was.
fn transfer(env: &Env, network: &[&str], more: &[&str]) -> String {
    let port = free_port().to_string();
    let to = format!("127.0.0.1:{port}");
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--to", &to];
    let mut relay = env.start(&[&own[..], network].concat());
    let listen = relay.event("emulating", |_| true)["listen"].as_str().expect("text").to_owned();
    let args = ["send", "data", "--port", &port, "--advertise", &listen, "--trace", "trace"];
    let mut command = env.command(&[&args[..], &HERE, more].concat());
    command.env("XDG_CACHE_HOME", env.path("cache"));
    let mut sender = Running::new(command);
    let ticket = sender.event("listening", |_| true)["ticket"].as_str().expect("text").to_owned();
    let _ = fs::remove_dir_all(env.path("to"));
    env.make_directory("to");
    let receiver = env.start(&[&["receive", &ticket, "to"][..], &HERE].concat());
    receiver.finish().exits(0);
    sender.finish().exits(0);
    let trace = fs::read_to_string(env.path("trace")).expect("a trace");
    fs::remove_file(env.path("trace")).expect("it was there");
    trace
}

/// How often something is tried that a busy machine may keep from showing.
const TRIES: usize = 4;

/// Whether its start went by memory: a leap before any train.
fn jumps_first(trace: &str) -> bool {
    let jump = trace.find("\"jump\"").unwrap_or(usize::MAX);
    jump < trace.find("\"start\"").unwrap_or(usize::MAX)
}

/// Learns the path until something of it is written: on a busy machine a transfer may end before
/// the path was used as fast as it is.
fn learned(env: &Env, place: &Path) -> Option<String> {
    for _ in 0..TRIES {
        let load = Load::begin();
        assert!(!jumps_first(&transfer(env, &NETWORK, &[])));
        match fs::read_to_string(place) {
            Ok(text) => return Some(text),
            Err(_) => assert!(load.is_high(), "nothing is remembered"),
        }
    }
    skip("this machine is too busy for a path to be learned");
    None
}

/// What the network is, just now.
fn remember(place: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let micros = 2 * 400 * 1000 + 5000;
    fs::write(place, format!("127.0.0.1 127.0.0.1 5000000 {micros} {now}\n")).expect("written");
}

#[test]
fn a_path_is_remembered_unless_the_option_forbids_it() {
    let env = Env::new();
    env.make_file("data", 12_000_000);
    let place = env.path("cache/netblt/paths");
    assert!(!jumps_first(&transfer(&env, &NETWORK, &["--no-path-cache"])));
    assert!(!place.exists(), "nothing is kept");

    let Some(text) = learned(&env, &place) else { return };
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["127.0.0.1", "127.0.0.1", rate, rtt, _] = words[..] else { panic!("{text:?}") };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert!((1..10_000_000).contains(&number(rate)), "{text}");
    assert!((80_000..2_000_000).contains(&number(rtt)), "{text}");
    let mode = |path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&env.path("cache/netblt"))), (0o600, 0o700));
}

#[test]
fn a_transfer_starts_at_half_of_the_remembered_rate() {
    let env = Env::new();
    env.make_file("data", 2_000_000);
    env.make_directory("cache/netblt");
    let place = env.path("cache/netblt/paths");
    // Its round trip shows that the path is the one that is remembered.
    let jumps = || {
        let load = Load::begin();
        remember(&place);
        let jumped = jumps_first(&transfer(&env, &LONG, &[]));
        assert!(jumped || load.is_high(), "what is remembered is not tried");
        jumped
    };
    if !(0..TRIES).any(|_| jumps()) {
        skip("this machine is too busy for a round trip to be measured");
    }
    remember(&place);
    assert!(!jumps_first(&transfer(&env, &LONG, &["--no-path-cache"])));
    fs::write(&place, [0xff; 300]).expect("written");
    assert!(!jumps_first(&transfer(&env, &LONG, &[])), "what is no text is not believed");
}
