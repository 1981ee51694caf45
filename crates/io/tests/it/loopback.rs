//! Whole transfers over real sockets and real files, small ones, without a look at the clock.

use std::fs;
use std::path::Path;
use std::time::Duration;

use netblt::{Burst, Destination, Error, FixedRate, Policy, Rate, Source};
use netblt_proto::api::CloseReason;

use crate::support::{self, Watcher, bytes, options, transfer};

/// One directory to send from, one to receive into.
fn places() -> (tempfile::TempDir, tempfile::TempDir) {
    (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
}

fn directory(path: &Path) -> Destination {
    Destination::Directory(path.to_owned())
}

#[test]
fn a_file_arrives_whichever_end_listens() {
    for sender_listens in [true, false] {
        let (from, to) = places();
        let content = bytes(5_000_000, 1);
        fs::write(from.path().join("data"), &content).unwrap();
        let source = Source::Paths(vec![from.path().join("data")]);
        let (sent, received) =
            transfer(source, directory(to.path()), sender_listens, &options(), |_| ());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(fs::read(to.path().join("data")).unwrap(), content);
        assert!(sent.verified && received.verified);
        assert_eq!((sent.bytes, sent.files), (content.len() as u64, 1));
        assert_eq!((received.bytes, received.files), (content.len() as u64, 1));
        assert_eq!(sent.digest, received.digest);
        assert!(sent.real_bps > 0.0 && sent.steady_bps > 0.0);
    }
}

#[test]
fn a_tree_of_files_of_all_sizes_arrives() {
    let (from, to) = places();
    let tree = from.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    let sizes = [0, 1, 1000, 1 << 16, (1 << 16) + 1, 300_000];
    for (i, size) in sizes.into_iter().cycle().take(60).enumerate() {
        let name = if i % 2 == 0 { format!("f{i}") } else { format!("a/b/f{i}") };
        fs::write(tree.join(name), bytes(size, i as u8)).unwrap();
    }
    let mut options = options();
    options.buffers.bytes = 1 << 16;
    options.buffers.count = 5;
    let source = Source::Paths(vec![tree.clone()]);
    let (sent, received) = transfer(source, directory(to.path()), true, &options, |_| ());
    assert_eq!((sent.unwrap().files, received.unwrap().files), (60, 60));
    assert!(to.path().join("tree/empty").is_dir());
    for (i, size) in sizes.into_iter().cycle().take(60).enumerate() {
        let name = if i % 2 == 0 { format!("f{i}") } else { format!("a/b/f{i}") };
        let arrived = fs::read(to.path().join("tree").join(name)).unwrap();
        assert_eq!(arrived, bytes(size, i as u8));
    }
}

#[test]
fn an_empty_file_arrives() {
    let (from, to) = places();
    fs::write(from.path().join("nothing"), b"").unwrap();
    let source = Source::Paths(vec![from.path().join("nothing")]);
    let (sent, received) = transfer(source, directory(to.path()), true, &options(), |_| ());
    assert!(sent.unwrap().verified && received.unwrap().verified);
    assert_eq!(fs::read(to.path().join("nothing")).unwrap(), b"");
}

#[test]
fn a_file_that_exists_stops_both_ends_and_stays() {
    let (from, to) = places();
    for (place, content) in [(&from, b"new"), (&to, b"old")] {
        fs::write(place.path().join("data"), content).unwrap();
    }
    let source = Source::Paths(vec![from.path().join("data")]);
    let mut options = options();
    options.settings.atomic = true;
    let (sent, received) = transfer(source, directory(to.path()), false, &options, |_| ());
    assert!(matches!(received, Err(Error::Exists(_))), "{received:?}");
    let Err(Error::Ended(CloseReason::PeerQuit(why))) = sent else { panic!("{sent:?}") };
    assert!(why.contains("data") && why.contains("exists"), "{why}");
    assert_eq!(fs::read(to.path().join("data")).unwrap(), b"old");
}

#[test]
fn either_end_can_stop_and_its_peer_gets_quit() {
    for sender_stops in [true, false] {
        let (from, to) = places();
        let big = from.path().join("big");
        fs::File::create(&big).unwrap().set_len(1 << 40).unwrap();
        let source = Source::Paths(vec![big]);
        let stop = |watcher: &Watcher| {
            if watcher.is_sender() == sender_stops && watcher.moved() > 0 {
                watcher.cancel();
            }
        };
        let (sent, received) = transfer(source, directory(to.path()), true, &options(), stop);
        let (own, other) = if sender_stops {
            (sent.unwrap_err(), received.unwrap_err())
        } else {
            (received.unwrap_err(), sent.unwrap_err())
        };
        assert!(matches!(own, Error::Interrupted), "{own:?}");
        let Error::Ended(CloseReason::PeerQuit(why)) = other else { panic!("{other:?}") };
        assert_eq!(why, "interrupted");
        let left = fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| name == ".netblt-partial"));
    }
}

