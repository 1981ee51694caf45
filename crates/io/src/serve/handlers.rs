//! Performs a request on the server's disk, on a thread of its own: beneath one root, by handles,
//! without following a link (`disk/safe_open.rs`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::cleanup::Cleanups;
use super::listings::Listings;
use super::push::PushContext;
use super::range_reader::RangeReader;
use super::ranges;
use super::rate_limiter::ClientId;
use super::rename_copy::{self, Bounds, MAX_DOWN};
use super::request::{self, Entry, EntryType, Piece, Put, Request, RequestKind, ResponseItem};
use super::response::{Done, HeldReader, OutgoingData, PreparedUpload, denied, expected};
use crate::cancel::Cancel;
use crate::destination::Destination;
use crate::disk::file_list::FileList;
use crate::disk::free_space::FreeSpace;
use crate::disk::layout::Layout;
use crate::disk::safe_open;
use crate::disk::sites;
use crate::disk::source::SourceReader;
use crate::disk::staging::{self, Open, Staging};
use crate::error::RequestErrorKind;
use crate::memory_budget::MemoryLease;
use crate::name_log::NameLog;
use crate::options::{Input, Options, Overwrite, Resume, Selection};
use crate::request_error::RequestError;
use crate::transfer::receive::writer;

/// Entries in one answer at most. A client asks again for more.
const PAGE: u64 = 10_000;
/// Memory of an item of an answer beyond its name.
const LINE_BYTES: u64 = 100;
/// Names of a directory that is removed that are held at once.
const AT_ONCE: usize = 1024;

/// The context of a request.
pub(super) struct HandlerContext<'a> {
    pub(super) options: &'a Options,
    pub(super) layout: Layout,
    pub(super) cleanups: &'a Cleanups,
    pub(super) listings: &'a Listings,
    pub(super) client: ClientId,
    /// The client may read files here.
    pub(super) may_read: bool,
    pub(super) cancel: &'a Cancel,
}

/// Performs a request.
pub(super) fn perform(
    request: &Request,
    root: &Arc<OwnedFd>,
    with: &HandlerContext<'_>,
    outward: Option<PushContext>,
) -> Result<Done, RequestError> {
    let HandlerContext { options, layout, cleanups, cancel, .. } = *with;
    let path = &request.path[..];
    if request.paths().any(staging::has_ours) && !is_left(request) {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "reserved name: netblt keeps parts of transfers there",
        ));
    }
    match &request.what {
        RequestKind::Get { trees, name, .. } => get(look(root, path, *trees, name, with)?, with),
        RequestKind::Put(_) if request.cancels_upload().is_some() => {
            answer([ResponseItem::Done(1)], layout)
        }
        RequestKind::Put(wish) => put(root, path, *wish, with),
        RequestKind::PutRange(wish) => ranges::put(root, path, *wish, options, layout, cleanups),
        RequestKind::Join(wish) => {
            answer([ResponseItem::Done(ranges::join(root, path, wish)?)], layout)
        }
        RequestKind::Stat { trees } => {
            let entry = stat(root, path)?;
            let data = match (entry.sort, *trees) {
                // It takes as much as it needs to send the tree, and as much memory.
                (EntryType::Directory, true) => {
                    look(root, path, true, request::NAME.as_bytes(), with)?.0.data_bytes()
                }
                _ => Some(entry.data).filter(|data| *data < entry.length),
            };
            let lines =
                [ResponseItem::Entry(entry)].into_iter().chain(data.map(ResponseItem::Room));
            answer(lines, layout)
        }
        RequestKind::List { after, most } => {
            let (lines, memory) = list(root, path, after, *most, with)?;
            let mut outgoing = outgoing(lines, layout)?;
            outgoing.reader.hold(memory);
            Ok(Done::Send(Box::new(outgoing)))
        }
        RequestKind::MakeDir { parents } => {
            answer([ResponseItem::Done(make(root, path, *parents)?)], layout)
        }
        RequestKind::Remove { directory, tree } => {
            answer([ResponseItem::Done(remove(root, path, *directory, *tree, cancel)?)], layout)
        }
        RequestKind::Rename { to, replace } => {
            answer([ResponseItem::Done(rename_copy::rename(root, path, to, *replace)?)], layout)
        }
        RequestKind::Copy { to, how } => {
            let bytes = options.max_bytes.unwrap_or(u64::MAX);
            let bounds = Bounds { count: options.max_files, bytes };
            let count = rename_copy::copy(root, path, to, *how, bounds, cancel)?;
            answer([ResponseItem::Done(count)], layout)
        }
        RequestKind::Read { pieces } => {
            log_pieces(pieces, options.name_log.as_ref());
            let all = pieces.iter().fold(0, |all: u64, piece| all.saturating_add(piece.bytes));
            let pieces = RangeReader::new(Arc::clone(root), pieces.clone());
            let outgoing = streamed(Box::new(pieces), all, layout)?;
            Ok(Done::Send(Box::new(outgoing)))
        }
        RequestKind::Send { trees, name, push } => {
            let none = || RequestError::new(RequestErrorKind::Failed, "internal server error");
            let outward = outward.ok_or_else(none)?;
            let found = look(root, path, *trees, name, with)?;
            let (progress, fails) = outward.send(found, push, cancel)?;
            let outgoing = streamed(Box::new(progress), u64::MAX, layout)?;
            Ok(Done::Send(Box::new(OutgoingData { fails: Some(fails), ..outgoing })))
        }
    }
}

