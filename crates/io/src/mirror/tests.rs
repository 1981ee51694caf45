//! Both ends of a mirror over a channel in memory; the files are copied in place of a transfer.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use super::*;
use crate::options::Selection;
use crate::{Cancel, Error};

struct Pipe(Sender<Message>, Receiver<Message>);

impl Channel for Pipe {
    type Failure = Error;

    fn send(&mut self, message: Message) -> Result<(), Error> {
        self.0.send(message).map_err(|_| Error::Interrupted)
    }

    fn receive(&mut self) -> Result<Message, Error> {
        self.1.recv().map_err(|_| Error::Interrupted)
    }
}

/// Two trees in a temporary directory.
struct Trees(tempfile::TempDir);

#[derive(Debug, Default)]
struct Done {
    lines: Vec<String>,
    outcome: MirrorOutcome,
    problems: Vec<String>,
    unchanged: u64,
    /// Files that were copied.
    copied: Vec<String>,
}

impl Trees {
    fn new() -> Self {
        let trees = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(trees.source()).expect("made");
        fs::create_dir(trees.target()).expect("made");
        trees
    }

    fn source(&self) -> PathBuf {
        self.0.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.0.path().join("target")
    }

    fn write(&self, name: &str, content: &str, seconds: u64) {
        write(&self.0.path().join(name), content, seconds);
    }

    /// Both trees have these files: name, content, time.
    fn both(&self, files: &[(&str, &str, u64)]) {
        for (name, content, seconds) in files {
            self.write(&format!("source/{name}"), content, *seconds);
            self.write(&format!("target/{name}"), content, *seconds);
        }
    }

    fn mirror(&self, settings: &MirrorSettings) -> Result<Done, Error> {
        let (there, from_here) = channel();
        let (here, from_there) = channel();
        let (target, theirs) = (self.target(), settings.clone());
        let far = thread::spawn(move || {
            let mut pipe = Pipe(here, from_here);
            let cancel = Cancel::default();
            let mut destination = MirrorDestination::new(&target, &theirs, &cancel)?;
            let decided = destination.compare(&mut pipe)?;
            let done = theirs.dry_run;
            let outcome =
                if done { MirrorOutcome::default() } else { destination.finish(&mut pipe)? };
            Ok::<_, Error>((decided, outcome))
        });
        let mut pipe = Pipe(there, from_there);
        let cancel = Cancel::default();
        let mut source = MirrorSource::new(&self.source(), settings, None, &cancel)?;
        let compared = source.compare(&mut pipe);
        let mut copied = Vec::new();
        if let Ok(found) = &compared
            && !settings.dry_run
        {
            copied = copy(&self.source(), &self.target(), found.selection.clone());
            source.finish(&mut pipe, found.problems_there.is_empty())?;
        }
        drop(pipe);
        let (decided, outcome) = far.join().expect("it ran")?;
        let found = compared?;
        assert_eq!(found.changes, decided.changes);
        assert_eq!(found.selection.is_some(), decided.transfer);
        let line = |change: &MirrorChange| {
            format!("{} {}", change.code(true).trim_end(), String::from_utf8_lossy(&change.name))
        };
        let lines = found.changes.iter().map(line).collect();
        let (problems, unchanged) = (found.problems, found.unchanged);
        Ok(Done { lines, outcome, problems, unchanged, copied })
    }

    /// Mirrors, and then the trees are the same and nothing is left to do.
    fn mirror_whole(&self, settings: &MirrorSettings) -> Done {
        let dry = MirrorSettings { dry_run: true, ..settings.clone() };
        let before = self.state("target");
        let planned = self.mirror(&dry).expect("compared");
        assert_eq!(self.state("target"), before, "a dry run changes nothing");
        let settings = MirrorSettings { itemize: true, ..settings.clone() };
        let done = self.mirror(&settings).expect("mirrored");
        assert_eq!(done.lines, planned.lines, "a dry run lists what is done");
        assert_eq!(done.problems, Vec::<String>::new());
        assert_eq!(done.outcome.problems, Vec::<String>::new());
        assert_eq!(self.state("target"), self.state("source"), "{:?}", done.lines);
        let again = self.mirror(&settings).expect("mirrored again");
        assert_eq!((again.lines, again.copied), (Vec::new(), Vec::new()));
        done
    }

    /// Name, type, permissions, time, content or target, and inode's other names.
    fn state(&self, tree: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let root = self.0.path().join(tree);
        look(&root, &root, &mut lines);
        lines
    }
}

