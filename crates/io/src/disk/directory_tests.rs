//! Trees there and back, hostile senders, and what is left when something goes wrong.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use netblt_proto::content::{Attributes, TransferDigest, encode_table};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::cancel::Cancel;
use crate::disk::file_list::FileList;
use crate::disk::source::SourceReader;
use crate::disk::threads::Reader;
use crate::disk::trials::{layout, temporary};
use crate::options::Source;
use crate::settings::Resume;

/// Every image that a plan makes, and its end.
pub(crate) fn images(list: FileList, layout: Layout) -> (Vec<Buffer>, End) {
    let mut reader = SourceReader::sealed(list, layout).expect("names fit");
    let mut images = Vec::new();
    loop {
        let mut buffer = Buffer::new(layout.image_bytes());
        let number = BufferNumber(images.len() as u64 + 1);
        let fill = reader.fill(number, &mut buffer).expect("readable");
        images.push(buffer);
        assert_eq!(reader.end().is_some(), fill.last);
        if let Some(end) = reader.end() {
            assert_eq!(end.buffers, images.len() as u64);
            return (images, end);
        }
    }
}

fn list(paths: &[PathBuf]) -> FileList {
    FileList::new(Source::Paths(paths.to_vec()), false, &Cancel::default()).expect("a list")
}

/// The same, in an order that only looks random.
fn shuffled(images: Vec<Buffer>) -> Vec<(BufferNumber, Buffer)> {
    let key = |(i, _): &(usize, Buffer)| (*i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut images: Vec<_> = images.into_iter().enumerate().collect();
    images.sort_by_key(key);
    images.into_iter().map(|(i, image)| (BufferNumber(i as u64 + 1), image)).collect()
}

fn accept_all(writer: &mut DirectoryWriter, images: Vec<Buffer>) -> Result<(), Error> {
    let mut free = Vec::new();
    for (number, image) in shuffled(images) {
        writer.accept(number, image, &mut free)?;
    }
    Ok(())
}

fn receive(
    to: &Path,
    overwrite: Overwrite,
    images: Vec<Buffer>,
    end: &End,
) -> Result<StoreOutcome, Error> {
    let mut writer = DirectoryWriter::new(to, overwrite, layout())?;
    accept_all(&mut writer, images)?;
    writer.finish(Some(end), &CommitLatch::default())
}

/// Everything beneath a directory: name to mode, time and content.
fn listing(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("examined");
            let content = metadata.is_file().then(|| fs::read(&path).expect("read"));
            let name = path.strip_prefix(root).expect("beneath").to_path_buf();
            found.insert(name, (metadata.mode() & 0o777, metadata.mtime(), content));
            if metadata.is_dir() {
                todo.push(path);
            }
        }
    }
    found
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 253) as u8).collect()
}

fn put(path: PathBuf, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("created");
    fs::write(path, content).expect("written");
}

/// A tree with something of everything, and how many of its files there are.
fn tree(root: &Path) -> u64 {
    put(root.join("empty"), "");
    for len in [1, 1023, 1024, 1025, 2048, 5000, 8192] {
        put(root.join(format!("big/{len}")), bytes(len));
    }
    for i in 0..1000 {
        put(root.join(format!("small/{i}")), format!("{i}"));
    }
    let long = "n".repeat(250);
    put(root.join(&long).join(&long).join(&long), "long");
    put(root.join(OsStr::from_bytes(b"not \xff utf-8")), "odd");
    fs::create_dir_all(root.join("nothing/in/here")).expect("created");
    fs::set_permissions(root.join("big/1"), fs::Permissions::from_mode(0o6750)).expect("set");
    fs::set_permissions(root.join("nothing"), fs::Permissions::from_mode(0o750)).expect("set");
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let file = fs::File::options().write(true).open(root.join("big/5000")).expect("opened");
    file.set_modified(time).expect("set");
    fs::File::open(root.join("nothing/in")).and_then(|d| d.set_modified(time)).expect("set");
    1010
}

