//! A server of files for many (`netblt serve`), and what its clients ask: one UDP port and one
//! loop, each connection or branch of one a request (`docs/protocol.md §8.8`).
//!
//! [`serve()`] answers until it is stopped; [`remote`] asks.

mod account;
mod across;
mod anew;
mod errand;
mod found;
pub(crate) mod guest;
mod jobs;
mod leaving;
mod lines;
mod listings;
mod members;
mod meter;
mod moving;
mod pieces;
mod pool;
mod ranges;
mod rate_limiter;
pub mod remote;
pub(crate) mod request;
mod roots;
mod server;
mod service;
mod session;
mod sessions;
mod status;
mod waiting;
mod ways;
mod welcome;
mod work;

pub use self::account::{Account, Verdict};
pub use self::across::Side;
pub use self::members::Members;
pub use self::meter::Meter;
pub use self::request::{Entry, Piece, Sort};
pub use self::server::serve;
pub use self::service::{PORT, ServerObserver, Service};
pub use self::session::Session;
pub use crate::grant::Grant;
