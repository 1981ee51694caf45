//! The events: what the network, time and the clients do to a conversation.
//!
//! On `rfc998` nothing is authentic, so there the harm is what its checksums must catch: a change
//! within one 16-bit word that its sum can tell (all zeros and all ones are the same to it), and
//! not in the words which say what the sum covers.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::Ecn;
use netblt_proto::config::Wire;

use super::super::bytes::Bytes;
use super::{BAG, Flying, RECEIVER, SENDER, World, addresses};

/// Steps of a path without faults that one event may stand for.
const MAX_RUN: u8 = 64;
/// Words of an `rfc998` packet that are left alone: version and type, length.
const FIRST_MUTABLE_WORD: usize = 3;
/// Bytes of DATA that its header's checksum covers.
const DATA_HEADER: usize = 24;
const CHECKSUM_WORD: usize = 0;

impl World {
    /// The next event.
    pub(super) fn event(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 32 {
            0..=4 => self.arrive(bytes, addresses),
            5 => self
                .arrive(bytes, || [([198, 51, 100, 7], 7).into(), ([198, 51, 100, 8], 8).into()]),
            6 => drop(self.take(bytes)),
            7 => self.duplicate(bytes),
            8 | 9 => self.corrupt(bytes),
            10 => self.resize(bytes),
            11 => self.forge(bytes),
            12 => self.replay(bytes),
            13..=15 => self.tick(),
            16 => self.wait(bytes),
            17 | 18 => self.client(SENDER, bytes),
            19 | 20 => self.client(RECEIVER, bytes),
            21 => self.lose_all(bytes),
            22 => self.bag.make_contiguous().reverse(),
            23 => self.give_up(bytes),
            24 => self.say_unreachable(bytes),
            25 => self.restart(),
            26 => self.misuse(bytes),
            _ => self.run_undisturbed(bytes.byte()),
        }
        while self.bag.len() > BAG {
            self.bag.pop_front();
        }
    }

    fn take(&mut self, bytes: &mut Bytes<'_>) -> Option<Flying> {
        if self.bag.is_empty() {
            return None;
        }
        let at = bytes.index(self.bag.len());
        self.bag.remove(at)
    }

    /// A datagram arrives, from where `sources` say.
    fn arrive(&mut self, bytes: &mut Bytes<'_>, sources: impl Fn() -> [SocketAddr; 2]) {
        let marked = bytes.byte();
        let Some(flying) = self.take(bytes) else { return };
        let mut from = sources()[1 - flying.to];
        if self.common.setup.wire == Wire::Rfc998 && !self.common.setup.hostile {
            // Any address may take the connection there.
            from = addresses()[1 - flying.to];
        }
        let ecn = [None, Some(Ecn::Ect0), Some(Ecn::Ce)][usize::from(marked % 3)];
        self.deliver(&flying, from, ecn);
    }

    fn duplicate(&mut self, bytes: &mut Bytes<'_>) {
        let Some(flying) = self.take(bytes) else { return };
        self.bag.push_back(Flying { again: true, ..flying.clone() });
        self.deliver(&flying, addresses()[1 - flying.to], None);
    }

    fn replay(&mut self, bytes: &mut Bytes<'_>) {
        if self.memory.is_empty() {
            return;
        }
        let flying = self.memory[bytes.index(self.memory.len())].clone();
        self.deliver(&flying, addresses()[1 - flying.to], None);
    }

