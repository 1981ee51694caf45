//! Many requests in one session with a server (`docs/protocol §8.8`): one opening, everything at
//! the same time, and what becomes of it when the server goes, is full or admits no more clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::serving::{Deaf, Host, bytes, denial};
use netblt::serve::client::{Client, RemoveOptions};
use netblt::serve::{AuthorizedClients, Permissions, Piece, Session, Verdict};
use netblt::{Error, Rendezvous, RequestErrorKind, Source, StaticKey};
use netblt_proto::config::Secret;

#[test]
fn requests_of_a_session_come_from_one_address_and_are_logged_one_by_one() {
    let host = Host::start(|_| {}).in_session();
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    for number in 0..20 {
        fs::write(here.path().join(format!("tree/{number}")), bytes(number * 5000, 1)).unwrap();
    }
    let content = bytes(3 << 20, 2);
    fs::write(here.path().join("large"), &content).unwrap();
    assert_eq!(host.stat("").unwrap().sort, netblt::serve::EntryType::Directory);
    assert!(
        host.put(&[&here.path().join("tree"), &here.path().join("large")], "").unwrap().verified
    );
    let server = host.server();
    // Of unknown length, and there when it is whole.
    let stream = Source::reader("s", Cursor::new(content.clone()));
    assert!(server.put_stream(stream, b"stream", &mut Deaf).unwrap().verified);
    assert_eq!(fs::read(host.root("stream")).unwrap(), content);
    assert_eq!(host.names(""), ["large", "stream", "tree"]);
    assert_eq!(server.make_directory(b"a/b/c", true, &mut Deaf).unwrap(), 3);
    server.rename(b"stream", b"a/stream", false, &mut Deaf).unwrap();
    assert_eq!(server.copy(b"tree", b"a/tree", true, &mut Deaf).unwrap(), 21);
    let piece = |path: &str, offset, bytes| Piece { path: path.into(), offset, bytes };
    let read = server.read(&[piece("large", 7, 1 << 20), piece("none", 0, 1)], &mut Deaf).unwrap();
    assert_eq!(read[0].as_ref().unwrap().1, content[7..7 + (1 << 20)]);
    assert!(matches!(read[1], Err(Error::Denied { what: RequestErrorKind::NotFound, .. })));
    let back = tempfile::tempdir().unwrap();
    assert!(host.get("a/tree", back.path()).unwrap().verified);
    assert_eq!(fs::read(back.path().join("tree/19")).unwrap(), bytes(95_000, 1));
    assert_eq!(denial(host.stat("none")), RequestErrorKind::NotFound);
    assert_eq!(
        denial(server.remove(b"a", RemoveOptions::EMPTY_DIRECTORY, &mut Deaf)),
        RequestErrorKind::NotEmpty
    );
    server.remove(b"a", RemoveOptions { empty_directory: true, tree: true }, &mut Deaf).unwrap();
    assert!(!host.root("a").exists());

    let records = host
        .accounts(|records| records.last().is_some_and(|last| last.path == b"a" && last.bytes > 0));
    let peers: BTreeSet<_> = records.iter().map(|account| account.peer).collect();
    assert_eq!(peers.len(), 1, "{records:?}");
    let count =
        |request: &str| records.iter().filter(|account| account.request.name() == request).count();
    for (request, times) in [("stat", 2), ("put", 2), ("receive", 2), ("list", 1), ("read", 1)] {
        assert_eq!(count(request), times, "{request}");
    }
    assert_eq!(count("none"), 0, "the session itself is nothing that was asked");
    let (get, denied) = (count("get"), Verdict::Denied(RequestErrorKind::NotFound, String::new()));
    assert_eq!(get, 1);
    assert!(records.iter().any(|account| {
        std::mem::discriminant(&account.verdict) == std::mem::discriminant(&denied)
    }));
}

