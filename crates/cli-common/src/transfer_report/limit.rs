//! What limited a transfer: the first row of a decision table whose evidence holds
//! (`docs/reference/trace.md`).
//!
//! A function of the trace alone. Where one end cannot distinguish two causes, the result names
//! both.

#[cfg(test)]
mod tests;

use super::evidence::Evidence;
use super::trace::{Ended, Trace};
use crate::units::{show_count, show_rate};

/// Minimum share of the time for a cause to be the limit.
const MUCH: f64 = 0.3;
/// Minimum share of the time without the path, or at a far lower rate, to be the limit.
const GAP: f64 = 0.1;
/// A transfer that ends within so many round trips, or seconds, is limited by those.
const FEW_ROUND_TRIPS: f64 = 6.0;
const MOMENT: f64 = 0.05;
/// Share of the bottleneck's rate from which the path counts as full.
const FULL: f64 = 0.95;
/// Share of the bottleneck below which there is other traffic.
const WHOLE_SHARE: f64 = 0.85;
/// Loss rates below the first cost a CUBIC little on most paths; below the second, without a queue,
/// they are no policer's.
const LOSSY: f64 = 0.003;
const POLICED: f64 = 0.001;
/// Minimum loss rates for random loss, and for random loss on a full path.
const RANDOM: f64 = 0.005;
const RANDOM_FULL: f64 = 0.02;
/// Minimum share of the losses that met no queue, if the cause is no queue.
const UNQUEUED: f64 = 0.4;
/// Minimum share of the time in which losses were excused, if there was no test.
const EXCUSED: f64 = 0.25;
/// A path has no queue if its last decile of queue delay is below this, in milliseconds, or below
/// this part of the minimum round trip.
const NOTHING: (f64, f64) = (0.5, 1.0 / 64.0);
/// Minimum delay of the return path to be the limit, in milliseconds and in minimum round trips.
const WAY_BACK: (f64, f64) = (5.0, 0.1);
/// Minimum jitter to be the limit, in milliseconds and as a part of the queue delay: a queue grows
/// by less. A path that seems full must have more.
const VARIES: (f64, f64) = (1.5, 0.1);
const VARIES_FULL: f64 = 0.2;
const VARIES_QUEUE: f64 = 0.15;
/// A slow link sends a train of a sender's packets at once, and round trips vary by its duration,
/// in milliseconds at one Mbit/s: four packets of an Ethernet's size.
const OWN_PACKETS: f64 = 4.0 * 12.0;
/// Minimum share of marked packets for a queue manager to be the limit.
const MARKED: f64 = 0.001;
/// Minimum share of packets lost at the socket to be the limit.
const OVERRUN: f64 = 0.01;

/// Cause that limited a transfer. Names are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    RoundTrips,
    RateCap,
    SenderDisk,
    ReceiverDisk,
    ReceiverBuffers,
    ReceiverSocket,
    /// Its disk, processor or buffers: the sender only sees that no permission arrives.
    Receiver,
    SenderCpu,
    ReceiverCpu,
    Outage,
    ReturnPath,
    /// A link that slowed down, or other traffic for a while.
    Dip,
    RandomLoss,
    Path,
    QueueManager,
    Policer,
    /// A policer, or other traffic at a queue that is too short to be measured.
    PolicerOrTraffic,
    /// A sender without a measured bottleneck knows only its losses, and that there was no queue.
    PolicerOrLoss,
    Jitter,
    OtherTraffic,
    /// The path alone, or with other traffic. A sender without a measured bottleneck sees the same
    /// queue.
    PathOrTraffic,
}

impl Limit {
    /// Name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RoundTrips => "round_trips",
            Self::RateCap => "rate_cap",
            Self::SenderDisk => "sender_disk",
            Self::ReceiverDisk => "receiver_disk",
            Self::ReceiverBuffers => "receiver_buffers",
            Self::ReceiverSocket => "receiver_socket",
            Self::Receiver => "receiver",
            Self::SenderCpu => "sender_cpu",
            Self::ReceiverCpu => "receiver_cpu",
            Self::Outage => "outage",
            Self::ReturnPath => "return_path",
            Self::Dip => "slow_link_or_other_traffic",
            Self::RandomLoss => "random_loss",
            Self::Path => "path",
            Self::QueueManager => "queue_manager",
            Self::Policer => "policer",
            Self::PolicerOrTraffic => "policer_or_other_traffic",
            Self::PolicerOrLoss => "policer_or_random_loss",
            Self::Jitter => "jitter",
            Self::OtherTraffic => "other_traffic",
            Self::PathOrTraffic => "path_or_other_traffic",
        }
    }

    /// The cause that both ends agreed on at the end of the transfer: they know more of their hosts
    /// than the packets show.
    fn agreed(ended: &Ended) -> Option<Self> {
        let hosts = [
            Self::RoundTrips,
            Self::RateCap,
            Self::SenderDisk,
            Self::ReceiverDisk,
            Self::ReceiverBuffers,
            Self::ReceiverSocket,
            Self::SenderCpu,
            Self::ReceiverCpu,
        ];
        hosts.into_iter().find(|limit| limit.name() == ended.by)
    }
}

