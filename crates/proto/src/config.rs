//! The configuration of a machine, which its client chooses before the start.

pub mod identity;

use std::net::IpAddr;
use std::time::Duration;

use crate::crypto::cipher::Cipher;
pub use crate::crypto::secret::Secret;
pub use crate::fec::{FecPercent, FecPolicy};
use crate::limits::{
    DEFAULT_BUFFER_BYTES, DEFAULT_DATAGRAM_BYTES, DEFAULT_DEATH_TIMER, DEFAULT_OUTSTANDING,
    DEFAULT_TABLE_BYTES, FIRST_BUFFERS, IPV4_HEADER_BYTES, MAX_REMEMBERED, RFC998_BUFFER_MEMORY,
    RFC998_BUFFERS, UDP_HEADER_BYTES,
};
use crate::loss_detection::LossDetection;
pub use crate::stats::Remembered;
use crate::units::Rate;
pub use crate::wire::Wire;
use crate::wire::packet::{Burst, TransferMode};
pub use identity::{AuthorizedKeys, Identity, InvalidPublicKey, PublicKey, StaticKey};

/// The role of this machine in the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data leave from here.
    Sender,
    /// Data arrive here.
    Receiver,
}

impl Role {
    /// The mode an active end with this role asks for.
    pub fn mode_when_active(self) -> TransferMode {
        match self {
            Self::Sender => TransferMode::Write,
            Self::Receiver => TransferMode::Read,
        }
    }

    /// The role that an OPEN with this mode leaves to the passive end.
    pub fn left_by(mode: TransferMode) -> Self {
        match mode {
            TransferMode::Write => Self::Receiver,
            TransferMode::Read => Self::Sender,
        }
    }
}

/// The default number of buffers of `buffer_bytes` at the start.
pub fn first_buffers(wire: Wire, buffer_bytes: u32) -> u32 {
    match wire {
        Wire::Sealed => FIRST_BUFFERS,
        Wire::Rfc998 => (RFC998_BUFFER_MEMORY / buffer_bytes.max(1)).clamp(2, RFC998_BUFFERS),
    }
}

/// The burst values of an end that sets no limit.
pub const UNLIMITED_BURST: Burst = Burst { packets: u16::MAX as u32, interval: Duration::ZERO };

/// The rate of the policy `fixed`, as a rate or as burst values. It is always finite: burst values
/// without an interval are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedRate(pub(crate) FixedRateSpec);

/// The form in which a [`FixedRate`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FixedRateSpec {
    Rate(Rate),
    Bursts(Burst),
}

impl FixedRate {
    /// A rate in bytes of IP packets per second; `None` for zero.
    pub fn rate(rate: Rate) -> Option<Self> {
        (rate > Rate::ZERO).then_some(Self(FixedRateSpec::Rate(rate)))
    }

    /// Burst values; `None` if they have no packets, or no interval, which would be as fast as the
    /// host can.
    pub fn bursts(burst: Burst) -> Option<Self> {
        let bounded = burst.packets > 0 && !burst.interval.is_zero();
        bounded.then_some(Self(FixedRateSpec::Bursts(burst)))
    }
}

