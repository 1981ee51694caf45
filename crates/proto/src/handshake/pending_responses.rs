//! The RESPONSEs that an active end has received, until a packet under the keys of one arrives
//! (`docs/protocol §4.3`).
//!
//! An authentic RESPONSE may be old: of a listener that was restarted, or that dropped the
//! half-open connection in a flood and answered the next OPEN with a new one. Only the passive end
//! knows which one counts, and shows it by a packet under its keys.

use crate::codec::{Codec, fits_one_sealed_packet};
use crate::config::{Config, PublicKey, Wire};
use crate::control_fifo::ControlFifo;
use crate::crypto::cipher::Cipher;
use crate::crypto::exporter::ExporterSecret;
use crate::crypto::mac::MacKey;
use crate::crypto::noise::{HandshakeAuth, Initiator};
use crate::crypto::static_pairing::KeyId;
use crate::entropy::Entropy;
use crate::negotiated::HandshakeRtt;
use crate::time::Instant;
use crate::units::PacketNumber;
use crate::wire::packet::{Keepalive, Parameters, RateLimit};
use crate::wire::sealed::{self, HEADER_BYTES, HandshakePayload, KEEPALIVE_BYTES, OPEN_BYTES};

use super::authentication::Credentials;
use super::rate_limit::TokenBucket;
use super::{EarlyControl, agrees};

/// Most RESPONSEs kept; beyond that the oldest is dropped.
const MAX_CANDIDATES: usize = 8;
/// Most RESPONSEs accepted in all. Each is accepted once: its keys are always the same, and a
/// second codec with them would reuse packet numbers.
const MAX_ACCEPTED: usize = 256;
/// Bytes of the ephemeral key at the start of message 2 of the handshake.
const EPHEMERAL_BYTES: usize = 32;
/// Most RESPONSEs checked at once: any sender can make invalid ones.
const MAX_AT_ONCE: u32 = 64;
/// Most confirming packets that copies of one RESPONSE draw: any sender can repeat it. One more
/// leaves with each OPEN, since this end may have moved.
const MAX_CONFIRMS: usize = 64;

/// The verdict on a RESPONSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseVerdict {
    /// It is not authentic, or cannot be checked now.
    Nothing,
    /// It is authentic.
    Authentic,
    /// It is authentic, and looser than the OPEN.
    Loose,
}

/// The state to read the answers to an OPEN, and the answers.
#[derive(Debug)]
pub(super) struct PendingResponses {
    proof: Credentials,
    key: Option<KeyId>,
    clear: [u8; HEADER_BYTES],
    payload: Vec<u8>,
    draw: [u8; 32],
    initiator: Initiator,
    mac_key: MacKey,
    connection: u32,
    cipher: Cipher,
    table_bytes: u32,
    bucket: TokenBucket,
    all: Vec<PendingResponse>,
    /// The ephemeral keys of accepted RESPONSEs, the newest last.
    accepted: Vec<[u8; EPHEMERAL_BYTES]>,
}

/// An accepted RESPONSE.
#[derive(Debug)]
pub(super) struct PendingResponse {
    /// Identifies a repetition.
    noise: Vec<u8>,
    pub(super) codec: Codec,
    pub(super) root: ExporterSecret,
    pub(super) parameters: Parameters,
    pub(super) table_bytes: u32,
    pub(super) rtt: HandshakeRtt,
    /// The confirming packets that have left.
    pub(super) sent: Vec<(Instant, PacketNumber, usize)>,
    due: bool,
    /// A receiver's early control messages, which follow each confirming packet. No more bytes are
    /// sent than the RESPONSE had: it may be a replay of an old one.
    early_control: Option<ControlFifo>,
    early_control_due: bool,
    /// When they left first, and whether only once.
    pub(super) early_control_sent: Option<(Instant, bool)>,
}

