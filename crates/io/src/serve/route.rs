//! By which way files come from a server and go to it: a branch of a session, or a connection of
//! their own, which alone may have subflows.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::client::{Client, Fetch, is_lost, more_informative};
use super::requests::get::GetRequest;
use super::requests::request::Operation;
use super::response_decoder::server_error;
use super::session::Session;
use crate::destination::Destination;
use crate::disk::file_list::FileList;
use crate::disk::free_space::FreeSpace;
use crate::disk::staging::kept_name;
use crate::error::{Error, RequestErrorKind};
use crate::net::establish::{Establish, Mux};
use crate::observer::Observer;
use crate::options::{Expected, Source};
use crate::parallel_streams::ParallelStreams;
use crate::progress::Summary;
use crate::transfer::receive::{Ask, receive_via};
use crate::transfer::send::send_list;
use crate::transfer::subflows;

/// Files with more bytes go by a connection of their own.
const LARGE: u64 = 64 << 20;

impl Client<'_> {
    /// Fetches a file or a tree into a local directory, or a file to a stream. Where
    /// [`Fetch::data`] is known and a directory has less free space, the error is
    /// [`Error::NoRoom`], and nothing is requested.
    pub fn get(
        &self,
        fetch: &Fetch,
        destination: Destination,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        if let (Destination::Directory(path), Some(data)) = (&destination, fetch.data) {
            let warning = self.room_for(fetch, path).check(data)?;
            warning.iter().for_each(|warning| observer.warn(warning));
        }
        // A large file gains nothing by saving a round trip. It gains by a reading thread, memory,
        // a share of the rate, and subflows of its own.
        let large = fetch.bytes.is_some_and(|bytes| bytes > LARGE);
        let line = self.known_line();
        let own = Establish::Meet(self.rendezvous);
        let (way, other) = match line.as_ref().map(Establish::Branch) {
            Some(branch) if large => (own, Some(branch)),
            Some(branch) => (branch, Some(own)),
            None => (own, None),
        };
        // A broken transfer into a directory is resumed there.
        let again = match &destination {
            Destination::Directory(path) => other.map(|other| (other, path.clone())),
            Destination::File(_) | Destination::Stream(_) => None,
        };
        match (self.get_by(way, fetch, destination, observer), again) {
            (Err(error), Some((other, path)))
                if large && is_busy(&error) || !large && is_lost(&error) =>
            {
                let again = self.get_by(other, fetch, Destination::Directory(path), observer);
                again.map_err(|second| more_informative(error, second))
            }
            (got, _) => got,
        }
    }

    /// The destination in this directory. Existing files with its name, and the parts of an earlier
    /// try, count as free space.
    fn room_for(&self, fetch: &Fetch, directory: &Path) -> FreeSpace {
        let label = self.options.label.filter(|_| !self.options.settings.atomic);
        let names = BTreeSet::from([fetch.name.clone(), kept_name(label.as_ref()).into()]);
        FreeSpace::new(directory.to_path_buf(), Some(names))
    }

    fn get_by(
        &self,
        way: Establish<'_>,
        fetch: &Fetch,
        destination: Destination,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let (subflows, choice) = self.subflows_of(way);
        let (trees, name) = (fetch.trees, fetch.name.as_bytes().to_vec());
        let get = Operation::Get(GetRequest { trees, name, subflows });
        let mut options = self.asking(get, &fetch.path)?;
        (options.server_request.total, options.settings.streams) = (fetch.bytes, choice);
        let names = BTreeSet::from([fetch.name.clone()]);
        let only = options.expected.take().and_then(|expected| expected.only);
        options.expected = Some(Expected { names, directories: fetch.trees, only });
        receive_via(destination, way, &options, observer, self.cancel, Ask::Files)
            .map_err(server_error)
    }

    /// Sends the announced files with this number.
    pub(super) fn send(
        &self,
        source: Source,
        number: u64,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let mut options = self.options.clone();
        (options.server_request.put, options.network.client) = (Some(number), None);
        let list = FileList::new(source, !options.settings.atomic, self.cancel)?;
        let line = self.known_line();
        let meets = Establish::Meet(self.rendezvous);
        let way = line.as_ref().map_or(meets, Establish::Branch);
        let is_large = !list.is_stream() && list.total_bytes().is_some_and(|bytes| bytes > LARGE);
        let subflows = subflows::asked(&options, meets.meets()) > 1;
        let takes = line.as_ref().is_some_and(Mux::takes_subflows);
        let beside =
            self.session.filter(|_| is_large && subflows && takes).and_then(Session::beside);
        list.warnings().iter().for_each(|warning| observer.warn(warning));
        let mut send =
            |way| send_list(&list, way, &options, observer, self.cancel).map_err(server_error);
        if beside.is_none() {
            return send(way);
        }
        // ParallelStreams need a connection of their own. Without one the files go without
        // subflows: the server still awaits them, unless it lacked something else.
        match send(meets) {
            Err(busy) if is_busy(&busy) => {
                drop(beside);
                send(way).map_err(|error| if is_busy(&error) { busy } else { error })
            }
            sent => sent,
        }
    }

    /// The number of subflows in the request, and that of the receiver. Both ends must agree,
    /// whichever route it takes.
    fn subflows_of(&self, way: Establish<'_>) -> (u64, ParallelStreams) {
        let mut options = self.options.clone();
        options.network.client = None;
        match subflows::asked(&options, way.meets()) {
            1 => (0, ParallelStreams::Most(1)),
            subflows => (subflows.into(), options.settings.streams),
        }
    }

    /// The session's connection, if it is open and the server has answered on a branch of it.
    pub(super) fn known_line(&self) -> Option<Mux> {
        // A trace begins with its connection.
        self.session.filter(|_| self.options.trace.is_none()).and_then(Session::known_mux)
    }
}

/// Whether a server has no place for it now.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Denied { what: RequestErrorKind::Busy, .. })
}
