//! The programs that take part. A rival is a few facts: what it needs, the command line of either
//! side, when the far side is ready, when it is over, and what shows that everything has arrived.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netblt_emu::netns::Host;
use netblt_proto::config::EmulatedProtocol;
use netblt_proto::units::Rate;

use crate::process::Words;
use crate::testbed::{Ground, Room, same};

/// Directories for programs besides `PATH`: daemons are not in everyone's.
const ALSO: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Ports within the far host, which is otherwise empty.
const SRT_PORT: u16 = 9000;
const UFTP_PORT: u16 = 1044;
const IPERF_PORT: u16 = 5201;
const SSH_PORT: u16 = 22;
/// A program that needs a rate gets this part of the link's, in per cent, IP headers included.
pub const GIVEN_PERCENT: u64 = 95;
/// The kernel's list of congestion controls.
const CONGESTION_CONTROLS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A program that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name, one word.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Ours, by one of its policies.
    Ours(&'static str),
    /// Another's rules on our packets.
    Recreated(EmulatedProtocol),
    /// iperf3 by a kernel's congestion control.
    Tcp(&'static str),
    /// Over an sshd of the contest's own.
    Ssh(Copier),
    Srt,
    Uftp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copier {
    Scp,
    Rsync,
    Qcp,
}

/// When the far side can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It has printed a ticket.
    Ticket,
    /// It listens at this TCP port.
    Tcp(u16),
    /// It has this UDP port.
    Udp(u16),
}

/// The side whose end is the end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The near side's: it knows then that all has come. The far side ends by itself.
    Near,
    /// The near side's, and the far side waits for others: it has to be ended.
    NearOfDaemon,
    /// Both: the near side does not wait for data in flight.
    Both,
}

/// All of them, in the order of the page.
pub fn all() -> Vec<Rival> {
    let own = ["fair", "background", "aggressive", "cubic", "fixed"].map(|policy| {
        let name = if policy == "fair" { "netblt".to_owned() } else { format!("netblt-{policy}") };
        Rival { name, kind: Kind::Ours(policy) }
    });
    let tcp =
        ["cubic", "bbr"].map(|law| Rival { name: format!("tcp-{law}"), kind: Kind::Tcp(law) });
    let copiers = [("scp", Copier::Scp), ("rsync", Copier::Rsync), ("qcp", Copier::Qcp)];
    let copiers =
        copiers.map(|(name, copier)| Rival { name: name.to_owned(), kind: Kind::Ssh(copier) });
    let others = [("srt", Kind::Srt), ("uftp", Kind::Uftp)];
    let others = others.map(|(name, kind)| Rival { name: name.to_owned(), kind });
    let gallery = EmulatedProtocol::ALL.iter().map(|&protocol| Rival {
        name: protocol.name().replace('_', "-"),
        kind: Kind::Recreated(protocol),
    });
    own.into_iter().chain(tcp).chain(copiers).chain(others).chain(gallery).collect()
}

