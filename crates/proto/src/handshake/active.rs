//! The active end during the handshake: repeats OPEN until a packet under the keys of a RESPONSE
//! arrives, or a limit is reached.

use std::net::SocketAddr;
use std::time::Duration;

use super::pending_responses::{PendingResponse, PendingResponses, ResponseVerdict};
use super::{EarlyControl, HandledAt, Opened, PeerLocation, check_response, propose};
use crate::api::{CloseReason, Route};
use crate::codec::Codec;
use crate::config::{Config, Wire};
use crate::entropy::Entropy;
use crate::negotiated::HandshakeRtt;
use crate::peer_gone::PeerGoneEvidence;
use crate::rtt::without;
use crate::time::{Instant, earliest};
use crate::timers::{HandshakeTimer, Timer, first};
use crate::units::PacketNumber;
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, HEADER_BYTES, PacketType};

/// Schedule of OPEN on each wire: first interval, longest interval, number (§2.1, §4.1). With half
/// of all packets lost in each direction one OPEN in four is answered: ten would all fail once in
/// eighteen times.
const SCHEDULE_998: (Duration, Duration, u8) = (Duration::from_secs(1), Duration::from_secs(60), 8);
const SCHEDULE_SEALED: (Duration, Duration, u8) =
    (Duration::from_millis(500), Duration::from_secs(1), 24);

/// OPENs with full padding; later ones leave most of it out, since the path may have a small MTU
/// (`docs/protocol §4.1`). With one more full OPEN, the handshake on such a path would take 750
/// ms longer.
const PADDED_OPENS: u8 = 1;

/// Time left for the true answer after an unauthenticated REFUSED, and for another client of a busy
/// server (`docs/protocol §4.1`).
const HINT_WAIT: Duration = Duration::from_secs(5);
const BUSY_WAIT: Duration = Duration::from_secs(5);

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

/// Whether a COOKIE makes an OPEN leave before it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CookieRetry {
    /// The next COOKIE does: the newest OPEN left when it was due.
    Ready,
    /// One has arrived: the next OPEN leaves early.
    Due,
    /// None does before another OPEN is due.
    Spent,
}

