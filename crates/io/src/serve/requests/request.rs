//! A request of any kind, as bytes and back.

use super::copy::CopyRequest;
use super::facts::{RequestFacts, UploadFacts, UploadKey};
use super::fields::RequestFields;
use super::get::GetRequest;
use super::join::JoinRequest;
use super::list::ListRequest;
use super::make_dir::MakeDirRequest;
use super::path::any_path;
use super::put::PutRequest;
use super::put_range::PutRangeRequest;
use super::read::ReadRequest;
use super::remove::RemoveRequest;
use super::rename::RenameRequest;
use super::request_kind::RequestKind;
use super::send::SendRequest;
use super::stat::StatRequest;

/// The client string of a connection for one request.
pub(crate) const ASK: &str = "netblt ask";
/// The client string of a session's connection.
pub(crate) const SESSION: &str = "netblt session";

/// A request: an operation and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// Relative to the root, without a slash before or behind; the root itself is empty.
    pub(crate) path: Vec<u8>,
}

/// The operation at the path, with the fields of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get(GetRequest),
    Put(PutRequest),
    Stat(StatRequest),
    List(ListRequest),
    MakeDir(MakeDirRequest),
    Remove(RemoveRequest),
    Rename(RenameRequest),
    Copy(CopyRequest),
    Read(ReadRequest),
    Send(SendRequest),
    PutRange(PutRangeRequest),
    Join(JoinRequest),
}

impl Operation {
    /// Its kind.
    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            Self::Get(_) => RequestKind::Get,
            Self::Put(_) => RequestKind::Put,
            Self::Stat(_) => RequestKind::Stat,
            Self::List(_) => RequestKind::List,
            Self::MakeDir(_) => RequestKind::MakeDir,
            Self::Remove(_) => RequestKind::Remove,
            Self::Rename(_) => RequestKind::Rename,
            Self::Copy(_) => RequestKind::Copy,
            Self::Read(_) => RequestKind::Read,
            Self::Send(_) => RequestKind::Send,
            Self::PutRange(_) => RequestKind::PutRange,
            Self::Join(_) => RequestKind::Join,
        }
    }

    fn encode(&self, path: &[u8]) -> RequestFields<'_> {
        match self {
            Self::Get(get) => get.encode(),
            Self::Put(put) => put.encode(),
            Self::Stat(stat) => stat.encode(),
            Self::List(list) => list.encode(),
            Self::MakeDir(make) => make.encode(),
            Self::Remove(remove) => remove.encode(),
            Self::Rename(rename) => rename.encode(),
            Self::Copy(copy) => copy.encode(),
            Self::Read(read) => read.encode(path),
            Self::Send(send) => send.encode(),
            Self::PutRange(put) => put.encode(),
            Self::Join(join) => join.encode(),
        }
    }

    fn decode(kind: RequestKind, path: &[u8], fields: &RequestFields<'_>) -> Option<Self> {
        Some(match kind {
            RequestKind::Get => Self::Get(GetRequest::decode(fields)?),
            RequestKind::Put => Self::Put(PutRequest::decode(fields)),
            RequestKind::Stat => Self::Stat(StatRequest::decode(fields)),
            RequestKind::List => Self::List(ListRequest::decode(fields)),
            RequestKind::MakeDir => Self::MakeDir(MakeDirRequest::decode(fields)),
            RequestKind::Remove => Self::Remove(RemoveRequest::decode(fields)),
            RequestKind::Rename => Self::Rename(RenameRequest::decode(fields)?),
            RequestKind::Copy => Self::Copy(CopyRequest::decode(fields)?),
            RequestKind::Read => Self::Read(ReadRequest::decode(path, fields)?),
            RequestKind::Send => Self::Send(SendRequest::decode(fields)?),
            RequestKind::PutRange => Self::PutRange(PutRangeRequest::decode(fields)?),
            RequestKind::Join => Self::Join(JoinRequest::decode(fields)?),
        })
    }
}

impl Request {
    /// Its kind.
    pub(crate) fn kind(&self) -> RequestKind {
        self.operation.kind()
    }

    /// What the server must know of it before it performs it.
    pub(crate) fn facts(&self) -> RequestFacts<'_> {
        match &self.operation {
            Operation::Get(get) => get.facts(),
            Operation::Put(put) => put.facts(),
            Operation::Rename(rename) => rename.facts(),
            Operation::Copy(copy) => copy.facts(),
            Operation::Read(read) => read.facts(),
            Operation::Send(send) => send.facts(),
            Operation::PutRange(put) => put.facts(),
            Operation::Join(join) => join.facts(),
            Operation::Stat(_) | Operation::List(_) => RequestFacts::default(),
            Operation::MakeDir(_) | Operation::Remove(_) => RequestFacts::default(),
        }
    }

    /// All paths in it.
    pub(crate) fn paths(&self) -> Vec<&[u8]> {
        let mut paths = vec![&self.path[..]];
        match &self.operation {
            Operation::Rename(RenameRequest { to, .. })
            | Operation::Copy(CopyRequest { to, .. })
            | Operation::Join(JoinRequest { to, .. }) => paths.push(to),
            Operation::Read(ReadRequest { pieces }) => {
                paths.extend(pieces.iter().map(|piece| &piece.path[..]));
            }
            Operation::Get(_) | Operation::Put(_) | Operation::Stat(_) | Operation::List(_) => {}
            Operation::MakeDir(_) | Operation::Remove(_) => {}
            Operation::Send(_) | Operation::PutRange(_) => {}
        }
        paths
    }

    /// The key that two uploads of the same files have in common.
    pub(crate) fn upload_key(&self) -> UploadKey {
        let label = match self.facts().upload {
            Some(UploadFacts::Announced { label, .. }) => label,
            Some(UploadFacts::Cancelled(_)) | None => None,
        };
        UploadKey { path: self.path.clone(), label }
    }

    /// Whether it announces an upload.
    pub(crate) fn is_upload(&self) -> bool {
        matches!(self.facts().upload, Some(UploadFacts::Announced { .. }))
    }

    /// Its bytes, which precede those of HAVE (`docs/protocol §8.7`).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = vec![self.kind().number()];
        self.operation.encode(&self.path).encode(&self.path, &mut text);
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [&length.to_be_bytes()[..], &text].concat()
    }

    /// A request and the rest of the bytes, if it is valid. Fields behind the known ones are
    /// ignored.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length)?;
        let ([number], text) = text.split_first_chunk::<1>()?;
        let kind = RequestKind::of(*number).filter(|kind| length <= kind.max_bytes())?;
        let (path, fields) = RequestFields::decode(text)?;
        let operation = Operation::decode(kind, path, &fields)?;
        Some((Self { operation, path: any_path(path)? }, rest))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
