//! An open connection: one codec, one machine, and the timers that keep both alive or close them
//! (RFC 998 §5.2.3, §5.3; `docs/protocol §7`).

mod address_validation;
mod branches;
mod close;
mod keepalive;
mod outbox;
mod stall_watchdog;

use std::collections::VecDeque;
use std::time::Duration;

use address_validation::Echo;
pub(crate) use branches::Branches;
use outbox::{Outbox, OutboxPacket};
use stall_watchdog::StallWatchdog;

use crate::amplification_limit::AmplificationLimit;
use crate::api::{CloseReason, Event, RecvMeta, Route};
use crate::buffer::Buffer;
use crate::codec::{Codec, DecodedPacket, OtherPacket};
use crate::crypto::exporter::ChainKeys;
use crate::negotiated::PacketOutcome;
use crate::path_validation::PathValidator;
use crate::peer_gone::PeerGoneEvidence;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::time::Instant;
use crate::timers::{ConnectionTimer, Timer, first};
use crate::trace::{Recorder, TraceEvent};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{End, Keepalive, Verdict};
use crate::wire_profile::WireProfile;

/// Longest time between two packets of a living end (`docs/protocol §7.4`).
const MAX_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Time without a packet of the peer after which the client gets [`Event::Silent`]: a probe leaves
/// after half of it, and its answer has the other half to arrive.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// The machine of this end's role: sender or receiver.
#[derive(Debug)]
pub(crate) enum Machine {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

/// The progress of the close.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// The client wants to quit: QUIT is sent between two buffers (RFC 998 §5.3.2).
    QuitPending {
        reason: String,
        since: Instant,
        outcome: CloseReason,
    },
    /// QUIT was sent, the last time `wait` before `next`. It leaves again then, unless `left` is 0
    /// or `until` is over.
    QuitSent {
        reason: String,
        left: u8,
        wait: Duration,
        next: Instant,
        until: Instant,
        outcome: CloseReason,
    },
    /// QUIT came; its repetitions are answered until `until` (draining, RFC 9000 §10.2.2).
    Draining {
        until: Instant,
        reason: CloseReason,
    },
    Closed(CloseReason),
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) addresses: PathValidator,
    profile: WireProfile,
    codec: Codec,
    pub(crate) machine: Machine,
    death_timer: Duration,
    peer_death_timer: Duration,
    last_received: Instant,
    /// Only the peer's OPEN has arrived.
    half_open: bool,
    last_sent: Instant,
    last_probe: Instant,
    silent: bool,
    peer_gone: PeerGoneEvidence,
    watchdog: StallWatchdog,
    amplification_limit: Option<AmplificationLimit>,
    echo: Option<Echo>,
    closing: Closing,
    /// The peer has asked for another subflow.
    subflow_wanted: bool,
    outbox: Outbox,
    branches: Option<Box<Branches>>,
}

/// The outcome of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramOutcome {
    Authentic,
    Dropped,
}

impl Connection {
    pub(crate) fn new(
        now: Instant,
        addresses: PathValidator,
        profile: WireProfile,
        codec: Codec,
        machine: Machine,
        death_timers: (Duration, Duration),
    ) -> Self {
        Self {
            addresses,
            profile,
            codec,
            machine,
            death_timer: death_timers.0,
            peer_death_timer: death_timers.1,
            last_received: now,
            half_open: true,
            last_sent: now,
            last_probe: now,
            silent: false,
            peer_gone: PeerGoneEvidence::new(now, profile.probes),
            watchdog: StallWatchdog::default(),
            amplification_limit: None,
            echo: None,
            closing: Closing::No,
            subflow_wanted: false,
            outbox: Outbox::new(profile.keepalive_bytes),
            branches: None,
        }
    }

    /// The connection id in packets to this end, where the wire has one.
    pub(crate) fn own_id(&self) -> Option<u32> {
        self.codec.own_id()
    }

    /// Whether a packet from this route may be the peer's.
    pub(crate) fn may_come_from(&self, route: Route) -> bool {
        self.profile.peer_may_move
            || self.addresses.validated().is_some_and(|validated| validated.peer == route.peer)
    }

