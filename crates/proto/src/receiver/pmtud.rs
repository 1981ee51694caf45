//! Path MTU discovery at the receiver (`docs/protocol §6.5`): the sender announces the packet
//! size, new GOs carry it, and buffers granted with larger packets are granted again.

use super::Receiver;
use crate::buffer::Geometry;
use crate::limits::MIN_SEALED_PACKET_BYTES;
use crate::negotiated::Negotiated;
use crate::pmtud::first_size;
use crate::time::Instant;
use crate::units::{ControlSeq, PacketNumber};
use crate::wire::packet::{Go, Message, NullAck};

/// A control packet that every path carries: the longest message, a RESEND of 64 ranges, fits.
const SAFE_CONTROL_BYTES: usize = 564;
/// Expiries of the control timer in a row after which control packets become short.
const MAX_EXPIRIES: u8 = 2;
/// Sizes as the receiver knows them.
#[derive(Debug)]
pub(super) struct ReceiverPmtud {
    /// Data bytes per packet in new GOs.
    packet_bytes: u32,
    /// The sender's packet that announced it.
    announced_by: Option<PacketNumber>,
    /// Some buffers must be granted again.
    renewing: bool,
    /// The newest GO that granted a buffer again.
    renewed: Option<ControlSeq>,
    /// Expiries of the control timer since the last acknowledgement.
    expiries: u8,
}

impl ReceiverPmtud {
    /// The state before an announcement, where packets of `agreed` data bytes were negotiated and
    /// have `overhead` bytes more.
    pub(super) fn new(agreed: u32, overhead: u32) -> Self {
        let packet_bytes = first_size(agreed + overhead) - overhead;
        Self { packet_bytes, announced_by: None, renewing: false, renewed: None, expiries: 0 }
    }
}

/// Most bytes of a message, which cannot be cut later and must fit whatever the path becomes.
pub(super) fn message_limit(negotiated: &Negotiated) -> usize {
    match negotiated.profile.discovers_mtu {
        true => negotiated.datagram_bytes.min(SAFE_CONTROL_BYTES),
        false => negotiated.control_bytes,
    }
}

impl Receiver {
    /// The geometry of new grants.
    pub(super) fn geometry(&self) -> Geometry {
        let packet_bytes = match self.negotiated.profile.discovers_mtu {
            // Packets of odd size have no repair packets (`docs/protocol §6.10`).
            true => self.pmtud.packet_bytes & !1,
            false => self.negotiated.geometry.packet_bytes,
        };
        Geometry { packet_bytes, ..self.negotiated.geometry }
    }

    /// Most bytes of a control packet.
    pub(super) fn control_limit(&self) -> usize {
        let agreed = self.negotiated.datagram_bytes;
        if !self.negotiated.profile.discovers_mtu {
            return self.negotiated.control_bytes;
        }
        let overhead = self.negotiated.profile.data_overhead;
        let first = first_size(agreed as u32).min(self.pmtud.packet_bytes + overhead);
        let reverse_spacing = self.pmtud.expiries >= MAX_EXPIRIES;
        let most = if reverse_spacing { SAFE_CONTROL_BYTES } else { first as usize };
        most.max(SAFE_CONTROL_BYTES.min(agreed))
    }

    /// The same for a message.
    pub(super) fn message_limit(&self) -> usize {
        message_limit(&self.negotiated)
    }

    /// The control timer expired: the reverse path's MTU may have become smaller too.
    pub(super) fn on_control_expiry(&mut self) {
        self.pmtud.expiries = self.pmtud.expiries.saturating_add(1);
    }

    /// A message was acknowledged. Control packets stay short once they are.
    pub(super) fn on_control_acked(&mut self) {
        if self.pmtud.expiries < MAX_EXPIRIES {
            self.pmtud.expiries = 0;
        }
    }

    /// The sender's announcement of the packet size.
    pub(super) fn on_size(&mut self, now: Instant, null_ack: &NullAck) {
        let newer = self.pmtud.announced_by.is_none_or(|last| null_ack.number > last);
        if !self.negotiated.profile.discovers_mtu || null_ack.packet_bytes == 0 || !newer {
            return;
        }
        let agreed = self.negotiated.geometry.packet_bytes;
        let bytes = u32::from(null_ack.packet_bytes);
        let bytes = bytes.clamp(agreed.min(MIN_SEALED_PACKET_BYTES), agreed);
        self.pmtud.announced_by = Some(null_ack.number);
        // Buffers that were granted with smaller packets, and have not begun, are worth a new GO
        // too.
        self.pmtud.renewing |= bytes < self.pmtud.packet_bytes || self.assemblies.has_small(bytes);
        self.pmtud.packet_bytes = bytes;
        self.grant(now);
    }

    /// Grants buffers again that were granted with packets too large to pass, or smaller than
    /// necessary.
    pub(super) fn renew(&mut self, now: Instant) {
        if !self.pmtud.renewing {
            return;
        }
        let geometry = self.geometry();
        for number in self.assemblies.of_other_size(geometry.packet_bytes) {
            if !self.control.has_room() {
                return;
            }
            let renewed = self.assemblies.renew(number, geometry);
            let Some((void, generation)) = renewed else { continue };
            self.stats.image_bytes = self.stats.image_bytes.saturating_sub(void);
            let seq = self.control.push(Message::Go(Go {
                first: number,
                count: 1,
                packet_bytes: geometry.packet_bytes,
                generation,
            }));
            self.requests.on_renewed(number);
            self.requests.on_granted(now, number, seq);
            self.assemblies.on_requested(number, seq);
            self.pmtud.renewed = Some(seq);
        }
        self.pmtud.renewing = false;
    }

    /// This host refuses to send datagrams of `bytes`. Returns whether control packets can be
    /// smaller.
    pub(crate) fn handle_size_refused(&mut self, bytes: u32) -> bool {
        let helps = self.negotiated.profile.discovers_mtu && bytes as usize > SAFE_CONTROL_BYTES;
        if helps {
            self.pmtud.expiries = MAX_EXPIRIES;
        }
        helps
    }

    /// Whether a sender that has every message up to `ack` has all renewed GOs: if not, its report
    /// of sent buffers may be of an old generation.
    pub(super) fn knows_renewals(&self, ack: ControlSeq) -> bool {
        !self.pmtud.renewing && self.pmtud.renewed.is_none_or(|seq| ack.reaches(seq))
    }
}
