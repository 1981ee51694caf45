//! What the client of a machine decides before it starts.

pub mod identity;

use std::net::IpAddr;
use std::time::Duration;

use crate::crypto::cipher::Cipher;
pub use crate::crypto::secret::Secret;
pub use crate::fec::{Repair, Share};
use crate::limits::{
    DEFAULT_BUFFER_BYTES, DEFAULT_DATAGRAM_BYTES, DEFAULT_DEATH_TIMER, DEFAULT_OUTSTANDING,
    DEFAULT_TABLE_BYTES, FIRST_BUFFERS, IPV4_HEADER_BYTES, MAX_REMEMBERED, RFC998_BUFFER_MEMORY,
    RFC998_BUFFERS, UDP_HEADER_BYTES,
};
use crate::loss_detection::RecoveryLaw;
pub use crate::stats::Remembered;
use crate::units::Rate;
pub use crate::wire::Wire;
use crate::wire::packet::{Burst, Mode};
pub use identity::{Authorized, Identity, NoKey, PublicKey, StaticKey};

/// Which end of the data this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data leave from here.
    Sender,
    /// Data arrive here.
    Receiver,
}

impl Role {
    /// The mode an active end with this role asks for.
    pub fn mode_when_active(self) -> Mode {
        match self {
            Self::Sender => Mode::Write,
            Self::Receiver => Mode::Read,
        }
    }

    /// The role that an OPEN with this mode leaves to the passive end.
    pub fn left_by(mode: Mode) -> Self {
        match mode {
            Mode::Write => Self::Receiver,
            Mode::Read => Self::Sender,
        }
    }
}

/// How many buffers of so many bytes a program has at first, if nobody says.
pub fn first_buffers(wire: Wire, buffer_bytes: u32) -> u32 {
    match wire {
        Wire::Sealed => FIRST_BUFFERS,
        Wire::Rfc998 => (RFC998_BUFFER_MEMORY / buffer_bytes.max(1)).clamp(2, RFC998_BUFFERS),
    }
}

/// The burst values of an end that leaves them to the other one.
pub const NO_LIMIT: Burst = Burst { packets: u16::MAX as u32, interval: Duration::ZERO };

/// What a fixed sender keeps to: a rate, or burst values. Either way it is bounded: a pace without
/// time between its bursts cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(pub(crate) Told);

/// How a [`Pace`] was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Rate(Rate),
    Bursts(Burst),
}

impl Pace {
    /// So many bytes of IP packets a second; `None` for a rate of nothing.
    pub fn rate(rate: Rate) -> Option<Self> {
        (rate > Rate::ZERO).then_some(Self(Told::Rate(rate)))
    }

    /// These burst values; `None` if they have no packets, or no time between bursts, which would
    /// be as fast as the host can.
    pub fn bursts(burst: Burst) -> Option<Self> {
        let bounded = burst.packets > 0 && !burst.interval.is_zero();
        bounded.then_some(Self(Told::Bursts(burst)))
    }
}

/// How the sender chooses its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// RFC 998: this pace, or the stricter one that was negotiated, whatever the path says.
    Fixed(Pace),
    /// Finds the path's rate by itself and shares it: CUBIC that excuses loss which a test found
    /// not to be its own doing, and that keeps a short queue where it has the path for itself
    /// (`docs/design/rate-control.md`). On `rfc998`, where nothing is reported, and where a round
    /// trip may take a second or more, an older law (`docs/decisions/adaptive-rate.md`).
    Fair {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// Takes what nobody else wants, and yields to everybody who does, down to two packets a round
    /// trip (`sealed`; on `rfc998` it counts as [`Policy::Fair`]).
    Background {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// As [`Policy::Fair`], but takes as much as four of them where others are (`sealed`; on
    /// `rfc998` it counts as [`Policy::Fair`]).
    Aggressive {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// CUBIC (RFC 9438), which answers every loss as congestion (`sealed`; on `rfc998` it counts as
    /// [`Policy::Fair`]).
    Cubic {
        /// Never faster than this.
        ceiling: Option<Rate>,
    },
    /// Another protocol's rules (`sealed`; on `rfc998` its rate law alone would be nothing, and it
    /// counts as [`Policy::Fair`]).
    Recreated(Recreation),
}

impl Policy {
    /// The ceiling that it was told; `None` where it has none, and where its rate is no ceiling.
    pub const fn ceiling(self) -> Option<Rate> {
        match self {
            Self::Fair { ceiling }
            | Self::Background { ceiling }
            | Self::Aggressive { ceiling }
            | Self::Cubic { ceiling } => ceiling,
            Self::Fixed(_) | Self::Recreated(_) => None,
        }
    }

    /// The same with another ceiling, where it can have one.
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

    /// Its name in a word, as options have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair { .. } => "fair",
            Self::Background { .. } => "background",
            Self::Aggressive { .. } => "aggressive",
            Self::Cubic { .. } => "cubic",
            Self::Fixed(_) => "fixed",
            Self::Recreated(of) => of.protocol.name(),
        }
    }

    /// Whether a transfer on `wire` may go over from this to `next`: from any of ours to any of
    /// ours, on `rfc998` only to another ceiling. What is agreed on at the opening stays.
    pub(crate) fn may_become(self, next: Self, wire: Wire) -> bool {
        let ours = |policy| !matches!(policy, Self::Recreated(_));
        let same = self.with_ceiling(None) == next.with_ceiling(None);
        same || wire == Wire::Sealed && ours(self) && ours(next)
    }
}

