//! The data sender: sends granted and requested packets, lowest buffer first, in bursts (RFC 998
//! §5.2).
//!
//! [`Sender`] only routes. Each decision belongs to one of its components, which are values with
//! private state: they take what they need as arguments, and return what they decided. Data go one
//! way: what the receiver says goes from `control.rs` to the components, and
//! [`Sender::poll_transmit`] asks them what leaves. No component knows the sender.
//!
//! The scheduler keeps one order (`docs/protocol §6.4`): buffers begin strictly by number, and
//! resends go before any packet at a higher position. The receiver's early gap detection depends on
//! that. The state machine is drawn in `docs/protocol §10.1`.

mod circuit_breaker;
mod control;
mod control_window;
mod end_of_transfer;
mod fec;
mod feedback;
#[cfg(test)]
mod lying_tests;
mod null_ack;
mod pmtud;
mod progress_evidence;
mod rate_driver;
mod records;
mod scheduler;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use circuit_breaker::CircuitBreaker;
use end_of_transfer::EndOfTransfer;
use fec::{FecPlanner, PathState};
use feedback::SenderFeedback;
use null_ack::AckState;
use pmtud::{Resize, SenderPmtud};
use progress_evidence::ProgressEvidence;
use rate_driver::RateDriver;
use records::{Blocked, Records};
pub(crate) use scheduler::CoinEvidence;
use scheduler::{CoinTest, DataPacket, OutgoingPacket, PacketBody, Scheduler};
#[cfg(test)]
use scheduler::{OutgoingBuffer, SendingState};

use crate::api::Event;
use crate::buffer::Buffer;
use crate::codec::Codec;
use crate::limits::{MAX_BATCH, MAX_DATAGRAM_BYTES};
use crate::negotiated::{Negotiated, ProgressCounter, ProgressTimescale};
use crate::pmtud::ProbeTiming;
use crate::rate::subflows::{SubflowShare, SubflowTally};
use crate::rate::{Law, is_long};
use crate::stats::Stats;
use crate::time::{Instant, earliest};
use crate::timers::{SenderTimer, Timer, first};
use crate::trace::{RateLine, Recorder, Stage, TraceEvent};
use crate::units::{BufferNumber, ControlSeq, PacketNumber, Rate};
use crate::wire::packet::{End, NullAck};

/// The sending machine: what was negotiated, and a component for each decision.
#[derive(Debug)]
pub(crate) struct Sender {
    negotiated: Negotiated,
    /// Which packet leaves next.
    scheduler: Scheduler,
    /// The coin test, while the receiver's address is not validated.
    coins: Option<CoinTest>,
    /// How many packets may leave, and when.
    rate: RateDriver,
    /// What became of the packets.
    feedback: SenderFeedback,
    /// How large datagrams are.
    pmtud: SenderPmtud,
    /// How many repair packets are made.
    fec: FecPlanner,
    /// Whether missing feedback stops the sender.
    breaker: CircuitBreaker,
    /// Whether the transfer moves on.
    progress: ProgressEvidence,
    /// Which control messages are acknowledged.
    acks: AckState,
    /// END, the verdict and the dally.
    end: EndOfTransfer,
    /// Events, statistics and trace.
    records: Records,
}

impl Sender {
    pub(crate) fn new(now: Instant, negotiated: Negotiated, law: Law, overhead: u32) -> Self {
        let Law { control, learns, ways } = law;
        let pmtud = SenderPmtud::new(now, &negotiated, overhead);
        let first = pmtud.datagram_bytes();
        Self {
            negotiated,
            scheduler: Scheduler::new(ways),
            coins: None,
            rate: RateDriver::new(now, &negotiated, control, learns, first, overhead),
            feedback: SenderFeedback::new(&negotiated, learns, overhead),
            pmtud,
            fec: FecPlanner::new(negotiated.repair),
            breaker: CircuitBreaker::new(now),
            progress: ProgressEvidence::new(negotiated.profile.reports),
            acks: AckState::default(),
            end: EndOfTransfer::new(&negotiated.profile),
            records: Records::new(first),
        }
    }

    /// Starts to skip packet numbers drawn from this seed, where the wire has REPORTs.
    pub(crate) fn skip_numbers(&mut self, seed: [u8; 32]) {
        self.feedback.skip_numbers(seed);
    }