#[test]
fn a_tree_arrives_in_any_order_as_it_was() {
    let (from, to) = (temporary(), temporary());
    let root = from.path().join("tree");
    let files = tree(&root);
    let list = list(&[root]);
    assert_eq!((list.files(), list.warnings()), (files, &[][..]));
    let total = list.total_bytes().expect("known");
    let (images, end) = images(list, layout());
    // A thousand small files share a few buffers: their tables, mostly.
    assert!(images.len() < 40, "{}", images.len());
    let outcome = receive(to.path(), Overwrite::Never, images, &end).expect("received");
    let expected = StoreOutcome {
        verified: true,
        bytes: total,
        digest: end.digest,
        files,
        ..StoreOutcome::default()
    };
    assert_eq!(outcome, expected);
    let mut sent = listing(from.path());
    sent.get_mut(Path::new("tree/big/1")).expect("there").0 &= 0o777;
    assert_eq!(listing(to.path()), sent);
    // Neither set-user-id nor set-group-id came along.
    assert_eq!(fs::metadata(to.path().join("tree/big/1")).expect("there").mode() & 0o7777, 0o750);
}

#[test]
fn the_digests_are_those_of_the_content() {
    let from = temporary();
    for len in [0, 5, 1024, 4096, 10_000] {
        let path = from.path().join("file");
        put(path.clone(), bytes(len));
        let (images, _) = images(list(&[path]), layout());
        let last = images.last().expect("one").filled();
        let (_, extents) = parse_image(last, 1024).expect("good");
        let digest = extents.last().and_then(|extent| extent.digest);
        assert_eq!(digest, Some(*blake3::hash(&bytes(len)).as_bytes()));
    }
}

#[test]
fn big_buffers_make_few_of_them() {
    let (from, to) = (temporary(), temporary());
    tree(&from.path().join("tree"));
    let layout = Layout::sealed(1 << 20, 8192).expect("possible");
    let (images, end) = images(list(&[from.path().join("tree")]), layout);
    assert_eq!(images.len(), 1);
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout).expect("opened");
    accept_all(&mut writer, images).expect("accepted");
    assert!(writer.finish(Some(&end), &CommitLatch::default()).expect("finished").verified);
    assert_eq!(listing(to.path()).len(), listing(from.path()).len());
}

/// An image of these files, each whole.
pub(crate) fn image(files: &[(u64, Kind, &[u8], &[u8])]) -> Buffer {
    let mut bytes: Vec<u8> = files.iter().flat_map(|file| file.3).copied().collect();
    let extents: Vec<Extent> = files
        .iter()
        .map(|(file, kind, name, data)| Extent {
            file: *file,
            offset: 0,
            length: data.len() as u32,
            kind: *kind,
            pieces: None,
            attributes: Some(Attributes {
                mode: 0o644,
                mtime_seconds: 1,
                name: name.to_vec(),
                ..Attributes::default()
            }),
            digest: Some(*blake3::hash(data).as_bytes()),
        })
        .collect();
    encode_table(&extents, &mut bytes).expect("encoded");
    let mut buffer = Buffer::new(bytes.len());
    buffer.space().copy_from_slice(&bytes);
    buffer.set_len(bytes.len());
    buffer
}