/// The decision table: the first row whose evidence holds.
pub(super) fn decide(trace: &Trace, seen: &Evidence) -> Limit {
    let agreed = trace.limited.as_ref().and_then(Limit::agreed);
    let table = [
        (agreed.is_some(), agreed.unwrap_or(Limit::Path)),
        (is_short(seen), Limit::RoundTrips),
        (seen.paused_share >= MUCH || seen.is_fixed, Limit::RateCap),
        (seen.breaker_share > 0.0, Limit::Path),
        (seen.source_share >= MUCH, Limit::SenderDisk),
        (seen.receiver_disk_share >= MUCH || seen.storing_share >= MUCH, Limit::ReceiverDisk),
        (seen.overrun > 0 && seen.loss_share >= OVERRUN, Limit::ReceiverSocket),
        (seen.permission_share >= MUCH, Limit::Receiver),
        (seen.unused_share >= MUCH, Limit::SenderCpu),
        (seen.dead_share >= GAP, Limit::Outage),
        (is_reported_late(seen), Limit::ReturnPath),
        (seen.dip_share >= GAP, Limit::Dip),
        (is_random(seen), Limit::RandomLoss),
        (varies(seen), Limit::Jitter),
        (is_full(seen), Limit::Path),
        (seen.marked_share >= MARKED, Limit::QueueManager),
    ];
    let first = table.into_iter().find(|(holds, _)| *holds);
    first.map_or_else(|| of_shared_path(seen), |(_, limit)| limit)
}

/// Causes that keep a sender from filling a working path between fast ends.
fn of_shared_path(seen: &Evidence) -> Limit {
    let nothing_waits = seen.queue_high_ms < NOTHING.0.max(NOTHING.1 * seen.min_rtt_ms);
    let unqueued = seen.unqueued_loss_share >= UNQUEUED;
    let (lossy, policed) = (seen.loss_share >= LOSSY, seen.loss_share >= POLICED);
    let knows = seen.path_share.is_some();
    let company = seen.path_share.is_some_and(|share| share < WHOLE_SHARE);
    let table = [
        (company && unqueued && policed && nothing_waits, Limit::Policer),
        (company && unqueued && lossy, Limit::PolicerOrTraffic),
        (company, Limit::OtherTraffic),
        (!knows && unqueued && lossy, Limit::PolicerOrLoss),
        (!knows && !nothing_waits && seen.round_trips > 0.0, Limit::PathOrTraffic),
    ];
    let first = table.into_iter().find(|(holds, _)| *holds);
    first.map_or(Limit::Path, |(_, limit)| limit)
}

fn is_full(seen: &Evidence) -> bool {
    seen.used_share.is_some_and(|used| used >= FULL)
}

/// Jitter on the path itself. The congestion control takes it for a queue, and for late losses.
fn varies(seen: &Evidence) -> bool {
    let part = if is_full(seen) { VARIES_FULL } else { VARIES.1 };
    let own = OWN_PACKETS / seen.line_mbps.unwrap_or(seen.mbps).max(1e-3);
    let much = VARIES.0.max(part * seen.min_rtt_ms).max(own);
    seen.varies_ms >= much && seen.varies_ms >= VARIES_QUEUE * seen.queue_ms
}

fn is_short(seen: &Evidence) -> bool {
    seen.seconds < MOMENT || (seen.round_trips > 0.0 && seen.round_trips < FEW_ROUND_TRIPS)
}

/// Reports are so late that the congestion control slows down.
fn is_reported_late(seen: &Evidence) -> bool {
    let late = seen.way_back_ms >= WAY_BACK.0.max(WAY_BACK.1 * seen.min_rtt_ms);
    late && !is_full(seen)
}

/// Tests, or an excuse that held, show that a lower rate loses no less; or the sender is alone, and
/// there is no queue.
fn is_random(seen: &Evidence) -> bool {
    let tested = seen.tests_passed > 0 && seen.tests_passed >= seen.tests_failed;
    let alone = seen.path_share.is_some_and(|share| share >= WHOLE_SHARE);
    let unqueued = seen.unqueued_loss_share >= UNQUEUED && seen.tests_failed == 0;
    let least = if is_full(seen) { RANDOM_FULL } else { RANDOM };
    let excused = seen.excused_share >= EXCUSED && alone;
    seen.loss_share >= least && (tested || excused || (alone && unqueued))
}

