//! Numbers that must not be confused with each other, as types.

use std::fmt;
use std::time::Duration;

/// Bytes per second on the wire. Pacing rates count whole IP packets (`docs/protocol §6.1`), so
/// that a rate compares with the nominal rate of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rate(u64);

impl Rate {
    /// Nothing at all.
    pub const ZERO: Self = Self(0);

    /// A rate of `n` bytes per second.
    pub const fn from_bytes_per_second(n: u64) -> Self {
        Self(n)
    }

    /// A rate of `n` bits per second, rounded down to whole bytes.
    pub const fn from_bits_per_second(n: u64) -> Self {
        Self(n / 8)
    }

    /// Bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }

    /// Bits per second, saturating.
    pub const fn bits_per_second(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Megabits (10^6) per second.
    pub fn mbps(self) -> f64 {
        self.0 as f64 * 8.0 / 1e6
    }

    /// `bytes` over `time`; zero for no time at all.
    pub fn over(bytes: u64, time: Duration) -> Self {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return Self::ZERO;
        }
        Self(u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
    }

    /// How long `bytes` take at this rate; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many bytes pass in `time`, saturating.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// This rate times `numerator / denominator`; `denominator` must not be zero.
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let rate = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_second() as f64;
        match bits {
            b if b >= 1e9 => write!(f, "{:.2} Gbit/s", b / 1e9),
            b if b >= 1e6 => write!(f, "{:.1} Mbit/s", b / 1e6),
            b if b >= 1e3 => write!(f, "{:.1} kbit/s", b / 1e3),
            b => write!(f, "{b:.0} bit/s"),
        }
    }
}

/// Burst size and burst interval (RFC 998 §4: "burst rate"), the pacer's quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Packets in a burst, at least 1.
    pub packets: u32,
    /// From the start of one burst to the start of the next.
    /// Whole milliseconds on the `rfc998` wire, whole microseconds on `sealed`.
    pub interval: Duration,
}

impl Burst {
    /// Whichever lets fewer packets leave in the mean; this one if they do the same.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        let per_packet = |burst: Self| burst.interval.as_nanos() / u128::from(burst.packets.max(1));
        if per_packet(other) > per_packet(self) { other } else { self }
    }

    /// The stricter of both in each (RFC 998 §4): fewer packets, a longer interval.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            packets: self.packets.min(other.packets),
            interval: self.interval.max(other.interval),
        }
    }
}

/// The number of a buffer within a transfer; the first is 1 (`docs/protocol §2.1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferNumber(pub u64);

impl BufferNumber {
    /// The first buffer of every transfer.
    pub const FIRST: Self = Self(1);

    /// The buffer after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The index of a packet within its buffer; the first is 0 (RFC 998's "packet number").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketIndex(pub u32);

/// The number of a packet within one direction of a connection, in the order of sending.
/// Never used twice: a resend gets a new one (`docs/protocol §5.4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(pub u64);

/// The sequence number of a control message (RFC 998 §5.2.1), widened to 32 bits; the `rfc998`
/// wire carries the low 16. The first message is 1; 0 means "none". Compared by wrapping
/// arithmetic, so that a transfer may outlive the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ControlSeq(pub u32);

impl ControlSeq {
    /// The sequence number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this number is `other` or was handed out after it.
    pub const fn reaches(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) < 1 << 31
    }

    /// The number nearest to `self` whose low 16 bits are `low`.
    pub const fn widen(self, low: u16) -> Self {
        let ahead = low.wrapping_sub(self.0 as u16) as i16;
        Self(self.0.wrapping_add_signed(ahead as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_are_inverse() {
        let rate = Rate::from_bits_per_second(200_000_000);
        assert_eq!(rate.time_for(1500), Duration::from_micros(60));
        assert_eq!(rate.bytes_in(Duration::from_micros(60)), 1500);
        assert_eq!(Rate::over(1500, Duration::from_micros(60)), rate);
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Rate::over(1, Duration::ZERO), Rate::ZERO);
    }

    #[test]
    fn sequence_numbers_compare_across_the_wrap() {
        assert!(ControlSeq(0).reaches(ControlSeq(u32::MAX)));
        assert!(!ControlSeq(u32::MAX).reaches(ControlSeq(0)));
        assert!(ControlSeq(7).reaches(ControlSeq(7)));
    }

    #[test]
    fn sixteen_bits_widen_to_the_nearest_number() {
        assert_eq!(ControlSeq(0x0001_fffe).widen(3), ControlSeq(0x0002_0003));
        assert_eq!(ControlSeq(0x0002_0003).widen(0xfffe), ControlSeq(0x0001_fffe));
        assert_eq!(ControlSeq(5).widen(5), ControlSeq(5));
    }
}
