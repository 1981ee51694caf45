//! What waits at a server: files that were announced and have not come.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use netblt_proto::config::{PublicKey, StaticKey};
use netblt_proto::time::Instant;

use super::found::Prepared;
use super::members::Members;
use super::request::Line;
use crate::denial::Denied;
use crate::error::Denial;
use crate::net::entropy::entropy;

/// After so long without what it announced, a client is dead if another one announces some there.
const SILENT: Duration = Duration::from_secs(3);

/// Files that may be put, when they come.
pub(super) struct Waiting {
    /// Who has announced them.
    pub(super) who: Option<PublicKey>,
    /// Where: beneath which root, and under which path.
    pub(super) place: (PathBuf, Vec<u8>),
    pub(super) since: Instant,
    pub(super) prepared: Box<Prepared>,
    /// With which key they come, if not with that of who has announced them.
    pub(super) lent: Option<Lent>,
}

impl Waiting {
    /// Whether whoever announced them is dead, if somebody else announces some there.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.since(self.since) >= SILENT
    }

    /// The key of who brings them.
    fn comes_by(&self) -> Option<PublicKey> {
        self.lent.as_ref().map_or(self.who, |lent| Some(lent.key))
    }
}

/// A key that lets in whoever has it until this goes.
pub(super) struct Lent {
    members: Members,
    key: PublicKey,
}

impl Lent {
    pub(super) fn new(members: &Members, key: PublicKey) -> Self {
        members.lend(key);
        Self { members: members.clone(), key }
    }
}

/// A key for who brings what was announced, if another server does, and the words that hand it
/// over.
pub(super) fn lend(
    members: Option<&Members>,
    wanted: bool,
) -> Result<(Option<Lent>, Option<Line>), Denied> {
    if !wanted {
        return Ok((None, None));
    }
    let why = "a server with one ticket for all has no key to lend: it needs a list of keys";
    let members = members.ok_or_else(|| Denied::new(Denial::Forbidden, why))?;
    let random = entropy().map_err(|error| Denied::new(Denial::Busy, error.to_string()))?;
    let key = StaticKey::from_bytes(random);
    Ok((Some(Lent::new(members, key.public())), Some(Line::Key(key))))
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.members.take_back(&self.key);
    }
}

/// All that was announced, by its numbers.
#[derive(Default)]
pub(super) struct Puts(HashMap<u64, Waiting>);

impl Puts {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How much one client has announced.
    pub(super) fn count(&self, who: Option<PublicKey>) -> usize {
        self.0.values().filter(|waiting| waiting.who == who).count()
    }

    pub(super) fn add(&mut self, number: u64, waiting: Waiting) {
        self.0.insert(number, waiting);
    }

    /// Who has had this key lent, if it is one.
    pub(super) fn lender(&self, key: PublicKey) -> Option<PublicKey> {
        let is = |waiting: &&Waiting| waiting.lent.as_ref().is_some_and(|lent| lent.key == key);
        self.0.values().find(is)?.who
    }

    /// What the same client has announced under a number, once.
    pub(super) fn take(&mut self, number: u64, who: Option<PublicKey>) -> Option<Waiting> {
        let own = self.0.get(&number).is_some_and(|waiting| waiting.comes_by() == who);
        if own { self.0.remove(&number) } else { None }
    }

    /// What a client has announced, and takes back, is not awaited any more.
    pub(super) fn take_back(&mut self, number: Option<u64>, who: Option<PublicKey>) {
        if let Some(number) = number
            && self.0.get(&number).is_some_and(|waiting| waiting.who == who)
        {
            self.0.remove(&number);
        }
    }

    /// What is awaited no more.
    pub(super) fn take_if(&mut self, is_late: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let numbers = self.0.iter().filter(|(_, waiting)| is_late(waiting));
        let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.0.remove(&number)).collect()
    }
}
