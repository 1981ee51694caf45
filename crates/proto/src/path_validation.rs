//! Path validation: at which address the peer is (`docs/protocol.md §4.5`, RFC 9000 §8.2 and §9).
//!
//! A connection is found by its id, so its peer may move: a router gives it another port, a laptop
//! another network. An attacker who copies a packet of the peer and sends it from another address
//! must never draw data to that address. So the address of the newest packet only gets a CHALLENGE
//! with an unpredictable token. Until its ANSWER comes, all else goes to the validated address, or
//! nowhere.

use std::time::Duration;

use crate::api::Route;
use crate::entropy::Entropy;
use crate::time::{Instant, earliest};
use crate::units::PacketNumber;
use crate::wire::sealed::{HEADER_BYTES, TAG_BYTES, Token};

/// Most addresses under validation at once: the peer's old and new one, and two of an attacker who
/// copies packets.
const MAX_ASKED: usize = 4;
/// Most CHALLENGEs to an address that sends nothing newer.
const TRIES: u8 = 4;
/// Time between further CHALLENGEs while no address is validated.
const PERSISTENCE: Duration = Duration::from_millis(1500);
/// Bytes of a CHALLENGE, which is also what its ANSWER has.
const CHALLENGE_BYTES: u64 = (HEADER_BYTES + size_of::<Token>() + TAG_BYTES) as u64;
/// Bytes of CHALLENGEs to an address, as a multiple of the bytes from there. The ANSWERs to its own
/// CHALLENGEs make the multiple three (RFC 9000 §8.1).
const GENEROSITY: u64 = 2;
/// Shortest and longest time between two rounds of CHALLENGEs. It doubles each time the old address
/// turns out to be right.
const ROUND: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The peer's validated address, and the candidates.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// Whether peers of this wire may move.
    moves: bool,
    /// The validated address.
    home: Option<Route>,
    /// Highest packet number from the peer.
    newest: Option<PacketNumber>,
    asked: Vec<Asked>,
    next_round: Instant,
    round: Duration,
    entropy: Entropy,
}

/// An address under validation.
#[derive(Debug)]
struct Asked {
    route: Route,
    token: Token,
    /// Bytes received from it, and bytes of CHALLENGEs and ANSWERs sent to it.
    came: u64,
    went: u64,
    left: u8,
    next: Instant,
}

impl Addresses {
    /// A validator whose validated address is `route`.
    pub(crate) fn proven(route: Route, moves: bool, entropy: Entropy) -> Self {
        let (home, newest, next_round) = (Some(route), None, Instant::EPOCH);
        Self { moves, home, newest, asked: Vec::new(), next_round, round: ROUND.0, entropy }
    }

    /// A validator without a validated address. The peer is at one of `routes`, most likely the
    /// first, which gets CHALLENGEs until one is validated. Each route comes with its bytes
    /// received less bytes sent.
    pub(crate) fn unproven(now: Instant, routes: &[(Route, u64)], entropy: Entropy) -> Self {
        let (home, newest, next_round) = (None, None, Instant::EPOCH);
        let asked = Vec::new();
        let mut new =
            Self { moves: true, home, newest, asked, next_round, round: ROUND.0, entropy };
        for (route, came) in routes {
            new.ask(now, *route, *came);
        }
        new
    }

    /// Where the peer is known to hear us.
    pub(crate) fn home(&self) -> Option<Route> {
        self.home
    }

