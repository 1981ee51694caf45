//! `netblt-lab report`: plots of recorded runs, the tests of RFC 1030 and of ORNL, and a comparison
//! on real kernels.

#[cfg(target_os = "linux")]
mod compare;
mod ornl;
mod path;
mod rfc1030;
pub(super) mod transfer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use netblt_pages::plot::Picture;
use serde_json::Value;

use crate::exit::{Code, Failure};
use crate::outcome;
use crate::stdout;

/// Draw the output of a run, or repeat the tests of RFC 1030, ORNL or several tools
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Rfc1030(rfc1030::Args),
    Ornl(ornl::Args),
    #[cfg(target_os = "linux")]
    Compare(compare::Args),
    Trace(TraceArgs),
    Transfer(transfer::Args),
}

/// Draw what an emulated path carried: throughput, queue delay, losses and outages over time
///
/// Takes the JSON lines of `netblt-lab emulate relay --trace FILE`, or of `netblt-lab emulate tun`.
/// Other events and lines in it are skipped.
#[derive(clap::Args, Debug)]
struct TraceArgs {
    /// The JSON lines
    file: PathBuf,
    #[command(flatten)]
    picture: PictureArgs,
}

pub(crate) fn run(args: &Args) -> Code {
    let done = match &args.command {
        Command::Rfc1030(args) => rfc1030::run(args),
        Command::Ornl(args) => ornl::run(args),
        #[cfg(target_os = "linux")]
        Command::Compare(args) => compare::run(args),
        Command::Trace(args) => trace(args),
        Command::Transfer(args) => transfer::run(args),
    };
    outcome::end(done, false)
}

fn trace(args: &TraceArgs) -> Result<(), Failure> {
    args.picture.check()?;
    let text =
        fs::read_to_string(&args.file).map_err(|error| failed(&args.file, "read", &error))?;
    let file = args.file.display().to_string();
    let title = args.picture.title.as_deref();
    let picture = path::picture(&text, title, &file).ok_or_else(|| {
        let file = args.file.display();
        let text =
            "no \"sample\" events in it; `netblt-lab emulate relay --trace FILE` writes them";
        Failure::new(Code::File, format!("{file}: {text}"))
    })?;
    args.picture.write(&picture, "")
}

/// Threads for computed figures, which take seconds; the number of threads does not change them.
const THREADS: usize = 2;

/// The file for computed figures.
#[derive(clap::Args, Debug)]
struct FiguresArgs {
    /// The figures as JSON on standard output, rates in bits per second
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl FiguresArgs {
    /// Fails if the page cannot be written, before figures are computed for a minute.
    fn check(&self) -> Result<(), Failure> {
        let Some(file) = &self.html else { return Ok(()) };
        let opened = fs::File::options().append(true).create(true).open(file);
        opened.map(drop).map_err(|error| failed(file, "write", &error))
    }

    fn write(
        &self,
        page: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if let Some(file) = &self.html {
            fs::write(file, page()).map_err(|error| failed(file, "write", &error))?;
        }
        let text = if self.json { format!("{}\n", json()) } else { text() };
        stdout::print(&text)
    }
}

/// The output of a plot.
#[derive(clap::Args, Debug)]
struct PictureArgs {
    /// The file for the picture: FILE.svg, or a page if it ends in .html; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The title [default: the name of the network]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

impl PictureArgs {
    fn is_page(&self) -> bool {
        self.out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
    }

    /// Checks the type by the file's name.
    fn check(&self) -> Result<(), Failure> {
        match self.out.extension() {
            Some(extension) if !extension.eq_ignore_ascii_case("svg") && !self.is_page() => {
                Err(Failure::usage(format!(
                    "--out {}: a picture is written as .svg or .html, not as .{}",
                    self.out.display(),
                    extension.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Writes it; a page has the words below the plot.
    fn write(&self, picture: &Picture, words: &str) -> Result<(), Failure> {
        let text = if self.is_page() { picture.page(words) } else { picture.svg() };
        if self.out == Path::new("-") {
            return stdout::print(&text);
        }
        fs::write(&self.out, text).map_err(|error| failed(&self.out, "write", &error))
    }
}

pub(super) fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::new(Code::File, format!("{}: cannot {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_decides_the_format() {
        let args = |out: &str| PictureArgs { out: out.into(), title: None };
        for good in ["x.svg", "x.SVG", "-", "/dev/stdout", "x.html"] {
            assert!(args(good).check().is_ok(), "{good}");
        }
        for bad in ["x.png", "x.svg.gz", "x.pdf"] {
            let error = args(bad).check().expect_err(bad);
            assert!(error.message.contains(".svg or .html"), "{}", error.message);
        }
    }
}
