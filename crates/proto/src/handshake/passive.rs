//! The passive end: checks OPENs in order of cost, answers each with one handshake wherever its
//! copies come from, and never sends an address more bytes than came from it (`docs/protocol
//! §4.2, §4.3`).

use std::collections::VecDeque;
use std::time::Duration;

use super::authentication::{AuthenticatedPeer, OpenAuthenticator};
use super::half_open::HalfOpen;
use super::rate_limit::PerSourceLimit;
use super::responder_action::ResponderAction;
use super::rfc998_established::Rfc998Established;
use super::{EarlyControl, HandledAt, Opened, negotiate, return_routability};
use crate::api::Route;
use crate::codec::{Codec, fits_one_sealed_packet};
use crate::config::{AuthorizedKeys, Config, Identity, PublicKey, Wire};
use crate::control_fifo::ControlFifo;
use crate::crypto::cipher::Cipher;
use crate::crypto::exporter::ExporterSecret;
use crate::crypto::mac::CookieGenerator;
use crate::crypto::noise::{Responder, respond};
use crate::entropy::Entropy;
use crate::negotiated::HandshakeRtt;
use crate::rtt::without;
use crate::time::Instant;
use crate::units::ControlSeq;
use crate::wire::packet::{Parameters, RateLimit};
use crate::wire::rfc998::{self, Packet998};
use crate::wire::sealed::{self, HandshakePayload, OPEN_BYTES, OpenFrame, PacketType};

/// Bounds of half-open connections, of an end with one peer and of a listener: their number, and
/// the number from which an OPEN needs a cookie.
const ONE: HalfOpenLimits = HalfOpenLimits { half_open: 16, cookie_from: 8, at_once: 64 };
const MANY: HalfOpenLimits = HalfOpenLimits { half_open: 256, cookie_from: 0, at_once: 512 };
/// Most confirmed OPENs kept.
const MAX_SERVED: usize = 1024;
/// Lifetime of a half-open connection.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(60);
/// Least time between two UNKNOWNs.
const UNKNOWN_INTERVAL: Duration = Duration::from_millis(1);

/// Bounds of the state for peers that are not confirmed.
#[derive(Clone, Copy, Debug)]
struct HalfOpenLimits {
    half_open: usize,
    cookie_from: usize,
    /// Handshakes computed at once.
    at_once: u32,
}

/// An OPEN that arrived.
#[derive(Clone, Copy, Debug)]
struct ReceivedOpen {
    now: Instant,
    route: Route,
    /// Bytes of its datagram.
    len: usize,
    /// Its cookie validates the address.
    validated: bool,
}

/// The open connection of this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentConnection {
    /// A packet of its peer arrived lately.
    pub(crate) alive: bool,
    /// The connection id in its peer's packets.
    pub(crate) own_id: Option<u32>,
    /// Only its peer's OPEN has arrived.
    pub(crate) half_open: bool,
}

/// The handshake of a passive end.
#[derive(Debug)]
pub(crate) struct Passive {
    entropy: Entropy,
    gate: OpenAuthenticator,
    cookies: CookieGenerator,
    half_open: Vec<HalfOpen>,
    bucket: PerSourceLimit,
    /// When the next UNKNOWN may leave.
    next_unknown: Instant,
    /// The MACs of OPENs whose RESPONSE was confirmed, and when: their peers have the RESPONSE.
    served: VecDeque<(Instant, [u8; 16])>,
    /// The OPEN of the current connection (`rfc998`).
    current: Option<Rfc998Established>,
    room: HalfOpenLimits,
}

impl Passive {
    pub(crate) fn new(config: &Config, mut entropy: Entropy) -> Self {
        Self {
            gate: OpenAuthenticator::new(config, &mut entropy),
            cookies: CookieGenerator::new(entropy.draw()),
            entropy,
            half_open: Vec::new(),
            bucket: PerSourceLimit::of_one(ONE.at_once),
            next_unknown: Instant::EPOCH,
            served: VecDeque::new(),
            current: None,
            room: ONE,
        }
    }

    /// A passive end for many peers, which returns each connection (`sealed`).
    pub(crate) fn for_many(config: &Config, entropy: Entropy) -> Self {
        let bucket = PerSourceLimit::of_many(MANY.at_once);
        Self { room: MANY, bucket, ..Self::new(config, entropy) }
    }

