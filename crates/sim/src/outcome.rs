//! The outcome of a world, for tests and for people.

use std::fmt;
use std::time::Duration;

use netblt_path::{Change, Counters, LinkOptions, Outage};
use netblt_proto::api::CloseReason;
use netblt_proto::config::{FecPolicy, Policy, Role, Wire};
use netblt_proto::rate::proposed_burst;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use crate::check::Finding;
use crate::coverage::{Coverage, Mark};
use crate::disk::DiskOptions;
use crate::host::{EndReport, HostOptions};
use crate::setup::{Kill, REPEATED, Setup};
use crate::side::{Pair, Side};
use crate::transcript::TranscriptHash;

/// The shortest standstill that an end takes for one (`docs/protocol §7.6`).
const STANDSTILL: Duration = Duration::from_secs(10);
/// And its words to the other end.
const STANDSTILL_WORDS: &str = "nothing new was stored for ";
/// A path that drops all packets of a death timer with this probability does so in some of very
/// many worlds.
const UNHEARD: f64 = 1e-5;
/// An UNKNOWN is trusted if the peer was silent for this long (`docs/protocol §4.7`).
const FORGOTTEN: Duration = Duration::from_millis(2500);
/// A silent peer is probed so often (`docs/protocol §7.4`).
const PROBE_INTERVAL: Duration = Duration::from_millis(1500);
/// The interval of an idle end's KEEPALIVEs, or four times in the peer's death timer.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The interval of the packets of an end that waits.
const SAID: Duration = Duration::from_millis(125);
/// Most changes of a link that are listed one by one: a mobile network has thousands.
const CHANGES_LISTED: usize = 8;

/// A finished world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The setup of the world.
    pub setup: Setup,
    /// How long it lasted, in its own time.
    pub duration: Duration,
    /// The outcome of the ends.
    pub ends: Pair<EndReport>,
    /// The books of the paths, by the side from which they lead.
    pub paths: Pair<Counters>,
    /// The marks that were seen.
    pub coverage: Coverage,
    /// The first thing that must not have happened, if any did.
    pub finding: Option<Finding>,
    /// Everything that left a machine, as one hash.
    pub hash: TranscriptHash,
}

impl Outcome {
    pub(crate) fn new(
        setup: Setup,
        over: Instant,
        ends: [EndReport; 2],
        paths: [Counters; 2],
        coverage: Coverage,
        finding: Option<Finding>,
        hash: TranscriptHash,
    ) -> Self {
        let duration = over.since(Instant::EPOCH);
        let (ends, paths) = (Pair(ends), Pair(paths));
        let mut outcome = Self { setup, duration, ends, paths, coverage, finding, hash };
        outcome.see_paths();
        for side in Side::BOTH {
            outcome.see_end(side);
        }
        outcome
    }

    /// The sending end.
    pub fn sender(&self) -> &EndReport {
        &self.ends[self.setup.sender()]
    }

    /// The receiving end.
    pub fn receiver(&self) -> &EndReport {
        &self.ends[self.setup.sender().other()]
    }

    /// Whether nothing forbidden happened, and both ends know that the whole transfer arrived.
    pub fn is_success(&self) -> bool {
        let fine = |end: &EndReport| end.done && end.closed == Some(CloseReason::Finished);
        self.finding.is_none() && self.ends.0.iter().all(fine)
    }

