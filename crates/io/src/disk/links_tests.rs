//! Links and holes, there and back, and what a hostile sender or neighbour may try with them.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, Kind, TransferDigest, encode_table};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::cancel::Cancel;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::directory::DirectoryWriter;
use crate::disk::directory::tests::{image, images};
use crate::disk::file_list::FileList;
use crate::disk::have_list::digest_of_link;
use crate::disk::layout::Layout;
use crate::disk::threads::{StoreOutcome, Writer as _};
use crate::disk::trials::temporary;
use crate::error::Error;
use crate::options::Source;
use crate::settings::{Overwrite, Resume};

fn layout() -> Layout {
    Layout::sealed(1 << 20, 8192).expect("possible")
}

fn list(path: PathBuf) -> FileList {
    FileList::new(Source::Paths(vec![path]), true, &Cancel::default()).expect("a list")
}

fn writer(to: &Path, overwrite: Overwrite, atomic: bool) -> DirectoryWriter {
    let writer = DirectoryWriter::new(to, overwrite, layout()).expect("opened").atomic(atomic);
    writer.resuming(Resume::Auto, Duration::from_secs(60)).expect("nothing there")
}

/// The last buffer first.
fn receive(
    mut writer: DirectoryWriter,
    sent: Vec<Buffer>,
    end: &End,
) -> Result<StoreOutcome, Error> {
    for (at, image) in sent.into_iter().enumerate().rev() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut Vec::new())?;
    }
    writer.finish(Some(end), &CommitLatch::default())
}

/// What a hostile sender says in one buffer, with a digest that fits.
fn say(
    mut writer: DirectoryWriter,
    files: &[(u64, Kind, &[u8], &[u8])],
) -> Result<StoreOutcome, Error> {
    let (mut transfer, mut bytes) = (TransferDigest::default(), 0);
    for (number, kind, name, data) in files {
        bytes += data.len() as u64;
        let digest = blake3::hash(data);
        transfer.add(*number, *kind, data.len() as u64, digest.as_bytes(), name);
    }
    writer.accept(BufferNumber(1), image(files), &mut Vec::new())?;
    let end = End { buffers: 1, bytes, digest: transfer.finish() };
    writer.finish(Some(&end), &CommitLatch::default())
}

fn status(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).expect("there")
}

/// Three names of a file, links to here, there and nowhere, a hole, and odd names.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).expect("made");
    fs::write(root.join("sub/first"), "one file").expect("written");
    fs::hard_link(root.join("sub/first"), root.join("second")).expect("linked");
    fs::hard_link(root.join("sub/first"), root.join("sub/third")).expect("linked");
    for (target, name) in
        [("sub/first", "near"), ("/etc/passwd", "far"), ("../../up", "sub/up"), ("no such", "no")]
    {
        symlink(target, root.join(name)).expect("linked");
    }
    fs::write(root.join(OsStr::from_bytes(b"a\nb\x1b\xff")), "odd").expect("written");
    let holed = fs::File::create(root.join("holed")).expect("made");
    holed.set_len(40 << 20).expect("set");
    holed.write_all_at(b"in the middle", 20 << 20).expect("written");
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    holed.set_modified(time).expect("set");
}

