//! A file that is put in ranges, at the same time and by several servers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use netblt::serve::client::{Client, Joined, RangeLabels, RemoveOptions};
use netblt::serve::{AuditRecord, EntryType};
use netblt::{
    Cancel, Error, FileRange, Observer, OnFile, Options, Overwrite, Progress, RequestErrorKind,
};
use netblt::{Summary, digest_of_ranges};

use crate::serving::{Deaf, Host, bytes, denial};

const MIB: u64 = 1 << 20;
const FILE: [u8; 32] = [9; 32];

fn source(host: &Host, total: u64) -> (PathBuf, Vec<u8>) {
    let (path, content) = (host.directory.path().join("source"), bytes(total as usize, 3));
    fs::write(&path, &content).unwrap();
    (path, content)
}

fn labels(range: FileRange) -> RangeLabels {
    let mut own = FILE;
    own[..8].copy_from_slice(&range.offset.to_be_bytes());
    RangeLabels { file: FILE, range: own }
}

/// Puts a range into `in`; the summary, and the value of the range.
fn put(
    host: &Host,
    (path, range): (&PathBuf, FileRange),
    change: impl Fn(&mut Options),
) -> Result<(Summary, [u8; 32]), Error> {
    let value = Arc::new(Mutex::new([0; 32]));
    let result = Arc::clone(&value);
    let mut options = host.options.clone();
    options.on_file = Some(OnFile::new(move |sum| *result.lock().unwrap() = sum.blake3));
    change(&mut options);
    let server = Client { options: &options, ..host.server() };
    let summary = server.put_range(path.clone(), range, labels(range), b"in", &mut Deaf)?;
    let value = *value.lock().unwrap();
    Ok((summary, value))
}

fn join(host: &Host, to: &str, total: u64, replace: bool) -> Result<(), Error> {
    let mut options = host.options.clone();
    options.settings.overwrite = if replace { Overwrite::Always } else { Overwrite::Never };
    let server = Client { options: &options, ..host.server() };
    let (to, modified) = (to.as_bytes(), (1_000_000_000, 7));
    let joined = Joined { to, label: FILE, total, bytes: MIB, mode: 0o640, modified };
    server.join(b"in", &joined, &mut Deaf)
}

#[test]
fn a_file_comes_in_ranges_at_the_same_time() {
    let one = Host::start(|_| {});
    fs::create_dir_all(one.root("in/deep")).unwrap();
    let total = 4 * MIB + 4321;
    let (path, content) = source(&one, total);
    // Another server of the same directory.
    let root = one.root("");
    let other = Host::start(move |service| service.permissions.root = root);
    let all: Vec<FileRange> = FileRange::all(total, MIB).collect();
    assert_eq!(denial(join(&one, "in/deep/f", total, false)), RequestErrorKind::NotFound);
    let values: Vec<[u8; 32]> = thread::scope(|scope| {
        let host = |at| if at % 2 == 0 { &one } else { &other };
        let path = &path;
        let put = |(at, range): (usize, &FileRange)| {
            let (host, range) = (host(at), *range);
            scope.spawn(move || put(host, (path, range), |_| {}).unwrap())
        };
        let threads: Vec<_> = all.iter().enumerate().map(put).collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap());
        done.map(|(summary, value)| {
            assert!(summary.verified && summary.skipped == 0);
            value
        })
        .collect()
    });
    assert_eq!(digest_of_ranges(&values), Some(*blake3::hash(&content).as_bytes()));
    // Until it is joined, nothing of it is shown.
    assert_eq!(one.names("in"), ["deep"]);
    // What is in the way stays, and the ranges do.
    fs::write(one.root("in/deep/f"), "before").unwrap();
    assert_eq!(denial(join(&one, "in/deep/f", total, false)), RequestErrorKind::Exists);
    assert_eq!(fs::read(one.root("in/deep/f")).unwrap(), b"before");
    // Again what is there already, and another length than they have.
    assert_eq!(put(&other, (&path, all[2]), |_| {}).unwrap().1, values[2]);
    assert_eq!(denial(join(&one, "in/deep/f", total - 1, true)), RequestErrorKind::NotFound);
    join(&other, "in/deep/f", total, true).unwrap();
    assert_eq!(fs::read(one.root("in/deep/f")).unwrap(), content);
    let made = fs::metadata(one.root("in/deep/f")).unwrap();
    assert_eq!((made.mode() & 0o777, made.nlink()), (0o640, 1));
    assert_eq!((made.mtime(), made.mtime_nsec()), (1_000_000_000, 7));
    assert_eq!(fs::read_dir(one.root("in")).unwrap().count(), 1);
    assert_eq!(denial(join(&one, "in/deep/g", total, true)), RequestErrorKind::NotFound);
    let is_join = |account: &AuditRecord| account.request.name() == "join" && account.path == b"in";
    other.accounts(|records| records.iter().any(is_join));
}

