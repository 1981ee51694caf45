//! Receives a batch of bursts by one system call, each with its arrival time.
//!
//! quinn-udp asks Linux for that time and has no room for it beside the other control messages of a
//! burst. The last of them, the ECN mark, would be cut off. So the call is made here on Linux, with
//! room for all of them. Other systems report no time.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netblt_proto::api::Ecn;
use quinn_udp::UdpSocketState;

/// The largest GRO batch of one slot.
pub(super) const SLOT_BYTES: usize = 1 << 16;
/// Slots filled by one system call: more would only push each other out of the cache.
pub(super) const SLOTS: usize = 16;
/// A datagram that seems to have waited longer has no arrival time of its own, nor does one that is
/// read when the wall clock has jumped by more than this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const JUMP: Duration = Duration::from_millis(1);

/// The content of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) from: SocketAddr,
    /// Bytes of it, and of each of its datagrams but the last.
    pub(super) len: usize,
    pub(super) segment: usize,
    pub(super) ecn: Option<Ecn>,
    /// The address of ours that it came to.
    pub(super) to: Option<IpAddr>,
    /// The socket's count of dropped datagrams when it came.
    pub(super) overrun: u32,
    /// When it came, by the wall clock.
    stamp: Option<Duration>,
}

impl Burst {
    /// How long before `now` it came; zero if that is not known.
    pub(super) fn age(&self, now: Option<Duration>) -> Duration {
        let waited = self.stamp.and_then(|stamp| now?.checked_sub(stamp));
        waited.filter(|waited| *waited <= LONGEST_WAIT).unwrap_or_default()
    }
}

/// The wall clock. The kernel's arrival times are by it, and it may be set.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// It, and a clock that is not set, when they were read last.
    before: Option<(Duration, Instant)>,
}

impl WallClock {
    /// The time, unless it was set since it was read last.
    pub(super) fn read(&mut self) -> Option<Duration> {
        let now = (SystemTime::now().duration_since(UNIX_EPOCH).ok()?, Instant::now());
        let before = self.before.replace(now)?;
        let by_wall = now.0.checked_sub(before.0)?;
        (by_wall.abs_diff(now.1 - before.1) <= JUMP).then_some(now.0)
    }
}

/// Has the kernel report dropped datagrams of a socket, where it does (Linux 2.6.33).
pub(super) fn enable_overrun_count(io: &socket2::Socket) {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::socket::setsockopt(io, nix::sys::socket::sockopt::RxqOvfl, &1);
    #[cfg(not(target_os = "linux"))]
    let _ = io;
}

/// Fills the first slots of `space`, and returns their contents.
#[cfg(target_os = "linux")]
pub(super) fn read(
    io: &socket2::Socket,
    _: &UdpSocketState,
    space: &mut [u8],
) -> io::Result<[Option<Burst>; SLOTS]> {
    use std::net::Ipv4Addr;
    use std::os::fd::AsRawFd;

    use nix::libc::in6_pktinfo;
    use nix::sys::socket::{
        ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    };
    use nix::sys::time::TimeSpec;

    // The kernel writes the used length into these, so they serve once.
    let control = nix::cmsg_space!(TimeSpec, i32, in6_pktinfo, i32, i32, u32);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(SLOTS, Some(control));
    let mut slots = space.chunks_mut(SLOT_BYTES);
    let mut slots: [[IoSliceMut<'_>; 1]; SLOTS] =
        std::array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
    let flags = MsgFlags::MSG_DONTWAIT;
    let messages = recvmmsg(io.as_raw_fd(), &mut headers, &mut slots, flags, None)?;
    let mut bursts = [None; SLOTS];
    for (slot, message) in bursts.iter_mut().zip(messages) {
        let from = message.address.and_then(|from| {
            let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
            v4.or_else(|| Some(SocketAddr::V6((*from.as_sockaddr_in6()?).into())))
        });
        let from = from.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let len = message.bytes;
        let mut burst =
            Burst { from, len, segment: len, ecn: None, to: None, overrun: 0, stamp: None };
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampns(at) => burst.stamp = Some(at.into()),
                ControlMessageOwned::RxqOvfl(overrun) => burst.overrun = overrun,
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    burst.segment = usize::try_from(bytes).unwrap_or(len);
                }
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    burst.to = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    burst.to = Some(info.ipi6_addr.s6_addr.into());
                }
                ControlMessageOwned::Ipv4Tos(bits) => burst.ecn = mark(bits),
                ControlMessageOwned::Ipv6TClass(bits) => burst.ecn = mark(bits as u8),
                _ => {}
            }
        }
        *slot = Some(burst);
    }
    Ok(bursts)
}

/// The ECN mark in a byte of the IP header (RFC 3168 §5).
#[cfg(target_os = "linux")]
fn mark(bits: u8) -> Option<Ecn> {
    match bits & 0b11 {
        0b11 => Some(Ecn::Ce),
        0b10 => Some(Ecn::Ect0),
        _ => None,
    }
}

/// Fills the first slots of `space`, and returns their contents.
#[cfg(not(target_os = "linux"))]
pub(super) fn read(
    io: &socket2::Socket,
    state: &UdpSocketState,
    space: &mut [u8],
) -> io::Result<[Option<Burst>; SLOTS]> {
    use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef};

    let mut meta = [RecvMeta::default(); SLOTS];
    let mut slots = space.chunks_mut(SLOT_BYTES);
    let mut slots: [IoSliceMut<'_>; SLOTS] =
        std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
    let count = state.recv(UdpSockRef::from(io), &mut slots, &mut meta)?;
    let mut bursts = [None; SLOTS];
    for (slot, meta) in bursts.iter_mut().zip(meta).take(count) {
        let ecn = match meta.ecn {
            Some(EcnCodepoint::Ce) => Some(Ecn::Ce),
            Some(EcnCodepoint::Ect0) => Some(Ecn::Ect0),
            Some(EcnCodepoint::Ect1) | None => None,
        };
        let (from, len, segment) = (meta.addr, meta.len, meta.stride);
        *slot = Some(Burst { from, len, segment, ecn, to: meta.dst_ip, overrun: 0, stamp: None });
    }
    Ok(bursts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_set_gives_no_times_until_it_is_read_again() {
        let mut clock = WallClock::default();
        assert_eq!(clock.read(), None, "nothing is known of it yet");
        let now = clock.read().unwrap();
        for set in [now + Duration::from_secs(10), now - Duration::from_millis(5)] {
            clock.before = Some((set, Instant::now()));
            assert_eq!(clock.read(), None);
            assert!(clock.read().is_some());
        }
    }

    #[test]
    fn a_wait_on_an_invalid_handle_is_an_error() {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let at = Duration::from_secs(1_000_000);
        let stamp = Some(at);
        let burst = Burst { from, len: 1, segment: 1, ecn: None, to: None, overrun: 0, stamp };
        let waits = [0, 300, 1_000_000, 1_000_001]
            .map(|us| burst.age(Some(at + Duration::from_micros(us))).as_micros());
        assert_eq!(waits, [0, 300, 1_000_000, 0]);
        assert_eq!(burst.age(Some(at - Duration::from_millis(1))), Duration::ZERO);
        assert_eq!(burst.age(None), Duration::ZERO);
    }
}
