//! What a server does for copies from it to another one, and from another one to it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use netblt_proto::config::{PublicKey, StaticKey};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use super::Serving;
use crate::denial::Denied;
use crate::error::Denial;
use crate::grant::Grant;
use crate::net::entropy::entropy;
use crate::net::listener::ConnectionKey;
use crate::serve::errand::Outward;
use crate::serve::request::{Line, Request, What};
use crate::serve::waiting::Lent;

/// Buffers of its connection that a guest keeps, to hear how far the other one is.
const OWN: u64 = 2;

impl Serving<'_> {
    /// What a guest needs who wants files to go to another server, if that is what he wants.
    pub(super) fn outward(
        &mut self,
        key: ConnectionKey,
        request: &Request,
    ) -> Result<Option<Outward>, Denied> {
        let (What::Send { .. }, guests) = (&request.what, self.guests.len()) else {
            return Ok(None);
        };
        let Some(guest) = self.guests.get_mut(&key) else { return Ok(None) };
        if !guest.grant.third_party {
            let why = "your key may send nothing to other servers: its line in the server's \
                       authorized_keys lacks the option third-party";
            return Err(Denied::new(Denial::Forbidden, why));
        }
        let busy = |why: String| Denied::new(Denial::Busy, why);
        let image = (self.options.buffer_bytes + self.config.table_bytes) as usize;
        let (stock, beyond) = self
            .pool
            .take((self.options.buffers.into(), image), guests)
            .map_err(|error| busy(error.to_string()))?;
        guest.beyond += beyond;
        let buffers = (stock.len() as u64).saturating_sub(OWN);
        if buffers < OWN {
            return Err(busy("there is no memory for that; try again later".to_owned()));
        }
        let mut options = self.options.clone();
        options.buffers = u32::try_from(buffers).unwrap_or(u32::MAX);
        options.port = 0;
        options.control = Some(guest.control.clone());
        let waker = self.waker.marking(&self.marks, key.number());
        // What is seen of it from now on is those files, not what is told of them.
        guest.seen = Arc::default();
        Ok(Some(Outward { options, seen: Arc::clone(&guest.seen), waker }))
    }

    /// Whom a request has to wait for: those who have announced files for the same place and are
    /// dead. What its client takes back goes at once.
    pub(super) fn make_way(
        &mut self,
        now: Instant,
        request: &Request,
        who: Option<PublicKey>,
        grant: &Grant,
    ) -> Vec<Receiver<()>> {
        match (request.takes_back(), &request.what) {
            (Some(number), _) => {
                self.puts.take_back(number, who);
                Vec::new()
            }
            (None, What::Put(_)) => self.supersede(now, &request.spot(), grant),
            _ => Vec::new(),
        }
    }

    /// A key for who brings what was announced, and the words that hand it over.
    pub(super) fn lend(&self, wanted: bool) -> Result<(Option<Lent>, Option<Line>), Denied> {
        if !wanted {
            return Ok((None, None));
        }
        let why = "a server with one ticket for all has no key to lend: it needs a list of authorised keys";
        let members = self.service.members.as_ref();
        let members = members.ok_or_else(|| Denied::new(Denial::Forbidden, why))?;
        let random = entropy().map_err(|error| Denied::new(Denial::Busy, error.to_string()))?;
        let key = StaticKey::from_bytes(random);
        Ok((Some(Lent::new(members, key.public())), Some(Line::Key(key))))
    }

    /// Who waits for files to go to another server hears why they do not.
    pub(super) fn fail_outward(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let fails = self.guests.get(&key).and_then(|guest| guest.fails.as_ref());
        if let Some(denied) = fails.and_then(|fails| fails.try_recv().ok()) {
            self.deny(now, key, denied, end);
        }
    }
}
