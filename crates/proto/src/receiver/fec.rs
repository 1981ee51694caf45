//! The repair packets of one incomplete buffer (`docs/protocol §6.10`).
//!
//! Inputs: symbols of one block. They are stored until they and the buffer's packets are enough to
//! restore the others.

use std::collections::BTreeMap;

use crate::fec::FecBlock;

/// Repair packets of an incomplete buffer, too few to restore it.
#[derive(Debug)]
pub(super) struct StoredSymbols {
    block: FecBlock,
    symbols: BTreeMap<u32, Box<[u8]>>,
}

impl StoredSymbols {
    pub(super) fn new(block: FecBlock) -> Self {
        Self { block, symbols: BTreeMap::new() }
    }

    /// The block that they belong to.
    pub(super) fn block(&self) -> FecBlock {
        self.block
    }

    /// Stores symbol `index`.
    pub(super) fn insert(&mut self, index: u32, symbol: &[u8]) {
        self.symbols.insert(index, symbol.into());
    }

    /// Whether symbol `index` is stored.
    pub(super) fn has(&self, index: u32) -> bool {
        self.symbols.contains_key(&index)
    }

    /// Bytes of the stored symbols.
    pub(super) fn bytes(&self) -> usize {
        self.symbols.len() * self.block.symbol_bytes()
    }

    /// Whether they and `received` packets of the buffer are enough to restore the others.
    pub(super) fn are_enough(&self, received: u32) -> bool {
        received + self.symbols.len() as u32 >= self.block.packets()
    }

    /// Restores in `image` the packets that are not here. False if that fails.
    pub(super) fn decode(&self, image: &mut [u8], is_here: impl Fn(u32) -> bool) -> bool {
        self.block.decode(image, is_here, &self.symbols)
    }
}
