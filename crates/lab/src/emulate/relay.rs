//! `netblt-lab emulate relay`: a bad network for UDP, without privileges.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use netblt::Cancel;
use netblt_path::scenario::Scenario;
use netblt_relay::capture::Capture;
use netblt_relay::{Relay, RelayCounters, RelayReport};
use serde_json::json;

use super::options::LinkArgs;
use super::stats::{self, DirectionState, Stats, StatsArgs, View};
use crate::exit::{Code, Failure};
use crate::{signals, units};

/// The interval at which the end is checked.
const LOOK_ROUND: Duration = Duration::from_millis(50);

/// Forward UDP between clients and a target as a bad network would; needs no privileges
///
/// Clients send to the --listen address instead of --to, and answers come back to them. All clients
/// share the path. Each datagram is treated by itself, however many the system hands over at once.
/// Datagrams that --corrupt changes arrive, because the system gives them a new checksum. To have
/// them dropped on arrival as on a real network, use `netblt-lab emulate tun`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    netblt-lab emulate relay --listen 127.0.0.1:4000 --to 127.0.0.1:5000 \\\n      \
    --scenario lte\n  \
    netblt-lab emulate relay --listen [::]:4000 --to host:5000 \\\n      \
    --rate 1Gbit --rtt 100ms --loss 1%\n\n\
    Ctrl-C ends it and prints what happened.")]
pub(crate) struct Args {
    /// The address for clients; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The destination of their datagrams
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// End by itself after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    stats: StatsArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = args.link.scenario()?;
    let target = resolve(&args.to)?;
    let mut stats = Stats::new(&args.stats, true)?;
    let capture = args.stats.capture()?;
    let cancel = Cancel::default();
    signals::watch(&cancel, false)?;
    let running = Running::start(args, target, &scenario, capture.clone())?;
    let data = json!({
        "listen": running.local.to_string(),
        "to": target.to_string(),
        "scenario": scenario.name,
        "links": stats::links(&scenario, stats::From::FirstPacket),
        "seed": args.link.seed,
    });
    let said = format!("Relaying from {} to {target}; Ctrl-C ends it.", running.local);
    stats.begin(data, &said);
    let end = args.time.and_then(|time| Instant::now().checked_add(time));
    while !cancel.is_cancelled() && !running.thread.is_finished() {
        let left = end.map_or(LOOK_ROUND, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break;
        }
        thread::sleep(stats.wait(LOOK_ROUND.min(left)));
        stats.sample(|| view(&running.counters.read()));
    }
    let report = running.finish()?;
    stats.finish(&view(&report))?;
    args.stats.end_capture(capture)
}

fn view(report: &RelayReport) -> View {
    View {
        up: DirectionState { counters: report.up, queue_time: report.up_queue_time },
        down: DirectionState { counters: report.down, queue_time: report.down_queue_time },
        refused: report.refused,
        unsent: report.unsent,
        late: report.late,
        late_max: report.late_max,
        overflowed: 0,
    }
}

fn resolve(to: &str) -> Result<SocketAddr, Failure> {
    let found = to.to_socket_addrs().map_err(|error| {
        Failure::usage(format!("--to {to}: {error}; expected an address or name, and a port"))
    })?;
    let first = found.into_iter().next();
    first.ok_or_else(|| Failure::usage(format!("--to {to}: the name has no address")))
}

/// A relay in a thread of its own.
struct Running {
    local: SocketAddr,
    counters: RelayCounters,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<io::Result<RelayReport>>,
}

impl Running {
    fn start(
        args: &Args,
        target: SocketAddr,
        scenario: &Scenario,
        capture: Option<Arc<Capture>>,
    ) -> Result<Self, Failure> {
        let (listen, seed) = (args.listen, args.link.seed);
        let (up, down) = (scenario.up.clone(), scenario.down.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (bound, started) = mpsc::channel();
        // Bound in its thread: it holds the system's event queue, which stays there.
        let carry = move || {
            let mut relay = Relay::bind(listen, target, up, down, seed)?;
            if let Some(capture) = capture {
                relay.capture(capture);
            }
            let _ = bound.send((relay.local_addr(), relay.counters()));
            relay.run(&stopped)
        };
        let failed = |error: io::Error| {
            Failure::new(Code::Socket, format!("cannot relay from {listen}: {error}"))
        };
        let thread =
            thread::Builder::new().name("relay".to_owned()).spawn(carry).map_err(failed)?;
        match started.recv() {
            Ok((local, counters)) => Ok(Self { local, counters, stop, thread }),
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(failed(error)),
                _ => Err(failed(io::Error::other("its thread died"))),
            },
        }
    }

    fn finish(self) -> Result<RelayReport, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("it died")));
        report.map_err(|error| Failure::new(Code::Socket, format!("the relay: {error}")))
    }
}
