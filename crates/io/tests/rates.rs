//! The rates that a server keeps, over real sockets. A machine that is busy makes everything
//! slower, so that no test asks how soon something is done: only how much was moved in a time at
//! most, and by one client while another one moved so much. It is a program of its own: beside
//! other tests both clients would be slower than the rates that are looked at.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

mod serving;

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netblt::serve::client::{Client, Fetch};
use netblt::serve::{AuthorizedClients, Permissions, Service};
use netblt::{Cancel, Destination, Rate, StaticKey};

use serving::{Deaf, Host, bytes};

fn static_key(number: u8) -> StaticKey {
    StaticKey::from_bytes([number; 32])
}

/// A server that lets in the keys 1 and 2, each with this rate, if it is one.
fn host(total: Option<Rate>, each: Option<Rate>) -> Host {
    Host::start(|service: &mut Service| {
        let mut permissions = Permissions::new(service.permissions.root.clone());
        permissions.max_rate = each;
        let clients = (1..=2).map(|number| (static_key(number).public(), permissions.clone()));
        let (members, none) = AuthorizedClients::new(static_key(9), clients.collect());
        assert!(none.is_empty());
        (service.members, service.max_rate) = (Some(members), total);
    })
}

fn as_key(host: &Host, number: u8) -> Host {
    host.client(host.calling(static_key(number), static_key(9).public()))
}

/// Counts what comes, and ends a fetch once something is over.
struct Count<'a> {
    bytes: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Write for Count<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.over.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("it is over"));
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// So many bytes at this rate take at least so long, but for what a twentieth more makes.
fn least(bytes: u64, rate: Rate) -> Duration {
    rate.time_for(bytes) * 20 / 21
}

#[test]
fn a_keys_rate_bounds_its_uploads_in_one_session() {
    let rate = Rate::from_bits_per_second(20_000_000);
    let host = host(None, Some(rate));
    let client = as_key(&host, 1).in_session();
    let file = client.directory.path().join("f");
    fs::write(&file, bytes(512 << 10, 1)).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for number in 0..16 {
            let (client, file) = (&client, &file);
            scope.spawn(move || {
                assert!(client.put(&[file], &format!("f{number}")).unwrap().verified);
            });
        }
    });
    let took = start.elapsed();
    let most = least(16 * (512 << 10), rate);
    assert!(took >= most, "{took:?}, and {most:?} are the least at this rate");
}

#[test]
fn a_keys_rate_bounds_one_put_after_the_other() {
    let rate = Rate::from_bits_per_second(4_000_000);
    let host = host(None, Some(rate));
    let client = as_key(&host, 1);
    let file = client.directory.path().join("f");
    fs::write(&file, bytes(256 << 10, 1)).unwrap();
    let start = Instant::now();
    for number in 0..6 {
        assert!(client.put(&[&file], &format!("f{number}")).unwrap().verified);
    }
    let took = start.elapsed();
    let most = least(6 * (256 << 10), rate);
    assert!(took >= most, "{took:?}, and {most:?} are the least at this rate");
}

#[test]
fn a_servers_rate_bounds_all_uploads_and_downloads() {
    let rate = Rate::from_bits_per_second(20_000_000);
    let host = host(Some(rate), None);
    fs::write(host.root("file"), bytes(2 << 20, 6)).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for number in 1..=2 {
            let host = &host;
            scope.spawn(move || {
                let client = as_key(host, number).in_session();
                let file = client.directory.path().join("f");
                fs::write(&file, bytes(2 << 20, number)).unwrap();
                let (client, file) = (&client, &file);
                thread::scope(|scope| {
                    scope.spawn(move || {
                        assert!(client.put(&[file], &format!("f{number}")).unwrap().verified);
                    });
                    scope.spawn(move || {
                        let to = tempfile::tempdir().unwrap();
                        assert!(client.get("file", to.path()).unwrap().verified);
                    });
                });
            });
        }
    });
    let took = start.elapsed();
    let most = least(4 * (2 << 20), rate);
    assert!(took >= most, "{took:?}, and {most:?} are the least at this rate");
}

/// One key reads a megabyte again and again, four times at once; the other fetches what is large.
#[test]
fn a_client_is_not_starved_by_one_that_asks_again_and_again() {
    let host = host(Some(Rate::from_bits_per_second(40_000_000)), None);
    fs::write(host.root("small"), bytes(1 << 20, 1)).unwrap();
    fs::write(host.root("large"), bytes(64 << 20, 2)).unwrap();
    let (over, one, two) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let fetch = |client: &Host, name: &str, count: &AtomicU64| counted(client, name, count, &over);
    thread::scope(|scope| {
        let first = as_key(&host, 1);
        for _ in 0..4 {
            let (fetch, over, one) = (&fetch, &over, &one);
            let first = first.client(first.rendezvous.clone());
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    fetch(&first, "small", one);
                }
            });
        }
        let (fetch, two) = (&fetch, &two);
        let second = as_key(&host, 2);
        scope.spawn(move || fetch(&second, "large", two));
        // Both have begun; and from then on each has its part of what both have.
        wait(|| one.load(Ordering::Relaxed) > 2 << 20 && two.load(Ordering::Relaxed) > 0);
        let at = || (one.load(Ordering::Relaxed), two.load(Ordering::Relaxed));
        let before = at();
        wait(|| at().0 + at().1 > before.0 + before.1 + (20 << 20));
        let (one, two) = (at().0 - before.0, at().1 - before.1);
        over.store(true, Ordering::Relaxed);
        assert!(two * 10 >= (one + two) * 4, "{two} bytes beside {one}");
    });
}

/// Fetches a file. What is over by then ends as an error.
fn counted(client: &Host, name: &str, count: &AtomicU64, over: &AtomicBool) {
    let path = name.as_bytes().to_vec();
    let fetch = Fetch { path, name: name.into(), trees: false, bytes: None, data: None };
    let (mut read, write) = std::io::pipe().unwrap();
    let cancel = Cancel::default();
    thread::scope(|scope| {
        let cancel = &cancel;
        scope.spawn(move || {
            let server = Client { cancel, ..client.server() };
            let _ = server.get(&fetch, Destination::writer(write), &mut Deaf);
        });
        let _ = std::io::copy(&mut read, &mut Count { bytes: count, over });
        drop(read);
        if over.load(Ordering::Relaxed) {
            cancel.abort();
        }
    });
}

/// Waits for something that happens, however slow the machine is.
fn wait(until: impl Fn() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(300), "it does not happen");
        thread::sleep(Duration::from_millis(20));
    }
}
