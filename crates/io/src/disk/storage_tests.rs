//! Killed processes, disks that fail at the worst moment, masks and budgets.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, Kind, encode_table};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::cancel::Cancel;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::{DirectoryWriter, tests::images};
use crate::disk::fault_injection::{Call, Fault, forget, plan};
use crate::disk::file_list::FileList;
use crate::disk::threads::{SinkThread, Writer};
use crate::disk::trials::{layout, temporary};
use crate::error::Error;
use crate::options::{Expected, Source};
use crate::settings::{Overwrite, Resume};

const ALWAYS: u32 = u32::MAX;

/// Five files, as images.
fn five(text: &str) -> (Vec<Buffer>, End) {
    let from = temporary();
    let paths: Vec<PathBuf> = (0..5).map(|i| from.path().join(format!("file-{i}"))).collect();
    for path in &paths {
        fs::write(path, text).expect("written");
    }
    images(
        FileList::new(Source::Paths(paths), false, &Cancel::default()).expect("a list"),
        layout(),
    )
}

fn writer(to: &Path, overwrite: Overwrite, images: Vec<Buffer>) -> DirectoryWriter {
    let mut writer = DirectoryWriter::new(to, overwrite, layout()).expect("opened");
    for (i, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(i as u64 + 1), image, &mut Vec::new()).expect("accepted");
    }
    writer
}

/// Names and contents in a directory, the staging directories' too.
fn files(at: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(at).expect("listed").flatten();
    let entry = |entry: fs::DirEntry| {
        let content = fs::read_to_string(entry.path()).unwrap_or_default();
        (entry.file_name().to_string_lossy().into_owned(), content)
    };
    entries.map(entry).collect()
}

fn old_and(other: &str, count: usize) -> BTreeMap<String, String> {
    let text = |i| if i < count { other } else { "old" };
    (0..5).map(|i| (format!("file-{i}"), text(i).to_owned())).collect()
}

fn with_old() -> TempDir {
    let to = temporary();
    (0..5).for_each(|i| fs::write(to.path().join(format!("file-{i}")), "old").expect("written"));
    to
}

#[test]
fn replaced_files_come_back_when_a_later_rename_fails() {
    for (exchange, link) in [(true, true), (false, true), (false, false)] {
        let to = with_old();
        if !exchange {
            plan(to.path(), Call::Exchange, 0, ALWAYS, Fault::Error(Errno::INVAL));
        }
        if !link {
            plan(to.path(), Call::Link, 0, ALWAYS, Fault::Error(Errno::PERM));
        }
        plan(to.path(), Call::Rename, 2, 1, Fault::Error(Errno::IO));
        let (images, end) = five("new");
        let mut writer = writer(to.path(), Overwrite::Always, images);
        let error =
            writer.finish(Some(&end), &CommitLatch::default()).expect_err("EIO").to_string();
        assert!(error.contains("nothing was kept"), "{error}");
        drop(writer);
        assert_eq!(files(to.path()), old_and("", 0), "{exchange} {link}");
    }
}

#[test]
fn a_file_that_cannot_be_put_back_is_named_and_left() {
    let to = with_old();
    plan(to.path(), Call::Exchange, 0, ALWAYS, Fault::Error(Errno::INVAL));
    // The third rename fails, and so does every one that would take back the first two.
    plan(to.path(), Call::Rename, 2, ALWAYS, Fault::Error(Errno::IO));
    let (images, end) = five("new");
    let mut receiver = writer(to.path(), Overwrite::Always, images);
    let error = receiver.finish(Some(&end), &CommitLatch::default()).expect_err("EIO");
    let Error::Stranded { place, .. } = &error else { panic!("{error}") };
    assert!(!error.to_string().contains("nothing was kept"), "{error}");
    drop(receiver);
    assert_eq!(fs::read(place.join("0.replaced")).expect("the old one"), b"old");
    // The next run keeps it, and says so.
    let mut next = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let notes = next.take_notes();
    assert!(notes.iter().any(|note| note.contains("could not be put back")), "{notes:?}");
    assert!(place.join("0.replaced").exists());
}

