//! The requests for missing packets (`docs/protocol §6.2`), and the losses that they show.
//!
//! Inputs: arrivals, acknowledgements, and what the sender announces of its sending. The loss
//! detector decides which packets are missing. Outputs: RESENDs that fit into control packets, and
//! counts of requested and of lost packets.

use std::collections::BTreeMap;

use crate::emulated;
use crate::limits::MAX_RANGES;
use crate::loss_detection::{Arrival, LossDetector, MissingRanges, ResendRequest, TimingInfo};
use crate::negotiated::Negotiated;
use crate::rtt::RttEstimator;
use crate::stats::Stats;
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{Burst, IndexRange, NullAck, Resend};
use crate::wire::rfc998;

/// RESENDs of one buffer in one round on `rfc998`, where each may fill a control packet: as many
/// packets leave at once, unpaced.
const RESENDS_PER_ROUND: u32 = 16;
/// Where more than this part of the data is lost, a repeated message was lost too.
const MUCH_LOST_PART: u64 = 4;

/// The loss detector, its premises, and its requests.
#[derive(Debug)]
pub(super) struct ResendRequests {
    detector: Box<dyn LossDetector>,
    /// The code of the protocol that the sender emulates, from its first data; 0: none.
    emulated: Option<u8>,
    /// The burst values that were negotiated, and those that the sender announced.
    agreed: Burst,
    announced: Burst,
    /// The sender's client pauses.
    peer_pauses: bool,
    /// One more than the highest index that arrived of the highest buffer.
    highest_position: (BufferNumber, u32),
    /// The sender has sent all of the buffers up to this one.
    sent_through: BufferNumber,
    packets_per_buffer: u32,
    /// Ranges that one RESEND can name, and packets.
    ranges_per_resend: usize,
    packets_per_resend: u32,
    /// Packets requested so far, and those of them that were sent before, since a later packet has
    /// arrived.
    requested: u64,
    passed: u64,
    /// The first of these at the last new packet.
    requested_before: u64,
    /// For each buffer, the number of requests up to its unknown end for packets that had been
    /// sent, and the sum of their first indexes.
    open_requests: BTreeMap<BufferNumber, (u64, u64)>,
    /// How often a data timer expired.
    timeouts: u64,
    /// Memory for the detector's requests.
    found: Vec<ResendRequest>,
}

impl ResendRequests {
    /// The state when the connection opens. A control message has at most `message_bytes`, and a
    /// RESEND of ranges at most `range_bytes` for these.
    pub(super) fn new(
        negotiated: &Negotiated,
        detector: Box<dyn LossDetector>,
        message_bytes: usize,
        range_bytes: usize,
    ) -> Self {
        Self {
            detector,
            emulated: None,
            agreed: negotiated.burst,
            announced: negotiated.burst,
            peer_pauses: false,
            highest_position: (BufferNumber(0), 0),
            sent_through: BufferNumber(0),
            packets_per_buffer: negotiated.geometry.max_packets(),
            ranges_per_resend: (range_bytes / 8).clamp(1, MAX_RANGES),
            packets_per_resend: match negotiated.profile.resends_ranges {
                true => u32::MAX,
                false => rfc998::packets_per_resend(message_bytes),
            },
            requested: 0,
            passed: 0,
            requested_before: 0,
            open_requests: BTreeMap::new(),
            timeouts: 0,
            found: Vec::new(),
        }
    }

    /// The times and burst values that the detector goes by. `has_reverse_queue`: control packets
    /// queue on the reverse path.
    pub(super) fn timing(&self, rtt: &RttEstimator, has_reverse_queue: bool) -> TimingInfo {
        TimingInfo {
            rtt: rtt.bound(),
            timeout: (!has_reverse_queue).then(|| rtt.timeout()),
            burst: self.announced,
            varies: self.announced != self.agreed,
            packets_per_buffer: self.packets_per_buffer,
            packets_per_round: self.packets_per_resend.saturating_mul(RESENDS_PER_ROUND),
        }
    }

    // ---- grants

    /// GO for `buffer` was put into the FIFO under `seq`.
    pub(super) fn on_granted(&mut self, now: Instant, buffer: BufferNumber, seq: ControlSeq) {
        self.detector.on_granted(now, buffer, seq);
    }

