//! The output of an emulated path: a line at intervals and the counters at the end, as text, and as
//! JSON lines to a stream and a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netblt_path::Counters;
use netblt_path::scenario::Scenario;
use netblt_path::{LinkOptions, Outage};
use netblt_proto::units::Rate;
use netblt_relay::capture::Capture;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{Code, Failure};
use crate::json::Stream;
use crate::json::rounded;
use crate::stdout;
use crate::units;

/// Interval short enough for `netblt-lab report trace` to show a queue that comes and goes.
const TRACE_INTERVAL: Duration = Duration::from_millis(100);
const JSON_INTERVAL: Duration = Duration::from_secs(1);
/// Share of late packets (one in this many) from which the measurement is doubtful.
const MANY_LATE: u64 = 100;
/// Limit on changes of a link in the first event.
const MAX_CHANGES: usize = 2000;

/// The output about the path while it works and afterwards.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct StatsArgs {
    /// Print the counters at this interval: 1s, 100ms
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    stats: Option<Duration>,
    /// Print events as JSON, one object a line
    ///
    /// Each line is {"event":...,"data":{...}}: "emulating" first, a "sample" every --stats
    /// interval (1s by default), "summary" last. Counters are totals since the beginning; rates are
    /// over the interval. `relay` writes to standard output, `tun` to standard error, because
    /// standard output is the command's.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the same JSON lines into FILE, a sample every 100ms by default
    ///
    /// `netblt-lab report trace FILE --out X.svg` draws throughput and queue delay from it.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write all packets into FILE, as they enter and as they leave, for Wireshark and tcpdump
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    if time < Duration::from_millis(1) {
        return Err("once a millisecond is the most".to_owned());
    }
    Ok(time)
}

impl StatsArgs {
    /// Begins a capture if one is wanted.
    pub(crate) fn capture(&self) -> Result<Option<Arc<Capture>>, Failure> {
        let begin = |path: &PathBuf| {
            Capture::create(path).map(Arc::new).map_err(|error| {
                Failure::new(Code::File, format!("{}: cannot write: {error}", path.display()))
            })
        };
        self.pcap.as_ref().map(begin).transpose()
    }

    /// Ends it.
    pub(crate) fn end_capture(&self, capture: Option<Arc<Capture>>) -> Result<(), Failure> {
        let (Some(capture), Some(path)) = (capture, &self.pcap) else { return Ok(()) };
        capture.finish().map_err(|error| {
            Failure::new(Code::File, format!("{}: cannot write: {error}", path.display()))
        })
    }
}

/// State of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectionState {
    pub(super) counters: Counters,
    pub(super) queue_time: Duration,
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) up: DirectionState,
    pub(super) down: DirectionState,
    /// Packets that were not emulated.
    pub(super) refused: u64,
    /// Packets that the system did not send.
    pub(super) unsent: u64,
    /// Packets more than a millisecond late, and the largest lateness.
    pub(super) late: u64,
    pub(super) late_max: Duration,
    /// Packets that the system dropped before the emulator could read them.
    pub(super) overflowed: u64,
}

/// The counters of one direction in `sample` and `summary`. Fields are only ever added.
#[derive(Serialize)]
struct SideData {
    /// Entered and delivered, over the interval.
    offered_mbps: f64,
    mbps: f64,
    entered_packets: u64,
    entered_bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    lost_random: u64,
    lost_queue: u64,
    lost_policer: u64,
    lost_mtu: u64,
    lost_outage: u64,
    duplicated: u64,
    corrupted: u64,
    reordered: u64,
    marked: u64,
    inside_packets: u64,
    queue_bytes: u64,
    queue_ms: f64,
    queue_bytes_max: u64,
    queue_ms_max: f64,
}

impl SideData {
    fn new(side: &DirectionState, before: &DirectionState, span: Duration) -> Self {
        let (now, then) = (&side.counters, &before.counters);
        Self {
            offered_mbps: mbps(now.entered.bytes.saturating_sub(then.entered.bytes), span),
            mbps: mbps(now.delivered.bytes.saturating_sub(then.delivered.bytes), span),
            entered_packets: now.entered.packets,
            entered_bytes: now.entered.bytes,
            delivered_packets: now.delivered.packets,
            delivered_bytes: now.delivered.bytes,
            lost_random: now.lost_random.packets,
            lost_queue: now.lost_queue.packets,
            lost_policer: now.lost_policer.packets,
            lost_mtu: now.lost_mtu.packets,
            lost_outage: now.lost_outage.packets,
            duplicated: now.duplicated.packets,
            corrupted: now.corrupted.packets,
            reordered: now.reordered.packets,
            marked: now.marked.packets,
            inside_packets: now.inside.packets,
            queue_bytes: now.queue_bytes,
            queue_ms: milliseconds(side.queue_time),
            queue_bytes_max: now.queue_bytes_max,
            queue_ms_max: milliseconds(now.queue_time_max),
        }
    }

