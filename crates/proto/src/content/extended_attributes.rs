//! Attributes of a file beyond mode and time, sent on request: its owner, and its extended
//! attributes (`docs/protocol §8.2`).

use crate::wire::sealed::{ParseError, Reader};

const OWNER: u8 = 1;
const XATTR: u8 = 2;
/// Bytes before the value of an item: its type and its length.
const ITEM_BYTES: usize = 3;

/// The owner of a file. Names count before numbers where they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The user's name, at most 255 bytes; empty if it has none.
    pub user: Vec<u8>,
    /// The group's name, likewise.
    pub group: Vec<u8>,
}

/// Attributes beyond mode and time; at most 65,535 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraAttributes {
    /// The owner.
    pub owner: Option<Owner>,
    /// Extended attributes: names, at most 255 bytes each, and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ExtraAttributes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owner.is_none() && self.xattrs.is_empty()
    }

    /// Bytes that they take in a table; none if there are none.
    pub fn encoded_len(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let owner = self.owner.as_ref();
        let owner = owner.map_or(0, |o| ITEM_BYTES + 9 + o.user.len() + o.group.len());
        let xattr = |(name, value): &(Vec<u8>, Vec<u8>)| ITEM_BYTES + 1 + name.len() + value.len();
        2 + owner + self.xattrs.iter().map(xattr).sum::<usize>()
    }

    /// Appends them, if there are any. The caller has checked the length.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.extend_from_slice(&((self.encoded_len() - 2) as u16).to_be_bytes());
        if let Some(Owner { uid, gid, user, group }) = &self.owner {
            item(OWNER, 9 + user.len() + group.len(), out);
            out.extend_from_slice(&uid.to_be_bytes());
            out.extend_from_slice(&gid.to_be_bytes());
            out.push(user.len() as u8);
            out.extend_from_slice(user);
            out.extend_from_slice(group);
        }
        for (name, value) in &self.xattrs {
            item(XATTR, 1 + name.len() + value.len(), out);
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        }
    }

    /// Items of other types are skipped.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        const WRONG: ParseError = ParseError::Field("further attributes");
        let len = usize::from(reader.u16()?);
        let mut items = Reader::new(reader.bytes(len)?);
        let mut more = Self::default();
        while !items.is_empty() {
            let kind = items.u8()?;
            let len = usize::from(items.u16()?);
            let value = items.bytes(len)?;
            let mut reader = Reader::new(value);
            match kind {
                OWNER if more.owner.is_none() => {
                    let (uid, gid) = (reader.u32()?, reader.u32()?);
                    let user = usize::from(reader.u8()?);
                    let user = reader.bytes(user)?.to_vec();
                    let group = value.get(9 + user.len()..).unwrap_or_default().to_vec();
                    if group.len() > usize::from(u8::MAX) {
                        return Err(WRONG);
                    }
                    more.owner = Some(Owner { uid, gid, user, group });
                }
                XATTR => {
                    let name = usize::from(reader.u8()?);
                    let name = reader.bytes(name)?.to_vec();
                    let at = 1 + name.len();
                    if name.is_empty() || name.contains(&0) {
                        return Err(WRONG);
                    }
                    more.xattrs.push((name, value.get(at..).unwrap_or_default().to_vec()));
                }
                OWNER => return Err(WRONG),
                _ => {}
            }
        }
        Ok(more)
    }
}

fn item(kind: u8, len: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&(len as u16).to_be_bytes());
}
