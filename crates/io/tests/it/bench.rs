//! The test application end to end over loopback: both wires, both directions, several at once.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use netblt::bench::{self, BenchObserver, BenchService, Load, Outcome};
use netblt::{Cancel, Error, Observer, Options, Progress, Rendezvous, Ticket, Warning};
use netblt_proto::config::{FixedRate, Policy, Role, Wire};
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::{Burst, Parameters};

fn options(wire: Wire) -> Options {
    let mut options = Options::new(wire);
    options.network.bind = Some([127, 0, 0, 1].into());
    options.network.packet_bytes = Some(1000);
    options.settings.death_timer = Duration::from_secs(20);
    // 100 Mbit/s: enough to be over soon, and nothing that loopback would lose.
    let pace = FixedRate::bursts(Burst { packets: 12, interval: Duration::from_millis(1) });
    options.settings.policy = Policy::Fixed(pace.expect("it has an interval"));
    (options.buffers.bytes, options.buffers.count) = (1 << 16, 8);
    options
}

struct Ear {
    tickets: Sender<Ticket>,
    results: Sender<Result<Outcome, Error>>,
}

impl BenchObserver for Ear {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        self.tickets.send(ticket.clone()).expect("the test waits");
        Ok(())
    }
    fn opened(&mut self, _: SocketAddr, _: Role, _: &Parameters) {}
    fn warn(&mut self, error: &Error) {
        panic!("{error}");
    }
    fn closed(&mut self, _: SocketAddr, result: Result<Outcome, Error>) {
        self.results.send(result).expect("the test waits");
    }
}

struct Quiet;

impl Observer for Quiet {
    fn listening(&mut self, _: &Ticket) -> std::io::Result<()> {
        Ok(())
    }
    fn connected(&mut self, _: &str) {}
    fn progress(&mut self, _: &Progress) {}
    fn silent(&mut self, _: bool) {}
    fn restarted(&mut self) {}
    fn warn(&mut self, warning: &Warning) {
        panic!("{warning}");
    }
}

type Results = Receiver<Result<Outcome, Error>>;

/// Runs `test` against a server; answers with what the server saw.
fn with_server(wire: Wire, once: bool, test: impl FnOnce(&Ticket)) -> (Results, Result<(), Error>) {
    with_server_of(options(wire), once, test)
}

fn with_server_of(
    options: Options,
    once: bool,
    test: impl FnOnce(&Ticket),
) -> (Results, Result<(), Error>) {
    let (tickets, ticket) = channel();
    let (results, seen) = channel();
    let cancel = Cancel::default();
    let server = std::thread::spawn({
        let cancel = cancel.clone();
        move || {
            let service = BenchService { private: false, once };
            let mut ear = Ear { tickets, results };
            bench::serve(service, &options, &mut ear, &cancel)
        }
    });
    let ticket = ticket.recv_timeout(Duration::from_secs(10)).expect("the server listens");
    test(&ticket);
    if !once {
        cancel.cancel();
    }
    (seen, server.join().expect("the server lives"))
}

fn run(wire: Wire, role: Role, load: Load, ticket: &Ticket) -> Result<Outcome, Error> {
    run_with(&options(wire), role, load, ticket)
}

fn run_with(options: &Options, role: Role, load: Load, ticket: &Ticket) -> Result<Outcome, Error> {
    let rendezvous = match options.wire {
        Wire::Sealed => Rendezvous::Connect(ticket.clone()),
        Wire::Rfc998 => Rendezvous::Active(ticket.addresses[0].clone()),
    };
    let cancel = Cancel::default();
    bench::run(role, load, &rendezvous, options, &mut Quiet, &cancel)
}

#[test]
fn bytes_go_either_way_on_either_wire() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for role in [Role::Sender, Role::Receiver] {
            let (seen, ended) = with_server(wire, true, |ticket| {
                let outcome = run(wire, role, Load::Bytes(1_000_003), ticket).expect("a test");
                assert_eq!((outcome.role, outcome.summary.bytes), (role, 1_000_003));
                assert_eq!(outcome.parameters.packet_bytes, 1000);
                // `rfc998` cannot tell its sender.
                let has_verdict = (wire, role) != (Wire::Rfc998, Role::Sender);
                assert_eq!(outcome.summary.verified, has_verdict, "{wire:?} {role:?}");
                assert_eq!(outcome.data_timeouts.is_some(), has_verdict);
            });
            ended.expect("it ends by itself after one test");
            let outcome = seen.recv().expect("one test").expect("it succeeded");
            assert_eq!(outcome.summary.bytes, 1_000_003);
            assert_ne!(outcome.role, role);
        }
    }
}

