//! The engine of computing centres: an array of tasks for each thousand chunks, handed to `sbatch`.
//!
//! The script is kept in the run's directory. It does nothing but start `netblt fleet run-chunk`,
//! pass SIGTERM on to it, and ask for the task to be queued again when that is wanted; which exit
//! codes make Slurm requeue a job by itself is its administrator's to say, so nothing relies on it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ARRAY;
use crate::error::{Error, at};
use crate::run::{Run, publish};
use crate::survey::undone;

/// Seconds before its time limit in which a task is to end.
const NOTICE: u32 = 120;

/// An array of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Array {
    /// Arrays of one lane come one after the other, those of different lanes at once.
    pub lane: u64,
    /// How many of its tasks there are at once.
    pub at_once: u64,
    /// The chunk of its task 0.
    pub first: u64,
    /// Its tasks, as `sbatch --array` has them.
    pub tasks: String,
}

/// Hands all chunks that are not done to Slurm, `pairs` at once, each up to `requeues` times again,
/// as [`arrays`] has them. `options` go to `sbatch`. Answers the numbers of the jobs.
///
/// # Errors
/// The run's directory cannot be used, or `sbatch` does not take it.
pub fn submit(
    run: &Run,
    program: &Path,
    (pairs, requeues): (u64, u32),
    options: &[OsString],
) -> Result<Vec<String>, Error> {
    let mut jobs: Vec<String> = Vec::new();
    let mut before: Option<(u64, String)> = None;
    let output = output(&run.place)?;
    for array in arrays(&undone(run)?, pairs) {
        let path = run.place.join(format!("slurm-{}.sh", array.first));
        publish(&path, &script(run, program, array.first, requeues))?;
        let mut command = Command::new("sbatch");
        command.arg("--parsable");
        command.arg(format!("--array={}%{}", array.tasks, array.at_once));
        command.arg(format!("--signal=B:TERM@{NOTICE}")).arg("--requeue");
        command.arg("--job-name=netblt").arg("--open-mode=append");
        command.arg(&output);
        // All arrays together run no more than `pairs` tasks at once.
        let last = before.take_if(|(lane, _)| *lane == array.lane);
        command.args(last.map(|(_, job)| format!("--dependency=afterany:{job}")));
        command.args(options).arg(&path).stdin(Stdio::null()).stderr(Stdio::inherit());
        let made = command.output().map_err(at(Path::new("sbatch"), "cannot be started"))?;
        let said = String::from_utf8_lossy(&made.stdout);
        let job = said.trim().split(';').next().unwrap_or_default();
        if !made.status.success() || job.is_empty() {
            return Err(Error::InvalidRequest(format!("sbatch does not take it: {}", made.status)));
        }
        before = Some((array.lane, job.to_owned()));
        jobs.push(job.to_owned());
    }
    Ok(jobs)
}

/// Divides chunks into arrays of at most a thousand tasks, of which `pairs` run at once.
///
/// If one array came after the other, most slots would wait for the last tasks of each. So there
/// are as many lanes as are needed for each to be one array. They share the slots, and get chunks
/// in proportion to them. Only a lane with one slot, and still too many chunks, has another array
/// after the first.
pub fn arrays(chunks: &[u64], pairs: u64) -> Vec<Array> {
    let (count, pairs) = (chunks.len() as u64, pairs.max(1));
    let fits = |lanes: &u64| (count * pairs.div_ceil(*lanes)).div_ceil(pairs) <= ARRAY;
    let lanes = (1..pairs).find(fits).unwrap_or(pairs);
    let (mut rest, mut begun, mut arrays) = (chunks, 0, Vec::new());
    for lane in 0..lanes {
        let at_once = pairs / lanes + u64::from(lane < pairs % lanes);
        let own = count * (begun + at_once) / pairs - count * begun / pairs;
        begun += at_once;
        let (own, others) = rest.split_at(usize::try_from(own).unwrap_or(0).min(rest.len()));
        rest = others;
        arrays.extend(windows(own).into_iter().map(|(first, tasks)| {
            let tasks = ranges(&tasks);
            Array { lane, at_once, first, tasks }
        }));
    }
    arrays
}

