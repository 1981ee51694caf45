//! A copy from one other machine to another: a far end on each, the data straight from the one to
//! the other, and this end only introduces them, watches, and tells.
//!
//! The secret of the transfer is made here and told to each inside its own ssh. Nothing of the data
//! comes here, and there is no way through ssh: that would be this machine's link. When ssh ends at
//! either side, whoever ends it, so does its far end, and then the other's for want of a peer.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use netblt::{Cancel, Error, Observer as _, Summary};
use netblt_proto::config::Secret;

use crate::args::ResumeName;
use crate::cp::gather::was_asked_for;
use crate::cp::link::{Came, Link, is_echo, unless_stopped};
use crate::cp::near::{TRY, kept_at, resolved, start};
use crate::cp::options::Wish;
use crate::cp::probe::plausible;
use crate::cp::ssh::SshOptions;
use crate::cp::words::{Done, Job, Order, Plan, Start, Third, Udp, Way, Word};
use crate::exit::{Code, Failure};
use crate::output::Report;

/// How often the two are looked after.
const STEP: Duration = Duration::from_millis(20);
/// When one end has failed, how long the other may take to say why it did.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Two machines, and what goes from the one to the other.
pub(crate) struct Between<'a> {
    pub(crate) from: Link<'a>,
    pub(crate) to: Link<'a>,
    pub(crate) sources: Vec<OsString>,
    pub(crate) target: OsString,
    pub(crate) wish: &'a Wish,
    pub(crate) ssh: &'a SshOptions,
    pub(crate) cancel: &'a Cancel,
    /// One of them has heard that the other failed: when, and how it says so.
    pub(crate) failed: Option<(Instant, Failure)>,
}

/// Whose words are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    From,
    To,
}

impl<'a> Between<'a> {
    /// Copies, and watches until both have ended.
    pub(crate) fn copy(mut self, report: &mut Report) -> Result<Summary, Failure> {
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
        let keeps = begun && ends[0].1.is_none() && self.wish.resume != ResumeName::Never;
        let kept = keeps.then(|| kept_at(&ends[0].0));
        let mut skipped = 0;
        for (host, done) in ends {
            let done = done.unwrap_or_default();
            skipped = skipped.max(done.skipped);
            let theirs = done.message.filter(|_| !done.echo);
            if let (Some(text), true) = (theirs, copied.as_ref().err().is_none_or(is_echo)) {
                return Err(Failure::new(Code::of(done.code), format!("{host}: {text}")));
            }
        }
        let copied = copied.map(|mut summary| {
            summary.skipped = summary.skipped.max(skipped);
            summary
        });
        copied.map_err(|failure| unless_stopped(failure, ended, kept.as_deref()))
    }

    /// Tells each its part and where the other is; where they meet.
    fn introduce(&mut self, report: &mut Report) -> Result<SocketAddr, Failure> {
        let mut secret = Secret([0; 32]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| Failure::new(Code::Start, format!("no random numbers: {error}")))?;
        let wish = self.wish;
        let several = self.sources.len() > 1;
        let job = Job::Receive {
            target: self.target.clone(),
            several,
            directory: wish.recursive,
            names: Vec::new(),
            preserve: wish.preserve,
            max_files: wish.max_files(),
        };
        let nowhere = Udp { ports: wish.ports(), addresses: Vec::new(), port: 0 };
        self.to.say(&Order::Start(self.start(job, &secret, nowhere, Third::Far)))?;
        let (to, to_port, plan) = ready(&mut self.to, report)?;
        let Plan::Receive { rename } = plan else { return Err(self.to.odd_word()) };
        let named = [&self.from.host, &self.to.host].map(|host| resolved(self.ssh, host));
        // Each has a loopback of its own, unless both are this machine.
        let loopback = named.iter().all(|named| named.iter().any(IpAddr::is_loopback));
        let [from_named, to_named] = named;
        let to = plausible(to_named, to, loopback, |ip| wish.fits(ip));
        let job = Job::Send {
            sources: self.sources.clone(),
            rename: rename.clone(),
            directories: wish.recursive,
            exclude: wish.choice.exclude.clone(),
            listed: false,
            follow: wish.choice.copy_links,
            allow_changes: wish.choice.allow_changes,
            chmod: wish.choice.chmod.clone(),
        };
        let there = Udp { ports: wish.ports(), addresses: to, port: to_port };
        self.from.say(&Order::Start(self.start(job, &secret, there, Third::Near)))?;
        let (from, from_port, plan) = ready(&mut self.from, report)?;
        let Plan::Send { names } = plan else { return Err(self.from.odd_word()) };
        let asked = |name: &&OsString| match &rename {
            Some(renamed) => *name == renamed,
            None => was_asked_for(name, &self.sources),
        };
        if let Some(name) = names.iter().find(|name| !asked(name)) {
            let (host, name) = (&self.from.host.name, name.to_string_lossy());
            let why = format!("{host} wants to send \"{name}\", which nobody asked for");
            return Err(Failure::new(Code::Protocol, why));
        }
        if from_port == 0 || to_port == 0 {
            let host = if to_port == 0 { &self.to.host } else { &self.from.host };
            return Err(Failure::new(Code::Connect, format!("{} cannot use UDP", host.name)));
        }
        let from = plausible(from_named, from, loopback, |ip| wish.fits(ip));
        let udp = Udp { ports: wish.ports(), addresses: from, port: from_port };
        let directories = wish.recursive;
        self.to.say(&Order::Other { udp, names, directories })?;
        self.meet(report)
    }

