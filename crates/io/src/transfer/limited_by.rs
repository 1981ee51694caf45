//! The limit of a transfer. Both ends decide it alike from the facts of both (`docs/protocol
//! §8.6`).
//!
//! The sender knows where its time went, and sends its view with every acknowledgement. The
//! receiver knows its disk and its processor, and sends those facts with its verdict.

use std::fmt;
use std::time::Duration;

use netblt_proto::config::{EmulatedProtocol, Policy};
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;

use crate::fields::Fields;
use crate::net::io_context::IoContext;
use crate::net::trace_file::{LimitEvent, ReceiverEvent};
use crate::observer::Observer;
use crate::progress::LimitedBy;

/// A thread that works, or waits for a processor, for this share of the time is the limit.
const BUSY: f64 = 0.85;
/// Time that was lost to one cause for this share of the transfer makes it the limit.
const SHARE: f64 = 0.5;
/// With this share of the packets that were agreed on, the pace is the limit.
const AT_PACE: f64 = 0.85;
/// A transfer within this many round trips is limited by them.
const FEW_ROUND_TRIPS: u32 = 6;
/// And so is one whose data took no longer than this: shares of such a moment mean nothing.
const MOMENT: Duration = Duration::from_millis(50);
/// Unless its end waited this long for the receiver's disk.
const LONG_TAIL: Duration = Duration::from_secs(1);
/// Fewer bursts than these keep to no pace.
const FEW_BURSTS: f64 = 8.0;
/// The application of the receiver's facts, and their fields.
const NAME: &str = "netblt receive";
const CPU: &str = "cpu";
const DISK: &str = "disk";
const OVERRUN: &str = "overrun";
const PACED: &str = "paced";
const SOCKET: &str = "socket";
const STORING: &str = "storing";
/// A socket that holds less holds up a receiver that is quick enough.
const SMALL_SOCKET_KIB: u64 = 2048;
/// A socket that drops packets is the limit if one in this many packets was lost.
const OVERRUN_SHARE: u64 = 100;

/// The view of a sender: where its time goes, as its NULL-ACKs report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Path = 1,
    Source = 2,
    Cpu = 3,
    RateCap = 4,
    /// The receiver had no empty buffer.
    Permission = 5,
    RoundTrips = 6,
    /// All was sent, and what took most of the time was that it was stored.
    Storing = 7,
}

impl View {
    /// All of them, by number.
    const ALL: [Self; 7] = [
        Self::Path,
        Self::Source,
        Self::Cpu,
        Self::RateCap,
        Self::Permission,
        Self::RoundTrips,
        Self::Storing,
    ];

    /// The view with this number, if there is one.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|view| *view as u8 == number)
    }

    /// A sender's, at `now`; `cpu_share`: for how much of the time its loop wanted a processor,
    /// and for how long what reads did.
    pub(crate) fn new(
        stats: &Stats,
        policy: Policy,
        now: Instant,
        cpu_share: f64,
        reading: Duration,
    ) -> Self {
        let elapsed = now.since(stats.opened_at.unwrap_or(now));
        let data_time = steady_time(stats).unwrap_or_default();
        // All was sent, and what took most of the time was that it was stored.
        let tail = stats.steady_until.map_or(Duration::ZERO, |until| now.since(until));
        let recovery = stats.rtt.unwrap_or_default() * FEW_ROUND_TRIPS;
        let tail = tail.saturating_sub(recovery);
        let short = is_short(stats);
        if tail > elapsed.mul_f64(SHARE) && (!short || tail >= LONG_TAIL) {
            return Self::Storing;
        }
        if short {
            return Self::RoundTrips;
        }
        if cpu_share > BUSY {
            return Self::Cpu;
        }
        let share = |time: Duration| time.as_secs_f64() / data_time.as_secs_f64().max(1e-9);
        let path = match policy {
            // The path carried less than was asked for.
            Policy::Fixed(_) if stats.rate_reduced => Self::Path,
            Policy::Fixed(_) => Self::RateCap,
            _ if policy.ceiling().is_some_and(|most| stats.pacing_rate >= most.scaled(9, 10)) => {
                Self::RateCap
            }
            // It keeps to its stated rate, whatever the path.
            Policy::Emulated(of) if of.protocol == EmulatedProtocol::Rbudp => Self::RateCap,
            _ if is_at_agreed_pace(stats, data_time) => Self::RateCap,
            _ => Self::Path,
        };
        let waited = stats.waited;
        let causes = [
            (share(waited.pacing + waited.in_flight), path),
            (share(waited.permission), Self::Permission),
            (share(waited.paused), Self::RateCap),
            (
                share(waited.source),
                if reading > waited.source / 2 { Self::Cpu } else { Self::Source },
            ),
        ];
        // The rest is the time that sending itself took.
        let busy = 1.0 - causes.iter().map(|(share, _)| share).sum::<f64>();
        let most = causes.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b));
        most.filter(|(share, _)| *share > busy).map_or(Self::Cpu, |(_, cause)| cause)
    }
}

