//! A range of a file, in the file itself: others write to the same one, each at its own place.
//!
//! The destination is the directory of the ranges (`ranges`), in which the file lies under its own
//! name. The temporary of a range is another name of it, and that it is whole is told by a third
//! one, so nothing of what is kept for the next transfer, and of the order in which things reach
//! the disk, is different from a file of its own.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Store;
use crate::disk::beneath;
use crate::disk::holes::Span;
use crate::disk::keep::record::Stamp;
use crate::disk::ranges::WHOLE;

impl Store {
    /// Where a part is in the file that is written to.
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
        if beneath::status(staging, slot.as_bytes())?.as_ref().is_some_and(other) {
            rustix::fs::unlinkat(staging, &slot, AtFlags::empty())?;
        }
        match rustix::fs::linkat(&root, WHOLE, staging, &slot, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(staging, &slot, flags, Mode::empty())?.into())
    }

    /// What a file is known by in the journal; of a range the times and the length of the whole
    /// say nothing, since others write to it, but it must be that one: a range is read again.
    pub(crate) fn stamp_of(&self, stamp: Stamp) -> Option<Stamp> {
        let Some(range) = self.range else { return Some(stamp) };
        let inode = self.shared().ok()?.st_ino;
        #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
        let is_it = inode as u64 == stamp.inode && stamp.length == range.total;
        is_it.then_some(Stamp { inode: stamp.inode, length: range.length, ..Stamp::default() })
    }

    fn shared(&self) -> io::Result<Stat> {
        let stat = beneath::status(&self.root, WHOLE.as_bytes())?;
        stat.filter(beneath::is_file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
