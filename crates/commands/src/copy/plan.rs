//! The plan of a copy: the route that its operands decide, with the parsed operands.

use std::ffi::{OsStr, OsString};

use crate::copy::location::Location;
use crate::copy::routes::Route;
use crate::exit::Failure;
use crate::host::Host;
use crate::server_client::address::ServerPath;

/// A copy: its route, with the sources and the target of that route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyPlan {
    /// From here to another machine, by ssh.
    SshUp { host: Host, sources: Vec<OsString>, target: OsString },
    /// From another machine to here, by ssh.
    SshDown { host: Host, sources: Vec<OsString>, target: OsString },
    /// From one other machine straight to another, by ssh to each.
    Hosts { from: Host, to: Host, sources: Vec<OsString>, target: OsString },
    /// From here to a server of files.
    ServerUp { sources: Vec<OsString>, target: ServerPath },
    /// From servers of files to here.
    ServerDown { sources: Vec<ServerPath>, target: OsString },
    /// From servers of files straight to another one.
    Servers { sources: Vec<ServerPath>, target: ServerPath },
    /// From one place of a server to another.
    Within { sources: Vec<ServerPath>, target: ServerPath },
}

/// The sources of a copy: all of one kind.
enum Origin {
    Here(Vec<OsString>),
    Host(Host, Vec<OsString>),
    Servers(Vec<ServerPath>),
}

impl CopyPlan {
    /// Parses the operands.
    ///
    /// # Errors
    ///
    /// An operand is no address, or there is no route between these.
    pub(crate) fn of(sources: &[OsString], target: &OsStr) -> Result<Self, Failure> {
        let origin = Origin::of(sources)?;
        match (origin, Location::parse(target)?) {
            (Origin::Here(sources), Location::Remote(host, target)) => {
                Ok(Self::SshUp { host, sources, target })
            }
            (Origin::Here(sources), Location::ServerPath(target)) => {
                Ok(Self::ServerUp { sources, target })
            }
            (Origin::Here(_), Location::Local(_)) => Err(Failure::usage(
                "both sides are on this machine, where cp copies; one must be HOST:PATH, with the \
                 colon (HOST: alone is your home there)",
            )),
            (Origin::Host(host, sources), Location::Local(target)) => {
                Ok(Self::SshDown { host, sources, target: target.into_os_string() })
            }
            (Origin::Host(from, sources), Location::Remote(to, target)) => {
                Ok(Self::Hosts { from, to, sources, target })
            }
            (Origin::Host(..), Location::ServerPath(_)) => Err(Failure::usage(
                "files for a server must be on this machine: copy them here first, or run netblt \
                 cp on the other machine",
            )),
            (Origin::Servers(sources), Location::Local(target)) => {
                Ok(Self::ServerDown { sources, target: target.into_os_string() })
            }
            (Origin::Servers(_), Location::Remote(..)) => Err(Failure::usage(
                "files of a server are copied to this machine or to another server: run netblt cp \
                 on the other machine",
            )),
            (Origin::Servers(sources), Location::ServerPath(target)) => {
                Self::between(sources, target)
            }
        }
    }

    fn between(sources: Vec<ServerPath>, target: ServerPath) -> Result<Self, Failure> {
        let on_target = sources.iter().filter(|source| source.host == target.host).count();
        match on_target {
            0 => Ok(Self::Servers { sources, target }),
            count if count == sources.len() => Ok(Self::Within { sources, target }),
            _ => Err(Failure::usage(
                "one source is on the target's own server and others are not: copy them one after \
                 the other",
            )),
        }
    }

    /// The row of the table of options.
    pub(crate) fn route(&self) -> Route {
        match self {
            Self::SshUp { .. } => Route::SshUp,
            Self::SshDown { .. } => Route::SshDown,
            Self::Hosts { .. } => Route::Hosts,
            Self::ServerUp { .. } => Route::ServerUp,
            Self::ServerDown { .. } => Route::ServerDown,
            Self::Servers { .. } => Route::Servers,
            Self::Within { .. } => Route::Within,
        }
    }
}

impl Origin {
    fn of(sources: &[OsString]) -> Result<Self, Failure> {
        let mut sources = sources.iter().map(|text| Location::parse(text));
        let mut origin = match sources.next().transpose()? {
            None => return Err(Failure::usage("there is nothing to copy")),
            Some(Location::Local(path)) => Self::Here(vec![path.into_os_string()]),
            Some(Location::Remote(host, path)) => Self::Host(host, vec![path]),
            Some(Location::ServerPath(path)) => Self::Servers(vec![path]),
        };
        for source in sources {
            match (&mut origin, source?) {
                (Self::Here(all), Location::Local(path)) => all.push(path.into_os_string()),
                (Self::Host(host, all), Location::Remote(own, path)) if *host == own => {
                    all.push(path);
                }
                (Self::Servers(all), Location::ServerPath(path)) => all.push(path),
                (Self::Here(_) | Self::Host(..) | Self::Servers(_), _) => {
                    return Err(Failure::usage(
                        "the sources are on several machines: copy them one after the other",
                    ));
                }
            }
        }
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<CopyPlan, String> {
        let mut operands: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let target = operands.pop().expect("a target");
        CopyPlan::of(&operands, &target).map_err(|failure| failure.message)
    }

    #[test]
    fn the_operands_decide_the_route() {
        for (line, route) in [
            ("a b host:c", Route::SshUp),
            ("a scp://host/c", Route::SshUp),
            ("host:a host:b c", Route::SshDown),
            ("one:a one:b other:c", Route::Hosts),
            ("one:a one:c", Route::Hosts),
            ("a ./x:y netblt://host/c", Route::ServerUp),
            ("netblt://host/a netblt://other/b c", Route::ServerDown),
            ("netblt://one/a netblt://two/b netblt://other/c", Route::Servers),
            ("netblt://host/a netblt://host:7000/b", Route::Servers),
            ("netblt://host/a netblt://host/b netblt://host/c", Route::Within),
            ("netblt:///a netblt:///b", Route::Within),
        ] {
            assert_eq!(plan(line).map(|plan| plan.route()), Ok(route), "{line}");
        }
    }

    #[test]
    fn a_plan_has_the_parsed_operands() {
        let host = |name: &str| Host { user: None, name: name.to_owned(), port: None };
        let served = |path: &str| ServerPath::parse(OsStr::new(path)).expect("an address");
        assert_eq!(
            plan("one:a one: other:c"),
            Ok(CopyPlan::Hosts {
                from: host("one"),
                to: host("other"),
                sources: vec!["a".into(), ".".into()],
                target: "c".into(),
            })
        );
        assert_eq!(
            plan("./x:y netblt://host/c%20d"),
            Ok(CopyPlan::ServerUp {
                sources: vec!["./x:y".into()],
                target: served("netblt://host/c%20d"),
            })
        );
    }

    #[test]
    fn operands_without_a_route_are_refused() {
        for (line, why) in [
            ("a b", "both sides are on this machine"),
            ("a host:b c", "on several machines"),
            ("one:a other:b c", "on several machines"),
            ("one:a other:b third:c", "on several machines"),
            ("a netblt://host/b c", "on several machines"),
            ("netblt://host/a host:b c", "on several machines"),
            ("host:a netblt://host/b", "must be on this machine"),
            ("netblt://host/a host:b", "to this machine or to another server"),
            ("netblt://one/a netblt://two/b netblt://two/c", "the target's own server"),
            ("netblt://host:0/a b", "port"),
            ("a $(x):b", "characters"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
