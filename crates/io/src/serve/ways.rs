//! By which way files come from a server and go to it: a branch of a session, or a connection of
//! their own, which alone may have lanes.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::lines::told;
use super::remote::{Fetch, Server, is_lost, telling};
use super::request::What;
use super::session::Session;
use crate::destination::Destination;
use crate::disk::file_list::FileList;
use crate::disk::room::Room;
use crate::disk::staging::kept_name;
use crate::error::{Denial, Error};
use crate::lanes::Lanes;
use crate::net::rendezvous::{Line, Way};
use crate::observer::Observer;
use crate::options::{Expected, Options, Source};
use crate::progress::Summary;
use crate::transfer::lanes;
use crate::transfer::receive::{Ask, receive_as};
use crate::transfer::send::send_list;

/// What has more bytes goes by a connection of its own.
const LARGE: u64 = 64 << 20;

impl Server<'_> {
    /// Fetches a file or a tree into a directory here, or a file to a stream. Where [`Fetch::data`]
    /// is known and a directory has less room, that is [`Error::NoRoom`], and nothing is asked.
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
        // What is large gains nothing by a round trip, and something by a thread that reads for
        // nobody else, and by memory, a share of the rate, and lanes that are its own.
        let large = fetch.bytes.is_some_and(|bytes| bytes > LARGE);
        let line = self.known_line();
        let own = Way::Meet(self.rendezvous);
        let (way, other) = match line.as_ref().map(Way::Branch) {
            Some(branch) if large => (own, Some(branch)),
            Some(branch) => (branch, Some(own)),
            None => (own, None),
        };
        // Once what is fetched comes to a place on the disk, it is gone on with there.
        let again = match &destination {
            Destination::Directory(path) => other.map(|other| (other, path.clone())),
            Destination::File(_) | Destination::Stream(_) => None,
        };
        match (self.get_by(way, fetch, destination, observer), again) {
            (Err(error), Some((other, path)))
                if large && is_busy(&error) || !large && is_lost(&error) =>
            {
                let again = self.get_by(other, fetch, Destination::Directory(path), observer);
                again.map_err(|second| telling(error, second))
            }
            (got, _) => got,
        }
    }

    /// Where what is fetched goes in this directory. What stands there under its name, and what is
    /// kept of an earlier try, counts as room.
    fn room_for(&self, fetch: &Fetch, directory: &Path) -> Room {
        let label = self.options.label.filter(|_| !self.options.atomic);
        let names = BTreeSet::from([fetch.name.clone(), kept_name(label.as_ref()).into()]);
        Room::new(directory.to_path_buf(), Some(names))
    }

    fn get_by(
        &self,
        way: Way<'_>,
        fetch: &Fetch,
        destination: Destination,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let (lanes, choice) = self.lanes_of(way);
        let (trees, name) = (fetch.trees, fetch.name.as_bytes().to_vec());
        let mut options = self.asking(What::Get { trees, name, lanes }, &fetch.path)?;
        (options.asked.total, options.lanes) = (fetch.bytes, choice);
        let names = BTreeSet::from([fetch.name.clone()]);
        let only = options.expected.take().and_then(|expected| expected.only);
        options.expected = Some(Expected { names, directories: fetch.trees, only });
        receive_as(destination, (way, &options), observer, self.cancel, Ask::Files).map_err(told)
    }

    /// Sends what was announced under this number.
    pub(super) fn send(
        &self,
        source: Source,
        number: u64,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let mut options = self.options.clone();
        (options.asked.put, options.client) = (Some(number), None);
        let list = FileList::new(source, !options.atomic, self.cancel)?;
        let line = self.known_line();
        let meets = Way::Meet(self.rendezvous);
        let way = line.as_ref().map_or(meets, Way::Branch);
        let is_large = !list.is_stream() && list.total_bytes().is_some_and(|bytes| bytes > LARGE);
        let lanes = lanes::asked(&options, meets.meets()) > 1;
        let takes = line.as_ref().is_some_and(Line::takes_lanes);
        let beside = self.session.filter(|_| is_large && lanes && takes).and_then(Session::beside);
        list.warnings().iter().for_each(|warning| observer.warn(warning));
        let mut send = |way| send_list(&list, way, &options, observer, self.cancel).map_err(told);
        if beside.is_none() {
            return send(way);
        }
        // Lanes are of a connection that is its own. Where there is none to be had, it goes without
        // them: the server still awaits it, unless it was something else of which it had none.
        match send(meets) {
            Err(busy) if is_busy(&busy) => {
                drop(beside);
                send(way).map_err(|error| if is_busy(&error) { busy } else { error })
            }
            sent => sent,
        }
    }

    /// How many lanes a receiver takes of what it asks for so, and what it goes by: both ends must
    /// believe the same, whatever becomes of the way.
    fn lanes_of(&self, way: Way<'_>) -> (u64, Lanes) {
        let options = Options { client: None, ..self.options.clone() };
        match lanes::asked(&options, way.meets()) {
            1 => (0, Lanes::Most(1)),
            lanes => (lanes.into(), options.lanes),
        }
    }

    /// The session's connection, if it stands: whether the server knows sessions is known then.
    pub(super) fn known_line(&self) -> Option<Line> {
        // A trace is told of a connection from its beginning.
        self.session.filter(|_| self.options.trace.is_none()).and_then(Session::known_line)
    }
}

/// Whether a server has no place for it now.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Denied { what: Denial::Busy, .. })
}
