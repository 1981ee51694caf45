//! Datagrams through ssh, where UDP does not pass: a socket on loopback to which the transfer
//! speaks as if it were its peer.
//!
//! Nothing else changes: the transfer is as encrypted, verified and paced as anywhere. When ssh
//! takes no more, datagrams wait in the socket and then are lost there, as in any full queue.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use socket2::SockRef;

use crate::cp::channel::{FrameWriter, HEAD, MAX_DATAGRAM, datagram_head};

/// Bytes that wait in the socket at most, if the system allows.
const QUEUE_BYTES: usize = 4 << 20;
/// Bytes of frames that go to ssh at once.
const BATCH_BYTES: usize = 256 << 10;

/// One end of the tunnel.
#[derive(Clone)]
pub(crate) struct Tunnel(Arc<Inner>);

struct Inner {
    socket: UdpSocket,
    /// Where the transfer's own socket is, once it is known.
    own: Mutex<Option<SocketAddr>>,
}

impl Tunnel {
    /// Opens the socket. `own` is where the transfer listens; none if it is to call here.
    pub(crate) fn open(own: Option<SocketAddr>) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        // As much as there is.
        let _ = SockRef::from(&socket).set_recv_buffer_size(QUEUE_BYTES);
        Ok(Self(Arc::new(Inner { socket, own: Mutex::new(own) })))
    }

    /// Where the transfer finds its peer.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// A datagram came through ssh.
    pub(crate) fn deliver(&self, datagram: &[u8]) {
        let own = *self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = own {
            // What finds no room is lost, as datagrams are.
            let _ = self.0.socket.send_to(datagram, own);
        }
    }

    /// From now on what the transfer sends goes to ssh, for as long as that takes it.
    pub(crate) fn carry(&self, out: FrameWriter) -> io::Result<()> {
        let tunnel = self.clone();
        let carry = move || {
            let mut batch = Vec::with_capacity(BATCH_BYTES);
            let mut datagram = vec![0; MAX_DATAGRAM];
            while tunnel.fill(&mut batch, &mut datagram).is_ok() && out.raw(&batch).is_ok() {
                batch.clear();
            }
        };
        thread::Builder::new().name("netblt-tunnel".to_owned()).spawn(carry)?;
        Ok(())
    }

    /// Waits for a datagram, and takes with it what is there besides.
    fn fill(&self, batch: &mut Vec<u8>, datagram: &mut [u8]) -> io::Result<()> {
        let socket = &self.0.socket;
        socket.set_nonblocking(false)?;
        self.take(socket.recv_from(datagram)?, batch, datagram);
        socket.set_nonblocking(true)?;
        while batch.len() + HEAD + MAX_DATAGRAM <= BATCH_BYTES
            && let Ok(came) = socket.recv_from(datagram)
        {
            self.take(came, batch, datagram);
        }
        Ok(())
    }

    fn take(&self, (len, from): (usize, SocketAddr), batch: &mut Vec<u8>, datagram: &[u8]) {
        let mut own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever speaks first is the transfer; others on this machine are not heard, and what
        // they say would be worth nothing without its secret.
        if *own.get_or_insert(from) == from {
            batch.extend_from_slice(&datagram_head(len));
            batch.extend_from_slice(datagram.get(..len).unwrap_or_default());
        }
    }
}