/// How the sender chooses its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Policy {
    /// RFC 998: this rate, or the stricter negotiated one, whatever the path carries.
    #[cfg_attr(feature = "serde", serde(skip))]
    Fixed(FixedRate),
    /// Finds the path's rate and shares it: CUBIC that excuses loss which a test found not to
    /// depend on its rate, and that keeps a short queue where it is alone on the path
    /// (`docs/design/rate-control.md`). On `rfc998`, which has no REPORTs, and where a round trip
    /// may take a second or more, an older law (`docs/decisions/adaptive-rate.md`).
    Fair {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// Less than best effort (RFC 6297): takes only capacity that other traffic leaves, down to two
    /// packets per round trip (`sealed`; on `rfc998` it counts as [`Policy::Fair`]).
    Background {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// As [`Policy::Fair`], but takes the share of four such flows among others (`sealed`; on
    /// `rfc998` it counts as [`Policy::Fair`]).
    Aggressive {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// CUBIC (RFC 9438), which treats every loss as congestion (`sealed`; on `rfc998` it counts as
    /// [`Policy::Fair`]).
    Cubic {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// The rules of another protocol (`sealed`; on `rfc998` it counts as [`Policy::Fair`]).
    #[cfg_attr(feature = "serde", serde(skip))]
    Emulated(Emulation),
}

impl Policy {
    /// Its ceiling; `None` if it has none, or if its rate is no ceiling.
    pub const fn ceiling(self) -> Option<Rate> {
        match self {
            Self::Fair { ceiling }
            | Self::Background { ceiling }
            | Self::Aggressive { ceiling }
            | Self::Cubic { ceiling } => ceiling,
            Self::Fixed(_) | Self::Emulated(_) => None,
        }
    }

    /// The policy with another ceiling, where it can have one.
    #[must_use]
    pub const fn with_ceiling(self, ceiling: Option<Rate>) -> Self {
        match self {
            Self::Fair { .. } => Self::Fair { ceiling },
            Self::Background { .. } => Self::Background { ceiling },
            Self::Aggressive { .. } => Self::Aggressive { ceiling },
            Self::Cubic { .. } => Self::Cubic { ceiling },
            other => other,
        }
    }

    /// Its name as in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair { .. } => "fair",
            Self::Background { .. } => "background",
            Self::Aggressive { .. } => "aggressive",
            Self::Cubic { .. } => "cubic",
            Self::Fixed(_) => "fixed",
            Self::Emulated(of) => of.protocol.name(),
        }
    }

    /// Whether a transfer on `wire` may change from this policy to `next`: between any that are not
    /// emulated, on `rfc998` only to another ceiling. The negotiated parameters stay.
    pub(crate) fn may_become(self, next: Self, wire: Wire) -> bool {
        let ours = |policy| !matches!(policy, Self::Emulated(_));
        let same = self.with_ceiling(None) == next.with_ceiling(None);
        same || wire == Wire::Sealed && ours(self) && ours(next)
    }
}

/// The ceiling of a sender's rate, in place of its policy's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ceiling {
    /// The policy's own.
    #[default]
    Configured,
    /// None.
    Unlimited,
    /// This rate, in bytes of IP packets per second.
    At(Rate),
}

/// Settings that a client may change while a transfer runs (`docs/protocol §6.9`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// Sender: in place of [`Config::policy`].
    pub policy: Option<Policy>,
    /// Sender: in place of the policy's own. Receiver: the limit for the sender, in place of the
    /// configured one, within the negotiated burst values.
    pub ceiling: Ceiling,
    /// The sender sends nothing, or the receiver grants nothing more.
    pub paused: bool,
}

/// A bulk protocol that is emulated on the `sealed` wire: its rate law, its order of sending and
/// its loss recovery, not its packets (`docs/protocol §6.8`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EmulatedProtocol {
    /// SABUL, of the University of Illinois at Chicago (2002).
    Sabul = 1,
    /// Tsunami, of Indiana University (2002).
    Tsunami = 2,
    /// FOBS: Fast Object-Based data transfer System (2002).
    Fobs = 3,
    /// Reliable Blast UDP, of QUANTA (2002).
    Rbudp = 4,
    /// UDT, which followed SABUL (2003).
    Udt = 5,
    /// TCP's window law of RFC 5681, with bytes counted (RFC 3465).
    Reno = 6,
    /// Reno with acknowledgements counted, one for every other packet: Linux 2.4's.
    RenoDelayed = 7,
    /// CUBIC (RFC 9438).
    Cubic = 8,
    /// HighSpeed TCP (RFC 3649).
    HighSpeed = 9,
    /// Scalable TCP (T. Kelly, 2003).
    Scalable = 10,
    /// BBR, version 1 (Google, 2016).
    Bbr = 11,
}

