//! An opening that a passive end has answered, and that nothing has confirmed yet
//! (`docs/protocol.md §4.2, §4.3`).

use super::Place;
use super::answer::Answer;
use crate::api::Route;
use crate::codec::Link;
use crate::config::PublicKey;
use crate::crypto::exporter::Root;
use crate::time::Instant;
use crate::wire::packet::Parameters;

/// Addresses remembered of one opening.
const MAX_ROUTES: usize = 4;

/// A handshake answered and not confirmed yet. It belongs to one OPEN, whatever addresses copies of
/// it come from: all of them get the same RESPONSE, and only the true peer can use it.
#[derive(Debug)]
pub(super) struct Slot {
    /// The static key of whoever opens it, if it comes by one.
    pub(super) key: Option<PublicKey>,
    pub(super) open_mac: [u8; 16],
    /// Bytes of the shortest copy of it.
    pub(super) open_bytes: usize,
    pub(super) own_id: u32,
    pub(super) response: Vec<u8>,
    /// What follows it, under transport keys: what is here already, and the first GO.
    pub(super) first_words: Option<Vec<u8>>,
    pub(super) link: Link,
    pub(super) root: Root,
    pub(super) parameters: Parameters,
    pub(super) table_bytes: u32,
    pub(super) created: Instant,
    /// Where RESPONSE went: the first address first, then the newest ones.
    pub(super) routes: Vec<Route>,
    /// RESPONSE was sent once only: the time since is a round trip.
    pub(super) once: bool,
    /// The OPEN brought a cookie: the first address is the peer's.
    pub(super) proven: bool,
}

impl Slot {
    /// A copy of its OPEN came from there.
    pub(super) fn note(&mut self, route: Route) {
        if self.routes.contains(&route) {
            return;
        }
        if self.routes.len() >= MAX_ROUTES {
            self.routes.remove(1);
        }
        self.routes.push(route);
    }

    /// What a copy of its OPEN draws that came in so many bytes.
    pub(super) fn greeting(&self, came: usize) -> Answer<'static> {
        let words = self.first_words.as_ref();
        match words.filter(|words| self.response.len() + words.len() <= came) {
            Some(words) => Answer::Greeting(self.response.clone(), words.clone()),
            None => Answer::Reply(self.response.clone()),
        }
    }

    /// Tells a peer that was greeted, to whom it is open already, that the client gives up, if
    /// there is room for it.
    pub(super) fn quit(&mut self, reason: &str) -> Option<(Route, Vec<u8>)> {
        self.first_words.as_ref()?;
        let mut quit = Vec::new();
        self.link.put_quit(&mut quit, reason);
        let to = *self.routes.last()?;
        (quit.len() <= self.spare()).then_some((to, quit))
    }

    /// By how much more came with each copy of its OPEN than went back.
    fn spare(&self) -> usize {
        let went = self.response.len() + self.first_words.as_ref().map_or(0, Vec::len);
        self.open_bytes.saturating_sub(went)
    }

    /// What is known of where the peer is, now that a packet from `route` confirms it.
    /// It has read RESPONSE; so if that went nowhere else, or a cookie before it, it was the proof
    /// of its address. Else somebody copied packets, and those who sent them are asked.
    pub(super) fn place(&self, route: Route) -> Place {
        let alone = self.routes.len() == 1 || self.proven;
        if alone && self.routes.first() == Some(&route) {
            return Place::Known;
        }
        let spare = self.spare();
        let others = self.routes.iter().filter(|other| **other != route).rev();
        // The address that the packet came from first: the others may be forgotten.
        let known = self.routes.contains(&route);
        let came = if known { spare } else { 0 };
        let others = others.map(|other| (*other, spare as u64));
        let first = std::iter::once((route, came as u64));
        Place::OneOf(first.chain(others.take(MAX_ROUTES - 1)).collect())
    }
}
