//! Lanes: further connections that carry buffers of the same transfer, each over a socket and by a
//! processor of its own (`docs/protocol §4.11, §6.11`).
//!
//! A lane is an [`Endpoint`] like any other, but has no handshake: its keys and parameters follow
//! from those of the main connection. The clients decide what its buffers are and when the transfer
//! is over; only the main connection carries that.

use std::collections::VecDeque;
use std::time::Duration;

use super::Endpoint;
use crate::api::{Datagram, RecvMeta, Route, Transmit};
use crate::codec::Codec;
use crate::config::{Config, FixedRate, FixedRateSpec, Policy};
use crate::crypto::exporter::{Chain, ChainKeys};
use crate::entropy::Entropy;
use crate::handshake::{Opened, PeerLocation};
use crate::limits::{MAX_LANE_NUMBER, MAX_LANES};
use crate::negotiated::HandshakeRtt;
pub use crate::rate::lanes::{LaneShare, LaneTally};
use crate::time::{Instant, earliest};
use crate::units::Rate;
use crate::wire::packet::{Keepalive, Parameters};
use crate::wire::sealed;

/// The share of a lane before it is set: one packet now and then.
const FIRST_SHARE: LaneShare =
    LaneShare { rate: Rate::from_bytes_per_second(10_000), cap_bytes: Some(10_000) };
/// Most lanes whose addresses are under validation, and most that the client has not taken. Packets
/// of further ones are dropped; the peer repeats them.
const MAX_PENDING: usize = MAX_LANES as usize;
/// How long an address is under validation.
const VALIDATION_TIME: Duration = Duration::from_secs(10);

/// A lane that has begun.
#[derive(Debug)]
pub struct Lane {
    /// Its number; no other of this connection has it.
    pub number: u8,
    /// Its peer's address; at a passive end the validated one.
    pub peer: Route,
    /// This end of it.
    pub end: Endpoint,
}

/// The lanes of a main connection.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The negotiated parameters of the main connection.
    negotiated: Option<(Parameters, u32)>,
    /// The key chain of lanes that have not begun.
    chain: Option<Chain>,
    /// Passive end: the keys of the numbers from 1 that the peer has not opened.
    keys: Vec<Option<ChainKeys>>,
    /// Connection ids of those that the peer may open, by number from 1; empty if it may not.
    ids: Vec<u32>,
    entropy: Option<Entropy>,
    /// A bit for each used number.
    begun: u64,
    /// Lanes that the peer has opened from an address under validation, and when that ends.
    validating: Vec<(Instant, Lane)>,
    waiting: VecDeque<Lane>,
}

impl Lanes {
    /// A connection is open: there are no lanes of it yet.
    pub(super) fn begin(&mut self, negotiated: (&Parameters, u32), chain: Option<Chain>) {
        let (parameters, table_bytes) = negotiated;
        *self =
            Self { negotiated: Some((parameters.clone(), table_bytes)), chain, ..Self::default() };
    }

    /// The connection has closed: no lane of it can be opened any more.
    pub(super) fn end(&mut self) {
        (self.chain, self.keys) = (None, Vec::new());
        self.ids.clear();
        self.validating.clear();
    }

    /// The CHALLENGEs to the addresses of lanes.
    pub(super) fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit> {
        self.validating.iter_mut().find_map(|(_, lane)| lane.end.poll_transmit(now, batch))
    }

    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let due = |(until, lane): &(Instant, Lane)| {
            Some(lane.end.next_timeout(now).map_or(*until, |at| at.min(*until)))
        };
        earliest(self.validating.iter().map(due))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.validating.iter_mut().for_each(|(_, lane)| lane.end.handle_timeout(now));
        self.validating.retain(|(until, lane)| now < *until && !lane.end.closed);
    }

    /// A datagram for a lane whose address is under validation: it may have the ANSWER.
    fn handle_answer(&mut self, now: Instant, number: u8, datagram: Datagram<'_>) -> bool {
        let mut all = self.validating.iter_mut().enumerate();
        let lane = all.find(|(_, (_, lane))| lane.number == number);
        let Some((at, (_, lane))) = lane else { return false };
        let before = lane.end.counts.received;
        lane.end.handle_datagram(now, datagram);
        let authentic = lane.end.counts.received > before;
        let validated =
            lane.end.connection.as_ref().and_then(|connection| connection.validated_route());
        if let Some(peer) = validated {
            let (_, lane) = self.validating.remove(at);
            self.waiting.push_back(Lane { peer, ..lane });
        }
        authentic
    }
}

