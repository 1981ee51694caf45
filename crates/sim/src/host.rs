//! One host of the virtual world: an endpoint, its client with disk and buffers, and what it has
//! lived through. It is driven by [`crate::world`], which owns the clock.

use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::buffer_autotuning::BufferAutotuner;
use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::stats::Stats;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::wire::packet::End;

use crate::check::Oracle;
pub use crate::client::LentTwice;
use crate::client::{Sink, Source, Stock, Tools};
use crate::content::{Content, Shape};
use crate::disk::{Disk, DiskOptions};
use crate::side::Side;

/// What a host is.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The configuration of its machine.
    pub config: Config,
    /// How many buffers it has at first.
    pub stock: u32,
    /// How many it makes where the path has use of them; no more than `stock`: none.
    pub most: u32,
    /// How fast its disk is.
    pub disk: DiskOptions,
    /// When it starts.
    pub starts_at: Duration,
    /// When it stands still, if it does.
    pub stops: Option<Stops>,
    /// When it stands still for long, and for how long: a lid that is closed, a machine that is
    /// moved, a program that is stopped. Time goes on, and what arrives waits in its socket.
    pub sleeps: Vec<(Duration, Duration)>,
    /// How many bytes of datagrams its socket holds while it stands still; `None`: as many as come.
    pub socket_bytes: Option<usize>,
}

/// A host that has to share its processor: in every `period` it stands still for `stopped` of it.
/// What arrives meanwhile waits in its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stops {
    /// From one stop to the next; not zero.
    pub period: Duration,
    /// How long each is; less than `period`.
    pub stopped: Duration,
    /// Each is somewhere in its period, drawn from this; `None`: at its beginning.
    pub scattered: Option<u64>,
    /// Nothing stops from here on.
    pub until: Duration,
}

impl Stops {
    /// When a host that has something to do at `at` does it.
    fn runs_at(&self, at: Instant) -> Instant {
        if at == Instant::NEVER || at >= Instant::EPOCH + self.until {
            return at;
        }
        let period = self.period.as_nanos().max(1) as u64;
        let into = Duration::from_nanos(at.as_nanos() % period);
        let begin = self.begin(at.as_nanos() / period);
        if into < begin { at } else { at + (begin + self.stopped).saturating_sub(into) }
    }

    /// When the stop of this period begins, from its beginning.
    fn begin(&self, period: u64) -> Duration {
        let Some(seed) = self.scattered else { return Duration::ZERO };
        let room = self.period.saturating_sub(self.stopped).as_nanos() as u64;
        Duration::from_nanos(Rng::named(seed.wrapping_add(period), "stop").range(0..=room))
    }
}

impl HostOptions {
    /// A host with this configuration, as many buffers as may be outstanding, and a disk that takes
    /// no time.
    pub fn new(config: Config) -> Self {
        let stock = config.max_outstanding;
        let disk = DiskOptions::default();
        let (starts_at, sleeps) = (Duration::ZERO, Vec::new());
        let (stops, socket_bytes) = (None, None);
        Self { config, stock, most: 0, disk, starts_at, stops, sleeps, socket_bytes }
    }

    /// When a host that has something to do at `at` does it.
    fn runs_at(&self, at: Instant) -> Instant {
        let mut at = self.stops.map_or(at, |stops| stops.runs_at(at));
        for (from, lasts) in &self.sleeps {
            let from = Instant::EPOCH + *from;
            if from <= at && at < from + *lasts {
                at = from + *lasts;
            }
        }
        at
    }
}

/// What became of one end.
#[derive(Clone, Debug, Default)]
pub struct EndReport {
    /// How often its program was started.
    pub starts: u32,
    /// How often a connection opened.
    pub openings: u32,
    /// Whether it knows that the whole transfer arrived: the sender by the verdict, the receiver by
    /// its own.
    pub done: bool,
    /// How its last connection ended.
    pub closed: Option<CloseReason>,
    /// How the ones before it ended.
    pub closed_before: Vec<CloseReason>,
    /// When it was first done.
    pub done_at: Option<Instant>,
    /// How often the peer was reported silent.
    pub silences: u32,
    /// Buffers that arrived, over all connections.
    pub filled: u64,
    /// The most buffers that it had.
    pub most_buffers: usize,
    /// Sender: how long it stayed after it was done.
    pub dallied: Option<Duration>,
    /// Counts of its connections, the last one last.
    pub stats: Vec<Stats>,
    /// What `--trace` would have written, if the configuration asks for that.
    pub trace: String,
}

