//! Both threads with readers and writers in memory: order, restarts, errors.

use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Numbers its buffers; fails at one of them, ends with another.
struct Counter {
    epoch: u8,
    fails: u64,
    last: u64,
    done: bool,
}

impl Reader for Counter {
    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        if number.0 == self.fails {
            return Err(Error::Content("it fails here"));
        }
        buffer.space()[0] = self.epoch;
        buffer.space()[1] = number.0 as u8;
        buffer.set_len(2);
        self.done = number.0 == self.last;
        Ok(Fill { last: self.done, bytes: 2, kept: 0 })
    }
    fn end(&self) -> Option<End> {
        let end = End { buffers: self.last, bytes: 2 * self.last, digest: [0; 32] };
        self.done.then_some(end)
    }
    fn restart(&mut self, _: Layout, _: &Arc<HaveList>) -> Result<(), Error> {
        self.epoch += 1;
        Ok(())
    }
}

fn stock(buffers: usize) -> Vec<Buffer> {
    (0..buffers).map(|_| Buffer::new(2)).collect()
}

/// Polls until there is something, woken by the thread.
fn wait<T>(woken: &Receiver<()>, mut poll: impl FnMut() -> Result<Option<T>, Error>) -> T {
    loop {
        if let Some(found) = poll().expect("no error") {
            return found;
        }
        woken.recv_timeout(Duration::from_secs(20)).expect("woken");
    }
}

fn source(fails: u64, last: u64, buffers: usize) -> (SourceThread, Receiver<()>) {
    let (wake, woken) = channel();
    let reader = Counter { epoch: 0, fails, last, done: false };
    let waker = move || {
        let _ = wake.send(());
    };
    let thread = SourceThread::spawn(reader, Layout::plain(2), stock(buffers), buffers, waker);
    (thread.expect("a thread"), woken)
}

#[test]
fn buffers_come_in_order_when_they_are_wanted() {
    let (mut thread, woken) = source(0, 20, 3);
    for number in 1..=20 {
        assert!(thread.poll().expect("no error").is_none());
        thread.want(BufferNumber(number));
        let supply = wait(&woken, || thread.poll());
        assert_eq!(supply.number, BufferNumber(number));
        assert_eq!(supply.buffer.filled(), [0, number as u8]);
        assert_eq!(supply.end.is_some(), number == 20);
        thread.release(supply.buffer);
    }
    thread.want(BufferNumber(99));
    assert!(thread.poll().expect("no error").is_none());
    thread.restart(Layout::plain(2), Arc::default());
    thread.want(BufferNumber(20));
    for number in 1..=20 {
        let supply = wait(&woken, || thread.poll());
        assert_eq!(supply.buffer.filled(), [1, number as u8]);
        thread.release(supply.buffer);
    }
}

/// How many buffers the thread has read by now, if it has `least` at all.
fn read(woken: &Receiver<()>, least: usize) -> usize {
    for _ in 0..least {
        woken.recv_timeout(Duration::from_secs(20)).expect("so many");
    }
    let more = || woken.recv_timeout(Duration::from_millis(20)).ok();
    least + std::iter::from_fn(more).count()
}

#[test]
fn a_few_buffers_are_read_ahead_into_the_memory_used_last() {
    let (wake, woken) = channel();
    let reader = Counter { epoch: 0, fails: 0, last: 200, done: false };
    let stock = (2..66).map(Buffer::new).collect();
    let waker = move || {
        let _ = wake.send(());
    };
    let thread = SourceThread::spawn(reader, Layout::plain(2), stock, 64, waker);
    let mut thread = thread.expect("a thread");
    assert_eq!(read(&woken, 4), 4, "nothing is wanted");
    let mut used = std::collections::BTreeSet::new();
    for number in 1..=200 {
        thread.want(BufferNumber(number));
        let supply = wait(&woken, || thread.poll());
        used.insert(supply.buffer.capacity());
        thread.release(supply.buffer);
    }
    assert!(used.len() <= 6, "{used:?}");
}

/// Reads as often as it may.
struct Gated(Counter, Receiver<()>);

impl Reader for Gated {
    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        let commit = self.1.recv_timeout(Duration::from_secs(20));
        commit.map_err(|_| Error::Content("it is cancelled"))?;
        self.0.fill(number, buffer)
    }
    fn end(&self) -> Option<End> {
        self.0.end()
    }
    fn restart(&mut self, layout: Layout, had: &Arc<HaveList>) -> Result<(), Error> {
        self.0.restart(layout, had)
    }
}

#[test]
fn a_reader_that_was_waited_for_reads_further_ahead() {
    let at = |ms| netblt_proto::time::Instant::EPOCH + Duration::from_millis(ms);
    for (waited, further) in [(9, 4), (10, 8)] {
        let ((wake, woken), (allow, commit)) = (channel(), channel());
        let counter = Counter { epoch: 0, fails: 0, last: 200, done: false };
        let waker = move || {
            let _ = wake.send(());
        };
        let (gated, stock) = (Gated(counter, commit), stock(64));
        let thread = SourceThread::spawn(gated, Layout::plain(2), stock, 64, waker);
        let mut thread = thread.expect("a thread");
        assert_eq!(thread.watch(at(0)), None, "nothing is wanted");
        thread.want(BufferNumber(1));
        assert_eq!(thread.watch(at(0)), Some(true));
        assert_eq!(thread.watch(at(5)), None, "still");
        allow.send(()).expect("it waits");
        let supply = wait(&woken, || thread.poll());
        assert_eq!(thread.watch(at(waited)), Some(false));
        (0..100).for_each(|_| allow.send(()).expect("it waits"));
        assert_eq!(read(&woken, further), further);
        thread.release(supply.buffer);
    }
}