fn look(root: &Path, path: &Path, lines: &mut Vec<String>) {
    let found = fs::symlink_metadata(path).expect("there");
    let name = path.strip_prefix(root).expect("beneath").display().to_string();
    let what = match found.file_type() {
        kind if kind.is_symlink() => fs::read_link(path).expect("a link").display().to_string(),
        kind if kind.is_file() => fs::read_to_string(path).unwrap_or_default(),
        _ => "directory".to_owned(),
    };
    let names = if found.is_file() { found.nlink() } else { 0 };
    let mode = if found.is_symlink() { 0 } else { found.mode() & 0o777 };
    lines.push(format!("{name} {mode:o} {} {names} {what}", found.mtime()));
    if found.is_dir() {
        let mut children: Vec<_> =
            fs::read_dir(path).expect("listed").map(|child| child.expect("read").path()).collect();
        children.sort();
        children.iter().for_each(|child| look(root, child, lines));
    }
}

fn write(path: &Path, content: &str, seconds: u64) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, content).expect("written");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).expect("opened").set_modified(time).expect("set");
}

/// What a transfer does: files with their attributes, directories after them.
fn copy(source: &Path, target: &Path, selection: Option<Selection>) -> Vec<String> {
    let Some(selection) = selection else { return Vec::new() };
    let offered = crate::preview(selection, &Cancel::default()).expect("walked").offered;
    let (mut copied, mut directories) = (Vec::new(), Vec::new());
    for one in offered {
        let name = String::from_utf8(one.name).expect("text");
        let (from, to) = (source.join(&name), target.join(&name));
        let metadata = fs::symlink_metadata(&from).expect("there");
        if metadata.is_dir() {
            fs::create_dir_all(&to).expect("made");
            directories.push((to, metadata));
            continue;
        }
        let part = to.with_file_name(".part");
        if metadata.is_symlink() {
            symlink(fs::read_link(&from).expect("a link"), &part).expect("linked");
            let time =
                rustix::fs::Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, &part, &times, flags).expect("set");
        } else {
            fs::copy(&from, &part).expect("copied");
            let file = File::options().write(true).open(&part).expect("opened");
            file.set_modified(metadata.modified().expect("a time")).expect("set");
        }
        fs::rename(&part, &to).expect("renamed");
        copied.push(name);
    }
    for (path, metadata) in directories.iter().rev() {
        fs::set_permissions(path, metadata.permissions()).expect("set");
        let time = metadata.modified().expect("a time");
        File::open(path).expect("opened").set_modified(time).expect("set");
    }
    copied
}

fn deleting() -> MirrorSettings {
    MirrorSettings { delete: Some(DeleteTime::After), ..MirrorSettings::default() }
}

#[test]
fn a_destination_that_is_new_gets_everything() {
    let trees = Trees::new();
    fs::remove_dir(trees.target()).expect("removed");
    trees.write("source/a", "a", 100);
    trees.write("source/d/e/b", "b", 200);
    symlink("../a", trees.source().join("d/link")).expect("linked");
    fs::hard_link(trees.source().join("a"), trees.source().join("d/same")).expect("linked");
    let planned = trees.mirror(&MirrorSettings { dry_run: true, ..deleting() }).expect("planned");
    assert!(!trees.target().exists(), "a dry run makes no directory");
    let settings = MirrorSettings { itemize: true, ..deleting() };
    let done = trees.mirror(&settings).expect("mirrored");
    assert_eq!(planned.lines, done.lines);
    let expected = [
        "<f+++++++++ a",
        "cd+++++++++ d",
        "cd+++++++++ d/e",
        "<f+++++++++ d/e/b",
        "cL+++++++++ d/link",
        "hf+++++++++ d/same",
    ];
    assert_eq!(done.lines, expected);
    assert_eq!(trees.state("target"), trees.state("source"));
}

#[test]
fn only_what_differs_is_sent() {
    let trees = Trees::new();
    trees.both(&[("same", "x", 100), ("d/same", "x", 100), ("d/time", "x", 100)]);
    trees.both(&[("d/mode", "x", 100), ("e/f/g", "x", 100), ("d/longer", "x", 100)]);
    trees.write("source/d/longer", "xyz", 100);
    trees.write("source/d/time", "y", 101);
    trees.write("source/d/new", "n", 101);
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(trees.source().join("d/mode"), mode).expect("set");
    let done = trees.mirror_whole(&MirrorSettings::default());
    assert_eq!(done.copied, ["d/longer", "d/new", "d/time"]);
    let files: Vec<_> = done.lines.iter().filter(|line| !line.starts_with(".d")).collect();
    let expected =
        ["<f.s....... d/longer", ".f...p..... d/mode", "<f+++++++++ d/new", "<f..t...... d/time"];
    assert_eq!(files, expected);
}

