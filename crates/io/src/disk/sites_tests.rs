//! What arrives is as if it had been made where it gets its name, on whichever file system that is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::DirectoryWriter;
use crate::disk::fault_injection::{Call, Fault, forget, plan};
use crate::disk::leftovers::Leftovers;
use crate::disk::store::{Store, with_state};
use crate::disk::threads::{StoreOutcome, Writer as _};
use crate::disk::trials::{KEPT, layout, sent, temporary};
use crate::error::Error;
use crate::settings::{Overwrite, Resume};

const UNFINISHED: &str = ".netblt-unfinished-";

/// How a transfer is made.
type How = (bool, Overwrite, Resume);

fn open(to: &Path, (atomic, overwrite, resume): How) -> DirectoryWriter {
    let writer = DirectoryWriter::new(to, overwrite, layout()).expect("opened");
    let writer = writer.atomic(atomic).resuming(resume, Duration::from_secs(60));
    writer.expect("looked into")
}

/// The last comes first: of some files the beginning comes after the rest.
fn accept(writer: &mut DirectoryWriter, images: Vec<Buffer>) -> Result<(), Error> {
    for (at, image) in images.into_iter().enumerate().rev() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new())?;
    }
    Ok(())
}

fn receive(from: &Path, to: &Path, how: How) -> Result<StoreOutcome, Error> {
    let mut writer = open(to, how);
    let (images, end) = sent(&from.join("sub"), &mut writer);
    accept(&mut writer, images)?;
    writer.finish(Some(&end), &CommitLatch::default())
}

/// Files of all kinds, for a directory `sub` that is there and for new ones in it.
fn source() -> TempDir {
    let from = temporary();
    let root = from.path().join("sub");
    fs::create_dir_all(root.join("new/er")).expect("made");
    for (name, bytes) in [("a", 10), ("b", 9000), ("empty", 0), ("new/c", 5000), ("new/er/d", 0)] {
        fs::write(root.join(name), vec![7; bytes]).expect("written");
        let mode = fs::Permissions::from_mode(0o664);
        fs::set_permissions(root.join(name), mode).expect("set");
    }
    for name in ["new", "new/er"] {
        let mode = fs::Permissions::from_mode(0o775);
        fs::set_permissions(root.join(name), mode).expect("set");
    }
    symlink("a", root.join("link")).expect("made");
    fs::hard_link(root.join("b"), root.join("new/name")).expect("made");
    from
}

