//! From one server straight to another: who asks for it introduces the two, and watches.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::Receiver;

use netblt_proto::config::Identity;

use super::lines::{Lines, told};
use super::remote::{Fetch, Server, odd};
use super::request::{Errand, Line, What};
use crate::destination::Destination;
use crate::error::{Error, Warning};
use crate::lanes::Lanes;
use crate::net::rendezvous::Way;
use crate::observer::Observer;
use crate::progress::{LimitedBy, Progress, Summary};
use crate::ticket::Rendezvous;
use crate::transfer::receive::{Ask, receive_as};
use crate::transfer::summary::bits_per_second;

/// Buffers so small that each word of how far it is comes when it is said.
const BUFFER_BYTES: u32 = 1 << 10;
const BUFFERS: u32 = 8;

/// What became of it, and which of the two says so.
#[derive(Debug)]
pub enum Side {
    /// The server that sends.
    From(Error),
    /// The server that receives.
    To(Error),
}

impl Server<'_> {
    /// Has this server send a file or a tree straight to another one, under a path there as
    /// [`Server::put`] understands it: `several` if more come to the same place. Both must let the
    /// caller in by his key, which here needs the option `third-party`
    /// ([`Grant::third_party`](crate::grant::Grant::third_party)). How files are stored, the other
    /// server's options say. Nothing of them comes here.
    pub fn send_to(
        &self,
        fetch: &Fetch,
        other: &Server<'_>,
        (path, several): (&[u8], bool),
        observer: &mut dyn Observer,
    ) -> Result<Summary, Side> {
        let several = several || path.ends_with(b"/") && !fetch.trees;
        let announced = other.announce((several, fetch.trees, true), path, observer);
        let (number, name, own) = announced.map_err(Side::To)?;
        let odd_there = || Side::To(odd());
        let own = own.ok_or_else(odd_there)?;
        let Rendezvous::Call { addresses, identity: Identity::Client(call) } = other.rendezvous
        else {
            return Err(odd_there());
        };
        let address = addresses.first().cloned().ok_or_else(odd_there)?;
        let name = name.unwrap_or_else(|| fetch.name.clone()).as_bytes().to_vec();
        let errand = Errand { number, server: call.server(), own, address };
        let what = What::Send { trees: fetch.trees, name, errand };
        self.watch(what, fetch, observer).map_err(|error| {
            // Where nobody has come for it, it would be awaited for a while yet.
            let _ = other.take_back(number, observer);
            Side::From(error)
        })
    }

    fn watch(
        &self,
        what: What,
        fetch: &Fetch,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let mut options = self.asking(what, &fetch.path)?;
        (options.buffer_bytes, options.buffers) = (BUFFER_BYTES, BUFFERS);
        options.buffer_memory = 0;
        (options.trace, options.manifest, options.max_bytes) = (None, None, None);
        (options.on_file, options.lanes) = (None, Lanes::Most(1));
        let (lines, found) = Lines::new(0);
        let mut watch = Watching { observer, found, moved: [0; 6], over: false };
        let place = (Way::Meet(self.rendezvous), &options);
        let destination = Destination::writer(lines);
        let own = receive_as(destination, place, &mut watch, self.cancel, Ask::List);
        let own = own.map_err(told)?;
        watch.hear();
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

/// Tells of what another transfer does, as far as it is told of it.
struct Watching<'a> {
    observer: &'a mut dyn Observer,
    found: Receiver<(Line, Vec<u8>)>,
    moved: [u64; 6],
    /// It has ended well.
    over: bool,
}

impl Watching<'_> {
    fn hear(&mut self) {
        for (line, _) in self.found.try_iter() {
            match line {
                Line::Moved(counts) => self.moved = counts,
                Line::Done(_) => self.over = true,
                _ => {}
            }
        }
    }
}

impl Observer for Watching<'_> {
    fn connected(&mut self, peer: &str) {
        self.observer.connected(peer);
    }

    fn progress(&mut self, own: &Progress) {
        self.hear();
        let [bytes, total, _, file, ..] = self.moved;
        let total = Some(total).filter(|total| *total > 0);
        let (elapsed, paused) = (own.elapsed, own.paused);
        let told = Progress { bytes, total, file, elapsed, paused, ..Progress::default() };
        self.observer.progress(&told);
    }

    fn silent(&mut self, silent: bool) {
        self.observer.silent(silent);
    }

    fn warn(&mut self, warning: &Warning) {
        self.observer.warn(warning);
    }
}

#[cfg(test)]
#[path = "across_tests.rs"]
mod tests;
