//! `netblt bench -c`, and both ends at once: runs the connections and reports their progress.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::bench::{self, BenchObserver, BenchService, Load, OPEN_TO_ALL, Outcome};
use netblt::ticket::{self, Ticket};
use netblt::{Cancel, Error, Family, Options, Progress, Rendezvous};
use netblt_proto::api::CloseReason;
use netblt_proto::config::{Role, Wire};
use netblt_proto::wire::packet::Parameters;
use serde_json::{Value, json};

use super::aggregate::{Aggregate, Step, StreamState, StreamWriter};
use super::{Args, columns, document};
use crate::args::{TICKET_VARIABLE, WireName};
use crate::exit::{Code, Failure};
use crate::hints;
use crate::stdout::{self, say};
use crate::units;

/// The interval at which the output samples the connections.
const LOOK: Duration = Duration::from_millis(20);
/// Limit on the time until the other end in this process listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Args, target: Option<&OsStr>, cancel: &Cancel) -> Result<(), Failure> {
    let options = args.options()?;
    let ticket = target_ticket(args, target)?;
    let tested = test(args, &ticket, &options, cancel)?;
    conclude(args, &options, &tested);
    Ok(())
}

/// The server's ticket; a host name stands for a server without ticket.
fn target_ticket(args: &Args, target: Option<&OsStr>) -> Result<Ticket, Failure> {
    let text = match target {
        Some(target) => target.to_string_lossy().into_owned(),
        None => env::var(TICKET_VARIABLE).unwrap_or_default(),
    };
    if text.is_empty() {
        return Err(Failure::usage(format!(
            "-c: which server? Give HOST[:PORT] or a ticket, or put the ticket into \
             {TICKET_VARIABLE}"
        )));
    }
    if Ticket::looks_like(&text) {
        if args.connection.wire == WireName::Rfc998 {
            return Err(Failure::usage("-c: tickets are for the sealed wire; give HOST[:PORT]"));
        }
        let ticket = text.parse::<Ticket>().map_err(Error::from);
        return ticket.map_err(|error| Failure::transfer(&error, false));
    }
    if args.connection.raw_ip && ticket::address(&text, None).is_ok() {
        return Err(Failure::usage("-c: with --raw-ip a HOST has no port; -p sets NETBLT's"));
    }
    let address = ticket::address(&text, Some(args.port()))
        .map_err(|error| Failure::usage(format!("-c: {error}")))?;
    Ok(Ticket { addresses: vec![address], secret: OPEN_TO_ALL })
}

/// Both ends in this process, over loopback.
pub(super) fn run_here(args: &Args, cancel: &Cancel) -> Result<(), Failure> {
    let mut options = args.options()?;
    let loopback = match options.settings.family {
        Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        Family::V4 | Family::Any => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    options.network.bind = Some(options.network.bind.unwrap_or(loopback));
    let (tickets, ticket) = channel();
    let (results, there) = channel();
    let server = thread::Builder::new().name("server".to_owned()).spawn({
        let (mut options, cancel) = (options.clone(), cancel.clone());
        options.rfc998.port = args.connection.raw_ip.then(|| args.port());
        move || {
            let service = BenchService { private: false, once: false };
            let mut ear = ServerObserverHandle { tickets, results };
            bench::serve(service, &options, &mut ear, &cancel)
        }
    });
    let server = server.map_err(|error| broken(&error.to_string()))?;
    let tested = match ticket.recv_timeout(LISTEN_TIMEOUT) {
        Ok(ticket) => test(args, &ticket, &options, cancel),
        Err(_) => Err(broken("the other end does not listen")),
    };
    cancel.cancel();
    match server.join() {
        Ok(Ok(()) | Err(Error::Interrupted)) => {}
        Ok(Err(error)) => return Err(Failure::transfer(&error, false)),
        Err(_) => return Err(broken("the other end's thread died")),
    }
    let mut tested = tested?;
    let there: Vec<Outcome> = there.try_iter().filter_map(Result::ok).collect();
    // Each end has values that the other cannot know. With several connections they cannot be
    // matched.
    if let ([here], [there]) = (tested.outcomes.as_mut_slice(), there.as_slice()) {
        here.data_timeouts = here.data_timeouts.or(there.data_timeouts);
        here.summary.verified |= there.summary.verified;
    }
    conclude(args, &options, &tested);
    Ok(())
}

fn broken(what: &str) -> Failure {
    Failure::new(Code::Start, format!("the test cannot start: {what}"))
}

struct ServerObserverHandle {
    tickets: Sender<Ticket>,
    results: Sender<Result<Outcome, Error>>,
}

impl BenchObserver for ServerObserverHandle {
    // The receiver of the channel is gone only if the other side has failed, which ends this one.
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        let _ = self.tickets.send(ticket.clone());
        Ok(())
    }
    fn opened(&mut self, _: SocketAddr, _: Role, _: &Parameters) {}
    fn warn(&mut self, error: &Error) {
        say(&format!("netblt: warning: {error}{}", hints::on_error(error)));
    }
    fn closed(&mut self, _: SocketAddr, result: Result<Outcome, Error>) {
        let _ = self.results.send(result);
    }
}