    /// An authentic packet arrived by `route`.
    pub(crate) fn on_authentic(
        &mut self,
        now: Instant,
        route: Route,
        number: PacketNumber,
        bytes: usize,
    ) {
        if !self.moves {
            return;
        }
        let newest = self.newest.is_none_or(|newest| number > newest);
        if newest {
            self.newest = Some(number);
        }
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.route == route) {
            asked.came += bytes as u64;
            asked.left = if newest { TRIES } else { asked.left };
        }
        if newest && self.home == Some(route) {
            // The peer is still at its address: packets from elsewhere were copies, or late.
            self.asked.clear();
        } else if newest {
            self.wonder(now, route, bytes);
        }
    }

    /// The newest packet came from another address than the validated one.
    fn wonder(&mut self, now: Instant, route: Route, bytes: usize) {
        let known = self.asked.iter().any(|asked| asked.route == route);
        let early = self.home.is_some() && self.asked.is_empty() && now < self.next_round;
        if known || early {
            return;
        }
        self.next_round = now + self.round;
        self.ask(now, route, bytes as u64);
        // An attacker's copy may have been faster than the peer's packet. The validated address
        // gets a CHALLENGE too, and stays if it answers.
        if let Some(home) = self.home.filter(|home| self.asked.iter().all(|a| a.route != *home)) {
            self.ask(now, home, u64::MAX / GENEROSITY);
        }
    }

    fn ask(&mut self, now: Instant, route: Route, came: u64) {
        if self.asked.len() >= MAX_ASKED {
            // While no address is validated, copies from ever new addresses never displace the
            // first one, which the connection was opened to or from.
            self.asked.remove(usize::from(self.home.is_none()));
        }
        let [a, b, c, d, e, f, g, h, ..] = self.entropy.draw();
        let token = [a, b, c, d, e, f, g, h];
        self.asked.push(Asked { route, token, came, went: 0, left: TRIES, next: now });
    }

    /// Handles an ANSWER. Returns whether the validated address has changed.
    pub(crate) fn on_answer(&mut self, token: &Token) -> bool {
        let Some(asked) = self.asked.iter().find(|asked| asked.token == *token) else {
            return false;
        };
        let moved = self.home != Some(asked.route);
        self.home = Some(asked.route);
        self.asked.clear();
        self.round = if moved { ROUND.0 } else { (self.round * 2).min(ROUND.1) };
        moved
    }

    /// The other addresses that get the ANSWER to a CHALLENGE from `route`: the validated address,
    /// or, while there is none, all candidates, as far as the bytes from there allow. The token is
    /// the proof, whatever path it returns by.
    pub(crate) fn also_answered(&mut self, route: Route) -> Vec<Route> {
        if let Some(home) = self.home {
            return [home].into_iter().filter(|home| *home != route).collect();
        }
        let others = self.asked.iter_mut().filter(|asked| asked.route != route);
        let others = others.filter(|asked| asked.has_room());
        others
            .map(|asked| {
                asked.went += CHALLENGE_BYTES;
                asked.route
            })
            .collect()
    }

    /// The CHALLENGE that is due, if any. The next one to the same address follows after
    /// `interval`.
    pub(crate) fn poll_challenge(
        &mut self,
        now: Instant,
        interval: Duration,
    ) -> Option<(Route, Token)> {
        let asked =
            self.asked.iter_mut().find(|asked| asked.may_be_asked() && asked.next <= now)?;
        asked.left -= 1;
        asked.went = asked.went.saturating_add(CHALLENGE_BYTES);
        asked.next = now + interval;
        if asked.left == 0 && self.home.is_none() {
            // Nothing else leaves, and the peer may be in the same plight: who stops is silent.
            (asked.left, asked.next) = (1, now + PERSISTENCE);
        }
        Some((asked.route, asked.token))
    }

    /// When a CHALLENGE is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        earliest(self.asked.iter().filter(|a| a.may_be_asked()).map(|asked| Some(asked.next)))
    }
}

impl Asked {
    fn may_be_asked(&self) -> bool {
        self.left > 0 && self.has_room()
    }

