//! Move large data between machines with NETBLT: the library under the `netblt` program.
//!
//! [`send`] and [`receive`] do the whole job, blocking. One end listens and gets a [`Ticket`] to
//! give away, the other connects with it; either may send. An [`Observer`] gets the progress, and a
//! [`Cancel`] stops the transfer from any thread. A [`Control`] changes its rate and policy, and
//! pauses it. A [`Transfer`] does the same on a thread of its own, and is a future. The feature
//! `tokio` takes that runtime's readers and writers as ends.
//!
//! ```
//! use netblt::{Cancel, Destination, Observer, Options, Progress, Rendezvous, Source};
//! use netblt::{Ticket, Warning};
//! use std::sync::mpsc::{Sender, channel};
//!
//! struct Watch(Sender<Ticket>);
//!
//! impl Observer for Watch {
//!     fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
//!         self.0.send(ticket.clone()).map_err(std::io::Error::other)
//!     }
//!     fn connected(&mut self, peer: &str) {
//!         println!("connected to {peer}");
//!     }
//!     fn progress(&mut self, progress: &Progress) {
//!         println!("{} bytes so far", progress.bytes);
//!     }
//!     fn warn(&mut self, warning: &Warning) {
//!         eprintln!("{warning}");
//!     }
//! }
//!
//! // Both ends in one process; any `Read` and `Write` will do.
//! let (tickets, ticket) = channel();
//! let mut options = Options::default();
//! options.network.bind = Some([127, 0, 0, 1].into());
//! let sender = std::thread::spawn({
//!     let (options, tickets) = (options.clone(), tickets.clone());
//!     move || {
//!         let source = Source::reader("greeting", &b"hello"[..]);
//!         let mut watch = Watch(tickets);
//!         netblt::send(source, &Rendezvous::Listen, &options, &mut watch, &Cancel::default())
//!     }
//! });
//! let rendezvous = Rendezvous::Connect(ticket.recv()?);
//! let destination = Destination::writer(std::io::sink());
//! let (mut watch, cancel) = (Watch(tickets), Cancel::default());
//! let summary = netblt::receive(destination, &rendezvous, &options, &mut watch, &cancel)?;
//! assert!(summary.verified && summary.bytes == 5);
//! assert!(sender.join().expect("it ran")?.verified);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A whole program, which sends its arguments and stops when Enter is pressed:
//!
#![doc = concat!("```no_run\n", include_str!("../examples/send.rs"), "```")]
//!
//! Inside, [`mod@serve`] uses `transfer`, that and [`mod@bench`] use `net` and `disk`, and all use
//! the modules at the top.

pub mod bench;
mod cancel;
mod carried;
mod checksums;
mod config;
mod control;
mod cpu_usage;
mod destination;
mod disk;
mod error;
mod error_kind;
mod exit_code;
mod fields;
mod fsync;
mod home;
pub mod keys;
mod memory_budget;
pub mod mirror;
mod name_log;
#[doc(hidden)]
pub mod net;
mod observer;
mod options;
mod parallel_streams;
mod path_cache;
mod pattern;
mod permissions;
mod progress;
mod request_error;
pub mod serve;
mod settings;
#[cfg(test)]
mod skipped;
pub mod ticket;
#[cfg(feature = "tokio")]
pub mod tokio;
mod transfer;

pub use netblt_proto::api::{CloseReason, Stall, StallKind};
pub use netblt_proto::config::{
    AuthorizedKeys, Ceiling, EmulatedProtocol, Emulation, FecPercent, FecPolicy, FixedRate,
    Identity, InvalidPublicKey, Policy, PublicKey, RuntimeSettings, Secret, StaticKey, Wire,
};
pub use netblt_proto::content::{FileRange, digest_of_ranges};
pub use netblt_proto::stats::Stats;
pub use netblt_proto::units::Rate;
pub use netblt_proto::wire::packet::Burst;

pub use self::cancel::Cancel;
pub use self::carried::Carried;
pub use self::checksums::algorithm::{Digests, HashAlgorithm, HashAlgorithms};
pub use self::checksums::expected_digests::ExpectedDigests;
pub use self::checksums::options::{ChecksumOptions, ManifestFormat};
pub use self::control::Control;
pub use self::destination::Destination;
pub use self::disk::leftovers::{Leftover, Leftovers};
pub use self::disk::manifest::line as manifest_line;
pub use self::error::{Error, OptionsError, RequestErrorKind, Unsendable, Warning};
pub use self::error_kind::ErrorKind;
pub use self::exit_code::ExitCode;
pub use self::net::raw_ip::PORT as RAW_IP_PORT;
pub use self::observer::Observer;
pub use self::options::{
    BufferOptions, Expected, FileDigest, Modes, NameFilter, NetworkOptions, OnFile, Options,
    Rfc998, Selection, SkipFilter, Source,
};
pub use self::parallel_streams::ParallelStreams;
pub use self::pattern::Pattern;
pub use self::progress::{LimitedBy, Progress, Summary};
pub use self::settings::{Extras, Family, Overwrite, Resume, TransferSettings};
pub use self::ticket::{Rendezvous, Ticket};
pub use self::transfer::{Event, Offered, Preview, Transfer, list, preview, receive, send};
