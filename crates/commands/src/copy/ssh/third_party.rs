//! A copy from one other machine to another: an agent on each, and the data straight from the one
//! to the other. This end only introduces them, watches, and reports.
//!
//! The secret of the transfer is made here and sent to each inside its own ssh. No data come here,
//! and there is no fallback through ssh, because that would use this machine's link. When ssh ends
//! at either side, for whatever reason, so does its agent, and then the other's for want of a
//! peer.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use netblt::{Error, Observer as _, Summary};
use netblt_proto::config::Secret;

use crate::args::ResumeName;
use crate::copy::job::CopyJob;
use crate::copy::operands::was_asked_for;
use crate::copy::ssh::client::{TRY, kept_at, resolved, start};
use crate::copy::ssh::connect::connect;
use crate::copy::ssh::messages::{
    AgentMessage, AgentPlan, AgentTask, ClientMessage, DataPath, Done, StartRequest,
    ThirdPartyRole, Udp,
};
use crate::copy::ssh::probe::plausible;
use crate::copy::ssh::session::{SessionEvent, SshSession, is_echo, unless_stopped};
use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::reporter::Reporter;

/// The interval at which both sessions are polled.
const STEP: Duration = Duration::from_millis(20);
/// When one end has failed, how long the other may take to say why it did.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Performs the copy.
pub(crate) fn copy(
    job: CopyJob<'_>,
    [from, to]: [&Host; 2],
    sources: Vec<OsString>,
    target: OsString,
    report: &mut Reporter,
) -> Result<Summary, Failure> {
    let to = connect(job, to, report)?;
    let from = match connect(job, from, report) {
        Ok(from) => from,
        Err(failure) => {
            to.finish(false, |text| report.warn(text));
            return Err(failure);
        }
    };
    ThirdPartyCopy { job, from, to, sources, target, failed: None }.copy(report)
}

/// Two machines, and what goes from the one to the other.
struct ThirdPartyCopy<'a> {
    job: CopyJob<'a>,
    from: SshSession<'a>,
    to: SshSession<'a>,
    sources: Vec<OsString>,
    target: OsString,
    /// The failure of one agent that the other one reported, and when.
    failed: Option<(Instant, Failure)>,
}

/// The two agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentSide {
    From,
    To,
}

impl<'a> ThirdPartyCopy<'a> {
    /// Copies, and watches until both have ended.
    fn copy(mut self, report: &mut Reporter) -> Result<Summary, Failure> {
        let mut begun = false;
        let copied = self.introduce(report).and_then(|at| {
            report.way(Some(&at.to_string()));
            begun = true;
            self.watch(report)
        });
        let wanted = copied.is_ok();
        let ended = [&self.from, &self.to].iter().any(|link| link.ended || link.is_lost());
        let mut warn = |text: &str| report.warn(text);
        let (from, to) = (self.from.host.name.clone(), self.to.host.name.clone());
        let ends =
            [(to, self.to.finish(wanted, &mut warn)), (from, self.from.finish(wanted, &mut warn))];
        let keeps = begun && ends[0].1.is_none() && self.job.args.resume != ResumeName::Never;
        let kept = keeps.then(|| kept_at(&ends[0].0));
        let mut skipped = 0;
        for (host, done) in ends {
            let done = done.unwrap_or_default();
            skipped = skipped.max(done.skipped);
            let theirs = done.message.as_ref().filter(|_| !done.echo);
            if let (Some(text), true) = (theirs, copied.as_ref().err().is_none_or(is_echo)) {
                return Err(Failure::new(done.exit_code(), format!("{host}: {text}")));
            }
        }
        let copied = copied.map(|mut summary| {
            summary.skipped = summary.skipped.max(skipped);
            summary
        });
        copied.map_err(|failure| unless_stopped(failure, ended, kept.as_deref()))
    }

