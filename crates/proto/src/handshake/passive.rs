//! The passive end: checks OPENs in order of cost, answers each with one handshake wherever its
//! copies come from, and never sends an address more bytes than came from it (`docs/protocol.md
//! §4.2, §4.3`).

use std::collections::VecDeque;
use std::time::Duration;

use super::answer::Answer;
use super::authentication::{Caller, Gate};
use super::half_open::Slot;
use super::rate_limit::Shared;
use super::rfc998_established::Standing998;
use super::{FirstWords, Opened, return_routability, settle};
use crate::api::Route;
use crate::codec::Link;
use crate::config::{Authorized, Config, Identity, PublicKey, Wire};
use crate::control_fifo::ControlFifo;
use crate::crypto::cipher::Cipher;
use crate::crypto::exporter::Root;
use crate::crypto::mac::CookieJar;
use crate::crypto::noise::{Responder, respond};
use crate::entropy::Entropy;
use crate::rtt::without;
use crate::time::Instant;
use crate::units::ControlSeq;
use crate::wire::packet::{Parameters, RateLimit};
use crate::wire::rfc998::{self, Packet998};
use crate::wire::sealed::{self, Kind, OPEN_BYTES, Offer, OpenFrame};

/// Bounds of half-open connections, of an end with one peer and of a listener: their number, and
/// the number from which an OPEN needs a cookie.
const ONE: Room = Room { slots: 16, cookie_from: 8, at_once: 64 };
const MANY: Room = Room { slots: 256, cookie_from: 0, at_once: 512 };
/// Most confirmed OPENs kept.
const MAX_SERVED: usize = 1024;
/// Lifetime of a half-open connection.
const SLOT_LIFE: Duration = Duration::from_secs(60);
/// Least time between two UNKNOWNs.
const UNKNOWN_INTERVAL: Duration = Duration::from_millis(1);

/// Bounds of the state for peers that are not confirmed.
#[derive(Clone, Copy, Debug)]
struct Room {
    slots: usize,
    cookie_from: usize,
    /// Handshakes computed at once.
    at_once: u32,
}

/// The open connection of this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
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
    gate: Gate,
    cookies: CookieJar,
    slots: Vec<Slot>,
    bucket: Shared,
    /// When the next UNKNOWN may leave.
    next_unknown: Instant,
    /// The MACs of OPENs whose RESPONSE was confirmed, and when: their peers have the RESPONSE.
    served: VecDeque<(Instant, [u8; 16])>,
    /// The OPEN of the current connection (`rfc998`).
    standing: Option<Standing998>,
    room: Room,
}

impl Passive {
    pub(crate) fn new(config: &Config, mut entropy: Entropy) -> Self {
        Self {
            gate: Gate::new(config, &mut entropy),
            cookies: CookieJar::new(entropy.draw()),
            entropy,
            slots: Vec::new(),
            bucket: Shared::of_one(ONE.at_once),
            next_unknown: Instant::EPOCH,
            served: VecDeque::new(),
            standing: None,
            room: ONE,
        }
    }

    /// A passive end for many peers, which returns each connection (`sealed`).
    pub(crate) fn for_many(config: &Config, entropy: Entropy) -> Self {
        let bucket = Shared::of_many(MANY.at_once);
        Self { room: MANY, bucket, ..Self::new(config, entropy) }
    }