/// The files whose pieces are read, each once.
fn log_pieces(pieces: &[Piece], log: Option<&NameLog>) {
    let mut last = None;
    for Piece { path, .. } in pieces {
        if last.replace(path) != Some(path) {
            log.iter().for_each(|log| log.add(path));
        }
    }
}

/// Whether a request removes the parts of a transfer under a label.
fn is_left(request: &Request) -> bool {
    let (parent, leaf) = safe_open::split(&request.path);
    let own = staging::has_ours(parent);
    matches!(request.what, RequestKind::Remove { tree: true, .. })
        && (staging::label_of(leaf).is_some() || staging::is_ranges(leaf))
        && !own
}

fn answer(
    lines: impl IntoIterator<Item = ResponseItem>,
    layout: Layout,
) -> Result<Done, RequestError> {
    outgoing(lines, layout).map(|outgoing| Done::Send(Box::new(outgoing)))
}

/// An answer to be sent.
pub(super) fn outgoing(
    lines: impl IntoIterator<Item = ResponseItem>,
    layout: Layout,
) -> Result<OutgoingData, RequestError> {
    let mut text = [request::TITLE, &[request::END]].concat();
    lines.into_iter().for_each(|line| text.extend(line.encode()));
    let bytes = text.len() as u64;
    streamed(Box::new(io::Cursor::new(text)), bytes, layout)
}

/// A response of about so many bytes, read as it is sent.
fn streamed(
    reader: Box<dyn io::Read + Send>,
    bytes: u64,
    layout: Layout,
) -> Result<OutgoingData, RequestError> {
    let input = Input { name: request::NAME.into(), label: "the answer", reader };
    let list = FileList::stream(input).map_err(denied)?;
    let reader = SourceReader::sealed(list, layout).map_err(denied)?;
    let reader = HeldReader::new(reader, None);
    Ok(OutgoingData { reader, total: None, files: None, bytes, fails: None })
}

/// The file list of a path, and the directory of its paths.
fn look(
    root: &OwnedFd,
    path: &[u8],
    trees: bool,
    name: &[u8],
    with: &HandlerContext<'_>,
) -> Result<(FileList, Arc<OwnedFd>), RequestError> {
    let handle = match path {
        b"" => root.try_clone()?,
        path => safe_open::open(root.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK)?,
    };
    let stat = rustix::fs::fstat(&handle).map_err(io::Error::from)?;
    if safe_open::is_directory(&stat) && !trees {
        return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
    }
    if !safe_open::is_directory(&stat) && !safe_open::is_file(&stat) {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "it is neither a file nor a directory",
        ));
    }
    let handle = Arc::new(handle);
    let item = (safe_open::path_of(&handle), Some(OsString::from_vec(name.to_vec())));
    let selection = Selection { items: vec![item], ..Selection::default() };
    let memory = &with.options.memory_share;
    let list = FileList::beneath(&selection, Arc::clone(&handle), with.cancel, memory);
    let list = list.map_err(denied)?;
    Ok((list, handle))
}

