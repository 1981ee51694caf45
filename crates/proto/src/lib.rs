//! NETBLT (RFC 998) and its sealed successor, as a function of its inputs.
//!
//! No clock, socket, file or thread is used here: time, entropy and datagrams are handed in, and
//! datagrams and events are polled out (see [`machine`] for the contract). The same machine runs
//! over real sockets, raw IP, the virtual world and the fuzzer.
//!
//! Each floor stands only on those before it in this list (held by `tests/floors.rs`):
//! time, units, limits / buffer, crypto, need / wire / content, machine, packet_size, recovery,
//! repair, rules /
//! config, link / rate, trace / gallery / opening, sender, receiver / connection, endpoint.

#![forbid(unsafe_code)]

mod addresses;
pub mod buffer;
pub mod config;
mod connection;
pub mod content;
mod control_fifo;
pub mod crypto;
pub mod door;
mod doubt;
pub mod endpoint;
mod entropy;
pub mod gallery;
pub mod limits;
mod link;
pub mod machine;
pub mod need;
mod negotiated;
mod opening;
mod packet_size;
pub mod rate;
mod receiver;
pub mod recovery;
mod refusals;
mod repair;
mod rtt;
mod rules;
mod sender;
pub mod stats;
#[cfg(test)]
mod tables;
pub mod time;
pub mod trace;
pub mod units;
pub mod wire;

pub use receiver::Feedback;