    // ---- the client's verbs

    /// The buffer that was wanted under `number`; numbers must come in the order they were wanted.
    pub(crate) fn supply(
        &mut self,
        now: Instant,
        number: BufferNumber,
        buffer: Buffer,
        last: bool,
    ) {
        debug_assert!(buffer.filled().len() <= self.negotiated.geometry.buffer_bytes as usize);
        if let Err(buffer) = self.scheduler.supply(number, buffer, last) {
            self.records.release(number, buffer);
            return;
        }
        self.acks.stop_repeats();
        self.note_buffer(now, number, Stage::Supplied);
        if last {
            self.learn_last(number);
        }
    }

    /// There is nothing after buffer `end.buffers`.
    pub(crate) fn end(&mut self, now: Instant, end: End) {
        if self.negotiated.profile.verdict && self.end.announce(now, end) {
            self.learn_last(BufferNumber(end.buffers));
        }
    }

    /// Sets what limits the transfer so far. After the verdict it does not change, so that both
    /// ends have the same.
    pub(crate) fn set_limit_cause(&mut self, limit: u8) {
        if self.end.is_sending() {
            self.records.stats.limit = limit;
        }
    }

    fn learn_last(&mut self, last: BufferNumber) {
        self.scheduler.learn_last(last);
        if last == BufferNumber(1)
            && let Some(bytes) = self.scheduler.supplied_bytes(last)
        {
            self.rate.on_whole(bytes);
        }
        self.fec.on_change();
        self.check_all_accepted();
    }

    /// The client quits: no further buffer begins.
    pub(crate) fn stop_new_buffers(&mut self) {
        self.scheduler.stop_new_buffers();
    }

    /// Whether no buffer is in its first pass.
    pub(crate) fn is_between_buffers(&self) -> bool {
        !self.scheduler.is_amid_buffer() || self.next_waits()
    }

    /// Whether everything is acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    /// Whether the receiver's verdict (on `rfc998` its last OK) has arrived.
    pub(crate) fn is_settled(&self) -> bool {
        !self.end.is_sending()
    }

    /// Hands every buffer back.
    pub(crate) fn release_all(&mut self, now: Instant) {
        for (number, outgoing) in self.scheduler.take_all() {
            if let Some(buffer) = outgoing.into_buffer() {
                self.note_buffer(now, number, Stage::Released);
                self.records.release(number, buffer);
            }
        }
    }

    // ---- address validation by coins (docs/protocol §2.3)

    /// Starts the coin test with `seed`; or ends it (`None`), and queues the packets that it
    /// skipped.
    pub(crate) fn test_by_coins(&mut self, seed: Option<u64>) {
        let headers = u64::from(self.negotiated.profile.data_overhead) + self.feedback.overhead();
        let test = seed.map(|seed| CoinTest::new(seed, headers));
        self.rate.set_unvalidated(test.is_some());
        if let Some(over) = std::mem::replace(&mut self.coins, test) {
            for (number, skipped) in over.into_skipped() {
                self.scheduler.ask(number, &skipped, None);
            }
        }
    }

    /// Sets the bytes of IP packets that may leave while the receiver's address is not validated.
    pub(crate) fn set_allowance(&mut self, bytes: u64) {
        self.coins.iter_mut().for_each(|coins| coins.set_room(bytes));
    }

