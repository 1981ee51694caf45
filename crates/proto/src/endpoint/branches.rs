//! Connections that branch from the one of an endpoint (`docs/protocol.md §4.10`).

use std::time::Duration;

use super::{Endpoint, Opener};
use crate::api::{Reason, Reception, Route};
use crate::config::{Config, Wire};
use crate::connection::{Branches, Connection};
use crate::crypto::exporter::Root;
use crate::entropy::Entropy;
use crate::handshake::{Opened, propose};
use crate::time::Instant;
use crate::wire::packet::Parameters;
use crate::wire::sealed::Offer;

impl Endpoint {
    /// Active end: a connection that branches from this one, open at once, with as much of what
    /// `config` proposes as this one settled. The peer is told of it by this end, so that must have
    /// its turn first. `entropy` must never be used twice outside tests.
    ///
    /// `None` if nothing is open, or closing; if there are to be no branches
    /// ([`Config::branches`]); or if nothing was heard yet of 64 others.
    pub fn branch(&mut self, now: Instant, config: Config, entropy: [u8; 32]) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let home = connection.addresses.home()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let (settled, rtts) = (branches.settled().clone(), branches.rtts);
        let parameters = propose(&config, 0);
        let wanted =
            Offer { parameters, ciphers: settled.ciphers, table_bytes: config.table_bytes };
        let (branch, keys) = connection.make_branch(now, wanted)?;
        let Offer { parameters, table_bytes, .. } = branch.offer;
        // To this end the other one's words matter, as if they stood in a RESPONSE.
        let Parameters { death_timer, client, .. } = settled.parameters;
        let parameters = Parameters { death_timer, client, ..parameters };
        let link = connection.link_of(&keys, true)?;
        let opened = Opened::branch(link, (parameters, table_bytes), rtts, Entropy::new(entropy));
        Some(self.branched(config, now, (home, stem), opened))
    }

    /// Active end: something was heard of the branch with this connection id.
    pub fn hear_of_branch(&mut self, id: u32) {
        self.connection.iter_mut().for_each(|connection| connection.on_branch_heard(id));
    }

    /// Active end of a branch: its stem has closed, for this `reason`, so BRANCH leaves no more. A
    /// branch of which no packet has come ends with its stem, and sends nothing: nothing but the
    /// BRANCH would have made it known to the peer. One whose peer has answered goes on.
    pub fn on_stem_closed(&mut self, now: Instant, reason: &Reason) {
        if let Some(connection) = &mut self.connection {
            connection.on_stem_closed(now, reason);
        }
        self.collect(now);
    }

    /// The client has gone, and this end only has to part (`docs/protocol.md §7.3`). One that has
    /// everything goes on until its peer knows; any other one quits for this `reason`, so that its
    /// peer does not wait for the death timer.
    pub fn part(&mut self, now: Instant, reason: &str) {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_settled()) {
            self.quit(now, reason);
        }
    }

    /// Passive end: the next connection that its peer has branched from this one, unless its id
    /// `is_taken`; such a one is lost. A door hands it out.
    pub(crate) fn take_branch(
        &mut self,
        now: Instant,
        entropy: impl FnOnce() -> Option<[u8; 32]>,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let home = connection.addresses.home()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let rtts = branches.rtts;
        let (branch, keys) =
            std::iter::from_fn(|| branches.take_come()).find(|(_, keys)| !is_taken(keys.id))?;
        let Offer { parameters, table_bytes, .. } = branch.offer;
        let link = connection.link_of(&keys, false)?;
        let opened =
            Opened::branch(link, (parameters, table_bytes), rtts, Entropy::new(entropy()?));
        Some(self.branched(self.config.clone(), now, (home, stem), opened))
    }

    /// The connection id, at this end, of the connection from which this one branched.
    pub fn stem(&self) -> Option<u32> {
        self.stem
    }

    fn branched(
        &self,
        config: Config,
        now: Instant,
        (home, stem): (Route, Option<u32>),
        opened: Opened,
    ) -> Self {
        let config = Config { branches: false, ..config };
        let opened = Opened { peer_key: self.peer_key, ..opened };
        let mut new = Self::served(config, now, (home, Reception::default()), opened, None);
        new.stem = stem;
        new
    }

    /// A connection is open, with this `root` if it has one: what may begin beside it, and branch
    /// from it.
    pub(super) fn let_begin(
        &mut self,
        connection: &mut Connection,
        root: Option<Root>,
        (parameters, table_bytes): (&Parameters, u32),
        rtts: (Option<Duration>, Option<Duration>),
    ) {
        let active = matches!(self.opener, Opener::Active(_));
        if active && self.config.wire == Wire::Sealed {
            // What the handshake was made of would show the keys of all that follows.
            self.opener = Opener::Done;
        }
        self.lanes.begin((parameters, table_bytes), root.as_ref().map(Root::lanes));
        let root = root.filter(|_| self.config.branches);
        let Some((root, cipher)) = root.zip(connection.cipher()) else { return };
        let parameters = parameters.clone();
        let settled = Offer { parameters, ciphers: cipher.bit(), table_bytes };
        connection.let_branch(Branches::of(root.branches(), active, settled, rtts));
    }
}
