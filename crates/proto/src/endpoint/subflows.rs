//! Subflows: further connections that carry buffers of the same transfer, each over a socket and by
//! a processor of its own (`docs/protocol §4.11, §6.11`).
//!
//! A subflow is an [`Endpoint`] like any other, but has no handshake: its keys and parameters
//! follow from those of the main connection. The clients decide what its buffers are and when the
//! transfer is over; only the main connection carries that.

use std::collections::VecDeque;
use std::time::Duration;

use super::Endpoint;
use crate::api::{Datagram, RecvMeta, Route, Transmit};
use crate::codec::Codec;
use crate::config::{Config, FixedRate, FixedRateSpec, Policy};
use crate::crypto::exporter::{Chain, ChainKeys};
use crate::entropy::Entropy;
use crate::handshake::{Opened, PeerLocation};
use crate::limits::{MAX_SUBFLOW_NUMBER, MAX_SUBFLOWS};
use crate::negotiated::HandshakeRtt;
pub use crate::rate::subflows::{SubflowShare, SubflowTally};
use crate::time::Instant;
use crate::timers::{HandshakeTimer, Timer};
use crate::units::Rate;
use crate::wire::packet::{Keepalive, Parameters};
use crate::wire::sealed;

/// The share of a subflow before it is set: one packet now and then.
const FIRST_SHARE: SubflowShare =
    SubflowShare { rate: Rate::from_bytes_per_second(10_000), cap_bytes: Some(10_000) };
/// Most subflows whose addresses are under validation, and most that the client has not taken.
/// Packets of further ones are dropped; the peer repeats them.
const MAX_PENDING: usize = MAX_SUBFLOWS as usize;
/// How long an address is under validation.
const VALIDATION_TIME: Duration = Duration::from_secs(10);

/// A subflow that has begun.
#[derive(Debug)]
pub struct Subflow {
    /// Its number; no other of this connection has it.
    pub number: u8,
    /// Its peer's address; at a passive end the validated one.
    pub peer: Route,
    /// This end of it.
    pub end: Endpoint,
}

/// The subflows of a main connection.
#[derive(Debug, Default)]
pub(super) struct Subflows {
    /// The negotiated parameters of the main connection.
    negotiated: Option<(Parameters, u32)>,
    /// The key chain of subflows that have not begun.
    chain: Option<Chain>,
    /// Passive end: the keys of the numbers from 1 that the peer has not opened.
    keys: Vec<Option<ChainKeys>>,
    /// Connection ids of those that the peer may open, by number from 1; empty if it may not.
    ids: Vec<u32>,
    entropy: Option<Entropy>,
    /// A bit for each used number.
    begun: u64,
    /// Subflows that the peer has opened from an address under validation, and when that ends.
    validating: Vec<(Instant, Subflow)>,
    waiting: VecDeque<Subflow>,
}

impl Subflows {
    /// A connection is open: there are no subflows of it yet.
    pub(super) fn begin(
        &mut self,
        parameters: &Parameters,
        table_bytes: u32,
        chain: Option<Chain>,
    ) {
        *self =
            Self { negotiated: Some((parameters.clone(), table_bytes)), chain, ..Self::default() };
    }

    /// The connection has closed: no subflow of it can be opened any more.
    pub(super) fn end(&mut self) {
        (self.chain, self.keys) = (None, Vec::new());
        self.ids.clear();
        self.validating.clear();
    }

    /// The CHALLENGEs to the addresses of subflows.
    pub(super) fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit> {
        self.validating.iter_mut().find_map(|(_, subflow)| subflow.end.poll_transmit(now, batch))
    }

    /// The timer of these subflows that expires first, and when.
    pub(super) fn next_timer(&self, now: Instant) -> Option<(Timer, Instant)> {
        let timers = self.validating.iter().flat_map(|(until, subflow)| {
            [subflow.end.next_timer(now), Some((HandshakeTimer::Subflow.into(), *until))]
        });
        timers.flatten().min_by_key(|(_, at)| *at)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.validating.iter_mut().for_each(|(_, subflow)| subflow.end.handle_timeout(now));
        self.validating.retain(|(until, subflow)| now < *until && !subflow.end.closed);
    }