    /// Whether a packet of the peer arrived so lately that it counts as alive.
    pub(crate) fn is_alive(&self, now: Instant) -> bool {
        now < self.last_received + SILENT_AFTER
    }

    /// Another connection has replaced this one: the ABORT for its peer, if the peer has an
    /// address.
    pub(crate) fn supersede(&mut self, now: Instant) -> Option<(Route, Vec<u8>)> {
        let mut packet = Vec::new();
        self.codec.put_abort(&mut packet, "another program with the same ticket took the place");
        self.release_all(now);
        self.addresses.validated().map(|validated| (validated, packet))
    }

    /// A packet under this connection's keys left before the connection was open.
    pub(crate) fn on_sent_before(&mut self, at: Instant, number: PacketNumber, bytes: usize) {
        if let Machine::Sender(sender) = &mut self.machine {
            sender.on_other_sent(at, number, bytes);
        }
    }

    // ---- the client's verbs

    pub(crate) fn supply(
        &mut self,
        now: Instant,
        number: BufferNumber,
        buffer: Buffer,
        last: bool,
    ) {
        if let Machine::Sender(sender) = &mut self.machine {
            sender.supply(now, number, buffer, last);
        }
    }

    pub(crate) fn end(&mut self, now: Instant, end: End) {
        if let Machine::Sender(sender) = &mut self.machine {
            sender.end(now, end);
        }
    }

    pub(crate) fn offer(&mut self, now: Instant, buffer: Buffer) {
        if let Machine::Receiver(receiver) = &mut self.machine {
            receiver.offer(now, buffer);
        }
    }

    pub(crate) fn announce_have(&mut self, have: &[u8], early: bool) {
        if let Machine::Receiver(receiver) = &mut self.machine {
            receiver.announce_have(have, early);
        }
    }

    pub(crate) fn set_verdict(&mut self, verdict: Verdict) {
        if let Machine::Receiver(receiver) = &mut self.machine {
            receiver.set_verdict(verdict);
        }
    }

    /// The peer's host refused the packet that begins with `quote` (ICMP).
    pub(crate) fn handle_unreachable(&mut self, now: Instant, quote: &[u8]) {
        let Some(number) = self.codec.quoted(quote) else { return };
        self.peer_gone.on_refused(now, number);
        if let Some(outcome) = self.outcome_of_quit() {
            self.leave(now, outcome);
        }
    }

