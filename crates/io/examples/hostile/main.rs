//! One client that is let in and means harm, to see what that does to the others of a server: the
//! figures of `docs/results/hardening.md`. For servers of your own.
//!
//!     hostile ADDRESS KIND SECONDS FILE KEY_FILE SERVER_KEY
//!
//! FILE is one that the server has, of many megabytes. KIND:
//!
//! * `slow`: fetches it sixteen times at once, and takes 64 kB a second each
//! * `silent`: asks for it and grants buffers, and sends nothing more; as often as it is let in
//! * `gos`: 20,000 packets a second of GOs, OKs and RESENDs, authentic, in and out of order
//! * `asks`: asks what stands there, as fast as the answers come, 64 times at once in one session
//!   and four times with a connection for each
//! * `lies`: offers, grants, has, reports and announces what cannot be, in turn
//! * `lists`: lists the directory of the file and goes before the answer comes, eight times at once
//! * `leaves`: fetches the file and goes when the first of it comes, with a word or without
//!
//! Tells how often it did that.

mod rogue;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netblt::keys::{file, line};
use netblt::serve::Session;
use netblt::serve::client::{Client, Fetch};
use netblt::{Cancel, Destination, Identity, Observer, Options, Rendezvous};
use netblt_proto::config::Role;
use netblt_proto::units::{BufferNumber, PacketNumber};
use netblt_proto::wire::packet::{Accepted, Burst, Go, Have, IndexRange, Message, Report, Resend};
use netblt_proto::wire::sealed::{ControlWriter, PacketType};

use rogue::{Failed, Rogue, Target, plain};

/// The client strings of who asks and who sends (`docs/protocol §8.8`).
const ASK: &str = "netblt ask";
const SEND: &str = "netblt send";
/// Kinds of requests.
const GET: u8 = 1;
const PUT: u8 = 2;
const LIST: u8 = 4;
/// Authentic packets a second of `gos`.
const RATE: f64 = 20_000.0;
/// What is fetched slowly at once, and asked at once in a session.
const SLOW: usize = 16;
const ASKED: usize = 64;

/// What it has to do.
struct Task {
    target: Target,
    file: String,
    until: Instant,
    done: AtomicU64,
}

impl Task {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// One that asks for the file.
    fn asking(&self) -> Result<Rogue, Failed> {
        let mut rogue = Rogue::open(&self.target, &plain(Role::Receiver, ASK))?;
        rogue.ask(GET, (&self.file, "x"));
        Ok(rogue)
    }

    fn rendezvous(&self) -> Result<Rendezvous, Failed> {
        let identity = Identity::client(self.target.own.clone(), self.target.server)?;
        Ok(Rendezvous::Call { addresses: vec![self.target.address.to_string()], identity })
    }
}

struct Deaf;

impl Observer for Deaf {}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, seconds, path, key, server] = args.as_slice() else {
        return Err("hostile ADDRESS KIND SECONDS FILE KEY_FILE SERVER_KEY".into());
    };
    let own = file::read(key.as_ref())?;
    let target = Target { address: address.parse()?, own, server: line::public_key(server)? };
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let task = Task { target, file: path.clone(), until, done: AtomicU64::new(0) };
    match kind.as_str() {
        "slow" => slow(&task)?,
        "silent" => silent(&task),
        "gos" => gos(&task),
        "asks" => asks(&task)?,
        "lies" => lies(&task),
        "lists" => lists(&task),
        "leaves" => leaves(&task),
        _ => return Err("a kind of harm that is not known".into()),
    }
    println!("{kind}: {} times", task.done.load(Ordering::Relaxed));
    Ok(())
}

/// Takes little at a time, until it is time to go.
struct Trickle(Instant);

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if Instant::now() >= self.0 {
            return Err(std::io::Error::other("enough"));
        }
        thread::sleep(Duration::from_millis(250));
        Ok(bytes.len().min(16 << 10))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn slow(task: &Task) -> Result<(), Failed> {
    let rendezvous = task.rendezvous()?;
    thread::scope(|scope| {
        for _ in 0..SLOW {
            scope.spawn(|| {
                let (options, cancel) = (Options::default(), Cancel::default());
                let server = Client {
                    rendezvous: &rendezvous,
                    options: &options,
                    cancel: &cancel,
                    session: None,
                };
                let path = task.file.as_bytes().to_vec();
                let fetch = Fetch { path, name: "x".into(), trees: false, bytes: None, data: None };
                while task.goes_on() {
                    task.count();
                    let into = Destination::writer(Trickle(task.until));
                    let _ = server.get(&fetch, into, &mut Deaf);
                }
            });
        }
    });
    Ok(())
}

