//! The active end before it is open: OPEN, again and again, until the passive end is heard under
//! the keys of one of its RESPONSEs, or until a limit.

use std::net::SocketAddr;
use std::time::Duration;

use super::pending_responses::{Candidate, Candidates, Judged};
use super::{FirstWords, Opened, Place, judge, propose};
use crate::api::{Reason, Route};
use crate::codec::Link;
use crate::config::{Config, Wire};
use crate::entropy::Entropy;
use crate::peer_gone::Refusals;
use crate::rtt::without;
use crate::time::{Instant, earliest};
use crate::units::PacketNumber;
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, HEADER_BYTES, Kind};

/// Schedule of OPEN on each wire: first wait, longest wait, how many (§2.1, §4.1). Where half is
/// lost either way one in four is answered: of ten all would be in vain once in eighteen times.
const SCHEDULE_998: (Duration, Duration, u8) = (Duration::from_secs(1), Duration::from_secs(60), 8);
const SCHEDULE_SEALED: (Duration, Duration, u8) =
    (Duration::from_millis(500), Duration::from_secs(1), 24);

/// So many OPENs are whole; then they leave most of their padding out, since the path may take no
/// more (`docs/protocol.md §4.1`). Had one more been whole, a narrow path would open 750 ms later.
const WHOLE_OPENS: u8 = 1;

/// How long the true answer may still take after an unproven REFUSED, and how long somebody else
/// may still be served (`docs/protocol.md §4.1`).
const HINT_PATIENCE: Duration = Duration::from_secs(5);
const BUSY_PATIENCE: Duration = Duration::from_secs(5);

/// What a datagram came to.
pub(crate) enum Hear<'a> {
    /// It was nothing.
    Nothing,
    /// It proved itself.
    News,
    /// The connection is open; the datagram, if handed back, is its first.
    Opened(Box<Opened>, Option<&'a mut [u8]>),
}

/// What is needed to read the answer.
#[derive(Debug)]
enum Handshake {
    Rfc998 { ports: Ports },
    Sealed(Box<Candidates>),
}

