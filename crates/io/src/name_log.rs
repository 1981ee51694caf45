//! The names of the files that a server's request sends or receives, for the server's log.

use std::sync::{Arc, Mutex, PoisonError};

use crate::memory_budget::MemoryLease;

/// The most bytes of the names of one request, each counted with [`NAME_BYTES`] beside it: about a
/// thousand names, which one line of a log can hold.
const MOST: u64 = 64 << 10;
/// Memory of a name beside its bytes.
const NAME_BYTES: u64 = 32;

/// Names, in the order in which they were sent or came. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameLog(Arc<Mutex<Logged>>);

#[derive(Debug, Default)]
struct Logged {
    names: Vec<Vec<u8>>,
    bytes: u64,
    omitted: u64,
    memory: MemoryLease,
}

impl NameLog {
    /// None yet; their bytes are taken from this memory.
    pub(crate) fn new(memory: MemoryLease) -> Self {
        Self(Arc::new(Mutex::new(Logged { memory, ..Logged::default() })))
    }

    /// Adds a name, or counts it if there is no room for more. Once one has had no room, no later
    /// one is added.
    pub(crate) fn add(&self, name: &[u8]) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = name.len() as u64 + NAME_BYTES;
        let fits = logged.omitted == 0 && logged.bytes + bytes <= MOST;
        if fits && logged.memory.take(bytes) {
            logged.bytes += bytes;
            logged.names.push(name.to_vec());
        } else {
            logged.omitted += 1;
        }
    }

    /// Forgets all of them: they are sent once more.
    pub(crate) fn restart(&self) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = logged.bytes;
        logged.memory.give_back(bytes);
        (logged.bytes, logged.omitted) = (0, 0);
        logged.names.clear();
    }

    /// All of them, and how many more there were.
    pub(crate) fn all(&self) -> (Vec<Vec<u8>>, u64) {
        let logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (logged.names.clone(), logged.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_budget::MemoryBudget;

    #[test]
    fn names_are_bounded_by_a_line_and_by_memory_and_the_rest_is_counted() {
        let mut budget = MemoryBudget::new(4 * MOST);
        let log = NameLog::new(budget.share(1).lease());
        (0..5000).for_each(|n| log.add(format!("{n:08}").as_bytes()));
        let (names, omitted) = log.all();
        let fit = MOST / (8 + NAME_BYTES);
        assert_eq!((names.len() as u64, omitted), (fit, 5000 - fit));
        assert_eq!(names.last().map(|name| name.len()), Some(8));
        assert!(budget.taken() <= MOST);
        log.restart();
        assert_eq!((log.all(), budget.taken()), ((Vec::new(), 0), 0));
        let small = NameLog::new(MemoryBudget::new(100).share(1).lease());
        (0..3).for_each(|_| small.add(b"name"));
        assert_eq!(small.all(), (vec![b"name".to_vec()], 2), "a client has half of 100");
        drop(log);
        assert_eq!(budget.taken(), 0);
    }
}