    /// Whether a CHALLENGE, or an ANSWER to one that came from elsewhere, may go there.
    fn has_room(&self) -> bool {
        let went = self.went.saturating_add(CHALLENGE_BYTES);
        went <= self.came.saturating_mul(GENEROSITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(200);

    fn route(n: u8) -> Route {
        Route { peer: ([192, 0, 2, n], 7).into(), local: None }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn addresses() -> Addresses {
        Addresses::proven(route(1), true, Entropy::new([1; 32]))
    }

    /// Whom it asks now.
    fn asks(addresses: &mut Addresses, now: Instant) -> Vec<(Route, Token)> {
        std::iter::from_fn(|| addresses.poll_challenge(now, INTERVAL)).collect()
    }

    #[test]
    fn a_peer_that_moved_is_followed_when_it_answers_and_not_before() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(1), PacketNumber(0), 100);
        assert_eq!((asks(&mut addresses, at(0)), addresses.next_timeout()), (vec![], None));
        addresses.on_authentic(at(1), route(2), PacketNumber(1), 100);
        let asked = asks(&mut addresses, at(1));
        let routes: Vec<Route> = asked.iter().map(|(route, _)| *route).collect();
        assert_eq!((routes, addresses.home()), (vec![route(2), route(1)], Some(route(1))));
        assert!(!addresses.on_answer(&[0; 8]), "not what was asked");
        assert!(addresses.on_answer(&asked[0].1));
        assert_eq!((addresses.home(), addresses.next_timeout()), (Some(route(2)), None));
    }

    #[test]
    fn what_is_late_or_no_news_moves_nobody() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(1), PacketNumber(5), 100);
        addresses.on_authentic(at(0), route(2), PacketNumber(4), 100);
        assert_eq!(asks(&mut addresses, at(0)), []);
        let mut fixed = Addresses::proven(route(1), false, Entropy::new([1; 32]));
        fixed.on_authentic(at(0), route(2), PacketNumber(9), 100);
        assert_eq!(asks(&mut fixed, at(0)), []);
    }

    #[test]
    fn who_copies_packets_gets_few_bytes_and_the_peer_stays() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(9), PacketNumber(1), 36);
        let mut false_bytes = 0;
        for ms in 0..5000 {
            for (route, token) in asks(&mut addresses, at(ms)) {
                if route == self::route(9) {
                    false_bytes += CHALLENGE_BYTES;
                } else if ms > 3000 {
                    assert!(!addresses.on_answer(&token), "it is where it was");
                }
            }
        }
        assert_eq!(addresses.home(), Some(route(1)));
        assert!(false_bytes <= 3 * 36, "{false_bytes}");
        // Packet after packet, each a little ahead of the true one.
        let mut bytes = 0;
        for n in 0..1000 {
            addresses.on_authentic(at(6000 + n), route(9), PacketNumber(2 * n + 2), 1000);
            let asked = asks(&mut addresses, at(6000 + n));
            bytes += asked.len() as u64 * CHALLENGE_BYTES;
            addresses.on_authentic(at(6000 + n), route(1), PacketNumber(2 * n + 3), 1000);
        }
        assert!(bytes <= 20 * 2 * CHALLENGE_BYTES, "{bytes}");
        assert_eq!(addresses.home(), Some(route(1)));
    }

    #[test]
    fn among_several_that_opened_the_one_that_answers_is_the_peer() {
        let routes: Vec<(Route, u64)> = (1..=6).map(|n| (route(n), 1000)).collect();
        let mut addresses = Addresses::unproven(at(0), &routes, Entropy::new([1; 32]));
        assert_eq!(addresses.home(), None);
        let asked = asks(&mut addresses, at(0));
        assert_eq!(asked.len(), MAX_ASKED);
        let (peer, token) = asked[2];
        assert!(addresses.on_answer(&token));
        assert_eq!(addresses.home(), Some(peer));
        assert!(!addresses.on_answer(&token), "once");
    }

    #[test]
    fn copies_from_ever_new_addresses_do_not_push_out_where_the_peer_was_called() {
        let routes = [(route(1), 1000), (route(9), 0)];
        let mut addresses = Addresses::unproven(at(0), &routes, Entropy::new([1; 32]));
        for n in 0..100 {
            addresses.on_authentic(at(n), route(100 + n as u8), PacketNumber(n), 100);
        }
        let asked = asks(&mut addresses, at(100));
        assert_eq!(asked.len(), MAX_ASKED);
        let (_, token) = asked.iter().find(|(to, _)| *to == route(1)).expect("still asked");
        assert!(addresses.on_answer(token));
        assert_eq!(addresses.home(), Some(route(1)));
    }

    /// Both ends may be without a validated address, each after a copy that arrived first. If both
    /// stopped their CHALLENGEs, neither would ever send again.
    #[test]
    fn while_nobody_knows_where_the_peer_is_it_is_asked_on_and_on() {
        let routes = [(route(9), 0), (route(1), 1000)];
        let mut addresses = Addresses::unproven(at(0), &routes, Entropy::new([1; 32]));
        let times = (0..30_000).map(|ms| asks(&mut addresses, at(ms)));
        let asked: Vec<Route> = times.flatten().map(|(route, _)| route).collect();
        assert!(asked.len() > 20 && asked.iter().all(|to| *to == route(1)), "{asked:?}");
        assert!(asked.len() as u64 * CHALLENGE_BYTES <= 3 * 1000);
    }

    /// An attacker who delivers a copy of every CHALLENGE first must not be the only one to get the
    /// ANSWER.
    #[test]
    fn an_answer_goes_to_the_peer_too_whoever_brought_the_question() {
        let mut addresses = addresses();
        assert_eq!(addresses.also_answered(route(9)), [route(1)]);
        assert_eq!(addresses.also_answered(route(1)), []);
        let routes = [(route(1), 100), (route(2), 0)];
        let mut addresses = Addresses::unproven(at(0), &routes, Entropy::new([1; 32]));
        let mut bytes = 0;
        for _ in 0..1000 {
            let also = addresses.also_answered(route(9));
            assert!(also.iter().all(|to| *to == route(1)), "nothing came from there: {also:?}");
            bytes += also.len() as u64 * CHALLENGE_BYTES;
        }
        assert!(bytes > 0 && bytes <= 2 * 100, "{bytes}");
        assert_eq!(asks(&mut addresses, at(0)), [], "of the same allowance");
    }

    #[test]
    fn a_silent_address_is_asked_a_few_times_and_again_when_it_speaks() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(2), PacketNumber(1), 1000);
        let count = |addresses: &mut Addresses, from: u64| {
            let times = (from..from + 5000).map(|ms| asks(addresses, at(ms)));
            times.flatten().filter(|(to, _)| *to == route(2)).count()
        };
        assert_eq!(count(&mut addresses, 0), usize::from(TRIES));
        addresses.on_authentic(at(5000), route(2), PacketNumber(2), 1000);
        assert_eq!(count(&mut addresses, 5000), usize::from(TRIES));
    }
}
