//! What a file has beyond permission bits and time: its owner, extended attributes, access lists.
//! Read only if that is asked for, and taken only if it is: whatever else a sender tells is not
//! looked at (`docs/protocol.md §8.2`). Given to files by `wardrobe.rs`.
//!
//! Never taken, whoever asks: attributes outside the user's namespace but for the two access
//! lists, among them capabilities; and set-id bits, which no mode here ever has.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

use netblt_proto::content::{More, Owner};
use nix::unistd::{Group, User};
use rustix::io::Errno;

use crate::disk::wardrobe::{ACLS, MAX_ACCOUNTS, USER};
use crate::options::Extras;

/// Longest name of an account, and of an attribute, that can be told.
const MAX_TOLD: usize = 255;
/// Bytes of an attribute's value, and of all names of a file's attributes (xattr(7)).
const MAX_VALUE: usize = 1 << 16;

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

#[cfg(not(target_os = "linux"))]
fn names(_: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    Ok(Vec::new())
}

#[cfg(not(target_os = "linux"))]
fn value(_: BorrowedFd<'_>, _: &[u8]) -> Result<Vec<u8>, Errno> {
    Err(Errno::NOTSUP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::shown;

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
}
