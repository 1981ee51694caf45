//! One end of a connection: handshake, keys, one machine (sender or receiver), close.

mod client;
mod event_queue;
mod replies;
pub mod subflows;

use std::net::{IpAddr, SocketAddr};

use event_queue::EventQueue;
pub(crate) use replies::EXPLANATIONS;
use replies::Replies;
use subflows::{FIRST_SHARE, Subflow, Subflows};

use crate::amplification_limit::AmplificationLimit;
use crate::api::{CloseReason, Datagram, Ecn, Event, RecvMeta, Route, Transmit};
use crate::buffer::Buffer;
use crate::config::{
    Config, FixedRate, FixedRateSpec, Policy, PublicKey, Role, RuntimeSettings, Wire,
};
use crate::connection::{Branches, Connection, DatagramOutcome, DeathTimers, Machine};
use crate::crypto::exporter::ExporterSecret;
use crate::entropy::Entropy;
use crate::handshake::active::{Active, InitiatorEvent};
use crate::handshake::passive::{CurrentConnection, Passive};
use crate::handshake::responder_action::ResponderAction;
use crate::handshake::{HandledAt, Opened, PeerLocation, negotiated};
use crate::limits::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES};
use crate::negotiated::{HandshakeRtt, Negotiated};
use crate::path_validation::PathValidator;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::time::Instant;
use crate::timers::{ConnectionTimer, Timer};
use crate::trace::{TraceEvent, TraceQueue};
use crate::wire::packet::{Keepalive, Parameters};
use crate::wire::sealed::{self, HandshakePayload, PacketType};
use crate::wire_profile::WireProfile;
use crate::{emulated, loss_detection};

/// The handshake of this end.
#[derive(Debug)]
enum HandshakeSide {
    Active(Box<Active>),
    Passive(Box<Passive>),
    /// Nothing more opens here: a [`crate::listener::PassiveListener`] opened it, or it is the
    /// active end of an open connection on `sealed`.
    Done,
}

/// One end of a connection. See [`crate::api`] for the driver's contract.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    steering: RuntimeSettings,
    handshake: HandshakeSide,
    connection: Option<Connection>,
    /// The static key of the connection's peer.
    peer_key: Option<PublicKey>,
    /// The local id of the connection that this one branched from, if it did.
    stem: Option<u32>,
    before_open: BeforeOpen,
    replies: Replies,
    events: EventQueue,
    trace: TraceQueue,
    subflows: Subflows,
    counts: DatagramCounts,
}

/// What a receiver's client gave before the connection was open.
#[derive(Debug, Default)]
struct BeforeOpen {
    offered: Vec<Buffer>,
    /// The list of stored data, for HAVE.
    have: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct DatagramCounts {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    dropped: u64,
    /// The first and the last value of [`crate::api::RecvMeta::overrun`].
    overrun: Option<(u32, u32)>,
    opened_at: Option<Instant>,
}

impl Endpoint {
    /// An end that opens a connection to `peer`. `entropy` must never be used twice outside tests.
    ///
    /// # Panics
    ///
    /// If it was given the identity of a passive end.
    pub fn active(config: Config, peer: SocketAddr, now: Instant, entropy: [u8; 32]) -> Self {
        let active = Active::start(&config, peer, now, Entropy::new(entropy));
        Self::new(config, HandshakeSide::Active(Box::new(active)))
    }

    /// An end that waits to be opened; `entropy` as for [`Endpoint::active`].
    pub fn passive(config: Config, _now: Instant, entropy: [u8; 32]) -> Self {
        let passive = Passive::new(&config, Entropy::new(entropy));
        Self::new(config, HandshakeSide::Passive(Box::new(passive)))
    }

    /// An end that a listener has opened; `first` is its first packet.
    pub(crate) fn served(
        config: Config,
        now: Instant,
        route: Route,
        meta: RecvMeta,
        opened: Opened,
        first: Option<&mut [u8]>,
    ) -> Self {
        let mut new = Self::new(config, HandshakeSide::Done);
        new.open(now, route, opened, first, meta);
        new.collect(now);
        new
    }