    /// The connection ids of half-open connections, oldest first.
    pub(crate) fn unconfirmed_ids(&self) -> impl Iterator<Item = u32> {
        self.half_open.iter().map(|slot| slot.own_id)
    }

    /// Gives the newest half-open connection this id.
    #[cfg(test)]
    pub(crate) fn await_id(&mut self, id: u32) {
        self.half_open.last_mut().expect("an opening").own_id = id;
    }

    /// The accepted keys changed: drops half-open connections of other keys.
    pub(crate) fn on_authorized(&mut self, authorized: &AuthorizedKeys) {
        self.half_open.retain(|slot| slot.key.is_none_or(|key| authorized.knows(&key)));
    }

    /// QUITs for peers that got early control, and so have the connection open.
    pub(crate) fn quits(&mut self, reason: &str) -> Vec<(Route, Vec<u8>)> {
        self.half_open.iter_mut().filter_map(|slot| slot.quit(reason)).collect()
    }

    /// Handles a datagram that the current connection, if any, did not accept; `host_stall`: how
    /// long this host was suspended while it waited.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        route: Route,
        bytes: &'a mut [u8],
        config: &Config,
        early_control: EarlyControl<'_>,
        current: Option<CurrentConnection>,
    ) -> ResponderAction<'a> {
        if config.wire == Wire::Rfc998 {
            let half_open = current.is_some_and(|current| current.half_open);
            return self.handle_rfc998(route, bytes, config, half_open);
        }
        let whole = sealed::widen_open(bytes);
        let answer = match bytes.get(2..4) {
            Some([sealed::VERSION, kind]) if *kind == PacketType::Open as u8 => {
                let came = (route, bytes.len());
                let open = whole.as_deref().unwrap_or(bytes);
                let response = self.handle_open(now, came, open, (config, early_control), current);
                return response.unwrap_or(ResponderAction::Nothing);
            }
            Some([sealed::VERSION, kind]) if *kind == PacketType::Who as u8 => {
                answer_key_query(config, bytes)
            }
            Some([sealed::VERSION, _]) => {
                return self.handle_other(HandledAt { now, host_stall }, route, bytes, current);
            }
            Some([_, 0]) => refuse_version(bytes),
            _ => None,
        };
        answer.map_or(ResponderAction::Nothing, ResponderAction::Reply)
    }

    // ---- sealed

    /// Handles an OPEN from `route`; returns the answer, if any.
    fn handle_open(
        &mut self,
        now: Instant,
        (route, len): (Route, usize),
        bytes: &[u8],
        (config, early_control): (&Config, EarlyControl<'_>),
        current: Option<CurrentConnection>,
    ) -> Option<ResponderAction<'static>> {
        let frame = sealed::parse_open(bytes).ok()?;
        let caller = match self.gate.admit(config, &frame) {
            Ok(caller) => caller,
            Err(reason) => return Some(ResponderAction::Reply(hint(&frame, reason))),
        };
        while self.served.pop_front_if(|(at, _)| *at + HALF_OPEN_LIFE <= now).is_some() {}
        if self.served.iter().any(|(_, mac)| *mac == frame.mac) {
            return None;
        }
        if current.is_some_and(|current| current.alive) {
            let reason = "another program with this ticket is served";
            return Some(ResponderAction::Reply(caller.refuse(&frame, true, reason)));
        }
        self.half_open.retain(|slot| slot.created + HALF_OPEN_LIFE > now);
        if let Some(slot) = self.half_open.iter_mut().find(|slot| slot.open_mac == frame.mac) {
            slot.once = false;
            slot.open_bytes = slot.open_bytes.min(len);
            slot.note(route);
            return Some(slot.answer(len));
        }
        let validated =
            self.cookies.valid(now, route.peer, frame.connection, frame.uid, &frame.cookie);
        if self.half_open.len() >= self.room.cookie_from && !validated {
            let cookie = self.cookies.cookie(now, route.peer, frame.connection, frame.uid);
            let mac = |covered: &[u8]| caller.mac_key.mac(&[covered, &frame.mac]);
            let cookie = sealed::build_cookie(frame.connection, frame.uid, &cookie, mac);
            return Some(ResponderAction::Reply(cookie));
        }
        // A true peer repeats its OPEN.
        let place = |network: &[u8]| self.cookies.place(network);
        if !self.bucket.take(now, route.peer.ip(), place) {
            return None;
        }
        match self.answer(
            ReceivedOpen { now, route, len, validated },
            &caller,
            &frame,
            config,
            early_control,
        )? {
            Ok(slot) => {
                let greeting = slot.answer(len);
                self.half_open.push(slot);
                Some(greeting)
            }
            Err(refused) => Some(ResponderAction::Reply(refused)),
        }
    }

    /// Computes the handshake: a half-open connection, or the REFUSED.
    fn answer(
        &mut self,
        open: ReceivedOpen,
        caller: &AuthenticatedPeer,
        frame: &OpenFrame<'_>,
        config: &Config,
        early_control: EarlyControl<'_>,
    ) -> Option<Result<HalfOpen, Vec<u8>>> {
        let means = caller.means(config)?;
        let draw = self.entropy.draw();
        let clear = match frame.key {
            None => sealed::open_clear(frame.connection, frame.uid),
            Some(_) => sealed::key_open_clear(frame.connection, frame.uid),
        };
        let prologue = super::prologue(&clear, frame.key);
        let (payload, responder) = respond(means, &prologue, draw, frame.noise).ok()?;
        let refuse = |reason: &str| Err(caller.refuse(frame, false, reason));
        let Ok(offer) = sealed::parse_offer(frame.uid, &payload) else {
            return Some(refuse("the parameters offered make no sense here"));
        };
        let Some(cipher) = Cipher::choose(offer.ciphers, config.cipher) else {
            return Some(refuse("no cipher in common"));
        };
        let proposal = offer.parameters;
        match negotiate(config, &proposal) {
            Ok(parameters) => {
                let table_bytes = offer.table_bytes.min(config.table_bytes);
                let settled = HandshakePayload { parameters, ciphers: cipher.bit(), table_bytes };
                // Its grants belong to the one connection that this end will have, so other peers
                // get them only once theirs is that connection.
                let early_control_sent =
                    self.half_open.iter().any(|slot| slot.early_control.is_some());
                let early_control = (!early_control_sent)
                    .then(|| early_control(&settled.parameters, table_bytes))
                    .flatten();
                let from = (caller.key, frame);
                self.make_half_open(open, from, responder, (settled, early_control), proposal)
                    .map(Ok)
            }
            Err(reason) => Some(refuse(reason)),
        }
    }

    /// Makes a half-open connection; there is room for it.
    fn make_half_open(
        &mut self,
        ReceivedOpen { now, route, len, validated }: ReceivedOpen,
        (key, frame): (Option<PublicKey>, &OpenFrame<'_>),
        responder: Responder,
        (settled, early_control): (HandshakePayload, Option<ControlFifo>),
        proposal: Parameters,
    ) -> Option<HalfOpen> {
        let own_id = self.unused_id();
        let clear = sealed::response_clear(frame.connection, own_id, frame.uid);
        let mut payload = clear.to_vec();
        sealed::encode_offer(&settled, &mut payload);
        let (noise, keys) = responder.finish(&payload).ok()?;
        let response = sealed::build_response(&clear, &noise);
        let cipher = Cipher::from_bit(settled.ciphers)?;
        let mut codec = Codec::sealed(
            own_id,
            frame.connection,
            cipher,
            keys.responder_to_initiator,
            keys.initiator_to_responder,
        );
        // Messages that do not fit wait until the peer is confirmed.
        let room = OPEN_BYTES.saturating_sub(response.len());
        let early_control = early_control
            .filter(|early_control| fits_one_sealed_packet(early_control, room))
            .map(|mut early_control| {
                let mut packet = Vec::new();
                codec.put_control(
                    now,
                    &mut packet,
                    room,
                    (false, RateLimit::Unset),
                    None,
                    &mut early_control,
                );
                packet
            });
        if self.half_open.len() >= self.room.half_open {
            self.make_room();
        }
        // The peer's own values count here: death timer, client string and length.
        let parameters = Parameters {
            death_timer: proposal.death_timer,
            client: proposal.client,
            transfer_bytes: proposal.transfer_bytes.or(settled.parameters.transfer_bytes),
            ..settled.parameters
        };
        Some(HalfOpen {
            key,
            open_mac: frame.mac,
            open_bytes: len,
            own_id,
            response,
            early_control,
            codec,
            root: ExporterSecret::of(&keys),
            parameters,
            table_bytes: settled.table_bytes,
            created: now,
            routes: vec![route],
            once: true,
            validated,
        })
    }

    /// Drops a half-open connection: the oldest of the client that has most of them, so that no
    /// client takes the room of the others.
    fn make_room(&mut self) {
        let for_many = self.room.cookie_from == 0;
        // A client without a key is known by its address, if a cookie has validated that.
        let owner = |slot: &HalfOpen| match slot.key {
            None if for_many => (None, slot.routes.first().map(|route| route.peer.ip())),
            key => (key, None),
        };
        let count = |of| self.half_open.iter().filter(|slot| owner(slot) == of).count();
        let most = self.half_open.iter().map(|slot| count(owner(slot))).max();
        let oldest = self.half_open.iter().position(|slot| Some(count(owner(slot))) == most);
        oldest.into_iter().for_each(|at| _ = self.half_open.remove(at));
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            let id = self.entropy.draw_u32();
            if self.half_open.iter().all(|slot| slot.own_id != id) {
                return id;
            }
        }
    }

    /// A packet under transport keys other than those of the current connection.
    fn handle_other<'a>(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        route: Route,
        bytes: &'a mut [u8],
        current: Option<CurrentConnection>,
    ) -> ResponderAction<'a> {
        let Ok(header) = sealed::parse_header(bytes) else { return ResponderAction::Nothing };
        if current.is_some_and(|current| current.own_id == Some(header.connection)) {
            return ResponderAction::Nothing;
        }
        match self.half_open.iter().position(|slot| slot.own_id == header.connection) {
            Some(at) => self.confirm(HandledAt { now, host_stall }, route, bytes, at, current),
            None => self.answer_unknown(now, bytes),
        }
    }

    /// A packet of an unknown connection: this end was restarted, or has another connection now.
    /// UNKNOWN answers it, without any state.
    fn answer_unknown(&mut self, now: Instant, bytes: &[u8]) -> ResponderAction<'static> {
        let early = now < self.next_unknown;
        let Some(unknown) = sealed::build_unknown(bytes).filter(|_| !early) else {
            return ResponderAction::Nothing;
        };
        self.next_unknown = now + UNKNOWN_INTERVAL;
        ResponderAction::Reply(unknown.to_vec())
    }

    /// The first authentic packet makes its half-open connection the current one, unless there is
    /// one whose peer is alive.
    fn confirm<'a>(
        &mut self,
        HandledAt { now, host_stall }: HandledAt,
        route: Route,
        bytes: &'a mut [u8],
        at: usize,
        current: Option<CurrentConnection>,
    ) -> ResponderAction<'a> {
        // Checking must not use up the packet number that opening it needs again.
        let alive = current.is_some_and(|current| current.alive);
        if alive || !self.half_open[at].codec.authenticates(bytes) {
            return ResponderAction::Nothing;
        }
        let slot = self.half_open.remove(at);
        // The grants of the other half-open connections belong to this one now.
        self.half_open.retain(|slot| slot.early_control.is_none());
        if self.served.len() >= MAX_SERVED {
            self.served.pop_front();
        }
        self.served.push_back((now, slot.open_mac));
        let location = slot.location(route);
        let lasted = without(now.since(slot.created), host_stall);
        let rtt = HandshakeRtt { measured: slot.once.then_some(lasted), longest: Some(lasted) };
        let entropy = Entropy::new(self.entropy.draw());
        let peer_key = slot.key;
        let early_control_sent = slot.early_control.map(|_| (slot.created, slot.once));
        let opened = Opened::new(slot.codec, slot.parameters, slot.table_bytes, entropy);
        let root = Some(slot.root);
        let opened = Opened { peer_key, rtt, early_control_sent, location, root, ..opened };
        ResponderAction::Opened(Box::new(opened), Some(bytes))
    }

    // ---- rfc998

    fn handle_rfc998<'a>(
        &mut self,
        from: Route,
        bytes: &'a mut [u8],
        config: &Config,
        half_open: bool,
    ) -> ResponderAction<'a> {
        if let Some(PacketType::Open) = sealed::kind_of(bytes) {
            let Ok(frame) = sealed::parse_open(bytes) else { return ResponderAction::Nothing };
            return ResponderAction::Reply(hint(
                &frame,
                "this end speaks plain RFC 998 (version 2) only",
            ));
        }
        let Ok((sent, Packet998::Open(proposal))) = rfc998::parse(bytes, false, ControlSeq(0))
        else {
            return ResponderAction::Nothing;
        };
        let ports = sent.swapped();
        if let Some(current) = &mut self.current
            && (current.route.peer, current.ports) == (from.peer, ports)
        {
            return current.handle_open(proposal, half_open);
        }
        let mut reply = Vec::new();
        if self.current.is_some() {
            rfc998::encode_refused(ports, "busy with another connection", &mut reply);
            return ResponderAction::Reply(reply);
        }
        match return_routability::negotiate(config, &proposal) {
            Err(reason) => {
                rfc998::encode_refused(ports, reason, &mut reply);
                ResponderAction::Reply(reply)
            }
            Ok(settled) => {
                let proof = self.entropy.draw_u32();
                let validate = config.validate_addresses;
                let expected = return_routability::is_to_be_expected(&proposal);
                let number = expected.then_some(proof);
                let room = if validate { bytes.len() } else { usize::MAX };
                let client =
                    return_routability::answer(&settled.client, number.filter(|_| validate), room);
                let current = Rfc998Established {
                    route: from,
                    ports,
                    proposal: proposal.clone(),
                    settled: settled.clone(),
                    client,
                    proof,
                };
                reply = current.response();
                self.current = Some(current);
                let Parameters { checksum, buffer_bytes, packet_bytes, .. } = settled;
                let codec = Codec::rfc998(ports, checksum, buffer_bytes, packet_bytes);
                let parameters = Parameters {
                    death_timer: proposal.death_timer,
                    client: proposal.client,
                    ..settled
                };
                let entropy = Entropy::new(self.entropy.draw());
                let mut opened = Opened::new(codec, parameters, 0, entropy);
                opened.reply = Some(reply);
                opened.unvalidated = validate.then_some((bytes.len(), expected));
                ResponderAction::Opened(Box::new(opened), None)
            }
        }
    }
}

