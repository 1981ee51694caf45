//! `netblt ls`, `stat`, `mv`, `rm` and `mkdir`, and `cp` on one server: what there is on it, with
//! coreutils' habits.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use netblt::serve::client::{Client, RemoveOptions};
use netblt::serve::{Entry, EntryType};
use netblt::{Cancel, Error, Overwrite, RequestErrorKind};
use netblt_proto::api::printable_bytes;
use serde_json::json;

use crate::copy::server::sources::{expand, means_contents, wanted};
use crate::exit::{self, Code, Failure};
use crate::host::Host;
use crate::json;
use crate::reporter;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{ServerArgs, ServerConnection, WarningsOnly, server};
use crate::stdout;
use crate::{hardening, signals, units};

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

/// Their common options.
#[derive(clap::Args, Debug)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) line: ServerArgs,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    pub(crate) json: bool,
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
                shown = args.common.show(&entry, args.long);
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
        Ok(args.common.show(&entry, true)?)
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
    let mut landing = ServerTarget::new(target, args.urls.len() > 1);
    common.each(&args.urls, true, |server, served| {
        let to = landing.of(server, served)?;
        server.rename(&served.path, &to, !args.no_clobber, &mut WarningsOnly)?;
        Ok(common.report_result("moved", &served.path, Some(&to), 1, args.verbose)?)
    })
}

/// How `cp` copies on a server.
pub(crate) struct CopyThere {
    pub(crate) common: CommonArgs,
    pub(crate) trees: bool,
    pub(crate) preserve: bool,
    pub(crate) verbose: bool,
}

impl CopyThere {
    /// Copies files on a server to another place on it.
    pub(crate) fn run(&self, urls: &[OsString], target: &OsStr) -> Code {
        let mut landing = ServerTarget::new(target, urls.len() > 1);
        self.common.each(urls, true, |server, served| {
            let mut options = server.options.clone();
            (options.overwrite, options.preserve) = (Overwrite::Always, self.preserve);
            let server = Client { options: &options, ..*server };
            let apart = self.trees && means_contents(&served.path) && landing.is_one(&server)?;
            let sources = expand(&server, served, apart)?;
            if sources.is_empty() && served.pattern.is_some() {
                return Err(Failure::new(Code::Partial, "nothing matches").into());
            }
            landing.several |= sources.len() > 1;
            sources.iter().try_for_each(|source| self.one(&server, source, &mut landing))
        })
    }

    fn one(
        &self,
        server: &Client<'_>,
        source: &ServerPath,
        landing: &mut ServerTarget<'_>,
    ) -> Result<(), CommandError> {
        if let Err(why) = wanted(server, &source.path, self.trees)? {
            return Err(Failure::new(Code::Partial, format!("skipped: {why}")).into());
        }
        let to = landing.of(server, source)?;
        let count = server.copy(&source.path, &to, self.trees, &mut WarningsOnly)?;
        let common = &self.common;
        Ok(common.report_result("copied", &source.path, Some(&to), count, self.verbose)?)
    }
}

/// The target on a server.
struct ServerTarget<'a> {
    target: &'a OsStr,
    several: bool,
    /// Whether the target is a directory, once the server was asked.
    directory: Option<bool>,
}

impl<'a> ServerTarget<'a> {
    fn new(target: &'a OsStr, several: bool) -> Self {
        Self { target, several, directory: None }
    }

