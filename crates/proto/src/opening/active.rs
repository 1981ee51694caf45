//! The active end before it is open: OPEN, again and again, until RESPONSE or a limit.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Opened, agrees, propose};
use crate::config::{Config, Wire};
use crate::crypto::cipher::Cipher;
use crate::crypto::mac::MacKey;
use crate::crypto::noise::Initiator;
use crate::entropy::Entropy;
use crate::link::Link;
use crate::machine::Reason;
use crate::time::{Instant, earliest};
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, Kind, Offer};

/// Schedule of OPEN on each wire: first wait, longest wait, how many (§2.1, §4.1).
const SCHEDULE_998: (Duration, Duration, u8) = (Duration::from_secs(1), Duration::from_secs(60), 8);
const SCHEDULE_SEALED: (Duration, Duration, u8) =
    (Duration::from_millis(500), Duration::from_secs(3), 10);

/// How long the true answer may still take after an unproven REFUSED, and after the peer's host
/// refused a packet (`docs/protocol.md §4.1`).
const HINT_PATIENCE: Duration = Duration::from_secs(5);
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(10);

/// What is needed to read the answer.
#[derive(Debug)]
enum Handshake {
    Rfc998 {
        ports: Ports,
    },
    Sealed {
        initiator: Box<Initiator>,
        connection: u32,
        mac_key: MacKey,
        cipher: Cipher,
        table_bytes: u32,
    },
}

/// An OPEN on its way.
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
    /// When the newest OPEN left, and whether it was the only one.
    sent: Option<(Instant, bool)>,
    /// When the first left.
    first: Option<Instant>,
    /// What somebody who could not prove it said, and when first.
    hint: Option<(Instant, String)>,
    refused: Option<String>,
    /// When the peer's host first refused a packet.
    unreachable: Option<Instant>,
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
            Wire::Sealed => open_sealed(config, &proposal, &mut entropy),
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
            hint: None,
            refused: None,
            unreachable: None,
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection id that answers carry, where the wire has one.
    pub(crate) fn own_id(&self) -> Option<u32> {
        match self.handshake {
            Handshake::Rfc998 { .. } => None,
            Handshake::Sealed { connection, .. } => Some(connection),
        }
    }

    pub(crate) fn handle_unreachable(&mut self, now: Instant) {
        self.unreachable.get_or_insert(now);
    }

    /// A datagram of the peer's; answers an open connection if it is the RESPONSE.
    pub(crate) fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> Option<Box<Opened>> {
        match &self.handshake {
            Handshake::Rfc998 { .. } => self.handle_rfc998(now, bytes),
            Handshake::Sealed { .. } => self.handle_sealed(now, bytes),
        }
    }

    fn handle_rfc998(&mut self, now: Instant, bytes: &[u8]) -> Option<Box<Opened>> {
        let Handshake::Rfc998 { ports } = &self.handshake else { return None };
        let ports = *ports;
        let (from, packet) = rfc998::parse(bytes, false, Default::default()).ok()?;
        if from != ports.swapped() {
            return None;
        }
        match packet {
            Packet998::Response(response) if agrees(Wire::Rfc998, &self.proposal, &response) => {
                let link = Link::rfc998(
                    ports,
                    response.checksum,
                    response.buffer_bytes,
                    response.packet_bytes,
                );
                let opened = Opened::new(link, response, 0, self.round_trip(now));
                Some(Box::new(Opened { longest_rtt: self.longest_round_trip(now), ..opened }))
            }
            Packet998::Response(_) => {
                self.refused = Some("its answer is looser than what was proposed".to_owned());
                None
            }
            Packet998::Refused(reason) | Packet998::Abort(reason) => {
                self.refused = Some(reason);
                None
            }
            _ => None,
        }
    }

    fn handle_sealed(&mut self, now: Instant, bytes: &[u8]) -> Option<Box<Opened>> {
        match sealed::kind_of(bytes)? {
            Kind::Response => self.handle_response(now, bytes),
            Kind::Cookie => {
                self.handle_cookie(bytes);
                None
            }
            Kind::Refused => {
                self.handle_refused(now, bytes);
                None
            }
            _ => None,
        }
    }

    fn handle_response(&mut self, now: Instant, bytes: &[u8]) -> Option<Box<Opened>> {
        let rtt = self.round_trip(now);
        let Handshake::Sealed { initiator, connection, cipher, table_bytes, .. } =
            &mut self.handshake
        else {
            return None;
        };
        let frame = sealed::parse_response(bytes).ok()?;
        if frame.to != *connection || frame.uid != self.proposal.uid {
            return None;
        }
        let (payload, keys) = initiator.finish(frame.noise).ok()?;
        // From here on the words are the peer's own: it holds the secret. So are the clear bytes in
        // the payload, but not those around it: somebody may have changed them on the way, and the
        // message that proves itself comes only once.
        let (clear, offer) = payload.split_first_chunk::<16>()?;
        let told = sealed::build_response(clear, frame.noise);
        let frame = sealed::parse_response(&told).ok()?;
        let offer = sealed::parse_offer(frame.uid, offer).ok()?;
        let chosen = Cipher::from_bit(offer.ciphers).filter(|c| cipher.offer() & c.bit() != 0);
        let fair = frame.to == *connection
            && offer.table_bytes <= *table_bytes
            && agrees(Wire::Sealed, &self.proposal, &offer.parameters);
        let Some(chosen) = chosen.filter(|_| fair) else {
            self.refused = Some("its answer is looser than what was proposed".to_owned());
            return None;
        };
        let link = Link::sealed(
            *connection,
            frame.connection,
            chosen,
            keys.initiator_to_responder,
            keys.responder_to_initiator,
        );
        let longest_rtt = self.longest_round_trip(now);
        let opened = Opened::new(link, offer.parameters, offer.table_bytes, rtt);
        Some(Box::new(Opened { longest_rtt, ..opened }))
    }

    /// Under load the passive end asks for proof of the address: the next OPEN brings the cookie.
    /// It
    /// leaves when it is due anyway: a replayed COOKIE must not draw anything.
    fn handle_cookie(&mut self, bytes: &[u8]) {
        let Handshake::Sealed { connection, mac_key, .. } = &self.handshake else { return };
        let Ok(frame) = sealed::parse_cookie(bytes) else { return };
        let ours = frame.to == *connection && frame.uid == self.proposal.uid;
        let open_mac = sealed::open_mac(&self.open);
        if ours && mac_key.verify(&[frame.covered, open_mac], &frame.mac) {
            sealed::set_cookie(&mut self.open, &frame.cookie);
        }
    }

    fn handle_refused(&mut self, now: Instant, bytes: &[u8]) {
        let Handshake::Sealed { connection, mac_key, .. } = &self.handshake else { return };
        let Ok(frame) = sealed::parse_refused(bytes) else { return };
        if frame.to != *connection || frame.uid != self.proposal.uid {
            return;
        }
        let reason = String::from_utf8_lossy(frame.reason).into_owned();
        if mac_key.verify(&[frame.covered, sealed::open_mac(&self.open)], &frame.mac) {
            self.refused = Some(reason);
        } else {
            self.hint.get_or_insert((now, reason));
        }
    }

    /// Karn's rule: only an OPEN sent once tells the round trip.
    fn round_trip(&self, now: Instant) -> Option<Duration> {
        self.sent.filter(|(_, once)| *once).map(|(at, _)| now.since(at))
    }

    /// However often it was sent: no answer is older than the first OPEN.
    fn longest_round_trip(&self, now: Instant) -> Option<Duration> {
        self.first.map(|at| now.since(at))
    }

    /// Whether the opening has failed, and why.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Reason> {
        if let Some(reason) = self.refused.take() {
            return Some(Reason::Refused(reason));
        }
        self.deadline().is_some_and(|at| at <= now).then(|| Reason::NoAnswer {
            hint: self.hint.as_ref().map(|(_, hint)| hint.clone()),
            unreachable: self.unreachable.is_some(),
        })
    }

    /// When there is no more hope. A hint or a refusal of the host may be forged by somebody on the
    /// path; but the true answer would come in the time they leave it.
    fn deadline(&self) -> Option<Instant> {
        earliest([
            (self.left == 0).then_some(self.next),
            self.hint.as_ref().map(|(at, _)| *at + HINT_PATIENCE),
            self.unreachable.map(|at| at + UNREACHABLE_PATIENCE),
        ])
    }

    /// The OPEN, if it is due.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<&[u8]> {
        if self.next > now || self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.next = now + self.wait;
        self.wait = (self.wait * 3 / 2).min(self.longest_wait);
        self.sent = Some((now, self.sent.is_none()));
        self.first.get_or_insert(now);
        Some(&self.open)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.refused.is_some() {
            return Some(Instant::EPOCH);
        }
        earliest([Some(self.next).filter(|_| self.left > 0), self.deadline()])
    }
}

