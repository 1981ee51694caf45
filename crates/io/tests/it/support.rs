//! Two ends in one process, each in its own thread.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use netblt::net::connections::Oversize;
use netblt::net::dialer::{Candidate, Dialer};
use netblt::net::event_loop::{self, Application, Feed};
use netblt::net::io_context::{Clock, IoContext};
use netblt::net::poller::Poller;
use netblt::net::socket::{Bind, Socket};
use netblt::{
    Cancel, Destination, Error, Observer, Options, Progress, Rendezvous, Source, Summary, Ticket,
    Warning,
};
use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::{End, Verdict};

/// Options for a transfer over loopback.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.network.bind = Some("127.0.0.1".parse().unwrap());
    options.settings.death_timer = Duration::from_secs(60);
    options.buffers.count = 8;
    options
}

/// Content that no two places share.
pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut content = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut content);
    content
}

type Outcome = Result<Summary, Error>;

/// An observer that a test looks over the shoulder of.
pub(crate) struct Watcher<'a> {
    sender: bool,
    bytes: u64,
    restarts: u32,
    cancel: Cancel,
    ticket: Sender<Ticket>,
    look: &'a (dyn Fn(&Watcher<'_>) + Sync),
}

impl Watcher<'_> {
    /// Which end this is.
    pub(crate) fn is_sender(&self) -> bool {
        self.sender
    }
    /// File bytes that moved so far.
    pub(crate) fn moved(&self) -> u64 {
        self.bytes
    }
    /// Stops this end.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Observer for Watcher<'_> {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.ticket.send(ticket.to_string().parse().unwrap()).unwrap();
        Ok(())
    }
    fn connected(&mut self, peer: &str) {
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
    }
    fn progress(&mut self, progress: &Progress) {
        self.bytes = progress.bytes;
        (self.look)(self);
    }
    fn silent(&mut self, _silent: bool) {}
    fn restarted(&mut self) {
        self.restarts += 1;
    }
    fn warn(&mut self, warning: &Warning) {
        assert!(matches!(warning, Warning::Kept(_)), "{warning}");
    }
}

/// A whole transfer; `look` is called with every report of progress. Only the end that listens
/// writes a trace.
pub(crate) fn transfer(
    source: Source,
    destination: Destination,
    sender_listens: bool,
    options: &Options,
    look: impl Fn(&Watcher<'_>) + Sync,
) -> (Outcome, Outcome) {
    let (ticket, tickets) = channel();
    let watcher = |sender| Watcher {
        sender,
        bytes: 0,
        restarts: 0,
        cancel: Cancel::default(),
        ticket: ticket.clone(),
        look: &look,
    };
    let (source, destination) = (Mutex::new(Some(source)), Mutex::new(Some(destination)));
    let run = |mut watcher: Watcher<'_>, rendezvous: &Rendezvous, options: &Options| {
        let cancel = watcher.cancel.clone();
        if watcher.sender {
            let source = source.lock().unwrap().take().unwrap();
            netblt::send(source, rendezvous, options, &mut watcher, &cancel)
        } else {
            let destination = destination.lock().unwrap().take().unwrap();
            netblt::receive(destination, rendezvous, options, &mut watcher, &cancel)
        }
    };
    let mut calling = options.clone();
    calling.trace = None;
    let (listens, calls) = (watcher(sender_listens), watcher(!sender_listens));
    thread::scope(|scope| {
        let listener = scope.spawn(|| run(listens, &Rendezvous::Listen, options));
        let rendezvous = Rendezvous::Connect(tickets.recv().unwrap());
        let called = run(calls, &rendezvous, &calling);
        let listened = listener.join().unwrap();
        if sender_listens { (listened, called) } else { (called, listened) }
    })
}

/// A receiver listens; a sender opens a connection and vanishes without a word; then `source` is
/// sent. Also returns how many restarts the receiver has seen.
pub(crate) fn transfer_after_a_crash(source: Source, to: &Path) -> (Outcome, Outcome, u32) {
    let (ticket, tickets) = channel();
    let look = |_: &Watcher<'_>| ();
    let watcher = |sender| Watcher {
        sender,
        bytes: 0,
        restarts: 0,
        cancel: Cancel::default(),
        ticket: ticket.clone(),
        look: &look,
    };
    let (mut receiver, mut sender) = (watcher(false), watcher(true));
    let destination = Destination::Directory(to.to_owned());
    let options = options();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let cancel = Cancel::default();
            let rendezvous = Rendezvous::Listen;
            let result =
                netblt::receive(destination, &rendezvous, &options, &mut receiver, &cancel);
            (result, receiver.restarts)
        });
        let ticket: Ticket = tickets.recv().unwrap();
        vanish(&ticket);
        let rendezvous = Rendezvous::Connect(ticket);
        let sent = netblt::send(source, &rendezvous, &options, &mut sender, &Cancel::default());
        let (received, restarts) = receiving.join().unwrap();
        (sent, received, restarts)
    })
}