#[test]
fn a_sender_that_vanished_and_was_started_again_is_served() {
    let (from, to) = places();
    let content = bytes(3_000_000, 7);
    fs::write(from.path().join("data"), &content).unwrap();
    let source = Source::Paths(vec![from.path().join("data")]);
    let (sent, received, restarts) = support::transfer_after_a_crash(source, to.path());
    assert!(sent.unwrap().verified && received.unwrap().verified);
    assert_eq!(restarts, 1);
    assert_eq!(fs::read(to.path().join("data")).unwrap(), content);
}

#[test]
fn bursts_cut_by_us_are_as_good_as_those_cut_by_the_kernel() {
    for segmentation in [true, false] {
        support::blast(segmentation, 40, 1 << 17);
    }
}

#[test]
fn a_trace_is_one_object_a_line() {
    let (from, to) = places();
    fs::write(from.path().join("data"), bytes(100_000, 3)).unwrap();
    let trace = from.path().join("trace");
    let mut options = options();
    options.trace = Some(trace.clone());
    let source = Source::Paths(vec![from.path().join("data")]);
    let (sent, _) = transfer(source, directory(to.path()), true, &options, |_| ());
    sent.unwrap();
    let text = fs::read_to_string(trace).unwrap();
    assert!(text.lines().count() > 3, "{text}");
    assert!(text.lines().all(|line| line.starts_with("{\"ns\":") && line.ends_with('}')));
}

/// A fixed policy has a pace, and no other option makes it faster.
#[test]
fn no_legal_policy_floods_a_path() {
    let pace = Rate::from_bits_per_second(8_000_000);
    let burst = Burst { packets: 5, interval: Duration::from_millis(6) };
    for pace in [FixedRate::rate(pace).unwrap(), FixedRate::bursts(burst).unwrap()] {
        for mtu in [None, Some(1400)] {
            let (from, to) = places();
            fs::write(from.path().join("data"), bytes(300_000, 5)).unwrap();
            let mut options = options();
            (options.settings.policy, options.network.mtu) = (Policy::Fixed(pace), mtu);
            let source = Source::path(from.path().join("data"));
            let (sent, _) = transfer(source, directory(to.path()), true, &options, |_| ());
            let sent = sent.unwrap();
            assert!(sent.real_bps < 9_500_000.0, "{pace:?} {mtu:?}: {} bit/s", sent.real_bps);
        }
    }
    // What has no bound is no pace.
    assert!(FixedRate::bursts(Burst { packets: 8, interval: Duration::ZERO }).is_none());
    assert!(FixedRate::rate(Rate::ZERO).is_none());
}

/// Gives its bytes in two halves, the second after a while.
struct Slow(usize);

impl std::io::Read for Slow {
    fn read(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        if self.0 == 3 << 20 {
            std::thread::sleep(Duration::from_millis(200));
        }
        let len = space.len().min(self.0 % (3 << 20)).max(usize::from(self.0 > 0));
        let len = len.min(space.len());
        self.0 -= len;
        Ok(len)
    }
}

#[test]
fn a_trace_shows_when_the_disk_is_waited_for() {
    let (place, to) = places();
    let mut options = options();
    options.trace = Some(place.path().join("trace"));
    let source = Source::reader("slow", Slow(6 << 20));
    let (sent, _) = transfer(source, directory(to.path()), true, &options, |_| ());
    assert_eq!(sent.unwrap().bytes, 6 << 20);
    let text = fs::read_to_string(place.path().join("trace")).unwrap();
    let disk: Vec<&str> = text.lines().filter(|line| line.contains("\"event\":\"disk\"")).collect();
    let waits = "\"side\":\"read\",\"waiting\":true,\"buffers\":0}";
    assert!(disk.iter().any(|line| line.ends_with(waits)), "{disk:?}");
    let after = disk.iter().rposition(|line| line.contains("\"waiting\":false"));
    let before = disk.iter().position(|line| line.contains("\"waiting\":true"));
    assert!(before < after, "{disk:?}");
    // The receiver's disk is waited for at the end at the latest, when all is flushed.
    options.trace = Some(place.path().join("other"));
    let source = Source::reader("quick", std::io::Cursor::new(bytes(100_000, 1)));
    let (_, received) = transfer(source, directory(to.path()), false, &options, |_| ());
    received.unwrap();
    let text = fs::read_to_string(place.path().join("other")).unwrap();
    assert!(text.contains("\"event\":\"disk\",\"side\":\"write\",\"waiting\":true"), "{text}");
}
