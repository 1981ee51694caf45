//! File lists and what becomes of them when files change, links wait or streams end.

use std::fs;
use std::io::Read;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::*;
use netblt_proto::content::parse_image;

use crate::cancel::Cancel;
use crate::disk::trials::temporary;
use crate::options::{Selection, Source};

fn layout() -> Layout {
    Layout::sealed(1024, 4300).expect("possible")
}

fn list(paths: &[PathBuf]) -> Result<FileList, Error> {
    FileList::new(Source::Paths(paths.to_vec()), false, &Cancel::default())
}

fn fill(reader: &mut SourceReader, number: u64) -> Result<(Fill, Vec<u8>), Error> {
    let mut buffer = Buffer::new(reader.layout.image_bytes());
    let fill = reader.fill(BufferNumber(number), &mut buffer)?;
    Ok((fill, buffer.filled().to_vec()))
}

fn message_of(error: Result<impl Sized, Error>) -> String {
    error.map(|_| ()).expect_err("an error").to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn packing_never_splits_small_files_and_always_fits(
        sizes in proptest::collection::vec(
            prop_oneof![0usize..60, 0usize..5000, Just(1024), Just(2048)], 1..30),
        name_bytes in 1usize..250,
    ) {
        let from = temporary();
        let root = from.path().join("t");
        fs::create_dir(&root).expect("created");
        for (i, size) in sizes.iter().enumerate() {
            let name = format!("{i:03}{}", "x".repeat(name_bytes));
            fs::write(root.join(name), vec![i as u8; *size]).expect("written");
        }
        let mut reader = SourceReader::sealed(list(&[root]).expect("a list"), layout())
            .expect("names fit");
        let mut sent = vec![Vec::new(); sizes.len() + 1];
        let mut number = 0;
        loop {
            number += 1;
            let (fill, image) = fill(&mut reader, number).expect("filled");
            prop_assert!(image.len() <= layout().image_bytes());
            let (mut data, extents) = parse_image(&image, 1024).expect("good");
            prop_assert!(!extents.is_empty() && data.len() <= 1024);
            for extent in extents {
                let (own, rest) = data.split_at(extent.length as usize);
                data = rest;
                let file = &mut sent[extent.file as usize];
                prop_assert_eq!(extent.offset, file.len() as u64);
                prop_assert_eq!(extent.offset % 1024, 0);
                file.extend_from_slice(own);
                prop_assert!(extent.digest.is_some() || extent.length == 1024);
            }
            if fill.last {
                break;
            }
        }
        for (i, size) in sizes.iter().enumerate() {
            prop_assert_eq!(&sent[i + 1], &vec![i as u8; *size]);
        }
        prop_assert_eq!(reader.end().expect("ended").bytes, sizes.iter().sum::<usize>() as u64);
    }
}

#[test]
fn a_file_that_changes_is_named() {
    let from = temporary();
    let path = from.path().join("growing");
    for (change, how) in [
        "it had 3000 bytes when it was found, and has 2000 now",
        "it had 3000 bytes when it was found, and has 4000 now",
        "its time of modification has changed, and not its length",
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(&path, vec![1; 3000]).expect("written");
        let list = list(std::slice::from_ref(&path)).expect("a list");
        let mut reader = SourceReader::sealed(list, layout()).expect("fits");
        fill(&mut reader, 1).expect("unchanged");
        match change {
            0 => fs::write(&path, vec![1; 2000]),
            1 => fs::write(&path, vec![1; 4000]),
            // The same length at another time.
            _ => fs::write(&path, vec![2; 3000])
                .and_then(|()| fs::File::options().write(true).open(&path))
                .and_then(|file| file.set_modified(UNIX_EPOCH)),
        }
        .expect("changed");
        let error = message_of(fill(&mut reader, 2).and_then(|_| fill(&mut reader, 3)));
        assert!(error.contains("growing: changed while it was being sent"), "{error}");
        assert!(error.contains(how), "{error}");
    }
    // It can also change before it is opened.
    let list = list(std::slice::from_ref(&path)).expect("a list");
    fs::write(&path, "short").expect("written");
    let mut reader = SourceReader::sealed(list, layout()).expect("fits");
    assert!(message_of(fill(&mut reader, 1)).contains("changed"));
}

