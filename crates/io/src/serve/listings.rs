//! The names in directories, page by page: a directory is read once for many pages, as long as
//! there is memory for its names (`docs/protocol §8.8`, *list*).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Dir;

use super::rate_limiter::ClientId;
use crate::cancel::Cancel;
use crate::disk::rename::id;
use crate::disk::staging;
use crate::error::RequestErrorKind;
use crate::memory_budget::{MemoryLease, MemoryShare};
use crate::request_error::RequestError;

/// Names of a directory that are remembered at most.
const MOST_NAMES: usize = 1 << 18;
/// Memory of a name beyond its bytes.
const NAME_BYTES: u64 = 40;
/// Directories that are remembered, and those of one client.
const MOST: usize = 64;
const MOST_OF_ONE: usize = 4;
/// For so long they are, if no client asks for the next page.
const AGE: Duration = Duration::from_secs(60);
/// Names between two checks whether they are still needed.
const LOOK: usize = 256;

/// Names of directories of which a page was sent, for the next pages. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings(Arc<Mutex<Vec<Listing>>>);

/// Names of a directory, sorted.
#[derive(Debug)]
struct Listing {
    client: ClientId,
    /// Its device, and its number there.
    directory: (u64, u64),
    /// They are those behind this one.
    after: Box<[u8]>,
    names: Arc<CachedNames>,
    used: Instant,
}

#[derive(Debug)]
struct CachedNames {
    list: Vec<Box<[u8]>>,
    /// There are others behind the last one.
    more: bool,
    _memory: MemoryLease,
}

/// Some of the names in a directory.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) names: Vec<Box<[u8]>>,
    /// There are more behind the last one.
    pub(super) more: bool,
}

impl CachedNames {
    /// At most so many names after this one; `None` if it is not known whether there are more.
    fn page(&self, after: &[u8], most: usize) -> Option<Page> {
        let from = self.list.partition_point(|name| **name <= *after);
        let left = self.list.len() - from;
        if left <= most && self.more {
            return None;
        }
        let names = self.list.iter().skip(from).take(most).cloned().collect();
        Some(Page { names, more: left > most })
    }
}

impl Listings {
    /// The next names in a directory after this one, at most so many. A first page is always read
    /// from the directory.
    pub(super) fn page(
        &self,
        client: ClientId,
        memory: &MemoryShare,
        directory: &OwnedFd,
        after: &[u8],
        most: usize,
        cancel: &Cancel,
    ) -> Result<Page, RequestError> {
        let place = id(&rustix::fs::fstat(directory).map_err(std::io::Error::from)?);
        let known = self.find(client, place, after).filter(|_| !after.is_empty());
        if let Some(page) = known.and_then(|names| names.page(after, most)) {
            return Ok(page);
        }
        let names = Arc::new(read(directory, after, most, memory.lease(), cancel)?);
        let page = names.page(after, most).unwrap_or_default();
        if page.more {
            let (after, used) = (after.into(), Instant::now());
            self.keep(Listing { client, directory: place, after, names, used });
        }
        Ok(page)
    }

    fn find(&self, client: ClientId, place: (u64, u64), after: &[u8]) -> Option<Arc<CachedNames>> {
        let mut all = self.all();
        let is_it =
            |of: &&mut Listing| of.client == client && of.directory == place && *of.after <= *after;
        let found = all.iter_mut().filter(is_it).max_by_key(|of| of.used)?;
        found.used = Instant::now();
        Some(Arc::clone(&found.names))
    }

    fn keep(&self, listing: Listing) {
        let mut all = self.all();
        let same = |of: &Listing| of.client == listing.client && of.directory == listing.directory;
        all.retain(|of| !same(of) && of.used.elapsed() < AGE);
        while all.len() >= MOST {
            remove_oldest(&mut all, |_| true);
        }
        while all.iter().filter(|of| of.client == listing.client).count() >= MOST_OF_ONE {
            remove_oldest(&mut all, |of| of.client == listing.client);
        }
        all.push(listing);
    }

