//! The records of tasks, a file each, written by rename: of finished, failed and running chunks.

use serde::{Deserialize, Serialize};

/// A chunk is on the other side, every byte stored, flushed and verified: `done/K.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Done {
    /// Its number.
    pub chunk: u64,
    /// The BLAKE3 of its list, hexadecimal.
    pub id: String,
    /// Entries in its list.
    pub items: u64,
    /// File bytes in it, as they were sent.
    pub bytes: u64,
    /// File bytes that were there already, from an attempt before this one.
    pub kept: u64,
    /// Files and links that were sent.
    pub files: u64,
    /// Files that were not as they were when they were planned: they went as they are.
    pub changed: u64,
    /// From which machine.
    pub node: String,
    /// To which server.
    pub host: String,
    /// The number of attempts, of which this was the last.
    pub attempt: u64,
    /// Seconds since 1970, when the transfer that ended it began, and when it was over.
    pub began: f64,
    /// The same of its end.
    pub ended: f64,
}

/// A range of a file is on the other side: `ranges/K.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Brought {
    /// The number of its chunk.
    pub chunk: u64,
    /// The BLAKE3 of its list, hexadecimal.
    pub id: String,
    /// The chaining value of its subtree of the file's BLAKE3 tree, hexadecimal.
    pub value: String,
    /// Its bytes that this attempt did not bring: they were there already.
    pub kept: u64,
}

/// Why a chunk is not done: `failed/K.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failed {
    /// Its number.
    pub chunk: u64,
    /// Whether it makes no sense to try again with nothing changed but time.
    pub permanent: bool,
    /// The exit code of the program for it.
    pub code: u8,
    /// For people.
    pub message: String,
    /// The files that were left out, if that is the reason; the first hundred.
    pub names: Vec<String>,
    /// From which machine.
    pub node: String,
    /// To which server, if it came that far.
    pub host: Option<String>,
    /// Which of the tasks that took it.
    pub attempt: u64,
    /// When, seconds since 1970.
    pub at: u64,
}

/// A task at work: `running/K.json`, rewritten every two seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Running {
    /// The chunk's number.
    pub chunk: u64,
    /// On which machine, and as which process.
    pub node: String,
    /// The process.
    pub pid: u32,
    /// To which server, if it has chosen one.
    pub host: Option<String>,
    /// Which of the tasks that took the chunk.
    pub attempt: u64,
    /// File bytes that are through.
    pub bytes: u64,
    /// Bytes that this attempt has brought.
    #[serde(default)]
    pub brought: u64,
    /// When this was written, seconds since 1970.
    pub at: u64,
}

/// A task's attempt at one server, as its claim has it: `claims/K.N`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// At which server.
    pub host: String,
    /// Seconds since 1970 when it began.
    pub began: f64,
    /// Its end. None while it runs, and for a task that was killed.
    pub end: Option<End>,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct End {
    /// Seconds since 1970.
    pub at: f64,
    /// Its result.
    pub verdict: Verdict,
    /// The bytes that it transferred, without those that were there before.
    pub brought: u64,
    /// Why it failed, for people.
    pub message: Option<String>,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verdict {
    /// The chunk is done.
    Done,
    /// It failed, and is tried again.
    Failed,
    /// It failed for good.
    Lost,
    /// It was stopped, or another task has taken the chunk.
    Stopped,
}

/// A task that has not written for so long is not at work any more, in seconds.
pub const STALE: u64 = 30;

impl Running {
    /// Whether it is at work, as far as can be seen from here, at this time in seconds since 1970.
    pub fn is_at_work(&self, now: u64) -> bool {
        now.saturating_sub(self.at) < STALE && !self.is_dead_here()
    }

    /// Whether it was on this machine, and is gone.
    fn is_dead_here(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        self.node == crate::run::node() && pid.is_some_and(gone)
    }
}
