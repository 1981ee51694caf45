//! The directories that clients are confined to, as the server's configuration names them.
//!
//! What lies beneath another client's directory that one may have changed: a key's root is never
//! reached by a link that a client put there.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::authorized_clients::AuthorizedClients;
use crate::disk::rename::id;
use crate::disk::safe_open;
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;

/// The root of the server, and those of keys.
pub(super) struct Roots {
    served: (PathBuf, Arc<OwnedFd>),
    /// The handle of each, as of its last use.
    own: HashMap<PathBuf, Arc<OwnedFd>>,
}

impl Roots {
    pub(super) fn new(path: PathBuf, root: OwnedFd) -> Self {
        Self { served: (path, Arc::new(root)), own: HashMap::new() }
    }

    /// The directory of that name. It is looked up each time, because a client with more
    /// permissions may have removed it and made another.
    pub(super) fn of(
        &mut self,
        path: &Path,
        members: Option<&AuthorizedClients>,
    ) -> Result<Arc<OwnedFd>, RequestError> {
        if path == self.served.0 {
            return Ok(Arc::clone(&self.served.1));
        }
        self.own(path, members).map_err(|_| {
            let why = "the server's root is not there, or a link leads to it";
            RequestError::new(RequestErrorKind::Failed, why)
        })
    }

    fn own(
        &mut self,
        path: &Path,
        members: Option<&AuthorizedClients>,
    ) -> io::Result<Arc<OwnedFd>> {
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

    /// No link is followed from the outermost directory on that clients may change. The path above
    /// it is up to the server's administrator.
    fn open(&self, path: &Path, members: Option<&AuthorizedClients>) -> io::Result<OwnedFd> {
        let served = id(&rustix::fs::fstat(&self.served.1)?);
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for outer in above {
            // Compared by inode: the root may have been named through links.
            let found = rustix::fs::stat(outer).is_ok_and(|stat| id(&stat) == served);
            if !found && !members.is_some_and(|members| members.is_root(outer)) {
                continue;
            }
            let rest = path.strip_prefix(outer).map_err(io::Error::other)?;
            let rest: PathBuf = rest.components().collect();
            let root = match found {
                true => self.served.1.try_clone()?,
                false => safe_open::open_directory(outer)?,
            };
            return safe_open::directory(root.as_fd(), rest.as_os_str().as_bytes());
        }
        safe_open::open_directory(path)
    }
}