#[test]
fn restarts_lose_no_buffer_and_mix_no_data() {
    let (mut thread, woken) = source(0, 200, 4);
    let mut held = Vec::new();
    for round in 0..50u8 {
        thread.want(BufferNumber(3));
        let supply = wait(&woken, || thread.poll());
        assert_eq!(supply.buffer.filled(), [round, 1]);
        held.push(supply.buffer);
        if round % 3 == 0 {
            held.drain(..).for_each(|buffer| thread.release(buffer));
        }
        thread.restart(Layout::plain(2), Arc::default());
        held.drain(..).for_each(|buffer| thread.release(buffer));
    }
}

#[test]
fn an_error_of_the_reader_comes_once() {
    let (mut thread, woken) = source(3, 9, 2);
    thread.want(BufferNumber(9));
    let error = loop {
        match thread.poll() {
            Ok(None) => woken.recv_timeout(Duration::from_secs(20)).expect("woken"),
            Ok(Some(supply)) => thread.release(supply.buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Content("it fails here")));
    assert!(thread.poll().expect("said").is_none());
    thread.release(Buffer::new(2));
    thread.restart(Layout::plain(2), Arc::default());
}

/// Sums what it gets, and reports its end.
struct Adder {
    sum: u64,
    fails: u64,
    gone: std::sync::mpsc::Sender<()>,
}

impl Writer for Adder {
    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        if number.0 == self.fails {
            return Err(Error::Content("it fails here"));
        }
        self.sum += number.0;
        free.push(buffer);
        Ok(10)
    }
    fn finish(&mut self, _: Option<&End>, _: &CommitLatch) -> Result<StoreOutcome, Error> {
        Ok(StoreOutcome { bytes: self.sum, ..StoreOutcome::default() })
    }
    fn restart(&mut self, _: Layout, _: &mut Vec<Buffer>) -> Result<(), Error> {
        self.sum = 0;
        Ok(())
    }
}

impl Drop for Adder {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        let _ = self.gone.send(());
    }
}

fn sink(fails: u64) -> (SinkThread, Receiver<()>, Receiver<()>) {
    let ((wake, woken), (gone, is_gone)) = (channel(), channel());
    let waker = move || {
        let _ = wake.send(());
    };
    let writer = Adder { sum: 0, fails, gone };
    let thread = SinkThread::spawn(writer, Layout::plain(2), 3, waker).expect("a thread");
    (thread, woken, is_gone)
}

fn until_finished(thread: &mut SinkThread, woken: &Receiver<()>) -> (usize, StoreOutcome) {
    let mut empties = 0;
    loop {
        match wait(woken, || thread.poll()) {
            Stored::Empty(_) => empties += 1,
            Stored::Have(had) => assert!(had.is_empty()),
            Stored::Finished(outcome) => return (empties, *outcome),
        }
    }
}

#[test]
fn stored_buffers_come_back_and_then_the_outcome() {
    let (mut thread, woken, is_gone) = sink(0);
    stock(3).into_iter().zip([3, 1, 2]).for_each(|(b, n)| thread.store(BufferNumber(n), b));
    assert!(thread.backlog() <= 3);
    thread.finish(None);
    let (empties, outcome) = until_finished(&mut thread, &woken);
    assert_eq!((empties, outcome.bytes, thread.bytes(), thread.backlog()), (3, 6, 30, 0));
    drop(thread);
    is_gone.try_recv().expect("the writer was waited for");
}

#[test]
fn a_restart_voids_buffers_in_flight() {
    for _ in 0..50 {
        let (mut thread, woken, _gone) = sink(0);
        stock(2).into_iter().zip([7, 8]).for_each(|(b, n)| thread.store(BufferNumber(n), b));
        for _ in 0..9 {
            thread.finish(None);
            thread.restart(Layout::plain(2));
        }
        thread.store(BufferNumber(1), Buffer::new(2));
        thread.finish(None);
        let (empties, outcome) = until_finished(&mut thread, &woken);
        assert_eq!((empties, outcome.bytes, thread.bytes()), (3, 1, 10));
    }
}

#[test]
fn an_error_of_the_writer_comes_after_it_has_cleaned_up() {
    let (mut thread, woken, is_gone) = sink(1);
    thread.store(BufferNumber(1), Buffer::new(2));
    let error = loop {
        match thread.poll() {
            Err(error) => break error,
            Ok(_) => woken.recv_timeout(Duration::from_secs(20)).expect("woken"),
        }
    };
    assert!(matches!(error, Error::Content("it fails here")));
    is_gone.try_recv().expect("cleaned up");
    thread.store(BufferNumber(2), Buffer::new(2));
    thread.finish(None);
    assert!(thread.poll().expect("said").is_none());
}