    /// The connection ids of half-open connections, oldest first.
    pub(crate) fn unconfirmed_ids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.own_id)
    }

    /// Gives the newest half-open connection this id.
    #[cfg(test)]
    pub(crate) fn await_id(&mut self, id: u32) {
        self.slots.last_mut().expect("an opening").own_id = id;
    }

    /// The accepted keys changed: drops half-open connections of other keys.
    pub(crate) fn on_authorized(&mut self, authorized: &Authorized) {
        self.slots.retain(|slot| slot.key.is_none_or(|key| authorized.knows(&key)));
    }

    /// QUITs for peers that got early control, and so have the connection open.
    pub(crate) fn quits(&mut self, reason: &str) -> Vec<(Route, Vec<u8>)> {
        self.slots.iter_mut().filter_map(|slot| slot.quit(reason)).collect()
    }

    /// Handles a datagram that the current connection, if any, did not accept; `still`: how long
    /// this host was suspended while it waited.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        (now, still): (Instant, Duration),
        route: Route,
        bytes: &'a mut [u8],
        (config, words): (&Config, FirstWords<'_>),
        standing: Option<Standing>,
    ) -> Answer<'a> {
        if config.wire == Wire::Rfc998 {
            let half_open = standing.is_some_and(|standing| standing.half_open);
            return self.handle_rfc998(route, bytes, config, half_open);
        }
        let whole = sealed::widen_open(bytes);
        let answer = match bytes.get(2..4) {
            Some([sealed::VERSION, kind]) if *kind == Kind::Open as u8 => {
                let came = (route, bytes.len());
                let open = whole.as_deref().unwrap_or(bytes);
                let response = self.handle_open(now, came, open, (config, words), standing);
                return response.unwrap_or(Answer::Nothing);
            }
            Some([sealed::VERSION, kind]) if *kind == Kind::Who as u8 => introduce(config, bytes),
            Some([sealed::VERSION, _]) => {
                return self.handle_other((now, still), route, bytes, standing);
            }
            Some([_, 0]) => refuse_version(bytes),
            _ => None,
        };
        answer.map_or(Answer::Nothing, Answer::Reply)
    }

    // ---- sealed

    /// Handles an OPEN from `route`; returns the answer, if any.
    fn handle_open(
        &mut self,
        now: Instant,
        (route, len): (Route, usize),
        bytes: &[u8],
        (config, words): (&Config, FirstWords<'_>),
        standing: Option<Standing>,
    ) -> Option<Answer<'static>> {
        let frame = sealed::parse_open(bytes).ok()?;
        let caller = match self.gate.admit(config, &frame) {
            Ok(caller) => caller,
            Err(reason) => return Some(Answer::Reply(hint(&frame, reason))),
        };
        while self.served.pop_front_if(|(at, _)| *at + SLOT_LIFE <= now).is_some() {}
        if self.served.iter().any(|(_, mac)| *mac == frame.mac) {
            return None;
        }
        if standing.is_some_and(|standing| standing.alive) {
            let reason = "another program with this ticket is served";
            return Some(Answer::Reply(caller.refuse(&frame, true, reason)));
        }
        self.slots.retain(|slot| slot.created + SLOT_LIFE > now);
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.open_mac == frame.mac) {
            slot.once = false;
            slot.open_bytes = slot.open_bytes.min(len);
            slot.note(route);
            return Some(slot.greeting(len));
        }
        let proven =
            self.cookies.valid(now, route.peer, frame.connection, frame.uid, &frame.cookie);
        if self.slots.len() >= self.room.cookie_from && !proven {
            let cookie = self.cookies.cookie(now, route.peer, frame.connection, frame.uid);
            let mac = |covered: &[u8]| caller.mac_key.mac(&[covered, &frame.mac]);
            let cookie = sealed::build_cookie(frame.connection, frame.uid, &cookie, mac);
            return Some(Answer::Reply(cookie));
        }
        // A true peer repeats its OPEN.
        let place = |network: &[u8]| self.cookies.place(network);
        if !self.bucket.take(now, route.peer.ip(), place) {
            return None;
        }
        match self.answer((now, (route, len), proven), &caller, &frame, (config, words))? {
            Ok(slot) => {
                let greeting = slot.greeting(len);
                self.slots.push(slot);
                Some(greeting)
            }
            Err(refused) => Some(Answer::Reply(refused)),
        }
    }

    /// Computes the handshake: a half-open connection, or the REFUSED.
    fn answer(
        &mut self,
        came: (Instant, (Route, usize), bool),
        caller: &Caller,
        frame: &OpenFrame<'_>,
        (config, words): (&Config, FirstWords<'_>),
    ) -> Option<Result<Slot, Vec<u8>>> {
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
        match settle(config, &proposal) {
            Ok(parameters) => {
                let table_bytes = offer.table_bytes.min(config.table_bytes);
                let settled = Offer { parameters, ciphers: cipher.bit(), table_bytes };
                // Its grants belong to the one connection that this end will have, so other peers
                // get them only once theirs is that connection.
                let greeted = self.slots.iter().any(|slot| slot.first_words.is_some());
                let words = (!greeted).then(|| words(&settled.parameters, table_bytes)).flatten();
                let from = (caller.key, frame);
                self.make_slot(came, from, responder, (settled, words), proposal).map(Ok)
            }
            Err(reason) => Some(refuse(reason)),
        }
    }

    /// Makes a half-open connection; there is room for it.
    fn make_slot(
        &mut self,
        (now, (route, len), proven): (Instant, (Route, usize), bool),
        (key, frame): (Option<PublicKey>, &OpenFrame<'_>),
        responder: Responder,
        (settled, words): (Offer, Option<ControlFifo>),
        proposal: Parameters,
    ) -> Option<Slot> {
        let own_id = self.unused_id();
        let clear = sealed::response_clear(frame.connection, own_id, frame.uid);
        let mut payload = clear.to_vec();
        sealed::encode_offer(&settled, &mut payload);
        let (noise, keys) = responder.finish(&payload).ok()?;
        let response = sealed::build_response(&clear, &noise);
        let cipher = Cipher::from_bit(settled.ciphers)?;
        let mut link = Link::sealed(
            own_id,
            frame.connection,
            cipher,
            keys.responder_to_initiator,
            keys.initiator_to_responder,
        );
        // Messages that do not fit wait until the peer is confirmed.
        let room = OPEN_BYTES.saturating_sub(response.len());
        let first_words = words.filter(|words| words.fits_sealed(room)).map(|mut words| {
            let mut packet = Vec::new();
            link.put_control(now, &mut packet, room, (false, RateLimit::Unsaid), None, &mut words);
            packet
        });
        if self.slots.len() >= self.room.slots {
            self.make_room();
        }
        // The peer's own values count here: death timer, client string and length.
        let parameters = Parameters {
            death_timer: proposal.death_timer,
            client: proposal.client,
            transfer_bytes: proposal.transfer_bytes.or(settled.parameters.transfer_bytes),
            ..settled.parameters
        };
        Some(Slot {
            key,
            open_mac: frame.mac,
            open_bytes: len,
            own_id,
            response,
            first_words,
            link,
            root: Root::of(&keys),
            parameters,
            table_bytes: settled.table_bytes,
            created: now,
            routes: vec![route],
            once: true,
            proven,
        })
    }

    /// Drops a half-open connection: the oldest of the client that has most of them, so that no
    /// client takes the room of the others.
    fn make_room(&mut self) {
        let for_many = self.room.cookie_from == 0;
        // A client without a key is known by its address, if a cookie has validated that.
        let owner = |slot: &Slot| match slot.key {
            None if for_many => (None, slot.routes.first().map(|route| route.peer.ip())),
            key => (key, None),
        };
        let count = |of| self.slots.iter().filter(|slot| owner(slot) == of).count();
        let most = self.slots.iter().map(|slot| count(owner(slot))).max();
        let oldest = self.slots.iter().position(|slot| Some(count(owner(slot))) == most);
        oldest.into_iter().for_each(|at| _ = self.slots.remove(at));
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            let id = self.entropy.draw_u32();
            if self.slots.iter().all(|slot| slot.own_id != id) {
                return id;
            }
        }
    }

    /// A packet under transport keys other than those of the current connection.
    fn handle_other<'a>(
        &mut self,
        (now, still): (Instant, Duration),
        route: Route,
        bytes: &'a mut [u8],
        standing: Option<Standing>,
    ) -> Answer<'a> {
        let Ok(header) = sealed::parse_header(bytes) else { return Answer::Nothing };
        if standing.is_some_and(|standing| standing.own_id == Some(header.connection)) {
            return Answer::Nothing;
        }
        match self.slots.iter().position(|slot| slot.own_id == header.connection) {
            Some(at) => self.confirm((now, still), route, bytes, at, standing),
            None => self.disown(now, bytes),
        }
    }

    /// A packet of an unknown connection: this end was restarted, or has another connection now.
    /// UNKNOWN answers it, without any state.
    fn disown(&mut self, now: Instant, bytes: &[u8]) -> Answer<'static> {
        let early = now < self.next_unknown;
        let Some(unknown) = sealed::build_unknown(bytes).filter(|_| !early) else {
            return Answer::Nothing;
        };
        self.next_unknown = now + UNKNOWN_INTERVAL;
        Answer::Reply(unknown.to_vec())
    }

    /// The first authentic packet makes its half-open connection the current one, unless there is
    /// one whose peer is alive.
    fn confirm<'a>(
        &mut self,
        (now, still): (Instant, Duration),
        route: Route,
        bytes: &'a mut [u8],
        at: usize,
        standing: Option<Standing>,
    ) -> Answer<'a> {
        // Checking must not use up the packet number that opening it needs again.
        let alive = standing.is_some_and(|standing| standing.alive);
        if alive || !self.slots[at].link.authenticates(bytes) {
            return Answer::Nothing;
        }
        let slot = self.slots.remove(at);
        // The grants of the other half-open connections belong to this one now.
        self.slots.retain(|slot| slot.first_words.is_none());
        if self.served.len() >= MAX_SERVED {
            self.served.pop_front();
        }
        self.served.push_back((now, slot.open_mac));
        let place = slot.place(route);
        let lasted = without(now.since(slot.created), still);
        let (rtt, longest_rtt) = (slot.once.then_some(lasted), Some(lasted));
        let entropy = Entropy::new(self.entropy.draw());
        let peer_key = slot.key;
        let greeted = slot.first_words.map(|_| (slot.created, slot.once));
        let opened = Opened::new(slot.link, slot.parameters, slot.table_bytes, entropy);
        let root = Some(slot.root);
        let opened = Opened { peer_key, rtt, longest_rtt, greeted, place, root, ..opened };
        Answer::Opened(Box::new(opened), Some(bytes))
    }

    // ---- rfc998

    fn handle_rfc998<'a>(
        &mut self,
        from: Route,
        bytes: &'a mut [u8],
        config: &Config,
        half_open: bool,
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
        if let Some(standing) = &mut self.standing
            && (standing.route.peer, standing.ports) == (from.peer, ports)
        {
            let uid = standing.proposal.uid;
            if uid == proposal.uid
                && return_routability::of(&proposal.client) == Some(standing.proof)
            {
                return Answer::Heard(standing.last_response());
            }
            if uid == proposal.uid {
                return Answer::Reply(standing.response());
            }
            if half_open && standing.is_again(&proposal) {
                standing.proposal = proposal;
                return Answer::Again(standing.response());
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
        match return_routability::settle(config, &proposal) {
            Err(reason) => {
                rfc998::encode_refused(ports, reason, &mut reply);
                Answer::Reply(reply)
            }
            Ok(settled) => {
                let proof = self.entropy.draw_u32();
                let wary = config.wary;
                let expected = return_routability::is_to_be_expected(&proposal);
                let told = expected.then_some(proof);
                let room = if wary { bytes.len() } else { usize::MAX };
                let client =
                    return_routability::answer(&settled.client, told.filter(|_| wary), room);
                let standing = Standing998 {
                    route: from,
                    ports,
                    proposal: proposal.clone(),
                    settled: settled.clone(),
                    client,
                    proof,
                };
                reply = standing.response();
                self.standing = Some(standing);
                let Parameters { checksum, buffer_bytes, packet_bytes, .. } = settled;
                let link = Link::rfc998(ports, checksum, buffer_bytes, packet_bytes);
                let parameters = Parameters {
                    death_timer: proposal.death_timer,
                    client: proposal.client,
                    ..settled
                };
                let entropy = Entropy::new(self.entropy.draw());
                let mut opened = Opened::new(link, parameters, 0, entropy);
                opened.reply = Some(reply);
                opened.doubted = wary.then_some((bytes.len(), expected));
                Answer::Opened(Box::new(opened), None)
            }
        }
    }
}

impl Caller {
    /// An authenticated REFUSED.
    fn refuse(&self, frame: &OpenFrame<'_>, for_now: bool, reason: &str) -> Vec<u8> {
        sealed::build_refused(frame.connection, frame.uid, for_now, reason, |covered| {
            self.mac_key.mac(&[covered, &frame.mac])
        })
    }
}

/// The answer to WHO: this end's public key.
fn introduce(config: &Config, bytes: &[u8]) -> Option<Vec<u8>> {
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
