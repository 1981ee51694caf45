//! The disk's side of a transfer: what is read and packed, what is written and published.

pub(crate) mod attributes;
pub(crate) mod beneath;
mod digest;
pub(crate) mod directory;
#[cfg(test)]
mod empty_tests;
mod exclude;
mod extras;
mod faults;
pub(crate) mod file_list;
pub(crate) mod flush;
#[cfg(test)]
mod forged_tests;
mod found;
pub(crate) mod gate;
pub(crate) mod had;
pub(crate) mod holes;
mod journal;
mod keep;
pub(crate) mod layout;
pub(crate) mod left_out;
pub(crate) mod leftovers;
#[cfg(test)]
mod links_tests;
mod locks;
pub(crate) mod manifest;
mod names;
mod placing;
pub(crate) mod plain;
mod publish;
pub(crate) mod ranges;
pub(crate) mod reading;
pub(crate) mod renaming;
pub(crate) mod room;
mod seal;
pub(crate) mod sites;
#[cfg(test)]
mod sites_tests;
pub(crate) mod source;
pub(crate) mod staging;
#[cfg(test)]
mod storage_tests;
mod store;
pub(crate) mod stream;
pub(crate) mod threads;
#[cfg(test)]
mod trials;
mod vault;
mod wardrobe;