#[test]
fn the_next_run_removes_only_leftovers_of_killed_processes() {
    let to = temporary();
    let (images, _) = five("new");
    let alive = writer(to.path(), Overwrite::Never, images);
    let before = files(to.path());
    // Its owner lives.
    let mut other = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    assert_eq!((other.take_notes(), files(to.path())), (vec![], before));
    alive.die();
    fs::create_dir(to.path().join(".netblt-mine.part")).expect("made");
    let mut next = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    assert_eq!(next.take_notes().len(), 1);
    assert_eq!(files(to.path()).into_keys().collect::<Vec<_>>(), [".netblt-mine.part"]);
}

#[test]
fn the_next_run_completes_an_interrupted_publication() {
    for (overwrite, exchange) in
        [(Overwrite::Never, true), (Overwrite::Always, true), (Overwrite::Always, false)]
    {
        let to = if overwrite == Overwrite::Always { with_old() } else { temporary() };
        if !exchange {
            plan(to.path(), Call::Exchange, 0, ALWAYS, Fault::Error(Errno::INVAL));
        }
        // Every call from the third rename on fails, as if the process had been killed.
        plan(to.path(), Call::Rename, 2, ALWAYS, Fault::Error(Errno::IO));
        let (images, end) = five("new");
        let mut receiver = writer(to.path(), overwrite, images);
        let error = receiver.finish(Some(&end), &CommitLatch::default()).expect_err("EIO");
        let Error::Stranded { place, .. } = error else { panic!("{error}") };
        fs::remove_file(place.join("stranded")).expect("removed");
        let there = files(to.path());
        assert_eq!(there.get("file-1").map(String::as_str), Some("new"), "{there:?}");
        drop(receiver);
        forget(to.path());
        let mut next = DirectoryWriter::new(to.path(), overwrite, layout()).expect("opened");
        let notes = next.take_notes();
        assert!(notes.iter().any(|note| note.contains("completed")), "{notes:?}");
        assert_eq!(files(to.path()), old_and("new", 5), "{overwrite:?} {exchange}");
    }
}

#[test]
fn an_error_at_close_is_an_error() {
    let to = temporary();
    plan(to.path(), Call::Close, 2, 1, Fault::Error(Errno::IO));
    let (images, _) = five("new");
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let failed = images.into_iter().enumerate().find_map(|(i, image)| {
        writer.accept(BufferNumber(i as u64 + 1), image, &mut Vec::new()).err()
    });
    let error = failed.expect("EIO").to_string();
    assert!(error.contains("nothing was kept"), "{error}");
}

#[test]
fn a_cancelled_transfer_does_not_wait_for_a_long_flush_and_publishes_nothing() {
    let to = temporary();
    plan(to.path(), Call::Sync, 0, 1, Fault::Wait(Duration::from_secs(12)));
    let (wake, _woken) = channel();
    let waker = move || {
        let _ = wake.send(());
    };
    let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let mut thread = SinkThread::spawn(writer, layout(), 8, waker).expect("a thread");
    let (images, end) = five("new");
    for (i, image) in images.into_iter().enumerate() {
        thread.store(BufferNumber(i as u64 + 1), image);
    }
    thread.finish(Some(end));
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    assert!(thread.stop(), "the flush is not over");
    drop(thread);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    // When the disk answers at last, the thread cleans up.
    let deadline = Instant::now() + Duration::from_secs(90);
    while !files(to.path()).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", files(to.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn one_file(name: &[u8], mode: u32) -> Buffer {
    let attributes = Attributes { mode, name: name.to_vec(), ..Attributes::default() };
    let extent = Extent {
        file: 0,
        offset: 0,
        length: 0,
        kind: Kind::File,
        pieces: None,
        attributes: Some(attributes),
        digest: Some(*blake3::hash(&[]).as_bytes()),
    };
    image(&[extent])
}

fn image(extents: &[Extent]) -> Buffer {
    let mut bytes = Vec::new();
    encode_table(extents, &mut bytes).expect("fits");
    let mut buffer = Buffer::new(bytes.len());
    buffer.space().copy_from_slice(&bytes);
    buffer.set_len(bytes.len());
    buffer
}

