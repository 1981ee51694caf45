//! Parses the trace of one end (`docs/reference/trace.md`) into series over time. Unknown events
//! are skipped, because later versions may add some; lines that are not events are counted, and the
//! first is named.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};

use serde::Serialize;
use serde_json::Value;

/// Limit on the length of a line: a foreign file need not have lines at all.
const MAX_LINE: u64 = 1 << 16;
/// Bin width for datagrams of data, in seconds.
const CELL: f64 = 0.001;
/// DATA and LDATA (`docs/protocol §3.1`).
const DATA: [u64; 2] = [6, 7];
/// Cause of waiting: all buffers of the receiver are full.
pub(super) const RECEIVER_DISK: &str = "receiver_disk";

/// Changes that happen all the time: growth of a congestion window, control by a short queue, and
/// changes without effect on its bytes.
const STEADY: [&str; 5] = ["slow_start", "avoidance", "short_queue", "reconfirm", "packet_size"];

/// A sudden change of the congestion window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct WindowChange {
    /// Seconds since the first event.
    pub(super) at: f64,
    pub(super) cause: String,
    /// Phase of the controller from then on.
    pub(super) mode: String,
    pub(super) from_bytes: u64,
    pub(super) to_bytes: u64,
    /// The sender's allowed rate before and after, in bytes a second.
    pub(super) from_rate: Option<f64>,
    pub(super) to_rate: Option<f64>,
}

/// A completed loss test of the controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LossTest {
    /// Seconds since the first event.
    pub(super) at: f64,
    pub(super) verdict: String,
    /// Share of the bottleneck that the test assumed, in millionths.
    pub(super) share_ppm: u64,
    /// Difference of the loss rates that congestion would cause, and its error, in millionths.
    pub(super) limit_ppm: u64,
    pub(super) error_ppm: u64,
    /// Packets sent at the full rate and at half of it, and how many of each were lost.
    pub(super) whole_packets: u64,
    pub(super) whole_lost: u64,
    pub(super) half_packets: u64,
    pub(super) half_lost: u64,
}

impl LossTest {
    fn of(at: f64, event: &Value) -> Self {
        let count = |field: &str| event[field].as_u64().unwrap_or_default();
        Self {
            at,
            verdict: event["verdict"].as_str().unwrap_or_default().to_owned(),
            share_ppm: count("share_ppm"),
            limit_ppm: count("limit_ppm"),
            error_ppm: count("error_ppm"),
            whole_packets: count("whole_packets"),
            whole_lost: count("whole_lost"),
            half_packets: count("half_packets"),
            half_lost: count("half_lost"),
        }
    }
}

/// The limiting cause that both ends agreed on at the end of the transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ended {
    /// The cause, by its name in a summary.
    pub(super) by: String,
    /// The receiver's own load.
    pub(super) cpu_percent: Option<u64>,
    pub(super) disk_percent: Option<u64>,
}

impl Ended {
    fn of(event: &Value) -> Self {
        let percent = |field: &str| event[field].as_u64();
        Self {
            by: event["by"].as_str().unwrap_or_default().to_owned(),
            cpu_percent: percent("cpu_percent"),
            disk_percent: percent("disk_percent"),
        }
    }
}

/// Begin or end of a period in which losses do not count as congestion ("excused").
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Excuse {
    /// Seconds since the first event.
    pub(super) at: f64,
    pub(super) reason: String,
    /// The excused loss rate, in millionths.
    pub(super) share_ppm: u64,
}

/// State of a sender at one report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SenderState {
    /// Seconds since the first event.
    pub(super) at: f64,
    pub(super) phase: String,
    /// Allowed rate, and delivery rate over the last flight, in bytes a second.
    pub(super) allowed: f64,
    pub(super) bandwidth: f64,
    /// Seconds: the minimum round trip, queue delay, delay on the return path, and jitter.
    pub(super) rtt: f64,
    pub(super) min_rtt: f64,
    pub(super) queue: f64,
    pub(super) way_back: f64,
    pub(super) varies: f64,
    /// Its share of the bottleneck, if known, from 0 to 1.
    pub(super) share: Option<f64>,
    pub(super) outstanding: u64,
    /// Packets so far.
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) marked: u64,
    /// Bytes of IP packets so far.
    pub(super) delivered: u64,
}

