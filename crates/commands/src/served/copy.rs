//! `netblt cp` to and from a server of files.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::remote::{Fetch, into_directory};
use netblt::serve::{Side, Sort};
use netblt::{Cancel, Denial, Error, Options, Overwrite, Selection, Summary};

use crate::args::Sharing;
use crate::choice;
use crate::commands::send::AGGRESSIVE;
use crate::cp::gather::{Found, Landing};
use crate::cp::options::Wish;
use crate::cp::probe::free_port;
use crate::exit::{Code, Failure};
use crate::output::{self, Report};
use crate::served::address::Served;
use crate::served::client::{Meeting, Plain, Proof, server};
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

/// Copies.
pub(crate) fn copy(
    way: Way,
    wish: &Wish,
    proof: &Proof,
    identity: Option<&Path>,
    (mut options, report): (Options, &mut Report),
) -> Result<Summary, Failure> {
    fill(&mut options, wish)?;
    if wish.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    report.hear_files(&mut options);
    let cancel = Cancel::default();
    secrecy::keep();
    match way {
        Way::Up { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let meeting = proof.meet(&target, identity, &options, &cancel)?;
            output::announce(report, &meeting.rendezvous);
            patiently(&cancel, report, |report| {
                up(&sources, &target, wish, (&meeting, &options, &cancel), report)
            })
        }
        Way::Down { sources, target } => {
            let landing = Landing::of(&target, sources.len() > 1, wish.recursive);
            let landing = landing.map_err(|text| Failure::new(Code::File, text))?;
            if sources.len() > 1 && options.trace.is_some() {
                return Err(Failure::usage(
                    "--trace and --report are of one transfer, and each source from a server is a \
                     transfer of its own: name one, or a directory (-r)",
                ));
            }
            signals::watch(&cancel, report.is_talkative())?;
            let mut all: Option<Summary> = None;
            let mut met: Option<(&Served, Meeting)> = None;
            let mut sums = Sums::default();
            for source in &sources {
                if met.as_ref().is_none_or(|(of, _)| of.host != source.host) {
                    met = Some((source, proof.meet(source, identity, &options, &cancel)?));
                }
                let Some((_, meeting)) = &met else { continue };
                if all.is_none() {
                    output::announce(report, &meeting.rendezvous);
                }
                let one = (meeting, &options, &cancel);
                let summary = patiently(&cancel, report, |report| {
                    down(source, &landing, wish.recursive, one, report)
                })?;
                if sources.len() > 1 {
                    sums.add(options.manifest.as_deref())?;
                }
                all = Some(match all {
                    Some(all) => together(all, &summary),
                    None => summary,
                });
            }
            all.ok_or_else(|| Failure::usage("there is nothing to copy"))
        }
        Way::Across { sources, target } => {
            signals::watch(&cancel, report.is_talkative())?;
            let there = proof.meet(&target, identity, &options, &cancel)?;
            let mut all: Option<Summary> = None;
            for source in &sources {
                let meeting = proof.meet(source, identity, &options, &cancel)?;
                let (from, to) = ((&meeting, source), (&there, &target));
                let how = (sources.len() > 1, wish.recursive);
                let summary = patiently(&cancel, report, |report| {
                    across(from, to, how, (&options, &cancel), report)
                })?;
                all = Some(match all {
                    Some(all) => together(all, &summary),
                    None => summary,
                });
            }
            all.ok_or_else(|| Failure::usage("there is nothing to copy"))
        }
    }
}

/// A server that is busy is asked again, for a minute: nothing of what it refused has begun.
fn patiently(
    cancel: &Cancel,
    report: &mut Report,
    mut copy: impl FnMut(&mut Report) -> Result<Summary, Failure>,
) -> Result<Summary, Failure> {
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
    let selection = Selection { items, contents, exclude, follow, modes, ..Selection::default() };
    let sent = server.put(selection, &target.path, report);
    let mut summary =
        sent.map_err(|error| report.failure(&meeting.explain(error, options, cancel)))?;
    summary.skipped += skipped;
    Ok(summary)
}

fn down(
    source: &Served,
    landing: &Landing,
    trees: bool,
    (meeting, options, cancel): Line<'_>,
    report: &mut Report,
) -> Result<Summary, Failure> {
    let server = server(meeting, options, cancel, true);
    let stood = server.stat(&source.path, &mut Plain);
    let entry = stood
        .map_err(|error| named(source, report.failure(&meeting.explain(error, options, cancel))))?;
    let bytes = (entry.sort == Sort::File).then_some(entry.length);
    let name = landing.name.clone().unwrap_or_else(|| source.name());
    let fetch = Fetch { path: source.path.clone(), name, trees, bytes };
    let got = server.get(&fetch, into_directory(&landing.directory), report);
    got.map_err(|error| named(source, report.failure(&error)))
}

/// From one server straight to another.
fn across(
    (meeting, source): (&Meeting, &Served),
    (there, target): (&Meeting, &Served),
    (several, trees): (bool, bool),
    (options, cancel): (&Options, &Cancel),
    report: &mut Report,
) -> Result<Summary, Failure> {
    let from = server(meeting, options, cancel, false);
    let failed = |error: Error, (at, served): (&Meeting, &Served), report: &Report| {
        named(served, report.failure(&at.explain(error, options, cancel)))
    };
    let stood = from.stat(&source.path, &mut Plain);
    let entry = stood.map_err(|error| failed(error, (meeting, source), report))?;
    let trees = trees && entry.sort == Sort::Directory;
    let bytes = (entry.sort == Sort::File).then_some(entry.length);
    let fetch = Fetch { path: source.path.clone(), name: source.name(), trees, bytes };
    let to = server(there, options, cancel, false);
    from.send_to(&fetch, &to, (&target.path, several), report).map_err(|side| match side {
        Side::From(error) => failed(error, (meeting, source), report),
        Side::To(error) => failed(error, (there, target), report),
    })
}

fn named(source: &Served, failure: Failure) -> Failure {
    let message = format!("{}: {}", source.shown(), failure.message);
    Failure { busy: failure.busy, ..Failure::new(failure.code, message) }
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
