//! A copy from here to a server.

use std::ffi::OsString;

use netblt::serve::EntryType;
use netblt::{Error, Options, RequestErrorKind, Selection, Summary};

use crate::copy::job::CopyJob;
use crate::copy::operands::Sources;
use crate::copy::server::servers::{named, options, patiently};
use crate::copy::server::totals::listed;
use crate::exit::{Code, Failure};
use crate::reporter::{self, Reporter};
use crate::selection_args;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{ServerConnection, WarningsOnly, server};

/// Performs the copy. A dry run returns nothing.
pub(crate) fn copy(
    job: CopyJob<'_>,
    sources: &[OsString],
    target: &ServerPath,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let mut options = options(job)?;
    report.hear_files(&mut options);
    let meeting = job.credentials.meet(target, job.identity(), &options, job.cancel)?;
    let upload = Upload { job, sources, target, meeting: &meeting, options: &options };
    if job.args.dry_run {
        let (selection, skipped) = upload.selection(report)?;
        let found = netblt::preview(selection, job.cancel);
        let found = found.map_err(|error| report.failure(&error))?;
        let mut offered = found.offered.iter();
        offered.try_for_each(|one| report.offered(&one.name, one.directory, one.length))?;
        return listed(skipped);
    }
    reporter::announce(report, &meeting.rendezvous);
    patiently(job.cancel, report, |report| upload.copy(report)).map(Some)
}

struct Upload<'a> {
    job: CopyJob<'a>,
    sources: &'a [OsString],
    target: &'a ServerPath,
    meeting: &'a ServerConnection,
    options: &'a Options,
}

impl Upload<'_> {
    fn copy(&self, report: &mut Reporter) -> Result<Summary, Failure> {
        let (selection, skipped) = self.selection(report)?;
        let server = server(self.meeting, self.options, self.job.cancel, true);
        let sent = server.put(selection, &self.target.path, report);
        let mut summary = sent.map_err(|error| self.refused(error, report))?;
        summary.skipped += skipped;
        Ok(summary)
    }

    /// The sources, and how many of them cannot be sent, which are reported.
    fn selection(&self, report: &mut Reporter) -> Result<(Selection, u64), Failure> {
        let cannot = |text| Failure::new(Code::File, text);
        let args = self.job.args;
        let found = Sources::look(self.sources, args.recursive, false).map_err(cannot)?;
        found.skipped.iter().for_each(|text| report.warn(&format!("skipped {text}")));
        if found.sources.is_empty() {
            return Err(Failure::new(Code::Partial, "there is nothing to copy"));
        }
        let skipped = found.skipped.len() as u64;
        let whole = found.is_contents() && !self.lands_in_directory(report)?;
        let items = if whole { found.whole() } else { found.items(None).map_err(cannot)? };
        let selection = Selection {
            items: items.named,
            contents: items.contents,
            exclude: args.choice.exclude.clone(),
            follow: args.choice.copy_links,
            allow_changes: args.choice.allow_changes,
            modes: args.choice.chmod.as_deref().map(selection_args::modes).transpose()?,
            ..Selection::default()
        };
        Ok((selection, skipped))
    }

    /// Whether the contents of a directory go into an existing one; else the directory gets that
    /// name.
    fn lands_in_directory(&self, report: &Reporter) -> Result<bool, Failure> {
        let server = server(self.meeting, self.options, self.job.cancel, true);
        match server.stat(&self.target.path, &mut WarningsOnly) {
            Ok(entry) => Ok(entry.sort == EntryType::Directory),
            Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) => Ok(false),
            // Where the client may not look, a directory is put as one.
            Err(Error::Denied { what: RequestErrorKind::Forbidden, .. }) => Ok(true),
            Err(error) => {
                Err(report.failure(&self.meeting.explain(error, self.options, self.job.cancel)))
            }
        }
    }

    /// The error of the server about a path there. An error about a local file has its own.
    fn refused(&self, error: Error, report: &Reporter) -> Failure {
        match self.meeting.explain(error, self.options, self.job.cancel) {
            error @ (Error::Denied { .. } | Error::Ended(_)) => {
                named(self.target, report.failure(&error))
            }
            error => report.failure(&error),
        }
    }
}
