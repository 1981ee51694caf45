//! Tests of the socket, over loopback.

use std::time::Duration;

use super::*;
use crate::net::poller::Poller;

fn socket(address: &str) -> Socket {
    let address = Some(address.parse().unwrap());
    Socket::bind(&Bind { address, ..Bind::default() }).unwrap()
}

fn transmit(to: SocketAddr, segment: usize, len: usize) -> Transmit {
    Transmit { to, local: None, ecn: Some(Ecn::Ect0), segment, len }
}

type DatagramRow = (SocketAddr, Option<IpAddr>, Option<Ecn>, Vec<u8>);

/// All datagrams there are, once there is one.
fn receive(socket: &mut Socket) -> Vec<(SocketAddr, Option<Ecn>, Vec<u8>)> {
    let received = receive_with_local(socket);
    received.into_iter().map(|(from, _, ecn, bytes)| (from, ecn, bytes)).collect()
}

/// The same, with the address of ours that each came to.
fn receive_with_local(socket: &mut Socket) -> Vec<DatagramRow> {
    let mut poller = Poller::new().unwrap();
    let ready = poller.wait(socket.as_fd(), false, Duration::from_secs(10)).unwrap();
    assert!(ready.readable);
    let mut all = Vec::new();
    let each = |(), datagram: Datagram<'_>| {
        let Datagram { from, local, meta, bytes } = datagram;
        all.push((from, local, meta.ecn, bytes.to_vec()));
    };
    socket.recv(|| (), each).unwrap();
    all
}

#[test]
fn a_burst_arrives_in_its_pieces_with_and_without_segmentation() {
    for segment in [true, false] {
        let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
        if !segment {
            a.disable_segmentation();
        }
        let bytes: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        let burst = transmit(b.local(), 1000, bytes.len());
        assert_eq!(a.send(&burst, &bytes).unwrap(), Sent::All);
        let mut got = Vec::new();
        while got.len() < 3 {
            got.extend(receive(&mut b));
        }
        let pieces: Vec<Vec<u8>> = bytes.chunks(1000).map(<[u8]>::to_vec).collect();
        for ((from, ecn, bytes), piece) in got.iter().zip(&pieces) {
            assert_eq!((*from, *ecn, bytes), (a.local(), Some(Ecn::Ect0), piece));
        }
        assert_eq!(got.len(), 3);
    }
}

#[test]
fn the_rest_of_a_burst_can_be_sent_later() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let bytes = [7; 2500];
    a.send(&transmit(b.local(), 1000, bytes.len()), &bytes[2000..]).unwrap();
    assert_eq!(receive(&mut b)[0].2, bytes[2000..]);
}

#[test]
fn one_socket_serves_both_ip_versions_and_answers_from_where_it_was_asked() {
    let bind = Bind { answering: true, ..Bind::default() };
    let mut server = Socket::bind(&bind).unwrap();
    let mut clients = vec![("127.0.0.5", socket("127.0.0.1"))];
    if server.local().is_ipv6() {
        clients.push(("::1", socket("::1")));
    }
    for (address, mut client) in clients {
        let to = SocketAddr::new(address.parse().unwrap(), server.local().port());
        client.send(&transmit(to, 5, 5), b"hello").unwrap();
        let (from, local, _, bytes) = receive_with_local(&mut server).remove(0);
        assert_eq!((from, bytes.as_slice()), (client.local(), b"hello".as_slice()));
        // Datagrams from a thousand others do not change the source of this answer.
        server.send(&Transmit { local, ..transmit(from, 3, 3) }, b"you").unwrap();
        assert_eq!(receive(&mut client)[0].0, to);
    }
}

#[test]
fn a_removed_local_address_does_not_stop_sends() {
    let (mut a, mut b) = (socket("0.0.0.0"), socket("127.0.0.1"));
    let local = Some("192.0.2.1".parse().unwrap());
    for len in [1, 2500] {
        let bytes = vec![7; len];
        let gone = Transmit { local, ..transmit(b.local(), 1000, len) };
        assert_eq!(a.send(&gone, &bytes).unwrap(), Sent::All);
        assert_eq!(receive(&mut b)[0].2, bytes[..len.min(1000)]);
    }
}

