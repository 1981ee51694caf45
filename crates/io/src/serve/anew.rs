//! Who puts files anew where somebody is putting some (`docs/protocol.md §8.8`): most likely the
//! same client, started again, of whose end nobody has heard.

use std::collections::HashMap;

use netblt_proto::time::Instant;

use super::guest::Guest;
use super::request::Request;
use crate::grant::Grant;
use crate::net::listener::ConnectionKey;

/// All who are here.
type Guests = HashMap<ConnectionKey, Guest>;

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
    pub(super) fn take(&mut self, key: ConnectionKey, guests: &Guests) -> Option<Request> {
        let (request, since) = self.0.get(&key)?;
        let grant = &guests.get(&key)?.grant;
        if is_doubtful(guests, (grant, &request.spot()), *since) {
            return None;
        }
        self.0.remove(&key).map(|(request, _)| request)
    }
}

/// Whether it is not known if somebody lives who is putting files there: nothing was heard of him
/// since then, but not for long enough that he is dead.
pub(super) fn is_doubtful(guests: &Guests, (grant, spot): (&Grant, &[u8]), since: Instant) -> bool {
    let mut here = guests.values().filter(|guest| guest.puts((grant, spot)));
    here.any(|guest| guest.last_heard() <= since && !guest.is_silent())
}

/// Those who are putting files there and have fallen silent: whoever puts some there anew takes
/// their place.
pub(super) fn take_silent(guests: &mut Guests, (grant, spot): (&Grant, &[u8])) -> Vec<Guest> {
    let is_old = |guest: &Guest| guest.puts((grant, spot)) && guest.is_silent();
    let old = guests.iter().filter(|(_, guest)| is_old(guest)).map(|(key, _)| *key);
    let old: Vec<ConnectionKey> = old.collect();
    old.into_iter().filter_map(|key| guests.remove(&key)).collect()
}
