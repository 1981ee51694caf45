//! What a sender remembers of a path: two built programs, an emulated network between them, and
//! the file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::testenv::{Env, Running};

const HERE: [&str; 4] = ["--bind", "127.0.0.1", "--json", "--resume=never"];
const NETWORK: [&str; 4] = ["--rate", "40Mbit", "--delay", "40ms"];

fn free_port() -> u16 {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("bound");
    socket.local_addr().expect("known").port()
}

/// Sends `data` over the network; answers in which phases the sender was.
fn transfer(env: &Env, more: &[&str]) -> String {
    let port = free_port().to_string();
    let to = format!("127.0.0.1:{port}");
    let own = ["emulate", "relay", "--listen", "127.0.0.1:0", "--json", "--to", &to];
    let mut relay = env.start(&[&own[..], &NETWORK].concat());
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

/// Whether its start went by memory: a leap before any train.
fn leaps_first(trace: &str) -> bool {
    let leap = trace.find("\"leap\"").unwrap_or(usize::MAX);
    leap < trace.find("\"trains\"").unwrap_or(usize::MAX)
}

#[test]
fn a_path_is_remembered_unless_not_wished() {
    let env = Env::new();
    env.make_file("data", 12_000_000);
    let place = env.path("cache/netblt/paths");
    assert!(!leaps_first(&transfer(&env, &["--no-memory"])));
    assert!(!place.exists(), "nothing is kept");

    assert!(!leaps_first(&transfer(&env, &[])));
    let text = fs::read_to_string(&place).expect("what is remembered");
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["127.0.0.1", "127.0.0.1", rate, rtt, _] = words[..] else { panic!("{text:?}") };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert!((1_000_000..10_000_000).contains(&number(rate)), "{text}");
    assert!((80_000..2_000_000).contains(&number(rtt)), "{text}");
    let mode = |path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&env.path("cache/netblt"))), (0o600, 0o700));

    assert!(leaps_first(&transfer(&env, &[])), "half of that is tried at once");
    assert!(!leaps_first(&transfer(&env, &["--no-memory"])));
    fs::write(&place, [0xff; 300]).expect("written");
    assert!(!leaps_first(&transfer(&env, &[])), "what is no text is not believed");
}
