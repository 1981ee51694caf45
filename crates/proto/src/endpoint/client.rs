//! What a client asks of an endpoint: data and buffers, settings, branches, subflows, and the
//! getters. The driver's part is in the parent module.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::subflows::{Subflow, SubflowShare, SubflowTally};
use super::{Endpoint, HandshakeSide};
use crate::api::{CloseReason, Event, RecvMeta, Route};
use crate::buffer::Buffer;
use crate::config::{
    AuthorizedKeys, Ceiling, Config, Identity, Policy, PublicKey, RuntimeSettings,
};
use crate::connection::{Connection, Machine};
use crate::entropy::Entropy;
use crate::handshake::{Opened, propose};
use crate::rate;
use crate::stats::Stats;
use crate::time::Instant;
use crate::units::{BufferNumber, Rate};
use crate::wire::packet::{End, Keepalive, Parameters, Verdict};
use crate::wire::sealed::HandshakePayload;

impl Endpoint {
    // ---- the client's verbs

    /// Sender: the buffer for `number`, as wanted; `last` if no buffer follows it. A buffer that is
    /// not wanted comes back as [`Event::Released`].
    pub fn supply(&mut self, now: Instant, number: BufferNumber, buffer: Buffer, last: bool) {
        match self.connection.as_mut().filter(|_| !self.events.is_closed()) {
            Some(connection) => connection.supply(now, number, buffer, last),
            None => self.events.hand_back(Event::Released(number, buffer)),
        }
        self.take_trace();
    }

    /// Sender: no buffer beyond `end.buffers` will be supplied.
    pub fn end(&mut self, now: Instant, end: End) {
        self.connection.iter_mut().for_each(|connection| connection.end(now, end));
    }

    /// Sender: sets what limits the transfer so far, for `Stats::limit` of both ends
    /// (`docs/protocol §8.6`).
    pub fn say_limit(&mut self, limit: u8) {
        self.connection.iter_mut().for_each(|connection| connection.set_limit_cause(limit));
    }

    /// Receiver, before the first [`Endpoint::offer`] of a connection of `sealed`: sends the other
    /// client a list of the data that are stored already (HAVE, `docs/protocol §8.7`). A list
    /// longer than `MAX_HAVE_IN_ALL` bytes is not sent. No buffer is granted before the last of it
    /// is in the FIFO.
    ///
    /// An end that gets the list, and buffers, before [`Event::Opened`] grants them with its first
    /// packet under keys, a round trip sooner (`docs/protocol §4.3`); but only to the first
    /// peer.
    pub fn tell(&mut self, _now: Instant, have: &[u8]) {
        match &mut self.connection {
            Some(connection) => connection.announce_have(have, false),
            None => self.before_open.have = Some(have.to_vec()),
        }
    }

    /// Receiver: an empty buffer, for a GO. One too small for the transfer, or for which no data
    /// will come, is handed back as [`Event::Returned`].
    pub fn offer(&mut self, now: Instant, buffer: Buffer) {
        match &mut self.connection {
            _ if self.events.is_closed() => self.events.hand_back(Event::Returned(buffer)),
            Some(connection) => connection.offer(now, buffer),
            None => self.before_open.offered.push(buffer),
        }
        self.take_trace();
    }

    /// Receiver, after [`Event::Complete`] on `sealed`: everything is stored and verified, with
    /// this verdict.
    pub fn judge(&mut self, _now: Instant, verdict: Verdict) {
        let Some(connection) = &mut self.connection else { return };
        connection.set_verdict(verdict);
    }

    /// The client gives up; QUIT has the reason for the other client. It leaves only once if the
    /// peer may have the connection open while this end has not confirmed it.
    pub fn quit(&mut self, now: Instant, reason: &str) {
        match &mut self.connection {
            _ if self.events.is_closed() => {}
            Some(connection) => connection.quit(now, reason),
            None => self.quit_opening(now, reason),
        }
        self.collect(now);
    }

    // ---- settings while a transfer runs (`docs/protocol §6.9`)

    /// Replaces all settings by `steering`. False if this transfer cannot change to its policy
    /// ([`RuntimeSettings::policy`]): then the old policy stays, and the other settings apply.
    pub fn steer(&mut self, now: Instant, steering: RuntimeSettings) -> bool {
        let before = self.chosen();
        let wanted = steering.policy.unwrap_or(self.config.policy);
        let may = before.may_become(wanted, self.config.wire);
        let policy = if may { steering.policy } else { self.steering.policy };
        self.steering = RuntimeSettings { policy, ..steering };
        let policy = self.chosen();
        let changed = before.with_ceiling(None) != policy.with_ceiling(None);
        if let Some(mut connection) = self.connection.take() {
            self.apply(now, &mut connection, changed.then_some(policy));
            self.connection = Some(connection);
        }
        self.take_trace();
        may
    }

