//! ssh with the far end behind it, seen from the near end: what comes, and what is said.

use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use netblt::{Cancel, Error};
use netblt_proto::api::printable;
use netblt_proto::wire::sealed;

use crate::cp::channel::{Frame, FrameReader, FrameWriter};
use crate::cp::install::Machine;
use crate::cp::place::Host;
use crate::cp::ssh::{Ssh, SshOptions, machine_without};
use crate::cp::tunnel::Tunnel;
use crate::cp::words::{Done, MARK, Order, WORDS, Word};
use crate::exit::{Code, Failure};
use crate::output::Report;
use crate::signals;

/// What comes from the far end.
pub(crate) enum Came {
    Word(Word),
    /// It never was there; this came instead.
    Noise(Vec<u8>),
    /// ssh has ended, or something came that netblt does not say.
    Ended(String),
}

/// ssh under way.
pub(crate) struct Link<'a> {
    pub(crate) host: Host,
    ssh: Ssh,
    pub(crate) out: FrameWriter,
    pub(crate) came: Receiver<Came>,
    pub(crate) tunnel: Arc<OnceLock<Tunnel>>,
    pub(crate) cancel: &'a Cancel,
    /// How it ended at the far end, once that is known.
    pub(crate) done: Option<Done>,
    /// Nothing more comes.
    pub(crate) ended: bool,
    /// The machine there, if it has no far end.
    pub(crate) without: Option<Machine>,
    /// The far end there speaks another language.
    pub(crate) foreign: bool,
    /// The reader has ended the transfer, since ssh has ended.
    lost: Arc<AtomicBool>,
    /// The two understand each other and are at work: the end of ssh ends the transfer.
    works: Arc<AtomicBool>,
}

/// How often a wait looks whether it is to be given up.
const STEP: Duration = Duration::from_millis(50);
/// How long the first word is waited for before that is said.
const SILENCE: Duration = Duration::from_secs(8);
/// How long the other end's last word is waited for.
const LAST_WORD: Duration = Duration::from_secs(3);