    /// Changes a datagram, which stays in flight.
    fn corrupt(&mut self, bytes: &mut Bytes<'_>) {
        let Some(mut flying) = self.take(bytes) else { return };
        if self.common.setup.wire == Wire::Sealed || self.common.setup.hostile {
            for _ in 0..=bytes.byte() % 4 {
                let at = bytes.index(flying.bytes.len());
                let change = bytes.byte().max(1);
                flying.bytes[at] ^= change;
                flying.touched = true;
            }
        } else if !flying.touched {
            let covered = self.covered_words(&flying.bytes);
            let choices = covered - FIRST_MUTABLE_WORD + 1;
            let at = match bytes.index(choices) {
                0 => CHECKSUM_WORD,
                n => FIRST_MUTABLE_WORD + n - 1,
            };
            let word = &mut flying.bytes[2 * at..2 * at + 2];
            let old = u16::from_be_bytes([word[0], word[1]]);
            let new = old ^ bytes.short().max(1);
            if !matches!((old, new), (0, u16::MAX) | (u16::MAX, 0)) {
                word.copy_from_slice(&new.to_be_bytes());
                flying.touched = true;
            }
        }
        self.bag.push_back(flying);
    }

    /// How many words of an `rfc998` datagram a checksum covers.
    fn covered_words(&self, datagram: &[u8]) -> usize {
        let data = matches!(datagram.get(3), Some(6 | 7));
        let headers_only = data && !self.common.setup.data_are_checksummed();
        if headers_only { DATA_HEADER / 2 } else { datagram.len() / 2 }
    }

    /// Cuts bytes off a datagram, or adds some.
    fn resize(&mut self, bytes: &mut Bytes<'_>) {
        let Some(mut flying) = self.take(bytes) else { return };
        let len = flying.bytes.len();
        let (longer, by) = (bytes.flag(), usize::from(bytes.byte()));
        // What was cut off and replaced is more than a checksum must catch.
        if self.common.setup.wire == Wire::Sealed || !flying.touched {
            flying.bytes.resize(if longer { len + by } else { len.saturating_sub(1 + by) }, 0x5a);
            // The `rfc998` wire has a length of its own: what is behind it does not matter.
            flying.touched |= self.common.setup.wire == Wire::Sealed || !longer;
        }
        if flying.bytes.is_empty() {
            let none = Flying { touched: true, ..flying };
            return self.deliver(&none, addresses()[1 - none.to], None);
        }
        self.bag.push_back(flying);
    }

    /// A datagram that begins like a true one.
    fn forge(&mut self, bytes: &mut Bytes<'_>) {
        let known = self.memory.len() + self.bag.len();
        if known == 0 {
            return;
        }
        let at = bytes.index(known);
        let model = self.memory.get(at).or_else(|| self.bag.get(at - self.memory.len()));
        let Some(mut forged) = model.cloned() else { return };
        (forged.touched, forged.again) = (true, true);
        match (self.common.setup.wire, self.common.setup.hostile) {
            (Wire::Sealed, _) => forge_sealed(&mut forged.bytes, bytes),
            (Wire::Rfc998, true) => forge_plain(&mut forged.bytes, bytes),
            // Of other ports: not for this connection, whatever it says.
            (Wire::Rfc998, false) => {
                let Some(port) = forged.bytes.get_mut(6..8) else { return };
                port.copy_from_slice(&[0xfe, bytes.byte()]);
                let kind = bytes.byte() % 12;
                if matches!(kind, 0 | 1) {
                    return;
                }
                forged.bytes[3] = kind;
                sum_up(&mut forged.bytes);
            }
        }
        self.deliver(&forged, addresses()[1 - forged.to], None);
    }

    fn tick(&mut self) {
        if let Some(next) = self.next_timeout() {
            self.advance_to(next);
        }
    }

    fn wait(&mut self, bytes: &mut Bytes<'_>) {
        let micros = bytes.pick([1, 100, 1_000, 20_000, 300_000, 1_500_000, 4_000_000, 60_000_000]);
        self.advance_to(self.now + Duration::from_micros(micros));
    }

    fn client(&mut self, at: usize, bytes: &mut Bytes<'_>) {
        let (now, side) = (self.now, &mut self.sides[at]);
        match bytes.byte() % 4 {
            0 => side.end(now),
            1 => side.judge(now, &self.common.setup),
            _ => side.supply(now, &self.common) || side.offer(now),
        };
        self.turn(at);
    }

