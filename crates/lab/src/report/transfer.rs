//! `netblt-lab report transfer`: the report on one transfer, from the trace of one of its ends
//! (`docs/reference/trace.md`).

use std::path::PathBuf;

use netblt_cli_common::transfer_report::TransferReport;

use super::PictureArgs;
use crate::exit::Failure;
use crate::stdout;

/// Say what limited one transfer, list what changed its rate, and draw it
///
/// Takes the trace of one end, as `netblt send --trace FILE` and `netblt receive --trace FILE`
/// write it. The line `limit` names the cause, with its figures. Lines that are none of a trace's
/// are skipped and named. A trace that was cut short is read to its end.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// The figures as JSON on standard output, times in seconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    picture: OptionalPicture,
}

/// The output of the plot, if requested.
#[derive(clap::Args, Debug)]
struct OptionalPicture {
    /// Draw it, too: into FILE.svg, or a page if it ends in .html
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The title [default: the role of the end]
    #[arg(long, value_name = "TEXT", requires = "out")]
    title: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let picture = args.picture.out.clone();
    let picture = picture.map(|out| PictureArgs { out, title: args.picture.title.clone() });
    if let Some(picture) = &picture {
        picture.check()?;
    }
    let report = TransferReport::read(&args.file)?;
    let file = args.file.display();
    if let Some(skipped) = report.skipped() {
        stdout::say(&format!("{}: warning: {file}: {skipped}", stdout::program()));
    }
    let words = report.to_string();
    if let Some(picture) = &picture {
        let drawn = report.picture(picture.title.as_deref(), &[format!("trace: {file}")]);
        picture.write(&drawn, &words)?;
        if picture.out.as_os_str() == "-" {
            return Ok(());
        }
    }
    let text = match args.json {
        true => format!("{}\n", report.json()),
        false => words,
    };
    stdout::print(&text)
}
