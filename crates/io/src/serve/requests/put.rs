//! *put*: files will come with another connection.

use super::facts::{RequestFacts, UploadFacts};
use super::fields::{RequestFields, flags};

const REPLACE: u16 = 1;
const SEVERAL: u16 = 2;
const TREE: u16 = 4;
const ATOMIC: u16 = 8;
const PRESERVE: u16 = 16;
const TIMES: u16 = 32;
const VERIFY: u16 = 64;
const VIA_SERVER: u16 = 128;

/// The announcement of an upload, or its cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutRequest {
    /// Files will come.
    Announce(PutOptions),
    /// The upload that was announced under this number will not come.
    Cancel(u64),
}

/// The options of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PutOptions {
    /// Files that exist are replaced.
    pub(crate) replace: bool,
    /// The path must be a directory.
    pub(crate) several: bool,
    /// The one source is a directory.
    pub(crate) tree: bool,
    /// All or nothing.
    pub(crate) atomic: bool,
    /// Permissions are the sender's whatever the server's mask.
    pub(crate) preserve: bool,
    /// Times are the sender's.
    pub(crate) times: bool,
    /// Files are read again before they get their names.
    pub(crate) verify: bool,
    /// Another server brings them, with a key that is lent for it.
    pub(crate) via_server: bool,
    /// Distinguishes its staging files from those of other transfers.
    pub(crate) label: Option<[u8; 32]>,
}

impl PutRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        match self {
            Self::Cancel(number) => RequestFields { number: *number, ..RequestFields::default() },
            Self::Announce(options) => options.encode(),
        }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Self {
        match fields.number {
            0 => Self::Announce(PutOptions::decode(fields)),
            number => Self::Cancel(number),
        }
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        let upload = match *self {
            Self::Announce(PutOptions { label, via_server, .. }) => {
                UploadFacts::Announced { label, via_server }
            }
            Self::Cancel(number) => UploadFacts::Cancelled(number),
        };
        RequestFacts { upload: Some(upload), ..RequestFacts::default() }
    }
}

impl PutOptions {
    fn encode(&self) -> RequestFields<'_> {
        let flags = flags([
            (self.replace, REPLACE),
            (self.several, SEVERAL),
            (self.tree, TREE),
            (self.atomic, ATOMIC),
            (self.preserve, PRESERVE),
            (self.times, TIMES),
            (self.verify, VERIFY),
            (self.via_server, VIA_SERVER),
        ]);
        let name = self.label.as_ref().map_or(&[][..], |label| &label[..]);
        RequestFields { flags, name, ..RequestFields::default() }
    }

    fn decode(fields: &RequestFields<'_>) -> Self {
        Self {
            replace: fields.has(REPLACE),
            several: fields.has(SEVERAL),
            tree: fields.has(TREE),
            atomic: fields.has(ATOMIC),
            preserve: fields.has(PRESERVE),
            times: fields.has(TIMES),
            verify: fields.has(VERIFY),
            via_server: fields.has(VIA_SERVER),
            label: fields.name.try_into().ok(),
        }
    }
}
