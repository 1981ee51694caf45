//! The control FIFO: RFC 998's single long-lived control packet (§5.2.1).
//!
//! Messages enter at the tail with a sequence number and leave at the head when acknowledged. On
//! `rfc998` a control packet carries all of them; on `sealed` those with copies left
//! (`docs/protocol §6.2`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::MAX_OUTSTANDING;
use crate::time::Instant;
#[cfg(test)]
use crate::units::BufferNumber;
use crate::units::ControlSeq;
use crate::wire::packet::Message;
use crate::wire_profile::ControlPolicy;

/// Most messages unacknowledged at once; past it the receiver waits before it asks for more.
pub(crate) const MAX_UNACKNOWLEDGED: usize = MAX_OUTSTANDING as usize;

/// Least bytes of the oldest messages that a timeout repeats, two packets' worth: a slow reverse
/// path may take longer for all of them than the control timer.
const MIN_REPEATED_BYTES: usize = 2 * 1472;
/// Longest acknowledgement delay that raises the timer of these messages: a path that recovers is
/// noticed this soon (`docs/protocol §6.2`).
const MAX_HAVE_ACK_DELAY: Duration = Duration::from_secs(2);
/// Bytes of the oldest messages that are added to control packets that leave anyway, once they were
/// repeated without success and are this old: the acknowledgement number stops before the oldest
/// lost message.
const PIGGYBACK_BYTES: usize = 96;
const PIGGYBACK_AGE: Duration = Duration::from_secs(1);
/// Least time between two such additions, beside a round trip: each is answered.
const PIGGYBACK_INTERVAL: Duration = Duration::from_millis(250);

/// A message that is not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct UnackedMessage {
    pub(crate) seq: ControlSeq,
    pub(crate) message: Message,
    /// Further control packets that carry it without a timeout.
    copies_left: u8,
    first_sent: Option<Instant>,
    last_sent: Option<Instant>,
    /// The control timer repeated it, so its round trip is ambiguous (Karn's rule).
    repeated: bool,
    /// The control timer repeated it more than once.
    repeated_twice: bool,
    /// Its next transmission is a repetition, though not by the timer.
    next_is_repeat: bool,
    /// When the control timer last expired for it, and when it had left before that.
    last_expiry: Option<(Instant, Instant)>,
}

impl UnackedMessage {
    /// Whether it was repeated without success for long, and not just now.
    fn is_piggybacked(&self, now: Instant, apart: Duration) -> bool {
        let long = self.first_sent.is_some_and(|at| now.since(at) >= PIGGYBACK_AGE);
        let apart = self.last_sent.is_some_and(|at| now.since(at) >= apart);
        long && apart && self.repeated_twice && !is_inner_have(&self.message)
    }
}

/// The FIFO of unacknowledged control messages.
#[derive(Clone, Debug)]
pub(crate) struct ControlFifo {
    policy: ControlPolicy,
    queue: VecDeque<UnackedMessage>,
    next: ControlSeq,
    acknowledged: ControlSeq,
    /// Some message has copies left, or had when the last packet left.
    has_copies: bool,
    /// Where packets carry all messages: the last one was full, and this message begins the next.
    resume_at: Option<ControlSeq>,
    /// Bytes of the oldest HAVE messages that a timeout repeats, and the newest message that
    /// was repeated, until all up to it are acknowledged.
    repeat_bytes: usize,
    repeated: Option<ControlSeq>,
    /// When the acknowledgement number last advanced.
    last_advance: Option<Instant>,
    /// Lower bound of the acknowledgement delay of HAVE. An ACK that arrives sooner than
    /// a round trip after a repetition belongs to an older copy.
    have_ack_delay: Duration,
    /// Acknowledgement delay of the newest acknowledged message, from its first transmission.
    ack_delay: Duration,
    /// The smallest round trip at the last acknowledgement.
    min_rtt: Duration,
}

/// What the timers of queued messages go by.
#[derive(Clone, Copy, Debug)]
struct MessageTimers {
    timeout: Duration,
    /// The timeout of HAVE messages within a transfer.
    have_timeout: Duration,
    /// Their timers start again when the acknowledgement number advances.
    last_advance: Instant,
}