impl PendingResponses {
    /// The state that reads the answers, and the OPEN.
    pub(super) fn open(
        config: &Config,
        proposal: &Parameters,
        entropy: &mut Entropy,
    ) -> (Self, Vec<u8>) {
        let proof = Credentials::of(config);
        let connection = entropy.draw_u32();
        let (mac_key, key) = match &proof {
            Credentials::Secret(secret) => (MacKey::from_secret(secret), None),
            Credentials::Identity(of) => (of.bond.mac_key().clone(), Some(of.bond.id())),
        };
        let offer = HandshakePayload {
            parameters: proposal.clone(),
            ciphers: config.cipher.offer(),
            table_bytes: config.table_bytes,
        };
        let clear = match key {
            None => sealed::open_clear(connection, proposal.uid),
            Some(_) => sealed::key_open_clear(connection, proposal.uid),
        };
        let mut payload = Vec::new();
        sealed::encode_offer(&offer, &mut payload);
        let draw = entropy.draw();
        let (initiator, noise) = start(proof.means(), &clear, key, draw, &payload);
        let open = sealed::build_open(&clear, key, &noise, |parts| mac_key.mac(parts));
        let candidates = Self {
            proof,
            key,
            clear,
            payload,
            draw,
            initiator,
            mac_key,
            connection,
            cipher: config.cipher,
            table_bytes: config.table_bytes,
            bucket: TokenBucket::full(MAX_AT_ONCE),
            all: Vec::new(),
            accepted: Vec::new(),
        };
        (candidates, open)
    }

    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    /// The passive end's key, where the ends have keys.
    pub(super) fn peer_key(&self) -> Option<PublicKey> {
        match &self.proof {
            Credentials::Secret(_) => None,
            Credentials::Identity(calling) => Some(calling.bond.peer()),
        }
    }

    pub(super) fn mac_key(&self) -> &MacKey {
        &self.mac_key
    }

    /// Checks a RESPONSE to the OPEN with this proposal; with the time since the newest OPEN, if it
    /// was the only one, and since the first.
    pub(super) fn check(
        &mut self,
        now: Instant,
        proposal: &Parameters,
        bytes: &[u8],
        rtt: HandshakeRtt,
        early_control: EarlyControl<'_>,
    ) -> ResponseVerdict {
        let Ok(frame) = sealed::parse_response(bytes) else { return ResponseVerdict::Nothing };
        if frame.to != self.connection || frame.uid != proposal.uid {
            return ResponseVerdict::Nothing;
        }
        if let Some(known) = self.all.iter_mut().find(|known| known.noise == frame.noise) {
            known.due |= known.sent.len() < MAX_CONFIRMS;
            return ResponseVerdict::Authentic;
        }
        let Some(ephemeral) = frame.noise.first_chunk().copied() else {
            return ResponseVerdict::Nothing;
        };
        let spent = self.accepted.contains(&ephemeral) || self.accepted.len() >= MAX_ACCEPTED;
        if spent || !self.bucket.take(now) {
            return ResponseVerdict::Nothing;
        }
        let Ok((payload, keys)) = self.initiator.finish(frame.noise) else {
            return ResponseVerdict::Nothing;
        };
        // A handshake state reads one answer, and a better one may follow.
        let means = self.proof.means();
        (self.initiator, _) = start(means, &self.clear, self.key, self.draw, &self.payload);
        // The payload is authentic from here on, with the clear bytes in it. The clear bytes around
        // it are not: they may have been changed on the path.
        let Some((clear, offer)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return ResponseVerdict::Nothing;
        };
        let rebuilt = sealed::build_response(clear, frame.noise);
        let Ok(frame) = sealed::parse_response(&rebuilt) else { return ResponseVerdict::Nothing };
        let Ok(offer) = sealed::parse_offer(frame.uid, offer) else {
            return ResponseVerdict::Nothing;
        };
        let chosen = Cipher::from_bit(offer.ciphers).filter(|c| self.cipher.offer() & c.bit() != 0);
        let fair = frame.to == self.connection
            && offer.table_bytes <= self.table_bytes
            && agrees(Wire::Sealed, proposal, &offer.parameters);
        let Some(chosen) = chosen.filter(|_| fair) else { return ResponseVerdict::Loose };
        let codec = Codec::sealed(
            self.connection,
            frame.connection,
            chosen,
            keys.initiator_to_responder,
            keys.responder_to_initiator,
        );
        if self.all.len() >= MAX_CANDIDATES {
            self.all.remove(0);
        }
        self.accepted.push(ephemeral);
        self.all.push(PendingResponse {
            noise: frame.noise.to_vec(),
            early_control: early_control(&offer.parameters, offer.table_bytes).filter(
                |early_control| {
                    fits_one_sealed_packet(
                        early_control,
                        bytes.len().saturating_sub(KEEPALIVE_BYTES),
                    )
                },
            ),
            early_control_due: false,
            early_control_sent: None,
            codec,
            root: ExporterSecret::of(&keys),
            parameters: offer.parameters,
            table_bytes: offer.table_bytes,
            rtt,
            sent: Vec::new(),
            due: true,
        });
        ResponseVerdict::Authentic
    }

