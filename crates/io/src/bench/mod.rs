//! The test application of RFC 1030 §3: from memory to memory, nothing but the protocol between.
//!
//! [`run`] is the end that calls, [`serve`] the one that waits; either may send. What the other one
//! cannot know from OPEN's parameters travels in their client string, as a [`TestRequest`]. One
//! thread drives each connection of the caller, and one all connections of the server.

mod caller;
mod messages;
mod outcome;
mod pump;
mod server;

pub use self::caller::run;
pub use self::messages::{Load, TestRequest};
pub use self::outcome::Outcome;
pub use self::server::{OPEN_TO_ALL, PORT, ServerObserver, Service, serve};