#[derive(Debug)]
enum Client {
    Source(Source),
    Sink(Sink),
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Which end it is.
    pub side: Side,
    pub(crate) options: HostOptions,
    /// Its machine, while its program runs.
    pub endpoint: Option<Endpoint>,
    client: Client,
    stock: Stock,
    need: BufferAutotuner,
    disk: Disk,
    content: Content,
    /// Parameters of the transfer itself, the same at both ends.
    transfer: Transfer,
    /// Nothing needs to be done before.
    pub wake: Instant,
    /// Its machine's next timer.
    timer: Option<Instant>,
    silent: bool,
    /// A connection was open since the program was started.
    stood: bool,
    /// Everything arrived in this connection (a receiver).
    complete: bool,
    /// Datagrams for which its socket had no room.
    overrun: u32,
    /// What it has lived through.
    pub report: EndReport,
}

/// What is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Seeds the bytes and the programs' entropy.
    pub seed: u64,
    /// How many bytes.
    pub bytes: u64,
    /// An empty transfer has one buffer of no bytes rather than none.
    pub at_least_one: bool,
    /// How many bytes the receiver says it has, before it grants anything (`sealed`).
    pub have: u32,
    /// A receiver that waits to be opened grants buffers with its RESPONSE (`sealed`).
    pub greets: bool,
}

impl Host {
    /// What it is.
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// When it does what is to be done at `at`.
    #[inline]
    pub(crate) fn runs_at(&self, at: Instant) -> Instant {
        self.options.runs_at(at)
    }

