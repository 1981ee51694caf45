//! NETBLT (RFC 998) and its sealed successor, as a function of its inputs.
//!
//! No clock, socket, file or thread is used here: time, entropy and datagrams are handed in, and
//! datagrams and events are polled out (see [`machine`] for the contract). The same machine runs
//! over real sockets, raw IP, the virtual world and the fuzzer.
//!
//! Each floor stands only on those above it in this list:
//! time, units, buffer, crypto / wire / config, rate, recovery / opening / sender, receiver /
//! endpoint.

#![forbid(unsafe_code)]

pub mod buffer;
pub mod config;
mod connection;
pub mod content;
pub mod crypto;
pub mod endpoint;
mod entropy;
pub mod limits;
mod link;
pub mod machine;
mod opening;
mod orders;
pub mod rate;
mod receiver;
pub mod recovery;
mod role;
mod rtt;
mod sender;
pub mod stats;
#[cfg(test)]
mod tables;
pub mod time;
pub mod trace;
pub mod units;
pub mod wire;
