//! The timers of a connection, each with its reason.
//!
//! The component that owns a timer has a method `deadline`, which says when the timer expires, and
//! a method `expire`, which says what happens then. The wake-up ([`Endpoint::next_timer`]) and the
//! handling ask the same `deadline`. How long a timer runs is a constant of its component.
//!
//! A new timer needs a variant here, a place in `ACTIONS` or `OUTPUTS`, a name, an arm of
//! `deadline` and of `expire`, and its name in the reference of traces.
//!
//! Timers in `ACTIONS` expire in `handle_timeout`, in this order. Those in `OUTPUTS` say when
//! `poll_transmit` has a packet.
//!
//! [`Endpoint::next_timer`]: crate::endpoint::Endpoint::next_timer

use crate::time::Instant;

/// A timer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Before the connection is open.
    Handshake(HandshakeTimer),
    /// Of either role.
    Connection(ConnectionTimer),
    /// Of the end that sends data.
    Sender(SenderTimer),
    /// Of the end that receives data.
    Receiver(ReceiverTimer),
}

/// The timers of an active end whose connection is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeTimer {
    /// A handshake packet leaves, perhaps again (RFC 998 §5.1; `docs/protocol §4.1`).
    Packet,
    /// The opening has failed: no answer came in time, or a refusal stood.
    Failure,
    /// The address of a subflow was not validated in time.
    Subflow,
}

/// The timers of a connection of either role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionTimer {
    /// A pending QUIT leaves in the middle of a buffer, for the peer is silent.
    QuitPending,
    /// QUIT leaves, or was repeated often enough (RFC 998 §5.3.2).
    Quit,
    /// The dally after a QUIT of the peer is over.
    Drain,
    /// No packet of the peer came for the whole death timer (RFC 998 §5.4).
    Death,
    /// The peer has forgotten the connection: it said UNKNOWN, and nothing authentic.
    Forgotten,
    /// The peer's host refused packets for too long.
    Unreachable,
    /// A KEEPALIVE that wants an answer leaves, for the peer is silent.
    KeepaliveProbe,
    /// The client learns that the peer is silent.
    Silent,
    /// A KEEPALIVE leaves, so that the peer's death timer does not expire.
    Keepalive,
    /// BRANCH leaves again.
    Branch,
    /// The transfer made no progress, although the peer answered. It has no deadline: arriving
    /// packets are counted.
    Stalled,
    /// A packet of the handshake, of validation or of closing waits to leave.
    Outbox,
    /// CHALLENGE leaves, to an address that is not validated.
    Challenge,
    /// The passive end's number goes back to it, until it knows that the address is true.
    Echo,
}

/// The timers of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTimer {
    /// The dally at the end is over (RFC 998 §5.3.3).
    Dally,
    /// Path MTU discovery probes again, gives a probe up, or announces a size.
    PathMtu,
    /// Packets that an acknowledgement implies have arrived by now, on a wire without REPORTs.
    Inferred,
    /// The rate law's own timer.
    Rate,
    /// All outstanding data count as lost, by the rule of an emulated protocol.
    AllLost,
    /// No feedback for several round trips.
    Feedback,
    /// A NULL-ACK leaves, unless data leave before.
    NullAck,
    /// The pacer lets the next burst leave.
    Pacing,
    /// The open circuit breaker lets one packet through (RFC 8084).
    Breaker,
}

/// The timers of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverTimer {
    /// The control timer: a message was not acknowledged in time (RFC 998 §5.2.2).
    Control,
    /// The data timer of a buffer; on `sealed` the time without arrivals (RFC 998 §5.2.4).
    Data,
    /// A control packet leaves.
    ControlPacket,
}

impl Timer {
    /// Its name; a trace has those that the reference of traces explains.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake(timer) => match timer {
                HandshakeTimer::Packet => "handshake",
                HandshakeTimer::Failure => "handshake_failure",
                HandshakeTimer::Subflow => "subflow",
            },
            Self::Connection(timer) => timer.name(),
            Self::Sender(timer) => timer.name(),
            Self::Receiver(timer) => match timer {
                ReceiverTimer::Control => "control",
                ReceiverTimer::Data => "data",
                ReceiverTimer::ControlPacket => "control_packet",
            },
        }
    }
}