impl MessageTimers {
    /// When the timer of this message expires: not before all its copies have left.
    fn deadline(&self, queued: &UnackedMessage) -> Option<Instant> {
        let left = queued.last_sent.filter(|_| queued.copies_left == 0)?;
        Some(match is_inner_have(&queued.message) {
            true => left.max(self.last_advance) + self.have_timeout,
            false => left + self.timeout,
        })
    }
}

impl ControlFifo {
    pub(crate) fn new(policy: ControlPolicy) -> Self {
        Self {
            policy,
            queue: VecDeque::new(),
            next: ControlSeq(1),
            acknowledged: ControlSeq(0),
            has_copies: false,
            resume_at: None,
            repeat_bytes: MIN_REPEATED_BYTES,
            repeated: None,
            last_advance: None,
            have_ack_delay: Duration::ZERO,
            ack_delay: Duration::ZERO,
            min_rtt: Duration::ZERO,
        }
    }

    /// The highest sequence number the peer acknowledged.
    pub(crate) fn acknowledged(&self) -> ControlSeq {
        self.acknowledged
    }

    /// Whether a message was ever pushed.
    pub(crate) fn has_begun(&self) -> bool {
        self.next != ControlSeq(1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Delay of the last acknowledgement: at most a round trip, or, for a repeated message,
    /// several.
    pub(crate) fn ack_delay(&self) -> Duration {
        self.ack_delay
    }

    /// All messages left at `at`. Their round trips are ambiguous if they left at other times too,
    /// or leave again.
    pub(crate) fn was_sent(&mut self, at: Instant, once: bool) {
        for queued in &mut self.queue {
            queued.first_sent = Some(at);
            (queued.repeated, queued.next_is_repeat) = (!once, true);
        }
    }

    /// All messages, oldest first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (ControlSeq, &Message)> {
        self.queue.iter().map(|queued| (queued.seq, &queued.message))
    }

    /// Messages unacknowledged.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is room for `more` messages.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.queue.len() + more <= MAX_UNACKNOWLEDGED
    }

    /// Appends `message`, or merges it into one of the same kind that has not left yet.
    pub(crate) fn push(&mut self, message: Message) -> ControlSeq {
        if self.policy.merges_ranges {
            for queued in self.queue.iter_mut().rev().take_while(|o| o.first_sent.is_none()) {
                if merge(&mut queued.message, &message) {
                    return queued.seq;
                }
            }
        }
        let seq = self.next;
        self.next = seq.next();
        // HAVE may be megabytes, so it leaves once, and then by its timer.
        let once = matches!(&message, Message::Have(have) if !have.last);
        let copies_left = self.policy.copies.filter(|_| !once).unwrap_or(1);
        self.has_copies = true;
        self.queue.push_back(UnackedMessage {
            seq,
            message,
            copies_left,
            first_sent: None,
            last_sent: None,
            repeated: false,
            repeated_twice: false,
            next_is_repeat: false,
            last_expiry: None,
        });
        seq
    }

