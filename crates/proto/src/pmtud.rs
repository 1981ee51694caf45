//! Path MTU discovery by probes without data (RFC 8899, DPLPMTUD; `docs/protocol §6.5`).
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
const COMMON_SIZES: [u32; 6] = [1500, 1280, 1228, 1000, 592, 224];
/// Further sizes common in practice: jumbo frames, PPPoE, WireGuard and other tunnels.
const MORE_SIZES: [u32; 6] = [9000, 1492, 1480, 1420, 1400, 1380];
/// The largest datagram in an Ethernet frame, with IPv4 and UDP.
pub(crate) const ETHERNET_BYTES: u32 = 1472;
/// Probes of different sizes in one round.
const SIZES_PER_ROUND: usize = 4;
/// Rounds in which a larger size may fail (RFC 8899 §5.1.2, MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// Probes of the size in use in one round of a black hole check, with others between them, so that
/// no burst of losses hits all of them and no other.
const COPIES: usize = 3;
/// A search is complete when the largest size that passes and the smallest that fails differ by at
/// most this part of the former.
const CLOSE: u32 = 64;
/// Longest serialisation time of a packet larger than Ethernet's, which delays the others.
const MAX_SERIALISATION: Duration = Duration::from_millis(5);
/// How often to check whether the rate has grown enough for that.
const RATE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// From the end of a search to the next one, first and at most (RFC 8899 §5.1.1,
/// PMTU_RAISE_TIMER).
const RAISE_TIMER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));
/// Three reports at their slowest (`docs/protocol §6.3`).
const THREE_REPORTS: Duration = Duration::from_millis(75);
/// Longest time between two rounds while no probe is answered, unless a timeout is longer.
const LONGEST_ROUND: Duration = Duration::from_secs(2);
/// Least time between two accepted hints: an attacker who forges them must not cause endless
/// probes.
const HINT_INTERVAL: Duration = Duration::from_secs(1);

/// Times of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTiming {
    /// The round trip.
    pub(crate) rtt: Duration,
    /// After this time an answer will not come.
    pub(crate) timeout: Duration,
    /// The sending rate.
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug)]
struct SizeProbe {
    size: u32,
    answered: bool,
}

/// Probes under way.
#[derive(Clone, Debug)]
struct ProbeRound {
    probes: Vec<SizeProbe>,
    /// Failed rounds before this one.
    tries: u8,
    ends: Instant,
    /// A report came meanwhile, with no datagram as large as those sent.
    reported: bool,
}

#[derive(Clone, Debug)]
enum SearchState {
    /// The search is complete until then (RFC 8899 §5.2).
    SearchComplete(Option<Instant>),
    /// Larger sizes are probed.
    Searching(ProbeRound),
    /// The size in use and smaller ones are probed.
    BlackHoleCheck(ProbeRound),
}

/// Data were sent, and no datagram as large was reported since.
#[derive(Clone, Copy, Debug)]
struct UnconfirmedSize {
    since: Instant,
    largest: u32,
}

