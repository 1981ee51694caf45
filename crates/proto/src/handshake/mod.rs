//! The handshake: OPEN, RESPONSE, REFUSED, and the negotiation of parameters (RFC 998 §5.1;
//! `docs/protocol §4`). The state machine is drawn in `docs/protocol §10.3`.

pub(crate) mod active;
mod authentication;
mod half_open;
mod open_failure;
mod open_schedule;
pub(crate) mod passive;
mod pending_responses;
mod rate_limit;
pub(crate) mod responder_action;
pub(crate) mod return_routability;
mod rfc998_established;

use std::time::Duration;

use return_routability::ProofEcho;

use crate::api::Route;
use crate::buffer::Geometry;
use crate::codec::Codec;
use crate::config::{Config, PublicKey, Wire};
use crate::control_fifo::ControlFifo;
use crate::crypto::exporter::ExporterSecret;
use crate::crypto::static_pairing::KeyId;
use crate::entropy::Entropy;
use crate::limits::{
    MAX_BURST_INTERVAL, MAX_DATAGRAM_BYTES, MAX_PACKETS_PER_BUFFER, MIN_CONTROL_BYTES,
    MIN_PACKET_BYTES, MIN_SEALED_PACKET_BYTES,
};
use crate::negotiated::{HandshakeRtt, Negotiated};
use crate::rate::{counted_bytes, proposed_burst};
use crate::time::{Instant, nanos};
use crate::units::PacketNumber;
use crate::wire::data_overhead;
use crate::wire::packet::{Burst, Parameters, TransferMode};
use crate::wire_profile::WireProfile;

/// The early control messages of a receiver (0.5-RTT data) for these negotiated parameters and
/// table bytes; `None` if it has none yet.
pub(crate) type EarlyControl<'a> = &'a dyn Fn(&Parameters, u32) -> Option<ControlFifo>;

/// When a datagram is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandledAt {
    pub(crate) now: Instant,
    /// How long this host was suspended while the datagram waited.
    pub(crate) host_stall: Duration,
}

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) codec: Codec,
    /// The negotiated parameters; death timer and client string are the peer's.
    pub(crate) parameters: Parameters,
    pub(crate) table_bytes: u32,
    /// The peer's static key, if it was opened by keys.
    pub(crate) peer_key: Option<PublicKey>,
    /// Round trip of the handshake.
    pub(crate) rtt: HandshakeRtt,
    /// When early control left, if it has, and whether only once.
    pub(crate) early_control_sent: Option<(Instant, bool)>,
    /// A packet to send first.
    pub(crate) reply: Option<Vec<u8>>,
    /// The peer's location.
    pub(crate) location: PeerLocation,
    /// The number in RESPONSE, and the OPEN that returns it.
    pub(crate) echo: Option<ProofEcho>,
    /// The address is not validated: bytes of the packet that came from it, and whether validation
    /// can be expected soon.
    pub(crate) unvalidated: Option<(usize, bool)>,
    /// It opened before a confirming packet left: one must leave first.
    pub(crate) unconfirmed: bool,
    /// The connection's randomness.
    pub(crate) entropy: Entropy,
    /// The exporter secret, source of the keys of branches and subflows (`sealed`).
    pub(crate) root: Option<ExporterSecret>,
    /// Packets under the connection's keys that left before it was open: time, number and bytes.
    pub(crate) sent_before: Vec<(Instant, PacketNumber, usize)>,
}

/// The peer's location.
#[derive(Debug)]
pub(crate) enum PeerLocation {
    /// The source address of its packet is validated.
    Validated,
    /// It is at one of these addresses, each with its bytes received less bytes sent.
    OneOf(Vec<(Route, u64)>),
}