#[test]
fn the_mask_counts_unless_permissions_are_preserved() {
    let to = temporary();
    // What this test's own mask leaves.
    let probe = to.path().join("probe");
    fs::OpenOptions::new().write(true).create(true).truncate(true).open(&probe).expect("made");
    let left = fs::metadata(&probe).expect("there").permissions().mode() & 0o666;
    for (preserve, expected) in [(false, 0o666 & left), (true, 0o666)] {
        let name = format!("file-{preserve}");
        let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
        let mut writer = writer.preserving(preserve, true);
        let buffer = one_file(name.as_bytes(), 0o666);
        writer.accept(BufferNumber(1), buffer, &mut Vec::new()).expect("accepted");
        let mut transfer = netblt_proto::content::TransferDigest::new();
        transfer.add(0, Kind::File, 0, blake3::hash(&[]).as_bytes(), name.as_bytes());
        let end = End { buffers: 1, bytes: 0, digest: transfer.finish() };
        assert!(writer.finish(Some(&end), &CommitLatch::default()).expect("published").verified);
        let mode = fs::metadata(to.path().join(&name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, expected, "preserve: {preserve}");
    }
}

#[test]
fn a_path_that_this_system_cannot_open_is_refused_before_anything_is_written() {
    let to = temporary();
    let name = ("x".repeat(203) + "/").repeat(19) + &"x".repeat(215);
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let accepted =
        writer.accept(BufferNumber(1), one_file(name.as_bytes(), 0o644), &mut Vec::new());
    let error = accepted.expect_err("too long").to_string();
    assert!(error.contains("longer path than this system"), "{error}");
    assert!(files(to.path()).is_empty());
}

#[test]
fn a_sender_with_the_ticket_cannot_take_all_the_memory() {
    let to = temporary();
    let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let mut writer = writer.with_max_files(1_000);
    // Each implies 127 directories that no other one does.
    let deep = "d/".repeat(126);
    let refused = (0..2_000u64).find_map(|file| {
        let attributes =
            Attributes { name: format!("{file}/{deep}f").into_bytes(), ..Attributes::default() };
        let extent = Extent {
            file,
            offset: 0,
            length: 0,
            kind: Kind::File,
            pieces: None,
            attributes: Some(attributes),
            digest: Some(*blake3::hash(&[]).as_bytes()),
        };
        let accepted = writer.accept(BufferNumber(file + 1), image(&[extent]), &mut Vec::new());
        accepted.err().map(|error| (file, error))
    });
    let (at, error) = refused.expect("refused");
    assert!(matches!(error, Error::TooMuch { most: 1_000, .. }), "{error}");
    assert_eq!(at, 7);
}

#[test]
fn a_file_that_was_not_requested_is_refused() {
    let to = temporary();
    let asked = |directories| {
        let names = ["wanted".into()].into();
        let writer = DirectoryWriter::new(to.path(), Overwrite::Always, layout()).expect("opened");
        writer.expecting(Some(Expected { names, directories, only: None }))
    };
    let offer = |directories, name: &[u8]| {
        let taken =
            asked(directories).accept(BufferNumber(1), one_file(name, 0o644), &mut Vec::new());
        taken.map_err(|error| error.to_string())
    };
    assert!(offer(false, b"wanted").is_ok());
    assert!(offer(true, b"wanted/and/more").is_ok());
    for (directories, name, says) in [
        (true, &b".bashrc"[..], "it was not requested"),
        (true, b"want", "it was not requested"),
        (true, b"wanted2/x", "it was not requested"),
        (false, b"wanted/x", "no directory was requested"),
    ] {
        let error = offer(directories, name).expect_err("refused");
        assert!(error.contains(says), "{error}");
    }
    assert!(files(to.path()).is_empty());
}

#[test]
fn times_are_those_of_arrival_unless_they_are_kept() {
    let to = temporary();
    let old = std::time::SystemTime::UNIX_EPOCH;
    for keep in [false, true] {
        let name = format!("file-{keep}");
        let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
        let mut writer = writer.preserving(false, keep);
        let buffer = one_file(name.as_bytes(), 0o644);
        writer.accept(BufferNumber(1), buffer, &mut Vec::new()).expect("accepted");
        let mut transfer = netblt_proto::content::TransferDigest::new();
        transfer.add(0, Kind::File, 0, blake3::hash(&[]).as_bytes(), name.as_bytes());
        let end = End { buffers: 1, bytes: 0, digest: transfer.finish() };
        assert!(writer.finish(Some(&end), &CommitLatch::default()).expect("published").verified);
        let modified = fs::metadata(to.path().join(&name)).expect("there").modified();
        assert_eq!(modified.expect("a time") == old, keep);
    }
}

#[test]
fn a_pipe_in_the_way_is_not_replaced() {
    let to = temporary();
    let pipe = to.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("made");
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Always, layout()).expect("opened");
    let taken = writer.accept(BufferNumber(1), one_file(b"pipe", 0o644), &mut Vec::new());
    let error = taken.expect_err("refused").to_string();
    assert!(error.contains("device or a pipe"), "{error}");
    drop(writer);
    let left = fs::read_dir(to.path()).expect("listed").count();
    assert_eq!(left, 1);
}

