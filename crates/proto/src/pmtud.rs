//! Path MTU discovery by probes without data (RFC 8899, DPLPMTUD; `docs/protocol.md §6.5`).
//!
//! Sizes are those of datagrams, in bytes of UDP payload. If datagrams of the size in use are not
//! reported for too long, probes of it and of smaller sizes check for a black hole (RFC 8899 §4.3).
//! Meanwhile, and at the start, probes of larger sizes search upward. Only probes decide: neither
//! loss nor an ICMP message, which may be forged.
//!
//! This is the search alone. It builds no packets: its owner sends the probes, passes answers and
//! reports on to it, and uses the size.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{DEFAULT_DATAGRAM_BYTES, MIN_SEALED_PACKET_BYTES};
use crate::time::{Instant, earliest};
use crate::units::Rate;
use crate::wire::{Wire, data_overhead};

/// Bytes of IP packets probed during a black hole check: Ethernet's, IPv6's minimum, that of OPEN,
/// and less.
const COARSE: [u32; 6] = [1500, 1280, 1228, 1000, 592, 224];
/// Further sizes common in practice: jumbo frames, PPPoE, WireGuard and other tunnels.
const FINE: [u32; 6] = [9000, 1492, 1480, 1420, 1400, 1380];
/// The largest datagram in an Ethernet frame, with IPv4 and UDP.
pub(crate) const ETHERNET_BYTES: u32 = 1472;
/// Probes of different sizes in one round.
const PROBES: usize = 4;
/// Rounds in which a larger size may fail (RFC 8899 §5.1.2, MAX_PROBES).
const TRIES: u8 = 3;
/// Probes of the size in use in one round of a black hole check, with others between them, so that
/// no burst of losses hits all of them and no other.
const COPIES: usize = 3;
/// A search is complete when the largest size that passes and the smallest that fails differ by at
/// most this part of the former.
const CLOSE: u32 = 64;
/// Longest serialisation time of a packet larger than Ethernet's, which delays the others.
const LONGEST: Duration = Duration::from_millis(5);
/// How often to check whether the rate has grown enough for that.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// From the end of a search to the next one, first and at most (RFC 8899 §5.1.1,
/// PMTU_RAISE_TIMER).
const REST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));
/// Three reports at their slowest (`docs/protocol.md §6.3`).
const REPORTS: Duration = Duration::from_millis(75);
/// Longest time between two rounds while no probe is answered, unless a timeout is longer.
const LONGEST_ROUND: Duration = Duration::from_secs(2);
/// Least time between two accepted hints: an attacker who forges them must not cause endless
/// probes.
const HINTS: Duration = Duration::from_secs(1);

/// Times of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The round trip.
    pub(crate) rtt: Duration,
    /// After this time an answer will not come.
    pub(crate) timeout: Duration,
    /// The sending rate.
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    size: u32,
    answered: bool,
}

/// Probes under way.
#[derive(Clone, Debug)]
struct Round {
    probes: Vec<Probe>,
    /// Failed rounds before this one.
    tries: u8,
    ends: Instant,
    /// A report came meanwhile, with no datagram as large as those sent.
    reported: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// The search is complete until then (RFC 8899 §5.2).
    Resting(Option<Instant>),
    /// Larger sizes are probed.
    Raising(Round),
    /// The size in use and smaller ones are probed.
    Doubting(Round),
}

/// Data were sent, and no datagram as large was reported since.
#[derive(Clone, Copy, Debug)]
struct Unheard {
    since: Instant,
    largest: u32,
}

/// The search for the largest datagram that the path carries.
#[derive(Debug)]
pub(crate) struct PacketSize {
    /// Bytes of IP and UDP header on each.
    overhead: u32,
    /// The negotiated largest size.
    ceiling: u32,
    /// In use.
    size: u32,
    /// The smallest known not to pass.
    fails: u32,
    /// The largest that this host sends, as far as it reported.
    host: u32,
    state: State,
    /// Probes to send.
    queue: VecDeque<u32>,
    unheard: Option<Unheard>,
    /// Black hole checks in a row that found none.
    vain: u32,
    rest: Duration,
    /// The size from an ICMP message, which may be forged.
    hint: Option<u32>,
    deaf_until: Instant,
    /// The first round is over.
    settled: bool,
}