/// The facts of a receiver, in the text of its verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// For how much of the time its loop wanted a processor, in percent.
    pub(crate) cpu: u64,
    /// For how much of the time most of its buffers waited for the disk, in percent.
    pub(crate) disk: u64,
    /// For how much of the time what stores wanted a processor, in percent.
    pub(crate) storing: u64,
    /// Packets came, or were lost, about as fast as the burst values let them that were agreed on.
    pub(crate) paced: bool,
    /// How much its socket holds, in KiB, if that reduced the grants below the agreed number, or if
    /// it dropped packets; else 0.
    pub(crate) socket: u64,
    /// The socket dropped packets, and many were lost.
    pub(crate) overrun: bool,
}

impl Facts {
    /// A receiver's, at `now`; how long most buffers waited for the disk, and for how long what
    /// stores them wanted a processor.
    pub(crate) fn new(
        stats: &Stats,
        now: Instant,
        cpu_share: f64,
        stalled: Duration,
        storing: Duration,
    ) -> Self {
        let elapsed = now.since(stats.opened_at.unwrap_or(now)).as_secs_f64().max(1e-9);
        let percent = |share: f64| (share.clamp(0.0, 1.0) * 100.0).round() as u64;
        let data_time = steady_time(stats).unwrap_or_default();
        let (came, lost) = (stats.data_packets_received, stats.data_packets_lost);
        let overrun = stats.overrun > 0 && lost * OVERRUN_SHARE >= came + lost;
        let socket = stats.socket_bytes.filter(|_| overrun || stats.held_to_socket);
        Self {
            cpu: percent(cpu_share),
            disk: percent(stalled.as_secs_f64() / elapsed),
            storing: percent(storing.as_secs_f64() / elapsed),
            paced: is_at_agreed_pace(stats, data_time),
            socket: socket.map_or(0, |bytes| u64::from(bytes / 1024)),
            overrun,
        }
    }

    /// The facts in the text of a verdict, if it has any.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fields = Fields::of(NAME, text)?;
        let (cpu, disk, paced) = (fields.only(CPU)?, fields.only(DISK)?, fields.only(PACED)?);
        let other = |name| fields.only(name).unwrap_or(0);
        let (storing, socket, overrun) = (other(STORING), other(SOCKET), other(OVERRUN) > 0);
        Some(Self { cpu, disk, storing, paced: paced > 0, socket, overrun })
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, disk, storing, paced, socket, overrun } = *self;
        let (paced, overrun) = (u8::from(paced), u8::from(overrun));
        write!(f, "{NAME} {CPU}={cpu} {DISK}={disk} {PACED}={paced} {SOCKET}={socket}")?;
        write!(f, " {STORING}={storing} {OVERRUN}={overrun}")
    }
}

