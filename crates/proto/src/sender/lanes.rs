//! A sender among others: it leads them, or is led (`docs/protocol.md §6.11`).

use std::time::Duration;

use super::Sender;
use crate::rate::lanes::{LaneShare, LaneTally, Lead};
use crate::rate::{Pacing, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;

/// A rate that was told so long ago, beside two round trips, is none any more.
const STALE: Duration = Duration::from_millis(100);

/// Whose rate it is.
#[derive(Clone, Debug, Default)]
pub(super) enum Lanes {
    /// Its own, and nobody else's.
    #[default]
    Alone,
    /// Its own, of which others have a part.
    Leads(Lead),
    /// Another one's.
    Led(LaneShare),
}

/// The newest sample's rates, and when they were told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    at: Option<Instant>,
    delivery: Rate,
    send: Rate,
}

impl Told {
    pub(super) fn hear(&mut self, now: Instant, sample: &Sample) {
        if let (Some(delivery), Some(send)) = (sample.delivery_rate, sample.send_rate) {
            (self.at, self.delivery, self.send) = (Some(now), delivery, send);
        }
    }
}

impl Sender {
    /// What it has counted, for who leads it.
    pub(crate) fn tally(&self, now: Instant) -> LaneTally {
        let stale = STALE + self.rtt.assumed() * 2;
        let fresh = self.told.at.is_some_and(|at| now.since(at) <= stale);
        let rates = if fresh { (self.told.delivery, self.told.send) } else { Default::default() };
        LaneTally {
            live: true,
            sent_bytes: self.sampler.sent_bytes(),
            delivered_bytes: self.sampler.delivered_bytes(),
            delivered_packets: self.sampler.delivered_packets(),
            lost_packets: self.stats.data_packets_lost,
            marked_packets: self.sampler.marked_packets(),
            in_flight_bytes: self.sampler.in_flight_bytes(),
            delivery_rate: rates.0,
            send_rate: rates.1,
        }
    }

    /// From now on its rate is that of all these lanes, too, whether they live or not.
    pub(crate) fn lead(&mut self, now: Instant, lanes: &[LaneTally]) {
        let mut lead = match std::mem::take(&mut self.lanes) {
            Lanes::Leads(lead) => lead,
            Lanes::Alone | Lanes::Led(_) => Lead::default(),
        };
        let own = self.tally(now);
        let (pacing, packet) = (self.rate.pacing(), self.packet_on_the_wire());
        lead.hear(now, (own, lanes), (&pacing, packet), self.rate.tries());
        self.lanes = Lanes::Leads(lead);
    }

    /// What the lane at `at` of those last told may send.
    pub(crate) fn share(&self, at: usize) -> LaneShare {
        match &self.lanes {
            Lanes::Leads(lead) => lead.share(at, &self.rate.pacing(), self.packet_on_the_wire()),
            Lanes::Alone | Lanes::Led(_) => LaneShare::default(),
        }
    }

    /// From now on its rate is what it is told.
    pub(crate) fn be_led(&mut self, share: LaneShare) {
        self.lanes = Lanes::Led(share);
    }

    /// Bytes known to have arrived over the lanes that it leads.
    pub(super) fn delivered_beside(&self) -> u64 {
        match &self.lanes {
            Lanes::Leads(lead) => lead.delivered_beside(),
            Lanes::Alone | Lanes::Led(_) => 0,
        }
    }

    /// A sample of all that its law decides for.
    pub(super) fn whole(&self, own: Sample) -> Sample {
        match &self.lanes {
            Lanes::Leads(lead) => lead.whole(own),
            Lanes::Alone | Lanes::Led(_) => own,
        }
    }

    /// What it may send of what its law asks for all.
    pub(super) fn asked(&self) -> Pacing {
        let pacing = self.rate.pacing();
        match &self.lanes {
            Lanes::Alone => pacing,
            Lanes::Leads(lead) => lead.own(pacing),
            Lanes::Led(share) => {
                let packet = u32::try_from(self.packet_on_the_wire()).unwrap_or(u32::MAX);
                let burst = burst_for(share.rate, packet);
                Pacing { burst, cap_bytes: share.cap_bytes, ..pacing }
            }
        }
    }

    fn packet_on_the_wire(&self) -> u64 {
        u64::from(self.datagram_bytes()) + self.sampler.overhead()
    }
}