/// Series and spans in seconds since the first event.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) events: u64,
    pub(super) role: Option<String>,
    pub(super) wire: Option<String>,
    pub(super) ended: Option<String>,
    pub(super) end: f64,
    /// Bytes of DATA, by millisecond.
    pub(super) data: BTreeMap<u64, u64>,
    pub(super) data_packets: u64,
    pub(super) data_bytes: u64,
    /// Totals so far.
    pub(super) delivered: Vec<(f64, f64)>,
    /// Bytes of buffers stored by the receiver, in a sender's trace (whose totals above count IP
    /// packets).
    pub(super) accepted: Option<u64>,
    pub(super) lost: Vec<(f64, f64)>,
    pub(super) resent: Vec<(f64, f64)>,
    /// Bytes a second.
    pub(super) pacing: Vec<(f64, f64)>,
    /// Seconds.
    pub(super) rtt: Vec<(f64, f64)>,
    pub(super) min_rtt: Vec<(f64, f64)>,
    pub(super) queue: Vec<(f64, f64)>,
    /// Buffers.
    pub(super) outstanding: Vec<(f64, f64)>,
    pub(super) held: Vec<(f64, f64)>,
    /// The state at each report.
    pub(super) states: Vec<SenderState>,
    /// Times of the first and the last DATA packet.
    pub(super) data_times: Option<(f64, f64)>,
    /// Datagrams dropped because the socket's buffer was full.
    pub(super) overrun: u64,
    /// Data packets received, at a receiver.
    pub(super) received: u64,
    /// Spans by cause.
    pub(super) waits: BTreeMap<String, Vec<(f64, f64)>>,
    pub(super) silences: Vec<(f64, f64)>,
    /// Changes of the congestion window, apart from those of [`STEADY`].
    pub(super) changes: Vec<WindowChange>,
    pub(super) tests: Vec<LossTest>,
    pub(super) excuses: Vec<Excuse>,
    pub(super) limited: Option<Ended>,
    pub(super) timers: BTreeMap<String, u64>,
    pub(super) dropped: u64,
    /// Repair packets made (sender), or packets recovered from them (receiver).
    pub(super) repaired: u64,
    pub(super) missing: u64,
}

/// The first line that is not an event, and the number of others.
#[derive(Debug, PartialEq)]
pub(super) struct BadLine {
    pub(super) number: u64,
    pub(super) why: String,
    pub(super) others: u64,
}

/// Content of a trace file.
pub(super) struct Read {
    pub(super) trace: Trace,
    pub(super) bad: Option<BadLine>,
}

/// Description of a cause, for a sentence that begins with "waited for".
pub(super) fn cause_words(cause: &str) -> &str {
    match cause {
        "source" => "the disk or pipe that gives data",
        "permission" => "permission (GO, OK or RESEND)",
        "in_flight" => "room in flight",
        "paused" => "the end of a pause",
        RECEIVER_DISK => "the disk or pipe that takes data",
        other => other,
    }
}

/// Description of a cause of a congestion window's change.
pub(super) fn change_words(cause: &str) -> &str {
    match cause {
        "loss" => "packets were lost",
        "excess" => "more was lost than is excused",
        "mark" => "packets arrived marked (ECN)",
        "silence" => "no reports came",
        "pause" => "the transfer was paused",
        "delay" => "round trips grew: the start is over",
        "drained" => "the start's queue is empty: the rate that the path carried",
        "not_full" => "the path was not full: the start goes on",
        "saved_rate" => "a part of the rate that was saved of this path",
        "free" => "a probe found so much of the path free",
        "retreat" => "that was too much for the path",
        "no_growth" => "the start is over: it lost packets, or more sending brought no more",
        "look" => "a start begins again, to see whether the path carries more",
        "test" => "losses are excused, after the test",
        "test_failed" | "test_undecided" => "losses count as congestion, after the test",
        "path_change" => "round trips stayed long at a lower rate",
        "policy" => "the policy was changed",
        other => other,
    }
}

/// Description of a loss test's result.
pub(super) fn verdict_words(verdict: &str) -> &str {
    match verdict {
        "passed" => "not less at half the rate",
        "failed" => "less at half the rate",
        "undecided" => "too few packets to tell",
        "over" => "hardly any losses any more",
        "marked" => "stopped by a mark (ECN)",
        "silence" => "stopped, for no reports came",
        other => other,
    }
}

/// Description of why losses begin or cease to be excused.
pub(super) fn excuse_words(reason: &str) -> &str {
    match reason {
        "presumed" => "are excused for a second, for the start lost as many",
        "tested" => "are excused, after the test",
        "expired" => "are no longer excused: the excuse expired",
        "exceeded" => "are no longer excused: more was lost",
        "marked" => "are no longer excused: packets arrived marked (ECN)",
        "interrupted" => "are no longer excused: no reports came, or nothing was sent",
        other => other,
    }
}

