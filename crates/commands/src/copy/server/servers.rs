//! The servers of a copy: each has one connection, and a busy server is tried again.

use std::thread;
use std::time::{Duration, Instant};

use netblt::{Cancel, Error, Options};

use crate::copy::job::CopyJob;
use crate::copy::server::sources::nothing;
use crate::copy::ssh::probe::free_port;
use crate::exit::Failure;
use crate::host::Host;
use crate::reporter::Reporter;
use crate::server_client::address::ServerPath;
use crate::server_client::client::ServerConnection;

/// How long a busy server is tried again, and the first and the longest pause between two tries.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The interval at which a wait looks whether it was cancelled.
const STEP: Duration = Duration::from_millis(50);

/// The connections to servers, one for each.
#[derive(Default)]
pub(crate) struct ServerCache {
    known: Vec<(Option<Host>, ServerConnection)>,
}

impl ServerCache {
    /// The connection to the server of an address. It is made on first use.
    pub(crate) fn of(
        &mut self,
        served: &ServerPath,
        job: CopyJob<'_>,
        options: &Options,
    ) -> Result<&ServerConnection, Failure> {
        let known = self.known.iter().position(|(host, _)| *host == served.host);
        let at = match known {
            Some(at) => at,
            None => {
                let connection =
                    job.credentials.meet(served, job.identity(), options, job.cancel)?;
                self.known.push((served.host.clone(), connection));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }

    /// The existing connection to the server of an address.
    pub(crate) fn known(&self, served: &ServerPath) -> Result<&ServerConnection, Failure> {
        let known = self.known.iter().find(|(host, _)| *host == served.host);
        known.map(|(_, connection)| connection).ok_or_else(nothing)
    }
}

/// Tries a busy server again for a minute. The server has begun nothing of a refused request.
pub(crate) fn patiently<T>(
    cancel: &Cancel,
    report: &mut Reporter,
    mut copy: impl FnMut(&mut Reporter) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (begun, mut pause, mut last) = (Instant::now(), PAUSE, None);
    loop {
        let failure = match copy(report) {
            Err(failure) if failure.busy && begun.elapsed() + pause <= PATIENCE => failure,
            came => return came,
        };
        if last.as_ref() != Some(&failure.message) {
            let most = PATIENCE.as_secs();
            report.warn(&format!("{}; trying again for {most} s at most", failure.message));
            last = Some(failure.message.clone());
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if cancel.is_cancelled() {
                return Err(report.failure(&Error::Interrupted));
            }
            thread::sleep(STEP);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The options of a transfer with a server.
pub(crate) fn options(job: CopyJob<'_>) -> Result<Options, Failure> {
    let mut options = job.options.clone();
    options.network.port = free_port(job.args.ports(), job.args.family())?;
    Ok(options)
}

pub(crate) fn named(source: &ServerPath, failure: Failure) -> Failure {
    let message = format!("{}: {}", source.shown(), failure.message);
    Failure { message, ..failure }
}