    fn new(config: Config, handshake: HandshakeSide) -> Self {
        Self {
            trace: TraceQueue::new(config.trace),
            config,
            steering: RuntimeSettings::default(),
            handshake,
            connection: None,
            peer_key: None,
            stem: None,
            before_open: BeforeOpen::default(),
            replies: Replies::default(),
            events: EventQueue::default(),
            subflows: Subflows::default(),
            counts: DatagramCounts::default(),
        }
    }

    // ---- inputs

    /// An ICMP message says that the peer's port or host is unreachable. `quote` has the first
    /// bytes of the refused packet; without its whole clear header it is ignored.
    pub fn handle_unreachable(&mut self, now: Instant, quote: &[u8]) {
        if let Some(connection) = &mut self.connection {
            connection.handle_unreachable(now, quote);
        } else if let HandshakeSide::Active(active) = &mut self.handshake {
            active.handle_unreachable(now, quote);
        }
        self.collect(now);
    }

    /// An ICMP message limits IP packets to `bytes`. It may be forged, so it only starts probes
    /// (`docs/protocol §6.5`).
    pub fn handle_path_limit(&mut self, now: Instant, bytes: u32) {
        if let Some(Machine::Sender(sender)) = self.connection.as_mut().map(|c| &mut c.machine) {
            sender.handle_size_hint(now, bytes);
        } else if let (None, HandshakeSide::Active(active)) =
            (&self.connection, &mut self.handshake)
        {
            active.handle_size_limit(now, false);
        }
        self.take_trace();
    }

    /// This host refused to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. True: smaller ones are sent from now on. False: these datagrams cannot be smaller.
    pub fn handle_oversize(&mut self, now: Instant, bytes: u32, limit: Option<u32>) -> bool {
        let machine = self.connection.as_mut().map(|c| &mut c.machine);
        let helped = match (machine, &mut self.handshake) {
            (Some(Machine::Sender(sender)), _) => sender.handle_size_refused(now, bytes, limit),
            (Some(Machine::Receiver(receiver)), _) => receiver.handle_size_refused(bytes),
            (None, HandshakeSide::Active(active)) => active.handle_size_limit(now, true),
            (None, _) => false,
        };
        self.take_trace();
        helped
    }

    fn dispatch(&mut self, now: Instant, datagram: Datagram<'_>) -> DatagramOutcome {
        let Datagram { from, local, meta, bytes } = datagram;
        let (route, at) =
            (Route { peer: from, local }, HandledAt { now, host_stall: meta.host_stall() });
        let len = bytes.len();
        if let Some(connection) = self.connection.as_mut().filter(|c| c.may_come_from(route)) {
            connection.on_received(len);
            let unknown = sealed::kind_of(bytes) == Some(PacketType::Unknown);
            let handled = match unknown {
                true => connection.handle_unknown(now, route, bytes),
                false => connection.handle_datagram(now, route, bytes, meta),
            };
            if handled == DatagramOutcome::Authentic
                || self.handle_subflow_datagram(now, Datagram { from, local, meta, bytes })
            {
                return DatagramOutcome::Authentic;
            }
        }
        let closing = self.connection.as_ref().is_some_and(Connection::is_closing);
        let config = &self.config;
        let grants = if self.steering.paused { 0 } else { self.before_open.offered.len() as u32 };
        let have = self.before_open.have.as_deref().filter(|_| config.role == Role::Receiver);
        let early_control = |parameters: &Parameters, table_bytes| {
            let of = negotiated(config, parameters, table_bytes, now, HandshakeRtt::default());
            Receiver::early_messages(&of, have?, grants)
        };
        match &mut self.handshake {
            HandshakeSide::Done => return DatagramOutcome::Dropped,
            HandshakeSide::Active(active) if self.connection.is_some() => {
                let known = self.connection.as_mut().filter(|c| c.may_come_from(route));
                match known.zip(active.response_again(bytes)) {
                    Some((connection, echo)) => connection.on_response(now, echo),
                    None => return DatagramOutcome::Dropped,
                }
            }
            HandshakeSide::Active(active) => {
                match active.handle_datagram(at, route, bytes, &early_control) {
                    InitiatorEvent::Nothing => match active.take_abort() {
                        Some(abort) => self.replies.push(route, abort),
                        None => return DatagramOutcome::Dropped,
                    },
                    InitiatorEvent::Authentic => {}
                    InitiatorEvent::Opened(opened, first) => {
                        self.open(now, route, *opened, first, meta)
                    }
                }
            }
            // One client has quit: this end opens no other connection.
            HandshakeSide::Passive(_) if closing => return DatagramOutcome::Dropped,
            HandshakeSide::Passive(passive) => {
                let standing = self.connection.as_ref().map(|connection| CurrentConnection {
                    alive: connection.is_alive(now),
                    own_id: connection.own_id(),
                    half_open: connection.is_half_open(),
                });
                let action =
                    passive.handle_datagram(at, route, bytes, config, &early_control, standing);
                return self.handle_responder_action(now, route, action, meta);
            }
        }
        DatagramOutcome::Authentic
    }

