//! A transfer on a thread of its own, for programs that do other things meanwhile. A blocking call
//! or a future, on any runtime, returns its events.
//!
//! A program that fetches no events does not hold the transfer up. It loses only events that are
//! out of date.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::error::{Error, Warning};
use crate::observer::Observer;
use crate::progress::{Progress, Summary};
use crate::ticket::Ticket;

/// Most events that wait to be fetched: a peer that asks for the list again and again makes one
/// each time.
const MAX_EVENTS: usize = 1024;

/// An event of a transfer: a call of [`Observer`] as a value. More kinds may come.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Listening: give this to the other side.
    Listening(Ticket),
    /// Listening without a ticket, at this address.
    ListeningAt(SocketAddr),
    /// The connection is open, to this peer.
    Connected(String),
    /// Its progress, about ten times a second. Of several that were not fetched, the last.
    Progress(Box<Progress>),
    /// Nothing has arrived for three seconds (true), or something arrives again (false).
    Silent(bool),
    /// The peer was started again, and the transfer starts over.
    Restarted,
    /// A receiver fetched the list, and no files; this sender listens again.
    ListFetched,
    /// A receiver refused the files, for this reason; this sender listens again.
    Refused(String),
    /// Something the user should know that ends nothing.
    Warning(Warning),
    /// So many events were lost, because 1,024 waited to be fetched.
    Missed(u64),
}

/// A transfer that runs on a thread of its own. Made by [`Transfer::send`] and
/// [`Transfer::receive`].
///
/// It is a future of its summary, for any runtime. To drop it is to cancel it: the other end is
/// notified, and unfinished files are cleaned up, within two seconds, in the background.
///
/// ```
/// use netblt::{Cancel, Destination, Event, Options, Rendezvous, Source, Transfer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = Options::default();
/// options.network.bind = Some([127, 0, 0, 1].into());
/// let source = Source::reader("greeting", &b"hello"[..]);
/// let mut sending =
///     Transfer::send(source, Rendezvous::Listen, options.clone(), Cancel::default())?;
/// let Some(Event::Listening(ticket)) = sending.next_event() else { panic!("it listens") };
/// let destination = Destination::writer(std::io::sink());
/// let there = Rendezvous::Connect(ticket);
/// let receiving = Transfer::receive(destination, there, options, Cancel::default())?;
/// assert_eq!(receiving.join()?.bytes, 5);
/// while let Some(event) = sending.next_event() {
///     println!("{event:?}");
/// }
/// assert!(sending.join()?.verified);
/// # Ok(())
/// # }
/// ```
#[must_use = "a transfer that is dropped is cancelled"]
pub struct Transfer {
    shared: Arc<TransferShared>,
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TransferShared {
    state: Mutex<TransferState>,
    news: Condvar,
}

#[derive(Default)]
struct TransferState {
    events: VecDeque<Event>,
    missed: u64,
    outcome: Option<Result<Summary, Error>>,
    over: bool,
    waker: Option<Waker>,
}

impl Transfer {
    /// Runs `job` on a thread of its own.
    pub(crate) fn spawn(
        cancel: Cancel,
        job: impl FnOnce(&mut dyn Observer, &Cancel) -> Result<Summary, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let shared = Arc::new(TransferShared::default());
        let mut observer = QueueObserver(Arc::clone(&shared));
        let theirs = cancel.clone();
        let body = move || {
            let outcome = job(&mut observer, &theirs);
            observer.0.lock().outcome = Some(outcome);
        };
        let thread = Builder::new().name("netblt".to_owned()).spawn(body);
        let thread =
            thread.map_err(|source| Error::Thread { purpose: "for a transfer", source })?;
        Ok(Self { shared, cancel, thread: Some(thread) })
    }

    /// The handle that stops it, which was given at its start.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Whether it has ended. Events may still wait to be fetched.
    pub fn is_over(&self) -> bool {
        self.shared.lock().over
    }

