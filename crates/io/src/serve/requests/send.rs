//! *send*: the server sends a file or a tree to another server.

use std::borrow::Cow;

use netblt_proto::config::{PublicKey, StaticKey};

use super::facts::RequestFacts;
use super::fields::{RequestFields, flags, push_part, split_part};
use super::path::one_part;

const TREES: u16 = 1;

/// The files that a [`GetRequest`](super::get::GetRequest) names, and the server to send them to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendRequest {
    pub(crate) trees: bool,
    pub(crate) name: Vec<u8>,
    pub(crate) push: PushTarget,
}

/// The server to which another server sends files. It has announced the upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PushTarget {
    /// The number of the upload there.
    pub(crate) number: u64,
    /// The public key of that server.
    pub(crate) server: PublicKey,
    /// The private key that this server has lent for the upload.
    pub(crate) own: StaticKey,
    /// `host:port`.
    pub(crate) address: String,
}

impl SendRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let push = &self.push;
        let mut text = [&push.server.0[..], push.own.private()].concat();
        push_part(&mut text, push.address.as_bytes());
        let flags = flags([(self.trees, TREES)]);
        RequestFields { flags, number: push.number, name: &self.name, own: Cow::Owned(text) }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        let (server, text) = fields.own.split_first_chunk()?;
        let (own, text) = text.split_first_chunk()?;
        let (address, _) = split_part(text)?;
        let address = String::from_utf8(address.to_vec()).ok()?;
        let (server, own) = (PublicKey(*server), StaticKey::from_bytes(*own));
        let push = PushTarget { number: fields.number, server, own, address };
        Some(Self { trees: fields.has(TREES), name: one_part(fields.name)?, push })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        let target = self.push.address.as_bytes();
        RequestFacts { target, connects: true, ..RequestFacts::default() }
    }
}