/// Names beneath a directory: what they are, and contents.
fn listing(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("beneath").to_path_buf();
            let kind = fs::symlink_metadata(&path).expect("examined").file_type();
            let content = fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes());
            let content = content.unwrap_or_else(|_| fs::read(&path).unwrap_or_default());
            found.insert(name, content);
            if kind.is_dir() {
                todo.push(path);
            }
        }
    }
    found
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// The default access list `u::rwx,u:1234:rwx,g::r-x,m::rwx,o::---`.
fn default_list() -> Vec<u8> {
    let entries = [
        (1u16, 7u16, u32::MAX),
        (2, 7, 1234),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

const DEFAULT_LIST: &str = "system.posix_acl_default";
const LIST: &str = "system.posix_acl_access";

const HOWS: [How; 4] = [
    (false, Overwrite::Never, Resume::Auto),
    (false, Overwrite::Always, Resume::Never),
    (true, Overwrite::Never, Resume::Auto),
    (true, Overwrite::Always, Resume::Never),
];

#[test]
fn a_received_file_has_the_group_and_access_lists_of_its_directory() {
    let from = source();
    for (how, lists) in HOWS.into_iter().flat_map(|how| [(how, false), (how, true)]) {
        let to = temporary();
        let sub = to.path().join("sub");
        fs::create_dir(&sub).expect("made");
        if chown(&sub, None, Some(4321)).is_err() {
            eprintln!("skipped: groups cannot be given away");
            return;
        }
        fs::set_permissions(&sub, fs::Permissions::from_mode(0o2775)).expect("set");
        let flags = rustix::fs::XattrFlags::empty();
        if lists && rustix::fs::setxattr(&sub, DEFAULT_LIST, &default_list(), flags).is_err() {
            eprintln!("skipped: the file system has no access lists");
            continue;
        }
        let outcome = receive(from.path(), to.path(), how).expect("received");
        assert!(outcome.verified && outcome.skipped == 0, "{how:?} {outcome:?}");
        assert!(listing(&to.path().join("sub")) == listing(&from.path().join("sub")), "{how:?}");
        // As what is made there by hand.
        let open = |path: &Path| {
            use std::os::unix::fs::OpenOptionsExt as _;
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o664).open(path).expect("made");
        };
        open(&sub.join("hand"));
        fs::create_dir(sub.join("made")).expect("made");
        let like = |name: &str, other: &str| {
            let [own, other] = [name, other].map(|name| sub.join(name));
            let about = |path: &Path| {
                let about = fs::symlink_metadata(path).expect("there");
                let lists = [LIST, DEFAULT_LIST].map(|list| attribute(path, list));
                (about.gid(), about.mode(), lists)
            };
            assert_eq!(about(&own), about(&other), "{name} {how:?} {lists}");
        };
        ["a", "b", "empty", "new/c", "new/er/d", "new/name"]
            .iter()
            .for_each(|name| like(name, "hand"));
        ["new", "new/er"].iter().for_each(|name| like(name, "made"));
        assert_eq!(fs::symlink_metadata(sub.join("link")).expect("there").gid(), 4321);
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1, "{how:?}");
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A destination with a file system of its own in `sub`.
fn mounted() -> Option<(TempDir, Mounted)> {
    let to = temporary();
    let sub = to.path().join("sub");
    fs::create_dir(&sub).expect("made");
    if mount("netblt", &sub, "tmpfs", MountFlags::empty(), None).is_err() {
        eprintln!("skipped: a file system cannot be mounted");
        return None;
    }
    Some((to, Mounted(sub)))
}

#[test]
fn a_mounted_file_system_in_the_destination_gets_its_files() {
    let from = source();
    for how in HOWS {
        let Some((to, _mounted)) = mounted() else { return };
        let outcome = receive(from.path(), to.path(), how).expect("received");
        assert!(outcome.verified && outcome.skipped == 0, "{how:?} {outcome:?}");
        let there = listing(&to.path().join("sub"));
        assert!(there == listing(&from.path().join("sub")), "{how:?} {:?}", there.keys());
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1, "{how:?}");
    }
}

#[test]
fn a_broken_transfer_there_is_resumed_and_can_be_cleaned() {
    let from = source();
    for (atomic, clean) in [(false, false), (true, false), (false, true)] {
        let Some((to, _mounted)) = mounted() else { return };
        let how = (atomic, Overwrite::Never, Resume::Auto);
        let mut writer = open(to.path(), how);
        let (mut images, _) = sent(&from.path().join("sub"), &mut writer);
        images.truncate(images.len() * 3 / 4);
        for (at, image) in images.into_iter().enumerate() {
            writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new()).expect("accepted");
        }
        writer.die();
        let within = |name: &str| {
            let names = fs::read_dir(to.path().join("sub")).expect("listed").flatten();
            names.filter(|entry| entry.file_name().to_string_lossy().starts_with(name)).count()
        };
        assert_eq!(within(UNFINISHED), 1);
        assert!(to.path().join(KEPT).exists());
        if clean {
            let left = Leftovers::find(to.path()).expect("looked").expect("left");
            left.remove().expect("removed");
            assert_eq!(within(UNFINISHED), 0);
            assert!(!to.path().join(KEPT).exists());
            continue;
        }
        let outcome = receive(from.path(), to.path(), how).expect("received");
        assert!(outcome.verified && outcome.skipped == 0, "{atomic} {outcome:?}");
        let there = listing(&to.path().join("sub"));
        assert!(there == listing(&from.path().join("sub")), "{atomic} {:?}", there.keys());
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1, "{atomic}");
    }
}

