//! The user's own ssh, started with the agent as its command.
//!
//! The command is a constant but for `--remote-netblt`, which is quoted. Everything else goes over
//! the pipes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Args;
use netblt::Family;

use crate::copy::ssh::install::Machine;
use crate::exit::Failure;
use crate::host::Host;
use crate::units;

/// Finds the program in its usual places, although the shell is no login shell. The first place is
/// that of `--install`.
const SCRIPT: &str = "\
PATH=$HOME/.local/bin:$PATH:$HOME/.cargo/bin:/usr/local/bin:/opt/netblt/bin; export PATH; \
p=${1:-netblt}; case $p in \"~/\"*) p=$HOME/${p#??};; esac; \
command -v \"$p\" >/dev/null 2>&1 || \
{ echo; echo \"netblt missing: $p on $(uname -sm)\"; exit 127; }; \
exec \"$p\" far-end";
/// The script's output if there is no such program.
const MISSING: &str = "netblt missing: ";
/// The exit code of ssh if ssh itself failed.
const SSH_FAILED: i32 = 255;
/// How long ssh may take to end when its pipes are closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long its last output may take to arrive once it has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

/// The options that are passed on to ssh, with scp's letters.
#[derive(Args, Debug)]
#[command(next_help_heading = "ssh")]
pub(crate) struct SshOptions {
    /// ssh's port
    #[arg(short = 'P', value_name = "PORT", value_parser = units::number::<u16>(1, 65_535))]
    port: Option<u16>,
    /// ssh's key (-i); for a server of files, your key for it
    #[arg(short = 'i', value_name = "FILE")]
    pub(crate) identity: Vec<OsString>,
    /// ssh's configuration (-F)
    #[arg(short = 'F', value_name = "FILE")]
    config: Option<OsString>,
    /// Go over these hosts (ssh's -J)
    #[arg(short = 'J', value_name = "HOST")]
    jump: Option<OsString>,
    /// Any option of ssh's, as in its configuration (-o)
    #[arg(short = 'o', value_name = "OPTION")]
    option: Vec<OsString>,
    /// Ask nothing, not for passwords either
    #[arg(short = 'B')]
    batch: bool,
    /// The program to use as ssh [default: ssh]
    #[arg(short = 'S', value_name = "PROGRAM")]
    program: Option<OsString>,
    /// The path of netblt on the other machine [default: searched in PATH and the usual places]
    #[arg(long, value_name = "PATH")]
    remote_netblt: Option<String>,
    /// If the other machine has no netblt, or one of another version, copy this one into
    /// ~/.local/bin there, after asking
    #[arg(long, conflicts_with = "remote_netblt")]
    pub(crate) install: bool,
    /// Do not ask before that
    #[arg(long, requires = "install")]
    pub(crate) yes: bool,
}

/// A running ssh.
pub(crate) struct Ssh {
    child: Child,
    host: String,
    /// Passes on ssh's standard error.
    stderr_reader: Option<JoinHandle<()>>,
}

/// Settings of ssh's configuration with which it runs no command or does not connect this program's
/// pipes, and the settings that replace them. OpenSSH has names for them since 8.7.
const IN_THE_WAY: [(&str, &str, &str); 3] = [
    ("stdinnull ", "no", "-oStdinNull=no"),
    ("sessiontype ", "default", "-oSessionType=default"),
    ("forkafterauthentication ", "no", "-oForkAfterAuthentication=no"),
];

impl SshOptions {
    fn program(&self) -> &OsStr {
        self.program.as_deref().unwrap_or(OsStr::new("ssh"))
    }

