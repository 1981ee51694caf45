//! Path MTU discovery at the receiver (`docs/protocol §6.5`): the sizes of packets.
//!
//! Inputs: the sender's announcements of the packet size, and the fate of control packets. Outputs:
//! the geometry of new grants, which buffers must be granted again, and the size of control
//! packets.

use super::assemblies::Assemblies;
use crate::buffer::Geometry;
use crate::limits::MIN_SEALED_PACKET_BYTES;
use crate::negotiated::Negotiated;
use crate::pmtud::first_size;
use crate::units::{ControlSeq, PacketNumber};
use crate::wire::packet::NullAck;

/// A control packet that every path carries: the longest message, a RESEND of 64 ranges, fits.
const SAFE_CONTROL_BYTES: usize = 564;
/// Expiries of the control timer in a row after which control packets become short.
const MAX_EXPIRIES: u8 = 2;
/// Bytes of a control packet beside a message or the ranges of a RESEND, a REPORT among them.
const NOT_MESSAGE: usize = 128;

/// Sizes as the receiver knows them.
#[derive(Debug)]
pub(super) struct ReceiverPmtud {
    /// The packet size follows the sender's announcements; else it is the agreed one.
    follows: bool,
    /// The agreed sizes: of buffers and packets, of datagrams, and of control packets.
    agreed: Geometry,
    datagram_bytes: usize,
    control_bytes: usize,
    /// Bytes of a DATA datagram that are not data.
    overhead: u32,
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
    /// The state before an announcement.
    pub(super) fn new(negotiated: &Negotiated) -> Self {
        let (agreed, overhead) = (negotiated.geometry, negotiated.profile.data_overhead);
        Self {
            follows: negotiated.profile.discovers_mtu,
            agreed,
            datagram_bytes: negotiated.datagram_bytes,
            control_bytes: negotiated.control_bytes,
            overhead,
            packet_bytes: first_size(agreed.packet_bytes + overhead) - overhead,
            announced_by: None,
            renewing: false,
            renewed: None,
            expiries: 0,
        }
    }

    /// The geometry of new grants.
    pub(super) fn geometry(&self) -> Geometry {
        let packet_bytes = match self.follows {
            // Packets of odd size have no repair packets (`docs/protocol §6.10`).
            true => self.packet_bytes & !1,
            false => self.agreed.packet_bytes,
        };
        Geometry { packet_bytes, ..self.agreed }
    }

    /// Bytes of a datagram with a packet of new grants.
    pub(super) fn granted_datagram_bytes(&self) -> u32 {
        self.geometry().packet_bytes + self.overhead
    }

    /// Most bytes of a control packet.
    pub(super) fn control_limit(&self) -> usize {
        if !self.follows {
            return self.control_bytes;
        }
        let first = first_size(self.datagram_bytes as u32).min(self.packet_bytes + self.overhead);
        let is_short = self.expiries >= MAX_EXPIRIES;
        let most = if is_short { SAFE_CONTROL_BYTES } else { first as usize };
        most.max(SAFE_CONTROL_BYTES.min(self.datagram_bytes))
    }

    /// The same for a message, which cannot be cut later and must fit whatever the path becomes.
    pub(super) fn message_limit(&self) -> usize {
        match self.follows {
            true => self.datagram_bytes.min(SAFE_CONTROL_BYTES),
            false => self.control_bytes,
        }
    }

    /// Bytes of it for the ranges of a RESEND, or for a text.
    pub(super) fn message_room(&self) -> usize {
        self.message_limit().saturating_sub(NOT_MESSAGE)
    }

    /// The control timer expired: the reverse path's MTU may have become smaller too.
    pub(super) fn on_control_timer(&mut self) {
        self.expiries = self.expiries.saturating_add(1);
    }

    /// A message was acknowledged. Control packets stay short once they are.
    pub(super) fn on_acknowledged(&mut self) {
        if self.expiries < MAX_EXPIRIES {
            self.expiries = 0;
        }
    }

    /// This host refuses to send datagrams of `bytes`. Returns whether control packets can be
    /// smaller.
    pub(super) fn on_refused(&mut self, bytes: u32) -> bool {
        let helps = self.follows && bytes as usize > SAFE_CONTROL_BYTES;
        if helps {
            self.expiries = MAX_EXPIRIES;
        }
        helps
    }

    /// A NULL-ACK may announce the packet size. Returns whether it does: then new grants have it.
    pub(super) fn on_announced(&mut self, null_ack: &NullAck, assemblies: &Assemblies) -> bool {
        let newer = self.announced_by.is_none_or(|last| null_ack.number > last);
        if !self.follows || null_ack.packet_bytes == 0 || !newer {
            return false;
        }
        let agreed = self.agreed.packet_bytes;
        let bytes = u32::from(null_ack.packet_bytes);
        let bytes = bytes.clamp(agreed.min(MIN_SEALED_PACKET_BYTES), agreed);
        self.announced_by = Some(null_ack.number);
        // Buffers that were granted with smaller packets, and have not begun, are worth a new GO
        // too.
        self.renewing |= bytes < self.packet_bytes || assemblies.has_small(bytes);
        self.packet_bytes = bytes;
        true
    }

    /// Whether buffers of another packet size must be granted again.
    pub(super) fn renews(&self) -> bool {
        self.renewing
    }

    /// The GO `seq` granted a buffer again.
    pub(super) fn on_renewed(&mut self, seq: ControlSeq) {
        self.renewed = Some(seq);
    }

    /// All of them are granted again.
    pub(super) fn on_all_renewed(&mut self) {
        self.renewing = false;
    }

    /// Whether a sender that has every message up to `ack` has all renewed GOs: if not, its report
    /// of sent buffers may be of an old generation.
    pub(super) fn knows_renewals(&self, ack: ControlSeq) -> bool {
        !self.renewing && self.renewed.is_none_or(|seq| ack.reaches(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::tests::{negotiated, null_ack};
    use crate::wire::Wire;

    #[test]
    fn the_newest_announcement_counts_and_is_no_more_than_agreed() {
        let negotiated = negotiated(Wire::Sealed, 1);
        let (mut pmtud, none) =
            (ReceiverPmtud::new(&negotiated), Assemblies::new(negotiated.geometry));
        let mut announced = |number, bytes| {
            let is_news = pmtud.on_announced(&null_ack(number, ControlSeq(0), bytes), &none);
            (is_news, pmtud.geometry().packet_bytes)
        };
        assert_eq!(announced(5, 151), (true, 150), "even, for repair packets");
        assert_eq!(announced(4, 180), (false, 150), "it was overtaken");
        assert_eq!(announced(6, 0), (false, 150), "it announces none");
        assert_eq!(announced(7, 9000), (true, 200));
    }

    #[test]
    fn control_packets_become_short_when_none_is_acknowledged() {
        let mut agreed = negotiated(Wire::Sealed, 1);
        agreed.geometry.packet_bytes = 1424;
        agreed.datagram_bytes = 1472;
        let mut pmtud = ReceiverPmtud::new(&agreed);
        let long = pmtud.control_limit();
        pmtud.on_control_timer();
        pmtud.on_acknowledged();
        pmtud.on_control_timer();
        assert_eq!(pmtud.control_limit(), long);
        pmtud.on_control_timer();
        pmtud.on_acknowledged();
        assert_eq!(pmtud.control_limit(), SAFE_CONTROL_BYTES, "and they stay so");
        assert_eq!(pmtud.message_limit(), SAFE_CONTROL_BYTES);
        assert!(!pmtud.on_refused(SAFE_CONTROL_BYTES as u32), "they cannot be shorter");
    }
}
