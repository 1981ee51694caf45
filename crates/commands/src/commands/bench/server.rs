//! `netblt bench -s`: waits for tests and reports each.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;

use netblt::bench::{self, BenchObserver, BenchService, Outcome};
use netblt::{Cancel, Error, Ticket};
use netblt_proto::config::Role;
use netblt_proto::wire::packet::Parameters;
use serde_json::json;

use super::{Args, columns, document};
use crate::args::WireName;
use crate::exit::Failure;
use crate::hints;
use crate::reporter;
use crate::stdout::{self, say};

pub(super) fn run(args: &Args, cancel: &Cancel) -> Result<(), Failure> {
    let mut options = args.options()?;
    match args.connection.raw_ip {
        true => options.rfc998.port = Some(args.port()),
        false => options.network.port = args.port(),
    }
    if args.private && args.connection.wire == WireName::Rfc998 {
        return Err(Failure::usage("--private needs the sealed wire: rfc998 knows no secrets"));
    }
    let service = BenchService { private: args.private, once: args.one_off };
    let mut reporter = TestReporter { args, tests: 0 };
    match bench::serve(service, &options, &mut reporter, cancel) {
        // The normal end of a server.
        Ok(()) | Err(Error::Interrupted) => Ok(()),
        Err(error) => Err(Failure::transfer(&error, false)),
    }
}

struct TestReporter<'a> {
    args: &'a Args,
    tests: u64,
}

impl TestReporter<'_> {
    fn note(&self, text: &str) {
        if !self.args.quiet && !self.args.json {
            say(text);
        }
    }

    fn print(&self, text: &str) -> io::Result<()> {
        stdout::write(format!("{text}\n").as_bytes())
    }
}

impl BenchObserver for TestReporter<'_> {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        if self.args.private {
            reporter::check_read(io::stdout(), "standard output")?;
        }
        let secret = ticket.to_string();
        if self.args.json {
            let data = json!({ "ticket": secret, "addresses": ticket.addresses });
            return document::print(&json!({ "event": "listening", "data": data }));
        }
        let raw_ip = self.args.connection.raw_ip;
        let wire = match self.args.connection.wire {
            WireName::Sealed => "",
            WireName::Rfc998 if raw_ip => " --wire rfc998 --raw-ip",
            WireName::Rfc998 => " --wire rfc998",
        };
        let port = match self.args.port {
            None | Some(bench::PORT) if !raw_ip => String::new(),
            None => String::new(),
            Some(port) => format!(" -p {port}"),
        };
        if !self.args.private {
            self.note(&format!(
                "Any client that reaches it may test: netblt bench -c HOST{port}{wire}"
            ));
        }
        // Without tickets, clients need only the address.
        let address = ticket.addresses.first().unwrap_or(&secret);
        let (target, port) = match self.args.connection.wire {
            WireName::Sealed => (&secret, ""),
            // A host has no port there.
            WireName::Rfc998 if raw_ip => (
                &address.parse().map_or(address.clone(), |at: SocketAddr| at.ip().to_string()),
                port.as_str(),
            ),
            WireName::Rfc998 => (address, ""),
        };
        match io::stdout().is_terminal() {
            true => self.print(&format!("netblt bench -c {target}{port}{wire}"))?,
            false => self.print(target)?,
        }
        let ports: Vec<&str> = ticket.addresses.iter().map(String::as_str).collect();
        self.note(&format!("Waiting at {}. Ctrl-C stops.", ports.join(", ")));
        Ok(())
    }

    fn opened(&mut self, peer: SocketAddr, role: Role, _: &Parameters) {
        let what = match role {
            Role::Sender => "wants data",
            Role::Receiver => "sends",
        };
        self.note(&format!("{peer} {what}."));
    }

    fn warn(&mut self, error: &Error) {
        say(&format!("netblt: warning: {error}{}", hints::on_error(error)));
    }

    fn closed(&mut self, peer: SocketAddr, result: Result<Outcome, Error>) {
        let fixed = self.args.connection.is_fixed();
        match result {
            Ok(outcome) if self.args.json => {
                let mut data = document::figures(&outcome, fixed);
                data["peer"] = json!(peer.to_string());
                let _ = document::print(&json!({ "event": "test", "data": data }));
            }
            Ok(outcome) => {
                if self.tests == 0 {
                    let _ = self.print(&columns::head());
                }
                self.tests += 1;
                let name = match outcome.role {
                    Role::Sender => "out",
                    Role::Receiver => "in",
                };
                let _ = self.print(&columns::row(name, &outcome, fixed));
            }
            Err(error) if self.args.json => {
                let data = json!({ "peer": peer.to_string(), "message": error.to_string() });
                let _ = document::print(&json!({ "event": "error", "data": data }));
            }
            Err(error) => self.note(&format!("{peer}: {error}")),
        }
    }
}
