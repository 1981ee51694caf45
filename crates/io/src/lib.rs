//! Move large data between machines with NETBLT: the library under the `netblt` program.
//!
//! [`send`] and [`receive`] do the whole job, blocking; the rest is what they are made of, in four
//! wings: `transfer` and `bench` stand on `net` and `disk`, and all on the words that a user of
//! this library holds in his hands.

pub mod bench;
mod config;
pub mod disk;
pub mod error;
pub mod net;
pub mod observer;
pub mod options;
pub mod ticket;
pub mod transfer;

pub use self::transfer::{receive, send};
