//! The lanes of a transfer beside its main connection (`docs/protocol.md §4.11`), seen from the
//! main thread: they are opened here and come to an end here, and buffers go to them and back.
//!
//! Who gets which buffer is the client's to decide, for a sender by what is wanted, for a receiver
//! by what each has. A lane that is lost is no failure of the transfer's.

mod board;
mod thread;
mod trials;
mod watch;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Policy, Steering, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::endpoint::lanes::{Lane, LaneTally};
use netblt_proto::limits::MAX_LANES;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use rustix::process::{Resource, getrlimit};

use board::Board;
pub(crate) use thread::Said;
use thread::{LaneThread, Last, ToLane};
use trials::{Advice, Sight, Trials};
use watch::Watch;

use crate::error::Error;
use crate::fields::Fields;
use crate::lanes::Lanes as Choice;
use crate::net::entropy::entropy;
use crate::net::host::{Clock, Host};
use crate::net::lane_socket::LaneSockets;
use crate::net::socket::Socket;
use crate::net::wait::{Poller, Waker};
use crate::options::Options;

/// The field of a client message that tells how many.
pub(crate) const FIELD: &str = "lanes";
/// How a receiver that takes lanes is called, and a server (`docs/protocol.md §8.6`).
pub(crate) const RECEIVER: &str = "netblt receive";
pub(crate) const SERVER: &str = "netblt serve";
/// How often the law hears of all lanes, and they of it.
const TOLD: Duration = Duration::from_micros(100);
/// From the loss of a lane to the next one that is opened: after lanes that carried nothing twice
/// as long each time, and then one is tried alone, for the other end may have no place for it.
const AGAIN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(60);
/// What their threads are called.
const LANE: &str = "netblt-lane";

/// How many lanes `options` ask for, of an end that `listens` or calls; one where there can be no
/// more.
pub(crate) fn asked(options: &Options, listens: Option<bool>) -> u8 {
    let follows = matches!(options.policy, Policy::Recreated(_));
    let is_files = options.client.is_none() || !options.asked.request.is_empty();
    // What branches from a connection shares its socket.
    let can = options.wire == Wire::Sealed && is_files && listens.is_some();
    match options.lanes {
        _ if !can || follows => 1,
        Choice::Auto => watch::most(),
        Choice::Most(lanes) => lanes.clamp(1, MAX_LANES),
    }
}

/// How many a receiver's or a server's client string tells of.
pub(crate) fn told(client: &str) -> Option<u64> {
    [RECEIVER, SERVER].iter().find_map(|name| Fields::of(name, client))?.only(FIELD)
}

/// How many both ends take, if that is more than one.
pub(crate) fn agreed(own: u8, told: Option<u64>) -> Option<u8> {
    let told = u8::try_from(told?).unwrap_or(MAX_LANES);
    Some(own.min(told)).filter(|lanes| *lanes > 1)
}

/// What lanes are made with.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    /// How many this end takes, the main connection among them.
    pub(crate) own: u8,
    /// They begin when a processor is what limits.
    auto: bool,
    active: bool,
    /// Where there are none for them, there are no lanes, but what was said of them holds.
    sockets: Option<Arc<LaneSockets>>,
    clock: Clock,
    waker: Waker,
    /// How many more there may be of all connections.
    left: Arc<AtomicUsize>,
}

/// Lanes of all connections of a program at once: each is a thread, a socket, and what wakes it.
const MOST_IN_ALL: u64 = 256;
const FILES_OF_EACH: u64 = 3;

/// How many more lanes there may be in this program: all together they leave half of the files that
/// it may have open to others.
static LEFT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = MOST_IN_ALL.min(files / 2 / FILES_OF_EACH);
    Arc::new(AtomicUsize::new(usize::try_from(most).unwrap_or(usize::MAX)))
});

