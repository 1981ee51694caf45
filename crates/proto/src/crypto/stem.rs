//! The keys of connections that branch from another one (`docs/protocol.md §4.10`).
//!
//! Nothing of the stem's own keys follows from its root, so that a root that is kept opens no
//! recording of the stem.

use std::fmt;

use zeroize::Zeroizing;

use super::noise::SplitKeys;

const STEM: &str = "netblt 11 stem";
const BRANCH: &str = "netblt 11 branch";

/// What the keys of all branches of a connection are made of. Wiped when it goes.
#[derive(Clone)]
pub struct Root(Zeroizing<[u8; 32]>);

impl Root {
    /// That of the connection whose handshake yielded these (`docs/protocol.md §4.10`).
    pub fn of(keys: &SplitKeys) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(STEM);
        hasher.update(&keys.initiator_to_responder).update(&keys.responder_to_initiator);
        Self(Zeroizing::new(*hasher.finalize().as_bytes()))
    }

    /// Where the chains of a branch begin; each number once (`docs/protocol.md §4.10`).
    pub fn branch(&self, number: u64) -> SplitKeys {
        let mut hasher = blake3::Hasher::new_derive_key(BRANCH);
        hasher.update(&*self.0).update(&number.to_be_bytes());
        let mut keys = hasher.finalize_xof();
        let [mut initiator_to_responder, mut responder_to_initiator] = [[0; 32]; 2];
        keys.fill(&mut initiator_to_responder);
        keys.fill(&mut responder_to_initiator);
        SplitKeys { initiator_to_responder, responder_to_initiator }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(a: u8, b: u8) -> SplitKeys {
        SplitKeys { initiator_to_responder: [a; 32], responder_to_initiator: [b; 32] }
    }

    #[test]
    fn every_branch_direction_and_stem_has_keys_of_its_own() {
        let roots = [keys(1, 2), keys(2, 1), keys(1, 3)].map(|keys| Root::of(&keys));
        let mut all = Vec::new();
        for root in &roots {
            for number in [1, 2, u64::MAX] {
                let SplitKeys { initiator_to_responder, responder_to_initiator } =
                    &root.branch(number);
                all.extend([*initiator_to_responder, *responder_to_initiator]);
            }
        }
        all.extend([[1; 32], [2; 32], [3; 32]]);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(roots[0].branch(7), Root::of(&keys(1, 2)).branch(7));
        assert_eq!(format!("{:?}", roots[0]), "Root(..)");
    }
}
