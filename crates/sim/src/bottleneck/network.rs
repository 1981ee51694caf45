//! The flows of a scene, and the way that they share.
//!
//! All that happens is an event of the simulator, packets on the way as well: a packet that comes
//! out of the bottleneck at the time of a timer is handled before or after it by which of them was
//! set first.

use std::collections::VecDeque;
use std::time::Duration;

use netblt_path::rng::{Rng, key};
use netblt_path::{Counters, Path};
use netblt_proto::api::Ecn;
use netblt_proto::time::{Instant, nanos};

use super::books::{FlowBooks, Link, SceneOutcome, TICK, possible_bytes, tick};
use super::ends::{Body, Ends, FlowPacket, Outbox};
use super::ours::Ours;
use super::scene::{FlowOptions, Kind, Scene};
use super::steady::Steady;
use super::tcp::Tcp;
use crate::simulator::{Bounds, End, Nodes, Simulator};

/// Runs a scene.
pub fn run(scene: &Scene) -> SceneOutcome {
    Network::new(scene).run()
}

/// The last packet may take this long, and the queue's time, to arrive. The flows go on for this
/// long after the counted time.
const DRAIN: Duration = Duration::from_secs(1);

/// The clock and the events. The ways are none of its media.
type Net = Simulator<Path<FlowPacket>, What>;

#[derive(Debug)]
enum What {
    /// A way has something to hand out.
    Way(usize),
    /// A flow's timer.
    Wake(usize),
    /// The first packet on a leg of a flow arrives.
    Comes(usize, Leg),
    /// A tenth of a second has passed.
    Tick,
}

/// A flow's own half of the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    /// From the bottleneck to the receiver.
    Data,
    /// To the sender.
    Feedback,
}

/// One direction of the path, and the time of its next event.
#[derive(Debug)]
struct Way {
    path: Path<FlowPacket>,
    scheduled: Instant,
    /// Packets this way are neither lost nor delayed.
    is_perfect: bool,
}

#[derive(Debug)]
struct Flow {
    options: FlowOptions,
    ends: Box<dyn Ends>,
    out: Outbox,
    scheduled: Instant,
    /// The packets on each leg, in order of arrival.
    data: VecDeque<(Instant, FlowPacket, Option<Ecn>)>,
    feedback: VecDeque<(Instant, FlowPacket, Option<Ecn>)>,
    /// When the newest feedback reaches the sender.
    last_feedback: Instant,
    books: FlowBooks,
}

impl Flow {
    /// The time at which its sender's host handles an event that is due `at`.
    fn runs_at(&self, at: Instant) -> Instant {
        let Some((stopped, period)) = self.options.stands_still else { return at };
        if at == Instant::NEVER {
            return at;
        }
        let place = at.as_nanos() % nanos(period).max(1);
        at + Duration::from_nanos(nanos(stopped).saturating_sub(place))
    }

    fn on(&mut self, leg: Leg) -> &mut VecDeque<(Instant, FlowPacket, Option<Ecn>)> {
        match leg {
            Leg::Data => &mut self.data,
            Leg::Feedback => &mut self.feedback,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.options.stop.is_some_and(|stop| now >= Instant::EPOCH + stop)
    }
}

struct Network<'a> {
    scene: &'a Scene,
    ways: [Way; 2],
    flows: Vec<Flow>,
    /// The bottleneck's counters at the start and at the end of the counted time.
    begun: Option<Counters>,
    ended: Option<Counters>,
}

impl<'a> Network<'a> {
    fn new(scene: &'a Scene) -> Self {
        let way = |options: &netblt_path::LinkOptions, name| Way {
            path: Path::new(options.clone(), scene.seed, name),
            scheduled: Instant::NEVER,
            is_perfect: *options == netblt_path::LinkOptions::default(),
        };
        let ways = [way(&scene.there, "there"), way(&scene.back, "back")];
        let flows = scene.flows.iter().enumerate().map(|(n, flow)| build(flow, n, scene.seed));
        Self { scene, ways, flows: flows.collect(), begun: None, ended: None }
    }

    fn run(mut self) -> SceneOutcome {
        let bounds = Bounds { deadline: self.scene.until + self.longest(), steps: u64::MAX };
        let mut net = Net::new([], bounds);
        for flow in 0..self.flows.len() {
            self.schedule_flow(&mut net, flow);
        }
        net.schedule(Instant::EPOCH, What::Tick);
        let end = net.run(&mut self);
        assert_eq!(end, End::Deadline, "the flows make no progress at {:?}", net.now());
        self.outcome()
    }

