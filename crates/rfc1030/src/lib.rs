//! The three networks of RFC 1030 and the hosts on them, with the costs the RFC tells of, so that
//! every row of its tables can be run again (RFC 1030, appendices II to IV).
//!
//! * [`rows`]: the published figures;
//! * `station`: a host whose processor and network interface take their time;
//! * `lab`: the loop that drives pairs of such hosts over a medium, with the real
//!   [`netblt_proto::endpoint::Endpoint`] and the client, disk and oracle of the virtual world;
//! * `ring`, `ethernet`, `wideband`: what each network and its machines are;
//! * [`future`]: what RFC 1030 §8 wanted to try next, tried;
//! * [`report`]: every row beside ours; [`page`]: the same as text and as HTML.

mod ethernet;
pub mod future;
mod lab;
mod lan;
pub mod page;
pub mod report;
mod ring;
pub mod rows;
mod station;
mod wideband;
