//! What the programs `netblt` and `netblt-lab` share: exit codes, output, help, manual pages,
//! completions, suggestions, units, signals, and the report on one transfer.
//!
//! Data go to standard output, words for people to standard error. Each program has a table
//! ([`program::Program`]) of what differs.

// Both panic where nothing can be written; `stdout` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod allocator;
pub mod command_line;
mod completions;
pub mod exit;
mod help;
pub mod hints;
pub mod json;
pub mod man;
pub mod outcome;
mod permute;
pub mod program;
pub mod signals;
pub mod stdout;
mod suggest;
pub mod transfer_report;
pub mod units;
