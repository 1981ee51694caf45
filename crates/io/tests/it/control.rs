//! Transfers that are paused, held back and let go while they run, over real sockets. What the
//! clock says decides nothing: who pauses has moved nothing, and who is let go comes to an end.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use netblt::{
    Cancel, Control, Destination, EmulatedProtocol, Emulation, Error, FixedRate, Observer, Options,
    Policy, Progress, Rate, Rendezvous, Source, Summary, Ticket, Wire,
};

const SIZE: usize = 3 << 20;

/// Gives away the ticket, and tells of progress.
struct Watch {
    tickets: Sender<Ticket>,
    progress: Sender<Progress>,
}

impl Observer for Watch {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.tickets.send(ticket.clone()).map_err(std::io::Error::other)
    }
    fn progress(&mut self, progress: &Progress) {
        let _ = self.progress.send(progress.clone());
    }
}

fn options(control: Option<&Control>) -> Options {
    let mut options = Options::default();
    options.network.bind = Some([127, 0, 0, 1].into());
    options.buffers.bytes = 1 << 16;
    options.buffers.count = 8;
    options.control = control.cloned();
    options
}

/// A transfer of [`SIZE`] bytes, with the sender's and the receiver's handle; `act` is given every
/// report of progress of the end that has one.
fn transfer(
    (at_sender, at_receiver): (Option<&Control>, Option<&Control>),
    mut act: impl FnMut(&Progress),
) -> (Result<Summary, Error>, Result<Summary, Error>) {
    let (tickets, ticket) = channel();
    let (progress, reported) = channel();
    let (none, _unheard) = channel();
    let (of_sender, of_receiver) = match at_sender {
        Some(_) => (progress, none),
        None => (none, progress),
    };
    let (sends, receives) = (options(at_sender), options(at_receiver));
    let mut watch = Watch { tickets: tickets.clone(), progress: of_sender };
    let sender = thread::spawn(move || {
        let source = Source::reader("zeros", std::io::Read::take(std::io::repeat(0), SIZE as u64));
        netblt::send(source, &Rendezvous::Listen, &sends, &mut watch, &Cancel::default())
    });
    let rendezvous = Rendezvous::Connect(ticket.recv().unwrap());
    let mut watch = Watch { tickets, progress: of_receiver };
    let receiver = thread::spawn(move || {
        let destination = Destination::writer(std::io::sink());
        netblt::receive(destination, &rendezvous, &receives, &mut watch, &Cancel::default())
    });
    reported.iter().for_each(|progress| act(&progress));
    (sender.join().unwrap(), receiver.join().unwrap())
}

#[test]
fn a_pause_stops_all_data_and_its_end_releases_them() {
    for sends in [true, false] {
        let control = Control::new();
        control.pause();
        let handles = (sends.then_some(&control), (!sends).then_some(&control));
        let mut reports = 0;
        let (sent, received) = transfer(handles, |progress| {
            reports += 1;
            if reports <= 6 {
                let stats = &progress.stats;
                assert!(progress.paused && progress.bytes == 0, "{progress:?}");
                assert_eq!((stats.data_packets_sent, stats.data_packets_received), (0, 0));
            }
            if reports == 6 {
                control.resume();
            }
        });
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert!(sent.verified && received.verified && sent.bytes == SIZE as u64);
        assert!(reports >= 6, "it was over before: {reports}");
    }
}

#[test]
fn a_rate_holds_and_is_lifted() {
    for sends in [true, false] {
        let control = Control::new();
        // At this rate it would take five minutes.
        control.set_rate(Some(Rate::from_bytes_per_second(10_000)));
        let handles = (sends.then_some(&control), (!sends).then_some(&control));
        let mut reports = 0;
        let (sent, received) = transfer(handles, |progress| {
            reports += 1;
            if sends && reports == 10 {
                assert!(progress.bytes < SIZE as u64 / 4, "{progress:?}");
            }
            if reports == 10 {
                control.set_rate(None);
            }
        });
        assert!(sent.unwrap().verified && received.unwrap().verified);
    }
}

#[test]
fn a_policy_is_taken_up_or_refused() {
    let control = Control::new();
    let rate = Rate::from_bits_per_second(80_000_000);
    control.set_policy(Policy::Fixed(FixedRate::rate(rate).unwrap()));
    let (sent, received) = transfer((Some(&control), None), |_| ());
    assert!(sent.unwrap().verified && received.unwrap().verified);
    assert_eq!(control.refused(), None);
    let recreated = Policy::Emulated(Emulation::of(EmulatedProtocol::Reno));
    control.set_policy(recreated);
    let (sent, received) = transfer((Some(&control), None), |_| ());
    assert!(sent.unwrap().verified && received.unwrap().verified);
    assert_eq!(control.refused(), Some(recreated));
}

/// The wire of 1987 knows no pause: what has begun is ended, and nothing new begins.
#[test]
fn the_old_wire_is_paused_between_buffers() {
    let control = Control::new();
    control.pause();
    let options = |control: Option<&Control>| {
        let mut options = Options::new(Wire::Rfc998);
        options.network.bind = Some([127, 0, 0, 1].into());
        options.control = control.cloned();
        options
    };
    let (sends, receives) = (options(Some(&control)), options(None));
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (progress, reported) = channel();
    let (tickets, _) = channel();
    let mut watch = Watch { tickets: tickets.clone(), progress };
    let sender = thread::spawn(move || {
        let source = Source::reader("zeros", std::io::Read::take(std::io::repeat(0), SIZE as u64));
        let there = Rendezvous::Passive(address.to_string());
        netblt::send(source, &there, &sends, &mut watch, &Cancel::default())
    });
    let (none, _unheard) = channel();
    let mut watch = Watch { tickets, progress: none };
    let receiver = thread::spawn(move || {
        let there = Rendezvous::Active(address.to_string());
        let destination = Destination::writer(std::io::sink());
        // The peer may not listen yet.
        thread::sleep(Duration::from_millis(300));
        netblt::receive(destination, &there, &receives, &mut watch, &Cancel::default())
    });
    let mut reports = 0;
    for progress in reported {
        reports += 1;
        if reports <= 6 {
            assert_eq!(progress.stats.data_packets_sent, 0, "{progress:?}");
        }
        if reports == 6 {
            control.resume();
        }
    }
    assert!(reports > 6, "{reports}");
    assert_eq!(sender.join().unwrap().unwrap().bytes, SIZE as u64);
    assert_eq!(receiver.join().unwrap().unwrap().bytes, SIZE as u64);
}
