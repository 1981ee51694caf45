//! *rename*: something gets another name.

use super::facts::RequestFacts;
use super::fields::{RequestFields, flags};
use super::path::any_path;

const REPLACE: u16 = 1;

/// Another path for what is at the path of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenameRequest {
    pub(crate) to: Vec<u8>,
    /// A file or link at the new path is replaced.
    pub(crate) replace: bool,
}

impl RenameRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        RequestFields {
            flags: flags([(self.replace, REPLACE)]),
            name: &self.to,
            ..RequestFields::default()
        }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        Some(Self { to: any_path(fields.name)?, replace: fields.has(REPLACE) })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts { target: &self.to, ..RequestFacts::default() }
    }
}
