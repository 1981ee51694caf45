//! What a file has beyond permission bits and time: its owner, extended attributes, access lists.
//! Read only if that is asked for, and applied only if it is: whatever else a sender tells is not
//! looked at (`docs/protocol.md §8.2`).
//!
//! Never applied, whoever asks: attributes outside the user's namespace but for the two access
//! lists, among them capabilities; and set-id bits, which no mode here ever has.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netblt_proto::content::{More, Owner};
use nix::unistd::{Group, User};
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;

use crate::error::shown;
use crate::options::Extras;

/// The namespace that is a user's own.
const USER: &[u8] = b"user.";
/// The access list of a file, and the one that what comes into a directory gets.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Longest name of an account, and of an attribute, that can be told.
const MAX_TOLD: usize = 255;
/// Accounts that are remembered, each way; then it is begun anew.
const MAX_ACCOUNTS: usize = 4096;
/// Bytes of an attribute's value, and of all names of a file's attributes (xattr(7)).
const MAX_VALUE: usize = 1 << 16;
/// No number of anybody: to whoever changes owners it says that nothing changes.
const NOBODY: u32 = u32::MAX;

/// Names and values.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What an attribute of this name is, if it is one that is told and applied at all.
fn is_wanted(wanted: Extras, name: &[u8]) -> bool {
    (wanted.xattrs && name.starts_with(USER) && name.len() > USER.len())
        || (wanted.acls && ACLS.contains(&name))
}

/// Of what a sender tells, what is asked for.
pub(crate) fn asked_for(wanted: Extras, more: &More) -> Option<Box<More>> {
    if more.is_empty() || wanted == Extras::default() {
        return None;
    }
    let owner = more.owner.clone().filter(|_| wanted.owner);
    let xattrs = more.xattrs.iter().filter(|(name, _)| is_wanted(wanted, name)).cloned().collect();
    let more = More { owner, xattrs };
    (!more.is_empty()).then(|| Box::new(more))
}

/// The names of accounts, as this system knows them.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

impl Accounts {
    /// Whose a file of these numbers is.
    pub(crate) fn owner(&mut self, uid: u32, gid: u32) -> Owner {
        if self.users.len().max(self.groups.len()) > MAX_ACCOUNTS {
            *self = Self::default();
        }
        let told = |name: Option<String>| name.unwrap_or_default().into_bytes();
        let user = || told(User::from_uid(uid.into()).ok().flatten().map(|user| user.name));
        let group = || told(Group::from_gid(gid.into()).ok().flatten().map(|group| group.name));
        let mut user = self.users.entry(uid).or_insert_with(user).clone();
        let mut group = self.groups.entry(gid).or_insert_with(group).clone();
        for name in [&mut user, &mut group] {
            if name.len() > MAX_TOLD {
                name.clear();
            }
        }
        Owner { uid, gid, user, group }
    }
}

/// The attributes that are wanted of an open file, as many as take at most `room` bytes in a table;
/// and why there are others that cannot be told.
pub(crate) fn read(
    wanted: Extras,
    file: BorrowedFd<'_>,
    room: usize,
) -> (Attributes, Option<String>) {
    let (mut more, mut why) = (More::default(), None);
    if !(wanted.xattrs || wanted.acls) {
        return (more.xattrs, why);
    }
    let names = match names(file) {
        Ok(names) => names,
        Err(error) => return (more.xattrs, Some(error.to_string())),
    };
    for name in names.into_iter().filter(|name| is_wanted(wanted, name)) {
        let value = match value(file, &name) {
            Ok(value) => value,
            // It went meanwhile.
            Err(Errno::NODATA) => continue,
            Err(error) => {
                why = Some(io::Error::from(error).to_string());
                continue;
            }
        };
        more.xattrs.push((name, value));
        let told = more.xattrs.last().is_some_and(|(name, _)| name.len() <= MAX_TOLD);
        if !told || more.encoded_len() > room {
            more.xattrs.pop();
            why = Some("they are longer than can be told".to_owned());
        }
    }
    (more.xattrs, why)
}

/// What could not be set: of each kind how often, of which file first, and why.
#[derive(Debug, Default)]
pub(crate) struct Unset {
    owners: Option<(u64, String, String)>,
    xattrs: Option<(u64, String, String)>,
    acls: Option<(u64, String, String)>,
}

impl Unset {
    fn add(kind: &mut Option<(u64, String, String)>, name: &[u8], error: Errno) {
        match kind {
            Some((count, ..)) => *count += 1,
            None => *kind = Some((1, shown(name), io::Error::from(error).to_string())),
        }
    }

    /// In words, a line a kind.
    pub(crate) fn lines(&self) -> Vec<String> {
        let kinds = [
            ("the owner", &self.owners),
            ("extended attributes", &self.xattrs),
            ("the access list", &self.acls),
        ];
        let line = |what: &str, (count, first, why): &(u64, String, String)| {
            let others = match count {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            format!("{what} of {first}{others}: {why}")
        };
        kinds.iter().filter_map(|(what, kind)| Some(line(what, kind.as_ref()?))).collect()
    }
}

/// Gives files what was told of them, and remembers what could not be given.
#[derive(Debug, Default)]
pub(crate) struct Wardrobe {
    users: HashMap<Vec<u8>, Option<u32>>,
    groups: HashMap<Vec<u8>, Option<u32>>,
    unset: Unset,
}

impl Wardrobe {
    /// What could not be set so far, in words; once.
    pub(crate) fn take_unset(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unset).lines()
    }

