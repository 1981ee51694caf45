//! BBR, version 1: sends at the greatest delivery rate of ten round trips, with at most twice the
//! product of that rate and the smallest round trip of ten seconds in flight.
//!
//! Source: N. Cardwell et al., draft-cardwell-iccrg-bbr-congestion-control-00 (2017; "draft"), and
//! what Linux's `net/ipv4/tcp_bbr.c` of version 1 has beyond it ("Linux"). Left out of Linux's: its
//! guess at token buckets (`lt_bw`), and what it adds for acknowledgements that come in clumps.
//! Arrivals that are not reported yet count as in flight, so an eighth of a product more may be.

use std::cmp::Ordering;
use std::time::Duration;

use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::{Instant, nanos};
use crate::units::{Burst, Rate};

/// BBRHighGain, 2/ln(2), in thousandths (draft §4.1.1.1).
const HIGH_GAIN: u64 = 2885;
/// The inverse of it (draft §4.3.3).
const DRAIN_GAIN: u64 = 347;
/// The pacing gains of ProbeBW, each for one smallest round trip (draft §4.3.4.3).
const CYCLE: [u64; 8] = [1250, 750, 1000, 1000, 1000, 1000, 1000, 1000];
/// Its gain for what is in flight (draft §4.3.4.4).
const CWND_GAIN: u64 = 2000;
const UNITY: u64 = 1000;
/// BtlBwFilterLen, in round trips (draft §4.1.1.3).
const FILTER_ROUNDS: u64 = 10;
/// RTpropFilterLen (draft §4.1.2.3): also how often ProbeRTT comes at least.
const RTPROP_TIME: Duration = Duration::from_secs(10);
/// ProbeRTTDuration (draft §4.3.5).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// BBRMinPipeCwnd, packets (draft §4.2.3.1).
const LEAST_PACKETS: u64 = 4;
/// InitialCwnd (RFC 6928), packets.
const FIRST_PACKETS: u64 = 10;
/// Rounds in which startup found less than a quarter more (draft §4.3.2.2).
const FULL_ROUNDS: u32 = 3;
/// Of the rate, in hundredths: `bbr_pacing_margin_percent` is 1 (Linux).
const MARGIN: u64 = 99;
/// Most bytes handed over at once (draft §4.2.2).
const MOST_QUANTUM: u64 = 64 * 1024;
/// The round trip assumed before one was measured (draft §4.2.1, BBRInitPacingRate).
const ASSUMED_RTT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrState {
    Startup,
    Drain,
    /// With this one of [`CYCLE`].
    ProbeBw(usize),
    ProbeRtt,
}

/// The rate law.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    packet: u64,
    state: BbrState,
    since: Instant,
    /// The greatest delivery rate of each of the last rounds, newest first, in bytes a second.
    best: [u64; FILTER_ROUNDS as usize],
    /// RTprop, and when it was seen.
    rtprop: Option<(Duration, Instant)>,
    round: u64,
    /// The full-pipe estimator: the rate compared with, and the rounds without growth.
    filled: bool,
    full_rate: u64,
    full_rounds: u32,
    rate: u64,
    cwnd: u64,
    /// What the window was before ProbeRTT, or before a loss.
    prior_cwnd: u64,
    /// What had been sent when a recovery began, and its first round.
    recovery: Option<(u64, u64)>,
    /// When ProbeRTT may end, and after which round.
    probe_rtt_done: Option<(Instant, u64)>,
    delivered: u64,
    lost: u64,
    sent: u64,
    lost_in_phase: bool,
}

