//! A connection whose peer has not shown that it hears (`rfc998`, `docs/protocol.md §2.3`).

use std::time::Duration;

use super::outbox::Single;
use super::{Connection, KEEPALIVE, Machine};
use crate::amplification_limit::Doubt;
use crate::api::Reason;
use crate::sender::Calls;
use crate::time::Instant;
use crate::wire::packet::Keepalive;
use crate::wire::rfc998::HEADER_BYTES;

/// How long the answer to an OPEN that gives the number back is waited for at first.
const ECHO_AGAIN: Duration = Duration::from_millis(500);

/// The OPEN that gives the passive end's number back.
#[derive(Debug)]
pub(super) struct Echo {
    /// The passive end's number.
    proof: u32,
    packet: Vec<u8>,
    /// Something else came from there since.
    answered: bool,
    /// When it leaves again, until a RESPONSE tells no number.
    next: Option<Instant>,
    wait: Duration,
}

impl Echo {
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }
}

impl Connection {
    /// Nobody knows whether the peer is where its packets seem to come from: from there came `came`
    /// bytes in one packet. `seed` was never used before.
    pub(crate) fn be_in_doubt(&mut self, came: usize, mut doubt: Doubt, seed: u64) {
        doubt.on_came(came);
        if let Machine::Sender(sender) = &mut self.machine {
            doubt.toss();
            sender.doubt(Some(seed));
        }
        self.doubt = Some(doubt);
        self.allow();
    }

    /// Whether nothing was heard of the peer but its OPEN.
    pub(crate) fn is_half_open(&self) -> bool {
        self.half_open
    }

    /// The peer opens it anew: it was started again before it said anything else.
    pub(crate) fn opens_again(&mut self, now: Instant) {
        (self.heard, self.asked) = (now, now);
    }

    /// The peer hears what is sent to it.
    pub(crate) fn trust(&mut self) {
        self.half_open = false;
        if self.doubt.take().is_some()
            && let Machine::Sender(sender) = &mut self.machine
        {
            sender.doubt(None);
        }
        self.allow();
    }

    /// A datagram of so many bytes came from where the peer seems to be.
    pub(crate) fn on_came(&mut self, bytes: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.on_came(bytes);
            if let Machine::Receiver(receiver) = &mut self.machine {
                receiver.spoke = false;
            }
            self.allow();
        }
    }

    /// A KEEPALIVE leaves, unless that would take room from what matters more: messages that wait
    /// to be acknowledged are repeated, which is as good a sign, and two packets at once are more
    /// than some hosts can take; and what waits for room gets half of it. None waits for room.
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

    /// Whether a datagram of so many bytes may go there; it is counted then.
    pub(crate) fn may_go(&mut self, bytes: usize) -> bool {
        let Some(doubt) = &mut self.doubt else { return true };
        let may = doubt.allows(bytes);
        if may {
            self.on_went(bytes, 1);
        }
        may
    }

    /// Datagrams went there.
    pub(super) fn on_went(&mut self, bytes: usize, packets: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.on_went(bytes, packets);
            self.allow();
        }
    }

    /// What the peer said was handled: it may have known what it could only guess.
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

    /// The passive end doubts this one: `packet`, with its number in it, shows it that it is heard.
    pub(crate) fn echo(&mut self, now: Instant, (proof, packet): (u32, Vec<u8>)) {
        let (next, wait) = (Some(now), ECHO_AGAIN);
        self.echo = Some(Echo { proof, packet, answered: false, next, wait });
    }

    /// The passive end sent another RESPONSE. It doubts no more if that asks for no proof, and was
    /// started again if it asks for another one, then or later. That one knows nothing of what the
    /// one before it heard, if that said anything.
    pub(crate) fn on_response(&mut self, now: Instant, echo: Option<(u32, Vec<u8>)>) {
        let settled = self.is_settled();
        let Some(shown) = &mut self.echo else { return };
        match echo {
            None => shown.next = None,
            Some((proof, _)) if proof == shown.proof => {}
            Some(echo) if !shown.answered => self.echo(now, echo),
            // Who has a verdict needs nobody any more.
            Some(_) if settled => {}
            Some(_) => {
                self.echo = None;
                self.quit_with(now, "this end was started again", Reason::Forgotten);
            }
        }
    }

    /// The passive end said something else.
    pub(super) fn on_answer(&mut self) {
        if let Some(echo) = &mut self.echo {
            echo.answered = true;
        }
    }

    /// Appends the OPEN that is due; answers its length. Twice as long apart each time.
    pub(super) fn poll_echo(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let echo = self.echo.as_mut().filter(|echo| echo.next.is_some_and(|at| at <= now))?;
        echo.next = Some(now + echo.wait);
        echo.wait = (echo.wait * 2).min(KEEPALIVE);
        out.extend_from_slice(&echo.packet);
        Some(echo.packet.len())
    }

    /// Tells the machine how much it may say.
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
