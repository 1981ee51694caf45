//! A server of files for many (`netblt serve`), and what its clients ask: one UDP port and one
//! loop, each connection one request (`docs/protocol.md §8.8`).
//!
//! [`serve()`] answers until it is stopped; [`remote`] asks.

pub(crate) mod guest;
mod pool;
pub mod remote;
pub(crate) mod request;
mod server;
mod work;

pub use self::guest::{Account, Verdict};
pub use self::request::{Entry, Sort};
pub use self::server::{PORT, ServerObserver, Service, serve};
