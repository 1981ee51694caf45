//! An open connection: one codec, one machine, and the timers that keep both alive or close them
//! (RFC 998 §5.2.3, §5.3; `docs/protocol §7`).

mod address_validation;
mod branches;
mod closing;
mod liveness;
mod outbox;
mod stall_watchdog;

use std::collections::VecDeque;
use std::time::Duration;

use address_validation::{AddressValidation, WaitingPacket};
pub(crate) use branches::Branches;
use closing::{Closing, QuitStep, quit_interval};
pub(crate) use liveness::DeathTimers;
use liveness::Liveness;
use outbox::{Outbox, OutboxPacket};
use stall_watchdog::{ExpectedProgress, StallWatchdog};

use crate::amplification_limit::AmplificationLimit;
use crate::api::{CloseReason, Event, RecvMeta, Route, StallKind};
use crate::buffer::Buffer;
use crate::codec::{Codec, DecodedPacket, OtherPacket};
use crate::crypto::cipher::Cipher;
use crate::crypto::exporter::ChainKeys;
use crate::handshake::return_routability::ProofEcho;
use crate::negotiated::PacketOutcome;
use crate::path_validation::PathValidator;
use crate::receiver::Receiver;
use crate::sender::{CoinEvidence, Sender};
use crate::time::Instant;
use crate::timers::{ConnectionTimer, Timer, first};
use crate::trace::{Recorder, TraceEvent};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{End, Keepalive, Verdict};
use crate::wire::sealed::{Branch, HandshakePayload};
use crate::wire_profile::WireProfile;