impl AuthenticatedPeer {
    /// An authenticated REFUSED.
    fn refuse(&self, frame: &OpenFrame<'_>, for_now: bool, reason: &str) -> Vec<u8> {
        sealed::build_refused(frame.connection, frame.uid, for_now, reason, |covered| {
            self.mac_key.mac(&[covered, &frame.mac])
        })
    }
}

/// The answer to WHO: this end's public key.
fn answer_key_query(config: &Config, bytes: &[u8]) -> Option<Vec<u8>> {
    let Some(Identity::Server(authorized)) = &config.identity else { return None };
    let nonce = sealed::parse_who(bytes).ok().filter(|_| authorized.introduces())?;
    Some(sealed::build_key(nonce, &authorized.own().public()).to_vec())
}

/// An unauthenticated REFUSED, for a peer that could not check it.
fn hint(frame: &OpenFrame<'_>, reason: &str) -> Vec<u8> {
    sealed::build_refused(frame.connection, frame.uid, false, reason, |_| [0; 16])
}

/// The REFUSED for an OPEN of another version, in RFC 998's format if it has that, and in no more
/// bytes.
fn refuse_version(bytes: &[u8]) -> Option<Vec<u8>> {
    if let Ok((sent, Packet998::Open(_))) = rfc998::parse(bytes, false, ControlSeq(0)) {
        let mut reply = Vec::new();
        rfc998::encode_refused(
            sent.swapped(),
            &format!("version {} only", sealed::VERSION),
            &mut reply,
        );
        return (reply.len() <= bytes.len()).then_some(reply);
    }
    let frame = sealed::parse_open_of_any_version(bytes).ok()?;
    Some(hint(&frame, &format!("this end speaks version {} of the protocol", sealed::VERSION)))
}
