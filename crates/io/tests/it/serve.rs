//! A server of files and its clients, over loopback.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use netblt::serve::client::{Client, Fetch, RemoveOptions, into_directory};
use netblt::serve::{AuditRecord, AuthorizedClients, EntryType, Permissions, Verdict};
use netblt::{Destination, Error, Overwrite, RequestErrorKind, Selection, Source, StaticKey};

use crate::serving::{Deaf, Host, bytes, denial};

#[test]
fn files_and_trees_come_and_go() {
    let host = Host::start(|_| {});
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    fs::create_dir_all(at("tree/sub")).unwrap();
    fs::write(at("tree/sub/deep"), bytes(3_000_000, 1)).unwrap();
    symlink("sub/deep", at("tree/link")).unwrap();
    fs::write(at("one"), bytes(5_000_000, 2)).unwrap();
    fs::write(at("two"), b"2").unwrap();

    // A single file gets the name; a directory that exists takes what comes.
    assert!(host.put(&[&at("one")], "renamed").unwrap().verified);
    assert_eq!(fs::read(host.root("renamed")).unwrap(), bytes(5_000_000, 2));
    assert_eq!(host.server().make_directory(b"a/b", true, &mut Deaf).unwrap(), 2);
    assert!(host.put(&[&at("one"), &at("two"), &at("tree")], "a/b/").unwrap().verified);
    assert_eq!(host.names("a/b"), ["one", "tree", "two"]);
    assert!(host.put(&[&at("tree")], "copy").unwrap().verified);
    assert_eq!(fs::read(host.root("copy/sub/deep")).unwrap(), bytes(3_000_000, 1));
    assert_eq!(denial(host.put(&[&at("one"), &at("two")], "none")), RequestErrorKind::NotFound);
    assert_eq!(denial(host.put(&[&at("one")], "none/x")), RequestErrorKind::NotFound);
    assert_eq!(denial(host.put(&[&at("one")], "renamed")), RequestErrorKind::Exists);
    assert_eq!(denial(host.put(&[&at("tree")], "renamed")), RequestErrorKind::NotADirectory);

    // And back.
    fs::create_dir(at("back")).unwrap();
    let summary = host.get("a", &at("back")).unwrap();
    assert!(summary.verified && summary.bytes >= 8_000_001, "{summary:?}");
    assert_eq!(fs::read(at("back/a/b/tree/sub/deep")).unwrap(), bytes(3_000_000, 1));
    assert_eq!(fs::read_link(at("back/a/b/tree/link")).unwrap(), Path::new("sub/deep"));
    assert!(host.get("renamed", &at("back")).unwrap().verified);
    assert_eq!(fs::read(at("back/renamed")).unwrap(), bytes(5_000_000, 2));
    let plain = Fetch {
        path: b"a".to_vec(),
        name: OsString::from("a"),
        trees: false,
        bytes: None,
        data: None,
    };
    let into = into_directory(at("back"));
    assert_eq!(denial(host.server().get(&plain, into, &mut Deaf)), RequestErrorKind::IsADirectory);
    assert_eq!(denial(host.get("nothing", &at("back"))), RequestErrorKind::NotFound);

    // What is there.
    let entry = host.stat("renamed").unwrap();
    assert_eq!((entry.sort, entry.length), (EntryType::File, 5_000_000));
    assert_eq!(host.stat("").unwrap().sort, EntryType::Directory);
    assert_eq!(host.stat("copy/link").unwrap().sort, EntryType::Link);
    assert_eq!(denial(host.stat("nothing")), RequestErrorKind::NotFound);
    assert_eq!(host.list("renamed").unwrap()[0].name, b"renamed");

    // Removing.
    let remove = |path: &str, how| host.server().remove(path.as_bytes(), how, &mut Deaf);
    assert_eq!(denial(remove("copy", RemoveOptions::FILE)), RequestErrorKind::IsADirectory);
    assert_eq!(denial(remove("copy", RemoveOptions::EMPTY_DIRECTORY)), RequestErrorKind::NotEmpty);
    assert_eq!(remove("copy", RemoveOptions::TREE).unwrap(), 4);
    assert_eq!(remove("renamed", RemoveOptions::FILE).unwrap(), 1);
    assert_eq!(denial(remove("renamed", RemoveOptions::FILE)), RequestErrorKind::NotFound);
    assert_eq!(denial(remove("", RemoveOptions::TREE)), RequestErrorKind::Forbidden);
    assert_eq!(
        denial(host.server().make_directory(b"a", false, &mut Deaf)),
        RequestErrorKind::Exists
    );
    assert_eq!(host.names(""), ["a"]);

    // Nothing is left of all that, and everything is in the book.
    let left = fs::read_dir(host.root("")).unwrap().count();
    assert_eq!(left, 1);
    let renamed =
        |account: &AuditRecord| account.path == b"renamed" && account.request.name() == "put";
    let data = |account: &AuditRecord| account.request.name() == "receive";
    let records = host.accounts(|records| records.iter().any(renamed) && records.iter().any(data));
    assert_eq!(records.iter().find(|account| renamed(account)).unwrap().verdict, Verdict::Done);
    let data = records.iter().find(|account| data(account)).unwrap();
    assert_eq!((data.bytes, &data.path[..]), (5_000_000, &b"renamed"[..]));
}

