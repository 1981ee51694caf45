//! `netblt serve`: a directory for many.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use netblt::keys::{authorized, file};
use netblt::serve::{
    AuditRecord, AuthorizedClients, PORT, Permissions, ServerObserver, Service, Verdict, serve,
};
use netblt::ticket::{self, Ticket};
use netblt::{Cancel, Error, Options, ParallelStreams, PublicKey};
use netblt_proto::api::{printable, printable_bytes};
use netblt_proto::limits::{DEFAULT_MAX_FILES, MAX_FILES};
use netblt_proto::units::Rate;
use serde_json::{Value, json};

use crate::exit::{self, Code, Failure, plain};
use crate::json::{self, Name, Stream};
use crate::outcome;
use crate::reporter;
use crate::server_client::client;
use crate::service_manager::ServiceManager;
use crate::stdout::{self, say};
use crate::{args, hardening, hints, signals, units};

/// Serve a directory to many at once
///
/// Clients with the printed ticket, or one of the keys of --authorized-keys, may fetch files
/// beneath DIR with `netblt cp`, `ls` and `stat`, and change them with `cp`, `rm` and `mkdir`.
/// Nothing outside of DIR is seen or touched, and no symbolic link is followed. Ctrl-C or SIGTERM:
/// running requests are served to their end, and no new ones; a second time: the server ends at
/// once.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// The directory to serve
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Keep the ticket in FILE, so that it stays good when the server is started again
    ///
    /// It is made, for this user alone, if it is not there.
    #[arg(long, value_name = "FILE")]
    ticket_file: Option<PathBuf>,
    /// Let in clients whose keys this file has, one a line, in place of those with the ticket
    ///
    /// A line is that of FILE.pub of netblt keygen, with options before it to restrict the client:
    /// root=, read-only, write-only, max-rate=, max-sessions=, expires=; or third-party, if this
    /// server may send files to other servers for it. SIGHUP reads the file again.
    #[arg(long, value_name = "FILE", conflicts_with = "ticket_file")]
    authorized_keys: Option<PathBuf>,
    /// The server's own key, for --authorized-keys [default: ~/.config/netblt/key]
    #[arg(long, value_name = "FILE", requires = "authorized_keys")]
    key: Option<PathBuf>,
    /// Let nothing be changed
    #[arg(long, conflicts_with = "write_only")]
    read_only: bool,
    /// Let clients read nothing: they can only put files and make directories
    #[arg(long)]
    write_only: bool,
    /// Serve no more than this at once; others are asked to come later
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = units::number::<u32>(1, 4096))]
    max_sessions: u32,
    /// Memory for the buffers of all of them
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::bytes)]
    memory: u64,
    /// Never send and receive more than this, all together: in bits (200Mbit) or bytes (25MB) a
    /// second
    ///
    /// It is divided evenly among clients, the share of a client among its sessions, and that of a
    /// session among its requests. Unused parts are divided among the others.
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    max_rate: Option<Rate>,
    /// Parallel streams of one transfer, 1 to 32, or "auto" [default: auto]; the smaller of both
    /// sides counts
    ///
    /// See `netblt send --help`. They are for clients that fetch or put much at once. Each stream
    /// after the first needs a thread and three open files. All transfers together have at most
    /// 256 of these, and fewer where few files may be open.
    #[arg(long, value_name = "N", value_parser = args::streams)]
    streams: Option<ParallelStreams>,
    /// Take no more files and directories than this with one transfer; 256 bytes of memory for each
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_FILES,
          value_parser = units::number::<u64>(1, MAX_FILES))]
    max_files: u64,
    /// Take no more bytes than this with one transfer, such as 20GB
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    max_size: Option<u64>,
    /// Add a line of JSON to FILE for every request: client, request, bytes, and how it ended
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Serve counts at http://127.0.0.1:PORT/metrics, as Prometheus reads them
    #[arg(long, value_name = "PORT", value_parser = units::number::<u16>(0, 65_535))]
    metrics: Option<u16>,
    /// Local UDP port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = PORT,
          value_parser = units::number::<u16>(0, 65_535))]
    port: u16,
    /// Local address to use
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Put this address into the ticket instead of this machine's own; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<String>,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// How long a silent client is waited for (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    death_timer: Duration,
    /// Print events as JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
    /// Print nothing but the ticket, warnings and errors
    #[arg(long, short)]
    quiet: bool,
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt serve --root /srv/data --ticket-file ~/data.ticket\n  \
         netblt serve --root /srv/data --authorized-keys ~/keys\n  \
         netblt cp -r --ticket-file data.ticket photos netblt://host/\n  \
         netblt ls --ticket-file data.ticket netblt://host/photos\n\n{}",
        exit::help(),
    )
}

pub(crate) fn run(args: &Args) -> Code {
    let cancel = Cancel::default();
    outcome::end(start(args, &cancel), args.json)
}

