//! The engine of computing centres: an array of tasks for each thousand chunks, handed to `sbatch`.
//!
//! The script is kept in the run's directory. It does nothing but start `netblt fleet run-chunk`,
//! pass SIGTERM on to it, and ask for the task to be queued again when that is wanted; which exit
//! codes make Slurm requeue a job by itself is its administrator's to say, so nothing relies on it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ARRAY;
use crate::error::{Error, at};
use crate::run::{Run, publish};
use crate::state::undone;

/// Seconds before its time limit in which a task is to end.
const NOTICE: u32 = 120;

/// An array of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The chunk of its task 0.
    pub first: u64,
    /// Its tasks, as `sbatch --array` has them.
    pub tasks: String,
}

/// Hands all chunks that are not done to Slurm, `pairs` at once, each up to `requeues` times again;
/// one array after the other. `options` go to `sbatch`. Answers the numbers of the jobs.
///
/// # Errors
/// The run's directory cannot be used, or `sbatch` does not take it.
pub fn submit(
    run: &Run,
    program: &Path,
    (pairs, requeues): (u64, u32),
    options: &[std::ffi::OsString],
) -> Result<Vec<String>, Error> {
    let mut jobs: Vec<String> = Vec::new();
    for array in arrays(&undone(run)?) {
        let path = run.place.join(format!("slurm-{}.sh", array.first));
        publish(&path, &script(run, program, (array.first, requeues)))?;
        let mut command = Command::new("sbatch");
        command.arg("--parsable");
        command.arg(format!("--array={}%{}", array.tasks, pairs.max(1)));
        command.arg(format!("--signal=B:TERM@{NOTICE}")).arg("--requeue");
        command.arg("--job-name=netblt").arg("--open-mode=append");
        command.arg(output(run));
        // All arrays together are to be no more than `pairs` at once.
        command.args(jobs.last().map(|job| format!("--dependency=afterany:{job}")));
        command.args(options).arg(&path).stdin(Stdio::null()).stderr(Stdio::inherit());
        let made = command.output().map_err(at(Path::new("sbatch"), "cannot be started"))?;
        let said = String::from_utf8_lossy(&made.stdout);
        let job = said.trim().split(';').next().unwrap_or_default();
        if !made.status.success() || job.is_empty() {
            return Err(Error::Wish(format!("sbatch does not take it: {}", made.status)));
        }
        jobs.push(job.to_owned());
    }
    Ok(jobs)
}

/// Chunks as arrays of at most a thousand tasks.
pub fn arrays(chunks: &[u64]) -> Vec<Array> {
    let mut arrays: Vec<(u64, Vec<u64>)> = Vec::new();
    for chunk in chunks {
        match arrays.last_mut() {
            Some((first, tasks)) if *chunk < *first + ARRAY => tasks.push(*chunk - *first),
            _ => arrays.push((*chunk, vec![0])),
        }
    }
    arrays.into_iter().map(|(first, tasks)| Array { first, tasks: ranges(&tasks) }).collect()
}

/// `0-3,7`.
fn ranges(tasks: &[u64]) -> String {
    let (mut text, mut at) = (String::new(), 0);
    while let Some(first) = tasks.get(at) {
        let mut last = *first;
        at += 1;
        while tasks.get(at) == Some(&(last + 1)) {
            last += 1;
            at += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match last == *first {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

fn output(run: &Run) -> std::ffi::OsString {
    let path: PathBuf = run.place.join("log").join("slurm-%A_%a.log");
    let mut option = std::ffi::OsString::from("--output=");
    option.push(path);
    option
}

fn script(run: &Run, program: &Path, (first, requeues): (u64, u32)) -> Vec<u8> {
    let head = format!(
        "#!/bin/bash\n\
         # Written by netblt fleet submit: chunk {first} and those behind it, a task each.\n\
         chunk=$(({first} + SLURM_ARRAY_TASK_ID))\n"
    );
    let foot = format!(
        "task=$!\n\
         trap 'kill -TERM \"$task\" 2>/dev/null; stopped=yes' TERM\n\
         while :; do\n    \
             wait \"$task\"\n    \
             code=$?\n    \
             kill -0 \"$task\" 2>/dev/null || break\n\
         done\n\
         # A signal, before a time limit or from outside: what has arrived is kept.\n\
         again=no\n\
         [ \"$code\" -eq 75 ] || [ \"$code\" -ge 128 ] && again=yes\n\
         [ \"$code\" -ne 0 ] && [ -n \"${{stopped-}}\" ] && again=yes\n\
         if [ $again = yes ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {requeues} ] &&\n    \
             scontrol show job -o \"$SLURM_JOB_ID\" | grep -q 'JobState=RUNNING '; then\n    \
             scontrol requeue \"$SLURM_JOB_ID\"\n\
         fi\n\
         exit \"$code\"\n"
    );
    let (program, place) = (quoted(program.as_os_str()), quoted(run.place.as_os_str()));
    let call = [&program[..], b" fleet run-chunk ", &place, b" \"$chunk\" &\n"].concat();
    [head.as_bytes(), &call, foot.as_bytes()].concat()
}

/// As a shell has it.
fn quoted(text: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in text.as_bytes() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_a_thousand_tasks_at_most() {
        let all: Vec<u64> = (0..2500).collect();
        let tasks = |first, tasks: &str| Array { first, tasks: tasks.to_owned() };
        let even = [tasks(0, "0-999"), tasks(1000, "0-999"), tasks(2000, "0-499")];
        assert_eq!(arrays(&all), even);
        let rest = [3, 4, 5, 9, 1002, 1003, 2002];
        assert_eq!(arrays(&rest), [tasks(3, "0-2,6,999"), tasks(1003, "0,999")]);
        assert_eq!(arrays(&[]), []);
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted(OsStr::new("a b'c")), b"'a b'\\''c'");
    }
}
