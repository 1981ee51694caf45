//! The options of each route of `netblt cp`. An option without a meaning on a route is refused: no
//! option is ignored in silence.

use crate::copy::given::GivenOptions;
use crate::exit::Failure;

/// Between which ends a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// From here to another machine, by ssh.
    SshUp,
    SshDown,
    /// From one other machine to another, by ssh to each.
    Hosts,
    /// From here to a server of files.
    ServerUp,
    ServerDown,
    /// From one server straight to another.
    Servers,
    /// From one place of a server to another.
    Within,
}

use Route::{Hosts, ServerDown, ServerUp, Servers, SshDown, SshUp, Within};

impl Route {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [SshUp, SshDown, Hosts, ServerUp, ServerDown, Servers, Within];

    /// As a message has it.
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

/// An option as users write it, the routes that know nothing of it, and why.
type Row = (&'static str, &'static [(&'static [Route], &'static str)]);

const BY_SSH: &[Route] = &[SshUp, SshDown, Hosts];
const BY_SERVER: &[Route] = &[ServerUp, ServerDown, Servers, Within];
const CHOSEN_THERE: &[Route] = &[ServerDown, Servers, Within];
const SENT_THERE: &[Route] = &[ServerDown, Servers];
const STORED_THERE: &[Route] = &[ServerUp, Servers];

const NOT_SENT: &str = "the server copies its own files, and nothing is sent";
const NO_SSH: &str = "a server is called without ssh";
const NO_SERVER: &str = "it is for addresses with netblt://";
const NOTHING_HERE: &str = "nothing of it passes here";
const NO_CHOICE: &str = "a server chooses nothing among its files";
const NO_COMPARISON: &str = "a server does not compare what it has";
const NOT_KEPT: &str = "a server keeps permissions and times (-p), and nothing more";
const OWN_WAY: &str = "the server that sends decides on that";
const OWN_STORE: &str = "the server that stores it decides on that";
const OWN_RATE: &str = "max-rate= in the line of your key there bounds it";
const BY_ITSELF: &str = "each of the two knows its own files only";

const TABLE: &[Row] = &[
    // Which files.
    (
        "--dry-run",
        &[(&[Hosts], BY_ITSELF), (&[Servers, Within], "`netblt ls` shows what is there")],
    ),
    ("--update", &[(&[Hosts], BY_ITSELF), (BY_SERVER, NO_COMPARISON)]),
    ("--ignore-existing", &[(&[Hosts], BY_ITSELF), (BY_SERVER, NO_COMPARISON)]),
    ("--files-from", &[(&[Hosts], "the list is here"), (BY_SERVER, NO_CHOICE)]),
    ("--exclude", &[(CHOSEN_THERE, NO_CHOICE)]),
    ("--copy-links", &[(CHOSEN_THERE, "a server follows no link")]),
    ("--allow-changes", &[(CHOSEN_THERE, "a server leaves out what changes while it is read")]),
    ("--chmod", &[(CHOSEN_THERE, NO_CHOICE)]),
    // How they are stored.
    ("--owner", &[(BY_SERVER, NOT_KEPT)]),
    ("--xattrs", &[(BY_SERVER, NOT_KEPT)]),
    ("--acls", &[(BY_SERVER, NOT_KEPT)]),
    ("--atomic", &[(&[Within], NOT_SENT)]),
    ("--verify", &[(&[Within], NOT_SENT)]),
    ("--resume", &[(&[Servers], OWN_STORE), (&[Within], NOT_SENT)]),
    ("--resume verify", &[(&[ServerUp], OWN_STORE)]),
    ("--keep-partial", &[(STORED_THERE, OWN_STORE), (&[Within], NOT_SENT)]),
    ("--max-files", &[(STORED_THERE, OWN_STORE), (&[Within], OWN_STORE)]),
    ("--manifest", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    // How they are sent.
    ("--no-path-cache", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--fec", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--policy", &[(SENT_THERE, OWN_WAY), (&[Within], NOT_SENT)]),
    ("--rate", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("-l", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("--bwlimit", &[(&[Servers], OWN_RATE), (&[Within], NOT_SENT)]),
    ("--streams", &[(&[Servers], "--streams of netblt serve does"), (&[Within], NOT_SENT)]),
    ("--fallback", &[(BY_SERVER, NO_SSH)]),
    ("--fallback always", &[(&[Hosts], "the data do not come here")]),
    ("--trace", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    ("--report", &[(&[Hosts, Servers, Within], NOTHING_HERE)]),
    // The options of the output.
    ("--stats", &[(&[Within], NOT_SENT)]),
    ("--progress", &[(&[Within], NOT_SENT)]),
    // How the other end is called.
    ("-P", &[(BY_SERVER, "a server's port stands in its address, netblt://HOST:PORT")]),
    ("-i twice", &[(BY_SERVER, "one key is yours there, and more than one is given")]),
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

    /// Options that mean something on every route, or nothing that could be missed: `-B` asks
    /// nothing, and a server asks nothing either.
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
            | "--trace" | "--report" | "--ticket-file" | "--known-servers" => "x",
            "--chmod" => "u+w",
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
             A test makes this page of the table by which `netblt cp` refuses options. A refused \
             option ends\nthe copy with exit code 1 and the reason. Options that are not listed \
             mean the same on every\nroute.\n\n\
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