#[test]
fn the_next_run_removes_leftovers_in_a_subdirectory() {
    let (from, to) = (source(), temporary());
    fs::create_dir(to.path().join("sub")).expect("made");
    for atomic in [false, true] {
        let how = (atomic, Overwrite::Always, Resume::Never);
        let mut writer = open(to.path(), how);
        let (mut images, _) = sent(&from.path().join("sub"), &mut writer);
        images.truncate(images.len() / 2);
        for (at, image) in images.into_iter().enumerate() {
            writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new()).expect("accepted");
        }
        writer.die();
        let left = || {
            let names = listing(to.path()).into_keys().map(|name| name.display().to_string());
            names.filter(|name| name.contains(UNFINISHED) && name.ends_with(".part")).count()
        };
        assert_eq!(left(), 2, "{atomic}");
        let notes = open(to.path(), how).take_notes();
        assert!(notes.len() == 1 && notes[0].starts_with("removed "), "{notes:?}");
        assert_eq!(left(), 0, "{atomic}");
    }
}

#[test]
fn all_or_nothing_over_two_file_systems_is_completed_after_a_kill() {
    let (from, mut completed) = (source(), 0);
    // There are seven names to be given.
    for rename in 0..7 {
        let Some((to, _mounted)) = mounted() else { return };
        plan(to.path(), Call::Rename, rename, u32::MAX, Fault::Error(Errno::IO));
        let how = (true, Overwrite::Never, Resume::Auto);
        let failed = receive(from.path(), to.path(), how);
        forget(to.path());
        if let Err(Error::Stranded { place, .. }) = failed {
            ["stranded", "owner"]
                .iter()
                .for_each(|name| fs::remove_file(place.join(name)).expect("there"));
            fs::rename(place, to.path().join(KEPT)).expect("renamed");
            let notes = open(to.path(), how).take_notes().join("\n");
            assert!(notes.contains("completed an earlier transfer"), "{rename}: {notes}");
            completed += 1;
        }
        let outcome = receive(from.path(), to.path(), how).expect("found done");
        assert!(outcome.verified, "{rename}: {outcome:?}");
        let there = listing(&to.path().join("sub"));
        assert!(there == listing(&from.path().join("sub")), "{rename} {:?}", there.keys());
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1, "{rename}");
    }
    assert!(completed > 3, "{completed}");
}

#[test]
fn a_destination_with_an_unwritable_top_takes_files_beneath_it() {
    let (from, home) = (source(), temporary());
    for how in HOWS {
        let Some((to, _mounted)) = mounted_read_only() else { return };
        let error = Store::new(to.path(), how.1).map(|_| ()).expect_err("read-only").to_string();
        assert!(error.contains("cannot be written to"), "{error}");
        let (outcome, lodged) = with_state(home.path(), || {
            let mut writer = open(to.path(), how);
            let (images, end) = sent(&from.path().join("sub"), &mut writer);
            accept(&mut writer, images).expect("accepted");
            let lodged = listing(home.path()).len();
            (writer.finish(Some(&end), &CommitLatch::default()).expect("received"), lodged)
        });
        assert!(outcome.verified && outcome.skipped == 0 && lodged > 2, "{how:?} {outcome:?}");
        let there = listing(&to.path().join("sub"));
        assert!(there == listing(&from.path().join("sub")), "{how:?} {:?}", there.keys());
        let left = listing(home.path());
        assert!(left.keys().all(|name| name.components().count() == 1), "{how:?} {left:?}");
    }
    // Where nothing beneath it can be written to either, it is refused before anything is sent.
    let Some((to, mounted)) = mounted_read_only() else { return };
    drop(mounted.0);
    let opened = DirectoryWriter::new(to.path(), Overwrite::Never, layout());
    let error = opened.map(|_| ()).expect_err("read-only").to_string();
    assert!(error.contains("cannot be written to"), "{error}");
}

/// A destination on a file system that cannot be written to, with another one in `sub`: that one,
/// and the destination's.
fn mounted_read_only() -> Option<(TempDir, (Mounted, Mounted))> {
    let to = temporary();
    if mount("netblt", to.path(), "tmpfs", MountFlags::empty(), None).is_err() {
        eprintln!("skipped: a file system cannot be mounted");
        return None;
    }
    let top = Mounted(to.path().to_path_buf());
    let sub = to.path().join("sub");
    fs::create_dir(&sub).expect("made");
    mount("netblt", &sub, "tmpfs", MountFlags::empty(), None).expect("mounted");
    let within = Mounted(sub);
    rustix::mount::mount_remount(to.path(), MountFlags::RDONLY, "").expect("remounted");
    Some((to, (within, top)))
}
