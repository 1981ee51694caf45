//! What happened inside a machine, for plots and for finding faults.
//!
//! Recorded only when [`crate::config::Config::trace`] asks for it; polled like everything else.
//! The text form is one JSON object a line.

use std::fmt::Write;
use std::time::Duration;

use crate::time::{Instant, nanos};

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The connection opened.
    Opened,
    /// The connection closed.
    Closed,
    /// Datagrams left: how many, and their bytes in all.
    Sent {
        /// Type byte of the first.
        kind: u8,
        /// How many.
        packets: u32,
        /// Bytes in all of them.
        bytes: u32,
    },
    /// A datagram arrived and was believed.
    Received {
        /// Its type byte.
        kind: u8,
        /// Its bytes.
        bytes: u32,
    },
    /// A datagram arrived and was not believed.
    Dropped {
        /// Its bytes.
        bytes: u32,
    },
    /// Sender: a buffer is wanted. Receiver: it is full.
    Buffer {
        /// Its number.
        number: u64,
    },
    /// Sender: where it stands; at most once a report.
    Rate {
        /// Bytes of IP packets per second.
        pacing: u64,
        /// Packets in a burst.
        burst: u32,
        /// Smoothed round trip.
        rtt: Duration,
        /// Buffers outstanding.
        outstanding: u32,
        /// Packets found missing so far.
        lost: u64,
        /// Packets sent again so far.
        resent: u64,
    },
}

impl TraceEvent {
    /// Appends one line of JSON: time in nanoseconds since the machine's epoch, event, fields.
    pub fn write_json(&self, at: Instant, out: &mut String) {
        let ns = at.as_nanos();
        // Writing to a String cannot fail.
        let _ = match *self {
            Self::Opened => writeln!(out, r#"{{"ns":{ns},"event":"opened"}}"#),
            Self::Closed => writeln!(out, r#"{{"ns":{ns},"event":"closed"}}"#),
            Self::Sent { kind, packets, bytes } => writeln!(
                out,
                r#"{{"ns":{ns},"event":"sent","kind":{kind},"packets":{packets},"bytes":{bytes}}}"#
            ),
            Self::Received { kind, bytes } => {
                writeln!(out, r#"{{"ns":{ns},"event":"received","kind":{kind},"bytes":{bytes}}}"#)
            }
            Self::Dropped { bytes } => {
                writeln!(out, r#"{{"ns":{ns},"event":"dropped","bytes":{bytes}}}"#)
            }
            Self::Buffer { number } => {
                writeln!(out, r#"{{"ns":{ns},"event":"buffer","number":{number}}}"#)
            }
            Self::Rate { pacing, burst, rtt, outstanding, lost, resent } => writeln!(
                out,
                concat!(
                    r#"{{"ns":{},"event":"rate","bytes_per_second":{},"burst":{},"rtt_ns":{},"#,
                    r#""outstanding":{},"lost":{},"resent":{}}}"#
                ),
                ns,
                pacing,
                burst,
                nanos(rtt),
                outstanding,
                lost,
                resent
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let mut out = String::new();
        TraceEvent::Sent { kind: 6, packets: 8, bytes: 9856 }
            .write_json(Instant::from_nanos(5), &mut out);
        assert_eq!(out, "{\"ns\":5,\"event\":\"sent\",\"kind\":6,\"packets\":8,\"bytes\":9856}\n");
    }
}
