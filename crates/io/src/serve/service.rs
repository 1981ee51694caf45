//! What a server is told, and who hears of it.

use std::path::PathBuf;

use netblt_proto::config::Secret;
use netblt_proto::units::Rate;

use super::account::Account;
use super::members::Members;
use super::meter::Meter;
use crate::error::Error;
use crate::grant::Grant;
use crate::ticket::Ticket;

/// The port of a server that was told none.
pub const PORT: u16 = 9981;

/// What is served, and to how many.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Service {
    /// What whoever has the ticket may.
    pub grant: Grant,
    /// Guests at once.
    pub max_sessions: u32,
    /// Bytes in the buffers of all of them. Names take half as many beside, at most.
    pub memory: u64,
    /// The most that is sent to all of them and received from them together, in IP packets. Each
    /// client keeps to an even share of it, or to what the others leave of theirs.
    pub max_rate: Option<Rate>,
    /// What is counted.
    pub meter: Meter,
    /// What the tickets of clients prove to know; `None`: made anew.
    pub secret: Option<Secret>,
    /// Those who are let in by their keys, each with a grant of his own: then there is no ticket.
    pub members: Option<Members>,
}

impl Service {
    /// Everything in `root`, for 64 at once, in 1 GiB.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (grant, meter) = (Grant::new(root), Meter::default());
        Self {
            grant,
            max_sessions: 64,
            memory: 1 << 30,
            max_rate: None,
            meter,
            secret: None,
            members: None,
        }
    }
}

/// Hears what a server does. Called from its thread; must not block.
pub trait ServerObserver: Send {
    /// Ready: this is where, and the secret. An error ends the server.
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()>;
    /// Ready, for those who have keys: this is where, `host:port` or `[v6]:port`.
    fn listening_at(&mut self, addresses: &[String]) {
        let _ = addresses;
    }
    /// A request is over.
    fn ended(&mut self, account: &Account);
    /// Something cannot be sent, and the connection that it concerns will not get on.
    fn warn(&mut self, error: &Error);
}
