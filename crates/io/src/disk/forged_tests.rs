//! Journals that this user's program did not write here: sent under netblt's own names, or unpacked
//! from an archive. None of them changes a file.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::cancel::Cancel;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::{DirectoryWriter, tests::images};
use crate::disk::fault_injection::{Call, Fault, forget, plan};
use crate::disk::file_list::FileList;
use crate::disk::have_list::HaveList;
use crate::disk::leftovers::Leftovers;
use crate::disk::seal::with_place;
use crate::disk::source::SourceReader;
use crate::disk::threads::{Reader as _, StoreOutcome, Writer as _};
use crate::disk::trials::{KEPT, layout, temporary};
use crate::error::Error;
use crate::options::Source;
use crate::settings::{Overwrite, Resume};

const UNFINISHED: &str = ".netblt-unfinished-0123456789abcdef.part";
fn open(to: &Path, atomic: bool) -> DirectoryWriter {
    let writer = DirectoryWriter::new(to, Overwrite::Never, layout()).expect("opened");
    let writer = writer.atomic(atomic).resuming(Resume::Auto, Duration::from_secs(60));
    writer.expect("looked into")
}

fn sent(path: &Path) -> (Vec<Buffer>, End) {
    let list = FileList::new(Source::path(path), false, &Cancel::default());
    images(list.expect("a list"), layout())
}

fn receive(from: &Path, to: &Path, atomic: bool) -> Result<StoreOutcome, Error> {
    let (images, end) = sent(from);
    let mut writer = open(to, atomic);
    for (at, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new())?;
    }
    writer.finish(Some(&end), &CommitLatch::default())
}

/// What a killed receiver would have left that was about to replace `.bashrc`, which can be
/// written by anything that knows the format.
fn left_by_killed(at: &Path, journal: &str) {
    fs::create_dir_all(at).expect("made");
    fs::set_permissions(at, fs::Permissions::from_mode(0o700)).expect("set");
    fs::write(at.join("0"), "evil").expect("written");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    fs::write(at.join("owner"), format!("{host}\n")).expect("written");
    let text = "netblt publication 2 always\nf 0 0 0 .bashrc\n";
    let hash = blake3::hash(text.as_bytes()).to_hex();
    fs::write(at.join(journal), format!("{text}{hash}\n")).expect("written");
}

#[test]
fn a_sender_gives_no_file_a_name_that_is_netblts_own() {
    for (name, journal) in [(UNFINISHED, "journal"), (KEPT, "publication")] {
        for atomic in [false, true] {
            let (from, to) = (temporary(), temporary());
            fs::write(to.path().join(".bashrc"), "mine").expect("written");
            left_by_killed(&from.path().join(name), journal);
            let received = receive(&from.path().join(name), to.path(), atomic);
            drop(open(to.path(), false));
            let there = fs::read_to_string(to.path().join(".bashrc")).expect("there");
            assert_eq!(there, "mine", "{name} {atomic}");
            match received {
                Ok(outcome) => {
                    assert!(!atomic && outcome.unstored == 4, "{outcome:?}");
                    assert!(outcome.left_out.iter().all(|text| text.contains("netblt's own")));
                }
                Err(error) => {
                    assert!(atomic && error.to_string().contains("netblt's own"), "{error}");
                }
            }
            let names = fs::read_dir(to.path()).expect("listed").count();
            assert_eq!(names, 1, "{name} {atomic}");
        }
    }
}

#[test]
fn a_journal_that_came_with_an_archive_is_not_believed() {
    for (name, journal) in [(UNFINISHED, "journal"), (KEPT, "publication")] {
        let to = temporary();
        fs::write(to.path().join(".bashrc"), "mine").expect("written");
        left_by_killed(&to.path().join(name), journal);
        let mut writer = open(to.path(), false);
        let notes = writer.take_notes().join("\n");
        drop(writer);
        assert_eq!(fs::read_to_string(to.path().join(".bashrc")).expect("there"), "mine");
        assert!(notes.contains(name), "{notes}");
        assert_eq!(fs::read_to_string(to.path().join(name).join("0")).expect("left"), "evil");
    }
}

/// All that is beneath a directory: kinds, modes, times of modification and contents.
fn everything(root: &Path) -> Vec<String> {
    let (mut found, mut todo) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(path) = todo.pop() {
        let about = fs::symlink_metadata(&path).expect("examined");
        let content = about.is_file().then(|| fs::read(&path).expect("read"));
        let (at, changed) = ((about.mtime(), about.mtime_nsec()), about.ctime_nsec());
        found.push(format!("{path:?} {:o} {at:?} {changed} {content:?}", about.mode()));
        if about.is_dir() {
            todo.extend(fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.path()));
        }
    }
    found.sort();
    found
}

