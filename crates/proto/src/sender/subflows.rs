//! The role of a sender among subflows: the main connection's rate law decides for all
//! (`docs/protocol §6.11`).

use super::Sender;
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

impl Sender {
    /// Its counters, for the main connection.
    pub(crate) fn tally(&self, now: Instant) -> SubflowTally {
        self.feedback.tally(now)
    }

    /// From now on its rate law decides for these subflows too, whether they are alive or not.
    pub(crate) fn lead(&mut self, now: Instant, subflows: &[SubflowTally]) {
        let mut lead = match std::mem::take(&mut self.subflows) {
            SubflowRole::Leads(lead) => lead,
            SubflowRole::Alone | SubflowRole::Led(_) => SubflowAllocator::default(),
        };
        let own = self.tally(now);
        let (pacing, packet) = (self.rate.pacing(), self.packet_on_the_wire());
        lead.on_counts(now, (own, subflows), (&pacing, packet), self.rate.tries());
        self.subflows = SubflowRole::Leads(lead);
    }

    /// The share of the subflow at `at` of the last list.
    pub(crate) fn share(&self, at: usize) -> SubflowShare {
        match &self.subflows {
            SubflowRole::Leads(lead) => {
                lead.share(at, &self.rate.pacing(), self.packet_on_the_wire())
            }
            SubflowRole::Alone | SubflowRole::Led(_) => SubflowShare::default(),
        }
    }

    /// From now on the main connection sets its share.
    pub(crate) fn be_led(&mut self, share: SubflowShare) {
        self.subflows = SubflowRole::Led(share);
    }

    /// Bytes delivered over the other subflows, if this is the main connection.
    pub(super) fn delivered_beside(&self) -> u64 {
        match &self.subflows {
            SubflowRole::Leads(lead) => lead.delivered_beside(),
            SubflowRole::Alone | SubflowRole::Led(_) => 0,
        }
    }

    /// A sample over all subflows that its law decides for.
    pub(super) fn whole(&self, own: Sample) -> Sample {
        match &self.subflows {
            SubflowRole::Leads(lead) => lead.whole(own),
            SubflowRole::Alone | SubflowRole::Led(_) => own,
        }
    }

    /// Its own part of the pacing that the law decides for all.
    pub(super) fn asked(&self) -> Pacing {
        let pacing = self.rate.pacing();
        match &self.subflows {
            SubflowRole::Alone => pacing,
            SubflowRole::Leads(lead) => lead.own(pacing),
            SubflowRole::Led(share) => {
                let packet = u32::try_from(self.packet_on_the_wire()).unwrap_or(u32::MAX);
                let burst = burst_for(share.rate, packet);
                Pacing { burst, cap_bytes: share.cap_bytes, ..pacing }
            }
        }
    }

    fn packet_on_the_wire(&self) -> u64 {
        u64::from(self.pmtud.datagram_bytes()) + self.feedback.overhead()
    }
}