#[test]
fn a_closed_port_is_reported_and_does_not_stop_the_socket() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let closed = socket("127.0.0.1").local();
    assert_eq!(a.send(&transmit(closed, 1, 1), b"x").unwrap(), Sent::All);
    let mut poller = Poller::new().unwrap();
    let ready = poller.wait(a.as_fd(), false, Duration::from_secs(10)).unwrap();
    assert!(ready.error);
    // The first call meets the error, and does its work all the same.
    assert_eq!(a.send(&transmit(b.local(), 1, 1), b"y").unwrap(), Sent::All);
    a.read_errors();
    assert_eq!(a.poll_icmp_error(), Some(IcmpError::Refused(closed, icmp::Quote::of(b"x"))));
    assert_eq!(a.poll_icmp_error(), None);
    assert_eq!(receive(&mut b)[0].2, b"y");
    assert_eq!(a.recv(|| (), |(), _| ()).unwrap(), Received::default());
}

/// The control messages of each burst fit: its arrival time, its mark, and its local address.
#[cfg(target_os = "linux")]
#[test]
fn a_datagram_that_waited_longer_is_older() {
    let any = Bind { answering: true, ..Bind::default() };
    let (mut a, mut b) = (socket("127.0.0.1"), Socket::bind(&any).unwrap());
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, b.local().port()));
    let (apart, mut ages) = (Duration::from_millis(20), Vec::new());
    // A kernel without arrival times starts them with the first socket that asks for them.
    for _ in 0..100 {
        assert_eq!(a.send(&transmit(to, 1, 1), b"x").unwrap(), Sent::All);
        std::thread::sleep(apart);
        assert_eq!(a.send(&transmit(to, 1, 1), b"y").unwrap(), Sent::All);
        ages.clear();
        let mut poller = Poller::new().unwrap();
        assert!(poller.wait(b.as_fd(), false, Duration::from_secs(10)).unwrap().readable);
        let each = |(), datagram: Datagram<'_>| {
            assert_eq!(datagram.meta.ecn, Some(Ecn::Ect0));
            assert_eq!(datagram.local.map(|local| local.to_canonical()), Some(to.ip()));
            ages.push(datagram.meta.age);
        };
        b.recv(|| (), each).unwrap();
        if ages.len() == 2 && ages[0] >= ages[1] + apart {
            return;
        }
    }
    panic!("{ages:?}");
}

/// The clock is read after the batch: packets that arrive meanwhile belong to the next.
#[test]
fn no_datagram_has_an_earlier_time_than_its_arrival() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let to = b.local();
    let mut send = |byte| assert_eq!(a.send(&transmit(to, 1, 1), &[byte]).unwrap(), Sent::All);
    assert_eq!(b.recv(|| panic!("there is nothing"), |(), _| ()).unwrap(), Received::default());
    send(1);
    let mut poller = Poller::new().unwrap();
    assert!(poller.wait(b.as_fd(), false, Duration::from_secs(10)).unwrap().readable);
    let mut got = Vec::new();
    let mut each = |number: u8, datagram: Datagram<'_>| got.push((number, datagram.bytes.to_vec()));
    let late = || {
        send(2);
        1
    };
    b.recv(late, &mut each).unwrap();
    assert!(poller.wait(b.as_fd(), false, Duration::from_secs(10)).unwrap().readable);
    b.recv(|| 2, &mut each).unwrap();
    assert_eq!(got, [(1, vec![1]), (2, vec![2])]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_socket_reports_how_many_datagrams_it_dropped() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    b.io.set_recv_buffer_size(4096).unwrap();
    let (to, bytes) = (b.local(), [7; 1000]);
    for _ in 0..50 {
        assert_eq!(a.send(&transmit(to, 1000, 1000), &bytes).unwrap(), Sent::All);
    }
    let mut came = 0;
    while b.recv(|| (), |(), _| came += 1).unwrap().datagrams > 0 {}
    assert!(came < 50, "{came} had room");
    assert_eq!(a.send(&transmit(to, 1000, 1000), &bytes).unwrap(), Sent::All);
    let mut overrun = None;
    Poller::new().unwrap().wait(b.as_fd(), false, Duration::from_secs(10)).unwrap();
    b.recv(|| (), |(), datagram| overrun = Some(datagram.meta.overrun)).unwrap();
    assert_eq!(overrun, Some(50 - came));
}

