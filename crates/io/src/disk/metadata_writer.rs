//! Applies the attributes beyond permission bits and time: owners, extended attributes, access
//! lists. `extras.rs` decides which are accepted.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use netblt_proto::content::{ExtraAttributes, Owner};
use nix::unistd::{Group, User};
use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;

use crate::checksums::algorithm::{Digests, HashAlgorithms};
use crate::error::system_message;

/// The namespace that is a user's own.
pub(crate) const USER: &[u8] = b"user.";
/// The access list of a file, and the default list that a directory gives to new files.
pub(crate) const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Accounts that are cached, each way. Then the cache is cleared.
pub(crate) const MAX_ACCOUNTS: usize = 4096;
/// The number of no account: to `chown` it means that nothing changes.
const UNCHANGED: u32 = u32::MAX;

/// The attributes that could not be set: of each kind how often, the first file, and why.
#[derive(Debug, Default)]
struct Unset {
    modes: Option<(u64, Vec<u8>, String)>,
    times: Option<(u64, Vec<u8>, String)>,
    owners: Option<(u64, Vec<u8>, String)>,
    xattrs: Option<(u64, Vec<u8>, String)>,
    acls: Option<(u64, Vec<u8>, String)>,
    digests: Option<(u64, Vec<u8>, String)>,
}

impl Unset {
    fn add(kind: &mut Option<(u64, Vec<u8>, String)>, name: &[u8], error: Errno) {
        match kind {
            Some((count, ..)) => *count += 1,
            None => *kind = Some((1, name.to_vec(), system_message(&error.into()))),
        }
    }

    /// In words, a line a kind, names as `shown`.
    fn lines(&self, shown: impl Fn(&[u8]) -> String) -> Vec<String> {
        let kinds = [
            ("the permissions", &self.modes),
            ("the time of modification", &self.times),
            ("the owner", &self.owners),
            ("extended attributes", &self.xattrs),
            ("the access list", &self.acls),
            ("the digests in attributes", &self.digests),
        ];
        let line = |what: &str, (count, first, why): &(u64, Vec<u8>, String)| {
            let others = match count {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            format!("{what} of {}{others}: {why}", shown(first))
        };
        kinds.iter().filter_map(|(what, kind)| Some(line(what, kind.as_ref()?))).collect()
    }
}

/// Applies attributes to files, and counts those that could not be applied.
#[derive(Debug, Default)]
pub(crate) struct MetadataWriter {
    users: HashMap<Vec<u8>, Option<u32>>,
    groups: HashMap<Vec<u8>, Option<u32>>,
    unset: Unset,
}

impl MetadataWriter {
    /// The attributes that could not be set so far, in words, names as `shown`; once.
    pub(crate) fn take_unset(&mut self, shown: impl Fn(&[u8]) -> String) -> Vec<String> {
        std::mem::take(&mut self.unset).lines(shown)
    }

    /// Notes that permissions could not be set as they were sent.
    pub(crate) fn lacks_mode(&mut self, name: &[u8], why: Errno) {
        Unset::add(&mut self.unset.modes, name, why);
    }

    /// A time could not be set.
    pub(crate) fn lacks_time(&mut self, name: &[u8], why: Errno) {
        Unset::add(&mut self.unset.times, name, why);
    }

    /// The digests of a file could not be stored.
    pub(crate) fn lacks_digests(&mut self, name: &[u8], why: Errno) {
        Unset::add(&mut self.unset.digests, name, why);
    }

