//! Whom a server lets in by static keys, and what each may: changed at any time, from any thread.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use netblt_proto::config::{Authorized, PublicKey, StaticKey};

use crate::grant::Grant;

/// The key of a server, and those of its clients with what each may. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Members(Arc<Mutex<Roll>>);

#[derive(Debug)]
struct Roll {
    authorized: Arc<Authorized>,
    grants: HashMap<PublicKey, Arc<Grant>>,
    /// Where these are, each once.
    roots: HashSet<PathBuf>,
    /// Those that let in nobody but who brings what was announced.
    lent: Vec<PublicKey>,
    /// It was changed since the server looked.
    changed: bool,
}

impl Roll {
    /// Lets in whom it has lent a key now.
    fn lend(&mut self) {
        (self.authorized, self.changed) = (Arc::new(self.authorized.lending(&self.lent)), true);
    }
}

impl Members {
    /// A server with the key `own`, and its clients. Keys that are none are left out and handed
    /// back; of a key that stands twice the last counts.
    pub fn new(own: StaticKey, clients: Vec<(PublicKey, Grant)>) -> (Self, Vec<PublicKey>) {
        let (nobody, _) = Authorized::new(own, &[]);
        let roll = Roll {
            authorized: Arc::new(nobody),
            grants: HashMap::new(),
            roots: HashSet::new(),
            lent: Vec::new(),
            changed: false,
        };
        let members = Self(Arc::new(Mutex::new(roll)));
        let none = members.change(clients);
        (members, none)
    }

    /// From the next opening on these are its clients. What has begun goes on. Keys that are none
    /// are left out and handed back.
    pub fn change(&self, clients: Vec<(PublicKey, Grant)>) -> Vec<PublicKey> {
        let mut roll = self.lock();
        roll.roots = clients.iter().map(|(_, grant)| grant.root.clone()).collect();
        roll.grants = clients.into_iter().map(|(key, grant)| (key, Arc::new(grant))).collect();
        let keys: Vec<PublicKey> = roll.grants.keys().copied().collect();
        let (authorized, none) = roll.authorized.changed(&keys);
        (roll.authorized, roll.changed) = (Arc::new(authorized), true);
        none
    }

    /// Whoever has this key may bring what was announced for it.
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

    pub(super) fn authorized(&self) -> Arc<Authorized> {
        Arc::clone(&self.lock().authorized)
    }

    /// Whom to let in, if that has changed since it was asked last.
    pub(super) fn take_change(&self) -> Option<Arc<Authorized>> {
        let mut roll = self.lock();
        std::mem::take(&mut roll.changed).then(|| Arc::clone(&roll.authorized))
    }

    /// What the owner of a key may at that time.
    pub(super) fn find(&self, key: &PublicKey, now: SystemTime) -> Option<Arc<Grant>> {
        self.lock().grants.get(key).filter(|grant| grant.holds(now)).map(Arc::clone)
    }

    /// Whether somebody's root is called so.
    pub(super) fn is_root(&self, path: &Path) -> bool {
        self.lock().roots.contains(path)
    }

    fn lock(&self) -> MutexGuard<'_, Roll> {
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
        let grant = |name: &str| Grant { name: name.to_owned(), ..Grant::new("/") };
        let (one, two) = (key(1).public(), key(2).public());
        let clients =
            vec![(one, grant("one")), (two, grant("two")), (PublicKey([0; 32]), grant(""))];
        let (members, none) = Members::new(key(9), clients);
        assert_eq!(none, [PublicKey([0; 32])]);
        assert_eq!((members.server_key(), members.authorized().count()), (key(9).public(), 2));
        let now = SystemTime::now();
        let name = |key| members.find(key, now).map(|grant| grant.name.clone());
        let three = key(3).public();
        assert_eq!((name(&one), name(&three)), (Some("one".to_owned()), None));
        assert!(members.take_change().is_some() && members.take_change().is_none());

        let ended = Grant { expires: Some(now), ..grant("one") };
        let going = Grant { expires: Some(now + Duration::from_secs(1)), ..grant("two") };
        members.change(vec![(one, ended), (two, going)]);
        assert!(name(&one).is_none() && name(&two).is_some());
        members.change(vec![(one, grant("one"))]);
        assert!(members.take_change().is_some_and(|now| !now.knows(&two) && now.knows(&one)));
        assert!(name(&two).is_none() && name(&one).is_some());
    }
}
