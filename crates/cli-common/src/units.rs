//! Numbers with units: how options are read and how results are written.
//!
//! Options are read as scenario files are (`netblt_path::text`), so that one spelling works
//! everywhere.

use std::fmt;
use std::time::Duration;

use netblt_path::text;
use netblt_proto::limits::{BUFFER_BYTES, MAX_BURST_INTERVAL, SEALED_BUFFER_BYTES};
use netblt_proto::units::Rate;

use crate::exit::Failure;

/// The protocol's bounds for the death timer (`docs/protocol §9`).
const DEATH_TIMER: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(49 * 86_400);

/// A whole number within bounds. The error for another text names them.
pub fn number<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |value| {
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match most {
            u64::MAX => format!("a whole number from {least} up is wanted"),
            most => format!("a whole number from {least} to {most} is wanted"),
        })
    }
}

/// `--rate`: never zero.
pub fn rate(value: &str) -> Result<Rate, String> {
    let rate = text::parse_rate(value).map_err(|error| error.to_string())?;
    if rate == Rate::ZERO {
        return Err("a rate is greater than zero".to_owned());
    }
    Ok(rate)
}

/// Any length of time.
pub fn duration(value: &str) -> Result<Duration, String> {
    text::parse_duration(value).map_err(|error| error.to_string())
}

/// How long a listener waits for a peer; `None`: until it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

impl Default for Patience {
    /// A ticket that was not used in a day is forgotten, and so is a port that stands open for it.
    fn default() -> Self {
        Self(Some(Duration::from_secs(24 * 3600)))
    }
}

/// `--wait`.
pub fn patience(value: &str) -> Result<Patience, String> {
    match value {
        "none" => Ok(Patience(None)),
        time => duration(time).map(|time| Patience(Some(time))),
    }
}

/// `--death-timer`.
pub fn death_timer(value: &str) -> Result<Duration, String> {
    let time = duration(value)?;
    if DEATH_TIMER.contains(&time) {
        Ok(time)
    } else {
        Err("the death timer is from 1s to 49 days".to_owned())
    }
}

/// Any number of bytes.
pub fn bytes(value: &str) -> Result<u64, String> {
    text::parse_bytes(value).map_err(|error| error.to_string())
}

/// `--buffer-size`: any size. [`sealed_buffer_bytes`] checks it for `sealed`.
pub fn buffer_bytes(value: &str) -> Result<u32, String> {
    let bytes = bytes(value)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| BUFFER_BYTES.contains(bytes))
        .ok_or_else(|| "a buffer has 1 byte to 64MiB".to_owned())
}

/// Whether a buffer can have this size on the `sealed` wire (`docs/protocol §3.2`).
pub fn sealed_buffer_bytes(bytes: u32) -> Result<(), Failure> {
    if bytes.is_power_of_two() && SEALED_BUFFER_BYTES.contains(&bytes) {
        return Ok(());
    }
    Err(Failure::usage(
        "--buffer-size: a buffer is a power of two from 1KiB to 64MiB (--wire rfc998: of any size)",
    ))
}

/// A size as `--buffer-size` takes it.
pub fn size_option(bytes: u32) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    }
}

/// `--burst-interval`: what either wire can say (`docs/protocol §2, §3.2`).
pub fn burst_interval(value: &str) -> Result<Duration, String> {
    let time = duration(value)?;
    if (Duration::from_micros(1)..=MAX_BURST_INTERVAL).contains(&time) {
        Ok(time)
    } else {
        Err("a burst interval is from 1us to 65s".to_owned())
    }
}

/// `1.20 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    scaled(bytes, 1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

fn scaled(bytes: u64, step: f64, units: [&str; 6]) -> String {
    if (bytes as f64) < step {
        let plural = if bytes == 1 { "" } else { "s" };
        return format!("{bytes} byte{plural}");
    }
    let (mut size, mut unit) = (bytes as f64 / step, 0);
    while size >= step - 0.005 && unit + 1 < units.len() {
        size /= step;
        unit += 1;
    }
    format!("{size:.2} {}", units[unit])
}

/// `--size`: a number of bytes, to be written in the kind of unit that it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number.
    pub bytes: u64,
    /// It came in powers of 1,000.
    decimal: bool,
}

/// Any number of bytes, with its kind of unit.
pub fn size(value: &str) -> Result<Size, String> {
    let decimal = !value.contains(['i', 'I']);
    bytes(value).map(|bytes| Size { bytes, decimal })
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.decimal {
            true => scaled(self.bytes, 1000.0, ["kB", "MB", "GB", "TB", "PB", "EB"]),
            false => show_bytes(self.bytes),
        })
    }
}

