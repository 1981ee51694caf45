//! What a request does on the server's disk, on a thread of its own: everything beneath one root,
//! by handles, without following a link (`disk/beneath.rs`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::errand::Outward;
use super::found::{Done, Held, Outgoing, Prepared, denied, expected};
use super::leaving::Leaving;
use super::listings::Listings;
use super::moving::{self, Bounds, MAX_DOWN};
use super::pieces::Pieces;
use super::ranges;
use super::rate_limiter::Client;
use super::request::{self, Entry, Line, Piece, Put, Request, Sort, What};
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::destination::Destination;
use crate::disk::beneath;
use crate::disk::file_list::FileList;
use crate::disk::layout::Layout;
use crate::disk::room::Room;
use crate::disk::sites;
use crate::disk::source::SourceReader;
use crate::disk::staging::{self, Open, Staging};
use crate::error::Denial;
use crate::memory_budget::MemoryLease;
use crate::name_log::NameLog;
use crate::options::{Input, Options, Overwrite, Resume, Selection};
use crate::transfer::receive::writer;

/// Entries in one answer at most: whoever wants more asks again.
const PAGE: u64 = 10_000;
/// What a line of an answer takes of memory beyond the name in it.
const LINE_BYTES: u64 = 100;
/// Names of a directory that is removed that are held at once.
const AT_ONCE: usize = 1024;

/// What a request is done with.
pub(super) struct With<'a> {
    pub(super) options: &'a Options,
    pub(super) layout: Layout,
    pub(super) leaving: &'a Leaving,
    pub(super) listings: &'a Listings,
    pub(super) client: Client,
    /// The client may hear what is there.
    pub(super) may_read: bool,
    pub(super) cancel: &'a Cancel,
}

/// Does what is asked.
pub(super) fn perform(
    request: &Request,
    root: &Arc<OwnedFd>,
    with: &With<'_>,
    outward: Option<Outward>,
) -> Result<Done, Denied> {
    let With { options, layout, leaving, cancel, .. } = *with;
    let path = &request.path[..];
    if request.paths().any(staging::has_ours) && !is_left(request) {
        return Err(Denied::new(Denial::Forbidden, "it belongs to a transfer"));
    }
    match &request.what {
        What::Get { trees, name, .. } => get(look(root, path, (*trees, name), with)?, with),
        What::Put(_) if request.takes_back().is_some() => answer([Line::Done(1)], layout),
        What::Put(wish) => put(root, path, *wish, with),
        What::PutRange(wish) => ranges::put(root, path, *wish, (options, layout, leaving)),
        What::Join(wish) => answer([Line::Done(ranges::join(root, path, wish)?)], layout),
        What::Stat { trees } => {
            let entry = stat(root, path)?;
            let data = match (entry.sort, *trees) {
                // It takes as much as it needs to send the tree, and as much memory.
                (Sort::Directory, true) => {
                    look(root, path, (true, request::NAME.as_bytes()), with)?.0.data_bytes()
                }
                _ => Some(entry.data).filter(|data| *data < entry.length),
            };
            let lines = [Line::Entry(entry)].into_iter().chain(data.map(Line::Room));
            answer(lines, layout)
        }
        What::List { after, most } => {
            let (lines, memory) = list(root, path, (after, *most), with)?;
            let mut outgoing = outgoing(lines, layout)?;
            outgoing.reader.hold(memory);
            Ok(Done::Send(Box::new(outgoing)))
        }
        What::MakeDir { parents } => answer([Line::Done(make(root, path, *parents)?)], layout),
        What::Remove { directory, tree } => {
            answer([Line::Done(remove(root, path, (*directory, *tree), cancel)?)], layout)
        }
        What::Rename { to, replace } => {
            answer([Line::Done(moving::rename(root, path, to, *replace)?)], layout)
        }
        What::Copy { to, how } => {
            let bytes = options.max_bytes.unwrap_or(u64::MAX);
            let bounds = Bounds { count: options.max_files, bytes };
            let count = moving::copy(root, (path, to), *how, bounds, cancel)?;
            answer([Line::Done(count)], layout)
        }
        What::Read { pieces } => {
            log_pieces(pieces, options.name_log.as_ref());
            let all = pieces.iter().fold(0, |all: u64, piece| all.saturating_add(piece.bytes));
            let pieces = Pieces::new(Arc::clone(root), pieces.clone());
            let outgoing = streamed(Box::new(pieces), all, layout)?;
            Ok(Done::Send(Box::new(outgoing)))
        }
        What::Send { trees, name, errand } => {
            let none = || Denied::new(Denial::Failed, "the server could not find out");
            let outward = outward.ok_or_else(none)?;
            let found = look(root, path, (*trees, name), with)?;
            let (told, fails) = outward.send(found, errand, cancel)?;
            let outgoing = streamed(Box::new(told), u64::MAX, layout)?;
            Ok(Done::Send(Box::new(Outgoing { fails: Some(fails), ..outgoing })))
        }
    }
}