fn get(
    (list, handle): (FileList, Arc<OwnedFd>),
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let (total, files) = (list.total_bytes(), list.files_in_all());
    let reader = SourceReader::sealed(list, with.layout).map_err(denied)?;
    let reader = reader.naming(with.options.name_log.clone());
    let reader = HeldReader::new(reader, Some(handle));
    // A file has a table beside its bytes, and a tree many: then it is not worth counting.
    let bytes = total.filter(|_| files == Some(1)).unwrap_or(u64::MAX);
    Ok(Done::Send(Box::new(OutgoingData { reader, total, files, bytes, fails: None })))
}

/// Prepares an upload. The destination is understood as by scp: an existing directory takes the
/// files, anything else is the name of a single file in an existing directory.
fn put(
    root: &OwnedFd,
    path: &[u8],
    wish: Put,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let HandlerContext { options, layout, cleanups, .. } = *with;
    let (parent, leaf) = safe_open::split(path);
    let (directory, name): (OwnedFd, Vec<u8>) = match safe_open::directory(root.as_fd(), path) {
        Ok(directory) => (directory, Vec::new()),
        Err(error) if wish.several => return Err(error.into()),
        Err(error) => {
            let directory = safe_open::directory(root.as_fd(), parent)?;
            match safe_open::status(&directory, leaf)? {
                // A link to a directory, which is not followed.
                Some(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
                    return Err(error.into());
                }
                Some(_) if wish.tree => {
                    let why = "it is a file, and cannot become a directory";
                    return Err(RequestError::new(RequestErrorKind::NotADirectory, why));
                }
                Some(_) if !wish.replace => {
                    return Err(RequestError::new(RequestErrorKind::Exists, "it exists"));
                }
                _ => (directory, leaf.to_vec()),
            }
        }
    };
    let held = Arc::new(directory);
    let place = safe_open::path_of(&held);
    let mut options = options.clone();
    options.overwrite = if wish.replace { Overwrite::Always } else { Overwrite::Never };
    (options.atomic, options.preserve) = (wish.atomic, wish.preserve);
    (options.keep_times, options.verify) = (wish.times, wish.verify);
    options.label = wish.label.filter(|_| !wish.atomic);
    // Parts of others reveal their content, so only a client that may read can resume them. A label
    // is known only to the client that chose it.
    let may_hear = with.may_read || options.label.is_some();
    options.resume = if may_hear { Resume::Auto } else { Resume::Never };
    let kept_at = cleanups.wait_for(&held, options.label)?;
    // A client is not to send again what another upload still holds.
    let kept = options.label.map(|label| staging::kept_name(Some(&label)));
    if kept.is_some_and(|name| staging::is_taken(&held, &name)) {
        return Err(RequestError::new(
            RequestErrorKind::Busy,
            "another transfer of this label is not over",
        ));
    }
    options.expected = Some(expected(&name));
    let names = (!name.is_empty()).then(|| BTreeSet::from([OsString::from_vec(name.clone())]));
    let room = FreeSpace::new(place.clone(), names);
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    Ok(Done::Put(Box::new(PreparedUpload { writer, room, name, names, held, kept_at })))
}

fn stat(root: &OwnedFd, path: &[u8]) -> Result<Entry, RequestError> {
    let (parent, leaf) = safe_open::split(path);
    let stat = match path {
        b"" => Some(rustix::fs::fstat(root).map_err(io::Error::from)?),
        _ => safe_open::status(safe_open::directory(root.as_fd(), parent)?, leaf)?,
    };
    let stat = stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    Ok(Entry::of(leaf, &stat))
}