/// The smallest datagram that is ever tried.
fn least() -> u32 {
    MIN_SEALED_PACKET_BYTES + data_overhead(Wire::Sealed)
}

/// The first size, where up to `agreed` bytes were negotiated: that size, unless it exceeds an
/// Ethernet frame, which few paths carry.
pub(crate) fn first_size(agreed: u32) -> u32 {
    if agreed > ETHERNET_BYTES { DEFAULT_DATAGRAM_BYTES } else { agreed }
}

impl PacketSize {
    /// A search up to datagrams of `ceiling` bytes, with `overhead` bytes of headers on each.
    pub(crate) fn new(now: Instant, ceiling: u32, overhead: u32) -> Self {
        let size = first_size(ceiling);
        Self {
            overhead,
            ceiling,
            size,
            fails: ceiling.saturating_add(1),
            host: u32::MAX,
            state: State::Resting((ceiling > size).then_some(now)),
            queue: VecDeque::new(),
            unheard: None,
            vain: 0,
            rest: REST.0,
            hint: None,
            deaf_until: now,
            settled: ceiling == size,
        }
    }

    /// The largest datagram to send.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Whether the first round is over, so that the size is meaningful.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// The next probe to send.
    pub(crate) fn next_probe(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    /// Whether no datagram as large as those sent was reported for too long: losses may be due to
    /// size.
    pub(crate) fn hides_losses(&self, now: Instant, pace: &Pace) -> bool {
        let overdue = pace.rtt / 2 + REPORTS / 3;
        let late = self.unheard.is_some_and(|unheard| unheard.since + overdue <= now);
        late || matches!(self.state, State::Doubting(_))
    }

    // ---- what happens

    /// Data were sent in datagrams of up to `bytes`.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32) {
        let unheard = self.unheard.get_or_insert(Unheard { since: now, largest: bytes });
        unheard.largest = unheard.largest.max(bytes);
    }

    /// The receiver reports datagrams of up to `largest` bytes. Returns whether all sent sizes
    /// arrive.
    pub(crate) fn on_report(&mut self, now: Instant, largest: u32, pace: &Pace) -> bool {
        let Some(unheard) = self.unheard else { return false };
        if largest < unheard.largest {
            if let State::Doubting(round) = &mut self.state {
                round.reported = true;
            }
            return false;
        }
        self.unheard = None;
        self.vain = 0;
        if let State::Doubting(_) = self.state {
            self.calm(now, pace);
        }
        true
    }

    /// A whole buffer arrived.
    pub(crate) fn on_accepted(&mut self) {
        self.unheard = None;
    }

    /// A probe of `bytes` was answered.
    pub(crate) fn on_answer(&mut self, now: Instant, bytes: u32, pace: &Pace) {
        let (State::Raising(round) | State::Doubting(round)) = &mut self.state else { return };
        let Some(probe) = round.probes.iter_mut().find(|probe| probe.size == bytes) else { return };
        probe.answered = true;
        let current = self.size;
        match &self.state {
            State::Doubting(_) if bytes >= current => {
                self.vain = (self.vain + 1).min(5);
                self.unheard = None;
                self.calm(now, pace);
            }
            State::Raising(round) => {
                self.size = current.max(bytes);
                self.settled = true;
                let larger = |probe: &Probe| probe.size > current.max(bytes) && !probe.answered;
                if !round.probes.iter().any(larger) {
                    self.raise(now, pace);
                }
            }
            State::Doubting(_) | State::Resting(_) => {}
        }
    }

    /// An ICMP message limits IP packets to `bytes`. It may be forged, so it only starts a check.
    pub(crate) fn on_hint(&mut self, now: Instant, bytes: u32, pace: &Pace) {
        let size = bytes.saturating_sub(self.overhead);
        let busy = matches!(self.state, State::Doubting(_));
        if size >= self.size || busy || now < self.deaf_until {
            return;
        }
        self.deaf_until = now + HINTS.max(pace.timeout);
        self.hint = Some(size).filter(|size| *size >= least());
        self.doubt(now, 0, pace);
    }

