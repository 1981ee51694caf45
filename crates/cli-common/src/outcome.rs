//! The end of a command that is no transfer.

use crate::exit::{Code, Failure};
use crate::json::{self, ErrorData, Stream};
use crate::stdout;

/// The exit code of a command. Prints its error, if it failed.
pub fn end(result: Result<(), Failure>, json: bool) -> Code {
    match result {
        Ok(()) => Code::Success,
        Err(failure) => {
            complain(&failure, json);
            failure.code
        }
    }
}

/// Prints why a command, or a part of it, failed: on standard error where standard output cannot be
/// written.
pub fn complain(failure: &Failure, json: bool) {
    complain_on(Stream::Stdout, failure, json);
}

/// The same with the stream of the JSON lines.
pub fn complain_on(stream: Stream, failure: &Failure, json: bool) {
    let Failure { code, message, silent, .. } = failure;
    let data = || ErrorData { code: code.number(), message };
    if !silent && (!json || json::emit(stream, "error", data()).is_err()) {
        stdout::say(&format!("{}: {message}", stdout::program()));
    }
}