fn start(args: &Args, cancel: &Cancel) -> Result<(), Failure> {
    let options = args.options()?;
    let mut service = Service::new(&args.root);
    (service.permissions.read, service.permissions.write) = (!args.write_only, !args.read_only);
    service.max_rate = args.max_rate;
    if let Some(port) = args.metrics {
        let said = |error| Failure::new(Code::Socket, format!("--metrics {port}: {error}"));
        service.metrics.answer_on(port).map_err(said)?;
    }
    (service.max_sessions, service.memory) = (args.max_sessions, args.memory);
    if let Some(path) = args.ticket_file.as_deref().filter(|path| path.exists()) {
        let ticket = client::read(path)?.parse::<Ticket>();
        let said = |error| Failure::usage(format!("{}: {error}", path.display()));
        service.secret = Some(ticket.map_err(said)?.secret);
    }
    let audit = args.audit.as_deref().map(audit).transpose()?;
    hardening::keep();
    let talks = !args.json && !args.quiet;
    match &args.authorized_keys {
        None => signals::watch(cancel, talks)?,
        Some(path) => {
            let (members, permissions) = members(args, path, &service.permissions)?;
            let (path, again) = (path.clone(), members.clone());
            let reload = move || match clients(&path, &permissions) {
                Ok(clients) => {
                    again.change(clients);
                }
                Err(failure) => say(&format!("netblt: warning: {}", failure.message)),
            };
            signals::watch_and_reload(cancel, talks, reload)?;
            service.members = Some(members);
        }
    }
    let manager = ServiceManager::new();
    let mut reporter = ServerReporter { args, audit, manager, cancel: cancel.clone() };
    let served = serve(&service, &options, &mut reporter, cancel);
    served.map_err(|error| Failure::transfer(&error, false))?;
    // Without requests the loop ends at once.
    reporter.manager.stopping();
    match reporter.audit.map_or(0, |audit| audit.lost) {
        0 => Ok(()),
        lost => {
            let said = format!("the audit log lacks {lost} requests: it could not be written");
            Err(Failure::new(Code::File, said))
        }
    }
}

/// The keys that the server accepts, and the most that it allows.
fn members(
    args: &Args,
    path: &Path,
    permissions: &Permissions,
) -> Result<(AuthorizedClients, Permissions), Failure> {
    let failed = |error| Failure::transfer(&error, false);
    let no_home = || Failure::usage("there is no home directory to look for a key in: --key FILE");
    let key = args.key.clone().or_else(|| file::place("key")).ok_or_else(no_home)?;
    let own = file::read(&key).map_err(failed)?;
    let mut permissions = permissions.clone();
    let absolute = fs::canonicalize(&permissions.root);
    let said = |error| Failure::new(Code::File, format!("{}: {error}", permissions.root.display()));
    permissions.root = absolute.map_err(said)?;
    let (members, _) = AuthorizedClients::new(own, clients(path, &permissions)?);
    Ok((members, permissions))
}

/// The keys of a file, each with its permissions, within those of the server. Lines with errors are
/// reported.
fn clients(path: &Path, most: &Permissions) -> Result<Vec<(PublicKey, Permissions)>, Failure> {
    let (clients, wrong) = authorized::read(path, most, &|text| units::rate(text))
        .map_err(|error| Failure::transfer(&error, false))?;
    wrong.iter().for_each(|wrong| say(&format!("netblt: warning: {wrong}")));
    Ok(clients)
}

fn audit(path: &Path) -> Result<Audit, Failure> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let said = |error| Failure::new(Code::File, format!("{}: {error}", path.display()));
    let shown = printable(&path.display().to_string());
    Ok(Audit { file: file.map_err(said)?, shown, lost: 0, cut: false })
}

/// The audit log.
struct Audit {
    file: File,
    /// Its path, fit for a terminal.
    shown: String,
    /// Requests that are not in it.
    lost: u64,
    /// The last line may not be whole.
    cut: bool,
}

impl Audit {
    /// Adds a line. The user is informed when that begins to fail, and when it works again.
    fn add(&mut self, data: &Value) {
        let begin = if self.cut { "\n" } else { "" };
        match self.file.write_all(format!("{begin}{data}\n").as_bytes()) {
            Ok(()) if self.cut => {
                self.cut = false;
                let (shown, lost) = (&self.shown, self.lost);
                say(&format!(
                    "netblt: warning: {shown}: the audit log is written again; it lacks {lost} \
                     requests"
                ));
            }
            Ok(()) => {}
            Err(error) => {
                if !self.cut {
                    let (shown, said) = (&self.shown, plain(&error.to_string()));
                    say(&format!(
                        "netblt: warning: {shown}: the audit log cannot be written: {said}"
                    ));
                }
                (self.lost, self.cut) = (self.lost + 1, true);
            }
        }
    }
}