    /// Whether the sender cannot know of a success: it was killed, or died of a path that was dead
    /// for longer than its death timer, while the last messages were in flight. The end with the
    /// last message never knows whether it arrived; no protocol can help that.
    ///
    /// A path is dead to a sender from the last message before an outage, before which there was
    /// nothing to send (on `rfc998`, which has no questions, for up to a KEEPALIVE interval), to
    /// the first repetition after it, which takes a round trip to come. Losses that are likely
    /// enough to drop every message of a death timer are as bad: on `rfc998`, without questions, a
    /// long round trip leaves it few.
    pub fn is_orphaned(&self) -> bool {
        let (sender, receiver) = (self.sender(), self.receiver());
        let killed = self.setup.kills.iter().any(|kill| kill.side == self.setup.sender());
        // An end that gave up notifies the other one, which may have everything by then. A
        // restarted end does not know the connection of a receiver that has everything. Or the
        // receiver has everything, and its messages are held back until the sender gives up.
        let over = match &receiver.closed {
            Some(CloseReason::Finished | CloseReason::PeerQuit(_) | CloseReason::Stalled(_)) => {
                true
            }
            Some(CloseReason::PeerAborted(_)) => sender.starts > 1,
            _ => false,
        };
        let settled = receiver.done && over;
        let mut reasons = sender.closed.iter().chain(&sender.closed_before);
        // The other end may have given up so, and have had everything when it was gone.
        let stalled = |reason: &CloseReason| match reason {
            CloseReason::PeerQuit(words) => words.starts_with(STANDSTILL_WORDS),
            reason => matches!(reason, CloseReason::Stalled(_)),
        };
        // Flipped bits make some UNKNOWNs that pass for true ones, and those of a peer that cannot
        // be reached meanwhile are believed.
        let forgot = |reason: &CloseReason| *reason == CloseReason::Forgotten;
        let unheard = self.setup.attacker.is_some() && self.setup.longest_outage() >= FORGOTTEN;
        let misled = unheard && reasons.clone().any(forgot);
        let died = reasons.any(|reason| {
            matches!(reason, CloseReason::DeathTimer | CloseReason::Unreachable) || stalled(reason)
        }) || receiver.closed.as_ref().is_some_and(stalled);
        let patience = self.setup.host(self.setup.sender()).config.death_timer;
        let rtt = self.setup.longest_round_trip();
        let repeated = REPEATED.max(rtt * 4);
        let between = match self.setup.active.config.wire {
            Wire::Sealed => PROBE_INTERVAL,
            Wire::Rfc998 => repeated.max((patience / 4).min(KEEPALIVE)),
        };
        let outage = self.setup.longest_outage();
        let silence = if outage.is_zero() { outage } else { outage + between + repeated + rtt };
        let words = (patience.as_nanos() / between.as_nanos()) as u32;
        let lost = |to| self.setup.chance_of_loss(to, words) >= UNHEARD;
        // An end with a new address gets nothing before the other end has a packet from there.
        let side = self.setup.sender();
        let unfound = self.setup.longest_unfound(side, PROBE_INTERVAL);
        let moves = !unfound.is_zero();
        let deadly = silence.max(outage * 10 / 9) >= patience
            || lost(side)
            || moves && (lost(side.other()) || unfound >= patience);
        let gone = (killed && sender.starts > 1) || (died && deadly) || misled;
        settled && !sender.done && gone
    }

    /// The problem: a violation, or an end that does not know of its success although no end gave
    /// up.
    pub fn problem(&self) -> Option<String> {
        if let Some(finding) = &self.finding {
            return Some(finding.to_string());
        }
        // Whatever else is wrong with a path: an end that is only slow gets on. But one direction
        // may be dead for as long as makes a standstill.
        let narrow = self.paths.0.iter().any(|counters| counters.lost_mtu.packets > 0);
        let excused = narrow || self.setup.may_stand_still() || self.setup.attacker.is_some();
        if self.coverage.count(Mark::Stalled) > 0 && !excused {
            return Some("an end saw a standstill where there was none".to_owned());
        }
        let excused = self.coverage.count(Mark::Quit) > 0 || self.is_orphaned();
        (!self.is_success() && !excused).then(|| {
            let [active, passive] = self.ends.0.each_ref().map(describe_end);
            format!("the transfer did not succeed: active {active}, passive {passive}")
        })
    }

    /// Counts of the sender's last connection.
    pub fn sent(&self) -> Stats {
        self.sender().stats.last().cloned().unwrap_or_default()
    }

    /// Counts of the receiver's last connection.
    pub fn received(&self) -> Stats {
        self.receiver().stats.last().cloned().unwrap_or_default()
    }

    /// From the sender's start until it knew of its success.
    pub fn transfer_time(&self) -> Duration {
        let start = self.setup.host(self.setup.sender()).starts_at;
        let done = self.sender().done_at.unwrap_or(Instant::NEVER);
        done.since(Instant::EPOCH + start)
    }

    /// Bytes of content over the whole time.
    pub fn goodput(&self) -> Rate {
        Rate::over(self.setup.bytes, self.transfer_time())
    }