    /// A datagram for a subflow whose address is under validation: it may have the ANSWER.
    fn handle_answer(&mut self, now: Instant, number: u8, datagram: Datagram<'_>) -> bool {
        let mut all = self.validating.iter_mut().enumerate();
        let subflow = all.find(|(_, (_, subflow))| subflow.number == number);
        let Some((at, (_, subflow))) = subflow else { return false };
        let before = subflow.end.counts.received;
        subflow.end.handle_datagram(now, datagram);
        let authentic = subflow.end.counts.received > before;
        let validated =
            subflow.end.connection.as_ref().and_then(|connection| connection.validated_route());
        if let Some(peer) = validated {
            let (_, subflow) = self.validating.remove(at);
            self.waiting.push_back(Subflow { peer, ..subflow });
        }
        authentic
    }
}

impl Endpoint {
    /// Active end, once its connection is open: opens one more subflow, to be driven over a socket
    /// of its own. `entropy` must never be used twice outside tests. `None` if there is no
    /// connection, or all numbers are used.
    pub fn call_subflow(&mut self, now: Instant, entropy: [u8; 32]) -> Option<Subflow> {
        let number =
            (1..=MAX_SUBFLOW_NUMBER).find(|number| self.subflows.begun >> number & 1 == 0)?;
        let connection = self.connection.as_ref()?;
        let (peer, _) = (connection.validated_route()?, connection.cipher()?);
        // Numbers are used in order, and so are the steps of the chain.
        let keys = self.subflows.chain.as_mut()?.step();
        let codec = connection.codec_of(&keys, true)?;
        self.subflows.begun |= 1 << number;
        let mut opened = self.open_subflow(now, codec, Entropy::new(entropy))?;
        opened.unconfirmed = true;
        let route = Route { local: None, ..peer };
        let end = self.subflow(now, route, RecvMeta::default(), opened, None);
        Some(Subflow { number, peer: route, end })
    }

    /// How many subflows can still be begun in the life of this connection: a number is used once.
    pub fn subflows_left(&self) -> u8 {
        MAX_SUBFLOW_NUMBER.saturating_sub(self.subflows.begun.count_ones() as u8)
    }

    /// Passive end, once its connection is open: allows the peer to open subflows, which
    /// [`Endpoint::poll_subflow`] returns. `entropy` as above.
    pub fn admit_subflows(&mut self, entropy: [u8; 32]) {
        let Some(mut chain) = self.subflows.chain.take() else { return };
        let keys: Vec<_> = (1..=MAX_SUBFLOW_NUMBER).map(|_| chain.step()).collect();
        self.subflows.ids = keys.iter().map(|keys| keys.id).collect();
        self.subflows.keys = keys.into_iter().map(Some).collect();
        self.subflows.entropy = Some(Entropy::new(entropy));
    }

    /// Connection ids under which subflows may begin here. Where one socket serves many
    /// connections, packets with these ids belong to this one. The list need not be read at once,
    /// since the peer repeats its first packet. Empty before [`Endpoint::admit_subflows`].
    pub fn subflow_ids(&self) -> &[u32] {
        &self.subflows.ids
    }

    /// The next subflow that the peer has opened from a validated address. Its packets must not
    /// come to this end any more: they belong to a socket of its own.
    pub fn poll_subflow(&mut self) -> Option<Subflow> {
        self.subflows.waiting.pop_front()
    }

    /// Passive end: refuses a subflow that [`Endpoint::poll_subflow`] returned. QUIT leaves at
    /// once, since until then the peer gives the subflow its share.
    pub fn refuse_subflow(&mut self, now: Instant, mut subflow: Subflow, reason: &str) {
        subflow.end.forget(now, reason);
        let mut batch = Vec::new();
        while let Some(transmit) = subflow.end.poll_transmit(now, &mut batch) {
            let to = Route { peer: transmit.to, local: transmit.local };
            let packets = batch.chunks(transmit.segment.max(1));
            packets.for_each(|packet| self.reply(to, packet.to_vec()));
            batch.clear();
        }
    }

