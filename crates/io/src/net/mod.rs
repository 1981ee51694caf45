//! The network's side: the socket, the loop that drives it, and how two ends meet.

pub mod addresses;
mod batch;
pub mod connections;
pub(crate) mod demux_queue;
pub mod dialer;
pub(crate) mod entropy;
pub(crate) mod establish;
pub mod event_loop;
pub mod icmp;
pub mod io_context;
pub(crate) mod key_discovery;
pub mod listener;
pub(crate) mod mux;
pub(crate) mod mux_branch;
pub mod poller;
pub mod raw_ip;
pub mod socket;
pub(crate) mod subflow_socket;
pub mod trace_file;