    /// The longest time that the last counted packet may be in flight.
    fn longest(&self) -> Duration {
        let rtt = self.flows.iter().map(|flow| flow.options.rtt).max().unwrap_or_default();
        let changed = self.scene.there.schedule.iter().filter_map(|change| change.delay).max();
        DRAIN + rtt * 2 + self.scene.there.delay.max(changed.unwrap_or_default()) * 2
    }

    fn schedule_way(&mut self, net: &mut Net, way: usize) {
        let next = self.ways[way].path.next().unwrap_or(Instant::NEVER).max(net.now());
        if next < self.ways[way].scheduled {
            self.ways[way].scheduled = next;
            net.schedule(next, What::Way(way));
        }
    }

    fn schedule_flow(&mut self, net: &mut Net, flow: usize) {
        let now = net.now();
        let it = &self.flows[flow];
        if it.is_over(now) {
            return;
        }
        let due = it.ends.due(now).max(Instant::EPOCH + it.options.start).max(now);
        let due = it.runs_at(due);
        if due < it.scheduled {
            self.flows[flow].scheduled = due;
            net.schedule(due, What::Wake(flow));
        }
    }

    fn wake(&mut self, net: &mut Net, flow: usize) {
        let now = net.now();
        let it = &mut self.flows[flow];
        if it.is_over(now) {
            return;
        }
        if it.ends.due(now) <= now {
            it.ends.work(now, &mut it.out);
            self.send(net, flow);
        }
        self.schedule_flow(net, flow);
    }

    fn next_comes(&mut self, net: &mut Net, flow: usize, leg: Leg) {
        let packets = self.flows[flow].on(leg);
        let Some((_, packet, ecn)) = packets.pop_front() else { return };
        if let Some(next) = packets.front().map(|(at, ..)| *at) {
            net.schedule(next, What::Comes(flow, leg));
        }
        self.comes(net, &packet, ecn);
    }

    /// A packet arrives.
    fn comes(&mut self, net: &mut Net, packet: &FlowPacket, ecn: Option<Ecn>) {
        let now = net.now();
        let counts = self.counts(packet.sent_at);
        let it = &mut self.flows[packet.flow];
        if packet.body.is_forward() {
            it.ends.on_data(now, packet, ecn, &mut it.out);
        } else if it.is_over(now) {
            return;
        } else {
            it.ends.on_feedback(now, &packet.body, &mut it.out);
        }
        if matches!(packet.body, Body::Data(_)) {
            add_at(&mut it.books.ticks, tick(now), u64::from(packet.bytes));
            if counts {
                it.books.arrived += 1;
                it.books.arrived_bytes += u64::from(packet.bytes);
                it.books.marked += u64::from(ecn == Some(Ecn::Ce));
                if it.options.keeps_delays {
                    it.books.delays.push(now.since(packet.sent_at));
                }
            }
        }
        self.send(net, packet.flow);
        self.schedule_flow(net, packet.flow);
    }

    /// Whether a packet that is sent `at` counts.
    fn counts(&self, at: Instant) -> bool {
        let passed = at.since(Instant::EPOCH);
        passed >= self.scene.from && passed < self.scene.until
    }

    /// Sends the packets of a flow's ends.
    fn send(&mut self, net: &mut Net, flow: usize) {
        let now = net.now();
        let counts = self.counts(now);
        let mut packets = std::mem::take(&mut self.flows[flow].out.packets);
        let mut touched = [false; 2];
        for (body, bytes) in packets.drain(..) {
            let it = &mut self.flows[flow];
            let is_data = matches!(body, Body::Data(_));
            let way = usize::from(body.is_forward() == it.options.reverse);
            let ecn = (is_data && it.options.ecn).then_some(Ecn::Ect0);
            let packet = FlowPacket { flow, bytes, sent_at: now, body };
            if self.ways[way].is_perfect && !body.is_forward() {
                self.hand_over(net, packet, ecn);
                continue;
            }
            let path = &mut self.ways[way].path;
            touched[way] = true;
            let refused = |path: &Path<FlowPacket>| {
                path.counters().lost_queue.packets + path.counters().lost_policer.packets
            };
            let before = refused(path);
            path.push(now, 0, ecn, packet);
            let refused = refused(path) - before;
            if is_data {
                add_at(&mut it.books.sent_ticks, tick(now), 1);
                it.books.sent += u64::from(counts);
                it.books.refused += if counts { refused } else { 0 };
            }
        }
        self.flows[flow].out.packets = packets;
        for (way, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            self.look_at(net, way);
        }
    }

    /// Moves packets that leave a direction to their flows' own halves of the round trip.
    fn look_at(&mut self, net: &mut Net, way: usize) {
        let now = net.now();
        while let Some(delivery) = self.ways[way].path.pop(now) {
            self.hand_over(net, delivery.payload, delivery.ecn);
        }
        self.schedule_way(net, way);
    }

