//! The static keys that a server accepts, and the permissions of each. They can be changed at any
//! time, from any thread.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use netblt_proto::config::{AuthorizedKeys, PublicKey, StaticKey};

use crate::permissions::Permissions;

/// The key of a server, and those of its clients with what each may. Cloning shares it.
#[derive(Clone, Debug)]
pub struct AuthorizedClients(Arc<Mutex<ClientTable>>);

#[derive(Debug)]
struct ClientTable {
    authorized: Arc<AuthorizedKeys>,
    grants: HashMap<PublicKey, Arc<Permissions>>,
    /// The roots of these, each once.
    roots: HashSet<PathBuf>,
    /// Keys that are accepted only for an announced upload.
    lent: Vec<PublicKey>,
    /// It was changed since the server's last look.
    changed: bool,
}

impl ClientTable {
    /// Updates the accepted keys, with those that are lent now.
    fn lend(&mut self) {
        (self.authorized, self.changed) = (Arc::new(self.authorized.lending(&self.lent)), true);
    }
}

impl AuthorizedClients {
    /// A server with the key `own`, and its clients. Invalid keys are left out and returned. For a
    /// key that occurs twice the last entry counts.
    pub fn new(own: StaticKey, clients: Vec<(PublicKey, Permissions)>) -> (Self, Vec<PublicKey>) {
        let (none, _) = AuthorizedKeys::new(own, &[]);
        let roll = ClientTable {
            authorized: Arc::new(none),
            grants: HashMap::new(),
            roots: HashSet::new(),
            lent: Vec::new(),
            changed: false,
        };
        let members = Self(Arc::new(Mutex::new(roll)));
        let none = members.change(clients);
        (members, none)
    }

    /// Replaces the clients, from the next opening on. Running requests continue. Invalid keys are
    /// left out and returned.
    pub fn change(&self, clients: Vec<(PublicKey, Permissions)>) -> Vec<PublicKey> {
        let mut roll = self.lock();
        roll.roots = clients.iter().map(|(_, permissions)| permissions.root.clone()).collect();
        roll.grants =
            clients.into_iter().map(|(key, permissions)| (key, Arc::new(permissions))).collect();
        let keys: Vec<PublicKey> = roll.grants.keys().copied().collect();
        let (authorized, none) = roll.authorized.changed(&keys);
        (roll.authorized, roll.changed) = (Arc::new(authorized), true);
        none
    }

    /// A client with this key may bring the upload that was announced for it.
    pub(super) fn lend(&self, key: PublicKey) {
        let mut roll = self.lock();
        roll.lent.push(key);
        roll.lend();
    }

    pub(super) fn take_back(&self, key: &PublicKey) {
        let mut roll = self.lock();
        roll.lent.retain(|lent| lent != key);
        roll.lend();
    }

    /// The public key of the server.
    pub fn server_key(&self) -> PublicKey {
        self.lock().authorized.own().public()
    }

    pub(super) fn authorized(&self) -> Arc<AuthorizedKeys> {
        Arc::clone(&self.lock().authorized)
    }

    /// The accepted keys, if they have changed since the last call.
    pub(super) fn take_change(&self) -> Option<Arc<AuthorizedKeys>> {
        let mut roll = self.lock();
        std::mem::take(&mut roll.changed).then(|| Arc::clone(&roll.authorized))
    }

    /// The permissions of a key at that time.
    pub(super) fn find(&self, key: &PublicKey, now: SystemTime) -> Option<Arc<Permissions>> {
        self.lock().grants.get(key).filter(|permissions| permissions.holds(now)).map(Arc::clone)
    }

    /// Whether this is the path of a client's root.
    pub(super) fn is_root(&self, path: &Path) -> bool {
        self.lock().roots.contains(path)
    }

    fn lock(&self) -> MutexGuard<'_, ClientTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(number: u8) -> StaticKey {
        StaticKey::from_bytes([number; 32])
    }

    #[test]
    fn members_come_and_go() {
        let permissions =
            |name: &str| Permissions { name: name.to_owned(), ..Permissions::new("/") };
        let (one, two) = (key(1).public(), key(2).public());
        let clients = vec![
            (one, permissions("one")),
            (two, permissions("two")),
            (PublicKey([0; 32]), permissions("")),
        ];
        let (members, none) = AuthorizedClients::new(key(9), clients);
        assert_eq!(none, [PublicKey([0; 32])]);
        assert_eq!((members.server_key(), members.authorized().count()), (key(9).public(), 2));
        let now = SystemTime::now();
        let name = |key| members.find(key, now).map(|permissions| permissions.name.clone());
        let three = key(3).public();
        assert_eq!((name(&one), name(&three)), (Some("one".to_owned()), None));
        assert!(members.take_change().is_some() && members.take_change().is_none());

        let ended = Permissions { expires: Some(now), ..permissions("one") };
        let going =
            Permissions { expires: Some(now + Duration::from_secs(1)), ..permissions("two") };
        members.change(vec![(one, ended), (two, going)]);
        assert!(name(&one).is_none() && name(&two).is_some());
        members.change(vec![(one, permissions("one"))]);
        assert!(members.take_change().is_some_and(|now| !now.knows(&two) && now.knows(&one)));
        assert!(name(&two).is_none() && name(&one).is_some());
    }
}
