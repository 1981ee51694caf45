//! What a server does on its own disk, and pieces of its files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use netblt::serve::client::{Client, Read};
use netblt::serve::{AuditRecord, AuthorizedClients, Permissions, Piece};
use netblt::{Error, Options, Overwrite, RequestErrorKind, StaticKey};

use crate::serving::{Deaf, Host, bytes, denial};

fn rename(host: &Host, from: &str, to: &str, replace: bool) -> Result<(), Error> {
    host.server().rename(from.as_bytes(), to.as_bytes(), replace, &mut Deaf)
}

fn copy(host: &Host, from: &str, to: &str, change: impl Fn(&mut Options)) -> Result<u64, Error> {
    let mut options = host.options.clone();
    change(&mut options);
    let server = Client { options: &options, ..host.server() };
    server.copy(from.as_bytes(), to.as_bytes(), true, &mut Deaf)
}

fn piece(path: &str, offset: u64, bytes: u64) -> Piece {
    Piece { path: path.as_bytes().to_vec(), offset, bytes }
}

fn read(host: &Host, pieces: &[Piece]) -> Result<Vec<Read>, Error> {
    host.server().read(pieces, &mut Deaf)
}

#[test]
fn files_and_directories_are_renamed() {
    let host = Host::start(|_| {});
    fs::create_dir_all(host.root("d/sub")).unwrap();
    fs::write(host.root("d/f"), "f").unwrap();
    fs::write(host.root("g"), "g").unwrap();
    rename(&host, "d/f", "d/sub/h", false).unwrap();
    assert_eq!(fs::read(host.root("d/sub/h")).unwrap(), b"f");
    assert!(!host.root("d/f").exists());
    // A file is replaced if that is asked for, and a directory never.
    assert_eq!(denial(rename(&host, "g", "d/sub/h", false)), RequestErrorKind::Exists);
    assert_eq!(fs::read(host.root("d/sub/h")).unwrap(), b"f");
    rename(&host, "g", "d/sub/h", true).unwrap();
    assert_eq!(fs::read(host.root("d/sub/h")).unwrap(), b"g");
    assert_eq!(denial(rename(&host, "d/sub/h", "d", true)), RequestErrorKind::Exists);
    // Directories, links and the names of one file.
    fs::create_dir(host.root("empty")).unwrap();
    assert_eq!(denial(rename(&host, "d/sub", "empty", true)), RequestErrorKind::Exists);
    rename(&host, "d", "e", true).unwrap();
    assert_eq!(host.names("e/sub"), ["h"]);
    symlink("nowhere", host.root("link")).unwrap();
    rename(&host, "link", "moved", false).unwrap();
    assert_eq!(fs::read_link(host.root("moved")).unwrap(), std::path::Path::new("nowhere"));
    fs::hard_link(host.root("e/sub/h"), host.root("second")).unwrap();
    rename(&host, "second", "e/sub/h", true).unwrap();
    assert!(!host.root("second").exists() && host.root("e/sub/h").exists());
    // What makes no sense.
    assert_eq!(denial(rename(&host, "e", "e/sub/x", false)), RequestErrorKind::Failed);
    assert_eq!(denial(rename(&host, "none", "x", false)), RequestErrorKind::NotFound);
    assert_eq!(denial(rename(&host, "e", "none/x", false)), RequestErrorKind::NotFound);
    assert_eq!(denial(rename(&host, "e", "", true)), RequestErrorKind::Forbidden);
    assert_eq!(denial(rename(&host, "", "x", true)), RequestErrorKind::Forbidden);
    assert_eq!(host.names(""), ["e", "empty", "moved"]);
    let renamed =
        |account: &AuditRecord| account.request.name() == "rename" && account.path == b"d/f";
    host.accounts(|records| records.iter().any(renamed));
}

