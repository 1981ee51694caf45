//! A copy from servers straight to another server.

use netblt::serve::client::Fetch;
use netblt::serve::{EntryType, ThirdPartyError};
use netblt::{Error, Options, RequestErrorKind, Summary};

use crate::copy::job::CopyJob;
use crate::copy::server::servers::{ServerCache, named, options, patiently};
use crate::copy::server::sources::{expand, means_contents, wanted};
use crate::copy::server::totals::Totals;
use crate::exit::Failure;
use crate::reporter::Reporter;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{ServerConnection, WarningsOnly, server};

/// Performs the copy.
pub(crate) fn copy(
    job: CopyJob<'_>,
    sources: &[ServerPath],
    target: &ServerPath,
    report: &mut Reporter,
) -> Result<Summary, Failure> {
    let mut options = options(job)?;
    report.hear_files(&mut options);
    let mut met = ServerCache::default();
    met.of(target, job, &options)?;
    for source in sources {
        met.of(source, job, &options)?;
    }
    ServerToServer { job, met, target, options: &options }.copy(sources, report)
}

struct ServerToServer<'a> {
    job: CopyJob<'a>,
    met: ServerCache,
    target: &'a ServerPath,
    options: &'a Options,
}

impl ServerToServer<'_> {
    fn copy(&self, sources: &[ServerPath], report: &mut Reporter) -> Result<Summary, Failure> {
        let (mut all, mut found) = (Totals::default(), Vec::new());
        for source in sources {
            let meeting = self.met.known(source)?;
            let apart = self.job.args.recursive
                && means_contents(&source.path)
                && self.lands_in_one(report)?;
            let from = server(meeting, self.options, self.job.cancel, false);
            let some = patiently(self.job.cancel, report, |report| {
                expand(&from, source, apart)
                    .map_err(|error| self.failed(error, meeting, source, report))
            })?;
            if some.is_empty() && source.pattern.is_some() {
                all.skip(source, "nothing matches", report);
            }
            let several = apart || some.len() > 1 || sources.len() > 1;
            found.extend(some.into_iter().map(|one| (one, several)));
        }
        for (source, several) in &found {
            let one =
                patiently(self.job.cancel, report, |report| self.one(source, *several, report))?;
            match one {
                Ok(summary) => all.add(summary),
                Err(why) => all.skip(source, why, report),
            }
        }
        all.end()
    }

    /// Whether the target is a directory. One that the client may not look at counts as one.
    fn lands_in_one(&self, report: &Reporter) -> Result<bool, Failure> {
        let there = self.met.known(self.target)?;
        let to = server(there, self.options, self.job.cancel, false);
        match to.stat(&self.target.path, &mut WarningsOnly) {
            Ok(entry) => Ok(entry.sort == EntryType::Directory),
            Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) => Ok(false),
            Err(Error::Denied { what: RequestErrorKind::Forbidden, .. }) => Ok(true),
            Err(error) => Err(self.failed(error, there, self.target, report)),
        }
    }

    /// One source, or why it is left out.
    fn one(
        &self,
        source: &ServerPath,
        several: bool,
        report: &mut Reporter,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let (meeting, there) = (self.met.known(source)?, self.met.known(self.target)?);
        let from = server(meeting, self.options, self.job.cancel, false);
        let entry = match wanted(&from, &source.path, self.job.args.recursive) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(self.failed(error, meeting, source, report)),
        };
        let trees = self.job.args.recursive && entry.sort == EntryType::Directory;
        let bytes = (entry.sort == EntryType::File).then_some(entry.length);
        let fetch =
            Fetch { path: source.path.clone(), name: source.name(), trees, bytes, data: None };
        let to = server(there, self.options, self.job.cancel, false);
        let sent = from.send_to(&fetch, &to, &self.target.path, several, report);
        sent.map(Ok).map_err(|side| match side {
            ThirdPartyError::From(error) => self.failed(error, meeting, source, report),
            ThirdPartyError::To(error) => self.failed(error, there, self.target, report),
        })
    }

    fn failed(
        &self,
        error: Error,
        at: &ServerConnection,
        served: &ServerPath,
        report: &Reporter,
    ) -> Failure {
        named(served, report.failure(&at.explain(error, self.options, self.job.cancel)))
    }
}