    fn start(&self, job: Job, secret: &Secret, udp: Udp, third: Third) -> Start {
        Start { third: Some(third), ..start(self.wish, job, secret, Some(udp)) }
    }

    /// Whoever hears the other first calls it, and the other listens.
    fn meet(&mut self, report: &mut Report) -> Result<SocketAddr, Failure> {
        let (from, to) = (self.from.host.name.clone(), self.to.host.name.clone());
        report.detail(&format!("Trying UDP between {from} and {to} ..."));
        let until = Instant::now() + TRY;
        while Instant::now() < until {
            let Some((end, word)) = self.hear(report)? else { continue };
            let Word::Heard(at) = word else { return Err(self.link(end).odd_word()) };
            let other = if end == End::From { End::To } else { End::From };
            self.link(other).say(&Order::Go(Way::Listen))?;
            loop {
                match self.hear(report)? {
                    // What was under way when this was decided.
                    None | Some((_, Word::Heard(_))) => {}
                    Some((told, Word::Listening)) if told == other => break,
                    Some((told, _)) => return Err(self.link(told).odd_word()),
                }
            }
            self.link(end).say(&Order::Go(Way::Call(at)))?;
            return Ok(at);
        }
        let why = format!(
            "UDP does not pass between {from} and {to}; let it pass there (--udp-port), or run \
             netblt cp on one of them"
        );
        Err(Failure::new(Code::Connect, why))
    }

    /// Tells how far it is until it is over.
    fn watch(&mut self, report: &mut Report) -> Result<Summary, Failure> {
        let mut summary = None;
        loop {
            if self.from.done.is_some() && self.to.done.is_some() {
                return summary.ok_or_else(|| self.to.odd_word());
            }
            match self.hear(report)? {
                None | Some((_, Word::Heard(_) | Word::Listening)) => {}
                Some((End::To, Word::Progress(told))) => report.progress(&told.progress()),
                Some((End::To, Word::Summary(told))) => summary = Some(told.summary()),
                Some((end, _)) => return Err(self.link(end).odd_word()),
            }
        }
    }

    fn link(&mut self, end: End) -> &mut Link<'a> {
        match end {
            End::From => &mut self.from,
            End::To => &mut self.to,
        }
    }

    /// What one of them says next that is more than a warning; nothing if nothing came for a
    /// moment. A failure of either ends the copy, once the other had time to say whose it is.
    fn hear(&mut self, report: &mut Report) -> Result<Option<(End, Word)>, Failure> {
        for end in [End::To, End::From] {
            let link = self.link(end);
            match link.came.recv_timeout(STEP) {
                Ok(Came::Word(Word::Warning(text))) => {
                    let text = link.said(&text);
                    report.warn(&text);
                }
                Ok(Came::Word(Word::Done(done))) => self.ended(end, done)?,
                Ok(Came::Word(word)) => return Ok(Some((end, word))),
                Ok(Came::Noise(_) | Came::Ended(_)) => {
                    link.ended = true;
                    self.lost(end)?;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        match &self.failed {
            Some((since, _)) if since.elapsed() < LAST_WORD => {}
            Some(_) => return Err(self.failure()),
            None if self.cancel.is_cancelled() && !self.from.is_lost() && !self.to.is_lost() => {
                return Err(Failure::transfer(&Error::Interrupted, false));
            }
            None => {}
        }
        Ok(None)
    }

    /// The last word of one of them.
    fn ended(&mut self, end: End, done: Done) -> Result<(), Failure> {
        let link = self.link(end);
        let failure = done.message.as_ref().map(|text| {
            let failure = Failure::new(Code::of(done.code), link.said(text));
            (failure, done.echo)
        });
        link.done = Some(done);
        match failure {
            // What it heard of the other, who will say more.
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
    fn lost(&mut self, end: End) -> Result<(), Failure> {
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
fn ready(link: &mut Link<'_>, report: &mut Report) -> Result<(Vec<IpAddr>, u16, Plan), Failure> {
    loop {
        match link.hear()? {
            Word::Ready { addresses, port, plan } => return Ok((addresses, port, plan)),
            Word::Warning(text) => report.warn(&link.said(&text)),
            Word::Done(done) => return Err(link.failed_there(done)),
            // It has looked for the other one before that is told where this one is.
            Word::Heard(_) => {}
            _ => return Err(link.odd_word()),
        }
    }
}