#[test]
fn names_of_any_length_and_bytes_come_and_go() {
    use std::os::unix::ffi::OsStringExt as _;
    let host = Host::start(|_| {});
    let part = "x".repeat(200);
    let deep = vec![part.as_str(); 15].join("/");
    assert_eq!(host.server().make_directory(deep.as_bytes(), true, &mut Deaf).unwrap(), 15);
    let odd = [deep.as_bytes(), b"/\xff\n name"].concat();
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"content").unwrap();
    let selection = Selection::from(vec![here.path().join("f")]);
    assert!(host.server().put(selection, &odd, &mut Deaf).unwrap().verified);
    assert_eq!(host.list(&deep).unwrap()[0].name, b"\xff\n name");
    let name = OsString::from_vec(b"\xff\n name".to_vec());
    let fetch = Fetch { path: odd, name: name.clone(), trees: false, bytes: None, data: None };
    assert!(host.server().get(&fetch, into_directory(here.path()), &mut Deaf).unwrap().verified);
    assert_eq!(fs::read(here.path().join(name)).unwrap(), b"content");
}

#[test]
fn streams_come_and_go() {
    let host = Host::start(|_| {});
    let content = bytes(7_000_000, 3);
    let stream = Source::reader("own", std::io::Cursor::new(content.clone()));
    assert!(host.server().put_stream(stream, b"given", &mut Deaf).unwrap().verified);
    assert_eq!(fs::read(host.root("given")).unwrap(), content);
    let (read, mut write) = std::io::pipe().unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut { read }, &mut all).map(|_| all)
    });
    let fetch = Fetch {
        path: b"given".to_vec(),
        name: "given".into(),
        trees: false,
        bytes: None,
        data: None,
    };
    let into = Destination::writer(write.try_clone().unwrap());
    assert!(host.server().get(&fetch, into, &mut Deaf).unwrap().verified);
    std::io::Write::flush(&mut write).unwrap();
    drop(write);
    assert_eq!(reader.join().unwrap().unwrap(), content);
}

#[test]
fn a_directory_of_many_is_listed_page_by_page() {
    let host = Host::start(|_| {});
    let names: Vec<String> = (0..25_000).map(|number| format!("{number:05}")).collect();
    names.iter().for_each(|name| fs::write(host.root(name), "").unwrap());
    assert_eq!(host.names(""), names);
    // Whether there is more the first page tells; what is asked then is asked in one session.
    let records = host.accounts(|records| records.len() == 3);
    let peers: Vec<_> = records.iter().map(|account| account.peer).collect();
    assert!(records.iter().all(|account| account.request.name() == "list"), "{records:?}");
    assert!(peers[0] != peers[1] && peers[1] == peers[2], "{records:?}");
}