impl EmulatedProtocol {
    /// All of them, by their codes.
    pub const ALL: [Self; 11] = [
        Self::Sabul,
        Self::Tsunami,
        Self::Fobs,
        Self::Rbudp,
        Self::Udt,
        Self::Reno,
        Self::RenoDelayed,
        Self::Cubic,
        Self::HighSpeed,
        Self::Scalable,
        Self::Bbr,
    ];

    /// Its code in the header of DATA (`docs/protocol §3.1`); never 0.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The protocol with this code, if any.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.code() == code)
    }

    /// Its name in options, traces and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sabul => "sabul",
            Self::Tsunami => "tsunami",
            Self::Fobs => "fobs",
            Self::Rbudp => "rbudp",
            Self::Udt => "udt",
            Self::Reno => "reno",
            Self::RenoDelayed => "reno-delayed",
            Self::Cubic => "cubic",
            Self::HighSpeed => "highspeed",
            Self::Scalable => "scalable",
            Self::Bbr => "bbr",
        }
    }
}

/// An [`EmulatedProtocol`] and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// The protocol.
    pub protocol: EmulatedProtocol,
    /// RBUDP: the rate, which it keeps whatever happens (by default Tsunami's initial one).
    /// Tsunami: the target. FOBS: the speed of the slower card. All others: a ceiling.
    pub rate: Option<Rate>,
    /// Most bytes in flight of a window law: a TCP's socket buffer.
    pub window_bytes: Option<u64>,
}

impl Emulation {
    /// `protocol` with its defaults.
    pub const fn of(protocol: EmulatedProtocol) -> Self {
        Self { protocol, rate: None, window_bytes: None }
    }
}

/// The configuration of a machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which wire.
    pub wire: Wire,
    /// Which end of the data.
    pub role: Role,
    /// Passive end: take the role that the OPEN leaves, whatever `role` is.
    pub accept_any_role: bool,
    /// The shared secret: required on `sealed`, unless there is an [`Self::identity`].
    pub secret: Option<Secret>,
    /// The static key by which this end authenticates, and the peer's (`sealed`, `docs/protocol
    /// §4.8`). It takes the place of `secret`.
    pub identity: Option<Identity>,
    /// Bytes in a buffer (`sealed`: its data area, a power of two from 2^10 to 2^26).
    pub buffer_bytes: u32,
    /// Bytes a buffer may have beyond its data area (`sealed`: its extent table).
    pub table_bytes: u32,
    /// Largest datagram (UDP payload) to send or ask for, in bytes.
    pub datagram_bytes: u32,
    /// Bytes of IP and UDP header on each datagram, counted by rates.
    pub overhead_bytes: u32,
    /// Whether a peer may use IPv4 although [`Self::overhead_bytes`] has IPv6's header: the
    /// difference is subtracted then.
    pub either_version: bool,
    /// Burst values to propose where the policy is not [`Policy::Fixed`], which proposes its rate:
    /// for a sender its ceiling, for a receiver the most it accepts. The negotiated values bind a
    /// fixed sender, and are the ceiling of a fair one. [`UNLIMITED_BURST`] by default; on `rfc998`
    /// a sender's are 8 packets each millisecond.
    pub burst: Burst,
    /// Most outstanding buffers.
    pub max_outstanding: u32,
    /// Bytes of the socket's receive buffer, if the driver knows. A receiver of `sealed` grants no
    /// more than that and the bandwidth-delay product (`docs/protocol §6.2`), so that no burst
    /// overruns it.
    pub socket_bytes: Option<u32>,
    /// The peer is dead after this time without a packet.
    pub death_timer: Duration,
    /// NETBLT ports: local and peer's (`rfc998`, active end only).
    pub ports: (u16, u16),
    /// The cipher this end prefers (`sealed`).
    pub cipher: Cipher,
    /// Checksum the data (`rfc998` only).
    pub checksum: bool,
    /// How the sender chooses its rate.
    pub policy: Policy,
    /// The sender's repair packets, so that a loss at the end costs no round trip (`sealed`, and
    /// without emulation; `docs/protocol §6.10`).
    pub repair: FecPolicy,
    /// Saved rates and round trips of the paths to these peers: a sender that chooses its own rate
    /// starts at half of it, at a quarter after an hour. Only the first [`MAX_REMEMBERED`] count.
    pub remembered: Vec<(IpAddr, Remembered)>,
    /// The receiver's loss detection.
    pub recovery: LossDetection,
    /// Free-form string for the other client. On `rfc998` one that begins with `netblt` promises to
    /// return the number in a RESPONSE (`docs/protocol §2.3`).
    pub client: String,
    /// Whether connections may branch from this one (`sealed`, `docs/protocol §4.10`): an active
    /// end opens them, a passive one accepts them.
    pub branches: bool,
    /// Whether a passive end on `rfc998` validates the source address of an OPEN (`docs/protocol
    /// §2.3`). False only where addresses cannot be forged.
    pub validate_addresses: bool,
    /// Length of the transfer, if the source knows it.
    pub transfer_bytes: Option<u64>,
    /// Whether trace events are recorded (see [`crate::trace`]).
    pub trace: bool,
}

