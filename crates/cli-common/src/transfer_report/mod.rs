//! What limited one transfer, from the trace of one of its ends (`docs/reference/trace.md`), as
//! text, JSON and a plot.

mod drawing;
mod evidence;
mod limit;
mod trace;

use std::io::{self, BufReader};
use std::path::Path;
use std::{fmt, fs};

use netblt_pages::plot::Picture;
use serde::Serialize;

use crate::exit::{Code, Failure};
use crate::json::rounded;
use crate::units;
use evidence::Evidence;
use trace::{BadLine, Read, Trace};

/// Limit on lines about changes of the rate.
const MOST_LINES: usize = 20;

/// The report on one transfer.
#[derive(Debug)]
pub struct TransferReport {
    trace: Trace,
    /// The first line that is none of a trace's.
    bad: Option<BadLine>,
    summary: Summary,
}

/// Draws the transfer of a trace, as a page.
pub fn write_page(trace: &Path, title: &str, out: &Path) -> Result<(), Failure> {
    let read = open(trace)?;
    if read.trace.events == 0 {
        return Err(Failure::new(Code::File, "its trace is empty"));
    }
    let report = TransferReport::new(read);
    let page = report.picture(Some(title), &[]).page(&report.to_string());
    fs::write(out, page).map_err(|error| Failure::new(Code::File, format!("cannot write: {error}")))
}

fn open(file: &Path) -> Result<Read, Failure> {
    let cannot = |error: io::Error| {
        Failure::new(Code::File, format!("{}: cannot read: {error}", file.display()))
    };
    let open = fs::File::open(file).map_err(cannot)?;
    trace::read(&mut BufReader::new(open)).map_err(cannot)
}

impl TransferReport {
    /// Reads the trace in this file.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let read = open(file)?;
        if read.trace.events == 0 {
            let why = read.bad.map_or_else(|| "it is empty".to_owned(), |bad| bad.to_string());
            let text = format!("{}: not the trace of a transfer: {why}", file.display());
            return Err(Failure::new(Code::File, text));
        }
        Ok(Self::new(read))
    }

    fn new(read: Read) -> Self {
        let summary = Summary::new(&read.trace);
        Self { trace: read.trace, bad: read.bad, summary }
    }

    /// The lines that were skipped, if any.
    pub fn skipped(&self) -> Option<String> {
        self.bad.as_ref().map(|bad| format!("{bad}; skipped"))
    }

    /// The figures, times in seconds.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!(self.summary)
    }

    /// The plot, with these notes below its first line.
    pub fn picture(&self, title: Option<&str>, notes: &[String]) -> Picture {
        let role = self.summary.role.as_deref().unwrap_or("one end");
        let title =
            title.map_or_else(|| format!("A transfer, as its {role} saw it"), str::to_owned);
        let notes = [&[self.summary.headline()], notes].concat();
        drawing::picture(&self.trace, &title, notes)
    }
}

impl fmt::Display for TransferReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary.fmt(f)
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.why)?;
        match self.others {
            0 => Ok(()),
            others => write!(f, " (and {others} more such lines)"),
        }
    }
}

/// The output. Fields are only ever added.
#[derive(Debug, Serialize)]
struct Summary {
    version: u32,
    role: Option<String>,
    wire: Option<String>,
    /// How it ended; absent if the trace was cut short.
    ended: Option<String>,
    seconds: f64,
    data_packets: u64,
    data_bytes: u64,
    delivered_bytes: Option<u64>,
    mean_mbps: f64,
    lost: u64,
    resent: u64,
    /// Repair packets made (sender), or packets recovered from them (receiver).
    repaired: u64,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    max_queue_ms: Option<f64>,
    max_outstanding: u64,
    /// Seconds in which nothing could be sent or stored, by cause.
    waited: Vec<Wait>,
    silent_seconds: f64,
    /// Changes of the congestion window, apart from growth and control by a short queue.
    changes: Vec<trace::WindowChange>,
    /// Tests whether losses are caused by this sender.
    tests: Vec<trace::LossTest>,
    /// When losses began or ceased to be excused.
    excuses: Vec<trace::Excuse>,
    /// What limited it: name, sentence, and the figures.
    limit: &'static str,
    limit_sentence: String,
    limit_evidence: Evidence,
    /// Expired timers, by name.
    timers: std::collections::BTreeMap<String, u64>,
    dropped: u64,
    missing_events: u64,
}

