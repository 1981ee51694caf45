//! `netblt cp` to and from a server of files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::remote::{Fetch, Server, into_directory};
use netblt::serve::{Entry, Side, Sort};
use netblt::{Cancel, Denial, Error, Options, Overwrite, Selection, Summary};

use crate::args::Sharing;
use crate::choice;
use crate::commands::send::AGGRESSIVE;
use crate::cp::gather::{Found, Landing};
use crate::cp::options::Wish;
use crate::cp::place::Host;
use crate::cp::probe::free_port;
use crate::exit::{Code, Failure};
use crate::output::{self, Report};
use crate::served::address::Served;
use crate::served::client::{Meeting, Plain, Proof, server};
use crate::served::sources::{expand, means_contents, nothing, wanted};
use crate::{args, secrecy, signals};

/// How long a server that is busy is asked again, how soon at first, and how often later.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Between two looks whether it is still wanted.
const STEP: Duration = Duration::from_millis(50);

/// What goes where.
pub(crate) enum Way {
    Up { sources: Vec<OsString>, target: Served },
    Down { sources: Vec<Served>, target: OsString },
    Across { sources: Vec<Served>, target: Served },
}

/// Copies; nothing is returned by a dry run.
pub(crate) fn copy(
    way: Way,
    wish: &Wish,
    proof: &Proof,
    identity: Option<&Path>,
    (mut options, report): (Options, &mut Report),
) -> Result<Option<Summary>, Failure> {
    fill(&mut options, wish)?;
    if wish.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    report.hear_files(&mut options);
    let cancel = Cancel::default();
    secrecy::keep();
    let copied = match way {
        Way::Up { sources, target } if wish.dry_run => {
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
        Way::Down { sources, .. } if wish.dry_run => {
            signals::watch(&cancel, false)?;
            let mut met = Met { proof, identity, known: Vec::new() };
            let down = Down { wish, options: &options, cancel: &cancel };
            return down.preview(&sources, &mut met, report).and_then(listed);
        }
        Way::Up { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let meeting = proof.meet(&target, identity, &options, &cancel)?;
            output::announce(report, &meeting.rendezvous);
            patiently(&cancel, report, |report| {
                up(&sources, &target, wish, (&meeting, &options, &cancel), report)
            })
        }
        Way::Down { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let mut met = Met { proof, identity, known: Vec::new() };
            Down { wish, options: &options, cancel: &cancel }
                .copy(&sources, &target, &mut met, report)
        }
        Way::Across { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let mut met = Met { proof, identity, known: Vec::new() };
            met.of(&target, &options, &cancel)?;
            for source in &sources {
                met.of(source, &options, &cancel)?;
            }
            Across { met, target, trees: wish.recursive, options: &options, cancel: &cancel }
                .copy(&sources, report)
        }
    };
    copied.map(Some)
}

/// Servers that were met, each once.
struct Met<'a> {
    proof: &'a Proof,
    identity: Option<&'a Path>,
    known: Vec<(Option<Host>, Meeting)>,
}

