//! The configuration file: options for hosts, in the format of ssh's configuration.
//!
//! The values that the file ([`file`]) has for the hosts in a command line become words of that
//! line, before those of the user ([`words`]). So one parser reads both. The keys are a
//! table ([`key`]).

pub(crate) mod file;
pub(crate) mod key;
pub(crate) mod words;
