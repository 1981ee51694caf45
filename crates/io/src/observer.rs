//! Who watches a transfer, and what is told of it.

use std::io;
use std::net::SocketAddr;

use crate::error::Warning;
use crate::progress::Progress;
use crate::ticket::Ticket;

/// Hears what a transfer does. Called from the transfer's own thread; must not block. What is of no
/// interest needs no method.
pub trait Observer: Send {
    /// Listening: give this to the other side. An error ends the transfer, since nobody would come.
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
    /// Nothing heard for three seconds (true), or heard again (false).
    fn silent(&mut self, silent: bool) {
        let _ = silent;
    }
    /// The peer was started again, and the transfer starts over.
    fn restarted(&mut self) {}
    /// A receiver looked at what is offered, and took nothing; this sender listens again.
    fn looked_at(&mut self) {}
    /// A receiver refused what is offered, and took nothing; this sender listens again.
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

    fn looked_at(&mut self) {
        (**self).looked_at();
    }

    fn refused(&mut self, why: &str) {
        (**self).refused(why);
    }

    fn warn(&mut self, warning: &Warning) {
        (**self).warn(warning);
    }
}
