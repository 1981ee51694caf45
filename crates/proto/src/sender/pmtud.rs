//! Path MTU discovery at the sender (`docs/protocol §6.5`).
//!
//! It decides the size of datagrams, when a probe leaves, when the size is announced to the
//! receiver, and which losses are due to size. Inputs: probes answered, REPORTs and hints of the
//! network. Output: a [`Resize`] whenever the size changes.

use crate::codec::Codec;
use crate::negotiated::Negotiated;
use crate::pmtud::{PathMtuDiscovery, ProbeTiming};
use crate::rtt::RttEstimator;
use crate::time::{Instant, earliest};
use crate::units::PacketNumber;
use crate::wire::packet::{Go, Keepalive, Report};

/// Announcements of a new size without a timeout.
const ANNOUNCEMENTS: u8 = 3;

/// The size of datagrams, and the search for it if the wire has one.
#[derive(Debug)]
pub(super) struct SenderPmtud {
    /// The size in use, as the rest of the sender knows it.
    datagram_bytes: u32,
    /// Bytes of a DATA datagram that are not data, and of a KEEPALIVE without padding.
    data_overhead: u32,
    keepalive_bytes: usize,
    search: Option<SizeSearch>,
}

/// The search, and the announcements of its size.
#[derive(Debug)]
struct SizeSearch {
    discovery: PathMtuDiscovery,
    /// The next announcement, and the remaining ones.
    announcement: Option<(Instant, u8)>,
    announced_at: Instant,
    /// Probes without an answer: their loss is no sign of congestion.
    unanswered: u64,
    /// Packets lost because they were too large: no sign of congestion either.
    size_losses: u64,
    /// The packets whose loss is due to size: all that left before the size became smaller.
    exempt: Option<SizeLossExemption>,
    /// Bytes that had arrived at the last report but one, and at the last.
    arrived: (u64, u64),
}

/// Packets sent before the size became smaller, lost for their size.
#[derive(Clone, Copy, Debug)]
enum SizeLossExemption {
    /// No data have left in the new size yet.
    All,
    /// Packets before this number, which is the first of the new size.
    Before(PacketNumber),
}

/// Datagrams have another size from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resize {
    pub(super) before: u32,
    pub(super) after: u32,
}

impl SenderPmtud {
    pub(super) fn new(now: Instant, negotiated: &Negotiated, overhead: u32) -> Self {
        let (agreed, profile) = (negotiated.datagram_bytes as u32, &negotiated.profile);
        let search = profile.discovers_mtu.then(|| SizeSearch {
            discovery: PathMtuDiscovery::new(now, agreed, overhead),
            announcement: None,
            announced_at: now,
            unanswered: 0,
            size_losses: 0,
            exempt: None,
            arrived: (0, 0),
        });
        Self {
            datagram_bytes: search.as_ref().map_or(agreed, |search| search.discovery.size()),
            data_overhead: profile.data_overhead,
            keepalive_bytes: profile.keepalive_bytes,
            search,
        }
    }

    /// The largest datagram to send, in bytes.
    pub(super) fn datagram_bytes(&self) -> u32 {
        self.datagram_bytes
    }

    /// Data bytes that fit into it.
    pub(super) fn data_bytes(&self) -> u32 {
        self.datagram_bytes.saturating_sub(self.data_overhead)
    }

    /// Whether packets that were granted with so many data bytes do not pass: a new GO must come.
    pub(super) fn is_too_large(&self, data_bytes: u32) -> bool {
        self.search.is_some() && data_bytes + self.data_overhead > self.datagram_bytes
    }

    /// The size to announce: data bytes in a packet, 0 for none.
    pub(super) fn announced_bytes(&self) -> u16 {
        let settled = self.search.as_ref().filter(|search| search.discovery.is_settled());
        let bytes = settled.map_or(0, |_| self.data_bytes());
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }

