//! Move large data between machines with NETBLT: the library under the `netblt` program.
//!
//! [`session::send`] and [`session::receive`] do the whole job, blocking; the rest is what they are
//! made of.

pub mod bench;
mod beneath;
mod course;
pub mod crowd;
mod digest;
pub mod directory;
pub mod disk;
pub mod driver;
pub mod error;
pub mod layout;
mod meeting;
mod names;
pub mod options;
pub mod plain;
pub mod plan;
mod publish;
pub mod race;
pub mod raw_ip;
mod receiving;
mod sending;
pub mod session;
pub mod sink;
pub mod socket;
pub mod source;
pub mod stdout;
mod store;
mod summary;
pub mod ticket;
pub mod trace_file;
pub mod trouble;
pub mod wait;
