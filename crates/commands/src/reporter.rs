//! The output of a transfer: text on standard error, or one JSON object a line.
//!
//! Every string that may come from the other side passes through `printable` before it is shown.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netblt::mirror::{ChangeKind, MirrorChange, MirrorOutcome};
use netblt::{Error, Observer, OnFile, Options, Progress, Rendezvous, Summary, Ticket, Warning};
use netblt_proto::api::{printable, printable_bytes};
use netblt_proto::config::Role;
use rustix::fs::FileType;
use zeroize::Zeroizing;

use crate::args::{OutputArgs, TICKET_VARIABLE};
use crate::bar::{Bar, Speed};
use crate::control::Server;
use crate::exit::{Code, Failure, plain};
use crate::hints;
use crate::json::{self, Name, Stream};
use crate::outcome;
use crate::stdout;
use crate::units;

/// JSON progress is for logs: once a second is enough.
const JSON_EVERY: Duration = Duration::from_secs(1);
/// Bytes in a file below which its name counts for much on the wire.
const SMALL_FILE: u64 = 4096;

/// Reports one transfer from its beginning to its end.
pub(crate) struct Reporter {
    role: Role,
    show: OutputArgs,
    /// Only the first line of the summary, and no notes.
    terse: bool,
    /// Also what is tried.
    verbose: bool,
    /// The data go between two others, and this end is neither.
    between_others: bool,
    /// Standard output carries the data.
    data_on_stdout: bool,
    /// The exit code of a summary that is not verified: on `rfc998` there is nothing to verify.
    unverified: Code,
    /// The connection was open.
    opened: bool,
    /// How long it waits for a peer, if not until it is stopped.
    wait: Option<Duration>,
    /// Files that were skipped, because they exist at the destination.
    passed: u64,
    /// The first file that was left out, and why, for the last line.
    first_left_out: Option<String>,
    silent: bool,
    paused: bool,
    bar: Bar,
    speed: Speed,
    next_json: Duration,
    /// By which others of this user's programs change the transfer.
    control: Option<Server>,
    /// The sums of finished files.
    sums: Arc<Mutex<DigestCount>>,
    /// A file beside the transfer was not written, or not all of it.
    unwritten: bool,
}

/// How many files are through, and the BLAKE3 of the first.
#[derive(Debug, Default)]
struct DigestCount {
    files: u64,
    first: [u8; 32],
}

impl Reporter {
    pub(crate) fn new(role: Role, show: OutputArgs, data_on_stdout: bool) -> Self {
        Self {
            role,
            show,
            terse: false,
            verbose: false,
            between_others: false,
            data_on_stdout,
            unverified: Code::Unverified,
            opened: false,
            wait: None,
            passed: 0,
            first_left_out: None,
            silent: false,
            paused: false,
            bar: Bar::new(!show.quiet && !show.json, show.progress),
            speed: Speed::default(),
            next_json: Duration::ZERO,
            control: None,
            sums: Arc::default(),
            unwritten: false,
        }
    }

    /// Prints for how long it waits for a peer.
    pub(crate) fn waits(&mut self, wait: Option<Duration>) {
        self.wait = wait;
    }

    /// For how long it waits, as a part of a sentence.
    fn patience(&self) -> String {
        self.wait.map_or_else(String::new, |wait| format!(" for {}", units::show_patience(wait)))
    }

    /// Gets each finished file.
    pub(crate) fn hear_files(&self, options: &mut Options) {
        let (json, stream, sums) = (self.show.json, self.stream(), Arc::clone(&self.sums));
        let hash = options.checksums.algorithms;
        options.on_file = Some(OnFile::new(move |file| {
            if json {
                let blake3 = json::hex(&file.blake3);
                let chosen = file.digests.iter().filter(|(one, _)| hash.contains(*one));
                let digests = chosen.map(|(one, digest)| (one.name(), json::hex(digest)));
                let data = json::FileData {
                    digests: digests.collect(),
                    name: Name::new(&file.name),
                    bytes: file.bytes,
                    blake3: &blake3,
                };
                let _ = json::emit(stream, "file", data);
            }
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            if sums.files == 0 {
                sums.first = file.blake3;
            }
            sums.files += 1;
        }));
    }