#[test]
fn only_links_that_the_user_names_are_followed() {
    let from = temporary();
    let tree = from.path().join("tree");
    fs::create_dir_all(tree.join("sub")).expect("created");
    fs::write(from.path().join("secret"), "secret").expect("written");
    fs::write(tree.join("sub/file"), "file").expect("written");
    symlink("../secret", tree.join("link")).expect("linked");
    symlink("secret", from.path().join("named")).expect("linked");
    let socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).expect("bound");
    let paths = [tree.clone(), from.path().join("named")];
    let refused = message_of(list(&paths));
    assert!(refused.contains("tree/socket: cannot be sent: it is a socket"), "{refused}");
    let source = Source::Paths(paths.to_vec());
    let lenient = FileList::new(source, true, &Cancel::default()).expect("a list");
    let warnings = lenient.warnings();
    assert!(warnings.len() == 1 && warnings[0].to_string().contains("tree/socket"), "{warnings:?}");
    drop(socket);
    fs::remove_file(tree.join("socket")).expect("removed");
    let list = list(&paths).expect("a list");
    let names: Vec<_> = list.inner.entries.iter().map(|entry| shown(&entry.name)).collect();
    assert_eq!(names, ["tree", "tree/link", "tree/sub", "tree/sub/file", "named"]);
    let kinds: Vec<_> = list.inner.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!((kinds[1], kinds[4]), (Kind::SymbolicLink, Kind::File));
    // A link's bytes are its target's name.
    assert_eq!((list.files(), list.total_bytes()), (3, Some(19)));
    // A directory that becomes a link after the walk leads nowhere either.
    fs::rename(tree.join("sub"), from.path().join("elsewhere")).expect("renamed");
    symlink("../elsewhere", tree.join("sub")).expect("linked");
    let mut reader = SourceReader::sealed(list, layout()).expect("fits");
    assert!(message_of(fill(&mut reader, 1)).contains("tree/sub"));
}

#[test]
fn unsendable_files_are_reported_before_anything_is_sent() {
    let from = temporary();
    for directory in ["a", "b"] {
        fs::create_dir(from.path().join(directory)).expect("created");
        fs::write(from.path().join(directory).join("same"), "").expect("written");
    }
    let missing = from.path().join("missing");
    assert!(message_of(list(&[missing])).contains("missing: cannot be sent"));
    let same = message_of(list(&[from.path().join("a/same"), from.path().join("b/same")]));
    assert!(same.contains("both arrive as \"same\""), "{same}");
    assert!(message_of(list(&[])).contains("nothing to send"));
    assert!(message_of(list(&[PathBuf::from("/")])).contains("no name"));
    assert!(
        message_of(list(&[PathBuf::from("/dev/null")])).contains("neither a file nor a directory")
    );
    let error = message_of(list(&[from.path().join("a/\u{1b}[2J")]));
    assert!(error.contains("\\u{1b}") && !error.contains('\u{1b}'), "{error}");
    let narrow = Layout::sealed(1024, 60).expect("possible");
    let wide = list(&[from.path().join("b/same")]).expect("a list");
    assert!(message_of(SourceReader::sealed(wide, narrow)).contains("too long a name"));
    let dot = list(&[from.path().join("b/.."), from.path().join("b/.")]);
    let dot = dot.expect("directories have names of their own");
    let first = from.path().file_name().expect("a name").as_encoded_bytes();
    let names: Vec<_> = dot.inner.entries.iter().map(|entry| &*entry.name).collect();
    assert!(names.contains(&first) && names.contains(&&b"b"[..]), "{names:?}");
    fs::set_permissions(from.path().join("b/same"), fs::Permissions::from_mode(0o000))
        .expect("set");
    // Root reads it all the same, by capabilities, which a thread may give up.
    let said = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let none = CapabilitySet::empty();
            let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, none).expect("given up");
            message_of(list(&[from.path().join("b")]))
        });
        reading.join().expect("it ran")
    });
    assert!(said.contains("b/same: cannot be read"), "{said}");
}

