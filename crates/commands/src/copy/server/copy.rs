//! `netblt cp` to and from a server of files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::client::{Client, Fetch, into_directory};
use netblt::serve::{Entry, EntryType, ThirdPartyError};
use netblt::{Cancel, Error, Options, Overwrite, RequestErrorKind, Selection, Summary};

use crate::args::Sharing;
use crate::commands::send::AGGRESSIVE;
use crate::copy::operands::{Sources, Target};
use crate::copy::options::CopyArgs;
use crate::copy::server::sources::{expand, means_contents, nothing, wanted};
use crate::copy::ssh::probe::free_port;
use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::reporter::{self, Reporter};
use crate::selection_args;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{Credentials, ServerConnection, WarningsOnly, server};
use crate::{args, hardening, signals};

/// How long a server that is busy is asked again, how soon at first, and how often later.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The interval at which a wait looks whether it was cancelled.
const STEP: Duration = Duration::from_millis(50);

/// The route of a copy.
pub(crate) enum ServerRoute {
    Up { sources: Vec<OsString>, target: ServerPath },
    Download { sources: Vec<ServerPath>, target: OsString },
    ServerToServer { sources: Vec<ServerPath>, target: ServerPath },
}

/// Copies; nothing is returned by a dry run.
pub(crate) fn copy(
    way: ServerRoute,
    wish: &CopyArgs,
    proof: &Credentials,
    identity: Option<&Path>,
    mut options: Options,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    fill(&mut options, wish)?;
    if wish.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    report.hear_files(&mut options);
    let cancel = Cancel::default();
    hardening::keep();
    let copied = match way {
        ServerRoute::Up { sources, target } if wish.dry_run => {
            signals::watch(&cancel, false)?;
            let meeting = proof.meet(&target, identity, &options, &cancel)?;
            let line = (&meeting, &options, &cancel);
            let (selection, skipped) = selection(&sources, &target, wish, line, report)?;
            let found = netblt::preview(selection, &cancel);
            let found = found.map_err(|error| report.failure(&error))?;
            let mut offered = found.offered.iter();
            offered.try_for_each(|one| report.offered(&one.name, one.directory, one.length))?;
            return listed(skipped);
        }
        ServerRoute::Download { sources, .. } if wish.dry_run => {
            signals::watch(&cancel, false)?;
            let mut met = ServerCache { proof, identity, known: Vec::new() };
            let down = Download { wish, options: &options, cancel: &cancel };
            return down.preview(&sources, &mut met, report).and_then(listed);
        }
        ServerRoute::Up { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let meeting = proof.meet(&target, identity, &options, &cancel)?;
            reporter::announce(report, &meeting.rendezvous);
            patiently(&cancel, report, |report| {
                up(&sources, &target, wish, (&meeting, &options, &cancel), report)
            })
        }
        ServerRoute::Download { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let mut met = ServerCache { proof, identity, known: Vec::new() };
            Download { wish, options: &options, cancel: &cancel }
                .copy(&sources, &target, &mut met, report)
        }
        ServerRoute::ServerToServer { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let mut met = ServerCache { proof, identity, known: Vec::new() };
            met.of(&target, &options, &cancel)?;
            for source in &sources {
                met.of(source, &options, &cancel)?;
            }
            ServerToServer {
                met,
                target,
                trees: wish.recursive,
                options: &options,
                cancel: &cancel,
            }
            .copy(&sources, report)
        }
    };
    copied.map(Some)
}

/// Servers that were met, each once.
struct ServerCache<'a> {
    proof: &'a Credentials,
    identity: Option<&'a Path>,
    known: Vec<(Option<Host>, ServerConnection)>,
}

