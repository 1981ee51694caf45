//! The subflows of a transfer beside its main connection (`docs/protocol §4.11`), seen from the
//! main thread: they are opened here and come to an end here, and buffers go to them and back.
//!
//! The client decides which subflow gets which buffer: a sender by the grants, a receiver by the
//! number of buffers that each subflow has. A lost subflow is no failure of the transfer.

mod autoscale;
mod cpu_watch;
mod shared_stats;
mod thread;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Policy, RuntimeSettings, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::endpoint::subflows::{Subflow, SubflowTally};
use netblt_proto::limits::MAX_SUBFLOWS;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use rustix::process::{Resource, getrlimit};

use autoscale::{Advice, Autoscale, Observation};
use cpu_watch::CpuWatch;
use shared_stats::SharedStats;
pub(crate) use thread::SubflowEvent;
use thread::{SubflowCommand, SubflowResult, SubflowThread};

use crate::error::Error;
use crate::fields::Fields;
use crate::net::entropy::entropy;
use crate::net::io_context::{Clock, IoContext};
use crate::net::poller::{Poller, Waker};
use crate::net::socket::Socket;
use crate::net::subflow_socket::SubflowSockets;
use crate::options::Options;
use crate::parallel_streams::ParallelStreams;

/// The field of a client message with the number of subflows.
pub(crate) const FIELD: &str = "lanes";
/// How a receiver that takes subflows is called, and a server (`docs/protocol §8.6`).
pub(crate) const RECEIVER: &str = "netblt receive";
pub(crate) const SERVER: &str = "netblt serve";
/// The interval at which the rate law gets the counts of all subflows, and they their shares.
const EXCHANGE_INTERVAL: Duration = Duration::from_micros(100);
/// From the loss of a subflow to the next one that is opened: after subflows that carried nothing
/// twice as long each time, and then one is tried alone, for the other end may have no place for
/// it.
const AGAIN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(60);
/// The name of their threads.
const SUBFLOW: &str = "netblt-subflow";

/// How many subflows `options` ask for, of an end that `listens` or calls; one where there can be
/// no more.
pub(crate) fn asked(options: &Options, listens: Option<bool>) -> u8 {
    let follows = matches!(options.settings.policy, Policy::Emulated(_));
    let is_files = options.network.client.is_none() || !options.server_request.request.is_empty();
    // A branch shares the socket of its connection.
    let can = options.wire == Wire::Sealed && is_files && listens.is_some();
    match options.settings.streams {
        _ if !can || follows => 1,
        ParallelStreams::Auto => cpu_watch::most(),
        ParallelStreams::Most(subflows) => subflows.clamp(1, MAX_SUBFLOWS),
    }
}

/// The number of subflows in a receiver's or a server's client string.
pub(crate) fn from_client_string(client: &str) -> Option<u64> {
    [RECEIVER, SERVER].iter().find_map(|name| Fields::of(name, client))?.only(FIELD)
}

/// How many both ends take, if that is more than one.
pub(crate) fn agreed(own: u8, theirs: Option<u64>) -> Option<u8> {
    let theirs = u8::try_from(theirs?).unwrap_or(MAX_SUBFLOWS);
    Some(own.min(theirs)).filter(|subflows| *subflows > 1)
}

/// Makes subflows.
#[derive(Clone, Debug)]
pub(crate) struct SubflowFactory {
    /// How many this end takes, the main connection among them.
    pub(crate) own: u8,
    /// They begin when a processor is what limits.
    auto: bool,
    active: bool,
    /// None: no subflows can be opened, but the agreed number holds.
    sockets: Option<Arc<SubflowSockets>>,
    clock: Clock,
    waker: Waker,
    /// How many more there may be of all connections.
    left: Arc<AtomicUsize>,
}

/// Subflows of all connections of a program at once: each is a thread, a socket, and what wakes it.
const MOST_IN_ALL: u64 = 256;
const FILES_OF_EACH: u64 = 3;

/// How many more subflows there may be in this program: all together they leave half of the files
/// that it may have open to others.
static LEFT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = MOST_IN_ALL.min(files / 2 / FILES_OF_EACH);
    Arc::new(AtomicUsize::new(usize::try_from(most).unwrap_or(usize::MAX)))
});

/// One of those that there may be; when it goes there may be another.
#[derive(Debug)]
struct SubflowPermit(Arc<AtomicUsize>);

