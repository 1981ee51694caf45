//! Decisions out of a fuzzer's bytes.

/// Reads decisions off the front of bytes; when they are used up every decision is 0.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Decides by `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A decision between yes and no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number of two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of `choices`.
    pub fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[usize::from(self.byte()) % N]
    }

    /// An index below `len`, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        let wide = if len > 256 { usize::from(self.short()) } else { usize::from(self.byte()) };
        wide % len
    }

    /// Whether there is nothing left to decide by.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that was not read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