/// `1,103,221`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `93.4 Mbit/s`.
pub fn show_rate(bits_per_second: f64) -> String {
    // Saturates, and makes zero of an invalid number.
    Rate::from_bits_per_second(bits_per_second as u64).to_string()
}

/// `104.7 MB/s`: in bytes.
pub fn show_byte_rate(bits_per_second: f64) -> String {
    match bits_per_second / 8.0 {
        b if b >= 1e9 => format!("{:.2} GB/s", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB/s", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB/s", b / 1e3),
        b => format!("{b:.0} B/s"),
    }
}

/// A time that a user chose: `a day`, `3 h`, `20 s`, and else as [`show_duration`] has it.
pub fn show_patience(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds, time.subsec_nanos()) {
        (86_400, 0) => "a day".to_owned(),
        (s, 0) if s > 0 && s % 3600 == 0 => format!("{} h", s / 3600),
        (s, 0) if s > 0 && s % 60 == 0 => format!("{} min", s / 60),
        (1..60, 0) => format!("{seconds} s"),
        _ => show_duration(time),
    }
}

/// `350 ms`, `12.3 s`, `2 min 05 s`, `3 h 02 min`.
pub fn show_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 10 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A time, in seconds since 1970, as `2026-11-22 20:15` (UTC).
pub fn show_time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The days of 400 years that begin with a March, so that leap days come last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest / 60 % 60)
}

/// `1.3 %` of `whole`.
pub fn show_share(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    match share {
        s if s > 0.0 && s < 0.01 => "<0.01 %".to_owned(),
        s if s > 0.0 && s < 1.0 => format!("{s:.2} %"),
        s => format!("{s:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(show_bytes(1023), "1023 bytes");
        assert_eq!(show_bytes(1 << 20), "1.00 MiB");
        assert_eq!(show_bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(show_bytes(u64::MAX), "16.00 EiB");
        for (text, shown) in [
            ("1TB", "1.00 TB"),
            ("1000GB", "1.00 TB"),
            ("1PB", "1.00 PB"),
            ("1500B", "1.50 kB"),
            ("1TiB", "1.00 TiB"),
            ("10 B", "10 bytes"),
        ] {
            assert_eq!(size(text).map(|size| size.to_string()), Ok(shown.to_owned()), "{text}");
        }
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_rate(93.4e6), "93.4 Mbit/s");
        assert_eq!(show_rate(f64::NAN), "0 bit/s");
        assert_eq!(show_byte_rate(8e9), "1.00 GB/s");
        assert_eq!(show_duration(Duration::from_micros(250)), "0.2 ms");
        assert_eq!(show_duration(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(show_duration(Duration::from_secs(125)), "2 min 05 s");
        assert_eq!(show_duration(Duration::MAX), "5124095576030431 h 00 min");
        for (seconds, time) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (1_795_378_532, "2026-11-22 20:15"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(show_time(seconds), time);
        }
        assert_eq!(show_share(1, 0), "0.0 %");
        assert_eq!(show_share(1, 200), "0.50 %");
        assert_eq!(show_share(1, 1_000_000), "<0.01 %");
    }

    #[test]
    fn options_have_bounds() {
        assert_eq!(buffer_bytes("1MiB"), Ok(1 << 20));
        assert_eq!(buffer_bytes("14320B"), Ok(14_320));
        assert_eq!(buffer_bytes("1B"), Ok(1));
        assert!(buffer_bytes("0B").is_err());
        assert!(sealed_buffer_bytes(3 << 20).is_err() && sealed_buffer_bytes(512).is_err());
        assert!(burst_interval("0ms").is_err() && burst_interval("66s").is_err());
        for bytes in [16, 14_320, 16 << 10, 3 << 20, 1 << 26] {
            assert_eq!(buffer_bytes(&size_option(bytes)), Ok(bytes));
        }
        assert!(buffer_bytes("128MiB").is_err());
        assert!(death_timer("100ms").is_err());
        assert_eq!(death_timer("5s"), Ok(Duration::from_secs(5)));
        assert!(rate("0Mbit").is_err());
        let port = number::<u16>(1, 65_535);
        assert_eq!(port("2222"), Ok(2222));
        for wrong in ["abc", "", "-1", "0", "65536", "1.5", "99999999999999999999"] {
            assert_eq!(port(wrong), Err("a whole number from 1 to 65535 is wanted".to_owned()));
        }
        let seed = number::<u64>(0, u64::MAX);
        assert_eq!(seed("x"), Err("a whole number from 0 up is wanted".to_owned()));
    }
}