    fn see_paths(&mut self) {
        let narrow = self.paths.0.iter().any(|counters| counters.lost_mtu.packets > 0);
        self.coverage.see(Mark::Narrowed, u64::from(self.setup.narrows && narrow));
        self.coverage.see(Mark::Choked, u64::from(self.setup.chokes && narrow));
        self.coverage.see(Mark::AnotherWay, u64::from(self.setup.another_way));
        for side in Side::BOTH {
            let sleeps = self.setup.host(side).sleeps.iter();
            let slept = sleeps.filter(|(from, _)| *from < self.duration).count();
            self.coverage.see(Mark::Slept, slept as u64);
        }
        for counters in &self.paths.0 {
            let seen = [
                (Mark::Loss, counters.lost_random),
                (Mark::QueueLoss, counters.lost_queue + counters.lost_policer),
                (Mark::OutageLoss, counters.lost_outage),
                (Mark::MtuLoss, counters.lost_mtu),
                (Mark::Reorder, counters.reordered),
                (Mark::Duplicate, counters.duplicated),
                (Mark::Corrupt, counters.corrupted),
                (Mark::Marked, counters.marked),
            ];
            for (mark, tally) in seen {
                self.coverage.see(mark, tally.packets);
            }
        }
    }

    fn see_end(&mut self, side: Side) {
        let end = &self.ends[side];
        let some = |waited: Duration| u64::from(waited > Duration::from_millis(1));
        for stats in &end.stats {
            let seen = [
                (Mark::Resent, stats.data_packets_resent),
                (Mark::RepairSent, stats.repair_packets_sent),
                (Mark::Repaired, stats.packets_repaired),
                (Mark::PacketSize, stats.resizes),
                (Mark::DuplicateData, stats.data_packets_duplicate),
                (Mark::ControlTimeout, stats.control_timeouts),
                (Mark::DataTimeout, stats.data_timeouts),
                (Mark::Dropped, stats.datagrams_dropped),
                (Mark::WaitedForPermission, some(stats.waited.permission)),
                (Mark::WaitedForSource, some(stats.waited.source)),
            ];
            for (mark, times) in seen {
                self.coverage.see(mark, times);
            }
        }
        let reasons = end.closed.iter().chain(&end.closed_before);
        let deaths = reasons.filter(|reason| **reason == CloseReason::DeathTimer).count();
        self.coverage.see(Mark::DeathTimer, deaths as u64);
        let reasons = end.closed.iter().chain(&end.closed_before);
        let stalls = reasons.filter(|reason| matches!(reason, CloseReason::Stalled(_))).count();
        self.coverage.see(Mark::Stalled, stalls as u64);
        self.coverage.see(Mark::Silent, u64::from(end.silences));
    }
}

impl Setup {
    /// Whether the paths allow an end to find a standstill or a dead peer.
    pub(crate) fn may_stand_still(&self) -> bool {
        let deaths = Side::BOTH.map(|side| self.host(side).config.death_timer);
        let patience = deaths[0].min(deaths[1]).max(STANDSTILL);
        let outage = self.longest_outage();
        // An end that moved during an outage is found only some round trips after it. A message
        // sent during one is repeated only then, and takes a round trip to be answered.
        let rtt = self.longest_round_trip();
        let found = match self.moves.is_empty() {
            true => REPEATED.max(rtt * 4) + rtt,
            false => PROBE_INTERVAL + REPEATED + rtt * 5,
        };
        let lasted = if outage.is_zero() { outage } else { (outage + found).max(outage * 10 / 9) };
        // Or it drops all packets of an end for as long, with some probability.
        let words = (patience.as_nanos() / SAID.as_nanos()) as u32;
        let unheard = |to| self.chance_of_loss(to, words) >= UNHEARD;
        lasted >= patience || Side::BOTH.into_iter().any(unheard)
    }
}

