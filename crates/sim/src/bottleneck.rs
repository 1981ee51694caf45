//! One bottleneck and many flows through it, packet by packet, for judging rate controllers alone.
//!
//! There is no machine, no encryption and no repair in here: a flow sends numbered packets, and its
//! receiver reports arrivals. Flows of ours are the law, pacer and sampler of `netblt-proto`, and
//! its receiver's reports (`docs/protocol §6.3`). The others are TCP with an acknowledgement for
//! every packet, and senders of a constant rate.
//!
//! The path is a [`netblt_path::Path`] each way, which every flow shares. The round trip of a flow
//! is added to it: half of it behind the bottleneck, half on the way back. All randomness comes
//! from the seed.

mod books;
mod ends;
mod neighbours;
mod network;
mod ours;
mod scene;
mod steady;
mod tcp;
#[cfg(test)]
mod tests;

pub use books::{FlowBooks, SceneOutcome, jain};
pub(crate) use neighbours::{Foreign, Neighbours};
pub use network::run;
pub use scene::{FlowOptions, Kind, PACKET_BYTES, Scene, Supply, TcpLaw};