    /// What has to come before permissions: a file that may not be written gets no attributes, and
    /// a new owner takes bits away.
    pub(crate) fn before_mode(&mut self, file: BorrowedFd<'_>, more: &More, name: &[u8]) {
        for (attribute, value) in more.xattrs.iter().filter(|(a, _)| a.starts_with(USER)) {
            if let Err(error) = set(file, attribute, value) {
                Unset::add(&mut self.unset.xattrs, name, error);
            }
        }
        let Some(owner) = &more.owner else { return };
        let chown = |uid, gid| rustix::fs::fchown(file, uid, gid);
        self.give(owner, name, chown);
    }

    /// What has to come after permissions, which change it.
    pub(crate) fn after_mode(&mut self, file: BorrowedFd<'_>, more: &More, name: &[u8]) {
        for (attribute, value) in more.xattrs.iter().filter(|(a, _)| ACLS.contains(&&a[..])) {
            if let Err(error) = set(file, attribute, value) {
                Unset::add(&mut self.unset.acls, name, error);
            }
        }
    }

    /// A symbolic link has an owner, and nothing else.
    pub(crate) fn dress_link(
        &mut self,
        directory: impl AsFd,
        leaf: &str,
        more: &More,
        name: &[u8],
    ) {
        let Some(owner) = &more.owner else { return };
        let chown =
            |uid, gid| rustix::fs::chownat(&directory, leaf, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        self.give(owner, name, chown);
    }

    fn give(
        &mut self,
        owner: &Owner,
        name: &[u8],
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) {
        if self.users.len().max(self.groups.len()) > MAX_ACCOUNTS {
            (self.users, self.groups) = (HashMap::new(), HashMap::new());
        }
        let user = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
        let group =
            |name: &str| Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
        let uid = known(&mut self.users, &owner.user, user).unwrap_or(owner.uid);
        let gid = known(&mut self.groups, &owner.group, group).unwrap_or(owner.gid);
        let given = match [uid, gid].contains(&NOBODY) {
            true => Err(Errno::INVAL),
            false => {
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
                chown(Some(user), Some(group)).or_else(|error| {
                    // Who may not give files away may still be of the group.
                    let group = chown(None, Some(group));
                    let own = rustix::process::geteuid() == user;
                    group.and(if own { Ok(()) } else { Err(error) })
                })
            }
        };
        if let Err(error) = given {
            Unset::add(&mut self.unset.owners, name, error);
        }
    }
}

/// The number of an account here, asked for once.
fn known(
    cache: &mut HashMap<Vec<u8>, Option<u32>>,
    name: &[u8],
    look: impl Fn(&str) -> Option<u32>,
) -> Option<u32> {
    if name.is_empty() {
        return None;
    }
    if let Some(known) = cache.get(name) {
        return *known;
    }
    let text = std::str::from_utf8(name).ok().filter(|text| !text.contains('\0'));
    let found = text.and_then(look);
    cache.insert(name.to_vec(), found);
    found
}

/// The names of all attributes of a file; none where the file system knows none.
#[cfg(target_os = "linux")]
fn names(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; MAX_VALUE];
    let len = match rustix::fs::flistxattr(file, &mut list[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list.get(..len).unwrap_or_default().split(|byte| *byte == 0);
    Ok(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

#[cfg(target_os = "linux")]
fn value(file: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MAX_VALUE];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

#[cfg(target_os = "linux")]
fn set(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::fsetxattr(file, name, value, rustix::fs::XattrFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn names(_: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    Ok(Vec::new())
}

#[cfg(not(target_os = "linux"))]
fn value(_: BorrowedFd<'_>, _: &[u8]) -> Result<Vec<u8>, Errno> {
    Err(Errno::NOTSUP)
}

#[cfg(not(target_os = "linux"))]
fn set(_: BorrowedFd<'_>, _: &[u8], _: &[u8]) -> Result<(), Errno> {
    Err(Errno::NOTSUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asked_for_and_what_nobody_may_have_is_passed_over() {
        let xattr = |name: &[u8]| (name.to_vec(), b"value".to_vec());
        let hostile = More {
            owner: Some(Owner::default()),
            xattrs: [
                &b"user.mine"[..],
                b"user.",
                b"security.capability",
                b"security.selinux",
                b"trusted.overlay.opaque",
                b"system.posix_acl_access",
                b"system.nfs4_acl",
                b"userx",
            ]
            .map(xattr)
            .to_vec(),
        };
        assert_eq!(asked_for(Extras::default(), &hostile), None);
        let all = Extras { owner: true, xattrs: true, acls: true };
        let names = |wanted| {
            let more = asked_for(wanted, &hostile).expect("something");
            let names = more.xattrs.iter().map(|(name, _)| shown(name)).collect::<Vec<_>>();
            (more.owner.is_some(), names.join(" "))
        };
        assert_eq!(names(all), (true, "user.mine system.posix_acl_access".to_owned()));
        let none = Extras::default();
        assert_eq!(names(Extras { xattrs: true, ..none }), (false, "user.mine".to_owned()));
        assert_eq!(
            names(Extras { acls: true, ..none }),
            (false, "system.posix_acl_access".to_owned())
        );
        assert_eq!(names(Extras { owner: true, ..none }), (true, String::new()));
    }

    #[test]
    fn what_cannot_be_set_is_told_once_a_kind() {
        let file = tempfile::tempfile().expect("a file");
        let mut wardrobe = Wardrobe::default();
        // Nobody can be given anything under this number.
        let owner = Owner { uid: NOBODY, gid: 0, ..Owner::default() };
        let more = More { owner: Some(owner), xattrs: Vec::new() };
        for name in [&b"a"[..], b"b", b"c"] {
            wardrobe.before_mode(file.as_fd(), &more, name);
        }
        let lines = wardrobe.take_unset();
        assert!(
            lines.len() == 1 && lines[0].starts_with("the owner of a and 2 more: "),
            "{lines:?}"
        );
        assert!(wardrobe.take_unset().is_empty());
    }
}