    /// Whether its time has come.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.wake <= now && self.runs_at(now) <= now
    }

    /// A host that has not been started yet.
    pub fn new(side: Side, options: HostOptions, transfer: Transfer) -> Self {
        let shape = Shape { bytes: 0, buffer_bytes: 1, table_bytes: 0, at_least_one: false };
        // The buffers come with the program.
        let (stock, buffers) = Stock::new(0, 0);
        Self {
            side,
            endpoint: None,
            client: client_of(options.config.role, buffers),
            stock,
            need: BufferAutotuner::new(options.config.buffer_bytes),
            disk: Disk::new(options.disk.clone()),
            options,
            content: Content::new(transfer.seed, shape),
            transfer,
            wake: Instant::NEVER,
            timer: None,
            silent: false,
            stood: false,
            complete: false,
            overrun: 0,
            report: EndReport::default(),
        }
    }

    /// Whether its socket has room for a datagram with which so many bytes wait; one for which it
    /// has none is counted.
    pub(crate) fn has_room(&mut self, waiting: usize) -> bool {
        let room = self.options.socket_bytes.is_none_or(|most| waiting <= most);
        self.overrun += u32::from(!room);
        room
    }

    /// Datagrams so far for which its socket had no room.
    pub(crate) fn overrun(&self) -> u32 {
        self.overrun
    }

    /// Takes over what its machine has traced.
    pub(crate) fn keep_trace(&mut self) {
        let Some(endpoint) = &mut self.endpoint else { return };
        while let Some((at, event)) = endpoint.poll_trace() {
            event.write_json(at, &mut self.report.trace);
        }
    }

    /// The program is started, for the first time or again.
    pub fn start(&mut self, now: Instant) -> Result<(), LentTwice> {
        let name = format!("{}/{}", self.side, self.report.starts);
        let mut entropy = [0; 32];
        Rng::named(self.transfer.seed, &name).fill(&mut entropy);
        let config = self.options.config.clone();
        let endpoint = match self.side {
            Side::Active => Endpoint::active(config, self.side.other().address(), now, entropy),
            Side::Passive => Endpoint::passive(config, now, entropy),
        };
        self.report.starts += 1;
        if let Some(before) = self.report.closed.take() {
            self.report.closed_before.push(before);
        }
        self.report.done = false;
        (self.silent, self.stood, self.complete) = (false, false, false);
        let (stock, buffers) = stock_of(&self.options);
        self.stock = stock;
        self.client = client_of(self.options.config.role, buffers);
        self.endpoint = Some(endpoint);
        self.wake = now;
        let greets = self.transfer.greets && matches!(self.client, Client::Sink(_));
        if greets {
            let have = self.had();
            self.endpoint.iter_mut().for_each(|end| end.tell(now, &have));
        }
        // Nothing may be granted before HAVE was sent.
        let offered = if self.transfer.have > 0 && !greets { Ok(()) } else { self.offer_all(now) };
        self.look_at_timer(now);
        offered
    }

    /// Whether its machine has a connection that stands.
    pub fn is_open(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|end| end.peer().is_some())
    }

    /// The program is gone: the endpoint, what it held, and whatever was being done.
    pub fn stop(&mut self, now: Instant) {
        self.keep_trace();
        if let Some(endpoint) = self.endpoint.take() {
            self.report.stats.push(endpoint.stats(now));
        }
        self.wake = Instant::NEVER;
    }

    /// Step 1: the disk's work that is done goes into the machine.
    pub fn feed(&mut self, now: Instant) -> Result<(), LentTwice> {
        if self.client_wake().is_none_or(|at| at > now) {
            return Ok(());
        }
        let fed = self.with_client(now, |client, tools| match client {
            Client::Source(source) => source.feed(tools),
            Client::Sink(sink) => sink.feed(tools),
        });
        fed.unwrap_or(Ok(()))?;
        self.look_at_timer(now);
        if let Client::Sink(sink) = &self.client
            && sink.verdict() == Some(true)
            && !self.report.done
        {
            self.be_done(now);
        }
        Ok(())
    }

    /// Step 2: timers that are due.
    pub fn fire(&mut self, now: Instant) {
        if let Some(endpoint) = &mut self.endpoint
            && self.timer.is_some_and(|at| at <= now)
        {
            endpoint.handle_timeout(now);
        }
    }

    /// Step 4: what the machine tells its client. False when that was the last word.
    pub fn on_event(&mut self, now: Instant, event: Event, oracle: &mut Oracle) -> bool {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                self.report.openings += 1;
                (self.silent, self.stood, self.complete) = (false, true, false);
                self.report.done = false;
                let table_bytes = image_bytes.saturating_sub(parameters.buffer_bytes);
                let shape = Shape {
                    bytes: self.transfer.bytes,
                    buffer_bytes: parameters.buffer_bytes,
                    table_bytes,
                    at_least_one: self.transfer.at_least_one,
                };
                self.content = Content::new(self.transfer.seed, shape);
                self.need = BufferAutotuner::new(parameters.buffer_bytes);
                oracle.on_opened(now, self.side, peer, &parameters, image_bytes);
                self.start_over(now, oracle);
            }
            Event::Wanted(number) => {
                oracle.on_wanted(now, self.side, number);
                if let Client::Source(source) = &mut self.client {
                    source.on_wanted(number, &self.content);
                }
            }
            Event::Released(_, buffer) | Event::Returned(buffer) => {
                self.on_back(now, buffer, oracle);
            }
            Event::Filled(number, buffer) => self.on_filled(now, number.0, buffer, oracle),
            Event::Complete(end) => self.on_complete(now, end, oracle),
            Event::PeerHas { place, bytes, last } => {
                if let Client::Source(source) = &mut self.client {
                    source.on_had(place, bytes, last);
                }
            }
            Event::Finished(verdict) => {
                let whole = match &self.client {
                    Client::Source(source) => source.had().is_none_or(|had| had == self.had()),
                    Client::Sink(_) => true,
                };
                if !whole {
                    oracle.find(now, self.side, "the receiver's last messages were lost");
                }
                if verdict.as_ref().is_none_or(|verdict| verdict.verified) {
                    self.be_done(now);
                }
            }
            Event::Silent => {
                self.report.silences += 1;
                if std::mem::replace(&mut self.silent, true) {
                    oracle.find(now, self.side, "silent twice without an answer between");
                }
            }
            Event::Answering => {
                if !std::mem::replace(&mut self.silent, false) {
                    oracle.find(now, self.side, "answering without having been silent");
                }
            }
            Event::Closed(reason) => {
                self.on_closed(now, reason, oracle);
                return false;
            }
        }
        true
    }

    /// A buffer came back.
    fn on_back(&mut self, now: Instant, buffer: Buffer, oracle: &mut Oracle) {
        if !self.stock.take_back(&buffer) {
            oracle.find(now, self.side, "a buffer came out that was not in the machine");
        }
        match &mut self.client {
            Client::Source(source) => {
                source.on_released(buffer);
                self.grow(now);
            }
            // No more data come.
            Client::Sink(sink) => sink.on_returned(buffer),
        }
    }

    /// What the receiver says it has.
    fn had(&self) -> Vec<u8> {
        let mut have = vec![0; self.transfer.have as usize];
        Rng::named(self.transfer.seed, "have").fill(&mut have);
        have
    }

    fn be_done(&mut self, now: Instant) {
        self.report.done = true;
        self.report.done_at = Some(now);
    }

    fn start_over(&mut self, now: Instant, oracle: &mut Oracle) {
        let have = self.had();
        match &mut self.client {
            Client::Source(source) => {
                source.on_opened(now, &self.content, &self.disk, self.transfer.have > 0);
            }
            Client::Sink(sink) => {
                sink.on_opened();
                self.endpoint.iter_mut().for_each(|end| end.tell(now, &have));
            }
        }
        if self.offer_all(now).is_err() {
            oracle.find(now, self.side, "a buffer was returned that is still in the machine");
        }
    }

    fn offer_all(&mut self, now: Instant) -> Result<(), LentTwice> {
        let offered = self.with_client(now, |client, tools| match client {
            Client::Sink(sink) => sink.offer_all(tools),
            Client::Source(_) => Ok(()),
        });
        offered.unwrap_or(Ok(()))
    }

    fn on_filled(&mut self, now: Instant, number: u64, buffer: Buffer, oracle: &mut Oracle) {
        if !self.stock.take_back(&buffer) {
            oracle.find(now, self.side, "a buffer came out that was not in the machine");
        }
        if number == 0 || number > self.content.shape().buffers() {
            oracle.find(now, self.side, format!("buffer {number} was never sent"));
        } else if let Some(at) = self.content.differs(number, buffer.filled()) {
            let len = buffer.filled().len();
            let what = format!("buffer {number} ({len} bytes) is wrong from byte {at} on");
            oracle.find(now, self.side, what);
        }
        self.report.filled += 1;
        let new = self.with_client(now, |client, tools| match client {
            Client::Sink(sink) => sink.on_filled(tools, number, buffer),
            Client::Source(_) => false,
        });
        if new != Some(true) {
            oracle.find(now, self.side, format!("buffer {number} was delivered twice"));
        }
        self.grow(now);
    }

    /// Makes more buffers, if the path has use of them.
    fn grow(&mut self, now: Instant) {
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| !self.complete) else { return };
        let (moved, rtt) = endpoint.moved();
        let wanted = self.need.buffers(now, moved, rtt).min(self.options.most);
        let more = (wanted as usize).saturating_sub(self.stock.count());
        let made: Vec<Buffer> = (0..more).map(|_| self.stock.make()).collect();
        self.report.most_buffers = self.report.most_buffers.max(self.stock.count());
        let grown = self.with_client(now, |client, tools| match client {
            Client::Source(source) => {
                made.into_iter().for_each(|buffer| source.on_released(buffer));
                Ok(())
            }
            Client::Sink(sink) => made.into_iter().try_for_each(|buffer| sink.offer(tools, buffer)),
        });
        grown.into_iter().for_each(|lent| lent.expect("a buffer that was just made is outside"));
    }

    fn on_complete(&mut self, now: Instant, end: Option<End>, oracle: &mut Oracle) {
        let Client::Sink(sink) = &mut self.client else { return };
        if sink.filled() != self.content.shape().buffers() {
            let what = format!("complete with {} buffers", sink.filled());
            oracle.find(now, self.side, what);
        }
        if end.is_some() != (self.options.config.wire == Wire::Sealed) {
            oracle.find(now, self.side, "an END on the wire without END, or none on the other");
        }
        sink.on_complete(now, end, &self.disk);
        self.complete = true;
        if self.options.config.wire == Wire::Rfc998 {
            // Nothing more will be said about it.
            self.be_done(now);
        }
    }

    fn on_closed(&mut self, now: Instant, reason: CloseReason, oracle: &mut Oracle) {
        if self.stock.inside() != 0 {
            let what = format!("{} buffers stayed in a closed machine", self.stock.inside());
            oracle.find(now, self.side, what);
        }
        if let Some(done_at) = self.report.done_at.filter(|_| self.report.done) {
            self.report.dallied = Some(now.since(done_at));
        }
        if reason == CloseReason::Finished && !self.report.done {
            oracle.find(now, self.side, "finished without the whole transfer");
        }
        self.report.closed = Some(reason);
    }

    /// Whether every buffer is where it should be: with the client or in the machine.
    pub(crate) fn stock_is_whole(&self) -> bool {
        let held = match &self.client {
            Client::Source(source) => source.held(),
            Client::Sink(sink) => sink.held(),
        };
        held + self.stock.inside() == self.stock.count()
    }

    /// Buffers supplied in this connection (a source) or ever offered (a sink).
    pub(crate) fn lent(&self) -> u64 {
        match &self.client {
            Client::Source(source) => source.supplied(),
            Client::Sink(sink) => sink.offered(),
        }
    }

    /// Buffers that arrived in this connection.
    pub(crate) fn filled(&self) -> u64 {
        match &self.client {
            Client::Source(_) => 0,
            Client::Sink(sink) => sink.filled(),
        }
    }

    /// Whether a connection was open since the program was started.
    pub(crate) fn stood(&self) -> bool {
        self.stood
    }

    /// Whether everything has arrived here.
    pub(crate) fn complete(&self) -> bool {
        self.complete
    }

    /// Whether the sink has given its verdict.
    pub(crate) fn judged(&self) -> bool {
        matches!(&self.client, Client::Sink(sink) if sink.verdict().is_some())
    }

    fn look_at_timer(&mut self, now: Instant) {
        self.timer = self.endpoint.as_ref().and_then(|endpoint| endpoint.next_timeout(now));
    }

    /// Works out when something is to be done next.
    pub fn rewake(&mut self, now: Instant) -> Instant {
        self.look_at_timer(now);
        let next = self.endpoint.as_ref().and_then(|_| earliest([self.timer, self.client_wake()]));
        self.wake = next.unwrap_or(Instant::NEVER);
        self.wake
    }

    fn client_wake(&self) -> Option<Instant> {
        match &self.client {
            Client::Source(source) => source.wake(),
            Client::Sink(sink) => sink.wake(),
        }
    }

    fn with_client<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Client, &mut Tools<'_>) -> T,
    ) -> Option<T> {
        let endpoint = self.endpoint.as_mut()?;
        let tools = &mut Tools {
            now,
            wire: self.options.config.wire,
            endpoint,
            content: &self.content,
            disk: &mut self.disk,
            stock: &mut self.stock,
        };
        Some(act(&mut self.client, tools))
    }
}

fn stock_of(options: &HostOptions) -> (Stock, Vec<Buffer>) {
    let capacity = options.config.buffer_bytes + options.config.table_bytes;
    Stock::new(options.stock, capacity as usize)
}

fn client_of(role: Role, buffers: Vec<Buffer>) -> Client {
    match role {
        Role::Sender => Client::Source(Source::new(buffers)),
        Role::Receiver => Client::Sink(Sink::new(buffers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_host_does_what_is_due_when_it_wakes_up() {
        let ms = Duration::from_millis;
        let config = Config::new(Wire::Sealed, Role::Receiver);
        let stops = Stops { period: ms(100), stopped: ms(50), scattered: None, until: ms(10_000) };
        let sleeps = vec![(ms(1000), ms(3010))];
        let host = HostOptions { stops: Some(stops), sleeps, ..HostOptions::new(config) };
        for (at, runs_at) in [(930, 950), (999, 999), (1001, 4010), (4009, 4050), (4020, 4050)] {
            let at = Instant::EPOCH + ms(at);
            assert_eq!(host.runs_at(at), Instant::EPOCH + ms(runs_at), "{at:?}");
        }
    }
}
