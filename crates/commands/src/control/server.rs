//! The end of the socket that is at the transfer: a thread that takes one request after another.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use netblt::{Ceiling, Control, FixedRate, Options, Policy, Progress, Rate, Wire};
use netblt_proto::config::Role;

use super::{RateChange, Reply, Request, State, may_change, socket_dir};

/// A socket that is served; it is removed with this.
pub(crate) struct Server {
    path: PathBuf,
    desk: Arc<ControlledTransfer>,
}

/// The controlled transfer: its state, and its handle.
struct ControlledTransfer {
    control: Control,
    role: Role,
    wire: Wire,
    /// The policy at the start.
    policy: Policy,
    state: Mutex<State>,
}

impl Server {
    pub(super) fn start(
        control: Control,
        options: &Options,
        role: Role,
        what: String,
    ) -> io::Result<Self> {
        let (listener, path) = socket_dir::listen()?;
        let name = match role {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        };
        let state = State { pid: process::id(), role: name.to_owned(), what, ..State::default() };
        let (wire, policy) = (options.wire, options.settings.policy);
        let desk =
            Arc::new(ControlledTransfer { control, role, wire, policy, state: Mutex::new(state) });
        let served = desk.clone();
        let serve = move || serve(&listener, &served);
        let server = Self { path, desk };
        thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(server)
    }

    /// The connection is open.
    pub(crate) fn connected(&self, peer: &str) {
        self.desk.state().peer = Some(peer.to_owned());
    }

    /// How far it is, and how fast, in bit/s.
    pub(crate) fn progress(&self, progress: &Progress, rate: f64) {
        let mut state = self.desk.state();
        (state.bytes, state.total) = (progress.bytes, progress.total);
        state.elapsed_seconds = progress.elapsed.as_secs_f64();
        state.mbps = rate / 1e6;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        socket_dir::remove(&self.path);
    }
}

fn serve(listener: &UnixListener, desk: &ControlledTransfer) {
    // A client that sends nothing, or no request, leaves nothing behind.
    for stream in listener.incoming().flatten() {
        let _ = answer(stream, desk);
    }
}

fn answer(mut stream: UnixStream, desk: &ControlledTransfer) -> io::Result<()> {
    let request: Request = socket_dir::take(&stream)?;
    let reply = match desk.obey(&request) {
        Ok(()) => Reply::State(desk.now()),
        Err(why) => Reply::Refused(why.to_owned()),
    };
    socket_dir::put(&mut stream, &reply)
}

impl ControlledTransfer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all requested changes, or none.
    fn obey(&self, request: &Request) -> Result<(), &'static str> {
        let rate = match request.rate {
            Some(RateChange::At(bytes)) => Some(Rate::from_bytes_per_second(bytes)),
            _ => None,
        };
        let plain = self.wire == Wire::Rfc998;
        if self.role == Role::Receiver && request.policy.is_some() {
            return Err("it receives: the policy is the sender's");
        }
        if plain && (request.policy.is_some() || self.role == Role::Receiver && rate.is_some()) {
            return Err("with --wire rfc998 only a sender's rate can be changed, and --pause");
        }
        let policy = match request.policy.map(|policy| (policy, policy.policy(None))) {
            None => None,
            Some(_) if !may_change(self.policy) => {
                return Err("it follows another protocol's rules, which cannot be left");
            }
            Some((_, Some(policy))) => Some(policy),
            Some((_, None)) => match rate.and_then(FixedRate::rate) {
                Some(pace) => Some(Policy::Fixed(pace)),
                None => return Err("--policy fixed needs --rate <RATE>"),
            },
        };
        if let Some(policy) = policy {
            self.control.set_policy(policy);
        }
        if request.rate.is_some() {
            self.control.set_rate(rate);
        }
        match request.paused {
            Some(true) => self.control.pause(),
            Some(false) => self.control.resume(),
            None => {}
        }
        Ok(())
    }

    /// Its state, with the latest changes.
    fn now(&self) -> State {
        let steering = self.control.steering();
        let policy = steering.policy.unwrap_or(self.policy);
        let ceiling = match steering.ceiling {
            Ceiling::Configured => policy.ceiling(),
            Ceiling::Unlimited => None,
            Ceiling::At(rate) => Some(rate),
        };
        // A receiver's ceiling at the start was agreed on: it can only be lowered.
        let agreed = self.policy.ceiling().filter(|_| self.role == Role::Receiver);
        let ceiling = ceiling.into_iter().chain(agreed).min();
        let mut state = self.state().clone();
        state.policy = (self.role == Role::Sender).then(|| policy.name().to_owned());
        state.ceiling_mbps = ceiling.map(Rate::mbps);
        state.paused = steering.paused;
        state
    }
}
