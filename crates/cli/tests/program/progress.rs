//! A path that from one moment on takes only small packets, between two real programs; and a reader
//! who takes a long pause (`docs/protocol §7.6`).

use std::io::Read as _;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::testenv::{Env, Running};
use netblt::Ticket;

/// What still passes, in bytes of UDP payload: KEEPALIVEs do, data do not.
const SMALL: usize = 100;
/// So much passes before.
const BEFORE: usize = 1 << 20;
const IMPATIENT: [&str; 2] = ["--death-timer", "5s"];

/// A router in front of `there`, which after so many bytes loses what is larger than [`SMALL`]. It
/// lives as long as the test.
fn narrowing(there: SocketAddr) -> SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let behind = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = front.local_addr().expect("its address");
    behind.connect(there).expect("a way");
    let (back, to_caller) = (behind.try_clone(), front.try_clone());
    let (back, to_caller) = (back.expect("a socket"), to_caller.expect("a socket"));
    thread::spawn(move || {
        let (mut bytes, mut came, mut callers) = ([0; 65_536], 0, Vec::new());
        while let Ok((len, caller)) = front.recv_from(&mut bytes) {
            came += len;
            if !callers.contains(&caller) {
                callers.push(caller);
                let (back, front) = (back.try_clone(), to_caller.try_clone());
                let (back, front) = (back.expect("a socket"), front.expect("a socket"));
                thread::spawn(move || answers(&back, &front, caller));
            }
            if came < BEFORE || len <= SMALL {
                let _ = behind.send(&bytes[..len]);
            }
        }
    });
    address
}

fn answers(back: &UdpSocket, front: &UdpSocket, caller: SocketAddr) {
    let mut bytes = [0; 65_536];
    while let Ok(len) = back.recv(&mut bytes) {
        let _ = front.send_to(&bytes[..len], caller);
    }
}

/// A sender of which only small packets arrive, and its receiver, both over at the end.
fn choked(env: &Env, mut receiver: Running, sender: &dyn Fn(SocketAddr) -> Vec<String>) {
    let listening = receiver.event("listening", |_| true);
    let ticket = listening["ticket"].as_str().map(|text| text.parse::<Ticket>().expect("a ticket"));
    let there = match &ticket {
        Some(ticket) => ticket.addresses[0].clone(),
        None => listening["address"].as_str().expect("an address").to_owned(),
    };
    let router = narrowing(there.parse().expect("an address"));
    let mut args = vec!["send".to_owned(), "data".to_owned(), "--json".to_owned()];
    args.extend(sender(router));
    if let Some(ticket) = ticket {
        let way = Ticket { addresses: vec![router.to_string()], ..ticket };
        args.extend(["--to".to_owned(), way.to_string()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).chain(IMPATIENT).collect();
    let sent = env.start(&args).finish().exits_with_one_of(&[30, 12]);
    let received = receiver.finish().exits_with_one_of(&[30, 12]);
    assert!([sent.code, received.code].contains(&Some(30)), "{sent:?} {received:?}");
    for run in [sent, received] {
        let why = run.last_event("error")["message"].to_string();
        assert!(why.contains("nothing new was stored for 1"), "{why}");
    }
    assert_eq!(env.names("to"), Vec::<String>::new());
}

#[test]
fn a_path_that_takes_only_small_packets_ends_both_programs() {
    let here = ["--json", "--death-timer", "5s"];
    let both = thread::spawn(move || {
        let env = Env::new();
        env.make_file("data", 16 << 20);
        env.make_directory("to");
        let plain = ["receive", "to/data", "--wire", "rfc998", "--listen", "127.0.0.1:0"];
        let receiver = env.start(&[&plain[..], &here].concat());
        choked(&env, receiver, &|router| {
            ["--wire", "rfc998", "--to", &router.to_string()].map(str::to_owned).to_vec()
        });
    });
    let env = Env::new();
    env.make_file("data", 16 << 20);
    env.make_directory("to");
    let receiver = env.start(&[&["receive", "to", "--bind", "127.0.0.1"][..], &here].concat());
    choked(&env, receiver, &|_| Vec::new());
    both.join().expect("the other wire");
}

#[test]
fn a_reader_may_pause_for_longer_than_any_timer() {
    let env = Env::new();
    let data = env.make_file("data", 24 << 20);
    let mut sender =
        env.start(&[&["send", "data", "--bind", "127.0.0.1", "--json"][..], &IMPATIENT].concat());
    let listening = sender.event("listening", |_| true);
    let ticket = listening["ticket"].as_str().expect("a ticket").to_owned();
    let few = ["receive", &ticket, "-", "--buffers", "8"];
    let mut receiver = env.command(&[&few[..], &IMPATIENT].concat()).spawn().expect("it runs");
    let mut pipe = receiver.stdout.take().expect("a pipe");
    let mut read = vec![0; 3 << 20];
    pipe.read_exact(&mut read).expect("the first part");
    // What is waited for is that nothing happens.
    thread::sleep(Duration::from_secs(16));
    pipe.read_to_end(&mut read).expect("the rest");
    assert!(receiver.wait().expect("its end").success());
    sender.finish().exits(0);
    assert!(read == data);
}