    /// Whether the transfer is decided and only the last acknowledgement is missing: if the peer is
    /// gone now, nothing is lost.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.machine {
            Machine::Receiver(receiver) => receiver.is_settled(),
            Machine::Sender(sender) => sender.is_settled(),
        }
    }

    /// An UNKNOWN: the program at the peer's address does not know this connection.
    pub(crate) fn handle_unknown(
        &mut self,
        now: Instant,
        route: Route,
        bytes: &[u8],
    ) -> DatagramOutcome {
        let from_home =
            self.addresses.validated().is_some_and(|validated| validated.peer == route.peer);
        // On an unconfirmed branch BRANCH may only be late (`docs/protocol §4.10`).
        match self.codec.unknown(bytes).filter(|_| from_home && !self.half_open) {
            Some(number) => {
                self.peer_gone.on_unknown(now, number);
                DatagramOutcome::Authentic
            }
            None => DatagramOutcome::Dropped,
        }
    }

    // ---- from the network

    /// A datagram that may belong to this connection.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        route: Route,
        bytes: &mut [u8],
        meta: RecvMeta,
    ) -> DatagramOutcome {
        let len = bytes.len();
        if let Closing::Closed(_) = self.closing {
            return DatagramOutcome::Dropped;
        }
        let reference = match &self.machine {
            Machine::Sender(sender) => sender.high(),
            Machine::Receiver(receiver) => receiver.acknowledged(),
        };
        let Some(received) = self.codec.receive(bytes, reference) else {
            return DatagramOutcome::Dropped;
        };
        let number = received.number();
        let taken = match received {
            DecodedPacket::Data { .. } | DecodedPacket::Repair { .. } => {
                self.handle_of_buffer(now, &received, meta)
            }
            DecodedPacket::Other { number, bytes, packet } => {
                if let Machine::Receiver(receiver) = &mut self.machine {
                    let padding = match &packet {
                        OtherPacket::Keepalive(keepalive) => usize::from(keepalive.padding),
                        _ => 0,
                    };
                    receiver.on_authentic(now, number, bytes - padding, bytes, meta);
                }
                self.handle_other(now, route, bytes, packet)
            }
        };
        match taken {
            PacketOutcome::Dropped => return DatagramOutcome::Dropped,
            PacketOutcome::Authentic => {}
            PacketOutcome::Violation(what) => self.abort(now, what),
        }
        self.check_coin_evidence();
        self.addresses.on_authentic(now, route, number, len);
        self.on_authentic(now);
        self.on_answer();
        self.quit_between_buffers(now);
        DatagramOutcome::Authentic
    }

    /// A packet other than DATA, from a datagram of `bytes`.
    fn handle_other(
        &mut self,
        now: Instant,
        route: Route,
        bytes: usize,
        packet: OtherPacket,
    ) -> PacketOutcome {
        // After QUIT the machine has given its buffers back, so missing data are no violation.
        let leaving = matches!(self.closing, Closing::Draining { .. });
        match (packet, &mut self.machine) {
            (OtherPacket::NullAck(_) | OtherPacket::Control { .. } | OtherPacket::Done, _)
                if leaving =>
            {
                PacketOutcome::Authentic
            }
            (OtherPacket::NullAck(null_ack), Machine::Receiver(r)) => {
                r.handle_null_ack(now, &null_ack)
            }
            (
                OtherPacket::Control { end_received, limit, messages, report },
                Machine::Sender(s),
            ) => {
                s.on_rate_limit(now, limit.0, limit.1);
                let reported = report.map(|report| s.handle_report(now, &report));
                match reported {
                    Some(PacketOutcome::Violation(what)) => PacketOutcome::Violation(what),
                    _ => s.handle_control(now, end_received, messages),
                }
            }
            (OtherPacket::Done, Machine::Sender(sender)) => sender.handle_done_packet(),
            (OtherPacket::Keepalive(keepalive), machine) => {
                self.subflow_wanted |= keepalive.subflow_wanted;
                if let (Machine::Sender(sender), 1..) = (machine, keepalive.answers) {
                    sender.handle_answer(now, keepalive.answers);
                }
                if keepalive.answer_wanted {
                    let answers = u16::try_from(bytes).unwrap_or(u16::MAX);
                    self.push_keepalive(Keepalive { answers, ..Keepalive::default() });
                }
                PacketOutcome::Authentic
            }
            // To the address it came from, and to the validated address or the candidates: an
            // attacker's copy may have arrived first.
            (OtherPacket::Challenge(token), _) => {
                self.outbox.push(OutboxPacket::Answer(token, route));
                for other in self.addresses.also_answered(route) {
                    self.outbox.push(OutboxPacket::Answer(token, other));
                }
                PacketOutcome::Authentic
            }
            (OtherPacket::Answer(token), _) => {
                self.addresses.on_answer(&token);
                PacketOutcome::Authentic
            }
            (OtherPacket::Quit(reason), _) => {
                self.handle_quit(now, reason);
                PacketOutcome::Authentic
            }
            (OtherPacket::QuitAck, _) => {
                if let Closing::QuitSent { outcome, .. } = &self.closing {
                    let outcome = outcome.clone();
                    self.leave(now, outcome);
                }
                PacketOutcome::Authentic
            }
            (OtherPacket::Abort(reason), _) => {
                self.close(now, CloseReason::PeerAborted(reason));
                PacketOutcome::Authentic
            }
            (OtherPacket::Branch(branch), _) => self.handle_branch(*branch),
            (OtherPacket::NullAck(_) | OtherPacket::Control { .. } | OtherPacket::Done, _) => {
                PacketOutcome::Violation("a packet of the other role's")
            }
        }
    }

    fn handle_quit(&mut self, now: Instant, reason: String) {
        self.outbox.push(OutboxPacket::QuitAck);
        if let Closing::No | Closing::QuitPending { .. } | Closing::QuitSent { .. } = self.closing {
            let until = now + self.quit_interval() * 2;
            // Both ends may have seen the same fault: then each reports its own outcome.
            let own = self.outcome_of_quit().filter(|outcome| *outcome != CloseReason::Quit);
            let reason = own.unwrap_or(CloseReason::PeerQuit(reason));
            self.closing = Closing::Draining { until, reason };
            self.release_all(now);
        }
    }

    fn on_authentic(&mut self, now: Instant) {
        let before = std::mem::replace(&mut self.last_received, now);
        (self.last_probe, self.half_open) = (now, false);
        self.peer_gone.on_authentic(now, self.codec.upcoming());
        if std::mem::take(&mut self.silent) {
            self.events_mut().push_back(Event::Answering);
            self.trace().note(now, || TraceEvent::Answering);
        }
        let finished = match &mut self.machine {
            Machine::Sender(sender) => {
                sender.on_authentic(now);
                sender.is_finished()
            }
            Machine::Receiver(receiver) => receiver.is_finished(),
        };
        if finished {
            self.finish(now);
        }
        self.watch_progress(now, before);
    }

    /// All is acknowledged. A receiver releases the sender from its dally (RFC 998 §5.3).
    fn finish(&mut self, now: Instant) {
        if let (Machine::Receiver(_), false) =
            (&self.machine, matches!(self.closing, Closing::Closed(_)))
        {
            self.outbox.push(OutboxPacket::Done);
        }
        self.close(now, CloseReason::Finished);
    }

    fn abort(&mut self, now: Instant, what: &'static str) {
        self.outbox.push(OutboxPacket::Abort(what));
        self.close(now, CloseReason::Violation(what));
    }

    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        if !matches!(self.closing, Closing::Closed(_)) {
            self.closing = Closing::Closed(reason);
            self.branches = None;
            self.release_all(now);
        }
    }

    /// Hands every buffer back to the client.
    pub(crate) fn release_all(&mut self, now: Instant) {
        match &mut self.machine {
            Machine::Sender(sender) => sender.release_all(now),
            Machine::Receiver(receiver) => receiver.release_all(now),
        }
    }

    /// Whether one of the clients has quit.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    /// Why the connection is over, if it is.
    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        match &self.closing {
            Closing::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    // ---- time and output

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match &mut self.machine {
            Machine::Sender(sender) => sender.handle_timeout(now),
            Machine::Receiver(receiver) => receiver.handle_timeout(now),
        }
        if matches!(&self.machine, Machine::Sender(s) if s.is_finished()) {
            self.finish(now);
        }
        self.quit_between_buffers(now);
        for timer in ConnectionTimer::ACTIONS {
            if self.deadline(timer, now).is_some_and(|at| at <= now) {
                self.expire(timer, now);
            }
        }
    }

    /// When `timer` expires, if it is set.
    fn deadline(&self, timer: ConnectionTimer, now: Instant) -> Option<Instant> {
        let validated = self.addresses.validated();
        match (timer, &self.closing) {
            (ConnectionTimer::Outbox, _) => {
                let is_ready = self.outbox.is_ready(validated, self.amplification_limit.as_ref());
                return is_ready.then_some(now);
            }
            (_, Closing::Closed(_)) => return None,
            (ConnectionTimer::Challenge, _) => return self.addresses.next_timeout(),
            (ConnectionTimer::Quit, Closing::QuitSent { next, .. }) => return Some(*next),
            (ConnectionTimer::Drain, Closing::Draining { until, .. }) => return Some(*until),
            (_, Closing::QuitSent { .. } | Closing::Draining { .. }) => return None,
            (_, Closing::No | Closing::QuitPending { .. }) => {}
        }
        let probes = self.profile.probes;
        match timer {
            ConnectionTimer::QuitPending => self.quit_pending_deadline(),
            ConnectionTimer::Death => Some(self.last_received + self.death_timer),
            ConnectionTimer::Forgotten => self.peer_gone.forgotten_at(),
            ConnectionTimer::Unreachable => self.peer_gone.unreachable_at(self.is_settled()),
            ConnectionTimer::KeepaliveProbe => probes.then(|| self.probe_at()),
            ConnectionTimer::Silent => {
                (probes && !self.silent).then(|| self.last_received + SILENT_AFTER)
            }
            ConnectionTimer::Keepalive => Some(self.last_sent + self.keepalive_interval()),
            ConnectionTimer::Branch => self.branches.as_ref().and_then(|of| of.next_branch()),
            ConnectionTimer::Echo => self.echo.as_ref().and_then(Echo::due),
            ConnectionTimer::Outbox | ConnectionTimer::Challenge => None,
            ConnectionTimer::Quit | ConnectionTimer::Drain | ConnectionTimer::Stalled => None,
        }
    }

    fn expire(&mut self, timer: ConnectionTimer, now: Instant) {
        if timer.is_traced() {
            self.note_timer(now, timer);
        }
        match timer {
            ConnectionTimer::QuitPending => self.send_pending_quit(now),
            ConnectionTimer::Quit => self.repeat_quit(now),
            ConnectionTimer::Drain => {
                if let Closing::Draining { reason, .. } = &self.closing {
                    self.leave(now, reason.clone());
                }
            }
            ConnectionTimer::Death => self.give_up(now, CloseReason::DeathTimer),
            ConnectionTimer::Forgotten => self.give_up(now, CloseReason::Forgotten),
            ConnectionTimer::Unreachable => self.give_up(now, CloseReason::Unreachable),
            ConnectionTimer::KeepaliveProbe => self.probe_peer(now),
            ConnectionTimer::Silent => self.on_silent(now),
            ConnectionTimer::Keepalive => self.keep_alive(now),
            ConnectionTimer::Branch => self.repeat_branches(now),
            ConnectionTimer::Stalled => {}
            ConnectionTimer::Outbox | ConnectionTimer::Challenge | ConnectionTimer::Echo => {}
        }
    }

    /// Appends the next batch. Returns its destination, and the length of all its datagrams but the
    /// last.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<(Route, usize)> {
        if let Some(single) = self.next_single(now, out) {
            return Some(single);
        }
        let goes_on = matches!(self.closing, Closing::No | Closing::QuitPending { .. });
        let validated = self.addresses.validated().filter(|_| goes_on)?;
        let start = out.len();
        if let Some(len) = self.poll_echo(now, out) {
            return Some((validated, len));
        }
        let segment = match &mut self.machine {
            Machine::Sender(sender) => sender.poll_transmit(now, &mut self.codec, out),
            Machine::Receiver(receiver) => {
                receiver.poll_transmit(now, &mut self.codec, out).then(|| out.len() - start)
            }
        };
        if let Some(segment) = segment {
            self.last_sent = now;
            let len = out.len() - start;
            self.on_sent_bytes(len, len.div_ceil(segment.max(1)));
            self.amplification_limit.iter_mut().for_each(AmplificationLimit::on_others);
            self.quit_between_buffers(now);
        }
        segment.map(|segment| (validated, segment))
    }

    /// The outbox goes first. While no address is validated, only CHALLENGEs and ANSWERs leave; the
    /// others wait.
    fn next_single(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Route, usize)> {
        let (validated, start) = (self.addresses.validated(), out.len());
        let (route, number) = match self.outbox.poll(
            validated,
            self.amplification_limit.as_ref(),
            &mut self.codec,
            out,
        ) {
            Some(packet) => packet,
            None => {
                if let Closing::Closed(_) = self.closing {
                    return None;
                }
                let interval = self.quit_interval();
                let (route, token) = self.addresses.poll_challenge(now, interval)?;
                (route, self.codec.put_challenge(out, &token))
            }
        };
        let len = out.len() - start;
        self.last_sent = now;
        self.on_sent_bytes(len, 1);
        if let Machine::Sender(sender) = &mut self.machine {
            // It has a number of the same sequence, which the sampler must count.
            sender.on_other_sent(now, number, len);
        }
        Some((route, len))
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<(Timer, Instant)> {
        let machine = match &self.closing {
            Closing::No | Closing::QuitPending { .. } => match &self.machine {
                Machine::Sender(sender) => sender.next_timer(now),
                Machine::Receiver(receiver) => receiver.next_timer(),
            },
            _ => None,
        };
        // Without a validated address nothing can leave, so there is no reason to wake.
        let is_validated = self.addresses.validated().is_some();
        let machine = machine.filter(|(_, at)| is_validated || *at > now);
        let own = ConnectionTimer::OUTPUTS.into_iter().chain(ConnectionTimer::ACTIONS);
        let own = first(own.map(|timer| (timer.into(), self.deadline(timer, now))));
        [machine, own].into_iter().flatten().min_by_key(|(_, at)| *at)
    }

    fn note_timer(&mut self, now: Instant, timer: ConnectionTimer) {
        self.trace().note(now, || TraceEvent::Timer { timer: timer.into() });
    }

    /// The machine's trace events.
    pub(crate) fn trace(&mut self) -> &mut Recorder {
        match &mut self.machine {
            Machine::Sender(sender) => sender.trace_mut(),
            Machine::Receiver(receiver) => &mut receiver.trace,
        }
    }

    pub(crate) fn events_mut(&mut self) -> &mut VecDeque<Event> {
        match &mut self.machine {
            Machine::Sender(sender) => sender.events_mut(),
            Machine::Receiver(receiver) => &mut receiver.events,
        }
    }
}

