//! The bounds of a transfer of a range: that range, and no other bytes.

use netblt_proto::content::{Extent, FileRange, Kind};

use crate::error::Error;

/// Refuses data outside of the range, where others have written.
pub(super) fn check_range(range: Option<FileRange>, extent: &Extent) -> Result<(), Error> {
    let Some(range) = range else { return Ok(()) };
    let end = extent.offset.checked_add(extent.length.into());
    let ends = extent.digest.is_some() && extent.kind == Kind::File;
    let fits = end.is_some_and(|end| if ends { end == range.length } else { end <= range.length });
    if !matches!(extent.kind, Kind::File | Kind::Kept) || extent.file > 0 || !fits {
        return Err(Error::Content("it is not the range that was announced"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "ranged_tests.rs"]
mod tests;
