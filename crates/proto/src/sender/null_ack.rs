//! NULL-ACK: acknowledgements without data, END, changed burst values, and that nothing is left to
//! send (`docs/protocol §6.4, §7.1`).

use std::time::Duration;

use super::control_window::ControlWindow;
use super::{Sender, SenderPhase};
use crate::codec::Codec;
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{Burst, End, NullAck};

/// How often an adaptive sender on `rfc998` announces its first burst values before any data: with
/// the negotiated ones, the data timers of every buffer would expire at once.
const ANNOUNCEMENTS: u8 = 3;
/// Packets for which new burst values must last to be worth a NULL-ACK.
const WORTH_PACKETS: u64 = 8;
/// Changes up to this part of the value are not announced.
const SLIGHT_CHANGE_PART: u64 = 32;
/// A control message is answered with a NULL-ACK if no data would carry the answer this soon.
const ACK_DELAY: Duration = Duration::from_millis(2);
/// How often a verdict is acknowledged, at least and at most (`docs/protocol §7.3`).
const LEAVE_TIMES: (u8, u8) = (3, 16);
/// These repetitions are closer than others by this factor: the program ends when they have left.
const LEAVE_PART: u32 = 4;
/// Probability, in millionths, that all acknowledgements of the verdict are lost.
const ALL_LOST_PPM: u64 = 10;

/// Pending acknowledgements.
#[derive(Debug, Default)]
pub(super) struct AckState {
    pub(super) received: ControlWindow,
    /// When the first control message came that is not acknowledged yet.
    pub(super) owed: Option<Instant>,
    /// When to repeat that nothing is left to send, and how often.
    pub(super) drained: Option<(Instant, u8)>,
}

/// The announced burst values; on `rfc998` they are those in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedBurst {
    burst: Burst,
    at: Instant,
    /// Remaining announcements of the first values.
    left: u8,
    /// A control packet has come: before the first GO no change is announced.
    open: bool,
}

impl AnnouncedBurst {
    /// The receiver knows `burst`. If `repeat`, the sender's own first values are announced
    /// [`ANNOUNCEMENTS`] times.
    pub(super) fn new(now: Instant, burst: Burst, repeat: bool) -> Self {
        Self { burst, at: now, left: if repeat { ANNOUNCEMENTS } else { 0 }, open: false }
    }

    pub(super) fn burst(&self) -> Burst {
        self.burst
    }

    /// A control packet came.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    fn announce(&mut self, now: Instant, burst: Burst) {
        *self = Self { burst, at: now, left: self.left.saturating_sub(1), ..*self };
    }

    /// When to announce `burst`, if it differs from the announced values: by a tenth, and a round
    /// trip after the last announcement.
    fn announce_at(&self, burst: Burst, rtt: Duration) -> Option<Instant> {
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        if self.left > 0 {
            return Some(self.at);
        }
        (old.abs_diff(new) > old / 10).then_some(self.at + rtt)
    }

    /// The same where the announced values are in force: sooner, so that the rate law need not
    /// wait, but once per number of packets, since on some networks every packet costs the same.
    /// Values slower by a tenth, and those in the receiver's `offers`, are announced at once.
    fn announce_in_force_at(&self, burst: Burst, offers: Burst, rtt: Duration) -> Option<Instant> {
        let same = burst == self.burst;
        if !self.open || same && matches!(self.left, 0 | ANNOUNCEMENTS) {
            return None;
        }
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        let looser = self.burst != self.burst.stricter(offers);
        if self.left > 0 || looser || new > old + old / 10 {
            return Some(self.at);
        }
        if old.abs_diff(new) <= old / SLIGHT_CHANGE_PART {
            return None;
        }
        let worth = Duration::from_nanos(new.saturating_mul(WORTH_PACKETS));
        Some(self.at + if new > old { worth } else { worth.max(rtt / 4) })
    }
}

/// Nanoseconds per packet.
fn per_packet(burst: Burst) -> u64 {
    burst.interval.as_nanos() as u64 / u64::from(burst.packets.max(1))
}

/// END, repeated until it is acknowledged (`docs/protocol §7.1`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndOfTransfer {
    end: Option<End>,
    acknowledged: bool,
    pub(super) due: Option<Instant>,
    /// When this end leaves: the verdict and all before it has arrived, and is acknowledged by
    /// then.
    leaves: Option<Instant>,
}

impl EndOfTransfer {
    /// Sets the client's END. False if it was set before.
    pub(super) fn announce(&mut self, now: Instant, end: End) -> bool {
        let new = self.end.is_none();
        if new {
            self.end = Some(end);
            self.due = Some(now).filter(|_| !self.acknowledged);
        }
        new
    }

    /// The receiver acknowledged END. An END that was not sent yet cannot be acknowledged.
    pub(super) fn confirm(&mut self) {
        if self.end.is_some() {
            self.on_acknowledged();
        }
    }

    /// END is acknowledged: it leaves no more.
    pub(super) fn on_acknowledged(&mut self) {
        self.acknowledged = true;
        self.due = None;
    }
}