#[test]
fn links_and_holes_arrive_as_such() {
    for (atomic, overwrite) in
        [(false, Overwrite::Never), (true, Overwrite::Never), (false, Overwrite::Always)]
    {
        let (from, to) = (temporary(), temporary());
        let root = from.path().join("tree");
        tree(&root);
        if overwrite == Overwrite::Always {
            fs::create_dir_all(to.path().join("tree/sub")).expect("made");
            for old in ["near", "second", "sub/third", "holed"] {
                fs::write(to.path().join("tree").join(old), "old").expect("written");
            }
        }
        let list = list(root.clone());
        let files = list.files();
        assert_eq!((files, list.warnings()), (9, &[][..]));
        let (sent, end) = images(list, layout());
        let sent_bytes: usize = sent.iter().map(|image| image.filled().len()).sum();
        assert!(sent_bytes < 64 << 10, "{sent_bytes} bytes for 40 MiB of holes");
        let outcome = receive(writer(to.path(), overwrite, atomic), sent, &end).expect("received");
        assert_eq!((outcome.verified, outcome.files, outcome.skipped), (true, files, 0));
        let arrived = to.path().join("tree");
        for link in ["near", "far", "sub/up", "no"] {
            let target = |root: &Path| fs::read_link(root.join(link)).expect("a link");
            assert_eq!(target(&arrived), target(&root));
            let time = |root: &Path| {
                let status = status(&root.join(link));
                (status.mtime(), status.mtime_nsec())
            };
            assert_eq!(time(&arrived), time(&root), "{link}");
        }
        let inode = |name: &str| status(&arrived.join(name)).ino();
        assert_eq!((inode("second"), inode("sub/third")), (inode("sub/first"), inode("sub/first")));
        assert_eq!(fs::read(arrived.join("second")).expect("there"), b"one file");
        let odd = arrived.join(OsStr::from_bytes(b"a\nb\x1b\xff"));
        assert_eq!(fs::read(odd).expect("there"), b"odd");
        assert!(arrived.join("sub/empty").is_dir());
        let (was, is) = (status(&root.join("holed")), status(&arrived.join("holed")));
        assert_eq!((is.len(), is.mtime_nsec()), (was.len(), 123_456_789));
        assert!(is.blocks() <= was.blocks() + 64, "{} {}", is.blocks(), was.blocks());
        let content = |root: &Path| fs::read(root.join("holed")).expect("there");
        assert!(content(&arrived) == content(&root));
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1);
    }
}

#[test]
fn identical_files_are_neither_sent_nor_left_out() {
    let (from, to) = (temporary(), temporary());
    let root = from.path().join("tree");
    tree(&root);
    for again in [false, true] {
        if again {
            fs::remove_file(to.path().join("tree/near")).expect("removed");
            symlink("elsewhere", to.path().join("tree/near")).expect("linked");
            fs::remove_file(to.path().join("tree/sub/third")).expect("removed");
            fs::write(to.path().join("tree/sub/third"), "another").expect("written");
        }
        let (sent, end) = images(list(root.clone()), layout());
        let outcome = receive(writer(to.path(), Overwrite::Never, false), sent, &end);
        let outcome = outcome.expect("received");
        assert!(outcome.verified);
        let out = if again { 2 } else { 0 };
        assert_eq!((outcome.files, outcome.skipped), (9 - out, out), "{:?}", outcome.left_out);
    }
    let near = fs::read_link(to.path().join("tree/near")).expect("a link");
    assert_eq!(near, Path::new("elsewhere"));
    assert_eq!(fs::read(to.path().join("tree/sub/third")).expect("there"), b"another");
}

#[test]
fn a_link_of_a_senders_is_never_written_through() {
    let outside = temporary();
    let to = outside.path().join("to");
    fs::create_dir(&to).expect("made");
    fs::write(outside.path().join("victim"), "mine").expect("written");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(outside.path().join("victim"), private).expect("set");
    // In one transfer: a file beneath a name that is a link.
    let both: [(u64, Kind, &[u8], &[u8]); 2] =
        [(0, Kind::SymbolicLink, b"d", b".."), (1, Kind::File, b"d/victim", b"theirs")];
    for atomic in [false, true] {
        assert!(say(writer(&to, Overwrite::Always, atomic), &both).is_err());
        assert_eq!(fs::read_dir(&to).expect("listed").count(), 0);
    }
    // In two.
    let said = say(writer(&to, Overwrite::Always, false), &both[..1]).expect("a link");
    assert!(said.verified && fs::read_link(to.join("d")).is_ok());
    let one: [(u64, Kind, &[u8], &[u8]); 1] = [(0, Kind::File, b"d/victim", b"theirs")];
    let said = say(writer(&to, Overwrite::Always, false), &one).expect("left out");
    assert_eq!((said.files, said.skipped), (0, 1));
    assert!(say(writer(&to, Overwrite::Always, true), &one).is_err());
    // A link takes the place of a file whose mode a new file would keep: the target's stays.
    for atomic in [false, true] {
        fs::write(to.join("file"), "old").expect("written");
        fs::set_permissions(to.join("file"), fs::Permissions::from_mode(0o666)).expect("set");
        let link: [(u64, Kind, &[u8], &[u8]); 1] = [(0, Kind::SymbolicLink, b"file", b"../victim")];
        assert!(say(writer(&to, Overwrite::Always, atomic), &link).expect("a link").verified);
        assert!(fs::read_link(to.join("file")).is_ok());
        assert_eq!(status(&outside.path().join("victim")).mode() & 0o777, 0o600);
        fs::remove_file(to.join("file")).expect("removed");
    }
    assert_eq!(fs::read(outside.path().join("victim")).expect("there"), b"mine");
    let zero: [(u64, Kind, &[u8], &[u8]); 1] = [(0, Kind::SymbolicLink, b"z", b"a\0b")];
    assert!(matches!(say(writer(&to, Overwrite::Never, false), &zero), Err(Error::Content(_))));
}

