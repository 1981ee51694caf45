//! The socket: a burst out in one system call, a batch of bursts in by another.
//!
//! Sending: a [`Transmit`] is one GSO send, cut by the kernel or the network card. Where that does
//! not work it is cut here. Receiving: `recvmmsg` fills slots with GRO batches, and the pieces are
//! handed on one by one, where they lie. Everything is allocated at the start. A raw socket
//! ([`crate::net::raw_ip`]) differs in two ways: its bursts leave packet by packet, back to back,
//! and what it receives is filtered here.
//!
//! A datagram that is too large for this machine's interface is no error. It is lost, as on a
//! router, and reported ([`Socket::take_oversize`]). One such segment fails a whole GSO send, which
//! is then cut here, so that the segments that are small enough leave.
//!
//! The socket is never connected: a restarted peer sends from another port, and its datagrams must
//! arrive. ICMP errors are asked for (`IP_RECVERR`) and read from the error queue instead.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netblt_proto::api::{Datagram, Ecn, RecvMeta, Transmit};
use netblt_proto::buffer::Buffer;
use quinn_udp::{EcnCodepoint, UdpSockRef, UdpSocketState, is_msg_size_err};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::carried::Carried;
use crate::error::Error;
use crate::net::batch::{self, SLOT_BYTES, SLOTS, WallClock};
use crate::net::connections::{Oversize, canonical};
use crate::net::demux_queue::{Batch, DemuxQueue};
use crate::net::icmp::{self, IcmpError};
use crate::net::raw_ip;
use crate::settings::Family;

/// Asked of the kernel for each direction: 30 ms at 1 Gbit/s.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;
/// Entries read from the error queue in one go.
const MAX_ICMP_ERRORS: usize = 16;
/// A send that met the answer to an earlier one is tried again this often.
const MAX_RETRIES: u32 = 2;
/// quinn-udp gives up segmentation and ECN marks for good when the system refuses a send in a way
/// that may mean them. Mostly it meant something else, or the way has changed since: it is asked
/// to try again after this time.
const RENEWAL: Duration = Duration::from_secs(10);

/// The address and options of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bind {
    /// One address of this machine, or all of them.
    pub address: Option<IpAddr>,
    /// 0 lets the system choose.
    pub port: u16,
    /// Which IP versions; IPv6 and IPv4 on one socket if any will do.
    pub family: Family,
    /// Whether peers connect to it. Then each datagram comes with its local address, so that the
    /// answer can leave from there: the peers' routers and firewalls expect that.
    pub answering: bool,
    /// Whether this is a raw socket; then `port` is a NETBLT port, and not 0.
    pub raw_ip: bool,
    /// Receive only packets of the `rfc998` wire for this NETBLT port. A raw socket receives those
    /// for `port`.
    pub only: Option<u16>,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it left, or was lost on the way out like any datagram may be.
    All,
    /// There is no room; this many bytes left before that. Try the others when writable.
    Blocked(usize),
    /// This host knows no way there.
    NoRoute,
}

/// The result of a call of [`Socket::recv`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams handed on.
    pub datagrams: usize,
    /// Every slot was used: there is probably more.
    pub full: bool,
}

/// A UDP socket, or a raw one, with its buffers.
#[derive(Debug)]
pub struct Socket {
    io: socket2::Socket,
    /// None without UDP: something else carries the datagrams ([`Carried`]).
    state: Option<UdpSocketState>,
    local: SocketAddr,
    /// Whether IPv4 addresses must be mapped into IPv6.
    v6: bool,
    segment: bool,
    raw_ip: bool,
    only: Option<u16>,
    /// Whether datagrams come with their local addresses.
    pktinfo: bool,
    space: Buffer,
    wall: WallClock,
    icmp_errors: Vec<IcmpError>,
    /// The datagram that the interface refused.
    oversize: Option<Oversize>,
    /// The largest IP packets of the interface, as last reported.
    limit: Option<u32>,
    /// Since when quinn-udp may do less than the system can.
    impaired: Option<Instant>,
    /// The receive queue, if another thread reads the socket.
    queue: Option<Arc<DemuxQueue<IcmpError>>>,
    /// The last batch from there.
    taken: Batch,
}

