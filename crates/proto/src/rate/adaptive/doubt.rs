//! How [`Adaptive`] tries whether what it takes for loss at rest is that. Where a round trip is
//! short a queue may be no longer than hosts are late, so what it loses looks like loss at rest, is
//! made up for, and the more is lost (docs/decisions/adaptive-rate.md, *A short queue of a short
//! path*). So where much is believed in, and is lost of late, half of what comes is sent for a
//! moment: loss at rest stays as it is, and what the rate made is gone.

use std::time::Duration;

use super::Adaptive;
use super::policed::part;
use crate::rate::path::MILLION;
use crate::time::Instant;
use crate::units::Rate;

/// On longer round trips queues are seen, or what is lost at the lower rate after a probe tells
/// (`policed.rs`).
pub(super) const LONGEST_RTT: Duration = Duration::from_millis(30);
/// More loss at rest than this, in millionths, is doubted.
const MUCH: u64 = MILLION / 8;
/// What is sent meanwhile, in hundredths of what comes: so little that nothing is lost even where
/// one or two others make up for the same.
const SENT: u64 = 50;
/// So many packets are told of before it counts, and so many then.
const PACKETS: u64 = 128;
/// Not where these take longer to come; and after twice as long it was for nothing.
const LONGEST: Duration = Duration::from_secs(2);
/// Once in so long, and twice as rarely after each time for nothing, so many times; but at once
/// when half as much again is believed in.
const INTERVAL: Duration = Duration::from_secs(10);
const RAREST: u32 = 5;

/// What is being tried, and was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    tries: bool,
    /// Bandwidth before, in bytes per second.
    before: u64,
    /// Packets still to be told of before it counts; those told of then, and lost, in millionths.
    settling: u64,
    packets: u64,
    lost: u64,
    /// When the newest one began; how many in a row were for nothing, and what was believed then.
    begun: Option<Instant>,
    in_vain: u32,
    believed: u64,
}

impl Doubt {
    /// Loss at rest is being tried.
    pub(super) fn is_on(&self) -> bool {
        self.tries
    }

    /// What is going on now tells nothing of it.
    pub(super) fn stop(&mut self) {
        self.tries = false;
    }

    fn is_due(&self, now: Instant, rest: u64) -> bool {
        let interval = INTERVAL * (1 << self.in_vain.min(RAREST));
        let over = self.begun.is_none_or(|begun| now.since(begun) >= interval);
        over || rest * 2 > self.believed * 3
    }
}

impl Adaptive {
    /// A cruise is over. Whether another one is to try loss at rest, or goes on with it.
    pub(super) fn doubts(&mut self, now: Instant) -> bool {
        if self.doubt.begun.is_some_and(|begun| now.since(begun) > LONGEST * 2) {
            self.give_doubt_up();
        }
        self.doubt.is_on() || self.begin_doubt(now)
    }

    /// Nothing is known of what is being tried, if anything is: all goes on as before.
    pub(super) fn give_doubt_up(&mut self) {
        if self.doubt.is_on() {
            self.bandwidth = self.bandwidth.max(self.doubt.before);
            self.doubt.stop();
        }
    }

    fn begin_doubt(&mut self, now: Instant) -> bool {
        let rest = self.rest.share();
        let before = self.bandwidth;
        // What is lost no more is learned without this.
        let lost = self.overflow.share() * 4 >= rest * 3;
        let short = self.min_rtt() <= LONGEST_RTT && self.grain_bytes == 0;
        let left = Rate::from_bytes_per_second(part(before, MILLION - rest));
        let takes = left.time_for(u64::from(self.packet_bytes) * PACKETS * 2);
        if rest <= MUCH || !lost || !short || self.rest.is_suspected() || takes > LONGEST {
            return false;
        }
        if !self.doubt.is_due(now, rest) {
            return false;
        }
        let (tries, begun, settling) = (true, Some(now), PACKETS);
        self.doubt = Doubt { tries, before, begun, settling, packets: 0, lost: 0, ..self.doubt };
        self.bandwidth = left.bytes_per_second() * SENT / 100;
        self.hearing.deaf = 2;
        true
    }

    /// A round trip is over in which this share of so many packets was lost, while loss at rest is
    /// being tried.
    pub(super) fn judge_doubt(&mut self, share: u64, packets: u64) {
        let doubt = &mut self.doubt;
        if doubt.settling > 0 {
            doubt.settling = doubt.settling.saturating_sub(packets);
            return;
        }
        doubt.packets += packets;
        doubt.lost += packets * share;
        if doubt.packets < PACKETS {
            return;
        }
        doubt.stop();
        let (before, rest) = (doubt.before, self.rest.share());
        let share = doubt.lost / doubt.packets;
        if share * 3 >= rest * 2 {
            (doubt.in_vain, doubt.believed) = (doubt.in_vain + 1, rest);
            self.bandwidth = self.bandwidth.max(before);
            return;
        }
        (doubt.in_vain, doubt.begun) = (0, None);
        self.rest.set(share);
        self.bandwidth = self.rest.scale_up(part(before, MILLION - rest));
        if self.queue() == 0 {
            // What is lost without a queue is not learned from again.
            self.policed.on_seen();
        }
    }
}
