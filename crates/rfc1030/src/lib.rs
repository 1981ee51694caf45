//! The three networks of RFC 1030 and the hosts on them, with the costs the RFC tells of, so that
//! every row of its tables can be run again (RFC 1030, appendices II to IV).
//!
//! * [`rows`]: the published figures;
//! * `station`: a host whose processor and network interface take their time; `machines`: the costs
//!   of those of 1987;
//! * `lab`: the loop that drives pairs of such hosts over a medium, with the real
//!   [`netblt_proto::endpoint::Endpoint`] and the client, disk and oracle of the virtual world;
//! * [`run`]: one run of a row; `ring`, `ethernet`, `wideband`: what it is run on;
//! * [`future`]: what RFC 1030 §8 wanted to try next, tried;
//! * [`losses`]: what the two-buffer Ethernet loses at every interval (§6);
//! * [`report`]: every row beside the model's; [`page`]: the same as text and as HTML.

#![forbid(unsafe_code)]

mod ethernet;
pub mod future;
mod lab;
mod lan;
pub mod losses;
mod machines;
pub mod page;
pub mod report;
mod ring;
pub mod rows;
pub mod run;
mod station;
mod wideband;