#[test]
fn a_replaced_file_passes_on_its_permissions_unless_the_senders_are_kept() {
    for (preserve, expected) in [(false, 0o600), (true, 0o644)] {
        let to = temporary();
        let path = to.path().join("file");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let writer = DirectoryWriter::new(to.path(), Overwrite::Always, layout()).expect("opened");
        let mut writer = writer.preserving(preserve, true);
        let buffer = one_file(b"file", 0o644);
        writer.accept(BufferNumber(1), buffer, &mut Vec::new()).expect("accepted");
        let mut transfer = netblt_proto::content::TransferDigest::new();
        transfer.add(0, Kind::File, 0, blake3::hash(&[]).as_bytes(), b"file");
        let end = End { buffers: 1, bytes: 0, digest: transfer.finish() };
        assert!(writer.finish(Some(&end), &CommitLatch::default()).expect("published").verified);
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!((mode & 0o777, fs::read(&path).expect("read").len()), (expected, 0));
    }
}

#[test]
fn a_name_that_is_not_taken_there_is_left_out_alone() {
    let received = |fault| {
        let to = temporary();
        plan(to.path(), Call::Rename, 2, 1, Fault::Error(fault));
        let (images, end) = five("new");
        let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
        let mut writer = writer.atomic(false);
        for (i, image) in images.into_iter().enumerate() {
            writer.accept(BufferNumber(i as u64 + 1), image, &mut Vec::new()).expect("accepted");
        }
        let outcome = writer.finish(Some(&end), &CommitLatch::default());
        drop(writer);
        outcome.map(|outcome| (outcome.left_out, files(to.path())))
    };
    let error = received(Errno::IO).expect_err("the disk fails for all");
    assert!(error.to_string().ends_with("file-2: cannot be given its name: Input/output error"));
    for fault in [Errno::ILSEQ, Errno::INVAL, Errno::NOENT, Errno::ACCESS, Errno::NAMETOOLONG] {
        let (left_out, there) = received(fault).expect("one file's trouble");
        assert!(left_out.len() == 1 && left_out[0].starts_with("file-2: cannot be given its name"));
        let names: Vec<&str> = there.keys().map(String::as_str).collect();
        assert_eq!(names, ["file-0", "file-1", "file-3", "file-4"], "{fault:?}");
    }
}

/// By their names, and whether each gets its own at once.
#[test]
fn attributes_that_cannot_be_set_are_named_and_the_files_are_there() {
    for atomic in [true, false] {
        for (call, what) in [(Call::Times, "the time of modification"), (Call::Modes, "the perm")] {
            for why in [Errno::PERM, Errno::NOTSUP, Errno::NOSYS, Errno::INVAL] {
                let to = temporary();
                plan(to.path(), call, 0, ALWAYS, Fault::Error(why));
                let (images, end) = five("new");
                let new = DirectoryWriter::new(to.path(), Overwrite::Never, layout());
                let mut writer = new.expect("opened").atomic(atomic).preserving(true, true);
                for (i, image) in images.into_iter().enumerate() {
                    let number = BufferNumber(i as u64 + 1);
                    writer.accept(number, image, &mut Vec::new()).expect("accepted");
                }
                let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("stored");
                assert!(outcome.verified && outcome.skipped == 1, "{outcome:?}");
                let [named] = &outcome.left_out[..] else { panic!("{outcome:?}") };
                assert!(named.starts_with(what) && named.contains("and 4 more"), "{named}");
                drop(writer);
                assert_eq!(files(to.path()), old_and("new", 5));
                forget(to.path());
            }
        }
    }
}

