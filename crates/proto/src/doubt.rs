//! How much an end says to whoever opened it in plain text, until it knows that it is heard there
//! (`docs/protocol.md §2.3`): anybody can forge an OPEN, and must not draw a flood upon others.

/// So many times the bytes that came from an address go there.
const GENEROSITY: u64 = 3;
/// An IP packet that is not worth halving.
const SHORT: u64 = 64;

/// The books of an address at which somebody may be who hears nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Bytes of IP packets from there and to there.
    came: u64,
    went: u64,
    /// Bytes of headers beneath each packet.
    overhead: u64,
    /// It will soon be known.
    soon: bool,
}

impl Doubt {
    pub(crate) fn new(overhead: u32, soon: bool) -> Self {
        Self { came: 0, went: 0, overhead: u64::from(overhead), soon }
    }

    /// A packet of so many bytes came.
    pub(crate) fn on_came(&mut self, bytes: usize) {
        self.came = self.came.saturating_add(bytes as u64 + self.overhead);
    }

    /// Packets left, of so many bytes together.
    pub(crate) fn on_went(&mut self, bytes: usize, packets: usize) {
        let headers = (packets as u64).saturating_mul(self.overhead);
        self.went = self.went.saturating_add(bytes as u64).saturating_add(headers);
    }

    /// Bytes of IP packets that may leave now.
    pub(crate) fn room(&self) -> u64 {
        self.came.saturating_mul(GENEROSITY).saturating_sub(self.went)
    }

    /// Bytes of the largest datagram that should leave. What comes may be long in coming, and then
    /// half of the rest is kept for repetitions.
    pub(crate) fn largest(&self) -> usize {
        let room = self.room();
        let most = if self.soon { room } else { (room / 2).max(room.min(SHORT)) };
        usize::try_from(most.saturating_sub(self.overhead)).unwrap_or(usize::MAX)
    }

    /// Whether a packet of so many bytes may leave.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        bytes as u64 + self.overhead <= self.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_what_came() {
        let mut doubt = Doubt::new(28, true);
        assert!(!doubt.allows(0));
        doubt.on_came(72);
        doubt.on_went(72, 1);
        assert_eq!((doubt.room(), doubt.allows(172), doubt.allows(173)), (200, true, false));
        doubt.on_went(144, 2);
        assert_eq!(doubt.room(), 0);
    }
}