    /// As text.
    fn line(&self, name: &str) -> String {
        let mut text = format!(
            "{name} {:.1} Mbit/s, queue {} ({:.1} ms)",
            self.mbps,
            units::show_bytes(self.queue_bytes),
            self.queue_ms
        );
        for (what, count) in self.losses() {
            if count > 0 {
                text += &format!(", {} {what}", units::show_count(count));
            }
        }
        text
    }

    fn losses(&self) -> [(&'static str, u64); 5] {
        [
            ("lost at random", self.lost_random),
            ("lost to a full queue", self.lost_queue),
            ("lost to a policer", self.lost_policer),
            ("larger than the MTU", self.lost_mtu),
            ("lost in an outage", self.lost_outage),
        ]
    }
}

/// The rates and outages of the links, for the first event: rates are `[seconds, Mbit/s]`, `null`
/// without a limit; outages `[from, to]`, `null` if one does not end. Both count from the start of
/// the schedule.
pub(super) fn links(scenario: &Scenario, from: From) -> Value {
    let from = match from {
        From::Start => "start",
        From::FirstPacket => "first_packet",
    };
    json!({ "from": from, "up": link(&scenario.up), "down": link(&scenario.down) })
}

/// When the schedule of an emulated path begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    Start,
    FirstPacket,
}

fn link(options: &LinkOptions) -> Value {
    let mbps = |rate: Option<Rate>| rate.map(|rate| rounded(rate.bits_per_second() as f64 / 1e6));
    let mut rates = vec![json!([0, mbps(options.rate)])];
    let mut outages: Vec<(f64, Option<f64>)> = Vec::new();
    if options.outage != Outage::None {
        outages.push((0.0, None));
    }
    let mut changes: Vec<_> = options.schedule.iter().collect();
    changes.sort_by_key(|change| change.at);
    for change in changes.into_iter().take(MAX_CHANGES) {
        let at = rounded(change.at.as_secs_f64());
        if change.rate.is_some() {
            rates.push(json!([at, mbps(change.rate)]));
        }
        match (change.outage, outages.last_mut()) {
            (Some(Outage::None), Some(last)) if last.1.is_none() => last.1 = Some(at),
            (Some(Outage::None) | None, _) => {}
            (Some(_), Some(last)) if last.1.is_none() => {}
            (Some(_), _) => outages.push((at, None)),
        }
    }
    json!({ "mbps": rates, "outages": outages })
}

/// The output of one run.
pub(super) struct Stats {
    start: Instant,
    next: Instant,
    interval: Option<Duration>,
    last: (Instant, View),
    people: bool,
    /// Whether text lines are printed at intervals.
    lines: bool,
    json: Option<Stream>,
    trace: Option<(PathBuf, BufWriter<File>)>,
    failed: Option<io::Error>,
}

impl Stats {
    /// Without output so far. `stdout_is_free` unless a command uses it.
    pub(super) fn new(args: &StatsArgs, stdout_is_free: bool) -> Result<Self, Failure> {
        let create = |path: &PathBuf| match File::create(path) {
            Ok(file) => Ok((path.clone(), BufWriter::new(file))),
            Err(error) => {
                Err(Failure::new(Code::File, format!("{}: cannot write: {error}", path.display())))
            }
        };
        let trace = args.trace.as_ref().map(create).transpose()?;
        let by_default = match (&trace, args.json) {
            (Some(_), _) => Some(TRACE_INTERVAL),
            (None, true) => Some(JSON_INTERVAL),
            (None, false) => None,
        };
        let stream = if stdout_is_free { Stream::Stdout } else { Stream::Stderr };
        let json = args.json.then_some(stream);
        let now = Instant::now();
        let interval = args.stats.or(by_default);
        Ok(Self {
            start: now,
            next: now + interval.unwrap_or_default(),
            interval,
            last: (now, View::default()),
            people: !args.quiet && !args.json,
            lines: args.stats.is_some(),
            json,
            trace,
            failed: None,
        })
    }

