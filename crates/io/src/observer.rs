//! The observer of a transfer.

use std::io;
use std::net::SocketAddr;

use crate::error::Warning;
use crate::progress::Progress;
use crate::ticket::Ticket;

/// Observes a transfer. Called from the transfer's own thread; must not block. Methods without
/// interest need no implementation.
pub trait Observer: Send {
    /// This side listens: give the ticket to the other side. An error ends the transfer, since no
    /// peer could connect.
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        let _ = ticket;
        Ok(())
    }
    /// Listening without a ticket ([`Rendezvous::Await`](crate::Rendezvous::Await),
    /// [`Rendezvous::Passive`](crate::Rendezvous::Passive)) at this address; on raw IP its port is
    /// the NETBLT port.
    fn listening_at(&mut self, address: SocketAddr) {
        let _ = address;
    }
    /// The connection is open.
    fn connected(&mut self, peer: &str) {
        let _ = peer;
    }
    /// About ten times a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Nothing has arrived for three seconds (true), or something arrives again (false).
    fn silent(&mut self, silent: bool) {
        let _ = silent;
    }
    /// The peer was started again, and the transfer starts over.
    fn restarted(&mut self) {}
    /// A receiver fetched the list, and no files; this sender listens again.
    fn list_fetched(&mut self) {}
    /// A receiver refused the files; this sender listens again.
    fn refused(&mut self, why: &str) {
        let _ = why;
    }
    /// Something the user should know that ends nothing (a file skipped, for instance).
    fn warn(&mut self, warning: &Warning) {
        let _ = warning;
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    fn listening(&mut self, ticket: &Ticket) -> io::Result<()> {
        (**self).listening(ticket)
    }

    fn listening_at(&mut self, address: SocketAddr) {
        (**self).listening_at(address);
    }

    fn connected(&mut self, peer: &str) {
        (**self).connected(peer);
    }

    fn progress(&mut self, progress: &Progress) {
        (**self).progress(progress);
    }

    fn silent(&mut self, silent: bool) {
        (**self).silent(silent);
    }

    fn restarted(&mut self) {
        (**self).restarted();
    }

    fn list_fetched(&mut self) {
        (**self).list_fetched();
    }

    fn refused(&mut self, why: &str) {
        (**self).refused(why);
    }

    fn warn(&mut self, warning: &Warning) {
        (**self).warn(warning);
    }
}
