//! The directories beneath which clients are, as whoever keeps the server has named them.
//!
//! What lies beneath another client's directory that one may have changed: a key's root is never
//! reached by a link that a client put there.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::members::Members;
use crate::denial::Denied;
use crate::disk::beneath;
use crate::disk::renaming::id;
use crate::error::Denial;

/// What is served, and what keys have of it or beside it.
pub(super) struct Roots {
    served: (PathBuf, Arc<OwnedFd>),
    /// Each as it was when somebody asked last.
    own: HashMap<PathBuf, Arc<OwnedFd>>,
}

impl Roots {
    pub(super) fn new(path: PathBuf, root: OwnedFd) -> Self {
        Self { served: (path, Arc::new(root)), own: HashMap::new() }
    }

    /// The directory of that name: looked up each time, for a client with more rights may have
    /// removed it and made another.
    pub(super) fn of(
        &mut self,
        path: &Path,
        members: Option<&Members>,
    ) -> Result<Arc<OwnedFd>, Denied> {
        if path == self.served.0 {
            return Ok(Arc::clone(&self.served.1));
        }
        self.own(path, members).map_err(|_| {
            let why = "the server's root is not there, or a link leads to it";
            Denied::new(Denial::Failed, why)
        })
    }

    fn own(&mut self, path: &Path, members: Option<&Members>) -> io::Result<Arc<OwnedFd>> {
        let now = self.open(path, members)?;
        if let Some(known) = self.own.get(path)
            && id(&rustix::fs::fstat(known)?) == id(&rustix::fs::fstat(&now)?)
        {
            return Ok(Arc::clone(known));
        }
        let now = Arc::new(now);
        self.own.insert(path.to_owned(), Arc::clone(&now));
        Ok(now)
    }

    /// From the outermost directory on that clients may change, no link is followed; what is above
    /// it is the business of whoever keeps the server.
    fn open(&self, path: &Path, members: Option<&Members>) -> io::Result<OwnedFd> {
        let served = id(&rustix::fs::fstat(&self.served.1)?);
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for outer in above {
            // Under whatever name: what is served may have been named by way of links.
            let found = rustix::fs::stat(outer).is_ok_and(|stat| id(&stat) == served);
            if !found && !members.is_some_and(|members| members.is_root(outer)) {
                continue;
            }
            let rest = path.strip_prefix(outer).map_err(io::Error::other)?;
            let rest: PathBuf = rest.components().collect();
            let root = match found {
                true => self.served.1.try_clone()?,
                false => beneath::open_directory(outer)?,
            };
            return beneath::directory(root.as_fd(), rest.as_os_str().as_bytes());
        }
        beneath::open_directory(path)
    }
}
