//! Paths and names in requests and answers: none leads out of the root.

use netblt_proto::content::check_name;

/// The root, or something beneath it.
pub(super) fn any_path(path: &[u8]) -> Option<Vec<u8>> {
    (path.is_empty() || check_name(path).is_ok()).then(|| path.to_vec())
}

/// A name under which something can arrive.
pub(super) fn one_part(name: &[u8]) -> Option<Vec<u8>> {
    check_name(name).ok()?;
    (!name.contains(&b'/')).then(|| name.to_vec())
}

/// Converts a path as a user writes it to that of a request. Slashes at either end, doubled slashes
/// and parts `.` are dropped. No path leads above the root.
pub(crate) fn plain(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let parts = path.split(|byte| *byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let path = parts.join(&b'/');
    if !path.is_empty() {
        check_name(&path)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_path_becomes_plain_and_never_leads_up() {
        for (path, is) in [("", ""), ("/", ""), ("/a//b/", "a/b"), ("./a/.", "a")] {
            assert_eq!(plain(path.as_bytes()).as_deref(), Ok(is.as_bytes()));
        }
        assert!(plain(b"a/../b").is_err());
        assert!(plain(b"..").is_err());
    }
}
