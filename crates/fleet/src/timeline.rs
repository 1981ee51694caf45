//! What was tried when, where, and how it ended: from the claims, as long as those are kept.

use serde_json::Value;

use crate::claim;
use crate::error::Error;
use crate::record::{Done, Running};
use crate::run::{self, DONE, RUNNING, Run, now};

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
    /// The same of its end; of one at work when it was looked at, of one whose task is gone the
    /// last that is known of it.
    pub ended: f64,
    /// What came of it.
    pub fate: Fate,
    /// Bytes that it brought, as far as is known; what was there before is not among them.
    pub brought: u64,
    /// Why it failed, for people.
    pub message: Option<String>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The chunk is done.
    Done,
    /// It failed, and is tried again.
    Failed,
    /// It failed for good.
    Lost,
    /// It was stopped, or another task has taken the chunk.
    Stopped,
    /// It has not ended.
    AtWork,
    /// Its task was killed: it never said.
    Gone,
}

impl Span {
    /// Bytes a second, in the mean.
    pub fn rate(&self) -> f64 {
        self.brought as f64 / (self.ended - self.began).max(1e-3)
    }
}

/// All attempts, those first that began first. Of chunks whose claims were removed, what brought
/// them over.
///
/// # Errors
/// The run's directory cannot be read.
pub fn timeline(run: &Run) -> Result<Vec<Span>, Error> {
    let mut spans: Vec<Span> = Vec::new();
    for chunk in 0..run.head.chunks {
        let (mut task, mut own) = (1, Vec::new());
        let mut next = run::read::<Value>(&claim::path(run, chunk, task))?;
        while let Some(text) = next {
            next = run::read::<Value>(&claim::path(run, chunk, task + 1))?;
            of_claim(run, (chunk, task), &text, next.as_ref(), &mut own);
            task += 1;
        }
        if own.is_empty() {
            own.extend(run::read::<Done>(&run.record(DONE, chunk))?.map(of_done));
        }
        for span in own {
            // Chunks are begun by their numbers, or almost so.
            let at = spans.partition_point(|one| one.began <= span.began);
            spans.insert(at, span);
        }
    }
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
        fate: Fate::Done,
        message: None,
    }
}

/// `next`: the claim behind it, which tells what one that was killed had told last.
fn of_claim(
    run: &Run,
    (chunk, task): (u64, u64),
    text: &Value,
    next: Option<&Value>,
    spans: &mut Vec<Span>,
) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let time = |value: &Value| value.as_f64().unwrap_or(0.0);
    for tried in text["tries"].as_array().into_iter().flatten() {
        let mut span = Span {
            chunk,
            task,
            node: word(&text["node"]),
            host: word(&tried["host"]),
            began: time(&tried["began"]),
            ended: time(&tried["ended"]),
            fate: match tried["verdict"].as_str() {
                Some("done") => Fate::Done,
                Some("failed") => Fate::Failed,
                Some("lost") => Fate::Lost,
                Some(_) => Fate::Stopped,
                None => Fate::Gone,
            },
            brought: tried["brought"].as_u64().unwrap_or(0),
            message: tried["message"].as_str().map(str::to_owned),
        };
        match (span.fate, next) {
            (Fate::Gone, Some(next)) => {
                let before = &next["before"];
                (span.ended, span.brought) = match before["attempt"] == task {
                    true => (time(&before["at"]), before["brought"].as_u64().unwrap_or(0)),
                    false => (time(&next["tries"][0]["began"]), 0),
                };
            }
            (Fate::Gone, None) => {
                // One that cannot be read is being written.
                let running = run::read::<Running>(&run.record(RUNNING, chunk)).ok().flatten();
                if let Some(running) = running.filter(|running| running.attempt == task) {
                    let at_work = running.is_at_work(now());
                    (span.ended, span.brought) = (running.at as f64, running.brought);
                    span.fate = if at_work { Fate::AtWork } else { Fate::Gone };
                }
            }
            _ => {}
        }
        span.ended = span.ended.max(span.began);
        spans.push(span);
    }
}