impl Rival {
    /// Its description, for people.
    pub fn about(&self) -> String {
        match self.kind {
            Kind::Ours("fair") => "ours, without a given rate".to_owned(),
            Kind::Ours(policy) if self.percent().is_none() => {
                format!("ours, --policy {policy}, without a given rate")
            }
            Kind::Ours(policy) => {
                format!("ours, --policy {policy}, at {GIVEN_PERCENT} % of the link")
            }
            Kind::Recreated(protocol) => match given_percent(protocol) {
                Some(100) => "re-created on our packets, given the link's rate".to_owned(),
                Some(percent) => {
                    format!("re-created on our packets, given {percent} % of the link")
                }
                None => "re-created on our packets".to_owned(),
            },
            Kind::Tcp(law) => {
                format!("iperf3 with the kernel's {law}: plain, from memory, nothing verified")
            }
            Kind::Ssh(Copier::Qcp) => "qcp: QUIC, started by ssh".to_owned(),
            Kind::Ssh(Copier::Scp) => "scp of OpenSSH, over the kernel's TCP".to_owned(),
            Kind::Ssh(Copier::Rsync) => "rsync over ssh, over the kernel's TCP".to_owned(),
            Kind::Srt => "srt-file-transmit: SRT's file mode, plain".to_owned(),
            Kind::Uftp => format!("uftp, plain, given {GIVEN_PERCENT} % of the link"),
        }
    }

    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours(_))
    }

    /// Programs of others that it needs.
    fn programs(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Ours(_) | Kind::Recreated(_) => &[],
            Kind::Tcp(_) => &["iperf3"],
            Kind::Ssh(Copier::Scp) => &["scp", "ssh", "sshd", "ssh-keygen"],
            Kind::Ssh(Copier::Rsync) => &["rsync", "ssh", "sshd", "ssh-keygen"],
            Kind::Ssh(Copier::Qcp) => &["qcp", "ssh", "sshd", "ssh-keygen"],
            Kind::Srt => &["srt-file-transmit"],
            Kind::Uftp => &["uftp", "uftpd"],
        }
    }

    /// What it needs and this machine or the path lacks.
    pub fn missing(&self, rate: Option<Rate>) -> Option<String> {
        let absent: Vec<&str> =
            self.programs().iter().copied().filter(|name| program(name).is_none()).collect();
        if !absent.is_empty() {
            return Some(format!("no `{}` on PATH", absent.join("`, no `")));
        }
        if let Kind::Tcp(law) = self.kind {
            let known = fs::read_to_string(CONGESTION_CONTROLS).unwrap_or_default();
            if !known.split_whitespace().any(|known| known == law) {
                return Some(format!("this kernel has no {law} (`modprobe tcp_{law}`)"));
            }
        }
        (self.percent().is_some() && rate.is_none())
            .then(|| "it needs a rate, and this path has none".to_owned())
    }

    /// The part of the link's rate that it is given.
    fn percent(&self) -> Option<u64> {
        match self.kind {
            Kind::Ours("fixed") | Kind::Uftp => Some(GIVEN_PERCENT),
            Kind::Recreated(protocol) => given_percent(protocol),
            _ => None,
        }
    }

    /// Prepares a run.
    pub(crate) fn prepare(&self, ground: &Ground<'_>) -> Result<(), String> {
        match self.kind {
            Kind::Ssh(_) => prepare_ssh(ground.room, &ground.hosts.b),
            _ => Ok(()),
        }
    }

    /// The far side's words: it is started first. `netblt` is the program of that name.
    pub(crate) fn far(&self, ground: &Ground<'_>, netblt: &Path) -> Words {
        let here = ground.hosts.b.address;
        let to = ground.room.destination();
        match self.kind {
            Kind::Ours(_) | Kind::Recreated(_) => {
                let bind = format!("--bind={here}");
                words(netblt, &["receive", "--quiet", "--wait=1min", &bind], &[&to])
            }
            Kind::Tcp(_) => words("iperf3", &["-s", "-1", "-p", &IPERF_PORT.to_string()], &[]),
            Kind::Ssh(_) => {
                let sshd = program("sshd").unwrap_or_else(|| "sshd".into());
                let listen = format!("ListenAddress={here}");
                words(sshd, &["-D", "-e", "-o", &listen, "-f"], &[&ground.room.path("sshd_config")])
            }
            Kind::Srt => {
                let from = format!("srt://:{SRT_PORT}?mode=listener");
                words(
                    "srt-file-transmit",
                    &["-q", &from, &format!("file://{}/", to.display())],
                    &[],
                )
            }
            Kind::Uftp => {
                let port = UFTP_PORT.to_string();
                let uftpd = program("uftpd").unwrap_or_else(|| "uftpd".into());
                words(uftpd, &["-d", "-p", &port, "-D"], &[&to])
            }
        }
    }

    pub(crate) fn ready(&self) -> Ready {
        match self.kind {
            Kind::Ours(_) | Kind::Recreated(_) => Ready::Ticket,
            Kind::Tcp(_) => Ready::Tcp(IPERF_PORT),
            Kind::Ssh(_) => Ready::Tcp(SSH_PORT),
            Kind::Srt => Ready::Udp(SRT_PORT),
            Kind::Uftp => Ready::Udp(UFTP_PORT),
        }
    }

    /// The near side's command line, after this output of the far side.
    pub(crate) fn near(&self, ground: &Ground<'_>, netblt: &Path, said: &str, bytes: u64) -> Words {
        let there = ground.hosts.b.address.to_string();
        let from = ground.room.source();
        let rate = self.percent().zip(ground.rate).map(|(part, rate)| rate.scaled(part, 100));
        match self.kind {
            Kind::Ours(_) | Kind::Recreated(_) => {
                let ticket = said.split_whitespace().find(|word| word.starts_with("netblt1:"));
                let ticket = format!("--to={}", ticket.unwrap_or_default());
                let law = match self.kind {
                    Kind::Recreated(protocol) => {
                        format!("--protocol={}", protocol.name().replace('_', "-"))
                    }
                    Kind::Ours(policy) => format!("--policy={policy}"),
                    _ => String::new(),
                };
                let mut all =
                    vec!["send".to_owned(), "--quiet".to_owned(), "--no-path-cache".to_owned()];
                all.extend([law, ticket]);
                all.extend(rate.map(|rate| format!("--rate={}bit", rate.bits_per_second())));
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                words(netblt, &all, &[&from])
            }
            Kind::Tcp(law) => {
                let (port, bytes) = (IPERF_PORT.to_string(), bytes.to_string());
                words(
                    "iperf3",
                    &["-c", &there, "-p", &port, "-C", law, "-n", &bytes, "--json"],
                    &[],
                )
            }
            Kind::Ssh(copier) => ssh_words(copier, ground.room),
            Kind::Srt => {
                let to = format!("srt://{there}:{SRT_PORT}");
                let from = format!("file://{}", from.display());
                words("srt-file-transmit", &["-q", &from, &to], &[])
            }
            Kind::Uftp => {
                let kilobits = rate.map_or(0, |rate| rate.bits_per_second() / 1000).to_string();
                let port = UFTP_PORT.to_string();
                words("uftp", &["-p", &port, "-M", &there, "-R", &kilobits], &[&from])
            }
        }
    }

    pub(crate) fn over(&self) -> Over {
        match self.kind {
            Kind::Ours(_) | Kind::Recreated(_) | Kind::Tcp(_) => Over::Near,
            Kind::Ssh(_) | Kind::Uftp => Over::NearOfDaemon,
            Kind::Srt => Over::Both,
        }
    }

    /// How many bytes came, by the far side; all have to be those that were sent.
    pub(crate) fn came(&self, room: &Room, near_said: &str, bytes: u64) -> Result<u64, String> {
        if let Kind::Tcp(_) = self.kind {
            return iperf_came(near_said);
        }
        let source = room.source();
        let name = source.file_name().unwrap_or_default();
        match same(&source, &room.destination().join(name)) {
            true => Ok(bytes),
            false => Err("what came is not what was sent".to_owned()),
        }
    }
}

