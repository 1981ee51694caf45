//! The code of repair packets: Reed-Solomon over the packets of one buffer
//! (`docs/protocol §6.10`).
//!
//! Any packets of a buffer, repair packets included, restore it if they are as many as it has. This
//! module knows neither time nor losses. No input of a peer makes it fail: contradictory values
//! give no [`FecBlock`].

mod few_erasures;

use std::collections::BTreeMap;
use std::ops::Range;

use few_erasures::{FieldLayout, SparseCombiner};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::buffer::Geometry;
use crate::units::PacketIndex;

/// The most packets of a buffer that has repair packets: a code over more would cost more than it
/// saves, and memory that grows with it.
const MAX_PACKETS: u32 = 8192;
/// Least number of repair packets of a buffer, however small it is.
const MIN_WIDTH: u32 = 16;
/// Otherwise a buffer has at least this part of its packets.
const WIDTH_PART: u32 = 4;
/// Decoding by transforms costs as much as this many products of packets, or as this many holes in
/// the largest buffers (`docs/decisions/repair.md`).
const DECODING_PRODUCTS: u32 = 8192;
const FEW_HOLES: u32 = 8;

/// When a sender sends repair packets, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FecPolicy {
    /// Nothing.
    #[default]
    Never,
    /// At the end of the transfer as many as keep the last losses from costing a round trip, if
    /// that saves more than it costs.
    Auto,
    /// A fixed percentage, behind every buffer.
    Share(FecPercent),
}

impl FecPolicy {
    /// Builds the tables of the code, 8 MiB in some 20 ms of one processor, unless they exist.
    /// Otherwise the first use builds them, at the end of a transfer.
    pub fn prepare() {
        const PACKET: usize = 64;
        let geometry = Geometry { buffer_bytes: PACKET as u32 * 2, packet_bytes: PACKET as u32 };
        let Some(block) = FecBlock::new(geometry, geometry.buffer_bytes) else { return };
        let mut image = [0; PACKET * 2];
        if let Some(symbol) = block.transform(&image, 0..1) {
            block.restore(&mut image, |index| index > 0, &BTreeMap::from([(0, symbol.into())]));
        }
    }
}

/// Repair packets as a percentage of the packets of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u8", into = "u8"))]
pub struct FecPercent(u8);

impl TryFrom<u8> for FecPercent {
    type Error = &'static str;

    /// [`FecPercent::percent`].
    fn try_from(percent: u8) -> Result<Self, Self::Error> {
        Self::percent(percent).ok_or("a percentage of repair packets is out of range")
    }
}

impl From<FecPercent> for u8 {
    fn from(percent: FecPercent) -> Self {
        percent.as_percent()
    }
}

impl FecPercent {
    /// The largest percentage that the code supports for every buffer.
    pub const MAX: u8 = 100 / WIDTH_PART as u8;

    /// A percentage; `None` for 0, and for more than [`Self::MAX`].
    pub fn percent(percent: u8) -> Option<Self> {
        (1..=Self::MAX).contains(&percent).then_some(Self(percent))
    }

    /// The percentage.
    pub fn as_percent(self) -> u8 {
        self.0
    }

    /// Repair packets of a buffer of `packets`, at least one.
    pub(crate) fn of(self, packets: u32) -> u32 {
        packets.saturating_mul(u32::from(self.0)).div_ceil(100)
    }
}

/// A buffer as a source block of the code (RFC 5052).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FecBlock {
    geometry: Geometry,
    image_bytes: u32,
    packets: u32,
    symbol_bytes: u32,
}

impl FecBlock {
    /// A block of `image_bytes`, cut by `geometry`. `None` if it has no repair packets: it has too
    /// many packets, or packets of an odd number of bytes.
    pub(crate) fn new(geometry: Geometry, image_bytes: u32) -> Option<Self> {
        let packets = geometry.packets(image_bytes as usize);
        let even = image_bytes.checked_next_multiple_of(2)?.max(2);
        let symbol_bytes = geometry.packet_bytes.min(even);
        let fits = image_bytes <= geometry.buffer_bytes && packets <= MAX_PACKETS;
        let coded = fits && symbol_bytes.is_multiple_of(2) && symbol_bytes > 0;
        coded.then_some(Self { geometry, image_bytes, packets, symbol_bytes })
    }