impl ServerCache<'_> {
    /// How to meet the server of an address; it is met if it was not.
    fn of(
        &mut self,
        served: &ServerPath,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<&ServerConnection, Failure> {
        let known = self.known.iter().position(|(host, _)| *host == served.host);
        let at = match known {
            Some(at) => at,
            None => {
                let meeting = self.proof.meet(served, self.identity, options, cancel)?;
                self.known.push((served.host.clone(), meeting));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }

    /// The same of one that was met.
    fn known(&self, served: &ServerPath) -> Result<&ServerConnection, Failure> {
        let known = self.known.iter().find(|(host, _)| *host == served.host);
        known.map(|(_, meeting)| meeting).ok_or_else(nothing)
    }
}

/// The sum of several transfers, and the sources that were left out before any of them.
#[derive(Default)]
struct Totals {
    summary: Option<Summary>,
    skipped: u64,
}

impl Totals {
    fn skip(&mut self, source: &ServerPath, why: &str, report: &mut Reporter) {
        report.warn(&format!("skipped {}: {why}", source.shown()));
        self.skipped += 1;
    }

    fn add(&mut self, next: Summary) {
        self.summary = Some(match self.summary.take() {
            Some(all) => together(all, &next),
            None => next,
        });
    }

    /// A copy of nothing is a failure, unless all sources are an empty directory.
    fn end(self) -> Result<Summary, Failure> {
        let mut summary = match (self.summary, self.skipped) {
            (Some(summary), _) => summary,
            (None, 0) => {
                let mut none = Summary::default();
                none.verified = true;
                none
            }
            (None, _) => return Err(nothing()),
        };
        summary.skipped += self.skipped;
        Ok(summary)
    }
}

/// Retries with a busy server, for a minute: it has begun nothing of a refused request.
fn patiently<T>(
    cancel: &Cancel,
    report: &mut Reporter,
    mut copy: impl FnMut(&mut Reporter) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (begun, mut pause, mut last) = (Instant::now(), PAUSE, None);
    loop {
        let failure = match copy(report) {
            Err(failure) if failure.busy && begun.elapsed() + pause <= PATIENCE => failure,
            came => return came,
        };
        if last.as_ref() != Some(&failure.message) {
            let most = PATIENCE.as_secs();
            report.warn(&format!("{}; trying again for {most} s at most", failure.message));
            last = Some(failure.message.clone());
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if cancel.is_cancelled() {
                return Err(report.failure(&Error::Interrupted));
            }
            thread::sleep(STEP);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn fill(options: &mut Options, wish: &CopyArgs) -> Result<(), Failure> {
    let (ipv4, ipv6) = wish.family();
    options.family = args::family(ipv4, ipv6);
    options.port = free_port(wish.ports(), (ipv4, ipv6))?;
    options.repair = wish.repair.unwrap_or_default();
    options.policy = wish.policy.policy(wish.ceiling());
    options.path_cache = !wish.no_path_cache;
    options.death_timer = wish.death_timer;
    options.overwrite = Overwrite::Always;
    options.atomic = wish.atomic;
    options.resume = wish.resume.into();
    options.partial_expiry = wish.keep_partial();
    options.verify = wish.verify;
    (options.preserve, options.keep_times) = (wish.preserve, wish.preserve);
    options.manifest.clone_from(&wish.manifest);
    options.max_files = wish.max_files();
    options.streams = wish.streams.unwrap_or_default();
    Ok(())
}

type ServerArgs<'a> = (&'a ServerConnection, &'a Options, &'a Cancel);

fn up(
    sources: &[OsString],
    target: &ServerPath,
    wish: &CopyArgs,
    (meeting, options, cancel): ServerArgs<'_>,
    report: &mut Reporter,
) -> Result<Summary, Failure> {
    let line = (meeting, options, cancel);
    let (selection, skipped) = selection(sources, target, wish, line, report)?;
    let server = server(meeting, options, cancel, true);
    let sent = server.put(selection, &target.path, report);
    let mut summary =
        sent.map_err(|error| refused_at(target, &meeting.explain(error, options, cancel), report))?;
    summary.skipped += skipped;
    Ok(summary)
}

/// The sources, and how many of them cannot be sent, which are reported.
fn selection(
    sources: &[OsString],
    target: &ServerPath,
    wish: &CopyArgs,
    (meeting, options, cancel): ServerArgs<'_>,
    report: &mut Reporter,
) -> Result<(Selection, u64), Failure> {
    let cannot = |text| Failure::new(Code::File, text);
    let found = Sources::look(sources, wish.recursive, false).map_err(cannot)?;
    found.skipped.iter().for_each(|text| report.warn(&format!("skipped {text}")));
    if found.sources.is_empty() {
        return Err(Failure::new(Code::Partial, "there is nothing to copy"));
    }
    let skipped = found.skipped.len() as u64;
    let server = server(meeting, options, cancel, true);
    // The contents of a directory go into an existing one; else the directory gets that name.
    let into = |error| match error {
        Error::Denied { what: RequestErrorKind::NotFound, .. } => Ok(false),
        // Where the client may not look, a directory is put as one.
        Error::Denied { what: RequestErrorKind::Forbidden, .. } => Ok(true),
        error => Err(report.failure(&meeting.explain(error, options, cancel))),
    };
    let items = match found.is_contents() {
        true => {
            let there = server.stat(&target.path, &mut WarningsOnly);
            let there = there.map(|entry| entry.sort == EntryType::Directory).or_else(into)?;
            match there {
                true => found.items(None).map_err(cannot)?,
                false => found.whole(),
            }
        }
        false => found.items(None).map_err(cannot)?,
    };
    let modes = wish.choice.chmod.as_deref().map(selection_args::modes).transpose()?;
    let (exclude, follow) = (wish.choice.exclude.clone(), wish.choice.copy_links);
    let (items, contents) = (items.named, items.contents);
    let allow_changes = wish.choice.allow_changes;
    let selection = Selection {
        items,
        contents,
        exclude,
        follow,
        allow_changes,
        modes,
        ..Selection::default()
    };
    Ok((selection, skipped))
}

/// From a server to here.
struct Download<'a> {
    wish: &'a CopyArgs,
    options: &'a Options,
    cancel: &'a Cancel,
}

impl Download<'_> {
    fn copy(
        &self,
        sources: &[ServerPath],
        target: &OsStr,
        met: &mut ServerCache<'_>,
        report: &mut Reporter,
    ) -> Result<Summary, Failure> {
        let trees = self.wish.recursive;
        let cannot = |text| Failure::new(Code::File, text);
        // Before anything is asked, as far as it is known.
        Target::of(target, sources.len() > 1, trees, &names(sources)).map_err(cannot)?;
        let (mut all, mut found) = (Totals::default(), Vec::new());
        for source in sources {
            let meeting = met.of(source, self.options, self.cancel)?;
            if found.is_empty() {
                reporter::announce(report, &meeting.rendezvous);
            }
            let server = server(meeting, self.options, self.cancel, true);
            let apart = trees && Path::new(target).is_dir();
            let some = patiently(self.cancel, report, |report| {
                let explain = |error| meeting.explain(error, self.options, self.cancel);
                let failed = |error| named(source, report.failure(&explain(error)));
                expand(&server, source, apart).map_err(failed)
            })?;
            if some.is_empty() && source.pattern.is_some() {
                all.skip(source, "nothing matches", report);
            }
            found.extend(some);
        }
        let landing = Target::of(target, found.len() > 1, trees, &names(&found));
        let landing = landing.map_err(cannot)?;
        if found.len() > 1 && self.options.trace.is_some() {
            return Err(Failure::usage(
                "--trace and --report are of one transfer, and each source from a server is a \
                 transfer of its own: name one, or a directory (-r)",
            ));
        }
        let mut sums = Manifests::default();
        for source in &found {
            let meeting = met.known(source)?;
            let one = patiently(self.cancel, report, |report| {
                self.one(source, &landing, meeting, report)
            })?;
            match one {
                Ok(summary) => all.add(summary),
                Err(why) => all.skip(source, why, report),
            }
            if found.len() > 1 {
                sums.add(self.options.manifest.as_deref())?;
            }
        }
        all.end()
    }

    /// A line for each file that would be copied.
    fn preview(
        &self,
        sources: &[ServerPath],
        met: &mut ServerCache<'_>,
        report: &mut Reporter,
    ) -> Result<u64, Failure> {
        let (mut there, mut skipped) = (0, 0);
        for source in sources {
            let meeting = met.of(source, self.options, self.cancel)?;
            let server = server(meeting, self.options, self.cancel, true);
            let failed = |error: Error, report: &Reporter| {
                named(source, report.failure(&meeting.explain(error, self.options, self.cancel)))
            };
            let some = expand(&server, source, false).map_err(|error| failed(error, report))?;
            if some.is_empty() {
                report.warn(&format!("skipped {}: nothing matches", source.shown()));
                skipped += 1;
            }
            for one in some {
                let entry = wanted(&server, &one.path, self.wish.recursive);
                match entry.map_err(|error| failed(error, report))? {
                    Ok(entry) => {
                        let name = one.name().into_encoded_bytes();
                        let listed = list_tree(&server, (one.path, name, entry), report);
                        listed.map_err(|error| failed(error, report))??;
                        there += 1;
                    }
                    Err(why) => {
                        report.warn(&format!("skipped {}: {why}", one.shown()));
                        skipped += 1;
                    }
                }
            }
        }
        if there == 0 { Err(nothing()) } else { Ok(skipped) }
    }

    /// One source, or why it is left out.
    fn one(
        &self,
        source: &ServerPath,
        landing: &Target,
        meeting: &ServerConnection,
        report: &mut Reporter,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let mut options = self.options.clone();
        options.label = landing.label();
        let options = &options;
        let (cancel, trees) = (self.cancel, self.wish.recursive);
        let server = server(meeting, options, cancel, true);
        let failed = |error: Error, report: &Reporter| {
            named(source, report.failure(&meeting.explain(error, options, cancel)))
        };
        let entry = match wanted(&server, &source.path, trees) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(failed(error, report)),
        };
        let bytes = (entry.sort == EntryType::File).then_some(entry.length);
        let name = landing.name.clone().unwrap_or_else(|| source.name());
        let data = match entry.sort {
            EntryType::File => Some(entry.data),
            _ => {
                let known = server.data_bytes(&source.path, &mut WarningsOnly);
                known.map_err(|error| failed(error, report))?
            }
        };
        let fetch = Fetch { path: source.path.clone(), name, trees, bytes, data };
        let got = server.get(&fetch, into_directory(&landing.directory), report);
        got.map(Ok).map_err(|error| named(source, report.failure(&error)))
    }
}

/// Their paths on the server.
fn names(sources: &[ServerPath]) -> Vec<OsString> {
    sources.iter().map(|source| OsStr::from_bytes(&source.path).to_owned()).collect()
}

/// From one server straight to another.
struct ServerToServer<'a> {
    met: ServerCache<'a>,
    target: ServerPath,
    trees: bool,
    options: &'a Options,
    cancel: &'a Cancel,
}

