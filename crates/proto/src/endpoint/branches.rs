//! Connections that branch from that of an endpoint (`docs/protocol §4.10`).

use super::{Endpoint, HandshakeSide};
use crate::api::{CloseReason, RecvMeta, Route};
use crate::config::{Config, Wire};
use crate::connection::{Branches, Connection};
use crate::crypto::exporter::ExporterSecret;
use crate::entropy::Entropy;
use crate::handshake::{Opened, propose};
use crate::negotiated::HandshakeRtt;
use crate::time::Instant;
use crate::wire::packet::Parameters;
use crate::wire::sealed::HandshakePayload;

impl Endpoint {
    /// Active end: a connection that branches from this one and is open at once. Its parameters are
    /// those of `config`, limited to the negotiated ones. This end announces it to the peer, so
    /// poll this end first. `entropy` must never be used twice outside tests.
    ///
    /// `None` if no connection is open, or it is closing; if branches are not allowed
    /// ([`Config::branches`]); or if 64 others are not confirmed yet.
    pub fn branch(&mut self, now: Instant, config: Config, entropy: [u8; 32]) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let validated = connection.addresses.validated()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let (settled, rtt) = (branches.negotiated().clone(), branches.rtt);
        let parameters = propose(&config, 0);
        let wanted = HandshakePayload {
            parameters,
            ciphers: settled.ciphers,
            table_bytes: config.table_bytes,
        };
        let (branch, keys) = connection.make_branch(now, wanted)?;
        let HandshakePayload { parameters, table_bytes, .. } = branch.offer;
        // The peer's own values count here, as in a RESPONSE.
        let Parameters { death_timer, client, .. } = settled.parameters;
        let parameters = Parameters { death_timer, client, ..parameters };
        let codec = connection.codec_of(&keys, true)?;
        let opened = Opened::branch(codec, parameters, table_bytes, rtt, Entropy::new(entropy));
        Some(self.branched(config, now, validated, stem, opened))
    }

    /// Active end: a packet of the branch with this connection id arrived.
    pub fn confirm_branch(&mut self, id: u32) {
        self.connection.iter_mut().for_each(|connection| connection.on_branch_confirmed(id));
    }

    /// Active end of a branch: the connection that it branched from has closed, for this `reason`,
    /// so BRANCH leaves no more. A branch without a packet from its peer closes too and sends
    /// nothing: only BRANCH would have announced it. One whose peer has answered goes on.
    pub fn on_stem_closed(&mut self, now: Instant, reason: &CloseReason) {
        if let Some(connection) = &mut self.connection {
            connection.on_stem_closed(now, reason);
        }
        self.collect(now);
    }

    /// The client has gone, and this end only has to close (`docs/protocol §7.3`). If its
    /// transfer is decided it goes on until the peer acknowledges that; else it quits for this
    /// `reason`, so that the peer does not wait for the death timer.
    pub fn part(&mut self, now: Instant, reason: &str) {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_settled()) {
            self.quit(now, reason);
        }
    }

    /// Passive end: the next connection that the peer has branched from this one. It is dropped if
    /// its id `is_taken`. Called through a listener.
    pub(crate) fn take_branch(
        &mut self,
        now: Instant,
        entropy: impl FnOnce() -> Option<[u8; 32]>,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let connection = self.connection.as_mut()?;
        let validated = connection.addresses.validated()?;
        let stem = connection.own_id();
        let branches = connection.branches()?;
        let rtt = branches.rtt;
        let (branch, keys) =
            std::iter::from_fn(|| branches.take_arrived()).find(|(_, keys)| !is_taken(keys.id))?;
        let HandshakePayload { parameters, table_bytes, .. } = branch.offer;
        let codec = connection.codec_of(&keys, false)?;
        let opened = Opened::branch(codec, parameters, table_bytes, rtt, Entropy::new(entropy()?));
        Some(self.branched(self.config.clone(), now, validated, stem, opened))
    }

    /// The connection id, at this end, of the connection from which this one branched.
    pub fn stem(&self) -> Option<u32> {
        self.stem
    }

    fn branched(
        &self,
        config: Config,
        now: Instant,
        validated: Route,
        stem: Option<u32>,
        opened: Opened,
    ) -> Self {
        let config = Config { branches: false, ..config };
        let opened = Opened { peer_key: self.peer_key, ..opened };
        let mut new = Self::served(config, now, validated, RecvMeta::default(), opened, None);
        new.stem = stem;
        new
    }

    /// A connection is open, with this exporter secret if it has one: allows its subflows and
    /// branches.
    pub(super) fn let_begin(
        &mut self,
        connection: &mut Connection,
        root: Option<ExporterSecret>,
        parameters: &Parameters,
        table_bytes: u32,
        rtt: HandshakeRtt,
    ) {
        let active = matches!(self.opener, HandshakeSide::Active(_));
        if active && self.config.wire == Wire::Sealed {
            // Drops the handshake state, which would reveal all later keys.
            self.opener = HandshakeSide::Done;
        }
        self.subflows.begin(parameters, table_bytes, root.as_ref().map(ExporterSecret::subflows));
        let root = root.filter(|_| self.config.branches);
        let Some((root, cipher)) = root.zip(connection.cipher()) else { return };
        let parameters = parameters.clone();
        let settled = HandshakePayload { parameters, ciphers: cipher.bit(), table_bytes };
        connection.let_branch(Branches::of(root.branches(), active, settled, rtt));
    }
}
