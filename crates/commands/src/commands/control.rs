//! `netblt control`: transfers of this user's that run on this machine, listed and changed.

use std::io::{self, ErrorKind};

use crate::commands::send::{AGGRESSIVE, PolicyName};
use crate::control::{RateChange, Reply, Request, State, socket_dir};
use crate::exit::{Code, Failure};
use crate::json;
use crate::outcome;
use crate::stdout::{self, say};
use crate::units;
use netblt_proto::api::printable;

/// Change transfers while they run, or list them
///
/// Without options it lists this user's transfers on this machine: `send`, `receive` and `cp`. Each
/// has a socket in $XDG_RUNTIME_DIR/netblt, or in the user's own directory beneath that for
/// temporary files. A receiver asks its sender to be slower, and pauses by granting no more: data
/// of earlier grants still arrive.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The transfer's process; of no need where only one runs
    #[arg(value_name = "PID", value_parser = units::number::<u32>(1, u32::MAX.into()))]
    pid: Option<u32>,
    /// Never faster than this, a second, headers included; none: as fast as it likes
    ///
    /// A sender's may be above its own --rate of before. Nothing is faster than both sides agreed
    /// on at the beginning: a receiver's --rate, and that of a copy from another machine, can only
    /// be lowered. The rate in force is printed.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<RateChange>,
    /// How the sender chooses its rate from now on; fixed needs --rate
    #[arg(long, value_name = "POLICY", value_enum)]
    policy: Option<PolicyName>,
    /// Send nothing more, and keep the connection
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Resume
    #[arg(long)]
    resume: bool,
    /// Only print its state
    #[arg(long, conflicts_with_all = ["rate", "policy", "pause", "resume"])]
    status: bool,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

/// A rate, or `none`.
fn rate(value: &str) -> Result<RateChange, String> {
    match value {
        "none" => Ok(RateChange::Lifted),
        value => units::rate(value).map(|rate| RateChange::At(rate.bytes_per_second())),
    }
}

pub(crate) fn run(args: &Args) -> Code {
    outcome::end(control(args), args.json)
}

fn control(args: &Args) -> Result<(), Failure> {
    let request = Request {
        rate: args.rate,
        policy: args.policy,
        paused: (args.pause || args.resume).then_some(args.pause),
    };
    let failed = |error: io::Error| Failure::new(Code::Start, format!("control: {error}"));
    let running = socket_dir::processes().map_err(failed)?;
    let all = request.is_question() && args.pid.is_none();
    let wanted: Vec<u32> = match (args.pid, running.as_slice()) {
        (None, running) if all => running.to_vec(),
        (Some(pid), _) => vec![pid],
        (None, [one]) => vec![*one],
        (None, []) => {
            return Err(Failure::new(Code::Start, "no transfer of this user's runs here"));
        }
        (None, several) => {
            let several = several.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let text = format!("several transfers run here ({several}): which is meant?");
            return Err(Failure::usage(text));
        }
    };
    if args.policy == Some(PolicyName::Aggressive) && !args.json {
        say(&format!("netblt: warning: {AGGRESSIVE}"));
    }
    for pid in wanted {
        match socket_dir::ask(pid, &request) {
            Ok(Reply::State(state)) => print_state(args, &state)?,
            Ok(Reply::Refused(why)) => {
                return Err(Failure::new(Code::Start, format!("{pid}: {why}")));
            }
            // It has just ended.
            Err(_) if all => {}
            Err(error) if is_gone(&error) => {
                let text = format!("{pid} is no transfer of this user's that runs here");
                return Err(Failure::new(Code::Start, text));
            }
            Err(error) => return Err(Failure::new(Code::Start, format!("{pid}: {error}"))),
        }
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn print_state(args: &Args, state: &State) -> Result<(), Failure> {
    match args.json {
        true => json::event("transfer", state),
        false => stdout::line(printable(&line(state))),
    }
}

/// `4711  sender  photos/  1.2 GB of 3.4 GB, 45.1 Mbit/s, background, at most 50.0 Mbit/s, paused`
fn line(state: &State) -> String {
    let State { pid, role, what, .. } = state;
    let mut how = match (state.peer.as_ref(), state.total) {
        (None, _) => "waits for the other side".to_owned(),
        (Some(_), Some(total)) => {
            format!("{} of {}", units::show_bytes(state.bytes), units::show_bytes(total))
        }
        (Some(_), None) => units::show_bytes(state.bytes),
    };
    if state.peer.is_some() && !state.paused {
        how += &format!(", {}", units::show_rate(state.mbps * 1e6));
    }
    if let Some(policy) = &state.policy {
        how += &format!(", {policy}");
    }
    if let Some(ceiling) = state.ceiling_mbps {
        how += &format!(", at most {}", units::show_rate(ceiling * 1e6));
    }
    if state.paused {
        how += ", paused";
    }
    format!("{pid}  {role}  {what}  {how}")
}
