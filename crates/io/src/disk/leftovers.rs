//! The leftovers of broken transfers in a directory: to list and to remove.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::AtFlags;

use crate::disk::fs_backend::{bytes_of, journal, slots};
use crate::disk::publish_all;
use crate::disk::ranges;
use crate::disk::resume::ResumeState;
use crate::disk::safe_open;
use crate::disk::seal::Key;
use crate::disk::staging::{self, KEPT, Open, Staging};
use crate::disk::store::{Need, Store};
use crate::error::{Error, file_error};
use crate::settings::Overwrite;

/// The leftovers in one directory.
#[derive(Debug)]
#[non_exhaustive]
pub struct Leftovers {
    /// Their directory.
    pub place: PathBuf,
    /// Parts of files, and whole ones that have no name yet.
    pub parts: Vec<Leftover>,
    /// Bytes on the disk in all.
    pub bytes: u64,
    /// The leftovers of transfers of all or nothing, and what will be done with them.
    pub notes: Vec<String>,
    /// Under which name.
    kept: String,
    store: Store,
}

/// Parts of one file, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// Under which name it was to be, which may be any bytes.
    pub name: Vec<u8>,
    /// Bytes of it that are there.
    pub bytes: u64,
    /// How long nothing was added.
    pub age: Duration,
}

fn copy_label(key: &Key, name: &OsStr, sources: &[OsString]) -> [u8; 32] {
    let parts = [name].into_iter().chain(sources.iter().map(OsString::as_os_str));
    key.label_of_copy(&parts.map(OsStr::as_bytes).collect::<Vec<_>>())
}

impl Leftovers {
    /// Completes or removes what killed transfers of all or nothing had left in a directory, as the
    /// next transfer into it does; what became of it, in words.
    pub fn settle(directory: &Path) -> Result<Vec<String>, Error> {
        let mut store = Store::open(directory, Overwrite::Never, Need::Nothing)?;
        Ok(publish_all::settle(&mut store))
    }

    /// The label ([`crate::Options::label`]) of a copy of these sources to a new directory of this
    /// name. Another user cannot guess it: it is made with this user's key, which is created if
    /// there is none. `None` if the key cannot be kept.
    pub fn label_of_copy(name: &OsStr, sources: &[OsString]) -> Option<[u8; 32]> {
        Key::made().ok()?;
        Some(copy_label(&Key::there()?, name, sources))
    }

    /// Whether such a copy, broken off, has left parts in `directory`. Changes nothing.
    pub fn has_parts_of_copy(directory: &Path, name: &OsStr, sources: &[OsString]) -> bool {
        let Some(key) = Key::there() else { return false };
        let kept = staging::kept_name(Some(&copy_label(&key, name, sources)));
        let own = rustix::process::geteuid().as_raw();
        let kept = directory.join(kept).symlink_metadata();
        kept.is_ok_and(|kept| kept.is_dir() && kept.uid() == own)
    }

    /// Looks into a directory; `None` if nothing is left there. Changes nothing. Parts in use, or
    /// of another user, are an error.
    pub fn find(directory: &Path) -> Result<Option<Self>, Error> {
        let mut store = Store::open(directory, Overwrite::Never, Need::Nothing)?;
        let notes = publish_all::look(&mut store);
        Self::look(store, KEPT.to_owned(), notes)
    }

    /// The same of transfers that had labels ([`crate::Options::label`]).
    pub fn find_labelled(directory: &Path) -> Result<Vec<Self>, Error> {
        let store = Store::open(directory, Overwrite::Never, Need::Nothing)?;
        let mut found = Vec::new();
        for label in staging::labels(&store.lodge) {
            let store = Store::open(directory, Overwrite::Never, Need::Nothing)?;
            let name = staging::kept_name(Some(&label));
            found.extend(Self::look(store, name, Vec::new())?);
        }
        for name in ranges::names(&store.root) {
            found.push(Self::look_at_ranges(directory, name)?);
        }
        Ok(found)
    }

    /// Ranges of a file that were to be joined. Its name is not known here.
    fn look_at_ranges(directory: &Path, name: Vec<u8>) -> Result<Self, Error> {
        let store = Store::open(directory, Overwrite::Never, Need::Nothing)?;
        let kept = String::from_utf8_lossy(&name).into_owned();
        let place = directory.join(&kept);
        let cannot = |e| file_error(&place, "cannot be looked into", e);
        let (bytes, modified) = ranges::room(&store.root, &name).map_err(cannot)?;
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        let parts = vec![Leftover { name: b"a file in ranges".to_vec(), bytes, age }];
        Ok(Self { place, parts, bytes, notes: Vec::new(), kept, store })
    }

    fn look(mut store: Store, name: String, notes: Vec<String>) -> Result<Option<Self>, Error> {
        let place = store.lodge_path.join(&name);
        let cannot = |e| file_error(&place, "cannot be looked into", e);
        let kept = Staging::keep(&store.lodge, &name, Open::Looked).map_err(cannot)?;
        let (mut parts, mut bytes) = (Vec::new(), 0);
        match kept {
            Some(kept) => {
                let journal = journal(&kept.handle).map_err(cannot)?;
                let slots: BTreeSet<u64> = slots(&kept.handle).into_iter().collect();
                let on_disk = |slot: &u64| bytes_of(&kept.handle, slot.to_string().as_bytes());
                bytes = slots.iter().map(on_disk).sum();
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.unwrap_or_default().as_secs();
                parts.extend(ResumeState::list(&journal, &slots).into_iter().map(
                    |(name, bytes, at)| {
                        let age = Duration::from_secs(now.saturating_sub(at));
                        Leftover { name, bytes, age }
                    },
                ));
                store.adopt(kept);
            }
            None if store.lodge_has(&name) => {
                let text = "a transfer is using it, or it is another user's";
                return Err(cannot(io::Error::other(text)));
            }
            None if notes.is_empty() => return Ok(None),
            None => {}
        }
        Ok(Some(Self { place, parts, bytes, notes, kept: name, store }))
    }

    /// Removes it.
    pub fn remove(mut self) -> Result<(), Error> {
        if staging::is_ranges(self.kept.as_bytes()) {
            let gone = ranges::remove(&self.store.root, self.kept.as_bytes());
            return gone.map_err(|e| file_error(&self.place, "cannot be removed", e));
        }
        if self.store.publishes() {
            let text = "it holds files that were being given their names; look there, and remove \
                        that directory if nothing of it is wanted";
            let source = io::Error::other(text);
            return Err(file_error(&self.place, "is not removed", source));
        }
        self.store.clear_kept();
        match safe_open::status(&self.store.lodge, self.kept.as_bytes()) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => {
                // The error itself says why it cannot be removed.
                let lodge = &self.store.lodge;
                let gone = rustix::fs::unlinkat(lodge, &self.kept, AtFlags::REMOVEDIR);
                gone.map_err(|e| file_error(&self.place, "cannot be removed", e.into()))
            }
            Err(error) => Err(file_error(&self.place, "cannot be removed", error)),
        }
    }
}
