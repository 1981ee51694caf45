//! How a receiver keeps to the packet size that reaches it (`docs/protocol.md §6.5`): the sender
//! says it, new GOs name it, and buffers granted with larger packets are granted anew.

use super::Receiver;
use super::assembly::Assembly;
use crate::buffer::Geometry;
use crate::limits::MIN_SEALED_PACKET_BYTES;
use crate::pmtud::first_size;
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{Go, Message, NullAck};

/// A control packet that every path takes: the longest message, a RESEND of 64 ranges, fits.
const SAFE_CONTROL_BYTES: usize = 564;
/// So many control timers run out, one after the other, before control packets are no longer.
const EXPIRIES: u8 = 2;
/// What the receiver knows of sizes.
#[derive(Debug)]
pub(super) struct Sizing {
    /// Data bytes in the packets that new GOs ask for.
    packet_bytes: u32,
    /// Which packet of the sender's said so.
    said: Option<PacketNumber>,
    /// Some buffers are to be granted anew.
    renewing: bool,
    /// The newest GO that granted a buffer anew.
    renewed: Option<ControlSeq>,
    /// Control timers that ran out since something was acknowledged.
    expiries: u8,
}

impl Sizing {
    /// Before the sender has said anything, where packets of `agreed` data bytes were agreed and
    /// have `overhead` bytes more.
    pub(super) fn new(agreed: u32, overhead: u32) -> Self {
        let packet_bytes = first_size(agreed + overhead) - overhead;
        Self { packet_bytes, said: None, renewing: false, renewed: None, expiries: 0 }
    }
}

impl Receiver {
    /// How buffers are cut that are granted now.
    pub(super) fn geometry(&self) -> Geometry {
        let packet_bytes = match self.negotiated.rules.sizes {
            // Odd ones have no repair packets (`docs/protocol.md §6.10`).
            true => self.sizing.packet_bytes & !1,
            false => self.negotiated.geometry.packet_bytes,
        };
        Geometry { packet_bytes, ..self.negotiated.geometry }
    }

    /// How long a control packet may be, in bytes.
    pub(super) fn control_limit(&self) -> usize {
        let agreed = self.negotiated.datagram_bytes;
        if !self.negotiated.rules.sizes {
            return self.negotiated.control_bytes;
        }
        let overhead = self.negotiated.rules.data_overhead;
        let first = first_size(agreed as u32).min(self.sizing.packet_bytes + overhead);
        let narrow = self.sizing.expiries >= EXPIRIES;
        let most = if narrow { SAFE_CONTROL_BYTES } else { first as usize };
        most.max(SAFE_CONTROL_BYTES.min(agreed))
    }

    /// The same for what cannot be cut later: it must fit whatever the path becomes.
    pub(super) fn message_limit(&self) -> usize {
        match self.negotiated.rules.sizes {
            true => self.negotiated.datagram_bytes.min(SAFE_CONTROL_BYTES),
            false => self.negotiated.control_bytes,
        }
    }

    /// The control timer ran out: the way back may have become narrow as well.
    pub(super) fn on_control_expiry(&mut self) {
        self.sizing.expiries = self.sizing.expiries.saturating_add(1);
    }

    /// Something was acknowledged. Control packets stay short once they had to be.
    pub(super) fn on_control_heard(&mut self) {
        if self.sizing.expiries < EXPIRIES {
            self.sizing.expiries = 0;
        }
    }

    /// What the sender says of the packet size.
    pub(super) fn on_size(&mut self, now: Instant, null_ack: &NullAck) {
        let newer = self.sizing.said.is_none_or(|said| null_ack.number > said);
        if !self.negotiated.rules.sizes || null_ack.packet_bytes == 0 || !newer {
            return;
        }
        let agreed = self.negotiated.geometry.packet_bytes;
        let bytes = u32::from(null_ack.packet_bytes);
        let bytes = bytes.clamp(agreed.min(MIN_SEALED_PACKET_BYTES), agreed);
        self.sizing.said = Some(null_ack.number);
        // What was granted in smaller packets, and has not begun, is worth a new GO too.
        self.sizing.renewing |= bytes < self.sizing.packet_bytes || self.is_small_for(bytes);
        self.sizing.packet_bytes = bytes;
        self.grant(now);
    }

    fn is_small_for(&self, packet_bytes: u32) -> bool {
        self.assemblies.values().any(|assembly| assembly.is_small(packet_bytes))
    }

    /// Grants anew what was granted with larger packets than pass, or smaller ones.
    pub(super) fn renew(&mut self, now: Instant) {
        if !self.sizing.renewing {
            return;
        }
        let geometry = self.geometry();
        let most = geometry.packet_bytes;
        let odd = |a: &Assembly| a.packet_bytes() > most || a.is_small(most);
        let odd = self.assemblies.iter().filter(|(_, assembly)| odd(assembly));
        let odd: Vec<BufferNumber> = odd.map(|(number, _)| *number).collect();
        for number in odd {
            let Some(assembly) = self.assemblies.get_mut(&number) else { continue };
            if !self.fifo.has_room(1) {
                return;
            }
            let void = assembly.renew(geometry) as u64;
            self.stats.image_bytes = self.stats.image_bytes.saturating_sub(void);
            let seq = self.fifo.push(Message::Go(Go {
                first: number,
                count: 1,
                packet_bytes: geometry.packet_bytes,
                generation: assembly.generation(),
            }));
            self.recovery.on_renewed(number);
            self.recovery.on_granted(now, number, seq);
            self.said(number, seq);
            self.sizing.renewed = Some(seq);
        }
        self.sizing.renewing = false;
    }

    /// This host does not send datagrams of `bytes`. Whether control packets can be smaller.
    pub(crate) fn handle_size_refused(&mut self, bytes: u32) -> bool {
        let helps = self.negotiated.rules.sizes && bytes as usize > SAFE_CONTROL_BYTES;
        if helps {
            self.sizing.expiries = EXPIRIES;
        }
        helps
    }

    /// Whether a sender that has every message up to `ack` knows of all GOs that were renewed: if
    /// not, what it says it has sent may be void.
    pub(super) fn knows_renewals(&self, ack: ControlSeq) -> bool {
        !self.sizing.renewing && self.sizing.renewed.is_none_or(|seq| ack.reaches(seq))
    }
}