impl Met<'_> {
    /// How to meet the server of an address; it is met if it was not.
    fn of(
        &mut self,
        served: &Served,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<&Meeting, Failure> {
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
    fn known(&self, served: &Served) -> Result<&Meeting, Failure> {
        let known = self.known.iter().find(|(host, _)| *host == served.host);
        known.map(|(_, meeting)| meeting).ok_or_else(nothing)
    }
}

/// What several transfers come to, and what was left out before any of them.
#[derive(Default)]
struct All {
    summary: Option<Summary>,
    skipped: u64,
}

impl All {
    fn skip(&mut self, source: &Served, why: &str, report: &mut Report) {
        report.warn(&format!("skipped {}: {why}", source.shown()));
        self.skipped += 1;
    }

    fn add(&mut self, next: Summary) {
        self.summary = Some(match self.summary.take() {
            Some(all) => together(all, &next),
            None => next,
        });
    }

    /// Nothing at all is a failure, unless all that was named is an empty directory.
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

/// A server that is busy is asked again, for a minute: nothing of what it refused has begun.
fn patiently<T>(
    cancel: &Cancel,
    report: &mut Report,
    mut copy: impl FnMut(&mut Report) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (begun, mut pause, mut told) = (Instant::now(), PAUSE, None);
    loop {
        let failure = match copy(report) {
            Err(failure) if failure.busy && begun.elapsed() + pause <= PATIENCE => failure,
            came => return came,
        };
        if told.as_ref() != Some(&failure.message) {
            let most = PATIENCE.as_secs();
            report.warn(&format!("{}; trying again for {most} s at most", failure.message));
            told = Some(failure.message.clone());
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

fn fill(options: &mut Options, wish: &Wish) -> Result<(), Failure> {
    let (ipv4, ipv6) = wish.family();
    options.family = args::family(ipv4, ipv6);
    options.port = free_port(wish.ports(), (ipv4, ipv6))?;
    options.repair = wish.repair.unwrap_or_default();
    options.policy = wish.policy.policy(wish.ceiling());
    options.memory = !wish.no_memory;
    options.death_timer = wish.death_timer;
    options.overwrite = Overwrite::Always;
    options.atomic = wish.atomic;
    options.resume = wish.resume.into();
    options.partial_expiry = wish.keep_partial();
    options.verify = wish.verify;
    (options.preserve, options.keep_times) = (wish.preserve, wish.preserve);
    options.manifest.clone_from(&wish.manifest);
    options.max_files = wish.max_files();
    options.lanes = wish.lanes.unwrap_or_default();
    Ok(())
}

type Line<'a> = (&'a Meeting, &'a Options, &'a Cancel);

fn up(
    sources: &[OsString],
    target: &Served,
    wish: &Wish,
    (meeting, options, cancel): Line<'_>,
    report: &mut Report,
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

/// What is to be sent, and how many of the sources cannot be, which are named.
fn selection(
    sources: &[OsString],
    target: &Served,
    wish: &Wish,
    (meeting, options, cancel): Line<'_>,
    report: &mut Report,
) -> Result<(Selection, u64), Failure> {
    let cannot = |text| Failure::new(Code::File, text);
    let found = Found::look(sources, wish.recursive, false).map_err(cannot)?;
    found.skipped.iter().for_each(|text| report.warn(&format!("skipped {text}")));
    if found.sources.is_empty() {
        return Err(Failure::new(Code::Partial, "there is nothing to copy"));
    }
    let skipped = found.skipped.len() as u64;
    let server = server(meeting, options, cancel, true);
    // What is in a directory goes into one that exists; else the directory gets that name.
    let into = |error| match error {
        Error::Denied { what: Denial::NotFound, .. } => Ok(false),
        // Where nothing may be looked at, a directory is put as one.
        Error::Denied { what: Denial::Forbidden, .. } => Ok(true),
        error => Err(report.failure(&meeting.explain(error, options, cancel))),
    };
    let items = match found.is_contents() {
        true => {
            let there = server.stat(&target.path, &mut Plain);
            let there = there.map(|entry| entry.sort == Sort::Directory).or_else(into)?;
            match there {
                true => found.items(None).map_err(cannot)?,
                false => found.whole(),
            }
        }
        false => found.items(None).map_err(cannot)?,
    };
    let modes = wish.choice.chmod.as_deref().map(choice::modes).transpose()?;
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
struct Down<'a> {
    wish: &'a Wish,
    options: &'a Options,
    cancel: &'a Cancel,
}

impl Down<'_> {
    fn copy(
        &self,
        sources: &[Served],
        target: &OsStr,
        met: &mut Met<'_>,
        report: &mut Report,
    ) -> Result<Summary, Failure> {
        let trees = self.wish.recursive;
        let cannot = |text| Failure::new(Code::File, text);
        // Before anything is asked, as far as it is known.
        Landing::of(target, sources.len() > 1, trees).map_err(cannot)?;
        let (mut all, mut found) = (All::default(), Vec::new());
        for source in sources {
            let meeting = met.of(source, self.options, self.cancel)?;
            if found.is_empty() {
                output::announce(report, &meeting.rendezvous);
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
        let landing = Landing::of(target, found.len() > 1, trees).map_err(cannot)?;
        if found.len() > 1 && self.options.trace.is_some() {
            return Err(Failure::usage(
                "--trace and --report are of one transfer, and each source from a server is a \
                 transfer of its own: name one, or a directory (-r)",
            ));
        }
        let mut sums = Sums::default();
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

    /// What would be copied, a line each.
    fn preview(
        &self,
        sources: &[Served],
        met: &mut Met<'_>,
        report: &mut Report,
    ) -> Result<u64, Failure> {
        let (mut there, mut skipped) = (0, 0);
        for source in sources {
            let meeting = met.of(source, self.options, self.cancel)?;
            let server = server(meeting, self.options, self.cancel, true);
            let failed = |error: Error, report: &Report| {
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
        source: &Served,
        landing: &Landing,
        meeting: &Meeting,
        report: &mut Report,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let (options, cancel, trees) = (self.options, self.cancel, self.wish.recursive);
        let server = server(meeting, options, cancel, true);
        let failed = |error: Error, report: &Report| {
            named(source, report.failure(&meeting.explain(error, options, cancel)))
        };
        let entry = match wanted(&server, &source.path, trees) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(failed(error, report)),
        };
        let bytes = (entry.sort == Sort::File).then_some(entry.length);
        let name = landing.name.clone().unwrap_or_else(|| source.name());
        let data = match entry.sort {
            Sort::File => Some(entry.data),
            _ => {
                let known = server.data_bytes(&source.path, &mut Plain);
                known.map_err(|error| failed(error, report))?
            }
        };
        let fetch = Fetch { path: source.path.clone(), name, trees, bytes, data };
        let got = server.get(&fetch, into_directory(&landing.directory), report);
        got.map(Ok).map_err(|error| named(source, report.failure(&error)))
    }
}

/// From one server straight to another.
struct Across<'a> {
    met: Met<'a>,
    target: Served,
    trees: bool,
    options: &'a Options,
    cancel: &'a Cancel,
}

impl Across<'_> {
    fn copy(&self, sources: &[Served], report: &mut Report) -> Result<Summary, Failure> {
        let (mut all, mut found) = (All::default(), Vec::new());
        for source in sources {
            let meeting = self.met.known(source)?;
            let apart = self.trees && means_contents(&source.path) && self.lands_in_one(report)?;
            let from = server(meeting, self.options, self.cancel, false);
            let some = patiently(self.cancel, report, |report| {
                expand(&from, source, apart)
                    .map_err(|error| self.failed(error, (meeting, source), report))
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

    /// Whether the target is a directory; what may not be looked at is taken for one.
    fn lands_in_one(&self, report: &Report) -> Result<bool, Failure> {
        let there = self.met.known(&self.target)?;
        let to = server(there, self.options, self.cancel, false);
        match to.stat(&self.target.path, &mut Plain) {
            Ok(entry) => Ok(entry.sort == Sort::Directory),
            Err(Error::Denied { what: Denial::NotFound, .. }) => Ok(false),
            Err(Error::Denied { what: Denial::Forbidden, .. }) => Ok(true),
            Err(error) => Err(self.failed(error, (there, &self.target), report)),
        }
    }

    /// One source, or why it is left out.
    fn one(
        &self,
        source: &Served,
        several: bool,
        report: &mut Report,
    ) -> Result<Result<Summary, &'static str>, Failure> {
        let (meeting, there) = (self.met.known(source)?, self.met.known(&self.target)?);
        let from = server(meeting, self.options, self.cancel, false);
        let entry = match wanted(&from, &source.path, self.trees) {
            Ok(Ok(entry)) => entry,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(error) => return Err(self.failed(error, (meeting, source), report)),
        };
        let trees = self.trees && entry.sort == Sort::Directory;
        let bytes = (entry.sort == Sort::File).then_some(entry.length);
        let fetch =
            Fetch { path: source.path.clone(), name: source.name(), trees, bytes, data: None };
        let to = server(there, self.options, self.cancel, false);
        let sent = from.send_to(&fetch, &to, (&self.target.path, several), report);
        sent.map(Ok).map_err(|side| match side {
            Side::From(error) => self.failed(error, (meeting, source), report),
            Side::To(error) => self.failed(error, (there, &self.target), report),
        })
    }

    fn failed(&self, error: Error, (at, served): (&Meeting, &Served), report: &Report) -> Failure {
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

/// What the server has against a path there; what is wrong with a file here has its own.
fn refused_at(target: &Served, error: &Error, report: &Report) -> Failure {
    match error {
        Error::Denied { .. } | Error::Ended(_) => named(target, report.failure(error)),
        error => report.failure(error),
    }
}

/// Names a file, or a directory with all that is in it: paths there, and the names that they get.
fn list_tree(
    server: &Server<'_>,
    root: (Vec<u8>, Vec<u8>, Entry),
    report: &Report,
) -> Result<Result<(), Failure>, Error> {
    let mut found = vec![root];
    while let Some((path, name, entry)) = found.pop() {
        let directory = entry.sort == Sort::Directory;
        let told = report.offered(&name, directory, if directory { 0 } else { entry.length });
        if told.is_err() {
            return Ok(told);
        }
        if directory {
            let mut inside = Vec::new();
            server.list(&path, &mut Plain, |entry| {
                let below = |above: &[u8]| [above, b"/", &entry.name].concat();
                inside.push((below(&path), below(&name), entry));
                Ok(())
            })?;
            found.extend(inside.into_iter().rev());
        }
    }
    Ok(Ok(()))
}

fn named(source: &Served, failure: Failure) -> Failure {
    let message = format!("{}: {}", source.shown(), failure.message);
    Failure { message, ..failure }
}

/// The manifests of several transfers, of which each writes its own to the same file.
#[derive(Default)]
struct Sums(Vec<u8>);

impl Sums {
    /// Another transfer has written its manifest: puts what the earlier ones had before it.
    fn add(&mut self, manifest: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = manifest else { return Ok(()) };
        let said =
            |error| Failure::new(Code::File, format!("--manifest {}: {error}", path.display()));
        self.0.extend(fs::read(path).map_err(said)?);
        fs::write(path, &self.0).map_err(said)
    }
}

/// What two transfers come to, one after the other.
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