/// The part of the link's rate that a re-creation is given, in per cent: for FOBS that of its
/// cards, for Tsunami its target, for RBUDP the rate that it keeps.
const fn given_percent(protocol: EmulatedProtocol) -> Option<u64> {
    match protocol {
        EmulatedProtocol::Fobs | EmulatedProtocol::Tsunami => Some(100),
        EmulatedProtocol::Rbudp => Some(GIVEN_PERCENT),
        _ => None,
    }
}

fn words(program: impl Into<OsString>, texts: &[&str], paths: &[&Path]) -> Words {
    let texts = texts.iter().map(OsString::from);
    let paths = paths.iter().map(|path| path.as_os_str().to_owned());
    [program.into()].into_iter().chain(texts).chain(paths).collect()
}

/// The path of a program: the first on PATH, or where daemons are.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(ALSO.map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

fn ssh_words(copier: Copier, room: &Room) -> Words {
    let config = room.path("ssh_config");
    let from = room.source();
    let to = format!("b:{}/", room.destination().display());
    match copier {
        Copier::Scp => {
            let mut all = words("scp", &["-q", "-F"], &[&config, &from]);
            all.push(to.into());
            all
        }
        Copier::Rsync => {
            let ssh = format!("ssh -F {}", config.display());
            let mut all = words("rsync", &["-e", &ssh], &[&from]);
            all.push(to.into());
            all
        }
        Copier::Qcp => {
            // It resolves names itself, and has ssh do so again.
            let own = config.display().to_string();
            let texts = ["-q", "--ssh-config", &own, "-S", "-F", "-S"];
            let mut all = words("qcp", &texts, &[&config, &from]);
            all.push(to.into());
            all
        }
    }
}