#[test]
fn requests_of_many_threads_in_one_session_are_all_answered() {
    let host = Host::start(|_| {}).in_session();
    for number in 0..100 {
        fs::write(host.root(&format!("f{number}")), bytes(number + 1, 3)).unwrap();
    }
    let begin = Barrier::new(12);
    thread::scope(|scope| {
        for asker in 0..12 {
            let (host, begin) = (&host, &begin);
            scope.spawn(move || {
                begin.wait();
                for number in (asker..100).step_by(12) {
                    let entry = host.stat(&format!("f{number}")).unwrap();
                    assert_eq!(entry.length, number as u64 + 1);
                }
            });
        }
    });
    let records = host.accounts(|records| records.len() == 100);
    assert!(records.iter().all(|account| account.verdict == Verdict::Done));
    let mut paths: Vec<_> = records.iter().map(|account| &account.path).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 100, "each once");
    let peers: BTreeSet<_> = records.iter().map(|account| account.peer).collect();
    assert_eq!(peers.len(), 1);
}

#[test]
fn a_session_is_one_connection_and_closes_with_its_owner() {
    let host = Host::start(|service| service.max_sessions = 1).in_session();
    (0..30).for_each(|_| _ = host.stat("").unwrap());
    let other = host.client(host.rendezvous.clone());
    assert_eq!(denial(other.stat("")), RequestErrorKind::Busy);
    host.session.as_ref().unwrap().close();
    let start = Instant::now();
    while other.stat("").is_err() {
        assert!(start.elapsed() < Duration::from_secs(9), "it got no QUIT");
    }
    // And it is opened again.
    let start = Instant::now();
    while host.stat("").is_err() {
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    // An idle session makes room without a message when another client needs it.
    let start = Instant::now();
    while other.stat("").is_err() {
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_session_has_a_bounded_number_of_requests_at_once() {
    let host = Host::start(|_| {}).in_session();
    fs::write(host.root("f"), "x").unwrap();
    host.stat("f").unwrap();
    // Announcements do not wait; requests with slow readers do.
    let begin = Barrier::new(40);
    let results: Vec<_> = thread::scope(|scope| {
        let asks = (0..40).map(|_| {
            let (host, begin) = (&host, &begin);
            scope.spawn(move || {
                begin.wait();
                host.stat("f").map(|entry| entry.length)
            })
        });
        asks.collect::<Vec<_>>().into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
    for result in results {
        let sort = match result {
            Ok(length) => {
                assert_eq!(length, 1);
                "done".to_owned()
            }
            Err(error) => format!("{error:?}"),
        };
        *sorts.entry(sort).or_default() += 1;
    }
    assert!(sorts.keys().all(|sort| sort == "done"), "the library waits: {sorts:?}");
}

#[test]
fn a_restarted_server_is_asked_again() {
    let (mut port, mut known) = (0, None);
    for round in 0..3 {
        let host = Host::start_at(port, |service| service.secret = Some(Secret([5; 32])));
        fs::write(host.root("f"), bytes(round + 1, 1)).unwrap();
        let Rendezvous::Connect(ticket) = &host.rendezvous else { unreachable!() };
        let address: SocketAddr = ticket.addresses[0].parse().unwrap();
        port = address.port();
        // The session of the first one's client goes on with the others.
        let session =
            &*known.get_or_insert_with(|| Session::new(host.rendezvous.clone(), &host.options));
        let server = Client { session: Some(session), ..host.server() };
        assert_eq!(server.stat(b"f", &mut Deaf).unwrap().length, round as u64 + 1);
        server.make_directory(b"d", false, &mut Deaf).unwrap();
    }
}

#[test]
fn a_removed_key_gets_no_more_answers_in_its_open_session() {
    let key = |number| StaticKey::from_bytes([number; 32]);
    let directory = tempfile::tempdir().unwrap();
    let (members, _) =
        AuthorizedClients::new(key(9), vec![(key(1).public(), Permissions::new(directory.path()))]);
    let keys = members.clone();
    let host = Host::start(move |service| service.members = Some(keys));
    let client = host.client(host.calling(key(1), key(9).public())).in_session();
    client.stat("").unwrap();
    members.change(Vec::new());
    let start = Instant::now();
    loop {
        let asked = client.stat("");
        let error = asked.expect_err("the key is gone");
        // At first the branch is refused; then the session is over, and no other opens.
        if !matches!(error, Error::Denied { what: RequestErrorKind::Forbidden, .. }) {
            assert!(matches!(error, Error::Connect { .. } | Error::Ended(_)), "{error:?}");
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the session never ended");
    }
}

/// The server ends a session that it refuses while the first request is under way. Each attempt
/// says why and is over long before the death timer of a minute, whichever packet is first.
#[test]
fn a_refused_session_says_why_and_is_closed_at_once() {
    let key = |number| StaticKey::from_bytes([number; 32]);
    let directory = tempfile::tempdir().unwrap();
    let mut permissions = Permissions::new(directory.path());
    permissions.expires = Some(SystemTime::UNIX_EPOCH);
    let (members, _) = AuthorizedClients::new(key(9), vec![(key(1).public(), permissions)]);
    let expired = Host::start(|service| service.members = Some(members));
    let full = Host::start(|service| service.max_sessions = 1).in_session();
    full.stat("").unwrap();
    let calls = [
        (expired.calling(key(1), key(9).public()), &expired, RequestErrorKind::Forbidden),
        (full.rendezvous.clone(), &full, RequestErrorKind::Busy),
    ];
    for (rendezvous, host, expected) in calls {
        let mut client = host.client(rendezvous);
        client.options.settings.death_timer = Duration::from_secs(60);
        for attempt in 0..30 {
            let session = Session::new(client.rendezvous.clone(), &client.options);
            let server = Client { session: Some(&session), ..client.server() };
            let start = Instant::now();
            let denied = match attempt % 2 {
                0 => server.stat(b"", &mut Deaf).map(drop),
                _ => server.make_directory(b"d", false, &mut Deaf).map(drop),
            };
            // A session that has been idle makes room after a while: then it is not refused.
            let done = expected == RequestErrorKind::Busy && denied.is_ok();
            assert!(done || denial(denied) == expected, "attempt {attempt}");
            session.close();
            let took = start.elapsed();
            assert!(took < Duration::from_secs(30), "attempt {attempt} took {took:?}");
            if expected == RequestErrorKind::Busy {
                full.stat("").unwrap();
            }
        }
    }
}

/// Sixty at once, which is more than a server has room for beside each other: some wait here, and
/// none gets an error.
#[test]
fn many_uploads_at_once_in_a_session_all_arrive() {
    let host = Host::start(|_| {}).in_session();
    fs::create_dir(host.root("d")).unwrap();
    thread::scope(|scope| {
        let host = &host;
        let putting = |number: usize| {
            move || {
                let data = Cursor::new(bytes(10_000 + number, number as u8));
                let source = Source::reader("own", data);
                let path = format!("d/{number}");
                host.server().put_file(source, path.as_bytes(), &mut Deaf)
            }
        };
        let puts: Vec<_> = (0..60).map(|number| scope.spawn(putting(number))).collect();
        for put in puts {
            assert!(put.join().unwrap().unwrap().verified);
        }
    });
    for number in 0..60 {
        let came = fs::read(host.root(&format!("d/{number}"))).unwrap();
        assert_eq!(came, bytes(10_000 + number, number as u8));
    }
    // Exactly that name: in a directory of it nothing comes.
    let here = host.directory.path().join("file");
    fs::write(&here, "x").unwrap();
    for path in ["d", "", "/"] {
        for source in [Source::path(&here), Source::reader("own", Cursor::new("x"))] {
            let put = host.server().put_file(source, path.as_bytes(), &mut Deaf);
            assert_eq!(denial(put), RequestErrorKind::IsADirectory, "{path}");
        }
    }
    assert!(host.server().put_file(Source::path(&here), b"d/x", &mut Deaf).unwrap().verified);
    assert_eq!((host.names("d").len(), host.names("")), (61, vec!["d".to_owned()]));
}
