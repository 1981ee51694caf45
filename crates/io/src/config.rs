//! The configuration of a machine, from the user's options.

use std::time::Duration;

use netblt_proto::config::{Config, Role, Secret, UNLIMITED_BURST, Wire};
use netblt_proto::limits::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, MAX_OUTSTANDING, UDP_HEADER_BYTES,
};
use netblt_proto::rate::{burst_for, burst_in_millis, counted_bytes};
use netblt_proto::wire::data_overhead;
use netblt_proto::wire::packet::Burst;

use crate::options::Options;

/// The largest IP packets that are probed for by default. Larger ones pass only on loopback, where
/// they are not faster, and each loss costs more (`docs/decisions/packet-size.md`).
const CEILING: u16 = 1 << 14;

/// The most bytes of a file's extra attributes in a table (`docs/protocol §8.2`).
const MAX_MORE_BYTES: u32 = 1 << 16;

/// The configuration for any peer. [`for_peer`] adds what depends on the peer.
pub(crate) fn config(options: &Options, role: Role, transfer_bytes: Option<u64>) -> Config {
    let mut config = Config::new(options.wire, role);
    config.buffer_bytes = options.buffers.bytes;
    config.death_timer = options.settings.death_timer;
    config.policy = options.settings.policy;
    config.repair = options.settings.fec;
    let own_name = concat!("netblt ", env!("CARGO_PKG_VERSION"));
    config.client = options.network.client.clone().unwrap_or_else(|| own_name.to_owned());
    config.transfer_bytes = transfer_bytes;
    config.trace = options.trace.is_some();
    config.checksum = !options.rfc998.no_checksum;
    if options.settings.extras.xattrs || options.settings.extras.acls {
        config.table_bytes += MAX_MORE_BYTES;
    }
    config.max_outstanding = most_buffers(options, capacity(&config));
    // Until the peer is known, the larger header.
    config.datagram_bytes = datagram_bytes(options, true).unwrap_or(config.datagram_bytes);
    if let Some(burst) = burst(options, role, config.datagram_bytes) {
        config.burst = burst;
    }
    config
}

/// The largest datagrams, if they were set or the path is probed.
fn datagram_bytes(options: &Options, v6: bool) -> Option<u32> {
    let packet = options.network.packet_bytes;
    let packet = packet.map(|bytes| u32::from(bytes) + data_overhead(options.wire));
    let unasked = (options.wire == Wire::Sealed).then_some(CEILING);
    let mtu = options.network.mtu.or(unasked);
    let mtu = mtu.map(|mtu| u32::from(mtu).saturating_sub(overhead_bytes(options, v6)));
    packet.or(mtu)
}

/// The burst values to propose, if they are not the default.
fn burst(options: &Options, role: Role, datagram_bytes: u32) -> Option<Burst> {
    let datagram_bytes = counted_bytes(options.wire, datagram_bytes);
    let packet_bytes = datagram_bytes + overhead_bytes(options, false);
    let rate = match (role, options.wire, options.settings.policy) {
        // A ceiling belongs to the sender, which need not announce its own. On `rfc998` it does:
        // receivers compute their data timers from it.
        (Role::Receiver, ..) | (Role::Sender, Wire::Rfc998, _) => options.settings.policy.ceiling(),
        _ => None,
    };
    let made = rate.map(|rate| match options.wire {
        Wire::Sealed => burst_for(rate, packet_bytes),
        Wire::Rfc998 => burst_in_millis(rate, packet_bytes),
    });
    // The least that this wire can say: to some an interval of nothing makes no sense.
    let no_limit = Burst { interval: Duration::from_millis(1), ..UNLIMITED_BURST };
    let no_limit = (options.wire == Wire::Rfc998 && role == Role::Receiver).then_some(no_limit);
    options.network.burst.or(made).or(no_limit)
}

/// Bytes of IP and UDP header on each datagram.
fn overhead_bytes(options: &Options, v6: bool) -> u32 {
    let ip = if v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    ip + if options.rfc998.raw_ip { 0 } else { UDP_HEADER_BYTES }
}

/// The parts of a configuration that depend on the peer's IP version.
pub(crate) fn for_peer(
    config: &Config,
    options: &Options,
    secret: Option<Secret>,
    v6: bool,
) -> Config {
    let datagram_bytes = datagram_bytes(options, v6).unwrap_or(config.datagram_bytes);
    let overhead_bytes = overhead_bytes(options, v6);
    Config { secret, overhead_bytes, datagram_bytes, ..config.clone() }
}

/// The bound for buffers of so many bytes.
fn most_buffers(options: &Options, bytes: usize) -> u32 {
    let most = options.buffers.memory / bytes.max(1) as u64;
    let most = u32::try_from(most).unwrap_or(u32::MAX).min(MAX_OUTSTANDING);
    most.max(options.buffers.count)
}

/// The capacity of a buffer of this process: the most bytes that it would agree to.
pub(crate) fn capacity(config: &Config) -> usize {
    config.buffer_bytes as usize + config.table_bytes as usize
}
