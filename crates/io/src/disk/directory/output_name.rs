//! One file that gets a name of the receiver's own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use netblt_proto::content::{Extent, Kind};

use super::DirectoryWriter;
use crate::error::Error;

/// A name that was asked for, and the sender's.
#[derive(Debug)]
pub(super) struct OutputName {
    to: Vec<u8>,
    theirs: Vec<u8>,
}

impl DirectoryWriter {
    /// Takes one file, under this name.
    pub(crate) fn renaming(mut self, name: Option<&OsStr>) -> Self {
        let to = name.map(|name| name.as_bytes().to_vec());
        self.renamed = to.map(|to| OutputName { to, theirs: Vec::new() });
        self
    }

    /// The one file gets the name that was asked for.
    pub(super) fn rename(&mut self, extents: &mut [Extent]) -> Result<(), Error> {
        let Some(renamed) = &mut self.renamed else { return Ok(()) };
        for extent in extents {
            if extent.file != 0 || extent.kind == Kind::Directory {
                return Err(Error::OneName);
            }
            if let Some(attributes) = &mut extent.attributes {
                renamed.theirs = std::mem::replace(&mut attributes.name, renamed.to.clone());
            }
        }
        Ok(())
    }

    /// The name by which the sender made the transfer's digest.
    pub(super) fn their_name<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        theirs(self.renamed.as_ref(), name)
    }
}

impl OutputName {
    /// The sender's name, once it has come.
    pub(super) fn theirs(&self) -> &[u8] {
        &self.theirs
    }
}

/// The sender's name of the file with this name here. Parts are kept by that name, so that a
/// transfer resumes them whatever the file is to be called.
pub(super) fn theirs<'a>(renamed: Option<&'a OutputName>, name: &'a [u8]) -> &'a [u8] {
    renamed.map_or(name, |renamed| &renamed.theirs)
}
