//! The memory of a server for state that its clients cause beside buffers: lists of files, names of
//! uploads, HAVEs (`docs/guide/servers.md`, *Limits*).
//!
//! All clients together have a fixed number of bytes, and each half of it at most. Code that takes
//! memory asks first and returns what it no longer needs. Nothing here allocates for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of all clients, whose ids are `C`.
#[derive(Debug)]
pub(crate) struct MemoryBudget<C> {
    all: Arc<Pot>,
    each: u64,
    clients: BTreeMap<C, Arc<Pot>>,
}

/// A number of bytes of which parts are taken.
#[derive(Debug)]
struct Pot {
    most: u64,
    taken: AtomicU64,
}

impl Pot {
    fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicU64::new(0) })
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<C: Ord> MemoryBudget<C> {
    /// A budget of so many bytes for all clients together.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { all: Pot::new(bytes), each: bytes / 2, clients: BTreeMap::new() }
    }

    /// The share of this client.
    pub(crate) fn share(&mut self, client: C) -> MemoryShare {
        // Clients of which only the name is left.
        self.clients.retain(|_, pot| Arc::strong_count(pot) > 1);
        let own = self.clients.entry(client).or_insert_with(|| Pot::new(self.each));
        MemoryShare(Some((Arc::clone(own), Arc::clone(&self.all))))
    }

    /// How many bytes are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.all.taken.load(Ordering::Relaxed)
    }
}

/// The share of one client; without a budget, unlimited.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryShare(Option<(Arc<Pot>, Arc<Pot>)>);

impl MemoryShare {
    /// Memory of this client's, none at first.
    pub(crate) fn lease(&self) -> MemoryLease {
        MemoryLease { of: self.clone(), bytes: 0 }
    }
}

/// Memory that was taken, until this goes.
#[derive(Debug, Default)]
pub(crate) struct MemoryLease {
    of: MemoryShare,
    bytes: u64,
}

impl MemoryLease {
    /// Takes so many bytes more; false, and nothing is taken, if there are fewer.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        if let Some((own, all)) = &self.of.0 {
            if !own.take(bytes) {
                return false;
            }
            if !all.take(bytes) {
                own.give(bytes);
                return false;
            }
        }
        self.bytes += bytes;
        true
    }

    /// Gives some of them back.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some((own, all)) = &self.of.0 {
            own.give(bytes);
            all.give(bytes);
        }
    }

    /// More of the same client's memory, none at first.
    pub(crate) fn another(&self) -> Self {
        self.of.lease()
    }
}

impl Clone for MemoryLease {
    /// A copy takes as much again. It exists already, so it counts even beyond the bounds.
    fn clone(&self) -> Self {
        if let Some((own, all)) = &self.of.0 {
            [own, all]
                .iter()
                .for_each(|pot| _ = pot.taken.fetch_add(self.bytes, Ordering::Relaxed));
        }
        Self { of: self.of.clone(), bytes: self.bytes }
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_and_each_take_no_more_than_there_is() {
        let mut budget = MemoryBudget::new(100);
        let (one, two, three) = (budget.share(1), budget.share(2), budget.share(3));
        let (mut a, mut b, mut c) = (one.lease(), one.lease(), two.lease());
        assert!(a.take(30) && b.take(20) && !b.take(1), "half of it is one client's at most");
        assert!(c.take(50) && budget.taken() == 100);
        let mut d = three.lease();
        assert!(!d.take(1), "nothing is left");
        a.give_back(10);
        assert!(d.take(10) && !d.take(1));
        let more = d.clone();
        assert_eq!(budget.taken(), 110, "what is copied counts");
        drop((a, b, c, d, more));
        assert_eq!(budget.taken(), 0);
        let mut own = budget.share(1).lease();
        assert!(own.take(50) && own.another().take(0));
    }

    #[test]
    fn without_a_budget_everything_may_be_taken() {
        let mut lease = MemoryShare::default().lease();
        assert!(lease.take(u64::MAX / 2));
        lease.give_back(7);
        assert!(lease.clone().take(1));
    }

    #[test]
    fn a_client_without_memory_is_forgotten() {
        let mut budget = MemoryBudget::new(100);
        for client in 0..1000 {
            let mut lease = budget.share(client).lease();
            assert!(lease.take(50));
        }
        assert!(budget.clients.len() <= 2);
    }
}