impl Drop for SubflowPermit {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl SubflowFactory {
    /// For a transfer with these options, over this socket, at the listening or the connecting end;
    /// `None` if it is to have one subflow.
    pub(crate) fn of(
        options: &Options,
        listens: Option<bool>,
        host: &IoContext,
    ) -> Option<Arc<Self>> {
        let own = Some(asked(options, listens)).filter(|own| *own > 1)?;
        let sockets = SubflowSockets::beside(&host.socket).ok().map(Arc::new);
        let (clock, waker) = (host.clock, host.poller.waker());
        let (auto, active) =
            (options.settings.streams == ParallelStreams::Auto, listens == Some(false));
        let left = Arc::clone(&LEFT);
        Some(Arc::new(Self { own, auto, active, sockets, clock, waker, left }))
    }

    /// One more, if there may be.
    fn leave(&self) -> Option<SubflowPermit> {
        let take = |left: usize| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then(|| SubflowPermit(Arc::clone(&self.left)))
    }

    /// The same for one of several connections, whose turn it is when this wakes.
    pub(crate) fn waking(&self, waker: Waker) -> Arc<Self> {
        Arc::new(Self { waker, ..self.clone() })
    }
}

/// The subflows of a connection, without the main one.
#[derive(Debug)]
pub(crate) struct Subflows {
    making: Arc<SubflowFactory>,
    /// At a time.
    most: usize,
    /// The present target for their number.
    wanted: usize,
    watch: Option<CpuWatch>,
    autoscale: Autoscale,
    sends: bool,
    subflows: Vec<OneSubflow>,
    /// Made at each look.
    tallies: Vec<SubflowTally>,
    outbox: Sender<(usize, SubflowEvent)>,
    commands_left: Receiver<(usize, SubflowEvent)>,
    next_look: Instant,
    next_call: Instant,
    again: Duration,
    /// Some were called since one was over.
    called: bool,
    steering: Option<RuntimeSettings>,
    /// Buffers that were on their way to a subflow that had ended.
    left: VecDeque<(usize, Buffer)>,
}

#[derive(Debug)]
struct OneSubflow {
    /// Until it is to end.
    commands: Option<Sender<SubflowCommand>>,
    waker: Waker,
    shared_stats: Arc<SharedStats>,
    thread: Option<JoinHandle<()>>,
    /// Held until it has ended.
    leave: Option<SubflowPermit>,
    open: bool,
    live: bool,
    stats: Stats,
}

impl Subflows {
    /// The subflows of a connection that has just opened, with the number that both ends accept.
    pub(crate) fn begin(
        making: Arc<SubflowFactory>,
        agreed: u8,
        sends: bool,
        end: &mut Endpoint,
    ) -> Result<Self, Error> {
        // The other end believes in them, but there will be none.
        let most = making.sockets.as_ref().map_or(0, |_| usize::from(agreed).saturating_sub(1));
        if !making.active && most > 0 {
            end.admit_subflows(entropy()?);
        }
        let (outbox, commands_left) = channel();
        let watches = making.auto && most > 0;
        let watch = watches.then(|| CpuWatch::start(making.clock.now(), end.moved().0));
        Ok(Self {
            wanted: if making.auto { 0 } else { most },
            watch,
            autoscale: Autoscale::default(),
            making,
            most,
            sends,
            subflows: Vec::new(),
            tallies: Vec::new(),
            outbox,
            commands_left,
            next_look: Instant::EPOCH,
            next_call: Instant::EPOCH,
            again: AGAIN,
            called: false,
            steering: None,
            left: VecDeque::new(),
        })
    }

    /// A turn of the main loop: subflows are opened, and shares dealt out.
    pub(crate) fn on_tick(&mut self, now: Instant, main: &mut Endpoint) {
        while let Some(subflow) = main.poll_subflow() {
            self.admit(now, subflow, main);
        }
        if now < self.next_look {
            return;
        }
        self.next_look = now + EXCHANGE_INTERVAL;
        self.look(now, main);
        // A server that is asked for files knows of subflows when it has found them.
        let goes = self.sends || main.moved().0 > 0;
        if self.making.active && goes && self.live() < self.wanted && now >= self.next_call {
            self.call(now, main);
        }
        if self.sends && !self.subflows.is_empty() {
            self.tallies.clear();
            self.tallies.extend(
                self.subflows.iter().map(|subflow| subflow.shared_stats.tally(subflow.live)),
            );
            main.lead(now, &self.tallies);
            for (at, subflow) in self.subflows.iter().enumerate() {
                subflow.shared_stats.allow(main.share(at));
            }
        }
    }