#[test]
fn entries_found_while_sending_are_the_same() {
    let from = temporary();
    let tree = from.path().join("tree");
    for name in ["a/1", "a/2", "b/c/3", "d/4"] {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, name).expect("written");
    }
    fs::hard_link(tree.join("a/1"), tree.join("d/5")).expect("linked");
    let socket = std::os::unix::net::UnixListener::bind(tree.join("d/socket")).expect("bound");
    let selection = Selection::from(vec![tree.clone(), tree.join("a/2")]);
    let all = |ahead| {
        let list = FileList::walk(&selection, true, &Cancel::default(), ahead).expect("a list");
        let mut reader = SourceReader::sealed(list.clone(), layout()).expect("fits");
        let mut ends = Vec::new();
        for _ in 0..2 {
            reader.restart(layout(), &Arc::default()).expect("starts over");
            let mut number = 1;
            while !fill(&mut reader, number).expect("filled").0.last {
                number += 1;
            }
            ends.push(reader.end());
        }
        assert_eq!(ends[0], ends[1]);
        let late = list.take_late();
        let warnings = list.warnings().len() + late.warnings.len();
        (ends, list.files() + late.files, warnings, list.total_bytes())
    };
    let whole = all(100);
    assert_eq!((whole.1, whole.2, whole.3), (6, 1, Some(17)));
    for ahead in 1..11 {
        let (ends, files, warnings, total) = all(ahead);
        assert_eq!((&ends, files, warnings), (&whole.0, whole.1, whole.2), "{ahead}");
        assert_eq!(total, None);
    }
    drop(socket);
}

/// Gives one byte at a time: the hardest that a pipe can be.
struct Trickle(Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let end = space.len().min(1);
        self.0.read(&mut space[..end])
    }
}

#[test]
fn a_stream_knows_its_last_buffer_and_cannot_be_read_twice() {
    for len in [0usize, 1, 1023, 1024, 1025, 4096] {
        let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let source = Source::reader("stream", Trickle(Cursor::new(content.clone())));
        let list = FileList::new(source, false, &Cancel::default()).expect("a list");
        assert_eq!((list.total_bytes(), list.files()), (None, 1));
        let mut reader = SourceReader::sealed(list.clone(), layout()).expect("fits");
        reader.restart(layout(), &Arc::default()).expect("nothing was read");
        let buffers = len.div_ceil(1024).max(1) as u64;
        let mut digest = None;
        for number in 1..=buffers {
            let (fill, image) = fill(&mut reader, number).expect("filled");
            assert_eq!(fill.last, number == buffers);
            let (_, extents) = parse_image(&image, 1024).expect("good");
            assert_eq!(extents[0].kind, Kind::Stream);
            digest = extents[0].digest;
        }
        assert_eq!(digest, Some(*blake3::hash(&content).as_bytes()));
        assert!(
            message_of(reader.restart(layout(), &Arc::default())).contains("cannot be read twice")
        );
        let mut second = SourceReader::sealed(list, layout()).expect("fits");
        assert!(message_of(fill(&mut second, 1)).contains("cannot be read twice"));
    }
}

