//! Handshake packets that wait to leave, and how they take turns with the connection.

use std::collections::VecDeque;

use crate::api::Route;
use crate::wire::sealed::PacketType;

/// Most handshake packets in the queue: any sender can provoke them, faster than they leave.
const MAX_REPLIES: usize = 16;

/// Handshake packets that only explain a refusal.
pub(crate) const EXPLANATIONS: [u8; 3] =
    [PacketType::Refused as u8, PacketType::Unknown as u8, PacketType::Key as u8];

/// The queue of handshake packets.
#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<(Route, Vec<u8>)>,
    /// The newest packet was one of these: now it is the connection's turn.
    replied: bool,
}

impl Replies {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a packet. When the queue is full, a packet that only explains is dropped, and any
    /// other replaces the oldest: a true peer sends again.
    pub(super) fn push(&mut self, to: Route, packet: Vec<u8>) {
        if self.queue.len() >= MAX_REPLIES {
            if matches!(packet.get(3), Some(kind) if EXPLANATIONS.contains(kind)) {
                return;
            }
            self.queue.pop_front();
        }
        self.queue.push_back((to, packet));
    }

    /// Queues the packets by which the client gives up. All of them leave.
    pub(super) fn extend(&mut self, packets: impl IntoIterator<Item = (Route, Vec<u8>)>) {
        self.queue.extend(packets);
    }

    /// Whether it is the turn of these packets, which changes with each call. A flood of OPENs does
    /// not starve the connection.
    pub(super) fn take_turn(&mut self) -> bool {
        !std::mem::take(&mut self.replied)
    }

    /// Appends the next packet. Returns its destination and length.
    pub(super) fn poll(&mut self, batch: &mut Vec<u8>) -> Option<(Route, usize)> {
        let (to, packet) = self.queue.pop_front()?;
        self.replied = true;
        batch.extend_from_slice(&packet);
        Some((to, packet.len()))
    }
}