#[test]
fn hostile_names_are_refused_and_nothing_is_left() {
    let outside = temporary();
    let to = outside.path().join("to");
    fs::create_dir(&to).expect("created");
    symlink("..", to.join("link")).expect("linked");
    symlink(outside.path().join("victim"), to.join("dangling")).expect("linked");
    put(to.join("file"), "mine");
    put(outside.path().join("secret"), "mine");
    let before = listing(outside.path());
    let long = vec![b'x'; 256];
    let file = |name: &[u8]| image(&[(0, Kind::File, b"fine", b"1"), (1, Kind::File, name, b"2")]);
    let names: [&[u8]; 16] = [
        b"",
        b"../secret",
        b"a/../../secret",
        b"/tmp/absolute",
        b".",
        b"..",
        b"a//b",
        b"a/",
        b"a/./b",
        b"a\0b",
        b"fine",
        b"fine/beneath",
        b"link/secret",
        b"dangling/x",
        b"file/x",
        &long,
    ];
    for overwrite in [Overwrite::Never, Overwrite::Always] {
        for name in names {
            let mut writer = DirectoryWriter::new(&to, overwrite, layout()).expect("opened");
            let refused = writer.accept(BufferNumber(1), file(name), &mut Vec::new());
            let error = refused.expect_err("refused").to_string();
            assert!(!error.contains(|c: char| c.is_control()), "{error:?}");
            drop(writer);
            assert_eq!(listing(outside.path()), before, "{name:?} {error}");
        }
    }
}

#[test]
fn a_link_that_appears_meanwhile_leads_nowhere() {
    let outside = temporary();
    let to = outside.path().join("to");
    fs::create_dir(&to).expect("created");
    for overwrite in [Overwrite::Never, Overwrite::Always] {
        if overwrite == Overwrite::Always {
            put(to.join("early"), "old");
        }
        let before = listing(outside.path());
        let time = fs::metadata(&to).and_then(|to| to.modified()).expect("a time");
        let mut writer = DirectoryWriter::new(&to, overwrite, layout()).expect("opened");
        let files = image(&[(0, Kind::File, b"early", b"1"), (1, Kind::File, b"dir/file", b"2")]);
        let mut transfer = TransferDigest::default();
        for (n, (name, data)) in [(&b"early"[..], b"1"), (b"dir/file", b"2")].iter().enumerate() {
            transfer.add(n as u64, Kind::File, 1, blake3::hash(*data).as_bytes(), name);
        }
        let end = End { buffers: 1, bytes: 2, digest: transfer.finish() };
        writer.accept(BufferNumber(1), files, &mut Vec::new()).expect("accepted");
        symlink("..", to.join("dir")).expect("linked");
        assert!(writer.finish(Some(&end), &CommitLatch::default()).is_err());
        drop(writer);
        // What was already renamed was taken back.
        fs::remove_file(to.join("dir")).expect("removed");
        // The directory itself was written to, within the same second or not.
        fs::File::open(&to).and_then(|to| to.set_modified(time)).expect("set");
        assert_eq!(listing(outside.path()), before);
    }
}

#[test]
fn contradictions_are_refused() {
    let to = temporary();
    let refuse = |files: &[(u64, Kind, &[u8], &[u8])]| {
        let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("ok");
        assert!(writer.accept(BufferNumber(1), image(files), &mut Vec::new()).is_err());
        drop(writer);
        assert!(listing(to.path()).is_empty());
    };
    refuse(&[(0, Kind::File, b"a", b""), (0, Kind::File, b"b", b"")]);
    refuse(&[(0, Kind::File, b"a", b""), (1, Kind::Directory, b"a", b"")]);
    refuse(&[(0, Kind::File, b"a/b", b""), (1, Kind::File, b"a", b"")]);
    refuse(&[(0, Kind::Directory, b"a", b"content")]);
    refuse(&[(u64::MAX, Kind::File, b"a", b"")]);
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    for garbage in [&b""[..], &[0xff; 64], &[0; 3]] {
        let mut buffer = Buffer::new(garbage.len());
        buffer.space().copy_from_slice(garbage);
        buffer.set_len(garbage.len());
        assert!(writer.accept(BufferNumber(1), buffer, &mut Vec::new()).is_err());
    }
}