    /// Does what the passive end of a handshake asks for.
    fn handle_responder_action(
        &mut self,
        now: Instant,
        route: Route,
        action: ResponderAction<'_>,
        meta: RecvMeta,
    ) -> DatagramOutcome {
        match action {
            ResponderAction::Nothing => return DatagramOutcome::Dropped,
            ResponderAction::Reply(packet) => self.reply_within_room(route, packet),
            ResponderAction::Reopened(packet) => {
                self.connection.iter_mut().for_each(|c| c.on_reopened(now));
                self.reply_within_room(route, packet);
            }
            ResponderAction::ReplyWithControl(response, early_control) => {
                self.replies.push(route, response);
                self.replies.push(route, early_control);
            }
            ResponderAction::Validated(packet) => {
                self.connection.iter_mut().for_each(Connection::on_address_validated);
                self.replies.push(route, packet);
            }
            ResponderAction::Opened(opened, first) => {
                self.open(now, route, *opened, first, meta);
            }
        }
        DatagramOutcome::Authentic
    }

    /// A connection is open and replaces one that was open before. `first` is the packet that
    /// confirmed it.
    fn open(
        &mut self,
        now: Instant,
        route: Route,
        opened: Opened,
        first: Option<&mut [u8]>,
        meta: RecvMeta,
    ) {
        let Opened { codec, parameters, table_bytes, rtt, mut entropy, .. } = opened;
        self.end_old(now);
        let negotiated = negotiated(&self.config, &parameters, table_bytes, now, rtt);
        if self.config.accept_any_role {
            self.config.role = Role::left_by(parameters.mode);
        }
        let lighter = self.config.either_version && route.peer.is_ipv4();
        let less = if lighter { IPV6_HEADER_BYTES - IPV4_HEADER_BYTES } else { 0 };
        let overhead = self.config.overhead_bytes.saturating_sub(less);
        let mut machine = self.machine(now, negotiated, (overhead, route.peer.ip()));
        if let Machine::Sender(sender) = &mut machine {
            sender.skip_numbers(entropy.draw());
        }
        let deaths = DeathTimers { own: self.config.death_timer, peer: parameters.death_timer };
        let seed = entropy.draw_u64();
        let addresses = match opened.location {
            PeerLocation::Validated => {
                PathValidator::validated_at(route, negotiated.profile.peer_may_move, entropy)
            }
            PeerLocation::OneOf(routes) => PathValidator::unvalidated(now, &routes, entropy),
        };
        let mut connection =
            Connection::new(now, addresses, negotiated.profile, codec, machine, deaths);
        connection.trace().switch(self.trace.is_on());
        self.let_begin(&mut connection, opened.root, &parameters, table_bytes, rtt);
        if let Some(echo) = opened.echo {
            connection.echo(now, echo);
        }
        if let Some((came, soon)) = opened.unvalidated {
            let doubt = AmplificationLimit::new(overhead, soon);
            connection.limit_amplification(came, doubt, seed);
        }
        if opened.unconfirmed {
            connection.push_keepalive(Keepalive { answer_wanted: true, ..Default::default() });
        }
        for (at, number, bytes) in opened.sent_before {
            connection.on_sent_before(at, number, bytes);
        }
        self.counts.opened_at = Some(now);
        self.peer_key = opened.peer_key;
        self.announce(now, route, parameters, &negotiated);
        if let Some(reply) = opened.reply.filter(|reply| connection.may_go(reply.len())) {
            self.replies.push(route, reply);
        }
        if self.steering != RuntimeSettings::default() {
            self.apply(now, &mut connection, None);
        }
        // Before the first packet is handled: it may close the connection, which then returns its
        // buffers; or be data for a buffer granted with RESPONSE.
        self.hand_over(now, &mut connection, opened.early_control_sent);
        if let Some(bytes) = first {
            connection.handle_datagram(now, route, bytes, meta);
        }
        self.connection = Some(connection);
    }

