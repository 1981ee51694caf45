//! `--report FILE.html`: the page of `netblt-lab report transfer` for the running transfer.

use std::path::{Path, PathBuf};

use netblt::Options;
use netblt_cli_common::transfer_report;
use tempfile::NamedTempFile;

use crate::exit::{Code, Failure};
use crate::reporter::Reporter;

/// A page to be written at the end of the transfer, however it ends.
pub(super) struct HtmlReport {
    out: PathBuf,
    trace: PathBuf,
    /// Which transfer it is.
    title: String,
    /// Keeps the trace until then, unless the user asked for one.
    _kept: Option<NamedTempFile>,
}

impl HtmlReport {
    /// Sees to it that there will be a trace to draw.
    pub(super) fn wanted(
        out: Option<&Path>,
        title: String,
        options: &mut Options,
    ) -> Result<Option<Self>, Failure> {
        let Some(out) = out.map(Path::to_path_buf) else { return Ok(None) };
        if !out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html")) {
            let text = format!("--report {}: a page is written as .html", out.display());
            return Err(Failure::usage(text));
        }
        let kept = match &options.trace {
            Some(trace) if trace.exists() && !trace.is_file() => {
                let text = format!(
                    "--trace {}: --report reads the trace again, so it has to be a regular file",
                    trace.display()
                );
                return Err(Failure::usage(text));
            }
            Some(_) => None,
            None => Some(NamedTempFile::new().map_err(|error| {
                Failure::new(Code::File, format!("--report: no room for a trace: {error}"))
            })?),
        };
        if let Some(kept) = &kept {
            options.trace = Some(kept.path().to_owned());
        }
        let trace = options.trace.clone().unwrap_or_default();
        Ok(Some(Self { out, trace, title, _kept: kept }))
    }

    /// Draws it. A failure is an error, and the transfer stays as it is.
    pub(super) fn write(self, report: &mut Reporter) {
        if let Err(failure) = transfer_report::write_page(&self.trace, &self.title, &self.out) {
            report.clear();
            report.not_written(&format!("--report {}: {}", self.out.display(), failure.message));
        }
    }
}