/// Chunks by the first of those that can be in one array with it: numbers of tasks have a bound.
fn windows(chunks: &[u64]) -> Vec<(u64, Vec<u64>)> {
    let mut windows: Vec<(u64, Vec<u64>)> = Vec::new();
    for chunk in chunks {
        match windows.last_mut() {
            Some((first, tasks)) if *chunk < *first + ARRAY => tasks.push(*chunk - *first),
            _ => windows.push((*chunk, vec![0])),
        }
    }
    windows
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

/// The file for the output of tasks. Slurm replaces `%` and a letter in it, and takes `%%` for `%`.
/// A backslash anywhere would disable that, and all tasks would write to one file.
fn output(place: &Path) -> Result<OsString, Error> {
    let mut option = b"--output=".to_vec();
    for byte in place.as_os_str().as_bytes() {
        match byte {
            b'%' => option.extend_from_slice(b"%%"),
            b'\\' => {
                let why = "Slurm cannot write logs beneath a name with a backslash; move it";
                return Err(Error::InvalidRequest(format!("{}: {why}", place.display())));
            }
            byte => option.push(*byte),
        }
    }
    option.extend_from_slice(b"/log/slurm-%A_%a.log");
    Ok(OsString::from_vec(option))
}

fn script(run: &Run, program: &Path, first: u64, requeues: u32) -> Vec<u8> {
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
         restarts=${{SLURM_RESTART_COUNT:-0}}\n\
         if [ $again = yes ] && [ \"$restarts\" -lt {requeues} ]; then\n    \
             # The controller may be away for a moment; a node that is back is not to\n    \
             # end a restarted task with the same number.\n    \
             for try in {{1..20}}; do\n        \
                 job=$(scontrol show job -o \"$SLURM_JOB_ID\") && break\n        \
                 sleep 3\n    \
             done\n    \
             case \"$job\" in\n        \
                 *' JobState=RUNNING '*\" Restarts=$restarts \"*)\n            \
                     scontrol requeue \"$SLURM_JOB_ID\" ;;\n    \
             esac\n\
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

/// The chunks of an array.
#[cfg(test)]
pub(crate) fn tasks(array: &Array) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number") + array.first;
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => number(from)..=number(to),
        None => number(part)..=number(part),
    };
    array.tasks.split(',').flat_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_a_thousand_tasks_at_most_and_together_as_many_at_once_as_are_wanted() {
        let all: Vec<u64> = (0..2500).collect();
        let array = |lane, at_once, first, tasks: &str| {
            let tasks = tasks.to_owned();
            Array { lane, at_once, first, tasks }
        };
        let even = [array(0, 2, 0, "0-832"), array(1, 2, 833, "0-832"), array(2, 2, 1666, "0-833")];
        assert_eq!(arrays(&all, 6), even);
        let one = [array(0, 1, 0, "0-999"), array(0, 1, 1000, "0-999"), array(0, 1, 2000, "0-499")];
        assert_eq!(arrays(&all, 1), one);
        assert_eq!(arrays(&all, 0), one);
        let rest = [3, 4, 5, 9, 1002, 1003, 2002];
        let rests = [array(0, 64, 3, "0-2,6,999"), array(0, 64, 1003, "0,999")];
        assert_eq!(arrays(&rest, 64), rests);
        assert_eq!(arrays(&[], 4), []);
        for (count, pairs) in [(10_000, 64), (999, 7), (1001, 7), (100_000, 64), (5, 64)] {
            let arrays = arrays(&(0..count).collect::<Vec<u64>>(), pairs);
            let mut places: Vec<_> =
                arrays.iter().map(|array| (array.lane, array.at_once)).collect();
            places.dedup();
            let tasks = arrays.iter().map(|array| tasks(array).len() as u64);
            assert!(tasks.clone().all(|tasks| tasks <= ARRAY), "{arrays:?}");
            let sums = (tasks.sum::<u64>(), places.iter().map(|(_, at_once)| at_once).sum());
            assert_eq!(sums, (count, pairs), "{arrays:?}");
        }
    }

    #[test]
    fn slurm_takes_no_part_of_the_runs_path_for_a_pattern() {
        for (place, path) in [("/a b/run", "/a b/run"), ("/a%j/50%", "/a%%j/50%%")] {
            let option = output(Path::new(place)).expect("an option");
            assert_eq!(option, OsString::from(format!("--output={path}/log/slurm-%A_%a.log")));
        }
        let refused = output(Path::new("/a\\b")).expect_err("a backslash").to_string();
        assert!(refused.contains("/a\\b") && refused.contains("backslash"), "{refused}");
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted(OsStr::new("a b'c")), b"'a b'\\''c'");
    }
}
