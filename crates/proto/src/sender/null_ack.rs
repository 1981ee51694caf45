//! NULL-ACK: acknowledgements without data, END, changed burst values, and that nothing is left to
//! send (`docs/protocol.md §6.4, §7.1`).

use std::time::Duration;

use super::control_window::Inbox;
use super::{Phase, Sender};
use crate::codec::Link;
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{Burst, End, NullAck};

/// How often an adaptive sender on `rfc998` announces its first burst values before any data: with
/// the negotiated ones, the data timers of every buffer would expire at once.
const ANNOUNCEMENTS: u8 = 3;
/// Packets for which new burst values must last to be worth a NULL-ACK.
const WORTH_PACKETS: u64 = 8;
/// Changes up to this part of the value are not announced.
const SLIGHT: u64 = 32;
/// A control message is answered with a NULL-ACK if no data would carry the answer this soon.
const ACK_DELAY: Duration = Duration::from_millis(2);
/// How often a verdict is acknowledged, at least and at most (`docs/protocol.md §7.3`).
const LEAVE_TIMES: (u8, u8) = (3, 16);
/// These repetitions are closer than others by this factor: the program ends when they have left.
const LEAVE_PART: u32 = 4;
/// Probability, in millionths, that all acknowledgements of the verdict are lost.
const ALL_LOST_PPM: u64 = 10;

/// Pending acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Duties {
    pub(super) inbox: Inbox,
    /// When the first control message came that is not acknowledged yet.
    pub(super) owed: Option<Instant>,
    /// When to repeat that nothing is left to send, and how often.
    pub(super) dry: Option<(Instant, u8)>,
}

/// The announced burst values; on `rfc998` they are those in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    burst: Burst,
    at: Instant,
    /// Remaining announcements of the first values.
    left: u8,
    /// A control packet has come: before the first GO no change is announced.
    open: bool,
}

impl Announced {
    /// The receiver knows `burst`. If `repeat`, the sender's own first values are announced
    /// [`ANNOUNCEMENTS`] times.
    pub(super) fn new(now: Instant, burst: Burst, again: bool) -> Self {
        Self { burst, at: now, left: if again { ANNOUNCEMENTS } else { 0 }, open: false }
    }

    pub(super) fn burst(&self) -> Burst {
        self.burst
    }

