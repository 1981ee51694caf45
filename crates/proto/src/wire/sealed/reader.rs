//! Reads fields off the front of bytes. Fails at the first that is not there, and never panics.

use super::ParseError;

/// The bytes not read yet; numbers are in network byte order (`docs/protocol §3`).
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(|[byte]| byte)
    }

    /// The next 2 bytes as a number.
    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 4 bytes as a number.
    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 8 bytes as a number.
    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }

    /// All that is left, as UTF-8 of at most `max` bytes.
    pub(crate) fn text(&mut self, max: usize, name: &'static str) -> Result<&'a str, ParseError> {
        let rest = std::mem::take(&mut self.0);
        if rest.len() > max {
            return Err(ParseError::Field(name));
        }
        std::str::from_utf8(rest).map_err(|_| ParseError::Field(name))
    }

    /// All that is left.
    pub(crate) fn remaining(self) -> &'a [u8] {
        self.0
    }

    /// How many bytes are left, which are not looked at.
    pub(crate) fn rest(self) -> usize {
        self.0.len()
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses bytes that nothing has read.
    pub(crate) fn finish(self) -> Result<(), ParseError> {
        if self.0.is_empty() { Ok(()) } else { Err(ParseError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_end_with_the_bytes() {
        let mut reader = Reader::new(&[1, 0, 2, 0, 0, 0, 3, b'x']);
        assert_eq!((reader.u8(), reader.u16(), reader.u32()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(reader.u64(), Err(ParseError::Truncated));
        assert_eq!(reader.bytes(2), Err(ParseError::Truncated));
        assert_eq!(reader.text(1, "x"), Ok("x"));
        assert!(reader.is_empty());
        assert_eq!(reader.u8(), Err(ParseError::Truncated));
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(Reader::new(&[0]).finish(), Err(ParseError::Trailing));
    }
}
