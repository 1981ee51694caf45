//! The client of `netblt bench`: one connection to a server, and one test.

use std::ops::ControlFlow;

use netblt_proto::api::Event;
use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::messages::{Load, TestRequest};
use super::outcome::{Outcome, config, outcome};
use super::traffic::{TestDone, Traffic};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::net::connections::Oversize;
use crate::net::establish::{self, Establish};
use crate::net::event_loop::{self, Application, Feed};
use crate::observer::Observer;
use crate::options::Options;
use crate::ticket::Rendezvous;
use crate::transfer::session::{ProgressSoFar, TransferSession};

/// Runs one test with a server; blocks until it has ended.
pub fn run(
    role: Role,
    load: Load,
    rendezvous: &Rendezvous,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Outcome, Error> {
    let transfer_bytes = match (role, load) {
        (Role::Sender, Load::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let client = TestRequest { load }.to_string();
    let config = Config { client, ..config(options, role, transfer_bytes) };
    let (mut host, mut peer) =
        establish::meet(Establish::Meet(rendezvous), options, &config, observer, cancel)?;
    let session = TransferSession::new(&mut *observer, cancel, &config);
    let (wire, at_first) = (options.wire, options.buffers.count);
    let mut app = ClientApp { session, wire, at_first, role, load, test: None };
    let done = event_loop::run(&mut peer, &mut app, &mut host);
    host.finish_trace(None).iter().for_each(|warning| app.session.observer.warn(warning));
    let (done, at) = done?.map_err(|error| peer.name(error))?;
    let stats = peer.view().map(|end| end.stats(at)).unwrap_or_default();
    let elapsed = at.since(stats.opened_at.unwrap_or_default());
    let cpu_share = app.session.cpu_share(elapsed);
    let Some((_, parameters)) = app.test else {
        return Err(Error::Fault("a test ended before it began"));
    };
    // The clock began with this function.
    Ok(outcome(&config, role, parameters, done, Instant::EPOCH, (at, stats, cpu_share)))
}

/// The client of the end that calls.
struct ClientApp<'a> {
    session: TransferSession<'a>,
    wire: Wire,
    /// Buffers before the path has use of more.
    at_first: u32,
    role: Role,
    load: Load,
    /// Since the connection opened.
    test: Option<(Traffic, Parameters)>,
}

impl ClientApp<'_> {
    fn total(&self) -> Option<u64> {
        match self.load {
            Load::Bytes(bytes) => Some(bytes),
            Load::Time(_) => None,
        }
    }
}

type Flow = ControlFlow<Result<(TestDone, Instant), Error>>;

impl Application for ClientApp<'_> {
    type Key = ();
    type Outcome = Result<(TestDone, Instant), Error>;

    /// A timed sender checks the clock.
    fn on_tick(&mut self, _: Instant) -> ControlFlow<Self::Outcome, Feed> {
        ControlFlow::Continue(Feed::All)
    }

    fn on_ready(&mut self, now: Instant, (): (), end: &mut Endpoint) -> Flow {
        self.session.check(now, end)?;
        if let Some((traffic, _)) = &mut self.test {
            traffic.supply(now, end);
            if let Some(error) = traffic.lacks_memory() {
                return self.session.fail(now, end, error);
            }
            let moved = traffic.moved(now, end);
            self.session.report(now, end, &ProgressSoFar::bytes(moved, self.total()));
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> Flow {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                let opened = self.session.open(now, end, peer, &parameters, image_bytes);
                if let Err(error) = opened {
                    return self.session.fail(now, end, error);
                }
                let settled = (self.wire, &parameters, self.at_first);
                let mut traffic = Traffic::open(now, self.role, self.load, settled);
                traffic.supply(now, end);
                self.test = Some((traffic, parameters));
            }
            Event::Silent => self.session.observer.silent(true),
            Event::Answering => self.session.observer.silent(false),
            Event::Closed(reason) => {
                if let Some((traffic, _)) = &self.test {
                    let moved = traffic.moved(now, end);
                    self.session.report_last(now, end, &ProgressSoFar::bytes(moved, self.total()));
                }
                let done = self.test.as_mut().and_then(|(traffic, _)| traffic.done(&reason));
                return ControlFlow::Break(match done {
                    Some(done) if !self.session.has_failed() => done.map(|done| (done, now)),
                    _ => Err(self.session.closed(reason)),
                });
            }
            event => {
                if let Some((traffic, _)) = &mut self.test {
                    traffic.take(now, event, end);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn on_io_error(&mut self, now: Instant, (): (), error: Error, end: &mut Endpoint) -> Flow {
        self.session.fail(now, end, error)
    }

    fn path_limit(&mut self, bytes: u32) {
        self.session.path_limit(bytes);
    }

    fn on_oversize(
        &mut self,
        now: Instant,
        (): (),
        refused: &Oversize,
        end: &mut Endpoint,
    ) -> Flow {
        self.session.on_oversize(now, end, refused)
    }
}