/// The ceiling of a sender's rate, in place of the one that its policy was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ceiling {
    /// The one that it was told.
    #[default]
    AsTold,
    /// None.
    Lifted,
    /// This one, in bytes of IP packets.
    At(Rate),
}

/// What a client may change while a transfer runs (`docs/protocol.md §6.9`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// Sender: in place of [`Config::policy`].
    pub policy: Option<Policy>,
    /// Sender: in place of the policy's own. Receiver: what it lets the sender send, in place of
    /// what it was told; within what was agreed on.
    pub ceiling: Ceiling,
    /// Nothing is sent, or nothing more granted.
    pub paused: bool,
}

/// A bulk protocol whose rules are followed instead of ours, on our wire: its rate law, its order
/// of sending and its recovery, not its packets (`docs/protocol.md §6.8`). `sealed` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
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
    /// The same with acknowledgements counted, one for every other packet: Linux 2.4's.
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

impl Protocol {
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

    /// What stands for it in the header of DATA (`docs/protocol.md §3.1`); never 0.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The one that `code` stands for, if any.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.code() == code)
    }

    /// Its name in a word, for options, traces and reports.
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

/// A [`Protocol`], and what its user tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recreation {
    /// Which.
    pub protocol: Protocol,
    /// The rate it is told: RBUDP's, which it keeps whatever happens (without one it sends as fast
    /// as Tsunami begins); Tsunami's target; the speed of FOBS's slower card; to all others a
    /// ceiling.
    pub rate: Option<Rate>,
    /// Most bytes that a window law may have in flight: a TCP's socket buffer.
    pub window_bytes: Option<u64>,
}

impl Recreation {
    /// `protocol` as it comes.
    pub const fn of(protocol: Protocol) -> Self {
        Self { protocol, rate: None, window_bytes: None }
    }
}

