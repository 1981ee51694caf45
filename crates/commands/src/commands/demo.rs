//! `netblt demo`: a real transfer over a bad network that exists only in this process.
//!
//! 1. Make data in a temporary directory.
//! 2. A receiver listens on loopback; its ticket names its port.
//! 3. A relay with the delay, rate and loss asked for takes its place in the ticket.
//! 4. A sender pushes to the relay: real sockets, real files, real encryption.
//! 5. Compare the files and the throughput with what the link could carry at best.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use netblt::{
    Cancel, Destination, Error, Observer, Options, Progress, Rendezvous, Source, Summary, Ticket,
    Warning,
};
use netblt_path::rng::Probability;
use netblt_path::text;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::units::Rate;
use netblt_proto::wire::data_overhead;
use netblt_relay::{Relay, RelayReport};
use tempfile::TempDir;

use crate::args::OutputArgs;
use crate::exit::{Code, Failure};
use crate::json::{self, DemoData};
use crate::reporter::Reporter;
use crate::{signals, units};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// IP packets of Ethernet: what most networks take.
const MTU: u16 = 1500;
/// How long the receiver may take to say where it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
/// One late packet in this many makes the measurement doubtful.
const MANY_LATE: u64 = 100;
const CHUNK_BYTES: usize = 1 << 16;

/// Show a real transfer over an emulated bad network, on this machine alone
///
/// Sends generated data through a relay in this process that delays, limits and loses packets, then
/// compares the result with the best that the link can carry.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The rate of the link, headers included
    #[arg(long, default_value = "200Mbit", value_parser = units::rate)]
    rate: Rate,
    /// Round trip time of the link
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    rtt: Duration,
    /// Share of the packets that the link loses, in each direction
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = loss)]
    loss: Probability,
    /// How much to send
    #[arg(long, default_value = "256MiB", value_parser = units::bytes)]
    size: u64,
    /// Which packets are lost follows from this number
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = units::number::<u64>(0, u64::MAX))]
    seed: u64,
    #[command(flatten)]
    show: OutputArgs,
}

fn loss(value: &str) -> Result<Probability, String> {
    let share = text::parse_percent(value).map_err(|error| error.to_string())?;
    if share <= Probability::from_percent(50) {
        Ok(share)
    } else {
        Err("the demo's link loses from 0% to 50%".to_owned())
    }
}

/// A probability as a number from 0 to 1.
fn share(probability: Probability) -> f64 {
    f64::from(probability.ppb()) / 1e9
}

pub(crate) fn run(args: &Args) -> Code {
    let mut report = Reporter::new(Role::Sender, args.show, false);
    let result = demo(args, &mut report);
    report.finish(result)
}

fn demo(args: &Args, report: &mut Reporter) -> Result<Summary, Failure> {
    let cancel = Cancel::default();
    signals::watch(&cancel, report.is_talkative())?;
    let place = tempfile::Builder::new().prefix("netblt-demo-").tempdir();
    let place = place.map_err(|error| file_failure(&std::env::temp_dir(), &error))?;
    signals::doom(Some(place.path().to_owned()));
    let result = transfer(args, report, &place, &cancel);
    let removed = place.close();
    signals::doom(None);
    if let Err(error) = removed {
        report.warn(&format!("the temporary directory could not be removed: {error}"));
    }
    let summary = result?;
    print_share(args, report, &summary);
    Ok(summary)
}