impl Opened {
    fn new(codec: Codec, parameters: Parameters, table_bytes: u32, entropy: Entropy) -> Self {
        Self {
            codec,
            parameters,
            table_bytes,
            peer_key: None,
            rtt: HandshakeRtt::default(),
            early_control_sent: None,
            reply: None,
            location: PeerLocation::Validated,
            echo: None,
            unvalidated: None,
            unconfirmed: false,
            entropy,
            root: None,
            sent_before: Vec::new(),
        }
    }
}

impl Opened {
    /// A connection that branches from one with these round trips.
    pub(crate) fn branch(
        codec: Codec,
        parameters: Parameters,
        table_bytes: u32,
        rtt: HandshakeRtt,
        entropy: Entropy,
    ) -> Self {
        let opened = Self::new(codec, parameters, table_bytes, entropy);
        Self { rtt, ..opened }
    }
}

/// The prologue of the Noise handshake: the clear bytes of OPEN, and its key id (`docs/protocol
/// §4.1, §4.8`).
fn prologue(clear: &[u8; 16], key: Option<KeyId>) -> Vec<u8> {
    let key = key.as_ref().map_or(&[][..], |id| &id.0);
    [&b"netblt 9"[..], clear, key].concat()
}

/// The proposal of an end with `config`.
pub(crate) fn propose(config: &Config, uid: u32) -> Parameters {
    let packet_bytes = config
        .datagram_bytes
        .min(MAX_DATAGRAM_BYTES)
        .saturating_sub(data_overhead(config.wire))
        .max(min_packet_bytes(config.wire));
    let buffer_bytes = match config.wire {
        Wire::Rfc998 => {
            config.buffer_bytes.min(packet_bytes.saturating_mul(MAX_PACKETS_PER_BUFFER))
        }
        Wire::Sealed => config.buffer_bytes,
    };
    Parameters {
        uid,
        buffer_bytes,
        transfer_bytes: config.transfer_bytes,
        packet_bytes,
        burst: on_the_wire(config.wire, proposed_burst(config)),
        death_timer: config.death_timer,
        checksum: config.checksum,
        mode: config.role.mode_when_active(),
        max_outstanding: config.max_outstanding.max(1),
        client: config.client.clone(),
    }
}

/// Negotiates the parameters of the passive end: the proposal's or more restrictive ones (RFC 998
/// §5.1). `Err` has the reason for REFUSED.
pub(crate) fn negotiate(
    config: &Config,
    proposal: &Parameters,
) -> Result<Parameters, &'static str> {
    let own = propose(config, proposal.uid);
    if proposal.mode == own.mode && !config.accept_any_role {
        return Err(match own.mode {
            TransferMode::Write => "both ends want to send",
            TransferMode::Read => "both ends want to receive",
        });
    }
    let settled = Parameters {
        uid: proposal.uid,
        buffer_bytes: proposal.buffer_bytes.min(own.buffer_bytes),
        transfer_bytes: own.transfer_bytes.or(proposal.transfer_bytes),
        packet_bytes: proposal.packet_bytes.min(own.packet_bytes),
        burst: Burst {
            packets: proposal.burst.packets.min(own.burst.packets),
            interval: proposal.burst.interval.max(own.burst.interval),
        },
        death_timer: own.death_timer,
        checksum: proposal.checksum || own.checksum,
        mode: proposal.mode,
        max_outstanding: proposal.max_outstanding.min(own.max_outstanding),
        client: own.client,
    };
    usable(config.wire, &settled)?;
    Ok(settled)
}

/// Whether a RESPONSE is valid: nothing in it may be looser than OPEN.
pub(crate) fn agrees(wire: Wire, proposal: &Parameters, response: &Parameters) -> bool {
    check_response(wire, proposal, response).is_ok()
}