    /// Waits for the next event; `None` when it has ended and all were fetched.
    pub fn next_event(&mut self) -> Option<Event> {
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = state.next() {
                return Some(event);
            }
            if state.over {
                return None;
            }
            state = self.shared.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, waited for no longer than `timeout`; `None` then, too.
    pub fn next_event_within(&mut self, timeout: Duration) -> Option<Event> {
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = state.next() {
                return Some(event);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if state.over || left.is_zero() {
                return None;
            }
            let waited = self.shared.news.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The same for a runtime that polls: `Ready(None)` when it has ended and all were fetched.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.shared.lock();
        match state.next() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.over => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The same as a future.
    pub async fn event(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_event(context)).await
    }

    /// Waits until it has ended, and returns its result. Events that were not fetched are lost.
    pub fn join(mut self) -> Result<Summary, Error> {
        self.end()
    }

    /// Waits for the thread, which has ended or is about to, and takes its result.
    fn end(&mut self) -> Result<Summary, Error> {
        let ended = self.thread.take().map(JoinHandle::join);
        let outcome = self.shared.lock().outcome.take();
        outcome.unwrap_or(Err(match ended {
            Some(Err(_)) => Error::Fault("the thread of a transfer panicked"),
            _ => Error::Fault("a transfer was asked twice how it went"),
        }))
    }
}

impl Future for Transfer {
    type Output = Result<Summary, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = self.shared.lock();
            if !state.over {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(self.end())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.cancel.cancel();
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("over", &self.is_over()).finish_non_exhaustive()
    }
}

impl TransferShared {
    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut TransferState)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.news.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl TransferState {
    fn add(&mut self, event: Event) {
        match (self.events.back_mut(), event) {
            (Some(Event::Progress(last)), Event::Progress(progress)) => *last = progress,
            (_, event) => self.events.push_back(event),
        }
        // A listening end cannot do without the first event: the ticket.
        if self.events.len() > MAX_EVENTS {
            self.events.remove(1);
            self.missed += 1;
        }
    }

    fn next(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        event.or_else(|| (self.missed > 0).then(|| Event::Missed(std::mem::take(&mut self.missed))))
    }
}

/// The observer on the transfer's thread. When that ends, however it does, so does the transfer.
struct QueueObserver(Arc<TransferShared>);

impl QueueObserver {
    fn push(&self, event: Event) {
        self.0.update(|state| state.add(event));
    }
}

impl Drop for QueueObserver {
    fn drop(&mut self) {
        self.0.update(|state| state.over = true);
    }
}

impl Observer for QueueObserver {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        self.push(Event::Listening(ticket.clone()));
        Ok(())
    }
    fn listening_at(&mut self, address: SocketAddr) {
        self.push(Event::ListeningAt(address));
    }
    fn connected(&mut self, peer: &str) {
        self.push(Event::Connected(peer.to_owned()));
    }
    fn progress(&mut self, progress: &Progress) {
        self.push(Event::Progress(Box::new(progress.clone())));
    }
    fn silent(&mut self, silent: bool) {
        self.push(Event::Silent(silent));
    }
    fn restarted(&mut self) {
        self.push(Event::Restarted);
    }
    fn list_fetched(&mut self) {
        self.push(Event::ListFetched);
    }
    fn refused(&mut self, why: &str) {
        self.push(Event::Refused(why.to_owned()));
    }
    fn warn(&mut self, warning: &Warning) {
        self.push(Event::Warning(warning.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(transfer: &mut Transfer) -> Vec<String> {
        std::iter::from_fn(|| transfer.next_event()).map(|event| format!("{event:?}")).collect()
    }

    #[test]
    fn events_that_are_not_fetched_hold_nothing_up() {
        let job = |observer: &mut dyn Observer, _: &Cancel| {
            observer.connected("first");
            for bytes in 0..5000 {
                observer.progress(&Progress { bytes, ..Progress::default() });
            }
            (0..5000).for_each(|i| observer.refused(&i.to_string()));
            Ok(Summary { bytes: 7, ..Summary::default() })
        };
        let mut transfer = Transfer::spawn(Cancel::default(), job).expect("started");
        while !transfer.is_over() {
            std::thread::yield_now();
        }
        let events = events(&mut transfer);
        assert_eq!(events.len(), MAX_EVENTS + 1);
        assert_eq!(events[0], "Connected(\"first\")");
        assert_eq!(events[MAX_EVENTS - 1], "Refused(\"4999\")");
        // All but the last kept event of each kind.
        assert_eq!(events[MAX_EVENTS], format!("Missed({})", 2 + 5000 - MAX_EVENTS));
        assert_eq!(transfer.join().expect("well").bytes, 7);
    }

    #[test]
    fn a_panic_is_an_error_and_no_wait_for_ever() {
        let job = |_: &mut dyn Observer, _: &Cancel| panic!("of a test");
        let mut transfer = Transfer::spawn(Cancel::default(), job).expect("started");
        assert!(transfer.next_event().is_none());
        assert!(matches!(transfer.join(), Err(Error::Fault(_))));
    }

    #[test]
    fn dropped_is_cancelled() {
        let cancel = Cancel::default();
        let (stopped, wait) = std::sync::mpsc::channel();
        let job = move |_: &mut dyn Observer, cancel: &Cancel| {
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            stopped.send(()).expect("the test waits");
            Err(Error::Interrupted)
        };
        drop(Transfer::spawn(cancel.clone(), job).expect("started"));
        assert!(cancel.is_cancelled());
        wait.recv_timeout(Duration::from_secs(60)).expect("it was stopped");
    }
}
