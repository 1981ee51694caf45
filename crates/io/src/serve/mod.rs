//! A server of files for many (`netblt serve`), and what its clients ask: one UDP port and one
//! loop, each connection one request (`docs/protocol.md §8.8`).
//!
//! [`serve()`] answers until it is stopped; [`remote`] asks.

mod across;
mod errand;
mod found;
pub(crate) mod guest;
mod members;
mod meter;
mod moving;
mod pieces;
mod pool;
mod ranges;
pub mod remote;
pub(crate) mod request;
mod server;
mod service;
mod shares;
mod status;
mod waiting;
mod work;

pub use self::across::Side;
pub use self::guest::{Account, Verdict};
pub use self::members::Members;
pub use self::meter::Meter;
pub use self::request::{Entry, Piece, Sort};
pub use self::server::serve;
pub use self::service::{PORT, ServerObserver, Service};
pub use crate::grant::Grant;
