//! What comes from a server of files and goes to it over several streams (`docs/protocol
//! §4.11`). Each transfer is held to a rate at which it takes a second, so that streams begin.

use std::fs;
use std::thread;

use netblt::serve::client::{Fetch, into_directory};
use netblt::{Options, ParallelStreams, Policy, Rate, Summary};

use crate::serving::{self, Deaf, Host, bytes};

/// What goes over in about a second, and what is large beside it.
const BYTES: usize = 6_000_000;
const LARGE: usize = 70_000_000;

fn options(streams: u8, bytes: usize) -> Options {
    let mut options = serving::options();
    options.settings.streams = ParallelStreams::Most(streams);
    options.settings.policy =
        Policy::Fair { ceiling: Some(Rate::from_bytes_per_second(bytes as u64)) };
    if bytes < LARGE {
        options.buffers.bytes = 1 << 16;
        options.buffers.count = 16;
    }
    options
}

/// A server, and one who asks it, that take so many streams.
fn host(server: u8, client: u8, bytes: usize) -> Host {
    let mut host = Host::start_with(options(server, bytes), |_| {});
    host.options = options(client, bytes);
    host
}

/// How many streams there were; each has carried something.
fn streams(summary: &Summary) -> usize {
    let counts = summary.streams.iter();
    let counts: Vec<u64> =
        counts.map(|stream| stream.data_packets_sent + stream.data_packets_received).collect();
    assert!(counts.iter().all(|packets| *packets > 20), "{counts:?}");
    assert!(summary.verified);
    counts.len()
}

fn fetch(host: &Host, name: &str, bytes: usize, to: &std::path::Path) -> Summary {
    let path = name.as_bytes().to_vec();
    let fetch =
        Fetch { path, name: name.into(), trees: true, bytes: Some(bytes as u64), data: None };
    host.server().get(&fetch, into_directory(to), &mut Deaf).unwrap()
}

#[test]
fn transfers_use_the_smaller_number_of_streams_of_both_ends() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/large"), bytes(BYTES, 1)).unwrap();
    fs::write(here.path().join("tree/small"), bytes(99, 2)).unwrap();
    for (server, client, count) in [(3, 3, 3), (2, 4, 2), (1, 3, 0), (3, 1, 0)] {
        let host = host(server, client, BYTES);
        let put = host.put(&[&here.path().join("tree")], "tree").unwrap();
        assert_eq!(streams(&put), count, "put, {server} and {client}");
        let back = tempfile::tempdir().unwrap();
        let got = fetch(&host, "tree", BYTES, back.path());
        assert_eq!(streams(&got), count, "get, {server} and {client}");
        for place in [host.root("tree"), back.path().join("tree")] {
            assert!(fs::read(place.join("large")).unwrap() == bytes(BYTES, 1));
            assert!(fs::read(place.join("small")).unwrap() == bytes(99, 2));
        }
        // A request without data takes one.
        assert_eq!(host.names("tree"), ["large", "small"]);
    }
}

#[test]
fn several_at_once_have_streams_of_their_own() {
    let here = tempfile::tempdir().unwrap();
    let host = host(3, 3, BYTES);
    let names = ["a", "b", "c", "d"];
    for (at, name) in names.iter().enumerate() {
        fs::write(here.path().join(name), bytes(BYTES, at as u8)).unwrap();
    }
    for back in [false, true] {
        let to = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for name in names {
                let (host, here, to) = (&host, here.path(), to.path());
                scope.spawn(move || {
                    let moved = match back {
                        false => host.put(&[&here.join(name)], name).unwrap(),
                        true => fetch(host, name, BYTES, to),
                    };
                    assert_eq!(streams(&moved), 3, "{name}");
                });
            }
        });
        for (at, name) in names.iter().enumerate() {
            let place = if back { to.path().join(name) } else { host.root(name) };
            assert!(fs::read(place).unwrap() == bytes(BYTES, at as u8), "{name}");
        }
    }
}

#[test]
fn a_large_file_of_a_session_has_streams_if_its_connection_has_room() {
    let here = tempfile::tempdir().unwrap();
    let large = here.path().join("large");
    fs::write(&large, bytes(LARGE, 5)).unwrap();
    for (sessions, count) in [(4, 3), (1, 0)] {
        let mut own = options(3, LARGE);
        own.network.port = 0;
        let mut host = Host::start_with(own, |service| service.max_sessions = sessions);
        host.options = options(3, LARGE);
        let host = host.in_session();
        // It stands when something was asked.
        assert_eq!(host.names(""), Vec::<String>::new());
        let put = host.put(&[&large], "large").unwrap();
        assert_eq!(streams(&put), count, "put, {sessions}");
        assert!(fs::read(host.root("large")).unwrap() == bytes(LARGE, 5));
        if count > 0 {
            let back = tempfile::tempdir().unwrap();
            assert_eq!(streams(&fetch(&host, "large", LARGE, back.path())), count, "get");
            assert!(fs::read(back.path().join("large")).unwrap() == bytes(LARGE, 5));
        }
    }
}
