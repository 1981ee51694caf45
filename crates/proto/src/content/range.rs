//! A range of a file that is transferred as if it were a file of its own
//! (`docs/protocol §8.9`).

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Smallest range that may have another one behind it, in bytes: BLAKE3's chunk.
pub const MIN_RANGE_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// A range of a file, such that its bytes are a subtree of the file's BLAKE3 tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Bytes of the file before it.
    pub offset: u64,
    /// Bytes in it.
    pub length: u64,
    /// Bytes of the file.
    pub total: u64,
}

impl FileRange {
    /// Whether it is valid: a power of two of bytes, from 1,024, that begins at a multiple of
    /// itself; or the rest of the file behind such ranges, and no longer than they are. The whole
    /// file is not a valid range.
    pub fn is_good(self) -> bool {
        let Self { offset, length, total } = self;
        let Some(end) = offset.checked_add(length) else { return false };
        if length == 0 || end > total || length == total {
            return false;
        }
        let begins = |bytes: u64| offset.is_multiple_of(bytes);
        if end < total {
            return length >= MIN_RANGE_BYTES && length.is_power_of_two() && begins(length);
        }
        let before = length.checked_next_power_of_two().unwrap_or(u64::MAX).max(MIN_RANGE_BYTES);
        offset > 0 && begins(before)
    }

    /// The ranges of `bytes`, a power of two from 1,024, that a file of more bytes is cut into.
    pub fn all(total: u64, bytes: u64) -> impl Iterator<Item = Self> {
        let count = total.div_ceil(bytes.max(MIN_RANGE_BYTES));
        (0..count).map(move |index| {
            let offset = index * bytes;
            Self { offset, length: bytes.min(total - offset), total }
        })
    }
}

/// The BLAKE3 of a file, from the chaining values of all its ranges, all but the last of one
/// length; nothing of fewer than two.
pub fn digest_of_ranges(values: &[[u8; 32]]) -> Option<[u8; 32]> {
    if values.len() < 2 {
        return None;
    }
    let (left, right) = values.split_at_checked(left_of(values.len()))?;
    let (left, right) = (merged(left)?, merged(right)?);
    Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
}

fn merged(values: &[[u8; 32]]) -> Option<[u8; 32]> {
    match values {
        [] => None,
        [value] => Some(*value),
        values => {
            let (left, right) = values.split_at_checked(left_of(values.len()))?;
            Some(merge_subtrees_non_root(&merged(left)?, &merged(right)?, Mode::Hash))
        }
    }
}

/// How many of `count`, at least 2, stand under the left child: the largest power of two below.
fn left_of(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

#[cfg(test)]
mod tests {
    use blake3::hazmat::HasherExt as _;

    use super::*;

    #[test]
    fn the_digest_of_a_file_follows_from_those_of_its_ranges() {
        let content: Vec<u8> = (0..40_000usize).map(|at| (at * 31 + at / 251) as u8).collect();
        for total in [1025, 2048, 2049, 3072, 5000, 8192, 8193, 20_481, 40_000] {
            for bytes in [1024, 2048, 4096] {
                let ranges: Vec<FileRange> = FileRange::all(total, bytes).collect();
                if ranges.len() < 2 {
                    continue;
                }
                assert_eq!(ranges.iter().map(|range| range.length).sum::<u64>(), total);
                assert!(ranges.iter().all(|range| range.is_good()), "{total} {bytes}");
                let values: Vec<[u8; 32]> = ranges
                    .iter()
                    .map(|range| {
                        let mut hasher = blake3::Hasher::new();
                        hasher.set_input_offset(range.offset);
                        let end = range.offset + range.length;
                        hasher.update(&content[range.offset as usize..end as usize]);
                        hasher.finalize_non_root()
                    })
                    .collect();
                let whole = *blake3::hash(&content[..total as usize]).as_bytes();
                assert_eq!(digest_of_ranges(&values), Some(whole), "{total} {bytes}");
            }
        }
        assert_eq!(digest_of_ranges(&[]), None);
        assert_eq!(digest_of_ranges(&[[0; 32]]), None);
    }

    #[test]
    fn a_range_that_is_no_subtree_is_invalid() {
        let range = |offset, length, total| FileRange { offset, length, total };
        for good in [
            range(0, 1024, 1025),
            range(1024, 1, 1025),
            range(4096, 4096, 1 << 40),
            range(1 << 40, 7, (1 << 40) + 7),
            range(6 << 10, 1500, (6 << 10) + 1500),
        ] {
            assert!(good.is_good(), "{good:?}");
        }
        for bad in [
            range(0, 1024, 1024),
            range(0, 0, 5),
            range(0, 512, 1024),
            range(0, 3072, 1 << 20),
            range(1024, 2048, 1 << 20),
            range(512, 100, 612),
            range(1024, 1500, 2524),
            range(u64::MAX, 2, u64::MAX),
            range(2048, 1024, 3000),
            range(1 << 63, (1 << 63) - 1, u64::MAX - 1),
        ] {
            assert!(!bad.is_good(), "{bad:?}");
        }
    }
}
