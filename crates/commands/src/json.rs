//! Output for programs: one JSON object a line, `{"event":...,"data":{...}}`.
//!
//! Scripts can rely on it: fields are added, never renamed, removed or given another meaning. Rates
//! are in Mbit/s (10^6), times in seconds unless the name says `ms`.

use std::collections::BTreeMap;
use std::time::Duration;

use netblt::mirror::{ChangeKind, MirrorChange, MirrorOutcome};
use netblt::{Progress, Summary};
use netblt_proto::stats::Stats;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use netblt_cli_common::json::{ErrorData, Stream, emit, event, hex, rounded};

/// The version of the summary's meaning.
const VERSION: u32 = 1;

/// A name with its control characters, since no terminal sees it. If it is not valid UTF-8, `name`
/// has U+FFFD in place of invalid bytes, and `name_hex` has all of its bytes.
#[derive(Serialize)]
pub(crate) struct Name {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        let name_hex = str::from_utf8(name).is_err().then(|| hex(name));
        Self { name: String::from_utf8_lossy(name).into_owned(), name_hex }
    }
}

/// Puts a path into an object in the same way: `key`, and `key` with `_hex` where it is no text.
pub(crate) fn put_path(data: &mut Value, key: &str, path: &[u8]) {
    data[key] = json!(String::from_utf8_lossy(path));
    if str::from_utf8(path).is_err() {
        data[format!("{key}_hex")] = json!(hex(path));
    }
}

#[derive(Serialize)]
pub(crate) struct Empty {}

#[derive(Serialize)]
pub(crate) struct ListeningData<'a> {
    pub(crate) ticket: &'a str,
}

/// `file`: one that is through at this end, with its BLAKE3 as `b3sum` computes it.
#[derive(Serialize)]
pub(crate) struct FileData<'a> {
    #[serde(flatten)]
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) blake3: &'a str,
    /// The digests of `--hash`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) digests: BTreeMap<&'static str, String>,
}

/// `listening` where there is no ticket (`rfc998`).
#[derive(Serialize)]
pub(crate) struct ListeningAtData<'a> {
    pub(crate) address: &'a str,
}

#[derive(Serialize)]
pub(crate) struct ConnectedData<'a> {
    pub(crate) peer: &'a str,
}

/// Which way `cp` goes: `udp` to an address, or through `ssh`.
#[derive(Serialize)]
pub(crate) struct WayData<'a> {
    pub(crate) way: &'static str,
    pub(crate) address: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct SilentData {
    pub(crate) silent: bool,
}

#[derive(Serialize)]
pub(crate) struct WarningData<'a> {
    pub(crate) message: &'a str,
}

/// A receiver refused the files; this sender listens again.
#[derive(Serialize)]
pub(crate) struct RefusedData<'a> {
    pub(crate) why: &'a str,
}

/// An entry of a sender's list (`receive --list`).
#[derive(Serialize)]
pub(crate) struct OfferedData {
    #[serde(flatten)]
    pub(crate) name: Name,
    pub(crate) directory: bool,
    pub(crate) bytes: u64,
}

/// `change`: a change of a mirror.
#[derive(Serialize)]
pub(crate) struct ChangeData {
    action: &'static str,
    #[serde(flatten)]
    name: Name,
    directory: bool,
    bytes: u64,
    /// The name that a renamed file had.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Name>,
    /// As `rsync --itemize-changes` has it.
    code: String,
}

impl ChangeData {
    pub(crate) fn new(change: &MirrorChange, up: bool) -> Self {
        let from = match &change.kind {
            ChangeKind::Renamed(from) => Some(Name::new(from)),
            _ => None,
        };
        Self {
            action: change.action(),
            name: Name::new(&change.name),
            directory: change.directory,
            bytes: change.bytes,
            from,
            code: change.code(up).trim_end().to_owned(),
        }
    }
}

/// `mirror`: the changes of a mirror beside the transferred files.
#[derive(Serialize)]
pub(crate) struct MirrorData {
    removed: u64,
    renamed: u64,
    linked: u64,
    unchanged: u64,
}

impl MirrorData {
    pub(crate) fn new(outcome: &MirrorOutcome, unchanged: u64) -> Self {
        let MirrorOutcome { removed, renamed, linked, .. } = *outcome;
        Self { removed, renamed, linked, unchanged }
    }
}

/// The sum of that list.
#[derive(Serialize)]
pub(crate) struct OfferedSummaryData {
    version: u32,
    role: &'static str,
    /// Nothing was received.
    listed: bool,
    bytes: u64,
    files: u64,
}

impl OfferedSummaryData {
    pub(crate) fn new(files: u64, bytes: u64) -> Self {
        Self { version: VERSION, role: "receiver", listed: true, bytes, files }
    }
}

/// A leftover that `clean` has found, or would remove.
#[derive(Serialize)]
pub(crate) struct LeftoverData {
    #[serde(flatten)]
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) age_seconds: u64,
}

/// The sum of `clean`.
#[derive(Serialize)]
pub(crate) struct CleanData<'a> {
    pub(crate) place: Option<&'a str>,
    pub(crate) parts: usize,
    pub(crate) disk_bytes: u64,
    pub(crate) removed: bool,
}

/// The additional fields of `demo`.
#[derive(Serialize)]
pub(crate) struct DemoData {
    pub(crate) possible_mbps: f64,
    pub(crate) real_share: f64,
    pub(crate) steady_share: f64,
}