#[test]
fn a_finished_file_is_forgotten_and_not_accepted_again() {
    let (from, to) = (temporary(), temporary());
    tree(&from.path().join("tree"));
    let (images, end) = images(list(&[from.path().join("tree")]), layout());
    let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    let writer = writer.atomic(false).resuming(Resume::Auto, Duration::from_secs(60));
    let mut writer = writer.expect("nothing there");
    let again = image(&[(3, Kind::File, b"again", b"")]);
    let most = images.len() as u64;
    for (at, buffer) in images.into_iter().enumerate() {
        if at as u64 + 1 == most {
            // So late that what waits gets its name.
            std::thread::sleep(Duration::from_millis(600));
        }
        let number = BufferNumber(at as u64 + 1);
        writer.accept(number, buffer, &mut Vec::new()).expect("accepted");
    }
    assert!(writer.table.files.is_empty(), "{} of 1,017", writer.table.files.len());
    let twice = writer.accept(BufferNumber(most + 1), again, &mut Vec::new());
    assert!(matches!(twice, Err(Error::Content(TWICE))), "{twice:?}");
    let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("judged");
    assert_eq!((outcome.verified, outcome.files), (true, 1010));
}

#[test]
fn existing_files_are_kept_or_replaced_as_requested() {
    let (from, to) = (temporary(), temporary());
    put(from.path().join("a"), "first");
    put(from.path().join("b"), bytes(3000));
    put(to.path().join("b"), "old");
    let paths = [from.path().join("a"), from.path().join("b")];
    let before = listing(to.path());
    let (sent, end) = images(list(&paths), layout());
    let refused = receive(to.path(), Overwrite::Never, sent, &end);
    assert!(matches!(refused, Err(Error::Exists(path)) if path == to.path().join("b")));
    assert_eq!(listing(to.path()), before);
    let (sent, end) = images(list(&paths), layout());
    assert!(receive(to.path(), Overwrite::Always, sent, &end).expect("received").verified);
    assert_eq!(listing(to.path()), listing(from.path()));
    // It can also appear between the look and the end.
    let (sent, end) = images(list(&paths), layout());
    let other = temporary();
    let mut writer = DirectoryWriter::new(other.path(), Overwrite::Never, layout()).expect("ok");
    accept_all(&mut writer, sent).expect("accepted");
    put(other.path().join("b"), "theirs");
    assert!(matches!(writer.finish(Some(&end), &CommitLatch::default()), Err(Error::Exists(_))));
    drop(writer);
    assert_eq!(fs::read(other.path().join("b")).expect("there"), b"theirs");
    assert_eq!(listing(other.path()).len(), 1);
}

#[test]
fn a_transfer_that_stops_leaves_nothing() {
    let (from, to) = (temporary(), temporary());
    tree(&from.path().join("tree"));
    let (images, _) = images(list(&[from.path().join("tree")]), layout());
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    accept_all(&mut writer, images).expect("accepted");
    // Before the end there is one directory of temporaries that others cannot enter.
    let there: Vec<_> = fs::read_dir(to.path()).expect("listed").flatten().collect();
    let name = there[0].file_name().into_string().expect("plain");
    assert_eq!(there.len(), 1);
    assert!(name.starts_with(".netblt-") && name.ends_with(".part"), "{name}");
    assert_eq!(there[0].metadata().expect("there").mode() & 0o777, 0o700);
    drop(writer);
    assert!(listing(to.path()).is_empty());
}

#[test]
fn damaged_or_missing_data_are_neither_verified_nor_kept() {
    let (from, to) = (temporary(), temporary());
    put(from.path().join("file"), bytes(5000));
    let send = || images(list(&[from.path().join("file")]), layout());
    let (mut sent, end) = send();
    sent[1].space()[7] ^= 1;
    let damaged = receive(to.path(), Overwrite::Never, sent, &end).expect("judged");
    assert!(!damaged.verified && damaged.reason.contains("file"), "{damaged:?}");
    assert!(!damaged.verdict().verified);
    let (mut sent, end) = send();
    sent.remove(2);
    assert!(!receive(to.path(), Overwrite::Never, sent, &end).expect("judged").verified);
    let (sent, end) = send();
    let end = End { digest: [1; 32], ..end };
    assert!(!receive(to.path(), Overwrite::Never, sent, &end).expect("judged").verified);
    assert!(listing(to.path()).is_empty());
}