    /// Takes the RESPONSE under whose keys this packet is.
    pub(super) fn take_confirmed(&mut self, bytes: &[u8]) -> Option<PendingResponse> {
        let header = sealed::parse_header(bytes).ok()?;
        if header.connection != self.connection {
            return None;
        }
        let at = self.all.iter().position(|candidate| candidate.codec.authenticates(bytes))?;
        Some(self.all.swap_remove(at))
    }

    /// Confirms all of them again.
    pub(super) fn repeat(&mut self) {
        self.all.iter_mut().for_each(|candidate| candidate.due = true);
    }

    /// Whether a confirming packet is due.
    pub(super) fn is_due(&self) -> bool {
        self.all.iter().any(PendingResponse::is_due)
    }

    /// Appends the next confirming packet. The passive end answers it, so that this end can open.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let candidate = self.all.iter_mut().find(|candidate| candidate.is_due())?;
        let start = out.len();
        if std::mem::take(&mut candidate.early_control_due)
            && let Some(mut early_control) = candidate.early_control.clone()
        {
            candidate.codec.put_control(
                now,
                out,
                OPEN_BYTES,
                (false, RateLimit::Unset),
                None,
                &mut early_control,
            );
            let before = candidate.early_control_sent.map(|(at, _)| (at, false));
            candidate.early_control_sent = Some(before.unwrap_or((now, true)));
            return Some(out.len() - start);
        }
        candidate.due = false;
        candidate.early_control_due = candidate.early_control.is_some();
        let ask = Keepalive { answer_wanted: true, ..Keepalive::default() };
        let number = candidate.codec.put_keepalive(out, ask);
        let len = out.len() - start;
        candidate.sent.push((now, number, len));
        Some(len)
    }

    /// A QUIT under the keys of each confirmed RESPONSE: its passive end may have the connection
    /// open.
    pub(super) fn quits(&mut self, reason: &str) -> Vec<Vec<u8>> {
        let confirmed = self.all.iter_mut().filter(|candidate| !candidate.sent.is_empty());
        let quit = |candidate: &mut PendingResponse| {
            let mut quit = Vec::new();
            candidate.codec.put_quit(&mut quit, reason);
            quit
        };
        confirmed.map(quit).collect()
    }

    /// Whether `quote` is the beginning of a confirming packet.
    pub(super) fn quoted(&self, quote: &[u8]) -> bool {
        self.all.iter().any(|candidate| candidate.codec.quoted(quote).is_some())
    }
}

impl PendingResponse {
    fn is_due(&self) -> bool {
        self.early_control_due || self.due
    }
}

fn start(
    means: HandshakeAuth<'_>,
    clear: &[u8; HEADER_BYTES],
    key: Option<KeyId>,
    draw: [u8; 32],
    payload: &[u8],
) -> (Initiator, Vec<u8>) {
    let started = Initiator::start(means, &super::prologue(clear, key), draw, payload);
    // Fails only for a payload longer than a Noise message, and this one is bounded far below; or
    // with an invalid peer's key, of which no pairing could be made.
    started.expect("a bounded payload fits a handshake message")
}
