//! The options of `netblt cp` for the copying itself.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use netblt::{Family, FecPolicy, ParallelStreams, TransferSettings};
use netblt_proto::limits::MAX_FILES;
use netblt_proto::units::Rate;

use crate::args::{self, ResumeName, Sharing};
use crate::checksum_args::ChecksumArgs;
use crate::copy::existing::ExistingPolicy;
use crate::selection_args::SelectionArgs;
use crate::units;

/// How to copy.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories with their contents
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep permissions and times of modification
    #[arg(short, long)]
    pub(crate) preserve: bool,
    #[command(flatten)]
    pub(crate) extra: args::ExtraArgs,
    /// Only list what would be copied
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// All or nothing: what cannot be read or stored ends the copy instead of being left out
    #[arg(long)]
    pub(crate) atomic: bool,
    /// What to do with the parts of a broken transfer
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ResumeName::Auto)]
    pub(crate) resume: ResumeName,
    /// How long parts of files are kept so that a transfer can be resumed [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) keep_partial: Option<Duration>,
    /// Read every file back from the disk before it gets its name
    ///
    /// Files that differ from the received data are named, left out and not kept (exit code 23).
    /// With --atomic nothing is kept (exit code 65). The page cache of the file is dropped first,
    /// so that the disk itself is read, unless the file system is in memory. Parts of a broken
    /// transfer are read again, too.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Neither use nor save the rate of the path: every copy starts from scratch
    ///
    /// The sending side keeps the addresses, the rate and the round trip of the path for a day in
    /// ~/.cache/netblt/paths, and starts the next copy with half of that rate.
    #[arg(long)]
    pub(crate) no_path_cache: bool,
    /// Forward error correction by coded packets: auto, never, or a share of the data as in 5%
    ///
    /// See `netblt send --help`.
    #[arg(long = "fec", value_name = "WHEN", value_parser = args::repair)]
    pub(crate) repair: Option<FecPolicy>,
    #[command(flatten)]
    pub(crate) choice: SelectionArgs,
    /// How it shares the path with other traffic
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = Sharing::Fair)]
    pub(crate) policy: Sharing,
    /// Never faster than this, a second: in bits (200Mbit) or bytes (25MB), headers included
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: Option<Rate>,
    /// The same in Kbit/s, as scp has it
    #[arg(short = 'l', value_name = "KBIT", value_parser = units::number::<u32>(1, u32::MAX.into()),
          conflicts_with = "rate")]
    pub(crate) limit: Option<u32>,
    /// The same, where a number without a unit is KiB/s, as rsync has it
    #[arg(long, value_name = "RATE", value_parser = bwlimit,
          conflicts_with_all = ["rate", "limit"])]
    pub(crate) bwlimit: Option<Rate>,
    /// UDP ports to use, on both machines, such as 4000 or 4000-4010 [default: any]
    #[arg(long, value_name = "PORT[-PORT]", value_parser = ports)]
    pub(crate) udp_port: Option<(u16, u16)>,
    /// Parallel streams, 1 to 32, or "auto" [default: auto]
    ///
    /// See `netblt send --help`. For "auto", the machine with fewer processors decides, and a
    /// server's own limit counts. All but the first use other local UDP ports than --udp-port has,
    /// and go to one of its ports. Blocked streams are given up, and data through ssh use only
    /// one.
    #[arg(long, value_name = "N", value_parser = args::streams)]
    pub(crate) streams: Option<ParallelStreams>,
    /// Whether data go through ssh
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Fallback::Auto)]
    pub(crate) fallback: Fallback,
    /// How long a silent other side is waited for (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    pub(crate) death_timer: Duration,
    /// Take no more files and directories than this, of each source that a server sends (to
    /// 16777216); 256 bytes of memory for each
    /// [default: 2097152]
    #[arg(long, value_name = "N", value_parser = units::number::<u64>(1, MAX_FILES))]
    pub(crate) max_files: Option<u64>,
    #[command(flatten)]
    pub(crate) checksums: ChecksumArgs,
    /// Store the digests of received files in their attributes
    ///
    /// They are those of --hash, else SHA-256, in user.shatag.ALGORITHM, and in user.shatag.ts is
    /// the time of modification for which they hold: cshatag checks them. Where they cannot be
    /// stored a warning says so, and the exit code is 23.
    #[arg(long)]
    pub(crate) store_hash: bool,
    /// Write trace events to FILE (JSON lines)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    pub(crate) ipv6: bool,
}

