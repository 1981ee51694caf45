//! The directories of entries, and the attributes that are sent of them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netblt_proto::content::{Attributes, ExtraAttributes, Kind};
use netblt_proto::limits::{MAX_TARGET, TRAILER_BYTES};
use rustix::fs::{Mode, OFlags};

use super::SourceReader;
use super::open::{FileChange, OpenFile, changed, stream_attributes};
use crate::disk::attributes::FileTimes;
use crate::disk::file_list::{EntryPlace, ListEntry};
use crate::disk::layout::entry_bytes;
use crate::disk::stat::{FileStat, reports_lengths};
use crate::disk::{extras, safe_open};
use crate::error::{Error, Warning, file_error, shown_path};
use crate::settings::Extras;

/// A directory in which files are read, beneath an argument.
#[derive(Debug)]
pub(super) struct Parent {
    argument: PathBuf,
    name: Vec<u8>,
    handle: OwnedFd,
    reports_lengths: bool,
}

impl SourceReader {
    /// Opens the next entry, if its attributes decide how much room it takes. Returns the bytes
    /// beyond its name. An error of the opening is reported when the entry is read.
    pub(super) fn describe(&mut self, entry: &ListEntry) -> usize {
        if self.extras == Extras::default() || entry.kind == Kind::Stream {
            return 0;
        }
        let described = match self.progress.described.take() {
            Some(described) => described,
            None => self.open(entry),
        };
        let bytes = described.as_ref().map_or(0, |attributes| attributes.more.encoded_len());
        self.progress.described = Some(described);
        bytes
    }

    /// Opens an entry, and returns its attributes for the receiver.
    pub(super) fn open(&mut self, entry: &ListEntry) -> Result<Attributes, Error> {
        if let Some(described) = self.progress.described.take() {
            return described;
        }
        let list = self.list.clone();
        let place = list.inner.place(entry);
        let (metadata, more) = match entry.kind {
            Kind::Stream => return Ok(stream_attributes(entry)),
            Kind::SymbolicLink => return self.open_link(entry, &place),
            Kind::Directory => {
                let cannot = |e| file_error(&place.path(), "cannot be read", e);
                let directory = File::from(self.open_directory(&place).map_err(cannot)?);
                let metadata = directory.metadata().map_err(cannot)?;
                let owner = (metadata.uid(), metadata.gid());
                let more = self.more(entry, &place, owner, Some(directory.as_fd()));
                (metadata, more)
            }
            Kind::File if let Some(times) = self.times_of_empty(entry, &place) => {
                return Ok(Attributes {
                    mode: list.inner.mode(times.mode, entry.kind),
                    mtime_seconds: times.seconds,
                    mtime_nanos: times.nanos,
                    name: entry.name.to_vec(),
                    more: ExtraAttributes::default(),
                });
            }
            Kind::File | Kind::Withdrawn | Kind::Kept | Kind::HardLink => {
                let cannot = |e| file_error(&place.path(), "cannot be read", e);
                let file = self.open_file(&place).map_err(cannot)?;
                let metadata = file.metadata().map_err(cannot)?;
                let length = list.inner.range.map_or(entry.length, |range| range.total);
                if !metadata.is_file() {
                    return Err(changed(&place.path(), FileChange::Kind));
                }
                // Appended data are not sent, where changes are allowed.
                let now = metadata.len();
                if now < length || (now > length && !list.inner.allows_changes) {
                    return Err(changed(&place.path(), FileChange::Length { was: length, now }));
                }
                let owner = (metadata.uid(), metadata.gid());
                let more = self.more(entry, &place, owner, Some(file.as_fd()));
                self.progress.open = Some(OpenFile { file, metadata: metadata.clone() });
                (metadata, more)
            }
        };
        Ok(Attributes {
            mode: list.inner.mode(metadata.mode() & 0o7777, entry.kind),
            mtime_seconds: metadata.mtime(),
            mtime_nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            name: entry.name.to_vec(),
            more,
        })
    }

    /// The extra attributes of an entry, if requested. The user is warned of those that cannot be
    /// sent.
    fn more(
        &mut self,
        entry: &ListEntry,
        place: &EntryPlace<'_>,
        (uid, gid): (u32, u32),
        file: Option<BorrowedFd<'_>>,
    ) -> ExtraAttributes {
        let mut more = ExtraAttributes::default();
        if self.extras.owner {
            more.owner = Some(self.accounts.owner(uid, gid));
        }
        let Some(file) = file else { return more };
        // Beside a full data area, so that packing never stops.
        let taken = entry_bytes(Some(entry.name.len()), true) + TRAILER_BYTES + more.encoded_len();
        let room = (self.layout.table_bytes() as usize).saturating_sub(taken);
        let (xattrs, omitted) = extras::read(self.extras, file, room.min(usize::from(u16::MAX)));
        more.xattrs = xattrs;
        if let Some(why) = omitted {
            let path = shown_path(&place.path());
            self.list.note(Warning::AttributesOmitted { path, why });
        }
        more
    }

