//! The options of each route of `netblt cp`. A route refuses an option that means nothing on it, so
//! that no option is ignored in silence.

use crate::copy::given::GivenOptions;
use crate::exit::Failure;

/// The kinds of the two ends of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// From here to another machine, by ssh.
    SshUp,
    /// From another machine to here, by ssh.
    SshDown,
    /// From one other machine to another, by ssh to each.
    Hosts,
    /// From here to a server of files.
    ServerUp,
    /// From servers of files to here.
    ServerDown,
    /// From servers straight to another one.
    Servers,
    /// From one place of a server to another.
    Within,
}

use Route::{Hosts, ServerDown, ServerUp, Servers, SshDown, SshUp, Within};

impl Route {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [SshUp, SshDown, Hosts, ServerUp, ServerDown, Servers, Within];

    /// The route in a message.
    fn shown(self) -> &'static str {
        match self {
            SshUp => "to another machine",
            SshDown => "from another machine",
            Hosts => "between two other machines",
            ServerUp => "to a server",
            ServerDown => "from a server",
            Servers => "between two servers",
            Within => "within one server",
        }
    }
}

/// An option as users write it, and the routes on which it means nothing, with the reasons.
type Row = (&'static str, &'static [(&'static [Route], &'static str)]);

const BY_SSH: &[Route] = &[SshUp, SshDown, Hosts];
const BY_SERVER: &[Route] = &[ServerUp, ServerDown, Servers, Within];
const CHOSEN_THERE: &[Route] = &[ServerDown, Servers, Within];
const SENT_THERE: &[Route] = &[ServerDown, Servers];
const STORED_THERE: &[Route] = &[ServerUp, Servers];

const NOT_SENT: &str = "the server copies its own files, and nothing is sent";
const NO_SSH: &str = "the connection to a server does not use ssh";
const NO_SERVER: &str = "only addresses with netblt:// use it";
const NOTHING_HERE: &str = "the data do not pass through this machine";
const NOT_STORED_HERE: &str = "the files are stored at the other side";
const NO_CHOICE: &str = "a server does not select among its files";
const NO_COMPARISON: &str = "a server does not compare files before a copy";
const NOT_KEPT: &str = "a server keeps only permissions and times (-p)";
const OWN_WAY: &str = "the sending server decides this";
const OWN_STORE: &str = "the server that stores the files decides this";
const OWN_RATE: &str = "max-rate= in the line of your key on the server is the limit";
const BY_ITSELF: &str = "each machine knows only its own files";

