//! A half-open connection (RFC 4987): an answered OPEN that is not confirmed yet (`docs/protocol
//! §4.2, §4.3`).

use super::PeerLocation;
use super::responder_action::ResponderAction;
use crate::api::Route;
use crate::codec::Codec;
use crate::config::PublicKey;
use crate::crypto::exporter::ExporterSecret;
use crate::time::Instant;
use crate::wire::packet::Parameters;

/// Most addresses kept of one half-open connection.
const MAX_ROUTES: usize = 4;

/// An answered, unconfirmed handshake. It belongs to one OPEN, whatever addresses copies of it come
/// from: all get the same RESPONSE, and only the true peer can use it.
#[derive(Debug)]
pub(super) struct HalfOpen {
    /// The static key of the active end, if it has one.
    pub(super) key: Option<PublicKey>,
    pub(super) open_mac: [u8; 16],
    /// Bytes of the shortest copy of it.
    pub(super) open_bytes: usize,
    pub(super) own_id: u32,
    pub(super) response: Vec<u8>,
    /// The early control packet behind it, under transport keys: HAVE and the first GO.
    pub(super) early_control: Option<Vec<u8>>,
    pub(super) codec: Codec,
    pub(super) root: ExporterSecret,
    pub(super) parameters: Parameters,
    pub(super) table_bytes: u32,
    pub(super) created: Instant,
    /// The addresses that RESPONSE went to: the first one first, then the newest.
    pub(super) routes: Vec<Route>,
    /// RESPONSE was sent only once, so that its confirmation measures a round trip.
    pub(super) once: bool,
    /// The OPEN had a cookie, so the first address is validated.
    pub(super) validated: bool,
}

impl HalfOpen {
    /// A copy of its OPEN came from `route`.
    pub(super) fn note(&mut self, route: Route) {
        if self.routes.contains(&route) {
            return;
        }
        if self.routes.len() >= MAX_ROUTES {
            self.routes.remove(1);
        }
        self.routes.push(route);
    }

    /// The answer to a copy of its OPEN of `received` bytes.
    pub(super) fn answer(&self, received: usize) -> ResponderAction<'static> {
        let early_control = self.early_control.as_ref();
        match early_control
            .filter(|early_control| self.response.len() + early_control.len() <= received)
        {
            Some(early_control) => {
                ResponderAction::ReplyWithControl(self.response.clone(), early_control.clone())
            }
            None => ResponderAction::Reply(self.response.clone()),
        }
    }

    /// The QUIT for a peer that got early control, and so has the connection open, if the limit
    /// leaves room for it.
    pub(super) fn quit(&mut self, reason: &str) -> Option<(Route, Vec<u8>)> {
        self.early_control.as_ref()?;
        let mut quit = Vec::new();
        self.codec.put_quit(&mut quit, reason);
        let to = *self.routes.last()?;
        (quit.len() <= self.spare()).then_some((to, quit))
    }

    /// Bytes received with each copy of its OPEN beyond those sent back.
    fn spare(&self) -> usize {
        let went = self.response.len() + self.early_control.as_ref().map_or(0, Vec::len);
        self.open_bytes.saturating_sub(went)
    }

    /// The peer's location, now that a packet from `route` confirms the handshake. The peer has
    /// read RESPONSE; so if RESPONSE or a cookie before it went to one address only, that address
    /// is validated. Otherwise packets were copied, and all addresses get CHALLENGEs.
    pub(super) fn location(&self, route: Route) -> PeerLocation {
        let alone = self.routes.len() == 1 || self.validated;
        if alone && self.routes.first() == Some(&route) {
            return PeerLocation::Validated;
        }
        let spare = self.spare();
        let others = self.routes.iter().filter(|other| **other != route).rev();
        // The source of the packet first: the others may be dropped.
        let known = self.routes.contains(&route);
        let received = if known { spare } else { 0 };
        let others = others.map(|other| (*other, spare as u64));
        let first = std::iter::once((route, received as u64));
        PeerLocation::OneOf(first.chain(others.take(MAX_ROUTES - 1)).collect())
    }
}