impl Endpoint {
    /// Active end, once its connection is open: opens one more lane, to be driven over a socket of
    /// its own. `entropy` must never be used twice outside tests. `None` if there is no connection,
    /// or all numbers are used.
    pub fn call_lane(&mut self, now: Instant, entropy: [u8; 32]) -> Option<Lane> {
        let number = (1..=MAX_LANE_NUMBER).find(|number| self.lanes.begun >> number & 1 == 0)?;
        let connection = self.connection.as_ref()?;
        let (peer, _) = (connection.validated_route()?, connection.cipher()?);
        // Numbers are used in order, and so are the steps of the chain.
        let keys = self.lanes.chain.as_mut()?.step();
        let codec = connection.codec_of(&keys, true)?;
        self.lanes.begun |= 1 << number;
        let mut opened = self.open_lane(now, codec, Entropy::new(entropy))?;
        opened.unconfirmed = true;
        let route = Route { local: None, ..peer };
        let end = self.lane(now, (route, RecvMeta::default()), opened, None);
        Some(Lane { number, peer: route, end })
    }

    /// How many lanes can still be begun in the life of this connection: a number is used once.
    pub fn lanes_left(&self) -> u8 {
        MAX_LANE_NUMBER.saturating_sub(self.lanes.begun.count_ones() as u8)
    }

    /// Passive end, once its connection is open: allows the peer to open lanes, which
    /// [`Endpoint::poll_lane`] returns. `entropy` as above.
    pub fn admit_lanes(&mut self, entropy: [u8; 32]) {
        let Some(mut chain) = self.lanes.chain.take() else { return };
        let keys: Vec<_> = (1..=MAX_LANE_NUMBER).map(|_| chain.step()).collect();
        self.lanes.ids = keys.iter().map(|keys| keys.id).collect();
        self.lanes.keys = keys.into_iter().map(Some).collect();
        self.lanes.entropy = Some(Entropy::new(entropy));
    }

    /// Connection ids under which lanes may begin here. Where one socket serves many connections,
    /// packets with these ids belong to this one. The list need not be read at once, since the peer
    /// repeats its first packet. Empty before [`Endpoint::admit_lanes`].
    pub fn lane_ids(&self) -> &[u32] {
        &self.lanes.ids
    }

    /// The next lane that the peer has opened from a validated address. Its packets must not come
    /// to this end any more: they belong to a socket of its own.
    pub fn poll_lane(&mut self) -> Option<Lane> {
        self.lanes.waiting.pop_front()
    }

    /// Passive end: refuses a lane that [`Endpoint::poll_lane`] returned. QUIT leaves at once,
    /// since until then the peer gives the lane its share.
    pub fn refuse_lane(&mut self, now: Instant, mut lane: Lane, reason: &str) {
        lane.end.forget(now, reason);
        let mut batch = Vec::new();
        while let Some(transmit) = lane.end.poll_transmit(now, &mut batch) {
            let to = Route { peer: transmit.to, local: transmit.local };
            let packets = batch.chunks(transmit.segment.max(1));
            packets.for_each(|packet| self.reply(to, packet.to_vec()));
            batch.clear();
        }
    }

