//! The checksum of RFC 998 (§5.1, §8): ones-complement sum of 16-bit words, inverted.
//!
//! Every DATA packet of the `rfc998` wire passes through here twice, so it sums eight bytes at a
//! time. An odd byte at the end is padded with zero (`docs/protocol §2.1`).

/// The value for a checksum field that lies outside `bytes`, or that is zero within them.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Whether `bytes`, which contain their checksum at an even offset, are as they were sent.
pub(super) fn holds(bytes: &[u8]) -> bool {
    sum(bytes) == u16::MAX
}

/// The ones-complement sum. It does not depend on byte order but for a swap at the end, and is
/// associative, so words may be summed wide, in host order, with the carries folded in last.
fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // Two halves of 32 bits a word: 64 bits cannot overflow below 2^32 words.
    let mut total = halves(last);
    for word in words {
        total += halves(*word);
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::from_be(total as u16)
}

fn halves(word: [u8; 8]) -> u64 {
    let word = u64::from_ne_bytes(word);
    (word & 0xffff_ffff) + (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn checksum_is_the_sixteen_bit_sum(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(checksum(&bytes), naive(&bytes));
        }

        #[test]
        fn the_checksum_fails_when_a_bit_flips(
            mut bytes in prop::collection::vec(any::<u8>(), 2..1500),
            bit in any::<prop::sample::Index>(),
        ) {
            bytes[..2].fill(0);
            let value = checksum(&bytes);
            bytes[..2].copy_from_slice(&value.to_be_bytes());
            prop_assert!(holds(&bytes));
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!holds(&bytes));
        }
    }

    #[test]
    fn carries_and_zeros_fold_as_rfc_1071_defines() {
        for bytes in [vec![0xff; 65_535], vec![0; 64], vec![0xff; 8], vec![]] {
            assert_eq!(checksum(&bytes), naive(&bytes));
        }
        assert!(!holds(&[0; 12]), "all zeros is not a packet");
    }
}
