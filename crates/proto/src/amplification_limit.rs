//! The anti-amplification limit of a passive end on `rfc998` (RFC 9000 §8.1, `docs/protocol
//! §2.3`). An attacker can forge the source address of an OPEN, and must not draw a flood to it.
//! Until the address is validated, at most three times the received bytes go there.

/// Bytes sent to an unvalidated address, as a multiple of the bytes received from it.
const FACTOR: u64 = 3;
/// With coin-tossing the multiple is 18/7. A blind attacker guesses three coins right with
/// probability 1/8 and doubles his limit each time. The series adds one sixth, which brings the
/// mean back to 3.
const COIN_FACTOR: (u64, u64) = (FACTOR * 6, 7);
/// Bytes of an IP packet for which no room is kept back.
const SHORT_PACKET_BYTES: u64 = 64;
/// Coins guessed right in a row that double the limit.
const COINS_PER_DOUBLING: u32 = 3;
/// Coins guessed right in a row that validate the address. A blind attacker needs some ten million
/// tries.
const COINS_FOR_VALIDATION: u32 = 24;

/// Byte counts of a peer address that is not validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmplificationLimit {
    /// Bytes of IP packets sent, and bytes received up to the last wrong guess.
    sent: u64,
    before: u64,
    /// Bytes received since, counted once, and with their present multiple.
    since: u64,
    multiplied: u64,
    /// Coins guessed right since.
    right: u32,
    /// Bytes sent on the credit of right guesses before the last wrong one. They stay allowed.
    forgiven: u64,
    /// Value of `sent` when a packet other than a KEEPALIVE left last.
    sent_at_last_other: u64,
    /// Bytes of IP and UDP header on each packet.
    overhead: u64,
    /// The address will be validated soon.
    soon: bool,
    /// Coins decide which packets leave.
    by_coins: bool,
}

impl AmplificationLimit {
    pub(crate) fn new(overhead: u32, soon: bool) -> Self {
        let overhead = u64::from(overhead);
        let (sent, before, since, multiplied, right, forgiven, sent_at_last_other) =
            (0, 0, 0, 0, 0, 0, 0);
        let by_coins = false;
        Self {
            sent,
            before,
            since,
            multiplied,
            right,
            forgiven,
            sent_at_last_other,
            overhead,
            soon,
            by_coins,
        }
    }

    /// Coins decide which packets leave from now on.
    pub(crate) fn use_coins(&mut self) {
        self.by_coins = true;
    }

