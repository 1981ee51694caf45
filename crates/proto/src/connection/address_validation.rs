//! Address validation of a connection on `rfc998` (RFC 9000 §8.1, `docs/protocol §2.3`).
//!
//! Until the address is validated, the passive end sends at most a multiple of the bytes that it
//! received. The active end returns the number of the passive end's RESPONSE.

use std::time::Duration;

use super::liveness::MAX_KEEPALIVE_INTERVAL;
use crate::amplification_limit::AmplificationLimit;
use crate::handshake::return_routability::ProofEcho;
use crate::sender::CoinEvidence;
use crate::time::Instant;

/// First interval at which the OPEN that returns the number is repeated.
const ECHO_INTERVAL: Duration = Duration::from_millis(500);

/// The OPEN that returns the passive end's number.
#[derive(Debug)]
struct Echo {
    open: ProofEcho,
    /// Another packet came from there since.
    answered: bool,
    /// When it leaves next, until a RESPONSE without a number comes.
    next: Option<Instant>,
    wait: Duration,
}

/// A packet that waits for room within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingPacket {
    No,
    /// Messages without an acknowledgement, which are repeated.
    Control,
    Data,
}

/// The validation of both ends' addresses.
#[derive(Debug, Default)]
pub(super) struct AddressValidation {
    /// The limit while the peer's address is not validated.
    limit: Option<AmplificationLimit>,
    /// This end's proof that it has its address.
    echo: Option<Echo>,
}

impl AddressValidation {
    /// The limit, while the peer's address is not validated.
    pub(super) fn limit(&self) -> Option<&AmplificationLimit> {
        self.limit.as_ref()
    }

    /// The peer's address is not validated.
    pub(super) fn begin(&mut self, limit: AmplificationLimit) {
        self.limit = Some(limit);
    }

    /// The peer's address is validated. Returns whether it was not before.
    pub(super) fn finish(&mut self) -> bool {
        self.limit.take().is_some()
    }

    /// A datagram of `bytes` came from the peer's address.
    pub(super) fn on_received(&mut self, bytes: usize) {
        if let Some(limit) = &mut self.limit {
            limit.on_received(bytes);
        }
    }

    /// Datagrams left.
    pub(super) fn on_sent_bytes(&mut self, bytes: usize, packets: usize) {
        if let Some(limit) = &mut self.limit {
            limit.on_sent_bytes(bytes, packets);
        }
    }

    /// A packet other than a KEEPALIVE left.
    pub(super) fn on_others(&mut self) {
        self.limit.iter_mut().for_each(AmplificationLimit::on_others);
    }

    /// Whether a datagram of `bytes` may be sent.
    pub(super) fn allows(&self, bytes: usize) -> bool {
        self.limit.is_none_or(|limit| limit.allows(bytes))
    }

    /// Whether a KEEPALIVE of `bytes` may be sent, or the limit is better spent. Unacknowledged
    /// messages are repeated, which shows as well that this end lives, and some hosts cannot take
    /// two packets at once. Data that wait for room get at least half of it. A KEEPALIVE itself
    /// does not wait for room.
    pub(super) fn allows_keepalive(&self, bytes: usize, waiting: WaitingPacket) -> bool {
        match (&self.limit, waiting) {
            (None, _) => true,
            (Some(_), WaitingPacket::Control) => false,
            (Some(limit), WaitingPacket::Data) => limit.keeps_alive(bytes),
            (Some(limit), WaitingPacket::No) => limit.allows(bytes),
        }
    }

    /// Evaluates the coins that the peer's packets guessed. Returns whether they validate its
    /// address.
    pub(super) fn on_coins(&mut self, evidence: CoinEvidence) -> bool {
        let Some(limit) = &mut self.limit else { return false };
        if evidence.wrong {
            limit.on_wrong();
            return false;
        }
        limit.on_right(evidence.right)
    }

    /// The passive end has not validated this address: `open` returns its number.
    pub(super) fn echo(&mut self, now: Instant, open: ProofEcho) {
        let (next, wait) = (Some(now), ECHO_INTERVAL);
        self.echo = Some(Echo { open, answered: false, next, wait });
    }

    /// The passive end sent another RESPONSE. Without a number in it the address is validated. With
    /// another number the passive end was restarted, and has lost the connection if it had sent
    /// anything: then this returns true. An end that is `settled` does not need its peer.
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        echo: Option<ProofEcho>,
        settled: bool,
    ) -> bool {
        let Some(shown) = &mut self.echo else { return false };
        match echo {
            None => shown.next = None,
            Some(echo) if echo.proof == shown.open.proof => {}
            Some(echo) if !shown.answered => self.echo(now, echo),
            Some(_) if settled => {}
            Some(_) => {
                self.echo = None;
                return true;
            }
        }
        false
    }

    /// The passive end sent another packet.
    pub(super) fn on_answer(&mut self) {
        if let Some(echo) = &mut self.echo {
            echo.answered = true;
        }
    }

    /// When the OPEN leaves next, until a RESPONSE without a number comes.
    pub(super) fn echo_due(&self) -> Option<Instant> {
        self.echo.as_ref().and_then(|echo| echo.next)
    }

    /// Appends the OPEN if it is due and returns its length. The interval doubles each time.
    pub(super) fn poll_echo(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let echo = self.echo.as_mut().filter(|echo| echo.next.is_some_and(|at| at <= now))?;
        echo.next = Some(now + echo.wait);
        echo.wait = (echo.wait * 2).min(MAX_KEEPALIVE_INTERVAL);
        out.extend_from_slice(&echo.open.open);
        Some(echo.open.open.len())
    }
}
