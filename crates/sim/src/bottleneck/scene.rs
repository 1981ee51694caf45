//! A scene: the bottleneck, the flows through it, and the time that counts.

use std::time::Duration;

use netblt_path::LinkOptions;
use netblt_proto::config::{EmulatedProtocol, Emulation, Policy};
use netblt_proto::units::Rate;

/// The flows, and the time over which they are counted.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The bottleneck.
    pub there: LinkOptions,
    /// The way back, which has no limit by default.
    pub back: LinkOptions,
    /// The flows on them.
    pub flows: Vec<FlowOptions>,
    /// Packets that are sent from here on are counted,
    pub from: Duration,
    /// and those that are sent from here on are not.
    pub until: Duration,
    /// A host takes up to this long to see what arrives.
    pub host_jitter: Duration,
    /// All chance is drawn from it.
    pub seed: u64,
}

/// One flow.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    /// The kind of its sender.
    pub kind: Kind,
    /// Its round trip beside the bottleneck's own delay.
    pub rtt: Duration,
    /// When it begins.
    pub start: Duration,
    /// When it ends, if it does before the scene does.
    pub stop: Option<Duration>,
    /// Its IP packets.
    pub packet_bytes: u32,
    /// Its packets are ECN-capable, and it answers marks.
    pub ecn: bool,
    /// Its data go the way back, against those of the others.
    pub reverse: bool,
    /// Its sender's host is suspended for the first part of every second.
    pub stands_still: Option<(Duration, Duration)>,
    /// Each one-way delay is kept.
    pub keeps_delays: bool,
}

/// The kind of a sender.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// netblt, by the law of a policy, which may be another protocol's.
    Ours(Policy),
    /// TCP.
    Tcp(TcpLaw, Supply),
    /// So many IP bytes a second, without any control.
    Steady(Rate),
}

/// How the window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpLaw {
    /// RFC 9438.
    Cubic,
    /// RFC 5681.
    Reno,
}

/// The supply of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Always something.
    Endless,
    /// So many IP bytes, once.
    Once(u64),
    /// So many IP bytes repeatedly, with a pause after each.
    Pieces(u64, Duration),
}

impl Kind {
    /// CUBIC that always has data.
    pub const CUBIC: Self = Self::Tcp(TcpLaw::Cubic, Supply::Endless);
    /// Reno that always has data.
    pub const RENO: Self = Self::Tcp(TcpLaw::Reno, Supply::Endless);
    /// BBR version 1, which is the one of the gallery.
    pub const BBR: Self = Self::Ours(Policy::Emulated(Emulation::of(EmulatedProtocol::Bbr)));
}

/// Bytes of a flow's IP packets, unless its setting names another size.
pub const PACKET_BYTES: u32 = 1500;

impl FlowOptions {
    /// A flow of `kind` that begins at `start` and never ends.
    pub fn new(kind: Kind, rtt: Duration, start: Duration) -> Self {
        Self {
            kind,
            rtt,
            start,
            stop: None,
            packet_bytes: PACKET_BYTES,
            ecn: false,
            reverse: false,
            stands_still: None,
            keeps_delays: false,
        }
    }
}

impl Scene {
    /// The `flows` through `there`, counted up to `until`.
    pub fn new(there: LinkOptions, flows: Vec<FlowOptions>, until: Duration, seed: u64) -> Self {
        Self {
            there,
            back: LinkOptions::default(),
            flows,
            from: Duration::ZERO,
            until,
            host_jitter: Duration::from_millis(1),
            seed,
        }
    }
}
