//! Sleeping until a socket is ready, another thread calls, or a deadline passes.
//!
//! One `ppoll` a wait: nanosecond timeouts, two descriptors, nothing to register. The kernel's
//! habit of rounding a thread's timers up by 50 us is switched off while the loop runs, because a
//! burst interval may be shorter than that.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Wakes the loop from another thread.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Bell>,
    /// Where it is written down who rang, and as what.
    mark: Option<(Arc<Marks>, u64)>,
}

/// Who rang since it was asked last: where many share a loop, only those are looked at.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Vec<u64>>);

impl Marks {
    /// Their numbers, some perhaps more than once.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, number: u64) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.last() != Some(&number) {
            marks.push(number);
        }
    }
}

#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    rope: UnixStream,
}

impl Waker {
    /// Ends the current wait, or the next one if there is none. Whatever was done before this call
    /// is seen by the loop after it woke.
    pub fn wake(&self) {
        if let Some((marks, number)) = &self.mark {
            marks.add(*number);
        }
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            // A full pipe would mean that it was rung before, which is as good.
            let _ = (&self.bell.rope).write(&[1]);
        }
    }

    /// One that wakes the same loop, and writes down that it was this number.
    pub fn marking(&self, marks: &Arc<Marks>, number: u64) -> Self {
        Self { bell: Arc::clone(&self.bell), mark: Some((Arc::clone(marks), number)) }
    }
}

/// What a wait ended with; all false for the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Datagrams are there.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The socket has an error to tell.
    pub error: bool,
}

/// The place where the loop sleeps.
#[derive(Debug)]
pub struct Poller {
    bell: UnixStream,
    waker: Waker,
}

impl Poller {
    /// A poller and its waker.
    pub fn new() -> io::Result<Self> {
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rope.set_nonblocking(true)?;
        let inner = Arc::new(Bell { rung: AtomicBool::new(false), rope });
        let waker = Waker { bell: inner, mark: None };
        Ok(Self { bell, waker })
    }

    /// A handle that wakes this poller.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Sleeps until `socket` is readable (or writable, if `writable` asks for that), a waker is
    /// used, or `timeout` has passed. May wake early for no reason.
    pub fn wait(
        &mut self,
        socket: BorrowedFd<'_>,
        writable: bool,
        timeout: Duration,
    ) -> io::Result<Ready> {
        let interest = if writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        self.sleep(socket, interest, timeout)
    }

    /// The same for a socket that somebody else reads: who that is uses the waker.
    pub(crate) fn wait_for_word(
        &mut self,
        socket: BorrowedFd<'_>,
        writable: bool,
        timeout: Duration,
    ) -> io::Result<Ready> {
        // A descriptor of which nothing is wanted would still tell of errors, again and again.
        let interest = if writable { PollFlags::OUT } else { PollFlags::empty() };
        self.sleep(socket, interest, timeout)
    }

    fn sleep(
        &mut self,
        socket: BorrowedFd<'_>,
        interest: PollFlags,
        timeout: Duration,
    ) -> io::Result<Ready> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(socket, interest),
        ];
        let count = if interest.is_empty() { 1 } else { 2 };
        let fds = fds.get_mut(..count).unwrap_or_default();
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(fds, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut told = fds.iter().map(PollFd::revents);
        let rung = told.next().unwrap_or(PollFlags::empty());
        let flags = told.next().unwrap_or(PollFlags::empty());
        if !rung.is_empty() {
            self.silence();
        }
        Ok(Ready {
            readable: flags.contains(PollFlags::IN),
            writable: flags.contains(PollFlags::OUT),
            error: flags.contains(PollFlags::ERR),
        })
    }

    /// Empties the pipe first and lowers the flag then: who rings in between is not written down,
    /// but what it did is seen, since the caller looks only after this.
    fn silence(&mut self) {
        let mut bytes = [0; 16];
        while self.bell.read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        self.waker.bell.rung.store(false, Ordering::Release);
    }
}

/// Precise timers for the calling thread, until dropped.
#[derive(Debug)]
pub struct PreciseTimers(Option<u64>);

impl PreciseTimers {
    /// Switches the rounding of timers off, where the system has such a thing.
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        {
            let before = rustix::thread::current_timer_slack().ok();
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            Self(before)
        }
        #[cfg(not(target_os = "linux"))]
        Self(None)
    }
}

impl Default for PreciseTimers {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PreciseTimers {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(before) = self.0 {
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_waker_ends_the_wait_once() {
        let mut poller = Poller::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let waker = poller.waker();
        let ringer = thread::spawn(move || (0..1000).for_each(|_| waker.wake()));
        let long = Duration::from_secs(60);
        assert_eq!(poller.wait(socket.as_fd(), false, long).unwrap(), Ready::default());
        ringer.join().unwrap();
        // Rung again after the first was heard, or not: either way it falls silent.
        let start = Instant::now();
        while poller.waker.bell.rung.load(Ordering::Acquire) {
            poller.wait(socket.as_fd(), false, long).unwrap();
        }
        poller.wait(socket.as_fd(), false, Duration::from_millis(1)).unwrap();
        assert!(start.elapsed() < long);
    }

    #[test]
    fn a_datagram_ends_the_wait() {
        let mut poller = Poller::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let ready = poller.wait(socket.as_fd(), true, Duration::from_secs(60)).unwrap();
        assert_eq!(ready, Ready { readable: true, writable: true, error: false });
    }
}
