//! `netblt plan`: forecasts a transfer over a path, by arithmetic alone.

use std::time::Duration;

use clap::ValueEnum;
use netblt_path::forecast::{
    Carrier, Forecast, Framing, PROCESS_PACKETS, Question, Stream as TcpStream,
};
use netblt_path::rng::Probability;
use netblt_path::text;
use netblt_proto::config::Wire;
use netblt_proto::units::Rate;
use serde::Serialize;

use crate::args::WireName;
use crate::exit::{Code, Failure};
use crate::json;
use crate::outcome;
use crate::stdout;
use crate::units;

/// The version of the meaning of `--json`.
const VERSION: u32 = 1;

/// Work out what a path can carry, what that takes, and how long a transfer lasts
///
/// Nothing is sent: this is arithmetic. Times are those of a sender that has the path to itself and
/// a fixed rate (`netblt send --policy fixed`). A sender that finds the rate by itself needs some
/// round trips more.
/// The forecast of one TCP stream is the mean at random loss, by the response functions of Mathis
/// and others (Reno), RFC 9438 (CUBIC), RFC 3649 (HighSpeed) and Kelly (Scalable).
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The rate of the narrowest link of the path, such as 1Gbit
    #[arg(long, value_parser = units::rate)]
    rate: Rate,
    /// Round trip time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    /// Share of the packets that are lost, at most 50%
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = loss)]
    loss: Probability,
    /// Size of the IP packets, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = units::number::<u16>(576, 65_535))]
    mtu: u16,
    /// How much to transfer
    #[arg(long, value_parser = units::size)]
    size: Option<units::Size>,
    /// The framing of an IP packet on that link
    #[arg(long, value_enum, default_value_t = LinkType::Ethernet)]
    link: LinkType,
    /// How packets look
    #[arg(long, value_enum, default_value_t = WireName::Sealed)]
    wire: WireName,
    /// Over IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Directly on IP, without UDP (--wire rfc998)
    #[arg(long, conflicts_with = "ipv6")]
    raw_ip: bool,
    /// The slower host's work for each packet while the link is idle, such as 5us
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    host_time: Duration,
    /// Bytes in a buffer; by default 1MiB, or more if the path needs it
    #[arg(long, value_name = "SIZE", value_parser = units::buffer_bytes)]
    buffer_size: Option<u32>,
    /// Answer in JSON: one line, the event "plan" (or "error"). Fields are only ever added.
    #[arg(long)]
    json: bool,
}

/// The bytes that the rate of the link counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LinkType {
    /// Preamble, header, check sequence and gap: 38 bytes a packet
    Ethernet,
    /// Ethernet with a VLAN tag: 42 bytes
    Vlan,
    /// Ethernet with two VLAN tags: 46 bytes
    Qinq,
    /// PPP over Ethernet: 46 bytes
    Pppoe,
    /// None: the rate is that of IP packets
    RawIp,
}

impl LinkType {
    fn framing(self) -> Framing {
        match self {
            Self::Ethernet => Framing::Ethernet,
            Self::Vlan => Framing::Vlan,
            Self::Qinq => Framing::DoubleVlan,
            Self::Pppoe => Framing::Pppoe,
            Self::RawIp => Framing::Ip,
        }
    }
}

