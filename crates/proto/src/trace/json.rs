//! The text form: one JSON object a line.

use std::fmt::{Display, Write};

use super::{BlockedCause, RateLine, ReceiverLine, Stage, TraceEvent};
use crate::config::Role;
use crate::time::{Instant, nanos};
use crate::units::Rate;
use crate::wire::Wire;

/// A line under way. Writing to a String cannot fail.
struct Line<'a>(&'a mut String);

impl Line<'_> {
    fn number(self, name: &str, value: impl Display) -> Self {
        let _ = write!(self.0, r#","{name}":{value}"#);
        self
    }

    fn word(self, name: &str, value: &str) -> Self {
        let _ = write!(self.0, r#","{name}":"{value}""#);
        self
    }

    /// A number, or `null` where there is none.
    fn maybe(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self.number(name, "null"),
        }
    }

    fn end(self) {
        self.0.push_str("}\n");
    }
}

impl TraceEvent {
    /// Appends one line of JSON: time in nanoseconds since the machine's epoch, event, fields
    /// (`docs/reference/trace.md`).
    pub fn write_json(&self, at: Instant, out: &mut String) {
        let _ = write!(out, r#"{{"ns":{},"event":"{}""#, at.as_nanos(), self.name());
        let line = Line(out);
        match *self {
            Self::Opened { role, wire, buffer_bytes, packet_bytes, max_outstanding } => line
                .word("role", role_name(role))
                .word("wire", wire_name(wire))
                .number("buffer_bytes", buffer_bytes)
                .number("packet_bytes", packet_bytes)
                .number("max_outstanding", max_outstanding),
            Self::Closed { how } => line.word("how", how),
            Self::Sent { kind, packets, bytes } => {
                line.number("kind", kind).number("packets", packets).number("bytes", bytes)
            }
            Self::Received { kind, bytes, marked } => {
                line.number("kind", kind).number("bytes", bytes).number("marked", marked)
            }
            Self::Overrun { datagrams } => line.number("datagrams", datagrams),
            Self::Dropped { bytes } | Self::PacketSize { bytes } => line.number("bytes", bytes),
            Self::Buffer { number, stage, outstanding, held } => line
                .number("number", number)
                .word("stage", stage.name())
                .number("outstanding", outstanding)
                .number("held", held),
            Self::Resend { number, packets } | Self::Repair { number, packets } => {
                line.number("number", number).number("packets", packets)
            }
            Self::Timer { timer } => line.word("timer", timer.name()),
            Self::Waited { cause, time } => {
                line.word("cause", cause.name()).number("waited_ns", nanos(time))
            }
            Self::Rate(rate) => rate_fields(line, &rate),
            Self::Window { from, to, cause, mode } => {
                line.word("mode", mode).word("cause", cause).number("from", from).number("to", to)
            }
            Self::Test { verdict, share_ppm, whole, half, limit_ppm, error_ppm } => line
                .word("verdict", verdict)
                .number("share_ppm", share_ppm)
                .number("whole_packets", whole.0)
                .number("whole_lost", whole.1)
                .number("half_packets", half.0)
                .number("half_lost", half.1)
                .number("limit_ppm", limit_ppm)
                .number("error_ppm", error_ppm),
            Self::Excuse { share_ppm, reason } => {
                line.word("reason", reason).number("share_ppm", share_ppm)
            }
            Self::Receiver(receiver) => receiver_fields(line, &receiver),
            Self::Lost { events } => line.number("events", events),
            Self::Silent | Self::Answering => line,
        }
        .end();
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Closed { .. } => "closed",
            Self::Sent { .. } => "sent",
            Self::Received { .. } => "received",
            Self::Dropped { .. } => "dropped",
            Self::Overrun { .. } => "overrun",
            Self::Buffer { .. } => "buffer",
            Self::Resend { .. } => "resend",
            Self::Repair { .. } => "repair",
            Self::Timer { .. } => "timer",
            Self::Waited { .. } => "waited",
            Self::PacketSize { .. } => "packet_size",
            Self::Rate(_) => "rate",
            Self::Window { .. } => "window",
            Self::Test { .. } => "test",
            Self::Excuse { .. } => "excuse",
            Self::Receiver(_) => "receiver",
            Self::Silent => "silent",
            Self::Answering => "answering",
            Self::Lost { .. } => "lost",
        }
    }
}