#[test]
fn a_restart_forgets_and_may_have_other_buffers() {
    let (from, to) = (temporary(), temporary());
    for len in [0, 1000, 5000, 9000] {
        put(from.path().join(format!("tree/{len}")), bytes(len));
    }
    let (first, _) = images(list(&[from.path().join("tree")]), layout());
    let mut writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
    accept_all(&mut writer, first).expect("accepted");
    let other = Layout::sealed(4096, 8192).expect("possible");
    writer.restart(other, &mut Vec::new()).expect("restarted");
    assert!(listing(to.path()).is_empty());
    let (second, end) = images(list(&[from.path().join("tree")]), other);
    accept_all(&mut writer, second).expect("accepted");
    assert!(writer.finish(Some(&end), &CommitLatch::default()).expect("finished").verified);
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left() {
    let (from, to) = (temporary(), temporary());
    // Not with a program: until it runs, it would hold the locks of the tests beside this one.
    let plain = MountFlags::empty();
    if mount("tmpfs", to.path(), "tmpfs", plain, c"size=64k").is_err() {
        crate::skipped::skip("only root can mount a small disk");
        return;
    }
    put(from.path().join("file"), bytes(200_000));
    let (sent, end) = images(list(&[from.path().join("file")]), layout());
    let error = receive(to.path(), Overwrite::Never, sent, &end).map(|_| ());
    let left = listing(to.path());
    unmount(to.path(), UnmountFlags::empty()).expect("nothing is open in it");
    let error = error.expect_err("full").to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert!(left.is_empty());
}

fn receive_what_can_be(
    to: &Path,
    overwrite: Overwrite,
    images: Vec<Buffer>,
    end: &End,
) -> Result<StoreOutcome, Error> {
    let mut writer = DirectoryWriter::new(to, overwrite, layout())?.atomic(false);
    accept_all(&mut writer, images)?;
    writer.finish(Some(end), &CommitLatch::default())
}

#[test]
fn an_obstacle_to_one_file_is_none_to_the_others() {
    let (from, to) = (temporary(), temporary());
    for (name, len) in [("t/a", 10), ("t/big", 5000), ("t/c/x", 10), ("t/d", 10), ("t/e", 3000)] {
        put(from.path().join(name), bytes(len));
    }
    put(to.path().join("t/big"), "theirs");
    put(to.path().join("t/c"), "a file where a directory is to be");
    put(to.path().join("t/e"), bytes(3000));
    let (sent, end) = images(list(&[from.path().join("t")]), layout());
    let outcome = receive_what_can_be(to.path(), Overwrite::Never, sent, &end).expect("received");
    assert!(outcome.verified);
    // The one that is there already, with the same bytes, is as good as received.
    assert_eq!((outcome.files, outcome.skipped, outcome.unstored), (3, 3, 3));
    let listed = outcome.left_out.join("\n");
    for name in ["t/big: exists there already", "t/c: ", "t/c/x: "] {
        assert!(listed.contains(name), "{listed}");
    }
    let there = listing(to.path());
    for name in ["t/a", "t/d", "t/e"] {
        assert_eq!(there[Path::new(name)].2, listing(from.path())[Path::new(name)].2);
    }
    assert_eq!(there[Path::new("t/big")].2.as_deref(), Some(&b"theirs"[..]));
    let verdict = outcome.verdict();
    let (count, text) = verdict.left_out().expect("it lists them");
    assert!(count == 3 && text.starts_with("3 left out: "), "{text}");
    // Once more: all that was missing is there, and what was in the way still is.
    let (sent, end) = images(list(&[from.path().join("t")]), layout());
    let again = receive_what_can_be(to.path(), Overwrite::Never, sent, &end).expect("received");
    assert_eq!((again.files, again.skipped), (3, 3));
    assert_eq!(listing(to.path()), there);
}

#[test]
fn a_withdrawn_file_is_not_kept_in_any_order_of_buffers() {
    let from = temporary();
    let root = from.path().join("t");
    for (name, len) in [("a", 10), ("big", 5000), ("d", 10)] {
        put(root.join(name), bytes(len));
    }
    let list = FileList::new(Source::path(&root), true, &Cancel::default()).expect("a list");
    let mut reader = SourceReader::sealed(list, layout()).expect("names fit");
    let mut sent: Vec<Buffer> = Vec::new();
    let end = loop {
        let mut buffer = Buffer::new(layout().image_bytes());
        let number = BufferNumber(sent.len() as u64 + 1);
        reader.fill(number, &mut buffer).expect("filled");
        sent.push(buffer);
        if sent.len() == 2 {
            fs::remove_file(root.join("d")).expect("removed");
            let big = fs::File::options().write(true).open(root.join("big")).expect("there");
            big.set_len(3000).expect("cut");
        }
        if let Some(end) = reader.end() {
            break end;
        }
    };
    let copy = |buffer: &Buffer| {
        let mut copy = Buffer::new(buffer.filled().len());
        copy.space().copy_from_slice(buffer.filled());
        copy.set_len(buffer.filled().len());
        copy
    };
    let orders = [(0..sent.len()).collect::<Vec<_>>(), (0..sent.len()).rev().collect()];
    for order in orders {
        let to = temporary();
        let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
        let mut writer = writer.atomic(false);
        for at in order {
            let number = BufferNumber(at as u64 + 1);
            writer.accept(number, copy(&sent[at]), &mut Vec::new()).expect("accepted");
        }
        let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("finished");
        assert!(outcome.verified, "{outcome:?}");
        assert_eq!((outcome.files, outcome.skipped, outcome.unstored), (1, 2, 0));
        let names: Vec<_> = listing(to.path()).into_keys().collect();
        assert_eq!(names, [Path::new("t"), Path::new("t/a")]);
        assert!(outcome.verdict().left_out().is_none(), "the sender knows it");
    }
}

fn image_of(extent: Extent, data: &[u8]) -> Buffer {
    let mut image = data.to_vec();
    encode_table(&[extent], &mut image).expect("small");
    let mut buffer = Buffer::new(image.len());
    buffer.space().copy_from_slice(&image);
    buffer.set_len(image.len());
    buffer
}

#[test]
fn a_file_that_is_not_here_cannot_be_kept_nor_one_that_was_not_begun_be_stored() {
    let to = temporary();
    let open = || {
        let writer = DirectoryWriter::new(to.path(), Overwrite::Never, layout()).expect("opened");
        let writer = writer.atomic(false).resuming(Resume::Auto, Duration::from_secs(60));
        writer.expect("nothing there")
    };
    for digest in [None, Some([1; 32])] {
        let attributes = Some(Attributes { name: b"a".to_vec(), ..Attributes::default() });
        let kind = Kind::Kept;
        let pieces = None;
        let extent = Extent { file: 0, offset: 0, length: 0, kind, pieces, attributes, digest };
        let said = open().accept(BufferNumber(1), image_of(extent, b""), &mut Vec::new());
        assert!(matches!(said, Err(Error::Content(_))), "{said:?}");
    }
    let (mut writer, mut free) = (open(), Vec::new());
    let (kind, digest) = (Kind::File, Some([1; 32]));
    let (pieces, attributes) = (None, None);
    let extent = Extent { file: 5, offset: 1024, length: 3, kind, pieces, attributes, digest };
    let held = writer.accept(BufferNumber(2), image_of(extent, b"abc"), &mut free);
    assert!(matches!(held, Ok(0)) && free.is_empty(), "{held:?}");
    let end = End { buffers: 1, bytes: 3, digest: [0; 32] };
    assert!(!writer.finish(Some(&end), &CommitLatch::default()).expect("judged").verified);
    drop(writer);
    assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 0);
}
