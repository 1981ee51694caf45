//! Path validation: at which address the peer is (`docs/protocol §4.5`, RFC 9000 §8.2 and §9).
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
use crate::wire::sealed::{CHALLENGE_BYTES, Token};

/// Most addresses under validation at once: the peer's old and new one, and two of an attacker who
/// copies packets.
const MAX_CANDIDATES: usize = 4;
/// Most CHALLENGEs to an address that sends nothing newer.
const MAX_CHALLENGES: u8 = 4;
/// Time between further CHALLENGEs while no address is validated.
const LONG_INTERVAL: Duration = Duration::from_millis(1500);
/// Bytes of CHALLENGEs to an address, as a multiple of the bytes from there. The ANSWERs to its own
/// CHALLENGEs make the multiple three (RFC 9000 §8.1).
const CHALLENGE_FACTOR: u64 = 2;
/// Shortest and longest time between two rounds of CHALLENGEs. It doubles each time the old address
/// turns out to be right.
const ROUND_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The peer's validated address, and the candidates.
#[derive(Debug)]
pub(crate) struct PathValidator {
    /// Whether peers of this wire may move.
    moves: bool,
    /// The validated address.
    validated: Option<Route>,
    /// Highest packet number from the peer.
    newest: Option<PacketNumber>,
    candidates: Vec<CandidatePath>,
    next_round: Instant,
    round: Duration,
    entropy: Entropy,
}

/// An address under validation.
#[derive(Debug)]
struct CandidatePath {
    route: Route,
    token: Token,
    /// Bytes received from it, and bytes of CHALLENGEs and ANSWERs sent to it.
    received_bytes: u64,
    sent_bytes: u64,
    left: u8,
    next: Instant,
}

impl PathValidator {
    /// A validator whose validated address is `route`.
    pub(crate) fn validated_at(route: Route, moves: bool, entropy: Entropy) -> Self {
        let (validated, newest, next_round) = (Some(route), None, Instant::EPOCH);
        Self {
            moves,
            validated,
            newest,
            candidates: Vec::new(),
            next_round,
            round: ROUND_INTERVAL.0,
            entropy,
        }
    }

    /// A validator without a validated address. The peer is at one of `routes`, most likely the
    /// first, which gets CHALLENGEs until one is validated. Each route comes with its bytes
    /// received less bytes sent.
    pub(crate) fn unvalidated(now: Instant, routes: &[(Route, u64)], entropy: Entropy) -> Self {
        let (validated, newest, next_round) = (None, None, Instant::EPOCH);
        let candidates = Vec::new();
        let mut new = Self {
            moves: true,
            validated,
            newest,
            candidates,
            next_round,
            round: ROUND_INTERVAL.0,
            entropy,
        };
        for (route, received_bytes) in routes {
            new.add_candidate(now, *route, *received_bytes);
        }
        new
    }

    /// The validated address.
    pub(crate) fn validated(&self) -> Option<Route> {
        self.validated
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
        if let Some(candidates) =
            self.candidates.iter_mut().find(|candidates| candidates.route == route)
        {
            candidates.received_bytes += bytes as u64;
            candidates.left = if newest { MAX_CHALLENGES } else { candidates.left };
        }
        if newest && self.validated == Some(route) {
            // The peer is still at its address: packets from elsewhere were copies, or late.
            self.candidates.clear();
        } else if newest {
            self.on_new_address(now, route, bytes);
        }
    }

    /// The newest packet came from another address than the validated one.
    fn on_new_address(&mut self, now: Instant, route: Route, bytes: usize) {
        let known = self.candidates.iter().any(|candidates| candidates.route == route);
        let early = self.validated.is_some() && self.candidates.is_empty() && now < self.next_round;
        if known || early {
            return;
        }
        self.next_round = now + self.round;
        self.add_candidate(now, route, bytes as u64);
        // An attacker's copy may have been faster than the peer's packet. The validated address
        // gets a CHALLENGE too, and stays if it answers.
        if let Some(validated) =
            self.validated.filter(|validated| self.candidates.iter().all(|a| a.route != *validated))
        {
            self.add_candidate(now, validated, u64::MAX / CHALLENGE_FACTOR);
        }
    }

    fn add_candidate(&mut self, now: Instant, route: Route, received_bytes: u64) {
        if self.candidates.len() >= MAX_CANDIDATES {
            // While no address is validated, copies from ever new addresses never displace the
            // first one, which the connection was opened to or from.
            self.candidates.remove(usize::from(self.validated.is_none()));
        }
        let [a, b, c, d, e, f, g, h, ..] = self.entropy.draw();
        let token = [a, b, c, d, e, f, g, h];
        self.candidates.push(CandidatePath {
            route,
            token,
            received_bytes,
            sent_bytes: 0,
            left: MAX_CHALLENGES,
            next: now,
        });
    }