/// A page of a directory, or the entry of a file, and the memory that it takes.
fn list(
    root: &OwnedFd,
    path: &[u8],
    after: &[u8],
    most: u64,
    with: &HandlerContext<'_>,
) -> Result<(Vec<ResponseItem>, MemoryLease), RequestError> {
    let mut memory = with.options.memory_share.lease();
    let directory = match safe_open::directory(root.as_fd(), path).map_err(safe_open::errno) {
        Ok(directory) => directory,
        // A link is not followed. Systems differ in which of the two errors they return.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Ok((vec![ResponseItem::Entry(stat(root, path)?)], memory));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let most = usize::try_from(if most == 0 { PAGE } else { most.min(PAGE) }).unwrap_or(1);
    let memory_share = &with.options.memory_share;
    let listings = with.listings;
    let page = listings.page(with.client, memory_share, &directory, after, most, with.cancel)?;
    let mut lines = Vec::new();
    for name in page.names {
        if with.cancel.is_cancelled() {
            return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
        }
        // As it is held, and as it is sent.
        if !memory.take(2 * (LINE_BYTES + name.len() as u64)) {
            return Err(RequestError::new(
                RequestErrorKind::Busy,
                "there is no memory for a list; try again later",
            ));
        }
        // The entry may have been removed meanwhile.
        if let Some(stat) = safe_open::status(&directory, &name)? {
            lines.push(ResponseItem::Entry(Entry::of(&name, &stat)));
        }
    }
    lines.extend(page.more.then_some(ResponseItem::More));
    Ok((lines, memory))
}

fn make(root: &OwnedFd, path: &[u8], parents: bool) -> Result<u64, RequestError> {
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    if path.is_empty() {
        return if parents { Ok(0) } else { Err(io::Error::from(Errno::EXIST).into()) };
    }
    let ends = (0..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/'));
    let mut made = 0;
    for end in ends.filter(|end| parents || *end == path.len()) {
        let name = path.get(..end).unwrap_or_default();
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(root.as_fd(), parent)?;
        match rustix::fs::mkdirat(&parent, OsStr::from_bytes(leaf), all) {
            Ok(()) => made += 1,
            Err(Errno::EXIST) if parents => {
                safe_open::directory(root.as_fd(), name)?;
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(made)
}

fn remove(
    root: &OwnedFd,
    path: &[u8],
    directory: bool,
    tree: bool,
    cancel: &Cancel,
) -> Result<u64, RequestError> {
    if path.is_empty() {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "the root itself is not removed",
        ));
    }
    let (parent, leaf) = safe_open::split(path);
    let parent = safe_open::directory(root.as_fd(), parent)?;
    let stat = safe_open::status(&parent, leaf)?.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    if let Some(label) = staging::label_of(leaf) {
        let kept = Staging::keep(&parent, &staging::kept_name(Some(&label)), Open::There)?;
        let used = || {
            RequestError::new(
                RequestErrorKind::Busy,
                "a transfer is using it, or it is another user's",
            )
        };
        sites::remove_home(kept.ok_or_else(used)?, &parent, &parent);
        return Ok(1);
    }
    if staging::is_ranges(leaf) {
        crate::disk::ranges::remove(&parent, leaf)?;
        return Ok(1);
    }
    let name = OsStr::from_bytes(leaf);
    let mut count = 0;
    let flags = match (safe_open::is_directory(&stat), directory || tree) {
        (false, _) => AtFlags::empty(),
        (true, true) => AtFlags::REMOVEDIR,
        (true, false) => {
            return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
        }
    };
    if tree && flags == AtFlags::REMOVEDIR {
        clear(&safe_open::directory(parent.as_fd(), leaf)?, MAX_DOWN, &mut count, cancel)?;
    }
    rustix::fs::unlinkat(&parent, name, flags).map_err(io::Error::from)?;
    Ok(count + 1)
}

/// Removes the contents of a directory. Links in it are removed, and their targets are not touched.
fn clear(
    directory: &OwnedFd,
    down: u32,
    count: &mut u64,
    cancel: &Cancel,
) -> Result<(), RequestError> {
    if down == 0 {
        return Err(RequestError::new(
            RequestErrorKind::Failed,
            "the directories in it are too many levels deep",
        ));
    }
    loop {
        // A directory may have millions of names. This is how many are in memory at a time.
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
) -> Result<(), RequestError> {
    if cancel.is_cancelled() {
        return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
    }
    let leaf = OsStr::from_bytes(name);
    match rustix::fs::unlinkat(directory, leaf, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {
            let below = safe_open::directory(directory.as_fd(), name)?;
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
