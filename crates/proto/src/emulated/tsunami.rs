//! Tsunami: a delay between blocks that the receiver's error rate moves, a list of requests every
//! 350 ms, and a restart when that list is too long. Our packets are its blocks.
//!
//! Sources: the review; Tsunami's own (Indiana University 2002: server/protocol.c,
//! client/protocol.c).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::micros;
use super::nak_reports::HighestArrival;
use crate::loss_detection::{
    Arrival, LossDetector, MissingRanges, REQUESTS_PER_POLL, ResendRequest, TimingInfo,
};
use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::{BufferNumber, Burst, ControlSeq, Rate};
use crate::wire::packet::IndexRange;

/// "If the user does not set sending rate however, it starts out at 1000Mbs" (review §3.2).
const TARGET: Rate = Rate::from_bits_per_second(1_000_000_000);
/// "a default tolerated loss rate of 7.9%" (review §3.2), in thousandths of a per cent as its
/// source has it.
pub(super) const TOLERATED: f64 = 7_900.0;
/// All of it, in the same.
const ALL: f64 = 100_000.0;
/// `DEFAULT_SLOWER_NUM` / `DEFAULT_SLOWER_DEN` and `DEFAULT_FASTER_NUM` / `DEFAULT_FASTER_DEN`.
const SLOWER: f64 = 25.0 / 24.0;
const FASTER: f64 = 5.0 / 6.0;
/// The delay is never longer (server: `min(ipd_current, 10000)`).
const LONGEST_US: f64 = 10_000.0;
/// The share of the error rate that is history (client: `DEFAULT_HISTORY` 25 %).
const HISTORY: f64 = 0.25;
/// The client's factor for the share of requests: `500*100`.
const REQUESTS_WEIGH: f64 = 50_000.0;
/// "the combination of the number of packets received (a multiple of 50) and a timed interval
/// (>350ms) since the last update" (review §3.2).
pub(super) const EVERY_PACKETS: u64 = 50;
pub(super) const EVERY: Duration = Duration::from_millis(350);
/// `MAX_RETRANSMISSION_BUFFER`: with so many blocks on the list the client asks for a restart.
pub(super) const MAX_REQUESTS: u64 = 2048;

/// The rate law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tsunami {
    target: Rate,
    packet: u32,
    /// The delay, and the one that makes the target rate.
    delay_us: f64,
    error: f64,
    requests: u64,
    /// The last update, and what was delivered by then.
    updated: Option<(Instant, u64)>,
}

impl Tsunami {
    pub(super) fn new(target: Option<Rate>, packet: u32) -> Self {
        let target = target.unwrap_or(TARGET);
        let mut law =
            Self { target, packet, delay_us: 0.0, error: 0.0, requests: 0, updated: None };
        law.delay_us = law.target_us();
        law
    }

    /// "rate control is actually implemented per block rather than per packet" (review §3.2).
    fn target_us(&self) -> f64 {
        self.target.time_for(u64::from(self.packet)).as_nanos() as f64 / 1000.0
    }

    /// A REQUEST_ERROR_RATE as the receiver would have made it, from the reported arrivals and the
    /// received requests.
    pub(super) fn on_error_rate(&mut self, requests: u64, arrived: u64) {
        let share = requests as f64 / (1 + requests + arrived) as f64;
        self.error = HISTORY * self.error + (1.0 - HISTORY) * REQUESTS_WEIGH * share;
        // "If the error rate is greater than the maximum tolerated rate, the sending rate is
        // decreased; if it is less, the sending rate is increased" (review §3.2); by how much:
        // ttp_accept_retransmit() in server/protocol.c.
        self.delay_us *= match self.error > TOLERATED {
            true => 1.0 + (SLOWER - 1.0) * (1.0 + self.error - TOLERATED) / (ALL - TOLERATED),
            false => FASTER,
        };
        self.delay_us = self.delay_us.min(LONGEST_US).max(self.target_us());
    }
}

impl RateControl for Tsunami {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let arrived = sample.delivered_packets;
        let (at, before) = *self.updated.get_or_insert((now, arrived));
        if now.since(at) > EVERY && arrived - before >= EVERY_PACKETS {
            self.updated = Some((now, arrived));
            let requests = std::mem::take(&mut self.requests);
            self.on_error_rate(requests, arrived - before);
        }
    }

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    fn on_packet_bytes(&mut self, bytes: u32) {
        let before = self.target_us();
        self.packet = bytes.max(1);
        self.delay_us *= self.target_us() / before.max(f64::MIN_POSITIVE);
    }

    fn pacing(&self) -> Pacing {
        Pacing::of(Burst { packets: 1, interval: micros(self.delay_us) })
    }

    fn belief(&self) -> Belief {
        Belief { phase: "tsunami", ..Belief::default() }
    }

    fn on_resend(&mut self, _now: Instant, packets: u64) {
        self.requests += packets;
    }
}