    /// Whether the options can be passed on.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let quotable = |path: &String| !path.contains(['\'', '!', '\n', '\\']) && !path.is_empty();
        match &self.remote_netblt {
            Some(path) if !quotable(path) => Err(Failure::usage(
                "--remote-netblt: a path with quotes, backslashes, exclamation marks or line ends \
                 cannot be passed to every shell",
            )),
            _ => Ok(()),
        }
    }

    /// Starts ssh to `host` with the agent as its command.
    pub(crate) fn start(
        &self,
        host: &Host,
        family: Family,
        quiet: bool,
    ) -> Result<(Ssh, ChildStdin, ChildStdout), Failure> {
        let mut command = self.command(host, family, quiet, &self.overrides(host));
        command.arg("-T").arg("-x").arg("--").arg(&host.name).arg(self.remote_command());
        // Not this program's own: a master of ControlPersist keeps it open for longer.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.cannot(&error))?;
        let none = || self.cannot(&io::Error::other("it has no pipes"));
        let stdin = child.stdin.take().ok_or_else(none)?;
        let stdout = child.stdout.take().ok_or_else(none)?;
        let mut stderr = child.stderr.take().ok_or_else(none)?;
        let pass = move || drop(io::copy(&mut stderr, &mut io::stderr()));
        let stderr_reader = thread::Builder::new().name("netblt-ssh-stderr".to_owned()).spawn(pass);
        let stderr_reader = Some(stderr_reader.map_err(|error| self.cannot(&error))?);
        Ok((Ssh { child, host: host.name.clone(), stderr_reader }, stdin, stdout))
    }

    /// Runs a script of this program's there, with `input`, and waits until it ends.
    pub(crate) fn run(
        &self,
        host: &Host,
        family: Family,
        script: &str,
        input: File,
    ) -> Result<Output, Failure> {
        let mut command = self.command(host, family, false, &self.overrides(host));
        command.arg("-T").arg("-x").arg("--").arg(&host.name).arg(shell(script, ""));
        command.stdin(input).stderr(Stdio::inherit());
        command.output().map_err(|error| self.cannot(&error))
    }

    /// The type of that machine.
    pub(crate) fn machine(&self, host: &Host, family: Family) -> Result<Machine, Failure> {
        let nothing = File::open("/dev/null").map_err(|error| self.cannot(&error))?;
        let output = self.run(host, family, "uname -sm", nothing)?;
        let text = String::from_utf8_lossy(&output.stdout);
        // A login may print something before.
        let last = text.trim().lines().last().unwrap_or_default();
        Ok(Machine(last.to_owned()))
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        let program = self.program().to_string_lossy();
        Failure::new(crate::exit::Code::Start, format!("cannot start {program}: {error}"))
    }

    /// `overrides` come first: of two values ssh takes the first.
    fn command(&self, host: &Host, family: Family, quiet: bool, overrides: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(overrides);
        // The variables of a parent agent do not concern ssh.
        command.env_remove(crate::args::TICKET_VARIABLE);
        let version = match family {
            Family::Any => None,
            Family::V4 => Some("-4"),
            Family::V6 => Some("-6"),
        };
        command.args(version).args(quiet.then_some("-q"));
        command.args(self.batch.then_some("-oBatchMode=yes"));
        if let Some(port) = host.port.or(self.port) {
            command.arg("-p").arg(port.to_string());
        }
        for file in &self.identity {
            command.arg("-i").arg(file);
        }
        for (letter, value) in [("-F", &self.config), ("-J", &self.jump)] {
            value.iter().for_each(|value| _ = command.arg(letter).arg(value));
        }
        for option in &self.option {
            command.arg("-o").arg(option);
        }
        // As scp has it: forwarding is for people at terminals.
        command.arg("-oClearAllForwardings=yes").arg("-oForwardAgent=no");
        command.arg("-oPermitLocalCommand=no").arg("-oRemoteCommand=none");
        host.user.iter().for_each(|user| _ = command.arg("-l").arg(user));
        command
    }

    fn remote_command(&self) -> String {
        let path = self.remote_netblt.as_deref().map_or(String::new(), |p| format!(" '{p}'"));
        shell(SCRIPT, &path)
    }

    /// The host's name behind an alias of the user's configuration, and whether ssh goes there
    /// straight: else it may be a name that only another host knows.
    pub(crate) fn host_name(&self, host: &Host) -> (String, bool) {
        let text = self.configuration(host).unwrap_or_default();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let leads = |name: &str| value(name).is_some_and(|value| value != "none");
        let name = value("hostname ").unwrap_or(&host.name).to_owned();
        (name, !leads("proxyjump ") && !leads("proxycommand "))
    }

    /// ssh's effective configuration for this host, a setting a line.
    fn configuration(&self, host: &Host) -> Option<String> {
        let mut command = self.command(host, Family::Any, true, &[]);
        command.arg("-G").arg("--").arg(&host.name);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(output.stdout).ok()
    }

    /// Arguments that override such settings. Only those that are in use: an older ssh knows none
    /// of them, and refuses unknown ones.
    fn overrides(&self, host: &Host) -> Vec<&'static str> {
        let text = self.configuration(host).unwrap_or_default();
        let is_set = |name: &str, wanted: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.is_some_and(|value| value != wanted)
        };
        let set = IN_THE_WAY.iter().filter(|(name, wanted, _)| is_set(name, wanted));
        set.map(|(_, _, argument)| *argument).collect()
    }
}

impl Ssh {
    /// Why the agent never came, from what did come instead.
    pub(crate) fn explain(&mut self, output: &[u8]) -> Failure {
        use crate::exit::Code;
        let host = self.host.clone();
        let text = String::from_utf8_lossy(output);
        if let Some(missing) = missing(&text) {
            return Failure::new(
                Code::Start,
                format!(
                    "netblt was not found on {host} ({missing}): install it there, let --install \
                     put it there, or say where it is with --remote-netblt PATH"
                ),
            );
        }
        let status = wait(&mut self.child, PATIENCE);
        self.drain_stderr();
        if status.and_then(|status| status.code()) == Some(SSH_FAILED) {
            let why = format!("ssh to {host} failed before netblt answered there");
            return Failure::new(Code::Connect, why);
        }
        let said = text.trim().lines().last().unwrap_or("nothing").to_owned();
        Failure::new(
            Code::Start,
            format!(
                "netblt does not answer on {host}, which said: {said}; is it an older one, or does \
                 that login allow no commands?"
            ),
        )
    }

    /// Lets ssh end, and ends it if it does not.
    pub(crate) fn finish(mut self) {
        if wait(&mut self.child, PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.drain_stderr();
    }

    /// Lets its last words pass, and does not wait for those of a master that stays.
    fn drain_stderr(&mut self) {
        let until = Instant::now() + STDERR_TIMEOUT;
        while self.stderr_reader.as_ref().is_some_and(|stderr_reader| !stderr_reader.is_finished())
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(5));
        }
        self.stderr_reader = None;
    }
}

/// The machine that has no such program, if the output says so.
pub(crate) fn machine_without(output: &[u8]) -> Option<Machine> {
    let text = String::from_utf8_lossy(output);
    let (_, machine) = missing(&text)?.rsplit_once(" on ")?;
    Some(Machine(machine.to_owned()))
}

fn missing(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(MISSING))
}

/// One command line that all shells of logins read alike.
fn shell(script: &str, arguments: &str) -> String {
    let quoted = script.replace('\'', "'\\''");
    format!("exec sh -c '{quoted}' netblt{arguments}")
}

/// Waits for a child, but not for ever.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(10));
            }
            _ => return None,
        }
    }
}