/// The files of which pieces are read, one behind the other once.
fn log_pieces(pieces: &[Piece], log: Option<&NameLog>) {
    let mut last = None;
    for Piece { path, .. } in pieces {
        if last.replace(path) != Some(path) {
            log.iter().for_each(|log| log.add(path));
        }
    }
}

/// Whether what is to go is what a transfer has left under a label.
fn is_left(request: &Request) -> bool {
    let (parent, leaf) = beneath::split(&request.path);
    let own = staging::has_ours(parent);
    matches!(request.what, What::Remove { tree: true, .. })
        && (staging::label_of(leaf).is_some() || staging::is_ranges(leaf))
        && !own
}

fn answer(lines: impl IntoIterator<Item = Line>, layout: Layout) -> Result<Done, Denied> {
    outgoing(lines, layout).map(|outgoing| Done::Send(Box::new(outgoing)))
}

/// An answer to be sent.
pub(super) fn outgoing(
    lines: impl IntoIterator<Item = Line>,
    layout: Layout,
) -> Result<Outgoing, Denied> {
    let mut text = [request::TITLE, &[request::END]].concat();
    lines.into_iter().for_each(|line| text.extend(line.encode()));
    let bytes = text.len() as u64;
    streamed(Box::new(io::Cursor::new(text)), bytes, layout)
}

/// An answer of about so many bytes, read as it is sent.
fn streamed(
    reader: Box<dyn io::Read + Send>,
    bytes: u64,
    layout: Layout,
) -> Result<Outgoing, Denied> {
    let input = Input { name: request::NAME.into(), label: "the answer", reader };
    let list = FileList::stream(input).map_err(denied)?;
    let reader = SourceReader::sealed(list, layout).map_err(denied)?;
    let reader = Held::new(reader, None);
    Ok(Outgoing { reader, total: None, files: None, bytes, fails: None })
}

/// A file, or a directory with all in it, and what its paths stand on.
fn look(
    root: &OwnedFd,
    path: &[u8],
    (trees, name): (bool, &[u8]),
    with: &With<'_>,
) -> Result<(FileList, Arc<OwnedFd>), Denied> {
    let handle = match path {
        b"" => root.try_clone()?,
        path => beneath::open(root.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK)?,
    };
    let stat = rustix::fs::fstat(&handle).map_err(io::Error::from)?;
    if beneath::is_directory(&stat) && !trees {
        return Err(Denied::new(Denial::IsADirectory, "it is a directory"));
    }
    if !beneath::is_directory(&stat) && !beneath::is_file(&stat) {
        return Err(Denied::new(Denial::Forbidden, "it is neither a file nor a directory"));
    }
    let handle = Arc::new(handle);
    let item = (beneath::path_of(&handle), Some(OsString::from_vec(name.to_vec())));
    let selection = Selection { items: vec![item], ..Selection::default() };
    let memory = &with.options.memory_share;
    let list = FileList::beneath(&selection, Arc::clone(&handle), with.cancel, memory);
    let list = list.map_err(denied)?;
    Ok((list, handle))
}

fn get((list, handle): (FileList, Arc<OwnedFd>), with: &With<'_>) -> Result<Done, Denied> {
    let (total, files) = (list.total_bytes(), list.files_in_all());
    let reader = SourceReader::sealed(list, with.layout).map_err(denied)?;
    let reader = reader.naming(with.options.name_log.clone());
    let reader = Held::new(reader, Some(handle));
    // A file brings a table beside its bytes, and a tree many: then it is not worth counting.
    let bytes = total.filter(|_| files == Some(1)).unwrap_or(u64::MAX);
    Ok(Done::Send(Box::new(Outgoing { reader, total, files, bytes, fails: None })))
}

