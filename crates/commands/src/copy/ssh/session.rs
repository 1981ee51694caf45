//! The ssh session with the agent, seen from the client: messages in both directions.

use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use netblt::{Cancel, Error, Family};
use netblt_proto::api::printable;
use netblt_proto::wire::sealed;

use crate::copy::ssh::command::{Ssh, SshOptions, machine_without};
use crate::copy::ssh::framing::{Frame, FrameReader, FrameWriter};
use crate::copy::ssh::install::Machine;
use crate::copy::ssh::messages::{AgentMessage, BANNER, ClientMessage, Done, PROTOCOL_VERSION};
use crate::copy::ssh::tunnel::Tunnel;
use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::reporter::Reporter;
use crate::signals;

/// An event of the session.
pub(crate) enum SessionEvent {
    AgentMessage(AgentMessage),
    /// The agent never started. This output came instead.
    NoAgent(Vec<u8>),
    /// ssh has ended, or its output is no message of an agent.
    Ended(String),
}

/// A running ssh.
pub(crate) struct SshSession<'a> {
    pub(crate) host: Host,
    ssh: Ssh,
    pub(crate) out: FrameWriter,
    pub(crate) came: Receiver<SessionEvent>,
    pub(crate) tunnel: Arc<OnceLock<Tunnel>>,
    pub(crate) cancel: &'a Cancel,
    /// The agent's result, once that is known.
    pub(crate) done: Option<Done>,
    /// The session has ended.
    pub(crate) ended: bool,
    /// The machine there, if it has no agent.
    pub(crate) without: Option<Machine>,
    /// The agent there has another version of the messages.
    pub(crate) foreign: bool,
    /// The reader has cancelled the transfer, since ssh has ended.
    lost: Arc<AtomicBool>,
    /// The transfer has started: the end of ssh cancels it.
    works: Arc<AtomicBool>,
}

/// The interval at which a wait looks whether it was cancelled.
const STEP: Duration = Duration::from_millis(50);
/// The time without a first message after which the user is informed.
const SILENCE: Duration = Duration::from_secs(8);
/// How long the agent's last message is waited for.
const LAST_WORD: Duration = Duration::from_secs(3);

impl<'a> SshSession<'a> {
    /// Starts ssh, and with it the agent. If ssh ends before the agent's last message, the transfer
    /// is cancelled.
    pub(crate) fn start(
        options: &SshOptions,
        host: &Host,
        family: Family,
        quiet: bool,
        cancel: &'a Cancel,
    ) -> Result<Self, Failure> {
        let (ssh, stdin, stdout) = options.start(host, family, quiet)?;
        let (sender, came) = channel();
        let tunnel = Arc::new(OnceLock::new());
        let lost = Arc::new(AtomicBool::new(false));
        let (inner, stop, flag) = (Arc::clone(&tunnel), cancel.clone(), Arc::clone(&lost));
        let carried = Arc::clone(&tunnel);
        let works = Arc::new(AtomicBool::new(false));
        let working = Arc::clone(&works);
        let lose = move || {
            flag.store(true, Ordering::SeqCst);
            // Without a transfer another session may follow, and waiting callers get the event.
            if !working.load(Ordering::SeqCst) {
                return;
            }
            stop.cancel();
            // No answer can come through ssh any more.
            if carried.get().is_some() {
                stop.abort();
            }
        };
        thread::Builder::new()
            .name("netblt-ssh".to_owned())
            .spawn(move || listen(stdout, &sender, &inner, lose))
            .map_err(|error| {
                Failure::new(Code::Start, format!("cannot start a thread: {error}"))
            })?;
        let out = FrameWriter::new(stdin);
        let host = host.clone();
        let (done, ended, without, foreign) = (None, false, None, false);
        Ok(Self {
            host,
            ssh,
            out,
            came,
            tunnel,
            cancel,
            done,
            ended,
            without,
            foreign,
            lost,
            works,
        })
    }

