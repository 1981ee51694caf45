//! One passive end for many peers: it answers every OPEN and remembers nothing of who has not shown
//! that it hears (`docs/protocol.md §4.6`).
//!
//! Its secret may be known to everybody. So the first answer to an OPEN is always a cookie, which
//! costs a keyed hash and no memory; only then a handshake is computed, and only a packet under its
//! keys makes an end of it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::{Authorized, Config, Identity};
use crate::endpoint::{EXPLANATIONS, Endpoint};
use crate::entropy::Entropy;
use crate::machine::{Datagram, Route, Transmit};
use crate::opening::FirstWords;
use crate::opening::answer::Answer;
use crate::opening::passive::Passive;
use crate::time::Instant;

/// Answers waiting to leave: in a flood the oldest go, a true peer asks again.
const MAX_ANSWERS: usize = 64;

/// The door to a host that serves many. `sealed` only.
#[derive(Debug)]
pub struct Door {
    config: Config,
    passive: Passive,
    answers: VecDeque<(Route, Vec<u8>)>,
}

impl Door {
    /// A door for peers who shall get ends with this configuration. `entropy` must never be used
    /// twice outside tests.
    pub fn new(config: Config, entropy: [u8; 32]) -> Self {
        let passive = Passive::for_many(&config, Entropy::new(entropy));
        Self { config, passive, answers: VecDeque::new() }
    }

    /// From now on these may open connections, and nobody else; connections that are open stay.
    pub fn authorize(&mut self, authorized: Arc<Authorized>) {
        self.passive.on_authorized(&authorized);
        self.config.identity = Some(Identity::server(authorized));
    }

    /// A datagram that belongs to none of the ends that are open. Answers the end that it opens,
    /// which has taken it in.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> Option<Endpoint> {
        let Datagram { from, local, reception, bytes } = datagram;
        let route = Route { peer: from, local };
        // Whose end it will be, and what that end has, is known when it is there.
        let none: FirstWords<'_> = &|_, _| None;
        let at = (now, reception.stood_still());
        match self.passive.handle_datagram(at, route, bytes, (&self.config, none), None) {
            Answer::Nothing | Answer::Heard(_) | Answer::Again(_) => None,
            Answer::Reply(packet) | Answer::Greeting(packet, _) => {
                self.answer(route, packet);
                None
            }
            Answer::Opened(opened, first) => {
                Some(Endpoint::served(self.config.clone(), now, (route, reception), *opened, first))
            }
        }
    }

    /// In a flood what anybody can draw is dropped, all else takes the place of the oldest.
    fn answer(&mut self, to: Route, packet: Vec<u8>) {
        if self.answers.len() >= MAX_ANSWERS {
            if matches!(packet.get(3), Some(kind) if EXPLANATIONS.contains(kind)) {
                return;
            }
            self.answers.pop_front();
        }
        self.answers.push_back((to, packet));
    }

    /// Appends the next answer to `batch`, if there is one.
    pub fn poll_transmit(&mut self, batch: &mut Vec<u8>) -> Option<Transmit> {
        let (Route { peer, local }, packet) = self.answers.pop_front()?;
        batch.extend_from_slice(&packet);
        Some(Transmit { to: peer, local, ecn: None, segment: packet.len(), len: packet.len() })
    }

    /// Whether there is an answer to send.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }
}