/// The search for the largest datagram that the path carries.
#[derive(Debug)]
pub(crate) struct PathMtuDiscovery {
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
    state: SearchState,
    /// Probes to send.
    queue: VecDeque<u32>,
    unconfirmed: Option<UnconfirmedSize>,
    /// Black hole checks in a row that found none.
    false_alarms: u32,
    raise_timer: Duration,
    /// The size from an ICMP message, which may be forged.
    hint: Option<u32>,
    ignore_hints_until: Instant,
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

impl PathMtuDiscovery {
    /// A search up to datagrams of `ceiling` bytes, with `overhead` bytes of headers on each.
    pub(crate) fn new(now: Instant, ceiling: u32, overhead: u32) -> Self {
        let size = first_size(ceiling);
        Self {
            overhead,
            ceiling,
            size,
            fails: ceiling.saturating_add(1),
            host: u32::MAX,
            state: SearchState::SearchComplete((ceiling > size).then_some(now)),
            queue: VecDeque::new(),
            unconfirmed: None,
            false_alarms: 0,
            raise_timer: RAISE_TIMER.0,
            hint: None,
            ignore_hints_until: now,
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
    pub(crate) fn hides_losses(&self, now: Instant, pace: &ProbeTiming) -> bool {
        let overdue = pace.rtt / 2 + THREE_REPORTS / 3;
        let late = self.unconfirmed.is_some_and(|unconfirmed| unconfirmed.since + overdue <= now);
        late || matches!(self.state, SearchState::BlackHoleCheck(_))
    }

    // ---- what happens

    /// Data were sent in datagrams of up to `bytes`.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32) {
        let unconfirmed =
            self.unconfirmed.get_or_insert(UnconfirmedSize { since: now, largest: bytes });
        unconfirmed.largest = unconfirmed.largest.max(bytes);
    }

    /// The receiver reports datagrams of up to `largest` bytes. Returns whether all sent sizes
    /// arrive.
    pub(crate) fn on_report(&mut self, now: Instant, largest: u32, pace: &ProbeTiming) -> bool {
        let Some(unconfirmed) = self.unconfirmed else { return false };
        if largest < unconfirmed.largest {
            if let SearchState::BlackHoleCheck(round) = &mut self.state {
                round.reported = true;
            }
            return false;
        }
        self.unconfirmed = None;
        self.false_alarms = 0;
        if let SearchState::BlackHoleCheck(_) = self.state {
            self.end_check(now, pace);
        }
        true
    }

    /// A whole buffer arrived.
    pub(crate) fn on_accepted(&mut self) {
        self.unconfirmed = None;
    }

    /// A probe of `bytes` was answered.
    pub(crate) fn on_answer(&mut self, now: Instant, bytes: u32, pace: &ProbeTiming) {
        let (SearchState::Searching(round) | SearchState::BlackHoleCheck(round)) = &mut self.state
        else {
            return;
        };
        let Some(probe) = round.probes.iter_mut().find(|probe| probe.size == bytes) else { return };
        probe.answered = true;
        let current = self.size;
        match &self.state {
            SearchState::BlackHoleCheck(_) if bytes >= current => {
                self.false_alarms = (self.false_alarms + 1).min(5);
                self.unconfirmed = None;
                self.end_check(now, pace);
            }
            SearchState::Searching(round) => {
                self.size = current.max(bytes);
                self.settled = true;
                let larger = |probe: &SizeProbe| probe.size > current.max(bytes) && !probe.answered;
                if !round.probes.iter().any(larger) {
                    self.raise(now, pace);
                }
            }
            SearchState::BlackHoleCheck(_) | SearchState::SearchComplete(_) => {}
        }
    }

    /// An ICMP message limits IP packets to `bytes`. It may be forged, so it only starts a check.
    pub(crate) fn on_hint(&mut self, now: Instant, bytes: u32, pace: &ProbeTiming) {
        let size = bytes.saturating_sub(self.overhead);
        let busy = matches!(self.state, SearchState::BlackHoleCheck(_));
        if size >= self.size || busy || now < self.ignore_hints_until {
            return;
        }
        self.ignore_hints_until = now + HINT_INTERVAL.max(pace.timeout);
        self.hint = Some(size).filter(|size| *size >= least());
        self.check_black_hole(now, 0, pace);
    }

    /// This host refuses to send datagrams of `bytes`; it sends IP packets of at most `limit`, if
    /// known. False if there is no smaller size.
    pub(crate) fn on_refused(
        &mut self,
        now: Instant,
        bytes: u32,
        limit: Option<u32>,
        pace: &ProbeTiming,
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
            if let SearchState::Searching(round) = &mut self.state {
                round.probes.retain(|probe| probe.size < bytes);
                if round.probes.is_empty() {
                    self.raise(now, pace);
                }
            }
            return true;
        }
        let known = || self.smaller_than(self.fails).into_iter().next();
        self.size = limit.or_else(known).unwrap_or_default().max(least());
        self.unconfirmed = None;
        self.queue.clear();
        self.state = SearchState::SearchComplete(Some(now + pace.timeout));
        true
    }

    /// Timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, pace: &ProbeTiming) {
        if self.check_due(pace).is_some_and(|at| at <= now) {
            self.check_black_hole(now, 0, pace);
        }
        match &self.state {
            SearchState::SearchComplete(Some(until)) if *until <= now => {
                // The route may use another interface of this host by now.
                self.fails = self.ceiling.saturating_add(1);
                self.host = u32::MAX;
                self.raise(now, pace);
            }
            SearchState::Searching(round) | SearchState::BlackHoleCheck(round)
                if round.ends <= now =>
            {
                self.end_round(now, pace);
            }
            _ => {}
        }
    }

    /// When something is due.
    pub(crate) fn next_timeout(&self, now: Instant, pace: &ProbeTiming) -> Option<Instant> {
        let round = match &self.state {
            SearchState::SearchComplete(until) => *until,
            SearchState::Searching(round) | SearchState::BlackHoleCheck(round) => Some(round.ends),
        };
        let probe = (!self.queue.is_empty()).then_some(now);
        earliest([round, probe, self.check_due(pace)])
    }

