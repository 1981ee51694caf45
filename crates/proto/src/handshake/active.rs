//! The active end during the handshake: repeats OPEN until a packet under the keys of a RESPONSE
//! arrives, or a limit is reached.

use std::net::SocketAddr;

use super::open_failure::OpenFailure;
use super::open_schedule::OpenSchedule;
use super::pending_responses::{PendingResponse, PendingResponses, ResponseVerdict};
use super::return_routability::ProofEcho;
use super::{EarlyControl, HandledAt, Opened, PeerLocation, check_response, propose};
use crate::api::{CloseReason, Route};
use crate::codec::Codec;
use crate::config::{Config, Wire};
use crate::entropy::Entropy;
use crate::time::Instant;
use crate::timers::{HandshakeTimer, Timer, first};
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, HEADER_BYTES, PacketType};

/// The outcome of a datagram.
pub(crate) enum InitiatorEvent<'a> {
    /// It was ignored.
    Nothing,
    /// It was authentic.
    Authentic,
    /// The connection is open; the datagram, if handed back, is its first.
    Opened(Box<Opened>, Option<&'a mut [u8]>),
}

/// The state needed to read the answer.
#[derive(Debug)]
enum Handshake {
    Rfc998 { ports: Ports },
    Sealed(Box<PendingResponses>),
}

/// A handshake in progress at the active end.
#[derive(Debug)]
pub(crate) struct Active {
    peer: SocketAddr,
    handshake: Handshake,
    proposal: Parameters,
    open: Vec<u8>,
    schedule: OpenSchedule,
    failure: OpenFailure,
    /// The newest OPEN leaves a second time.
    twice: bool,
    entropy: Entropy,
}

impl Active {
    pub(crate) fn start(
        config: &Config,
        peer: SocketAddr,
        now: Instant,
        mut entropy: Entropy,
    ) -> Self {
        let proposal = propose(config, entropy.draw_u32());
        let (handshake, open) = match config.wire {
            Wire::Rfc998 => open_rfc998(config, &proposal),
            Wire::Sealed => {
                let (candidates, open) = PendingResponses::open(config, &proposal, &mut entropy);
                (Handshake::Sealed(Box::new(candidates)), open)
            }
        };
        Self {
            peer,
            handshake,
            proposal,
            open,
            schedule: OpenSchedule::new(now, config.wire),
            failure: OpenFailure::new(now, config.death_timer, config.wire == Wire::Sealed),
            twice: false,
            entropy,
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection id in answers, where the wire has one.
    pub(crate) fn own_id(&self) -> Option<u32> {
        match &self.handshake {
            Handshake::Rfc998 { .. } => None,
            Handshake::Sealed(candidates) => Some(candidates.connection()),
        }
    }

    /// The peer's host refused the packet that begins with `quote` (ICMP). Its clear bytes prove
    /// that the author saw it.
    pub(crate) fn handle_unreachable(&mut self, now: Instant, quote: &[u8]) {
        let ours = match &self.handshake {
            Handshake::Rfc998 { .. } => true,
            Handshake::Sealed(candidates) => {
                let open =
                    quote.len() >= HEADER_BYTES && self.open.starts_with(&quote[..HEADER_BYTES]);
                open || candidates.quoted(quote)
            }
        };
        if ours {
            self.failure.on_unreachable(now);
        }
    }

    /// This host refuses to send OPEN, or a router reports that it is too large. That may be
    /// forged, but the short form of OPEN carries the same. Returns whether there is a short form.
    pub(crate) fn handle_size_limit(&mut self, now: Instant, own_host: bool) -> bool {
        let short = matches!(self.handshake, Handshake::Sealed(_));
        if short {
            self.schedule.on_too_large(now, own_host);
        }
        short
    }

    /// Handles a datagram; `host_stall`: how long this host was suspended while it waited.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        route: Route,
        bytes: &'a mut [u8],
        early_control: EarlyControl<'_>,
    ) -> InitiatorEvent<'a> {
        let called = route.peer == self.peer;
        if let Handshake::Rfc998 { .. } = &self.handshake {
            let opened =
                called.then(|| self.handle_rfc998(HandledAt { now, host_stall }, bytes)).flatten();
            return opened
                .map_or(InitiatorEvent::Nothing, |opened| InitiatorEvent::Opened(opened, None));
        }
        // An authentic packet may come from another address: a passive end may move too.
        let authentic = match sealed::kind_of(bytes) {
            Some(PacketType::Response) => {
                self.handle_response(HandledAt { now, host_stall }, bytes, early_control)
            }
            Some(PacketType::Cookie) => self.handle_cookie(now, bytes),
            Some(PacketType::Refused) => self.handle_refused(now, bytes, called),
            Some(kind) if !kind.is_handshake() => return self.handle_first(route, bytes),
            _ => false,
        };
        if !authentic {
            return InitiatorEvent::Nothing;
        }
        self.failure.on_authentic(now);
        InitiatorEvent::Authentic
    }