    /// Handles an acknowledgement up to `seq`; `min_rtt` is the smallest round trip. Calls `each`
    /// for every message that it removes. `None` if it acknowledges nothing new, or more than was
    /// ever sent.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        seq: ControlSeq,
        min_rtt: Option<Duration>,
        mut each: impl FnMut(&Message),
    ) -> Option<AckResult> {
        if !seq.reaches(self.acknowledged.next()) || seq.reaches(self.next) {
            return None;
        }
        self.acknowledged = seq;
        if self.repeated.take_if(|repeated| seq.reaches(*repeated)).is_some() {
            self.repeat_bytes = self.repeat_bytes.saturating_mul(2);
        }
        self.last_advance = Some(now);
        self.min_rtt = min_rtt.unwrap_or_default();
        self.learn(now, min_rtt);
        let mut left = AckResult::default();
        let mut waited = false;
        while let Some(front) = self.queue.front() {
            if !seq.reaches(front.seq) {
                break;
            }
            let Some(queued) = self.queue.pop_front() else { break };
            // A message behind a repeated one has waited for it, so Karn's rule excludes both,
            // unless both leave in the same packets.
            waited = queued.repeated || (waited && !self.policy.carries_all());
            let took = queued.first_sent.map(|sent| now.since(sent));
            self.ack_delay = took.unwrap_or(self.ack_delay);
            left.rtt = took.filter(|_| !waited);
            each(&queued.message);
            left.done |= matches!(queued.message, Message::Done(_));
        }
        Some(left)
    }

    /// Learns from the acknowledgement of the oldest message, which no other delayed. If it comes
    /// sooner after a repetition than any answer to that could, it answers an older copy.
    fn learn(&mut self, now: Instant, min_rtt: Option<Duration>) {
        let Some(oldest) = self.queue.front().filter(|oldest| is_inner_have(&oldest.message))
        else {
            return;
        };
        match (oldest.last_expiry, min_rtt) {
            (None, _) => self.have_ack_delay = Duration::ZERO,
            (Some((over, before)), Some(min_rtt))
                if now.since(over) < min_rtt.max(self.have_ack_delay) =>
            {
                self.have_ack_delay =
                    self.have_ack_delay.max(now.since(before)).min(MAX_HAVE_ACK_DELAY);
            }
            _ => {}
        }
    }

    /// Whether a message has never left.
    pub(crate) fn has_new(&self) -> bool {
        self.queue.back().is_some_and(|o| o.first_sent.is_none())
    }

    /// Whether a message has copies left.
    pub(crate) fn has_copies_left(&self) -> bool {
        self.has_copies
    }

    /// When the control timer expires, if `timeout` runs from each message's last transmission.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        let timers = self.timers(timeout);
        self.queue.iter().filter_map(|queued| timers.deadline(queued)).min()
    }

    fn timers(&self, timeout: Duration) -> MessageTimers {
        MessageTimers {
            timeout,
            have_timeout: timeout.max(self.have_ack_delay),
            last_advance: self.last_advance.unwrap_or(Instant::EPOCH),
        }
    }

    /// The control timer expired: each message that left `timeout` ago leaves once more, but of
    /// the HAVE messages only the oldest: repeating all of them would fill a slow reverse path.
    /// Returns whether any did.
    pub(crate) fn expire(&mut self, now: Instant, timeout: Duration) -> bool {
        let timers = self.timers(timeout);
        let over = |queued: &UnackedMessage| timers.deadline(queued).is_some_and(|at| at <= now);
        let oldest = self.queue.front().filter(|oldest| is_inner_have(&oldest.message));
        if oldest.is_some_and(|oldest| over(oldest) && oldest.repeated) {
            self.repeat_bytes = MIN_REPEATED_BYTES;
        }
        let (mut any, mut before, top) = (false, 0, self.repeated);
        for queued in &mut self.queue {
            let part = is_inner_have(&queued.message);
            let turn =
                !part || top.map_or(before < self.repeat_bytes, |top| top.reaches(queued.seq));
            before += size(&queued.message);
            if !over(queued) {
                continue;
            }
            any = true;
            if !turn {
                queued.last_sent = Some(now);
                continue;
            }
            // All other messages wait for the one that is lost repeatedly.
            queued.copies_left = if queued.repeated { 2 } else { 1 };
            (queued.repeated, queued.repeated_twice) = (true, queued.repeated);
            queued.last_expiry = queued.last_sent.map(|before| (now, before));
            if part && self.repeated.is_none_or(|newest| queued.seq.reaches(newest)) {
                self.repeated = Some(queued.seq);
            }
        }
        self.has_copies |= any;
        any
    }

    /// The next transmission begins with the oldest message.
    pub(crate) fn start_over(&mut self) {
        self.resume_at = None;
    }

    /// Hands the messages of the next control packet to `take`, in order, until one does not fit.
    /// Returns whether some were left over; the next call continues with them.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        mut take: impl FnMut(ControlSeq, &Message) -> bool,
    ) -> bool {
        let all = self.policy.carries_all();
        let from = self.resume_at.take();
        let idle = !all && !self.has_copies;
        self.has_copies = true;
        let (mut has_copies, mut room) = (false, PIGGYBACK_BYTES);
        let apart = PIGGYBACK_INTERVAL.max(self.min_rtt + self.min_rtt / 4);
        for queued in &mut self.queue {
            let bytes = size(&queued.message);
            let along = idle && bytes <= room && queued.is_piggybacked(now, apart);
            room = room.saturating_sub(bytes);
            let rides = if all {
                from.is_none_or(|from| queued.seq.reaches(from))
            } else {
                queued.copies_left > 0 || along
            };
            if !rides {
                continue;
            }
            if !take(queued.seq, &queued.message) {
                if along {
                    break;
                }
                self.resume_at = Some(queued.seq).filter(|_| all);
                return true;
            }
            queued.copies_left = if all { 0 } else { queued.copies_left.saturating_sub(1) };
            queued.repeated |= queued.next_is_repeat;
            queued.first_sent.get_or_insert(now);
            queued.last_sent = Some(now);
            has_copies |= queued.copies_left > 0;
        }
        self.has_copies = has_copies;
        false
    }
}

