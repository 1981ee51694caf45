//! The disk's side of a transfer: what is read and packed, what is written and published.

mod attributes;
mod beneath;
mod digest;
pub(crate) mod directory;
mod exclude;
mod faults;
pub(crate) mod file_list;
mod flush;
pub(crate) mod gate;
mod journal;
pub(crate) mod layout;
pub(crate) mod manifest;
mod names;
pub(crate) mod plain;
mod publish;
pub(crate) mod source;
mod staging;
#[cfg(test)]
mod storage_tests;
mod store;
pub(crate) mod stream;
pub(crate) mod threads;
