//! A copy from servers to here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use netblt::serve::client::{Client, Fetch, into_directory};
use netblt::serve::{Entry, EntryType};
use netblt::{Error, ManifestFormat, Options, Summary};

use crate::copy::job::CopyJob;
use crate::copy::operands::Target;
use crate::copy::server::servers::{ServerCache, named, options, patiently};
use crate::copy::server::sources::{expand, nothing, wanted};
use crate::copy::server::totals::{Manifests, Totals, listed};
use crate::exit::{Code, Failure};
use crate::reporter::{self, Reporter};
use crate::server_client::address::ServerPath;
use crate::server_client::client::{ServerConnection, WarningsOnly, server};

/// Performs the copy. A dry run returns nothing.
pub(crate) fn copy(
    job: CopyJob<'_>,
    sources: &[ServerPath],
    target: &OsStr,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let mut options = options(job)?;
    report.hear_files(&mut options);
    let (mut met, down) = (ServerCache::default(), Download { job, options: &options });
    if job.args.dry_run {
        return down.preview(sources, &mut met, report).and_then(listed);
    }
    down.copy(sources, target, &mut met, report).map(Some)
}

struct Download<'a> {
    job: CopyJob<'a>,
    options: &'a Options,
}

impl Download<'_> {
    fn copy(
        &self,
        sources: &[ServerPath],
        target: &OsStr,
        met: &mut ServerCache,
        report: &mut Reporter,
    ) -> Result<Summary, Failure> {
        let trees = self.job.args.recursive;
        let cannot = |text| Failure::new(Code::File, text);
        // Before anything is asked, as far as it is known.
        Target::of(target, sources.len() > 1, trees, &names(sources)).map_err(cannot)?;
        let (mut all, mut found) = (Totals::default(), Vec::new());
        for source in sources {
            let meeting = met.of(source, self.job, self.options)?;
            if found.is_empty() {
                reporter::announce(report, &meeting.rendezvous);
            }
            let server = server(meeting, self.options, self.job.cancel, true);
            let apart = trees && Path::new(target).is_dir();
            let some = patiently(self.job.cancel, report, |report| {
                let explain = |error| meeting.explain(error, self.options, self.job.cancel);
                let failed = |error| named(source, report.failure(&explain(error)));
                expand(&server, source, apart).map_err(failed)
            })?;
            if some.is_empty() && source.pattern.is_some() {
                all.skip(source, "nothing matches", report);
            }
            found.extend(some);
        }
        let landing = Target::of(target, found.len() > 1, trees, &names(&found));
        let landing = landing.map_err(cannot)?;
        if found.len() > 1 && self.options.trace.is_some() {
            return Err(Failure::usage(
                "--trace and --report are of one transfer, and each source from a server is a \
                 transfer of its own: name one, or a directory (-r)",
            ));
        }
        if found.len() > 1 && self.options.checksums.manifest_format == ManifestFormat::Bagit {
            return Err(Failure::usage(
                "--manifest-format bagit is of one transfer, and each source from a server is a \
                 transfer of its own: name one, or a directory (-r)",
            ));
        }
        if found.len() > 1 && self.options.checksums.expected.is_some() {
            return Err(Failure::usage(
                "--expect is about one transfer, and each source from a server is a transfer of \
                 its own: name one, or a directory (-r)",
            ));
        }
        let mut sums = Manifests::default();
        for source in &found {
            let meeting = met.known(source)?;
            let one = patiently(self.job.cancel, report, |report| {
                self.one(source, &landing, meeting, report)
            })?;
            match one {
                Ok(summary) => all.add(summary),
                Err(why) => all.skip(source, why, report),
            }
            if found.len() > 1 {
                sums.add(self.options.manifest.as_deref())?;
            }
        }
        all.end()
    }

    /// A line for each file that would be copied.
    fn preview(
        &self,
        sources: &[ServerPath],
        met: &mut ServerCache,
        report: &mut Reporter,
    ) -> Result<u64, Failure> {
        let (mut there, mut skipped) = (0, 0);
        for source in sources {
            let meeting = met.of(source, self.job, self.options)?;
            let server = server(meeting, self.options, self.job.cancel, true);
            let failed = |error: Error, report: &Reporter| {
                named(
                    source,
                    report.failure(&meeting.explain(error, self.options, self.job.cancel)),
                )
            };
            let some = expand(&server, source, false).map_err(|error| failed(error, report))?;
            if some.is_empty() {
                report.warn(&format!("skipped {}: nothing matches", source.shown()));
                skipped += 1;
            }
            for one in some {
                let entry = wanted(&server, &one.path, self.job.args.recursive);
                match entry.map_err(|error| failed(error, report))? {
                    Ok(entry) => {
                        let name = one.name().into_encoded_bytes();
                        let listed = list_tree(&server, (one.path, name, entry), report);
                        listed.map_err(|error| failed(error, report))??;
                        there += 1;
                    }
                    Err(why) => {
                        report.warn(&format!("skipped {}: {why}", one.shown()));
                        skipped += 1;
                    }
                }
            }
        }
        if there == 0 { Err(nothing()) } else { Ok(skipped) }
    }

    /// One source, or why it is left out.
    fn one(
        &self,
        source: &ServerPath,
        landing: &Target,
        meeting: &ServerConnection,
        report: &mut Reporter,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let mut options = self.options.clone();
        options.label = landing.label();
        let options = &options;
        let (cancel, trees) = (self.job.cancel, self.job.args.recursive);
        let server = server(meeting, options, cancel, true);
        let failed = |error: Error, report: &Reporter| {
            named(source, report.failure(&meeting.explain(error, options, cancel)))
        };
        let entry = match wanted(&server, &source.path, trees) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(failed(error, report)),
        };
        let bytes = (entry.sort == EntryType::File).then_some(entry.length);
        let name = landing.name.clone().unwrap_or_else(|| source.name());
        let data = match entry.sort {
            EntryType::File => Some(entry.data),
            _ => {
                let known = server.data_bytes(&source.path, &mut WarningsOnly);
                known.map_err(|error| failed(error, report))?
            }
        };
        let fetch = Fetch { path: source.path.clone(), name, trees, bytes, data };
        let got = server.get(&fetch, into_directory(&landing.directory), report);
        got.map(Ok).map_err(|error| named(source, report.failure(&error)))
    }
}

/// Their paths on the server.
fn names(sources: &[ServerPath]) -> Vec<OsString> {
    sources.iter().map(|source| OsStr::from_bytes(&source.path).to_owned()).collect()
}

/// Lists a file, or a directory with its contents: paths there, and the names that they get.
fn list_tree(
    server: &Client<'_>,
    root: (Vec<u8>, Vec<u8>, Entry),
    report: &Reporter,
) -> Result<Result<(), Failure>, Error> {
    let mut found = vec![root];
    while let Some((path, name, entry)) = found.pop() {
        let directory = entry.sort == EntryType::Directory;
        let shown = report.offered(&name, directory, if directory { 0 } else { entry.length });
        if shown.is_err() {
            return Ok(shown);
        }
        if directory {
            let mut inside = Vec::new();
            server.list(&path, &mut WarningsOnly, |entry| {
                let below = |above: &[u8]| [above, b"/", &entry.name].concat();
                inside.push((below(&path), below(&name), entry));
                Ok(())
            })?;
            found.extend(inside.into_iter().rev());
        }
    }
    Ok(Ok(()))
}
