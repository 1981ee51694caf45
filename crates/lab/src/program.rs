//! What differs between this program and others: groups of commands, short helps, environment.

use clap::CommandFactory as _;
use netblt_cli_common::program::{Group, Program, Shown, Variable};

use crate::Cli;

const GROUPS: [Group; 2] = [
    ("Laboratory", &["emulate", "simulate", "report"]),
    ("Tools", &["completions", "man", "help"]),
];

const SHOWN: [Shown; 2] = [
    (
        &["emulate", "relay"],
        &[
            "listen",
            "to",
            "scenario",
            "seed",
            "rate",
            "delay",
            "rtt",
            "jitter",
            "loss",
            "reorder",
            "duplicate",
            "corrupt",
            "queue",
            "mtu",
            "stats",
            "json",
            "trace",
            "quiet",
        ],
    ),
    (
        &["emulate", "tun"],
        &[
            "host-a",
            "host-b",
            "scenario",
            "seed",
            "rate",
            "delay",
            "rtt",
            "jitter",
            "loss",
            "reorder",
            "duplicate",
            "queue",
            "mtu",
            "stats",
            "json",
            "quiet",
        ],
    ),
];

const ENVIRONMENT: [Variable; 3] = [
    (
        "NETBLT_NS_A, NETBLT_NS_B",
        &["netblt-lab-emulate-tun"],
        "For COMMAND and the programs in the hosts: the names of the two network namespaces.",
    ),
    (
        "NETBLT_IP_A, NETBLT_IP_B, NETBLT_IP6_A, NETBLT_IP6_B",
        &["netblt-lab-emulate-tun"],
        "For the same: the addresses of the two hosts.",
    ),
    (
        "SHELL",
        &["netblt-lab-emulate-tun"],
        "What runs without any COMMAND; /bin/sh if it is unset.",
    ),
];

/// This program.
pub(crate) fn program() -> Program {
    Program {
        name: "netblt-lab",
        command: Cli::command(),
        groups: &GROUPS,
        shown: &SHOWN,
        environment: &ENVIRONMENT,
        data_command: None,
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
