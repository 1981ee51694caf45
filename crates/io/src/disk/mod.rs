//! The disk's side of a transfer: what is read and packed, what is written and published.

mod beneath;
pub mod destination;
mod digest;
pub mod directory;
mod errors;
pub mod file_list;
pub mod layout;
mod names;
pub mod plain;
mod publish;
pub mod source;
mod store;
pub mod stream;
pub mod threads;
