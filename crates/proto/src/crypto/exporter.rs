//! The exporter secret (RFC 8446 §7.5): the source of the keys of branches and subflows, which have
//! no handshake of their own (`docs/protocol §4.10, §4.11`).
//!
//! Each key pair comes from one step of a [`Chain`], and a step deletes the key it was derived
//! from. So memory that is read later reveals no keys of earlier branches or subflows. The parent
//! connection's own keys do not follow from a chain.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use super::noise::SplitKeys;

const STEM: &str = "netblt 12 stem";
const BRANCHES: &[u8] = b"branches";
const SUBFLOWS: &[u8] = b"lanes";
const STEP: &[u8] = b"step";

/// The secret from which a connection's key chains derive. Kept until it is open; wiped on drop.
#[derive(Clone)]
pub struct ExporterSecret(Zeroizing<[u8; 32]>);

impl ExporterSecret {
    /// Derives the exporter secret from the handshake's split keys (`docs/protocol §4.10`).
    pub fn of(keys: &SplitKeys) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(STEM);
        hasher.update(&keys.initiator_to_responder).update(&keys.responder_to_initiator);
        Self(Zeroizing::new(*hasher.finalize().as_bytes()))
    }

    /// The chain of its branches (`docs/protocol §4.10`).
    pub fn branches(&self) -> Chain {
        self.chain(BRANCHES)
    }

    /// The chain of its subflows (`docs/protocol §4.11`).
    pub fn subflows(&self) -> Chain {
        self.chain(SUBFLOWS)
    }

    fn chain(&self, purpose: &[u8]) -> Chain {
        Chain(Zeroizing::new(*blake3::keyed_hash(&self.0, purpose).as_bytes()))
    }
}

impl fmt::Debug for ExporterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExporterSecret(..)")
    }
}

/// A key chain: each step derives the keys of one connection, and no earlier key follows from it.
pub struct Chain(Zeroizing<[u8; 32]>);

impl Chain {
    /// The keys of the next connection (`docs/protocol §4.10`).
    pub fn step(&mut self) -> ChainKeys {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(STEP);
        let mut output = hasher.finalize_xof();
        let mut keys =
            ChainKeys { initiator_to_responder: [0; 32], responder_to_initiator: [0; 32], id: 0 };
        output.fill(&mut keys.initiator_to_responder);
        output.fill(&mut keys.responder_to_initiator);
        output.fill(&mut *self.0);
        let mut id = [0; 4];
        output.fill(&mut id);
        keys.id = u32::from_be_bytes(id).max(1);
        hasher.zeroize();
        output.zeroize();
        keys
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain(..)")
    }
}

/// Keys and id of a branch or subflow. Wiped on drop.
///
/// Either end must make only one codec of them: two would seal different packets under one number.
pub struct ChainKeys {
    /// The first secret of the active end's packets.
    pub initiator_to_responder: [u8; 32],
    /// The first secret of the passive end's packets.
    pub responder_to_initiator: [u8; 32],
    /// Its connection id, in both directions; not 0. Neither end can choose it.
    pub id: u32,
}

impl ChainKeys {
    /// The secrets of outgoing and incoming packets, at its active or passive end.
    pub fn seen_from(&self, active: bool) -> ([u8; 32], [u8; 32]) {
        match active {
            true => (self.initiator_to_responder, self.responder_to_initiator),
            false => (self.responder_to_initiator, self.initiator_to_responder),
        }
    }
}

impl fmt::Debug for ChainKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainKeys({})", self.id)
    }
}

impl Drop for ChainKeys {
    fn drop(&mut self) {
        self.initiator_to_responder.zeroize();
        self.responder_to_initiator.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn root(a: u8, b: u8) -> ExporterSecret {
        ExporterSecret::of(&SplitKeys {
            initiator_to_responder: [a; 32],
            responder_to_initiator: [b; 32],
        })
    }

    #[test]
    fn every_branch_subflow_and_direction_has_keys_of_its_own() {
        let roots = [root(1, 2), root(2, 1), root(1, 3)];
        let (mut keys, mut ids) = (BTreeSet::from([[1; 32], [2; 32], [3; 32]]), BTreeSet::new());
        for mut chain in roots.iter().flat_map(|root| [root.branches(), root.subflows()]) {
            for _ in 0..100 {
                let made = chain.step();
                assert!(keys.insert(made.initiator_to_responder));
                assert!(keys.insert(made.responder_to_initiator));
                assert!(keys.insert(*chain.0), "a step is no key of a connection");
                assert!(made.id != 0 && ids.insert(made.id));
            }
        }
    }

    #[test]
    fn both_ends_derive_the_same_keys_for_opposite_directions() {
        let (mut ours, mut theirs) = (root(1, 2).branches(), root(1, 2).branches());
        for _ in 0..3 {
            let (here, there) = (ours.step(), theirs.step());
            let ((out, into), (their_out, their_into)) =
                (here.seen_from(true), there.seen_from(false));
            assert_eq!((here.id, out, into), (there.id, their_into, their_out));
        }
    }

    #[test]
    fn debug_output_shows_no_key() {
        let mut chain = root(1, 2).branches();
        let keys = chain.step();
        assert_eq!(format!("{:?} {chain:?}", root(1, 2)), "ExporterSecret(..) Chain(..)");
        assert_eq!(format!("{keys:?}"), format!("ChainKeys({})", keys.id));
    }
}