/// The loss detector: a list of skipped blocks, requested every 350 ms while they are missing.
#[derive(Debug, Default)]
pub(super) struct Requests {
    top: HighestArrival,
    /// Blocks arrived, again or not, and when the last list was sent.
    blocks: u64,
    listed: Option<Instant>,
    /// Skipped and perhaps missing, oldest first.
    missing: VecDeque<ResendRequest>,
    /// Granted and not complete: what is missing before all others is in the first.
    open: BTreeSet<BufferNumber>,
    /// A list is due, and since when; or what did not fit into it.
    due: Option<Instant>,
    left: VecDeque<ResendRequest>,
    restarts: u64,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// "The TSUNAMI client reports missing packets after the requirements for numbers of packets
    /// received (a multiple of 50) and amount of time since the last report (more than 350ms) have
    /// been satisfied" (review §6).
    fn on_block(&mut self, now: Instant) {
        self.blocks += 1;
        let listed = *self.listed.get_or_insert(now);
        if self.blocks.is_multiple_of(EVERY_PACKETS) && now.since(listed) > EVERY {
            self.listed = Some(now);
            self.due.get_or_insert(now);
        }
    }

    /// ttp_repeat_retransmit() in client/protocol.c: what is here by now leaves the list.
    fn list(&mut self, holes: &dyn MissingRanges, timing: &TimingInfo) {
        let mut blocks = 0;
        let mut missing = VecDeque::new();
        for ask in std::mem::take(&mut self.missing) {
            holes.holes(ask.buffer, ask.range, &mut |range| {
                // Where a buffer ends is not known before its last packet.
                let end = range.end.min(ask.range.end);
                blocks += u64::from(end.saturating_sub(range.start));
                missing.push_back(ResendRequest { buffer: ask.buffer, range });
            });
        }
        if blocks < MAX_REQUESTS {
            self.left = missing.clone();
            self.missing = missing;
            return;
        }
        // REQUEST_RESTART: everything from the first that is missing on, here or not.
        self.restarts += 1;
        let place = |ask: &ResendRequest| (ask.buffer, ask.range.start);
        let first = missing.iter().map(place).min().unwrap_or_default();
        let (next, index) = self.top.next();
        for buffer in self.open.range(first.0..=next.max(first.0)) {
            let start = if *buffer == first.0 { first.1 } else { 0 };
            let end = if *buffer == next { index } else { timing.packets_per_buffer };
            if start < end {
                self.left
                    .push_back(ResendRequest { buffer: *buffer, range: IndexRange { start, end } });
            }
        }
        self.missing = missing;
    }
}

impl LossDetector for Requests {
    fn on_granted(&mut self, _: Instant, buffer: BufferNumber, _: ControlSeq) {
        self.open.insert(buffer);
    }

    fn on_requested(&mut self, _: Instant, _: ResendRequest, _: ControlSeq) {}

    fn on_acknowledged(&mut self, _: Instant, _: ControlSeq, _: &TimingInfo) {}

    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo) {
        let missing = &mut self.missing;
        let most = timing.packets_per_buffer;
        self.top.pass(arrival, |ask| {
            let end = ask.range.end.min(most);
            missing.push_back(ResendRequest { range: IndexRange { end, ..ask.range }, ..ask });
        });
        self.on_block(now);
    }

    fn on_duplicate(&mut self, now: Instant) {
        self.on_block(now);
    }

    fn on_drained(&mut self, _: Instant, _: ControlSeq, _: BufferNumber) {}

    fn on_renewed(&mut self, buffer: BufferNumber) {
        self.top.renew(buffer);
        self.open.insert(buffer);
        self.missing.retain(|ask| ask.buffer != buffer);
        self.left.retain(|ask| ask.buffer != buffer);
    }

    fn on_complete(&mut self, buffer: BufferNumber) {
        self.open.remove(&buffer);
    }

    fn poll(
        &mut self,
        _: Instant,
        holes: &dyn MissingRanges,
        timing: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    ) {
        if self.left.is_empty() && self.due.take().is_some() {
            self.list(holes, timing);
        }
        while asks.len() < REQUESTS_PER_POLL
            && let Some(ask) = self.left.pop_front()
        {
            asks.push(ask);
        }
        if self.left.is_empty() {
            self.due = None;
        } else {
            self.due.get_or_insert(self.listed.unwrap_or_default());
        }
    }

    fn next_poll(&self) -> Option<Instant> {
        self.due
    }

    fn expiries(&self) -> u64 {
        self.restarts
    }
}
