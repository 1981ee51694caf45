//! Puts this program on a machine that lacks it, over the user's own ssh.

use std::env::consts::{ARCH, OS};
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use netblt::Family;
use netblt_proto::api::printable;

use crate::copy::ssh::command::SshOptions;
use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::reporter::Reporter;

/// No file gets the program's name before it has run there. The version is then its only output.
const SCRIPT: &str = "\
umask 022; d=$HOME/.local/bin; t=$d/.netblt.$$; mkdir -p \"$d\" || exit 1; \
if cat >\"$t\" && chmod 755 \"$t\" && v=$(\"$t\" --version 2>&1); \
then mv -f \"$t\" \"$d/netblt\" && echo \"netblt installed: $v\"; \
else rm -f \"$t\"; echo \"netblt fails: $v\"; exit 1; fi";
const INSTALLED: &str = "netblt installed: ";
const FAILS: &str = "netblt fails: ";

/// A machine that has no such program, as its `uname -sm` calls it: "Linux x86_64".
pub(crate) struct Machine(pub(crate) String);

impl Machine {
    /// The program for it: this one, or one for other machines beside it.
    fn program(&self) -> Result<PathBuf, Failure> {
        let own = std::env::current_exe()
            .map_err(|error| Failure::new(Code::File, format!("this program's file: {error}")))?;
        let (system, architecture) = self.0.split_once(' ').unwrap_or((&self.0, ""));
        let architecture = match architecture {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            same => same,
        };
        if system.eq_ignore_ascii_case(OS) && architecture == ARCH {
            return Ok(own);
        }
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = format!("netblt-{architecture}-{}", system.to_ascii_lowercase());
        let other = own.with_file_name(&name);
        if plain(system) && plain(architecture) && other.is_file() {
            return Ok(other);
        }
        Err(Failure::new(
            Code::Start,
            format!(
                "this is netblt for {OS} {ARCH}, and there is none for {} to install: put one into \
                 {} as {name}, or install it there by hand",
                self.0,
                own.with_file_name("").display(),
            ),
        ))
    }
}

/// Installs this program on `host`, asking first unless `yes`.
pub(crate) fn install(
    ssh: &SshOptions,
    host: &Host,
    family: Family,
    machine: &Machine,
    yes: bool,
    report: &Reporter,
) -> Result<(), Failure> {
    let program = machine.program()?;
    let (name, version) = (&host.name, env!("CARGO_PKG_VERSION"));
    if !yes {
        ask(&format!("Install netblt {version} into ~/.local/bin on {}? [y/N] ", printable(name)))?;
    }
    let file = File::open(&program)
        .map_err(|error| Failure::new(Code::File, format!("{}: {error}", program.display())))?;
    let output = ssh.run(host, family, SCRIPT, file)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = |mark| text.lines().find_map(|line| line.strip_prefix(mark));
    match (said(INSTALLED), said(FAILS)) {
        (Some(version), _) if output.status.success() => {
            report.detail(&format!("Installed {} on {name}.", printable(version)));
            Ok(())
        }
        (_, Some(why)) => Err(Failure::new(
            Code::Start,
            format!(
                "{} does not run on {name} ({why}): the static program of the packages runs \
                 anywhere",
                program.display()
            ),
        )),
        _ => Err(Failure::new(Code::Start, format!("cannot install netblt on {name}"))),
    }
}

fn ask(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--install asks first, and there is no terminal to answer on: add --yes",
        ));
    }
    let mut answer = String::new();
    let asked =
        write!(io::stderr(), "{question}").and_then(|()| io::stdin().read_line(&mut answer));
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    match asked {
        Ok(_) if agreed => Ok(()),
        Ok(_) => Err(Failure::new(Code::Start, "netblt was not installed there")),
        Err(error) => Err(Failure::new(Code::Start, format!("cannot ask: {error}"))),
    }
}
