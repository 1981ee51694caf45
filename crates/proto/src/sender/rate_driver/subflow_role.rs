//! The role of a sender among subflows: the main connection's rate law decides for all
//! (`docs/protocol §6.11`).
//!
//! Inputs: the counters of all subflows, or the share that the main connection gives this one.
//! Output: the sender's own part of the pacing.

use crate::rate::subflows::{SubflowAllocator, SubflowShare, SubflowTally};
use crate::rate::{Pacing, Sample, burst_for};
use crate::time::Instant;

/// The subflow role of a sender.
#[derive(Clone, Debug, Default)]
pub(super) enum SubflowRole {
    /// A transfer without subflows.
    #[default]
    Alone,
    /// The main connection: its rate law decides for all subflows.
    Leads(SubflowAllocator),
    /// A subflow: the main connection sets its share.
    Led(SubflowShare),
}

impl SubflowRole {
    /// From now on the rate law decides for `own` and these subflows, alive or not.
    /// It asks for `pacing` with packets of `packet_bytes`, and `tries` for more.
    pub(super) fn lead(
        &mut self,
        now: Instant,
        own: SubflowTally,
        subflows: &[SubflowTally],
        pacing: &Pacing,
        packet_bytes: u64,
        tries: bool,
    ) {
        let mut lead = match std::mem::take(self) {
            Self::Leads(lead) => lead,
            Self::Alone | Self::Led(_) => SubflowAllocator::default(),
        };
        lead.on_counts(now, (own, subflows), (pacing, packet_bytes), tries);
        *self = Self::Leads(lead);
    }

    /// The share of the subflow at `at` of the last list.
    pub(super) fn share(&self, at: usize, pacing: &Pacing, packet_bytes: u64) -> SubflowShare {
        match self {
            Self::Leads(lead) => lead.share(at, pacing, packet_bytes),
            Self::Alone | Self::Led(_) => SubflowShare::default(),
        }
    }

    /// Bytes delivered over the other subflows, if this is the main connection.
    pub(super) fn delivered_beside(&self) -> u64 {
        match self {
            Self::Leads(lead) => lead.delivered_beside(),
            Self::Alone | Self::Led(_) => 0,
        }
    }

    /// A sample over all subflows that the law decides for.
    pub(super) fn whole(&self, own: Sample) -> Sample {
        match self {
            Self::Leads(lead) => lead.whole(own),
            Self::Alone | Self::Led(_) => own,
        }
    }

    /// The sender's own part of the `pacing` that the law decides for all, with packets of
    /// `packet_bytes`.
    pub(super) fn own(&self, pacing: Pacing, packet_bytes: u32) -> Pacing {
        match self {
            Self::Alone => pacing,
            Self::Leads(lead) => lead.own(pacing),
            Self::Led(share) => {
                let burst = burst_for(share.rate, packet_bytes);
                Pacing { burst, cap_bytes: share.cap_bytes, ..pacing }
            }
        }
    }
}