fn rate_fields<'a>(line: Line<'a>, rate: &RateLine) -> Line<'a> {
    line.word("phase", rate.phase)
        .maybe("bandwidth", rate.bandwidth.map(Rate::bytes_per_second))
        .number("bytes_per_second", rate.pacing.bytes_per_second())
        .number("burst", rate.burst.packets)
        .number("interval_ns", nanos(rate.burst.interval))
        .maybe("rtt_ns", rate.rtt.map(nanos))
        .maybe("min_rtt_ns", rate.min_rtt.map(nanos))
        .number("queue_ns", nanos(rate.queue))
        .maybe("in_flight", rate.in_flight)
        .maybe("cap", rate.cap)
        .number("outstanding", rate.outstanding)
        .number("held", rate.held)
        .number("sent", rate.sent)
        .number("resent", rate.resent)
        .number("lost", rate.lost)
        .number("marked", rate.marked)
        .number("delivered", rate.delivered)
        .number("accepted_bytes", rate.accepted_bytes)
        .maybe("share_ppm", rate.share_ppm)
        .number("varies_ns", nanos(rate.varies_by))
        .number("way_back_ns", nanos(rate.way_back))
}

fn receiver_fields<'a>(line: Line<'a>, receiver: &ReceiverLine) -> Line<'a> {
    line.maybe("rtt_ns", receiver.rtt.map(nanos))
        .number("outstanding", receiver.outstanding)
        .number("held", receiver.held)
        .number("received", receiver.received)
        .number("duplicate", receiver.duplicate)
        .number("lost", receiver.lost)
        .number("delivered", receiver.delivered)
        .number("unacknowledged", receiver.unacknowledged)
}

impl Stage {
    /// Its name in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Granted => "granted",
            Self::Supplied => "supplied",
            Self::Begun => "begun",
            Self::Sent => "sent",
            Self::Filled => "filled",
            Self::Accepted => "accepted",
            Self::Released => "released",
        }
    }
}

impl BlockedCause {
    /// Its name in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Permission => "permission",
            Self::Paused => "paused",
            Self::Source => "source",
        }
    }
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    }
}

const fn wire_name(wire: Wire) -> &'static str {
    match wire {
        Wire::Rfc998 => "rfc998",
        Wire::Sealed => "sealed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::packet::Burst;

    fn line(event: TraceEvent) -> String {
        let mut out = String::new();
        event.write_json(Instant::from_nanos(5), &mut out);
        out
    }

    #[test]
    fn a_line_is_one_json_object() {
        let sent = TraceEvent::Sent { kind: 6, packets: 8, bytes: 9856 };
        let text = "{\"ns\":5,\"event\":\"sent\",\"kind\":6,\"packets\":8,\"bytes\":9856}\n";
        assert_eq!(line(sent), text);
        assert_eq!(line(TraceEvent::Silent), "{\"ns\":5,\"event\":\"silent\"}\n");
    }

    #[test]
    fn unknown_values_are_null() {
        let rate = RateLine {
            phase: "fixed",
            bandwidth: None,
            pacing: Rate::from_bytes_per_second(10_080_000),
            burst: Burst { packets: 8, interval: Duration::from_millis(1) },
            rtt: Some(Duration::from_millis(40)),
            min_rtt: None,
            queue: Duration::ZERO,
            way_back: Duration::ZERO,
            varies_by: Duration::from_micros(250),
            share_ppm: None,
            in_flight: None,
            cap: None,
            outstanding: 3,
            held: 1,
            sent: 100,
            resent: 2,
            lost: 2,
            marked: 0,
            delivered: 0,
            accepted_bytes: 7,
        };
        assert_eq!(
            line(TraceEvent::Rate(rate)),
            concat!(
                r#"{"ns":5,"event":"rate","phase":"fixed","bandwidth":null,"#,
                r#""bytes_per_second":10080000,"burst":8,"interval_ns":1000000,"#,
                r#""rtt_ns":40000000,"min_rtt_ns":null,"queue_ns":0,"in_flight":null,"cap":null,"#,
                r#""outstanding":3,"held":1,"sent":100,"resent":2,"lost":2,"marked":0,"#,
                r#""delivered":0,"accepted_bytes":7,"share_ppm":null,"varies_ns":250000,"#,
                r#""way_back_ns":0}"#,
                "\n"
            )
        );
    }
}