    /// Whether the transfer was cancelled because ssh has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn send(&self, message: &ClientMessage) -> Result<(), Failure> {
        self.out.send(message).map_err(|error| {
            let host = &self.host.name;
            Failure::new(Code::Stream, format!("cannot send a message to {host}: {error}"))
        })
    }

    /// Waits for the agent's first message, however long a password takes, and informs the user
    /// after a while.
    pub(crate) fn greet(&mut self, report: &mut Reporter) -> Result<(), Failure> {
        let message = match self.receive_within(SILENCE)? {
            Some(message) => message,
            None => {
                report.warn(&format!(
                    "netblt on {} has not answered for {} s. ssh is running: it waits for the \
                     network, for a password or a confirmation, or that login starts another \
                     program (command= in its authorized_keys, ForceCommand). Ctrl-C stops",
                    self.host.name,
                    SILENCE.as_secs()
                ));
                self.receive()?
            }
        };
        let AgentMessage::Hello { protocol, wire, version } = message else {
            return Err(self.unexpected_message());
        };
        let version = printable(&version);
        if (protocol, wire) != (PROTOCOL_VERSION, sealed::VERSION) {
            self.foreign = true;
            let (host, own, own_wire) =
                (&self.host.name, env!("CARGO_PKG_VERSION"), sealed::VERSION);
            let why = format!(
                "{host} has netblt {version} (cp protocol {protocol}, wire {wire}) and this is \
                 netblt {own} (cp protocol {PROTOCOL_VERSION}, wire {own_wire}), which do not \
                 understand each other: install the same on both, or let --install put this one \
                 there"
            );
            return Err(Failure::new(Code::Start, why));
        }
        report.detail(&format!("netblt {version} answers there."));
        self.works.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The next message, however long that takes.
    pub(crate) fn receive(&mut self) -> Result<AgentMessage, Failure> {
        loop {
            if let Some(message) = self.receive_within(SILENCE)? {
                return Ok(message);
            }
        }
    }

    /// The next message, if it comes in time.
    fn receive_within(&mut self, patience: Duration) -> Result<Option<AgentMessage>, Failure> {
        let until = Instant::now() + patience;
        loop {
            if self.cancel.is_cancelled() && !self.is_lost() {
                return Err(Failure::transfer(&Error::Interrupted, false));
            }
            match self.came.recv_timeout(STEP) {
                Ok(SessionEvent::AgentMessage(message)) => return Ok(Some(message)),
                Ok(SessionEvent::NoAgent(output)) => {
                    self.ended = true;
                    self.without = machine_without(&output);
                    return Err(self.ssh.explain(&output));
                }
                Ok(SessionEvent::Ended(why)) => {
                    self.ended = true;
                    return Err(Failure::new(Code::Stream, why));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return Err(Failure::new(Code::Stream, "ssh has ended"));
                }
            }
        }
    }

    /// Handles a message that came while the transfer was under way. Returns a warning to show.
    pub(crate) fn note(&mut self, came: SessionEvent) -> Option<String> {
        match came {
            SessionEvent::AgentMessage(AgentMessage::Warning(text)) => {
                return Some(self.with_host(&text));
            }
            SessionEvent::AgentMessage(AgentMessage::Done(done)) => self.done = Some(done),
            SessionEvent::AgentMessage(_) => {}
            SessionEvent::NoAgent(_) | SessionEvent::Ended(_) => self.ended = true,
        }
        None
    }

    /// Waits for the agent's last message. `wanted`: it may still be at work. Then ssh ends.
    pub(crate) fn finish(mut self, wanted: bool, mut warn: impl FnMut(&str)) -> Option<Done> {
        if !wanted {
            self.works.store(false, Ordering::SeqCst);
            // Whatever it still does is in vain.
            self.out.close();
        }
        let until = Instant::now() + LAST_WORD;
        while self.done.is_none() && !self.ended && Instant::now() < until {
            match self.came.recv_timeout(STEP) {
                Ok(came) => self.note(came).iter().for_each(|text| warn(text)),
                Err(RecvTimeoutError::Timeout) if !self.cancel.is_aborting() => {}
                Err(_) => break,
            }
        }
        self.out.close();
        self.ssh.finish();
        self.done
    }

    /// The agent's error in words.
    pub(crate) fn with_host(&self, text: &str) -> String {
        format!("{}: {text}", self.host.name)
    }

    /// The agent has ended before the transfer began.
    pub(crate) fn failed_there(&mut self, done: Done) -> Failure {
        let message = done.message.clone().unwrap_or_else(|| "it failed".to_owned());
        let failure = Failure::new(done.exit_code(), self.with_host(&message));
        self.done = Some(done);
        failure
    }

    /// It is another program, or an attacker.
    pub(crate) fn unexpected_message(&self) -> Failure {
        let host = &self.host.name;
        Failure::new(Code::Protocol, format!("unexpected message from netblt on {host}"))
    }
}

/// Whether a failure may be only a consequence of the other end's failure, or of the end of ssh.
pub(crate) fn is_echo(failure: &Failure) -> bool {
    matches!(failure.code, Code::Stream | Code::Timeout | Code::Connect | Code::Start)
}

/// The failure after a signal has asked this program to stop. A terminal's Ctrl-C ends ssh, too,
/// and errors that follow from that are no failure of their own. `kept`: the directory of the
/// parts, if the agent could not report it.
pub(crate) fn unless_stopped(failure: Failure, ssh_ended: bool, kept: Option<&str>) -> Failure {
    let echo = is_echo(&failure);
    let stopped = match echo && (ssh_ended || failure.code == Code::Stream) {
        true => signals::asked_as_well(),
        false => signals::asked(),
    };
    if !stopped || !(echo || failure.code == Code::Signal) {
        return failure;
    }
    let said = match failure.code {
        Code::Signal => failure.message,
        _ => Error::Interrupted.to_string(),
    };
    let kept = kept.map_or_else(String::new, |kept| format!("; {kept}"));
    Failure::new(Code::Signal, format!("{said}{kept}"))
}

/// Reads the output of ssh until it ends. Then the transfer ends too.
fn listen(
    stdout: ChildStdout,
    came: &Sender<SessionEvent>,
    tunnel: &OnceLock<Tunnel>,
    lose: impl FnOnce(),
) {
    let mut reader = FrameReader::new(std::io::BufReader::with_capacity(256 << 10, stdout));
    if let Err(output) = reader.find(BANNER) {
        let _ = came.send(SessionEvent::NoAgent(output));
        return;
    }
    let mut done = None;
    let why = loop {
        match reader.next() {
            Ok(Some(Frame::Message(message))) => {
                if let AgentMessage::Done(last) = &message {
                    done = Some(last.code);
                }
                if came.send(SessionEvent::AgentMessage(message)).is_err() {
                    return;
                }
            }
            Ok(Some(Frame::Datagram)) => {
                tunnel.get().iter().for_each(|tunnel| tunnel.deliver(reader.datagram()));
            }
            Ok(None) => break "the ssh connection has ended".to_owned(),
            Err(error) => break format!("the ssh connection failed: {error}"),
        }
    };
    let _ = came.send(SessionEvent::Ended(why));
    match done {
        // The transfer is ending already.
        Some(0) => {}
        Some(_) => {
            thread::sleep(LAST_WORD);
            lose();
        }
        None => lose(),
    }
}
