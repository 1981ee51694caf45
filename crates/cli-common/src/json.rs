//! Output for programs: one JSON object a line, `{"event":...,"data":{...}}`.
//!
//! Scripts can rely on it: fields are added, never renamed, removed or given another meaning. Rates
//! are in Mbit/s (10^6), times in seconds unless the name says `ms`.

use std::io;

use netblt_proto::api::printable;
use serde::Serialize;

use crate::exit::{Code, Failure};
use crate::stdout;

/// The stream of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard output carries data.
    Stderr,
}

#[derive(Serialize)]
struct EventLine<T> {
    event: &'static str,
    data: T,
}

/// `error`: why it failed.
#[derive(Serialize)]
pub struct ErrorData<'a> {
    /// The exit code.
    pub code: u8,
    /// The message, fit for a terminal.
    pub message: &'a str,
}

/// One line, its end included.
fn line<T: Serialize>(event: &'static str, data: T) -> String {
    // All keys are text, so this cannot fail.
    escaped(serde_json::to_string(&EventLine { event, data }).unwrap_or_default()) + "\n"
}

/// Writes one event to standard output.
pub fn event<T: Serialize>(event: &'static str, data: T) -> Result<(), Failure> {
    stdout::print(&line(event, data))
}

/// Writes one line. A failed write ends no transfer: `stdout` notes it, and the exit code shows it.
pub fn emit<T: Serialize>(stream: Stream, event: &'static str, data: T) -> io::Result<()> {
    let text = line(event, data);
    match stream {
        Stream::Stdout => stdout::write(text.as_bytes()),
        Stream::Stderr => stdout::write_beside(text.as_bytes()),
    }
}

/// The same JSON without the control characters that it permits in strings, DEL and C1: a terminal
/// would obey them.
fn escaped(text: String) -> String {
    let wild = |c: char| c.is_control();
    if !text.contains(wild) {
        return text;
    }
    let mut tame = String::with_capacity(text.len() + 5);
    for c in text.chars() {
        match wild(c) {
            true => tame.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => tame.push(c),
        }
    }
    tame
}

/// A mistake on the command line, as JSON.
pub(crate) fn mistake(message: &str, data_on_stdout: bool) {
    let stream = if data_on_stdout { Stream::Stderr } else { Stream::Stdout };
    let code = Code::Usage.number();
    let _ = emit(stream, "error", ErrorData { code, message: &printable(message) });
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Six decimals: of a small share three say nothing.
pub(crate) fn fine(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

/// Three decimals; JSON knows no infinity.
pub fn rounded(value: f64) -> f64 {
    if value.is_finite() { (value * 1e3).round() / 1e3 } else { 0.0 }
}