    /// Whether data or an acknowledgement wait for room within the amplification limit.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.next_waits() || (self.acks.is_owed() && !self.may_acknowledge())
    }

    /// The evidence since the last call.
    pub(crate) fn take_coin_evidence(&mut self) -> CoinEvidence {
        self.coins.as_mut().map(CoinTest::take_evidence).unwrap_or_default()
    }

    /// Whether the next packet that is due has no room within the amplification limit.
    fn next_waits(&self) -> bool {
        self.coins.as_ref().is_some_and(|coins| coins.holds(self.scheduler.next_bytes()))
    }

    /// Whether a NULL-ACK may leave.
    fn may_acknowledge(&self) -> bool {
        self.coins.as_ref().is_none_or(CoinTest::may_acknowledge)
    }

    /// Whether a packet of data leaves on request.
    fn has_some(&mut self) -> bool {
        let held = self.next_waits();
        self.scheduler.has_some(held)
    }

    // ---- from the network

    /// High consecutive sequence number received.
    pub(crate) fn high(&self) -> ControlSeq {
        self.acks.high()
    }

    /// The retransmission timeout of packets without data.
    pub(crate) fn retry_timer(&self) -> Duration {
        self.feedback.rtt().timeout()
    }

    /// A packet left that carries neither data nor acknowledgement.
    pub(crate) fn on_other_sent(&mut self, now: Instant, number: PacketNumber, bytes: usize) {
        // OK does not acknowledge these.
        if !self.feedback.infers() {
            self.note_sent(now, number, 1, bytes as u64);
        }
    }

    fn note_sent(&mut self, now: Instant, first: PacketNumber, count: u32, bytes: u64) {
        if self.feedback.on_sent(now, first, count, bytes) {
            self.breaker.restart(now);
        }
    }

    /// An authentic packet of the receiver arrived.
    pub(crate) fn on_authentic(&mut self, now: Instant) {
        self.breaker.on_authentic(now);
        self.feedback.reset_back_off();
    }

    fn check_all_accepted(&mut self) {
        if self.scheduler.is_accepted() {
            self.acks.stop_repeats();
        }
    }

    // ---- time and output

    /// Handles the timers that have expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for timer in SenderTimer::ACTIONS {
            if self.is_due(timer, now) {
                self.expire(timer, now);
            }
        }
    }

    /// When `timer` expires, if it is set.
    fn deadline(&self, timer: SenderTimer, now: Instant) -> Option<Instant> {
        if self.end.is_finished() {
            return None;
        }
        let sends = self.end.is_sending();
        match timer {
            SenderTimer::Dally => self.end.deadline(),
            SenderTimer::PathMtu => {
                self.pmtud.deadline(now, || self.probe_timing()).filter(|_| sends)
            }
            SenderTimer::Inferred => self.feedback.deadline(),
            SenderTimer::Rate => self.rate.law_deadline().filter(|_| sends),
            SenderTimer::AllLost => self.all_lost_at().filter(|_| sends),
            SenderTimer::Feedback => self.feedback_overdue_at(),
            SenderTimer::NullAck => self.null_ack_at(now),
            SenderTimer::Pacing => {
                let waits = !self.may_have_data() || self.breaker_open(now);
                let in_flight = self.feedback.in_flight_bytes();
                if !sends || waits { None } else { self.rate.deadline(now, in_flight) }
            }
            SenderTimer::Breaker => {
                let probes = sends && self.may_have_data() && self.breaker_open(now);
                probes.then(|| self.breaker.probe_due())
            }
        }
    }

    fn is_due(&self, timer: SenderTimer, now: Instant) -> bool {
        self.deadline(timer, now).is_some_and(|at| at <= now)
    }

    fn expire(&mut self, timer: SenderTimer, now: Instant) {
        if !matches!(timer, SenderTimer::PathMtu | SenderTimer::Inferred) {
            self.records.trace.note(now, || TraceEvent::Timer { timer: timer.into() });
        }
        match timer {
            SenderTimer::Dally => self.end.expire(),
            SenderTimer::PathMtu => {
                let resize = self.pmtud.expire(now, &self.probe_timing());
                self.resize(now, resize);
            }
            SenderTimer::Inferred => {
                self.feedback.expire(now);
                self.handle_inferred(now);
            }
            SenderTimer::Rate => self.rate.expire_law(now),
            SenderTimer::AllLost => {
                self.breaker.restart(now);
                self.scheduler.resend_all();
            }
            SenderTimer::Feedback => {
                self.breaker.expire(now);
                self.rate.on_silence(now);
            }
            SenderTimer::NullAck | SenderTimer::Pacing | SenderTimer::Breaker => {}
        }
    }

    /// The timer that expires first, and when.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<(Timer, Instant)> {
        let all = SenderTimer::ACTIONS.into_iter().chain(SenderTimer::OUTPUTS);
        first(all.map(|timer| (timer.into(), self.deadline(timer, now))))
    }

    /// Whether data may be sent as soon as the pacer lets them.
    fn may_have_data(&self) -> bool {
        let waits = self.waits_for_size() || self.next_waits();
        self.scheduler.may_be_due() && !waits && !self.rate.is_fully_paused()
    }

    /// Appends one batch of equal datagrams (the last may be shorter) to `out`. Returns the length
    /// of each, or `None` if nothing is due.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.end.is_finished() {
            return None;
        }
        self.plan_repairs(now);
        if !self.has_some() {
            self.announce_drained(now);
        }
        if self.is_due(SenderTimer::NullAck, now) {
            let before = out.len();
            self.put_null_ack(now, codec, out);
            return Some(out.len() - before);
        }
        if !self.end.is_sending() {
            return None;
        }
        if let Some(probe) = self.put_probe(now, codec, out) {
            return Some(probe);
        }
        match self.allowed(now) {
            0 => None,
            allowed => {
                let allowed = allowed.min(self.feedback.skip_number(codec));
                self.put_burst(now, allowed, codec, out)
            }
        }
    }

    /// How many packets may leave now; records what blocks if none.
    fn allowed(&mut self, now: Instant) -> u32 {
        if let Some(why) = self.lacks() {
            self.records.block(now, why);
            self.feedback.on_app_limited();
            return 0;
        }
        if self.breaker_open(now) {
            if !self.breaker.probe(now, self.feedback.infers()) {
                self.records.block(now, Blocked::InFlight);
                return 0;
            }
            self.records
                .trace
                .note(now, || TraceEvent::Timer { timer: SenderTimer::Breaker.into() });
            return 1;
        }
        let pacing = self.rate.pacing();
        let room = self.rate.room(&pacing, self.feedback.in_flight_bytes());
        if room == 0 {
            self.records.block(now, Blocked::InFlight);
            return 0;
        }
        let held_back = self.records.was_held_back(now);
        let available = self.rate.available(now, &pacing, held_back);
        if available == 0 {
            self.records.block(now, Blocked::Pacing);
            return 0;
        }
        self.records.block_over(now);
        self.breaker.on_data_left(now);
        available.min(room).min(MAX_BATCH as u32)
    }

    /// The cause that blocks, other than the rate law, if any.
    fn lacks(&mut self) -> Option<Blocked> {
        let some = self.has_some();
        if self.rate.is_fully_paused() || self.rate.is_paused() && !some {
            return Some(Blocked::Paused);
        }
        if !some && self.scheduler.waits_for_source() {
            return Some(Blocked::Source);
        }
        (!some || self.waits_for_size()).then_some(Blocked::Permission)
    }

    /// Whether its rate law responds to ECN marks.
    pub(crate) fn answers_marks(&self) -> bool {
        self.rate.answers_marks()
    }

    fn put_burst(
        &mut self,
        now: Instant,
        allowed: u32,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let start = out.len();
        let mut segment = None;
        let mut first_number = None;
        let mut count = 0;
        let largest = self.pmtud.datagram_bytes() as usize;
        // Packets that coins skip say nothing of the path.
        let learns = self.coins.is_none();
        let law = self.scheduler.ways().law;
        while count < allowed {
            let (at, mut whole) = (out.len(), 0);
            // A batch has packets of one size; only its last may be shorter.
            let leaving = self.scheduler.next(self.coins.as_mut(), |packet_bytes| {
                whole = (packet_bytes + self.negotiated.profile.data_overhead) as usize;
                let same_size = segment.is_none_or(|segment| segment == whole);
                let room = MAX_DATAGRAM_BYTES as usize - (at - start);
                same_size && whole <= largest && whole <= room
            });
            let Some(leaving) = leaving else { break };
            let sent = leaving.put(self.acks.high(), law, codec, out);
            let OutgoingPacket { number, what, ends, .. } = leaving;
            let len = out.len() - at;
            let sent = match learns {
                true => self.feedback.number(now, sent, number, len as u64, ends),
                false => sent,
            };
            first_number.get_or_insert(sent);
            count += 1;
            self.account(now, number, &what);
            segment.get_or_insert(len);
            if len != whole {
                break;
            }
            self.progress.on_full_sent(len as u32);
        }
        let first = first_number?;
        self.rate.charge(now, out.len() - start, count);
        if learns {
            self.note_sent(now, first, count, (out.len() - start) as u64);
            self.note_lateness(now);
        }
        self.feedback.on_data_sent(count);
        self.pmtud.on_data_sent(now, first, segment.unwrap_or_default());
        self.rate.on_data_sent(now, count);
        segment
    }

    /// Records with the sent packets when they were due, and the bytes sent to catch up.
    fn note_lateness(&mut self, now: Instant) {
        // On a long path the queue may be shorter than the bytes sent to catch up.
        if self.feedback.rtt().smallest().is_some_and(is_long) {
            return;
        }
        if let Some((due_at, made_up)) = self.rate.lateness(now) {
            self.feedback.on_late(due_at, made_up);
        }
    }

    fn account(&mut self, now: Instant, number: BufferNumber, what: &PacketBody) {
        if let PacketBody::Data(piece) = what {
            // DATA carries the acknowledgement.
            self.acks.on_acknowledged();
            self.note_repairable(now, number, piece);
            if !piece.resend && self.progress.counts_sending() && !self.breaker_open(now) {
                self.progress.on_fresh_sent();
            }
        }
        self.records.on_packet(now, what, || self.rate.asked().burst.interval);
        if let PacketBody::Data(piece) = what
            && !piece.resend
        {
            if piece.index.0 == 0 {
                self.note_buffer(now, number, Stage::Begun);
            }
            if piece.last_of_buffer {
                self.note_buffer(now, number, Stage::Sent);
            }
        }
    }

    // ---- the size of datagrams

    /// A datagram of `bytes` was answered.
    pub(crate) fn handle_answer(&mut self, now: Instant, bytes: u16) {
        let resize = self.pmtud.on_answer(now, bytes, &self.probe_timing());
        self.resize(now, resize);
    }

    /// An ICMP message limits IP packets to `bytes`.
    pub(crate) fn handle_size_hint(&mut self, now: Instant, bytes: u32) {
        let resize = self.pmtud.on_hint(now, bytes, &self.probe_timing());
        self.resize(now, resize);
    }

    /// This host refuses to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. Returns whether smaller ones can be sent.
    pub(crate) fn handle_size_refused(
        &mut self,
        now: Instant,
        bytes: u32,
        limit: Option<u32>,
    ) -> bool {
        let (helped, resize) = self.pmtud.on_refused(now, bytes, limit, &self.probe_timing());
        self.resize(now, resize);
        helped
    }

    fn probe_timing(&self) -> ProbeTiming {
        let (rtt, timeout) = (self.feedback.rtt().assumed(), self.feedback.rtt().timeout());
        ProbeTiming { rtt, timeout, rate: self.rate.pacing_rate() }
    }

    /// Datagrams have another size from now on, if `resize`.
    fn resize(&mut self, now: Instant, resize: Option<Resize>) {
        let Some(Resize { before, after }) = resize else { return };
        if after < before {
            self.scheduler.forget_repairs();
        }
        self.rate.resize(before, after);
        self.records.on_resize(now, after);
    }

    /// The next packets were granted in a size that does not pass: a new GO must come.
    fn waits_for_size(&self) -> bool {
        let front = self.scheduler.front();
        front.is_some_and(|outgoing| self.pmtud.is_too_large(outgoing.packet_bytes()))
    }

    /// Appends the probe that is due and returns its length.
    fn put_probe(&mut self, now: Instant, codec: &mut Codec, out: &mut Vec<u8>) -> Option<usize> {
        let before = out.len();
        let (number, counted) = self.pmtud.put_probe(codec, out)?;
        self.note_sent(now, number, 1, counted);
        Some(out.len() - before)
    }

    // ---- what the client changes while it sends (docs/protocol §6.9)

    /// The negotiated parameters that a rate law is built for.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Bytes of IP and UDP header on each datagram.
    pub(crate) fn overhead(&self) -> u32 {
        self.feedback.overhead() as u32
    }

    /// Never faster than this; `None` for no such limit.
    pub(crate) fn set_ceiling(&mut self, now: Instant, ceiling: Option<Rate>) {
        self.rate.set_ceiling(now, ceiling);
        self.note_rate(now);
    }

    /// Switches to `law`, which starts from the rate of the one before.
    pub(crate) fn follow(&mut self, now: Instant, law: Law) {
        let (delivery, min_rtt) = (self.feedback.delivery_rate(), self.feedback.rtt().smallest());
        self.rate.follow(now, law.control, delivery, min_rtt);
        self.note_rate(now);
    }

    /// The client pauses or resumes. Where the wire can announce a pause, nothing leaves from now
    /// on; else the buffers that have begun are completed, and none begins.
    pub(crate) fn pause(&mut self, now: Instant, paused: bool) {
        if !self.rate.pause(now, paused) {
            return;
        }
        if !paused {
            self.breaker.on_pause_over(now);
        }
        if !self.negotiated.profile.announces_pause {
            self.scheduler.hold(paused);
        }
    }

    // ---- subflows (docs/protocol §6.11)

    /// Its counters, for the main connection.
    pub(crate) fn tally(&self, now: Instant) -> SubflowTally {
        self.feedback.tally(now)
    }

    /// From now on its rate law decides for these subflows too, whether they are alive or not.
    pub(crate) fn lead(&mut self, now: Instant, subflows: &[SubflowTally]) {
        self.rate.lead(now, self.feedback.tally(now), subflows);
    }

    /// The share of the subflow at `at` of the last list.
    pub(crate) fn share(&self, at: usize) -> SubflowShare {
        self.rate.share(at)
    }

    /// From now on the main connection sets its share.
    pub(crate) fn be_led(&mut self, share: SubflowShare) {
        self.rate.be_led(share);
    }

    // ---- repair packets

    /// A packet of data leaves, which repair packets may follow.
    fn note_repairable(&mut self, now: Instant, number: BufferNumber, piece: &DataPacket) {
        if !self.fec.on_left(piece) || !self.scheduler.note_left(now, number, piece) {
            return;
        }
        let path = self.path_state();
        let packets = self.fec.behind(now, number, &mut self.scheduler, &path);
        if packets > 0 {
            self.make_repairs(now, number, packets);
        }
    }

    /// At the end of the data: makes repair packets if they are worth their time.
    fn plan_repairs(&mut self, now: Instant) {
        if self.rate.is_fully_paused() {
            return;
        }
        let changed = self.fec.take_change() && self.may_repair();
        if !changed || !self.scheduler.is_sent() || self.scheduler.due().is_some() {
            return;
        }
        let path = self.path_state();
        for (number, count) in self.fec.at_the_end(now, &mut self.scheduler, &path) {
            self.make_repairs(now, number, count);
        }
    }

    fn make_repairs(&mut self, now: Instant, number: BufferNumber, count: u32) {
        let packets = u64::from(self.scheduler.repair(now, number, count));
        let number = number.0;
        self.records.trace.note(now, || TraceEvent::Repair { number, packets });
    }

    /// Whether repair packets may leave that the client did not ask for.
    fn may_repair(&self) -> bool {
        self.end.is_sending() && !self.rate.is_fully_paused()
    }

    fn path_state(&self) -> PathState {
        PathState {
            rtt: self.feedback.rtt().smoothed(),
            assumed_rtt: self.feedback.rtt().assumed(),
            queue: self.rate.belief().queue,
            rate: self.rate.pacing_rate(),
            packet_bytes: self.rate.packet_bytes(),
            datagram_bytes: self.pmtud.datagram_bytes(),
            data_bytes: self.pmtud.data_bytes(),
            may_repair: self.may_repair(),
        }
    }

    // ---- missing feedback and progress

    /// When the missing feedback counts as a timeout.
    fn feedback_overdue_at(&self) -> Option<Instant> {
        if !self.feedback.exists()
            || self.rate.is_fully_paused()
            || self.feedback.in_flight_bytes() == 0
        {
            return None;
        }
        Some(self.breaker.deadline(self.feedback.rtt(), self.feedback.last_sent()))
    }

    /// When an emulated protocol with such a rule declares all outstanding data lost.
    fn all_lost_at(&self) -> Option<Instant> {
        let after = self.scheduler.ways().all_lost_after?;
        let waits = self.scheduler.has_supplied() && !self.scheduler.may_be_due();
        let last_sent =
            self.feedback.last_sent().filter(|_| waits && !self.rate.is_fully_paused())?;
        Some(self.breaker.all_lost_at(after, self.feedback.rtt(), last_sent))
    }

    fn breaker_open(&self, now: Instant) -> bool {
        if !self.feedback.exists() || self.feedback.in_flight_bytes() == 0 {
            return false;
        }
        let since = match self.feedback.infers() {
            // Before a buffer was sent there can be no feedback on it; but packets that the window
            // holds back are never sent.
            true => {
                let room = || self.rate.room(&self.rate.pacing(), self.feedback.in_flight_bytes());
                let held = || (room() == 0).then(|| self.breaker.last_data());
                self.feedback.waits_since().or_else(held)
            }
            false => Some(Instant::EPOCH),
        };
        since.is_some_and(|since| self.breaker.is_open(now, self.feedback.rtt(), since))
    }

    /// The progress that the watchdog expects, if any: of supplied buffers, or of END. A receiver
    /// that grants nothing may be waiting for its client.
    pub(crate) fn underway(&self) -> Option<ProgressCounter> {
        let supplied = self.scheduler.has_supplied() && self.progress.is_expected();
        let goes_on = self.end.is_sending() && !self.rate.is_paused();
        let some = goes_on && (supplied || self.end.end_due().is_some());
        let (signs, tries) = (self.progress.count(), self.data_packets_sent());
        some.then_some(ProgressCounter { signs, tries })
    }

    /// The time scale of progress.
    pub(crate) fn pace_of_progress(&self) -> ProgressTimescale {
        let (round_trip, interval) =
            (self.feedback.rtt().assumed(), self.rate.pacing().burst.interval);
        ProgressTimescale { round_trip, answer: Duration::ZERO, interval }
    }

    // ---- NULL-ACK

    /// Nothing is left to send: announces that to the receiver (§6.4).
    fn announce_drained(&mut self, now: Instant) {
        let supplied = self.scheduler.next_supply() > BufferNumber::FIRST;
        let sent = supplied && self.scheduler.outstanding() > 0;
        if !self.acks.is_repeating()
            && sent
            && self.end.is_sending()
            && let Some(repeats) = self.negotiated.profile.drained_repeats
        {
            self.acks.repeat(now, repeats + 1);
        }
    }

    /// When a NULL-ACK is due if no data leave before.
    fn null_ack_at(&self, now: Instant) -> Option<Instant> {
        if !self.may_acknowledge() {
            return None;
        }
        let sends = self.end.is_sending();
        let data_soon = self.scheduler.may_be_due() && !self.rate.is_fully_paused();
        let data_soon = data_soon.then(|| self.rate.pacing().burst.interval);
        // The repetitions of an unvalidated receiver make room for data, which acknowledge too.
        let waits = data_soon.is_some() && self.coins.is_some();
        earliest([
            self.acks.deadline(data_soon, waits),
            self.end.end_due(),
            self.rate.burst_due(now, self.feedback.rtt().smoothed(), sends, self.feedback.exists()),
            self.rate.pause_due().filter(|_| sends),
            self.pmtud.announcement_due().filter(|_| sends),
            self.feedback.queue_due().filter(|_| sends),
        ])
    }

    fn put_null_ack(&mut self, now: Instant, codec: &mut Codec, out: &mut Vec<u8>) {
        let start = out.len();
        let burst = self.rate.burst_to_announce();
        let idle = !self.scheduler.has_retransmits()
            && self.scheduler.due().is_none()
            && !self.scheduler.has_repairs();
        let next_supply = self.scheduler.next_supply();
        let end = self.end.end();
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: self.acks.high(),
            burst,
            sent_through: (idle && next_supply.0 > 1).then(|| self.scheduler.sent_through()),
            end,
            packet_bytes: self.pmtud.announced_bytes(),
            limit: self.records.stats.limit,
            back_millis: self.feedback.announce_queue(now),
            paused: self.rate.is_fully_paused(),
        };
        let number = codec.put_null_ack(out, &null_ack);
        self.on_other_sent(now, number, out.len() - start);
        let waits = self.waits_for_size();
        self.pmtud.on_announced(now, waits, self.feedback.rtt());
        let interval = self.feedback.rtt().report_interval();
        self.rate.on_announced(now, burst, now + interval);
        self.acks.on_null_ack(now, self.end.repeat_interval(interval));
        if end.is_some() {
            self.end.on_end_sent(now + self.feedback.rtt().timeout());
            self.feedback.back_off();
        }
    }

    // ---- for people and traces

    /// Events until they are polled.
    pub(crate) fn events_mut(&mut self) -> &mut VecDeque<Event> {
        &mut self.records.events
    }

    /// Trace events until they are polled.
    pub(crate) fn trace_mut(&mut self) -> &mut Recorder {
        &mut self.records.trace
    }

    /// Packets of data that left so far.
    pub(crate) fn data_packets_sent(&self) -> u64 {
        self.records.stats.data_packets_sent
    }

    /// Counts and measurements so far.
    pub(crate) fn stats(&self, now: Instant) -> Stats {
        let mut stats = self.records.stats(now);
        stats.data_packets_lost = self.lost_packets();
        stats.rtt = self.feedback.rtt().smoothed();
        stats.min_rtt = self.feedback.rtt().smallest();
        stats.outstanding = self.scheduler.outstanding();
        stats.agreed = self.negotiated.burst_limit();
        stats.pacing_rate = self.rate.pacing_rate();
        stats.rate_reduced = self.rate.is_reduced();
        stats.learned = self.rate.learned();
        stats
    }

    /// Packets lost; without feedback those that were requested again.
    fn lost_packets(&self) -> u64 {
        match self.feedback.exists() {
            true => self.feedback.lost_packets(),
            false => self.records.stats.data_packets_resent,
        }
    }

    /// Delivered bytes, and the smallest round trip.
    pub(crate) fn moved(&self) -> (u64, Option<Duration>) {
        (
            self.feedback.delivered_bytes() + self.rate.delivered_beside(),
            self.feedback.rtt().smallest(),
        )
    }

    fn note_buffer(&mut self, now: Instant, number: BufferNumber, stage: Stage) {
        let (outstanding, held) = (self.scheduler.outstanding(), self.scheduler.unsupplied());
        self.records.note_buffer(now, number, stage, outstanding, held);
    }

    #[inline]
    fn note_rate(&mut self, now: Instant) {
        if self.records.trace.is_on() {
            let line = self.rate_line(now);
            self.records.trace.note(now, || TraceEvent::Rate(line));
        }
        self.rate.trace_changes(now, &mut self.records.trace);
    }

    fn rate_line(&self, now: Instant) -> RateLine {
        let (pacing, belief) = (self.rate.pacing(), self.rate.belief());
        let view = self.rate.path_view(now);
        RateLine {
            phase: belief.phase,
            bandwidth: belief.bandwidth,
            pacing: self.rate.pacing_rate(),
            burst: pacing.burst,
            rtt: self.feedback.rtt().smoothed(),
            min_rtt: belief.min_rtt.or(self.feedback.rtt().smallest()),
            queue: belief.queue,
            way_back: view.way_back,
            varies_by: view.varies_by,
            share_ppm: view.share_ppm,
            in_flight: self.feedback.exists().then(|| self.feedback.in_flight_bytes()),
            cap: pacing.cap_bytes,
            outstanding: self.scheduler.outstanding(),
            held: self.scheduler.unsupplied(),
            sent: self.records.stats.data_packets_sent,
            resent: self.records.stats.data_packets_resent,
            lost: self.lost_packets(),
            marked: self.feedback.marked_packets(),
            delivered: self.feedback.delivered_bytes(),
            accepted_bytes: self.records.stats.image_bytes,
        }
    }
}

#[cfg(test)]
impl Sender {
    /// The state of `buffer`, for tables.
    pub(crate) fn buffer_state(&self, buffer: BufferNumber) -> &'static str {
        match self.scheduler.buffer(buffer).map(OutgoingBuffer::state) {
            None if buffer < self.scheduler.next_supply() => "ACCEPTED",
            None => "None",
            Some(SendingState::Granted) => "GRANTED",
            Some(SendingState::Sending) => "SENDING",
            Some(SendingState::Sent) => "SENT",
        }
    }
}
