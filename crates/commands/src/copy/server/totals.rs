//! Several transfers as one copy: their sum, and their manifests in one file.

use std::fs;
use std::path::Path;

use netblt::Summary;

use crate::copy::server::sources::nothing;
use crate::exit::{Code, Failure};
use crate::reporter::Reporter;
use crate::server_client::address::ServerPath;

/// The sum of several transfers, and the sources that were left out before any of them.
#[derive(Default)]
pub(crate) struct Totals {
    summary: Option<Summary>,
    skipped: u64,
}

impl Totals {
    pub(crate) fn skip(&mut self, source: &ServerPath, why: &str, report: &mut Reporter) {
        report.warn(&format!("skipped {}: {why}", source.shown()));
        self.skipped += 1;
    }

    pub(crate) fn add(&mut self, next: Summary) {
        self.summary = Some(match self.summary.take() {
            Some(all) => together(all, &next),
            None => next,
        });
    }

    /// A copy of nothing is a failure, unless all sources are an empty directory.
    pub(crate) fn end(self) -> Result<Summary, Failure> {
        let mut summary = match (self.summary, self.skipped) {
            (Some(summary), _) => summary,
            (None, 0) => {
                let mut none = Summary::default();
                none.verified = true;
                none
            }
            (None, _) => return Err(nothing()),
        };
        summary.skipped += self.skipped;
        Ok(summary)
    }
}

/// The manifests of several transfers, of which each writes its own to the same file.
#[derive(Default)]
pub(crate) struct Manifests(Vec<u8>);

impl Manifests {
    /// Another transfer has written its manifest: puts the earlier ones before it.
    pub(crate) fn add(&mut self, manifest: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = manifest else { return Ok(()) };
        let said =
            |error| Failure::new(Code::File, format!("--manifest {}: {error}", path.display()));
        self.0.extend(fs::read(path).map_err(said)?);
        fs::write(path, &self.0).map_err(said)
    }
}

/// The sum of two transfers, one after the other.
fn together(mut all: Summary, next: &Summary) -> Summary {
    all.bytes += next.bytes;
    all.kept += next.kept;
    all.files += next.files;
    all.skipped += next.skipped;
    all.unexpected += next.unexpected;
    all.elapsed += next.elapsed;
    all.verified &= next.verified;
    let seconds = all.elapsed.as_secs_f64().max(1e-9);
    all.real_bps = all.bytes.saturating_sub(all.kept) as f64 * 8.0 / seconds;
    all.steady_bps = all.real_bps;
    all
}

/// The end of a dry run, with the code that the copy would have.
pub(crate) fn listed(skipped: u64) -> Result<Option<Summary>, Failure> {
    match skipped {
        0 => Ok(None),
        _ => Err(Failure { silent: true, ..Failure::new(Code::Partial, "some are left out") }),
    }
}