/// A destination in which a receiver died that had given one of two names, and had replaced the
/// file of that name; and the sender's files.
fn died_while_naming(overwrite: Overwrite) -> (TempDir, TempDir) {
    let (from, to) = (temporary(), temporary());
    fs::create_dir(from.path().join("t")).expect("made");
    for name in ["a", "b"] {
        fs::write(from.path().join("t").join(name), format!("new {name}")).expect("written");
    }
    if overwrite == Overwrite::Always {
        fs::create_dir(to.path().join("t")).expect("made");
        for name in ["a", "b"] {
            fs::write(to.path().join("t").join(name), format!("old {name}")).expect("written");
        }
    }
    plan(to.path(), Call::Rename, 1, u32::MAX, Fault::Error(Errno::IO));
    let (images, end) = sent(&from.path().join("t"));
    let writer = DirectoryWriter::new(to.path(), overwrite, layout()).expect("opened");
    let mut writer = writer.resuming(Resume::Auto, Duration::from_secs(60)).expect("looked into");
    for (at, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new()).expect("accepted");
    }
    let error = writer.finish(Some(&end), &CommitLatch::default()).expect_err("EIO");
    drop(writer);
    forget(to.path());
    let Error::Stranded { place, .. } = error else { panic!("{error}") };
    ["stranded", "owner"].iter().for_each(|name| fs::remove_file(place.join(name)).expect("there"));
    fs::rename(place, to.path().join(KEPT)).expect("renamed");
    (from, to)
}

fn text(to: &TempDir, name: &str) -> Option<String> {
    fs::read_to_string(to.path().join("t").join(name)).ok()
}

#[test]
fn a_publication_that_replaces_files_is_completed_only_by_a_run_that_may() {
    let (_from, to) = died_while_naming(Overwrite::Always);
    let before = (text(&to, "a"), text(&to, "b"));
    assert!(before.0.as_deref() == Some("new a") && before.1.as_deref() == Some("old b"));
    for _ in 0..2 {
        let mut writer = open(to.path(), false);
        let notes = writer.take_notes().join("\n");
        assert!(notes.contains("that may replace files completes it"), "{notes}");
        assert_eq!((text(&to, "a"), text(&to, "b")), before);
    }
    let left = Leftovers::find(to.path()).expect("looked").expect("left");
    assert!(left.remove().expect_err("kept").to_string().contains("is not removed"));
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Always, layout()).expect("opened");
    let notes = writer.take_notes().join("\n");
    assert!(notes.contains("completed an earlier transfer"), "{notes}");
    assert_eq!(text(&to, "b").as_deref(), Some("new b"));
}

#[test]
fn listing_leftovers_changes_nothing() {
    let (_from, to) = died_while_naming(Overwrite::Never);
    let orphan = to.path().join(UNFINISHED);
    left_by_killed(&orphan, "journal");
    fs::remove_file(orphan.join("journal")).expect("removed");
    let config = temporary();
    let place = config.path().join("netblt/journal-key");
    for key in [None, Some(place.clone())] {
        let before = everything(to.path());
        let look = || Leftovers::find(to.path()).expect("looked").expect("left").notes;
        let notes = match key {
            None => look(),
            Some(place) => with_place(Some(place), look),
        };
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(everything(to.path()), before);
    }
    assert!(!place.exists() && text(&to, "b").is_none());
    let notes = Leftovers::settle(to.path()).expect("settled").join("\n");
    assert!(notes.contains("completed") && notes.contains("removed"), "{notes}");
    assert_eq!(text(&to, "b").as_deref(), Some("new b"));
    assert!(!orphan.exists());
}

#[test]
fn a_journal_is_void_in_another_directory_or_under_another_key() {
    let copy_to = |from: &TempDir| {
        let copy = temporary();
        let status = std::process::Command::new("cp")
            .arg("-a")
            .arg(from.path().join("."))
            .arg(copy.path())
            .status();
        assert!(status.expect("cp").success());
        copy
    };
    let (_from, to) = died_while_naming(Overwrite::Never);
    let copy = copy_to(&to);
    let notes = open(copy.path(), false).take_notes().join("\n");
    assert!(notes.contains("netblt has not written"), "{notes}");
    assert_eq!(text(&copy, "b"), None);
    let other = temporary();
    for place in [None, Some(other.path().join("netblt/journal-key"))] {
        let notes = with_place(place, || open(to.path(), false).take_notes().join("\n"));
        assert!(notes.contains("netblt has not written"), "{notes}");
        assert_eq!(text(&to, "b"), None);
    }
    drop(open(to.path(), false));
    assert_eq!(text(&to, "b").as_deref(), Some("new b"));
}

