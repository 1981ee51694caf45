//! Waiting for sockets, to the nanosecond where the system can.
//!
//! Linux wakes a thread up to 50 µs late unless it asks otherwise (timer slack). That is left so on
//! purpose: it gathers datagrams that are due close together into one send, and a path never gets
//! slower by it, since the link model keeps exact time by itself.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use by_epoll::Waiter;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use by_poll::Waiter;

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Waits until `socket` takes another datagram; whether it does.
pub(crate) fn writable(socket: impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
    matches!(rustix::event::poll(&mut fds, Some(&timespec(timeout))), Ok(1..))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// A signal that cuts a wait short is an early wake-up, nothing more.
fn forgive<T: Default>(result: rustix::io::Result<T>) -> io::Result<T> {
    match result {
        Err(Errno::INTR) => Ok(T::default()),
        other => Ok(other?),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod by_epoll {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::epoll;

    /// Readable sockets returned at once; others come next time.
    const EVENTS: usize = 64;

    /// Sockets to wait for, each under a key of its own.
    pub(crate) struct Waiter(OwnedFd);

    impl Waiter {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Waits for `socket` too, until it is closed or removed.
        pub(crate) fn add(&mut self, socket: impl AsFd, key: u64) -> io::Result<()> {
            let data = epoll::EventData::new_u64(key);
            Ok(epoll::add(&self.0, socket, data, epoll::EventFlags::IN)?)
        }

        pub(crate) fn remove(&mut self, socket: impl AsFd, _key: u64) {
            // Closing the socket does the same: a failure is no harm.
            let _ = epoll::delete(&self.0, socket);
        }

        /// Waits until some are readable, and puts their keys into `ready`, or until the time is
        /// over.
        pub(crate) fn wait(&mut self, timeout: Duration, ready: &mut Vec<u64>) -> io::Result<()> {
            ready.clear();
            let timeout = super::timespec(timeout);
            let mut room = [const { MaybeUninit::uninit() }; EVENTS];
            let waited = epoll::wait(&self.0, &mut room, Some(&timeout));
            let (events, _) = super::forgive(waited)?;
            ready.extend(events.iter().map(|event| event.data.u64()));
            Ok(())
        }
    }
}

/// For systems without epoll. Slower with a thousand clients, as good with a few.
#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
mod by_poll {
    use std::collections::BTreeMap;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags};

    /// Sockets to wait for, each under a key of its own.
    pub(crate) struct Waiter(BTreeMap<u64, OwnedFd>);

    impl Waiter {
        #[expect(clippy::unnecessary_wraps, reason = "its twin above can fail")]
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(BTreeMap::new()))
        }

        /// Waits for `socket` too, until it is removed.
        pub(crate) fn add(&mut self, socket: impl AsFd, key: u64) -> io::Result<()> {
            self.0.insert(key, socket.as_fd().try_clone_to_owned()?);
            Ok(())
        }

        pub(crate) fn remove(&mut self, _socket: impl AsFd, key: u64) {
            self.0.remove(&key);
        }

        /// Waits until some are readable, and puts their keys into `ready`, or until the time is
        /// over.
        pub(crate) fn wait(&mut self, timeout: Duration, ready: &mut Vec<u64>) -> io::Result<()> {
            ready.clear();
            let fds = self.0.values().map(|fd| PollFd::new(fd, PollFlags::IN));
            let mut fds: Vec<_> = fds.collect();
            let timeout = super::timespec(timeout);
            super::forgive(rustix::event::poll(&mut fds, Some(&timeout)))?;
            let keys = self.0.keys().zip(&fds);
            ready.extend(keys.filter(|(_, fd)| !fd.revents().is_empty()).map(|(key, _)| *key));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn both_ways_of_waiting_find_the_readable_socket() {
        let (a, b) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut epoll = Waiter::new().unwrap();
        let mut poll = by_poll::Waiter::new().unwrap();
        for (socket, key) in [(&a, 7), (&b, u64::MAX)] {
            epoll.add(socket, key).unwrap();
            poll.add(socket, key).unwrap();
        }
        let mut ready = vec![1, 2, 3];
        epoll.wait(Duration::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        poll.wait(Duration::from_micros(1), &mut ready).unwrap();
        assert!(ready.is_empty());
        a.send_to(b"x", b.local_addr().unwrap()).unwrap();
        for _ in 0..2 {
            epoll.wait(Duration::from_secs(5), &mut ready).unwrap();
            assert_eq!(ready, [u64::MAX]);
            poll.wait(Duration::from_secs(5), &mut ready).unwrap();
            assert_eq!(ready, [u64::MAX]);
        }
        epoll.remove(&b, u64::MAX);
        poll.remove(&b, u64::MAX);
        epoll.wait(Duration::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        poll.wait(Duration::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        assert!(writable(&a, Duration::ZERO));
    }
}