fn loss(value: &str) -> Result<Probability, String> {
    text::parse_percent(value).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Code {
    let question = question(args);
    let answer = question.and_then(|question| match Forecast::new(&question) {
        Ok(forecast) => Ok((question, forecast)),
        Err(error) => Err(Failure::usage(error.to_string())),
    });
    let printed = answer.and_then(|(question, forecast)| match args.json {
        true => json::event("plan", PlanData::new(args, &question, &forecast)),
        false => stdout::line(table(args, &question, &forecast).join("\n")),
    });
    outcome::end(printed, args.json)
}

fn question(args: &Args) -> Result<Question, Failure> {
    let wire = args.wire.wire();
    if let (Some(bytes), Wire::Sealed) = (args.buffer_size, wire) {
        units::sealed_buffer_bytes(bytes)?;
    }
    if args.raw_ip && wire == Wire::Sealed {
        return Err(Failure::usage("--raw-ip is for --wire rfc998"));
    }
    Ok(Question {
        rate: args.rate,
        rtt: args.rtt,
        loss: args.loss,
        mtu: u32::from(args.mtu),
        framing: args.link.framing(),
        carrier: match (args.raw_ip, args.ipv6) {
            (true, _) => Carrier::RawIp4,
            (_, true) => Carrier::Udp6,
            _ => Carrier::Udp4,
        },
        wire,
        processing: args.host_time,
        buffer_bytes: args.buffer_size,
        size: args.size.map(|size| size.bytes),
    })
}

/// The answer for people, line by line.
fn table(args: &Args, question: &Question, forecast: &Forecast) -> Vec<String> {
    let row = |name: &str, text: String| format!("{name:<11}{text}");
    let packet = &forecast.packet;
    let (goodput, buffers) = (forecast.goodput_bps, &forecast.buffers);
    let memory = units::show_bytes(buffers.memory_bytes);
    let mut lines = vec![
        row("Path", path(args, question)),
        row(
            "Packets",
            format!(
                "{} bytes of data in {} of IP, {} on the link; {} a second",
                packet.data_bytes,
                packet.ip_bytes,
                packet.wire_bytes,
                units::show_count(forecast.packets_per_second as u64)
            ),
        ),
        row(
            "Goodput",
            format!("at most {}, {} of the link", both(goodput), of_link(args, goodput)),
        ),
        row(
            "In flight",
            format!(
                "{}, {}: rate times round trip",
                units::show_bytes(forecast.bdp_bytes),
                packets(forecast.bdp_bytes.div_ceil(u64::from(packet.ip_bytes)))
            ),
        ),
        row(
            "Burst",
            format!(
                "{} every {}",
                packets(u64::from(forecast.burst.packets)),
                fine(forecast.burst.interval)
            ),
        ),
        row(
            "Buffers",
            format!(
                "{} of {} outstanding: {memory} on each side{}",
                units::show_count(buffers.count),
                units::show_bytes(u64::from(buffers.bytes)),
                match buffers.repair_rounds {
                    0 => String::new(),
                    1 => "; 1 round of repair".to_owned(),
                    n => format!("; {n} rounds of repair"),
                }
            ),
        ),
    ];
    if buffers.too_few {
        lines.push(row("", "That does not fill the path: larger buffers would.".to_owned()));
    } else if buffers.count > forecast.default_buffers {
        let held = units::show_rate(forecast.default_goodput_bps);
        let count = units::show_count(forecast.default_buffers);
        lines.push(row("", format!("With only {count} of them: at most {held}.")));
    }
    if args.host_time > Duration::ZERO {
        let share = forecast.utilisation * 100.0;
        lines.push(row("Hosts", format!("can keep the link busy {share:.1} % of the time")));
    }
    lines.extend(process_line(args, forecast));
    lines.extend(time_lines(args, forecast));
    lines.extend(tcp_lines(args, forecast));
    lines.extend(option_lines(args, forecast));
    lines
}

/// The rate of one process, where the path would carry more.
fn process_line(args: &Args, forecast: &Forecast) -> Option<String> {
    let bits = forecast.process_bps?;
    let most = units::show_count(PROCESS_PACKETS as u64);
    let rate = units::show_rate(bits);
    let mut line = format!("{:<11}one moves about {most} packets a second: {rate}", "Process");
    if let Some(size) = args.size {
        let time = units::show_duration(data_time(size.bytes, bits));
        line.push_str(&format!(", {time} for {size}"));
    }
    Some(line)
}

fn path(args: &Args, question: &Question) -> String {
    let link = match args.link {
        LinkType::Ethernet => "Ethernet",
        LinkType::Vlan => "Ethernet with a VLAN tag",
        LinkType::Qinq => "Ethernet with two VLAN tags",
        LinkType::Pppoe => "PPP over Ethernet",
        LinkType::RawIp => "of IP packets",
    };
    let carrier = match question.carrier {
        Carrier::Udp4 => "UDP over IPv4",
        Carrier::Udp6 => "UDP over IPv6",
        Carrier::RawIp4 => "IPv4 alone",
    };
    let loss = percent(f64::from(args.loss.ppb()) / 1e9);
    let rtt = units::show_duration(args.rtt);
    // The bare number that was given, where units' would round it.
    let rate = rate_option(args.rate);
    format!("{rate}/s {link}, {rtt} round trip, {loss} loss, {carrier}")
}

fn time_lines(args: &Args, forecast: &Forecast) -> Vec<String> {
    let (Some(size), Some(times)) = (args.size, &forecast.times) else {
        return Vec::new();
    };
    let show = units::show_duration;
    let mut parts = format!("set-up {}, transfer {}", show(times.setup), show(times.transfer));
    if times.repair > Duration::ZERO {
        parts.push_str(&format!(", last repairs {}", show(times.repair)));
    }
    vec![
        format!("{:<11}{} for {}:", "Time", show(times.total()), size),
        format!("{:<11}{parts}, closing {}", "", show(times.closing)),
    ]
}

fn tcp_lines(args: &Args, forecast: &Forecast) -> Vec<String> {
    let mut lines = vec!["One TCP stream would get".to_owned()];
    for stream in &forecast.tcp {
        let mut line = format!(
            "  {:<9}  {:>12}  {:>8} of the link",
            stream.tcp.name(),
            units::show_rate(stream.bits_per_second),
            of_link(args, stream.bits_per_second)
        );
        if let Some(time) = args.size.map(|size| data_time(size.bytes, stream.bits_per_second)) {
            line.push_str(&format!("  {:>14}", units::show_duration(time)));
        }
        if stream.fills_link {
            line.push_str("  (all there is)");
        }
        lines.push(line);
    }
    lines
}

/// The options for `netblt send` and `netblt receive`.
fn option_lines(args: &Args, forecast: &Forecast) -> Vec<String> {
    let mut both = format!("--mtu {}", args.mtu);
    if args.wire.wire() == Wire::Rfc998 {
        both.push_str(" --wire rfc998");
    }
    if args.raw_ip {
        both.push_str(" --raw-ip");
    }
    both.push_str(&format!(" --buffer-size {}", units::size_option(forecast.buffers.bytes)));
    both.push_str(&format!(" --buffers {}", forecast.buffers.count));
    // RFC 998's own words, where they are the ones that go into its OPEN.
    let speed = match args.wire.wire() {
        Wire::Sealed => format!("--rate {}", rate_option(forecast.ip_rate)),
        Wire::Rfc998 => format!(
            "--burst-size {} --burst-interval {}ms",
            forecast.burst.packets,
            forecast.burst.interval.as_millis()
        ),
    };
    vec![
        "Options for it".to_owned(),
        format!("  both sides  {both}"),
        format!("  sender      --policy fixed {speed}"),
        "              (only on a path that is yours alone; by itself netblt finds its rate)"
            .to_owned(),
    ]
}

/// The time of so many bytes, without their start; saturates.
fn data_time(bytes: u64, bits_per_second: f64) -> Duration {
    let seconds = bytes as f64 * 8.0 / bits_per_second;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn both(bits_per_second: f64) -> String {
    let (bits, bytes) = (units::show_rate(bits_per_second), units::show_byte_rate(bits_per_second));
    format!("{bits} ({bytes})")
}

fn of_link(args: &Args, bits_per_second: f64) -> String {
    percent(bits_per_second / args.rate.bits_per_second() as f64)
}

/// `92.5 %`, `0.10 %`, `0.0001 %`: small values keep their digits.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p < 0.001 => format!("{p:.6} %"),
        p if p < 0.1 => format!("{p:.4} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

fn packets(count: u64) -> String {
    format!("{} packet{}", units::show_count(count), if count == 1 { "" } else { "s" })
}

/// `541.3 us`, `11 ms`: bursts are too short for [`units::show_duration`].
fn fine(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s => format!("{} ms", (s * 1e6).round() / 1e3),
    }
}

/// A rate as `--rate` takes it, cut to at least four digits: never more than it was.
fn rate_option(rate: Rate) -> String {
    let bits = rate.bits_per_second();
    let (unit, name) = match bits {
        1_000_000_000.. => (1_000_000_000, "Gbit"),
        1_000_000.. => (1_000_000, "Mbit"),
        1_000.. => (1_000, "kbit"),
        _ => return format!("{bits}bit"),
    };
    let digits = format!("{}.{:03}", bits / unit, bits % unit / (unit / 1000));
    format!("{}{name}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The forecast as JSON. Rates in Mbit/s, times in seconds unless the name says otherwise.
#[derive(Serialize)]
struct PlanData {
    version: u32,
    link: &'static str,
    wire: &'static str,
    rate_mbps: f64,
    rtt_ms: f64,
    loss_ppb: u32,
    data_bytes: u32,
    ip_bytes: u32,
    link_bytes: u32,
    packets_per_second: f64,
    utilisation: f64,
    goodput_mbps: f64,
    efficiency: f64,
    ip_rate_mbps: f64,
    bdp_bytes: u64,
    bdp_packets: u64,
    burst_packets: u32,
    burst_interval_us: f64,
    buffer_bytes: u32,
    buffers: u64,
    buffers_suffice: bool,
    default_buffers_mbps: f64,
    /// Null if one process is enough for the path.
    process_mbps: Option<f64>,
    memory_bytes: u64,
    repair_rounds: u32,
    size: Option<u64>,
    /// Null without a size, as are its parts.
    seconds: Option<f64>,
    setup_seconds: Option<f64>,
    transfer_seconds: Option<f64>,
    repair_seconds: Option<f64>,
    closing_seconds: Option<f64>,
    tcp: Vec<TcpData>,
}

/// One stream of `PlanData`.
#[derive(Serialize)]
struct TcpData {
    kind: String,
    mbps: f64,
    limited_by: &'static str,
    seconds: Option<f64>,
}

impl PlanData {
    fn new(args: &Args, question: &Question, forecast: &Forecast) -> Self {
        let mbps = |bits_per_second: f64| json::rounded(bits_per_second / 1e6);
        let seconds = |time: Duration| json::rounded(time.as_secs_f64());
        let times = forecast.times.as_ref();
        let stream = |stream: &TcpStream| TcpData {
            kind: stream.tcp.name().to_lowercase(),
            mbps: mbps(stream.bits_per_second),
            limited_by: if stream.fills_link { "link" } else { "loss" },
            seconds: args.size.map(|size| seconds(data_time(size.bytes, stream.bits_per_second))),
        };
        let rate = question.rate.bits_per_second() as f64;
        Self {
            version: VERSION,
            link: match args.link {
                LinkType::Ethernet => "ethernet",
                LinkType::Vlan => "vlan",
                LinkType::Qinq => "qinq",
                LinkType::Pppoe => "pppoe",
                LinkType::RawIp => "raw-ip",
            },
            wire: match question.wire {
                Wire::Sealed => "sealed",
                Wire::Rfc998 => "rfc998",
            },
            rate_mbps: mbps(rate),
            rtt_ms: json::rounded(question.rtt.as_secs_f64() * 1e3),
            loss_ppb: question.loss.ppb(),
            data_bytes: forecast.packet.data_bytes,
            ip_bytes: forecast.packet.ip_bytes,
            link_bytes: forecast.packet.wire_bytes,
            packets_per_second: json::rounded(forecast.packets_per_second),
            utilisation: json::rounded(forecast.utilisation),
            goodput_mbps: mbps(forecast.goodput_bps),
            efficiency: json::rounded(forecast.goodput_bps / rate),
            ip_rate_mbps: mbps(forecast.ip_rate.bits_per_second() as f64),
            bdp_bytes: forecast.bdp_bytes,
            bdp_packets: forecast.bdp_bytes.div_ceil(u64::from(forecast.packet.ip_bytes)),
            burst_packets: forecast.burst.packets,
            burst_interval_us: json::rounded(forecast.burst.interval.as_secs_f64() * 1e6),
            buffer_bytes: forecast.buffers.bytes,
            buffers: forecast.buffers.count,
            buffers_suffice: !forecast.buffers.too_few,
            default_buffers_mbps: mbps(forecast.default_goodput_bps),
            process_mbps: forecast.process_bps.map(mbps),
            memory_bytes: forecast.buffers.memory_bytes,
            repair_rounds: forecast.buffers.repair_rounds,
            size: question.size,
            seconds: times.map(|times| seconds(times.total())),
            setup_seconds: times.map(|times| seconds(times.setup)),
            transfer_seconds: times.map(|times| seconds(times.transfer)),
            repair_seconds: times.map(|times| seconds(times.repair)),
            closing_seconds: times.map(|times| seconds(times.closing)),
            tcp: forecast.tcp.iter().map(stream).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_for_the_option_are_cut_and_can_be_read() {
        for (bits, text) in [
            (975_292_584, "975.292Mbit"),
            (1_000_000_000, "1Gbit"),
            (9_752_925_848, "9.752Gbit"),
            (1_045_816, "1.045Mbit"),
            (9_600, "9.6kbit"),
            (800, "800bit"),
        ] {
            let rate = Rate::from_bits_per_second(bits);
            assert_eq!(rate_option(rate), text);
            assert!(units::rate(text).is_ok_and(|read| read <= rate));
        }
    }

    #[test]
    fn small_shares_keep_their_digits() {
        for (share, text) in [
            (0.0, "0 %"),
            (0.000_000_03, "0.000003 %"),
            (0.0001, "0.0100 %"),
            (0.005, "0.50 %"),
            (0.925, "92.5 %"),
        ] {
            assert_eq!(percent(share), text);
        }
        assert_eq!(fine(Duration::from_nanos(541_300)), "541.3 us");
        assert_eq!(fine(Duration::from_millis(11)), "11 ms");
    }
}
