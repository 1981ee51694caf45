//! The announcement of a sender of files, beside their length: its client message
//! (`docs/protocol §8.6`).

use std::fmt;

use crate::fields::Fields;

/// The application of the message, and its fields.
const NAME: &str = "netblt send";
const DATA: &str = "data";
const FILES: &str = "files";
const PUT: &str = "put";
const SUBFLOWS: &str = "lanes";

/// The announced values, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// File bytes without those of holes.
    pub(crate) data_bytes: Option<u64>,
    /// How many files.
    pub(crate) files: Option<u64>,
    /// The number under which a server takes them (`docs/protocol §8.8`).
    pub(crate) put: Option<u64>,
    /// Over how many connections it sends, if that is more than one (`docs/protocol §4.11`).
    pub(crate) subflows: Option<u64>,
}

impl Announcement {
    /// The announcement in a client string. Any other text announces nothing.
    pub(crate) fn parse(client: &str) -> Self {
        let fields = Fields::of(NAME, client).unwrap_or_default();
        Self {
            data_bytes: fields.only(DATA),
            files: fields.only(FILES),
            put: fields.only(PUT),
            subflows: fields.only(SUBFLOWS),
        }
    }

    /// The client string for it, if there is anything to announce.
    pub(super) fn to_client_string(self) -> Option<String> {
        (self != Self::default()).then(|| self.to_string())
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}")?;
        self.data_bytes.iter().try_for_each(|bytes| write!(f, " {DATA}={bytes}"))?;
        self.files.iter().try_for_each(|files| write!(f, " {FILES}={files}"))?;
        self.put.iter().try_for_each(|number| write!(f, " {PUT}={number}"))?;
        self.subflows.iter().try_for_each(|subflows| write!(f, " {SUBFLOWS}={subflows}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_parsed_as_it_was_written() {
        let none = Announcement::default();
        for announcement in [
            Announcement { data_bytes: Some(0), files: Some(u64::MAX), ..none },
            Announcement { files: Some(1), put: Some(u64::MAX), ..none },
            Announcement { data_bytes: Some(7), ..none },
            Announcement { subflows: Some(4), ..none },
        ] {
            assert_eq!(
                Announcement::parse(&announcement.to_client_string().expect("something")),
                announcement
            );
        }
        assert_eq!(Announcement::default().to_client_string(), None);
        for other in
            ["", "netblt 0.1.0", "netblt send", "netblt send data=x", "netblt sends data=1"]
        {
            assert_eq!(Announcement::parse(other), Announcement::default(), "{other}");
        }
        let newer = Announcement::parse("netblt send data=5 naps=3");
        assert_eq!(newer, Announcement { data_bytes: Some(5), ..none });
    }
}