    /// Closes the connection that was open before.
    fn end_old(&mut self, now: Instant) {
        if let Some(mut old) = self.connection.take() {
            let abort = old.supersede(now);
            self.trace.take_over(old.trace());
            self.events.append(old.events_mut());
            abort.into_iter().for_each(|(to, packet)| self.replies.push(to, packet));
        }
    }

    /// Reports the open connection to the client and the trace.
    fn announce(
        &mut self,
        now: Instant,
        route: Route,
        parameters: Parameters,
        negotiated: &Negotiated,
    ) {
        let image_bytes = negotiated.geometry.buffer_bytes;
        self.events.push(Event::Opened { peer: route.peer, parameters, image_bytes });
        let traced = TraceEvent::Opened {
            role: self.config.role,
            wire: self.config.wire,
            buffer_bytes: image_bytes,
            packet_bytes: negotiated.geometry.packet_bytes,
            max_outstanding: negotiated.max_outstanding,
        };
        self.trace.push(now, traced);
    }

    fn machine(&self, now: Instant, negotiated: Negotiated, over: (u32, IpAddr)) -> Machine {
        match self.config.role {
            Role::Sender => {
                let law = emulated::build(&self.config, self.chosen(), &negotiated, over);
                Machine::Sender(Box::new(Sender::new(now, negotiated, law, over.0)))
            }
            Role::Receiver => {
                let recovery = loss_detection::build(self.config.recovery);
                Machine::Receiver(Box::new(Receiver::new(negotiated, recovery)))
            }
        }
    }

    /// Passes on what the client gave before the connection was open; a part may have left as early
    /// control at `early_control_sent`.
    fn hand_over(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        early_control_sent: Option<(Instant, bool)>,
    ) {
        if let Some(have) = self.before_open.have.take() {
            connection.announce_have(&have, early_control_sent.is_some());
        }
        for buffer in self.before_open.offered.drain(..) {
            connection.offer(now, buffer);
        }
        if let (Some((at, once)), Machine::Receiver(receiver)) =
            (early_control_sent, &mut connection.machine)
        {
            receiver.on_early_control_sent(now, at, once);
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
            self.subflows.handle_timeout(now);
        } else if let HandshakeSide::Active(active) = &mut self.handshake
            && let Some(reason) = active.handle_timeout(now)
        {
            self.close(now, reason);
        }
        self.collect(now);
    }

    /// Collects the events of the connection, and its close.
    fn collect(&mut self, now: Instant) {
        self.take_trace();
        let Some(connection) = &mut self.connection else { return };
        self.events.append(connection.events_mut());
        if let Some(reason) = connection.closed().cloned() {
            self.close(now, reason);
        }
    }

    fn close(&mut self, now: Instant, reason: CloseReason) {
        if !self.events.is_closed() {
            self.subflows.end();
            for buffer in self.before_open.offered.drain(..) {
                self.events.push(Event::Returned(buffer));
            }
            self.trace.push(now, TraceEvent::Closed { how: reason.name() });
            self.events.push(Event::Closed(reason));
        }
    }

    // ---- outputs

