//! Owners, extended attributes and access lists: copied if asked for, named where they cannot be
//! set.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::testenv::far::Setting;
use crate::testenv::{Env, Running, able, noise, skip};
use rustix::fs::{XattrFlags, fsetxattr, getxattr};

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// An access list as the kernel has it: its owner, user 12345, its group, a mask, others.
fn acl(others: u16) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let undefined = u32::MAX;
    for (tag, permissions, id) in [
        (1u16, 6u16, undefined),
        (2, 4, 12_345),
        (4, 4, undefined),
        (16, 4, undefined),
        (32, others, undefined),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let file = File::open(path).expect("opened");
    fsetxattr(&file, name, value, XattrFlags::empty()).is_ok()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 70_000];
    let len = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// A tree of which every file has something of its own.
fn tree(root: &Path) -> bool {
    fs::create_dir_all(root.join("sub")).expect("made");
    fs::write(root.join("small"), "small").expect("written");
    fs::write(root.join("big"), noise(3_000_000)).expect("written");
    fs::write(root.join("read-only"), "no").expect("written");
    symlink("small", root.join("link")).expect("linked");
    let known = set(&root.join("small"), "user.origin", b"here")
        && set(&root.join("big"), "user.long", &noise(2_500))
        && set(&root.join("read-only"), "user.zero", b"")
        && set(&root.join("sub"), "user.directory", b"\0\xff")
        && set(&root.join("big"), ACL, &acl(0))
        && set(&root.join("sub"), DEFAULT_ACL, &acl(4));
    let only = fs::Permissions::from_mode(0o400);
    fs::set_permissions(root.join("read-only"), only).expect("set");
    if !known {
        skip("the file system has no extended attributes or access lists");
    }
    known
}

const ALL: [(&str, &str); 6] = [
    ("small", "user.origin"),
    ("big", "user.long"),
    ("read-only", "user.zero"),
    ("sub", "user.directory"),
    ("big", ACL),
    ("sub", DEFAULT_ACL),
];

#[test]
fn only_the_requested_attributes_are_sent() {
    if !able(&[], &[]) {
        return;
    }
    let setting = Setting::new();
    let (near, far) = (setting.env.path("near/t"), setting.env.path("far/t"));
    if !tree(&near) {
        return;
    }
    for (name, id) in [("small", 65_534), ("big", 12_345), ("sub", 54_321)] {
        chown(near.join(name), Some(id), Some(id + 1)).expect("given");
    }
    lchown(near.join("link"), Some(777), Some(778)).expect("given");
    let owner = |path: &Path| {
        let status = fs::symlink_metadata(path).expect("there");
        (status.uid(), status.gid())
    };
    // Of other namespaces nothing is ever copied.
    let _ = set(&near.join("small"), "trusted.secret", b"x");
    for atomic in [&[][..], &["--atomic"], &["--fallback", "always"]] {
        let cp = |args: &[&str]| {
            let _ = fs::remove_dir_all(&far);
            setting.cp(&[&["-r"], args, atomic, &["t", "host:"]].concat()).exits(0);
        };
        cp(&[]);
        for (name, attribute_name) in ALL {
            assert_eq!(attribute(&far.join(name), attribute_name), None, "{name}");
        }
        assert_eq!(owner(&far.join("small")), (0, 0));
        cp(&["--owner", "--xattrs", "--acls"]);
        for (name, attribute_name) in ALL {
            let (was, is) = (near.join(name), far.join(name));
            assert!(attribute(&is, attribute_name).is_some(), "{name} {attribute_name}");
            assert!(attribute(&was, attribute_name) == attribute(&is, attribute_name), "{name}");
        }
        for name in ["small", "big", "sub", "link"] {
            assert_eq!(owner(&far.join(name)), owner(&near.join(name)), "{name}");
        }
        assert_eq!(attribute(&far.join("small"), "trusted.secret"), None);
        let mode = |path: &Path| fs::metadata(path).expect("there").mode();
        assert_eq!(mode(&far.join("big")), mode(&near.join("big")));
        assert_eq!(mode(&far.join("read-only")) & 0o777, 0o400);
    }
    // The other way, each alone.
    setting.cp(&["-r", "--xattrs", "host:t", "x"]).exits(0);
    let back = setting.env.path("near/x");
    assert_eq!(attribute(&back.join("small"), "user.origin").as_deref(), Some(&b"here"[..]));
    assert_eq!(attribute(&back.join("big"), ACL), None);
    assert_eq!(owner(&back.join("small")), (0, 0));
}

#[test]
fn an_attribute_that_cannot_be_read_or_set_is_named_and_the_file_arrives() {
    if !able(&[], &[]) {
        return;
    }
    let env = Env::new();
    env.make_directory("tmp");
    let to = env.make_directory("to");
    for open in [".", "tmp", "to"] {
        fs::set_permissions(env.path(open), fs::Permissions::from_mode(0o777)).expect("set");
    }
    env.make_directory("t");
    for name in ["a", "b", "c"] {
        env.make_file(&format!("t/{name}"), 100);
    }
    let mut sender = env.start(&["send", "t", "--owner", "--bind", "127.0.0.1"]);
    let ticket = sender.line();
    let mut command = env.command(&["receive", &ticket, "to", "--owner"]);
    command.uid(65_534).gid(65_534);
    let receiver = Running::new(command).finish().exits(23);
    receiver.says("left out the owner of t").says("and 3 more: Operation not permitted");
    sender.finish().exits(0);
    assert_eq!(fs::read_dir(to.join("t")).expect("there").count(), 3);
    // Only this side is asked.
    let mut sender = env.start(&["send", "t/a", "--bind", "127.0.0.1"]);
    let ticket = sender.line();
    env.run(&["receive", &ticket, "to", "--owner", "--xattrs", "--acls"]).exits(0);
    sender.finish().exits(0);
}
