//! What speaks against an open that has no answer yet, and when that is enough (`docs/protocol
//! §4.1`).
//!
//! An attacker on the path can forge a hint or an ICMP refusal, so they leave time for the true
//! answer.

use std::time::Duration;

use crate::api::CloseReason;
use crate::peer_gone::PeerGoneEvidence;
use crate::time::{Instant, earliest};
use crate::units::PacketNumber;

/// Time left for the true answer after an unauthenticated REFUSED, and for another client of a busy
/// server (`docs/protocol §4.1`).
const HINT_WAIT: Duration = Duration::from_secs(5);
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// The answer violates the protocol (`rfc998`).
#[derive(Debug)]
struct Fault {
    what: &'static str,
    /// The ABORT for it, until it has left.
    abort: Option<Vec<u8>>,
}

/// A refusal that is not final, since `first`.
#[derive(Debug)]
struct OpenRefusal {
    first: Instant,
    reason: String,
}

/// The evidence.
#[derive(Debug)]
pub(super) struct OpenFailure {
    /// Longest wait for an authenticated peer.
    max_wait: Duration,
    /// When the last authentic packet arrived.
    last_authentic_at: Instant,
    /// An unauthenticated REFUSED.
    hint: Option<OpenRefusal>,
    /// The authenticated REFUSED of a busy server.
    busy: Option<OpenRefusal>,
    /// The reason of a final refusal.
    refused: Option<String>,
    fault: Option<Fault>,
    /// ICMP refusals of the peer's host.
    peer_gone: PeerGoneEvidence,
}

impl OpenFailure {
    pub(super) fn new(now: Instant, max_wait: Duration, probes: bool) -> Self {
        Self {
            max_wait,
            last_authentic_at: now,
            hint: None,
            busy: None,
            refused: None,
            fault: None,
            peer_gone: PeerGoneEvidence::new(now, probes),
        }
    }

    /// An authentic packet arrived.
    pub(super) fn on_authentic(&mut self, now: Instant) {
        self.last_authentic_at = now;
    }

    /// A valid RESPONSE arrived: the server is not busy any more.
    pub(super) fn on_response(&mut self) {
        self.busy = None;
    }

    /// The peer's host refused a packet (ICMP).
    pub(super) fn on_unreachable(&mut self, now: Instant) {
        self.peer_gone.on_refused(now, PacketNumber(0));
    }

    /// The answer violates the protocol; `abort` says so to the peer.
    pub(super) fn on_fault(&mut self, what: &'static str, abort: Vec<u8>) {
        self.fault.get_or_insert(Fault { what, abort: Some(abort) });
    }

    /// The peer refused for good.
    pub(super) fn on_refused(&mut self, reason: String) {
        self.refused = Some(reason);
    }

    /// The peer refused because it is busy, which may pass.
    pub(super) fn on_busy(&mut self, now: Instant, reason: String) {
        let busy =
            self.busy.get_or_insert_with(|| OpenRefusal { first: now, reason: reason.clone() });
        if busy.first + BUSY_WAIT <= now {
            self.refused = Some(reason);
        }
    }

    /// A refusal that is not authenticated came.
    pub(super) fn on_hint(&mut self, now: Instant, reason: String) {
        self.hint.get_or_insert(OpenRefusal { first: now, reason });
    }

    /// The ABORT that answers a bad RESPONSE, once.
    pub(super) fn take_abort(&mut self) -> Option<Vec<u8>> {
        self.fault.as_mut().and_then(|fault| fault.abort.take())
    }

    /// Whether no answer can help any more.
    pub(super) fn is_final(&self) -> bool {
        self.refused.is_some() || self.fault.is_some()
    }

    /// When the handshake fails, if the first OPEN left at `first`. Each authentic packet extends
    /// the wait, as long as OPENs are left.
    pub(super) fn fails_at(
        &self,
        first: Option<Instant>,
        overdue_at: Option<Instant>,
    ) -> Option<Instant> {
        earliest([
            overdue_at,
            first.map(|at| at.max(self.last_authentic_at) + self.max_wait),
            self.hint.as_ref().map(|hint| hint.first + HINT_WAIT),
            self.peer_gone.closed_at(),
        ])
    }

    /// The reason of the failure, if it has come. `is_due`: its time has.
    pub(super) fn take(&mut self, is_due: bool) -> Option<CloseReason> {
        if let Some(fault) = &self.fault {
            return Some(CloseReason::Violation(fault.what));
        }
        if let Some(reason) = self.refused.take() {
            return Some(CloseReason::Refused(reason));
        }
        if !is_due {
            return None;
        }
        Some(match self.busy.take() {
            Some(busy) => CloseReason::Refused(busy.reason),
            None => CloseReason::NoAnswer {
                hint: self.hint.as_ref().map(|hint| hint.reason.clone()),
                unreachable: self.peer_gone.were_any(),
            },
        })
    }
}
