//! NETBLT (RFC 998) and its sealed successor, as a function of its inputs.
//!
//! No clock, socket, file or thread is used here: time, entropy and datagrams are handed in, and
//! datagrams and events are polled out (see [`api`] for the contract). The same machine runs
//! over real sockets, raw IP, the virtual world and the fuzzer.
//!
//! Each floor stands only on those before it in this list (held by `tests/it/floors.rs`):
//! time, units, limits, entropy, rtt / timers, buffer, crypto, buffer_autotuning, stats / wire /
//! content, control_fifo, api, pmtud, loss_detection, peer_gone, fec, wire_profile /
//! path_validation, config, amplification_limit, codec, negotiated / rate, trace / emulated /
//! handshake, receiver, sender / connection, endpoint / listener.

#![forbid(unsafe_code)]

mod amplification_limit;
pub mod api;
pub mod buffer;
pub mod buffer_autotuning;
mod codec;
pub mod config;
mod connection;
pub mod content;
mod control_fifo;
pub mod crypto;
pub mod emulated;
pub mod endpoint;
mod entropy;
mod fec;
mod handshake;
pub mod limits;
pub mod listener;
pub mod loss_detection;
mod negotiated;
mod path_validation;
mod peer_gone;
mod pmtud;
pub mod rate;
mod receiver;
mod rtt;
mod sender;
pub mod stats;
pub mod time;
pub mod timers;
pub mod trace;
#[cfg(test)]
mod transitions;
pub mod units;
pub mod wire;
mod wire_profile;

pub use loss_detection::reported::Feedback;