    /// Drops the names for which no client has asked for a while.
    pub(super) fn forget_old(&self) {
        self.all().retain(|of| of.used.elapsed() < AGE);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Listing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_oldest(all: &mut Vec<Listing>, of: impl Fn(&Listing) -> bool) {
    let oldest = all.iter().enumerate().filter(|(_, one)| of(one)).min_by_key(|(_, one)| one.used);
    if let Some(at) = oldest.map(|(at, _)| at) {
        all.remove(at);
    }
}

/// The names in a directory after this one, as many as there is memory for, and at least these.
fn read(
    directory: &OwnedFd,
    after: &[u8],
    most: usize,
    mut memory: MemoryLease,
    cancel: &Cancel,
) -> Result<CachedNames, RequestError> {
    let mut list: Vec<Box<[u8]>> = Vec::new();
    let (mut kept, mut more) = (MOST_NAMES.max(most + 1), false);
    let mut cut = |list: &mut Vec<Box<[u8]>>, memory: &mut MemoryLease, kept: usize| {
        list.sort_unstable();
        if list.len() > kept {
            memory.give_back(list.drain(kept..).map(|name| cost(&name)).sum());
            more = true;
        }
    };
    for (number, found) in Dir::read_from(directory).map_err(std::io::Error::from)?.enumerate() {
        if number % LOOK == 0 && cancel.is_cancelled() {
            return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
        }
        let found = found.map_err(std::io::Error::from)?;
        let name = found.file_name().to_bytes();
        if matches!(name, b"." | b"..") || staging::is_ours(name) || name <= after {
            continue;
        }
        if !memory.take(cost(name)) {
            // A page and one beyond it has to do.
            kept = most + 1;
            cut(&mut list, &mut memory, kept);
            if !memory.take(cost(name)) {
                let why = "there is no memory for a list; try again later";
                return Err(RequestError::new(RequestErrorKind::Busy, why));
            }
        }
        list.push(name.into());
        if list.len() >= 2 * kept {
            cut(&mut list, &mut memory, kept);
        }
    }
    cut(&mut list, &mut memory, kept);
    Ok(CachedNames { list, more, _memory: memory })
}

fn cost(name: &[u8]) -> u64 {
    name.len() as u64 + NAME_BYTES
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::memory_budget::MemoryBudget;

    fn client(number: u8) -> ClientId {
        ClientId::Key([number; 32])
    }

    /// A directory of so many files.
    fn directory(count: usize) -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..count {
            fs::write(directory.path().join(format!("{number:04}")), b"").unwrap();
        }
        let handle = OwnedFd::from(fs::File::open(directory.path()).unwrap());
        (directory, handle)
    }

    /// All names, page by page.
    fn pages(listings: &Listings, memory: &MemoryShare, handle: &OwnedFd, most: usize) -> usize {
        let (mut after, mut count) = (Vec::new(), 0);
        loop {
            let cancel = Cancel::default();
            let page = listings.page(client(1), memory, handle, &after, most, &cancel);
            let Page { names, more } = page.unwrap();
            count += names.len();
            let Some(last) = names.last().filter(|_| more) else { return count };
            assert!(**last > *after);
            after = last.to_vec();
        }
    }

    #[test]
    fn a_directory_is_read_once_for_all_its_pages() {
        let (directory, handle) = directory(100);
        let (listings, memory) = (Listings::default(), MemoryShare::default());
        let page = |after: &[u8]| {
            let cancel = Cancel::default();
            listings.page(client(1), &memory, &handle, after, 10, &cancel).unwrap()
        };
        let first = page(b"");
        assert!(first.more && first.names.len() == 10 && *first.names[9] == *b"0009");
        // Removed files are still in the cached names.
        (50..100).for_each(|n| fs::remove_file(directory.path().join(format!("{n:04}"))).unwrap());
        let second = page(b"0089");
        assert!(!second.more && second.names.len() == 10);
        assert_eq!(pages(&listings, &memory, &handle, 7), 50, "a first page is read again");
        assert_eq!(pages(&listings, &memory, &handle, 100), 50);
    }

    #[test]
    fn without_memory_for_all_names_each_page_is_read() {
        let (_directory, handle) = directory(300);
        // For 45 names, of which a client has half.
        let mut budget = MemoryBudget::new(4000);
        let listings = Listings::default();
        assert_eq!(pages(&listings, &budget.share(client(1)), &handle, 10), 300);
        assert!(budget.taken() <= 2000);
        let none = MemoryBudget::new(60).share(client(1));
        let page = listings.page(client(1), &none, &handle, b"", 10, &Cancel::default());
        assert_eq!(page.unwrap_err().what, RequestErrorKind::Busy);
    }

    #[test]
    fn a_cancelled_request_ends() {
        let (_directory, handle) = directory(3);
        let cancel = Cancel::default();
        cancel.cancel();
        let memory = MemoryShare::default();
        let page = Listings::default().page(client(1), &memory, &handle, b"", 10, &cancel);
        assert_eq!(page.unwrap_err().why, "interrupted");
    }

    #[test]
    fn few_directories_are_remembered() {
        let (listings, memory) = (Listings::default(), MemoryShare::default());
        let some: Vec<_> = (0..6).map(|_| directory(3)).collect();
        for number in 0..30 {
            for (_, handle) in &some {
                let cancel = Cancel::default();
                listings.page(client(number), &memory, handle, b"", 1, &cancel).unwrap();
            }
        }
        let all = listings.all();
        assert!(all.len() <= MOST);
        assert_eq!(all.iter().filter(|of| of.client == client(29)).count(), MOST_OF_ONE);
    }
}
