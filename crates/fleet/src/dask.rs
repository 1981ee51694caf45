//! The Dask engine: a small program in Python, run by the user's own `python3`.
//!
//! Python gets the script on its command line. Its isolated mode leaves the current directory out
//! of its path: nothing is imported or started from the run's directory or the current one. The
//! script hands tasks that start `netblt fleet run-chunk` to a scheduler, or to a cluster of its
//! own on this machine, and reports their results. It runs until all are over, as the engine of one
//! machine does.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use netblt::Cancel;

use crate::error::{Error, at};
use crate::local::terminate;
use crate::run::Run;
use crate::survey::undone;

const SCRIPT: &str = include_str!("dask.py");
/// The interval at which it looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Has Dask run all chunks that are not done, `pairs` at once, each retried up to `requeues` times.
/// `options` go to the script. `log` is called for each task that fails.
///
/// # Errors
/// The run's directory cannot be used, there is no `python3` or no Dask for it, no scheduler
/// answers, or it is gone.
pub fn run_all(
    run: &Run,
    program: &Path,
    (pairs, requeues): (u64, u32),
    options: &[OsString],
    cancel: &Cancel,
    log: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let chunks = undone(run)?;
    if chunks.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.args(["-I", "-c", SCRIPT]).arg(program).arg(&run.place).arg(&run.head.id);
    command.args([pairs.to_string(), requeues.to_string()]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Ctrl-C reaches it through this program, once, and not its own children.
    command.process_group(0);
    let mut child = command.spawn().map_err(at(Path::new("python3"), "cannot be started"))?;
    let lines = talk(&mut child, &chunks).inspect_err(|_| {
        terminate(&child);
        let _ = child.wait();
    })?;
    let (mut stopping, mut why) = (false, None);
    loop {
        if cancel.is_cancelled() && !std::mem::replace(&mut stopping, true) {
            terminate(&child);
        }
        match lines.recv_timeout(LOOK) {
            Ok(line) => match line.split_once(' ') {
                Some(("note", text)) => log(text),
                Some(("why", text)) => why = Some(text.to_owned()),
                _ => log(&line),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().map_err(at(Path::new("python3"), "cannot be waited for"))?;
    match why {
        _ if stopping => Err(Error::Interrupted),
        Some(why) => Err(Error::InvalidRequest(why)),
        None if status.success() => Ok(()),
        None => {
            Err(Error::InvalidRequest(format!("python3, which hands the chunks to Dask: {status}")))
        }
    }
}

/// Sends it the chunks, and returns its lines.
fn talk(child: &mut Child, chunks: &[u64]) -> Result<Receiver<String>, Error> {
    let list: String = chunks.iter().map(|chunk| format!("{chunk}\n")).collect();
    let (line, lines) = channel();
    let (input, output) = (child.stdin.take(), child.stdout.take());
    // It may end before it has read all of it. Its exit status says why.
    let say = move || input.map(|mut input| input.write_all(list.as_bytes()));
    let listen = move || output.map(|output| read_lines(output, |text| line.send(text).is_ok()));
    let failed = || at(Path::new("python3"), "no thread can be started to talk to it");
    thread::Builder::new().spawn(say).map_err(failed())?;
    thread::Builder::new().spawn(listen).map_err(failed())?;
    Ok(lines)
}

fn read_lines(output: impl Read, mut on_line: impl FnMut(String) -> bool) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if !on_line(String::from_utf8_lossy(&line).trim_end().to_owned()) {
            break;
        }
        line.clear();
    }
}