fn silent(task: &Task) {
    // Their sockets stay, so that no ICMP error shows the server that the port is closed.
    let mut gone = Vec::new();
    while task.goes_on() {
        match task.asking() {
            Ok(mut rogue) => {
                rogue.go(1, 64);
                task.count();
                gone.push(rogue);
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn gos(task: &Task) {
    while task.goes_on() {
        let Ok(mut rogue) = task.asking() else { continue };
        let (start, mut said, packet_bytes) = (Instant::now(), 0u64, rogue.packet_bytes);
        while task.goes_on() && !rogue.is_over() {
            while (said as f64) < start.elapsed().as_secs_f64() * RATE {
                let (first, generation) = (BufferNumber(1 + said / 64 % 64), 0);
                rogue.control(&[match said % 4 {
                    0 => Message::Go(Go { first, count: 1, packet_bytes, generation }),
                    1 => Message::Go(Go { first, count: 64, packet_bytes, generation }),
                    2 => Message::Resend(Resend {
                        buffer: first,
                        missing: vec![IndexRange { start: 0, end: u32::MAX }],
                    }),
                    _ => Message::Go(Go {
                        first: BufferNumber(1 << (said % 40)),
                        count: 4096,
                        packet_bytes: 128,
                        generation: said as u8 & 3,
                    }),
                }]);
                said += 1;
                task.count();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn asks(task: &Task) -> Result<(), Failed> {
    let rendezvous = task.rendezvous()?;
    let session = Session::new(rendezvous.clone(), &Options::default());
    thread::scope(|scope| {
        for number in 0..ASKED + 4 {
            let (rendezvous, session) = (&rendezvous, &session);
            scope.spawn(move || {
                let (options, cancel) = (Options::default(), Cancel::default());
                let session = Some(session).filter(|_| number < ASKED);
                let server = Client { rendezvous, options: &options, cancel: &cancel, session };
                while task.goes_on() {
                    match server.stat(task.file.as_bytes(), &mut Deaf) {
                        Ok(_) => task.count(),
                        Err(_) => thread::sleep(Duration::from_millis(10)),
                    }
                }
            });
        }
    });
    session.close();
    Ok(())
}

fn lies(task: &Task) {
    for turn in 0u64.. {
        if !task.goes_on() {
            return;
        }
        let _ = match turn % 4 {
            0 => lie_as_receiver(task),
            1 => lie_of_what_it_has(task),
            2 => lie_as_sender(task, " data=1 files=1"),
            _ => lie_as_sender(task, " data=4611686018427387904 files=1"),
        };
        task.count();
    }
}

/// Has room for all there is, and gets more than was ever sent.
fn lie_as_receiver(task: &Task) -> Result<(), Failed> {
    let mut offer = plain(Role::Receiver, ASK);
    let parameters = &mut offer.parameters;
    (parameters.buffer_bytes, parameters.packet_bytes) = (1 << 26, u32::MAX);
    (parameters.max_outstanding, parameters.transfer_bytes) = (u32::MAX, Some(u64::MAX - 1));
    parameters.burst = Burst { packets: u32::MAX, interval: Duration::ZERO };
    (parameters.death_timer, offer.table_bytes) = (Duration::MAX, u32::MAX);
    let mut rogue = Rogue::open(&task.target, &offer)?;
    rogue.ask(GET, (&task.file, "x"));
    let (first, packet_bytes) = (BufferNumber(1), rogue.packet_bytes);
    rogue.control(&[Message::Go(Go { first, count: u32::MAX, packet_bytes, generation: 0 })]);
    let report = Report {
        at_micros: u32::MAX,
        packets: u64::MAX,
        bytes: u64::MAX,
        highest: PacketNumber(u64::MAX),
        largest: u16::MAX,
        ..Report::default()
    };
    let mut body = Vec::new();
    ControlWriter::new(&mut body, true, 1200).push_report(&report);
    rogue.say(PacketType::Control, &body);
    let all = Accepted {
        first: BufferNumber(1),
        count: u32::MAX,
        offer: Some(Burst { packets: u32::MAX, interval: Duration::ZERO }),
        control_timer: Duration::from_secs(4000),
    };
    rogue.control(&[Message::Ok(all)]);
    rogue.first_data();
    rogue.control(&[Message::Ok(Accepted { first: BufferNumber(u64::MAX), ..all })]);
    Ok(())
}

/// Asks with a request that says it is four gigabytes long, and goes on saying it.
fn lie_of_what_it_has(task: &Task) -> Result<(), Failed> {
    let mut rogue = Rogue::open(&task.target, &plain(Role::Receiver, ASK))?;
    for _ in 0..200 {
        let part = Message::Have(Have { bytes: vec![0xff; 512], last: false });
        rogue.control(&[part.clone(), part]);
        if rogue.is_over() {
            break;
        }
    }
    Ok(())
}

/// Announces files, says something of them, and sends something else without end.
fn lie_as_sender(task: &Task, promise: &str) -> Result<(), Failed> {
    let mut asking = Rogue::open(&task.target, &plain(Role::Receiver, ASK))?;
    asking.ask(PUT, ("lies", ""));
    asking.go(1, 8);
    let answer = asking.first_data().ok_or("no answer")?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let number = answer.split("put ").nth(1).and_then(|rest| rest.split([' ', '\0']).next());
    let number = number.ok_or("no number")?;
    asking.say(PacketType::Quit, b"");
    let client = format!("{SEND}{promise} put={number}");
    let mut rogue = Rogue::open(&task.target, &plain(Role::Sender, &client))?;
    let data = vec![0x5a; rogue.packet_bytes as usize];
    for index in 0..2000u32 {
        rogue.data(1 + u64::from(index / 1000), index % 1000 * 3, index % 100 == 99, &data);
        if index % 64 == 0 && rogue.is_over() {
            break;
        }
    }
    Ok(())
}

fn lists(task: &Task) {
    let directory = task.file.rsplit_once('/').map_or("", |(directory, _)| directory);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while task.goes_on() {
                    let Ok(mut rogue) = Rogue::open(&task.target, &plain(Role::Receiver, ASK))
                    else {
                        thread::sleep(Duration::from_millis(50));
                        continue;
                    };
                    rogue.ask(LIST, (directory, ""));
                    rogue.go(1, 8);
                    rogue.say(PacketType::Quit, b"");
                    task.count();
                }
            });
        }
    });
}

fn leaves(task: &Task) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while task.goes_on() {
                    let Ok(mut rogue) = task.asking() else {
                        thread::sleep(Duration::from_millis(50));
                        continue;
                    };
                    rogue.go(1, 64);
                    rogue.first_data();
                    // Without a word its place is taken for as long as the server waits for it.
                    if !task.done.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
                        rogue.say(PacketType::Quit, b"");
                    }
                }
            });
        }
    });
}
