//! The messages between `netblt cp` and its agent beside the transfer: one JSON text each.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netblt::mirror::MirrorSettings;
use netblt::{LimitedBy, Progress, Summary, TransferSettings};
use serde::{Deserialize, Serialize};

use crate::copy::existing::{ExistingPolicy, Piece};
use crate::copy::files_from::FilesFrom;
use crate::exit::Code;

/// The first bytes of an agent, after any output of the login shell.
pub(crate) const BANNER: &[u8] = b"\nnetblt far end\n";
/// The version of the messages. Two programs with different versions do not understand each other.
pub(crate) const PROTOCOL_VERSION: u32 = 9;

/// A message from the client, which the user started, to the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ClientMessage {
    Start(Box<StartRequest>),
    /// Names that `--files-from` lists, before the agent looks for its sources.
    Listed {
        names: FilesFrom,
        last: bool,
    },
    /// To an agent that receives: which files exist there beneath these names?
    ListExisting {
        names: Vec<OsString>,
        last: bool,
    },
    /// To an agent that sends: the files that exist at the client.
    ExistingFiles(Piece),
    /// To an agent that receives from another agent: its address, and the names that it may send.
    Peer {
        udp: Udp,
        names: Vec<OsString>,
        directories: bool,
    },
    Go(DataPath),
    /// A message of a mirror.
    Mirror(netblt::mirror::Message),
}

/// The request for a copy.
#[derive(Serialize, Deserialize)]
pub(crate) struct StartRequest {
    pub(crate) job: AgentTask,
    /// Only list the files.
    pub(crate) dry_run: bool,
    /// The rule for files that exist at the destination.
    pub(crate) existing: ExistingPolicy,
    /// The transfer's secret. It is only ever sent inside ssh.
    pub(crate) secret: [u8; 32],
    /// The client's addresses and ports for probes. None: UDP is not tried.
    pub(crate) udp: Option<Udp>,
    /// The other end is an agent, too. This one has the client's or the agent's role when they
    /// probe for each other.
    pub(crate) third: Option<ThirdPartyRole>,
    /// The settings of both ends.
    pub(crate) settings: TransferSettings,
}

impl std::fmt::Debug for StartRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("job", &self.job).finish_non_exhaustive()
    }
}

/// The role of one of two agents when they probe for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ThirdPartyRole {
    Client,
    Agent,
}

/// The ports and addresses for probes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Udp {
    /// Ports to choose from, both ends included; 0 lets the system choose.
    pub(crate) ports: (u16, u16),
    /// The client's addresses, and its port.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

/// The task of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentTask {
    Receive {
        /// The destination operand.
        target: OsString,
        /// Several sources are to go there.
        several: bool,
        /// The one source is a directory.
        directory: bool,
        /// The sources' names, if they are known. Existing files with these names count as free
        /// space.
        names: Vec<OsString>,
    },
    Send {
        /// The source operands, patterns among them.
        sources: Vec<OsString>,
        /// The name that a single source gets.
        rename: Option<OsString>,
        directories: bool,
        exclude: Vec<OsString>,
        /// The client sends a list of names beneath the one source.
        listed: bool,
        /// Links in directories are followed.
        follow: bool,
        /// A file that changes while it is read is sent as it was read.
        allow_changes: bool,
        /// Changes of permissions.
        chmod: Option<String>,
    },
    /// A mirror whose destination is this directory of the agent.
    MirrorTo { target: OsString, settings: MirrorSettings },
    /// A mirror whose source is this directory of the agent.
    MirrorFrom {
        source: OsString,
        settings: MirrorSettings,
        /// A file that changes while it is read is sent as it was read.
        allow_changes: bool,
        /// Changes of permissions.
        chmod: Option<String>,
    },
}

/// The path of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DataPath {
    /// The agent listens at the port from which it probed.
    Listen,
    /// The agent connects to the client, which listens here.
    Call(SocketAddr),
    /// Datagrams go through ssh.
    Inside,
}

/// A message from the agent to the client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentMessage {
    Hello {
        protocol: u32,
        wire: u8,
        version: String,
    },
    /// The agent is ready for probes at these addresses.
    Ready {
        addresses: Vec<IpAddr>,
        /// Zero if UDP is not to be tried or cannot be.
        port: u16,
        plan: AgentPlan,
    },
    /// The client answered at this address.
    ReachedAt(SocketAddr),
    /// Files that exist at the destination.
    ExistingFiles(Piece),
    /// It listens.
    Listening,
    /// A file that a dry run found.
    Listed {
        name: Vec<u8>,
        directory: bool,
        length: u64,
    },
    Warning(String),
    /// A message of a mirror.
    Mirror(netblt::mirror::Message),
    /// The progress, for a client that only watches.
    Progress(ProgressUpdate),
    /// The result, likewise.
    Summary(TransferResult),
    /// The agent has finished.
    Done(Done),
}

/// The agent's reading of its task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentPlan {
    /// It receives. A single source gets this name, if it is not to keep its own.
    Receive { rename: Option<OsString> },
    /// It sends files with these names.
    Send { names: Vec<OsString> },
}

/// The result at the agent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    /// An exit code.
    pub(crate) code: u8,
    /// Why it failed.
    pub(crate) message: Option<String>,
    /// Whether it only echoes the client's failure.
    pub(crate) echo: bool,
    /// Number of sources that were left out.
    pub(crate) skipped: u64,
    /// Number of files that were skipped because they exist at the destination.
    pub(crate) passed: u64,
}

impl Done {
    /// The exit code. An unknown number breaks the protocol.
    pub(crate) fn exit_code(&self) -> Code {
        Code::of(self.code).unwrap_or(Code::Protocol)
    }
}

/// The progress of a transfer, for a client that only watches.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgressUpdate {
    bytes: u64,
    kept: u64,
    total: Option<u64>,
    file: u64,
    files: Option<u64>,
    name: Vec<u8>,
    elapsed: Duration,
    /// DATA packets that arrived, and that were lost.
    packets: [u64; 2],
    rtt: Option<Duration>,
}

impl ProgressUpdate {
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

/// The result of a transfer, for a client that only watches.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TransferResult {
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
    /// DATA packets that arrived, that arrived twice, that were repaired, and that were lost;
    /// repair packets.
    packets: [u64; 5],
    rtt: Option<Duration>,
}

impl TransferResult {
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
    fn a_watching_end_gets_losses_and_the_round_trip() {
        let mut progress = Progress::default();
        progress.stats.data_packets_received = 900;
        progress.stats.data_packets_lost = 100;
        progress.stats.rtt = Some(Duration::from_millis(80));
        let stats = ProgressUpdate::of(&progress).progress().stats;
        assert_eq!((stats.data_packets_received, stats.data_packets_lost), (900, 100));
        assert_eq!(stats.rtt, progress.stats.rtt);
        let mut summary = Summary::default();
        summary.stats = progress.stats;
        summary.stats.repair_packets_received = 7;
        let stats = TransferResult::of(&summary).summary().stats;
        assert_eq!((stats.data_packets_lost, stats.repair_packets_received), (100, 7));
    }
}
