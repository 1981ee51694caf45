//! The network's side: the socket, the loop that drives it, and how two ends meet.

pub mod addresses;
mod batch;
pub mod connections;
pub mod dialer;
pub mod driver;
pub(crate) mod entropy;
pub mod host;
pub mod icmp;
pub(crate) mod inbox;
pub(crate) mod introduction;
pub(crate) mod joined;
pub(crate) mod lane_socket;
pub mod listener;
pub mod raw_ip;
pub(crate) mod rendezvous;
pub mod socket;
pub mod trace_file;
pub(crate) mod trunk;
pub mod wait;
