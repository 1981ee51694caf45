//! What clients ask of a server: each call is a connection of its own.
//!
//! Paths are relative to what the server serves, with `/` between their parts; slashes at their
//! ends do not count.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use netblt_proto::machine::Reason;

use super::request::{self, ASK, Entry, Line, Put, Request, What};
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::destination::Destination;
use crate::error::{Error, OptionsError, shown};
use crate::observer::Observer;
use crate::options::{Expected, Options, Overwrite, Selection, Source};
use crate::progress::Summary;
use crate::ticket::Rendezvous;
use crate::transfer::receive::{Ask, receive_as};
use crate::transfer::send::send;

/// Memory for a call whose answer is short.
const CALL_BUFFER_BYTES: u32 = 1 << 16;
const CALL_BUFFERS: u32 = 8;

/// A server, and how to talk to it. Errors of all its methods are those of a transfer, and
/// [`Error::Denied`] if the server does not do what it is asked.
pub struct Server<'a> {
    /// Where it is.
    pub rendezvous: &'a Rendezvous,
    /// How to talk.
    pub options: &'a Options,
    /// What stops it.
    pub cancel: &'a Cancel,
}

/// What is to be fetched.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// What, on the server.
    pub path: Vec<u8>,
    /// Under which name it comes: one part.
    pub name: OsString,
    /// Directories too, with all that is in them.
    pub trees: bool,
    /// How many bytes that are, as far as [`Server::stat`] has told: for progress.
    pub bytes: Option<u64>,
}

