//! How large buffers are, and what fits into one (`docs/protocol §8`).

use netblt_proto::config::{Config, Wire};
use netblt_proto::content::ContentError;
use netblt_proto::limits::{
    ATTRIBUTES_BYTES, DIGEST_BYTES, EXTENT_BYTES, MAX_TABLE_BYTES, SEALED_BUFFER_BYTES,
    TRAILER_BYTES,
};

use crate::error::{Error, OptionsError};

/// How large the buffers of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    buffer_bytes: u32,
    table_bytes: u32,
}

impl Layout {
    /// The buffers that a configuration proposes.
    pub(crate) fn of(config: &Config) -> Result<Self, Error> {
        match config.wire {
            Wire::Sealed => Self::sealed(config.buffer_bytes, config.table_bytes),
            Wire::Rfc998 => Ok(Self::plain(config.buffer_bytes)),
        }
    }

    /// Buffers of `sealed`: a data area of `buffer_bytes` and `table_bytes` beyond it.
    pub(crate) fn sealed(buffer_bytes: u32, table_bytes: u32) -> Result<Self, Error> {
        if !buffer_bytes.is_power_of_two() || !SEALED_BUFFER_BYTES.contains(&buffer_bytes) {
            return Err(OptionsError::BufferBytes(buffer_bytes).into());
        }
        if table_bytes > MAX_TABLE_BYTES {
            return Err(OptionsError::TableBytes(table_bytes, MAX_TABLE_BYTES).into());
        }
        Ok(Self { buffer_bytes, table_bytes })
    }

    /// Buffers of `rfc998`: bytes of one file and nothing else, in any size.
    pub(crate) fn plain(buffer_bytes: u32) -> Self {
        Self { buffer_bytes: buffer_bytes.max(1), table_bytes: 0 }
    }

    /// The same with so many bytes less beyond the data area.
    pub(crate) fn less(self, bytes: usize) -> Result<Self, Error> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.table_bytes.checked_sub(bytes) {
            Some(table_bytes) => Ok(Self { table_bytes, ..self }),
            None => Err(Error::Content("the buffers that were agreed on have no room for tables")),
        }
    }

    /// Bytes in the data area.
    pub(crate) fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    /// Bytes that a buffer may have beyond its data area.
    pub(crate) fn table_bytes(&self) -> u32 {
        self.table_bytes
    }

    /// Bytes of memory that an image may need.
    pub(crate) fn image_bytes(&self) -> usize {
        self.data_bytes().saturating_add(self.table_bytes as usize)
    }

    /// Bytes in the data area, as a length.
    pub(crate) fn data_bytes(&self) -> usize {
        self.buffer_bytes as usize
    }

    /// Whether an image can hold `data` bytes of data that need `entries` bytes of table.
    pub(crate) fn fits(&self, data: usize, entries: usize) -> bool {
        let table = entries.saturating_add(TRAILER_BYTES);
        let image = data.saturating_add(table);
        let bounded = data <= self.data_bytes() && table <= MAX_TABLE_BYTES as usize;
        bounded && image <= self.image_bytes()
    }
}

/// The error for a peer's invalid image.
pub(crate) fn broken(error: ContentError) -> Error {
    Error::Content(match error {
        ContentError::Table(_) => "an extent table does not have its layout",
        ContentError::Lengths => "extents do not add up to their data",
        ContentError::TooLong => "an extent table is too long",
    })
}

/// Bytes that an extent takes in the table; `name` is the length of the name if it is the first of
/// its file.
pub(crate) fn entry_bytes(name: Option<usize>, last: bool) -> usize {
    let first = name.map_or(0, |name| ATTRIBUTES_BYTES + name);
    EXTENT_BYTES + first + if last { DIGEST_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_of_the_wire_make_a_layout() {
        assert!(Layout::sealed(1 << 10, 0).is_ok());
        assert!(Layout::sealed(1 << 26, MAX_TABLE_BYTES).is_ok());
        for buffer_bytes in [0, 1, 512, 1025, 1 << 27, u32::MAX] {
            assert!(Layout::sealed(buffer_bytes, 8192).is_err(), "{buffer_bytes}");
        }
        assert!(Layout::sealed(1 << 20, MAX_TABLE_BYTES + 1).is_err());
    }

    #[test]
    fn a_table_may_grow_into_a_data_area_that_is_not_full() {
        let layout = Layout::sealed(1024, 100).expect("fine");
        assert!(layout.fits(1024, 96));
        assert!(!layout.fits(1024, 97));
        assert!(layout.fits(0, 1120));
        assert!(!layout.fits(1025, 0));
        assert_eq!(entry_bytes(None, false), 24);
        assert_eq!(entry_bytes(Some(5), true), 24 + 18 + 5 + 32);
    }
}