    /// How many packets the buffer has.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Bytes of its image.
    pub(crate) fn image_bytes(&self) -> u32 {
        self.image_bytes
    }

    /// Bytes in each repair packet.
    pub(crate) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes as usize
    }

    /// How many repair packets it can have; their indexes are below that.
    pub(crate) fn width(&self) -> u32 {
        self.packets.div_ceil(WIDTH_PART).next_power_of_two().max(MIN_WIDTH)
    }

    /// The range of packet `index` in the image.
    pub(crate) fn range(&self, index: u32) -> Range<usize> {
        self.geometry.range(PacketIndex(index), self.image_bytes as usize)
    }

    /// Encodes the repair packets `wanted` of `image`, concatenated.
    pub(crate) fn encode(&self, image: &[u8], wanted: Range<u32>) -> Option<Vec<u8>> {
        // The transforms cost as much as this many sums, whatever the number.
        match wanted.len() as u32 <= self.width().ilog2() / 2 {
            true => self.sum_up(image, wanted),
            false => self.transform(image, wanted),
        }
    }

    fn sum_up(&self, image: &[u8], wanted: Range<u32>) -> Option<Vec<u8>> {
        let points = FieldLayout::new(self.packets, self.width());
        let wanted: Vec<u16> = wanted.map(|index| points.of_repair(index)).collect();
        let mut sums = SparseCombiner::new(points, &wanted, self.symbol_bytes(), &[], &[]);
        let mut short = vec![0; self.symbol_bytes()];
        for index in 0..self.packets {
            sums.add(points.of_packet(index), self.shard(image, index, &mut short)?);
        }
        Some(sums.into_packets().flatten().collect())
    }

    fn transform(&self, image: &[u8], wanted: Range<u32>) -> Option<Vec<u8>> {
        let (packets, width) = (self.packets as usize, self.width() as usize);
        let mut encoder = ReedSolomonEncoder::new(packets, width, self.symbol_bytes()).ok()?;
        let mut short = vec![0; self.symbol_bytes()];
        for index in 0..self.packets {
            encoder.add_original_shard(self.shard(image, index, &mut short)?).ok()?;
        }
        let coded = encoder.encode().ok()?;
        let mut symbols = Vec::with_capacity(wanted.len() * self.symbol_bytes());
        for index in wanted {
            symbols.extend_from_slice(coded.recovery(index as usize)?);
        }
        Some(symbols)
    }

    /// Restores the missing packets of `image` from repair packets by their indexes; `is_here`
    /// tells which packets it has. False, and nothing changed, if there are too few.
    pub(crate) fn decode(
        &self,
        image: &mut [u8],
        is_here: impl Fn(u32) -> bool,
        repairs: &BTreeMap<u32, Box<[u8]>>,
    ) -> bool {
        let holes: Vec<u32> = (0..self.packets).filter(|index| !is_here(*index)).collect();
        let most = (DECODING_PRODUCTS / self.packets).max(FEW_HOLES);
        let restored = match holes.len() as u32 <= most {
            true => self.fill(image, &holes, repairs),
            false => self.restore(image, is_here, repairs),
        };
        restored.is_some()
    }

    /// Restores the packets `holes`, if there are as many repair packets.
    fn fill(
        &self,
        image: &mut [u8],
        holes: &[u32],
        repairs: &BTreeMap<u32, Box<[u8]>>,
    ) -> Option<()> {
        let points = FieldLayout::new(self.packets, self.width());
        let lost: Vec<u16> = holes.iter().map(|index| points.of_packet(*index)).collect();
        let mut used: Vec<u16> = repairs.keys().map(|index| points.of_repair(*index)).collect();
        used.truncate(lost.len());
        if used.len() < lost.len() {
            return None;
        }
        let mut sums = SparseCombiner::new(points, &lost, self.symbol_bytes(), &lost, &used);
        let mut short = vec![0; self.symbol_bytes()];
        let mut next = holes.iter().peekable();
        for index in 0..self.packets {
            if next.next_if(|hole| **hole == index).is_none() {
                sums.add(points.of_packet(index), self.shard(image, index, &mut short)?);
            }
        }
        for (point, symbol) in used.iter().zip(repairs.values()) {
            sums.add(*point, symbol);
        }
        for (index, symbol) in holes.iter().zip(sums.into_packets()) {
            let place = image.get_mut(self.range(*index))?;
            place.copy_from_slice(symbol.get(..place.len())?);
        }
        Some(())
    }

    fn restore(
        &self,
        image: &mut [u8],
        is_here: impl Fn(u32) -> bool,
        repairs: &BTreeMap<u32, Box<[u8]>>,
    ) -> Option<()> {
        let (packets, width) = (self.packets as usize, self.width() as usize);
        let mut decoder = ReedSolomonDecoder::new(packets, width, self.symbol_bytes()).ok()?;
        let mut short = vec![0; self.symbol_bytes()];
        for index in (0..self.packets).filter(|index| is_here(*index)) {
            let shard = self.shard(image, index, &mut short)?;
            decoder.add_original_shard(index as usize, shard).ok()?;
        }
        for (index, symbol) in repairs {
            decoder.add_recovery_shard(*index as usize, symbol).ok()?;
        }
        let decoded = decoder.decode().ok()?;
        for index in (0..self.packets).filter(|index| !is_here(*index)) {
            let symbol = decoded.restored_original(index as usize)?;
            let place = image.get_mut(self.range(index))?;
            place.copy_from_slice(symbol.get(..place.len())?);
        }
        Some(())
    }

    /// Packet `index` of `image`, the last one padded with zeros.
    fn shard<'a>(&self, image: &'a [u8], index: u32, short: &'a mut [u8]) -> Option<&'a [u8]> {
        let bytes = image.get(self.range(index))?;
        if bytes.len() == self.symbol_bytes() {
            return Some(bytes);
        }
        short.fill(0);
        short.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image(len: usize) -> Vec<u8> {
        let mut dice = 88_172_645_463_325_252_u64;
        let mut next = || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn block(len: u32, packet_bytes: u32) -> FecBlock {
        FecBlock::new(Geometry { buffer_bytes: 1 << 20, packet_bytes }, len).expect("it is coded")
    }

    #[test]
    fn encoding_works_after_prepare() {
        FecPolicy::prepare();
        let (block, image) = (block(5000, 100), image(5000));
        let symbol = block.encode(&image, 7..8).unwrap();
        let mut here = image.clone();
        here[block.range(3)].fill(0);
        assert!(block.decode(&mut here, |n| n != 3, &BTreeMap::from([(7, symbol.into())])));
        assert_eq!(here, image);
    }

    proptest! {
        #[test]
        fn any_packets_as_many_as_a_buffer_has_restore_it(
            len in 0_u32..5000,
            half in 1_u32..300,
            lost in proptest::collection::btree_set(any::<u16>(), 0..20),
            first in 0_u32..8,
        ) {
            let block = block(len, half * 2);
            let image = image(len as usize);
            let lost: Vec<u32> =
                lost.iter().map(|n| u32::from(*n) % block.packets()).collect();
            let holes = (0..block.packets()).filter(|n| lost.contains(n)).count() as u32;
            prop_assume!(first + holes <= block.width());
            let symbols = block.encode(&image, first..first + holes).unwrap();
            let numbered = (first..).zip(symbols.chunks(block.symbol_bytes()).map(Box::from));
            let mut repairs: BTreeMap<u32, Box<[u8]>> = numbered.collect();
            let mut here = image.clone();
            lost.iter().for_each(|n| here[block.range(*n)].fill(0xee));
            let damaged = here.clone();
            prop_assert!(block.decode(&mut here, |n| !lost.contains(&n), &repairs));
            prop_assert_eq!(&here, &image);
            if repairs.pop_first().is_some() {
                let mut here = damaged.clone();
                prop_assert!(!block.decode(&mut here, |n| !lost.contains(&n), &repairs));
                prop_assert_eq!(here, damaged, "one too few: nothing changes");
            }
        }
    }

    /// Another code, perhaps of another version of the crate, would be another wire format.
    #[test]
    fn the_code_gives_the_known_repair_packets() {
        let mut coded = blake3::Hasher::new();
        for (len, packet_bytes) in [(1, 200), (700, 200), (100_000, 200), (1 << 20, 1424)] {
            let block = block(len, packet_bytes);
            coded.update(&block.encode(&image(len as usize), 0..block.width()).unwrap());
        }
        assert_eq!(
            coded.finalize().to_hex().as_str(),
            "b1a2b165d75b5a45696c0f7b465c2207508a766affded2485c5af9c763b76574"
        );
    }

    /// `count` packets spread over `of`.
    fn spaced(count: u32, of: u32, from: u32) -> Vec<u32> {
        let mut taken: Vec<u32> = (0..count).map(|n| (from + n * of / count) % of).collect();
        taken.sort_unstable();
        taken
    }

    #[test]
    fn sums_and_transforms_give_the_same_code() {
        for packets in [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 65, 200, 513] {
            for bytes in [2, 6, 62, 64, 66, 126, 1424] {
                let block = block(packets * bytes - bytes / 2, bytes);
                let image = image(block.image_bytes() as usize);
                let width = block.width();
                for count in [1, 2, 5, 16, width].map(|n| n.min(packets).min(width)) {
                    let first = (width - count) / 2;
                    let wanted = first..first + count;
                    let symbols = block.sum_up(&image, wanted.clone()).unwrap();
                    assert_eq!(symbols, block.transform(&image, wanted.clone()).unwrap());
                    let symbols = symbols.chunks(block.symbol_bytes()).map(Box::from);
                    let repairs: BTreeMap<u32, Box<[u8]>> = wanted.zip(symbols).collect();
                    for lost in [0, 1, packets - 1].map(|from| spaced(count, packets, from)) {
                        let mut damaged = image.clone();
                        lost.iter().for_each(|n| damaged[block.range(*n)].fill(0xee));
                        let mut other = damaged.clone();
                        block.fill(&mut damaged, &lost, &repairs).unwrap();
                        let is_here = |n| lost.binary_search(&n).is_err();
                        block.restore(&mut other, is_here, &repairs).unwrap();
                        assert!(damaged == image && other == image, "{packets} {bytes} {lost:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_beyond_the_bounds_have_no_repair_packets() {
        let geometry = |packet_bytes| Geometry { buffer_bytes: 1 << 24, packet_bytes };
        assert!(FecBlock::new(geometry(128), 128 * MAX_PACKETS).is_some());
        assert!(FecBlock::new(geometry(128), 128 * MAX_PACKETS + 1).is_none(), "too many packets");
        assert!(FecBlock::new(geometry(1001), 5000).is_none(), "odd packets");
        assert!(FecBlock::new(geometry(1000), (1 << 24) + 1).is_none(), "longer than a buffer");
        assert!(FecBlock::new(geometry(1000), u32::MAX).is_none());
        assert_eq!(block(3, 1001).symbol_bytes(), 4, "one short packet has a short symbol");
        let share = FecPercent::percent(FecPercent::MAX).unwrap();
        for packets in (1..=MAX_PACKETS).step_by(7) {
            let block = block(packets * 128, 128);
            assert!(share.of(packets) <= block.width(), "{packets}");
        }
        assert_eq!(
            (FecPercent::percent(0), FecPercent::percent(FecPercent::MAX + 1)),
            (None, None)
        );
    }
}
