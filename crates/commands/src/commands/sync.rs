//! `netblt sync`: makes a directory a mirror of one on another machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args as _};
use netblt::mirror::{DeleteTime, MaxDelete, MirrorSettings};
use netblt::{Cancel, Options, Summary};
use netblt_proto::config::Role;

use crate::args::{OutputArgs, PageArgs, Sharing, check_repair};
use crate::commands::html_report::HtmlReport;
use crate::commands::send::AGGRESSIVE;
use crate::copy::existing::ExistingPolicy;
use crate::copy::filter_rules::FilterRules;
use crate::copy::given::GivenOptions;
use crate::copy::job::CopyJob;
use crate::copy::options::{CopyArgs, window};
use crate::copy::plan::CopyPlan;
use crate::copy::routes;
use crate::copy::ssh::client;
use crate::copy::ssh::command::SshOptions;
use crate::exit::{self, Code, Failure};
use crate::reporter::Reporter;
use crate::server_client::client::Credentials;
use crate::{hardening, signals};

/// Make a directory the mirror of one on another machine
///
/// As rsync -rlptH: only what differs is sent, compared by size and time, and the mirror gets the
/// permissions, times, links and hard links of the source. DST itself becomes like SRC, with or
/// without a slash at its end (rsync's SRC/ DST/). Nothing is removed without --delete. Files that
/// were moved are renamed there and not sent again. A mirror that was interrupted is right when it
/// is run again.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// The directory to mirror: PATH here, or [USER@]HOST:PATH there
    #[arg(required = true, value_name = "SRC")]
    source: OsString,
    /// The directory that becomes its mirror, on the other one of the two machines. It is made if
    /// it does not exist
    #[arg(required = true, value_name = "DST")]
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    mirror: MirrorArgs,
    #[command(flatten)]
    ssh: SshOptions,
    /// Print what is tried, and all of the summary
    #[arg(short, long, conflicts_with = "quiet", help_heading = "Output")]
    verbose: bool,
    /// Print all of the summary
    #[arg(long, help_heading = "Output")]
    stats: bool,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// What is compared, and what is removed.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Mirror")]
struct MirrorArgs {
    /// Remove what SRC does not have, when everything has arrived
    ///
    /// Nothing is removed if some of SRC could not be read, or if a file did not arrive. Excluded
    /// entries stay, see --delete-excluded.
    #[arg(long, alias = "delete-after")]
    delete: bool,
    /// The same before the transfer, which needs less space on the disk of DST
    #[arg(long, conflicts_with = "delete")]
    delete_before: bool,
    /// As --delete, and remove excluded entries of DST, too
    #[arg(long)]
    delete_excluded: bool,
    /// Refuse to remove more: a number of files, links and directories, or a share of those in DST
    ///
    /// The default also allows ten entries of a small tree, but nothing if SRC is empty. A refused
    /// mirror changes nothing (exit code 25).
    #[arg(long, value_name = "N|N%", default_value = "10%", value_parser = max_delete)]
    max_delete: MaxDelete,
    /// Keep files that are removed or replaced in DIR, a directory in DST, which is no part of the
    /// mirror
    #[arg(long, value_name = "DIR", value_parser = backup_dir)]
    backup_dir: Option<String>,
    /// Include names that match PATTERN, against a later --exclude
    ///
    /// The first of all --include and --exclude options that matches decides, as in rsync. A
    /// PATTERN that starts with a slash begins at SRC. Without a slash, it is compared with the
    /// last part of a name. A slash at its end means directories only. `*` matches no slash, `**`
    /// does, and dir/*** is a directory with all in it.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<OsString>,
    /// The patterns in FILE, one a line, as --include
    #[arg(long, value_name = "FILE")]
    include_from: Vec<PathBuf>,
    /// The patterns in FILE, one a line, as --exclude
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Compare files by their content, and not by their times
    ///
    /// Both machines read all files and compute BLAKE3. The digests are kept in
    /// ~/.cache/netblt/digests, and a file whose inode, size and times are the same is not read
    /// again.
    #[arg(short, long)]
    checksum: bool,
    /// Times that differ by no more than this are the same (a number is seconds)
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = window)]
    modify_window: Duration,
    /// Print a line for each change, as rsync does
    #[arg(long)]
    itemize_changes: bool,
}

