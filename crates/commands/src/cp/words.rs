//! What the two ends of `netblt cp` say to each other beside the transfer: one JSON text each.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netblt::{Extras, Lanes, LimitedBy, Options, Progress, Repair, Share, Summary};
use netblt_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::args::{self, ResumeName, Sharing};
use crate::cp::listed::Listed;
use crate::cp::standing::{Existing, Piece};

/// What this program's far end says first, after whatever else login shells print.
pub(crate) const MARK: &[u8] = b"\nnetblt far end\n";
/// Raised when the words change; ends that differ here do not understand each other.
pub(crate) const WORDS: u32 = 6;
/// 49 days, in seconds: the protocol has no more (`docs/protocol.md §9`).
const MAX_DEATH_TIMER: u64 = 49 * 86_400;

/// From the near end, which the user started, to the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Start(Start),
    /// Names that `--files-from` lists, before anything is looked for.
    Listed {
        names: Listed,
        last: bool,
    },
    /// To a far end that receives: what stands there beneath these names?
    Look {
        names: Vec<OsString>,
        last: bool,
    },
    /// To a far end that sends: what stands here.
    Standing(Piece),
    /// To a far end that receives from another one: where that is, and what it may send.
    Other {
        udp: Udp,
        names: Vec<OsString>,
        directories: bool,
    },
    Go(Way),
}

/// What is to be done.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) job: Job,
    /// Look and list only.
    pub(crate) dry_run: bool,
    /// What becomes of files that stand at the destination.
    pub(crate) existing: Existing,
    /// The transfer's secret: it is only ever told inside ssh.
    pub(crate) secret: [u8; 32],
    /// Where the far end may look for this one, and with which ports; none: not to be tried.
    pub(crate) udp: Option<Udp>,
    /// The other end is a far end, too, of which this one does the part of the near or the far one
    /// when they look for each other.
    pub(crate) third: Option<Third>,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    /// All or nothing.
    pub(crate) atomic: bool,
    /// What to do with what is left of a copy that was broken off.
    pub(crate) resume: ResumeName,
    /// Owners, extended attributes, access lists: what goes with files.
    pub(crate) extras: (bool, bool, bool),
    /// The sending end does not remember the path.
    #[serde(default)]
    pub(crate) no_memory: bool,
    /// The sending end's repair packets, in percent; 0 for never. It decides if nothing is said.
    #[serde(default)]
    pub(crate) repair: Option<u8>,
    /// Over how many connections, 0 for *auto*; that decides the far end if nothing is said.
    #[serde(default)]
    pub(crate) lanes: Option<u8>,
    /// The receiving end reads files again.
    pub(crate) verify: bool,
    /// Seconds that parts of files are kept.
    pub(crate) keep_partial: u64,
    /// Bits a second, headers included.
    pub(crate) rate: Option<u64>,
    /// How the sending end shares the path.
    #[serde(default)]
    pub(crate) policy: Sharing,
    /// Seconds.
    pub(crate) death_timer: u64,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("job", &self.job).finish_non_exhaustive()
    }
}

impl Start {
    /// What both ends tell the library alike.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        let ceiling = self.rate.map(|bits| Rate::from_bytes_per_second(bits / 8));
        options.policy = self.policy.policy(ceiling);
        options.family = args::family(self.ipv4, self.ipv6);
        options.atomic = self.atomic;
        options.resume = self.resume.into();
        options.verify = self.verify;
        options.memory = !self.no_memory;
        options.repair = match self.repair {
            None => Repair::Auto,
            Some(percent) => Share::percent(percent).map_or(Repair::Never, Repair::Share),
        };
        options.lanes = match self.lanes {
            None => Lanes::default(),
            Some(0) => Lanes::Auto,
            Some(count) => Lanes::Most(count),
        };
        let (owner, xattrs, acls) = self.extras;
        options.extras = Extras { owner, xattrs, acls };
        options.partial_expiry = Duration::from_secs(self.keep_partial);
        options.death_timer = Duration::from_secs(self.death_timer.clamp(1, MAX_DEATH_TIMER));
        options
    }
}

/// What [`Start::repair`] says.
pub(crate) fn repair_percent(repair: Repair) -> Option<u8> {
    match repair {
        Repair::Auto => None,
        Repair::Never => Some(0),
        Repair::Share(share) => Some(share.as_percent()),
    }
}

/// What [`Start::lanes`] says.
pub(crate) fn lane_count(lanes: Lanes) -> u8 {
    match lanes {
        Lanes::Most(count) => count.max(1),
        // There is no other choice.
        _ => 0,
    }
}

/// Which of two far ends looks for the other as a near end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Third {
    Near,
    Far,
}

/// How to look for each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Udp {
    /// Ports to choose from, both ends included; 0 lets the system choose.
    pub(crate) ports: (u16, u16),
    /// The near end's addresses, and its port.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

/// The far end's part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Receive {
        /// The destination operand.
        target: OsString,
        /// Several sources are to go there.
        several: bool,
        /// The one source is a directory.
        directory: bool,
        /// The sources' names, if they are known; what stands there under these counts as room.
        names: Vec<OsString>,
        preserve: bool,
        max_files: u64,
    },
    Send {
        /// The source operands, patterns among them.
        sources: Vec<OsString>,
        /// The name that a single source gets.
        rename: Option<OsString>,
        directories: bool,
        exclude: Vec<OsString>,
        /// Names follow, of which the one source is the directory.
        listed: bool,
        /// Links in directories are followed.
        follow: bool,
        /// A file that changes while it is read is sent as it was read.
        allow_changes: bool,
        /// Changes of permissions.
        chmod: Option<String>,
    },
}

