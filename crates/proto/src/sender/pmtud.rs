//! Path MTU discovery at the sender (`docs/protocol §6.5`): it sends probes, announces the size
//! to the receiver, and lets buffers granted with larger packets wait for a new GO.

use super::Sender;
use crate::codec::Codec;
use crate::pmtud::{PathMtuDiscovery, ProbeTiming};
use crate::time::{Instant, earliest};
use crate::units::PacketNumber;
use crate::wire::packet::{Go, Keepalive, Report};

/// Announcements of a new size without a timeout.
const ANNOUNCEMENTS: u8 = 3;

/// The search, and the announcements of its size.
#[derive(Debug)]
pub(super) struct SenderPmtud {
    search: PathMtuDiscovery,
    /// The size in use, as the rest of the sender knows it.
    known: u32,
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

impl SenderPmtud {
    pub(super) fn new(now: Instant, ceiling: u32, overhead: u32) -> Self {
        let search = PathMtuDiscovery::new(now, ceiling, overhead);
        let known = search.size();
        Self {
            search,
            known,
            announcement: None,
            announced_at: now,
            unanswered: 0,
            size_losses: 0,
            exempt: None,
            arrived: (0, 0),
        }
    }

    /// The largest datagram to send.
    pub(super) fn known(&self) -> u32 {
        self.known
    }
}

impl Sender {
    /// The largest datagram to send, in bytes.
    pub(super) fn datagram_bytes(&self) -> u32 {
        match &self.pmtud {
            Some(pmtud) => pmtud.known,
            None => self.negotiated.datagram_bytes as u32,
        }
    }

    /// The next packets were granted in a size that does not pass: a new GO must come.
    pub(super) fn waits_for_size(&self) -> bool {
        let most = self.datagram_bytes();
        let overhead = self.negotiated.profile.data_overhead;
        let front = self.pmtud.as_ref().and_then(|_| self.scheduler.front());
        front.is_some_and(|outgoing| outgoing.packet_bytes() + overhead > most)
    }

    /// The size to announce: data bytes in a packet, 0 for none.
    pub(super) fn announced_packet_bytes(&self) -> u16 {
        let settled = self.pmtud.as_ref().filter(|pmtud| pmtud.search.is_settled());
        let overhead = self.negotiated.profile.data_overhead;
        let bytes = settled.map_or(0, |pmtud| pmtud.known.saturating_sub(overhead));
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }

    fn pace(&self) -> ProbeTiming {
        let (rtt, timeout) = (self.rtt.assumed(), self.rtt.timeout());
        ProbeTiming { rtt, timeout, rate: self.pacing_rate() }
    }

    /// Passes an input to the search, and follows its size.
    fn search(&mut self, now: Instant, step: impl FnOnce(&mut PathMtuDiscovery, &ProbeTiming)) {
        let pace = self.pace();
        let Some(pmtud) = &mut self.pmtud else { return };
        let settled = pmtud.search.is_settled();
        step(&mut pmtud.search, &pace);
        let size = pmtud.search.size();
        if size != pmtud.known || settled != pmtud.search.is_settled() {
            pmtud.announcement = Some((now, ANNOUNCEMENTS));
        }
        if size < pmtud.known {
            pmtud.exempt = Some(SizeLossExemption::All);
            self.scheduler.forget_repairs();
        }
        let before = std::mem::replace(&mut pmtud.known, size);
        if before != size {
            let overhead = self.sampler.overhead() as u32;
            if size < before && self.rate.charges_bytes() {
                self.pacer.shrink(before + overhead, size + overhead);
                // Never charges more packets than left: that would begin another burst.
                self.uncharged %= u64::from(size + overhead);
            }
            self.rate.on_packet_bytes(size + overhead);
            self.records.on_resize(now, size);
        }
    }

    /// A datagram of `bytes` was answered.
    pub(crate) fn handle_answer(&mut self, now: Instant, bytes: u16) {
        if usize::from(bytes) <= self.negotiated.profile.keepalive_bytes {
            return;
        }
        if let Some(pmtud) = &mut self.pmtud {
            pmtud.unanswered = pmtud.unanswered.saturating_sub(1);
        }
        self.search(now, |search, pace| search.on_answer(now, bytes.into(), pace));
    }

    /// An ICMP message limits IP packets to `bytes`.
    pub(crate) fn handle_size_hint(&mut self, now: Instant, bytes: u32) {
        self.search(now, |search, pace| search.on_hint(now, bytes, pace));
    }

    /// This host refuses to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. Returns whether smaller ones can be sent.
    pub(crate) fn handle_size_refused(
        &mut self,
        now: Instant,
        bytes: u32,
        limit: Option<u32>,
    ) -> bool {
        let mut helped = false;
        self.search(now, |search, pace| helped = search.on_refused(now, bytes, limit, pace));
        helped
    }