impl Bbr {
    /// For IP packets of `packet` bytes, over a path with this round trip, if known.
    pub(crate) fn new(packet: u32, rtt: Option<Duration>) -> Self {
        let packet = u64::from(packet.max(1));
        let cwnd = FIRST_PACKETS * packet;
        let first = Rate::over(cwnd, rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_micros(1)));
        Self {
            packet,
            state: BbrState::Startup,
            since: Instant::EPOCH,
            best: [0; FILTER_ROUNDS as usize],
            rtprop: None,
            round: 0,
            filled: false,
            full_rate: 0,
            full_rounds: 0,
            rate: first.scaled(HIGH_GAIN, UNITY).bytes_per_second(),
            cwnd,
            prior_cwnd: cwnd,
            recovery: None,
            probe_rtt_done: None,
            delivered: 0,
            lost: 0,
            sent: 0,
            lost_in_phase: false,
        }
    }

    /// BtlBw.
    fn bandwidth(&self) -> Rate {
        Rate::from_bytes_per_second(self.best.into_iter().max().unwrap_or(0))
    }

    fn pacing_gain(&self) -> u64 {
        match self.state {
            BbrState::Startup => HIGH_GAIN,
            BbrState::Drain => DRAIN_GAIN,
            BbrState::ProbeBw(phase) => CYCLE[phase % CYCLE.len()],
            BbrState::ProbeRtt => UNITY,
        }
    }

    fn cwnd_gain(&self) -> u64 {
        match self.state {
            BbrState::Startup | BbrState::Drain => HIGH_GAIN,
            BbrState::ProbeBw(_) => CWND_GAIN,
            BbrState::ProbeRtt => UNITY,
        }
    }

    /// BBRInflight(gain): the product, and room for three quanta (draft §4.2.3.2).
    fn inflight(&self, gain: u64) -> u64 {
        let Some((rtprop, _)) = self.rtprop else { return FIRST_PACKETS * self.packet };
        let product = self.bandwidth().bytes_in(rtprop);
        let at_once = Rate::from_bytes_per_second(self.rate).bytes_in(Duration::from_millis(1));
        // "send_quantum = 2 * MSS", or a millisecond's worth (draft §4.2.2).
        let quantum = at_once.clamp(self.packet * 2, MOST_QUANTUM);
        product.saturating_mul(gain) / UNITY + quantum * 3
    }

    /// BBRUpdateBtlBw: "if (rs.delivery_rate >= BBR.BtlBw || ! rs.is_app_limited)" (draft
    /// §4.1.1.5).
    fn update_bandwidth(&mut self, sample: &Sample, new_round: u64) {
        for _ in 0..new_round.min(FILTER_ROUNDS) {
            self.best.rotate_right(1);
            self.best[0] = 0;
        }
        let Some(rate) = sample.delivery_rate else { return };
        if rate >= self.bandwidth() || !sample.app_limited {
            self.best[0] = self.best[0].max(rate.bytes_per_second());
        }
    }

    /// BBRCheckFullPipe (draft §4.3.2.2).
    fn check_full_pipe(&mut self, sample: &Sample) {
        if self.filled || sample.app_limited {
            return;
        }
        let now = self.bandwidth().bytes_per_second();
        if now >= self.full_rate + self.full_rate / 4 {
            (self.full_rate, self.full_rounds) = (now, 0);
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= FULL_ROUNDS;
    }

    fn enter(&mut self, state: BbrState, now: Instant) {
        (self.state, self.since, self.lost_in_phase) = (state, now, false);
    }

    /// "Pick a random phase, excluding the 3/4 one" (draft §4.3.4.3). The clock is chance enough.
    fn enter_probe_bw(&mut self, now: Instant) {
        let chance = nanos(now.since(Instant::EPOCH)) / 1000 % 7;
        let phase = if chance == 1 { 7 } else { chance as usize };
        self.enter(BbrState::ProbeBw(phase), now);
    }

    fn advance(&mut self, now: Instant, sample: &Sample, before: u64) {
        let in_flight = sample.in_flight_bytes;
        if self.state == BbrState::Startup && self.filled {
            self.enter(BbrState::Drain, now);
        }
        if self.state == BbrState::Drain && in_flight <= self.inflight(UNITY) {
            self.enter_probe_bw(now);
        }
        // BBRIsNextCyclePhase (draft §4.3.4.3).
        if let BbrState::ProbeBw(phase) = self.state {
            let gain = self.pacing_gain();
            let rtprop = self.rtprop.map_or(Duration::ZERO, |(least, _)| least);
            let is_over = now.since(self.since) > rtprop;
            let next = match gain.cmp(&UNITY) {
                Ordering::Equal => is_over,
                Ordering::Greater => {
                    is_over && (self.lost_in_phase || before >= self.inflight(gain))
                }
                Ordering::Less => is_over || before <= self.inflight(UNITY),
            };
            if next {
                self.enter(BbrState::ProbeBw((phase + 1) % CYCLE.len()), now);
            }
        }
    }

    /// BBRCheckProbeRTT (draft §4.3.5). `expired`: the smallest round trip is too old.
    fn check_probe_rtt(&mut self, now: Instant, sample: &Sample, expired: bool) {
        if self.state != BbrState::ProbeRtt && expired {
            if self.recovery.is_none() {
                self.prior_cwnd = self.cwnd;
            }
            self.probe_rtt_done = None;
            self.enter(BbrState::ProbeRtt, now);
        }
        if self.state != BbrState::ProbeRtt {
            return;
        }
        match self.probe_rtt_done {
            // The report of an eighth of a round trip is in flight, too.
            None if sample.in_flight_bytes <= LEAST_PACKETS * self.packet + self.unreported() => {
                self.probe_rtt_done = Some((now + PROBE_RTT_TIME, sample.round));
            }
            Some((until, round)) if now >= until && sample.round > round => {
                self.rtprop = self.rtprop.map(|(least, _)| (least, now));
                self.cwnd = self.cwnd.max(self.prior_cwnd);
                if self.filled {
                    self.enter_probe_bw(now);
                } else {
                    self.enter(BbrState::Startup, now);
                }
            }
            _ => {}
        }
    }

    /// BBRSetCwnd (draft §4.2.3.6), with its recovery (§4.2.3.4).
    fn set_cwnd(&mut self, sample: &Sample, acked: u64, lost: u64) {
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        if lost > 0 {
            self.cwnd = self.cwnd.saturating_sub(lost).max(self.packet);
            if self.recovery.is_none() {
                // The window of before the loss, which was just taken off it.
                if self.state != BbrState::ProbeRtt {
                    self.prior_cwnd = self.cwnd + lost;
                }
                self.recovery = Some((sample.sent_bytes, sample.round));
                self.cwnd = sample.in_flight_bytes + acked.max(self.packet);
            }
        }
        if self.recovery.is_some_and(|(until, _)| known > until) {
            self.recovery = None;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        }
        // "packet conservation" in the first round of a recovery.
        if self.recovery.is_some_and(|(_, round)| sample.round <= round) {
            self.cwnd = self.cwnd.max(sample.in_flight_bytes + acked);
        } else {
            let target = self.inflight(self.cwnd_gain());
            if self.filled {
                self.cwnd = (self.cwnd + acked).min(target);
            } else if self.cwnd < target || self.delivered < FIRST_PACKETS {
                self.cwnd += acked;
            }
        }
        self.cwnd = self.cwnd.max(LEAST_PACKETS * self.packet);
        if self.state == BbrState::ProbeRtt {
            self.cwnd = self.cwnd.min(LEAST_PACKETS * self.packet);
        }
    }

    /// What arrives between two reports.
    fn unreported(&self) -> u64 {
        match self.state {
            BbrState::ProbeRtt => LEAST_PACKETS * self.packet / 8,
            _ => self.inflight(UNITY) / 8,
        }
    }

    fn set_rate(&mut self) {
        let rate = self.bandwidth().scaled(self.pacing_gain(), UNITY).scaled(MARGIN, 100);
        // "if (BBR.filled_pipe || rate > BBR.pacing_rate)" (draft §4.2.1).
        if self.filled || rate.bytes_per_second() > self.rate {
            self.rate = rate.bytes_per_second().max(1);
        }
    }
}

