//! A command that does the same for each of several addresses on servers.

use std::ffi::OsString;

use netblt::serve::client::Client;
use netblt::{Cancel, Error};
use netblt_proto::api::printable_bytes;
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::outcome;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{ServerArgs, ServerConnection, server};
use crate::{hardening, json, signals, stdout};

/// The common options of such commands.
#[derive(clap::Args, Debug)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) line: ServerArgs,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// The error of a command: the server's, or one of this side.
pub(crate) enum CommandError {
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
    pub(crate) fn each(
        &self,
        urls: &[OsString],
        often: bool,
        act: impl FnMut(&Client<'_>, &ServerPath) -> Result<(), CommandError>,
    ) -> Code {
        let cancel = Cancel::default();
        hardening::keep();
        match signals::watch(&cancel, false) {
            Ok(()) => {
                self.each_of(urls.iter().map(|url| ServerPath::parse(url)), often, &cancel, act)
            }
            Err(failure) => outcome::end(Err(failure), self.json),
        }
    }

    /// The same for addresses that are parsed already, or why they could not be.
    pub(crate) fn each_of(
        &self,
        urls: impl Iterator<Item = Result<ServerPath, Failure>>,
        often: bool,
        cancel: &Cancel,
        mut act: impl FnMut(&Client<'_>, &ServerPath) -> Result<(), CommandError>,
    ) -> Code {
        let options = self.line.options();
        let mut code = Code::Success;
        let mut met: Option<(Option<Host>, ServerConnection)> = None;
        for url in urls {
            let done = url.and_then(|served| {
                if met.as_ref().is_none_or(|(host, _)| *host != served.host) {
                    let meeting = self.line.meet(&served, &options, cancel)?;
                    met = Some((served.host.clone(), meeting));
                }
                let Some((_, meeting)) = &met else { return Ok(()) };
                let failure = match act(&server(meeting, &options, cancel, often), &served) {
                    Ok(()) => return Ok(()),
                    Err(CommandError::Here(failure)) => failure,
                    Err(CommandError::There(error)) => {
                        Failure::transfer(&meeting.explain(error, &options, cancel), false)
                    }
                };
                let message = format!("{}: {}", served.shown(), failure.message);
                Err(Failure { message, ..failure })
            });
            let Err(failure) = done else { continue };
            outcome::complain(&failure, self.json);
            code = if code == Code::Success { failure.code } else { code };
            // Standard output that cannot be written is silent here.
            if failure.silent || matches!(failure.code, Code::Signal | Code::Connect | Code::Usage)
            {
                break;
            }
        }
        code
    }

    pub(crate) fn report_count(
        &self,
        what: &'static str,
        served: &ServerPath,
        count: u64,
        verbose: bool,
    ) -> Result<(), Failure> {
        self.report_result(what, &served.path, None, count, verbose)
    }

    pub(crate) fn report_result(
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
            return json::event(what, data);
        }
        if !verbose {
            return Ok(());
        }
        let more = if count == 1 { String::new() } else { format!(" ({count} in all)") };
        let to = to.map_or_else(String::new, |to| format!(" to {}", printable_bytes(to)));
        stdout::line(format_args!("{what} {}{to}{more}", printable_bytes(path)))
    }
}