    /// Handles an ANSWER. Returns whether the validated address has changed.
    pub(crate) fn on_answer(&mut self, token: &Token) -> bool {
        let Some(candidates) = self.candidates.iter().find(|candidates| candidates.token == *token)
        else {
            return false;
        };
        let moved = self.validated != Some(candidates.route);
        self.validated = Some(candidates.route);
        self.candidates.clear();
        self.round = if moved { ROUND_INTERVAL.0 } else { (self.round * 2).min(ROUND_INTERVAL.1) };
        moved
    }

    /// The other addresses that get the ANSWER to a CHALLENGE from `route`: the validated address,
    /// or, while there is none, all candidates, as far as the bytes from there allow. The token is
    /// the proof, whatever path it returns by.
    pub(crate) fn also_answered(&mut self, route: Route) -> Vec<Route> {
        if let Some(validated) = self.validated {
            return [validated].into_iter().filter(|validated| *validated != route).collect();
        }
        let others = self.candidates.iter_mut().filter(|candidates| candidates.route != route);
        let others = others.filter(|candidates| candidates.has_room());
        others
            .map(|candidates| {
                candidates.sent_bytes += CHALLENGE_BYTES;
                candidates.route
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
        let candidates = self
            .candidates
            .iter_mut()
            .find(|candidates| candidates.may_be_challenged() && candidates.next <= now)?;
        candidates.left -= 1;
        candidates.sent_bytes = candidates.sent_bytes.saturating_add(CHALLENGE_BYTES);
        candidates.next = now + interval;
        if candidates.left == 0 && self.validated.is_none() {
            // Nothing else leaves, and the peer may have no validated address either: both must go
            // on.
            (candidates.left, candidates.next) = (1, now + LONG_INTERVAL);
        }
        Some((candidates.route, candidates.token))
    }

    /// When a CHALLENGE is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        earliest(
            self.candidates
                .iter()
                .filter(|a| a.may_be_challenged())
                .map(|candidates| Some(candidates.next)),
        )
    }
}

impl CandidatePath {
    fn may_be_challenged(&self) -> bool {
        self.left > 0 && self.has_room()
    }

