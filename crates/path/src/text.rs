//! Quantities as people write them: `200 Mbit`, `1.8 s`, `0.0107 %`, `64 KiB`.
//!
//! One spelling for scenario files and for command lines. Numbers without a unit are refused: half
//! of the people who type one mean bits, the other half bytes, and both would be surprised.
//! Decimals are read exactly, not by way of floats.

use std::fmt;
use std::time::Duration;

use netblt_proto::units::Rate;

use crate::rng::Probability;

/// A quantity that cannot be understood, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    text: String,
    problem: Problem,
    expected: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    NoUnit,
    NotOne,
    TooLarge,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem, expected } = self;
        match problem {
            Problem::NoUnit => write!(f, "`{text}` has no unit: expected {expected}"),
            Problem::NotOne => write!(f, "`{text}` is not {expected}"),
            Problem::TooLarge => write!(f, "`{text}` is too large for {expected}"),
        }
    }
}

impl std::error::Error for TextError {}

const RATE: &str = "a rate such as 200Mbit (bits per second) or 25MB/s (bytes per second)";
const BYTES: &str = "a size such as 1500B, 64KiB or 10MB";
const DURATION: &str = "a time such as 70.6ms, 5s or 1h30m";
const SHARE: &str = "a share such as 1% or 50ppm, at most 100%";

/// Reads a rate: `200Mbit`, `1 Gbit/s`, `10Gbps`, `12.5MB/s`, `125kB`. Prefixes k, M, G, T, P are
/// powers of 1,000, Ki, Mi, Gi, Ti, Pi of 1,024; `b` is a bit and `B` a byte. Rounded down to whole
/// bytes per second.
pub fn parse_rate(text: &str) -> Result<Rate, TextError> {
    let fail = |problem| error(text, problem, RATE);
    let (number, unit) = Decimal::split(text.trim()).ok_or(fail(Problem::NotOne))?;
    if unit.is_empty() {
        return Err(fail(Problem::NoUnit));
    }
    let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
    let (multiplier, unit) = prefix(unit);
    let bits = match unit {
        "bit" | "bits" | "b" => 1,
        "B" | "byte" | "bytes" => 8,
        "" => return Err(fail(Problem::NoUnit)),
        _ => return Err(fail(Problem::NotOne)),
    };
    let bits = number.times(multiplier * bits).ok_or(fail(Problem::TooLarge))?;
    Ok(Rate::from_bits_per_second(bits))
}

/// Reads a number of bytes: `1500B`, `64 KiB`, `10MB`, `1.5G`. Prefixes as in [`parse_rate`].
pub fn parse_bytes(text: &str) -> Result<u64, TextError> {
    let fail = |problem| error(text, problem, BYTES);
    let (number, unit) = Decimal::split(text.trim()).ok_or(fail(Problem::NotOne))?;
    let (multiplier, rest) = prefix(unit);
    match rest {
        "B" | "byte" | "bytes" => {}
        "" if !unit.is_empty() => {}
        "" if number.digits == 0 => {}
        "" => return Err(fail(Problem::NoUnit)),
        _ => return Err(fail(Problem::NotOne)),
    }
    number.times(multiplier).ok_or(fail(Problem::TooLarge))
}

/// Reads a time: `50us`, `70.6 ms`, `1.8s`, `5min`, `1h30m`, `2d`. Rounded down to nanoseconds.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    let fail = |problem| error(text, problem, DURATION);
    let mut rest = text.trim();
    let mut total = 0_u64;
    loop {
        let (number, tail) = Decimal::split(rest).ok_or(fail(Problem::NotOne))?;
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let nanos = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" | "min" => 60 * 1_000_000_000,
            "h" => 3600 * 1_000_000_000,
            "d" => 86_400 * 1_000_000_000,
            "" if number.digits == 0 => 1,
            "" => return Err(fail(Problem::NoUnit)),
            _ => return Err(fail(Problem::NotOne)),
        };
        let nanos = number.times(nanos).ok_or(fail(Problem::TooLarge))?;
        total = total.checked_add(nanos).ok_or(fail(Problem::TooLarge))?;
        rest = tail.trim_start();
        if rest.is_empty() {
            return Ok(Duration::from_nanos(total));
        }
    }
}

/// Reads how often something happens: `1%`, `0.0107 %`, `50ppm`, `3 ppb`. Rounded down to parts
/// per billion.
pub fn parse_percent(text: &str) -> Result<Probability, TextError> {
    let fail = |problem| error(text, problem, SHARE);
    let (number, unit) = Decimal::split(text.trim()).ok_or(fail(Problem::NotOne))?;
    let ppb = match unit {
        "%" => 10_000_000,
        "ppm" => 1_000,
        "ppb" => 1,
        "" if number.digits == 0 => 1,
        "" => return Err(fail(Problem::NoUnit)),
        _ => return Err(fail(Problem::NotOne)),
    };
    let ppb = number.times(ppb).and_then(|ppb| u32::try_from(ppb).ok());
    match ppb.filter(|&ppb| ppb <= Probability::ALWAYS.ppb()) {
        Some(ppb) => Ok(Probability::from_ppb(ppb)),
        None => Err(fail(Problem::TooLarge)),
    }
}

fn error(text: &str, problem: Problem, expected: &'static str) -> TextError {
    TextError { text: text.to_owned(), problem, expected }
}

