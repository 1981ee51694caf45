//! A transfer from one server straight to another. The client introduces the two, and watches.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::Receiver;

use netblt_proto::config::Identity;

use super::client::{Client, Fetch, odd};
use super::requests::request::Operation;
use super::requests::response_item::ResponseItem;
use super::requests::send::{PushTarget, SendRequest};
use super::response_decoder::{ResponseDecoder, server_error};
use crate::destination::Destination;
use crate::error::{Error, Warning};
use crate::net::establish::Establish;
use crate::observer::Observer;
use crate::parallel_streams::ParallelStreams;
use crate::progress::{LimitedBy, Progress, Summary};
use crate::ticket::Rendezvous;
use crate::transfer::receive::{Ask, receive_via};
use crate::transfer::summary::bits_per_second;

/// Buffers so small that each progress record arrives at once.
const BUFFER_BYTES: u32 = 1 << 10;
const BUFFERS: u32 = 8;

/// The error of a third-party transfer, and the server that reports it.
#[derive(Debug)]
pub enum ThirdPartyError {
    /// The server that sends.
    From(Error),
    /// The server that receives.
    To(Error),
}

impl Client<'_> {
    /// Has this server send a file or a tree straight to another one, under a path there as
    /// [`Client::put`] understands it: `several` if more files come to the same place. Both must
    /// accept the caller's key, which here needs the option `third-party`
    /// ([`Permissions::third_party`](crate::permissions::Permissions::third_party)). The other
    /// server's options say how files are stored. No data come here.
    pub fn send_to(
        &self,
        fetch: &Fetch,
        other: &Client<'_>,
        path: &[u8],
        several: bool,
        observer: &mut dyn Observer,
    ) -> Result<Summary, ThirdPartyError> {
        let several = several || path.ends_with(b"/") && !fetch.trees;
        let announced = other.announce(several, fetch.trees, true, path, observer);
        let (number, name, own) = announced.map_err(ThirdPartyError::To)?;
        let odd_there = || ThirdPartyError::To(odd());
        let own = own.ok_or_else(odd_there)?;
        let Rendezvous::Call { addresses, identity: Identity::Client(call) } = other.rendezvous
        else {
            return Err(odd_there());
        };
        let address = addresses.first().cloned().ok_or_else(odd_there)?;
        let name = name.unwrap_or_else(|| fetch.name.clone()).as_bytes().to_vec();
        let push = PushTarget { number, server: call.server(), own, address };
        let send = Operation::Send(SendRequest { trees: fetch.trees, name, push });
        self.watch(send, fetch, observer).map_err(|error| {
            // If no connection has brought it, the server would await it for a while yet.
            let _ = other.take_back(number, observer);
            ThirdPartyError::From(error)
        })
    }

    fn watch(
        &self,
        send: Operation,
        fetch: &Fetch,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let mut options = self.asking(send, &fetch.path)?;
        (options.buffers.bytes, options.buffers.count) = (BUFFER_BYTES, BUFFERS);
        options.buffers.memory = 0;
        (options.trace, options.manifest, options.settings.max_bytes) = (None, None, None);
        (options.on_file, options.settings.streams) = (None, ParallelStreams::Most(1));
        let (lines, found) = ResponseDecoder::new(0);
        let mut watch = PushObserver { observer, found, moved: [0; 6], over: false };
        let way = Establish::Meet(self.rendezvous);
        let destination = Destination::writer(lines);
        let own = receive_via(destination, way, &options, &mut watch, self.cancel, Ask::List);
        let own = own.map_err(server_error)?;
        watch.read_records();
        let [bytes, _, kept, files, skipped, limit] = watch.moved;
        let limit = LimitedBy::ALL.iter().zip(0..).find(|(_, at)| *at == limit);
        if !watch.over {
            return Err(odd());
        }
        let real_bps = bits_per_second(bytes.saturating_sub(kept), own.elapsed);
        let (elapsed, verified) = (own.elapsed, own.verified);
        Ok(Summary {
            bytes,
            kept,
            files,
            skipped,
            elapsed,
            real_bps,
            steady_bps: real_bps,
            verified,
            limited_by: limit.map_or_else(LimitedBy::default, |(limit, _)| *limit),
            ..Summary::default()
        })
    }
}

/// Reports the progress of a transfer between two servers, from the records of the sending one.
struct PushObserver<'a> {
    observer: &'a mut dyn Observer,
    found: Receiver<(ResponseItem, Vec<u8>)>,
    moved: [u64; 6],
    /// It has ended well.
    over: bool,
}

impl PushObserver<'_> {
    fn read_records(&mut self) {
        for (line, _) in self.found.try_iter() {
            match line {
                ResponseItem::Moved(counts) => self.moved = counts,
                ResponseItem::Done(_) => self.over = true,
                _ => {}
            }
        }
    }
}

impl Observer for PushObserver<'_> {
    fn connected(&mut self, peer: &str) {
        self.observer.connected(peer);
    }

    fn progress(&mut self, own: &Progress) {
        self.read_records();
        let [bytes, total, _, file, ..] = self.moved;
        let total = Some(total).filter(|total| *total > 0);
        let (elapsed, paused) = (own.elapsed, own.paused);
        let progress = Progress { bytes, total, file, elapsed, paused, ..Progress::default() };
        self.observer.progress(&progress);
    }

    fn silent(&mut self, silent: bool) {
        self.observer.silent(silent);
    }

    fn warn(&mut self, warning: &Warning) {
        self.observer.warn(warning);
    }
}

#[cfg(test)]
#[path = "third_party_tests.rs"]
mod tests;
