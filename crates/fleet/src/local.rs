//! The engine of one machine: a bounded number of tasks, each a process of its own.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netblt::Cancel;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, at};
use crate::run::{Run, append};
use crate::survey::undone;
use crate::wait::jittered;

/// EX_TEMPFAIL of sysexits.h: the task is to be started again.
pub const TEMPFAIL: i32 = 75;
/// The interval of looks at the tasks.
const LOOK: Duration = Duration::from_millis(50);
/// How long after a first failure a task is started again; each time twice as long, to a bound.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(120);

/// A chunk that waits for a task.
struct Waiting {
    chunk: u64,
    /// Not before.
    at: Instant,
    /// How often it was started again.
    again: u32,
}

/// The meaning of a task's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskEnd {
    Done,
    Again,
    Never,
}

/// Runs all chunks that are not done, `pairs` at once, each retried up to `requeues` times. `log`
/// is called for each task that ends.
///
/// # Errors
/// The run's directory cannot be used, or no process can be started.
pub fn run_all(
    run: &Run,
    program: &Path,
    (pairs, requeues): (u64, u32),
    cancel: &Cancel,
    log: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let now = Instant::now();
    let waiting = undone(run)?.into_iter();
    let mut waiting: VecDeque<Waiting> =
        waiting.map(|chunk| Waiting { chunk, at: now, again: 0 }).collect();
    let mut working: Vec<(Waiting, Child)> = Vec::new();
    let mut stopping = false;
    while !working.is_empty() || !waiting.is_empty() {
        if cancel.is_cancelled() {
            if !std::mem::replace(&mut stopping, true) {
                working.iter().for_each(|(_, child)| terminate(child));
            }
            waiting.clear();
        }
        while (working.len() as u64) < pairs.max(1) {
            let now = Instant::now();
            let Some(next) = waiting.iter().position(|waiting| waiting.at <= now) else { break };
            let Some(next) = waiting.remove(next) else { break };
            let child = start(run, program, next.chunk)?;
            working.push((next, child));
        }
        let mut still = Vec::new();
        for (mut task, mut child) in working {
            let chunk = task.chunk;
            match child.try_wait().map_err(at(program, "cannot be waited for"))? {
                None => still.push((task, child)),
                Some(status) => match verdict(status) {
                    TaskEnd::Done => {}
                    TaskEnd::Again if task.again < requeues && !stopping => {
                        log(&format!("chunk {chunk}: {status}; it is started again"));
                        let pause = PAUSE.saturating_mul(1 << task.again.min(10)).min(PAUSE_MOST);
                        task.again += 1;
                        task.at = Instant::now() + jittered(pause);
                        waiting.push_back(task);
                    }
                    _ => log(&format!("chunk {chunk}: {status}; see {}", run.log(chunk).display())),
                },
            }
        }
        working = still;
        thread::sleep(LOOK);
    }
    if stopping { Err(Error::Interrupted) } else { Ok(()) }
}

/// A task is retried, also after any signal, unless it reports an invalid request.
fn verdict(status: ExitStatus) -> TaskEnd {
    match status.code() {
        Some(0) => TaskEnd::Done,
        None | Some(TEMPFAIL) | Some(128..) => TaskEnd::Again,
        Some(_) => TaskEnd::Never,
    }
}

fn start(run: &Run, program: &Path, chunk: u64) -> Result<Child, Error> {
    let log = run.log(chunk);
    let open = || -> io::Result<(File, File)> {
        let file = append(&log)?;
        Ok((file.try_clone()?, file))
    };
    let (out, err) = open().map_err(at(&log, "cannot be opened"))?;
    let mut command = Command::new(program);
    command.args(["fleet", "run-chunk"]).arg(&run.place).arg(chunk.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::from(out)).stderr(Stdio::from(err));
    command.spawn().map_err(at(program, "cannot be started"))
}

pub(crate) fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // A task that has ended needs no signal.
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_task_is_retried_unless_it_reports_an_invalid_request() {
        let exited = |code: i32| verdict(ExitStatus::from_raw(code << 8));
        assert_eq!(exited(0), TaskEnd::Done);
        assert_eq!(exited(75), TaskEnd::Again);
        // A shell's words for a receiver that was killed.
        assert_eq!(exited(137), TaskEnd::Again);
        assert_eq!(verdict(ExitStatus::from_raw(9)), TaskEnd::Again);
        assert_eq!(exited(11), TaskEnd::Never);
        assert_eq!(exited(20), TaskEnd::Never);
    }
}