#[test]
fn files_and_directories_are_copied_on_the_server() {
    let host = Host::start(|_| {});
    fs::create_dir_all(host.root("tree/sub")).unwrap();
    let content = bytes(5_000_000, 1);
    fs::write(host.root("tree/sub/deep"), &content).unwrap();
    fs::set_permissions(host.root("tree/sub/deep"), fs::Permissions::from_mode(0o750)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(host.root("tree/sub/deep")).unwrap().set_modified(old).unwrap();
    symlink("sub/deep", host.root("tree/link")).unwrap();
    let hole = fs::File::create(host.root("hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, b"end", (64 << 20) - 3).unwrap();

    assert_eq!(copy(&host, "tree/sub/deep", "one", |_| {}).unwrap(), 1);
    assert_eq!(fs::read(host.root("one")).unwrap(), content);
    let one = fs::metadata(host.root("one")).unwrap();
    assert!(one.modified().unwrap() > old && one.mode() & 0o777 & !0o750 == 0);
    assert_eq!(denial(copy(&host, "hole", "one", |_| {})), RequestErrorKind::Exists);
    assert_eq!(fs::read(host.root("one")).unwrap(), content);
    let replacing = |options: &mut Options| options.settings.overwrite = Overwrite::Always;
    copy(&host, "hole", "one", replacing).unwrap();
    let one = fs::metadata(host.root("one")).unwrap();
    assert_eq!(one.len(), 64 << 20);
    assert_eq!(one.blocks(), fs::metadata(host.root("hole")).unwrap().blocks());
    assert!(fs::read(host.root("one")).unwrap().ends_with(b"\0end"));

    let keeping = |options: &mut Options| options.settings.preserve = true;
    assert_eq!(copy(&host, "tree", "twin", keeping).unwrap(), 4);
    assert_eq!(fs::read(host.root("twin/sub/deep")).unwrap(), content);
    let twin = fs::metadata(host.root("twin/sub/deep")).unwrap();
    assert_eq!((twin.modified().unwrap(), twin.mode() & 0o777), (old, 0o750));
    let link = fs::read_link(host.root("twin/link")).unwrap();
    assert_eq!(link, std::path::Path::new("sub/deep"));

    assert_eq!(denial(copy(&host, "tree", "twin", replacing)), RequestErrorKind::Exists);
    assert_eq!(denial(copy(&host, "tree", "tree/sub/again", |_| {})), RequestErrorKind::Failed);
    assert_eq!(denial(copy(&host, "none", "x", |_| {})), RequestErrorKind::NotFound);
    assert_eq!(denial(copy(&host, "one", "none/x", |_| {})), RequestErrorKind::NotFound);
    assert_eq!(denial(copy(&host, "one", "", |_| {})), RequestErrorKind::Forbidden);
    let plain = host.server().copy(b"tree", b"x", false, &mut Deaf);
    assert_eq!(denial(plain), RequestErrorKind::IsADirectory);
    // Nothing is left of what was not done, nor of how it was done.
    assert_eq!(host.names(""), ["hole", "one", "tree", "twin"]);
    assert_eq!(fs::read_dir(host.root("")).unwrap().count(), 4);
}

#[test]
fn pieces_of_files_are_read_with_one_connection() {
    let host = Host::start(|_| {});
    let (large, small) = (bytes(9_000_000, 1), bytes(1000, 2));
    fs::write(host.root("large"), &large).unwrap();
    fs::create_dir(host.root("d")).unwrap();
    fs::write(host.root("d/small"), &small).unwrap();
    fs::write(host.root("empty"), "").unwrap();
    let pieces = [
        piece("large", 8_999_000, u64::MAX),
        piece("large", 0, 5_000_000),
        piece("d/small", 10, 20),
        piece("none", 0, 1),
        piece("d", 0, 1),
        piece("/d//small", 999, 0),
        piece("empty", 0, u64::MAX),
        piece("large", u64::MAX, u64::MAX),
    ];
    let found = read(&host, &pieces).unwrap();
    assert_eq!(found.len(), pieces.len());
    let data = |at: usize| &found[at].as_ref().unwrap().1[..];
    assert_eq!(data(0), &large[8_999_000..]);
    assert_eq!(data(1), &large[..5_000_000]);
    assert_eq!(data(2), &small[10..30]);
    assert_eq!((data(5), data(6), data(7)), (&[][..], &[][..], &[][..]));
    let entry = &found[2].as_ref().unwrap().0;
    assert_eq!((&entry.name[..], entry.length), (&b"small"[..], 1000));
    let denied = |at: usize| match &found[at] {
        Err(Error::Denied { what, .. }) => *what,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (denied(3), denied(4)),
        (RequestErrorKind::NotFound, RequestErrorKind::IsADirectory)
    );
    let asked =
        host.accounts(|records| records.iter().any(|account| account.request.name() == "read"));
    assert_eq!(asked.len(), 1);
    // More than one request holds are asked for in several.
    let many: Vec<Piece> = (0..5000).map(|at| piece("d/small", at % 1000, 1)).collect();
    let found = read(&host, &many).unwrap();
    let got: Vec<u8> = found.into_iter().map(|one| one.unwrap().1[0]).collect();
    let is: Vec<u8> = (0..5000).map(|at| small[at % 1000]).collect();
    assert_eq!(got, is);
    assert!(read(&host, &[]).unwrap().is_empty());
}

#[test]
fn no_path_outside_the_root_is_renamed_copied_or_read() {
    let host = Host::start(|_| {});
    let out = host.directory.path().to_owned();
    symlink("../secret", host.root("link")).unwrap();
    symlink(&out, host.root("up")).unwrap();
    fs::create_dir(host.root("dir")).unwrap();
    fs::write(host.root("dir/f"), "inside").unwrap();
    for path in ["up/secret", "../secret", "dir/../../secret", "up/root/dir/f"] {
        assert!(rename(&host, path, "got", true).is_err(), "{path}");
        assert!(copy(&host, path, "got", |_| {}).is_err(), "{path}");
        assert!(read(&host, &[piece(path, 0, 10)]).map_or(true, |found| found[0].is_err()));
    }
    assert!(read(&host, &[piece("link", 0, 10)]).unwrap()[0].is_err());
    let replacing = |options: &mut Options| options.settings.overwrite = Overwrite::Always;
    for path in ["up/new", "../new", "up/secret", "dir/../../secret", "up"] {
        let _ = rename(&host, "dir/f", path, path != "up");
        let _ = copy(&host, "dir/f", path, |options| {
            if path != "up" {
                replacing(options);
            }
        });
        assert!(host.root("dir/f").exists(), "{path}");
    }
    // A link is renamed and copied as what it is, and replaced, not followed.
    assert_eq!(copy(&host, "link", "twin", |_| {}).unwrap(), 1);
    assert_eq!(fs::read_link(host.root("twin")).unwrap(), std::path::Path::new("../secret"));
    copy(&host, "dir/f", "twin", replacing).unwrap();
    rename(&host, "dir/f", "link", true).unwrap();
    assert_eq!(fs::read(host.root("link")).unwrap(), b"inside");
    assert_eq!(fs::read(out.join("secret")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    // No request may touch what transfers keep.
    fs::create_dir(host.root(".netblt-partial")).unwrap();
    fs::write(host.root(".netblt-partial/1"), "part").unwrap();
    for (from, to) in [(".netblt-partial/1", "x"), ("link", ".netblt-partial/2")] {
        assert_eq!(denial(rename(&host, from, to, true)), RequestErrorKind::Forbidden);
        assert_eq!(denial(copy(&host, from, to, |_| {})), RequestErrorKind::Forbidden);
    }
    let parts = [piece("link", 0, 1), piece(".netblt-partial/1", 0, 1)];
    assert_eq!(denial(read(&host, &parts)), RequestErrorKind::Forbidden);
}

/// A client with write permission swaps a directory for a link that leads out, again and again.
#[test]
fn no_path_outside_the_root_is_reached_by_a_race() {
    let host = Host::start(|_| {});
    host.raced(|| {
        for number in 0..20 {
            let own = format!("own{number}");
            fs::write(host.root(&own), b"mine").unwrap();
            for found in read(&host, &vec![piece("tree/deep/secret", 0, 100); 50]).unwrap() {
                assert!(found.is_err() || found.unwrap().1 == b"inside!");
            }
            let _ = copy(&host, "tree/deep/secret", &format!("copy{number}"), |_| {});
            let _ = copy(&host, "tree", &format!("tree{number}"), |_| {});
            for copied in [format!("copy{number}"), format!("tree{number}/deep/secret")] {
                let leads = host.root(&format!("tree{number}/deep"));
                if fs::symlink_metadata(leads).is_ok_and(|at| at.is_symlink()) {
                    continue;
                }
                let content = fs::read(host.root(&copied));
                assert!(content.is_err() || content.unwrap() == b"inside!", "{copied}");
            }
            let _ = rename(&host, &own, &format!("tree/deep/new{number}"), true);
            let _ = copy(&host, &own, &format!("tree/deep/copied{number}"), |_| {});
            let _ = rename(&host, "tree/deep/secret", &format!("tree/deep/{number}"), true);
            let _ = rename(&host, &format!("tree/deep/{number}"), "tree/deep/secret", true);
        }
    });
}

#[test]
fn each_key_has_its_permissions() {
    let there = tempfile::tempdir().unwrap();
    fs::create_dir(there.path().join("own")).unwrap();
    for name in ["f", "own/f"] {
        fs::write(there.path().join(name), name).unwrap();
    }
    let key = |number| StaticKey::from_bytes([number; 32]);
    let permissions = |change: &dyn Fn(&mut Permissions)| {
        let mut permissions = Permissions::new(there.path());
        change(&mut permissions);
        permissions
    };
    let clients = vec![
        (key(1).public(), permissions(&|_| {})),
        (key(2).public(), permissions(&|permissions| permissions.write = false)),
        (key(3).public(), permissions(&|permissions| permissions.read = false)),
        (key(4).public(), permissions(&|permissions| permissions.root = there.path().join("own"))),
    ];
    let (members, _) = AuthorizedClients::new(key(9), clients);
    let host = Host::start(|service| service.members = Some(members.clone()));
    let as_key = |number| host.client(host.calling(key(number), members.server_key()));
    let f = [piece("f", 0, 10)];

    copy(&as_key(1), "f", "c1", |_| {}).unwrap();
    rename(&as_key(1), "c1", "r1", false).unwrap();
    assert_eq!(read(&as_key(1), &f).unwrap()[0].as_ref().unwrap().1, b"f");

    assert_eq!(denial(copy(&as_key(2), "f", "c2", |_| {})), RequestErrorKind::Forbidden);
    assert_eq!(denial(rename(&as_key(2), "f", "r2", false)), RequestErrorKind::Forbidden);
    assert_eq!(read(&as_key(2), &f).unwrap()[0].as_ref().unwrap().1, b"f");

    assert_eq!(denial(copy(&as_key(3), "f", "c3", |_| {})), RequestErrorKind::Forbidden);
    assert_eq!(denial(read(&as_key(3), &f)), RequestErrorKind::Forbidden);
    rename(&as_key(3), "r1", "r3", false).unwrap();

    // Whose root is deeper sees only what is in it.
    assert_eq!(read(&as_key(4), &f).unwrap()[0].as_ref().unwrap().1, b"own/f");
    assert!(read(&as_key(4), &[piece("r3", 0, 1)]).unwrap()[0].is_err());
    rename(&as_key(4), "f", "g", false).unwrap();
    assert!(rename(&as_key(4), "g", "../g", false).is_err());
    copy(&as_key(4), "g", "h", |_| {}).unwrap();
    assert_eq!(as_key(4).names(""), ["g", "h"]);
    assert_eq!(as_key(1).names(""), ["f", "own", "r3"]);
}