    /// Sends each agent its task and the other's address. Returns where they meet.
    fn introduce(&mut self, report: &mut Reporter) -> Result<SocketAddr, Failure> {
        let mut secret = Secret([0; 32]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| Failure::new(Code::Start, format!("no random numbers: {error}")))?;
        let args = self.job.args;
        let several = self.sources.len() > 1;
        let job = AgentTask::Receive {
            target: self.target.clone(),
            several,
            directory: args.recursive,
            names: Vec::new(),
        };
        let nowhere = Udp { ports: args.ports(), addresses: Vec::new(), port: 0 };
        let start = self.start(job, &secret, nowhere, ThirdPartyRole::Agent);
        self.to.send(&ClientMessage::Start(Box::new(start)))?;
        let (to, to_port, plan) = ready(&mut self.to, report)?;
        let AgentPlan::Receive { rename } = plan else { return Err(self.to.unexpected_message()) };
        let named = [&self.from.host, &self.to.host].map(|host| resolved(self.job.ssh, host));
        // Each has a loopback of its own, unless both are this machine.
        let loopback = named.iter().all(|named| named.iter().any(IpAddr::is_loopback));
        let [from_named, to_named] = named;
        let to = plausible(to_named, to, loopback, |ip| args.fits(ip));
        let job = AgentTask::Send {
            sources: self.sources.clone(),
            rename: rename.clone(),
            directories: args.recursive,
            exclude: args.choice.exclude.clone(),
            listed: false,
            follow: args.choice.copy_links,
            allow_changes: args.choice.allow_changes,
            chmod: args.choice.chmod.clone(),
        };
        let there = Udp { ports: args.ports(), addresses: to, port: to_port };
        let start = self.start(job, &secret, there, ThirdPartyRole::Client);
        self.from.send(&ClientMessage::Start(Box::new(start)))?;
        let (from, from_port, plan) = ready(&mut self.from, report)?;
        let AgentPlan::Send { names } = plan else { return Err(self.from.unexpected_message()) };
        let asked = |name: &&OsString| match &rename {
            Some(renamed) => *name == renamed,
            None => was_asked_for(name, &self.sources),
        };
        if let Some(name) = names.iter().find(|name| !asked(name)) {
            let (host, name) = (&self.from.host.name, name.to_string_lossy());
            let why = format!("{host} wants to send \"{name}\", which was not requested");
            return Err(Failure::new(Code::Protocol, why));
        }
        if from_port == 0 || to_port == 0 {
            let host = if to_port == 0 { &self.to.host } else { &self.from.host };
            return Err(Failure::new(Code::Connect, format!("{} cannot use UDP", host.name)));
        }
        let from = plausible(from_named, from, loopback, |ip| args.fits(ip));
        let udp = Udp { ports: args.ports(), addresses: from, port: from_port };
        let directories = args.recursive;
        self.to.send(&ClientMessage::Peer { udp, names, directories })?;
        self.meet(report)
    }

    fn start(
        &self,
        job: AgentTask,
        secret: &Secret,
        udp: Udp,
        third: ThirdPartyRole,
    ) -> StartRequest {
        StartRequest { third: Some(third), ..start(self.job, job, secret, Some(udp)) }
    }

    /// The end that gets the other's answer first connects, and the other listens.
    fn meet(&mut self, report: &mut Reporter) -> Result<SocketAddr, Failure> {
        let (from, to) = (self.from.host.name.clone(), self.to.host.name.clone());
        report.detail(&format!("Trying UDP between {from} and {to} ..."));
        let until = Instant::now() + TRY;
        while Instant::now() < until {
            let Some((end, message)) = self.receive(report)? else { continue };
            let AgentMessage::ReachedAt(at) = message else {
                return Err(self.link(end).unexpected_message());
            };
            let other = if end == AgentSide::From { AgentSide::To } else { AgentSide::From };
            self.link(other).send(&ClientMessage::Go(DataPath::Listen))?;
            loop {
                match self.receive(report)? {
                    // It was in flight when this was decided.
                    None | Some((_, AgentMessage::ReachedAt(_))) => {}
                    Some((from, AgentMessage::Listening)) if from == other => break,
                    Some((from, _)) => return Err(self.link(from).unexpected_message()),
                }
            }
            self.link(end).send(&ClientMessage::Go(DataPath::Call(at)))?;
            return Ok(at);
        }
        let why = format!(
            "UDP does not pass between {from} and {to}; let it pass there (--udp-port), or run \
             netblt cp on one of them"
        );
        Err(Failure::new(Code::Connect, why))
    }