/// As scp understands a destination: a directory that exists takes what comes, anything else is the
/// name of a single thing in a directory that exists.
fn put(root: &OwnedFd, path: &[u8], wish: Put, with: &With<'_>) -> Result<Done, Denied> {
    let With { options, layout, leaving, .. } = *with;
    let (parent, leaf) = beneath::split(path);
    let (directory, name): (OwnedFd, Vec<u8>) = match beneath::directory(root.as_fd(), path) {
        Ok(directory) => (directory, Vec::new()),
        Err(error) if wish.several => return Err(error.into()),
        Err(error) => {
            let directory = beneath::directory(root.as_fd(), parent)?;
            match beneath::status(&directory, leaf)? {
                // A link to a directory, which is not followed.
                Some(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
                    return Err(error.into());
                }
                Some(_) if wish.tree => {
                    let why = "it is a file, and cannot become a directory";
                    return Err(Denied::new(Denial::NotADirectory, why));
                }
                Some(_) if !wish.replace => return Err(Denied::new(Denial::Exists, "it exists")),
                _ => (directory, leaf.to_vec()),
            }
        }
    };
    let held = Arc::new(directory);
    let place = beneath::path_of(&held);
    let mut options = options.clone();
    options.overwrite = if wish.replace { Overwrite::Always } else { Overwrite::Never };
    (options.atomic, options.preserve) = (wish.atomic, wish.preserve);
    (options.keep_times, options.verify) = (wish.times, wish.verify);
    options.label = wish.label.filter(|_| !wish.atomic);
    // What others have left there tells of its content: that is for a client that may read. A label
    // is known to the client that chose it.
    let may_hear = with.may_read || options.label.is_some();
    options.resume = if may_hear { Resume::Auto } else { Resume::Never };
    let kept_at = leaving.wait_for(&held, options.label)?;
    // Nobody is to send again what somebody else is still holding.
    let kept = options.label.map(|label| staging::kept_name(Some(&label)));
    if kept.is_some_and(|name| staging::is_taken(&held, &name)) {
        return Err(Denied::new(Denial::Busy, "another transfer of this label is not over"));
    }
    options.expected = Some(expected(&name));
    let names = (!name.is_empty()).then(|| BTreeSet::from([OsString::from_vec(name.clone())]));
    let room = Room::new(place.clone(), names);
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    Ok(Done::Put(Box::new(Prepared { writer, room, name, names, held, kept_at })))
}

fn stat(root: &OwnedFd, path: &[u8]) -> Result<Entry, Denied> {
    let (parent, leaf) = beneath::split(path);
    let stat = match path {
        b"" => Some(rustix::fs::fstat(root).map_err(io::Error::from)?),
        _ => beneath::status(beneath::directory(root.as_fd(), parent)?, leaf)?,
    };
    let stat = stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    Ok(Entry::of(leaf, &stat))
}

