//! Waits until a socket is ready, another thread wakes it, or a deadline passes.
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
    pipe: Arc<WakePipe>,
    /// The set to which a wake adds a number.
    ready: Option<(Arc<ReadySet>, u64)>,
}

/// The numbers of the wakers that woke the loop since the set was last read. Where many connections
/// share a loop, only those are looked at.
#[derive(Debug, Default)]
pub struct ReadySet(Mutex<Vec<u64>>);

impl ReadySet {
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
struct WakePipe {
    pending: AtomicBool,
    sender: UnixStream,
}

impl Waker {
    /// Ends the current wait, or the next one if there is none. Whatever was done before this call
    /// is seen by the loop after it woke.
    pub fn wake(&self) {
        if let Some((marks, number)) = &self.ready {
            marks.add(*number);
        }
        if !self.pipe.pending.swap(true, Ordering::AcqRel) {
            // A full pipe would mean that it was rung before, which is as good.
            let _ = (&self.pipe.sender).write(&[1]);
        }
    }

    /// One that wakes the same loop, and writes down that it was this number.
    pub fn marking(&self, marks: &Arc<ReadySet>, number: u64) -> Self {
        Self { pipe: Arc::clone(&self.pipe), ready: Some((Arc::clone(marks), number)) }
    }
}

/// The result of a wait; all false at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Datagrams are there.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The socket has an error.
    pub error: bool,
}

/// The place where the loop sleeps.
#[derive(Debug)]
pub struct Poller {
    pipe: UnixStream,
    waker: Waker,
}

impl Poller {
    /// A poller and its waker.
    pub fn new() -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let inner = Arc::new(WakePipe { pending: AtomicBool::new(false), sender });
        let waker = Waker { pipe: inner, ready: None };
        Ok(Self { pipe, waker })
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

    /// The same for a socket that another thread reads: that thread uses the waker.
    pub(crate) fn wait_for_word(
        &mut self,
        socket: BorrowedFd<'_>,
        writable: bool,
        timeout: Duration,
    ) -> io::Result<Ready> {
        // A descriptor without an interest would still report errors, again and again.
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
            PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN),
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
        let mut flags = fds.iter().map(PollFd::revents);
        let pending = flags.next().unwrap_or(PollFlags::empty());
        let flags = flags.next().unwrap_or(PollFlags::empty());
        if !pending.is_empty() {
            self.silence();
        }
        Ok(Ready {
            readable: flags.contains(PollFlags::IN),
            writable: flags.contains(PollFlags::OUT),
            error: flags.contains(PollFlags::ERR),
        })
    }

    /// Empties the pipe first and clears the flag then. A wake in between is not recorded, but its
    /// work is seen, since the caller looks only after this.
    fn silence(&mut self) {
        let mut bytes = [0; 16];
        while self.pipe.read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        self.waker.pipe.pending.store(false, Ordering::Release);
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
        // Woken again, before or after the first wake was read: either way one wait ends.
        let start = Instant::now();
        while poller.waker.pipe.pending.load(Ordering::Acquire) {
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