/// A handshake in progress at the active end.
#[derive(Debug)]
pub(crate) struct Active {
    peer: SocketAddr,
    handshake: Handshake,
    proposal: Parameters,
    open: Vec<u8>,
    wait: Duration,
    longest_wait: Duration,
    left: u8,
    next: Instant,
    /// When the newest OPEN left, and whether it is the only one.
    sent: Option<(Instant, bool)>,
    /// When the first OPEN left, moved on by the time for which this host was suspended.
    first: Option<Instant>,
    /// When the last authentic packet arrived.
    last_authentic_at: Instant,
    /// The text of an unauthenticated REFUSED, and when the first came.
    hint: Option<(Instant, String)>,
    refused: Option<String>,
    /// The authenticated REFUSED of a busy server, and when the first came.
    busy: Option<(Instant, String)>,
    /// The answer violates the protocol (`rfc998`): how, and the ABORT for it.
    fault: Option<(&'static str, Option<Vec<u8>>)>,
    /// ICMP refusals of the peer's host.
    peer_gone: PeerGoneEvidence,
    /// Longest wait for an authenticated peer.
    max_wait: Duration,
    hurry: CookieRetry,
    /// OPENs sent.
    opens_sent: u8,
    twice: bool,
    /// OPEN is too large for the path, as this host or an ICMP message says.
    narrow: bool,
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
        let (wait, longest_wait, left) = match config.wire {
            Wire::Rfc998 => SCHEDULE_998,
            Wire::Sealed => SCHEDULE_SEALED,
        };
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
            wait,
            longest_wait,
            left,
            next: now,
            sent: None,
            first: None,
            last_authentic_at: now,
            hint: None,
            refused: None,
            busy: None,
            fault: None,
            peer_gone: PeerGoneEvidence::new(now, config.wire == Wire::Sealed),
            max_wait: config.death_timer,
            hurry: CookieRetry::Ready,
            opens_sent: 0,
            twice: false,
            narrow: false,
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
            self.peer_gone.on_refused(now, PacketNumber(0));
        }
    }

    /// This host refuses to send OPEN, or a router reports that it is too large. That may be
    /// forged, but the short form of OPEN carries the same. Returns whether there is a short form.
    pub(crate) fn handle_size_limit(&mut self, now: Instant, own_host: bool) -> bool {
        let short = matches!(self.handshake, Handshake::Sealed(_));
        if short && !std::mem::replace(&mut self.narrow, true) && own_host && self.opens_sent > 0 {
            // An OPEN that was not sent does not count.
            self.left += 1;
            self.next = now;
            if self.sent.is_some_and(|(_, once)| once) {
                (self.sent, self.first) = (None, None);
            }
        }
        short
    }

    /// Handles a datagram; `host_stall`: how long this host was suspended while it waited.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        route: Route,
        bytes: &'a mut [u8],
        words: EarlyControl<'_>,
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
                self.handle_response(HandledAt { now, host_stall }, bytes, words)
            }
            Some(PacketType::Cookie) => self.handle_cookie(now, bytes),
            Some(PacketType::Refused) => self.handle_refused(now, bytes, called),
            Some(kind) if !kind.is_handshake() => return self.handle_first(route, bytes),
            _ => false,
        };
        if !authentic {
            return InitiatorEvent::Nothing;
        }
        self.last_authentic_at = now;
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
                    self.fault.get_or_insert((what, Some(abort)));
                    return None;
                }
                let codec = Codec::rfc998(
                    ports,
                    response.checksum,
                    response.buffer_bytes,
                    response.packet_bytes,
                );
                let entropy = Entropy::new(self.entropy.draw());
                let rtt = self.round_trips(now, host_stall);
                let opened = Opened::new(codec, response, 0, entropy);
                let proof = super::return_routability::of(&opened.parameters.client);
                let echo = proof.map(|proof| (proof, self.open_with(ports, proof)));
                Some(Box::new(Opened { rtt, echo, ..opened }))
            }
            Packet998::Refused(reason) | Packet998::Abort(reason) => {
                self.refused = Some(reason);
                None
            }
            _ => None,
        }
    }

    /// The OPEN once more, with the number from RESPONSE, which proves that this end receives at
    /// its address.
    fn open_with(&self, ports: Ports, proof: u32) -> Vec<u8> {
        let client = super::return_routability::with(&self.proposal.client, proof, usize::MAX);
        let proposal = Parameters { client, ..self.proposal.clone() };
        let mut open = Vec::new();
        rfc998::encode_open(ports, &proposal, &mut open);
        open
    }

    /// If this is another RESPONSE to this end's OPEN: the number in it, and the OPEN that returns
    /// it. The answer to that OPEN has no number.
    pub(crate) fn response_again(&self, bytes: &[u8]) -> Option<Option<(u32, Vec<u8>)>> {
        let Handshake::Rfc998 { ports } = &self.handshake else { return None };
        match rfc998::parse(bytes, false, Default::default()) {
            Ok((from, Packet998::Response(response))) => {
                let ours = from == ports.swapped() && response.uid == self.proposal.uid;
                let proof = || super::return_routability::of(&response.client);
                ours.then(|| proof().map(|proof| (proof, self.open_with(*ports, proof))))
            }
            _ => None,
        }
    }

    /// Handles a RESPONSE. Returns whether it is authentic.
    fn handle_response(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        bytes: &[u8],
        words: EarlyControl<'_>,
    ) -> bool {
        let rtt = self.round_trips(now, host_stall);
        let Handshake::Sealed(candidates) = &mut self.handshake else { return false };
        match candidates.check(now, &self.proposal, bytes, rtt, words) {
            ResponseVerdict::Nothing => return false,
            ResponseVerdict::Authentic => self.busy = None,
            ResponseVerdict::Loose => {
                self.refused = Some("its answer is looser than what was proposed".to_owned());
            }
        }
        true
    }

    /// A COOKIE: the next OPEN carries it, as proof of this end's address. It leaves at once, but
    /// only if the cookie differs from the last, so that a replayed COOKIE draws nothing. It does
    /// so only once for each OPEN that was due, so that replays of several old ones draw little.
    fn handle_cookie(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let Handshake::Sealed(candidates) = &self.handshake else { return false };
        let Ok(frame) = sealed::parse_cookie(bytes) else { return false };
        let ours = frame.to == candidates.connection() && frame.uid == self.proposal.uid;
        let open_mac = sealed::open_mac(&self.open);
        if !ours || !candidates.mac_key().verify(&[frame.covered, open_mac], &frame.mac) {
            return false;
        }
        let another = sealed::set_cookie(&mut self.open, &frame.cookie);
        if another && self.hurry == CookieRetry::Ready && self.left > 0 {
            self.hurry = CookieRetry::Due;
            self.next = now;
            self.left += 1;
            // The OPEN before drew the COOKIE, and so no RESPONSE.
            self.sent = self.sent.filter(|(_, once)| !once);
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
            (true, true) => {
                let (first, _) = self.busy.get_or_insert((now, reason.clone()));
                if *first + BUSY_WAIT <= now {
                    self.refused = Some(reason);
                }
            }
            (true, false) => self.refused = Some(reason),
            (false, _) if called => _ = self.hint.get_or_insert((now, reason)),
            (false, _) => {}
        }
        proven
    }

    /// The round trip of an answer, if it can be measured. It can only for an OPEN sent once
    /// (Karn's rule), if no other was due since, or the time `host_stall` is known for which this
    /// host was suspended. Also its upper bound: no answer is older than the first OPEN.
    fn round_trips(&self, now: Instant, host_stall: Duration) -> HandshakeRtt {
        let known = now <= self.next || !host_stall.is_zero();
        let once = self.sent.filter(|(_, once)| *once && known);
        let since = |at| without(now.since(at), host_stall);
        HandshakeRtt { measured: once.map(|(at, _)| since(at)), longest: self.first.map(since) }
    }

    /// A QUIT for each passive end that may have the connection open: the one that OPEN went to
    /// (`rfc998`), those whose RESPONSEs were confirmed (`sealed`).
    pub(crate) fn quits(&mut self, reason: &str) -> Vec<Vec<u8>> {
        match &mut self.handshake {
            Handshake::Rfc998 { ports } if self.sent.is_some() => {
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
        self.fault.as_mut().and_then(|(_, abort)| abort.take())
    }

    /// Whether the opening has failed, and why.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        if let Some((what, _)) = self.fault {
            return Some(CloseReason::Violation(what));
        }
        if let Some(reason) = self.refused.take() {
            return Some(CloseReason::Refused(reason));
        }
        if self.fails_at().is_none_or(|at| at > now) {
            return None;
        }
        Some(match self.busy.take() {
            Some((_, reason)) => CloseReason::Refused(reason),
            None => CloseReason::NoAnswer {
                hint: self.hint.as_ref().map(|(_, hint)| hint.clone()),
                unreachable: self.peer_gone.were_any(),
            },
        })
    }

    /// When the handshake fails. An attacker on the path can forge a hint or an ICMP refusal, so
    /// they leave time for the true answer. Each authentic packet extends the wait, as long as
    /// OPENs are left.
    fn fails_at(&self) -> Option<Instant> {
        earliest([
            (self.left == 0).then_some(self.next),
            self.first.map(|at| at.max(self.last_authentic_at) + self.max_wait),
            self.hint.as_ref().map(|(at, _)| *at + HINT_WAIT),
            self.peer_gone.closed_at(),
        ])
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
        if self.next > now || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let hurried = self.hurry == CookieRetry::Due;
        self.hurry = if hurried { CookieRetry::Spent } else { CookieRetry::Ready };
        self.first = Some(self.first.map_or(now, |first| first + now.since(self.next)));
        self.next = now + self.wait;
        self.wait = (self.wait * 3 / 2).min(self.longest_wait);
        self.sent = Some((now, self.sent.is_none()));
        if let Handshake::Sealed(candidates) = &mut self.handshake {
            candidates.repeat();
            self.twice = self.opens_sent > 0 && !hurried;
        }
        self.opens_sent = self.opens_sent.saturating_add(1);
        Some(self.put_open(out))
    }

    /// Appends the OPEN, in the long or short form.
    fn put_open(&self, out: &mut Vec<u8>) -> usize {
        let sealed = matches!(self.handshake, Handshake::Sealed(_));
        let narrow = self.narrow || self.opens_sent > PADDED_OPENS;
        let short = (sealed && narrow).then(|| sealed::shorten_open(&self.open)).flatten();
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
        let is_over = self.refused.is_some() || self.fault.is_some();
        match timer {
            HandshakeTimer::Failure if is_over => Some(Instant::EPOCH),
            HandshakeTimer::Failure => self.fails_at(),
            HandshakeTimer::Packet => {
                let waits =
                    self.twice || matches!(&self.handshake, Handshake::Sealed(of) if of.is_due());
                let next = Some(self.next).filter(|_| self.left > 0);
                if waits { Some(Instant::EPOCH) } else { next }
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