    /// The BLAKE3 of the file, if it is one alone.
    fn only_sum(&self) -> Option<[u8; 32]> {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        (sums.files == 1).then_some(sums.first)
    }

    /// Forgets the files that were reported: they will be reported again.
    fn forget_files(&self) {
        *self.sums.lock().unwrap_or_else(PoisonError::into_inner) = DigestCount::default();
    }

    /// Others may look at the transfer, and change it, as long as this lives.
    pub(crate) fn serve(&mut self, control: Server) {
        self.control = Some(control);
    }

    /// Prints no more than a copying command does, unless it is to be verbose or to print all of
    /// the summary.
    pub(crate) fn terse(self, verbose: bool, stats: bool) -> Self {
        Self { terse: !verbose && !stats, verbose, ..self }
    }

    /// Reports a transfer between two others, which this end only watches.
    pub(crate) fn between_others(self) -> Self {
        Self { between_others: true, ..self }
    }

    /// Whether people see messages that are neither warnings nor errors.
    pub(crate) fn is_talkative(&self) -> bool {
        !self.show.quiet && !self.show.json
    }

    /// Whether the connection was open.
    pub(crate) fn was_open(&self) -> bool {
        self.opened
    }

    /// A transfer's error, with the facts of its moment.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::transfer(error, self.opened && self.role == Role::Sender)
    }

    /// Something people may like to know.
    pub(crate) fn note(&self, text: &str) {
        if self.is_talkative() && !self.terse {
            self.bar.line(text);
        }
    }

    /// A message of `--verbose`.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose && self.is_talkative() {
            self.bar.line(&printable(&plain(text)));
        }
    }

    /// Which way the data go: over UDP between here and this address, or through ssh.
    pub(crate) fn way(&self, address: Option<&str>) {
        self.detail(&match (address, self.between_others) {
            (Some(address), false) => format!("The data go over UDP, {address} and here."),
            (Some(address), true) => format!("The data go over UDP, straight to {address}."),
            (None, _) => "The data go through ssh.".to_owned(),
        });
        let way = if address.is_some() { "udp" } else { "ssh" };
        self.emit("way", json::WayData { way, address });
    }

    /// Prints the changes of a mirror. They are the result of a dry run.
    pub(crate) fn changes(
        &self,
        changes: &[MirrorChange],
        up: bool,
        dry_run: bool,
    ) -> Result<(), Failure> {
        for change in changes {
            if self.show.json {
                json::event("change", json::ChangeData::new(change, up))?;
                continue;
            }
            let name = printable_bytes(&change.name);
            let slash = if change.directory { "/" } else { "" };
            let from = match &change.kind {
                ChangeKind::Renamed(from) => format!(" (from {})", printable_bytes(from)),
                _ => String::new(),
            };
            let line = format!("{} {name}{slash}{from}\n", change.code(up));
            stdout::write(line.as_bytes()).map_err(|error| Failure::stdout(&error))?;
        }
        if dry_run && changes.is_empty() {
            self.note("Nothing differs.");
        }
        Ok(())
    }

    /// The changes of a mirror beside the transferred files.
    pub(crate) fn mirrored(&self, outcome: &MirrorOutcome, unchanged: u64) {
        self.emit("mirror", json::MirrorData::new(outcome, unchanged));
        let counts = [
            (unchanged, "unchanged"),
            (outcome.renamed, "renamed"),
            (outcome.linked, "linked"),
            (outcome.removed, "removed"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> =
            counts.map(|(count, what)| format!("{} {what}", units::show_count(count))).collect();
        if self.is_talkative() && !counts.is_empty() {
            self.bar.line(&format!("Mirror: {}.", counts.join(", ")));
        }
    }

    /// Counts files that were skipped, because they exist at the destination.
    pub(crate) fn passed_over(&mut self, files: u64) {
        self.passed = files;
    }

    /// The wire proves nothing: says so, and takes a regular end for success.
    pub(crate) fn expect_no_proof(&mut self) {
        self.unverified = Code::Success;
        self.warn(
            "--wire rfc998 is IN THE CLEAR, neither encrypted nor verified: anyone may take part, \
             and anyone on the way may read or change what passes",
        );
    }

    /// Something the user should know that ends nothing.
    pub(crate) fn warn(&mut self, message: &str) {
        let message = printable(&plain(message));
        if self.first_left_out.is_none() {
            self.first_left_out = left_out(&message).map(str::to_owned);
        }
        if self.show.json {
            self.emit("warning", json::WarningData { message: &message });
        } else {
            self.bar.line(&format!("netblt: warning: {message}"));
        }
    }

    /// A file beside the transfer was not written, or not all of it. That is an error, and the
    /// transfer goes on without it.
    pub(crate) fn not_written(&mut self, message: &str) {
        self.unwritten = true;
        let message = printable(&plain(message));
        if self.show.json {
            let code = Code::File.number();
            self.emit("error", json::ErrorData { code, message: &message });
        } else {
            self.bar.line(&format!("netblt: {message}"));
        }
    }

    /// Removes the bar: later messages stay.
    pub(crate) fn clear(&mut self) {
        self.bar.clear();
    }

    /// One event for machines, if they listen.
    pub(crate) fn emit<T: serde::Serialize>(&self, event: &'static str, data: T) {
        if self.show.json {
            // The transfer goes on without it, and `stdout` keeps the failure.
            let _ = json::emit(self.stream(), event, data);
        }
    }

    /// Something that the other side offers; data, for standard output.
    pub(crate) fn offered(&self, name: &[u8], directory: bool, bytes: u64) -> Result<(), Failure> {
        if self.show.json {
            let name = Name::new(name);
            return json::event("offered", json::OfferedData { name, directory, bytes });
        }
        list_one(name, directory, bytes)
    }

    /// How much that is in all.
    pub(crate) fn offered_in_all(&self, files: u64, bytes: u64) {
        let (count, size) = (units::show_count(files), units::show_bytes(bytes));
        self.note(&format!("{count} files, {size}; nothing was received."));
        self.emit("summary", json::OfferedSummaryData::new(files, bytes));
    }

    /// The last words, and the exit code they deserve.
    pub(crate) fn finish(&mut self, result: Result<Summary, Failure>) -> Code {
        self.bar.clear();
        match result {
            Ok(summary) => {
                let code = match summary.verified {
                    true if summary.unexpected > 0 => Code::Unverified,
                    true if summary.skipped > 0 => Code::Partial,
                    true => Code::Success,
                    false => self.unverified,
                };
                if self.is_talkative() {
                    let context = (self.verb(), self.role, self.passed);
                    let lines = summary_lines(&summary, self.only_sum(), context);
                    let shown = if self.terse { 1 } else { lines.len() };
                    lines.iter().take(shown).for_each(|line| self.bar.line(line));
                } else if !summary.verified && code != Code::Success && !self.show.json {
                    self.bar.line("netblt: not verified");
                }
                if summary.skipped > 0 && !self.show.json {
                    self.bar.line(&last_line(&summary, code, self.first_left_out.as_deref()));
                }
                self.emit(
                    "summary",
                    json::SummaryData::new(&summary, role_name(self.role), self.passed),
                );
                if self.show.json && stdout::is_lost() {
                    // The lost output is the result of the transfer.
                    self.bar.line(&headline(&summary, self.verb(), self.passed));
                }
                if code == Code::Success && self.unwritten { Code::File } else { code }
            }
            Err(failure) => {
                // With the data on standard output, events beside them show every failure.
                let silent = failure.silent && !(self.show.json && self.data_on_stdout);
                let failure = Failure { silent, ..failure };
                outcome::complain_on(self.stream(), &failure, self.show.json);
                failure.code
            }
        }
    }

    /// The verb for the files.
    fn verb(&self) -> &'static str {
        match self.role {
            _ if self.between_others => "Copied",
            Role::Sender => "Sent",
            Role::Receiver => "Received",
        }
    }

    fn stream(&self) -> Stream {
        if self.data_on_stdout { Stream::Stderr } else { Stream::Stdout }
    }

    /// The other side's command line: the whole one for eyes, the bare ticket for programs. The
    /// ticket goes into the variable: arguments are for all to see.
    fn show_ticket(&self, ticket: &str) -> io::Result<()> {
        let command = match self.role {
            Role::Sender => format!("{TICKET_VARIABLE}={ticket} netblt receive"),
            Role::Receiver => format!("{TICKET_VARIABLE}={ticket} netblt send FILE..."),
        };
        if self.data_on_stdout {
            self.note("On the other machine, run:");
            return stdout::write_beside(format!("{command}\n").as_bytes());
        }
        let to_terminal = io::stdout().is_terminal();
        if to_terminal {
            self.note("On the other machine, run:\n");
        }
        let shown = Zeroizing::new(format!("{}\n", if to_terminal { &command } else { ticket }));
        stdout::write(shown.as_bytes())?;
        let long = self.patience();
        self.note(&match to_terminal {
            true => format!("\nWaiting for the other side{long}. Ctrl-C stops."),
            false => {
                format!("Waiting for the other side{long}, with the ticket on standard output.")
            }
        });
        Ok(())
    }
}