    /// Passive end: asks for another subflow. One packet carries that; the peer's client reads it.
    pub fn ask_for_subflows(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.push_keepalive(Keepalive { subflow_wanted: true, ..Keepalive::default() });
        }
    }

    /// Whether the peer has asked for a subflow since the last call.
    pub fn take_subflows_wanted(&mut self) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.take_subflow_wanted())
    }

    /// The counters of a subflow's sender, for its main connection. `None` at a receiver.
    pub fn tally(&self, now: Instant) -> Option<SubflowTally> {
        Some(self.connection.as_ref()?.sender()?.tally(now))
    }

    /// Main connection's sender: the counters of its subflows, in any fixed order.
    pub fn lead(&mut self, now: Instant, subflows: &[SubflowTally]) {
        if let Some(sender) = self.connection.as_mut().and_then(|c| c.sender_mut()) {
            sender.lead(now, subflows);
        }
    }

    /// Main connection's sender: the share of the subflow at `at`.
    pub fn share(&self, at: usize) -> SubflowShare {
        let sender = self.connection.as_ref().and_then(|connection| connection.sender());
        sender.map_or(SubflowShare::default(), |sender| sender.share(at))
    }

    /// A subflow's sender: its share from now on.
    pub fn be_led(&mut self, share: SubflowShare) {
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

    /// Whether the main connection is old enough for subflows: a short transfer needs none, and the
    /// first round trips find the path's rate.
    pub fn subflows_may_begin(&self, now: Instant) -> bool {
        const ROUND_TRIPS: u32 = 8;
        const LEAST: Duration = Duration::from_millis(100);
        let stats = self.stats(now);
        let negotiated =
            stats.min_rtt.unwrap_or(Duration::from_millis(100)).saturating_mul(ROUND_TRIPS);
        stats.opened_at.is_some_and(|at| now.since(at) >= negotiated.max(LEAST))
    }

    /// A datagram that is not this connection's: it may belong to a subflow whose address is under
    /// validation.
    pub(super) fn handle_subflow_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> bool {
        if self.subflows.ids.is_empty() {
            return false;
        }
        let id = sealed::destination(datagram.bytes);
        let at = self.subflows.ids.iter().position(|known| Some(*known) == id);
        let Some(number) = at.and_then(|at| u8::try_from(at + 1).ok()) else { return false };
        if self.subflows.begun >> number & 1 == 1 {
            return self.subflows.handle_answer(now, number, datagram);
        }
        if self.subflows.validating.len() + self.subflows.waiting.len() >= MAX_PENDING {
            return false;
        }
        let Datagram { from, local, meta, bytes } = datagram;
        let route = Route { peer: from, local };
        let at = usize::from(number - 1);
        let Some(keys) = self.subflows.keys.get(at).and_then(Option::as_ref) else { return false };
        let codec =
            self.connection.as_ref().and_then(|connection| connection.codec_of(keys, false));
        let Some(codec) = codec.filter(|codec| codec.authenticates(bytes)) else { return false };
        let Some(entropy) = self.subflows.entropy.as_mut().map(Entropy::draw) else { return false };
        self.subflows.begun |= 1 << number;
        self.subflows.keys[at] = None;
        let Some(mut opened) = self.open_subflow(now, codec, Entropy::new(entropy)) else {
            return false;
        };
        opened.location = PeerLocation::OneOf(vec![(route, bytes.len() as u64)]);
        let end = self.subflow(now, route, meta, opened, Some(bytes));
        self.subflows
            .validating
            .push((now + VALIDATION_TIME, Subflow { number, peer: route, end }));
        true
    }

    fn open_subflow(&self, now: Instant, codec: Codec, entropy: Entropy) -> Option<Opened> {
        let (parameters, table_bytes) = self.subflows.negotiated.as_ref()?;
        let rtt = self.stats(now).min_rtt;
        Some(Opened::branch(
            codec,
            parameters.clone(),
            *table_bytes,
            HandshakeRtt { measured: rtt, longest: rtt },
            entropy,
        ))
    }

    fn subflow(
        &self,
        now: Instant,
        route: Route,
        meta: RecvMeta,
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
        let mut end = Endpoint::served(config, now, route, meta, opened, first);
        end.be_led(FIRST_SHARE);
        end
    }
}