/// What limited a transfer, from the sender's view and the receiver's facts. A sender without a
/// view is taken to have waited for its path.
pub(crate) fn decide(view: Option<View>, facts: Option<Facts>) -> LimitedBy {
    let facts = facts.unwrap_or_default();
    // The wait for the disk's thread is a wait for the processor as far as that thread uses it.
    let busy = (facts.cpu + facts.disk.min(facts.storing)) as f64 > BUSY * 100.0;
    let waiting = facts.disk as f64 > SHARE * 100.0;
    // A faster disk helps if what stores waits for it for more than a third of that time.
    let processor = facts.storing * 3 > facts.disk.max(50) * 2;
    let disk = if processor { LimitedBy::ReceiverCpu } else { LimitedBy::ReceiverDisk };
    let small = (1..SMALL_SOCKET_KIB).contains(&facts.socket);
    match view.unwrap_or(View::Path) {
        View::RoundTrips => LimitedBy::RoundTrips,
        View::Source => LimitedBy::SenderDisk,
        View::RateCap => LimitedBy::RateCap,
        View::Storing => disk,
        // Its losses are repaired, which keeps both ends busy.
        _ if facts.overrun && small && !waiting => LimitedBy::ReceiverSocket,
        View::Cpu => LimitedBy::SenderCpu,
        // A busy receiver that drops packets or withholds grants looks like a narrow path.
        _ if waiting => disk,
        _ if busy => LimitedBy::ReceiverCpu,
        View::Permission if facts.socket == 0 => LimitedBy::ReceiverBuffers,
        View::Permission if small => LimitedBy::ReceiverSocket,
        // It holds the packets of some milliseconds, which was not enough until its next look.
        View::Permission => LimitedBy::ReceiverCpu,
        View::Path if facts.overrun => LimitedBy::ReceiverCpu,
        View::Path if facts.paced => LimitedBy::RateCap,
        View::Path => LimitedBy::Path,
    }
}

/// The same, with which the trace ends.
pub(crate) fn conclude(
    host: &mut IoContext,
    observer: &mut dyn Observer,
    at: Instant,
    view: Option<View>,
    facts: Option<Facts>,
) -> LimitedBy {
    let by = decide(view, facts);
    let receiver = facts.map(|facts| {
        let Facts { cpu, disk, storing, socket, overrun, .. } = facts;
        ReceiverEvent { cpu, disk, storing, socket, overrun }
    });
    let event = LimitEvent { by: by.name(), receiver };
    host.finish_trace(Some((at, event))).iter().for_each(|warning| observer.warn(warning));
    by
}

/// What limited the sender, as a receiver sees it that gets no view (`rfc998`): the transfer was
/// short, or all the buffers that it granted (`outstanding` of `buffer_bytes`) were in use all the
/// time.
pub(crate) fn view_of_receiver(stats: &Stats, buffer_bytes: u32, outstanding: u32) -> Option<View> {
    if is_short(stats) {
        return Some(View::RoundTrips);
    }
    let (time, rtt) = (steady_time(stats)?, stats.min_rtt?);
    // A buffer is taken from its GO until it is full: a round trip, and its packets at their pace.
    let packets = f64::from(buffer_bytes) / f64::from(stats.datagram_bytes.max(1));
    let full = stats.agreed.map_or(0.0, |agreed| {
        packets * agreed.interval.as_secs_f64() / f64::from(agreed.packets.max(1))
    });
    let taken = rtt.as_secs_f64() + full;
    let most = f64::from(outstanding) * f64::from(buffer_bytes) / taken;
    let moved = stats.steady_bytes as f64 / time.as_secs_f64();
    (moved >= most * AT_PACE).then_some(View::Permission)
}

/// From the first DATA packet to the start of the first pass's last burst. `None` for a single
/// burst, which takes no measurable time.
pub(crate) fn steady_time(stats: &Stats) -> Option<Duration> {
    let time = stats.steady_until?.since(stats.first_data_at?);
    (!time.is_zero() && stats.steady_bytes > 0).then_some(time)
}

