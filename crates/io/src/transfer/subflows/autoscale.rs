//! Chooses the number of subflows by the gain of the last ones. A busy loop beside idle processors
//! shows that another subflow may help, and not that it does
//! (`docs/decisions/parallel-streams.md`).

use std::time::Duration;

use super::cpu_watch::WINDOW;

/// The possible gain of new subflows is that of the processors that they add. Where they brought
/// this share of it, there may be more. Where they brought less than the second share, they are
/// closed: the limit is something else, which keeps processors busy as well (memory, one queue of a
/// card), or processors that seemed idle are not this machine's to use.
const BROUGHT: f64 = 0.25;
const WORTH: f64 = 0.05;
/// Traffic that is this much faster than at the look before is growing by itself. That must not be
/// taken for the gain of a subflow.
const GROWS: f64 = 1.1;
/// The gain is judged this many looks after all subflows are open, and as many round trips later:
/// it takes some until the rate is at its level.
const LOOKS: u32 = 4;
const ROUND_TRIPS: u32 = 16;
/// Subflows that are not open after this many times that are not judged, and given up: the path may
/// not let other ports through.
const PATIENCE: u32 = 4;
/// The looks until the next trial. After each failure it is twice as many.
const REST: u32 = 20;

/// The state of trials.
#[derive(Debug)]
pub(super) struct Autoscale {
    under: Option<Trial>,
    /// The rate by the last look.
    before: f64,
    /// Looks until the next trial is allowed, and the next pause.
    rest: u32,
    next: u32,
}

/// New subflows whose gain is not known yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// There were, the main connection among them.
    subflows: usize,
    more: usize,
    /// The rate before.
    moved: f64,
    /// Looks since they were to be opened, and since all were open.
    waited: u32,
    looks: u32,
    /// After how many of the latter it is judged.
    enough: u32,
}

/// The values of one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The number of subflows, and how many more there is reason and room for.
    pub(super) subflows: usize,
    pub(super) more: usize,
    /// All of them are open.
    pub(super) open: bool,
    /// Bytes that arrive in a second.
    pub(super) moved: f64,
    /// The path's smallest round trip.
    pub(super) rtt: Duration,
}

/// The advice of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Stay,
    /// Open so many more.
    Open(usize),
    /// No more than these.
    Back(usize),
}

impl Default for Autoscale {
    fn default() -> Self {
        Self { under: None, before: 0.0, rest: 0, next: REST }
    }
}

impl Autoscale {
    /// The advice of one look.
    pub(super) fn advise(&mut self, sight: Observation) -> Advice {
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
                return if worthless { Advice::Back(trial.subflows) } else { Advice::Stay };
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
            subflows: sight.subflows,
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
    /// The rate if they brought this share of the possible gain.
    fn hoped(&self, share: f64) -> f64 {
        self.moved * (1.0 + share * self.more as f64 / self.subflows.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::ZERO;

    /// The advice and the number of subflows at each look, with a rate that depends on the look and
    /// the number of open subflows, and subflows that open by the next look if they can.
    fn advised(
        looks: usize,
        rtt: Duration,
        can: bool,
        speed: impl Fn(usize, usize) -> f64,
    ) -> Vec<(usize, usize)> {
        let (mut autoscale, mut changes) = (Autoscale::default(), Vec::new());
        let (mut subflows, mut open) = (1, 1);
        for look in 0..looks {
            let (moved, more) = (speed(look, open), subflows.min(8 - subflows));
            let sight = Observation { subflows, more, open: open == subflows, moved, rtt };
            open = if can { subflows } else { 1 };
            match autoscale.advise(sight) {
                Advice::Stay => continue,
                Advice::Open(more) => subflows += more,
                Advice::Back(to) => (subflows, open) = (to, open.min(to)),
            }
            changes.push((look, subflows));
        }
        changes
    }

    #[test]
    fn subflows_with_a_gain_are_followed_by_more() {
        let all = advised(40, SHORT, true, |_, subflows| subflows as f64);
        assert_eq!(all, [(1, 2), (4, 4), (7, 8)]);
        // Four processors' worth of whatever else it is.
        let bounded = advised(40, SHORT, true, |_, subflows| subflows.min(4) as f64);
        assert_eq!(bounded[..4], [(1, 2), (4, 4), (7, 8), (12, 4)], "{bounded:?}");
    }

    #[test]
    fn subflows_without_a_gain_are_closed_and_retried_ever_more_rarely() {
        let there_and_back = [(1, 2), (6, 1), (26, 2), (31, 1), (71, 2), (76, 1)];
        for speed in [|_, _| 1.0, |_, subflows| 1.0 / subflows as f64] {
            assert_eq!(advised(100, SHORT, true, speed), there_and_back);
        }
        // On a path of 600 ms they are given ten seconds more.
        let long = advised(40, Duration::from_millis(600), true, |_, _| 1.0);
        assert_eq!(long, [(1, 2), (26, 1)]);
    }

    #[test]
    fn subflows_with_a_small_gain_stay_and_are_the_last_for_a_time() {
        // The path takes no more.
        let speed = |_, subflows: usize| (subflows as f64).min(1.1);
        assert_eq!(advised(30, SHORT, true, speed), [(1, 2), (26, 4)]);
    }

    #[test]
    fn a_rate_that_grows_by_itself_is_no_gain_of_a_subflow() {
        // As startup does, for four seconds.
        let grows = |look: usize, _| 1.2f64.powi(look.min(8) as i32);
        assert_eq!(advised(20, SHORT, true, grows), [(9, 2), (14, 1)]);
        // One good moment is none, either.
        let once = |look: usize, _| if look == 4 { 2.0 } else { 1.0 };
        assert_eq!(advised(20, SHORT, true, once), [(1, 2), (6, 1)]);
    }

    #[test]
    fn subflows_that_do_not_open_are_given_up_and_not_judged() {
        // The rate has doubled meanwhile, without them.
        let speed = |look: usize, _| if look < 4 { 1.0 } else { 2.0 };
        assert_eq!(advised(30, SHORT, false, speed), [(1, 2), (17, 1)]);
    }
}