    /// Whether a CHALLENGE, or an ANSWER to one that came from elsewhere, may go there.
    fn has_room(&self) -> bool {
        let sent_bytes = self.sent_bytes.saturating_add(CHALLENGE_BYTES);
        sent_bytes <= self.received_bytes.saturating_mul(CHALLENGE_FACTOR)
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

    fn addresses() -> PathValidator {
        PathValidator::validated_at(route(1), true, Entropy::new([1; 32]))
    }

    /// The CHALLENGEs that are due.
    fn challenges(addresses: &mut PathValidator, now: Instant) -> Vec<(Route, Token)> {
        std::iter::from_fn(|| addresses.poll_challenge(now, INTERVAL)).collect()
    }

    #[test]
    fn a_new_address_is_used_only_after_its_answer() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(1), PacketNumber(0), 100);
        assert_eq!((challenges(&mut addresses, at(0)), addresses.next_timeout()), (vec![], None));
        addresses.on_authentic(at(1), route(2), PacketNumber(1), 100);
        let candidates = challenges(&mut addresses, at(1));
        let routes: Vec<Route> = candidates.iter().map(|(route, _)| *route).collect();
        assert_eq!((routes, addresses.validated()), (vec![route(2), route(1)], Some(route(1))));
        assert!(!addresses.on_answer(&[0; 8]), "not what was challenged");
        assert!(addresses.on_answer(&candidates[0].1));
        assert_eq!((addresses.validated(), addresses.next_timeout()), (Some(route(2)), None));
    }

    #[test]
    fn late_packets_and_fixed_peers_do_not_change_the_address() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(1), PacketNumber(5), 100);
        addresses.on_authentic(at(0), route(2), PacketNumber(4), 100);
        assert_eq!(challenges(&mut addresses, at(0)), []);
        let mut fixed = PathValidator::validated_at(route(1), false, Entropy::new([1; 32]));
        fixed.on_authentic(at(0), route(2), PacketNumber(9), 100);
        assert_eq!(challenges(&mut fixed, at(0)), []);
    }

    #[test]
    fn an_attacker_that_copies_packets_draws_at_most_three_times_its_bytes() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(9), PacketNumber(1), 36);
        let mut false_bytes = 0;
        for ms in 0..5000 {
            for (route, token) in challenges(&mut addresses, at(ms)) {
                if route == self::route(9) {
                    false_bytes += CHALLENGE_BYTES;
                } else if ms > 3000 {
                    assert!(!addresses.on_answer(&token), "it is where it was");
                }
            }
        }
        assert_eq!(addresses.validated(), Some(route(1)));
        assert!(false_bytes <= 3 * 36, "{false_bytes}");
        // Packet after packet, each a little ahead of the true one.
        let mut bytes = 0;
        for n in 0..1000 {
            addresses.on_authentic(at(6000 + n), route(9), PacketNumber(2 * n + 2), 1000);
            let candidates = challenges(&mut addresses, at(6000 + n));
            bytes += candidates.len() as u64 * CHALLENGE_BYTES;
            addresses.on_authentic(at(6000 + n), route(1), PacketNumber(2 * n + 3), 1000);
        }
        assert!(bytes <= 20 * 2 * CHALLENGE_BYTES, "{bytes}");
        assert_eq!(addresses.validated(), Some(route(1)));
    }

    #[test]
    fn the_candidate_that_answers_becomes_the_validated_address() {
        let routes: Vec<(Route, u64)> = (1..=6).map(|n| (route(n), 1000)).collect();
        let mut addresses = PathValidator::unvalidated(at(0), &routes, Entropy::new([1; 32]));
        assert_eq!(addresses.validated(), None);
        let candidates = challenges(&mut addresses, at(0));
        assert_eq!(candidates.len(), MAX_CANDIDATES);
        let (peer, token) = candidates[2];
        assert!(addresses.on_answer(&token));
        assert_eq!(addresses.validated(), Some(peer));
        assert!(!addresses.on_answer(&token), "once");
    }

    #[test]
    fn copies_from_new_addresses_never_displace_the_first_candidate() {
        let routes = [(route(1), 1000), (route(9), 0)];
        let mut addresses = PathValidator::unvalidated(at(0), &routes, Entropy::new([1; 32]));
        for n in 0..100 {
            addresses.on_authentic(at(n), route(100 + n as u8), PacketNumber(n), 100);
        }
        let candidates = challenges(&mut addresses, at(100));
        assert_eq!(candidates.len(), MAX_CANDIDATES);
        let (_, token) =
            candidates.iter().find(|(to, _)| *to == route(1)).expect("still a candidate");
        assert!(addresses.on_answer(token));
        assert_eq!(addresses.validated(), Some(route(1)));
    }

    /// Both ends may be without a validated address, each after a copy that arrived first. If both
    /// stopped their CHALLENGEs, neither would ever send again.
    #[test]
    fn challenges_go_on_while_no_address_is_validated() {
        let routes = [(route(9), 0), (route(1), 1000)];
        let mut addresses = PathValidator::unvalidated(at(0), &routes, Entropy::new([1; 32]));
        let times = (0..30_000).map(|ms| challenges(&mut addresses, at(ms)));
        let candidates: Vec<Route> = times.flatten().map(|(route, _)| route).collect();
        assert!(
            candidates.len() > 20 && candidates.iter().all(|to| *to == route(1)),
            "{candidates:?}"
        );
        assert!(candidates.len() as u64 * CHALLENGE_BYTES <= 3 * 1000);
    }

    /// An attacker who delivers a copy of every CHALLENGE first must not be the only one to get the
    /// ANSWER.
    #[test]
    fn an_answer_also_goes_to_the_validated_address() {
        let mut addresses = addresses();
        assert_eq!(addresses.also_answered(route(9)), [route(1)]);
        assert_eq!(addresses.also_answered(route(1)), []);
        let routes = [(route(1), 100), (route(2), 0)];
        let mut addresses = PathValidator::unvalidated(at(0), &routes, Entropy::new([1; 32]));
        let mut bytes = 0;
        for _ in 0..1000 {
            let also = addresses.also_answered(route(9));
            assert!(also.iter().all(|to| *to == route(1)), "nothing came from there: {also:?}");
            bytes += also.len() as u64 * CHALLENGE_BYTES;
        }
        assert!(bytes > 0 && bytes <= 2 * 100, "{bytes}");
        assert_eq!(challenges(&mut addresses, at(0)), [], "of the same allowance");
    }

    #[test]
    fn a_silent_address_gets_few_challenges_until_it_sends_again() {
        let mut addresses = addresses();
        addresses.on_authentic(at(0), route(2), PacketNumber(1), 1000);
        let count = |addresses: &mut PathValidator, from: u64| {
            let times = (from..from + 5000).map(|ms| challenges(addresses, at(ms)));
            times.flatten().filter(|(to, _)| *to == route(2)).count()
        };
        assert_eq!(count(&mut addresses, 0), usize::from(MAX_CHALLENGES));
        addresses.on_authentic(at(5000), route(2), PacketNumber(2), 1000);
        assert_eq!(count(&mut addresses, 5000), usize::from(MAX_CHALLENGES));
    }
}