    /// Reports the progress until the transfer has ended.
    fn watch(&mut self, report: &mut Reporter) -> Result<Summary, Failure> {
        let mut summary = None;
        loop {
            if self.from.done.is_some() && self.to.done.is_some() {
                return summary.ok_or_else(|| self.to.unexpected_message());
            }
            match self.receive(report)? {
                None | Some((_, AgentMessage::ReachedAt(_) | AgentMessage::Listening)) => {}
                Some((AgentSide::To, AgentMessage::Progress(update))) => {
                    report.progress(&update.progress())
                }
                Some((AgentSide::To, AgentMessage::Summary(result))) => {
                    summary = Some(result.summary())
                }
                Some((end, _)) => return Err(self.link(end).unexpected_message()),
            }
        }
    }

    fn link(&mut self, end: AgentSide) -> &mut SshSession<'a> {
        match end {
            AgentSide::From => &mut self.from,
            AgentSide::To => &mut self.to,
        }
    }

    /// The next message of one of them, without warnings; `None` if there was none for a moment. A
    /// failure of either ends the copy, once the other had time to report the original one.
    fn receive(
        &mut self,
        report: &mut Reporter,
    ) -> Result<Option<(AgentSide, AgentMessage)>, Failure> {
        for end in [AgentSide::To, AgentSide::From] {
            let link = self.link(end);
            match link.came.recv_timeout(STEP) {
                Ok(SessionEvent::AgentMessage(AgentMessage::Warning(text))) => {
                    let text = link.with_host(&text);
                    report.warn(&text);
                }
                Ok(SessionEvent::AgentMessage(AgentMessage::Done(done))) => {
                    self.ended(end, done)?
                }
                Ok(SessionEvent::AgentMessage(message)) => return Ok(Some((end, message))),
                Ok(SessionEvent::NoAgent(_) | SessionEvent::Ended(_)) => {
                    link.ended = true;
                    self.lost(end)?;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        match &self.failed {
            Some((since, _)) if since.elapsed() < LAST_WORD => {}
            Some(_) => return Err(self.failure()),
            None if self.job.cancel.is_cancelled()
                && !self.from.is_lost()
                && !self.to.is_lost() =>
            {
                return Err(Failure::transfer(&Error::Interrupted, false));
            }
            None => {}
        }
        Ok(None)
    }

    /// Handles the last message of one of them.
    fn ended(&mut self, end: AgentSide, done: Done) -> Result<(), Failure> {
        let link = self.link(end);
        let failure = done.message.as_ref().map(|text| {
            let failure = Failure::new(done.exit_code(), link.with_host(text));
            (failure, done.echo)
        });
        link.done = Some(done);
        match failure {
            // It echoes the other end's failure, of which that will say more.
            Some((failure, true)) if self.failed.is_none() => {
                self.failed = Some((Instant::now(), failure));
                Ok(())
            }
            Some((failure, false)) => Err(failure),
            _ if self.failed.is_some() && self.from.done.is_some() && self.to.done.is_some() => {
                Err(self.failure())
            }
            _ => Ok(()),
        }
    }

    /// ssh has ended at one of them, which is in order behind its last word.
    fn lost(&mut self, end: AgentSide) -> Result<(), Failure> {
        let link = self.link(end);
        match link.done {
            Some(_) => Ok(()),
            None => {
                let why = format!("the ssh connection to {} has ended", link.host.name);
                Err(Failure::new(Code::Stream, why))
            }
        }
    }

    fn failure(&mut self) -> Failure {
        let lost = || Failure::new(Code::Stream, "the two have lost each other");
        self.failed.take().map_or_else(lost, |(_, failure)| failure)
    }
}

/// Waits until one of them is ready: its addresses, its port, and how it understands its part.
fn ready(
    link: &mut SshSession<'_>,
    report: &mut Reporter,
) -> Result<(Vec<IpAddr>, u16, AgentPlan), Failure> {
    loop {
        match link.receive()? {
            AgentMessage::Ready { addresses, port, plan } => return Ok((addresses, port, plan)),
            AgentMessage::Warning(text) => report.warn(&link.with_host(&text)),
            AgentMessage::Done(done) => return Err(link.failed_there(done)),
            // It looked for the other end before it learned where this one is.
            AgentMessage::ReachedAt(_) => {}
            _ => return Err(link.unexpected_message()),
        }
    }
}
