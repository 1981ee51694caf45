//! The one loop of every simulation: one clock that jumps, one queue of events, the media between
//! nodes, and the bounds.
//!
//! A simulation is a set of [`Nodes`] over media. One step at an instant has a fixed order:
//!
//! 1. events whose time has come: the earliest first, and of one time the first scheduled;
//! 2. arrivals, medium by medium in the order of [`Simulator::new`], of each in its own order;
//! 3. the nodes whose timers have run out, in the order of the set;
//! 4. the clock jumps to the next time at which any of these is due, which may be the same instant.
//!
//! What a node sends is in its medium at once, and arrives when its turn in this order comes.
//! Nothing here reads a clock or draws a random number, so the same nodes do the same on every
//! machine. No run is endless: it ends by [`End`] at the latest.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use netblt_path::{Delivery, Path, Payload};
use netblt_proto::time::{Instant, earliest};

/// Steps at one instant, before nodes count as making no progress.
const MAX_STEPS_AT_ONCE: u32 = 10_000;
/// Events at one instant. They are more: a host that was suspended gets the acknowledgements of
/// seconds at one instant, each by an event.
const MAX_EVENTS_AT_ONCE: u32 = 1_000_000;

/// A medium between nodes: what is put into it arrives later, or never.
pub trait Medium {
    /// What arrives.
    type Arrival;
    /// When something may arrive next; `None`: never.
    fn next(&self) -> Option<Instant>;
    /// Takes out what has arrived first by `now`.
    fn pop(&mut self, now: Instant) -> Option<Self::Arrival>;
}

impl<T: Payload> Medium for Path<T> {
    type Arrival = Delivery<T>;

    fn next(&self) -> Option<Instant> {
        Path::next(self)
    }

    fn pop(&mut self, now: Instant) -> Option<Delivery<T>> {
        Path::pop(self, now)
    }
}

/// The nodes of a simulation. They take what is due for them, and send into the media.
pub trait Nodes<M: Medium, E> {
    /// Takes the events that are due by [`Simulator::poll_event`].
    fn handle_events(&mut self, _net: &mut Simulator<M, E>) {}
    /// Takes what has arrived over a medium by [`Simulator::poll_arrival`]. What is left there
    /// waits.
    fn handle_arrivals(&mut self, _net: &mut Simulator<M, E>, _medium: usize) {}
    /// Lets each node do what is due, in the order of the set.
    fn handle_timeouts(&mut self, _net: &mut Simulator<M, E>) {}
    /// When a node is due next; a time that has passed means now.
    fn next_timeout(&self, _now: Instant) -> Option<Instant> {
        None
    }
    /// When a node takes what arrives over a medium `at` this time: later, if it is suspended.
    fn takes_at(&self, _medium: usize, at: Instant) -> Instant {
        at
    }
    /// Whether the run is over.
    fn is_over(&self, _net: &Simulator<M, E>) -> bool {
        false
    }
}

/// The reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The nodes said so.
    Over,
    /// Nothing would ever happen again.
    Idle,
    /// The next thing would happen after the deadline.
    Deadline,
    /// [`Bounds::steps`] were made.
    Steps,
    /// Time stands still: what is due stays due.
    Livelock,
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The time of the last step, at most.
    pub deadline: Duration,
    /// The number of steps.
    pub steps: u64,
}

/// The clock, the events, the media and the bounds of a run.
#[derive(Debug)]
pub struct Simulator<M, E> {
    now: Instant,
    events: BinaryHeap<Scheduled<E>>,
    scheduled: u64,
    media: Vec<M>,
    bounds: Bounds,
    steps: u64,
    /// Steps since the clock moved, and events.
    steps_at_once: u32,
    events_at_once: u32,
}