impl fmt::Display for Outcome {
    /// The setup, the events, and the outcome.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        for side in Side::BOTH {
            let end = &self.ends[side];
            writeln!(f, "{side:>8}: {}", describe_end(end))?;
            if let Some(stats) = end.stats.last() {
                writeln!(f, "{:>10}{}", "", describe_stats(stats))?;
            }
        }
        for (name, counters) in ["there", "back"].iter().zip(&self.paths.0) {
            writeln!(f, "{name:>8}: {}", describe_counters(counters))?;
        }
        writeln!(f, "{:>8}: {}", "seen", self.coverage)?;
        let seconds = self.duration.as_secs_f64();
        writeln!(f, "{:>8}: {seconds:.6} s, transcript {}", "over", self.hash)?;
        match self.problem() {
            None => write!(f, "{:>8}: as it should be", "result"),
            Some(problem) => write!(f, "{:>8}: FAILED {problem}", "result"),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.active.config.wire {
            Wire::Rfc998 => "rfc998",
            Wire::Sealed => "sealed",
        };
        writeln!(f, "   world: seed {}, {} bytes on {wire}", self.seed, self.bytes)?;
        for side in Side::BOTH {
            writeln!(f, "{side:>8}: {}", describe_host(self.host(side)))?;
        }
        writeln!(f, "{:>8}: {}", "there", describe_link(&self.there))?;
        write!(f, "{:>8}: {}", "back", describe_link(&self.back))?;
        for kill in &self.kills {
            let Kill { side, at, down } = kill;
            write!(f, "\n{:>8}: {side} end at {at:?} for {down:?}", "kill")?;
        }
        if let Some((side, at)) = self.quit {
            write!(f, "\n{:>8}: {side} end at {at:?}", "quit")?;
        }
        if let Some(attacker) = &self.attacker {
            write!(f, "\n{:>8}: {attacker:?}", "attacker")?;
        }
        if self.crowd > 0 {
            write!(f, "\n{:>8}: {} others open and vanish", "crowd", self.crowd)?;
        }
        let flags = [("persistent", self.persistent), ("icmp", self.icmp)];
        let flags = flags.iter().filter(|(_, on)| *on).map(|(name, _)| *name);
        write!(f, "\n{:>8}: {:?} {:?}", "until", self.deadline, flags.collect::<Vec<_>>())
    }
}

fn describe_host(host: &HostOptions) -> String {
    let config = &host.config;
    let role = if config.role == Role::Sender { "sends" } else { "receives" };
    let policy = match (config.role, config.policy) {
        (Role::Receiver, _) => String::new(),
        (Role::Sender, Policy::Fixed(_)) => {
            let burst = proposed_burst(config);
            format!(", fixed {} packets each {:?}", burst.packets, burst.interval)
        }
        (Role::Sender, Policy::Emulated(of)) => format!(", {}", of.protocol.name()),
        (Role::Sender, policy) => match policy.ceiling() {
            None => format!(", {}", policy.name()),
            Some(rate) => format!(", {} up to {rate}", policy.name()),
        },
    };
    let repair = match (config.role, config.repair) {
        (Role::Receiver, _) | (_, FecPolicy::Never) => String::new(),
        (Role::Sender, repair) => format!(", repair {repair:?}"),
    };
    let starts = match host.starts_at {
        Duration::ZERO => String::new(),
        at => format!(", starts at {at:?}"),
    };
    let sleeps = host.sleeps.iter().map(|(at, lasts)| format!(", sleeps at {at:?} for {lasts:?}"));
    let starts = sleeps.fold(starts, |text, sleep| text + &sleep);
    format!(
        "{role}{policy}{repair}, buffers of {} + {} bytes, {} of {} outstanding, datagrams of {}, \
         death timer {:?}{starts}{}",
        config.buffer_bytes,
        config.table_bytes,
        config.max_outstanding,
        host.stock,
        config.datagram_bytes,
        config.death_timer,
        describe_disk(&host.disk)
    )
}

fn describe_disk(disk: &DiskOptions) -> String {
    if *disk == DiskOptions::default() {
        return String::new();
    }
    let rate = disk.rate.map_or("any rate".to_owned(), |rate| rate.to_string());
    let stalls = disk.stalls.len();
    format!(", disk {rate} {:?} {stalls} stalls, flush {:?}", disk.latency, disk.flush)
}

fn describe_link(link: &LinkOptions) -> String {
    use std::fmt::Write;
    let rate = link.rate.map_or("any rate".to_owned(), |rate| rate.to_string());
    let mut text = format!("{rate}, {:?} + {:?}", link.delay, link.jitter);
    let faults = [
        ("loss", link.loss),
        ("reorder", link.reorder),
        ("duplicate", link.duplicate),
        ("corrupt", link.corrupt),
    ];
    for (name, share) in faults.iter().filter(|(_, share)| !share.is_never()) {
        // Writing to a String cannot fail.
        let _ = write!(text, ", {name} {} ppm", share.ppb() / 1000);
    }
    if let Some(run) = link.loss_burst {
        let _ = write!(text, " in runs of {run}");
    }
    let _ = write!(text, ", queue {:?}", link.queue);
    if let Some(mtu) = link.mtu {
        let _ = write!(text, ", MTU {mtu}");
    }
    text + &describe_changes(&link.schedule)
}

