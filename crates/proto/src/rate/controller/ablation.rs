//! A controller without one of its parts, to measure what the part brings (`rate-matrix
//! --ablation`). Without the feature `ablation` every part is there, and this compiles to nothing.

#[cfg(feature = "ablation")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A part of the controller that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The probe that ends a start, and makes looks cheap.
    Probe,
    /// The excuse of losses that a start saw.
    Presumption,
    /// The excuse of losses at a low delay.
    LowDelay,
    /// The test whether losses answer to the rate.
    ResponseTest,
    /// The window that keeps a short queue.
    ShortQueue,
    /// The verdict on a queue that stands while losses reduce the window.
    ForeignQueue,
    /// The measurement of the smallest round trip with less in flight.
    Reconfirm,
    /// The looks whether the path carries more.
    Looks,
    /// The start that goes on after a queue which was not its own.
    NotFull,
    /// What the way back adds, taken off the round trip.
    WayBack,
    /// The dispersion of losses: all count as independent.
    Dispersion,
}

impl Part {
    /// All of them, in the order of a start and what follows it.
    pub const ALL: [Self; 11] = [
        Self::Probe,
        Self::Presumption,
        Self::NotFull,
        Self::LowDelay,
        Self::ResponseTest,
        Self::Dispersion,
        Self::ShortQueue,
        Self::Reconfirm,
        Self::ForeignQueue,
        Self::Looks,
        Self::WayBack,
    ];

    /// What it is called in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Presumption => "presumed losses of a start",
            Self::LowDelay => "low-delay excuse",
            Self::ResponseTest => "response test",
            Self::ShortQueue => "short queue",
            Self::ForeignQueue => "foreign queue",
            Self::Reconfirm => "reconfirm",
            Self::Looks => "looks",
            Self::NotFull => "start that goes on",
            Self::WayBack => "way back",
            Self::Dispersion => "dispersion",
        }
    }
}

#[cfg(feature = "ablation")]
static LEFT_OUT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Every controller of this process is without `part` from now on, or with all of them.
#[cfg(feature = "ablation")]
pub fn leave_out(part: Option<Part>) {
    LEFT_OUT.store(part.map_or(usize::MAX, |part| part as usize), Ordering::Relaxed);
}

/// Whether controllers are without `part`.
#[cfg(feature = "ablation")]
pub(super) fn is_left_out(part: Part) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) == part as usize
}

/// Every part is there.
#[cfg(not(feature = "ablation"))]
pub(super) const fn is_left_out(_part: Part) -> bool {
    false
}