    /// A client that does not keep to its part.
    fn misuse(&mut self, bytes: &mut Bytes<'_>) {
        let (at, how) = (usize::from(bytes.flag()), bytes.byte());
        self.sides[at].offer_nonsense(self.now, u64::from(how % 8));
        self.turn(at);
    }

    fn lose_all(&mut self, bytes: &mut Bytes<'_>) {
        let to = usize::from(bytes.flag());
        self.bag.retain(|flying| flying.to != to);
    }

    fn give_up(&mut self, bytes: &mut Bytes<'_>) {
        let (at, why) = (usize::from(bytes.flag()), bytes.byte());
        // Rare, or few conversations would see their end.
        if why & 3 != 0 {
            return;
        }
        self.excuses.quit = true;
        self.sides[at].give_up(self.now, &"größer\0".repeat(usize::from(why)));
        self.turn(at);
    }

    fn say_unreachable(&mut self, bytes: &mut Bytes<'_>) {
        let (at, often) = (usize::from(bytes.flag()), bytes.byte());
        if often & 3 != 0 {
            return;
        }
        self.excuses.unreachable = true;
        let quote = self.sides[at].last_sent.clone();
        self.sides[at].endpoint.handle_unreachable(self.now, &quote);
        self.turn(at);
    }

    /// For a while nothing goes wrong.
    fn run_undisturbed(&mut self, steps: u8) {
        for _ in 0..=steps % MAX_RUN {
            match self.bag.pop_front() {
                Some(flying) => {
                    self.advance_to(self.now + Duration::from_micros(500));
                    self.deliver(&flying, addresses()[1 - flying.to], None);
                }
                None => self.tick(),
            }
        }
    }
}

/// Another number, perhaps another type, and a body that no end sealed.
fn forge_sealed(datagram: &mut Vec<u8>, bytes: &mut Bytes<'_>) {
    if let Some(number) = datagram.get_mut(8..16) {
        let mut wide = 0_u64.to_be_bytes();
        wide.copy_from_slice(number);
        let ahead = [0, 1, 2, 1 << 17, 1 << 22, 1 << 23, 1 << 40, u64::MAX / 2];
        let wide = u64::from_be_bytes(wide).wrapping_add(bytes.pick(ahead));
        number.copy_from_slice(&wide.to_be_bytes());
    }
    if let Some(kind) = datagram.get_mut(3).filter(|_| bytes.flag()) {
        *kind = bytes.byte() % 17;
    }
    let len = datagram.len();
    let start = len.min([16, 32, 18, 48][usize::from(bytes.byte() % 4)]);
    let fill = bytes.byte();
    for (at, byte) in datagram[start..].iter_mut().enumerate() {
        *byte = fill.wrapping_add(at as u8).wrapping_mul(167);
    }
    datagram.truncate(start + bytes.index(len - start + 1));
}

/// Some words changed, and sums that hold.
fn forge_plain(datagram: &mut [u8], bytes: &mut Bytes<'_>) {
    for _ in 0..=bytes.byte() % 4 {
        let at = bytes.index(datagram.len());
        datagram[at] = bytes.byte();
    }
    if let Some(version) = datagram.get_mut(2) {
        *version = 2;
    }
    sum_up(datagram);
}

/// Makes length and checksums right.
fn sum_up(datagram: &mut [u8]) {
    let len = datagram.len();
    if len < 12 {
        return;
    }
    datagram[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    let data = matches!(datagram[3], 6 | 7) && len >= DATA_HEADER;
    if data {
        let sum = checksum(&datagram[DATA_HEADER..]);
        datagram[20..22].copy_from_slice(&sum);
    }
    datagram[..2].fill(0);
    let sum = checksum(if data { &datagram[..DATA_HEADER] } else { datagram });
    datagram[..2].copy_from_slice(&sum);
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
