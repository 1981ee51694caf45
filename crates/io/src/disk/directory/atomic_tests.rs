//! All or nothing, broken off at every point and gone on with: it shows nothing before it is whole.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::DirectoryWriter;
use crate::disk::fault_injection::{Call, Fault, forget, plan};
use crate::disk::staging;
use crate::disk::threads::{StoreOutcome, Writer as _};
use crate::disk::trials::{KEPT, layout, sent, temporary};
use crate::error::Error;
use crate::settings::{Overwrite, Resume};

fn open(to: &Path, overwrite: Overwrite) -> DirectoryWriter {
    let writer = DirectoryWriter::new(to, overwrite, layout()).expect("opened");
    writer.resuming(Resume::Auto, Duration::from_secs(60)).expect("looked into")
}

fn accept(writer: &mut DirectoryWriter, images: Vec<Buffer>) -> Result<(), Error> {
    for (at, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new())?;
    }
    Ok(())
}

/// The same transfer, to its end.
fn again(from: &Path, to: &Path, overwrite: Overwrite) -> Result<StoreOutcome, Error> {
    let mut writer = open(to, overwrite);
    let (images, end) = sent(&from.join("t"), &mut writer);
    accept(&mut writer, images)?;
    writer.finish(Some(&end), &CommitLatch::default())
}

fn source(files: u32, content: u8) -> TempDir {
    let from = temporary();
    let root = from.path().join("t");
    fs::create_dir_all(root.join("nothing")).expect("made");
    for i in 0..files {
        let len = [0, 10, 1024, 5000, 9000][i as usize % 5];
        fs::write(root.join(format!("f{i}")), vec![content; len]).expect("written");
    }
    symlink("f1", root.join("link")).expect("made");
    fs::hard_link(root.join("f3"), root.join("name")).expect("made");
    from
}

/// Names and contents; of what is kept, only that it is.
fn listing(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("beneath").display().to_string();
            // What was replaced is there until the same transfer has found all done.
            if name.contains("/.netblt-unfinished-") {
                continue;
            }
            let kind = fs::symlink_metadata(&path).expect("examined").file_type();
            if kind.is_dir() && name != KEPT {
                todo.push(path.clone());
            }
            let link = || fs::read_link(&path).expect("a link").display().to_string().into_bytes();
            let content =
                if kind.is_symlink() { link() } else { fs::read(&path).unwrap_or_default() };
            found.insert(name, content);
        }
    }
    found
}

fn is_there(from: &Path, to: &Path) {
    assert!(listing(to) == listing(from), "{:?}", listing(to).keys());
}

