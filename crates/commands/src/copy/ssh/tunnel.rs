//! The fallback through ssh, where UDP does not pass: a pair of sockets. The transfer has one end
//! as if it were its UDP socket, and this module the other. Nothing of it goes over a network.
//!
//! The transfer is as encrypted and verified as anywhere, but it finds no rate: TCP does that, and
//! data that wait for TCP look like a queue of the path. So the sender sends all that it has
//! permission for, which is no more than can wait here without loss.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use netblt::{Carried, Family, FixedRate, Options, ParallelStreams, Policy, Rate};
use socket2::SockRef;

use crate::copy::ssh::framing::{FrameWriter, HEAD, MAX_DATAGRAM, datagram_head};

/// Bytes that wait in the socket at most, if the system allows.
const SOCKET_BYTES: usize = 4 << 20;
/// The most that a sender may send at once, in buffers so small that each shows progress on a slow
/// line: 4 MiB, twice what ssh itself lets be in flight.
const BUFFER_BYTES: u32 = 256 << 10;
const BUFFERS: u32 = 16;
/// The most bytes that wait for ssh: all of that, with control packets and repetitions.
const QUEUE_BYTES: usize = 4 * (BUFFERS * BUFFER_BYTES) as usize;
/// How fast that goes into the queue, headers included, unless the user wants it slower.
const BYTES_A_SECOND: u64 = 250_000_000;
/// Bytes of frames that go to ssh at once.
const BATCH_BYTES: usize = 256 << 10;

/// How long the transfer may take to read received data before they are lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of a transfer through ssh.
fn settle(options: &mut Options, carried: Carried) {
    // The addresses of both ends are stand-ins, of this version.
    (options.network.bind, options.settings.family, options.network.port) = (None, Family::V4, 0);
    options.network.carried = Some(carried);
    (options.buffers.bytes, options.buffers.count) = (BUFFER_BYTES, BUFFERS);
    options.buffers.memory = 0;
    options.settings.streams = ParallelStreams::Most(1);
    let most = Rate::from_bytes_per_second(BYTES_A_SECOND);
    let rate = options.settings.policy.ceiling().map_or(most, |ceiling| ceiling.min(most));
    if let Some(pace) = FixedRate::rate(rate) {
        options.settings.policy = Policy::Fixed(pace);
    }
}

/// One end of the tunnel.
#[derive(Clone)]
pub(crate) struct Tunnel(Arc<UnixDatagram>);

impl Tunnel {
    /// Makes the pair, and gives the transfer its end with the options for it.
    pub(crate) fn open(options: &mut Options) -> io::Result<Self> {
        let (carried, socket) = Carried::pair()?;
        // As much as there is.
        let _ = SockRef::from(&socket).set_send_buffer_size(SOCKET_BYTES);
        socket.set_write_timeout(Some(PATIENCE))?;
        settle(options, carried);
        Ok(Self(Arc::new(socket)))
    }

    /// A datagram came through ssh.
    pub(crate) fn deliver(&self, datagram: &[u8]) {
        // A datagram that is not read in time is lost, as on a network.
        let _ = self.0.send(datagram);
    }

    /// Sends the transfer's datagrams through ssh from now on, for as long as that takes them.
    pub(crate) fn carry(&self, out: FrameWriter) -> io::Result<()> {
        let (queue, waiting) = channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let (tunnel, waits) = (self.clone(), Arc::clone(&bytes));
        let fill = move || drop(tunnel.fill(&queue, &waits));
        thread::Builder::new().name("netblt-tunnel".to_owned()).spawn(fill)?;
        let empty = move || drain(&waiting, &bytes, &out);
        thread::Builder::new().name("netblt-to-ssh".to_owned()).spawn(empty)?;
        Ok(())
    }

    /// Waits for a datagram, and puts it into the queue.
    fn fill(&self, queue: &Sender<Vec<u8>>, waits: &AtomicUsize) -> io::Result<()> {
        let mut datagram = vec![0; MAX_DATAGRAM];
        loop {
            let len = self.0.recv(&mut datagram)?;
            // A datagram without room is lost, as on a network.
            if waits.load(Ordering::Relaxed) + len > QUEUE_BYTES {
                continue;
            }
            let bytes = datagram.get(..len).unwrap_or_default();
            let framed = [&datagram_head(len)[..], bytes].concat();
            waits.fetch_add(framed.len(), Ordering::Relaxed);
            queue.send(framed).map_err(io::Error::other)?;
        }
    }
}

/// Gives ssh what waits for it, several datagrams at once.
fn drain(waiting: &Receiver<Vec<u8>>, waits: &AtomicUsize, out: &FrameWriter) {
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    while let Ok(first) = waiting.recv() {
        batch.extend_from_slice(&first);
        while batch.len() + HEAD + MAX_DATAGRAM <= BATCH_BYTES
            && let Ok(next) = waiting.try_recv()
        {
            batch.extend_from_slice(&next);
        }
        // Bytes that ssh has not taken still wait.
        if out.raw(&batch).is_err() {
            return;
        }
        waits.fetch_sub(batch.len(), Ordering::Relaxed);
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_buffers_fit_and_a_smaller_option_is_kept() {
        let mut options = Options::default();
        let settle = |options: &mut Options| drop(Tunnel::open(options).expect("a pair"));
        settle(&mut options);
        let most = options.buffers.count as usize * options.buffers.bytes as usize;
        assert!(most * 2 <= QUEUE_BYTES, "{most}");
        let rate = |options: &Options| match options.settings.policy {
            Policy::Fixed(pace) => pace,
            other => panic!("{other:?}"),
        };
        let pace = |bytes| FixedRate::rate(Rate::from_bytes_per_second(bytes)).expect("a pace");
        assert_eq!(rate(&options), pace(BYTES_A_SECOND));
        for (asked, given) in [(1_000_000, 1_000_000), (u64::MAX / 8, BYTES_A_SECOND)] {
            let ceiling = Some(Rate::from_bytes_per_second(asked));
            options.settings.policy = Policy::Fair { ceiling };
            settle(&mut options);
            assert_eq!(rate(&options), pace(given));
        }
    }
}