    /// Passive end: asks for another lane. One packet carries that; the peer's client reads it.
    pub fn ask_for_lanes(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.push_keepalive(Keepalive { lane_wanted: true, ..Keepalive::default() });
        }
    }

    /// Whether the peer has asked for a lane since the last call.
    pub fn take_lanes_wanted(&mut self) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.take_lane_wanted())
    }

    /// The counters of a lane's sender, for its main connection. `None` at a receiver.
    pub fn tally(&self, now: Instant) -> Option<LaneTally> {
        Some(self.connection.as_ref()?.sender()?.tally(now))
    }

    /// Main connection's sender: the counters of its lanes, in any fixed order.
    pub fn lead(&mut self, now: Instant, lanes: &[LaneTally]) {
        if let Some(sender) = self.connection.as_mut().and_then(|c| c.sender_mut()) {
            sender.lead(now, lanes);
        }
    }

    /// Main connection's sender: the share of the lane at `at`.
    pub fn share(&self, at: usize) -> LaneShare {
        let sender = self.connection.as_ref().and_then(|connection| connection.sender());
        sender.map_or(LaneShare::default(), |sender| sender.share(at))
    }

    /// A lane's sender: its share from now on.
    pub fn be_led(&mut self, share: LaneShare) {
        if let Some(sender) = self.connection.as_mut().and_then(|c| c.sender_mut()) {
            sender.be_led(share);
        }
    }

    /// The client drops this end: QUIT leaves once, its buffers are returned, and it is closed.
    pub fn forget(&mut self, now: Instant, reason: &str) {
        if let Some(connection) = &mut self.connection {
            connection.forget(now, reason);
        }
        self.collect(now);
    }

    /// Whether this end or its peer is closing: not all released buffers were accepted.
    pub fn is_closing(&self) -> bool {
        self.closed || self.connection.as_ref().is_some_and(|connection| connection.is_closing())
    }

    /// Whether the main connection is old enough for lanes: a short transfer needs none, and the
    /// first round trips find the path's rate.
    pub fn lanes_may_begin(&self, now: Instant) -> bool {
        const ROUND_TRIPS: u32 = 8;
        const LEAST: Duration = Duration::from_millis(100);
        let stats = self.stats(now);
        let negotiated =
            stats.min_rtt.unwrap_or(Duration::from_millis(100)).saturating_mul(ROUND_TRIPS);
        stats.opened_at.is_some_and(|at| now.since(at) >= negotiated.max(LEAST))
    }

    /// A datagram that is not this connection's: it may belong to a lane whose address is under
    /// validation.
    pub(super) fn handle_lane_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> bool {
        if self.lanes.ids.is_empty() {
            return false;
        }
        let id = sealed::destination(datagram.bytes);
        let at = self.lanes.ids.iter().position(|known| Some(*known) == id);
        let Some(number) = at.and_then(|at| u8::try_from(at + 1).ok()) else { return false };
        if self.lanes.begun >> number & 1 == 1 {
            return self.lanes.handle_answer(now, number, datagram);
        }
        if self.lanes.validating.len() + self.lanes.waiting.len() >= MAX_PENDING {
            return false;
        }
        let Datagram { from, local, meta, bytes } = datagram;
        let route = Route { peer: from, local };
        let at = usize::from(number - 1);
        let Some(keys) = self.lanes.keys.get(at).and_then(Option::as_ref) else { return false };
        let codec =
            self.connection.as_ref().and_then(|connection| connection.codec_of(keys, false));
        let Some(codec) = codec.filter(|codec| codec.authenticates(bytes)) else { return false };
        let Some(entropy) = self.lanes.entropy.as_mut().map(Entropy::draw) else { return false };
        self.lanes.begun |= 1 << number;
        self.lanes.keys[at] = None;
        let Some(mut opened) = self.open_lane(now, codec, Entropy::new(entropy)) else {
            return false;
        };
        opened.location = PeerLocation::OneOf(vec![(route, bytes.len() as u64)]);
        let end = self.lane(now, (route, meta), opened, Some(bytes));
        self.lanes.validating.push((now + VALIDATION_TIME, Lane { number, peer: route, end }));
        true
    }

    fn open_lane(&self, now: Instant, codec: Codec, entropy: Entropy) -> Option<Opened> {
        let (parameters, table_bytes) = self.lanes.negotiated.as_ref()?;
        let rtt = self.stats(now).min_rtt;
        Some(Opened::branch(
            codec,
            (parameters.clone(), *table_bytes),
            HandshakeRtt { measured: rtt, longest: rtt },
            entropy,
        ))
    }

    fn lane(
        &self,
        now: Instant,
        from: (Route, RecvMeta),
        opened: Opened,
        first: Option<&mut [u8]>,
    ) -> Endpoint {
        // Its share bounds it, so its own law decides nothing.
        let config = Config {
            policy: Policy::Fixed(FixedRate(FixedRateSpec::Rate(FIRST_SHARE.rate))),
            accept_any_role: false,
            remembered: Vec::new(),
            trace: false,
            ..self.config.clone()
        };
        let mut end = Endpoint::served(config, now, from, opened, first);
        end.be_led(FIRST_SHARE);
        end
    }
}
