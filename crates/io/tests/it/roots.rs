//! Keys with roots of their own at a server of files: what those who may do more do to them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use netblt::serve::client::RemoveOptions;
use netblt::serve::{AuthorizedClients, Permissions};
use netblt::{Selection, StaticKey};

use crate::serving::{Deaf, Host};

fn key(number: u8) -> StaticKey {
    StaticKey::from_bytes([number; 32])
}

/// A server whose key 1 may do everything, and each further one what is in `roots`, one after the
/// other; and who asks with each.
fn host(roots: impl FnOnce(&Path) -> Vec<std::path::PathBuf>) -> (Host, Vec<Host>) {
    let mut members = None;
    let host = Host::start(|service| {
        let roots = roots(&service.permissions.root);
        let permissions =
            [service.permissions.root.clone()].into_iter().chain(roots).map(Permissions::new);
        let clients =
            (1..).zip(permissions).map(|(number, permissions)| (key(number).public(), permissions));
        members = Some(AuthorizedClients::new(key(99), clients.collect()).0);
        service.members.clone_from(&members);
    });
    let members = members.unwrap();
    let count = members.clone();
    let clients =
        (1..10).map(|number| host.client(host.calling(key(number), count.server_key()))).collect();
    (host, clients)
}

fn put(client: &Host, name: &str) -> bool {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), "new").unwrap();
    let selection = Selection::from(vec![here.path().join("f")]);
    client.server().put(selection, name.as_bytes(), &mut Deaf).is_ok_and(|sum| sum.verified)
}

/// Who may change what is above another one's root puts a link in its place: before that one has
/// asked anything, and afterwards.
#[test]
fn a_link_in_the_place_of_a_root_does_not_lead_outside() {
    let (host, clients) = host(|root| {
        // Another name for what is served, as for whatever is above it.
        symlink(root, root.with_file_name("alias")).unwrap();
        let beside = root.with_file_name("beside");
        fs::create_dir_all(beside.join("deep/in")).unwrap();
        fs::create_dir_all(root.join("d/known")).unwrap();
        vec![
            root.join("new"),
            root.join("d/known"),
            root.with_file_name("alias").join("by/alias"),
            beside.clone(),
            beside.join("deep/in"),
        ]
    });
    let out = host.directory.path().to_owned();
    let (all, beside) = (&clients[0], &clients[4]);
    assert!(put(&clients[2], "mine"));

    // As they come: links in a tree.
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("t")).unwrap();
    symlink(&out, tree.path().join("t/link")).unwrap();
    symlink("..", tree.path().join("t/up")).unwrap();
    for client in [all, beside] {
        let selection = Selection::from(vec![tree.path().join("t")]);
        assert!(client.server().put(selection, b"t", &mut Deaf).unwrap().verified);
    }
    let server = all.server();
    server.rename(b"d", b"old", false, &mut Deaf).unwrap();
    for path in ["d", "by"] {
        server.make_directory(path.as_bytes(), false, &mut Deaf).unwrap();
    }
    for (from, to) in [("t/up", "new"), ("t/link", "d/known")] {
        server.rename(from.as_bytes(), to.as_bytes(), false, &mut Deaf).unwrap();
    }
    server.copy(b"d/known", b"by/alias", false, &mut Deaf).unwrap();
    beside.server().rename(b"deep", b"old", false, &mut Deaf).unwrap();
    beside.server().rename(b"t/up", b"deep", false, &mut Deaf).unwrap();
    fs::create_dir(out.join("in")).unwrap();
    fs::write(out.join("in/secret"), "outside").unwrap();

    for (at, client) in clients.iter().enumerate().take(6).skip(1).filter(|(at, _)| *at != 4) {
        assert!(client.stat("secret").is_err() && client.list("").is_err(), "{at}");
        assert!(!put(client, "put"), "{at}");
        assert!(client.server().make_directory(b"made", true, &mut Deaf).is_err(), "{at}");
        assert!(client.server().remove(b"secret", RemoveOptions::FILE, &mut Deaf).is_err(), "{at}");
    }
    let mut left: Vec<_> =
        fs::read_dir(&out).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["alias", "beside", "in", "root", "secret"]);
    assert_eq!(fs::read_dir(out.join("in")).unwrap().count(), 1);
}

/// What stands under the name of a root is looked up again: another directory, or none.
#[test]
fn a_root_that_is_made_again_is_the_new_one() {
    let (host, clients) = host(|root| {
        fs::create_dir(root.join("in")).unwrap();
        vec![root.join("in")]
    });
    let (all, own) = (clients[0].server(), &clients[1]);
    assert!(put(own, "one") && host.root("in/one").exists());
    all.remove(b"in", RemoveOptions::TREE, &mut Deaf).unwrap();
    assert!(own.list("").is_err());
    all.make_directory(b"in", false, &mut Deaf).unwrap();
    assert!(put(own, "two") && host.root("in/two").exists());
    assert_eq!(own.names(""), ["two"]);
}
