//! What a controller does, and the table that says what it does next.

use super::cause::Cause;
use super::congestion::Congestion;
use super::hystart::{Growth, HyStart};
use crate::rate::cubic::BETA;

/// What is left of a window after a mark in congestion avoidance (RFC 8511 §3.1, for CUBIC). A
/// queue that marks is shorter than one that overflows.
const BETA_ECN: f64 = 0.85;

/// What the controller does; each mode owns the data that only it needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// The window doubles every round trip (RFC 9438 §4.10, RFC 9406).
    SlowStart(HyStart),
    /// Until what was in flight at a congestion event is reported (RFC 9002 §7.3.2).
    Recovery,
    /// The window grows by CUBIC's curve (RFC 9438 §4.2).
    Avoidance,
}

impl Mode {
    /// Its name in a trace.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::SlowStart(_) => "slow_start",
            Self::Recovery => "recovery",
            Self::Avoidance => "avoidance",
        }
    }
}

/// What was seen, in order of priority: the first that holds decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Evidence {
    /// No report for several round trips.
    Silence,
    /// Congestion that is not answered yet.
    Congestion(Congestion),
    /// All that was in flight at the last event is reported.
    Recovered,
    /// HyStart++ found the path full.
    PathFull,
    /// Packets arrived, and the window was used.
    Acknowledged(Growth),
    /// Packets arrived, and the window was not used.
    Unused,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// The window falls to a packet, and slow start begins again up to half of it.
    Collapse,
    /// The window falls to this share of itself.
    Reduce(Cause, f64),
    /// Slow start is over; the window stays.
    EndSlowStart,
    /// The window grows by so much of what was acknowledged.
    GrowInSlowStart(f64),
    /// The window grows by CUBIC's curve.
    GrowInAvoidance,
    /// Recovery is over; the window stays.
    EndRecovery,
    /// The window stays, and its curve begins again when it is used.
    Hold,
    /// The window stays.
    Keep,
}

/// The decision table.
pub(super) fn decide(mode: &Mode, evidence: Evidence) -> Action {
    match (mode, evidence) {
        (_, Evidence::Silence) => Action::Collapse,
        (_, Evidence::Congestion(Congestion::Loss)) => Action::Reduce(Cause::Loss, BETA),
        // "in slow start [...] the window reduction [...] as for loss" (RFC 8511 §3.1).
        (Mode::SlowStart(_), Evidence::Congestion(Congestion::Mark)) => {
            Action::Reduce(Cause::Mark, BETA)
        }
        (_, Evidence::Congestion(Congestion::Mark)) => Action::Reduce(Cause::Mark, BETA_ECN),
        (Mode::Recovery, Evidence::Recovered) => Action::EndRecovery,
        (Mode::SlowStart(_), Evidence::PathFull) => Action::EndSlowStart,
        (Mode::SlowStart(_), Evidence::Acknowledged(Growth::Goes(share))) => {
            Action::GrowInSlowStart(share)
        }
        (Mode::Avoidance, Evidence::Acknowledged(_)) => Action::GrowInAvoidance,
        (Mode::Avoidance, Evidence::Unused) => Action::Hold,
        (Mode::SlowStart(_) | Mode::Avoidance, Evidence::Recovered)
        | (Mode::SlowStart(_), Evidence::Acknowledged(Growth::Ends) | Evidence::Unused)
        | (Mode::Recovery | Mode::Avoidance, Evidence::PathFull)
        | (Mode::Recovery, Evidence::Acknowledged(_) | Evidence::Unused) => Action::Keep,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn every_mode_answers_every_evidence() {
        let modes = [Mode::SlowStart(HyStart::default()), Mode::Recovery, Mode::Avoidance];
        let evidence = [
            Evidence::Silence,
            Evidence::Congestion(Congestion::Loss),
            Evidence::Congestion(Congestion::Mark),
            Evidence::Recovered,
            Evidence::PathFull,
            Evidence::Acknowledged(Growth::Goes(1.0)),
            Evidence::Acknowledged(Growth::Goes(0.25)),
            Evidence::Unused,
        ];
        let mut table = String::new();
        for mode in &modes {
            for seen in evidence {
                let action = decide(mode, seen);
                let _ = writeln!(table, "{:10}  {seen:?} -> {action:?}", mode.name());
            }
        }
        insta::assert_snapshot!("controller_decisions", table);
    }
}