/// How the two ends meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// The far end listens at the port from which it was heard.
    Listen,
    /// It calls the near end, which listens here.
    Call(SocketAddr),
    /// Datagrams go through ssh.
    Inside,
}

/// From the far end to the near end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Hello {
        words: u32,
        wire: u8,
        version: String,
    },
    /// Everything is ready, here is where to look for it.
    Ready {
        addresses: Vec<IpAddr>,
        /// Zero if UDP is not to be tried or cannot be.
        port: u16,
        plan: Plan,
    },
    /// The near end was heard to answer at this address.
    Heard(SocketAddr),
    /// What stands at the destination.
    Standing(Piece),
    /// It listens.
    Listening,
    /// What a dry run found.
    Listed {
        name: Vec<u8>,
        directory: bool,
        length: u64,
    },
    Warning(String),
    /// How far it is, to who only watches.
    Progress(Moved),
    /// How it went, likewise.
    Summary(Came),
    /// It is over at the far end.
    Done(Done),
}

/// How the far end understands its part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// It receives; a single source gets this name if it is not to keep its own.
    Receive { rename: Option<OsString> },
    /// It sends what has these names.
    Send { names: Vec<OsString> },
}

/// How it ended at the far end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    /// An exit code.
    pub(crate) code: u8,
    /// Why it failed.
    pub(crate) message: Option<String>,
    /// Whether that is only what it heard of the near end's failure.
    pub(crate) echo: bool,
    /// Sources left out.
    pub(crate) skipped: u64,
    /// Files passed over, since they stand at the destination.
    pub(crate) passed: u64,
}

/// How far a transfer is, as who only watches hears it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Moved {
    bytes: u64,
    kept: u64,
    total: Option<u64>,
    file: u64,
    files: Option<u64>,
    name: Vec<u8>,
    elapsed: Duration,
    /// DATA packets that came, and that were lost.
    packets: [u64; 2],
    rtt: Option<Duration>,
}

impl Moved {
    pub(crate) fn of(progress: &Progress) -> Self {
        Self {
            bytes: progress.bytes,
            kept: progress.kept,
            total: progress.total,
            file: progress.file,
            files: progress.files,
            name: progress.name.clone(),
            elapsed: progress.elapsed,
            packets: [progress.stats.data_packets_received, progress.stats.data_packets_lost],
            rtt: progress.stats.rtt,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        (progress.bytes, progress.kept, progress.total) = (self.bytes, self.kept, self.total);
        (progress.file, progress.files) = (self.file, self.files);
        (progress.name, progress.elapsed) = (self.name.clone(), self.elapsed);
        let stats = &mut progress.stats;
        [stats.data_packets_received, stats.data_packets_lost] = self.packets;
        stats.rtt = self.rtt;
        progress
    }
}

/// How a transfer went, as who only watches hears it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Came {
    bytes: u64,
    kept: u64,
    files: u64,
    skipped: u64,
    elapsed: Duration,
    real_bps: f64,
    steady_bps: f64,
    verified: bool,
    digest: [u8; 32],
    limited_by: String,
    /// DATA packets that came, came twice, were repaired, and were lost; packets for repair.
    packets: [u64; 5],
    rtt: Option<Duration>,
}

impl Came {
    pub(crate) fn of(summary: &Summary) -> Self {
        let stats = &summary.stats;
        let packets = [
            stats.data_packets_received,
            stats.data_packets_duplicate,
            stats.packets_repaired,
            stats.data_packets_lost,
            stats.repair_packets_received,
        ];
        Self {
            bytes: summary.bytes,
            kept: summary.kept,
            files: summary.files,
            skipped: summary.skipped,
            elapsed: summary.elapsed,
            real_bps: summary.real_bps,
            steady_bps: summary.steady_bps,
            verified: summary.verified,
            digest: summary.digest,
            limited_by: summary.limited_by.name().to_owned(),
            packets,
            rtt: stats.rtt,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let limit = LimitedBy::ALL.iter().find(|limit| limit.name() == self.limited_by);
        let mut summary = Summary::default();
        (summary.bytes, summary.kept) = (self.bytes, self.kept);
        (summary.files, summary.skipped) = (self.files, self.skipped);
        summary.elapsed = self.elapsed;
        (summary.real_bps, summary.steady_bps) = (self.real_bps, self.steady_bps);
        (summary.verified, summary.digest) = (self.verified, self.digest);
        summary.limited_by = limit.copied().unwrap_or_default();
        let [received, duplicate, repaired, lost, repairs] = self.packets;
        let stats = &mut summary.stats;
        (stats.data_packets_lost, stats.repair_packets_received) = (lost, repairs);
        (stats.data_packets_received, stats.data_packets_duplicate) = (received, duplicate);
        (stats.packets_repaired, stats.rtt) = (repaired, self.rtt);
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_watches_hears_of_losses_and_the_round_trip() {
        let mut progress = Progress::default();
        progress.stats.data_packets_received = 900;
        progress.stats.data_packets_lost = 100;
        progress.stats.rtt = Some(Duration::from_millis(80));
        let told = Moved::of(&progress).progress().stats;
        assert_eq!((told.data_packets_received, told.data_packets_lost), (900, 100));
        assert_eq!(told.rtt, progress.stats.rtt);
        let mut summary = Summary::default();
        summary.stats = progress.stats;
        summary.stats.repair_packets_received = 7;
        let told = Came::of(&summary).summary().stats;
        assert_eq!((told.data_packets_lost, told.repair_packets_received), (100, 7));
    }
}
