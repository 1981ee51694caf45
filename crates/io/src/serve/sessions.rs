//! The sessions of a server (`docs/protocol §8.8`): their shares of its resources, and which of
//! them makes room for others.

use std::collections::HashMap;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::PublicKey;
use netblt_proto::time::Instant;

use super::memory_pool::MemoryPool;
use crate::error::{Error, RequestErrorKind};
use crate::net::listener::ConnectionKey;
use crate::request_error::RequestError;

/// Concurrent requests of a session.
pub(super) const BRANCHES: usize = 64;
/// Concurrent requests of all sessions, for each possible session, and at least as many as one
/// session may have: each has threads, and lists of files.
const FOR_EACH: usize = 8;
/// A session in which nothing was asked for so long ends,
const IDLE: Duration = Duration::from_secs(5 * 60);
/// and makes room for others when there is none, if nothing was asked for so long.
const YIELDS: Duration = Duration::from_secs(10);

/// The number of concurrent requests with so many sessions.
pub(super) fn most_requests(sessions: u32) -> usize {
    (sessions as usize * FOR_EACH).max(BRANCHES)
}

/// A session.
#[derive(Debug)]
struct One {
    /// Its connection, as long as that is there.
    key: Option<ConnectionKey>,
    peer_key: Option<PublicKey>,
    /// Running requests.
    branches: usize,
    /// When the last one was over.
    idle: Instant,
    /// Bytes of buffers from its share, and of HAVEs.
    taken: u64,
    have_bytes: u64,
}

/// All sessions, by the ids of their connections here.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<u32, One>);

impl Sessions {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many one client has.
    pub(super) fn count(&self, peer_key: Option<PublicKey>) -> usize {
        self.0.values().filter(|one| one.peer_key == peer_key).count()
    }

    pub(super) fn begin(
        &mut self,
        now: Instant,
        id: u32,
        (key, peer_key): (ConnectionKey, Option<PublicKey>),
    ) {
        let one = One { key: Some(key), peer_key, branches: 0, idle: now, taken: 0, have_bytes: 0 };
        self.0.insert(id, one);
    }

    /// Whether there may be one more request.
    pub(super) fn may_branch(&self, id: u32) -> Result<(), RequestError> {
        let busy = |why| RequestError::new(RequestErrorKind::Busy, why);
        let one = self.0.get(&id).ok_or_else(|| busy("your session is over"))?;
        if one.branches >= BRANCHES {
            return Err(busy("too many requests at once in this session"));
        }
        Ok(())
    }

    /// There is one more request.
    pub(super) fn branch(&mut self, id: u32) {
        self.0.entry(id).and_modify(|one| one.branches += 1);
    }

    /// How many requests it has, and bytes of buffers that they have of its share.
    pub(super) fn taken(&self, id: u32) -> (usize, u64) {
        self.0.get(&id).map_or((0, 0), |one| (one.branches, one.taken))
    }

    pub(super) fn take(&mut self, id: u32, bytes: u64) {
        self.0.entry(id).and_modify(|one| one.taken += bytes);
    }

    /// Adds bytes of a HAVE in one of its requests. Returns the sum.
    pub(super) fn add_have_bytes(&mut self, id: u32, bytes: u64) -> u64 {
        self.0.get_mut(&id).map_or(bytes, |one| {
            one.have_bytes += bytes;
            one.have_bytes
        })
    }

    /// A request has ended, with so many bytes of buffers and of HAVE.
    pub(super) fn over(&mut self, now: Instant, id: u32, bytes: u64, have_bytes: u64) {
        let Some(one) = self.0.get_mut(&id) else { return };
        one.branches = one.branches.saturating_sub(1);
        one.taken -= bytes.min(one.taken);
        one.have_bytes -= have_bytes.min(one.have_bytes);
        one.idle = now;
        if one.key.is_none() && one.branches == 0 {
            self.0.remove(&id);
        }
    }

