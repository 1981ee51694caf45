//! `netblt-lab emulate tun`: two hosts with a bad network between them, for any programs.
//!
//! 1. Say what is missing, if anything is.
//! 2. Make two namespaces and join their devices (`netblt_emu::netns`, `netblt_emu::tun`).
//! 3. Start the programs: host b's first, then host a's, then the command.
//! 4. Print samples until the main program ends; the others may end by themselves shortly after.
//! 5. End what is left, print the totals, remove the namespaces.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use netblt_emu::netns::{self, Hosts};
use netblt_emu::tun::{DirectionReport, Tun, TunReport};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use netblt_path::scenario::Scenario;

use super::options::LinkArgs;
use super::stats::{self, DirectionState, Stats, StatsArgs, View};
use crate::exit::{Code, Failure};
use crate::units;

/// The interval at which the end is checked.
const LOOK_ROUND: Duration = Duration::from_millis(20);
/// A server in host b has this long to listen before host a's program starts.
const HEAD_START: Duration = Duration::from_millis(300);
/// When the main program has ended, the others have this long and four round trips.
const FAREWELL: Duration = Duration::from_secs(1);
/// The MTU of a device if the link has none, in bytes.
const DEVICE_MTU: u16 = 1500;

/// Make two hosts (network namespaces) joined by a bad network, and run programs in them
///
/// Needs root on Linux. COMMAND runs outside of both and finds them in its environment:
/// NETBLT_NS_A and NETBLT_NS_B are the namespaces' names, NETBLT_IP_A, NETBLT_IP_B, NETBLT_IP6_A
/// and NETBLT_IP6_B their addresses. Start programs in them with `ip netns exec`. Without COMMAND
/// and --host-a/-b it is a shell. Everything ends with COMMAND, or with host a's program if there
/// is none, or else with host b's; its exit code is this one's. Whatever else still runs in the
/// namespaces is ended, and they are removed; after a kill -9, by the next run.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    netblt-lab emulate tun --rate 100Mbit --rtt 70ms --loss 1% \\\n      \
    --host-b 'iperf3 -s -1' --host-a 'iperf3 -c $NETBLT_IP_B -C bbr'\n  \
    netblt-lab emulate tun --scenario geo-satellite -- sh -c \\\n      \
    'ip netns exec $NETBLT_NS_A ping -c 5 $NETBLT_IP_B'\n  \
    netblt-lab emulate tun --scenario leo-satellite        a shell")]
pub(crate) struct Args {
    /// Run this in host a, by the shell
    #[arg(long, value_name = "CMD")]
    host_a: Option<OsString>,
    /// Run this in host b, by the shell; it is started first
    #[arg(long, value_name = "CMD")]
    host_b: Option<OsString>,
    /// Largest packet of the hosts' devices, if it is not the link's MTU
    ///
    /// With a smaller --mtu the path drops packets that the hosts take to be small enough, which
    /// tests path MTU discovery.
    #[arg(long, value_name = "BYTES", value_parser = units::number::<u16>(576, 65_535))]
    device_mtu: Option<u16>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    stats: StatsArgs,
    /// The command to run
    #[arg(last = true, help_heading = "Arguments", value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let scenario = args.link.scenario()?;
    let missing = netns::missing();
    if !missing.is_empty() {
        return Err(Failure::new(
            Code::Start,
            format!(
                "`netblt-lab emulate tun` cannot run here; missing: {}. `netblt-lab emulate relay` \
                 carries UDP without any of that",
                missing.join("; ")
            ),
        ));
    }
    let mut stats = Stats::new(&args.stats, false)?;
    let capture = args.stats.capture()?;
    let signals = SignalWatch::begin()?;
    let failed = |error: io::Error| Failure::new(Code::Start, format!("no network: {error}"));
    let hosts = Hosts::create().map_err(failed)?;
    let mtu = |link: Option<u16>| args.device_mtu.or(link).unwrap_or(DEVICE_MTU);
    let devices = hosts.open(mtu(scenario.up.mtu), mtu(scenario.down.mtu)).map_err(failed)?;
    let links = (scenario.up.clone(), scenario.down.clone());
    let tun = Tun::start(devices, links, args.link.seed, capture.clone()).map_err(failed)?;
    print_start(&mut stats, args, &scenario, &hosts);

    let status = Programs::start(args, &hosts)
        .and_then(|programs| programs.wait(&signals, &tun, &mut stats, scenario.rtt()));
    hosts.end_programs();
    let overflowed = overflowed(&hosts);
    let report = tun.stop().map_err(failed)?;
    stats.finish(&view(&report, overflowed))?;
    args.stats.end_capture(capture)?;
    Ok(exit_code(status?))
}

