//! Ctrl-C and SIGTERM: the first one ends the transfer cleanly on both sides, the second one ends
//! the program at once.
//!
//! SIGHUP is left alone, so that `nohup netblt ...` outlives its terminal.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;

use netblt::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Code, Failure};

/// A directory of ours that must not survive even the second signal.
static DOOMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on the first signal cancels, and says so to people if `announce`.
pub(crate) fn watch(cancel: &Cancel, announce: bool) -> Result<(), Failure> {
    let failed = |error| Failure::new(Code::Start, format!("cannot catch signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let cancel = cancel.clone();
    let listen = move || {
        for _ in signals.forever() {
            if cancel.is_cancelled() {
                stop_at_once();
            }
            // Said first: what is cancelled may be over before the next line.
            if announce {
                let _ = writeln!(std::io::stderr(), "\nStopping; once more to stop at once.");
            }
            cancel.cancel();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// Removes `directory` if a second signal comes.
pub(crate) fn doom(directory: Option<PathBuf>) {
    *DOOMED.lock().unwrap_or_else(PoisonError::into_inner) = directory;
}

fn stop_at_once() -> ! {
    if let Some(directory) = DOOMED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = fs::remove_dir_all(directory);
    }
    process::exit(Code::Signal.number().into())
}
