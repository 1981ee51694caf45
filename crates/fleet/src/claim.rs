//! The claim of a task to a chunk: of several tasks the last one has it, and the others notice.
//!
//! `claims/K.N` is the N-th task's claim to chunk K. It appears as a whole, by a link. One of
//! several tasks that try at once gets it, also on file systems over networks.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, at};
use crate::record::{Attempt, End, Running};
use crate::run::{self, CLAIMS, RUNNING, Run};

/// Tasks that may take one chunk.
const MAX_ATTEMPTS: u64 = 1_000_000;

/// The content of a claim.
#[derive(Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) node: String,
    pid: u32,
    /// When it was written.
    pub(crate) at: u64,
    /// How often a host has failed this chunk.
    turn: u64,
    /// The tries of the task, in order, without those at busy servers.
    #[serde(default)]
    pub(crate) tries: Vec<Attempt>,
    /// The last record of the task before, if it was killed.
    #[serde(default)]
    pub(crate) before: Option<Running>,
}

impl Text {
    /// The start of its task, in seconds since 1970.
    pub(crate) fn began(&self) -> f64 {
        self.tries.first().map_or(self.at as f64, |first| first.began)
    }
}

/// A task's claim.
pub(crate) struct Claim {
    path: PathBuf,
    next: PathBuf,
    /// Which of the tasks that took this chunk, from 1.
    pub(crate) number: u64,
    /// The number of failures of hosts, on which the next host depends. A kill of the task is no
    /// failure of a host, so its successor goes to the same host, which has its parts.
    pub(crate) turn: u64,
    tries: Vec<Attempt>,
    /// The last record of the task before, if it was killed.
    before: Option<Running>,
}

impl Claim {
    /// Takes a chunk, also from an earlier task.
    pub(crate) fn take(run: &Run, chunk: u64) -> Result<Self, Error> {
        let path = |number| run.place.join(CLAIMS).join(format!("{chunk:06}.{number}"));
        for number in 1..MAX_ATTEMPTS {
            if path(number).exists() {
                continue;
            }
            let before = if number > 1 { read(&path(number - 1)) } else { 0 };
            let claim = Self {
                path: path(number),
                next: path(number + 1),
                number,
                turn: before,
                tries: Vec::new(),
                before: None,
            };
            let new = run::run_watched(&claim.path)?;
            run::write(&new, &claim.text())?;
            let linked = fs::hard_link(&new, &claim.path);
            let _ = fs::remove_file(&new);
            match linked {
                Ok(()) => return Ok(claim),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at(&claim.path, "cannot be made")(error)),
            }
        }
        Err(Error::InvalidRequest(format!(
            "chunk {chunk} was tried {MAX_ATTEMPTS} times; plan it again"
        )))
    }

    /// The claim of a later task, if there is one.
    pub(crate) fn successor(run: &Run, chunk: u64, number: u64) -> PathBuf {
        run.place.join(CLAIMS).join(format!("{chunk:06}.{}", number + 1))
    }

    /// Whether another task has taken the chunk since.
    pub(crate) fn is_superseded(&self) -> bool {
        self.next.exists()
    }

    /// Removes the record of this task and of earlier ones, so that readers see that none of them
    /// is at work. A newer one has a record of its own.
    pub(crate) fn clear(run: &Run, chunk: u64, number: u64) {
        let path = run.record(RUNNING, chunk);
        let record = run::read::<Running>(&path).ok().flatten();
        if record.is_some_and(|record| record.attempt <= number) {
            let _ = fs::remove_file(path);
        }
    }

    /// Takes over the last record of the task before, which has ended.
    pub(crate) fn found(&mut self, before: Option<Running>) {
        self.before = before;
    }

    /// An attempt begins at a host.
    pub(crate) fn begin(&mut self, host: &str, began: f64) -> Result<(), Error> {
        self.tries.push(Attempt { host: host.to_owned(), began, end: None });
        run::write(&self.path, &self.text())
    }

    /// The task has ended. If its host has failed, the next one has its turn.
    pub(crate) fn end(&mut self, end: End, failed: bool) -> Result<(), Error> {
        self.turn += u64::from(failed);
        if let Some(last) = self.tries.last_mut() {
            last.end = Some(end);
        }
        run::write(&self.path, &self.text())
    }

    /// The host was busy, which is no attempt.
    pub(crate) fn pass_on(&mut self) {
        self.tries.pop();
    }

    fn text(&self) -> Text {
        Text {
            node: run::node(),
            pid: std::process::id(),
            at: run::now(),
            turn: self.turn,
            tries: self.tries.clone(),
            before: self.before.clone(),
        }
    }
}

fn read(path: &std::path::Path) -> u64 {
    let text = run::read::<Text>(path);
    text.ok().flatten().map_or(0, |text| text.turn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Limits, plan};
    use crate::record::Verdict;

    #[test]
    fn the_last_task_has_the_claim_and_resumes_the_one_before() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let limits = Limits { bytes: 1, items: 1 };
        let what = (dirs[0].path(), &b"to"[..]);
        let cancel = netblt::Cancel::default();
        let run = plan(what, dirs[1].path(), limits, &cancel, &mut |_| {}).expect("planned");
        let mut first = Claim::take(&run, 0).expect("a claim");
        assert_eq!((first.number, first.turn, first.is_superseded()), (1, 0, false));
        first.begin("one", 1.0).expect("written");
        first.pass_on();
        first.begin("other", 2.0).expect("written");
        let end = End { at: 3.0, verdict: Verdict::Failed, brought: 5, message: None };
        first.end(end, true).expect("written");
        let text = run::read::<Text>(&first.path).expect("read").expect("there");
        let tries: Vec<_> = text.tries.iter().map(|it| (&it.host[..], it.end.is_some())).collect();
        assert_eq!(tries, [("other", true)]);
        let second = Claim::take(&run, 0).expect("a claim");
        assert_eq!((second.number, second.turn), (2, 1));
        assert!(first.is_superseded() && !second.is_superseded());
        // The record of a task that is over is removed, also when a newer one came meanwhile.
        let record = |attempt| Running {
            chunk: 0,
            node: "here".to_owned(),
            pid: 1,
            host: None,
            attempt,
            bytes: 0,
            brought: 0,
            at: 0,
        };
        for (attempt, over, stays) in [(1, 1, false), (1, 2, false), (2, 1, true)] {
            let path = run.record(RUNNING, 0);
            run::write(&path, &record(attempt)).expect("written");
            Claim::clear(&run, 0, over);
            assert_eq!(path.exists(), stays, "{attempt} {over}");
        }
        // Each of many concurrent tasks gets a number of its own.
        let take = || Claim::take(&run, 1).expect("a claim").number;
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            all.into_iter().map(|one| one.join().expect("it ran")).collect()
        });
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    }
}