/// Keys of the comparison's own, and an sshd's settings that accept no other.
fn prepare_ssh(room: &Room, there: &Host) -> Result<(), String> {
    let at = |name: &str| room.path(name).display().to_string();
    if room.path("sshd_config").exists() {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("no keys for ssh: {error}");
    // sshd runs part of itself there, and no package makes it before the service starts.
    fs::create_dir_all("/run/sshd").map_err(failed)?;
    for name in ["host_key", "key"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(room.path(name));
        let made = command.stdin(Stdio::null()).status().map_err(failed)?;
        if !made.success() {
            return Err("no keys for ssh: ssh-keygen failed".to_owned());
        }
    }
    let server = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nMaxStartups 100\n\
         Subsystem sftp internal-sftp\n",
        at("host_key"),
        at("key.pub")
    );
    let client = format!(
        "Host b\nHostName {}\nUser root\nIdentityFile {}\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile {}\nLogLevel ERROR\nBatchMode yes\n",
        there.address,
        at("key"),
        at("known")
    );
    fs::write(room.path("ssh_config"), client).map_err(failed)?;
    fs::write(room.path("sshd_config"), server).map_err(failed)
}

/// The bytes that iperf3's server has received, by its report to the client. It ends when the
/// client has handed over the last byte, so data in flight then do not arrive.
fn iperf_came(said: &str) -> Result<u64, String> {
    let report: serde_json::Value = serde_json::from_str(said)
        .map_err(|error| format!("iperf3 said what is no JSON: {error}"))?;
    let bytes = report["end"]["sum_received"]["bytes"].as_u64();
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| match report["error"].as_str() {
        Some(error) => format!("iperf3: {error}"),
        None => "iperf3 said nothing of what came".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rival_has_its_own_name_and_names_its_requirements() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|rival| rival.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(
            names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        );
        for wanted in
            ["netblt", "netblt-background", "tcp-cubic", "tcp-bbr", "scp", "sabul", "rbudp", "udt"]
        {
            assert!(names.contains(wanted), "{wanted}");
        }
        let rbudp = all.iter().find(|rival| rival.name == "rbudp").expect("it is there");
        assert_eq!(rbudp.missing(Some(Rate::from_bits_per_second(1_000_000))), None);
        assert!(rbudp.missing(None).is_some_and(|why| why.contains("needs a rate")));
        assert!(all.iter().all(|rival| !rival.about().is_empty()));
        assert!(program("no-such-program").is_none() && program("sh").is_some());
    }

    #[test]
    fn iperfs_received_bytes_come_from_its_server() {
        let said = r#"{"end":{"sum_sent":{"bytes":9},"sum_received":{"bytes":8}}}"#;
        assert_eq!(iperf_came(said), Ok(8));
        let refused = iperf_came(r#"{"end":{},"error":"no route"}"#);
        assert!(refused.is_err_and(|why| why.contains("no route")));
        assert!(iperf_came("oops").is_err());
        assert!(iperf_came(r#"{"end":{"sum_received":{"bytes":0}}}"#).is_err());
    }
}