impl Config {
    /// A configuration with the defaults of `docs/protocol §9`.
    pub fn new(wire: Wire, role: Role) -> Self {
        Self {
            wire,
            role,
            accept_any_role: false,
            secret: None,
            identity: None,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            table_bytes: DEFAULT_TABLE_BYTES,
            datagram_bytes: DEFAULT_DATAGRAM_BYTES,
            overhead_bytes: IPV4_HEADER_BYTES + UDP_HEADER_BYTES,
            either_version: false,
            burst: match (wire, role) {
                (Wire::Rfc998, Role::Sender) => {
                    Burst { packets: 8, interval: Duration::from_millis(1) }
                }
                // Adaptive by default, so the receiver sets limits.
                (Wire::Sealed, _) | (_, Role::Receiver) => UNLIMITED_BURST,
            },
            max_outstanding: DEFAULT_OUTSTANDING,
            socket_bytes: None,
            death_timer: DEFAULT_DEATH_TIMER,
            ports: (1, 1),
            cipher: Cipher::preferred(),
            checksum: true,
            policy: Policy::Fair { ceiling: None },
            repair: FecPolicy::Never,
            remembered: Vec::new(),
            recovery: LossDetection::of(wire),
            client: match wire {
                Wire::Sealed => String::new(),
                Wire::Rfc998 => "netblt".to_owned(),
            },
            branches: false,
            validate_addresses: true,
            transfer_bytes: None,
            trace: false,
        }
    }
}

impl Config {
    /// The repair policy in force, by wire and rate policy.
    pub(crate) fn spends_on_repair(&self) -> FecPolicy {
        match (self.wire, self.policy) {
            (Wire::Rfc998, _) => FecPolicy::Never,
            // `background` sends no more than it must.
            (_, Policy::Emulated(_) | Policy::Background { .. }) => FecPolicy::Never,
            (
                Wire::Sealed,
                Policy::Fixed(_)
                | Policy::Fair { .. }
                | Policy::Aggressive { .. }
                | Policy::Cubic { .. },
            ) => self.repair,
        }
    }

    /// The saved rate and round trip of the path to `peer`.
    pub(crate) fn remembers(&self, peer: IpAddr) -> Option<Remembered> {
        let peer = peer.to_canonical();
        let mut known = self.remembered.iter().take(MAX_REMEMBERED);
        known.find(|(of, _)| of.to_canonical() == peer).map(|(_, what)| *what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_rate_without_bound_is_refused() {
        let burst =
            |packets, interval| Burst { packets, interval: Duration::from_micros(interval) };
        assert_eq!(FixedRate::bursts(UNLIMITED_BURST), None);
        assert_eq!(FixedRate::bursts(burst(8, 0)), None);
        assert_eq!(FixedRate::bursts(burst(0, 1000)), None);
        assert_eq!(FixedRate::rate(Rate::ZERO), None);
        assert!(FixedRate::bursts(burst(8, 1)).is_some());
        assert!(FixedRate::rate(Rate::from_bytes_per_second(1)).is_some());
    }
}
