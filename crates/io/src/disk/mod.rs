//! The disk's side of a transfer: what is read and packed, what is written and published.

mod beneath;
mod digest;
pub(crate) mod directory;
pub(crate) mod file_list;
pub(crate) mod layout;
mod names;
pub(crate) mod plain;
mod publish;
pub(crate) mod source;
mod store;
pub(crate) mod stream;
pub(crate) mod threads;
