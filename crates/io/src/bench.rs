//! The test application of RFC 1030 §3: from memory to memory, nothing but the protocol between.
//!
//! [`run`] is the end that calls, [`serve`] the one that waits; either may send. What the other one
//! cannot know from OPEN's parameters travels in their client string, as a [`Wish`]. One thread
//! drives each connection of the caller, and one all connections of the server.

mod pump;
mod serving;
mod wish;

use std::ops::ControlFlow;
use std::time::Duration;

use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::machine::Event;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

pub use self::serving::{Listener, Service, serve};
pub use self::wish::Wish;

use self::pump::{Done, Pump};
use crate::course::Course;
use crate::driver::{self, Application};
use crate::error::Error;
use crate::options::{Cancel, Meeting, Options};
use crate::race::Race;
use crate::session::{self, Observer, Summary};
use crate::summary::{Facts, summary};

/// The secret of a server that is not private: there is nothing to protect but its time, and still
/// nobody can draw data to an address that is not his own.
pub const OPEN_TO_ALL: Secret = Secret(*b"netblt bench serves whoever asks");
/// The port of a server that was told none.
pub const PORT: u16 = 9980;

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// This many bytes.
    Bytes(u64),
    /// New buffers are begun for this long; what is under way then is finished.
    Time(Duration),
}

/// The configuration of either end.
fn config(options: &Options, role: Role, transfer_bytes: Option<u64>) -> Config {
    // Images are data and nothing else: no files, no table of them.
    Config { table_bytes: 0, ..session::config(options, role, transfer_bytes) }
}

/// How a test went, at one end of one connection.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which end this was.
    pub role: Role,
    /// What was settled at the opening.
    pub parameters: Parameters,
    /// The figures. `verified` here: every buffer was whole and in its place (`sealed`: and the
    /// sender knows).
    pub summary: Summary,
    /// Data timeouts at the receiver; a sender knows them from its verdict (`sealed` only).
    pub data_timeouts: Option<u64>,
}

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
    let (mut host, mut peer) = session::meet(meeting, options, &config, observer)?;
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

fn outcome(
    config: &Config,
    role: Role,
    parameters: Parameters,
    done: Done,
    (at, stats, cpu_share): (Instant, netblt_proto::stats::Stats, f64),
) -> Outcome {
    let data_timeouts = match role {
        Role::Sender => done.data_timeouts,
        Role::Receiver => Some(stats.data_timeouts),
    };
    let config = Config { role, ..config.clone() };
    let summary = summary(Facts {
        config: &config,
        stats,
        at,
        bytes: done.bytes,
        files: 0,
        verified: done.verified,
        digest: [0; 32],
        cpu_share,
        stalled: Duration::ZERO,
    });
    Outcome { role, parameters, summary, data_timeouts }
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