impl Args {
    fn options(&self) -> Result<Options, Failure> {
        for text in &self.advertise {
            ticket::address(text, Some(self.port.max(1)))
                .map_err(|error| Failure::usage(format!("--advertise: {error}")))?;
        }
        let mut options = Options::default();
        options.network.port = self.port;
        options.network.bind = self.bind;
        options.network.advertise.clone_from(&self.advertise);
        options.settings.family = args::family(self.ipv4, self.ipv6);
        options.settings.death_timer = self.death_timer;
        options.settings.streams = self.streams.unwrap_or_default();
        options.settings.max_files = self.max_files;
        options.settings.max_bytes = self.max_size;
        Ok(options)
    }
}

struct ServerReporter<'a> {
    args: &'a Args,
    audit: Option<Audit>,
    manager: ServiceManager,
    cancel: Cancel,
}

impl ServerReporter<'_> {
    fn note(&self, text: &str) {
        if !self.args.quiet && !self.args.json {
            say(&printable(text));
        }
    }

    /// The ticket's file, for this user alone, there as a whole or not at all.
    fn keep(&self, path: &Path, ticket: &str) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let written = (|| {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name)?;
            writeln!(file, "{ticket}")?;
            file.sync_all()?;
            fs::rename(&name, path)
        })();
        written.inspect_err(|_| {
            let _ = fs::remove_file(&name);
        })
    }
}

impl ServerObserver for ServerReporter<'_> {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        let secret = ticket.to_string();
        match &self.args.ticket_file {
            Some(path) => self.keep(path, &secret)?,
            None => reporter::check_read(io::stdout(), "standard output")?,
        }
        let addresses: Vec<&str> = ticket.addresses.iter().map(String::as_str).collect();
        match (self.args.json, &self.args.ticket_file) {
            (true, _) => {
                let data = json!({ "ticket": secret, "addresses": addresses });
                json::emit(Stream::Stdout, "listening", data)?;
            }
            (false, Some(path)) => self.note(&format!("The ticket is in {}.", path.display())),
            (false, None) if io::stdout().is_terminal() => {
                let text = format!("export NETBLT_TICKET={secret}\nnetblt ls -l netblt:///\n");
                stdout::write(text.as_bytes())?;
            }
            (false, None) => stdout::write(format!("{secret}\n").as_bytes())?,
        }
        let root = self.args.root.display();
        self.note(&format!("Serving {root} at {}. Ctrl-C stops.", addresses.join(", ")));
        self.manager.ready();
        Ok(())
    }

    fn listening_at(&mut self, addresses: &[String]) {
        if self.args.json {
            let _ = json::emit(Stream::Stdout, "listening", json!({ "addresses": addresses }));
        }
        let root = self.args.root.display();
        self.note(&format!("Serving {root} at {}. Ctrl-C stops.", addresses.join(", ")));
        self.manager.ready();
    }

    fn alive(&mut self) {
        if self.cancel.is_cancelled() {
            self.manager.stopping();
        }
        self.manager.alive();
    }

    fn ended(&mut self, account: &AuditRecord) {
        let data = data(account);
        self.audit.iter_mut().for_each(|audit| audit.add(&data));
        if self.args.json {
            let _ = json::emit(Stream::Stdout, "request", data);
        } else {
            self.note(&words(account));
        }
    }

    fn warn(&mut self, error: &Error) {
        say(&format!("netblt: warning: {error}{}", hints::on_error(error)));
    }
}

fn data(account: &AuditRecord) -> Value {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (verdict, why) = match &account.verdict {
        Verdict::Done => ("done", None),
        Verdict::Denied(what, why) => ("denied", Some((what.word(), why))),
        Verdict::Failed(why) => ("failed", Some(("failed", why))),
        _ => ("failed", None),
    };
    let names: Vec<Name> = account.names.iter().map(|name| Name::new(name)).collect();
    let mut data = json!({
        "time": time.as_secs_f64(),
        "peer": account.peer.to_string(),
        "name": account.name,
        "request": account.request.name(),
        "target": null,
        "names": names,
        "names_omitted": account.names_omitted,
        "bytes": account.bytes,
        "seconds": json::rounded(account.elapsed.as_secs_f64()),
        "verdict": verdict,
        "reason": why.map(|(word, _)| word),
        "message": why.map(|(_, text)| text),
    });
    json::put_path(&mut data, "path", &account.path);
    if !account.target.is_empty() {
        json::put_path(&mut data, "target", &account.target);
    }
    data
}

fn words(account: &AuditRecord) -> String {
    let AuditRecord { peer, request, bytes, elapsed, .. } = account;
    let request = request.name();
    let path = printable_bytes(&account.path);
    let bytes = units::show_bytes(*bytes);
    let what = match &account.verdict {
        Verdict::Done => format!("{bytes} in {}", units::show_duration(*elapsed)),
        Verdict::Denied(_, why) => format!("denied: {why}"),
        Verdict::Failed(why) => format!("failed after {bytes}: {why}"),
        _ => String::new(),
    };
    format!("{peer} {request} /{path}: {what}")
}