impl Server<'_> {
    /// What stands under a path; links are not followed.
    pub fn stat(&self, path: &[u8], observer: &mut dyn Observer) -> Result<Entry, Error> {
        match self.call(What::Stat, path, observer)?.into_iter().next() {
            Some(Line::Entry(entry)) => Ok(entry),
            _ => Err(odd()),
        }
    }

    /// What is in a directory, in the order of names; of a file, itself. However much it is, it
    /// comes in pages, and `found` is told of each entry.
    pub fn list(
        &self,
        path: &[u8],
        observer: &mut dyn Observer,
        mut found: impl FnMut(Entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut after = Vec::new();
        loop {
            let what = What::List { after: after.clone(), most: 0 };
            let mut more = false;
            for line in self.call(what, path, observer)? {
                match line {
                    Line::Entry(entry) => {
                        after.clone_from(&entry.name);
                        found(entry)?;
                    }
                    Line::More => more = true,
                    Line::Put(..) | Line::Done(_) => return Err(odd()),
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Makes a directory; with `parents` those above it too, and it may exist. How many were made.
    pub fn make_directory(
        &self,
        path: &[u8],
        parents: bool,
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        self.count(What::MakeDir { parents }, path, observer)
    }

    /// Removes a file or link; with `directory` an empty directory too, with `tree` one with all
    /// that is in it. How many were removed.
    pub fn remove(
        &self,
        path: &[u8],
        (directory, tree): (bool, bool),
        observer: &mut dyn Observer,
    ) -> Result<u64, Error> {
        self.count(What::Remove { directory, tree }, path, observer)
    }

    /// Fetches a file or a tree into a directory here, or a file to a stream.
    pub fn get(
        &self,
        fetch: &Fetch,
        destination: Destination,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let what = What::Get { trees: fetch.trees, name: fetch.name.as_bytes().to_vec() };
        let mut options = self.asking(what, &fetch.path)?;
        options.asked.total = fetch.bytes;
        let names = BTreeSet::from([fetch.name.clone()]);
        let only = options.expected.take().and_then(|expected| expected.only);
        options.expected = Some(Expected { names, directories: fetch.trees, only });
        let place = (self.rendezvous, &options);
        receive_as(destination, place, observer, self.cancel, Ask::Files).map_err(told)
    }

    /// Puts files and trees of this machine under a path, as scp understands it: into a directory
    /// that exists, or as a single thing of that name. How they are stored,
    /// [`Options::overwrite`], [`Options::atomic`], [`Options::preserve`],
    /// [`Options::keep_times`] and [`Options::verify`] say.
    pub fn put(
        &self,
        mut selection: Selection,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let tree = selection.items.iter().any(|(path, _)| path.is_dir());
        let (number, name) = self.announce(selection.items.len() > 1, tree, path, observer)?;
        if let (Some(name), Some((_, own))) = (name, selection.items.first_mut()) {
            *own = Some(name);
        }
        self.send(Source::Selection(selection), number, observer)
    }

    /// Puts what a stream gives until it ends under a path: a file of that name, or in a directory
    /// that exists one of the stream's own name. It appears when it is whole.
    pub fn put_stream(
        &self,
        stream: Source,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let (number, name) = self.announce(false, false, path, observer)?;
        let stream = match (stream, name) {
            (Source::Stream(mut input), Some(name)) => {
                let named = name.into_string().map_err(|_| OptionsError::NoFile(shown(path)))?;
                input.name = named;
                Source::Stream(input)
            }
            (stream, _) => stream,
        };
        self.send(stream, number, observer)
    }

    fn announce(
        &self,
        several: bool,
        tree: bool,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<(u64, Option<OsString>), Error> {
        let put = Put {
            replace: self.options.overwrite == Overwrite::Always,
            several: several || path.ends_with(b"/") && !tree,
            tree,
            atomic: self.options.atomic,
            preserve: self.options.preserve,
            times: self.options.keep_times,
            verify: self.options.verify,
        };
        match self.call(What::Put(put), path, observer)?.into_iter().next() {
            Some(Line::Put(number, name)) => {
                Ok((number, (!name.is_empty()).then(|| OsString::from_vec(name))))
            }
            _ => Err(odd()),
        }
    }

    fn send(
        &self,
        source: Source,
        number: u64,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let mut options = self.options.clone();
        (options.asked.put, options.client) = (Some(number), None);
        send(source, self.rendezvous, &options, observer, self.cancel).map_err(told)
    }

    fn count(&self, what: What, path: &[u8], observer: &mut dyn Observer) -> Result<u64, Error> {
        match self.call(what, path, observer)?.into_iter().next() {
            Some(Line::Done(count)) => Ok(count),
            _ => Err(odd()),
        }
    }

    /// The options of a connection that asks.
    fn asking(&self, what: What, path: &[u8]) -> Result<Options, Error> {
        let name = |why| OptionsError::FileName { name: shown(path), why };
        let path = request::plain(path).map_err(name)?;
        let mut options = self.options.clone();
        options.asked.request = Request { what, path }.encode();
        options.client = Some(ASK.to_owned());
        Ok(options)
    }

    /// Asks, and reads the answer.
    fn call(
        &self,
        what: What,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Line>, Error> {
        let mut options = self.asking(what, path)?;
        (options.buffer_bytes, options.buffers) = (CALL_BUFFER_BYTES, CALL_BUFFERS);
        (options.trace, options.manifest, options.max_bytes) = (None, None, None);
        options.on_file = None;
        let (lines, found) = Lines::new();
        let destination = Destination::writer(lines);
        let mut quiet = Quiet(observer);
        let place = (self.rendezvous, &options);
        receive_as(destination, place, &mut quiet, self.cancel, Ask::List).map_err(told)?;
        Ok(found.try_iter().collect())
    }
}

/// A server's own words, told from all else that ends a connection.
fn told(error: Error) -> Error {
    match &error {
        Error::Ended(Reason::PeerQuit(words)) => match Denied::parse(words) {
            Some(Denied { what, why }) => Error::Denied { what, why },
            None => error,
        },
        _ => error,
    }
}

fn odd() -> Error {
    Error::Content("it is not what a server answers")
}

/// A name for what is fetched: the last part of its path, or another one for the root.
pub fn name_of(path: &[u8], otherwise: &str) -> OsString {
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.next_back().map_or_else(|| otherwise.into(), |part| OsString::from_vec(part.to_vec()))
}

/// A destination directory.
pub fn into_directory(path: impl Into<PathBuf>) -> Destination {
    Destination::Directory(path.into())
}

/// Of a call only warnings are of interest.
struct Quiet<'a>(&'a mut dyn Observer);

impl Observer for Quiet<'_> {
    fn connected(&mut self, peer: &str) {
        self.0.connected(peer);
    }

    fn warn(&mut self, warning: &crate::error::Warning) {
        self.0.warn(warning);
    }
}

/// Takes an answer apart, as it comes.
struct Lines {
    line: Vec<u8>,
    titled: bool,
    found: Sender<Line>,
}

impl Lines {
    fn new() -> (Self, Receiver<Line>) {
        let (found, lines) = channel();
        (Self { line: Vec::new(), titled: false, found }, lines)
    }

    fn take(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.line);
        let no_answer = || io::Error::new(io::ErrorKind::InvalidData, "it is no server's answer");
        if !std::mem::replace(&mut self.titled, true) {
            return if text == request::TITLE { Ok(()) } else { Err(no_answer()) };
        }
        match Line::parse(&text).map_err(|()| no_answer())? {
            Some(line) => self.found.send(line).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == request::END) {
            match piece.split_last() {
                Some((&request::END, text)) => {
                    self.line.extend_from_slice(text);
                    self.take()?;
                }
                _ => self.line.extend_from_slice(piece),
            }
            if self.line.len() > request::LONGEST_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