    /// The policy in force, with the ceiling in force.
    pub fn policy(&self) -> Policy {
        self.chosen().with_ceiling(self.ceiling())
    }

    /// The policy that the client chose last.
    pub(super) fn chosen(&self) -> Policy {
        self.steering.policy.unwrap_or(self.config.policy)
    }

    /// Passes the settings to the machine of `connection`; the policy only if it changes.
    pub(super) fn apply(&self, now: Instant, connection: &mut Connection, policy: Option<Policy>) {
        let ceiling = self.ceiling();
        match &mut connection.machine {
            Machine::Sender(sender) => {
                if let Some(policy) = policy {
                    let negotiated = *sender.negotiated();
                    let law = rate::build_anew(policy, &negotiated, sender.overhead());
                    sender.follow(now, law);
                }
                sender.set_ceiling(now, ceiling);
                sender.pause(now, self.steering.paused);
            }
            Machine::Receiver(receiver) => {
                let changed = self.steering.ceiling != Ceiling::Configured;
                receiver.steer(now, changed.then_some(ceiling), self.steering.paused);
            }
        }
    }

    /// The client's ceiling in force.
    fn ceiling(&self) -> Option<Rate> {
        match self.steering.ceiling {
            Ceiling::Configured => self.chosen().ceiling(),
            Ceiling::Unlimited => None,
            Ceiling::At(rate) => Some(rate),
        }
    }

    // ---- connections that branch from this one (`docs/protocol §4.10`)

