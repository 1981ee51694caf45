//! What a receiver reports of the files of a transfer: their names when they come, and their names,
//! lengths and digests when they are stored.

use crate::checksums::algorithm::Digests;
use crate::disk::manifest::Manifest;
use crate::error::Warning;
use crate::name_log::NameLog;
use crate::options::OnFile;

/// Where files are reported.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The list of stored files.
    manifest: Option<Manifest>,
    /// Is called with each stored file.
    on_file: Option<OnFile>,
    /// Gets the names of all files that come.
    name_log: Option<NameLog>,
}

impl Reports {
    pub(super) fn set_name_log(&mut self, name_log: Option<NameLog>) {
        self.name_log = name_log;
    }

    pub(super) fn set_listing(&mut self, manifest: Option<Manifest>, on_file: Option<OnFile>) {
        (self.manifest, self.on_file) = (manifest, on_file);
    }

    /// A file begins.
    pub(super) fn begun(&self, name: &[u8]) {
        self.name_log.iter().for_each(|log| log.add(name));
    }

    /// A file is stored.
    pub(super) fn stored(&self, name: &[u8], bytes: u64, digests: &Digests) {
        self.on_file.iter().for_each(|on_file| on_file.notify(name, bytes, digests.clone()));
    }

    /// Whether there is a manifest.
    pub(super) fn lists(&self) -> bool {
        self.manifest.is_some()
    }

    /// Adds a stored file to the manifest.
    pub(super) fn list(&mut self, name: &[u8], bytes: u64, digests: &Digests) {
        self.manifest.iter_mut().for_each(|manifest| manifest.add(name, bytes, digests));
    }

    /// The manifest's remark for the user.
    pub(super) fn note(&self) -> Option<String> {
        self.manifest.as_ref().and_then(Manifest::note)
    }

    /// Ends the manifest. Returns why it could not be written, if it could not.
    pub(super) fn finish(&mut self) -> Option<Warning> {
        self.manifest.as_mut().and_then(Manifest::finish)
    }
}