    /// A control packet came.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    fn say(&mut self, now: Instant, burst: Burst) {
        *self = Self { burst, at: now, left: self.left.saturating_sub(1), ..*self };
    }

    /// When to announce `burst`, if it differs from the announced values: by a tenth, and a round
    /// trip after the last announcement.
    fn differs_at(&self, burst: Burst, rtt: Duration) -> Option<Instant> {
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        if self.left > 0 {
            return Some(self.at);
        }
        (old.abs_diff(new) > old / 10).then_some(self.at + rtt)
    }

    /// The same where the announced values are in force: sooner, so that the rate law need not
    /// wait, but once per number of packets, since on some networks every packet costs the same.
    /// Values slower by a tenth, and those in the receiver's `offers`, are announced at once.
    fn holds_until(&self, burst: Burst, offers: Burst, rtt: Duration) -> Option<Instant> {
        let same = burst == self.burst;
        if !self.open || same && matches!(self.left, 0 | ANNOUNCEMENTS) {
            return None;
        }
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        let looser = self.burst != self.burst.stricter(offers);
        if self.left > 0 || looser || new > old + old / 10 {
            return Some(self.at);
        }
        if old.abs_diff(new) <= old / SLIGHT {
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

/// END, repeated until it is acknowledged (`docs/protocol.md §7.1`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    end: Option<End>,
    heard: bool,
    pub(super) due: Option<Instant>,
    /// When this end leaves: the verdict and all before it has arrived, and is acknowledged by
    /// then.
    leaves: Option<Instant>,
}

impl Ending {
    /// Sets the client's END. False if it was set before.
    pub(super) fn say(&mut self, now: Instant, end: End) -> bool {
        let new = self.end.is_none();
        if new {
            self.end = Some(end);
            self.due = Some(now).filter(|_| !self.heard);
        }
        new
    }

    /// The receiver acknowledged END. An END that was not sent yet cannot be acknowledged.
    pub(super) fn confirm(&mut self) {
        if self.end.is_some() {
            self.settle();
        }
    }

    /// END is acknowledged: it leaves no more.
    pub(super) fn settle(&mut self) {
        self.heard = true;
        self.due = None;
    }
}

impl Sender {
    /// Nothing is left to send: announces that to the receiver (§6.4).
    pub(super) fn run_dry(&mut self, now: Instant) {
        let supplied = self.schedule.next_supply() > BufferNumber::FIRST;
        let sent = supplied && self.schedule.outstanding() > 0;
        if self.duties.dry.is_none() && sent && self.phase == Phase::Sending {
            self.duties.dry = self.negotiated.rules.dry_repeats.map(|repeats| (now, repeats + 1));
        }
    }

    /// When a sender with the verdict leaves. With control messages missing before the verdict it
    /// dallies. Otherwise it acknowledges the verdict so often that hardly ever all of them are
    /// lost, and leaves then.
    pub(super) fn leaves_at(&mut self, now: Instant) -> Instant {
        if let Some(at) = self.ending.leaves {
            return at;
        }
        if self.phase == Phase::Sending || self.duties.inbox.has_gaps() {
            return now + self.dally();
        }
        let (lost, sent) = (self.stats.data_packets_lost, self.stats.data_packets_sent.max(1));
        let mut all_lost = 1_000_000;
        let mut times = 0;
        while times < LEAVE_TIMES.0 || (all_lost > ALL_LOST_PPM && times < LEAVE_TIMES.1) {
            all_lost = all_lost * lost.min(sent) / sent;
            times += 1;
        }
        self.duties.dry = Some((now, times));
        // The last one leaves after the others, and this host may be a little late.
        let apart = self.rtt.beat() / LEAVE_PART;
        *self.ending.leaves.insert(now + apart * u32::from(times - 1) + apart / 2)
    }

    /// When a NULL-ACK is due if no data leave before.
    pub(super) fn null_ack_at(&self, now: Instant) -> Option<Instant> {
        if !self.may_acknowledge() {
            return None;
        }
        let data_soon = self.schedule.may_be_due() && !self.stands_still();
        let pacing = self.pacing();
        let wait = if data_soon {
            ACK_DELAY.max(pacing.burst.interval.min(ACK_DELAY * 8))
        } else {
            Duration::ZERO
        };
        let changed = self.burst_due(now);
        // The repetitions of an unvalidated receiver make room for data, which acknowledge too.
        let owed = self.duties.owed.filter(|_| !(data_soon && self.is_in_doubt()));
        earliest([
            owed.map(|at| at + wait),
            self.duties.dry.filter(|(_, left)| *left > 0).map(|(at, _)| at),
            self.ending.due,
            changed,
            self.pause_due(),
            self.telling_due().filter(|_| self.phase == Phase::Sending),
            self.way_back.due().filter(|_| self.phase == Phase::Sending),
        ])
    }

    /// When changed burst values are to be announced.
    fn burst_due(&self, now: Instant) -> Option<Instant> {
        let burst = self.asked().burst;
        let rtt = self.rtt.smoothed();
        if self.is_in_doubt() {
            return None;
        }
        if self.to_the_letter {
            let rtt = rtt.unwrap_or_default();
            if self.phase != Phase::Sending {
                return None;
            }
            return self.announced.holds_until(burst, self.offers, rtt).map(|at| at.max(now));
        }
        let rtt = rtt.unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(10));
        let due = self.is_told().then(|| self.announced.differs_at(burst, rtt)).flatten();
        due.filter(|at| *at <= now)
    }

    pub(super) fn put_null_ack(&mut self, now: Instant, link: &mut Link, out: &mut Vec<u8>) {
        let start = out.len();
        // Before the receiver's first control packet, and while its address is not validated, the
        // negotiated values hold.
        let agreed = self.is_in_doubt() || self.to_the_letter && !self.announced.open;
        let burst = if agreed { self.announced.burst } else { self.asked().burst };
        let idle = !self.schedule.has_again()
            && self.schedule.due().is_none()
            && !self.schedule.has_repairs();
        let next_supply = self.schedule.next_supply();
        let end = self.ending.end.filter(|_| !self.ending.heard);
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: self.duties.inbox.high(),
            burst,
            sent_through: (idle && next_supply.0 > 1).then(|| self.schedule.sent_through()),
            end,
            packet_bytes: self.told_packet_bytes(),
            limit: self.stats.limit,
            back_millis: self.way_back.say(now),
            paused: self.stands_still(),
        };
        let number = link.put_null_ack(out, &null_ack);
        self.on_other_sent(now, number, out.len() - start);
        self.duties.owed = None;
        self.on_size_told(now);
        self.announced.say(now, burst);
        self.pause.say(now + self.rtt.beat());
        if let Some((at, left)) = self.duties.dry {
            let part = if self.ending.leaves.is_some() { LEAVE_PART } else { 1 };
            let next = at.max(now) + self.rtt.beat() / part;
            self.duties.dry = Some((next, left.saturating_sub(1)));
        }
        if end.is_some() {
            self.ending.due = Some(now + self.rtt.timeout());
            self.rtt.back_off();
        }
    }
}
