//! The target of a command on a server: a directory there, or the name of the single source.

use std::os::unix::ffi::OsStrExt as _;

use netblt::serve::EntryType;
use netblt::serve::client::Client;
use netblt::{Error, RequestErrorKind};

use crate::exit::{Code, Failure};
use crate::server_client::address::ServerPath;
use crate::server_client::client::WarningsOnly;
use crate::server_client::command::CommandError;

/// The target on a server.
pub(crate) struct ServerTarget<'a> {
    target: &'a ServerPath,
    pub(crate) several: bool,
    /// Whether the target is a directory, once the server was asked.
    directory: Option<bool>,
}

impl<'a> ServerTarget<'a> {
    pub(crate) fn new(target: &'a ServerPath, several: bool) -> Self {
        Self { target, several, directory: None }
    }

    /// Whether it is a directory.
    pub(crate) fn is_one(&mut self, server: &Client<'_>) -> Result<bool, CommandError> {
        let directory = match self.directory {
            Some(known) => known,
            None => match server.stat(&self.target.path, &mut WarningsOnly) {
                Ok(entry) => entry.sort == EntryType::Directory,
                Err(Error::Denied { what: RequestErrorKind::NotFound, .. }) => false,
                // A client that may not look gives the whole name.
                Err(Error::Denied { what: RequestErrorKind::Forbidden, .. }) if !self.several => {
                    false
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.directory = Some(directory);
        Ok(directory)
    }

    /// Into a directory that exists, or as the single thing of a name.
    pub(crate) fn of(
        &mut self,
        server: &Client<'_>,
        served: &ServerPath,
    ) -> Result<Vec<u8>, CommandError> {
        if self.target.host != served.host {
            return Err(Failure::usage("the other one is on another server").into());
        }
        if self.is_one(server)? {
            return Ok(joined(&self.target.path, served.name().as_bytes()));
        }
        if self.several {
            return Err(Failure::new(
                Code::File,
                "the target of several sources is not a directory",
            )
            .into());
        }
        Ok(self.target.path.clone())
    }
}

/// A name in a directory, which may be the root, or end with slashes.
fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let end = directory.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let (directory, slash) = (&directory[..end], if end > 0 { &b"/"[..] } else { b"" });
    [directory, slash, name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_has_two_slashes() {
        for (directory, path) in
            [("", "x"), ("/", "x"), ("d", "d/x"), ("d//", "d/x"), ("/d", "/d/x")]
        {
            assert_eq!(joined(directory.as_bytes(), b"x"), path.as_bytes(), "{directory}");
        }
    }
}