/// Takes a prefix of multiplication off a unit.
fn prefix(unit: &str) -> (u64, &str) {
    let power = match unit.chars().next() {
        Some('k' | 'K') => 1,
        Some('m' | 'M') => 2,
        Some('g' | 'G') => 3,
        Some('t' | 'T') => 4,
        Some('p' | 'P') => 5,
        _ => return (1, unit),
    };
    match unit[1..].strip_prefix('i') {
        Some(rest) => (1 << (10 * power), rest),
        None => (1000_u64.pow(power), &unit[1..]),
    }
}

/// A decimal number, exactly.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    /// All its digits, as if it had no point.
    digits: u64,
    /// How many of them are behind the point.
    behind: u32,
}

impl Decimal {
    /// Takes a number off the front of `text`. Returns the rest without the spaces between.
    pub(crate) fn split(text: &str) -> Option<(Self, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // Digits below a billionth of a billionth have no use.
        let fraction = &fraction[..fraction.len().min(18)];
        let digits = format!("{whole}{fraction}").parse().ok()?;
        if number.ends_with('.') || whole.is_empty() {
            return None;
        }
        Some((Self { digits, behind: fraction.len() as u32 }, rest.trim_start()))
    }

    /// This many times `unit`, rounded down; `None` beyond 64 bits.
    pub(crate) fn times(self, unit: u64) -> Option<u64> {
        let product = u128::from(self.digits) * u128::from(unit);
        u64::try_from(product / 10_u128.pow(self.behind)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let table = [
            ("200Mbit", 25_000_000),
            ("200 Mbit/s", 25_000_000),
            ("1Gbit/s", 125_000_000),
            ("10Gbps", 1_250_000_000),
            ("0.4 gbit", 50_000_000),
            ("12.5MB/s", 12_500_000),
            ("125kB", 125_000),
            ("1KiB/s", 1024),
            ("1 Mibit", 131_072),
            ("3TB/s", 3_000_000_000_000),
            ("56 kbit", 7_000),
            ("9600bit", 1_200),
            ("0bit", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_rate(text), Ok(Rate::from_bytes_per_second(bytes)), "{text}");
        }
        for text in ["", "Mbit", "1.2.3Mbit", ".5Mbit", "1.Mbit", "-1Mbit", "1Xbit", "1Mfoo", "ä"]
        {
            assert_eq!(parse_rate(text).unwrap_err().problem, Problem::NotOne, "{text}");
        }
        for text in ["200", "200M", "200 M/s", "1Gi"] {
            assert_eq!(parse_rate(text).unwrap_err().problem, Problem::NoUnit, "{text}");
        }
        assert_eq!(parse_rate("99999999 TB/s").unwrap_err().problem, Problem::TooLarge);
    }

    #[test]
    fn sizes() {
        let table = [
            ("1500B", 1500),
            ("64 KiB", 65_536),
            ("10MB", 10_000_000),
            ("1.5G", 1_500_000_000),
            ("4Mi", 4_194_304),
            ("12 bytes", 12),
            ("0", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("1500").unwrap_err().problem, Problem::NoUnit);
        assert_eq!(parse_bytes("8Mbit").unwrap_err().problem, Problem::NotOne);
        assert_eq!(parse_bytes("18446744073709551616B").unwrap_err().problem, Problem::NotOne);
        assert_eq!(parse_bytes("18446744073709551615kB").unwrap_err().problem, Problem::TooLarge);
    }

    #[test]
    fn times() {
        let table = [
            ("70.6 ms", 70_600_000),
            ("1.8s", 1_800_000_000),
            ("50us", 50_000),
            ("50 µs", 50_000),
            ("7ns", 7),
            ("1h30m", 5_400_000_000_000),
            ("1 min 30 s", 90_000_000_000),
            ("2d", 172_800_000_000_000),
            ("0", 0),
        ];
        for (text, nanos) in table {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, problem) in [
            ("100", Problem::NoUnit),
            ("1h30", Problem::NoUnit),
            ("soon", Problem::NotOne),
            ("1 fortnight", Problem::NotOne),
            ("1s,", Problem::NotOne),
            ("999999999d", Problem::TooLarge),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().problem, problem, "{text}");
        }
    }

    #[test]
    fn shares() {
        let table =
            [("1 %", 10_000_000), ("0.0107%", 107_000), ("50ppm", 50_000), ("3 ppb", 3), ("0", 0)];
        for (text, ppb) in table {
            assert_eq!(parse_percent(text), Ok(Probability::from_ppb(ppb)), "{text}");
        }
        assert_eq!(parse_percent("100%"), Ok(Probability::ALWAYS));
        assert_eq!(parse_percent("100.1%").unwrap_err().problem, Problem::TooLarge);
        assert_eq!(parse_percent("0.01").unwrap_err().problem, Problem::NoUnit);
    }

    #[test]
    fn errors_name_the_right_form() {
        let said = |error: TextError| error.to_string();
        assert_eq!(
            said(parse_rate("200").unwrap_err()),
            "`200` has no unit: expected a rate such as 200Mbit (bits per second) or 25MB/s \
             (bytes per second)"
        );
        assert_eq!(
            said(parse_duration("soon").unwrap_err()),
            "`soon` is not a time such as 70.6ms, 5s or 1h30m"
        );
    }
}
