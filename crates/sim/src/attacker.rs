//! An attacker on the path. It sees every datagram, holds back none, and adds its own: replays,
//! corrupted copies, and forgeries with every clear field right.
//!
//! It knows no secret. A datagram of it is *stale* when it can carry no news: it is forged, or its
//! original has been delivered, and was not dropped (an end that waits for a connection to open, or
//! was restarted, may accept later what it did not know at first). To stale datagrams the oracle
//! allows no more bytes in answer than they had.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_proto::time::{Instant, nanos};

use crate::check::kind;
use crate::side::{Pair, Side};

/// Datagrams he remembers of each kind of memory.
const MEMORY: usize = 64;
/// Bytes after which connection id and packet number end.
const HEADER_BYTES: usize = 16;

/// How busy the attacker is, and at what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttackerOptions {
    /// Mean time between two attacks.
    pub mean_interval: Duration,
    /// The time after which there are no more attacks.
    pub until: Duration,
    /// Datagrams in one attack, at most.
    pub volley: u32,
    /// The kinds of attack, each as likely as the others.
    pub tricks: Vec<Trick>,
}

/// One kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trick {
    /// A delivered datagram is delivered again.
    Replay,
    /// The datagram that was just sent is delivered at once, ahead of itself.
    Overtake,
    /// The datagram that was just sent is delivered with flipped bits.
    Corrupt,
    /// A header of the connection's, with some packet number, and random bytes for a body.
    ForgeBody,
    /// A handshake packet with the right ids and random proofs.
    ForgeHandshake,
    /// A handshake packet that was seen, from an address of his own.
    Borrow,
    /// Anything seen, from an address of his own.
    Relocate,
    /// Random bytes.
    Noise,
}

impl Trick {
    /// Every kind of attack.
    pub const ALL: [Self; 8] = [
        Self::Replay,
        Self::Overtake,
        Self::Corrupt,
        Self::ForgeBody,
        Self::ForgeHandshake,
        Self::Borrow,
        Self::Relocate,
        Self::Noise,
    ];
}

/// One datagram of the attacker's.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    pub(crate) to: Side,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stale: bool,
}

/// The attacker.
#[derive(Debug)]
pub(crate) struct Attacker {
    options: AttackerOptions,
    rng: Rng,
    next: Instant,
    /// Newest datagrams sent toward each side.
    sent: Pair<VecDeque<Vec<u8>>>,
    /// Newest datagrams delivered at each side.
    delivered: Pair<VecDeque<Vec<u8>>>,
    /// Whether each of these was taken.
    taken: Pair<VecDeque<bool>>,
    /// Newest handshake packets toward each side.
    handshakes: Pair<VecDeque<Vec<u8>>>,
}

impl Attacker {
    pub(crate) fn new(options: AttackerOptions, seed: u64) -> Self {
        Self {
            options,
            rng: Rng::named(seed, "attacker"),
            next: Instant::EPOCH,
            sent: Pair::default(),
            delivered: Pair::default(),
            taken: Pair::default(),
            handshakes: Pair::default(),
        }
    }