fn open_rfc998(config: &Config, proposal: &Parameters) -> (Handshake, Vec<u8>) {
    let ports = Ports { local: config.ports.0, foreign: config.ports.1 };
    let mut open = Vec::new();
    rfc998::encode_open(ports, proposal, &mut open);
    (Handshake::Rfc998 { ports }, open)
}

fn open_sealed(
    config: &Config,
    proposal: &Parameters,
    entropy: &mut Entropy,
) -> (Handshake, Vec<u8>) {
    let secret = config.secret.clone().unwrap_or_default();
    let connection = entropy.draw_u32();
    let mac_key = MacKey::from_secret(&secret);
    let offer = Offer {
        parameters: proposal.clone(),
        ciphers: config.cipher.offer(),
        table_bytes: config.table_bytes,
    };
    let clear = sealed::open_clear(connection, proposal.uid);
    let mut payload = Vec::new();
    sealed::encode_offer(&offer, &mut payload);
    let draw = entropy.draw();
    let started = Initiator::start(&secret, &super::prologue(&clear), draw, &payload);
    // Fails only for a payload longer than any Noise message; ours is bounded far below.
    let (initiator, noise) = started.expect("a bounded payload fits a handshake message");
    let open = sealed::build_open(&clear, &noise, |parts| mac_key.mac(parts));
    let handshake = Handshake::Sealed {
        initiator: Box::new(initiator),
        connection,
        mac_key,
        cipher: config.cipher,
        table_bytes: config.table_bytes,
    };
    (handshake, open)
}
