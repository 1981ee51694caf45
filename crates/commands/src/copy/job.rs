//! The inputs that all routes of a copy have in common.

use std::path::Path;

use netblt::{Cancel, Options};

use crate::copy::existing::ExistingPolicy;
use crate::copy::options::CopyArgs;
use crate::copy::ssh::command::SshOptions;
use crate::server_client::client::Credentials;

/// The inputs of a copy whose options were checked for its route.
#[derive(Clone, Copy)]
pub(crate) struct CopyJob<'a> {
    pub(crate) args: &'a CopyArgs,
    /// The rule for files that exist at the destination.
    pub(crate) existing: ExistingPolicy,
    pub(crate) ssh: &'a SshOptions,
    pub(crate) credentials: &'a Credentials,
    /// Whether ssh prints no warnings.
    pub(crate) quiet: bool,
    /// The library's options that all routes have in common.
    pub(crate) options: &'a Options,
    pub(crate) cancel: &'a Cancel,
}

impl<'a> CopyJob<'a> {
    /// The user's key for servers of files.
    pub(crate) fn identity(&self) -> Option<&'a Path> {
        self.ssh.identity.first().map(Path::new)
    }
}