    /// `buffer` is granted again, with another packet size.
    pub(super) fn on_renewed(&mut self, buffer: BufferNumber) {
        self.detector.on_renewed(buffer);
        self.open_requests.remove(&buffer);
    }

    /// `buffer` is complete with this number of packets.
    pub(super) fn on_complete(&mut self, buffer: BufferNumber, packets: u32) {
        self.detector.on_complete(buffer);
        if let Some((requests, starts)) = self.open_requests.remove(&buffer) {
            self.passed += (requests * u64::from(packets)).saturating_sub(starts);
        }
    }

    /// No data of `buffer` will come.
    pub(super) fn on_returned(&mut self, buffer: BufferNumber) {
        self.detector.on_complete(buffer);
        self.open_requests.remove(&buffer);
    }

    // ---- from the network

    /// The sender's data name the protocol that it emulates, or 0. Such a protocol has a loss
    /// detection of its own: ours depends on an order of sending that it may not keep
    /// (`docs/protocol §6.8`). All `outstanding` buffers were granted in messages up to `ack`.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        law: u8,
        outstanding: impl Iterator<Item = BufferNumber>,
        ack: ControlSeq,
    ) {
        self.emulated = Some(law);
        let recovery = emulated::recovery(law, self.packets_per_buffer);
        let Some(mut recovery) = recovery else { return };
        for number in outstanding {
            recovery.on_granted(now, number, ack);
        }
        self.detector = recovery;
    }

    /// Whether data have named that protocol.
    pub(super) fn knows_protocol(&self) -> bool {
        self.emulated.is_some()
    }

    /// A missing packet arrived. Returns whether its position is the highest so far.
    pub(super) fn on_arrival(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        timing: &TimingInfo,
    ) -> bool {
        self.requested_before = self.requested;
        self.peer_pauses = false;
        let position = (arrival.buffer, arrival.index.0 + 1);
        let is_highest = position > self.highest_position;
        if is_highest {
            self.highest_position = position;
        }
        self.detector.on_arrival(now, arrival, timing);
        is_highest
    }

    /// A duplicate arrived.
    pub(super) fn on_duplicate(&mut self, now: Instant) {
        self.detector.on_duplicate(now);
    }

    /// Repair packets restored missing ones.
    pub(super) fn on_restored(&mut self) {
        self.requested_before = self.requested;
    }

    /// Whether packet `index` of `buffer` is the only one due next, so that its arrival changes
    /// nothing but the highest position (header prediction).
    pub(super) fn expects(&self, buffer: BufferNumber, index: u32) -> bool {
        self.highest_position == (buffer, index)
            && self.detector.expects(buffer, index)
            && self.requested_before == self.requested
    }

    /// The packet that [`Self::expects`] confirmed has arrived, or the one behind it, and so on.
    pub(super) fn on_expected(&mut self, now: Instant, buffer: BufferNumber, index: u32) {
        self.highest_position = (buffer, index + 1);
        self.detector.on_expected(now, buffer);
    }

    /// The sender acknowledged every control message up to `ack`.
    pub(super) fn on_acknowledged(&mut self, now: Instant, ack: ControlSeq, timing: &TimingInfo) {
        self.detector.on_acknowledged(now, ack, timing);
    }

    /// A NULL-ACK announces the burst values in force, and whether the sender's client pauses.
    pub(super) fn on_announced(&mut self, null_ack: &NullAck) {
        self.announced = null_ack.burst;
        self.peer_pauses = null_ack.paused;
    }

    /// The sender has nothing left to send: of the buffers up to `through` it has sent all that
    /// messages up to `ack` ask for.
    pub(super) fn on_drained(&mut self, now: Instant, ack: ControlSeq, through: BufferNumber) {
        self.sent_through = through.max(self.sent_through);
        self.detector.on_drained(now, ack, through);
    }

    // ---- the data timer and its requests

    /// When the detector is to be polled, if requests have room: not while the sender pauses.
    pub(super) fn deadline(&self, has_room: bool) -> Option<Instant> {
        let asks = !self.peer_pauses && has_room;
        self.detector.next_poll().filter(|_| asks)
    }

    /// Polls the detector. Returns its requests as RESENDs that fit.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        holes: &dyn MissingRanges,
        timing: &TimingInfo,
    ) -> Vec<Resend> {
        self.detector.poll(now, holes, timing, &mut self.found);
        self.found.sort_unstable_by_key(|ask| (ask.buffer, ask.range.start));
        let mut resends = Vec::new();
        let (ranges, packets) = (self.ranges_per_resend, self.packets_per_resend);
        for group in self.found.chunk_by(|a, b| a.buffer == b.buffer) {
            let cut = messages(group, ranges, packets, self.packets_per_buffer);
            let buffer = group[0].buffer;
            resends.extend(cut.into_iter().map(|missing| Resend { buffer, missing }));
        }
        self.found.clear();
        resends
    }

    /// `resend` was put into the FIFO under `seq`; its buffer is `outstanding` still. Returns the
    /// number of packets that it requests.
    pub(super) fn on_requested(
        &mut self,
        now: Instant,
        resend: &Resend,
        seq: ControlSeq,
        outstanding: bool,
    ) -> u64 {
        let buffer = resend.buffer;
        let (passed, before) = (self.passed_in(buffer), self.requested);
        for range in &resend.missing {
            // The end of the buffer may not be known.
            let end = range.end.min(self.packets_per_buffer);
            self.requested += u64::from(end.saturating_sub(range.start));
            if outstanding && range.end == u32::MAX && passed == u32::MAX {
                let (requests, starts) = self.open_requests.entry(buffer).or_default();
                *requests += 1;
                *starts += u64::from(range.start);
            } else {
                self.passed += u64::from(passed.min(end).saturating_sub(range.start));
            }
            self.detector.on_requested(now, ResendRequest { buffer, range: *range }, seq);
        }
        self.requested - before
    }

    /// The packet of `buffer` up to which everything must have been sent: the sender reported so,
    /// or it keeps one order and a later packet has arrived (`docs/protocol §6.4`).
    fn passed_in(&self, buffer: BufferNumber) -> u32 {
        match self.highest_position {
            _ if buffer <= self.sent_through => u32::MAX,
            (highest, top) if highest == buffer => top,
            (highest, _) if highest > buffer => u32::MAX,
            _ => 0,
        }
    }

    /// Whether a data timer has expired since the last call.
    pub(super) fn take_timeout(&mut self) -> bool {
        let expiries = self.detector.expiries();
        expiries > std::mem::replace(&mut self.timeouts, expiries)
    }

    // ---- what is known of the sender and the losses

    /// The burst values that the sender announced.
    pub(super) fn announced_burst(&self) -> Burst {
        self.announced
    }

    /// Whether the sender keeps to the negotiated burst values.
    pub(super) fn keeps_to_rate(&self) -> bool {
        self.announced == self.agreed
    }

    /// The highest buffer of which a packet arrived.
    pub(super) fn highest_buffer(&self) -> BufferNumber {
        self.highest_position.0
    }

    /// The packets requested so far, if some were since the last new packet and the sender does
    /// not pause.
    pub(super) fn unanswered(&self) -> Option<u64> {
        let asked = self.requested > self.requested_before && !self.peer_pauses;
        asked.then_some(self.requested)
    }

    /// Packets that were lost, where `counts` has the restored ones and the duplicates.
    pub(super) fn lost(&self, counts: &Stats) -> u64 {
        // A packet restored by repair packets counts as lost too. A packet that came twice was late
        // the first time, unless it was requested without proof that it had been sent.
        let lost = self.passed + counts.packets_repaired;
        let unproven = self.requested.saturating_sub(self.passed);
        lost.saturating_sub(counts.data_packets_duplicate.saturating_sub(unproven))
    }

    /// Whether so much is lost that a repeated message was lost too.
    pub(super) fn loses_much(&self, counts: &Stats) -> bool {
        let lost = self.lost(counts);
        lost * MUCH_LOST_PART > lost + counts.data_packets_received
    }

    /// Adds its counts.
    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        stats.data_timeouts = self.timeouts;
        stats.data_packets_lost = self.lost(stats);
    }
}

