//! The test application of RFC 1030 §3: from memory to memory, nothing but the protocol between.
//!
//! [`run`] is the client, [`serve`] the server; either may send. Values beyond OPEN's parameters
//! travel in their client string, as a [`TestRequest`]. One thread drives each connection of the
//! client, and one all connections of the server.

mod client;
mod messages;
mod outcome;
mod server;
mod traffic;

pub use self::client::run;
pub use self::messages::{Load, TestRequest};
pub use self::outcome::Outcome;
pub use self::server::{BenchObserver, BenchService, OPEN_TO_ALL, PORT, serve};