#[test]
fn what_the_source_lacks_is_removed_if_that_is_asked_for() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100), ("d/b", "x", 100)]);
    trees.write("target/gone", "g", 100);
    trees.write("target/d/gone/deep/c", "c", 100);
    let kept = trees.mirror(&MirrorSettings::default()).expect("mirrored");
    assert_eq!(kept.outcome.removed, 0);
    assert!(trees.target().join("gone").exists());
    let done = trees.mirror_whole(&deleting());
    assert_eq!(done.outcome.removed, 4);
    let removed: Vec<_> = done.lines.iter().filter(|line| line.starts_with("*d")).collect();
    let expected =
        ["*deleting gone", "*deleting d/gone/deep/c", "*deleting d/gone/deep", "*deleting d/gone"];
    let mut sorted: Vec<_> = removed.iter().map(|line| line.as_str()).collect();
    sorted.sort_unstable();
    let mut all = expected.to_vec();
    all.sort_unstable();
    assert_eq!(sorted, all);
}

#[test]
fn too_many_removals_are_refused_and_nothing_is_changed() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100)]);
    for number in 0..20 {
        trees.write(&format!("target/gone{number}"), "g", 100);
    }
    trees.write("source/new", "n", 100);
    let before = trees.state("target");
    let error = trees.mirror(&deleting()).expect_err("refused").to_string();
    assert_eq!(
        error,
        "20 of 21 entries would be removed, and the limit is 10%; nothing was changed"
    );
    assert_eq!(trees.state("target"), before);
    let all = MirrorSettings { max_delete: MaxDelete::Percent(100), ..deleting() };
    trees.mirror_whole(&all);
}

#[test]
fn an_empty_source_removes_nothing_unless_that_is_allowed() {
    let trees = Trees::new();
    trees.write("target/a", "a", 100);
    let error = trees.mirror(&deleting()).expect_err("refused").to_string();
    assert!(error.contains("since the source is empty"), "{error}");
    assert!(trees.target().join("a").exists());
    let all = MirrorSettings { max_delete: MaxDelete::Entries(1), ..deleting() };
    assert_eq!(trees.mirror(&all).expect("mirrored").outcome.removed, 1);
}

#[test]
fn a_source_that_cannot_be_read_removes_nothing() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100)]);
    trees.write("target/gone", "g", 100);
    // A name that is too long to be sent stands for an entry that cannot be read.
    let long = "x".repeat(200);
    let mut deep = trees.source();
    let mut steps = 0;
    let handle = || File::open(trees.source()).expect("opened");
    let mut at: std::os::fd::OwnedFd = handle().into();
    while steps < 24 {
        rustix::fs::mkdirat(&at, &long[..], rustix::fs::Mode::RWXU).expect("made");
        let flags = rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, &long[..], flags, rustix::fs::Mode::empty()).expect("opened");
        deep.push(&long);
        steps += 1;
    }
    let done = trees.mirror(&deleting()).expect("mirrored");
    assert!(!done.problems.is_empty());
    assert_eq!(done.outcome.removed, 0);
    assert!(trees.target().join("gone").exists());
}

#[test]
fn a_file_that_was_moved_is_renamed_and_not_sent() {
    let trees = Trees::new();
    trees.both(&[("keep", "k", 100)]);
    trees.write("source/new/name", "moved content", 300);
    trees.write("target/old", "moved content", 300);
    // The same length and time, and another content.
    trees.write("source/other", "content A", 400);
    trees.write("target/another", "content B", 400);
    let done = trees.mirror_whole(&deleting());
    assert_eq!(done.outcome.renamed, 1);
    assert_eq!(done.copied, ["other"]);
    assert!(done.lines.iter().any(|line| line == "*renaming new/name"), "{:?}", done.lines);
}

#[test]
fn something_of_another_type_makes_way() {
    let trees = Trees::new();
    trees.write("source/was_dir", "now a file", 100);
    trees.write("target/was_dir/a", "a", 100);
    trees.write("source/was_file/a", "a", 100);
    trees.write("target/was_file", "f", 100);
    trees.write("source/was_link", "now a file", 100);
    symlink("x", trees.target().join("was_link")).expect("linked");
    symlink("y", trees.source().join("other")).expect("linked");
    symlink("z", trees.target().join("other")).expect("linked");
    trees.mirror_whole(&deleting());
    // Without --delete a directory stays, and its file is left out.
    trees.write("source/d", "a file", 100);
    trees.write("target/d/x", "x", 100);
    let kept = trees.mirror(&MirrorSettings::default()).expect("mirrored");
    assert!(kept.problems[0].contains("a directory is in its place"), "{:?}", kept.problems);
    assert!(trees.target().join("d/x").exists());
}

