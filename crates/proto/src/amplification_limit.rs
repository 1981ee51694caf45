//! The anti-amplification limit of a passive end on `rfc998` (RFC 9000 §8.1, `docs/protocol.md
//! §2.3`). An attacker can forge the source address of an OPEN, and must not draw a flood to it.
//! Until the address is validated, at most three times the received bytes go there.

/// Bytes sent to an unvalidated address, as a multiple of the bytes received from it.
const GENEROSITY: u64 = 3;
/// With coin-tossing the multiple is 18/7. A blind attacker guesses three coins right with
/// probability 1/8 and doubles his limit each time. The series adds one sixth, which brings the
/// mean back to 3.
const TOSSED: (u64, u64) = (GENEROSITY * 6, 7);
/// Bytes of an IP packet for which no room is kept back.
const SHORT: u64 = 64;
/// Coins guessed right in a row that double the limit.
const TOSSES: u32 = 3;
/// Coins guessed right in a row that validate the address. A blind attacker needs some ten million
/// tries.
const PROOF: u32 = 24;

/// Byte counts of a peer address that is not validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Bytes of IP packets sent, and bytes received up to the last wrong guess.
    went: u64,
    before: u64,
    /// Bytes received since, counted once, and with their present multiple.
    since: u64,
    row: u64,
    /// Coins guessed right since.
    right: u32,
    /// Bytes sent on the credit of right guesses before the last wrong one. They stay allowed.
    beyond: u64,
    /// Value of `sent` when a packet other than a KEEPALIVE left last.
    others: u64,
    /// Bytes of IP and UDP header on each packet.
    overhead: u64,
    /// The address will be validated soon.
    soon: bool,
    /// Coins decide which packets leave.
    tossed: bool,
}

impl Doubt {
    pub(crate) fn new(overhead: u32, soon: bool) -> Self {
        let overhead = u64::from(overhead);
        let (went, before, since, row, right, beyond, others) = (0, 0, 0, 0, 0, 0, 0);
        let tossed = false;
        Self { went, before, since, row, right, beyond, others, overhead, soon, tossed }
    }

    /// Coins decide which packets leave from now on.
    pub(crate) fn toss(&mut self) {
        self.tossed = true;
    }

    /// A packet of `bytes` bytes arrived.
    pub(crate) fn on_came(&mut self, bytes: usize) {
        let bytes = bytes as u64 + self.overhead;
        self.since = self.since.saturating_add(bytes);
        self.row = self.row.saturating_add(bytes);
    }

    /// Packets left, of `bytes` bytes in all.
    pub(crate) fn on_went(&mut self, bytes: usize, packets: usize) {
        let headers = (packets as u64).saturating_mul(self.overhead);
        self.went = self.went.saturating_add(bytes as u64).saturating_add(headers);
    }

    /// The peer guessed `tosses` coins right. Returns whether that validates the address. Only
    /// bytes received until now are doubled: else an attacker who was lucky once could multiply the
    /// gain by sending more.
    pub(crate) fn on_right(&mut self, tosses: u32) -> bool {
        let before = self.right / TOSSES;
        self.right = self.right.saturating_add(tosses).min(PROOF);
        self.row = self.row.saturating_mul(1 << (self.right / TOSSES - before));
        self.right >= PROOF
    }

    /// The peer guessed a coin wrong: the count restarts, and the bytes received until now count
    /// once. Bytes already sent beyond that are not owed: the peer may be true and have named only
    /// a part of the packets it lacks.
    pub(crate) fn on_wrong(&mut self) {
        self.before = self.before.saturating_add(self.since);
        (self.since, self.row, self.right) = (0, 0, 0);
        self.beyond = self.beyond.max(self.went.saturating_sub(self.times(self.before)));
    }

    /// Bytes of IP packets that may leave now.
    pub(crate) fn room(&self) -> u64 {
        self.most().saturating_sub(self.went)
    }

    /// Bytes of IP packets that may be sent in all.
    fn most(&self) -> u64 {
        self.times(self.before.saturating_add(self.row)).saturating_add(self.beyond)
    }

    /// The limit that follows from `bytes` received.
    fn times(&self, bytes: u64) -> u64 {
        let (times, of) = if self.tossed { TOSSED } else { (GENEROSITY, 1) };
        bytes.saturating_mul(times) / of
    }

