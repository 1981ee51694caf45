//! Ctrl-C, SIGTERM, SIGHUP and SIGQUIT: the first one ends the transfer cleanly on both sides, the
//! second one without waiting for the other side, the third one, or the second if cleaning up takes
//! long, ends the program at once.
//!
//! SIGHUP is left alone where it is ignored, so that `nohup netblt ...` outlives its terminal.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use netblt::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::exit::{Code, Failure};

/// How long cleaning up may take after the second signal.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A signal asked this program to stop. The handler itself sets it, before any thread acts on it.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// How long a signal that went to another program as well may take to arrive here.
const GRACE: Duration = Duration::from_millis(500);

/// A directory of ours that must not survive even the last signal.
static DOOMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on the first signal cancels, and people are informed if `announce`.
pub fn watch(cancel: &Cancel, announce: bool) -> Result<(), Failure> {
    listen(cancel, announce, !is_ignored(SIGHUP))
}

/// The same for a program without a terminal, to which SIGHUP means to do `again`: files are read
/// once more.
pub fn watch_and_reload(
    cancel: &Cancel,
    announce: bool,
    mut again: impl FnMut() + Send + 'static,
) -> Result<(), Failure> {
    let failed = |error| Failure::new(Code::Start, format!("cannot catch signals: {error}"));
    let mut signals = Signals::new([SIGHUP]).map_err(failed)?;
    let reload = move || signals.forever().for_each(|_| again());
    thread::Builder::new().name("reload".to_owned()).spawn(reload).map_err(failed)?;
    listen(cancel, announce, false)
}

fn listen(cancel: &Cancel, announce: bool, hang_up: bool) -> Result<(), Failure> {
    let failed = |error| Failure::new(Code::Start, format!("cannot catch signals: {error}"));
    let mut wanted = vec![SIGINT, SIGQUIT, SIGTERM];
    if hang_up {
        wanted.push(SIGHUP);
    }
    for signal in &wanted {
        signal_hook::flag::register(*signal, Arc::clone(&ASKED)).map_err(failed)?;
    }
    let mut signals = Signals::new(wanted).map_err(failed)?;
    let cancel = cancel.clone();
    let listen = move || {
        // Counted here: ssh's end cancels as well, and is no signal to this program.
        for (count, _) in (1..).zip(signals.forever()) {
            match count {
                1 => {
                    // Printed first: a cancelled transfer may end before the next line.
                    if announce {
                        let _ =
                            writeln!(std::io::stderr(), "\nStopping; once more to stop at once.");
                    }
                    cancel.cancel();
                }
                2 => {
                    cancel.abort();
                    let wait = || {
                        thread::sleep(PATIENCE);
                        stop_at_once()
                    };
                    if thread::Builder::new().spawn(wait).is_err() {
                        stop_at_once();
                    }
                }
                _ => stop_at_once(),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// Whether a signal has asked this program to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// The same, for a caller that sees another program end: a terminal sends its signals to all
/// programs of a job at once, and the other one may be first.
pub fn asked_as_well() -> bool {
    let until = Instant::now() + GRACE;
    while !asked() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    asked()
}

/// A file that becomes larger than `ulimit -f` is an error like others, and not the end of the
/// program with a half of everything left behind.
pub(crate) fn survive_large_files() {
    // Without it, the signal ends the program as before.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Removes `directory` if the program is stopped at once.
pub fn doom(directory: Option<PathBuf>) {
    *DOOMED.lock().unwrap_or_else(PoisonError::into_inner) = directory;
}

fn stop_at_once() -> ! {
    if let Some(directory) = DOOMED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = fs::remove_dir_all(directory);
    }
    process::exit(Code::Signal.number().into())
}

/// Whether the parent process made this program ignore the signal, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
