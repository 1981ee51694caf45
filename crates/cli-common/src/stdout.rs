//! Standard output, and the exit code when it cannot be written.
//!
//! The first failure is shown on standard error at once, and makes every command end with a code
//! other than 0. A reader that went away (EPIPE) is not reported as a failure: a command that only
//! writes stops there and ends by SIGPIPE, as other programs do; a transfer goes on, and ends with
//! its own code.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

use crate::exit::{Code, Failure, plain};

/// Whether output was lost for another reason than a reader that went away.
static LOST: AtomicBool = AtomicBool::new(false);
/// The name with which messages begin.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// From now on messages begin with this name.
pub(crate) fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// The name of this program.
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("netblt")
}

/// Writes a line.
pub fn line(text: impl Display) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Writes all of a text.
pub fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes()).map_err(|error| Failure::stdout(&error))
}

/// Writes bytes, for a command that goes on if that fails. The failure is noted here.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    write_to(&mut io::stdout().lock(), bytes, "standard output")
}

/// Writes a line of JSON to standard error, where standard output carries data. Unlike a message
/// for people, a lost line is noted as a failure.
pub fn write_beside(bytes: &[u8]) -> io::Result<()> {
    write_to(&mut io::stderr().lock(), bytes, "standard error")
}

fn write_to(out: &mut impl Write, bytes: &[u8], name: &str) -> io::Result<()> {
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.inspect_err(|error| note(name, error))
}

/// Notes that something could not be written, and reports it once.
pub fn note(name: &str, error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe && !LOST.swap(true, Ordering::Relaxed) {
        let error = plain(&error.to_string());
        say(&format!("{}: {name}: cannot write: {error}", program()));
    }
}

/// Whether output was lost.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// A line for people, on standard error. If that fails there is no place left for a message, and
/// unlike `eprintln!` this does not panic then.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The program's exit code, given that of its command.
pub fn end(code: ExitCode) -> ExitCode {
    if let Err(error) = io::stdout().flush() {
        note("standard output", &error);
    }
    if code == ExitCode::from(Code::Pipe) {
        // It does not return, unless SIGPIPE is blocked.
        let _ = emulate_default_handler(SIGPIPE);
    }
    if code == ExitCode::SUCCESS && is_lost() { Code::File.into() } else { code }
}