    /// Bytes of the largest datagram that should leave. The next packet of the peer may be far off,
    /// so half of the room is kept for repetitions.
    pub(crate) fn largest(&self) -> usize {
        let room = self.room();
        let most = if self.soon { room } else { (room / 2).max(room.min(SHORT)) };
        usize::try_from(most.saturating_sub(self.overhead)).unwrap_or(usize::MAX)
    }

    /// A packet other than a KEEPALIVE left.
    pub(crate) fn on_others(&mut self) {
        self.others = self.went;
    }

    /// Whether a KEEPALIVE of `bytes` bytes may leave while another packet waits for room.
    /// KEEPALIVEs get at most half of the room since another packet left. Otherwise a peer that
    /// makes little room would get nothing else.
    pub(crate) fn keeps_alive(&self, bytes: usize) -> bool {
        let kept = self.went - self.others + bytes as u64 + self.overhead;
        kept <= self.most().saturating_sub(self.others) / 2
    }

    /// Whether a packet of `bytes` bytes may leave.
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

    #[test]
    fn keepalives_have_half_of_the_room_where_others_wait_for_it() {
        let mut doubt = Doubt::new(28, true);
        let said = |doubt: &mut Doubt| {
            let mut said = 0;
            while doubt.keeps_alive(12) {
                doubt.on_went(12, 1);
                said += 1;
            }
            said
        };
        doubt.on_came(92);
        assert_eq!((said(&mut doubt), doubt.room()), (4, 200));
        doubt.on_came(0);
        assert_eq!((said(&mut doubt), doubt.room()), (1, 244), "half of what 28 bytes make");
        doubt.on_went(216, 1);
        doubt.on_others();
        assert_eq!((said(&mut doubt), doubt.room()), (0, 0));
        doubt.on_came(0);
        assert_eq!((said(&mut doubt), doubt.room()), (1, 44));
    }

    #[test]
    fn blind_calls_draw_three_times_what_came_and_no_more() {
        let mut doubt = Doubt::new(0, false);
        doubt.toss();
        doubt.on_came(700);
        // Each doubling is an eighth as likely as the one before.
        let mut mean = 0.0;
        for doublings in 0..(PROOF / TOSSES) as i32 {
            let more = doubt.room() as f64 * (7.0 / 8.0) / 8.0_f64.powi(doublings);
            mean += more;
            doubt.on_right(TOSSES);
        }
        assert!((2099.0..2100.0).contains(&mean), "{mean}");
    }

    /// An attacker who guessed right gains nothing by sending more: bytes after a guess count once.
    #[test]
    fn who_speaks_more_when_he_was_lucky_draws_three_times_what_came_and_no_more() {
        for lucky in 0..(PROOF / TOSSES) as i32 {
            for more in [700, 700_000] {
                let (mut came, mut drawn) = (0.0, 0.0);
                for doublings in 0..(PROOF / TOSSES) as i32 {
                    let chance = 7.0 / 8.0 / 8.0_f64.powi(doublings);
                    let mut doubt = Doubt::new(0, false);
                    doubt.toss();
                    let mut said = 700;
                    doubt.on_came(700);
                    for doubled in 0..=doublings {
                        if doubled == lucky {
                            doubt.on_came(more);
                            said += more;
                        }
                        if doubled < doublings {
                            doubt.on_right(TOSSES);
                        }
                    }
                    doubt.on_went(doubt.room() as usize, 0);
                    doubt.on_wrong();
                    assert_eq!(doubt.room(), 0);
                    came += chance * said as f64;
                    drawn += chance * doubt.went as f64;
                }
                assert!(drawn <= came * 3.0, "{more} after {lucky}: {drawn} for {came}");
            }
        }
    }

    #[test]
    fn three_tosses_double_it_and_a_wrong_one_begins_anew() {
        let mut doubt = Doubt::new(0, true);
        doubt.on_came(100);
        let rooms = [300, 300, 300, 600, 600, 600, 1200].map(|room| {
            assert_eq!(doubt.room(), room);
            assert!(!doubt.on_right(1));
            room
        });
        doubt.on_went(rooms[6] as usize - 100, 1);
        doubt.on_wrong();
        assert_eq!(doubt.room(), 0, "what was not used of what was doubled is gone");
        doubt.on_came(100);
        assert_eq!(doubt.room(), 300, "and nobody pays for what was");
        doubt.on_wrong();
        assert_eq!(doubt.room(), 300, "what came makes room for as much whatever is called");
        assert!(!doubt.on_right(PROOF - 1) && doubt.on_right(1));
    }
}