impl MirrorArgs {
    fn settings(&self, copy: &CopyArgs, filter: FilterRules) -> MirrorSettings {
        let mut settings = MirrorSettings::default();
        settings.filter = filter.0;
        settings.checksum = self.checksum;
        settings.modify_window = self.modify_window;
        settings.follow = copy.choice.copy_links;
        settings.extras = copy.extra.into();
        settings.delete = match (self.delete || self.delete_excluded, self.delete_before) {
            (_, true) => Some(DeleteTime::Before),
            (true, false) => Some(DeleteTime::After),
            (false, false) => None,
        };
        settings.delete_excluded = self.delete_excluded;
        settings.max_delete = self.max_delete;
        settings.backup_dir = self.backup_dir.clone().map(String::into_bytes);
        settings.dry_run = copy.dry_run;
        settings.itemize = self.itemize_changes;
        settings
    }
}

fn max_delete(value: &str) -> Result<MaxDelete, String> {
    match value {
        "10%" => Ok(MaxDelete::Tenth),
        value => value.parse().map_err(str::to_owned),
    }
}

fn backup_dir(value: &str) -> Result<String, String> {
    let name = value.trim_end_matches('/');
    let inside = !name.is_empty() && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    match inside {
        true => Ok(name.to_owned()),
        false => Err("it is a directory in DST, such as .old or old/today".to_owned()),
    }
}

/// Options of `cp` that mean nothing for a mirror, with the reasons.
const REFUSED: &[(&str, &str)] = &[
    ("--files-from", "a mirror has all of SRC; --include and --exclude select from it"),
    ("--expect", "only what differs is sent, and such a list is about all files"),
    ("--atomic", "a mirror replaces each file by itself, and is right when it is run again"),
];

/// Options that a mirror always has.
const ALWAYS: &[&str] = &["recursive", "preserve"];

impl Args {
    fn plan(&self, given: &GivenOptions) -> Result<CopyPlan, Failure> {
        if let Some((option, why)) = REFUSED.iter().find(|(option, _)| given.has(option)) {
            return Err(Failure::usage(format!("{option} means nothing for a mirror: {why}")));
        }
        let plan = CopyPlan::of(std::slice::from_ref(&self.source), &self.target)?;
        let why = match &plan {
            CopyPlan::SshUp { .. } | CopyPlan::SshDown { .. } => None,
            CopyPlan::Hosts { .. } => Some("run netblt sync on one of the two machines"),
            CopyPlan::ServerUp { .. }
            | CopyPlan::ServerDown { .. }
            | CopyPlan::Servers { .. }
            | CopyPlan::Within { .. } => {
                Some("a server neither compares nor removes files by itself; one is HOST:PATH")
            }
        };
        if let Some(why) = why {
            return Err(Failure::usage(format!("there is no mirror on this route: {why}")));
        }
        routes::check(plan.route(), given)?;
        self.ssh.check()?;
        check_repair(self.copy.repair, self.copy.policy == Sharing::Background)?;
        Ok(plan)
    }

    fn reporter(&self, plan: Option<&CopyPlan>) -> Reporter {
        let role = match plan {
            Some(CopyPlan::SshDown { .. }) => Role::Receiver,
            _ => Role::Sender,
        };
        Reporter::new(role, self.show, false).terse(self.verbose, self.stats)
    }
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt sync photos host:backup/photos           what is new or changed\n  \
         netblt sync --delete host:data /mirror/data     and what is gone\n  \
         netblt sync --delete -n photos host:backup      only list it\n  \
         netblt sync --exclude '*.o' --exclude /target/ src host:src\n\n{}",
        exit::help(),
    )
}