/// The result of an acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct AckResult {
    /// Round trip of the newest message that the timer did not repeat.
    pub(crate) rtt: Option<Duration>,
    /// It acknowledged the DONE message.
    pub(crate) done: bool,
}

/// Whether it is one of the many HAVE messages before the last. A sender that waits for them waits
/// for nothing else, and they may be megabytes.
fn is_inner_have(message: &Message) -> bool {
    matches!(message, Message::Have(have) if !have.last)
}

/// Approximate bytes of a message in a control packet.
fn size(message: &Message) -> usize {
    match message {
        Message::Have(have) => 8 + have.bytes.len(),
        Message::Resend(resend) => 16 + 8 * resend.missing.len(),
        Message::Done(verdict) => 48 + verdict.reason.len(),
        Message::Go(_) | Message::Ok(_) => 32,
    }
}

/// Merges a range message into one that it continues. True if `into` has both now.
fn merge(into: &mut Message, new: &Message) -> bool {
    match (into, new) {
        (Message::Go(a), Message::Go(b)) => {
            let adjacent = a.first.0 + u64::from(a.count) == b.first.0;
            let fits = a.count + b.count <= MAX_UNACKNOWLEDGED as u32;
            let same = (a.packet_bytes, a.generation) == (b.packet_bytes, b.generation);
            if adjacent && fits && same {
                a.count += b.count;
            }
            adjacent && fits && same
        }
        (Message::Ok(a), Message::Ok(b)) => {
            let adjacent = a.first.0 + u64::from(a.count) == b.first.0;
            let fits = a.count + b.count <= MAX_UNACKNOWLEDGED as u32;
            if adjacent && fits {
                a.count += b.count;
                a.offer = b.offer;
                a.control_timer = b.control_timer;
            }
            adjacent && fits
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: ControlPolicy = ControlPolicy { copies: Some(3), merges_ranges: true };
    const PLAIN: ControlPolicy = ControlPolicy { copies: None, merges_ranges: false };
    use crate::wire::packet::{Go, Have};

    fn go(first: u64) -> Message {
        Message::Go(Go { first: BufferNumber(first), count: 1, packet_bytes: 1000, generation: 0 })
    }

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_message_is_in_three_packets_and_then_on_its_timer() {
        let mut fifo = ControlFifo::new(SEALED);
        fifo.push(go(1));
        let timeout = Duration::from_millis(50);
        for n in 0..3 {
            let mut seen = 0;
            fifo.transmit(ms(n), |_, _| {
                seen += 1;
                true
            });
            assert_eq!(seen, 1);
        }
        assert!(!fifo.has_copies_left());
        assert_eq!(fifo.deadline(timeout), Some(ms(52)));
        assert!(!fifo.expire(ms(51), timeout));
        assert!(fifo.expire(ms(52), timeout) && fifo.has_copies_left());
    }

    /// No later message is acknowledged while one is missing, however well the rest arrives.
    #[test]
    fn a_message_repeated_twice_is_piggybacked() {
        let mut fifo = ControlFifo::new(SEALED);
        let timeout = Duration::from_millis(50);
        (1..10).for_each(|first| _ = fifo.push(go(first * 10)));
        let said = |fifo: &mut ControlFifo, at| {
            let mut seqs = Vec::new();
            let left = fifo.transmit(ms(at), |seq, _| {
                seqs.push(seq.0);
                seqs.len() <= 9
            });
            assert!(!left);
            seqs
        };
        (0..3).for_each(|n| _ = said(&mut fifo, n));
        assert_eq!(said(&mut fifo, 10), []);
        assert!(fifo.expire(ms(60), timeout));
        assert_eq!(said(&mut fifo, 60).len(), 9);
        assert_eq!(said(&mut fifo, 70), [], "one repetition may be late");
        assert!(fifo.expire(ms(120), timeout));
        (0..2).for_each(|n| assert_eq!(said(&mut fifo, 120 + n).len(), 9));
        assert_eq!(said(&mut fifo, 999), []);
        assert_eq!(said(&mut fifo, 1000), [1, 2, 3], "the oldest, in a report");
        assert_eq!(said(&mut fifo, 1249), [], "each of which is answered");
        assert!(!fifo.has_copies_left(), "and nothing leaves for their sake");
        let mut asked = 0;
        let full = fifo.transmit(ms(1250), |_, _| {
            asked += 1;
            false
        });
        assert_eq!((full, asked), (false, 1), "a packet without room is none the worse for it");
        assert_eq!(said(&mut fifo, 1251), [1, 2, 3]);
        fifo.acknowledge(ms(1400), ControlSeq(1), Some(Duration::from_secs(1)), |_| ());
        assert_eq!(said(&mut fifo, 2500), [4], "which did not ride before");
        assert_eq!(said(&mut fifo, 2501), [2, 3], "a round trip and a quarter");
    }

    /// A reverse path that takes longer for all messages than the timer: acknowledgements advance
    /// with the first transmissions, and most messages are never repeated.
    #[test]
    fn many_messages_are_not_all_repeated_at_once() {
        let mut fifo = ControlFifo::new(SEALED);
        let have = Message::Have(Have { bytes: vec![0; 512], last: false });
        (0..40).for_each(|_| _ = fifo.push(have.clone()));
        let timeout = Duration::from_millis(50);
        let said = |fifo: &mut ControlFifo, at| {
            let mut seqs = Vec::new();
            while fifo.has_copies_left() {
                fifo.transmit(ms(at), |seq, _| {
                    seqs.push(seq.0);
                    true
                });
            }
            seqs
        };
        assert_eq!(said(&mut fifo, 0).len(), 40);
        assert!(fifo.expire(ms(50), timeout));
        assert_eq!(said(&mut fifo, 50), [1, 2, 3, 4, 5, 6]);
        assert_eq!(fifo.deadline(timeout), Some(ms(100)));
        fifo.acknowledge(ms(60), ControlSeq(4), None, |_| {});
        assert!(!fifo.expire(ms(100), timeout), "it moves on");
        assert!(fifo.expire(ms(110), timeout), "of what was repeated some is missing");
        assert_eq!(said(&mut fifo, 110), [5, 6, 5, 6]);
        fifo.acknowledge(ms(120), ControlSeq(6), None, |_| {});
        assert!(fifo.expire(ms(170), timeout), "all of it was acknowledged");
        assert_eq!(said(&mut fifo, 170), (7..=18).collect::<Vec<_>>());
        let left = fifo.acknowledge(ms(180), ControlSeq(18), None, |_| {}).unwrap();
        assert_eq!(left.rtt, None);
        let left = fifo.acknowledge(ms(190), ControlSeq(20), None, |_| {}).unwrap();
        assert_eq!(left.rtt, Some(Duration::from_millis(190)), "it was said once");
    }

    /// A reverse path with a growing queue: each repetition is followed by the answer to an older
    /// copy, until the timer has adapted.
    #[test]
    fn an_ack_too_soon_after_a_repetition_lengthens_the_timer() {
        let (timeout, min_rtt) = (Duration::from_millis(50), Some(Duration::from_millis(10)));
        let have = Message::Have(Have { bytes: vec![0; 512], last: false });
        let mut fifo = ControlFifo::new(SEALED);
        (0..9).for_each(|_| _ = fifo.push(have.clone()));
        fifo.transmit(ms(0), |_, _| true);
        let mut again = |at, seq| {
            assert!(fifo.expire(ms(at), timeout), "{at}");
            while fifo.has_copies_left() {
                fifo.transmit(ms(at), |_, _| true);
            }
            let left = |fifo: &mut ControlFifo, after| {
                fifo.acknowledge(ms(at + after), ControlSeq(seq), min_rtt, |_| {}).unwrap();
                fifo.deadline(timeout)
            };
            (left(&mut fifo.clone(), 10), left(&mut fifo, 9))
        };
        assert_eq!(again(50, 1), (Some(ms(110)), Some(ms(59 + 59))), "an answer, and none");
        assert_eq!(again(118, 2), (Some(ms(128 + 78)), Some(ms(127 + 77))), "it grows");
        fifo.push(go(1));
        fifo.transmit(ms(130), |_, _| true);
        (0..3).for_each(|_| _ = fifo.transmit(ms(130), |_, _| true));
        assert_eq!(fifo.deadline(timeout), Some(ms(180)), "but not for others");
        fifo.acknowledge(ms(140), ControlSeq(8), min_rtt, |_| {}).unwrap();
        fifo.acknowledge(ms(150), ControlSeq(9), min_rtt, |_| {}).unwrap();
        assert_eq!(
            fifo.have_ack_delay,
            Duration::ZERO,
            "what was said once tells how long it takes"
        );
    }

    #[test]
    fn consecutive_grants_that_have_not_left_become_one() {
        let mut fifo = ControlFifo::new(SEALED);
        assert_eq!(fifo.push(go(1)), fifo.push(go(2)));
        fifo.transmit(ms(0), |_, _| true);
        assert_eq!(fifo.push(go(3)), ControlSeq(2));
    }

    #[test]
    fn on_rfc998_every_packet_carries_all_messages() {
        let mut fifo = ControlFifo::new(PLAIN);
        fifo.push(go(1));
        fifo.transmit(ms(0), |_, _| true);
        fifo.push(go(2));
        let mut seen = Vec::new();
        fifo.transmit(ms(1), |seq, _| {
            seen.push(seq.0);
            true
        });
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn a_message_behind_a_repeated_one_measures_no_round_trip() {
        let timeout = Duration::from_millis(50);
        for (policy, rtt) in [(SEALED, None), (PLAIN, Some(Duration::from_millis(10)))] {
            let mut fifo = ControlFifo::new(policy);
            fifo.push(go(1));
            (0..3).for_each(|n| _ = fifo.transmit(ms(n), |_, _| true));
            assert!(fifo.expire(ms(60), timeout));
            fifo.push(go(9));
            fifo.transmit(ms(60), |_, _| true);
            let left = fifo.acknowledge(ms(70), ControlSeq(2), None, |_| {}).unwrap();
            assert_eq!(left.rtt, rtt, "{policy:?}");
        }
    }

    #[test]
    fn acknowledgements_of_unsent_messages_are_ignored() {
        let mut fifo = ControlFifo::new(SEALED);
        fifo.push(go(1));
        fifo.transmit(ms(0), |_, _| true);
        assert!(fifo.acknowledge(ms(1), ControlSeq(2), None, |_| {}).is_none());
        assert!(fifo.acknowledge(ms(1), ControlSeq(0), None, |_| {}).is_none());
        let left = fifo.acknowledge(ms(7), ControlSeq(1), None, |_| {}).unwrap();
        assert_eq!(left.rtt, Some(Duration::from_millis(7)));
        assert!(fifo.is_empty());
    }
}