    /// OK came.
    pub(super) fn on_size_accepted(&mut self) {
        if let Some(pmtud) = &mut self.pmtud {
            pmtud.search.on_accepted();
        }
    }

    pub(super) fn on_data_sent(&mut self, now: Instant, first: PacketNumber, bytes: usize) {
        if let Some(pmtud) = &mut self.pmtud {
            pmtud.search.on_sent(now, bytes as u32);
            if let Some(exempt @ SizeLossExemption::All) = &mut pmtud.exempt {
                *exempt = SizeLossExemption::Before(first);
            }
        }
    }

    /// A report has the size of arriving datagrams.
    pub(super) fn on_largest(&mut self, now: Instant, report: &Report) {
        if let Some(pmtud) = &mut self.pmtud
            && report.bytes > pmtud.arrived.1
        {
            pmtud.arrived = (pmtud.arrived.1, report.bytes);
        }
        self.search(now, |search, pace| {
            search.on_report(now, report.largest.into(), pace);
        });
    }

    /// GO came. If its packet size is not the one in use, the announcement was lost.
    pub(super) fn on_granted_size(&mut self, now: Instant, go: &Go) {
        let wanted = self.announced_packet_bytes();
        let timeout = self.rtt.timeout();
        let Some(pmtud) = &mut self.pmtud else { return };
        let other = wanted > 0 && go.packet_bytes != u32::from(wanted);
        if other && pmtud.announcement.is_none() && pmtud.announced_at + timeout <= now {
            pmtud.announcement = Some((now, 1));
        }
    }

    /// Losses without those of probes and of packets lost for their size. `highest`: the highest
    /// packet in the report.
    pub(super) fn lost_for_other_reasons(
        &mut self,
        now: Instant,
        highest: PacketNumber,
        lost: u64,
    ) -> u64 {
        let (pace, known) = (self.pace(), self.records.stats.data_packets_lost);
        let Some(pmtud) = &mut self.pmtud else { return lost };
        let counted = lost.saturating_sub(pmtud.unanswered + pmtud.size_losses).max(known);
        if pmtud.search.hides_losses(now, &pace) {
            return known;
        }
        if let Some(exempt) = pmtud.exempt {
            pmtud.size_losses += counted - known;
            if matches!(exempt, SizeLossExemption::Before(first) if first <= highest) {
                pmtud.exempt = None;
            }
            return known;
        }
        // The short packet that ends a buffer may pass where no other does: losses that it shows
        // count only when a full one arrives.
        let (before, arrived) = pmtud.arrived;
        if arrived - before < u64::from(pmtud.known) {
            return known;
        }
        counted
    }

    pub(super) fn on_path_mtu_timer(&mut self, now: Instant) {
        self.search(now, |search, pace| search.handle_timeout(now, pace));
    }

    /// When the search probes or gives up, or the size is to be announced.
    pub(super) fn path_mtu_due(&self, now: Instant) -> Option<Instant> {
        let search = self.pmtud.as_ref()?.search.next_timeout(now, &self.pace());
        earliest([search, self.size_announcement_due()])
    }

    /// When the size is to be announced.
    pub(super) fn size_announcement_due(&self) -> Option<Instant> {
        let (at, _) = self.pmtud.as_ref()?.announcement?;
        (self.announced_packet_bytes() > 0).then_some(at)
    }

    /// The size was announced. It is repeated while nothing can be sent before the receiver has it.
    pub(super) fn on_size_announced(&mut self, now: Instant) {
        let again = self.waits_for_size();
        let (interval, timeout) = (self.rtt.report_interval(), self.rtt.timeout());
        let Some(pmtud) = &mut self.pmtud else { return };
        pmtud.announced_at = now;
        pmtud.announcement = match pmtud.announcement {
            Some((_, left)) if left > 1 => Some((now + interval, left - 1)),
            _ if again => Some((now + timeout, 1)),
            _ => None,
        };
    }

    /// Appends the probe that is due and returns its length.
    pub(super) fn put_probe(
        &mut self,
        now: Instant,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let least = self.negotiated.profile.keepalive_bytes;
        let pmtud = self.pmtud.as_mut()?;
        let size = pmtud.search.next_probe()? as usize;
        pmtud.unanswered += 1;
        let padding = size.saturating_sub(least);
        let padding = u16::try_from(padding).unwrap_or(u16::MAX);
        let before = out.len();
        let probe = Keepalive { answer_wanted: true, padding, ..Keepalive::default() };
        let number: PacketNumber = codec.put_keepalive(out, probe);
        // Padding does not count, here or at the receiver.
        self.note_sent(now, number, 1, least as u64);
        Some(out.len() - before)
    }
}
