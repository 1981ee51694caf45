//! ssh to a machine, until its agent has greeted; installs the program there first, if asked to.

use crate::copy::job::CopyJob;
use crate::copy::ssh::install::{self, Machine};
use crate::copy::ssh::session::{SshSession, unless_stopped};
use crate::exit::Failure;
use crate::host::Host;
use crate::reporter::Reporter;

/// Starts the agent, which may have to be installed first.
pub(crate) fn connect<'a>(
    job: CopyJob<'a>,
    host: &Host,
    report: &mut Reporter,
) -> Result<SshSession<'a>, Failure> {
    report.detail(&format!("Starting ssh to {} ...", host.name));
    let family = job.args.family();
    let start = || SshSession::start(job.ssh, host, family, job.quiet, job.cancel);
    let mut link = start()?;
    let Err(failure) = link.greet(report) else { return Ok(link) };
    let (without, foreign, ended) = (link.without.take(), link.foreign, link.ended);
    link.finish(false, |text| report.warn(text));
    let stopped = |failure| unless_stopped(failure, ended, None);
    let install =
        |machine: Machine| install::install(job.ssh, host, family, &machine, job.ssh.yes, report);
    let installed = match without {
        Some(machine) if job.ssh.install => install(machine),
        None if foreign && job.ssh.install => {
            report.detail(&failure.message);
            job.ssh.machine(host, family).and_then(install)
        }
        _ => Err(failure),
    };
    installed.map_err(stopped)?;
    let mut link = start()?;
    match link.greet(report) {
        Ok(()) => Ok(link),
        Err(failure) => {
            link.finish(false, |text| report.warn(text));
            Err(stopped(failure))
        }
    }
}
