//! The test application of RFC 1030 §3: from memory to memory, nothing but the protocol between.
//!
//! [`run`] is the end that calls, [`serve`] the one that waits; either may send. What the other one
//! cannot know from OPEN's parameters travels in their client string, as a [`Wish`]. One thread
//! drives each connection of the caller, and one all connections of the server.

mod caller;
mod outcome;
mod pump;
mod request;
mod server;

pub use self::caller::run;
pub use self::outcome::Outcome;
pub use self::request::{Load, Wish};
pub use self::server::{Listener, OPEN_TO_ALL, PORT, Service, serve};