/// Stops as soon as so many bytes are through.
struct Stops<'a>(u64, &'a Cancel);

impl Observer for Stops<'_> {
    fn progress(&mut self, progress: &Progress) {
        if progress.bytes >= self.0 {
            self.1.cancel();
        }
    }
}

#[test]
fn a_range_is_resumed_and_can_be_removed() {
    let host = Host::start(|_| {});
    fs::create_dir(host.root("in")).unwrap();
    let total = 48 * MIB;
    let (path, content) = source(&host, total);
    let range = FileRange { offset: 16 * MIB, length: 16 * MIB, total };
    let mut options = host.options.clone();
    // 400 Mbit/s: slow enough to be stopped on the way.
    options.settings.policy =
        netblt::Policy::Fair { ceiling: Some(netblt::Rate::from_bits_per_second(400_000_000)) };
    let cancel = Cancel::default();
    let server = Client { options: &options, cancel: &cancel, ..host.server() };
    let mut stops = Stops(6 * MIB, &cancel);
    let stopped = server.put_range(path.clone(), range, labels(range), b"in", &mut stops);
    assert!(stopped.is_err());
    assert_eq!(denial(join(&host, "in/f", total, true)), RequestErrorKind::NotFound);
    // The server may be about to write down what it has.
    let busy = |came: &Result<_, Error>| {
        matches!(came, Err(Error::Denied { what: RequestErrorKind::Busy, .. }))
    };
    let again = loop {
        let came = put(&host, (&path, range), |_| {});
        if !busy(&came) {
            break came.unwrap().0;
        }
        thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(again.kept >= 4 * MIB && again.kept < range.length, "{}", again.kept);
    let own = host.root("in").join(format!(".netblt-ranges-{}", "09".repeat(32)));
    let whole = fs::read(own.join("whole")).unwrap();
    assert_eq!(whole[16 << 20..32 << 20], content[16 << 20..32 << 20]);
    assert!(whole[..16 << 20].iter().all(|byte| *byte == 0));
    // No request may read the directory, but it may be removed as a leftover.
    let leaf = format!("in/.netblt-ranges-{}", "09".repeat(32));
    assert_eq!(denial(host.stat(&leaf)), RequestErrorKind::Forbidden);
    let inside = format!("{leaf}/whole");
    let gone = host.server().remove(inside.as_bytes(), RemoveOptions::TREE, &mut Deaf);
    assert_eq!(denial(gone), RequestErrorKind::Forbidden);
    host.server().remove(leaf.as_bytes(), RemoveOptions::TREE, &mut Deaf).unwrap();
    assert!(!own.exists());
    assert_eq!(denial(join(&host, "in/f", total, true)), RequestErrorKind::NotFound);
}

#[test]
fn a_range_without_write_permission_is_refused() {
    let host = Host::start(|service| service.permissions.write = false);
    fs::create_dir(host.root("in")).unwrap();
    let (path, _) = source(&host, 3 * MIB);
    let range = FileRange { offset: 0, length: MIB, total: 3 * MIB };
    assert_eq!(denial(put(&host, (&path, range), |_| {})), RequestErrorKind::Forbidden);
    assert_eq!(denial(join(&host, "in/f", 3 * MIB, true)), RequestErrorKind::Forbidden);
    assert_eq!(fs::read_dir(host.root("in")).unwrap().count(), 0);
}

#[test]
fn a_file_that_has_changed_is_not_sent_in_ranges() {
    let host = Host::start(|_| {});
    fs::create_dir(host.root("in")).unwrap();
    let (path, _) = source(&host, 3 * MIB);
    let planned = FileRange { offset: 0, length: MIB, total: 4 * MIB };
    let came = put(&host, (&path, planned), |_| {});
    assert!(matches!(came, Err(Error::Unsendable(_))), "{came:?}");
    let bad = FileRange { offset: 5, length: MIB, total: 3 * MIB };
    assert!(put(&host, (&path, bad), |_| {}).is_err());
    // A directory that is not there, and a file that leads out.
    let range = FileRange { offset: 0, length: MIB, total: 3 * MIB };
    let labels = labels(range);
    let nowhere = host.server().put_range(path.clone(), range, labels, b"none", &mut Deaf);
    assert_eq!(denial(nowhere), RequestErrorKind::NotFound);
    std::os::unix::fs::symlink("..", host.root("out")).unwrap();
    let out = host.server().put_range(path, range, labels, b"out", &mut Deaf);
    assert!(matches!(
        denial(out),
        RequestErrorKind::NotADirectory | RequestErrorKind::Failed | RequestErrorKind::Forbidden
    ));
    let sorts: Vec<EntryType> =
        host.list("").unwrap().into_iter().map(|entry| entry.sort).collect();
    assert_eq!(sorts, [EntryType::Directory, EntryType::Link]);
}