impl Connection {
    /// Handles a datagram if it is the predicted one. False: nothing has changed, and it takes the
    /// slow path.
    pub(crate) fn take_predicted(
        &mut self,
        now: Instant,
        route: Route,
        bytes: &[u8],
        meta: RecvMeta,
    ) -> bool {
        let Machine::Receiver(receiver) = &mut self.machine else { return false };
        let fast =
            self.closing == Closing::No && self.amplification_limit.is_none() && !self.silent;
        if !fast || receiver.is_finished() {
            return false;
        }
        let Some(number) = receiver.take_predicted(now, bytes, meta, &mut self.codec) else {
            return false;
        };
        let underway = receiver.underway();
        self.addresses.on_authentic(now, route, number, bytes.len());
        (self.last_received, self.last_probe) = (now, now);
        self.peer_gone.on_authentic(now, self.codec.upcoming());
        self.watchdog.on_moved(now, underway);
        true
    }

    /// Whether this packet is the predicted one.
    #[cfg(test)]
    pub(crate) fn is_predicted(&self, now: Instant, raw: &[u8]) -> bool {
        let Machine::Receiver(receiver) = &self.machine else { return false };
        receiver.is_predicted(now, raw, &self.codec)
    }
}

impl Connection {
    /// DATA, LDATA or REPAIR.
    fn handle_of_buffer(
        &mut self,
        now: Instant,
        received: &DecodedPacket<'_>,
        meta: RecvMeta,
    ) -> PacketOutcome {
        let Machine::Receiver(receiver) = &mut self.machine else { return PacketOutcome::Dropped };
        if matches!(self.closing, Closing::Draining { .. }) {
            return PacketOutcome::Dropped;
        }
        let codec = &mut self.codec;
        match received {
            DecodedPacket::Data { header, raw } => {
                receiver.handle_data(now, header, raw, meta, codec)
            }
            DecodedPacket::Repair { header, raw } => {
                receiver.handle_repair(now, header, raw, meta, codec)
            }
            DecodedPacket::Other { .. } => PacketOutcome::Dropped,
        }
    }
}

impl Connection {
    /// The codec of a branch or subflow with these keys, at its active or passive end. It must be
    /// made once for each.
    pub(crate) fn codec_of(&self, keys: &ChainKeys, active: bool) -> Option<Codec> {
        let (out, into) = keys.seen_from(active);
        Some(Codec::sealed(keys.id, keys.id, self.codec.cipher()?, out, into))
    }

    /// Whether the peer has asked for another subflow since the last call.
    pub(crate) fn take_subflow_wanted(&mut self) -> bool {
        std::mem::take(&mut self.subflow_wanted)
    }

    /// The peer's validated address.
    pub(crate) fn validated_route(&self) -> Option<Route> {
        self.addresses.validated()
    }

    /// Its sender, if it has one.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        match &self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }

    /// The same, mutable.
    pub(crate) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match &mut self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }
}
