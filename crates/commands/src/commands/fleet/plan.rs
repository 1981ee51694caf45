//! `netblt fleet plan`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use netblt_fleet::plan::{Limits, plan};
use netblt_fleet::pool::Pool;
use serde_json::json;

use super::{absolute, failed, help, say, watched};
use crate::exit::{Code, Failure};
use crate::json::{self, Stream};
use crate::outcome;
use crate::server_client::address::ServerPath;
use crate::server_client::client::Credentials;
use crate::units;

/// Cut a file or directory into chunks, and write the plan
///
/// One walk, which keeps nothing of the files in memory. A file that is larger than a chunk may be
/// goes in ranges, each of which is one chunk. Files that cannot be sent are named, and the exit
/// code is 23.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// The file or directory to send
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The target with its name: netblt://HOST[:PORT][,HOST[:PORT]...]/PATH; all hosts serve the
    /// same directory
    #[arg(value_name = "URL")]
    target: OsString,
    /// The run's directory, which is made; every machine that runs tasks must reach it
    #[arg(short, long, value_name = "RUN", required = true)]
    output: PathBuf,
    /// Bytes of a chunk at most
    #[arg(long, value_name = "SIZE", default_value = "100GB", value_parser = units::bytes)]
    chunk_bytes: u64,
    /// Files, links and directories of a chunk at most
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = units::number::<u64>(1, 1_000_000))]
    chunk_files: u64,
    #[command(flatten)]
    proof: Credentials,
    /// Your key for the servers, where there is no ticket [default: ~/.config/netblt/key]
    #[arg(short = 'i', value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Code {
    match cut(args) {
        Ok(code) => code,
        Err(failure) => {
            outcome::complain(&failure, args.json);
            failure.code
        }
    }
}

fn cut(args: &Args) -> Result<Code, Failure> {
    let (hosts, target) = hosts(&args.target)?;
    let pool = Pool {
        hosts,
        ticket_file: absolute(args.proof.ticket_file.as_ref())?,
        identity: absolute(args.identity.as_ref())?,
        known_servers: absolute(args.proof.known_servers.as_ref())?,
    };
    let cancel = watched()?;
    let limits = Limits { bytes: args.chunk_bytes, items: args.chunk_files };
    let mut warn = |text: &str| match args.json {
        true => _ = json::emit(Stream::Stdout, "warning", json::WarningData { message: text }),
        false => say(&format!("netblt: warning: {text}")),
    };
    let what = (&*args.source, &target[..]);
    let run = plan(what, &args.output, limits, &cancel, &mut warn);
    let run = run.map_err(failed)?;
    pool.write(&run).map_err(failed)?;
    let head = &run.head;
    if args.json {
        let data = json!({
            "run": head.id, "chunks": head.chunks, "files": head.files, "bytes": head.bytes,
            "directories": head.directories, "left_out": head.left_out,
        });
        let _ = json::emit(Stream::Stdout, "summary", data);
    } else {
        say(&format!(
            "{} chunks: {} files and {} directories, {}",
            head.chunks,
            head.files,
            head.directories,
            units::show_bytes(head.bytes),
        ));
    }
    Ok(if head.left_out > 0 { Code::Partial } else { Code::Success })
}

/// The hosts of a URL that names several, and the path.
fn hosts(url: &OsStr) -> Result<(Vec<String>, Vec<u8>), Failure> {
    let wrong = |why: &str| Failure::usage(format!("{}: {why}", url.to_string_lossy()));
    let rest = url.as_bytes().strip_prefix(b"netblt://");
    let rest = rest.ok_or_else(|| wrong("is no netblt://HOST/PATH"))?;
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let mut hosts = Vec::new();
    let mut target = Vec::new();
    for host in authority.split(|byte| *byte == b',') {
        let one = OsString::from_vec([b"netblt://", host, path].concat());
        let served = ServerPath::parse(&one)?;
        if served.host.is_none() {
            return Err(wrong("a host is missing"));
        }
        target = served.path;
        hosts.push(String::from_utf8_lossy(host).into_owned());
    }
    let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let target = parts.collect::<Vec<_>>().join(&b'/');
    if target.is_empty() || target.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(wrong("it must say under which name it is to be there, without '..'"));
    }
    Ok((hosts, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_read() {
        let read = |url: &str| {
            let (hosts, path) = hosts(OsStr::new(url)).ok()?;
            Some((hosts.join(" "), String::from_utf8_lossy(&path).into_owned()))
        };
        let is = |hosts: &str, path: &str| Some((hosts.to_owned(), path.to_owned()));
        assert_eq!(read("netblt://a/x"), is("a", "x"));
        assert_eq!(read("netblt://a:7,b,[::1]:9//x/./y%20z/"), is("a:7 b [::1]:9", "x/y z"));
        for wrong in ["netblt:///x", "netblt://a,/x", "netblt://a", "netblt://a/x/../y", "a/x"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