/// The same, with the fault. Stricter values that cannot be used are not looser ones.
pub(crate) fn check_response(
    wire: Wire,
    proposal: &Parameters,
    response: &Parameters,
) -> Result<(), &'static str> {
    if response.uid != proposal.uid {
        return Err("an answer to another OPEN");
    }
    if response.mode != proposal.mode {
        return Err("an answer that turns the direction of the data round");
    }
    // Flag C is set if either end wants it (RFC 998 §5.1), so no answer clears it.
    if wire == Wire::Rfc998 && proposal.checksum && !response.checksum {
        return Err("an answer that switches the checksums of data off");
    }
    let stricter = response.buffer_bytes <= proposal.buffer_bytes
        && response.packet_bytes <= proposal.packet_bytes
        && response.burst.packets <= proposal.burst.packets
        && response.burst.interval >= proposal.burst.interval
        && response.max_outstanding <= proposal.max_outstanding;
    if !stricter {
        return Err("an answer that is looser than what was proposed");
    }
    usable(wire, response)
}

fn min_packet_bytes(wire: Wire) -> u32 {
    match wire {
        Wire::Rfc998 => MIN_PACKET_BYTES,
        Wire::Sealed => MIN_SEALED_PACKET_BYTES,
    }
}

/// Burst values in the wire's own units, so that both ends compare the same numbers.
fn on_the_wire(wire: Wire, burst: Burst) -> Burst {
    let unit = match wire {
        Wire::Rfc998 => 1_000_000,
        Wire::Sealed => 1000,
    };
    let interval = Duration::from_nanos(nanos(burst.interval).div_ceil(unit).saturating_mul(unit));
    Burst { interval, ..burst }
}

fn usable(wire: Wire, parameters: &Parameters) -> Result<(), &'static str> {
    let least = min_packet_bytes(wire);
    if parameters.packet_bytes < least || parameters.buffer_bytes < least {
        return Err("packets or buffers too small");
    }
    // Packet numbers have 16 bits there: more would fall on top of each other.
    let packets = parameters.buffer_bytes.div_ceil(parameters.packet_bytes);
    if wire == Wire::Rfc998 && packets > MAX_PACKETS_PER_BUFFER {
        return Err("too many packets in a buffer");
    }
    if parameters.burst.packets == 0 || parameters.burst.interval > MAX_BURST_INTERVAL {
        return Err("bursts too small or too rare");
    }
    if parameters.max_outstanding == 0 {
        return Err("no outstanding buffers");
    }
    Ok(())
}