/// A finished test.
struct FinishedTest {
    load: Load,
    streams: Vec<StreamState>,
    intervals: Vec<Value>,
    outcomes: Vec<Outcome>,
}

/// Runs all connections of one test, and reports their progress.
fn test(
    args: &Args,
    ticket: &Ticket,
    options: &Options,
    cancel: &Cancel,
) -> Result<FinishedTest, Failure> {
    let role = if args.test.reverse { Role::Receiver } else { Role::Sender };
    let load = match (args.load(), args.test.parallel) {
        // As in iperf3, the bytes are divided among the connections.
        (Load::Bytes(bytes), streams) => Load::Bytes(bytes.div_ceil(u64::from(streams))),
        (time, _) => time,
    };
    let rendezvous = match (options.wire, ticket.addresses.first()) {
        (Wire::Rfc998, Some(address)) => Rendezvous::Active(address.clone()),
        _ => Rendezvous::Connect(ticket.clone()),
    };
    let board = Aggregate::new(args.test.parallel.into());
    if !args.quiet && !args.json {
        say(&format!("Connecting to {} ...", ticket.addresses.join(", ")));
    }
    let (intervals, results) = thread::scope(|scope| {
        let spawn = |at: usize| {
            let (board, rendezvous) = (&board, &rendezvous);
            let connect = move || {
                let mut writer = StreamWriter { board, at };
                let result = bench::run(role, load, rendezvous, options, &mut writer, cancel);
                board.update(at, |stream| stream.ended = true);
                result
            };
            let thread = thread::Builder::new().name("connection".to_owned());
            thread.spawn_scoped(scope, connect).map_err(|source| {
                // A test needs all connections: if one fails, those that have begun end.
                cancel.cancel();
                Error::Thread { purpose: "for a connection", source }
            })
        };
        let threads: Result<Vec<_>, _> = (0..args.test.parallel.into()).map(spawn).collect();
        let threads = match threads {
            Ok(threads) => threads,
            Err(error) => return (Vec::new(), Err(error)),
        };
        let intervals = watch(args, &board);
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(Error::Fault("a thread died")),
        });
        (intervals, results.collect::<Result<Vec<_>, _>>())
    });
    let outcomes = results.map_err(|error| failure(args, &error))?;
    Ok(FinishedTest { load, streams: board.streams(), intervals, outcomes })
}

fn failure(args: &Args, error: &Error) -> Failure {
    let mut failure = Failure::transfer(error, false);
    let refused = matches!(error, Error::Connect { reason: CloseReason::NoAnswer { hint, .. }, .. }
        if hint.is_some());
    if refused && args.client.is_some() {
        failure.message.push_str("; a server started with --private takes its ticket only");
    }
    failure
}