fn transfer(
    args: &Args,
    report: &mut Reporter,
    place: &TempDir,
    cancel: &Cancel,
) -> Result<Summary, Failure> {
    let source = place.path().join("demo.bin");
    let destination = place.path().join("received");
    report.note(&format!(
        "Demo: {} over {} with {} round trip and {:.1} % loss, seed {}.",
        units::show_bytes(args.size),
        args.rate,
        units::show_duration(args.rtt),
        share(args.loss) * 100.0,
        args.seed
    ));
    fs::create_dir(&destination).map_err(|error| file_failure(&destination, &error))?;
    make_data(&source, args, cancel)?;

    let (listening, tickets) = mpsc::channel();
    let receiver = spawn_receiver(&destination, listening, cancel)?;
    let sent = push(args, report, &source, tickets, cancel);
    if sent.is_err() {
        // Without a sender it would wait for ever.
        cancel.cancel();
    }
    let received = receiver.join().map_err(|_| broken("the receiver's thread died"))?;
    match (sent, received) {
        (Ok(summary), Ok(_)) => {
            if same(&source, &destination.join("demo.bin"))? {
                Ok(summary)
            } else {
                Err(Failure::new(Code::Unverified, "the file that arrived is not the one sent"))
            }
        }
        // The receiver's own error says more than the sender's report of it.
        (Err(_), Err(error)) if !matches!(error, Error::Interrupted | Error::Ended(_)) => {
            Err(report.failure(&error))
        }
        (Err(failure), _) => Err(failure),
        (Ok(_), Err(error)) => Err(report.failure(&error)),
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.network.bind = Some(LOOPBACK);
    // A network as they are, and not as this machine's own.
    options.network.mtu = Some(MTU);
    options
}

type ReceiverThread = thread::JoinHandle<Result<Summary, Error>>;

fn spawn_receiver(
    directory: &Path,
    listening: Sender<Ticket>,
    cancel: &Cancel,
) -> Result<ReceiverThread, Failure> {
    let destination = Destination::Directory(directory.to_owned());
    let cancel = cancel.clone();
    let receive = move || {
        let mut observer = TicketOnly(listening);
        netblt::receive(destination, &Rendezvous::Listen, &options(), &mut observer, &cancel)
    };
    let name = "receiver".to_owned();
    thread::Builder::new().name(name).spawn(receive).map_err(|error| broken(&error.to_string()))
}

fn push(
    args: &Args,
    report: &mut Reporter,
    source: &Path,
    tickets: Receiver<Ticket>,
    cancel: &Cancel,
) -> Result<Summary, Failure> {
    let mut ticket = match tickets.recv_timeout(LISTEN_TIMEOUT) {
        Ok(ticket) => ticket,
        Err(_) if cancel.is_cancelled() => {
            return Err(Failure::transfer(&Error::Interrupted, false));
        }
        Err(_) => return Err(broken("the receiver does not listen")),
    };
    let target = ticket.addresses.iter().find_map(|address| address.parse().ok());
    let target = target.ok_or_else(|| broken("the receiver's ticket has no address"))?;
    let link = EmulatedLink::start(args, target)?;
    ticket.addresses = vec![link.near.to_string()];
    let source = Source::Paths(vec![PathBuf::from(source)]);
    let sent = netblt::send(source, &Rendezvous::Connect(ticket), &options(), report, cancel);
    report.clear();
    link.finish(report);
    sent.map_err(|error| report.failure(&error))
}

/// The emulated link, at work in a thread of its own.
struct EmulatedLink {
    /// The address of the near side.
    near: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<io::Result<RelayReport>>,
}

impl EmulatedLink {
    fn start(args: &Args, target: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(Code::Socket, format!("the relay: {error}"));
        let options = LinkOptions {
            rate: Some(args.rate),
            delay: args.rtt / 2,
            loss: args.loss,
            queue: QueueLimit::bdp(Some(args.rate), args.rtt),
            mtu: Some(MTU),
            ..LinkOptions::default()
        };
        let (seed, stop) = (args.seed, Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let (bound, near) = mpsc::channel();
        // Bound in its thread: it holds the system's event queue, which stays there.
        let carry = move || {
            let listen = SocketAddr::new(LOOPBACK, 0);
            let relay = Relay::bind(listen, target, options.clone(), options, seed)?;
            let _ = bound.send(relay.local_addr());
            relay.run(&stopped)
        };
        let thread =
            thread::Builder::new().name("relay".to_owned()).spawn(carry).map_err(failed)?;
        match near.recv() {
            Ok(near) => Ok(Self { near, stop, thread }),
            Err(_) => Err(match thread.join() {
                Ok(Err(error)) => failed(error),
                _ => broken("the relay's thread died"),
            }),
        }
    }

    /// Ends it, and warns if it did not keep its schedule.
    fn finish(self, report: &mut Reporter) {
        self.stop.store(true, Ordering::SeqCst);
        let trouble = match self.thread.join() {
            Ok(Ok(link)) => {
                let packets = link.up.entered.packets + link.down.entered.packets;
                if link.late.saturating_mul(MANY_LATE) <= packets {
                    return;
                }
                format!(
                    "this machine is too busy to play this link: {} of {} packets came over it \
                     more than 1 ms late",
                    units::show_count(link.late),
                    units::show_count(packets)
                )
            }
            Ok(Err(error)) => format!("the relay failed: {error}"),
            Err(_) => "the relay's thread died".to_owned(),
        };
        report.warn(&trouble);
    }
}

/// Gets the receiver's ticket. The sender's side reports the rest.
struct TicketOnly(Sender<Ticket>);

impl Observer for TicketOnly {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        // The receiver of the channel is gone only if the sender's side has failed, which cancels
        // us.
        let _ = self.0.send(ticket.clone());
        Ok(())
    }
    fn connected(&mut self, _: &str) {}
    fn progress(&mut self, _: &Progress) {}
    fn silent(&mut self, _: bool) {}
    fn restarted(&mut self) {}
    fn warn(&mut self, _: &Warning) {}
}

/// Data that no compression and no empty block could fake.
fn make_data(path: &Path, args: &Args, cancel: &Cancel) -> Result<(), Failure> {
    let failed = |error: io::Error| file_failure(path, &error);
    let mut file = File::create(path).map_err(failed)?;
    let mut state = args.seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = args.size;
    while left > 0 {
        if cancel.is_cancelled() {
            return Err(Failure::transfer(&Error::Interrupted, false));
        }
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&splitmix(&mut state).to_le_bytes());
        }
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        file.write_all(&chunk[..take]).map_err(failed)?;
        left -= take as u64;
    }
    Ok(())
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether two files hold the same bytes. The demo does not rely on the protocol's own check.
fn same(a: &Path, b: &Path) -> Result<bool, Failure> {
    let open = |path: &Path| {
        File::open(path)
            .map(|file| BufReader::with_capacity(CHUNK_BYTES, file))
            .map_err(|error| file_failure(path, &error))
    };
    let (mut left, mut right) = (open(a)?, open(b)?);
    let (mut x, mut y) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let n = fill(&mut left, &mut x).map_err(|error| file_failure(a, &error))?;
        let m = fill(&mut right, &mut y).map_err(|error| file_failure(b, &error))?;
        if x[..n] != y[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

/// Reads until `chunk` is full or the file ends.
fn fill(file: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < chunk.len() {
        match file.read(&mut chunk[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// The best anybody could do: all of the link's rate, each lost packet sent again, headers paid.
fn possible_bps(args: &Args) -> f64 {
    let overhead = Config::new(Wire::Sealed, Role::Sender).overhead_bytes;
    let packet = u32::from(MTU);
    let data = f64::from(packet.saturating_sub(overhead + data_overhead(Wire::Sealed)));
    let packet = f64::from(packet);
    args.rate.bits_per_second() as f64 * (1.0 - share(args.loss)) * data / packet
}

fn print_share(args: &Args, report: &Reporter, summary: &Summary) {
    let possible = possible_bps(args);
    let of_it = |bps: f64| if possible > 0.0 { bps / possible } else { 0.0 };
    let (real, steady) = (of_it(summary.real_bps), of_it(summary.steady_bps));
    report.note(&format!(
        "Achieved {} of at most {}: {:.0} %, and {:.0} % with opening and closing.",
        units::show_rate(summary.steady_bps),
        units::show_rate(possible),
        steady * 100.0,
        real * 100.0
    ));
    report.note("(At most: the link's rate, less its loss, less the headers of the packets.)");
    report.emit(
        "demo",
        DemoData {
            possible_mbps: json::rounded(possible / 1e6),
            real_share: json::rounded(real),
            steady_share: json::rounded(steady),
        },
    );
}

fn file_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::File, format!("{}: {error}", path.display()))
}

fn broken(what: &str) -> Failure {
    Failure::new(Code::Start, format!("the demo cannot start: {what}"))
}
