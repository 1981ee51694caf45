//! *copy*: something is copied on the server.

use super::facts::RequestFacts;
use super::fields::{RequestFields, flags};
use super::path::any_path;

const REPLACE: u16 = 1;
const DIRECTORIES: u16 = 2;
const KEEP: u16 = 4;

/// A copy of what is at the path, under another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyRequest {
    pub(crate) to: Vec<u8>,
    pub(crate) how: Copying,
}

/// How something is copied on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copying {
    /// A file that exists is replaced.
    pub(crate) replace: bool,
    /// Directories too, with all in them.
    pub(crate) trees: bool,
    /// Times and permissions are those of what is copied.
    pub(crate) keep: bool,
}

impl CopyRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let Copying { replace, trees, keep } = self.how;
        let flags = flags([(replace, REPLACE), (trees, DIRECTORIES), (keep, KEEP)]);
        RequestFields { flags, name: &self.to, ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        let how = Copying {
            replace: fields.has(REPLACE),
            trees: fields.has(DIRECTORIES),
            keep: fields.has(KEEP),
        };
        Some(Self { to: any_path(fields.name)?, how })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts { target: &self.to, ..RequestFacts::default() }
    }
}
