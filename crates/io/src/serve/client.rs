//! The client of a server: each call is a connection of its own, or a branch of a session.
//!
//! Paths are relative to the server's root, with `/` between their parts. Slashes at their ends do
//! not count.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use netblt_proto::api::CloseReason;
use netblt_proto::config::StaticKey;
use netblt_proto::content::FileRange;

use super::requests::copy::{CopyRequest, Copying};
use super::requests::entry::{Entry, EntryType};
use super::requests::join::JoinRequest;
use super::requests::list::ListRequest;
use super::requests::make_dir::MakeDirRequest;
use super::requests::path;
use super::requests::put::{PutOptions, PutRequest};
use super::requests::put_range::PutRangeRequest;
use super::requests::read::{self, MAX_PIECES, PIECE_HEAD, Piece};
use super::requests::remove::RemoveRequest;
use super::requests::rename::RenameRequest;
use super::requests::request::{ASK, Operation, Request};
use super::requests::request_kind::MAX_LONG_REQUEST;
use super::requests::response_item::ResponseItem;
use super::requests::stat::StatRequest;
use super::response_decoder::{ResponseDecoder, server_error};
use super::session::{Session, UploadTurn};
use crate::cancel::Cancel;
use crate::destination::Destination;
use crate::error::{Error, OptionsError, RequestErrorKind, Unsendable, Warning, shown};
use crate::net::establish::Establish;
use crate::observer::Observer;
use crate::options::{Options, Selection, Source};
use crate::parallel_streams::ParallelStreams;
use crate::progress::Summary;
use crate::request_error::RequestError;
use crate::settings::Overwrite;
use crate::ticket::Rendezvous;
use crate::transfer::receive::{Ask, receive_via};

/// Memory for a call with a short answer.
const CALL_BUFFER_BYTES: u32 = 1 << 16;
const CALL_BUFFERS: u32 = 8;
/// Room for the head of a request: a path and numbers, generously.
const MAX_HEAD: usize = 5000;

/// The client of a server. The errors of all its methods are those of a transfer, or
/// [`Error::Denied`] if the server refuses a request.
pub struct Client<'a> {
    /// The server's address, and how to connect.
    pub rendezvous: &'a Rendezvous,
    /// How to talk.
    pub options: &'a Options,
    /// Stops the calls.
    pub cancel: &'a Cancel,
    /// The session whose connection all calls to this server share. Without one each call opens a
    /// connection, which takes two to three round trips more.
    pub session: Option<&'a Session>,
}

/// A file or a directory to fetch.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The path on the server.
    pub path: Vec<u8>,
    /// The local name, without slashes.
    pub name: OsString,
    /// Fetch directories too, with their contents.
    pub trees: bool,
    /// Its length in bytes, as far as [`Client::stat`] has answered: for progress.
    pub bytes: Option<u64>,
    /// How many of them are no holes, as far as [`Client::data_bytes`] knows. [`Client::get`]
    /// checks that a directory has that much free space before anything is sent.
    pub data: Option<u64>,
}

/// The directories that [`Client::remove`] may remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOptions {
    /// An empty directory.
    pub empty_directory: bool,
    /// A directory with its contents.
    pub tree: bool,
}

impl RemoveOptions {
    /// None: only a file or link.
    pub const FILE: Self = Self { empty_directory: false, tree: false };
    /// An empty directory.
    pub const EMPTY_DIRECTORY: Self = Self { empty_directory: true, tree: false };
    /// A directory with its contents.
    pub const TREE: Self = Self { empty_directory: false, tree: true };
}

/// The labels of a range.
#[derive(Clone, Copy, Debug)]
pub struct RangeLabels {
    /// The label of the file: any 32 bytes that no other file has whose ranges are collected in the
    /// same directory.
    pub file: [u8; 32],
    /// The label of the range: a broken upload of it is resumed under the same label.
    pub range: [u8; 32],
}

/// The file that [`Client::join`] makes of its ranges.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// Its path on the server.
    pub to: &'a [u8],
    /// [`RangeLabels::file`].
    pub label: [u8; 32],
    /// Bytes of the file.
    pub total: u64,
    /// Bytes of each range but the last.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// A piece of a file with the file's status, or an error.
pub type Read = Result<(Entry, Vec<u8>), Error>;

