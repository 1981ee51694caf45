//! Who puts files anew where somebody is putting some (`docs/protocol.md §8.8`): most likely the
//! same client, started again, of whose end nobody has heard.

use std::collections::HashMap;

use netblt_proto::time::Instant;

use super::guest::Guest;
use super::request::Request;
use super::welcome::Hall;
use crate::grant::Grant;
use crate::net::listener::ConnectionKey;

/// Requests that wait until it is known whether somebody lives who came before them.
#[derive(Debug, Default)]
pub(super) struct HeldBack(HashMap<ConnectionKey, (Request, Instant)>);

impl HeldBack {
    pub(super) fn add(&mut self, now: Instant, key: ConnectionKey, request: Request) {
        self.0.insert(key, (request, now));
    }

    /// Whose.
    pub(super) fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        self.0.keys().copied()
    }

    /// This one has gone.
    pub(super) fn forget(&mut self, key: ConnectionKey) {
        self.0.remove(&key);
    }

    /// A request that need not wait any more.
    pub(super) fn take(&mut self, key: ConnectionKey, hall: &Hall<'_>) -> Option<Request> {
        let (request, since) = self.0.get(&key)?;
        let grant = &hall.guests.get(&key)?.grant;
        if hall.is_doubtful((grant, &request.spot()), *since) {
            return None;
        }
        self.0.remove(&key).map(|(request, _)| request)
    }
}

impl Hall<'_> {
    /// Whether it is not known if somebody lives who is putting files there: nothing was heard of
    /// him since then, but not for long enough that he is dead.
    pub(super) fn is_doubtful(&self, (grant, spot): (&Grant, &[u8]), since: Instant) -> bool {
        let here = |guest: &&Guest| guest.puts((grant, spot));
        let mut here = self.guests.values().filter(here);
        here.any(|guest| guest.last_heard() <= since && !guest.is_silent())
    }

    /// Those who are putting files there and have fallen silent: whoever puts some there anew takes
    /// their place.
    pub(super) fn take_silent(&mut self, (grant, spot): (&Grant, &[u8])) -> Vec<Guest> {
        let is_old = |guest: &Guest| guest.puts((grant, spot)) && guest.is_silent();
        let old = self.guests.iter().filter(|(_, guest)| is_old(guest)).map(|(key, _)| *key);
        let old: Vec<ConnectionKey> = old.collect();
        old.into_iter().filter_map(|key| self.guests.remove(&key)).collect()
    }
}
