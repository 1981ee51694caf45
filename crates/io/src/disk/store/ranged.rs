//! A range of a file, in the file itself: others write to the same one, each to its own range.
//!
//! The destination is the directory of the ranges (`ranges`), in which the file lies under its own
//! name. The temporary of a range is another name of it, and a third name shows that it is whole.
//! So the partial directory and the order of writes are the same as for a whole file.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Store;
use crate::disk::ranges::WHOLE;
use crate::disk::resume::record::Stamp;
use crate::disk::safe_open;
use crate::disk::sparse::Span;

impl Store {
    /// The place of a part in the file that is written to.
    pub(super) fn in_file<'a>(&self, span: Span<'a>) -> Span<'a> {
        let before = self.range.map_or(0, |range| range.offset);
        Span { offset: span.offset.saturating_add(before), ..span }
    }

    /// The file, as the temporary of this number.
    pub(super) fn open_shared(&mut self, number: u64) -> io::Result<File> {
        let (slot, root) = (number.to_string(), self.root.try_clone()?);
        let shared = self.shared()?;
        let staging = &*self.staging_handle()?;
        // It may be that of a file that was there before this one.
        let other = |stat: &Stat| (stat.st_dev, stat.st_ino) != (shared.st_dev, shared.st_ino);
        if safe_open::status(staging, slot.as_bytes())?.as_ref().is_some_and(other) {
            rustix::fs::unlinkat(staging, &slot, AtFlags::empty())?;
        }
        match rustix::fs::linkat(&root, WHOLE, staging, &slot, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(staging, &slot, flags, Mode::empty())?.into())
    }

    /// The stamp of a file in the journal. The times and the length of a file with ranges mean
    /// nothing, since others write to it, but the inode must be the same: a range is read again.
    pub(crate) fn stamp_of(&self, stamp: Stamp) -> Option<Stamp> {
        let Some(range) = self.range else { return Some(stamp) };
        let inode = self.shared().ok()?.st_ino;
        #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
        let is_it = inode as u64 == stamp.inode && stamp.length == range.total;
        is_it.then_some(Stamp { inode: stamp.inode, length: range.length, ..Stamp::default() })
    }

    fn shared(&self) -> io::Result<Stat> {
        let stat = safe_open::status(&self.root, WHOLE.as_bytes())?;
        stat.filter(safe_open::is_file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