    /// Stores digests as `shatag` and `cshatag` do it, which check SHA-256: in hexadecimal digits,
    /// beside the time of modification for which they hold.
    pub(crate) fn set_digests(
        &mut self,
        file: BorrowedFd<'_>,
        digests: &Digests,
        algorithms: HashAlgorithms,
        name: &[u8],
    ) {
        let stored = rustix::fs::fstat(file).and_then(|stat| {
            let time = format!("{:010}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
            let store = || {
                for algorithm in algorithms.iter() {
                    let Some(hex) = digests.hex(algorithm) else { continue };
                    set(file, format!("user.shatag.{algorithm}").as_bytes(), hex.as_bytes())?;
                }
                set(file, b"user.shatag.ts", time.as_bytes())
            };
            match store() {
                // Its owner may not write to it.
                Err(Errno::ACCESS | Errno::PERM) => {
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    rustix::fs::fchmod(file, mode | Mode::WUSR)?;
                    let stored = store();
                    rustix::fs::fchmod(file, mode)?;
                    stored
                }
                stored => stored,
            }
        });
        stored.unwrap_or_else(|error| self.lacks_digests(name, error));
    }

    /// The attributes to set before permissions: a file that may not be written gets no attributes,
    /// and a new owner clears bits.
    pub(crate) fn before_mode(
        &mut self,
        file: BorrowedFd<'_>,
        more: &ExtraAttributes,
        name: &[u8],
    ) {
        for (attribute, value) in more.xattrs.iter().filter(|(a, _)| a.starts_with(USER)) {
            if let Err(error) = set(file, attribute, value) {
                Unset::add(&mut self.unset.xattrs, name, error);
            }
        }
        let Some(owner) = &more.owner else { return };
        let chown = |uid, gid| rustix::fs::fchown(file, uid, gid);
        self.give(owner, name, chown);
    }

    /// The attributes to set after permissions, which change them.
    pub(crate) fn after_mode(&mut self, file: BorrowedFd<'_>, more: &ExtraAttributes, name: &[u8]) {
        for (attribute, value) in more.xattrs.iter().filter(|(a, _)| ACLS.contains(&&a[..])) {
            if let Err(error) = set(file, attribute, value) {
                Unset::add(&mut self.unset.acls, name, error);
            }
        }
    }

    /// A symbolic link has an owner, and nothing else.
    pub(crate) fn apply_to_link(
        &mut self,
        directory: impl AsFd,
        leaf: &str,
        more: &ExtraAttributes,
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
        let given = match [uid, gid].contains(&UNCHANGED) {
            true => Err(Errno::INVAL),
            false => {
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
                chown(Some(user), Some(group)).or_else(|error| {
                    // A user that may not give files away may still be of the group.
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

#[cfg(target_os = "linux")]
fn set(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::fsetxattr(file, name, value, rustix::fs::XattrFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn set(_: BorrowedFd<'_>, _: &[u8], _: &[u8]) -> Result<(), Errno> {
    Err(Errno::NOTSUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_cannot_be_set_are_warned_of_once_a_kind() {
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let file = tempfile::tempfile().expect("a file");
        let mut metadata = MetadataWriter::default();
        // No file can be given to this number.
        let owner = Owner { uid: UNCHANGED, gid: 0, ..Owner::default() };
        let more = ExtraAttributes { owner: Some(owner), xattrs: Vec::new() };
        for name in [&b"a"[..], b"b", b"c"] {
            metadata.before_mode(file.as_fd(), &more, name);
        }
        let lines = metadata.take_unset(shown);
        assert!(
            lines.len() == 1 && lines[0].starts_with("the owner of a and 2 more: "),
            "{lines:?}"
        );
        assert!(metadata.take_unset(shown).is_empty());
    }

    #[test]
    fn digests_that_cannot_be_stored_are_counted() {
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let Ok(file) = std::fs::File::open("/proc/self/comm") else {
            return crate::skipped::skip("there is no file that takes no attributes");
        };
        let mut metadata = MetadataWriter::default();
        let digests = Digests::of_blake3(&[1; 32]);
        for name in [b"a", b"b"] {
            metadata.set_digests(file.as_fd(), &digests, digests.algorithms(), name);
        }
        let lines = metadata.take_unset(shown);
        let said = "the digests in attributes of a and 1 more: ";
        assert!(lines.len() == 1 && lines[0].starts_with(said), "{lines:?}");
    }
}