#[test]
fn a_test_of_a_given_time_ends_in_time_and_says_how_much() {
    for role in [Role::Sender, Role::Receiver] {
        let (seen, _) = with_server(Wire::Sealed, false, |ticket| {
            let load = Load::Time(Duration::from_millis(300));
            let outcome = run(Wire::Sealed, role, load, ticket).expect("a test");
            // 12 Mbyte/s for that long, and what was begun; however slow the machine is.
            assert!(outcome.summary.bytes > 100_000, "{}", outcome.summary.bytes);
            assert!(outcome.summary.bytes < 4_500_000, "{}", outcome.summary.bytes);
            assert!(outcome.summary.verified);
        });
        assert_eq!(seen.try_iter().count(), 1);
    }
}

#[test]
fn a_receivers_ceiling_holds_for_a_fair_sender_at_the_other_end() {
    let ceiling = Rate::from_bits_per_second(8_000_000);
    for wire in [Wire::Sealed, Wire::Rfc998] {
        let fair = |ceiling| {
            let mut options = options(wire);
            (options.settings.policy, options.network.burst) = (Policy::Fair { ceiling }, None);
            options
        };
        for (role, here, there) in
            [(Role::Receiver, Some(ceiling), None), (Role::Sender, None, Some(ceiling))]
        {
            let (_, ended) = with_server_of(fair(there), true, |ticket| {
                let load = Load::Bytes(400_000);
                let outcome = run_with(&fair(here), role, load, ticket).expect("a test");
                let rate = outcome.summary.real_bps;
                assert!(rate < 8_400_000.0, "{wire:?} {role:?}: {rate} bit/s");
            });
            ended.expect("it ends by itself after one test");
        }
    }
}

#[test]
fn a_slow_test_does_not_finish_a_large_buffer_first() {
    let (seen, _) = with_server(Wire::Sealed, false, |ticket| {
        // 0.8 Mbit/s: a buffer of 64 KiB would take two thirds of a second.
        let pace = FixedRate::bursts(Burst { packets: 1, interval: Duration::from_millis(10) });
        let mut options = options(Wire::Sealed);
        options.settings.policy = Policy::Fixed(pace.expect("it has an interval"));
        let load = Load::Time(Duration::from_millis(300));
        let rendezvous = Rendezvous::Connect(ticket.clone());
        let cancel = Cancel::default();
        let outcome = bench::run(Role::Sender, load, &rendezvous, &options, &mut Quiet, &cancel)
            .expect("a test");
        assert_eq!(outcome.parameters.buffer_bytes, 1 << 16);
        assert!(outcome.summary.bytes < 60_000, "{}", outcome.summary.bytes);
        assert!(outcome.summary.verified);
    });
    assert_eq!(seen.try_iter().count(), 1);
}

#[test]
fn many_at_once_are_served_by_one_server() {
    const STREAMS: usize = 8;
    let (seen, ended) = with_server(Wire::Sealed, false, |ticket| {
        std::thread::scope(|scope| {
            for i in 0..STREAMS {
                let role = if i % 2 == 0 { Role::Sender } else { Role::Receiver };
                scope.spawn(move || {
                    let outcome = run(Wire::Sealed, role, Load::Bytes(300_000), ticket);
                    assert!(outcome.expect("a test").summary.verified);
                });
            }
        });
    });
    assert!(matches!(ended, Err(Error::Interrupted)));
    assert_eq!(seen.try_iter().filter(Result::is_ok).count(), STREAMS);
}

/// Each asks for half of the server's memory.
#[test]
fn clients_that_need_much_memory_share_it() {
    const STREAMS: usize = 6;
    let mut options = options(Wire::Sealed);
    (options.buffers.bytes, options.buffers.count) = (64 << 20, 16);
    let options = &options;
    let (seen, ended) = with_server_of(options.clone(), false, |ticket| {
        std::thread::scope(|scope| {
            for i in 0..STREAMS {
                let role = if i % 2 == 0 { Role::Sender } else { Role::Receiver };
                scope.spawn(move || {
                    let outcome = run_with(options, role, Load::Bytes(3_000_000), ticket);
                    assert!(outcome.expect("a test").summary.verified);
                });
            }
        });
    });
    assert!(matches!(ended, Err(Error::Interrupted)));
    assert_eq!(seen.try_iter().filter(Result::is_ok).count(), STREAMS);
}