    /// Passes an input to the search, and follows its size.
    fn step(&mut self, now: Instant, step: impl FnOnce(&mut PathMtuDiscovery)) -> Option<Resize> {
        let search = self.search.as_mut()?;
        let settled = search.discovery.is_settled();
        step(&mut search.discovery);
        let (before, after) = (self.datagram_bytes, search.discovery.size());
        if after != before || settled != search.discovery.is_settled() {
            search.announcement = Some((now, ANNOUNCEMENTS));
        }
        if after < before {
            search.exempt = Some(SizeLossExemption::All);
        }
        self.datagram_bytes = after;
        (after != before).then_some(Resize { before, after })
    }

    // ---- what the network says

    /// A datagram of `bytes` was answered.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        bytes: u16,
        timing: &ProbeTiming,
    ) -> Option<Resize> {
        if usize::from(bytes) <= self.keepalive_bytes {
            return None;
        }
        if let Some(search) = &mut self.search {
            search.unanswered = search.unanswered.saturating_sub(1);
        }
        self.step(now, |discovery| discovery.on_answer(now, bytes.into(), timing))
    }

    /// An ICMP message limits IP packets to `bytes`.
    pub(super) fn on_hint(
        &mut self,
        now: Instant,
        bytes: u32,
        timing: &ProbeTiming,
    ) -> Option<Resize> {
        self.step(now, |discovery| discovery.on_hint(now, bytes, timing))
    }

    /// This host refuses to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. Returns also whether smaller ones can be sent.
    pub(super) fn on_refused(
        &mut self,
        now: Instant,
        bytes: u32,
        limit: Option<u32>,
        timing: &ProbeTiming,
    ) -> (bool, Option<Resize>) {
        let mut helped = false;
        let resize = self.step(now, |discovery| {
            helped = discovery.on_refused(now, bytes, limit, timing);
        });
        (helped, resize)
    }

    /// OK came.
    pub(super) fn on_accepted(&mut self) {
        if let Some(search) = &mut self.search {
            search.discovery.on_accepted();
        }
    }

    /// A report has the size of arriving datagrams.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        report: &Report,
        timing: &ProbeTiming,
    ) -> Option<Resize> {
        if let Some(search) = &mut self.search
            && report.bytes > search.arrived.1
        {
            search.arrived = (search.arrived.1, report.bytes);
        }
        self.step(now, |discovery| {
            discovery.on_report(now, report.largest.into(), timing);
        })
    }

    /// GO came. If its packet size is not the one in use, the announcement was lost.
    pub(super) fn on_granted(&mut self, now: Instant, go: &Go, rtt: &RttEstimator) {
        let wanted = self.announced_bytes();
        let Some(search) = &mut self.search else { return };
        let other = wanted > 0 && go.packet_bytes != u32::from(wanted);
        if other && search.announcement.is_none() && search.announced_at + rtt.timeout() <= now {
            search.announcement = Some((now, 1));
        }
    }

    /// Losses without those of probes and of packets lost for their size. `highest`: the highest
    /// packet in the report. `known`: losses in the report before.
    pub(super) fn lost_for_other_reasons(
        &mut self,
        now: Instant,
        highest: PacketNumber,
        lost: u64,
        known: u64,
        timing: &ProbeTiming,
    ) -> u64 {
        let full = u64::from(self.datagram_bytes);
        let Some(search) = &mut self.search else { return lost };
        let counted = lost.saturating_sub(search.unanswered + search.size_losses).max(known);
        if search.discovery.hides_losses(now, timing) {
            return known;
        }
        if let Some(exempt) = search.exempt {
            search.size_losses += counted - known;
            if matches!(exempt, SizeLossExemption::Before(first) if first <= highest) {
                search.exempt = None;
            }
            return known;
        }
        // The short packet that ends a buffer may pass where no other does: losses that it shows
        // count only when a full one arrives.
        let (before, arrived) = search.arrived;
        if arrived - before < full { known } else { counted }
    }

    // ---- what leaves

    /// Data left in datagrams of `bytes`, from packet `first` on.
    pub(super) fn on_data_sent(&mut self, now: Instant, first: PacketNumber, bytes: usize) {
        if let Some(search) = &mut self.search {
            search.discovery.on_sent(now, bytes as u32);
            if let Some(exempt @ SizeLossExemption::All) = &mut search.exempt {
                *exempt = SizeLossExemption::Before(first);
            }
        }
    }

    /// Appends the probe that is due. Returns its number, and the bytes of it that count: its
    /// padding does not, here or at the receiver.
    pub(super) fn put_probe(
        &mut self,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> Option<(PacketNumber, u64)> {
        let search = self.search.as_mut()?;
        let size = search.discovery.next_probe()? as usize;
        search.unanswered += 1;
        let padding = size.saturating_sub(self.keepalive_bytes);
        let padding = u16::try_from(padding).unwrap_or(u16::MAX);
        let probe = Keepalive { answer_wanted: true, padding, ..Keepalive::default() };
        Some((codec.put_keepalive(out, probe), self.keepalive_bytes as u64))
    }

    /// When the size is to be announced.
    pub(super) fn announcement_due(&self) -> Option<Instant> {
        let (at, _) = self.search.as_ref()?.announcement?;
        (self.announced_bytes() > 0).then_some(at)
    }

    /// The size was announced. It is repeated while nothing can be sent before the receiver has it
    /// (`waits`).
    pub(super) fn on_announced(&mut self, now: Instant, waits: bool, rtt: &RttEstimator) {
        let Some(search) = &mut self.search else { return };
        search.announced_at = now;
        search.announcement = match search.announcement {
            Some((_, left)) if left > 1 => Some((now + rtt.report_interval(), left - 1)),
            _ if waits => Some((now + rtt.timeout(), 1)),
            _ => None,
        };
    }

    // ---- time

    /// When the search probes or gives up, or the size is to be announced.
    pub(super) fn deadline(
        &self,
        now: Instant,
        timing: impl FnOnce() -> ProbeTiming,
    ) -> Option<Instant> {
        let search = self.search.as_ref()?.discovery.next_timeout(now, &timing());
        earliest([search, self.announcement_due()])
    }

    /// That time has come.
    pub(super) fn expire(&mut self, now: Instant, timing: &ProbeTiming) -> Option<Resize> {
        self.step(now, |discovery| discovery.handle_timeout(now, timing))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::Rate;
    use crate::wire::Wire;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn pmtud(wire: Wire) -> SenderPmtud {
        let negotiated = Negotiated { datagram_bytes: 9000, ..Negotiated::example(wire) };
        SenderPmtud::new(ms(0), &negotiated, 28)
    }

    fn timing() -> ProbeTiming {
        let (rtt, timeout) = (Duration::from_millis(10), Duration::from_millis(20));
        ProbeTiming { rtt, timeout, rate: Rate::from_bytes_per_second(1_000_000) }
    }

    #[test]
    fn without_the_search_every_loss_counts_and_no_packet_is_too_large() {
        let mut pmtud = pmtud(Wire::Rfc998);
        assert_eq!((pmtud.datagram_bytes(), pmtud.announced_bytes()), (9000, 0));
        assert!(!pmtud.is_too_large(100_000));
        assert_eq!(pmtud.lost_for_other_reasons(ms(1), PacketNumber(9), 7, 2, &timing()), 7);
        assert_eq!(pmtud.on_hint(ms(1), 1400, &timing()), None);
    }

    #[test]
    fn losses_of_packets_that_became_too_large_do_not_count() {
        let mut pmtud = pmtud(Wire::Sealed);
        let before = pmtud.datagram_bytes();
        let (helped, resize) = pmtud.on_refused(ms(1), before, Some(before - 100), &timing());
        let Resize { after, .. } = resize.expect("it is smaller now");
        assert!(helped && after < before && pmtud.is_too_large(pmtud.data_bytes() + 1));
        let highest = |n| PacketNumber(n);
        let lost = pmtud.lost_for_other_reasons(ms(2), highest(9), 5, 0, &timing());
        assert_eq!(lost, 0, "they were too large");
        pmtud.on_data_sent(ms(2), PacketNumber(10), after as usize);
        let full = Report { bytes: u64::from(after) * 2, ..Report::default() };
        pmtud.on_report(ms(3), &full, &timing());
        assert_eq!(pmtud.lost_for_other_reasons(ms(3), highest(10), 6, 0, &timing()), 0);
        assert_eq!(pmtud.lost_for_other_reasons(ms(4), highest(11), 8, 0, &timing()), 2);
    }
}