/// A sender that is gone as soon as the other end waits for its data.
fn vanish(ticket: &Ticket) {
    struct Vanishing;
    impl Application for Vanishing {
        type Key = ();
        type Outcome = ();
        fn on_tick(&mut self, _: Instant) -> ControlFlow<(), Feed> {
            ControlFlow::Continue(Feed::All)
        }
        fn on_ready(&mut self, _: Instant, (): (), _: &mut Endpoint) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
        fn take(&mut self, _: Instant, (): (), event: Event, _: &mut Endpoint) -> ControlFlow<()> {
            match event {
                Event::Wanted(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
        fn on_io_error(
            &mut self,
            _: Instant,
            (): (),
            error: Error,
            _: &mut Endpoint,
        ) -> ControlFlow<()> {
            panic!("{error}");
        }
        fn path_limit(&mut self, _bytes: u32) {}
        fn on_oversize(
            &mut self,
            _: Instant,
            (): (),
            refused: &Oversize,
            _: &mut Endpoint,
        ) -> ControlFlow<()> {
            panic!("{refused:?}");
        }
    }
    let mut host = host(true);
    let mut config = Config::new(Wire::Sealed, Role::Sender);
    config.secret = Some(ticket.secret.clone());
    let address = ticket.addresses[0].parse().unwrap();
    let candidate = Candidate { address, config, entropy: [7; 32] };
    let mut dialer = Dialer::connect(vec![candidate], host.clock.now());
    event_loop::run(&mut dialer, &mut Vanishing, &mut host).unwrap();
}

fn host(segmentation: bool) -> IoContext {
    let address = Some("127.0.0.1".parse().unwrap());
    let mut socket = Socket::bind(&Bind { address, ..Bind::default() }).unwrap();
    if !segmentation {
        socket.disable_segmentation();
    }
    IoContext { socket, poller: Poller::new().unwrap(), clock: Clock::start(), trace: None }
}

/// `count` buffers of `size` bytes from memory to memory, without any disk.
pub(crate) fn blast(segmentation: bool, count: u64, size: usize) {
    let config = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([9; 32]));
        config.buffer_bytes = size as u32;
        config.table_bytes = 0;
        config.max_outstanding = 8;
        config
    };
    let mut passive = host(segmentation);
    let address = passive.socket.local();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let now = passive.clock.now();
            let mut dialer = Dialer::listen(config(Role::Receiver), now, [1; 32]);
            let mut app = Memory { count, size, ..Memory::default() };
            event_loop::run(&mut dialer, &mut app, &mut passive).unwrap();
            app
        });
        let mut active = host(segmentation);
        let config = config(Role::Sender);
        let candidate = Candidate { address, config, entropy: [2; 32] };
        let mut dialer = Dialer::connect(vec![candidate], active.clock.now());
        let mut app = Memory { count, size, ..Memory::default() };
        event_loop::run(&mut dialer, &mut app, &mut active).unwrap();
        assert_eq!(app.verdict, Some(true));
        assert_eq!(receiver.join().unwrap().filled, count);
    });
}

/// Either end of [`blast`].
#[derive(Default)]
struct Memory {
    count: u64,
    size: usize,
    free: VecDeque<Buffer>,
    filled: u64,
    verdict: Option<bool>,
}

impl Application for Memory {
    type Key = ();
    type Outcome = ();

    fn on_tick(&mut self, _: Instant) -> ControlFlow<(), Feed> {
        ControlFlow::Continue(Feed::All)
    }
    fn on_ready(&mut self, _: Instant, (): (), _: &mut Endpoint) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, (): (), event: Event, end: &mut Endpoint) -> ControlFlow<()> {
        if let Event::Closed(reason) = event {
            assert_eq!(reason, CloseReason::Finished);
            return ControlFlow::Break(());
        }
        match event {
            Event::Opened { .. } => {
                // The sender's are for nothing, and come back as such.
                (0..8).for_each(|_| end.offer(now, Buffer::new(self.size)));
            }
            Event::Wanted(number) if number.0 <= self.count => {
                let mut buffer = self.free.pop_front().unwrap_or_else(|| Buffer::new(self.size));
                buffer.space().copy_from_slice(&bytes(self.size, number.0 as u8));
                buffer.set_len(self.size);
                end.supply(now, number, buffer, number.0 == self.count);
                if number.0 == self.count {
                    let bytes = self.count * self.size as u64;
                    end.end(now, End { buffers: self.count, bytes, digest: [5; 32] });
                }
            }
            Event::Released(_, buffer) => self.free.push_back(buffer),
            Event::Filled(number, buffer) => {
                assert!(buffer.filled() == bytes(self.size, number.0 as u8));
                self.filled += 1;
                end.offer(now, buffer);
            }
            Event::Complete(claimed) => {
                let claimed = claimed.unwrap();
                assert_eq!(claimed.buffers, self.count);
                let (bytes, digest) = (claimed.bytes, claimed.digest);
                end.judge(now, Verdict { verified: true, bytes, digest, reason: String::new() });
            }
            Event::Finished(verdict) => self.verdict = verdict.map(|v| v.verified),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn on_io_error(
        &mut self,
        _: Instant,
        (): (),
        error: Error,
        _: &mut Endpoint,
    ) -> ControlFlow<()> {
        panic!("{error}");
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn on_oversize(
        &mut self,
        _: Instant,
        (): (),
        refused: &Oversize,
        _: &mut Endpoint,
    ) -> ControlFlow<()> {
        panic!("{refused:?}");
    }
}
