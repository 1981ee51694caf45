//! The results as JSON, in iperf3's format where it has one, with RFC 1030's figures added.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use netblt::bench::{Load, Outcome};
use netblt_proto::config::{Role, Wire};
use serde_json::{Value, json};

use super::aggregate::{Step, StreamState};
use crate::json::rounded;
use crate::stdout;

/// Writes one document and a line end. A closed pipe must not fail the test.
pub(super) fn print(document: &Value) -> io::Result<()> {
    stdout::write(format!("{document}\n").as_bytes())
}

/// The requested test, and its server.
pub(super) struct Start<'a> {
    pub(super) wire: Wire,
    pub(super) load: Load,
    pub(super) reverse: bool,
    pub(super) policy: &'static str,
    pub(super) streams: &'a [StreamState],
}

pub(super) fn start(start: &Start<'_>) -> Value {
    let connected = start.streams.iter().enumerate().map(|(i, stream)| {
        let peer = stream.peer.as_deref().unwrap_or_default();
        let (host, port) = peer.rsplit_once(':').unwrap_or((peer, ""));
        json!({
            "socket": i + 1,
            "remote_host": host.trim_matches(['[', ']']),
            "remote_port": port.parse::<u16>().ok(),
        })
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (bytes, duration) = match start.load {
        Load::Bytes(bytes) => (bytes, 0.0),
        Load::Time(time) => (0, time.as_secs_f64()),
    };
    json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": concat!("netblt ", env!("CARGO_PKG_VERSION")),
        "timestamp": { "timesecs": now.as_secs() },
        "test_start": {
            "protocol": "NETBLT",
            "wire": wire(start.wire),
            "policy": start.policy,
            "num_streams": start.streams.len(),
            "duration": duration,
            "bytes": bytes,
            "reverse": u8::from(start.reverse),
        },
    })
}

fn wire(wire: Wire) -> &'static str {
    match wire {
        Wire::Sealed => "sealed",
        Wire::Rfc998 => "rfc998",
    }
}

/// One interval, from `from` seconds on.
pub(super) fn interval(from: f64, steps: &[Step]) -> Value {
    let streams = steps.iter().enumerate().map(|(i, step)| {
        let mut value = part(from, step);
        value["socket"] = json!(i + 1);
        value["rtt"] = json!(step.rtt.map(|rtt| rtt.as_micros() as u64));
        value
    });
    json!({ "streams": streams.collect::<Vec<_>>(), "sum": part(from, &Step::sum(steps)) })
}

fn part(from: f64, step: &Step) -> Value {
    json!({
        "start": rounded(from),
        "end": rounded(from + step.seconds),
        "seconds": rounded(step.seconds),
        "bytes": step.bytes,
        "bits_per_second": rounded(step.bits_per_second()),
        "lost_packets": step.lost,
        "retransmits": step.resent,
    })
}

/// The result. `here` holds the figures of this end, `there` those of the peer if known.
pub(super) fn end(here: &[Outcome], fixed: bool) -> Value {
    let streams = here.iter().enumerate().map(|(i, outcome)| {
        let mut value = figures(outcome, fixed);
        value["socket"] = json!(i + 1);
        value
    });
    let (bytes, seconds) = (total_bytes(here), longest(here));
    let bits = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    let sum = json!({
        "start": 0,
        "end": rounded(seconds),
        "seconds": rounded(seconds),
        "bytes": bytes,
        "bits_per_second": rounded(bits),
        "retransmits": here.iter().map(|o| o.summary.stats.data_packets_resent).sum::<u64>(),
        "lost_packets": here.iter().map(|o| o.summary.stats.data_packets_lost).sum::<u64>(),
    });
    json!({ "streams": streams.collect::<Vec<_>>(), "sum_sent": sum, "sum_received": sum })
}

/// Bytes of all connections.
pub(super) fn total_bytes(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| outcome.summary.bytes).sum()
}

/// Duration of the longest, in seconds.
pub(super) fn longest(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.summary.elapsed.as_secs_f64()).fold(0.0, f64::max)
}

/// RFC 1030's figures for one connection.
pub(super) fn figures(outcome: &Outcome, fixed: bool) -> Value {
    let (parameters, summary) = (&outcome.parameters, &outcome.summary);
    let stats = &summary.stats;
    let burst = fixed.then_some(parameters.burst);
    json!({
        "role": match outcome.role {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        },
        "burst_packets": burst.map(|burst| burst.packets),
        "burst_interval_ms": burst.map(|burst| rounded(burst.interval.as_secs_f64() * 1e3)),
        "packet_bytes": outcome.packet_bytes,
        "largest_packet_bytes": parameters.packet_bytes,
        "buffer_bytes": parameters.buffer_bytes,
        "outstanding_buffers": parameters.max_outstanding,
        "bytes": summary.bytes,
        "seconds": rounded(summary.elapsed.as_secs_f64()),
        "steady_bits_per_second": rounded(summary.steady_bps),
        "real_seconds": rounded(outcome.elapsed.as_secs_f64()),
        "real_bits_per_second": rounded(outcome.real_bps()),
        "packets_sent": stats.data_packets_sent,
        "packets_received": stats.data_packets_received,
        "lost": stats.data_packets_lost,
        "retransmitted": stats.data_packets_resent,
        "duplicate": stats.data_packets_duplicate,
        "data_timeouts": outcome.data_timeouts,
        "rtt_us": stats.rtt.map(|rtt| rtt.as_micros() as u64),
        "verified": summary.verified,
    })
}