/// Whether a cookie makes an OPEN leave before it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    /// The next cookie does: the newest OPEN left when it was due.
    Ready,
    /// One has: the next OPEN leaves early.
    Due,
    /// Not before another OPEN was due.
    Spent,
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
    /// When the first left, and as much later as this host stood still since.
    first: Option<Instant>,
    /// When something came that proved itself.
    heard: Instant,
    /// What somebody who could not prove it said, and when first.
    hint: Option<(Instant, String)>,
    refused: Option<String>,
    /// The passive end serves somebody else, and when it first said so.
    busy: Option<(Instant, String)>,
    /// The answer breaks the protocol (`rfc998`): what is wrong, and the ABORT that says so.
    fault: Option<(&'static str, Option<Vec<u8>>)>,
    /// What the peer's host said.
    refusals: Refusals,
    /// How long somebody who proves himself is waited for at most.
    patience: Duration,
    hurry: Hurry,
    /// OPENs that left, and whether the newest leaves once more.
    tries: u8,
    twice: bool,
    /// Somebody said that OPEN is too large for the path.
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
                let (candidates, open) = Candidates::open(config, &proposal, &mut entropy);
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
            heard: now,
            hint: None,
            refused: None,
            busy: None,
            fault: None,
            refusals: Refusals::new(now, config.wire == Wire::Sealed),
            patience: config.death_timer,
            hurry: Hurry::Ready,
            tries: 0,
            twice: false,
            narrow: false,
            entropy,
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection id that answers carry, where the wire has one.
    pub(crate) fn own_id(&self) -> Option<u32> {
        match &self.handshake {
            Handshake::Rfc998 { .. } => None,
            Handshake::Sealed(candidates) => Some(candidates.connection()),
        }
    }

    /// The peer's host refused a packet that began like this. Whoever can show its clear bytes has
    /// seen it.
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
            self.refusals.on_refused(now, PacketNumber(0));
        }
    }

    /// This host does not send OPEN, or a router says that it does not pass. That may be forged,
    /// but the short form says the same. Whether there is one.
    pub(crate) fn handle_size_limit(&mut self, now: Instant, own_host: bool) -> bool {
        let short = matches!(self.handshake, Handshake::Sealed(_));
        if short && !std::mem::replace(&mut self.narrow, true) && own_host && self.tries > 0 {
            // What was not sent does not count.
            self.left += 1;
            self.next = now;
            if self.sent.is_some_and(|(_, once)| once) {
                (self.sent, self.first) = (None, None);
            }
        }
        short
    }

    /// A datagram; this host stood still for so long while it was here.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        (now, still): (Instant, Duration),
        route: Route,
        bytes: &'a mut [u8],
        words: FirstWords<'_>,
    ) -> Hear<'a> {
        let called = route.peer == self.peer;
        if let Handshake::Rfc998 { .. } = &self.handshake {
            let opened = called.then(|| self.handle_rfc998((now, still), bytes)).flatten();
            return opened.map_or(Hear::Nothing, |opened| Hear::Opened(opened, None));
        }
        // What proves itself may come from elsewhere: a passive end may have moved too.
        let told = match sealed::kind_of(bytes) {
            Some(Kind::Response) => self.handle_response((now, still), bytes, words),
            Some(Kind::Cookie) => self.handle_cookie(now, bytes),
            Some(Kind::Refused) => self.handle_refused(now, bytes, called),
            Some(kind) if !kind.is_handshake() => return self.handle_first(route, bytes),
            _ => false,
        };
        if !told {
            return Hear::Nothing;
        }
        self.heard = now;
        Hear::News
    }

    /// Something under transport keys: the passive end is there, and has chosen.
    fn handle_first<'a>(&mut self, route: Route, bytes: &'a mut [u8]) -> Hear<'a> {
        let Handshake::Sealed(candidates) = &mut self.handshake else { return Hear::Nothing };
        let Some(candidate) = candidates.take_living(bytes) else { return Hear::Nothing };
        let Candidate { link, root, parameters, table_bytes, rtt, longest_rtt, sent, .. } =
            candidate;
        let greeted = candidate.greeted;
        let entropy = Entropy::new(self.entropy.draw());
        let opened = Opened::new(link, parameters, table_bytes, entropy);
        let place = if route.peer == self.peer {
            Place::Known
        } else {
            // It was called elsewhere, and may still be there.
            let called = Route { peer: self.peer, local: None };
            Place::OneOf(vec![(called, self.open.len() as u64), (route, 0)])
        };
        let unconfirmed = sent.is_empty();
        let peer_key = candidates.peer_key();
        let opened =
            Opened { rtt, longest_rtt, unconfirmed, greeted, sent_before: sent, place, ..opened };
        let opened = Opened { peer_key, root: Some(root), ..opened };
        Hear::Opened(Box::new(opened), Some(bytes))
    }

    fn handle_rfc998(
        &mut self,
        (now, still): (Instant, Duration),
        bytes: &[u8],
    ) -> Option<Box<Opened>> {
        let Handshake::Rfc998 { ports } = &self.handshake else { return None };
        let ports = *ports;
        let (from, packet) = rfc998::parse(bytes, false, Default::default()).ok()?;
        if from != ports.swapped() {
            return None;
        }
        match packet {
            // The answer to an earlier OPEN, and the UID "prevents the initiator from confusing"
            // the two (RFC 998 §5.1). The right one may still come.
            Packet998::Response(response) if response.uid != self.proposal.uid => None,
            Packet998::Response(response) => {
                if let Err(what) = judge(Wire::Rfc998, &self.proposal, &response) {
                    let mut abort = Vec::new();
                    rfc998::encode_abort(ports, what, &mut abort);
                    self.fault.get_or_insert((what, Some(abort)));
                    return None;
                }
                let link = Link::rfc998(
                    ports,
                    response.checksum,
                    response.buffer_bytes,
                    response.packet_bytes,
                );
                let entropy = Entropy::new(self.entropy.draw());
                let (rtt, longest_rtt) = self.round_trips(now, still);
                let opened = Opened::new(link, response, 0, entropy);
                let proof = super::return_routability::of(&opened.parameters.client);
                let echo = proof.map(|proof| (proof, self.open_with(ports, proof)));
                Some(Box::new(Opened { rtt, longest_rtt, echo, ..opened }))
            }
            Packet998::Refused(reason) | Packet998::Abort(reason) => {
                self.refused = Some(reason);
                None
            }
            _ => None,
        }
    }

    /// The OPEN once more, with the number that RESPONSE told: who gives it back hears.
    fn open_with(&self, ports: Ports, proof: u32) -> Vec<u8> {
        let client = super::return_routability::with(&self.proposal.client, proof, usize::MAX);
        let proposal = Parameters { client, ..self.proposal.clone() };
        let mut open = Vec::new();
        rfc998::encode_open(ports, &proposal, &mut open);
        open
    }

    /// If this is another RESPONSE to this end's OPEN: the number that it tells, and the OPEN that
    /// gives it back. To that one it tells none.
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

    /// A RESPONSE; whether it is the passive end's.
    fn handle_response(
        &mut self,
        (now, still): (Instant, Duration),
        bytes: &[u8],
        words: FirstWords<'_>,
    ) -> bool {
        let times = self.round_trips(now, still);
        let Handshake::Sealed(candidates) = &mut self.handshake else { return false };
        match candidates.judge(now, &self.proposal, bytes, times, words) {
            Judged::Nothing => return false,
            Judged::True => self.busy = None,
            Judged::Loose => {
                self.refused = Some("its answer is looser than what was proposed".to_owned());
            }
        }
        true
    }

    /// The passive end asks for proof of the address: the next OPEN brings the cookie. It leaves at
    /// once, but only with another cookie than the last one's, since a COOKIE said again must draw
    /// nothing, and only once for each OPEN that was due: old ones, said in turn, draw little.
    fn handle_cookie(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let Handshake::Sealed(candidates) = &self.handshake else { return false };
        let Ok(frame) = sealed::parse_cookie(bytes) else { return false };
        let ours = frame.to == candidates.connection() && frame.uid == self.proposal.uid;
        let open_mac = sealed::open_mac(&self.open);
        if !ours || !candidates.mac_key().verify(&[frame.covered, open_mac], &frame.mac) {
            return false;
        }
        let another = sealed::set_cookie(&mut self.open, &frame.cookie);
        if another && self.hurry == Hurry::Ready && self.left > 0 {
            self.hurry = Hurry::Due;
            self.next = now;
            self.left += 1;
            // What came before drew the cookie, and so no RESPONSE.
            self.sent = self.sent.filter(|(_, once)| !once);
        }
        true
    }

    /// A REFUSED, from the address that was called or from elsewhere; whether it proves itself.
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
                if *first + BUSY_PATIENCE <= now {
                    self.refused = Some(reason);
                }
            }
            (true, false) => self.refused = Some(reason),
            (false, _) if called => _ = self.hint.get_or_insert((now, reason)),
            (false, _) => {}
        }
        proven
    }

    /// The round trip that an answer tells, now that this host has stood `still` since it came:
    /// only an OPEN sent once tells it (Karn's rule), and only if no other was due since, or it is
    /// known what this host did instead. And, however often it was sent, the longest that it may
    /// be: no answer is older than the first OPEN.
    fn round_trips(&self, now: Instant, still: Duration) -> (Option<Duration>, Option<Duration>) {
        let known = now <= self.next || !still.is_zero();
        let once = self.sent.filter(|(_, once)| *once && known);
        let since = |at| without(now.since(at), still);
        (once.map(|(at, _)| since(at)), self.first.map(since))
    }

    /// A QUIT for each passive end that may hold what this one opens for a connection: the one that
    /// OPEN was sent to (`rfc998`), those whose RESPONSEs were confirmed (`sealed`).
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

    /// The ABORT that a bad RESPONSE draws, once.
    pub(crate) fn take_abort(&mut self) -> Option<Vec<u8>> {
        self.fault.as_mut().and_then(|(_, abort)| abort.take())
    }

    /// Whether the opening has failed, and why.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Reason> {
        if let Some((what, _)) = self.fault {
            return Some(Reason::Violation(what));
        }
        if let Some(reason) = self.refused.take() {
            return Some(Reason::Refused(reason));
        }
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        Some(match self.busy.take() {
            Some((_, reason)) => Reason::Refused(reason),
            None => Reason::NoAnswer {
                hint: self.hint.as_ref().map(|(_, hint)| hint.clone()),
                unreachable: self.refusals.were_any(),
            },
        })
    }

    /// When there is no more hope. A hint or a refusal of the host may be forged by somebody on the
    /// path; but the true answer would come in the time they leave it. Who is heard is waited for
    /// once more, as long as there are OPENs.
    fn deadline(&self) -> Option<Instant> {
        earliest([
            (self.left == 0).then_some(self.next),
            self.first.map(|at| at.max(self.heard) + self.patience),
            self.hint.as_ref().map(|(at, _)| *at + HINT_PATIENCE),
            self.refusals.closed_at(),
        ])
    }

    /// Appends what is due: the OPEN, and what confirms the answers to it.
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
        let hurried = self.hurry == Hurry::Due;
        self.hurry = if hurried { Hurry::Spent } else { Hurry::Ready };
        self.first = Some(self.first.map_or(now, |first| first + now.since(self.next)));
        self.next = now + self.wait;
        self.wait = (self.wait * 3 / 2).min(self.longest_wait);
        self.sent = Some((now, self.sent.is_none()));
        if let Handshake::Sealed(candidates) = &mut self.handshake {
            candidates.repeat();
            self.twice = self.tries > 0 && !hurried;
        }
        self.tries = self.tries.saturating_add(1);
        Some(self.put_open(out))
    }

    /// Appends the OPEN, in the form that its turn has.
    fn put_open(&self, out: &mut Vec<u8>) -> usize {
        let sealed = matches!(self.handshake, Handshake::Sealed(_));
        let narrow = self.narrow || self.tries > WHOLE_OPENS;
        let short = (sealed && narrow).then(|| sealed::shorten_open(&self.open)).flatten();
        let open = short.as_deref().unwrap_or(&self.open);
        out.extend_from_slice(open);
        open.len()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let due = matches!(&self.handshake, Handshake::Sealed(candidates) if candidates.is_due());
        if self.refused.is_some() || self.fault.is_some() || due || self.twice {
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
