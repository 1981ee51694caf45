//! One file that gets a name of the receiver's own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use netblt_proto::content::{Extent, Kind};

use crate::error::Error;

/// The name that was asked for, if one was.
#[derive(Debug, Default)]
pub(super) struct OutputName(Option<Renamed>);

/// A name that was asked for, and the sender's, once it has come.
#[derive(Debug)]
struct Renamed {
    to: Vec<u8>,
    theirs: Vec<u8>,
}

impl OutputName {
    /// Takes one file, under this name; without a name any files, under their own.
    pub(super) fn new(name: Option<&OsStr>) -> Self {
        let to = name.map(|name| name.as_bytes().to_vec());
        Self(to.map(|to| Renamed { to, theirs: Vec::new() }))
    }

    /// The one file gets the name that was asked for.
    pub(super) fn rename(&mut self, extents: &mut [Extent]) -> Result<(), Error> {
        let Some(renamed) = &mut self.0 else { return Ok(()) };
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

    /// The sender's name of the file with this name here: the transfer's digest has it, and parts
    /// are kept by it, so that a transfer resumes them whatever the file is to be called.
    pub(super) fn theirs<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        self.0.as_ref().map_or(name, |renamed| &renamed.theirs)
    }

    /// Whether this is the sender's name of a file that has another one here.
    pub(super) fn is_theirs(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|renamed| renamed.theirs == name)
    }
}