    fn open_link(
        &mut self,
        entry: &ListEntry,
        place: &EntryPlace<'_>,
    ) -> Result<Attributes, Error> {
        let read = match place {
            EntryPlace::Argument(_) => Err(io::ErrorKind::InvalidInput.into()),
            EntryPlace::Beneath { argument, name } => {
                self.enter(argument).and_then(|root| safe_open::link(root.as_fd(), name))
            }
        };
        let cannot = |e| file_error(&place.path(), "cannot be read", e);
        let (stat, target) = read.map_err(cannot)?;
        let (was, now) = (entry.length, target.len() as u64);
        if was != now {
            return Err(changed(&place.path(), FileChange::Length { was, now }));
        }
        if target.len() > self.layout.data_bytes().min(MAX_TARGET) {
            return Err(cannot(io::Error::other("its target is too long to be sent")));
        }
        self.progress.target = Some(target);
        let more = self.more(entry, place, (stat.st_uid, stat.st_gid), None);
        Ok(Attributes {
            mode: 0o777,
            #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
            mtime_seconds: stat.st_mtime as i64,
            mtime_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            name: entry.name.to_vec(),
            more,
        })
    }

    fn open_file(&mut self, place: &EntryPlace<'_>) -> io::Result<File> {
        match place {
            EntryPlace::Argument(path) => File::open(path),
            EntryPlace::Beneath { .. } if self.list.inner.follow => open_followed(&place.path()),
            EntryPlace::Beneath { argument, name } => {
                let leaf = safe_open::split(name).1;
                safe_open::file(self.parent(argument, name)?.handle.as_fd(), leaf)
            }
        }
    }

    /// The times and mode of an empty file that needs no opening.
    fn times_of_empty(&mut self, entry: &ListEntry, place: &EntryPlace<'_>) -> Option<FileTimes> {
        if entry.length > 0 || self.plain || self.extras != Extras::default() {
            return None;
        }
        let EntryPlace::Beneath { argument, name } = place else { return None };
        if entry.empty.is_some() || !self.list.inner.lenient || self.list.inner.follow {
            return entry.empty;
        }
        // An error here happens again when the file is opened, and is reported then.
        let parent = self.parent(argument, name).ok().filter(|parent| parent.reports_lengths)?;
        let stat = safe_open::status(&parent.handle, safe_open::split(name).1).ok()??;
        FileStat::try_from(&stat).ok()?.of_empty()
    }

    /// The directory in which an entry is; kept, since neighbours come together.
    fn parent(&mut self, argument: &Path, name: &[u8]) -> io::Result<&Parent> {
        let name = safe_open::split(name).0;
        let kept = self.parent.take().filter(|kept| kept.argument == argument && kept.name == name);
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let handle = safe_open::directory(self.enter(argument)?.as_fd(), name)?;
                let (argument, name) = (argument.to_path_buf(), name.to_vec());
                Parent { argument, name, reports_lengths: reports_lengths(&handle), handle }
            }
        };
        Ok(self.parent.insert(kept))
    }

    fn open_directory(&mut self, place: &EntryPlace<'_>) -> io::Result<OwnedFd> {
        match place {
            EntryPlace::Argument(path) => safe_open::open_directory(path),
            EntryPlace::Beneath { .. } if self.list.inner.follow => {
                safe_open::open_directory(&place.path())
            }
            EntryPlace::Beneath { argument, name } => {
                safe_open::directory(self.enter(argument)?.as_fd(), name)
            }
        }
    }

    /// The handle of an argument that is a directory; kept, since its files come one by one.
    fn enter(&mut self, argument: &Path) -> io::Result<&OwnedFd> {
        let kept = self.tree.take().filter(|(path, _)| path == argument);
        let kept = match kept {
            Some(kept) => kept,
            None => (argument.to_path_buf(), safe_open::open_directory(argument)?),
        };
        Ok(&self.tree.insert(kept).1)
    }
}

/// Opens a file by way of links, and does not wait for the writer of a pipe that took its place.
fn open_followed(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