impl ServerToServer<'_> {
    fn copy(&self, sources: &[ServerPath], report: &mut Reporter) -> Result<Summary, Failure> {
        let (mut all, mut found) = (Totals::default(), Vec::new());
        for source in sources {
            let meeting = self.met.known(source)?;
            let apart = self.trees && means_contents(&source.path) && self.lands_in_one(report)?;
            let from = server(meeting, self.options, self.cancel, false);
            let some = patiently(self.cancel, report, |report| {
                expand(&from, source, apart)
                    .map_err(|error| self.failed(error, meeting, source, report))
            })?;
            if some.is_empty() && source.pattern.is_some() {
                all.skip(source, "nothing matches", report);
            }
            let several = apart || some.len() > 1 || sources.len() > 1;
            found.extend(some.into_iter().map(|one| (one, several)));
        }
        for (source, several) in &found {
            let one = patiently(self.cancel, report, |report| self.one(source, *several, report))?;
            match one {
                Ok(summary) => all.add(summary),
                Err(why) => all.skip(source, why, report),
            }
        }
        all.end()
    }

    /// Whether the target is a directory. One that the client may not look at counts as one.
    fn lands_in_one(&self, report: &Reporter) -> Result<bool, Failure> {
        let there = self.met.known(&self.target)?;
        let to = server(there, self.options, self.cancel, false);
        match to.stat(&self.target.path, &mut WarningsOnly) {
            Ok(entry) => Ok(entry.sort == EntryType::Directory),
            Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) => Ok(false),
            Err(Error::Denied { what: RequestErrorKind::Forbidden, .. }) => Ok(true),
            Err(error) => Err(self.failed(error, there, &self.target, report)),
        }
    }

    /// One source, or why it is left out.
    fn one(
        &self,
        source: &ServerPath,
        several: bool,
        report: &mut Reporter,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let (meeting, there) = (self.met.known(source)?, self.met.known(&self.target)?);
        let from = server(meeting, self.options, self.cancel, false);
        let entry = match wanted(&from, &source.path, self.trees) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(self.failed(error, meeting, source, report)),
        };
        let trees = self.trees && entry.sort == EntryType::Directory;
        let bytes = (entry.sort == EntryType::File).then_some(entry.length);
        let fetch =
            Fetch { path: source.path.clone(), name: source.name(), trees, bytes, data: None };
        let to = server(there, self.options, self.cancel, false);
        let sent = from.send_to(&fetch, &to, &self.target.path, several, report);
        sent.map(Ok).map_err(|side| match side {
            ThirdPartyError::From(error) => self.failed(error, meeting, source, report),
            ThirdPartyError::To(error) => self.failed(error, there, &self.target, report),
        })
    }

    fn failed(
        &self,
        error: Error,
        at: &ServerConnection,
        served: &ServerPath,
        report: &Reporter,
    ) -> Failure {
        named(served, report.failure(&at.explain(error, self.options, self.cancel)))
    }
}

