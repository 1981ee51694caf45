//! The Internet checksum (RFC 1071), in pieces.

/// The ones'-complement sum of `bytes`, on top of `sum`; not folded.
pub fn sum(bytes: &[u8], sum: u64) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let total = words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
    let total = sum + total.sum::<u64>();
    // An odd byte counts as the high half of a word.
    total + words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// Folds a sum into 16 bits.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_lengths_are_padded() {
        assert_eq!(fold(sum(&[1, 2, 3], 0)), 0x0402);
        assert_eq!(fold(0x1_ffff), 1);
    }
}
