//! The end of the socket that is at the transfer: a thread that takes one request after another.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use netblt::{Ceiling, Control, Options, Pace, Policy, Progress, Rate, Wire};
use netblt_proto::config::Role;

use super::{RateWish, Reply, Request, State, may_change, place};

/// A socket that is served; it is removed with this.
pub(crate) struct Server {
    path: PathBuf,
    desk: Arc<Desk>,
}

/// What is known of the transfer, and what changes it.
struct Desk {
    control: Control,
    role: Role,
    wire: Wire,
    /// What it was told at its start.
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
        let (listener, path) = place::listen()?;
        let name = match role {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        };
        let state = State { pid: process::id(), role: name.to_owned(), what, ..State::default() };
        let (wire, policy) = (options.wire, options.policy);
        let desk = Arc::new(Desk { control, role, wire, policy, state: Mutex::new(state) });
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
        place::remove(&self.path);
    }
}

fn serve(listener: &UnixListener, desk: &Desk) {
    // Of who connects and says nothing, or nothing that makes sense, nothing is left.
    for stream in listener.incoming().flatten() {
        let _ = answer(stream, desk);
    }
}

fn answer(mut stream: UnixStream, desk: &Desk) -> io::Result<()> {
    let request: Request = place::take(&stream)?;
    let reply = match desk.obey(&request) {
        Ok(()) => Reply::State(desk.now()),
        Err(why) => Reply::Refused(why.to_owned()),
    };
    place::put(&mut stream, &reply)
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of what is asked for, or nothing.
    fn obey(&self, request: &Request) -> Result<(), &'static str> {
        let rate = match request.rate {
            Some(RateWish::At(bytes)) => Some(Rate::from_bytes_per_second(bytes)),
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
            Some((_, None)) => match rate.and_then(Pace::rate) {
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

    /// How it is, with what was just changed.
    fn now(&self) -> State {
        let steering = self.control.steering();
        let policy = steering.policy.unwrap_or(self.policy);
        let ceiling = match steering.ceiling {
            Ceiling::AsTold => policy.ceiling(),
            Ceiling::Lifted => None,
            Ceiling::At(rate) => Some(rate),
        };
        // What a receiver was told at first was agreed on: it can be lowered alone.
        let agreed = self.policy.ceiling().filter(|_| self.role == Role::Receiver);
        let ceiling = ceiling.into_iter().chain(agreed).min();
        let mut state = self.state().clone();
        state.policy = (self.role == Role::Sender).then(|| policy.name().to_owned());
        state.ceiling_mbps = ceiling.map(Rate::mbps);
        state.paused = steering.paused;
        state
    }
}