    fn check_due(&self, pace: &ProbeTiming) -> Option<Instant> {
        if let SearchState::BlackHoleCheck(_) = self.state {
            return None;
        }
        let patience = (pace.timeout + pace.rtt + THREE_REPORTS) * (1 << self.false_alarms);
        self.unconfirmed.map(|unconfirmed| unconfirmed.since + patience)
    }

    // ---- rounds

    /// Ends a black hole check: the size in use passes.
    fn end_check(&mut self, now: Instant, pace: &ProbeTiming) {
        self.queue.clear();
        let more = self.size < self.ceiling;
        self.state = SearchState::SearchComplete(more.then(|| now + pace.timeout));
    }

    fn complete_search(&mut self, now: Instant, rate_bound: bool) {
        self.settled = true;
        let until = if self.size >= self.ceiling {
            None
        } else if rate_bound {
            Some(now + RATE_CHECK_INTERVAL)
        } else {
            let rest = self.raise_timer;
            self.raise_timer = (rest * 2).min(RAISE_TIMER.1);
            Some(now + rest)
        };
        self.state = SearchState::SearchComplete(until);
    }

    /// Probes larger sizes, if any are worth it.
    fn raise(&mut self, now: Instant, pace: &ProbeTiming) {
        let quick = u32::try_from(pace.rate.bytes_in(MAX_SERIALISATION)).unwrap_or(u32::MAX);
        let ethernet = COMMON_SIZES[0].saturating_sub(self.overhead);
        let most = quick.max(ethernet).min(self.ceiling);
        let sizes = self.larger(most);
        if sizes.is_empty() {
            self.complete_search(now, self.fails > most + 1);
            return;
        }
        self.queue = sizes.iter().copied().collect();
        if !self.settled {
            // Buffers granted meanwhile keep their packet size: a lost probe would cost more than a
            // second one.
            self.queue.extend(sizes.last());
        }
        let probes = sizes.into_iter().map(|size| SizeProbe { size, answered: false }).collect();
        self.state = SearchState::Searching(ProbeRound {
            probes,
            tries: 0,
            ends: now + pace.timeout,
            reported: false,
        });
    }

    /// Larger sizes to probe, the largest first; none if there is nothing to gain.
    fn larger(&self, most: u32) -> Vec<u32> {
        let known =
            COMMON_SIZES.iter().chain(&MORE_SIZES).map(|ip| ip.saturating_sub(self.overhead));
        let mut sizes: Vec<u32> = known.chain([self.ceiling, self.host]).collect();
        sizes.retain(|size| (self.size + 1..self.fails.min(most + 1)).contains(size));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        let ethernet = COMMON_SIZES[0].saturating_sub(self.overhead);
        if self.fails > self.ceiling.min(self.host) {
            // The first one usually passes: the others cost a slow path more than they are worth.
            let first = sizes.first().copied();
            sizes.retain(|size| Some(*size) == first || *size == ethernet);
        }
        sizes.truncate(SIZES_PER_ROUND);
        let gap = self.fails.saturating_sub(self.size);
        if sizes.is_empty() && self.fails <= most + 1 && gap > (self.size / CLOSE).max(2) {
            sizes.push(self.size + gap / 2);
        }
        sizes
    }

    /// Smaller sizes than `size` to probe, the largest first.
    fn smaller_than(&self, size: u32) -> Vec<u32> {
        let known = COMMON_SIZES.iter().map(|ip| ip.saturating_sub(self.overhead));
        let mut sizes: Vec<u32> = known.chain(self.hint).collect();
        sizes.retain(|smaller| (least()..size).contains(smaller));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        sizes
    }

    /// Starts a black hole check: probes the size in use, and smaller ones.
    fn check_black_hole(&mut self, now: Instant, tries: u8, pace: &ProbeTiming) {
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
        let probes = sizes.map(|size| SizeProbe { size, answered: false }).collect();
        let longest = LONGEST_ROUND.max(pace.timeout);
        let ends = now + (pace.timeout * (1 << tries.min(6))).min(longest);
        self.state =
            SearchState::BlackHoleCheck(ProbeRound { probes, tries, ends, reported: false });
    }