const TABLE: &[Row] = &[
    // Which files.
    (
        "--dry-run",
        &[(&[Hosts], BY_ITSELF), (&[Servers, Within], "`netblt ls` shows the files of a server")],
    ),
    ("--update", &[(&[Hosts], BY_ITSELF), (BY_SERVER, NO_COMPARISON)]),
    ("--ignore-existing", &[(&[Hosts], BY_ITSELF), (BY_SERVER, NO_COMPARISON)]),
    ("--files-from", &[(&[Hosts], "the list is on this machine"), (BY_SERVER, NO_CHOICE)]),
    ("--exclude", &[(CHOSEN_THERE, NO_CHOICE)]),
    ("--copy-links", &[(CHOSEN_THERE, "a server does not follow links")]),
    (
        "--allow-changes",
        &[(CHOSEN_THERE, "a server leaves out files that change while they are read")],
    ),
    ("--chmod", &[(CHOSEN_THERE, "a server does not change permissions")]),
    // How they are stored.
    ("--owner", &[(BY_SERVER, NOT_KEPT)]),
    ("--xattrs", &[(BY_SERVER, NOT_KEPT)]),
    ("--acls", &[(BY_SERVER, NOT_KEPT)]),
    ("--atomic", &[(&[Within], NOT_SENT)]),
    ("--verify", &[(&[Within], NOT_SENT)]),
    ("--resume", &[(&[Servers], OWN_STORE), (&[Within], NOT_SENT)]),
    ("--resume verify", &[(&[ServerUp], OWN_STORE)]),
    ("--keep-partial", &[(STORED_THERE, OWN_STORE), (&[Within], NOT_SENT)]),
    ("--max-files", &[(&[ServerUp, Servers, Within], OWN_STORE)]),
    // It needs --manifest, and is named first.
    ("--manifest-format", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    ("--manifest", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    ("--hash", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    ("--expect", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    (
        "--store-hash",
        &[(&[SshUp, ServerUp], NOT_STORED_HERE), (&[Hosts, Servers, Within], NOTHING_HERE)],
    ),
    // How they are sent.
    ("--no-path-cache", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--fec", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--policy", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--rate", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("-l", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("--bwlimit", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("--streams", &[(&[Servers], "--streams of netblt serve decides this"), (&[Within], NOT_SENT)]),
    ("--fallback", &[(BY_SERVER, NO_SSH)]),
    ("--fallback always", &[(&[Hosts], NOTHING_HERE)]),
    ("--trace", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    ("--report", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    // The options of the output.
    ("--stats", &[(&[Within], NOT_SENT)]),
    ("--progress", &[(&[Within], NOT_SENT)]),
    // The connection to the other end.
    ("-P", &[(BY_SERVER, "a server's port is part of its address, netblt://HOST:PORT")]),
    ("-i twice", &[(BY_SERVER, "a server takes one key, and more than one is given")]),
    ("-F", &[(BY_SERVER, NO_SSH)]),
    ("-J", &[(BY_SERVER, NO_SSH)]),
    ("-o", &[(BY_SERVER, NO_SSH)]),
    ("-S", &[(BY_SERVER, NO_SSH)]),
    ("--remote-netblt", &[(BY_SERVER, NO_SSH)]),
    ("--install", &[(BY_SERVER, NO_SSH)]),
    ("--ticket-file", &[(BY_SSH, NO_SERVER)]),
    ("--known-servers", &[(BY_SSH, NO_SERVER)]),
];

/// Why an option of the table, such as `--rate` or `--fallback always`, means nothing on a route.
pub(crate) fn refusal(route: Route, option: &str) -> Option<&'static str> {
    let (_, refused) = TABLE.iter().find(|(own, _)| *own == option)?;
    refused.iter().find(|(routes, _)| routes.contains(&route)).map(|(_, why)| *why)
}

/// The first option that means nothing on this route is an error.
pub(crate) fn check(route: Route, given: &GivenOptions) -> Result<(), Failure> {
    for (option, _) in TABLE.iter().filter(|(option, _)| given.has(option)) {
        if let Some(why) = refusal(route, option) {
            let route = route.shown();
            return Err(Failure::usage(format!(
                "{option} means nothing for a copy {route}: {why}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;
    use crate::commands::options_of_copy;
    use crate::copy::given::names;

    /// Options that every route takes. `-B` forbids questions, and a copy with a server has none.
    const EVERYWHERE: &[&str] = &[
        "-r",
        "-p",
        "-4",
        "-6",
        "-v",
        "-q",
        "-B",
        "--json",
        "--udp-port",
        "--death-timer",
        "--help",
    ];
    /// Options that depend on another option of the table.
    const WITH_ANOTHER: &[&str] = &["-0", "--modify-window", "--yes"];

    /// A command line that gives the option, with what else it needs.
    fn line(option: &str) -> Vec<&str> {
        let value = match option {
            "--resume" => "never",
            "--files-from" | "--exclude" | "-F" | "-S" | "--remote-netblt" | "--manifest"
            | "--trace" | "--report" | "--expect" | "--ticket-file" | "--known-servers" => "x",
            "--chmod" => "u+w",
            "--manifest-format" => {
                return vec!["--manifest-format", "json", "--manifest", "x"];
            }
            "--hash" => "md5",
            "--keep-partial" => "1d",
            "--max-files" | "--streams" | "-P" | "-l" => "2",
            "--fec" => "5%",
            "--policy" => "background",
            "--rate" | "--bwlimit" => "1Mbit",
            "--fallback" => "never",
            "-J" => "host",
            "-o" => "A=b",
            "-i twice" => return vec!["-i", "a", "-i", "b"],
            "--progress" => return vec!["--progress=1s"],
            option => return option.split(' ').collect(),
        };
        vec![option, value]
    }

    fn said(option: &str, route: Route) -> Option<String> {
        let words = [&["netblt", "cp"][..], &line(option), &["a", "b"]].concat();
        check(route, &options_of_copy(&words)).err().map(|failure| failure.message)
    }

    #[test]
    fn every_option_means_something_on_a_route_or_is_refused_there() {
        for (option, refused) in TABLE {
            for route in Route::ALL {
                let why = refused.iter().find(|(routes, _)| routes.contains(&route));
                match (why, said(option, route)) {
                    (Some((_, why)), Some(said)) => {
                        // A longer row may say it first.
                        let short = option.split(' ').next().unwrap_or_default();
                        assert!(said.starts_with(short) && said.contains(route.shown()), "{said}");
                        assert!(option.contains(' ') || said.contains(why), "{said}");
                    }
                    (None, None) => {}
                    // Of two rows for one option, the other one.
                    (None, Some(_)) if option.contains(' ') => {}
                    (why, said) => panic!("{option} {route:?}: {why:?}, {said:?}"),
                }
            }
        }
    }

    /// The page of the reference.
    fn page() -> String {
        let mut page = String::from(
            "# Options of `netblt cp` on each route\n\n\
             A test writes this page from the table in `commands/src/copy/routes.rs`, by which \
             `netblt cp`\nrefuses options. A refused option ends the copy with exit code 1, and \
             the message has the reason.\nSeveral reasons are those of the refused routes from \
             left to right. An option with a value, such as\n`--resume verify`, is also refused \
             where the row of the option alone says no. Options that are not\nlisted mean the same \
             on every route.\n\n\
             | option | ssh: to a host | from a host | host to host | to a server | from a server \
             | server to server | within a server | reason |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for (option, refused) in TABLE {
            let cell = |route: Route| match refused.iter().any(|(no, _)| no.contains(&route)) {
                true => "no",
                false => "yes",
            };
            let cells = Route::ALL.map(cell).join(" | ");
            let reasons: Vec<&str> = refused.iter().map(|(_, why)| *why).collect();
            page += &format!("| `{option}` | {cells} | {} |\n", reasons.join("; "));
        }
        page
    }

    #[test]
    fn the_reference_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/copy-options.md");
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(path, page()).expect("written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page(), "{path} differs: INSTA_UPDATE=always renews it");
    }

    #[test]
    fn no_option_is_missing_in_the_table() {
        let command = Cli::command();
        let cp = command.find_subcommand("cp").expect("the command");
        let mut missing = Vec::new();
        for argument in cp.get_arguments().filter(|argument| !argument.is_positional()) {
            let named = |name: &&str| names(argument).any(|own| own == *name);
            let mut known = TABLE.iter().filter_map(|(option, _)| option.split(' ').next());
            let others = [EVERYWHERE, WITH_ANOTHER].concat();
            if !known.any(|option| named(&option)) && !others.iter().any(named) {
                missing.extend(names(argument));
            }
        }
        assert!(missing.is_empty(), "on which routes do these mean something? {missing:?}");
    }
}
