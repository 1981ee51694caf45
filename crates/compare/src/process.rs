//! A program in one of the hosts. It ends when its value is dropped, whatever happens.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netblt_emu::netns::{self, Host};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// The interval at which a running program is checked.
pub(crate) const LOOK_ROUND: Duration = Duration::from_millis(4);
/// How long a program that was asked to end may take.
const MERCY: Duration = Duration::from_secs(2);
/// How much of a program's output is shown, in bytes.
const SAID_BYTES: usize = 400;

/// A command line: the program's name or path comes first.
pub(crate) type Words = Vec<OsString>;

/// A program that runs, or has ended and is not forgotten yet.
#[derive(Debug)]
pub(crate) struct Side {
    child: Child,
    name: String,
    log: PathBuf,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// With exit code 0.
    pub(crate) good: bool,
    /// Processor time, with its children: its own and the system's for it.
    pub(crate) cpu: Duration,
}

impl Side {
    /// Starts a program inside a host. Its output goes to `log`.
    pub(crate) fn start(
        host: &Host,
        words: &Words,
        log: PathBuf,
        home: &Path,
    ) -> Result<Self, String> {
        let (program, rest) = words.split_first().ok_or("there is nothing to start")?;
        let name = program.display().to_string();
        let failed = |error: io::Error| format!("cannot start {name}: {error}");
        let out = File::create(&log).map_err(failed)?;
        let both = out.try_clone().map_err(failed)?;
        let mut command = netns::command_inside(&host.name, program);
        let child = command
            .args(rest)
            // No program reads this user's settings, or keeps anything.
            .env("HOME", home)
            .env("XDG_CACHE_HOME", home)
            .env("XDG_RUNTIME_DIR", home)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(both)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, name, log })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub(crate) fn output(&self) -> String {
        fs::read(&self.log)
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .unwrap_or_default()
    }

    /// The last of it, as part of a sentence.
    pub(crate) fn complaint(&self) -> String {
        let said = self.output();
        let tail = said.char_indices().rev().take(SAID_BYTES).last().map_or(0, |(at, _)| at);
        let words: Vec<&str> = said[tail..].split_whitespace().collect();
        format!("{}: {}", self.name, if words.is_empty() { "no word" } else { "" })
            + &words.join(" ")
    }

    /// Whether and how it has ended.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        let pid = self.pid()?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // Its processor time is known until it is waited for.
        waitid(WaitId::Pid(pid), look).ok()??;
        let cpu = cpu_of(self.child.id()).unwrap_or_default();
        let status = self.child.wait().ok()?;
        Some(Ended { good: status.success(), cpu })
    }

    /// Whether it has children that it has not waited for.
    pub(crate) fn has_children(&self) -> bool {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.is_ok_and(|children| !children.trim().is_empty())
    }

    /// Waits for its end until `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Option<Ended> {
        loop {
            if let Some(ended) = self.ended() {
                return Some(ended);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(LOOK_ROUND);
        }
    }

    /// Asks it to end, and sees to it.
    pub(crate) fn end(mut self) -> Option<Ended> {
        for signal in [Signal::TERM, Signal::KILL] {
            if let Some(pid) = self.pid() {
                // It may have ended meanwhile.
                let _ = kill_process(pid, signal);
            }
            if let Some(ended) = self.wait(Instant::now() + MERCY) {
                return Some(ended);
            }
        }
        None
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // A program that was waited for is not affected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time of a process and of its children that it has waited for
/// (`proc_pid_stat(5)`, fields 14 to 17).
fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks(&stat).map(|ticks| {
        Duration::from_secs(ticks)
            / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100)
    })
}

fn ticks(stat: &str) -> Option<u64> {
    // The name, in brackets, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 99 0 0 0 10 20 3 4 20 0 1 0 5 6";
        assert_eq!(ticks(stat), Some(37));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert!(cpu_of(std::process::id()).is_some());
    }
}
