//! How far a run is.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use crate::chunk::done;
use crate::error::{Error, at};
use crate::record::{Done, Failed, Running};
use crate::run::{self, Chunk, FAILED, RUNNING, Run, now};

/// The state of one chunk.
#[derive(Clone, Debug)]
pub enum State {
    /// It is on the other side.
    Done(Box<Done>),
    /// A task is at work on it.
    Running(Box<Running>),
    /// It failed, and why.
    Failed(Box<Failed>),
    /// No task has begun with it, or its task is gone.
    Waiting,
}

/// The counts of all states.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// Chunks in all, and their bytes.
    pub chunks: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Chunks that are done, and their bytes as planned.
    pub done: u64,
    /// Their bytes.
    pub done_bytes: u64,
    /// Chunks on which tasks are at work, and what those have through.
    pub running: u64,
    /// Bytes of chunks at work that are through.
    pub running_bytes: u64,
    /// Chunks that failed and may go well if they are tried again.
    pub failed: u64,
    /// Chunks that failed for good.
    pub lost: u64,
    /// Chunks that wait.
    pub waiting: u64,
    /// Tasks at work by the machine they run on.
    pub nodes: BTreeMap<String, u64>,
}

impl Survey {
    /// Whether all is on the other side.
    pub fn is_done(&self) -> bool {
        self.done == self.chunks
    }
}

/// The state of one chunk.
///
/// # Errors
/// A record cannot be read.
pub fn of(run: &Run, chunk: &Chunk) -> Result<State, Error> {
    if let Some(done) = done(run, chunk)? {
        return Ok(State::Done(Box::new(done)));
    }
    let running = run::read::<Running>(&run.record(RUNNING, chunk.number)).ok().flatten();
    if let Some(running) = running.filter(|running| running.is_at_work(now())) {
        return Ok(State::Running(Box::new(running)));
    }
    let failed = run::read::<Failed>(&run.record(FAILED, chunk.number))?;
    Ok(failed.map_or(State::Waiting, |failed| State::Failed(Box::new(failed))))
}

/// Reads the state of all chunks, and calls `found` with each.
///
/// # Errors
/// The run's directory cannot be read.
pub fn survey(run: &Run, mut found: impl FnMut(&Chunk, &State)) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    for chunk in run.chunks()? {
        let state = of(run, &chunk)?;
        survey.chunks += 1;
        survey.bytes += chunk.bytes;
        match &state {
            State::Done(_) => {
                survey.done += 1;
                survey.done_bytes += chunk.bytes;
            }
            State::Running(running) => {
                survey.running += 1;
                survey.running_bytes += running.bytes;
                *survey.nodes.entry(running.node.clone()).or_default() += 1;
            }
            State::Failed(failed) if failed.permanent => survey.lost += 1,
            State::Failed(_) => survey.failed += 1,
            State::Waiting => survey.waiting += 1,
        }
        found(&chunk, &state);
    }
    Ok(survey)
}

/// The number of tasks at work on each host, by their records.
pub(crate) fn tasks_by_host(run: &Run) -> HashMap<String, usize> {
    let mut tasks = HashMap::new();
    let Ok(records) = fs::read_dir(run.place.join(RUNNING)) else { return tasks };
    let now = now();
    for record in records.flatten() {
        let running = run::read::<Running>(&record.path()).ok().flatten();
        let running = running.filter(|running| running.is_at_work(now));
        if let Some(host) = running.and_then(|running| running.host) {
            *tasks.entry(host).or_default() += 1;
        }
    }
    tasks
}

/// The numbers of the chunks that are not done.
///
/// # Errors
/// The run's directory cannot be read.
pub fn undone(run: &Run) -> Result<Vec<u64>, Error> {
    let mut undone = Vec::new();
    for chunk in run.chunks()? {
        if done(run, &chunk)?.is_none() {
            undone.push(chunk.number);
        }
    }
    Ok(undone)
}

/// Removes the files of a run's directory that only running tasks need: claims, records of running
/// tasks, and logs.
///
/// # Errors
/// Something cannot be listed.
pub(crate) fn sweep(run: &Run) -> Result<(), Error> {
    for kind in [run::CLAIMS, RUNNING, run::LOG] {
        let place = run.place.join(kind);
        for entry in fs::read_dir(&place).map_err(at(&place, "cannot be listed"))?.flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Limits, plan};

    #[test]
    fn tasks_are_counted_by_the_hosts_in_their_records() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let limits = Limits { bytes: 1, items: 1 };
        let (what, cancel) = ((dirs[0].path(), &b"to"[..]), netblt::Cancel::default());
        let run = plan(what, dirs[1].path(), limits, &cancel, &mut |_| {}).expect("planned");
        assert!(tasks_by_host(&run).is_empty());
        // The last two have no host yet, and an old record.
        let records =
            [(Some("a"), 0), (Some("b"), 0), (Some("a"), 0), (None, 0), (Some("b"), 1000)];
        for (chunk, (host, ago)) in (0..).zip(records) {
            let host = host.map(str::to_owned);
            let (node, pid, at) = ("elsewhere".to_owned(), 1, now() - ago);
            let (attempt, bytes, brought) = (1, 0, 0);
            let running = Running { chunk, node, pid, host, attempt, bytes, brought, at };
            run::write(&run.record(RUNNING, chunk), &running).expect("written");
        }
        let tasks = tasks_by_host(&run);
        assert_eq!((tasks.len(), tasks["a"], tasks["b"]), (2, 2, 1));
    }
}