/// The end of a dry run, with the code that the copy would have.
fn listed(skipped: u64) -> Result<Option<Summary>, Failure> {
    match skipped {
        0 => Ok(None),
        _ => Err(Failure { silent: true, ..Failure::new(Code::Partial, "some are left out") }),
    }
}

/// The error of the server about a path there. An error about a local file has its own.
fn refused_at(target: &ServerPath, error: &Error, report: &Reporter) -> Failure {
    match error {
        Error::Denied { .. } | Error::Ended(_) => named(target, report.failure(error)),
        error => report.failure(error),
    }
}

/// Lists a file, or a directory with its contents: paths there, and the names that they get.
fn list_tree(
    server: &Client<'_>,
    root: (Vec<u8>, Vec<u8>, Entry),
    report: &Reporter,
) -> Result<Result<(), Failure>, Error> {
    let mut found = vec![root];
    while let Some((path, name, entry)) = found.pop() {
        let directory = entry.sort == EntryType::Directory;
        let shown = report.offered(&name, directory, if directory { 0 } else { entry.length });
        if shown.is_err() {
            return Ok(shown);
        }
        if directory {
            let mut inside = Vec::new();
            server.list(&path, &mut WarningsOnly, |entry| {
                let below = |above: &[u8]| [above, b"/", &entry.name].concat();
                inside.push((below(&path), below(&name), entry));
                Ok(())
            })?;
            found.extend(inside.into_iter().rev());
        }
    }
    Ok(Ok(()))
}

fn named(source: &ServerPath, failure: Failure) -> Failure {
    let message = format!("{}: {}", source.shown(), failure.message);
    Failure { message, ..failure }
}

/// The manifests of several transfers, of which each writes its own to the same file.
#[derive(Default)]
struct Manifests(Vec<u8>);

impl Manifests {
    /// Another transfer has written its manifest: puts the earlier ones before it.
    fn add(&mut self, manifest: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = manifest else { return Ok(()) };
        let said =
            |error| Failure::new(Code::File, format!("--manifest {}: {error}", path.display()));
        self.0.extend(fs::read(path).map_err(said)?);
        fs::write(path, &self.0).map_err(said)
    }
}

/// The sum of two transfers, one after the other.
fn together(mut all: Summary, next: &Summary) -> Summary {
    all.bytes += next.bytes;
    all.kept += next.kept;
    all.files += next.files;
    all.skipped += next.skipped;
    all.elapsed += next.elapsed;
    all.verified &= next.verified;
    let seconds = all.elapsed.as_secs_f64().max(1e-9);
    all.real_bps = all.bytes.saturating_sub(all.kept) as f64 * 8.0 / seconds;
    all.steady_bps = all.real_bps;
    all
}