/// Cuts the requests for one buffer into messages of at most `ranges` and `packets`. A range that
/// ends in `u32::MAX` ends with the buffer, which has at most `end` packets; it is cut only if
/// those are too many.
fn messages(asks: &[ResendRequest], ranges: usize, packets: u32, end: u32) -> Vec<Vec<IndexRange>> {
    let mut messages = Vec::new();
    let (mut message, mut room) = (Vec::new(), packets);
    for ask in asks {
        let mut rest = ask.range;
        while rest.start < rest.end {
            let len = rest.end.min(end.max(rest.start)) - rest.start;
            let cut = if len <= room { rest.end } else { rest.start + room };
            if cut > rest.start {
                message.push(IndexRange { start: rest.start, end: cut });
            }
            (rest.start, room) = (cut, room.saturating_sub(len));
            if message.len() == ranges || room == 0 {
                messages.push(std::mem::take(&mut message));
                room = packets;
            }
        }
    }
    messages.extend(Some(message).filter(|message| !message.is_empty()));
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss_detection::{LossDetection, build};
    use crate::receiver::tests::negotiated;
    use crate::units::{PacketIndex, PacketNumber};
    use crate::wire::Wire;

    fn arrival(buffer: u64, index: u32) -> Arrival {
        Arrival {
            number: PacketNumber(0),
            buffer: BufferNumber(buffer),
            index: PacketIndex(index),
            last_of_buffer: false,
            ack: ControlSeq(0),
        }
    }

    #[test]
    fn what_is_requested_behind_a_later_packet_is_lost() {
        let (now, negotiated) = (Instant::EPOCH, negotiated(Wire::Sealed, 2));
        let detector = build(LossDetection::EarlyGaps);
        let mut requests = ResendRequests::new(&negotiated, detector, 500, 400);
        let timing = requests.timing(&RttEstimator::new(negotiated.rtt, negotiated.rtt), false);
        assert!(requests.on_arrival(now, &arrival(1, 9), &timing));
        assert!(!requests.on_arrival(now, &arrival(1, 3), &timing), "behind the highest");
        let ask = |requests: &mut ResendRequests, buffer, start, end| {
            let missing = vec![IndexRange { start, end }];
            let resend = Resend { buffer: BufferNumber(buffer), missing };
            requests.on_requested(now, &resend, ControlSeq(1), true)
        };
        let mut counts = Stats::default();
        assert_eq!(ask(&mut requests, 1, 7, 12), 5);
        assert_eq!(requests.lost(&counts), 3, "10 and 11 may not have been sent");
        assert_eq!(requests.unanswered(), Some(5));
        // All of buffer 1 was sent, and its end is not known: it has 16 packets.
        requests.on_drained(now, ControlSeq(1), BufferNumber(1));
        assert_eq!(ask(&mut requests, 1, 12, u32::MAX), 500 - 12);
        assert_eq!(requests.lost(&counts), 3);
        requests.on_complete(BufferNumber(1), 16);
        assert_eq!(requests.lost(&counts), 3 + 4);
        // More duplicates than were requested without proof were late, and not lost.
        counts.data_packets_duplicate = 490;
        assert_eq!(requests.lost(&counts), 7 - (490 - (5 + 488 - 7)));
    }

    fn cut(asks: &[(u32, u32)], ranges: usize, packets: u32, end: u32) -> Vec<Vec<(u32, u32)>> {
        let ask = |&(start, end)| ResendRequest {
            buffer: BufferNumber(1),
            range: IndexRange { start, end },
        };
        let asks: Vec<ResendRequest> = asks.iter().map(ask).collect();
        let pair = |range: &IndexRange| (range.start, range.end);
        let pairs = |message: &Vec<IndexRange>| message.iter().map(pair).collect();
        messages(&asks, ranges, packets, end).iter().map(pairs).collect()
    }

    #[test]
    fn requests_are_cut_into_messages_that_fit_without_a_gap() {
        assert_eq!(cut(&[(0, 5), (7, 9)], 64, u32::MAX, 100), [[(0, 5), (7, 9)]]);
        assert_eq!(cut(&[(0, 5), (7, 9)], 1, u32::MAX, 100), [[(0, 5)], [(7, 9)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, u32::MAX, 100), [[(3, u32::MAX)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, 97, 100), [[(3, u32::MAX)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, 50, 100), [[(3, 53)], [(53, u32::MAX)]]);
        let split = cut(&[(0, 2), (4, 11)], 64, 4, 100);
        assert_eq!(split, [vec![(0, 2), (4, 6)], vec![(6, 10)], vec![(10, 11)]]);
        assert!(cut(&[], 64, 4, 100).is_empty());
    }
}