#[test]
fn permissions_that_the_mask_decides_are_no_promise() {
    let to = temporary();
    plan(to.path(), Call::Modes, 0, ALWAYS, Fault::Error(Errno::PERM));
    let (images, end) = five("new");
    let mut writer = writer(to.path(), Overwrite::Never, images);
    let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("stored");
    assert_eq!((outcome.skipped, outcome.left_out.len()), (0, 0));
    forget(to.path());
}

#[test]
fn a_file_system_without_flush_stores_files_with_a_warning() {
    for why in [Errno::NOTSUP, Errno::INVAL, Errno::NOSYS] {
        for atomic in [true, false] {
            let to = temporary();
            plan(to.path(), Call::Sync, 0, ALWAYS, Fault::Error(why));
            let (images, end) = five("new");
            let new = DirectoryWriter::new(to.path(), Overwrite::Never, layout());
            let mut writer = new.expect("opened").atomic(atomic);
            for (i, image) in images.into_iter().enumerate() {
                let number = BufferNumber(i as u64 + 1);
                writer.accept(number, image, &mut Vec::new()).expect("accepted");
            }
            let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("stored");
            assert!(outcome.verified && outcome.skipped == 0, "{outcome:?}");
            assert!(outcome.notes.iter().any(|note| note.contains("fsync")), "{outcome:?}");
            drop(writer);
            assert_eq!(files(to.path()), old_and("new", 5));
            forget(to.path());
        }
    }
}

/// One process at a time, what a dead one left is gone on with, and a warning says what that is.
#[test]
fn a_file_system_without_locks_is_received_into_and_resumed() {
    for why in [Errno::NOSYS, Errno::NOLCK] {
        let to = temporary();
        plan(to.path(), Call::Lock, 0, ALWAYS, Fault::Error(why));
        let open = || {
            let new = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
            new.atomic(false).resuming(Resume::Auto, Duration::from_secs(3600)).expect("opened")
        };
        let large = temporary();
        let path = large.path().join("large");
        fs::write(&path, vec![7; 5000]).expect("written");
        let list = FileList::new(Source::Paths(vec![path]), false, &Cancel::default());
        let (images, end) = images(list.expect("a list"), layout());
        let mut first = open();
        let two = images.into_iter().take(2);
        for (at, image) in (1..).zip(two) {
            first.accept(BufferNumber(at), image, &mut Vec::new()).expect("accepted");
        }
        drop(first);
        let mut second = open();
        assert!(second.take_notes().is_empty());
        assert!(!second.had().is_empty() && second.kept_bytes() > 0);
        // Another one at the same time leaves it alone.
        let mut third = open();
        let notes = third.take_notes();
        assert!(notes.iter().any(|note| note.contains("in use by another")), "{notes:?}");
        drop((second, third));
        assert!(files(to.path()).keys().all(|name| name.starts_with(".netblt-partial")));
        let (images, _) = five("new");
        let mut all = writer_of(open(), images);
        let outcome = all.finish(Some(&end), &CommitLatch::default());
        assert!(outcome.is_ok_and(|outcome| !outcome.verified), "it is another one's end");
        drop(all);
        forget(to.path());
    }
    let to = temporary();
    plan(to.path(), Call::Lock, 0, ALWAYS, Fault::Error(Errno::NOSYS));
    let (images, end) = five("new");
    let new = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let mut writer = writer_of(new.atomic(false), images);
    let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("stored");
    assert!(outcome.notes.iter().any(|note| note.contains("has no locks")), "{outcome:?}");
    drop(writer);
    assert_eq!(files(to.path()), old_and("new", 5));
    forget(to.path());
}

fn writer_of(mut writer: DirectoryWriter, images: Vec<Buffer>) -> DirectoryWriter {
    for (at, image) in (1..).zip(images) {
        writer.accept(BufferNumber(at), image, &mut Vec::new()).expect("accepted");
    }
    writer
}