    /// A packet has left the shared path.
    fn hand_over(&mut self, net: &mut Net, packet: FlowPacket, ecn: Option<Ecn>) {
        let it = &mut self.flows[packet.flow];
        let mut at = net.now() + it.options.rtt / 2;
        let leg = if packet.body.is_forward() { Leg::Data } else { Leg::Feedback };
        if leg == Leg::Feedback {
            let jitter = it.out.rng.below(nanos(self.scene.host_jitter) + 1);
            at = it.runs_at(at + Duration::from_nanos(jitter)).max(it.last_feedback);
            it.last_feedback = at;
        }
        let packets = it.on(leg);
        packets.push_back((at, packet, ecn));
        if packets.len() == 1 {
            net.schedule(at, What::Comes(packet.flow, leg));
        }
    }

    fn tick(&mut self, net: &mut Net) {
        let now = net.now();
        let passed = now.since(Instant::EPOCH);
        let way = &mut self.ways[0];
        way.path.advance(now);
        let counters = *way.path.counters();
        if passed >= self.scene.from {
            self.begun.get_or_insert(counters);
        }
        if passed >= self.scene.until {
            self.ended.get_or_insert(counters);
        } else if passed >= self.scene.from {
            for flow in &mut self.flows {
                if passed >= flow.options.start && !flow.is_over(now) {
                    *flow.books.phases.entry(flow.ends.phase()).or_default() += 1;
                }
            }
        }
        net.schedule(now + TICK, What::Tick);
    }

    fn outcome(self) -> SceneOutcome {
        let (from, until) = (self.scene.from, self.scene.until);
        let (begin, end) = (Instant::EPOCH + from, Instant::EPOCH + until);
        let link = Link::between(
            &self.begun.unwrap_or_default(),
            &self.ended.unwrap_or_else(|| *self.ways[0].path.counters()),
        );
        let last_start = self.flows.iter().map(|flow| flow.options.start).max().unwrap_or_default();
        let flows = self.flows.into_iter().map(|flow| {
            let pieces = flow.ends.pieces().iter().filter(|(at, _)| *at >= begin && *at < end);
            FlowBooks { pieces: pieces.map(|(_, took)| *took).collect(), ..flow.books }
        });
        SceneOutcome {
            flows: flows.collect(),
            link,
            time: until - from,
            possible_bytes: possible_bytes(&self.scene.there, from, until),
            last_start,
        }
    }
}

impl Nodes<Path<FlowPacket>, What> for Network<'_> {
    fn handle_events(&mut self, net: &mut Net) {
        while let Some(what) = net.poll_event() {
            match what {
                What::Way(way) if self.ways[way].scheduled == net.now() => {
                    self.ways[way].scheduled = Instant::NEVER;
                    self.look_at(net, way);
                }
                What::Wake(flow) if self.flows[flow].scheduled == net.now() => {
                    self.flows[flow].scheduled = Instant::NEVER;
                    self.wake(net, flow);
                }
                // Superseded by an earlier one, which asked for the next.
                What::Way(_) | What::Wake(_) => {}
                What::Comes(flow, leg) => self.next_comes(net, flow, leg),
                What::Tick => self.tick(net),
            }
        }
    }
}

fn add_at(list: &mut Vec<u64>, at: usize, more: u64) {
    if list.len() <= at {
        list.resize(at + 1, 0);
    }
    list[at] += more;
}

/// The ends of a flow, and what they send.
pub(super) fn ends_of(options: &FlowOptions, number: usize, seed: u64) -> (Box<dyn Ends>, Outbox) {
    let start = Instant::EPOCH + options.start;
    let ends: Box<dyn Ends> = match options.kind {
        Kind::Ours(policy) => Box::new(Ours::new(policy, options)),
        Kind::Tcp(law, supply) => Box::new(Tcp::new(law, supply, options)),
        Kind::Steady(rate) => Box::new(Steady::new(rate, options.packet_bytes, start)),
    };
    let rng = Rng::new(key(seed, &format!("flow {number}")));
    (ends, Outbox { packets: Vec::new(), rng })
}

fn build(options: &FlowOptions, number: usize, seed: u64) -> Flow {
    let (ends, out) = ends_of(options, number, seed);
    Flow {
        options: options.clone(),
        ends,
        out,
        scheduled: Instant::NEVER,
        data: VecDeque::new(),
        feedback: VecDeque::new(),
        last_feedback: Instant::EPOCH,
        books: FlowBooks::default(),
    }
}