#[test]
fn no_path_outside_the_root_is_reached_by_name_or_link() {
    let host = Host::start(|_| {});
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"new").unwrap();
    let out = host.directory.path().to_owned();
    symlink("../secret", host.root("link")).unwrap();
    symlink(&out, host.root("up")).unwrap();
    fs::create_dir(host.root("dir")).unwrap();
    for path in ["link", "up/secret", "up", "dir/../../secret"] {
        assert!(host.get(path, here.path()).is_err(), "{path}");
        assert!(!here.path().join("secret").exists() && !here.path().join("link").exists());
    }
    for path in ["up/new", "up", "../new", "up/root/x", "link/x"] {
        assert!(host.put(&[&here.path().join("f")], path).is_err(), "{path}");
    }
    // An absolute path is one beneath the root.
    let absolute = out.join("secret");
    assert_eq!(denial(host.stat(absolute.to_str().unwrap())), RequestErrorKind::NotFound);
    for path in ["up/secret", "../secret", "up/root"] {
        assert!(
            host.server()
                .remove(
                    path.as_bytes(),
                    RemoveOptions { empty_directory: true, tree: true },
                    &mut Deaf
                )
                .is_err(),
            "{path}"
        );
        assert!(host.server().make_directory(path.as_bytes(), true, &mut Deaf).is_err(), "{path}");
        assert!(host.stat(path).is_err(), "{path}");
    }
    assert!(host.list("up/root").is_err());
    assert_eq!(host.list("up").unwrap()[0].sort, EntryType::Link);
    // A link itself is seen and removed, and what it leads to stays.
    assert_eq!(host.stat("up").unwrap().sort, EntryType::Link);
    assert_eq!(
        host.server()
            .remove(b"up", RemoveOptions { empty_directory: true, tree: true }, &mut Deaf)
            .unwrap(),
        1
    );
    // A tree with links in it goes as it is; removing one follows none.
    symlink(&out, host.root("dir/away")).unwrap();
    assert!(host.get("dir", here.path()).unwrap().verified);
    assert_eq!(fs::read_link(here.path().join("dir/away")).unwrap(), out);
    assert_eq!(host.server().remove(b"dir", RemoveOptions::TREE, &mut Deaf).unwrap(), 2);
    // What a file is put over is replaced, not what a link in its place leads to.
    let mut options = host.options.clone();
    options.settings.overwrite = Overwrite::Always;
    let server = Client { options: &options, ..host.server() };
    let selection = Selection::from(vec![here.path().join("f")]);
    let _ = server.put(selection, b"link", &mut Deaf);
    assert_eq!(fs::read(out.join("secret")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    // What transfers keep is not shown, nor given away, nor taken.
    fs::create_dir(host.root(".netblt-partial")).unwrap();
    fs::write(host.root(".netblt-partial/journal"), "x").unwrap();
    assert_eq!(denial(host.get(".netblt-partial", here.path())), RequestErrorKind::Forbidden);
    assert_eq!(denial(host.stat(".netblt-partial/journal")), RequestErrorKind::Forbidden);
    assert!(!host.names("").contains(&".netblt-partial".to_owned()));
}

#[test]
fn requests_without_permission_are_refused() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"x").unwrap();
    let host = Host::start(|service| service.permissions.write = false);
    fs::write(host.root("there"), "x").unwrap();
    assert!(host.get("there", here.path()).unwrap().verified);
    assert_eq!(denial(host.put(&[&here.path().join("f")], "new")), RequestErrorKind::Forbidden);
    assert_eq!(
        denial(host.server().make_directory(b"d", true, &mut Deaf)),
        RequestErrorKind::Forbidden
    );
    let removed = host.server().remove(b"there", RemoveOptions::FILE, &mut Deaf);
    assert_eq!(denial(removed), RequestErrorKind::Forbidden);
    assert_eq!(host.names(""), ["there"]);

    let host = Host::start(|service| service.permissions.read = false);
    assert!(host.put(&[&here.path().join("f")], "new").unwrap().verified);
    assert_eq!(denial(host.get("new", here.path())), RequestErrorKind::Forbidden);
    assert_eq!(denial(host.stat("new")), RequestErrorKind::Forbidden);
    assert_eq!(denial(host.list("")), RequestErrorKind::Forbidden);
}

#[test]
fn expired_permissions_are_refused() {
    let later = SystemTime::now() + Duration::from_secs(3600);
    let host = Host::start(|service| service.permissions.expires = Some(later));
    assert!(host.stat("").is_ok());
    let host = Host::start(|service| service.permissions.expires = Some(SystemTime::now()));
    assert_eq!(denial(host.stat("")), RequestErrorKind::Forbidden);
}

