//! The passive end: judges OPENs from cheap to dear, keeps unconfirmed peers in a small table, and
//! never sends an address more bytes than came from it (`docs/protocol.md §4.2, §4.3`).

use std::net::SocketAddr;
use std::time::Duration;

use super::{Opened, settle};
use crate::config::{Config, Wire};
use crate::crypto::cipher::Cipher;
use crate::crypto::mac::{CookieJar, MacKey};
use crate::crypto::noise::{Responder, respond};
use crate::entropy::Entropy;
use crate::link::Link;
use crate::time::Instant;
use crate::units::ControlSeq;
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, Kind, Offer, OpenFrame};

/// Unconfirmed openings kept at once.
const SLOTS: usize = 16;
/// From this many on, an OPEN must bring a cookie.
const COOKIE_FROM: usize = SLOTS / 2;
/// An unconfirmed opening is forgotten after this.
const SLOT_LIFE: Duration = Duration::from_secs(60);

/// What to do about a datagram.
pub(crate) enum Answer<'a> {
    /// It was nothing.
    Nothing,
    /// Send this back, no longer than what came.
    Reply(Vec<u8>),
    /// A connection is open; the datagram, if handed back, is its first.
    Opened(Opened, Option<&'a mut [u8]>),
}

/// A handshake answered and not confirmed yet. It belongs to one OPEN from one address: a copy from
/// elsewhere gets a slot and keys of its own, so that nothing the true peer says confirms an
/// address
/// that is not its own, and draws data there.
#[derive(Debug)]
struct Slot {
    address: SocketAddr,
    open_mac: [u8; 16],
    own_id: u32,
    response: Vec<u8>,
    link: Link,
    parameters: Parameters,
    table_bytes: u32,
    created: Instant,
    /// RESPONSE was sent once only: the time since is a round trip.
    once: bool,
}

/// A passive end.
#[derive(Debug)]
pub(crate) struct Passive {
    entropy: Entropy,
    mac_key: MacKey,
    cookies: CookieJar,
    slots: Vec<Slot>,
    /// The MAC of the OPEN whose connection stands, and the RESPONSE to repeat for it.
    standing: Option<Standing>,
}

#[derive(Debug)]
enum Standing {
    Sealed { address: SocketAddr, open_mac: [u8; 16], response: Vec<u8> },
    Rfc998 { address: SocketAddr, ports: Ports, uid: u32, response: Vec<u8> },
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Reply(packet) => write!(f, "Reply({} bytes)", packet.len()),
            Self::Opened(..) => f.write_str("Opened"),
        }
    }
}

impl Passive {
    pub(crate) fn new(config: &Config, mut entropy: Entropy) -> Self {
        let secret = config.secret.clone().unwrap_or_default();
        Self {
            mac_key: MacKey::from_secret(&secret),
            cookies: CookieJar::new(entropy.draw()),
            entropy,
            slots: Vec::new(),
            standing: None,
        }
    }

