//! Congestion events: which losses and marks of a report ask for an answer.
//!
//! A window is reduced once for all that was in flight together (RFC 9002 §7.3.2): an event opens a
//! recovery period, and no packet that was sent before its beginning opens another one.

use crate::rate::Sample;

/// What a report shows of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// A packet that was sent since the last event is missing.
    Loss,
    /// A packet that was sent since the last event arrived marked.
    Mark,
}

/// What a report shows that no event was answered for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// A packet that was sent since the last event is missing.
    pub(super) lost: bool,
    /// A packet that was sent since the last event arrived marked.
    pub(super) marked: bool,
}

/// Finds congestion events in reports.
#[derive(Debug, Default)]
pub(super) struct CongestionEvents {
    lost: u64,
    marked: u64,
    /// Bytes that were sent when the last event was answered.
    recovery_ends: Option<u64>,
    /// Bytes sent up to the highest packet that each of the last reports named. A receiver counts
    /// a packet as missing a quarter of a round trip after a higher one came (`docs/protocol
    /// §6.3`), which is two reports later, so what a report finds missing was sent before the
    /// highest packet of the report two before it.
    reached: [u64; 3],
}

impl CongestionEvents {
    /// Takes in a report.
    pub(super) fn on_sample(&mut self, sample: &Sample) -> Seen {
        let lost = sample.lost_packets > std::mem::replace(&mut self.lost, sample.lost_packets);
        let marked =
            sample.marked_packets > std::mem::replace(&mut self.marked, sample.marked_packets);
        let reached = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        self.reached = [self.reached[1], self.reached[2], reached.max(self.reached[2])];
        let after = |reached| self.recovery_ends.is_none_or(|end| reached > end);
        Seen { lost: lost && after(self.reached[0]), marked: marked && after(reached) }
    }

    /// An event was answered: what was sent until now opens no other one.
    pub(super) fn on_answered(&mut self, sent_bytes: u64) {
        self.recovery_ends = Some(sent_bytes);
    }

    /// Whether the newest report is of packets that were sent before the last event.
    pub(super) fn is_recovering(&self) -> bool {
        self.recovery_ends.is_some_and(|end| self.reached[2] <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sent: u64, in_flight: u64, lost: u64, marked: u64) -> Sample {
        Sample {
            sent_bytes: sent,
            in_flight_bytes: in_flight,
            lost_packets: lost,
            marked_packets: marked,
            ..Sample::default()
        }
    }

    const NOTHING: Seen = Seen { lost: false, marked: false };
    const LOSS: Seen = Seen { lost: true, marked: false };
    const MARK: Seen = Seen { lost: false, marked: true };

    #[test]
    fn losses_of_one_flight_are_one_event() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.on_sample(&sample(1000, 900, 0, 0)), NOTHING);
        assert_eq!(events.on_sample(&sample(1100, 900, 0, 0)), NOTHING);
        assert_eq!(events.on_sample(&sample(1200, 900, 1, 0)), LOSS);
        events.on_answered(1200);
        for n in 1..=9 {
            let seen = events.on_sample(&sample(1200 + n * 100, 900, 1 + n, 0));
            assert_eq!(seen, NOTHING, "{n}");
        }
        assert!(events.is_recovering());
        assert_eq!(events.on_sample(&sample(2200, 900, 11, 0)), NOTHING);
        assert!(!events.is_recovering());
        assert_eq!(events.on_sample(&sample(2300, 900, 12, 0)), NOTHING);
        assert_eq!(events.on_sample(&sample(2400, 900, 13, 0)), LOSS);
    }

    #[test]
    fn marks_of_one_flight_are_one_event_and_a_loss_hides_none() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.on_sample(&sample(1000, 900, 0, 3)), MARK);
        events.on_answered(1000);
        assert_eq!(events.on_sample(&sample(1800, 800, 0, 9)), NOTHING);
        assert_eq!(events.on_sample(&sample(2000, 800, 0, 12)), MARK);
        events.on_answered(2000);
        assert_eq!(events.on_sample(&sample(4000, 800, 0, 12)), NOTHING);
        assert_eq!(events.on_sample(&sample(4000, 700, 0, 12)), NOTHING);
        let both = Seen { lost: true, marked: true };
        assert_eq!(events.on_sample(&sample(4100, 700, 1, 13)), both);
    }
}
