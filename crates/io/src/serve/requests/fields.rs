//! The fields that the kinds of requests have in common, as bytes.

use std::borrow::Cow;

/// The fields of a request beside its kind and its path.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestFields<'a> {
    pub(super) flags: u16,
    pub(super) number: u64,
    pub(super) name: &'a [u8],
    /// The fields that only this kind has. Unknown ones behind them are ignored.
    pub(super) own: Cow<'a, [u8]>,
}

impl<'a> RequestFields<'a> {
    /// Whether a flag is set.
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Appends them, with the path.
    pub(super) fn encode(&self, path: &[u8], text: &mut Vec<u8>) {
        text.extend(self.flags.to_be_bytes());
        text.extend(self.number.to_be_bytes());
        push_part(text, path);
        push_part(text, self.name);
        text.extend(&self.own[..]);
    }

    /// The path and the fields in these bytes.
    pub(super) fn decode(text: &'a [u8]) -> Option<(&'a [u8], Self)> {
        let (flags, text) = text.split_first_chunk()?;
        let (number, text) = split_number(text)?;
        let (path, text) = split_part(text)?;
        let (name, text) = split_part(text)?;
        let flags = u16::from_be_bytes(*flags);
        Some((path, Self { flags, number, name, own: Cow::Borrowed(text) }))
    }
}

/// The flags whose conditions hold.
pub(super) fn flags<const COUNT: usize>(all: [(bool, u16); COUNT]) -> u16 {
    all.iter().filter(|(holds, _)| *holds).fold(0, |flags, (_, flag)| flags | flag)
}

/// Appends bytes behind their length.
pub(super) fn push_part(text: &mut Vec<u8>, part: &[u8]) {
    text.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
    text.extend(part);
}

/// The first bytes, of the length before them, and the rest.
pub(super) fn split_part(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, text) = text.split_first_chunk()?;
    text.split_at_checked(u16::from_be_bytes(*length).into())
}

/// The first eight bytes as a number, and the rest.
pub(super) fn split_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let (number, text) = text.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), text))
}