    /// Active end: a connection that branches from this one and is open at once. Its parameters are
    /// those of `config`, limited to the negotiated ones. This end announces it to the peer, so
    /// poll this end first. `entropy` must never be used twice outside tests.
    ///
    /// `None` if no connection is open, or it is closing; if branches are not allowed
    /// ([`Config::branches`]); or if 64 others are not confirmed yet.
    pub fn branch(&mut self, now: Instant, config: Config, entropy: [u8; 32]) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let validated = connection.addresses.validated()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let (settled, rtt) = (branches.negotiated().clone(), branches.rtt());
        let parameters = propose(&config, 0);
        let wanted = HandshakePayload {
            parameters,
            ciphers: settled.ciphers,
            table_bytes: config.table_bytes,
        };
        let (branch, keys) = connection.make_branch(now, wanted)?;
        let HandshakePayload { parameters, table_bytes, .. } = branch.offer;
        // The peer's own values count here, as in a RESPONSE.
        let Parameters { death_timer, client, .. } = settled.parameters;
        let parameters = Parameters { death_timer, client, ..parameters };
        let codec = connection.codec_of(&keys, true)?;
        let opened = Opened::branch(codec, parameters, table_bytes, rtt, Entropy::new(entropy));
        Some(self.branched(config, now, validated, stem, opened))
    }

    /// Active end: a packet of the branch with this connection id arrived.
    pub fn confirm_branch(&mut self, id: u32) {
        self.connection.iter_mut().for_each(|connection| connection.on_branch_confirmed(id));
    }

    /// Active end of a branch: the connection that it branched from has closed, for this `reason`,
    /// so BRANCH leaves no more. A branch without a packet from its peer closes too and sends
    /// nothing: only BRANCH would have announced it. One whose peer has answered goes on.
    pub fn on_stem_closed(&mut self, now: Instant, reason: &CloseReason) {
        if let Some(connection) = &mut self.connection {
            connection.on_stem_closed(now, reason);
        }
        self.collect(now);
    }

    /// The client has gone, and this end only has to close (`docs/protocol §7.3`). If its
    /// transfer is decided it goes on until the peer acknowledges that; else it quits for this
    /// `reason`, so that the peer does not wait for the death timer.
    pub fn part(&mut self, now: Instant, reason: &str) {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_settled()) {
            self.quit(now, reason);
        }
    }

    /// Passive end: the next connection that the peer has branched from this one. It is dropped if
    /// its id `is_taken`. Called through a listener.
    pub(crate) fn take_branch(
        &mut self,
        now: Instant,
        entropy: impl FnOnce() -> Option<[u8; 32]>,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let validated = connection.addresses.validated()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let rtt = branches.rtt();
        let (branch, keys) =
            std::iter::from_fn(|| branches.take_arrived()).find(|(_, keys)| !is_taken(keys.id))?;
        let HandshakePayload { parameters, table_bytes, .. } = branch.offer;
        let codec = connection.codec_of(&keys, false)?;
        let opened = Opened::branch(codec, parameters, table_bytes, rtt, Entropy::new(entropy()?));
        Some(self.branched(self.config.clone(), now, validated, stem, opened))
    }

    /// The connection id, at this end, of the connection from which this one branched.
    pub fn stem(&self) -> Option<u32> {
        self.stem
    }

    fn branched(
        &self,
        config: Config,
        now: Instant,
        validated: Route,
        stem: Option<u32>,
        opened: Opened,
    ) -> Self {
        let config = Config { branches: false, ..config };
        let opened = Opened { peer_key: self.peer_key, ..opened };
        let mut new = Self::served(config, now, validated, RecvMeta::default(), opened, None);
        new.stem = stem;
        new
    }

    // ---- subflows (`docs/protocol §4.11, §6.11`)

    /// Active end, once its connection is open: opens one more subflow, to be driven over a socket
    /// of its own. `entropy` must never be used twice outside tests. `None` if there is no
    /// connection, or all numbers are used.
    pub fn call_subflow(&mut self, now: Instant, entropy: [u8; 32]) -> Option<Subflow> {
        let number = self.subflows.next_number()?;
        let connection = self.connection.as_ref()?;
        let (peer, _) = (connection.validated_route()?, connection.cipher()?);
        let keys = self.subflows.next_keys()?;
        let codec = connection.codec_of(&keys, true)?;
        self.subflows.begin_number(number);
        let rtt = self.stats(now).min_rtt;
        let mut opened = self.subflows.opened(codec, rtt, entropy)?;
        opened.unconfirmed = true;
        let route = Route { local: None, ..peer };
        let end = self.subflow(now, route, RecvMeta::default(), opened, None);
        Some(Subflow { number, peer: route, end })
    }

    /// How many subflows can still be begun in the life of this connection: a number is used once.
    pub fn subflows_left(&self) -> u8 {
        self.subflows.left()
    }

    /// Passive end, once its connection is open: allows the peer to open subflows, which
    /// [`Endpoint::poll_subflow`] returns. `entropy` as above.
    pub fn admit_subflows(&mut self, entropy: [u8; 32]) {
        self.subflows.admit(Entropy::new(entropy));
    }

    /// Connection ids under which subflows may begin here. Where one socket serves many
    /// connections, packets with these ids belong to this one. The list need not be read at once,
    /// since the peer repeats its first packet. Empty before [`Endpoint::admit_subflows`].
    pub fn subflow_ids(&self) -> &[u32] {
        self.subflows.ids()
    }

    /// The next subflow that the peer has opened from a validated address. Its packets must not
    /// come to this end any more: they belong to a socket of its own.
    pub fn poll_subflow(&mut self) -> Option<Subflow> {
        self.subflows.take()
    }

    /// Passive end: refuses a subflow that [`Endpoint::poll_subflow`] returned. QUIT leaves at
    /// once, since until then the peer gives the subflow its share.
    pub fn refuse_subflow(&mut self, now: Instant, mut subflow: Subflow, reason: &str) {
        subflow.end.forget(now, reason);
        let mut batch = Vec::new();
        while let Some(transmit) = subflow.end.poll_transmit(now, &mut batch) {
            let to = Route { peer: transmit.to, local: transmit.local };
            let packets = batch.chunks(transmit.segment.max(1));
            packets.for_each(|packet| self.replies.push(to, packet.to_vec()));
            batch.clear();
        }
    }

    /// Passive end: asks for another subflow. One packet carries that; the peer's client reads it.
    pub fn ask_for_subflows(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.push_keepalive(Keepalive { subflow_wanted: true, ..Keepalive::default() });
        }
    }

    /// Whether the peer has asked for a subflow since the last call.
    pub fn take_subflows_wanted(&mut self) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.take_subflow_wanted())
    }

    /// The counters of a subflow's sender, for its main connection. `None` at a receiver.
    pub fn tally(&self, now: Instant) -> Option<SubflowTally> {
        Some(self.connection.as_ref()?.sender()?.tally(now))
    }

    /// Main connection's sender: the counters of its subflows, in any fixed order.
    pub fn lead(&mut self, now: Instant, subflows: &[SubflowTally]) {
        if let Some(sender) = self.connection.as_mut().and_then(|c| c.sender_mut()) {
            sender.lead(now, subflows);
        }
    }

    /// Main connection's sender: the share of the subflow at `at`.
    pub fn share(&self, at: usize) -> SubflowShare {
        let sender = self.connection.as_ref().and_then(|connection| connection.sender());
        sender.map_or(SubflowShare::default(), |sender| sender.share(at))
    }

    /// A subflow's sender: its share from now on.
    pub fn be_led(&mut self, share: SubflowShare) {
        if let Some(sender) = self.connection.as_mut().and_then(|c| c.sender_mut()) {
            sender.be_led(share);
        }
    }

    /// The client drops this end: QUIT leaves once, its buffers are returned, and it is closed.
    pub fn forget(&mut self, now: Instant, reason: &str) {
        if let Some(connection) = &mut self.connection {
            connection.forget(now, reason);
        }
        self.collect(now);
    }

    /// Whether this end or its peer is closing: not all released buffers were accepted.
    pub fn is_closing(&self) -> bool {
        self.events.is_closed()
            || self.connection.as_ref().is_some_and(|connection| connection.is_closing())
    }

    /// Whether the main connection is old enough for subflows: a short transfer needs none, and the
    /// first round trips find the path's rate.
    pub fn subflows_may_begin(&self, now: Instant) -> bool {
        const ROUND_TRIPS: u32 = 8;
        const LEAST: Duration = Duration::from_millis(100);
        let stats = self.stats(now);
        let negotiated =
            stats.min_rtt.unwrap_or(Duration::from_millis(100)).saturating_mul(ROUND_TRIPS);
        stats.opened_at.is_some_and(|at| now.since(at) >= negotiated.max(LEAST))
    }

    // ---- getters, and the keys that a passive end accepts

    /// The peer's validated address, or the one that the handshake uses.
    pub fn peer(&self) -> Option<SocketAddr> {
        match (&self.connection, &self.handshake) {
            (Some(connection), _) => {
                connection.addresses.validated().map(|validated| validated.peer)
            }
            (None, HandshakeSide::Active(active)) => Some(active.peer()),
            (None, HandshakeSide::Passive(_) | HandshakeSide::Done) => None,
        }
    }

    /// The connection id of packets to this end: `None` where the wire has none (`rfc998`), and at
    /// a passive end before an OPEN was answered.
    ///
    /// A passive end with several unconfirmed handshakes has several: see
    /// [`Endpoint::connection_ids`].
    pub fn connection_id(&self) -> Option<u32> {
        self.connection_ids().next()
    }

    /// Every connection id that a packet for this end may carry: that of the open connection first,
    /// then those of unconfirmed handshakes, newest first. A bounded number; it changes only when a
    /// datagram was handled.
    pub fn connection_ids(&self) -> impl Iterator<Item = u32> {
        let (active, passive) = match &self.handshake {
            HandshakeSide::Active(active) => (active.own_id(), None),
            HandshakeSide::Passive(passive) => (None, Some(passive.unconfirmed_ids())),
            HandshakeSide::Done => (None, None),
        };
        let open = match &self.connection {
            Some(connection) => connection.own_id(),
            None => active,
        };
        let unconfirmed: Vec<u32> = passive.into_iter().flatten().collect();
        open.into_iter().chain(unconfirmed.into_iter().rev())
    }

    /// Authentic datagrams so far: [`Stats::datagrams_received`] alone, to see cheaply whether a
    /// packet of the peer has arrived.
    pub fn datagrams_received(&self) -> u64 {
        self.counts.received
    }

    /// Bytes of IP packets that left, and that arrived and were authentic.
    pub fn carried_bytes(&self) -> (u64, u64) {
        let (overhead, counts) = (u64::from(self.config.overhead_bytes), &self.counts);
        let of = |packets: u64, bytes: u64| bytes + packets * overhead;
        (of(counts.sent, counts.sent_bytes), of(counts.received, counts.received_bytes))
    }

    /// Packets of data that left or arrived so far: [`Stats::data_packets_sent`] of a sender,
    /// [`Stats::data_packets_received`] of a receiver.
    pub fn data_packets(&self) -> u64 {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.data_packets_sent(),
            Some(Machine::Receiver(receiver)) => receiver.data_packets(),
            None => 0,
        }
    }

    /// Counts and measurements so far.
    pub fn stats(&self, now: Instant) -> Stats {
        let mut stats = match self.connection.as_ref().map(|c| &c.machine) {
            Some(Machine::Sender(sender)) => sender.stats(now),
            Some(Machine::Receiver(receiver)) => receiver.stats(),
            None => Stats::default(),
        };
        stats.datagrams_sent = self.counts.sent;
        stats.bytes_sent = self.counts.sent_bytes;
        stats.datagrams_received = self.counts.received;
        stats.bytes_received = self.counts.received_bytes;
        stats.datagrams_dropped = self.counts.dropped;
        stats.overrun = self.counts.overrun.map_or(0, |(first, last)| last.wrapping_sub(first));
        stats.opened_at = self.counts.opened_at;
        stats
    }

    /// Delivered bytes, as far as this end knows, and the smallest round trip, once known. A sender
    /// counts by REPORTs: OKs come in irregular bursts.
    pub fn moved(&self) -> (u64, Option<Duration>) {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.moved(),
            Some(Machine::Receiver(receiver)) => receiver.moved(),
            None => (0, None),
        }
    }

    /// Passive end with an identity: sets the keys that may open a connection, in place of those
    /// before. An open connection stays.
    pub fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        if let HandshakeSide::Passive(passive) = &mut self.handshake {
            passive.on_authorized(&authorized);
        }
        self.config.identity = Some(Identity::server(authorized));
    }

    /// The peer's static key, if a connection is open and was opened by keys.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }
}