/// Whether all data left within a few round trips, or within a moment: too soon for a cause.
fn is_short(stats: &Stats) -> bool {
    let data_time = steady_time(stats).unwrap_or_default();
    let few = stats.min_rtt.map_or(Duration::ZERO, |rtt| rtt * FEW_ROUND_TRIPS);
    data_time < few.max(MOMENT)
}

/// Whether packets left about as fast as the agreed burst values let them, lost or not: a receiver
/// knows of those that came and of those it missed. On `rfc998`, where no end announces its policy,
/// a sender at a fixed rate does that.
fn is_at_agreed_pace(stats: &Stats, data_time: Duration) -> bool {
    let Some(agreed) = stats.agreed else { return false };
    let bursts = data_time.as_secs_f64() / agreed.interval.as_secs_f64().max(1e-9);
    let known = stats.data_packets_received.saturating_add(stats.data_packets_lost);
    let packets = stats.data_packets_sent.max(known);
    bursts >= FEW_BURSTS && packets as f64 >= bursts * f64::from(agreed.packets) * AT_PACE
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::FixedRate;
    use netblt_proto::stats::BlockedTime;
    use netblt_proto::units::{Burst, Rate};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Eight seconds of data from the second one on, over at the eleventh.
    fn stats() -> Stats {
        Stats {
            opened_at: Some(at(1)),
            first_data_at: Some(at(2)),
            steady_until: Some(at(10)),
            steady_bytes: 8_000_000,
            min_rtt: Some(Duration::from_millis(100)),
            pacing_rate: Rate::from_bytes_per_second(1_000_000),
            ..Stats::default()
        }
    }

    fn view(waited: BlockedTime, cpu_share: f64, policy: Policy) -> View {
        View::new(&Stats { waited, ..stats() }, policy, at(11), cpu_share, SECOND)
    }

    #[test]
    fn a_sender_sees_where_its_time_went() {
        let fair = Policy::Fair { ceiling: None };
        let most = SECOND * 6;
        let none = BlockedTime::default();
        assert_eq!(view(BlockedTime { pacing: most, ..none }, 0.2, fair), View::Path);
        assert_eq!(view(BlockedTime { in_flight: most, ..none }, 0.2, fair), View::Path);
        assert_eq!(view(BlockedTime { permission: most, ..none }, 0.2, fair), View::Permission);
        assert_eq!(view(BlockedTime { source: most, ..none }, 0.2, fair), View::Source);
        assert_eq!(view(BlockedTime { source: SECOND * 5, ..none }, 0.2, fair), View::Source);
        let reads = Stats { waited: BlockedTime { source: SECOND * 5, ..none }, ..stats() };
        assert_eq!(View::new(&reads, fair, at(11), 0.2, SECOND * 4), View::Cpu);
        assert_eq!(view(none, 0.7, fair), View::Cpu);
        assert_eq!(view(BlockedTime { pacing: most, ..none }, 0.95, fair), View::Cpu);
        let capped = Policy::Fair { ceiling: Some(Rate::from_bytes_per_second(1_050_000)) };
        assert_eq!(view(BlockedTime { pacing: most, ..none }, 0.2, capped), View::RateCap);
        let fixed = FixedRate::rate(Rate::from_bytes_per_second(1_000_000)).expect("a pace");
        assert_eq!(
            view(BlockedTime { pacing: most, ..none }, 0.2, Policy::Fixed(fixed)),
            View::RateCap
        );
        let waited = BlockedTime { pacing: most, ..none };
        let reduced = Stats { rate_reduced: true, waited, ..stats() };
        let of_reduced = View::new(&reduced, Policy::Fixed(fixed), at(11), 0.2, SECOND);
        assert_eq!(of_reduced, View::Path, "its circuit breaker opened");
        // More could be outstanding, were it not for the agreed number.
        let held = |packets| {
            let agreed = Some(Burst { packets, interval: Duration::from_millis(10) });
            let waited = BlockedTime { pacing: most, ..none };
            let stats = Stats { agreed, data_packets_sent: 7900, waited, ..stats() };
            View::new(&stats, fair, at(11), 0.2, SECOND)
        };
        assert_eq!((held(10), held(20)), (View::RateCap, View::Path));
        let late = View::new(&stats(), fair, at(60), 0.1, SECOND);
        assert_eq!(late, View::Storing);
        let far = Stats { min_rtt: Some(SECOND * 2), ..stats() };
        assert_eq!(View::new(&far, fair, at(11), 0.1, SECOND), View::RoundTrips);
        // Six bytes, on a path whose round trip is not even known: stored in 150 ms, or in two
        // seconds.
        let tiny = |done: Duration| {
            let first = at(2);
            let stats = Stats {
                opened_at: Some(first),
                first_data_at: Some(first),
                steady_until: Some(first),
                steady_bytes: 0,
                min_rtt: None,
                ..stats()
            };
            let agreed = Some(Burst { packets: 10, interval: Duration::from_millis(10) });
            let stats = Stats { agreed, data_packets_sent: 1, ..stats };
            (
                View::new(&stats, fair, first + done, 0.95, SECOND),
                view_of_receiver(&stats, 1 << 20, 4),
            )
        };
        let short = Some(View::RoundTrips);
        assert_eq!(tiny(Duration::from_millis(150)), (View::RoundTrips, short));
        assert_eq!(tiny(SECOND * 2), (View::Storing, short));
        for view in View::ALL {
            assert_eq!(View::of(view as u8), Some(view));
        }
        assert_eq!((View::of(0), View::of(8), View::of(255)), (None, None, None));
    }

    #[test]
    fn a_receivers_facts_have_its_disk_its_processor_and_its_pace() {
        let facts = Facts::new(&stats(), at(11), 0.336, SECOND * 8, SECOND);
        let expected = Facts { cpu: 34, disk: 80, storing: 10, ..Facts::default() };
        assert_eq!(facts, expected);
        let interval = Duration::from_millis(10);
        let paced = |packets, data_packets_lost| {
            let agreed = Some(Burst { packets, interval });
            let data_packets_received = 7900;
            let stats = Stats { agreed, data_packets_received, data_packets_lost, ..stats() };
            Facts::new(&stats, at(11), 0.0, Duration::ZERO, Duration::ZERO).paced
        };
        assert!(paced(10, 0) && !paced(20, 0) && paced(20, 7900));
        assert_eq!(Facts::parse(&facts.to_string()), Some(facts));
        for text in [
            "",
            "netblt 0.1.0",
            "netblt receive",
            "netblt receive cpu=1",
            "5 left out: x",
            "netblt receive cpu=1 disk=-2 paced=0",
        ] {
            assert_eq!(Facts::parse(text), None, "{text}");
        }
        let more = "netblt receive new=5 cpu=1 disk=2 paced=1";
        let facts = Facts { cpu: 1, disk: 2, paced: true, ..Facts::default() };
        assert_eq!(Facts::parse(more), Some(facts), "a receiver without facts of its socket");
        for (held_to_socket, overrun, data_packets_lost, expected) in [
            (false, 0, 5000, (0, false)),
            (true, 0, 5000, (208, false)),
            (true, 1, 10, (208, false)),
            (false, 1, 100, (208, true)),
        ] {
            let socket_bytes = Some(212_992);
            let stats = Stats { socket_bytes, held_to_socket, overrun, ..stats() };
            let stats = Stats { data_packets_received: 9_900, data_packets_lost, ..stats };
            let facts = Facts::new(&stats, at(11), 0.0, Duration::ZERO, Duration::ZERO);
            assert_eq!((facts.socket, facts.overrun), expected);
            assert_eq!(Facts::parse(&facts.to_string()), Some(facts));
        }
    }

    #[test]
    fn each_cause_is_decided_from_the_facts_of_both() {
        let idle = Facts { cpu: 20, disk: 3, ..Facts::default() };
        let disk = Facts { disk: 80, ..idle };
        let cpu = Facts { cpu: 97, ..idle };
        let paced = Facts { paced: true, ..idle };
        let [small, large] = [208, 4096].map(|socket| Facts { socket, ..idle });
        let [overrun, passed_by] = [small, large].map(|facts| Facts { overrun: true, ..facts });
        for (view, facts, expected) in [
            (View::Path, idle, LimitedBy::Path),
            (View::Path, disk, LimitedBy::ReceiverDisk),
            (View::Path, cpu, LimitedBy::ReceiverCpu),
            (View::Path, paced, LimitedBy::RateCap),
            (View::Source, idle, LimitedBy::SenderDisk),
            (View::Source, cpu, LimitedBy::SenderDisk),
            (View::Cpu, idle, LimitedBy::SenderCpu),
            (View::RateCap, idle, LimitedBy::RateCap),
            (View::Permission, idle, LimitedBy::ReceiverBuffers),
            (View::Permission, small, LimitedBy::ReceiverSocket),
            (View::Permission, large, LimitedBy::ReceiverCpu),
            (View::Path, small, LimitedBy::Path),
            (View::Path, overrun, LimitedBy::ReceiverSocket),
            (View::Cpu, small, LimitedBy::SenderCpu),
            (View::Cpu, overrun, LimitedBy::ReceiverSocket),
            (View::Cpu, passed_by, LimitedBy::SenderCpu),
            (View::Path, passed_by, LimitedBy::ReceiverCpu),
            (View::Path, Facts { disk: 80, ..overrun }, LimitedBy::ReceiverDisk),
            (View::RateCap, overrun, LimitedBy::RateCap),
            (View::Permission, disk, LimitedBy::ReceiverDisk),
            (View::Permission, cpu, LimitedBy::ReceiverCpu),
            (View::Storing, idle, LimitedBy::ReceiverDisk),
            (View::Storing, Facts { storing: 60, ..disk }, LimitedBy::ReceiverCpu),
            (View::Path, Facts { storing: 60, ..disk }, LimitedBy::ReceiverCpu),
            (View::Path, Facts { storing: 30, ..disk }, LimitedBy::ReceiverDisk),
            (View::Permission, Facts { disk: 91, storing: 46, ..idle }, LimitedBy::ReceiverDisk),
            (View::Path, Facts { cpu: 80, disk: 30, storing: 55, ..idle }, LimitedBy::ReceiverCpu),
            (View::Path, Facts { cpu: 80, disk: 30, storing: 5, ..idle }, LimitedBy::Path),
            (View::RoundTrips, disk, LimitedBy::RoundTrips),
        ] {
            assert_eq!(decide(Some(view), Some(facts)), expected, "{view:?} {facts:?}");
        }
        assert_eq!(decide(None, None), LimitedBy::Path);
    }

    #[test]
    fn a_receiver_without_a_view_sees_whether_its_buffers_were_all_in_use() {
        // A megabyte a second, and a tenth of a second to a round trip.
        assert_eq!(view_of_receiver(&stats(), 50_000, 2), Some(View::Permission));
        assert_eq!(view_of_receiver(&stats(), 50_000, 4), None);
        // Ten milliseconds each, or a second.
        let at_pace = |packets| {
            let agreed = Some(Burst { packets, interval: Duration::from_millis(10) });
            view_of_receiver(&Stats { agreed, datagram_bytes: 1000, ..stats() }, 100_000, 1)
        };
        assert_eq!((at_pace(100), at_pace(1)), (Some(View::Permission), Some(View::Permission)));
        let far = Stats { min_rtt: Some(SECOND * 2), ..stats() };
        assert_eq!(view_of_receiver(&far, 50_000, 400), Some(View::RoundTrips));
        assert_eq!(view_of_receiver(&Stats::default(), 50_000, 2), Some(View::RoundTrips));
    }
}
