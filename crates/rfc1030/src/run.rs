//! One run of a row: two hosts over a medium, and the result.

use std::time::Duration;

use netblt_proto::config::{Config, FixedRate, Policy, Role, Wire};
use netblt_proto::loss_detection::LossDetection;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Burst;
use netblt_sim::host::{HostOptions, Transfer};

use crate::lab::{Lab, SharedMedium};
use crate::rows::Row;
pub use crate::station::Departure;
use crate::station::{IP_BYTES, Machine, StationOptions};

/// Header of a DATA packet on the `rfc998` wire.
pub(super) const DATA_HEADER: u32 = 24;
/// Upper bound on the duration of a run.
const DEADLINE: Duration = Duration::from_secs(600);

/// One run of a row.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Steady-state throughput.
    pub bits_per_second: u64,
    /// Data packets that did not reach the receiver's machine.
    pub lost: u64,
    /// Those of the lost packets that arrived while the receiver's interface was deaf.
    pub deafened: u64,
    /// Data packets sent again.
    pub resent: u64,
    /// Data timeouts.
    pub timeouts: u64,
    /// When the network broke down, if it did.
    pub crashed: Option<Instant>,
    /// Number of stations that went down.
    pub stations_down: u64,
    /// First problem, if any.
    pub problem: Option<String>,
    /// Every data packet sent, if recorded.
    pub departures: Vec<Departure>,
    /// When control packets left the receiver, if recorded.
    pub controls: Vec<Instant>,
}

/// Sender and receiver of `row` on these machines.
pub(super) fn pair_of(
    row: &Row,
    sender: Machine,
    receiver: Machine,
) -> (StationOptions, StationOptions) {
    let burst = Burst { packets: row.burst_packets, interval: row.interval() };
    let options = |role, machine| {
        let mut config = Config::new(Wire::Rfc998, role);
        // No address is forged here, and the answer to an OPEN is that of 1987.
        (config.client, config.validate_addresses) = (String::new(), false);
        config.recovery = LossDetection::FirstDataTimers;
        config.buffer_bytes = row.buffer_bytes;
        config.table_bytes = 0;
        config.datagram_bytes = row.packet_bytes + DATA_HEADER;
        config.overhead_bytes = IP_BYTES;
        config.max_outstanding = row.outstanding;
        config.checksum = false;
        if role == Role::Sender {
            let pace = FixedRate::bursts(burst).expect("the report's rows have intervals");
            config.policy = Policy::Fixed(pace);
        }
        StationOptions { host: HostOptions::new(config), machine }
    };
    (options(Role::Sender, sender), options(Role::Receiver, receiver))
}

/// One run of `row` over `medium`.
pub(super) fn run_row(
    row: &Row,
    seed: u64,
    medium: impl SharedMedium,
    sender: StationOptions,
    receiver: StationOptions,
    record: bool,
) -> Sample {
    let transfer =
        Transfer { seed, bytes: row.bytes(), at_least_one: true, have: 0, greets: false };
    let mut lab = Lab::new(medium, DEADLINE);
    lab.add(transfer, sender, receiver, Duration::ZERO, record);
    let Some(run) = lab.run().pop() else { return Sample::default() };
    let crashed = lab.medium().crashed();
    let crash = crashed.map(|_| "the network broke down".to_owned());
    let failure = (!run.success).then(|| "the transfer did not succeed".to_owned());
    Sample {
        bits_per_second: run.bits_per_second,
        lost: lab.medium().lost_data() + run.deafened,
        deafened: run.deafened,
        resent: run.sent.data_packets_resent,
        timeouts: run.received.data_timeouts,
        crashed,
        stations_down: lab.medium().down(),
        problem: crash.or(run.finding).or(failure),
        departures: run.departures,
        controls: run.controls,
    }
}
