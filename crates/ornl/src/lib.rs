//! ORNL's review of bulk protocols on UDP (F. Fowler, Oak Ridge National Laboratory, 2003), run
//! again: its test network, its two hosts and its programs' rules, in virtual time.
//!
//! * [`rows`]: the published figures, sections 4.1 to 4.3;
//! * `model`: the hosts and the network, with the few constants that all rows share;
//! * `lab`: pairs of such hosts over one card and one network, the nodes of a
//!   [`netblt_sim::simulator::Simulator`], with the real [`netblt_proto::endpoint::Endpoint`] and
//!   the client and oracle of the virtual world;
//! * [`contest`]: the programs, and one run;
//! * [`friendly`]: two of them over one router, and the share each leaves to a TCP;
//! * [`report`]: every row beside its run; [`page`]: the report as text and as HTML.

#![forbid(unsafe_code)]

pub mod contest;
pub mod friendly;
mod lab;
mod model;
pub mod page;
pub mod report;
pub mod rows;
