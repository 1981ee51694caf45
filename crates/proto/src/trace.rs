//! Trace events of a machine, for plots and for finding faults (as qlog).
//!
//! Recorded only when [`crate::config::Config::trace`] asks for it; polled like everything else.
//! The text form is one JSON object a line: `docs/reference/trace.md` lists every event and field.
//! Fields are only ever added.

mod json;
mod record;

use std::time::Duration;

use crate::config::Role;
use crate::timers::Timer;
use crate::units::Burst;
use crate::units::Rate;
use crate::wire::Wire;

pub(crate) use record::{Recorder, TraceQueue};

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The connection opened.
    Opened {
        /// The role of this end.
        role: Role,
        /// Over which wire.
        wire: Wire,
        /// Most bytes in a buffer, its table included.
        buffer_bytes: u32,
        /// Data bytes in a packet.
        packet_bytes: u32,
        /// Most buffers outstanding.
        max_outstanding: u32,
    },
    /// The connection closed.
    Closed {
        /// Why, in a word.
        how: &'static str,
    },
    /// Datagrams left: how many, and their bytes in all.
    Sent {
        /// Type byte of the first.
        kind: u8,
        /// How many.
        packets: u32,
        /// Bytes in all of them.
        bytes: u32,
    },
    /// An authentic datagram arrived.
    Received {
        /// Its type byte.
        kind: u8,
        /// Its bytes.
        bytes: u32,
        /// It was marked Congestion Experienced.
        marked: bool,
    },
    /// A datagram arrived that was not authentic.
    Dropped {
        /// Its bytes.
        bytes: u32,
    },
    /// The socket dropped datagrams since the last such event, where the system reports it.
    Overrun {
        /// How many so far, of any connection of this socket.
        datagrams: u32,
    },
    /// A buffer has reached a stage.
    Buffer {
        /// Its number; 0 if it has none yet.
        number: u64,
        /// Its stage.
        stage: Stage,
        /// Buffers outstanding now.
        outstanding: u32,
        /// Buffers that the client holds now. Sender: wanted, and its source has not filled them.
        /// Receiver: full ones that its disk has not given back.
        held: u32,
    },
    /// A RESEND for packets of a buffer was queued (receiver) or arrived (sender).
    Resend {
        /// The buffer.
        number: u64,
        /// How many packets.
        packets: u64,
    },
    /// Repair packets of a buffer were queued (sender), or packets of it were restored from them
    /// (receiver).
    Repair {
        /// The buffer.
        number: u64,
        /// How many packets.
        packets: u64,
    },
    /// A timer ran out.
    Timer {
        /// Which.
        timer: Timer,
    },
    /// Sender: it could send nothing for a while, and now it can.
    Waited {
        /// The cause.
        cause: BlockedCause,
        /// For how long.
        time: Duration,
    },
    /// Sender: the size of its datagrams changed.
    PacketSize {
        /// The largest to send from now on, in bytes.
        bytes: u32,
    },
    /// Sender: its rate and what it depends on; at most once a report (`rfc998`: once a control
    /// packet).
    Rate(RateLine),
    /// Sender: its congestion window changed, under a policy that has one.
    Window {
        /// Bytes of IP packets before.
        from: u64,
        /// Bytes of IP packets after.
        to: u64,
        /// The cause, in a word.
        cause: &'static str,
        /// The controller's mode from then on, in a word.
        mode: &'static str,
    },
    /// Sender: a test whether losses depend on its rate is over, under a policy that tests.
    Test {
        /// How it ended, in a word.
        verdict: &'static str,
        /// The part of the bottleneck that it was made against, in millionths.
        share_ppm: u64,
        /// Packets that were sent at the whole rate, and how many of these were lost.
        whole: (u64, u64),
        /// Packets that were sent at half the rate, and how many of these were lost.
        half: (u64, u64),
        /// The difference of the two loss shares that congestion would make, in millionths.
        limit_ppm: u64,
        /// The standard error of that difference, in millionths.
        error_ppm: u64,
    },
    /// Sender: losses are excused from now on, or no more, under a policy that excuses.
    Excuse {
        /// The excused loss share, in millionths.
        share_ppm: u64,
        /// Why, in a word.
        reason: &'static str,
    },
    /// Receiver: its state, with each control packet.
    Receiver(ReceiverLine),
    /// No packet of the peer has arrived for three seconds (`sealed`).
    Silent,
    /// After a silence, a packet of the peer has arrived.
    Answering,
    /// Events before this one were dropped, because the queue was full.
    Lost {
        /// How many.
        events: u64,
    },
}

/// How far a buffer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Receiver: the client hands in an empty one.
    Offered,
    /// Receiver: GO was queued. Sender: GO came, and the client is to fill it.
    Granted,
    /// Sender: the client filled it.
    Supplied,
    /// Its first packet left, or came.
    Begun,
    /// Sender: its first pass is over.
    Sent,
    /// Receiver: its last packet came, OK was queued, and the client has it.
    Filled,
    /// Sender: OK came. Receiver: the sender acknowledged the OK.
    Accepted,
    /// It went back to the client without being accepted.
    Released,
}

/// The causes that block a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedCause {
    /// The window is full.
    InFlight,
    /// Everything granted was sent: the receiver must send GO, OK or RESEND.
    Permission,
    /// The client has not filled the next buffer: its disk.
    Source,
    /// The client pauses.
    Paused,
}

/// The state of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLine {
    /// Phase of the rate law.
    pub phase: &'static str,
    /// The rate law's estimate of the path's rate, if it has one.
    pub bandwidth: Option<Rate>,
    /// Rate of sending now, in bytes of IP packets.
    pub pacing: Rate,
    /// Burst values now.
    pub burst: Burst,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Smallest round trip, as the rate law believes it or as it was measured.
    pub min_rtt: Option<Duration>,
    /// The estimated queueing delay.
    pub queue: Duration,
    /// The delay that only the reverse path adds to a round trip.
    pub way_back: Duration,
    /// Mean difference of one round trip to the next.
    pub varies_by: Duration,
    /// This sender's part of what the bottleneck carries, in millionths, if it is known.
    pub share_ppm: Option<u64>,
    /// Bytes in flight, where there is feedback.
    pub in_flight: Option<u64>,
    /// Most bytes that may be in flight.
    pub cap: Option<u64>,
    /// Buffers outstanding.
    pub outstanding: u32,
    /// Buffers that the client has to fill.
    pub held: u32,
    /// Data packets sent so far.
    pub sent: u64,
    /// Data packets sent again so far.
    pub resent: u64,
    /// Found missing so far.
    pub lost: u64,
    /// Arrived marked Congestion Experienced so far.
    pub marked: u64,
    /// Bytes of IP packets known to have arrived.
    pub delivered: u64,
    /// Bytes of buffers that the receiver has accepted: of its data, without headers.
    pub accepted_bytes: u64,
}

/// The state of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverLine {
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Buffers outstanding.
    pub outstanding: u32,
    /// Full buffers that the client has not given back.
    pub held: u32,
    /// Data packets that arrived and were new.
    pub received: u64,
    /// Data packets that arrived again.
    pub duplicate: u64,
    /// Found missing so far.
    pub lost: u64,
    /// Bytes of buffers that arrived.
    pub delivered: u64,
    /// Control messages unacknowledged.
    pub unacknowledged: u32,
}
