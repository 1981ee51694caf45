//! How much an end says to whoever opened it in plain text, until it knows that it is heard there
//! (`docs/protocol.md §2.3`): anybody can forge an OPEN, and must not draw a flood upon others.

/// So many times the bytes that came from an address go there.
const GENEROSITY: u64 = 3;
/// And a seventh less where tosses decide what goes: of those who call them blindly every eighth
/// doubles it, and so on, so that all of them together get a sixth more than that.
const TOSSED: (u64, u64) = (GENEROSITY * 6, 7);
/// An IP packet that is not worth halving.
const SHORT: u64 = 64;
/// So many tosses called right in a row double what may go there.
const TOSSES: u32 = 3;
/// So many are proof: who calls blindly pays for some ten million tries.
const PROOF: u32 = 24;

/// The books of an address at which somebody may be who hears nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Bytes of IP packets to there, and from there until a toss was called wrong last.
    went: u64,
    before: u64,
    /// Those that came since, once, and as often as they count now.
    since: u64,
    row: u64,
    /// Tosses called right since.
    right: u32,
    /// Bytes that went, and had room only while a row of right ones lasted that is over.
    beyond: u64,
    /// What had gone when something else than KEEPALIVEs left last.
    others: u64,
    /// Bytes of headers beneath each packet.
    overhead: u64,
    /// It will soon be known.
    soon: bool,
    /// What goes there is tossed for.
    tossed: bool,
}

impl Doubt {
    pub(crate) fn new(overhead: u32, soon: bool) -> Self {
        let overhead = u64::from(overhead);
        let (went, before, since, row, right, beyond, others) = (0, 0, 0, 0, 0, 0, 0);
        let tossed = false;
        Self { went, before, since, row, right, beyond, others, overhead, soon, tossed }
    }

    /// Tosses decide what goes there.
    pub(crate) fn toss(&mut self) {
        self.tossed = true;
    }

    /// A packet of so many bytes came.
    pub(crate) fn on_came(&mut self, bytes: usize) {
        let bytes = bytes as u64 + self.overhead;
        self.since = self.since.saturating_add(bytes);
        self.row = self.row.saturating_add(bytes);
    }

    /// Packets left, of so many bytes together.
    pub(crate) fn on_went(&mut self, bytes: usize, packets: usize) {
        let headers = (packets as u64).saturating_mul(self.overhead);
        self.went = self.went.saturating_add(bytes as u64).saturating_add(headers);
    }

    /// So many tosses were called right. Whether that is proof enough. What came until now is
    /// doubled, and not what comes later: who was lucky once could have that as often as he likes.
    pub(crate) fn on_right(&mut self, tosses: u32) -> bool {
        let before = self.right / TOSSES;
        self.right = self.right.saturating_add(tosses).min(PROOF);
        self.row = self.row.saturating_mul(1 << (self.right / TOSSES - before));
        self.right >= PROOF
    }

    /// A toss was called wrong: whoever it is, he begins anew, and what came until now counts once.
    /// What went beyond that is no debt: he may hear, and have named some of what he lacks.
    pub(crate) fn on_wrong(&mut self) {
        self.before = self.before.saturating_add(self.since);
        (self.since, self.row, self.right) = (0, 0, 0);
        self.beyond = self.beyond.max(self.went.saturating_sub(self.times(self.before)));
    }

    /// Bytes of IP packets that may leave now.
    pub(crate) fn room(&self) -> u64 {
        self.most().saturating_sub(self.went)
    }

    /// Bytes of IP packets that may go there in all.
    fn most(&self) -> u64 {
        self.times(self.before.saturating_add(self.row)).saturating_add(self.beyond)
    }

    /// The room that so many bytes make.
    fn times(&self, bytes: u64) -> u64 {
        let (times, of) = if self.tossed { TOSSED } else { (GENEROSITY, 1) };
        bytes.saturating_mul(times) / of
    }

    /// Bytes of the largest datagram that should leave. What comes may be long in coming, and then
    /// half of the rest is kept for repetitions.
    pub(crate) fn largest(&self) -> usize {
        let room = self.room();
        let most = if self.soon { room } else { (room / 2).max(room.min(SHORT)) };
        usize::try_from(most.saturating_sub(self.overhead)).unwrap_or(usize::MAX)
    }

    /// What left was more than a KEEPALIVE.
    pub(crate) fn on_others(&mut self) {
        self.others = self.went;
    }

    /// Whether a KEEPALIVE of so many bytes may leave although something else waits for room. Of
    /// what there is since something else left they have half at most: or who makes little room
    /// would only ever hear that this end lives.
    pub(crate) fn keeps_alive(&self, bytes: usize) -> bool {
        let kept = self.went - self.others + bytes as u64 + self.overhead;
        kept <= self.most().saturating_sub(self.others) / 2
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

    /// Nor may who was lucky say the more for it: what he says from then on counts once.
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
