//! What one TCP stream would get, by the response functions of its kinds: the mean window, in
//! segments, at which a stream settles when packets are lost at random.

use std::time::Duration;

/// A kind of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// The standard since 1990 (RFC 5681).
    Reno,
    /// What most systems use (RFC 9438).
    Cubic,
    /// HighSpeed TCP (RFC 3649).
    HighSpeed,
    /// Scalable TCP (T. Kelly, 2003).
    Scalable,
}

/// Segments a HighSpeed stream has when it leaves Reno's ways (RFC 3649 §5, Low_Window).
const HIGHSPEED_LOW_WINDOW: f64 = 38.0;
/// Below this window a Scalable stream is a Reno one (Kelly's legacy window).
const SCALABLE_LEGACY_WINDOW: f64 = 16.0;
/// Kelly's a / b: 0.01 of a segment more for every segment acknowledged, 1/8 less for a loss.
const SCALABLE_A_OVER_B: f64 = 0.01 / 0.125;
/// (C (3 + beta) / (4 (1 - beta)))^(1/4) with C = 0.4 and beta = 0.7 (RFC 9438 §5.1).
const CUBIC_FACTOR: f64 = 1.054;

impl Tcp {
    /// All kinds, in the order of their years but for the usual one.
    pub const ALL: [Self; 4] = [Self::Reno, Self::Cubic, Self::HighSpeed, Self::Scalable];

    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "Reno",
            Self::Cubic => "CUBIC",
            Self::HighSpeed => "HighSpeed",
            Self::Scalable => "Scalable",
        }
    }

    /// The mean window in segments at a loss from 0 to 1; infinite without loss.
    pub fn window(self, loss: f64, rtt: Duration) -> f64 {
        // M. Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm"
        // (1997): one loss every 1/p packets, an acknowledgement for each.
        let reno = (1.5 / loss).sqrt();
        match self {
            Self::Reno => reno,
            // In the Reno-friendly region it behaves as Reno does (RFC 9438 §4.3).
            Self::Cubic => reno.max(CUBIC_FACTOR * (rtt.as_secs_f64() / loss).powf(0.75)),
            Self::HighSpeed => {
                let fast = 0.12 / loss.powf(0.835);
                if fast > HIGHSPEED_LOW_WINDOW { fast.max(reno) } else { reno }
            }
            Self::Scalable => reno.min(SCALABLE_LEGACY_WINDOW).max(SCALABLE_A_OVER_B / loss),
        }
    }

    /// Bits of data a second, were the link without limit; infinite without loss or round trip.
    pub fn bits_per_second(self, loss: f64, rtt: Duration, segment_bytes: u32) -> f64 {
        let rtt_seconds = rtt.as_secs_f64();
        if loss == 0.0 || rtt_seconds == 0.0 {
            return f64::INFINITY;
        }
        self.window(loss, rtt) * f64::from(segment_bytes) * 8.0 / rtt_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// RFC 9438 §5.2, Table 1: the mean windows at a round trip of 0.1 s.
    #[test]
    fn windows_are_those_of_rfc_9438() {
        for (loss, reno, highspeed, cubic) in [
            (1e-2, 12.0, 12.0, 12.0),
            (1e-3, 38.0, 38.0, 38.0),
            (1e-4, 120.0, 263.0, 187.0),
            (1e-5, 379.0, 1795.0, 1054.0),
            (1e-6, 1200.0, 12_280.0, 5926.0),
            (1e-7, 3795.0, 83_981.0, 33_325.0),
            (1e-8, 12_000.0, 574_356.0, 187_400.0),
        ] {
            let near = |tcp: Tcp, said: f64, part: f64| {
                let ours = tcp.window(loss, RTT);
                assert!((ours - said).abs() <= said * part + 0.5, "{tcp:?} {loss}: {ours} {said}");
            };
            // The table has 1.2 for the square root of 3/2.
            near(Tcp::Reno, reno, 0.021);
            near(Tcp::HighSpeed, highspeed, if loss > 1e-4 { 0.021 } else { 0.001 });
            near(Tcp::Cubic, cubic, if loss > 1e-4 { 0.021 } else { 0.001 });
        }
    }

    /// RFC 3649 §1: 10 Gbit/s with segments of 1,500 bytes over 100 ms is a window of 83,333
    /// segments, and needs no more than one loss in 5,000,000,000 packets of a Reno stream.
    #[test]
    fn ten_gigabit_needs_what_rfc_3649_says() {
        let window = |bps: f64| bps * RTT.as_secs_f64() / (1500.0 * 8.0);
        assert_eq!(window(10e9).floor(), 83_333.0);
        let reno = Tcp::Reno.window(1.0 / 5e9, RTT);
        assert!((83_333.0..83_333.0 * 1.05).contains(&reno), "{reno}");
        assert!(Tcp::HighSpeed.window(1e-7, RTT) > 83_000.0);
    }

    /// Kelly: the lines of Reno and Scalable meet at the legacy window, at a loss of 0.005.
    #[test]
    fn scalable_is_reno_below_its_legacy_window() {
        assert_eq!(Tcp::Scalable.window(0.01, RTT), Tcp::Reno.window(0.01, RTT));
        assert!((Tcp::Scalable.window(0.005, RTT) - 16.0).abs() < 1e-9);
        assert!((Tcp::Scalable.window(1e-5, RTT) - 8000.0).abs() < 1e-6);
    }

    #[test]
    fn without_loss_only_the_link_limits() {
        for tcp in Tcp::ALL {
            assert_eq!(tcp.bits_per_second(0.0, RTT, 1448), f64::INFINITY);
            assert_eq!(tcp.bits_per_second(0.1, Duration::ZERO, 1448), f64::INFINITY);
            // The more is lost the less there is.
            let rates = [1e-8, 1e-6, 1e-4, 4e-3, 1e-2, 0.5].map(|p| tcp.window(p, RTT));
            assert!(rates.is_sorted_by(|a, b| a >= b), "{tcp:?} {rates:?}");
        }
    }
}
