//! Datagrams on their way out, gathered so that one system call takes many.

use std::io;
use std::time::Duration;

use quinn_udp::{EcnCodepoint, Transmit};

use crate::clients::ClientId;
use crate::socket::Route;
use crate::wait::writable;

/// The most that one send may hold: the UDP length field over IPv4 bounds it, and the number of
/// datagrams that Linux cuts.
const BATCH_BYTES: usize = 65_507;
const MAX_SEGMENTS: usize = 64;
/// How long a full socket is waited for before its datagram is given up. The queue of the system
/// drains in far less; waiting longer would make everybody else late.
const PATIENCE: Duration = Duration::from_millis(5);
/// Empty vectors kept for the next datagrams.
const MAX_KEPT: usize = 1 << 15;

/// Memory of datagrams that have left, for those that come.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Vec<u8>>);

impl Pool {
    pub(crate) fn copy(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut bytes = self.0.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(datagram);
        bytes
    }

    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        if self.0.len() < MAX_KEPT {
            self.0.push(bytes);
        }
    }
}

/// Datagrams of one client, one size and one ECN mark. The last may be shorter.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    client: Option<ClientId>,
    ecn: Option<EcnCodepoint>,
    segment: usize,
    datagrams: usize,
    bytes: Vec<u8>,
}

impl Batch {
    /// Their client; `None` when there are none.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.client
    }

    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams
    }

    /// Whether such a datagram can go along.
    pub(crate) fn takes(&self, client: ClientId, ecn: Option<EcnCodepoint>, len: usize) -> bool {
        let closed = self.bytes.len() != self.segment * self.datagrams;
        self.client.is_none()
            || (self.client == Some(client)
                && self.ecn == ecn
                && !closed
                && (1..=self.segment).contains(&len)
                && self.datagrams < MAX_SEGMENTS
                && self.bytes.len() + len <= BATCH_BYTES)
    }

    /// Adds a datagram, which must be one that the batch takes.
    pub(crate) fn add(&mut self, client: ClientId, ecn: Option<EcnCodepoint>, datagram: &[u8]) {
        if self.client.is_none() {
            (self.client, self.ecn, self.segment) = (Some(client), ecn, datagram.len());
        }
        self.datagrams += 1;
        self.bytes.extend_from_slice(datagram);
    }

    /// Sends all; how many could not be sent.
    pub(crate) fn send(&mut self, route: Route<'_>) -> usize {
        let per_send = self.segment * route.socket.max_segments().max(1);
        let mut unsent = 0;
        if self.segment == 0 {
            unsent += usize::from(self.transmit(route, &[]).is_err());
        }
        for piece in self.bytes.chunks(per_send.max(1)) {
            match self.transmit(route, piece) {
                Ok(()) => {}
                // Not every system and device cuts batches; one by one, the size alone decides.
                Err(_) if piece.len() > self.segment => {
                    let ones = piece.chunks(self.segment);
                    unsent += ones.filter(|one| self.transmit(route, one).is_err()).count();
                }
                Err(_) => unsent += 1,
            }
        }
        self.clear();
        unsent
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.client, self.segment, self.datagrams) = (None, 0, 0);
    }

    fn transmit(&self, route: Route<'_>, contents: &[u8]) -> io::Result<()> {
        let transmit = Transmit {
            destination: route.to,
            ecn: self.ecn,
            contents,
            segment_size: (contents.len() > self.segment).then_some(self.segment),
            src_ip: route.from,
        };
        let mut tries = 0;
        loop {
            let error = match route.socket.send(&transmit) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tries += 1;
            let again = match error.kind() {
                io::ErrorKind::WouldBlock => writable(route.socket, PATIENCE),
                // News by ICMP of an earlier datagram takes the place of this one, once.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => true,
                _ => false,
            };
            if !again || tries > 3 {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_equal_datagrams_and_one_shorter() {
        let (one, other) = (ClientId::for_test(1), ClientId::for_test(2));
        let ect = Some(EcnCodepoint::Ect0);
        let mut batch = Batch::default();
        assert!(batch.takes(one, None, 70_000));
        batch.add(one, ect, &[0; 100]);
        assert!(batch.takes(one, ect, 100) && batch.takes(one, ect, 1));
        assert!(!batch.takes(other, ect, 100) && !batch.takes(one, None, 100));
        assert!(!batch.takes(one, ect, 101) && !batch.takes(one, ect, 0));
        batch.add(one, ect, &[0; 99]);
        assert!(!batch.takes(one, ect, 99));
        batch.clear();
        for _ in 0..MAX_SEGMENTS {
            assert!(batch.takes(one, ect, 1000));
            batch.add(one, ect, &[0; 1000]);
        }
        assert!(!batch.takes(one, ect, 1000));
        batch.clear();
        batch.add(one, ect, &[]);
        assert!(!batch.takes(one, ect, 0) && !batch.takes(one, ect, 1));
    }
}
