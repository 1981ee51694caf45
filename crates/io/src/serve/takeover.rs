//! Takeover: a new upload to a path whose earlier upload still runs (`docs/protocol §8.8`). Most
//! likely it is the same client, restarted, whose first connection has not ended yet.

use std::collections::{HashMap, HashSet};

use netblt_proto::time::Instant;

use super::connection::Connection;
use super::requests::facts::UploadKey;
use crate::net::listener::ConnectionKey;
use crate::permissions::Permissions;

/// All connections.
type ConnectionMap = HashMap<ConnectionKey, Connection>;

/// The connections whose uploads wait until it is known whether the client of an earlier one is
/// alive.
#[derive(Debug, Default)]
pub(super) struct DeferredUploads(HashSet<ConnectionKey>);

impl DeferredUploads {
    pub(super) fn add(&mut self, key: ConnectionKey) {
        self.0.insert(key);
    }

    /// These connections.
    pub(super) fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        self.0.iter().copied()
    }

    /// This one has gone.
    pub(super) fn forget(&mut self, key: ConnectionKey) {
        self.0.remove(&key);
    }

    /// Whether the upload of this one need not wait any more.
    pub(super) fn take(&mut self, key: ConnectionKey, connections: &ConnectionMap) -> bool {
        let ready = |connection: &Connection| {
            let Some((request, since)) = connection.state.deferred() else { return false };
            let permissions = &connection.permissions;
            !peer_liveness_unknown(connections, permissions, &request.upload_key(), since)
        };
        self.0.contains(&key) && connections.get(&key).is_some_and(ready) && self.0.remove(&key)
    }
}

/// Whether it is unknown if the client of a running upload is alive: no datagram of it has arrived
/// since then, but it has not been silent for long enough to count as dead.
pub(super) fn peer_liveness_unknown(
    connections: &ConnectionMap,
    permissions: &Permissions,
    upload_key: &UploadKey,
    since: Instant,
) -> bool {
    let mut here =
        connections.values().filter(|connection| connection.puts(permissions, upload_key));
    here.any(|connection| connection.last_received() <= since && !connection.is_silent())
}

/// Removes the uploads there whose clients have fallen silent: a new upload takes their place.
pub(super) fn evict_stale(
    connections: &mut ConnectionMap,
    permissions: &Permissions,
    upload_key: &UploadKey,
) -> Vec<Connection> {
    let is_old = |connection: &Connection| {
        connection.puts(permissions, upload_key) && connection.is_silent()
    };
    let old = connections.iter().filter(|(_, connection)| is_old(connection)).map(|(key, _)| *key);
    let old: Vec<ConnectionKey> = old.collect();
    old.into_iter().filter_map(|key| connections.remove(&key)).collect()
}