/// One of those that there may be; when it goes there may be another.
#[derive(Debug)]
struct Leave(Arc<AtomicUsize>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Making {
    /// For a transfer with these options, over this host's socket, whose end `listens` or calls;
    /// `None` if it is to have one lane.
    pub(crate) fn of(options: &Options, listens: Option<bool>, host: &Host) -> Option<Arc<Self>> {
        let own = Some(asked(options, listens)).filter(|own| *own > 1)?;
        let sockets = LaneSockets::beside(&host.socket).ok().map(Arc::new);
        let (clock, waker) = (host.clock, host.poller.waker());
        let (auto, active) = (options.lanes == Choice::Auto, listens == Some(false));
        let left = Arc::clone(&LEFT);
        Some(Arc::new(Self { own, auto, active, sockets, clock, waker, left }))
    }

    /// One more, if there may be.
    fn leave(&self) -> Option<Leave> {
        let take = |left: usize| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then(|| Leave(Arc::clone(&self.left)))
    }

    /// The same for one of several connections, whose turn it is when this wakes.
    pub(crate) fn waking(&self, waker: Waker) -> Arc<Self> {
        Arc::new(Self { waker, ..self.clone() })
    }
}

/// The lanes of a connection, without the main one.
#[derive(Debug)]
pub(crate) struct Lanes {
    making: Arc<Making>,
    /// At a time.
    most: usize,
    /// Of these, what there is to be now.
    wanted: usize,
    watch: Option<Watch>,
    trials: Trials,
    sends: bool,
    lanes: Vec<OneLane>,
    /// Made at each look.
    tallies: Vec<LaneTally>,
    outbox: Sender<(usize, Said)>,
    inbox: Receiver<(usize, Said)>,
    next_look: Instant,
    next_call: Instant,
    again: Duration,
    /// Some were called since one was over.
    called: bool,
    steering: Option<Steering>,
    /// What was on its way to a lane that had ended.
    left: VecDeque<(usize, Buffer)>,
}

#[derive(Debug)]
struct OneLane {
    /// Until it is to end.
    commands: Option<Sender<ToLane>>,
    waker: Waker,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
    /// Until it is over.
    leave: Option<Leave>,
    open: bool,
    live: bool,
    stats: Stats,
}

impl Lanes {
    /// Those of a connection that has just opened, of which both ends take so many.
    pub(crate) fn begin(
        making: Arc<Making>,
        agreed: u8,
        sends: bool,
        end: &mut Endpoint,
    ) -> Result<Self, Error> {
        // The other end believes in them, but there will be none.
        let most = making.sockets.as_ref().map_or(0, |_| usize::from(agreed).saturating_sub(1));
        if !making.active && most > 0 {
            end.admit_lanes(entropy()?);
        }
        let (outbox, inbox) = channel();
        let watches = making.auto && most > 0;
        let watch = watches.then(|| Watch::start(making.clock.now(), end.moved().0));
        Ok(Self {
            wanted: if making.auto { 0 } else { most },
            watch,
            trials: Trials::default(),
            making,
            most,
            sends,
            lanes: Vec::new(),
            tallies: Vec::new(),
            outbox,
            inbox,
            next_look: Instant::EPOCH,
            next_call: Instant::EPOCH,
            again: AGAIN,
            called: false,
            steering: None,
            left: VecDeque::new(),
        })
    }

    /// A turn of the main loop: lanes are opened, and shares dealt out.
    pub(crate) fn turn(&mut self, now: Instant, main: &mut Endpoint) {
        while let Some(lane) = main.poll_lane() {
            self.admit(now, lane, main);
        }
        if now < self.next_look {
            return;
        }
        self.next_look = now + TOLD;
        self.look(now, main);
        // A server that is asked for files knows of lanes when it has found them.
        let goes = self.sends || main.moved().0 > 0;
        if self.making.active && goes && self.live() < self.wanted && now >= self.next_call {
            self.call(now, main);
        }
        if self.sends && !self.lanes.is_empty() {
            self.tallies.clear();
            self.tallies.extend(self.lanes.iter().map(|lane| lane.board.tally(lane.live)));
            main.lead(now, &self.tallies);
            for (at, lane) in self.lanes.iter().enumerate() {
                lane.board.allow(main.share(at));
            }
        }
    }

    fn live(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.live).count()
    }

    /// Whether more would help, here or at the other end; each looks to its own.
    fn look(&mut self, now: Instant, main: &mut Endpoint) {
        let (moved, rtt) = main.moved();
        let moved = moved + self.came();
        let watch = self.watch.as_mut();
        let Some(seen) = watch.and_then(|watch| watch.look(now, moved)) else { return };
        let (lanes, most) = (self.live() + 1, self.most + 1);
        let asked = main.take_lanes_wanted();
        let more = if asked { seen.room(lanes, most) } else { seen.more(lanes, most) };
        if !self.making.active {
            if more > 0 {
                main.ask_for_lanes();
            }
            return;
        }
        if !main.lanes_may_begin(now) {
            return;
        }
        // Where one was lost there is to be another, which is no question; and for as many as there
        // are to be then, numbers are left.
        let more = (lanes - 1 + more).saturating_sub(self.wanted);
        let left = usize::from(main.lanes_left());
        let more = more.min(left.saturating_sub(self.wanted) / 2);
        let advice = self.trials.advise(Sight {
            lanes: self.wanted + 1,
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
                let live = self.lanes.iter_mut().filter(|lane| lane.live);
                live.skip(self.wanted).for_each(OneLane::retire);
            }
        }
        #[cfg(test)]
        tests::ADVISED.with_borrow_mut(|all| all.push((advice, lanes - 1)));
    }

    /// What was sent over them, or came.
    pub(crate) fn moved(&self) -> u64 {
        match self.sends {
            true => self.lanes.iter().map(|lane| lane.board.tally(true).sent_bytes).sum(),
            false => self.came(),
        }
    }

    /// What came over them; of what they sent the main connection's sender knows.
    fn came(&self) -> u64 {
        let of_each = self.lanes.iter().map(|lane| lane.board.came());
        if self.sends { 0 } else { of_each.sum() }
    }

    fn call(&mut self, now: Instant, main: &mut Endpoint) {
        if !main.lanes_may_begin(now) {
            return;
        }
        let leave = self.making.leave();
        let entropy = entropy().ok().filter(|_| leave.is_some());
        let lane = entropy.and_then(|entropy| main.call_lane(now, entropy));
        let sockets = self.making.sockets.as_ref().filter(|_| lane.is_some());
        let socket = sockets.and_then(|sockets| sockets.call().ok());
        let begun = lane.zip(socket).zip(leave).map(|((lane, socket), leave)| {
            // Where there can be no thread there is no lane; nobody has heard of it.
            self.start(lane, (socket, leave)).is_none()
        });
        self.called = true;
        if begun != Some(true) || self.again > AGAIN {
            self.next_call = now + self.again;
        }
    }

    /// A lane is over that has carried something or not: when there is to be another.
    fn wait(&mut self, now: Instant, carried: bool) {
        if carried {
            self.again = AGAIN;
        } else if std::mem::take(&mut self.called) {
            self.again = (self.again * 2).min(SELDOM);
        }
        self.next_call = self.next_call.max(now + self.again);
    }

    /// The other end has opened one.
    fn admit(&mut self, now: Instant, lane: Lane, main: &mut Endpoint) {
        let leave = if self.live() < self.most { self.making.leave() } else { None };
        let sockets = self.making.sockets.as_ref().filter(|_| leave.is_some());
        let socket = sockets.map(|sockets| sockets.answer(lane.peer.peer, lane.peer.local));
        let left = match socket.and_then(Result::ok).zip(leave) {
            Some(with) => self.start(lane, with),
            None => Some(lane),
        };
        if let Some(lane) = left {
            main.refuse_lane(now, lane, "there are enough lanes");
        }
    }

    /// A thread for it; without one, it comes back.
    fn start(&mut self, lane: Lane, (socket, leave): (Socket, Leave)) -> Option<Lane> {
        let Ok(poller) = Poller::new() else { return Some(lane) };
        let (waker, board) = (poller.waker(), Arc::new(Board::default()));
        let host = Host { socket, poller, clock: self.making.clock, trace: None };
        let ((commands, inbox), (hand, handed)) = (channel(), channel());
        let app = LaneThread {
            at: self.lanes.len(),
            sends: self.sends,
            inbox,
            outbox: self.outbox.clone(),
            waker: self.making.waker.clone(),
            board: Arc::clone(&board),
            wanted: VecDeque::new(),
            silent: None,
            over: false,
        };
        let run = move || _ = handed.recv().map(|lane: Lane| app.run(lane.end, host));
        let Ok(thread) = Builder::new().name(LANE.to_owned()).spawn(run) else { return Some(lane) };
        if let Err(unsent) = hand.send(lane) {
            return Some(unsent.0);
        }
        if let Some(steering) = self.steering {
            let _ = commands.send(ToLane::Steer(steering));
        }
        self.lanes.push(OneLane {
            commands: Some(commands),
            waker,
            board,
            thread: Some(thread),
            leave: Some(leave),
            open: false,
            live: true,
            stats: Stats::default(),
        });
        None
    }

    /// What a lane has said, and which.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(usize, Said)> {
        if let Some((at, buffer)) = self.left.pop_front() {
            let sends = self.sends;
            return Some((at, if sends { Said::Unsure(buffer) } else { Said::Empty(buffer) }));
        }
        let (at, said) = self.inbox.try_recv().ok()?;
        match (&said, self.lanes.get_mut(at)) {
            (Said::Open, Some(lane)) => lane.open = lane.commands.is_some(),
            (Said::Over(last), Some(lane)) => {
                self.left.extend(lane.end(last).into_iter().map(|buffer| (at, buffer)));
                let (sent, came) = (lane.stats.data_packets_sent, lane.stats.data_packets_received);
                self.wait(now, sent + came > 0);
            }
            _ => {}
        }
        Some((at, said))
    }

    /// Whether buffers may go to the lane at `at`.
    pub(crate) fn takes(&self, at: usize) -> bool {
        self.lanes.get(at).is_some_and(|lane| lane.live && lane.open)
    }

    /// Those to which they may.
    pub(crate) fn takers(&self) -> impl Iterator<Item = usize> {
        (0..self.lanes.len()).filter(|at| self.takes(*at))
    }

    /// A buffer for the lane at `at`; back if that is no more.
    pub(crate) fn give(&mut self, at: usize, buffer: Buffer) -> Result<(), Buffer> {
        let Some(lane) = self.lanes.get_mut(at) else { return Err(buffer) };
        let Some(commands) = &lane.commands else { return Err(buffer) };
        match commands.send(ToLane::Buffer(buffer)) {
            Ok(()) => {
                lane.waker.wake();
                Ok(())
            }
            Err(error) => match error.0 {
                ToLane::Buffer(buffer) => Err(buffer),
                ToLane::Steer(_) => Ok(()),
            },
        }
    }

    /// The client pauses, or goes on; rates are the main connection's.
    pub(crate) fn steer(&mut self, paused: bool) {
        let steering = Steering { paused, ..Steering::default() };
        if self.steering.unwrap_or_default() == steering {
            return;
        }
        self.steering = Some(steering);
        for lane in &self.lanes {
            if let Some(commands) = &lane.commands {
                let _ = commands.send(ToLane::Steer(steering));
                lane.waker.wake();
            }
        }
    }

    /// Whether the main connection is silent, so that lanes may be, too.
    pub(crate) fn be_silent(&self, silent: bool) {
        self.lanes.iter().for_each(|lane| lane.board.be_silent(silent));
    }

    /// The connection is over, and so are all lanes: what each counted, and the buffers that were
    /// with them.
    pub(crate) fn close(&mut self) -> (Vec<Stats>, Vec<Buffer>) {
        for lane in &mut self.lanes {
            lane.commands = None;
            lane.waker.wake();
        }
        for lane in &mut self.lanes {
            // A thread that has panicked has said so.
            let _ = lane.thread.take().map(JoinHandle::join);
        }
        let mut buffers: Vec<Buffer> = self.left.drain(..).map(|(_, buffer)| buffer).collect();
        while let Ok((at, said)) = self.inbox.try_recv() {
            match (said, self.lanes.get_mut(at)) {
                (Said::Over(last), Some(lane)) => buffers.extend(lane.end(&last)),
                (
                    Said::Accepted(buffer)
                    | Said::Unsure(buffer)
                    | Said::Full(buffer)
                    | Said::Empty(buffer),
                    _,
                ) => buffers.push(buffer),
                (Said::Wanted | Said::Open | Said::Over(_), _) => {}
            }
        }
        (self.lanes.iter().map(|lane| lane.stats.clone()).collect(), buffers)
    }

    /// What they are made with, for those of another connection.
    pub(crate) fn making(&self) -> Arc<Making> {
        Arc::clone(&self.making)
    }
}

