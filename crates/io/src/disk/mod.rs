//! The disk's side of a transfer: reading and packing files, writing and publishing them.

pub(crate) mod attributes;
pub(crate) mod commit_latch;
mod digest;
pub(crate) mod directory;
#[cfg(test)]
mod empty_tests;
mod exclude;
pub(crate) mod extras;
mod fault_injection;
pub(crate) mod file_list;
pub(crate) mod flush;
#[cfg(test)]
mod forged_tests;
pub(crate) mod free_space;
mod fs_backend;
pub(crate) mod have_list;
pub(crate) mod layout;
pub(crate) mod left_out;
pub(crate) mod leftovers;
#[cfg(test)]
mod links_tests;
mod locks;
pub(crate) mod manifest;
mod metadata_writer;
mod names;
mod publish_all;
mod publish_each;
mod publish_journal;
pub(crate) mod ranges;
pub(crate) mod raw_file;
pub(crate) mod reading;
pub(crate) mod rename;
mod resume;
pub(crate) mod safe_open;
mod seal;
pub(crate) mod sites;
#[cfg(test)]
mod sites_tests;
pub(crate) mod source;
pub(crate) mod sparse;
pub(crate) mod staging;
mod stat;
#[cfg(test)]
mod storage_tests;
mod store;
pub(crate) mod stream;
pub(crate) mod threads;
#[cfg(test)]
mod trials;