    fn live(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.live).count()
    }

    /// Looks whether more subflows would help, here or at the other end. Each end looks for itself.
    fn look(&mut self, now: Instant, main: &mut Endpoint) {
        let (moved, rtt) = main.moved();
        let moved = moved + self.came();
        let watch = self.watch.as_mut();
        let Some(seen) = watch.and_then(|watch| watch.look(now, moved)) else { return };
        let (subflows, most) = (self.live() + 1, self.most + 1);
        let asked = main.take_subflows_wanted();
        let more = if asked { seen.room(subflows, most) } else { seen.more(subflows, most) };
        if !self.making.active {
            if more > 0 {
                main.ask_for_subflows();
            }
            return;
        }
        if !main.subflows_may_begin(now) {
            return;
        }
        // A lost subflow is to be replaced, which is no trial, and subflow numbers must be left for
        // that.
        let more = (subflows - 1 + more).saturating_sub(self.wanted);
        let left = usize::from(main.subflows_left());
        let more = more.min(left.saturating_sub(self.wanted) / 2);
        let advice = self.autoscale.advise(Observation {
            subflows: self.wanted + 1,
            more,
            open: self.takers().count() >= self.wanted,
            moved: seen.moved,
            rtt: rtt.unwrap_or_default(),
        });
        match advice {
            Advice::Stay => {}
            Advice::Open(more) => self.wanted += more,
            Advice::Back(to) => {
                self.wanted = to.saturating_sub(1);
                let live = self.subflows.iter_mut().filter(|subflow| subflow.live);
                live.skip(self.wanted).for_each(OneSubflow::retire);
            }
        }
        #[cfg(test)]
        tests::ADVISED.with_borrow_mut(|all| all.push((advice, subflows - 1)));
    }

    /// Bytes that were sent or received over them.
    pub(crate) fn moved(&self) -> u64 {
        match self.sends {
            true => self
                .subflows
                .iter()
                .map(|subflow| subflow.shared_stats.tally(true).sent_bytes)
                .sum(),
            false => self.came(),
        }
    }

    /// Bytes that were received over them. The main connection's sender knows of the sent ones.
    fn came(&self) -> u64 {
        let of_each = self.subflows.iter().map(|subflow| subflow.shared_stats.came());
        if self.sends { 0 } else { of_each.sum() }
    }

    fn call(&mut self, now: Instant, main: &mut Endpoint) {
        if !main.subflows_may_begin(now) {
            return;
        }
        let leave = self.making.leave();
        let entropy = entropy().ok().filter(|_| leave.is_some());
        let subflow = entropy.and_then(|entropy| main.call_subflow(now, entropy));
        let sockets = self.making.sockets.as_ref().filter(|_| subflow.is_some());
        let socket = sockets.and_then(|sockets| sockets.call().ok());
        let begun = subflow.zip(socket).zip(leave).map(|((subflow, socket), leave)| {
            // Without a thread there is no subflow. The peer does not know of it yet.
            self.start(subflow, socket, leave).is_none()
        });
        self.called = true;
        if begun != Some(true) || self.again > AGAIN {
            self.next_call = now + self.again;
        }
    }

    /// A subflow has ended, with data or without: sets the time of the next one.
    fn wait(&mut self, now: Instant, carried: bool) {
        if carried {
            self.again = AGAIN;
        } else if std::mem::take(&mut self.called) {
            self.again = (self.again * 2).min(SELDOM);
        }
        self.next_call = self.next_call.max(now + self.again);
    }

    /// The other end has opened one.
    fn admit(&mut self, now: Instant, subflow: Subflow, main: &mut Endpoint) {
        let leave = if self.live() < self.most { self.making.leave() } else { None };
        let sockets = self.making.sockets.as_ref().filter(|_| leave.is_some());
        let socket = sockets.map(|sockets| sockets.answer(subflow.peer.peer, subflow.peer.local));
        let left = match socket.and_then(Result::ok).zip(leave) {
            Some((socket, leave)) => self.start(subflow, socket, leave),
            None => Some(subflow),
        };
        if let Some(subflow) = left {
            main.refuse_subflow(now, subflow, "there are enough lanes");
        }
    }