#[derive(Serialize)]
pub(crate) struct ProgressData {
    bytes: u64,
    /// Those of them that the receiver had already. No rate counts them.
    kept_bytes: u64,
    total: Option<u64>,
    /// Which file it is at, from 1, how many there are, if known, and its name.
    file: u64,
    files: Option<u64>,
    #[serde(flatten)]
    name: Name,
    seconds: f64,
    mbps: f64,
    /// Whether this end pauses (`netblt control`).
    paused: bool,
    /// In datagrams, headers of this protocol included.
    bytes_sent: u64,
    packets_sent: u64,
    packets_received: u64,
    packets_lost: u64,
    packets_resent: u64,
    repair_packets_sent: u64,
    repair_packets_received: u64,
    packets_repaired: u64,
    packets_duplicate: u64,
    outstanding: u32,
    rtt_ms: Option<f64>,
}

impl ProgressData {
    /// `bits_per_second` is over the last few seconds.
    pub(crate) fn new(progress: &Progress, bits_per_second: f64) -> Self {
        let stats = &progress.stats;
        Self {
            bytes: progress.bytes,
            kept_bytes: progress.kept,
            total: progress.total,
            file: progress.file,
            files: progress.files,
            name: Name::new(&progress.name),
            seconds: rounded(progress.elapsed.as_secs_f64()),
            mbps: mbps(bits_per_second),
            paused: progress.paused,
            bytes_sent: stats.bytes_sent,
            packets_sent: stats.data_packets_sent,
            packets_received: stats.data_packets_received,
            packets_lost: stats.data_packets_lost,
            packets_resent: stats.data_packets_resent,
            repair_packets_sent: stats.repair_packets_sent,
            repair_packets_received: stats.repair_packets_received,
            packets_repaired: stats.packets_repaired,
            packets_duplicate: stats.data_packets_duplicate,
            outstanding: stats.outstanding,
            rtt_ms: stats.rtt.map(milliseconds),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct SummaryData {
    version: u32,
    role: &'static str,
    bytes: u64,
    /// Those of them that the receiver had from a broken transfer.
    kept_bytes: u64,
    files: u64,
    skipped: u64,
    /// Those among them that are not the ones of `--expect`.
    unexpected: u64,
    /// Skipped, because they exist at the destination (`cp --ignore-existing`, `--update`).
    passed: u64,
    seconds: f64,
    real_mbps: f64,
    steady_mbps: f64,
    /// In datagrams, headers of this protocol included.
    bytes_sent: u64,
    packets_sent: u64,
    packets_received: u64,
    packets_lost: u64,
    packets_resent: u64,
    /// Coded packets, which are not among the others, and packets that were made from them.
    repair_packets_sent: u64,
    repair_packets_received: u64,
    packets_repaired: u64,
    packets_duplicate: u64,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    /// UDP payload of the largest datagrams with data, as the path had them in the end.
    datagram_bytes: u32,
    verified: bool,
    /// None where nothing is verified, and none for a copy between two other machines.
    digest: Option<String>,
    limited_by: &'static str,
    /// How many connections it went over, those that were lost or closed again as well, and the
    /// packets of data on each, the main one first.
    streams: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stream_packets: Vec<u64>,
}

/// The digest that both ends agreed on. An end that only introduced them knows that they agreed,
/// and not on which: none in its place would pass for one.
pub(crate) fn digest(summary: &Summary) -> Option<String> {
    (summary.verified && summary.digest != [0; 32]).then(|| hex(&summary.digest))
}

impl SummaryData {
    /// `passed`: files that were skipped, because they exist at the destination.
    pub(crate) fn new(summary: &Summary, role: &'static str, passed: u64) -> Self {
        let stats = &summary.stats;
        Self {
            version: VERSION,
            role,
            bytes: summary.bytes,
            kept_bytes: summary.kept,
            files: summary.files,
            skipped: summary.skipped,
            unexpected: summary.unexpected,
            passed,
            seconds: rounded(summary.elapsed.as_secs_f64()),
            real_mbps: mbps(summary.real_bps),
            steady_mbps: mbps(summary.steady_bps),
            bytes_sent: stats.bytes_sent,
            packets_sent: stats.data_packets_sent,
            packets_received: stats.data_packets_received,
            packets_lost: stats.data_packets_lost,
            packets_resent: stats.data_packets_resent,
            repair_packets_sent: stats.repair_packets_sent,
            repair_packets_received: stats.repair_packets_received,
            packets_repaired: stats.packets_repaired,
            packets_duplicate: stats.data_packets_duplicate,
            rtt_ms: stats.rtt.map(milliseconds),
            min_rtt_ms: stats.min_rtt.map(milliseconds),
            datagram_bytes: stats.datagram_bytes,
            verified: summary.verified,
            digest: digest(summary),
            limited_by: summary.limited_by.name(),
            streams: summary.streams.len().max(1),
            stream_packets: summary.streams.iter().map(packets).collect(),
        }
    }
}

/// Packets of data that left, or arrived: an end does one of the two.
fn packets(stream: &Stats) -> u64 {
    stream.data_packets_sent + stream.data_packets_received
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

fn mbps(bits_per_second: f64) -> f64 {
    rounded(bits_per_second / 1e6)
}