/// The parameters as the machines need them.
pub(crate) fn negotiated(
    config: &Config,
    parameters: &Parameters,
    table_bytes: u32,
    opened: Instant,
    rtt: HandshakeRtt,
) -> Negotiated {
    let beyond = if config.wire == Wire::Sealed { table_bytes } else { 0 };
    let datagram_bytes = (parameters.packet_bytes + data_overhead(config.wire)) as usize;
    Negotiated {
        profile: WireProfile::of(config.wire),
        geometry: Geometry {
            buffer_bytes: parameters.buffer_bytes + beyond,
            packet_bytes: parameters.packet_bytes,
        },
        max_outstanding: parameters.max_outstanding,
        socket_bytes: config.socket_bytes.filter(|_| config.wire == Wire::Sealed),
        burst: parameters.burst,
        repair: config.spends_on_repair(),
        datagram_bytes,
        control_bytes: match config.wire {
            Wire::Rfc998 => datagram_bytes.max(MIN_CONTROL_BYTES),
            Wire::Sealed => datagram_bytes,
        },
        burst_bytes: counted_bytes(config.wire, datagram_bytes as u32),
        opened,
        rtt: rtt.measured,
        longest_rtt: rtt.measured.or(rtt.longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FixedRate, Policy, Role, UNLIMITED_BURST};
    use crate::units::Rate;

    fn config(role: Role) -> Config {
        Config::new(Wire::Sealed, role)
    }

    #[test]
    fn every_parameter_moves_only_toward_more_restrictive() {
        let burst = Burst { packets: 8, interval: Duration::from_millis(1) };
        let proposal = propose(&Config { burst, ..config(Role::Sender) }, 7);
        let mut strict = config(Role::Receiver);
        strict.buffer_bytes = 1 << 16;
        strict.datagram_bytes = 600;
        strict.max_outstanding = 3;
        strict.burst = Burst { packets: 2, interval: Duration::from_millis(9) };
        let settled = negotiate(&strict, &proposal).unwrap();
        assert_eq!((settled.buffer_bytes, settled.packet_bytes), (1 << 16, 600 - 48));
        assert_eq!((settled.max_outstanding, settled.burst), (3, strict.burst));
        assert!(agrees(Wire::Sealed, &proposal, &settled));
        for loosen in [
            |p: &mut Parameters| p.buffer_bytes *= 64,
            |p: &mut Parameters| p.packet_bytes += 1000,
            |p: &mut Parameters| p.burst.packets += 100,
            |p: &mut Parameters| p.burst.interval = Duration::ZERO,
            |p: &mut Parameters| p.max_outstanding += 1000,
            |p: &mut Parameters| p.uid += 1,
            |p: &mut Parameters| p.mode = TransferMode::Read,
        ] {
            let mut looser = settled.clone();
            loosen(&mut looser);
            assert!(!agrees(Wire::Sealed, &proposal, &looser), "{looser:?}");
        }
    }

    #[test]
    fn a_fixed_rate_is_proposed_and_no_answer_loosens_it() {
        let megabit = FixedRate::rate(Rate::from_bits_per_second(1_000_000)).unwrap();
        let nine = Burst { packets: 9, interval: Duration::from_micros(1500) };
        for (wire, pace, promised) in [
            (Wire::Sealed, megabit, (1, 10_080_000)),
            (Wire::Rfc998, megabit, (6, 61_000_000)),
            (Wire::Sealed, FixedRate::bursts(nine).unwrap(), (9, 1_500_000)),
            (Wire::Rfc998, FixedRate::bursts(nine).unwrap(), (9, 2_000_000)),
        ] {
            let mut sender = Config::new(wire, Role::Sender);
            sender.policy = Policy::Fixed(pace);
            sender.burst = UNLIMITED_BURST;
            let proposal = propose(&sender, 7);
            let made = (proposal.burst.packets, nanos(proposal.burst.interval));
            assert_eq!(made, promised, "{wire:?} {pace:?}");
            let settled = negotiate(&Config::new(wire, Role::Receiver), &proposal).unwrap();
            assert_eq!(settled.burst, proposal.burst);
            let flood = Parameters { burst: UNLIMITED_BURST, ..settled };
            assert!(!agrees(wire, &proposal, &flood));
            // The other way round: the receiver proposes no limit, and the sender has its own.
            let settled =
                negotiate(&sender, &propose(&Config::new(wire, Role::Receiver), 7)).unwrap();
            assert_eq!(settled.burst, proposal.burst);
        }
    }

    #[test]
    fn sixteen_bits_must_be_enough_for_a_buffer() {
        let mut plain = Config::new(Wire::Rfc998, Role::Sender);
        plain.buffer_bytes = 1 << 26;
        plain.datagram_bytes = 24 + 16;
        let proposal = propose(&plain, 7);
        assert_eq!(proposal.buffer_bytes, 16 << 16);
        let wild = Parameters { buffer_bytes: 1 << 26, ..proposal };
        plain.role = Role::Receiver;
        plain.datagram_bytes = 40;
        assert!(negotiate(&plain, &wild).is_ok(), "settled to what the answering end can take");
        assert!(!agrees(Wire::Rfc998, &wild, &wild));
    }

    #[test]
    fn two_senders_are_refused_unless_one_takes_either_role() {
        let proposal = propose(&config(Role::Sender), 7);
        assert_eq!(negotiate(&config(Role::Sender), &proposal), Err("both ends want to send"));
        let either = Config { accept_any_role: true, ..config(Role::Sender) };
        assert_eq!(
            negotiate(&either, &proposal).map(|settled| settled.mode),
            Ok(TransferMode::Write)
        );
    }
}
