//! The configuration file: options that hold for some hosts, as ssh has them.
//!
//! The file is read ([`file`]), and what it says of the hosts in a command line becomes words of
//! that line, before those of the user ([`words`]), so that both are parsed by the same rules.

pub(crate) mod file;
pub(crate) mod key;
pub(crate) mod words;
