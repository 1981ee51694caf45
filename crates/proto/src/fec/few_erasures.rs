//! Decodes or encodes few packets of a buffer, each as a sum over the others (`docs/protocol
//! §6.10`). The result equals that of the transforms of `reed_solomon_simd` to the bit, which cost
//! the same however few packets are wanted. It must not know what packets are for, or which are
//! worth coding.
//!
//! The code gives every packet a point of GF(2^16), in Cantor's basis: the first 2^d points are a
//! subspace, whose polynomial is a shift by d bits there, and has the derivative 1. Repair packets
//! lie within it and the others outside (high rate), or the other way round (low rate). Any packets
//! that are enough determine the rest by Lagrange's formula, and what is in that of the points that
//! are neither lost nor used instead cancels out against the subspace.

use reed_solomon_simd::engine::tables::{self, ExpLog};
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, utils};

/// The code works on pieces of this many bytes.
const PIECE: usize = 64;

/// A piece of a packet in the code's layout: the low bytes of its 32 elements, then the high ones.
type FieldRun = [u8; PIECE];

/// The points of a buffer's packets in the field.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldLayout {
    /// The number of points of the subspace, a power of two.
    within: u32,
    /// Repair packets lie in it.
    high: bool,
}

impl FieldLayout {
    /// The layout of a buffer of `packets` that can have `width` repair packets, a power of two.
    pub(super) fn new(packets: u32, width: u32) -> Self {
        let padded = packets.next_power_of_two();
        let high = padded >= width;
        Self { within: if high { width } else { padded }, high }
    }

    /// The point of packet `index` of the buffer.
    pub(super) fn of_packet(&self, index: u32) -> u16 {
        (if self.high { self.within + index } else { index }) as u16
    }

    /// The point of repair packet `index`.
    pub(super) fn of_repair(&self, index: u32) -> u16 {
        (if self.high { index } else { self.within + index }) as u16
    }
}

/// Computes wanted packets as sums of known ones.
pub(super) struct SparseCombiner<'a> {
    points: FieldLayout,
    logs: &'static ExpLog,
    /// Unknown packets of the buffer, and the repair packets that replace them.
    lost: &'a [u16],
    used: &'a [u16],
    /// The wanted points, each with the logarithm of its own part of the factors.
    wanted: Vec<(u16, u32)>,
    engine: DefaultEngine,
    bytes: usize,
    pieces: usize,
    sums: Vec<FieldRun>,
    known: Vec<FieldRun>,
    product: Vec<FieldRun>,
}

impl<'a> SparseCombiner<'a> {
    /// Sums for `wanted`, in packets of `bytes`; `lost` are unknown, and as many `used` replace
    /// them.
    pub(super) fn new(
        points: FieldLayout,
        wanted: &[u16],
        bytes: usize,
        lost: &'a [u16],
        used: &'a [u16],
    ) -> Self {
        let pieces = bytes.div_ceil(PIECE);
        let mut sums = Self {
            points,
            logs: tables::get_exp_log(),
            lost,
            used,
            wanted: Vec::new(),
            engine: DefaultEngine::new(),
            bytes,
            pieces,
            sums: vec![[0; PIECE]; pieces * wanted.len()],
            known: vec![[0; PIECE]; pieces],
            product: vec![[0; PIECE]; pieces],
        };
        sums.wanted = wanted.iter().map(|point| (*point, sums.own(*point))).collect();
        sums
    }

    /// Adds the known packet at `point`.
    pub(super) fn add(&mut self, point: u16, bytes: &[u8]) {
        spread(bytes, &mut self.known);
        let (own, logs) = (self.own(point), self.logs);
        for ((wanted, others), sum) in self.wanted.iter().zip(self.sums.chunks_mut(self.pieces)) {
            let apart = log(logs, wanted ^ point);
            let factor = (own + 2 * MODULUS - others - apart) % MODULUS;
            self.product.copy_from_slice(&self.known);
            self.engine.mul(&mut self.product, factor as u16);
            utils::xor(sum, &self.product);
        }
    }

    /// The wanted packets in order, once all known ones were added.
    pub(super) fn into_packets(self) -> impl Iterator<Item = Vec<u8>> {
        let Self { sums, pieces, bytes, .. } = self;
        let packets = sums.len() / pieces;
        (0..packets).map(move |n| gather(&sums[n * pieces..][..pieces], bytes))
    }

    /// The logarithm of the part of a factor that is of `point` alone.
    fn own(&self, point: u16) -> u32 {
        let apart = |others: &[u16]| -> u32 {
            let logs = others.iter().filter(|other| **other != point);
            logs.map(|other| log(self.logs, other ^ point))
                .fold(0, |sum, log| (sum + log) % MODULUS)
        };
        let outside = u32::from(point) >> self.points.within.trailing_zeros();
        let shifted = if outside == 0 { 0 } else { log(self.logs, outside as u16) };
        let (more, less) = if self.points.high { (shifted, 0) } else { (0, shifted) };
        (more + apart(self.lost) + 2 * MODULUS - less - apart(self.used)) % MODULUS
    }
}

fn log(logs: &ExpLog, element: u16) -> u32 {
    u32::from(logs.log[usize::from(element)])
}

const MODULUS: u32 = GF_MODULUS as u32;

/// Copies a packet into the code's layout: the halves of a shorter last piece are apart.
fn spread(bytes: &[u8], pieces: &mut [FieldRun]) {
    let (whole, rest) = bytes.as_chunks();
    let (full, last) = pieces.split_at_mut(whole.len().min(pieces.len()));
    full.copy_from_slice(&whole[..full.len()]);
    if let Some(last) = last.first_mut() {
        let (low, high) = rest.split_at(rest.len() / 2);
        *last = [0; PIECE];
        last[..low.len()].copy_from_slice(low);
        last[PIECE / 2..][..high.len()].copy_from_slice(high);
    }
}

/// The inverse, for a packet of `bytes` bytes.
fn gather(pieces: &[FieldRun], bytes: usize) -> Vec<u8> {
    let mut packet = pieces.as_flattened().to_vec();
    let (whole, half) = (bytes - bytes % PIECE, bytes % PIECE / 2);
    if half > 0 {
        let high = whole + PIECE / 2;
        packet.copy_within(high..high + half, whole + half);
    }
    packet.truncate(bytes);
    packet
}