impl RateControl for Bbr {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let acked = sample.delivered_packets.saturating_sub(self.delivered) * self.packet;
        let lost = sample.lost_packets.saturating_sub(self.lost) * self.packet;
        let before = sample.in_flight_bytes + acked + lost;
        (self.delivered, self.lost) = (sample.delivered_packets, sample.lost_packets);
        (self.sent, self.lost_in_phase) = (sample.sent_bytes, self.lost_in_phase || lost > 0);
        let rounds = sample.round.saturating_sub(self.round);
        self.round = sample.round;
        self.update_bandwidth(sample, rounds);
        if rounds > 0 {
            self.check_full_pipe(sample);
        }
        self.advance(now, sample, before);
        // BBRUpdateRTprop (draft §4.1.2.3).
        let expired = self.rtprop.is_some_and(|(_, at)| now.since(at) > RTPROP_TIME);
        if let Some(rtt) = sample.rtt
            && self.rtprop.is_none_or(|(least, _)| rtt <= least || expired)
        {
            self.rtprop = Some((rtt, now));
        }
        self.check_probe_rtt(now, sample, expired);
        self.set_rate();
        self.set_cwnd(sample, acked, lost);
    }

    /// As after the retransmission timer: one packet, and the pipe may be another one (Linux,
    /// `bbr_set_state`).
    fn on_silence(&mut self, _now: Instant) {
        if self.recovery.is_none() && self.state != BbrState::ProbeRtt {
            self.prior_cwnd = self.cwnd;
        }
        (self.full_rate, self.recovery) = (0, Some((self.sent, self.round)));
        self.cwnd = self.packet;
    }

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet = u64::from(bytes.max(1));
    }

    fn pacing(&self) -> Pacing {
        let burst = burst_for(Rate::from_bytes_per_second(self.rate), self.packet as u32);
        Pacing { cap_bytes: Some(self.cwnd + self.unreported()), ..Pacing::of(burst) }
    }

    fn belief(&self) -> Belief {
        let phase = match self.state {
            BbrState::Startup => "bbr_startup",
            BbrState::Drain => "bbr_drain",
            BbrState::ProbeBw(_) => "bbr_probe_bw",
            BbrState::ProbeRtt => "bbr_probe_rtt",
        };
        Belief {
            phase,
            bandwidth: Some(self.bandwidth()).filter(|rate| *rate > Rate::ZERO),
            min_rtt: self.rtprop.map(|(least, _)| least),
            ..Belief::default()
        }
    }

    fn charges_bytes(&self) -> bool {
        true
    }
}
