//! Transfers on Tokio's runtimes, and its streams as their ends.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

use std::time::Duration;

use netblt::{
    Cancel, Control, Destination, Error, Event, Options, Rate, Rendezvous, Source, Ticket, Transfer,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMIT: Duration = Duration::from_secs(60);

fn options() -> Options {
    let mut options = Options::default();
    options.network.bind = Some([127, 0, 0, 1].into());
    options
}

async fn listening(source: Source, options: Options) -> (Transfer, Ticket) {
    let cancel = Cancel::default();
    let mut sending = Transfer::send(source, Rendezvous::Listen, options, cancel).unwrap();
    let Some(Event::Listening(ticket)) = sending.event().await else { panic!("it listens") };
    (sending, ticket)
}

fn to(ticket: Ticket, destination: Destination) -> Transfer {
    let there = Rendezvous::Connect(ticket);
    Transfer::receive(destination, there, options(), Cancel::default()).unwrap()
}

/// What a task writes into a pipe comes out of another one, though either holds little.
async fn through_pipes() {
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7) as u8).collect();
    let (mut near, source) = tokio::io::duplex(1000);
    let (destination, mut far) = tokio::io::duplex(1000);
    let (sending, ticket) = listening(netblt::tokio::source("s", source), options()).await;
    let receiving = to(ticket, netblt::tokio::destination(destination));
    let feed = async {
        near.write_all(&data).await.unwrap();
        drop(near);
    };
    let drain = async {
        let mut got = Vec::new();
        // It ends, since it is shut down.
        far.read_to_end(&mut got).await.unwrap();
        got
    };
    let all = async { tokio::join!(feed, sending, receiving, drain) };
    let ((), sent, received, got) = tokio::time::timeout(LIMIT, all).await.unwrap();
    assert!(sent.unwrap().verified && received.unwrap().verified);
    assert!(got == data, "{} bytes came", got.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_tokio_are_ends_where_threads_are_many() {
    through_pipes().await;
}

#[tokio::test(flavor = "current_thread")]
async fn streams_of_tokio_are_ends_where_there_is_one_thread() {
    through_pipes().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_future_that_is_dropped_stops_its_transfer() {
    let control = Control::new();
    control.set_rate(Some(Rate::from_bits_per_second(8_000_000)));
    let mut slow = options();
    slow.control = Some(control);
    let source = Source::reader("zeros", std::io::Read::take(std::io::repeat(0), 1 << 30));
    let (mut sending, ticket) = listening(source, slow).await;
    let receiving = to(ticket, Destination::writer(std::io::sink()));
    let cancel = sending.cancel().clone();
    let moves = async { while !matches!(sending.event().await.unwrap(), Event::Progress(_)) {} };
    tokio::time::timeout(LIMIT, moves).await.unwrap();
    assert!(!sending.is_over());
    let short = tokio::time::timeout(Duration::from_millis(1), sending).await;
    assert!(short.is_err() && cancel.is_cancelled());
    let received = tokio::time::timeout(LIMIT, receiving).await.unwrap();
    assert!(matches!(&received, Err(Error::Ended(_))) && received.unwrap_err().is_retryable());
}
