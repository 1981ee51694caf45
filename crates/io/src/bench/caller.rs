//! The end that calls: one connection to a server, and one test.

use std::ops::ControlFlow;

use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::machine::Event;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::outcome::{Outcome, config, outcome};
use super::pump::{Done, Pump};
use super::request::{Load, Wish};
use crate::error::Error;
use crate::net::dialer::Race;
use crate::net::driver::{self, Application};
use crate::net::rendezvous;
use crate::observer::Observer;
use crate::options::{Cancel, Meeting, Options};
use crate::transfer::session::Course;

/// Calls a server and runs one test; blocks until it is over.
pub fn run(
    role: Role,
    load: Load,
    meeting: &Meeting,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Outcome, Error> {
    let transfer_bytes = match (role, load) {
        (Role::Sender, Load::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let client = Wish { load }.to_string();
    let config = Config { client, ..config(options, role, transfer_bytes) };
    let (mut host, mut peer) = rendezvous::meet(meeting, options, &config, observer)?;
    let course = Course::new(observer, cancel, &config);
    let mut app = Calling { course, wire: options.wire, role, load, test: None };
    let (done, at) = driver::run(&mut peer, &mut app, &mut host)??;
    let stats = peer.view().map(|end| end.stats(at)).unwrap_or_default();
    let elapsed = at.since(stats.opened_at.unwrap_or_default());
    let cpu_share = app.course.cpu_share(elapsed);
    let Some((_, parameters)) = app.test else {
        return Err(Error::Usage("a test ended before it began".to_owned()));
    };
    Ok(outcome(&config, role, parameters, done, (at, stats, cpu_share)))
}

/// The client of the end that calls.
struct Calling<'a> {
    course: Course<'a>,
    wire: Wire,
    role: Role,
    load: Load,
    /// Since the connection opened.
    test: Option<(Pump, Parameters)>,
}

impl Calling<'_> {
    fn total(&self) -> Option<u64> {
        match self.load {
            Load::Bytes(bytes) => Some(bytes),
            Load::Time(_) => None,
        }
    }
}

type Flow = ControlFlow<Result<(Done, Instant), Error>>;

impl Application for Calling<'_> {
    type Peer = Race;
    type Outcome = Result<(Done, Instant), Error>;

    fn feed(&mut self, now: Instant, peer: &mut Race) -> Flow {
        self.course.check(now, peer)?;
        if let (Some((pump, _)), Some(end)) = (&mut self.test, peer.end()) {
            pump.feed(now, end);
            let moved = pump.moved(now, end);
            self.course.report(now, peer, moved, self.total());
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, event: Event, peer: &mut Race) -> Flow {
        match event {
            Event::Opened { peer: address, parameters, image_bytes } => {
                let opened = self.course.open(now, (peer, address), &parameters, image_bytes);
                if let Err(error) = opened {
                    return self.course.fail(now, peer, error);
                }
                if let Some(end) = peer.end() {
                    let settled = (self.wire, &parameters);
                    let pump = Pump::open(now, self.role, self.load, settled, end);
                    self.test = Some((pump, parameters));
                }
            }
            Event::Silent => self.course.observer.silent(true),
            Event::Answering => self.course.observer.silent(false),
            Event::Closed(reason) => {
                if let (Some((pump, _)), Some(end)) = (&self.test, peer.view()) {
                    let moved = pump.moved(now, end);
                    self.course.report_last(now, peer, moved, self.total());
                }
                let done = self.test.as_mut().and_then(|(pump, _)| pump.done(&reason));
                return ControlFlow::Break(match done {
                    Some(done) if !self.course.has_failed() => done.map(|done| (done, now)),
                    _ => Err(self.course.closed(peer, reason)),
                });
            }
            event => {
                if let (Some((pump, _)), Some(end)) = (&mut self.test, peer.end()) {
                    pump.take(now, event, end);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn broken(&mut self, now: Instant, error: Error, peer: &mut Race) -> Flow {
        self.course.fail(now, peer, error)
    }

    fn path_limit(&mut self, bytes: u32) {
        self.course.path_limit(bytes);
    }
}
