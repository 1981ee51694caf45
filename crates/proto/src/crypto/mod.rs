//! What makes the `sealed` wire secret and authentic (`docs/protocol.md §3.2, §4, §5`).
//!
//! [`mac`] decides cheaply who may start a handshake, [`noise`] makes two fresh keys of the shared
//! secret, and [`aead`] seals and opens every packet after that. [`replay`] is the memory which
//! numbers have come. Nothing here draws entropy or reads a clock: both are handed in.

pub mod aead;
mod epoch;
pub mod mac;
pub mod noise;
pub mod replay;

use thiserror::Error;

/// Bytes of the tag behind every sealed body (`docs/protocol.md §3.1`).
pub const TAG_BYTES: usize = 16;

/// Why a packet was not opened; it is dropped and counted (`docs/protocol.md §5`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// A packet with this number was opened before (`docs/protocol.md §5.5`).
    #[error("packet number was seen before")]
    Replayed,
    /// So far below the highest number that nobody remembers it (`docs/protocol.md §5.5`).
    #[error("packet number is below the replay window")]
    TooOld,
    /// Neither the previous, the current nor the next epoch (`docs/protocol.md §5.2`).
    #[error("packet number belongs to an epoch without keys")]
    UnknownEpoch,
    /// Not sealed by the peer, or changed on the way.
    #[error("packet does not authenticate")]
    Forged,
}