    /// Its connection has closed. Its requests go on.
    pub(super) fn end(&mut self, id: u32) {
        let Some(one) = self.0.get_mut(&id) else { return };
        one.key = None;
        if one.branches == 0 {
            self.0.remove(&id);
        }
    }

    /// Whether nothing is asked in a session, or it does not count any more.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        self.0.get(&id).is_none_or(|one| one.branches == 0)
    }

    /// Whether nothing was asked in it for too long.
    pub(super) fn is_late(&self, now: Instant, id: u32) -> bool {
        let late = |one: &One| one.branches == 0 && now.since(one.idle) >= IDLE;
        self.0.get(&id).is_none_or(late)
    }

    /// Makes room: the one in which nothing was asked for the longest time does not count from now
    /// on, and its connection is to end.
    pub(super) fn yield_one(&mut self, now: Instant) -> Option<ConnectionKey> {
        let idle = self.0.iter().filter(|(_, one)| one.branches == 0 && one.key.is_some());
        let idle = idle.filter(|(_, one)| now.since(one.idle) >= YIELDS);
        let (id, _) = idle.min_by_key(|(_, one)| one.idle)?;
        let id = *id;
        self.0.remove(&id)?.key
    }
}

/// Buffers for a request, of a session if it is one's, and what they take of its share and beyond a
/// share. One that is `coming` is not yet among those of its session.
pub(super) fn stock(
    (pool, sessions): (&mut MemoryPool, &mut Sessions),
    session: Option<u32>,
    wanted: (u64, usize),
    (connections, coming): (usize, bool),
) -> Result<(Vec<Buffer>, u64, u64), Error> {
    let Some(id) = session else {
        let (stock, beyond) = pool.take(wanted, connections)?;
        return Ok((stock, 0, beyond));
    };
    let (requests, taken) = sessions.taken(id);
    let beside = (requests + usize::from(coming), taken);
    let (stock, shared, beyond) = pool.take_beside(wanted, connections, beside)?;
    sessions.take(id, shared);
    Ok((stock, shared, beyond))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_is_one_however_much_it_asks_and_goes_when_all_of_it_has() {
        let mut sessions = Sessions::default();
        sessions.begin(secs(0), 7, (ConnectionKey::of(1), None));
        for _ in 0..BRANCHES {
            sessions.may_branch(7).expect("so many may be");
            sessions.branch(7);
        }
        assert_eq!(sessions.may_branch(7).expect_err("one too many").what, RequestErrorKind::Busy);
        assert_eq!(sessions.may_branch(8).expect_err("it is none").what, RequestErrorKind::Busy);
        sessions.take(7, 500);
        assert_eq!((sessions.len(), sessions.count(None)), (1, 1));
        assert_eq!(sessions.taken(7), (BRANCHES, 500));
        assert!(!sessions.is_idle(7) && !sessions.is_late(secs(1000), 7));
        sessions.end(7);
        assert_eq!(sessions.len(), 1, "what is asked goes on");
        assert_eq!((sessions.add_have_bytes(7, 30), sessions.add_have_bytes(7, 12)), (30, 42));
        (0..BRANCHES).for_each(|_| sessions.over(secs(1), 7, 40, 1));
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn the_one_that_is_idle_longest_makes_room() {
        let mut sessions = Sessions::default();
        for (id, at) in [(1, 3), (2, 1), (3, 2)] {
            sessions.begin(secs(at), id, (ConnectionKey::of(id.into()), None));
        }
        sessions.branch(2);
        assert_eq!(sessions.yield_one(secs(11)), None, "none idle for long enough");
        assert_eq!(sessions.yield_one(secs(12)), Some(ConnectionKey::of(3)));
        assert_eq!((sessions.len(), sessions.yield_one(secs(12))), (2, None));
        assert!(sessions.is_late(secs(303), 1) && !sessions.is_late(secs(302), 1));
    }
}
