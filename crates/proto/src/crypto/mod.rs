//! The cryptography of the `sealed` wire (`docs/protocol §3.2, §4, §5`).
//!
//! [`mac`] cheaply checks who may start a handshake. [`noise`] makes two fresh keys from the shared
//! secret or from [`static_keys`]. [`aead`] seals and opens every packet after that, and
//! [`exporter`] derives keys for branches and subflows. [`replay`] is the anti-replay window.
//! Nothing here draws entropy or reads a clock: both are arguments.

pub mod aead;
pub mod cipher;
mod epoch;
pub mod exporter;
pub mod mac;
pub mod noise;
pub mod replay;
pub mod secret;
pub mod static_keys;
pub mod static_pairing;

use thiserror::Error;

/// Bytes of the tag behind every sealed body (`docs/protocol §3.1`).
pub const TAG_BYTES: usize = 16;

/// Why a packet was not opened; it is dropped and counted (`docs/protocol §5`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// A packet with this number was opened before (`docs/protocol §5.5`).
    #[error("packet number was seen before")]
    Replayed,
    /// Below the replay window (`docs/protocol §5.5`).
    #[error("packet number is below the replay window")]
    TooOld,
    /// Neither the previous, the current nor the next epoch (`docs/protocol §5.2`).
    #[error("packet number belongs to an epoch without keys")]
    UnknownEpoch,
    /// Not sealed by the peer, or changed on the way.
    #[error("packet does not authenticate")]
    Forged,
}

#[cfg(test)]
mod tests {
    use std::mem::needs_drop;

    use zeroize::Zeroize;

    use crate::crypto::secret::Secret;

    /// Plain arrays of bytes need no drop: a drop shows that these are wiped.
    #[test]
    fn every_type_that_holds_a_key_has_a_drop_that_wipes_it() {
        assert!(needs_drop::<Secret>());
        assert!(needs_drop::<super::noise::SplitKeys>());
        assert!(needs_drop::<super::exporter::ExporterSecret>());
        assert!(needs_drop::<super::exporter::Chain>());
        assert!(needs_drop::<super::exporter::ChainKeys>());
        assert!(needs_drop::<super::mac::MacKey>());
        assert!(needs_drop::<super::mac::CookieGenerator>());
        assert!(needs_drop::<super::static_keys::StaticKey>());
        assert!(needs_drop::<super::static_pairing::StaticPairing>());
        assert!(needs_drop::<super::noise::Curve>());
        assert!(needs_drop::<super::epoch::KeyChain>());
        assert!(needs_drop::<crate::entropy::Entropy>());
        let mut secret = Secret([7; 32]);
        secret.zeroize();
        assert_eq!(secret.0, [0; 32]);
    }
}