    /// The connection ids of the openings that are answered and not confirmed, oldest first.
    pub(crate) fn unconfirmed_ids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.own_id)
    }

    /// A datagram that no standing connection wanted.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &'a mut [u8],
        config: &Config,
    ) -> Answer<'a> {
        if config.wire == Wire::Rfc998 {
            return self.handle_rfc998(from, bytes, config);
        }
        match bytes.get(2..4) {
            Some([sealed::VERSION, kind]) if *kind == Kind::Open as u8 => {
                self.handle_open(now, from, bytes, config).map_or(Answer::Nothing, Answer::Reply)
            }
            Some([sealed::VERSION, _]) => self.confirm(now, from, bytes),
            Some([_, 0]) => refuse_version(bytes).map_or(Answer::Nothing, Answer::Reply),
            _ => Answer::Nothing,
        }
    }

    // ---- sealed

    /// An OPEN; answers what to send back, if anything.
    fn handle_open(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        config: &Config,
    ) -> Option<Vec<u8>> {
        let frame = sealed::parse_open(bytes).ok()?;
        if !self.mac_key.verify(&[frame.covered_before, frame.covered_after], &frame.mac) {
            return Some(hint(&frame, "the ticket's secret is not the one expected here"));
        }
        if let Some(response) = self.repeat(from, &frame.mac) {
            return Some(response);
        }
        self.slots.retain(|slot| slot.created + SLOT_LIFE > now);
        if self.slots.len() >= COOKIE_FROM
            && !self.cookies.valid(now, from, frame.connection, frame.uid, &frame.cookie)
        {
            let cookie = self.cookies.cookie(now, from, frame.connection, frame.uid);
            return Some(sealed::build_cookie(frame.connection, frame.uid, &cookie, |covered| {
                self.mac_key.mac(&[covered, &frame.mac])
            }));
        }
        self.answer(now, from, &frame, config)
    }

    /// The RESPONSE that an OPEN seen before drew, once more.
    fn repeat(&mut self, from: SocketAddr, mac: &[u8; 16]) -> Option<Vec<u8>> {
        if let Some(slot) = self.slots.iter_mut().find(|s| s.address == from && s.open_mac == *mac)
        {
            slot.once = false;
            return Some(slot.response.clone());
        }
        match &self.standing {
            Some(Standing::Sealed { address, open_mac, response })
                if *address == from && open_mac == mac =>
            {
                Some(response.clone())
            }
            _ => None,
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &OpenFrame<'_>,
        config: &Config,
    ) -> Option<Vec<u8>> {
        let secret = config.secret.as_ref()?;
        let draw = self.entropy.draw();
        let clear = sealed::open_clear(frame.connection, frame.uid);
        let (payload, responder) =
            respond(secret, &super::prologue(&clear), draw, frame.noise).ok()?;
        let refuse = |reason: &str| {
            sealed::build_refused(frame.connection, frame.uid, reason, |covered| {
                self.mac_key.mac(&[covered, &frame.mac])
            })
        };
        let Ok(offer) = sealed::parse_offer(frame.uid, &payload) else {
            return Some(refuse("the parameters offered make no sense here"));
        };
        let Some(cipher) = Cipher::choose(offer.ciphers, config.cipher) else {
            return Some(refuse("no cipher in common"));
        };
        let proposal = offer.parameters;
        match settle(config, &proposal) {
            Ok(parameters) => {
                let table_bytes = offer.table_bytes.min(config.table_bytes);
                let settled = Offer { parameters, ciphers: cipher.bit(), table_bytes };
                self.take_slot(now, from, frame, responder, settled, proposal)
            }
            Err(reason) => Some(refuse(reason)),
        }
    }

    fn take_slot(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &OpenFrame<'_>,
        responder: Responder,
        settled: Offer,
        proposal: Parameters,
    ) -> Option<Vec<u8>> {
        let own_id = self.unused_id();
        let clear = sealed::response_clear(frame.connection, own_id, frame.uid);
        let mut payload = clear.to_vec();
        sealed::encode_offer(&settled, &mut payload);
        let (noise, keys) = responder.finish(&payload).ok()?;
        let response = sealed::build_response(&clear, &noise);
        let cipher = Cipher::from_bit(settled.ciphers)?;
        let link = Link::sealed(
            own_id,
            frame.connection,
            cipher,
            keys.responder_to_initiator,
            keys.initiator_to_responder,
        );
        if self.slots.len() >= SLOTS {
            self.slots.remove(0);
        }
        // To this end the other one's words matter: its death timer, its name, its length.
        let parameters = Parameters {
            death_timer: proposal.death_timer,
            client: proposal.client,
            transfer_bytes: proposal.transfer_bytes.or(settled.parameters.transfer_bytes),
            ..settled.parameters
        };
        self.slots.push(Slot {
            address: from,
            open_mac: frame.mac,
            own_id,
            response: response.clone(),
            link,
            parameters,
            table_bytes: settled.table_bytes,
            created: now,
            once: true,
        });
        Some(response)
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            let id = self.entropy.draw_u32();
            if self.slots.iter().all(|slot| slot.own_id != id) {
                return id;
            }
        }
    }

    /// A packet under transport keys: the first that authenticates makes its slot the connection.
    fn confirm<'a>(&mut self, now: Instant, from: SocketAddr, bytes: &'a mut [u8]) -> Answer<'a> {
        let Ok(header) = sealed::parse_header(bytes) else { return Answer::Nothing };
        let at = self.slots.iter().position(|s| s.own_id == header.connection && s.address == from);
        let Some(at) = at else { return Answer::Nothing };
        // DATA cannot come before a GO; and proof must not cost what makes it proof again.
        if !self.slots[at].link.authenticates(bytes) {
            return Answer::Nothing;
        }
        let slot = self.slots.remove(at);
        self.standing = Some(Standing::Sealed {
            address: slot.address,
            open_mac: slot.open_mac,
            response: slot.response,
        });
        let rtt = slot.once.then(|| now.since(slot.created));
        let opened = Opened::new(slot.link, slot.parameters, slot.table_bytes, rtt);
        let longest_rtt = Some(now.since(slot.created));
        Answer::Opened(Opened { longest_rtt, ..opened }, Some(bytes))
    }

    // ---- rfc998

    fn handle_rfc998<'a>(
        &mut self,
        from: SocketAddr,
        bytes: &'a mut [u8],
        config: &Config,
    ) -> Answer<'a> {
        if let Some(Kind::Open) = sealed::kind_of(bytes) {
            let Ok(frame) = sealed::parse_open(bytes) else { return Answer::Nothing };
            return Answer::Reply(hint(&frame, "this end speaks plain RFC 998 (version 2) only"));
        }
        let Ok((sent, Packet998::Open(proposal))) = rfc998::parse(bytes, false, ControlSeq(0))
        else {
            return Answer::Nothing;
        };
        let ports = sent.swapped();
        if let Some(Standing::Rfc998 { address, ports: standing, uid, response }) = &self.standing
            && (*address, *standing) == (from, ports)
        {
            if *uid == proposal.uid {
                return Answer::Reply(response.clone());
            }
            let mut abort = Vec::new();
            rfc998::encode_abort(ports, "these ports have a connection", &mut abort);
            return Answer::Reply(abort);
        }
        let mut reply = Vec::new();
        if self.standing.is_some() {
            rfc998::encode_refused(ports, "busy with another connection", &mut reply);
            return Answer::Reply(reply);
        }
        match settle(config, &proposal) {
            Err(reason) => {
                rfc998::encode_refused(ports, reason, &mut reply);
                Answer::Reply(reply)
            }
            Ok(settled) => {
                rfc998::encode_response(ports, &settled, &mut reply);
                self.standing = Some(Standing::Rfc998 {
                    address: from,
                    ports,
                    uid: proposal.uid,
                    response: reply.clone(),
                });
                let link = Link::rfc998(
                    ports,
                    settled.checksum,
                    settled.buffer_bytes,
                    settled.packet_bytes,
                );
                let parameters = Parameters {
                    death_timer: proposal.death_timer,
                    client: proposal.client,
                    ..settled
                };
                let mut opened = Opened::new(link, parameters, 0, None);
                opened.reply = Some(reply);
                Answer::Opened(opened, None)
            }
        }
    }
}

/// A REFUSED that proves nothing, for a peer that could not check it.
fn hint(frame: &OpenFrame<'_>, reason: &str) -> Vec<u8> {
    sealed::build_refused(frame.connection, frame.uid, reason, |_| [0; 16])
}

/// An OPEN of another version: said in its own words if they are RFC 998's, and in no more bytes.
fn refuse_version(bytes: &[u8]) -> Option<Vec<u8>> {
    if let Ok((sent, Packet998::Open(_))) = rfc998::parse(bytes, false, ControlSeq(0)) {
        let mut reply = Vec::new();
        rfc998::encode_refused(sent.swapped(), "version 6 only", &mut reply);
        return (reply.len() <= bytes.len()).then_some(reply);
    }
    let frame = sealed::parse_open_of_any_version(bytes).ok()?;
    Some(hint(&frame, "this end speaks version 6 of the protocol"))
}