/// One sentence: the cause and its figures.
pub(super) fn sentence(limit: Limit, trace: &Trace, seen: &Evidence) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let lost = format!("{:.1} % of the packets", 100.0 * seen.loss_share);
    let mbps = |mbps: f64| show_rate(mbps * 1e6);
    let arrived = match seen.line_mbps {
        Some(line) => format!("{} of the bottleneck's {}", mbps(seen.mbps), mbps(line)),
        None => mbps(seen.mbps),
    };
    let ended = trace.limited.as_ref();
    match limit {
        Limit::RoundTrips => format!(
            "Nothing: it was over in {:.0} round trips, before it got up to speed.",
            seen.round_trips
        ),
        Limit::RateCap if seen.paused_share >= MUCH => {
            format!("A pause that was asked for: {} of the time.", percent(seen.paused_share))
        }
        Limit::RateCap => "The rate, or the burst values, that were asked for.".to_owned(),
        Limit::SenderDisk => {
            format!(
                "The sender's disk or pipe: waited for {} of the time.",
                percent(seen.source_share)
            )
        }
        Limit::ReceiverDisk => receiver_disk(ended, seen),
        Limit::ReceiverBuffers => format!(
            "The receiver's buffers: all were under way, and waited for {} of the time.",
            percent(seen.permission_share)
        ),
        Limit::ReceiverSocket => match seen.overrun {
            0 => format!("The receiver's socket: it had no room, and {lost} were lost."),
            n => format!(
                "The receiver's socket: it had no room for {} datagrams; {lost} were lost.",
                show_count(n)
            ),
        },
        Limit::Receiver => format!(
            "The receiver's disk, processor or buffers: its permission was waited for {} of the \
             time.",
            percent(seen.permission_share)
        ),
        Limit::SenderCpu if seen.unused_share >= MUCH => format!(
            "The sender's processor: {} of what it might have sent did not leave in time, and it \
             waited for nothing else.",
            percent(seen.unused_share)
        ),
        Limit::SenderCpu => "The sender's processor, as it said when it was over.".to_owned(),
        Limit::ReceiverCpu => match ended.and_then(|ended| ended.cpu_percent) {
            Some(cpu) => format!("The receiver's processor: it was busy {cpu} % of the time."),
            None => "The receiver's processor, as it said when it was over.".to_owned(),
        },
        _ => sentence_of_path(limit, seen, &lost, &arrived),
    }
}

fn receiver_disk(ended: Option<&Ended>, seen: &Evidence) -> String {
    let percent = |share: f64| format!("{:.0} % of the time", 100.0 * share);
    let waited = match ended.and_then(|ended| ended.disk_percent) {
        _ if seen.storing_share >= MUCH => {
            format!("all was sent, and was stored for {}", percent(seen.storing_share))
        }
        Some(disk) => format!("most buffers waited for it {disk} % of the time"),
        None => format!("full buffers waited for it {}", percent(seen.receiver_disk_share)),
    };
    format!("The receiver's disk or pipe: {waited}.")
}

fn sentence_of_path(limit: Limit, seen: &Evidence, lost: &str, arrived: &str) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let trip = format!("a round trip of {:.1} ms", seen.min_rtt_ms);
    let waits = format!("{:.1} ms waited there", seen.queue_ms);
    match limit {
        Limit::Outage => format!(
            "An outage: nothing arrived for {:.1} s, {} of the time.",
            seen.dead_share * seen.seconds,
            percent(seen.dead_share)
        ),
        Limit::ReturnPath => format!(
            "The way back: reports came {:.0} ms late on {trip}; {arrived} arrived.",
            seen.way_back_ms
        ),
        Limit::Dip => format!(
            "A link that slowed down, or other traffic: far less than usual arrived for {:.1} s, \
             {} of the time.",
            seen.dip_seconds,
            percent(seen.dip_share)
        ),
        Limit::RandomLoss => format!(
            "Random loss: {lost} were lost, whether much or little was sent (tests passed: {}); \
             losses were excused for {} of the time.",
            seen.tests_passed,
            percent(seen.excused_share)
        ),
        Limit::QueueManager => format!(
            "A queue manager on the path: it marked {:.1} % of the packets (ECN); {arrived} \
             arrived.",
            100.0 * seen.marked_share
        ),
        Limit::Policer => format!(
            "A policer: {lost} were lost although nothing waited ({:.1} ms); {arrived} arrived.",
            seen.queue_high_ms
        ),
        Limit::PolicerOrTraffic => format!(
            "A policer, or other traffic at a short queue: {lost} were lost, and {waits}; \
             {arrived} arrived."
        ),
        Limit::PolicerOrLoss => format!(
            "A policer, or random loss: {lost} were lost, and {waits}; `--policy fair` tests which \
             it is."
        ),
        Limit::Jitter => format!(
            "Round trips that vary, by {:.1} ms from one to the next on {trip}: a radio link, or a \
             busy host; {arrived} arrived.",
            seen.varies_ms
        ),
        Limit::OtherTraffic => {
            format!("Other traffic: this transfer had {arrived}; {waits}, and {lost} were lost.")
        }
        Limit::PathOrTraffic => {
            format!("The path, or other traffic on it: {arrived} arrived; {waits}.")
        }
        _ if seen.breaker_share > 0.0 => format!(
            "The path: it carried less than the fixed rate, which was reduced for {} of the time; \
             {arrived} arrived, and {lost} were lost.",
            percent(seen.breaker_share)
        ),
        _ if seen.round_trips == 0.0 => format!(
            "The path, as far as this end sees: {arrived} arrived, and {lost} were lost. The \
             sender's trace shows more."
        ),
        _ => format!(
            "The path: it carried no more than this. {arrived} arrived, and {lost} were lost."
        ),
    }
}