#[test]
fn plain_buffers_are_the_bytes_of_one_file() {
    let from = temporary();
    let path = from.path().join("file");
    for (len, buffers) in [(0usize, 1), (999, 1), (1000, 1), (1001, 2)] {
        fs::write(&path, vec![7; len]).expect("written");
        let list = list(std::slice::from_ref(&path)).expect("a list");
        let mut reader = SourceReader::plain(list, Layout::plain(1000)).expect("one file");
        let mut sent = 0;
        for number in 1..=buffers {
            let (fill, image) = fill(&mut reader, number).expect("filled");
            assert_eq!(fill.last, number == buffers);
            sent += image.len();
        }
        assert_eq!(sent, len);
        assert!(fill(&mut reader, buffers + 1).is_err());
        reader.restart(Layout::plain(500), &Arc::default()).expect("a file can be read again");
        fill(&mut reader, 1).expect("filled");
        assert!(fill(&mut reader, 1).is_err());
    }
    let directory = list(&[from.path().to_path_buf()]).expect("a list");
    assert!(SourceReader::plain(directory, Layout::plain(1000)).is_err());
}

fn selected(selection: Selection, lenient: bool) -> Result<(Vec<String>, FileList), Error> {
    let list = FileList::new(Source::Selection(selection), lenient, &Cancel::default())?;
    let names = list.inner.entries.iter().map(|entry| shown(&entry.name)).collect();
    Ok((names, list))
}

#[test]
fn a_selection_renames_and_leaves_out() {
    let from = temporary();
    for name in ["t/a.c", "t/a.o", "t/.git/x", "t/deep/b.o", "t/deep/c"] {
        let path = from.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, name).expect("written");
    }
    let (tree, file) = (from.path().join("t"), from.path().join("t/a.o"));
    let items = vec![(tree.clone(), Some("new".into())), (file.clone(), None)];
    let exclude = vec!["*.o".into(), ".git/".into()];
    let selection = Selection { items, exclude, ..Selection::default() };
    let (names, list) = selected(selection.clone(), false).expect("a list");
    // What is named itself is wanted, whatever the patterns say.
    assert_eq!(names, ["new", "new/a.c", "new/deep", "new/deep/c", "a.o"]);
    let mut reader = SourceReader::sealed(list, layout()).expect("names fit");
    let (_, image) = fill(&mut reader, 1).expect("filled");
    let (data, extents) = parse_image(&image, 1024).expect("an image");
    assert_eq!((data, extents.len()), (&b"t/a.ct/deep/ct/a.o"[..], 5));
    for name in ["..", "a/b", ""] {
        let items = vec![(file.clone(), Some(name.into()))];
        let refused = selected(Selection { items, ..selection.clone() }, false);
        assert!(message_of(refused).contains("cannot be sent under its name"));
    }
}

#[test]
fn a_file_that_changes_or_vanishes_is_withdrawn_and_the_rest_is_sent() {
    let from = temporary();
    let root = from.path().join("t");
    fs::create_dir_all(root.join("gone")).expect("created");
    for (name, len) in [("a", 10), ("big", 5000), ("c", 10), ("d", 10), ("gone/x", 10)] {
        fs::write(root.join(name), vec![7; len]).expect("written");
    }
    let begin = |lenient| {
        let selection = Selection::from(vec![root.clone()]);
        let (_, list) = selected(selection, lenient).expect("a list");
        (SourceReader::sealed(list.clone(), layout()).expect("names fit"), list)
    };
    let change = || {
        fs::write(root.join("c"), "more and more").expect("written");
        fs::remove_file(root.join("d")).expect("removed");
        fs::remove_dir_all(root.join("gone")).expect("removed");
    };
    let (mut reader, list) = begin(true);
    let (mut strict, _) = begin(false);
    // The first buffers are full of `a` and the head of `big`, which then loses its tail.
    let (_, first) = fill(&mut reader, 1).expect("filled");
    fill(&mut strict, 1).expect("filled");
    let (_, extents) = parse_image(&first, 1024).expect("an image");
    assert_eq!(extents.len(), 2, "{extents:?}");
    fill(&mut reader, 2).expect("filled");
    change();
    fs::File::options()
        .write(true)
        .open(root.join("big"))
        .expect("there")
        .set_len(3000)
        .expect("cut");
    let mut withdrawn = Vec::new();
    for number in 3.. {
        let (fill, image) = fill(&mut reader, number).expect("filled");
        let (_, extents) = parse_image(&image, 1024).expect("an image");
        withdrawn.extend(extents.into_iter().filter(|extent| extent.kind == Kind::Withdrawn));
        if fill.last {
            break;
        }
    }
    let name = |extent: &Extent| extent.attributes.as_ref().map(|a| shown(&a.name));
    let found: Vec<_> = withdrawn.iter().map(|extent| (extent.file, name(extent))).collect();
    let named = |number, name: &str| (number, Some(name.to_owned()));
    let expected =
        [(2, None), named(3, "t/c"), named(4, "t/d"), named(5, "t/gone"), named(6, "t/gone/x")];
    assert_eq!(found, expected);
    let warnings: Vec<_> = list.take_late().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 5);
    assert!(warnings[0].contains("t/big: it changed while it was being sent"), "{warnings:?}");
    let mut end = Ok(());
    for number in 2..20 {
        end = fill(&mut strict, number).map(|_| ());
        if end.is_err() {
            break;
        }
    }
    assert!(message_of(end).contains("changed while it was being sent"));
}