/// Everything a machine is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which wire.
    pub wire: Wire,
    /// Which end of the data.
    pub role: Role,
    /// Passive end: take whichever end of the data the OPEN leaves over, and never mind `role`.
    pub any_role: bool,
    /// What both ends share: required on `sealed`, unless there is an [`Self::identity`].
    pub secret: Option<Secret>,
    /// The static key by which this end proves itself instead, and the peer's (`sealed`,
    /// `docs/protocol.md §4.8`). With it `secret` is not looked at.
    pub identity: Option<Identity>,
    /// Bytes in a buffer (`sealed`: its data area, a power of two from 2^10 to 2^26).
    pub buffer_bytes: u32,
    /// Bytes a buffer may have beyond its data area (`sealed`: its extent table).
    pub table_bytes: u32,
    /// Largest datagram (UDP payload) to send or ask for, in bytes.
    pub datagram_bytes: u32,
    /// Bytes of IP and UDP header on each datagram, counted by rates.
    pub overhead_bytes: u32,
    /// Whether a peer may come over IPv4 all the same where [`Self::overhead_bytes`] has IPv6's
    /// header: of such a one the difference is taken off.
    pub either_version: bool,
    /// Burst values to propose where the policy is not [`Policy::Fixed`], whose pace is proposed
    /// instead: for a sender its ceiling, for a receiver the most it wants to get. What is
    /// negotiated binds a fixed sender, and is the ceiling of a fair one. [`NO_LIMIT`] by default;
    /// on `rfc998` a sender's are 8 packets each millisecond.
    pub burst: Burst,
    /// Buffers to have outstanding at most.
    pub max_outstanding: u32,
    /// Bytes of packets that the socket holds until they are read, if the driver knows. A receiver
    /// of `sealed` grants no more than that, beside what a path may hold
    /// (`docs/protocol.md §6.2`), so that a burst never finds it full.
    pub socket_bytes: Option<u32>,
    /// Nothing heard for this long: the peer is dead.
    pub death_timer: Duration,
    /// NETBLT ports: ours and the other end's (`rfc998`, active end only).
    pub ports: (u16, u16),
    /// The cipher this end prefers (`sealed`).
    pub cipher: Cipher,
    /// Checksum the data (`rfc998` only).
    pub checksum: bool,
    /// How the sender chooses its rate.
    pub policy: Policy,
    /// What a sender spends on repair packets, so that a last loss costs no round trip (`sealed`,
    /// and where no other protocol's rules are followed; `docs/protocol.md §6.10`).
    pub repair: Repair,
    /// What is remembered of the paths to these peers: a sender that chooses its own rate tries
    /// half of it at first, a quarter after an hour. Only the first [`MAX_REMEMBERED`] are looked
    /// at.
    pub remembered: Vec<(IpAddr, Remembered)>,
    /// How a receiver finds what is missing.
    pub recovery: RecoveryLaw,
    /// Free-form string for the other client. On `rfc998` one that begins with `netblt` promises to
    /// give back the number in a RESPONSE (`docs/protocol.md §2.3`).
    pub client: String,
    /// Whether connections may branch from the one that opens (`sealed`, `docs/protocol.md §4.10`):
    /// an active end makes them, a passive one takes them.
    pub branches: bool,
    /// Whether a passive end on `rfc998` takes OPENs for forged until their sender has shown that
    /// it hears (`docs/protocol.md §2.3`). Without it, where nobody can forge an address.
    pub wary: bool,
    /// Length of the transfer, if the source knows it.
    pub transfer_bytes: Option<u64>,
    /// Whether trace events are recorded (see [`crate::trace`]).
    pub trace: bool,
}

impl Config {
    /// A configuration with the defaults of `docs/protocol.md §9`.
    pub fn new(wire: Wire, role: Role) -> Self {
        Self {
            wire,
            role,
            any_role: false,
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
                // Adaptive unless told otherwise, and then it is for the receiver to set limits.
                (Wire::Sealed, _) | (_, Role::Receiver) => NO_LIMIT,
            },
            max_outstanding: DEFAULT_OUTSTANDING,
            socket_bytes: None,
            death_timer: DEFAULT_DEATH_TIMER,
            ports: (1, 1),
            cipher: Cipher::preferred(),
            checksum: true,
            policy: Policy::Fair { ceiling: None },
            repair: Repair::Never,
            remembered: Vec::new(),
            recovery: RecoveryLaw::of(wire),
            client: match wire {
                Wire::Sealed => String::new(),
                Wire::Rfc998 => "netblt".to_owned(),
            },
            branches: false,
            wary: true,
            transfer_bytes: None,
            trace: false,
        }
    }
}

impl Config {
    /// What it spends on repair packets on its wire, by its policy.
    pub(crate) fn spends_on_repair(&self) -> Repair {
        match (self.wire, self.policy) {
            (Wire::Rfc998, _) => Repair::Never,
            // Nor is one that yields to everybody to send more than it must.
            (_, Policy::Recreated(_) | Policy::Background { .. }) => Repair::Never,
            (
                Wire::Sealed,
                Policy::Fixed(_)
                | Policy::Fair { .. }
                | Policy::Aggressive { .. }
                | Policy::Cubic { .. },
            ) => self.repair,
        }
    }

    /// What is remembered of the path to `peer`.
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
    fn a_pace_without_bound_cannot_be_made() {
        let burst =
            |packets, interval| Burst { packets, interval: Duration::from_micros(interval) };
        assert_eq!(Pace::bursts(NO_LIMIT), None);
        assert_eq!(Pace::bursts(burst(8, 0)), None);
        assert_eq!(Pace::bursts(burst(0, 1000)), None);
        assert_eq!(Pace::rate(Rate::ZERO), None);
        assert!(Pace::bursts(burst(8, 1)).is_some());
        assert!(Pace::rate(Rate::from_bytes_per_second(1)).is_some());
    }
}