impl Observer for Reporter {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        match self.stream() {
            Stream::Stdout => check_read(io::stdout(), "standard output")?,
            Stream::Stderr => check_read(io::stderr(), "standard error")?,
        }
        let ticket = Zeroizing::new(ticket.to_string());
        if self.show.json {
            return json::emit(self.stream(), "listening", json::ListeningData { ticket: &ticket });
        }
        self.show_ticket(&ticket)
    }

    fn listening_at(&mut self, address: SocketAddr) {
        let address = address.to_string();
        let long = self.patience();
        self.note(&format!("Waiting for the other side{long} at {address}. Ctrl-C stops."));
        self.emit("listening", json::ListeningAtData { address: &address });
    }

    fn connected(&mut self, peer: &str) {
        self.opened = true;
        let peer = printable(peer);
        self.control.iter().for_each(|control| control.connected(&peer));
        self.note(&format!("Connected to {peer}."));
        self.emit("connected", json::ConnectedData { peer: &peer });
    }

    fn progress(&mut self, progress: &Progress) {
        // Data that were there before took no time.
        let moved = progress.bytes.saturating_sub(progress.kept);
        let rate = self.speed.update(progress.elapsed, moved);
        if std::mem::replace(&mut self.paused, progress.paused) != progress.paused {
            self.note(match progress.paused {
                true => "Paused by `netblt control`.",
                false => "Resumed.",
            });
        }
        self.bar.update(progress, rate, self.silent);
        self.control.iter().for_each(|control| control.progress(progress, rate));
        if self.show.json && progress.elapsed >= self.next_json {
            self.next_json = progress.elapsed + self.show.progress.unwrap_or(JSON_EVERY);
            self.emit("progress", json::ProgressData::new(progress, rate));
        }
    }

    fn silent(&mut self, silent: bool) {
        self.silent = silent;
        self.note(match silent {
            true => "No answer from the other side for 3 s; waiting.",
            false => "The other side answers again.",
        });
        self.emit("silent", json::SilentData { silent });
    }

    fn restarted(&mut self) {
        self.forget_files();
        self.next_json = Duration::ZERO;
        self.speed = Speed::default();
        self.note("The other side was started again; the transfer starts over.");
        self.emit("restarted", json::Empty {});
    }

    fn list_fetched(&mut self) {
        self.forget_files();
        (self.opened, self.silent) = (false, false);
        self.bar.clear();
        self.note("The other side looked at what is offered, and took nothing; still waiting.");
        self.emit("list_fetched", json::Empty {});
    }

    fn refused(&mut self, why: &str) {
        self.forget_files();
        (self.opened, self.silent) = (false, false);
        self.bar.clear();
        let why = printable(why);
        self.note(&format!("The other side refused: {why}; still waiting, the ticket stays good."));
        self.emit("refused", json::RefusedData { why: &why });
    }

    fn warn(&mut self, warning: &Warning) {
        match warning {
            Warning::Unwritten { .. } => self.not_written(&warning.to_string()),
            warning => Self::warn(self, &format!("{warning}{}", hints::on_warning(warning))),
        }
    }
}