    /// Starts its thread. If that fails, it comes back.
    fn start(&mut self, subflow: Subflow, socket: Socket, leave: SubflowPermit) -> Option<Subflow> {
        let Ok(poller) = Poller::new() else { return Some(subflow) };
        let (waker, shared_stats) = (poller.waker(), Arc::new(SharedStats::default()));
        let host = IoContext { socket, poller, clock: self.making.clock, trace: None };
        let ((commands, commands_left), (hand, handed)) = (channel(), channel());
        let app = SubflowThread {
            at: self.subflows.len(),
            sends: self.sends,
            commands_left,
            outbox: self.outbox.clone(),
            waker: self.making.waker.clone(),
            shared_stats: Arc::clone(&shared_stats),
            wanted: VecDeque::new(),
            silent: None,
            over: false,
        };
        let run = move || _ = handed.recv().map(|subflow: Subflow| app.run(subflow.end, host));
        let Ok(thread) = Builder::new().name(SUBFLOW.to_owned()).spawn(run) else {
            return Some(subflow);
        };
        if let Err(unsent) = hand.send(subflow) {
            return Some(unsent.0);
        }
        if let Some(steering) = self.steering {
            let _ = commands.send(SubflowCommand::Steer(steering));
        }
        self.subflows.push(OneSubflow {
            commands: Some(commands),
            waker,
            shared_stats,
            thread: Some(thread),
            leave: Some(leave),
            open: false,
            live: true,
            stats: Stats::default(),
        });
        None
    }

    /// The next event of a subflow, and the subflow.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(usize, SubflowEvent)> {
        if let Some((at, buffer)) = self.left.pop_front() {
            let sends = self.sends;
            return Some((
                at,
                if sends { SubflowEvent::Unsure(buffer) } else { SubflowEvent::Empty(buffer) },
            ));
        }
        let (at, said) = self.commands_left.try_recv().ok()?;
        match (&said, self.subflows.get_mut(at)) {
            (SubflowEvent::Open, Some(subflow)) => subflow.open = subflow.commands.is_some(),
            (SubflowEvent::Over(last), Some(subflow)) => {
                self.left.extend(subflow.end(last).into_iter().map(|buffer| (at, buffer)));
                let (sent, came) =
                    (subflow.stats.data_packets_sent, subflow.stats.data_packets_received);
                self.wait(now, sent + came > 0);
            }
            _ => {}
        }
        Some((at, said))
    }

    /// Whether buffers may go to the subflow at `at`.
    pub(crate) fn takes(&self, at: usize) -> bool {
        self.subflows.get(at).is_some_and(|subflow| subflow.live && subflow.open)
    }

    /// The subflows that may take buffers.
    pub(crate) fn takers(&self) -> impl Iterator<Item = usize> {
        (0..self.subflows.len()).filter(|at| self.takes(*at))
    }

    /// A buffer for the subflow at `at`; back if that is no more.
    pub(crate) fn give(&mut self, at: usize, buffer: Buffer) -> Result<(), Buffer> {
        let Some(subflow) = self.subflows.get_mut(at) else { return Err(buffer) };
        let Some(commands) = &subflow.commands else { return Err(buffer) };
        match commands.send(SubflowCommand::Buffer(buffer)) {
            Ok(()) => {
                subflow.waker.wake();
                Ok(())
            }
            Err(error) => match error.0 {
                SubflowCommand::Buffer(buffer) => Err(buffer),
                SubflowCommand::Steer(_) => Ok(()),
            },
        }
    }

    /// The client pauses or resumes. Rates are the main connection's.
    pub(crate) fn steer(&mut self, paused: bool) {
        let steering = RuntimeSettings { paused, ..RuntimeSettings::default() };
        if self.steering.unwrap_or_default() == steering {
            return;
        }
        self.steering = Some(steering);
        for subflow in &self.subflows {
            if let Some(commands) = &subflow.commands {
                let _ = commands.send(SubflowCommand::Steer(steering));
                subflow.waker.wake();
            }
        }
    }

    /// Whether the main connection is silent, so that subflows may be, too.
    pub(crate) fn be_silent(&self, silent: bool) {
        self.subflows.iter().for_each(|subflow| subflow.shared_stats.be_silent(silent));
    }

    /// The connection has ended, and so have all subflows. Returns their counts and the buffers
    /// that they had.
    pub(crate) fn close(&mut self) -> (Vec<Stats>, Vec<Buffer>) {
        for subflow in &mut self.subflows {
            subflow.commands = None;
            subflow.waker.wake();
        }
        for subflow in &mut self.subflows {
            // A panic of the thread was reported already.
            let _ = subflow.thread.take().map(JoinHandle::join);
        }
        let mut buffers: Vec<Buffer> = self.left.drain(..).map(|(_, buffer)| buffer).collect();
        while let Ok((at, said)) = self.commands_left.try_recv() {
            match (said, self.subflows.get_mut(at)) {
                (SubflowEvent::Over(last), Some(subflow)) => buffers.extend(subflow.end(&last)),
                (
                    SubflowEvent::Accepted(buffer)
                    | SubflowEvent::Unsure(buffer)
                    | SubflowEvent::Full(buffer)
                    | SubflowEvent::Empty(buffer),
                    _,
                ) => buffers.push(buffer),
                (SubflowEvent::Wanted | SubflowEvent::Open | SubflowEvent::Over(_), _) => {}
            }
        }
        (self.subflows.iter().map(|subflow| subflow.stats.clone()).collect(), buffers)
    }

    /// The factory for the subflows of another connection.
    pub(crate) fn making(&self) -> Arc<SubflowFactory> {
        Arc::clone(&self.making)
    }
}