/// The machine of this end's role: sender or receiver.
#[derive(Debug)]
pub(crate) enum Machine {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) addresses: PathValidator,
    profile: WireProfile,
    codec: Codec,
    pub(crate) machine: Machine,
    liveness: Liveness,
    watchdog: StallWatchdog,
    validation: AddressValidation,
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
        death_timers: DeathTimers,
    ) -> Self {
        Self {
            addresses,
            profile,
            codec,
            machine,
            liveness: Liveness::new(now, profile.probes, death_timers),
            watchdog: StallWatchdog::default(),
            validation: AddressValidation::default(),
            closing: Closing::new(profile.quits_until_acked),
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
        self.liveness.is_alive(now)
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
        self.liveness.on_refused(now, number);
        if let Some(outcome) = self.closing.outcome_of_quit() {
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
        match self.codec.unknown(bytes).filter(|_| from_home && !self.liveness.is_half_open()) {
            Some(number) => {
                self.liveness.on_unknown(now, number);
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
        if self.closing.is_closed() {
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
        self.validation.on_answer();
        self.quit_between_buffers(now);
        DatagramOutcome::Authentic
    }

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
        let limited = self.validation.limit().is_some();
        let fast = self.closing.is_open() && !limited && !self.liveness.is_silent();
        if !fast || receiver.is_finished() {
            return false;
        }
        let Some(number) = receiver.take_predicted(now, bytes, meta, &mut self.codec) else {
            return false;
        };
        let underway = receiver.underway();
        self.addresses.on_authentic(now, route, number, bytes.len());
        self.liveness.on_authentic(now, self.codec.upcoming());
        self.watchdog.on_moved(now, underway);
        true
    }

    /// Whether this packet is the predicted one.
    #[cfg(test)]
    pub(crate) fn is_predicted(&self, now: Instant, raw: &[u8]) -> bool {
        let Machine::Receiver(receiver) = &self.machine else { return false };
        receiver.is_predicted(now, raw, &self.codec)
    }

    /// DATA, LDATA or REPAIR.
    fn handle_of_buffer(
        &mut self,
        now: Instant,
        received: &DecodedPacket<'_>,
        meta: RecvMeta,
    ) -> PacketOutcome {
        let Machine::Receiver(receiver) = &mut self.machine else { return PacketOutcome::Dropped };
        if self.closing.is_draining() {
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

    /// A packet other than DATA, from a datagram of `bytes`.
    fn handle_other(
        &mut self,
        now: Instant,
        route: Route,
        bytes: usize,
        packet: OtherPacket,
    ) -> PacketOutcome {
        // After QUIT the machine has given its buffers back, so missing data are no violation.
        let leaving = self.closing.is_draining();
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
                if let Some(outcome) = self.closing.outcome_of_ack() {
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
        let until = now + self.quit_interval() * 2;
        if self.closing.drain(until, reason) {
            self.release_all(now);
        }
    }

    /// A BRANCH, if branches are allowed.
    fn handle_branch(&mut self, branch: Branch) -> PacketOutcome {
        match self.branches() {
            Some(branches) => branches.handle(branch),
            None => PacketOutcome::Dropped,
        }
    }

    fn on_authentic(&mut self, now: Instant) {
        let (before, was_silent) = self.liveness.on_authentic(now, self.codec.upcoming());
        if was_silent {
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

    /// A packet of the peer came, the one before at `before`. If the transfer has stalled for too
    /// long, closes the connection with QUIT.
    fn watch_progress(&mut self, now: Instant, before: Instant) {
        if !self.closing.is_open() {
            return;
        }
        if self.addresses.validated().is_none() {
            // Nothing but CHALLENGEs may leave (`docs/protocol §4.3`).
            self.watchdog.reset();
            return;
        }
        let expected = match &self.machine {
            Machine::Sender(sender) => ExpectedProgress {
                underway: [sender.underway(), None],
                kinds: [StallKind::Data; 2],
                timescale: sender.pace_of_progress(),
            },
            Machine::Receiver(receiver) => ExpectedProgress {
                underway: receiver.underway(),
                kinds: [StallKind::Missing, StallKind::Control],
                timescale: receiver.pace_of_progress(),
            },
        };
        let gap = now.since(before).min(self.liveness.longest_silence());
        let death_timer = self.liveness.death_timer();
        let Some(stalled) = self.watchdog.on_packet(now, gap, death_timer, &expected) else {
            return;
        };
        self.note_timer(now, ConnectionTimer::Stalled);
        if self.is_settled() {
            self.close(now, CloseReason::Finished);
            return;
        }
        let reason = format!("nothing new was stored for {} s", stalled.lasted.as_secs());
        self.begin_quitting(now, reason, CloseReason::Stalled(stalled));
    }

    /// All is acknowledged. A receiver releases the sender from its dally (RFC 998 §5.3).
    fn finish(&mut self, now: Instant) {
        if let (Machine::Receiver(_), false) = (&self.machine, self.closing.is_closed()) {
            self.outbox.push(OutboxPacket::Done);
        }
        self.close(now, CloseReason::Finished);
    }

    fn abort(&mut self, now: Instant, what: &'static str) {
        self.outbox.push(OutboxPacket::Abort(what));
        self.close(now, CloseReason::Violation(what));
    }

    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        if self.closing.close(reason) {
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
        !self.closing.is_open()
    }

    /// Why the connection is over, if it is.
    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        self.closing.closed()
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
        match timer {
            ConnectionTimer::Outbox => {
                let validated = self.addresses.validated();
                self.outbox.is_ready(validated, self.validation.limit()).then_some(now)
            }
            _ if self.closing.is_closed() => None,
            ConnectionTimer::Challenge => self.addresses.next_timeout(),
            ConnectionTimer::QuitPending | ConnectionTimer::Quit | ConnectionTimer::Drain => {
                self.closing.deadline(timer, self.liveness.last_received())
            }
            _ if !self.closing.transfer_goes_on() => None,
            ConnectionTimer::Death
            | ConnectionTimer::Forgotten
            | ConnectionTimer::Unreachable
            | ConnectionTimer::KeepaliveProbe
            | ConnectionTimer::Silent
            | ConnectionTimer::Keepalive => self.liveness.deadline(timer, self.is_settled()),
            ConnectionTimer::Branch => self.branches.as_ref().and_then(|of| of.next_branch()),
            ConnectionTimer::Echo => self.validation.echo_due(),
            ConnectionTimer::Stalled => None,
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
                if let Some(outcome) = self.closing.outcome_of_drain() {
                    self.leave(now, outcome);
                }
            }
            ConnectionTimer::Death => self.give_up(now, CloseReason::DeathTimer),
            ConnectionTimer::Forgotten => self.give_up(now, CloseReason::Forgotten),
            ConnectionTimer::Unreachable => self.give_up(now, CloseReason::Unreachable),
            ConnectionTimer::KeepaliveProbe => {
                self.liveness.on_probe(now);
                self.push_keepalive(Keepalive { answer_wanted: true, ..Keepalive::default() });
            }
            ConnectionTimer::Silent => {
                self.liveness.on_silent();
                self.events_mut().push_back(Event::Silent);
                self.trace().note(now, || TraceEvent::Silent);
            }
            ConnectionTimer::Keepalive => {
                // Set here too, since the KEEPALIVE may not leave at once.
                self.liveness.on_sent(now);
                self.push_keepalive(Keepalive::default());
            }
            ConnectionTimer::Branch => self.push_due_branches(now),
            ConnectionTimer::Stalled => {}
            ConnectionTimer::Outbox | ConnectionTimer::Challenge | ConnectionTimer::Echo => {}
        }
    }

    /// The peer is gone, by this reason, unless the transfer is settled.
    fn give_up(&mut self, now: Instant, reason: CloseReason) {
        self.close(now, if self.is_settled() { CloseReason::Finished } else { reason });
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
        let goes_on = self.closing.transfer_goes_on();
        let validated = self.addresses.validated().filter(|_| goes_on)?;
        let start = out.len();
        if let Some(len) = self.validation.poll_echo(now, out) {
            return Some((validated, len));
        }
        let segment = match &mut self.machine {
            Machine::Sender(sender) => sender.poll_transmit(now, &mut self.codec, out),
            Machine::Receiver(receiver) => {
                receiver.poll_transmit(now, &mut self.codec, out).then(|| out.len() - start)
            }
        };
        if let Some(segment) = segment {
            self.liveness.on_sent(now);
            let len = out.len() - start;
            self.on_sent_bytes(len, len.div_ceil(segment.max(1)));
            self.validation.on_others();
            self.quit_between_buffers(now);
        }
        segment.map(|segment| (validated, segment))
    }

    /// The outbox goes first. While no address is validated, only CHALLENGEs and ANSWERs leave; the
    /// others wait.
    fn next_single(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Route, usize)> {
        let (validated, start) = (self.addresses.validated(), out.len());
        let (route, number) =
            match self.outbox.poll(validated, self.validation.limit(), &mut self.codec, out) {
                Some(packet) => packet,
                None => {
                    if self.closing.is_closed() {
                        return None;
                    }
                    let interval = self.quit_interval();
                    let (route, token) = self.addresses.poll_challenge(now, interval)?;
                    (route, self.codec.put_challenge(out, &token))
                }
            };
        let len = out.len() - start;
        self.liveness.on_sent(now);
        self.on_sent_bytes(len, 1);
        if let Machine::Sender(sender) = &mut self.machine {
            // It has a number of the same sequence, which the sampler must count.
            sender.on_other_sent(now, number, len);
        }
        Some((route, len))
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<(Timer, Instant)> {
        let machine = match &self.machine {
            _ if !self.closing.transfer_goes_on() => None,
            Machine::Sender(sender) => sender.next_timer(now),
            Machine::Receiver(receiver) => receiver.next_timer(),
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

    // ---- closing by QUIT (RFC 998 §5.3.2; `docs/protocol §7.3`)

    pub(crate) fn set_limit_cause(&mut self, limit: u8) {
        if let Machine::Sender(sender) = &mut self.machine {
            sender.set_limit_cause(limit);
        }
    }

    /// The client quits.
    pub(crate) fn quit(&mut self, now: Instant, reason: &str) {
        if !self.closing.is_open() {
            return;
        }
        self.closing.wait(now, reason);
        let ends_buffer = self.profile.quits_between_buffers;
        if let (Machine::Sender(sender), true) = (&mut self.machine, ends_buffer) {
            sender.stop_new_buffers();
        }
        self.quit_between_buffers(now);
    }

    /// The client drops the connection: QUIT leaves once, without waiting for QUITACK.
    pub(crate) fn forget(&mut self, now: Instant, reason: &str) {
        if !self.closing.is_closed() {
            self.outbox.push(OutboxPacket::Quit(reason.to_owned()));
            self.close(now, CloseReason::Quit);
        }
    }

    /// The QUIT exchange is over. An end that has everything by now has finished, whichever end
    /// gave up, unless its own client stopped it (`docs/protocol §7.3`).
    fn leave(&mut self, now: Instant, reason: CloseReason) {
        let finished = reason != CloseReason::Quit && self.is_settled();
        self.close(now, if finished { CloseReason::Finished } else { reason });
    }

    /// Sends a pending QUIT as soon as no buffer is under way.
    fn quit_between_buffers(&mut self, now: Instant) {
        let between = !self.profile.quits_between_buffers
            || match &self.machine {
                Machine::Sender(sender) => sender.is_between_buffers(),
                Machine::Receiver(receiver) => receiver.is_between_buffers(),
            };
        if between {
            self.send_pending_quit(now);
        }
    }

    fn send_pending_quit(&mut self, now: Instant) {
        if let Some(reason) = self.closing.pending() {
            let reason = reason.to_owned();
            self.begin_quitting(now, reason, CloseReason::Quit);
        }
    }

    /// QUIT with this reason leaves at once, and the connection ends with this outcome.
    fn begin_quitting(&mut self, now: Instant, reason: String, outcome: CloseReason) {
        let (interval, death_timer) = (self.quit_interval(), self.liveness.death_timer());
        self.closing.quit(now, reason, outcome, interval, death_timer);
        self.repeat_quit(now);
    }

    fn repeat_quit(&mut self, now: Instant) {
        match self.closing.on_interval(now, self.quit_interval()) {
            None => {}
            Some(QuitStep::Leave(outcome)) => self.leave(now, outcome),
            Some(QuitStep::Repeat(reason)) => {
                self.note_timer(now, ConnectionTimer::Quit);
                self.outbox.push(OutboxPacket::Quit(reason));
            }
        }
    }

    fn quit_interval(&self) -> Duration {
        quit_interval(match &self.machine {
            Machine::Sender(sender) => sender.retry_timer(),
            Machine::Receiver(receiver) => receiver.control_timer(),
        })
    }

    // ---- address validation (`docs/protocol §2.3`)

    /// The peer's address is not validated: `received` bytes came from it in one packet. `seed`
    /// must never have been used before.
    pub(crate) fn limit_amplification(
        &mut self,
        received: usize,
        mut limit: AmplificationLimit,
        seed: u64,
    ) {
        limit.on_received(received);
        if let Machine::Sender(sender) = &mut self.machine {
            limit.use_coins();
            sender.test_by_coins(Some(seed));
        }
        self.validation.begin(limit);
        self.update_allowance();
    }

    /// Whether only the peer's OPEN has arrived.
    pub(crate) fn is_half_open(&self) -> bool {
        self.liveness.is_half_open()
    }

    /// The peer opens the connection again: it was restarted before it sent anything else.
    pub(crate) fn on_reopened(&mut self, now: Instant) {
        self.liveness.on_reopened(now);
    }

    /// The peer's address is validated.
    pub(crate) fn on_address_validated(&mut self) {
        self.liveness.on_address_validated();
        if self.validation.finish()
            && let Machine::Sender(sender) = &mut self.machine
        {
            sender.test_by_coins(None);
        }
        self.update_allowance();
    }

    /// A datagram of `bytes` came from the peer's address.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        if self.validation.limit().is_none() {
            return;
        }
        self.validation.on_received(bytes);
        if let Machine::Receiver(receiver) = &mut self.machine {
            receiver.renew_allowance();
        }
        self.update_allowance();
    }

    /// Queues a KEEPALIVE, unless the amplification limit is better spent.
    pub(crate) fn push_keepalive(&mut self, keepalive: Keepalive) {
        let waiting = match &self.machine {
            Machine::Receiver(receiver) if receiver.waits_for_ack() => WaitingPacket::Control,
            Machine::Sender(sender) if sender.waits_for_room() => WaitingPacket::Data,
            _ => WaitingPacket::No,
        };
        if self.validation.allows_keepalive(self.profile.keepalive_bytes, waiting) {
            self.outbox.push(OutboxPacket::Keepalive(keepalive));
        }
    }

    /// Whether a datagram of `bytes` may be sent; if so it is counted.
    pub(crate) fn may_go(&mut self, bytes: usize) -> bool {
        let may = self.validation.allows(bytes);
        if may {
            self.on_sent_bytes(bytes, 1);
        }
        may
    }

    /// Counts sent datagrams.
    fn on_sent_bytes(&mut self, bytes: usize, packets: usize) {
        if self.validation.limit().is_some() {
            self.validation.on_sent_bytes(bytes, packets);
            self.update_allowance();
        }
    }

    /// Evaluates the coins that the peer's packets guessed.
    fn check_coin_evidence(&mut self) {
        let (Some(_), Machine::Sender(sender)) = (self.validation.limit(), &mut self.machine)
        else {
            return;
        };
        let evidence = sender.take_coin_evidence();
        if evidence == CoinEvidence::default() {
            return;
        }
        match self.validation.on_coins(evidence) {
            true => self.on_address_validated(),
            false => self.update_allowance(),
        }
    }

    /// The passive end has not validated this address: `echo` returns its number.
    pub(crate) fn echo(&mut self, now: Instant, echo: ProofEcho) {
        self.validation.echo(now, echo);
    }

    /// The passive end sent another RESPONSE, with another number or none.
    pub(crate) fn on_response(&mut self, now: Instant, echo: Option<ProofEcho>) {
        if self.validation.on_response(now, echo, self.is_settled()) {
            let reason = "this end was started again".to_owned();
            self.begin_quitting(now, reason, CloseReason::Forgotten);
        }
    }

    /// Updates the machine's limit.
    fn update_allowance(&mut self) {
        let limit = self.validation.limit();
        match &mut self.machine {
            Machine::Sender(sender) => {
                sender.set_allowance(limit.map_or(u64::MAX, AmplificationLimit::room));
            }
            Machine::Receiver(receiver) => {
                let datagram = limit.map(AmplificationLimit::largest);
                receiver.set_allowance(datagram);
            }
        }
    }

    // ---- branches (`docs/protocol §4.10`) and subflows

    /// Allows connections to branch from this one.
    pub(crate) fn let_branch(&mut self, branches: Branches) {
        self.branches = Some(Box::new(branches));
    }

    /// Its branches, if it may have any now.
    pub(crate) fn branches(&mut self) -> Option<&mut Branches> {
        self.branches.as_deref_mut().filter(|_| self.closing.is_open())
    }

    /// The active end makes a branch with the wanted parameters, limited to the negotiated ones.
    /// BRANCH announces it next.
    pub(crate) fn make_branch(
        &mut self,
        now: Instant,
        wanted: HandshakePayload,
    ) -> Option<(Branch, ChainKeys)> {
        let made = self.branches()?.make(now, wanted)?;
        self.push_due_branches(now);
        Some(made)
    }

    /// Queues the BRANCHes that are due.
    fn push_due_branches(&mut self, now: Instant) {
        let due = self.branches.as_mut().map_or_else(Vec::new, |of| of.take_due(now));
        for branch in due {
            self.outbox.push(OutboxPacket::Branch(Box::new(branch)));
        }
    }

    /// The cipher of its packets, if encrypted.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        self.codec.cipher()
    }

    /// A packet of the branch with this id arrived.
    pub(crate) fn on_branch_confirmed(&mut self, id: u32) {
        if let Some(branches) = &mut self.branches {
            branches.on_confirmed(id);
        }
    }

    /// The connection that this one branched from has closed, so BRANCH leaves no more.
    pub(crate) fn on_stem_closed(&mut self, now: Instant, reason: &CloseReason) {
        if self.liveness.is_half_open() {
            self.outbox.clear();
            self.close(now, reason.clone());
        }
    }

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