impl<M: Medium, E> Simulator<M, E> {
    /// A simulator at [`Instant::EPOCH`].
    pub fn new(media: impl IntoIterator<Item = M>, bounds: Bounds) -> Self {
        Self {
            now: Instant::EPOCH,
            events: BinaryHeap::new(),
            scheduled: 0,
            media: media.into_iter().collect(),
            bounds,
            steps: 0,
            steps_at_once: 0,
            events_at_once: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs `nodes` until they are over, or a bound.
    pub fn run(&mut self, nodes: &mut impl Nodes<M, E>) -> End {
        loop {
            self.steps += 1;
            self.steps_at_once += 1;
            nodes.handle_events(self);
            for medium in 0..self.media.len() {
                nodes.handle_arrivals(self, medium);
            }
            nodes.handle_timeouts(self);
            if nodes.is_over(self) {
                return End::Over;
            }
            if let Some(end) = self.advance(nodes) {
                return end;
            }
        }
    }

    /// Jumps to the time at which anything is due next, within the bounds.
    fn advance(&mut self, nodes: &impl Nodes<M, E>) -> Option<End> {
        let event = self.events.peek().map(|event| event.at);
        let arrivals = self.media.iter().enumerate().map(|(medium, it)| {
            let at = it.next()?;
            Some(nodes.takes_at(medium, at.max(self.now)))
        });
        let next = earliest(arrivals.chain([event, nodes.next_timeout(self.now)]));
        let next = next.unwrap_or(Instant::NEVER);
        if next == Instant::NEVER {
            return Some(End::Idle);
        }
        if next > Instant::EPOCH + self.bounds.deadline {
            return Some(End::Deadline);
        }
        if self.steps >= self.bounds.steps {
            return Some(End::Steps);
        }
        if self.steps_at_once > MAX_STEPS_AT_ONCE || self.events_at_once > MAX_EVENTS_AT_ONCE {
            return Some(End::Livelock);
        }
        if next > self.now {
            (self.now, self.steps_at_once, self.events_at_once) = (next, 0, 0);
        }
        None
    }

    /// Lets `event` happen `at` this time.
    pub fn schedule(&mut self, at: Instant, event: E) {
        self.scheduled += 1;
        self.events.push(Scheduled { at, number: self.scheduled, event });
    }

    /// The next event that is due.
    pub fn poll_event(&mut self) -> Option<E> {
        let due = self.events.peek().is_some_and(|first| first.at <= self.now);
        if !due || self.events_at_once > MAX_EVENTS_AT_ONCE {
            return None;
        }
        self.events_at_once += 1;
        self.events.pop().map(|first| first.event)
    }

    /// The next arrival over a medium.
    pub fn poll_arrival(&mut self, medium: usize) -> Option<M::Arrival> {
        self.media.get_mut(medium)?.pop(self.now)
    }

    /// The events that are scheduled, in no order.
    pub fn events(&self) -> impl Iterator<Item = &E> {
        self.events.iter().map(|scheduled| &scheduled.event)
    }

    /// The media.
    pub fn media(&self) -> &[M] {
        &self.media
    }

    /// A medium, to send into it.
    pub fn medium(&mut self, medium: usize) -> &mut M {
        &mut self.media[medium]
    }
}

/// An event at its time.
#[derive(Debug)]
struct Scheduled<E> {
    at: Instant,
    /// Events of one time happen in the order in which they were scheduled.
    number: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    /// Backwards: the heap gives out the greatest, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium that takes no time.
    #[derive(Default)]
    struct Tube(Vec<&'static str>);

    impl Medium for Tube {
        type Arrival = &'static str;

        fn next(&self) -> Option<Instant> {
            (!self.0.is_empty()).then_some(Instant::EPOCH)
        }

        fn pop(&mut self, _: Instant) -> Option<&'static str> {
            self.0.pop()
        }
    }

    /// One node, and what was done.
    #[derive(Default)]
    struct Log {
        done: Vec<String>,
        timer: Option<Instant>,
        /// It answers to what arrives over the second medium.
        answers: bool,
        /// It never sets its timer forward.
        stuck: bool,
    }

    impl Log {
        fn note(&mut self, net: &Simulator<Tube, &'static str>, what: &str) {
            self.done.push(format!("{} {what}", net.now().as_nanos()));
        }
    }

    impl Nodes<Tube, &'static str> for Log {
        fn handle_events(&mut self, net: &mut Simulator<Tube, &'static str>) {
            while let Some(event) = net.poll_event() {
                self.note(net, event);
            }
        }

        fn handle_arrivals(&mut self, net: &mut Simulator<Tube, &'static str>, medium: usize) {
            while let Some(arrival) = net.poll_arrival(medium) {
                self.note(net, arrival);
                if medium == 1 && self.answers {
                    net.medium(0).0.push("answer");
                }
            }
        }

        fn handle_timeouts(&mut self, net: &mut Simulator<Tube, &'static str>) {
            if self.timer.is_some_and(|at| at <= net.now()) && !self.stuck {
                self.timer = None;
                self.note(net, "timer");
            }
        }

        fn next_timeout(&self, _: Instant) -> Option<Instant> {
            self.timer
        }
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn simulator() -> Simulator<Tube, &'static str> {
        let bounds = Bounds { deadline: Duration::from_nanos(100), steps: u64::MAX };
        Simulator::new([Tube::default(), Tube::default()], bounds)
    }

    #[test]
    fn what_is_due_at_one_time_has_an_order() {
        let mut net = simulator();
        for (time, event) in [(7, "late"), (5, "first"), (5, "second")] {
            net.schedule(at(time), event);
        }
        net.medium(1).0.push("asks");
        let mut log = Log { timer: Some(at(5)), answers: true, ..Log::default() };
        assert_eq!(net.run(&mut log), End::Idle);
        let expected = ["0 asks", "0 answer", "5 first", "5 second", "5 timer", "7 late"];
        assert_eq!(log.done, expected);
    }

    #[test]
    fn no_run_is_endless() {
        let mut net = simulator();
        net.schedule(at(100), "in time");
        net.schedule(at(101), "too late");
        let mut log = Log::default();
        assert_eq!(net.run(&mut log), End::Deadline);
        assert_eq!(log.done, ["100 in time"]);
        let mut stuck = Log { timer: Some(at(3)), stuck: true, ..Log::default() };
        assert_eq!(simulator().run(&mut stuck), End::Livelock);
        let bounds = Bounds { deadline: Duration::MAX, steps: 10 };
        assert_eq!(Simulator::new([], bounds).run(&mut stuck), End::Steps);
    }
}
