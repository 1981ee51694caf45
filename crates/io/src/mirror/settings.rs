//! The settings of a mirror, which hold at both ends.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::mirror::filter::FilterRule;
use crate::settings::Extras;

/// How two trees are compared, and what may be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MirrorSettings {
    /// The rules of names, in order.
    pub filter: Vec<FilterRule>,
    /// Compare files by their BLAKE3 and not by their times.
    pub checksum: bool,
    /// Times that differ by no more than this are the same.
    pub modify_window: Duration,
    /// Follow symbolic links of the source.
    pub follow: bool,
    /// The extra attributes to compare.
    pub extras: Extras,
    /// Remove what the source does not have, and when. `None`: it stays.
    pub delete: Option<DeleteTime>,
    /// Remove entries that the filter excludes as well.
    pub delete_excluded: bool,
    /// The most entries to remove.
    pub max_delete: MaxDelete,
    /// Removed and replaced files go into this directory, relative to the destination.
    pub backup_dir: Option<Vec<u8>>,
    /// MirrorChange nothing.
    pub dry_run: bool,
    /// List each change.
    pub itemize: bool,
}

/// When entries are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeleteTime {
    /// Before the transfer, which needs less space so.
    Before,
    /// When everything has arrived and is verified.
    After,
}

/// The most entries (files, links and directories) that a mirror removes: with more, it is refused
/// and changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MaxDelete {
    /// A tenth of the destination's entries, but at least ten; none if the source is empty.
    #[default]
    Tenth,
    /// So many.
    Entries(u64),
    /// This share of the destination's entries, 0 to 100 %.
    Percent(u8),
}

/// Entries that a mirror may always remove, unless another limit was given: of a small tree, a
/// tenth is nothing.
const ALWAYS: u64 = 10;

impl MaxDelete {
    /// Whether so many of the destination's entries may be removed. `empty`: the source is empty.
    pub(crate) fn allows(self, removed: u64, entries: u64, empty: bool) -> bool {
        let share =
            |percent: u64| u128::from(removed) * 100 <= u128::from(entries) * u128::from(percent);
        removed == 0
            || match self {
                Self::Tenth => !empty && (removed <= ALWAYS || share(10)),
                Self::Entries(most) => removed <= most,
                Self::Percent(percent) => share(percent.into()),
            }
    }
}

impl fmt::Display for MaxDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenth => f.write_str("10%"),
            Self::Entries(most) => write!(f, "{most}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for MaxDelete {
    type Err = &'static str;

    /// A number of entries, or a share such as `25%`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: &str = "it is a number of entries, or a share from 0% to 100%";
        match text.strip_suffix('%') {
            Some(share) => match share.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(WHY),
            },
            None => text.parse().map(Self::Entries).map_err(|_| WHY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_limit_is_refused() {
        for (limit, removed, entries, empty, allowed) in [
            (MaxDelete::Tenth, 0, 0, true, true),
            (MaxDelete::Tenth, 10, 10, false, true),
            (MaxDelete::Tenth, 10, 10, true, false),
            (MaxDelete::Tenth, 11, 109, false, false),
            (MaxDelete::Tenth, 11, 110, false, true),
            (MaxDelete::Entries(3), 3, 3, true, true),
            (MaxDelete::Entries(3), 4, 1000, false, false),
            (MaxDelete::Percent(100), 7, 7, true, true),
            (MaxDelete::Percent(0), 1, 1000, false, false),
            (MaxDelete::Percent(50), u64::MAX, u64::MAX, false, false),
        ] {
            let found = limit.allows(removed, entries, empty);
            assert_eq!(found, allowed, "{limit} {removed} of {entries}");
        }
    }

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        assert_eq!("12".parse(), Ok(MaxDelete::Entries(12)));
        assert_eq!("25%".parse(), Ok(MaxDelete::Percent(25)));
        for bad in ["", "%", "101%", "-1", "1.5%", "x"] {
            assert!(bad.parse::<MaxDelete>().is_err(), "{bad}");
        }
    }
}
