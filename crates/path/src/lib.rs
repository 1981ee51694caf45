//! The link model: what a network does to packets, the same way for the same seed on every machine,
//! and what such a network can carry. The virtual world and the real-time emulators run the same.
//!
//! * [`Path`]: one direction of a path, a function of its inputs;
//! * [`scenario`]: networks as files, and those that are shipped;
//! * [`forecast`]: what a transfer over a path will be like, by arithmetic alone;
//! * [`text`]: how rates, sizes, times and probabilities are written;
//! * [`rng`]: the random streams that all of it is drawn from.

#![forbid(unsafe_code)]

pub mod forecast;
mod path;
pub mod rng;
pub mod scenario;
pub mod text;

pub use path::{
    Change, CoDel, Counters, Delivery, Displacement, EarlyDrop, LinkOptions, MarkAbove, Outage,
    PATIENCE, Path, Payload, Policer, QueueLimit, Tally,
};
