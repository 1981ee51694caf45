//! One passive end for many peers. It answers every OPEN and keeps no state for an address that is
//! not validated (`docs/protocol §4.6`).
//!
//! Its secret may be public. The first answer to an OPEN is therefore always a cookie, which costs
//! a keyed hash and no memory. Only an OPEN with the cookie costs a handshake, and only a packet
//! under the keys of that handshake makes an endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::{Datagram, Route, Transmit};
use crate::config::{AuthorizedKeys, Config, Identity};
use crate::endpoint::{EXPLANATIONS, Endpoint};
use crate::entropy::Entropy;
use crate::handshake::passive::Passive;
use crate::handshake::responder_action::ResponderAction;
use crate::handshake::{EarlyControl, HandledAt};
use crate::time::Instant;

/// Most answers in the queue. In a flood the oldest are dropped; a true peer sends OPEN again.
const MAX_ANSWERS: usize = 64;

/// The passive end of a host that serves many peers. `sealed` only.
#[derive(Debug)]
pub struct PassiveListener {
    config: Config,
    passive: Passive,
    answers: VecDeque<(Route, Vec<u8>)>,
}

impl PassiveListener {
    /// A listener whose connections have this configuration. `entropy` must never be used twice
    /// outside tests.
    pub fn new(config: Config, entropy: [u8; 32]) -> Self {
        let passive = Passive::for_many(&config, Entropy::new(entropy));
        Self { config, passive, answers: VecDeque::new() }
    }

    /// Sets the keys that may open connections, in place of those before. Open connections stay.
    pub fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        self.passive.on_authorized(&authorized);
        self.config.identity = Some(Identity::server(authorized));
    }

    /// Handles a datagram that belongs to no open endpoint. Returns the endpoint that it opens,
    /// which has handled it.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> Option<Endpoint> {
        let Datagram { from, local, meta, bytes } = datagram;
        let route = Route { peer: from, local };
        // The peer, and so what this end has of its transfer, is known only once the connection is
        // open.
        let none: EarlyControl<'_> = &|_, _| None;
        let at = HandledAt { now, host_stall: meta.host_stall() };
        match self.passive.handle_datagram(at, route, bytes, &self.config, none, None) {
            ResponderAction::Nothing
            | ResponderAction::Validated(_)
            | ResponderAction::Reopened(_) => None,
            ResponderAction::Reply(packet) | ResponderAction::ReplyWithControl(packet, _) => {
                self.answer(route, packet);
                None
            }
            ResponderAction::Opened(opened, first) => {
                Some(Endpoint::served(self.config.clone(), now, route, meta, *opened, first))
            }
        }
    }

    /// The next connection that the peer of `stem` has branched from it. A branch whose id belongs
    /// to a handshake in progress here, or `is_taken`, is dropped: it must not receive the packets
    /// of another peer. `entropy` must never be used twice outside tests.
    pub fn take_branch(
        &self,
        now: Instant,
        stem: &mut Endpoint,
        entropy: impl FnOnce() -> Option<[u8; 32]>,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<Endpoint> {
        let awaits = |id| self.passive.unconfirmed_ids().any(|awaited| awaited == id);
        stem.take_branch(now, entropy, |id| awaits(id) || is_taken(id))
    }

    /// When the queue is full, answers that any sender can provoke are dropped; others replace the
    /// oldest.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RecvMeta;
    use crate::config::{Role, Secret, Wire};

    fn config(role: Role) -> Config {
        let secret = Some(Secret([7; 32]));
        Config { secret, branches: true, accept_any_role: true, ..Config::new(Wire::Sealed, role) }
    }

    /// Delivers the caller's packets to the listener, or to the endpoint that it opened, and the
    /// answers back.
    fn exchange(
        listener: &mut PassiveListener,
        caller: &mut Endpoint,
        host: &mut Option<Endpoint>,
    ) {
        let (mut batch, now) = (Vec::new(), Instant::EPOCH);
        let from = ([192, 0, 2, 1], 1).into();
        let meta = RecvMeta::default();
        while caller.poll_transmit(now, &mut batch).is_some() {
            let datagram = Datagram { from, local: None, meta, bytes: &mut batch };
            match host {
                Some(host) => host.handle_datagram(now, datagram),
                None => *host = listener.handle_datagram(now, datagram),
            }
            batch.clear();
        }
        loop {
            let said = listener.poll_transmit(&mut batch);
            let said = said.or_else(|| host.as_mut()?.poll_transmit(now, &mut batch));
            if said.is_none() {
                return;
            }
            let datagram = Datagram { from, local: None, meta, bytes: &mut batch };
            caller.handle_datagram(now, datagram);
            batch.clear();
        }
    }

    /// A client branches from its connection while another client opens one. An observer of
    /// RESPONSE sees the id that the other client's packets will carry.
    #[test]
    fn a_branch_with_the_id_of_a_handshake_in_progress_is_dropped() {
        for awaited in [false, true] {
            let (now, server) = (Instant::EPOCH, ([198, 51, 100, 1], 1).into());
            let mut listener = PassiveListener::new(config(Role::Receiver), [1; 32]);
            let mut stem = Endpoint::active(config(Role::Receiver), server, now, [2; 32]);
            let mut host = None;
            (0..4).for_each(|_| exchange(&mut listener, &mut stem, &mut host));
            let mut branch = stem.branch(now, config(Role::Receiver), [3; 32]).expect("it is open");
            let id = branch.connection_id().expect("it has one");
            let mut other = Endpoint::active(config(Role::Receiver), server, now, [4; 32]);
            let mut batch = Vec::new();
            for _ in 0..2 {
                // The second brings the cookie.
                while other.poll_transmit(now, &mut batch).is_some() {
                    let from = ([192, 0, 2, 9], 9).into();
                    let meta = RecvMeta::default();
                    let datagram = Datagram { from, local: None, meta, bytes: &mut batch };
                    assert!(listener.handle_datagram(now, datagram).is_none());
                    batch.clear();
                }
                while listener.poll_transmit(&mut batch).is_some() {
                    let meta = RecvMeta::default();
                    let bytes = &mut batch;
                    other.handle_datagram(now, Datagram { from: server, local: None, meta, bytes });
                    batch.clear();
                }
            }
            assert_eq!(listener.passive.unconfirmed_ids().count(), 1);
            if awaited {
                listener.passive.await_id(id);
            }
            exchange(&mut listener, &mut stem, &mut host);
            let mut host = host.expect("it was opened");
            let taken = listener.take_branch(now, &mut host, || Some([5; 32]), |_| false);
            assert_eq!(taken.is_none(), awaited);
            branch.quit(now, "that is all");
        }
    }
}