#[test]
fn a_file_that_changes_is_sent_as_it_was_read_if_that_is_allowed() {
    let from = temporary();
    let path = from.path().join("log");
    for grows in [true, false] {
        fs::write(&path, vec![1; 3000]).expect("written");
        let items = vec![(path.clone(), None)];
        let selection = Selection { items, allow_changes: true, ..Selection::default() };
        let list = FileList::new(Source::Selection(selection), true, &Cancel::default());
        let list = list.expect("a list");
        // Before it is opened, and when a part of it was read.
        for early in [true, false] {
            let mut second = u64::from(early) * 10;
            let mut change = || {
                second += 1;
                let file = fs::File::options().append(true).open(&path).expect("opened");
                let changed = match grows {
                    true => (&file).write_all(&[9; 500]),
                    false => file.set_modified(UNIX_EPOCH + Duration::from_secs(second)),
                };
                changed.expect("changed");
            };
            let mut reader = SourceReader::sealed(list.clone(), layout()).expect("fits");
            reader.restart(layout(), &Arc::default()).expect("begun");
            if early {
                change();
            }
            fill(&mut reader, 1).expect("filled");
            change();
            let (last, _) = fill(&mut reader, 2).and_then(|_| fill(&mut reader, 3)).expect("sent");
            assert!(last.last);
            assert_eq!(reader.end().map(|end| end.bytes), Some(3000));
            let late = list.take_late();
            let said: Vec<_> = late.warnings.iter().map(ToString::to_string).collect();
            assert!(said.len() == 1 && said[0].contains("sent as it was read"), "{said:?}");
            assert_eq!((late.withdrawn, late.skipped), (0, 0));
        }
    }
    // What was promised is not there any more.
    fs::write(&path, vec![1; 3000]).expect("written");
    let items = vec![(path.clone(), None)];
    let selection = Selection { items, allow_changes: true, ..Selection::default() };
    let list = FileList::new(Source::Selection(selection), true, &Cancel::default());
    let list = list.expect("a list");
    fs::write(&path, vec![1; 2000]).expect("cut");
    let mut reader = SourceReader::sealed(list.clone(), layout()).expect("fits");
    assert!(fill(&mut reader, 1).expect("withdrawn").0.last);
    assert_eq!(list.take_late().withdrawn, 1);
}

/// Its length is 0 and it has content.
#[test]
fn a_file_that_the_system_makes_is_named_as_one() {
    let path = Path::new("/proc/cpuinfo");
    if !path.exists() {
        return;
    }
    let list = list(&[path.to_path_buf()]).expect("a list");
    let mut reader = SourceReader::sealed(list, layout()).expect("fits");
    let error = message_of(fill(&mut reader, 1).map(|_| ()));
    assert!(error.contains("/proc/cpuinfo: cannot be sent as a file"), "{error}");
    assert!(error.contains("send it as a stream"), "{error}");
}
