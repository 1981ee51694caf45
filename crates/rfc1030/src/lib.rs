//! The three networks of RFC 1030 and the hosts on them, with the processing costs that the RFC
//! reports, so that every row of its tables can be run again (RFC 1030, appendices II to IV).
//!
//! * [`rows`]: the published figures;
//! * `station`: a host whose processor and network interface take time; `machines`: the costs of
//!   those of 1987;
//! * `lab`: pairs of such hosts over a medium, the nodes of a [`netblt_sim::simulator::Simulator`],
//!   with the real [`netblt_proto::endpoint::Endpoint`] and the client, disk and oracle of the
//!   virtual world;
//! * [`run`]: one run of a row; `ring`, `ethernet`, `wideband`: the networks;
//! * [`future`]: the experiments that RFC 1030 §8 proposes;
//! * [`losses`]: loss on the two-buffer Ethernet at every interval (§6);
//! * [`report`]: every row beside the model's; [`page`]: the report as text and as HTML.

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
