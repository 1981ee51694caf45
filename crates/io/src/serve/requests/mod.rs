//! The requests to a server and the lines of its answers, as bytes (`docs/protocol §8.8`). Client,
//! server and fuzzer use the same types. The types use no other module of this crate, and no system
//! call.
//!
//! [`request_kind`] is the table of all kinds. Each kind has a file with its fields and their
//! codec; the file of the same name in `handlers` performs it.

pub(crate) mod copy;
pub(crate) mod entry;
pub(crate) mod facts;
mod fields;
pub(crate) mod get;
pub(crate) mod join;
pub(crate) mod list;
pub(crate) mod make_dir;
pub(crate) mod path;
pub(crate) mod put;
pub(crate) mod put_range;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod request;
pub(crate) mod request_kind;
pub(crate) mod response_item;
pub(crate) mod send;
pub(crate) mod stat;