/// The options, which of them were given, and the rules in their order.
#[derive(Debug)]
pub(crate) struct SyncCommandLine {
    args: Args,
    given: GivenOptions,
    filter: Result<FilterRules, String>,
}

/// The options of `cp`, as they are for a mirror.
fn adapted(command: clap::Command) -> clap::Command {
    let mut command = Args::augment_args(command);
    for hidden in ALWAYS.iter().chain(&["files_from", "from0", "atomic", "expect"]) {
        command = command.mut_arg(hidden, |argument| argument.hide(true));
    }
    command
        .mut_arg("exclude", |argument| {
            argument
                .help("Exclude names that match PATTERN; see --include")
                .long_help("Exclude names that match PATTERN; see --include")
                .help_heading("Mirror")
        })
        .mut_arg("dry_run", |argument| {
            argument.help("Only list what would change").long_help("Only list what would change")
        })
}

impl clap::FromArgMatches for SyncCommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = Args::augment_args(clap::Command::new("sync"));
        let given = GivenOptions::of(command.get_arguments(), matches);
        let filter = FilterRules::of(matches);
        Ok(Self { args: Args::from_arg_matches(matches)?, given, filter })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for SyncCommandLine {
    fn augment_args(command: clap::Command) -> clap::Command {
        adapted(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        adapted(command)
    }
}

pub(crate) fn run(SyncCommandLine { args, given, filter }: &SyncCommandLine) -> Code {
    let plan = args.plan(given);
    let mut report = args.reporter(plan.as_ref().ok());
    let filter = filter.clone().map_err(Failure::usage);
    let mirrored = plan.and_then(|plan| mirror(args, plan, filter?, &mut report));
    match mirrored.transpose() {
        // A dry run has printed its list.
        None => Code::Success,
        Some(mirrored) => report.finish(mirrored),
    }
}

/// Mirrors; nothing is returned by a dry run.
fn mirror(
    args: &Args,
    plan: CopyPlan,
    filter: FilterRules,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    if args.copy.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, report.is_talkative() && !args.copy.dry_run)?;
    let mut options = Options::default();
    options.settings = args.copy.settings(ExistingPolicy::Replace);
    (options.settings.preserve, options.settings.keep_times) = (true, true);
    options.trace.clone_from(&args.copy.trace);
    args.copy.checksums.apply(&mut options, args.show.json, args.copy.store_hash)?;
    let wanted = args.page.report.as_deref().filter(|_| !args.copy.dry_run);
    let (source, target) = (args.source.to_string_lossy(), args.target.to_string_lossy());
    let title = format!("netblt sync {source} {target}");
    let page = HtmlReport::wanted(wanted, title, &mut options)?;
    let settings = args.mirror.settings(&args.copy, filter);
    let job = CopyJob {
        args: &args.copy,
        existing: ExistingPolicy::Replace,
        ssh: &args.ssh,
        credentials: &Credentials::default(),
        quiet: args.show.quiet,
        options: &options,
        cancel: &cancel,
    };
    let mirrored = match plan {
        CopyPlan::SshUp { host, target, .. } => {
            client::mirror_up(job, &host, (&args.source, target), &settings, report)
        }
        CopyPlan::SshDown { host, mut sources, target } => {
            let source = sources.pop().unwrap_or_default();
            client::mirror_down(job, &host, (source, &target), &settings, report)
        }
        _ => Err(Failure::usage("there is no mirror on this route")),
    };
    page.into_iter().for_each(|page| page.write(report));
    mirrored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_in_the_destination() {
        assert_eq!(backup_dir("old/today/"), Ok("old/today".to_owned()));
        for bad in ["", "/", "/old", "../old", "a/../b", "./old", "a//b"] {
            assert!(backup_dir(bad).is_err(), "{bad}");
        }
    }
}