#[test]
fn hard_links_are_joined_and_split() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100), ("b", "x", 100), ("c", "x", 100), ("d", "x", 100)]);
    fs::remove_file(trees.source().join("b")).expect("removed");
    fs::hard_link(trees.source().join("a"), trees.source().join("b")).expect("linked");
    fs::remove_file(trees.target().join("d")).expect("removed");
    fs::hard_link(trees.target().join("c"), trees.target().join("d")).expect("linked");
    let done = trees.mirror_whole(&MirrorSettings::default());
    assert_eq!(done.outcome.linked, 1);
    assert_eq!(done.copied, ["d"]);
    // A file of several names that changes keeps them.
    trees.write("source/a", "changed", 200);
    let done = trees.mirror_whole(&MirrorSettings::default());
    assert_eq!((done.copied, done.outcome.linked), (vec!["a".to_owned()], 1));
}

#[test]
fn excluded_names_are_neither_sent_nor_removed() {
    let trees = Trees::new();
    trees.write("source/a.o", "x", 100);
    trees.write("source/d/b", "x", 100);
    trees.write("target/c.o", "x", 100);
    trees.write("target/gone/c.o", "x", 100);
    let filter = vec![FilterRule { include: false, pattern: b"*.o".to_vec() }];
    let settings = MirrorSettings { filter, ..deleting() };
    let done = trees.mirror(&settings).expect("mirrored");
    assert_eq!(done.copied, ["d/b"]);
    assert!(trees.target().join("c.o").exists() && trees.target().join("gone/c.o").exists());
    assert!(!trees.target().join("a.o").exists());
    let settings = MirrorSettings { delete_excluded: true, ..settings };
    trees.mirror(&settings).expect("mirrored");
    assert!(!trees.target().join("c.o").exists() && !trees.target().join("gone").exists());
}

#[test]
fn backups_keep_what_is_removed_and_replaced() {
    let trees = Trees::new();
    trees.both(&[("d/changed", "old", 100)]);
    trees.write("source/d/changed", "new!", 200);
    trees.write("target/d/gone", "gone", 100);
    let backup_dir = Some(b"old".to_vec());
    let settings = MirrorSettings { backup_dir, ..deleting() };
    trees.mirror(&settings).expect("mirrored");
    let read = |name: &str| fs::read_to_string(trees.target().join(name)).expect(name);
    assert_eq!((read("d/changed"), read("old/d/changed")), ("new!".into(), "old".into()));
    assert_eq!(read("old/d/gone"), "gone");
    // The backups are no part of the mirror.
    let again = trees.mirror(&settings).expect("mirrored");
    assert_eq!((again.outcome.removed, again.copied.len(), again.unchanged), (0, 0, 2));
}

#[test]
fn contents_are_compared_if_that_is_asked_for() {
    let trees = Trees::new();
    trees.both(&[("a", "content A", 100), ("b", "x", 100)]);
    trees.write("target/a", "content B", 100);
    trees.write("target/b", "x", 200);
    assert_eq!(trees.mirror(&MirrorSettings::default()).expect("mirrored").copied, ["b"]);
    trees.write("target/b", "x", 200);
    let checksum = MirrorSettings { checksum: true, ..MirrorSettings::default() };
    let done = trees.mirror_whole(&checksum);
    assert_eq!(done.copied, ["a"]);
    assert_eq!(done.lines.last().map(String::as_str), Some(".f..t...... b"));
}

#[test]
fn times_within_the_window_are_the_same() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100)]);
    trees.write("target/a", "x", 101);
    let modify_window = Duration::from_secs(1);
    let settings = MirrorSettings { modify_window, ..MirrorSettings::default() };
    assert_eq!(trees.mirror(&settings).expect("mirrored").copied, Vec::<String>::new());
}

