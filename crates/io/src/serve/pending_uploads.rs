//! Announced uploads that have not started.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use netblt_proto::config::{PublicKey, StaticKey};
use netblt_proto::time::Instant;

use super::authorized_clients::AuthorizedClients;
use super::requests::facts::UploadKey;
use super::requests::response_item::ResponseItem;
use super::response::PreparedUpload;
use crate::error::RequestErrorKind;
use crate::net::entropy::entropy;
use crate::request_error::RequestError;

/// After this long without its announced upload, a client counts as dead when another one announces
/// an upload to the same path.
const SILENT: Duration = Duration::from_secs(3);

/// Files that may be put, when they come.
pub(super) struct PendingUpload {
    /// The key of the client that announced them.
    pub(super) peer_key: Option<PublicKey>,
    /// The root, and what is uploaded beneath it.
    pub(super) root: PathBuf,
    pub(super) upload_key: UploadKey,
    pub(super) since: Instant,
    pub(super) prepared: Box<PreparedUpload>,
    /// The key that they come with, if it is not that of the client that announced them.
    pub(super) lent: Option<LentKey>,
}

impl PendingUpload {
    /// Whether their client is taken for dead when another upload to the same path is announced.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.since(self.since) >= SILENT
    }

    /// The key of the connection that brings them.
    fn comes_by(&self) -> Option<PublicKey> {
        self.lent.as_ref().map_or(self.peer_key, |lent| Some(lent.key))
    }
}

/// A lent key, which is accepted until this is dropped.
pub(super) struct LentKey {
    members: AuthorizedClients,
    key: PublicKey,
}

impl LentKey {
    pub(super) fn new(members: &AuthorizedClients, key: PublicKey) -> Self {
        members.lend(key);
        Self { members: members.clone(), key }
    }
}

/// A key for another server that brings an announced upload, and the response item that hands it
/// over.
pub(super) fn lend(
    members: Option<&AuthorizedClients>,
    wanted: bool,
) -> Result<(Option<LentKey>, Option<ResponseItem>), RequestError> {
    if !wanted {
        return Ok((None, None));
    }
    let why = "a server with one ticket for all has no key to lend: it needs a list of keys";
    let members = members.ok_or_else(|| RequestError::new(RequestErrorKind::Forbidden, why))?;
    let random =
        entropy().map_err(|error| RequestError::new(RequestErrorKind::Busy, error.to_string()))?;
    let key = StaticKey::from_bytes(random);
    Ok((Some(LentKey::new(members, key.public())), Some(ResponseItem::Key(key))))
}

impl Drop for LentKey {
    fn drop(&mut self) {
        self.members.take_back(&self.key);
    }
}

/// All announced uploads, by their numbers.
#[derive(Default)]
pub(super) struct PendingUploads(HashMap<u64, PendingUpload>);

impl PendingUploads {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How much one client has announced.
    pub(super) fn count(&self, peer_key: Option<PublicKey>) -> usize {
        self.0.values().filter(|waiting| waiting.peer_key == peer_key).count()
    }

    pub(super) fn add(&mut self, number: u64, waiting: PendingUpload) {
        self.0.insert(number, waiting);
    }

    /// The owner of a lent key.
    pub(super) fn lender(&self, key: PublicKey) -> Option<PublicKey> {
        let is =
            |waiting: &&PendingUpload| waiting.lent.as_ref().is_some_and(|lent| lent.key == key);
        self.0.values().find(is)?.peer_key
    }

    /// Takes the client's announced upload with this number.
    pub(super) fn take(
        &mut self,
        number: u64,
        peer_key: Option<PublicKey>,
    ) -> Option<PendingUpload> {
        let own = self.0.get(&number).is_some_and(|waiting| waiting.comes_by() == peer_key);
        if own { self.0.remove(&number) } else { None }
    }

    /// Cancels a client's announced upload.
    pub(super) fn take_back(&mut self, number: u64, peer_key: Option<PublicKey>) {
        if self.0.get(&number).is_some_and(|waiting| waiting.peer_key == peer_key) {
            self.0.remove(&number);
        }
    }

    /// Removes the uploads for which this holds.
    pub(super) fn take_if(
        &mut self,
        is_late: impl Fn(&PendingUpload) -> bool,
    ) -> Vec<PendingUpload> {
        let numbers = self.0.iter().filter(|(_, waiting)| is_late(waiting));
        let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.0.remove(&number)).collect()
    }
}