/// The changes of a link: each, or a summary of many.
fn describe_changes(schedule: &[Change]) -> String {
    let one = |change: &Change| {
        let what = match (change.outage, change.loss) {
            (Some(outage), _) => format!("outage {outage:?}"),
            (None, Some(loss)) => format!("loss {} ppm", loss.ppb() / 1000),
            (None, None) => "changes".to_owned(),
        };
        format!(", at {:?} {what}", change.at)
    };
    let [first, .., last] = schedule else { return schedule.iter().map(one).collect() };
    if schedule.len() <= CHANGES_LISTED {
        return schedule.iter().map(one).collect();
    }
    let mut text = format!(", {} changes from {:?} to {:?}", schedule.len(), first.at, last.at);
    let rates = schedule.iter().filter_map(|change| change.rate);
    if let (Some(least), Some(most)) = (rates.clone().min(), rates.max()) {
        text += &format!(", rate {least} to {most}");
    }
    let delays = schedule.iter().filter_map(|change| change.delay);
    if let (Some(least), Some(most)) = (delays.clone().min(), delays.max()) {
        text += &format!(", delay {least:?} to {most:?}");
    }
    let losses = schedule.iter().filter_map(|change| change.loss).map(|loss| loss.ppb() / 1000);
    if let (Some(least), Some(most)) = (losses.clone().min(), losses.max()) {
        text += &format!(", loss {least} to {most} ppm");
    }
    let begins = |change: &&Change| change.outage.is_some_and(|outage| outage != Outage::None);
    let outages = schedule.iter().filter(begins).count();
    if outages > 0 {
        text += &format!(", {outages} outages");
    }
    text
}

fn describe_end(end: &EndReport) -> String {
    let closed =
        end.closed.as_ref().map_or("not closed".to_owned(), |why| format!("closed: {why}"));
    let done = match end.done_at.filter(|_| end.done) {
        Some(at) => format!("done at {:.6} s", at.as_secs_f64()),
        None => "not done".to_owned(),
    };
    let mut text = format!("{done}, {closed} ({} starts, {} openings)", end.starts, end.openings);
    // The newest few of what may be many.
    for before in end.closed_before.iter().rev().take(3) {
        text += &format!("; before: {before}");
    }
    text
}

fn describe_stats(stats: &Stats) -> String {
    format!(
        "data {} sent, {} resent, {} received, {} duplicate, {} lost; repair {} sent, {} received, \
         {} repaired; control {}, timeouts {} data \
         {} control; dropped {}; rtt {:?}; pacing {}, waited {:?} for pacing, {:?} in flight, {:?} \
         for permission, {:?} for the source",
        stats.data_packets_sent,
        stats.data_packets_resent,
        stats.data_packets_received,
        stats.data_packets_duplicate,
        stats.data_packets_lost,
        stats.repair_packets_sent,
        stats.repair_packets_received,
        stats.packets_repaired,
        stats.control_packets,
        stats.data_timeouts,
        stats.control_timeouts,
        stats.datagrams_dropped,
        stats.rtt,
        stats.pacing_rate,
        stats.waited.pacing,
        stats.waited.in_flight,
        stats.waited.permission,
        stats.waited.source
    )
}

fn describe_counters(counters: &Counters) -> String {
    format!(
        "{} in, {} out, lost {} at random {} in the queue {} for their size {} in outages, {} \
         overtaken, {} twice, {} corrupt",
        counters.entered.packets,
        counters.delivered.packets,
        counters.lost_random.packets,
        counters.lost_queue.packets,
        counters.lost_mtu.packets,
        counters.lost_outage.packets,
        counters.reordered.packets,
        counters.duplicated.packets,
        counters.corrupted.packets
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changes_are_listed_and_many_are_summed_up() {
        let at = |seconds| Change { at: Duration::from_secs(seconds), ..Change::default() };
        let outage = Change { outage: Some(Outage::Drop), ..at(2) };
        let few = describe_changes(&[at(1), outage.clone()]);
        assert_eq!(few, ", at 1s changes, at 2s outage Drop");
        let rate = |n| Change { rate: Some(Rate::from_bytes_per_second(n * 125_000)), ..at(n) };
        let many: Vec<Change> = (1..=5000).map(rate).chain([outage.clone(), outage]).collect();
        let text = describe_changes(&many);
        assert!(text.starts_with(", 5002 changes from 1s to 2s, rate "), "{text}");
        assert!(text.ends_with(", 2 outages") && text.len() < 120, "{text}");
    }
}
