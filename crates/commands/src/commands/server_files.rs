//! `netblt ls`, `stat`, `mv`, `rm` and `mkdir`: the files on a server, with coreutils' habits.

use std::ffi::OsString;

use netblt::serve::client::RemoveOptions;
use netblt::serve::{Entry, EntryType};
use netblt::{Error, RequestErrorKind};
use netblt_proto::api::printable_bytes;
use serde_json::json;

use crate::exit::{self, Code, Failure};
use crate::json;
use crate::outcome;
use crate::server_client::address::ServerPath;
use crate::server_client::client::WarningsOnly;
use crate::server_client::command::CommonArgs;
use crate::server_client::target::ServerTarget;
use crate::stdout;
use crate::units;

/// List files on a server
///
/// A directory's names, or a file's own, one a line, in the order of their bytes. Names that begin
/// with a dot are shown with -a.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct ListArgs {
    /// netblt://[HOST[:PORT]]/PATH; without a host, where the ticket says
    #[arg(required = true, value_name = "URL")]
    urls: Vec<OsString>,
    /// Permissions, bytes, time (UTC) and name
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Show the status of files and directories on a server
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct StatArgs {
    /// netblt://[HOST[:PORT]]/PATH; without a host, where the ticket says
    #[arg(required = true, value_name = "URL")]
    urls: Vec<OsString>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Give files and directories on a server other names
///
/// Into a directory that exists, or a single one to a new name. A file there is replaced.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct MoveArgs {
    /// netblt://[HOST[:PORT]]/PATH; without a host, where the ticket says
    #[arg(required = true, value_name = "URL")]
    urls: Vec<OsString>,
    /// The target on the same server: a directory, or a name for a single source
    #[arg(required = true, value_name = "DST")]
    target: OsString,
    /// A file that exists is not replaced
    #[arg(short, long)]
    no_clobber: bool,
    /// Print what is moved
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Remove files and directories on a server
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct RemoveArgs {
    /// netblt://[HOST[:PORT]]/PATH; without a host, where the ticket says
    #[arg(required = true, value_name = "URL")]
    urls: Vec<OsString>,
    /// Remove directories with their contents; links in them are not followed
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Empty directories
    #[arg(short, long = "dir")]
    directory: bool,
    /// Missing files are no error
    #[arg(short, long)]
    force: bool,
    /// Print what is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Make directories on a server
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct MakeArgs {
    /// netblt://[HOST[:PORT]]/PATH; without a host, where the ticket says
    #[arg(required = true, value_name = "URL")]
    urls: Vec<OsString>,
    /// Make the directories above them too; existing ones are no error
    #[arg(short, long)]
    parents: bool,
    /// Print what is made
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    common: CommonArgs,
}

fn help() -> String {
    format!(
        "Examples:\n  \
         NETBLT_TICKET=netblt1:... netblt ls -l netblt:///\n  \
         netblt stat --ticket-file t netblt://host/data/big.iso\n  \
         netblt mkdir -p --ticket-file t netblt://host/data/new/of/today\n  \
         netblt mv --ticket-file t netblt://host/new.iso netblt://host/data/\n  \
         netblt rm -r --ticket-file t netblt://host/data/old\n\n{}",
        exit::help(),
    )
}

pub(crate) fn list(args: &ListArgs) -> Code {
    args.common.each(&args.urls, args.urls.len() > 1, |server, served| {
        let mut shown = Ok(());
        let listed = server.list(&served.path, &mut WarningsOnly, |entry| {
            if args.all || !entry.name.starts_with(b".") {
                shown = show(args.common.json, &entry, args.long);
            }
            // The reader of standard output has gone.
            if shown.is_err() { Err(Error::Interrupted) } else { Ok(()) }
        });
        shown?;
        Ok(listed?)
    })
}

pub(crate) fn stat(args: &StatArgs) -> Code {
    args.common.each(&args.urls, args.urls.len() > 1, |server, served| {
        let mut entry = server.stat(&served.path, &mut WarningsOnly)?;
        if entry.name.is_empty() {
            entry.name = b"/".to_vec();
        }
        Ok(show(args.common.json, &entry, true)?)
    })
}

pub(crate) fn remove(args: &RemoveArgs) -> Code {
    args.common.each(&args.urls, args.urls.len() > 1, |server, served| {
        let how = RemoveOptions { empty_directory: args.directory, tree: args.recursive };
        match server.remove(&served.path, how, &mut WarningsOnly) {
            Ok(count) => Ok(args.common.report_count("removed", served, count, args.verbose)?),
            Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) if args.force => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

pub(crate) fn make(args: &MakeArgs) -> Code {
    args.common.each(&args.urls, args.urls.len() > 1, |server, served| {
        let count = server.make_directory(&served.path, args.parents, &mut WarningsOnly)?;
        Ok(args.common.report_count("made", served, count, args.verbose)?)
    })
}

pub(crate) fn rename(args: &MoveArgs) -> Code {
    let (common, target) = (&args.common, &args.target);
    let target = match ServerPath::parse(target) {
        Ok(target) => target,
        Err(failure) => return outcome::end(Err(failure), common.json),
    };
    let mut landing = ServerTarget::new(&target, args.urls.len() > 1);
    common.each(&args.urls, true, |server, served| {
        let to = landing.of(server, served)?;
        server.rename(&served.path, &to, !args.no_clobber, &mut WarningsOnly)?;
        Ok(common.report_result("moved", &served.path, Some(&to), 1, args.verbose)?)
    })
}

/// A line for an entry, or its object.
fn show(json_wanted: bool, entry: &Entry, long: bool) -> Result<(), Failure> {
    if json_wanted {
        let (sort, time) = (word(entry.sort), entry.modified);
        let mut data = json!({
            "kind": sort, "bytes": entry.length,
            "modified_seconds": time.0, "modified_nanos": time.1,
            "mode": format!("{:04o}", entry.mode),
        });
        json::put_path(&mut data, "name", &entry.name);
        return json::event("entry", data);
    }
    let (name, slash) =
        (printable_bytes(&entry.name), if entry.sort == EntryType::Directory { "/" } else { "" });
    let slash = if name == "/" { "" } else { slash };
    if !long {
        return stdout::line(format_args!("{name}{slash}"));
    }
    let (mode, time) = (permissions(entry), units::show_time(entry.modified.0));
    stdout::line(format_args!("{mode} {:>15} {time} {name}{slash}", entry.length))
}

fn word(sort: EntryType) -> &'static str {
    match sort {
        EntryType::File => "file",
        EntryType::Directory => "directory",
        EntryType::Link => "link",
        _ => "other",
    }
}

/// As ls shows them.
fn permissions(entry: &Entry) -> String {
    let kind = match entry.sort {
        EntryType::File => '-',
        EntryType::Directory => 'd',
        EntryType::Link => 'l',
        _ => '?',
    };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let bits = bits.map(|(at, c)| if entry.mode >> at & 1 == 1 { c } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}
