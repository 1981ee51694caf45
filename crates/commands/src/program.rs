//! What differs between this program and others: groups of commands, short helps, environment.

use clap::CommandFactory as _;
use netblt_cli_common::program::{Group, Program, Shown, Variable};

use crate::Cli;
use crate::args::TICKET_VARIABLE;

const GROUPS: [Group; 4] = [
    ("Transfer", &["cp", "sync", "send", "receive", "clean", "control", "keygen", "config"]),
    ("Server", &["serve", "ls", "stat", "mv", "rm", "mkdir"]),
    ("Fleet", &["fleet"]),
    ("Tools", &["bench", "plan", "demo", "completions", "man", "help"]),
];

const SHOWN: [Shown; 5] = [
    (
        &["cp"],
        &[
            "recursive",
            "preserve",
            "dry-run",
            "exclude",
            "update",
            "policy",
            "rate",
            "udp-port",
            "streams",
            "fallback",
            "P",
            "i",
            "install",
            "ticket-file",
            "json",
            "quiet",
        ],
    ),
    (
        &["sync"],
        &[
            "delete",
            "max-delete",
            "backup-dir",
            "include",
            "exclude",
            "checksum",
            "dry-run",
            "itemize-changes",
            "rate",
            "udp-port",
            "P",
            "i",
            "json",
            "quiet",
        ],
    ),
    (
        &["send"],
        &[
            "to",
            "exclude",
            "ticket-stdin",
            "rate",
            "policy",
            "port",
            "bind",
            "advertise",
            "wait",
            "streams",
            "wire",
            "json",
            "quiet",
            "report",
        ],
    ),
    (
        &["receive"],
        &[
            "ticket-stdin",
            "list",
            "as",
            "overwrite",
            "verify",
            "preserve",
            "max-size",
            "port",
            "bind",
            "advertise",
            "wait",
            "streams",
            "wire",
            "json",
            "quiet",
            "report",
        ],
    ),
    (
        &["bench"],
        &[
            "server", "client", "one-off", "private", "port", "time", "bytes", "reverse",
            "parallel", "bitrate", "policy", "wire", "bind", "ipv4", "ipv6", "interval", "json",
            "quiet",
        ],
    ),
];

const ENVIRONMENT: [Variable; 2] = [
    (
        TICKET_VARIABLE,
        &["netblt-send", "netblt-receive", "netblt-bench"],
        "The ticket of the side that listens, out of sight of other users; an argument beats it.",
    ),
    (
        "NO_COLOR, TERM",
        &["netblt-cp", "netblt-send", "netblt-receive", "netblt-demo"],
        "The progress bar is without colours if NO_COLOR is set to anything. If TERM is \"dumb\", \
         lines are printed from time to time in its place.",
    ),
];

/// This program.
pub(crate) fn program() -> Program {
    Program {
        name: "netblt",
        command: Cli::command(),
        groups: &GROUPS,
        shown: &SHOWN,
        environment: &ENVIRONMENT,
        data_command: Some("receive"),
    }
}

#[cfg(test)]
mod tests {
    use netblt_cli_common::command_line;

    use super::*;

    #[test]
    fn the_tables_fit_the_command_line_and_no_option_shows_a_number_parsers_error() {
        assert_eq!(command_line::problems(&program()), Vec::<String>::new());
    }
}