#[test]
fn a_datagram_too_large_for_the_interface_is_reported_lost_and_others_are_sent() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let bytes = vec![0; 66_000];
    let to = b.local();
    assert_eq!(a.send(&transmit(to, bytes.len(), bytes.len()), &bytes).unwrap(), Sent::All);
    let refused = a.take_oversize();
    assert_eq!(refused, Some(Oversize { to, bytes: 66_000, limit: None }));
    assert_eq!((a.take_oversize(), a.poll_icmp_error()), (None, None));
    let bytes = vec![3; 65_507];
    assert_eq!(a.send(&transmit(to, bytes.len(), bytes.len()), &bytes).unwrap(), Sent::All);
    assert_eq!((a.take_oversize(), receive(&mut b)[0].2.len()), (None, 65_507));
}

/// quinn-udp gives segmentation up when a send is refused for whatever reason, here because it has
/// more segments than the system takes: that must not be the end of it.
#[test]
fn segmentation_comes_back() {
    let (mut a, mut b) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let segments = a.max_segments();
    if segments == 1 {
        return;
    }
    let bytes = vec![7; 30_000];
    let burst = transmit(b.local(), 100, bytes.len());
    assert_eq!(a.send(&burst, &bytes).unwrap(), Sent::All);
    assert!(a.impaired.is_some() && a.max_segments() == 1);
    a.impaired = Instant::now().checked_sub(RENEWAL);
    let burst = transmit(b.local(), 1000, bytes.len());
    assert_eq!(a.send(&burst, &bytes).unwrap(), Sent::All);
    assert!(a.impaired.is_none() && a.max_segments() == segments);
    let mut got = Vec::new();
    while got.iter().map(|(_, _, bytes): &(_, _, Vec<u8>)| bytes.len()).sum::<usize>() < 60_000 {
        got.extend(receive(&mut b));
    }
    assert!(got.last().is_some_and(|(_, ecn, bytes)| ecn.is_some() && bytes.len() == 1000));
}

#[test]
fn an_address_that_is_not_ours_is_a_clear_error() {
    let address = Some("192.0.2.1".parse().unwrap());
    let error = Socket::bind(&Bind { address, ..Bind::default() }).unwrap_err();
    assert!(error.to_string().contains("this machine has no such address"), "{error}");
    let taken = socket("127.0.0.1");
    let port = taken.local().port();
    let again = Bind { address: Some(taken.local().ip()), port, ..Bind::default() };
    let error = Socket::bind(&again).unwrap_err();
    assert!(error.to_string().contains("another program has it"), "{error}");
}

#[test]
fn a_pair_carries_datagrams_and_never_more_than_is_read() {
    let (carried, other) = Carried::pair().expect("a pair");
    other.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let mut socket = Socket::of_pair(&carried).expect("a socket");
    assert_eq!((socket.room(), socket.reaches(Carried::peer().ip())), (None, true));
    let transmit = transmit(Carried::peer(), 1000, 2500);
    let bytes: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
    assert_eq!(socket.send(&transmit, &bytes).expect("sent"), Sent::All);
    let mut space = [0; 2000];
    for piece in bytes.chunks(1000) {
        let len = other.recv(&mut space).expect("a datagram");
        assert_eq!(&space[..len], piece, "each is one, and in order");
    }
    // Unread datagrams wait and are not lost.
    let sent = std::iter::repeat_with(|| socket.send(&transmit, &bytes).expect("tried"));
    let whole = sent.take(1_000_000).take_while(|sent| *sent == Sent::All).count();
    assert!(whole < 1_000_000, "it is never full");
    for piece in [b"one".as_slice(), b"two"] {
        other.send(piece).expect("sent");
    }
    let mut got = Vec::new();
    let received = socket.recv(
        || (),
        |(), datagram| {
            got.push((datagram.from, datagram.bytes.to_vec()));
        },
    );
    assert_eq!(received.expect("received").datagrams, 2);
    let from = Carried::peer();
    assert_eq!(got, [(from, b"one".to_vec()), (from, b"two".to_vec())]);
    assert!(socket.read_errors().is_empty());
}
