//! Flows that share a path with a whole transfer ([`crate::world`], which owns the path and the
//! clock). Their data take the shared path; what answers them does not, and neither does the rest
//! of their round trip.

use std::collections::BTreeMap;
use std::fmt;

use netblt_proto::api::Ecn;
use netblt_proto::time::{Instant, earliest};

use super::ends::{Body, Ends, FlowPacket, Outbox};
use super::network::ends_of;
use super::scene::FlowOptions;

/// No flow works as often at one time unless it makes no progress.
const MOST_TURNS: u32 = 10_000;

/// A packet of such a flow.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Foreign(FlowPacket);

impl Foreign {
    /// IP bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.0.bytes
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of neighbour {}", self.0.bytes, self.0.flow)
    }
}

/// A packet for the shared path.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) packet: Foreign,
    pub(crate) ecn: Option<Ecn>,
    /// It goes against the data of the transfer.
    pub(crate) back: bool,
}

#[derive(Debug)]
struct Neighbour {
    options: FlowOptions,
    ends: Box<dyn Ends>,
    out: Outbox,
}

impl Neighbour {
    fn due(&self, now: Instant) -> Instant {
        if self.options.stop.is_some_and(|stop| now >= Instant::EPOCH + stop) {
            return Instant::NEVER;
        }
        self.ends.due(now).max(Instant::EPOCH + self.options.start)
    }
}

/// The flows.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    flows: Vec<Neighbour>,
    /// The packets on a flow's own half of the round trip, by the time of their arrival.
    legs: BTreeMap<(Instant, u64), (FlowPacket, Option<Ecn>)>,
    number: u64,
}

impl Neighbours {
    pub(crate) fn new(flows: &[FlowOptions], seed: u64) -> Self {
        let flows = flows.iter().enumerate().map(|(number, options)| {
            let (ends, out) = ends_of(options, number, seed);
            Neighbour { options: options.clone(), ends, out }
        });
        Self { flows: flows.collect(), ..Self::default() }
    }

    /// When anything of them is due.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let legs = self.legs.keys().next().map(|(at, _)| *at);
        let flows = self.flows.iter().map(|flow| flow.due(now));
        earliest(flows.filter(|at| *at < Instant::NEVER).chain(legs).map(Some))
    }

    /// Handles all due events. Returns the packets for the shared path.
    pub(crate) fn work(&mut self, now: Instant) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        while let Some(entry) = self.legs.first_entry().filter(|entry| entry.key().0 <= now) {
            let (packet, ecn) = entry.remove();
            let Some(flow) = self.flows.get_mut(packet.flow) else { continue };
            match packet.body.is_forward() {
                true => flow.ends.on_data(now, &packet, ecn, &mut flow.out),
                false => flow.ends.on_feedback(now, &packet.body, &mut flow.out),
            }
            self.take_out(now, packet.flow, &mut leaving);
        }
        for number in 0..self.flows.len() {
            for turn in 0.. {
                let Some(flow) = self.flows.get_mut(number) else { break };
                if flow.due(now) > now {
                    break;
                }
                assert!(turn < MOST_TURNS, "no progress of neighbour {number} at {now:?}");
                flow.ends.work(now, &mut flow.out);
                self.take_out(now, number, &mut leaving);
            }
        }
        leaving
    }

    /// A packet has left the shared path.
    pub(crate) fn arrived(&mut self, now: Instant, packet: &Foreign, ecn: Option<Ecn>) {
        self.go_on(now, packet.0, ecn);
    }

    fn go_on(&mut self, now: Instant, packet: FlowPacket, ecn: Option<Ecn>) {
        let Some(flow) = self.flows.get(packet.flow) else { return };
        self.number += 1;
        let at = now + flow.options.rtt / 2;
        self.legs.insert((at, self.number), (packet, ecn));
    }

    fn take_out(&mut self, now: Instant, number: usize, leaving: &mut Vec<Leaving>) {
        let Some(flow) = self.flows.get_mut(number) else { return };
        let packets = std::mem::take(&mut flow.out.packets);
        let (back, ecn) = (flow.options.reverse, flow.options.ecn);
        for (body, bytes) in packets {
            let ecn = (ecn && matches!(body, Body::Data(_))).then_some(Ecn::Ect0);
            let packet = FlowPacket { flow: number, bytes, sent_at: now, body };
            match packet.body.is_forward() {
                true => leaving.push(Leaving { packet: Foreign(packet), ecn, back }),
                false => self.go_on(now, packet, None),
            }
        }
    }
}