/// A page of a directory, or one entry for what is none, and the memory that it takes.
fn list(
    root: &OwnedFd,
    path: &[u8],
    (after, most): (&[u8], u64),
    with: &With<'_>,
) -> Result<(Vec<Line>, MemoryLease), Denied> {
    let mut memory = with.options.memory_share.lease();
    let directory = match beneath::directory(root.as_fd(), path).map_err(beneath::errno) {
        Ok(directory) => directory,
        // A link is not followed; which of the two is said of it differs between systems.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Ok((vec![Line::Entry(stat(root, path)?)], memory));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let most = usize::try_from(if most == 0 { PAGE } else { most.min(PAGE) }).unwrap_or(1);
    let client = (with.client, &with.options.memory_share);
    let page = with.listings.page(client, &directory, (after, most), with.cancel)?;
    let mut lines = Vec::new();
    for name in page.names {
        if with.cancel.is_cancelled() {
            return Err(Denied::new(Denial::Failed, "interrupted"));
        }
        // As it is held, and as it is sent.
        if !memory.take(2 * (LINE_BYTES + name.len() as u64)) {
            return Err(Denied::new(
                Denial::Busy,
                "there is no memory for a list; try again later",
            ));
        }
        // What has gone meanwhile is not there.
        if let Some(stat) = beneath::status(&directory, &name)? {
            lines.push(Line::Entry(Entry::of(&name, &stat)));
        }
    }
    lines.extend(page.more.then_some(Line::More));
    Ok((lines, memory))
}

fn make(root: &OwnedFd, path: &[u8], parents: bool) -> Result<u64, Denied> {
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    if path.is_empty() {
        return if parents { Ok(0) } else { Err(io::Error::from(Errno::EXIST).into()) };
    }
    let ends = (0..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/'));
    let mut made = 0;
    for end in ends.filter(|end| parents || *end == path.len()) {
        let name = path.get(..end).unwrap_or_default();
        let (parent, leaf) = beneath::split(name);
        let parent = beneath::directory(root.as_fd(), parent)?;
        match rustix::fs::mkdirat(&parent, OsStr::from_bytes(leaf), all) {
            Ok(()) => made += 1,
            Err(Errno::EXIST) if parents => {
                beneath::directory(root.as_fd(), name)?;
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(made)
}

fn remove(
    root: &OwnedFd,
    path: &[u8],
    (directory, tree): (bool, bool),
    cancel: &Cancel,
) -> Result<u64, Denied> {
    if path.is_empty() {
        return Err(Denied::new(Denial::Forbidden, "the root itself is not removed"));
    }
    let (parent, leaf) = beneath::split(path);
    let parent = beneath::directory(root.as_fd(), parent)?;
    let stat = beneath::status(&parent, leaf)?.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    if let Some(label) = staging::label_of(leaf) {
        let kept = Staging::keep(&parent, &staging::kept_name(Some(&label)), Open::There)?;
        let used = || Denied::new(Denial::Busy, "a transfer is using it, or it is another user's");
        sites::remove_home(kept.ok_or_else(used)?, &parent, &parent);
        return Ok(1);
    }
    if staging::is_ranges(leaf) {
        crate::disk::ranges::remove(&parent, leaf)?;
        return Ok(1);
    }
    let name = OsStr::from_bytes(leaf);
    let mut count = 0;
    let flags = match (beneath::is_directory(&stat), directory || tree) {
        (false, _) => AtFlags::empty(),
        (true, true) => AtFlags::REMOVEDIR,
        (true, false) => return Err(Denied::new(Denial::IsADirectory, "it is a directory")),
    };
    if tree && flags == AtFlags::REMOVEDIR {
        clear(&beneath::directory(parent.as_fd(), leaf)?, MAX_DOWN, &mut count, cancel)?;
    }
    rustix::fs::unlinkat(&parent, name, flags).map_err(io::Error::from)?;
    Ok(count + 1)
}

/// Removes what is in a directory. Links in it are removed, and what they lead to is not touched.
fn clear(directory: &OwnedFd, down: u32, count: &mut u64, cancel: &Cancel) -> Result<(), Denied> {
    if down == 0 {
        return Err(Denied::new(Denial::Failed, "the directories in it are too many levels deep"));
    }
    loop {
        // So many at a time are held of a directory that may have millions.
        let names = Dir::read_from(directory).map_err(io::Error::from)?;
        let names = names.flatten().map(|found| found.file_name().to_bytes().to_vec());
        let names = names.filter(|name| !matches!(&name[..], b"." | b".."));
        let names: Vec<Vec<u8>> = names.take(AT_ONCE).collect();
        if names.is_empty() {
            return Ok(());
        }
        names.iter().try_for_each(|name| clear_one(directory, name, down, count, cancel))?;
    }
}

fn clear_one(
    directory: &OwnedFd,
    name: &[u8],
    down: u32,
    count: &mut u64,
    cancel: &Cancel,
) -> Result<(), Denied> {
    if cancel.is_cancelled() {
        return Err(Denied::new(Denial::Failed, "interrupted"));
    }
    let leaf = OsStr::from_bytes(name);
    match rustix::fs::unlinkat(directory, leaf, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {
            let below = beneath::directory(directory.as_fd(), name)?;
            clear(&below, down - 1, count, cancel)?;
            let gone = rustix::fs::unlinkat(directory, leaf, AtFlags::REMOVEDIR);
            gone.map_err(io::Error::from)?;
        }
        Err(Errno::NOENT) | Ok(()) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    *count += 1;
    Ok(())
}
