//! Subflows of a main connection: further connections that carry buffers of the same transfer, each
//! over a socket and by a processor of its own (`docs/protocol §4.11, §6.11`).
//!
//! A subflow is an [`Endpoint`] like any other, but has no handshake: its keys and parameters
//! follow from those of the main connection. The clients decide what its buffers are and when the
//! transfer is over; only the main connection carries that.

use std::collections::VecDeque;
use std::time::Duration;

use super::Endpoint;
use crate::api::{Datagram, Route, Transmit};
use crate::codec::Codec;
use crate::crypto::exporter::{Chain, ChainKeys};
use crate::entropy::Entropy;
use crate::handshake::Opened;
use crate::limits::{MAX_SUBFLOW_NUMBER, MAX_SUBFLOWS};
use crate::negotiated::HandshakeRtt;
pub use crate::rate::subflows::{SubflowShare, SubflowTally};
use crate::time::Instant;
use crate::timers::{HandshakeTimer, Timer};
use crate::units::Rate;
use crate::wire::packet::Parameters;
use crate::wire::sealed;

/// The share of a subflow before it is set: one packet now and then.
pub(super) const FIRST_SHARE: SubflowShare =
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
        self.validating.retain(|(until, subflow)| now < *until && !subflow.end.events.is_closed());
    }

    /// A datagram for a subflow whose address is under validation: it may have the ANSWER.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        number: u8,
        datagram: Datagram<'_>,
    ) -> bool {
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

    /// Active end: the number of the next subflow. `None`: all are used.
    pub(super) fn next_number(&self) -> Option<u8> {
        (1..=MAX_SUBFLOW_NUMBER).find(|number| !self.has_begun(*number))
    }

    /// Active end: the keys of the next subflow. Numbers are used in order, and so are the steps of
    /// the chain.
    pub(super) fn next_keys(&mut self) -> Option<ChainKeys> {
        Some(self.chain.as_mut()?.step())
    }

    /// The number is used.
    pub(super) fn begin_number(&mut self, number: u8) {
        self.begun |= 1 << number;
        if let Some(keys) = self.keys.get_mut(usize::from(number).wrapping_sub(1)) {
            *keys = None;
        }
    }

    pub(super) fn has_begun(&self, number: u8) -> bool {
        self.begun >> number & 1 == 1
    }

    /// How many numbers are unused.
    pub(super) fn left(&self) -> u8 {
        MAX_SUBFLOW_NUMBER.saturating_sub(self.begun.count_ones() as u8)
    }

    /// Passive end: the peer may open subflows.
    pub(super) fn admit(&mut self, entropy: Entropy) {
        let Some(mut chain) = self.chain.take() else { return };
        let keys: Vec<_> = (1..=MAX_SUBFLOW_NUMBER).map(|_| chain.step()).collect();
        self.ids = keys.iter().map(|keys| keys.id).collect();
        self.keys = keys.into_iter().map(Some).collect();
        self.entropy = Some(entropy);
    }

    /// Connection ids of those that the peer may open, by number from 1.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The number of the subflow to which a datagram is addressed.
    pub(super) fn number_of(&self, bytes: &[u8]) -> Option<u8> {
        if self.ids.is_empty() {
            return None;
        }
        let id = sealed::destination(bytes);
        let at = self.ids.iter().position(|known| Some(*known) == id)?;
        u8::try_from(at + 1).ok()
    }

    /// The keys of a number that the peer has not opened, unless too many others wait.
    pub(super) fn unused_keys(&self, number: u8) -> Option<&ChainKeys> {
        if self.validating.len() + self.waiting.len() >= MAX_PENDING {
            return None;
        }
        self.keys.get(usize::from(number).wrapping_sub(1)).and_then(Option::as_ref)
    }

    pub(super) fn draw(&mut self) -> Option<[u8; 32]> {
        self.entropy.as_mut().map(Entropy::draw)
    }

    /// The opening of a subflow with this codec. `rtt` is the main connection's smallest round
    /// trip.
    pub(super) fn opened(
        &self,
        codec: Codec,
        rtt: Option<Duration>,
        entropy: [u8; 32],
    ) -> Option<Opened> {
        let (parameters, table_bytes) = self.negotiated.as_ref()?;
        let rtt = HandshakeRtt { measured: rtt, longest: rtt };
        let entropy = Entropy::new(entropy);
        Some(Opened::branch(codec, parameters.clone(), *table_bytes, rtt, entropy))
    }

    /// The peer has opened a subflow from an address that is under validation from now on.
    pub(super) fn validate(&mut self, now: Instant, subflow: Subflow) {
        self.validating.push((now + VALIDATION_TIME, subflow));
    }

    /// The next subflow that the peer has opened from a validated address.
    pub(super) fn take(&mut self) -> Option<Subflow> {
        self.waiting.pop_front()
    }
}