#[derive(Debug, Serialize)]
struct Wait {
    cause: String,
    seconds: f64,
}

impl Summary {
    fn new(trace: &Trace) -> Self {
        let milliseconds = |seconds: Option<f64>| seconds.map(|s| rounded(s * 1e3));
        let last = |points: &[(f64, f64)]| points.last().map(|point| point.1);
        let sum = |spans: &[(f64, f64)]| rounded(spans.iter().map(|(from, to)| to - from).sum());
        let largest = |points: &[(f64, f64)]| points.iter().map(|p| p.1).reduce(f64::max);
        // A sender's total counts headers, too; its buffers are the data that arrived.
        let delivered = trace.accepted.filter(|bytes| *bytes > 0);
        let delivered = delivered.or_else(|| last(&trace.delivered).map(|bytes| bytes as u64));
        let bytes = delivered.unwrap_or(trace.data_bytes);
        let waited = trace
            .waits
            .iter()
            .map(|(cause, spans)| Wait { cause: cause.clone(), seconds: sum(spans) });
        let evidence = Evidence::new(trace);
        let limit = limit::decide(trace, &evidence);
        Self {
            version: 1,
            role: trace.role.clone(),
            wire: trace.wire.clone(),
            ended: trace.ended.clone(),
            seconds: rounded(trace.end),
            data_packets: trace.data_packets,
            data_bytes: trace.data_bytes,
            delivered_bytes: delivered,
            mean_mbps: rounded(bytes as f64 * 8.0 / trace.end.max(1e-9) / 1e6),
            lost: last(&trace.lost).unwrap_or_default() as u64,
            resent: last(&trace.resent).unwrap_or_default() as u64,
            repaired: trace.repaired,
            rtt_ms: milliseconds(last(&trace.rtt)),
            min_rtt_ms: milliseconds(last(&trace.min_rtt)),
            max_queue_ms: milliseconds(largest(&trace.queue)),
            max_outstanding: largest(&trace.outstanding).unwrap_or_default() as u64,
            waited: waited.collect(),
            silent_seconds: sum(&trace.silences),
            changes: trace.changes.clone(),
            tests: trace.tests.clone(),
            excuses: trace.excuses.clone(),
            limit: limit.name(),
            limit_sentence: limit::sentence(limit, trace, &evidence),
            limit_evidence: evidence,
            timers: trace.timers.clone(),
            dropped: trace.dropped,
            missing_events: trace.missing,
        }
    }

    /// Changes of the rate in the order of time; the largest ones if there are many.
    fn rate_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(f64, f64, String)> = Vec::new();
        for change in &self.changes {
            let (from, to) = (change.from_bytes as f64, change.to_bytes as f64);
            let size = (from - to).abs() / from.max(to).max(1.0);
            lines.push((change.at, size, change.to_string()));
        }
        lines.extend(self.tests.iter().map(|test| (test.at, 1.0, test.to_string())));
        // The result of a test is in its own line.
        let excuses = self.excuses.iter().filter(|excuse| excuse.reason != "tested");
        lines.extend(excuses.map(|excuse| (excuse.at, 1.0, excuse.to_string())));
        let left_out = lines.len().saturating_sub(MOST_LINES);
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        lines.truncate(MOST_LINES);
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, _, words) in lines {
            writeln!(f, "  {at:8.3} s  {words}")?;
        }
        match left_out {
            0 => Ok(()),
            left => writeln!(f, "              and {left} more lines, which --json has"),
        }
    }

    fn headline(&self) -> String {
        let role = self.role.as_deref().unwrap_or("one end");
        let wire = self.wire.as_deref().unwrap_or("unknown wire");
        let ended = self.ended.as_deref().unwrap_or("the trace does not say its end");
        let rate = units::show_rate(self.mean_mbps * 1e6);
        format!("{role}, {wire}: {:.3} s, {rate} on average; {}", self.seconds, ended_words(ended))
    }
}

