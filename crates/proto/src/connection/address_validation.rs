//! Address validation of a connection on `rfc998` (RFC 9000 §8.1, `docs/protocol §2.3`).

use std::time::Duration;

use super::outbox::OutboxPacket;
use super::{Connection, MAX_KEEPALIVE_INTERVAL, Machine};
use crate::amplification_limit::AmplificationLimit;
use crate::api::CloseReason;
use crate::sender::CoinEvidence;
use crate::time::Instant;
use crate::wire::packet::Keepalive;

/// First interval at which the OPEN that returns the number is repeated.
const ECHO_INTERVAL: Duration = Duration::from_millis(500);

/// The OPEN that returns the passive end's number.
#[derive(Debug)]
pub(super) struct Echo {
    /// The passive end's number.
    proof: u32,
    packet: Vec<u8>,
    /// Another packet came from there since.
    answered: bool,
    /// When it leaves next, until a RESPONSE without a number comes.
    next: Option<Instant>,
    wait: Duration,
}

impl Echo {
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }
}

impl Connection {
    /// The peer's address is not validated: `received` bytes came from it in one packet. `seed`
    /// must never have been used before.
    pub(crate) fn limit_amplification(
        &mut self,
        received: usize,
        mut limit: AmplificationLimit,
        seed: u64,
    ) {
        limit.on_received(received);
        if let Machine::Sender(sender) = &mut self.machine {
            limit.use_coins();
            sender.test_by_coins(Some(seed));
        }
        self.amplification_limit = Some(limit);
        self.update_allowance();
    }

    /// Whether only the peer's OPEN has arrived.
    pub(crate) fn is_half_open(&self) -> bool {
        self.half_open
    }

    /// The peer opens the connection again: it was restarted before it sent anything else.
    pub(crate) fn on_reopened(&mut self, now: Instant) {
        (self.last_received, self.last_probe) = (now, now);
    }

    /// The peer's address is validated.
    pub(crate) fn on_address_validated(&mut self) {
        self.half_open = false;
        if self.amplification_limit.take().is_some()
            && let Machine::Sender(sender) = &mut self.machine
        {
            sender.test_by_coins(None);
        }
        self.update_allowance();
    }

    /// A datagram of `bytes` came from the peer's address.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        if let Some(limit) = &mut self.amplification_limit {
            limit.on_received(bytes);
            if let Machine::Receiver(receiver) = &mut self.machine {
                receiver.renew_allowance();
            }
            self.update_allowance();
        }
    }

    /// Queues a KEEPALIVE, unless the amplification limit is better spent. Unacknowledged messages
    /// are repeated, which shows as well that this end lives, and some hosts cannot take two
    /// packets at once. Packets that wait for room get at least half of it. A KEEPALIVE itself does
    /// not wait for room.
    pub(crate) fn push_keepalive(&mut self, keepalive: Keepalive) {
        let may = match (&mut self.amplification_limit, &self.machine) {
            (None, _) => true,
            (Some(_), Machine::Receiver(receiver)) if receiver.waits_for_ack() => false,
            (Some(limit), Machine::Sender(sender)) if sender.waits_for_room() => {
                limit.keeps_alive(self.profile.keepalive_bytes)
            }
            (Some(limit), _) => limit.allows(self.profile.keepalive_bytes),
        };
        if may {
            self.outbox.push(OutboxPacket::Keepalive(keepalive));
        }
    }

    /// Whether a datagram of `bytes` may be sent; if so it is counted.
    pub(crate) fn may_go(&mut self, bytes: usize) -> bool {
        let Some(limit) = &mut self.amplification_limit else { return true };
        let may = limit.allows(bytes);
        if may {
            self.on_sent_bytes(bytes, 1);
        }
        may
    }

    /// Counts sent datagrams.
    pub(super) fn on_sent_bytes(&mut self, bytes: usize, packets: usize) {
        if let Some(limit) = &mut self.amplification_limit {
            limit.on_sent_bytes(bytes, packets);
            self.update_allowance();
        }
    }

    /// Evaluates the coins that the peer's packets guessed.
    pub(super) fn check_coin_evidence(&mut self) {
        let Some(limit) = &mut self.amplification_limit else { return };
        let Machine::Sender(sender) = &mut self.machine else { return };
        let evidence = sender.take_coin_evidence();
        if evidence == CoinEvidence::default() {
            return;
        }
        if evidence.wrong {
            limit.on_wrong();
            self.update_allowance();
        } else if limit.on_right(evidence.right) {
            self.on_address_validated();
        } else {
            self.update_allowance();
        }
    }

    /// The passive end has not validated this address: `packet` returns its number.
    pub(crate) fn echo(&mut self, now: Instant, (proof, packet): (u32, Vec<u8>)) {
        let (next, wait) = (Some(now), ECHO_INTERVAL);
        self.echo = Some(Echo { proof, packet, answered: false, next, wait });
    }

    /// The passive end sent another RESPONSE. Without a number in it the address is validated. With
    /// another number the passive end was restarted, and has lost the connection if it had sent
    /// anything.
    pub(crate) fn on_response(&mut self, now: Instant, echo: Option<(u32, Vec<u8>)>) {
        let settled = self.is_settled();
        let Some(shown) = &mut self.echo else { return };
        match echo {
            None => shown.next = None,
            Some((proof, _)) if proof == shown.proof => {}
            Some(echo) if !shown.answered => self.echo(now, echo),
            // An end that has the verdict does not need its peer.
            Some(_) if settled => {}
            Some(_) => {
                self.echo = None;
                self.quit_with(now, "this end was started again", CloseReason::Forgotten);
            }
        }
    }

    /// The passive end sent another packet.
    pub(super) fn on_answer(&mut self) {
        if let Some(echo) = &mut self.echo {
            echo.answered = true;
        }
    }

    /// Appends the OPEN if it is due and returns its length. The interval doubles each time.
    pub(super) fn poll_echo(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let echo = self.echo.as_mut().filter(|echo| echo.next.is_some_and(|at| at <= now))?;
        echo.next = Some(now + echo.wait);
        echo.wait = (echo.wait * 2).min(MAX_KEEPALIVE_INTERVAL);
        out.extend_from_slice(&echo.packet);
        Some(echo.packet.len())
    }

    /// Updates the machine's limit.
    fn update_allowance(&mut self) {
        match &mut self.machine {
            Machine::Sender(sender) => {
                sender.set_allowance(
                    self.amplification_limit.as_ref().map_or(u64::MAX, AmplificationLimit::room),
                );
            }
            Machine::Receiver(receiver) => {
                let datagram = self.amplification_limit.as_ref().map(AmplificationLimit::largest);
                receiver.set_allowance(datagram);
            }
        }
    }
}