/// A file of that kind and a hard link to it, and the end that fits.
fn pair(kind: Kind, data: &[u8], claimed: [u8; 32]) -> (Buffer, End) {
    let named = |name: &str| Some(Attributes { name: name.into(), ..Attributes::default() });
    let (digest, length) = (Some(*blake3::hash(data).as_bytes()), data.len() as u32);
    let attributes = named("d/first");
    let first = Extent { file: 0, offset: 0, length, kind, pieces: None, attributes, digest };
    let (kind, attributes, digest) = (Kind::HardLink, named("second"), Some(claimed));
    let second = Extent { file: 1, length: 0, kind, attributes, digest, ..first.clone() };
    let mut transfer = TransferDigest::default();
    transfer.add(0, first.kind, length.into(), blake3::hash(data).as_bytes(), b"d/first");
    transfer.add(1, Kind::HardLink, 0, &claimed, b"second");
    let mut bytes = data.to_vec();
    encode_table(&[first, second], &mut bytes).expect("fits");
    let mut buffer = Buffer::new(bytes.len());
    buffer.space().write_all(&bytes).expect("fits");
    buffer.set_len(bytes.len());
    (buffer, End { buffers: 1, bytes: data.len() as u64, digest: transfer.finish() })
}

#[test]
fn a_hard_link_to_a_file_outside_of_the_transfer_is_refused() {
    for atomic in [false, true] {
        for (kind, data, claimed, fits) in [
            (Kind::File, &b"data"[..], digest_of_link(0), true),
            (Kind::Directory, b"", digest_of_link(0), false),
            (Kind::SymbolicLink, b"/etc/passwd", digest_of_link(0), false),
            (Kind::File, b"data", digest_of_link(1), false),
        ] {
            let to = temporary();
            let (buffer, end) = pair(kind, data, claimed);
            let outcome = receive(writer(to.path(), Overwrite::Never, atomic), vec![buffer], &end);
            let verified = outcome.expect("judged").verified;
            assert_eq!(verified, fits, "{kind:?} {atomic}");
            assert_eq!(to.path().join("second").exists(), fits);
        }
    }
}

#[test]
fn a_file_that_replaced_a_link_target_is_not_linked_to() {
    let outside = temporary();
    let to = outside.path().join("to");
    fs::create_dir(&to).expect("made");
    fs::write(outside.path().join("secret"), "mine").expect("written");
    let swaps: [&dyn Fn(); 2] = [
        &|| {
            fs::remove_file(to.join("d/first")).expect("removed");
            symlink("../../secret", to.join("d/first")).expect("linked");
        },
        &|| {
            fs::rename(to.join("d"), to.join("gone")).expect("moved");
            symlink("..", to.join("d")).expect("linked");
            fs::write(outside.path().join("first"), "mine").expect("written");
        },
    ];
    for swap in swaps {
        let (buffer, end) = pair(Kind::File, b"data", digest_of_link(0));
        let mut writer = writer(&to, Overwrite::Never, false);
        // So late that the file gets its name at once.
        std::thread::sleep(Duration::from_millis(600));
        writer.accept(BufferNumber(1), buffer, &mut Vec::new()).expect("taken");
        assert!(to.join("d/first").exists());
        swap();
        let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("judged");
        assert_eq!((outcome.files, outcome.skipped), (1, 1), "{:?}", outcome.left_out);
        assert!(!to.join("second").exists());
        drop(writer);
        fs::remove_dir_all(&to).expect("removed");
        fs::create_dir(&to).expect("made");
    }
}