pub(super) fn read(file: &mut impl BufRead) -> io::Result<Read> {
    let mut reader = Reader::default();
    let (mut bad, mut number) = (None::<BadLine>, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        if file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let whole = line.ends_with(b"\n");
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Err(why) = reader.line(&line) {
            let cut = if whole { "" } else { ", and it is cut short" };
            match &mut bad {
                Some(bad) => bad.others += 1,
                None => bad = Some(BadLine { number, why: format!("{why}{cut}"), others: 0 }),
            }
        }
        // The rest of a line that is too long is not a line of its own.
        while !whole && line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            line.clear();
            if file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
        }
    }
    Ok(Read { trace: reader.finish(), bad })
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    first_ns: Option<u64>,
    silent_since: Option<f64>,
    full_since: Option<f64>,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let event: Value = serde_json::from_slice(line).map_err(|_| "it is no JSON".to_owned())?;
        let ns = event["ns"].as_u64().ok_or("it has no \"ns\"")?;
        let name = event["event"].as_str().ok_or("it has no \"event\"")?;
        let first = *self.first_ns.get_or_insert(ns);
        let at = ns.saturating_sub(first) as f64 / 1e9;
        self.trace.end = self.trace.end.max(at);
        self.trace.events += 1;
        self.event(at, name, &event);
        Ok(())
    }

    fn event(&mut self, at: f64, name: &str, event: &Value) {
        let trace = &mut self.trace;
        let count = |field: &str| event[field].as_u64().unwrap_or_default();
        let word = |field: &str| event[field].as_str().map(str::to_owned);
        match name {
            "opened" => (trace.role, trace.wire) = (word("role"), word("wire")),
            "closed" => trace.ended = word("how"),
            "sent" => self.datagrams("sender", at, event, count("packets")),
            "received" => self.datagrams("receiver", at, event, 1),
            "dropped" => trace.dropped += 1,
            "overrun" => trace.overrun = count("datagrams"),
            "repair" => trace.repaired += count("packets"),
            "timer" => *trace.timers.entry(word("timer").unwrap_or_default()).or_default() += 1,
            "waited" => {
                let from = (at - count("waited_ns") as f64 / 1e9).max(0.0);
                let spans = trace.waits.entry(word("cause").unwrap_or_default()).or_default();
                spans.push((from, at));
            }
            "silent" => self.silent_since = Some(at),
            "answering" => {
                self.trace.silences.extend(self.silent_since.take().map(|from| (from, at)));
            }
            "lost" => trace.missing += count("events"),
            "buffer" => self.buffer(at, event),
            "rate" => {
                self.state(at, event);
                self.standing(at, event);
            }
            "receiver" => {
                self.state(at, event);
                self.trace.received = count("received");
            }
            "window" => {
                let cause = word("cause").unwrap_or_default();
                if !STEADY.contains(&cause.as_str()) {
                    // The preceding `rate` event has the state after the change.
                    let mut rates = trace.pacing.iter().rev().map(|point| point.1);
                    let (to_rate, from_rate) = (rates.next(), rates.next());
                    let mode = word("mode").unwrap_or_default();
                    let (from_bytes, to_bytes) = (count("from"), count("to"));
                    let windows =
                        WindowChange { at, cause, mode, from_bytes, to_bytes, from_rate, to_rate };
                    trace.changes.push(windows);
                }
            }
            "limit" => trace.limited = Some(Ended::of(event)),
            "excuse" => trace.excuses.push(Excuse {
                at,
                reason: word("reason").unwrap_or_default(),
                share_ppm: count("share_ppm"),
            }),
            "test" => trace.tests.push(LossTest::of(at, event)),
            _ => {}
        }
    }

    /// DATA sent by this end, if it is the sender, or received, if it is the receiver.
    fn datagrams(&mut self, role: &str, at: f64, event: &Value, packets: u64) {
        let trace = &mut self.trace;
        let is_data = event["kind"].as_u64().is_some_and(|kind| DATA.contains(&kind));
        if !is_data || trace.role.as_deref().is_some_and(|own| own != role) {
            return;
        }
        let bytes = event["bytes"].as_u64().unwrap_or_default();
        trace.data_times = Some((trace.data_times.map_or(at, |(first, _)| first), at));
        trace.data_packets += packets;
        trace.data_bytes += bytes;
        *trace.data.entry((at / CELL) as u64).or_default() += bytes;
    }

    fn buffer(&mut self, at: f64, event: &Value) {
        self.buffers(at, event);
        let number = |field: &str| event[field].as_u64();
        // A receiver that gives no permission, because its disk is behind.
        let is_full = self.trace.role.as_deref() == Some("receiver")
            && number("outstanding") == Some(0)
            && number("held").is_some_and(|held| held > 0);
        match (is_full, self.full_since) {
            (true, None) => self.full_since = Some(at),
            (false, Some(from)) => {
                self.full_since = None;
                self.waited(RECEIVER_DISK, from, at);
            }
            _ => {}
        }
    }

    fn waited(&mut self, cause: &str, from: f64, to: f64) {
        self.trace.waits.entry(cause.to_owned()).or_default().push((from, to));
    }

    fn buffers(&mut self, at: f64, event: &Value) {
        let trace = &mut self.trace;
        for (points, field) in [(&mut trace.outstanding, "outstanding"), (&mut trace.held, "held")]
        {
            points.extend(event[field].as_f64().map(|value| (at, value)));
        }
    }

    /// Adds the state at one report.
    fn state(&mut self, at: f64, event: &Value) {
        self.buffers(at, event);
        let trace = &mut self.trace;
        trace.accepted = event["accepted_bytes"].as_u64().or(trace.accepted);
        for (points, field, factor) in [
            (&mut trace.delivered, "delivered", 1.0),
            (&mut trace.lost, "lost", 1.0),
            (&mut trace.resent, "resent", 1.0),
            (&mut trace.pacing, "bytes_per_second", 1.0),
            (&mut trace.rtt, "rtt_ns", 1e-9),
            (&mut trace.min_rtt, "min_rtt_ns", 1e-9),
            (&mut trace.queue, "queue_ns", 1e-9),
        ] {
            points.extend(event[field].as_f64().map(|value| (at, value * factor)));
        }
    }

    fn standing(&mut self, at: f64, event: &Value) {
        let count = |field: &str| event[field].as_u64().unwrap_or_default();
        let seconds = |field: &str| event[field].as_f64().unwrap_or_default() * 1e-9;
        self.trace.states.push(SenderState {
            at,
            phase: event["phase"].as_str().unwrap_or_default().to_owned(),
            allowed: event["bytes_per_second"].as_f64().unwrap_or_default(),
            bandwidth: event["bandwidth"].as_f64().unwrap_or_default(),
            rtt: seconds("rtt_ns"),
            min_rtt: seconds("min_rtt_ns"),
            queue: seconds("queue_ns"),
            way_back: seconds("way_back_ns"),
            varies: seconds("varies_ns"),
            share: event["share_ppm"].as_f64().map(|ppm| ppm / 1e6),
            outstanding: count("outstanding"),
            sent: count("sent"),
            lost: count("lost"),
            marked: count("marked"),
            delivered: count("delivered"),
        });
    }

    fn finish(mut self) -> Trace {
        let end = self.trace.end;
        self.trace.silences.extend(self.silent_since.map(|from| (from, end)));
        if let Some(from) = self.full_since {
            self.waited(RECEIVER_DISK, from, end);
        }
        // Zero on a wire that does not report it.
        let nothing = |points: &[(f64, f64)]| points.iter().all(|point| point.1 == 0.0);
        if nothing(&self.trace.delivered) {
            self.trace.delivered.clear();
        }
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Read {
        read(&mut text.as_bytes()).expect("memory can be read")
    }

    const OPENED: &str =
        "{\"ns\":1000000000,\"event\":\"opened\",\"role\":\"sender\",\"wire\":\"sealed\"}\n";

    #[test]
    fn events_become_points_and_spans() {
        let text = format!(
            "{OPENED}\
            {{\"ns\":1100000000,\"event\":\"sent\",\"kind\":6,\"packets\":8,\"bytes\":9600}}\n\
            {{\"ns\":1200000000,\"event\":\"sent\",\"kind\":0,\"packets\":1,\"bytes\":96}}\n\
            {{\"ns\":1500000000,\"event\":\"waited\",\"cause\":\"source\",\
            \"waited_ns\":250000000}}\n\
            {{\"ns\":1500000000,\"event\":\"rate\",\"rtt_ns\":40000000,\"min_rtt_ns\":null,\
            \"outstanding\":3,\"held\":1,\"lost\":2,\"resent\":1,\"delivered\":0}}\n\
            {{\"ns\":1600000000,\"event\":\"silent\"}}\n\
            {{\"ns\":1700000000,\"event\":\"unknown event\",\"x\":[]}}\n\
            {{\"ns\":2000000000,\"event\":\"closed\",\"how\":\"death_timer\"}}\n"
        );
        let Read { trace, bad } = read_text(&text);
        assert_eq!(bad, None);
        assert_eq!((trace.data_packets, trace.data_bytes, trace.events), (8, 9600, 8));
        assert_eq!(trace.waits["source"], [(0.25, 0.5)]);
        assert_eq!(trace.silences, [(0.6, 1.0)]);
        assert_eq!((trace.rtt.as_slice(), trace.min_rtt.len()), (&[(0.5, 0.04)][..], 0));
        assert_eq!((trace.end, trace.delivered.len()), (1.0, 0));
        assert_eq!(trace.ended.as_deref(), Some("death_timer"));
    }

    /// Changes of [`STEADY`] are not reported.
    #[test]
    fn changes_of_the_rate_are_kept_with_their_causes() {
        let window = |cause: &str, from: u64, to: u64| {
            format!(
                "{{\"ns\":1300000000,\"event\":\"window\",\"mode\":\"recovery\",\
                \"cause\":\"{cause}\",\"from\":{from},\"to\":{to}}}\n"
            )
        };
        let lines = [
            OPENED.to_owned(),
            "{\"ns\":1100000000,\"event\":\"rate\",\"bytes_per_second\":12500000}\n".to_owned(),
            "{\"ns\":1300000000,\"event\":\"rate\",\"bytes_per_second\":8750000}\n".to_owned(),
            window("avoidance", 1000, 1100),
            window("short_queue", 1100, 1000),
            window("loss", 500_000, 350_000),
            "{\"ns\":1400000000,\"event\":\"test\",\"verdict\":\"passed\",\
            \"share_ppm\":500000,\"whole_packets\":1000,\"whole_lost\":50,\
            \"half_packets\":500,\"half_lost\":24}\n"
                .to_owned(),
        ];
        let trace = read_text(&lines.concat()).trace;
        let [change] = trace.changes.as_slice() else { panic!("{:?}", trace.changes) };
        assert_eq!(change.to_string(), "100.0 Mbit/s to 70.0 Mbit/s: packets were lost");
        let [test] = trace.tests.as_slice() else { panic!("{:?}", trace.tests) };
        let words = "test of 1,500 packets: 5.0 % lost, 4.8 % at half the rate: not less at half \
                     the rate";
        assert_eq!(test.to_string(), words);
    }

    #[test]
    fn every_cause_and_verdict_has_words() {
        for cause in netblt_proto::rate::controller::Cause::ALL {
            let name = cause.name();
            assert!(STEADY.contains(&name) || change_words(name) != name, "{name}");
        }
        for verdict in ["passed", "failed", "undecided", "over", "marked", "silence"] {
            assert_ne!(verdict_words(verdict), verdict);
        }
        for reason in ["presumed", "tested", "expired", "exceeded", "marked", "interrupted"] {
            assert_ne!(excuse_words(reason), reason);
        }
    }

    #[test]
    fn a_receiver_with_full_buffers_waits_for_its_disk() {
        let buffer = |ms: u64, outstanding, held| {
            format!(
                "{{\"ns\":{},\"event\":\"buffer\",\"number\":1,\"stage\":\"filled\",\
                \"outstanding\":{outstanding},\"held\":{held}}}\n",
                1_000_000_000 + ms * 1_000_000
            )
        };
        let opened = OPENED.replace("sender", "receiver");
        let lines = [buffer(100, 1, 1), buffer(200, 0, 2), buffer(450, 1, 1), buffer(500, 0, 1)];
        let trace = read_text(&(opened + &lines.concat())).trace;
        assert_eq!(trace.waits[RECEIVER_DISK], [(0.2, 0.45), (0.5, 0.5)]);
    }

    #[test]
    fn bad_lines_are_named_and_skipped() {
        let long = "x".repeat(3 * MAX_LINE as usize);
        for (text, number, why, others) in [
            (format!("{OPENED}{{\"ns\":2,\"eve"), 2, "it is no JSON, and it is cut short", 0),
            (format!("hello\n\n{OPENED}{{}}\n"), 1, "it is no JSON", 1),
            (format!("{OPENED}{{\"event\":\"sample\"}}\n"), 2, "it has no \"ns\"", 0),
            (format!("{long}\n{OPENED}"), 1, "it is no JSON, and it is cut short", 0),
        ] {
            let Read { trace, bad } = read_text(&text);
            assert_eq!(bad, Some(BadLine { number, why: why.to_owned(), others }));
            assert_eq!(trace.events, 1);
        }
        let binary = [0xff, 0, b'\n'];
        assert!(read(&mut &binary[..]).expect("bytes").bad.is_some());
    }
}
