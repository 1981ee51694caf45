//! The start of a test as the observer sees it, and its result.

use std::time::Duration;

use netblt_proto::config::{Config, Role};
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::wire::data_overhead;
use netblt_proto::wire::packet::Parameters;

use super::traffic::TestDone;
use crate::options::Options;
use crate::progress::Summary;
use crate::transfer::limited_by::{Facts, View, decide, view_of_receiver};
use crate::transfer::summary::{SessionFacts, bits_per_second, summary};

/// How a test went, at one end of one connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Which end this was.
    pub role: Role,
    /// The parameters that were agreed on at the opening.
    pub parameters: Parameters,
    /// Data bytes in a whole DATA packet, as the path had it in the end.
    pub packet_bytes: u32,
    /// The figures. `verified` here: every buffer was whole and in its place (`sealed`: and the
    /// sender knows).
    pub summary: Summary,
    /// From the program's start to its finish (RFC 1030 §3), including the time to find and reach
    /// the other end. A server's time starts at the first datagram of the test.
    pub elapsed: Duration,
    /// Data timeouts at the receiver; a sender knows them from its verdict (`sealed` only).
    pub data_timeouts: Option<u64>,
}

impl Outcome {
    /// The throughput "as viewed by the user" (RFC 1030 §3), in bit/s: all bytes over
    /// [`Self::elapsed`].
    pub fn real_bps(&self) -> f64 {
        bits_per_second(self.summary.bytes, self.elapsed)
    }
}

/// The configuration of either end.
pub(super) fn config(options: &Options, role: Role, transfer_bytes: Option<u64>) -> Config {
    // Images are data and nothing else: no files, no table of them.
    Config { table_bytes: 0, ..crate::config::config(options, role, transfer_bytes) }
}

/// The outcome at the end that has this role.
pub(super) fn outcome(
    config: &Config,
    role: Role,
    parameters: Parameters,
    done: TestDone,
    started: Instant,
    (at, stats, cpu_share): (Instant, Stats, f64),
) -> Outcome {
    let data_timeouts = match role {
        Role::Sender => done.data_timeouts,
        Role::Receiver => Some(stats.data_timeouts),
    };
    // Each end reports what it sees; nothing is stored.
    let limited_by = match role {
        Role::Sender => {
            let view = View::new(&stats, config.policy, at, cpu_share, Duration::ZERO);
            decide(Some(view), None)
        }
        Role::Receiver => {
            let seen = Facts::new(&stats, at, cpu_share, Duration::ZERO, Duration::ZERO);
            let (bytes, most) = (parameters.buffer_bytes, parameters.max_outstanding);
            decide(view_of_receiver(&stats, bytes, most), Some(seen))
        }
    };
    let summary = summary(SessionFacts {
        streams: Vec::new(),
        stats,
        at,
        bytes: done.bytes,
        kept: 0,
        unexpected: 0,
        skipped: 0,
        files: 0,
        verified: done.verified,
        digest: [0; 32],
        limited_by,
    });
    let found = summary.stats.datagram_bytes.saturating_sub(data_overhead(config.wire));
    let packet_bytes = if found > 0 { found } else { parameters.packet_bytes };
    Outcome { role, parameters, packet_bytes, summary, elapsed: at.since(started), data_timeouts }
}