impl fmt::Display for trace::WindowChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = trace::change_words(&self.cause);
        match (self.from_rate, self.to_rate) {
            (Some(from), Some(to)) => {
                let rate = |bytes: f64| units::show_rate(bytes * 8.0);
                write!(f, "{} to {}: {why}", rate(from), rate(to))
            }
            _ => {
                let bytes = units::show_bytes;
                write!(f, "{} to {} in flight: {why}", bytes(self.from_bytes), bytes(self.to_bytes))
            }
        }
    }
}

impl fmt::Display for trace::LossTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |lost: u64, of: u64| 100.0 * lost as f64 / of.max(1) as f64;
        let count = units::show_count;
        write!(f, "test of {} packets: ", count(self.whole_packets + self.half_packets))?;
        write!(f, "{:.1} % lost", percent(self.whole_lost, self.whole_packets))?;
        write!(f, ", {:.1} % at half the rate: ", percent(self.half_lost, self.half_packets))?;
        f.write_str(trace::verdict_words(&self.verdict))
    }
}

impl fmt::Display for trace::Excuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.share_ppm as f64 / 1e4;
        write!(f, "losses of {percent:.1} % {}", trace::excuse_words(&self.reason))
    }
}

fn ended_words(how: &str) -> String {
    how.replace('_', " ")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = units::show_count;
        writeln!(f, "{}", self.headline())?;
        let moved = units::show_bytes(self.data_bytes);
        write!(f, "  data        {} packets, {moved} with headers", count(self.data_packets))?;
        write!(f, "; {} lost, {} resent", count(self.lost), count(self.resent))?;
        match (self.repaired, self.role.as_deref()) {
            (0, _) => writeln!(f)?,
            (packets, Some("receiver")) => writeln!(f, ", {} repaired", count(packets))?,
            (packets, _) => writeln!(f, ", {} for repair", count(packets))?,
        }
        if let Some(bytes) = self.delivered_bytes {
            writeln!(f, "  delivered   {}", units::show_bytes(bytes))?;
        }
        if let (Some(rtt), min) = (self.rtt_ms, self.min_rtt_ms) {
            let min = min.map(|min| format!(", {min:.1} ms at least")).unwrap_or_default();
            let queue = self.max_queue_ms.map(|ms| format!("; queue up to {ms:.1} ms"));
            writeln!(f, "  round trip  {rtt:.1} ms{min}{}", queue.unwrap_or_default())?;
        }
        writeln!(f, "  buffers     up to {} outstanding", self.max_outstanding)?;
        for wait in self.waited.iter().filter(|wait| wait.seconds > 0.0) {
            let share = 100.0 * wait.seconds / self.seconds.max(1e-9);
            let cause = trace::cause_words(&wait.cause);
            writeln!(f, "  waited      {:.3} s ({share:.0} %) for {cause}", wait.seconds)?;
        }
        if self.silent_seconds > 0.0 {
            writeln!(f, "  silence     {:.3} s", self.silent_seconds)?;
        }
        writeln!(f, "  limit       {}", self.limit_sentence)?;
        self.rate_changes(f)?;
        let timers = self.timers.iter().map(|(name, n)| format!("{name} {}", count(*n)));
        let timers = timers.collect::<Vec<_>>().join(", ");
        if !timers.is_empty() {
            writeln!(f, "  timers      {timers}")?;
        }
        if self.dropped > 0 {
            writeln!(f, "  dropped     {} datagrams that were not believed", count(self.dropped))?;
        }
        if self.missing_events > 0 {
            writeln!(f, "  incomplete  {} events are missing", count(self.missing_events))?;
        }
        Ok(())
    }
}
