//! The sender's trace events.

use super::Sender;
use crate::time::Instant;
use crate::trace::{RateLine, Stage, TraceEvent};
use crate::units::{BufferNumber, Rate};

impl Sender {
    /// The sending rate of its burst values.
    pub(super) fn pacing_rate(&self) -> Rate {
        let burst = self.pacing().burst;
        let overhead = u32::try_from(self.sampler.overhead()).unwrap_or(u32::MAX);
        let packet = u64::from(match self.negotiated.profile.paces_bytes {
            true => self.datagram_bytes() + overhead,
            false => self.negotiated.mean_packet_bytes(overhead),
        });
        Rate::over(u64::from(burst.packets) * packet, burst.interval)
    }

    #[inline]
    pub(super) fn note_buffer(&mut self, now: Instant, number: BufferNumber, stage: Stage) {
        if self.trace.is_on() {
            let (outstanding, held) = (self.scheduler.outstanding(), self.scheduler.unsupplied());
            let number = number.0;
            self.trace.note(now, || TraceEvent::Buffer { number, stage, outstanding, held });
        }
    }

    #[inline]
    pub(super) fn note_rate(&mut self, now: Instant) {
        if self.trace.is_on() {
            let line = self.rate_line(now);
            self.trace.note(now, || TraceEvent::Rate(line));
        }
        while let Some(change) = self.rate.take_change() {
            self.trace.note(now, || TraceEvent::Window {
                from: change.from_bytes,
                to: change.to_bytes,
                cause: change.cause.name(),
                mode: change.mode,
            });
        }
        let ppm = |share: f64| (share * 1e6) as u64;
        if let Some(test) = self.rate.take_test() {
            self.trace.note(now, || TraceEvent::Test {
                verdict: test.verdict,
                share_ppm: ppm(test.share),
                whole: test.whole,
                half: test.half,
                limit_ppm: ppm(test.limit),
                error_ppm: ppm(test.error),
            });
        }
        if let Some(excuse) = self.rate.take_excuse() {
            let (share_ppm, reason) = (ppm(excuse.share), excuse.reason);
            self.trace.note(now, || TraceEvent::Excuse { share_ppm, reason });
        }
    }

    fn rate_line(&self, now: Instant) -> RateLine {
        let (pacing, belief) = (self.pacing(), self.rate.belief());
        let view = self.rate.path_view(now);
        let lost = if self.has_feedback() {
            self.stats.data_packets_lost
        } else {
            self.stats.data_packets_resent
        };
        RateLine {
            phase: belief.phase,
            bandwidth: belief.bandwidth,
            pacing: self.pacing_rate(),
            burst: pacing.burst,
            rtt: self.rtt.smoothed(),
            min_rtt: belief.min_rtt.or(self.rtt.smallest()),
            queue: belief.queue,
            way_back: view.way_back,
            varies_by: view.varies_by,
            share_ppm: view.share_ppm,
            in_flight: self.has_feedback().then(|| self.sampler.in_flight_bytes()),
            cap: pacing.cap_bytes,
            outstanding: self.scheduler.outstanding(),
            held: self.scheduler.unsupplied(),
            sent: self.stats.data_packets_sent,
            resent: self.stats.data_packets_resent,
            lost,
            marked: self.sampler.marked_packets(),
            delivered: self.sampler.delivered_bytes(),
            accepted_bytes: self.stats.image_bytes,
        }
    }
}