/// A program that another test starts has the locks of this process until it runs.
fn wait_until_free(to: &Path) {
    let root = OwnedFd::from(fs::File::open(to).expect("opened"));
    for _ in 0..1000 {
        if !staging::is_taken(&root, KEPT) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("what is kept in {} is in use", to.display());
}

#[test]
fn a_broken_atomic_transfer_shows_nothing_and_is_resumed() {
    let from = source(12, 1);
    let whole = {
        let to = temporary();
        sent(&from.path().join("t"), &mut open(to.path(), Overwrite::Never)).0.len()
    };
    let mut spared = 0;
    for cut in 0..=whole {
        let to = temporary();
        let mut writer = open(to.path(), Overwrite::Never);
        let (mut images, _) = sent(&from.path().join("t"), &mut writer);
        images.truncate(cut);
        accept(&mut writer, images).expect("accepted");
        assert!(listing(to.path()).keys().all(|name| name == KEPT), "{cut}");
        // A killed process has committed only now and then.
        if cut % 4 == 3 {
            writer.die()
        } else {
            drop(writer)
        }
        assert!(listing(to.path()).keys().all(|name| name == KEPT), "{cut}");
        let outcome = again(from.path(), to.path(), Overwrite::Never).expect("received");
        assert!(outcome.verified && outcome.skipped == 0, "{cut}: {outcome:?}");
        spared += u64::from(outcome.kept > 0);
        is_there(from.path(), to.path());
        let (first, name) = (to.path().join("t/f3"), to.path().join("t/name"));
        let inode = |path: &Path| {
            use std::os::unix::fs::MetadataExt as _;
            fs::metadata(path).expect("there").ino()
        };
        assert_eq!(inode(&first), inode(&name));
    }
    assert!(spared > whole as u64 / 2, "{spared} of {whole}");
}

/// A destination in which a process died after so many renames; `None` if it was before the first,
/// or there was nothing to be done any more.
fn die_at(rename: u32, from: &Path, (overwrite, exchange): (Overwrite, bool)) -> Option<TempDir> {
    let to = temporary();
    if overwrite == Overwrite::Always {
        assert!(again(source(12, 7).path(), to.path(), Overwrite::Never).expect("old").verified);
    }
    if !exchange {
        plan(to.path(), Call::Exchange, 0, u32::MAX, Fault::Error(Errno::INVAL));
    }
    // Every call from there on fails, as if the process had been killed.
    plan(to.path(), Call::Rename, rename, u32::MAX, Fault::Error(Errno::IO));
    let failed = again(from, to.path(), overwrite);
    forget(to.path());
    match failed {
        Ok(_) => None,
        Err(Error::Stranded { place, .. }) => {
            ["stranded", "owner"]
                .iter()
                .for_each(|name| fs::remove_file(place.join(name)).expect("there"));
            fs::rename(place, to.path().join(KEPT)).expect("renamed");
            Some(to)
        }
        Err(error) => {
            assert!(rename == 0, "{rename}: {error}");
            assert!(!error.to_string().contains("nothing was kept"), "{error}");
            let done = again(from, to.path(), overwrite).expect("received");
            assert!(done.verified && done.kept > 0, "{done:?}");
            is_there(from, to.path());
            None
        }
    }
}

#[test]
fn a_kill_amid_renames_is_completed_by_the_next_run_which_finds_it_done() {
    let from = source(12, 1);
    let cases = [(Overwrite::Never, true), (Overwrite::Always, true), (Overwrite::Always, false)];
    let mut completed = 0;
    for (rename, case) in (0..15).flat_map(|rename| cases.map(|case| (rename, case))) {
        let Some(to) = die_at(rename, from.path(), case) else { continue };
        wait_until_free(to.path());
        let mut next = open(to.path(), case.0);
        let notes = next.take_notes().join("\n");
        assert!(notes.contains("completed an earlier transfer"), "{rename} {case:?}: {notes}");
        let mut there = listing(to.path());
        assert!(there.remove(KEPT).is_some());
        assert!(there == listing(from.path()), "{rename} {case:?}: {:?}", there.keys());
        drop(next);
        wait_until_free(to.path());
        let outcome = again(from.path(), to.path(), case.0).expect("found done");
        assert!(outcome.verified && outcome.kept > 0, "{rename} {case:?}: {outcome:?}");
        is_there(from.path(), to.path());
        completed += 1;
    }
    assert!(completed > 30, "{completed}");
}

#[test]
fn a_publication_that_cannot_be_completed_is_left_alone_until_it_can() {
    let (from, other) = (source(12, 1), source(5, 2));
    let to = die_at(3, from.path(), (Overwrite::Never, true)).expect("died");
    let moved = to.path().join("moved");
    fs::rename(to.path().join("t"), &moved).expect("renamed");
    fs::write(to.path().join("t"), "in the way").expect("written");
    let mut next = open(to.path(), Overwrite::Never);
    let notes = next.take_notes().join("\n");
    assert!(notes.contains("cannot be given their names"), "{notes}");
    drop(next);
    assert!(matches!(
        again(other.path(), to.path(), Overwrite::Never),
        Err(Error::Exists(_) | Error::File { .. })
    ));
    assert!(to.path().join(KEPT).join("publication").exists());
    fs::remove_file(to.path().join("t")).expect("removed");
    fs::rename(moved, to.path().join("t")).expect("renamed");
    again(from.path(), to.path(), Overwrite::Never).expect("found done");
    is_there(from.path(), to.path());
}

#[test]
fn another_transfer_in_between_leaves_the_parts_as_they_are() {
    let (from, other) = (source(12, 1), temporary());
    fs::create_dir(other.path().join("t")).expect("made");
    for (name, to) in [("a", 3000), ("b", 10)] {
        fs::write(other.path().join("t").join(name), vec![3; to]).expect("written");
    }
    let to = temporary();
    fs::create_dir(to.path().join("t")).expect("made");
    fs::write(to.path().join("t/a"), "old").expect("written");
    let mut writer = open(to.path(), Overwrite::Never);
    let (mut images, _) = sent(&from.path().join("t"), &mut writer);
    images.truncate(images.len() / 2);
    accept(&mut writer, images).expect("accepted");
    drop(writer);
    let between = again(other.path(), to.path(), Overwrite::Always).expect("received");
    assert!(between.verified && between.kept == 0, "{between:?}");
    assert!(to.path().join(KEPT).join("journal").exists());
    assert!(!to.path().join(KEPT).join("publication").exists());
    let outcome = again(from.path(), to.path(), Overwrite::Never).expect("received");
    assert!(outcome.verified && outcome.kept > 0, "{outcome:?}");
    let mut both = listing(from.path());
    both.extend(listing(other.path()));
    assert!(listing(to.path()) == both, "{:?}", listing(to.path()).keys());
}

#[test]
fn a_new_leftover_is_not_written_into() {
    let (from, other) = (source(12, 9), source(12, 1));
    for file in fs::read_dir(other.path().join("t")).expect("listed").flatten() {
        let longer = file.file_type().is_ok_and(|kind| kind.is_file());
        longer.then(|| fs::write(file.path(), vec![5; 9500]).expect("written"));
    }
    for atomic in [false, true] {
        let to = temporary();
        let (late, early) = (to.path().join("late"), to.path());
        fs::create_dir(&late).expect("made");
        let open = || {
            let writer = DirectoryWriter::new(early, Overwrite::Always, layout()).expect("opened");
            let writer = writer.atomic(atomic).resuming(Resume::Auto, Duration::from_secs(60));
            writer.expect("looked into")
        };
        // It finds nothing; then another one leaves something, and dies.
        let mut waiting = open();
        let mut dying = open();
        let (mut images, _) = sent(&other.path().join("t"), &mut dying);
        images.pop();
        accept(&mut dying, images).expect("accepted");
        dying.die();
        let (images, end) = sent(&from.path().join("t"), &mut waiting);
        accept(&mut waiting, images).expect("accepted");
        assert!(waiting.finish(Some(&end), &CommitLatch::default()).expect("received").verified);
        drop(waiting);
        let (there, all) = (listing(early), listing(from.path()));
        assert!(all.iter().all(|(name, content)| there.get(name) == Some(content)), "{atomic}");
        assert!(there.contains_key(KEPT), "{atomic}");
    }
}
