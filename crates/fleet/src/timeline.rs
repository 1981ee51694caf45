//! The timeline of a run: each attempt, its host and its end, from the claims, as long as those are
//! kept.

use std::collections::BTreeMap;
use std::fs;

use crate::claim::Text;
use crate::error::{Error, at};
use crate::record::{Done, Running, Verdict};
use crate::run::{self, CLAIMS, DONE, RUNNING, Run, now};

/// An attempt to bring a chunk over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Span {
    /// Which chunk.
    pub chunk: u64,
    /// Which of the tasks that took it.
    pub task: u64,
    /// From which machine.
    pub node: String,
    /// To which server.
    pub host: String,
    /// Seconds since 1970.
    pub began: f64,
    /// Its end, likewise. For a running task it is the time of the look, for a killed one that of
    /// its last record.
    pub ended: f64,
    /// How it is.
    pub fate: Fate,
    /// Bytes that it brought, as far as is known.
    pub brought: u64,
    /// Why it failed, for people.
    pub message: Option<String>,
}

/// The end of an attempt, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// By its task's record.
    Ended(Verdict),
    /// It has not.
    AtWork,
    /// Its task was killed: there is no record.
    Gone,
}

impl Span {
    /// Bytes a second, in the mean.
    pub fn rate(&self) -> f64 {
        self.brought as f64 / (self.ended - self.began).max(1e-3)
    }
}

/// All attempts, in the order of their beginnings. Chunks whose claims were removed have the
/// attempt that finished them.
///
/// # Errors
/// The run's directory cannot be read.
pub fn timeline(run: &Run) -> Result<Vec<Span>, Error> {
    let mut claims: BTreeMap<u64, BTreeMap<u64, Text>> = BTreeMap::new();
    let place = run.place.join(CLAIMS);
    for entry in fs::read_dir(&place).map_err(at(&place, "cannot be listed"))?.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.split_once('.'));
        let numbers = numbers.map(|(chunk, task)| (chunk.parse(), task.parse()));
        // Files that are being written have other names.
        let Some((Ok(chunk), Ok(task))) = numbers else { continue };
        if let Ok(Some(text)) = run::read::<Text>(&entry.path()) {
            claims.entry(chunk).or_default().insert(task, text);
        }
    }
    let mut spans = Vec::new();
    for chunk in 0..run.head.chunks {
        let tasks = claims.remove(&chunk).unwrap_or_default();
        if tasks.values().all(|text| text.tries.is_empty()) {
            spans.extend(run::read::<Done>(&run.record(DONE, chunk))?.map(of_done));
            continue;
        }
        for (task, text) in &tasks {
            let next = tasks.range(task + 1..).next().map(|(_, text)| text);
            let last = match next {
                Some(next) => next.before.clone(),
                // One that cannot be read is being written.
                None => run::read::<Running>(&run.record(RUNNING, chunk)).ok().flatten(),
            };
            let last = last.filter(|last| last.attempt == *task);
            of_claim(chunk, *task, text, last.as_ref(), next, &mut spans);
        }
    }
    spans.sort_by(|a, b| a.began.total_cmp(&b.began));
    Ok(spans)
}

fn of_done(done: Done) -> Span {
    Span {
        chunk: done.chunk,
        task: done.attempt,
        brought: done.bytes.saturating_sub(done.kept),
        node: done.node,
        host: done.host,
        began: done.began,
        ended: done.ended,
        fate: Fate::Ended(Verdict::Done),
        message: None,
    }
}

/// `last`: the last record of a task that did not end by itself; `next`: the claim after it.
fn of_claim(
    chunk: u64,
    task: u64,
    text: &Text,
    last: Option<&Running>,
    next: Option<&Text>,
    spans: &mut Vec<Span>,
) {
    for attempt in &text.tries {
        let brought = last.map_or(0, |last| last.brought);
        let (ended, fate, brought, message) = match (&attempt.end, last) {
            (Some(end), _) => (end.at, Fate::Ended(end.verdict), end.brought, end.message.clone()),
            (None, Some(last)) if next.is_none() && last.is_at_work(now()) => {
                (now() as f64, Fate::AtWork, brought, None)
            }
            (None, Some(last)) => (last.at as f64, Fate::Gone, brought, None),
            (None, None) => (next.map_or(attempt.began, Text::began), Fate::Gone, 0, None),
        };
        spans.push(Span {
            chunk,
            task,
            node: text.node.clone(),
            host: attempt.host.clone(),
            began: attempt.began,
            ended: ended.max(attempt.began),
            fate,
            brought,
            message,
        });
    }
}