impl OneSubflow {
    /// Ends the subflow. Its buffers go over the others.
    fn retire(&mut self) {
        (self.commands, self.open) = (None, false);
        self.waker.wake();
    }

    /// The subflow has ended. Returns the buffers that were on their way to it.
    fn end(&mut self, last: &SubflowResult) -> Vec<Buffer> {
        (self.live, self.open, self.commands, self.leave) = (false, false, None, None);
        self.stats = last.stats.clone();
        let left = last.commands_left.try_iter();
        left.filter_map(|command| match command {
            SubflowCommand::Buffer(buffer) => Some(buffer),
            SubflowCommand::Steer(_) => None,
        })
        .collect()
    }
}

impl Drop for Subflows {
    fn drop(&mut self) {
        self.close();
    }
}

/// Adds the counts of the other subflows to `all`, those of the main connection. Returns the counts
/// of each subflow, if there is more than one.
pub(crate) fn sum(all: &mut Stats, others: Vec<Stats>) -> Vec<Stats> {
    if others.is_empty() {
        return others;
    }
    let subflows: Vec<Stats> = [all.clone()].into_iter().chain(others).collect();
    subflows.iter().skip(1).for_each(|one| add(all, one));
    subflows
}

fn add(all: &mut Stats, one: &Stats) {
    let sums: [(&mut u64, u64); 21] = [
        (&mut all.data_packets_sent, one.data_packets_sent),
        (&mut all.data_packets_resent, one.data_packets_resent),
        (&mut all.data_packets_asked, one.data_packets_asked),
        (&mut all.data_packets_received, one.data_packets_received),
        (&mut all.data_packets_duplicate, one.data_packets_duplicate),
        (&mut all.data_packets_lost, one.data_packets_lost),
        (&mut all.repair_packets_sent, one.repair_packets_sent),
        (&mut all.repair_packets_received, one.repair_packets_received),
        (&mut all.packets_repaired, one.packets_repaired),
        (&mut all.data_timeouts, one.data_timeouts),
        (&mut all.control_timeouts, one.control_timeouts),
        (&mut all.datagrams_sent, one.datagrams_sent),
        (&mut all.bytes_sent, one.bytes_sent),
        (&mut all.datagrams_received, one.datagrams_received),
        (&mut all.bytes_received, one.bytes_received),
        (&mut all.datagrams_dropped, one.datagrams_dropped),
        (&mut all.control_packets, one.control_packets),
        (&mut all.buffers_done, one.buffers_done),
        (&mut all.image_bytes, one.image_bytes),
        (&mut all.steady_bytes, one.steady_bytes),
        (&mut all.first_pass_bytes, one.first_pass_bytes),
    ];
    sums.into_iter().for_each(|(sum, more)| *sum += more);
}

/// The same configuration, with the client string of a receiver or server that announces its
/// subflows, if it accepts any and its client string has no other text.
pub(crate) fn announce(
    name: &str,
    options: &Options,
    listens: Option<bool>,
    config: Config,
) -> Config {
    match asked(options, listens) {
        subflows if subflows > 1 && options.network.client.is_none() => {
            Config { client: format!("{name} {FIELD}={subflows}"), ..config }
        }
        _ => config,
    }
}

#[cfg(test)]
mod tests;
