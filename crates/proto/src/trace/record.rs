//! The queue of trace events until they are polled.

use std::collections::VecDeque;

use super::TraceEvent;
use crate::time::Instant;

/// Most trace events in the queue.
const MAX_TRACE: usize = 65_536;

/// The recorder of one machine. Switched off it costs one comparison per event, and no memory.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    on: bool,
    events: Vec<(Instant, TraceEvent)>,
}

impl Recorder {
    /// From now on events are kept, if `on`.
    pub(crate) fn switch(&mut self, on: bool) {
        self.on = on;
    }

    /// Whether anything is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Keeps an event, which is made only if it is.
    #[inline]
    pub(crate) fn note(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent) {
        if self.on {
            self.events.push((now, event()));
        }
    }
}

/// The events of an endpoint, bounded: events beyond that are counted and dropped.
#[derive(Debug, Default)]
pub(crate) struct TraceQueue {
    on: bool,
    events: VecDeque<(Instant, TraceEvent)>,
    /// Not kept since the newest that was, and when the last of them happened.
    lost: u64,
    lost_at: Instant,
}

impl TraceQueue {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn push(&mut self, now: Instant, event: TraceEvent) {
        if !self.on {
            return;
        }
        let needed = if self.lost > 0 { 2 } else { 1 };
        if self.events.len() + needed > MAX_TRACE {
            self.lost += 1;
            self.lost_at = now;
            return;
        }
        let loss = self.take_loss();
        self.events.extend(loss);
        self.events.push_back((now, event));
    }

    /// Takes over what a machine has noted.
    pub(crate) fn take_over(&mut self, recorder: &mut Recorder) {
        for (at, event) in recorder.events.drain(..) {
            self.push(at, event);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, TraceEvent)> {
        self.events.pop_front().or_else(|| self.take_loss())
    }

    fn take_loss(&mut self) -> Option<(Instant, TraceEvent)> {
        let events = std::mem::take(&mut self.lost);
        (events > 0).then_some((self.lost_at, TraceEvent::Lost { events }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_are_counted_where_they_are_missing() {
        let mut queue = TraceQueue::new(true);
        let at = |n| Instant::from_nanos(n);
        for n in 0..MAX_TRACE as u64 + 7 {
            queue.push(at(n), TraceEvent::Silent);
        }
        assert_eq!(queue.events.len(), MAX_TRACE);
        for n in 0..3 {
            assert_eq!(queue.pop(), Some((at(n), TraceEvent::Silent)));
        }
        queue.push(at(90_000), TraceEvent::Answering);
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest.len(), MAX_TRACE - 3 + 2);
        let last = at(MAX_TRACE as u64 + 6);
        let tail = [(last, TraceEvent::Lost { events: 7 }), (at(90_000), TraceEvent::Answering)];
        assert_eq!(rest[rest.len() - 2..], tail);
    }

    #[test]
    fn dropped_events_at_the_end_are_counted_when_all_were_polled() {
        let mut queue = TraceQueue::new(true);
        for n in 0..MAX_TRACE as u64 + 2 {
            queue.push(Instant::from_nanos(n), TraceEvent::Silent);
        }
        let last = std::iter::from_fn(|| queue.pop()).last().map(|(_, event)| event);
        assert_eq!((last, queue.pop()), (Some(TraceEvent::Lost { events: 2 }), None));
    }

    #[test]
    fn switched_off_no_event_is_made_or_kept() {
        let mut recorder = Recorder::default();
        recorder.note(Instant::EPOCH, || panic!("made"));
        let mut queue = TraceQueue::new(false);
        queue.push(Instant::EPOCH, TraceEvent::Silent);
        assert_eq!((queue.pop(), recorder.events.capacity()), (None, 0));
    }
}