    /// This host refuses to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. False if there is no smaller size.
    pub(crate) fn on_refused(
        &mut self,
        now: Instant,
        bytes: u32,
        limit: Option<u32>,
        pace: &Pace,
    ) -> bool {
        if bytes <= least() {
            return false;
        }
        let limit = limit.map(|limit| limit.saturating_sub(self.overhead));
        let limit = limit.filter(|limit| *limit < bytes);
        self.fails = self.fails.min(limit.map_or(bytes, |limit| limit + 1));
        self.host = limit.unwrap_or(self.host);
        self.settled = true;
        if self.size < self.fails {
            if let State::Raising(round) = &mut self.state {
                round.probes.retain(|probe| probe.size < bytes);
                if round.probes.is_empty() {
                    self.raise(now, pace);
                }
            }
            return true;
        }
        let known = || self.smaller_than(self.fails).into_iter().next();
        self.size = limit.or_else(known).unwrap_or_default().max(least());
        self.unheard = None;
        self.queue.clear();
        self.state = State::Resting(Some(now + pace.timeout));
        true
    }

    /// Timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, pace: &Pace) {
        if self.doubt_due(pace).is_some_and(|at| at <= now) {
            self.doubt(now, 0, pace);
        }
        match &self.state {
            State::Resting(Some(until)) if *until <= now => {
                // The route may use another interface of this host by now.
                self.fails = self.ceiling.saturating_add(1);
                self.host = u32::MAX;
                self.raise(now, pace);
            }
            State::Raising(round) | State::Doubting(round) if round.ends <= now => {
                self.end_round(now, pace);
            }
            _ => {}
        }
    }

    /// When something is due.
    pub(crate) fn next_timeout(&self, now: Instant, pace: &Pace) -> Option<Instant> {
        let round = match &self.state {
            State::Resting(until) => *until,
            State::Raising(round) | State::Doubting(round) => Some(round.ends),
        };
        let probe = (!self.queue.is_empty()).then_some(now);
        earliest([round, probe, self.doubt_due(pace)])
    }

    fn doubt_due(&self, pace: &Pace) -> Option<Instant> {
        if let State::Doubting(_) = self.state {
            return None;
        }
        let patience = (pace.timeout + pace.rtt + REPORTS) * (1 << self.vain);
        self.unheard.map(|unheard| unheard.since + patience)
    }

    // ---- rounds

    /// Ends a black hole check: the size in use passes.
    fn calm(&mut self, now: Instant, pace: &Pace) {
        self.queue.clear();
        let more = self.size < self.ceiling;
        self.state = State::Resting(more.then(|| now + pace.timeout));
    }

    fn rest(&mut self, now: Instant, rate_bound: bool) {
        self.settled = true;
        let until = if self.size >= self.ceiling {
            None
        } else if rate_bound {
            Some(now + LOOK_AGAIN)
        } else {
            let rest = self.rest;
            self.rest = (rest * 2).min(REST.1);
            Some(now + rest)
        };
        self.state = State::Resting(until);
    }

    /// Probes larger sizes, if any are worth it.
    fn raise(&mut self, now: Instant, pace: &Pace) {
        let quick = u32::try_from(pace.rate.bytes_in(LONGEST)).unwrap_or(u32::MAX);
        let ethernet = COARSE[0].saturating_sub(self.overhead);
        let most = quick.max(ethernet).min(self.ceiling);
        let sizes = self.larger(most);
        if sizes.is_empty() {
            self.rest(now, self.fails > most + 1);
            return;
        }
        self.queue = sizes.iter().copied().collect();
        if !self.settled {
            // Buffers granted meanwhile keep their packet size: a lost probe would cost more than a
            // second one.
            self.queue.extend(sizes.last());
        }
        let probes = sizes.into_iter().map(|size| Probe { size, answered: false }).collect();
        self.state =
            State::Raising(Round { probes, tries: 0, ends: now + pace.timeout, reported: false });
    }

    /// Larger sizes to probe, the largest first; none if there is nothing to gain.
    fn larger(&self, most: u32) -> Vec<u32> {
        let known = COARSE.iter().chain(&FINE).map(|ip| ip.saturating_sub(self.overhead));
        let mut sizes: Vec<u32> = known.chain([self.ceiling, self.host]).collect();
        sizes.retain(|size| (self.size + 1..self.fails.min(most + 1)).contains(size));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        let ethernet = COARSE[0].saturating_sub(self.overhead);
        if self.fails > self.ceiling.min(self.host) {
            // The first one usually passes: the others cost a slow path more than they are worth.
            let first = sizes.first().copied();
            sizes.retain(|size| Some(*size) == first || *size == ethernet);
        }
        sizes.truncate(PROBES);
        let gap = self.fails.saturating_sub(self.size);
        if sizes.is_empty() && self.fails <= most + 1 && gap > (self.size / CLOSE).max(2) {
            sizes.push(self.size + gap / 2);
        }
        sizes
    }

    /// Smaller sizes than `size` to probe, the largest first.
    fn smaller_than(&self, size: u32) -> Vec<u32> {
        let known = COARSE.iter().map(|ip| ip.saturating_sub(self.overhead));
        let mut sizes: Vec<u32> = known.chain(self.hint).collect();
        sizes.retain(|smaller| (least()..size).contains(smaller));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        sizes
    }

    /// Starts a black hole check: probes the size in use, and smaller ones.
    fn doubt(&mut self, now: Instant, tries: u8, pace: &Pace) {
        let mut smaller = self.smaller_than(self.size);
        if tries > 0 {
            // No probe passes: a small one will show when the outage ends.
            smaller.drain(..smaller.len().saturating_sub(2));
        }
        self.queue.clear();
        for (n, size) in smaller.iter().enumerate() {
            self.queue.extend((n < COPIES).then_some(self.size));
            self.queue.push_back(*size);
        }
        let copies = smaller.len().min(COPIES);
        self.queue.extend((copies..COPIES).map(|_| self.size));
        // A single lost probe must not make packets much smaller than necessary.
        self.queue.extend(&smaller);
        let sizes = smaller.into_iter().chain([self.size]);
        let probes = sizes.map(|size| Probe { size, answered: false }).collect();
        let longest = LONGEST_ROUND.max(pace.timeout);
        let ends = now + (pace.timeout * (1 << tries.min(6))).min(longest);
        self.state = State::Doubting(Round { probes, tries, ends, reported: false });
    }

    fn end_round(&mut self, now: Instant, pace: &Pace) {
        match &mut self.state {
            State::Raising(round) => {
                round.tries += 1;
                round.ends = now + pace.timeout;
                round.probes.retain(|probe| probe.size > self.size && !probe.answered);
                let failed = round.probes.iter().map(|probe| probe.size).min();
                self.settled = true;
                match failed {
                    Some(_) if round.tries < TRIES => {
                        self.queue = round.probes.iter().map(|probe| probe.size).collect();
                    }
                    Some(failed) => {
                        self.fails = self.fails.min(failed);
                        self.raise(now, pace);
                    }
                    None => self.raise(now, pace),
                }
            }
            State::Doubting(round) => {
                let passed = round.probes.iter().filter(|probe| probe.answered);
                match (passed.map(|probe| probe.size).max(), round.tries) {
                    // If data arrive, a report shows it: without a report nothing is known.
                    (Some(size), _) if round.reported => {
                        self.fails = self.size;
                        self.size = size;
                        self.settled = true;
                        self.unheard = None;
                        self.rest = REST.0;
                        self.raise(now, pace);
                    }
                    (Some(_), tries) => self.doubt(now, tries, pace),
                    (None, tries) => self.doubt(now, tries.saturating_add(1), pace),
                }
            }
            State::Resting(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        rtt: Duration::from_millis(50),
        timeout: Duration::from_millis(60),
        rate: Rate::from_bits_per_second(1_000_000_000),
    };

    /// A path that carries datagrams of `passes` bytes, and a sender that always has data.
    struct Path {
        search: PacketSize,
        now: Instant,
        passes: u32,
        probes: u32,
        answers: VecDeque<(Instant, u32)>,
    }

    impl Path {
        fn new(ceiling: u32, passes: u32) -> Self {
            let search = PacketSize::new(Instant::EPOCH, ceiling, 28);
            Self { search, now: Instant::EPOCH, passes, probes: 0, answers: VecDeque::new() }
        }

        /// Lets so much time pass, in steps of 10 ms.
        fn run(&mut self, millis: u64) {
            for _ in 0..millis / 10 {
                self.search.on_sent(self.now, self.search.size());
                self.search.handle_timeout(self.now, &PACE);
                while let Some(size) = self.search.next_probe() {
                    self.probes += 1;
                    if size <= self.passes {
                        self.answers.push_back((self.now + PACE.rtt, size));
                    }
                }
                if self.search.size() <= self.passes {
                    self.search.on_report(self.now, self.search.size(), &PACE);
                }
                self.now += Duration::from_millis(10);
                while let Some((_, size)) = self.answers.pop_front_if(|(at, _)| *at <= self.now) {
                    self.search.on_report(self.now, size, &PACE);
                    self.search.on_answer(self.now, size, &PACE);
                }
            }
        }
    }

    #[test]
    fn every_path_is_found_from_the_start_and_after_each_change() {
        let sizes = [572, 972, 1212, 1252, 1372, 1392, 1472, 8972, 65_507];
        for (first, second) in sizes.iter().flat_map(|a| sizes.map(|b| (*a, b))) {
            let mut path = Path::new(65_507, first);
            for passes in [first, second] {
                path.passes = passes;
                path.run(30_000);
                let found = path.search.size();
                let enough = passes - (passes / CLOSE).max(2);
                assert!((enough..=passes).contains(&found), "{passes} after {first}: {found}");
            }
        }
    }

    #[test]
    fn a_black_hole_is_left_within_half_a_second_and_never_made_worse() {
        for (from, to) in [(1472, 1000), (1232, 972), (8972, 1472), (1472, 572)] {
            let mut path = Path::new(from, from);
            path.run(3000);
            assert_eq!(path.search.size(), from);
            path.passes = to;
            path.run(300);
            let size = path.search.size();
            assert!(size <= to && size * 2 > to, "{from} to {to}: {size}");
        }
    }

    #[test]
    fn a_path_that_takes_all_is_asked_once_and_one_that_is_dead_rarely() {
        let mut path = Path::new(1472, 1472);
        path.run(60_000);
        assert_eq!((path.search.size(), path.probes), (1472, 0));
        path.passes = 0;
        path.run(60_000);
        assert!(path.search.size() == 1472 && path.probes < 300, "{}", path.probes);
        path.passes = 1472;
        path.run(3000);
        assert_eq!(path.search.size(), 1472);
    }

    #[test]
    fn what_is_not_agreed_is_not_tried() {
        let mut path = Path::new(1000, 500);
        path.run(60_000);
        assert!((480..=500).contains(&path.search.size()), "{}", path.search.size());
        path.passes = 9000;
        path.run(60_000);
        assert_eq!(path.search.size(), 1000);
    }

    #[test]
    fn a_forged_hint_costs_a_few_probes_and_nothing_else() {
        let mut path = Path::new(1472, 1472);
        path.run(3000);
        for _ in 0..100 {
            path.search.on_hint(path.now, 600, &PACE);
            path.run(20);
        }
        assert!(path.search.size() == 1472 && path.probes < 40, "{}", path.probes);
        path.run(2000);
        path.passes = 700;
        path.search.on_hint(path.now, 728, &PACE);
        path.run(80);
        assert_eq!(path.search.size(), 700, "a true one is of use");
    }

    #[test]
    fn what_this_host_refuses_is_not_sent_again() {
        let mut path = Path::new(8972, 1472);
        path.search.on_refused(path.now, 1232, None, &PACE);
        assert_eq!(path.search.size(), 1200);
        path.search.on_refused(path.now, 1200, Some(1028), &PACE);
        assert_eq!(path.search.size(), 1000);
        path.run(3000);
        assert_eq!(path.search.size(), 1472, "until it was asked anew");
        path.search.on_refused(path.now, 8972, Some(1500), &PACE);
        assert_eq!(path.search.size(), 1472);
    }

    #[test]
    fn a_slow_path_is_spared_large_probes() {
        let mut search = PacketSize::new(Instant::EPOCH, 65_507, 28);
        let slow = Pace { rate: Rate::from_bits_per_second(1_000_000), ..PACE };
        search.handle_timeout(Instant::EPOCH, &slow);
        let probes: Vec<u32> = std::iter::from_fn(|| search.next_probe()).collect();
        assert_eq!(probes, [1472, 1472]);
        search.on_answer(Instant::EPOCH + PACE.rtt, 1472, &slow);
        assert_eq!(search.next_probe(), None);
        let later = Instant::EPOCH + PACE.rtt + LOOK_AGAIN;
        search.handle_timeout(later, &PACE);
        assert_eq!(search.next_probe(), Some(65_507));
    }
}