impl Socket {
    /// Opens and binds a socket.
    pub fn bind(bind: &Bind) -> Result<Self, Error> {
        let first = match (bind.address, bind.family) {
            (Some(address), _) => address,
            (None, Family::V4) => Ipv4Addr::UNSPECIFIED.into(),
            (None, Family::V6 | Family::Any) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let result = Self::open(first, bind).or_else(|error| {
            // A machine without IPv6 has no dual-stack sockets either.
            if bind.address.is_none() && bind.family == Family::Any {
                Self::open(Ipv4Addr::UNSPECIFIED.into(), bind)
            } else {
                Err(error)
            }
        });
        result.map_err(|source| {
            if bind.raw_ip {
                return raw_failed(first, source);
            }
            let at = SocketAddr::new(first, bind.port);
            let hint = match source.kind() {
                ErrorKind::AddrInUse => " (another program has it)",
                ErrorKind::AddrNotAvailable => " (this machine has no such address)",
                ErrorKind::PermissionDenied => " (ports below 1024 are for root)",
                _ => "",
            };
            Error::Socket { what: format!("cannot open UDP port {at}{hint}"), source }
        })
    }

    /// A subflow's, which is bound already.
    pub(crate) fn of_subflow(io: socket2::Socket) -> io::Result<Self> {
        let bound = io.local_addr()?.as_socket();
        let bound = bound.ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
        Self::around(io, bound.ip(), &Bind::default())
    }

    /// The same socket once more, for its options.
    pub(crate) fn shared(&self) -> io::Result<socket2::Socket> {
        self.io.try_clone()
    }

    /// The one of a pair that a transfer has.
    pub(crate) fn of_pair(carried: &Carried) -> Result<Self, Error> {
        let made = (|| {
            let io = carried.socket()?;
            enlarge(&io);
            Self::made(io, None, Carried::local(), &Bind::default())
        })();
        let what = || "cannot use a pair of sockets".to_owned();
        made.map_err(|source| Error::Socket { what: what(), source })
    }

    fn open(address: IpAddr, bind: &Bind) -> io::Result<Self> {
        let io = if bind.raw_ip { raw_ip::open(address, bind.port)? } else { udp(address, bind)? };
        Self::around(io, address, bind)
    }

    fn around(io: socket2::Socket, address: IpAddr, bind: &Bind) -> io::Result<Self> {
        enlarge(&io);
        batch::enable_overrun_count(&io);
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        // Without them a dead peer is only found by the death timer.
        if !icmp::enable(&io, address.is_ipv6() && bind.raw_ip) {
            let _ = state.enable_transport_errors(UdpSockRef::from(&io));
        }
        let bound = io.local_addr()?.as_socket();
        let bound = bound.ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
        // The system reports the protocol's number as the port of a raw socket.
        let port = if bind.raw_ip { bind.port } else { bound.port() };
        let local = SocketAddr::new(bound.ip(), port);
        Self::made(io, Some(state), local, bind)
    }

    fn made(
        io: socket2::Socket,
        state: Option<UdpSocketState>,
        local: SocketAddr,
        bind: &Bind,
    ) -> io::Result<Self> {
        Ok(Self {
            v6: local.is_ipv6(),
            // Segments are UDP's.
            segment: !bind.raw_ip && state.is_some(),
            raw_ip: bind.raw_ip,
            only: if bind.raw_ip { Some(local.port()) } else { bind.only },
            pktinfo: bind.answering && local.ip().is_unspecified(),
            state,
            space: Buffer::try_new(SLOT_BYTES * SLOTS).map_err(|_| ErrorKind::OutOfMemory)?,
            wall: WallClock::default(),
            icmp_errors: Vec::with_capacity(MAX_ICMP_ERRORS),
            oversize: None,
            limit: None,
            impaired: None,
            queue: None,
            taken: Batch::default(),
            io,
            local,
        })
    }

    /// The same for a branch of its connection: it sends through this socket, and reads only what
    /// the owner of this one puts into the queue.
    pub(crate) fn share(&self, queue: Arc<DemuxQueue<IcmpError>>) -> io::Result<Self> {
        let io = self.io.try_clone()?;
        Ok(Self {
            state: Some(UdpSocketState::new(UdpSockRef::from(&io))?),
            local: self.local,
            v6: self.v6,
            segment: self.segment,
            raw_ip: false,
            only: None,
            pktinfo: self.pktinfo,
            space: Buffer::new(0),
            wall: WallClock::default(),
            icmp_errors: Vec::new(),
            oversize: None,
            limit: None,
            impaired: None,
            queue: Some(queue),
            taken: Batch::default(),
            io,
        })
    }

    /// Whether another thread reads the socket.
    pub(crate) fn is_shared(&self) -> bool {
        self.queue.is_some()
    }

    /// The address it is bound to, with the port that the system chose; on raw IP with the NETBLT
    /// port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// About how many bytes of packets it holds until they are read. The kernel reports twice that,
    /// half of it for its own needs (socket(7)).
    pub fn room(&self) -> Option<u32> {
        // A datagram that does not fit into a pair waits at its sender.
        self.state.as_ref()?;
        let bytes = self.io.recv_buffer_size().ok()?;
        let share = if cfg!(target_os = "linux") { 2 } else { 1 };
        u32::try_from(bytes / share).ok()
    }

    /// Whether datagrams can go to `address` from here.
    pub fn reaches(&self, address: IpAddr) -> bool {
        match (address, self.local.ip()) {
            (IpAddr::V4(_), IpAddr::V6(_)) if self.raw_ip => false,
            (IpAddr::V4(_), IpAddr::V4(_)) => true,
            // A socket for one IPv6 address, or for IPv6 only, reports that itself when it is
            // tried.
            (IpAddr::V4(_), IpAddr::V6(own)) => own.is_unspecified(),
            (IpAddr::V6(_), IpAddr::V4(_)) => false,
            (IpAddr::V6(_), IpAddr::V6(_)) => true,
        }
    }

    /// From now on bursts are cut here and not by the kernel.
    pub fn disable_segmentation(&mut self) {
        self.segment = false;
    }

    /// Sends `bytes`, the whole or the rest of what `transmit` announced.
    pub fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> Result<Sent, Error> {
        if self.impaired.is_some_and(|since| since.elapsed() >= RENEWAL) {
            self.renew();
        }
        self.oversize = None;
        let segment = transmit.segment.max(1);
        let mut local = transmit.local;
        let (mut at, mut retries, mut by_hand) = (0, 0, false);
        while at < bytes.len() {
            let whole = self.segment && !by_hand && self.max_segments() > 1;
            let end = if whole { bytes.len() } else { bytes.len().min(at + segment) };
            let Some(contents) = bytes.get(at..end) else { break };
            if self.oversize.is_some_and(|known| known.bytes as usize <= segment.min(end - at)) {
                // As those before it.
                at = end;
                continue;
            }
            let error = match self.send_once(transmit, local, segment, contents) {
                Ok(()) => {
                    at = end;
                    continue;
                }
                Err(error) => error,
            };
            match self.judge(&error, whole, local.is_some(), retries) {
                Judged::Retry => retries += 1,
                // The address of ours that the peer came to is gone.
                Judged::RetryFromAnywhere => local = None,
                Judged::Lost => at = end,
                Judged::Blocked => return Ok(Sent::Blocked(at)),
                Judged::NoRoute => return Ok(Sent::NoRoute),
                Judged::TooBig if contents.len() > segment => by_hand = true,
                Judged::TooBig => {
                    self.refuse(transmit.to, contents.len());
                    at = end;
                }
                Judged::Fatal => {
                    let what = format!("cannot send to {}", transmit.to);
                    return Err(Error::Socket { what, source: error });
                }
            }
        }
        Ok(Sent::All)
    }

    /// A segment of the last send that was too large for this machine's interface, if any.
    pub fn take_oversize(&mut self) -> Option<Oversize> {
        self.oversize.take()
    }

    fn refuse(&mut self, to: SocketAddr, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.oversize = Some(Oversize { to, bytes, limit: self.limit.take() });
        if self.impaired.is_some() {
            // Before Linux 6.14 this was what failed the batch, and no lack of segmentation.
            self.renew();
        }
    }

    /// Lets quinn-udp detect again what the system can do.
    fn renew(&mut self) {
        self.impaired = None;
        if self.state.is_some()
            && let Ok(state) = UdpSocketState::new(UdpSockRef::from(&self.io))
        {
            self.state = Some(state);
        }
    }

    /// Datagrams that the system takes as one.
    fn max_segments(&self) -> usize {
        self.state.as_ref().map_or(1, UdpSocketState::max_gso_segments)
    }

    fn send_once(
        &self,
        transmit: &Transmit,
        local: Option<IpAddr>,
        segment: usize,
        contents: &[u8],
    ) -> io::Result<()> {
        let Some(state) = &self.state else { return self.io.send(contents).map(drop) };
        let out = quinn_udp::Transmit {
            destination: self.outward(transmit.to),
            ecn: transmit.ecn.map(|ecn| match ecn {
                Ecn::Ect0 => EcnCodepoint::Ect0,
                Ecn::Ce => EcnCodepoint::Ce,
            }),
            contents,
            segment_size: Some(segment),
            src_ip: local,
        };
        state.try_send(UdpSockRef::from(&self.io), &out)
    }

    /// Judges an error of a send. Reading the error queue clears its error for the next call.
    fn judge(&mut self, error: &io::Error, whole: bool, pinned: bool, retries: u32) -> Judged {
        if error.kind() == ErrorKind::WouldBlock {
            return Judged::Blocked;
        }
        if is_msg_size_err(error) {
            // Unless it is about an earlier packet, and a router's word, which may be forged.
            self.limit = None;
            let routers = self.read_errors().iter().any(|t| matches!(t, IcmpError::TooBig(..)));
            let earlier = routers && self.limit.is_none() && retries < MAX_RETRIES;
            return if earlier { Judged::Retry } else { Judged::TooBig };
        }
        let errno = Errno::from_io_error(error);
        if matches!(errno, Some(Errno::IO | Errno::INVAL)) {
            self.impaired.get_or_insert_with(Instant::now);
        }
        match errno {
            // A full queue below does not report when it has room again: the datagrams are lost.
            Some(Errno::NOBUFS | Errno::NOMEM) => Judged::Lost,
            // The network is down for now, or a local filter drops what we send.
            Some(Errno::NETDOWN | Errno::PERM | Errno::ACCESS) => Judged::Lost,
            // The carrier is gone: the peer falls silent.
            Some(_) if self.state.is_none() => Judged::Lost,
            // No segmentation: quinn-udp has noticed, and the rest goes out in pieces.
            Some(Errno::IO | Errno::INVAL) if whole && self.max_segments() == 1 => Judged::Retry,
            Some(Errno::INVAL | Errno::ADDRNOTAVAIL) if pinned => Judged::RetryFromAnywhere,
            Some(Errno::IO | Errno::INVAL) if whole && retries < MAX_RETRIES => Judged::Retry,
            Some(Errno::INVAL | Errno::ADDRNOTAVAIL) => Judged::NoRoute,
            // Either an answer to an earlier datagram, which did not touch this one, or our own
            // routing table's.
            Some(
                Errno::CONNREFUSED
                | Errno::NOPROTOOPT
                | Errno::PROTO
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH,
            ) => {
                self.read_errors();
                match retries < MAX_RETRIES {
                    true => Judged::Retry,
                    false if pinned => Judged::RetryFromAnywhere,
                    false => Judged::NoRoute,
                }
            }
            _ => Judged::Fatal,
        }
    }

    /// Passes on every datagram of one batch, in place, with the time of `clock`. Never waits.
    ///
    /// The clock is read after the batch. This process may lose its processor between the two, and
    /// packets that arrive meanwhile must not seem to have arrived earlier than they did: a round
    /// trip or one-way time that is too short counts for long, and makes all later ones look like a
    /// queue.
    pub fn recv<T: Copy>(
        &mut self,
        clock: impl FnOnce() -> T,
        mut each: impl FnMut(T, Datagram<'_>),
    ) -> Result<Received, Error> {
        if let Some(queue) = &self.queue {
            let errors = queue.take(&mut self.taken).map_err(Error::Ended)?;
            self.icmp_errors.extend(errors);
            let now = clock();
            let received = Received { datagrams: self.taken.len(), full: false };
            self.taken.for_each(|datagram| each(now, datagram));
            return Ok(received);
        }
        let Some(state) = &self.state else { return self.recv_carried(clock(), each) };
        let bursts = match batch::read(&self.io, state, self.space.space()) {
            Ok(bursts) => bursts,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::default()),
            Err(error) => return self.failed_recv(error),
        };
        let wall = self.wall.read();
        let now = clock();
        let mut received = Received { datagrams: 0, full: bursts.iter().all(Option::is_some) };
        for (slot, burst) in self.space.space().chunks_mut(SLOT_BYTES).zip(bursts.iter().flatten())
        {
            let from = canonical(burst.from);
            let meta = RecvMeta { ecn: burst.ecn, age: burst.age(wall), overrun: burst.overrun };
            let bytes = slot.get_mut(..burst.len).unwrap_or_default();
            for bytes in bytes.chunks_mut(burst.segment.max(1)) {
                received.datagrams += 1;
                let ours = match self.only {
                    Some(port) if self.raw_ip => raw_ip::unwrap(from.ip(), bytes, port),
                    Some(port) => raw_ip::is_for(bytes, port).then_some((from, bytes)),
                    None => Some((from, bytes)),
                };
                let Some((from, bytes)) = ours else { continue };
                let local = burst.to.filter(|_| self.pktinfo);
                each(now, Datagram { from, local, meta, bytes });
            }
        }
        Ok(received)
    }

    /// The same of a pair, datagram by datagram.
    fn recv_carried<T: Copy>(
        &mut self,
        now: T,
        mut each: impl FnMut(T, Datagram<'_>),
    ) -> Result<Received, Error> {
        let mut received = Received::default();
        for slot in self.space.space().chunks_mut(SLOT_BYTES) {
            let len = match (&self.io).read(slot) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
                Err(error) => return self.failed_recv(error),
            };
            received.datagrams += 1;
            let bytes = slot.get_mut(..len).unwrap_or_default();
            let meta = RecvMeta::default();
            each(now, Datagram { from: Carried::peer(), local: None, meta, bytes });
        }
        received.full = true;
        Ok(received)
    }

    fn failed_recv(&mut self, error: io::Error) -> Result<Received, Error> {
        self.read_errors();
        match Errno::from_io_error(&error) {
            // An invalid handle ends the loop. An error of the network does not.
            Some(Errno::BADF | Errno::NOTSOCK | Errno::FAULT) | None => {
                Err(Error::Socket { what: "cannot receive".to_owned(), source: error })
            }
            Some(_) => Ok(Received::default()),
        }
    }

    /// Reads the error queue, and returns its new errors. Called when the socket reports an error.
    pub fn read_errors(&mut self) -> &[IcmpError] {
        let known = self.icmp_errors.len();
        // A pair has no such queue: a read there returns a datagram.
        let most = if self.state.is_some() { MAX_ICMP_ERRORS } else { 0 };
        for _ in 0..most {
            match icmp::read(&self.io, canonical) {
                Some(Some(IcmpError::Oversize(limit))) => self.limit = Some(limit),
                Some(Some(error)) if self.icmp_errors.len() < MAX_ICMP_ERRORS => {
                    self.icmp_errors.push(error);
                }
                Some(_) => {}
                None => break,
            }
        }
        self.icmp_errors.get(known..).unwrap_or_default()
    }

    /// The next error of the error queue.
    pub fn poll_icmp_error(&mut self) -> Option<IcmpError> {
        self.icmp_errors.pop()
    }

    fn outward(&self, to: SocketAddr) -> SocketAddr {
        match to {
            to if self.raw_ip => SocketAddr::new(to.ip(), 0),
            SocketAddr::V4(to) if self.v6 => {
                SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0).into()
            }
            to => to,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// The meaning of a send's error.
enum Judged {
    Retry,
    RetryFromAnywhere,
    Lost,
    Blocked,
    NoRoute,
    TooBig,
    Fatal,
}

fn udp(address: IpAddr, bind: &Bind) -> io::Result<socket2::Socket> {
    let local = SocketAddr::new(address, bind.port);
    let socket =
        socket2::Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(bind.family == Family::V6 || !address.is_unspecified())?;
    }
    socket.bind(&SockAddr::from(local))?;
    Ok(socket)
}

/// Explains the errors of [`raw_ip::open`], and what to do.
fn raw_failed(address: IpAddr, source: io::Error) -> Error {
    let hint = match source.kind() {
        ErrorKind::PermissionDenied => {
            ": this takes the privilege CAP_NET_RAW, which this program does not have. Run it as \
             root, or give it to the program once with `sudo setcap cap_net_raw+ep \
             \"$(command -v netblt)\"`"
        }
        ErrorKind::AddrNotAvailable => " (this machine has no such address)",
        _ => "",
    };
    let what =
        format!("cannot open a raw socket (IP protocol {}) at {address}{hint}", raw_ip::PROTOCOL);
    Error::Socket { what, source }
}

/// Large kernel buffers, as far as the system lets us; smaller ones only cost speed.
fn enlarge(socket: &socket2::Socket) {
    let _ = socket.set_recv_buffer_size(KERNEL_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(KERNEL_BUFFER_BYTES);
    // Beyond the system's limit, where the administrator runs us.
    #[cfg(target_os = "linux")]
    if socket.recv_buffer_size().is_ok_and(|bytes| bytes < KERNEL_BUFFER_BYTES) {
        use rustix::net::sockopt;
        let _ = sockopt::set_socket_recv_buffer_size_force(socket, KERNEL_BUFFER_BYTES);
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
