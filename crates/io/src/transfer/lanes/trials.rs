//! How many lanes there are to be, by what the last ones brought: a busy loop beside processors
//! that are idle says that another lane may help, and not that it does (`docs/decisions/lanes.md`).

use std::time::Duration;

use super::watch::WINDOW;

/// What new lanes could bring is as much again for each processor more. Where they brought this
/// share of it, there may be more; where they brought less than the second, they are closed: what
/// limits is something else, which keeps processors busy as well (memory, one queue of a card), or
/// what seemed idle is not this machine's to have.
const BROUGHT: f64 = 0.25;
const WORTH: f64 = 0.05;
/// What moves more than so much faster than by the look before is growing by itself, which must not
/// be taken for what a lane brings.
const GROWS: f64 = 1.1;
/// So many looks after all of them are open that is judged, and so many round trips later: it takes
/// some until the rate is what it can be.
const LOOKS: u32 = 4;
const ROUND_TRIPS: u32 = 16;
/// What is not open after so many times that is not judged, and given up: the way may not let other
/// ports through.
const PATIENCE: u32 = 4;
/// So many looks later it is tried again, the next time after twice as many.
const REST: u32 = 20;

/// What was tried, and what came of it.
#[derive(Debug)]
pub(super) struct Trials {
    under: Option<Trial>,
    /// What moved by the last look.
    before: f64,
    /// Looks until there may be another trial, and from that one to the next.
    rest: u32,
    next: u32,
}

/// Lanes of which it is not known yet whether they are of use.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// There were, the main connection among them.
    lanes: usize,
    more: usize,
    /// What moved before.
    moved: f64,
    /// Looks since they were to be opened, and since all were.
    waited: u32,
    looks: u32,
    /// After how many of the latter it is judged.
    enough: u32,
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// How many lanes there are to be by now, and how many more there is reason and room for.
    pub(super) lanes: usize,
    pub(super) more: usize,
    /// All that there are to be are open.
    pub(super) open: bool,
    /// Bytes that arrive in a second.
    pub(super) moved: f64,
    /// The path's smallest round trip.
    pub(super) rtt: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Stay,
    /// So many more.
    Open(usize),
    /// No more than these.
    Back(usize),
}

impl Default for Trials {
    fn default() -> Self {
        Self { under: None, before: 0.0, rest: 0, next: REST }
    }
}

impl Trials {
    /// Of one look.
    pub(super) fn advise(&mut self, sight: Sight) -> Advice {
        let (moved, before) = (sight.moved, std::mem::replace(&mut self.before, sight.moved));
        if let Some(trial) = &mut self.under {
            trial.waited = trial.waited.saturating_add(1);
            trial.looks += u32::from(sight.open);
            let trial = *trial;
            let lost = trial.waited >= trial.enough.saturating_mul(PATIENCE);
            // Twice in turn: once may be chance.
            if trial.looks >= 2 && moved.min(before) >= trial.hoped(BROUGHT) {
                self.under = None;
            } else if trial.looks >= trial.enough || lost {
                self.under = None;
                (self.rest, self.next) = (self.next, self.next.saturating_mul(2));
                let worthless = lost || moved.max(before) < trial.hoped(WORTH);
                return if worthless { Advice::Back(trial.lanes) } else { Advice::Stay };
            } else {
                return Advice::Stay;
            }
        }
        self.rest = self.rest.saturating_sub(1);
        if sight.more == 0 || self.rest > 0 || moved > before * GROWS {
            return Advice::Stay;
        }
        let later = sight.rtt.saturating_mul(ROUND_TRIPS).div_duration_f64(WINDOW).ceil() as u32;
        self.under = Some(Trial {
            lanes: sight.lanes,
            more: sight.more,
            moved: moved.max(before),
            waited: 0,
            looks: 0,
            enough: LOOKS.saturating_add(later),
        });
        Advice::Open(sight.more)
    }
}

impl Trial {
    /// What is to move if they brought this share of what they could.
    fn hoped(&self, share: f64) -> f64 {
        self.moved * (1.0 + share * self.more as f64 / self.lanes.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::ZERO;

    /// What is advised at each look, where this moves by the look and the number of lanes that are
    /// open, and lanes open by the next look if they can: by look, how many there are then.
    fn advised(
        looks: usize,
        (rtt, can): (Duration, bool),
        speed: impl Fn(usize, usize) -> f64,
    ) -> Vec<(usize, usize)> {
        let (mut trials, mut changes) = (Trials::default(), Vec::new());
        let (mut lanes, mut open) = (1, 1);
        for look in 0..looks {
            let (moved, more) = (speed(look, open), lanes.min(8 - lanes));
            let sight = Sight { lanes, more, open: open == lanes, moved, rtt };
            open = if can { lanes } else { 1 };
            match trials.advise(sight) {
                Advice::Stay => continue,
                Advice::Open(more) => lanes += more,
                Advice::Back(to) => (lanes, open) = (to, open.min(to)),
            }
            changes.push((look, lanes));
        }
        changes
    }

    #[test]
    fn lanes_that_bring_something_are_followed_by_more() {
        let all = advised(40, (SHORT, true), |_, lanes| lanes as f64);
        assert_eq!(all, [(1, 2), (4, 4), (7, 8)]);
        // Four processors' worth of whatever else it is.
        let bounded = advised(40, (SHORT, true), |_, lanes| lanes.min(4) as f64);
        assert_eq!(bounded[..4], [(1, 2), (4, 4), (7, 8), (12, 4)], "{bounded:?}");
    }

    #[test]
    fn lanes_that_bring_nothing_are_closed_and_tried_again_ever_more_rarely() {
        let there_and_back = [(1, 2), (6, 1), (26, 2), (31, 1), (71, 2), (76, 1)];
        for speed in [|_, _| 1.0, |_, lanes| 1.0 / lanes as f64] {
            assert_eq!(advised(100, (SHORT, true), speed), there_and_back);
        }
        // On a path of 600 ms they are given ten seconds more.
        let long = advised(40, (Duration::from_millis(600), true), |_, _| 1.0);
        assert_eq!(long, [(1, 2), (26, 1)]);
    }

    #[test]
    fn lanes_that_bring_a_little_stay_and_are_the_last_for_that_time() {
        // The path takes no more.
        let speed = |_, lanes: usize| (lanes as f64).min(1.1);
        assert_eq!(advised(30, (SHORT, true), speed), [(1, 2), (26, 4)]);
    }

    #[test]
    fn what_grows_by_itself_is_no_lanes_doing() {
        // As startup does, for four seconds.
        let grows = |look: usize, _| 1.2f64.powi(look.min(8) as i32);
        assert_eq!(advised(20, (SHORT, true), grows), [(9, 2), (14, 1)]);
        // One good moment is none, either.
        let once = |look: usize, _| if look == 4 { 2.0 } else { 1.0 };
        assert_eq!(advised(20, (SHORT, true), once), [(1, 2), (6, 1)]);
    }

    #[test]
    fn lanes_that_do_not_open_are_given_up_and_not_judged() {
        // What moves has doubled meanwhile, without them.
        let speed = |look: usize, _| if look < 4 { 1.0 } else { 2.0 };
        assert_eq!(advised(30, (SHORT, false), speed), [(1, 2), (17, 1)]);
    }
}