    /// When he strikes next.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        let wait = self.rng.exponential(nanos(self.options.mean_interval)).max(1000);
        self.next += Duration::from_nanos(wait);
        (self.next <= Instant::EPOCH + self.options.until).then_some(self.next)
    }

    /// A datagram left `from`.
    pub(crate) fn see(&mut self, from: Side, to: SocketAddr, bytes: &[u8]) {
        // Datagrams to its own address reach it, and need no copy.
        let side = from.other();
        if side.may_be_at(to) {
            remember(&mut self.sent[side], bytes);
        }
        if matches!(bytes.get(3), Some(&(kind::OPEN | kind::RESPONSE | kind::COOKIE))) {
            remember(&mut self.handshakes[side], bytes);
        }
    }

    /// A datagram was delivered at `side`.
    pub(crate) fn arrived(&mut self, side: Side, bytes: &[u8]) {
        remember(&mut self.delivered[side], bytes);
        let taken = &mut self.taken[side];
        taken.push_back(true);
        while taken.len() > self.delivered[side].len() {
            taken.pop_front();
        }
    }

    /// The last datagram that was delivered at `side` was dropped.
    pub(crate) fn dropped(&mut self, side: Side) {
        if let Some(newest) = self.taken[side].back_mut() {
            *newest = false;
        }
    }

    /// He strikes.
    pub(crate) fn act(&mut self) -> Vec<Shot> {
        let shots = self.rng.range(1..=u64::from(self.options.volley.max(1)));
        (0..shots).filter_map(|_| self.shoot()).collect()
    }

    fn shoot(&mut self) -> Option<Shot> {
        let tricks = self.options.tricks.len() as u64;
        let trick = *self.options.tricks.get(self.rng.below(tricks) as usize)?;
        let to = Side::BOTH[self.rng.below(2) as usize];
        let from = to.other().address();
        let shot = |bytes, from, stale| Shot { to, from, bytes, stale };
        Some(match trick {
            Trick::Replay => {
                let at = self.place(self.delivered[to].len())?;
                let bytes = self.delivered[to].get(at)?.clone();
                // An older COOKIE draws an OPEN, and the oracle counts those.
                let cookie = bytes.get(3) == Some(&kind::COOKIE);
                let taken = self.taken[to].get(at).copied().unwrap_or(true);
                shot(bytes, from, taken && !cookie)
            }
            Trick::Overtake => shot(self.pick(|s| &s.sent[to])?, from, false),
            Trick::Corrupt => {
                let mut bytes = self.pick(|s| &s.sent[to])?;
                self.flip(&mut bytes);
                shot(bytes, from, true)
            }
            Trick::ForgeBody => shot(self.forge_body(to)?, from, true),
            Trick::ForgeHandshake => shot(self.forge_handshake(to)?, from, true),
            Trick::Borrow => {
                let bytes = self.pick(|s| &s.handshakes[to])?;
                // A COOKIE that was on its way to the attacker is news to the end that it fits.
                let stale = bytes.get(3) == Some(&kind::OPEN);
                shot(bytes, self.own_address(), stale)
            }
            Trick::Relocate => {
                // The attacker cannot know whether the peer has moved.
                let bytes = self.pick(|s| &s.sent[to])?;
                shot(bytes, self.own_address(), false)
            }
            Trick::Noise => {
                let bytes = self.noise(1500);
                let from = if self.rng.below(2) == 0 { from } else { self.own_address() };
                shot(bytes, from, true)
            }
        })
    }

    /// A random one of those remembered, the newest more often.
    fn pick(&mut self, memory: impl Fn(&Self) -> &VecDeque<Vec<u8>>) -> Option<Vec<u8>> {
        let at = self.place(memory(self).len())?;
        memory(self).get(at).cloned()
    }

    /// A random place among `len`, the last ones more often.
    fn place(&mut self, len: usize) -> Option<usize> {
        let len = len as u64;
        let window = self.rng.range(1..=len.max(1));
        let back = self.rng.below(window.min(len));
        Some(len.checked_sub(1 + back)? as usize)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let bits = 8 * bytes.len() as u64;
        // An odd number of flips cannot undo itself.
        for _ in 0..=2 * self.rng.below(4) {
            let bit = self.rng.below(bits) as usize;
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Every clear field as it should be, or as it will be, and nothing behind it.
    fn forge_body(&mut self, to: Side) -> Option<Vec<u8>> {
        let seen = self.pick(|s| &s.sent[to])?;
        let header: [u8; HEADER_BYTES] = *seen.first_chunk()?;
        let number = u64::from_be_bytes(*header.last_chunk()?);
        let number = match self.rng.below(5) {
            0 => number,
            1 => number.wrapping_add(1 + self.rng.below(1000)),
            2 => number.wrapping_add(1 << 17),
            // A number of the next epoch, and one far away.
            3 => number.wrapping_add(1 << 22),
            _ => self.rng.next_u64(),
        };
        let mut bytes = if self.rng.below(2) == 0 { seen } else { self.noise(1500) };
        bytes.resize(bytes.len().max(HEADER_BYTES + 16), 0);
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes[8..HEADER_BYTES].copy_from_slice(&number.to_be_bytes());
        if self.rng.below(2) == 0 {
            bytes[3] = self.rng.below(1 + u64::from(kind::REPAIR)) as u8;
        }
        let at = self.rng.range(HEADER_BYTES as u64..=bytes.len() as u64 - 1) as usize;
        bytes[at] ^= 1 + self.rng.below(255) as u8;
        Some(bytes)
    }

    /// An OPEN, RESPONSE, COOKIE or REFUSED with the ids that were seen in one.
    fn forge_handshake(&mut self, to: Side) -> Option<Vec<u8>> {
        let known = self.pick(|s| &s.handshakes[to.other()]);
        let ids = known.or_else(|| self.pick(|s| &s.handshakes[to]))?;
        let mut bytes = self.noise(0);
        let (kind, len) = match self.rng.below(4) {
            0 => (kind::OPEN, 1200),
            1 => (kind::RESPONSE, 200),
            2 => (kind::COOKIE, 64),
            _ => (kind::REFUSED, 60),
        };
        bytes.resize(len, 0);
        self.rng.fill(&mut bytes);
        bytes[..HEADER_BYTES].copy_from_slice(ids.first_chunk::<HEADER_BYTES>()?);
        bytes[3] = kind;
        if kind != kind::OPEN {
            // In OPEN the active end's id lies behind; in what answers it, before.
            let from_open = ids[3] == kind::OPEN;
            let id = if from_open { &ids[8..12] } else { &ids[4..8] };
            bytes[4..8].copy_from_slice(id);
        }
        if kind == kind::REFUSED {
            bytes[8..12].fill(0);
            // A length that fits, a reason, and a proof that is none.
            bytes[16..18].copy_from_slice(&26_u16.to_be_bytes());
            bytes[18..44].copy_from_slice(b"forged: go away, go away!!");
            bytes[44..].fill(0);
        }
        Some(bytes)
    }

    fn noise(&mut self, most: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.rng.range(0..=most) as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn own_address(&mut self) -> SocketAddr {
        let host = self.rng.range(1..=40) as u8;
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, host)), 998)
    }
}

fn remember(memory: &mut VecDeque<Vec<u8>>, bytes: &[u8]) {
    let mut space = if memory.len() >= MEMORY { memory.pop_front() } else { None };
    let copy = space.get_or_insert_default();
    copy.clear();
    copy.extend_from_slice(bytes);
    memory.extend(space);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_may_be_news_the_next_time() {
        let options = AttackerOptions {
            mean_interval: Duration::from_millis(1),
            until: Duration::MAX,
            volley: 1,
            tricks: vec![Trick::Replay],
        };
        let mut attacker = Attacker::new(options, 1);
        // More than he remembers, every third of them dropped.
        for n in 0..200 {
            attacker.arrived(Side::Passive, &[n]);
            if n % 3 == 0 {
                attacker.dropped(Side::Passive);
            }
        }
        let shots: Vec<Shot> = (0..200).flat_map(|_| attacker.act()).collect();
        assert!(shots.iter().any(|shot| shot.stale) && shots.iter().any(|shot| !shot.stale));
        assert!(shots.iter().all(|shot| shot.stale == (shot.bytes[0] % 3 != 0)));
    }
}
