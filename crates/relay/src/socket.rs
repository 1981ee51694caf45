//! Sockets with GSO, GRO and ECN, and the batches that are read from them.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Type};

/// The requested size of each socket's buffers; the system grants as much as it allows. It has to
/// last while the relay is off the processor: 4 MB are 30 ms of 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;
/// The largest batch that the system hands over.
const BATCH_BYTES: usize = 65_536;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// By which socket, where to, and from which address of ours.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

impl Socket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            // `[::]` is meant to listen to everybody; where that cannot be, to IPv6 at least.
            let _ = socket.set_only_v6(false);
        }
        // Small buffers cost datagrams under load, no more.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        keep_ecn(&socket);
        Ok(Self { socket, state })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Datagrams that one [`Socket::send`] may hold.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.state.try_send((&self.socket).into(), transmit)
    }
}

/// quinn-udp asks for the arrival time of each datagram, too, and has no room for it beside the
/// kernel's other control messages of a batch. The last of them, the ECN mark, would be cut off.
fn keep_ecn(socket: &UdpSocket) {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
        let _ = setsockopt(socket, ReceiveTimestampns, &false);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Room for what one system call reads.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBatch {
    bytes: Vec<u8>,
    meta: Vec<RecvMeta>,
    filled: usize,
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_SIZE * BATCH_BYTES],
            meta: vec![RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }

    /// Reads the waiting datagrams. Returns whether there may be more.
    pub(crate) fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        self.filled = 0;
        let mut chunks = self.bytes.chunks_mut(BATCH_BYTES);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.filled = socket.state.recv((&socket.socket).into(), &mut slices, &mut self.meta)?;
        Ok(self.filled == BATCH_SIZE)
    }

    /// The batches that were read: datagrams of `stride` bytes each, the last perhaps shorter.
    pub(crate) fn batches(&self) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let chunks = self.bytes.chunks(BATCH_BYTES);
        let filled = self.meta.iter().zip(chunks).take(self.filled);
        filled.map(|(meta, bytes)| (meta, &bytes[..meta.len.min(bytes.len())]))
    }
}