/// Reports every interval until all connections have ended. Returns the same as JSON.
fn watch(args: &Args, board: &Aggregate) -> Vec<Value> {
    let mut intervals = Vec::new();
    let is_over = |streams: &[StreamState]| streams.iter().all(|stream| stream.ended);
    let mut streams = board.streams();
    while !is_over(&streams) && !streams.iter().any(|stream| stream.peer.is_some()) {
        thread::sleep(LOOK);
        streams = board.streams();
    }
    let (begin, mut before) = (Instant::now(), vec![Progress::default(); streams.len()]);
    let (mut from, mut next) = (0.0, args.interval);
    if !args.json && !args.interval.is_zero() && !is_over(&streams) {
        print(&format!(
            "{:>4} {:>15} {:>12} {:>14} {:>7} {:>7} {:>9}",
            "", "seconds", "moved", "rate", "lost", "resent", "rtt"
        ));
    }
    while !args.interval.is_zero() {
        let over = is_over(&streams);
        if !over && begin.elapsed() < next {
            thread::sleep(LOOK);
            streams = board.streams();
            continue;
        }
        // After a suspension the intervals in it are skipped.
        next = (next + args.interval).max(begin.elapsed() + LOOK);
        let after: Vec<Progress> = streams.iter().map(|stream| stream.progress.clone()).collect();
        let pairs = before.iter().zip(&after);
        let steps: Vec<Step> = pairs.map(|(old, new)| Step::between(old, new)).collect();
        before = after;
        if over && Step::sum(&steps).bytes == 0 {
            break;
        }
        if args.json {
            intervals.push(document::interval(from, &steps));
        } else {
            print_steps(from, &steps);
        }
        from += Step::sum(&steps).seconds;
        if over {
            break;
        }
    }
    intervals
}

fn print_steps(from: f64, steps: &[Step]) {
    let line = |name: &str, step: &Step| {
        print(&format!(
            "{:>4} {:>15} {:>12} {:>14} {:>7} {:>7} {:>9}",
            name,
            format!("{from:.2}-{:.2}", from + step.seconds),
            units::show_bytes(step.bytes),
            units::show_rate(step.bits_per_second()),
            step.lost,
            step.resent,
            step.rtt.map(units::show_duration).unwrap_or_default(),
        ));
    };
    for (i, step) in steps.iter().enumerate() {
        line(&(i + 1).to_string(), step);
    }
    if steps.len() > 1 {
        line("SUM", &Step::sum(steps));
    }
}

fn print(text: &str) {
    // The test goes on, and `stdout` keeps the failure.
    let _ = stdout::write(format!("{}\n", text.trim_end()).as_bytes());
}

/// The end of the output: RFC 1030's columns, or the document.
fn conclude(args: &Args, options: &Options, tested: &FinishedTest) {
    let (outcomes, fixed) = (tested.outcomes.as_slice(), args.connection.is_fixed());
    if args.json {
        let start = document::start(&document::Start {
            wire: options.wire,
            load: tested.load,
            reverse: args.test.reverse,
            policy: options.settings.policy.name(),
            streams: &tested.streams,
        });
        let end = document::end(outcomes, fixed);
        let _ =
            document::print(&json!({ "start": start, "intervals": tested.intervals, "end": end }));
        return;
    }
    print(&columns::head());
    for (i, outcome) in outcomes.iter().enumerate() {
        print(&columns::row(&(i + 1).to_string(), outcome, fixed));
    }
    if outcomes.len() > 1 {
        let (bytes, seconds) = (document::total_bytes(outcomes), document::longest(outcomes));
        let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        let (bytes, rate) = (units::show_bytes(bytes), units::show_rate(rate));
        print(&format!(" SUM {bytes} in {seconds:.2} s: {rate}"));
    }
}
