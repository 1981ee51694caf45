//! The virtual world of NETBLT: networks on which a whole transfer runs in a fraction of its time,
//! the same way for the same seed on every machine.

#![forbid(unsafe_code)]

mod addresses;
pub mod attacker;
pub mod bottleneck;
pub mod check;
mod client;
pub mod content;
pub mod coverage;
pub mod disk;
pub mod grid;
pub mod host;
mod marks;
pub mod outcome;
mod packet;
pub mod parallel;
pub mod setup;
pub mod side;
pub mod simulator;
pub mod subflows;
pub mod swarm;
pub mod tamper;
mod transcript;
pub mod world;
