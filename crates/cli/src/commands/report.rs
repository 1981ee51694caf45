//! `netblt report`: pictures from what runs have written, and the tests of RFC 1030.

mod plot;
mod rfc1030;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exit::{Code, Failure};
use plot::{Panel, Series};

/// Draw what a run has written, or run the tests of RFC 1030 again
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Rfc1030(rfc1030::Args),
    Trace(TraceArgs),
}

/// Draw throughput and queue delay over time, as SVG
///
/// Takes the JSON lines of `netblt emulate relay --trace FILE`, or of `netblt emulate tun`. Other
/// events and lines in it are skipped.
#[derive(clap::Args, Debug)]
struct TraceArgs {
    /// The JSON lines
    file: PathBuf,
    /// Where the picture goes; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// What to write above it
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

pub(crate) fn run(args: &Args) -> Code {
    let done = match &args.command {
        Command::Rfc1030(args) => rfc1030::run(args),
        Command::Trace(args) => trace(args),
    };
    match done {
        Ok(()) => Code::Success,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "netblt: {}", failure.message);
            failure.code
        }
    }
}

fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let failed = |path: &Path, what: &str, error: io::Error| {
        Failure::new(Code::File, format!("{}: cannot {what}: {error}", path.display()))
    };
    let text = fs::read_to_string(&args.file).map_err(|error| failed(&args.file, "read", error))?;
    let title = args.title.clone().unwrap_or_else(|| args.file.display().to_string());
    let picture = picture(&text, &title).ok_or_else(|| {
        let file = args.file.display();
        let text = "no \"sample\" events in it; `netblt emulate ... --trace FILE` writes them";
        Failure::new(Code::File, format!("{file}: {text}"))
    })?;
    if args.out == Path::new("-") {
        return io::stdout()
            .write_all(picture.as_bytes())
            .map_err(|error| failed(&args.out, "write", error));
    }
    fs::write(&args.out, picture).map_err(|error| failed(&args.out, "write", error))
}

/// The picture; `None` when there is nothing to draw.
fn picture(text: &str, title: &str) -> Option<String> {
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let samples: Vec<Value> = events
        .filter(|event| event["event"] == "sample")
        .map(|mut event| event["data"].take())
        .collect();
    let series = |name: &'static str, direction: &str, field: &str| {
        let point = |data: &Value| {
            let number = |value: &Value| value.as_f64().filter(|n| n.is_finite() && *n >= 0.0);
            Some((number(&data["seconds"])?, number(&data[direction][field])?))
        };
        Series { name, points: samples.iter().filter_map(point).collect() }
    };
    let panels = [
        Panel {
            label: "throughput, Mbit/s",
            series: [series("up", "up", "mbps"), series("down", "down", "mbps")],
        },
        Panel {
            label: "queue delay, ms",
            series: [series("up", "up", "queue_ms"), series("down", "down", "queue_ms")],
        },
    ];
    let points = panels.iter().flat_map(|panel| &panel.series).map(|series| series.points.len());
    (points.sum::<usize>() > 0).then(|| plot::svg(title, &panels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_lines() {
        let text = "{\"event\":\"emulating\",\"data\":{}}\nnoise\n\
            {\"event\":\"sample\",\"data\":{\"seconds\":1,\"up\":{\"mbps\":5,\"queue_ms\":1}}}\n\
            {\"event\":\"sample\",\"data\":{\"seconds\":2,\"up\":{\"mbps\":9,\"queue_ms\":0}}}\n";
        let picture = picture(text, "a < b & c").expect("a picture");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt; b &amp; c"));
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<title>").count(), 1);
    }

    #[test]
    fn nothing_is_not_drawn() {
        for text in ["", "{}", "{\"event\":\"sample\"}", "{\"event\":\"sample\",\"data\":[1]}"] {
            assert_eq!(picture(text, ""), None, "{text}");
        }
    }
}