    /// The time until the next sample; at most `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Duration {
        let left = self.next.saturating_duration_since(Instant::now());
        self.interval.map_or(limit, |_| left.min(limit))
    }

    /// The first event; the path works from now on.
    pub(super) fn begin(&mut self, data: Value, said: &str) {
        let now = Instant::now();
        (self.start, self.last.0) = (now, now);
        self.next = now + self.interval.unwrap_or_default();
        self.emit("emulating", data);
        self.say(said);
    }

    /// Prints a sample, if it is time.
    pub(super) fn sample(&mut self, view: impl FnOnce() -> View) {
        let now = Instant::now();
        let Some(interval) = self.interval.filter(|_| now >= self.next) else { return };
        // A missed sample is not made up for.
        self.next += interval;
        if self.next < now {
            self.next = now + interval;
        }
        let view = view();
        let (up, down) = self.sides(now, &view);
        let seconds = rounded((now - self.start).as_secs_f64());
        if self.lines {
            self.say(&format!("{seconds:8.2} s  {}; {}", up.line("up"), down.line("down")));
        }
        self.emit("sample", json!({ "seconds": seconds, "up": up, "down": down }));
        self.last = (now, view);
    }

    /// The last event, and the totals as text.
    pub(super) fn finish(mut self, view: &View) -> Result<(), Failure> {
        let now = Instant::now();
        self.last = (self.start, View::default());
        let (up, down) = self.sides(now, view);
        let data = json!({
            "version": 1,
            "seconds": rounded((now - self.start).as_secs_f64()),
            "up": up,
            "down": down,
            "refused": view.refused,
            "unsent": view.unsent,
            "overflowed": view.overflowed,
            "late": view.late,
            "late_ms_max": milliseconds(view.late_max),
        });
        self.emit("summary", data);
        if self.people {
            self.books(&up, &down, view);
        }
        if let Some((path, mut file)) = self.trace {
            let failed = self.failed.map_or_else(|| file.flush().err(), Some);
            if let Some(error) = failed {
                let text = format!("{}: cannot write: {error}", path.display());
                return Err(Failure::new(Code::File, text));
            }
        }
        Ok(())
    }

    fn sides(&self, now: Instant, view: &View) -> (SideData, SideData) {
        let (then, before) = &self.last;
        let span = now.saturating_duration_since(*then);
        (SideData::new(&view.up, &before.up, span), SideData::new(&view.down, &before.down, span))
    }

    fn books(&self, up: &SideData, down: &SideData, view: &View) {
        for (name, side) in [("up", up), ("down", down)] {
            let mut text = format!(
                "{name:<5} {} packets in ({}), {} out; at most {} ({:.1} ms) queued",
                units::show_count(side.entered_packets),
                units::show_bytes(side.entered_bytes),
                units::show_count(side.delivered_packets),
                units::show_bytes(side.queue_bytes_max),
                side.queue_ms_max
            );
            let others = [
                ("duplicated", side.duplicated),
                ("corrupted", side.corrupted),
                ("reordered", side.reordered),
                ("ECN-marked", side.marked),
                ("still inside", side.inside_packets),
            ];
            for (what, count) in side.losses().into_iter().chain(others) {
                if count > 0 {
                    let share = units::show_share(count, side.entered_packets);
                    text += &format!("; {} {what} ({share})", units::show_count(count));
                }
            }
            self.say(&text);
        }
        let packets = up.entered_packets + down.entered_packets;
        if view.late.saturating_mul(MANY_LATE) > packets {
            self.say(&format!(
                "This machine is too busy for this path: {} of {} packets were over 1 ms late.",
                units::show_count(view.late),
                units::show_count(packets)
            ));
        }
        for (count, what) in [
            (view.overflowed, "were dropped by the system before they could be read"),
            (view.refused, "were not taken in"),
            (view.unsent, "could not be sent on"),
        ] {
            if count > 0 {
                self.say(&format!("{} packets {what}.", units::show_count(count)));
            }
        }
    }

    fn say(&self, text: &str) {
        if self.people {
            stdout::say(text);
        }
    }

    fn emit(&mut self, event: &str, data: Value) {
        if self.json.is_none() && self.trace.is_none() {
            return;
        }
        let line = format!("{{\"event\":\"{event}\",\"data\":{data}}}\n");
        // A failed write does not end the network; `stdout` keeps the failure.
        let _ = match self.json {
            Some(Stream::Stdout) => stdout::write(line.as_bytes()),
            Some(Stream::Stderr) => stdout::write_beside(line.as_bytes()),
            None => Ok(()),
        };
        if let Some((_, file)) = &mut self.trace
            && self.failed.is_none()
        {
            self.failed = file.write_all(line.as_bytes()).err();
        }
    }
}

fn mbps(bytes: u64, time: Duration) -> f64 {
    rounded(8.0 * bytes as f64 / time.as_secs_f64() / 1e6)
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}
