//! Address validation of a connection on `rfc998` (RFC 9000 §8.1, `docs/protocol.md §2.3`).

use std::time::Duration;

use super::outbox::Single;
use super::{Connection, KEEPALIVE, Machine};
use crate::amplification_limit::Doubt;
use crate::api::Reason;
use crate::sender::Calls;
use crate::time::Instant;
use crate::wire::packet::Keepalive;
use crate::wire::rfc998::HEADER_BYTES;

/// First interval at which the OPEN that returns the number is repeated.
const ECHO_AGAIN: Duration = Duration::from_millis(500);

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
    pub(crate) fn be_in_doubt(&mut self, came: usize, mut doubt: Doubt, seed: u64) {
        doubt.on_came(came);
        if let Machine::Sender(sender) = &mut self.machine {
            doubt.toss();
            sender.doubt(Some(seed));
        }
        self.doubt = Some(doubt);
        self.allow();
    }

    /// Whether only the peer's OPEN has arrived.
    pub(crate) fn is_half_open(&self) -> bool {
        self.half_open
    }

    /// The peer opens the connection again: it was restarted before it sent anything else.
    pub(crate) fn opens_again(&mut self, now: Instant) {
        (self.heard, self.asked) = (now, now);
    }

    /// The peer's address is validated.
    pub(crate) fn trust(&mut self) {
        self.half_open = false;
        if self.doubt.take().is_some()
            && let Machine::Sender(sender) = &mut self.machine
        {
            sender.doubt(None);
        }
        self.allow();
    }

    /// A datagram of `bytes` came from the peer's address.
    pub(crate) fn on_came(&mut self, bytes: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.on_came(bytes);
            if let Machine::Receiver(receiver) = &mut self.machine {
                receiver.spoke = false;
            }
            self.allow();
        }
    }

    /// Queues a KEEPALIVE, unless the amplification limit is better spent. Unacknowledged messages
    /// are repeated, which shows as well that this end lives, and some hosts cannot take two
    /// packets at once. Packets that wait for room get at least half of it. A KEEPALIVE itself does
    /// not wait for room.
    pub(crate) fn push_keepalive(&mut self, keepalive: Keepalive) {
        let may = match (&mut self.doubt, &self.machine) {
            (None, _) => true,
            (Some(_), Machine::Receiver(receiver)) if receiver.waits() => false,
            (Some(doubt), Machine::Sender(sender)) if sender.waits_for_room() => {
                doubt.keeps_alive(HEADER_BYTES)
            }
            (Some(doubt), _) => doubt.allows(HEADER_BYTES),
        };
        if may {
            self.outbox.push(Single::Keepalive(keepalive));
        }
    }

    /// Whether a datagram of `bytes` may be sent; if so it is counted.
    pub(crate) fn may_go(&mut self, bytes: usize) -> bool {
        let Some(doubt) = &mut self.doubt else { return true };
        let may = doubt.allows(bytes);
        if may {
            self.on_went(bytes, 1);
        }
        may
    }

    /// Counts sent datagrams.
    pub(super) fn on_went(&mut self, bytes: usize, packets: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.on_went(bytes, packets);
            self.allow();
        }
    }

    /// Evaluates the coins that the peer's packets guessed.
    pub(super) fn on_called(&mut self) {
        let Some(doubt) = &mut self.doubt else { return };
        let Machine::Sender(sender) = &mut self.machine else { return };
        let calls = sender.take_calls();
        if calls == Calls::default() {
            return;
        }
        if calls.wrong {
            doubt.on_wrong();
            self.allow();
        } else if doubt.on_right(calls.right) {
            self.trust();
        } else {
            self.allow();
        }
    }

    /// The passive end has not validated this address: `packet` returns its number.
    pub(crate) fn echo(&mut self, now: Instant, (proof, packet): (u32, Vec<u8>)) {
        let (next, wait) = (Some(now), ECHO_AGAIN);
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
                self.quit_with(now, "this end was started again", Reason::Forgotten);
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
        echo.wait = (echo.wait * 2).min(KEEPALIVE);
        out.extend_from_slice(&echo.packet);
        Some(echo.packet.len())
    }

    /// Updates the machine's limit.
    fn allow(&mut self) {
        match &mut self.machine {
            Machine::Sender(sender) => {
                sender.allow(self.doubt.as_ref().map_or(u64::MAX, Doubt::room));
            }
            Machine::Receiver(receiver) => {
                let datagram = self.doubt.as_ref().map(Doubt::largest);
                receiver.allowance = datagram.unwrap_or(usize::MAX);
                receiver.spoke &= datagram.is_some();
            }
        }
    }
}