    fn end_round(&mut self, now: Instant, pace: &ProbeTiming) {
        match &mut self.state {
            SearchState::Searching(round) => {
                round.tries += 1;
                round.ends = now + pace.timeout;
                round.probes.retain(|probe| probe.size > self.size && !probe.answered);
                let failed = round.probes.iter().map(|probe| probe.size).min();
                self.settled = true;
                match failed {
                    Some(_) if round.tries < MAX_PROBES => {
                        self.queue = round.probes.iter().map(|probe| probe.size).collect();
                    }
                    Some(failed) => {
                        self.fails = self.fails.min(failed);
                        self.raise(now, pace);
                    }
                    None => self.raise(now, pace),
                }
            }
            SearchState::BlackHoleCheck(round) => {
                let passed = round.probes.iter().filter(|probe| probe.answered);
                match (passed.map(|probe| probe.size).max(), round.tries) {
                    // If data arrive, a report shows it: without a report nothing is known.
                    (Some(size), _) if round.reported => {
                        self.fails = self.size;
                        self.size = size;
                        self.settled = true;
                        self.unconfirmed = None;
                        self.raise_timer = RAISE_TIMER.0;
                        self.raise(now, pace);
                    }
                    (Some(_), tries) => self.check_black_hole(now, tries, pace),
                    (None, tries) => self.check_black_hole(now, tries.saturating_add(1), pace),
                }
            }
            SearchState::SearchComplete(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: ProbeTiming = ProbeTiming {
        rtt: Duration::from_millis(50),
        timeout: Duration::from_millis(60),
        rate: Rate::from_bits_per_second(1_000_000_000),
    };

    /// A path that carries datagrams of `passes` bytes, and a sender that always has data.
    struct TestPath {
        search: PathMtuDiscovery,
        now: Instant,
        passes: u32,
        probes: u32,
        answers: VecDeque<(Instant, u32)>,
    }

    impl TestPath {
        fn new(ceiling: u32, passes: u32) -> Self {
            let search = PathMtuDiscovery::new(Instant::EPOCH, ceiling, 28);
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
            let mut path = TestPath::new(65_507, first);
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
    fn a_black_hole_is_left_within_half_a_second() {
        for (from, to) in [(1472, 1000), (1232, 972), (8972, 1472), (1472, 572)] {
            let mut path = TestPath::new(from, from);
            path.run(3000);
            assert_eq!(path.search.size(), from);
            path.passes = to;
            path.run(300);
            let size = path.search.size();
            assert!(size <= to && size * 2 > to, "{from} to {to}: {size}");
        }
    }

    #[test]
    fn a_good_path_gets_one_round_of_probes_and_a_dead_one_few() {
        let mut path = TestPath::new(1472, 1472);
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
    fn sizes_beyond_the_negotiated_one_are_not_probed() {
        let mut path = TestPath::new(1000, 500);
        path.run(60_000);
        assert!((480..=500).contains(&path.search.size()), "{}", path.search.size());
        path.passes = 9000;
        path.run(60_000);
        assert_eq!(path.search.size(), 1000);
    }

    #[test]
    fn a_forged_hint_costs_a_few_probes_and_nothing_else() {
        let mut path = TestPath::new(1472, 1472);
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
    fn a_size_that_this_host_refuses_is_not_sent_again() {
        let mut path = TestPath::new(8972, 1472);
        path.search.on_refused(path.now, 1232, None, &PACE);
        assert_eq!(path.search.size(), 1200);
        path.search.on_refused(path.now, 1200, Some(1028), &PACE);
        assert_eq!(path.search.size(), 1000);
        path.run(3000);
        assert_eq!(path.search.size(), 1472, "until the next search");
        path.search.on_refused(path.now, 8972, Some(1500), &PACE);
        assert_eq!(path.search.size(), 1472);
    }

    #[test]
    fn a_slow_path_is_spared_large_probes() {
        let mut search = PathMtuDiscovery::new(Instant::EPOCH, 65_507, 28);
        let slow = ProbeTiming { rate: Rate::from_bits_per_second(1_000_000), ..PACE };
        search.handle_timeout(Instant::EPOCH, &slow);
        let probes: Vec<u32> = std::iter::from_fn(|| search.next_probe()).collect();
        assert_eq!(probes, [1472, 1472]);
        search.on_answer(Instant::EPOCH + PACE.rtt, 1472, &slow);
        assert_eq!(search.next_probe(), None);
        let later = Instant::EPOCH + PACE.rtt + RATE_CHECK_INTERVAL;
        search.handle_timeout(later, &PACE);
        assert_eq!(search.next_probe(), Some(65_507));
    }
}
