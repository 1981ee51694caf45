//! The options of a server, and its observer.

use std::path::PathBuf;

use netblt_proto::config::Secret;
use netblt_proto::units::Rate;

use super::audit::AuditRecord;
use super::authorized_clients::AuthorizedClients;
use super::metrics::Metrics;
use crate::error::Error;
use crate::permissions::Permissions;
use crate::ticket::Ticket;

/// The default port of a server.
pub const PORT: u16 = 9981;

/// The options of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Service {
    /// The permissions of clients with the ticket.
    pub permissions: Permissions,
    /// Most sessions at once.
    pub max_sessions: u32,
    /// Bytes in the buffers of all of them. Names take half as many beside, at most.
    pub memory: u64,
    /// The most that is sent and received by all of them together, in IP packets. Each client gets
    /// an even share of it, or what the others leave unused.
    pub max_rate: Option<Rate>,
    /// The server's counts.
    pub metrics: Metrics,
    /// The secret in the ticket. `None`: a new one.
    pub secret: Option<Secret>,
    /// The accepted keys, each with its permissions. There is no ticket then.
    pub members: Option<AuthorizedClients>,
}

impl Service {
    /// Everything in `root`, for 64 at once, in 1 GiB.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (permissions, metrics) = (Permissions::new(root), Metrics::default());
        Self {
            permissions,
            max_sessions: 64,
            memory: 1 << 30,
            max_rate: None,
            metrics,
            secret: None,
            members: None,
        }
    }
}

/// Observes a server. Called from its thread; must not block.
pub trait ServerObserver: Send {
    /// Ready: this is where, and the secret. An error ends the server.
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()>;
    /// Ready, with clients that have keys: the addresses, `host:port` or `[v6]:port`.
    fn listening_at(&mut self, addresses: &[String]) {
        let _ = addresses;
    }
    /// The server's thread goes round, ten times a second or more, with clients or without: for a
    /// watchdog.
    fn alive(&mut self) {}
    /// A request has ended.
    fn ended(&mut self, account: &AuditRecord);
    /// Something cannot be sent, and the connection that it concerns will not get on.
    fn warn(&mut self, error: &Error);
}