    /// A packet under transport keys: the passive end is alive, and has chosen this RESPONSE.
    fn handle_first<'a>(&mut self, route: Route, bytes: &'a mut [u8]) -> InitiatorEvent<'a> {
        let Handshake::Sealed(candidates) = &mut self.handshake else {
            return InitiatorEvent::Nothing;
        };
        let Some(candidate) = candidates.take_confirmed(bytes) else {
            return InitiatorEvent::Nothing;
        };
        let PendingResponse { codec, root, parameters, table_bytes, rtt, sent, .. } = candidate;
        let early_control_sent = candidate.early_control_sent;
        let entropy = Entropy::new(self.entropy.draw());
        let opened = Opened::new(codec, parameters, table_bytes, entropy);
        let location = if route.peer == self.peer {
            PeerLocation::Validated
        } else {
            // OPEN went to another address, and the peer may still be there.
            let called = Route { peer: self.peer, local: None };
            PeerLocation::OneOf(vec![(called, self.open.len() as u64), (route, 0)])
        };
        let unconfirmed = sent.is_empty();
        let peer_key = candidates.peer_key();
        let opened =
            Opened { rtt, unconfirmed, early_control_sent, sent_before: sent, location, ..opened };
        let opened = Opened { peer_key, root: Some(root), ..opened };
        InitiatorEvent::Opened(Box::new(opened), Some(bytes))
    }

    fn handle_rfc998(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        bytes: &[u8],
    ) -> Option<Box<Opened>> {
        let Handshake::Rfc998 { ports } = &self.handshake else { return None };
        let ports = *ports;
        let (from, packet) = rfc998::parse(bytes, false, Default::default()).ok()?;
        if from != ports.swapped() {
            return None;
        }
        match packet {
            // The answer to an earlier OPEN: the UID "prevents the initiator from confusing" the
            // two (RFC 998 §5.1). The right one may still come.
            Packet998::Response(response) if response.uid != self.proposal.uid => None,
            Packet998::Response(response) => {
                if let Err(what) = check_response(Wire::Rfc998, &self.proposal, &response) {
                    let mut abort = Vec::new();
                    rfc998::encode_abort(ports, what, &mut abort);
                    self.failure.on_fault(what, abort);
                    return None;
                }
                let codec = Codec::rfc998(
                    ports,
                    response.checksum,
                    response.buffer_bytes,
                    response.packet_bytes,
                );
                let entropy = Entropy::new(self.entropy.draw());
                let rtt = self.schedule.round_trips(now, host_stall);
                let opened = Opened::new(codec, response, 0, entropy);
                let proof = super::return_routability::of(&opened.parameters.client);
                let echo = proof.map(|proof| self.open_with(ports, proof));
                Some(Box::new(Opened { rtt, echo, ..opened }))
            }
            Packet998::Refused(reason) | Packet998::Abort(reason) => {
                self.failure.on_refused(reason);
                None
            }
            _ => None,
        }
    }

    /// The OPEN once more, with the number from RESPONSE, which proves that this end receives at
    /// its address.
    fn open_with(&self, ports: Ports, proof: u32) -> ProofEcho {
        let client = super::return_routability::with(&self.proposal.client, proof, usize::MAX);
        let proposal = Parameters { client, ..self.proposal.clone() };
        let mut open = Vec::new();
        rfc998::encode_open(ports, &proposal, &mut open);
        ProofEcho { proof, open }
    }

    /// If this is another RESPONSE to this end's OPEN: the number in it, and the OPEN that returns
    /// it. The answer to that OPEN has no number.
    pub(crate) fn response_again(&self, bytes: &[u8]) -> Option<Option<ProofEcho>> {
        let Handshake::Rfc998 { ports } = &self.handshake else { return None };
        match rfc998::parse(bytes, false, Default::default()) {
            Ok((from, Packet998::Response(response))) => {
                let ours = from == ports.swapped() && response.uid == self.proposal.uid;
                let proof = || super::return_routability::of(&response.client);
                ours.then(|| proof().map(|proof| self.open_with(*ports, proof)))
            }
            _ => None,
        }
    }

    /// Handles a RESPONSE. Returns whether it is authentic.
    fn handle_response(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        bytes: &[u8],
        early_control: EarlyControl<'_>,
    ) -> bool {
        let rtt = self.schedule.round_trips(now, host_stall);
        let Handshake::Sealed(candidates) = &mut self.handshake else { return false };
        match candidates.check(now, &self.proposal, bytes, rtt, early_control) {
            ResponseVerdict::Nothing => return false,
            ResponseVerdict::Authentic => self.failure.on_response(),
            ResponseVerdict::Loose => {
                let reason = "its answer is looser than what was proposed";
                self.failure.on_refused(reason.to_owned());
            }
        }
        true
    }

    /// A COOKIE: the next OPEN carries it, as proof of this end's address. It leaves at once, but
    /// only if the cookie differs from the last, so that a replayed COOKIE draws nothing.
    fn handle_cookie(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let Handshake::Sealed(candidates) = &self.handshake else { return false };
        let Ok(frame) = sealed::parse_cookie(bytes) else { return false };
        let ours = frame.to == candidates.connection() && frame.uid == self.proposal.uid;
        let open_mac = sealed::open_mac(&self.open);
        if !ours || !candidates.mac_key().verify(&[frame.covered, open_mac], &frame.mac) {
            return false;
        }
        if sealed::set_cookie(&mut self.open, &frame.cookie) {
            self.schedule.on_cookie(now);
        }
        true
    }

    /// Handles a REFUSED; `called`: it came from the address that OPEN goes to. Returns whether it
    /// is authentic.
    fn handle_refused(&mut self, now: Instant, bytes: &[u8], called: bool) -> bool {
        let Handshake::Sealed(candidates) = &self.handshake else { return false };
        let Ok(frame) = sealed::parse_refused(bytes) else { return false };
        if frame.to != candidates.connection() || frame.uid != self.proposal.uid {
            return false;
        }
        let reason = String::from_utf8_lossy(frame.reason).into_owned();
        let open_mac = sealed::open_mac(&self.open);
        let proven = candidates.mac_key().verify(&[frame.covered, open_mac], &frame.mac);
        match (proven, frame.for_now) {
            (true, true) => self.failure.on_busy(now, reason),
            (true, false) => self.failure.on_refused(reason),
            (false, _) if called => self.failure.on_hint(now, reason),
            (false, _) => {}
        }
        proven
    }

    /// A QUIT for each passive end that may have the connection open: the one that OPEN went to
    /// (`rfc998`), those whose RESPONSEs were confirmed (`sealed`).
    pub(crate) fn quits(&mut self, reason: &str) -> Vec<Vec<u8>> {
        match &mut self.handshake {
            Handshake::Rfc998 { ports } if self.schedule.has_begun() => {
                let mut quit = Vec::new();
                rfc998::encode_quit(*ports, reason, &mut quit);
                vec![quit]
            }
            Handshake::Rfc998 { .. } => Vec::new(),
            Handshake::Sealed(candidates) => candidates.quits(reason),
        }
    }

    /// The ABORT that answers a bad RESPONSE, once.
    pub(crate) fn take_abort(&mut self) -> Option<Vec<u8>> {
        self.failure.take_abort()
    }

    /// Whether the opening has failed, and why.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        let is_due = self.fails_at().is_some_and(|at| at <= now);
        self.failure.take(is_due)
    }

    fn fails_at(&self) -> Option<Instant> {
        self.failure.fails_at(self.schedule.first(), self.schedule.overdue_at())
    }

    /// Appends the packet that is due: an OPEN, or one that confirms a RESPONSE.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        if let Handshake::Sealed(candidates) = &mut self.handshake
            && let Some(len) = candidates.poll_transmit(now, out)
        {
            return Some(len);
        }
        if std::mem::take(&mut self.twice) {
            return Some(self.put_open(out));
        }
        let repeats = self.schedule.take_due(now)?;
        if let Handshake::Sealed(candidates) = &mut self.handshake {
            candidates.repeat();
            self.twice = repeats;
        }
        Some(self.put_open(out))
    }

    /// Appends the OPEN, in the long or short form.
    fn put_open(&self, out: &mut Vec<u8>) -> usize {
        let sealed = matches!(self.handshake, Handshake::Sealed(_));
        let short = (sealed && self.schedule.is_short())
            .then(|| sealed::shorten_open(&self.open))
            .flatten();
        let open = short.as_deref().unwrap_or(&self.open);
        out.extend_from_slice(open);
        open.len()
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self) -> Option<(Timer, Instant)> {
        let all = [HandshakeTimer::Packet, HandshakeTimer::Failure];
        first(all.map(|timer| (timer.into(), self.deadline(timer))))
    }

    /// When `timer` expires, if it is set.
    fn deadline(&self, timer: HandshakeTimer) -> Option<Instant> {
        match timer {
            HandshakeTimer::Failure if self.failure.is_final() => Some(Instant::EPOCH),
            HandshakeTimer::Failure => self.fails_at(),
            HandshakeTimer::Packet => {
                let waits =
                    self.twice || matches!(&self.handshake, Handshake::Sealed(of) if of.is_due());
                if waits { Some(Instant::EPOCH) } else { self.schedule.due() }
            }
            HandshakeTimer::Subflow => None,
        }
    }
}

fn open_rfc998(config: &Config, proposal: &Parameters) -> (Handshake, Vec<u8>) {
    let ports = Ports { local: config.ports.0, foreign: config.ports.1 };
    let mut open = Vec::new();
    rfc998::encode_open(ports, proposal, &mut open);
    (Handshake::Rfc998 { ports }, open)
}
