//! A watch on a data sender: burst sizes, intervals and announcements, judged from the times of the
//! packets.
//!
//! A packet is known to have come after the last look that found nothing, and before it was read.
//! What is counted against the sender holds for every pair of times within these bounds, so that
//! nothing depends on how fast the machine is that watches.

use std::time::{Duration, Instant};

/// How much longer than others a packet may be on its way over loopback when the machine is busy:
/// its sender is judged by when packets arrive.
const ON_THE_WAY: Duration = Duration::from_micros(200);

/// Burst size and burst rate, in packets and milliseconds.
pub(crate) type Burst = (u16, u16);

/// What was seen of a sender so far, and what was wrong with it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    agreed: Option<Burst>,
    /// What it announced last, and the first packet after that.
    force: Option<(Burst, usize)>,
    /// A control packet was sent to it.
    control_sent: bool,
    /// Offers in OK messages, by the sequence number of each.
    offers: Vec<(u16, Burst)>,
    /// Earliest and latest time at which each DATA packet can have come.
    data: Vec<(Instant, Instant)>,
    pub(crate) announced: u64,
    faults: Vec<String>,
}

impl Watch {
    pub(crate) fn agree(&mut self, burst: Burst) {
        self.agreed = Some(burst);
        self.force = Some((burst, 0));
    }

    pub(crate) fn on_control(&mut self) {
        self.control_sent = true;
    }

    pub(crate) fn on_offer(&mut self, seq: u16, burst: Burst) {
        self.offers.push((seq, burst));
    }

    pub(crate) fn on_null_ack(&mut self, burst: Burst) {
        let (Some(agreed), Some((force, _))) = (self.agreed, self.force) else { return };
        if is_looser(burst, agreed) {
            self.fault(format!("{burst:?} announced where {agreed:?} was agreed on"));
        }
        if !self.control_sent && burst != agreed {
            self.fault(format!("{burst:?} announced before the first GO"));
        }
        if burst != force {
            self.announced += 1;
            self.force = Some((burst, self.data.len()));
        }
    }

    /// DATA or LDATA, with the acknowledgement in it.
    pub(crate) fn on_data(&mut self, bounds: (Instant, Instant), ack: u16) {
        self.data.push(bounds);
        let (Some(agreed), Some((force, since))) = (self.agreed, self.force) else { return };
        self.keeps("agreed on", agreed, 0);
        self.keeps("announced", force, since);
        let offer = self.offers.iter().find(|(seq, offer)| *seq <= ack && is_looser(force, *offer));
        if let Some((_, offer)) = offer.copied() {
            self.fault(format!(
                "{offer:?} was offered and acknowledged, and {force:?} is in force"
            ));
        }
    }

    /// Whether the newest packet, and as many before it as a burst has, take the interval.
    fn keeps(&mut self, what: &str, (packets, millis): Burst, since: usize) {
        let newest = self.data.len() - 1;
        let Some(first) = newest.checked_sub(packets.into()).filter(|i| *i >= since) else {
            return;
        };
        let span = self.data[newest].1.duration_since(self.data[first].0);
        if span + ON_THE_WAY < Duration::from_millis(millis.into()) {
            self.fault(format!(
                "{packets} packets each {millis} ms were {what}, and packets {first} to {newest} \
                 took {span:?}"
            ));
        }
    }

    fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// What was wrong, if anything was.
    #[track_caller]
    pub(crate) fn finds_nothing(&self) {
        let some = &self.faults[..self.faults.len().min(5)];
        assert!(some.is_empty(), "{} faults: {some:#?}", self.faults.len());
    }

    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

fn is_looser((packets, millis): Burst, (most, least): Burst) -> bool {
    packets > most || millis < least
}

#[test]
fn the_watch_finds_a_planted_violation() {
    let start = Instant::now();
    let at = |ms| (start + Duration::from_millis(ms), start + Duration::from_millis(ms));
    let mut watch = Watch::default();
    watch.agree((2, 10));
    for ms in [0, 1, 10, 12, 20] {
        watch.on_data(at(ms), 0);
    }
    assert!(watch.faults().is_empty(), "{:?}", watch.faults());
    watch.on_data(at(21), 0);
    assert_eq!(watch.faults().len(), 2, "12, 20, 21: {:?}", watch.faults());
    watch.on_null_ack((2, 9));
    watch.on_null_ack((1, 10));
    assert_eq!(watch.faults().len(), 5, "looser; twice too early: {:?}", watch.faults());
    watch.on_control();
    watch.on_null_ack((1, 20));
    watch.on_data(at(40), 0);
    watch.on_data(at(59), 0);
    assert_eq!(watch.faults().len(), 6, "not what was said: {:?}", watch.faults());
    watch.on_offer(3, (1, 30));
    watch.on_data(at(90), 2);
    assert_eq!(watch.faults().len(), 6, "not acknowledged yet");
    watch.on_data(at(120), 3);
    assert_eq!(watch.faults().len(), 7, "acknowledged, and not obeyed: {:?}", watch.faults());
}