    /// A packet of `bytes` bytes arrived.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        let bytes = bytes as u64 + self.overhead;
        self.since = self.since.saturating_add(bytes);
        self.multiplied = self.multiplied.saturating_add(bytes);
    }

    /// Packets left, of `bytes` bytes in all.
    pub(crate) fn on_sent_bytes(&mut self, bytes: usize, packets: usize) {
        let headers = (packets as u64).saturating_mul(self.overhead);
        self.sent = self.sent.saturating_add(bytes as u64).saturating_add(headers);
    }

    /// The peer guessed `coins` coins right. Returns whether that validates the address. Only
    /// bytes received until now are doubled: else an attacker who was lucky once could multiply the
    /// gain by sending more.
    pub(crate) fn on_right(&mut self, coins: u32) -> bool {
        let before = self.right / COINS_PER_DOUBLING;
        self.right = self.right.saturating_add(coins).min(COINS_FOR_VALIDATION);
        self.multiplied =
            self.multiplied.saturating_mul(1 << (self.right / COINS_PER_DOUBLING - before));
        self.right >= COINS_FOR_VALIDATION
    }

    /// The peer guessed a coin wrong: the count restarts, and the bytes received until now count
    /// once. Bytes already sent beyond that are not owed: the peer may be true and have named only
    /// a part of the packets it lacks.
    pub(crate) fn on_wrong(&mut self) {
        self.before = self.before.saturating_add(self.since);
        (self.since, self.multiplied, self.right) = (0, 0, 0);
        self.forgiven = self.forgiven.max(self.sent.saturating_sub(self.times(self.before)));
    }

    /// Bytes of IP packets that may leave now.
    pub(crate) fn room(&self) -> u64 {
        self.limit().saturating_sub(self.sent)
    }

    /// Bytes of IP packets that may be sent in all.
    fn limit(&self) -> u64 {
        self.times(self.before.saturating_add(self.multiplied)).saturating_add(self.forgiven)
    }

    /// The limit that follows from `bytes` received.
    fn times(&self, bytes: u64) -> u64 {
        let (times, of) = if self.by_coins { COIN_FACTOR } else { (FACTOR, 1) };
        bytes.saturating_mul(times) / of
    }

    /// Bytes of the largest datagram that should leave. The next packet of the peer may be far off,
    /// so half of the room is kept for repetitions.
    pub(crate) fn largest(&self) -> usize {
        let room = self.room();
        let most = if self.soon { room } else { (room / 2).max(room.min(SHORT_PACKET_BYTES)) };
        usize::try_from(most.saturating_sub(self.overhead)).unwrap_or(usize::MAX)
    }

    /// A packet other than a KEEPALIVE left.
    pub(crate) fn on_others(&mut self) {
        self.sent_at_last_other = self.sent;
    }

    /// Whether a KEEPALIVE of `bytes` bytes may leave while another packet waits for room.
    /// KEEPALIVEs get at most half of the room since another packet left. Otherwise a peer that
    /// makes little room would get nothing else.
    pub(crate) fn keeps_alive(&self, bytes: usize) -> bool {
        let kept = self.sent - self.sent_at_last_other + bytes as u64 + self.overhead;
        kept <= self.limit().saturating_sub(self.sent_at_last_other) / 2
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
    fn the_limit_is_three_times_the_received_bytes() {
        let mut limit = AmplificationLimit::new(28, true);
        assert!(!limit.allows(0));
        limit.on_received(72);
        limit.on_sent_bytes(72, 1);
        assert_eq!((limit.room(), limit.allows(172), limit.allows(173)), (200, true, false));
        limit.on_sent_bytes(144, 2);
        assert_eq!(limit.room(), 0);
    }

    #[test]
    fn keepalives_get_half_of_the_room_while_other_packets_wait() {
        let mut limit = AmplificationLimit::new(28, true);
        let said = |limit: &mut AmplificationLimit| {
            let mut said = 0;
            while limit.keeps_alive(12) {
                limit.on_sent_bytes(12, 1);
                said += 1;
            }
            said
        };
        limit.on_received(92);
        assert_eq!((said(&mut limit), limit.room()), (4, 200));
        limit.on_received(0);
        assert_eq!((said(&mut limit), limit.room()), (1, 244), "half of what 28 bytes make");
        limit.on_sent_bytes(216, 1);
        limit.on_others();
        assert_eq!((said(&mut limit), limit.room()), (0, 0));
        limit.on_received(0);
        assert_eq!((said(&mut limit), limit.room()), (1, 44));
    }

    #[test]
    fn blind_guesses_draw_three_times_the_received_bytes_in_the_mean() {
        let mut limit = AmplificationLimit::new(0, false);
        limit.use_coins();
        limit.on_received(700);
        // Each doubling is an eighth as likely as the one before.
        let mut mean = 0.0;
        for doublings in 0..(COINS_FOR_VALIDATION / COINS_PER_DOUBLING) as i32 {
            let more = limit.room() as f64 * (7.0 / 8.0) / 8.0_f64.powi(doublings);
            mean += more;
            limit.on_right(COINS_PER_DOUBLING);
        }
        assert!((2099.0..2100.0).contains(&mean), "{mean}");
    }

    /// An attacker who guessed right gains nothing by sending more: bytes after a guess count once.
    #[test]
    fn sending_more_after_a_lucky_guess_draws_no_more_than_three_times() {
        for lucky in 0..(COINS_FOR_VALIDATION / COINS_PER_DOUBLING) as i32 {
            for more in [700, 700_000] {
                let (mut came, mut drawn) = (0.0, 0.0);
                for doublings in 0..(COINS_FOR_VALIDATION / COINS_PER_DOUBLING) as i32 {
                    let chance = 7.0 / 8.0 / 8.0_f64.powi(doublings);
                    let mut limit = AmplificationLimit::new(0, false);
                    limit.use_coins();
                    let mut said = 700;
                    limit.on_received(700);
                    for doubled in 0..=doublings {
                        if doubled == lucky {
                            limit.on_received(more);
                            said += more;
                        }
                        if doubled < doublings {
                            limit.on_right(COINS_PER_DOUBLING);
                        }
                    }
                    limit.on_sent_bytes(limit.room() as usize, 0);
                    limit.on_wrong();
                    assert_eq!(limit.room(), 0);
                    came += chance * said as f64;
                    drawn += chance * limit.sent as f64;
                }
                assert!(drawn <= came * 3.0, "{more} after {lucky}: {drawn} for {came}");
            }
        }
    }

    #[test]
    fn three_right_guesses_double_the_limit_and_a_wrong_one_restarts_the_count() {
        let mut limit = AmplificationLimit::new(0, true);
        limit.on_received(100);
        let rooms = [300, 300, 300, 600, 600, 600, 1200].map(|room| {
            assert_eq!(limit.room(), room);
            assert!(!limit.on_right(1));
            room
        });
        limit.on_sent_bytes(rooms[6] as usize - 100, 1);
        limit.on_wrong();
        assert_eq!(limit.room(), 0, "what was not used of what was doubled is gone");
        limit.on_received(100);
        assert_eq!(limit.room(), 300, "and nothing is owed");
        limit.on_wrong();
        assert_eq!(limit.room(), 300, "what came makes room for as much whatever is called");
        assert!(!limit.on_right(COINS_FOR_VALIDATION - 1) && limit.on_right(1));
    }
}
