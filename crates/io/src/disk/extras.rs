//! The attributes of a file beyond permission bits and time: its owner, extended attributes, access
//! lists. They are read and set only on request. All else that a sender sends is ignored
//! (`docs/protocol §8.2`). `metadata_writer.rs` applies them.
//!
//! Some are never set, whatever the options: attributes outside the user's namespace except the two
//! access lists, among them capabilities; and set-id bits, which no mode here ever has.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

use netblt_proto::content::{ExtraAttributes, Owner};
use nix::unistd::{Group, User};
use rustix::io::Errno;

use crate::disk::metadata_writer::{ACLS, MAX_ACCOUNTS, USER};
use crate::settings::Extras;

/// Longest name of an account, and of an attribute, that can be sent.
const MAX_NAME_BYTES: usize = 255;
/// Bytes of an attribute's value, and of all names of a file's attributes (xattr(7)).
const MAX_VALUE: usize = 1 << 16;

/// Names and values.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether an attribute of this name is sent and applied at all, with these options.
fn is_wanted(wanted: Extras, name: &[u8]) -> bool {
    (wanted.xattrs && name.starts_with(USER) && name.len() > USER.len())
        || (wanted.acls && ACLS.contains(&name))
}

/// The requested ones of a sender's attributes.
pub(crate) fn asked_for(wanted: Extras, more: &ExtraAttributes) -> Option<Box<ExtraAttributes>> {
    if more.is_empty() || wanted == Extras::default() {
        return None;
    }
    let owner = more.owner.clone().filter(|_| wanted.owner);
    let xattrs = more.xattrs.iter().filter(|(name, _)| is_wanted(wanted, name)).cloned().collect();
    let more = ExtraAttributes { owner, xattrs };
    (!more.is_empty()).then(|| Box::new(more))
}

/// The names of accounts, as this system knows them.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

impl Accounts {
    /// The owner and group of a file with these numbers.
    pub(crate) fn owner(&mut self, uid: u32, gid: u32) -> Owner {
        if self.users.len().max(self.groups.len()) > MAX_ACCOUNTS {
            *self = Self::default();
        }
        let bytes = |name: Option<String>| name.unwrap_or_default().into_bytes();
        let user = || bytes(User::from_uid(uid.into()).ok().flatten().map(|user| user.name));
        let group = || bytes(Group::from_gid(gid.into()).ok().flatten().map(|group| group.name));
        let mut user = self.users.entry(uid).or_insert_with(user).clone();
        let mut group = self.groups.entry(gid).or_insert_with(group).clone();
        for name in [&mut user, &mut group] {
            if name.len() > MAX_NAME_BYTES {
                name.clear();
            }
        }
        Owner { uid, gid, user, group }
    }
}

/// The requested attributes of an open file, as many as take at most `room` bytes in a table, and
/// why others are left out.
pub(crate) fn read(
    wanted: Extras,
    file: BorrowedFd<'_>,
    room: usize,
) -> (Attributes, Option<String>) {
    let (mut more, mut why) = (ExtraAttributes::default(), None);
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
        let fits = more.xattrs.last().is_some_and(|(name, _)| name.len() <= MAX_NAME_BYTES);
        if !fits || more.encoded_len() > room {
            more.xattrs.pop();
            why = Some("they are too long to be sent".to_owned());
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
    fn attributes_that_are_not_requested_or_never_allowed_are_ignored() {
        let xattr = |name: &[u8]| (name.to_vec(), b"value".to_vec());
        let hostile = ExtraAttributes {
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