impl OneLane {
    /// It is to end; what it held goes over the others.
    fn retire(&mut self) {
        (self.commands, self.open) = (None, false);
        self.waker.wake();
    }

    /// It is over: the buffers that were on their way to it.
    fn end(&mut self, last: &Last) -> Vec<Buffer> {
        (self.live, self.open, self.commands, self.leave) = (false, false, None, None);
        self.stats = last.stats.clone();
        let left = last.inbox.try_iter();
        left.filter_map(|told| match told {
            ToLane::Buffer(buffer) => Some(buffer),
            ToLane::Steer(_) => None,
        })
        .collect()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.close();
    }
}

/// Adds to `all`, the main connection's counts, those of the other lanes. What each has counted by
/// itself, if there is more than one.
pub(crate) fn sum(all: &mut Stats, others: Vec<Stats>) -> Vec<Stats> {
    if others.is_empty() {
        return others;
    }
    let lanes: Vec<Stats> = [all.clone()].into_iter().chain(others).collect();
    lanes.iter().skip(1).for_each(|one| add(all, one));
    lanes
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

/// The same configuration, with the client string by which a receiver or server, as it is called,
/// tells that it takes lanes, if it does and is to tell nothing else.
pub(crate) fn tells(
    name: &str,
    (options, listens): (&Options, Option<bool>),
    config: Config,
) -> Config {
    match asked(options, listens) {
        lanes if lanes > 1 && options.client.is_none() => {
            Config { client: format!("{name} {FIELD}={lanes}"), ..config }
        }
        _ => config,
    }
}

#[cfg(test)]
mod tests;