    /// Whether it is a directory.
    fn is_one(&mut self, server: &Client<'_>) -> Result<bool, CommandError> {
        let target = ServerPath::parse(self.target)?;
        let directory = match self.directory {
            Some(known) => known,
            None => match server.stat(&target.path, &mut WarningsOnly) {
                Ok(entry) => entry.sort == EntryType::Directory,
                Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) => false,
                // A client that may not look gives the whole name.
                Err(Error::Denied { what: RequestErrorKind::Forbidden, .. }) if !self.several => {
                    false
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.directory = Some(directory);
        Ok(directory)
    }

    /// Into a directory that exists, or as the single thing of a name.
    fn of(&mut self, server: &Client<'_>, served: &ServerPath) -> Result<Vec<u8>, CommandError> {
        let target = ServerPath::parse(self.target)?;
        if target.host != served.host {
            return Err(Failure::usage("the other one is on another server").into());
        }
        if self.is_one(server)? {
            return Ok(joined(&target.path, served.name().as_bytes()));
        }
        if self.several {
            return Err(Failure::new(
                Code::File,
                "the target of several sources is not a directory",
            )
            .into());
        }
        Ok(target.path)
    }
}

/// The error of a command: the server's, or one of this side.
enum CommandError {
    There(Error),
    Here(Failure),
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::There(error)
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self::Here(failure)
    }
}

impl CommonArgs {
    /// Does it for every address. Failures are named, and the others are done. The exit code is
    /// that of the first failure. With `often`, all requests share a session.
    fn each(
        &self,
        urls: &[OsString],
        often: bool,
        mut act: impl FnMut(&Client<'_>, &ServerPath) -> Result<(), CommandError>,
    ) -> Code {
        let cancel = Cancel::default();
        hardening::keep();
        let options = self.line.options();
        let mut code = Code::Success;
        let mut met: Option<(Option<Host>, ServerConnection)> = None;
        for (at, url) in urls.iter().enumerate() {
            let done = ServerPath::parse(url).and_then(|served| {
                if at == 0 {
                    signals::watch(&cancel, false)?;
                }
                if met.as_ref().is_none_or(|(host, _)| *host != served.host) {
                    let meeting = self.line.meet(&served, &options, &cancel)?;
                    met = Some((served.host.clone(), meeting));
                }
                let Some((_, meeting)) = &met else { return Ok(()) };
                let failure = match act(&server(meeting, &options, &cancel, often), &served) {
                    Ok(()) => return Ok(()),
                    Err(CommandError::Here(failure)) => failure,
                    Err(CommandError::There(error)) => {
                        Failure::transfer(&meeting.explain(error, &options, &cancel), false)
                    }
                };
                let message = format!("{}: {}", served.shown(), failure.message);
                Err(Failure { message, ..failure })
            });
            let Err(failure) = done else { continue };
            reporter::complain(&failure, self.json);
            code = if code == Code::Success { failure.code } else { code };
            // Standard output that cannot be written is silent here.
            if failure.silent || matches!(failure.code, Code::Signal | Code::Connect | Code::Usage)
            {
                break;
            }
        }
        code
    }

    fn show(&self, entry: &Entry, long: bool) -> Result<(), Failure> {
        if self.json {
            let (sort, time) = (word(entry.sort), entry.modified);
            let mut data = json!({
                "kind": sort, "bytes": entry.length,
                "modified_seconds": time.0, "modified_nanos": time.1,
                "mode": format!("{:04o}", entry.mode),
            });
            json::put_path(&mut data, "name", &entry.name);
            return stdout::event("entry", data);
        }
        let (name, slash) = (
            printable_bytes(&entry.name),
            if entry.sort == EntryType::Directory { "/" } else { "" },
        );
        let slash = if name == "/" { "" } else { slash };
        if !long {
            return stdout::line(format_args!("{name}{slash}"));
        }
        let (mode, time) = (permissions(entry), units::show_time(entry.modified.0));
        stdout::line(format_args!("{mode} {:>15} {time} {name}{slash}", entry.length))
    }

    fn report_count(
        &self,
        what: &'static str,
        served: &ServerPath,
        count: u64,
        verbose: bool,
    ) -> Result<(), Failure> {
        self.report_result(what, &served.path, None, count, verbose)
    }

    fn report_result(
        &self,
        what: &'static str,
        path: &[u8],
        to: Option<&[u8]>,
        count: u64,
        verbose: bool,
    ) -> Result<(), Failure> {
        if self.json {
            let mut data = json!({ "count": count });
            json::put_path(&mut data, "path", path);
            to.iter().for_each(|to| json::put_path(&mut data, "to", to));
            return stdout::event(what, data);
        }
        if !verbose {
            return Ok(());
        }
        let more = if count == 1 { String::new() } else { format!(" ({count} in all)") };
        let to = to.map_or_else(String::new, |to| format!(" to {}", printable_bytes(to)));
        stdout::line(format_args!("{what} {}{to}{more}", printable_bytes(path)))
    }
}

/// A name in a directory, which may be the root, or end with slashes.
fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let end = directory.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let (directory, slash) = (&directory[..end], if end > 0 { &b"/"[..] } else { b"" });
    [directory, slash, name].concat()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_has_two_slashes() {
        for (directory, path) in
            [("", "x"), ("/", "x"), ("d", "d/x"), ("d//", "d/x"), ("/d", "/d/x")]
        {
            assert_eq!(joined(directory.as_bytes(), b"x"), path.as_bytes(), "{directory}");
        }
    }
}
