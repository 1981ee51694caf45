//! Whether the peer lives, and when this end shows that it does (`docs/protocol §7.4`).
//!
//! Inputs: when packets came and left, and what speaks against the peer. Outputs: the deadlines of
//! probes, of KEEPALIVEs, of the client's notice, and of the connection's death.

use std::time::Duration;

use crate::peer_gone::PeerGoneEvidence;
use crate::time::Instant;
use crate::timers::ConnectionTimer;
use crate::units::PacketNumber;

/// Longest time between two packets of a living end (`docs/protocol §7.4`).
pub(super) const MAX_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Shortest time between two KEEPALIVEs, however short the peer's death timer.
const MIN_KEEPALIVE_INTERVAL: Duration = Duration::from_millis(250);
/// Time without a packet after which a silent peer is probed.
const PROBE_AFTER: Duration = Duration::from_millis(1500);
/// Time without a packet of the peer after which the client gets [`Event::Silent`]: the answer to a
/// probe has as long to arrive as it took until the probe left.
///
/// [`Event::Silent`]: crate::api::Event::Silent
const SILENT_AFTER: Duration = PROBE_AFTER.saturating_mul(2);
/// A connection whose last packet is no older than this is not replaced (`docs/protocol §4.2,
/// §4.3`).
const ALIVE_FOR: Duration = Duration::from_secs(3);
/// Shorter times between two packets of the peer count whole as time in which it was active, for
/// the stall watchdog (`docs/protocol §7.6`).
const LEAST_SILENCE: Duration = Duration::from_secs(3);
/// The same after UNKNOWN has come.
const PROBE_UNKNOWN_AFTER: Duration = Duration::from_millis(400);

/// The death timers of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeathTimers {
    pub(crate) own: Duration,
    pub(crate) peer: Duration,
}

/// The signs of life of both ends.
#[derive(Debug)]
pub(super) struct Liveness {
    /// A silent peer is probed, and the client gets an event.
    probes: bool,
    death_timers: DeathTimers,
    last_received: Instant,
    last_sent: Instant,
    last_probe: Instant,
    /// Only the peer's OPEN has arrived.
    half_open: bool,
    /// The client has been notified that the peer is silent.
    silent: bool,
    peer_gone: PeerGoneEvidence,
}

impl Liveness {
    pub(super) fn new(now: Instant, probes: bool, death_timers: DeathTimers) -> Self {
        Self {
            probes,
            death_timers,
            last_received: now,
            last_sent: now,
            last_probe: now,
            half_open: true,
            silent: false,
            peer_gone: PeerGoneEvidence::new(now, probes),
        }
    }

    /// The death timer of this end.
    pub(super) fn death_timer(&self) -> Duration {
        self.death_timers.own
    }

    /// When the peer's last packet came.
    pub(super) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Whether only the peer's OPEN has arrived.
    pub(super) fn is_half_open(&self) -> bool {
        self.half_open
    }

    /// Whether the client knows the peer as silent.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether a packet of the peer arrived so lately that it counts as alive.
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        now < self.last_received + ALIVE_FOR
    }

    /// The longest silence of a living peer. Without probes it may send nothing from one KEEPALIVE
    /// to the next.
    pub(super) fn longest_silence(&self) -> Duration {
        let between = (self.death_timers.own / 4).min(MAX_KEEPALIVE_INTERVAL);
        if self.probes { LEAST_SILENCE } else { between.max(LEAST_SILENCE) }
    }

    /// An authentic packet of the peer came; `next` is the number of the packet that leaves next.
    /// Returns when the one before came, and whether the peer had been silent.
    pub(super) fn on_authentic(&mut self, now: Instant, next: PacketNumber) -> (Instant, bool) {
        let before = std::mem::replace(&mut self.last_received, now);
        (self.last_probe, self.half_open) = (now, false);
        self.peer_gone.on_authentic(now, next);
        (before, std::mem::take(&mut self.silent))
    }

    /// The peer opens the connection again: it was restarted before it sent anything else.
    pub(super) fn on_reopened(&mut self, now: Instant) {
        (self.last_received, self.last_probe) = (now, now);
    }

    /// The peer's address is validated.
    pub(super) fn on_address_validated(&mut self) {
        self.half_open = false;
    }

    /// The peer's host refused packet `number`.
    pub(super) fn on_refused(&mut self, now: Instant, number: PacketNumber) {
        self.peer_gone.on_refused(now, number);
    }

    /// UNKNOWN came, in answer to packet `number`.
    pub(super) fn on_unknown(&mut self, now: Instant, number: PacketNumber) {
        self.peer_gone.on_unknown(now, number);
    }

    /// A packet left, or waits in the outbox.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// A probe leaves.
    pub(super) fn on_probe(&mut self, now: Instant) {
        self.last_probe = now;
    }

    /// The client is notified that the peer is silent.
    pub(super) fn on_silent(&mut self) {
        self.silent = true;
    }

    /// When `timer` expires, if it is one of these; `settled`: only the last acknowledgement of the
    /// transfer is missing.
    pub(super) fn deadline(&self, timer: ConnectionTimer, settled: bool) -> Option<Instant> {
        match timer {
            ConnectionTimer::Death => Some(self.last_received + self.death_timers.own),
            ConnectionTimer::Forgotten => self.peer_gone.forgotten_at(),
            ConnectionTimer::Unreachable => self.peer_gone.unreachable_at(settled),
            ConnectionTimer::KeepaliveProbe => self.probes.then(|| self.probe_at()),
            ConnectionTimer::Silent => {
                (self.probes && !self.silent).then(|| self.last_received + SILENT_AFTER)
            }
            ConnectionTimer::Keepalive => Some(self.last_sent + self.keepalive_interval()),
            _ => None,
        }
    }

    fn probe_at(&self) -> Instant {
        let after = if self.peer_gone.is_doubtful() { PROBE_UNKNOWN_AFTER } else { PROBE_AFTER };
        self.last_received.max(self.last_probe) + after
    }

    /// The longest time in which this end sends nothing.
    fn keepalive_interval(&self) -> Duration {
        (self.death_timers.peer / 4).clamp(MIN_KEEPALIVE_INTERVAL, MAX_KEEPALIVE_INTERVAL)
    }
}