/// What to do with files that exist at the destination.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ExistingArgs {
    /// Leave files alone that exist at the destination; they are not sent
    #[arg(long, conflicts_with = "expect")]
    ignore_existing: bool,
    /// Leave files alone that are newer at the destination, or of the same time and size
    #[arg(short, long, conflicts_with = "expect")]
    update: bool,
    /// With --update, times that differ by no more than this are the same (a number is seconds)
    ///
    /// Times within the resolution of the destination's file system are the same anyway: two
    /// seconds on FAT, one through sshfs.
    #[arg(long, value_name = "TIME", requires = "update", value_parser = window)]
    modify_window: Option<Duration>,
}

impl ExistingArgs {
    /// The rule for files that exist at the destination.
    pub(crate) fn policy(&self) -> ExistingPolicy {
        match (self.ignore_existing, self.update) {
            (true, _) => ExistingPolicy::Keep,
            (false, true) => ExistingPolicy::KeepNewer(self.modify_window.unwrap_or_default()),
            (false, false) => ExistingPolicy::Replace,
        }
    }
}

/// Whether data go through ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fallback {
    /// Where UDP does not pass
    Auto,
    /// Never: without UDP the copy fails
    Never,
    /// Always: UDP is not tried
    Always,
}

impl CopyArgs {
    /// The highest rate, from `--rate`, `--bwlimit` or `-l`.
    pub(crate) fn ceiling(&self) -> Option<Rate> {
        let limit = |kbit| Rate::from_bytes_per_second(u64::from(kbit) * 1000 / 8);
        self.rate.or(self.bwlimit).or_else(|| self.limit.map(limit))
    }

    /// The settings of the transfer, on every route but within one server, where nothing is sent.
    pub(crate) fn settings(&self, existing: ExistingPolicy) -> TransferSettings {
        let mut settings = TransferSettings::default();
        settings.family = self.family();
        settings.death_timer = self.death_timer;
        settings.policy = self.policy.policy(self.ceiling());
        settings.path_cache = !self.no_path_cache;
        settings.fec = self.repair.unwrap_or(settings.fec);
        settings.streams = self.streams.unwrap_or(settings.streams);
        settings.overwrite = existing.overwrite();
        settings.atomic = self.atomic;
        settings.resume = self.resume.into();
        settings.verify = self.verify;
        settings.partial_expiry = self.keep_partial.unwrap_or(settings.partial_expiry);
        (settings.preserve, settings.keep_times) = (self.preserve, self.preserve);
        settings.extras = self.extra.into();
        settings.max_files = self.max_files.unwrap_or(settings.max_files);
        settings
    }

    /// Ports to choose from; 0 lets the system choose.
    pub(crate) fn ports(&self) -> (u16, u16) {
        self.udp_port.unwrap_or((0, 0))
    }

    /// The IP versions that may be used.
    pub(crate) fn family(&self) -> Family {
        args::family(self.ipv4, self.ipv6)
    }

    /// Whether an address is of a version that may be used.
    pub(crate) fn fits(&self, ip: &IpAddr) -> bool {
        if ip.is_ipv4() { !self.ipv6 } else { !self.ipv4 }
    }
}

/// As rsync reads it: bare numbers are seconds.
pub(crate) fn window(value: &str) -> Result<Duration, String> {
    match value.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => units::duration(value),
    }
}

/// As rsync reads it: bare numbers are KiB/s.
fn bwlimit(value: &str) -> Result<Rate, String> {
    match value.parse::<u64>() {
        Ok(kib) => kib
            .checked_mul(1024)
            .map(Rate::from_bytes_per_second)
            .filter(|rate| *rate != Rate::ZERO)
            .ok_or_else(|| "a rate is greater than zero".to_owned()),
        Err(_) => units::rate(value),
    }
}

fn ports(value: &str) -> Result<(u16, u16), String> {
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err("a port is a number from 1 to 65535, and a range has its lower end first".into()),
    }
}