fn print_start(stats: &mut Stats, args: &Args, scenario: &Scenario, hosts: &Hosts) {
    let (a, b) = (&hosts.a, &hosts.b);
    let host = |host: &netns::Host| {
        json!({
            "namespace": host.name,
            "address": host.address.to_string(),
            "address6": host.address6.to_string(),
        })
    };
    let data = json!({
        "a": host(a),
        "b": host(b),
        "scenario": scenario.name,
        "links": stats::links(scenario, stats::From::Start),
        "seed": args.link.seed,
    });
    let said = format!(
        "Host a: {} in namespace {}; host b: {} in {}.",
        a.address, a.name, b.address, b.name
    );
    stats.begin(data, &said);
}

fn overflowed(hosts: &Hosts) -> u64 {
    hosts.overflowed(&hosts.a) + hosts.overflowed(&hosts.b)
}

fn view(report: &TunReport, overflowed: u64) -> View {
    let side = |way: &DirectionReport| DirectionState {
        counters: way.counters,
        queue_time: way.queue_time,
    };
    let (up, down) = (&report.up, &report.down);
    View {
        up: side(up),
        down: side(down),
        refused: up.refused + down.refused,
        unsent: up.unsent + down.unsent,
        late: up.late + down.late,
        late_max: up.late_max.max(down.late_max),
        overflowed,
    }
}

/// The exit code as a shell shows it: the program's own, or 128 plus the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Signals, to be passed on to the main program: the namespaces must outlive it.
struct SignalWatch(Receiver<i32>);

impl SignalWatch {
    fn begin() -> Result<Self, Failure> {
        let failed = |error| Failure::new(Code::Start, format!("cannot catch signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let (caught, watch) = mpsc::channel();
        let listen = move || {
            for signal in signals.forever() {
                if caught.send(signal).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(Self(watch))
    }

    /// The signal for the program, if one came.
    fn next(&self) -> Option<Signal> {
        match self.0.try_recv().ok()? {
            // The terminal has sent it to the program already, which handles it.
            SIGINT if io::stdin().is_terminal() => None,
            SIGINT => Some(Signal::INT),
            _ => Some(Signal::TERM),
        }
    }
}

/// The running programs.
struct Programs {
    main: Child,
    others: Vec<Child>,
}

impl Programs {
    fn start(args: &Args, hosts: &Hosts) -> Result<Self, Failure> {
        let (mut programs, mut wanted) = (Vec::new(), Vec::new());
        for (host, line) in [(&hosts.b, &args.host_b), (&hosts.a, &args.host_a)] {
            if let Some(line) = line {
                let mut command = netns::command_inside(&host.name, OsStr::new("sh"));
                command.arg("-c").arg(line);
                wanted.push((format!("sh -c {}", line.display()), command));
            }
        }
        if let Some((program, rest)) = args.command.split_first() {
            let mut command = Command::new(program);
            command.args(rest);
            wanted.push((program.display().to_string(), command));
        } else if wanted.is_empty() {
            let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
            let shell = shell.unwrap_or_else(|| OsString::from("/bin/sh"));
            wanted.push((shell.display().to_string(), Command::new(shell)));
        }
        let last = wanted.len() - 1;
        for (i, (name, mut command)) in wanted.into_iter().enumerate() {
            if i > 0 {
                thread::sleep(HEAD_START);
            }
            if i < last {
                command.stdin(Stdio::null());
            }
            let started = environment(&mut command, hosts).spawn();
            programs.push(started.map_err(|error| {
                Failure::new(Code::Start, format!("cannot start {name}: {error}"))
            })?);
        }
        match programs.pop() {
            Some(main) => Ok(Self { main, others: programs }),
            None => Err(Failure::new(Code::Start, "there is nothing to run")),
        }
    }

    /// Waits for the main program's end, and a little for the others.
    fn wait(
        mut self,
        signals: &SignalWatch,
        tun: &Tun,
        stats: &mut Stats,
        rtt: Duration,
    ) -> Result<ExitStatus, Failure> {
        let failed = |error: io::Error| Failure::new(Code::Start, format!("waiting: {error}"));
        let status = loop {
            if let Some(status) = self.main.try_wait().map_err(failed)? {
                break status;
            }
            if let Some(signal) = signals.next() {
                send(&self.main, signal);
            }
            if !tun.is_running() {
                // Its devices are gone. The reason is reported when it is stopped.
                send(&self.main, Signal::TERM);
            }
            thread::sleep(stats.wait(LOOK_ROUND));
            // Reading what overflowed takes a process, so samples go without.
            stats.sample(|| view(&tun.report(), 0));
        };
        let deadline = Instant::now() + FAREWELL + rtt.saturating_mul(4).min(10 * FAREWELL);
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while Instant::now() < deadline && self.others.iter_mut().any(running) {
            thread::sleep(LOOK_ROUND);
        }
        Ok(status)
    }
}

fn environment<'a>(command: &'a mut Command, hosts: &Hosts) -> &'a mut Command {
    for (end, host) in [("A", &hosts.a), ("B", &hosts.b)] {
        command
            .env(format!("NETBLT_NS_{end}"), &host.name)
            .env(format!("NETBLT_IP_{end}"), host.address.to_string())
            .env(format!("NETBLT_IP6_{end}"), host.address6.to_string());
    }
    command
}

fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}