impl ConnectionTimer {
    pub(crate) const ACTIONS: [Self; 10] = [
        Self::QuitPending,
        Self::Quit,
        Self::Drain,
        Self::Death,
        Self::Forgotten,
        Self::Unreachable,
        Self::KeepaliveProbe,
        Self::Silent,
        Self::Keepalive,
        Self::Branch,
    ];
    pub(crate) const OUTPUTS: [Self; 3] = [Self::Outbox, Self::Challenge, Self::Echo];

    /// Whether a trace says whenever it expires.
    pub(crate) const fn is_traced(self) -> bool {
        matches!(
            self,
            Self::Death
                | Self::Forgotten
                | Self::Unreachable
                | Self::KeepaliveProbe
                | Self::Keepalive
        )
    }

    const fn name(self) -> &'static str {
        match self {
            Self::QuitPending => "quit_pending",
            Self::Quit => "quit",
            Self::Drain => "drain",
            Self::Death => "death",
            Self::Forgotten => "forgotten",
            Self::Unreachable => "unreachable",
            Self::KeepaliveProbe => "peer_probe",
            Self::Keepalive => "keepalive",
            Self::Silent => "silent",
            Self::Branch => "branch",
            Self::Stalled => "stalled",
            Self::Outbox => "outbox",
            Self::Challenge => "challenge",
            Self::Echo => "echo",
        }
    }
}

impl SenderTimer {
    pub(crate) const ACTIONS: [Self; 6] =
        [Self::Dally, Self::PathMtu, Self::Inferred, Self::Rate, Self::AllLost, Self::Feedback];
    pub(crate) const OUTPUTS: [Self; 3] = [Self::NullAck, Self::Pacing, Self::Breaker];

    const fn name(self) -> &'static str {
        match self {
            Self::Dally => "dally",
            Self::PathMtu => "path_mtu",
            Self::Inferred => "inferred",
            Self::Rate => "rate",
            Self::AllLost => "all_lost",
            Self::Feedback => "feedback",
            Self::NullAck => "null_ack",
            Self::Pacing => "pacing",
            Self::Breaker => "breaker",
        }
    }
}

impl ReceiverTimer {
    pub(crate) const ACTIONS: [Self; 2] = [Self::Control, Self::Data];
    pub(crate) const OUTPUTS: [Self; 1] = [Self::ControlPacket];
}

impl From<HandshakeTimer> for Timer {
    fn from(timer: HandshakeTimer) -> Self {
        Self::Handshake(timer)
    }
}

impl From<ConnectionTimer> for Timer {
    fn from(timer: ConnectionTimer) -> Self {
        Self::Connection(timer)
    }
}

impl From<SenderTimer> for Timer {
    fn from(timer: SenderTimer) -> Self {
        Self::Sender(timer)
    }
}

impl From<ReceiverTimer> for Timer {
    fn from(timer: ReceiverTimer) -> Self {
        Self::Receiver(timer)
    }
}

/// The timer that expires first, and when; of several at once the first one.
pub(crate) fn first(
    timers: impl IntoIterator<Item = (Timer, Option<Instant>)>,
) -> Option<(Timer, Instant)> {
    let set = timers.into_iter().filter_map(|(timer, at)| Some((timer, at?)));
    set.min_by_key(|(_, at)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer that is in no list would never expire; one in two would expire twice.
    #[test]
    fn every_timer_of_a_sender_and_a_receiver_is_in_one_list() {
        let sender: Vec<_> = [&SenderTimer::ACTIONS[..], &SenderTimer::OUTPUTS].concat();
        // The number of the last variant counts them.
        assert_eq!(sender.len(), SenderTimer::Breaker as usize + 1);
        let receiver = [&ReceiverTimer::ACTIONS[..], &ReceiverTimer::OUTPUTS].concat();
        assert_eq!(receiver.len(), ReceiverTimer::ControlPacket as usize + 1);
        // One has no deadline.
        let connection = [&ConnectionTimer::ACTIONS[..], &ConnectionTimer::OUTPUTS].concat();
        assert_eq!(connection.len() + 1, ConnectionTimer::Echo as usize + 1);
        assert!(!connection.contains(&ConnectionTimer::Stalled));
        let is_once = |n: usize| sender.iter().filter(|timer| **timer as usize == n).count() == 1;
        assert!((0..sender.len()).all(is_once), "{sender:?}");
    }
}