/// A transfer of one file of so many bytes that was broken off when half of it was there.
fn half_a_file(bytes: usize) -> (TempDir, TempDir) {
    let (from, to) = (temporary(), temporary());
    let content: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
    fs::write(from.path().join("file"), content).expect("written");
    let (mut images, _) = sent(&from.path().join("file"));
    images.truncate(images.len() / 2);
    let mut writer = open(to.path(), false);
    for (at, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new()).expect("accepted");
    }
    drop(writer);
    (from, to)
}

/// The same transfer once more: bytes that did not come again, what was said, and whether the file
/// is the sender's.
fn resumed(from: &TempDir, to: &TempDir) -> (u64, String, bool) {
    let list = FileList::new(Source::path(from.path().join("file")), false, &Cancel::default());
    let mut reader = SourceReader::sealed(list.expect("a list"), layout()).expect("it fits");
    let mut writer = open(to.path(), false);
    let notes = writer.take_notes().join("\n");
    let had = Arc::new(HaveList::parse(&writer.had()).expect("well said"));
    reader.restart(layout(), &had).expect("restarted");
    for number in 1.. {
        let mut buffer = Buffer::new(layout().image_bytes());
        reader.fill(BufferNumber(number), &mut buffer).expect("filled");
        writer.accept(BufferNumber(number), buffer, &mut Vec::new()).expect("accepted");
        if let Some(end) = reader.end() {
            let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("received");
            assert!(outcome.verified && outcome.skipped == 0);
            let read = |at: &TempDir| fs::read(at.path().join("file")).expect("there");
            return (outcome.kept, notes, read(from) == read(to));
        }
    }
    unreachable!()
}

const BYTES: usize = 64 << 10;

#[test]
fn a_part_that_was_edited_under_a_valid_journal_is_not_resumed() {
    let (from, to) = half_a_file(BYTES);
    let whole = resumed(&from, &to).0;
    assert!(whole > BYTES as u64 / 4, "{whole}");
    for back in [false, true] {
        let (from, to) = half_a_file(BYTES);
        let slot = to.path().join(KEPT).join("0");
        let before = fs::metadata(&slot).expect("there");
        let time = before.modified().expect("known");
        let changed = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
        let file = fs::File::options().write(true).open(&slot).expect("opened");
        // The kernel's clock ticks every few milliseconds: an edit shows from the next tick on.
        while changed(&fs::metadata(&slot).expect("there")) == changed(&before) {
            file.write_all_at(&[0xee; 1000], 5000).expect("written");
            if back {
                file.set_modified(time).expect("set");
            }
        }
        drop(file);
        let (kept, _, same) = resumed(&from, &to);
        assert!(same, "{back}");
        // What is still the sender's of it is not sent again.
        assert!(kept > 0 && kept < whole, "{back}: {kept} of {whole}");
    }
}

#[test]
fn parts_without_a_key_are_read_again_and_not_trusted() {
    let other = temporary();
    let place = || Some(other.path().join("netblt/journal-key"));
    let (from, to) = half_a_file(BYTES);
    let (kept, notes, same) = with_place(place(), || resumed(&from, &to));
    assert!(same && kept > BYTES as u64 / 4, "{kept}");
    assert!(notes.contains("was read again"), "{notes}");
    // As it is brought by an archive: a part that is another name of a file that matters.
    let (from, to) = half_a_file(BYTES);
    let slot = to.path().join(KEPT).join("0");
    let mine = to.path().join("mine");
    fs::copy(&slot, &mine).expect("copied");
    fs::remove_file(&slot).expect("removed");
    fs::hard_link(&mine, &slot).expect("linked");
    for name in ["journal.new", "README"] {
        let _ = fs::remove_file(to.path().join(KEPT).join(name));
        fs::hard_link(&mine, to.path().join(KEPT).join(name)).expect("linked");
    }
    let before = fs::read(&mine).expect("read");
    let (kept, _, same) = with_place(place(), || resumed(&from, &to));
    assert!(same && kept == 0);
    assert!(fs::read(&mine).expect("read") == before);
}
