//! The keys of a lane (`docs/protocol.md §4.11`): those of a branch whose number no branch has.

use zeroize::Zeroize;

use super::stem::Root;

const ID: &str = "netblt 11 lane id";
/// Branches that a peer is told of count from 1.
const FIRST: u64 = 1 << 63;

/// Keys and id of a lane, seen from one end. Wiped when they go.
pub struct LaneKeys {
    /// Where the chain of keys begins of what leaves.
    pub out: [u8; 32],
    /// That of what comes.
    pub into: [u8; 32],
    /// Its connection id, in both directions; not 0.
    pub id: u32,
}

impl LaneKeys {
    /// Those of lane `number` of a connection with this root, at its active end or the other one.
    /// A link is to be made of them once at either end: whoever makes it twice seals two packets
    /// under one number.
    pub fn of(root: &Root, number: u8, active: bool) -> Self {
        let keys = root.branch(FIRST + u64::from(number));
        let (mut out, mut into) = (keys.initiator_to_responder, keys.responder_to_initiator);
        let mut hasher = blake3::Hasher::new_derive_key(ID);
        hasher.update(&out).update(&into);
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        if !active {
            std::mem::swap(&mut out, &mut into);
        }
        Self { out, into, id: u32::from_be_bytes([a, b, c, d]).max(1) }
    }
}

impl Drop for LaneKeys {
    fn drop(&mut self) {
        self.out.zeroize();
        self.into.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::crypto::noise::SplitKeys;

    fn root() -> Root {
        Root::of(&SplitKeys { initiator_to_responder: [1; 32], responder_to_initiator: [2; 32] })
    }

    #[test]
    fn both_ends_have_the_same_the_other_way_round() {
        for number in [0, 1, 255] {
            let (ours, theirs) =
                (LaneKeys::of(&root(), number, true), LaneKeys::of(&root(), number, false));
            assert_eq!((ours.out, ours.into, ours.id), (theirs.into, theirs.out, theirs.id));
        }
    }

    #[test]
    fn no_two_have_anything_in_common_nor_a_branch_with_them() {
        let (mut keys, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..=255 {
            let lane = LaneKeys::of(&root(), number, true);
            assert!(keys.insert(lane.out) && keys.insert(lane.into) && ids.insert(lane.id));
            let branch = root().branch(number.into());
            assert!(keys.insert(branch.initiator_to_responder));
        }
    }
}