    /// Appends the next datagrams to send to `batch`, if any are due.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(asked) = self.subflows.poll_transmit(now, batch) {
            return Some(asked);
        }
        let start = batch.len();
        let next = self.next_batch(now, batch);
        self.take_trace();
        let (route, segment) = next?;
        let len = batch.len() - start;
        let packets = len.div_ceil(segment.max(1)) as u32;
        self.counts.sent += u64::from(packets);
        self.counts.sent_bytes += len as u64;
        let kind = batch.get(start + 3).copied().unwrap_or(255);
        self.trace.push(now, TraceEvent::Sent { kind, packets, bytes: len as u32 });
        let marks = kind != PacketType::Open as u8 && self.answers_marks();
        let ecn = marks.then_some(Ecn::Ect0);
        Some(Transmit { to: route.peer, local: route.local, ecn, segment, len })
    }

    /// Whether this end sends data on a wire with ECN, under a rate law that responds to marks.
    fn answers_marks(&self) -> bool {
        let machine = self.connection.as_ref().map(|connection| &connection.machine);
        let answers = matches!(machine, Some(Machine::Sender(sender)) if sender.answers_marks());
        answers && WireProfile::of(self.config.wire).ecn
    }

    /// Handshake packets and the connection take turns, so that a flood of OPENs does not starve
    /// it.
    fn next_batch(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<(Route, usize)> {
        if self.replies.take_turn()
            && let Some(next) = self.replies.poll(batch)
        {
            return Some(next);
        }
        self.next_of_connection(now, batch).or_else(|| self.replies.poll(batch))
    }

    fn next_of_connection(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<(Route, usize)> {
        if let Some(connection) = &mut self.connection {
            // The client's next offer will share a packet with the OK (RFC 1030).
            if self.events.has_filled() {
                return None;
            }
            return connection.poll_transmit(now, batch);
        }
        match &mut self.handshake {
            HandshakeSide::Active(active) if !self.events.is_closed() => {
                let len = active.poll_transmit(now, batch)?;
                Some((Route { peer: active.peer(), local: None }, len))
            }
            _ => None,
        }
    }

    /// The next event, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The next trace event, if tracing is on.
    pub fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        self.trace.pop()
    }

    /// When `handle_timeout` is due, or `poll_transmit` has a packet; `now` is the present.
    pub fn next_timeout(&self, now: Instant) -> Option<Instant> {
        self.next_timer(now).map(|(_, at)| at)
    }

    /// The same with the timer that is the reason.
    pub fn next_timer(&self, now: Instant) -> Option<(Timer, Instant)> {
        if !self.replies.is_empty() {
            return Some((ConnectionTimer::Outbox.into(), now));
        }
        match (&self.connection, &self.handshake) {
            (Some(connection), _) => {
                let timers = [connection.next_timer(now), self.subflows.next_timer(now)];
                timers.into_iter().flatten().min_by_key(|(_, at)| *at)
            }
            _ if self.events.is_closed() => None,
            (None, HandshakeSide::Active(active)) => active.next_timer(),
            (None, HandshakeSide::Passive(_) | HandshakeSide::Done) => None,
        }
    }

    fn take_trace(&mut self) {
        if let Some(connection) = self.connection.as_mut().filter(|_| self.trace.is_on()) {
            self.trace.take_over(connection.trace());
        }
    }

    /// The client gives up before the connection is open here. A peer that answered, or got early
    /// control messages, may have it open, and would wait for the rest of its death timer.
    fn quit_opening(&mut self, now: Instant, reason: &str) {
        match &mut self.handshake {
            HandshakeSide::Active(active) => {
                let to = Route { peer: active.peer(), local: None };
                let quits = active.quits(reason);
                self.replies.extend(quits.into_iter().map(|packet| (to, packet)));
            }
            HandshakeSide::Passive(passive) => self.replies.extend(passive.quits(reason)),
            HandshakeSide::Done => {}
        }
        self.close(now, CloseReason::Quit);
    }

    /// A datagram arrived.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if self.events.is_closed() {
            return;
        }
        let (len, kind) = (datagram.bytes.len(), datagram.bytes.get(3).copied().unwrap_or(255));
        let RecvMeta { ecn, overrun, .. } = datagram.meta;
        self.count_overruns(now, overrun);
        if self.take_predicted(now, &datagram) {
            self.counts.received += 1;
            self.counts.received_bytes += len as u64;
            return;
        }
        let handled = self.dispatch(now, datagram);
        match handled {
            DatagramOutcome::Authentic => {
                self.counts.received += 1;
                self.counts.received_bytes += len as u64;
                let (bytes, marked) = (len as u32, ecn == Some(Ecn::Ce));
                self.trace.push(now, TraceEvent::Received { kind, bytes, marked });
            }
            DatagramOutcome::Dropped => {
                self.counts.dropped += 1;
                self.trace.push(now, TraceEvent::Dropped { bytes: len as u32 });
            }
        }
        self.collect(now);
    }

    /// Counts the datagrams that the socket had no room for; `overrun` also counts those before
    /// this connection.
    #[inline]
    fn count_overruns(&mut self, now: Instant, overrun: u32) {
        let counted = self.counts.overrun.get_or_insert((overrun, overrun));
        if counted.1 != overrun {
            counted.1 = overrun;
            let datagrams = overrun.wrapping_sub(counted.0);
            self.trace.push(now, TraceEvent::Overrun { datagrams });
        }
    }

    /// Queues a handshake packet; to an address that is not validated only within the amplification
    /// limit (`docs/protocol §2.3`).
    fn reply_within_room(&mut self, to: Route, packet: Vec<u8>) {
        let own = self.connection.as_mut().filter(|connection| connection.may_come_from(to));
        if own.is_none_or(|connection| connection.may_go(packet.len())) {
            self.replies.push(to, packet);
        }
    }

    /// Handles the datagram if it is the predicted one (header prediction).
    fn take_predicted(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.trace.is_on()) else {
            return false;
        };
        let Datagram { from, local, meta, ref bytes } = *datagram;
        connection.take_predicted(now, Route { peer: from, local }, bytes, meta)
    }

    /// A connection is open, with this exporter secret if it has one: allows its subflows and
    /// branches.
    fn let_begin(
        &mut self,
        connection: &mut Connection,
        root: Option<ExporterSecret>,
        parameters: &Parameters,
        table_bytes: u32,
        rtt: HandshakeRtt,
    ) {
        let active = matches!(self.handshake, HandshakeSide::Active(_));
        if active && self.config.wire == Wire::Sealed {
            // Drops the handshake state, which would reveal all later keys.
            self.handshake = HandshakeSide::Done;
        }
        self.subflows.begin(parameters, table_bytes, root.as_ref().map(ExporterSecret::subflows));
        let root = root.filter(|_| self.config.branches);
        let Some((root, cipher)) = root.zip(connection.cipher()) else { return };
        let parameters = parameters.clone();
        let settled = HandshakePayload { parameters, ciphers: cipher.bit(), table_bytes };
        connection.let_branch(Branches::of(root.branches(), active, settled, rtt));
    }

    /// A datagram that is not this connection's: it may belong to a subflow whose address is under
    /// validation.
    fn handle_subflow_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> bool {
        let Some(number) = self.subflows.number_of(datagram.bytes) else { return false };
        if self.subflows.has_begun(number) {
            return self.subflows.handle_answer(now, number, datagram);
        }
        self.open_subflow(now, number, datagram).is_some()
    }

    /// The first packet of a subflow, if it is authentic: its address is validated next.
    fn open_subflow(&mut self, now: Instant, number: u8, datagram: Datagram<'_>) -> Option<()> {
        let Datagram { from, local, meta, bytes } = datagram;
        let route = Route { peer: from, local };
        let keys = self.subflows.unused_keys(number)?;
        let codec = self.connection.as_ref()?.codec_of(keys, false)?;
        if !codec.authenticates(bytes) {
            return None;
        }
        let entropy = self.subflows.draw()?;
        self.subflows.begin_number(number);
        let mut opened = self.subflows.opened(codec, self.stats(now).min_rtt, entropy)?;
        opened.location = PeerLocation::OneOf(vec![(route, bytes.len() as u64)]);
        let end = self.subflow(now, route, meta, opened, Some(bytes));
        self.subflows.validate(now, Subflow { number, peer: route, end });
        Some(())
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

#[cfg(test)]
mod tests;