/// A client with write permission swaps a directory for a link that leads out, again and again,
/// while others read and write through that name.
#[test]
fn no_path_outside_the_root_is_reached_by_a_race() {
    let host = Host::start(|_| {});
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"new").unwrap();
    host.raced(|| {
        for number in 0..20 {
            let to = here.path().join(number.to_string());
            fs::create_dir(&to).unwrap();
            let _ = host.get("tree/deep/secret", &to);
            let _ = host.get("tree", &to);
            // A link comes as what it is: what it leads to here is no server's doing.
            let link = fs::symlink_metadata(to.join("tree/deep")).is_ok_and(|at| at.is_symlink());
            for got in ["secret", "tree/deep/secret"].into_iter().take(if link { 1 } else { 2 }) {
                if let Ok(content) = fs::read(to.join(got)) {
                    assert_eq!(content, b"inside!", "{got}");
                }
            }
            if let Ok(entry) = host.stat("tree/deep/secret") {
                assert_eq!(entry.sort, EntryType::File);
            }
            let _ = host.put(&[&here.path().join("f")], &format!("tree/deep/new{number}"));
            let made = format!("tree/deep/made{number}");
            let _ = host.server().make_directory(made.as_bytes(), false, &mut Deaf);
            if number % 10 == 9 {
                let _ = host.server().remove(b"tree/deep/secret", RemoveOptions::FILE, &mut Deaf);
            }
        }
    });
}

fn static_key(number: u8) -> StaticKey {
    StaticKey::from_bytes([number; 32])
}

#[test]
fn each_key_has_a_grant_of_its_own() {
    let there = tempfile::tempdir().unwrap();
    fs::write(there.path().join("own"), "x").unwrap();
    let permissions = |change: &dyn Fn(&mut Permissions)| {
        let mut permissions = Permissions::new(there.path());
        change(&mut permissions);
        permissions
    };
    let clients = vec![
        (static_key(1).public(), permissions(&|permissions| permissions.name = "all".to_owned())),
        (static_key(2).public(), permissions(&|permissions| permissions.write = false)),
        (static_key(3).public(), permissions(&|permissions| permissions.read = false)),
        (
            static_key(4).public(),
            permissions(&|permissions| permissions.expires = Some(SystemTime::UNIX_EPOCH)),
        ),
        (static_key(5).public(), permissions(&|permissions| permissions.max_sessions = Some(0))),
    ];
    let (members, none) = AuthorizedClients::new(static_key(9), clients.clone());
    assert!(none.is_empty());
    let host = Host::start(|service| service.members = Some(members.clone()));
    let as_key = |number| host.client(host.calling(static_key(number), members.server_key()));
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"x").unwrap();
    let put = |number, name: &str| as_key(number).put(&[&here.path().join("f")], name);

    assert!(put(1, "one").unwrap().verified);
    assert_eq!(as_key(1).names(""), ["one", "own"]);
    assert_eq!(as_key(2).names(""), ["one", "own"]);
    assert_eq!(denial(put(2, "two")), RequestErrorKind::Forbidden);
    assert!(put(3, "three").unwrap().verified);
    assert_eq!(denial(as_key(3).stat("own")), RequestErrorKind::Forbidden);
    assert_eq!(denial(as_key(4).stat("own")), RequestErrorKind::Forbidden);
    assert_eq!(denial(as_key(5).stat("own")), RequestErrorKind::Busy);
    let stranger = as_key(6).stat("own").unwrap_err();
    assert!(matches!(stranger, Error::Connect { .. }), "{stranger:?}");
    // Who thinks that it is another server hears nothing.
    let wrong = host.client(host.calling(static_key(1), static_key(8).public()));
    assert!(matches!(wrong.stat("own").unwrap_err(), Error::Connect { .. }));
    let put_by_all =
        |account: &AuditRecord| account.name == "all" && account.request.name() == "put";
    host.accounts(|records| records.iter().any(put_by_all));

    // One is taken away, another is let in: at the next opening, with the server running.
    let mut clients = clients;
    clients.remove(0);
    clients.push((static_key(6).public(), permissions(&|_| {})));
    assert!(members.change(clients).is_empty());
    let start = std::time::Instant::now();
    while as_key(6).stat("own").is_err() {
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    assert!(matches!(as_key(1).stat("own").unwrap_err(), Error::Connect { .. }));
}
