//! Empty files, which are made under their own names: existing files there, the leftovers of a
//! killed process, and links that would lead one elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use netblt_proto::content::{Kind, TransferDigest};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::DirectoryWriter;
use crate::disk::directory::tests::image;
use crate::disk::layout::Layout;
use crate::disk::threads::{StoreOutcome, Writer as _};
use crate::disk::trials::temporary;
use crate::settings::{Overwrite, Resume};

/// When the sender's files were written to, in seconds since 1970.
const THEN: i64 = 1;

fn writer(to: &Path, overwrite: Overwrite) -> DirectoryWriter {
    let layout = Layout::sealed(1 << 20, 8192).expect("possible");
    let writer = DirectoryWriter::new(to, overwrite, layout).expect("opened").atomic(false);
    writer.resuming(Resume::Auto, Duration::from_secs(60)).expect("nothing there")
}

/// Empty files of these names come.
fn accept(writer: &mut DirectoryWriter, names: &[&str]) -> End {
    let mut transfer = TransferDigest::default();
    let mut files = Vec::new();
    for (number, name) in (0..).zip(names) {
        transfer.add(number, Kind::File, 0, blake3::hash(&[]).as_bytes(), name.as_bytes());
        files.push((number, Kind::File, name.as_bytes(), &[][..]));
    }
    let taken = writer.accept(BufferNumber(1), image(&files), &mut Vec::new());
    assert_eq!(taken.expect("accepted"), 0);
    End { buffers: 1, bytes: 0, digest: transfer.finish() }
}

fn receive(mut writer: DirectoryWriter, names: &[&str]) -> StoreOutcome {
    let end = accept(&mut writer, names);
    let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("finished");
    assert!(outcome.verified, "{outcome:?}");
    outcome
}

fn time(path: &Path) -> i64 {
    fs::metadata(path).expect("there").mtime()
}

fn set_time(path: &Path, seconds: u64) {
    let file = fs::File::open(path).expect("opened");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).expect("set");
}

#[test]
fn an_existing_file_is_as_safe_from_an_empty_file_as_from_any() {
    for overwrite in [Overwrite::Never, Overwrite::Always] {
        let (to, outside) = (temporary(), temporary());
        let at = |name: &str| to.path().join(name);
        let secret = outside.path().join("secret");
        fs::write(&secret, "secret").expect("written");
        fs::write(at("full"), "old").expect("written");
        fs::set_permissions(at("full"), fs::Permissions::from_mode(0o600)).expect("set");
        fs::write(at("empty"), "").expect("written");
        set_time(&at("empty"), 77);
        symlink(&secret, at("link")).expect("linked");
        symlink(outside.path().join("nothing"), at("dangling")).expect("linked");
        symlink(outside.path(), at("away")).expect("linked");
        fs::create_dir(at("directory")).expect("made");
        let names = ["new", "sub/new", "full", "empty", "link", "dangling", "away/x", "directory"];
        let outcome = receive(writer(to.path(), overwrite), &names);
        assert_eq!((time(&at("new")), time(&at("sub/new"))), (THEN, THEN));
        let left = fs::read_dir(outside.path()).expect("listed").count();
        assert_eq!((left, fs::read(&secret).expect("there")), (1, b"secret".to_vec()));
        let kept = fs::read(at("full")).expect("there");
        let (links, stored) = match overwrite {
            Overwrite::Never => {
                assert_eq!((&kept[..], time(&at("empty"))), (&b"old"[..], 77));
                // The empty one is what came.
                (2, 3)
            }
            Overwrite::Always => {
                assert_eq!((&kept[..], time(&at("empty"))), (&b""[..], THEN));
                // A file that its owner made private stays private.
                assert_eq!(fs::metadata(at("full")).expect("there").mode() & 0o777, 0o600);
                (0, 6)
            }
        };
        let is_link = |name: &&str| fs::symlink_metadata(at(name)).expect("there").is_symlink();
        assert_eq!(["link", "dangling"].iter().filter(|name| is_link(name)).count(), links);
        assert!(at("directory").is_dir());
        assert_eq!((outcome.files, outcome.unstored), (stored, 8 - stored), "{outcome:?}");
        assert!(!at(".netblt-partial").exists());
    }
}

#[test]
fn an_empty_file_of_a_killed_process_gets_its_attributes() {
    let to = temporary();
    let at = |name: &str| to.path().join(name);
    let names = ["whole", "half", "written", "linked"];
    let mut killed = writer(to.path(), Overwrite::Never);
    accept(&mut killed, &names);
    // What it has written down and made is there, whatever comes after.
    drop(killed);
    assert!(names.iter().all(|name| time(&at(name)) == THEN));
    assert!(at(".netblt-partial").exists());
    // As if it had been killed between making them and giving them their times.
    ["half", "written", "linked"].iter().for_each(|name| set_time(&at(name), 55));
    fs::write(at("written"), "since then").expect("written");
    set_time(&at("written"), 66);
    fs::hard_link(at("linked"), at("second")).expect("linked");
    // And one that no transfer has made.
    fs::write(at("own"), "").expect("written");
    set_time(&at("own"), 77);
    let all = ["whole", "half", "written", "linked", "own"];
    let outcome = receive(writer(to.path(), Overwrite::Never), &all);
    let times: Vec<i64> = all.iter().map(|name| time(&at(name))).collect();
    assert_eq!(times, [THEN, THEN, 66, 55, 77]);
    // An empty file is there. One with content is in the way.
    assert_eq!((outcome.files, outcome.unstored), (4, 1), "{outcome:?}");
    assert_eq!(fs::read(at("written")).expect("there"), b"since then");
    assert!(!at(".netblt-partial").exists());
}