impl Client<'_> {
    /// The status of a path. Links are not followed.
    pub fn stat(&self, path: &[u8], observer: &mut dyn Observer) -> Result<Entry, Error> {
        let (mut entry, data) = self.look(false, path, observer)?;
        entry.data = data.map_or(entry.data, |data| data.min(entry.length));
        Ok(entry)
    }

    /// How many bytes a file has that are no holes, or all files in a directory; `None` if it is
    /// neither, and if there are too many files in it for the server to count them before it sends
    /// them.
    pub fn data_bytes(
        &self,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, Error> {
        let (entry, data) = self.look(true, path, observer)?;
        Ok(match entry.sort {
            EntryType::File => Some(data.unwrap_or(entry.length).min(entry.length)),
            EntryType::Directory => data,
            _ => None,
        })
    }

    /// The status of a path, and the bytes of it that are no holes, if the server reports them.
    fn look(
        &self,
        trees: bool,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<(Entry, Option<u64>), Error> {
        let mut lines =
            self.call(Operation::Stat(StatRequest { trees }), path, observer)?.into_iter();
        let Some(ResponseItem::Entry(entry)) = lines.next() else { return Err(odd()) };
        let data = lines.find_map(|line| match line {
            ResponseItem::Room(data) => Some(data),
            _ => None,
        });
        Ok((entry, data))
    }

    /// Lists a directory, in the order of names; of a file, the file itself. Long lists come in
    /// pages, those after the first in a session. `found` is called with each entry.
    pub fn list(
        &self,
        path: &[u8],
        observer: &mut dyn Observer,
        mut found: impl FnMut(Entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut after = Vec::new();
        // One page needs no session.
        let mut own = None;
        loop {
            let list = Operation::List(ListRequest { after: after.clone(), most: 0 });
            let mut more = false;
            let server = Client { session: self.session.or(own.as_ref()), ..*self };
            for line in server.call(list, path, observer)? {
                match line {
                    ResponseItem::Entry(entry) => {
                        after.clone_from(&entry.name);
                        found(entry)?;
                    }
                    ResponseItem::More => more = true,
                    _ => return Err(odd()),
                }
            }
            if !more {
                own.iter().for_each(Session::close);
                return Ok(());
            }
            own.get_or_insert_with(|| Session::new(self.rendezvous.clone(), self.options));
        }
    }

    /// Makes a directory; with `parents` those above it too, and it may exist. How many were made.
    pub fn make_directory(
        &self,
        path: &[u8],
        parents: bool,
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        self.count(Operation::MakeDir(MakeDirRequest { parents }), path, observer)
    }

    /// Removes a file or link, or a directory if `options` allow it. Returns how many were removed.
    pub fn remove(
        &self,
        path: &[u8],
        options: RemoveOptions,
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        let RemoveOptions { empty_directory: directory, tree } = options;
        self.count(Operation::Remove(RemoveRequest { directory, tree }), path, observer)
    }

    /// Gives something another name, a path like its own, in a directory that exists. With
    /// `replace` it takes the place of a file or link there.
    pub fn rename(
        &self,
        path: &[u8],
        to: &[u8],
        replace: bool,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let rename = Operation::Rename(RenameRequest { to: plain(to)?, replace });
        self.count(rename, path, observer).map(|_| ())
    }

    /// Copies a file on the server to another path, with `trees` a directory too.
    /// [`crate::TransferSettings::overwrite`] says whether an existing file there is replaced, and
    /// [`crate::TransferSettings::preserve`] whether times and permissions are kept. Returns how
    /// many files, directories and links were copied.
    pub fn copy(
        &self,
        path: &[u8],
        to: &[u8],
        trees: bool,
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        let replace = self.options.settings.overwrite == Overwrite::Always;
        let how = Copying { replace, trees, keep: self.options.settings.preserve };
        self.count(Operation::Copy(CopyRequest { to: plain(to)?, how }), path, observer)
    }

    /// Reads pieces of files into memory, with few connections: for each piece its bytes and the
    /// file's status, or an error. Every byte is verified.
    pub fn read(&self, pieces: &[Piece], observer: &mut dyn Observer) -> Result<Vec<Read>, Error> {
        let mut plain_pieces = Vec::with_capacity(pieces.len());
        for piece in pieces {
            plain_pieces.push(Piece { path: plain(&piece.path)?, ..piece.clone() });
        }
        let mut all = Vec::with_capacity(pieces.len());
        for some in batches(&plain_pieces) {
            all.extend(self.read_some(some, observer)?);
        }
        Ok(all)
    }

    fn read_some(&self, pieces: &[Piece], observer: &mut dyn Observer) -> Result<Vec<Read>, Error> {
        let Some(first) = pieces.first() else { return Ok(Vec::new()) };
        let bytes = pieces.iter().fold(0, |all: u64, piece| all.saturating_add(piece.bytes));
        let small = bytes <= u64::from(CALL_BUFFERS * CALL_BUFFER_BYTES);
        let read = Operation::Read(read::ReadRequest { pieces: pieces.to_vec() });
        let found = self.ask(read, &first.path, bytes, small, observer)?;
        let mut lines = found.try_iter();
        let mut all = Vec::with_capacity(pieces.len());
        for piece in pieces {
            all.push(match lines.next().ok_or_else(odd)? {
                (ResponseItem::Denied(word, why), _) => {
                    let RequestError { what, why } = RequestError::of_word(word.as_bytes(), why);
                    Err(Error::Denied { what, why })
                }
                (ResponseItem::Entry(entry), _) => match lines.next() {
                    Some((ResponseItem::Data(_), data)) if data.len() as u64 <= piece.bytes => {
                        Ok((entry, data))
                    }
                    _ => return Err(odd()),
                },
                _ => return Err(odd()),
            });
        }
        Ok(all)
    }

    /// Puts files and trees of this machine under a path, as scp understands it: into a directory
    /// that exists, or as a single thing of that name. How they are stored,
    /// [`crate::TransferSettings::overwrite`], [`crate::TransferSettings::atomic`],
    /// [`crate::TransferSettings::preserve`], [`crate::TransferSettings::keep_times`] and
    /// [`crate::TransferSettings::verify`] say.
    pub fn put(
        &self,
        mut selection: Selection,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let _turn = self.upload_turn()?;
        let into = !selection.contents.is_empty();
        let tree = into || selection.items.iter().any(|(path, _)| path.is_dir());
        let several = into || selection.items.len() > 1;
        let (number, name, _) = self.announce(several, tree, false, path, observer)?;
        if let (Some(name), Some((_, own))) = (name, selection.items.first_mut()) {
            *own = Some(name);
        }
        self.send(Source::Selection(selection), number, observer)
    }

    /// Puts a stream under a path: a file of that name, or in an existing directory one of the
    /// stream's own name. It appears when it is whole.
    pub fn put_stream(
        &self,
        stream: Source,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let _turn = self.upload_turn()?;
        let (number, name, _) = self.announce(false, false, false, path, observer)?;
        let stream = match (stream, name) {
            (Source::Stream(mut input), Some(name)) => {
                input.name = name;
                Source::Stream(input)
            }
            (stream, _) => stream,
        };
        self.send(stream, number, observer)
    }

    /// Puts one local file or a stream under exactly this path. If it is a directory, the error is
    /// [`RequestErrorKind::IsADirectory`].
    pub fn put_file(
        &self,
        mut source: Source,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let _turn = self.upload_turn()?;
        let (number, name, _) = self.announce(false, false, false, path, observer)?;
        let Some(name) = name else {
            // It would come under its own name in it.
            let _ = self.take_back(number, observer);
            let why = "a directory stands there".to_owned();
            return Err(Error::Denied { what: RequestErrorKind::IsADirectory, why });
        };
        match &mut source {
            Source::Paths(paths) => {
                let own = |path| (path, Some(name.clone()));
                let items = std::mem::take(paths).into_iter().map(own).collect();
                source = Source::Selection(Selection { items, ..Selection::default() });
            }
            Source::Selection(selection) => {
                selection.items.iter_mut().for_each(|(_, own)| *own = Some(name.clone()));
            }
            Source::Stream(input) => {
                input.name = name;
            }
        }
        self.send(source, number, observer)
    }

    /// Puts a range of a local file into the directory `path`, where the ranges of one file are
    /// collected. [`Client::join`] makes the file of them. Several may come at the same time,
    /// through several servers of one directory. The `digest` of a range ([`Options::on_file`],
    /// [`Options::manifest`]) is the chaining value of its subtree of the file's BLAKE3 tree, as
    /// [`digest_of_ranges`](netblt_proto::content::digest_of_ranges) takes it.
    pub fn put_range(
        &self,
        file: PathBuf,
        range: FileRange,
        labels: RangeLabels,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        if !range.is_good() {
            return Err(Unsendable::Range.into());
        }
        let _turn = self.upload_turn()?;
        let RangeLabels { file: of, range: label } = labels;
        let put = PutRangeRequest { file: of, label, range, verify: self.options.settings.verify };
        let mut lines = self.call(Operation::PutRange(put), path, observer)?.into_iter();
        let Some(ResponseItem::Put(number, name)) = lines.next() else { return Err(odd()) };
        let items = vec![(file, Some(OsString::from_vec(name)))];
        let selection = Selection { items, range: Some(range), ..Selection::default() };
        self.send(Source::Selection(selection), number, observer)
    }

    /// Makes one file of its ranges in the directory `path`, under the name `to`, a path like it,
    /// in a directory that exists. A range that is missing is [`RequestErrorKind::NotFound`].
    ///
    /// [`RequestErrorKind::NotFound`]: crate::RequestErrorKind::NotFound
    pub fn join(
        &self,
        path: &[u8],
        joined: &Joined<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let Joined { to, label, total, bytes, mode, modified } = *joined;
        let replace = self.options.settings.overwrite == Overwrite::Always;
        let to = plain(to)?;
        let join = JoinRequest { to, file: label, total, bytes, mode, modified, replace };
        self.count(Operation::Join(join), path, observer).map(drop)
    }

    /// Cancels the announced upload with this number.
    pub(super) fn take_back(&self, number: u64, observer: &mut dyn Observer) -> Result<(), Error> {
        self.call(Operation::Put(PutRequest::Cancel(number)), b"", observer).map(drop)
    }

    /// Announces an upload: several files, a tree, or one that another server brings. Returns its
    /// number, the name of a single file there, and the lent key.
    pub(super) fn announce(
        &self,
        several: bool,
        tree: bool,
        via_server: bool,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<(u64, Option<OsString>, Option<StaticKey>), Error> {
        let put = PutOptions {
            replace: self.options.settings.overwrite == Overwrite::Always,
            several: several || path.ends_with(b"/") && !tree,
            tree,
            atomic: self.options.settings.atomic,
            preserve: self.options.settings.preserve,
            times: self.options.settings.keep_times,
            verify: self.options.settings.verify,
            label: self.options.label,
            via_server,
        };
        let mut lines =
            self.call(Operation::Put(PutRequest::Announce(put)), path, observer)?.into_iter();
        let Some(ResponseItem::Put(number, name)) = lines.next() else { return Err(odd()) };
        let key = lines.find_map(|line| match line {
            ResponseItem::Key(key) => Some(key),
            _ => None,
        });
        Ok((number, (!name.is_empty()).then(|| OsString::from_vec(name)), key))
    }

    /// Waits until a session may have one more upload.
    fn upload_turn(&self) -> Result<Option<UploadTurn<'_>>, Error> {
        self.session.map(|session| session.upload_turn(self.cancel)).transpose()
    }

    fn count(
        &self,
        operation: Operation,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        match self.call(operation, path, observer)?.into_iter().next() {
            Some(ResponseItem::Done(count)) => Ok(count),
            _ => Err(odd()),
        }
    }

    /// The options of a connection that asks.
    pub(super) fn asking(&self, operation: Operation, path: &[u8]) -> Result<Options, Error> {
        let path = plain(path)?;
        let mut options = self.options.clone();
        options.server_request.request = Request { operation, path }.encode();
        options.network.client = Some(ASK.to_owned());
        Ok(options)
    }

    /// Asks, and reads the answer.
    fn call(
        &self,
        operation: Operation,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Vec<ResponseItem>, Error> {
        let found = self.ask(operation, path, 0, true, observer)?;
        Ok(found.try_iter().map(|(line, _)| line).collect())
    }

    /// Sends a request. Returns the items of the answer, with the bytes behind each, at most so
    /// many.
    fn ask(
        &self,
        operation: Operation,
        path: &[u8],
        most: u64,
        small: bool,
        observer: &mut dyn Observer,
    ) -> Result<Receiver<(ResponseItem, Vec<u8>)>, Error> {
        let repeats = operation.kind().is_repeatable();
        let mut options = self.asking(operation, path)?;
        if small {
            (options.buffers.bytes, options.buffers.count) = (CALL_BUFFER_BYTES, CALL_BUFFERS);
            options.buffers.memory = 0;
        }
        (options.trace, options.manifest, options.settings.max_bytes) = (None, None, None);
        (options.on_file, options.settings.streams) = (None, ParallelStreams::Most(1));
        let (mut quiet, mut first) = (Quiet(observer), None);
        for last in [false, true] {
            let session = self.session.map(|session| session.mux(&mut quiet, self.cancel));
            let line = session.transpose()?.flatten();
            let way = line.as_ref().map_or(Establish::Meet(self.rendezvous), Establish::Branch);
            let (lines, found) = ResponseDecoder::new(most);
            let destination = Destination::writer(lines);
            let asked = receive_via(destination, way, &options, &mut quiet, self.cancel, Ask::List);
            let error = match asked.map_err(server_error) {
                Ok(_) => return Ok(found),
                Err(error) => error,
            };
            if last || !(line.is_some() && repeats && is_lost(&error)) {
                return Err(match first {
                    Some(first) => more_informative(first, error),
                    None => error,
                });
            }
            first = Some(error);
        }
        Err(odd())
    }
}

/// Whether a session was lost, and perhaps nothing else: the server was restarted, or closed it
/// just when the request was sent. A server whose host refuses packets is gone.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Ended(CloseReason::Forgotten | CloseReason::Quit))
}

/// The more informative error of two attempts: that of the first, if the second got no answer.
pub(super) fn more_informative(first: Error, second: Error) -> Error {
    let silent =
        matches!(&second, Error::Connect { reason: CloseReason::NoAnswer { hint: None, .. }, .. });
    let ended = matches!(first, Error::Ended(CloseReason::Forgotten | CloseReason::Unreachable));
    if silent && ended { first } else { second }
}

/// A path as a request has it.
fn plain(path: &[u8]) -> Result<Vec<u8>, Error> {
    let wrong = |why| OptionsError::Path { path: shown(path), why };
    Ok(path::plain(path).map_err(wrong)?)
}

/// Groups of pieces, each as large as a request has room for.
fn batches(pieces: &[Piece]) -> Vec<&[Piece]> {
    let (mut all, mut rest) = (Vec::new(), pieces);
    while !rest.is_empty() {
        let (mut count, mut room) = (0, MAX_LONG_REQUEST - MAX_HEAD);
        for piece in rest.iter().take(MAX_PIECES) {
            let needs = PIECE_HEAD + piece.path.len();
            if needs > room {
                break;
            }
            (count, room) = (count + 1, room - needs);
        }
        let (some, more) = rest.split_at(count.max(1));
        all.push(some);
        rest = more;
    }
    all
}

pub(super) fn odd() -> Error {
    Error::Content("it is not what a server answers")
}

/// The local name of a fetched path: its last part, or another name for the root.
pub fn name_of(path: &[u8], otherwise: &str) -> OsString {
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.next_back().map_or_else(|| otherwise.into(), |part| OsString::from_vec(part.to_vec()))
}

/// A destination directory.
pub fn into_directory(path: impl Into<PathBuf>) -> Destination {
    Destination::Directory(path.into())
}

/// An observer that passes on only warnings.
struct Quiet<'a>(&'a mut dyn Observer);

impl Observer for Quiet<'_> {
    fn connected(&mut self, peer: &str) {
        self.0.connected(peer);
    }

    fn warn(&mut self, warning: &Warning) {
        self.0.warn(warning);
    }
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::Wire;

    use super::*;

    #[test]
    fn a_second_attempt_without_an_answer_does_not_hide_the_first_error() {
        let connect = |reason| {
            let peer = "host:1".to_owned();
            Error::Connect { peer, wire: Wire::Sealed, reason }
        };
        let silent = |unreachable| connect(CloseReason::NoAnswer { hint: None, unreachable });
        let lost = || Error::Ended(CloseReason::Forgotten);
        assert!(matches!(
            more_informative(lost(), silent(true)),
            Error::Ended(CloseReason::Forgotten)
        ));
        assert!(matches!(
            more_informative(lost(), silent(false)),
            Error::Ended(CloseReason::Forgotten)
        ));
        let refused = || connect(CloseReason::Refused("no".to_owned()));
        assert!(matches!(more_informative(lost(), refused()), Error::Connect { .. }));
        let quit = Error::Ended(CloseReason::Quit);
        assert!(matches!(more_informative(quit, silent(true)), Error::Connect { .. }));
        assert!(
            !is_lost(&Error::Ended(CloseReason::Unreachable)),
            "it is gone, and not started again"
        );
    }
}