impl<'a> Link<'a> {
    /// Starts ssh, and with it the far end. When it ends before the far end's last word, the
    /// transfer is cancelled.
    pub(crate) fn start(
        options: &SshOptions,
        host: &Host,
        family: (bool, bool),
        quiet: bool,
        cancel: &'a Cancel,
    ) -> Result<Self, Failure> {
        let (ssh, stdin, stdout) = options.start(host, family, quiet)?;
        let (sender, came) = channel();
        let tunnel = Arc::new(OnceLock::new());
        let lost = Arc::new(AtomicBool::new(false));
        let (inner, stop, told) = (Arc::clone(&tunnel), cancel.clone(), Arc::clone(&lost));
        let carried = Arc::clone(&tunnel);
        let works = Arc::new(AtomicBool::new(false));
        let working = Arc::clone(&works);
        let lose = move || {
            told.store(true, Ordering::SeqCst);
            // Else another link may follow, and what waits for this one learns of it.
            if !working.load(Ordering::SeqCst) {
                return;
            }
            stop.cancel();
            // Through ssh no answer can come any more.
            if carried.get().is_some() {
                stop.hurry();
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

    pub(crate) fn say(&self, order: &Order) -> Result<(), Failure> {
        self.out.word(order).map_err(|error| {
            let host = &self.host.name;
            Failure::new(Code::Stream, format!("cannot tell {host} what to do: {error}"))
        })
    }

    /// Waits for the far end's first words, however long a password takes, and says after a while
    /// that it does.
    pub(crate) fn greet(&mut self, report: &mut Report) -> Result<(), Failure> {
        let word = match self.hear_within(SILENCE)? {
            Some(word) => word,
            None => {
                report.warn(&format!(
                    "netblt on {} has not answered for {} s. ssh is running: it waits for the \
                     network, for a password or a confirmation, or that login starts another \
                     program (command= in its authorized_keys, ForceCommand). Ctrl-C stops",
                    self.host.name,
                    SILENCE.as_secs()
                ));
                self.hear()?
            }
        };
        let Word::Hello { words, wire, version } = word else { return Err(self.odd_word()) };
        let version = printable(&version);
        if (words, wire) != (WORDS, sealed::VERSION) {
            self.foreign = true;
            let (host, own, own_wire) =
                (&self.host.name, env!("CARGO_PKG_VERSION"), sealed::VERSION);
            let why = format!(
                "{host} has netblt {version} (cp protocol {words}, wire {wire}) and this is \
                 netblt {own} (cp protocol {WORDS}, wire {own_wire}), which do not understand each \
                 other: install the same on both, or let --install put this one there"
            );
            return Err(Failure::new(Code::Start, why));
        }
        report.detail(&format!("netblt {version} answers there."));
        self.works.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The next word, however long that takes.
    pub(crate) fn hear(&mut self) -> Result<Word, Failure> {
        loop {
            if let Some(word) = self.hear_within(SILENCE)? {
                return Ok(word);
            }
        }
    }

    /// The next word, if it comes in time.
    fn hear_within(&mut self, patience: Duration) -> Result<Option<Word>, Failure> {
        let until = Instant::now() + patience;
        loop {
            if self.cancel.is_cancelled() && !self.is_lost() {
                return Err(Failure::transfer(&Error::Interrupted, false));
            }
            match self.came.recv_timeout(STEP) {
                Ok(Came::Word(word)) => return Ok(Some(word)),
                Ok(Came::Noise(noise)) => {
                    self.ended = true;
                    self.without = machine_without(&noise);
                    return Err(self.ssh.explain(&noise));
                }
                Ok(Came::Ended(why)) => {
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

    /// Something that came while the transfer was under way; a warning is to be told.
    pub(crate) fn note(&mut self, came: Came) -> Option<String> {
        match came {
            Came::Word(Word::Warning(text)) => return Some(self.said(&text)),
            Came::Word(Word::Done(done)) => self.done = Some(done),
            Came::Word(_) => {}
            Came::Noise(_) | Came::Ended(_) => self.ended = true,
        }
        None
    }

    /// Waits for the far end's last word; `wanted`: it may still be at work. Then ssh ends.
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
                Err(RecvTimeoutError::Timeout) if !self.cancel.is_hurried() => {}
                Err(_) => break,
            }
        }
        self.out.close();
        self.ssh.finish();
        self.done
    }

    /// What the far end said, as the user hears it.
    pub(crate) fn said(&self, text: &str) -> String {
        format!("{}: {text}", self.host.name)
    }

    /// It is over there before it began here.
    pub(crate) fn failed_there(&mut self, done: Done) -> Failure {
        let message = done.message.clone().unwrap_or_else(|| "it failed".to_owned());
        let failure = Failure::new(Code::of(done.code), self.said(&message));
        self.done = Some(done);
        failure
    }

    /// Another program than this one, or one that means harm.
    pub(crate) fn odd_word(&self) -> Failure {
        let host = &self.host.name;
        Failure::new(Code::Protocol, format!("{host} said something that makes no sense here"))
    }
}

/// Whether a failure may be only a consequence of the other end's failure, or of the end of ssh.
pub(crate) fn is_echo(failure: &Failure) -> bool {
    matches!(failure.code, Code::Stream | Code::Timeout | Code::Connect | Code::Start)
}

/// What a failure is once a signal has asked this program to stop. A terminal's Ctrl-C ends ssh,
/// too, and what follows from that is no fault of anything. `kept`: where the parts are, if the
/// far end could not say it.
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

/// Takes what ssh brings until that ends; then the transfer is to end too.
fn listen(
    stdout: ChildStdout,
    came: &Sender<Came>,
    tunnel: &OnceLock<Tunnel>,
    lose: impl FnOnce(),
) {
    let mut reader = FrameReader::new(std::io::BufReader::with_capacity(256 << 10, stdout));
    if let Err(noise) = reader.find(MARK) {
        let _ = came.send(Came::Noise(noise));
        return;
    }
    let mut done = None;
    let why = loop {
        match reader.next() {
            Ok(Some(Frame::Word(word))) => {
                if let Word::Done(last) = &word {
                    done = Some(last.code);
                }
                if came.send(Came::Word(word)).is_err() {
                    return;
                }
            }
            Ok(Some(Frame::Datagram)) => {
                tunnel.get().iter().for_each(|tunnel| tunnel.deliver(reader.datagram()));
            }
            Ok(None) => break "the ssh connection has ended".to_owned(),
            Err(error) => break format!("the ssh connection brought {error}"),
        }
    };
    let _ = came.send(Came::Ended(why));
    match done {
        // The transfer's own end is on its way.
        Some(0) => {}
        Some(_) => {
            thread::sleep(LAST_WORD);
            lose();
        }
        None => lose(),
    }
}