impl Sender {
    /// Nothing is left to send: announces that to the receiver (§6.4).
    pub(super) fn announce_drained(&mut self, now: Instant) {
        let supplied = self.scheduler.next_supply() > BufferNumber::FIRST;
        let sent = supplied && self.scheduler.outstanding() > 0;
        if self.acks.drained.is_none() && sent && self.phase == SenderPhase::Sending {
            self.acks.drained =
                self.negotiated.profile.drained_repeats.map(|repeats| (now, repeats + 1));
        }
    }

    /// When a sender with the verdict leaves. With control messages missing before the verdict it
    /// dallies. Otherwise it acknowledges the verdict so often that hardly ever all of them are
    /// lost, and leaves then.
    pub(super) fn leaves_at(&mut self, now: Instant) -> Instant {
        if let Some(at) = self.end_of_transfer.leaves {
            return at;
        }
        if self.phase == SenderPhase::Sending || self.acks.received.has_gaps() {
            return now + self.dally();
        }
        let (lost, sent) =
            (self.records.stats.data_packets_lost, self.records.stats.data_packets_sent.max(1));
        let mut all_lost = 1_000_000;
        let mut times = 0;
        while times < LEAVE_TIMES.0 || (all_lost > ALL_LOST_PPM && times < LEAVE_TIMES.1) {
            all_lost = all_lost * lost.min(sent) / sent;
            times += 1;
        }
        self.acks.drained = Some((now, times));
        // The last one leaves after the others, and this host may be a little late.
        let apart = self.rtt.report_interval() / LEAVE_PART;
        *self.end_of_transfer.leaves.insert(now + apart * u32::from(times - 1) + apart / 2)
    }

    /// When a NULL-ACK is due if no data leave before.
    pub(super) fn null_ack_at(&self, now: Instant) -> Option<Instant> {
        if !self.may_acknowledge() {
            return None;
        }
        let data_soon = self.scheduler.may_be_due() && !self.is_fully_paused();
        let pacing = self.pacing();
        let wait = if data_soon {
            ACK_DELAY.max(pacing.burst.interval.min(ACK_DELAY * 8))
        } else {
            Duration::ZERO
        };
        let changed = self.burst_due(now);
        // The repetitions of an unvalidated receiver make room for data, which acknowledge too.
        let owed = self.acks.owed.filter(|_| !(data_soon && self.coins.is_some()));
        earliest([
            owed.map(|at| at + wait),
            self.acks.drained.filter(|(_, left)| *left > 0).map(|(at, _)| at),
            self.end_of_transfer.due,
            changed,
            self.pause_due(),
            self.size_announcement_due().filter(|_| self.phase == SenderPhase::Sending),
            self.reverse_queue.due().filter(|_| self.phase == SenderPhase::Sending),
        ])
    }

    /// When changed burst values are to be announced.
    fn burst_due(&self, now: Instant) -> Option<Instant> {
        let burst = self.asked().burst;
        let rtt = self.rtt.smoothed();
        if self.coins.is_some() {
            return None;
        }
        if self.strict_bursts {
            let rtt = rtt.unwrap_or_default();
            if self.phase != SenderPhase::Sending {
                return None;
            }
            return self
                .announced
                .announce_in_force_at(burst, self.offers, rtt)
                .map(|at| at.max(now));
        }
        let rtt = rtt.unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(10));
        let due = self.has_feedback().then(|| self.announced.announce_at(burst, rtt)).flatten();
        due.filter(|at| *at <= now)
    }

    pub(super) fn put_null_ack(&mut self, now: Instant, codec: &mut Codec, out: &mut Vec<u8>) {
        let start = out.len();
        // Before the receiver's first control packet, and while its address is not validated, the
        // negotiated values hold.
        let agreed = self.coins.is_some() || self.strict_bursts && !self.announced.open;
        let burst = if agreed { self.announced.burst } else { self.asked().burst };
        let idle = !self.scheduler.has_retransmits()
            && self.scheduler.due().is_none()
            && !self.scheduler.has_repairs();
        let next_supply = self.scheduler.next_supply();
        let end = self.end_of_transfer.end.filter(|_| !self.end_of_transfer.acknowledged);
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: self.acks.received.high(),
            burst,
            sent_through: (idle && next_supply.0 > 1).then(|| self.scheduler.sent_through()),
            end,
            packet_bytes: self.announced_packet_bytes(),
            limit: self.records.stats.limit,
            back_millis: self.reverse_queue.announce(now),
            paused: self.is_fully_paused(),
        };
        let number = codec.put_null_ack(out, &null_ack);
        self.on_other_sent(now, number, out.len() - start);
        self.acks.owed = None;
        self.on_size_announced(now);
        self.announced.announce(now, burst);
        self.pause.on_announced(now + self.rtt.report_interval());
        if let Some((at, left)) = self.acks.drained {
            let part = if self.end_of_transfer.leaves.is_some() { LEAVE_PART } else { 1 };
            let next = at.max(now) + self.rtt.report_interval() / part;
            self.acks.drained = Some((next, left.saturating_sub(1)));
        }
        if end.is_some() {
            self.end_of_transfer.due = Some(now + self.rtt.timeout());
            self.rtt.back_off();
        }
    }
}
