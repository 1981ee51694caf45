//! The events for the client. [`Event::Closed`] is the last.

use std::collections::VecDeque;

use crate::api::Event;

/// The events that the client has not taken.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    queue: VecDeque<Event>,
    closed: bool,
}

impl EventQueue {
    /// Whether [`Event::Closed`] was queued.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn push(&mut self, event: Event) {
        self.closed |= matches!(event, Event::Closed(_));
        self.queue.push_back(event);
    }

    /// Takes over the events of a connection.
    pub(super) fn append(&mut self, events: &mut VecDeque<Event>) {
        self.queue.append(events);
    }

    /// Queues an event that hands a buffer back, before [`Event::Closed`].
    pub(super) fn hand_back(&mut self, event: Event) {
        let end = self.queue.iter().rposition(|event| matches!(event, Event::Closed(_)));
        self.queue.insert(end.unwrap_or(self.queue.len()), event);
    }

    /// Whether a full buffer is still with the client.
    pub(super) fn has_filled(&self) -> bool {
        self.queue.iter().any(|event| matches!(event, Event::Filled(..)))
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