/// A file or directory of a list, on standard output.
pub(crate) fn list_one(name: &[u8], directory: bool, bytes: u64) -> Result<(), Failure> {
    let name = printable_bytes(name);
    match directory {
        true => stdout::line(format_args!("{name}/")),
        false => stdout::line(format_args!("{name}\t{bytes}")),
    }
}

/// An error if the output cannot be read: it goes to the null device. Rust opens that, too, in
/// place of a stream that was closed when the program began.
pub(crate) fn check_read(stream: impl AsFd, name: &str) -> io::Result<()> {
    let there = rustix::fs::fstat(stream)?;
    let null = rustix::fs::stat("/dev/null")?;
    if FileType::from_raw_mode(there.st_mode) == FileType::CharacterDevice
        && there.st_rdev == null.st_rdev
    {
        let why = format!("{name} is closed, or leads to /dev/null");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Prints why a transfer may wait, when the address is known.
pub(crate) fn announce(report: &Reporter, rendezvous: &Rendezvous) {
    let to = match rendezvous {
        Rendezvous::Connect(ticket) => ticket.addresses.join(", "),
        Rendezvous::Call { addresses, .. } => addresses.join(", "),
        Rendezvous::Active(address) => address.clone(),
        _ => return,
    };
    report.note(&format!("Connecting to {to} ..."));
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    }
}

fn summary_lines(
    summary: &Summary,
    only: Option<[u8; 32]>,
    (verb, role, passed): (&str, Role, u64),
) -> Vec<String> {
    let mut lines = vec![headline(summary, verb, passed)];
    lines.extend(throughput(summary).map(|throughput| format!("  throughput  {throughput}")));
    lines.extend(packets(summary, role).map(|packets| format!("  packets     {packets}")));
    // No digest was agreed on, so there is none to show.
    if summary.kept > 0 {
        let kept = units::show_bytes(summary.kept);
        lines.push(format!("  resumed     {kept} were there already, and were not sent again"));
    }
    if let Some(all) = json::digest(summary) {
        lines.push(match only {
            Some(sum) if summary.files == 1 => format!("  BLAKE3      {}", json::hex(&sum)),
            _ => {
                let all = &all[..16];
                format!("  digest      {all}... of all; each file's own: --manifest FILE")
            }
        });
    }
    lines.push(format!("  limit       {}", hints::on_limit(summary.limited_by)));
    lines
}

/// The counts of packets; none between two other machines, which report no counts.
fn packets(summary: &Summary, role: Role) -> Option<String> {
    let stats = &summary.stats;
    let (count, done) = match role {
        Role::Sender => (stats.data_packets_sent, "sent"),
        Role::Receiver => (stats.data_packets_received, "received"),
    };
    if count == 0 && summary.bytes > summary.kept {
        return None;
    }
    let mut packets = format!("{} {done}", units::show_count(count));
    let counts = [
        (stats.data_packets_lost, "lost"),
        (stats.data_packets_resent, "resent"),
        (stats.data_packets_duplicate, "duplicate"),
    ];
    // Counts of zero need no explanation.
    let repairs = [(stats.repair_packets_sent, "for repair"), (stats.packets_repaired, "repaired")];
    let repairs = repairs.into_iter().filter(|(count, _)| *count > 0);
    for (count, what) in counts.into_iter().chain(repairs) {
        packets.push_str(&format!(", {} {what}", units::show_count(count)));
    }
    if stats.datagram_bytes > 0 {
        let bytes = units::show_count(stats.datagram_bytes.into());
        packets.push_str(&format!("; datagrams of {bytes} bytes"));
    }
    if let Some(rtt) = stats.rtt {
        packets.push_str(&format!("; round trip {}", units::show_duration(rtt)));
    }
    if summary.streams.len() > 1 {
        packets.push_str(&format!("; {} parallel streams", summary.streams.len()));
    }
    Some(packets)
}

/// The last line of a transfer that left files out.
fn last_line(summary: &Summary, code: Code, first: Option<&str>) -> String {
    let (count, code) = (units::show_count(summary.skipped), code.number());
    match first {
        Some(first) => format!("netblt: {count} left out (exit code {code}), the first: {first}"),
        None => format!("netblt: {count} left out (exit code {code}), named above"),
    }
}

/// The file that a warning calls left out, and why.
fn left_out(warning: &str) -> Option<&str> {
    let words = ["skipped ", "left out "];
    // A warning of an agent begins with its host.
    let rest = warning.split_once(": ").map_or("", |(_, rest)| rest);
    [warning, rest]
        .into_iter()
        .find_map(|text| words.iter().find_map(|word| text.strip_prefix(word)))
}

fn headline(summary: &Summary, done: &str, passed: u64) -> String {
    let files = match summary.files {
        1 => "1 file".to_owned(),
        n => format!("{} files", units::show_count(n)),
    };
    let verdict = if summary.verified { "verified" } else { "NOT verified" };
    let mut size = units::show_bytes(summary.bytes);
    if summary.kept > 0 {
        let kept = units::show_bytes(summary.kept);
        size = format!("{size} ({kept} were there already)");
    }
    let beside = [(summary.skipped, "left out"), (passed, "there already")];
    let beside = beside.iter().filter(|(count, _)| *count > 0);
    let beside: Vec<_> =
        beside.map(|(count, what)| format!("{} {what}", units::show_count(*count))).collect();
    let files = match beside.is_empty() {
        true => files,
        false => format!("{files} ({})", beside.join(", ")),
    };
    format!("{done} {files}, {size} in {}: {verdict}.", units::show_duration(summary.elapsed))
}

/// The speed. For small files the steady state is mostly their names: files are counted instead,
/// and without any bytes nothing else is shown.
fn throughput(summary: &Summary) -> Option<String> {
    let both = |bps| format!("{} ({})", units::show_rate(bps), units::show_byte_rate(bps));
    let per_second = summary.files as f64 / summary.elapsed.as_secs_f64().max(1e-9);
    let mut parts = Vec::new();
    if summary.bytes > 0 {
        parts.push(format!("{} from start to finish", both(summary.real_bps)));
    }
    let is_small = summary.files > 1 && summary.bytes / summary.files < SMALL_FILE;
    if summary.bytes > 0 && !is_small {
        parts.push(format!("{} steady", both(summary.steady_bps)));
    } else if summary.files > 1 {
        parts.push(format!("{} files/s", units::show_count(per_second.round() as u64)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(files: u64, bytes: u64) -> Option<String> {
        let mut summary = Summary::default();
        (summary.bytes, summary.files) = (bytes, files);
        summary.elapsed = Duration::from_secs(2);
        summary.real_bps = bytes as f64 * 4.0;
        summary.steady_bps = 135.8e6;
        throughput(&summary)
    }

    #[test]
    fn the_last_line_names_the_first_file_left_out() {
        let mut summary = Summary::default();
        summary.skipped = 2;
        let first = ["resumed", "host: skipped a: it is a pipe", "skipped b: why"];
        let first = first.iter().find_map(|warning| left_out(warning));
        let line = last_line(&summary, Code::Partial, first);
        assert_eq!(line, "netblt: 2 left out (exit code 23), the first: a: it is a pipe");
        let line = last_line(&summary, Code::Partial, None);
        assert_eq!(line, "netblt: 2 left out (exit code 23), named above");
        assert_eq!(left_out("left out d/x: no room"), Some("d/x: no room"));
        assert_eq!(left_out("the other side says: 1 of them"), None);
    }

    #[test]
    fn throughput_counts_only_transferred_bytes() {
        assert_eq!(shown(200_000, 0).as_deref(), Some("100,000 files/s"));
        assert_eq!(shown(1, 0), None);
        let whole = "40.0 Mbit/s (5.0 MB/s) from start to finish";
        let steady = format!("{whole}, 135.8 Mbit/s (17.0 MB/s) steady");
        assert_eq!(shown(1, 10_000_000), Some(steady));
        assert_eq!(shown(20_000, 10_000_000), Some(format!("{whole}, 10,000 files/s")));
    }
}
