//! Names in a tree, which are relative to its root.

/// The order of directories in a walk.
pub(crate) fn order(one: &[u8], other: &[u8]) -> std::cmp::Ordering {
    one.split(|byte| *byte == b'/').cmp(other.split(|byte| *byte == b'/'))
}

/// The name of an entry of a directory.
pub(crate) fn joined(directory: &[u8], leaf: &[u8]) -> Vec<u8> {
    if directory.is_empty() { leaf.to_vec() } else { [directory, b"/", leaf].concat() }
}