#[test]
fn a_source_that_asks_for_more_than_it_may_is_refused() {
    use super::message::{Action, Body, ListPiece, Removal};
    let trees = Trees::new();
    trees.write("target/a", "a", 100);
    trees.write("target/kept/x", "x", 100);
    let attack = |bodies: Vec<Body>, settings: MirrorSettings| {
        let (there, from_here) = channel();
        let (here, _from_there) = channel();
        bodies.into_iter().for_each(|body| there.send(Message(body)).expect("sent"));
        let cancel = Cancel::default();
        let mut destination =
            MirrorDestination::new(&trees.target(), &settings, &cancel).expect("opened");
        destination.compare(&mut Pipe(here, from_here)).expect_err("refused").to_string()
    };
    let removal = |name: &[u8], obstacle| {
        let piece = ListPiece { list: vec![Removal { name: name.to_vec(), obstacle }], last: true };
        vec![Body::Remove { piece, empty: false }]
    };
    let action = |action| {
        let piece = ListPiece { list: vec![action], last: true };
        vec![Body::Actions(piece), Body::Begin { transfer: false, unchanged: 0 }]
    };
    let link = |file: &[u8], name: &[u8]| Action::Link { file: file.to_vec(), name: name.to_vec() };
    let attributes = |name: &[u8]| {
        let (name, directory) = (name.to_vec(), true);
        Action::Attributes { name, directory, mode: 0o777, seconds: 0, nanos: 0 }
    };
    let filter = vec![FilterRule { include: false, pattern: b"kept".to_vec() }];
    let excluding = MirrorSettings { filter, ..deleting() };
    let rename = |from: &[u8], to: &[u8]| Action::Rename { from: from.to_vec(), to: to.to_vec() };
    for (bodies, settings) in [
        (removal(b"a", false), MirrorSettings::default()),
        (removal(b"", false), deleting()),
        (removal(b"../x", false), deleting()),
        (removal(b".netblt-partial", false), deleting()),
        (action(rename(b"a", b"b")), deleting()),
        (action(Action::BackUp(b"/etc/passwd".to_vec())), deleting()),
        // What the filter excludes is no part of the mirror.
        (removal(b"kept/x", false), excluding.clone()),
        (action(link(b"a", b"kept/x")), excluding.clone()),
        (action(attributes(b"kept")), excluding),
    ] {
        let error = attack(bodies, settings);
        assert!(error.contains("unexpected message of a mirror"), "{error}");
        assert!(trees.target().join("a").exists());
    }
}

#[test]
fn what_is_renamed_does_not_count_as_removed() {
    let trees = Trees::new();
    for number in 0..30 {
        trees.write(&format!("source/new/{number}"), &format!("content {number}"), 100 + number);
        trees.write(&format!("target/old/{number}"), &format!("content {number}"), 100 + number);
    }
    let done = trees.mirror_whole(&deleting());
    assert_eq!((done.outcome.renamed, done.outcome.removed), (30, 1));
}

#[test]
fn a_directory_with_excluded_files_is_not_counted_and_stays() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100)]);
    for number in 0..15 {
        trees.write(&format!("target/d{number}/e/x.o"), "x", 100);
    }
    trees.write("target/d0/gone", "x", 100);
    let filter = vec![FilterRule { include: false, pattern: b"*.o".to_vec() }];
    let settings = MirrorSettings { filter, itemize: true, ..deleting() };
    let done = trees.mirror(&settings).expect("mirrored");
    assert_eq!((&done.lines[..], done.outcome.removed), (&["*deleting d0/gone".to_owned()][..], 1));
    assert!(trees.target().join("d0/e/x.o").exists());
    assert_eq!(trees.mirror(&settings).expect("mirrored").lines, Vec::<String>::new());
}

#[test]
fn the_source_has_no_part_in_the_directory_of_backups() {
    let trees = Trees::new();
    trees.both(&[("a", "old", 100)]);
    trees.write("source/a", "new!", 200);
    trees.write("source/.old/a", "not a backup", 100);
    let settings = MirrorSettings { backup_dir: Some(b".old".to_vec()), ..deleting() };
    assert_eq!(trees.mirror(&settings).expect("mirrored").copied, ["a"]);
    let kept = fs::read_to_string(trees.target().join(".old/a")).expect("read");
    assert_eq!(kept, "old");
}

#[test]
fn a_directory_that_may_not_be_written_to_is_opened_up() {
    let trees = Trees::new();
    trees.both(&[("ro/a", "x", 100)]);
    for root in [trees.source(), trees.target()] {
        fs::set_permissions(root.join("ro"), fs::Permissions::from_mode(0o555)).expect("set");
    }
    let ours = trees.source().join("ro");
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).expect("set");
    fs::remove_file(ours.join("a")).expect("removed");
    trees.write("source/ro/b", "y", 100);
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o555)).expect("set");
    trees.mirror_whole(&deleting());
}

#[test]
fn something_that_cannot_be_sent_keeps_no_removal_back() {
    let trees = Trees::new();
    trees.both(&[("a", "x", 100)]);
    trees.write("target/gone", "x", 100);
    let pipe = trees.source().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let done = trees.mirror(&deleting()).expect("mirrored");
    assert_eq!((done.problems.len(), done.outcome.removed), (1, 1));
    assert!(!trees.target().join("gone").exists());
}
